"""5.2 Hardware and Schedule (chapters/5-2-hardware-schedule.md).

Generated from the chapter's export cells by book/extract.py: edit it there.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from tqdm import tqdm

from annotated.data import Batch
from annotated.files import fits

__all__ = ["TrainState", "run_epoch", "update_weights"]


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
