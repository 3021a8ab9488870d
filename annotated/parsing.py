"""6.3 English Constituency Parsing (chapters/6-3-constituency-parsing.md).

Generated from the chapter's export cells by book/extract.py: edit it there.
"""

import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache, lru_cache
from html import escape
from pathlib import Path
from reprlib import repr as cut  # of a long string, its ends
from typing import Any, NamedTuple

import pandas as pd
from nltk import Nonterminal, Tree, ViterbiParser, induce_pcfg
from tokenizers import Tokenizer
from tqdm import tqdm

from annotated.data import END, UNK, archive_texts, corpus_file, find_corpus, local_file, read_lines
from annotated.decoding import Follow
from annotated.files import write_text
from annotated.translator import Translation, Translator, load_pretrained

__all__ = [
    "Bracketing",
    "Grammar",
    "HeldTranslator",
    "LineRules",
    "Parser",
    "Place",
    "Rules",
    "Score",
    "Tagger",
    "bare_label",
    "bracketed",
    "bracketing",
    "check_limit",
    "clean",
    "compare",
    "compare_parsers",
    "is_marked",
    "is_tag",
    "line_tokens",
    "line_tree",
    "linearize",
    "load_parser",
    "load_trees",
    "read_rules",
    "read_trees",
    "restore",
    "right_branching",
    "same_punctuation",
    "score_parser",
    "score_tree_files",
    "score_trees",
    "sentence_line",
    "split_words",
    "summary",
    "table_4",
    "tree_files",
    "tree_line",
    "tree_lines",
    "tree_svg",
    "write_treebank",
]


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


_DEEPEST = 100


def restore(tokens: Iterable[str], words: list[str]) -> Tree:
    """The tree that tokens describe, whatever they are, over these words.

    A phrase inside of a hundred others is not opened, and what it holds belongs to the phrase
    above. Its closing bracket then closes one of those that are open, if one has its label. So a
    tree of more than a hundred phrases one in the other does not come back as it was.

    Raises: ValueError if there are no words.
    """
    if not words:
        raise ValueError("expected words for the tree; got none")
    left, top = iter(words), Tree("TOP", [])
    open_phrases = [top]
    for token in tokens:
        if token.startswith("("):
            if len(open_phrases) <= _DEEPEST:
                open_phrases.append(Tree(token[1:], []))
                open_phrases[-2].append(open_phrases[-1])
        elif token.startswith(")"):
            depth = [phrase.label() for phrase in open_phrases[1:]][::-1]
            if token[1:] in depth:
                del open_phrases[-1 - depth.index(token[1:]) :]
        elif (word := next(left, None)) is not None:
            open_phrases[-1].append(Tree(token, [word]))
    top.extend(Tree("X", [word]) for word in left)
    found = _without_empty(top)
    assert found is not None  # there is at least one word
    only = found[0]
    return only if len(found) == 1 and not is_tag(only) else found


def _without_empty(tree: Tree) -> Tree | None:
    """The tree without phrases that hold no word; None if it holds none at all."""
    if is_tag(tree):
        return tree
    children = [child for child in map(_without_empty, tree) if child is not None]
    return Tree(tree.label(), children) if children else None


def _same(one: str, other: str, pairs: frozenset[frozenset[str]]) -> bool:
    """Whether two labels or words are equal, or one of these pairs; pairs do not form chains."""
    return one == other or frozenset([one, other]) in pairs


