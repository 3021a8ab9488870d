"""Trees as tokens and as lines, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treebanks import ANY_TREES, one

from annotated.machinery.errors import InputError
from annotated.machinery.trees.linear import delinearize, line_to_tree, tree_to_line, words_to_line
from annotated.parsing import linearize


@given(ANY_TREES)
def test_linear_trees_come_back_as_they_were(tree):
    assert delinearize(linearize(tree), tree.leaves()) == tree


@given(st.lists(st.sampled_from(["(S", "(NP", ")S", ")NP", "NN", "DT"])), st.integers(1, 6))
def test_any_tokens_give_a_tree_with_all_words_in_order(tokens, n):
    words = [f"w{i}" for i in range(n)]
    tree = delinearize(tokens, words)
    assert tree.leaves() == words
    assert all(len(phrase) for phrase in tree.subtrees())
    assert delinearize(linearize(tree), words) == tree  # what is mended needs no mending


def test_mistakes_are_mended_by_the_rules():
    words = ["a", "b", "c"]
    fix = lambda text: delinearize(text.split(), words).pformat(margin=200)
    assert fix("(S (NP DT NN )S NN") == "(TOP (S (NP (DT a) (NN b))) (NN c))"
    assert fix("(S (NP DT )VP NN )NP VB )S NN NN") == "(S (NP (DT a) (NN b)) (VB c))"
    assert fix("(S DT (NP )NP") == "(TOP (S (DT a)) (X b) (X c))"
    assert fix("") == "(TOP (X a) (X b) (X c))"
    with pytest.raises(ValueError, match="words"):
        delinearize(["(S"], [])
    deep = delinearize(["(NP"] * 600 + ["NN"], ["a"])
    assert deep.height() == 102 and deep == delinearize(linearize(deep), ["a"])


@given(ANY_TREES)
def test_a_line_comes_back_as_the_tree_that_it_was(tree):
    assert len(words_to_line(tree.leaves()).split()) == len(tree.leaves())
    assert line_to_tree(tree_to_line(tree), tree.leaves()) == tree


PIECES = st.sampled_from(["↓S", "↓NP", "↑S", "↑NP", "→NN", "→DT", "w0", "w1", "w2", "w", "→"])


@given(st.lists(PIECES), st.integers(1, 4))
def test_any_line_gives_a_tree_with_all_words_in_order(pieces, n):
    words = [f"w{i}" for i in range(n)]
    tree = line_to_tree(" ".join(pieces), words)
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
    assert line_to_tree(line, ["the", "cat", "sat"]) == one(tree)


def test_a_line_is_made_of_a_list_of_words():
    assert words_to_line(["a\u00a0b", "-LRB-", "\u00a0"]).split() == ["a·b", "(", "·"]
    for words in "The cat sat", {"a", "b"}, iter(["a"]), [None], [1], None:
        with pytest.raises(InputError, match="list of words"):
            words_to_line(words)
