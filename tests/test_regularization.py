"""Section 5.4 (label smoothing) against torch's cross-entropy and the definition in plain loops."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from annotated.regularization import LabelSmoothing


def close(actual, expected) -> None:
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@st.composite
def problems(draw):
    """Logits, targets of which some are padding, the padding id, and ε."""
    size, positions = draw(st.integers(2, 12)), draw(st.integers(1, 8))
    pad = draw(st.integers(0, size - 1))
    ids = st.integers(0, size - 1)
    target = torch.tensor(draw(st.lists(ids, min_size=positions, max_size=positions)))
    return (
        3 * torch.randn(positions, size),
        target,
        pad,
        draw(st.sampled_from([0.0, 0.1, 0.4, 0.9])),
    )


@given(problems())
def test_equals_torchs_cross_entropy_in_value_and_gradient(problem):
    logits, target, pad, epsilon = problem
    logits.requires_grad_()
    loss = LabelSmoothing(logits.size(1), pad, epsilon)(logits.log_softmax(-1), target)
    expected = F.cross_entropy(
        logits, target, ignore_index=pad, label_smoothing=epsilon, reduction="sum"
    )
    close(loss, expected)
    close(torch.autograd.grad(loss, logits)[0], torch.autograd.grad(expected, logits)[0])


@given(problems())
def test_equals_the_definition_one_number_at_a_time(problem):
    logits, target, pad, epsilon = problem
    log_probs = logits.log_softmax(-1)
    size, expected = logits.size(1), 0.0
    for row, right in zip(log_probs.tolist(), target.tolist(), strict=True):
        if right != pad:
            for k, log_p in enumerate(row):
                q = (1 - epsilon) * (k == right) + epsilon / size
                expected -= q * log_p
    assert LabelSmoothing(size, pad, epsilon)(log_probs, target).item() == pytest.approx(
        expected, rel=1e-5, abs=1e-5
    )


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_padding_does_not_count(epsilon):
    criterion = LabelSmoothing(5, padding_idx=0, smoothing=epsilon)
    logits = torch.randn(4, 5, requires_grad=True)
    target = torch.tensor([3, 0, 1, 0])
    loss = criterion(logits.log_softmax(-1), target)
    close(loss, criterion(logits[[0, 2]].log_softmax(-1), target[[0, 2]]))
    loss.backward()
    assert not logits.grad[[1, 3]].any()
    assert logits.grad[[0, 2]].all()
    logits.grad = None
    nothing = criterion(logits.log_softmax(-1), torch.zeros(4, dtype=torch.long))
    nothing.backward()
    assert nothing == 0 and not logits.grad.any()


def test_without_smoothing_it_is_the_log_probability_of_the_right_token():
    log_probs = torch.tensor([[0.5, 0.25, 0.25], [0.125, 0.125, 0.75]]).log()
    loss = LabelSmoothing(3, padding_idx=0)(log_probs, torch.tensor([1, 2]))
    assert loss.item() == pytest.approx(math.log(4) + math.log(4 / 3))


def test_smoothing_is_least_at_the_smoothed_target_and_punishes_certainty():
    criterion = LabelSmoothing(5, padding_idx=0, smoothing=0.1)
    target = torch.tensor([2])
    best = torch.tensor([[0.02, 0.02, 0.92, 0.02, 0.02]]).log().requires_grad_()
    loss = criterion(best.log_softmax(-1), target)
    (gradient,) = torch.autograd.grad(loss, best)
    close(gradient, torch.zeros(1, 5))
    for right in 0.9, 0.95, 0.999, 1 - 1e-6:
        p = torch.full((1, 5), (1 - right) / 4)
        p[0, 2] = right
        assert criterion(p.log(), target) > loss


@pytest.mark.parametrize("epsilon", [-0.1, 1.0, 2])
def test_smoothing_outside_its_range(epsilon):
    with pytest.raises(ValueError, match=rf"expected smoothing in \[0, 1\); got {epsilon}$"):
        LabelSmoothing(5, 0, epsilon)


def test_wrong_number_of_log_probabilities():
    with pytest.raises(ValueError, match=r"expected 5 .* got 6"):
        LabelSmoothing(5, 0)(torch.randn(2, 6), torch.tensor([1, 2]))
