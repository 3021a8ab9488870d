"""Trees."""

import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from reprlib import repr as cut  # of a long string, its ends

from annotated.machinery.corpora import corpus_file, find_corpus, local_file
from annotated.machinery.files import lazy_extra
from annotated.machinery.texts import archive_texts, read_lines

with lazy_extra("parse"):
    from nltk import Tree

_TOKEN = re.compile(r"[()]|[^() \t\r\n]+")  # other spaces may be part of a word
_MOST_OPEN = 200  # brackets inside of each other; Python's recursion has a limit


def _add_token(tree: Tree, token: str) -> None:
    """The first token after a bracket is its label, all others are words."""
    if not tree.label() and not tree:
        tree.set_label(token)
    else:
        tree.append(token)


def _check_node(tree: Tree, place: str) -> None:
    """Raise ValueError unless a tree is a word with its tag, or phrases and tags."""
    label = tree.label()[:40]
    if not tree:
        raise ValueError(f"{place}: ({label}) holds no word")
    if len(tree) > 1 and any(isinstance(child, str) for child in tree):
        raise ValueError(
            f"{place}: expected one word, or phrases and tags with a word, in ({label} ...)"
        )


def _check_depth(depth: int, place: str) -> None:
    """Raise ValueError if more brackets are open than a tree of a sentence can have."""
    if depth > _MOST_OPEN:
        raise ValueError(
            f"{place}: expected at most {_MOST_OPEN} brackets inside of each other; there are more"
        )


def read_trees(lines: Iterable[str], where: str = "trees", first: int = 1) -> Iterator[Tree]:
    """Trees in brackets, each on one line or on several.

    Args:
        where: name of the source, and `first`, number of its first line here, for errors.

    Raises: ValueError that says in which line a bracket is wrong, or more than 200 are open, or
        that there is no tree.
    """
    stack: list[tuple[Tree, int]] = []  # what is open, and the line where it was opened
    number, count = 0, 0
    for number, line in enumerate(lines, start=first):
        for token in _TOKEN.findall(line.removeprefix("\ufeff") if number == 1 else line):
            if token == "(":
                stack.append((Tree("", []), number))
                _check_depth(len(stack), f"{where}, line {number}")
            elif not stack:
                raise ValueError(f"{where}, line {number}: expected '('; got {cut(token)}")
            elif token != ")":
                _add_token(stack[-1][0], token)
            else:
                tree, _ = stack.pop()
                _check_node(tree, f"{where}, line {number}")
                if stack:
                    stack[-1][0].append(tree)
                else:
                    count += 1
                    yield tree
    if stack:
        raise ValueError(f"{where}, line {stack[-1][1]}: a bracket is opened and never closed")
    if not count:
        raise ValueError(f"{where}: expected trees in brackets; there are none in {number} lines")


def strip_traces(tree: Tree) -> Tree | None:
    """The tree without traces, functions, indices and the empty bracket around it.

    Returns: None if nothing but traces was in it.
    """
    kept = [child if isinstance(child, str) else strip_traces(child) for child in tree]
    children = [child for child in kept if child is not None]
    if tree.label() == "-NONE-" or not children:
        return None
    if not tree.label() and len(children) == 1 and isinstance(children[0], Tree):
        return children[0]
    return Tree(bare_label(tree.label()) or "TOP", children)


def bare_label(label: str) -> str:
    """A label without function and index: NP-SBJ-1 is an NP. A label such as -LRB- is whole.

    >>> bare_label("NP-SBJ-1"), bare_label("-LRB-"), bare_label("NP=2")
    ('NP', '-LRB-', 'NP')
    """
    return label if label.startswith("-") else re.split("[-=]", label)[0]


def is_tag(tree: Tree) -> bool:
    """Whether a tree is a tag with its word."""
    return len(tree) == 1 and isinstance(tree[0], str)


def tree_to_brackets(tree: Tree) -> str:
    """A tree in brackets on one line, for `read_trees`.

    >>> tree_to_brackets(Tree("NP", [Tree("-LRB-", ["("]), Tree("CD", ["2"])]))
    '(NP (-LRB- -LRB-) (CD 2))'
    """
    tree = tree.copy(deep=True)
    for place in tree.treepositions("leaves"):
        tree[place] = tree[place].replace("(", "-LRB-").replace(")", "-RRB-")
    return tree.pformat(margin=10**6)


