"""Section 5.2: a training in the background, and the command that starts it."""

import itertools
import signal
import time
from dataclasses import fields, replace
from pathlib import Path

import pytest

from annotated.machinery.runs.checkpoints import INTERRUPTED
from annotated.machinery.runs.launcher import launch, train_command
from annotated.machinery.runs.logs import read_log
from annotated.training import TrainingConfig


def test_the_command_names_what_differs_from_the_defaults():
    config = TrainingConfig(N=3, norm_first=True, out="x")
    words = train_command(config, 8, resume=True)
    assert "--nproc-per-node=8" in words
    given = "annotated train --resume --norm-first --N 3 --out x".split()  # noqa: SIM905
    assert words[words.index("annotated") :] == given


@pytest.mark.processes
def test_a_run_is_launched_interrupted_and_resumed(config: TrainingConfig):
    config = replace(config, updates=100_000, save_updates=50, log_updates=1, parts=2)
    folder = Path(config.out)
    run = launch(config, processes=2)  # to which torchrun passes the signal on
    while run.poll() is None and len(read_log(folder / "log.csv")) < 3:
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    run.wait(60)
    assert "stopped after update" in (folder / "output.txt").read_text(encoding="utf-8")
    assert (folder / INTERRUPTED).exists()
    done = int(read_log(folder / "log.csv")[-1]["update"])
    assert launch(replace(config, updates=done + 5), processes=2, resume=True).wait(60) == 0
    updates = [int(row["update"]) for row in read_log(folder / "log.csv")]
    assert updates == list(range(1, done + 6))


def test_torchrun_leaves_the_options_of_a_run_alone():
    """It accepts abbreviations of its own options, and refuses ambiguous ones."""
    from torch.distributed.run import get_args_parser

    options = [f"--{field.name.replace('_', '-')}" for field in fields(TrainingConfig)]
    words = ["-m", "annotated", "train", *itertools.chain(*((option, "1") for option in options))]
    assert get_args_parser().parse_args(words).training_script_args == words[2:]
