"""The smoothed loss of section 5.4 without storing all logits, as the trainer uses it.

A tensor of logits has one number per position and token of the vocabulary: 3.7 gigabytes for a
batch of 25,000 tokens and the base model. Because the loss is a sum over positions, a block of
positions can be projected, scored, and its gradients passed on before the next block replaces it.
`LabelSmoothing` is the definition that this loss is tested against.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from annotated.regularization import smoothed_cross_entropy


class _BlockwiseLoss(torch.autograd.Function):
    """Projection and smoothed loss with their gradients, one block of positions at a time."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, target: Tensor, padding_idx: int, smoothing: float
    ) -> Tensor:
        """x: (positions, d_model)   weight: (vocab, d_model)   target: (positions,)"""
        vocab, learns = weight.size(0), any(ctx.needs_input_grad)
        total = x.new_zeros((), dtype=torch.float32)
        grad_x, grad_weight = torch.zeros_like(x), torch.zeros_like(weight) if learns else None
        # On a CPU a block fits into the cache; elsewhere a few large blocks are faster.
        block = max(1, (2**21 if x.device.type == "cpu" else 2**27) // vocab)
        blocks = (tensor.split(block) for tensor in (x, target, grad_x))
        for rows, ids, grad in zip(*blocks, strict=True):
            logits = F.linear(rows, weight)  # (block, vocab)
            log_p = logits.log_softmax(dim=-1, dtype=torch.float32)
            real = (ids != padding_idx).unsqueeze(1)  # (block, 1)
            ids = ids.unsqueeze(1) * real  # the padding id may be outside the vocabulary
            right = log_p.gather(1, ids)
            score = (1 - smoothing) * right + smoothing * log_p.mean(dim=-1, keepdim=True)
            total -= (score * real).sum()
            if learns:
                slope = torch.exp(log_p, out=logits).sub_(smoothing / vocab)  # p - q, in their type
                right = right.exp() - smoothing / vocab - (1 - smoothing)  # before it is rounded
                slope.scatter_(1, ids, right.to(slope.dtype))
                grad.copy_((slope @ weight) * real)
                grad_weight += slope.T @ (rows * real)
        ctx.save_for_backward(grad_x, grad_weight)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients for x (positions, d_model) and weight (vocab, d_model) from that of the sum."""
        return *(grad * saved for saved in ctx.saved_tensors), None, None, None


def _in_float16(device: str) -> bool:
    """Whether matrix products on a kind of device are computed in float16 now."""
    cast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return cast and torch.get_autocast_dtype(device) == torch.float16


def linear_cross_entropy(
    x: Tensor, weight: Tensor, target: Tensor, padding_idx: int, smoothing: float = 0.0
) -> Tensor:
    """The loss of `LabelSmoothing` from the decoder's output, without storing all logits.

    Args:
        x: decoder output (..., d_model)   weight: of the generator (vocab, d_model)
        target: ids (...)   padding_idx: positions with this target do not count.   smoothing: ε.

    Returns: sum of the loss over all positions that are not padding, in nats.

    Source: section 5.4.
    """
    device = x.device.type
    if torch.compiler.is_compiling() or _in_float16(device):
        # A compiler fuses logits and loss anyway; and small gradients in float16 must be scaled
        # before they are computed, not after.
        return smoothed_cross_entropy(F.linear(x, weight), target, padding_idx, smoothing)
    x, target = x.flatten(0, -2), target.flatten()  # (positions, d_model), (positions,)
    if device == "cpu":  # a GPU would have to wait for the number of positions that remain
        real = target != padding_idx
        x, target = x[real], target[real]
    if not torch.is_grad_enabled():
        weight = weight.detach()  # so that no gradient is computed
    return _BlockwiseLoss.apply(x, weight, target, padding_idx, smoothing)
