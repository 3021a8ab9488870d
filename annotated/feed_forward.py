"""3.3 Position-wise Feed-Forward Networks (chapters/3-3-feed-forward.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

import torch.nn.functional as F
from torch import Tensor, nn

ACTIVATIONS = {"relu": F.relu, "swish": F.silu}  # max(0, x); and x / (1 + exp(-x)), a later one


class PositionwiseFeedForward(nn.Module):
    """Two linear maps with a ReLU between them, the same at every position.

    Args:
        d_model: width of input and output.   d_ff: width of the inner layer.
        dropout: probability of dropping an inner unit (the paper has none).
        activation: "relu", or "swish" instead of it.

    Source: section 3.3, equation 2.
    """

    def __init__(
        self, d_model: int, d_ff: int, dropout: float = 0.0, activation: str = "relu"
    ) -> None:
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        """(batch, len, d_model) to (batch, len, d_model)."""
        inner = self.activation(self.w_1(x))  # (batch, len, d_ff)
        return self.w_2(self.dropout(inner))
