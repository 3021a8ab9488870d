"""The update on a device that works off a queue: nothing in it waits for the device."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from small_runs import equal
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.utils._python_dispatch import TorchDispatchMode

from annotated.regularization import linear_cross_entropy, smoothed_cross_entropy
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
        src[0, -1], tgt[0, -2:] = 2, 2
        share.append((seed, src.to(device), tgt.to(device)))
    tokens = sum(int((tgt[:, 1:] != 2).sum()) for _, _, tgt in share if not tgt.is_cuda) or 100
    return GlobalBatch([MicroBatch(0, i, [i]) for i in range(len(share))], tokens, share)


def trainer_on(config: TrainingConfig, device: torch.device) -> Trainer:
    """A trainer whose pairs are those of the tiny corpus."""
    prepared = start_run(config)
    return Trainer(config, prepared.pairs, prepared.dev_pairs, Processes(device=device))


# ------------------------------------------------------------------------ a GPU that is only played


class NoWaiting(TorchDispatchMode):
    """Fails on a copy between devices that holds up the processor.

    What asks for a number of a tensor without data is refused by the tensor itself.
    """

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        name, first = function.overloadpacket.__name__, args[0] if args else None
        if name in ("_to_copy", "copy_"):
            other = args[1].device if name == "copy_" else first.device
            waits = not (kwargs.get("non_blocking") or (name == "copy_" and True in args[2:]))
            assert result.device == other or not waits, f"{name} from {other} to {result.device}"
        return result


class Played:
    """An event of a GPU that is not there."""

    def record(self) -> None: ...


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch):
    """Tensors that say they are on a GPU, and have no data."""
    monkeypatch.setattr(torch.cuda, "Event", Played)
    with FakeTensorMode():
        yield torch.device("cuda", 0)


def test_nothing_in_an_update_waits_for_a_gpu(config: TrainingConfig, gpu: torch.device):
    trainer = Trainer(*played(config), Processes(device=gpu))
    batch = global_batch(gpu, SHAPES)
    with NoWaiting():
        for _ in range(3):
            trainer.queue_step(iter([batch]))
    assert len(trainer.queue) == 3 and trainer.scheduler.last_epoch == 3


def played(config: TrainingConfig):
    """A run's configuration, and pairs of which only the lengths are looked at."""
    lengths = torch.full((4, 2), 9).numpy()
    pairs = SimpleNamespace(lengths=lengths)
    return replace(config, precision="float32"), pairs, pairs


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: float(x.sum()),
        lambda x: x[x > 0],
        lambda x: bool((x > 0).any()),
        lambda x: x.nonzero(),
        lambda x: x.cpu(),
        lambda x: torch.ones(3).to(x.device),
        lambda x: x.copy_(torch.ones(3)),
        lambda x: torch.tensor([1.0, 2.0], device=x.device),
    ],
)
def test_what_waits_for_a_gpu_is_found(gpu: torch.device, wait):
    """The test above can fail."""
    x = torch.ones(3, device=gpu)
    with pytest.raises(Exception) as found, NoWaiting():  # noqa: PT011
        wait(x)
    assert isinstance(found.value, (AssertionError, DataDependentOutputException)) or "dynamic" in (
        type(found.value).__name__.lower()
    )
