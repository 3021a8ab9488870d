"""3.3 Position-wise Feed-Forward Networks (chapters/3-3-feed-forward.md).

Generated from the chapter's export cells by book/extract.py: edit it there.
"""

from torch import Tensor, nn

__all__ = ["PositionwiseFeedForward"]


class PositionwiseFeedForward(nn.Module):
    """Two linear maps with a ReLU between them, the same at every position.

    Args:
        d_model: width of input and output.
        d_ff: width in between.
        dropout: probability of dropping an inner unit (the paper has none).

    Source: section 3.3, equation 2.
    """

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, len, d_model) to (batch, len, d_model)."""
        return self.w_2(self.dropout(self.w_1(x).relu_()))  # inside: (batch, len, d_ff)
