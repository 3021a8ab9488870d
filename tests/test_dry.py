"""The path of a GPU without a GPU: whole updates and steps of search on torch's device `meta`."""

import pytest
import torch
from torch import nn

from annotated import data, decoding
from annotated.machinery.runs import trainer as training
from annotated.training import TrainingConfig, model_config, preset
from benchmarks import dry
from benchmarks.gpu import made_pairs

TINY = {"N": 1, "d_model": 16, "d_ff": 32, "h": 2, "vocab_size": 60}
SMALL = preset("base-en-de", **TINY, src_tokens=400, tgt_tokens=400)


@pytest.fixture(scope="module")
def pairs():
    return made_pairs(300, 60)


def plant(monkeypatch: pytest.MonkeyPatch, fault) -> None:
    """Let each batch of the trainer do something more."""

    class Batch(data.Batch):
        def __init__(self, *given: object) -> None:
            super().__init__(*given)
            fault(self)

    monkeypatch.setattr(training, "Batch", Batch)


def read_a_number(batch: data.Batch) -> None:
    batch.tgt.sum().item()


def forget_the_device(batch: data.Batch) -> None:
    batch.tgt_mask = batch.tgt_mask & torch.ones(batch.tgt_mask.shape, dtype=torch.bool)


@pytest.mark.parametrize("fault", [read_a_number, forget_the_device])
def test_what_would_stop_a_gpu_is_found(fault, pairs, monkeypatch: pytest.MonkeyPatch):
    plant(monkeypatch, fault)
    with pytest.raises((RuntimeError, NotImplementedError)):
        dry.update(SMALL, pairs)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["base", "big"])
def test_an_update_of_the_papers_models_never_waits(name: str):
    config: TrainingConfig = preset(f"{name}-en-de")
    found = dry.update(config, made_pairs(5000, config.vocab_size))
    c = model_config(config)
    layer = c.N * (4 * c.d_model**2 + 2 * c.d_model * c.d_ff)  # weights that meet each token
    products = (layer + c.N * 2 * c.d_model**2) * found.source  # with keys and values of the source
    products += (layer + c.N * 2 * c.d_model**2 + c.tgt_vocab * c.d_model) * found.tokens
    assert found.flops == pytest.approx(3 * 2 * products, rel=0.05)  # the rest is attention
    assert found.weights == {"base": 63_045_632, "big": 214_171_648}[name]
    used = found.kept / found.part_tokens * found.largest_part(80) + dry.STATE * found.weights
    assert used + dry.WORKSPACE == pytest.approx((80 - dry.RESERVED) * 1e9, rel=1e-4)


def test_parts_share_an_update(pairs):
    whole, parts = dry.update(SMALL, pairs), dry.update(SMALL, pairs, parts=4)
    assert parts.parts == 4
    assert parts.part_tokens < whole.part_tokens
    assert parts.kept < whole.kept
    assert 3 * len(whole.operators) < len(parts.operators) < 5 * len(whole.operators)


@pytest.mark.parametrize("beam", [1, 4])
def test_a_step_of_search_never_waits(beam: int, monkeypatch: pytest.MonkeyPatch):
    assert dry.search_step(SMALL, beam) > 10
    real = decoding.next_log_probs
    reads = lambda *given: real(*given) + real(*given).max().item()
    monkeypatch.setattr(dry, "next_log_probs", reads)
    with pytest.raises(RuntimeError):
        dry.search_step(SMALL, beam)


def test_the_bytes_that_are_kept_are_those_of_the_definition():
    first, second = (nn.Linear(*sizes, device="meta") for sizes in ((8, 32), (32, 8)))
    weights = {p.untyped_storage()._cdata for m in (first, second) for p in m.parameters()}
    x = torch.empty(5, 8, device="meta")
    with dry.kept_bytes(weights) as total:
        second(first(x).relu()).sum()
    assert total[0] == 4 * (5 * 8 + 5 * 32)  # the input, and what the ReLU left


def test_operators_are_counted_without_views_and_with_what_they_move():
    with dry.Operators() as operators:
        x = torch.empty(4, 6, device="meta").transpose(0, 1)
        (x @ x.T).exp_()
        x.sum(1, keepdim=True).expand(6, 4).gather(1, torch.empty(6, 1, device="meta").long())
    found = [(o.name, o.flops, o.bytes) for o in operators.found]
    assert found[:2] == [("mm", 2 * 6 * 4 * 6, 4 * (24 + 24 + 36)), ("exp_", 0, 4 * (36 + 36))]
    assert found[-1] == ("gather", 0, 3 * 4 * 6)


def test_an_update_takes_as_long_as_the_slower_of_processor_and_card():
    short, long = dry.Operator("add", 0, 1), dry.Operator("mm", int(dry.PEAKS["H100"]), 0)
    assert dry.predicted([short] * 100, "H100") == pytest.approx(100 * dry.LAUNCH)
    assert dry.predicted([long] * 3, "H100") == pytest.approx(3 + dry.LAUNCH)
    found = dry.Report([short, short, long, long, short], *[1] * 6)
    assert found.fused == 4 and found.by_operator("H100").index[0] == "mm"


def test_the_shapes_of_an_epoch(pairs):
    found = dry.shapes(SMALL, pairs)
    assert 1 < found["shapes"] <= found["batches"] and 0 < found["padding"] < 1
    assert len(dry.counted_pairs("multi30k").lengths) > 28_000


def test_products_are_computed_in_16_bits_and_norms_in_32():
    linear, norm = nn.Linear(8, 8, device="meta"), nn.LayerNorm(8, device="meta")
    x = torch.empty(2, 3, 8, device="meta")
    with dry.AsAutocast():
        low = linear(x)
        assert low.dtype == torch.bfloat16
        assert norm(low).dtype == torch.float32
        heads = low.unflatten(-1, (2, 4)).transpose(1, 2)
        mask = torch.ones(3, 3, dtype=torch.bool, device="meta")
        out = nn.functional.scaled_dot_product_attention(heads, heads, heads, mask)
        assert out.shape == heads.shape
