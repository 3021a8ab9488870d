"""Section 3: what must hold of the whole model, whatever its size."""

import copy
import dataclasses
import io
import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, load_model, save_file, save_model
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


# Which output may depend on which input


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


def test_every_target_position_sees_all_of_its_past_and_nothing_else():
    model = tiny()
    src, tgt = ids(1, 4), ids(1, 6)
    embedded = model.tgt_embed(tgt).detach().requires_grad_()
    memory = model.encode(src, None)
    out = model.decoder(embedded, memory, None, Batch.make_std_mask(tgt, PAD))
    for i in range(6):
        weighting = torch.randn(8)
        (gradient,) = torch.autograd.grad(
            (out[0, i] * weighting).sum(), embedded, retain_graph=True
        )
        assert gradient[0].any(dim=-1).tolist() == [True] * (i + 1) + [False] * (5 - i)


def test_every_output_sees_every_real_source_token_and_no_padding():
    model = tiny()
    src, tgt = ids(1, 5), ids(1, 3)
    src[0, 3:] = PAD
    embedded = model.src_embed(src).detach().requires_grad_()
    src_mask = (src != PAD).unsqueeze(-2)
    out = model.decode(model.encoder(embedded, src_mask), src_mask, tgt, None)
    for i in range(3):
        weighting = torch.randn(8)
        (gradient,) = torch.autograd.grad(
            (out[0, i] * weighting).sum(), embedded, retain_graph=True
        )
        assert gradient[0].any(dim=-1).tolist() == [True] * 3 + [False] * 2


@given(OPTIONS, LENGTHS, LENGTHS, st.integers(0, 3), st.integers(0, 3))
def test_padding_changes_nothing_on_real_positions(options, src_len, tgt_len, more_src, more_tgt):
    model = tiny(**options)
    src, tgt = ids(2, src_len), ids(2, tgt_len)
    padded_src = torch.cat([src, torch.full((2, more_src), PAD)], dim=1)
    padded_tgt = torch.cat([tgt, torch.full((2, more_tgt), PAD)], dim=1)
    close(log_probs(model, padded_src, padded_tgt)[:, :tgt_len], log_probs(model, src, tgt))


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


def test_encode_and_decode_are_the_two_halves_of_forward():
    model = tiny()
    src, tgt = ids(2, 5), ids(2, 4)
    src_mask, tgt_mask = torch.ones(2, 1, 5), Batch.make_std_mask(tgt, PAD)
    memory = model.encode(src, src_mask)
    assert memory.shape == (2, 5, 8)
    out = model.decode(memory, src_mask, tgt, tgt_mask)
    assert out.shape == (2, 4, 8)
    assert torch.equal(out, model(src, tgt, src_mask, tgt_mask))
    assert model.generator(out).shape == (2, 4, V)


def test_the_boxes_fire_in_the_order_of_figure_1():
    encoder = ["self_attn", "sublayer.0", "feed_forward", "sublayer.1"]
    decoder = [*encoder[:2], "src_attn", "sublayer.1", "feed_forward", "sublayer.2"]

    def inside(stack: str, boxes: list[str]) -> list[str]:
        return [f"{stack}.layers.{i}.{box}" for i in range(2) for box in boxes]

    figure = ["src_embed.0", "src_embed.1", *inside("encoder", encoder), "encoder"]
    figure += ["tgt_embed.0", "tgt_embed.1", *inside("decoder", decoder), "decoder"]
    figure += ["generator.proj", "generator"]
    model, fired = tiny(), {}
    for name in figure:
        model.get_submodule(name).register_forward_hook(
            lambda module, args, output, name=name: fired.update({name: tuple(output.shape)})
        )
    log_probs(model, ids(1, 4), ids(1, 3))
    assert list(fired) == figure
    assert fired["encoder"] == (1, 4, 8) and fired["decoder"] == (1, 3, 8)


# Sizes


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def on_paper(src, tgt, N, d, ff, h, k, v, tied, learned=0, norm_first=False) -> int:
    """Number of parameters, added up by hand."""
    attention = h * (2 * d * k + 2 * d * v)
    feed_forward = 2 * d * ff + ff + d
    norm = 2 * d
    encoder = N * (attention + feed_forward + 2 * norm)
    decoder = N * (2 * attention + feed_forward + 3 * norm)
    matrices = src * d if tied else src * d + 2 * tgt * d
    return encoder + decoder + matrices + 2 * learned * d + 2 * norm * norm_first


