"""What the pages say of SmolLM2 is computed by functions that are tested on small models."""

from itertools import chain, product
from types import SimpleNamespace

import pytest
import torch

import benchmarks.smollm2 as smollm2
from annotated.language_model import LanguageModel, LanguageModelConfig, generate
from annotated.machinery.formats.gguf import in_halves
from benchmarks.smollm2 import beam_search, exchanged_gates, pairs_for_halves

CONFIG = LanguageModelConfig(
    7, N=2, d_model=16, d_ff=24, h=4, kv_heads=2, max_len=64, norm="rms", norm_first=True,
    positions="rope", activation="swish", gated=True, feed_forward_bias=False,
)  # fmt: skip


@pytest.fixture
def model() -> LanguageModel:
    torch.manual_seed(0)
    made = LanguageModel(CONFIG).eval()
    with torch.no_grad():
        for p in made.parameters():
            p.add_(torch.randn_like(p) * 0.3)
    return made


def log_prob(model: LanguageModel, prompt: list[int], ids: tuple[int, ...]) -> float:
    logits = model(torch.tensor([[*prompt, *ids]]))[0, len(prompt) - 1 : -1]
    return logits.log_softmax(dim=-1).gather(1, torch.tensor(ids).unsqueeze(1)).sum().item()


def test_a_wide_beam_finds_the_likeliest_text(model):
    prompt = [3, 1, 4]
    with torch.no_grad():
        every = {ids: log_prob(model, prompt, ids) for ids in product(range(7), repeat=3)}
    ids, score = beam_search(model, prompt, 7**2, 3, never=set())
    best = max(every, key=lambda ids: every[ids])
    assert tuple(ids) == best and score == pytest.approx(every[best], abs=1e-4)
    assert smollm2.log_prob(model, prompt, ids, set()) == pytest.approx(score, abs=1e-4)
    greedy, _ = beam_search(model, prompt, 1, 8, never=set())
    assert greedy == list(generate(model, prompt, 8, top_k=1))
    without, _ = beam_search(model, prompt, 4, 8, never={greedy[0]})
    assert greedy[0] not in without


@torch.no_grad()
def test_mistakes_are_those_that_they_are_called(model):
    """Undoing each gives the model back."""
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    expected = model(ids)
    pairs_for_halves(model)
    assert (model(ids) - expected).abs().max() > 1e-3
    for layer in model.layers:
        layer.self_attn.w_q.weight.copy_(in_halves(layer.self_attn.w_q.weight, 4))
        layer.self_attn.w_k.weight.copy_(in_halves(layer.self_attn.w_k.weight, 2))
    torch.testing.assert_close(model(ids), expected)
    exchanged_gates(model)
    assert (model(ids) - expected).abs().max() > 1e-3
    exchanged_gates(model)
    torch.testing.assert_close(model(ids), expected)


def test_a_group_of_four_that_occurred_before_is_repeated():
    assert smollm2.share_repeated([1, 2, 3, 4, 1, 2, 3, 4]) == 0.2  # one of five
    assert smollm2.share_repeated([1, 2, 3]) == smollm2.share_repeated([*range(9)]) == 0


def test_a_sentence_is_read_after_itself_and_after_others(model, monkeypatch):
    digits = lambda text: [int(c) for c in text if c.isdigit()]
    one, other = "1234560123.", "0011223344."
    texts = {
        f"{kind}_{n:02}": ["Short.", "12.", one] for kind in ("fiction", "news") for n in range(10)
    }
    texts |= {"fiction_10": ["Short.", "12.", one], "news_10": ["21.", other, "12."]}
    monkeypatch.setattr(smollm2, "documents", lambda: dict(texts))
    first, second = smollm2.repetitions(SimpleNamespace(model=model, encode=digits))
    assert (first["document"], second["document"]) == ("fiction_10", "news_10")
    surprise = lambda *before: -log_prob(model, [1, 2, *chain(*before)], ids) / len(ids)
    ids, apart = tuple(digits(one)), digits(other)
    for n, found in enumerate(first["itself"]):
        assert found == pytest.approx(surprise(*[ids] * n), abs=1e-3)
    assert first["others"][0] == first["itself"][0]
    assert first["others"][1] == pytest.approx(surprise(apart), abs=1e-3)


def test_heads_are_switched_off_on_other_tokens_than_those_that_chose_them():
    found, tested = smollm2.random_twice(), smollm2.random_twice(seed=1)
    assert found.shape == tested.shape and not torch.equal(found, tested)
    assert torch.equal(tested[:, : smollm2.LENGTH], tested[:, smollm2.LENGTH :])
