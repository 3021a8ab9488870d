"""The update on a device that works off a queue: nothing in it waits for the device."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import annotated.training.trainer as module
from annotated.training.batches import GlobalBatch, MicroBatch
from annotated.training.config import TrainingConfig
from annotated.training.processes import Processes, Readback
from annotated.training.trainer import Trainer, start_run

SHAPES = [(3, 8, 9), (5, 16, 9), (2, 24, 33), (7, 8, 25)]  # batch, src_len, tgt_len + 1


def global_batch(device: torch.device, shapes: list[tuple[int, int, int]]) -> GlobalBatch:
    """An update of random ids, a micro-batch for each shape, with some padding."""
    share = []
    for seed, (batch, *lengths) in enumerate(shapes):
        src, tgt = (torch.randint(4, 60, (batch, length)) for length in lengths)
        src[0, -1:], tgt[0, -2:] = 2, 2
        share.append((seed, src.to(device), tgt.to(device)))
    tokens = sum(batch * (tgt_len - 1) - 2 for batch, _, tgt_len in shapes)
    return GlobalBatch([MicroBatch(0, i, [i]) for i in range(len(share))], tokens, share)


# ----------------------------------------- a device of which no number can be had: tensors without


class NoWaiting(TorchDispatchMode):
    """Fails on a copy to or from the device that would hold up the processor."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        name = function.overloadpacket.__name__
        if name in ("_to_copy", "copy_"):
            source = args[name == "copy_"].device
            at_once = kwargs.get("non_blocking") or True in args[2:]
            assert source == result.device or at_once, f"a copy from {source} to {result.device}"
        return result


def trainer_without_numbers(config: TrainingConfig, monkeypatch: pytest.MonkeyPatch) -> Trainer:
    monkeypatch.setattr(module, "Readback", lambda x: x)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: False)  # unknown there
    pairs = SimpleNamespace(lengths=np.full((4, 2), 9))
    return Trainer(config, pairs, pairs, Processes(device=torch.device("meta")))


def test_nothing_in_an_update_waits_for_the_device(config: TrainingConfig, monkeypatch):
    trainer = trainer_without_numbers(config, monkeypatch)
    batch = global_batch(trainer.device, SHAPES)
    with NoWaiting():
        losses = [trainer.train_step(batch) for _ in range(3)]
    assert all(loss.is_meta for loss in losses) and trainer.scheduler.last_epoch == 3


WAITING = {
    "a number": lambda x: float(x.sum()),
    "a choice": lambda x: x[x > 0],
    "a question": lambda x: x.masked_fill(x > 0, 0.0) if (x > 0).any() else x,
    "a copy back": lambda x: x + torch.ones(()).to(x.device),
    "a copy": lambda x: x.copy_(torch.ones(3)),
    "a list": lambda x: x + torch.tensor([1.0, 2.0, 3.0]).to(x.device),
}


@pytest.mark.parametrize("wait", WAITING.values(), ids=WAITING)
def test_what_waits_is_found(config: TrainingConfig, monkeypatch, wait):
    """The test above can fail: with this in the loss of a batch it does."""
    trainer = trainer_without_numbers(config, monkeypatch)
    forward = trainer.loss.forward

    def waiting(src: Tensor, tgt: Tensor) -> Tensor:
        wait(torch.ones(3, device=src.device))
        return forward(src, tgt)

    trainer.loss.forward = waiting
    with pytest.raises((AssertionError, RuntimeError, NotImplementedError)), NoWaiting():
        trainer.train_step(global_batch(trainer.device, SHAPES[:1]))
