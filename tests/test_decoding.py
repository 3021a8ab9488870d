"""Section 6.1: search finds what a plain loop finds, and a model survives its files."""

import itertools
import json
import math
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import nn

from annotated.attention import KeyValueCache, subsequent_mask
from annotated.data import END, PAD, START, UNK, Batch, encode_source, pad_ids, train_bpe
from annotated.decoding import (
    Hypothesis,
    Translation,
    Translator,
    beam_search,
    budget_batches,
    can_win,
    greedy_decode,
    load_pretrained,
)
from annotated.files import FileError, resource_path
from annotated.model import EncoderDecoder, make_model
from annotated.stacks import DecoderCache
from annotated.training.checkpoints import save_model
from annotated.training.config import preset

V = 9
TRANSLATORS = ["multi30k-en-de", "multi30k-en-fr", "general-en-fr"]
TRAINED_TWICE = ["general-en-fr", "craft-parser"]
SHIPPED = [*TRANSLATORS, "craft-parser"]


def wild(vocab: int = V, seed: int = 0, **options: object) -> EncoderDecoder:
    """A tiny random model; learned positions keep it from repeating one token for ever."""
    torch.manual_seed(seed)
    shape = {"N": 2, "d_model": 16, "d_ff": 32, "h": 2, "dropout": 0.3}
    model = make_model(vocab, vocab, **shape | {"positions": "learned", "max_len": 80} | options)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.normal_(std=0.3)
    return model.eval()


@torch.no_grad()
def step_by_step(
    model: EncoderDecoder, src: list[int], max_len: int, end: int | None = None
) -> list[int]:
    """One sentence, no padding, the whole model called anew for each token."""
    said = [START]
    while len(said) < max_len and not (end is not None and end in said[1:]):
        triangle = [[[column <= row for column in range(len(said))] for row in range(len(said))]]
        out = model(torch.tensor([src]), torch.tensor([said]), None, torch.tensor(triangle))
        scores = model.generator(out)[0, -1].tolist()
        said.append(max(range(V), key=lambda token: scores[token]))
    return said


def search(model: EncoderDecoder, rows: list[list[int]], max_len: int, end: int | None = None):
    batch = Batch(pad_ids(rows))
    return greedy_decode(model, batch.src, batch.src_mask, max_len, START, end)


SOURCES = st.lists(st.lists(st.integers(4, V - 1), min_size=1, max_size=7), min_size=1, max_size=4)


@given(SOURCES, st.integers(1, 9), st.integers(0, 29))
def test_search_says_what_a_plain_loop_says(sources, max_len, seed):
    model = wild(seed=seed)
    found = search(model, sources, max_len).tolist()
    assert found == [step_by_step(model, src, max_len) for src in sources]


@given(SOURCES, st.integers(2, 12), st.integers(0, 29), st.integers(3, V - 1))
def test_search_stops_at_the_end_symbol(sources, max_len, seed, end):
    """Any symbol can be the end; a plain loop stops there, and a row of a batch repeats it."""
    model = wild(seed=seed)
    expected = [step_by_step(model, src, max_len, end) for src in sources]
    found = search(model, sources, max_len, end).tolist()
    longest = max(map(len, expected))
    assert found == [row + [end] * (longest - len(row)) for row in expected]


def test_the_plain_loop_meets_all_that_can_happen():
    """The properties above are about something: rows that end at once, later, and never."""
    lengths = {
        len(step_by_step(wild(seed=seed), [4, 5], 12, end))
        for seed in range(30)
        for end in range(3, V)
    }
    assert {2, 3, 12} <= lengths and len(lengths) > 4


@pytest.mark.parametrize("max_len", [1, 2, 7])
def test_the_longest_result(max_len: int):
    assert search(wild(), [[4, 5]], max_len).shape == (1, max_len)


def test_the_start_symbol_is_not_an_end():
    model = wild()
    assert search(model, [[4, 5]], 6, end=START).shape[1] > 1


def test_search_needs_no_gradients():
    assert not search(wild(), [[4]], 3).requires_grad


# ------------------------------------------------------------------------------------ beam search


def batched(
    model: EncoderDecoder, rows: list[list[int]], **options: object
) -> list[list[Hypothesis]]:
    batch = Batch(pad_ids(rows))
    return beam_search(model, batch.src, batch.src_mask, **options)


def ids_of(found: list[list[Hypothesis]]) -> list[list[list[int]]]:
    return [[hypothesis.ids for hypothesis in group] for group in found]


def same(one: list[list[Hypothesis]], two: list[list[Hypothesis]]) -> None:
    """The same outputs in the same order, and the same scores up to rounding."""
    assert ids_of(one) == ids_of(two)
    for name in "score", "log_prob":
        values = [[getattr(h, name) for group in found for h in group] for found in (one, two)]
        assert values[0] == pytest.approx(values[1], rel=1e-5, abs=1e-5)


@torch.no_grad()
def by_definition(model: EncoderDecoder, src: list[int], words: tuple[int, ...]) -> float:
    """Log-probability of an output and its end, from one pass over all of it."""
    tgt = torch.tensor([[START, *words, END]])
    triangle = torch.ones(1, len(words) + 1, len(words) + 1).tril()
    log_probs = model.generator(model(torch.tensor([src]), tgt[:, :-1], None, triangle))[0]
    return float(log_probs[range(len(words) + 1), tgt[0, 1:]].double().sum())


def penalty(length: int, alpha: float) -> float:
    return (5 + length) ** alpha / (5 + 1) ** alpha


