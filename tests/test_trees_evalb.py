"""Scores, against EVALB's own sample."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from nltk import Tree
from treebanks import one

from annotated.machinery.trees.evalb import EvalbParams, evalb_compare, evalb_summary, score_trees
from annotated.machinery.trees.penn import read_trees


def sample(name: str) -> list[str]:
    folder = Path(__file__).parent / "evalb"  # the program's own, in the public domain
    return (folder / name).read_text(encoding="utf-8").splitlines()


def rules(name: str) -> EvalbParams:
    """What a parameter file of the program says."""
    lines = [line.split() for line in sample(name) if line]
    values = lambda rule: frozenset(frozenset(more) for first, *more in lines if first == rule)
    deleted = frozenset().union(*values("DELETE_LABEL"))
    return EvalbParams(deleted, values("EQ_LABEL"), values("EQ_WORD"))


def trees(line: str) -> list[Tree]:
    return list(read_trees([line])) if line.strip() else []


def row(number, s):
    """A sentence as EVALB prints it."""
    share = lambda part, whole: 100 * part / whole if whole else 0.0
    counts = f"{s.matched:3d}    {s.gold:3d}  {s.found:3d}    {s.crossing:3d}"
    shares = f"{share(s.matched, s.gold):6.2f} {share(s.matched, s.found):6.2f}"
    tags = f"{s.words:4d}  {s.tags:4d}   {share(s.tags, s.words):6.2f}"
    return f"{number:4d}  {s.length:3d}    {s.status}  {shares}   {counts}   {tags}"


def test_evalbs_sample_to_the_last_digit():
    assert EvalbParams() == rules("COLLINS.prm")
    pairs = zip(sample("sample.gld"), sample("sample.tst"), strict=True)
    params = rules("sample.prm")
    scores = [evalb_compare(trees(gold), trees(found), params) for gold, found in pairs]
    printed = sample("sample.rsl")
    assert [row(i, score) for i, score in enumerate(scores, 1)] == printed[3:27]
    short = [score for score in scores if score.length <= 40]
    for title, part in ("-- All --", scores), ("-- len<=40 --", short):
        start, found = printed.index(title) + 1, evalb_summary(part)
        del found["Bracketing FMeasure"]  # a later EVALB prints this
        found.pop("sentences", None)
        show = lambda value: f"{value:6d}" if isinstance(value, int) else f"{value:6.2f}"
        ours = {name: show(value) for name, value in found.items()}
        lines = [re.split(r" += ", line) for line in printed[start : start + len(ours)]]
        assert list(ours.items()) == [(name, value) for name, value in lines]
    score = evalb_summary(scores)["Bracketing FMeasure"]
    assert score == pytest.approx(2 * 86 / (98 + 95) * 100)  # of the sums of the columns


def test_equal_pairs_do_not_form_chains():
    pairs = frozenset([frozenset("AB"), frozenset("BC")])
    params = EvalbParams(same_labels=pairs, same_words=frozenset([frozenset(["x", "y"])]))
    gold = [one("(A (B x) (A z))")]
    score = evalb_compare(gold, [one("(B (C y) (C z))")], params)
    assert (score.status, score.matched, score.tags) == (0, 1, 1)  # A = B, B = C, but not A = C
    assert evalb_compare(gold, [one("(C (B x) (A z))")], params).matched == 0
    assert evalb_compare(gold, [one("(B (C y) (C z))")]).status == 1
    gone = replace(params, deleted=frozenset("A"))  # a bracket B is the same as A; a tag B is not
    assert evalb_compare(gold, [one("(B (B x) (A z))")], gone)[1:5] == (0, 0, 0, 0)


def test_collins_rules():
    gold = [one("(TOP (S (NP (NN a)) (, ,) (PRT (RP up)) (VP (VB b)) (. .)))")]
    found = [one("(S (NP-SBJ (NN a)) (ADVP (RP up)) (VP (VB b)))")]
    score = evalb_compare(gold, found)
    assert (score.matched, score.gold, score.found, score.length) == (4, 4, 4, 5)
    assert evalb_compare(gold, [one("(S (NN a) (X (RP up)) (VB b))")]).matched == 1
    crossed = evalb_compare([one("(S (A (N a) (N b)) (N c))")], [one("(S (N a) (A (N b) (N c)))")])
    assert crossed.crossing == 1 and crossed.matched == 1
    chain = evalb_compare([one("(S (A (A (N a))))")], [one("(S (A (N a)))")])
    assert (chain.matched, chain.gold, chain.found) == (2, 3, 2)


def test_one_wrong_comma_costs_something_but_not_the_sentence():
    gold = one("(S (NP (NN a) (, ,) (NN b)) (VP (VB c)) (. .))")
    found = one("(S (NP (NN a) (NN ,) (NN b)) (VP (. c)) (X .))")
    assert evalb_compare([gold], [found]).status == 1
    (score,) = score_trees([gold], [found], [None])
    assert (score["Number of Valid sentence"], score["Bracketing FMeasure"]) == (1, 100)
    assert score["Tagging accuracy"] == pytest.approx(100 * 2 / 3)
    assert found[0][1].label() == "NN"  # the tree itself is as it was
