"""Section 5.1: files to sentences, sentences to pieces, pieces to batches."""

import contextlib
import functools
import gzip
import hashlib
import http.server
import os
import re
import threading
import unicodedata
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from annotated import data
from annotated.data import (
    END,
    PAD,
    SPECIALS,
    START,
    UNK,
    Batch,
    Corpus,
    corpora,
    corpus_file,
    encode_source,
    encode_target,
    find_corpus,
    load_pairs,
    make_batch,
    pad_ids,
    read_lines,
    token_batches,
    train_bpe,
)

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


@given(st.lists(st.sampled_from(UNITS)).map("".join))
def test_what_decoding_gives_back(text: str):
    """Everything but the form of accents (NFC) and one space at the very beginning."""
    expected = unicodedata.normalize("NFC", text).removeprefix(" ")
    assert BPE.decode(BPE.encode(text).ids) == expected


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


# ---------------------------------------------------------------------------------------- batches

PAIRS = st.lists(
    st.tuples(st.integers(1, 12), st.integers(2, 12)).map(lambda n: ([7] * n[0], [8] * n[1])),
    max_size=60,
)
SEEDS = st.none() | st.integers(0, 5)


@given(PAIRS, st.integers(12, 50), SEEDS)
def test_batches_use_every_pair_once_and_keep_the_budget(pairs, budget, seed):
    batches = token_batches(pairs, budget, seed)
    assert sorted(i for batch in batches for i in batch) == list(range(len(pairs)))
    for indices in batches:
        assert indices
        batch = make_batch([pairs[i] for i in indices])
        assert batch.src.numel() <= budget
        assert batch.tgt.numel() + len(indices) <= budget  # with the token that tgt leaves out


@given(PAIRS, st.integers(12, 50))
def test_a_batch_ends_only_where_the_next_pair_would_not_fit(pairs, budget):
    for batch, after in pairwise(token_batches(pairs, budget)):
        joined = [*batch, after[0]]
        longest = max(len(side) for i in joined for side in pairs[i])
        assert longest * len(joined) > budget


def test_length_order_without_a_seed():
    pairs = [([1] * (1 + i % 7), [1] * (2 + i % 5)) for i in range(40)]
    flat = [i for batch in token_batches(pairs, 20) for i in batch]
    lengths = [(len(pairs[i][1]), len(pairs[i][0])) for i in flat]
    assert lengths == sorted(lengths)
    assert token_batches(pairs, 20) == token_batches(pairs, 20)


def test_a_seed_shuffles_and_can_be_repeated():
    pairs = [([1] * (2 + i % 9), [1] * (2 + i % 9)) for i in range(300)]
    first, again, other = (token_batches(pairs, 60, seed) for seed in (1, 1, 2))
    assert first == again != other
    lengths = [len(pairs[batch[0]][1]) for batch in first]
    assert lengths != sorted(lengths)  # the batches come in no order of length
    assert {frozenset(b) for b in first} != {frozenset(b) for b in other}  # and differ inside


def test_shuffling_leaves_the_random_state_of_the_caller_alone():
    state = torch.get_rng_state()
    token_batches([([1], [1, 2])] * 9, 10, seed=3)
    assert torch.equal(torch.get_rng_state(), state)


def test_sorting_keeps_padding_small():
    generator = torch.Generator().manual_seed(0)
    lengths = (torch.randn(2000, generator=generator) * 5 + 15).clamp(3, 40).int().tolist()
    shifts = torch.randint(-2, 3, (2000,), generator=generator).tolist()
    pairs = [([1] * max(1, n + d), [1] * n) for n, d in zip(lengths, shifts, strict=True)]
    batches = [make_batch([pairs[i] for i in b]) for b in token_batches(pairs, 2000, seed=0)]
    for side in "src", "tgt":
        tensors = [getattr(batch, side) for batch in batches]
        padded = sum(int((t == PAD).sum()) for t in tensors) / sum(t.numel() for t in tensors)
        assert padded < (0.15 if side == "src" else 0.03)


