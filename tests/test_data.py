"""Section 5.1: files to sentences, sentences to pieces, pieces to batches."""

import contextlib
import gzip
import hashlib
import http.server
import io
import lzma
import re
import socket
import struct
import subprocess
import sys
import tarfile
import threading
import time
import tracemalloc
import unicodedata
import warnings
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from annotated import data
from annotated.corpora import (
    Corpus,
    CorpusFile,
    HeldOut,
    clean_pairs,
    known_corpora,
    corpus_file,
    corpus_files,
    corpus_parts,
    find_corpus,
    load_pairs,
    parse_data,
)
from annotated.data import (
    END,
    PAD,
    SPECIALS,
    START,
    UNK,
    Batch,
    EncodedPairs,
    _well_formed,
    encode_source,
    encode_target,
    learn_vocabulary,
    make_batch,
    pad_ids,
    token_batches,
    train_bpe,
    train_wordpiece,
    word_vocabulary,
)
from annotated.downloads import _check_complete, download
from annotated.files import resource_path
from annotated.texts import archive_texts, part_lines, read_lines
from annotated.files import FileError, MissingFile

# ------------------------------------------------------------------------------------- vocabulary

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
    """Everything but the form of accents (NFC) and one space at the very beginning."""
    expected = unicodedata.normalize("NFC", text).removeprefix(" ")
    assert tokenizer.decode(encode_source(tokenizer, [text])[0]) == expected


def test_letters_that_training_never_saw_are_unknown_and_lost():
    encoding = BPE.encode("caфé")
    assert UNK in encoding.ids
    assert BPE.decode(encoding.ids) == "caé"


def test_special_symbols_come_first():
    assert (
        [BPE.token_to_id(symbol) for symbol in SPECIALS] == [START, END, PAD, UNK] == [0, 1, 2, 3]
    )
    assert BPE.decode([START, *BPE.encode("une eau").ids, END, PAD, PAD]) == "une eau"


def test_the_size_of_the_vocabulary_is_an_upper_bound():
    corpus = ["low lower lowest newer newest wider"] * 3
    letters = set("".join(corpus)) - {" "} | {"▁"}
    for size in 20, 25, 30:
        assert train_bpe(corpus, size).get_vocab_size() == size
    most = train_bpe(corpus, 10_000)
    assert len(letters) + len(SPECIALS) < most.get_vocab_size() < 60
    assert [len(most.encode(word).ids) for word in ("low", "lowest", "wider")] == [1, 1, 1]


def test_the_most_frequent_neighbours_are_joined_first():
    # "ab" occurs five times, "cd" three times, "ef" twice: two joins take the first two.
    corpus = ["xab"] * 5 + ["ycd"] * 3 + ["zef"] * 2
    joined = train_bpe(corpus, len(SPECIALS) + len("▁xabycdzef") + 1).get_vocab()
    longer = {piece for piece in joined if len(piece) > 1 and piece not in SPECIALS}
    assert len(longer) == 1 and longer <= {"ab", "▁x", "xa"}  # each occurs five times


def test_punctuation_is_a_piece_of_its_own():
    assert BPE.encode("Rad").ids == BPE.encode("Rad.").ids[:-1]
    assert BPE.encode("eau, (eau)").tokens == ["▁", "eau", ",", "▁", "(", "eau", ")"]


def test_encoding_puts_ends_around():
    sentences = ["Zwei Männer", ""]
    plain = [BPE.encode(sentence).ids for sentence in sentences]
    assert encode_source(BPE, sentences) == [[*plain[0], END], [END]]
    assert encode_target(BPE, sentences) == [[START, *plain[0], END], [START, END]]


def test_training_is_reproducible():
    assert train_bpe(TEXT, 120).to_str() == train_bpe(TEXT, 120).to_str()
    assert train_wordpiece(TEXT, 120).to_str() == train_wordpiece(TEXT, 120).to_str()


@pytest.mark.parametrize("symbol", SPECIALS)
def test_a_symbol_that_somebody_types_is_text(symbol: str):
    for tokenizer in train_bpe([f"a {symbol} b"], 60), Tokenizer.from_str(BPE.to_str()):
        ids = encode_source(tokenizer, [f"a {symbol} b", symbol])
        assert all(i not in (START, PAD) for row in ids for i in row)
        assert all(row.count(END) == 1 and row[-1] == END for row in ids)
    assert train_bpe([f"a {symbol} b"], 60).get_vocab_size() > len(SPECIALS)
    known = train_bpe([f"a {symbol} b"], 60)
    assert known.decode(encode_source(known, [f"a {symbol} b"])[0]) == f"a {symbol} b"


def test_word_pieces_take_the_longest_known_piece_from_the_left():
    tokenizer = train_wordpiece(["low lower lowest newer newest wider"] * 3, 60)
    known = set(tokenizer.get_vocab())
    for word in "lowest", "widest", "newlow":
        rest, cut = f"▁{word}", []
        while rest:  # the rule, written out
            longest = max(n for n in range(1, len(rest) + 1) if rest[:n] in known)
            cut.append(rest[:longest])
            rest = rest[longest:]
        assert tokenizer.encode(word).tokens == cut


def test_a_word_longer_than_a_page_is_not_unknown():
    assert UNK not in PIECES.encode("un" * 200).ids


def test_learn_vocabulary():
    for kind, train in ("bpe", train_bpe), ("wordpiece", train_wordpiece):
        assert learn_vocabulary(kind, TEXT, 130).to_str() == train(TEXT, 130).to_str()
    with pytest.raises(ValueError, match="bpe, wordpiece; got 'words'"):
        learn_vocabulary("words", TEXT, 130)


def test_word_vocabulary():
    vocabulary = word_vocabulary(["Don't stop, don't!", "Stop it, it stops."], "en")
    assert list(vocabulary) == [*SPECIALS, "n't", ",", "it"]  # at least twice, as spaCy cuts them
    assert list(vocabulary.values()) == list(range(7))
    assert "stop" in word_vocabulary(["Don't stop"], "en", min_count=1)
    assert list(word_vocabulary(["z.B. z.B."], "de"))[4:] == ["z.B."]  # an abbreviation of German


@pytest.fixture(scope="module")
def multi30k() -> tuple[list[str], list[str]]:
    return load_pairs("multi30k", "train", "en", "de")


@pytest.mark.corpora
def test_the_shipped_vocabulary_is_what_training_gives(multi30k):
    path = resource_path("models") / "multi30k-en-de" / "tokenizer.json"
    english, german = multi30k
    assert train_bpe(english + german, 5000).to_str() == Tokenizer.from_file(str(path)).to_str()


@pytest.mark.corpora
def test_pieces_of_a_real_corpus_spell_it_exactly(multi30k):
    tokenizer = train_wordpiece(multi30k[1][:2000], 2000)
    sentences = [s for s in multi30k[1][:2000] if not s.startswith(" ")]
    normal = [unicodedata.normalize("NFC", s) for s in sentences]
    assert tokenizer.decode_batch([e.ids for e in tokenizer.encode_batch(sentences)]) == normal


# ------------------------------------------------------------------------------------ encoded pairs

SENTENCES = st.lists(st.lists(st.sampled_from(UNITS), max_size=8).map("".join), max_size=12)


@given(SENTENCES)
def test_encoded_pairs_are_the_lists_that_encoding_gives(sentences: list[str]):
    pairs = EncodedPairs.encode(BPE, sentences, sentences[::-1])
    source, target = encode_source(BPE, sentences), encode_target(BPE, sentences[::-1])
    assert len(pairs) == len(sentences)
    assert [pairs[i] for i in range(len(pairs))] == list(zip(source, target, strict=True))
    assert pairs.lengths.shape == (len(sentences), 2)
    lengths = [[len(a), len(b)] for a, b in zip(source, target, strict=True)]
    assert pairs.lengths.tolist() == lengths


def test_encoded_pairs_count_from_the_end_and_end():
    pairs = EncodedPairs.encode(BPE, ["un", "eau"], ["", "old"])
    assert pairs[-1] == pairs[1] and pairs[-2] == pairs[0]
    for i in (2, -3):
        with pytest.raises(IndexError):
            pairs[i]
    assert len(list(iter(pairs))) == 2


def test_encoded_pairs_take_streams_longer_than_a_block(monkeypatch: pytest.MonkeyPatch):
    whole = EncodedPairs.encode(BPE, (f"un {n}" for n in range(50)), ["old"] * 50)
    monkeypatch.setattr(data, "_batched", lambda items, size: _sevens(items))
    blocks = EncodedPairs.encode(BPE, (f"un {n}" for n in range(50)), ["old"] * 50)
    assert all(
        np.array_equal(a, b)
        for a, b in zip(vars(whole).values(), vars(blocks).values(), strict=True)
    )


