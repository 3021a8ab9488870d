"""What changes without a head of an encoder: zeros in its place, or its mean over other sentences.

`python -m benchmarks.ablations MODEL SOURCE TARGET --out FILE` reads two files of 1,000 lines. A
row of the table has the layer and the head (from 1; 0 for the whole model), what replaces its
output, and how many translations change: of the first eight sentences with "make" on the page of
the figures, of its other eight (which had other verbs when the log was written), and of 60 others;
`facilitando` says whether the first sentence still becomes "Facilitando". For the means, which are
over all positions of 400 further sentences, there is also the loss in nats per piece on the first
400 reference translations.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from annotated import load_pretrained, switch_off
from annotated.machinery.corpora.texts import read_lines
from annotated.machinery.progress import progress_bar
from annotated.machinery.scoring import likelihood
from annotated.machinery.translator import Translator
from benchmarks.logs import files_parser, page_names, write_log
from benchmarks.switches import KINDS, mean_outputs

SENTENCES = page_names("attention-visualizations", "SENTENCES")["SENTENCES"].strip().splitlines()


def changes(translator: Translator, source: list[str], target: list[str]) -> Iterator[dict]:
    """The rows of the table."""
    means = mean_outputs(translator, source[600:])
    sets = {"make": SENTENCES[:8], "verbs": SENTENCES[8:], "others": source[400:460]}

    def loss() -> float:
        found = likelihood(translator, source[:400], target[:400])
        return round(found.nats / found.pieces, 4)

    told = lambda: {name: translator.translate(texts) for name, texts in sets.items()}
    whole = told()
    none = dict.fromkeys(sets, 0) | {"facilitando": True}
    yield {"layer": 0, "head": 0, "by": ""} | none | {"loss": loss()}
    c = translator.model.config
    for layer, head in progress_bar(list(np.ndindex(c.N, c.h)), unit=" heads"):
        for by, value in ("zero", None), ("mean", means):
            off = {KINDS["encoder"].format(layer): [head]}
            with switch_off(translator.model, off, value):
                new = told()
                cost = {"loss": loss()} if by == "mean" else {}
            changed = {name: sum(map(str.__ne__, whole[name], new[name])) for name in sets}
            kept = {"facilitando": "acilitando" in new["make"][0]}
            yield {"layer": layer + 1, "head": head + 1, "by": by} | changed | kept | cost


def main() -> None:
    options = files_parser("benchmarks.ablations", __doc__, "target").parse_args()
    pair = read_lines(options.source), read_lines(options.target)
    rows = changes(load_pretrained(options.model), *pair)
    write_log(options.out, pd.DataFrame(rows))


if __name__ == "__main__":
    main()
