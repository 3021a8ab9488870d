"""The folder of a run: its log, whatever happens to it."""

import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from small_runs import exact, rows

from annotated.evaluation import model_cost
from annotated.machinery.errors import FileError
from annotated.machinery.training.launcher import log_speed
from annotated.machinery.training.logs import RunLog, read_log
from annotated.machinery.training.trainer import Trainer, train
from annotated.training import TrainingConfig, model_config


@pytest.mark.slow
def test_the_speed_in_the_log_is_that_of_the_clock_on_the_wall(config, monkeypatch):
    """A run whose loader is slow on purpose, and which saves slowly too."""
    real, save = Trainer.global_batches, Trainer.save_checkpoint

    def starved(trainer: Trainer):
        for batch in real(trainer):
            time.sleep(0.3)
            yield batch

    def slow(*arguments: object) -> Path:
        time.sleep(0.5)
        return save(*arguments)

    monkeypatch.setattr(Trainer, "global_batches", starved)
    monkeypatch.setattr(Trainer, "save_checkpoint", slow)
    started = time.perf_counter()
    train(replace(config, updates=20, save_updates=10, log_updates=10))
    wall = time.perf_counter() - started
    log = rows(config)
    seen = [0, *(int(row["target_tokens"]) for row in log)]
    speeds = [int(row["tokens_per_second"]) for row in log]
    seconds = sum((b - a) / speed for a, b, speed in zip(seen, seen[1:], speeds, strict=False))
    # No faster than its data, of which a few come before it starts and while it saves, and no
    # slower than all that happened but for two saves.
    assert 14 * 0.3 < seconds < wall - 2 * 0.5
    assert 60 * float(log[-1]["minutes"]) == pytest.approx(seconds, abs=0.4)
    assert all(float(row["waiting"]) > 0.3 for row in log)
    # What is kept of the run, and the share of a GPU that it used, follow from the same clock.
    kept = log_speed(pd.DataFrame(log[1:]).apply(pd.to_numeric))
    assert kept.tokens_per_second < 1.01 * (seen[2] - seen[1]) / (5 * 0.3)
    assert kept.waiting == pytest.approx(float(log[1]["waiting"]))
    per_second = model_cost(model_config(config)) * kept.tokens_per_second
    used = kept.utilisation(model_config(config), "NVIDIA H100 80GB HBM3", number=8)
    assert used == pytest.approx(per_second / (8 * 989e12))
    assert kept.utilisation(model_config(config), "CPU") is None


@pytest.mark.slow
def test_a_run_that_is_fed_hardly_waits(config: TrainingConfig):
    """The first row holds the start; by the last the loader is ahead of a device that is slow."""
    train(replace(config, updates=60, d_model=128, d_ff=512, N=2))
    assert float(rows(config)[-1]["waiting"]) < 0.5


@pytest.mark.slow
def test_a_damaged_log_stops_no_run(config: TrainingConfig, tmp_path: Path, capsys):
    """Half a line, a line too long, letters, a row twice: named, left out, and kept beside."""
    train(config)
    for number, change in enumerate(
        (
            lambda line: line[: len(line) // 2] + "\n",
            lambda line: line[:-1] + line,
            lambda line: line.replace(",", ";"),
            lambda line: line + line,
            lambda line: "\0" * len(line) + "\n",
            lambda line: line.replace("10,", "nan,", 1),
            lambda line: line[:-1] + "\udcff\n",
        )
    ):
        hurt = replace(config, out=str(tmp_path / str(number)))
        train(replace(hurt, updates=20))
        path = Path(hurt.out) / "log.csv"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        lines[2] = change(lines[2])
        spoilt = "".join(lines).encode("utf-8", "surrogateescape")
        path.write_bytes(spoilt)
        capsys.readouterr()
        train(hurt, resume=True)
        said = capsys.readouterr().out
        assert said.count(f"{path}, line ") == 1 and "log.csv.damaged" in said
        left = [row for row in exact(config) if row in exact(hurt)]
        assert left == exact(hurt) and len(left) in (5, 6)
        assert path.with_name("log.csv.damaged").exists()
    assert read_log(path) == rows(hurt)


@pytest.mark.slow
@pytest.mark.parametrize("content", ["", "\n", "\n\n", "a,b\n1,2\n", "\0\n", "update"])
def test_a_log_without_its_first_line_stops_no_run(config: TrainingConfig, content: str):
    train(replace(config, updates=20))
    path = Path(config.out) / "log.csv"
    path.write_text(content)
    assert read_log(path) == []
    train(config, resume=True)
    assert [row["update"] for row in rows(config)] == ["25", "30"]


def test_a_log_of_an_earlier_edition_goes_on(config: TrainingConfig):
    """It has no column for waiting."""
    train(replace(config, updates=20))
    path = Path(config.out) / "log.csv"
    names = [name for name in RunLog.columns if name != "waiting"]
    lines = [",".join(names), *(",".join(row[name] for name in names) for row in rows(config))]
    path.write_text("\n".join(lines) + "\n")
    train(config, resume=True)
    log = rows(config)
    assert [row["update"] for row in log] == ["5", "10", "15", "20", "25", "30"]
    assert [bool(row["waiting"]) for row in log] == [False] * 4 + [True] * 2
    assert all(float(row["train_loss"]) > 0 for row in log)


def test_a_log_on_a_full_disk_names_the_file(config: TrainingConfig):
    log = RunLog(Path(config.out))
    log.path = Path("/dev/full")
    with pytest.raises(FileError, match="/dev/full could not be written: No space left on device"):
        log.add({"update": 1})
