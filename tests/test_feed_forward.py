"""Section 3.3 against equation 2 in plain loops and against kernel-1 convolutions."""

import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from annotated.feed_forward import PositionwiseFeedForward

SIZES = st.integers(1, 6)


@given(SIZES, SIZES, SIZES)
def test_equation_2_one_number_at_a_time(length, d_model, d_ff):
    layer = PositionwiseFeedForward(d_model, d_ff)
    W1, b1 = layer.w_1.weight.T.tolist(), layer.w_1.bias.tolist()  # (d_model, d_ff)
    W2, b2 = layer.w_2.weight.T.tolist(), layer.w_2.bias.tolist()  # (d_ff, d_model)
    x = torch.randn(1, length, d_model)
    expected = []
    for row in x[0].tolist():
        inner = [
            max(0.0, sum(row[j] * W1[j][k] for j in range(d_model)) + b1[k]) for k in range(d_ff)
        ]
        outer = [sum(inner[k] * W2[k][j] for k in range(d_ff)) + b2[j] for j in range(d_model)]
        expected.append(outer)
    torch.testing.assert_close(layer(x)[0], torch.tensor(expected), atol=1e-5, rtol=1e-5)


def test_two_convolutions_with_kernels_of_size_1():
    layer, x = PositionwiseFeedForward(8, 32), torch.randn(2, 10, 8)
    hidden = F.conv1d(x.transpose(1, 2), layer.w_1.weight[..., None], layer.w_1.bias).relu()
    expected = F.conv1d(hidden, layer.w_2.weight[..., None], layer.w_2.bias).transpose(1, 2)
    torch.testing.assert_close(layer(x), expected)


@given(SIZES, SIZES)
def test_swish_in_place_of_the_relu(d_model, d_ff):
    """x times the logistic function of x; the gradient too, though it is computed in place."""
    layer = PositionwiseFeedForward(d_model, d_ff, activation="swish")
    x = torch.randn(2, 3, d_model, requires_grad=True)
    inner = layer.w_1(x)
    expected = layer.w_2(inner / (1 + (-inner).exp()))
    torch.testing.assert_close(layer(x), expected)
    gradients = (torch.autograd.grad(y.square().sum(), x) for y in (layer(x), expected))
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-4)


def test_dropout_falls_on_inner_units_in_training_only():
    layer = PositionwiseFeedForward(4, 4000, dropout=0.5)
    with torch.no_grad():
        layer.w_1.weight.zero_()
        layer.w_1.bias.fill_(1.0)
        layer.w_2.weight.fill_(1.0)
        layer.w_2.bias.zero_()
    x = torch.randn(1, 1, 4)
    survivors = layer(x) / 2  # each survivor is scaled to 1 / (1 - p) = 2
    assert len(survivors.unique()) == 1  # one drop for all outputs: it is the inner unit that goes
    assert 1800 < survivors[0, 0, 0] < 2200
    assert layer.eval()(x)[0, 0, 0] == 4000
