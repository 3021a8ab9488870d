"""How well attention aligns words: `python -m benchmarks.alignments --help`.

Writes alignments.json, a log of "Who is “it”?": for five models of the package, and for models of
the same shape before training, the errors of the best head, the best layer and the diagonal on
held-out texts, and the error of each head on the sentences on which the best were chosen.

Spelling reveals some links between a sentence and its translation. Two words are linked if they are
equal, or if they begin with the same letter and share three quarters of their letters in order.
"""

import unicodedata
from collections import Counter
from difflib import SequenceMatcher
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd

from annotated import load_pretrained, read_attention
from annotated.machinery.corpora.registry import load_pairs
from annotated.machinery.corpora.texts import read_lines
from annotated.machinery.files import resource_path
from annotated.machinery.translator import Translator
from annotated.machinery.trees.linear import tree_to_line, words_to_line
from annotated.machinery.trees.penn import load_trees
from annotated.machinery.visualization.weights import merge_words
from benchmarks.heads.study import bootstrap_ci, write_study
from benchmarks.logs import make_parser
from book.heads import reinitialized

TEXTS = {
    "general-en-fr": (["laws", "tatoeba", "php", "multi30k"], "fr"),  # and news, to measure on
    "multi30k-en-de": (["multi30k"], "de"),
    "multi30k-en-fr": (["multi30k"], "fr"),
    "craft-parser": (["craft"], "tree"),
}
FIREFOX = "firefox-en-pt"
Hits = dict[str, np.ndarray]


def plain(word: str) -> str:
    """A word without capitals and accents."""
    letters = unicodedata.normalize("NFKD", word.lower())
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def kind_of(source: str, target: str) -> str | None:
    """The kind of link between two plain words: "number", "same", "cognate" or None.

    Short words count only as numbers, because French "on" is not English "on".
    """
    if source == target:
        return "number" if source.isdigit() else "same" if len(source) > 3 else None
    if min(len(source), len(target)) < 5 or source[0] != target[0] or source[0].isdigit():
        return None
    return "cognate" if SequenceMatcher(None, source, target).ratio() >= 0.75 else None


def spelling_links(source: list[str], target: list[str]) -> list[tuple[int, int, str]]:
    """Links between the words of a sentence and of its translation: both positions, and kind.

    A word that resembles two others is not linked.
    """
    pairs = [(plain(here), plain(there)) for there in target for here in source]
    kinds = {
        (n % len(source), n // len(source)): kind
        for n, pair in enumerate(pairs)
        if (kind := kind_of(*pair))
    }
    links: list[tuple[int, int, str]] = []
    for wanted in {"number", "same"}, {"cognate"}:  # equal words first
        taken = {i for i, _, _ in links}, {j for _, j, _ in links}
        free = [(i, j) for i, j in kinds if i not in taken[0] and j not in taken[1]]
        free = [pair for pair in free if kinds[pair] in wanted]
        ends = Counter(i for i, _ in free), Counter(j for _, j in free)
        links += [(i, j, kinds[i, j]) for i, j in free if ends[0][i] == ends[1][j] == 1]
    return sorted(links, key=lambda link: link[1])


def link_hits(translator: Translator, sources: list[str], targets: list[str]) -> Hits:
    """A row per link: its kind and sentence, and whether the diagonal, each head, and the mean
    of each layer's heads find the linked word when its translation is about to be predicted."""
    rows = []
    for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
        cross = merge_words(read_attention(translator, source, target)["cross"])
        ours, theirs = cross.keys[:-1], cross.queries[:-1]  # without the ends
        for i, j, kind in spelling_links(ours, theirs):
            weights = cross.weights[:, :, j, :-1]  # (layers, h, words of the source)
            position = (2 * j + 1) * len(ours) // (2 * len(theirs))
            heads = (weights.argmax(dim=-1) == i).numpy()
            layers = (weights.mean(dim=1).argmax(dim=-1) == i).numpy()
            rows.append((kind, number, position == i, heads, layers))
    names = "kind", "sentence", "diagonal", "heads", "layers"
    return dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))


