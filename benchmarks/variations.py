"""Train rows of Table 3 at small scale: `python -m benchmarks.variations --help`.

The runs of section 6.2 are made one after another. A run that the file of results contains is not
repeated, so the command can be stopped and started again.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from annotated.machinery.corpora.registry import parse_data
from annotated.machinery.errors import InputError
from annotated.machinery.files import write_text
from annotated.machinery.formats.pretrained import load_pretrained
from annotated.machinery.runs.logs import read_log
from annotated.machinery.runs.trainer import train
from annotated.machinery.scoring import evaluate
from annotated.training import TrainingConfig
from annotated.variations import count_parameters, printed_row, run_folder, table_3
from benchmarks.logs import make_parser, read_table

_MEASURE = "cased, tokenized, compounds split"  # the paper's BLEU for English-German


def small_config(name: str, seed: int = 1, **changes: Any) -> TrainingConfig:
    """The small run of a row on Multi30k: a quarter of each width, half of the layers, `changes`.

    Raises: InputError if there is no such row.
    """
    row = printed_row(name)
    widths = {key: row[key] // 4 for key in ("d_model", "d_ff", "d_k", "d_v")}
    kept = {key: row[key] for key in ("h", "dropout", "label_smoothing", "positions")}
    small = {
        "N": row["N"] // 2, "vocab_size": 5000, "updates": 2000, "warmup": 1000, "average": 1,
        "save_updates": 400, "log_updates": 100, "out": f"{run_folder(name)}-{seed}", "seed": seed,
    }  # fmt: skip
    return TrainingConfig(**{**small, **widths, **kept, **changes})


def vary(names: Sequence[str], seeds: Sequence[int], results: Path, **changes: Any) -> pd.DataFrame:
    """Train rows of Table 3 at small scale, and score each on the validation set.

    Args:
        names: rows.   seeds: for each row.   results: CSV file, to which each run adds a line;
            a run that it contains is not repeated.
        changes: fields of all configurations, such as `updates`.

    Returns: the final content of the file.

    Raises: InputError for an unknown row, or if the file is not such a table or contains a run of
        another length (it does not record other changes); KeyboardInterrupt, after saving, if it
        was asked to stop.

    Source: section 6.2, Table 3.
    """
    wanted = [(name, seed) for seed in seeds for name in names]
    configs = {run: small_config(*run, **changes) for run in wanted}
    done = read_table(results, ["row", "seed", "updates"])
    for (name, seed), config in configs.items():
        same = [row for row in done if (row["row"], row["seed"]) == (name, seed)]
        if same and same[0]["updates"] != config.updates:
            told = f"expected {config.updates} updates of {name}; {results} has another run"
            raise InputError(told)
        if same:
            continue
        folder = train(config, resume=True)
        translator, (corpus, src, tgt) = load_pretrained(folder), parse_data(config.data)
        scores = {row["text"]: row for row in evaluate(translator, corpus, "dev", src, tgt)}
        score, log = scores[_MEASURE], read_log(folder / "log.csv")
        done.append({
            "row": name, "seed": seed, "updates": config.updates,
            "target_tokens": int(log[-1]["target_tokens"]),
            "parameters": count_parameters(translator.model),
            "perplexity": score["perplexity"], "accuracy": score["accuracy"],
            "BLEU": score["score"],
        })  # fmt: skip
        write_text(results, pd.DataFrame(done).to_csv(index=False))
    return pd.DataFrame(done)


def main() -> None:
    add = (parser := make_parser("benchmarks.variations", __doc__)).add_argument
    add("--row", nargs="+", default=list(table_3().index), help="such as 'A: h = 1' (default: all)")
    told = "seeds, with one run for each (default: 1)"
    add("--seed", nargs="+", type=int, default=[1], help=told)
    add("--updates", type=int, default=2000, help="updates of each run (default: %(default)s)")
    add("--precision", default="auto", help="as for `annotated train` (default: %(default)s)")
    add("--results", type=Path, default=Path("runs/variations.csv"), help="file to append to")
    given = parser.parse_args()
    changes = {"updates": given.updates, "precision": given.precision}
    print(vary(given.row, given.seed, given.results, **changes).to_string(index=False))


if __name__ == "__main__":
    main()
