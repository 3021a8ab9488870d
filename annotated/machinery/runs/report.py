"""What a run shows while it trains: scores and translations of development sentences, and a page.

The page log.html draws the log in SVG. It is one file that needs no network and no program, and it
is written anew at each evaluation.
"""

from html import escape
from pathlib import Path
from textwrap import shorten
from typing import NamedTuple

import numpy as np
from sacrebleu.metrics import BLEU, CHRF

from annotated.machinery.corpora.encoding import EncodedPairs
from annotated.machinery.corpora.languages import two_letters
from annotated.machinery.corpora.registry import parse_data
from annotated.machinery.corpora.vocabularies import read_tokenizers
from annotated.machinery.files import write_text
from annotated.machinery.palette import PALETTE
from annotated.machinery.runs.logs import read_log
from annotated.machinery.scoring import WITHOUT_SPACES
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

    Args:
        folder: with the vocabulary.   pairs: the development set.
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


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">{refresh}<title>{title}</title><style>
body {{ font: 16px system-ui, sans-serif; max-width: 45em; margin: 2em auto; padding: 0 1em }}
svg, table {{ width: 100% }} table {{ table-layout: fixed; overflow-wrap: anywhere }}
polyline {{ fill: none; stroke-width: 2; stroke-linecap: round }}
td, th {{ padding: .3em .6em; text-align: left; vertical-align: top }}
</style></head><body><h1>{title}</h1>{body}</body></html>
"""
_CHARTS = {
    "Loss, nats per token": {"train_loss": "training (smoothed)", "dev_loss": "development"},
    "Translations of development sentences": {"dev_bleu": "BLEU", "dev_chrf": "chrF"},
    "Learning rate": {"learning_rate": "learning rate"},
}


def write_page(config: TrainingConfig, examples: list[Example], ended: bool) -> None:
    """Write log.html in the folder of a run; until the run has ended, a browser reloads it."""
    folder = Path(config.out)
    rows = read_log(folder / "log.csv")
    body = "".join(_chart(title, names, rows) for title, names in _CHARTS.items())
    if examples:
        table = [[f"<td>{escape(text)}" for text in example] for example in examples]
        heads = "".join(f"<th>{name}" for name in Example._fields)
        body += f"<table><tr>{heads}<tr>{'<tr>'.join(map(''.join, table))}</table>"
    refresh = "" if ended else '<meta http-equiv="refresh" content="60">'
    title = escape(f"{folder.name}: {int(rows[-1]['update']):,} of {config.updates:,} updates")
    write_text(folder / "log.html", _PAGE.format(title=title, refresh=refresh, body=body))


def _chart(title: str, names: dict[str, str], rows: list[dict[str, str]]) -> str:
    """Curves of columns of the log, which are empty in some rows, against the update."""
    curves = {
        label: [(int(row["update"]), float(row[name])) for row in rows if row.get(name)]
        for name, label in names.items()
    }
    points = [point for curve in curves.values() for point in curve]
    if not points:
        return ""
    right, (low, high) = max(x for x, _ in points), (f(y for _, y in points) for f in (min, max))
    place = lambda x, y: (
        f"{70 + 520 * x / right:.1f},{160 - 150 * (y - low) / (high - low or 1):.1f}"
    )
    legend, lines = [], []
    for color, (label, curve) in zip(PALETTE, curves.items(), strict=False):
        if curve:  # the first point twice, so that one alone is a dot
            drawn = " ".join(place(*point) for point in [curve[0], *curve])
            lines.append(f'<polyline stroke="{color}" points="{drawn}"/>')
            legend.append(f'<b style="color:{color}">{label} {curve[-1][1]:.4g}</b>')
    for x, y, end, text in (
        (65, 165, "end", f"{low:.3g}"), (65, 15, "end", f"{high:.3g}"), (70, 185, "start", "0"),
        (590, 185, "end", f"update {right:,}"),
    ):  # fmt: skip
        lines.append(f'<text x="{x}" y="{y}" text-anchor="{end}" font-size="13">{text}</text>')
    frame = '<path d="M70 10V160H590" fill="none" stroke="gray"/>'
    head = f"<h2>{title}</h2><p>{' · '.join(legend)}</p>"
    drawing = f'<svg viewBox="0 0 600 190" role="img" aria-label="{title}">{frame}'
    return f"{head}{drawing}{''.join(lines)}</svg>"