@dataclass(frozen=True)
class Rules:
    """What counts in the comparison of trees; the defaults are those of COLLINS.prm.

    Args:
        deleted: labels that do not count; a word with such a tag is taken out.
        not_long: tags that do not count for the length of a sentence.
        quotes: tags of a word that may be a quote or not, as parsers see it (see `compare`).
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


def read_rules(path: Path) -> Rules:
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
    return Rules(**frozen, labelled=numbers["LABELED"] != 0, longest=numbers["CUTOFF_LEN"])


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


def bracketing(trees: Iterable[Tree], rules: Rules, kept: Sequence[int] = ()) -> Bracketing:
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
            length += label not in rules.not_long
            if label in rules.quotes and tree[0] in _QUOTES:
                seen.quotes.append((number, start, label))
            times = kept.count(number) + (label not in rules.deleted)
            seen.words.extend([tree[0]] * times)
            seen.tags.extend([label] * times)
            number += 1
            return
        for child in tree:
            visit(child)
        label = re.split("[-=]", label)[0]
        if len(seen.words) > start and rules.counts(label):
            seen.brackets.insert(place, (label, start, len(seen.words)))

    for tree in trees:
        visit(tree)
    return seen._replace(length=length)


_QUOTES = ("'", '"', "/")


def _kept_quotes(gold: Bracketing, found: Bracketing, rules: Rules) -> tuple[list[int], list[int]]:
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
            if other_tag in rules.deleted and tag not in rules.deleted:
                kept_gold.append(other)
            elif tag in rules.deleted and other_tag not in rules.deleted:
                kept_found.append(number)
    return kept_gold, kept_found


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
    rules, trees = rules or Rules(), (list(gold), list(found))
    g, f = (bracketing(side, rules) for side in trees)
    if not f.words:
        return Score(g.length, status=2, words=len(g.words))
    if len(g.words) != len(f.words):
        kept = _kept_quotes(g, f, rules)
        g, f = (bracketing(side, rules, keep) for side, keep in zip(trees, kept, strict=True))
    alike = [_same(a, b, rules.same_words) for a, b in zip(g.words, f.words, strict=False)]
    if len(g.words) != len(f.words) or not all(alike):
        return Score(g.length, status=1, words=len(g.words))
    spans = {(start, end) for _, start, end in g.brackets}
    crossing = sum(
        any(a < start < b < end or start < a < end < b for a, b in spans)
        for _, start, end in f.brackets
    )
    left = list(f.brackets)
    matched = sum(_take(left, bracket, rules) for bracket in g.brackets)
    tags = sum(_same(a, b, rules.same_labels) for a, b in zip(g.tags, f.tags, strict=True))
    sizes = len(g.brackets), len(f.brackets), crossing, len(g.words)
    return Score(g.length, 0, matched, *sizes, tags)


def _take(left: list[tuple[str, int, int]], bracket: tuple[str, int, int], rules: Rules) -> bool:
    """Take the first bracket that is the same out of those that are left; False if none is."""
    label, *span = bracket
    for other in left:
        alike = not rules.labelled or _same(label, other[0], rules.same_labels)
        if list(other[1:]) == span and alike:
            left.remove(other)
            return True
    return False


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


_SECTIONS = {"train": range(2, 22), "dev": [22], "test": [23]}


def tree_files(corpus: str, split: str) -> Iterator[tuple[str, str]]:
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
        corpus, split: as for `tree_files`.

    Raises: as `tree_files` and `read_trees`; ValueError for a file with nothing but traces.
    """
    trees: list[Tree] = []
    for name, text in tree_files(corpus, split):
        cleaned = map(clean, read_trees(io.StringIO(text), name))
        found = [tree for tree in cleaned if tree is not None]
        if not found:
            raise ValueError(f"{name}: expected words in its trees; there are only traces")
        trees += found
    return trees


_NAMES = {
    ",": "COMMA", ".": "STOP", ":": "COLON", "``": "OPEN", "''": "CLOSE", "-LRB-": "LRB",
    "-RRB-": "RRB", "PRP$": "PRPS", "WP$": "WPS", "$": "DOLLAR", "#": "NUMBER",
}  # fmt: skip
_TAGS = {name: tag for tag, name in _NAMES.items()}
_ESCAPED = {
    "-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}",
}  # fmt: skip


_ARROWS = {"(": "↓", ")": "↑"}


def sentence_line(words: list[str]) -> str:
    """Words as a line of text; a word with spaces in it, or of nothing else, is one word still.

    >>> sentence_line(["Mice", "-LRB-", "two", "-RRB-"])
    'Mice ( two )'
    """
    joined = ("\u00b7".join(_ESCAPED.get(word, word).split()) or "\u00b7" for word in words)
    return " ".join(f"\u00b7{word}" if is_marked(word) else word for word in joined)


def is_marked(word: str) -> bool:
    """Whether a word of a line stands for a bracket or a tag."""
    return len(word) > 1 and word[0] in "↓↑→"


def bracketed(tree: Tree) -> str:
    """A tree in brackets on one line, for `read_trees`.

    >>> bracketed(Tree("NP", [Tree("-LRB-", ["("]), Tree("CD", ["2"])]))
    '(NP (-LRB- -LRB-) (CD 2))'
    """
    tree = tree.copy(deep=True)
    for place in tree.treepositions("leaves"):
        tree[place] = tree[place].replace("(", "-LRB-").replace(")", "-RRB-")
    return tree.pformat(margin=10**6)


