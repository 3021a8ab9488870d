"""What changes without a head of an encoder: zeros in its place, or its mean over other sentences.

`python -m benchmarks.ablations MODEL SOURCE TARGET --out FILE` reads two files of 1,000 lines. A
row of the table has the layer and the head (from 1; 0 for the whole model), what replaces its
output, and how many translations change: of the eight sentences with "make" on the page of the
figures, of its eight with other verbs, and of 60 others; `facilitando` says whether the first
sentence still becomes "Facilitando". For the means, which are over all positions of 400 further
sentences, there is also the loss in nats per piece on the first 400 reference translations.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from annotated import load_pretrained, switch_off
from annotated.machinery.corpora.texts import read_lines
from annotated.machinery.progress import progress_bar
from annotated.machinery.scoring import likelihood
from annotated.machinery.translator import Translator
from benchmarks.logs import files_parser, write_log
from benchmarks.switches import KINDS, mean_outputs

PAGE = Path(__file__).resolve().parent.parent / "chapters" / "attention-visualizations.md"


def page_sentences() -> tuple[list[str], list[str]]:
    """The sentences of the page with "make", and those with other verbs."""
    found = re.search(r'^KIND = """\n(.+?)^"""', PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert found is not None
    lines = [line.split(": ") for line in found[1].splitlines()]
    with_make = [text for name, text in lines if name.startswith("make")]
    return with_make, [text for name, text in lines if not name.startswith("make")]


def changes(translator: Translator, source: list[str], target: list[str]) -> Iterator[dict]:
    """The rows of the table."""
    means = mean_outputs(translator, source[600:])
    sets = dict(zip(("make", "verbs"), page_sentences(), strict=True)) | {"others": source[400:460]}

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
