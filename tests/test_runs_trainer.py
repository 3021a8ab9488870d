"""The trainer: a run that stops and goes on is the same run."""

import copy
import math
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import assert_same_run, exact, rows, same, tensors
from torch.nn import functional as F

from annotated.data import make_batch
from annotated.machinery.errors import InputError
from annotated.machinery.runs.batches import GlobalBatch
from annotated.machinery.runs.checkpoints import INTERRUPTED, list_checkpoints, read_config
from annotated.machinery.runs.processes import Readback
from annotated.machinery.runs.trainer import Trainer, start_run, train
from annotated.optimizer import paper_optimizer, rate
from annotated.training import TrainingConfig


@pytest.mark.slow
@pytest.mark.parametrize("parts, precision", [(1, "float32"), (3, "float32"), (3, "bfloat16")])
def test_a_run_that_stopped_goes_on_as_if_it_had_not(config, tmp_path: Path, parts, precision):
    config = replace(config, parts=parts, precision=precision)
    train(config)
    stopped = replace(config, out=str(tmp_path / "stopped"))
    train(replace(stopped, updates=20))
    assert rows(stopped)[-1]["update"] == "20"
    train(stopped, resume=True)
    assert_same_run(config, stopped)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> dict[int, Callable[[], None]]:
    """What shall happen in which step, counted from 1; the count itself is at 0."""
    real, happens = Trainer.train_step, {0: 0}

    def train_step(trainer: Trainer, batch: GlobalBatch) -> Readback:
        happens[0] += 1
        return happens.get(happens[0], lambda: None)() or real(trainer, batch)

    monkeypatch.setattr(Trainer, "train_step", train_step)
    return happens


def press() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize("at", [13, 15, 20])  # between rows; at a row; at a checkpoint
def test_ctrl_c_finishes_the_update_saves_and_says_how(config, tmp_path, steps, at):
    train(config)
    steps |= {0: 0, at: press}
    stopped = replace(config, out=str(tmp_path / "stopped"))
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match=rf"update {at}\b.*--resume"):
        train(stopped)
    assert signal.getsignal(signal.SIGINT) is before
    assert (Path(stopped.out) / INTERRUPTED).exists()
    train(stopped, resume=True)
    assert steps[0] == 30 and not (Path(stopped.out) / INTERRUPTED).exists()
    assert_same_run(config, stopped)


@pytest.mark.parametrize("at", [10, 13])  # at a checkpoint; where the run is told to stop
def test_nothing_is_saved_after_a_loss_that_is_not_finite(config, steps, at: int):
    steps[at] = lambda: (press() if at == 13 else None) or Readback(torch.tensor(math.nan))
    with pytest.raises(InputError, match=f"nan.*update {at}"):
        train(config)
    assert len(list(Path(config.out).glob("*.safetensors"))) == (at > 10)


def test_what_a_run_leaves_behind(config: TrainingConfig, corpus: Path):
    folder = train(config)
    assert folder == Path(config.out)
    checkpoints = [f"checkpoint-000000{n}.safetensors" for n in (20, 30)]  # average = 2
    files = (
        "config.json corpus.json log.csv log.html model.safetensors tokenizer.json training.json"
    )
    kept = {".lock", ".saved", "prepared", "README.md", *checkpoints, *files.split()}
    assert {path.name for path in folder.iterdir()} == kept
    assert read_config(folder) == replace(config, parts=1)  # one for each process
    log = rows(config)
    assert [int(row["update"]) for row in log] == [5, 10, 15, 20, 25, 30]
    assert [bool(row["dev_loss"]) for row in log] == [False, True] * 3
    for row in log:
        used = rate(int(row["update"]), 16, 1.0, 20)  # equation 3
        assert float(row["learning_rate"]) == pytest.approx(used)
    losses = [float(row["train_loss"]) for row in log]
    assert losses[-1] < losses[0]
    minutes = [float(row["minutes"]) for row in log]
    assert minutes == sorted(minutes)


def test_the_dev_loss_in_the_log_is_that_of_the_checkpoint(config: TrainingConfig):
    """Computed again by hand, sentence by sentence, without batches or masks for padding."""
    train(config)
    trainer = start_run(config, resume=True)  # holds the weights of the last checkpoint
    trainer.model.eval()
    total, count = 0.0, 0
    for i in range(len(trainer.dev_pairs)):
        src, tgt = trainer.dev_pairs[i]
        batch = make_batch([(src, tgt)])
        with torch.no_grad():
            out = trainer.model(batch.src, batch.tgt, None, batch.tgt_mask)
            log_probs = trainer.model.generator(out)[0]
        total -= sum(float(log_probs[i, token]) for i, token in enumerate(tgt[1:]))
        count += len(tgt) - 1
    assert float(rows(config)[-1]["dev_loss"]) == pytest.approx(total / count, abs=1e-4)


