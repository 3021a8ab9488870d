"""The Checks Behind the Ledger (chapters/checks.md).

Generated from the chapter's export cells by book/extract.py: edit it there.
"""

import html
import json
import math
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from itertools import islice, zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch
from urllib.parse import quote

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode
from tqdm import tqdm

from annotated.attention import (
    MultiHeadedAttention,
    fused_attention,
    masked_softmax,
    scaled_dot_product,
    subsequent_mask,
)
from annotated.cli import build_parser
from annotated.complexity import (
    BareSelfAttention,
    Convolution,
    Recurrent,
    RestrictedSelfAttention,
    layers_to_link,
    longest_chain,
    multiply_adds,
)
from annotated.data import (
    END,
    Batch,
    clean_pairs,
    corpus_file,
    corpus_parts,
    encode_source,
    encode_target,
    find_corpus,
    learn_vocabulary,
    part_lines,
    shipped,
    token_batches,
)
from annotated.decoding import Hypothesis, beam_search, load_pretrained
from annotated.embeddings import Embeddings, Generator
from annotated.evaluation import TEXTS, TFLOPS, likelihood, moses_tokenise, table_2, training_cost
from annotated.feed_forward import PositionwiseFeedForward
from annotated.files import write_tensors, write_text
from annotated.heads.study import head_tasks, significant
from annotated.model import TransformerConfig, build_model, initialise, make_model
from annotated.optimizer import paper_optimizer, rate
from annotated.parsing import Parser, table_4
from annotated.positional import LearnedPositionalEncoding, PositionalEncoding, sinusoids
from annotated.regularization import LabelSmoothing
from annotated.stacks import EncoderLayer, SublayerConnection
from annotated.training import average_checkpoints, model_config, preset
from annotated.variations import count_parameters, full_command, leads, row_config
from annotated.variations import rows as table_3
from annotated.visualization.weights import Attention, merge_words, read_attention

__all__ = [
    "CLAIMS",
    "KINDS",
    "MARKS",
    "VERDICTS",
    "Check",
    "Claim",
    "Evidence",
    "Unfinished",
    "as_html",
    "claim",
    "count_pairs",
    "decide",
    "ledger",
    "scoreboard",
]


KINDS = ("definition", "exact", "measured", "small-scale", "full-scale")
VERDICTS = ("holds", "holds at small scale", "not reproduced here", "differs", "open")


class Evidence(NamedTuple):
    """What a check found.

    Args:
        holds: whether the claim is true; None if that cannot be told here.
        numbers: the numbers that decide, in a few words.
    """

    holds: bool | None
    numbers: str


Check = Callable[[], tuple[bool | None, str]]


@dataclass(frozen=True)
class Claim:
    """An assertion of the paper that can be checked.

    Args:
        id: its short name.   section: where the paper makes it.
        kind: one of KINDS.   statement: what it says, in our words.
        where: page and anchor of the cell that shows it.
        check: finds the evidence; FileNotFoundError or Unfinished if a log cannot tell.
        command: what decides it at full scale.
    """

    id: str
    section: str
    kind: str
    statement: str
    where: str
    check: Check
    command: str = ""


CLAIMS: dict[str, Claim] = {}


def claim(
    id: str, section: str, kind: str, statement: str, where: str, command: str = ""
) -> Callable[[Check], Check]:
    """Enter the decorated function as the check of a claim; arguments as in `Claim`.

    Raises: ValueError for an id that is taken or a kind that is none.
    """
    if id in CLAIMS or kind not in KINDS:
        raise ValueError(
            f"expected a new id and a kind out of {', '.join(KINDS)}; got {id}, {kind}"
        )

    def enter(check: Check) -> Check:
        CLAIMS[id] = Claim(id, section, kind, statement, where, check, command)
        return check

    return enter


class Unfinished(Exception):
    """A log that cannot tell: it is empty, damaged, or lacks what a check looks for."""


def decide(claim: Claim) -> tuple[str, str]:
    """Run the check of a claim.

    Returns: one of VERDICTS, and the numbers that decide.

    Raises: whatever else goes wrong in the check.
    """
    try:
        holds, numbers = claim.check()
    except FileNotFoundError as error:
        holds, numbers = None, f"{Path(error.filename or str(error)).name} is not there yet"
    except Unfinished as error:
        holds, numbers = None, str(error)
    if holds is None:
        return "open", numbers
    if claim.kind == "small-scale":
        return "holds at small scale" if holds else "not reproduced here", numbers
    return "holds" if holds else "differs", numbers


def ledger(section: str = "", progress: bool = False) -> pd.DataFrame:
    """Run all checks, or those of a section ("3.2" has 3.2.1 in it), and tell the verdicts.

    Returns: a row for each claim: id, section, kind, statement, verdict, numbers, where, command,
        check (the name of the function that decides).
    """
    chosen = [c for c in CLAIMS.values() if f"{c.section}.".startswith(f"{section}.".lstrip("."))]
    rows: list[dict[str, Any]] = []
    for entry in tqdm(chosen, unit="claim", disable=not progress):
        verdict, numbers = decide(entry)
        found = {"verdict": verdict, "numbers": numbers, "check": entry.check.__name__}
        rows.append({**vars(entry), **found})
    columns = ["id", "section", "kind", "statement", "verdict", "numbers", "where", "command"]
    return pd.DataFrame(rows, columns=[*columns, "check"])


_OWN = Path("data/results")  # of the reader's folder


@contextmanager
def _log(name: str) -> Iterator[Any]:
    """A log in data/results/ for a block to look into: a table, or whatever a JSON file holds.

    Raises: FileNotFoundError if it is not there; Unfinished if it cannot be read, or if the block
        does not find what it looks for.
    """
    path = _OWN / name if (_OWN / name).exists() else shipped("results") / name
    try:
        csv = path.suffix == ".csv"
        yield pd.read_csv(path) if csv else json.loads(path.read_text(encoding="utf-8"))
    except (LookupError, AttributeError, TypeError, ValueError) as error:
        raise Unfinished(f"{name} is empty, damaged or not complete ({error})") from error


def _entry(rows: list[dict[str, Any]], **wanted: str) -> dict[str, Any]:
    """The first row of a log with these values; LookupError if there is none."""
    for row in rows:
        if wanted.items() <= row.items():
            return row
    raise LookupError(f"no row of {', '.join(wanted.values())}")


def _reproduced(name: str, text: str, expected: float, within: float = 0.3) -> Evidence:
    """Whether a full run scored what the paper did.

    Args:
        name: log of `annotated evaluate`.   text: the kind of BLEU.
        expected: the paper's score.   within: BLEU that a repetition may differ.

    Raises: FileNotFoundError if nobody has made the run yet; Unfinished if its log lacks the score.
    """
    with _log(name) as rows:
        score = float(_entry(rows, split="test", text=text)["score"])
    return Evidence(abs(score - expected) <= within, f"{score:.1f}, the paper {expected:.1f}")


@contextmanager
def _seeded(seed: int = 0) -> Iterator[None]:
    """Random numbers from a seed, within a block or a function; the caller's go on after it."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def _tiny(**options: Any) -> Any:
    """A model small enough for a hundred questions, in eval mode."""
    return make_model(20, 20, N=2, d_model=32, d_ff=64, h=4, **options).eval()


def _full_size(config: TransformerConfig) -> Any:
    """A model with shapes and no numbers: it takes no memory, however large it is."""
    with torch.device("meta"):
        return build_model(config)


def _gap(a: Tensor, b: Tensor) -> float:
    """Largest absolute difference of two tensors of one shape."""
    if a.shape != b.shape:
        raise ValueError(f"expected equal shapes; got {tuple(a.shape)} and {tuple(b.shape)}")
    return float((a - b).abs().max().item())


def _felt(output: Tensor, *inputs: Tensor) -> list[list[int]]:
    """Positions of each input (1, len, d) on which an output (d,) depends."""
    direction = torch.randn(output.shape)  # a plain sum would be constant behind a LayerNorm
    gradients = torch.autograd.grad(
        output @ direction, inputs, retain_graph=True, materialize_grads=True
    )
    return [gradient[0].any(dim=-1).nonzero().flatten().tolist() for gradient in gradients]


@claim(
    "abs-attention-only",
    "abstract",
    "exact",
    "Attention alone connects positions; no recurrence and no convolution takes part.",
    "2-background#nothing-else-mixes-positions",
)
@_seeded()
def _attention_alone_connects() -> tuple[bool, str]:
    model, x, memory = _tiny(), *torch.randn(2, 1, 10, 32).requires_grad_()
    foreign = (nn.RNNBase, nn.RNNCellBase, nn.modules.conv._ConvNd)
    found = [part for part in model.modules() if isinstance(part, foreign)]

    def at_place_4() -> list[list[int]]:
        encoded, decoded = model.encoder(x, None), model.decoder(x, memory, None, None)
        return _felt(encoded[0, 4], x) + _felt(decoded[0, 4], x, memory)

    connected = at_place_4()
    for part in model.modules():
        if isinstance(part, MultiHeadedAttention):
            part.register_forward_hook(lambda module, args, output: torch.zeros_like(output))
    alone = at_place_4()
    counts = ["{}, {}, {}".format(*map(len, places)) for places in (connected, alone)]
    holds = not found and connected == [list(range(10))] * 3 and alone == [[4], [4], []]
    return holds, f"inputs felt: {counts[0]} with attention, {counts[1]} without"


def _table_2_column(name: str) -> tuple[float, float, pd.Series]:
    """A column of Table 2: base, big, and the others that have a number there."""
    table = table_2().set_index("model")
    ours = table["kind"] == "Transformer"
    base, big = table.loc[ours, name]
    return base, big, table.loc[~ours, name].dropna()


_TRAIN = "torchrun --standalone --nproc-per-node gpu -m annotated train"


def _full_run(name: str) -> str:
    """The commands of a preset's training and of its scores."""
    return (
        f"{_TRAIN} --preset {name}\n"
        f"annotated evaluate runs/{name} --split test --out data/results/{name}.json"
    )


@claim(
    "abs-ende-bleu",
    "abstract",
    "full-scale",
    "The big model scores 28.4 BLEU from English to German on newstest2014.",
    "6-1-machine-translation#the-paper-s-own-measure",
    command=_full_run("big-en-de"),
)
def _german_is_reproduced() -> Evidence:
    _, big, _ = _table_2_column("BLEU EN-DE")
    return _reproduced("big-en-de.json", TEXTS["compound-split"], big)


@claim(
    "abs-ende-margin",
    "abstract",
    "exact",
    "28.4 is more than 2 BLEU above all earlier English-German systems, ensembles included.",
    "6-1-machine-translation#what-training-cost",
)
def _german_margin() -> tuple[bool, str]:
    _, big, others = _table_2_column("BLEU EN-DE")
    margin = big - others.max()
    return margin > 2, f"{big:.1f} - {others.max():.2f} = {margin:.2f} BLEU"


@claim(
    "abs-enfr-bleu",
    "abstract",
    "full-scale",
    "The big model scores 41.8 BLEU from English to French on newstest2014.",
    "6-1-machine-translation#the-paper-s-own-measure",
    command=_full_run("big-en-fr"),
)
def _french_is_reproduced() -> Evidence:
    _, big, _ = _table_2_column("BLEU EN-FR")
    return _reproduced("big-en-fr.json", TEXTS["tokenized"], big)


@claim(
    "abs-enfr-cost",
    "abstract",
    "exact",
    "The French model cost a small part, under a quarter, of what any earlier one cost.",
    "6-1-machine-translation#what-training-cost",
)
def _french_cost() -> tuple[bool, str]:
    _, big, others = _table_2_column("FLOPs EN-FR")
    shares = big / others
    return bool((shares < 0.25).all()), f"{shares.min():.2f} to {shares.max():.2f} of their cost"


@claim(
    "abs-parsing",
    "abstract",
    "small-scale",
    "The same model, unchanged, learns a different task: English constituency parsing.",
    "6-3-constituency-parsing#what-ours-reaches",
)
def _parser_beats_baselines() -> tuple[bool, str]:
    f1 = {"columns": "sentences", "values": "Bracketing FMeasure"}
    with _log("craft-parser-search.csv") as rows:
        free, held = (
            rows[rows["hold"] == hold].pivot(index="beam", **f1).loc[21] for hold in (False, True)
        )
    with _log("craft-parser-baselines.csv") as rows:
        others = rows.pivot(index="parser", **f1)
        ahead = free - others.max()  # the grammar manages short sentences alone
        if ahead.isna().any() or len(others) < 2:
            raise LookupError("a score has nothing to compare with")
    told = [f"{n} {s:.1f} ({which})" for which in others for n, s in others[which].dropna().items()]
    ours = [f"free {free[which]:.1f} ({which})" for which in others]
    return bool((ahead > 0).all()), f"F1: {', '.join(ours + told)}; held to trees {held['all']:.1f}"


@claim(
    "s1-sequential",
    "1",
    "exact",
    "A recurrent state needs all states before it; factorised matrices save work and no steps.",
    "1-introduction#the-loop-that-cannot-be-cut",
)
@_seeded()
def _recurrence_needs_each_state() -> tuple[bool, str]:
    layer: Any = Recurrent(16)
    x = torch.randn(1, 12, 16)
    states, late = layer(x), layer(x[:, 7:])  # the second has no states 0 to 6 to go on from
    error = ((late[0, 0] - states[0, 7]).norm() / states[0, 7].norm()).item()

    chain, work = longest_chain(states), multiply_adds(layer, 12, 16)
    layer.state = nn.Sequential(nn.Linear(16, 2, bias=False), nn.Linear(2, 16, bias=False))
    thin_chain, share = longest_chain(layer(x)), multiply_adds(layer, 12, 16) / work
    holds = error > 0.01 and share < 1 and thin_chain >= chain
    numbers = f"state 7 alone is off by {error:.0%}; "
    return holds, numbers + f"factorised: {share:.0%} of the work, chain {chain} to {thin_chain}"


class _ToItself(nn.Module):
    """Multi-head attention from a sequence (batch, n, d) to itself, as a layer among others."""

    def __init__(self, d: int, h: int = 1) -> None:
        super().__init__()
        self.attention = MultiHeadedAttention(h, d)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x)


