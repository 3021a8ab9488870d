"""Reading and writing files: one-line errors that name the file, and atomic writes.

Everything is written beside its place as NAME.part and moved there when it is complete, so that a
full disk or a killed process leaves the old file or the new one, never half of one.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dacite import Config, DaciteError, from_dict
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open

from annotated.machinery.errors import FileError, InputError, MissingFile

if TYPE_CHECKING:  # torch takes a second to import, and most files hold no tensors
    from torch import Tensor


def _reason(error: BaseException) -> str:
    """The message of an exception as one short line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = re.sub(r"\s+", " ", str(error)).strip() or type(error).__name__
    return text if len(text) <= 200 else text[:200] + "…"


@contextmanager
def reading(path: Path | str, expected: str, advice: str = "") -> Iterator[None]:
    """Around the lines that read one file: any error becomes one line that names the file.

    Args:
        path: the file.   expected: what it should contain, such as "the weights of a model".
        advice: what to do if it does not.

    Raises: MissingFile if there is no such file, FileError for any other fault of the file. The
        package's own errors pass unchanged, and so do faults of the code.
    """
    more = f"; {advice}" if advice else ""
    try:
        yield
    except (InputError, NameError, ImportError):
        raise
    except FileNotFoundError as error:
        raise MissingFile(f"expected {expected} at {path}; there is no such file{more}") from error
    except Exception as error:
        raise FileError(f"{path}: expected {expected}; got: {_reason(error)}{more}") from error


_T = TypeVar("_T")


def read_json(path: Path, expected: str) -> dict[str, Any]:
    """The object in a JSON file.

    Raises: MissingFile or FileError that names the file.
    """
    with reading(path, expected):
        value = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise FileError(f"{path}: expected {expected}; got: {type(value).__name__}, not an object")
    return value


def settings(kind: type[_T], values: Mapping[str, Any], where: str) -> _T:
    """A dataclass from the values in a file.

    Args:
        kind: the dataclass.   values: its fields by name.
        where: the file, or the part of it, that error messages begin with.

    Raises: FileError that names a field that is unknown, missing, or of another type, and what
        the dataclass itself refuses.
    """
    if not isinstance(values, Mapping):
        raise FileError(f"{where}: expected settings by name; got {values!r:.80}")
    try:
        return from_dict(kind, values, Config(strict=True))
    except DaciteError as error:
        wrong = f"expected a {kind.__name__}; got: {_reason(error)}"
        raise FileError(f"{where}: {wrong}") from error
    except ValueError as error:  # its message states what was expected
        raise FileError(f"{where}: {_reason(error)}") from error


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Where to write a file; it is moved to `path` when the block ends.

    Raises: FileError if the disk is full or the folder cannot be written to. Then, and after any
        other error in the block, `path` is as it was before.
    """
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        os.replace(part, path)
    except InputError:  # about something else
        raise
    except (OSError, SafetensorError) as error:
        kept = f"; {path} is as it was" if path.exists() else ""
        raise FileError(f"{path} could not be written: {_reason(error)}{kept}") from error
    finally:
        with suppress(OSError):
            part.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a text file, atomically. Raises: FileError"""
    with writing(path) as part:
        part.write_text(text, encoding="utf-8")


@contextmanager
def writing_new_folder(path: Path) -> Iterator[Path]:
    """Where to write the files of a new folder; it is moved to `path` when the block ends.

    Raises: InputError if `path` is a file or a folder with content; FileError if the disk is full
        or the place cannot be written to. After any error in the block nothing is there.
    """
    if os.path.exists(path) and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"expected a new or an empty folder; got {path}, which is not empty")
    part = path.with_name(path.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        part.mkdir(parents=True)
        yield part
        if path.exists():
            path.rmdir()
        os.replace(part, path)
    except InputError:  # about something else
        raise
    except OSError as error:
        message = f"{path} could not be written: {_reason(error)}; nothing is kept of it"
        raise FileError(message) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def write_tensors(path: Path, tensors: Mapping[str, "Tensor"], metadata: dict[str, str]) -> None:
    """Write a safetensors file, atomically. Raises: FileError"""
    from safetensors.torch import save_file

    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with writing(path) as part:
        save_file(whole, part, metadata)


def read_tensors(path: Path, expected: str) -> tuple[dict[str, "Tensor"], dict[str, str]]:
    """Tensors and metadata of a safetensors file.

    Args:
        expected: what the file should contain, for messages.

    Raises: MissingFile or FileError that names the file.
    """
    with reading(path, expected), safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in sorted(file.keys())}, file.metadata() or {}


@contextmanager
def locked(path: Path, busy: str, timeout: float = 0) -> Iterator[None]:
    """Hold a lock between processes while the block runs.

    Args:
        path: the lock's own file.   busy: the message if another process holds it: the error, or,
            if there is time to wait, one line on standard error.
        timeout: seconds to wait for it; -1 waits as long as it takes.

    Raises: FileError if another process still holds it, or if it cannot be created.
    """
    lock = FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(Timeout):
            lock.acquire(timeout=0)
        if not lock.is_locked:
            if timeout:
                print(busy, file=sys.stderr, flush=True)
            lock.acquire(timeout=timeout)
    except Timeout:
        raise FileError(busy) from None
    except OSError as error:
        raise FileError(f"{path} could not be locked: {_reason(error)}") from error
    try:
        yield
    finally:
        lock.release()


def resource_path(name: str) -> Path:
    """Path of a file or folder that comes with the package, such as "corpora.toml" or "models"."""
    package = Path(str(resources.files("annotated")))
    installed = package / name
    return installed if installed.exists() else package.parent / "data" / name
