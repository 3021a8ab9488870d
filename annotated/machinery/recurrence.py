"""A decoder that is not the paper's: recurrence instead of attention to its own output.

The paper's decoder attends to everything it has written, so its steps become slower as the
output grows. The simpler simple recurrent unit (Kim et al. 2019) keeps one vector per layer. A
`DecoderLayer` uses it as its self-attention; everything else in the layer is as in the paper.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


class SSRU(nn.Module):
    """A running average of all inputs so far, weighted by a gate, then ReLU.

    f = σ(W_f x + b),  c = f ⊙ c' + (1 - f) ⊙ W x,  y = ReLU(c), where c' is the previous state.

    Neither matrix product needs the previous state, so for a known output all gates are computed
    at once, and only the weighted sum proceeds position by position.

    Args:
        size: d_model, which is also the width of the state.
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

    def start(self, memory: Tensor) -> "State":
        """The state of a decoder that has written nothing; memory: (batch, src_len, size)."""
        return State(self, torch.zeros_like(memory[:, :1]))


@dataclass
class State:
    """The state of a recurrent cell, kept from step to step instead of keys and values.

    Args:
        cell: the `SSRU`.   state: c of each hypothesis (batch, width, size).
    """

    cell: SSRU
    state: Tensor

    def step(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """One more position of each hypothesis: (batch, width, size) to the same shape."""
        f, new = self.cell.gates(x)
        self.state = f * self.state + new
        return self.state.relu()

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order."""
        self.state = self.state[rows]

    def follow(self, parents: Tensor) -> None:
        """Continue these hypotheses (batch, width); each starts from its parent's state."""
        self.state = self.state.take_along_dim(parents.unsqueeze(-1), dim=1)


class Skip(nn.Module):
    """Replaces a residual connection: no sub-layer, no normalization."""

    def forward(self, x: Tensor, sublayer: Any) -> Tensor:
        return x


def make_recurrent(layer: Any, feed_forward: bool = True) -> None:
    """Replace the self-attention of a `DecoderLayer` with a recurrent cell.

    Args:
        feed_forward: keep the third sub-layer.
    """
    layer.self_attn = SSRU(layer.size)
    if not feed_forward:
        layer.feed_forward, layer.sublayer[2] = nn.Identity(), Skip()