@claim(
    "s1-parallel",
    "1",
    "exact",
    "The chain of operations that wait for each other grows with the length in a recurrent layer, "
    "and does not in self-attention.",
    "1-introduction#counting-the-chain",
)
@_seeded()
def _chains_of_both() -> tuple[bool, str]:
    recurrent, attention = (
        [longest_chain(layer(torch.randn(1, n, 16))) for n in (16, 32, 64)]
        for layer in (Recurrent(16), _ToItself(16))
    )
    growth = [recurrent[1] - recurrent[0], recurrent[2] - recurrent[1]]
    holds = len(set(attention)) == 1 and growth[1] == 2 * growth[0] > 0
    numbers = "from 16 to 64 tokens: recurrent {} to {}, attention {} to {}"
    return holds, numbers.format(*recurrent[::2], *attention[::2])


def _bytes_kept(layer: nn.Module, x: Tensor) -> int:
    """Bytes, weights apart, that stay in memory until the backward pass of a layer."""
    kept = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        layer(x)
    weights = {weight.untyped_storage().data_ptr() for weight in layer.parameters()}
    return sum(storage.nbytes() for place, storage in kept.items() if place not in weights)


@claim(
    "s1-memory",
    "1",
    "exact",
    "Memory limits batches of long sentences: what backward needs grows with the tokens in all.",
    "1-introduction#what-a-batch-can-do-and-what-it-cannot",
)
@_seeded()
def _memory_grows_with_tokens() -> tuple[bool, str]:
    layer = Recurrent(32)
    one, *equal = (
        _bytes_kept(layer, torch.randn(batch, n, 32, requires_grad=True))
        for batch, n in [(1, 16), (16, 16), (4, 64), (1, 256)]
    )
    ratios = [size / one for size in equal]
    holds = all(abs(ratio / 16 - 1) < 0.1 for ratio in ratios)
    return holds, "16 times the tokens keep {:.1f}, {:.1f}, {:.1f} times as much".format(*ratios)


@claim(
    "s1-distance",
    "1",
    "measured",
    "Attention treats near and far inputs alike, where a plain recurrence loses the far ones.",
    "1-introduction#distance",
)
@_seeded()
def _attention_is_level() -> tuple[bool, str]:
    def far_and_near(layer: nn.Module) -> float:
        """How much the last output feels of the far half of the inputs; of the near half, 1."""
        x = torch.randn(1, 128, 64, dtype=torch.float64, requires_grad=True)
        last = layer.double()(x)[0, -1]
        gradients = [
            torch.autograd.grad(last @ direction, x, retain_graph=True)[0][0]
            for direction in torch.randn(4, 64).double()
        ]
        influence = torch.stack(gradients).norm(dim=(0, 2))  # (128,)
        return float(influence[:64].sum() / influence[64:].sum())

    attention, recurrent = far_and_near(_ToItself(64, h=4)), far_and_near(Recurrent(64))
    holds = 0.8 < attention < 1.25 and recurrent < 1e-6
    numbers = f"of 128 inputs, far half to near half: attention {attention:.2f}"
    return holds, f"{numbers}, recurrent {recurrent:.0e}"


@claim(
    "s1-twelve-hours",
    "1",
    "exact",
    "By the paper's own numbers, twelve hours on eight P100 give a new best score in German.",
    "1-introduction#twelve-hours",
)
def _twelve_hours_suffice() -> tuple[bool, str]:
    base, _, others = _table_2_column("BLEU EN-DE")
    printed, _, _ = _table_2_column("FLOPs EN-DE")
    cost = training_cost(hours=12, gpus=8, gpu="P100")
    holds = base > others.max() and f"{cost:.1e}" == f"{printed:.1e}"
    numbers = f"{base:.1f} against {others.max():.2f} BLEU; 12 hours are {cost:.1e} FLOPs"
    return holds, f"{numbers}, printed {printed:.1e}"


@claim(
    "s2-convolutions",
    "2",
    "exact",
    "The layers that link two positions grow linearly with their distance in contiguous "
    "convolutions, logarithmically in dilated ones.",
    "2-background#how-many-layers-link-two-positions",
)
@_seeded()
def _convolutions_link_slowly() -> tuple[bool, str]:
    distances = [1, 2, 4, 8, 16, 32, 64]
    plain = [layers_to_link(lambda i: Convolution(2, k=3), D + 1) for D in distances]
    dilated = [layers_to_link(lambda i: Convolution(2, 3, 2**i), D + 1) for D in distances]
    holds = plain == distances and dilated == [math.ceil(math.log2(D + 1)) for D in distances]
    return holds, f"distance {distances[-1]}: {plain[-1]} layers, dilated {dilated[-1]}"


@claim(
    "s2-constant",
    "2",
    "exact",
    "Self-attention relates any two positions in one layer.",
    "2-background#how-many-layers-link-two-positions",
)
@_seeded()
def _attention_links_at_once() -> tuple[bool, str]:
    layers = {D: layers_to_link(lambda i: _ToItself(2), D + 1) for D in (1, 16, 255)}
    told = ", ".join(f"{count} at distance {D}" for D, count in layers.items())
    return set(layers.values()) == {1}, f"layers: {told}"


def _learning(
    weights: Iterable[nn.Parameter], loss: Callable[[], Tensor], lr: float
) -> Iterator[float]:
    """Train by Adam for as long as somebody asks for the loss of another step.

    Args:
        weights: what is trained.   loss: on a batch of its own.   lr: learning rate.
    """
    optimizer = torch.optim.Adam(list(weights), lr=lr, fused=True)
    while True:
        optimizer.zero_grad()
        error = loss()
        error.backward()
        optimizer.step()
        yield error.item()


class _Recall(nn.Module):
    """Nine symbols (batch, 9) to scores (batch, 8) for one that stood earlier."""

    def __init__(self, mixers: list[nn.Module], d: int = 32) -> None:
        super().__init__()
        self.symbol, self.position = nn.Embedding(8, d), nn.Parameter(torch.randn(9, d))
        self.mixers = nn.ModuleList(mixers)
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in mixers)
        self.guess = nn.Linear(d, 8)

    def forward(self, symbols: Tensor) -> Tensor:
        x = self.symbol(symbols) + self.position
        for mix, norm in zip(self.mixers, self.norms, strict=True):
            x = norm(x + mix(x).relu())
        return self.guess(x[:, -1])


def _steps_to_recall(mixers: list[nn.Module], distance: int, limit: int = 150) -> int:
    """Steps until the loss has fallen from ln 8 to a tenth of it, or the limit."""
    model = _Recall(mixers)

    def loss() -> Tensor:
        symbols = torch.randint(8, (64, 9))
        return F.cross_entropy(model(symbols), symbols[:, 8 - distance])

    losses = islice(_learning(model.parameters(), loss, lr=3e-3), limit)
    return next((i for i, x in enumerate(losses, 1) if x < math.log(8) / 10), limit)


@claim(
    "s2-hard",
    "2",
    "small-scale",
    "The longer the path between two positions, the harder a dependency is to learn.",
    "2-background#does-the-length-of-the-path-matter",
)
@_seeded()
def _long_paths_are_hard() -> tuple[bool, str]:
    plain = [_steps_to_recall([Convolution(32, 3) for _ in range(8)], D) for D in (1, 4, 8)]
    dilated = _steps_to_recall([Convolution(32, 3, 2 ** (i % 4)) for i in range(8)], 8)
    attention = _steps_to_recall([_ToItself(32) for _ in range(8)], 8)
    holds = plain[0] < plain[1] < plain[2] and 2 * max(dilated, attention) < plain[2]
    numbers = "steps, at most 150: contiguous {}, {}, {} at distance 1, 4, 8".format(*plain)
    return holds, f"{numbers}; dilated {dilated}, attention {attention}"


@claim(
    "s2-averaging",
    "2",
    "exact",
    "From one head that averages two positions, a linear map reads no more than half of what they "
    "say, and not their order.",
    "3-2-attention#what-one-head-cannot-say",
)
@_seeded()
def _one_head_loses_half() -> tuple[bool, str]:
    a, b = torch.randn(2, 2000, 8)  # what two positions say in 2000 sentences
    both = torch.cat([a, b], dim=-1)
    said = torch.randn(8, 16)  # how the model, of width 16, holds it
    a, b = a @ said, b @ said

    def head(first: Tensor, second: Tensor, score: float) -> Tensor:
        """What a head sees if the score of the first is so much above that of the second."""
        keys = torch.tensor([[score], [0.0]]).expand(2000, 2, 1)
        values = torch.stack([first, second], dim=1)
        return scaled_dot_product(torch.ones(2000, 1, 1), keys, values)[0].squeeze(1)

    def lost(seen: Tensor) -> float:
        """Error of the best linear map back to both; 1 if nothing is known."""
        return float((seen @ torch.linalg.lstsq(seen, both).solution - both).square().mean())

    one = [lost(head(a, b, score)) for score in (-4, -1, 0, 1, 4)]
    narrow = torch.randn(2, 16, 8)  # W^V of two heads that are half as wide
    heads = [head(a @ w_v, b @ w_v, score) for w_v, score in zip(narrow, (-30, 30), strict=True)]
    two = lost(torch.cat(heads, dim=-1))
    order = _gap(head(a, b, 0), head(b, a, 0))
    holds = max(abs(error - 0.5) for error in one) < 0.05 and two < 1e-6 and order < 1e-6
    return holds, f"lost by one head: {min(one):.2f} to {max(one):.2f}, by two: {two:.0e}"


@claim(
    "s3.2.2-jointly",
    "2",
    "small-scale",
    "Several heads, once trained, look at different positions at the same time.",
    "3-2-attention#the-layer",
)
@_seeded()
def _two_heads_look_at_two() -> tuple[bool, str]:
    places = torch.eye(8, 16).expand(16, 8, 16)  # tells positions apart
    errors, looks = [], []
    layers: list[Any] = [MultiHeadedAttention(1, 32), MultiHeadedAttention(2, 32)]
    for layer in layers:

        def loss(layer: Any = layer) -> Tensor:
            said = torch.randn(16, 8, 16)
            x = torch.cat([said, places], dim=-1)
            neighbours = torch.cat([said.roll(1, dims=1), said.roll(-1, dims=1)], dim=-1)
            return (layer(x, x, x) - neighbours).square().mean()

        *_, error = islice(_learning(layer.parameters(), loss, lr=0.01), 300)
        errors.append(error)
        loss(layer.eval())  # which leaves its weights behind
        looks.append(layer.attn.mean(dim=0)[:, 4].argmax(dim=-1).tolist())
    holds = errors[0] > 0.4 and errors[1] < 0.25 and sorted(looks[1]) == [3, 5]
    return holds, f"errors {errors[0]:.2f} and {errors[1]:.4f}; two heads at 4 look at {looks[1]}"


@claim(
    "s3-autoregressive",
    "3",
    "exact",
    "Each symbol is predicted from z and the symbols before it; training does all steps at once, "
    "with the same result.",
    "3-model-architecture#all-steps-at-once",
)
@_seeded()
def _all_steps_at_once() -> tuple[bool, str]:
    model, src, written = _tiny(), torch.randint(20, (1, 5)), torch.tensor([[1]])
    memory, steps = model.encode(src, None), []
    for length in range(1, 8):
        out = model.decode(memory, None, written, subsequent_mask(length))
        steps.append(model.generator(out[:, -1]))
        written = torch.cat([written, steps[-1].argmax(dim=-1, keepdim=True)], dim=1)
    together = model.generator(model(src, written[:, :-1], None, subsequent_mask(7)))
    error = _gap(together, torch.stack(steps, dim=1))
    holds = error < 1e-5 and together.argmax(dim=-1).equal(written[:, 1:])
    return holds, f"7 symbols, largest difference {error:.1g}"


@claim(
    "fig1-boxes",
    "3",
    "definition",
    "The boxes follow each other as in Figure 1, and z has one vector for each input symbol.",
    "3-model-architecture#one-sentence-arrow-by-arrow",
)
@_seeded()
def _boxes_of_figure_1() -> tuple[bool, str]:
    encoder = ["self_attn", "sublayer.0", "feed_forward", "sublayer.1"]
    decoder = [*encoder[:2], "src_attn", "sublayer.1", "feed_forward", "sublayer.2"]
    inside = lambda stack, boxes: [f"{stack}.layers.{i}.{box}" for i in range(2) for box in boxes]
    figure = ["src_embed.0", "src_embed.1", *inside("encoder", encoder), "encoder"]
    figure += ["tgt_embed.0", "tgt_embed.1", *inside("decoder", decoder), "decoder"]
    figure += ["generator.proj", "generator"]

    model, fired = _tiny(), {}
    note = lambda name: lambda module, args, output: fired.update({name: tuple(output.shape)})
    for name in figure:
        model.get_submodule(name).register_forward_hook(note(name))
    src, tgt = torch.randint(20, (1, 4)), torch.randint(20, (1, 3))
    chances = model.generator(model(src, tgt, None, subsequent_mask(3))).exp().sum(dim=-1)
    holds = list(fired) == figure and bool((chances - 1).abs().max() < 1e-5)
    holds = holds and fired["encoder"] == (1, 4, 32) and fired["decoder"] == (1, 3, 32)
    return holds, f"{len(fired)} boxes in order; 4 symbols in, z is {fired['encoder'][1:]}"


@claim(
    "s3.1-sizes",
    "3.1",
    "definition",
    "Each stack has 6 layers; embeddings and all sub-layers give 512 components.",
    "3-1-encoder-decoder-stacks#why-all-widths-are-equal",
)
def _six_layers_512_wide() -> tuple[bool, str]:
    model, widths = _full_size(TransformerConfig.base()), set()
    note = lambda module, args, output: widths.add(output.size(-1))
    layers = [*model.encoder.layers, *model.decoder.layers]
    for part in [model.src_embed, model.tgt_embed, *(s for one in layers for s in one.sublayer)]:
        part.register_forward_hook(note)
    with torch.device("meta"):
        ids = torch.zeros(1, 5, dtype=torch.long)
        model(ids, ids, None, subsequent_mask(5))
    depth = len(model.encoder.layers), len(model.decoder.layers)
    return depth == (6, 6) and widths == {512}, f"layers {depth}, widths {sorted(widths)}"


@claim(
    "s3.1-identical",
    "3.1",
    "definition",
    "Layers of a stack are built alike and share no weights, feed-forward networks included.",
    "3-3-feed-forward#its-own-weights-in-every-layer",
)
def _layers_share_nothing() -> tuple[bool, str]:
    model = _full_size(TransformerConfig.base())
    stacks = [model.encoder.layers, model.decoder.layers]
    shapes = lambda layer: [(name, weight.shape) for name, weight in layer.named_parameters()]
    alike = all(shapes(layer) == shapes(stack[0]) for stack in stacks for layer in stack)
    weights = [id(w) for stack in stacks for layer in stack for w in layer.parameters()]
    different = len(set(weights))
    numbers = f"{len(weights)} tensors in {sum(map(len, stacks))} layers, {different} different"
    return alike and different == len(weights), numbers


