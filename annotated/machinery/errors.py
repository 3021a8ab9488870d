"""The errors of this package, imports that need an extra, and the check of whole numbers.

Every message states what was expected, what was given instead, and where.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any


class InputError(ValueError):
    """An argument, an option, or the content of a file that cannot be used; in one line."""

    def __str__(self) -> str:
        return one_line(super().__str__())


class FileError(OSError, InputError):
    """A file that is damaged or cannot be read or written; the message names it."""

    __str__ = InputError.__str__  # that of OSError would come first


class MissingFile(FileNotFoundError, FileError):
    """A file that is not where it is expected."""


class MissingExtra(ImportError, InputError):
    """A library that belongs to an extra and is not installed."""


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Context for imports that need an extra, such as "viz"; an error names the missing extra.

    Raises: MissingExtra
    """
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "annotated").partition(".")[0]
        if library == "annotated":  # a fault in the code
            raise
        how = f"pip install 'annotated-attention[{name}]'"
        message = f"{library} is not installed; install the extra that contains it: {how}"
        raise MissingExtra(message) from error


def one_line(message: object, most: int = 1000) -> str:
    """A message on one line without terminal control codes, shortened if it is very long.

    Names of files and cards of models contain text from other people.
    """
    lines = map(str.strip, str(message).splitlines())
    text = " ".join(filter(None, lines))
    text = text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"
    return "".join(x if x.isprintable() else x.encode("unicode_escape").decode() for x in text)


def check_known(what: str, name: object, known: Collection[str]) -> None:
    """Raise InputError, which lists the known names and the closest, unless this is one of them."""
    if not isinstance(name, str) or name not in known:
        hint = "".join(f"; did you mean {x}?" for x in get_close_matches(str(name), known, 1))
        raise InputError(f"expected {what} out of {', '.join(known)}; got {name!r:.80}{hint}")


def check_whole(name: str, value: Any, least: int = 1, most: int = 10**100) -> None:
    """Raise InputError unless a value is an integer from least to most; bool is not accepted.

    The default of `most` keeps roots and powers of a value within the range of floats.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InputError(f"expected a whole number for {name}; got {value!r:.80}")
    if int(value) < least:
        raise InputError(f"expected {name} of at least {least}; got {value}")
    if int(value) > most:
        raise InputError(f"expected {name} of at most {most:,}; got {value}")


def check_real(name: str, value: object, least: float, most: float) -> None:
    """Raise InputError unless a value is a number from least to most; bool and NaN are not."""
    if isinstance(value, bool) or not isinstance(value, Real) or not least <= value <= most:  # type: ignore[operator]
        raise InputError(f"expected {name} between {least} and {most}; got {value!r:.80}")