def _sevens(items) -> Iterator[list[str]]:
    items = list(items)
    yield from (items[i : i + 7] for i in range(0, len(items), 7))


def test_encoded_pairs_need_two_sides():
    with pytest.raises(ValueError, match="got 2 and 1"):
        EncodedPairs.encode(BPE, ["un", "eau"], ["old"])


def test_encoded_pairs_are_small_and_survive_a_file(tmp_path: Path):
    pairs = EncodedPairs.encode(BPE, TEXT, TEXT[::-1])
    assert pairs.src.dtype == pairs.tgt.dtype == np.uint16
    assert len(pairs.lengths) == len(TEXT)  # worked out, and not written
    pairs.save(tmp_path / "pairs.safetensors")
    assert files(tmp_path) == ["pairs.safetensors"]
    again = EncodedPairs.load(tmp_path / "pairs.safetensors")
    for name, array in vars(pairs).items():
        assert np.array_equal(getattr(again, name), array)
        assert getattr(again, name).dtype == array.dtype


def test_a_large_vocabulary_gets_larger_numbers():
    class Large:
        encode_special_tokens = False

        def get_vocab_size(self) -> int:
            return 70_000

        def encode_batch(self, sentences: list[str]):
            return [type("Encoding", (), {"ids": [69_999]}) for _ in sentences]

    assert EncodedPairs.encode(Large(), ["x"], ["y"])[0] == ([69_999, END], [START, 69_999, END])


# ---------------------------------------------------------------------------------------- batches

LENGTHS = st.lists(st.tuples(st.integers(1, 12), st.integers(2, 12)), max_size=60)
BUDGETS = st.tuples(st.integers(12, 50), st.integers(12, 50))
SEEDS = st.none() | st.integers(0, 5)


@given(LENGTHS, BUDGETS, SEEDS)
def test_batches_use_every_pair_once_and_keep_both_budgets(lengths, budgets, seed):
    batches = token_batches(lengths, *budgets, seed)
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


@given(LENGTHS, SEEDS)
def test_a_seed_makes_batches_repeatable(lengths, seed):
    first, again = (token_batches(lengths, 30, 30, seed) for _ in range(2))
    assert [batch.tolist() for batch in first] == [batch.tolist() for batch in again]


def test_a_seed_shuffles():
    lengths = [(2 + i % 9, 2 + i % 9) for i in range(300)]
    first, other = (token_batches(lengths, 60, 60, seed) for seed in (1, 2))
    order = [lengths[batch[0]] for batch in first]
    assert order != sorted(order)  # the batches come in no order of length
    assert {frozenset(b.tolist()) for b in first} != {frozenset(b.tolist()) for b in other}


def test_shuffling_leaves_the_random_state_of_the_caller_alone():
    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    token_batches([(1, 2)] * 9, 10, 10, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)


def test_the_default_budgets_are_the_papers():
    batches = token_batches(np.full((30_000, 2), 10))
    assert [len(batch) for batch in batches] == [2500] * 12


def normal_lengths(number: int) -> np.ndarray:
    """Lengths of pairs whose sides are alike, as those of a corpus are."""
    rng = np.random.default_rng(0)
    target = np.clip(rng.normal(15, 5, number), 3, 60).astype(int)
    return np.stack([np.maximum(1, target + rng.integers(-3, 4, number)), target], axis=1)


def padding(lengths: np.ndarray, batches: list[np.ndarray]) -> float:
    cells = sum(len(batch) * lengths[batch].max(axis=0).sum() for batch in batches)
    return 1 - lengths.sum() / cells


def test_sorting_keeps_padding_small():
    lengths = normal_lengths(20_000)
    assert padding(lengths, token_batches(lengths, 2000, 2000, seed=0)) < 0.05
    by_target = np.array_split(np.argsort(lengths[:, 1], kind="stable"), 150)
    assert padding(lengths, by_target) > 0.08
    in_order = np.array_split(np.arange(len(lengths)), 150)
    assert padding(lengths, in_order) > 0.3


@pytest.mark.corpora
def test_padding_on_multi30k_stays_below_five_per_cent(multi30k):
    path = resource_path("models") / "multi30k-en-de" / "tokenizer.json"
    lengths = EncodedPairs.encode(Tokenizer.from_file(str(path)), *multi30k).lengths
    for budget in 2000, 25_000 // 8:
        assert padding(lengths, token_batches(lengths, budget, budget, seed=0)) < 0.05
    assert padding(lengths, token_batches(lengths, seed=0)) < 0.10


def test_millions_of_pairs_take_seconds():
    start = time.process_time()
    batches = token_batches(normal_lengths(1_000_000), seed=0)
    assert sum(map(len, batches)) == 1_000_000
    assert time.process_time() - start < 10


@pytest.mark.parametrize(("pair", "budgets"), [((11, 3), (10, 11)), ((3, 11), (11, 10))])
def test_a_pair_that_exceeds_a_budget_is_refused(pair, budgets):
    with pytest.raises(ValueError, match=rf"pair 1 with \[{pair[0]}, {pair[1]}\]"):
        token_batches([(1, 2), pair], *budgets)
    assert len(token_batches([(1, 2), pair], 22, 22)) == 1


def test_no_pairs_no_batches():
    assert token_batches([], 10, 10) == token_batches([], 10, 10, seed=1) == []


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


def test_padding_inside_the_target_is_masked_for_every_query():
    batch = Batch(torch.tensor([[1, 1]]), torch.tensor([[3, 4, 0, 0, 0]]), pad=0)
    assert batch.tgt_mask.int().tolist() == [
        [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0]]
    ]
    assert batch.ntokens == 1


@pytest.mark.parametrize(
    "wrong", [torch.ones(3).long(), torch.ones(2, 3), torch.ones(1, 2, 3).long()]
)
def test_a_batch_is_of_ids(wrong):
    right = torch.tensor([[4, 5, 6]])
    for name, sides in ("src", (wrong, right)), ("tgt", (right, wrong)):
        with pytest.raises(ValueError, match=rf"expected {name} as ids \(batch, len\)"):
            Batch(*sides)


def test_a_batch_has_pairs():
    with pytest.raises(ValueError, match="expected at least one pair for a batch; got none"):
        make_batch([])


def test_batch_without_target():
    batch = Batch(torch.tensor([[4, 0]]), pad=0)
    assert batch.src_mask.tolist() == [[[True, False]]]
    assert not hasattr(batch, "tgt")


def test_pad_ids():
    assert pad_ids([[1], [2, 3]], pad=9).tolist() == [[1, 9], [2, 3]]
    assert pad_ids([[1], []]).dtype == torch.int64


# ---------------------------------------------------------------------------------- reading files


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_lines_end_at_line_feeds_and_nowhere_else(tmp_path: Path, suffix: str):
    lines = ["one\x85two", "three\u2028four\u2029five", "six\x0bseven\x0ceight\x1cnine", "", "zehn"]
    path = tmp_path / f"text.en{suffix}"
    raw = "\n".join(lines).encode() + b"\n"
    path.write_bytes({"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[suffix](raw))
    assert read_lines(path) == lines


@pytest.mark.parametrize(
    ("raw", "lines"),
    [
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b" a \n\tb\n\n", [" a ", "\tb", ""]),
        ("\u00a0ä".encode(), ["\u00a0ä"]),
    ],
)
def test_ends_of_lines(tmp_path: Path, raw: bytes, lines: list[str]):
    (tmp_path / "text").write_bytes(raw)
    assert read_lines(tmp_path / "text") == lines


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_bytes_that_are_not_utf8_name_file_and_line(tmp_path: Path, suffix: str):
    path = tmp_path / f"text.de{suffix}"
    raw = "schön\n".encode() * 2 + "schön\n".encode("latin-1")
    path.write_bytes(gzip.compress(raw) if suffix else raw)
    with pytest.raises(
        ValueError, match=rf"{re.escape(str(path))}, line 3: expected UTF-8; got byte 0xf6"
    ):
        read_lines(path)


# ------------------------------------------------------------------------------------ broken pairs

BAD = "schön".encode("latin-1")


def test_bad_pairs_are_dropped_and_reported():
    source = [b"one", BAD, b"", "vier", b"a b c d", b"six", b" \t", b"eight", b"nine"]
    target = [b"eins", b"zwei", b"drei", "vier", b"a", BAD, b"sieben", b"a b c d"]
    kept, partners, report = clean_pairs(source, target, "drop", max_words=3, name="text")
    assert (kept, partners) == (["one", "vier"], ["eins", "vier"])
    assert report.good == 2
    assert report.bad == {
        "not UTF-8": [2, 6],
        "with an empty side": [3, 7],
        "longer than 3 words": [5, 8],
        "without a partner": [9],
    }
    assert str(report) == (
        "text: 2 good pairs of 9; 2 not UTF-8 (lines 2, 6); 2 with an empty side (lines 3, 7); "
        "2 longer than 3 words (lines 5, 8); 1 without a partner (line 9)"
    )


def test_a_report_names_the_first_lines_only():
    report = clean_pairs([b"x"] * 3000, [b""] * 3000, "drop")[2]
    assert str(report) == (
        "pairs: 0 good pairs of 3,000; 3,000 with an empty side (lines 1, 2, 3, 4, 5, …)"
    )


@pytest.mark.parametrize("sides", [([BAD], [b"x"]), ([b"x"], [""]), ([b"x"], []), ([], ["x"])])
def test_bad_pairs_are_refused_by_default(sides):
    with pytest.raises(ValueError, match=r'pairs: 0 good pairs of 1; .*line 1.*on_bad="drop"'):
        clean_pairs(*sides)


def test_good_pairs_pass_untouched():
    sides = ([" one ", "\u2028two"], ["eins\x85", "\u00a0zwei"])
    source, target, report = clean_pairs(*sides, max_words=2)
    assert (source, target) == sides and report.bad == {} and report.good == 2


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match="'ignore'"):
        clean_pairs([], [], on_bad="ignore")