def tree_line(tree: Tree) -> str:
    """A tree as a line of text, words kept.

    >>> tree_line(Tree.fromstring("(NP (PRP$ its) (NN mat))"))
    '↓NP →PRPS its →NN mat ↑NP'
    """
    words = iter(tree.leaves())
    return " ".join(
        _ARROWS[token[0]] + token[1:]
        if token[0] in _ARROWS
        else f"→{_NAMES.get(token, token)} {sentence_line([next(words)])}"
        for token in linearize(tree)
    )


def line_tokens(line: str) -> list[str]:
    """What `restore` needs, from a line as `tree_line` writes it.

    >>> line_tokens("↓NP →PRPS its →NN mat ↑NP")
    ['(NP', 'PRP$', 'NN', ')NP']
    """
    brackets = {"↓": "(", "↑": ")"}
    marked = (word for word in line.split() if is_marked(word))
    return [
        brackets[word[0]] + word[1:] if word[0] in brackets else _TAGS.get(word[1:], word[1:])
        for word in marked
    ]


def line_tree(line: str, words: list[str]) -> Tree:
    """The tree that a line describes, whatever it is, over these words.

    Raises: ValueError if there are no words.

    >>> print(line_tree("↓NP →DT the →JJ fat →NN mat ↑NP", ["the", "mat"]))
    (NP (DT the) (NN mat))
    """
    said: list[str] = []  # the word after each tag
    for word in line.split():
        if is_marked(word):
            said += [""] if word[0] == "→" else []
        elif said:
            said[-1] += word
    return restore(_one_tag_each(line_tokens(line), said, sentence_line(words).split()), words)


def _one_tag_each(tokens: list[str], said: list[str], words: list[str]) -> list[str]:
    """Tokens with a tag for each word up to the last that has one.

    Args:
        tokens: as `linearize` makes them.   said: the word that follows each tag in them.
    """
    place: dict[int, int] = {}  # of what was said among the words
    for what, i, i_end, j, j_end in SequenceMatcher(
        None, said, words, autojunk=False
    ).get_opcodes():
        if what in ("equal", "replace"):
            place.update(zip(range(i, i_end), range(j, j_end), strict=False))
    result, done, tags = [], 0, 0
    for token in tokens:
        if token[0] in _ARROWS:
            result.append(token)
            continue
        if tags in place:
            result += ["X"] * (place[tags] - done) + [token]
            done = place[tags] + 1
        tags += 1
    return result


def check_limit(limit: int | None) -> None:
    """Raise ValueError unless a number of sentences, if there is one, is at least 1."""
    if limit is not None and limit < 1:
        raise ValueError(f"expected a limit of at least 1 sentence; got {limit}")


def write_treebank(corpus: str, folder: Path, limit: int | None = None) -> str:
    """Write a treebank as a corpus for the trainer: train and dev, words and trees.

    Args:
        corpus: as for `tree_files`.   limit: number of training sentences, from the beginning.

    Returns: what `--data` of `annotated train` has to be.

    Raises: ValueError for a limit below 1, and as `load_trees`.
    """
    check_limit(limit)
    folder.mkdir(parents=True, exist_ok=True)
    for split in "train", "dev":
        trees = load_trees(corpus, split)[: limit if split == "train" else None]
        sides = {
            "words": [sentence_line(tree.leaves()) for tree in trees],
            "trees": map(tree_line, trees),
        }
        for side, lines in sides.items():
            write_text(folder / f"{split}.{side}", "".join(f"{line}\n" for line in lines))
    return f"{folder}-words-trees"


class Place(NamedTuple):
    """Where a line stands.

    Args:
        ends: of the open phrases, the outermost first, the pieces that will close them.
        empty: how many of these, the innermost, hold nothing yet.
        said: words so far.   rest: pieces of the last of these that are still to come.
    """

    ends: tuple[int, ...] = ()
    empty: int = 0
    said: int = 0
    rest: tuple[int, ...] = ()


_MOST_OPENED, _MOST_ALIKE = 8, 2  # phrases before a word, and those of them with the same label


