"""Captions without the factor √d_model of section 3.4: `python -m benchmarks.scale --help`.

Trains small translators on Multi30k, into runs/scale-…, and writes scale.csv, validation losses at
two checkpoints and the mean length of a row at the end. Without the factor, rows have their usual
length of 1 at first, or they are √d_model times as long. Stopped, it goes on when started again.
"""

import math
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
from safetensors.torch import load_file
from torch import Tensor, nn

from annotated import EncoderDecoder, TransformerConfig, build_model
from annotated.machinery.runs.logs import read_log
from annotated.machinery.runs.trainer import train
from annotated.training import TrainingConfig
from benchmarks.change import SMALL
from benchmarks.logs import Writers, log_program

UPDATES = 400
RUNS = (1.0, 1), (1.0, 2), (0.5, 1)  # factor of the learning rate, and seed


class Unscaled(nn.Module):
    """An embedding without the factor."""

    def __init__(self, d_model: int, vocab: int) -> None:
        super().__init__()
        self.lut = nn.Embedding(vocab, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.lut(x)


def long_rows(config: TransformerConfig) -> EncoderDecoder:
    """The same input as with the factor, by rows that start √d_model times as long."""
    model = build_model(config, embedding=Unscaled)
    model.generator.proj.weight.data *= math.sqrt(config.d_model)
    return model


BUILD = {
    "factor": build_model,
    "no factor": partial(build_model, embedding=Unscaled),
    "no factor, long rows": long_rows,
}


def run(runs: Path, rows: str, factor: float, seed: int) -> dict[str, Any]:
    """Train one run, unless it is already there: its losses."""
    out = runs / f"scale-{rows}-{factor}-{seed}".replace(",", "").replace(" ", "-")
    settings = SMALL | {"save_updates": UPDATES // 2}
    config = TrainingConfig(out=str(out), seed=seed, factor=factor, updates=UPDATES, **settings)
    losses = lambda: {int(row["update"]): row["dev_loss"] for row in read_log(out / "log.csv")}
    if UPDATES not in losses():
        train(config, resume=True, build=BUILD[rows])
    matrix = load_file(out / "model.safetensors")["src_embed.0.lut.weight"]  # the shared one
    length = round(float(matrix.norm(dim=1).mean()), 3)
    return {
        "rows": rows, "factor": factor, "seed": seed, "row_length": length,
        "early_loss": float(losses()[UPDATES // 2]), "dev_loss": float(losses()[UPDATES]),
    }  # fmt: skip


def scale(runs: Path) -> pd.DataFrame:
    return pd.DataFrame([run(runs, rows, *each) for each, rows in product(RUNS, BUILD)])


WRITERS: Writers = {"scale.csv": scale}
main = log_program("scale", __doc__, WRITERS)

if __name__ == "__main__":
    main()
