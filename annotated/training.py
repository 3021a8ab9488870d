"""5.2 Hardware and Schedule (chapters/5-2-hardware-schedule.md).

Generated from the chapter's export cells by book/extract.py: edit it there.
"""

import hashlib
import itertools
import json
import math
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from tqdm import tqdm

from annotated.data import (
    PAD,
    Batch,
    EncodedPairs,
    learn_vocabulary,
    load_pairs,
    pad_ids,
    parse_data,
    token_batches,
)
from annotated.files import (
    FileError,
    MissingFile,
    append_text,
    fits,
    locked,
    read_json,
    read_tensors,
    reading,
    settings,
    write_tensors,
    write_text,
)
from annotated.model import TransformerConfig, build_model, parameter_shapes
from annotated.optimizer import paper_optimizer
from annotated.regularization import projected_cross_entropy
from annotated.translator import load_pretrained

__all__ = [
    "INTERRUPTED",
    "PRESETS",
    "Group",
    "ModelLoss",
    "Part",
    "Processes",
    "Progress",
    "RunLog",
    "SimpleLossCompute",
    "StopRequest",
    "Stopped",
    "TrainState",
    "Trainer",
    "TrainingConfig",
    "agree",
    "ahead",
    "average_checkpoints",
    "check_resume",
    "check_training",
    "checkpoints",
    "dev_loss",
    "digest",
    "encode_corpus",
    "find_precision",
    "groups",
    "interrupt",
    "join_processes",
    "leaving",
    "load_checkpoint",
    "longest_sentence",
    "mix",
    "model_config",
    "newest_checkpoint",
    "part",
    "parts_from",
    "prepare",
    "preset",
    "progress_bar",
    "read_checkpoint",
    "read_config",
    "read_log",
    "ready",
    "record",
    "run",
    "run_epoch",
    "run_lock",
    "run_vocabulary",
    "save_checkpoint",
    "save_model",
    "share_parts",
    "show",
    "start_run",
    "timed_update",
    "to_device",
    "train",
    "update",
]


class SimpleLossCompute:
    """Decoder output to loss.

    Args:
        generator: decoder output to log-probabilities.
        criterion: (log-probabilities, targets) to a summed loss, as `LabelSmoothing`.
    """

    def __init__(self, generator: nn.Module, criterion: nn.Module) -> None:
        self.generator = generator
        self.criterion = criterion

    def __call__(self, x: Tensor, y: Tensor, norm: Tensor | float) -> tuple[Tensor, Tensor]:
        """x: (batch, len, d_model)   y: ids (batch, len)   norm: what the sum is divided by.

        Returns: the summed loss, detached, and the loss per unit of norm to differentiate.
        """
        log_probs = self.generator(x)  # (batch, len, vocab)
        total = self.criterion(log_probs.flatten(0, 1), y.flatten())
        return total.detach(), total / norm


@dataclass
class TrainState:
    """What has been done so far.

    Args:
        step: batches seen.   accum_step: updates of the weights.
        samples: sentence pairs seen.   tokens: target tokens seen.
    """

    step: int = 0
    accum_step: int = 0
    samples: int = 0
    tokens: int = 0

    def count(self, samples: int, tokens: int) -> None:
        """Add a batch."""
        self.step += 1
        self.samples += samples
        self.tokens += tokens

    def update(self, optimizer: Optimizer | None, scheduler: LRScheduler | None) -> None:
        """Move the weights along the gathered gradients, and forget these."""
        if optimizer is None or scheduler is None:
            raise ValueError("expected an optimizer and a scheduler for training; got None")
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        scheduler.step()
        self.accum_step += 1


def run_epoch(
    data_iter: Iterable[Batch],
    model: nn.Module,
    loss_compute: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
    optimizer: Optimizer | None = None,
    scheduler: LRScheduler | None = None,
    mode: str = "train",
    accum_iter: int = 1,
    train_state: TrainState | None = None,
) -> tuple[float, TrainState]:
    """One pass over the data, learning or only measuring.

    Args:
        data_iter: batches.   model: called with (src, tgt, src_mask, tgt_mask).
        loss_compute: as `SimpleLossCompute`.
        optimizer, scheduler: needed by the training modes only.
        mode: "train", "train+log" (with a progress bar) or "eval".
        accum_iter: batches whose gradients are averaged in one update; the last may have fewer.
        train_state: counters to carry on; default: new ones.

    Returns: mean loss per target token in nats, and the counters.

    Raises: ValueError if the loss of a batch is not finite, if an optimizer is missing, or for
        another mode or an accum_iter below 1.
    """
    _check_epoch(mode, accum_iter)
    state, training = train_state or TrainState(), mode != "eval"
    total_loss, total_tokens = 0.0, 0
    pending = 0  # batches whose gradients wait for the update
    progress = tqdm(data_iter, disable=not mode.endswith("log"), leave=False, unit="batch")
    for batch in progress:
        loss, tokens = _step(batch, model, loss_compute, training, accum_iter)
        total_loss, total_tokens = total_loss + loss, total_tokens + tokens
        state.count(batch.src.size(0), tokens)
        if not math.isfinite(loss):
            raise ValueError(f"expected a finite loss; got {loss} in batch {state.step}")
        pending += training
        if pending == accum_iter:
            state.update(optimizer, scheduler)
            pending = 0
        progress.set_postfix(loss=f"{loss / max(tokens, 1):.2f}", refresh=False)
    if pending:  # a last, smaller group
        _scale_gradients(model, accum_iter / pending)
        state.update(optimizer, scheduler)
    return total_loss / max(total_tokens, 1), state


def _check_epoch(mode: str, accum_iter: int) -> None:
    if mode not in ("train", "train+log", "eval"):
        raise ValueError(f"expected mode out of train, train+log, eval; got {mode!r}")
    if not fits(accum_iter, int) or accum_iter < 1:
        raise ValueError(f"expected accum_iter of at least 1; got {accum_iter!r}")


def _step(
    batch: Batch,
    model: nn.Module,
    loss_compute: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
    training: bool,
    accum_iter: int,
) -> tuple[float, int]:
    """Loss and number of target tokens of a batch; if training, its gradients are added."""
    with torch.set_grad_enabled(training):
        out = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
        loss, loss_node = loss_compute(out, batch.tgt_y, batch.ntokens)
    if training:
        (loss_node / accum_iter).backward()
    return float(loss), int(batch.ntokens)


