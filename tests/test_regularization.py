"""Section 5.4 against torch's cross-entropy and the definition in plain loops; dropout's places."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from annotated.machinery.blockwise_loss import linear_cross_entropy
from annotated.model import make_model
from annotated.regularization import Dropout, LabelSmoothing, _BlockwiseLoss, smoothed_cross_entropy


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


# ----------------------------------------------------------------------------- straight from logits


@given(problems())
def test_from_logits_it_is_the_same_loss_with_the_same_gradient(problem):
    logits, target, pad, epsilon = problem
    logits.requires_grad_()
    loss = smoothed_cross_entropy(logits, target, pad, epsilon)
    expected = LabelSmoothing(logits.size(1), pad, epsilon)(logits.log_softmax(-1), target)
    close(loss, expected)
    close(torch.autograd.grad(loss, logits)[0], torch.autograd.grad(expected, logits)[0])


def test_from_logits_of_a_batch_of_sentences():
    logits, target = torch.randn(2, 3, 7), torch.tensor([[1, 6, 0], [2, 0, 0]])
    expected = 0.0
    for sentence, ids in zip(logits.log_softmax(-1).tolist(), target.tolist(), strict=True):
        for log_p, right in zip(sentence, ids, strict=True):
            if right != 0:
                expected -= 0.8 * log_p[right] + 0.2 * sum(log_p) / 7
    found = smoothed_cross_entropy(logits, target, padding_idx=0, smoothing=0.2)
    assert found.item() == pytest.approx(expected, rel=1e-5)


def test_from_logits_of_padding_alone():
    logits = torch.randn(4, 5, requires_grad=True)
    loss = smoothed_cross_entropy(logits, torch.zeros(4, dtype=torch.long), 0, 0.1)
    loss.backward()
    assert loss == 0 and not logits.grad.any()


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


def test_no_second_tensor_as_large_as_the_vocabulary_is_built():
    logits, target = torch.randn(40, 300), torch.randint(1, 300, (40,))
    for loss in (
        lambda: LabelSmoothing(300, 0, 0.1)(logits.log_softmax(-1), target),
        lambda: smoothed_cross_entropy(logits, target, 0, 0.1),
    ):
        with Large(logits.numel()) as large:
            loss()
        assert len(large.names) == 1 and "log_softmax" in large.names[0]


# ---------------------------------------------------------------------------- a block at a time


def on_one_path(loss, x, weight):
    """Loss and gradients of something that is 3 times the loss, as a mean over tokens might be."""
    result = loss(x, weight)
    return result, *torch.autograd.grad(3 * result, [x, weight])


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("positions", [1, 40, 700])  # 700: three blocks
def test_by_blocks_it_is_the_same_loss_with_the_same_gradients(epsilon, positions):
    vocab = 8000 if positions == 700 else 30
    x, weight = torch.randn(2, positions, 4), torch.randn(vocab, 4)
    target = torch.randint(vocab, (2, positions))
    target[:, -1] = 5  # the padding
    found, expected = (
        on_one_path(loss, x.requires_grad_(), weight.requires_grad_())
        for loss in (
            lambda x, w: linear_cross_entropy(x, w, target, 5, epsilon),
            lambda x, w: smoothed_cross_entropy(x @ w.T, target, 5, epsilon),
        )
    )
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_by_blocks_nothing_as_large_as_the_logits_is_made():
    x, weight = torch.randn(1000, 4, requires_grad=True), torch.randn(8000, 4, requires_grad=True)
    target = torch.randint(1, 8000, (1000,))
    with Large(1000 * 8000) as large:
        linear_cross_entropy(x, weight, target, 0, 0.1).backward()
    assert not large.names
    with Large(262 * 8000) as large, torch.no_grad():
        linear_cross_entropy(x[:262], weight, target[:262], 0, 0.1)
    assert len(large.names) == 2  # logits and log-probabilities of one block, and no gradient


def test_by_blocks_padding_may_also_stay():
    """On a GPU it does: there its part is multiplied by zero."""
    x, weight = torch.randn(700, 4, requires_grad=True), torch.randn(8000, 4, requires_grad=True)
    target = torch.randint(8000, (700,))
    target[::3] = 5  # the padding
    found, expected = (
        on_one_path(loss, x, weight)
        for loss in (
            lambda x, w: _BlockwiseLoss.apply(x, w, target, 5, 0.1),
            lambda x, w: smoothed_cross_entropy(x @ w.T, target, 5, 0.1),
        )
    )
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
    assert not found[1][::3].any()


def test_by_blocks_of_padding_alone():
    x, weight = torch.randn(4, 3, requires_grad=True), torch.randn(5, 3, requires_grad=True)
    loss = linear_cross_entropy(x, weight, torch.zeros(4, dtype=torch.long), 0, 0.1)
    loss.backward()
    assert loss == 0 and not x.grad.any() and not weight.grad.any()


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


def test_by_blocks_a_gradient_of_the_gradient_is_refused():
    x, weight = torch.randn(4, 3, requires_grad=True), torch.randn(5, 3, requires_grad=True)
    loss = linear_cross_entropy(x, weight, torch.tensor([1, 2, 3, 4]), 0, 0.1)
    (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(RuntimeError, match="grad"):
        gradient.sum().backward()


# ------------------------------------------------------------------------- definitions of others


def built(size: int, right: int, rest: float, others: list[int], epsilon: float) -> torch.Tensor:
    """A target distribution, entry by entry."""
    q = torch.zeros(size)
    for k in others:
        q[k] = rest
    q[right] = 1 - epsilon if right not in others else 1 - epsilon + rest
    assert q.sum().item() == pytest.approx(1)
    return q


def test_the_least_loss_is_the_entropy_of_the_target():
    size, epsilon, target = 30, 0.1, torch.tensor([4])
    q = built(size, 4, epsilon / size, list(range(size)), epsilon)
    loss = smoothed_cross_entropy(q.log().unsqueeze(0), target, -1, epsilon)
    assert loss.item() == pytest.approx(-(q * q.log()).sum().item(), rel=1e-5)
    for _ in range(20):
        other = (q.log() + 0.3 * torch.randn(size)).unsqueeze(0)
        assert smoothed_cross_entropy(other, target, -1, epsilon) > loss


def test_the_definitions_differ_little_in_their_gradients():
    """Torch's divergence against the targets of tensor2tensor and The Annotated Transformer."""
    size, pad, right, epsilon = 5000, 0, 7, 0.1
    logits = torch.randn(1, size, requires_grad=True)
    ours = smoothed_cross_entropy(logits, torch.tensor([right]), pad, epsilon)
    gradient = torch.autograd.grad(ours, logits)[0]
    others = [k for k in range(size) if k != right]
    for rest in others, [k for k in others if k != pad]:
        q = built(size, right, epsilon / len(rest), rest, epsilon)
        divergence = F.kl_div(logits.log_softmax(-1), q.unsqueeze(0), reduction="sum")
        theirs = torch.autograd.grad(divergence, logits)[0]
        assert 0 < (gradient - theirs).abs().max() < 1.1 * epsilon / size
        entropy = -sum(x * math.log(x) for x in q.tolist() if x)
        assert ours.item() - divergence.item() == pytest.approx(entropy, abs=1e-3)


