"""Trees as drawings."""

from xml.etree import ElementTree

import pytest
from nltk import Tree
from treebanks import one

from annotated.machinery.trees.evalb import evalb_compare
from annotated.machinery.trees.penn import read_trees, strip_traces, tree_to_brackets
from annotated.machinery.trees.svg import tree_svg
from annotated.parsing import linearize


def test_the_deepest_tree_can_be_used():
    (tree,) = read_trees(["(S " * 199 + "(NN a)" + ")" * 199])
    assert strip_traces(tree) == one(tree_to_brackets(tree)) and len(linearize(tree)) == 2 * 199 + 1
    assert evalb_compare([tree], [tree]).matched == 199 and tree_svg(tree).count(">S<") == 199


def test_a_drawing_has_all_words_and_shows_what_is_wrong():
    gold = one("(S (NP (DT the) (NN <cat>)) (VP (VB sees)) (. .))")
    svg = tree_svg(gold)
    assert [svg.count(f">{word}<") for word in ("the", "&lt;cat&gt;", "sees")] == [1, 1, 1]
    assert "tree-wrong" not in svg.split("</style>")[1]
    wrong = tree_svg(one("(S (NP (DT the)) (VP (NN <cat>) (VB sees)) (. .))"), gold)
    assert wrong.split("</style>")[1].count("tree-wrong") == 2
    gold, twice = one("(S (NP-SBJ (NN a)) (VP (VB b)))"), one("(S (NP (NP (NN a))) (VP (VB b)))")
    assert tree_svg(twice, gold).split("</style>")[1].count("tree-wrong") == 1


@pytest.mark.parametrize("letter", list('\x00\x0b\x1b\ufffe\ud800<&"\x85'))
def test_a_drawing_is_well_formed_whatever_the_words(letter: str):
    tree = Tree(f"S{letter}", [Tree(f"N{letter}", [f"a{letter}b"])])
    root = ElementTree.fromstring(tree_svg(tree))
    (word,) = root.findall(".//*[@class='tree-word']")
    assert len(word.text) == 3
