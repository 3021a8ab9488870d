"""Section 3: what must hold of the whole model, whatever its size."""

import copy
import dataclasses
import math
import pickle
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from annotated.data import Batch
from annotated.machinery.formats.own import parameter_shapes
from annotated.model import (
    EncoderDecoder,
    TransformerConfig,
    build_model,
    make_model,
    tie_embeddings,
)
from annotated.positional import LearnedPositionalEncoding, PositionalEncoding

V, PAD = 11, 0
TINY = {"N": 2, "d_model": 8, "d_ff": 16, "h": 2}


def tiny(**options: object) -> EncoderDecoder:
    """A small model without dropout, whose every parameter is random (no gain 1, no bias 0)."""
    model = make_model(V, V, **TINY | {"dropout": 0.0} | options)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return model.eval()


def log_probs(model: EncoderDecoder, src: Tensor, tgt: Tensor) -> Tensor:
    """Log-probabilities (batch, tgt_len, V) with the masks that batches have."""
    src_mask = (src != PAD).unsqueeze(-2)
    return model.generator(model(src, tgt, src_mask, Batch.make_std_mask(tgt, PAD)))


def ids(*shape: int) -> Tensor:
    return torch.randint(1, V, shape)


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


OPTIONS = st.fixed_dictionaries(
    {
        "norm_first": st.booleans(),
        "positions": st.sampled_from(["sinusoidal", "learned", "endpoint"]),
        "tie_embeddings": st.booleans(),
        "d_k": st.sampled_from([None, 3]),
        "d_v": st.sampled_from([None, 5]),
        "bias": st.booleans(),
        "activation": st.sampled_from(["relu", "swish"]),
        "N_decoder": st.sampled_from([None, 1]),
        "decoder": st.sampled_from(["attention", "attention", "ssru", "ssru-without-ff"]),
    }
)
LENGTHS = st.integers(1, 7)


@given(OPTIONS, LENGTHS, LENGTHS, st.data())
def test_a_target_token_never_changes_what_comes_before_it(options, src_len, tgt_len, data):
    model = tiny(**options)
    src, tgt = ids(2, src_len), ids(2, tgt_len)
    j = data.draw(st.integers(0, tgt_len - 1), label="position changed")
    changed = tgt.clone()
    changed[:, j] = tgt[:, j] % (V - 1) + 1
    before, after = log_probs(model, src, tgt), log_probs(model, src, changed)
    close(after[:, :j], before[:, :j])
    assert (after[:, j] - before[:, j]).abs().max() > 1e-4  # the token itself is seen


@given(OPTIONS)
def test_sentences_of_a_batch_do_not_see_each_other(options):
    model = tiny(**options)
    pairs = [(ids(1, n), ids(1, m)) for n, m in [(5, 2), (1, 6), (7, 4)]]
    src, tgt = torch.full((3, 7), PAD), torch.full((3, 6), PAD)
    for i, (x, y) in enumerate(pairs):
        src[i, : x.size(1)], tgt[i, : y.size(1)] = x, y
    together = log_probs(model, src, tgt)
    for i, (x, y) in enumerate(pairs):
        close(together[i, : y.size(1)], log_probs(model, x, y)[0])


@given(OPTIONS)
def test_a_source_that_is_all_padding_makes_no_nan_and_disturbs_nobody(options):
    model = tiny(**options).train()
    src, tgt = ids(3, 5), ids(3, 4)
    src[1] = PAD
    out = log_probs(model, src, tgt)
    assert out.isfinite().all()
    close(out[[0, 2]], log_probs(model, src[[0, 2]], tgt[[0, 2]]))
    out.square().mean().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def full_size(**changes: object) -> EncoderDecoder:
    """The base model with changes, which has shapes but no memory."""
    with torch.device("meta"):
        return build_model(TransformerConfig.base(**changes))