# ---------------------------------------------------------------------------------------- dropout


def test_dropout_stands_at_sub_layers_and_embedding_sums_alone():
    model = make_model(9, 9, N=3, d_model=8, d_ff=16, h=2, dropout=0.25)
    active = {name for name, m in model.named_modules() if getattr(m, "p", 0) > 0}
    sublayers = {f"encoder.layers.{i}.sublayer.{j}.dropout" for i in range(3) for j in range(2)}
    sublayers |= {f"decoder.layers.{i}.sublayer.{j}.dropout" for i in range(3) for j in range(3)}
    assert active == sublayers | {"src_embed.1.dropout", "tgt_embed.1.dropout"}
    assert {model.get_submodule(name).p for name in active} == {0.25}


def test_dropout_falls_before_the_residual_sum_and_after_the_embedding_sum():
    model = make_model(9, 9, N=1, d_model=8, d_ff=16, h=2, dropout=0.5)
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    for name in "encoder.layers.0.sublayer.1.dropout", "src_embed.1.dropout":
        dropout = model.get_submodule(name)
        dropout.register_forward_hook(lambda _, x, y: seen.append((x[0], y)))
    sums: list[torch.Tensor] = []
    norm = model.get_submodule("encoder.layers.0.sublayer.1.norm")
    norm.register_forward_hook(lambda _, x, y: sums.append(x[0]))
    layer_in: list[torch.Tensor] = []
    feed_forward = model.get_submodule("encoder.layers.0.feed_forward")
    feed_forward.register_forward_hook(lambda _, x, y: layer_in.append(x[0]))
    ids = torch.tensor([[1, 2, 3]])
    model.train().encode(ids, None)
    (embedded, dropped), (_, noisy) = seen
    table = model.src_embed[1].pe[:, :3]
    close(embedded, model.src_embed[0](ids) + table)
    assert (dropped == 0).any() and (noisy == 0).any()
    close(sums[0], layer_in[0] + noisy)  # the residual path is whole


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("size", [400_001, (100, 4000)])
def test_dropout_drops_as_many_and_keeps_the_mean(p, size):
    torch.manual_seed(0)
    x = torch.ones(size, requires_grad=True)
    y = Dropout(p)(x)
    assert (y == 0).float().mean().item() == pytest.approx(p, abs=0.003)
    kept = y[y != 0]
    close(kept, torch.full_like(kept, 1 / (1 - p)).detach() * torch.ones_like(kept))
    assert y.mean().item() == pytest.approx(1, abs=0.01)
    y.sum().backward()
    close(x.grad, y.detach())  # the same components, the same factor
    # Neighbours share a draw of the generator: they must not share their fate.
    dropped = (y.detach().flatten()[:400_000] == 0).float().view(-1, 4)
    assert torch.corrcoef(dropped.T).sub(torch.eye(4)).abs().max() < 0.02


def test_dropout_obeys_the_seed_and_rests_in_eval_mode():
    dropout, x = Dropout(0.4), torch.randn(5, 7)
    torch.manual_seed(3)
    first = dropout(x)
    assert not torch.equal(dropout(x), first)
    torch.manual_seed(3)
    assert torch.equal(dropout(x), first)
    assert torch.equal(dropout.eval()(x), x) and torch.equal(Dropout(0.0)(x), x)
    assert not Dropout(1.0)(x).any()
    assert Dropout(0.5)(x.bfloat16()).dtype == torch.bfloat16
    assert Dropout(0.5)(x[:0]).shape == (0, 7)
