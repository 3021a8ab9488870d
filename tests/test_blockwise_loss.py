"""The blockwise loss against the loss from all logits, in value, gradients and memory."""

import re
import shutil

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from annotated.machinery.blockwise_loss import _BlockwiseLoss, linear_cross_entropy
from annotated.regularization import smoothed_cross_entropy


class Large(TorchDispatchMode):
    """Names of the operations that make a new tensor as large as the logits."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size, self.names, self.storages = size, [], set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.numel() >= self.size:
            place = result.untyped_storage().data_ptr()
            if place not in self.storages:
                self.names.append(str(func))
            self.storages.add(place)
        return result


def on_one_path(loss, x, weight):
    """Loss and gradients of something that is 3 times the loss, as a mean over tokens might be."""
    result = loss(x, weight)
    return result, *torch.autograd.grad(3 * result, [x, weight])


def with_padding(x, weight, target, *more):
    """As on a GPU, where padding stays and its part is multiplied by zero."""
    return _BlockwiseLoss.apply(x.flatten(0, 1), weight, target.flatten(), *more)


@pytest.mark.parametrize("by_blocks", [linear_cross_entropy, with_padding])
@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("positions", [1, 40, 700])  # 1: padding alone; 700: three blocks
def test_by_blocks_it_is_the_same_loss_with_the_same_gradients(by_blocks, epsilon, positions):
    vocab = 8000 if positions == 700 else 30
    x, weight = torch.randn(2, positions, 4), torch.randn(vocab, 4)
    target = torch.randint(vocab, (2, positions))
    target[:, 2::3] = target[:, -1] = 5  # the padding
    found, expected = (
        on_one_path(loss, x.requires_grad_(), weight.requires_grad_())
        for loss in (
            lambda x, w: by_blocks(x, w, target, 5, epsilon),
            lambda x, w: smoothed_cross_entropy(x @ w.T, target, 5, epsilon),
        )
    )
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
    assert not found[1][:, -1].any()


def test_by_blocks_nothing_as_large_as_the_logits_is_made():
    x, weight = torch.randn(1000, 4, requires_grad=True), torch.randn(8000, 4, requires_grad=True)
    target = torch.randint(1, 8000, (1000,))
    with Large(1000 * 8000) as large:
        linear_cross_entropy(x, weight, target, 0, 0.1).backward()
    assert not large.names
    with Large(262 * 8000) as large, torch.no_grad():
        linear_cross_entropy(x[:262], weight, target[:262], 0, 0.1)
    assert len(large.names) == 2  # logits and log-probabilities of one block, and no gradient


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_by_blocks_in_mixed_precision(dtype):
    x, weight = torch.randn(50, 16, requires_grad=True), torch.randn(90, 16, requires_grad=True)
    target = torch.randint(1, 90, (50,))

    def loss(x, w):
        with torch.autocast("cpu", dtype):
            return linear_cross_entropy(x, w, target, 0, 0.1)

    found = on_one_path(loss, x, weight)
    expected = on_one_path(lambda x, w: smoothed_cross_entropy(x @ w.T, target, 0, 0.1), x, weight)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == torch.float32
        assert (a - b).norm() < 0.02 * b.norm()


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gcc"), reason="torch compiles for a CPU with gcc")
def test_compiled_it_is_the_same_without_logits_in_float32():
    from torch._inductor.utils import run_and_get_code

    torch._dynamo.reset()
    given = torch.randn(50, 16), torch.randn(900, 16), torch.randint(900, (50,)), 5, 0.1
    for each in given[:2]:
        each.requires_grad_()

    def loss(function):
        with torch.autocast("cpu", torch.bfloat16):
            found = function(*given)
        return found.detach(), *torch.autograd.grad(found, given[:2])

    expected = loss(linear_cross_entropy)
    found, code = run_and_get_code(loss, torch.compile(linear_cross_entropy))
    for a, b in zip(found, expected, strict=True):
        assert (a - b).norm() < 0.02 * b.norm()
    made = re.findall(r"empty_strided_cpu\(\((.*?)\), .*?(bfloat16|float32)\)", "".join(code))
    assert {kind for size, kind in made if "900" in size and "50" in size} == {"bfloat16"}


def test_by_blocks_a_gradient_of_the_gradient_is_refused():
    x, weight = torch.randn(4, 3, requires_grad=True), torch.randn(5, 3, requires_grad=True)
    loss = linear_cross_entropy(x, weight, torch.tensor([1, 2, 3, 4]), 0, 0.1)
    (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(RuntimeError, match="grad"):
        gradient.sum().backward()
