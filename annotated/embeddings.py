"""3.4 Embeddings and Softmax (chapters/3-4-embeddings-softmax.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

import math

from torch import Tensor, nn


class Embeddings(nn.Module):
    """Token ids to vectors, scaled by √d_model.

    Args: d_model: width of the vectors.   vocab: number of ids, 0 to vocab - 1.

    Source: section 3.4.
    """

    def __init__(self, d_model: int, vocab: int) -> None:
        super().__init__()
        self.d_model = d_model
        self.lut = nn.Embedding(vocab, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """Token ids (batch, len) to vectors (batch, len, d_model)."""
        return self.lut(x) * math.sqrt(self.d_model)


class Generator(nn.Module):
    """Decoder output to log-probabilities of the next token.

    Args:
        d_model: width of the decoder output.   vocab: number of target ids.
        bias: add a bias to each logit (the paper mentions none).

    Source: section 3.4.
    """

    def __init__(self, d_model: int, vocab: int, bias: bool = False) -> None:
        super().__init__()
        self.proj = nn.Linear(d_model, vocab, bias)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, len, d_model) to log-probabilities (batch, len, vocab)."""
        return self.logits(x).log_softmax(dim=-1)

    def logits(self, x: Tensor) -> Tensor:
        """(batch, len, d_model) to the scores before the softmax, (batch, len, vocab)."""
        return self.proj(x)
