"""3.1 Encoder and Decoder Stacks (chapters/3-1-encoder-decoder-stacks.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

import copy
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from annotated.attention import Mask
from annotated.regularization import Dropout

Norm = Callable[[int], nn.Module]  # from d_model to what normalizes each position
State = tuple[list[Tensor], list[Tensor]]  # of the output so far, and of the memory (section 6.1)


def clones(module: nn.Module, N: int) -> nn.ModuleList:
    """N equal copies that share no weights."""
    return nn.ModuleList(copy.deepcopy(module) for _ in range(N))


class SublayerConnection(nn.Module):
    """Residual connection and layer normalization around a sub-layer.

    LayerNorm(x + Dropout(Sublayer(x))), as in the paper; with `norm_first`
    x + Dropout(Sublayer(LayerNorm(x))), as in most later work.

    Args:
        size: d_model.   dropout: P_drop, applied to the sub-layer's output (section 5.4).
        norm_first: normalize the sub-layer's input instead of the sum.
        norm: from d_model to a module that normalizes each position.

    Source: section 3.1.
    """

    def __init__(
        self, size: int, dropout: float, norm_first: bool = False, norm: Norm = nn.LayerNorm
    ) -> None:
        super().__init__()
        self.norm = norm(size)
        self.dropout = Dropout(dropout)
        self.norm_first = norm_first

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(batch, len, d_model) to (batch, len, d_model)."""
        if self.norm_first:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward.

    Args:
        size: d_model.   self_attn: a module called with (query, key, value, mask).
        feed_forward: a module called with x, which treats each position alone.   dropout: P_drop.
        norm_first, norm: see `SublayerConnection`.

    Source: section 3.1.
    """

    def __init__(
        self,
        size: int,
        self_attn: Any,
        feed_forward: Any,
        dropout: float,
        norm_first: bool = False,
        norm: Norm = nn.LayerNorm,
    ) -> None:
        super().__init__()
        self.size, self.self_attn, self.feed_forward = size, self_attn, feed_forward
        self.sublayer = clones(SublayerConnection(size, dropout, norm_first, norm), 2)

    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        """Args: x: (batch, src_len, d_model)   mask: (batch, 1, src_len)."""
        x = self.sublayer[0](x, lambda x: self.self_attn(x, x, x, mask))
        return self.sublayer[1](x, self.feed_forward)


class Encoder(nn.Module):
    """A stack of N layers, and a normalization at the end if the layers do not end in one.

    Args: layer: the layer to copy.   N: number of layers.

    Source: section 3.1.
    """

    def __init__(self, layer: Any, N: int) -> None:
        super().__init__()
        self.layers: Any = clones(layer, N)
        first = layer.sublayer[0]
        self.norm = copy.deepcopy(first.norm) if first.norm_first else nn.Identity()

    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        """Args: x: (batch, src_len, d_model)   mask: (batch, 1, src_len)."""
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the encoder's output, then feed-forward.

    Args:
        size: d_model.   self_attn, src_attn: modules called with (query, key, value, mask).
        feed_forward: a module called with x, which treats each position alone.   dropout: P_drop.
        norm_first, norm: see `SublayerConnection`.

    Source: section 3.1.
    """

    def __init__(
        self,
        size: int,
        self_attn: Any,
        src_attn: Any,
        feed_forward: Any,
        dropout: float,
        norm_first: bool = False,
        norm: Norm = nn.LayerNorm,
    ) -> None:
        super().__init__()
        self.size = size
        self.self_attn, self.src_attn, self.feed_forward = self_attn, src_attn, feed_forward
        self.sublayer = clones(SublayerConnection(size, dropout, norm_first, norm), 3)

    def forward(
        self, x: Tensor, memory: Tensor, src_mask: Mask = None, tgt_mask: Mask = None
    ) -> Tensor:
        """Args: x: (batch, tgt_len, d_model)   memory: (batch, src_len, d_model)
        src_mask: (batch, 1, src_len)   tgt_mask: (batch, tgt_len, tgt_len)
        """
        x = self.sublayer[0](x, lambda x: self.self_attn(x, x, x, tgt_mask))
        x = self.sublayer[1](x, lambda x: self.src_attn(x, memory, memory, src_mask))
        return self.sublayer[2](x, self.feed_forward)

    def start(self, memory: Tensor) -> State:
        """State before the first `step`: of the output, which is empty, and of the memory."""
        return self.self_attn.start(memory[:, :0]), self.src_attn.start(memory)

    def step(self, x: Tensor, state: State, src_mask: Mask = None) -> Tensor:
        """`forward` for the newest position of each hypothesis (section 6.1).

        Args: x: (batch, width, d_model)   state: of batch · width outputs, and of the memory
        """
        own, source = state
        newest = lambda x: self.self_attn.step(x.flatten(0, 1).unsqueeze(1), own).view_as(x)
        x = self.sublayer[0](x, newest)
        x = self.sublayer[1](x, lambda x: self.src_attn.attend(x, *source, src_mask))
        return self.sublayer[2](x, self.feed_forward)


class Decoder(Encoder):
    """A stack of N decoder layers; arguments as for `Encoder`.

    Source: section 3.1.
    """

    def forward(  # type: ignore[override]  # it has more inputs
        self, x: Tensor, memory: Tensor, src_mask: Mask = None, tgt_mask: Mask = None
    ) -> Tensor:
        """Args: x: (batch, tgt_len, d_model)   memory: (batch, src_len, d_model)."""
        for layer in self.layers:
            x = layer(x, memory, src_mask, tgt_mask)
        return self.norm(x)

    def start(self, memory: Tensor) -> list[State]:
        """State of each layer before the first `step`; memory: (batch, src_len, d_model)."""
        return [layer.start(memory) for layer in self.layers]

    def step(self, x: Tensor, states: list[State], src_mask: Mask = None) -> Tensor:
        """`forward` for the newest position of each hypothesis: x (batch, width, d_model)."""
        for layer, state in zip(self.layers, states, strict=True):
            x = layer.step(x, state, src_mask)
        return self.norm(x)
