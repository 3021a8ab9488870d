"""The update on a device that works off a queue: nothing in it waits for the device."""

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import annotated.machinery.runs.trainer as module
from annotated.machinery.kernels import fast_attention
from annotated.machinery.runs.batches import GlobalBatch, MicroBatch
from annotated.machinery.runs.processes import Processes
from annotated.machinery.runs.trainer import Trainer
from annotated.training import TrainingConfig

SHAPES = [(3, 8, 9), (5, 16, 9), (2, 24, 33), (7, 8, 25)]  # batch, src_len, tgt_len + 1
PAIRS = SimpleNamespace(lengths=np.full((4, 2), 9))


def global_batch(device: torch.device, shapes: list[tuple[int, int, int]]) -> GlobalBatch:
    """An update of random ids, a micro-batch for each shape, with some padding."""
    share = []
    for seed, (batch, *lengths) in enumerate(shapes):
        src, tgt = (torch.randint(4, 60, (batch, length)) for length in lengths)
        src[0, -1:], tgt[0, -2:] = 2, 2
        share.append((seed, src.to(device), tgt.to(device)))
    tokens = sum(batch * (tgt_len - 1) - 2 for batch, _, tgt_len in shapes)
    return GlobalBatch([MicroBatch(0, i, [i]) for i in range(len(share))], tokens, share)


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


@pytest.mark.slow
def test_nothing_in_an_update_waits_for_the_device(config: TrainingConfig, monkeypatch):
    import torch._dynamo  # what it finds when it is imported it keeps: so before torch is patched

    monkeypatch.setattr(module, "Readback", lambda x: x)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: False)  # unknown there
    trainer = Trainer(config, PAIRS, PAIRS, Processes(device=torch.device("meta")))
    batch = global_batch(trainer.device, SHAPES)
    trainer.train_step(batch)  # moves the table of positions
    with NoWaiting():
        losses = [trainer.train_step(batch) for _ in range(3)]
    assert all(loss.is_meta for loss in losses) and trainer.scheduler.last_epoch == 4


class Casts(TorchDispatchMode):
    """Counts by tensor how often it gets another type."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[int] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.found[id(args[0])] += function is torch.ops.aten._to_copy.default
        return function(*args, **(kwargs or {}))


def test_in_16_bits_a_weight_is_cast_once_for_all_parts(config: TrainingConfig, monkeypatch):
    monkeypatch.setattr(module, "update_weights", lambda *given: True)  # so that gradients stay
    trainer = Trainer(replace(config, precision="bfloat16"), PAIRS, PAIRS)
    weights, batch = [*trainer.model.parameters()], global_batch(trainer.device, SHAPES)
    with Casts() as casts:
        trainer.train_step(batch)
    assert max(casts.found[id(weight)] for weight in weights) == 1
    found = [weight.grad for weight in weights]
    trainer.loss.zero_grad()
    for seed, src, tgt in batch.share:
        torch.manual_seed(seed)
        kernels = fast_attention(torch.bfloat16, trainer.device, 33)
        with torch.autocast("cpu", torch.bfloat16), kernels:
            loss = trainer.loss(src, tgt)
        (loss / batch.tokens).backward()
    assert all(torch.equal(a, b.grad) for a, b in zip(found, weights, strict=True))


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gcc"), reason="torch compiles for a CPU with gcc")
def test_a_compiled_update_is_the_same_and_compiled_once(config: TrainingConfig):
    """The sizes of the first batch differ from each other; those of later ones change."""
    from torch._dynamo.utils import counters  # its import takes seconds

    torch._dynamo.reset()
    counters.clear()
    kinds = (replace(config, dropout=0.0, compile=compiled) for compiled in (False, True))
    eager, compiled = (Trainer(kind, PAIRS, PAIRS) for kind in kinds)
    shapes = [(9, 8, 12), (9, 9, 12), (4, 7, 7), *SHAPES, (12, 31, 5), (2, 2, 3), (30, 40, 41)]
    for shape in shapes:
        batch = global_batch(torch.device("cpu"), [shape])
        losses = [float(trainer.train_step(batch)) for trainer in (eager, compiled)]
        assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    # A layer of the encoder, one of the decoder, and the loss.
    assert counters["stats"]["unique_graphs"] == 3
    for a, b in zip(eager.model.parameters(), compiled.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-3, rtol=1e-3)


@pytest.fixture
def on(tmp_path: Path):
    """Makes a trainer on a device. What waits for a GPU can be made an error after that."""
    shape = {"vocab_size": 60, "N": 2, "d_model": 64, "d_ff": 128, "h": 2, "warmup": 20}
    config = TrainingConfig(out=str(tmp_path), data=f"{tmp_path}-en-de", **shape)

    def make(device: torch.device | str, **changes: object) -> Trainer:
        processes = Processes(device=torch.device(device))
        return Trainer(replace(config, **changes), PAIRS, PAIRS, processes)

    yield make
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_update_on_a_gpu_does_not_wait_for_it(on, precision: str, compiled: bool):
    torch._dynamo.reset()
    trainer = on("cuda:0", precision=precision, compile=compiled)
    batches = [global_batch(trainer.device, SHAPES) for _ in range(4)]
    trainer.queue_step(iter(batches[:1]))  # the first sets things up, or compiles
    trainer.drain()
    torch.cuda.set_sync_debug_mode("error")
    for batch in batches[1:]:
        trainer.queue_step(iter([batch]))
    torch.cuda.set_sync_debug_mode("default")
    trainer.drain()
    assert trainer.progress.update == 4 and trainer.progress.row_loss > 0


@pytest.mark.gpu
def test_no_shape_of_a_batch_has_to_be_planned(on):
    """As cuDNN's attention would be."""
    trainer = on("cuda:0", precision="bfloat16")
    with torch.profiler.profile() as profile:
        trainer.queue_step(iter([global_batch(trainer.device, SHAPES)]))
    names = {event.key for event in profile.key_averages()}
    assert any("efficient_attention" in name for name in names)
    assert not any("cudnn_attention" in name for name in names)


@pytest.mark.gpu
def test_an_update_on_a_gpu_is_that_of_the_cpu(on):
    gpu, cpu = (on(device, precision="float32", dropout=0.0) for device in ("cuda:0", "cpu"))
    cpu.model.load_state_dict(gpu.model.state_dict())
    for _ in range(3):
        batch = global_batch(torch.device("cpu"), SHAPES)
        moved = [(seed, src.cuda(), tgt.cuda()) for seed, src, tgt in batch.share]
        ours, theirs = cpu.train_step(batch), gpu.train_step(batch._replace(share=moved))
        assert float(theirs) == pytest.approx(float(ours), rel=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("compiled", [False, True])
def test_dropout_on_a_gpu_is_that_of_the_place_in_the_data(on, compiled: bool):
    """Whatever was drawn before, as it is when a run goes on."""
    losses = []
    for drawn in 0, 1000:
        torch._dynamo.reset()
        trainer = on("cuda:0", precision="float32", dropout=0.5, compile=compiled)
        torch.rand(drawn, device=trainer.device)
        torch.manual_seed(7)
        batch = global_batch(torch.device("cpu"), SHAPES)
        share = [(seed, src.cuda(), tgt.cuda()) for seed, src, tgt in batch.share]
        losses.append(float(trainer.train_step(batch._replace(share=share))))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
