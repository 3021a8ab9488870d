"""Section 5.1: sentences to pieces, pieces to batches."""

import re
import unicodedata
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pandas
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from annotated.data import (
    END,
    PAD,
    SPECIALS,
    START,
    UNK,
    Batch,
    encode_source,
    encode_target,
    learn_vocabulary,
    make_batch,
    pad_ids,
    token_batches,
    train_bpe,
    train_wordpiece,
)
from annotated.machinery.checks import each_text
from annotated.machinery.corpora.cleaning import PairReport, good_pairs
from annotated.machinery.corpora.registry import load_pairs
from annotated.machinery.files import resource_path

TEXT = [
    "The naïve café: two men (one old, one young) ride bicycles!",
    "Zwei Männer fahren Rad – „schön“, sagt der Ältere; übrigens: 3.5 km/h.",
    "Un garçon saute par-dessus l'eau ...  deux  fois?\tOui.",
    "cafe\u0301 u\u0308ber 5 m², ½ ﬁn…",
]
# Letters and signs of the text, each with the marks that belong to it.
UNITS = sorted(set(re.findall(r".[\u0300-\u036f]*", " ".join(TEXT))))
BPE = train_bpe(TEXT, 150)
PIECES = train_wordpiece(TEXT, 150)


@pytest.mark.parametrize("tokenizer", [BPE, PIECES], ids=["bpe", "wordpiece"])
@given(st.lists(st.sampled_from(UNITS)).map("".join))
def test_what_decoding_gives_back(tokenizer: Tokenizer, text: str):
    """Everything but the form of accents (NFC) and spaces at the ends."""
    expected = unicodedata.normalize("NFC", text).strip()
    assert tokenizer.decode(encode_source(tokenizer, [text])[0]) == expected


def test_special_symbols_punctuation_and_unknown_letters():
    assert list(map(BPE.token_to_id, SPECIALS)) == [START, END, PAD, UNK] == [0, 1, 2, 3]
    assert BPE.encode("eau, (eau)").tokens == ["▁", "eau", ",", "▁", "(", "eau", ")"]
    assert UNK in BPE.encode("caфé").ids and BPE.decode(BPE.encode("caфé").ids) == "caé"
    assert UNK not in PIECES.encode("un" * 200).ids  # a word longer than the library's default
    assert BPE.decode([START, *BPE.encode("une eau").ids, END, PAD, PAD]) == "une eau"


def test_the_size_of_the_vocabulary_is_an_upper_bound():
    corpus = ["low lower lowest newer newest wider"] * 3
    letters = set("".join(corpus)) - {" "} | {"▁"}
    for size in 20, 25, 30:
        assert train_bpe(corpus, size).get_vocab_size() == size
    most = train_bpe(corpus, 10_000)
    assert len(letters) + len(SPECIALS) < most.get_vocab_size() < 60
    assert [len(most.encode(word).ids) for word in ("low", "lowest", "wider")] == [1, 1, 1]


def test_encoding_puts_ends_around():
    sentences = ["Zwei Männer", ""]
    plain = [BPE.encode(sentence).ids for sentence in sentences]
    assert encode_source(BPE, sentences) == [[*plain[0], END], [END]]
    assert encode_target(BPE, sentences) == [[START, *plain[0], END], [START, END]]


ENDS = [*"\n \t\x0b\x00\x85\xa0\u1680\u2003\u2028\u202f\u3000\u200b\u200e\u2060\ufeff", "\r\n"]


@pytest.mark.parametrize("end", ENDS)
def test_what_is_not_seen_at_the_ends_of_a_sentence_is_no_piece(end: str):
    text = "Zwei Männer, fahren."
    for sentence in text + end, end + text, end + text + end:
        assert encode_source(BPE, [sentence]) == encode_source(BPE, [text])
        learned = [learn_vocabulary("bpe", [x] * 3, 60).get_vocab() for x in (sentence, text)]
        assert learned[0] == learned[1]
        pairs = list(good_pairs([(1, sentence.encode(), sentence)], PairReport("")))
        assert pairs == [[text, text]]
    assert not list(good_pairs([(1, text, end)], PairReport("")))
    joiner = "\u0d05\u0d35\u0d28\u0d4d\u200d"  # which makes another letter of the last
    assert list(each_text([joiner + end])) == [joiner]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_a_language_of_many_letters_has_them_in_its_vocabulary(kind: str, form: str):
    """2,000 syllables of Korean by Zipf's law."""
    random, letters = Random(0), [chr(0xAC00 + 5 * i) for i in range(2000)]
    weights = [1 / (i + 1) for i in range(2000)]
    lines = ["".join(random.choices(letters, weights, k=20)) for _ in range(3000)]
    vocabulary = learn_vocabulary(kind, [unicodedata.normalize(form, x) for x in lines], 5000)
    unknown = [UNK in ids for ids in encode_source(vocabulary, lines)]
    assert sum(unknown) / len(lines) < 0.02


