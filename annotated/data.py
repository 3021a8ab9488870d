"""5.1 Training Data and Batching (chapters/5-1-data-batching.md).

Generated from the chapter's export cells by book/extract.py: edit it there.
"""

import codecs
import gzip
import hashlib
import lzma
import os
import re
import sys
import tarfile
import urllib.request
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, fields
from functools import cached_property
from http.client import HTTPException, HTTPResponse
from importlib import resources
from itertools import count, islice, zip_longest
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError

import numpy as np
import platformdirs
import torch
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor
from tqdm import tqdm

from annotated.attention import subsequent_mask
from annotated.embeddings import check_tokens
from annotated.files import (
    FileError,
    InputError,
    MissingFile,
    check_whole,
    locked,
    reading,
    settings,
    write_text,
    writing,
)

__all__ = [
    "END",
    "PAD",
    "SPECIALS",
    "START",
    "UNK",
    "Batch",
    "Corpus",
    "CorpusFile",
    "EncodedPairs",
    "HeldOut",
    "PairReport",
    "archive_texts",
    "cache_folder",
    "check_complete",
    "clean_pairs",
    "corpora",
    "corpus_file",
    "corpus_files",
    "corpus_parts",
    "decode_lines",
    "download",
    "each_text",
    "encode_source",
    "encode_target",
    "fetch_url",
    "find_corpus",
    "known_split",
    "learn_vocabulary",
    "load_pairs",
    "local_file",
    "make_batch",
    "pad_ids",
    "parse_data",
    "part_lines",
    "read_lines",
    "sha256_of",
    "shipped",
    "token_batches",
    "train_bpe",
    "train_wordpiece",
    "well_formed",
    "word_vocabulary",
]


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def shipped(name: str) -> Path:
    """Path of a file or folder that comes with the package, such as "corpora.toml" or "models"."""
    package = Path(str(resources.files("annotated")))
    installed = package / name
    return installed if installed.exists() else package.parent / "data" / name


@dataclass(frozen=True)
class CorpusFile:
    """What is known of a file: size (bytes), SHA-256, and its URL if it is not its corpus's own."""

    size: int | None = None
    sha256: str | None = None
    url: str = ""


@dataclass(frozen=True)
class HeldOut:
    """How dev and test come out of parts that they share with train: `corpora.toml` explains it."""

    by: str
    dev: int
    test: int = 0

    def __post_init__(self) -> None:
        if self.by not in ("hash", "end", "turn") or self.dev < 1 or self.test < 0:
            raise InputError(f'expected by as "hash", "end" or "turn", and numbers; got {self}')


_PLACE = re.compile(r"{(.*?)}")
_PLACES = {"lang", "foreign", "role", "lang3", "foreign3"}


@dataclass(frozen=True)
class Corpus:
    """A corpus of the register: what it is, and what its splits are made of.

    `splits` names the parts of each split: files, or members of archives (ARCHIVE/MEMBER), with
    {lang} and its relatives for the languages; `local` names other shapes of a split that may lie
    in ANNOTATED_DATA/`folder`. `on_bad` says what becomes of bad pairs of train. The URL of a file
    is `url`/NAME if it has none of its own.
    """

    name: str
    title: str
    source: str
    licence: str
    languages: list[str]
    folder: str
    splits: dict[str, list[str]]
    files: dict[str, CorpusFile]
    local: dict[str, list[str]] = field(default_factory=dict)
    held_out: HeldOut | None = None
    on_bad: str = "refuse"
    url: str = ""

    def __post_init__(self) -> None:
        if self.on_bad not in ("refuse", "drop"):
            raise InputError(f'expected on_bad as "refuse" or "drop"; got {self.on_bad!r}')
        for split, parts in [*self.splits.items(), *self.local.items()]:
            if split not in self.splits:
                raise InputError(f"expected local for splits that there are; got {split!r}")
            if strange := {place for part in parts for place in _PLACE.findall(part)} - _PLACES:
                known = ", ".join(sorted(_PLACES))
                raise InputError(f"expected placeholders out of {known}; got {min(strange)!r}")


def corpora() -> dict[str, Corpus]:
    """All corpora of the register, by name.

    Raises: FileError that names the corpus and the key, if the register is not as its head says.
    """
    path = shipped("corpora.toml")
    with reading(path, "a register of corpora"), path.open("rb") as file:
        register = tomllib.load(file)
    return {name: _entry(name, entry, f"{path}, {name}") for name, entry in register.items()}


def _entry(name: str, entry: Any, where: str) -> Corpus:
    """A corpus out of its table in the register."""
    if not isinstance(entry, dict):
        raise FileError(f"{where}: expected the table of a corpus; got {entry!r:.80}")
    entry = {"name": name, **entry}
    if isinstance(entry.get("files"), dict):
        known = entry["files"].items()
        entry["files"] = {n: settings(CorpusFile, f, f"{where}, files, {n}") for n, f in known}
    if "held_out" in entry:
        entry["held_out"] = settings(HeldOut, entry["held_out"], f"{where}, held_out")
    return settings(Corpus, entry, where)


def find_corpus(name: str) -> Corpus:
    """One corpus of the register.

    Raises: ValueError that lists the names if this is none of them.
    """
    known = corpora()
    if name not in known:
        raise InputError(f"expected a corpus out of {', '.join(known)}; got {name!r}")
    return known[name]


_SILENCE = 30  # seconds without a byte after which a connection is given up


