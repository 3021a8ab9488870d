"""The layers of Table 1 against torch's own and their definitions, and what is measured of them."""

import re
from pathlib import Path
from typing import Any

import jupytext
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from annotated.attention import MultiHeadedAttention, scaled_dot_product

CHAPTER = Path(__file__).parents[1] / "chapters" / "4-why-self-attention.md"


def defined(*names: str) -> list[Any]:
    """What the chapter defines by these names, from the cells that define one of them."""
    found: dict[str, Any] = {"torch": torch, "nn": nn, "F": F, "Tensor": Tensor}
    found |= {"scaled_dot_product": scaled_dot_product, "FlopCounterMode": FlopCounterMode}
    found |= {"SDPBackend": SDPBackend, "sdpa_kernel": sdpa_kernel}
    for cell in jupytext.read(CHAPTER).cells:
        if re.search(rf"^(class|def) ({'|'.join(names)})\b", cell.source, re.MULTILINE):
            exec(cell.source, found)
    return [found[name] for name in names]


LAYERS = defined("BareSelfAttention", "Recurrent", "Convolution", "RestrictedSelfAttention")
BareSelfAttention, Recurrent, Convolution, RestrictedSelfAttention = LAYERS
flops, layers_to_link = defined("flops", "layers_to_link")


def test_self_attention_and_the_recurrent_layer_are_torchs():
    x = torch.randn(2, 7, 4)
    torch.testing.assert_close(BareSelfAttention()(x), F.scaled_dot_product_attention(x, x, x))
    ours, theirs = Recurrent(5), nn.RNN(5, 5, batch_first=True)
    theirs.weight_ih_l0.data, theirs.bias_ih_l0.data = ours.input.weight.data, ours.input.bias.data
    theirs.weight_hh_l0.data = ours.state.weight.data
    theirs.bias_hh_l0.data.zero_()
    x = torch.randn(3, 6, 5)
    torch.testing.assert_close(ours(x), theirs(x)[0])


@given(k=st.sampled_from([1, 3, 5]), dilation=st.integers(1, 4), causal=st.booleans())
@settings(max_examples=20, deadline=None)
def test_a_convolution_is_a_sum_over_its_neighbors(k, dilation, causal):
    d, n = 3, 9
    layer, x = Convolution(d, k, dilation, causal=causal), torch.randn(1, n, d)
    expected = layer.mix.bias.expand(n, d).clone()
    for t in range(n):
        for i in range(k):
            place = t + (i - (k - 1 if causal else k // 2)) * dilation
            if 0 <= place < n:
                expected[t] += layer.mix.weight[..., i] @ x[0, place]
    torch.testing.assert_close(layer(x)[0], expected)


def test_a_separable_convolution_is_one_whose_kernel_is_a_product():
    d, k = 4, 3
    separable, whole = Convolution(d, k, separable=True), Convolution(d, k)
    depth, point = separable.mix.weight[:, 0], separable.pointwise.weight  # (d, k), (d, d)
    whole.mix.weight.data = point[:, :, None] * depth[None]
    whole.mix.bias.data = point @ separable.mix.bias + separable.pointwise.bias
    x = torch.randn(2, 8, d)
    torch.testing.assert_close(separable(x), whole(x))


@given(n=st.integers(1, 12), side=st.integers(0, 12))
@settings(max_examples=40, deadline=None)
def test_restricted_attention_is_attention_under_a_band(n, side):
    x = torch.randn(2, n, 4)
    scores = x @ x.transpose(1, 2) / 2
    far = (torch.arange(n)[:, None] - torch.arange(n)).abs() > side
    expected = scores.masked_fill(far, -torch.inf).softmax(dim=-1) @ x
    torch.testing.assert_close(RestrictedSelfAttention(2 * side + 1)(x), expected)


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (BareSelfAttention(), lambda n, d: 4 * n * n * d),
        (Recurrent(8), lambda n, d: 4 * n * d * d),
        (Convolution(8, 5), lambda n, d: 2 * 5 * n * d * d),
        (Convolution(8, 5, separable=True), lambda n, d: 2 * (5 * n * d + n * d * d)),
        (RestrictedSelfAttention(7), lambda n, d: 4 * 7 * n * d),
        (nn.Linear(8, 3), lambda n, d: 2 * n * d * 3),
    ],
)
def test_operations_are_counted(layer, expected):
    for n in (1, 10, 33):
        assert flops(layer, n, 8) == expected(n, 8)


def test_fused_attention_is_counted_too():
    heads = MultiHeadedAttention(2, 8).eval()
    layer = torch.nn.Module()
    layer.forward = lambda x: heads(x, x, x)
    assert flops(layer, 10, 8) == 2 * (4 * 10 * 64 + 2 * 100 * 8)


def test_distant_positions_are_linked_after_as_many_layers_as_theory_says():
    assert layers_to_link(lambda i: BareSelfAttention(), 50) == 1
    assert layers_to_link(lambda i: RestrictedSelfAttention(9), 50) == 13  # 49 positions, 4 a layer
    assert layers_to_link(lambda i: Convolution(2, 3), 50) == 49
    assert layers_to_link(lambda i: Convolution(2, 3, 3**i, causal=True), 81) == 4
    assert layers_to_link(lambda i: Convolution(2, 3, 3**i, causal=True), 82) == 5
    assert layers_to_link(lambda i: Recurrent(2), 50) == 1  # but of many steps
    with pytest.raises(ValueError, match="5"):
        layers_to_link(lambda i: Convolution(2, 1), 5)
