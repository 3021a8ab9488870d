"""Trees: reading, writing as sentences, and scoring, against EVALB's own sample."""

from __future__ import annotations

import csv
import io
import json
import re
import tarfile
import zipfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk import Tree

from annotated.data import END, find_corpus, shipped, train_bpe
from annotated.model import make_model
from annotated.parsing import (
    Grammar,
    HeldTranslator,
    LineRules,
    Parser,
    Rules,
    bare_label,
    bracketed,
    clean,
    compare,
    compare_parsers,
    is_tag,
    line_tokens,
    line_tree,
    linearize,
    load_parser,
    load_trees,
    read_rules,
    read_trees,
    restore,
    right_branching,
    same_punctuation,
    score_parser,
    score_tree_files,
    score_trees,
    sentence_line,
    summary,
    tree_line,
    tree_svg,
)
from annotated.translator import Translator, load_pretrained

CHAPTERS = Path(__file__).resolve().parent.parent / "chapters"
SAMPLE_RULES = Rules(
    deleted=frozenset(["TOP", "-NONE-", ",", ":", "``", "''"]),
    same_labels=frozenset([frozenset(["T", "TT"])]),
    same_words=frozenset([frozenset(["This", "this"])]),
)
LABELS, TAGS = st.sampled_from(["S", "NP", "VP", "-LRB-", "X"]), st.sampled_from(["DT", "NN", "."])
LETTERS = "ab'.,-$·→↓↑\u00a0"


def trees_of(letters: str) -> st.SearchStrategy[Tree]:
    """Trees over words of these letters."""
    words = st.text(letters, min_size=1, max_size=4)
    return st.recursive(
        st.builds(lambda tag, word: Tree(tag, [word]), TAGS, words),
        lambda inside: st.builds(Tree, LABELS, st.lists(inside, min_size=1, max_size=4)),
        max_leaves=12,
    ).filter(lambda tree: not is_tag(tree))


TREES = trees_of(LETTERS)  # as a file can hold them
ANY_TREES = trees_of(LETTERS + "()[ \u2003\u2028\x85")


def one(text: str) -> Tree:
    (tree,) = read_trees([text])
    return tree


@given(TREES)
def test_a_tree_is_read_as_it_was_written(tree):
    assert one(tree.pformat(margin=10**6)) == tree
    assert list(read_trees(tree.pformat(margin=10).split("\n") * 2)) == [tree, tree]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["(S (NN a))", "", "(S (NN a)"], "file, line 3: a bracket is opened and never closed"),
        (["(S (NN a))", "(S", "(NN a)))"], r"file, line 3: expected '\('; got '\)'"),
        (["(S (NN a))", "word"], r"file, line 2: expected '\('; got 'word'"),
        (["(S (NP ) (NN a))"], r"file, line 1: \(NP\) holds no word"),
        (
            ["(S (NN a b))"],
            "file, line 1: expected one word, or phrases and tags",
        ),
        (["(S a (NN b))"], "file, line 1: expected one word, or phrases"),
        (["()"], r"file, line 1: \(\) holds no word"),
        ([], "file: expected trees in brackets; there are none in 0 lines"),
        (["", " "], "there are none in 2 lines"),
        (["x" * 9**5], r"file, line 1: expected '\('; got 'x+\.\.\.x+'$"),
        (["", "(S" * 3000], "file, line 2: expected at most 200 brackets inside of each other"),
    ],
)
def test_a_mistake_is_named_with_its_line(lines, message):
    with pytest.raises(ValueError, match=message):
        list(read_trees(lines, "file"))


def test_the_deepest_tree_can_be_used():
    (tree,) = read_trees(["(S " * 199 + "(NN a)" + ")" * 199])
    assert clean(tree) == one(bracketed(tree)) and len(linearize(tree)) == 2 * 199 + 1
    assert compare([tree], [tree]).matched == 199 and tree_svg(tree).count(">S<") == 199


def test_a_mark_at_the_start_is_no_word():
    assert list(read_trees(["\ufeff(S (NN \ufeff))"])) == [Tree("S", [Tree("NN", ["\ufeff"])])]


