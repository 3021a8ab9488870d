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


def test_step_0_counts_as_1_and_the_papers_schedule_is_the_default():
    assert rate(0, 512) == rate(1, 512) > 0
    optimizer, scheduler = paper_optimizer(nn.Linear(2, 1), 512)
    for step in 1, 2, 3:
        expected = pytest.approx(float(equation_3(step, 512, 4000)), rel=1e-12)
        assert rate(step, 512) == expected and scheduler.get_last_lr() == [expected]
        optimizer.step()
        scheduler.step()
    with pytest.raises(InputError, match="step"):
        rate(-1, 512)


@pytest.mark.parametrize(
    "wrong", [{"warmup": 0}, {"model_size": 0}, {"factor": -1.0}, {"factor": float("nan")}]
)
def test_a_size_and_a_warmup_below_1_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        paper_optimizer(nn.Linear(2, 1), **{"model_size": 512, "warmup": 4} | wrong)


def test_every_parameter_is_updated_once_and_not_decayed():
    model = make_model(7, 7, N=1, d_model=8, d_ff=8, h=2, tie_embeddings=True)
    (group,) = paper_optimizer(model, 8)[0].param_groups
    assert group["fused"] and group["weight_decay"] == 0 and not group["amsgrad"]
    assert [id(p) for p in group["params"]] == [id(p) for p in model.parameters()]


@pytest.mark.parametrize("done", [0, 7])
def test_updates_are_adams_at_the_rates_of_equation_3(done):
    """Two weights follow the update rule of Kingma and Ba, written out, for ten updates."""
    model = nn.Linear(2, 1, bias=False)
    optimizer, scheduler = paper_optimizer(model, model_size=16, factor=2.0, warmup=5, done=done)
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
            rate_now = 2 * float(equation_3(done + t, 16, 5))
            weights[j] -= rate_now * m_hat / (v_hat**0.5 + 1e-9)
        assert model.weight[0].tolist() == pytest.approx(weights, rel=1e-4, abs=1e-5)
