"""The folder of a run. The trainer."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from annotated.machinery.files import append_text, reading, write_text
from annotated.machinery.training.speed import Speed


class RunLog:
    """The log of a run: log.csv, and TensorBoard's files if asked for.

    Args:
        folder: of the run.   update: rows beyond it are dropped.   tensorboard: write its files.

    Raises: FileError if it cannot be read or written.
    """

    columns = (
        "update", "epoch", "minutes", "target_tokens", "tokens_per_second", "waiting",
        "learning_rate", "train_loss", "dev_loss",
    )  # fmt: skip

    def __init__(self, folder: Path, update: int = 0, tensorboard: bool = False) -> None:
        self.path = folder / "log.csv"
        rows, problems = _scan_log(self.path)
        if problems:
            write_text(
                folder / "log.csv.damaged", self.path.read_text(encoding="utf-8", errors="replace")
            )
            tqdm.write(f"{'; '.join(problems)}; left out, and kept in log.csv.damaged")
        kept = [self.line(row) for row in rows if int(row["update"]) <= update]
        write_text(self.path, ",".join(self.columns) + "\n" + "".join(kept))
        self.board: Any = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter  # needs the package tensorboard

            self.board = SummaryWriter(str(folder / "tensorboard"), purge_step=update + 1)

    def line(self, row: Mapping[str, Any]) -> str:
        """A row as it is written; a column that it lacks stays empty."""
        return ",".join(str(row.get(name, "")) for name in self.columns) + "\n"

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a row."""
        append_text(self.path, self.line(row))
        for name in self.columns[2:] if self.board else ():
            if name in row:
                self.board.add_scalar(name, row[name], row["update"])


def _is_row(row: Mapping[str, str], after: str) -> bool:
    """Whether a line of a log is whole: finite numbers or nothing, and a later update."""
    try:
        finite = all(math.isfinite(float(value)) for value in row.values() if value)
        return finite and int(row["update"]) > int(after)
    except ValueError:
        return False


def read_log(path: Path) -> list[dict[str, str]]:
    """The whole rows of a log; none if there is no file. Damaged lines are named and left out."""
    rows, problems = _scan_log(path)
    if problems:
        tqdm.write("; ".join(problems))
    return rows


def _scan_log(path: Path) -> tuple[list[dict[str, str]], list[str]]:
    """The whole rows of a log, and which lines are none; a last line without its end is ignored."""
    if not path.exists():
        return [], []
    with reading(path, "the log of a run"):
        head, *lines = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1] or [""]
    names = head.split(",")
    rows: list[dict[str, str]] = []
    problems = (
        []
        if "update" in names
        else [f"{path}, line 1: expected names of columns; got {head[:60]!r}"]
    )
    for number, line in enumerate(lines if not problems else (), start=2):
        values = line.split(",")
        row = dict(zip(names, values, strict=False))
        if len(values) == len(names) and _is_row(row, after=rows[-1]["update"] if rows else "0"):
            rows.append(row)
        else:
            expected = f"{len(names)} numbers, of a later update than the row before"
            problems.append(f"{path}, line {number}: expected {expected}; got {line[:60]!r}")
    return rows, problems


@dataclass
class Progress:
    """How far a run has come.

    Args:
        update: updates made.   skipped: those of them that left the weights alone (float16).
        epoch, batch: the place in the data of the next batch.
        tokens: target tokens learnt from.   seconds: time by the clock on the wall, but for
            validating and saving.
        row_loss, row_tokens, row_seconds: the same since the last row of the log.
        row_waited: those of row_seconds that went by in waiting for data.
    """

    update: int = 0
    skipped: int = 0
    epoch: int = 0
    batch: int = 0
    tokens: int = 0
    seconds: float = 0.0
    row_loss: float = 0.0
    row_tokens: int = 0
    row_seconds: float = 0.0
    row_waited: float = 0.0

    @property
    def moves(self) -> int:
        """Updates that moved the weights: the schedule counts these."""
        return self.update - self.skipped

    @property
    def speed(self) -> Speed:
        """How fast the run was since the last row of the log."""
        return Speed(self.row_tokens, self.row_seconds, self.row_waited)

    def count(self, loss: float, tokens: int, seconds: float, waited: float) -> None:
        """Add an update."""
        self.update += 1
        self.tokens, self.row_tokens = self.tokens + tokens, self.row_tokens + tokens
        self.seconds, self.row_seconds = self.seconds + seconds, self.row_seconds + seconds
        self.row_loss, self.row_waited = self.row_loss + loss, self.row_waited + waited