def test_what_does_not_count_is_taken_out():
    tree = one(
        "( (S (NP-SBJ-1 (-NONE- *PRO*)) (VP=2 (TO To) (NP (NP (-NONE- *)) (-LRB- -LRB-) (NN x)))) )"
    )
    assert clean(tree) == one("(S (VP (TO To) (NP (-LRB- -LRB-) (NN x))))")
    assert clean(one("( (S (NP (-NONE- *))) )")) is None
    assert clean(one("( (S (NN a)) (. .))")) == one("(TOP (S (NN a)) (. .))")
    assert bare_label("-RRB-") == "-RRB-" and bare_label("PRP$") == "PRP$"


@given(ANY_TREES)
def test_linear_trees_come_back_as_they_were(tree):
    assert restore(linearize(tree), tree.leaves()) == tree


@given(st.lists(st.sampled_from(["(S", "(NP", ")S", ")NP", "NN", "DT"])), st.integers(1, 6))
def test_any_tokens_give_a_tree_with_all_words_in_order(tokens, n):
    words = [f"w{i}" for i in range(n)]
    tree = restore(tokens, words)
    assert tree.leaves() == words
    assert all(len(phrase) for phrase in tree.subtrees())
    assert restore(linearize(tree), words) == tree  # what is mended needs no mending


def test_mistakes_are_mended_by_the_rules():
    words = ["a", "b", "c"]
    fix = lambda text: restore(text.split(), words).pformat(margin=200)
    assert fix("(S (NP DT NN )S NN") == "(TOP (S (NP (DT a) (NN b))) (NN c))"
    assert fix("(S (NP DT )VP NN )NP VB )S NN NN") == "(S (NP (DT a) (NN b)) (VB c))"
    assert fix("(S DT (NP )NP") == "(TOP (S (DT a)) (X b) (X c))"
    assert fix("") == "(TOP (X a) (X b) (X c))"
    with pytest.raises(ValueError, match="expected words"):
        restore(["(S"], [])
    deep = restore(["(NP"] * 600 + ["NN"], ["a"])
    assert deep.height() == 102 and deep == restore(linearize(deep), ["a"])


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
    scores = [compare(trees(gold), trees(found), SAMPLE_RULES) for gold, found in pairs]
    printed = sample("sample.rsl")
    assert [row(i, score) for i, score in enumerate(scores, 1)] == printed[3:27]
    short = [score for score in scores if score.length <= 40]
    for title, part in ("-- All --", scores), ("-- len<=40 --", short):
        start = printed.index(title) + 1
        ours = {
            name: f"{value:6d}" if isinstance(value, int) else f"{value:6.2f}"
            for name, value in summary(part).items()
            if name != "Bracketing FMeasure"  # which a later EVALB prints
        }
        lines = [re.split(r" += ", line) for line in printed[start : start + len(ours)]]
        assert list(ours.items()) == [(name, value) for name, value in lines]
    total = summary(scores)
    counts = [
        sum(getattr(s, n) for s in scores if s.status == 0)
        for n in ("matched", "gold", "found", "words", "tags")
    ]
    assert counts == [86, 98, 95, 108, 106]
    assert total["Bracketing FMeasure"] == pytest.approx(2 * 86 / (98 + 95) * 100)


@pytest.mark.parametrize("file, rules", [("COLLINS.prm", Rules()), ("sample.prm", SAMPLE_RULES)])
def test_rules_are_those_of_evalbs_files(file, rules):
    told = [line.split() for line in sample(file) if line.strip() and line[0] != "#"]
    of = lambda key: [values for name, *values in told if name == key]
    same = lambda key: {frozenset(values) for values in of(key)}
    assert {label for (label,) in of("DELETE_LABEL")} == rules.deleted
    assert {label for (label,) in of("DELETE_LABEL_FOR_LENGTH")} == rules.not_long
    assert same("EQ_LABEL") == rules.same_labels
    assert same("EQ_WORD") == rules.same_words
    assert [[str(rules.longest)], [str(int(rules.labelled))]] == of("CUTOFF_LEN") + of("LABELED")
    assert read_rules(Path(__file__).parent / "evalb" / file) == rules


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
def new_rules(tmp_path: Path) -> Rules:
    path = tmp_path / "new.prm"
    path.write_bytes(NEW.replace("\n", "\r\n").encode())
    return read_rules(path)


