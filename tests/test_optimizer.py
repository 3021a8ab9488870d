"""Section 5.3 against equation 3 evaluated exactly, and Adam's update rule written out."""

from decimal import Decimal, getcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from annotated.machinery.errors import InputError
from annotated.model import make_model
from annotated.optimizer import paper_optimizer, rate

getcontext().prec = 40


def equation_3(step: int, d_model: int, warmup: int) -> Decimal:
    step, d_model, warmup = Decimal(step), Decimal(d_model), Decimal(warmup)
    return 1 / d_model.sqrt() * min(1 / step.sqrt(), step / (warmup * warmup.sqrt()))


@given(st.integers(1, 10**6), st.integers(1, 2048), st.integers(1, 10**5), st.floats(0.1, 10))
def test_rate_is_equation_3(step, d_model, warmup, factor):
    expected = Decimal(factor) * equation_3(step, d_model, warmup)
    assert rate(step, d_model, factor, warmup) == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize(
    "step, d_model, warmup, expected",
    [
        (1, 4, 4, 1 / 16),  # 1/2 · min(1, 1/8)
        (4, 4, 4, 1 / 4),  # 1/2 · min(1/2, 4/8): the peak
        (16, 4, 4, 1 / 8),  # 1/2 · min(1/4, 16/8)
        (100, 16, 25, 1 / 40),  # 1/4 · min(1/10, 100/125)
        (5, 16, 25, 1 / 100),  # 1/4 · min(1/√5, 5/125)
    ],
)
def test_rate_at_steps_worked_out_by_hand(step, d_model, warmup, expected):
    assert rate(step, d_model, warmup=warmup) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("wrong", [{"warmup": 0}, {"warmup": -4}, {"model_size": 0}])
def test_a_size_and_a_warmup_below_1_are_refused(wrong):
    arguments = {"model_size": 512, "warmup": 4} | wrong
    with pytest.raises(InputError, match=next(iter(wrong))):
        rate(1, **arguments)
    with pytest.raises(InputError, match=next(iter(wrong))):
        paper_optimizer(nn.Linear(2, 1), **arguments)


def test_step_0_counts_as_1_and_the_papers_warmup_is_the_default():
    assert rate(0, 512) == rate(1, 512) > 0
    assert rate(4000, 512) == pytest.approx(float(equation_3(4000, 512, 4000)), rel=1e-12)


def test_adam_has_the_papers_constants_and_every_parameter_once():
    model = make_model(7, 7, N=1, d_model=8, d_ff=8, h=2, tie_embeddings=True)
    optimizer, _ = paper_optimizer(model, 8)
    assert isinstance(optimizer, torch.optim.Adam)
    (group,) = optimizer.param_groups
    assert group["betas"] == (0.9, 0.98)
    assert group["eps"] == 1e-9
    assert group["weight_decay"] == 0 and not group["amsgrad"]
    ids = [id(p) for p in group["params"]]
    assert len(ids) == len(set(ids))
    assert set(ids) == {id(p) for p in model.parameters()}


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_update_number_i_is_made_with_rate_i(factor):
    model = nn.Linear(2, 1)
    optimizer, scheduler = paper_optimizer(model, model_size=16, factor=factor, warmup=5)
    for i in range(20):
        expected = float(Decimal(factor) * equation_3(i + 1, 16, 5))
        assert optimizer.param_groups[0]["lr"] == pytest.approx(expected)
        assert scheduler.get_last_lr() == [pytest.approx(rate(i + 1, 16, factor, 5))]
        model(torch.randn(3, 2)).sum().backward()
        optimizer.step()
        scheduler.step()


def test_updates_are_adams():
    """Two weights follow the update rule of Kingma and Ba, written out, for ten updates."""
    model = nn.Linear(2, 1, bias=False)
    optimizer, scheduler = paper_optimizer(model, model_size=16, warmup=5)
    weights, m, v = model.weight[0].tolist(), [0.0, 0.0], [0.0, 0.0]
    for t in range(1, 11):
        x = torch.randn(2)
        optimizer.zero_grad()
        model(x).sum().backward()  # the gradient is x
        optimizer.step()
        scheduler.step()
        for j, g in enumerate(x.tolist()):
            m[j] = 0.9 * m[j] + 0.1 * g
            v[j] = 0.98 * v[j] + 0.02 * g * g
            m_hat, v_hat = m[j] / (1 - 0.9**t), v[j] / (1 - 0.98**t)
            weights[j] -= float(equation_3(t, 16, 5)) * m_hat / (v_hat**0.5 + 1e-9)
        assert model.weight[0].tolist() == pytest.approx(weights, rel=1e-4, abs=1e-5)


# ----------------------------------------------------------------------------------- the fused form


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return make_model(11, 11, N=1, d_model=8, d_ff=16, h=2, dropout=0.0, tie_embeddings=True)


def walk(model: nn.Module, optimizer, scheduler, updates: range) -> None:
    """Updates with gradients that depend on their number alone."""
    for i in updates:
        generator = torch.Generator().manual_seed(i)
        for p in model.parameters():
            p.grad = torch.randn(p.shape, generator=generator)
        optimizer.step()
        scheduler.step()


def plain_adam(model: nn.Module):
    """Torch's Adam, one weight matrix at a time, with a schedule of its own."""
    optimizer = torch.optim.Adam(
        model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9, foreach=False, fused=False
    )
    equation = lambda i: float(equation_3(i + 1, 8, 5))
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, equation)
    return optimizer, rates


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_the_fused_form_is_used_and_makes_the_same_updates():
    ours, plain = small_model(), small_model()
    optimizer, scheduler = paper_optimizer(ours, 8, warmup=5)
    assert optimizer.param_groups[0]["fused"] is True
    walk(ours, optimizer, scheduler, range(20))
    walk(plain, *plain_adam(plain), range(20))
    assert (weights(ours) - weights(small_model())).abs().max() > 0.1
    torch.testing.assert_close(weights(ours), weights(plain), rtol=1e-4, atol=1e-5)


def test_a_device_without_the_fused_form_is_left_to_torch():
    (group,) = paper_optimizer(small_model().to("meta"), 8)[0].param_groups
    assert not group["fused"]


def test_a_state_that_was_saved_is_continued_exactly(tmp_path):
    first, second, whole = small_model(), small_model(), small_model()
    optimizer, scheduler = paper_optimizer(first, 8, warmup=5)
    walk(first, optimizer, scheduler, range(7))
    torch.save({"model": first.state_dict(), "adam": optimizer.state_dict()}, tmp_path / "state")
    state = torch.load(tmp_path / "state")
    second.load_state_dict(state["model"])
    optimizer, scheduler = paper_optimizer(second, 8, warmup=5, done=7)
    rate_8 = optimizer.param_groups[0]["lr"]
    optimizer.load_state_dict(state["adam"])
    optimizer.param_groups[0]["lr"] = rate_8  # later ones come from the scheduler
    walk(second, optimizer, scheduler, range(7, 12))
    walk(whole, *paper_optimizer(whole, 8, warmup=5), range(12))
    assert torch.equal(weights(second), weights(whole))