class LineRules:
    """What may follow in a line as `tree_line` writes it.

    Args:
        tokenizer: of a model that was trained on such lines.

    Raises: ValueError if it has no pieces for brackets and tags.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        words = {piece[1:]: i for piece, i in tokenizer.get_vocab().items() if piece[0] == "▁"}
        marks = {word: i for word, i in words.items() if is_marked(word)}
        self.tags = [i for mark, i in marks.items() if mark[0] == "→"]
        pairs = ((i, marks.get(f"↑{mark[1:]}")) for mark, i in marks.items() if mark[0] == "↓")
        self.closing = {i: end for i, end in pairs if end is not None}
        if not (self.tags and self.closing):
            raise ValueError("expected a model that writes trees; its vocabulary has no brackets")

    def after(self, place: Place, token: int, words: list[tuple[int, ...]]) -> Place:
        """Where a line over these words, in pieces, stands after one more piece."""
        if place.rest:
            return place._replace(rest=place.rest[1:])
        if token in self.closing:
            return Place((*place.ends, self.closing[token]), place.empty + 1, place.said)
        if token == place.ends[-1]:
            return Place(place.ends[:-1], 0, place.said)
        return Place(place.ends, 0, place.said + 1, words[place.said])

    def next(self, place: Place, words: list[tuple[int, ...]]) -> list[int]:
        """The pieces that may follow."""
        ends, empty = place.ends, place.empty
        if place.rest:
            return [place.rest[0]]
        if place.said == len(words):
            return [ends[-1] if ends else END]
        alike = Counter(ends[len(ends) - empty :])
        down = [i for i, end in self.closing.items() if alike[end] < _MOST_ALIKE]
        room = empty < _MOST_OPENED and len(ends) < _DEEPEST
        up = [ends[-1]] if len(ends) > 1 and not empty else []
        return (down if room else []) + up + (self.tags if ends else [])


class HeldTranslator(Translator):
    """A translator from words to trees whose search is held to trees over the words."""

    def search(self, sources: list[list[int]], **options: Any) -> list[list[Translation]]:
        """As `Translator.search`; ValueError for a model that writes no trees."""
        rules = LineRules(self.tokenizer)
        follow = [self.follow(rules, ids) for ids in sources]
        return super().search(sources, follow=follow, **options)

    def follow(self, rules: LineRules, src: list[int]) -> Follow:
        """The rules, for `beam_search`, over a sentence of these pieces."""
        words: list[tuple[int, ...]] = []
        for i in src:
            if str(self.tokenizer.id_to_token(i)).startswith("▁"):
                words.append((i,))
            elif i not in (UNK, END):
                words[-1] += (i,)

        @lru_cache(maxsize=1024)  # the hypotheses, and those that they go on from
        def place(ids: tuple[int, ...]) -> Place:
            return rules.after(place(ids[:-1]), ids[-1], words) if ids else Place()

        return lambda ids: rules.next(place(tuple(ids)), words)


@dataclass(frozen=True)
class Parser:
    """A translator from words to trees.

    Args:
        translator: a model that was trained on lines as `write_treebank` writes them.
    """

    translator: Translator

    def parse(self, words: list[str], **options: Any) -> Tree:
        """The tree of one sentence; options as for `parse_all`."""
        return self.parse_all([words], **options)[0]

    def parse_all(
        self,
        sentences: list[list[str]],
        beam: int = 4,
        alpha: float = 0.3,
        hold: bool = True,
        **options: Any,
    ) -> list[Tree]:
        """The trees of sentences.

        Args:
            sentences: each a list of words.   beam: hypotheses; the paper has 21.
            alpha: length penalty, the paper's.
            hold: hold the search to trees; False: mend what comes out.
            options: as for `Translator.candidates`.

        Raises: ValueError if a sentence has no words, or for a model that writes no trees.
        """
        lines = [sentence_line(words) for words in sentences]
        search = {"max_extra": 300, "beam": beam, "alpha": alpha, **options}
        translator = self.translator
        if hold:
            translator = HeldTranslator(translator.model, translator.tokenizer)
        found = translator.translate_all(lines, **search)
        return [line_tree(line, words) for line, words in zip(found, sentences, strict=True)]


_LETTER, _LEVEL = 8, 44  # pixels: width of a letter, height of a level
_STYLE = (
    ".tree{max-width:100%;height:auto;color:inherit;font:13px system-ui,sans-serif}"
    ".tree text{fill:currentColor;text-anchor:middle}.tree line{stroke:currentColor;opacity:.45}"
    ".tree-tag{font-size:11px;opacity:.75}.tree-phrase{font-weight:600}"
    ".tree text.tree-wrong{font-weight:600;fill:#D55E00}"
)


def tree_svg(tree: Tree, compared: Tree | None = None) -> str:
    """A drawing of a tree, words at the bottom.

    Args:
        compared: a tree of the same words; phrases that it does not have are drawn in red.

    Returns: SVG, by itself or as a part of a page.
    """
    drawing = _Drawing(tree, compared or tree)
    drawing.place(tree, 0, 0)
    box = f'viewBox="0 0 {drawing.right:.0f} {drawing.bottom + 26}" width="{drawing.right:.0f}"'
    label = escape(tree.pformat(margin=10**6))
    head = f'xmlns="http://www.w3.org/2000/svg" class="tree" role="img" {box} aria-label="{label}"'
    return f"<svg {head}><style>{_STYLE}</style>{''.join(drawing.parts)}</svg>"


class _Drawing:
    """The parts of a drawing, and how far it reaches to the right."""

    rules = Rules(deleted=frozenset(["TOP"]))

    def __init__(self, tree: Tree, compared: Tree) -> None:
        self.parts: list[str] = []
        self.right, self.bottom = 0.0, _LEVEL * (tree.height() - 1) + 2
        self.known = bracketing([compared], self.rules).brackets

    def place(self, tree: Tree, level: int, start: int) -> tuple[float, int]:
        """Draw what is under a node; returns its x and the number of words before its end."""
        y = _LEVEL * level + 16
        if is_tag(tree):
            width = _LETTER * max(len(tree.label()), len(tree[0])) + 14
            x, self.right = self.right + width / 2, self.right + width
            self.line(x, y + 6, x, self.bottom, ' stroke-dasharray="2 3"')
            self.text(x, self.bottom + 16, tree[0], "tree-word")
            self.text(x, y, tree.label(), "tree-tag")
            return x, start + 1
        below, end = [], start
        for child in tree:
            x, end = self.place(child, level + 1, end)
            below.append(x)
        middle = (below[0] + below[-1]) / 2
        for x in below:
            self.line(middle, y + 6, x, y + _LEVEL - 14)
        self.text(middle, y, tree.label(), self.kind(tree.label(), start, end))
        return middle, end

    def kind(self, label: str, start: int, end: int) -> str:
        """Whether a phrase is one of those that are known; each of them counts once."""
        cut = re.split("[-=]", label)[0]
        right = _take(self.known, (cut, start, end), self.rules) or not self.rules.counts(cut)
        return "tree-phrase" if right else "tree-wrong"

    def line(self, x: float, y: float, x2: float, y2: float, more: str = "") -> None:
        self.parts.append(f'<line x1="{x:.1f}" y1="{y}" x2="{x2:.1f}" y2="{y2}"{more}/>')

    def text(self, x: float, y: float, text: str, kind: str) -> None:
        self.parts.append(f'<text x="{x:.1f}" y="{y}" class="{kind}">{escape(text)}</text>')


def load_parser(name: str = "craft-parser", device: str = "cpu") -> Parser:
    """A trained parser: one that comes with the package, or the folder of a run.

    Raises: ValueError as `load_pretrained`.
    """
    return Parser(load_pretrained(name, device))


@cache
def _english() -> Any:
    import spacy

    return spacy.blank("en")


def split_words(text: str) -> list[str]:
    """The words of a sentence, punctuation and clitics apart.

    >>> split_words("The cat didn't sit.")
    ['The', 'cat', 'did', "n't", 'sit', '.']
    """
    return [token.text for token in _english()(text) if not token.is_space]


def score_parser(
    parser: Parser, treebank: str, split: str, limit: int | None = None, **options: Any
) -> list[dict[str, Any]]:
    """Parse a split of a treebank, and score it as EVALB does, with the gold trees' punctuation.

    Args:
        treebank, split: as for `tree_files`.   limit: sentences, from the beginning.
        options: as for `Parser.parse_all`.

    Returns: as `score_trees`.

    Source: section 6.3, Table 4.
    """
    check_limit(limit)
    gold = load_trees(treebank, split)[:limit]
    found = parser.parse_all([tree.leaves() for tree in gold], progress=True, **options)
    return score_trees(gold, found)


def score_trees(
    gold: list[Tree], found: list[Tree], lengths: Iterable[int | None] = (None, 40)
) -> list[dict[str, Any]]:
    """Score trees as EVALB does, but with the punctuation of the gold trees.

    Args:
        lengths: words of the longest sentence that counts, None for all; a summary for each.

    Returns: for each length what sentences were scored, and what `summary` returns.

    Raises: ValueError if a tree and its gold tree have not as many words.
    """
    pairs = zip(gold, found, strict=True)
    return _summaries([compare([g], [same_punctuation(f, g)]) for g, f in pairs], lengths)


def _summaries(
    scores: list[Score], lengths: Iterable[int | None] = (None, 40)
) -> list[dict[str, Any]]:
    """What `summary` says of the sentences up to each length; None: of all."""
    return [
        {"sentences": "all" if longest is None else f"up to {longest} words"}
        | summary(score for score in scores if longest is None or score.length <= longest)
        for longest in lengths
    ]


def same_punctuation(found: Tree, gold: Tree, rules: Rules | None = None) -> Tree:
    """A tree in which those words are punctuation that are so in the gold tree of the sentence.

    Raises: ValueError if the two have not as many words.
    """
    words, others = gold.leaves(), found.leaves()
    if len(words) != len(others):
        told = f"expected a tree of the {len(words)} words {' '.join(words)!r}"
        raise ValueError(f"{told}; got one of the {len(others)} words {' '.join(others)!r}")
    deleted, found = (rules or Rules()).deleted, found.copy(deep=True)
    for place, (_, tag) in enumerate(gold.pos()):
        leaf = found[found.leaf_treeposition(place)[:-1]]
        if tag in deleted:
            leaf.set_label(tag)
        elif leaf.label() in deleted:
            leaf.set_label("X")
    return found


def score_tree_files(gold: Path, found: Path, rules: Rules | None = None) -> list[dict[str, Any]]:
    """Score a file of trees as EVALB does.

    Args:
        gold, found: files of the same sentences, a line each; a blank line has no tree.
        rules: what counts; None: what COLLINS.prm says (see `read_rules`).

    Returns: as `score_trees`, for all sentences and for those up to the length in the rules.

    Raises: ValueError as `read_trees`, or if the files have not as many lines.
    """
    rules, sides = rules or Rules(), [tree_lines(path) for path in (gold, found)]
    if len(sides[0]) != len(sides[1]):
        told = f"expected as many lines in {found} as in {gold}"
        raise ValueError(f"{told}, {len(sides[0])}; got {len(sides[1])}")
    scores = [compare(g, f, rules) for g, f in zip(*sides, strict=True)]
    return _summaries(scores, (None, rules.longest))


def tree_lines(path: Path) -> list[list[Tree]]:
    """The trees on each line of a file, as they stand there."""
    read = lambda line, n: list(read_trees([line], str(path), n)) if line.strip() else []
    return [read(line, n) for n, line in enumerate(read_lines(path), start=1)]


def right_branching(words: list[str], tags: list[str], label: str = "NP") -> Tree:
    """The tree in which each word is followed by a phrase of all that is left, full stop apart.

    Raises: ValueError if there are no words.
    """
    if not words:
        raise ValueError("expected words for the tree; got none")
    leaves = [Tree(tag, [word]) for tag, word in zip(tags, words, strict=True)]
    end = [leaves.pop()] if len(leaves) > 1 and tags[-1] == "." else []
    inner = leaves[-1]
    for leaf in reversed(leaves[:-1]):
        inner = Tree(label, [leaf, inner])
    inside = list(inner) if not is_tag(inner) else [inner]
    return Tree("S", [*inside, *end])


class Tagger:
    """Tags words by what was most frequent.

    Args:
        trees: to count in.
    """

    def __init__(self, trees: Iterable[Tree]) -> None:
        counts: dict[str, Counter] = {}
        seen: set[tuple[str, str]] = set()
        for word, tag in (pair for tree in trees for pair in tree.pos()):
            counts.setdefault(word, Counter())[tag] += 1
            if (word, tag) not in seen:  # what a new word may be, the different words tell
                seen.add((word, tag))
                for key in self._ending(word), "\0":
                    counts.setdefault(key, Counter())[tag] += 1
        self.best = {key: tags.most_common(1)[0][0] for key, tags in counts.items()}

    def tag(self, word: str) -> str:
        """The most frequent tag of a word, or else of words that end so, or else of all."""
        keys = word, self._ending(word), "\0"
        return next(self.best[key] for key in keys if key in self.best)

    @staticmethod
    def _ending(word: str) -> str:
        """The last three letters, marked so that they are not taken for a word."""
        return word[-3:].lower() + "\0"


_INNER = "\0"  # marks the labels that the cuts make


class Grammar:
    """A probabilistic grammar that is counted in trees.

    Args:
        trees: to count in.

    Source: none in the paper; a baseline. nltk's ViterbiParser finds the most probable tree.
    """

    def __init__(self, trees: list[Tree]) -> None:
        self.tagger, productions = Tagger(trees), []
        for tree in trees:
            bare = Tree("ROOT", [_without_words(tree)])
            bare.chomsky_normal_form(horzMarkov=1, childChar=_INNER)  # some labels have nltk's "|"
            productions += bare.productions()
        self.parser = ViterbiParser(induce_pcfg(Nonterminal("ROOT"), productions), max_time=None)

    def parse(self, words: list[str]) -> Tree:
        """The most probable tree; the right-branching one if the grammar has none."""
        tags = [self.tagger.tag(word) for word in words]
        tree = next(iter(self.parser.parse(tags)), None)
        if tree is None:
            return right_branching(words, tags)
        tree = Tree.convert(tree)
        tree.un_chomsky_normal_form(expandUnary=False, childChar=_INNER)
        for place, (word, tag) in enumerate(zip(words, tags, strict=True)):
            tree[tree.leaf_treeposition(place)] = Tree(tag, [word])
        return tree[0]


def _without_words(tree: Tree) -> Tree | str:
    """The tree with its tags as leaves."""
    return tree.label() if is_tag(tree) else Tree(tree.label(), [_without_words(c) for c in tree])


def compare_parsers(
    parser: Parser,
    treebank: str,
    split: str,
    limit: int | None = None,
    longest: int = 12,
    **options: Any,
) -> list[dict[str, Any]]:
    """Score a parser, and on the same sentences the two baselines.

    Args:
        treebank, split: as for `tree_files`; the baselines learn from its training part.
        limit: sentences to score, from the beginning.
        longest: words of a sentence that the grammar can manage.
        options: as for `Parser.parse_all`.

    Returns: rows as those of `score_trees`, with the parser's name.
    """
    check_limit(limit)
    train, gold = load_trees(treebank, "train"), load_trees(treebank, split)[:limit]
    words = [tree.leaves() for tree in gold]
    tagger, grammar = Tagger(train), Grammar(train)
    branching = [right_branching(w, [tagger.tag(word) for word in w]) for w in words]
    found = {
        "Transformer": parser.parse_all(words, progress=True, **options),
        "right-branching": branching,
    }
    rows = [
        {"parser": name} | row
        for name, trees in found.items()
        for row in score_trees(gold, trees, (None, 40, longest))
    ]
    short = [(tree, w) for tree, w in zip(gold, words, strict=True) if len(w) <= longest]
    few = [grammar.parse(w) for _, w in tqdm(short, unit=" sentences")]
    (row,) = score_trees([tree for tree, _ in short], few, [longest])
    return [*rows, {"parser": "grammar"} | row]


_TABLE_4 = {
    "WSJ only, discriminative": {
        "Vinyals & Kaiser 2014": 88.3, "Petrov 2006": 90.4, "Zhu 2013": 90.4, "Dyer 2016": 91.7,
        "Transformer (4 layers)": 91.3,
    },
    "semi-supervised": {
        "Zhu 2013": 91.3, "Huang & Harper 2009": 91.3, "McClosky 2006": 92.1,
        "Vinyals & Kaiser 2014": 92.1, "Transformer (4 layers)": 92.7,
    },
    "multi-task": {"Luong 2015": 93.0},
    "generative": {"Dyer 2016": 93.3},
}  # fmt: skip


def table_4() -> pd.DataFrame:
    """Table 4: F1 in percent on section 23 of the Wall Street Journal.

    Source: section 6.3, Table 4.
    """
    rows = [(name, how, f1) for how, group in _TABLE_4.items() for name, f1 in group.items()]
    return pd.DataFrame(rows, columns=["parser", "training", "F1"])
