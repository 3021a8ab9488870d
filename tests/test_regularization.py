"""Section 5.4 against torch's cross-entropy; the places of dropout."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from annotated.data import Batch
from annotated.machinery.blockwise_loss import _BlockwiseLoss, linear_cross_entropy
from annotated.model import make_model
from annotated.regularization import Dropout, LabelSmoothing, smoothed_cross_entropy


def close(actual, expected) -> None:
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@st.composite
def problems(draw):
    """Logits, targets of which some are padding, the padding id, and ε."""
    size, positions = draw(st.integers(2, 12)), draw(st.integers(1, 8))
    pad = draw(st.integers(0, size - 1))
    ids = st.integers(0, size - 1)
    target = torch.tensor(draw(st.lists(ids, min_size=positions, max_size=positions)))
    epsilon = draw(st.sampled_from([0.0, 0.1, 0.4, 0.9]))
    return 3 * torch.randn(positions, size), target, pad, epsilon


@given(problems())
def test_equals_torchs_cross_entropy_in_value_and_gradient(problem):
    logits, target, pad, epsilon = problem
    logits.requires_grad_()
    options = {"ignore_index": pad, "label_smoothing": epsilon, "reduction": "sum"}
    expected = F.cross_entropy(logits, target, **options)
    (gradient,) = torch.autograd.grad(expected, logits)
    for loss in (
        LabelSmoothing(logits.size(1), pad, epsilon)(logits.log_softmax(-1), target),
        smoothed_cross_entropy(logits, target, pad, epsilon),
    ):
        close(loss, expected)
        close(torch.autograd.grad(loss, logits)[0], gradient)


@pytest.mark.parametrize("padding", [-100, -1, 5, 10**6])
def test_padding_may_have_an_id_outside_the_vocabulary(padding: int):
    x, weight, target = torch.randn(4, 3), torch.randn(5, 3), torch.tensor([3, padding, 1, 0])
    options = {"ignore_index": padding, "label_smoothing": 0.1, "reduction": "sum"}
    expected = F.cross_entropy(x @ weight.T, target, **options)
    close(LabelSmoothing(5, padding, 0.1)((x @ weight.T).log_softmax(-1), target), expected)
    close(linear_cross_entropy(x, weight, target, padding, 0.1), expected)
    close(_BlockwiseLoss.apply(x, weight, target, padding, 0.1), expected)  # as on a GPU


def test_gradients_of_each_sentence_by_vmap():
    """As one at a time, without dropout; with it, each sentence has its own."""
    model = make_model(9, 9, N=1, d_model=8, d_ff=8, h=2, dropout=0.5)
    weights = {name: p.detach() for name, p in model.named_parameters()}
    src, tgt = torch.randint(4, 9, (3, 6)), torch.randint(4, 9, (3, 4))

    def loss(weights: dict, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
        batch = Batch(src[None], tgt[None])
        sides = batch.src, batch.tgt, batch.src_mask, batch.tgt_mask
        return functional_call(model, weights, sides)[0, 0].square().sum()

    gradients = vmap(grad(loss), (None, 0, 0), randomness="different")
    with sdpa_kernel(SDPBackend.MATH):
        drawn = gradients(weights, src[:1].expand(3, -1), tgt[:1].expand(3, -1))
        model.eval()
        found = gradients(weights, src, tgt)
        for i in range(3):
            for name, alone in grad(loss)(weights, src[i], tgt[i]).items():
                close(found[name][i], alone)
    first, second, _ = drawn["src_embed.0.lut.weight"]
    assert not torch.equal(first, second)


@pytest.mark.parametrize("epsilon", [-0.1, 1.0, 2])
def test_smoothing_outside_its_range(epsilon):
    with pytest.raises(ValueError, match=rf"smoothing in \[0, 1\).*{epsilon}$"):
        LabelSmoothing(5, 0, epsilon)
    with pytest.raises(ValueError, match=r"expected 5 .* got 6"):
        LabelSmoothing(5, 0)(torch.randn(2, 6), torch.tensor([1, 2]))


def test_dropout_falls_before_the_residual_sum_and_after_the_embedding_sum():
    model = make_model(9, 9, N=1, d_model=8, d_ff=16, h=2, dropout=0.5)
    seen: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
    layer = "encoder.layers.0"
    last = f"{layer}.sublayer.1"
    for name in "src_embed.1.dropout", f"{layer}.feed_forward", f"{last}.dropout", f"{last}.norm":
        hook = lambda _, x, y, name=name: seen.update({name: (x[0], y)})
        model.get_submodule(name).register_forward_hook(hook)
    ids = torch.tensor([[1, 2, 3]])
    model.train().encode(ids, None)
    embedded, dropped = seen["src_embed.1.dropout"]
    close(embedded, model.src_embed[0](ids) + model.src_embed[1].pe[:, :3])
    noisy = seen[f"{last}.dropout"][1]
    assert (dropped == 0).any() and (noisy == 0).any()
    close(seen[f"{last}.norm"][0], seen[f"{layer}.feed_forward"][0] + noisy)  # the path is whole


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
    # Neighbors share a draw of the generator: they must not share their fate.
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