LINES = st.lists(st.sampled_from([b"a", b"a b", b"", b" ", BAD, "ä".encode()]), max_size=12)


@given(LINES, LINES)
def test_every_pair_is_either_kept_or_reported(source, target):
    kept, partners, report = clean_pairs(source, target, "drop", max_words=1)
    bad = sorted(n for lines in report.bad.values() for n in lines)
    assert len(kept) == len(partners) == report.good
    assert len(bad) == len(set(bad)) == max(len(source), len(target)) - report.good
    good = [n for n in range(len(source)) if n + 1 not in bad]
    assert [source[n].decode() for n in good if n < len(target)] == kept


# ------------------------------------------------------------------------------- shapes of corpora


def tar(path: Path, members: dict[str, bytes], mode: str) -> None:
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


MEMBERS = {"a/other.en": b"no\n", "a/text.en": b"one\ntwo\n", "text.gz": gzip.compress(b"three\n")}


@pytest.mark.parametrize("suffix", ["tgz", "tar", "tar.xz", "zip"])
def test_a_member_of_an_archive(tmp_path: Path, suffix: str):
    path = tmp_path / f"archive.{suffix}"
    if suffix == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in MEMBERS.items():
                archive.writestr(name, content)
    else:
        tar(path, MEMBERS, {"tgz": "w:gz", "tar": "w", "tar.xz": "w:xz"}[suffix])
    assert list(part_lines(path, "a/text.en")) == [b"one\n", b"two\n"]
    assert list(part_lines(path, "text.gz")) == [b"three\n"]
    with pytest.raises(FileError, match=rf"expected missing in {re.escape(str(path))}"):
        list(part_lines(path, "missing"))


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ANNOTATED_DATA of our own, and no cache."""
    monkeypatch.setenv("ANNOTATED_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(data, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "data"


def put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_wmts_training_data_is_read_part_by_part(data_folder: Path):
    wmt = data_folder / "wmt"
    wmt.mkdir(parents=True)
    for archive, member, number in (
        ("training-parallel-europarl-v7.tgz", "training/europarl-v7.de-en", 1),
        ("training-parallel-commoncrawl.tgz", "commoncrawl.de-en", 2),
        ("training-parallel-nc-v9.tgz", "training/news-commentary-v9.de-en", 3),
    ):
        texts = {"en": f"e{number}\n\nE{number}\r\n", "de": f"d{number}\nx\nD{number}\n"}
        members = {f"{member}.{lang}": text.encode() for lang, text in texts.items()}
        tar(wmt / archive, members, "w:gz")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pairs = load_pairs("wmt14-en-de", "train", "en", "de")
    assert pairs == (["e1", "E1", "e2", "E2", "e3", "E3"], ["d1", "D1", "d2", "D2", "d3", "D3"])
    said = [str(warning.message) for warning in caught]
    assert len(said) == 3 and all("1 with an empty side (line 2)" in text for text in said)
    assert "commoncrawl.de-en.en: 2 good pairs of 3" in said[1]
    with pytest.raises(ValueError, match=r"europarl.*empty side"):
        load_pairs("wmt14-en-de", "train", "de", "en", on_bad="refuse")


def test_wmts_test_data_is_freed_of_its_markup(data_folder: Path):
    sgm = '<srcset>\n<p>\n<seg id="1"> A &amp; b. </seg>\n<seg id="2">C</seg>\n</p>\n'
    members = {
        "dev/newstest2014-deen-ref.en.sgm": sgm,
        "dev/newstest2014-deen-src.de.sgm": sgm.lower(),
    }
    (data_folder / "wmt").mkdir(parents=True)
    content = {name: text.encode() for name, text in members.items()}
    tar(data_folder / "wmt" / "dev.tgz", content, "w:gz")
    assert load_pairs("wmt14-en-de", "test", "en", "de") == (
        ["A &amp; b.", "C"],
        ["a &amp; b.", "c"],
    )
    assert load_pairs("news", "test", "de", "en")[1] == ["A &amp; b.", "C"]


def test_iwslt_is_divided_as_usual(data_folder: Path):
    def tagged(word: str) -> bytes:
        lines = [f"{word} {n}" for n in range(2, 47)]
        head = [
            "<url>x</url>",
            "<talkid>1</talkid>",
            f"<title>{word} 1</title>",
            "<speaker>x</speaker>",
        ]
        return "\n".join([*head, *lines, "<reviewer></reviewer>"]).encode()

    folder = data_folder / "iwslt14"
    folder.mkdir(parents=True)
    sides = {"de": "Zeile", "en": "line"}
    members = {f"de-en/train.tags.de-en.{lang}": tagged(word) for lang, word in sides.items()}
    for part in corpus_parts(find_corpus("iwslt14"), "test", "de", "en"):
        for name, word in zip(part, sides.values(), strict=True):
            members[name.removeprefix("de-en.tgz/")] = f'<seg id="1"> {word} </seg>\n'.encode()
    tar(folder / "de-en.tgz", members, "w:gz")
    dev = load_pairs("iwslt14", "dev", "de", "en")
    assert dev == (["Zeile 23", "Zeile 46"], ["line 23", "line 46"])
    train = load_pairs("iwslt14", "train", "en", "de")[0]
    assert train == [f"line {n}" for n in range(1, 46) if n != 23]
    assert load_pairs("iwslt14", "test", "de", "en") == (["Zeile"] * 5, ["line"] * 5)


TATOEBA = [
    f"{word} {n // 3}{'.!?'[n % 3]}\tÜbersetzung {n}" for word in ("Go", "Hi") for n in range(900)
]


@pytest.mark.parametrize("shape", ["tsv", "zip"])
def test_no_english_sentence_of_tatoeba_crosses_splits(data_folder: Path, shape: str):
    folder = data_folder / "tatoeba"
    folder.mkdir(parents=True)
    if shape == "tsv":
        (folder / "eng-deu.tsv.xz").write_bytes(lzma.compress("\n".join(TATOEBA).encode()))
    else:
        with zipfile.ZipFile(folder / "deu-eng.zip", "w") as archive:
            archive.writestr("deu.txt", "\n".join(f"{line}\tCC-BY 2.0" for line in TATOEBA))
    splits = {s: load_pairs("tatoeba", s, "en", "de") for s in ("train", "dev", "test")}
    pairs = [pair for split in splits.values() for pair in zip(*split, strict=True)]
    assert sorted(pairs) == sorted(tuple(line.split("\t")) for line in TATOEBA)
    words = {
        s: {re.sub(r"\W", "", e).lower() for e in english} for s, (english, _) in splits.items()
    }
    assert not words["train"] & (words["dev"] | words["test"]) and not words["dev"] & words["test"]
    assert 0 < len(words["dev"]) < 30 and 0 < len(words["test"]) < 30
    assert load_pairs("tatoeba", "dev", "de", "en") == splits["dev"][::-1]


def test_the_split_of_a_sentence_never_changes():
    """Where these fall was computed once; a change would move sentences of old models' training."""
    kinds = data._split_of(HeldOut("hash", 1, 1), [b"Run!", b"I resign.", b"Hi."])
    assert kinds == ["test", "dev", "train"]


