"""Section 5.2: what a run costs, and a run in the background."""

import itertools
import json
import time
from dataclasses import fields, replace
from pathlib import Path

import pandas as pd
import pytest
import torch

from annotated.evaluation import TFLOPS
from annotated.machinery.training.checkpoints import INTERRUPTED
from annotated.machinery.training.launcher import (
    keep_results,
    launch,
    log_speed,
    loss_chart,
    train_command,
)
from annotated.training import PEAK_TFLOPS, TrainingConfig, preset, training_plan, training_work


def by_hand(c: TrainingConfig, length: int) -> int:
    """Multiplications and additions of one sentence pair, forward and backward (three times)."""
    d, n = c.d_model, length
    project = 4 * 2 * n * d * d  # queries, keys, values, output
    attend = 2 * 2 * n * n * d  # QKᵀ, and weights times V
    feed_forward = 2 * 2 * n * d * c.d_ff
    encoder = project + attend + feed_forward
    decoder = 2 * (project + attend) + feed_forward
    return 3 * (c.N * (encoder + decoder) + 2 * n * d * c.vocab_size)


@pytest.mark.parametrize("name", ["base-en-de", "big-en-fr", "multi30k-en-de"])
def test_the_work_is_that_of_the_formulas(name: str):
    config = preset(name)
    sentences = config.updates * config.tgt_tokens / 25
    assert training_work(config) == pytest.approx(by_hand(config, 25) * sentences)


def test_the_plan_is_operations_over_speed():
    config = preset("base-en-de")
    plan = training_plan(config, number=4, utilisation=0.5).set_index("GPU")
    seconds = training_work(config) / (9.5e12 * 0.5)
    assert plan.loc["P100", "GPU-hours"] == pytest.approx(seconds / 3600)
    assert plan.loc["P100", "hours on 4"] == pytest.approx(seconds / 3600 / 4)
    assert plan.loc["P100", "ms an update on 4"] == pytest.approx(seconds / 4 / 100_000 * 1000)
    assert list(plan.index) == list(PEAK_TFLOPS) and PEAK_TFLOPS["P100"] == TFLOPS["P100"]


def test_the_command_says_what_differs_from_the_defaults():
    config = TrainingConfig(N=3, norm_first=True, out="x")
    words = train_command(config, 8, resume=True)
    assert "--nproc-per-node=8" in words
    assert words[words.index("annotated") :] == [
        "annotated",
        "train",
        "--resume",
        "--out",
        "x",
        "--N",
        "3",
        "--norm-first",
    ]


def test_the_chart_shows_the_log():
    log = pd.DataFrame(
        {"update": [1, 2], "train_loss": [3.0, 2.0], "dev_loss": [float("nan"), 1.5]}
    )
    data = loss_chart(log, "title").to_dict()
    (rows,) = data["datasets"].values()
    points = {(row["loss"], row["update"], row["nats"]) for row in rows}
    assert points == {
        ("training (smoothed)", 1, 3.0),
        ("training (smoothed)", 2, 2.0),
        ("validation", 2, 1.5),
    }
    assert loss_chart(pd.DataFrame(), "nothing yet").to_dict()["title"] == "nothing yet"


def test_results_say_how_they_were_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config = preset("base-en-de")
    rows = {"target_tokens": [100, 600_100, 800_100], "tokens_per_second": [1, 600_000, 200_000]}
    log = pd.DataFrame({"update": [1, 2, 3], **rows, "waiting": [0.9, 0.0, 0.5]})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)  # of which two trained
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H100 80GB HBM3")
    note = json.loads(keep_results(config, log, tmp_path / "kept" / "base", 2).read_text())
    assert note["number"] == 2 and note["waiting"] == 0.25
    assert note["tokens_per_second"] == 400_000  # in the two seconds after the start
    per_token = training_work(config) / (100_000 * 25_000)
    assert note["utilisation"] == pytest.approx(400_000 * per_token / (2 * 989e12))
    assert note["command"].startswith("annotated train --out runs/base-en-de --data wmt14-en-de")
    assert TrainingConfig(**note["config"]) == config
    assert pd.read_csv(tmp_path / "kept" / "base.csv").equals(log)


def test_the_speed_of_a_log_that_is_short_or_old():
    one = log_speed(pd.DataFrame({"target_tokens": [300], "tokens_per_second": [100]}))
    assert (one.tokens, one.seconds, one.waited) == (300, 3, 0)  # before there was such a column


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("Tesla T4", "T4"),
        ("NVIDIA T400", None),
        ("NVIDIA T400 4GB", None),
        ("NVIDIA T1000", None),
        ("Tesla P100-SXM2-16GB", "P100"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A1000 Laptop GPU", None),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("NVIDIA H200", "H200"),
        ("NVIDIA GH200 480GB", None),
        ("CPU", None),
    ],
)
def test_a_gpu_is_known_by_its_whole_name(device: str, name: str | None):
    assert peak_tflops(device) == (PEAK_TFLOPS[name] if name else None)


@pytest.fixture
def config(tmp_path: Path) -> TrainingConfig:
    """A run of seconds on copies of a few words."""
    for split in "train", "dev":
        for lang in "en", "de":
            (tmp_path / f"{split}.{lang}").write_text(
                "one two\nthree four five\nsix\n" * 9, encoding="utf-8"
            )
    shape = {"vocab_size": 40, "N": 1, "d_model": 16, "d_ff": 16, "h": 2}
    sizes = {
        "src_tokens": 60,
        "tgt_tokens": 60,
        "log_updates": 1,
        "save_updates": 50,
        "updates": 100_000,
    }
    return TrainingConfig(out=str(tmp_path / "run"), data=f"{tmp_path}-en-de", **shape, **sizes)


@pytest.mark.processes
def test_launch_interrupt_resume(config: TrainingConfig):
    run = launch(config, processes=1)
    while run.running and len(run.log()) < 3:
        time.sleep(0.05)
    run.interrupt()
    assert not run.running and "stopped after update" in run.output(100)
    done = int(run.log()["update"].iloc[-1])
    assert (run.folder / INTERRUPTED).exists() and done >= 3
    again = launch(replace(config, updates=done + 5), processes=1, resume=True).wait()
    assert again.processes == 1
    assert again.log()["update"].tolist() == list(range(1, done + 6))
    assert again.chart().to_dict()["title"] == "run: loss by update"


@pytest.mark.processes
def test_a_run_that_fails_says_why(config: TrainingConfig):
    with pytest.raises(RuntimeError, match="there is no training pair of at most 1 pieces"):
        launch(replace(config, max_pieces=1), processes=1).wait()


def test_torchrun_leaves_the_options_of_a_run_alone():
    """It takes abbreviations of its own options, and refuses those that are ambiguous."""
    from torch.distributed.run import get_args_parser

    options = [f"--{field.name.replace('_', '-')}" for field in fields(TrainingConfig)]
    words = ["-m", "annotated", "train", *itertools.chain(*((option, "1") for option in options))]
    assert get_args_parser().parse_args(words).training_script_args == words[2:]
