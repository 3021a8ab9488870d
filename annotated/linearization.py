"""6.3 English Constituency Parsing (chapters/6-3-constituency-parsing.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

from annotated.machinery.files import lazy_extra
from annotated.machinery.parsing.trees import is_tag

with lazy_extra("parse"):
    from nltk import Tree


def linearize(tree: Tree) -> list[str]:
    """A tree as tokens: (NP and )NP for brackets, a tag for each word.

    >>> linearize(Tree.fromstring("(NP (DT the) (NN mat))"))
    ['(NP', 'DT', 'NN', ')NP']
    """
    if is_tag(tree):
        return [tree.label()]
    inside = [token for child in tree for token in linearize(child)]
    return [f"({tree.label()}", *inside, f"){tree.label()}"]
