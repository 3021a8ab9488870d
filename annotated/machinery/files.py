"""Files: whole, or not at all."""

import dataclasses
import json
import math
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import Any, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from annotated.machinery.errors import FileError, InputError, MissingExtra, MissingFile


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Around imports that need an extra, such as "viz": a missing library names it.

    Raises: MissingExtra
    """
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "annotated").partition(".")[0]
        if library == "annotated":  # a fault of the code
            raise
        raise MissingExtra(_advice(library, name)) from error


def _advice(library: str, name: str) -> str:
    how = f"pip install 'annotated-attention[{name}]'"
    return f"{library} is not installed; install the extra that has it: {how}"


class _StandIn(type):
    """Type of the names in a missing library."""

    advice: str

    def __call__(cls, *values: Any, **options: Any) -> NoReturn:
        raise MissingExtra(cls.advice)

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("_"):  # Python asks classes for these without using them
            raise AttributeError(name)
        raise MissingExtra(cls.advice)


class _StandInModule(ModuleType):
    """A missing library: it has every name."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("_"):
            raise AttributeError(name)
        return _StandIn(name, (), {"advice": self.__doc__})


_IMPORTED = {  # at the top of modules, by extra
    "viz": ("altair", "pandas"),
    "parse": ("conllu", "conllu.exceptions", "conllu.parser", "nltk", "spacy", "spacy.tokens",
              "spacy.vocab"),
}  # fmt: skip


@contextmanager
def lazy_extra(name: str) -> Iterator[None]:
    """Around imports at the top of a module: only use of what is missing raises MissingExtra."""
    missing = {}
    for module in _IMPORTED[name]:
        library = module.partition(".")[0]
        if find_spec(library) is None:
            missing[module] = _StandInModule(module, _advice(library, name))
    sys.modules.update(missing)
    try:
        with extra(name):
            yield
    finally:
        for module in missing:  # elsewhere it stays missing
            del sys.modules[module]


