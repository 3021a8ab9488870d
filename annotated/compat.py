"""The names of The Annotated Transformer that its model, training and search require.

Its names for loading data and for drawing are not included. An attention layer keeps its weights
in `attn`, and the loss keeps its smoothed targets in `true_dist`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from annotated import attention as paper_attention
from annotated import model as paper_model
from annotated import regularization
from annotated.attention import scaled_dot_product as attention
from annotated.attention import subsequent_mask
from annotated.data import Batch
from annotated.decoding import greedy_decode
from annotated.embeddings import Embeddings, Generator
from annotated.feed_forward import PositionwiseFeedForward
from annotated.machinery.errors import InputError, check_whole
from annotated.model import EncoderDecoder
from annotated.optimizer import rate
from annotated.positional import PositionalEncoding
from annotated.stacks import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    SublayerConnection,
    clones,
)
from annotated.training import SimpleLossCompute, TrainState, run_epoch

__all__ = [
    "Batch",
    "Decoder",
    "DecoderLayer",
    "DummyOptimizer",
    "DummyScheduler",
    "Embeddings",
    "Encoder",
    "EncoderDecoder",
    "EncoderLayer",
    "Generator",
    "LabelSmoothing",
    "LayerNorm",
    "MultiHeadedAttention",
    "PositionalEncoding",
    "PositionwiseFeedForward",
    "SimpleLossCompute",
    "SublayerConnection",
    "TrainState",
    "attention",
    "average",
    "clones",
    "data_gen",
    "greedy_decode",
    "make_model",
    "rate",
    "run_epoch",
    "subsequent_mask",
]


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
    """torch's layer normalization: (..., features) to (..., features).

    Args:
        features: width.   eps: added to the variance.

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
            raise InputError(
                f"expected {self.size} log-probabilities per position; got {x.size(-1)}"
            )
        symbol, target = torch.arange(self.size, device=x.device), target.unsqueeze(-1)
        even = torch.full_like(x, self.smoothing / (self.size - 2))
        spread = even.masked_fill(symbol == target, 1 - self.smoothing)
        padding = (symbol == self.padding_idx) | (target == self.padding_idx)
        self.true_dist = spread.masked_fill(padding, 0.0)
        x = x.masked_fill(self.true_dist == 0, 0.0)  # 0 · log 0 is 0, but torch computes NaN
        return nn.functional.kl_div(x, self.true_dist, reduction="sum")


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
