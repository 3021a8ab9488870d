"""Trees for tests."""

from hypothesis import strategies as st
from nltk import Tree

from annotated.machinery.trees.penn import is_tag, read_trees

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


SHORT = "(S (NP (DT the) (NN cat)) (VP (VBZ sleeps)) (. .))"
LONG = "(S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (DT the) (NN cat))) (. .))"