@settings(max_examples=25)
@given(
    st.integers(0, 99),
    st.lists(st.integers(4, 6), max_size=2),
    st.integers(0, 1),
    st.sampled_from([0.6, 0.0, 2.0, -1.0, 0.3]),
    st.data(),
)
def test_a_wide_beam_finds_what_an_exhaustive_search_finds(seed, words, extra, alpha, data):
    """Words 4 to 6, all outputs of up to four tokens with their end: 40 at most."""
    model, src = wild(7, seed=seed), [*words, END]
    longest = len(src) + extra
    outputs = [w for n in range(longest) for w in itertools.product([4, 5, 6], repeat=n)]
    exact = {w: by_definition(model, src, w) for w in outputs}
    scores = {w: exact[w] / penalty(len(w) + 1, alpha) for w in outputs}
    n_best = data.draw(st.integers(1, len(outputs)))
    found = batched(model, [src], beam=len(outputs), alpha=alpha, max_extra=extra, n_best=n_best)[0]
    best = sorted(scores.values(), reverse=True)[:n_best]
    assert [h.score for h in found] == pytest.approx(best, rel=1e-5, abs=1e-5)  # best first
    assert len({tuple(h.ids) for h in found}) == n_best
    for h in found:
        assert h.log_prob == pytest.approx(exact[tuple(h.ids)], rel=1e-5, abs=1e-5)
        assert h.score == pytest.approx(scores[tuple(h.ids)], rel=1e-5, abs=1e-5)


def plain_beam_search(
    model: EncoderDecoder, src: list[int], beam: int, alpha: float, max_extra: int
) -> list[Hypothesis]:
    """One sentence, lists, no cache, and never stopped early."""
    limit, complete = len(src) + max_extra, []
    opened: list[tuple[float, list[int]]] = [(0.0, [])]
    for length in range(1, limit + 1):
        candidates = []
        for log_prob, words in opened:
            log_probs = next_by_definition(model, src, words)
            for token in [END] if length == limit else [END, *range(4, len(log_probs))]:
                candidates.append((log_prob + log_probs[token], [*words, token]))
        candidates.sort(reverse=True)
        best = candidates[: beam - len(complete)]
        opened = [c for c in best if c[1][-1] != END]
        for log_prob, words in best:
            if words[-1] == END:
                score = log_prob / penalty(len(words), alpha)
                complete.append(Hypothesis(words[:-1], log_prob, score))
    return sorted(complete, key=lambda h: -h.score)


@torch.no_grad()
def next_by_definition(model: EncoderDecoder, src: list[int], words: list[int]) -> list[float]:
    triangle = torch.ones(1, len(words) + 1, len(words) + 1).tril()
    out = model(torch.tensor([src]), torch.tensor([[START, *words]]), None, triangle)
    return model.generator(out)[0, -1].tolist()


@settings(max_examples=15)
@given(
    SOURCES,
    st.integers(1, 5),
    st.sampled_from([0.6, 0.0, 1.5, -0.5]),
    st.integers(0, 6),
    st.integers(0, 8),
    st.booleans(),
)
def test_search_follows_its_rules_with_and_without_cache(sources, beam, alpha, extra, seed, first):
    """Batched, cached and stopped early, it finds what plain lists without all that find."""
    model = wild(seed=seed)
    n_best = 1 if first else beam
    plain = [plain_beam_search(model, src, beam, alpha, extra)[:n_best] for src in sources]
    options = {"beam": beam, "alpha": alpha, "max_extra": extra, "n_best": n_best}
    same(batched(model, sources, **options), plain)
    same(batched(model, sources, cache=False, **options), plain)


@settings(max_examples=15)
@given(SOURCES, st.integers(0, 8), st.data())
def test_a_batch_changes_nothing(sources, seed, data):
    model, options = wild(seed=seed), {"n_best": 3, "max_extra": 6}
    alone = [batched(model, [src], **options)[0] for src in sources]
    same(batched(model, sources, **options), alone)
    order = data.draw(st.permutations(range(len(sources))))
    shuffled = batched(model, [sources[i] for i in order], **options)
    same(shuffled, [alone[i] for i in order])
    same(batched(model, [*sources, [4] * 30], **options)[:-1], alone)  # wide padding


@settings(max_examples=15)
@given(SOURCES, st.integers(1, 9), st.integers(0, 8), st.sampled_from([0.6, 0.0, 2.0]))
def test_a_beam_of_one_is_greedy(sources, extra, seed, alpha):
    model = wild(seed=seed)
    model.generator.register_forward_hook(only_words)
    for src, found in zip(
        sources, batched(model, sources, beam=1, alpha=alpha, max_extra=extra), strict=True
    ):
        greedy = search(model, [src], len(src) + extra, END)[0].tolist()[1:]
        assert found[0].ids == (greedy[: greedy.index(END)] if END in greedy else greedy)


def only_words(module: nn.Module, inputs: object, log_probs: torch.Tensor) -> torch.Tensor:
    return log_probs.index_fill(-1, torch.tensor([START, PAD, UNK]), -math.inf)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_every_kind_of_model_can_be_searched(positions: str, norm_first: bool):
    model = wild(norm_first=norm_first, positions=positions, d_k=5, d_v=3)
    sources, options = [[4, 5, 6, 7], [8]], {"max_extra": 9, "n_best": 4}
    same(batched(model, sources, **options), batched(model, sources, cache=False, **options))


def test_masks_may_be_missing_or_zero_and_one():
    model, src = wild(), torch.tensor([[4, 5, 6], [7, 8, 4]])
    expected = beam_search(model, src, torch.ones(2, 1, 3, dtype=torch.bool), max_extra=5)
    same(beam_search(model, src, None, max_extra=5), expected)
    same(beam_search(model, src, torch.ones(2, 1, 3), max_extra=5), expected)


def rising(ids: list[int]) -> list[int]:
    """Words 4 to 6, none smaller than the one before, and two at least."""
    return [*range(max(ids, default=4), 7), *([END] if len(ids) >= 2 else [])]


