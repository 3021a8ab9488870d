"""Parts of one's own on captions: `python -m benchmarks.change --help`.

Trains the variants of the page "Change it", whose classes it takes from there, on Multi30k, into
runs/change-…, and writes change.csv, validation losses: after 600 updates with one seed at each of
four learning rates, and after 1,500 with three seeds at the best of them; positions and distances
also after 3,000. This takes forty minutes on one core. Stopped, it goes on when started again.
"""

from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from annotated import build_model
from annotated.machinery.runs.logs import read_log
from annotated.machinery.runs.trainer import train
from annotated.training import TrainingConfig
from benchmarks.logs import Writers, log_program, page_names

SMALL: dict[str, Any] = {
    "data": "multi30k-en-de", "vocab_size": 2000, "N": 2, "d_model": 64, "d_ff": 256, "h": 4,
    "dropout": 0.1, "src_tokens": 1000, "tgt_tokens": 1000, "warmup": 200,
    "save_updates": 300, "log_updates": 100, "average": 1, "precision": "float32",
}  # fmt: skip
FACTORS, SEEDS, SHORT, LONG, LONGER = (0.25, 0.5, 1.0, 2.0), (1, 2, 3), 600, 1500, 3000
COMPARED = "the paper’s", "distances", "distances and sinusoids"  # also after LONGER


def run(runs: Path, name: str, factor: float, seed: int, updates: int) -> dict[str, Any]:
    """Train one run up to an update, unless it is already there: its validation loss."""
    out = runs / f"change-{name}-{factor}-{seed}".replace(" ", "-").replace("'", "")
    config = TrainingConfig(out=str(out), seed=seed, factor=factor, updates=updates, **SMALL)
    rows = lambda: {int(row["update"]): row["dev_loss"] for row in read_log(out / "log.csv")}
    if updates not in rows():
        train(config, resume=True, build=partial(build_model, **VARIANTS[name]))
    about = {"variant": name, "factor": factor, "seed": seed, "updates": updates}
    return about | {"dev_loss": float(rows()[updates])}


def change(runs: Path) -> pd.DataFrame:
    first, *_ = SEEDS
    tried = [run(runs, *each, first, SHORT) for each in product(VARIANTS, FACTORS)]
    chosen = {}
    for row in sorted(tried, key=lambda row: row["dev_loss"], reverse=True):
        chosen[row["variant"]] = row["factor"]  # the lowest loss is the last
    for names, updates in ((VARIANTS, LONG), (COMPARED, LONGER)):
        tried += [run(runs, name, chosen[name], seed, updates) for seed in SEEDS for name in names]
    return pd.DataFrame(tried)


VARIANTS = page_names("machinery/change-it", "BOTH", "DISTANCES", "VARIANTS")["VARIANTS"]
WRITERS: Writers = {"change.csv": change}
main = log_program("change", __doc__, WRITERS)

if __name__ == "__main__":
    main()
