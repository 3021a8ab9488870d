"""The longest chain of operations, on graphs whose chains are known."""

import torch

from book.chains import longest_chain


def test_the_longest_path_of_operations_that_compute_is_counted():
    x = torch.randn(3, requires_grad=True)
    assert longest_chain(x.tanh()) == longest_chain(x.tanh().view(3, 1).T.squeeze()) == 1
    assert longest_chain(x.tanh().tanh().tanh() + x.tanh()) == 4
    assert longest_chain(torch.stack([x.tanh(), x * 2, x / 3])) == 1
    y = x
    for _ in range(5000):  # deeper than Python can recurse
        y = y + 1
    assert longest_chain(y) == 5000
