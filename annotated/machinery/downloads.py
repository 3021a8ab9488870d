"""Downloads."""

import hashlib
import os
import re
import sys
import urllib.request
from contextlib import AbstractContextManager
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO
from urllib.error import HTTPError

import platformdirs
from tqdm import tqdm

from annotated.machinery.errors import FileError
from annotated.machinery.files import locked, reading, write_text
from annotated.machinery.texts import archive_members, open_unpacked

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


_PACKED = ".gz", ".tgz", ".xz", ".zip"
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


def _check_complete(file: Path, name: str, ends: bool = True) -> None:
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
        _read_through(file, name)
        if not name.endswith(_PACKED) and (any(finish) if name.endswith(".tar") else not ends):
            raise ValueError("a file without an end, of which more may be missing")


def _read_through(file: Path, name: str) -> None:
    """Unpack a file to its end, where its sum of itself stands, and throw away what is in it.

    Raises: whatever Python raises over a damaged file; ValueError for a web page inside.
    """

    def drain(content: IO[bytes]) -> None:
        while content.read(1 << 20):
            pass

    with open_unpacked(file, name) as unpacked:
        if _PAGE.match(unpacked.read(512)):
            raise ValueError("a web page")
    if re.search(r"\.(zip|tgz|tar(\.[gx]z)?)$", name):
        for _, _, content in archive_members(file, name):
            drain(content)
    else:
        with open_unpacked(file, name) as unpacked:
            drain(unpacked)


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
        _check_complete(file, place.name, ends)  # which may say what it is instead
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
        part.replace(path)  # not by `writing`, which deletes what broke off
    return path


def _one_at_a_time(path: Path) -> AbstractContextManager[None]:
    """A lock on the download of a file, for which others wait."""
    busy = f"another process downloads {path.name}; waiting for it"
    return locked(path.with_name(f".{path.name}.lock"), busy, timeout=-1)


def cache_folder() -> Path:
    """Where downloads are kept."""
    return Path(platformdirs.user_cache_dir("annotated"))


def lies_there(place: Path, sha256: str | None) -> bool:
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