def test_a_parameter_file_is_read_whole(new_rules):
    assert new_rules == Rules(
        deleted=frozenset(["TOP", "S1", "-NONE-", "``", "''", "?"]),
        quotes=frozenset(["``", "''", "POS", "NN"]),
        same_words=frozenset([frozenset(["Example", "example"])]),
        longest=3,
    )
    assert Rules().quotes == frozenset()


@pytest.mark.parametrize(
    "text, message",
    [
        (
            "DEBUG 0\nDELETE_LABLE TOP",
            "line 2: expected one of DELETE_LABEL, .* got 'DELETE_LABLE'",
        ),
        ("DELETE_LABEL", "line 1: expected 1 value after DELETE_LABEL; got ''"),
        ("# a\n\nDELETE_LABEL a b", "line 3: expected 1 value after DELETE_LABEL; got 'a b'"),
        ("EQ_LABEL ADVP", "line 1: expected 2 labels or words after EQ_LABEL; got 'ADVP'"),
        ("CUTOFF_LEN forty", "line 1: expected a whole number after CUTOFF_LEN; got 'forty'"),
        ("LABELED -1", "line 1: expected a whole number after LABELED; got '-1'"),
        (f"MAX_ERROR {'9' * 5000}", "line 1: expected a whole number after MAX_ERROR"),
        ("EQ_WORD a \udcff", "line 1: expected UTF-8; got byte 0xff"),
    ],
)
def test_a_line_that_is_no_rule_is_named(tmp_path, text, message):
    path = tmp_path / "wrong.prm"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=rf"wrong\.prm, {message}"):
        read_rules(path)


def test_equal_pairs_do_not_form_chains():
    pairs = frozenset([frozenset("AB"), frozenset("BC")])
    rules = Rules(same_labels=pairs, same_words=frozenset([frozenset(["x", "y"])]))
    gold = [one("(A (B x) (A z))")]
    score = compare(gold, [one("(B (C y) (C z))")], rules)
    assert (score.status, score.matched, score.tags) == (0, 1, 1)  # A = B, B = C, but not A = C
    assert compare(gold, [one("(C (B x) (A z))")], rules).matched == 0
    assert compare(gold, [one("(C (B x) (A z))")], replace(rules, labelled=False)).matched == 1
    assert compare(gold, [one("(B (C y) (C z))")]).status == 1
    gone = replace(rules, deleted=frozenset("A"))  # a bracket B is the same as A; a tag B is not
    assert compare(gold, [one("(B (B x) (A z))")], gone)[1:5] == (0, 0, 0, 0)


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
    score = compare([one(gold)], [one(found)], new_rules)
    told = f"{score.status} {score.matched}{score.gold} {score.found} {score.words} {score.tags}"
    assert told == counts
    if score.status == 0:
        assert (
            compare([one(gold)], [one(found)], replace(new_rules, quotes=frozenset())).status == 1
        )


def test_collins_rules():
    gold = [one("(TOP (S (NP (NN a)) (, ,) (PRT (RP up)) (VP (VB b)) (. .)))")]
    found = [one("(S (NP-SBJ (NN a)) (ADVP (RP up)) (VP (VB b)))")]
    score = compare(gold, found)
    assert (score.matched, score.gold, score.found, score.length) == (4, 4, 4, 5)
    assert compare(gold, [one("(S (NN a) (X (RP up)) (VB b))")]).matched == 1
    crossed = compare([one("(S (A (N a) (N b)) (N c))")], [one("(S (N a) (A (N b) (N c)))")])
    assert crossed.crossing == 1 and crossed.matched == 1
    chain = compare([one("(S (A (A (N a))))")], [one("(S (A (N a)))")])
    assert (chain.matched, chain.gold, chain.found) == (2, 3, 2)


