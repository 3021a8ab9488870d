"""5.2 Hardware and Schedule (chapters/5-2-hardware-schedule.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from tqdm import tqdm

from annotated.data import Batch
from annotated.evaluation import model_cost
from annotated.machinery.files import fits, lazy_extra
from annotated.machinery.training.checks import check_training
from annotated.model import TransformerConfig

__all__ = [
    "PEAK_TFLOPS",
    "PRESETS",
    "SimpleLossCompute",
    "TrainState",
    "TrainingConfig",
    "model_config",
    "preset",
    "run_epoch",
    "training_plan",
    "training_work",
    "update_weights",
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


def update_weights(
    optimizer: Optimizer | None, scheduler: LRScheduler | None, scaler: GradScaler | None = None
) -> bool:
    """Move the weights along the gathered gradients, and forget these.

    Args:
        scaler: of a loss in float16.

    Returns: whether the weights moved; a gradient that overflowed in float16 keeps them in place.

    Raises: ValueError if the optimizer or the scheduler is None.
    """
    if optimizer is None or scheduler is None:
        raise ValueError("expected an optimizer and a scheduler for training; got None")
    scaler = scaler or GradScaler("cpu", enabled=False)  # which scales nothing
    factor = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    moved = bool(scaler.get_scale() >= factor)
    if moved:
        scheduler.step()
    return moved


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
            state.accum_step += update_weights(optimizer, scheduler)
            pending = 0
        progress.set_postfix(loss=f"{loss / max(tokens, 1):.2f}", refresh=False)
    if pending:  # a last, smaller group
        _scale_gradients(model, accum_iter / pending)
        state.accum_step += update_weights(optimizer, scheduler)
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
    prepared: str = _option("", "prepared corpus, a folder; none: found, or made", fixed=False)
    weights: str = _option("", "trained model to begin with, a name or a folder; none: at random")
    vocabulary: str = _option("bpe", "kind of pieces (section 5.1)", ("bpe", "wordpiece"))
    vocab_size: int = _option(5000, "pieces in the shared vocabulary")
    vocab_pairs: int = _option(500_000, "pairs that the vocabulary is learnt from, at most")
    N: int = _option(4, "layers in each stack")
    d_model: int = _option(128, "width of the model")
    d_ff: int = _option(512, "inner width of the feed-forward layers")
    h: int = _option(4, "attention heads")
    d_k: int = _option(0, "width of a query and a key in a head; 0: d_model / h")
    d_v: int = _option(0, "width of a value in a head; 0: d_model / h")
    positions: str = _option("sinusoidal", "encoding of positions", ("sinusoidal", "learned"))
    norm_first: bool = _option(False, "normalise before each sub-layer; the paper: after it")
    bias: bool = _option(False, "in the projections and before the softmax; the paper: none")
    activation: str = _option(
        "relu", "in the feed-forward layers; the paper: relu", ("relu", "swish")
    )
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
        model_config(self)


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
        bias=c.bias,
        activation=c.activation,
    )


_PAPER = {
    "vocab_size": 37000, "N": 6, "d_model": 512, "d_ff": 2048, "h": 8, "dropout": 0.1,
    "src_tokens": 25000, "tgt_tokens": 25000, "parts": 8, "warmup": 4000, "updates": 100_000,
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


def training_work(config: TrainingConfig) -> float:
    """Floating-point operations of a run, if its batches are full."""
    tokens = config.updates * min(config.src_tokens, config.tgt_tokens)
    return tokens * model_cost(model_config(config))


PEAK_TFLOPS = {"P100": 9.5, "T4": 65.0, "A100": 312.0, "H100": 989.0, "H200": 989.0}


with lazy_extra("viz"):
    import altair as alt
    import pandas as pd


def training_plan(
    config: TrainingConfig, number: int = 1, utilisation: float = 0.4
) -> pd.DataFrame:
    """What a run would take on various GPUs.

    Args:
        config: the run.   number: GPUs.   utilisation: share of their peak that is reached.

    Returns: a row a GPU, with milliseconds of an update, hours of the run, and GPU-hours in all.
    """
    work, rows = training_work(config), []
    for name, tflops in PEAK_TFLOPS.items():
        seconds = work / (tflops * 1e12 * utilisation)
        update = {f"ms an update on {number}": seconds / number / config.updates * 1000}
        hours = {f"hours on {number}": seconds / number / 3600, "GPU-hours": seconds / 3600}
        rows.append({"GPU": name, "peak (TFLOPS)": tflops, **update, **hours})
    return pd.DataFrame(rows)