def full_size(config: TransformerConfig) -> EncoderDecoder:
    """A model that has shapes but no memory."""
    with torch.device("meta"):
        return build_model(config)


def test_base_and_big_have_the_papers_sizes():
    base, big = full_size(TransformerConfig.base()), full_size(TransformerConfig.big())
    assert count(base) == on_paper(37000, 37000, 6, 512, 2048, 8, 64, 64, tied=True)
    assert count(big) == on_paper(37000, 37000, 6, 1024, 4096, 16, 64, 64, tied=True)
    assert base.config.dropout == 0.1 and big.config.dropout == 0.3


def test_all_sublayers_of_the_base_model_give_512_components():
    model, widths = full_size(TransformerConfig.base()), set()
    layers = [*model.encoder.layers, *model.decoder.layers]
    assert len(model.encoder.layers) == len(model.decoder.layers) == 6
    for part in [model.src_embed, model.tgt_embed, *(s for one in layers for s in one.sublayer)]:
        part.register_forward_hook(lambda module, args, output: widths.add(output.size(-1)))
    with torch.device("meta"):
        token = torch.zeros(1, 5, dtype=torch.long)
        model(token, token)
    assert widths == {512}


TABLE_3 = [  # changes to the base model, and the paper's millions of parameters (unlisted: base's)
    pytest.param({}, 65, id="base"),
    pytest.param({"h": 1, "d_k": 512, "d_v": 512}, 65, id="A h=1"),
    pytest.param({"h": 4, "d_k": 128, "d_v": 128}, 65, id="A h=4"),
    pytest.param({"h": 16, "d_k": 32, "d_v": 32}, 65, id="A h=16"),
    pytest.param({"h": 32, "d_k": 16, "d_v": 16}, 65, id="A h=32"),
    pytest.param({"d_k": 16}, 58, id="B d_k=16"),
    pytest.param({"d_k": 32}, 60, id="B d_k=32"),
    pytest.param({"N": 2}, 36, id="C N=2"),
    pytest.param({"N": 4}, 50, id="C N=4"),
    pytest.param({"N": 8}, 80, id="C N=8"),
    pytest.param({"d_model": 256, "d_k": 32, "d_v": 32}, 28, id="C d_model=256"),
    pytest.param({"d_model": 1024, "d_k": 128, "d_v": 128}, 168, id="C d_model=1024"),
    pytest.param({"d_ff": 1024}, 53, id="C d_ff=1024"),
    pytest.param({"d_ff": 4096}, 90, id="C d_ff=4096"),
    pytest.param({"dropout": 0.0}, 65, id="D P_drop=0.0"),
    pytest.param({"dropout": 0.2}, 65, id="D P_drop=0.2"),
    pytest.param({"positions": "learned", "max_len": 1024}, 65, id="E learned"),
    pytest.param({"N": 6, "d_model": 1024, "d_ff": 4096, "h": 16, "dropout": 0.3}, 213, id="big"),
]


@pytest.mark.parametrize("changes, millions", TABLE_3)
def test_rows_of_table_3_at_full_size(changes, millions):
    config = TransformerConfig.base(**changes)
    for name, value in changes.items():
        assert getattr(config, name) == value
    c = config
    k, v = c.d_k or c.d_model // c.h, c.d_v or c.d_model // c.h
    learned = c.max_len if c.positions == "learned" else 0
    model = full_size(config)
    shape = (c.N, c.d_model, c.d_ff, c.h, k, v)
    assert count(model) == on_paper(37000, 37000, *shape, tied=True, learned=learned)
    # The paper says "about 37000" ids and rounds to millions: 5000 ids more would close every gap.
    assert count(model) / 1e6 == pytest.approx(millions, abs=5000 * c.d_model / 1e6 + 0.5)


@given(OPTIONS)
def test_number_of_parameters_of_every_kind(options):
    o = options
    model = make_model(V, V, **TINY, **o, max_len=9)
    learned = 9 if o["positions"] == "learned" else 0
    shape = (2, 8, 16, 2, o["d_k"] or 4, o["d_v"] or 4)
    expected = on_paper(V, V, *shape, o["tie_embeddings"], learned, o["norm_first"])
    biases = 2 * 2 * shape[4] + 2 * shape[5] + 8 if o["bias"] else 0
    if o["bias"]:  # in 2 encoder layers and twice in 2 decoder layers, and before the softmax
        expected += 6 * biases + V
    own = 8 * 2 * 2 * (shape[4] + shape[5]) + biases  # attention
    ff, layers = 8 * 16 + 16 + 16 * 8 + 8, o["N_decoder"] or 2
    layer = 2 * own + ff + 3 * 2 * 8
    expected -= (2 - layers) * layer
    if o["decoder"] != "attention":
        expected += layers * (2 * 8 * 8 + 8 - own)
    if o["decoder"] == "ssru-without-ff":
        expected -= layers * (ff + 2 * 8)
    assert count(model) == expected