def test_a_grammar_that_is_counted_finds_the_trees_again():
    known = [
        one("(S (NP (DT the) (NN cat)) (VP (VB sees) (NP (DT a) (NN dog))) (. .))"),
        one("(S (NP (DT the) (NN dog)) (VP (VB sleeps)) (. .))"),
    ]
    grammar = Grammar(known)
    for tree in known:
        assert grammar.parse(tree.leaves()) == tree
    new = grammar.parse(["a", "HOTDOG", "sees", "the", "cat", "."])
    assert new == one("(S (NP (DT a) (NN HOTDOG)) (VP (VB sees) (NP (DT the) (NN cat))) (. .))")
    assert grammar.parse([".", "."]) == right_branching([".", "."], [".", "."])


def test_a_grammar_keeps_labels_whole():
    tree = one("(S (ADVP|PRT (RB a) (RB b) (RB c)) (NP+VP (NP (NN d))))")
    assert Grammar([tree]).parse(tree.leaves()) == tree


def test_right_branching_opens_a_phrase_at_each_word():
    tree = right_branching(list("abc."), ["X", "X", "X", "."])
    assert tree == one("(S (X a) (NP (X b) (X c)) (. .))")
    assert right_branching(["a"], ["X"]) == one("(S (X a))")
    assert right_branching(["a", "."], ["X", "."]) == one("(S (X a) (. .))")


@given(ANY_TREES)
def test_lines_come_back_as_the_tokens_that_they_were(tree):
    assert line_tokens(tree_line(tree)) == linearize(tree)


def test_brackets_in_words_can_be_read_again():
    tree = Tree("NP", [Tree("NNS", ["Mice"]), Tree("-LRB-", ["("]), Tree("NN", ["a)b"])])
    assert one(bracketed(tree)).leaves() == ["Mice", "-LRB-", "a-RRB-b"]
    assert tree.leaves() == ["Mice", "(", "a)b"]


def test_a_line_has_as_many_words_as_the_sentence():
    assert sentence_line(["a\u00a0b", "-LRB-", "c"]).split() == ["a·b", "(", "c"]
    assert sentence_line(["a", "\u00a0", "c"]).split() == ["a", "·", "c"]


def test_a_drawing_has_all_words_and_shows_what_is_wrong():
    gold = one("(S (NP (DT the) (NN <cat>)) (VP (VB sees)) (. .))")
    svg = tree_svg(gold)
    assert [svg.count(f">{word}<") for word in ("the", "&lt;cat&gt;", "sees")] == [1, 1, 1]
    assert "tree-wrong" not in svg.split("</style>")[1]
    wrong = tree_svg(one("(S (NP (DT the)) (VP (NN <cat>) (VB sees)) (. .))"), gold)
    assert wrong.split("</style>")[1].count("tree-wrong") == 2


def test_a_treebank_is_found_in_its_folder(tmp_path):
    for section in "02", "22":
        (tmp_path / "wsj" / section).mkdir(parents=True)
        (tmp_path / "wsj" / section / f"WSJ_{section}01.MRG").write_text(
            "( (S (NP-SBJ (NN a))) )\n"
        )
    with pytest.raises(ValueError, match=r"03/\*.mrg; there are none"):
        load_trees(str(tmp_path), "train")
    assert load_trees(str(tmp_path), "dev") == [one("(S (NP (NN a)))")]
    (tmp_path / "wsj" / "22" / "WSJ_2202.MRG").write_bytes(b"( (S (NN a)) )\n( (S (NN \xff)) )\n")
    with pytest.raises(ValueError, match=r"WSJ_2202\.MRG, line 2: expected UTF-8; got byte 0xff"):
        load_trees(str(tmp_path), "dev")
    with pytest.raises(ValueError, match="expected a split out of train, dev, test"):
        load_trees(str(tmp_path), "valid")
    (tmp_path / "wsj" / "22" / "WSJ_2202.MRG").write_text("")
    with pytest.raises(ValueError, match=r"WSJ_2202\.MRG: expected trees .* none in 0 lines"):
        load_trees(str(tmp_path), "dev")
    (tmp_path / "wsj" / "22" / "WSJ_2202.MRG").write_text("( (S (-NONE- *)) )\n" * 2)
    with pytest.raises(ValueError, match=r"WSJ_2202\.MRG: expected words .* there are only traces"):
        load_trees(str(tmp_path), "dev")
    (tmp_path / "wsj" / "22" / "WSJ_2202.MRG").write_bytes(b"\xef\xbb\xbf( (S (NN b)) )\n")
    assert load_trees(str(tmp_path), "dev")[1:] == [one("(S (NN b))")]
    (tmp_path / "wsj" / "22" / "WSJ_2202.MRG").write_bytes(b"\xef\xbb\xbf\n( (S (NN \xff)) )\n")
    with pytest.raises(ValueError, match="line 2: expected UTF-8; got byte 0xff"):
        load_trees(str(tmp_path), "dev")
    known = "craft, wsj-sample, or the folder of a Penn Treebank; there is no folder crft"
    with pytest.raises(ValueError, match=f"expected a treebank: {known}"):
        load_trees("crft", "dev")


