"""Texts: lines of files and archives, and what is not text."""

import gzip
import lzma
import re
import tracemalloc
import zipfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import tar

from annotated.data import encode_source, train_bpe
from annotated.machinery.checks import each_text
from annotated.machinery.corpora.texts import archive_texts, part_lines, read_lines
from annotated.machinery.errors import FileError, MissingFile


@pytest.mark.parametrize(
    ("raw", "lines"),
    [
        (b"a\r\nb\r\n", ["a", "b"]),
        ("a\x85\u2028\u2029\x0b\x0c\x1c\n\n".encode(), ["a\x85\u2028\u2029\x0b\x0c\x1c", ""]),
        (b"a\nb", ["a", "b"]),
        (b" a \n\tb\n\n", [" a ", "\tb", ""]),
        ("\ufeff\u00a0ä\n\ufeffruns\n".encode(), ["\u00a0ä", "\ufeffruns"]),  # the first: a mark
    ],
)
def test_ends_of_lines(tmp_path: Path, raw: bytes, lines: list[str]):
    for suffix, pack in {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}.items():
        (tmp_path / f"text{suffix}").write_bytes(pack(raw))
        assert read_lines(tmp_path / f"text{suffix}") == lines


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_bytes_that_are_not_utf8_name_file_and_line(tmp_path: Path, suffix: str):
    path = tmp_path / f"text.de{suffix}"
    raw = "schön\n".encode() * 2 + "schön\n".encode("latin-1")
    path.write_bytes(gzip.compress(raw) if suffix else raw)
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}, line 3.*0xf6"):
        read_lines(path)


def pack(path: Path, members: dict[str, bytes]) -> None:
    """An archive of the kind that its name says; a file that is compressed alone has no members."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
    elif path.name.endswith(("tgz", "tar", "tar.xz")):
        tar(path, members, {".tgz": "w:gz", ".tar": "w", ".xz": "w:xz"}[path.suffix])
    else:
        (content,) = members.values()
        path.write_bytes((gzip if path.suffix == ".gz" else lzma).compress(content))


MEMBERS = {"a/other.en": b"no\n", "a/text.en": b"one\ntwo\n", "text.gz": gzip.compress(b"three\n")}


@pytest.mark.parametrize("suffix", ["tgz", "tar", "tar.xz", "zip"])
def test_a_member_of_an_archive(tmp_path: Path, suffix: str):
    path = tmp_path / f"archive.{suffix}"
    pack(path, MEMBERS)
    assert list(part_lines(path, "a/text.en")) == [b"one\n", b"two\n"]
    assert list(part_lines(path, "text.gz")) == [b"three\n"]
    with pytest.raises(FileError, match=rf"missing.*{re.escape(str(path))}"):
        list(part_lines(path, "missing"))


TEXT = "".join(f"line {n} of a text: {n * n}\n" for n in range(400)).encode()


@pytest.mark.parametrize("name", ["a.gz", "a.xz", "a.zip", "a.tgz", "a.tar.xz"])
def test_a_damaged_file_is_named_and_never_read_as_another_text(tmp_path: Path, name: str):
    path, member, random = tmp_path / name, "" if name in ("a.gz", "a.xz") else "m", Random(9)
    pack(path, {"m": TEXT})
    whole = path.read_bytes()
    spoilt = [b"", b"<html></html>", bytes(1000), TEXT]
    spoilt += [whole[: random.randrange(len(whole))] for _ in range(20)]
    for _ in range(25):
        place = random.randrange(len(whole))
        flipped = bytes([whole[place] ^ 1 << random.randrange(8)])
        spoilt.append(whole[:place] + flipped + whole[place + 1 :])
    for content in spoilt:
        path.write_bytes(content)
        try:
            assert b"".join(part_lines(path, member)) == TEXT  # a flip in a header may not matter
        except FileError as error:
            assert name in str(error) and "\n" not in str(error)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["tgz", "tar.xz", "zip", "gz"])
def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path: Path, suffix: str):
    huge, path = b"short\n" + b"x" * (64 << 20), tmp_path / f"a.{suffix}"
    pack(path, {"m": huge})
    del huge
    tracemalloc.start()
    with pytest.raises(FileError, match=r"a\.\w+.*, line 2.*1,048,576"):
        list(part_lines(path, "" if suffix == "gz" else "m"))
    assert tracemalloc.get_traced_memory()[1] < 12 << 20
    tracemalloc.stop()
    (tmp_path / "edge").write_bytes(b"x" * ((1 << 20) - 1) + b"\ny\n")
    assert [len(line) for line in read_lines(tmp_path / "edge")] == [(1 << 20) - 1, 1]


def test_texts_of_an_archive(tmp_path: Path):
    tar(tmp_path / "a.tgz", {"a.txt": b"x\n" * 40, "b.txt": b"y\n" * 40, "c": b"z" * 999}, "w:gz")
    texts = {"a.txt": "\n".join("x" * 40), "b.txt": "\n".join("y" * 40)}
    assert archive_texts(tmp_path / "a.tgz", (".txt",)) == texts
    with pytest.raises(MissingFile, match=r"b\.tgz"):
        archive_texts(tmp_path / "b.tgz", (".txt",))


@given(st.text(st.characters(categories=["Cs", "Lu", "So"]), max_size=8))
def test_lone_surrogates_become_the_replacement_character(text: str):
    """Compared with a walk over the text: a high half and a low one make a character."""
    expected, rest = "", text
    while rest:
        high, low = ord(rest[0]), ord(rest[1]) if len(rest) > 1 else 0
        pair = 0xD800 <= high < 0xDC00 <= low < 0xE000
        lone = "\ufffd" if 0xD800 <= high < 0xE000 else rest[0]
        expected += chr(0x10000 + (high - 0xD800 << 10) + low - 0xDC00) if pair else lone
        rest = rest[2:] if pair else rest[1:]
    assert list(each_text([text])) == [expected]
    tokenizer = train_bpe(["Zwei Männer fahren Rad."], 60)
    assert encode_source(tokenizer, [text]) == encode_source(tokenizer, [expected])
