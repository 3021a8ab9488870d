"""Many processes, one run: they take the steps of one, and stop and fail together."""

import signal
import socket
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import assert_same_run, exact, run_script, start, tensors

from annotated.machinery.runs.checkpoints import list_checkpoints
from annotated.machinery.runs.launcher import train_command
from annotated.machinery.runs.processes import (
    Processes,
    Stopped,
    StopRequest,
    find_precision,
    leave_together,
)
from annotated.machinery.runs.trainer import train
from annotated.training import TrainingConfig


def test_a_second_ctrl_c_stops_at_once():
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.wanted
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with StopRequest(alone=False) as stop:  # torchrun passes the signal on once more
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert stop.wanted


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_system_that_ends_a_run_may_say_so_twice(name: str):
    number = getattr(signal, name)
    before = signal.signal(number, signal.SIG_DFL)  # these tests themselves may run under nohup
    with StopRequest() as stop:
        signal.raise_signal(number)
        signal.raise_signal(number)
        assert stop.wanted
    assert signal.getsignal(number) == signal.SIG_DFL
    signal.signal(number, signal.SIG_IGN)  # as nohup does
    try:
        with StopRequest() as stop:
            signal.raise_signal(number)
            assert not stop.wanted
    finally:
        signal.signal(number, before)


@pytest.mark.processes
def test_two_machines_take_the_steps_of_one_process(config: TrainingConfig, tmp_path: Path):
    """Two agents of torchrun, which meet at a port, leave the same bytes."""
    one, two = (replace(config, parts=2, out=str(tmp_path / name)) for name in ("one", "two"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = f"--rdzv-endpoint=127.0.0.1:{free.getsockname()[1]}"
    machines = ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-id=run", meeting]
    agents = [start(two, 1, machines) for _ in range(2)]
    for process in (*agents, start(one)):
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0 and "FutureWarning" not in output, output
    assert_same_run(one, two)


@pytest.mark.processes
def test_a_run_goes_on_with_another_number_of_processes(config: TrainingConfig, tmp_path: Path):
    """Two processes share three parts: the same losses up to the order of additions."""
    config = replace(config, parts=3, updates=20)
    train(config)
    two = replace(config, out=str(tmp_path / "two"))
    train(replace(two, updates=10))
    process = start(two, processes=2)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert_close(config, two)


def assert_close(one: TrainingConfig, two: TrainingConfig) -> None:
    """The logs of two runs agree to the printed digits, the weights to rounding."""
    for a, b in zip(exact(one), exact(two), strict=True):
        assert a[:4] == b[:4]
        one_loss, two_loss = ([float(x or 0) for x in row[4:]] for row in (a, b))
        assert one_loss == pytest.approx(two_loss, abs=2e-4)
    a, b = (tensors(list_checkpoints(config.out)[-1]) for config in (one, two))
    for name in a:
        np.testing.assert_allclose(a[name], b[name], atol=1e-3, rtol=1e-2, err_msg=name)


@pytest.mark.parametrize(
    ("end", "orderly"),
    [(None, True), (Stopped("saved"), True), (RuntimeError("out of memory"), False),
     (KeyboardInterrupt(), False), (ValueError("expected a finite loss"), False)],
)  # fmt: skip
def test_a_process_that_fails_waits_for_no_other(monkeypatch, end: BaseException, orderly: bool):
    """To destroy the group is to wait until all others do."""
    waited = []
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: waited.append(1))
    monkeypatch.setattr(torch.distributed, "barrier", lambda: waited.append(1))
    with suppress(BaseException), leave_together(Processes(rank=1, size=2)):
        if end:
            raise end
    assert bool(waited) == orderly


FAILING = """
import sys
from annotated.machinery.cli.main import main
from annotated.machinery.runs.trainer import Trainer
real, count = Trainer.train_step, 0
def train_step(trainer, batch):
    global count
    count += 1
    if count == 3 and trainer.processes.rank == 1:
        raise ValueError("out of memory")
    return real(trainer, batch)
Trainer.train_step = train_step
main(sys.argv[1:])
"""


FROZEN = FAILING.replace(
    'raise ValueError("out of memory")',
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_DFL); time.sleep(600)",
)


@pytest.mark.processes
def test_a_process_that_no_longer_answers_ends_the_run(config: TrainingConfig):
    long = replace(config, updates=100_000, save_updates=10**6, parts=2, wait_minutes=0.05)
    words = train_command(long, 2)
    ended = run_script(FROZEN, long, *words[words.index("train") :])
    assert ended.returncode != 0 and "annotated: expected an answer of" in ended.stderr


@pytest.mark.processes
def test_the_failure_of_one_process_ends_the_run(config: TrainingConfig):
    long = replace(config, updates=100_000, save_updates=10**6, parts=2)
    words = train_command(long, 2)
    ended = run_script(FAILING, long, *words[words.index("train") :])
    assert ended.returncode != 0 and "annotated: out of memory" in ended.stderr


def test_precision_is_chosen_by_the_device(monkeypatch: pytest.MonkeyPatch):
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert find_precision("auto", cpu) == torch.float32
    assert find_precision("bfloat16", cpu) == torch.bfloat16
    for capability, dtype in ((7, 5), torch.float16), ((8, 0), torch.bfloat16):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, c=capability: c)
        assert find_precision("auto", cuda) == dtype
