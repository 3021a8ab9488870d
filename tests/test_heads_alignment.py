"""Attention as alignment: links against known pairs, hits against weights made by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from annotated.data import train_bpe
from annotated.machinery.files import resource_path
from annotated.machinery.heads import alignment
from annotated.machinery.heads.alignment import (
    LinkHits,
    alignment_errors,
    alignment_study,
    link_hits,
    spelling_links,
)
from annotated.machinery.translator import Translator
from annotated.machinery.visualization.weights import Attention, read_attention
from annotated.model import make_model


def test_spelling_links_numbers_names_and_cognates():
    source = ["In", "2013", "the", "Canadian", "Parliament", "met", "in", "Ottawa"]
    target = ["En", "2013", ",", "le", "Parlement", "canadien", "siégeait", "à", "Ottawa"]
    found = {(source[i], target[j]): kind for i, j, kind in spelling_links(source, target)}
    assert found == {
        ("2013", "2013"): "number",
        ("Parliament", "Parlement"): "cognate",
        ("Canadian", "canadien"): "cognate",
        ("Ottawa", "Ottawa"): "same",
    }


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("We go on", "On y va"),  # short words
        ("government and governments", "gouvernement"),  # like two words
        ("the law", "la loi"),
        ("12345", "12346"),  # numbers are the same or nothing
        ("ration", "nation"),  # another first letter
    ],
)
def test_what_may_be_chance_is_no_link(source: str, target: str):
    assert spelling_links(source.split(), target.split()) == []


def test_accents_and_capitals_do_not_count():
    assert spelling_links(["ELEPHANT"], ["éléphant"]) == [(0, 0, "same")]


def test_what_is_the_same_comes_before_what_is_alike():
    assert spelling_links(["provided", "province"], ["province"]) == [(1, 0, "same")]


def _attention(weights: torch.Tensor, source: list[str], target: list[str]) -> Attention:
    """As a model's, with a piece a word."""
    pieces = ([*(f"▁{word}" for word in side), "<EOS>"] for side in (target, source))
    return Attention(weights, *pieces)


def test_hits_are_those_of_the_weights(monkeypatch: pytest.MonkeyPatch):
    """Five words and the end, three words and the end; four heads in two layers, made by hand."""
    source, target = ["In", "Ottawa", "in", "1867", "now"], ["1867", "there", "Ottawa"]
    weights = torch.zeros(2, 2, 4, 6)
    weights[0, 0, 0, 3] = weights[0, 0, 2, 1] = 1.0  # right
    weights[0, 1, 1, 3] = weights[0, 1, 3, 1] = 1.0  # right one word too late,
    weights[0, 1, [0, 2], 4] = 0.5  # and wrong when asked
    weights[1, 0, :, 5], weights[1, 0, 0, 3], weights[1, 0, 2, 1] = 0.9, 0.1, 0.1  # but for the end
    weights[1, 1, 0, 3], weights[1, 1, 2, 0] = 1.0, 0.3  # right for the number only
    cross = _attention(weights, source, target)
    monkeypatch.setattr(alignment, "read_attention", lambda *_: {"cross": cross})
    found = link_hits(None, ["a", "b"], ["a", "b"])
    assert found.kind.tolist() == ["number", "same"] * 2 and found.sentence.tolist() == [0, 0, 1, 1]
    assert found.heads[0].tolist() == [[True, False], [True, True]]
    assert found.heads[1].tolist() == [[True, False], [True, False]]
    assert found.layers[:2].tolist() == [[True, True], [True, False]]  # 0.15 beats 0.05 in layer 2
    assert found.diagonal.tolist() == [False] * 4  # it takes the words 0, 2 and 4


