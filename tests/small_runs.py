"""What the tests of trainings share: what a run leaves behind, and how two are compared."""

import csv
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file as tensors
from torch import nn

from annotated.machinery.cli.main import main
from annotated.machinery.runs.checkpoints import list_checkpoints
from annotated.machinery.runs.launcher import train_command
from annotated.machinery.runs.logs import read_log
from annotated.training import TrainingConfig


def rows(config: TrainingConfig) -> list[dict[str, str]]:
    with (Path(config.out) / "log.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


EXACT = "update", "epoch", "target_tokens", "learning_rate", "train_loss", "dev_loss"


def exact(config: TrainingConfig) -> list[list[str]]:
    """The log without its clock."""
    return [[row[key] for key in EXACT] for row in rows(config)]


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def assert_same_run(one: TrainingConfig, two: TrainingConfig) -> None:
    """Two runs left the same checkpoints, model and log."""
    names, others = ([p.name for p in list_checkpoints(run.out)] for run in (one, two))
    assert names == others
    for name in [*names, "model.safetensors"]:
        assert same(tensors(Path(one.out) / name), tensors(Path(two.out) / name)), name
    assert exact(one) == exact(two)


def start(
    config: TrainingConfig, processes: int = 0, machines: Sequence[str] = ()
) -> subprocess.Popen:
    """The run as a process of its own, or as torchrun with several, on one of several machines."""
    words = train_command(config, max(processes, 1), resume=True)
    if machines:
        alone = words.index("--standalone")
        words[alone : alone + 1] = machines
    if not processes:  # without torchrun
        words = [sys.executable, *words[words.index("annotated") - 1 :]]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(words, env=environment, **pipes)


def run_script(code: str, run: TrainingConfig, *words: str) -> subprocess.CompletedProcess:
    """A script in two processes of torchrun, which finds these tests."""
    script, here = Path(run.out).with_name("script.py"), Path(__file__).parent
    script.write_text(code, encoding="utf-8")
    torchrun = train_command(run, 2)
    command = [*torchrun[: torchrun.index("-m", 3)], str(script), *words]
    paths = os.pathsep.join([str(here), str(here.parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    options = {"capture_output": True, "text": True, "check": False, "timeout": 300}
    return subprocess.run(command, env=environment | {"PYTHONPATH": paths}, **options)


def last_update(log: Path) -> int:
    saved = read_log(log)
    return int(saved[-1]["update"]) if saved else 0


def refused(run: TrainingConfig | str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command says, or `train` when it will not go on with a run: a line, and status 2."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(run.split() if isinstance(run, str) else ["train", "--out", run.out, "--resume"])
    said = [line for line in capsys.readouterr().err.splitlines() if line]
    assert end.value.code == 2 and said[-1].startswith("annotated: ")
    assert not any("Traceback" in line for line in said)
    return said[-1].removeprefix("annotated: ")


def equal(one: nn.Module, two: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