@pytest.mark.parametrize("symbol", SPECIALS)
def test_a_symbol_that_somebody_types_is_text(symbol: str):
    text = f"a {symbol} b"
    known = train_bpe([text], 60)
    for tokenizer in known, Tokenizer.from_str(BPE.to_str()):
        ids = encode_source(tokenizer, [text, symbol])
        assert all(i not in (START, PAD) for row in ids for i in row)
        assert all(row.count(END) == 1 and row[-1] == END for row in ids)
    assert known.decode(encode_source(known, [text])[0]) == text


@pytest.mark.parametrize("train", [train_bpe, train_wordpiece])
def test_rare_letters_take_no_place_from_pieces(train):
    rare = [chr(0x4E00 + i) for i in range(3000)]
    tokenizer = train([*TEXT * 3, " ".join(rare)], 1200)
    letters = [piece for piece in tokenizer.get_vocab() if len(piece) == 1]
    assert len(letters) <= 1000 and {*"abeinrstäöü▁"} <= {*letters}
    assert tokenizer.encode("ride bicycles").ids.count(UNK) == 0


LENGTHS = st.lists(st.tuples(st.integers(1, 12), st.integers(2, 12)), max_size=60)
BUDGETS = st.tuples(st.integers(12, 50), st.integers(12, 50))
SEEDS = st.none() | st.integers(0, 5)


@given(LENGTHS, BUDGETS, SEEDS)
def test_batches_use_every_pair_once_and_keep_both_budgets(lengths, budgets, seed):
    batches = token_batches(lengths, *budgets, seed)
    again = token_batches(lengths, *budgets, seed)
    assert [batch.tolist() for batch in batches] == [batch.tolist() for batch in again]
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for indices in batches:
        assert len(indices)
        batch = make_batch([([7] * lengths[i][0], [8] * lengths[i][1]) for i in indices])
        assert batch.src.numel() <= budgets[0]
        assert batch.tgt.numel() + len(indices) <= budgets[1]  # with the token that tgt leaves out


@given(LENGTHS, BUDGETS)
def test_a_batch_ends_only_where_the_next_pair_would_not_fit(lengths, budgets):
    for batch, after in pairwise(token_batches(lengths, *budgets)):
        joined = [lengths[i] for i in [*batch, after[0]]]
        sizes = [max(pair[side] for pair in joined) * len(joined) for side in (0, 1)]
        assert sizes[0] > budgets[0] or sizes[1] > budgets[1]


@given(LENGTHS)
def test_without_a_seed_the_longer_side_grows(lengths):
    flat = [i for batch in token_batches(lengths, 20, 20) for i in batch]
    longer = [max(lengths[i]) for i in flat]
    assert longer == sorted(longer)


def test_a_seed_shuffles():
    lengths = [(2 + i % 9, 2 + i % 9) for i in range(300)]
    first, other = (token_batches(lengths, 60, 60, seed) for seed in (1, 2))
    order = [lengths[batch[0]] for batch in first]
    assert order != sorted(order)  # the batches come in no order of length
    assert {frozenset(b.tolist()) for b in first} != {frozenset(b.tolist()) for b in other}


def test_the_default_budgets_are_the_papers():
    batches = token_batches(np.full((30_000, 2), 10))
    assert [len(batch) for batch in batches] == [2500] * 12