def _lend(ours: Any, theirs: Any) -> None:
    """Give one of torch's layers the weights of ours."""
    pairs = [(ours.self_attn, theirs.self_attn)]
    if hasattr(ours, "src_attn"):
        pairs.append((ours.src_attn, theirs.multihead_attn))
    with torch.no_grad():
        for own, other in pairs:
            other.in_proj_weight.copy_(torch.cat([own.w_q.weight, own.w_k.weight, own.w_v.weight]))
            other.out_proj.weight.copy_(own.w_o.weight)
    theirs.linear1.load_state_dict(ours.feed_forward.w_1.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.w_2.state_dict())


@claim(
    "s3.1-layers",
    "3.1",
    "definition",
    "A layer is self-attention, then feed-forward; in the decoder attention to z comes between.",
    "3-1-encoder-decoder-stacks#the-same-layers-in-torch",
)
@_seeded()
def _layers_are_torchs() -> tuple[bool, str]:
    model, x, z, mask = _tiny(), *torch.randn(2, 1, 6, 32), subsequent_mask(6)
    encoder, decoder = model.encoder.layers[0], model.decoder.layers[0]
    their_encoder = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    their_decoder = nn.TransformerDecoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    _lend(encoder, their_encoder)
    _lend(decoder, their_decoder)
    decoded = their_decoder(x, z, tgt_mask=~mask[0])  # in torch True forbids
    error = max(_gap(encoder(x, None), their_encoder(x)), _gap(decoder(x, z, None, mask), decoded))
    sublayers = len(encoder.sublayer), len(decoder.sublayer)
    numbers = "{} and {} sub-layers; difference to torch {:.1g}".format(*sublayers, error)
    return error < 1e-5 and sublayers == (2, 3), numbers


@claim(
    "s3.1-post-norm",
    "3.1",
    "definition",
    "A sub-layer gives LayerNorm(x + Sublayer(x)), normalised over the components of a position.",
    "3-1-encoder-decoder-stacks#a-residual-connection-around-every-sub-layer",
)
@_seeded()
def _norm_comes_after() -> tuple[bool, str]:
    def normalised(a: Tensor, norm: Any) -> Tensor:
        centred = a - a.mean(dim=-1, keepdim=True)
        variance = centred.square().mean(dim=-1, keepdim=True)
        return centred / torch.sqrt(variance + norm.eps) * norm.weight + norm.bias

    small = TransformerConfig.base(20, N=1, d_model=16, d_ff=32, h=2)
    encoder: Any = build_model(small).eval().encoder
    layer, x = encoder.layers[0], torch.randn(1, 6, 16)
    norms = [connection.norm for connection in layer.sublayer]
    for norm in norms:  # gain and bias that can be told from none
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    y = normalised(x + layer.self_attn(x, x, x), norms[0])
    y = normalised(y + layer.feed_forward(y), norms[1])
    error = _gap(encoder(x, None), y)
    return error < 1e-5, f"an encoder layer by hand: largest difference {error:.1g}"


@claim(
    "s3.1-mask",
    "3.1",
    "exact",
    "A prediction depends on the outputs before it and on no others.",
    "3-model-architecture#what-must-not-matter",
)
@_seeded()
def _predictions_know_the_past() -> tuple[bool, str]:
    model, src, tgt = _tiny(), torch.randint(4, 20, (1, 5)), torch.randint(4, 20, (1, 9))

    def predictions(tgt: Tensor) -> Tensor:
        """Row i predicts tgt[i + 1]: masked and shifted as for training."""
        batch = Batch(src, tgt)
        return model.generator(model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask))[0]

    before, after = [], []
    for place in range(1, 8):
        other = tgt.clone()
        other[0, place] = 23 - tgt[0, place]  # another of the ids 4 to 19
        moved = (predictions(other) - predictions(tgt)).abs().amax(dim=-1)
        before.append(moved[:place].max().item())
        after.append(moved[place:].min().item())
    holds = max(before) == 0 and min(after) > 1e-4
    numbers = f"another output moves predictions up to its own by {max(before):.1g}"
    return holds, f"{numbers}, later ones by {min(after):.2f} and more"


@claim(
    "s3.1-both",
    "3.1",
    "exact",
    "It takes mask and offset to hide a position's own output and later ones; neither is enough.",
    "3-1-encoder-decoder-stacks#what-a-prediction-may-depend-on",
)
@_seeded()
def _mask_and_offset() -> tuple[bool, str]:
    model, x, z = _tiny(), *torch.randn(2, 1, 6, 32).requires_grad_()
    leaks = []
    for mask in subsequent_mask(6), None:
        outputs = model.decoder(x, z, None, mask)[0]
        last = [max(_felt(output, x)[0]) for output in outputs]  # the last input that row i feels
        for offset in 1, 0:  # with it, input i + 1 is the output that row i has to predict
            leaks.append(any(column >= row + offset for row, column in enumerate(last)))
    answers = ["leaks" if leak else "tight" for leak in leaks]
    numbers = "both {}, mask alone {}, offset alone {}, neither {}".format(*answers)
    return leaks == [False, True, True, True], numbers


