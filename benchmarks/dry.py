"""What a GPU would be given, without one: the trainer's own update on torch's `meta` device.

Tensors of that device have shapes and types, but no numbers. Whoever asks for a number, or mixes
devices, gets an error, as a GPU's queue would get a halt; and every operator that runs can be
counted, with its arithmetic and with what it keeps for the backward pass.
"""

import itertools
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from annotated.data import UNK
from annotated.decoding import extend_beam, next_log_probs, open_beam
from annotated.machinery.corpora.encoding import EncodedPairs
from annotated.machinery.files import resource_path
from annotated.machinery.runs import trainer as training
from annotated.machinery.runs.batches import BatchStream, GlobalBatch
from annotated.machinery.runs.processes import Processes
from annotated.model import EncoderDecoder, build_model
from annotated.regularization import without_dropout
from annotated.training import TrainingConfig, model_config

META = torch.device("meta")
PEAKS = {  # FLOPs per second, dense, in 16 bits where the card has fast ones
    "P100": 9.5e12, "T4": 65e12, "A100": 312e12, "H100": 989e12, "H200": 989e12,
}  # fmt: skip
BANDWIDTHS = {"T4": 0.32e12, "A100": 2.0e12, "H100": 3.35e12, "H200": 4.8e12}  # bytes per second
CARDS = "T4", "A100", "H100"
MEMORIES = 16, 24, 80, 141  # GB of usual cards
STATE = 16  # bytes per weight: itself, its gradient, and Adam's two means, in single precision
WORKSPACE = 12 * 2**27  # bytes of a block of logits and what is made of it (`blockwise_loss`)
SPARSE = "gather", "scatter_", "scatter_add_"  # read and write only what their index names
# Seconds of Python and driver for an operator: an update of the base model in 8 parts, which is
# little but launches, took 405 ms on an H100 (data/results/gpu.json) and had 11,180 operators.
LAUNCH = 405e-3 / 11_180
RESERVED = 1.5  # GB for CUDA itself and for what its allocator cannot fill


class AsAutocast(TorchFunctionMode):
    """What autocast does to the operators of the model: products in bfloat16, norms in float32.

    `torch.autocast` does not know the device `meta`. Attention becomes the operator that a GPU
    chooses where there is a mask.
    """

    def __init__(self) -> None:
        super().__init__()
        # Each is cast once per update, and kept, so that no other tensor gets its id.
        self.weights: dict[int, tuple[Tensor, Tensor]] = {}

    def low(self, x: Any) -> Any:
        if not isinstance(x, Tensor) or x.dtype != torch.float32:
            return x
        if not x.is_leaf or not x.requires_grad:
            return x.bfloat16()
        if id(x) not in self.weights:
            self.weights[id(x)] = x, x.bfloat16()
        return self.weights[id(x)][1]

    def __torch_function__(
        self, function: Any, types: Any, given: Any = (), named: Any = None
    ) -> Any:
        named = named or {}
        if function is F.scaled_dot_product_attention:
            return self.attention(*map(self.low, given), **named)
        if function in (F.linear, torch.matmul, Tensor.matmul, Tensor.__matmul__):
            return function(*map(self.low, given), **named)
        if function is F.layer_norm:
            return function(given[0].float(), *given[1:], **named)
        return function(*given, **named)

    @staticmethod
    def attention(
        query: Tensor, key: Tensor, value: Tensor,
        attn_mask: Tensor | None = None, dropout_p: float = 0.0, **named: Any,
    ) -> Tensor:  # fmt: skip
        bias = None
        if attn_mask is not None:
            bias = torch.zeros(attn_mask.shape, dtype=query.dtype, device=query.device)
            bias = bias.masked_fill(~attn_mask, float("-inf"))
            bias = bias.expand(*query.shape[:-1], key.size(-2))
        kernel = torch.ops.aten._scaled_dot_product_efficient_attention
        return kernel(query, key, value, bias, True, dropout_p)[0]


class Operator(NamedTuple):
    """What was launched: its name, its floating-point operations, and the bytes that it moves."""

    name: str
    flops: int
    bytes: int

    def is_product(self) -> bool:
        return self.flops > 0

    def seconds(self, card: str) -> float:
        """The time that the card needs at its peak, or at its bandwidth if that is longer."""
        return max(self.flops / PEAKS[card], self.bytes / BANDWIDTHS[card])


