"""Dropout and label smoothing on 10,000 captions: `python -m benchmarks.regularization --help`.

Trains the four models of section 5.4, into runs/0.0-0.0 and so on, and writes regularization.csv:
their losses as they learn, and their scores on the validation set. Into regularization-early.csv go
the scores of the one with neither at its least loss. Stopped, it goes on when started again.
"""

from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from annotated import load_pretrained
from annotated.machinery.runs.trainer import train
from annotated.machinery.scoring import evaluate
from annotated.training import TrainingConfig
from benchmarks.logs import Writers, log_program, write_captions

SMALL: dict[str, Any] = {
    "N": 2, "vocab_size": 4000, "updates": 4000, "log_updates": 80, "save_updates": 80,
    "average": 5, "precision": "bfloat16",
}  # fmt: skip
BEST = 1120  # updates until the least loss of the model with neither


def some_captions(runs: Path) -> str:
    folder = runs / "captions"
    write_captions(folder, ("train", "dev"), ["de"], lambda lines: lines[:10_000])
    return f"{folder}-en-de"


def regularization(runs: Path) -> pd.DataFrame:
    data, logs = some_captions(runs), []
    for dropout, smoothing in product((0.0, 0.3), (0.0, 0.1)):
        changes = {"dropout": dropout, "label_smoothing": smoothing}
        out = str(runs / f"{dropout}-{smoothing}")
        run = train(TrainingConfig(out=out, data=data, **SMALL, **changes), resume=True)
        score = evaluate(load_pretrained(run), "multi30k", "dev", "en", "de")[-2]  # chrF is last
        changes |= {"perplexity": score["perplexity"], "accuracy": score["accuracy"]}
        log = pd.read_csv(run / "log.csv")[["update", "epoch", "train_loss", "dev_loss"]]
        logs.append(log.assign(**changes, BLEU=score["score"]))
    return pd.concat(logs)


def early(runs: Path) -> pd.DataFrame:
    """The scores of the average of five checkpoints, of which the third is the best."""
    changes = {"updates": BEST + 2 * SMALL["save_updates"], "precision": "auto"}
    changes |= {"dropout": 0.0, "label_smoothing": 0.0}
    out, data = str(runs / "early"), some_captions(runs)
    run = train(TrainingConfig(**SMALL | changes, out=out, data=data), resume=True)
    score = evaluate(load_pretrained(run), "multi30k", "dev", "en", "de")[-2]
    scores = {name: score[name] for name in ("perplexity", "accuracy")}
    return pd.DataFrame([{"update": BEST, **scores, "BLEU": score["score"]}])


WRITERS: Writers = {"regularization.csv": regularization, "regularization-early.csv": early}
main = log_program("regularization", __doc__, WRITERS)

if __name__ == "__main__":
    main()
