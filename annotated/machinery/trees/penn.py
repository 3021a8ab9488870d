"""Treebanks: trees in brackets, without the parts that parsers do not predict, and their splits.

The reader is our own because nltk's does not report the line of a file in which a bracket is wrong.
"""

import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from reprlib import repr as cut  # of a long string, only its ends
from typing import TYPE_CHECKING, Union

from annotated.machinery.corpora.registry import corpus_file, find_corpus, local_file
from annotated.machinery.corpora.texts import archive_texts, read_lines
from annotated.machinery.errors import InputError, extra

if TYPE_CHECKING:
    from nltk import Tree

_TOKEN = re.compile(r"[()]|[^() \t\r\n]+")  # other spaces may be part of a word
_MOST_OPEN = 200  # nested brackets; Python's recursion has a limit


def read_trees(lines: Iterable[str], where: str = "trees") -> Iterator["Tree"]:
    """Trees in brackets, each on one line or on several; errors name `where` they are from.

    Raises: InputError that names the line in which a bracket is wrong or more than 200 are nested,
        or that reports that there is no tree.
    """
    with extra("parse"):
        from nltk import Tree
    stack: list[tuple[Tree, int]] = []  # open phrases, and the lines where they were opened
    number, found = 0, False
    for number, line in enumerate(lines, start=1):
        place = f"{where}, line {number}"
        for token in _TOKEN.findall(line.removeprefix("\ufeff") if number == 1 else line):
            if token == "(":
                if len(stack) == _MOST_OPEN:
                    raise InputError(f"{place}: expected at most {_MOST_OPEN} nested brackets")
                stack.append((Tree("", []), number))
                continue
            if not stack:
                raise InputError(f"{place}: expected '('; got {cut(token)}")
            tree, _ = stack[-1]
            if token == ")":
                if not tree or (len(tree) > 1 and any(isinstance(child, str) for child in tree)):
                    wanted = "expected one word, or phrases and tags with a word"
                    raise InputError(f"{place}: {wanted}, in ({tree.label()[:40]} ...)")
                stack.pop()
                if stack:
                    stack[-1][0].append(tree)
                else:
                    found = True
                    yield tree
            elif tree.label() or tree:
                tree.append(token)
            else:
                tree.set_label(token)
    if stack:
        raise InputError(f"{where}, line {stack[-1][1]}: a bracket is opened and never closed")
    if not found:
        raise InputError(f"{where}: expected trees in brackets; there are none in {number} lines")


def strip_traces(tree: "Tree") -> Union["Tree", None]:
    """The tree without traces, functions, indices and the empty bracket around it.

    The functions of phrases (NP-SBJ, a subject), the indices of related phrases (NP-1) and traces
    (-NONE-) do not count in the evaluation of parsers.

    Returns: None if the tree contained only traces.
    """
    stripped = [child if isinstance(child, str) else strip_traces(child) for child in tree]
    children = [child for child in stripped if child is not None]
    if tree.label() == "-NONE-" or not children:
        return None
    if not tree.label() and len(children) == 1 and not isinstance(children[0], str):
        return children[0]
    label = tree.label()
    if not label.startswith("-"):  # tags such as -LRB- are kept whole
        label = re.split("[-=]", label)[0]
    return type(tree)(label or "TOP", children)


def is_tag(tree: "Tree") -> bool:
    """Whether a tree is a tag with its word."""
    return len(tree) == 1 and isinstance(tree[0], str)


def tree_to_brackets(tree: "Tree") -> str:
    """A tree in brackets on one line, as `read_trees` reads it.

    >>> tree_to_brackets(Tree("NP", [Tree("-LRB-", ["("]), Tree("CD", ["2"])]))
    '(NP (-LRB- -LRB-) (CD 2))'
    """
    tree = tree.copy(deep=True)
    for place in tree.treepositions("leaves"):
        tree[place] = tree[place].replace("(", "-LRB-").replace(")", "-RRB-")
    return tree.pformat(margin=10**6)


def load_trees(corpus: str, split: str) -> list["Tree"]:
    """The trees of a split of a treebank, without traces.

    Args:
        corpus: "craft", "wsj-sample", or the folder of a whole Penn Treebank, whose sections are
            folders 00 to 24 in it, at any depth.
        split: "train", "dev" or "test"; "wsj-sample" has only "test".

    Raises: InputError for another split, as `read_trees`, or if a section or file contains no
        words; MissingFile or FileError if the treebank cannot be found or read.

    Source: section 6.3.
    """
    splits = ["test"] if corpus == "wsj-sample" else list(_SECTIONS)
    if split not in splits:
        raise InputError(f"expected a split out of {', '.join(splits)} of {corpus}; got {split!r}")
    read = _archived_files if corpus in ("craft", "wsj-sample") else _penn_files
    trees: list[Tree] = []
    for name, text in read(corpus, split):
        stripped = map(strip_traces, read_trees(io.StringIO(text), name))
        found = [tree for tree in stripped if tree is not None]
        if not found:
            raise InputError(f"{name}: expected words in its trees; there are only traces")
        trees += found
    return trees


def _archived_files(corpus: str, split: str) -> Iterator[tuple[str, str]]:
    """Name and text of each file of a split of a registered treebank.

    CRAFT lists the articles of each split. NLTK's sample of the Journal has sections 00 and 01.
    """
    found = find_corpus(corpus)
    local, remote = found.files
    path = local_file(found, local) or corpus_file(found, remote)
    ids = f"craft-ids-{split}.txt"
    texts = archive_texts(path, (".mrg", ".tree", ids))
    wanted = [name for name in texts if name.endswith(".mrg")]
    if corpus == "craft":
        trees = {Path(name).stem: name for name in texts if name.endswith(".tree")}
        listed = " ".join(text for name, text in texts.items() if name.endswith(ids)).split()
        if missing := [article for article in listed if article not in trees]:
            raise InputError(f"{path}: expected {missing[0]}.tree, which {ids} lists")
        wanted = [trees[article] for article in listed]
    if not wanted:
        raise InputError(f"{path}: expected trees of {corpus}, split {split}; there are none")
    for name in sorted(wanted):
        yield f"{path}: {name}", texts[name]


_SECTIONS = {"train": range(2, 22), "dev": [22], "test": [23]}  # by convention


def _penn_files(corpus: str, split: str) -> Iterator[tuple[str, str]]:
    """Name and text of each file of the sections of the Wall Street Journal in a split."""
    folder = Path(corpus)
    if not folder.is_dir():
        known = "craft, wsj-sample, or the folder of a Penn Treebank"
        raise InputError(f"expected a treebank: {known}; there is no folder {folder}")
    for section in _SECTIONS[split]:
        files = sorted(folder.glob(f"**/{section:02d}/*.[mM][rR][gG]"))
        if not files:
            raise InputError(f"expected trees in {folder}/**/{section:02d}/*.mrg; there are none")
        for path in files:
            yield str(path), "\n".join(read_lines(path))
