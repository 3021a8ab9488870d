"""6.3 English Constituency Parsing (chapters/6-3-constituency-parsing.md).

Generated from the chapter's export cells by book/extract.py: edit it there.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from nltk import Tree

__all__ = [
    "Bracketing",
    "Rules",
    "Score",
    "bare_label",
    "bracketing",
    "clean",
    "compare",
    "is_tag",
    "linearize",
    "read_trees",
    "restore",
    "summary",
    "without_empty",
]


_TOKEN = re.compile(r"[()]|[^\s()]+")


def read_trees(lines: Iterable[str], where: str = "trees") -> Iterator[Tree]:
    """Trees in brackets, each on one line or on several.

    Args:
        where: name of the source, for errors.

    Raises: ValueError that says in which line a bracket is wrong, or that there is no tree.
    """
    stack: list[tuple[Tree, int]] = []  # what is open, and the line where it was opened
    number, count = 0, 0
    for number, line in enumerate(lines, start=1):
        for token in _TOKEN.findall(line):
            if token == "(":
                stack.append((Tree("", []), number))
                continue
            if not stack:
                raise ValueError(f"{where}, line {number}: expected '('; got {token!r}")
            tree, _ = stack[-1]
            if token != ")":
                _add(tree, token)
                continue
            if not tree:
                raise ValueError(f"{where}, line {number}: ({tree.label()}) holds no word")
            stack.pop()
            if stack:
                stack[-1][0].append(tree)
            else:
                count += 1
                yield tree
    if stack:
        raise ValueError(f"{where}, line {stack[-1][1]}: a bracket is opened and never closed")
    if not count:
        raise ValueError(f"{where}: expected trees in brackets; there are none in {number} lines")


def _add(tree: Tree, token: str) -> None:
    """The first token after a bracket is its label, all others are words."""
    if not tree.label() and not tree:
        tree.set_label(token)
    else:
        tree.append(token)


def clean(tree: Tree) -> Tree | None:
    """The tree without traces, functions, indices and the empty bracket around it.

    Returns: None if nothing but traces was in it.
    """
    kept = [child if isinstance(child, str) else clean(child) for child in tree]
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


def linearize(tree: Tree) -> list[str]:
    """A tree as tokens: (NP and )NP for brackets, a tag for each word.

    >>> linearize(Tree.fromstring("(NP (DT the) (NN mat))"))
    ['(NP', 'DT', 'NN', ')NP']
    """
    if is_tag(tree):
        return [tree.label()]
    inside = [token for child in tree for token in linearize(child)]
    return [f"({tree.label()}", *inside, f"){tree.label()}"]


def is_tag(tree: Tree) -> bool:
    """Whether a tree is a tag with its word."""
    return len(tree) == 1 and isinstance(tree[0], str)


def restore(tokens: Iterable[str], words: list[str]) -> Tree:
    """The tree that tokens describe, whatever they are, over these words.

    Raises: ValueError if there are no words.
    """
    if not words:
        raise ValueError("expected words for the tree; got none")
    left, top = iter(words), Tree("TOP", [])
    open_phrases = [top]
    for token in tokens:
        if token.startswith("("):
            open_phrases.append(Tree(token[1:], []))
            open_phrases[-2].append(open_phrases[-1])
        elif token.startswith(")"):
            depth = [phrase.label() for phrase in open_phrases[1:]][::-1]
            if token[1:] in depth:
                del open_phrases[-1 - depth.index(token[1:]) :]
        elif (word := next(left, None)) is not None:
            open_phrases[-1].append(Tree(token, [word]))
    top.extend(Tree("X", [word]) for word in left)
    found = without_empty(top)
    assert found is not None  # there is at least one word
    only = found[0]
    return only if len(found) == 1 and not is_tag(only) else found


def without_empty(tree: Tree) -> Tree | None:
    """The tree without phrases that hold no word; None if it holds none at all."""
    if is_tag(tree):
        return tree
    children = [child for child in map(without_empty, tree) if child is not None]
    return Tree(tree.label(), children) if children else None


@dataclass(frozen=True)
class Rules:
    """What counts in the comparison of trees; the defaults are those of COLLINS.prm.

    Args:
        deleted: labels that do not count; a word with such a tag is taken out.
        not_long: tags that do not count for the length of a sentence.
        same_labels, same_words: what is taken for the same, as {one: the other}.
        cutoff: the second summary is of sentences up to this length.

    Source: EVALB's parameter file.
    """

    deleted: frozenset[str] = frozenset(["TOP", "-NONE-", ",", ":", "``", "''", "."])
    not_long: frozenset[str] = frozenset(["-NONE-"])
    same_labels: dict[str, str] = field(default_factory=lambda: {"PRT": "ADVP"})
    same_words: dict[str, str] = field(default_factory=dict)
    cutoff: int = 40


class Bracketing(NamedTuple):
    """What EVALB sees of a sentence: words, tags, brackets (label, start, end), length."""

    words: list[str]
    tags: list[str]
    brackets: list[tuple[str, int, int]]
    length: int


def bracketing(trees: Iterable[Tree], rules: Rules) -> Bracketing:
    """Words and brackets of a sentence that count.

    Args:
        trees: the tree of a sentence; several, or none, if a parser left it in pieces.
    """
    words: list[str] = []
    tags: list[str] = []
    brackets: list[tuple[str, int, int]] = []
    length = 0

    def visit(tree: Tree) -> None:
        nonlocal length
        if is_tag(tree):
            length += tree.label() not in rules.not_long
            if tree.label() not in rules.deleted:
                words.append(rules.same_words.get(tree[0], tree[0]))
                tags.append(rules.same_labels.get(tree.label(), tree.label()))
            return
        start, place = len(words), len(brackets)
        for child in tree:
            visit(child)
        label = re.split("[-=]", tree.label())[0]
        if len(words) > start and label not in rules.deleted:
            brackets.insert(place, (rules.same_labels.get(label, label), start, len(words)))

    for tree in trees:
        visit(tree)
    return Bracketing(words, tags, brackets, length)


class Score(NamedTuple):
    """The comparison of two trees of a sentence; `status` is 0, or 1 for an error, 2 for a skip."""

    length: int
    status: int = 0
    matched: int = 0
    gold: int = 0
    found: int = 0
    crossing: int = 0
    words: int = 0
    tags: int = 0


def compare(gold: Iterable[Tree], found: Iterable[Tree], rules: Rules | None = None) -> Score:
    """Compare what a parser found in a sentence with its gold tree.

    Source: EVALB.
    """
    rules = rules or Rules()
    g, f = bracketing(gold, rules), bracketing(found, rules)
    if not f.words:
        return Score(g.length, status=2, words=len(g.words))
    if g.words != f.words:
        return Score(g.length, status=1, words=len(g.words))
    spans = {(start, end) for _, start, end in g.brackets}
    crossing = sum(
        any(a < start < b < end or start < a < end < b for a, b in spans)
        for _, start, end in f.brackets
    )
    return Score(
        g.length, 0, sum((Counter(g.brackets) & Counter(f.brackets)).values()),
        len(g.brackets), len(f.brackets), crossing, len(g.words),
        sum(a == b for a, b in zip(g.tags, f.tags, strict=True)),
    )  # fmt: skip


def summary(scores: Iterable[Score]) -> dict[str, float]:
    """Totals over sentences, in EVALB's order and names; shares in per cent.

    Source: EVALB.
    """
    scores = list(scores)
    valid = [score for score in scores if score.status == 0]
    total = lambda name: sum(getattr(score, name) for score in valid)
    share = lambda part, whole: 100 * part / whole if whole else 0.0
    recall, precision = (
        share(total("matched"), total("gold")),
        share(total("matched"), total("found")),
    )
    whole = sum(score.matched == score.gold == score.found for score in valid)
    return {
        "Number of sentence": len(scores),
        "Number of Error sentence": sum(score.status == 1 for score in scores),
        "Number of Skip  sentence": sum(score.status == 2 for score in scores),
        "Number of Valid sentence": len(valid),
        "Bracketing Recall": recall,
        "Bracketing Precision": precision,
        "Bracketing FMeasure": 2 * precision * recall / (precision + recall) if recall else 0.0,
        "Complete match": share(whole, len(valid)),
        "Average crossing": total("crossing") / len(valid) if valid else 0.0,
        "No crossing": share(sum(score.crossing == 0 for score in valid), len(valid)),
        "2 or less crossing": share(sum(score.crossing <= 2 for score in valid), len(valid)),
        "Tagging accuracy": share(total("tags"), total("words")),
    }
