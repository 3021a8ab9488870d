"""Encoded pairs: the ids that the tokenizer gives, in flat arrays."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_data import BPE, TEXT, UNITS
from tokenizers import Tokenizer, models, normalizers

from annotated.data import (
    END,
    PAD,
    SPECIALS,
    START,
    UNK,
    encode_source,
    encode_target,
    learn_vocabulary,
    pad_ids,
    train_bpe,
)
from annotated.machinery.checks import each_text
from annotated.machinery.corpora.encoding import (
    EncodedPairs,
    PairEncoder,
    _WordIds,
    splits_at_spaces,
)
from annotated.machinery.files import resource_path

SENTENCES = st.lists(st.lists(st.sampled_from(UNITS), max_size=8).map("".join), max_size=12)


def encoded(tokenizer: Tokenizer, source: list[str], target: list[str]) -> EncodedPairs:
    pairs = zip(each_text(source), each_text(target), strict=True)
    return PairEncoder(tokenizer).encode(pairs)


def test_encoded_pairs_are_a_sequence():
    pairs = encoded(BPE, ["un", "eau"], ["", "old"])
    assert pairs[-1] == pairs[1] and pairs[-2] == pairs[0]
    assert list(pairs) == [pairs[0], pairs[1]]
    for i in (2, -3):
        with pytest.raises(IndexError):
            pairs[i]


def test_ids_and_lengths_have_the_smallest_type_that_holds_them():
    pairs = encoded(BPE, TEXT, TEXT[::-1])
    assert BPE.get_vocab_size() <= 256 and pairs.ids.dtype == pairs.lengths.dtype == np.uint8
    known = train_bpe([chr(0x4E00 + i) for i in range(400)] * 2, 5000)
    assert encoded(known, ["a"], ["b"]).ids.dtype == np.uint16
    long = encoded(BPE, ["un " * 70_000], ["un"])
    assert long.lengths.dtype == np.uint32 and long[0][0] == encode_source(BPE, ["un " * 70_000])[0]
    words = {word: i for i, word in enumerate([*SPECIALS, *map(str, range(69_996))])}
    large = Tokenizer(models.WordLevel(words, unk_token="<unk>"))  # not ours: no ▁, whole texts
    pairs = encoded(large, ["69995", "1 2"], ["7", ""])
    assert pairs.ids.dtype == np.uint32
    assert [*pairs] == [([69_999, END], [START, 11, END]), ([UNK, END], [START, END])]


# What a word could be mistaken for: spaces, ▁, accents apart, symbols, other scripts, no text.
HARD = [
    *" ▁.,-<>ab", "  ", "▁▁", "\t", "\n", "\u00a0", "\u2028", "\u3000", "é", "e\u0301", "\u0301",
    "ß", "<s>", "</s>", "<pad>", "<unk>", "##", "你", "नि", "р", "가", "\u1100\u1161", "😀",
    "👨\u200d👩\u200d👧", "\0", "ﬁ", "\u212b", "\ud83d", "\udcf6", "un", "eau",
]  # fmt: skip


@pytest.fixture(scope="module", params=["bpe", "wordpiece", "multi30k-en-de", "general-en-fr"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    if request.param in ("bpe", "wordpiece"):
        vocabulary = learn_vocabulary(request.param, [*TEXT, " ".join(HARD)] * 2, 300)
        assert type(vocabulary.model).__name__.lower() == request.param
        return vocabulary
    return Tokenizer.from_file(str(resource_path("models") / request.param / "tokenizer.json"))


@given(st.lists(st.lists(st.sampled_from(HARD), max_size=10).map("".join), max_size=30))
def test_words_encoded_once_have_the_ids_of_whole_sentences(tokenizer: Tokenizer, texts: list[str]):
    texts = [*texts, "", " ", "  ", "▁", " ▁", "a ", " a"]
    assert splits_at_spaces(tokenizer)
    pairs = encoded(tokenizer, texts, texts[::-1])
    source, target = encode_source(tokenizer, texts), encode_target(tokenizer, texts[::-1])
    assert [*pairs] == list(zip(source, target, strict=True))
    assert pairs.lengths.tolist() == [[len(a), len(b)] for a, b in pairs]


def test_words_that_are_not_kept_are_encoded_anew(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_WordIds, "max_words", 12)
    words, expected = _WordIds(BPE, np.dtype(np.uint16)), encode_source(BPE, TEXT)
    for _ in range(2):
        for text, ids in zip(TEXT, expected, strict=True):
            assert np.frombuffer(words.encode([text])[0], np.uint16).tolist() == ids[:-1]
            assert 0 < len(words) <= 12


def test_a_tokenizer_with_other_rules_encodes_whole_sentences():
    other, added = Tokenizer.from_str(BPE.to_str()), Tokenizer.from_str(BPE.to_str())
    other.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace("n e", "ne")])
    added.add_tokens(["n e"])
    for each in other, added:
        assert not splits_at_spaces(each)
        pairs = encoded(each, ["un eau"], ["un eau"])
        assert pairs[0] == (encode_source(each, ["un eau"])[0], encode_target(each, ["un eau"])[0])


@given(SENTENCES.filter(len), st.sampled_from([1, 8]), st.randoms())
def test_a_rectangle_of_pairs_is_the_lists_padded(sentences, multiple: int, random):
    pairs = encoded(BPE, sentences, sentences[::-1])
    numbers = [random.randrange(len(pairs)) for _ in range(5)]
    for side in 0, 1:
        expected = pad_ids([pairs[i][side] for i in numbers])
        found = torch.from_numpy(pairs.padded(numbers, side, multiple))
        assert found.dtype == torch.int64 and torch.equal(found[:, : expected.size(1)], expected)
        assert (found[:, expected.size(1) :] == PAD).all()
        assert (found.size(1) - side) % multiple == 0  # the width of what the model sees
        assert found.size(1) - expected.size(1) < multiple
