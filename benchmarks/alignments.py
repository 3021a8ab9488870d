"""How well attention aligns words: `python -m benchmarks.alignments --help`.

Writes alignments.json, a log of the front page: for the German model of the package, and for a
model of the same shape before training, the errors of the best head, the best layer and the
diagonal on captions on which none was chosen.

Spelling reveals some links between a sentence and its translation. Two words are linked if they are
equal, or if they begin with the same letter and share three quarters of their letters in order.
"""

import unicodedata
from collections import Counter
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np
import pandas as pd

from annotated import load_pretrained, read_attention
from annotated.machinery.corpora.registry import load_pairs
from annotated.machinery.files import resource_path
from annotated.machinery.translator import Translator
from annotated.machinery.visualization.weights import merge_words
from benchmarks.heads.study import bootstrap_ci, write_study
from benchmarks.logs import make_parser
from book.heads import reinitialized

MODEL = "multi30k-en-de"
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


def study() -> pd.DataFrame:
    """The table of the log: heads are chosen on the validation set and measured on the test set."""
    chosen, measured = ([side[:300] for side in load_pairs("multi30k", split, "en", "de")]
                        for split in ("dev", "test"))  # fmt: skip
    trained = load_pretrained(MODEL)
    tokenizers = trained.tokenizer, trained.target_tokenizer
    untrained = Translator(reinitialized(trained.model), *tokenizers)
    errors = []
    for reader, translator in {"trained": trained, "untrained": untrained}.items():
        found = alignment_errors(link_hits(translator, *chosen), link_hits(translator, *measured))
        errors.append(found.assign(reader=reader, corpus="multi30k", model=MODEL))
    return pd.concat(errors)


def main(given: list[str] | None = None) -> None:
    parser = make_parser("benchmarks.alignments", __doc__, "Reads multi30k.")
    default = resource_path("results") / "alignments.json"
    parser.add_argument("--out", type=Path, default=default, help="file to write")
    write_study(parser.parse_args(given).out, {"errors": study()})


if __name__ == "__main__":
    main()