@pytest.mark.parametrize("pair", [([1] * 11, [1] * 3), ([1] * 3, [1] * 11)])
def test_a_pair_that_exceeds_the_budget_is_refused(pair):
    with pytest.raises(ValueError, match="at most 10 tokens; pair 1 has 11"):
        token_batches([([1], [1, 2]), pair], 10)
    assert len(token_batches([([1], [1, 2]), pair], 11)) == 2


def test_no_pairs_no_batches():
    assert token_batches([], 10) == token_batches([], 10, seed=1) == []


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


def test_batch_without_target():
    batch = Batch(torch.tensor([[4, 0]]), pad=0)
    assert batch.src_mask.tolist() == [[[True, False]]]
    assert not hasattr(batch, "tgt")


def test_pad_ids():
    assert pad_ids([[1], [2, 3]], pad=9).tolist() == [[1, 9], [2, 3]]
    assert pad_ids([[1], []]).dtype == torch.int64


# ---------------------------------------------------------------------------------- reading files


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_lines_end_at_line_feeds_and_nowhere_else(tmp_path: Path, suffix: str):
    lines = ["one\x85two", "three\u2028four\u2029five", "six\x0bseven\x0ceight\x1cnine", "", "zehn"]
    path = tmp_path / f"text.en{suffix}"
    raw = "\n".join(lines).encode() + b"\n"
    path.write_bytes(gzip.compress(raw) if suffix else raw)
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
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}, line 3: not UTF-8"):
        read_lines(path)


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of Multi30k under an ANNOTATED_DATA of our own."""
    monkeypatch.setenv("ANNOTATED_DATA", str(tmp_path))
    folder = tmp_path / "multi30k"
    folder.mkdir()
    return folder


def test_pairs_come_from_either_kind_of_file(local: Path):
    (local / "val.en").write_text("one\ntwo\n", encoding="utf-8")
    (local / "val.de.gz").write_bytes(gzip.compress(b"eins\nzwei\n"))
    assert load_pairs("multi30k", "dev", "en", "de") == (["one", "two"], ["eins", "zwei"])
    assert load_pairs("multi30k", "dev", "de", "en") == (["eins", "zwei"], ["one", "two"])


def test_sides_of_unequal_length_are_refused(local: Path):
    (local / "val.en").write_text("one\ntwo\n", encoding="utf-8")
    (local / "val.de").write_text("eins\nzwei\ndrei\n", encoding="utf-8")
    with pytest.raises(ValueError, match="as many en as de lines in multi30k dev; got 2 and 3"):
        load_pairs("multi30k", "dev", "en", "de")


def test_a_missing_file_says_what_to_do(local: Path):
    with pytest.raises(FileNotFoundError) as error:
        load_pairs("multi30k", "test", "en", "de")
    assert "test_2016_flickr.en.gz" in str(error.value) and str(local) in str(error.value)
    assert "ANNOTATED_DATA" in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("wmt13", "dev", "en", "de"), ["multi30k", "'wmt13'"]),
        (("multi30k", "val", "en", "de"), ["train, dev, test", "'val'"]),
        (("multi30k", "dev", "en", "cs"), ["en, de, fr", "'cs'"]),
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


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        self.server.requests.append(self.path)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, http.server.ThreadingHTTPServer]]:
    """A folder that a server on this machine offers."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.requests = []
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield folder, server
        server.shutdown()
        thread.join()


GOOD = gzip.compress(b"Guten Tag\n")


