"""Which possessive a German translator writes for *his*, *her* and *its*, with and without a head.

`python -m benchmarks.possessives MODEL SOURCE --out FILE` reads English captions and keeps those
with exactly one of the three words whose translation has exactly one of *sein* and *ihr* in any
form. A row of the table has the pronoun, how many captions with it were kept, for how many of these
the model writes *sein* and *ihr*, and the largest number of captions in which the stem changes when
one head of the encoder is replaced by its mean over the other captions, with that head.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from annotated import load_pretrained, switch_off
from annotated.machinery.corpora.texts import read_lines
from annotated.machinery.progress import progress_bar
from annotated.machinery.translator import Translator
from benchmarks.logs import make_parser, write_log
from benchmarks.switches import KINDS, mean_outputs


def stems(text: str) -> list[str]:
    """The possessives *sein* and *ihr* in a German sentence, without their endings."""
    return re.findall(r"\b(sein|ihr)(?:e[mnrs]?)?\b", text.lower())


def possessives(translator: Translator, english: list[str]) -> list[dict[str, Any]]:
    """The rows of the table."""
    asked = [re.findall(r"\b(his|her|its)\b", text.lower()) for text in english]
    texts = [text for text, words in zip(english, asked, strict=True) if len(words) == 1]
    others = [text for text, words in zip(english, asked, strict=True) if not words]
    pronouns = np.array([words[0] for words in asked if len(words) == 1])
    whole = list(map(stems, translator.translate(texts)))
    kept = np.array([len(found) == 1 for found in whole])
    texts = [text for text, found in zip(texts, kept, strict=True) if found]
    first = np.array([found[0] for found in whole if len(found) == 1])
    pronouns = pronouns[kept]
    means, changed = mean_outputs(translator, others[:400]), {}
    c = translator.model.config
    for layer, head in progress_bar(list(np.ndindex(c.N, c.h)), unit=" heads"):
        with switch_off(translator.model, {KINDS["encoder"].format(layer): [head]}, means):
            found = list(map(stems, translator.translate(texts)))
        # A stem that disappears is another wording, not the other stem.
        changed[f"{layer + 1}.{head + 1}"] = np.array(
            [len(new) == 1 and new[0] != old for new, old in zip(found, first, strict=True)]
        )
    rows = []
    for word in ("his", "her", "its"):
        here = pronouns == word
        most = max(changed, key=lambda name: changed[name][here].sum())
        count = lambda found, here=here: int(found[here].sum())
        rows.append({
            "pronoun": word, "captions": int(here.sum()), "sein": count(first == "sein"),
            "ihr": count(first == "ihr"), "changed": count(changed[most]), "head": most,
        })  # fmt: skip
    return rows


def main() -> None:
    add = (parser := make_parser("benchmarks.possessives", __doc__)).add_argument
    add("model", help="a model of the package, or a folder")
    add("source", type=Path, help="file with one English caption per line")
    add("--out", type=Path, required=True, help="CSV file to write")
    options = parser.parse_args()
    rows = possessives(load_pretrained(options.model), read_lines(options.source))
    write_log(options.out, pd.DataFrame(rows))


if __name__ == "__main__":
    main()