def read_tree_lines(path: Path) -> list[list[Tree]]:
    """The trees on each line of a file, as they stand there."""
    read = lambda line, n: list(read_trees([line], str(path), n)) if line.strip() else []
    return [read(line, n) for n, line in enumerate(read_lines(path), start=1)]


_SECTIONS = {"train": range(2, 22), "dev": [22], "test": [23]}


def treebank_files(corpus: str, split: str) -> Iterator[tuple[str, str]]:
    """Name and text of each file of a split of a treebank.

    Args:
        corpus: "craft", "wsj-sample", or the folder of a whole Penn Treebank, whose sections are
            folders 00 to 24 in it, at any depth.
        split: "train", "dev" or "test"; of "wsj-sample" there is "test" alone.

    Raises: ValueError for another split, or if a section holds no trees; MissingFile or FileError
        if the treebank cannot be had or read.

    Source: section 6.3.
    """
    if corpus not in ("craft", "wsj-sample"):
        yield from _penn_sections(Path(corpus), split)
        return
    splits = ["test"] if corpus == "wsj-sample" else ["train", "dev", "test"]
    if split not in splits:
        raise ValueError(f"expected a split out of {', '.join(splits)} of {corpus}; got {split!r}")
    found = find_corpus(corpus)
    local, remote = found.files
    path = local_file(found, local) or corpus_file(found, remote)
    ids = f"craft-ids-{split}.txt"
    inside = archive_texts(path, (".mrg", ".tree", ids))
    wanted = [name for name in inside if name.endswith(".mrg")]
    if corpus == "craft":
        listed = " ".join(text for name, text in inside.items() if name.endswith(ids)).split()
        wanted = _craft_articles(inside, listed, f"{path}: {ids}")
    if not wanted:
        raise ValueError(f"{path}: expected trees of {corpus}, split {split}; there are none")
    for name in sorted(wanted):
        yield f"{path}: {name}", inside[name]


def _craft_articles(names: Iterable[str], listed: list[str], where: str) -> list[str]:
    """The files of trees among these names that belong to the articles listed.

    Raises: ValueError if an article has none.
    """
    trees = {Path(name).stem: name for name in names if name.endswith(".tree")}
    missing = [article for article in listed if article not in trees]
    if missing:
        raise ValueError(f"{where} lists {missing[0]}, but there is no {missing[0]}.tree")
    return [trees[article] for article in listed]


def _penn_sections(folder: Path, split: str) -> Iterator[tuple[str, str]]:
    """Name and text of each file of the sections of the Wall Street Journal that a split has."""
    if split not in _SECTIONS:
        raise ValueError(f"expected a split out of {', '.join(_SECTIONS)}; got {split!r}")
    if not folder.is_dir():
        known = "craft, wsj-sample, or the folder of a Penn Treebank"
        raise ValueError(f"expected a treebank: {known}; there is no folder {folder}")
    for section in _SECTIONS[split]:
        files = sorted(folder.glob(f"**/{section:02d}/*.[mM][rR][gG]"))
        if not files:
            raise ValueError(f"expected trees in {folder}/**/{section:02d}/*.mrg; there are none")
        for path in files:
            yield str(path), "\n".join(read_lines(path))


def load_trees(corpus: str, split: str) -> list[Tree]:
    """All trees of a split of a treebank, cleaned.

    Args:
        corpus, split: as for `treebank_files`.

    Raises: as `treebank_files` and `read_trees`; ValueError for a file with nothing but traces.
    """
    trees: list[Tree] = []
    for name, text in treebank_files(corpus, split):
        cleaned = map(strip_traces, read_trees(io.StringIO(text), name))
        found = [tree for tree in cleaned if tree is not None]
        if not found:
            raise ValueError(f"{name}: expected words in its trees; there are only traces")
        trees += found
    return trees


def check_limit(limit: int | None) -> None:
    """Raise ValueError unless a number of sentences, if there is one, is at least 1."""
    if limit is not None and limit < 1:
        raise ValueError(f"expected a limit of at least 1 sentence; got {limit}")
