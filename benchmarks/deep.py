"""Sixteen layers in both orders, at many rates: `python -m benchmarks.deep --help`.

Writes deep.csv: the losses, by order, learning rate, warmup and seed, with which the model of the
page "Thirteen Diffs" learns to repeat the token before. Each loss is the mean of ten updates.
"""

from itertools import product
from pathlib import Path

import pandas as pd

from annotated.machinery.progress import progress_bar
from benchmarks.logs import Writers, log_program, page_names

ORDERS = {"post-norm": False, "pre-norm": True}
RATES = 1e-3, 2e-3, 4e-3, 8e-3
WARMUPS = 1, 100  # updates; 1 is none
SEEDS = 0, 1, 2


def deep(runs: Path) -> pd.DataFrame:
    rows, copies = [], page_names("since-2017", "BASE")["copies"]
    cases = list(product(WARMUPS, SEEDS, RATES, ORDERS))
    for warmup, seed, rate, order in progress_bar(cases, unit=" runs"):
        losses = copies(ORDERS[order], rate, warmup, seed)
        ends = {f"loss_{n}": round(sum(losses[n - 10 : n]) / 10, 4) for n in (100, 200, 300)}
        rows.append({"order": order, "rate": rate, "warmup": warmup, "seed": seed, **ends})
    return pd.DataFrame(rows)


WRITERS: Writers = {"deep.csv": deep}
main = log_program("deep", __doc__, WRITERS)

if __name__ == "__main__":
    main()