def _scale_gradients(model: nn.Module, factor: float) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad *= factor


def _option(default: Any, text: str, choices: tuple = (), fixed: bool = True) -> Any:
    """A field with the help text of its option; `fixed`: a run keeps it from start to end."""
    return field(default=default, metadata={"help": text, "choices": choices, "fixed": fixed})


@dataclass(frozen=True)
class TrainingConfig:
    """A training run; its fields are the options of `annotated train`.

    Raises: ValueError that says which field is wrong, and how.
    """

    out: str = _option("runs/multi30k-en-de", "folder of the run", fixed=False)
    data: str = _option("multi30k-en-de", "CORPUS-SRC-TGT; CORPUS is registered, or a folder")
    weights: str = _option("", "trained model to begin with, a name or a folder; none: at random")
    vocabulary: str = _option("bpe", "kind of pieces (section 5.1)", ("bpe", "wordpiece"))
    vocab_size: int = _option(5000, "pieces in the shared vocabulary")
    N: int = _option(4, "layers in each stack")
    d_model: int = _option(128, "width of the model")
    d_ff: int = _option(512, "inner width of the feed-forward layers")
    h: int = _option(4, "attention heads")
    d_k: int = _option(0, "width of a query and a key in a head; 0: d_model / h")
    d_v: int = _option(0, "width of a value in a head; 0: d_model / h")
    positions: str = _option("sinusoidal", "encoding of positions", ("sinusoidal", "learned"))
    norm_first: bool = _option(False, "normalise before each sub-layer; the paper: after it")
    dropout: float = _option(0.3, "P_drop (section 5.4)")
    attention_dropout: float = _option(0.0, "dropout of attention weights (section 6.3)")
    label_smoothing: float = _option(0.1, "ε of label smoothing (section 5.4)")
    src_tokens: int = _option(2000, "source tokens in an update at most, padding included")
    tgt_tokens: int = _option(2000, "target tokens in an update at most, padding included")
    parts: int = _option(0, "batches that an update is cut into; 0: one for each process")
    on_bad: str = _option(
        "auto",
        "what becomes of bad training pairs; auto: as the corpus is registered, or refuse",
        ("auto", "refuse", "drop"),
    )
    max_pieces: int = _option(256, "longer training sentences are left out, and counted")
    updates: int = _option(19000, "updates of the weights in all", fixed=False)
    warmup: int = _option(2000, "updates during which the learning rate rises (equation 3)")
    factor: float = _option(1.0, "multiplies the learning rate of equation 3")
    average: int = _option(10, "checkpoints averaged at the end (section 6.1)", fixed=False)
    save_updates: int = _option(
        280, "updates between checkpoints; 0: count no updates", fixed=False
    )
    save_minutes: float = _option(0.0, "minutes between checkpoints; 0: no clock", fixed=False)
    log_updates: int = _option(70, "updates between rows of the log", fixed=False)
    precision: str = _option(
        "auto",
        "numbers in matrix products; auto: the fastest that the device is good at",
        ("auto", "float32", "bfloat16", "float16"),
        fixed=False,
    )
    compile: bool = _option(False, "torch.compile: a slow start, then faster", fixed=False)
    tensorboard: bool = _option(False, "write the log for TensorBoard too", fixed=False)
    seed: int = _option(1, "start of every random choice")

    def __post_init__(self) -> None:
        check_training(self)


def check_training(config: TrainingConfig) -> None:
    """Raise ValueError unless a configuration describes a run that can be done."""
    may_be_zero = {"d_k", "d_v", "parts", "seed", "save_updates", "save_minutes"}
    for option in fields(config):
        value, choices = getattr(config, option.name), option.metadata["choices"]
        kind = type(option.default)
        if not fits(value, kind):
            number = "a finite " if kind is float else ""
            raise ValueError(f"expected {option.name} as {number}{kind.__name__}; got {value!r}")
        if choices and value not in choices:
            raise ValueError(f"expected {option.name} out of {', '.join(choices)}; got {value!r}")
        least = 0 if option.name in may_be_zero or kind is float else 1
        if kind in (int, float) and value < least:
            raise ValueError(f"expected {option.name} of at least {least}; got {value}")
    if not 0 <= config.label_smoothing < 1:
        raise ValueError(f"expected label_smoothing in [0, 1); got {config.label_smoothing}")
    if not config.save_updates and not config.save_minutes:
        raise ValueError("expected save_updates or save_minutes above 0; got 0 for both")
    if config.tensorboard and find_spec("tensorboard") is None:
        raise ValueError(
            "expected the package tensorboard for --tensorboard: pip install tensorboard"
        )
    parse_data(config.data)
    model_config(config)


def model_config(config: TrainingConfig) -> TransformerConfig:
    """The model of a run: the paper's, in the run's size, on a shared vocabulary."""
    c = config
    return TransformerConfig.base(
        c.vocab_size,
        N=c.N,
        d_model=c.d_model,
        d_ff=c.d_ff,
        h=c.h,
        d_k=c.d_k or None,
        d_v=c.d_v or None,
        dropout=c.dropout,
        attention_dropout=c.attention_dropout,
        positions=c.positions,
        max_len=max(c.max_pieces + 2, 512),  # matters to learned positions only
        norm_first=c.norm_first,
    )


_PAPER = {
    "vocab_size": 37000, "N": 6, "d_model": 512, "d_ff": 2048, "h": 8, "dropout": 0.1,
    "src_tokens": 25000, "tgt_tokens": 25000, "warmup": 4000, "updates": 100_000,
    "average": 5, "save_updates": 1500, "log_updates": 100,
}  # fmt: skip
_BIG = {
    **_PAPER, "d_model": 1024, "d_ff": 4096, "h": 16, "dropout": 0.3,
    "updates": 300_000, "average": 20, "save_updates": 600,
}  # fmt: skip
_GERMAN = {"data": "wmt14-en-de"}
_FRENCH = {"data": "wmt14-en-fr", "vocabulary": "wordpiece", "vocab_size": 32000}
_PENN = {**_PAPER, "N": 4, "d_model": 1024, "max_pieces": 1000}

