"""Parts of one's own on captions: `python -m benchmarks.change --help`.

Trains the variants of the page "Change it", whose classes it takes from there, on Multi30k, into
runs/change-…, and writes change.csv: the last validation loss of each run. The first seed runs at
three learning rates, the others at the best of them. Stopped, it goes on when started again.
"""

import ast
import re
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from annotated import build_model
from annotated.machinery.runs.logs import read_log
from annotated.machinery.runs.trainer import train
from annotated.training import TrainingConfig
from benchmarks.logs import Writers, log_parser, write_logs

PAGE = Path(__file__).parents[1] / "chapters" / "machinery" / "change-it.md"
SMALL: dict[str, Any] = {
    "data": "multi30k-en-de", "vocab_size": 2000, "N": 2, "d_model": 64, "d_ff": 256, "h": 4,
    "dropout": 0.1, "src_tokens": 1000, "tgt_tokens": 1000, "updates": 600, "warmup": 200,
    "save_updates": 300, "log_updates": 100, "average": 1, "precision": "float32",
}  # fmt: skip
FACTORS, SEEDS = (0.5, 1.0, 2.0), (1, 2, 3)


def page_variants() -> dict[str, dict[str, Any]]:
    """The parts of each variant of the page, by its name."""
    cells = re.findall(r"^```\{code-cell}.*\n(?::.*\n)*([^`]*)", PAGE.read_text("utf-8"), re.M)
    module, names = ast.parse("".join(cells)), dict[str, Any]()
    wanted = lambda node: (
        isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef)
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "VARIANTS")
    )
    module.body = [node for node in module.body if wanted(node)]
    exec(compile(module, PAGE, "exec"), names)
    return names["VARIANTS"]


def last_loss(runs: Path, name: str, parts: dict[str, Any], factor: float, seed: int) -> float:
    """Train one run, unless it is complete, to its last validation loss."""
    out = runs / f"change-{name}-{factor}-{seed}".replace(" ", "-").replace("'", "")
    config = TrainingConfig(out=str(out), seed=seed, factor=factor, **SMALL)
    train(config, resume=True, build=partial(build_model, **parts))
    return float(read_log(out / "log.csv")[-1]["dev_loss"])


def change(runs: Path) -> pd.DataFrame:
    rows, variants = [], page_variants()
    for seed, (name, parts) in product(SEEDS, variants.items()):
        own = [row for row in rows if row["variant"] == name and row["seed"] == SEEDS[0]]
        best = min(own, key=lambda row: row["dev_loss"], default=None)
        for factor in [best["factor"]] if best else FACTORS:
            loss = last_loss(runs, name, parts, factor, seed)
            rows.append({"variant": name, "factor": factor, "seed": seed, "dev_loss": loss})
    return pd.DataFrame(rows)


WRITERS: Writers = {"change.csv": change}


def main(given: list[str] | None = None) -> None:
    options = log_parser("change", __doc__, WRITERS).parse_args(given)
    write_logs(options, WRITERS)


if __name__ == "__main__":
    main()
