"""The recurrent cell, against its equation one number at a time."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from annotated.machinery.recurrence import SSRU


@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 99))
def test_the_cell_is_its_equation(length: int, size: int, seed: int):
    torch.manual_seed(seed)
    cell, x = SSRU(size), torch.randn(2, length, size)
    found = cell(x)
    for row in range(2):
        c = [0.0] * size
        for t in range(length):
            new = (x[row, t] @ cell.w.weight.T).tolist()
            gate = (x[row, t] @ cell.w_f.weight.T + cell.w_f.bias).tolist()
            f = [1 / (1 + math.exp(-g)) for g in gate]
            c = [f[i] * c[i] + (1 - f[i]) * new[i] for i in range(size)]
            assert found[row, t].tolist() == pytest.approx([max(0, v) for v in c], abs=1e-5)