@dataclass
class _Arrival:
    """A file that arrives: from where, at which place, its size if that is known, and whether
    a server said where it ends."""

    url: str
    place: Path
    size: int | None
    ends: bool = False

    def have(self) -> int:
        """How many bytes are there."""
        return self.place.stat().st_size if self.place.exists() else 0

    def begins(self, answer: HTTPResponse) -> int:
        """At which byte of the file an answer begins, 0 or what we asked for.

        Raises: FileError if it is no answer to our question.
        """
        start, said = self.have(), answer.headers.get("Content-Range", "")
        span = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", said)
        goes_on = answer.status == 206 and start and span and int(span[1]) == start
        if answer.status != 200 and not goes_on:
            asked = f"the bytes from {start} on" if start else "the file"
            got = f"{answer.status} {said}".strip()
            raise FileError(f"{self.url}: expected {asked}; the server answers {got}")
        if self.size is None and answer.headers.get_content_type() == "text/html":
            raise FileError(f"{self.url}: expected a file; the server sends a web page")
        total = answer.length
        if span and goes_on:
            total = None if span[2] == "*" else int(span[2])
        if None not in (self.size, total) and total != self.size:
            raise FileError(f"{self.url}: expected {self.size} bytes; the server offers {total}")
        self.size = total if self.size is None else self.size
        self.ends = self.size is not None or bool(answer.chunked)
        return start if goes_on else 0


def _attempt(arrival: _Arrival) -> None:
    """Append to a file what it still lacks.

    Raises: OSError or HTTPException if the connection breaks; FileError if the server offers
        something else.
    """
    headers = {"User-Agent": "annotated"}
    if have := arrival.have():
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(arrival.url, headers=headers)
    with urllib.request.urlopen(request, timeout=_SILENCE) as answer:
        start, most = arrival.begins(answer), arrival.size
        bar = tqdm(desc=arrival.place.stem, initial=start, total=most, unit="B", unit_scale=True,
                   leave=False)  # fmt: skip
        with arrival.place.open("ab" if start else "wb") as file, bar:
            while block := answer.read1(1 << 16):  # what has come by now, to lose none of it
                file.write(block)
                bar.update(len(block))
                if most is not None and file.tell() > most:
                    raise FileError(f"{arrival.url}: expected {most} bytes; the server sends more")
    if most and arrival.have() < most:
        raise ConnectionError(f"the connection ended after {arrival.have()} of {most} bytes")


_LITTLE = 1 << 14  # an attempt that brings fewer bytes than these is the last


def fetch_url(url: str, place: Path, size: int | None = None, advice: str = "") -> bool:
    """Fetch a file, in as many attempts as it takes while each of them brings something.

    Args:
        url: where it is.   place: where it goes; what lies there is taken for its beginning.
        size: its bytes, if they are known.   advice: what to do if it cannot be had at all.

    Returns: whether a size was known or told, so that the file is known to have arrived whole.

    Raises: FileError that names the URL, what is kept, and what to do.
    """
    arrival, fresh = _Arrival(url, place, size, ends=size is not None), False
    while size is None or arrival.have() != size:
        before = arrival.have()
        try:
            _attempt(arrival)
            break
        except FileError:
            raise
        except (OSError, HTTPException, ValueError) as error:
            now, code = arrival.have(), error.code if isinstance(error, HTTPError) else None
            if code == 416 and before and not fresh:
                place.unlink()  # nothing lies beyond what we have, so this is not its beginning
                fresh = True
            elif now - before < _LITTLE:
                if now and size is not None:
                    advice = f"{now} bytes are kept, and the same command continues there"
                said = " ".join(f"{code or ''} {getattr(error, 'reason', error)}".split())
                raise FileError(f"{url}: {said}" + f"; {advice}" * bool(advice)) from None
    return arrival.ends


_OPENERS: dict[str, Any] = {".gz": gzip.open, ".tgz": gzip.open, ".xz": lzma.open}
_BEGINS = {
    ".gz": b"\x1f\x8b",
    ".tgz": b"\x1f\x8b",
    ".xz": b"\xfd7zXZ\0",
    ".zip": b"PK\3\4",
    ".conllu": b"#",
}
_PAGE = re.compile(
    rb"(\xef\xbb\xbf)?\s*(<\?xml[^>]*>\s*)?<(!doctype\s+html|html|head|body)\b", re.I
)


def check_complete(file: Path, name: str, ends: bool = True) -> None:
    """Read a file through: it has to be what its name says, from its beginning to its end.

    Args:
        file: where it is.   name: what it is called.
        ends: whether its length is known to be right; a text is not believed without.

    Raises: FileError that says what is wrong.
    """
    with reading(file.with_name(name), "the whole file"):
        with file.open("rb") as raw:
            start = raw.read(512)
            raw.seek(-min(1024, file.stat().st_size), os.SEEK_END)
            finish = raw.read()
        if not start:
            raise ValueError("nothing")
        if not start.startswith(_BEGINS.get(Path(name).suffix, b"")) or _PAGE.match(start):
            what = "a web page" if _PAGE.match(start) else f"what begins with {start[:8]!r}"
            raise ValueError(what)
        if name.endswith(".zip"):
            with zipfile.ZipFile(file) as archive:
                if damaged := archive.testzip():
                    raise ValueError(f"a damaged {damaged} in it")
        else:
            _read_through(file, name)
        packed = name.endswith((*_OPENERS, ".zip"))
        if not packed and (any(finish) if name.endswith(".tar") else not ends):
            raise ValueError("a file without an end, of which more may be missing")


def _read_through(file: Path, name: str) -> None:
    """Unpack a file to its end, where its sum of itself stands, and throw away what is in it.

    Raises: whatever Python raises over a damaged file; ValueError for a web page inside.
    """
    with _OPENERS.get(Path(name).suffix, open)(file, "rb") as unpacked:
        if _PAGE.match(unpacked.read(512)):
            raise ValueError("a web page")
        unpacked.seek(0)
        if re.search(r"\.(tgz|tar(\.[gx]z)?)$", name):
            with tarfile.open(fileobj=unpacked, mode="r|") as archive:
                for _ in archive:
                    pass
        while unpacked.read(1 << 20):
            pass


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _note(place: Path) -> Path:
    """Where the SHA-256 of a file is remembered that the register does not know."""
    return place.with_name(place.name + ".sha256")


