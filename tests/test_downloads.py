"""Downloads: broken ones go on, wrong ones are refused, and one at a time."""

import gzip
import io
import lzma
import re
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from serving import CONTENT, HALF, OTHER, SHA256, Server, answer, files, serving

from annotated.machinery import downloads
from annotated.machinery.downloads import _check_complete, download, fetch_url
from annotated.machinery.errors import FileError


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serving(monkeypatch) as running:
        yield running


def test_a_download_is_checked_and_placed(server: Server, tmp_path: Path, capsys):
    path = download(server.url, tmp_path / "cache" / "text.gz", len(CONTENT), SHA256)
    assert path == tmp_path / "cache" / "text.gz" and path.read_bytes() == CONTENT
    assert files(tmp_path) == ["cache/text.gz"] and server.asked == [None]
    assert "\n" not in capsys.readouterr().err  # the progress bar leaves nothing behind


@pytest.mark.parametrize("known", [True, False])
def test_a_download_goes_on_where_it_broke_off(server: Server, tmp_path: Path, known: bool):
    server.drops = [100_000, 50_000]
    size, sha256 = (len(CONTENT), SHA256) if known else (None, None)
    path = download(server.url, tmp_path / "text.gz", size, sha256)
    assert path.read_bytes() == CONTENT
    assert server.asked == [None, "bytes=100000-", "bytes=150000-"]


def test_a_download_goes_on_after_an_earlier_one(server: Server, tmp_path: Path):
    (tmp_path / "text.gz.part").write_bytes(CONTENT[:1234])
    assert download(server.url, tmp_path / "text.gz", sha256=SHA256).read_bytes() == CONTENT
    assert server.asked == ["bytes=1234-"] and files(tmp_path) == ["text.gz"]


def test_a_complete_part_is_not_fetched_again(server: Server, tmp_path: Path):
    (tmp_path / "text.gz.part").write_bytes(CONTENT)
    assert download(server.url, tmp_path / "text.gz", len(CONTENT), SHA256).read_bytes() == CONTENT
    assert server.asked == []


@pytest.mark.parametrize("longer", [CONTENT, CONTENT + b"x"])
def test_a_part_that_leaves_nothing_to_ask_for_starts_anew(server: Server, tmp_path: Path, longer):
    (tmp_path / "text.gz.part").write_bytes(longer)
    assert download(server.url, tmp_path / "text.gz", sha256=SHA256).read_bytes() == CONTENT
    assert server.asked == [f"bytes={len(longer)}-", None]


def test_a_server_that_ignores_ranges_starts_anew(server: Server, tmp_path: Path):
    server.ranges = False
    (tmp_path / "text.gz.part").write_bytes(b"something else")
    assert download(server.url, tmp_path / "text.gz", len(CONTENT), SHA256).read_bytes() == CONTENT
    assert server.asked == ["bytes=14-"]


def test_a_connection_that_brings_hardly_anything_is_given_up_and_nothing_lost(
    server: Server, tmp_path: Path
):
    server.drops = [20_000, 1000]
    with pytest.raises(OSError) as error:
        download(server.url, tmp_path / "text.gz", len(CONTENT), SHA256)
    for part in server.url, "21000 bytes are kept", "continues":
        assert part in str(error.value)
    assert (tmp_path / "text.gz.part").read_bytes() == CONTENT[:21_000]
    assert download(server.url, tmp_path / "text.gz", len(CONTENT), SHA256).read_bytes() == CONTENT


def test_nobody_answers(tmp_path: Path, server: Server):
    url = server.url
    server.shutdown()
    server.server_close()
    with pytest.raises(OSError, match=re.escape(url)):
        download(url, tmp_path / "text.gz")
    assert files(tmp_path) == []


def test_a_wrong_checksum_is_refused_and_what_was_there_stays(server: Server, tmp_path: Path):
    (tmp_path / "text.gz").write_bytes(b"old")
    with pytest.raises(ValueError) as error:
        download(server.url, tmp_path / "text.gz", sha256="0" * 64)
    assert server.url in str(error.value) and SHA256 in str(error.value)
    assert files(tmp_path) == ["text.gz"] and (tmp_path / "text.gz").read_bytes() == b"old"


