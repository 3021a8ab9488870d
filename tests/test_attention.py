"""Section 3.2 against torch's attention, plain loops, and the paper's formula head by head."""

import copy
import math
import pickle
import weakref

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from annotated.attention import (
    KeyValueCache,
    MultiHeadedAttention,
    fused_attention,
    masked_softmax,
    project_heads,
    scaled_dot_product,
    subsequent_mask,
)
from annotated.model import make_model


def explicit(query, key, value, mask=None):
    return scaled_dot_product(query, key, value, mask)[0]


PATHS = pytest.mark.parametrize("attend", [explicit, fused_attention], ids=["explicit", "fused"])


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)


def loops(query: list, key: list, value: list, mask: list) -> list:
    """Equation 1 for one sentence in Python floats, one number at a time."""
    output = []
    for i in range(len(query)):
        exps = []
        for j in range(len(key)):
            score = sum(query[i][d] * key[j][d] for d in range(len(query[i])))
            exps.append(math.exp(score / math.sqrt(len(query[i]))) if mask[i][j] else 0.0)
        total = sum(exps) or 1.0  # nothing allowed: all weights are zero
        columns = range(len(value[0]))
        output.append(
            [sum(e / total * v[c] for e, v in zip(exps, value, strict=True)) for c in columns]
        )
    return output


@st.composite
def problems(draw, masked: bool = True):
    """Queries, keys, values of any small shape, and a mask in any shape that broadcasts."""
    batch, h, len_q, len_k, d_k, d_v = (draw(st.integers(1, 4)) for _ in range(6))
    torch.manual_seed(draw(st.integers(0, 10_000)))
    scale = draw(st.sampled_from([0.1, 1.0, 5.0]))
    query = scale * torch.randn(batch, h, len_q, d_k)
    key = scale * torch.randn(batch, h, len_k, d_k)
    value = torch.randn(batch, h, len_k, d_v)
    if not masked:
        return query, key, value
    shapes = [(batch, h, len_q, len_k), (batch, 1, 1, len_k), (1, 1, len_q, len_k), (len_q, len_k)]
    shape = draw(st.sampled_from([None, *shapes]))
    density = draw(st.sampled_from([0.2, 0.5, 0.9]))  # at 0.2 many rows see nothing
    mask = None if shape is None else torch.rand(shape) < density
    return query, key, value, mask


def test_subsequent_mask_allows_the_past_and_the_present():
    mask = subsequent_mask(5)
    assert mask.shape == (1, 5, 5)
    assert mask.dtype == torch.bool
    for i in range(5):
        for j in range(5):
            assert mask[0, i, j].item() == (j <= i)


@given(problems())
def test_both_paths_follow_the_definition(problem):
    query, key, value, mask = problem
    full = torch.ones(*query.shape[:-1], key.size(-2), dtype=torch.bool)
    full = full if mask is None else full & mask
    expected = torch.tensor(
        [
            [
                loops(query[b, i].tolist(), key[b, i].tolist(), value[b, i].tolist(), m.tolist())
                for i, m in enumerate(heads)
            ]
            for b, heads in enumerate(full)
        ]
    )
    close(explicit(query, key, value, mask), expected)
    close(fused_attention(query, key, value, mask), expected)
    with torch.no_grad():  # in a search, few queries take another way
        close(fused_attention(query, key, value, mask), expected)


@given(problems())
def test_weights_are_distributions_over_what_is_allowed(problem):
    query, key, value, mask = problem
    output, weights = scaled_dot_product(query, key, value, mask)
    allowed = torch.ones_like(weights, dtype=torch.bool)
    allowed = allowed if mask is None else allowed & mask
    close(weights.sum(-1), allowed.any(-1).float())
    assert (weights >= 0).all()
    assert (weights[~allowed] == 0).all()
    close(output, weights @ value)


@PATHS
@given(problems(masked=False), st.data())
def test_paths_agree_with_torch(attend, problem, data):
    query, key, value = problem
    close(attend(query, key, value), F.scaled_dot_product_attention(query, key, value))
    mask = torch.rand(query.size(0), 1, query.size(-2), key.size(-2)) < 0.5
    mask[..., data.draw(st.integers(0, key.size(-2) - 1))] = (
        True  # torch has no word for blind rows
    )
    close(attend(query, key, value, mask), F.scaled_dot_product_attention(query, key, value, mask))