@pytest.mark.parametrize(
    "corpus, split, files, said",
    [
        ("wsj-sample", "test", {"README": ""}, "{}: expected trees of wsj-sample, split test"),
        ("wsj-sample", "test", None, "{}: expected a whole archive"),
        ("wsj-sample", "test", {"a.mrg": "( (S (-NONE- *)) )"}, "{}: a.mrg: expected words in"),
        ("wsj-sample", "test", {"a.mrg": "(S (NN a)\n"}, "{}: a.mrg, line 1: a bracket is opened"),
        ("wsj-sample", "test", {"a.mrg": "\n\udcff"}, "{}: a.mrg, line 2: expected UTF-8"),
        ("craft", "dev", {"1.tree": "(S (NN a))"}, "{}: expected trees of craft, split dev"),
        ("craft", "dev", {"1.tree": "\udcff"}, "{}: 1.tree, line 1: expected UTF-8"),
        (
            "craft",
            "dev",
            {"1.tree": "(S (NN a))", "craft-ids-dev.txt": "1\n2\n"},
            "{}: craft-ids-dev.txt lists 2, but there is no 2.tree",
        ),
    ],
)
def test_an_archive_without_trees_is_refused(tmp_path, monkeypatch, corpus, split, files, said):
    monkeypatch.setenv("ANNOTATED_DATA", str(tmp_path))
    path = tmp_path / find_corpus(corpus).folder / next(iter(find_corpus(corpus).files))
    path.parent.mkdir(parents=True)
    if files is None:
        path.write_bytes(b"no archive")
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text.encode("utf-8", "surrogateescape"))
    else:
        with tarfile.open(path, "w:gz") as archive:
            for name, text in files.items():
                data = text.encode("utf-8", "surrogateescape")
                (info := tarfile.TarInfo(name)).size = len(data)
                archive.addfile(info, io.BytesIO(data))
    with pytest.raises(ValueError, match=re.escape(said.format(path))):
        load_trees(corpus, split)


def test_one_wrong_comma_costs_something_but_not_the_sentence():
    gold = one("(S (NP (NN a) (, ,) (NN b)) (VP (VB c)) (. .))")
    found = one("(S (NP (NN a) (NN ,) (NN b)) (VP (. c)) (X .))")
    assert compare([gold], [found]).status == 1
    score = compare([gold], [same_punctuation(found, gold)])
    assert (score.status, score.matched, score.gold, score.found) == (0, 3, 3, 3)
    assert (score.words, score.tags) == (3, 2)
    assert found[0][1].label() == "NN"  # the tree itself is as it was


def test_a_tree_of_other_words_is_named():
    told = "expected a tree of the 2 words 'a b'; got one of the 1 words 'a'"
    with pytest.raises(ValueError, match=told):
        score_trees([one("(S (NN a) (NN b))")], [one("(S (NN a))")])


