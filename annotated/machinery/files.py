"""Reading and writing files: one-line errors that name the file, and atomic writes.

Everything is written into a new folder annotated-….part next to its destination and moved there
when it is complete, so that a full disk or a killed process leaves either the old file or the new
one, never half of one. A killed process also leaves that folder behind, which may be deleted. If
two processes write to one destination at once, the first succeeds and the other reports an error.
"""

import errno
import hashlib
import json
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from dacite import Config, DaciteError, from_dict
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open

from annotated.machinery.errors import FileError, InputError, MissingFile

if TYPE_CHECKING:  # torch takes a second to import, and most files contain no tensors
    from torch import Tensor


def _reason(error: BaseException) -> str:
    """The message of an exception as one short line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = re.sub(r"\s+", " ", str(error)).strip() or type(error).__name__
    return text if len(text) <= 200 else text[:200] + "…"


@contextmanager
def reading(path: Path | str, expected: str, advice: str = "") -> Iterator[None]:
    """Context for the code that reads a file: any error becomes one line that names the file.

    Args:
        path: the file.   expected: its expected content, such as "the weights of a model".
        advice: a remedy if the content differs.

    Raises: MissingFile if the file does not exist, FileError for any other fault of the file. The
        package's own errors and faults in the code are passed on unchanged.
    """
    more = f"; {advice}" if advice else ""
    try:
        yield
    except (InputError, NameError, ImportError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except FileNotFoundError as error:
        raise MissingFile(f"expected {expected} at {path}; there is no such file{more}") from error
    except BaseException as error:  # a panic of tokenizers is not an Exception
        raise FileError(f"{path}: expected {expected}; got: {_reason(error)}{more}") from error


def require_regular(path: Path) -> None:
    """Raise OSError for a folder, a device, or a pipe, from which a read could block forever."""
    if path.exists() and not path.is_file():
        raise OSError("a folder, a device or a pipe")


_T = TypeVar("_T")


def read_json(path: Path, expected: str, advice: str = "") -> dict[str, Any]:
    """The object in a JSON file; arguments and errors as for `reading`."""
    with reading(path, expected, advice):
        require_regular(path)
        value = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise FileError(f"{path}: expected {expected}; got: {type(value).__name__}, not an object")
    return value


def settings(kind: type[_T], values: Mapping[str, Any], where: str) -> _T:
    """A dataclass from the values in a file.

    Args:
        kind: the dataclass.   values: its fields by name.
        where: the file, or the part of it, with which error messages begin.

    Raises: FileError that names a field that is unknown, missing, or of another type, or that
        the dataclass itself rejects.
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


def _status(path: Path | str | int) -> os.stat_result | None:
    """The status of a file, or of an open file by its descriptor; None if there is none."""
    try:
        return os.stat(path)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EBADF):
            return None
        raise