def test_batch():
    pairs = [([5, 6, END], [START, 7, 8, END]), ([9, END], [START, 4, END])]
    batch = make_batch(pairs)
    assert batch.src.tolist() == [[5, 6, END], [9, END, PAD]]
    assert batch.src_mask.tolist() == [[[True, True, True]], [[True, True, False]]]
    assert batch.tgt.tolist() == [[START, 7, 8], [START, 4, END]]
    assert batch.tgt_y.tolist() == [[7, 8, END], [4, END, PAD]]
    assert batch.ntokens == 5
    lower = [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert batch.tgt_mask.int().tolist() == [lower, lower]
    assert batch.tgt_mask.dtype == batch.src_mask.dtype == torch.bool
    assert not hasattr(Batch(batch.src), "tgt")


@pytest.mark.parametrize(
    "wrong", [torch.ones(3).long(), torch.ones(2, 3), torch.ones(1, 2, 3).long()]
)
def test_a_batch_is_of_ids(wrong):
    right = torch.tensor([[4, 5, 6]])
    for name, sides in ("src", (wrong, right)), ("tgt", (right, wrong)):
        with pytest.raises(ValueError, match=rf"{name}.*\(batch, len\)"):
            Batch(*sides)


def test_a_line_that_is_no_text_costs_the_others_nothing():
    bad = ["one \ud83d", "\udcf6n", "cafe\u0301"]
    good = ["one \ufffd", "\ufffdn", "cafe\u0301"]
    assert encode_target(BPE, bad) == encode_target(BPE, good)
    for train in train_bpe, train_wordpiece:
        assert train(bad, 40).to_str() == train(good, 40).to_str()


TABLE = pandas.DataFrame({"en": ["A dog."]})


@pytest.mark.parametrize("wrong", ["text", None, [3], [b"text"], TABLE, Path("text"), {"a": "b"}])
def test_what_is_no_list_of_sentences_is_refused(wrong):
    learn = lambda _, sentences: learn_vocabulary("bpe", sentences, 100)
    for use in encode_source, encode_target, learn:
        with pytest.raises(ValueError, match="sentence"):
            use(BPE, wrong)
    assert encode_source(BPE, TABLE["en"]) == encode_source(BPE, ["A dog."])  # a column is one


def test_ids_come_in_any_sequence():
    for kind in tuple, np.array, torch.tensor, list:
        found = pad_ids([kind([5, 6, 7]), kind([8])])
        assert found.tolist() == [[5, 6, 7], [8, PAD, PAD]] and found.dtype == torch.int64
    assert pad_ids([[], []]).shape == (2, 0) and pad_ids([[], []]).dtype == torch.int64
    assert pad_ids([[1], [2, 3]], pad=9).tolist() == [[1, 9], [2, 3]]


def test_a_budget_without_end_makes_one_batch():
    lengths = np.arange(200).reshape(100, 2)[:, ::-1] + 1
    for budget in 10**9, 2**63 - 1, 10**30:
        (batch,) = token_batches(lengths, budget, budget, seed=0)
        assert sorted(batch) == list(range(100))


@pytest.mark.parametrize(
    ("lengths", "budgets", "named"),
    [
        ([(1, 2), (11, 3)], (10, 11), r"pair 1 with \[11, 3\]"),
        ([(1, 2), (3, 11)], (11, 10), r"pair 1 with \[3, 11\]"),
        ([[3, 4], [2, 0]], (9, 9), "pair 1 lacks"),
        *(([(1, 2)], (budget, 9), "src_tokens") for budget in (0, None, 10.0, "10", True)),
        ([(1, 2)], (9, 0), "tgt_tokens"),
        *((wrong, (9, 9), "whole numbers") for wrong in ([1, 2], [[1, 2, 3]], [[1.5, 2.0]], "ab")),
    ],
)
def test_pairs_that_make_no_batches_are_refused(lengths, budgets, named: str):
    with pytest.raises(ValueError, match=named):
        token_batches(lengths, *budgets)


@pytest.mark.parametrize(
    ("kind", "size", "named"),
    [("words", 130, "'words'"), *(("bpe", size, "vocab_size") for size in (4, None, 40.0, True))],
)
def test_a_vocabulary_that_cannot_be_learned_is_refused(kind: str, size, named: str):
    with pytest.raises(ValueError, match=named):
        learn_vocabulary(kind, TEXT, size)


@pytest.mark.corpora
def test_the_shipped_vocabulary_is_what_training_gives():
    path = resource_path("models") / "multi30k-en-de" / "tokenizer.json"
    english, german = load_pairs("multi30k", "train", "en", "de")
    assert train_bpe(english + german, 5000).to_str() == Tokenizer.from_file(str(path)).to_str()


@pytest.mark.parametrize("edge", [128, 32_768])
def test_lengths_at_the_edge_of_a_type_stay_in_order(edge: int):
    lengths = [(edge - i % 3 + 1, 1 + i) for i in range(9)]
    (order,) = token_batches(lengths, 10 * edge, 10 * edge)
    assert [lengths[i][0] for i in order] == sorted(source for source, _ in lengths)
