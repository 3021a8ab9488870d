"""A trained translator with another scale of its dot products: BLEU, and which outputs stay.

`python -m benchmarks.scales MODEL SOURCE REFERENCE --out FILE` translates a file of lines with
greedy search, with dot products divided by another number than √d_k. A row of the table has the
kind of attention ("encoder", "cross", "decoder", or "all"), the number, BLEU (sacreBLEU, 13a), the
share of outputs that are the same as with √d_k, and the number of sentences.
"""

import math

import pandas as pd
import torch
from sacrebleu.metrics import BLEU

from annotated import load_pretrained
from annotated.machinery.corpora.texts import read_lines
from annotated.machinery.progress import progress_bar
from benchmarks.logs import files_parser, write_log
from benchmarks.switches import KINDS

MULTIPLES = {"√dₖ": 1.0, "√dₖ / 2": 0.5, "2 √dₖ": 2.0, "10 √dₖ": 10.0}
RUNS = [("all", divisor) for divisor in [*MULTIPLES, "1"]] + [(kind, "1") for kind in KINDS]


@torch.no_grad()
def divide(model: torch.nn.Module, kind: str, divisor: str) -> None:
    """Divide the dot products of a kind of attention by another number, through the queries."""
    for pattern in KINDS.values() if kind == "all" else [KINDS[kind]]:
        for layer in range(model.config.N):
            attention = model.get_submodule(pattern.format(layer))
            root = math.sqrt(attention.w_q.out_features / attention.h)
            attention.w_q.weight.div_(MULTIPLES.get(divisor, 1 / root))


def main() -> None:
    options = files_parser("benchmarks.scales", __doc__, "reference").parse_args()
    source, reference = read_lines(options.source), read_lines(options.reference)
    rows, usual = [], list[str]()
    for kind, divisor in progress_bar(RUNS, unit=" scale"):
        translator = load_pretrained(options.model)
        divide(translator.model, kind, divisor)
        found = translator.translate(source, beam=1)
        usual = usual or found
        same = sum(map(str.__eq__, found, usual)) / len(found)
        score = BLEU().corpus_score(found, [reference]).score
        rows.append((kind, divisor, round(score, 2), round(same, 4), len(found)))
    columns = ["attention", "divisor", "BLEU", "same", "sentences"]
    write_log(options.out, pd.DataFrame(rows, columns=columns))


if __name__ == "__main__":
    main()
