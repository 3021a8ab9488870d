"""BLEU under other settings, on captions: `python -m benchmarks.bleu_settings --help`.

Writes logs of "BLEU by hand" and of section 6.1.

multi30k-en-de-averages.csv: scores of the mean of a run's last checkpoints.
multi30k-en-de-search.csv.gz: for several beams and penalties, what BLEU counts in each output of
the German model: its words, those of the reference, and its matches of one to four words.
multi30k-lower.json: scores of models that learned from lower-cased captions.
multi30k-recipe.json: the same with the settings of Wu et al. (2021).
"""

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
from sacrebleu.metrics import BLEU

from annotated import load_pretrained
from annotated.machinery.corpora.registry import load_pairs
from annotated.machinery.progress import progress_bar
from annotated.machinery.runs.checkpoints import average_checkpoints, list_checkpoints
from annotated.machinery.scoring import BLEU_KINDS, evaluate, tokenize_for_bleu
from benchmarks.logs import Writers, log_program, write_captions

EPILOG = """\
runs/tokenized holds the captions of Multi30k lower-cased and tokenized, as the corpus offers them
(train.lc.norm.tok.en.gz and so on), under names such as train.en and dev.de. The runs:

python -m benchmarks.bleu_settings --texts
annotated train --data multi30k-en-de --precision bfloat16 --out runs/en-de
annotated train --data runs/lower-en-de --updates 38000 --precision bfloat16 --out runs/lower-de
annotated train --data runs/lower-en-fr --updates 28000 --precision bfloat16 --out runs/lower-fr
shape="--vocab-size 10000 --d-ff 256 --src-tokens 4096 --tgt-tokens 4096 --precision float32"
for tgt in de fr; do
  annotated train --data runs/tokenized-en-$tgt $shape --factor 2.53 --updates 8000 \\
    --save-updates 105 --out runs/theirs-$tgt
  annotated train --data runs/tokenized-en-$tgt $shape --from runs/theirs-$tgt --factor 0.235 \\
    --warmup 300 --schedule paper --updates 1260 --save-updates 63 --average 10 --seed 2 \\
    --out runs/on-$tgt
done
annotated train --data runs/lower-en-fr --from multi30k-en-fr --precision float32 \\
  --factor 0.1 --warmup 300 --schedule paper --updates 2000 --save-updates 60 --average 10 \\
  --seed 3 --out runs/shipped-on
"""
ALPHAS = 0.6, 1.0, 1.5, 2.0, 2.5
SEARCHES = [(1, 0), *product([2, 4, 8, 16], [0, 0.3, 0.6, 1, 1.5])]  # beam and alpha
THEIRS = {"theirs": "theirs", "theirs, and on": "on"}


def averages(runs: Path) -> pd.DataFrame:
    translator, rows = load_pretrained(runs / "en-de"), []
    for count in (1, 2, 5, 10):
        tensors = average_checkpoints(list_checkpoints(runs / "en-de")[-count:])
        translator.model.load_state_dict(tensors, strict=False)  # tied weights have one name
        found = evaluate(translator, "multi30k", "dev", "en", "de")[-2]  # chrF is last
        rows.append((count, found["perplexity"], found["accuracy"], found["score"]))
    return pd.DataFrame(rows, columns=["checkpoints", "perplexity", "accuracy", "BLEU"])


def search(runs: Path) -> pd.DataFrame:
    sources, references = load_pairs("multi30k", "dev", "en", "de")
    translator, rows = load_pretrained("multi30k-en-de"), []
    words = partial(tokenize_for_bleu, lang="de", kind="lower-tokenized")
    metric, gold = BLEU(tokenize="none", force=True), words(references)
    for beam, alpha in progress_bar(SEARCHES, unit=" searches"):
        outputs = words(translator.translate(sources, beam=beam, alpha=alpha))
        for output, reference in zip(outputs, gold, strict=True):
            found = metric.corpus_score([output], [[reference]])
            rows.append((beam, alpha, found.sys_len, found.ref_len, *found.counts))
    return pd.DataFrame(rows, columns=["beam", "alpha", "words", "reference", 1, 2, 3, 4])


_LENGTHS = "length_ratio", "brevity_penalty"  # are not in the log
Row = Callable[[str, float], dict[str, Any]]  # the scores on a split with a penalty


def scorer(run: Path, tgt: str) -> Row:
    translator, corpus = load_pretrained(run), str(run.parent / "lower")

    def row(split: str, alpha: float) -> dict[str, Any]:
        found = evaluate(translator, corpus, split, "en", tgt, alpha=alpha)[-2]  # chrF is last
        return {name: x for name, x in found.items() if name not in _LENGTHS}

    return row


def with_penalties(row: Row) -> list[dict[str, Any]]:
    """A row of dev for each penalty, and of test for 0.6 and the best of them."""
    tried = {alpha: row("dev", alpha) for alpha in ALPHAS}
    best = max(tried, key=lambda alpha: tried[alpha]["score"])
    return [*tried.values(), *(row("test", alpha) for alpha in sorted({0.6, best}))]


def lower(runs: Path) -> list[dict[str, Any]]:
    scorers = [scorer(runs / f"lower-{tgt}", tgt) for tgt in ("de", "fr")]
    return [row for each in scorers for row in with_penalties(each)]


def recipe(runs: Path) -> list[dict[str, Any]]:
    rows = []
    for tgt, run in product(("de", "fr"), THEIRS):
        translator = load_pretrained(runs / f"{THEIRS[run]}-{tgt}")

        def row(split, alpha, run=run, tgt=tgt, translator=translator):
            sources, references = load_pairs(str(runs / "tokenized"), split, "en", tgt)
            outputs = translator.translate(sources, beam=5, alpha=alpha)
            metric = BLEU(tokenize="none", force=True)
            return {
                "run": run, "pair": f"en-{tgt}", "split": split,
                "search": f"beam 5, alpha {alpha}",
                "score": metric.corpus_score(outputs, [references]).score,
                "signature": str(metric.get_signature()), "text": BLEU_KINDS["lower-tokenized"],
            }  # fmt: skip

        if run == "theirs":
            rows += [row("dev", alpha) for alpha in ALPHAS]
        else:
            rows += with_penalties(row)
    score = scorer(runs / "shipped-on", "fr")
    for split, alpha in [*product(["dev"], ALPHAS), ("test", 0.6), ("test", 1.0)]:
        found = score(split, alpha)
        rows.append({"run": "shipped, and on"} | {key: found[key] for key in [*rows[0]][1:]})
    return rows


def write_lowered(runs: Path) -> None:
    """Only write the folder lower of the runs, with lower-cased captions."""
    lowered = lambda lines: [line.lower() for line in lines]
    write_captions(runs / "lower", ("train", "dev", "test"), ("de", "fr"), lowered)


WRITERS: Writers = {
    "multi30k-en-de-averages.csv": averages,
    "multi30k-en-de-search.csv.gz": search,
    "multi30k-lower.json": lower,
    "multi30k-recipe.json": recipe,
}
main = log_program("bleu_settings", __doc__, WRITERS, EPILOG, texts=write_lowered)

if __name__ == "__main__":
    main()