BIG = {"d_model": 1024, "d_ff": 4096, "h": 16, "dropout": 0.3}
TABLE_3 = [  # changes to the base model, and the paper's millions of parameters
    ({}, 65), ({"h": 1}, 65), ({"d_k": 16}, 58), ({"d_k": 32}, 60), ({"N": 2}, 36), ({"N": 4}, 50),
    ({"N": 8}, 80), ({"d_model": 256, "d_k": 32, "d_v": 32}, 28), ({"d_ff": 1024}, 53),
    ({"d_model": 1024, "d_k": 128, "d_v": 128}, 168), ({"d_ff": 4096}, 90), (BIG, 213),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "millions"), TABLE_3, ids=str)
def test_rows_of_table_3_at_full_size(changes: dict, millions: int):
    """The paper says "about 37000" ids and rounds: 5000 ids more would close every gap."""
    model = full_size(**changes)
    ids_more = 5000 * model.config.d_model / 1e6
    assert count(model) / 1e6 == pytest.approx(millions, abs=ids_more + 0.5)


def test_base_and_big_are_the_papers():
    base, c = TransformerConfig.base(100), TransformerConfig(100, 100)
    assert (c.N, c.d_model, c.d_ff, c.h, c.dropout) == (6, 512, 2048, 8, 0.1)
    assert c.positions == "sinusoidal" and not c.norm_first
    assert dataclasses.replace(c, tie_embeddings=True) == base
    assert TransformerConfig.big(100) == dataclasses.replace(base, **BIG)
    with torch.device("meta"):
        assert make_model(100, 100).config == c
    assert isinstance(full_size().src_embed[1], PositionalEncoding)


@given(OPTIONS)
def test_shapes_are_those_added_up_by_hand_and_known_before_a_model_is_built(options):
    """2 encoder layers, 2 or fewer decoder layers; d = 8, d_ff = 16, h = 2, and V ids."""
    o, model = options, make_model(V, V, **TINY, **options, max_len=9)
    assert parameter_shapes(model.config) == {n: p.shape for n, p in model.named_parameters()}
    k, v, layers = 2 * (o["d_k"] or 4), 2 * (o["d_v"] or 4), o["N_decoder"] or 2
    attention = 8 * 2 * (k + v) + (2 * k + v + 8 if o["bias"] else 0)
    ff, norm = 8 * 16 + 16 + 16 * 8 + 8, 2 * 8
    recurrence, without_ff = 2 * 8 * 8 + 8, o["decoder"] == "ssru-without-ff"
    own = attention if o["decoder"] == "attention" else recurrence
    decoder = own + attention + 2 * norm + (0 if without_ff else ff + norm)
    expected = 2 * (attention + ff + 2 * norm) + layers * decoder
    expected += V * 8 * (1 if o["tie_embeddings"] else 3) + (V if o["bias"] else 0)
    expected += 2 * 9 * 8 * (o["positions"] == "learned") + 2 * norm * o["norm_first"]
    assert count(model) == expected
    assert len(model.state_dict()) == len([*model.named_parameters(remove_duplicate=False)])


def matrices(model: EncoderDecoder) -> list[Tensor]:
    tables = [embed[0].lut.weight for embed in (model.src_embed, model.tgt_embed)]
    return [*tables, model.generator.proj.weight]


@pytest.mark.parametrize("tied", [True, False])
def test_tied_matrices_are_one_and_untied_ones_are_three(tied):
    model = make_model(V, V, **TINY, tie_embeddings=tied)
    assert len({w.data_ptr() for w in matrices(model)}) == (1 if tied else 3)
    assert len({id(w) for w in matrices(model)}) == (1 if tied else 3)
    with torch.no_grad():
        model.generator.proj.weight.fill_(1.0)
    assert bool((model.src_embed[0].lut.weight == 1).all()) is tied