@given(OPTIONS)
def test_shapes_are_known_before_a_model_is_built(options):
    model = make_model(V, V, **TINY, **options, max_len=9)
    built = {name: p.shape for name, p in model.named_parameters()}
    assert parameter_shapes(model.config) == built


# Tying


def matrices(model: EncoderDecoder) -> list[Tensor]:
    return [
        model.src_embed[0].lut.weight,
        model.tgt_embed[0].lut.weight,
        model.generator.proj.weight,
    ]


@pytest.mark.parametrize("tied", [True, False])
def test_tied_matrices_are_one_and_untied_ones_are_three(tied):
    model = make_model(V, V, **TINY, tie_embeddings=tied)
    assert len({w.data_ptr() for w in matrices(model)}) == (1 if tied else 3)
    assert len({id(w) for w in matrices(model)}) == (1 if tied else 3)
    with torch.no_grad():
        model.generator.proj.weight.fill_(1.0)
    assert bool((model.src_embed[0].lut.weight == 1).all()) is tied


def test_a_tied_matrix_gathers_the_gradients_of_all_three_places():
    tied, untied = tiny(tie_embeddings=True), tiny()
    state = {name: p.clone() for name, p in tied.state_dict().items()}
    untied.load_state_dict(state)
    src, tgt = ids(2, 5), ids(2, 4)
    for model in tied, untied:
        log_probs(model, src, tgt).square().mean().backward()
    close(matrices(tied)[0].grad, sum(w.grad for w in matrices(untied)))


# Copies and files


def through_deepcopy(model):
    return copy.deepcopy(model)


def through_pickle(model):
    return pickle.loads(pickle.dumps(model))


def through_torch_save(model):
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    other = build_model(model.config)
    other.load_state_dict(torch.load(buffer, weights_only=True))
    return other


@pytest.mark.parametrize("through", [through_deepcopy, through_pickle, through_torch_save])
@pytest.mark.parametrize("tied", [True, False])
def test_a_copy_computes_the_same_and_shares_nothing(through, tied):
    model = tiny(tie_embeddings=tied, positions="learned")
    src, tgt = ids(2, 5), ids(2, 4)
    expected = log_probs(model, src, tgt)  # a call leaves its attention behind; copies cope
    other = through(model).eval()
    assert other.config == model.config
    assert torch.equal(log_probs(other, src, tgt), expected)
    assert len({w.data_ptr() for w in matrices(other)}) == (1 if tied else 3)
    assert not {p.data_ptr() for p in other.parameters()} & {
        p.data_ptr() for p in model.parameters()
    }


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_state_goes_through_safetensors(tmp_path, tied, positions):
    model = tiny(tie_embeddings=tied, positions=positions)
    src, tgt = ids(2, 5), ids(2, 4)
    expected = log_probs(model, src, tgt)
    path = tmp_path / "model.safetensors"

    save_model(model, path)  # the library's own way, which knows shared tensors
    other = build_model(model.config).eval()
    load_model(other, path)
    assert torch.equal(log_probs(other, src, tgt), expected)

    save_file({name: p.detach() for name, p in model.named_parameters()}, path)  # each tensor once
    tensors = load_file(path)
    assert sum(t.numel() for t in tensors.values()) == count(model)
    other = build_model(model.config).eval()
    missing, unexpected = other.load_state_dict(tensors, strict=False)
    assert unexpected == []
    assert len(missing) == (2 if tied else 0)  # the other two names of the one matrix
    assert torch.equal(log_probs(other, src, tgt), expected)
    assert len({w.data_ptr() for w in matrices(other)}) == (1 if tied else 3)


def test_the_sinusoids_are_not_in_the_state():
    assert set(make_model(V, V, **TINY).state_dict()) == {
        name for name, _ in make_model(V, V, **TINY).named_parameters(remove_duplicate=False)
    }


# Options