@given(problems())
def test_both_paths_are_equal_in_value_and_gradient(problem):
    *inputs, mask = problem
    results = []
    for attend in explicit, fused_attention:
        leaves = [x.clone().requires_grad_() for x in inputs]
        output = attend(*leaves, mask)
        weighting = torch.arange(output.numel()).reshape(output.shape).cos()
        gradients = torch.autograd.grad((output * weighting).sum(), leaves)
        results.append((output, *gradients))
    for one, other in zip(*results, strict=True):
        close(one, other)


@PATHS
def test_gradient_is_the_numerical_gradient_also_where_rows_are_blind(attend):
    query, key, value = (torch.randn(2, 3, 4, dtype=torch.float64) for _ in range(3))
    mask = torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 1]]).bool()
    leaves = [x.requires_grad_() for x in (query, key, value)]
    assert torch.autograd.gradcheck(lambda q, k, v: attend(q, k, v, mask), leaves)


@PATHS
@pytest.mark.parametrize("shape", [(2, 1, 5), (2, 3, 5)])
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_blind_rows_give_zeros_and_no_nan(attend, shape):
    query, key, value = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6)
    leaves = [x.requires_grad_() for x in (query, key, value)]
    mask = torch.ones(shape, dtype=torch.bool)
    mask[0] = False
    output = attend(*leaves, mask)
    assert (output[0] == 0).all()
    assert (output[1] != 0).all()
    with torch.autograd.detect_anomaly(check_nan=True):
        output.square().sum().backward()
    for x in leaves:
        assert (x.grad[0] == 0).all()
        assert x.grad[1].isfinite().all() and x.grad[1].any()


def test_blind_rows_have_zero_weights():
    weights = masked_softmax(torch.randn(2, 3), torch.tensor([[False] * 3, [True, False, True]]))
    assert weights[0].tolist() == [0, 0, 0]
    close(weights[1].sum(), torch.tensor(1.0))


@PATHS
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float32], ids=str)
def test_zero_one_masks_mean_the_same_as_boolean_ones(attend, dtype):
    query, key, value = (torch.randn(2, 4, 3) for _ in range(3))
    mask = torch.rand(2, 4, 4) < 0.5
    assert torch.equal(attend(query, key, value, mask.to(dtype)), attend(query, key, value, mask))


@PATHS
def test_large_scores_do_not_overflow(attend):
    query = torch.full((1, 1, 4), 1e4)
    key = torch.stack([torch.full((4,), 1e4), torch.full((4,), -1e4)]).unsqueeze(0)
    value = torch.tensor([[[1.0], [2.0]]])
    close(attend(query, key, value), torch.ones(1, 1, 1))


def test_dropout_falls_on_the_weights():
    query, key, value = torch.randn(64, 8), torch.randn(64, 8), torch.eye(64)
    dense = scaled_dot_product(query, key, value)[1]
    output, weights = scaled_dot_product(query, key, value, dropout=nn.Dropout(0.5))
    dropped = weights == 0
    assert 0.4 < dropped.float().mean() < 0.6
    close(weights[~dropped], 2 * dense[~dropped])  # survivors are scaled by 1 / (1 - p)
    close(output, weights)  # values are the identity
    for mask in None, torch.ones(64, 64, dtype=torch.bool):
        fused = fused_attention(query, key, value, mask, dropout=0.5)
        assert 0.4 < (fused == 0).float().mean() < 0.6


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
    mask = {"none": None, "padding": torch.rand(3, 1, 7) < 0.6, "full": torch.rand(3, 5, 7) < 0.6}[
        kind
    ]
    forbidden = None
    if mask is not None:
        mask[..., 0] = True
        forbidden = ~mask.expand(3, 5, 7).repeat_interleave(h, dim=0)  # theirs: True forbids
    ours = MultiHeadedAttention(h, 16, bias=bias).eval()
    theirs = torch_twin(ours, 16)
    expected, weights = theirs(query, key, value, attn_mask=forbidden, average_attn_weights=False)
    close(ours(query, key, value, mask), expected)
    close(ours.attn, weights)


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


@pytest.mark.parametrize("h, d_model, d_k, d_v", [(8, 512, 16, 64), (3, 8, 5, 2), (1, 4, 9, 7)])
def test_d_k_and_d_v_are_free(h, d_model, d_k, d_v):
    attention = MultiHeadedAttention(h, d_model, d_k=d_k, d_v=d_v)
    assert attention(*[torch.randn(2, 3, d_model)] * 3).shape == (2, 3, d_model)
    count = sum(p.numel() for p in attention.parameters())
    assert count == 2 * d_model * h * d_k + 2 * d_model * h * d_v


