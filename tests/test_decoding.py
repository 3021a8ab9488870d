"""Section 6.1: search finds what a plain loop finds, and what all outputs scored by hand give."""

import itertools
import math
from inspect import signature
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import TOKENIZER, WORDS, V, never_end, wild, with_biases

from annotated.data import END, PAD, START, Batch, encode_source, pad_ids
from annotated.decoding import Hypothesis, beam_search, can_win, greedy_decode
from annotated.incremental import DecoderCache
from annotated.model import EncoderDecoder

DECODERS = ["attention", "ssru", "ssru-without-ff"]


def step_by_step(
    model: EncoderDecoder, src: list[int], max_len: int, end: int | None = None
) -> list[int]:
    """One sentence, no padding, the whole model called anew for each token."""
    said = [START]
    while len(said) < max_len and not (end is not None and end in said[1:]):
        scores = next_by_definition(model, src, said[1:])
        said.append(max(range(V), key=lambda token: scores[token]))
    return said


def search(model: EncoderDecoder, rows: list[list[int]], max_len: int, end: int | None = None):
    batch = Batch(pad_ids(rows))
    return greedy_decode(model, batch.src, batch.src_mask, max_len, START, end)


SOURCES = st.lists(st.lists(st.integers(4, V - 1), min_size=1, max_size=7), min_size=1, max_size=4)


@given(SOURCES, st.integers(1, 12), st.integers(0, 29), st.integers(3, V - 1))
def test_search_says_what_a_plain_loop_says(sources, max_len, seed, any_symbol):
    """With an end, a plain loop stops there, and a row of a batch repeats it."""
    model = wild(seed=seed)
    for end in None, any_symbol:
        expected = [step_by_step(model, src, max_len, end) for src in sources]
        longest = max(map(len, expected))
        rows = [row + [end] * (longest - len(row)) for row in expected]
        assert search(model, sources, max_len, end).tolist() == rows


def test_the_start_symbol_is_not_an_end_and_without_one_nothing_is():
    model = wild()
    assert search(model, [[4, 5]], 6, end=START).shape[1] > 1
    model.generator.register_forward_hook(lambda *x: x[2].index_fill(-1, torch.tensor(END), 9.0))
    assert search(model, [[4, 5]], 6).tolist() == [[START, *[END] * 5]]


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
def next_by_definition(model: EncoderDecoder, src: list[int], words: list[int]) -> list[float]:
    out = model(torch.tensor([src]), torch.tensor([[START, *words]]))
    return model.generator(out)[0, -1].tolist()


def penalty(length: int, alpha: float, offset: float = 5) -> float:
    return (offset + length) ** alpha / (offset + 1) ** alpha


def rising(ids: list[int]) -> list[int]:
    """Words 4 to 6, none smaller than the one before, and two at least."""
    return [*range(max(ids, default=4), 7), *([END] if len(ids) >= 2 else [])]


@pytest.mark.slow
@settings(max_examples=15)
@given(
    st.integers(0, 99), st.sampled_from([0.6, 0.0, 2.0, -1.0]), st.sampled_from([5, 0]),
    st.booleans(), st.data(),
)  # fmt: skip
def test_a_wide_beam_finds_what_an_exhaustive_search_finds(seed, alpha, offset, held, data):
    """Words 4 to 6, all outputs of up to four tokens with their end: 40; or those that rise."""
    model, src, exact = wild(7, seed=seed), [4, END], {}
    for words in (w for n in range(4) for w in itertools.product([4, 5, 6], repeat=n)):
        if not held or (len(words) > 1 and list(words) == sorted(words)):
            steps = zip(range(4), [*words, END])  # noqa: B905
            exact[words] = sum(next_by_definition(model, src, words[:i])[w] for i, w in steps)
    scores = {words: exact[words] / penalty(len(words) + 1, alpha, offset) for words in exact}
    n_best = data.draw(st.integers(1, len(exact)))
    options = {"beam": 40, "alpha": alpha, "offset": offset, "max_extra": 2, "n_best": n_best}
    (found,) = batched(model, [src], **options, follow=[rising] if held else None)
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
        best = sorted(candidates, reverse=True)[: beam - len(complete)]
        opened = [c for c in best if c[1][-1] != END]
        for log_prob, words in best:
            if words[-1] == END:
                score = log_prob / penalty(len(words), alpha)
                complete.append(Hypothesis(words[:-1], log_prob, score))
    return sorted(complete, key=lambda h: -h.score)