def _known_sum(place: Path, sha256: str | None) -> str | None:
    """The SHA-256 that a file must have: the registered one, else the remembered one, else none."""
    note = _note(place)
    if sha256 or not note.exists():
        return sha256
    with reading(note, f"the SHA-256 of {place.name}", "delete it"):
        return re.findall(r"\b[0-9a-f]{64}\b", note.read_text(encoding="utf-8"))[0]


def _believe(file: Path, place: Path, sha256: str | None, ends: bool = True) -> None:
    """Compare a file with the sum that it must have; if none is known, this one is remembered.

    Raises: FileError if it is another file, or if none is known and it is not whole.
    """
    known, found = _known_sum(place, sha256), sha256_of(file)
    if found != known:
        check_complete(file, place.name, ends)  # which may say what it is instead
    if known is None:
        write_text(_note(place), f"{found}  {place.name}\n")
        print(f"{place.name}: SHA-256 {found}, remembered in {_note(place).name}", file=sys.stderr)
    elif found != known:
        accept = "" if sha256 else f"; to accept it, delete {_note(place)}"
        raise FileError(
            f"{place.name}: its SHA-256 is {found}, not the expected one; try again, and if it "
            f"stays so, the file has changed at its source{accept}"
        )


def download(url: str, path: Path, size: int | None = None, sha256: str | None = None) -> Path:
    """Fetch a file to its place, unless the right one is there; a broken download is continued.

    Args:
        url: where it is.   path: where it goes.
        size, sha256: bytes and SHA-256 that it must have, if they are known.

    Raises: FileError if it cannot be fetched; what has arrived is kept. FileError also if it is
        not the file that was expected, or not whole; then nothing changes at `path`.
    """
    part, advice = (
        path.with_name(path.name + ".part"),
        f"a copy from elsewhere may be put at {path}",
    )
    with _one_at_a_time(path):
        known = _known_sum(path, sha256)
        if known and path.exists() and sha256_of(path) == known:
            return path
        if known is None:
            part.unlink(missing_ok=True)  # nobody would notice a file half old and half new
        ends = fetch_url(url, part, size, advice)
        try:
            _believe(part, path, sha256, ends)
        except FileError as error:
            part.unlink()
            raise FileError(f"{url}: {error}; {advice}") from error
        part.replace(path)
    return path


def _one_at_a_time(path: Path) -> AbstractContextManager[None]:
    """A lock on the download of a file, for which others wait."""
    busy = f"another process downloads {path.name}; waiting for it"
    return locked(path.with_name(f".{path.name}.lock"), busy, timeout=-1)


def cache_folder() -> Path:
    """Where downloads are kept."""
    return Path(platformdirs.user_cache_dir("annotated"))


def local_file(corpus: Corpus, name: str) -> Path | None:
    """A file in the folder that ANNOTATED_DATA names, compressed or not, if it is there."""
    if "ANNOTATED_DATA" not in os.environ:
        return None
    folder = Path(os.environ["ANNOTATED_DATA"]) / corpus.folder
    shapes = (folder / name, folder / name.removesuffix(".gz"))
    return next((path for path in shapes if path.exists()), None)


def corpus_file(corpus: Corpus, name: str, fetch: bool | None = None) -> Path:
    """Path of one file of a corpus: in ANNOTATED_DATA, in the cache, or downloaded now.

    Args:
        fetch: whether to download it if need be; by default, if ANNOTATED_DATA is not set.

    Raises: MissingFile if it is not on this machine and shall not or cannot be downloaded;
        FileError as `download`.
    """
    entry, cached = corpus.files.get(name, CorpusFile()), cache_folder() / corpus.folder / name
    local = local_file(corpus, name)
    if local or _lies_there(cached, entry.sha256):
        return local or cached
    folder = f"{os.environ.get('ANNOTATED_DATA', '$ANNOTATED_DATA')}/{corpus.folder}"
    url = entry.url or (f"{corpus.url}/{name}" if corpus.url else None)
    if url is None:
        raise MissingFile(f"expected {name} in {folder}; no place to download it is known")
    if fetch is False or (fetch is None and "ANNOTATED_DATA" in os.environ):
        how = f"put it there, or run: annotated data get {corpus.name}"
        raise MissingFile(f"expected {name} in {folder}; {how}")
    return download(url, cached, entry.size, entry.sha256)


def _lies_there(place: Path, sha256: str | None) -> bool:
    """Whether the right file is at its place; one that somebody put there is read through once.

    Raises: FileError if that one is not whole.
    """
    if not place.exists():
        return False
    if known := _known_sum(place, sha256):
        return sha256_of(place) == known
    with _one_at_a_time(place):
        _believe(place, place, sha256)
    return True


_LONGEST = 1 << 20  # bytes of a line


def _bounded(file: IO[bytes], name: str) -> Iterator[bytes]:
    """Lines of an open file; FileError for one that is too long."""
    for number in count(1):
        line = file.readline(_LONGEST + 1)
        if len(line) > _LONGEST:
            raise FileError(f"{name}, line {number}: longer than {_LONGEST:,} bytes")
        if not line:
            return
        yield line


def part_lines(path: Path, member: str = "") -> Iterator[bytes]:
    """Lines of a file, or of a member of a tar or zip archive, decompressed, as they are needed.

    Raises: MissingFile or FileError that names the file, if it is damaged, if the archive has no
        such member, or if a line is longer than 2^20 bytes.
    """
    name = f"{path}: {member}" if member else str(path)
    with reading(path, "a whole file of the kind that its name says"):
        if not member:
            if path.suffix in _OPENERS and not path.stat().st_size:
                raise FileError(f"{path}: expected a compressed file; it is empty")
            with _OPENERS.get(path.suffix, open)(path, "rb") as file:
                yield from _bounded(file, name)
            return
        met = False
        for found, _, file in _members(path):
            if found == member and not met:
                met = True
                unpack: Any = gzip.open if member.endswith(".gz") else nullcontext
                with unpack(file) as unpacked:
                    yield from _bounded(unpacked, name)
        if not met:
            raise FileError(f"expected {member} in {path}")