@settings(max_examples=15)
@given(st.integers(0, 99), st.sampled_from([0.6, 0.0, 2.0]))
def test_a_search_that_is_held_finds_the_best_of_what_may_be_said(seed, alpha):
    model, src = wild(7, seed=seed), [4, 5, END]
    outputs = [w for n in (2, 3, 4) for w in itertools.combinations_with_replacement([4, 5, 6], n)]
    scores = [by_definition(model, src, w) / penalty(len(w) + 1, alpha) for w in outputs]
    options = {"beam": 60, "n_best": len(outputs), "alpha": alpha, "max_extra": 2}
    (found,) = batched(model, [src], follow=[rising], **options)
    assert {tuple(h.ids) for h in found} == set(outputs)
    assert [h.score for h in found] == pytest.approx(sorted(scores, reverse=True), rel=1e-5)


def test_each_sentence_is_held_to_its_own_rule():
    model, sources = wild(7), [[4, END], [5, 6, END], [6, END]]
    model.generator.register_forward_hook(never_end)
    rules = [rising, lambda ids: [END], lambda ids: [5]]
    first, second, third = (group[0].ids for group in batched(model, sources, follow=rules))
    assert first == sorted(first) and len(first) > 1
    assert second == [] and third == [5] * (len(sources[2]) + 50 - 1)  # the limit ends it


def test_a_rule_that_allows_nothing_is_an_error():
    with pytest.raises(ValueError, match="no numbers"):
        batched(wild(), [[4]], follow=[lambda ids: []])


# --------------------------------------------------------------------------------- when it stops


@given(
    st.floats(-30, 0),
    st.integers(1, 30),
    st.integers(0, 30),
    st.sampled_from([-1.0, 0.0, 0.6, 3.0]),
    st.lists(st.floats(-9, 0), min_size=1, max_size=4),
    st.data(),
)
def test_no_ending_of_what_cannot_win_wins(log_prob, length, more, alpha, complete, data):
    """Whatever is said up to the limit: if the bound says no, the score is not among the n best."""
    limit, n_best = length + 1 + more, data.draw(st.integers(1, len(complete)))
    if not can_win(log_prob, length, limit, complete, alpha, n_best):
        end = data.draw(st.integers(length + 1, limit))
        lost = data.draw(st.floats(-9, 0))
        assert (log_prob + lost) / penalty(end, alpha) <= sorted(complete)[-n_best] + 1e-12


@pytest.mark.parametrize("alpha", [-1.0, 0.0, 0.6, 3.0])
def test_what_can_win_is_not_given_up(alpha: float):
    """The bound is tight: an ending that is certain reaches it at one end of the lengths."""
    length, limit, log_prob = 3, 12, -2.0
    reached = max(log_prob / penalty(n, alpha) for n in range(length + 1, limit + 1))
    assert can_win(log_prob, length, limit, [reached - 1e-9], alpha)
    assert not can_win(log_prob, length, limit, [reached + 1e-9], alpha)
    assert can_win(-99.0, length, limit, [-0.1], alpha, n_best=2)  # a second is still wanted
    assert not can_win(-math.inf, length, limit, [], alpha)  # nothing is open


def never_end(module: nn.Module, inputs: object, log_probs: torch.Tensor) -> torch.Tensor:
    return log_probs.index_fill(-1, torch.tensor(END), -99.0)


def steps(model: EncoderDecoder, rows: list[list[int]], **options: object) -> list[int]:
    """Sentences in the batch, step by step."""
    sizes: list[int] = []
    hook = model.generator.register_forward_hook(lambda m, i, out: sizes.append(out.size(0)))
    batched(model, rows, **options)
    hook.remove()
    return sizes


def test_decided_sentences_leave_the_batch():
    model, sources = wild(seed=5), [[4, 5, 6], [7], [8, 8], [5, 4]]
    alone = [len(steps(model, [src])) for src in sources]
    assert len(set(alone)) > 1 and max(alone) < 50  # some end before others, all before the limit
    sizes = steps(model, sources)
    assert sizes == [sum(n > step for n in alone) for step in range(max(alone))]


def test_a_limit_is_that_of_its_own_sentence():
    model = wild(60, seed=3)
    model.generator.register_forward_hook(never_end)
    sources = encode_source(TOKENIZER, ["one", WORDS])
    for extra in (0, 7, 50):
        found = batched(model, sources, max_extra=extra)
        for src, (best, *_) in zip(sources, found, strict=True):
            assert len(best.ids) + 1 == len(src) + extra  # both with their end symbols


def test_learned_positions_end_the_output():
    model = wild(max_len=12)
    model.generator.register_forward_hook(never_end)
    assert len(batched(model, [[4] * 10])[0][0].ids) + 1 == 12


@settings(max_examples=15)
@given(SOURCES, st.integers(1, 6), st.integers(0, 8))
def test_only_words_are_said(sources, beam, seed):
    for group in batched(wild(seed=seed), sources, beam=beam, n_best=beam, max_extra=5):
        assert len(group) == beam and len({tuple(h.ids) for h in group}) == beam
        assert [h.score for h in group] == sorted((h.score for h in group), reverse=True)
        assert not {START, END, PAD, UNK} & set(itertools.chain(*(h.ids for h in group)))


def test_a_broken_model_is_an_error():
    model = wild()
    with torch.no_grad():
        model.generator.proj.weight.fill_(math.nan)
    with pytest.raises(ValueError, match="no numbers"):
        batched(model, [[4]], max_extra=3)


@pytest.mark.parametrize("vocab", [2, 3])
def test_a_vocabulary_has_the_special_symbols(vocab):
    model = make_model(vocab, vocab, N=1, d_model=8, d_ff=8, h=2).eval()
    with pytest.raises(ValueError, match=f"vocabulary of at least 4 ids, .*; got {vocab}$"):
        batched(model, [[1]])


