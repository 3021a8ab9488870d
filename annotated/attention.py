"""3.2 Attention (chapters/3-2-attention.md).
Attention on a machine (chapters/attention-machinery.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = [
    "KeyValueCache",
    "MultiHeadedAttention",
    "check_mask",
    "fused_attention",
    "head_widths",
    "masked_softmax",
    "project_heads",
    "scaled_dot_product",
    "subsequent_mask",
]


def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax over the last dimension, with forbidden scores set to -inf.

    A row in which everything is forbidden has no softmax (it would be 0/0);
    here it is defined as all zeros, with a zero gradient.

    Args:
        scores: (..., len_q, len_k)
        mask: broadcastable to (..., len_q, len_k); False or 0 forbids the connection.

    Returns: weights (..., len_q, len_k); each row sums to 1, or to 0 if wholly masked.

    Source: section 3.2.3.
    """
    if mask is None:
        return scores.softmax(dim=-1)
    mask = mask.bool()
    blind = ~mask.any(dim=-1, keepdim=True)  # rows that see nothing
    weights = scores.masked_fill(~(mask | blind), -math.inf).softmax(dim=-1)
    return weights.masked_fill(blind, 0.0)


def scaled_dot_product(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: nn.Module | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of equation 1, written as the paper writes it.

    Args:
        query: (..., len_q, d_k)   key: (..., len_k, d_k)   value: (..., len_k, d_v)
        mask: broadcastable to (..., len_q, len_k); False or 0 forbids the connection.
        dropout: applied to the weights before they meet the values (section 5.4 has none).

    Returns: output (..., len_q, d_v) and weights (..., len_q, len_k), whose rows sum
        to 1 before dropout, or to 0 where all is masked.

    Source: section 3.2.1, equation 1.
    """
    d_k = query.size(-1)
    scores = query @ key.transpose(-2, -1) / math.sqrt(d_k)  # (..., len_q, len_k)
    weights = masked_softmax(scores, mask)
    if dropout is not None:
        weights = dropout(weights)
    return weights @ value, weights


class MultiHeadedAttention(nn.Module):
    """h attentions side by side, each in its own learned projection.

    Args:
        h: number of heads.
        d_model: width of the model.
        dropout: probability of dropping an attention weight (section 5.4 has none).
        d_k: width of a query and a key in one head; default d_model / h.
        d_v: width of a value in one head; default d_model / h.
        bias: add one in each of the four projections (the paper has none).

    Raises: ValueError if d_model is not divisible by h and d_k or d_v is not given.

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
        self.h = h
        self.d_k, self.d_v = head_widths(h, d_model, d_k, d_v)
        self.dropout = nn.Dropout(dropout)
        self.w_q = nn.Linear(d_model, h * self.d_k, bias)
        self.w_k = nn.Linear(d_model, h * self.d_k, bias)
        self.w_v = nn.Linear(d_model, h * self.d_v, bias)
        self.w_o = nn.Linear(h * self.d_v, d_model, bias)
        self._last: tuple[Tensor, Tensor, Tensor | None] | None = None

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        cache: "KeyValueCache | None" = None,
    ) -> Tensor:
        """Attend from query to key and value.

        Args:
            query: (batch, len_q, d_model)   key, value: (batch, len_k, d_model)
            mask: (batch, 1, len_k) or (batch, len_q, len_k), or 1 for batch; False or 0 forbids.
            cache: keys and values of earlier calls, which are attended to as well (len_k
                of the mask counts them). Such a call leaves `attn` as it is.

        Returns: (batch, len_q, d_model).

        Raises: ValueError for a mask of another shape, or one to be added to scores.
        """
        query, key, value = project_heads(self, query, key, value, cache)  # (batch, h, len, d)
        if mask is not None:
            check_mask(mask, query.size(0), query.size(2), key.size(2))
            mask = mask.bool().unsqueeze(-3)  # (batch, 1, len_q, len_k): one mask for all heads
        if not self.training and cache is None:
            self._last = (query.detach(), key.detach(), mask)
        dropout = self.dropout.p if self.training else 0.0
        heads = fused_attention(query, key, value, mask, dropout)  # (batch, h, len_q, d_v)
        return self.w_o(heads.transpose(1, 2).flatten(2))  # concatenate, then project

    def split_heads(self, x: Tensor) -> Tensor:
        """(batch, len, h * d) to (batch, h, len, d)."""
        return x.unflatten(-1, (self.h, -1)).transpose(1, 2)

    @property
    def attn(self) -> Tensor | None:
        """Weights (batch, h, len_q, len_k) of the last call in eval mode, computed when asked for.

        None before such a call, or if the layer has been trained or copied since.
        """
        if self._last is None:
            return None
        query, key, mask = self._last
        return scaled_dot_product(query, key, key, mask)[1]  # weights do not ask for values


