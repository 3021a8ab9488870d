"""Scores, against EVALB's own sample."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from nltk import Tree
from treebanks import one

from annotated.machinery.parsing.evalb import (
    EvalbParams,
    evalb_compare,
    evalb_summary,
    read_evalb_params,
    score_tree_files,
    score_trees,
)
from annotated.machinery.parsing.trees import read_trees

SAMPLE_RULES = EvalbParams(
    deleted=frozenset(["TOP", "-NONE-", ",", ":", "``", "''"]),
    same_labels=frozenset([frozenset(["T", "TT"])]),
    same_words=frozenset([frozenset(["This", "this"])]),
)


def sample(name: str) -> list[str]:
    folder = Path(__file__).parent / "evalb"  # the program's own, in the public domain
    return (folder / name).read_text(encoding="utf-8").splitlines()


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
    pairs = zip(sample("sample.gld"), sample("sample.tst"), strict=True)
    scores = [evalb_compare(trees(gold), trees(found), SAMPLE_RULES) for gold, found in pairs]
    printed = sample("sample.rsl")
    assert [row(i, score) for i, score in enumerate(scores, 1)] == printed[3:27]
    short = [score for score in scores if score.length <= 40]
    for title, part in ("-- All --", scores), ("-- len<=40 --", short):
        start = printed.index(title) + 1
        ours = {
            name: f"{value:6d}" if isinstance(value, int) else f"{value:6.2f}"
            for name, value in evalb_summary(part).items()
            if name not in ("sentences", "Bracketing FMeasure")  # a later EVALB prints this
        }
        lines = [re.split(r" += ", line) for line in printed[start : start + len(ours)]]
        assert list(ours.items()) == [(name, value) for name, value in lines]
    total = evalb_summary(scores)
    counts = [
        sum(getattr(s, n) for s in scores if s.status == 0)
        for n in ("matched", "gold", "found", "words", "tags")
    ]
    assert counts == [86, 98, 95, 108, 106]
    assert total["Bracketing FMeasure"] == pytest.approx(2 * 86 / (98 + 95) * 100)


@pytest.mark.parametrize(
    "file, rules", [("COLLINS.prm", EvalbParams()), ("sample.prm", SAMPLE_RULES)]
)
def test_rules_are_those_of_evalbs_files(file, rules):
    assert read_evalb_params(Path(__file__).parent / "evalb" / file) == rules


# What the later releases' new.prm says beyond COLLINS.prm, in another order.
NEW = """# quotes
QUOTE_LABEL ``
QUOTE_LABEL ''
QUOTE_LABEL POS
  QUOTE_LABEL\tNN
DELETE_LABEL TOP
DELETE_LABEL S1
DELETE_LABEL -NONE-
DELETE_LABEL ``
DELETE_LABEL ''
DELETE_LABEL ?