def test_the_end_of_the_laws_is_held_out(data_folder: Path):
    folder = data_folder / "laws"
    folder.mkdir(parents=True)
    lines = [f"section {n}\tarticle {n}" for n in range(1, 5001)]
    (folder / "laws.en-fr.tsv.xz").write_bytes(lzma.compress("\n".join(lines).encode()))
    splits = [load_pairs("laws", s, "fr", "en")[0] for s in ("train", "dev", "test")]
    assert [len(split) for split in splits] == [1000, 2000, 2000]
    assert [line for split in splits for line in split] == [f"article {n}" for n in range(1, 5001)]


def test_bad_lines_of_a_shared_part_keep_their_numbers(data_folder: Path):
    folder = data_folder / "php"
    folder.mkdir(parents=True)
    lines = [f"a {n}\tb {n}".encode() for n in range(1, 3001)]
    lines[2500] = b"only English"  # line 2501 is of the test split
    (folder / "php.en-de.tsv.xz").write_bytes(lzma.compress(b"\n".join(lines)))
    assert len(load_pairs("php", "train", "en", "de")[0]) == 1000
    with pytest.raises(
        ValueError, match=r"999 good pairs of 1,000; 1 without a partner \(line 2501\)"
    ):
        load_pairs("php", "test", "en", "de")


@pytest.fixture
def local(data_folder: Path) -> Path:
    """The folder of Multi30k under an ANNOTATED_DATA of our own."""
    folder = data_folder / "multi30k"
    folder.mkdir(parents=True)
    return folder


def test_pairs_come_from_either_kind_of_file(local: Path):
    (local / "val.en").write_text("one\ntwo\n", encoding="utf-8")
    (local / "val.de.gz").write_bytes(gzip.compress(b"eins\nzwei\n"))
    assert load_pairs("multi30k", "dev", "en", "de") == (["one", "two"], ["eins", "zwei"])
    assert load_pairs("multi30k", "dev", "de", "en") == (["eins", "zwei"], ["one", "two"])


def test_sides_of_unequal_length_are_refused(local: Path):
    (local / "val.en").write_text("one\ntwo\n", encoding="utf-8")
    (local / "val.de").write_text("eins\nzwei\ndrei\n", encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"multi30k dev, val.en.gz: .*without a partner \(line 3\)"
    ):
        load_pairs("multi30k", "dev", "en", "de")
    with pytest.warns(UserWarning, match=r"2 good pairs of 3; 1 without a partner \(line 3\)"):
        kept = load_pairs("multi30k", "dev", "en", "de", on_bad="drop")
    assert kept == (["one", "two"], ["eins", "zwei"])


def test_long_pairs_go_when_they_shall(local: Path):
    (local / "val.en").write_text("one\ntwo and a half\n", encoding="utf-8")
    (local / "val.de").write_text("eins\nzweieinhalb\n", encoding="utf-8")
    assert len(load_pairs("multi30k", "dev", "en", "de")[0]) == 2
    with pytest.warns(UserWarning, match="1 longer than 3 words"):
        assert load_pairs("multi30k", "dev", "en", "de", "drop", max_words=3) == (["one"], ["eins"])


def test_a_missing_file_says_what_to_do(local: Path):
    with pytest.raises(FileNotFoundError) as error:
        load_pairs("multi30k", "test", "en", "de")
    assert "test_2016_flickr.en.gz" in str(error.value) and str(local) in str(error.value)
    assert "annotated data get multi30k" in str(error.value)


def test_a_folder_of_ones_own_is_a_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "train.en").write_text("one\ntwo\n\n", encoding="utf-8")
    (texts / "train.is.xz").write_bytes(lzma.compress(b"einn\ntveir\n\xc3\xberir\n"))
    with pytest.raises(ValueError, match=r"texts, train: .*line 3"):
        load_pairs(str(texts), "train", "en", "is")
    with pytest.warns(UserWarning, match="2 good pairs of 3"):
        kept = load_pairs(str(texts), "train", "is", "en", on_bad="drop")
    assert kept == (["einn", "tveir"], ["one", "two"])
    with pytest.raises(FileNotFoundError, match=r"expected dev\.en in .*texts"):
        load_pairs(str(texts), "dev", "en", "is")
    (texts / "dev.en").write_text("three\n", encoding="utf-8")
    (texts / "dev.is").write_text("þrír\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert load_pairs("texts", "dev", "en", "is") == (["three"], ["þrír"])


def test_a_name_of_the_register_is_never_taken_for_a_folder(local: Path, monkeypatch):
    (local / "val.en").write_text("registered\n", encoding="utf-8")
    (local / "val.de").write_text("eingetragen\n", encoding="utf-8")
    monkeypatch.chdir(local.parent)  # where there is a folder multi30k
    assert load_pairs("multi30k", "dev", "en", "de") == (["registered"], ["eingetragen"])


def test_corpora_add_up_in_order(tmp_path: Path):
    for folder, line in ("one", "1"), ("two", "2"):
        (tmp_path / folder).mkdir()
        for lang in "en", "de":
            (tmp_path / folder / f"dev.{lang}").write_text(f"{lang} {line}\n", encoding="utf-8")
    both = f"{tmp_path / 'two'}+{tmp_path / 'one'}"
    assert load_pairs(both, "dev", "en", "de") == (["en 2", "en 1"], ["de 2", "de 1"])
    with pytest.raises(ValueError, match="'three'"):
        load_pairs(f"{both}+three", "dev", "en", "de")


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("multi30k-en-de", ("multi30k", "en", "de")),
        ("wmt14-en-de", ("wmt14-en-de", "en", "de")),  # a corpus of one pair is named after it
        ("wmt14-de-en", ("wmt14-en-de", "de", "en")),
        ("my/own-texts-is-fo", ("my/own-texts", "is", "fo")),
        ("laws+news-en-fr", ("laws+news", "en", "fr")),
    ],
)
def test_data_is_named_with_its_languages(text: str, parsed: tuple[str, str, str]):
    assert parse_data(text) == parsed


@pytest.mark.parametrize("text", ["multi30k", "en-de", "-en-de", ""])
def test_data_without_corpus_or_languages_is_refused(text: str):
    with pytest.raises(ValueError, match="expected data as CORPUS-SRC-TGT"):
        parse_data(text)


def test_a_corpus_without_a_place_says_so(data_folder: Path):
    for fetch in None, True:
        with pytest.raises(FileNotFoundError, match=r"laws\.en-fr\.tsv\.xz in .*laws; no place"):
            load_pairs("laws", "train", "en", "fr", fetch=fetch)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("wmt13", "dev", "en", "de"), ["multi30k", "'wmt13'"]),
        (("multi30k", "val", "en", "de"), ["train, dev, test", "'val'"]),
        (("multi30k", "dev", "en", "cs"), ["en, de, fr", "'cs'"]),
        (("multi30k", "dev", "en", "en"), ["two languages", "'en', 'en'"]),
        (("tatoeba", "dev", "de", "fr"), ["English on one side of tatoeba", "'de', 'fr'"]),
    ],
)
def test_unknown_names_are_refused_with_the_known(local: Path, arguments, said):
    for lang in "en", "de":
        (local / f"val.{lang}").write_text("x\n", encoding="utf-8")
    with pytest.raises(ValueError) as error:
        load_pairs(*arguments)
    for part in said:
        assert part in str(error.value)


# ------------------------------------------------------------------------------------ downloading


class Server(http.server.ThreadingHTTPServer):
    """Serves `content` at every path; what it does wrong can be chosen."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = b""
        self.ranges = True  # whether it knows the header Range
        self.missing = False
        self.drops: list[int] = []  # after how many bytes it hangs up, one answer after another
        self.says: list[bytes | float | None] = []  # what it sends instead; pauses; None: a reset
        self.stubborn = False  # whether it says the same to everybody
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/folder/text.gz"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, asked = self.server, self.headers.get("Range")
        server.asked.append(asked)
        if server.says:
            return self.say(server.says if server.stubborn else list(server.says))
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and server.ranges else 0
        if server.missing:
            return self.send_error(404)
        if start and start >= len(server.content):
            return self.send_error(416)
        self.send_response(206 if start else 200)
        if start:
            end = len(server.content) - 1
            self.send_header("Content-Range", f"bytes {start}-{end}/{len(server.content)}")
        self.send_header("Content-Length", str(len(server.content) - start))
        self.end_headers()
        most = server.drops.pop(0) if server.drops else len(server.content)
        self.wfile.write(server.content[start:][:most])

    def say(self, said: list[bytes | float | None]) -> None:
        if not self.server.stubborn:
            self.server.says.clear()
        for what in said:
            if isinstance(what, bytes):
                self.wfile.write(what)
            elif what is None:
                self.connection.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
                self.connection.close()
            else:
                time.sleep(what)

    def log_message(self, *arguments: object) -> None:
        pass

    def log_error(self, *arguments: object) -> None:
        pass


def answer(
    body: bytes = b"", *headers: str, status: str = "200 OK", length: int | None = -1
) -> bytes:
    """An answer to a request; its length is told, told wrong, or (None) not told."""
    told = [] if length is None else [f"Content-Length: {len(body) if length < 0 else length}"]
    head = "\r\n".join([f"HTTP/1.1 {status}", "Connection: close", *told, *headers])
    return head.encode() + b"\r\n\r\n" + body


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server on this machine."""
    for name in "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY":
        monkeypatch.delenv(name, raising=False)
    with Server() as running:
        running.content = CONTENT
        thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


