"""Section 3.1 against torch's own layers and nn.Transformer with the same weights."""

import pytest
import torch
from torch import Tensor, nn

from annotated.attention import MultiHeadedAttention, subsequent_mask
from annotated.feed_forward import PositionwiseFeedForward
from annotated.model import make_model
from annotated.stacks import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    SublayerConnection,
    clones,
)

D_MODEL, D_FF, H = 16, 24, 4
NORM_FIRST = pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def attention() -> MultiHeadedAttention:
    return MultiHeadedAttention(H, D_MODEL)


def feed_forward() -> PositionwiseFeedForward:
    return PositionwiseFeedForward(D_MODEL, D_FF)


def encoder_layer(norm_first: bool = False, dropout: float = 0.0) -> EncoderLayer:
    return EncoderLayer(D_MODEL, attention(), feed_forward(), dropout, norm_first)


def decoder_layer(norm_first: bool = False, dropout: float = 0.0) -> DecoderLayer:
    return DecoderLayer(D_MODEL, attention(), attention(), feed_forward(), dropout, norm_first)


def scramble(module: nn.Module) -> nn.Module:
    """Random values everywhere, so that no bias is 0 and no normalization has gain 1."""
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn_like(p) * (0.3 if p.dim() > 1 else 0.5))
    return module


@torch.no_grad()
def copy_layer(ours: nn.Module, theirs: nn.Module) -> None:
    """Give torch's encoder or decoder layer the weights of ours; its attention biases are 0."""
    pairs = [(ours.self_attn, theirs.self_attn)]
    if hasattr(ours, "src_attn"):
        pairs.append((ours.src_attn, theirs.multihead_attn))
    for mine, other in pairs:
        other.in_proj_weight.copy_(torch.cat([mine.w_q.weight, mine.w_k.weight, mine.w_v.weight]))
        other.out_proj.weight.copy_(mine.w_o.weight)
        other.in_proj_bias.zero_()
        other.out_proj.bias.zero_()
    theirs.linear1.load_state_dict(ours.feed_forward.w_1.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.w_2.state_dict())
    for i, sublayer in enumerate(ours.sublayer, start=1):
        getattr(theirs, f"norm{i}").load_state_dict(sublayer.norm.state_dict())


def torch_options(norm_first: bool) -> dict:
    return {"dim_feedforward": D_FF, "dropout": 0.0, "batch_first": True, "norm_first": norm_first}


def padding_mask(real: list[int], length: int) -> Tensor:
    """(batch, 1, length), True for the first tokens of each sentence, as many as are real."""
    return (torch.arange(length) < torch.tensor(real).unsqueeze(1)).unsqueeze(1)


@NORM_FIRST
@pytest.mark.parametrize("padded", [False, True])
def test_encoder_layer_equals_torch(norm_first, padded):
    ours = scramble(encoder_layer(norm_first))
    theirs = nn.TransformerEncoderLayer(D_MODEL, H, **torch_options(norm_first))
    copy_layer(ours, theirs)
    x = torch.randn(3, 6, D_MODEL)
    mask = padding_mask([6, 4, 1], 6) if padded else None
    expected = theirs(x, src_key_padding_mask=~mask.squeeze(1) if padded else None)
    close(ours(x, mask), expected)


@NORM_FIRST
@pytest.mark.parametrize("padded", [False, True])
def test_decoder_layer_equals_torch(norm_first, padded):
    ours = scramble(decoder_layer(norm_first))
    theirs = nn.TransformerDecoderLayer(D_MODEL, H, **torch_options(norm_first))
    copy_layer(ours, theirs)
    x, memory = torch.randn(3, 5, D_MODEL), torch.randn(3, 6, D_MODEL)
    causal = subsequent_mask(5)
    masks = {"tgt_mask": ~causal[0]}
    src_mask, tgt_mask = None, causal
    if padded:
        src_mask, tgt_padding = padding_mask([6, 1, 3], 6), padding_mask([2, 5, 4], 5)
        tgt_mask = tgt_padding & causal
        masks["memory_key_padding_mask"] = ~src_mask.squeeze(1)
        masks["tgt_key_padding_mask"] = ~tgt_padding.squeeze(1)
    close(ours(x, memory, src_mask, tgt_mask), theirs(x, memory, **masks))


@NORM_FIRST
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # torch's word on its own fast path
def test_the_whole_model_equals_torch_in_value_and_gradient(norm_first):
    N = 3
    model = make_model(
        11, 13, N=N, d_model=D_MODEL, d_ff=D_FF, h=H, dropout=0.0, norm_first=norm_first
    )
    scramble(model)
    theirs = nn.Transformer(D_MODEL, H, N, N, **torch_options(norm_first))
    for mine, other in (model.encoder, theirs.encoder), (model.decoder, theirs.decoder):
        for a, b in zip(mine.layers, other.layers, strict=True):
            copy_layer(a, b)
        if norm_first:
            other.norm.load_state_dict(mine.norm.state_dict())
        else:
            other.norm = None  # torch normalizes once more at the end; the paper does not
    src, tgt = torch.randint(11, (3, 6)), torch.randint(13, (3, 5))
    src_mask, tgt_padding, causal = (
        padding_mask([6, 2, 4], 6),
        padding_mask([1, 5, 3], 5),
        subsequent_mask(5),
    )
    output = model(src, tgt, src_mask, tgt_padding & causal)
    expected = theirs(
        model.src_embed(src),
        model.tgt_embed(tgt),
        tgt_mask=~causal[0],
        src_key_padding_mask=~src_mask.squeeze(1),
        tgt_key_padding_mask=~tgt_padding.squeeze(1),
        memory_key_padding_mask=~src_mask.squeeze(1),
    )
    close(output, expected)
    tables = model.src_embed[0].lut.weight, model.tgt_embed[0].lut.weight
    weighting = torch.randn_like(output)
    for mine, other in zip(
        torch.autograd.grad((output * weighting).sum(), tables),
        torch.autograd.grad((expected * weighting).sum(), tables),
        strict=True,
    ):
        torch.testing.assert_close(mine, other, atol=1e-4, rtol=1e-4)


