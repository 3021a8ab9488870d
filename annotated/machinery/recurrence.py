"""A decoder that is not the paper's: recurrence instead of attention to its own output.

The paper's decoder attends to everything it has written, so its steps become slower as the
output grows. The simpler simple recurrent unit (Kim et al. 2019) keeps one vector per layer. A
`DecoderLayer` uses it as its self-attention; everything else in the layer is as in the paper.
"""

from typing import Any

import torch
from torch import Tensor, nn

from annotated.stacks import DecoderLayer


class SSRU(nn.Module):
    """A running average of all inputs so far, weighted by a gate, then ReLU.

    f = σ(W_f x + b),  c = f ⊙ c' + (1 - f) ⊙ W x,  y = ReLU(c), where c' is the previous state;
    `size` is d_model, the width of all of them.

    Neither matrix product needs the previous state, so for a known output all gates are computed
    at once, and only the weighted sum proceeds position by position.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.w = nn.Linear(size, size, bias=False)
        self.w_f = nn.Linear(size, size)

    def gates(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(..., size) to f and (1 - f) ⊙ W x, each (..., size)."""
        f = self.w_f(x).sigmoid()
        return f, (1 - f) * self.w(x)

    def forward(
        self, query: Tensor, key: Any = None, value: Any = None, mask: Any = None
    ) -> Tensor:
        """A whole output (batch, len, size) to the same shape; called like self-attention.

        Args:
            key, value: the query again.   mask: ignored, since a state never depends on the future.
        """
        kept, added = self.gates(query)
        state, states = torch.zeros_like(query[:, 0]), []
        for f, new in zip(kept.unbind(1), added.unbind(1), strict=True):
            state = f * state + new
            states.append(state)
        return torch.stack(states, dim=1).relu()

    def start(self, memory: Tensor) -> list[Tensor]:
        """The state of a decoder that has written nothing; memory: (batch, any, size)."""
        return [memory.new_zeros(len(memory), 1, memory.size(-1))]

    def step(self, x: Tensor, state: list[Tensor], mask: Tensor | None = None) -> Tensor:
        """One more position of each hypothesis: (batch, 1, size) to the same shape."""
        f, new = self.gates(x)
        state[0] = f * state[0] + new
        return state[0].relu()


class _Skip(nn.Module):
    """In place of a residual connection: no sub-layer, no normalization."""

    def forward(self, x: Tensor, sublayer: Any) -> Tensor:
        return x


class WithoutFeedForward(DecoderLayer):
    """A decoder layer that ends after the attention to the encoder's output."""

    def __init__(self, size: int, self_attn: Any, src_attn: Any, _: Any, *residual: Any) -> None:
        super().__init__(size, self_attn, src_attn, nn.Identity(), *residual)
        self.sublayer[2] = _Skip()
