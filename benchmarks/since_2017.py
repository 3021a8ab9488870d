"""Small runs of the paper's model and its successors: `python -m benchmarks.since_2017 --help`.

The stored runs of the page on what came after 2017. Each trains a decoder-only model of 1.3 million
weights, on running text (law, a manual, news) or on single sentences (captions, everyday English),
before which nothing helps. A run that the file of results contains is not repeated, so the program
can be stopped at any time and started again with the same command.
"""

import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from time import process_time
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from annotated.data import encode_source, learn_vocabulary
from annotated.language_model import FeedForward, GroupedAttention, LanguageModel
from annotated.language_model import LanguageModelConfig as Config
from annotated.machinery.blockwise_loss import linear_cross_entropy
from annotated.machinery.corpora.registry import load_pairs
from annotated.machinery.errors import InputError
from annotated.machinery.files import locked, write_text
from annotated.machinery.progress import progress_bar
from annotated.machinery.recording import record_attention, touch
from annotated.model import initialize
from annotated.optimizer import rate
from benchmarks.logs import make_parser, read_table

TOKENS = 1_500_000  # per run: nearly one epoch
SWEEP = 5  # factor by which runs that only choose a rate are shorter
# Rates at the end of the warmup; if the best is at an edge, another is added.
RATES = (5e-4, 1e-3, 2e-3, 4e-3)
LOWEST, HIGHEST = 1.25e-4, 0.512
SEEDS = 0, 1, 2
BATCH, LONGEST = 1024, 1024  # tokens per update, tokens of the longest test
LENGTHS = {"sentences": 64, "running": 256}  # tokens per row
HELD_OUT = 20 * LONGEST  # tokens of each corpus of running text, in dev and in test
WARMUP = 0.1  # share of the updates; afterwards the rate falls as in equation 3
POINTS = 15  # per curve
WINDOW = 32  # tokens
PART = 64  # tokens that a layer with a state reads at once
BALANCE = 0.01  # weight of the load-balancing loss of the experts (arXiv:2101.03961)

PAPER = Config(4096, N=4, d_model=128, d_ff=512, h=4, max_len=LONGEST)
SWIGLU = {"gated": True, "activation": "swish", "feed_forward_bias": False, "d_ff": 342}
STEPS: dict[str, dict[str, Any]] = {  # the diffs, in the order of the chapter
    "pre-norm": {"norm_first": True},
    "RMSNorm": {"norm": "rms"},
    "RoPE": {"positions": "rope"},
    "SwiGLU": SWIGLU,  # for equal numbers of weights: 3 · 342 is about 2 · 512
    "GQA 2 of 4": {"kv_heads": 2},
    "QK-norm": {"qk_norm": True},
    "untied": {"tie_embeddings": False},
    "sink logit": {"sink": True},
    "MoE 2 of 8": {"experts": 8},
    "Muon": {"muon": True},
}
OTHERS: dict[str, dict[str, Any]] = {  # neither in 2025 nor in the cumulative diffs
    "learned positions": {"positions": "learned"},
    "GQA 1 of 4": {"kv_heads": 1},
    "latent 64": {"latent": 64},
    "window 32, 2 of 4 layers": {"local": (0, 2)},
    "window 32, 4 of 4 layers": {"local": (0, 1, 2, 3)},
    "state, 3 of 4 layers": {"states": (0, 1, 2)},
    "state, 4 of 4 layers": {"states": (0, 1, 2, 3)},
    "convolution, 3 of 4 layers": {"mixed": (0, 1, 2)},
}
TODAY = {"norm_first": True, "norm": "rms", "positions": "rope", **SWIGLU}
TODAY |= {"kv_heads": 2, "qk_norm": True, "sink": True, "as_heavy": True}


