"""EVALB, the usual program for scoring parsers (https://nlp.cs.nyu.edu/evalb/), in Python.

No Python library computes what EVALB does; this module does, to the last digit of its sample. A
tree is a multiset of brackets (label, start, end). A sentence is skipped if the parser gave
nothing, and an error if its words that count are not those of the gold tree; neither has a part
in recall and precision. A bracket crosses another if they overlap and neither contains the other.
In one thing EVALB is more literal: it counts the bracket without a label that the Penn Treebank's
files have around each tree.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as cut  # of a long string, its ends
from typing import TYPE_CHECKING, Any, NamedTuple

from annotated.machinery.errors import InputError
from annotated.machinery.parsing.trees import is_tag, read_trees
from annotated.machinery.texts import read_lines

if TYPE_CHECKING:
    from nltk import Tree

Bracket = tuple[str, int, int]  # label, first word, word after the last


def _same(one: str, other: str, pairs: frozenset[frozenset[str]]) -> bool:
    """Whether two labels or words are equal, or one of these pairs; pairs do not form chains."""
    return one == other or frozenset([one, other]) in pairs


@dataclass(frozen=True)
class EvalbParams:
    """What counts in the comparison of trees; the defaults are those of COLLINS.prm.

    Args:
        deleted: labels that do not count; a word with such a tag is removed, so punctuation and
            traces have no positions.
        not_long: tags that do not count for the length of a sentence.
        quotes: tags of the sign ' or " where it may be a quote or not, in a parser's view.
        same_labels, same_words: pairs that count as equal.
        labeled: whether brackets with other labels differ.
        longest: words of the longest sentence in the second summary.

    Source: EVALB's parameter file.
    """

    deleted: frozenset[str] = frozenset(["TOP", "-NONE-", ",", ":", "``", "''", "."])
    not_long: frozenset[str] = frozenset(["-NONE-"])
    quotes: frozenset[str] = frozenset()
    same_labels: frozenset[frozenset[str]] = frozenset([frozenset(["ADVP", "PRT"])])
    same_words: frozenset[frozenset[str]] = frozenset()
    labeled: bool = True
    longest: int = 40

    def counts(self, label: str) -> bool:
        """Whether brackets with this label count; a bracket without a label never does."""
        return bool(label) and not any(_same(label, x, self.same_labels) for x in self.deleted)


_LABELS = {
    "DELETE_LABEL": "deleted",
    "DELETE_LABEL_FOR_LENGTH": "not_long",
    "QUOTE_LABEL": "quotes",
}
_PAIRS = {"EQ_LABEL": "same_labels", "EQ_WORD": "same_words"}
_NUMBERS = "CUTOFF_LEN", "LABELED", "DEBUG", "MAX_ERROR"  # the last two are about EVALB's output


def read_evalb_params(path: Path) -> EvalbParams:
    """The rules of a parameter file of EVALB, such as COLLINS.prm or new.prm.

    Raises: InputError for a line that is no rule; MissingFile or FileError.

    Source: EVALB.
    """
    sets: dict[str, set[Any]] = {name: set() for name in (*_LABELS.values(), *_PAIRS.values())}
    numbers = {"CUTOFF_LEN": 40, "LABELED": 1}
    for number, line in enumerate(read_lines(path), start=1):
        name, *values = line.split() or ["#"]
        if name in _LABELS and len(values) == 1:
            sets[_LABELS[name]].add(values[0])
        elif name in _PAIRS and len(values) == 2:
            sets[_PAIRS[name]].add(frozenset(values))
        elif name in _NUMBERS and re.fullmatch(r"[0-9]{1,9}", " ".join(values)):
            numbers[name] = int(values[0])
        elif not name.startswith("#"):
            rules = f"one of {', '.join([*_LABELS, *_PAIRS, *_NUMBERS])} with what belongs to it"
            raise InputError(f"{path}, line {number}: expected {rules}; got {cut(line)}")
    frozen = {field: frozenset(values) for field, values in sets.items()}
    return EvalbParams(**frozen, labeled=numbers["LABELED"] != 0, longest=numbers["CUTOFF_LEN"])


class Bracketing(NamedTuple):
    """What EVALB sees of a sentence: words and tags that count, brackets, length.

    `quotes` are the words that may be quotes: the number of each among all words of the tree, and
    among those that count, and its tag.
    """

    words: list[str]
    tags: list[str]
    brackets: list[Bracket]
    length: int
    quotes: list[tuple[int, int, str]]


def bracketing(
    trees: Iterable["Tree"], params: EvalbParams, kept: Sequence[int] = ()
) -> Bracketing:
    """Words and brackets of a sentence that count.

    Args:
        trees: the tree of a sentence; several, or none, if a parser left it in pieces.
        kept: numbers of words that count whatever their tags are.
    """
    seen = Bracketing([], [], [], 0, [])
    length = number = 0

    def visit(tree: "Tree") -> None:
        nonlocal length, number
        start, place, label = len(seen.words), len(seen.brackets), tree.label()
        if is_tag(tree):
            length += label not in params.not_long
            if label in params.quotes and tree[0] in ("'", '"', "/"):
                seen.quotes.append((number, start, label))
            times = kept.count(number) + (label not in params.deleted)
            seen.words.extend([tree[0]] * times)
            seen.tags.extend([label] * times)
            number += 1
            return
        for child in tree:
            visit(child)
        label = re.split("[-=]", label)[0]
        if len(seen.words) > start and params.counts(label):
            seen.brackets.insert(place, (label, start, len(seen.words)))

    for tree in trees:
        visit(tree)
    return seen._replace(length=length)


def _kept_quotes(
    gold: Bracketing, found: Bracketing, params: EvalbParams
) -> tuple[list[int], list[int]]:
    """The words, by number, that each side has to keep because the other did not delete them.

    The sign ' is a quote or a possessive. If it is deleted as a quote in one tree and kept as a
    possessive in the other, the sentences differ in length, and one mistake would make the whole
    sentence an error. So a sign at the same place with two different tags counts in both trees.
    Of signs side by side EVALB may keep one twice, and so does this.

    Source: EVALB, releases of 2008 and later.
    """
    kept_gold: list[int] = []
    kept_found: list[int] = []
    moved = lambda number, kept: sum(before <= number for before in kept)
    for number, place, tag in found.quotes:
        here = place + moved(number, kept_found)
        for other, there, other_tag in gold.quotes:
            if here != there + moved(other, kept_gold) or tag == other_tag:
                continue
            if other_tag in params.deleted and tag not in params.deleted:
                kept_gold.append(other)
            elif tag in params.deleted and other_tag not in params.deleted:
                kept_found.append(number)
    return kept_gold, kept_found


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
    """Compare what a parser found in a sentence with its gold tree.

    Args:
        gold, found: the tree of the sentence; several, or none, if a parser left it in pieces.
        params: what counts; None: the rules of COLLINS.prm.

    Source: EVALB.
    """
    params, trees = params or EvalbParams(), (list(gold), list(found))
    g, f = (bracketing(side, params) for side in trees)
    if not f.words:
        return EvalbScore(g.length, status=2, words=len(g.words))
    if len(g.words) != len(f.words):
        kept = _kept_quotes(g, f, params)
        g, f = (bracketing(side, params, keep) for side, keep in zip(trees, kept, strict=True))
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
    """Remove the first equal bracket from those that are left; False if there is none."""
    label, *span = bracket
    for other in left:
        alike = not params.labeled or _same(label, other[0], params.same_labels)
        if list(other[1:]) == span and alike:
            left.remove(other)
            return True
    return False


def evalb_summary(scores: list[EvalbScore], longest: int | None = None) -> dict[str, Any]:
    """Totals over the sentences up to a length, in EVALB's order and with its names.

    Args:
        longest: words of the longest sentence that counts; None: all sentences count.

    Returns: which sentences were scored, their numbers, and shares in percent.

    Source: EVALB.
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

    EVALB decides by tags which words are punctuation and removes them, so a comma that a parser
    tags as a noun would make the whole sentence an error, and the worst trees would not count.
    Here the gold tags decide; brackets are left as they were found.

    Args:
        lengths: words of the longest sentence that counts, None for all; a summary for each.

    Returns: for each length which sentences were scored, and what `evalb_summary` returns.

    Raises: ValueError if a tree and its gold tree do not have the same number of words.
    """
    pairs = [(g, _with_punctuation_of(g, f)) for g, f in zip(gold, found, strict=True)]
    scores = [evalb_compare([g], [f]) for g, f in pairs]
    return [evalb_summary(scores, longest) for longest in lengths]


def _with_punctuation_of(gold: "Tree", found: "Tree") -> "Tree":
    """A copy of the second tree in which the words that are punctuation in the first are so."""
    deleted, found = EvalbParams().deleted, found.copy(deep=True)
    for (_, tag), leaf in zip(gold.pos(), found.subtrees(is_tag), strict=True):
        if tag in deleted:
            leaf.set_label(tag)
        elif leaf.label() in deleted:
            leaf.set_label("X")
    return found


def score_tree_files(
    gold: Path, found: Path, params: EvalbParams | None = None
) -> list[dict[str, Any]]:
    """Score a file of trees exactly as EVALB does.

    Args:
        gold, found: files of the same sentences, one per line; a blank line has no tree.
        params: what counts; None: the rules of COLLINS.prm (see `read_evalb_params`).

    Returns: as `score_trees`, for all sentences and for those up to the length in the params.

    Raises: InputError as `read_trees`, or if the files have not the same number of lines.
    """

    def trees_of_lines(path: Path) -> list[list["Tree"]]:
        read = lambda line, n: list(read_trees([line], str(path), n)) if line.strip() else []
        return [read(line, n) for n, line in enumerate(read_lines(path), start=1)]

    params, golds, founds = params or EvalbParams(), trees_of_lines(gold), trees_of_lines(found)
    if len(golds) != len(founds):
        told = f"expected as many lines in {found} as in {gold}"
        raise InputError(f"{told}, {len(golds)}; got {len(founds)}")
    scores = [evalb_compare(g, f, params) for g, f in zip(golds, founds, strict=True)]
    return [evalb_summary(scores, longest) for longest in (None, params.longest)]
