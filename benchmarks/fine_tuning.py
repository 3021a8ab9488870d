"""Fine-tuning on captions: `python -m benchmarks.fine_tuning --help`.

Trains a general English-French model on everyday sentences and news, and continues from it on 500
to 8,000 captions of photographs: on these alone, or with as many general pairs. The third arm
learns from these pairs alone, with its own vocabulary, in as many updates. The pairs differ from
seed to seed, and learning rates are chosen on the validation set. It needs the corpora tatoeba,
news and multi30k, and about an hour of one thread. Stopped, it goes on when started again.
"""

import random
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from annotated import TrainingConfig, fine_tuning, load_pretrained, train
from annotated.machinery.corpora.registry import load_pairs
from annotated.machinery.files import read_json, write_text
from annotated.machinery.scoring import likelihood
from benchmarks.logs import Writers, as_json, log_program

Pairs = list[tuple[str, str]]

AMOUNTS, SEEDS, TESTED = (500, 2000, 8000), (1, 2, 3), 500
BATCH: dict[str, Any] = {"src_tokens": 2000, "tgt_tokens": 2000, "precision": "bfloat16"}
SMALL = BATCH | {"N": 3, "d_model": 128, "d_ff": 512, "h": 4, "schedule": "cosine"}
GENERAL = SMALL | {
    "vocab_size": 6000, "dropout": 0.1, "factor": 0.56, "warmup": 400, "updates": 2200,
    "save_updates": 200, "log_updates": 100, "average": 2, "dev_sentences": 0,
}  # fmt: skip
SHORT: dict[str, Any] = {
    "warmup": 20, "updates": 120, "save_updates": 120, "log_updates": 20, "average": 1,
    "dev_sentences": 0,
}  # fmt: skip
SCRATCH = SMALL | SHORT | {"vocab_size": 2000, "dropout": 0.1}
TRIED = 2000  # pairs of the runs that choose a rate; what is mixed has the rate of what is not
RATES = {"fine-tuned": (0.05, 0.15, 0.5), "from scratch": (0.05, 0.15, 0.5)}


def unique(pairs: Iterable[tuple[str, str]], *others: Pairs) -> Pairs:
    """The first pair of each source that no other set contains."""
    seen = {source for other in others for source, _ in other}
    return [pair for pair in pairs if not (pair[0] in seen or seen.add(pair[0]))]


def corpus(name: str, split: str) -> Pairs:
    return list(zip(*load_pairs(name, split, "en", "fr", on_bad="drop"), strict=True))