@pytest.fixture
def cache(tmp_path: Path, served, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a register whose only corpus the server offers."""
    pooch = pytest.importorskip("pooch")
    folder = tmp_path / "cache"
    monkeypatch.setattr(pooch, "os_cache", lambda project: folder / project)
    monkeypatch.delenv("ANNOTATED_DATA", raising=False)
    for name in "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY":
        monkeypatch.delenv(name, raising=False)
    sha256 = hashlib.sha256(GOOD).hexdigest()
    corpus = Corpus(
        name="tiny",
        title="",
        source="",
        licence="",
        languages=["de"],
        folder="tiny",
        url=f"http://127.0.0.1:{served[1].server_address[1]}",
        splits={"train": "train.{lang}.gz"},
        files={"train.de.gz": {"size": len(GOOD), "sha256": sha256}},
    )
    monkeypatch.setattr(data, "corpora", lambda: {"tiny": corpus})
    return folder / "annotated" / "tiny"


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_download_is_checked_and_kept(cache: Path, served):
    folder, server = served
    (folder / "train.de.gz").write_bytes(GOOD)
    path = corpus_file(find_corpus("tiny"), "train", "de")
    assert path == cache / "train.de.gz" and path.read_bytes() == GOOD
    assert read_lines(path) == ["Guten Tag"]
    assert files(cache) == ["train.de.gz"]
    corpus_file(find_corpus("tiny"), "train", "de")
    assert server.requests == ["/train.de.gz"]  # the second time it is on this machine


def test_a_download_with_another_checksum_is_refused(cache: Path, served):
    folder, _ = served
    (folder / "train.de.gz").write_bytes(GOOD[:-1])  # as if cut off
    with pytest.raises(ValueError, match=r"(?i)hash") as error:
        corpus_file(find_corpus("tiny"), "train", "de")
    assert "\n" not in str(error.value)
    assert files(cache) == []


def test_a_download_that_fails_leaves_nothing(cache: Path, served):
    with pytest.raises(OSError, match="404"):
        corpus_file(find_corpus("tiny"), "train", "de")
    assert not cache.exists() or files(cache) == []


def test_a_spoilt_copy_is_fetched_again(cache: Path, served):
    (served[0] / "train.de.gz").write_bytes(GOOD)
    cache.mkdir(parents=True)
    (cache / "train.de.gz").write_bytes(b"spoilt")
    assert corpus_file(find_corpus("tiny"), "train", "de").read_bytes() == GOOD


# ------------------------------------------------------------------------------------ the register


@pytest.mark.parametrize("corpus", corpora().values(), ids=list(corpora()))
def test_the_register_is_complete(corpus: Corpus):
    named = {p.format(lang=lang) for p in corpus.splits.values() for lang in corpus.languages}
    assert set(corpus.files) == named
    assert {"train", "dev", "test"} <= set(corpus.splits)
    assert corpus.url.startswith("https://") and not corpus.url.endswith("/")
    assert corpus.source.startswith("https://") and corpus.title and corpus.licence
    digests = [entry["sha256"] for entry in corpus.files.values()]
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests)
    assert len(set(digests)) == len(digests)
    assert all(entry["size"] > 0 for entry in corpus.files.values())


@pytest.mark.parametrize("corpus", corpora().values(), ids=list(corpora()))
def test_files_at_hand_are_those_of_the_register(corpus: Corpus):
    if "ANNOTATED_DATA" not in os.environ:
        pytest.skip("no corpora at hand: ANNOTATED_DATA is not set")
    checked = 0
    for split in corpus.splits:
        for lang in corpus.languages:
            with contextlib.suppress(FileNotFoundError):
                path = corpus_file(corpus, split, lang)
                entry = corpus.files[path.name]
                assert path.stat().st_size == entry["size"]
                assert hashlib.sha256(path.read_bytes()).hexdigest() == entry["sha256"]
                checked += 1
    if not checked:
        pytest.skip(f"ANNOTATED_DATA holds nothing of {corpus.name}")


def test_multi30k_has_the_sentences_that_the_chapter_speaks_of():
    if "ANNOTATED_DATA" not in os.environ:
        pytest.skip("no corpora at hand: ANNOTATED_DATA is not set")
    sizes = {"train": 29_000, "dev": 1_014, "test": 1_000}
    for split, size in sizes.items():
        src, tgt = load_pairs("multi30k", split, "en", "de")
        assert len(src) == len(tgt) == size and all(src) and all(tgt)
