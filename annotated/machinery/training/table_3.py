"""The runs of Table 3 at small scale: `annotated vary`, and what their scores say."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from annotated.machinery.corpora import parse_data
from annotated.machinery.errors import InputError, extra
from annotated.machinery.files import reading, write_text
from annotated.machinery.scoring import evaluate
from annotated.machinery.training.logs import read_log
from annotated.machinery.training.trainer import train
from annotated.machinery.translator import load_pretrained
from annotated.training import TrainingConfig
from annotated.variations import count_parameters, small_config

if TYPE_CHECKING:
    import pandas as pd

_MEASURE = "cased, tokenized, compounds split"  # the paper's BLEU of English-German


def vary(
    names: Sequence[str], seeds: Sequence[int], results: Path, **changes: Any
) -> "pd.DataFrame":
    """Train rows of Table 3 at small scale, and score each on the validation set.

    Args:
        names: rows.   seeds: for each row.   results: CSV file that grows by one line per run;
            a run that it holds is not repeated.
        changes: fields of all configurations, such as `updates`.

    Returns: the content of the file in the end.

    Raises: InputError if there is no such row, or if the file is no such table or holds a run of
        another length (the file does not record other changes); KeyboardInterrupt when
        all is saved, if it was told to stop; MissingExtra without pandas.

    Source: section 6.2, Table 3.
    """
    with extra("viz"):
        import pandas as pd
    wanted = [(name, seed) for seed in seeds for name in names]
    configs = {run: small_config(*run, **changes) for run in wanted}
    done = pd.DataFrame(columns=["row", "seed", "updates"])
    if results.exists():
        with reading(results, "a table of runs"):
            done = pd.read_csv(results)
            if missing := {"row", "seed", "updates"} - set(done.columns):
                raise ValueError(f"no column {', '.join(sorted(missing))}")
    for (name, seed), config in configs.items():
        same = done[(done.row == name) & (done.seed == seed)]
        if len(same) and same.updates.iloc[0] != config.updates:
            told = f"expected {config.updates} updates of {name}; {results} has another run"
            raise InputError(told)
        if not len(same):
            line = {"row": name, "seed": seed, **_train_and_score(config)}
            done = pd.DataFrame([*done.to_dict("records"), line])
            write_text(results, done.to_csv(index=False))
    return done


def _train_and_score(config: TrainingConfig) -> dict[str, Any]:
    """Train one model, or continue it; its budget and scores as a line of the table."""
    folder = train(config, resume=True)
    translator, (corpus, src, tgt) = load_pretrained(folder), parse_data(config.data)
    scores = {row["text"]: row for row in evaluate(translator, corpus, "dev", src, tgt)}
    score = scores[_MEASURE]
    return {
        "updates": config.updates,
        "target_tokens": int(read_log(folder / "log.csv")[-1]["target_tokens"]),
        "parameters": count_parameters(translator.model),
        "perplexity": score["perplexity"],
        "accuracy": score["accuracy"],
        "BLEU": score["score"],
    }


def gain_over_base(runs: "pd.DataFrame", measure: str) -> "pd.DataFrame":
    """By how much each row is better than base, and how much of that may be chance.

    Each row is compared with the base of its own seed. The scatter of these differences, pooled
    over the rows with several seeds, is the noise of all rows; because it rests on few runs,
    Student's t widens its interval.

    Args:
        runs: as `vary` returns them.
        measure: "BLEU", "accuracy" or "perplexity"; the last in nats per piece, as a difference of
            logarithms, so that more is better in all of them.

    Returns: `gain` of each row, the mean over the seeds that it shares with base; `noise`, half
        of its 95 % confidence interval, not a number if no row shares two seeds with base.

    Source: section 6.2, Table 3, which has one run of each.
    """
    scores = -np.log(runs["perplexity"]) if measure == "perplexity" else runs[measure]
    by_seed = runs.assign(score=scores).pivot(index="row", columns="seed", values="score")
    gains = (by_seed - by_seed.loc["base"]).reindex(runs["row"].unique()).drop(index="base")
    seeds = gains.count(axis=1)
    freedom = (seeds - 1).clip(lower=0)
    total = int(freedom.sum())
    variance = (gains.var(axis=1) * freedom).sum() / max(total, 1)
    drawn = np.abs(np.random.default_rng(0).standard_t(max(total, 1), 1_000_000))
    t = np.quantile(drawn, 0.95) if total else np.nan
    return gains.mean(axis=1).to_frame("gain").assign(noise=t * (variance / seeds) ** 0.5)
