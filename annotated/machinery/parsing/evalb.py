"""EVALB."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as cut  # of a long string, its ends
from typing import Any, NamedTuple

from annotated.machinery.files import lazy_extra
from annotated.machinery.parsing.trees import is_tag, read_tree_lines
from annotated.machinery.texts import read_lines


def _same(one: str, other: str, pairs: frozenset[frozenset[str]]) -> bool:
    """Whether two labels or words are equal, or one of these pairs; pairs do not form chains."""
    return one == other or frozenset([one, other]) in pairs


@dataclass(frozen=True)
class EvalbParams:
    """What counts in the comparison of trees; the defaults are those of COLLINS.prm.

    Args:
        deleted: labels that do not count; a word with such a tag is taken out.
        not_long: tags that do not count for the length of a sentence.
        quotes: tags of a word that may be a quote or not, as parsers see it (see `evalb_compare`).
        same_labels, same_words: pairs of what is taken for the same.
        labelled: whether brackets with other labels differ.
        longest: words of the longest sentence in the second summary.

    Source: EVALB's parameter file.
    """

    deleted: frozenset[str] = frozenset(["TOP", "-NONE-", ",", ":", "``", "''", "."])
    not_long: frozenset[str] = frozenset(["-NONE-"])
    quotes: frozenset[str] = frozenset()
    same_labels: frozenset[frozenset[str]] = frozenset([frozenset(["ADVP", "PRT"])])
    same_words: frozenset[frozenset[str]] = frozenset()
    labelled: bool = True
    longest: int = 40

    def counts(self, label: str) -> bool:
        """Whether brackets with this label count; a bracket without a label never does."""
        return bool(label) and not any(
            _same(label, other, self.same_labels) for other in self.deleted
        )


_SETS = {"DELETE_LABEL": "deleted", "DELETE_LABEL_FOR_LENGTH": "not_long", "QUOTE_LABEL": "quotes"}
_PAIRS = {"EQ_LABEL": "same_labels", "EQ_WORD": "same_words"}
_NUMBERS = "CUTOFF_LEN", "LABELED", "DEBUG", "MAX_ERROR"


def read_evalb_params(path: Path) -> EvalbParams:
    """The rules of a parameter file of EVALB, such as COLLINS.prm or new.prm.

    Raises: ValueError for a line that is no rule; OSError if there is no such file.

    Source: EVALB.
    """
    sets: dict[str, set[Any]] = {name: set() for name in (*_SETS.values(), *_PAIRS.values())}
    numbers = {"CUTOFF_LEN": 40, "LABELED": 1}
    for number, line in enumerate(read_lines(path), start=1):
        name, *values = line.split() or ["#"]
        if name.startswith("#"):
            continue
        where = f"{path}, line {number}"
        if name not in (names := (*_SETS, *_PAIRS, *_NUMBERS)):
            raise ValueError(f"{where}: expected one of {', '.join(names)}; got {cut(name)}")
        if len(values) != (wanted := 1 + (name in _PAIRS)):
            told = f"{wanted} {'labels or words' if wanted > 1 else 'value'}"
            raise ValueError(f"{where}: expected {told} after {name}; got {cut(' '.join(values))}")
        if name in _PAIRS:
            sets[_PAIRS[name]].add(frozenset(values))
        elif name in _SETS:
            sets[_SETS[name]].add(values[0])
        elif re.fullmatch(r"\d{1,9}", values[0], re.ASCII):
            numbers[name] = int(values[0])
        else:
            raise ValueError(f"{where}: expected a whole number after {name}; got {cut(values[0])}")
    frozen = {name: frozenset(values) for name, values in sets.items()}
    return EvalbParams(**frozen, labelled=numbers["LABELED"] != 0, longest=numbers["CUTOFF_LEN"])


with lazy_extra("parse"):
    from nltk import Tree

_QUOTES = ("'", '"', "/")


class Bracketing(NamedTuple):
    """What EVALB sees of a sentence: words, tags, brackets (label, start, end), length.

    `quotes` are the words that may be quotes: the number of each among all words of the tree, and
    among those that count, and its tag.
    """

    words: list[str]
    tags: list[str]
    brackets: list[tuple[str, int, int]]
    length: int
    quotes: list[tuple[int, int, str]]


def bracketing(trees: Iterable[Tree], params: EvalbParams, kept: Sequence[int] = ()) -> Bracketing:
    """Words and brackets of a sentence that count.

    Args:
        trees: the tree of a sentence; several, or none, if a parser left it in pieces.
        kept: numbers of words that count whatever their tags are.
    """
    seen = Bracketing([], [], [], 0, [])
    length, number = 0, 0

    def visit(tree: Tree) -> None:
        nonlocal length, number
        start, place, label = len(seen.words), len(seen.brackets), tree.label()
        if is_tag(tree):
            length += label not in params.not_long
            if label in params.quotes and tree[0] in _QUOTES:
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
    """The words, by number, that each side has to keep as the other did not delete them.

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
    gold: Iterable[Tree], found: Iterable[Tree], params: EvalbParams | None = None
) -> EvalbScore:
    """Compare what a parser found in a sentence with its gold tree.

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


def take_bracket(
    left: list[tuple[str, int, int]], bracket: tuple[str, int, int], params: EvalbParams
) -> bool:
    """Take the first bracket that is the same out of those that are left; False if none is."""
    label, *span = bracket
    for other in left:
        alike = not params.labelled or _same(label, other[0], params.same_labels)
        if list(other[1:]) == span and alike:
            left.remove(other)
            return True
    return False


def evalb_summary(scores: Iterable[EvalbScore]) -> dict[str, float]:
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


def same_punctuation(found: Tree, gold: Tree, params: EvalbParams | None = None) -> Tree:
    """A tree in which those words are punctuation that are so in the gold tree of the sentence.

    Raises: ValueError if the two have not as many words.
    """
    words, others = gold.leaves(), found.leaves()
    if len(words) != len(others):
        told = f"expected a tree of the {len(words)} words {' '.join(words)!r}"
        raise ValueError(f"{told}; got one of the {len(others)} words {' '.join(others)!r}")
    deleted, found = (params or EvalbParams()).deleted, found.copy(deep=True)
    for place, (_, tag) in enumerate(gold.pos()):
        leaf = found[found.leaf_treeposition(place)[:-1]]
        if tag in deleted:
            leaf.set_label(tag)
        elif leaf.label() in deleted:
            leaf.set_label("X")
    return found


def score_trees(
    gold: list[Tree], found: list[Tree], lengths: Iterable[int | None] = (None, 40)
) -> list[dict[str, Any]]:
    """Score trees as EVALB does, but with the punctuation of the gold trees.

    Args:
        lengths: words of the longest sentence that counts, None for all; a summary for each.

    Returns: for each length what sentences were scored, and what `evalb_summary` returns.

    Raises: ValueError if a tree and its gold tree have not as many words.
    """
    pairs = zip(gold, found, strict=True)
    return _summaries([evalb_compare([g], [same_punctuation(f, g)]) for g, f in pairs], lengths)


def _summaries(
    scores: list[EvalbScore], lengths: Iterable[int | None] = (None, 40)
) -> list[dict[str, Any]]:
    """What `evalb_summary` says of the sentences up to each length; None: of all."""
    return [
        {"sentences": "all" if longest is None else f"up to {longest} words"}
        | evalb_summary(score for score in scores if longest is None or score.length <= longest)
        for longest in lengths
    ]


def score_tree_files(
    gold: Path, found: Path, params: EvalbParams | None = None
) -> list[dict[str, Any]]:
    """Score a file of trees as EVALB does.

    Args:
        gold, found: files of the same sentences, a line each; a blank line has no tree.
        params: what counts; None: what COLLINS.prm says (see `read_evalb_params`).

    Returns: as `score_trees`, for all sentences and for those up to the length in the params.

    Raises: ValueError as `read_trees`, or if the files have not as many lines.
    """
    params, sides = params or EvalbParams(), [read_tree_lines(path) for path in (gold, found)]
    if len(sides[0]) != len(sides[1]):
        told = f"expected as many lines in {found} as in {gold}"
        raise ValueError(f"{told}, {len(sides[0])}; got {len(sides[1])}")
    scores = [evalb_compare(g, f, params) for g, f in zip(*sides, strict=True)]
    return _summaries(scores, (None, params.longest))
