"""EVALB, the standard program for scoring parsers (https://nlp.cs.nyu.edu/evalb/), in Python.

No Python library computes EVALB's scores; this module does, to the last digit of its sample. A
tree is a multiset of brackets (label, start, end). A sentence is skipped if the parser returned
nothing, and it is an error if its counted words differ from those of the gold tree; neither
affects recall and precision. A bracket crosses another if they overlap and neither contains the
other. EVALB itself also counts the unlabeled bracket around each tree of the Penn Treebank. The
rules about quotes of later releases are not implemented, because COLLINS.prm has none.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from annotated.machinery.trees.penn import is_tag

if TYPE_CHECKING:
    from nltk import Tree

Bracket = tuple[str, int, int]  # label, first word, word after the last


def _same(one: str, other: str, pairs: frozenset[frozenset[str]]) -> bool:
    """Whether two labels or words are equal or one of these pairs; pairs are not transitive."""
    return one == other or frozenset([one, other]) in pairs


@dataclass(frozen=True)
class EvalbParams:
    """EVALB's rules for the comparison of trees; the defaults are those of COLLINS.prm."""

    # Labels that do not count. Words with such a tag, punctuation and traces, are removed.
    deleted: frozenset[str] = frozenset(["TOP", "-NONE-", ",", ":", "``", "''", "."])
    same_labels: frozenset[frozenset[str]] = frozenset([frozenset(["ADVP", "PRT"])])  # pairs
    same_words: frozenset[frozenset[str]] = frozenset()

    def counts(self, label: str) -> bool:
        """Whether brackets with this label count; a bracket without a label never does."""
        return bool(label) and not any(_same(label, x, self.same_labels) for x in self.deleted)


class Bracketing(NamedTuple):
    """The parts of a sentence that EVALB counts: words, tags, brackets; length without traces."""

    words: list[str]
    tags: list[str]
    brackets: list[Bracket]
    length: int


def bracketing(trees: Iterable["Tree"], params: EvalbParams) -> Bracketing:
    """Words and brackets of a sentence that count; trees: as for `evalb_compare`."""
    trees, words, tags, brackets = list(trees), list[str](), list[str](), list[Bracket]()

    def visit(tree: "Tree") -> None:
        start, place, label = len(words), len(brackets), tree.label()
        if is_tag(tree):
            if label not in params.deleted:
                words.append(tree[0])
                tags.append(label)
            return
        for child in tree:
            visit(child)
        label = re.split("[-=]", label)[0]
        if len(words) > start and params.counts(label):
            brackets.insert(place, (label, start, len(words)))

    for tree in trees:
        visit(tree)
    length = sum(tag != "-NONE-" for tree in trees for _, tag in tree.pos())
    return Bracketing(words, tags, brackets, length)


class EvalbScore(NamedTuple):
    """The comparison of two trees of a sentence; `status` is 0, or 1 for an error, 2 for a skip."""

    length: int
    status: int = 0
    matched: int = 0
    gold: int = 0
    found: int = 0
    crossing: int = 0
    words: int = 0
    tags: int = 0


def evalb_compare(
    gold: Iterable["Tree"], found: Iterable["Tree"], params: EvalbParams | None = None
) -> EvalbScore:
    """Compare the output of a parser for a sentence with the gold tree.

    Args:
        gold, found: the tree of the sentence; several, or none, if a parser left it in pieces.
        params: the rules; None: the rules of COLLINS.prm.

    Returns: counts of brackets: matched, of the gold tree, found, and crossing; and of words, tags.

    Source: EVALB.
    """
    params = params or EvalbParams()
    g, f = bracketing(gold, params), bracketing(found, params)
    if not f.words:
        return EvalbScore(g.length, status=2, words=len(g.words))
    alike = [_same(a, b, params.same_words) for a, b in zip(g.words, f.words, strict=False)]
    if len(g.words) != len(f.words) or not all(alike):
        return EvalbScore(g.length, status=1, words=len(g.words))
    spans = {(start, end) for _, start, end in g.brackets}
    crossing = sum(
        any(a < start < b < end or start < a < end < b for a, b in spans)
        for _, start, end in f.brackets
    )
    left = list(f.brackets)
    matched = sum(take_bracket(left, bracket, params) for bracket in g.brackets)
    tags = sum(_same(a, b, params.same_labels) for a, b in zip(g.tags, f.tags, strict=True))
    sizes = len(g.brackets), len(f.brackets), crossing, len(g.words)
    return EvalbScore(g.length, 0, matched, *sizes, tags)


def take_bracket(left: list[Bracket], bracket: Bracket, params: EvalbParams) -> bool:
    """Remove the first equal bracket from the remaining ones; False if there is none."""
    for other in left:
        if other[1:] == bracket[1:] and _same(bracket[0], other[0], params.same_labels):
            left.remove(other)
            return True
    return False


def evalb_summary(scores: list[EvalbScore], longest: int | None = None) -> dict[str, Any]:
    """Totals over the sentences of up to `longest` words, in EVALB's order and under its names.

    Returns: the sentences that were scored, their numbers, and shares in percent.
    """
    scores = [score for score in scores if longest is None or score.length <= longest]
    valid = [score for score in scores if score.status == 0]
    total = lambda name: sum(getattr(score, name) for score in valid)
    share = lambda part, whole: 100 * part / whole if whole else 0.0
    recall = share(total("matched"), total("gold"))
    precision = share(total("matched"), total("found"))
    whole = sum(score.matched == score.gold == score.found for score in valid)
    return {
        "sentences": "all" if longest is None else f"up to {longest} words",
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


def score_trees(
    gold: list["Tree"], found: list["Tree"], lengths: Iterable[int | None] = (None, 40)
) -> list[dict[str, Any]]:
    """Score trees as EVALB does, but with the punctuation of the gold trees.

    EVALB identifies punctuation by its tags and removes it, so a comma that a parser tags as a
    noun would make the whole sentence an error, and the worst trees would not count. Here the
    gold tags decide; the brackets of the parser are not changed.

    Args: lengths: words of the longest sentence that counts, None for all.

    Returns: the result of `evalb_summary` for each length.

    Raises: ValueError if a tree and its gold tree do not have the same number of words.
    """
    deleted, scores = EvalbParams().deleted, []
    for one, other in zip(gold, found, strict=True):
        other = other.copy(deep=True)
        for (_, tag), leaf in zip(one.pos(), other.subtrees(is_tag), strict=True):
            if tag in deleted:
                leaf.set_label(tag)
            elif leaf.label() in deleted:
                leaf.set_label("X")
        scores.append(evalb_compare([one], [other]))
    return [evalb_summary(scores, longest) for longest in lengths]