def test_clones_are_equal_and_share_nothing():
    original = encoder_layer()
    copies = clones(original, 3)
    assert len(copies) == 3
    values = [original, *copies]
    for parameters in zip(*(module.parameters() for module in values), strict=True):
        assert len({p.data_ptr() for p in parameters}) == 4
        assert all(torch.equal(p, parameters[0]) for p in parameters)
    with torch.no_grad():
        copies[0].feed_forward.w_1.weight.zero_()
    assert original.feed_forward.w_1.weight.any() and copies[1].feed_forward.w_1.weight.any()


STACKS = pytest.mark.parametrize(
    "stack, make_layer", [(Encoder, encoder_layer), (Decoder, decoder_layer)]
)


@STACKS
def test_a_stack_has_n_layers_that_share_nothing(stack, make_layer):
    stack = stack(make_layer(), 4)
    assert len(stack.layers) == 4
    parameters = list(stack.parameters())
    assert len({p.data_ptr() for p in parameters}) == len(parameters)


@NORM_FIRST
def test_a_stack_is_its_layers_one_after_the_other(norm_first):
    encoder = scramble(Encoder(encoder_layer(norm_first), 3))
    decoder = scramble(Decoder(decoder_layer(norm_first), 3))
    x, y = torch.randn(2, 5, D_MODEL), torch.randn(2, 4, D_MODEL)
    src_mask, tgt_mask = padding_mask([5, 3], 5), subsequent_mask(4)
    memory, output = x, y
    for layer in encoder.layers:
        memory = layer(memory, src_mask)
    for layer in decoder.layers:
        output = layer(output, x, src_mask, tgt_mask)
    if norm_first:  # and one normalization at the end, which post-norm has done already
        memory, output = encoder.norm(memory), decoder.norm(output)
    close(encoder(x, src_mask), memory)
    close(decoder(y, x, src_mask, tgt_mask), output)


@STACKS
def test_a_post_norm_stack_adds_no_parameters(stack, make_layer):
    layer = make_layer()
    count = sum(p.numel() for p in layer.parameters())
    assert sum(p.numel() for p in stack(layer, 5).parameters()) == 5 * count


def plain_layer_norm(row: list[float], gain: list[float], bias: list[float]) -> list[float]:
    mean = sum(row) / len(row)
    variance = sum((value - mean) ** 2 for value in row) / len(row)
    scaled = [(value - mean) / (variance + 1e-5) ** 0.5 for value in row]
    return [x * g + b for x, g, b in zip(scaled, gain, bias, strict=True)]


@NORM_FIRST
def test_sublayer_connection_follows_its_formula(norm_first):
    connection = scramble(SublayerConnection(5, dropout=0.0, norm_first=norm_first))
    norm = connection.norm.weight.tolist(), connection.norm.bias.tolist()
    x = torch.randn(1, 3, 5)
    expected = []
    for row in x[0].tolist():  # the sub-layer is x ↦ x³
        if norm_first:
            normed = plain_layer_norm(row, *norm)
            expected.append([v + n**3 for v, n in zip(row, normed, strict=True)])
        else:
            expected.append(plain_layer_norm([v + v**3 for v in row], *norm))
    close(connection(x, lambda x: x**3)[0], torch.tensor(expected))


@NORM_FIRST
def test_dropout_falls_on_the_sublayer_before_the_addition(norm_first):
    connection = SublayerConnection(400, dropout=0.5, norm_first=norm_first)
    connection.norm = nn.Identity()
    x = torch.randn(1, 1, 400)
    added = connection(x, torch.ones_like) - x  # after the addition, x itself would be dropped too
    dropped = added.abs() < 1e-5
    assert 0.4 < dropped.float().mean() < 0.6
    close(added[~dropped], torch.full_like(added[~dropped], 2.0))  # 1 / (1 - p)
    close(connection.eval()(x, torch.ones_like), x + 1)


def test_post_norm_normalises_after_dropout():
    connection = SublayerConnection(64, dropout=0.5)
    output = connection(torch.randn(2, 3, 64), torch.ones_like)
    close(output.mean(-1), torch.zeros(2, 3))
    close(output.var(-1, correction=0), torch.ones(2, 3))


@pytest.mark.parametrize("make_layer, count", [(encoder_layer, 2), (decoder_layer, 3)])
def test_every_sublayer_has_its_own_norm_and_dropout(make_layer, count):
    layer = make_layer(dropout=0.25)
    assert len(layer.sublayer) == count
    assert [s.dropout.p for s in layer.sublayer] == [0.25] * count
    assert len({s.norm.weight.data_ptr() for s in layer.sublayer}) == count
