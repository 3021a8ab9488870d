"""The log of a run, log.csv, and the progress from which it is written.

A killed run may have logged more updates than it saved. When it resumes, rows beyond its checkpoint
are dropped before they are written again, as is a truncated last line.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from annotated.machinery.errors import FileError
from annotated.machinery.files import reading, require_regular, write_text


class RunLog:
    """The log of a run: log.csv, without rows after `update`, and TensorBoard's files on request.

    Raises: FileError if it cannot be read or written.
    """

    columns = (
        "update", "epoch", "minutes", "target_tokens", "tokens_per_second", "waiting",
        "learning_rate", "train_loss", "dev_loss", "dev_bleu", "dev_chrf",
    )  # fmt: skip

    def __init__(self, folder: Path, update: int = 0, tensorboard: bool = False) -> None:
        self.path = folder / "log.csv"
        kept = [row for row in read_log(self.path) if int(row["update"]) <= update]
        write_text(self.path, ",".join(self.columns) + "\n" + "".join(map(self._line, kept)))
        self.board: Any = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter  # needs the package tensorboard

            self.board = SummaryWriter(str(folder / "tensorboard"), purge_step=update + 1)

    def _line(self, row: Mapping[str, Any]) -> str:
        return ",".join(str(row.get(name, "")) for name in self.columns) + "\n"

    def add(self, row: Mapping[str, Any], text: str = "") -> None:
        """Append a row; missing columns stay empty. text: for TensorBoard. Raises: FileError"""
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(self._line(row))
        except OSError as error:
            raise FileError(f"{self.path} could not be written: {error.strerror}") from error
        for name in self.columns[2:] if self.board else ():
            if name in row:
                self.board.add_scalar(name, row[name], row["update"])
        if self.board and text:
            self.board.add_text("translations", text, row["update"])


def read_log(path: Path) -> list[dict[str, str]]:
    """The rows of a log, none if there is no file; an unfinished last line is ignored.

    Raises: FileError that names the file if it is damaged.
    """
    if not path.exists():
        return []
    with reading(path, "the log of a run", "repair it, or move it away"):
        require_regular(path)
        whole = path.read_text(encoding="utf-8").rpartition("\n")[0]
        rows = list(csv.DictReader(whole.splitlines(), strict=True))
        for row in rows:
            if None in row or None in row.values():
                raise ValueError(f"a line of another length: {row}")
            int(row["update"])
        return rows


def dev_losses(folder: Path) -> dict[int, float]:
    """The development losses in the log of a run, by the update after which each was measured."""
    rows = read_log(folder / "log.csv")
    return {int(row["update"]): float(row["dev_loss"]) for row in rows if row.get("dev_loss")}


@dataclass
class Progress:
    """The progress of a run; what begins with `row_` has been added since the log's last row."""

    update: int = 0
    skipped: int = 0  # updates that left the weights unchanged (float16) and do not count
    epoch: int = 0  # with `batch`, the position of the next batch in the data
    batch: int = 0
    tokens: int = 0  # target tokens trained on
    seconds: float = 0.0  # wall-clock time without validation and saving
    row_loss: float = 0.0  # summed over the tokens
    row_tokens: int = 0
    row_seconds: float = 0.0
    row_waited: float = 0.0  # seconds of row_seconds spent waiting for data

    @property
    def tokens_per_second(self) -> float:
        """Target tokens per second of wall-clock time since the last row, waiting included."""
        return self.row_tokens / self.row_seconds

    def count(self, loss: float, tokens: int, seconds: float, waited: float) -> None:
        """Add an update."""
        self.update += 1
        self.tokens, self.row_tokens = self.tokens + tokens, self.row_tokens + tokens
        self.seconds, self.row_seconds = self.seconds + seconds, self.row_seconds + seconds
        self.row_loss, self.row_waited = self.row_loss + loss, self.row_waited + waited

    def take_row(self, learning_rate: float) -> dict[str, Any]:
        """The row of the log about the updates since the last one; the next row begins here."""
        row = {
            "update": self.update,
            "epoch": self.epoch + 1,
            "minutes": round(self.seconds / 60, 2),
            "target_tokens": self.tokens,
            "tokens_per_second": round(self.tokens_per_second),
            "waiting": round(self.row_waited / self.row_seconds, 3),
            "learning_rate": learning_rate,
            "train_loss": round(self.row_loss / self.row_tokens, 4),
        }
        self.row_loss, self.row_tokens, self.row_seconds, self.row_waited = 0.0, 0, 0.0, 0.0
        return row