class _Operators(TorchDispatchMode):
    """Within `with _Operators() as seen`: operators by name, and bytes of what they make."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.bytes: list[int] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        self.names.append(function.overloadpacket.__name__)
        if isinstance(result, Tensor):
            self.bytes.append(result.untyped_storage().nbytes())
        return result


@claim(
    "fig2-order",
    "3.2.1",
    "definition",
    "Product, scale, optional mask, softmax, product.",
    "3-2-attention#the-optional-mask",
)
@_seeded()
def _order_of_figure_2() -> tuple[bool, str]:
    boxes, (Q, K, V) = ["mm", "div", "masked_fill", "_softmax"], torch.randn(3, 5, 4)
    orders = []
    for mask in subsequent_mask(5)[0], None:
        with _Operators() as seen:
            scaled_dot_product(Q, K, V, mask)
        orders.append([name for name in seen.names if name in boxes])
    masked, plain = orders
    # A second masked_fill, after the softmax, is for rows in which everything is forbidden.
    holds = masked[:4] == boxes and masked[-1] == "mm" and plain == ["mm", "div", "_softmax", "mm"]
    return holds, f"{' → '.join(plain)}; with mask {' → '.join(masked[:4])} …"


@claim(
    "s3.2.1-eq1",
    "3.2",
    "exact",
    "Attention sums values by how query and key agree; equation 1 does so for many queries.",
    "3-2-attention#first-one-query-at-a-time",
)
@_seeded()
def _attention_is_equation_1() -> tuple[bool, str]:
    Q, K, V = torch.randn(5, 4), torch.randn(6, 4), torch.randn(6, 3)
    rows: list[Any] = []
    for q in Q.tolist():
        dots = [sum(a * b for a, b in zip(q, k, strict=True)) for k in K.tolist()]
        weights = [math.exp(dot / math.sqrt(len(q))) for dot in dots]
        total = sum(weights)
        rows.append(sum(weight / total * v for weight, v in zip(weights, V, strict=True)))
    by_hand = torch.stack(rows)
    output, shares = scaled_dot_product(Q, K, V)
    error = max(_gap(output, by_hand), _gap(fused_attention(Q[None], K[None], V[None])[0], by_hand))
    holds = error < 1e-5 and _gap(shares.sum(dim=-1), torch.ones(5)) < 1e-5
    return holds, f"largest difference to loops {error:.1g}"


@claim(
    "s3.2.1-same-but-scale",
    "3.2.1",
    "exact",
    "The paper's attention is dot-product attention but for the factor 1/√d_k.",
    "3-2-attention#first-one-query-at-a-time",
)
@_seeded()
def _scale_is_all() -> tuple[bool, str]:
    Q, K, V = torch.randn(3, 7, 64)
    error = _gap(scaled_dot_product(math.sqrt(64) * Q, K, V)[0], (Q @ K.T).softmax(dim=-1) @ V)
    return error < 1e-4, f"with queries √d_k times as long: difference {error:.1g}"


def _two_attentions(n: int, d: int = 64) -> list[Callable[[], object]]:
    """Additive and dot-product attention of n queries to n keys, ready to be called."""
    Q, K, V = torch.randn(3, n, d)
    w, u, v = torch.randn(d, d), torch.randn(d, d), torch.randn(d, 1)

    def additive() -> Tensor:
        hidden = torch.tanh((Q @ w).unsqueeze(1) + K @ u)  # (n, n, d)
        return (hidden @ v).squeeze(-1).softmax(dim=-1) @ V

    return [additive, lambda: scaled_dot_product(Q, K, V)]


@claim(
    "s3.2.1-similar-cost",
    "3.2.1",
    "exact",
    "Additive and dot-product attention take a similar number of operations.",
    "3-2-attention#additive-against-dot-product",
)
@_seeded()
def _operations_are_similar() -> tuple[bool, str]:
    counts = []
    pointwise = [2 * 512**2 * 64, 512**2]  # sum and tanh; the division. Only products are counted
    with torch.device("meta"):
        both = _two_attentions(512)
    for attention, more in zip(both, pointwise, strict=True):
        with FlopCounterMode(display=False) as counter:
            attention()
        counts.append(counter.get_total_flops() + more)
    return counts[0] / counts[
        1
    ] < 3, f"softmax and values included, n = 512: {counts[0] / counts[1]:.1f} times the operations"


@claim(
    "s3.2.1-faster",
    "3.2.1",
    "measured",
    "In practice dot-product attention is much faster: on one thread, more than three times.",
    "3-2-attention#additive-against-dot-product",
)
@_seeded()
def _dot_products_are_faster() -> tuple[bool, str]:
    def seconds(function: Callable[[], object]) -> float:
        """Of the fastest of several calls."""
        times = []
        for _ in range(6):
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
        return min(times)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # waiting for other threads would blur short timings
    ratios = []
    for n in 64, 128, 256:
        additive, product = map(seconds, _two_attentions(n))
        ratios.append(additive / product)
    torch.set_num_threads(threads)
    told = "softmax and values included, n = 64, 128, 256: {:.0f}, {:.0f}, {:.0f} times as fast"
    return min(ratios) > 3, told.format(*ratios)


@claim(
    "s3.2.1-space",
    "3.2.1",
    "exact",
    "In practice dot-product attention takes much less memory.",
    "3-2-attention#additive-against-dot-product",
)
@_seeded()
def _dot_products_are_smaller() -> tuple[bool, str]:
    sizes = []
    for attention in _two_attentions(256, d=64):
        with _Operators() as seen:
            attention()
        sizes.append(max(seen.bytes))
    ratio = sizes[0] / sizes[1]
    return ratio > 10, f"d = 64: its largest tensor is {ratio:.0f} times smaller"


def _retrieval_error(
    scores: str, d_k: int, lr: float, steps: int = 150, hidden: int | None = None
) -> float:
    """Mean squared error of a trained lookup; 1 if nothing is known.

    Args:
        scores: "additive", "unscaled" or "scaled".   d_k: width.   lr: learning rate.
        hidden: units of the additive form; None: d_k of them, which its projections make.
    """
    symbols, units = torch.randn(64, 32), hidden or d_k
    w_q, w_k = (nn.Parameter(torch.randn(32, d_k) / math.sqrt(32)) for _ in range(2))
    w, u = (nn.Parameter(torch.randn(d_k, units) / math.sqrt(d_k)) for _ in range(2))
    v = nn.Parameter(torch.randn(units) / math.sqrt(units))

    def loss() -> Tensor:
        shown = torch.rand(32, 64).argsort()[:, :8]  # eight different symbols
        asked = torch.randint(8, (32,))
        query = symbols[shown[torch.arange(32), asked]].unsqueeze(1) @ w_q  # (32, 1, d_k)
        key, value = symbols[shown] @ w_k, torch.randn(32, 8, 8)
        if scores == "additive":
            sums = query @ w + key @ u if hidden else query + key
            answer = (torch.tanh(sums) @ v).softmax(dim=-1).unsqueeze(1) @ value
        else:
            factor = 1 if scores == "scaled" else math.sqrt(d_k)  # which undoes the scale
            answer, _ = scaled_dot_product(factor * query, key, value)
        return (answer.squeeze(1) - value[torch.arange(32), asked]).square().mean()

    errors = list(islice(_learning([w_q, w_k, w, u, v], loss, lr), steps))
    return sum(errors[-20:]) / 20


def _retrieval(scores: str, d_k: int) -> float:
    """Error at the better of two learning rates, a mean of two runs."""
    return min(sum(_retrieval_error(scores, d_k, lr) for _ in range(2)) / 2 for lr in (0.01, 0.03))


@claim(
    "s3.2.1-small-dk",
    "3.2.1",
    "small-scale",
    "At small d_k additive and unscaled dot-product attention do about equally well.",
    "3-2-attention#what-the-scale-is-for",
)
@_seeded()
def _narrow_ones_are_alike() -> tuple[bool | None, str]:
    def error(scores: str, hidden: int | None = None) -> float:
        return sum(_retrieval_error(scores, 4, 0.01, 600, hidden) for _ in range(2)) / 2

    product, *additive = error("unscaled"), error("additive", 4), error("additive", 64)
    alike = [abs(one - product) < 0.05 for one in additive]  # of 1, which is to know nothing
    numbers = (
        "error at d_k = 4: additive {:.2g} with 4 hidden units, {:.2g} with 64; dot product {:.2g}"
    )
    return alike[0] if len(set(alike)) == 1 else None, numbers.format(*additive, product)


@claim(
    "s3.2.1-large-dk",
    "3.2.1",
    "small-scale",
    "At large d_k additive attention does better than the unscaled dot product.",
    "3-2-attention#what-the-scale-is-for",
)
@_seeded()
def _wide_products_lose() -> tuple[bool, str]:
    additive, product = _retrieval("additive", 512), _retrieval("unscaled", 512)
    holds = additive < product / 2
    return holds, f"error at d_k = 512: additive {additive:.1g}, dot product {product:.1g}"


def _softmax_slope(d_k: int, factor: float) -> float:
    """Median size of the derivative of 32 weights by their scores; random queries and keys."""
    query, key = torch.randn(400, 1, d_k).double(), torch.randn(400, 32, d_k).double()
    p = scaled_dot_product(factor * query, key, key)[1].squeeze(1)  # double: the tails are tiny
    jacobian = torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)
    return float(jacobian.norm(dim=(-2, -1)).median())


@claim(
    "s3.2.1-gradient",
    "3.2.1",
    "measured",
    "Large dot products drive the softmax to where its gradients are tiny.",
    "3-2-attention#what-the-scale-is-for",
)
@_seeded()
def _large_products_saturate() -> tuple[bool, str]:
    narrow, base, wide = (_softmax_slope(d_k, math.sqrt(d_k)) for d_k in (16, 64, 1024))
    numbers = (
        f"slope, median: {narrow:.2f} at d_k = 16, {base:.2f} at the paper's 64, {wide:.0e} at 1024"
    )
    return wide < 1e-3 * narrow, numbers


@claim(
    "s3.2.1-scale",
    "3.2.1",
    "small-scale",
    "Dividing dot products by √d_k keeps the softmax where it has gradients.",
    "3-2-attention#what-the-scale-is-for",
)
@_seeded()
def _scale_counteracts() -> tuple[bool, str]:
    slopes = [_softmax_slope(d_k, 1.0) for d_k in (4, 16, 64, 256, 1024)]
    scaled, unscaled = _retrieval("scaled", 512), _retrieval("unscaled", 512)
    holds = max(slopes) / min(slopes) < 1.5 and scaled < unscaled / 2
    numbers = f"slope {min(slopes):.2f} to {max(slopes):.2f} from d_k = 4 to 1024"
    return holds, f"{numbers}; error {scaled:.1g}, unscaled {unscaled:.1g}"


@claim(
    "fn4-variance",
    "3.2.1",
    "exact",
    "With independent components of mean 0 and variance 1, a dot product has mean 0, variance d_k.",
    "3-2-attention#how-dot-products-grow",
)
@_seeded()
def _variance_is_d_k() -> tuple[bool, str]:
    exact = []
    for d_k in range(1, 6):
        coins = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * (2 * d_k))  # all cases
        dots = (coins[:, :d_k] * coins[:, d_k:]).sum(dim=-1)
        exact.append((float(dots.mean()), float(dots.var(correction=0)) / d_k))
    ratios = []
    for d_k in 1, 16, 256:
        normal, uniform = torch.randn(2, 4000, d_k), torch.rand(2, 4000, d_k) - 0.5
        pairs = normal, uniform * math.sqrt(12)
        ratios += [float((a * b).sum(dim=-1).var()) / d_k for a, b in pairs]
    holds = exact == [(0.0, 1.0)] * 5 and all(abs(ratio - 1) < 0.15 for ratio in ratios)
    numbers = f"variance / d_k: {exact[-1][1]:.0f} for coins"
    return holds, f"{numbers}, others {min(ratios):.2f} to {max(ratios):.2f}"


@claim(
    "s3.2.2-formula",
    "3.2.2",
    "exact",
    "Multi-head attention concatenates h projected attentions and projects once more.",
    "3-2-attention#all-heads-in-one-matrix",
)
@_seeded()
def _heads_are_concatenated() -> tuple[bool, str]:
    h, d_k, layer = 4, 16, MultiHeadedAttention(4, 64)
    x, y = torch.randn(5, 64), torch.randn(7, 64)
    heads = []
    for i in range(h):
        own = slice(i * d_k, (i + 1) * d_k)  # a Linear keeps its matrix transposed
        W_Q, W_K, W_V = (linear.weight[own].T for linear in (layer.w_q, layer.w_k, layer.w_v))
        weights = ((x @ W_Q) @ (y @ W_K).T / math.sqrt(d_k)).softmax(dim=-1)
        heads.append(weights @ (y @ W_V))
    error = _gap(layer(x[None], y[None], y[None])[0], torch.cat(heads, dim=-1) @ layer.w_o.weight.T)
    return error < 1e-5, f"head by head: largest difference {error:.1g}"


@claim(
    "s3.2.2-shapes",
    "3.2.2",
    "definition",
    "Queries and keys are d_k wide, values d_v; base has h = 8 heads with d_k = d_v = 64.",
    "3-2-attention#what-the-heads-cost",
)
def _widths_of_heads() -> tuple[bool, str]:
    with torch.device("meta"):
        free = MultiHeadedAttention(8, 512, d_k=16, d_v=100)
    shapes = {name: tuple(weight.shape) for name, weight in free.named_parameters()}  # (out, in)
    formula = {"w_q": (8 * 16, 512), "w_k": (8 * 16, 512), "w_v": (8 * 100, 512)}
    formula["w_o"] = (512, 8 * 100)
    base = _full_size(TransformerConfig.base()).encoder.layers[0].self_attn
    widths = base.h, base.d_k, base.d_v
    holds = shapes == {f"{name}.weight": shape for name, shape in formula.items()}
    return holds and widths == (8, 64, 64), "base: h = {}, d_k = {}, d_v = {}".format(*widths)


@claim(
    "s3.2.2-cost",
    "3.2.2",
    "exact",
    "h narrow heads cost about as much as one of full width.",
    "3-2-attention#what-the-heads-cost",
)
def _narrow_heads_cost_one() -> tuple[bool, str]:
    costs = set()
    for h in 1, 2, 4, 8, 16, 32:
        with torch.device("meta"), FlopCounterMode(display=False) as counter:
            layer, x = MultiHeadedAttention(h, 512), torch.empty(1, 100, 512)
            layer(x, x, x)
        parameters = sum(weight.numel() for weight in layer.parameters())
        costs.add((parameters, counter.get_total_flops()))
    parameters, operations = max(costs)
    numbers = f"h = 1 to 32: {parameters:,} parameters, {operations:,} operations"
    return len(costs) == 1, numbers


@claim(
    "s3.2.3-three",
    "3.2.3",
    "definition",
    "Multi-head attention is used in three ways: encoder self, decoder self, encoder-decoder.",
    "3-2-attention#three-uses-of-one-layer",
)
def _three_uses_of_attention() -> tuple[bool, str]:
    model, uses, z = _full_size(TransformerConfig.base()), [], []
    model.encoder.register_forward_hook(lambda module, args, output: z.append(output))
    for name, part in model.named_modules():
        if isinstance(part, MultiHeadedAttention):

            def note(module: Any, args: Any, stack: str = name.split(".")[0]) -> None:
                query, key, value = args[:3]
                source = "itself" if key is query else "z" if z and key is z[0] else "elsewhere"
                uses.append((stack, source if key is value else "two"))

            part.register_forward_pre_hook(note)
    with torch.device("meta"):
        ids = torch.zeros(1, 5, dtype=torch.long)
        model(ids, ids, None, subsequent_mask(5))
    counts = {use: uses.count(use) for use in uses}
    holds = counts == {("encoder", "itself"): 6, ("decoder", "itself"): 6, ("decoder", "z"): 6}
    return holds, ", ".join(f"{stack} to {key} {count}" for (stack, key), count in counts.items())


@claim(
    "s3.2.3-full",
    "3.2.3",
    "exact",
    "A decoder position may look at the whole input, an encoder position at the whole layer below.",
    "3-2-attention#three-uses-of-one-layer",
)
@_seeded()
def _whole_input_is_seen() -> tuple[bool, str]:
    model, x, y = _tiny(), torch.randn(1, 7, 32), torch.randn(1, 5, 32)
    x.requires_grad_()
    encoded = model.encoder.layers[0](x, None)[0]
    decoded = model.decoder.layers[0](y, x, None, subsequent_mask(5))[0]
    seen = [len(_felt(row, x)[0]) for row in (*encoded, *decoded)]
    return set(seen) == {7}, f"{seen.count(7)} of {len(seen)} positions see all 7"


@claim(
    "s3.2.3-masked",
    "3.2.3",
    "exact",
    "A decoder position sees itself and what came before; scores of -∞ stop what would flow left.",
    "3-2-attention#nothing-flows-to-the-left",
)
@_seeded()
def _nothing_flows_left() -> tuple[bool, str]:
    model, x, z = _tiny(), *torch.randn(2, 1, 6, 32).requires_grad_()
    mask = subsequent_mask(6)
    rows = model.decoder.layers[0](x, z, None, mask)[0]
    before = [_felt(row, x)[0] for row in rows] == [list(range(i + 1)) for i in range(6)]

    scores = torch.randn(6, 6)
    louder = scores + 5.0 * ~mask[0]  # only what is forbidden has changed
    moved = _gap(masked_softmax(louder, mask[0]), masked_softmax(scores, mask[0]))
    late = _gap(*(s.softmax(dim=-1).masked_fill(~mask[0], 0.0) for s in (louder, scores)))
    holds = before and moved == 0 and late > 0.1
    numbers = f"a louder future moves weights by {moved:.1g}"
    return holds, f"{numbers}; if masked after the softmax, by {late:.2f}"


@claim(
    "s3.3-eq2",
    "3.3",
    "exact",
    "The feed-forward network is max(0, xW₁ + b₁)W₂ + b₂, 512 wide outside and 2048 inside.",
    "3-3-feed-forward",
)
@_seeded()
def _feed_forward_is_equation_2() -> tuple[bool, str]:
    base = _full_size(TransformerConfig.base()).decoder.layers[-1].feed_forward
    ffn, x = PositionwiseFeedForward(512, 2048), torch.randn(2, 10, 512)
    W_1, b_1, W_2, b_2 = (weight.mT if weight.dim() == 2 else weight for weight in ffn.parameters())
    error = _gap(ffn(x), torch.maximum(torch.tensor(0.0), x @ W_1 + b_1) @ W_2 + b_2)
    widths = base.w_1.in_features, base.w_1.out_features, base.w_2.out_features
    numbers = "largest difference {:.1g}; base: {} to {} to {}".format(error, *widths)
    return error < 1e-5 and widths == (512, 2048, 512), numbers


@claim(
    "s3.3-each",
    "3.3",
    "exact",
    "The feed-forward network treats every position separately and in the same way.",
    "3-3-feed-forward#each-position-by-itself",
)
@_seeded()
def _positions_are_apart() -> tuple[bool, str]:
    ffn, x, order = PositionwiseFeedForward(32, 64), torch.randn(1, 10, 32), torch.randperm(10)
    altered = x.clone()
    altered[0, 3] = torch.randn(32)
    moved = (ffn(altered) - ffn(x))[0].any(dim=-1).nonzero().flatten().tolist()
    shuffled = _gap(ffn(x[:, order]), ffn(x)[:, order])
    return moved == [3] and shuffled < 1e-6, f"input 3 altered: outputs {moved} move"


@claim(
    "s3.3-convolution",
    "3.3",
    "exact",
    "The feed-forward network is two convolutions of kernel width 1.",
    "3-3-feed-forward#two-convolutions-with-kernel-size-1",
)
@_seeded()
def _feed_forward_is_convolution() -> tuple[bool, str]:
    ffn, x = PositionwiseFeedForward(32, 64), torch.randn(2, 10, 32)
    inner = F.conv1d(x.mT, ffn.w_1.weight.unsqueeze(-1), ffn.w_1.bias)
    error = _gap(ffn(x), F.conv1d(inner.relu(), ffn.w_2.weight.unsqueeze(-1), ffn.w_2.bias).mT)
    return error < 1e-5, f"largest difference {error:.1g}"


@claim(
    "s3.4-shared",
    "3.4",
    "definition",
    "One learned matrix serves both embeddings and the linear map that gives probabilities.",
    "3-4-embeddings-softmax#one-matrix-three-places",
)
@_seeded()
def _one_matrix_three_places() -> tuple[bool, str]:
    tensors = []
    for config in TransformerConfig.base(), TransformerConfig.big():
        model = _full_size(config)
        places = model.src_embed[0].lut, model.tgt_embed[0].lut, model.generator.proj
        tensors.append(len({id(place.weight) for place in places}))
    small, x = _tiny(tie_embeddings=True), torch.randn(4, 32)
    chances = (x @ small.src_embed[0].lut.weight.T).softmax(dim=-1)
    error = _gap(small.generator(x).exp(), chances)
    holds = tensors == [1, 1] and error < 1e-5
    numbers = "tensors in three places: base {}, big {}".format(*tensors)
    return holds, f"{numbers}; probabilities differ by {error:.1g}"


@claim(
    "s3.4-root",
    "3.4",
    "definition",
    "Where it embeds, the shared matrix is multiplied by √d_model.",
    "3-4-embeddings-softmax#a-lookup-is-a-multiplication",
)
@_seeded()
def _embeddings_times_root() -> tuple[bool, str]:
    embed, ids = _tiny(tie_embeddings=True).src_embed[0], torch.randint(20, (1, 6))
    one_hot = F.one_hot(ids, num_classes=20).float()
    error = _gap(embed(ids), one_hot @ embed.lut.weight * math.sqrt(32))
    return error < 1e-5, f"largest difference {error:.1g}"


@claim(
    "s3.5-order",
    "3.5",
    "exact",
    "Without positions the encoder cannot use the order of its tokens.",
    "3-5-positional-encoding#without-positions-a-set",
)
@_seeded()
def _no_order_without_positions() -> tuple[bool, str]:
    model, x, order = _tiny(), torch.randn(1, 10, 32), torch.randperm(10)
    encode, place = lambda x: model.encoder(x, None), model.src_embed[1]
    without = _gap(encode(x[:, order]), encode(x)[:, order])
    with_them = _gap(encode(place(x[:, order])), encode(place(x))[:, order])
    holds = without < 1e-5 and with_them > 0.1
    return holds, f"shuffling changes outputs by {without:.1g}, with positions by {with_them:.1f}"


@claim(
    "s3.5-formula",
    "3.5",
    "exact",
    "Both stacks begin by adding sines and cosines of pos / 10000^(2i/d_model), whose wavelengths "
    "are a geometric progression.",
    "3-5-positional-encoding#without-positions-a-set",
)
@_seeded()
def _sinusoids_follow_the_formula() -> tuple[bool, str]:
    rows = [
        [f(pos / 10000 ** (2 * i / 32)) for i in range(16) for f in (math.sin, math.cos)]
        for pos in range(50)
    ]
    by_hand, model, ids = torch.tensor(rows), _tiny(), torch.randint(20, (1, 50))
    table = sinusoids(50, 32)
    errors = [_gap(table, by_hand)]
    for token, place in model.src_embed, model.tgt_embed:
        errors.append(_gap(place(token(ids)), token(ids) + by_hand))
    turns = torch.atan2(table[1, 0::2], table[1, 1::2]).double()
    factors = turns[:-1] / turns[1:]
    holds = max(errors) < 1e-6 and bool((factors / factors[0] - 1).abs().max() < 1e-5)
    numbers = f"largest difference {max(errors):.1g}"
    return holds, f"{numbers}; each wave is {factors[0]:.3f} times the one before"


@claim(
    "s3.5-range",
    "3.5",
    "exact",
    "The wavelengths of the sinusoids run from 2π to 10000 · 2π.",
    "3-5-positional-encoding#wavelengths",
)
def _range_of_wavelengths() -> tuple[bool, str]:
    first = sinusoids(2, 512)[1].double()  # position 1: how far each pair turns in one step
    waves = 1 / torch.atan2(first[0::2], first[1::2])  # in units of 2π
    holds = bool(torch.isclose(waves[[0, -1]], torch.tensor([1.0, 10000.0]).double()).all())
    return holds, f"from {waves[0]:.0f} · 2π to {waves[-1]:,.0f} · 2π"


@claim(
    "s3.5-offset",
    "3.5",
    "exact",
    "For a fixed offset k, the encoding of pos + k is a linear function of that of pos.",
    "3-5-positional-encoding#a-step-of-k-is-a-rotation",
)
def _offset_is_linear() -> tuple[bool, str]:
    table, errors = sinusoids(1000, 64).double(), []
    for k in 1, 7, 300:
        turns = [k / 10000 ** (2 * i / 64) for i in range(32)]
        blocks = [[[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]] for a in turns]
        step = torch.block_diag(*map(torch.tensor, blocks)).double()
        errors.append(_gap(table[:-k] @ step.T, table[k:]))
    return max(errors) < 2e-6, f"one matrix a step, 1000 positions: largest error {max(errors):.1g}"


def _previous_token(positions: nn.Module) -> list[float]:
    """Train one layer with one head to name the token before each position, on 20 tokens.

    Every fourth position is never asked for in training.

    Returns: the share of right answers where it was asked, where not, and at positions 20 to 39.
    """
    attention, ffn = MultiHeadedAttention(1, 32), PositionwiseFeedForward(32, 128)
    layer = EncoderLayer(32, attention, ffn, dropout=0.0)
    model = nn.ModuleList([Embeddings(32, 10), positions, layer, Generator(32, 10)])
    initialise(model)

    def answers(ids: Tensor) -> Tensor:
        embed, place, layer, name = model
        return name(layer(place(embed(ids)), None))[:, 1:]

    asked = torch.tensor([i for i in range(19) if i % 4 != 2])
    skipped, further = torch.arange(2, 19, 4), torch.arange(19, 39)

    def loss() -> Tensor:
        ids = torch.randint(10, (16, 20))
        return F.nll_loss(answers(ids)[:, asked].flatten(0, 1), ids[:, asked].flatten())

    list(islice(_learning(model.parameters(), loss, lr=7e-3), 300))
    ids = torch.randint(10, (200, 40))
    right = (answers(ids).argmax(dim=-1) == ids[:, :-1]).float().mean(dim=0)
    return [float(right[places].mean()) for places in (asked, skipped, further)]


@claim(
    "s3.5-relative",
    "3.5",
    "small-scale",
    "With sinusoids a head easily learns to attend by relative position.",
    "3-5-positional-encoding#longer-than-in-training",
)
@_seeded()
def _relative_position_is_learned() -> tuple[bool, str]:
    right, between, _ = _previous_token(PositionalEncoding(32, 0.0, 40))
    _, by_heart, _ = _previous_token(LearnedPositionalEncoding(32, 0.0, 40))
    told = f"token before, after 300 steps: {right:.0%} right; {between:.0%} at positions that were"
    holds = right > 0.9 and between > 0.9 and by_heart < 0.5
    return holds, f"{told} left out of training, with learned vectors {by_heart:.0%}"


@claim(
    "s3.5-extrapolate",
    "3.5",
    "small-scale",
    "Beyond the lengths of training sinusoids do better than learned vectors, random there.",
    "3-5-positional-encoding#longer-than-in-training",
)
@_seeded()
def _sinusoids_go_further() -> tuple[bool, str]:
    fixed = [_previous_token(PositionalEncoding(32, 0.0, 40))[-1] for _ in range(2)]
    learned = [_previous_token(LearnedPositionalEncoding(32, 0.0, 40))[-1] for _ in range(2)]
    numbers = "two runs at positions 20 to 39: {:.0%} and {:.0%}, learned {:.0%} and {:.0%}"
    return min(fixed) > max(learned) + 0.1, numbers.format(*fixed, *learned)


def _work(layer: Callable[[int, int], nn.Module], n: int, d: int, k: int = 1) -> int:
    """Multiply-adds of a layer, made from d and k, on n positions."""
    with torch.device("meta"):  # shapes are enough
        return multiply_adds(layer(d, k), n, d)


def _powers(layer: Callable[[int, int], nn.Module]) -> tuple[float, ...]:
    """With which powers of n, d and k the work grows."""
    one = _work(layer, 32, 64, 5)
    tripled = (96, 64, 5), (32, 192, 5), (32, 64, 15)
    return tuple(round(math.log(_work(layer, *sizes) / one, 3), 6) for sizes in tripled)


_FIRST = "4-why-self-attention#first-column-how-much-is-computed"
_ORDER = "powers of n, d and k: {:g}, {:g}, {:g}"


@claim("t1-self", "4", "exact", "A self-attention layer costs O(n² · d).", _FIRST)
def _work_of_self_attention() -> tuple[bool, str]:
    found = _powers(lambda d, k: BareSelfAttention())
    return found == (2, 1, 0), _ORDER.format(*found)


@claim("t1-recurrent", "4", "exact", "A recurrent layer costs O(n · d²).", _FIRST)
def _work_of_recurrence() -> tuple[bool, str]:
    found = _powers(lambda d, k: Recurrent(d))
    return found == (1, 2, 0), _ORDER.format(*found)


@claim("t1-convolution", "4", "exact", "A convolutional layer costs O(k · n · d²).", _FIRST)
def _work_of_convolution() -> tuple[bool, str]:
    found = _powers(Convolution)
    return found == (1, 2, 1), _ORDER.format(*found)


@claim(
    "t1-restricted",
    "4",
    "exact",
    "Self-attention restricted to r neighbours costs O(r · n · d).",
    _FIRST,
)
def _work_of_restricted_attention() -> tuple[bool, str]:
    found = _powers(lambda d, r: RestrictedSelfAttention(r))
    return found == (1, 1, 1), _ORDER.replace("k", "r").format(*found)


@claim(
    "t1-sequential",
    "4",
    "exact",
    "A recurrent layer needs O(n) operations one after another, the three other kinds O(1).",
    "4-why-self-attention#second-column-what-must-wait",
)
@_seeded()
def _only_recurrence_has_to_wait() -> tuple[bool, str]:
    layers = Recurrent(8), BareSelfAttention(), Convolution(8, 5), RestrictedSelfAttention(5)
    chains = [
        [longest_chain(layer(torch.randn(1, n, 8, requires_grad=True))) for n in (16, 32, 64)]
        for layer in layers
    ]
    (a, b, c), others = chains[0], chains[1:]
    constant = all(len(set(chain)) == 1 for chain in others)
    most = max(max(chain) for chain in others)
    numbers = f"n = 16, 32, 64: recurrent {a}, {b}, {c} operations, others always at most {most}"
    return constant and c - b == 2 * (b - a) > 0, numbers


_THIRD = "4-why-self-attention#third-column-how-long-the-way-is"


@claim("t1-path-recurrent", "4", "exact", "Longest path of a recurrent layer: O(n).", _THIRD)
@_seeded()
def _path_of_recurrence() -> tuple[bool, str]:
    layer, steps = Recurrent(1).double(), {}
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter.fill_({"input.weight": 1.0, "state.weight": 0.5}.get(name, 0.0))
    for n in (8, 64, 512):
        x = torch.zeros(1, n, 1, dtype=torch.float64, requires_grad=True)  # tanh is straight at 0
        (signal,) = torch.autograd.grad(layer(x)[0, -1, 0], x)
        steps[n] = -math.log2(signal[0, 0, 0])
    told = ", ".join(f"{count:g} steps for n = {n}" for n, count in steps.items())
    return all(count == n - 1 for n, count in steps.items()), told


def _paths(layer: Callable[[int], nn.Module], theory: Callable[[int], int]) -> tuple[bool, str]:
    """Whether so many layers link the ends as theory says; `layer` makes one from its number."""
    found = {n: layers_to_link(layer, n) for n in (8, 16, 32, 64)}
    told = ", ".join(map(str, found.values()))
    return all(count == theory(n) for n, count in found.items()), f"{told} layers for n = 8 to 64"


@claim(
    "t1-path-convolution",
    "4",
    "exact",
    "Longest path of convolutions: O(log_k n), if their kernels are dilated.",
    _THIRD,
)
@_seeded()
def _path_of_dilated_convolutions() -> tuple[bool, str]:
    logarithm = lambda n: math.ceil(math.log(n, 3) - 1e-9)
    right, told = _paths(lambda i: Convolution(2, 3, 3**i, causal=True), logarithm)
    return right, f"k = 3: {told}"


@claim(
    "t1-path-restricted",
    "4",
    "exact",
    "Longest path of self-attention that is restricted to r neighbours: O(n / r).",
    _THIRD,
)
@_seeded()
def _path_of_restricted_attention() -> tuple[bool, str]:
    right, told = _paths(lambda i: RestrictedSelfAttention(9), lambda n: math.ceil((n - 1) / 4))
    return right, f"r = 9: {told}"


@claim(
    "s4-contiguous",
    "4",
    "exact",
    "One convolution with k < n does not link all pairs; contiguous ones need O(n / k) layers.",
    _THIRD,
)
@_seeded()
def _path_of_contiguous_convolutions() -> tuple[bool, str]:
    right, told = _paths(lambda i: Convolution(2, 7), lambda n: math.ceil((n - 1) / 3))
    one_links = layers_to_link(lambda i: Convolution(2, 7), 4) == 1  # no further than 3 away
    return right and one_links, f"k = 7: {told}"


_SENTENCES = "4-why-self-attention#the-section-sentence-by-sentence"


@claim(
    "s4-less-work",
    "4",
    "exact",
    "Self-attention computes less than a recurrent layer where n < d.",
    _SENTENCES,
)
def _less_work_in_short_sentences() -> tuple[bool, str]:
    attention, recurrent = lambda d, k: BareSelfAttention(), lambda d, k: Recurrent(d)
    sizes = [(n, d) for d in (32, 64) for n in (16, 32, 64, 128)]
    ratios = {(n, d): _work(attention, n, d) / _work(recurrent, n, d) for n, d in sizes}
    right = all((ratio < 1) == (n < d) for (n, d), ratio in ratios.items())
    return right, f"d = 64: {', '.join(f'{ratios[n, 64]:g} for n = {n}' for n in (16, 64, 128))}"


@claim("s4-n-below-d", "4", "small-scale", "In translation n is mostly smaller than d.", _SENTENCES)
def _sentences_are_short() -> tuple[bool, str]:
    d = TransformerConfig.base().d_model
    with _log("multi30k-lengths.csv") as lengths:
        longest, pairs = lengths[["source", "target"]].max(axis=1), lengths["pairs"]
    share = pairs[longest < d].sum() / pairs.sum()
    return bool(share > 0.5), f"{share:.0%} of Multi30k's pairs, longest {longest.max()}; d = {d}"


@claim(
    "s4-k-times",
    "4",
    "exact",
    "A convolution costs k times what a recurrent layer does, to a constant factor.",
    _SENTENCES,
)
def _k_times_the_work() -> tuple[bool, str]:
    sizes = [(n, d) for n in (16, 64) for d in (32, 64)]
    recurrent = lambda n, d: _work(lambda d, k: Recurrent(d), n, d)
    factors = {
        _work(Convolution, n, d, k) / recurrent(n, d) / k for n, d in sizes for k in (3, 7, 15)
    }
    told = ", ".join(f"{factor:g} k" for factor in factors)
    return len(factors) == 1, f"{told} times; the recurrent layer has two matrices"


def _separable(d: int, k: int) -> nn.Module:
    return Convolution(d, k, separable=True)


@claim("s4-separable", "4", "exact", "A separable convolution costs k·n·d + n·d².", _SENTENCES)
def _work_of_separable_convolutions() -> tuple[bool, str]:
    sizes = [(n, d, k) for n in (16, 48) for d in (32, 64) for k in (3, 15)]
    wrong = sum(_work(_separable, n, d, k) != k * n * d + n * d**2 for n, d, k in sizes)
    n, d, k = sizes[-1]
    told = f"{_work(_separable, n, d, k):,} for n = {n}, d = {d}, k = {k}"
    return wrong == 0, f"{told}; {wrong} of {len(sizes)} sizes differ"


@claim(
    "s4-separable-equal",
    "4",
    "exact",
    "With k = n it grows as self-attention and a point-wise layer together.",
    _SENTENCES,
)
def _separable_equals_attention_and_point_wise() -> tuple[bool, str]:
    ratios = []
    for n, d in ((65, 512), (513, 512), (2049, 64), (33, 2048)):  # k is odd, and so is n
        pointwise = _work(lambda d, k: nn.Linear(d, d), n, d)
        both = _work(lambda d, k: BareSelfAttention(), n, d) + pointwise
        ratios.append(both / _work(_separable, n, d, n))
    low, high = min(ratios), max(ratios)
    return 1 <= low <= high <= 2, f"together {low:.2f} to {high:.2f} times as much"


def _study(table: str, **wanted: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A table of the study of heads, of general-en-fr and of the same model untrained.

    Args:
        wanted: values that its rows shall have.

    Raises: FileNotFoundError or Unfinished if there are no such rows.
    """
    found = []
    for which in ("", "-untrained"):
        with _log(f"general-en-fr-heads{which}.json") as log:
            _entry(log[table], **wanted)  # there is one at least
            rows = [row for row in log[table] if wanted.items() <= row.items()]
        found.append(pd.DataFrame(rows))
    return found[0], found[1]