@pytest.mark.parametrize("tied", [True, False])
def test_a_copy_computes_the_same_and_shares_nothing(tied):
    model = tiny(tie_embeddings=tied, positions="learned")
    src, tgt = ids(2, 5), ids(2, 4)
    expected = log_probs(model, src, tgt)
    loaded = build_model(model.config).eval()
    loaded.load_state_dict(model.state_dict())
    for other in copy.deepcopy(model), pickle.loads(pickle.dumps(model)), loaded:
        assert other.config == model.config
        assert torch.equal(log_probs(other, src, tgt), expected)
        assert len({w.data_ptr() for w in matrices(other)}) == (1 if tied else 3)
        places = [{p.data_ptr() for p in one.parameters()} for one in (model, other)]
        assert not places[0] & places[1]


def test_make_model_builds_what_its_arguments_say():
    options = {"d_k": 3, "d_v": 4, "norm_first": True, "positions": "learned", "max_len": 6}
    model = make_model(5, 7, 3, 12, 20, 2, 0.25, **options)
    shape = {"N": 3, "d_model": 12, "d_ff": 20, "h": 2, "dropout": 0.25, "tie_embeddings": False}
    assert model.config == TransformerConfig(5, 7, **shape, **options) and model.training
    assert isinstance(model.src_embed[1], LearnedPositionalEncoding)
    assert [w.shape for w in matrices(model)] == [(5, 12), (7, 12), (7, 12)]
    parts = {"positions": LearnedPositionalEncoding, "norm": nn.RMSNorm}
    model = make_model(5, 7, **TINY, **parts, max_len=6)
    assert model.parts.keys() == parts.keys() and len(matrices(model)) == 3
    assert isinstance(model.src_embed[1], LearnedPositionalEncoding)


def test_dropout_is_where_section_5_4_puts_it_and_nowhere_else():
    model = make_model(V, V, **TINY, dropout=0.3)
    active = {name for name, m in model.named_modules() if isinstance(m, nn.Dropout) and m.p > 0}
    sublayers = {f"encoder.layers.{i}.sublayer.{j}.dropout" for i in range(2) for j in range(2)}
    sublayers |= {f"decoder.layers.{i}.sublayer.{j}.dropout" for i in range(2) for j in range(3)}
    assert active == sublayers | {"src_embed.1.dropout", "tgt_embed.1.dropout"}
    assert {m.p for m in model.modules() if isinstance(m, nn.Dropout)} == {0.0, 0.3}
    src, tgt = ids(2, 5), ids(2, 4)
    assert not torch.equal(log_probs(model, src, tgt), log_probs(model, src, tgt))
    model.eval()
    assert torch.equal(log_probs(model, src, tgt), log_probs(model, src, tgt))


def test_dropout_of_attention_acts_in_training_alone():
    model = make_model(V, V, **TINY | {"dropout": 0.0}, attention_dropout=0.5)
    src, tgt = ids(2, 5), ids(2, 4)
    assert not torch.equal(log_probs(model, src, tgt), log_probs(model, src, tgt))
    plain = make_model(V, V, **TINY | {"dropout": 0.0})
    plain.load_state_dict(model.state_dict())
    model.eval()
    assert torch.equal(log_probs(model, src, tgt), log_probs(plain, src, tgt))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *(("src_vocab", x) for x in (0, -1, "10")),
        *(("N", x) for x in (0, 2.5, True)),
        *((name, 0) for name in ("h", "d_model", "d_ff", "max_len", "d_k", "d_v")),
        *(("max_len", x) for x in (10**9, [])),
        *(("dropout", x) for x in (-0.1, 1.0, math.nan, True, "0.1")),
        ("attention_dropout", 1.0),
        *(("positions", x) for x in ("rotary", None, ["learned"])),
        ("activation", "gelu"),
        *((name, x) for name in ("tie_embeddings", "norm_first") for x in ("no", 1, None)),
    ],
    ids=str,
)
def test_wrong_options(name, wrong):
    with pytest.raises(ValueError, match=rf"\b{name}\b.*got"):
        TransformerConfig(**{"src_vocab": V, "tgt_vocab": V} | TINY | {name: wrong})