def test_an_update_is_adam_on_the_mean_per_token(config: TrainingConfig):
    """Three parts in one update, against one loss over the same sentences one by one."""
    trainer = start_run(replace(config, parts=3, dropout=0.0))
    by_hand = copy.deepcopy(trainer.model)
    optimizer, _ = paper_optimizer(by_hand, 16, 1.0, 20)
    batch = next(trainer.stream.updates(0, 0))
    total, count = torch.zeros(()), 0
    for pair in [pair for part in batch.micro_batches for pair in part.pairs]:
        one = make_batch([trainer.stream.pairs[pair]])
        out = by_hand(one.src, one.tgt, one.src_mask, one.tgt_mask)
        logits, smoothed = by_hand.generator.proj(out)[0], {"label_smoothing": 0.1}
        total = total + F.cross_entropy(logits, one.tgt_y[0], reduction="sum", **smoothed)
        count += one.tgt_y.numel()
    (total / count).backward()
    optimizer.step()
    assert float(trainer.train_step(batch)) == pytest.approx(float(total.detach()), rel=1e-5)
    assert batch.tokens == count
    expected = dict(by_hand.named_parameters())
    for name, a in trainer.model.named_parameters():
        # Adam's first step is the sign of the gradient times the rate: allow for gradients near 0
        assert float((a - expected[name]).detach().abs().mean()) < 1e-5, name


@pytest.mark.slow
def test_bfloat16_learns_as_float32_does(config: TrainingConfig, tmp_path: Path):
    train(config)
    half = replace(config, precision="bfloat16", out=str(tmp_path / "half"))
    train(half)
    for one, two in zip(rows(config), rows(half), strict=True):
        assert float(one["train_loss"]) == pytest.approx(float(two["train_loss"]), rel=0.05)
    assert exact(config) != exact(half)
    assert all(v.dtype == np.float32 for v in tensors(list_checkpoints(half.out)[-1]).values())


def test_checkpoints_by_the_clock(config: TrainingConfig, monkeypatch: pytest.MonkeyPatch):
    """A minute passes with every look at the clock."""
    clock = iter(range(0, 10**6, 60))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    train(replace(config, save_updates=0, save_minutes=7.0, average=9))
    saved = [int(path.stem.removeprefix("checkpoint-")) for path in list_checkpoints(config.out)]
    assert saved == [7, 14, 21, 28, 30]


def test_weights_that_are_not_finite_are_never_saved(config: TrainingConfig, monkeypatch):
    """Even if the losses of training are."""
    real = Trainer.dev_loss

    def spoilt(trainer: Trainer) -> float:
        with torch.no_grad():
            trainer.model.generator.proj.weight[3, 0] = math.nan
        return real(trainer)

    monkeypatch.setattr(Trainer, "dev_loss", spoilt)
    with pytest.raises(InputError, match="update 10"):
        train(config)
    assert not list_checkpoints(config.out)


@pytest.mark.slow
def test_a_run_begins_where_another_ended(config, tmp_path: Path):
    """One that starts from a model and learns nothing is that model."""
    folder = train(config)
    learned = tensors(folder / "model.safetensors")
    still = replace(config, from_=str(folder), out=str(tmp_path / "still"), factor=0.0, seed=7)
    for name, parameter in start_run(still).model.named_parameters():
        np.testing.assert_array_equal(parameter.detach(), learned[name])
    train(still, resume=True)
    assert same(tensors(tmp_path / "still" / "model.safetensors"), learned)
    old, new = (path / "tokenizer.json" for path in (folder, tmp_path / "still"))
    assert new.read_text("utf-8") == old.read_text("utf-8")
    assert int(rows(still)[-1]["update"]) == config.updates  # counted from nought


def test_a_run_cannot_begin_with_a_model_of_another_size(config, tmp_path: Path):
    folder = train(config)
    other = replace(config, from_=str(folder), out=str(tmp_path / "other"), d_ff=24)
    with pytest.raises(ValueError, match="d_ff=24"):
        train(other)
    with pytest.raises(InputError):
        train(replace(other, from_="nothing", out=str(tmp_path / "third")))


def test_an_update_that_float16_skips_does_not_move_the_schedule(config: TrainingConfig, tmp_path):
    """Started with a factor far too large, the scaler leaves out updates until it has come down."""
    half = replace(config, precision="float16", updates=10)
    trainer = start_run(half)
    trainer.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40, growth_interval=10**6)
    before = {name: x.clone() for name, x in trainer.model.state_dict().items()}
    coming, rates = trainer.stream.updates(0, 0), []
    moves = lambda trainer: trainer.progress.update - trainer.progress.skipped
    while not moves(trainer):
        trainer.queue_step(coming)
        trainer.drain()
        rates.append(trainer.scheduler.get_last_lr()[0])
        moved = any(not torch.equal(x, before[n]) for n, x in trainer.model.state_dict().items())
        assert moved == bool(moves(trainer))
    skipped = trainer.progress.skipped
    assert skipped >= 3 and trainer.progress.update == skipped + 1
    assert rates == [rate(1, 16, 1.0, 20)] * skipped + [rate(2, 16, 1.0, 20)]
    trainer._save(f"checkpoint-{trainer.progress.update:08d}.safetensors")
    again = start_run(replace(half, updates=24), resume=True)
    assert again.scheduler.get_last_lr() == trainer.scheduler.get_last_lr()
    assert again.progress == trainer.progress
    assert again.scaler.get_scale() == trainer.scaler.get_scale()