def spread(pairs: Pairs, count: int) -> Pairs:
    """So many pairs, or all, at equal distances."""
    count = min(count, len(pairs))
    return [pairs[i * len(pairs) // count] for i in range(count)]


class Texts:
    """What is trained and tested on: captions, and general text; no set has a source of another."""

    def __init__(self) -> None:
        test, dev = corpus("multi30k", "test"), corpus("multi30k", "dev")
        self.test, self.dev = spread(unique(test), TESTED), spread(unique(dev, test), TESTED)
        self.captions = unique(corpus("multi30k", "train"), test, dev)
        captions = test + dev + self.captions
        everyday = corpus("tatoeba", "test")
        self.general_test = spread(unique(everyday, captions), TESTED)
        known = corpus("tatoeba", "dev") + corpus("news", "dev")
        self.general_dev = spread(unique(known, captions, everyday), TESTED)
        train = corpus("tatoeba", "train") + corpus("news", "train")
        self.general = unique(train, captions, everyday, known)

    def sample(self, arm: str, amount: int, seed: int) -> Pairs:
        """The training pairs of a run: the same captions in all arms."""
        chance = random.Random(seed)
        pairs = chance.sample(self.captions, max(AMOUNTS))[:amount]
        return pairs + (chance.sample(self.general, amount) if arm == "mixed" else [])


def write_texts(folder: Path, pairs: Pairs, dev: Pairs) -> str:
    """Write a folder to train on, and return its name for `--data`."""
    for split, lines in ("train", pairs), ("dev", dev):
        for lang, side in zip(("en", "fr"), zip(*lines, strict=True), strict=True):
            write_text(folder / f"{split}.{lang}", "".join(f"{line}\n" for line in side))
    return f"{folder}-en-fr"


def once(config: TrainingConfig) -> Path:
    """Train a run, or what is left of it: its folder."""
    folder = Path(config.out)
    if not (folder / "model.safetensors").exists():
        train(config, resume=True)
    return folder


def loss(folder: Path, pairs: Pairs) -> float:
    """Nats per piece of the references."""
    found = likelihood(load_pretrained(folder), *(list(side) for side in zip(*pairs, strict=True)))
    return found.nats / found.pieces


def measure(folder: Path, about: dict[str, Any], tests: dict[str, Pairs]) -> dict[str, Any]:
    """Scores and translations of a run on each test, read from its folder if they are there."""
    path = folder / "scores.json"
    if not path.exists():
        row, translator = dict(about), load_pretrained(folder)
        for name, pairs in tests.items():
            sources, references = (list(side) for side in zip(*pairs, strict=True))
            found = row[name] = translator.translate(sources)
            for metric, score in (("bleu", BLEU()), ("chrf", CHRF())):
                row[f"{name}_{metric}"] = round(score.corpus_score(found, [references]).score, 2)
            row[f"{name}_loss"] = round(loss(folder, pairs), 4)
        write_text(path, as_json(row))
    return read_json(path, "scores")


def compare(rows: list[dict[str, Any]], tests: dict[str, Pairs]) -> None:
    """Replace translations by the p-value of the difference in BLEU from the first row.

    The paired bootstrap resamples sentences, so that it knows the chance in the choice of the test
    and not that of the training.
    """
    for name, pairs in tests.items():
        first, references = rows[0][name], [target for _, target in pairs]
        for row in rows[::-1]:
            systems = [("first", first), ("other", row.pop(name))]
            test = PairedTest(systems, {"BLEU": BLEU()}, [references], "bs", n_samples=1000)
            row[f"{name}_p"] = None if row is rows[0] else float(test()[1]["BLEU"][1].p_value)


def fine_tune(runs: Path) -> pd.DataFrame:
    """The general model, one short run per rate of an arm, and all runs at the best rates."""
    torch.set_num_threads(1)
    texts, runs = Texts(), runs / "fine-tuning"
    tests = {"captions": texts.test, "general": texts.general_test}
    general = runs / "general"
    data = write_texts(runs / "texts" / "general", texts.general, texts.general_dev)
    once(TrainingConfig(data=data, out=str(general), **GENERAL))
    rows = [measure(general, {"arm": "general", "pairs": 0, "seed": 1}, tests)]

    def run(arm: str, amount: int, seed: int, factor: float) -> Path:
        name = f"{arm}-{amount}-{seed}".replace(" ", "-")
        data = write_texts(runs / "texts" / name, texts.sample(arm, amount, seed), texts.dev)
        one = {"data": data, "out": f"{runs / name}-{factor}", "seed": seed, "factor": factor}
        if arm == "from scratch":
            return once(TrainingConfig(**SCRATCH, **one))
        return once(fine_tuning(general, **BATCH, **SHORT, **one))

    chosen: dict[str, float] = {}
    for arm, rates in RATES.items():
        tried = {rate: loss(run(arm, TRIED, SEEDS[0], rate), texts.dev) for rate in rates}
        chosen[arm] = min(tried, key=tried.__getitem__)
    chosen["mixed"] = chosen["fine-tuned"]
    for seed, amount, arm in product(SEEDS, AMOUNTS, chosen):
        folder = run(arm, amount, seed, chosen[arm])
        about = {"arm": arm, "pairs": amount, "seed": seed, "factor": chosen[arm]}
        rows.append(measure(folder, about, tests))
    compare(rows, tests)
    return pd.DataFrame(rows)


WRITERS: Writers = {"fine-tuning.csv": fine_tune}
main = log_program("fine_tuning", __doc__, WRITERS)

if __name__ == "__main__":
    main()
