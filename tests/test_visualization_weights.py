"""The weights that are drawn: against the model's own, in order, and still sums of one."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import pad

from annotated.data import PAD, Batch, encode_source, encode_target, train_bpe
from annotated.machinery.errors import InputError
from annotated.machinery.recording import record_attention
from annotated.machinery.translator import Translator
from annotated.machinery.visualization.weights import (
    AttentionWeights,
    merge_words,
    read_attention,
    word_groups,
)
from annotated.model import make_model

SENTENCE, TRANSLATION = "The dog's ball isn't red.", "Der Ball ist nicht rot."


@pytest.fixture(scope="module")
def translator() -> Translator:
    torch.manual_seed(0)
    tokenizer = train_bpe([SENTENCE, TRANSLATION], 40)
    size = tokenizer.get_vocab_size()
    model = make_model(size, size, N=3, d_model=16, d_ff=32, h=4, tie_embeddings=True)
    return Translator(model.eval(), tokenizer)


@pytest.fixture(scope="module")
def found(translator: Translator) -> dict[str, AttentionWeights]:
    return read_attention(translator, SENTENCE, TRANSLATION, padding=2)


def test_weights_are_those_of_the_model(translator: Translator, found: dict):
    """Of each layer, at the place that its name says."""
    src = torch.tensor(encode_source(translator.tokenizer, [SENTENCE]))
    tgt = torch.tensor(encode_target(translator.tokenizer, [TRANSLATION]))
    batch = Batch(pad(src, (0, 2), value=PAD), tgt)
    with torch.no_grad(), record_attention(translator.model) as seen:
        translator.model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    places = {"encoder": "encoder.layers.{}.self_attn", "decoder": "decoder.layers.{}.self_attn"}
    places["cross"] = "decoder.layers.{}.src_attn"
    for kind, place in places.items():
        for i, weights in enumerate(found[kind].weights):
            torch.testing.assert_close(weights, seen[place.format(i)][0])
    # The tokens are in order and named after what they do.
    text = lambda names: "".join(names).replace("▁", " ").strip()
    assert text(found["encoder"].queries) == f"{SENTENCE}<EOS><pad><pad>"
    assert found["encoder"].queries == found["encoder"].keys == found["cross"].keys
    assert text(found["decoder"].queries) == text(found["cross"].queries) == f"{TRANSLATION}<EOS>"
    assert text(found["decoder"].keys) == f"<s> {TRANSLATION}"  # what has been read so far


def test_the_pieces_of_a_word_are_merged_as_the_text_says(found: dict[str, AttentionWeights]):
    pieces, words = found["encoder"], merge_words(found["encoder"])
    assert words.queries == [
        *("The", "dog", "'", "s", "ball", "isn", "'", "t", "red", ".", "<EOS>", "<pad>", "<pad>")
    ]
    groups = word_groups(pieces.queries)
    for q, row in enumerate(groups):
        for k, column in enumerate(groups):
            expected = sum(pieces.weights[..., i, j] for i in row for j in column) / len(row)
            torch.testing.assert_close(words.weights[..., q, k], expected)


@given(st.lists(st.sampled_from(["▁", "▁a", "b", ",", "▁.", "<EOS>", "▁é", "7"]), min_size=1))
def test_word_groups_keep_every_piece_once_and_in_order(names: list[str]):
    groups = word_groups(names)
    assert [i for group in groups for i in group] == list(range(len(names)))
    for group in groups[1:]:  # a space begins a word, unless nothing but a space stands before it
        assert all(not names[i].startswith("▁") or names[i - 1] == "▁" for i in group[1:])


@pytest.mark.parametrize(
    "pieces",
    [
        ["▁हि", "न्दी"], ["▁বাং", "লা"], ["▁தமி", "ழ்"], ["▁ครั้", "ง"], ["▁မြန်", "မာ"], ["▁مَد", "رَسة"],
        ["▁שָׁ", "לוֹם"], ["▁ọ̀r", "ọ̀"], ["▁می", "\u200cخواهم"], ["▁Fahr", "\u00adrad"],
        ["▁안녕", "하세요"], ["▁က", "္", "က"], ["▁x", "²", "½"],
    ],
)  # fmt: skip
def test_marks_are_inside_words(pieces: list[str]):
    first, word, last = word_groups(["▁a", *pieces, "!"])
    assert (len(first), len(word), len(last)) == (1, len(pieces), 1)


def test_threads_do_not_see_each_others_weights(translator: Translator):
    lines = ["The dog", SENTENCE, "red", "The ball is red."] * 6
    read = lambda line: read_attention(translator, line, TRANSLATION)["cross"].weights
    with ThreadPoolExecutor(4) as pool:
        for alone, found in zip(map(read, lines), pool.map(read, lines), strict=True):
            torch.testing.assert_close(found, alone)


def test_weights_of_other_words_or_that_are_no_numbers_are_refused():
    with pytest.raises(ValueError, match=r"\(layers, h, 2, 3\)"):
        AttentionWeights(torch.zeros(1, 1, 3, 3), ["a", "b"], ["a", "b", "c"])
    for wrong in torch.nan, torch.inf, -torch.inf:
        with pytest.raises(InputError, match="NaN or infinity"):
            AttentionWeights(torch.tensor([[[[0.5, wrong]]]]), ["a"], ["a", "b"])