CONTENT = gzip.compress(np.random.default_rng(0).bytes(300_000), mtime=0)
OTHER = gzip.compress(np.random.default_rng(1).bytes(300_000), mtime=0)  # which is whole too
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def files(folder: Path) -> list[str]:
    """What lies in a folder, but for locks, which are empty and stay."""
    found = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return sorted(str(path) for path in found if path.suffix != ".lock")


def test_a_download_is_checked_and_placed(server: Server, tmp_path: Path, capsys):
    path = download(server.url, tmp_path / "cache" / "text.gz", len(CONTENT), SHA256)
    assert path == tmp_path / "cache" / "text.gz" and path.read_bytes() == CONTENT
    assert files(tmp_path) == ["cache/text.gz"] and server.asked == [None]
    assert "\n" not in capsys.readouterr().err  # the progress bar leaves nothing behind


@pytest.mark.parametrize("known", [True, False])
def test_a_download_goes_on_where_it_broke_off(server: Server, tmp_path: Path, known: bool):
    server.drops = [100_000, 50_000]
    size, sha256 = (len(CONTENT), SHA256) if known else (None, None)
    path = download(server.url, tmp_path / "text.gz", size, sha256)
    assert path.read_bytes() == CONTENT
    assert server.asked == [None, "bytes=100000-", "bytes=150000-"]


def test_a_download_goes_on_after_an_earlier_one(server: Server, tmp_path: Path):
    (tmp_path / "text.gz.part").write_bytes(CONTENT[:1234])
    assert download(server.url, tmp_path / "text.gz", sha256=SHA256).read_bytes() == CONTENT
    assert server.asked == ["bytes=1234-"] and files(tmp_path) == ["text.gz"]


def test_a_complete_part_is_not_fetched_again(server: Server, tmp_path: Path):
    (tmp_path / "text.gz.part").write_bytes(CONTENT)
    assert download(server.url, tmp_path / "text.gz", len(CONTENT), SHA256).read_bytes() == CONTENT
    assert server.asked == []


@pytest.mark.parametrize("longer", [CONTENT, CONTENT + b"x"])
def test_a_part_that_leaves_nothing_to_ask_for_starts_anew(server: Server, tmp_path: Path, longer):
    (tmp_path / "text.gz.part").write_bytes(longer)
    assert download(server.url, tmp_path / "text.gz", sha256=SHA256).read_bytes() == CONTENT
    assert server.asked == [f"bytes={len(longer)}-", None]


def test_a_server_that_ignores_ranges_starts_anew(server: Server, tmp_path: Path):
    server.ranges = False
    (tmp_path / "text.gz.part").write_bytes(b"something else")
    assert download(server.url, tmp_path / "text.gz", len(CONTENT), SHA256).read_bytes() == CONTENT
    assert server.asked == ["bytes=14-"]


def test_a_connection_that_brings_hardly_anything_is_given_up_and_nothing_lost(
    server: Server, tmp_path: Path
):
    server.drops = [20_000, 1000]
    with pytest.raises(OSError) as error:
        download(server.url, tmp_path / "text.gz", len(CONTENT), SHA256)
    for part in server.url, "21000 bytes are kept", "continues":
        assert part in str(error.value)
    assert (tmp_path / "text.gz.part").read_bytes() == CONTENT[:21_000]
    assert download(server.url, tmp_path / "text.gz", len(CONTENT), SHA256).read_bytes() == CONTENT


def test_nobody_answers(tmp_path: Path, server: Server):
    url = server.url
    server.shutdown()
    server.server_close()
    with pytest.raises(OSError, match=re.escape(url)):
        download(url, tmp_path / "text.gz")
    assert files(tmp_path) == []


def test_a_wrong_checksum_is_refused_and_what_was_there_stays(server: Server, tmp_path: Path):
    (tmp_path / "text.gz").write_bytes(b"old")
    with pytest.raises(ValueError) as error:
        download(server.url, tmp_path / "text.gz", sha256="0" * 64)
    assert server.url in str(error.value) and SHA256 in str(error.value)
    assert files(tmp_path) == ["text.gz"] and (tmp_path / "text.gz").read_bytes() == b"old"


def test_a_wrong_size_is_refused_before_it_is_fetched(server: Server, tmp_path: Path):
    with pytest.raises(ValueError, match=rf"expected 99 bytes; the server offers {len(CONTENT)}"):
        download(server.url, tmp_path / "text.gz", size=99)
    assert files(tmp_path) == []


def test_a_missing_file_names_its_url_and_a_place(server: Server, tmp_path: Path):
    server.missing = True
    with pytest.raises(OSError, match="404") as error:
        download(server.url, tmp_path / "text.gz")
    assert server.url in str(error.value) and str(tmp_path / "text.gz") in str(error.value)
    assert ".part" not in str(error.value) and files(tmp_path) == []


def test_an_unknown_checksum_is_told_and_remembered(server: Server, tmp_path: Path, capsys):
    download(server.url, tmp_path / "text.gz")
    assert f"text.gz: SHA-256 {SHA256}" in capsys.readouterr().err
    note = (tmp_path / "text.gz.sha256").read_text(encoding="utf-8")
    assert note == f"{SHA256}  text.gz\n"  # as sha256sum --check reads it
    (tmp_path / "text.gz").unlink()
    server.content = OTHER
    with pytest.raises(FileError, match="has changed at its source"):
        download(server.url, tmp_path / "text.gz")
    assert (tmp_path / "text.gz.sha256").read_text(encoding="utf-8") == note