_GENERAL = {
    "data": "laws+tatoeba+news+php+multi30k-en-fr", "on_bad": "drop", "vocab_size": 8000,
    "N": 6, "d_model": 192, "d_ff": 768, "h": 8, "dropout": 0.0,
    "src_tokens": 3000, "tgt_tokens": 3000, "parts": 2, "factor": 0.6, "warmup": 1500,
    "updates": 8000, "average": 5, "save_updates": 1000, "log_updates": 50,
}  # fmt: skip
_PARSER = {
    "data": "runs/craft-words-trees", "vocab_size": 6000, "max_pieces": 600, "N": 4,
    "d_model": 192, "d_ff": 768, "h": 6, "dropout": 0.2, "warmup": 1500, "updates": 24000,
    "average": 5, "save_updates": 500, "log_updates": 70,
}  # fmt: skip

PRESETS: dict[str, dict[str, Any]] = {
    "multi30k-en-de": {},
    "multi30k-en-fr": {"data": "multi30k-en-fr", "updates": 28000},
    "general-en-fr": _GENERAL,
    "craft-parser": _PARSER,
    "base-en-de": {**_PAPER, **_GERMAN},
    "base-en-fr": {**_PAPER, **_FRENCH},
    "big-en-de": {**_BIG, **_GERMAN},
    "big-en-fr": {**_BIG, **_FRENCH, "dropout": 0.1},
    "parser-wsj": {**_PENN, "data": "runs/penn-words-trees", "vocab_size": 16000},
    "parser-semi": {**_PENN, "data": "runs/semi-words-trees", "vocab_size": 32000},
}


def preset(name: str, **changes: Any) -> TrainingConfig:
    """The configuration of a name, in the folder runs/NAME unless `out` is given.

    Args:
        name: a key of PRESETS.   changes: fields that differ from it.

    Raises: ValueError that lists the names if this is none of them.

    Source: sections 5.1 to 5.4, 6.1 and 6.3, Table 3.
    """
    if name not in PRESETS:
        raise ValueError(f"expected a preset out of {', '.join(PRESETS)}; got {name!r}")
    return TrainingConfig(**{"out": f"runs/{name}", **PRESETS[name], **changes})