@pytest.mark.slow
@settings(max_examples=15)
@given(
    SOURCES, st.integers(1, 5), st.sampled_from([0.6, 0.0, 1.5, -0.5]), st.integers(0, 6),
    st.integers(0, 8), st.booleans(), st.sampled_from(DECODERS),
)  # fmt: skip
def test_search_follows_its_rules(sources, beam, alpha, extra, seed, first, decoder):
    """Batched, cached and stopped early, it finds what plain lists without all that find."""
    model = wild(seed=seed, decoder=decoder)
    n_best = 1 if first else beam
    plain = [plain_beam_search(model, src, beam, alpha, extra)[:n_best] for src in sources]
    options = {"beam": beam, "alpha": alpha, "max_extra": extra, "n_best": n_best}
    same(batched(model, sources, **options), plain)


@pytest.mark.parametrize("decoder", DECODERS)
def test_what_is_cached_follows_hypotheses_that_change_their_parents(decoder: str):
    """The best output does not begin as greedy search does, so it came up from a lower place."""
    overtaken = 0
    for seed in range(4):
        model, src = wild(seed=seed, decoder=decoder), [4, 5, 6]
        found = batched(model, [src], beam=3, n_best=3, max_extra=4)
        same(found, [plain_beam_search(model, src, 3, 0.6, 4)])
        first = next_by_definition(model, src, [])
        overtaken += found[0][0].ids[:1] != [max(range(4, V), key=lambda token: first[token])]
    assert overtaken


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_every_kind_of_model_can_be_searched(positions: str, norm_first: bool, bias: bool):
    options = {"norm_first": norm_first, "positions": positions, "bias": bias}
    model = with_biases(wild(**options, d_k=5, d_v=3))
    sources = [[4, 5, 6, 7], [8]]
    plain = [plain_beam_search(model, src, 4, 0.6, 9) for src in sources]
    same(batched(model, sources, max_extra=9, n_best=4), plain)


def test_each_sentence_is_held_to_its_own_rule():
    model, sources = wild(7), [[4, END], [5, 6, END], [6, END]]
    model.generator.register_forward_hook(never_end)
    rules = [rising, lambda ids: [END], lambda ids: [5]]
    first, second, third = (group[0].ids for group in batched(model, sources, follow=rules))
    assert first == sorted(first) and len(first) > 1
    assert second == [] and third == [5] * (len(sources[2]) + 50 - 1)  # the limit ends it


def wins(
    log_prob: float, length: int, limit: int, scores: list[float], alpha: float, n_best: int = 1
) -> bool:
    """`can_win` of one hypothesis, from the scores of the complete ones."""
    beam = SimpleNamespace(
        ids=torch.zeros(1, 1, length + 1),  # with the start symbol
        log_prob=torch.tensor([[log_prob]], dtype=torch.float64),
        limits=torch.tensor([limit]),
        found=[[Hypothesis([], score, score) for score in scores]],
    )
    return bool(can_win(beam, n_best, alpha))


@pytest.mark.parametrize("alpha", [-1.0, 0.0, 0.6, 3.0])
def test_what_can_win_is_not_given_up(alpha: float):
    """The bound is tight: an ending that is certain reaches it at one end of the lengths."""
    length, limit, log_prob = 3, 12, -2.0
    reached = max(log_prob / penalty(n, alpha) for n in range(length + 1, limit + 1))
    assert wins(log_prob, length, limit, [reached - 1e-5], alpha)
    assert not wins(log_prob, length, limit, [-99.0, reached + 1e-5], alpha)
    assert wins(-99.0, length, limit, [-0.1], alpha, n_best=2)  # a second is still wanted
    assert not wins(-math.inf, length, limit, [], alpha)  # nothing is open


