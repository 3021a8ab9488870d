"""3.5 Positional Encoding (chapters/3-5-positional-encoding.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from annotated.machinery.errors import InputError
from annotated.regularization import Dropout


def sinusoids(length: int, d_model: int, endpoint: bool = False) -> Tensor:
    """Table of sinusoidal position encodings.

    Args:
        length: number of positions, 0 to length - 1.
        d_model: width; even columns are sines, odd columns cosines.
        endpoint: the longest wavelength is 10000 · 2π; the formula stops one step short of it.

    Returns: (length, d_model).

    Source: section 3.5.
    """
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)  # (length, 1)
    two_i = torch.arange(0, d_model, 2, dtype=torch.float64)  # 0, 2, 4, …
    steps = d_model - 2 if endpoint else d_model
    angle = position / 10000 ** (two_i / steps)  # (length, ceil(d_model / 2))
    table = torch.zeros(length, d_model, dtype=torch.float64)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()[:, : d_model // 2]
    return table.float()


class PositionalEncoding(nn.Module):
    """Add sinusoids to embeddings, then apply dropout.

    Args:
        d_model: width.
        dropout: P_drop, applied to the sum (section 5.4).
        max_len: positions computed in advance; longer inputs extend the table.
        endpoint: see `sinusoids`.

    Source: section 3.5.
    """

    pe: Tensor

    def __init__(
        self, d_model: int, dropout: float, max_len: int = 5000, endpoint: bool = False
    ) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.endpoint = endpoint
        self.register_buffer("pe", self.table(max_len, d_model), persistent=False)

    def table(self, length: int, d_model: int) -> Tensor:
        """The sinusoids of the first positions, (1, length, d_model)."""
        with torch.device("cpu"):  # on the meta device, the first `arange` imports for a second
            return sinusoids(length, d_model, self.endpoint).unsqueeze(0)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """(batch, len, d_model) to (batch, len, d_model); its first token has position `start`."""
        if x.shape[2:] != self.pe.shape[2:] or not x.is_floating_point():
            wanted = f"(batch, len, {self.pe.size(2)}) of floating-point numbers"
            raise InputError(f"expected x {wanted}; got {tuple(x.shape)} of {x.dtype}")
        end = start + x.size(1)
        if end > self.pe.size(1) or self.pe.device != x.device:
            self.pe = self.table(max(end, self.pe.size(1)), self.pe.size(2)).to(x.device)
        return self.dropout(x + self.pe[:, start:end].to(x.dtype))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "PositionalEncoding":
        """Called by `to` and `to_empty`: the table moves, and is computed again."""
        super()._apply(fn, recurse)
        self.pe = self.table(*self.pe.shape[1:]).to(self.pe)
        return self


class LearnedPositionalEncoding(nn.Module):
    """Add one learned vector per position, then apply dropout.

    Args:
        d_model: width.
        dropout: P_drop, applied to the sum.
        max_len: number of positions that exist.

    Source: section 3.5 and Table 3, row (E).
    """

    def __init__(self, d_model: int, dropout: float, max_len: int) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.max_len = max_len
        self.pe = nn.Parameter(torch.randn(1, max_len, d_model))

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """(batch, len, d_model) to (batch, len, d_model); its first token has position `start`.

        Raises: ValueError for a position that does not exist.
        """
        end = start + x.size(1)
        if end > self.max_len:
            raise ValueError(f"expected at most {self.max_len} learned positions; got {end}")
        return self.dropout(x + self.pe[:, start:end])