_VERDICTS_OF_HEADS = "attention-visualizations#what-counts"


@claim(
    "s4-heads-tasks",
    "4",
    "small-scale",
    "Different heads learn different tasks.",
    _VERDICTS_OF_HEADS,
)
def _heads_differ() -> tuple[bool, str]:
    names, bare = map(head_tasks, _study("heads"))
    right = len(names) >= 4 and len(names) > len(bare)
    return right, f"tasks: {', '.join(names) or 'none'}; untrained {len(bare)}"


@claim(
    "s4-heads-syntax",
    "4",
    "small-scale",
    "The behaviour of many heads has to do with syntax.",
    _VERDICTS_OF_HEADS,
)
def _heads_follow_grammar() -> tuple[bool, str]:
    heads, control = _study("heads")
    found, bare = len(significant(heads)), len(significant(control))
    told = f"heads that surely follow a relation beyond any fixed place: {found} of {len(heads)}"
    return found >= len(heads) / 4 and found > bare, f"{told}, untrained {bare}"


@claim(
    "s4-heads-meaning",
    "4",
    "small-scale",
    "The behaviour of heads has to do with meaning: they find what a pronoun stands for.",
    _VERDICTS_OF_HEADS,
)
def _heads_find_antecedents() -> tuple[bool, str]:
    trained, bare = (found.iloc[0] for found in _study("pronouns", pronoun="all"))
    told = f"right {trained.finds:.0%} ({trained.low:.0%} to {trained.high:.0%}), "
    told += f"the rule “{trained.rule}” {trained.ruled:.0%}"
    beyond = trained.gain_low > 0 and trained.low > bare.high
    return bool(beyond), f"{told}, untrained {bare.finds:.0%}"


