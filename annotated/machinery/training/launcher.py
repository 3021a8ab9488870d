"""Many processes, one run."""

from annotated.machinery.files import lazy_extra
from annotated.training import TrainingConfig, model_config

with lazy_extra("viz"):
    import altair as alt
    import pandas as pd

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, fields
from pathlib import Path

import torch

from annotated.machinery.files import write_text
from annotated.machinery.training.folder import run_lock
from annotated.machinery.training.logs import read_log
from annotated.machinery.training.speed import Speed


def train_command(config: TrainingConfig, processes: int, resume: bool = False) -> list[str]:
    """The command line that does a run."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    words = [sys.executable, *torchrun, "-m", "annotated", "train", *["--resume"] * resume]
    for option in fields(config):
        value, flag = getattr(config, option.name), option.name.replace("_", "-")
        if isinstance(value, bool):
            words += [f"--{flag}"] if value else []
        elif value != option.default:
            words += [f"--{flag}", str(value)]
    return words


def launch(config: TrainingConfig, processes: int = 0, resume: bool = False) -> "Run":
    """Start a training in the background.

    Args:
        config: the run.   resume: continue what is in its folder, if anything is.
        processes: how many; 0: one for each GPU, or two where there is none.

    Returns: a handle to look at it, interrupt it or wait for it.

    Raises: FileError if another process trains in the folder.
    """
    processes = processes or torch.cuda.device_count() or min(2, os.cpu_count() or 1)
    folder = Path(config.out)
    with run_lock(folder):
        pass  # nobody else trains there, whose output the next line would wipe out
    with (folder / "output.txt").open("w", encoding="utf-8") as output:
        started = subprocess.Popen(
            train_command(config, processes, resume),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C in the notebook does not reach it
        )
    return Run(config, started, processes)


class Run:
    """A training in the background.

    Args:
        config: the run.   process: that of torchrun.   processes: how many it has started.
    """

    def __init__(self, config: TrainingConfig, process: subprocess.Popen, processes: int) -> None:
        self.config, self.process, self.folder = config, process, Path(config.out)
        self.processes = processes

    @property
    def running(self) -> bool:
        """Whether it goes on."""
        return self.process.poll() is None

    def log(self) -> pd.DataFrame:
        """The log so far."""
        return pd.DataFrame(read_log(self.folder / "log.csv")).apply(pd.to_numeric)

    def output(self, lines: int = 20) -> str:
        """The last lines that the training printed."""
        text = (self.folder / "output.txt").read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.replace("\r", "\n").splitlines()[-lines:])

    def interrupt(self) -> None:
        """Let it finish its update, save, and stop; `launch(config, resume=True)` goes on."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGINT)
        self.process.wait()

    def wait(self) -> "Run":
        """Wait for its end.

        Raises: RuntimeError with the end of its output if it failed.
        """
        if self.process.wait():
            said = [line for line in self.output(1000).splitlines() if "annotated: " in line]
            raise RuntimeError(f"training in {self.folder}: " + (said or [self.output()])[0])
        return self

    def chart(self) -> alt.Chart:
        """Training and validation loss so far."""
        return loss_chart(self.log(), f"{self.folder.name}: loss by update")

    def keep(self, results: str | Path) -> Path:
        """Copy the log to a folder, with a note of the settings, the machine and the speed."""
        path = Path(results) / self.folder.name
        return keep_results(self.config, self.log(), path, self.processes)

    def watch(self, seconds: float = 5) -> None:
        """Draw the chart anew every few seconds until the training ends.

        Interrupting the cell ends the watching, not the training.
        """
        from IPython.display import display

        shown = display(self.chart(), display_id=True)
        with contextlib.suppress(KeyboardInterrupt):
            while self.running:
                time.sleep(seconds)
                shown.update(self.chart())


def log_speed(log: pd.DataFrame) -> Speed:
    """How fast a run was after the first row of its log."""
    tokens = log.target_tokens.diff().fillna(log.target_tokens)
    seconds = tokens / log.tokens_per_second
    waited = seconds * log.reindex(columns=["waiting"]).waiting.fillna(0)
    rows = slice(min(1, len(log) - 1), None)
    return Speed(*(float(column.iloc[rows].sum()) for column in (tokens, seconds, waited)))


def keep_results(config: TrainingConfig, log: pd.DataFrame, path: Path, processes: int = 1) -> Path:
    """Write PATH.csv, the log of a run, and PATH.json, what it takes to judge it and do it again.

    Args:
        processes: how many trained, each on a GPU of its own if there are any.

    Returns: the latter's path. It has the speed and, for a GPU of PEAK_TFLOPS, the utilisation.
    """
    gpu, speed = torch.cuda.is_available(), log_speed(log)
    device = torch.cuda.get_device_name(0) if gpu else "CPU"
    note = {
        "command": " ".join(["annotated", *train_command(config, 1)[7:]]),
        "device": device,
        "number": processes if gpu else os.cpu_count(),
        "torch": torch.__version__,
        "tokens_per_second": round(speed.tokens_per_second),
        "waiting": round(speed.waiting, 3),
    }
    if used := speed.utilisation(model_config(config), device, processes):
        note["utilisation"] = used
    write_text(path.with_suffix(".csv"), log.to_csv(index=False))
    write_text(
        path.with_suffix(".json"), json.dumps(note | {"config": asdict(config)}, indent=2) + "\n"
    )
    return path.with_suffix(".json")


def loss_chart(log: pd.DataFrame, title: str) -> alt.Chart:
    """Losses of a log against the update.

    Args:
        log: with columns update, train_loss and dev_loss (may be empty).
    """
    names = {"train_loss": "training (smoothed)", "dev_loss": "validation"}
    log = log.reindex(columns=["update", "minutes", "tokens_per_second", *names])
    long = log.melt(["update", "minutes", "tokens_per_second"], list(names), "loss", "nats")
    long["loss"] = long["loss"].map(names)
    return (
        alt.Chart(long.dropna(subset="nats"))
        .mark_line(point=alt.OverlayMarkDef(size=15))
        .encode(
            alt.X("update:Q", title="update"),
            alt.Y("nats:Q", title="loss (nats per token)", scale=alt.Scale(zero=False)),
            alt.Color("loss:N", title=None, sort=list(names.values())),
            tooltip=[
                "loss:N",
                "update:Q",
                alt.Tooltip("nats:Q", format=".3f"),
                "minutes:Q",
                "tokens_per_second:Q",
            ],
        )
        .properties(
            title=title,
            width="container",
            height=260,
            description="Training and validation loss per token against the number of updates.",
        )
    )