@dataclass(frozen=True)
class Variant:
    """A model and the way it is trained.

    Args:
        name: in the results.   config: the model.
        experts: number of feed-forward layers of half the width, two of which each token uses.
        muon: use Muon instead of Adam for the matrices of the layers.
        latent: width of the vector from which keys and values are computed; 0 is none.
        local: the layers, from 0, whose queries see no key that is WINDOW or more tokens away.
        states: the layers, from 0, with a state instead of attention.
        mixed: those with attention after the convolution of such layers, as their control.
    """

    name: str
    config: Config
    experts: int = 0
    muon: bool = False
    latent: int = 0
    local: tuple[int, ...] = ()
    states: tuple[int, ...] = ()
    mixed: tuple[int, ...] = ()

    def model(self) -> LanguageModel:
        model = LanguageModel(self.config)
        for number, layer in enumerate(model.layers):
            if self.experts:
                layer.feed_forward = Experts(self.config, self.experts)
            if self.latent:
                layer.self_attn = LatentAttention(self.config, self.latent)
            if number in self.local:
                layer.self_attn = LocalAttention(self.config)
            if number in self.states:
                layer.self_attn = GatedDelta(self.config)
            if number in self.mixed:
                layer.self_attn = MixedAttention(self.config)
        if self.experts or self.latent or self.local or self.states or self.mixed:
            initialize(model)
        return model


def widened(config: Config) -> Config:
    """The configuration with the d_ff that yields as many weights as the paper's model has."""
    each = count(replace(config, d_ff=config.d_ff + 1)) - count(config)
    return replace(config, d_ff=config.d_ff + round((count(PAPER) - count(config)) / each))


def count(config: Config) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in LanguageModel(config).parameters())


def cache_bytes(kind: Variant, length: int) -> int:
    """Bytes of cache per token in single precision, in a text of `length` tokens."""
    c = kind.config
    each = kind.latent or 2 * (c.kv_heads or c.h) * c.head_width
    tokens = (c.N - len(kind.states)) * length - len(kind.local) * max(0, length - WINDOW)
    states = len(kind.states) * c.h * c.head_width**2
    read = len(kind.states + kind.mixed) * 3 * 3 * c.d_model  # by the convolutions
    return 4 * (each * tokens + states + read) // length


def variants() -> dict[str, Variant]:
    """All variants, the most informative first: 2017 and today, single diffs, cumulative diffs."""
    found = {"2017": {}, "2025": TODAY | {"muon": True}, "2025, Adam": TODAY} | STEPS
    found |= OTHERS
    together: dict[str, Any] = {}
    for name, changes in STEPS.items():
        together = together | changes
        if name != "pre-norm":  # already included as a single diff
            found[f"+ {name}"] = together
    return {name: variant(name, **changes) for name, changes in found.items()}


def variant(name: str, as_heavy: bool = False, **changes: Any) -> Variant:
    keys = "experts", "muon", "latent", "local", "states", "mixed"
    own = {key: changes.pop(key) for key in keys if key in changes}
    config = replace(PAPER, **changes)
    return Variant(name, widened(config) if as_heavy else config, **own)


class LatentAttention(GroupedAttention):
    """Keys and values are linear maps of one short vector, which is all that a cache has to keep.

    Source: arXiv:2405.04434, without its separate rotated part.
    """

    def __init__(self, c: Config, width: int) -> None:
        super().__init__(c)
        self.w_c = nn.Linear(c.d_model, width, bias=False)
        self.w_k, self.w_v = (nn.Linear(width, c.d_model, bias=False) for _ in "kv")

    def keys_values(self, key: Tensor, value: Tensor, start: int = 0) -> tuple[Tensor, Tensor]:
        latent = self.w_c(key)  # (batch, len, width)
        return super().keys_values(latent, latent, start)


