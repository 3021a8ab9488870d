"""How this book is made (chapters/making-of.md).

Generated from the chapter's export cells by book/extract.py: edit it there.
"""

from collections.abc import Callable
from typing import Any

__all__ = ["add_to"]


def add_to(cls: type) -> Callable[[Any], Any]:
    """Attach the decorated function or property to a class, under its own name."""

    def add(method: Any) -> Any:
        setattr(cls, getattr(method, "fget", method).__name__, method)
        return method

    return add