@dataclass(frozen=True)
class Processes:
    """This process, among those that train together.

    Args:
        rank: its number, from 0.   size: how many there are.   device: where it computes.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def reduce(self, x: Tensor, how: Any = distributed.ReduceOp.SUM) -> Tensor:
        """Sum (or other reduction) of a tensor over all processes, in place."""
        if self.size > 1:
            distributed.all_reduce(x, how)
        return x

    def any(self, *wishes: bool) -> list[bool]:
        """For each of several wishes, whether any process has it."""
        maximum = distributed.ReduceOp.MAX
        return self.reduce(torch.tensor(wishes, device=self.device).int(), maximum).bool().tolist()

    def first(self, value: Any) -> Any:
        """What process 0 brings; the others wait for it."""
        values = [value]
        if self.size > 1:
            distributed.broadcast_object_list(values, src=0, device=self.device)
        return values[0]

    def wait(self) -> None:
        """Until all processes are here."""
        if self.size > 1:
            distributed.barrier()


def join_processes() -> Processes:
    """Join the processes that torchrun started; alone if it did not."""
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else "cpu"
    if cuda:
        torch.cuda.set_device(device)
        torch.set_float32_matmul_precision("high")
    size = int(os.environ.get("WORLD_SIZE", 1))
    if size > 1 and not distributed.is_initialized():
        backend = "nccl" if cuda else "gloo"
        distributed.init_process_group(backend, timeout=timedelta(hours=2))
    return Processes(int(os.environ.get("RANK", 0)), size, torch.device(device))


def find_precision(wanted: str, device: torch.device) -> torch.dtype:
    """The type that "auto" means on a device, or the one that is asked for by name."""
    if wanted != "auto":
        return getattr(torch, wanted)
    if device.type != "cuda":
        return torch.float32
    ampere_or_later = torch.cuda.get_device_capability(device) >= (8, 0)
    return torch.bfloat16 if ampere_or_later else torch.float16


class ModelLoss(nn.Module):
    """A model with its loss.

    Args:
        model: with a generator whose linear map `proj` has no bias.   smoothing: ε (section 5.4).
    """

    def __init__(self, model: nn.Module, smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.smoothing = smoothing

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """ids (batch, src_len) and (batch, tgt_len + 1) to the loss, summed over target tokens."""
        batch = Batch(src, tgt)
        out = self.model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
        weight = self.model.get_parameter("generator.proj.weight")  # (vocab, d_model)
        return projected_cross_entropy(out, weight, batch.tgt_y, PAD, self.smoothing)


@dataclass
class Progress:
    """How far a run has come.

    Args:
        update: updates made.   skipped: those of them that left the weights alone (float16).
        epoch, batch: the place in the data of the next batch.
        tokens: target tokens learnt from.   seconds: time by the clock on the wall, but for
            validating and saving.
        row_loss, row_tokens, row_seconds: the same since the last row of the log.
        row_waited: those of row_seconds that went by in waiting for data.
    """

    update: int = 0
    skipped: int = 0
    epoch: int = 0
    batch: int = 0
    tokens: int = 0
    seconds: float = 0.0
    row_loss: float = 0.0
    row_tokens: int = 0
    row_seconds: float = 0.0
    row_waited: float = 0.0

    @property
    def moves(self) -> int:
        """Updates that moved the weights: the schedule counts these."""
        return self.update - self.skipped

    def count(self, loss: float, tokens: int, seconds: float, waited: float) -> None:
        """Add an update."""
        self.update += 1
        self.tokens, self.row_tokens = self.tokens + tokens, self.row_tokens + tokens
        self.seconds, self.row_seconds = self.seconds + seconds, self.row_seconds + seconds
        self.row_loss, self.row_waited = self.row_loss + loss, self.row_waited + waited


class Part(NamedTuple):
    """A batch: its place in the data, and the numbers of its pairs."""

    epoch: int
    batch: int
    pairs: list[int]


class Trainer:
    """A model in training.

    Args:
        config: the run.
        pairs, dev_pairs: for training and for validation.
        processes: this process among all; default: alone on the CPU.

    Raises: ValueError if `parts` cannot be shared out evenly.
    """

    def __init__(
        self,
        config: TrainingConfig,
        pairs: EncodedPairs,
        dev_pairs: EncodedPairs,
        processes: Processes | None = None,
    ) -> None:
        self.config, self.pairs, self.dev_pairs = config, pairs, dev_pairs
        self.processes = processes or Processes()
        self.parts = share_parts(config.parts, self.processes.size)
        self.kept = _short_enough(pairs, longest_sentence(config, self.parts))
        self.device, self.progress = self.processes.device, Progress()
        torch.manual_seed(config.seed)
        self.model = build_model(model_config(config)).to(self.device)
        self.dtype = find_precision(config.precision, self.device)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.dtype == torch.float16)
        self.loss: nn.Module = ModelLoss(self.model, config.label_smoothing)
        if self.processes.size > 1:
            self.loss = DistributedDataParallel(self.loss)
        self.run_loss = torch.compile(self.loss, dynamic=True) if config.compile else self.loss
        self.start_optimizer()

    def start_optimizer(self) -> None:
        """Optimizer and schedule, from the update that the run has reached."""
        c = self.config
        self.optimizer, self.scheduler = paper_optimizer(
            self.model, c.d_model, c.factor, c.warmup, done=self.progress.moves
        )

    def autocast(self) -> torch.autocast:
        """Where matrix products use the numbers of `precision`."""
        enabled = self.dtype != torch.float32
        return torch.autocast(self.device.type, self.dtype if enabled else None, enabled)


def share_parts(parts: int, processes: int) -> int:
    """The number of batches in an update: as asked for, or one a process.

    Raises: ValueError if the processes cannot share them out evenly.
    """
    if parts % processes:
        raise ValueError(
            f"expected parts to be a multiple of the {processes} processes; got {parts}"
        )
    return parts or processes


def longest_sentence(config: TrainingConfig, parts: int) -> int:
    """Tokens in the longest sentence that a run trains on: it must fit into a batch."""
    return min(config.max_pieces, config.src_tokens // parts, config.tgt_tokens // parts)


def _short_enough(pairs: EncodedPairs, longest: int) -> np.ndarray:
    """Numbers of the pairs to train on.

    Raises: ValueError if there is none.
    """
    kept = np.flatnonzero(pairs.lengths.max(axis=1) <= longest)
    if not len(kept):
        raise ValueError(f"there is no training pair of at most {longest} pieces")
    return kept


def mix(*numbers: int) -> int:
    """One seed out of several numbers: equal for equal numbers, else almost surely different."""
    seed = 0
    for number in numbers:
        seed = (seed * 1_000_003 + number + 1) % 2**62
    return seed


def parts_from(trainer: Trainer, epoch: int, batch: int) -> Iterator[Part]:
    """The batches of all passes over the training pairs, from a place on."""
    config, kept = trainer.config, trainer.kept
    budgets = config.src_tokens // trainer.parts, config.tgt_tokens // trainer.parts
    for now in itertools.count(epoch):
        batches = token_batches(trainer.pairs.lengths[kept], *budgets, seed=mix(config.seed, now))
        for number in range(batch if now == epoch else 0, len(batches)):
            yield Part(now, number, kept[batches[number]].tolist())


class Group(NamedTuple):
    """The work of one update.

    Args:
        parts: all its batches.   tokens: their target tokens.
        share: of each batch of this process, the seed of its dropout, and source and target
            ids, padded, on the device.
    """

    parts: list[Part]
    tokens: int
    share: list[tuple[int, Tensor, Tensor]]


def groups(trainer: Trainer) -> Iterator[Group]:
    """The work of the coming updates, from where the run stands, without end."""
    rank, size = trainer.processes.rank, trainer.processes.size
    stream = parts_from(trainer, trainer.progress.epoch, trainer.progress.batch)
    while True:
        parts = list(itertools.islice(stream, trainer.parts))
        lengths = np.concatenate([trainer.pairs.lengths[part.pairs, 1] for part in parts])
        tokens = int((lengths - 1).sum())  # the start symbol is not predicted
        yield Group(parts, tokens, [ready(trainer, trainer.pairs, p) for p in parts[rank::size]])


def ready(trainer: Trainer, pairs: EncodedPairs, part: Part) -> tuple[int, Tensor, Tensor]:
    """The seed of a batch, and its ids on the device."""
    src, tgt = zip(*(pairs[i] for i in part.pairs), strict=True)
    seed = mix(trainer.config.seed, part.epoch, part.batch)
    return seed, to_device(pad_ids(src), trainer.device), to_device(pad_ids(tgt), trainer.device)


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device; a copy to a GPU goes on while Python does other things."""
    return x if device.type == "cpu" else x.pin_memory().to(device, non_blocking=True)


