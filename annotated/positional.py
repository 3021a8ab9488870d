"""3.5 Positional Encoding (chapters/3-5-positional-encoding.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

import torch
from torch import Tensor, nn

from annotated.machinery.checks import check_vectors
from annotated.machinery.errors import check_whole
from annotated.regularization import Dropout


def sinusoids(length: int, d_model: int, base: float = 10000.0) -> Tensor:
    """Table of sinusoidal position encodings.

    Args:
        length: number of positions, 0 to length - 1.
        d_model: width; even columns are sines, odd columns cosines.
        base: the number whose powers divide the positions.

    Returns: (length, d_model).

    Raises: InputError for a negative length or a width below 1.

    Source: section 3.5.
    """
    check_whole("length", length, least=0)
    check_whole("d_model", d_model)
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)  # (length, 1)
    two_i = torch.arange(0, d_model, 2, dtype=torch.float64)  # 0, 2, 4, …
    angle = position / base ** (two_i / d_model)  # (length, ceil(d_model / 2))
    table = torch.zeros(length, d_model, dtype=torch.float64)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()[:, : d_model // 2]
    return table.float()


class PositionalEncoding(nn.Module):
    """Add sinusoids to embeddings, then apply dropout.

    Args:
        d_model: width.   dropout: P_drop, applied to the sum (section 5.4).
        max_len: positions computed in advance; longer inputs extend the table.
        base: see `sinusoids`.

    Source: section 3.5.
    """

    def __init__(
        self, d_model: int, dropout: float, max_len: int = 5000, base: float = 10000.0
    ) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.base = base
        with torch.device("cpu"):  # even if the rest of a model has shapes only
            self.pe = sinusoids(max_len, d_model, base).unsqueeze(0)  # (1, max_len, d_model)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """(batch, len, d_model) to (batch, len, d_model); its first token has position `start`."""
        check_vectors(x, self.pe.size(2))
        end = start + x.size(1)
        if end > self.pe.size(1) or self.pe.device != x.device:
            length = max(end, self.pe.size(1))
            self.pe = sinusoids(length, self.pe.size(2), self.base).unsqueeze(0).to(x.device)
        return self.dropout(x + self.pe[:, start:end].to(x.dtype))


class LearnedPositionalEncoding(nn.Module):
    """Add one learned vector per position, then apply dropout.

    Args:
        d_model: width.   dropout: P_drop, applied to the sum.
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

        Raises: InputError for a position that does not exist.
        """
        end = start + x.size(1)
        check_whole("the number of positions", end, most=self.max_len)
        return self.dropout(x + self.pe[:, start:end])
