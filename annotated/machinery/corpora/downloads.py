"""Downloads: verified by SHA-256, resumed after interruptions, one at a time.

Corpora have gigabytes, so an interrupted download must continue rather than start over. The usual
library, pooch, cannot resume, and the code in huggingface_hub that can is private, hence this
module. The bytes received so far are kept as NAME.part, which is moved to NAME only if its SHA-256
is the expected one.
"""

import hashlib
import re
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import platformdirs

from annotated.machinery.errors import FileError
from annotated.machinery.files import locked, reading, require_regular
from annotated.machinery.progress import progress_bar

_TIMEOUT = 30  # seconds without data after which a connection is abandoned
_LEAST = 1 << 14  # an attempt that receives fewer bytes is the last


def cache_folder() -> Path:
    """The folder in which downloads are kept."""
    return Path(platformdirs.user_cache_dir("annotated"))


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits. Raises: MissingFile or FileError that names it."""
    digest, expected = hashlib.sha256(), "a file whose SHA-256 is known"
    with reading(path, expected):
        require_regular(path)
    with reading(path, expected), path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def download(url: str, path: Path, sha256: str, size: int | None = None) -> Path:
    """Download a file unless it is already there; an interrupted download is resumed.

    Args:
        url: its address.   path: its destination.
        sha256, size: its required SHA-256, and its number of bytes if known.

    Raises: FileError if it cannot be downloaded, in which case the bytes received so far are kept,
        or if it is not the expected file; in both cases `path` is unchanged.
    """
    part, advice = path.with_name(path.name + ".part"), f"a copy may be put at {path}"
    busy = f"another process downloads {path.name}; waiting for it"
    with locked(path.with_name(f".{path.name}.lock"), busy, timeout=-1):
        if path.exists() and sha256_of(path) == sha256:
            return path
        _fetch(url, part, size, advice)
        if (found := sha256_of(part)) != sha256:
            part.unlink()
            raise FileError(
                f"{url}: expected SHA-256 {sha256}; got {found}; try again; if it happens again, "
                f"the file has changed at its source; {advice}"
            )
        part.replace(path)  # not with `writing`, which deletes an incomplete file
    return path


def _fetch(url: str, path: Path, size: int | None, advice: str) -> None:
    """Append the missing bytes to a file, in further attempts as long as each receives some."""
    while size is None or _bytes_in(path) != size:
        before = _bytes_in(path)
        try:
            return _fetch_rest(url, path, size)
        except FileError:
            raise
        except (OSError, HTTPException, ValueError) as error:
            code, now = getattr(error, "code", ""), _bytes_in(path)
            # There is no such range, so our bytes are not the beginning of the file.
            if code == 416 and before:
                path.unlink()
            elif now - before < _LEAST:
                if now and size is not None:
                    advice = f"{now} bytes are kept, and the same command continues there"
                reason = error.reason if isinstance(error, HTTPError) else error
                message = " ".join(f"{url}: {code} {reason}".split())
                raise FileError(f"{message}; {advice}") from None


def _bytes_in(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _fetch_rest(url: str, path: Path, size: int | None) -> None:
    """Append the missing bytes to a file, in one attempt."""
    start = _bytes_in(path)
    headers = {"User-Agent": "annotated"} | ({"Range": f"bytes={start}-"} if start else {})
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
        span = answer.headers.get("Content-Range", "")
        if answer.status == 200:  # also from a server that ignores ranges
            start = 0
        elif answer.status != 206 or not start or not re.match(rf"bytes {start}-", span):
            got = f"{answer.status} {span}".strip()
            raise FileError(f"{url}: expected its bytes from {start} on; the server answers {got}")
        total = None if answer.length is None else start + answer.length
        if size is not None and total not in (None, size):
            raise FileError(f"{url}: expected {size} bytes; the server offers {total}")
        options: dict[str, Any] = {"unit": "B", "unit_scale": True, "leave": False}
        bar = progress_bar(desc=path.stem, initial=start, total=total, **options)
        with path.open("ab" if start else "wb") as file, bar:
            # It returns received data immediately, so that nothing is lost.
            while block := answer.read1(1 << 16):
                file.write(block)
                bar.update(len(block))
                if size is not None and file.tell() > size:
                    raise FileError(f"{url}: expected {size} bytes; the server sends more")
    total = total if size is None else size
    if total is not None and _bytes_in(path) < total:
        raise ConnectionError(f"the connection ended after {_bytes_in(path)} of {total} bytes")