def test_heads_cost_the_same_however_many():
    counts = {
        sum(p.numel() for p in MultiHeadedAttention(h, 16).parameters()) for h in (1, 2, 4, 16)
    }
    assert counts == {4 * 16 * 16}


def test_mask_may_be_zero_one_or_boolean_and_broadcasts_over_the_batch():
    attention = MultiHeadedAttention(2, 8)
    x = torch.randn(3, 4, 8)
    boolean = subsequent_mask(4)
    for mask in boolean.long(), boolean.float(), boolean.expand(3, 4, 4):
        assert torch.equal(attention(x, x, x, mask), attention(x, x, x, boolean))


def test_attn_is_computed_for_the_last_call_in_eval_mode():
    attention = MultiHeadedAttention(2, 8, d_k=3, d_v=5).eval()
    assert attention.attn is None
    for mask in None, torch.tensor([[[True, True, False, True]], [[False] * 4]]):
        query, memory = torch.randn(2, 3, 8), torch.randn(2, 4, 8)
        output = attention(query, memory, memory, mask)
        split = attention.split_heads
        heads, weights = scaled_dot_product(
            split(attention.w_q(query)),
            split(attention.w_k(memory)),
            split(attention.w_v(memory)),
            None if mask is None else mask.unsqueeze(1),
        )
        assert attention.attn.shape == (2, 2, 3, 4)
        assert not attention.attn.requires_grad
        close(attention.attn, weights)
        close(output, attention.w_o(heads.transpose(1, 2).reshape(2, 3, 10)))


def test_training_neither_leaves_nor_keeps_weights():
    attention = MultiHeadedAttention(2, 8)
    assert attention.train()(*[torch.randn(1, 3, 8)] * 3).requires_grad
    assert attention.attn is None
    attention.eval()(*[torch.randn(1, 3, 8)] * 3)
    assert attention.eval().attn.shape == (1, 2, 3, 3)  # asked to rest once more, it remembers
    assert attention.train() is attention and attention.training
    assert attention.attn is None


def test_training_frees_what_evaluation_held():
    """No tensor of a validation batch outlives the return to training, of all the layers."""
    model = make_model(7, 7, N=2, d_model=8, d_ff=8, h=2).eval()
    ids = torch.randint(7, (3, 5))
    model(ids, ids, None, None)
    layers = [m for m in model.modules() if isinstance(m, MultiHeadedAttention)]
    held = [weakref.ref(x) for layer in layers for x in layer._last[:2]]
    assert len(held) == 2 * 6 and all(ref() is not None for ref in held)
    model.train()
    assert not any(ref() is not None for ref in held)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_and_files_do_not_carry_the_last_call(copied):
    attention = MultiHeadedAttention(2, 8).eval()
    size = len(pickle.dumps(attention))
    x = torch.randn(4, 100, 8)
    expected = attention(x, x, x)
    assert len(pickle.dumps(attention)) == size
    other = copied(attention)
    assert other.attn is None and attention.attn is not None
    assert torch.equal(other(x, x, x), expected)


def test_attention_dropout_acts_in_training_only():
    attention = MultiHeadedAttention(2, 8, dropout=0.5)
    x = torch.randn(1, 6, 8)
    assert not torch.equal(attention(x, x, x), attention(x, x, x))
    attention.eval()
    plain = MultiHeadedAttention(2, 8)
    plain.load_state_dict(attention.state_dict())
    assert torch.equal(attention(x, x, x), plain(x, x, x))


@pytest.mark.parametrize("widths", [{}, {"d_k": 3}, {"d_v": 3}])
def test_d_model_must_be_divisible_by_h_unless_widths_are_given(widths):
    with pytest.raises(ValueError, match=r"expected .*divisible.*d_model=10, h=4"):
        MultiHeadedAttention(4, 10, **widths)
    assert MultiHeadedAttention(4, 10, d_k=3, d_v=2)(*[torch.randn(1, 2, 10)] * 3).shape == (
        1,
        2,
        10,
    )


@pytest.mark.parametrize("dropout", [-0.1, 1.1])
def test_dropout_must_be_a_probability(dropout):
    with pytest.raises(ValueError, match=str(dropout)):
        MultiHeadedAttention(2, 4, dropout=dropout)


@pytest.mark.parametrize("how", ["autocast", "weights"])
def test_sixteen_bits_go_in_and_come_out(how: str):
    torch.manual_seed(0)
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