def test_sources_of_a_search_are_ids():
    for src in torch.tensor([4, 5]), torch.ones(1, 2):
        with pytest.raises(ValueError, match=r"expected src as ids \(batch, len\)"):
            beam_search(wild(), src)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 0}, "beam of at least 1; got 0"),
        ({"beam": 99_999_999}, "beam of at most 1,000; got 99999999"),
        ({"beam": True}, "whole number for beam; got True"),
        ({"beam": 2.0}, "whole number for beam; got 2.0"),
        ({"n_best": 5}, "n_best=5, beam=4"),
        ({"n_best": 0}, "n_best of at least 1; got 0"),
        ({"n_best": None}, "whole number for n_best; got None"),
        ({"max_extra": 10**9}, "max_extra of at most 10,000; got 1000000000"),
        ({"alpha": "x"}, "alpha between -10 and 10; got 'x'"),
        ({"alpha": True}, "alpha between -10 and 10; got True"),
        ({"alpha": -math.inf}, "alpha between -10 and 10; got -inf"),
        ({"follow": []}, "follow for 1 sentences; got 0"),
        ({"max_extra": -1}, "max_extra of at least 0; got -1"),
        ({"alpha": math.nan}, "alpha between -10 and 10; got nan"),
        ({"alpha": 11.0}, "alpha between -10 and 10; got 11"),
    ],
)
def test_wrong_arguments_of_a_search(options, message):
    with pytest.raises(ValueError, match=message):
        batched(wild(), [[4]], **options)


IDS = torch.tensor([[4, 5, END], [6, END, PAD]])


@pytest.mark.parametrize(
    ("src", "mask", "said"),
    [
        ([[4, 5]], None, "src as ids .*; got list"),
        (None, None, "src as ids .*; got NoneType"),
        (IDS[0], None, r"src as ids .*; got int64 \(3,\)"),
        (IDS.float(), None, r"src as ids .*; got float32 \(2, 3\)"),
        (IDS > 0, None, "src as ids .*; got bool"),
        (IDS[:, :0], None, r"src of at least one id; got \(2, 0\)"),
        (IDS, torch.ones(2, 1, 2), r"src_mask .* \(2, 1 or 1, 3\); got \(2, 1, 2\)"),
        (IDS, torch.ones(2, 3), r"src_mask .* \(2, 1 or 1, 3\); got \(2, 3\)"),
        (IDS, torch.ones(3, 1, 3), r"src_mask .* \(2, 1 or 1, 3\); got \(3, 1, 3\)"),
        (IDS, [[[1, 1, 1]]], "src_mask as a tensor; got list"),
        (IDS + 5, None, "expected token ids from 0 to 8; got 11"),
    ],
)
def test_what_is_no_batch_of_ids_is_refused(src, mask, said):
    for look in (
        lambda: greedy_decode(wild(), src, mask, 5, START),
        lambda: beam_search(wild(), src, mask),
    ):
        with pytest.raises(ValueError, match=said):
            look()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((0, START), "max_len of at least 1; got 0"),
        ((2.5, START), "whole number for max_len; got 2.5"),
        ((None, START), "whole number for max_len; got None"),
        ((3, None), "whole number for start_symbol; got None"),
        ((3, -1), "start_symbol of at least 0; got -1"),
        ((3, V), f"token ids from 0 to {V - 1}; got {V}"),
        ((3, START, "x"), "whole number for end_symbol; got 'x'"),
    ],
)
def test_wrong_arguments_of_a_greedy_search(arguments, said):
    with pytest.raises(ValueError, match=said):
        greedy_decode(wild(), IDS, None, *arguments)


def test_one_mask_for_all_sentences():
    """A mask (1, 1, src_len) is that of each of them, as everywhere in attention."""
    model, mask = wild(), torch.tensor([[[True, True, False]]])
    each = mask.expand(2, -1, -1)
    same(beam_search(model, IDS, mask, max_extra=3), beam_search(model, IDS, each, max_extra=3))
    found = greedy_decode(model, IDS, mask, 5, START)
    assert torch.equal(found, greedy_decode(model, IDS, each, 5, START))


@pytest.mark.parametrize("vocab", [1, 2, 4])
def test_a_vocabulary_without_words_is_refused(vocab: int):
    if vocab == 4:  # it can say that it has nothing to say
        assert ids_of(batched(wild(4), [[1]], beam=2)) == [[[]]]
        return
    with pytest.raises(ValueError, match=f"at least 4 ids, .*; got {vocab}|token ids"):
        beam_search(wild(vocab), torch.zeros(1, 2, dtype=torch.long))


# ----------------------------------------------------------------------------------------- caches


def test_a_cache_holds_what_the_whole_pass_computes():
    """Step by step with a cache, all positions come out as from one pass without."""
    model, src, tgt = wild(), torch.tensor([[4, 5, 6]]), torch.tensor([[START, 4, 8, 5, 5, 7, 6]])
    with torch.no_grad():
        memory, cache = model.encode(src, None), DecoderCache()
        whole = model.decode(memory, None, tgt, subsequent_mask(7))
        for i in range(7):
            one = model.decode(memory, None, tgt[:, i : i + 1], None, cache)
            torch.testing.assert_close(one, whole[:, i : i + 1], atol=1e-5, rtol=1e-5)
    assert cache.steps == 7 and len(cache.layers) == 2
    for own, source in cache.layers.values():
        assert own.kept()[0].shape == (1, 2, 7, 8) and source.kept()[1].shape == (1, 2, 3, 8)


def test_the_source_is_projected_once_and_not_once_a_hypothesis():
    model, seen = wild(), []
    for layer in model.decoder.layers:
        layer.src_attn.w_k.register_forward_hook(lambda m, i, out: seen.append(tuple(out.shape)))
    batched(model, [[4, 5, 6], [7, 8, 4]], max_extra=8)
    assert seen == [(2, 3, 16)] * 2  # batch, src_len, h · d_k; once for each layer


