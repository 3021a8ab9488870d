"""Sixteen layers in both orders, at many rates: `python -m benchmarks.deep --help`.

Writes deep.csv: the losses, by order, learning rate, warmup and seed, with which the model of the
page "Thirteen diffs" learns to repeat the token before. Each loss is the mean of ten updates.
"""

from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F

from annotated.language_model import LanguageModel, LanguageModelConfig
from annotated.machinery.progress import progress_bar
from benchmarks.logs import Writers, log_program

ORDERS = {"post-norm": False, "pre-norm": True}
RATES = 1e-3, 2e-3, 4e-3, 8e-3
WARMUPS = 1, 100  # updates; 1 is none
SEEDS = 0, 1, 2


def copies(
    norm_first: bool, rate: float, warmup: int = 1, seed: int = 0, updates: int = 300
) -> list[float]:
    """Losses of 16 layers that learn to repeat the token before."""
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {"N": 16, "d_model": 32, "d_ff": 64, "h": 2, "max_len": 32}
    model, losses = LanguageModel(LanguageModelConfig(32, norm_first=norm_first, **sizes)), []
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), fused=True)
    for update in range(updates):
        optimizer.param_groups[0]["lr"] = rate * min(1, (update + 1) / warmup)
        ids = torch.randint(32, (16, 24))
        loss = F.cross_entropy(model(ids[:, 1:]).flatten(0, 1), ids[:, :-1].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def deep(runs: Path) -> pd.DataFrame:
    rows = []
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
