"""Model and loss in one module.

`DistributedDataParallel` and `torch.compile` wrap this module, so that they see the whole forward
pass of an update.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated.data import PAD, Batch
from annotated.machinery.blockwise_loss import linear_cross_entropy


class ModelLoss(nn.Module):
    """A model with its loss.

    Args:
        model: with a generator whose linear map is `proj`.   smoothing: ε (section 5.4).
    """

    def __init__(self, model: nn.Module, smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.smoothing = smoothing

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """ids (batch, src_len) and (batch, tgt_len + 1) to the loss, summed over target tokens."""
        batch = Batch(src, tgt)
        out = self.model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
        proj: Any = self.model.get_submodule("generator.proj")
        weight = proj.weight  # (vocab, d_model)
        if proj.bias is not None:  # the bias is the weight of one more input, which is 1
            out = F.pad(out, (0, 1), value=1.0)
            weight = torch.cat([weight, proj.bias.unsqueeze(1)], dim=1)
        return linear_cross_entropy(out, weight, batch.tgt_y, PAD, self.smoothing)


def compile_loss(loss: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """A `ModelLoss`, compiled once for all shapes of batches, and once more for a single pair."""
    compiled = torch.compile(loss)

    def run(src: Tensor, tgt: Tensor) -> Tensor:
        for ids in (src, tgt):
            torch._dynamo.maybe_mark_dynamic(ids, (0, 1))  # even if two sizes happen to be equal
        return compiled(src, tgt)

    return run