def _reason(error: BaseException) -> str:
    """What an exception says, in one short line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, MemoryError):
        return "too large for the memory of this machine"
    text = re.sub(r"\s+", " ", str(error)).strip() or type(error).__name__
    return text if len(text) <= 200 else text[:200] + "…"


@contextmanager
def reading(path: Path | str, expected: str, advice: str = "") -> Iterator[None]:
    """Around the lines that read one file: what they raise becomes one line that names it.

    Args:
        path: the file.   expected: what it should hold, such as "the weights of a model".
        advice: what to do if it does not.

    Raises: MissingFile if there is no such file, FileError for all else; errors that are
        already ours pass.
    """
    more = f"; {advice}" if advice else ""
    try:
        yield
    except (InputError, NameError, ImportError):  # ours already, or a fault of the code
        raise
    except FileNotFoundError as error:
        raise MissingFile(f"expected {expected} at {path}; there is no such file{more}") from error
    except Exception as error:
        raise FileError(f"{path}: expected {expected}; got: {_reason(error)}{more}") from error


_T = TypeVar("_T")


def read_json(path: Path, expected: str) -> dict[str, Any]:
    """The object that a JSON file holds.

    Raises: MissingFile or FileError that names the file.
    """
    with reading(path, expected):
        value = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise FileError(f"{path}: expected {expected}; got: {type(value).__name__}, not an object")
    return value


def fits(value: object, kind: Any) -> bool:
    """Whether a value that was read from a file is of the type of a field."""
    if kind is Any:
        return True
    if get_origin(kind) in (Union, UnionType):
        return any(fits(value, one) for one in get_args(kind))
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
    if kind in (bool, int, str, NoneType):
        return type(value) is kind  # True is no int here
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if not isinstance(value, origin):
        return False
    if isinstance(value, dict) and inner:
        return all(fits(k, inner[0]) and fits(v, inner[1]) for k, v in value.items())
    return not inner or all(fits(one, inner[0]) for one in value)


def settings(kind: type[_T], values: Mapping[str, Any], where: str) -> _T:
    """A dataclass out of what a file says.

    Args:
        kind: the dataclass.   values: its fields by name.
        where: begins the message if something is wrong: the file, or a part of it.

    Raises: FileError that names fields which are unknown, missing, or of another type, and what
        the dataclass itself refuses.
    """
    if not isinstance(values, Mapping):
        raise FileError(f"{where}: expected settings by name; got {values!r:.80}")
    fields, types = dataclasses.fields(kind), get_type_hints(kind)  # type: ignore[arg-type]
    if unknown := values.keys() - types.keys():
        names = ", ".join(sorted(map(str, unknown)))
        raise FileError(f"{where}: expected settings out of {', '.join(types)}; got {names}")
    for field in fields:
        needed = field.default is field.default_factory is dataclasses.MISSING
        if field.name in values:
            value, hint = values[field.name], types[field.name]
            if not fits(value, hint):
                said = getattr(hint, "__name__", hint) if not get_args(hint) else hint
                raise FileError(f"{where}: expected {field.name} as {said}; got {value!r:.80}")
        elif needed:
            raise FileError(f"{where}: expected a setting {field.name}; it is missing")
    try:
        return kind(**values)
    except ValueError as error:  # it says itself what it expected
        raise FileError(f"{where}: {_reason(error)}") from error


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Where to write a file that shall stand at `path`; it is moved there when it is whole.

    Raises: FileError if the disk is full or the place cannot be written to. Then, and after any
        other error in the block, `path` holds what it held before.
    """
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        os.replace(part, path)
    except InputError:  # it is about something else
        raise
    except (OSError, SafetensorError) as error:
        kept = f"; {path} is as it was" if path.exists() else ""
        raise FileError(f"{path} could not be written: {_reason(error)}{kept}") from error
    finally:
        with suppress(OSError):
            part.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a text file: the name holds the old file or the whole new one."""
    with writing(path) as part:
        part.write_text(text, encoding="utf-8")


def append_text(path: Path, text: str) -> None:
    """Add to the end of a text file, such as a log.

    Raises: FileError if it cannot be written to; a part of `text` may stand there then.
    """
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise FileError(f"{path} could not be written: {_reason(error)}") from error


@contextmanager
def writing_folder(path: Path) -> Iterator[Path]:
    """Where to write the files of a folder that shall stand at `path`, in place of one there.

    Raises: FileError if the disk is full or the place cannot be written to; after any error in
        the block, `path` is as it was.
    """
    part = path.with_name(path.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        part.mkdir(parents=True)
        yield part
        shutil.rmtree(path, ignore_errors=True)
        os.replace(part, path)
    except InputError:  # it is about something else
        raise
    except OSError as error:
        told = f"{path} could not be written: {_reason(error)}; nothing is kept of it"
        raise FileError(told) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextmanager
def writing_new_folder(path: Path) -> Iterator[Path]:
    """As `writing_folder`, where nothing is to be replaced.

    Raises: InputError if there is something.
    """
    if os.path.exists(path) and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"expected a new or an empty folder; got {path}, which holds something")
    with writing_folder(path) as part:
        yield part


_FLOATS = "F64", "F32", "F16", "BF16"


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file: the name holds the old file or the whole new one."""
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with writing(path) as part:
        save_file(whole, part, metadata)


def read_tensors(
    path: Path, expected: str, shapes: Mapping[str, Sequence[int]] | None = None
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a safetensors file.

    Args:
        expected: what the file should hold, for messages.
        shapes: of each tensor by name; with them exactly these floating-point tensors are
            accepted, and compared before any is read.

    Raises: MissingFile or FileError that names the file and the tensor.
    """
    with reading(path, expected), safe_open(path, "pt") as file:
        names = set(file.keys())
        for name in sorted(names ^ shapes.keys() if shapes is not None else ()):
            problem = "is missing" if name not in names else "does not belong there"
            raise FileError(f"{path}: expected {expected}; tensor {name} {problem}")
        for name, shape in (shapes or {}).items():
            part = file.get_slice(name)
            has, kind = tuple(part.get_shape()), part.get_dtype()
            if has != tuple(shape) or kind not in _FLOATS:
                wanted = f"{tuple(shape)} of floating-point numbers"
                raise FileError(f"{path}: expected {name} as {wanted}; got {has} of {kind}")
        return {name: file.get_tensor(name) for name in sorted(names)}, file.metadata() or {}


@contextmanager
def locked(path: Path, busy: str, timeout: float = 0) -> Iterator[None]:
    """Hold a lock while the block runs.

    Args:
        path: the lock's own file.   busy: what to say if another process holds it: the error,
            or, if there is time to wait, one line on standard error.
        timeout: seconds to wait for it; -1 waits as long as it takes.

    Raises: FileError if another process holds it, or if it cannot be made.
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
