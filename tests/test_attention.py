"""Section 3.2 against torch's attention, plain loops, and the paper's formula head by head."""

import math
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from annotated.attention import MultiHeadedAttention, scaled_dot_product, subsequent_mask
from annotated.machinery.errors import InputError
from annotated.machinery.recording import record_attention, switch_off


def explicit(query, key, value, mask=None):
    return scaled_dot_product(query, key, value, mask)[0]


PATHS = pytest.mark.parametrize(
    "attend", [explicit, F.scaled_dot_product_attention], ids=["explicit", "fused"]
)


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)


def weights_by_hand(query: list, key: list, mask: list) -> list:
    """The softmax of equation 1 for one head in Python floats, one number at a time."""
    rows = []
    for q, allowed in zip(query, mask, strict=True):
        scores = [sum(map(float.__mul__, q, k)) / math.sqrt(len(q)) for k in key]
        exps = [math.exp(x) if ok else 0.0 for x, ok in zip(scores, allowed, strict=True)]
        rows.append([e / (sum(exps) or 1.0) for e in exps])  # nothing allowed: all are zero
    return rows


@st.composite
def problems(draw):
    """Queries, keys, values of any small shape, and a mask in any shape that broadcasts."""
    batch, h, len_q, len_k, d_k, d_v = (draw(st.integers(1, 4)) for _ in range(6))
    torch.manual_seed(draw(st.integers(0, 10_000)))
    scale = draw(st.sampled_from([0.1, 1.0, 5.0]))
    query, key = (scale * torch.randn(batch, h, length, d_k) for length in (len_q, len_k))
    shapes = [(batch, h, len_q, len_k), (batch, 1, 1, len_k), (1, 1, len_q, len_k), (len_q, len_k)]
    shape = draw(st.sampled_from([None, *shapes]))
    density = draw(st.sampled_from([0.2, 0.5, 0.9]))  # at 0.2 many rows see nothing
    mask = None if shape is None else torch.rand(shape) < density
    return query, key, torch.randn(batch, h, len_k, d_v), mask


def test_subsequent_mask_allows_the_past_and_the_present():
    mask = subsequent_mask(5)
    assert mask.dtype == torch.bool
    assert mask.tolist() == [[[j <= i for j in range(5)] for i in range(5)]]


@given(problems())
def test_both_paths_follow_the_definition(problem):
    query, key, value, mask = problem
    full = torch.ones(*query.shape[:-1], key.size(-2), dtype=torch.bool)
    full = full if mask is None else full & mask
    heads = zip(*(x.flatten(0, 1).tolist() for x in (query, key, full)), strict=True)
    expected = torch.tensor([weights_by_hand(*head) for head in heads]).view_as(full)
    output, weights = scaled_dot_product(query, key, value, mask)
    assert (weights[~full] == 0).all()
    close(weights, expected)
    close(output, expected @ value)
    close(F.scaled_dot_product_attention(query, key, value, mask), expected @ value)


@PATHS
def test_gradient_is_the_numerical_gradient_also_where_rows_are_blind(attend):
    query, key, value = (torch.randn(2, 3, 4, dtype=torch.float64) for _ in range(3))
    mask = torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 1]]).bool()
    leaves = [x.requires_grad_() for x in (query, key, value)]
    assert torch.autograd.gradcheck(lambda q, k, v: attend(q, k, v, mask), leaves)


def test_dropout_falls_on_the_weights():
    query, key, value = torch.randn(64, 8), torch.randn(64, 8), torch.eye(64)
    dense = scaled_dot_product(query, key, value)[1]
    output, weights = scaled_dot_product(query, key, value, dropout=nn.Dropout(0.5))
    dropped = output == 0  # values are the identity, so the output is the weights that were used
    assert 0.4 < dropped.float().mean() < 0.6
    close(output[~dropped], 2 * dense[~dropped])  # survivors are scaled by 1 / (1 - p)
    assert torch.equal(weights, dense)  # those that are shown are not dropped


def torch_twin(ours: MultiHeadedAttention, d_model: int) -> nn.MultiheadAttention:
    bias, maps = ours.w_o.bias is not None, [ours.w_q, ours.w_k, ours.w_v]
    theirs = nn.MultiheadAttention(d_model, ours.h, bias=bias, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([m.weight for m in maps]))
        theirs.out_proj.weight.copy_(ours.w_o.weight)
        if bias:
            theirs.in_proj_bias.copy_(torch.cat([m.bias for m in maps]))
            theirs.out_proj.bias.copy_(ours.w_o.bias)
    return theirs


@pytest.mark.parametrize("h", [1, 2, 4, 8])
@pytest.mark.parametrize("kind", ["none", "padding", "full"])
@pytest.mark.parametrize("bias", [False, True])
def test_multi_head_equals_torch(h, kind, bias):
    query, key, value = torch.randn(3, 5, 16), torch.randn(3, 7, 16), torch.randn(3, 7, 16)
    mask = {"none": None, "padding": torch.rand(3, 1, 7) < 0.6, "full": torch.rand(3, 5, 7) < 0.6}
    mask = mask[kind]
    forbidden = None
    if mask is not None:
        mask[..., 0] = True
        forbidden = ~mask.expand(3, 5, 7).repeat_interleave(h, dim=0)  # theirs: True forbids
    ours = MultiHeadedAttention(h, 16, bias=bias).eval()
    theirs = torch_twin(ours, 16)
    expected, weights = theirs(query, key, value, attn_mask=forbidden, average_attn_weights=False)
    with record_attention(ours) as seen:
        close(ours(query, key, value, mask), expected)
    close(seen[""], weights)
    projected = ours.keys_values(key, value)
    close(ours.attend(query, *projected, mask), expected)