def steps(model: EncoderDecoder, rows: list[list[int]], **options: object) -> list[int]:
    """Sentences in the batch, step by step."""
    sizes: list[int] = []
    hook = model.generator.register_forward_hook(lambda m, i, out: sizes.append(out.size(0)))
    batched(model, rows, **options)
    hook.remove()
    return sizes


def test_the_search_is_the_papers():
    """Four hypotheses, alpha 0.6, fifty tokens more than the input, and an early end."""
    options = signature(beam_search).parameters
    assert [options[name].default for name in ("beam", "alpha", "max_extra")] == [4, 0.6, 50]
    model, widths = wild(seed=5), []
    (best,) = batched(model, [[4, 5, 6]])[0]
    assert best.score == pytest.approx(best.log_prob / penalty(len(best.ids) + 1, 0.6))
    assert len(steps(model, [[4, 5, 6]])) < 53
    model.generator.register_forward_hook(never_end)
    model.generator.register_forward_hook(lambda m, i, out: widths.append(out.size(1)))
    assert len(batched(model, [[4, 5, 6]])[0][0].ids) + 1 == 53 == len(widths)
    assert max(widths) == 4


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
    model = wild(max_len=12)
    model.generator.register_forward_hook(never_end)
    assert len(batched(model, [[4] * 10])[0][0].ids) + 1 == 12  # where learned positions end


@pytest.mark.parametrize("broken", ["generator.proj", "encoder.layers.0.feed_forward.w_1"])
def test_a_broken_model_and_a_rule_that_allows_nothing_are_errors(broken: str):
    model, rule = wild(), {"follow": [lambda ids: []]}
    with pytest.raises(ValueError, match="no finite numbers"):
        batched(model, [[4]], **rule)
    with torch.no_grad():
        model.get_submodule(broken).weight[0, 0] = math.nan
    for find in lambda: batched(model, [[4]], max_extra=3), lambda: search(model, [[4]], 5):
        with pytest.raises(ValueError, match="no finite numbers"):
            find()


def test_a_model_in_training_is_searched_without_dropout_and_left_as_it_was():
    model, rows = wild(), [[4, 5, 6], [7]]
    expected = search(model, rows, 8), batched(model, rows, max_extra=5)
    model.train()
    model.encoder.eval()
    modes = [module.training for module in model.modules()]
    for _ in range(3):
        assert torch.equal(search(model, rows, 8), expected[0])
        same(batched(model, rows, max_extra=5), expected[1])
    assert [module.training for module in model.modules()] == modes


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *(("beam", x) for x in (0, 99_999_999, True, 2.0)),
        *(("n_best", x) for x in (5, 0, None)),
        *(("max_extra", x) for x in (10**9, -1)),
        *(("alpha", x) for x in ("x", True, -math.inf, math.nan, 11.0)),
        *(("follow", x) for x in ([], [None], [[4, 5]], 3, "a", {"a": len}, {len}, [len, len])),
    ],
)
def test_wrong_arguments_of_a_search(name, wrong):
    with pytest.raises(ValueError, match=rf"\b{name}\b.*got"):
        batched(wild(), [[4]], **{name: wrong})


@pytest.mark.parametrize(
    "found", [None, 4, "45", ["4"], [True] * V, [4.0], [-1], [V], [[4]], {4}, [10**30], b"45"]
)
def test_a_rule_that_allows_no_ids_is_refused(found):
    """Indexing would take None for all ids, -1 for the last, and booleans for a mask."""
    with pytest.raises(ValueError, match=f"expected ids below {V} from a rule of follow; got "):
        batched(wild(), [[4]], follow=[lambda ids: found])
    for same_ids in [4, END], (4, END), torch.tensor([4, END]), range(END, 5, 3):
        (found,) = batched(wild(), [[4]], max_extra=2, follow=[lambda ids, s=same_ids: s])
        assert {*found[0].ids} <= {4}