def ahead(items: Iterator[Group]) -> Iterator[Group]:
    """The same items, each prepared by a thread while the one before it is in use."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, items)
        while True:
            item = coming.result()
            coming = thread.submit(next, items)
            yield item


def update(trainer: Trainer, group: Group) -> float:
    """Make one update of the weights.

    Returns: the loss, summed over the target tokens of all processes.

    Raises: ValueError that names the update and the batches if the loss is not finite.
    """
    trainer.loss.train()
    total = torch.zeros((), device=trainer.device)
    for i, (seed, src, tgt) in enumerate(group.share, start=1):
        torch.manual_seed(seed)
        with nullcontext() if i == len(group.share) else _keep_gradients(trainer.loss):
            with trainer.autocast():
                loss = trainer.run_loss(src, tgt)
            trainer.scaler.scale(loss * trainer.processes.size / group.tokens).backward()
        total += loss.detach()
    summed = float(trainer.processes.reduce(total))
    if not math.isfinite(summed):
        raise ValueError(_not_finite(trainer, group, summed))
    factor = trainer.scaler.get_scale()
    trainer.scaler.step(trainer.optimizer)
    trainer.scaler.update()
    trainer.optimizer.zero_grad(set_to_none=True)
    if trainer.scaler.get_scale() < factor:  # it overflowed, and the weights are as they were
        trainer.progress.skipped += 1
    else:
        trainer.scheduler.step()
    return summed


def _keep_gradients(module: nn.Module) -> Any:
    """Where gradients are gathered in this process and not yet shared with the others."""
    return module.no_sync() if isinstance(module, DistributedDataParallel) else nullcontext()


_HELP = "The last checkpoint is from before it; a lower factor or a longer warmup may help"


def _not_finite(trainer: Trainer, group: Group, loss: float) -> str:
    """What to say when the loss is not a number."""
    where = "; ".join(
        f"epoch {p.epoch + 1}, batch {p.batch + 1}: pairs {p.pairs[:5]}…" for p in group.parts
    )
    return (
        f"expected a finite loss; got {loss} in update {trainer.progress.update + 1} ({where}). "
        f"{_HELP}"
    )


@torch.no_grad()
def dev_loss(trainer: Trainer) -> float:
    """Loss per target token on the validation set, in nats; the processes share the work."""
    pairs, config, processes = trainer.dev_pairs, trainer.config, trainer.processes
    measure = ModelLoss(trainer.model, smoothing=0.0).eval()
    budgets = (
        max(budget, int(pairs.lengths.max())) for budget in (config.src_tokens, config.tgt_tokens)
    )
    batches = token_batches(pairs.lengths, *budgets)
    total = torch.zeros(2, dtype=torch.float64, device=trainer.device)  # loss, tokens
    for number in range(processes.rank, len(batches), processes.size):
        _, src, tgt = ready(trainer, pairs, Part(0, number, list(batches[number])))
        total += torch.stack([measure(src, tgt).double(), (tgt[:, 1:] != PAD).sum().double()])
    loss, tokens = processes.reduce(total).tolist()
    return loss / tokens


_MOMENTS = "step", "exp_avg", "exp_avg_sq"  # what Adam keeps for each parameter


def digest(tensors: Mapping[str, Tensor], text: str = "") -> str:
    """SHA-256 of tensors, their names, and a text."""
    sha = hashlib.sha256()
    for name in sorted(tensors):
        sha.update(name.encode())
        sha.update(tensors[name].detach().cpu().contiguous().numpy().tobytes())
    sha.update(text.encode())
    return sha.hexdigest()


def _adam_state(trainer: Trainer, parameter: nn.Parameter) -> dict[str, Tensor]:
    """What Adam keeps for a parameter: zeros before the first step."""
    zeros = {"step": torch.zeros(())}
    kept = trainer.optimizer.state.get(parameter, zeros)
    return {key: kept[key] if key in kept else torch.zeros_like(parameter) for key in _MOMENTS}


def save_checkpoint(trainer: Trainer, name: str = "") -> Path:
    """Write a checkpoint, named by its update unless a name is given."""
    tensors: dict[str, Tensor] = {}
    for key, parameter in trainer.model.named_parameters():
        tensors[f"model.{key}"] = parameter
        tensors |= {f"{kind}.{key}": x for kind, x in _adam_state(trainer, parameter).items()}
    scaler, config = trainer.scaler.state_dict(), _fixed_options(trainer.config)
    state = json.dumps({"progress": asdict(trainer.progress), "scaler": scaler, "config": config})
    path = (
        Path(trainer.config.out)
        / f"{name or f'checkpoint-{trainer.progress.update:08d}'}.safetensors"
    )
    write_tensors(path, tensors, {"state": state, "sha256": digest(tensors, state)})
    return path


def _fixed_options(config: TrainingConfig) -> dict[str, Any]:
    """The options that a run keeps from start to end."""
    return {o.name: getattr(config, o.name) for o in fields(config) if o.metadata["fixed"]}


_CHECKPOINT = "a whole checkpoint"


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors of a checkpoint, and what it says of the run.

    Raises: FileError if the file is cut off or altered.
    """
    tensors, metadata = read_tensors(path, _CHECKPOINT)
    _check_digest(path, tensors, metadata)
    with reading(path, _CHECKPOINT):
        return tensors, json.loads(metadata["state"])