def test_an_option_that_does_not_exist_is_answered_with_the_closest():
    for make in partial(make_model, V), TransformerConfig.base:
        with pytest.raises(ValueError, match=r"d_ff.*'d_modle'; did you mean d_model\?"):
            make(V, d_modle=8)


def test_options_must_fit_each_other():
    for widths in {}, {"d_k": 2}, {"d_v": 2}:
        with pytest.raises(ValueError, match="d_model=10, h=4"):
            make_model(V, V, N=1, d_model=10, d_ff=8, h=4, **widths)
    with pytest.raises(ValueError, match="src_vocab=5, tgt_vocab=6"):
        make_model(5, 6, **TINY, tie_embeddings=True)
    with pytest.raises(ValueError, match=r"\(9, 8\).*\(5, 8\)"):
        tie_embeddings(make_model(5, 9, **TINY))


@pytest.mark.parametrize(
    "mask",
    [
        torch.ones(2, 4), torch.zeros(2, 1, 4) - math.inf, [[[1]]],
        *map(torch.ones, [(2, 4, 1), (1, 4, 1), (1, 1, 1), (2, 1, 3), (2, 3, 4), (3, 1, 4), (4,)]),
    ],
)  # fmt: skip
def test_masks_that_would_mean_something_else_are_refused(mask):
    """Padding (batch, len) broadcasts over queries; a mask to be added has 0 where it allows."""
    src, tgt = ids(2, 4), ids(2, 4)
    for options in {"src_mask": mask}, {"tgt_mask": mask}:
        with pytest.raises(ValueError, match=f"expected {next(iter(options))}"):
            tiny()(src, tgt, **options)
    with pytest.raises(ValueError, match="expected src_mask"):
        tiny().encode(src, mask)
    with pytest.raises(ValueError, match="expected src_mask"):
        tiny().decode(torch.randn(2, 4, 8), mask, tgt)


def test_a_mask_for_all_queries_is_none_of_the_source_or_target():
    """Where lengths agree, one would serve the other side; and one row shows the future."""
    src, tgt = ids(2, 4), ids(2, 4)
    with pytest.raises(ValueError, match=r"expected src_mask of shape \(2, 1, 4\)"):
        tiny()(src, tgt, torch.ones(2, 4, 4))
    with pytest.raises(ValueError, match=r"expected tgt_mask of shape \(2, 4, 4\)"):
        tiny()(src, tgt, None, (tgt != PAD).unsqueeze(-2))


def test_masks_may_be_booleans_zeros_and_ones_or_missing():
    model, src, tgt = tiny(), ids(2, 4).int(), ids(2, 3).int()
    expected = model(src, tgt)
    causal = torch.ones(1, 3, 3).tril()
    for src_mask in torch.ones(1, 1, 4), torch.ones(2, 1, 4).bool(), None:
        for tgt_mask in causal, causal.expand(2, 3, 3).long(), causal.bool(), None:
            close(model(src, tgt, src_mask, tgt_mask), expected)


@pytest.mark.parametrize("src_len, tgt_len", [(7, 3), (3, 7)])
def test_inputs_longer_than_learned_positions(src_len, tgt_len):
    model = tiny(positions="learned", max_len=6)
    assert log_probs(model, ids(1, 6), ids(1, 6)).shape == (1, 6, V)
    with pytest.raises(ValueError, match=r"at most 6.*got 7"):
        log_probs(model, ids(1, src_len), ids(1, tgt_len))


def test_linear_maps_start_from_xaviers_rule_and_values_at_a_fourth_of_it():
    torch.manual_seed(0)
    model = make_model(50, 50, N=2, d_model=128, d_ff=512, h=4)
    for name, weight in model.named_parameters():
        if weight.dim() == 2 and "embed" not in name and "generator" not in name:
            largest = (6 / sum(weight.shape)) ** 0.5 / (4 if "w_v" in name else 1)
            assert weight.abs().max().item() == pytest.approx(largest, rel=0.01), name