@given(st.lists(st.integers(1, 5), min_size=1, max_size=9), st.data())
def test_a_growing_cache_is_a_concatenation(sizes: list[int], data):
    cache, held = KeyValueCache(grows=True), torch.zeros(3, 2, 0, 4)
    for size in sizes:
        new = torch.randn(held.size(0), 2, size, 4)
        held = torch.cat([held, new], dim=2)
        for kept, sign in zip(cache.extend(new.clone(), -new), (1, -1), strict=True):
            assert torch.equal(kept, sign * held)
        rows = torch.tensor(
            data.draw(st.lists(st.integers(0, held.size(0) - 1), min_size=1, max_size=3))
        )
        cache.select(rows)
        held = held[rows]
    assert cache.length == sum(sizes) and not cache.complete
    assert cache.buffers[0].size(2) <= 2 * cache.length


def test_search_leaves_no_trace():
    """Neither the weights of the last call nor the caches of a search stay in the model."""
    model = wild()
    batched(model, [[4, 5]], max_extra=3)
    assert model.decoder.layers[0].self_attn.attn is None
    out = model(torch.tensor([[4, 5]]), torch.tensor([[START, 4]]), None, subsequent_mask(2))
    model.generator(out).sum().backward()  # nothing is left of inference mode
    before = model.decoder.layers[0].src_attn.attn
    batched(model, [[4, 5]], max_extra=3)
    assert torch.equal(model.decoder.layers[0].src_attn.attn, before)


# ----------------------------------------------------------------------------- from text to text

WORDS = "one two three four five six seven eight nine"
TOKENIZER = train_bpe([WORDS] * 2, 60)
SENTENCES = st.lists(
    st.lists(st.sampled_from(WORDS.split()), max_size=6).map(" ".join), min_size=1, max_size=4
)


@settings(max_examples=10)
@given(SENTENCES, st.integers(1, 40), st.sampled_from([None, 1, 2, 3]))
def test_a_sentence_alone_or_in_company(sentences: list[str], batch_tokens: int, chunk: int | None):
    """No batch, no neighbour and no order changes a translation."""
    translator = Translator(wild(60, seed=3), TOKENIZER)
    options = {"n_best": 2, "max_extra": 8}
    alone = [next(translator.candidates([sentence], **options)) for sentence in sentences]
    found = list(translator.candidates(sentences, batch_tokens, chunk, **options))
    assert [[t.text for t in group] for group in found] == [[t.text for t in g] for g in alone]
    assert scores(found) == pytest.approx(scores(alone), abs=1e-5)
    assert translator.translate_all(sentences, max_extra=8) == [group[0].text for group in alone]


def scores(groups: list[list]) -> list[float]:
    return [candidate.score for group in groups for candidate in group]


@given(st.lists(st.integers(1, 50), max_size=30), st.integers(1, 120))
def test_batches_hold_every_sentence_once_within_their_budget(lengths, budget):
    batches = budget_batches(lengths, budget)
    assert sorted(itertools.chain(*batches)) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or max(lengths[i] for i in batch) * len(batch) <= budget
    flat = [lengths[i] for batch in batches for i in batch]
    assert flat == sorted(lengths, reverse=True)  # similar lengths stand together
    for one, two in itertools.pairwise(batches):  # no batch could have taken one more
        assert lengths[one[0]] * (len(one) + 1) > budget or lengths[two[0]] > budget


def test_a_line_in_a_line_out():
    lines = [
        "",
        "one two",
        "   ",
        "😀 👩‍👩‍👧‍👦",
        "a\u2028b",
        "\t",
        "zwölf Ærø 漢字 \x07",
        "two " * 400,
        "",
    ]
    translator = Translator(wild(60, seed=1, positions="sinusoidal"), TOKENIZER)
    found = translator.translate_all(lines, beam=2, max_extra=0, chunk=4)
    assert len(found) == len(lines)
    assert [found[i] for i in (0, 2, 5, 8)] == [""] * 4
    assert not any("\n" in line for line in found)
    assert found[1] == translator.translate("one two", beam=2, max_extra=0)


BLANKS = ["", " ", "\t\r\x0b", "\u2028", "\u00a0\u3000", "\u200b\u200d", "\ufeff", "\x00", "\ue000"]


@pytest.mark.parametrize("text", BLANKS)
def test_what_cannot_be_seen_is_not_translated(text: str):
    translator = Translator(wild(60), TOKENIZER)
    translator.model.generator.register_forward_hook(never_end)
    assert translator.translate(text, max_extra=2) == ""
    assert translator.translate(text + "one", max_extra=2) != ""
    assert list(translator.candidates([text], n_best=3)) == [[Translation("", 0.0, 0.0)]]


def test_a_line_of_two_thousand_tokens():
    """In seconds, though nothing ends before the limit; and its neighbours as ever."""
    translator = Translator(wild(60, positions="sinusoidal"), TOKENIZER)
    translator.model.generator.register_forward_hook(never_end)
    lines = ["one two", "two three " * 1000, "four"]
    (_, long, _) = encode_source(TOKENIZER, lines)
    assert len(long) > 2000
    found = list(translator.candidates(lines, max_extra=0, max_source=3000))
    assert [group[0].text for group in found[::2]] == [
        translator.translate(line, max_extra=0) for line in lines[::2]
    ]
    assert found[1][0].text and math.isfinite(found[1][0].score)