def subsequent_mask(size: int, device: torch.device | None = None) -> Tensor:
    """Mask that lets position i see positions 0 to i and nothing after.

    Args:
        size: length of the target, in tokens.
        device: where the mask is made.

    Returns: (1, size, size), True where attention is allowed.

    Source: section 3.2.3, third use of attention.
    """
    return torch.ones(1, size, size, dtype=torch.bool, device=device).tril()


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Equation 1 in torch's fused kernel: the same output, no weights kept.

    Args:
        query: (..., len_q, d_k)   key: (..., len_k, d_k)   value: (..., len_k, d_v)
        mask: broadcastable to (..., len_q, len_k); False or 0 forbids the connection.
        dropout: probability of dropping a weight.

    Returns: output (..., len_q, d_v).

    Source: section 3.2.1, equation 1.
    """
    if query.device.type == "cpu" and query.dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", enabled=False):  # torch's kernel there is slow in 16 bits
            wide = query.float(), key.float(), value.float()
            return fused_attention(*wide, mask, dropout).to(query.dtype)
    if mask is None:
        return _attend(query, key, value, None, dropout)
    mask = mask.bool()
    sees = mask.any(dim=-1, keepdim=True)
    if sees.device.type == "cpu" and not torch.compiler.is_compiling() and sees.all():
        return _attend(query, key, value, mask, dropout)
    return _attend(query, key, value, mask | ~sees, dropout).masked_fill(~sees, 0.0)


def _attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float
) -> Tensor:
    """Equation 1 without blind rows, in torch's kernel or, for few queries, in two products."""
    learns = dropout or torch.is_grad_enabled() or torch.compiler.is_compiling()
    if learns or query.device.type != "cpu" or query.size(-2) > 8:
        return F.scaled_dot_product_attention(query, key, value, mask, dropout)
    scores = query / math.sqrt(query.size(-1)) @ key.transpose(-2, -1)  # (..., len_q, len_k)
    if mask is not None:
        scores.masked_fill_(~mask, -math.inf)
    return scores.softmax(dim=-1) @ value


def _is_linear(module: nn.Module) -> bool:
    """Whether a call of this module is a linear map and nothing else."""
    hooks = module._forward_pre_hooks, module._forward_hooks
    watched = any((*hooks, module._backward_pre_hooks, module._backward_hooks))
    return type(module) is nn.Linear and not watched


def _stack(maps: list[nn.Linear]) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of several maps as one; all of them have a bias, or none."""
    biases: list[Tensor] = [m.bias for m in maps if m.bias is not None]
    return torch.cat([m.weight for m in maps]), torch.cat(biases) if biases else None


def project_heads(
    layer: MultiHeadedAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cache: "KeyValueCache | None" = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of all heads, those that a cache holds among them.

    Args: as for the call of the layer.

    Returns: (batch, h, len_q, d_k), (batch, h, len_k, d_k) and (batch, h, len_k, d_v).

    Source: section 3.2.2.
    """
    if cache is not None and cache.complete:
        return layer.split_heads(layer.w_q(query)), *cache.kept()
    maps = [layer.w_q, layer.w_k, layer.w_v]
    alike = len({getattr(m, "bias", None) is None for m in maps}) == 1
    if key is value and alike and all(map(_is_linear, maps)):
        own = [] if query is key else [layer.w_q(query)]
        shared = maps[len(own) :]  # those of one and the same input
        stacked = _stack(shared) if cache is None else cache.stack(shared)
        parts = own + list(F.linear(key, *stacked).split([m.out_features for m in shared], -1))
    else:
        parts = [m(x) for m, x in zip(maps, (query, key, value), strict=True)]
    query, key, value = map(layer.split_heads, parts)
    return (query, key, value) if cache is None else (query, *cache.extend(key, value))