def moved(x: Any) -> int:
    """The bytes of a tensor; what an expanded one repeats is moved once."""
    if not isinstance(x, Tensor):
        return 0
    return min(x.numel() * x.itemsize, x.untyped_storage().nbytes())


class Operators(TorchDispatchMode):
    """Lists the operators that would be launched: all but views and memory without content."""

    def __init__(self) -> None:
        super().__init__()
        self.found, self.on = list[Operator](), True

    def __torch_dispatch__(
        self, function: Any, types: Any, given: Any = (), named: Any = None
    ) -> Any:
        returns = function._schema.returns
        view = any(r.alias_info and not r.alias_info.is_write for r in returns)
        result = function(*given, **(named or {}))
        if self.on and not view and not re.search("empty|_unsafe_view", function.__name__):
            packet = function.overloadpacket
            count = flop_registry.get(packet, lambda *_, **__: 0)
            flops = count(*given, **(named or {}), out_val=result)
            read = given, {**(named or {}), "out": None}  # which is the result
            sizes = [*filter(None, map(moved, tree_leaves((read, result))))]
            if packet.__name__ in SPARSE:
                sizes = [min(sizes)] * len(sizes)
            self.found.append(Operator(packet.__name__, flops, sum(sizes)))
        return result


def predicted(operators: list[Operator], card: str) -> float:
    """The seconds of an update whose operators a processor queues, one every LAUNCH seconds."""
    queued = done = 0.0
    for operator in operators:
        queued += LAUNCH
        done = max(queued, done) + operator.seconds(card)
    return done


