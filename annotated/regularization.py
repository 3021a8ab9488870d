"""5.4 Regularization (chapters/5-4-regularization.md).
Configuration, first weights, and the loss (chapters/model-machinery.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class Dropout(nn.Dropout):
    """torch's dropout; on a CPU with a fourth of the random draws.

    There P is rounded to a multiple of 2⁻¹⁶; elsewhere torch's own kernel works.

    Source: section 5.4.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(...) to (...): some components zero, the others divided by 1 - P."""
        if not self.training or self.p == 0:
            return x
        if self.p == 1 or x.device.type != "cpu" or torch.compiler.is_compiling():
            return super().forward(x)
        draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        lots = draws.view(torch.int16)[: x.numel()].view(x.shape)  # from -2¹⁵ to 2¹⁵ - 1
        dropped = min(round(self.p * 2**16), 2**16 - 1)  # of 2¹⁶ equally likely lots
        keep = (lots >= dropped - 2**15).to(x.dtype)
        return x * keep.mul_(2**16 / (2**16 - dropped))


class LabelSmoothing(nn.Module):
    """Cross-entropy against a target that keeps 1 - ε and spreads ε over the vocabulary.

    Args:
        size: size of the vocabulary.
        padding_idx: positions with this target do not count.
        smoothing: ε.

    Raises: ValueError if smoothing lies outside [0, 1).

    Source: section 5.4.
    """

    def __init__(self, size: int, padding_idx: int, smoothing: float = 0.0) -> None:
        super().__init__()
        if not 0 <= smoothing < 1:
            raise ValueError(f"expected smoothing in [0, 1); got {smoothing}")
        self.size = size
        self.padding_idx = padding_idx
        self.smoothing = smoothing

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Sum of the loss over all positions that are not padding, in nats.

        Args: x: log-probabilities (positions, size)   target: ids (positions,)
        Raises: ValueError if x has another number of columns than size.
        """
        if x.size(-1) != self.size:
            raise ValueError(f"expected {self.size} log-probabilities a position; got {x.size(-1)}")
        right = x.gather(-1, target.unsqueeze(-1)).squeeze(-1)  # log p(y)   (positions,)
        loss = -(1 - self.smoothing) * right
        if self.smoothing > 0:
            loss = loss - self.smoothing * x.mean(dim=-1)  # ε times the mean of -log p(k)
        return loss.masked_fill(target == self.padding_idx, 0.0).sum()


def smoothed_cross_entropy(
    logits: Tensor, target: Tensor, padding_idx: int, smoothing: float = 0.0
) -> Tensor:
    """The loss of `LabelSmoothing`, straight from logits, in torch's own kernels.

    Args:
        logits: scores before the softmax (..., vocab)   target: ids (...)
        padding_idx: positions with this target do not count.
        smoothing: ε.

    Returns: sum of the loss over all positions that are not padding, in nats.

    Source: section 5.4.
    """
    return F.cross_entropy(
        logits.flatten(0, -2),
        target.flatten(),
        ignore_index=padding_idx,
        label_smoothing=smoothing,
        reduction="sum",
    )


class _BlockwiseLoss(torch.autograd.Function):
    """Projection and smoothed loss with their gradients, a block of positions at a time."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, target: Tensor, padding_idx: int, smoothing: float
    ) -> Tensor:
        """x: (positions, d_model)   weight: (vocab, d_model)   target: (positions,)"""
        vocab, learns = weight.size(0), any(ctx.needs_input_grad)
        total = x.new_zeros((), dtype=torch.float32)
        grad_x, grad_weight = torch.zeros_like(x), torch.zeros_like(weight) if learns else None
        # On a CPU a block stays in the cache; elsewhere few, large blocks are better.
        block = max(1, (2**21 if x.device.type == "cpu" else 2**27) // vocab)
        blocks = (tensor.split(block) for tensor in (x, target, grad_x))
        for rows, ids, grad in zip(*blocks, strict=True):
            log_p = F.linear(rows, weight).float().log_softmax(dim=-1)  # (block, vocab)
            ids = ids.unsqueeze(1)  # (block, 1)
            real, right = ids != padding_idx, log_p.gather(1, ids)
            score = (1 - smoothing) * right + smoothing * log_p.mean(dim=-1, keepdim=True)
            total -= (score * real).sum()
            if learns:
                slope = log_p.exp_().sub_(smoothing / vocab)  # p - q, in two steps
                slope.scatter_add_(1, ids, torch.full_like(right, smoothing - 1))
                grad.copy_((slope @ weight) * real)
                grad_weight += slope.T @ (rows * real)
        ctx.save_for_backward(grad_x, grad_weight)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients for x (positions, d_model) and weight (vocab, d_model), from the sum's."""
        return *(grad * saved for saved in ctx.saved_tensors), None, None, None


def linear_cross_entropy(
    x: Tensor, weight: Tensor, target: Tensor, padding_idx: int, smoothing: float = 0.0
) -> Tensor:
    """The loss of `LabelSmoothing` from the decoder's output, without all logits at once.

    Args:
        x: decoder output (..., d_model)   weight: of the generator (vocab, d_model)
        target: ids (...)   padding_idx: positions with this target do not count.
        smoothing: ε.

    Returns: sum of the loss over all positions that are not padding, in nats.

    Source: section 5.4.
    """
    device = x.device.type
    half = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) == torch.float16
    if half or torch.compiler.is_compiling():
        # Small gradients in float16 must be scaled before they are computed, not after; and a
        # compiler joins logits and loss by itself.
        return smoothed_cross_entropy(F.linear(x, weight), target, padding_idx, smoothing)
    x, target = x.flatten(0, -2), target.flatten()  # (positions, d_model), (positions,)
    if device == "cpu":  # a GPU would have to stop and say how many positions are left
        real = target != padding_idx
        x, target = x[real], target[real]
    if not torch.is_grad_enabled():
        weight = weight.detach()  # so that no gradient is computed
    return _BlockwiseLoss.apply(x, weight, target, padding_idx, smoothing)