def _encoder_attention(line: str) -> Attention:
    """What the words of a line of newstest2013 look at in the encoder of general-en-fr."""
    folder = shipped("models") / "general-en-fr"
    if not (folder / "model.safetensors").exists():
        raise FileNotFoundError(str(folder))
    with _log("newstest2013-lines.json") as lines:
        text = lines[line]
    return merge_words(read_attention(load_pretrained(folder), text, target="")["encoder"])


@claim(
    "fig3-making",
    "4",
    "small-scale",
    "In layer 5 of 6 many heads look from “making” at the distant “more difficult”.",
    "attention-visualizations#figure-3-a-verb-and-what-belongs-to-it",
)
@_seeded()
def _heads_complete_the_verb() -> tuple[bool, str]:
    seen = _encoder_attention("8")
    more = seen.keys.index("more")
    given = seen.weights[4, :, seen.queries.index("making"), more : more + 2].sum(dim=-1)  # (h,)
    many = int((given > 0.5).sum())
    told = f"{many} of {len(given)} heads give it most of their attention"
    return many >= len(given) / 2, f"{told}, at most {given.max():.2f}"


@claim(
    "fig3-distance",
    "4",
    "small-scale",
    "Heads follow dependencies over long distances.",
    _VERDICTS_OF_HEADS,
)
def _heads_reach_far() -> tuple[bool, str]:
    trained, bare = _study("distances", distance="9 or more")
    both = trained.merge(bare, on=["distance", "from"], suffixes=("", "_bare"))
    far = both.nlargest(1, "when_chosen").iloc[0]
    told = f"nine words and more: {far.follows:.0%} ({far.low:.0%} to {far.high:.0%}) followed"
    told += f", a fixed place {far.fixed:.0%}, untrained {far.follows_bare:.0%}"
    return bool(far.gain_low > 0 and far.low > far.high_bare), told


@claim(
    "fig4-its",
    "4",
    "small-scale",
    "Two heads of layer 5 look from “its”, sharply, at “Law” or “application”.",
    "attention-visualizations#figure-4-what-its-means",
)
@_seeded()
def _heads_resolve_its() -> tuple[bool, str]:
    heads, _ = _study("heads")
    finders = heads[heads.layer == 5].nlargest(2, "pronouns_when_chosen")["head"].tolist()
    seen = _encoder_attention("1053")
    largest = seen.weights[4, [i - 1 for i in finders], seen.queries.index("its")].max(dim=-1)
    words = [seen.keys[i] for i in largest.indices]
    right = "Law" in words and set(words) <= {"Law", "application"}
    sharp = bool((largest.values > 0.5).all())
    found = zip(finders, words, largest.values.tolist(), strict=True)
    return right and sharp, "; ".join(f"head {i}: {word} {weight:.2f}" for i, word, weight in found)


def count_pairs(corpus: str, src: str, tgt: str) -> int:
    """Count the training pairs of a corpus, and write the number to data/results/CORPUS-pairs.json.

    It counts the pairs that are left when bad ones are dropped, and holds few of them at a time.

    Args:
        corpus: a name of the register whose sides are files of their own.
        src, tgt: languages, such as "en" and "de".

    Raises: as `load_pairs`.
    """
    found, good = find_corpus(corpus), 0
    for names in corpus_parts(found, "train", src, tgt):
        files = [name.partition("/") for name in names]
        paths = [(corpus_file(found, file), member) for file, _, member in files]
        pairs = zip_longest(*(part_lines(*path) for path in paths))
        while some := list(islice(pairs, 10_000)):
            sources, targets = zip(*some, strict=True)
            good += clean_pairs(sources, targets, on_bad="drop")[2].good
    _OWN.mkdir(parents=True, exist_ok=True)
    write_text(_OWN / f"{corpus}-pairs.json", f"{good}\n")
    return good


def _count(*names: str) -> str:
    """The commands that count the training pairs of a corpus, and keep their number."""
    count = f"from annotated.claims import count_pairs; count_pairs{names}"
    return f'annotated data get {names[0]} --split train\npython -c "{count}"'


_CORPUS = "5-1-data-batching#finding-a-corpus"


@claim(
    "s5.1-ende-size",
    "5.1",
    "full-scale",
    "The English-German data are about 4.5 million pairs.",
    _CORPUS,
    command=_count("wmt14-en-de", "en", "de"),
)
def _german_pairs() -> tuple[bool, str]:
    with _log("wmt14-en-de-pairs.json") as pairs:
        millions = pairs / 1e6
    return round(millions, 1) == 4.5, f"{millions:.2f} million pairs"


@claim(
    "s5.1-enfr-size",
    "5.1",
    "full-scale",
    "The English-French data are 36 million sentences.",
    _CORPUS,
    command=_count("wmt14-en-fr", "en", "fr"),
)
def _french_pairs() -> tuple[bool, str]:
    with _log("wmt14-en-fr-pairs.json") as pairs:
        millions = pairs / 1e6
    return round(millions) == 36, f"{millions:.2f} million pairs"


@claim(
    "s5.1-vocabularies",
    "5.1",
    "definition",
    "German uses 37,000 byte pairs that both languages share, French 32,000 word pieces.",
    "5-1-data-batching#cutting-words-into-pieces",
)
def _two_kinds_of_pieces() -> tuple[bool, str]:
    wanted = {"base-en-de": ("BPE", 37_000), "big-en-fr": ("WordPiece", 32_000)}
    found, shared = {}, True
    for name in wanted:
        config = preset(name)
        tokenizer = learn_vocabulary(config.vocabulary, ["a man and", "ein Mann und"], 40)
        found[name] = type(tokenizer.model).__name__, config.vocab_size
        built = model_config(config)
        shared &= built.tie_embeddings and built.src_vocab == built.tgt_vocab == config.vocab_size
    told = "; ".join(f"{kind} with {size:,}" for kind, size in found.values())
    return shared and found == wanted, f"{told}; {'one' if shared else 'not one'} for both sides"


def _captions(number: int | None = None) -> np.ndarray:
    """Lengths (pairs, 2) of Multi30k's captions in any order; or so many, drawn from them."""
    random = np.random.default_rng(0)
    with _log("multi30k-lengths.csv") as table:
        lengths = np.repeat(table[["source", "target"]].to_numpy(), table["pairs"], axis=0)
    return random.choice(lengths, number) if number else random.permutation(lengths)


@claim(
    "s5.1-length",
    "5.1",
    "definition",
    "Pairs of similar length share a batch.",
    "5-1-data-batching#what-sorting-saves",
)
def _batches_of_similar_length() -> tuple[bool, str]:
    lengths = _captions()
    ours = token_batches(lengths, 2000, 2000, seed=0)
    as_they_come = np.array_split(np.arange(len(lengths)), len(ours))
    padding = []
    for batches in ours, as_they_come:
        cells = sum(len(batch) * lengths[batch].max(axis=0).sum() for batch in batches)
        padding.append(1 - lengths.sum() / cells)
    told = f"padding {padding[0]:.1%}; as they come, equally many pairs each: {padding[1]:.1%}"
    return bool(padding[0] < 0.05 and padding[1] > 0.3), told


@claim(
    "s5.1-tokens",
    "5.1",
    "definition",
    "A batch has about 25,000 source and 25,000 target tokens.",
    "5-1-data-batching#what-25-000-tokens-are",
)
def _batches_of_25_000_tokens() -> tuple[bool, str]:
    names = "base-en-de", "base-en-fr", "big-en-de", "big-en-fr"
    budgets = {(preset(name).src_tokens, preset(name).tgt_tokens) for name in names}
    lengths = _captions(200_000)
    batches = token_batches(lengths)
    sizes = np.array([len(batch) * lengths[batch].max(axis=0) for batch in batches])
    source, target = np.median(sizes, axis=0)
    full = sizes.max() <= 25_000 and min(source, target) > 22_500
    told = f"median {source:,.0f} and {target:,.0f}, padding counted; at most {sizes.max():,}"
    return bool(full and budgets == {(25_000, 25_000)}), told


@claim(
    "s5.2-times",
    "5.2",
    "exact",
    "100,000 steps of about 0.4 s make 12 hours; 300,000 of 1.0 s make 3.5 days.",
    "1-introduction#twelve-hours",
)
def _steps_make_hours() -> tuple[bool, str]:
    seconds = 12 * 3600 / preset("base-en-de").updates
    days = preset("big-en-de").updates * 1.0 / 86_400
    right = round(seconds, 1) == 0.4 and round(days, 1) == 3.5
    return right, f"12 hours are steps of {seconds:.2f} s; 1.0 s makes {days:.2f} days"


@claim(
    "s5.3-constants",
    "5.3",
    "definition",
    "Adam has β₁ = 0.9, β₂ = 0.98 and ε = 10⁻⁹; the rate rises for 4,000 steps.",
    "5-3-optimizer#optimizer-and-schedule-together",
)
@_seeded()
def _constants_of_adam() -> tuple[bool, str]:
    model = make_model(9, 9, N=1, d_model=8, d_ff=8, h=2)
    optimizer, _ = paper_optimizer(model, 8)
    (group,) = optimizer.param_groups
    whole = {id(p) for p in group["params"]} == {id(p) for p in model.parameters()}
    highest = max(range(1, 20_000), key=lambda step: rate(step, 512))
    found = *group["betas"], group["eps"], highest, preset("base-en-de").warmup
    told = "β₁ = {}, β₂ = {}, ε = {}, highest rate at step {:,}, preset {:,}".format(*found)
    return whole and found == (0.9, 0.98, 1e-9, 4000, 4000), told


@claim(
    "s5.3-eq3",
    "5.3",
    "exact",
    "The rate rises linearly for warmup_steps steps, then falls as the inverse root of the step.",
    "5-3-optimizer#the-schedule",
)
@_seeded()
def _rates_of_equation_3() -> tuple[bool, str]:
    d, warmup, rates = 64, 50, []
    optimizer, schedule = paper_optimizer(nn.Linear(2, 2), d, warmup=warmup)
    for _ in range(4 * warmup):  # as a run sees them
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    steps = range(1, len(rates) + 1)
    expected = [1 / math.sqrt(d) * min(1 / math.sqrt(s), s / warmup**1.5) for s in steps]
    error = max(abs(a / b - 1) for a, b in zip(rates, expected, strict=True))
    highest = rates.index(max(rates)) + 1
    line = max(abs(rates[s - 1] / (s * rates[0]) - 1) for s in steps[:warmup])
    root = max(abs(rates[s - 1] / rates[-1] * (s / len(rates)) ** 0.5 - 1) for s in steps[warmup:])
    told = f"relative error {error:.0e}; highest at {highest} with warmup {warmup}"
    return max(error, line, root) < 1e-9 and highest == warmup, told


@claim(
    "s5.4-dropout",
    "5.4",
    "definition",
    "Dropout falls on each sub-layer's output before it is added, and on the sums with positions.",
    "5-4-regularization#where-dropout-stands",
)
@_seeded()
def _places_of_dropout() -> tuple[bool, str]:
    model = make_model(9, 9, N=2, d_model=8, d_ff=8, h=2, dropout=0.5)
    places = {name for name, part in model.named_modules() if getattr(part, "p", 0) > 0}
    expected = {"src_embed.1.dropout", "tgt_embed.1.dropout"}
    for stack, sublayers in (("encoder", 2), ("decoder", 3)):
        names = [f"{stack}.layers.{i}.sublayer.{j}" for i in (0, 1) for j in range(sublayers)]
        expected |= {f"{name}.dropout" for name in names}

    seen: list[tuple[Tensor, Tensor]] = []
    sublayer, encoding = SublayerConnection(8, 0.5), PositionalEncoding(8, 0.5)
    for part in sublayer, encoding:
        part.dropout.register_forward_hook(lambda part, given, out: seen.append((given[0], out)))
    x = torch.randn(1, 5, 8)
    after, summed = sublayer(x, torch.sin), encoding(x)
    (output, dropped), (total, left) = seen
    right = torch.equal(output, x.sin()) and torch.equal(after, sublayer.norm(x + dropped))
    right &= torch.equal(total, x + encoding.pe[:, :5]) and torch.equal(summed, left)
    told = f"{len(places)} places in 2 + 2 layers, {len(expected)} expected"
    return right and places == expected, told


@claim(
    "s5.4-values",
    "5.4",
    "definition",
    "P_drop is 0.1 for base, 0.3 for big, 0.1 for big English-French; label smoothing is 0.1.",
    "5-4-regularization#label-smoothing",
)
@_seeded()
def _rates_of_dropout_and_smoothing() -> tuple[bool, str]:
    expected = {"base-en-de": 0.1, "base-en-fr": 0.1, "big-en-de": 0.3, "big-en-fr": 0.1}
    found = {name: model_config(preset(name)).dropout for name in expected}
    (smoothing,) = {preset(name).label_smoothing for name in expected}
    log_p, right = torch.randn(4, 7).log_softmax(dim=-1), torch.tensor([3, 1, 6, 2])
    target = 0.9 * F.one_hot(right, 7) + 0.1 / 7
    error = (LabelSmoothing(7, 0, smoothing)(log_p, right) + (target * log_p).sum()).abs().item()
    told = ", ".join(f"{name} {p}" for name, p in found.items())
    return found == expected and smoothing == 0.1 and error < 1e-5, f"{told}; smoothing {smoothing}"


def _by_regularization(measure: str) -> pd.Series:
    """Final scores of the four runs on 10,000 captions, by dropout and smoothing."""
    with _log("regularization.csv") as steps:
        scores = steps.groupby(["dropout", "label_smoothing"])[measure].last()
        four = [(dropout, smoothing) for dropout in (0.0, 0.3) for smoothing in (0.0, 0.1)]
        return pd.Series({run: scores[run] for run in four})