def test_a_wrong_size_is_refused_before_it_is_fetched(server: Server, tmp_path: Path):
    with pytest.raises(ValueError, match=rf"99.*{len(CONTENT)}"):
        download(server.url, tmp_path / "text.gz", size=99)
    assert files(tmp_path) == []


def test_a_missing_file_names_its_url_and_a_place(server: Server, tmp_path: Path):
    server.missing = True
    with pytest.raises(OSError, match="404") as error:
        download(server.url, tmp_path / "text.gz")
    assert server.url in str(error.value) and str(tmp_path / "text.gz") in str(error.value)
    assert ".part" not in str(error.value) and files(tmp_path) == []


def test_an_unknown_checksum_is_told_and_remembered(server: Server, tmp_path: Path, capsys):
    download(server.url, tmp_path / "text.gz")
    assert f"text.gz: SHA-256 {SHA256}" in capsys.readouterr().err
    note = (tmp_path / "text.gz.sha256").read_text(encoding="utf-8")
    assert note == f"{SHA256}  text.gz\n"  # as sha256sum --check reads it
    (tmp_path / "text.gz").unlink()
    server.content = OTHER
    with pytest.raises(FileError, match="has changed at its source"):
        download(server.url, tmp_path / "text.gz")
    assert (tmp_path / "text.gz.sha256").read_text(encoding="utf-8") == note


PAGE = b"\xef\xbb\xbf\n<!DOCTYPE html><html><body>Please log in.</body></html>"


