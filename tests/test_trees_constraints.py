"""The search held to trees."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk import Tree
from treebanks import LONG, SHORT, one

from annotated.data import END, train_bpe
from annotated.machinery.translator import Translator
from annotated.machinery.trees.constraints import ConstrainedTranslator, tree_constraints
from annotated.machinery.trees.linear import line_to_tree, tree_to_line, words_to_line
from annotated.model import make_model
from annotated.parsing import Parser


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
    follow = tree_constraints(TOKENIZER)(encode(words_to_line(tree.leaves())))
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
    (line,) = ConstrainedTranslator(model, TOKENIZER).translate([" ".join(words)], max_extra=600)
    tree = line_to_tree(line, words)
    assert tree.leaves() == words and tree_to_line(tree) == line  # there was nothing to mend


def test_a_letter_that_no_piece_has_is_no_obstacle():
    model = make_model(120, 120, N=1, d_model=8, d_ff=8, h=1).eval()
    words = ["\u4e01", "the", "\u03b2-cat", "\u4e00", "sleeps"]
    assert Parser(Translator(model, TOKENIZER)).parse(words).leaves() == words
