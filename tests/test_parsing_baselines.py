"""The simple parsers of benchmarks/parsing.py."""

from treebanks import LONG, SHORT, one

from benchmarks.parsing import grammar_parser, right_branching, score_baselines


def test_a_grammar_that_is_counted_finds_the_trees_again():
    known = [
        one("(S (NP (DT the) (NN cat)) (VP (VB sees) (NP (DT a) (NN dog))) (. .))"),
        one("(S (NP (DT the) (NN dog)) (VP (VB sleeps)) (. .))"),
    ]
    parse = grammar_parser(known)
    for tree in known:
        assert parse(tree.leaves()) == tree
    new = parse(["a", "HOTDOG", "sees", "the", "cat", "."])
    assert new == one("(S (NP (DT a) (NN HOTDOG)) (VP (VB sees) (NP (DT the) (NN cat))) (. .))")
    assert parse([".", "."]) == right_branching([".", "."], [".", "."])
    tree = one("(S (ADVP|PRT (RB a) (RB b) (RB c)) (NP+VP (NP (NN d))))")
    assert grammar_parser([tree])(tree.leaves()) == tree  # labels are kept whole


def test_right_branching_opens_a_phrase_at_each_word():
    tree = right_branching(list("abc."), ["X", "X", "X", "."])
    assert tree == one("(S (X a) (NP (X b) (X c)) (. .))")
    assert right_branching(["a"], ["X"]) == one("(S (X a))")
    assert right_branching(["a", "."], ["X", "."]) == one("(S (X a) (. .))")


def test_the_grammar_gets_only_short_sentences():
    trees = [one(SHORT), one(LONG)]
    rows = score_baselines(trees, trees, (None, 4), 4)
    counts = [(row["parser"], row["sentences"], row["Number of sentence"]) for row in rows]
    short = "up to 4 words"
    assert counts == [
        ("right-branching", "all", 2), ("right-branching", short, 1), ("grammar", short, 1),
    ]  # fmt: skip
    assert rows[2]["Bracketing FMeasure"] == 100  # it has counted this very sentence
    assert 0 < rows[0]["Bracketing FMeasure"] < 100
