"""The cost of storing each matrix in few bits: BLEU, and the share of unchanged outputs.

`python -m benchmarks.bits MODEL SOURCE REFERENCE --out FILE` translates a file of lines with greedy
search, with unchanged weights and with each matrix rounded to integers times one scale. A row of
the table has the number of bits (0: unchanged), BLEU (sacreBLEU, 13a), the share of outputs that
are the same as without rounding, and the number of sentences.
"""

import pandas as pd
import torch
from sacrebleu.metrics import BLEU

from annotated import load_pretrained
from annotated.machinery.corpora.texts import read_lines
from annotated.machinery.progress import progress_bar
from benchmarks.logs import files_parser, write_log


@torch.no_grad()
def round_matrices(model: torch.nn.Module, bits: int) -> None:
    """Round every matrix of a model to 2^bits - 1 integers around 0, times one scale."""
    most = 2 ** (bits - 1) - 1
    for weight in model.parameters():
        if weight.dim() > 1:
            scale = weight.abs().max() / most
            weight.copy_((weight / scale).round() * scale)


def main() -> None:
    add = (parser := files_parser("benchmarks.bits", __doc__, "reference")).add_argument
    told = "numbers of bits per weight"
    add("--bits", type=int, nargs="+", default=[8, 7, 6, 5, 4], help=told)
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
    write_log(options.out, pd.DataFrame(rows, columns=["bits", "BLEU", "same", "sentences"]))


if __name__ == "__main__":
    main()