def test_make_model_builds_what_its_arguments_say():
    model = make_model(
        5, 7, 3, 12, 20, 2, 0.25, d_k=3, d_v=4, norm_first=True, positions="learned", max_len=6
    )
    assert model.config == TransformerConfig(
        5, 7, N=3, d_model=12, d_ff=20, h=2, d_k=3, d_v=4, dropout=0.25,
        positions="learned", max_len=6, tie_embeddings=False, norm_first=True,
    )  # fmt: skip
    assert model.training
    assert len(model.encoder.layers) == len(model.decoder.layers) == 3
    for layer in *model.encoder.layers, *model.decoder.layers:
        attentions = [layer.self_attn] + ([layer.src_attn] if hasattr(layer, "src_attn") else [])
        for attention in attentions:
            assert attention.h == 2
            assert attention.w_q.weight.shape == attention.w_k.weight.shape == (2 * 3, 12)
            assert attention.w_v.weight.shape == attention.w_o.weight.T.shape == (2 * 4, 12)
        assert layer.feed_forward.w_1.weight.shape == (20, 12)
        assert all(sublayer.norm_first for sublayer in layer.sublayer)
    for embed, vocab in (model.src_embed, 5), (model.tgt_embed, 7):
        assert embed[0].lut.weight.shape == (vocab, 12)
        assert isinstance(embed[1], LearnedPositionalEncoding)
        assert embed[1].pe.shape == (1, 6, 12)
    assert model.generator.proj.weight.shape == (7, 12)


def test_the_defaults_are_the_base_model_of_the_paper():
    config = TransformerConfig(100, 100)
    shape = (config.N, config.d_model, config.d_ff, config.h, config.dropout)
    assert shape == (6, 512, 2048, 8, 0.1)
    assert config.positions == "sinusoidal" and not config.norm_first
    with torch.device("meta"):
        assert make_model(100, 100).config == config
    assert dataclasses.replace(config, tie_embeddings=True) == TransformerConfig.base(100)
    assert isinstance(full_size(config).src_embed[1], PositionalEncoding)


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


def test_the_same_seed_makes_the_same_model():
    def parameters(seed: int) -> list[Tensor]:
        torch.manual_seed(seed)
        return list(make_model(V, V, **TINY).parameters())

    assert all(map(torch.equal, parameters(1), parameters(1)))
    assert not all(map(torch.equal, parameters(1), parameters(2)))


@settings(max_examples=15)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 5), st.integers(1, 9), st.booleans())
def test_any_shape_builds_and_computes(width, h, N, d_ff, norm_first):
    model = make_model(V, V, N, width * h, d_ff, h, dropout=0.1, norm_first=norm_first)
    assert log_probs(model, ids(1, 3), ids(1, 2)).isfinite().all()


# Errors say what was expected and what was given


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


def test_options_must_fit_each_other():
    for widths in {}, {"d_k": 2}, {"d_v": 2}:
        with pytest.raises(ValueError, match="d_model=10, h=4"):
            make_model(V, V, N=1, d_model=10, d_ff=8, h=4, **widths)
    with pytest.raises(ValueError, match="src_vocab=5, tgt_vocab=6"):
        make_model(5, 6, **TINY, tie_embeddings=True)


@pytest.mark.parametrize("mask", [torch.ones(2, 4), torch.zeros(2, 1, 4) - math.inf, [[[1]]]])
def test_masks_that_would_mean_something_else_are_refused(mask):
    """Padding (batch, len) broadcasts over queries; a mask to be added has 0 where it allows."""
    for options in {"src_mask": mask}, {"tgt_mask": mask}:
        with pytest.raises(ValueError, match=f"expected {next(iter(options))}"):
            tiny()(ids(2, 4), ids(2, 4), **options)


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


def test_sinusoidal_positions_have_no_longest_input():
    model = tiny(max_len=6)
    assert log_probs(model, ids(1, 20), ids(1, 15)).isfinite().all()


def test_unknown_options_are_refused():
    with pytest.raises(TypeError, match="heads"):
        make_model(V, V, heads=3)


def test_linear_maps_start_from_xaviers_rule_and_values_at_a_fourth_of_it():
    torch.manual_seed(0)
    model = make_model(50, 50, N=2, d_model=128, d_ff=512, h=4)
    for name, weight in model.named_parameters():
        if weight.dim() == 2 and "embed" not in name and "generator" not in name:
            largest = (6 / sum(weight.shape)) ** 0.5 / (4 if "w_v" in name else 1)
            assert weight.abs().max().item() == pytest.approx(largest, rel=0.01), name


def test_unequal_vocabularies_are_not_tied():
    with pytest.raises(ValueError, match=r"\(9, 8\).*\(5, 8\)"):
        tie_embeddings(make_model(5, 9, N=1, d_model=8, d_ff=8, h=2))
