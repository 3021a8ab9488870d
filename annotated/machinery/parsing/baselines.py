"""EVALB."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

from annotated.machinery.files import lazy_extra
from annotated.machinery.parsing.evalb import score_trees
from annotated.machinery.parsing.trees import check_limit, is_tag, load_trees
from annotated.parsing import Parser

with lazy_extra("parse"):
    from nltk import Nonterminal, Tree, ViterbiParser, induce_pcfg


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


class FrequencyTagger:
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


class PCFG:
    """A probabilistic grammar that is counted in trees.

    Args:
        trees: to count in.

    Source: none in the paper; a baseline. nltk's ViterbiParser finds the most probable tree.
    """

    def __init__(self, trees: list[Tree]) -> None:
        self.tagger, productions = FrequencyTagger(trees), []
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
        treebank, split: as for `treebank_files`; the baselines learn from its training part.
        limit: sentences to score, from the beginning.
        longest: words of a sentence that the grammar can manage.
        options: as for `Parser.parse_all`.

    Returns: rows as those of `score_trees`, with the parser's name.
    """
    check_limit(limit)
    train, gold = load_trees(treebank, "train"), load_trees(treebank, split)[:limit]
    words = [tree.leaves() for tree in gold]
    tagger, grammar = FrequencyTagger(train), PCFG(train)
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
