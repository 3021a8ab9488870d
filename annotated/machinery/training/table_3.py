"""The runs of Table 3."""

from typing import Any

from annotated.machinery.files import extra, lazy_extra
from annotated.variations import SHAPE, count_parameters, run_folder, small_config

with lazy_extra("viz"):
    import pandas as pd

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from annotated.machinery.corpora import parse_data
from annotated.machinery.files import write_text
from annotated.machinery.scoring import evaluate
from annotated.machinery.training.logs import read_log
from annotated.machinery.training.trainer import train
from annotated.machinery.translator import load_pretrained
from annotated.training import TrainingConfig, model_config, preset
from annotated.variations import known_row


def _full_config(name: str) -> TrainingConfig:
    """The training run of a row at full size: WMT 2014 English-German, no averaging.

    Raises: ValueError if there is no such row.

    Source: section 6.2.
    """
    row = known_row(name)
    fields = [*SHAPE, "dropout", "label_smoothing"]
    shape = {key: row[key] for key in fields}
    return preset(
        "base-en-de", **shape, updates=row["train_steps"], average=1, out=run_folder(name)
    )


def full_command(name: str) -> str:
    """The command that trains a row at full size, on all GPUs of a machine.

    Raises: ValueError if there is no such row.
    """
    config, usual = _full_config(name), preset("base-en-de")
    options = [
        f"--{key.replace('_', '-')} {value}"
        for key, value in vars(config).items()
        if value != getattr(usual, key) and (key, value) not in (("d_k", 64), ("d_v", 64))
    ]
    train = "torchrun --standalone --nproc-per-node gpu -m annotated train --preset base-en-de"
    return " ".join([train, *options])


_MEASURE = "cased, tokenized, compounds split"  # the paper's BLEU of English-German


def vary(
    names: Sequence[str], seeds: Sequence[int], results: Path, **changes: Any
) -> "pd.DataFrame":
    """Train rows of Table 3 at small scale, and score each on the validation set.

    Args:
        names: rows.   seeds: for each row.   results: CSV file that grows by a line a run;
            runs that it holds are not done again.
        changes: fields of all configurations, such as `updates`.

    Returns: what the file holds in the end.

    Raises: ValueError if there is no such row, or if the file is no such table or holds a run of
        another length (what else a run was given, it does not tell); KeyboardInterrupt when
        all is saved, if it was told to stop; ImportError without pandas.

    Source: section 6.2, Table 3.
    """
    with extra("viz"):
        import pandas as pd
    wanted = [(name, seed) for seed in seeds for name in names]
    configs = {key: small_config(*key, **changes) for key in wanted}
    done = _read_runs(results)
    for (name, seed), config in configs.items():
        same = done[(done.row == name) & (done.seed == seed)]
        if len(same) and same.updates.iloc[0] != config.updates:
            raise ValueError(
                f"expected {config.updates} updates of {name}; {results} has another run"
            )
        if len(same):
            continue
        line = {"row": name, "seed": seed, **_train_and_score(config)}
        done = pd.DataFrame([*done.to_dict("records"), line])
        results.parent.mkdir(parents=True, exist_ok=True)
        write_text(results, done.to_csv(index=False))
    return done


def _read_runs(results: Path) -> "pd.DataFrame":
    """The runs of a file, none if there is no file; ValueError if it is no table of runs."""
    import pandas as pd

    if not results.exists():
        return pd.DataFrame(columns=["row", "seed", "updates"])
    try:
        runs = pd.read_csv(results)
    except ValueError as error:
        raise ValueError(f"{results}: expected a table of runs; {error}") from None
    missing = {"row", "seed", "updates"} - set(runs.columns)
    if missing:
        raise ValueError(f"{results}: expected the column {', '.join(sorted(missing))} too")
    return runs


def _train_and_score(config: TrainingConfig) -> dict[str, Any]:
    """Train one model, or go on with it; budget and results as a line of the table."""
    folder = train(config, resume=True)
    corpus, src, tgt = parse_data(config.data)
    scores = {
        row["text"]: row for row in evaluate(load_pretrained(folder), corpus, "dev", src, tgt)
    }
    last, score = read_log(folder / "log.csv")[-1], scores[_MEASURE]
    return {
        "updates": config.updates,
        "target_tokens": int(last["target_tokens"]),
        "parameters": count_parameters(model_config(config)),
        "perplexity": score["perplexity"],
        "accuracy": score["accuracy"],
        "BLEU": score["score"],
    }


def student_quantile(freedom: int, share: float = 0.95) -> float:
    """How far from 0 Student's t stays with a probability of `share`; nan without freedom.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4: the
        probability of |t| < tan(angle) · √freedom, a finite sum, here searched by halving.
    """
    if freedom < 1:
        return math.nan
    odd, low, high = freedom % 2, 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        term = math.cos(angle) ** odd
        total = term * (freedom > 1)
        for m in range(1 + odd, freedom - 2, 2):
            term *= m / (m + 1) * math.cos(angle) ** 2
            total += term
        within = math.sin(angle) * total
        within = (angle + within) * 2 / math.pi if odd else within
        low, high = (angle, high) if within < share else (low, angle)
    return math.tan(angle) * math.sqrt(freedom)


def gain_over_base(runs: "pd.DataFrame", measure: str) -> "pd.DataFrame":
    """By how much each row is better than base, and how much of that may be chance.

    Args:
        runs: as `vary` returns them.
        measure: "BLEU", "accuracy" or "perplexity"; the last in nats a piece, the difference of
            logarithms, so that more is better in all of them.

    Returns: `gain` of each row, the mean over the seeds that it shares with base; `noise`, half
        of its 95 % confidence interval, not a number if no row shares two seeds with base.

    Raises: ValueError if there is no run of base.

    Source: section 6.2, Table 3, which has one run of each.
    """
    if "base" not in set(runs["row"]):
        raise ValueError(f"expected runs of base to compare with; got {len(runs)} of other rows")
    scores = -np.log(runs["perplexity"]) if measure == "perplexity" else runs[measure]
    by_seed = runs.assign(score=scores).pivot(index="row", columns="seed", values="score")
    gains = (by_seed - by_seed.loc["base"]).reindex(runs["row"].unique()).drop(index="base")
    seeds = gains.count(axis=1)
    freedom = (seeds - 1).clip(lower=0)
    variance = (gains.var(axis=1) * freedom).sum() / max(freedom.sum(), 1)
    noise = student_quantile(int(freedom.sum())) * (variance / seeds) ** 0.5
    return gains.mean(axis=1).to_frame("gain").assign(noise=noise)


def compare_direction(paper: float, ours: float, noise: float) -> str:
    """What a small row says about the direction that Table 3 gives.

    Args:
        paper, ours: gain over base.   noise: of our gain; any of them may be nan, not known.

    >>> [compare_direction(-0.9, ours, noise=0.5) for ours in (-1.4, 0.2, 1.4)]
    ['same direction', 'within noise', 'opposite']
    """
    if np.isnan([ours, noise]).any():
        return "not known"
    if abs(ours) <= noise:
        return "within noise"
    if paper == 0:
        return "no direction in the paper"
    return "same direction" if paper * ours > 0 else "opposite"