class LocalAttention(GroupedAttention):
    """Each query sees the last WINDOW tokens, its own included (arXiv:2004.05150)."""

    def kernel(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        newest = key.size(2) - query.size(2)
        near = torch.ones(query.size(2), key.size(2), dtype=torch.bool).triu(newest - WINDOW + 1)
        return super().kernel(query, key, value, near if mask is None else mask & near)


class GatedDelta(nn.Module):
    """A state of constant size in place of keys and values: the gated delta rule.

    With a key and a query of length 1, a value, and alpha and beta between 0 and 1, the state S of
    a head (d_v, d_k) becomes alpha S (I - beta k kᵀ) + beta v kᵀ, and the output is the norm of
    S q. The positions of a part of the text are computed at once: what they add to S is a sum of
    u kᵀ that fade, and the u solve a triangular system.

    Source: arXiv:2412.06464, without its gate on the output.
    """

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.h = c.h
        self.w_q, self.w_k, self.w_v, self.w_o = (
            nn.Linear(c.d_model, c.d_model, bias=False) for _ in "qkvo"
        )
        self.w_alpha, self.w_beta = (nn.Linear(c.d_model, c.h, bias=False) for _ in range(2))
        # Mixes each component of queries, keys and values with that of the three tokens before.
        self.conv = nn.Conv1d(3 * c.d_model, 3 * c.d_model, 4, groups=3 * c.d_model, bias=False)
        # Heads that at first forget in about 8 to 400 tokens.
        self.keep = nn.Parameter(torch.linspace(2, 6, c.h))
        self.norm = nn.RMSNorm(c.head_width, 1e-5)
        nn.init.constant_(self.norm.weight, 1 / 4)  # the gain of W^V, which the norm undoes

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.h, -1)).transpose(1, 2)  # (batch, h, len, d_k)

    def mixed(self, x: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values, each (batch, h, len, d_k)."""
        mixed = torch.cat([self.w_q(x), self.w_k(x), self.w_v(x)], dim=-1).mT
        mixed = nn.functional.silu(self.conv(nn.functional.pad(mixed, (3, 0)))).mT
        return tuple(map(self.split, mixed.chunk(3, dim=-1)))

    def forward(self, x: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """(batch, len, d_model) to the same; key and value are x, and the mask is causal."""
        q, k, v = self.mixed(x)
        q, k = (nn.functional.normalize(x, dim=-1) for x in (q, k))
        beta = self.split(self.w_beta(x)).sigmoid()  # (batch, h, len, 1)
        fading = nn.functional.logsigmoid(self.split(self.w_alpha(x) + self.keep))
        state, outs = q.new_zeros(len(x), self.h, k.size(-1), k.size(-1)), []  # of Sᵀ
        parts = (part.split(PART, dim=2) for part in (q, k, v, beta, fading))
        for q, k, v, beta, fading in zip(*parts, strict=True):
            fading = fading.cumsum(dim=2)
            ahead = torch.ones(k.size(2), k.size(2), dtype=torch.bool).triu(1)
            # What is left at a position (row) of what an earlier one stored (column).
            left = (fading - fading.transpose(2, 3)).masked_fill(ahead, -math.inf).exp()
            old = fading.exp()  # what is left of the state before this part
            u = torch.linalg.solve_triangular(
                beta * left * (k @ k.transpose(2, 3)),  # only what is below the diagonal is used
                beta * (v - old * (k @ state)),
                upper=False,
                unitriangular=True,
            )
            outs.append(old * (q @ state) + (left * (q @ k.transpose(2, 3))) @ u)
            state = old[:, :, -1:] * state + k.transpose(2, 3) @ (left[:, :, -1:].mT * u)
        return self.w_o(self.norm(torch.cat(outs, dim=2)).transpose(1, 2).flatten(2))


class MixedAttention(GatedDelta):
    """Attention in place of the state, after the same convolution."""

    def __init__(self, c: Config) -> None:
        super().__init__(c)
        del self.w_alpha, self.w_beta, self.keep, self.norm

    def forward(self, x: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        out = nn.functional.scaled_dot_product_attention(*self.mixed(x), is_causal=True)
        return self.w_o(out.transpose(1, 2).flatten(2))


class Experts(nn.Module):
    """Feed-forward layers, two of which each token uses, weighted by a softmax over the two.

    Two layers of half the width cost as much as the one that they replace.

    Source: arXiv:2401.04088, with the load-balancing loss of arXiv:2101.03961.
    """

    def __init__(self, c: Config, count: int) -> None:
        super().__init__()
        half = replace(c, d_ff=c.d_ff // 2)
        self.experts = nn.ModuleList(FeedForward(half) for _ in range(count))
        self.router = nn.Linear(c.d_model, count, bias=False)
        self.balance: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """(batch, len, d_model) to (batch, len, d_model); stores the loss in `balance`."""
        flat = x.flatten(0, 1)  # (tokens, d_model)
        scores = self.router(flat)  # (tokens, experts)
        best, chosen = scores.topk(2)
        share, out = best.softmax(dim=-1), torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            token, place = (chosen == number).nonzero(as_tuple=True)
            weighted = expert(flat[token]) * share[token, place].unsqueeze(-1)
            out = out.index_add(0, token, weighted)
        used = torch.zeros_like(scores).scatter(1, chosen, 0.5).mean(dim=0)
        self.balance = len(self.experts) * (used * scores.softmax(dim=-1).mean(dim=0)).sum()
        return out.view_as(x)


SOURCES = {  # corpus, the language beside English, lines of train
    "sentences": (("multi30k", "de", None), ("tatoeba", "de", None)),
    "running": (("laws", "fr", 60_000), ("php", "fr", None), ("news", "de", None)),
}


@dataclass
class Text:
    """Ids of a text.

    Args:
        name: of its kind.   train: sentences, or whole corpora of running text.
        dev, test: (tokens,)
    """

    name: str
    train: list[Tensor]
    dev: Tensor
    test: Tensor

    @property
    def length(self) -> int:
        """Tokens per row."""
        return LENGTHS[self.name]

    @property
    def longest(self) -> int:
        """Tokens of the longest test."""
        return 4 * self.length

    @classmethod
    def load(cls, name: str) -> "Text":
        """Read a text; each sentence ends with the end symbol.

        Captions and everyday sentences are in random order, each once. Of running text, all
        sentences are in their order; dev and test are stretches at the ends of the corpora.
        """
        lines: dict[str, list[list[str]]] = {}  # of each corpus
        for split in ("train", "dev", "test"):
            lines[split] = [
                english(corpus, split, other)[: most if split == "train" else None]
                for corpus, other, most in SOURCES[name]
            ]
        if name == "sentences":
            lines = {split: [list(dict.fromkeys(chain(*parts)))] for split, parts in lines.items()}
            held_out = {*lines["dev"][0], *lines["test"][0]}
            lines["train"] = [[line for line in lines["train"][0] if line not in held_out]]
        tokenizer = learn_vocabulary("bpe", list(chain(*lines["train"])), PAPER.vocab)
        train, dev, test = (
            [[torch.tensor(row) for row in encode_source(tokenizer, part)] for part in parts]
            for parts in lines.values()
        )
        if name == "sentences":
            return cls(name, train[0], shuffled(dev[0]), shuffled(test[0]))
        held = (torch.cat([torch.cat(x)[: HELD_OUT + 1] for x in parts]) for parts in (dev, test))
        return cls(name, [torch.cat(part) for part in train], *held)

    def batches(self, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Ids and the ids that follow them, each (rows, length), in an order set by the seed."""
        random, rest = torch.Generator().manual_seed(seed), torch.zeros(0, dtype=torch.long)
        length = self.length
        while self.name == "running":  # rows of one corpus each, in random order
            rows = torch.cat([part.unfold(0, length + 1, length) for part in self.train])
            for chosen in torch.randperm(len(rows), generator=random).split(BATCH // length):
                if len(chosen) == BATCH // length:
                    yield rows[chosen, :-1], rows[chosen, 1:]
        while True:
            stream = torch.cat([rest, shuffled(self.train, random)])
            whole = (len(stream) - 1) // BATCH
            for start in range(0, whole * BATCH, BATCH):
                part = stream[start : start + BATCH + 1]
                yield part[:-1].view(-1, length), part[1:].view(-1, length)
            rest = stream[whole * BATCH :]


def english(corpus: str, split: str, other: str) -> list[str]:
    """The lines of a split; dev and test of the news are the halves of newstest2013."""
    half = corpus == "news" and split != "train"
    lines = load_pairs(corpus, "dev" if half else split, "en", other)[0]
    return lines[slice(1500) if split == "dev" else slice(1500, None)] if half else lines


def shuffled(sentences: list[Tensor], random: torch.Generator | None = None) -> Tensor:
    """All sentences in one row, in random order, or in a fixed order without `random`."""
    random = random or torch.Generator().manual_seed(0)
    return torch.cat([sentences[i] for i in torch.randperm(len(sentences), generator=random)])


def optimizers(model: LanguageModel, muon: bool) -> list[torch.optim.Optimizer]:
    """Adam with the paper's constants; with `muon`, Muon optimizes the layers' matrices."""
    parts: tuple[list[Tensor], list[Tensor]] = [], []
    for name, p in model.named_parameters():
        is_matrix = name.startswith("layers") and p.dim() == 2 and "router" not in name
        parts[muon and is_matrix].append(p)
    others, matrices = parts
    adam = torch.optim.Adam(others, betas=(0.9, 0.98), eps=1e-9, fused=True)
    if not muon:
        return [adam]
    # Updates as large as Adam's, so that the same rates can be compared.
    options = {"weight_decay": 0.0, "adjust_lr_fn": "match_rms_adamw"}
    return [adam, torch.optim.Muon(matrices, **options)]


def train(
    kind: Variant, text: Text, seed: int, peak: float, tokens: int, points: int, label: str
) -> tuple[LanguageModel, dict[str, Any]]:
    """Train a model.

    Args:
        peak: the learning rate at the end of the warmup.   tokens: number to predict.
        points: number of points of the curve.

    Returns: the model, its curve and its speed; the curve ends where a loss is not finite.
    """
    torch.manual_seed(seed)
    model = kind.model().train()
    opts, updates = optimizers(model, kind.muon), math.ceil(tokens / BATCH)
    warmup, d_model = max(1, round(WARMUP * updates)), kind.config.d_model
    factor = peak * math.sqrt(d_model * warmup)  # so that the largest rate is `peak`
    marks = {round(updates * point / points) for point in range(1, points + 1)}
    curve, spent = [], 0.0
    bar = progress_bar(total=updates, desc=label, unit="update")
    for step, (ids, following) in zip(range(1, updates + 1), text.batches(seed), strict=False):
        start = process_time()
        x, weight = model.decode(ids), model.generator.proj.weight
        loss = linear_cross_entropy(x, weight, following, -1) / ids.numel()
        balance = sum(m.balance for m in model.modules() if isinstance(m, Experts))
        (loss + BALANCE * balance).backward()
        for optimizer in opts:
            for group in optimizer.param_groups:
                group["lr"] = rate(step, d_model, factor, warmup)
            optimizer.step()
            optimizer.zero_grad()
        spent += process_time() - start
        bar.update()
        if step in marks:
            heard = losses(model, text.dev[: 8 * 1024 + 1], text.length, text.longest).mean().item()
            curve.append(f"{step * BATCH}:{heard:.4f}")
            bar.set_postfix(loss=f"{heard:.3f}", refresh=False)
        if not loss.isfinite():
            break
    bar.close()
    speed = round(bar.n * BATCH / spent)
    return model.eval(), {"curve": " ".join(curve), "tokens_per_cpu_second": speed}


@torch.no_grad()
def losses(model: LanguageModel, ids: Tensor, length: int, longest: int = LONGEST) -> Tensor:
    """Loss in nats per token at each position (length,), on a text divided into rows.

    The text is truncated to a multiple of the longest, so that all lengths use the same tokens.
    """
    whole = (len(ids) - 1) // longest * longest
    rows = ids[:whole].view(-1, length), ids[1 : whole + 1].view(-1, length)
    parts = [
        nn.functional.cross_entropy(model(x).transpose(1, 2), y, reduction="none")
        for x, y in zip(*(part.split(4096 // length) for part in rows), strict=True)
    ]
    return torch.cat(parts).mean(dim=0)


@torch.no_grad()
def looks(model: LanguageModel, ids: Tensor) -> dict[str, str]:
    """The attention and the vector lengths of a model, layer by layer from the input.

    Returns: the mean weight that later queries give to position 0, the same for the head with
        the largest, the share of sinks, and the mean lengths of a layer's output at position 0
        and elsewhere.
    """
    norms: list[Tensor] = []
    layers = [f"layers.{n}" for n in range(len(model.layers))]
    keep = lambda x: norms.append(x.norm(dim=-1))
    with touch(model, dict.fromkeys(layers, keep)), record_attention(model) as seen:
        model(ids)
    weights = list(seen.values())
    first = [w[:, :, 1:, 0].mean(dim=(0, 2)) for w in weights]  # (h,) each
    return {
        "first_weight": numbers(w.mean() for w in first),
        "first_weight_most": numbers(w.max() for w in first),
        "sink_share": numbers(1 - w[:, :, 1:].sum(dim=-1).mean() for w in weights),
        "first_norm": numbers(n[:, 0].mean() for n in norms),
        "other_norm": numbers(n[:, 1:].mean() for n in norms),
    }


def numbers(values: Iterable[Tensor]) -> str:
    return " ".join(f"{value.item():.4f}" for value in values)


def measure(kind: Variant, model: LanguageModel, text: Text) -> dict[str, Any]:
    """The measurements of a trained model, in addition to its loss on the development set."""
    found: dict[str, Any] = {}
    lengths = [length for length in (16, 64, 128, 256, 512, 1024) if length <= text.longest]
    for length in lengths:
        by_position = losses(model, text.test, length, text.longest)
        found[f"test_{length}"] = round(by_position.mean().item(), 4)
    found["test_by_position"] = numbers(part.mean() for part in by_position.split(16))
    for factor in (2, 4, 8, 16) if kind.config.positions == "rope" else ():
        slower = replace(kind.config, theta=kind.config.theta * factor)  # with the same weights
        longer = replace(kind, config=slower).model().eval()
        longer.load_state_dict(model.state_dict())
        for length in lengths[-3:]:
            loss = losses(longer, text.test, length, text.longest).mean().item()
            found[f"test_{length}_theta_{factor}"] = round(loss, 4)
    return found | looks(model, text.dev[: BATCH * 4].view(-1, text.length))


KEY = ["text", "stage", "variant", "d_model", "seed", "rate", "tokens"]


@dataclass
class Queue:
    """All runs in their order, and the function that makes them.

    Args:
        text: the data.   path: the file of results, with a line per completed run.
        tokens: of a full run.

    Raises: FileError if the file is not such a table.
    """

    text: Text
    path: Path
    tokens: int

    def __post_init__(self) -> None:
        self.rows = read_table(self.path, KEY)

    def run(self, stage: str, kind: Variant, seed: int, peak: float, tokens: int) -> float:
        """Make a run unless the file contains it; returns its loss on the development set."""
        key = {"text": self.text.name, "stage": stage, "variant": kind.name}
        key |= {"d_model": kind.config.d_model, "seed": seed, "rate": peak, "tokens": tokens}
        for row in self.rows:
            if key.items() <= row.items():
                return row["dev_loss"]
        label = f"{kind.name}, {stage}, d_model {kind.config.d_model}, seed {seed}, rate {peak:g}"
        points = 0 if stage == "rates" else POINTS
        model, made = train(kind, self.text, seed, peak, tokens, points, label)
        used = weights = sum(p.numel() for p in model.parameters())
        for layer in model.layers if kind.experts else ():
            idle = layer.feed_forward.experts[2:]
            used -= sum(p.numel() for p in idle.parameters())
        loss = losses(model, self.text.dev, self.text.length, self.text.longest).mean().item()
        row = key | {
            "dev_loss": round(loss, 4) if math.isfinite(loss) else math.inf,
            "weights": weights,
            "weights_used": used,
            "d_ff": kind.config.d_ff,
            "cache_bytes": cache_bytes(kind, self.text.length),
            "operations": 6 * used * tokens,
        }
        row |= made | (measure(kind, model, self.text) if stage != "rates" else {})
        self.rows.append(row)
        write_text(self.path, pd.DataFrame(self.rows).to_csv(index=False))
        return row["dev_loss"]

    def best_rate(self, kind: Variant) -> float:
        """The rate with the lowest loss in shorter runs; rates are added while it is at an edge."""
        known, wanted = dict[float, float](), list(RATES)
        while wanted:
            for peak in wanted:
                known[peak] = self.run("rates", kind, 0, peak, self.tokens // SWEEP)
            best = min(known, key=lambda peak: known[peak])
            edges = {max(known): 2 * best, min(known): best / 2}
            wanted = [peak for peak in [edges.get(best, 0)] if LOWEST <= peak <= HIGHEST]
        return best

    def work(self, kinds: Iterable[Variant], seeds: Iterable[int]) -> None:
        """Each variant with its first seed, then the other seeds and other rates."""
        kinds = list(kinds)
        for seed in seeds:
            for kind in kinds:
                self.run("runs", kind, seed, self.best_rate(kind), self.tokens)
        for kind in kinds:  # checks that the rate from shorter runs is also the best for full runs
            if kind.name in ("2017", "pre-norm", "2025"):
                for peak in (self.best_rate(kind) / 2, self.best_rate(kind) * 2):
                    self.run("neighbors", kind, 0, peak, self.tokens)


def main(given: list[str] | None = None) -> None:
    parser = make_parser(
        "benchmarks.since_2017",
        __doc__,
        "For each variant, runs of a fifth of the length choose the learning rate; then the "
        "seeds follow.\nSet ANNOTATED_DATA to read the corpora from a folder; otherwise they are "
        "downloaded if they\ncan be. A first trial, which takes some minutes:\n\n"
        "  python -m benchmarks.since_2017 --only 2017 --tokens 50000 --seeds 0 --out runs/try.csv"
        "\n\nVariants: " + ", ".join(variants()),
    )
    add, names, numbers = parser.add_argument, list(variants()), {"type": int, "metavar": "N"}
    add("--out", type=Path, required=True, help="CSV file to which each run adds a line")
    told = "variants to train (default: all), such as RoPE '+ RoPE'"
    add("--only", nargs="+", choices=names, default=names, metavar="NAME", help=told)
    told = "laws, a manual and news, or captions and everyday sentences (%(default)s)"
    add("--text", choices=list(SOURCES), default="running", help=told)
    add("--seeds", nargs="+", **numbers, default=SEEDS, help="(0 1 2)")
    add("--tokens", **numbers, default=TOKENS, help="tokens per run (%(default)s)")
    add("--threads", **numbers, default=1, help="number of CPU threads (%(default)s)")
    options = parser.parse_args(given)
    if options.tokens < 10_000:
        parser.error(f"expected at least 10000 tokens; got {options.tokens}")
    torch.set_num_threads(options.threads)
    kinds = [variants()[name] for name in options.only]
    lock = options.out.with_name(f".{options.out.name}.lock")
    try:
        with locked(lock, f"another program writes {options.out}"):
            queue = Queue(Text.load(options.text), options.out, options.tokens)
            queue.work(kinds, options.seeds)
    except InputError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(f"stopped; the same command continues where {options.out} ends")


if __name__ == "__main__":
    main()