@pytest.mark.parametrize("name", ["batch_tokens", "chunk", "max_source"])
@pytest.mark.parametrize("sentences", [["one"], []])
def test_wrong_arguments_of_a_translation(name: str, sentences: list[str]):
    translator = Translator(wild(60), TOKENIZER)
    for wrong, said in [
        (0, f"{name} of at least [12]; got 0"), (10**9, f"{name} of at most 1,000,000; got 10+"),
        ("7", f"whole number for {name}; got '7'"), (1.5, f"whole number for {name}; got 1.5"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=said):
            translator.translate_all(sentences, **{name: wrong})
    with pytest.raises(ValueError, match="beam of at least 1; got 0"):
        translator.translate(sentences, beam=0)


def test_one_sentence_or_several():
    translator = Translator(wild(60, seed=3), TOKENIZER)
    one, two = (translator.translate(word, max_extra=4) for word in ("one", "two"))
    assert isinstance(one, str) and one != two
    for several in (
        ["one", "two"],
        ("one", "two"),
        iter(["one", "two"]),
        {"one": 1, "two": 2}.keys(),
    ):
        assert translator.translate(several, max_extra=4) == [one, two]
    assert translator.translate(["one"], max_extra=4) == [one]
    for empty in [], (), iter(()):
        assert translator.translate(empty) == []
    assert translator.translate("") == "" and translator.translate([""]) == [""]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (None, "each a string; got NoneType"), (7, "each a string; got int"),
        (b"one", "each a string; got bytes"), (b"", "each a string; got bytes"),
        ({}, "each a string; got dict"), ({"one": "two"}, "each a string; got dict"),
        ({"one"}, "each a string; got set"), (torch.ones(2), "sentence 1 as a string; got Tensor"),
        ([None], "sentence 1 as a string; got NoneType"),
        (["one", 2], "sentence 2 as a string; got int"),
        (["one", "", b"two"], "sentence 3 as a string; got bytes"),
        ([["one"]], "sentence 1 as a string; got list"),
        ([("one", "two")], "sentence 1 as a string; got tuple"),
    ],
)  # fmt: skip
def test_what_is_no_text_is_not_translated(wrong: object, said: str):
    translator = Translator(wild(60), TOKENIZER)
    for translate in translator.translate, translator.translate_all:
        with pytest.raises(ValueError, match=said):
            translate(wrong, max_extra=0)


def test_a_single_string_is_no_list():
    with pytest.raises(ValueError, match="got a single string"):
        Translator(wild(60), TOKENIZER).translate_all("one")


def cut_to(most: int, text: str, **options: object) -> list[int]:
    """The source ids that a translator searches with."""
    translator, seen = Translator(wild(60, **options), TOKENIZER), []
    translator.search = lambda sources, **search: seen.extend(sources) or [[Translation("", 0, 0)]]
    with pytest.warns(UserWarning, match=rf"sentence 1 \('.*'…\) has more than {most:,} pieces"):
        translator.translate(text, **({"max_source": most} if most < 80 else {}))
    return seen[0]


def test_a_line_that_is_too_long_is_cut_with_a_warning():
    whole = encode_source(TOKENIZER, ["one two " * 700])[0]
    for text in "one two " * 700, "one two " * 400_000:
        ids = cut_to(1000, text, positions="sinusoidal")
        assert ids == [*whole[:999], END]
    assert len(cut_to(1000, "z" * 100_000, positions="sinusoidal")) <= 1000
    few = "one two three four five six"
    assert cut_to(5, few) == [*encode_source(TOKENIZER, [few])[0][:4], END]
    assert len(cut_to(80, "one two " * 700)) == 80  # learned positions end there


def test_the_warning_names_the_line_and_its_neighbours_are_translated(recwarn):
    translator = Translator(wild(60, seed=3), TOKENIZER)
    lines = ["one", "", "two " * 30, "two"]
    found = translator.translate(lines, chunk=1, max_source=9, max_extra=2)
    assert [str(w.message).split(" (")[0] for w in recwarn.list] == ["sentence 3"]
    assert "only these are translated" in str(recwarn.list[0].message)
    assert found == [*translator.translate(lines[:2], max_extra=2), found[2], found[3]]
    assert found[3] == translator.translate("two", max_extra=2)
    beginning = [*encode_source(TOKENIZER, lines)[2][:8], END]
    assert found[2] == translator.search([beginning], max_extra=2)[0][0].text
    exact = " ".join(["one"] * 4)
    translator.translate(exact, max_source=len(encode_source(TOKENIZER, [exact])[0]), max_extra=0)
    assert len(recwarn.list) == 1


def test_lines_are_read_as_they_are_needed():
    read: list[str] = []

    def lines() -> Iterator[str]:
        for line in ["one", "two", "", "three", "four"]:
            read.append(line)
            yield line

    found = Translator(wild(60), TOKENIZER).candidates(lines(), chunk=2, max_extra=0)
    next(found)
    assert read == ["one", "two"]
    assert len(list(found)) == 4 and len(read) == 5


def test_progress_counts_sentences(capsys):
    translator = Translator(wild(60), TOKENIZER)
    translator.translate_all(["one", "", "two three"], max_extra=0, progress=True)
    assert "3/3" in capsys.readouterr().err
    translator.translate_all(["one"], max_extra=0)
    assert capsys.readouterr().err == ""


def test_special_symbols_are_not_said():
    translator = Translator(wild(60), TOKENIZER)
    said = translator.tokenizer.encode("two three").ids
    ids = [START, *said, END, END, PAD]
    assert translator.tokenizer.decode(ids) == "two three"


def test_nothing_to_translate():
    assert Translator(wild(60), TOKENIZER).translate_all([]) == []


# ------------------------------------------------------------------------------------------ files


