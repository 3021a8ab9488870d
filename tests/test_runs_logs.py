"""The log of a run: its speed is wall-clock time, and it survives a stop at any moment."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from small_runs import exact, rows

from annotated.machinery.errors import FileError
from annotated.machinery.runs.batches import BatchStream
from annotated.machinery.runs.logs import RunLog, read_log
from annotated.machinery.runs.trainer import Trainer, train
from annotated.training import TrainingConfig


@pytest.mark.slow
def test_the_speed_in_the_log_is_wall_clock_time_without_saving(config, monkeypatch):
    """A run with a deliberately slow loader, which saves slowly too."""
    real, save = BatchStream.updates, Trainer._save

    def starved(*arguments: object):
        for batch in real(*arguments):
            time.sleep(0.3)
            yield batch

    def slow(*arguments: object) -> None:
        time.sleep(0.5)
        save(*arguments)

    monkeypatch.setattr(BatchStream, "updates", starved)
    monkeypatch.setattr(Trainer, "_save", slow)
    started = time.perf_counter()
    train(replace(config, updates=20, save_updates=10, log_updates=10))
    wall = time.perf_counter() - started
    log = rows(config)
    seen = [0, *(int(row["target_tokens"]) for row in log)]
    speeds = [int(row["tokens_per_second"]) for row in log]
    seconds = sum((b - a) / speed for a, b, speed in zip(seen, seen[1:], speeds, strict=False))
    # No faster than its data, a few of which come before it starts and while it saves, and no
    # slower than everything that happened except for two saves.
    assert 14 * 0.3 < seconds < wall - 2 * 0.5
    assert 60 * float(log[-1]["minutes"]) == pytest.approx(seconds, abs=0.4)
    assert all(float(row["waiting"]) > 0.3 for row in log)


@pytest.mark.parametrize("damage", ["\0\0\n", "25,2\n", "x,1,,,,,,,,,\n", "\udcff\n"])
def test_a_damaged_log_is_named_and_left_alone(config: TrainingConfig, damage: str):
    train(replace(config, updates=20))
    path = Path(config.out) / "log.csv"
    damaged = path.read_bytes() + damage.encode("utf-8", "surrogateescape")
    path.write_bytes(damaged)
    with pytest.raises(FileError, match=r"log\.csv"):
        train(config, resume=True)
    assert path.read_bytes() == damaged


def test_a_log_is_cut_at_the_update_of_the_checkpoint_and_a_torn_line_is_ignored(tmp_path: Path):
    log = RunLog(tmp_path)
    for update in 5, 10, 15:
        log.add({"update": update, "train_loss": 0.5})
    with log.path.open("a", encoding="utf-8") as file:
        file.write("20,3,0.0")
    assert [row["update"] for row in read_log(log.path)] == ["5", "10", "15"]
    RunLog(tmp_path, update=10).add({"update": 15})
    assert [row["train_loss"] for row in read_log(log.path)] == ["0.5", "0.5", ""]


def test_a_run_without_its_log_goes_on(config: TrainingConfig):
    train(replace(config, updates=20))
    before = exact(config)
    (Path(config.out) / "log.csv").unlink()
    train(config, resume=True)
    assert [row[0] for row in exact(config)] == ["25", "30"] and len(before) == 4


def test_a_log_on_a_full_disk_names_the_file(config: TrainingConfig):
    log = RunLog(Path(config.out))
    log.path = Path("/dev/full")
    with pytest.raises(FileError, match="/dev/full"):
        log.add({"update": 1})
