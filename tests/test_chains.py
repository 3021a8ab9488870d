"""The longest chain of operations, on graphs whose chains are known."""

import pytest
import torch

from book.chains import longest_chain


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(3, requires_grad=True)


def test_only_operations_that_compute_are_counted(x: torch.Tensor):
    assert longest_chain(x.tanh()) == longest_chain(x.tanh().view(3, 1).T.squeeze()) == 1


def test_the_longest_of_several_paths_counts(x: torch.Tensor):
    assert longest_chain(x.tanh().tanh().tanh() + x.tanh()) == 4
    assert longest_chain(torch.stack([x.tanh(), x * 2, x / 3])) == 1


def test_a_graph_may_be_deeper_than_python_can_recurse(x: torch.Tensor):
    y = x
    for _ in range(5000):
        y = y + 1
    assert longest_chain(y) == 5000
