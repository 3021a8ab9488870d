"""The search held to trees."""

from __future__ import annotations

import csv
import re
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk import Tree
from treebanks import LONG, SHORT, one

from annotated.data import END, train_bpe
from annotated.linearization import linearize
from annotated.machinery.files import resource_path
from annotated.machinery.parsing.constraints import ConstrainedTranslator, LineConstraints
from annotated.machinery.parsing.linear import (
    line_to_tokens,
    line_to_tree,
    tree_to_line,
    words_to_line,
)
from annotated.machinery.parsing.trees import is_tag, load_trees
from annotated.machinery.translator import Translator
from annotated.model import make_model
from annotated.parsing import Parser, load_parser


def nested(labels: str, inside: str) -> str:
    for label in reversed(labels.split()):
        inside = f"({label} {inside})"
    return inside


SEEN = [
    SHORT,
    LONG,
    nested("S NP", "(PRP we)"),
    "(S (NP (NP (NN f2)) (PP (IN of) (NP (NNS mice)))) (VP (VBP sleep)) (. .))",
]


LINES = [line for text in SEEN for line in (tree_to_line(one(text)), " ".join(one(text).leaves()))]


TOKENIZER = train_bpe(LINES * 40, 120)  # small, and each bracket is a piece all the same


def allowed(tree: Tree) -> bool:
    """Whether the rules over its words allow the line of a tree, piece by piece, to its end."""
    encode = lambda line: TOKENIZER.encode(line, add_special_tokens=False).ids
    held = ConstrainedTranslator(make_model(120, 120, N=1, d_model=8, h=1), TOKENIZER)
    follow = held.follow(LineConstraints(TOKENIZER), encode(words_to_line(tree.leaves())))
    line = [*encode(tree_to_line(tree)), END]
    return all(piece in follow(line[:i]) for i, piece in enumerate(line))


@pytest.mark.parametrize("text", SEEN)
def test_the_rules_allow_trees(text: str):
    assert allowed(one(text))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("S NP NP VP VP PP PP S", True),
        ("S NP NP VP VP PP PP S NP", False),  # nine
        ("S NP VP NP PP NP", False),  # NP three times
        ("NP NP S NP", False),
    ],
)
def test_the_rules_limit_what_is_opened_before_a_word(labels: str, expected: bool):
    assert allowed(one(nested(labels, "(DT the) (NN cat)"))) == expected


@settings(deadline=None, max_examples=15)
@given(st.lists(st.sampled_from(["the", "cat", "f2", "cats", "."]), min_size=1), st.integers(0, 9))
def test_a_model_that_knows_nothing_writes_trees_of_the_sentence(words: list[str], seed: int):
    torch.manual_seed(seed)
    model = make_model(120, 120, N=1, d_model=8, d_ff=8, h=1).eval()
    (line,) = ConstrainedTranslator(model, TOKENIZER).translate_all(
        [" ".join(words)], max_extra=600
    )
    tree = line_to_tree(line, words)
    assert tree.leaves() == words and tree_to_line(tree) == line  # there was nothing to mend


def test_a_letter_that_no_piece_has_is_no_obstacle():
    model = make_model(120, 120, N=1, d_model=8, d_ff=8, h=1).eval()
    words = ["\u4e01", "the", "\u03b2-cat", "\u4e00", "sleeps"]
    assert Parser(Translator(model, TOKENIZER)).parse(words).leaves() == words


@pytest.fixture(scope="module")
def craft() -> dict[str, list[Tree]]:
    return {split: load_trees("craft", split) for split in ("train", "dev", "test")}


@pytest.mark.corpora
def test_the_log_of_openings_counts_the_trees_that_are_held_to_two(craft):
    with (resource_path("results") / "craft-openings.csv").open(encoding="utf-8") as file:
        log = [{**row, "rows": int(row["rows"])} for row in csv.DictReader(file)]
    for split, trees in craft.items():
        lines = [linearize(tree) for tree in trees]
        rows = sum(a[0] == "(" and b[0] != "(" for line in lines for a, b in pairwise(line))
        assert rows == sum(row["rows"] for row in log if row["split"] == split)
        alike = re.compile(
            r"(\(\S+ )(?:\(\S+ )*?\1(?:\(\S+ )*?\1"
        )  # one label three times in a row
        beyond = sum(bool(alike.search(" ".join(line))) for line in lines)
        told = [int(row["trees"]) for row in log if row["split"] == split and int(row["alike"]) > 2]
        assert beyond == sum(told) == {"train": 3113, "dev": 408, "test": 1482}[split]


@pytest.mark.corpora
def test_what_the_shipped_parser_can_write_of_crafts_labels(craft):
    tokenizer = load_parser().translator.tokenizer
    rules = LineConstraints(tokenizer)
    name = lambda piece: tokenizer.id_to_token(piece)[2:]
    labels, tags = set(), set()
    for tree in craft["train"]:
        for part in tree.subtrees():
            (tags if is_tag(part) else labels).add(part.label())
    assert labels - set(map(name, rules.closing)) == {"NAC", "RRC", "SQ", "SBARQ", "WHADJP", "X"}
    marks = {line_to_tokens(f"→{name(piece)}")[0] for piece in rules.tags}
    assert tags <= marks
    assert " ".join(sorted(marks - tags)) == "C CLOS CO HY L N OP P R S W"
