"""Section 5.2: one pass over the data, against gradient descent by hand."""

import copy
import math

import pytest
import torch
from small_runs import equal
from torch import nn

from annotated.compat import SimpleLossCompute, TrainState, run_epoch
from annotated.data import Batch
from annotated.machinery.errors import InputError
from annotated.machinery.runs.trainer import ModelLoss
from annotated.model import EncoderDecoder, make_model
from annotated.regularization import LabelSmoothing, smoothed_cross_entropy


@pytest.mark.parametrize(
    "wrong", [{"mode": "training"}, {"accum_iter": 0}, {"accum_iter": 1.5}, {"optimizer": None}]
)
def test_run_epoch_refuses_before_the_weights_move(wrong: dict):
    model = tiny()
    before = copy.deepcopy(model)
    given = dict(zip(("loss_compute", "optimizer", "scheduler"), parts(model), strict=True))
    with pytest.raises(InputError, match=next(iter(wrong))):
        run_epoch([random_batch(2)], model, **given | wrong)
    assert equal(model, before)


V, PAD = 9, 0


def tiny(dropout: float = 0.0) -> EncoderDecoder:
    return make_model(V, V, N=1, d_model=16, d_ff=32, h=2, dropout=dropout)


def parts(model: nn.Module, smoothing: float = 0.0, rate: float = 0.5):
    loss = SimpleLossCompute(model.generator, LabelSmoothing(V, PAD, smoothing))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    return loss, optimizer, scheduler


def random_batch(size: int, length: int = 6) -> Batch:
    """Sequences without padding, so that every one has the same number of tokens."""
    return Batch(torch.randint(1, V, (size, length)), torch.randint(1, V, (size, length)), PAD)


def test_an_epoch_is_gradient_descent_on_the_mean_per_token():
    model = tiny()
    by_hand = copy.deepcopy(model)
    batches = [random_batch(4), random_batch(2, 5), random_batch(3)]
    loss, state = run_epoch(batches, model, *parts(model))
    total, count = 0.0, 0
    for batch in batches:
        log_probs = by_hand.generator(by_hand(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask))
        mean = nn.functional.nll_loss(log_probs.flatten(0, 1), batch.tgt_y.flatten())
        total, count = total + mean.item() * batch.tgt_y.numel(), count + batch.tgt_y.numel()
        by_hand.zero_grad()
        mean.backward()
        with torch.no_grad():
            for p in by_hand.parameters():
                if p.grad is not None:
                    p -= 0.5 * p.grad
    assert loss == pytest.approx(total / count, rel=1e-5)
    assert state == TrainState(step=3, accum_step=3, samples=9, tokens=count)
    for a, b in zip(model.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


def test_a_smaller_last_group_counts_its_own_batches():
    """Batches with the gradient 1, and SGD: each update moves by the mean, which is 1."""
    weight = nn.Parameter(torch.zeros(()))
    model = nn.Module()
    model.weight, model.forward = weight, lambda *_: weight
    optimizer, seen = torch.optim.SGD([weight], lr=1.0), [0.0]
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    optimizer.register_step_post_hook(lambda *_: seen.append(weight.item()))
    loss = lambda out, tgt_y, ntokens: (out.detach() + 1.0, out)
    state = TrainState()
    for _ in range(2):  # the second epoch begins a group of its own
        batches = [random_batch(2)] * 5
        run_epoch(batches, model, loss, optimizer, scheduler, accum_iter=4, train_state=state)
    assert seen == [0.0, -1.0, -2.0, -3.0, -4.0]
    assert (state.step, state.accum_step, scheduler.last_epoch) == (10, 4, 4)


def test_measuring_changes_nothing():
    model = tiny(dropout=0.5).eval()
    before = copy.deepcopy(model)
    batches = [random_batch(3), random_batch(2)]
    loss, optimizer, scheduler = parts(model)
    first = run_epoch(batches, model, loss, optimizer, scheduler, mode="eval")
    second = run_epoch(batches, model, loss, mode="eval")
    assert first == second and first[1] == TrainState(step=2, samples=5, tokens=25)
    assert equal(model, before) and all(p.grad is None for p in model.parameters())
    assert scheduler.last_epoch == 0 and not optimizer.state
    run_epoch(batches, model, *parts(model), accum_iter=2)
    assert all(p.grad is None for p in model.parameters())  # no gradient leaks into the next epoch


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_run_epoch_stops_before_the_weights_move_if_the_loss_is_not_finite(mode: str):
    model = tiny()
    with torch.no_grad():
        model.generator.proj.weight[3, 0] = math.nan
    before = copy.deepcopy(model.encoder)
    with pytest.raises(ValueError, match=r"nan.*batch 1"):
        run_epoch([random_batch(2)], model, *parts(model), mode=mode)
    assert equal(model.encoder, before)


@pytest.mark.parametrize("bias", [False, True])
def test_the_loss_in_blocks_is_that_of_the_generator(bias: bool):
    """Value and every gradient, also of a bias before the softmax."""
    model = make_model(V, V, N=1, d_model=16, d_ff=32, h=2, dropout=0.0, bias=bias)
    for name, p in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(p)
    src, tgt = torch.randint(4, V, (3, 5)), torch.randint(3, V, (3, 6))
    batch = Batch(src, tgt)  # 2 is padding there, and occurs in neither
    logits = model.generator.proj(model(src, batch.tgt, batch.src_mask, batch.tgt_mask))
    losses = (smoothed_cross_entropy(logits, batch.tgt_y, 2, 0.1), ModelLoss(model, 0.1)(src, tgt))
    torch.testing.assert_close(*losses)
    gradients = (torch.autograd.grad(loss, list(model.parameters())) for loss in losses)
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-4)