def _widen(held: Tensor, room: int) -> Tensor:
    """(batch, h, len, d) copied to (batch, h, room, d), whose rest holds anything."""
    batch, h, length, d = held.shape
    wide = held.new_empty(batch, h, room, d)
    wide[:, :, :length] = held
    return wide


class KeyValueCache:
    """Keys and values of all heads, kept from call to call of one attention layer.

    Args:
        grows: True for self-attention, where each call adds its positions to those before;
            False for attention to the encoder's output, where the first call's are final.

    It is for search: what it holds is written over, so no gradient can be taken through it.

    Source: sections 3.2.2 and 3.2.3.
    """

    def __init__(self, grows: bool) -> None:
        self.grows = grows
        self.length = 0  # positions held
        self.buffers: list[Tensor] = []  # keys and values, each (batch, h, room, d)
        self._stacked: tuple[Tensor, Tensor | None] | None = None

    def stack(self, maps: list[nn.Linear]) -> tuple[Tensor, Tensor | None]:
        """Several maps as one, made in the first call and kept for the others."""
        if self._stacked is None:
            weight, bias = _stack(maps)  # by columns, as a product with few rows reads it
            self._stacked = weight.t().contiguous().t(), bias
        return self._stacked

    @property
    def complete(self) -> bool:
        """Whether it has all that it will ever hold."""
        return self.length > 0 and not self.grows

    def kept(self) -> tuple[Tensor, Tensor]:
        """Keys (batch, h, length, d_k) and values (batch, h, length, d_v)."""
        key, value = (buffer[:, :, : self.length] for buffer in self.buffers)
        return key, value

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add keys (batch, h, new, d_k) and values (batch, h, new, d_v); give all so far.

        Raises: ValueError if the batch or the heads are others than before.
        """
        if self.length and key.shape[:2] != self.buffers[0].shape[:2]:
            held = tuple(self.buffers[0].shape[:2])
            raise ValueError(f"expected (batch, h) = {held}, as before; got {tuple(key.shape[:2])}")
        start, self.length = self.length, self.length + key.size(2)
        if not self.grows:
            self.buffers = [key.contiguous(), value.contiguous()]  # a head's keys side by side
            return self.kept()
        for i, new in enumerate((key, value)):
            if start == 0:
                self.buffers.append(_widen(new[:, :, :0], 2 * self.length))
            elif self.length > self.buffers[i].size(2):
                # Twice the room that is needed: so each position is moved about once in all.
                self.buffers[i] = _widen(self.buffers[i], 2 * self.length)
            self.buffers[i][:, :, start : self.length] = new
        return self.kept()

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order."""
        self.buffers = [buffer[rows] for buffer in self.buffers]


def head_widths(
    h: int, d_model: int, d_k: int | None = None, d_v: int | None = None
) -> tuple[int, int]:
    """d_k and d_v of a head; what is not given is d_model / h.

    Raises: ValueError for a number below 1, or if d_model would have to be divisible by h and
        is not.

    Source: section 3.2.2.
    """
    for name, value in (("h", h), ("d_model", d_model), ("d_k", d_k), ("d_v", d_v)):
        if value is not None and value < 1:
            raise ValueError(f"expected {name} of at least 1; got {value}")
    if d_model % h and (d_k is None or d_v is None):
        raise ValueError(
            f"expected d_model divisible by h, or d_k and d_v given; got d_model={d_model}, h={h}"
        )
    return d_model // h if d_k is None else d_k, d_model // h if d_v is None else d_v


def check_mask(mask: Tensor, batch: int, len_q: int, len_k: int, name: str = "mask") -> None:
    """Raise ValueError unless a mask says yes or no to each query and key, or to each key."""
    if not isinstance(mask, Tensor):
        raise ValueError(f"expected a {name} as a tensor; got {type(mask).__name__}")
    rows, columns, shape = (1, batch), (1, len_q), tuple(mask.shape)
    if len(shape) != 3 or shape[0] not in rows or shape[1] not in columns or shape[2] != len_k:
        wanted = f"(batch, 1 or len_q, len_k), here ({batch}, 1 or {len_q}, {len_k})"
        raise ValueError(f"expected a {name} {wanted}; got {shape}")
    if mask.is_floating_point() and (mask < 0).any():
        raise ValueError(
            f"expected a {name} that is 0 where attention is forbidden; got negative numbers"
        )
