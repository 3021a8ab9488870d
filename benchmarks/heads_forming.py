"""How concentrated heads become while they learn: `python -m benchmarks.heads_forming --help`.

Writes the logs of "When heads take shape". Sentences are the first 250 of a validation set.

heads-forming.csv: the mean largest weight of each layer's heads, at every second checkpoint of
three runs on captions, and of two models of the package on several texts.
heads-forming-words.csv: for each head of a last checkpoint, the kind of position and the word that
receive most of its attention, and their shares.
heads-forming-without.csv: the loss without each layer's self-attention; layer 0 is the whole model.
"""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import spacy
import torch
from spacy.tokens import Doc
from torch import zeros_like

from annotated import load_pretrained
from annotated.machinery.corpora.registry import load_pairs
from annotated.machinery.heads.observe import attention_profile, word_attention
from annotated.machinery.heads.study import reinitialized
from annotated.machinery.progress import progress_bar
from annotated.machinery.recording import touch
from annotated.machinery.runs.checkpoints import average_checkpoints, list_checkpoints
from annotated.machinery.scoring import likelihood
from annotated.machinery.translator import Translator
from benchmarks.logs import Writers, log_program

EPILOG = """\
runs/tokenized holds the captions of Multi30k lower-cased and tokenized, as the corpus offers them
(train.lc.norm.tok.en.gz and so on), under names such as train.en and dev.de; the corpora multi30k,
news and laws are read too. A run keeps as many checkpoints as it averages, so here all of them:

shape="--vocab-size 10000 --d-ff 256 --src-tokens 4096 --tgt-tokens 4096 --precision float32"
often="--save-updates 105 --average 80"
for tgt in de fr; do
  annotated train --data runs/tokenized-en-$tgt $shape $often --factor 2.53 --updates 8000 \\
    --out runs/captions-$tgt
done
annotated train --data runs/tokenized-en-fr $shape $often --factor 1 --updates 2520 \\
  --out runs/captions-fr-slow
"""
RUNS = {"captions to German": "captions-de", "captions to French": "captions-fr"}
SLOW = {"captions to French, the paper's rate": "captions-fr-slow"}
SHIPPED = [
    ("multi30k-en-fr", "multi30k", "captions"),
    ("general-en-fr", "multi30k", "captions"),
    ("general-en-fr", "news", "news"),
    ("general-en-fr", "laws", "laws"),
]  # model, corpus, and its name in the log
NLP = spacy.blank("en")


def first_pairs(corpus: str | Path, tgt: str = "fr") -> list[list[str]]:
    return [side[:250] for side in load_pairs(str(corpus), "dev", "en", tgt)]


def read(lines: list[str]) -> list[Doc]:
    """Sentences whose punctuation is known."""
    docs = [NLP(line) for line in lines]
    for doc in docs:
        for token in doc:
            token.pos_ = "PUNCT" if token.is_punct else "X"
    return docs


def at_checkpoint(translator: Translator, path: Path) -> Translator:
    """The translator with the weights of a checkpoint."""
    weights = average_checkpoints([path])
    translator.model.load_state_dict(weights, strict=False)  # tied weights have one name
    return translator


def finished(runs: Path) -> dict[str, Translator]:
    """The last checkpoints of the long runs, and the model of the figures."""
    found = {
        model: at_checkpoint(load_pretrained(runs / run), list_checkpoints(runs / run)[-1])
        for model, run in RUNS.items()
    }
    return found | {"general-en-fr": load_pretrained("general-en-fr")}


def sharpness(translator: Translator, docs: list[Doc], **about: Any) -> pd.DataFrame:
    """The mean largest weight of each layer's heads."""
    profile = attention_profile(docs, [word_attention(translator, doc) for doc in docs])
    return profile["largest"].groupby("layer").mean().reset_index().assign(**about)


def forming(runs: Path) -> pd.DataFrame:
    docs, rows = read(first_pairs(runs / "tokenized", "de")[0]), []
    for model, run in (RUNS | SLOW).items():
        translator, about = load_pretrained(runs / run), {"model": model, "text": "captions"}
        start = Translator(reinitialized(translator.model), translator.tokenizer)
        known = {"update": 0, "millions": 0.0, "rate": math.nan, "dev_loss": math.nan}
        rows.append(sharpness(start, docs, **known, **about))
        log = pd.read_csv(runs / run / "log.csv").set_index("update")
        for path in progress_bar(list_checkpoints(runs / run)[1::2], unit=" checkpoints"):
            update = int(path.stem.split("-")[1])
            at = log.loc[update]
            known = {"update": update, "millions": at.target_tokens / 1e6}
            known |= {"rate": at.learning_rate, "dev_loss": at.dev_loss}
            rows.append(sharpness(at_checkpoint(translator, path), docs, **known, **about))
    for model, corpus, text in SHIPPED:
        docs = read(first_pairs(corpus)[0])
        words = sum(map(len, docs)) / len(docs)
        rows.append(sharpness(load_pretrained(model), docs, model=model, text=text, words=words))
    return pd.concat(rows).round(6)


def words(runs: Path) -> pd.DataFrame:
    docs, rows = read(first_pairs(runs / "tokenized", "de")[0]), []
    for model, translator in finished(runs).items():
        weights = [word_attention(translator, doc) for doc in docs]
        profile = attention_profile(docs, weights)
        seen = torch.cat([w.sum(dim=-2).flatten(0, 1)[:, :-1] for w in weights], dim=1)
        shares = pd.DataFrame(seen.T.numpy(), columns=profile.index)  # without the end
        shares = shares.groupby([token.lower_ for doc in docs for token in doc]).sum()
        shares /= sum(map(len, docs))
        places = profile.drop(columns=["elsewhere", "largest"])
        rows.append(profile[["largest"]].assign(
            place=places.idxmax(axis=1), there=places.max(axis=1),
            word=shares.idxmax(), of_it=shares.max(), model=model,
        ).reset_index())  # fmt: skip
    return pd.concat(rows).round(4)


def without(runs: Path) -> pd.DataFrame:
    rows = []
    for model, translator in finished(runs).items():
        run = RUNS.get(model, "")
        pairs = first_pairs(runs / "tokenized", run[-2:]) if run else first_pairs("multi30k")
        largest = sharpness(translator, read(pairs[0]))["largest"]
        rows.append((model, 0, math.log(likelihood(translator, *pairs).perplexity), None))
        for number in range(len(largest)):
            with touch(translator.model, {f"encoder.layers.{number}.self_attn": zeros_like}):
                loss = math.log(likelihood(translator, *pairs).perplexity)
            rows.append((model, number + 1, loss, largest[number]))
    return pd.DataFrame(rows, columns=["model", "layer", "loss", "largest"]).round(6)


WRITERS: Writers = {
    "heads-forming.csv": forming,
    "heads-forming-words.csv": words,
    "heads-forming-without.csv": without,
}
main = log_program("heads_forming", __doc__, WRITERS, EPILOG)

if __name__ == "__main__":
    main()
