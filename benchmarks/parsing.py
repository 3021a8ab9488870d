"""The parser of section 6.3 against two simple ones: `python -m benchmarks.parsing`.

Writes data/results/craft-parser.json, the scores of all three on CRAFT's test part with the paper's
beam of 21, and craft-parser-baselines.csv, those of the simple ones on every fifth sentence of its
development part. It takes hours, most of them for the beam.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd
from nltk import Nonterminal, Tree, ViterbiParser, induce_pcfg
from tqdm import tqdm

from annotated.machinery.files import resource_path, write_text
from annotated.machinery.parsing.evalb import score_trees
from annotated.machinery.parsing.trees import is_tag, load_trees
from annotated.parsing import load_parser


def right_branching(words: list[str], tags: list[str], label: str = "NP") -> Tree:
    """The tree in which each word is followed by a phrase of the rest, full stop apart.

    English branches to the right; NP is the most frequent phrase.
    """
    leaves = [Tree(tag, [word]) for tag, word in zip(tags, words, strict=True)]
    end = [leaves.pop()] if len(leaves) > 1 and tags[-1] == "." else []
    inner = leaves[-1]
    for leaf in reversed(leaves[:-1]):
        inner = Tree(label, [leaf, inner])
    return Tree("S", [*(inner if not is_tag(inner) else [inner]), *end])


def frequency_tagger(trees: Iterable[Tree]) -> Callable[[str], str]:
    """Tags a word as most often in these trees, or else as most words with its last three letters.

    Returns: a function from a word to its tag.
    """
    counts: dict[str, Counter] = defaultdict(Counter)
    ending = lambda word: word[-3:].lower() + "\0"  # which is no word
    pairs = [pair for tree in trees for pair in tree.pos()]
    for word, tag in pairs:
        counts[word][tag] += 1
    for word, tag in dict.fromkeys(pairs):  # each word once, as an example of a new one
        counts[ending(word)][tag] += 1
        counts["\0"][tag] += 1
    best = {key: tags.most_common(1)[0][0] for key, tags in counts.items()}
    return lambda word: best.get(word) or best.get(ending(word)) or best["\0"]


def grammar_parser(trees: list[Tree]) -> Callable[[list[str]], Tree]:
    """A parser with the probabilistic context-free grammar of these trees, by nltk.

    Rules with many children are binarized; the parts remember the label above and the last sister.

    Returns: a function from words to the most probable tree, or to the right-branching one if the
        grammar has none.
    """
    tag_of, productions = frequency_tagger(trees), []
    inner = "\0"  # marks the labels that binarization makes; some labels have nltk's "|"
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
        longest: words of a sentence for the grammar, whose time grows with their cube.
    """
    tag_of, parse = frequency_tagger(train), grammar_parser(train)
    words = [tree.leaves() for tree in gold]
    branching = [right_branching(w, [tag_of(word) for word in w]) for w in words]
    short = [tree for tree in gold if len(tree.leaves()) <= longest]
    parsed = [parse(tree.leaves()) for tree in tqdm(short, unit=" sentences")]
    scores = {
        "right-branching": score_trees(gold, branching, lengths),
        "grammar": score_trees(short, parsed, [longest]),
    }
    return [{"parser": name} | row for name, rows in scores.items() for row in rows]


def main() -> None:
    train, test = load_trees("craft", "train"), load_trees("craft", "test")
    search: dict[str, Any] = {"beam": 21, "alpha": 0.3, "hold": True}
    found = load_parser().parse_all([tree.leaves() for tree in test], progress=True, **search)
    rows = [{"parser": "Transformer"} | row for row in score_trees(test, found, (None, 40, 12))]
    rows += score_baselines(train, test, (None, 40, 12), 12)
    rows = [{"treebank": "craft", "split": "test"} | search | row for row in rows]
    write_text(resource_path("results") / "craft-parser.json", json.dumps(rows, indent=1) + "\n")
    rows = score_baselines(train, load_trees("craft", "dev")[::5], (10, 20, 40, None), 10)
    pd.DataFrame(rows).to_csv(resource_path("results") / "craft-parser-baselines.csv", index=False)


if __name__ == "__main__":
    main()
