"""Scripts in the vocabulary of The Annotated Transformer run with one line changed."""

import ast
import math
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributions import Categorical, kl_divergence

from annotated import compat
from annotated.compat import Batch, LabelSmoothing, make_model
from annotated.machinery.errors import InputError

SCRIPT = Path(__file__).with_name("older_script.py")
V = 11


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    """What the names of the script stand for once it has run."""
    torch.manual_seed(0)
    return runpy.run_path(str(SCRIPT))


def test_the_script_uses_every_name():
    tree = ast.parse(SCRIPT.read_text(encoding="utf-8"))
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert set(compat.__all__) <= used


@pytest.mark.slow
def test_an_untrained_model_writes_token_by_token(script: dict[str, Any]):
    assert script["memory"].shape == (1, 10, 512)
    probabilities = torch.stack(script["spoken"])
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(9, 1))
    assert torch.equal(script["said"], script["greedy"])
    # The weights of the last call, where that API keeps them: nine tokens gave the tenth.
    maps = script["encoder_maps"], script["decoder_maps"], script["across_maps"]
    for encoder, own, across in zip(*maps, strict=True):
        assert encoder.shape == (1, 8, 10, 10)
        assert own.shape == (1, 8, 9, 9)
        assert across.shape == (1, 8, 9, 10)
        for weights in encoder, own, across:
            torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        assert not own.triu(diagonal=1).any()  # nothing from the right


@pytest.mark.slow
def test_a_model_put_together_by_hand(script: dict[str, Any]):
    assert script["states"].shape == script["mixed"].shape == (3, 9, 32)
    assert script["weights"].shape == (3, 9, 9) and not script["weights"].triu(diagonal=1).any()
    torch.testing.assert_close(script["log_probs"].exp().sum(-1), torch.ones(3, 9))
    for x in (*script["twice"], script["normed"]):
        torch.testing.assert_close(x.mean(-1), torch.zeros(3, 9), atol=1e-5, rtol=0)


@pytest.mark.slow
def test_the_copy_task_is_learned(script: dict[str, Any]):
    state, losses = script["state"], script["losses"]
    assert script["measuring_changed_nothing"]
    assert (state.step, state.accum_step) == (240, 240)
    assert (state.samples, state.tokens) == (240 * 40, 240 * 40 * 9)
    (group,) = script["optimizer"].param_groups
    assert group["lr"] == pytest.approx(0.5 * 32**-0.5 * 240**-0.5)
    assert 1.5 < losses[0] < 3  # near ln 10 = 2.3, as before anything is learned
    assert losses[-1] < 0.1
    assert torch.equal(script["copied"], script["sentence"])
    assert (script["others_copied"] == script["others"].src).float().mean() > 0.95


@pytest.mark.slow
def test_the_average_of_models(script: dict[str, Any]):
    parameters = [list(model.parameters()) for model in script["several"]]
    for own, *theirs in zip(script["mean"].parameters(), *parameters, strict=True):
        torch.testing.assert_close(own, sum(theirs) / 3)


def test_the_parts_that_scripts_reach_into():
    model = make_model(src_vocab=V, tgt_vocab=13, N=2, d_model=32, d_ff=64, h=4, dropout=0.1)
    assert model.src_embed[0].d_model == 32
    assert model.src_embed[0].lut.weight.shape == (V, 32)
    assert model.tgt_embed[0].lut.weight.shape == (13, 32)
    assert model.generator.proj.weight.shape == (13, 32)
    assert isinstance(model.src_embed, nn.Sequential)
    batch = Batch(torch.tensor([[3, 4, 0]]), torch.tensor([[1, 5, 2, 0]]), 0)
    assert batch.src_mask.tolist() == [[[1, 1, 0]]] and batch.ntokens == 2
    mask = Batch.make_std_mask(torch.tensor([[1, 5, 2, 0]]), 0)
    assert mask.tolist() == [[[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0]]]


@pytest.mark.parametrize("smoothing", [0.0, 0.4])
def test_the_loss_is_the_divergence_from_the_distribution_that_it_keeps(smoothing: float):
    loss = LabelSmoothing(5, padding_idx=0, smoothing=smoothing)
    log_probs = torch.randn(3, 5).log_softmax(-1).requires_grad_()
    value = loss(log_probs, torch.tensor([2, 1, 0]))
    kept = loss.true_dist
    assert not kept[:, 0].any() and not kept[2].any()  # padding
    assert (kept[0, 2], kept[1, 1]) == pytest.approx((1 - smoothing, 1 - smoothing))
    others = kept[0, [1, 3, 4]].tolist() + kept[1, [2, 3, 4]].tolist()
    assert others == pytest.approx([smoothing / 3] * 6)
    apart = kl_divergence(Categorical(kept[:2]), Categorical(logits=log_probs[:2]))
    torch.testing.assert_close(value, apart.sum())
    value.backward()
    torch.testing.assert_close(log_probs.grad, -kept)


@pytest.mark.parametrize(
    ("smoothing", "predict", "loss"),
    [
        (0.0, [0, 1, 0, 0, 0], 0),
        (0.1, [0, *4 * [0.25]], 0.9 * math.log(3.6) + 0.1 * math.log(4 / 30)),
    ],
)
def test_what_the_target_rules_out_needs_no_probability(smoothing, predict, loss):
    found = LabelSmoothing(5, 0, smoothing)(torch.tensor([predict]).log(), torch.tensor([1]))
    assert found.item() == pytest.approx(loss, abs=1e-6)


def test_sizes_that_cannot_be_are_refused():
    with pytest.raises(InputError, match="size"):
        LabelSmoothing(2, padding_idx=0)
    with pytest.raises(InputError, match="4"):
        LabelSmoothing(5, padding_idx=0)(torch.zeros(1, 4), torch.tensor([1]))