def test_files_of_trees_are_scored_as_evalb_does(tmp_path):
    gold, found = tmp_path / "gold", tmp_path / "found"
    gold.write_text("( (S (NP-SBJ (-NONE- *)) (NP (NN a)) (. .)) )\n(S (NN a))\n(S (NN a) (. .))\n")
    found.write_text("(S (NP (NN a)) (. .))\n\n(S (NN a) (NN .))\n")
    (row, _) = score_tree_files(gold, found)
    counts = [row[f"Number of {what} sentence"] for what in ("Error", "Skip ", "Valid")]
    assert counts == [1, 1, 1] and row["Bracketing FMeasure"] == 100
    traces = replace(Rules(), deleted=frozenset(), longest=0)  # now a trace is a word
    (row, short) = score_tree_files(gold, found, traces)
    assert row["Number of Error sentence"] == 1 and row["Number of Valid sentence"] == 1
    assert (short["sentences"], short["Number of sentence"]) == ("up to 0 words", 0)
    found.write_text("(S (NN a))\n")
    with pytest.raises(
        ValueError, match=r"expected as many lines in .*found as in .*gold, 3; got 1"
    ):
        score_tree_files(gold, found)
    found.write_text("(S (NN a))\n\n(S (NN a)\n")
    with pytest.raises(ValueError, match="found, line 3: a bracket is opened and never closed"):
        score_tree_files(gold, found)


def test_a_nested_phrase_is_right_once():
    gold = one("(S (NP-SBJ (NN a)) (VP (VB b)))")
    assert "tree-wrong" not in tree_svg(gold).split("</style>")[1]
    twice = one("(S (NP (NP (NN a))) (VP (VB b)))")
    assert tree_svg(twice, gold).split("</style>")[1].count("tree-wrong") == 1


class Oracle:
    """A parser that knows some trees by heart."""

    def __init__(self, trees: list[Tree]) -> None:
        self.known = {tuple(tree.leaves()): tree for tree in trees}

    def parse_all(self, sentences: list[list[str]], **options: object) -> list[Tree]:
        return [self.known[tuple(words)] for words in sentences]


SHORT = "(S (NP (DT the) (NN cat)) (VP (VBZ sleeps)) (. .))"
LONG = "(S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (DT the) (NN cat))) (. .))"


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


@given(ANY_TREES)
def test_a_line_comes_back_as_the_tree_that_it_was(tree):
    assert len(sentence_line(tree.leaves()).split()) == len(tree.leaves())
    assert line_tree(tree_line(tree), tree.leaves()) == tree


PIECES = st.sampled_from(["↓S", "↓NP", "↑S", "↑NP", "→NN", "→DT", "w0", "w1", "w2", "w", "→"])


@given(st.lists(PIECES), st.integers(1, 4))
def test_any_line_gives_a_tree_with_all_words_in_order(pieces, n):
    words = [f"w{i}" for i in range(n)]
    tree = line_tree(" ".join(pieces), words)
    assert tree.leaves() == words and all(len(phrase) for phrase in tree.subtrees())


@pytest.mark.parametrize(
    "line, tree",
    [
        ("↓S →DT the →NN cat →VB sat ↑S", "(S (DT the) (NN cat) (VB sat))"),
        ("↓S →DT the →JJ fat →NN cat →VB sat ↑S", "(S (DT the) (NN cat) (VB sat))"),  # made up
        ("↓S ↓NP →DT the ↑NP →VB sat ↑S", "(S (NP (DT the)) (X cat) (VB sat))"),  # passed over
        ("↓S →DT the →NN dog →VB sat ↑S", "(S (DT the) (NN cat) (VB sat))"),  # another word
        ("↓S →DT the →NN →VB sat ↑S", "(S (DT the) (NN cat) (VB sat))"),  # none after a tag
        ("↓S ↓NP →DT the ↑NP ↑S", "(TOP (S (NP (DT the))) (X cat) (X sat))"),
    ],
)
def test_words_say_where_a_tag_belongs(line, tree):
    assert line_tree(line, ["the", "cat", "sat"]) == one(tree)


# ------------------------------------------------------------------------ the search held to trees


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
LINES = [line for text in SEEN for line in (tree_line(one(text)), " ".join(one(text).leaves()))]
TOKENIZER = train_bpe(LINES * 40, 120)  # small, and each bracket is a piece all the same


def allowed(tree: Tree) -> bool:
    """Whether the rules over its words allow the line of a tree, piece by piece, to its end."""
    encode = lambda line: TOKENIZER.encode(line, add_special_tokens=False).ids
    held = HeldTranslator(make_model(120, 120, N=1, d_model=8, h=1), TOKENIZER)
    follow = held.follow(LineRules(TOKENIZER), encode(sentence_line(tree.leaves())))
    line = [*encode(tree_line(tree)), END]
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
    (line,) = HeldTranslator(model, TOKENIZER).translate_all([" ".join(words)], max_extra=600)
    tree = line_tree(line, words)
    assert tree.leaves() == words and tree_line(tree) == line  # there was nothing to mend