def _check_digest(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Raise FileError unless a checkpoint holds what was written into it."""
    said = metadata.get("sha256")
    with reading(path, _CHECKPOINT):  # the second is that of earlier editions, without the progress
        right = said == digest(tensors, metadata.get("state", "")) or said == digest(tensors)
    if not right:
        raise FileError(f"{path}: expected {_CHECKPOINT}; its SHA-256 differs from what it says")


def load_checkpoint(trainer: Trainer, path: Path) -> None:
    """Continue where a checkpoint was written.

    Raises: FileError if the file is damaged, or of another run; the trainer is as it was then.
    """
    tensors, state = read_checkpoint(path)
    _check_checkpoint(trainer, path, tensors, state)
    trainer.progress = settings(Progress, state["progress"], str(path))
    if state["scaler"]:  # empty unless written in float16
        trainer.scaler.load_state_dict(state["scaler"])
    trainer.start_optimizer()
    moments = {}
    for i, (name, parameter) in enumerate(trainer.model.named_parameters()):
        parameter.data.copy_(tensors[f"model.{name}"])
        moments[i] = {key: tensors[f"{key}.{name}"] for key in _MOMENTS}
    groups = trainer.optimizer.state_dict()["param_groups"]
    trainer.optimizer.load_state_dict({"state": moments, "param_groups": groups})


def _check_checkpoint(
    trainer: Trainer, path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]
) -> None:
    """Raise FileError unless a checkpoint is of the run that a trainer is to continue."""
    for name, now in _fixed_options(trainer.config).items():
        if (was := state.get("config", {}).get(name, now)) != now:
            raise FileError(
                f"{path}: expected a checkpoint of a run with {name}={now}, as training.json has "
                f"it; got {name}={was}; correct training.json, or move the checkpoint away"
            )
    shapes: dict[str, torch.Size] = {}
    for name, parameter in trainer.model.named_parameters():
        shapes |= {f"{kind}.{name}": parameter.shape for kind in ("model", *_MOMENTS[1:])}
        shapes[f"step.{name}"] = torch.Size()
    has = {name: x.shape for name, x in tensors.items() if x.is_floating_point()}
    for name in sorted(shapes.keys() | tensors.keys()):
        if (is_now := has.get(name)) != (wanted := shapes.get(name)):
            raise FileError(
                f"{path}: expected {name} as {wanted}, as training.json has it; got {is_now}"
            )


INTERRUPTED = "interrupted.safetensors"


def checkpoints(folder: str | Path) -> list[Path]:
    """The regular checkpoints of a run, oldest first."""
    found = Path(folder).glob("checkpoint-*.safetensors")
    own = (path for path in found if re.fullmatch(r"checkpoint-[0-9]+", path.stem))
    return sorted(own, key=lambda path: int(path.stem.removeprefix("checkpoint-")))


def newest_checkpoint(folder: Path) -> Path | None:
    """The furthest checkpoint that is whole; damaged ones on the way are renamed, and reported.

    Raises: FileError if one cannot be read at all.
    """
    # The one of an interruption is the furthest: the next regular one removes it.
    for path in [*Path(folder).glob(INTERRUPTED), *reversed(checkpoints(folder))]:
        try:
            read_checkpoint(path)
            return path
        except FileError as error:
            if isinstance(error.__cause__, (OSError, MemoryError)):
                raise
            aside = path.with_name(path.name + ".damaged")
            os.replace(path, aside)
            tqdm.write(
                f"{error}; set aside as {aside.name}, going on from the one before it, if any"
            )
    return None


def _drop_old(trainer: Trainer) -> None:
    """Delete checkpoints that neither averaging nor a damaged last one can need."""
    folder = Path(trainer.config.out)
    for path in checkpoints(folder)[: -max(trainer.config.average, 2)]:
        path.unlink()
    (folder / INTERRUPTED).unlink(missing_ok=True)


def average_checkpoints(paths: list[Path]) -> dict[str, Tensor]:
    """Mean of the weights of several checkpoints, by parameter name.

    Raises: ValueError if there is none; FileError if one is damaged, or of another model.

    Source: section 6.1.
    """
    if not paths:
        raise ValueError("expected at least one checkpoint to average; got none")
    total: dict[str, Tensor] = {}
    for path in paths:
        weights = _model_weights(path)
        if total and {n: x.shape for n, x in weights.items()} != {
            n: x.shape for n, x in total.items()
        }:
            raise FileError(
                f"{path}: expected a checkpoint of the same model as {paths[0]}; it differs"
            )
        for name, tensor in weights.items():
            total[name] = total.get(name, torch.zeros(())) + tensor / len(paths)
    return total


def _model_weights(path: Path) -> dict[str, Tensor]:
    """The weights of a checkpoint, by parameter name."""
    try:
        tensors, metadata = read_tensors(path, _CHECKPOINT)
        if "sha256" in metadata:
            _check_digest(path, tensors, metadata)
    except FileError as error:
        if isinstance(error, MissingFile):
            raise
        raise FileError(f"{error}; move it away for a mean of the others") from error
    weights = {n.removeprefix("model."): x for n, x in tensors.items() if n.startswith("model.")}
    if not weights:
        raise FileError(f"{path}: expected {_CHECKPOINT}; it has no tensor called model.…")
    return weights


def save_model(folder: Path, tensors: dict[str, Tensor], config: TransformerConfig) -> None:
    """Write weights, in half precision, and configuration, as `load_pretrained` reads them."""
    half = {name: tensors[name].half() for name in parameter_shapes(config)}  # what is tied, once
    said = {
        "config": json.dumps(asdict(config))
    }  # one entry: of several the library mixes the order
    write_tensors(folder / "model.safetensors", half, said)
    write_text(folder / "config.json", json.dumps(asdict(config), indent=2) + "\n")


class RunLog:
    """The log of a run: log.csv, and TensorBoard's files if asked for.

    Args:
        folder: of the run.   update: rows beyond it are dropped.   tensorboard: write its files.

    Raises: FileError if it cannot be read or written.
    """

    columns = (
        "update", "epoch", "minutes", "target_tokens", "tokens_per_second", "waiting",
        "learning_rate", "train_loss", "dev_loss",
    )  # fmt: skip

    def __init__(self, folder: Path, update: int = 0, tensorboard: bool = False) -> None:
        self.path = folder / "log.csv"
        rows, problems = _scan_log(self.path)
        if problems:
            write_text(
                folder / "log.csv.damaged", self.path.read_text(encoding="utf-8", errors="replace")
            )
            tqdm.write(f"{'; '.join(problems)}; left out, and kept in log.csv.damaged")
        kept = [self.line(row) for row in rows if int(row["update"]) <= update]
        write_text(self.path, ",".join(self.columns) + "\n" + "".join(kept))
        self.board: Any = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter  # needs the package tensorboard

            self.board = SummaryWriter(str(folder / "tensorboard"), purge_step=update + 1)

    def line(self, row: Mapping[str, Any]) -> str:
        """A row as it is written; a column that it lacks stays empty."""
        return ",".join(str(row.get(name, "")) for name in self.columns) + "\n"

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a row."""
        append_text(self.path, self.line(row))
        for name in self.columns[2:] if self.board else ():
            if name in row:
                self.board.add_scalar(name, row[name], row["update"])


def _is_row(row: Mapping[str, str], after: str) -> bool:
    """Whether a line of a log is whole: finite numbers or nothing, and a later update."""
    try:
        finite = all(math.isfinite(float(value)) for value in row.values() if value)
        return finite and int(row["update"]) > int(after)
    except ValueError:
        return False


def read_log(path: Path) -> list[dict[str, str]]:
    """The whole rows of a log; none if there is no file. Damaged lines are named and left out."""
    rows, problems = _scan_log(path)
    if problems:
        tqdm.write("; ".join(problems))
    return rows


def _scan_log(path: Path) -> tuple[list[dict[str, str]], list[str]]:
    """The whole rows of a log, and which lines are none; a last line without its end is ignored."""
    if not path.exists():
        return [], []
    with reading(path, "the log of a run"):
        head, *lines = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1] or [""]
    names = head.split(",")
    rows: list[dict[str, str]] = []
    problems = (
        []
        if "update" in names
        else [f"{path}, line 1: expected names of columns; got {head[:60]!r}"]
    )
    for number, line in enumerate(lines if not problems else (), start=2):
        values = line.split(",")
        row = dict(zip(names, values, strict=False))
        if len(values) == len(names) and _is_row(row, after=rows[-1]["update"] if rows else "0"):
            rows.append(row)
        else:
            expected = f"{len(names)} numbers, of a later update than the row before"
            problems.append(f"{path}, line {number}: expected {expected}; got {line[:60]!r}")
    return rows, problems


def run_lock(folder: str | Path) -> AbstractContextManager[None]:
    """Hold the lock of a run's folder. Raises: FileError if another process trains there."""
    advice = "wait until it ends, stop it, or choose another --out"
    return locked(Path(folder) / ".lock", f"another process trains in {folder}; {advice}")