def _identity(found: os.stat_result | None) -> tuple[int, ...] | None:
    """The attributes that change when a file is written or replaced."""
    return found and (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def output_file(path: str | Path, *inputs: str | Path) -> Path:
    """The file that a path names, with links resolved; check it before hours of work.

    Args: inputs: input files, which the output must not be.

    Raises: FileError if it is a folder, a device or a pipe, read-only, one of the inputs, or the
        file of a standard stream, because moving a file there would destroy its content.
    """
    target, wrong = Path(path), ""
    try:
        target = Path(os.path.realpath(path))
        if found := _status(target):
            if not stat.S_ISREG(found.st_mode):
                wrong = "a folder" if target.is_dir() else "a device or a pipe"
            elif not found.st_mode & 0o222 or not os.access(target, os.W_OK):
                wrong = "a read-only file"
            elif _identity(found) in map(_identity, map(_status, (0, 1, 2))):
                wrong = "the file of standard input, output or error"
            elif _identity(found) in map(_identity, map(_status, inputs)):
                wrong = "a file that is read"
    except (OSError, ValueError) as error:  # for example, a null character in the name
        wrong = _reason(error)
    if wrong:
        raise FileError(f"expected the name of a file to write; got {str(path)!r}: {wrong}")
    return target


def is_part(path: Path) -> bool:
    """Whether this is a temporary folder of `writing`, in use or left by a killed process."""
    return re.fullmatch(r"annotated-\w{8}\.part", path.name) is not None


def _temporary(folder: Path) -> TemporaryDirectory:
    """A new folder inside this one, into which no other process can have written."""
    return TemporaryDirectory(".part", "annotated-", folder, ignore_cleanup_errors=True)


@contextmanager
def writing(path: str | Path) -> Iterator[Path]:
    """Temporary path for writing a file, which is moved to `path` when the block ends.

    Links are followed, and a file that is replaced keeps its permissions.

    Raises: FileError as `output_file`, if the disk is full, if the folder cannot be written to, or
        if another process has written the file in the meantime. Then, and after any other error
        in the block, `path` is unchanged.
    """
    target = output_file(path)
    before = _status(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _temporary(target.parent) as folder:
            part = Path(folder) / target.name
            part.touch()
            mode = stat.S_IMODE((before or part.stat()).st_mode)
            yield part
            part.chmod(mode)  # safetensors has its own error
            if _identity(_status(target)) != _identity(before):
                raise FileError(f"{path} has been written by another process in the meantime")
            os.replace(part, target)
    except InputError:  # an error about something else
        raise
    except (OSError, SafetensorError) as error:
        kept = f"; {path} is as it was" if before else ""
        raise FileError(f"{path} could not be written: {_reason(error)}{kept}") from error


def write_text(path: str | Path, text: str) -> None:
    """Write a text file, atomically. Raises: FileError"""
    with writing(path) as part:
        part.write_text(text, encoding="utf-8")


def named_in_utf8(path: str | Path) -> Path:
    """The location that a path names, with links resolved.

    Raises: InputError unless it is a possible name in UTF-8, the only kind that safetensors reads.
    """
    try:
        os.fspath(Path(path)).encode()
        target = os.path.realpath(path)
        _status(target)
    except (OSError, TypeError, ValueError) as error:
        wanted = "expected the name of a folder, in UTF-8"
        raise InputError(f"{wanted}; got {path!r:.200}: {_reason(error)}") from error
    return Path(target)


def new_folder(path: str | Path) -> Path:
    """The folder that a path names, with links resolved; check it before hours of work.

    Raises: InputError if the name is empty, or names a file or a folder with content.
    """
    if not str(path):
        raise InputError("expected the name of a folder; got ''")
    target = named_in_utf8(path)
    empty = target.is_dir() and all(map(is_part, target.iterdir()))
    if os.path.lexists(target) and not empty:
        raise InputError(f"expected a new or an empty folder; got {Path(path)}, which is not empty")
    return target


@contextmanager
def writing_new_folder(path: str | Path) -> Iterator[Path]:
    """Temporary folder for the files of a new one; they are moved to `path` when the block ends.

    Raises: InputError as `new_folder`; FileError if the disk is full, the location cannot be
        written to, or another process has written there in the meantime. After any error in the
        block, nothing is left there.
    """
    target, path = new_folder(path), Path(path)
    there = target.exists()  # keep the folder itself, which may be a mount or the current folder
    part = target
    try:
        home = target if there else target.parent
        home.mkdir(parents=True, exist_ok=True)
        with _temporary(home) as temporary:
            part = Path(temporary) / target.name
            part.mkdir()
            yield part
            if not there:
                os.rename(part, target)  # fails if a folder with content exists by now
            elif not all(map(is_part, target.iterdir())):
                meantime = "another process has written there in the meantime"
                raise FileExistsError(errno.EEXIST, meantime)
            for file in part.iterdir() if there else ():
                os.replace(file, target / file.name)
    except InputError as error:
        if str(part) in str(error):  # the temporary path, which the user has not seen
            raise FileError(str(error).replace(str(part), str(path))) from error
        raise
    except OSError as error:
        message = f"{path} could not be written: {_reason(error)}; nothing of it was kept"
        raise FileError(message) from error


def digest(tensors: Mapping[str, "Tensor"], text: str = "") -> str:
    """SHA-256 of tensors, their names, and a text."""
    import torch

    sha = hashlib.sha256(usedforsecurity=False)
    for name in sorted(tensors):
        sha.update(name.encode())
        sha.update(tensors[name].detach().cpu().flatten().view(torch.uint8).numpy().tobytes())
    sha.update(text.encode())
    return sha.hexdigest()


def write_tensors(path: Path, tensors: Mapping[str, "Tensor"], metadata: dict[str, str]) -> None:
    """Write a safetensors file, atomically. Raises: FileError"""
    from safetensors.torch import save_file

    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with writing(path) as part:
        save_file(whole, part, metadata)


def read_tensors(path: Path, expected: str) -> tuple[dict[str, "Tensor"], dict[str, str]]:
    """Tensors and metadata of a safetensors file; arguments and errors as for `reading`."""
    with reading(path, expected):
        require_regular(path)
        path.open("rb").close()  # safetensors does not report why a file cannot be opened
    with reading(path, expected), safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in sorted(file.keys())}, file.metadata() or {}


@contextmanager
def locked(path: Path, busy: str, timeout: float = 0) -> Iterator[None]:
    """Hold a lock between processes while the block runs.

    Args:
        path: the file of the lock, which is empty.
        busy: the message if another process holds it: an error or, if `timeout` allows waiting,
            one line on standard error.
        timeout: seconds to wait for it; -1 waits without limit.

    Raises: FileError if another process still holds the lock, or if it cannot be created.
    """
    lock = FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(path):
            path.touch()  # the library would retry forever where no file can be created
        if path.is_symlink() or not path.is_file() or path.stat().st_size:  # it would be emptied
            raise FileExistsError(errno.EEXIST, "it is not an empty file, as a lock must be")
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
    """Path of a file or folder of the package's data, such as "corpora.toml" or "models"."""
    package = Path(str(resources.files("annotated")))
    installed = package / name
    return installed if installed.exists() else package.parent / "data" / name
