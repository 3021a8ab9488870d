"""3.4 Embeddings and Softmax (chapters/3-4-embeddings-softmax.md).
Configuration, first weights, and the loss (chapters/model-machinery.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

import math

import torch
from torch import Tensor, nn


class Embeddings(nn.Module):
    """Token ids to vectors, scaled by √d_model.

    Args:
        d_model: width of the vectors.
        vocab: number of ids, 0 to vocab - 1.

    Source: section 3.4.
    """

    def __init__(self, d_model: int, vocab: int) -> None:
        super().__init__()
        self.d_model = d_model
        self.lut = nn.Embedding(vocab, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """Look up and scale.

        Args:
            x: token ids (batch, len), integers.

        Returns: (batch, len, d_model).

        Raises: ValueError if an id lies outside the vocabulary. (Not checked while
            training on an accelerator, where looking at the ids would stall it.)
        """
        if not x.is_meta and (x.device.type == "cpu" or not self.training):
            check_ids(x, self.lut.num_embeddings)
        return self.lut(x) * math.sqrt(self.d_model)


class Generator(nn.Module):
    """Decoder output to log-probabilities of the next token.

    Args:
        d_model: width of the decoder output.
        vocab: number of target ids.
        bias: add one to each logit (the paper mentions none).

    Source: section 3.4.
    """

    def __init__(self, d_model: int, vocab: int, bias: bool = False) -> None:
        super().__init__()
        self.proj = nn.Linear(d_model, vocab, bias)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, len, d_model) to log-probabilities (batch, len, vocab)."""
        return self.proj(x).log_softmax(dim=-1)


def check_ids(ids: Tensor, vocab: int) -> None:
    """Raise ValueError unless every id lies in 0 to vocab - 1; no check under torch.compile."""
    if torch.compiler.is_compiling() or ids.numel() == 0:
        return
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= vocab:
        wrong = low if low < 0 else high
        raise ValueError(f"expected token ids from 0 to {vocab - 1}; got {wrong}")


def check_tokens(name: str, ids: Tensor) -> None:
    """Raise ValueError unless ids are whole numbers (batch, len); looks at no number."""
    if not isinstance(ids, Tensor):
        kind = type(ids).__name__
    elif ids.dim() == 2 and ids.dtype in (torch.int64, torch.int32):
        return
    else:
        kind = f"{str(ids.dtype).removeprefix('torch.')} {tuple(ids.shape)}"
    raise ValueError(f"expected {name} as ids (batch, len), of int64 or int32; got {kind}")
