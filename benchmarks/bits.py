"""The cost of storing each matrix in few bits: BLEU, and the share of unchanged outputs.

`python -m benchmarks.bits MODEL SOURCE REFERENCE --out FILE` translates a file of lines with greedy
search, with unchanged weights, with each matrix rounded to integers times one scale, and with a
scale that undoes what the rounding shrinks. A row of the table has the number of bits (0:
unchanged), whether this was undone, by how much the matrices have shrunk (mean and largest), BLEU
(sacreBLEU, 13a), the 95% interval of its change by rounding, the share of outputs that are the same
as without rounding, and the number of sentences.
"""

import pandas as pd
import torch

from annotated import load_pretrained
from annotated.machinery.corpora.texts import read_lines
from annotated.machinery.progress import progress_bar
from benchmarks.gender import compared
from benchmarks.logs import files_parser, write_log


@torch.no_grad()
def round_matrices(model: torch.nn.Module, bits: int, undone: bool = False) -> list[float]:
    """Round every matrix of a model to 2^bits - 1 integers around 0, times one scale.

    undone: choose the scale again, so that the matrix has not shrunk

    Returns: how much rounding has shrunk each matrix: 1 minus the slope of its rounded weights,
        as a linear function of the weights.
    """
    most, shrunk = 2 ** (bits - 1) - 1, []
    for weight in model.parameters():
        if weight.dim() > 1:
            scale = weight.abs().max() / most
            rounded = (weight / scale).round() * scale
            slope = ((weight * rounded).sum() / weight.square().sum()).item()
            weight.copy_(rounded / (slope if undone else 1.0))
            shrunk.append(1 - slope)
    return shrunk


def main() -> None:
    add = (parser := files_parser("benchmarks.bits", __doc__, "reference")).add_argument
    told = "numbers of bits per weight"
    add("--bits", type=int, nargs="+", default=[8, 7, 6, 5], help=told)
    options = parser.parse_args()
    source, reference = read_lines(options.source), read_lines(options.reference)
    rows, whole = [], list[str]()
    kinds = [(0, False), *((bits, undone) for bits in options.bits for undone in (False, True))]
    for bits, undone in progress_bar(kinds, unit=" models"):
        translator = load_pretrained(options.model)
        shrunk = round_matrices(translator.model, bits, undone) if bits else [0.0]
        found = translator.translate(source, beam=1)
        whole = whole or found
        score = compared(found, whole, reference)
        rows.append(
            {
                "bits": bits,
                "undone": int(undone),
                "shrunk": round(sum(shrunk) / len(shrunk), 4) + 0.0,  # no -0.0
                "most_shrunk": round(max(shrunk), 4),
                "BLEU": score["BLEU"],
                "low": round(score["difference"]["low"], 2) + 0.0,
                "high": round(score["difference"]["high"], 2) + 0.0,
                "same": round(sum(map(str.__eq__, found, whole)) / len(found), 4),
                "sentences": len(found),
            }
        )
    write_log(options.out, pd.DataFrame(rows))


if __name__ == "__main__":
    main()
