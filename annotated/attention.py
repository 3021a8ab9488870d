"""3.2 Attention (chapters/3-2-attention.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated.machinery.checks import as_boolean_mask, head_widths
from annotated.machinery.errors import check_whole

Mask = Tensor | None  # False or 0 forbids attention; None allows all


def masked_softmax(scores: Tensor, mask: Mask = None) -> Tensor:
    """Softmax over the last dimension, in which forbidden scores count as -inf.

    A row in which everything is forbidden has no softmax (it would be 0/0);
    its weights are defined as zeros, with a zero gradient.

    Args:
        scores: (..., len_q, len_k)
        mask: broadcastable to (..., len_q, len_k); False or 0 forbids the connection.

    Returns: weights (..., len_q, len_k); each row sums to 1, or to 0 if wholly masked.

    Source: section 3.2.3.
    """
    if mask is None:
        return scores.softmax(dim=-1)
    mask = as_boolean_mask(mask)
    lowest = torch.finfo(scores.dtype).min  # not -inf, so that a row of these has a softmax
    return scores.masked_fill(~mask, lowest).softmax(dim=-1).masked_fill(~mask, 0.0)


def scaled_dot_product(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask = None,
    dropout: nn.Module | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of equation 1, as the paper writes it.

    Args:
        query: (..., len_q, d_k)   key: (..., len_k, d_k)   value: (..., len_k, d_v)
        mask: broadcastable to (..., len_q, len_k); False or 0 forbids the connection.
        dropout: applied to the weights before they multiply the values (section 5.4 has none).

    Returns: output (..., len_q, d_v) and weights (..., len_q, len_k) before dropout, whose
        rows sum to 1, or to 0 where all is masked.

    Source: section 3.2.1, equation 1.
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    weights = masked_softmax(scores, mask)  # (..., len_q, len_k)
    return (weights if dropout is None else dropout(weights)) @ value, weights


def subsequent_mask(size: int, device: torch.device | None = None) -> Tensor:
    """Mask that lets position i see positions 0 to i and nothing after.

    Args: size: length of the target, in tokens.   device: device of the mask.

    Returns: (1, size, size), True where attention is allowed.

    Raises: InputError for a negative size.

    Source: section 3.2.3, third use of attention.
    """
    check_whole("size", size, least=0)
    return torch.ones(1, size, size, dtype=torch.bool, device=device).tril()


class MultiHeadedAttention(nn.Module):
    """h attentions in parallel, each in its own learned projection.

    All weights pass `kernel`, which a subclass may override.

    Args:
        h: number of heads.   d_model: width of the model.
        dropout: probability of dropping an attention weight (section 5.4 has none).
        d_k, d_v: width of a query and key, and of a value, in one head; default d_model / h.
        bias: add a bias in each of the four projections (the paper has none).

    Source: section 3.2.2.
    """

    def __init__(
        self,
        h: int,
        d_model: int,
        dropout: float = 0.0,
        d_k: int | None = None,
        d_v: int | None = None,
        bias: bool = False,
    ) -> None:
        super().__init__()
        d_k, d_v = head_widths(h, d_model, d_k, d_v)
        self.h, self.dropout = h, nn.Dropout(dropout)
        self.watchers: list[Callable] = []  # called with the weights
        self.w_q = nn.Linear(d_model, h * d_k, bias)
        self.w_k = nn.Linear(d_model, h * d_k, bias)
        self.w_v = nn.Linear(d_model, h * d_v, bias)
        self.w_o = nn.Linear(h * d_v, d_model, bias)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Mask = None) -> Tensor:
        """Attend from query (batch, len_q, d_model) to key and value (batch, len_k, d_model).

        Args: mask: (batch, 1, len_k) or (batch, len_q, len_k), or 1 for batch; False or 0 forbids.

        Returns: (batch, len_q, d_model).
        """
        return self.attend(query, *self.keys_values(key, value), mask)

    def keys_values(self, key: Tensor, value: Tensor, start: int = 0) -> tuple[Tensor, Tensor]:
        """(batch, len_k, d_model) to keys (batch, h, len_k, d_k), values (batch, h, len_k, d_v).

        Args: start: position of the first key, for subclasses in which the position matters.
        """
        return self.split_heads(self.w_k(key)), self.split_heads(self.w_v(value))

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Mask = None) -> Tensor:
        """Attend to keys and values that are already projected."""
        queries = self.split_heads(self.w_q(query))  # (batch, h, len_q, d_k)
        mask = None if mask is None else as_boolean_mask(mask).unsqueeze(-3)  # for all heads
        heads, weights = self.kernel(queries, keys, values, mask)  # (batch, h, len_q, d_v)
        for watcher in self.watchers:
            watcher(weights)
        return self.w_o(heads.transpose(1, 2).flatten(2))  # concatenate, then project

    def kernel(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask = None
    ) -> tuple[Tensor, Tensor | None]:
        """Equation 1 in all heads; the last query belongs to the last key in self-attention.

        Returns: as `scaled_dot_product`; the weights may be None unless they are recorded.
        """
        if self.watchers:
            return scaled_dot_product(query, key, value, mask, self.dropout)
        dropout = self.dropout.p if self.training else 0.0
        return F.scaled_dot_product_attention(query, key, value, mask, dropout), None

    def start(self, memory: Tensor) -> list[Tensor]:
        """Keys and values of memory (batch, len, d_model): the state before the first `step`."""
        return [projected.contiguous() for projected in self.keys_values(memory, memory)]

    def step(self, x: Tensor, state: list[Tensor], mask: Mask = None) -> Tensor:
        """`forward` for the positions x (batch, new, d_model) that follow those in the state."""
        new = self.keys_values(x, x, start=state[0].size(2))
        state[:] = [torch.cat(both, dim=2) for both in zip(state, new, strict=True)]
        return self.attend(x, state[0], state[1], mask)

    def split_heads(self, x: Tensor) -> Tensor:
        """(batch, len, h * d) to (batch, h, len, d)."""
        return x.unflatten(-1, (self.h, -1)).transpose(1, 2)