DELETE_LABEL_FOR_LENGTH -NONE-
EQ_LABEL ADVP PRT
EQ_WORD Example example
CUTOFF_LEN 3
LABELED 1
DEBUG 2
MAX_ERROR 10000
"""


@pytest.fixture
def new_rules(tmp_path: Path) -> EvalbParams:
    path = tmp_path / "new.prm"
    path.write_bytes(NEW.replace("\n", "\r\n").encode())
    return read_evalb_params(path)


def test_a_parameter_file_is_read_whole(new_rules):
    assert new_rules == EvalbParams(
        deleted=frozenset(["TOP", "S1", "-NONE-", "``", "''", "?"]),
        quotes=frozenset(["``", "''", "POS", "NN"]),
        same_words=frozenset([frozenset(["Example", "example"])]),
        longest=3,
    )


@pytest.mark.parametrize(
    "text, line",
    [
        ("DEBUG 0\nDELETE_LABLE TOP", 2),
        ("DELETE_LABEL", 1),
        ("# a\n\nDELETE_LABEL a b", 3),
        ("EQ_LABEL ADVP", 1),
        ("CUTOFF_LEN forty", 1),
        ("CUTOFF_LEN 1 2", 1),
        ("LABELED -1", 1),
        (f"MAX_ERROR {'9' * 5000}", 1),
        ("EQ_WORD a \udcff", 1),
    ],
)
def test_a_line_that_is_no_rule_is_named(tmp_path, text, line):
    path = tmp_path / "wrong.prm"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=rf"wrong\.prm, line {line}: expected"):
        read_evalb_params(path)


def test_equal_pairs_do_not_form_chains():
    pairs = frozenset([frozenset("AB"), frozenset("BC")])
    rules = EvalbParams(same_labels=pairs, same_words=frozenset([frozenset(["x", "y"])]))
    gold = [one("(A (B x) (A z))")]
    score = evalb_compare(gold, [one("(B (C y) (C z))")], rules)
    assert (score.status, score.matched, score.tags) == (0, 1, 1)  # A = B, B = C, but not A = C
    assert evalb_compare(gold, [one("(C (B x) (A z))")], rules).matched == 0
    assert evalb_compare(gold, [one("(C (B x) (A z))")], replace(rules, labeled=False)).matched == 1
    assert evalb_compare(gold, [one("(B (C y) (C z))")]).status == 1
    gone = replace(rules, deleted=frozenset("A"))  # a bracket B is the same as A; a tag B is not
    assert evalb_compare(gold, [one("(B (B x) (A z))")], gone)[1:5] == (0, 0, 0, 0)


@pytest.mark.parametrize(
    "gold, found, counts",  # status, matched, brackets in gold and found, words, right tags
    [
        # A possessive in gold, a quote as the parser sees it: the word is put back in the second,
        ("(S (NP (NN a) (POS ')) (NP (NN b)))", "(S (NP (NN a) ('' ')) (NP (NN b)))", "0 33 3 3 2"),
        # in the first,
        ("(S (NP (NN a) ('' ')) (NP (NN b)))", "(S (NP (NN a) (POS ')) (NP (NN b)))", "0 33 3 3 2"),
        # with the phrase that held nothing else,
        ("(S (NN a) (NP (POS ')))", "(S (NN a) (X ('' ')))", "0 12 2 2 1"),
        # and once in each.
        (
            "(S (POS ') (X (NN a)) ('' ') (NN b) (POS '))",
            "(S ('' ') (X (NN a)) (POS ') (NN b) ('' '))",
            "0 22 2 5 2",
        ),
        # If the lengths do not differ, nothing is put back, and the words do not match.
        ("(S (POS ') (NN a) ('' '))", "(S ('' ') (NN a) (POS '))", "1 00 0 2 0"),
        # Other words, and other tags, are no quotes.
        ("(S (NN a) (POS 's))", "(S (NN a) ('' 's))", "1 00 0 2 0"),
        ("(S (NN a) (X '))", "(S (NN a) ('' '))", "1 00 0 2 0"),
    ],
)
def test_quotes_that_are_possessives_too(new_rules, gold, found, counts):
    score = evalb_compare([one(gold)], [one(found)], new_rules)
    told = f"{score.status} {score.matched}{score.gold} {score.found} {score.words} {score.tags}"
    assert told == counts
    no_quotes = replace(new_rules, quotes=frozenset())
    assert evalb_compare([one(gold)], [one(found)], no_quotes).status == 1


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


def test_files_of_trees_are_scored_as_evalb_does(tmp_path):
    gold, found = tmp_path / "gold", tmp_path / "found"
    gold.write_text("( (S (NP-SBJ (-NONE- *)) (NP (NN a)) (. .)) )\n(S (NN a))\n(S (NN a) (. .))\n")
    found.write_text("(S (NP (NN a)) (. .))\n\n(S (NN a) (NN .))\n")
    (row, _) = score_tree_files(gold, found)
    counts = [row[f"Number of {what} sentence"] for what in ("Error", "Skip ", "Valid")]
    assert counts == [1, 1, 1] and row["Bracketing FMeasure"] == 100
    traces = replace(EvalbParams(), deleted=frozenset(), longest=0)  # now a trace is a word
    (row, short) = score_tree_files(gold, found, traces)
    assert row["Number of Valid sentence"] == 1 and short["Number of sentence"] == 0
    found.write_text("(S (NN a))\n")
    with pytest.raises(ValueError, match=r"found.*gold.*3.*1"):
        score_tree_files(gold, found)
    found.write_text("(S (NN a))\n\n(S (NN a)\n")
    with pytest.raises(ValueError, match="found, line 3"):
        score_tree_files(gold, found)