def prepare(config: TrainingConfig, resume: bool) -> None:
    """Fill the folder of a run with vocabulary, encoded pairs and configuration.

    Raises: ValueError if the folder holds a run that is not to be continued, or another one.
    """
    folder = Path(config.out)
    if (folder / "training.json").exists():
        check_resume(config, read_config(folder), resume)
    elif left := checkpoints(folder):
        raise FileError(
            f"{folder}: expected training.json beside {left[-1].name}; there is none; put it back, "
            "or choose another --out"
        )
    else:
        encode_corpus(config, folder)
    write_text(folder / "training.json", json.dumps(asdict(config), indent=2) + "\n")


def run_vocabulary(config: TrainingConfig, sentences: list[str]) -> Tokenizer:
    """The vocabulary of the weights that a run begins with, or else a new one."""
    if config.weights:
        return load_pretrained(config.weights).tokenizer
    return learn_vocabulary(config.vocabulary, sentences, config.vocab_size)


def encode_corpus(config: TrainingConfig, folder: Path) -> None:
    """Write a vocabulary, and the training and validation pairs in its numbers."""
    corpus, src, tgt = parse_data(config.data)
    tokenizer = None
    for split, on_bad in ("train", config.on_bad), ("dev", "auto"):
        source, target = load_pairs(corpus, split, src, tgt, None if on_bad == "auto" else on_bad)
        if not source:
            raise ValueError(
                f"expected pairs to train and to validate on; {config.data} has no {split}"
            )
        if tokenizer is None:
            tokenizer = run_vocabulary(config, source + target)
            write_text(folder / "tokenizer.json", tokenizer.to_str())
        EncodedPairs.encode(tokenizer, source, target).save(folder / f"{split}.pairs")


def read_config(folder: Path) -> TrainingConfig:
    """The configuration of the run in a folder.

    Raises: MissingFile or FileError that names training.json, and the setting that is wrong.
    """
    path = folder / "training.json"
    return settings(TrainingConfig, read_json(path, "the configuration of a run"), str(path))


def check_resume(config: TrainingConfig, old: TrainingConfig, resume: bool) -> None:
    """Raise ValueError unless a run may go on with this configuration."""
    if not resume:
        raise ValueError(
            f"{config.out} already holds a run; continue it with --resume, or choose another --out"
        )
    for name, was in _fixed_options(old).items():
        if (now := getattr(config, name)) != was:
            raise ValueError(
                f"the run in {config.out} has {name}={was}; it cannot go on with {now}"
            )


def _read_pairs(folder: Path) -> tuple[EncodedPairs, EncodedPairs]:
    """The training and validation pairs that `prepare` left in the folder of a run.

    Raises: FileError if they, or the vocabulary whose numbers they hold, are damaged.
    """
    path, again = folder / "tokenizer.json", "delete the folder of the run and start it anew"
    with reading(path, "the vocabulary of the run", again):
        size = Tokenizer.from_file(str(path)).get_vocab_size()
    paths = folder / "train.pairs", folder / "dev.pairs"
    train_pairs, dev_pairs = found = EncodedPairs.load(paths[0]), EncodedPairs.load(paths[1])
    for path, pairs in zip(paths, found, strict=True):
        largest = max(pairs.src.max(initial=0), pairs.tgt.max(initial=0))
        if largest >= size or not len(pairs):
            got = f"got {largest}" if len(pairs) else "there are none"
            expected = f"pairs of ids below {size}, the size of tokenizer.json's vocabulary"
            raise FileError(f"{path}: expected {expected}; {got}; {again}")
    return train_pairs, dev_pairs


def _take_weights(trainer: Trainer, name: str) -> None:
    """Give the model of a run the weights of a trained one, which `load_pretrained` finds.

    Raises: ValueError that says how the two models differ, if they do.
    """
    trained = load_pretrained(name).model
    has, asked = asdict(trained.config), asdict(trainer.model.config)
    keys = [key for key in has if "dropout" not in key and has[key] != asked[key]]
    if keys:
        differ = ", ".join(f"{key}={has[key]} (asked for: {asked[key]})" for key in keys)
        raise ValueError(
            f"expected {name} to be of the size and kind of the new model; it has {differ}"
        )
    trainer.model.load_state_dict(trained.state_dict())


def start_run(
    config: TrainingConfig, resume: bool = False, processes: Processes | None = None
) -> Trainer:
    """Prepare a run, or take up one that stopped at its furthest whole checkpoint.

    Args:
        config: the run.   resume: continue what is in its folder, if anything is.
        processes: this process among all; default: alone on the CPU.

    Raises: ValueError if the folder holds a run and resume is False, or another run.
    """
    processes = processes or Processes()
    config = replace(config, parts=share_parts(config.parts, processes.size))
    folder = Path(config.out)
    if processes.rank == 0:
        prepare(config, resume)
    saved = processes.first(newest_checkpoint(folder) if processes.rank == 0 else None)
    trainer = Trainer(config, *_read_pairs(folder), processes)
    if saved:
        load_checkpoint(trainer, saved)
    elif config.weights:
        _take_weights(trainer, config.weights)
    left_out = len(trainer.pairs) - len(trainer.kept)
    if processes.rank == 0 and left_out:
        tqdm.write(
            f"{left_out:,} of {len(trainer.pairs):,} training pairs are too long, and left out"
        )
    return trainer


class StopRequest:
    """While it is entered, SIGINT and SIGTERM only set `wanted`; alone, a second one kills."""

    def __init__(self, alone: bool = True) -> None:
        self.wanted, self.alone = False, alone

    def __enter__(self) -> "StopRequest":
        self.signals = signal.SIGINT, signal.SIGTERM
        self.old = [signal.signal(number, self.note) for number in self.signals]
        return self

    def note(self, number: int, frame: Any) -> None:
        """Handle a signal: wish to stop, or raise KeyboardInterrupt at the second one, if alone."""
        if self.wanted and self.alone:
            self.__exit__()
            raise KeyboardInterrupt("stopped at once; the last checkpoint stands")
        self.wanted = True

    def __exit__(self, *error: object) -> None:
        for number, handler in zip(self.signals, self.old, strict=True):
            signal.signal(number, handler)


def agree(trainer: Trainer, stop: StopRequest, last_save: float) -> list[bool]:
    """Whether all processes save now, and whether they stop."""
    config, done = trainer.config, trainer.progress.update
    by_count = bool(config.save_updates) and done % config.save_updates == 0
    minutes = (time.monotonic() - last_save) / 60
    by_clock = bool(config.save_minutes) and minutes >= config.save_minutes
    return trainer.processes.any(by_count or by_clock or done == config.updates, stop.wanted)


