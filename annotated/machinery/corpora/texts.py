"""Lines of text files and archives, read as they are needed, with a check that they are text.

A corpus of gigabytes is never in memory as a whole, and lines end only at line feeds: Python's
own `splitlines` would also split at U+2028 and other characters, which occur inside sentences.
"""

import codecs
import gzip
import lzma
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from typing import IO, Any

from annotated.machinery.errors import FileError
from annotated.machinery.files import reading

OPENERS: dict[str, Any] = {".gz": gzip.open, ".tgz": gzip.open, ".xz": lzma.open}
_MAX_LINE = 1 << 20  # bytes


def bounded_lines(file: IO[bytes], name: str) -> Iterator[bytes]:
    """Lines of an open file. Raises: FileError for a line that is too long."""
    for number in count(1):
        line = file.readline(_MAX_LINE + 1)
        if len(line) > _MAX_LINE:
            raise FileError(f"{name}, line {number}: longer than {_MAX_LINE:,} bytes")
        if not line:
            return
        yield line


def bare_lines(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines without their ends, and the first without the byte order mark that Windows writes."""
    for number, line in enumerate(lines):
        bare = line.removesuffix(b"\n").removesuffix(b"\r")
        yield bare if number else bare.removeprefix(codecs.BOM_UTF8)


def decode_lines(lines: Iterable[bytes], name: str) -> Iterator[str]:
    """Lines as text, as they arrive, without their ends.

    Raises: FileError with the name of the file and the number of a line that is not UTF-8.
    """
    for number, line in enumerate(bare_lines(lines), start=1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            byte = f"byte 0x{line[error.start]:02x}"
            raise FileError(f"{name}, line {number}: expected UTF-8; got {byte}") from None
        yield text


def read_lines(path: Path) -> list[str]:
    """Lines of a UTF-8 text file, which may be compressed by gzip or xz, without their ends.

    Raises: as `part_lines`; FileError that names the file and line if it is not UTF-8.
    """
    return list(decode_lines(part_lines(path), str(path)))


def _archive_members(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and content of each file in a tar or zip archive; files may be left unread."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                with archive.open(info) as file:
                    yield info.filename, file
    else:
        with tarfile.open(path) as tar:  # not as a stream, whose blocks may have any size
            for member in tar:
                content = tar.extractfile(member) if member.isfile() else None
                if content:
                    yield member.name, content
            while tar.fileobj and tar.fileobj.read(_MAX_LINE):  # up to the checksum at the end
                pass


def part_lines(path: Path, member: str = "") -> Iterator[bytes]:
    """Lines of a file, or of a member of a tar or zip archive, decompressed, as they are needed.

    Raises: MissingFile or FileError that names the file if it is damaged, if the archive has no
        such member, or if a line is longer than 2^20 bytes.
    """
    with reading(path, "lines of text"):
        if not member:
            if path.suffix in OPENERS and not path.stat().st_size:
                raise FileError(f"{path}: expected a compressed file; it is empty")
            with OPENERS.get(path.suffix, open)(path, "rb") as file:
                yield from bounded_lines(file, str(path))
            return
        found = False
        for name, file in _archive_members(path):
            if name == member and not found:
                found = True
                unpack: Any = gzip.open if member.endswith(".gz") else nullcontext
                with unpack(file) as unpacked:
                    yield from bounded_lines(unpacked, f"{path}: {member}")
        if not found:
            raise FileError(f"expected {member} in {path}")


def archive_texts(path: Path, endings: tuple[str, ...]) -> dict[str, str]:
    """The texts in a tar or zip archive whose names end in `endings`, by name.

    Raises: MissingFile, or FileError if the archive is damaged or a text is not UTF-8.
    """
    texts: dict[str, str] = {}
    with reading(path, "a complete archive"):
        for name, file in _archive_members(path):
            if name.endswith(endings):
                where = f"{path}: {name}"
                texts[name] = "\n".join(decode_lines(bounded_lines(file, where), where))
    return texts
