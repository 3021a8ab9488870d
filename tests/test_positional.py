"""Section 3.5 against Python's sin and cos."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from annotated.machinery.errors import InputError
from annotated.model import make_model
from annotated.positional import LearnedPositionalEncoding, PositionalEncoding, sinusoids


@given(st.integers(1, 40), st.integers(1, 33))
def test_formula_one_entry_at_a_time(length, d_model):
    table = sinusoids(length, d_model)
    assert table.shape == (length, d_model)
    for pos in range(length):
        for column in range(d_model):
            two_i = column - column % 2
            angle = pos / 10000 ** (two_i / d_model)
            expected = math.cos(angle) if column % 2 else math.sin(angle)
            assert table[pos, column].item() == pytest.approx(expected, abs=1e-6)


def test_far_positions_are_as_exact_as_near_ones():
    table = sinusoids(5000, 512)
    for pos in 4321, 4999:  # in single precision the angle alone would be off by some 1e-4
        for i in 0, 1, 100, 255:
            angle = pos / 10000 ** (2 * i / 512)
            assert table[pos, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-7)
            assert table[pos, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-7)


def test_with_an_endpoint_the_last_wavelength_is_10000_times_the_first():
    model = make_model(9, 9, N=1, d_model=16, d_ff=8, h=2, dropout=0.0, positions="endpoint")
    encoding = model.src_embed[1].eval()
    table = encoding(torch.zeros(1, 50, 16))[0]
    for pos in range(50):
        for i in range(8):
            angle = pos / 10000 ** (i / 7)
            assert table[pos, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[pos, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_the_table_is_added_and_extended_for_longer_inputs():
    layer = PositionalEncoding(6, dropout=0.0, max_len=4)
    for length in 3, 4, 5, 50, 2:
        x = torch.randn(2, length, 6)
        assert torch.equal(layer(x), x + sinusoids(length, 6))


@pytest.mark.parametrize("start", ["cpu", "meta"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("emptied", [True, False])
def test_the_table_is_right_wherever_the_layer_was(start: str, dtype: torch.dtype, emptied: bool):
    """No file has it, so it survives `to_empty`, torch's meta device and 16 bits."""
    torch.set_default_dtype(dtype)
    try:
        with torch.device(start):
            layer = PositionalEncoding(6, dropout=0.0, max_len=40)
    finally:
        torch.set_default_dtype(torch.float32)
    if start == "cpu":
        layer = layer.bfloat16().float()
    if emptied:
        layer = layer.to_empty(device="cpu")
    for length in 9, 50:
        assert torch.equal(layer(torch.zeros(1, length, 6))[0], sinusoids(length, 6))
    assert layer(torch.zeros(1, 9, 6, dtype=dtype)).dtype == dtype


def test_an_input_of_another_width_or_type_does_not_change_the_table():
    layer = PositionalEncoding(8, dropout=0.0, max_len=4)
    wrong = torch.zeros(1, 9, 16), torch.zeros(1, 9, 1), torch.zeros(8, 8)
    for x in *wrong, torch.ones(1, 9, 8).int():
        with pytest.raises(InputError, match=r"expected x \(batch, len, 8\)"):
            layer(x)
    layer(torch.zeros(1, 12, 8, dtype=torch.bfloat16))
    assert torch.equal(layer(torch.zeros(1, 12, 8))[0], sinusoids(12, 8))


@pytest.mark.parametrize("encoding", [PositionalEncoding, LearnedPositionalEncoding])
def test_dropout_falls_on_the_sum_in_training_only(encoding):
    layer = encoding(64, 0.5, 40)
    x = torch.randn(1, 40, 64)
    total = encoding.forward(layer.eval(), x)
    dropped = layer.train()(x)
    zero = dropped == 0
    assert 0.4 < zero.float().mean() < 0.6
    torch.testing.assert_close(dropped[~zero], 2 * total[~zero])


def test_learned_vectors_are_added_and_trained():
    layer = LearnedPositionalEncoding(6, dropout=0.0, max_len=5)
    assert isinstance(layer.pe, nn.Parameter) and layer.pe.numel() == 5 * 6
    x = torch.randn(2, 3, 6)
    output = layer(x)
    assert torch.equal(output, x + layer.pe[0, :3])
    output.sum().backward()
    assert layer.pe.grad[0, :, 0].tolist() == [2, 2, 2, 0, 0]