def _new_row(trainer: Trainer, loss: float | None = None) -> dict[str, Any]:
    """A row of the log, about the updates since the row before; `loss` is the validation loss."""
    p = trainer.progress
    row = {
        "update": p.update,
        "epoch": p.epoch + 1,
        "minutes": round(p.seconds / 60, 2),
        "target_tokens": p.tokens,
        "tokens_per_second": round(p.row_tokens / p.row_seconds),
        "waiting": round(p.row_waited / p.row_seconds, 3),
        "learning_rate": trainer.scheduler.get_last_lr()[0],
        "train_loss": round(p.row_loss / p.row_tokens, 4),
    }
    p.row_loss, p.row_tokens, p.row_seconds, p.row_waited = 0.0, 0, 0.0, 0.0
    return row if loss is None else row | {"dev_loss": round(loss, 4)}


class Stopped(KeyboardInterrupt):
    """A run that was told to stop has saved, in all its processes."""


@contextmanager
def leaving(processes: Processes) -> Iterator[None]:
    """Around a run: at its orderly end the processes part; one that fails waits for nobody."""
    try:
        yield
    except Stopped:
        part(processes)
        raise
    except BaseException:
        if processes.size > 1 and processes.device.type == "cuda" and distributed.group.WORLD:
            with suppress(AttributeError):  # torch before 2.6
                distributed.group.WORLD.abort()  # a sum that no GPU will finish holds nobody up
        raise
    part(processes)


def part(processes: Processes) -> None:
    """End the talk among the processes; all of them must be here."""
    if processes.size > 1:
        time.sleep(0.5)  # Gloo's threads need the interpreter to let go of their last tensors
        distributed.destroy_process_group()


def train(config: TrainingConfig, resume: bool = False) -> Path:
    """Train a model, or continue a run that stopped.

    Args:
        config: the run.   resume: continue what is in its folder, if anything is.

    Returns: the folder, with model.safetensors (the mean of the last checkpoints, in half
        precision), config.json, tokenizer.json, training.json and log.csv.

    Raises: ValueError as `start_run` and `update` do; KeyboardInterrupt, when all is saved,
        if it was told to stop.

    Source: section 5.
    """
    processes, folder = join_processes(), Path(config.out)
    lock = run_lock(folder) if processes.rank == 0 else nullcontext()
    with leaving(processes), lock:
        trainer = start_run(config, resume, processes)
        if trainer.progress.update > config.updates:
            made = f"{trainer.progress.update} updates"
            raise ValueError(
                f"the run in {folder} has made {made}; it cannot end at {config.updates}"
            )
        if trainer.progress.update < config.updates:
            run(trainer)
        if processes.rank == 0:
            last = checkpoints(folder)[-config.average :]
            save_model(folder, average_checkpoints(last), model_config(config))
        processes.wait()  # nobody leaves before it is saved
    return folder


def run(trainer: Trainer) -> None:
    """Make the updates that are still to be made."""
    config, progress = trainer.config, trainer.progress
    leader = trainer.processes.rank == 0
    log = RunLog(Path(config.out), progress.update, config.tensorboard) if leader else None
    coming, last_save = ahead(groups(trainer)), time.monotonic()
    with StopRequest(trainer.processes.size == 1) as stop, progress_bar(trainer) as bar:
        since = time.perf_counter()
        while True:
            since = timed_update(trainer, coming, since)
            show(bar, trainer)
            save_now, stop_now = agree(trainer, stop, last_save)
            if save_now:
                record(trainer, log)
                last_save, since = time.monotonic(), time.perf_counter()
            elif log and progress.update % config.log_updates == 0:
                log.add(_new_row(trainer))
            if progress.update == config.updates:
                return
            if stop_now:
                interrupt(trainer)


def timed_update(trainer: Trainer, coming: Iterator[Group], since: float) -> float:
    """Make one update, and note it in the progress.

    Args:
        coming: where its work comes from.   since: when the update before it ended.

    Returns: when it ended.
    """
    asked = time.perf_counter()
    group = next(coming)
    waited = time.perf_counter() - asked
    loss = update(trainer, group)
    now = time.perf_counter()
    trainer.progress.count(loss, group.tokens, now - since, waited)
    trainer.progress.epoch, trainer.progress.batch = (
        group.parts[-1].epoch,
        group.parts[-1].batch + 1,
    )
    return now


def record(trainer: Trainer, log: RunLog | None) -> None:
    """Validate, log and save; `log` is None in all processes but the first.

    Raises: ValueError, and saves nothing, if the loss is not finite.
    """
    loss = dev_loss(trainer)
    if not math.isfinite(loss):
        raise ValueError(
            f"expected a finite loss; got {loss} on the validation set after update "
            f"{trainer.progress.update}. {_HELP}"
        )
    if log:
        log.add(_new_row(trainer, loss))
        save_checkpoint(trainer)
        _drop_old(trainer)


def interrupt(trainer: Trainer) -> None:
    """Save, and leave with a Stopped that says how to go on."""
    if trainer.processes.rank == 0:
        save_checkpoint(trainer, INTERRUPTED.removesuffix(".safetensors"))
    trainer.processes.wait()  # the others stay until it is saved
    raise Stopped(
        f"stopped after update {trainer.progress.update}, and saved; to go on: "
        f"annotated train --out {trainer.config.out} --resume"
    )


def progress_bar(trainer: Trainer) -> tqdm:
    """A bar with the time left, in the first process; in a file of output, a line now and then."""
    return tqdm(
        total=trainer.config.updates,
        initial=trainer.progress.update,
        unit="update",
        disable=trainer.processes.rank > 0,
        mininterval=0.5 if sys.stderr.isatty() else 20,
    )


def show(bar: tqdm, trainer: Trainer) -> None:
    """Move the bar on by one update."""
    p = trainer.progress
    rate = p.row_tokens / p.row_seconds
    learning_rate = trainer.scheduler.get_last_lr()[0]
    loss = f"loss {p.row_loss / p.row_tokens:.3f}"
    bar.set_postfix_str(f"{loss}, {rate:,.0f} tokens/s, lr {learning_rate:.1e}", refresh=False)
    bar.update()