IDS = torch.tensor([[4, 5, END], [6, END, PAD]])
MASK = torch.ones(2, 1, 3)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        *(("src", src) for src in ([[4, 5]], None, IDS[0], IDS.float(), IDS > 0, IDS[:, :0])),
        *(("src_mask", torch.ones(shape)) for shape in ((2, 1, 2), (3, 1, 3), (2, 3), (2, 3, 3))),
        *(("src_mask", mask) for mask in (-MASK, [[[1]]])),
        *(("max_len", length) for length in (0, 2.5, None)),
    ],
)
def test_what_is_no_batch_mask_or_length_is_refused(name: str, given):
    call = {"src": IDS, "src_mask": None, "max_len": 5} | {name: given}
    with pytest.raises(ValueError, match=rf"{name}\b.*got"):
        greedy_decode(wild(), **call, start_symbol=START)
    if name != "max_len":
        with pytest.raises(ValueError, match=rf"{name}\b.*got"):
            beam_search(wild(), call["src"], call["src_mask"])


@pytest.mark.parametrize(
    ("mask", "same_mask"),
    [(None, MASK > 0), (MASK, MASK > 0), (MASK[:1] > 0, MASK > 0),
     (torch.tensor([[[1, 1, 0]]]), torch.tensor([[[True, True, False]]] * 2))],
)  # fmt: skip
def test_masks_may_be_missing_zeros_and_ones_or_one_for_all_sentences(mask, same_mask):
    model = wild()
    same(*(beam_search(model, IDS, given, max_extra=3) for given in (mask, same_mask)))
    assert torch.equal(*(greedy_decode(model, IDS, m, 5, START) for m in (mask, same_mask)))


def test_the_source_is_projected_once_and_not_once_a_hypothesis():
    model, seen = wild(), []

    class Seen(torch.nn.Linear):
        def forward(self, x):
            seen.append((*x.shape[:2], self.out_features))
            return super().forward(x)

    for layer in model.decoder.layers:
        layer.src_attn.w_k.__class__ = Seen
    batched(model, [[4, 5, 6], [7, 8, 4]], max_extra=8)
    assert seen == [(2, 3, 16)] * 2  # batch, src_len, h · d_k; once for each layer


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("kept", [True, False])
def test_a_hypothesis_continues_its_parent_only(decoder: str, kept: bool):
    """Two sentences with two hypotheses each, of which each comes out as if it were alone."""
    model, memory = wild(decoder=decoder), torch.randn(2, 3, 16)
    ids = torch.full((2, 1, 1), START)
    random, parents = torch.Generator().manual_seed(0), None
    with torch.no_grad():
        cache = DecoderCache(model, memory)
        cache.states = cache.states if kept else None  # otherwise all is decoded again
        for _ in range(5):
            out = cache.step(ids, parents)
            for row, place in itertools.product(range(2), range(ids.size(1))):
                alone = model.decode(memory[row : row + 1], None, ids[row, place][None])[:, -1]
                torch.testing.assert_close(out[row, place], alone[0], atol=1e-5, rtol=1e-5)
            parent = torch.randint(ids.size(1), (2, 2), generator=random)
            token = torch.randint(4, 9, (2, 2, 1), generator=random)
            rows = torch.arange(2).unsqueeze(1)
            parents = rows * ids.size(1) + parent
            ids = torch.cat([ids[rows, parent], token], dim=2)


def test_search_leaves_no_trace():
    """The weights of a model that has searched can be trained."""
    model = wild()
    batched(model, [[4, 5]], max_extra=3)
    out = model(torch.tensor([[4, 5]]), torch.tensor([[START, 4]]))
    model.generator(out).sum().backward()
