"""Progress bars and messages on standard error, for terminals and for log files."""

import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm as ProgressBar

from annotated.machinery.errors import one_line

__all__ = ["ProgressBar", "progress_bar", "say"]


def progress_bar(iterable: Iterable[Any] | None = None, **options: Any) -> ProgressBar:
    """tqdm's progress bar on standard error; without a terminal, at most one line in 20 seconds."""
    if not sys.stderr.isatty():
        options |= {"mininterval": 20, "maxinterval": 20, "delay": 20}
    return ProgressBar(iterable, **{"mininterval": 0.5, **options})


def say(message: object) -> None:
    """Print a message on one line on standard error, above the progress bar if there is one."""
    ProgressBar.write(one_line(message), file=sys.stderr)
