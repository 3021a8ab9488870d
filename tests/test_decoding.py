"""Section 6.1: search finds what a plain loop finds, and a model survives its files."""

import json
import math
import os
import re
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from annotated.data import END, PAD, START, Batch, encode_source, pad_ids, shipped, train_bpe
from annotated.decoding import Translator, greedy_decode, load_pretrained
from annotated.model import EncoderDecoder, make_model
from annotated.training import save_model

V = 9
SHIPPED = shipped("models") / "multi30k-en-de"


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


@given(SOURCES, st.integers(1, 9), st.integers(0, 8))
def test_search_says_what_a_plain_loop_says(sources, max_len, seed):
    model = wild(seed=seed)
    found = search(model, sources, max_len).tolist()
    assert found == [step_by_step(model, src, max_len) for src in sources]


@given(SOURCES, st.integers(2, 12), st.integers(0, 8), st.integers(3, V - 1))
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
        for seed in range(9)
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


# ----------------------------------------------------------------------------- from text to text

WORDS = "one two three four five six seven eight nine"
TOKENIZER = train_bpe([WORDS] * 2, 60)
SENTENCES = st.lists(
    st.lists(st.sampled_from(WORDS.split()), max_size=6).map(" ".join), min_size=1, max_size=4
)


@settings(max_examples=10)
@given(SENTENCES, st.integers(1, 4))
def test_a_sentence_alone_or_in_company(sentences: list[str], batch_size: int):
    """No batch, no neighbour and no order changes a translation."""
    translator = Translator(wild(60, seed=3), TOKENIZER)
    alone = [translator.translate(sentence) for sentence in sentences]
    assert translator.translate_all(sentences, batch_size) == alone


def never_end(module: nn.Module, inputs: object, log_probs: torch.Tensor) -> torch.Tensor:
    return log_probs.index_fill(-1, torch.tensor(END), -math.inf)


def test_an_output_is_at_most_fifty_tokens_longer_than_its_own_input():
    model = wild(60, seed=3)
    model.generator.register_forward_hook(never_end)
    sources = encode_source(TOKENIZER, ["one", WORDS])
    lengths = [len(ids) for ids in Translator(model, TOKENIZER).search(sources)]
    assert lengths == [len(source) + 50 for source in sources]


def test_special_symbols_are_not_said():
    class Scripted(Translator):
        def search(self, sources: list[list[int]]) -> list[list[int]]:
            said = self.tokenizer.encode("two three").ids
            return [[START, *said, END, END, PAD] for _ in sources]

    assert Scripted(wild(60), TOKENIZER).translate_all(["one", "two"]) == ["two three"] * 2


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


@pytest.fixture(scope="module")
def translator() -> Translator:
    if not (SHIPPED / "model.safetensors").exists():
        pytest.skip(f"no trained model in {SHIPPED}")
    return load_pretrained("multi30k-en-de")


def test_the_shipped_model_translates(translator: Translator):
    german = translator.translate("A man is riding a bicycle.")
    assert "Mann" in german and "Fahrrad" in german and german.endswith(".")
    two = translator.translate_all(["Two dogs run on the beach.", "A man is riding a bicycle."])
    assert "Hunde" in two[0] and "Strand" in two[0] and two[1] == german


def test_the_shipped_model_is_small_and_comes_with_its_log(translator: Translator):
    files = {path.name: path.stat().st_size for path in SHIPPED.rglob("*") if path.is_file()}
    assert sum(files.values()) <= 8e6
    assert {"model.safetensors", "config.json", "tokenizer.json", "log.csv"} <= set(files)
    assert not [name for name in files if name.startswith("checkpoint") or name.endswith(".part")]
    config = json.loads((SHIPPED / "config.json").read_text(encoding="utf-8"))
    assert translator.tokenizer.get_vocab_size() <= config["tgt_vocab"]


def test_the_shipped_vocabulary_knows_the_letters_of_its_corpus(translator: Translator):
    if "ANNOTATED_DATA" not in os.environ:
        pytest.skip("no corpora at hand: ANNOTATED_DATA is not set")
    from annotated.data import load_pairs

    for side in load_pairs("multi30k", "train", "en", "de"):
        encodings = translator.tokenizer.encode_batch(side[::20])
        assert not any("<unk>" in encoding.tokens for encoding in encodings)