@pytest.mark.parametrize("options", [{"tie_embeddings": True}, {"positions": "sinusoidal"}])
def test_what_was_saved_is_loaded(tmp_path: Path, options: dict[str, object]):
    model = wild(60, **options)
    save_model(tmp_path, dict(model.named_parameters()), model.config)
    TOKENIZER.save(str(tmp_path / "tokenizer.json"))
    translator = load_pretrained(tmp_path)
    assert not translator.model.training
    assert asdict(translator.model.config) == asdict(model.config)
    pairs = zip(model.named_parameters(), translator.model.named_parameters(), strict=True)
    for (name, old), (_, new) in pairs:
        assert new.dtype == torch.float32
        torch.testing.assert_close(new, old, rtol=2**-11, atol=2**-24, msg=name)
    batch = Batch(pad_ids(encode_source(TOKENIZER, ["two five", "one"])))
    tgt = torch.tensor([[START, 7, 8], [START, 9, 4]])
    both = [
        m.generator(m(batch.src, tgt, batch.src_mask, Batch.make_std_mask(tgt, PAD)))
        for m in (model, translator.model)
    ]
    torch.testing.assert_close(*both, atol=0.05, rtol=0.05)  # half precision was in between
    assert load_pretrained(str(tmp_path)).translate("one") == translator.translate("one")


def test_an_unknown_model_is_refused_with_the_known(tmp_path: Path, monkeypatch):
    for name in "one", "two":
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "model.safetensors").touch()
    (tmp_path / "models" / "unfinished").mkdir()
    monkeypatch.setattr("annotated.decoding.shipped", lambda name: tmp_path / name)
    for name in "three", "unfinished", str(tmp_path):  # a folder without a model is none
        with pytest.raises(ValueError, match=re.escape(f"one, two; got {name!r}")):
            load_pretrained(name)


