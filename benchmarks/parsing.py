"""The logs of section 6.3, the parser's: `python -m benchmarks.parsing --help`.

craft-parser.json: scores of the parser and of two simple ones on CRAFT's test part, with the
paper's beam of 21; this takes hours.
craft-parser-baselines.csv: those of the simple ones on every fifth sentence of its dev part.
craft-parser-search.csv: the parser's on the same sentences, free or held to trees, by beam.
craft-test-trees.txt: twenty gold trees of 8 to 12 words, at equal distances in CRAFT's test part.
wsj-sample-lengths.csv: words and tokens of each tree of NLTK's sample of the Wall Street Journal.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
from nltk import Nonterminal, Tree, ViterbiParser, induce_pcfg

from annotated.machinery.progress import progress_bar
from annotated.machinery.trees.evalb import score_trees
from annotated.machinery.trees.penn import is_tag, load_trees, tree_to_brackets
from annotated.parsing import linearize, load_parser
from benchmarks.logs import Writers, log_program


def right_branching(words: list[str], tags: list[str], label: str = "NP") -> Tree:
    """The tree in which each word is followed by a phrase of the rest, except the final period.

    English branches to the right; NP is the most frequent phrase.
    """
    leaves = [Tree(tag, [word]) for tag, word in zip(tags, words, strict=True)]
    end = [leaves.pop()] if len(leaves) > 1 and tags[-1] == "." else []
    inner = leaves[-1]
    for leaf in reversed(leaves[:-1]):
        inner = Tree(label, [leaf, inner])
    return Tree("S", [*(inner if not is_tag(inner) else [inner]), *end])


def frequency_tagger(trees: Iterable[Tree]) -> Callable[[str], str]:
    """Tags a word with its most frequent tag; for an unknown word, by its last three letters.

    Returns: a function from a word to its tag.
    """
    counts: dict[str, Counter] = defaultdict(Counter)
    ending = lambda word: word[-3:].lower() + "\0"  # which is not a word
    pairs = [pair for tree in trees for pair in tree.pos()]
    for word, tag in pairs:
        counts[word][tag] += 1
    for word, tag in dict.fromkeys(pairs):  # each word once, as an example of a new one
        counts[ending(word)][tag] += 1
        counts["\0"][tag] += 1
    best = {key: tags.most_common(1)[0][0] for key, tags in counts.items()}
    return lambda word: best.get(word) or best.get(ending(word)) or best["\0"]


def grammar_parser(trees: list[Tree]) -> Callable[[list[str]], Tree]:
    """A parser with the probabilistic context-free grammar of these trees, using nltk.

    Rules with many children are binarized; the parts keep the parent label and the last sibling.

    Returns: a function from words to the most probable tree, or to the right-branching one if the
        grammar has none.
    """
    tag_of, productions = frequency_tagger(trees), []
    inner = "\0"  # marks labels from binarization, because some labels contain nltk's "|"
    without_words = lambda tree: (
        tree.label() if is_tag(tree) else Tree(tree.label(), [*map(without_words, tree)])
    )
    for tree in trees:
        bare = Tree("ROOT", [without_words(tree)])
        bare.chomsky_normal_form(horzMarkov=1, childChar=inner)
        productions += bare.productions()
    parser = ViterbiParser(induce_pcfg(Nonterminal("ROOT"), productions), max_time=None)

    def parse(words: list[str]) -> Tree:
        tags = [tag_of(word) for word in words]
        found = next(iter(parser.parse(tags)), None)
        if found is None:
            return right_branching(words, tags)
        tree = Tree.convert(found)
        tree.un_chomsky_normal_form(expandUnary=False, childChar=inner)
        for place, (word, tag) in enumerate(zip(words, tags, strict=True)):
            tree[tree.leaf_treeposition(place)] = Tree(tag, [word])
        return tree[0]

    return parse


def score_baselines(
    train: list[Tree], gold: list[Tree], lengths: Iterable[int | None], longest: int
) -> list[dict[str, Any]]:
    """Scores of both simple parsers.

    Args:
        train: trees to learn from.   gold: trees of the sentences to parse.
        lengths: as for `score_trees`.
        longest: maximum words per sentence for the grammar, whose time is cubic in the length.
    """
    tag_of, parse = frequency_tagger(train), grammar_parser(train)
    words = [tree.leaves() for tree in gold]
    branching = [right_branching(w, [tag_of(word) for word in w]) for w in words]
    short = [tree for tree in gold if len(tree.leaves()) <= longest]
    parsed = [parse(tree.leaves()) for tree in progress_bar(short, unit=" sentences")]
    scores = {
        "right-branching": score_trees(gold, branching, lengths),
        "grammar": score_trees(short, parsed, [longest]),
    }
    return [{"parser": name} | row for name, rows in scores.items() for row in rows]


def all_scores(_: Path) -> str:
    train, test = load_trees("craft", "train"), load_trees("craft", "test")
    search: dict[str, Any] = {"beam": 21, "alpha": 0.3, "hold": True}
    found = load_parser().parse_all([tree.leaves() for tree in test], progress=True, **search)
    rows = [{"parser": "Transformer"} | row for row in score_trees(test, found, (None, 40, 12))]
    rows += score_baselines(train, test, (None, 40, 12), 12)
    rows = [{"treebank": "craft", "split": "test"} | search | row for row in rows]
    return json.dumps(rows, indent=1) + "\n"


def baselines(_: Path) -> pd.DataFrame:
    train, gold = load_trees("craft", "train"), load_trees("craft", "dev")[::5]
    return pd.DataFrame(score_baselines(train, gold, (10, 20, 40, None), 10))


def searches(_: Path) -> pd.DataFrame:
    gold, parser, rows = load_trees("craft", "dev")[::5], load_parser(), []
    for hold, beam in product((True, False), (1, 4, 21)):
        found = parser.parse_all([tree.leaves() for tree in gold], beam=beam, hold=hold)
        scores = score_trees(gold, found, (10, 20, 40, None))
        rows += [{"hold": hold, "beam": beam} | row for row in scores]
    return pd.DataFrame(rows)


def gold_trees(_: Path) -> str:
    trees = [tree for tree in load_trees("craft", "test") if 8 <= len(tree.leaves()) <= 12]
    return "".join(f"{tree_to_brackets(tree)}\n" for tree in trees[:: len(trees) // 20][:20])


def lengths(_: Path) -> pd.DataFrame:
    trees = load_trees("wsj-sample", "test")
    pairs = [(len(tree.leaves()), len(linearize(tree))) for tree in trees]
    counts = pd.DataFrame(pairs, columns=["words", "tokens"]).value_counts()
    return counts.rename("trees").sort_index().reset_index()


WRITERS: Writers = {
    "craft-parser.json": all_scores,
    "craft-parser-baselines.csv": baselines,
    "craft-parser-search.csv": searches,
    "craft-test-trees.txt": gold_trees,
    "wsj-sample-lengths.csv": lengths,
}
main = log_program("parsing", __doc__, WRITERS)

if __name__ == "__main__":
    main()