@pytest.mark.parametrize("off", [[], [0], [3, 1], range(4)])
def test_heads_that_are_off_have_no_columns_in_the_output_map(off):
    attention, x = MultiHeadedAttention(4, 16, d_v=3, bias=True), torch.randn(2, 5, 16)
    expected = attention(x, x, x)
    pruned = MultiHeadedAttention(4, 16, d_v=3, bias=True)
    pruned.load_state_dict(attention.state_dict())
    for head in off:
        pruned.w_o.weight.data[:, 3 * head : 3 * head + 3] = 0
    model = nn.ModuleDict({"only": attention})
    with switch_off(model, {"only": off}):
        close(attention(x, x, x), pruned(x, x, x))
        close(attention.attend(x, *attention.keys_values(x, x)), pruned(x, x, x))
    close(attention(x, x, x), expected)


@pytest.mark.parametrize("heads", [{"other": [0]}, {"only": [4]}, {"only": [-1]}, {"only": [True]}])
def test_what_is_no_head_cannot_be_switched_off(heads):
    model = nn.ModuleDict({"only": MultiHeadedAttention(4, 16)})
    with pytest.raises(InputError, match="expected"), switch_off(model, heads):
        pass


@pytest.mark.parametrize("h, d_k", [(0, None), (17, None), (-1, None), (4, -2), (4, 0.5)])
def test_heads_without_width_are_refused(h, d_k):
    with pytest.raises(InputError, match="expected"):
        MultiHeadedAttention(h, 16, d_k=d_k)


@pytest.mark.parametrize("d_k, d_v", [(None, None), (3, None), (None, 5), (3, 5), (16, 1)])
def test_multi_head_equals_the_formula_head_by_head(d_k, d_v):
    h, d_model = 4, 8
    attention = MultiHeadedAttention(h, d_model, d_k=d_k, d_v=d_v)
    d_k, d_v = d_k or 2, d_v or 2
    Q, K, V = torch.randn(5, d_model), torch.randn(6, d_model), torch.randn(6, d_model)
    W_Q, W_K, W_V = attention.w_q.weight.T, attention.w_k.weight.T, attention.w_v.weight.T
    heads = []
    for i in range(h):
        W_Qi, W_Ki = (W[:, i * d_k : (i + 1) * d_k] for W in (W_Q, W_K))  # (d_model, d_k)
        W_Vi = W_V[:, i * d_v : (i + 1) * d_v]  # (d_model, d_v)
        weights = torch.softmax((Q @ W_Qi) @ (K @ W_Ki).T / d_k**0.5, dim=-1)
        heads.append(weights @ (V @ W_Vi))
    expected = torch.cat(heads, dim=-1) @ attention.w_o.weight.T  # Concat(head_1, …, head_h) W^O
    close(attention(Q[None], K[None], V[None])[0], expected)


def test_mask_may_be_zero_one_or_boolean_and_broadcasts_over_the_batch():
    attention = MultiHeadedAttention(2, 8)
    x = torch.randn(3, 4, 8)
    boolean = subsequent_mask(4)
    for mask in boolean.long(), boolean.float(), boolean.expand(3, 4, 4):
        assert torch.equal(attention(x, x, x, mask), attention(x, x, x, boolean))


@pytest.mark.parametrize(
    ("forbidden", "dtype"),
    [*product([-math.inf, -1e9, 0.5, 0.0], [torch.float32, torch.bfloat16]), (-9999, torch.int32)],
)
def test_a_mask_that_is_to_be_added_is_refused(forbidden: float, dtype: torch.dtype):
    """In it 0 allows, so that zeros alone could mean either."""
    attention, x = MultiHeadedAttention(2, 8), torch.randn(1, 4, 8)
    mask = torch.zeros(1, 4, 4, dtype=dtype).masked_fill(~subsequent_mask(4), forbidden)
    for attend in attention, scaled_dot_product:
        with pytest.raises(InputError, match="expected mask with False or 0 where"):
            attend(x, x, x, mask)


@pytest.mark.parametrize("how", ["autocast", "weights"])
def test_sixteen_bits_go_in_and_come_out(how: str):
    layer, x = MultiHeadedAttention(4, 32).eval(), torch.randn(2, 7, 32)
    exact = layer(x, x, x)
    if how == "autocast":
        with torch.autocast("cpu", torch.bfloat16):
            rough = layer(x, x, x)
    else:
        x = x.bfloat16()
        rough = layer.bfloat16()(x, x, x)
    assert rough.dtype == torch.bfloat16
    torch.testing.assert_close(rough.float(), exact, rtol=0.05, atol=0.02)