def _lead(row: str, measure: str = "BLEU") -> tuple[float, float]:
    """By how much base is better than a row of variations.csv (perplexity: nats), and the noise."""
    with _log("variations.csv") as runs:
        lead, noise = leads(runs, measure).loc[row]
    return -float(lead), float(noise)  # noise is nan if no row shares two seeds with base


def _decided(*leads: tuple[float, float]) -> bool | None:
    """Whether all leads are real; False if one is a real lag, None if noise hides the answer."""
    if any(lead < -noise for lead, noise in leads):
        return False
    return True if all(lead > noise for lead, noise in leads) else None


def _told(*leads: tuple[float, float], unit: str = "BLEU") -> str:
    """Leads with their noise."""
    return ", ".join(f"{lead:+.2f} ± {noise:.2f}" for lead, noise in leads) + f" {unit}"


@claim(
    "s5.4-perplexity",
    "5.4",
    "exact",
    "In Table 3 label smoothing makes perplexity worse.",
    "5-4-regularization#four-models-10-000-captions",
)
def _smoothing_costs_perplexity() -> tuple[bool, str]:
    table = table_3()
    smoothed = table.index.str.startswith("D: label_smoothing") | (table.index == "base")
    printed = (
        table[smoothed].sort_values("label_smoothing").set_index("label_smoothing")["perplexity"]
    )
    told = ", ".join(f"{perplexity} with {rate}" for rate, perplexity in printed.items())
    ours = _by_regularization("perplexity")[0.3]
    told += f"; our 10,000 captions: {ours[0.1]:.1f} with 0.1, {ours[0.0]:.1f} without"
    return bool(printed.is_monotonic_increasing and printed.is_unique), told


@claim(
    "s5.4-bleu",
    "5.4",
    "small-scale",
    "Label smoothing makes accuracy and BLEU better.",
    "5-4-regularization#four-models-10-000-captions",
)
def _smoothing_gains_bleu() -> tuple[bool | None, str]:
    gains = [
        runs[dropout, 0.1] - runs[dropout, 0.0]
        for runs in map(_by_regularization, ("accuracy", "BLEU"))
        for dropout in (0.0, 0.3)
    ]
    leads = [_lead("D: label_smoothing = 0.0", measure) for measure in ("accuracy", "BLEU")]
    told = f"10,000 captions {gains[2]:+.1f}, {gains[3]:+.1f}; small Table 3 {_told(leads[1])}"
    better = _decided(*leads)
    agree = better is bool(min(gains) > 0)  # a bool of numpy's would never be the same object
    return (better if agree else None), told


_COSTS = "6-1-machine-translation#quality-against-cost"


def _systems() -> tuple[pd.DataFrame, pd.Series, pd.Series]:
    """Table 2: the systems of others, base and big."""
    table = table_2()
    ours = table[table.kind == "Transformer"].set_index("model")
    base, big = (ours.loc[f"Transformer ({size})"] for size in ("base", "big"))
    return table[table.kind != "Transformer"], base, big


@claim(
    "s6.1-base-beats-all",
    "6.1",
    "exact",
    "In German base is ahead of all earlier systems, for a fraction of what any of them cost.",
    _COSTS,
)
def _base_is_ahead_and_cheap() -> tuple[bool, str]:
    others, base, _ = _systems()
    best, cheapest = others["BLEU EN-DE"].max(), others["FLOPs EN-DE"].min()
    ours, share = base["BLEU EN-DE"], base["FLOPs EN-DE"] / cheapest
    told = f"{ours} above {best}, for {share:.2f} of the cheapest one's cost"
    return bool(ours > best and share < 0.5), told


@claim(
    "t2-base",
    "6.1",
    "full-scale",
    "Base scores 27.3 BLEU from English to German and 38.1 from English to French.",
    "6-1-machine-translation#what-training-cost",
    command="\n".join(map(_full_run, ("base-en-de", "base-en-fr"))),
)
def _base_reaches_its_scores() -> tuple[bool, str]:
    _, base, _ = _systems()
    german = _reproduced("base-en-de.json", TEXTS["compound-split"], base["BLEU EN-DE"])
    french = _reproduced("base-en-fr.json", TEXTS["tokenized"], base["BLEU EN-FR"])
    return bool(german.holds and french.holds), f"German {german.numbers}; French {french.numbers}"


@claim(
    "s6.1-enfr-41.0",
    "6.1",
    "exact",
    "The big model scores 41.0 BLEU from English to French.",
    "6-1-machine-translation#what-training-cost",
)
def _text_and_table_agree_on_french() -> tuple[bool, str]:
    printed = _systems()[2]["BLEU EN-FR"]
    return bool(printed == 41.0), f"abstract and Table 2: {printed}"


@claim(
    "s6.1-enfr-quarter",
    "6.1",
    "exact",
    "In French big is ahead of all single models, for under a quarter of the best one's cost.",
    _COSTS,
)
def _big_is_ahead_in_french_and_cheap() -> tuple[bool, str]:
    others, _, big = _systems()
    single = others[others.kind == "single"].sort_values("BLEU EN-FR", na_position="first").iloc[-1]
    least, share = min(41.0, big["BLEU EN-FR"]), big["FLOPs EN-FR"] / single["FLOPs EN-FR"]
    told = f"{least} at least, {single['model']} {single['BLEU EN-FR']}; {share:.2f} of its cost"
    return bool(least > single["BLEU EN-FR"] and share < 0.25), told


@claim(
    "s6.1-average",
    "6.1",
    "definition",
    "Scored is the mean of the last 5 checkpoints (base, 10 minutes apart for the authors) or 20.",
    "6-1-machine-translation#the-mean-of-the-last-checkpoints",
)
def _mean_of_the_last_checkpoints() -> tuple[bool, str]:
    presets = preset("base-en-de"), preset("big-en-de")
    found = [config.average for config in presets]
    minutes = presets[0].save_updates * 0.4 / 60  # 0.4 seconds an update, section 5.2
    values = torch.arange(1.0, 6.0) ** 2
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{i}.safetensors" for i in range(len(values))]
        for path, value in zip(paths, values, strict=True):
            write_tensors(path, {"model.w": value.expand(2)}, {})
        mean = average_checkpoints(paths)["w"]
    error = (mean - values.mean()).abs().max().item()
    told = f"{found[0]} and {found[1]}, base every {presets[0].save_updates:,} updates"
    right = found == [5, 20] and math.isclose(minutes, 10) and error < 1e-5
    return right, f"{told}; error of a mean {error:.0e}"


@claim(
    "s6.1-search",
    "6.1",
    "definition",
    "Search has 4 hypotheses, α = 0.6, at most 50 tokens more than the input, and ends early.",
    "6-1-machine-translation#the-search",
)
@_seeded()
def _search_as_in_the_paper() -> tuple[bool, str]:
    options = signature(beam_search).parameters
    defaults = [options[name].default for name in ("beam", "alpha", "max_extra")]
    model = make_model(9, 9, N=1, d_model=8, d_ff=8, h=2).eval()
    src, end = torch.tensor([[5, 6, 7, END]]), torch.arange(9) == END

    def search(wish: float) -> tuple[Hypothesis, list[int]]:
        """The best output, and the width of each step, if an end is so much likelier."""
        steps: list[int] = []
        count = lambda part, given, out: steps.append(out[..., 0].numel())
        move = lambda part, given, out: (out + wish * end).log_softmax(dim=-1)
        hooks = [model.generator.register_forward_hook(hook) for hook in (count, move)]
        best = beam_search(model, src)[0][0]
        for hook in hooks:
            hook.remove()
        return best, steps

    (longest, widths), (best, early) = search(-1e4), search(0.0)
    with patch("annotated.decoding.can_win", lambda log_prob, *rest: log_prob > -math.inf):
        late = search(0.0)[1]
    tokens, asked = len(longest.ids) + 1, len(best.ids) + 1  # the end is a token
    right = defaults == [4, 0.6, 50] and tokens == src.size(1) + 50 and max(widths) == 4
    right &= math.isclose(best.score, best.log_prob / ((5 + asked) / 6) ** 0.6, rel_tol=1e-6)
    told = "beam {}, α = {}, {} tokens more".format(*defaults)
    told += f": {tokens} for {src.size(1)}; decided after {len(early)} steps, else {len(late)}"
    return right and len(early) < len(late), told


@claim(
    "s6.1-cost",
    "6.1",
    "exact",
    "Time, GPUs and TFLOPS (2.8, 3.7, 6.0, 9.5 for K80, K40, M40, P100) give the costs of Table 2.",
    "6-1-machine-translation#from-hours",
)
def _hours_give_the_costs() -> tuple[bool, str]:
    _, base, big = _systems()
    pairs = [(12.0, base["FLOPs EN-DE"]), (3.5 * 24, big["FLOPs EN-DE"])]
    found = [(f"{training_cost(hours):.1e}", f"{cost:.1e}") for hours, cost in pairs]
    by_hand = 12 * 3600 * 8 * 9.5e12
    right = TFLOPS == {"K80": 2.8, "K40": 3.7, "M40": 6.0, "P100": 9.5}
    right &= math.isclose(training_cost(12), by_hand) and all(ours == cost for ours, cost in found)
    return right, "; ".join(f"{ours}, Table 2 {cost}" for ours, cost in found)


@claim(
    "t2-caption",
    "6.1",
    "exact",
    "The Transformer is best in both languages, for a fraction of what the best before it cost.",
    _COSTS,
)
def _best_scores_for_less() -> tuple[bool, str]:
    others, _, big = _systems()
    shares, leads = [], []
    for pair in "EN-DE", "EN-FR":
        best = others.loc[others[f"BLEU {pair}"].idxmax()]
        leads.append(big[f"BLEU {pair}"] - best[f"BLEU {pair}"])
        shares.append(big[f"FLOPs {pair}"] / best[f"FLOPs {pair}"])
    cheapest = big["FLOPs EN-DE"] / others["FLOPs EN-DE"].min()
    told = f"{shares[0]:.2f} and {shares[1]:.2f} of their cost"
    right = min(leads) > 0 and max(shares) < 0.5
    return bool(right), f"{told}; {cheapest:.1f} of the cheapest German system's"


_COUNTED = "6-2-model-variations#parameters-counted"


@claim(
    "t3-params",
    "6.2",
    "exact",
    "With the 37,000 pieces of section 5.1 base has 65 million parameters, and big 213.",
    _COUNTED,
)
def _parameters_of_base_and_big() -> tuple[bool, str]:
    printed = table_3().loc[["base", "big"], "parameters_millions"]
    counted = {name: count_parameters(row_config(name)) / 1e6 for name in printed.index}
    right = all(round(counted[name]) == printed[name] for name in counted)
    return right, ", ".join(f"{name} {millions:.1f} million" for name, millions in counted.items())


@claim(
    "t3-params-family",
    "6.2",
    "exact",
    "The printed sizes of base and of rows B and C agree with each other to the million.",
    _COUNTED,
)
def _parameters_agree() -> tuple[bool, str]:
    printed = table_3()["parameters_millions"].dropna().drop("big")
    least, most = 0.0, math.inf
    for name, millions in printed.items():
        config = row_config(str(name), vocab=1)
        rest = count_parameters(config) - config.d_model  # all but the embedding
        least = max(least, (1e6 * (millions - 0.5) - rest) / config.d_model)
        most = min(most, (1e6 * (millions + 0.5) - rest) / config.d_model)
    return least <= most, f"{len(printed)} rows fit {least:,.0f} to {most:,.0f} pieces"


@claim(
    "t3-base-dev",
    "6.2",
    "full-scale",
    "Base reaches 25.8 BLEU on newstest2013 without averaging, at a perplexity of 4.92 a piece.",
    "6-2-model-variations#the-full-scale-command",
    command=f"{full_command('base')}\n"
    "annotated evaluate runs/base --split dev --out data/results/base-dev.json",
)
def _base_on_the_development_set() -> tuple[bool, str]:
    return _on_the_development_set("base")


def _on_the_development_set(name: str) -> tuple[bool, str]:
    """Whether a row of Table 3, trained at full size, has the BLEU printed there.

    Perplexity is told and does not decide: it belongs to the pieces of one vocabulary.
    """
    with _log(f"{name}-dev.json") as rows:
        found = _entry(rows, split="dev", text=TEXTS["compound-split"])
        score, perplexity = float(found["score"]), float(found["perplexity"])
    right = abs(score - table_3().loc[name, "BLEU"]) <= 0.3
    return bool(right), f"{score:.1f} BLEU, perplexity {perplexity:.2f}"


@claim(
    "t3-big-dev",
    "6.2",
    "full-scale",
    "Big reaches 26.4 BLEU on newstest2013 without averaging, at a perplexity of 4.33 a piece.",
    "6-2-model-variations#the-full-scale-command",
    command=f"{full_command('big')}\n"
    "annotated evaluate runs/big --split dev --out data/results/big-dev.json",
)
def _big_on_the_development_set() -> tuple[bool, str]:
    return _on_the_development_set("big")


_SMALL = "6-2-model-variations#every-row-small"


@claim(
    "t3-A-one",
    "6.2",
    "small-scale",
    "One head is worse than eight: in Table 3 by 0.9 BLEU against the best setting.",
    _SMALL,
)
def _one_head_is_worse() -> tuple[bool | None, str]:
    table = table_3().query("group in ('base', 'A')")["BLEU"]
    gap, small = table.max() - table["A: h = 1"], _lead("A: h = 1")
    holds = _decided(small) if round(gap, 1) == 0.9 else False
    return holds, f"base leads: Table 3 by {gap:.1f}, small by {_told(small)}"


def _worse_in_quality(*names: str) -> tuple[bool | None, str]:
    """Whether rows are worse than base: in Table 3 by both measures, and small by perplexity."""
    printed, small = table_3(), [_lead(name, "perplexity") for name in names]
    base = printed.loc["base"]
    worse = (printed["BLEU"] < base["BLEU"]) & (printed["perplexity"] > base["perplexity"])
    gaps = ", ".join(f"{base['BLEU'] - printed.loc[name, 'BLEU']:+.1f}" for name in names)
    told = f"base leads: Table 3 by {gaps} BLEU, small by {_told(*small, unit='nats a piece')}"
    return (_decided(*small) if worse[[*names]].all() else False), told


@claim("t3-A-many", "6.2", "small-scale", "Too many heads are worse too.", _SMALL)
def _many_heads_are_worse() -> tuple[bool | None, str]:
    return _worse_in_quality("A: h = 32")


@claim("t3-B", "6.2", "small-scale", "A smaller d_k makes the model worse.", _SMALL)
def _narrow_keys_are_worse() -> tuple[bool | None, str]:
    return _worse_in_quality("B: d_k = 16", "B: d_k = 32")


