"""The contribution of each head of a translator: the loss with its mean output in its place.

`python -m benchmarks.switches MODEL SOURCE TARGET --out FILE` reads two files of 1,000 lines. A
head is switched off when its output at every position is its mean over all positions of other
sentences, lines 601 to 800, which the log contains as `means`. `losses` are in nats per piece of
the first 400 target sentences: without each head, without all heads of each layer and without each
kind of attention ("encoder", "cross", "decoder"; "" for the whole model; layers and heads count
from 1, 0 stands for all).

`order` switches off one head after the other, each the one whose loss, on lines 401 to 500, rises
least among the six candidates that rose least when they were last tried. Its losses are those on
lines 501 to 600, which chose nothing; `random` has them for five random orders, after every fourth
head. `bleu` has the BLEU of greedy translations of the same lines, after every eighth head up to
the 32nd.
"""

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
from sacrebleu.metrics import BLEU
from torch import Tensor

from annotated import load_pretrained, switch_off, touch
from annotated.data import START, encode_source
from annotated.machinery.corpora.texts import read_lines
from annotated.machinery.progress import progress_bar
from annotated.machinery.scoring import likelihood
from annotated.machinery.translator import Translator
from benchmarks.logs import as_json, files_parser, write_log

KINDS = {
    "encoder": "encoder.layers.{}.self_attn",
    "cross": "decoder.layers.{}.src_attn",
    "decoder": "decoder.layers.{}.self_attn",
}
CANDIDATES, ORDERS, STRIDE = 6, 5, 4


class Switch(NamedTuple):
    """A head to switch off; head 0 for all of a layer, layer 0 for all of a kind."""

    kind: str
    layer: int
    head: int


def heads_of(model: torch.nn.Module) -> list[Switch]:
    modules = dict(model.named_modules())
    layers = [(kind, n, modules.get(pattern.format(n)))
              for kind, pattern in KINDS.items() for n in range(len(modules))]  # fmt: skip
    return [Switch(kind, n + 1, head + 1) for kind, n, layer in layers
            for head in range(getattr(layer, "h", 0))]  # fmt: skip


def mean_outputs(translator: Translator, texts: list[str]) -> dict[str, Tensor]:
    """The mean output of the heads of each attention over all positions of other sentences."""
    names = [n for n, module in translator.model.named_modules() if hasattr(module, "w_o")]
    kept: dict[str, list[Tensor]] = {name: [] for name in names}
    keep = {f"{name}.w_o:in": lambda x, name=name: kept[name].append(x[0]) for name in names}
    for text, found in zip(texts, translator.translate(texts, beam=1), strict=True):
        src = torch.tensor(encode_source(translator.tokenizer, [text]))
        tgt = torch.tensor([[START, *translator.tokenizer.encode(found).ids]])
        with torch.no_grad(), touch(translator.model, keep):
            translator.model(src, tgt)
    return {name: torch.cat(rows).mean(dim=0) for name, rows in kept.items()}


class Board:
    """A translator with means for its heads and pairs of sentences to lose on."""

    def __init__(self, translator: Translator, pairs: tuple[list[str], list[str]]) -> None:
        self.translator, self.pairs = translator, pairs
        self.heads = heads_of(translator.model)
        means = mean_outputs(translator, pairs[0][600:800])
        self.means = {name: mean.round(decimals=4) for name, mean in means.items()}

    def off(self, heads: list[Switch]) -> AbstractContextManager[None]:
        by_layer: dict[str, list[int]] = {}
        for kind, layer, head in heads:
            by_layer.setdefault(KINDS[kind].format(layer - 1), []).append(head - 1)
        return switch_off(self.translator.model, by_layer, self.means)

    def loss(self, off: list[Switch], start: int, end: int) -> float:
        """In nats per piece, of the pairs from `start` to `end`."""
        with self.off(off):
            found = likelihood(self.translator, *(side[start:end] for side in self.pairs))
        return round(found.nats / found.pieces, 4)

    def losses(self) -> dict[Switch, float]:
        sets: dict[Switch, list[Switch]] = {Switch("", 0, 0): []}
        for one in self.heads:
            for switch in (one._replace(layer=0, head=0), one._replace(head=0), one):
                sets.setdefault(switch, []).append(one)
        steps = progress_bar(list(sets.items()), unit=" switches")
        return {switch: self.loss(off, 0, 400) for switch, off in steps}

    def greedy(self, costs: dict[Switch, float]) -> Iterator[Switch]:
        """The order in which the loss rises least. costs: of each head alone."""
        rises, off, now = dict(costs), list[Switch](), self.loss([], 400, 500)
        for _ in progress_bar(self.heads, unit=" heads"):
            tried = sorted(rises, key=rises.__getitem__)[:CANDIDATES]
            rises |= {one: self.loss([*off, one], 400, 500) - now for one in tried}
            best = min(tried, key=rises.__getitem__)
            now += rises.pop(best)
            off.append(best)
            yield best

    def held_out(self, order: list[Switch], stride: int = 1) -> list[float]:
        return [self.loss(order[:n], 500, 600) for n in range(0, len(order) + 1, stride)]

    def bleu(self, order: list[Switch]) -> list[float]:
        source, target = (side[500:600] for side in self.pairs)
        scores = list[float]()
        for n in range(0, 33, 8):
            with self.off(order[:n]):
                found = self.translator.translate(source, beam=1)
            scores.append(round(BLEU().corpus_score(found, [target]).score, 1))
        return scores


def main() -> None:
    options = files_parser("benchmarks.switches", __doc__, "target").parse_args()
    torch.set_num_threads(1)
    pairs = read_lines(options.source), read_lines(options.target)
    board = Board(load_pretrained(options.model), pairs)
    losses = board.losses()
    whole = losses[Switch("", 0, 0)]
    order = list(board.greedy({one: losses[one] - whole for one in board.heads}))
    first, *held_out = board.held_out(order)
    draw = random.Random(0)
    shuffled = [draw.sample(board.heads, len(board.heads)) for _ in range(ORDERS)]
    log = {
        "losses": [one._asdict() | {"loss": loss} for one, loss in losses.items()],
        "means": [{"layer": name, "mean": [round(x, 4) for x in mean.tolist()]}
                  for name, mean in board.means.items()],
        "held_out": first,
        "order": [one._asdict() | {"loss": loss}
                  for one, loss in zip(order, held_out, strict=True)],
        "random": [board.held_out(some, STRIDE) for some in shuffled],
        "bleu": {"order": board.bleu(order), "random": list(map(board.bleu, shuffled))},
    }  # fmt: skip
    write_log(options.out, as_json(log))


if __name__ == "__main__":
    main()