@pytest.mark.parametrize("name", [None, 7, b"multi30k-en-de", "", "x" * 9999, "a\0b", "\ud800"])
def test_what_names_no_model_is_refused(name: object, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"expected a (folder with|model as)"):
        load_pretrained(name)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The folder of a tiny model, whole."""
    model = wild(60, positions="sinusoidal", tie_embeddings=True)
    save_model(tmp_path, dict(model.named_parameters()), model.config)
    TOKENIZER.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def not_loaded(folder: Path, file: str) -> str:
    """The line that refuses a model; it begins with the name of the file."""
    with pytest.raises(FileError) as found:
        load_pretrained(folder)
    line = str(found.value)
    assert str(folder / file) in line and "\n" not in line
    return line


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "model.safetensors"])
def test_every_cut_of_a_models_files_is_noticed(saved: Path, file: str):
    whole = (saved / file).read_bytes()
    for size in {0, 1, *range(2, len(whole), len(whole) // 7)} - {len(whole)}:
        (saved / file).write_bytes(whole[:size])
        not_loaded(saved, file)
    for other in b"<html>" * 99, b"\xff" * 99, b"[" * 99_999, b"[]", b"null", b"{}":
        (saved / file).write_bytes(other)
        not_loaded(saved, file)
    if file != "model.safetensors":  # a folder without weights is no model
        (saved / file).unlink()
        assert "there is no such file" in not_loaded(saved, file)
        (saved / file).mkdir()
        not_loaded(saved, file)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"N": 1}, "N=2, the layers in"), ({"N": 3}, "N=2, the layers in"),
        ({"N": 10**5}, "got N=100000"), ({"N": 10**30}, "got N=1000"), ({"N": 0}, "at least 1"),
        ({"N": "2"}, "N as int; got '2'"), ({"N": 2.0}, "N as int"), ({"N": None}, "N as int"),
        ({"d_model": 32}, r"\(60, 32\)|\(32, 32\)"), ({"d_model": 10**30}, "can be built"),
        ({"d_ff": 10**15}, r"w_1.* as \(1000000000000000, 16\)"), ({"d_k": 3}, "w_"),
        ({"norm_first": True}, "norm.* is missing"), ({"norm_first": "no"}, "norm_first as bool"),
        ({"positions": "learned"}, "embed.1.pe is missing"), ({"positions": "x"}, "'sinusoidal'"),
        ({"max_len": 10**9}, "at most 100,000"), ({"max_len": -1}, "at least 1"),
        ({"src_vocab": 61, "tgt_vocab": 61}, r"\(61, 16\)"), ({"tgt_vocab": 61}, "equal"),
        ({"tie_embeddings": False}, "is missing"), ({"dropout": 1}, r"dropout in \[0, 1\)"),
        ({"heads": 2}, "got heads"),
    ],
)  # fmt: skip
def test_a_configuration_of_another_model_is_refused(saved: Path, change: dict, said: str):
    config = json.loads((saved / "config.json").read_text(encoding="utf-8"))
    (saved / "config.json").write_text(json.dumps(config | change), encoding="utf-8")
    assert re.search(said, not_loaded(saved, "config.json" if "N" in change else ""))


NAME = "decoder.layers.1.feed_forward.w_1.weight"  # (32, 16)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda w: w[:1], r"\(32, 16\) .*; got \(1, 16\)"),
        (lambda w: w[:1, :1], r"\(32, 16\) .*; got \(1, 1\)"),
        (lambda w: w.T, r"\(32, 16\) .*; got \(16, 32\)"),
        (lambda w: w[:0], r"got \(0, 16\)"),
        (lambda w: w.char(), "got .* of I8"),
        (lambda w: w.long(), "got .* of I64"),
        (lambda w: w > 0, "got .* of BOOL"),
        (lambda w: w.to(torch.complex64), "got .* of C64"),
        (lambda w: w * math.nan, "finite numbers"),
        (lambda w: w.double() + 1e300, "finite numbers"),  # more than single precision holds
        (lambda w: w.index_fill(0, torch.tensor(3), math.inf), "finite numbers"),
    ],
)
def test_a_wrong_tensor_is_refused(saved: Path, change, said: str):
    tensors = load_file(saved / "model.safetensors")
    tensors[NAME] = change(tensors[NAME].float()).contiguous()
    save_file(tensors, saved / "model.safetensors")
    line = not_loaded(saved, "model.safetensors")
    assert NAME in line and re.search(said, line)


def test_tensors_too_few_or_too_many_are_refused(saved: Path):
    tensors = load_file(saved / "model.safetensors")
    for changed, said in [
        ({name: t for name, t in tensors.items() if name != NAME}, f"{NAME} is missing"),
        (tensors | {"generator.proj.weight": torch.ones(60, 16)}, "does not belong there"),
        ({"a": torch.ones(1)}, "N=0, the layers in"),
    ]:
        save_file(changed, saved / "model.safetensors")
        assert said in not_loaded(saved, "model.safetensors")


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16])
def test_weights_of_any_precision_are_loaded(saved: Path, kind: torch.dtype):
    before = load_pretrained(saved).translate("one two", max_extra=3)
    tensors = {k: t.to(kind) for k, t in load_file(saved / "model.safetensors").items()}
    save_file(tensors, saved / "model.safetensors")
    after = load_pretrained(saved)
    assert next(after.model.parameters()).dtype == torch.float32
    assert after.translate("one two", max_extra=3) == before or kind == torch.bfloat16


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t["model"]["vocab"].update({"zzz": 60}), "at most 60 pieces, .*; got 61"),
        (lambda t: t["model"]["vocab"].update({"zzz": 2**31}), "at most 60 pieces"),
        (lambda t: t["model"]["vocab"].update({"<s>": 1, "</s>": 0}), "the first pieces as"),
        (lambda t: (t["added_tokens"].clear(), t["model"]["vocab"].clear(),
                    t["model"]["merges"].clear()), "<unk>"),
        (lambda t: t["model"].update(unk_token="none"), "none"),
        (lambda t: t.update(truncation={"direction": "Right", "max_length": 3,
                                        "strategy": "LongestFirst", "stride": 0}), "truncation"),
        (lambda t: t.update(model=None), "a vocabulary as"),
    ],
)  # fmt: skip
def test_a_vocabulary_that_the_model_does_not_know_is_refused(saved: Path, change, said: str):
    vocabulary = json.loads((saved / "tokenizer.json").read_text(encoding="utf-8"))
    change(vocabulary)
    (saved / "tokenizer.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    assert re.search(said, not_loaded(saved, "tokenizer.json"))


@pytest.mark.parametrize("device", ["meta", "tpu", "", "cuda:99", "cpu:x", 3.5])
def test_a_device_that_cannot_compute_is_refused(saved: Path, device: object):
    with pytest.raises(ValueError, match="expected a device that torch can use; got"):
        load_pretrained(saved, device)


@pytest.fixture(scope="module")
def translators() -> dict[str, Translator]:
    return {name: load_pretrained(name) for name in SHIPPED}


@pytest.mark.parametrize(
    "name, man, dogs",
    [
        ("multi30k-en-de", ("Mann", "Fahrrad"), ("Hunde", "Strand")),
        ("multi30k-en-fr", ("homme", "vélo"), ("chiens", "plage")),
        ("general-en-fr", ("homme",), ("chiens", "plage")),
    ],
)
def test_the_shipped_models_translate(translators, name: str, man: tuple, dogs: tuple):
    one = translators[name].translate("A man is riding a bicycle.")
    assert all(word in one for word in man) and one.endswith(".")
    two = translators[name].translate_all(
        ["Two dogs run on the beach.", "A man is riding a bicycle."]
    )
    assert all(word in two[0] for word in dogs) and two[1] == one


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_models_are_small_and_come_with_their_logs(translators, name: str):
    folder = resource_path("models") / name
    files = {path.name: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    assert sum(files.values()) <= {"general-en-fr": 24e6, "craft-parser": 12e6}.get(name, 8e6)
    expected = {"model.safetensors", "config.json", "tokenizer.json", "training.json", "log.csv"}
    first = {"log-first.csv"} if name in TRAINED_TWICE else set()
    assert expected | first | {"README.md"} == set(files)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert translators[name].tokenizer.get_vocab_size() <= config["tgt_vocab"]


@pytest.mark.corpora
@pytest.mark.parametrize("name", TRANSLATORS)
def test_the_shipped_vocabularies_know_the_letters_of_their_corpora(translators, name: str):
    from annotated.corpora import load_pairs

    for side in load_pairs("multi30k", "train", *name.split("-")[1:]):
        encodings = translators[name].tokenizer.encode_batch(side[::20])
        assert not any("<unk>" in encoding.tokens for encoding in encodings)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_preset_repeats_the_training_of_a_shipped_model(name: str):
    said = json.loads(
        (resource_path("models") / name / "training.json").read_text(encoding="utf-8")
    )
    made = asdict(preset(name, out=said["out"]))
    second_run = {"weights", "factor", "warmup", "seed", "updates", "average", "save_updates"}
    allowed = {"precision"} | (second_run if name in TRAINED_TWICE else set())  # as its card tells
    assert {key for key in said if said[key] != made[key]} <= allowed


def test_the_card_of_the_general_model_quotes_its_results():
    name = "general-en-fr"
    card = (resource_path("models") / name / "README.md").read_text(encoding="utf-8")
    for part, corpora in ("", {"laws", "tatoeba", "php", "multi30k"}), ("-newstest2013", {"news"}):
        log = resource_path("results") / f"{name}{part}.json"
        rows = json.loads(log.read_text(encoding="utf-8"))
        scores = {row["corpus"]: row for row in rows if row["text"] == "cased, detokenized"}
        assert set(scores) == corpora
        for row in scores.values():
            assert f"| {row['sentences']:,} | {row['score']:.2f} |" in card


@pytest.mark.parametrize("name", TRANSLATORS[:2])
def test_the_cards_of_the_shipped_models_quote_their_results(name: str):
    card = (resource_path("models") / name / "README.md").read_text(encoding="utf-8")
    rows = json.loads((resource_path("results") / f"{name}.json").read_text(encoding="utf-8"))
    for split in "dev", "test":
        score = {row["text"]: row["score"] for row in rows if row["split"] == split}
        line = f"{score['cased, detokenized']:.2f} | {score['lower-cased, tokenized']:.2f} |"
        assert line in card
