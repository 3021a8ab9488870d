"""Section 3.1 against nn.Transformer with the same weights."""

import pytest
import torch
from torch import Tensor, nn

from annotated.attention import subsequent_mask
from annotated.model import make_model
from annotated.stacks import SublayerConnection, clones

NORM_FIRST = pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


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


def padding_mask(real: list[int], length: int) -> Tensor:
    """(batch, 1, length), True for the first tokens of each sentence, as many as are real."""
    return (torch.arange(length) < torch.tensor(real).unsqueeze(1)).unsqueeze(1)


@NORM_FIRST
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # torch's word on its own fast path
def test_the_whole_model_equals_torch_in_value_and_gradient(norm_first):
    shape = {"d_model": 16, "h": 4, "d_ff": 24}
    ours = make_model(11, 13, N=3, **shape, dropout=0.0, norm_first=norm_first)
    with torch.no_grad():
        for p in ours.parameters():  # so that no bias is 0 and no normalization has gain 1
            p.copy_(torch.randn_like(p) * (0.3 if p.dim() > 1 else 0.5))
    options = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first}
    theirs = nn.Transformer(16, 4, 3, 3, 24, **options)
    for mine, other in (ours.encoder, theirs.encoder), (ours.decoder, theirs.decoder):
        for a, b in zip(mine.layers, other.layers, strict=True):
            copy_layer(a, b)
        if norm_first:
            other.norm.load_state_dict(mine.norm.state_dict())
        else:
            other.norm = None  # torch normalizes once more at the end; the paper does not
    src, tgt, causal = torch.randint(11, (3, 6)), torch.randint(13, (3, 5)), subsequent_mask(5)
    src_mask, tgt_padding = padding_mask([6, 2, 4], 6), padding_mask([1, 5, 3], 5)
    output = ours(src, tgt, src_mask, tgt_padding & causal)
    masks = {"tgt_mask": ~causal[0], "tgt_key_padding_mask": ~tgt_padding.squeeze(1)}
    for name in "src_key_padding_mask", "memory_key_padding_mask":
        masks[name] = ~src_mask.squeeze(1)
    expected = theirs(ours.src_embed(src), ours.tgt_embed(tgt), **masks)
    close(output, expected)
    tables = ours.src_embed[0].lut.weight, ours.tgt_embed[0].lut.weight
    weighting = torch.randn_like(output)
    gradients = (torch.autograd.grad((y * weighting).sum(), tables) for y in (output, expected))
    torch.testing.assert_close(*gradients, atol=1e-4, rtol=1e-4)


def test_clones_are_equal_and_share_nothing():
    original = nn.Linear(3, 4)
    for parameters in zip(*(m.parameters() for m in [original, *clones(original, 3)]), strict=True):
        assert len({p.data_ptr() for p in parameters}) == 4
        assert all(torch.equal(p, parameters[0]) for p in parameters)


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
