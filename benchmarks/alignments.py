"""How well attention aligns words: `python -m benchmarks.alignments --help`.

Writes alignments.json, the log of "Attention as alignment", with the functions of that page: for
four models of the package, and for models of the same shape before training, the errors of the best
head, the best layer and the diagonal on the first pairs of held-out texts, and the error of each
head on the pairs on which the best were chosen.
"""

from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd

from annotated import load_pretrained
from annotated.machinery.corpora.registry import load_pairs
from annotated.machinery.files import resource_path
from annotated.machinery.heads.study import reinitialized, write_study
from annotated.machinery.translator import Translator
from annotated.machinery.trees.linear import tree_to_line, words_to_line
from annotated.machinery.trees.penn import load_trees
from benchmarks.logs import make_parser, page_names

TEXTS = {
    "general-en-fr": (["laws", "tatoeba", "php", "multi30k"], "fr"),  # and news, to measure on
    "multi30k-en-de": (["multi30k"], "de"),
    "multi30k-en-fr": (["multi30k"], "fr"),
    "craft-parser": (["craft"], "tree"),
}


def pairs(corpus: str, split: str, lang: str) -> list[list[str]]:
    if lang != "tree":
        return [side[:300] for side in load_pairs(corpus, split, "en", lang)]
    trees = load_trees(corpus, split)[:100]
    return [[words_to_line(tree.leaves()) for tree in trees], [*map(tree_to_line, trees)]]


def study() -> dict[str, pd.DataFrame]:
    page, errors, heads = page_names("machinery/alignments"), [], []
    for model, (corpora, lang) in TEXTS.items():
        parts = [pairs(corpus, "dev", lang) for corpus in corpora]
        chosen = [[*chain(*sides)] for sides in zip(*parts, strict=True)]
        measured = {corpus: pairs(corpus, "test", lang) for corpus in corpora}
        if model == "general-en-fr":
            measured["news"] = pairs("news", "dev", lang)
        trained = load_pretrained(model)
        tokenizers = trained.tokenizer, trained.target_tokenizer
        untrained = Translator(reinitialized(trained.model), *tokenizers)
        for reader, translator in {"trained": trained, "untrained": untrained}.items():
            about = {"reader": reader, "model": model}
            first = page["link_hits"](translator, *chosen)
            for (layer, head), error in np.ndenumerate(1 - first["heads"].mean(axis=0)):
                row = {"reader": reader, "layer": layer + 1, "head": head + 1, "error": error}
                heads.append(row | about)
            for corpus, texts in measured.items():
                found = page["alignment_errors"](first, page["link_hits"](translator, *texts))
                errors.append(found.assign(reader=reader, corpus=corpus, model=model))
    return {"errors": pd.concat(errors), "heads": pd.DataFrame(heads)}


def main(given: list[str] | None = None) -> None:
    epilog = (
        "Reads multi30k, tatoeba, news, craft, and laws and php, which have to lie in "
        "$ANNOTATED_DATA."
    )
    parser = make_parser("benchmarks.alignments", __doc__, epilog)
    default = resource_path("results") / "alignments.json"
    parser.add_argument("--out", type=Path, default=default, help="file to write")
    write_study(parser.parse_args(given).out, study())


if __name__ == "__main__":
    main()