def test_a_letter_that_no_piece_has_is_no_obstacle():
    model = make_model(120, 120, N=1, d_model=8, d_ff=8, h=1).eval()
    words = ["\u4e01", "the", "\u03b2-cat", "\u4e00", "sleeps"]
    assert Parser(Translator(model, TOKENIZER)).parse(words).leaves() == words


def test_a_model_of_sentences_is_no_parser():
    with pytest.raises(ValueError, match="expected a model that writes trees"):
        Parser(load_pretrained("multi30k-en-de")).parse(["mice"])


@pytest.fixture(scope="module")
def gold() -> list[Tree]:
    with (shipped("results") / "craft-test-trees.txt").open(encoding="utf-8") as lines:
        return list(read_trees(lines))


def test_the_shipped_parser_is_right_about_most_phrases(gold: list[Tree]):
    found = load_parser().parse_all([tree.leaves() for tree in gold])
    assert [tree.leaves() for tree in found] == [tree.leaves() for tree in gold]
    tags = [[tag for _, tag in tree.pos()] for tree in gold]
    simple = [right_branching(tree.leaves(), t) for tree, t in zip(gold, tags, strict=True)]
    (ours, *_), (rule, *_) = score_trees(gold, found), score_trees(gold, simple)
    assert ours["Bracketing FMeasure"] > max(70, 2 * rule["Bracketing FMeasure"])
    assert ours["Tagging accuracy"] > 90


SHARES = "Recall", "Precision", "FMeasure"


def test_the_card_of_the_shipped_parser_quotes_its_results():
    card = (shipped("models") / "craft-parser" / "README.md").read_text(encoding="utf-8")
    expected = []
    for name, count in ("craft-parser.json", 9099), ("craft-parser-wsj.json", 3914):
        rows = json.loads((shipped("results") / name).read_text(encoding="utf-8"))
        assert max(row["Number of sentence"] for row in rows) == count  # no part of the corpus
        for row in rows:
            who = row.get("parser", "Transformer, NLTK's sample")
            shares = [f"{row[f'Bracketing {name}']:.2f}" for name in SHARES]
            cells = [who, row["sentences"], f"{row['Number of sentence']:,}", *shares]
            expected.append(f"| {' | '.join(cells)} |")
    table = card[card.index("| parser |") :].split("\n\n")[0].splitlines()
    assert table[2:] == expected


# --------------------------------------------------------------------- what the page says of CRAFT


@pytest.fixture(scope="module")
def craft() -> dict[str, list[Tree]]:
    return {split: load_trees("craft", split) for split in ("train", "dev", "test")}


@pytest.mark.corpora
def test_the_log_of_openings_counts_the_trees_that_are_held_to_two(craft):
    with (shipped("results") / "craft-openings.csv").open(encoding="utf-8") as file:
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
def test_how_many_trees_of_craft_have_more_than_300_marks(craft):
    counts = [sum(len(linearize(tree)) > 300 for tree in trees) for trees in craft.values()]
    assert counts == [15, 3, 5]
    chapter = (CHAPTERS / "6-3-constituency-parsing.md").read_text(encoding="utf-8")
    assert f"\n{counts}\n" in chapter


@pytest.mark.corpora
def test_what_the_shipped_parser_can_write_of_crafts_labels(craft):
    tokenizer = load_parser().translator.tokenizer
    rules = LineRules(tokenizer)
    name = lambda piece: tokenizer.id_to_token(piece)[2:]
    labels, tags = set(), set()
    for tree in craft["train"]:
        for part in tree.subtrees():
            (tags if is_tag(part) else labels).add(part.label())
    assert labels - set(map(name, rules.closing)) == {"NAC", "RRC", "SQ", "SBARQ", "WHADJP", "X"}
    marks = {line_tokens(f"→{name(piece)}")[0] for piece in rules.tags}
    assert tags <= marks
    assert " ".join(sorted(marks - tags)) == "C CLOS CO HY L N OP P R S W"
