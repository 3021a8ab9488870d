"""6.2 Model Variations (chapters/6-2-model-variations.md).
The runs of Table 3 (chapters/table-3-runs.md).

Generated from the chapter's export cells by book/extract.py: edit it there.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from annotated.corpora import parse_data
from annotated.evaluation import evaluate
from annotated.files import extra, write_text
from annotated.model import TransformerConfig, build_model
from annotated.training.config import TrainingConfig, model_config, preset
from annotated.training.logs import read_log
from annotated.training.trainer import train
from annotated.translator import load_pretrained

__all__ = [
    "SHAPE",
    "compare_direction",
    "count_parameters",
    "full_command",
    "gain_over_base",
    "known_row",
    "row_config",
    "run_folder",
    "small_config",
    "student_quantile",
    "table_3",
    "vary",
]


_BASE: dict[str, Any] = {
    "N": 6, "d_model": 512, "d_ff": 2048, "h": 8, "d_k": 64, "d_v": 64, "dropout": 0.1,
    "label_smoothing": 0.1, "positions": "sinusoidal", "train_steps": 100_000,
}  # fmt: skip
_BIG = {"d_model": 1024, "d_ff": 4096, "h": 16, "dropout": 0.3, "train_steps": 300_000}

# Group, what differs from base, perplexity, BLEU, parameters in millions (None: not printed).
_TABLE_3: list[tuple[str, dict[str, Any], float, float, int | None]] = [
    ("base", {}, 4.92, 25.8, 65),
    ("A", {"h": 1, "d_k": 512, "d_v": 512}, 5.29, 24.9, None),
    ("A", {"h": 4, "d_k": 128, "d_v": 128}, 5.00, 25.5, None),
    ("A", {"h": 16, "d_k": 32, "d_v": 32}, 4.91, 25.8, None),
    ("A", {"h": 32, "d_k": 16, "d_v": 16}, 5.01, 25.4, None),
    ("B", {"d_k": 16}, 5.16, 25.1, 58),
    ("B", {"d_k": 32}, 5.01, 25.4, 60),
    ("C", {"N": 2}, 6.11, 23.7, 36),
    ("C", {"N": 4}, 5.19, 25.3, 50),
    ("C", {"N": 8}, 4.88, 25.5, 80),
    ("C", {"d_model": 256, "d_k": 32, "d_v": 32}, 5.75, 24.5, 28),
    ("C", {"d_model": 1024, "d_k": 128, "d_v": 128}, 4.66, 26.0, 168),
    ("C", {"d_ff": 1024}, 5.12, 25.4, 53),
    ("C", {"d_ff": 4096}, 4.75, 26.2, 90),
    ("D", {"dropout": 0.0}, 5.77, 24.6, None),
    ("D", {"dropout": 0.2}, 4.95, 25.5, None),
    ("D", {"label_smoothing": 0.0}, 4.67, 25.3, None),
    ("D", {"label_smoothing": 0.2}, 5.47, 25.7, None),
    ("E", {"positions": "learned"}, 4.92, 25.7, None),
    ("big", _BIG, 4.33, 26.4, 213),
]


if TYPE_CHECKING:
    import pandas as pd


def _row_name(group: str, changes: dict[str, Any]) -> str:
    """A short name: the group, and the first thing that differs from the base model.

    >>> _row_name("A", {"h": 1, "d_k": 512, "d_v": 512})
    'A: h = 1'
    """
    if group in ("base", "big"):
        return group
    field, value = next(iter(changes.items()))
    return f"{group}: {field} = {value}"


_ROWS: dict[str, dict[str, Any]] = {
    _row_name(group, changes): _BASE | changes | {
        "group": group, "perplexity": perplexity, "BLEU": bleu, "parameters_millions": millions,
    }
    for group, changes, perplexity, bleu, millions in _TABLE_3
}  # fmt: skip


def table_3() -> "pd.DataFrame":
    """Table 3: each row a configuration, with the published results.

    Returns: a row for each of the paper's, named by its group and what it changes first, such as
        "A: h = 1"; `train_steps` in updates, `perplexity` per word piece and `BLEU` on
        newstest2013, `parameters_millions` where printed.

    Raises: ImportError without pandas, which the extra `viz` brings.

    Source: section 6.2, Table 3.
    """
    with extra("viz"):
        import pandas as pd
    return pd.DataFrame(_ROWS.values(), index=pd.Index(_ROWS, name="row"))


SHAPE = ["N", "d_model", "d_ff", "h", "d_k", "d_v", "positions"]


def row_config(name: str, vocab: int = 37000) -> TransformerConfig:
    """The model of a row of Table 3 at full size.

    Args:
        vocab: number of pieces in the shared vocabulary.

    Raises: ValueError if there is no such row.
    """
    row = known_row(name)
    shape = {key: row[key] for key in [*SHAPE, "dropout"]}
    return TransformerConfig.base(vocab, **shape, max_len=512)  # matters to learned positions only


def known_row(name: str) -> dict[str, Any]:
    """A row of Table 3 by its name.

    Raises: ValueError that lists the names if this is none of them.
    """
    if name not in _ROWS:
        raise ValueError(f"expected a row out of {', '.join(_ROWS)}; got {name!r}")
    return _ROWS[name]


def count_parameters(config: TransformerConfig) -> int:
    """Parameters of a model, without building it; a tied matrix counts once."""
    with torch.device("meta"):
        model = build_model(config)
    return sum(parameter.numel() for parameter in model.parameters())


def run_folder(name: str) -> str:
    """The folder of a row's run at full size; at small scale the seed follows.

    >>> run_folder("A: h = 1")
    'runs/a-h-1'
    """
    return "runs/" + "-".join("".join(c if c.isalnum() else " " for c in name.lower()).split())


def small_config(name: str, seed: int = 1, **changes: Any) -> TrainingConfig:
    """The training run of a row at small scale, on Multi30k: widths / 4, layers / 2.

    Args:
        changes: other fields of the configuration, such as `updates`.

    Raises: ValueError if there is no such row.
    """
    row = known_row(name)
    widths = {key: row[key] // 4 for key in ("d_model", "d_ff", "d_k", "d_v")}
    kept = {key: row[key] for key in ("h", "dropout", "label_smoothing", "positions")}
    small = {
        "N": row["N"] // 2, "vocab_size": 5000, "updates": 2000, "warmup": 1000, "average": 1,
        "save_updates": 400, "log_updates": 100, "out": f"{run_folder(name)}-{seed}", "seed": seed,
    }  # fmt: skip
    return TrainingConfig(**{**small, **widths, **kept, **changes})


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
