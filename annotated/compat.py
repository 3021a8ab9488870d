"""The names of The Annotated Transformer that its model, training and search require.

Its names for loading data and for drawing are not included. An attention layer keeps its weights
in `attn`, and the loss keeps its smoothed targets in `true_dist`.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from annotated import attention as paper_attention
from annotated import model as paper_model
from annotated import regularization, stacks
from annotated.attention import scaled_dot_product as attention
from annotated.attention import subsequent_mask
from annotated.data import Batch
from annotated.decoding import greedy_decode
from annotated.embeddings import Embeddings, Generator
from annotated.feed_forward import PositionwiseFeedForward
from annotated.machinery.errors import InputError, check_whole
from annotated.machinery.progress import progress_bar
from annotated.model import EncoderDecoder
from annotated.optimizer import rate
from annotated.positional import PositionalEncoding
from annotated.regularization import without_dropout
from annotated.stacks import Decoder, DecoderLayer, Encoder, EncoderLayer, SublayerConnection
from annotated.training import update_weights

__all__ = [
    "Batch", "Decoder", "DecoderLayer", "DummyOptimizer", "DummyScheduler", "Embeddings",
    "Encoder", "EncoderDecoder", "EncoderLayer", "Generator", "LabelSmoothing", "LayerNorm",
    "MultiHeadedAttention", "PositionalEncoding", "PositionwiseFeedForward",
    "SimpleLossCompute", "SublayerConnection", "TrainState", "attention", "average", "clones",
    "data_gen", "greedy_decode", "make_model", "rate", "run_epoch", "subsequent_mask",
]  # fmt: skip
clones = stacks.clones


class MultiHeadedAttention(paper_attention.MultiHeadedAttention):
    """The layer of section 3.2.2 with an attribute `attn`.

    It holds the weights (batch, h, len_q, len_k) of the last call in eval mode, or None.

    Raises: InputError if d_model is not divisible by h.
    """

    attn: Tensor | None = None

    def __init__(self, h: int, d_model: int, dropout: float = 0.1, **widths: Any) -> None:
        if d_model % h and not widths:
            raise InputError(f"expected d_model divisible by h; got d_model={d_model}, h={h}")
        super().__init__(h, d_model, dropout, **widths)

    def kernel(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """As in the class of section 3.2.2; in eval mode, also keeps the weights."""
        self.attn = None
        if self.training:
            return super().kernel(query, key, value, mask)
        output, weights = attention(query, key, value, mask)
        self.attn = weights.detach()
        return output, weights


def make_model(
    src_vocab: int, tgt_vocab: int, N: int = 6, d_model: int = 512, d_ff: int = 2048, h: int = 8,
    dropout: float = 0.1, **options: Any,
) -> EncoderDecoder:  # fmt: skip
    """`annotated.make_model`, whose attention layers keep their weights in `attn`."""
    sizes: dict[str, Any] = {"N": N, "d_model": d_model, "d_ff": d_ff, "h": h, "dropout": dropout}
    config = paper_model.TransformerConfig(src_vocab, tgt_vocab, **sizes, **options)
    model = paper_model.build_model(config, attention=MultiHeadedAttention)
    model.parts = {}  # it computes the same as the paper's
    return model


class LayerNorm(nn.LayerNorm):
    """torch's layer normalization of (..., features), with eps added to the variance.

    Source: section 3.1.
    """

    def __init__(self, features: int, eps: float = 1e-6) -> None:
        super().__init__(features, eps=eps)


class LabelSmoothing(regularization.LabelSmoothing):
    """Divergence from targets that keep 1 - ε and spread ε over the others, but not on padding.

    After each call `true_dist` holds these targets (positions, size).

    Args:
        size: of the vocabulary, at least 3.   smoothing: ε.
        padding_idx: its probability is 0; positions with this target do not count.

    Raises: InputError for a smaller size, or another number of log-probabilities per position;
        ValueError if smoothing is outside [0, 1).

    Source: section 5.4, in the form of The Annotated Transformer.
    """

    true_dist: Tensor | None = None

    def __init__(self, size: int, padding_idx: int, smoothing: float = 0.0) -> None:
        check_whole("size", size, least=3)
        super().__init__(size, padding_idx, smoothing)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Sum of the loss; x: log-probabilities (positions, size)   target: ids (positions,)"""
        if x.size(-1) != self.size:
            wanted = f"expected {self.size} log-probabilities per position"
            raise InputError(f"{wanted}; got {x.size(-1)}")
        symbol, target = torch.arange(self.size, device=x.device), target.unsqueeze(-1)
        even = torch.full_like(x, self.smoothing / (self.size - 2))
        spread = even.masked_fill(symbol == target, 1 - self.smoothing)
        padding = (symbol == self.padding_idx) | (target == self.padding_idx)
        self.true_dist = spread.masked_fill(padding, 0.0)
        x = x.masked_fill(self.true_dist == 0, 0.0)  # 0 · log 0 is 0, but torch computes NaN
        return nn.functional.kl_div(x, self.true_dist, reduction="sum")