@contextmanager
def kept_bytes(parameters: set[int]) -> Iterator[list[int]]:
    """Count the bytes that autograd keeps in the block for the backward pass, each storage once.

    Args:
        parameters: storages that are there anyway.

    Yields: a list of one number, which is complete when the block ends.
    """
    seen: dict[int, Tensor] = {}  # holds each, so that no storage gets the name of another
    total = [0]

    def keep(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage._cdata not in parameters | seen.keys():
            seen[storage._cdata] = x
            total[0] += storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        yield total


def meta_model(config: TrainingConfig) -> EncoderDecoder:
    with META:
        return build_model(model_config(config))


@contextmanager
def meta_trainer(config: TrainingConfig, pairs: EncodedPairs) -> Iterator[training.Trainer]:
    """A trainer whose model and batches have no numbers: nothing is pinned, no loss is read."""
    model = meta_model(config)
    with (
        mock.patch.object(training, "built", lambda build, config: model),
        mock.patch.object(training, "Readback", lambda total: total),
        mock.patch.object(Tensor, "pin_memory", lambda x: x),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield training.Trainer(config, pairs, pairs, Processes(device=META))


@dataclass
class Report:
    """What an update is, counted.

    Args:
        operators: launched, those of the optimizer aside, which a GPU fuses into a few.
        source, tokens: of the source and of the target, padding included.
        parts: of the update, one after the other.
        kept: bytes that the largest part keeps for its backward pass.   part_tokens: its tokens.
        weights: numbers that are learned.
    """

    operators: list[Operator]
    source: int
    tokens: int
    parts: int
    kept: int
    part_tokens: int
    weights: int

    @property
    def fused(self) -> int:
        """About the number of launches if what is between two products were one kernel."""
        runs = itertools.groupby(self.operators, Operator.is_product)
        return sum(len([*run]) if product else 1 for product, run in runs)

    def by_operator(self, card: str) -> pd.DataFrame:
        """Launches, gigabytes and milliseconds of each operator, the slowest first."""
        rows = [(o.name, 1, o.bytes / 1e9, 1000 * o.seconds(card)) for o in self.operators]
        table = pd.DataFrame(rows, columns=["operator", "launches", "GB", "ms"])
        return table.groupby("operator").sum().sort_values("ms", ascending=False)

    @property
    def flops(self) -> int:
        """Of products, a multiply-add being two."""
        return sum(operator.flops for operator in self.operators)

    def largest_part(self, gigabytes: float) -> int:
        """Target tokens of the largest part of an update on a card with so much memory."""
        free = (gigabytes - RESERVED) * 1e9 - STATE * self.weights - WORKSPACE
        return max(0, int(free / (self.kept / self.part_tokens)))


def update(config: TrainingConfig, pairs: EncodedPairs, parts: int = 1) -> Report:
    """Make one update of the trainer, and count.

    Raises: RuntimeError or NotImplementedError if the code asks for a number, or mixes devices.
    """
    config = replace(config, precision="float32", parts=parts, compile=False)
    with meta_trainer(config, pairs) as trainer:
        batch: GlobalBatch = next(trainer.stream.updates(0, 0))
        weights = list(trainer.model.parameters())
        known = {p.untyped_storage()._cdata for p in weights}
        operators = Operators()
        count = lambda on: lambda *_: setattr(operators, "on", on)
        trainer.optimizer.register_step_pre_hook(count(False))
        trainer.optimizer.register_step_post_hook(count(True))
        with AsAutocast(), operators:
            run, parts_kept = trainer.loss.forward, []

            def counted(src: Tensor, tgt: Tensor) -> Tensor:
                with kept_bytes(known) as total:
                    loss = run(src, tgt)
                parts_kept.append((total[0], tgt[:, 1:].numel()))
                return loss

            trainer.loss.forward = counted
            trainer.train_step(batch)
    return Report(
        operators.found,
        sum(src.numel() for _, src, _ in batch.share),
        sum(tokens for _, tokens in parts_kept),
        parts,
        *max(parts_kept),
        sum(p.numel() for p in weights),
    )


def counted_pairs(corpus: str) -> EncodedPairs:
    """Pairs as long as those of a corpus whose lengths are among the book's logs."""
    table = pd.read_csv(resource_path("results") / f"{corpus}-lengths.csv")
    lengths = table[["source", "target"]].to_numpy().repeat(table["pairs"], axis=0)
    return EncodedPairs(np.full(lengths.sum(), UNK, np.uint16), lengths)


def shapes(config: TrainingConfig, pairs: EncodedPairs) -> dict[str, float]:
    """What the batches of an epoch are like on a GPU.

    Returns: batches, shapes (rows, src_len, tgt_len), and the padding relative to the tokens.
    """
    stream, found = BatchStream(config, pairs, Processes()), Counter[tuple[int, ...]]()
    for part in itertools.takewhile(lambda part: part.epoch == 0, stream.micro_batches(0, 0)):
        rows, multiple = stream.shape(part.pairs) or (len(part.pairs), 8)
        widths = (pairs.padded(part.pairs, side, multiple).shape[1] - side for side in (0, 1))
        found[(rows, *widths)] += 1
    positions = sum(rows * (src + tgt) * count for (rows, src, tgt), count in found.items())
    tokens = int(pairs.lengths[stream.kept].sum()) - len(stream.kept)
    padding = round(positions / tokens - 1, 4)
    return {"batches": sum(found.values()), "shapes": len(found), "padding": padding}


def search_step(config: TrainingConfig, beam: int, steps: int = 2) -> int:
    """Make steps of a search, without its decision when to stop; returns operators per step.

    Raises: as `update`.
    """
    model = meta_model(config)
    src = torch.zeros(8, 24, dtype=torch.long, device=META)
    mask = torch.ones(8, 1, 24, dtype=torch.bool, device=META)
    with torch.inference_mode(), without_dropout(model):
        state = open_beam(model, src, mask, extra=50, most=None)
        with Operators() as operators:
            for _ in range(steps):
                extend_beam(state, next_log_probs(model, state), beam)
    return len(operators.found) // steps


def tables(pairs: EncodedPairs, configs: dict[str, TrainingConfig]) -> list[dict[str, Any]]:
    """The numbers of `python -m benchmarks gpu --dry`, a row for each model and number of parts."""
    rows = []
    for name, config in configs.items():
        for parts in (1, 8):
            r = update(config, pairs, parts)
            row: dict[str, Any] = {"model": name, "parts": parts, "operators": len(r.operators)}
            row |= {"fused": r.fused, "GB": round(sum(o.bytes for o in r.operators) / 1e9, 1)}
            row |= {"tokens": r.tokens, "flops": float(f"{r.flops:.4g}")}
            row |= {"kept_per_token": round(r.kept / r.part_tokens), "weights": r.weights}
            row["largest_part"] = {str(size): r.largest_part(size) for size in MEMORIES}
            for card in CARDS:
                least = r.flops / PEAKS[card]  # seconds
                # The share of the peak above which launching takes longer than computing.
                limit = round(least / (len(r.operators) * LAUNCH), 2)
                row[card] = {"milliseconds_at_peak": round(1000 * least, 1), "launch_limit": limit}
                row[card]["predicted"] = round(1000 * predicted(r.operators, card), 1)
            row["search_step"] = {str(beam): search_step(config, beam) for beam in (1, 4)}
            rows.append(row)
    return rows