PAGE = b"\xef\xbb\xbf\n<!DOCTYPE html><html><body>Please log in.</body></html>"
HALF = CONTENT[: len(CONTENT) // 2]
LIES = {  # what a server may say of a file whose sum is not known, and what is said to the reader
    "a page": (answer(PAGE, "Content-Type: text/html; charset=utf-8"), "sends a web page"),
    "a page without a type": (answer(PAGE), "got: a web page"),
    "a page of XHTML": (answer(b'<?xml version="1.0"?>\n<html xmlns="x">'), "got: a web page"),
    "a packed page": (answer(gzip.compress(PAGE), "Content-Encoding: gzip"), "got: a web page"),
    "nothing": (answer(), "got: nothing"),
    "nothing without a length": (answer(length=None), "got: nothing"),
    "no content": (answer(status="204 No Content", length=None), "the server answers 204"),
    "half": (answer(HALF, length=len(CONTENT)), "ended after|offers"),
    "half without a length": (answer(HALF, length=None), "got: Compressed file ended before"),
    "half as if it were all": (answer(HALF), "got: Compressed file ended before"),
    "half a chunk": (
        answer(b"ffff\r\n" + HALF[:1000], "Transfer-Encoding: chunked", length=None),
        "IncompleteRead",
    ),
    "a part": (
        answer(
            HALF, f"Content-Range: bytes 0-{len(HALF) - 1}/{len(CONTENT)}", status="206 Partial"
        ),
        "expected the file; the server answers 206",
    ),
    "garbage": (answer(CONTENT[50:]), "got: what begins with"),
    "packed garbage": (answer(CONTENT[:5000] + b"garbage" * 999), "got: "),
    "too much": (answer(CONTENT + b"garbage"), "got: Not a gzipped file"),
    "forbidden": (answer(b"no", status="403 Forbidden"), "403 Forbidden; a copy from elsewhere"),
    "nonsense": (b"\0\1\2\r\n\r\n", "text.gz: "),
    "a length of nonsense": (answer(HALF, "Content-Length: x", length=None), "got: Compressed"),
    "a circle": (answer(b"", "Location: text.gz", status="302 Found"), "infinite loop"),
    "a reset": (None, "reset by peer"),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_unknown_file_is_believed_only_if_it_is_whole(server: Server, tmp_path: Path, lie: str):
    said, told = LIES[lie]
    server.says, server.stubborn = [said], True
    with pytest.raises(FileError) as error:
        download(server.url, tmp_path / "text.gz")
    text = str(error.value)
    assert server.url in text and re.search(told, text) and "\n" not in text and len(text) < 600
    assert set(files(tmp_path)) <= {"text.gz.part"} and len(server.asked) < 15
    server.says = []  # and what is left behind is no obstacle to the truth
    assert download(server.url, tmp_path / "text.gz").read_bytes() == CONTENT
    assert files(tmp_path) == ["text.gz", "text.gz.sha256"]


@pytest.mark.parametrize("lie", LIES)
def test_no_answer_passes_for_a_file_whose_sum_is_known(server: Server, tmp_path: Path, lie: str):
    server.says, server.stubborn = [LIES[lie][0]], True
    with pytest.raises(FileError) as error:
        download(server.url, tmp_path / "text.gz", len(CONTENT), SHA256)
    assert server.url in str(error.value) and "\n" not in str(error.value)
    assert set(files(tmp_path)) <= {"text.gz.part"}


def ranged(start: int, total: object, body: bytes) -> bytes:
    span = f"Content-Range: bytes {start}-{start + len(body) - 1}/{total}"
    return answer(body, span, status="206 Partial Content")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (ranged(5, len(CONTENT), CONTENT[5:]), "expected the bytes from 100000 on; .*206 bytes 5-"),
        (answer(CONTENT[100_000:], status="206 Partial Content"), "expected the bytes from 100000"),
        (ranged(100_000, 400_000, CONTENT[100_000:]), "bytes; the server offers 400000"),
        (
            answer(OTHER + b"x"),
            f"expected {len(CONTENT)} bytes; the server offers {len(OTHER) + 1}",
        ),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_what_does_not_go_on_where_it_should_is_refused(server, tmp_path: Path, said, told, known):
    server.drops = [100_000]
    with pytest.raises(ConnectionError):  # the first half, as an earlier attempt has left it
        data._attempt(data._Arrival(server.url, tmp_path / "text.gz", len(CONTENT)))
    server.says, server.stubborn = [said], True
    with pytest.raises(FileError, match=told):
        data.fetch_url(server.url, tmp_path / "text.gz", len(CONTENT))
    if not known:
        server.says, server.drops, server.stubborn = [], [100_000], False
        arrival = data._Arrival(server.url, tmp_path / "new.gz", None)
        with pytest.raises(ConnectionError):
            data._attempt(arrival)
        server.says = [said]
        with pytest.raises(FileError, match=told):
            data._attempt(arrival)


def test_a_server_that_takes_back_what_it_sent_is_left_after_one_more_try(server, tmp_path: Path):
    (tmp_path / "text.gz.part").write_bytes(HALF)
    server.says, server.stubborn = [answer(status="416 Range Not Satisfiable")], True
    with pytest.raises(FileError, match="416 Range Not Satisfiable; a copy from elsewhere"):
        download(server.url, tmp_path / "text.gz", len(CONTENT), SHA256)
    assert server.asked == [f"bytes={len(HALF)}-", None]


def test_a_server_that_sends_more_than_it_should_is_stopped(server: Server, tmp_path: Path):
    server.says = [answer(CONTENT + b"x" * 500_000, length=None)]
    with pytest.raises(FileError, match=f"expected {len(CONTENT)} bytes; the server sends more"):
        download(server.url, tmp_path / "text.gz", len(CONTENT), SHA256)


def test_slow_is_not_dead(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(data, "_SILENCE", 0.5)
    head, body = (
        answer(length=len(CONTENT)),
        [CONTENT[i : i + 30_000] for i in range(0, 10**6, 30_000)],
    )
    server.says = [head, *(what for piece in body if piece for what in (0.1, piece))]
    assert download(server.url, tmp_path / "text.gz").read_bytes() == CONTENT
    assert server.asked == [None]


@pytest.mark.parametrize("end", [2.0, None], ids=["silence", "reset"])
def test_a_dead_connection_is_replaced_and_none_of_it_lost(server, tmp_path, monkeypatch, end):
    monkeypatch.setattr(data, "_SILENCE", 0.5)
    server.says = [answer(length=len(CONTENT)) + CONTENT[:20_001], 0.2, end]
    assert download(server.url, tmp_path / "text.gz").read_bytes() == CONTENT
    assert server.asked == [None, "bytes=20001-"]


@pytest.mark.parametrize("known", [True, False])
def test_threads_that_want_the_same_file_take_turns(server, tmp_path, known: bool, capsys):
    server.says = [answer(length=len(CONTENT)) + HALF, 0.5, CONTENT[len(HALF) :]]
    sums = (len(CONTENT), SHA256) if known else ()
    with ThreadPoolExecutor(8) as pool:
        found = list(
            pool.map(lambda _: download(server.url, tmp_path / "text.gz", *sums), range(8))
        )
    assert {path.read_bytes() for path in found} == {CONTENT} and server.asked == [None]
    assert files(tmp_path) == ["text.gz"] + ["text.gz.sha256"] * (not known)
    assert "another process downloads text.gz; waiting for it\n" in capsys.readouterr().err


def test_a_process_that_waits_for_another_goes_on_when_that_one_dies(server, tmp_path: Path):
    server.says = [answer(length=len(CONTENT)) + HALF, 60.0]  # to the first that comes
    place = tmp_path / "text.gz"
    code = (
        "import sys, pathlib; from annotated.data import download;"
        "download(sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])"
    )
    command = [sys.executable, "-c", code, server.url, str(place), str(len(CONTENT)), SHA256]
    with (
        subprocess.Popen(command, stderr=subprocess.DEVNULL) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        part = tmp_path / "text.gz.part"
        while other.poll() is None and not (part.exists() and part.stat().st_size == len(HALF)):
            time.sleep(0.05)
        job = pool.submit(download, server.url, place, len(CONTENT), SHA256)
        time.sleep(0.3)
        assert not job.done() and server.asked == [None]
        other.kill()
        assert job.result(60).read_bytes() == CONTENT
    assert files(tmp_path) == ["text.gz"]
    assert server.asked == [None, f"bytes={len(HALF)}-"]  # and nothing is fetched twice


CONLLU = b"# text = A dog\n" + b"1\tdog\t_\n" * 999


def packed(kind: str) -> bytes:
    """An archive with two texts."""
    made = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(made, "w") as archive:
            for name in "ab":
                archive.writestr(name, CONTENT)
    else:
        with tarfile.open(fileobj=made, mode=f"w:{kind}") as tar:
            for name in "ab":
                (info := tarfile.TarInfo(name)).size = len(CONTENT)
                tar.addfile(info, io.BytesIO(CONTENT))
    return made.getvalue()


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("a.tgz", packed("gz")),
        ("a.tar.gz", packed("gz")),
        ("a.tar.xz", packed("xz")),
        ("a.tar", packed("")),
        ("a.zip", packed("zip")),
        ("a.xz", lzma.compress(CONTENT)),
        ("a.gz", CONTENT),
    ],
)
def test_an_archive_tells_itself_whether_it_is_whole(tmp_path: Path, name: str, whole: bytes):
    path = tmp_path / "file"
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    path.write_bytes(whole)
    _check_complete(path, name, ends=False)
    cuts = [whole[:n] for n in (0, 1, 512, len(whole) // 2)]
    if name == "a.tar":  # without a sum of its own, but with zeros at its end
        cuts.append(whole[: 512 + -(-len(CONTENT) // 512) * 512])  # where the second member begins
    else:
        cuts += [whole[:-9], bytes(flipped), whole[:-4] + b"oops"]
    for broken in [*cuts, PAGE, b"x" * 9999]:
        path.write_bytes(broken)
        with pytest.raises(FileError, match=rf"{name}: expected the whole file; got: "):
            _check_complete(path, name, ends=False)


def test_a_packed_file_is_no_archive_for_that(tmp_path: Path):
    """Its own check is right at the end, but what it holds is cut off, or is no archive."""
    for inside in packed("")[:5000], b"x" * 9999:
        (tmp_path / "file").write_bytes(gzip.compress(inside))
        _check_complete(tmp_path / "file", "a.gz")
        with pytest.raises(FileError, match="expected the whole file"):
            _check_complete(tmp_path / "file", "a.tgz")


@pytest.mark.parametrize(
    ("said", "good"),
    [
        (answer(CONLLU), True),
        (answer(b"%x\r\n%s\r\n0\r\n\r\n" % (len(CONLLU), CONLLU), "Transfer-Encoding: chunked",
                length=None), True),
        (answer(CONLLU, length=None), False),  # nobody can tell whether this is all
        (answer(gzip.compress(CONLLU), "Content-Encoding: gzip"), False),
        (answer(b'{"error": "try again later"}'), False),
    ],
)  # fmt: skip
def test_a_text_is_whole_if_the_server_says_where_it_ends(server, tmp_path: Path, said, good):
    server.says = [said]
    if good:
        path = download(server.url, tmp_path / "a.conllu")
        assert path.read_bytes() == CONLLU and len(files(tmp_path)) == 2
    else:
        with pytest.raises(FileError, match=r"a\.conllu: expected the whole file; got: "):
            download(server.url, tmp_path / "a.conllu")
        assert files(tmp_path) == []


def test_a_broken_copy_that_somebody_put_there_is_named(tiny: Corpus, server: Server, tmp_path):
    corpus = replace(tiny, files={"text.gz": CorpusFile(url=server.url)})
    put(tmp_path / "cache" / "tiny" / "text.gz", HALF)
    with pytest.raises(FileError, match=r"cache/tiny/text\.gz: expected the whole file; got: Comp"):
        corpus_file(corpus, "text.gz")
    assert files(tmp_path) == ["cache/tiny/text.gz"] and server.asked == []


def test_a_note_that_is_no_sum_is_named(tiny: Corpus, server: Server, tmp_path: Path):
    corpus = replace(tiny, files={"text.gz": CorpusFile(url=server.url)})
    put(tmp_path / "cache" / "tiny" / "text.gz.sha256", b"")
    with pytest.raises(FileError, match=r"text\.gz\.sha256: expected the SHA-256 .*; delete it"):
        corpus_file(corpus, "text.gz")


@pytest.fixture
def tiny(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Corpus:
    """A corpus whose only file the server offers; its cache is empty."""
    monkeypatch.setattr(data, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.delenv("ANNOTATED_DATA", raising=False)
    entry = CorpusFile(len(CONTENT), SHA256, server.url)
    splits = {"train": ["text.gz/{lang}"]}
    languages = ["en", "de"]
    return Corpus("tiny", "", "", "", languages, "tiny", splits, {"text.gz": entry})


def test_a_corpus_file_is_fetched_once(tiny: Corpus, server: Server, tmp_path: Path):
    for _ in range(2):
        assert corpus_file(tiny, "text.gz") == tmp_path / "cache" / "tiny" / "text.gz"
    assert list(corpus_files(tiny)) == [tmp_path / "cache" / "tiny" / "text.gz"]
    assert len(server.asked) == 1


def test_a_spoilt_copy_is_fetched_again(tiny: Corpus, server: Server, tmp_path: Path):
    put(tmp_path / "cache" / "tiny" / "text.gz", b"spoilt")
    assert corpus_file(tiny, "text.gz").read_bytes() == CONTENT


@pytest.mark.parametrize("known", [True, False])
def test_a_copy_that_somebody_put_there_is_taken(tiny: Corpus, server: Server, tmp_path, known):
    corpus = tiny if known else replace(tiny, files={"text.gz": CorpusFile(url=server.url)})
    put(tmp_path / "cache" / "tiny" / "text.gz", CONTENT)
    assert corpus_file(corpus, "text.gz").read_bytes() == CONTENT
    assert server.asked == []


def test_a_later_change_of_an_unknown_file_is_noticed(tiny: Corpus, server: Server, tmp_path: Path):
    corpus = replace(tiny, files={"text.gz": CorpusFile(url=server.url)})
    path = corpus_file(corpus, "text.gz")
    path.write_bytes(b"spoilt")
    assert corpus_file(corpus, "text.gz").read_bytes() == CONTENT  # fetched again, and right
    server.content = OTHER
    path.write_bytes(b"spoilt")
    with pytest.raises(ValueError, match="has changed"):
        corpus_file(corpus, "text.gz")


def test_whether_to_download_can_be_said(tiny: Corpus, server: Server, tmp_path: Path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="annotated data get tiny"):
        corpus_file(tiny, "text.gz", fetch=False)
    monkeypatch.setenv("ANNOTATED_DATA", str(tmp_path / "data"))
    with pytest.raises(FileNotFoundError, match="annotated data get tiny"):
        corpus_file(tiny, "text.gz")
    assert server.asked == []
    assert corpus_file(tiny, "text.gz", fetch=True).read_bytes() == CONTENT
    assert corpus_file(tiny, "text.gz").read_bytes() == CONTENT  # in the cache by now
    put(tmp_path / "data" / "tiny" / "text.gz", b"mine")
    assert corpus_file(tiny, "text.gz").read_bytes() == b"mine"  # a file of one's own comes first


# ------------------------------------------------------------------------------------ the register

CORPORA = pytest.mark.parametrize("corpus", known_corpora().values(), ids=list(known_corpora()))


def every_part(corpus: Corpus) -> Iterator[str]:
    for split in corpus.splits:
        for foreign in set(corpus.languages) - {"en"}:
            for pair in corpus_parts(corpus, split, "en", foreign):
                yield from pair


@CORPORA
def test_the_register_is_complete(corpus: Corpus, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ANNOTATED_DATA", raising=False)
    languages = len(corpus.languages) > 1  # a treebank may be there to measure with alone
    assert {"train", "dev", "test"} <= set(corpus.splits) if languages else corpus.splits
    assert corpus.source.startswith("https://") and corpus.title and corpus.licence
    assert corpus.on_bad in ("refuse", "drop") and set(corpus.local) <= set(corpus.splits)
    named = {part.partition("/")[0] for part in every_part(corpus)}
    assert named <= set(corpus.files)
    for name, entry in corpus.files.items():
        assert (entry.size is None) == (entry.sha256 is None)
        assert re.fullmatch("[0-9a-f]{64}", entry.sha256 or "0" * 64)
        assert entry.size is None or entry.size > 0
        url = entry.url or f"{corpus.url}/{name}"
        assert url.startswith("https://") or not corpus.url
        assert url.endswith("/" + name) or "/archive/" in url  # there GitHub names it by its tag
    if corpus.held_out:
        assert corpus.splits["dev"] == corpus.splits["train"]


def test_a_file_of_two_corpora_is_the_same():
    seen: dict[tuple[str, str], CorpusFile] = {}
    for corpus in known_corpora().values():
        for name, entry in corpus.files.items():
            assert seen.setdefault((corpus.folder, name), entry) == entry


@pytest.mark.corpora
@CORPORA
def test_files_at_hand_are_those_of_the_register(corpus: Corpus):
    checked = 0
    for name, entry in corpus.files.items():
        with contextlib.suppress(FileNotFoundError):
            path = corpus_file(corpus, name, fetch=False)
            assert path.stat().st_size == entry.size
            assert hashlib.sha256(path.read_bytes()).hexdigest() == entry.sha256
            checked += 1
    if not checked:
        pytest.skip(f"ANNOTATED_DATA holds nothing of {corpus.name}")


@pytest.mark.corpora
@pytest.mark.parametrize(
    ("corpus", "foreign", "sizes"),
    [
        ("multi30k", "de", {"train": 29_000, "dev": 1_014, "test": 1_000}),
        ("tatoeba", "fr", {"train": 163_774, "dev": 1_653, "test": 1_703}),
        ("php", "de", {"train": 16_312, "dev": 1_000, "test": 1_000}),
        ("news", "fr", {"train": 13_573, "dev": 3_000}),
        ("wmt14-en-de", "de", {"dev": 3_000}),
    ],
)
def test_real_corpora_have_the_sizes_that_they_should(corpus: str, foreign: str, sizes):
    for split, size in sizes.items():
        try:
            src, tgt = load_pairs(corpus, split, "en", foreign, fetch=False)
        except FileNotFoundError:
            pytest.skip(f"ANNOTATED_DATA holds nothing of {corpus}")
        assert len(src) == len(tgt) == size and all(src) and all(tgt)


@pytest.mark.parametrize("name", ["a.gz", "a.xz", "a.zip", "a.tar"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str):
    path = tmp_path / name
    path.write_bytes(b"no archive")
    with pytest.raises(
        FileError, match=rf"{name}: expected a whole file of the kind that its name"
    ):
        list(part_lines(path, "" if name in ("a.gz", "a.xz") else "member"))
    whole = gzip.compress(b"some words, and more of them")
    (tmp_path / "cut.gz").write_bytes(whole[:-9])
    with pytest.raises(ValueError, match=r"cut\.gz: expected a whole file"):
        read_lines(tmp_path / "cut.gz")


def test_a_byte_order_mark_is_no_letter(tmp_path: Path):
    (tmp_path / "a.txt").write_bytes("\ufeffA dog\n\ufeffruns\n".encode())
    assert read_lines(tmp_path / "a.txt") == ["A dog", "\ufeffruns"]
    for split in "train", "dev":
        for lang in "en", "de":
            (tmp_path / f"{split}.{lang}").write_bytes("\ufeffA dog\n".encode())
    assert load_pairs(str(tmp_path), "train", "en", "de") == (["A dog"], ["A dog"])


def test_a_pair_without_tokens_is_refused():
    with pytest.raises(ValueError, match="expected tokens on both sides; pair 1 lacks them"):
        token_batches([[3, 4], [2, 0]])


# --------------------------------------------------------------------------------- hostile input


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('licence = "f', 'license = "f', r"multi30k: expected settings out of .*; got license"),
        ("languages = [", "#", r"multi30k: expected a setting languages; it is missing"),
        (
            'languages = ["en", "de", "fr"]',
            "languages = 3",
            r"multi30k: .*languages as list",
        ),
        (
            "sha256 =",
            "sha265 =",
            r"multi30k, files, train\.en\.gz: .* got sha265",
        ),
        ("size = 568929", 'size = "1"', r"train\.en\.gz: expected size as int \| None; got '1'"),
        ('"test_2017_flickr.en.gz" = {}', '"a.gz" = 3', r"files, a\.gz: expected settings by name"),
        ('\nby = "hash"', '\nby = "luck"', r"tatoeba, held_out: .*expected by as .*luck"),
        ('\nby = "end"', "", r"laws, held_out: expected a setting by; it is missing"),
        ("train.{lang}.gz", "train.{land}.gz", r"multi30k: .*placeholders out of .*; got 'land'"),
        ('on_bad = "drop"', 'on_bad = "drip"', r"wmt14-en-de: .*expected on_bad as .*'drip'"),
        ("[news.local]", "[news.locale]", r"news: expected settings out of .*; got locale"),
        ("[multi30k]", "odd = 3\n[multi30k]", r"odd: expected the table of a corpus; got 3"),
        ("[multi30k]", "[multi30k", r": expected a register of corpora; got: "),
    ],
)
def test_a_register_with_a_mistake_names_corpus_and_key(tmp_path, monkeypatch, old, new, told):
    text = resource_path("corpora.toml").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "corpora.toml").write_text(text.replace(old, new, 1), encoding="utf-8")
    monkeypatch.setattr(data, "shipped", lambda name: tmp_path / name)
    with pytest.raises(FileError, match=f"corpora.toml.*{told}") as error:
        known_corpora()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("suffix", ["tgz", "tar.xz", "zip", "gz"])
def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path: Path, suffix: str):
    huge, path = b"short\n" + b"x" * (64 << 20), tmp_path / f"a.{suffix}"
    if suffix == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("m", huge)
    elif suffix == "gz":
        path.write_bytes(gzip.compress(huge))
    else:
        tar(path, {"m": huge}, {"tgz": "w:gz", "tar.xz": "w:xz"}[suffix])
    del huge
    tracemalloc.start()
    with pytest.raises(FileError, match=r"a\.\w+.*, line 2: longer than 1,048,576 bytes"):
        list(part_lines(path, "" if suffix == "gz" else "m"))
    assert tracemalloc.get_traced_memory()[1] < 12 << 20
    tracemalloc.stop()
    (tmp_path / "edge").write_bytes(b"x" * ((1 << 20) - 1) + b"\ny\n")
    assert [len(line) for line in read_lines(tmp_path / "edge")] == [(1 << 20) - 1, 1]


def test_texts_of_an_archive_are_limited_together(tmp_path: Path, monkeypatch):
    tar(tmp_path / "a.tgz", {"a.txt": b"x\n" * 40, "b.txt": b"y\n" * 40, "c": b"z" * 999}, "w:gz")
    assert archive_texts(tmp_path / "a.tgz", (".txt",)) == {
        "a.txt": "\n".join("x" * 40),
        "b.txt": "\n".join("y" * 40),
    }
    monkeypatch.setattr(data, "_MOST", 159)
    with pytest.raises(FileError, match=r"a\.tgz: expected at most 159 bytes of texts; got more"):
        archive_texts(tmp_path / "a.tgz", (".txt",))
    with pytest.raises(MissingFile, match=r"expected a whole archive at .*b\.tgz"):
        archive_texts(tmp_path / "b.tgz", (".txt",))


def test_too_few_lines_to_hold_any_out_are_refused(data_folder: Path):
    put(data_folder / "laws" / "laws.en-fr.tsv.xz", lzma.compress(b"a\tb\n" * 3999))
    with pytest.raises(FileError, match=r"laws\.en-fr\.tsv\.xz: .* 3999 lines, of which 4000"):
        load_pairs("laws", "dev", "en", "fr")


@given(st.text(st.characters(categories=["Cs", "Lu", "So"]), max_size=8))
def test_lone_surrogates_become_the_replacement_character(text: str):
    """Compared with a walk over the text: a high half and a low one make a character."""
    expected, rest = "", text
    while rest:
        high, low = ord(rest[0]), ord(rest[1]) if len(rest) > 1 else 0
        pair = 0xD800 <= high < 0xDC00 <= low < 0xE000
        lone = "\ufffd" if 0xD800 <= high < 0xE000 else rest[0]
        expected += chr(0x10000 + (high - 0xD800 << 10) + low - 0xDC00) if pair else lone
        rest = rest[2:] if pair else rest[1:]
    assert _well_formed(text) == expected
    assert encode_source(BPE, [text]) == encode_source(BPE, [expected])


def test_a_line_that_is_no_text_costs_the_others_nothing():
    bad = ["one \ud83d", "\udcf6n", "cafe\u0301"]
    good = ["one \ufffd", "\ufffdn", "cafe\u0301"]
    assert encode_target(BPE, bad) == encode_target(BPE, good)
    pairs, expected = EncodedPairs.encode(BPE, bad, bad), EncodedPairs.encode(BPE, good, good)
    assert [pairs[i] for i in range(3)] == [expected[i] for i in range(3)]
    for train in train_bpe, train_wordpiece:
        assert train(bad, 40).to_str() == train(good, 40).to_str()


@pytest.mark.parametrize("wrong", ["text", b"text", None, 3, [None], [3], [b"text"], [["text"]]])
def test_what_is_no_list_of_sentences_is_refused(wrong):
    for use in (
        lambda: encode_source(BPE, wrong),
        lambda: encode_target(BPE, wrong),
        lambda: learn_vocabulary("bpe", wrong, 100),
    ):
        with pytest.raises(ValueError, match=r"expected (text|several sentences); got "):
            use()


@pytest.mark.parametrize("size", [2, 4, 0, -1, None, 40.0, "40", True])
def test_a_vocabulary_has_room_for_more_than_symbols(size):
    with pytest.raises(ValueError, match=r"vocab_size( of at least 5)?; got"):
        learn_vocabulary("bpe", TEXT, size)


@pytest.mark.parametrize(
    "rows", [[], (), None, 3, [3], [None], ["ab"], [b"ab"], [[1.5]], [["a"]], [[None]], [[True]],
             [[1], 2], [[[1]]], [[10**30]], "ab", b"ab"],
)  # fmt: skip
def test_what_is_no_list_of_ids_is_refused(rows):
    with pytest.raises(ValueError, match="expected lists of ids, at least one; got "):
        pad_ids(rows)


def test_ids_come_in_any_sequence():
    for kind in tuple, np.array, torch.tensor:
        found = pad_ids([kind([5, 6, 7]), kind([8])])
        assert found.tolist() == [[5, 6, 7], [8, PAD, PAD]] and found.dtype == torch.int64
    assert pad_ids([[], []]).shape == (2, 0) and pad_ids([[], []]).dtype == torch.int64


@pytest.mark.parametrize("budget", [0, -5, None, 10.0, "10", True, float("inf"), float("nan")])
def test_a_silly_budget_is_refused(budget):
    for side in "src_tokens", "tgt_tokens":
        with pytest.raises(ValueError, match=f"{side}( of at least 1)?; got"):
            token_batches([(1, 2)], **{side: budget})


@pytest.mark.parametrize(
    "lengths",
    [[1, 2], [[1, 2, 3]], [[1.5, 2.0]], [["a", "b"]], [[True, True]], [[[1, 2]]], 7, "ab"],
)
def test_lengths_are_two_whole_numbers_a_pair(lengths):
    with pytest.raises(ValueError, match=r"expected whole numbers \(pairs, 2\); got "):
        token_batches(lengths)


def test_a_budget_without_end_makes_one_batch():
    lengths = normal_lengths(100)
    for budget in 10**9, 2**63 - 1, 10**30:
        (batch,) = token_batches(lengths, budget, budget, seed=0)
        assert sorted(batch) == list(range(100))
