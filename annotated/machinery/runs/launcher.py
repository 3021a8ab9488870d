"""Training in the background, started from a notebook and independent of it."""

import os
import sys
from pathlib import Path
from subprocess import STDOUT, Popen

import torch

from annotated.machinery.runs.checkpoints import read_config
from annotated.machinery.runs.fine_tuning import train_options
from annotated.machinery.runs.folder import run_lock
from annotated.training import TrainingConfig


def train_command(config: TrainingConfig, processes: int, resume: bool = False) -> list[str]:
    """The command that trains with this configuration."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    words = [sys.executable, *torchrun, "-m", "annotated", "train", *["--resume"] * resume]
    return words + train_options(config)


def launch(config: TrainingConfig, processes: int = 0, resume: bool = False) -> Popen:
    """Start `annotated train` in the background; output is appended to output.txt in its folder.

    Args:
        config: the run.   resume: continue the run in its folder, if there is one.
        processes: number of processes; 0: one per GPU, or two without a GPU.

    Returns: the process. `send_signal(signal.SIGINT)` makes it finish its update, save and stop;
        its log, log.csv, can be read at any time.

    Raises: InputError for a folder that is neither empty nor a run's; FileError if a run uses it.
    """
    processes = processes or torch.cuda.device_count() or min(2, os.cpu_count() or 1)
    folder = Path(config.out)
    with run_lock(folder):  # no other process trains there, and the folder is new or a run's
        if (folder / "training.json").exists():
            read_config(folder)
    command = train_command(config, processes, resume)
    with (folder / "output.txt").open("a", encoding="utf-8") as output:
        # Ctrl-C in the notebook does not reach the new session.
        return Popen(command, stdout=output, stderr=STDOUT, start_new_session=True)