LIES = {  # what a server may say of a file whose sum is not known, and what is said to the reader
    "a page": (answer(PAGE, "Content-Type: text/html; charset=utf-8"), "sends a web page"),
    "a page without a type": (answer(PAGE), "got: a web page"),
    "a page of XHTML": (answer(b'<?xml version="1.0"?>\n<html xmlns="x">'), "got: a web page"),
    "a packed page": (answer(gzip.compress(PAGE), "Content-Encoding: gzip"), "got: a web page"),
    "nothing": (answer(), "got: nothing"),
    "nothing without a length": (answer(length=None), "got: nothing"),
    "no content": (answer(status="204 No Content", length=None), "the server answers 204"),
    "half": (answer(HALF, length=len(CONTENT)), "ended after|offers"),
    "half without a length": (answer(HALF, length=None), "got: Compressed file ended before"),
    "half as if it were all": (answer(HALF), "got: Compressed file ended before"),
    "half a chunk": (
        answer(b"ffff\r\n" + HALF[:1000], "Transfer-Encoding: chunked", length=None),
        "IncompleteRead",
    ),
    "a part": (
        answer(
            HALF, f"Content-Range: bytes 0-{len(HALF) - 1}/{len(CONTENT)}", status="206 Partial"
        ),
        "expected the file; the server answers 206",
    ),
    "garbage": (answer(CONTENT[50:]), "got: what begins with"),
    "packed garbage": (answer(CONTENT[:5000] + b"garbage" * 999), "got: "),
    "too much": (answer(CONTENT + b"garbage"), "got: Not a gzipped file"),
    "forbidden": (answer(b"no", status="403 Forbidden"), "403 Forbidden; a copy from elsewhere"),
    "nonsense": (b"\0\1\2\r\n\r\n", "text.gz: "),
    "a length of nonsense": (answer(HALF, "Content-Length: x", length=None), "got: Compressed"),
    "a circle": (answer(b"", "Location: text.gz", status="302 Found"), "infinite loop"),
    "a reset": (None, "reset by peer"),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_unknown_file_is_believed_only_if_it_is_whole(server: Server, tmp_path: Path, lie: str):
    said, told = LIES[lie]
    server.says, server.stubborn = [said], True
    with pytest.raises(FileError) as error:
        download(server.url, tmp_path / "text.gz")
    text = str(error.value)
    assert server.url in text and re.search(told, text) and "\n" not in text and len(text) < 600
    assert set(files(tmp_path)) <= {"text.gz.part"} and len(server.asked) < 15
    server.says = []  # and what is left behind is no obstacle to the truth
    assert download(server.url, tmp_path / "text.gz").read_bytes() == CONTENT
    assert files(tmp_path) == ["text.gz", "text.gz.sha256"]


@pytest.mark.parametrize("lie", LIES)
def test_no_answer_passes_for_a_file_whose_sum_is_known(server: Server, tmp_path: Path, lie: str):
    server.says, server.stubborn = [LIES[lie][0]], True
    with pytest.raises(FileError) as error:
        download(server.url, tmp_path / "text.gz", len(CONTENT), SHA256)
    assert server.url in str(error.value) and "\n" not in str(error.value)
    assert set(files(tmp_path)) <= {"text.gz.part"}


def ranged(start: int, total: object, body: bytes) -> bytes:
    span = f"Content-Range: bytes {start}-{start + len(body) - 1}/{total}"
    return answer(body, span, status="206 Partial Content")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (ranged(5, len(CONTENT), CONTENT[5:]), "100000.*bytes 5-"),
        (answer(CONTENT[100_000:], status="206 Partial Content"), "100000"),
        (ranged(100_000, 400_000, CONTENT[100_000:]), "400000"),
        (
            answer(OTHER + b"x"),
            f"{len(CONTENT)}.*{len(OTHER) + 1}",
        ),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_what_does_not_go_on_where_it_should_is_refused(server, tmp_path: Path, said, told, known):
    server.drops = [100_000]
    with pytest.raises(ConnectionError):  # the first half, as an earlier attempt has left it
        downloads._attempt(downloads._Arrival(server.url, tmp_path / "text.gz", len(CONTENT)))
    server.says, server.stubborn = [said], True
    with pytest.raises(FileError, match=told):
        fetch_url(server.url, tmp_path / "text.gz", len(CONTENT))
    if not known:
        server.says, server.drops, server.stubborn = [], [100_000], False
        arrival = downloads._Arrival(server.url, tmp_path / "new.gz", None)
        with pytest.raises(ConnectionError):
            downloads._attempt(arrival)
        server.says = [said]
        with pytest.raises(FileError, match=told):
            downloads._attempt(arrival)


def test_a_server_that_takes_back_what_it_sent_is_left_after_one_more_try(server, tmp_path: Path):
    (tmp_path / "text.gz.part").write_bytes(HALF)
    server.says, server.stubborn = [answer(status="416 Range Not Satisfiable")], True
    with pytest.raises(FileError, match="416"):
        download(server.url, tmp_path / "text.gz", len(CONTENT), SHA256)
    assert server.asked == [f"bytes={len(HALF)}-", None]


def test_a_server_that_sends_more_than_it_should_is_stopped(server: Server, tmp_path: Path):
    server.says = [answer(CONTENT + b"x" * 500_000, length=None)]
    with pytest.raises(FileError, match=f"{len(CONTENT)} bytes"):
        download(server.url, tmp_path / "text.gz", len(CONTENT), SHA256)


def test_slow_is_not_dead(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(downloads, "_SILENCE", 0.5)
    head, body = (
        answer(length=len(CONTENT)),
        [CONTENT[i : i + 30_000] for i in range(0, 10**6, 30_000)],
    )
    server.says = [head, *(what for piece in body if piece for what in (0.1, piece))]
    assert download(server.url, tmp_path / "text.gz").read_bytes() == CONTENT
    assert server.asked == [None]


@pytest.mark.parametrize("end", [2.0, None], ids=["silence", "reset"])
def test_a_dead_connection_is_replaced_and_none_of_it_lost(server, tmp_path, monkeypatch, end):
    monkeypatch.setattr(downloads, "_SILENCE", 0.5)
    server.says = [answer(length=len(CONTENT)) + CONTENT[:20_001], 0.2, end]
    assert download(server.url, tmp_path / "text.gz").read_bytes() == CONTENT
    assert server.asked == [None, "bytes=20001-"]


@pytest.mark.parametrize("known", [True, False])
def test_threads_that_want_the_same_file_take_turns(server, tmp_path, known: bool, capsys):
    server.says = [answer(length=len(CONTENT)) + HALF, 0.5, CONTENT[len(HALF) :]]
    sums = (len(CONTENT), SHA256) if known else ()
    with ThreadPoolExecutor(8) as pool:
        found = list(
            pool.map(lambda _: download(server.url, tmp_path / "text.gz", *sums), range(8))
        )
    assert {path.read_bytes() for path in found} == {CONTENT} and server.asked == [None]
    assert files(tmp_path) == ["text.gz"] + ["text.gz.sha256"] * (not known)
    assert "another process downloads text.gz; waiting for it\n" in capsys.readouterr().err


@pytest.mark.slow
def test_a_process_that_waits_for_another_goes_on_when_that_one_dies(server, tmp_path: Path):
    server.says = [answer(length=len(CONTENT)) + HALF, 60.0]  # to the first that comes
    place = tmp_path / "text.gz"
    code = (
        "import sys, pathlib; from annotated.machinery.downloads import download;"
        "download(sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])"
    )
    command = [sys.executable, "-c", code, server.url, str(place), str(len(CONTENT)), SHA256]
    with (
        subprocess.Popen(command, stderr=subprocess.DEVNULL) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        part = tmp_path / "text.gz.part"
        while other.poll() is None and not (part.exists() and part.stat().st_size == len(HALF)):
            time.sleep(0.05)
        job = pool.submit(download, server.url, place, len(CONTENT), SHA256)
        time.sleep(0.3)
        assert not job.done() and server.asked == [None]
        other.kill()
        assert job.result(60).read_bytes() == CONTENT
    assert files(tmp_path) == ["text.gz"]
    assert server.asked == [None, f"bytes={len(HALF)}-"]  # and nothing is fetched twice


CONLLU = b"# text = A dog\n" + b"1\tdog\t_\n" * 999


def packed(kind: str) -> bytes:
    """An archive with two texts."""
    made = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(made, "w") as archive:
            for name in "ab":
                archive.writestr(name, CONTENT)
    else:
        with tarfile.open(fileobj=made, mode=f"w:{kind}") as tar:
            for name in "ab":
                (info := tarfile.TarInfo(name)).size = len(CONTENT)
                tar.addfile(info, io.BytesIO(CONTENT))
    return made.getvalue()


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("a.tgz", packed("gz")),
        ("a.tar.gz", packed("gz")),
        ("a.tar.xz", packed("xz")),
        ("a.tar", packed("")),
        ("a.zip", packed("zip")),
        ("a.xz", lzma.compress(CONTENT)),
        ("a.gz", CONTENT),
    ],
)
def test_an_archive_tells_itself_whether_it_is_whole(tmp_path: Path, name: str, whole: bytes):
    path = tmp_path / "file"
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    path.write_bytes(whole)
    _check_complete(path, name, ends=False)
    cuts = [whole[:n] for n in (0, 1, 512, len(whole) // 2)]
    if name == "a.tar":  # without a sum of its own, but with zeros at its end
        cuts.append(whole[: 512 + -(-len(CONTENT) // 512) * 512])  # where the second member begins
    else:
        cuts += [whole[:-9], bytes(flipped), whole[:-4] + b"oops"]
    for broken in [*cuts, PAGE, b"x" * 9999]:
        path.write_bytes(broken)
        with pytest.raises(FileError, match=name):
            _check_complete(path, name, ends=False)


def test_a_packed_file_is_no_archive_for_that(tmp_path: Path):
    """Its own check is right at the end, but what it holds is cut off, or is no archive."""
    for inside in packed("")[:5000], b"x" * 9999:
        (tmp_path / "file").write_bytes(gzip.compress(inside))
        _check_complete(tmp_path / "file", "a.gz")
        with pytest.raises(FileError, match=r"a\.tgz"):
            _check_complete(tmp_path / "file", "a.tgz")


@pytest.mark.parametrize(
    ("said", "good"),
    [
        (answer(CONLLU), True),
        (answer(b"%x\r\n%s\r\n0\r\n\r\n" % (len(CONLLU), CONLLU), "Transfer-Encoding: chunked",
                length=None), True),
        (answer(CONLLU, length=None), False),  # nobody can tell whether this is all
        (answer(gzip.compress(CONLLU), "Content-Encoding: gzip"), False),
        (answer(b'{"error": "try again later"}'), False),
    ],
)  # fmt: skip
def test_a_text_is_whole_if_the_server_says_where_it_ends(server, tmp_path: Path, said, good):
    server.says = [said]
    if good:
        path = download(server.url, tmp_path / "a.conllu")
        assert path.read_bytes() == CONLLU and len(files(tmp_path)) == 2
    else:
        with pytest.raises(FileError, match=r"a\.conllu"):
            download(server.url, tmp_path / "a.conllu")
        assert files(tmp_path) == []