class SimpleLossCompute:
    """The loss, computed from the decoder's output.

    Args:
        generator: maps the decoder's output to log-probabilities.
        criterion: maps (log-probabilities, targets) to a summed loss, as `LabelSmoothing` does.
    """

    def __init__(self, generator: nn.Module, criterion: nn.Module) -> None:
        self.generator, self.criterion = generator, criterion

    def __call__(self, x: Tensor, y: Tensor, norm: Tensor | float) -> tuple[Tensor, Tensor]:
        """x: (batch, len, d_model)   y: ids (batch, len)   norm: divides the sum.

        Returns: the summed loss, detached, and the loss per unit of norm to differentiate.
        """
        log_probs = self.generator(x)  # (batch, len, vocab)
        total = self.criterion(log_probs.flatten(0, 1), y.flatten())
        return total.detach(), total / norm


@dataclass
class TrainState:
    """Counters of a training."""

    step: int = 0  # batches processed
    accum_step: int = 0  # updates of the weights
    samples: int = 0  # sentence pairs processed
    tokens: int = 0  # target tokens processed


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
    """One pass over the data, with or without training.

    Args:
        data_iter: batches.   model: called with (src, tgt, src_mask, tgt_mask).
        loss_compute: as `SimpleLossCompute`.
        optimizer, scheduler: required by the training modes only.
        mode: "train", "train+log" (with a progress bar) or "eval" (without dropout).
        accum_iter: batches averaged in one update; the last update may have fewer.
        train_state: counters to continue; default: new ones.

    Returns: mean loss per target token in nats, and the counters.

    Raises: InputError if the loss of a batch is not finite, if a training mode has no optimizer
        or scheduler, or for another mode or an accum_iter below 1.
    """
    if mode not in ("train", "train+log", "eval"):
        raise InputError(f"expected mode out of train, train+log, eval; got {mode!r}")
    check_whole("accum_iter", accum_iter)
    training, state = mode != "eval", train_state or TrainState()
    if training and (optimizer is None or scheduler is None):
        raise InputError("expected an optimizer and a scheduler for training; got None")
    total_loss, total_tokens = 0.0, 0
    log = {"disable": mode != "train+log", "leave": False, "unit": "batch"}
    progress = progress_bar(data_iter, **log)
    batches = iter(progress)
    while group := list(islice(batches, accum_iter)):
        for batch in group:
            still = nullcontext() if training else without_dropout(model)
            with torch.set_grad_enabled(training), still:
                out = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
                loss, loss_node = loss_compute(out, batch.tgt_y, batch.ntokens)
            if training:
                (loss_node / len(group)).backward()
            total_loss, total_tokens = total_loss + float(loss), total_tokens + int(batch.ntokens)
            state.step, state.samples = state.step + 1, state.samples + batch.src.size(0)
            state.tokens += int(batch.ntokens)
            if not math.isfinite(loss):
                raise InputError(f"expected a finite loss; got {loss} in batch {state.step}")
            progress.set_postfix(loss=f"{loss / max(int(batch.ntokens), 1):.2f}", refresh=False)
        if optimizer and scheduler and training:
            state.accum_step += update_weights(optimizer, scheduler)
    return total_loss / max(total_tokens, 1), state


class DummyOptimizer(torch.optim.SGD):
    """An optimizer that changes nothing because it has no weights."""

    def __init__(self) -> None:
        super().__init__([nn.Parameter(torch.zeros(0))], lr=0.0)


class DummyScheduler:
    """A schedule that changes nothing."""

    def step(self) -> None:
        """Leave the learning rate as it is."""


def data_gen(V: int, batch_size: int, nbatches: int) -> Iterator[Batch]:
    """Batches of the copy task: ten symbols from 1 to V - 1, of which the first is 1; 0 is padding.

    Returns: batches with identical source and target, each (batch_size, 10).
    """
    for _ in range(nbatches):
        symbols = torch.randint(1, V, (batch_size, 10))
        symbols[:, 0] = 1
        yield Batch(symbols, symbols.clone(), pad=0)


def average(model: nn.Module, models: Iterable[nn.Module]) -> None:
    """Set a model's weights to the mean of the weights of several models of its shape.

    Source: section 6.1.
    """
    sources = [list(other.parameters()) for other in models]
    with torch.no_grad():
        for own, *others in zip(model.parameters(), *sources, strict=True):
            own.copy_(torch.stack(others).mean(dim=0))
