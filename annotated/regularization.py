"""5.4 Regularization (chapters/5-4-regularization.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated.machinery.errors import InputError


class Dropout(nn.Dropout):
    """torch's dropout, with a quarter of the random draws on a CPU.

    On a CPU, P is rounded to a multiple of 2⁻¹⁶; other devices use torch's own kernel.

    Source: section 5.4.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(...) to (...): some components zero, the others divided by 1 - P."""
        if not self.training or self.p == 0:
            return x
        if self.p == 1 or x.device.type != "cpu" or torch.compiler.is_compiling():
            return super().forward(x)
        draws = x.new_empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        lots = draws.view(torch.int16)[: x.numel()].view(x.shape)  # from -2¹⁵ to 2¹⁵ - 1
        dropped = min(round(self.p * 2**16), 2**16 - 1)  # of 2¹⁶ equally likely lots
        keep = (lots >= dropped - 2**15).to(x.dtype)
        return x * keep.mul_(2**16 / (2**16 - dropped))


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Eval mode inside the block; afterwards each module has its previous mode.

    The mode belongs to the model, so other threads that use the model see the change.

    Source: section 5.4.
    """
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


class LabelSmoothing(nn.Module):
    """Cross-entropy with a target that keeps 1 - ε and spreads ε over the vocabulary.

    Args:
        size: of the vocabulary.   smoothing: ε.
        padding_idx: positions with this target are ignored.

    Raises: InputError if smoothing is outside [0, 1).

    Source: section 5.4.
    """

    def __init__(self, size: int, padding_idx: int, smoothing: float = 0.0) -> None:
        super().__init__()
        if not 0 <= smoothing < 1:
            raise InputError(f"expected smoothing in [0, 1); got {smoothing}")
        self.size, self.padding_idx, self.smoothing = size, padding_idx, smoothing

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Sum of the loss over all positions that are not padding, in nats.

        Args: x: log-probabilities (positions, size)   target: ids (positions,)
        Raises: InputError if the number of columns of x is not size.
        """
        if x.size(-1) != self.size:
            raise InputError(f"expected {self.size} log-probabilities a position; got {x.size(-1)}")
        padding = target == self.padding_idx  # an id that need not be in the vocabulary
        right = x.gather(-1, target.masked_fill(padding, 0).unsqueeze(-1)).squeeze(-1)  # log p(y)
        loss = -(1 - self.smoothing) * right
        if self.smoothing > 0:
            loss = loss - self.smoothing * x.mean(dim=-1)  # ε times the mean of -log p(k)
        return loss.masked_fill(padding, 0.0).sum()


def smoothed_cross_entropy(
    logits: Tensor, target: Tensor, padding_idx: int, smoothing: float = 0.0
) -> Tensor:
    """The loss of `LabelSmoothing`, from logits, by torch's own kernel.

    Args:
        logits: scores before the softmax (..., vocab)   target: ids (...)
        padding_idx: positions with this target are ignored.   smoothing: ε.

    Returns: sum of the loss over all positions that are not padding, in nats.

    Source: section 5.4.
    """
    logits, target = logits.flatten(0, -2), target.flatten()
    return F.cross_entropy(
        logits, target, ignore_index=padding_idx, label_smoothing=smoothing, reduction="sum"
    )
