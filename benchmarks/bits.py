"""The cost of storing each matrix in few bits: BLEU, and the share of unchanged outputs.

`python -m benchmarks.bits MODEL SOURCE REFERENCE --out FILE` translates a file of lines with greedy
search, with unchanged weights and with each matrix rounded to integers times one scale. A row of
the table has the number of bits (0: unchanged), BLEU (sacreBLEU, 13a), the share of outputs that
are the same as without rounding, and the number of sentences.
"""

import argparse
from pathlib import Path

import pandas as pd
import torch
from sacrebleu.metrics import BLEU

from annotated import load_pretrained
from annotated.machinery.corpora.texts import read_lines
from annotated.machinery.files import write_text
from annotated.machinery.progress import progress_bar


@torch.no_grad()
def round_matrices(model: torch.nn.Module, bits: int) -> None:
    """Round every matrix of a model to 2^bits - 1 integers around 0, times one scale."""
    most = 2 ** (bits - 1) - 1
    for weight in model.parameters():
        if weight.dim() > 1:
            scale = weight.abs().max() / most
            weight.copy_((weight / scale).round() * scale)


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", help="a model of the package, or a folder")
    parser.add_argument("source", type=Path, help="file with one sentence per line")
    parser.add_argument("reference", type=Path, help="file with their translations")
    parser.add_argument(
        "--bits", type=int, nargs="+", default=[8, 7, 6, 5, 4], help="numbers of bits per weight"
    )
    parser.add_argument("--out", type=Path, required=True, help="CSV file to write")
    options = parser.parse_args()
    source, reference = read_lines(options.source), read_lines(options.reference)
    rows, whole = [], list[str]()
    for bits in progress_bar([0, *options.bits], unit=" widths"):
        translator = load_pretrained(options.model)
        if bits:
            round_matrices(translator.model, bits)
        found = translator.translate(source, beam=1)
        whole = whole or found
        same = sum(map(str.__eq__, found, whole)) / len(found)
        score = BLEU().corpus_score(found, [reference]).score
        rows.append((bits, round(score, 2), round(same, 4), len(found)))
    table = pd.DataFrame(rows, columns=["bits", "BLEU", "same", "sentences"])
    write_text(options.out, table.to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    main()