def test_the_diagonal_leads_from_the_first_word_to_the_last(monkeypatch: pytest.MonkeyPatch):
    words = ["first", "second", "third", "fourth", "fifth"]
    for target, right in (words, 5), (["first", "third", "fifth"], 3), ([*"ab", *words, *"cd"], 3):
        cross = _attention(torch.zeros(1, 1, len(target) + 1, 6), words, target)
        monkeypatch.setattr(alignment, "read_attention", lambda *_, cross=cross: {"cross": cross})
        assert link_hits(None, ["x"], ["y"]).diagonal.sum() == right


def _hits(heads: list, layers: list, diagonal: list) -> LinkHits:
    kinds = np.array(["number", "same"] * 2)
    return LinkHits(
        kinds, np.arange(4), *(np.array(x, dtype=bool) for x in (diagonal, heads, layers))
    )


def test_head_and_layer_are_chosen_on_other_sentences():
    """Head 2 of layer 1 and the mean of layer 2 find all to choose on, and half of the others."""
    first = _hits([[[0, 1], [0, 0]]] * 4, [[0, 1]] * 4, [1] * 4)
    no_number = [[[1, 0], [1, 1]], [[1, 1], [1, 1]]] * 2
    second = _hits(no_number, [[1, 1], [1, 0]] * 2, [1, 1, 1, 0])
    table = alignment_errors(first, second).set_index(["who", "kind"])
    chosen = table.xs("all", level="kind")[["layer", "head"]].T.to_dict()
    assert chosen["one head"] == {"layer": 1, "head": 2}
    assert chosen["all heads of a layer"]["layer"] == 2
    assert table.error.to_dict() == {
        ("one head", "all"): 0.5, ("one head", "number"): 1.0, ("one head", "same"): 0.0,
        ("all heads of a layer", "all"): 0.5, ("all heads of a layer", "number"): 0.0,
        ("all heads of a layer", "same"): 1.0, ("the diagonal", "all"): 0.25,
        ("the diagonal", "number"): 0.0, ("the diagonal", "same"): 0.5,
    }  # fmt: skip
    assert table.links.loc["one head"].to_dict() == {"all": 4, "number": 2, "same": 2}
    assert (table.low <= table.error).all() and (table.error <= table.high).all()


def test_the_control_is_another_model_of_the_same_shape(monkeypatch: pytest.MonkeyPatch):
    torch.manual_seed(5)
    tokenizer = train_bpe(["the cat sat on the Ottawa mat in 1867"], 60)
    size = tokenizer.get_vocab_size()
    translator = Translator(make_model(size, size, N=2, d_model=16, d_ff=32, h=4).eval(), tokenizer)
    read = []
    monkeypatch.setattr(
        alignment, "read_attention", lambda *a: read.append(a[0].model) or read_attention(*a)
    )
    pairs = ["the Ottawa mat"], ["mat Ottawa"]
    tables = alignment_study(translator, pairs, {"one": pairs, "two": pairs})
    assert [model is translator.model for model in read] == [True] * 3 + [False] * 3
    assert read[-1].config == translator.model.config
    assert not torch.equal(read[-1].generator.proj.weight, translator.model.generator.proj.weight)
    assert set(tables["errors"].reader) == {"trained", "untrained"}
    assert set(tables["errors"].corpus) == {"one", "two"} and len(tables["heads"]) == 2 * 2 * 4


def test_the_log_holds_all_models():
    log = json.loads((resource_path("results") / "alignments.json").read_text(encoding="utf-8"))
    shipped = {folder.name for folder in resource_path("models").iterdir() if folder.is_dir()}
    for table in log["errors"], log["heads"]:
        assert {row["model"] for row in table} == shipped


def test_nothing_to_link_is_said(monkeypatch: pytest.MonkeyPatch):
    cross = _attention(torch.ones(1, 1, 2, 2), ["cat"], ["mat"])
    monkeypatch.setattr(alignment, "read_attention", lambda *_: {"cross": cross})
    with pytest.raises(ValueError, match="found none in 1 pairs"):
        link_hits(None, ["cat"], ["mat"])
    with pytest.raises(ValueError):
        link_hits(None, ["cat"], [])
