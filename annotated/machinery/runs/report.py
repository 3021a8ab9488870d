"""What a run shows while it trains: scores and translations of development sentences, and a page.

The page log.html draws the log; it needs no network, and is written anew at each evaluation.
"""

import json
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from textwrap import shorten
from typing import NamedTuple

import numpy as np
from sacrebleu.metrics import BLEU, CHRF

from annotated.machinery.corpora.encoding import EncodedPairs
from annotated.machinery.corpora.languages import two_letters
from annotated.machinery.corpora.registry import known_corpora, parse_data
from annotated.machinery.corpora.tables import is_table
from annotated.machinery.corpora.vocabularies import read_tokenizers
from annotated.machinery.errors import InputError
from annotated.machinery.files import write_text
from annotated.machinery.formats.card import fill_card
from annotated.machinery.formats.hub import card_license, model_folder
from annotated.machinery.formats.own import loading_code, named_parts
from annotated.machinery.palette import PALETTE
from annotated.machinery.runs.checkpoints import read_config
from annotated.machinery.runs.fine_tuning import train_options
from annotated.machinery.runs.logs import RunLog, read_log
from annotated.machinery.scoring import WITHOUT_SPACES, bleu
from annotated.machinery.translator import Translator
from annotated.model import EncoderDecoder
from annotated.training import TrainingConfig


class Example(NamedTuple):
    """A development sentence with its reference and the model's translation."""

    source: str
    reference: str
    translation: str

    def __str__(self) -> str:
        source, _, translation = (shorten(text, 100, placeholder=" …") for text in self)
        return f"{source} → {translation}"


class DevelopmentSample:
    """Development sentences, spread over the set, that a run translates at each evaluation.

    Their text is that of their pieces, because a prepared corpus contains no other.

    Args: folder: with the vocabulary.   pairs: the development set.
    """

    def __init__(self, folder: Path, config: TrainingConfig, pairs: EncodedPairs) -> None:
        sizes = config.vocab_size, config.vocab_size
        self.tokenizer, self.target = read_tokenizers(folder, *sizes)
        short = np.flatnonzero((pairs.lengths <= config.max_pieces).all(axis=1))
        count = min(config.dev_sentences, len(short))
        some = [pairs[i] for i in short[np.linspace(0, len(short), count, False, dtype=int)]]
        self.sources = [self.tokenizer.decode(src) for src, _ in some]
        self.references = [(self.target or self.tokenizer).decode(tgt) for _, tgt in some]
        tokenize = WITHOUT_SPACES.get(two_letters(parse_data(config.data)[2]))
        self.metrics = {"dev_bleu": BLEU(tokenize=tokenize, force=True), "dev_chrf": CHRF()}

    def translate(self, model: EncoderDecoder) -> tuple[dict[str, float], list[Example]]:
        """BLEU and chrF of greedy translations, and three of these."""
        if not self.sources:
            return {}, []
        translator = Translator(model, self.tokenizer, self.target)
        found = translator.translate(self.sources, beam=1)
        scores = {
            name: round(metric.corpus_score(found, [self.references]).score, 2)
            for name, metric in self.metrics.items()
        }
        every = [*map(Example, self.sources, self.references, found)]
        return scores, every[:: -(-len(every) // 3)]


def write_page(config: TrainingConfig, examples: list[Example], ended: bool) -> None:
    """Write log.html in the folder of a run; until the run has ended, a browser reloads it."""
    folder = Path(config.out)
    rows = read_log(folder / "log.csv")
    data = json.dumps({"rows": rows, "examples": examples, "colors": PALETTE})
    title = f"{folder.name}: {int(rows[-1]['update']):,} of {config.updates:,} updates"
    page = Template((files(__package__) / "log.html").read_text(encoding="utf-8"))
    refresh = "" if ended else '<meta http-equiv="refresh" content="60">'
    data = data.replace("<", "\\u003c")  # so that no text ends the script
    text = page.safe_substitute(title=escape(title), refresh=refresh, data=data)
    write_text(folder / "log.html", text)


def _named_data(data: str) -> str:
    """The corpora of a run with their licenses; files of the user's by their names."""
    named = []
    for name in parse_data(data)[0].split("+"):
        columns = is_table(Path(name.rpartition(":")[0]))  # they have a comma too
        files = ", ".join(Path(x).name for x in ([name] if columns else name.split(",")))
        each = known_corpora().get(name)
        named += [f"{each.title} ({each.source}), license: {each.license}" if each else files]
    return "; ".join(named)


def _origin(name: str) -> dict[str, str]:
    """The model that a run continues, for the text of a card, and its license, for the metadata."""
    told = f"; from the weights of {Path(name).name if Path(name).exists() else name}"
    about, applies = dict[str, str](), ", whose license applies as well"
    with suppress(InputError):
        folder = model_folder(name)
        if about := card_license(folder):
            applies = f", license: {next(iter(about.values()))}"
        else:
            applies = f", trained on {_named_data(read_config(folder).data)}"
    kept = {k: v for k, v in about.items() if k != "license_link" or "://" in v}  # not a file's
    lines = (f"{key}: {json.dumps(value)}\n" for key, value in kept.items())
    return {"origin": told + applies, "license": "".join(lines)}


def write_card(config: TrainingConfig, size: int, averaged: int, parts: Mapping[str, str]) -> None:
    """Write README.md in the folder of a finished run, unless there is one of the user's own.

    Args:
        size: number of parameters.   averaged: number of checkpoints whose mean the model is.
        parts: names of those that are not the paper's.
    """
    folder = Path(config.out)
    path, logged = folder / "README.md", read_log(folder / "log.csv")
    if path.exists() and "Written by `annotated train`" not in path.read_text("utf-8", "replace"):
        return
    last = next((row for row in logged[::-1] if row["dev_loss"]), dict.fromkeys(RunLog.columns))
    _, src, tgt = parse_data(config.data)
    given, scores = named_parts(parts), ""
    if last.get("dev_bleu"):
        scores = f"; BLEU {last['dev_bleu']} and chrF {last['dev_chrf']} of greedy translations"
        signature = bleu([""], [""], tgt)["signature"]
        scores += f" of up to {config.dev_sentences} development sentences ({signature})"
    words = ["annotated", "train", *train_options(replace(config, minutes=0.0))]
    mean = f"the mean of the last {averaged} checkpoints" if averaged > 1 else "the last checkpoint"
    about = {"src": src, "tgt": tgt, "name": folder.name, "size": f"{size:,}", "mean": mean}
    own = f"; with parts of its own: {given}" * bool(parts)
    build = f" in Python, with a `build` for {given}; loading needs the same" * bool(parts)
    about |= {"own": own, "build": build, "loaded": loading_code(".", parts), "scores": scores}
    about |= {"corpora": _named_data(config.data), "command": shlex.join(words)}
    about |= _origin(config.from_) if config.from_ else {"origin": "", "license": ""}
    write_text(path, fill_card("run", asdict(config) | last | about))
