"""The errors of this package, imports that need an extra, and the check of whole numbers.

Every message states what was expected, what was given, and where.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any


class InputError(ValueError):
    """An argument, an option or a file's content that cannot be used."""


class FileError(OSError, InputError):
    """A file that cannot be read or written, or is damaged; the message names it."""


class MissingFile(FileNotFoundError, FileError):
    """A file that is not where it is expected."""


class MissingExtra(ImportError, InputError):
    """A library of an extra that is not installed."""


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Around imports that need an extra, such as "viz": a missing library is named with it.

    Raises: MissingExtra
    """
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "annotated").partition(".")[0]
        if library == "annotated":  # a fault of the code
            raise
        how = f"pip install 'annotated-attention[{name}]'"
        message = f"{library} is not installed; install the extra that has it: {how}"
        raise MissingExtra(message) from error


def check_whole(name: str, value: Any, least: int = 1, most: float = math.inf) -> None:
    """Raise InputError unless a value is a whole number from least to most; a bool is refused."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InputError(f"expected a whole number for {name}; got {value!r:.80}")
    if int(value) < least:
        raise InputError(f"expected {name} of at least {least}; got {value}")
    if int(value) > most:
        raise InputError(f"expected {name} of at most {most:,}; got {value}")