@pytest.mark.parametrize(
    "shape", [(4,), (4, 4), (2, 1, 1, 4), (2, 1, 3), (2, 1, 1), (2, 3, 4), (3, 1, 4)]
)
def test_a_mask_of_another_shape_is_refused(shape):
    attention, x = MultiHeadedAttention(2, 8), torch.randn(2, 4, 8)
    wanted = r"expected a mask \(batch, 1 or len_q, len_k\), here \(2, 1 or 4, 4\); got \("
    with pytest.raises(ValueError, match=wanted):
        attention(x, x, x, torch.ones(shape, dtype=torch.bool))
    with pytest.raises(ValueError, match="0 where attention is forbidden; got negative"):
        attention(x, x, x, torch.zeros(1, 4, 4).masked_fill(torch.eye(4).bool(), -torch.inf))


@pytest.mark.parametrize(
    "wrong", [{"h": 0}, {"h": -2}, {"d_k": 0, "d_v": 2}, {"d_k": -3, "d_v": 2}]
)
def test_heads_have_a_width(wrong):
    with pytest.raises(ValueError, match="of at least 1; got"):
        MultiHeadedAttention(**{"h": 2, "d_model": 8} | wrong)


@pytest.mark.parametrize("sources", [1, 2, 3])
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("biases", ["", "qkv", "k"])
def test_maps_in_one_product_are_those_maps(sources, cached, biases):
    """Values and gradients, whatever the inputs share, and whichever maps have a bias."""
    attention = MultiHeadedAttention(2, 8, d_k=3, d_v=5)
    for name in biases:
        module = attention.get_submodule(f"w_{name}")
        module.bias = nn.Parameter(torch.randn(module.out_features))
    x, memory = torch.randn(2, 4, 8), torch.randn(2, 6, 8)
    inputs = [(x, x, x), (x, memory, memory), (x, memory, memory.clone())][sources - 1]
    maps = attention.w_q, attention.w_k, attention.w_v
    separate = [
        m(y).unflatten(-1, (2, -1)).transpose(1, 2) for m, y in zip(maps, inputs, strict=True)
    ]
    together = project_heads(attention, *inputs, KeyValueCache(grows=False) if cached else None)
    close(together, tuple(separate))
    weights = [p for m in maps for p in m.parameters()]
    gradients = (
        torch.autograd.grad(sum(part.square().sum() for part in parts), weights)
        for parts in (together, separate)
    )
    close(*gradients)


def test_a_map_that_is_watched_or_replaced_is_called():
    """Hooks see each call, and what stands in a map's place decides, in one product or not."""
    attention, x, seen = MultiHeadedAttention(2, 8).eval(), torch.randn(1, 3, 8), []
    handle = attention.w_k.register_forward_hook(lambda m, inputs, keys: seen.append(keys))
    attention(x, x, x)
    assert len(seen) == 1
    handle.remove()
    attention.w_v = nn.Sequential(attention.w_v, nn.ReLU())
    expected = attention.w_v(x).unflatten(-1, (2, -1)).transpose(1, 2)
    assert (expected >= 0).all()
    close(project_heads(attention, x, x, x)[2], expected)
    nn.utils.parametrizations.weight_norm(attention.w_q)
    with torch.no_grad():
        attention.w_q.parametrizations.weight.original0.mul_(2)
    expected = F.linear(x, attention.w_q.weight).unflatten(-1, (2, -1)).transpose(1, 2)
    close(project_heads(attention, x, x, x)[0], expected)


def test_a_search_after_a_change_of_weights_uses_the_new_ones():
    """What a cache keeps of the weights ends with it."""
    attention, x = MultiHeadedAttention(2, 8).eval(), torch.randn(1, 1, 8)
    before = attention(x, x, x, cache=KeyValueCache(grows=True))
    attention.load_state_dict({k: -v for k, v in attention.state_dict().items()})
    after = attention(x, x, x, cache=KeyValueCache(grows=True))
    close(after, attention(x, x, x))
    close(after, before)  # the signs of values and of the output's map cancel
    attention.double()
    attention(x.double(), x.double(), x.double(), cache=KeyValueCache(grows=True))


def test_a_cache_keeps_its_batch():
    cache = KeyValueCache(grows=True)
    cache.extend(torch.zeros(3, 2, 1, 4), torch.zeros(3, 2, 1, 4))
    with pytest.raises(
        ValueError, match=r"expected \(batch, h\) = \(3, 2\), as before; got \(1, 2\)"
    ):
        cache.extend(torch.zeros(1, 2, 1, 4), torch.zeros(1, 2, 1, 4))