def _members(path: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Name, size and content of each file in an archive; what nobody reads is passed over."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                with archive.open(info) as file:
                    yield info.filename, info.file_size, file
    else:
        with tarfile.open(path) as tar:  # not as a stream, which unpacks in blocks of any size
            for member in tar:
                content = tar.extractfile(member) if member.isfile() else None
                if content:
                    yield member.name, member.size, content
            while tar.fileobj and tar.fileobj.read(_LONGEST):
                pass


_SEGMENT = re.compile(rb"<seg[^>]*>(.*?)</seg>")
_HEADER = re.compile(rb"<(title|description)>(.*)</\1>")


def _sentences(name: str, lines: Iterable[bytes]) -> Iterator[bytes]:
    """The sentences of a file: its lines, or what WMT's and IWSLT's mark-up holds."""
    if name.endswith((".sgm", ".xml")):  # entities stay as they are, as sacreBLEU leaves them
        yield from (found[1].strip() for line in lines if (found := _SEGMENT.search(line)))
    elif "/train.tags." in name:
        for line in lines:
            found = _HEADER.match(line)
            if found or not line.startswith(b"<"):
                yield (found[2] if found else line).strip()
    else:
        yield from lines


def _lines(path: Path, member: str = "") -> Iterator[bytes]:
    """The sentences of a file or a member of an archive, as bytes."""
    lines = _unmarked(part_lines(path, member))
    bare = (line.removesuffix(b"\n").removesuffix(b"\r") for line in lines)
    yield from _sentences(f"{path.name}/{member}", bare)


def _unmarked(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The same lines, the first without the byte-order mark that Windows puts before it."""
    for number, line in enumerate(lines):
        yield line if number else line.removeprefix(codecs.BOM_UTF8)


def decode_lines(lines: Iterable[bytes], name: str) -> Iterator[str]:
    """Lines as text, as they arrive, without their ends.

    Raises: FileError with name and number of a line that is not UTF-8.
    """
    for number, line in enumerate(_unmarked(lines), start=1):
        try:
            text = line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            byte = f"byte 0x{line[error.start]:02x}"
            raise FileError(f"{name}, line {number}: expected UTF-8; got {byte}") from None
        yield text


def read_lines(path: Path) -> list[str]:
    """Lines of a UTF-8 text file, which may be compressed by gzip or xz, without their ends.

    Raises: as `part_lines`; FileError that names the file and line if it is not UTF-8.
    """
    return list(decode_lines(part_lines(path), str(path)))


_MOST = 1 << 28  # bytes, of all texts that are taken out of an archive at once


def archive_texts(path: Path, endings: tuple[str, ...]) -> dict[str, str]:
    """The texts in a tar or zip archive whose names end so, by name; lines end at line feeds.

    Raises: MissingFile, or FileError if the archive is damaged, if a text is not UTF-8, or if
        they have more than 2^28 bytes together.
    """
    texts: dict[str, str] = {}
    left = _MOST
    with reading(path, "a whole archive"):
        for name, size, file in _members(path):
            if name.endswith(endings):
                left -= size
                if left < 0:
                    raise FileError(f"{path}: expected at most {_MOST:,} bytes of texts; got more")
                where = f"{path}: {name}"
                texts[name] = "\n".join(decode_lines(_bounded(file, where), where))
    return texts


_THREE = {"en": "eng", "de": "deu", "fr": "fra"}


def _fill(part: str, lang: str, foreign: str) -> str:
    """A part of the register, for one side of a pair."""
    role = "ref" if lang == "en" else "src"
    names = {"lang": lang, "foreign": foreign, "role": role}
    names |= {"lang3": _THREE.get(lang, lang), "foreign3": _THREE.get(foreign, foreign)}
    return _PLACE.sub(lambda place: names[place[1]], part)


def corpus_parts(corpus: Corpus, split: str, src: str, tgt: str) -> list[tuple[str, str]]:
    """What a split is made of: each part of the source, and that of the target.

    Returns: pairs of FILE or ARCHIVE/MEMBER; both are the same if one file holds both sides.

    Raises: ValueError if the corpus has no such split or pair of languages.
    """
    if split not in corpus.splits or {src, tgt} - set(corpus.languages) or src == tgt:
        raise ValueError(
            f"expected a split out of {', '.join(corpus.splits)} and two languages out of "
            f"{', '.join(corpus.languages)} of {corpus.name}; got {split!r}, {src!r}, {tgt!r}"
        )
    foreign = tgt if src == "en" else src
    shapes = [corpus.local.get(split, []), corpus.splits[split]]
    if "en" not in (src, tgt) and any("{foreign" in p for s in shapes for p in s):
        raise ValueError(f"expected English on one side of {corpus.name}; got {src!r}, {tgt!r}")
    local, parts = ([(_fill(p, src, foreign), _fill(p, tgt, foreign)) for p in s] for s in shapes)
    here = local and all(local_file(corpus, name) for pair in local for name in pair)
    return local if here else parts


def known_split(corpus: Corpus, split: str) -> list[str]:
    """The parts of a split.

    Raises: ValueError if the corpus has no such split.
    """
    if split not in corpus.splits:
        raise ValueError(
            f"expected a split out of {', '.join(corpus.splits)} of {corpus.name}; got {split!r}"
        )
    return corpus.splits[split]


def corpus_files(corpus: Corpus, splits: Iterable[str] = (), fetch: bool = True) -> Iterator[Path]:
    """Path of each file that splits of a corpus (default: all) are made of, downloaded if need be.

    Raises: ValueError for an unknown split; else as `corpus_file`.
    """
    others = [language for language in corpus.languages if language != "en"]
    parts = [
        part
        for split in splits or corpus.splits
        for foreign in others
        for pair in corpus_parts(corpus, split, "en", foreign)
        for part in pair
    ]
    if not others:  # English alone, with annotations
        parts = [part for split in splits or corpus.splits for part in known_split(corpus, split)]
    names = dict.fromkeys(part.partition("/")[0] for part in parts)  # which keeps the order
    yield from (corpus_file(corpus, name, fetch) for name in names)


def _bucket(english: bytes) -> int:
    """A number from 0 to 99 that depends on the ASCII letters and digits of a sentence alone."""
    letters = re.sub(rb"\W", b"", english.lower())
    return int.from_bytes(hashlib.sha256(letters).digest()[:4], "big") % 100


def _split_of(rule: HeldOut, english: list[bytes]) -> list[str]:
    """Which split each line of a shared part belongs to, by the rule of the register.

    Raises: ValueError if there are too few lines to hold so many out.
    """
    dev, test = rule.dev, rule.test
    if rule.by == "end":
        if len(english) < dev + test:
            raise ValueError(f"{len(english)} lines, of which {dev + test} are to be held out")
        return ["train"] * (len(english) - dev - test) + ["dev"] * dev + ["test"] * test
    if rule.by == "turn":
        return ["train" if number % dev else "dev" for number in range(1, len(english) + 1)]
    buckets = (_bucket(line) for line in english)
    return ["dev" if b < dev else "test" if b < dev + test else "train" for b in buckets]


@dataclass
class PairReport:
    """How many pairs of a file are good, and the line numbers of the others by what is wrong."""

    name: str
    good: int = 0
    bad: dict[str, list[int]] = field(default_factory=dict)

    def __str__(self) -> str:
        faults = []
        for fault, lines in self.bad.items():
            first = ", ".join(map(str, lines[:5])) + (", …" if len(lines) > 5 else "")
            faults.append(f"{len(lines):,} {fault} (line{'s' * (len(lines) > 1)} {first})")
        total = self.good + sum(map(len, self.bad.values()))
        return f"{self.name}: {self.good:,} good pairs of {total:,}" + "".join(
            f"; {fault}" for fault in faults
        )


def _judge(sides: tuple[bytes | str | None, ...], max_words: int | None) -> tuple[list[str], str]:
    """The sides of a pair as text, and what is wrong with them; "" if nothing is."""
    if None in sides:
        return [], "without a partner"
    try:
        texts = [s if isinstance(s, str) else s.decode("utf-8") for s in sides if s is not None]
    except UnicodeDecodeError:
        return [], "not UTF-8"
    if not all(text.strip() for text in texts):
        return texts, "with an empty side"
    if max_words and max(len(text.split()) for text in texts) > max_words:
        return texts, f"longer than {max_words} words"
    return texts, ""


def clean_pairs(
    source: Iterable[bytes | str | None],
    target: Iterable[bytes | str | None],
    on_bad: str = "refuse",
    max_words: int | None = None,
    name: str = "pairs",
    numbers: Iterable[int] | None = None,
) -> tuple[list[str], list[str], PairReport]:
    """Keep the pairs that can be used, and report the others.

    Args:
        source, target: lines; bytes are decoded as UTF-8; None stands for a missing line.
        on_bad: "refuse" to stop at bad pairs, "drop" to leave them out.
        max_words: most words that a side may have; None for no limit.
        name: what the report is about.   numbers: of the lines, if not 1, 2, 3, …

    Returns: good source lines, good target lines, and the report.

    Raises: ValueError with the report if pairs are bad and shall be refused.
    """
    if on_bad not in ("refuse", "drop"):
        raise ValueError(f'expected on_bad to be "refuse" or "drop"; got {on_bad!r}')
    report = PairReport(name)
    good: list[list[str]] = []
    lines = zip_longest(source, target)
    for number, sides in zip(numbers or count(1), lines, strict=False):
        texts, fault = _judge(sides, max_words)
        if fault:
            report.bad.setdefault(fault, []).append(number)
        else:
            good.append(texts)
    report.good = len(good)
    if report.bad and on_bad == "refuse":
        raise ValueError(f'{report}; mend them, or leave them out with on_bad="drop"')
    return [texts[0] for texts in good], [texts[1] for texts in good], report


def _read_part(
    corpus: Corpus, split: str, names: tuple[str, str], src: str, fetch: bool | None
) -> tuple[Iterable, Iterable, Iterable[int] | None]:
    """Lines of both sides of a part, and their numbers if only some of them are of this split."""
    paths = [
        (corpus_file(corpus, file, fetch), member)
        for file, _, member in (name.partition("/") for name in names)
    ]
    source: Iterable[Any]
    target: Iterable[Any]
    source, target = (_lines(*path) for path in paths)
    if names[0] == names[1]:  # tab-separated, English first
        rows = [(*line.split(b"\t"), None)[:2] for line in source]
        english, other = ([row[side] for row in rows] for side in (0, 1))
        source, target = (english, other) if src == "en" else (other, english)
    if not corpus.held_out or corpus.splits[split] != corpus.splits.get("train"):
        return source, target, None
    pairs = list(zip_longest(source, target))
    sides = [pair[0 if src == "en" else 1] or b"" for pair in pairs]
    with reading(paths[0][0], "the lines of all splits"):
        chosen = [i for i, of in enumerate(_split_of(corpus.held_out, sides)) if of == split]
    return (pairs[i][0] for i in chosen), (pairs[i][1] for i in chosen), (i + 1 for i in chosen)


def load_pairs(
    corpus: str,
    split: str,
    src: str,
    tgt: str,
    on_bad: str | None = None,
    max_words: int | None = None,
    fetch: bool | None = None,
) -> tuple[list[str], list[str]]:
    """Source and target sentences of a split, line by line translations of each other.

    Args:
        corpus: a name of the register, a folder with files such as train.en, or several of
            these with + between.
        split: "train", "dev", "test", …
        src, tgt: languages, such as "en" and "de".
        on_bad, max_words: as `clean_pairs`; by default bad pairs are dropped from the training
            data of corpora that are registered so, with a warning, and refused elsewhere.
        fetch: whether to download what is missing; by default, if ANNOTATED_DATA is not set.

    Raises: ValueError for an unknown name or bad pairs; else as `corpus_file`.

    Source: section 5.1.
    """
    if corpus not in corpora() and Path(corpus).is_dir():
        return _load_folder(Path(corpus), split, src, tgt, on_bad or "refuse", max_words)
    if "+" in corpus:
        options = split, src, tgt, on_bad, max_words, fetch
        parts = [load_pairs(name, *options) for name in corpus.split("+")]
        first, second = ([line for part in parts for line in part[side]] for side in (0, 1))
        return first, second
    found = find_corpus(corpus)
    on_bad = on_bad or (found.on_bad if split == "train" else "refuse")
    source: list[str] = []
    target: list[str] = []
    for names in corpus_parts(found, split, src, tgt):
        lines = _read_part(found, split, names, src, fetch)
        name = f"{corpus} {split}, {names[0]}"
        good_source, good_target, report = clean_pairs(
            *lines[:2], on_bad, max_words, name, lines[2]
        )
        if report.bad:
            warnings.warn(str(report), stacklevel=2)
        source += good_source
        target += good_target
    return source, target


def _load_folder(
    folder: Path, split: str, src: str, tgt: str, on_bad: str, max_words: int | None
) -> tuple[list[str], list[str]]:
    """Pairs of the files SPLIT.LANGUAGE in a folder, which may be compressed."""
    sides = []
    for lang in src, tgt:
        paths = [folder / f"{split}.{lang}{ending}" for ending in ("", ".gz", ".xz")]
        path = next((path for path in paths if path.exists()), None)
        if path is None:
            raise MissingFile(f"expected {paths[0].name} in {folder}")
        sides.append(_lines(path))
    source, target, report = clean_pairs(
        sides[0], sides[1], on_bad, max_words, f"{folder}, {split}"
    )
    if report.bad:
        warnings.warn(str(report), stacklevel=3)
    return source, target


def parse_data(data: str) -> tuple[str, str, str]:
    """Corpus, source and target language of a name such as "multi30k-en-de" or "my/texts-en-de".

    Raises: ValueError unless it ends in two languages.
    """
    corpus, *pair = data.rsplit("-", 2)
    if len(pair) < 2 or not corpus:
        raise ValueError(f"expected data as CORPUS-SRC-TGT, such as multi30k-en-de; got {data!r}")
    src, tgt = pair
    whole = {data, f"{corpus}-{tgt}-{src}"} & set(corpora())  # its name may have its languages
    return (whole.pop() if whole else corpus), src, tgt


SPECIALS = ["<s>", "</s>", "<pad>", "<unk>"]
START, END, PAD, UNK = range(4)


def well_formed(text: str) -> str:
    """The same text with U+FFFD for each lone surrogate, so that it has a form in UTF-8.

    Raises: ValueError if it is no text.
    """
    if not isinstance(text, str):
        raise InputError(f"expected text; got {type(text).__name__}")
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def each_text(sentences: Iterable[str]) -> Iterator[str]:
    """Each sentence, well formed.

    Raises: ValueError if these are not sentences: a single text is refused, for its letters
        would be taken for them.
    """
    if isinstance(sentences, str | bytes) or not isinstance(sentences, Iterable):
        raise InputError(f"expected several sentences; got {type(sentences).__name__}")
    yield from map(well_formed, sentences)


def _train(model: Any, trainer: Any, sentences: Iterable[str]) -> Tokenizer:
    """What both kinds of vocabulary share: NFC, spaces as ▁, punctuation on its own."""
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()]
    )
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(each_text(sentences), trainer)
    return tokenizer


def train_bpe(sentences: Iterable[str], vocab_size: int) -> Tokenizer:
    """Learn a byte-pair vocabulary, shared by source and target.

    Args:
        sentences: text of both languages.
        vocab_size: number of pieces at most, the four special symbols included.

    Returns: a tokenizer whose decoding restores spaces and punctuation exactly.

    Source: section 5.1.
    """
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=SPECIALS, show_progress=False
    )
    return _train(models.BPE(unk_token="<unk>"), trainer, sentences)


def train_wordpiece(sentences: Iterable[str], vocab_size: int) -> Tokenizer:
    """Learn a word-piece vocabulary, shared by source and target.

    Args, Returns: as `train_bpe`. A word with an unknown letter becomes one unknown piece.

    Source: section 5.1.
    """
    model = models.WordPiece(
        unk_token="<unk>", continuing_subword_prefix="", max_input_chars_per_word=1000
    )
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIALS,
        show_progress=False,
        continuing_subword_prefix="",
    )
    return _train(model, trainer, sentences)


_LARGEST = 10_000_000  # pieces; the library makes room for all that are asked for
_VOCABULARIES: dict[str, Callable[[Iterable[str], int], Tokenizer]] = {
    "bpe": train_bpe,
    "wordpiece": train_wordpiece,
}


def learn_vocabulary(kind: str, sentences: Iterable[str], vocab_size: int) -> Tokenizer:
    """Learn a shared vocabulary.

    Args:
        kind: "bpe", as the paper for English-German (37,000 pieces), or "wordpiece", as for
            English-French (32,000).
        sentences: text of both languages.   vocab_size: number of pieces at most.

    Raises: ValueError for another kind, for a size that leaves no piece beside the special
        symbols, or if these are not sentences.

    Source: section 5.1.
    """
    if kind not in _VOCABULARIES:
        raise InputError(f"expected a vocabulary out of {', '.join(_VOCABULARIES)}; got {kind!r}")
    check_whole("vocab_size", vocab_size, len(SPECIALS) + 1, _LARGEST)
    return _VOCABULARIES[kind](sentences, vocab_size)


def word_vocabulary(sentences: Iterable[str], lang: str, min_count: int = 2) -> dict[str, int]:
    """Words, as spaCy's rules for a language cut them, with their ids; the special symbols first.

    Args:
        min_count: how often a word has to occur to be in the vocabulary.
    """
    import spacy  # slow to import, and only needed for whole words

    words: Any = spacy.blank(lang).tokenizer
    counts = Counter(word.text for sentence in words.pipe(sentences) for word in sentence)
    known = [word for word, n in counts.most_common() if n >= min_count and word not in SPECIALS]
    return {word: i for i, word in enumerate([*SPECIALS, *known])}


def encode_source(tokenizer: Tokenizer, sentences: Iterable[str]) -> list[list[int]]:
    """Sentences to ids, each closed by the end symbol; lone surrogates count as U+FFFD.

    Raises: ValueError if these are not sentences.
    """
    tokenizer.encode_special_tokens = True  # "</s>" in a text is text
    return [[*encoding.ids, END] for encoding in tokenizer.encode_batch(list(each_text(sentences)))]


def encode_target(tokenizer: Tokenizer, sentences: Iterable[str]) -> list[list[int]]:
    """Sentences to ids between start and end symbol, as `encode_source`."""
    return [[START, *ids] for ids in encode_source(tokenizer, sentences)]


def _batched(items: Iterable[str], size: int) -> Iterator[list[str]]:
    """Lists of so many items each, the last one shorter."""
    items = iter(items)
    while block := list(islice(items, size)):
        yield block


def _flat(rows: Iterable[list[list[int]]], dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """Blocks of lists of ids to one flat array, and the ends of the lists in it, after a zero."""
    ids: list[np.ndarray] = [np.zeros(0, dtype)]
    lengths: list[np.ndarray] = [np.zeros(1, np.int64)]
    for block in rows:
        ids.append(np.fromiter((i for row in block for i in row), dtype))
        lengths.append(np.fromiter(map(len, block), np.int64))
    return np.concatenate(ids), np.cumsum(np.concatenate(lengths))


@dataclass(frozen=True)
class EncodedPairs:
    """Sentence pairs as ids: `pairs[i]` is the i-th source and target, `len(pairs)` their number.

    Attributes: src, tgt: all ids of a side, flat. src_ends, tgt_ends: (pairs + 1,); sentence i
        is ids[ends[i]:ends[i + 1]].

    Source: section 5.1.
    """

    src: np.ndarray
    src_ends: np.ndarray
    tgt: np.ndarray
    tgt_ends: np.ndarray

    @classmethod
    def encode(
        cls,
        tokenizer: Tokenizer,
        source: Iterable[str],
        target: Iterable[str],
        progress: bool = False,
    ) -> "EncodedPairs":
        """Encode sentences, ends as `encode_source` and `encode_target` put them.

        Raises: ValueError if there are not as many source as target sentences.
        """
        dtype = np.uint16 if tokenizer.get_vocab_size() <= 1 << 16 else np.int32
        sides: list[np.ndarray] = []
        for encode, sentences in (encode_source, source), (encode_target, target):
            shown = tqdm(sentences, desc=encode.__name__, disable=not progress, leave=False)
            sides += _flat((encode(tokenizer, block) for block in _batched(shown, 10_000)), dtype)
        if len(sides[1]) != len(sides[3]):
            raise ValueError(
                "expected as many source as target sentences; "
                f"got {len(sides[1]) - 1} and {len(sides[3]) - 1}"
            )
        return cls(*sides)

    def __len__(self) -> int:
        return len(self.src_ends) - 1

    def __getitem__(self, i: int) -> tuple[list[int], list[int]]:
        i = range(len(self))[i]  # negative indices count from the end; IndexError beyond
        src = self.src[self.src_ends[i] : self.src_ends[i + 1]]
        return src.tolist(), self.tgt[self.tgt_ends[i] : self.tgt_ends[i + 1]].tolist()

    @cached_property
    def lengths(self) -> np.ndarray:
        """Number of ids of each source and target, (pairs, 2)."""
        return np.stack([np.diff(self.src_ends), np.diff(self.tgt_ends)], axis=1)

    def save(self, path: Path) -> None:
        """Write a safetensors file: the name holds the old file or the whole new one."""
        with writing(path) as part:
            save_file({field.name: getattr(self, field.name) for field in fields(self)}, part)

    @classmethod
    def load(cls, path: Path) -> "EncodedPairs":
        """Read what `save` wrote.

        Raises: MissingFile or FileError if it is not there, or damaged.
        """
        with reading(path, _ENCODED, _ANEW):
            pairs = cls(**load_file(path))
        if problem := _misfit(pairs):
            raise FileError(f"{path}: expected {_ENCODED}; got {problem}; {_ANEW}")
        return pairs


_ENCODED = "the encoded pairs of a run"
_ANEW = "delete the folder of the run and start it anew"


def _misfit(pairs: EncodedPairs) -> str:
    """What is wrong with arrays that were read as pairs; empty if nothing is."""
    for ids, ends in (pairs.src, pairs.src_ends), (pairs.tgt, pairs.tgt_ends):
        if ids.dtype not in (np.uint16, np.int32) or ends.dtype != np.int64:
            return f"numbers of type {ids.dtype} and {ends.dtype}"
        if ids.ndim != 1 or ends.ndim != 1 or not len(ends) or (np.diff(ends) < 1).any():
            return "sentences without ids"
        if ends[0] != 0 or ends[-1] != len(ids) or ids.min(initial=0) < 0:
            return "ends that do not fit the ids"
    return "" if len(pairs.src_ends) == len(pairs.tgt_ends) else "sides of different lengths"


def _length_order(
    lengths: np.ndarray, budget: np.ndarray, rng: np.random.Generator | None
) -> np.ndarray:
    """Indices of pairs so that neighbours are of similar length on both sides."""
    shuffled = np.arange(len(lengths)) if rng is None else rng.permutation(len(lengths))
    scaled = (
        lengths * budget.min() / budget
    )  # the longer side is the one that fills its budget first
    longest = np.ceil(scaled.max(axis=1)).astype(np.int64)
    difference = scaled[:, 0] - scaled[:, 1]
    turning = np.where(longest % 2, difference, -difference)
    return shuffled[np.lexsort((turning[shuffled], longest[shuffled]))]  # equal pairs stay shuffled


def _cut(order: np.ndarray, lengths: np.ndarray, budget: np.ndarray) -> list[np.ndarray]:
    """Cut a sequence of pairs into batches as full as the budgets (source, target) allow."""
    batches, start = [], 0
    while start < len(order):
        most = int((budget // lengths[order[start]]).min())  # if all were as short as the first
        window = order[start : start + most]
        longest = np.maximum.accumulate(lengths[window], axis=0)
        cells = longest * np.arange(1, len(window) + 1)[:, None]
        size = int((cells <= budget).all(axis=1).sum())  # cells only grow
        batches.append(window[:size])
        start += size
    return batches


def token_batches(
    lengths: np.ndarray | Sequence[Sequence[int]],
    src_tokens: int = 25_000,
    tgt_tokens: int = 25_000,
    seed: int | None = None,
) -> list[np.ndarray]:
    """Group pairs of similar length so that neither side of a batch exceeds its token budget.

    Args:
        lengths: (pairs, 2), number of ids of each source and target, ends included.
        src_tokens, tgt_tokens: most tokens of a side of a batch, padding included.
        seed: shuffles pairs of equal lengths, and the batches; None keeps length order.

    Returns: batches, each an array of indices of pairs.

    Raises: ValueError if one pair alone exceeds a budget, if a sentence has no tokens, or if the
        numbers are none.

    Source: section 5.1.
    """
    for name, tokens in ("src_tokens", src_tokens), ("tgt_tokens", tgt_tokens):
        check_whole(name, tokens)
    lengths = np.asarray(lengths)
    if lengths.size and (lengths.dtype.kind not in "iu" or lengths.shape[1:] != (2,)):
        raise InputError(f"expected whole numbers (pairs, 2); got {lengths.dtype} {lengths.shape}")
    lengths = lengths.astype(np.int64).reshape(-1, 2)
    if (lengths < 1).any():
        raise InputError(
            f"expected tokens on both sides; pair {lengths.min(axis=1).argmin()} lacks them"
        )
    most = np.iinfo(np.int64).max // (len(lengths) + 1)  # a product of these is still a number
    budget = np.array([min(src_tokens, most), min(tgt_tokens, most)])
    too_long = np.flatnonzero((lengths > budget).any(axis=1))
    if len(too_long):
        raise InputError(
            f"expected pairs of at most {src_tokens} and {tgt_tokens} tokens; {len(too_long)} are "
            f"longer, the first is pair {too_long[0]} with {lengths[too_long[0]].tolist()}"
        )
    rng = None if seed is None else np.random.default_rng(seed)
    batches = _cut(_length_order(lengths, budget, rng), lengths, budget)
    return batches if rng is None else [batches[i] for i in rng.permutation(len(batches))]


class Batch:
    """Sentence pairs as the model takes them.

    Args:
        src: ids (batch, src_len), padded.
        tgt: ids (batch, tgt_len + 1), from start symbol to end symbol, padded; may be None.
        pad: the padding id.

    Attributes: src, src_mask (batch, 1, src_len), tgt without its last token, tgt_y without
        its first (what the model must predict), tgt_mask (batch, tgt_len, tgt_len), and
        ntokens, the number of target tokens to predict.

    Raises: ValueError for ids that are no whole numbers (batch, len).

    Source: sections 3.1 and 5.1.
    """

    def __init__(self, src: Tensor, tgt: Tensor | None = None, pad: int = PAD) -> None:
        check_tokens("src", src)
        self.src = src
        self.src_mask = (src != pad).unsqueeze(-2)
        if tgt is not None:
            check_tokens("tgt", tgt)
            self.tgt = tgt[:, :-1]
            self.tgt_y = tgt[:, 1:]
            self.tgt_mask = self.make_std_mask(self.tgt, pad)
            self.ntokens = (self.tgt_y != pad).sum()

    @staticmethod
    def make_std_mask(tgt: Tensor, pad: int) -> Tensor:
        """(batch, len) to (batch, len, len): no padding, nothing to the right."""
        return (tgt != pad).unsqueeze(-2) & subsequent_mask(tgt.size(-1)).to(tgt.device)


def pad_ids(rows: Sequence[Sequence[int]], pad: int = PAD) -> Tensor:
    """Lists of ids to one tensor (batch, longest), padded on the right.

    Raises: ValueError if there are no lists, or if they hold something else than whole numbers.
    """
    with suppress(TypeError, ValueError, RuntimeError):  # which say little of what is wrong
        longest = max(map(len, rows))
        ids = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows])
        text = any(isinstance(row, str | bytes) for row in rows)
        whole = ids.dtype != torch.bool and torch.can_cast(ids.dtype, torch.int64)
        if not text and ids.dim() == 2 and (whole or not longest):
            return ids.long()
    raise InputError(f"expected lists of ids, at least one; got {rows!r:.80}")


def make_batch(
    pairs: list[tuple[list[int], list[int]]], device: torch.device | str = "cpu"
) -> Batch:
    """Pairs of id lists to a batch on a device; ValueError if there are none."""
    if not pairs:
        raise ValueError("expected at least one pair for a batch; got none")
    src, tgt = zip(*pairs, strict=True)
    return Batch(pad_ids(src).to(device), pad_ids(tgt).to(device))
