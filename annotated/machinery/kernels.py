"""The fastest of torch's kernels that compute the same, where torch does not choose them itself."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

_SHORT = 128  # positions up to which two products are faster than a CPU's fused kernel in 16 bits
_LARGE = 2**19  # multiplications from which a packed product is faster than the usual one
PACKS = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
_packs: WeakKeyDictionary[nn.Module, tuple[Tensor, Tensor]] = WeakKeyDictionary()  # and their marks


def fast_attention(
    dtype: torch.dtype, device: torch.device, length: int
) -> AbstractContextManager[None]:
    """A context for attention over at most so many positions, computed in this type.

    In 16 bits, a CPU's fused kernel is slow for short sentences. A GPU's cuDNN would plan its
    kernel anew for each shape of a batch, which took most of the time of an update on an H100.
    """
    if dtype == torch.float32 or (device.type == "cpu" and length > _SHORT):
        return nullcontext()
    fused = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
    return sdpa_kernel([SDPBackend.MATH, *(fused if device.type != "cpu" else [])])


def _mark(weight: Tensor) -> Tensor:
    """A product with a matrix (out, in), which changes when the matrix does."""
    return weight.detach() @ torch.linspace(1, 2, weight.size(1))


class _Packed(nn.Linear):
    """A linear map in a search, which multiplies by its packed matrix where that is faster."""

    def forward(self, x: Tensor) -> Tensor:
        weight, rows = self.weight, x.numel() // x.size(-1)
        small = rows * weight.numel() < _LARGE
        if small or x.dtype != torch.float32 or torch.is_grad_enabled():
            return F.linear(x, weight, self.bias)
        if (kept := _packs.get(self)) is None:
            packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), rows)
            kept = _packs[self] = packed, _mark(weight)
        return torch.ops.mkldnn._linear_pointwise(x, kept[0], self.bias, "none", [], "")


@contextmanager
def packed_products(model: nn.Module) -> Iterator[None]:
    """Inside the block, a CPU multiplies by packed matrices, which are kept for the next block.

    A matrix whose mark has changed is packed again. If another thread's block with the model ends
    first, the rest of this one does without packed matrices.
    """
    maps: list[Any] = [m for m in model.modules() if PACKS and type(m) in (nn.Linear, _Packed)]
    for linear in maps:
        if (linear.weight.device.type, linear.weight.dtype) == ("cpu", torch.float32):
            if (kept := _packs.get(linear)) and not torch.equal(kept[1], _mark(linear.weight)):
                _packs.pop(linear, None)
            linear.__class__ = _Packed
    try:
        yield
    finally:
        for linear in maps:
            linear.__class__ = nn.Linear