def error(hits: np.ndarray, sentence: np.ndarray) -> tuple[int, float, float, float]:
    """The number of links, the share that is missed, and its interval."""
    return len(hits), float((~hits).mean()), *bootstrap_ci(~hits, sentence)


def alignment_errors(chosen_on: Hits, measured_on: Hits) -> pd.DataFrame:
    """Errors of the best head, the best layer's mean and the diagonal, by kind of link."""
    best = np.unravel_index(chosen_on["heads"].mean(axis=0).argmax(), chosen_on["heads"].shape[1:])
    layer, head = (int(i) for i in best)
    mean = int(chosen_on["layers"].mean(axis=0).argmax())
    found = {
        ("one head", layer + 1, head + 1): measured_on["heads"][:, layer, head],
        ("all heads of a layer", mean + 1, None): measured_on["layers"][:, mean],
        ("the diagonal", None, None): measured_on["diagonal"],
    }
    rows = []
    for who, hits in found.items():
        for kind in ["all", *np.unique(measured_on["kind"])]:
            asked = (measured_on["kind"] == kind) | (kind == "all")
            rows.append((*who, kind, *error(hits[asked], measured_on["sentence"][asked])))
    return pd.DataFrame(
        rows, columns=["who", "layer", "head", "kind", "links", "error", "low", "high"]
    )


def head_errors(chosen_on: Hits) -> pd.DataFrame:
    """The error of each head on the links on which the best were chosen."""
    layers, h = chosen_on["heads"].shape[1:]
    rows = [(i + 1, j + 1, *error(chosen_on["heads"][:, i, j], chosen_on["sentence"]))
            for i in range(layers) for j in range(h)]  # fmt: skip
    return pd.DataFrame(rows, columns=["layer", "head", "links", "error", "low", "high"])


def pairs(corpus: str, split: str, lang: str) -> list[list[str]]:
    if lang != "tree":
        return [side[:300] for side in load_pairs(corpus, split, "en", lang)]
    trees = load_trees(corpus, split)[:100]
    return [[words_to_line(tree.leaves()) for tree in trees], [*map(tree_to_line, trees)]]


def study(everyday: list[list[str]]) -> dict[str, pd.DataFrame]:
    """The tables of the log.

    everyday: English and Portuguese sentences, half of which choose and half are measured.
    """
    errors, heads = [], []
    for model in [*TEXTS, FIREFOX]:
        if model == FIREFOX:
            half = len(everyday[0]) // 2
            chosen = [side[:half] for side in everyday]
            measured = {"tatoeba": [side[half:] for side in everyday]}
        else:
            corpora, lang = TEXTS[model]
            parts = [pairs(corpus, "dev", lang) for corpus in corpora]
            chosen = [[*chain(*sides)] for sides in zip(*parts, strict=True)]
            measured = {corpus: pairs(corpus, "test", lang) for corpus in corpora}
        if model == "general-en-fr":
            measured["news"] = pairs("news", "dev", lang)
        trained = load_pretrained(model)
        tokenizers = trained.tokenizer, trained.target_tokenizer
        untrained = Translator(reinitialized(trained.model), *tokenizers)
        for reader, translator in {"trained": trained, "untrained": untrained}.items():
            first = link_hits(translator, *chosen)
            heads.append(head_errors(first).assign(reader=reader, model=model))
            for corpus, texts in measured.items():
                found = alignment_errors(first, link_hits(translator, *texts))
                errors.append(found.assign(reader=reader, corpus=corpus, model=model))
    return {"errors": pd.concat(errors), "heads": pd.concat(heads)}


def main(given: list[str] | None = None) -> None:
    epilog = (
        "Reads multi30k, tatoeba, news, craft, and laws and php, which have to lie in "
        "$ANNOTATED_DATA."
    )
    parser = make_parser("benchmarks.alignments", __doc__, epilog)
    parser.add_argument("english", type=Path, help=f"file of sentences for {FIREFOX}")
    parser.add_argument("portuguese", type=Path, help="file of their translations")
    default = resource_path("results") / "alignments.json"
    parser.add_argument("--out", type=Path, default=default, help="file to write")
    options = parser.parse_args(given)
    write_study(options.out, study([read_lines(options.english), read_lines(options.portuguese)]))


if __name__ == "__main__":
    main()
