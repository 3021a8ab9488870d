"""What a GPU would be given, without one: the trainer's own update on torch's `meta` device.

Tensors of that device have shapes and types, but no numbers. Whoever asks for a number, or mixes
devices, gets an error, as a GPU's queue would get a halt; and every operator that runs can be
counted, with its arithmetic and with what it keeps for the backward pass.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from annotated.decoding import extend_beam, next_log_probs, open_beam
from annotated.machinery.corpora.encoding import EncodedPairs
from annotated.machinery.runs import trainer as training
from annotated.machinery.runs.batches import GlobalBatch
from annotated.machinery.runs.processes import Processes
from annotated.model import EncoderDecoder, build_model
from annotated.regularization import without_dropout
from annotated.training import TrainingConfig, model_config

META = torch.device("meta")
PEAKS = {  # FLOPs per second, dense, in 16 bits where the card has fast ones
    "P100": 9.5e12, "T4": 65e12, "A100": 312e12, "H100": 989e12, "H200": 989e12,
}  # fmt: skip
CARDS = "T4", "A100", "H100"
MEMORIES = 16, 24, 80, 141  # GB of usual cards
STATE = 16  # bytes per weight: itself, its gradient, and Adam's two means, in single precision
WORKSPACE = 12 * 2**27  # bytes of a block of logits and what is made of it (`blockwise_loss`)
LAUNCH = 5e-6  # seconds of Python and driver for an operator; assumed, typical of PyTorch
RESERVED = 1.5  # GB for CUDA itself and for what its allocator cannot fill


class AsAutocast(TorchFunctionMode):
    """What autocast does to the operators of the model: products in bfloat16, norms in float32.

    `torch.autocast` does not know the device `meta`. Attention becomes the operator that a GPU
    chooses where there is a mask.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weights: dict[int, Tensor] = {}  # each is cast once per forward pass

    def low(self, x: Any) -> Any:
        if not isinstance(x, Tensor) or x.dtype != torch.float32:
            return x
        if not x.is_leaf or not x.requires_grad:
            return x.bfloat16()
        if id(x) not in self.weights:
            self.weights[id(x)] = x.bfloat16()
        return self.weights[id(x)]

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


class Operators(TorchDispatchMode):
    """Counts the operators that would be launched: all but views and memory without content."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.on = 0, True

    def __torch_dispatch__(
        self, function: Any, types: Any, given: Any = (), named: Any = None
    ) -> Any:
        returns = function._schema.returns
        view = any(r.alias_info and not r.alias_info.is_write for r in returns)
        if self.on and not view and "empty" not in function.__name__:
            self.count += 1
        return function(*given, **(named or {}))


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
        flops: of products, a multiply-add being two.
        source, tokens: of the source and of the target, padding included.
        parts: of the update, one after the other.
        kept: bytes that the largest part keeps for its backward pass.   part_tokens: its tokens.
        weights: numbers that are learned.
    """

    operators: int
    flops: int
    source: int
    tokens: int
    parts: int
    kept: int
    part_tokens: int
    weights: int

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
        operators, flops = Operators(), FlopCounterMode(display=False)
        count = lambda on: lambda *_: setattr(operators, "on", on)
        trainer.optimizer.register_step_pre_hook(count(False))
        trainer.optimizer.register_step_post_hook(count(True))
        with AsAutocast() as cast, operators, flops:
            run, parts_kept = trainer.run_loss, []

            def counted(src: Tensor, tgt: Tensor) -> Tensor:
                cast.weights.clear()
                with kept_bytes(known) as total:
                    loss = run(src, tgt)
                parts_kept.append((total[0], tgt[:, 1:].numel()))
                return loss

            trainer.run_loss = counted
            trainer.train_step(batch)
    return Report(
        operators.count,
        flops.get_total_flops(),
        sum(src.numel() for _, src, _ in batch.share),
        sum(tokens for _, tokens in parts_kept),
        parts,
        *max(parts_kept),
        sum(p.numel() for p in weights),
    )


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
    return operators.count // steps


def tables(pairs: EncodedPairs, configs: dict[str, TrainingConfig]) -> list[dict[str, Any]]:
    """The numbers of `python -m benchmarks gpu --dry`, a row for each model and number of parts."""
    rows = []
    for name, config in configs.items():
        for parts in (1, 8):
            r = update(config, pairs, parts)
            row: dict[str, Any] = {"model": name, "parts": parts, "operators": r.operators}
            row |= {"tokens": r.tokens, "flops": float(f"{r.flops:.4g}")}
            row |= {"kept_per_token": round(r.kept / r.part_tokens), "weights": r.weights}
            row["largest_part"] = {str(size): r.largest_part(size) for size in MEMORIES}
            for card in CARDS:
                least = r.flops / PEAKS[card]  # seconds
                # The share of the peak above which launching takes longer than computing.
                limit = round(least / (r.operators * LAUNCH), 2)
                row[card] = {"milliseconds_at_peak": round(1000 * least, 1), "launch_limit": limit}
            row["search_step"] = {str(beam): search_step(config, beam) for beam in (1, 4)}
            rows.append(row)
    return rows