def _along(measure: str) -> list[list[float]]:
    """Table 3 along N, d_model and d_ff, base among the others, from small to large."""
    table = table_3()
    chosen = [
        table[table.index.str.startswith(f"C: {size} ") | (table.index == "base")].sort_values(size)
        for size in ("N", "d_model", "d_ff")
    ]
    return [rows[measure].tolist() for rows in chosen]


def _listed(chains: list[list[float]]) -> str:
    return "; ".join(", ".join(map(str, chain)) for chain in chains)


@claim(
    "t3-C-perplexity",
    "6.2",
    "exact",
    "In Table 3 each larger model has the lower perplexity, along N, d_model and d_ff.",
    "6-2-model-variations#the-table-as-data",
)
def _larger_has_lower_perplexity() -> tuple[bool, str]:
    chains = _along("perplexity")
    return all(chain == sorted(set(chain), reverse=True) for chain in chains), _listed(chains)


@claim(
    "t3-C-bleu",
    "6.2",
    "exact",
    "In Table 3 each larger model has the higher BLEU, along N, d_model and d_ff.",
    "6-2-model-variations#the-table-as-data",
)
def _larger_has_higher_bleu() -> tuple[bool, str]:
    chains = _along("BLEU")
    return all(chain == sorted(set(chain)) for chain in chains), _listed(chains)


@claim(
    "t3-C-small",
    "6.2",
    "small-scale",
    "Bigger models are better, at our scale too.",
    _SMALL,
)
def _larger_is_better_when_small() -> tuple[bool | None, str]:
    table = table_3().query("group == 'C'")["perplexity"] - table_3().loc["base", "perplexity"]
    signs = {str(name): 1 if worse > 0 else -1 for name, worse in table.items()}
    leads = [(name, _lead(name, "perplexity")) for name in signs]
    agree = [_decided((signs[name] * lead, noise)) for name, (lead, noise) in leads]
    holds = True if agree.count(True) >= 6 else False if agree.count(False) > 1 else None
    return holds, f"{agree.count(True)} of 7 rows go as in Table 3, {agree.count(False)} against it"


@claim(
    "t3-D-dropout",
    "6.2",
    "small-scale",
    "Dropout helps against over-fitting.",
    "5-4-regularization#four-models-10-000-captions",
)
def _dropout_helps() -> tuple[bool | None, str]:
    printed = table_3()["BLEU"]
    perplexity, bleu = _by_regularization("perplexity"), _by_regularization("BLEU")
    right = printed["base"] > printed["D: dropout = 0.0"]
    for smoothing in (0.0, 0.1):
        right &= perplexity[0.3, smoothing] < perplexity[0.0, smoothing]
        right &= bleu[0.3, smoothing] > bleu[0.0, smoothing]
    told = f"{perplexity[0.0, 0.1]:.0f} without, {perplexity[0.3, 0.1]:.0f} with"
    gain = bleu[0.3, 0.1] - bleu[0.0, 0.1]
    leads = [_lead("D: dropout = 0.0", measure) for measure in ("BLEU", "perplexity")]
    told += f"; {gain:+.1f} BLEU. Table 3, small: {_told(leads[0])}"
    holds = None if right and _decided(*leads) is False else bool(right)
    return holds, f"10,000 captions: perplexity {told}"


@claim(
    "t3-E",
    "6.2",
    "small-scale",
    "Learned positions give nearly the same result as sinusoids.",
    _SMALL,
)
def _learned_positions_do_as_well() -> tuple[bool | None, str]:
    name = "E: positions = learned"
    table, (lead, noise) = table_3()[["perplexity", "BLEU"]], _lead(name)
    gap = table.loc["base"] - table.loc[name]
    near = abs(gap["perplexity"]) < 0.05 and abs(gap["BLEU"]) < 0.2 and abs(lead) + noise <= 1
    far = abs(lead) - noise > 1  # "nearly" is taken for less than a point, noise included
    told = f"sinusoids lead: Table 3 by {gap['BLEU']:.1f}, small by {_told((lead, noise))}"
    return (True if near else False if far else None), told


@claim(
    "t3-caption-perplexity",
    "6.2",
    "exact",
    "Perplexity per piece cannot be compared with perplexity per word.",
    "6-1-machine-translation#perplexity",
)
@_seeded()
def _perplexities_are_of_their_pieces() -> tuple[bool, str]:
    translator = load_pretrained("multi30k-en-de")
    source, told = ["A goalkeeper dives."], ["Ein Torwart hechtet."]
    found = likelihood(translator, source, told)
    src, ids = (
        torch.tensor(encode(translator.tokenizer, side))
        for encode, side in ((encode_source, source), (encode_target, told))
    )
    with torch.no_grad():
        out = translator.model(src, ids[:, :-1], None, subsequent_mask(ids.size(1) - 1))
        nats = -translator.model.generator(out)[0].gather(-1, ids[0, 1:, None]).sum().item()
    pieces = ids.size(1) - 1  # the start is not one of them, the end is
    words = len(moses_tokenise(told, "de")[0].split()) + 1
    per_word = math.exp(nats / words)
    right = math.isclose(found.perplexity ** (pieces / words), per_word, rel_tol=1e-4)
    numbers = f"{nats:.1f} nats are {found.perplexity:.1f} for each of {pieces} pieces"
    numbers += f", {per_word:.1f} for each of {words} words"
    return right and per_word > 1.1 * found.perplexity, numbers


@claim(
    "s6.3-longer",
    "6.3",
    "exact",
    "A tree written as a sequence is much longer than its sentence.",
    "6-3-constituency-parsing#a-tree-as-a-sentence",
)
def _trees_are_long() -> tuple[bool, str]:
    with _log("wsj-sample-lengths.csv") as lengths:
        ratio, trees = lengths["tokens"] / lengths["words"], lengths["trees"]
    mean, trees = (ratio * trees).sum() / trees.sum(), trees.sum()
    return bool(mean > 1.5), f"{mean:.2f} times, mean of {trees:,} trees of the Journal"


@claim(
    "s6.3-search",
    "6.3",
    "definition",
    "Parsing allows 300 tokens more than the input, with α = 0.3 and, if asked, a beam of 21.",
    "6-3-constituency-parsing#the-parser",
)
@_seeded()
def _search_for_trees() -> tuple[bool, str]:
    model = make_model(9, 9, N=1, d_model=8, d_ff=8, h=2).eval()
    src, never, widths = torch.tensor([[5, 6, END]]), torch.tensor([END]), []
    seen: dict[str, Any] = {}

    def count(part: nn.Module, given: Any, out: Tensor) -> Tensor:
        """Note how many hypotheses there are, and let none of them end."""
        widths.append(out[..., 0].numel())
        return out.index_fill(-1, never, -1e4)

    def translate_all(lines: list[str], **options: Any) -> list[str]:
        hook = model.generator.register_forward_hook(count)
        output = beam_search(model, src, **options)[0][0].ids
        hook.remove()
        seen.update(options, longest=len(output) + 1)  # the end is a token
        return lines

    translator: Any = SimpleNamespace(translate_all=translate_all)
    beam = build_parser().parse_args(["parse", "--beam", "21"]).beam
    Parser(translator).parse_all([["mice"]], beam=beam, hold=False)
    usual = signature(Parser.parse_all).parameters["beam"].default
    more, alpha = seen["longest"] - src.size(1), seen["alpha"]
    told = f"{more} more, α = {alpha}, {max(widths)} hypotheses (unless asked, {usual})"
    return (more, alpha, max(widths)) == (300, 0.3, 21), told


_WSJ = """\
# PENN: the folder of the Penn Treebank
annotated treebank write PENN runs/{data}{more}
{train}
annotated parse --model runs/{run} --treebank PENN --split test --beam 21 --free \
--out data/results/{run}.json"""
_MORE = """
# append the 17 million sentences to runs/semi/train.words, their trees to runs/semi/train.trees"""
_DROPPED = f"{_TRAIN} --preset parser-wsj --dropout 0.2 --attention-dropout 0.2"
_TREES = "6-3-constituency-parsing#the-full-scale-command"
_OURS = "Transformer (4 layers)"


def _f1(run: str, training: str) -> tuple[bool, str]:
    """Whether a parser of the paper's size has the F1 of Table 4."""
    table = table_4().query("parser == @_OURS").set_index("training")["F1"]
    with _log(f"{run}.json") as rows:
        found = float(_entry(rows, split="test", sentences="all")["Bracketing FMeasure"])
    printed = table[training]
    return bool(abs(found - printed) <= 0.3), f"{found:.1f}, the paper {printed}"


@claim(
    "s6.3-wsj",
    "6.3",
    "full-scale",
    "Trained on the Journal alone (4 layers, d_model = 1024, 16,000 pieces) it reaches 91.3 F1.",
    _TREES,
    command=_WSJ.format(run="parser-wsj", data="penn", more="", train=_DROPPED),
)
def _parser_of_the_journal() -> tuple[bool, str]:
    return _f1("parser-wsj", "WSJ only, discriminative")


@claim(
    "s6.3-semi",
    "6.3",
    "full-scale",
    "With 17 million sentences more, parsed by machines, and 32,000 pieces it reaches 92.7 F1.",
    _TREES,
    command=_WSJ.format(
        run="parser-semi", data="semi", more=_MORE, train=f"{_TRAIN} --preset parser-semi"
    ),
)
def _parser_of_many_sentences() -> tuple[bool, str]:
    return _f1("parser-semi", "semi-supervised")


_REPORTED = "6-3-constituency-parsing#what-the-paper-reports"


@claim(
    "s6.3-berkeley",
    "6.3",
    "exact",
    "On the Journal alone it beats the BerkeleyParser, which recurrent models did not.",
    _REPORTED,
)
def _ahead_of_the_berkeley_parser() -> tuple[bool, str]:
    table = table_4()
    only = table[table.training == "WSJ only, discriminative"].set_index("parser")["F1"]
    ours, berkeley, recurrent = (
        only[name] for name in (_OURS, "Petrov 2006", "Vinyals & Kaiser 2014")
    )
    told = f"{ours}, BerkeleyParser {berkeley}, recurrent {recurrent}"
    return bool(ours > berkeley > recurrent), told


@claim(
    "s6.3-all-but-one",
    "6.3",
    "exact",
    "It beats all earlier results but one, that of recurrent neural network grammars.",
    _REPORTED,
)
def _ahead_of_all_but_one() -> tuple[bool, str]:
    table = table_4().set_index("parser")["F1"]
    above = table[table > table[_OURS].max()]
    told = ", ".join(f"{name} {score}" for name, score in above.items())
    return list(above.index) == ["Dyer 2016"], f"above {table[_OURS].max()}: {told}"


@claim(
    "s7-faster",
    "7",
    "exact",
    "For translation it can be trained at less cost than recurrent or convolutional models.",
    _COSTS,
)
def _trained_at_less_cost() -> tuple[bool, str]:
    others, *ours = _systems()
    cheapest = others[["FLOPs EN-DE", "FLOPs EN-FR"]].min()
    base, big = (size[cheapest.index] / cheapest for size in ours)
    told = "cost in those of the cheapest other: base {:.2f} and {:.2f}, big {:.2f} and {:.2f}"
    return bool(max(base) < 1), told.format(*base, *big)


@claim(
    "s7-both",
    "7",
    "exact",
    "It is a new best in both translation tasks, in German even above all ensembles.",
    _COSTS,
)
def _new_best_in_both() -> tuple[bool, str]:
    others, _, big = _systems()
    single = others[others.kind == "single"]
    german, french = (big[f"BLEU {p}"] - others[f"BLEU {p}"].max() for p in ("EN-DE", "EN-FR"))
    alone = big["BLEU EN-FR"] - single["BLEU EN-FR"].max()
    told = f"German {german:+.2f}; French {alone:+.2f} to single models, {french:+.2f} to all"
    return bool(german > 0 and alone > 0), told


MARKS = {
    "holds": "✓", "holds at small scale": "≈", "not reproduced here": "≉", "differs": "✗",
    "open": "○",
}  # fmt: skip


def _row(row: dict[str, str]) -> str:
    """A claim as a row of HTML."""
    text = {key: html.escape(value) for key, value in row.items()}
    page, _, anchor = text["where"].partition("#")
    link = f"{page}.html#{anchor}" if anchor else f"{page}.html"
    words = re.sub(r"\S+", r"<span>\g<0></span>", text["command"])
    command = f"<br><code>{words}</code>" if words else ""
    return (
        f'<tr id="claim-{text["id"]}" data-section="{text["section"]}" '
        f'data-verdict="{text["verdict"]}" data-kind="{text["kind"]}">'
        f'<td><a href="{link}">{text["section"]}</a></td>'
        f"<td>{text['statement']} <small>{text['kind']}</small></td>"
        f'<td><span class="verdict"><a href="checks.html#claims.{text["check"]}">'
        f"{MARKS[row['verdict']]} {text['verdict']}</a></span></td>"
        f"<td>{text['numbers']}{command}</td></tr>"
    )


def as_html(rows: list[dict[str, str]]) -> str:
    """Rows of the ledger as a table; in the book its rows can be filtered."""
    head = "".join(f"<th>{name}</th>" for name in ("section", "claim", "verdict", "evidence"))
    body = "\n".join(map(_row, rows))
    table = f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"
    return f'<div class="ledger">{table}</div>'


def scoreboard(rows: list[dict[str, str]]) -> str:
    """Numbers of claims by section and verdict as a table; in the book they lead to the claims."""
    table = pd.DataFrame(rows).assign(section=lambda t: t["section"].map(_part))
    counts = table.groupby(["section", "verdict"], sort=False).size().unstack(fill_value=0)
    counts = counts.reindex(columns=list(VERDICTS), fill_value=0)
    lines = []
    for section, count in [("all", counts.sum()), *counts.iterrows()]:
        cells = "".join(_number(str(section), verdict, count[verdict]) for verdict in VERDICTS)
        lines.append(f"<tr><th>{section}</th>{cells}</tr>")
    head = "".join(f"<th>{MARKS[verdict]} {verdict}</th>" for verdict in VERDICTS)
    return (
        f'<div class="scoreboard"><table><thead><tr><th>section</th>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _part(section: str) -> str:
    """3.2 of 3.2.1."""
    return ".".join(section.split(".")[:2])


def _number(section: str, verdict: str, count: int) -> str:
    """A number that leads to the claims it counts."""
    chosen = "" if section == "all" else f"&amp;section={section}"
    address = f"claims.html?verdict={quote(verdict)}{chosen}#the-ledger"
    link = f'<a href="{address}">{count}</a>'
    return f"<td>{link if count else ''}</td>"
