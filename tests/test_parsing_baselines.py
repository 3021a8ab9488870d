"""The parsers to compare with."""

from __future__ import annotations

from pathlib import Path

import pytest
from nltk import Tree
from treebanks import LONG, SHORT, one

from annotated.machinery.parsing.baselines import PCFG, compare_parsers, right_branching
from annotated.machinery.parsing.scoring import score_parser


def test_a_grammar_that_is_counted_finds_the_trees_again():
    known = [
        one("(S (NP (DT the) (NN cat)) (VP (VB sees) (NP (DT a) (NN dog))) (. .))"),
        one("(S (NP (DT the) (NN dog)) (VP (VB sleeps)) (. .))"),
    ]
    grammar = PCFG(known)
    for tree in known:
        assert grammar.parse(tree.leaves()) == tree
    new = grammar.parse(["a", "HOTDOG", "sees", "the", "cat", "."])
    assert new == one("(S (NP (DT a) (NN HOTDOG)) (VP (VB sees) (NP (DT the) (NN cat))) (. .))")
    assert grammar.parse([".", "."]) == right_branching([".", "."], [".", "."])


def test_a_grammar_keeps_labels_whole():
    tree = one("(S (ADVP|PRT (RB a) (RB b) (RB c)) (NP+VP (NP (NN d))))")
    assert PCFG([tree]).parse(tree.leaves()) == tree


def test_right_branching_opens_a_phrase_at_each_word():
    tree = right_branching(list("abc."), ["X", "X", "X", "."])
    assert tree == one("(S (X a) (NP (X b) (X c)) (. .))")
    assert right_branching(["a"], ["X"]) == one("(S (X a))")
    assert right_branching(["a", "."], ["X", "."]) == one("(S (X a) (. .))")


class Oracle:
    """A parser that knows some trees by heart."""

    def __init__(self, trees: list[Tree]) -> None:
        self.known = {tuple(tree.leaves()): tree for tree in trees}

    def parse_all(self, sentences: list[list[str]], **options: object) -> list[Tree]:
        return [self.known[tuple(words)] for words in sentences]


@pytest.fixture
def treebank(tmp_path: Path) -> str:
    """The folder of a Penn Treebank that has two sentences in each section."""
    for section in range(2, 24):
        (tmp_path / f"{section:02}").mkdir()
        (tmp_path / f"{section:02}" / f"wsj_{section:02}01.mrg").write_text(
            f"( {SHORT} )\n( {LONG} )"
        )
    return str(tmp_path)


def test_parsers_are_compared_on_the_same_sentences(treebank: str):
    oracle: object = Oracle([one(SHORT), one(LONG)])
    rows = compare_parsers(oracle, treebank, "test", longest=4)
    scores = {(r["parser"], r["sentences"]): r["Bracketing FMeasure"] for r in rows}
    short = "up to 4 words"
    assert scores["Transformer", "all"] == scores["Transformer", short] == 100
    assert scores["Transformer", "up to 40 words"] == 100
    assert scores["grammar", short] == 100  # it has counted this very sentence
    assert 0 < scores["right-branching", "all"] < 100
    counts = [(row["sentences"], row["Number of sentence"]) for row in rows]
    assert sorted(counts) == [("all", 2)] * 2 + [(short, 1)] * 3 + [("up to 40 words", 2)] * 2
    (first, *_) = compare_parsers(oracle, treebank, "dev", limit=1, longest=4)
    assert first["Number of sentence"] == 1
    (first, _) = score_parser(oracle, treebank, "dev", limit=1)
    assert (first["sentences"], first["Number of sentence"]) == ("all", 1)
