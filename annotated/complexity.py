"""4 Why Self-Attention (chapters/4-why-self-attention.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from annotated.attention import scaled_dot_product


class BareSelfAttention(nn.Module):
    """Each position mixes all positions: (batch, n, d) to the same, without projections.

    Source: Table 1, first row.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(batch, n, d) to the same."""
        return scaled_dot_product(x, x, x)[0]


class Recurrent(nn.Module):
    """h_t = tanh(W x_t + U h_(t-1) + b), one step after another: (batch, n, d) to the same.

    Source: Table 1, second row.
    """

    def __init__(self, d: int) -> None:
        super().__init__()
        self.input = nn.Linear(d, d)
        self.state = nn.Linear(d, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, n, d) to the same."""
        from_input, h, states = self.input(x), torch.zeros_like(x[:, 0]), []
        for t in range(x.size(1)):
            h = torch.tanh(from_input[:, t] + self.state(h))
            states.append(h)
        return torch.stack(states, dim=1)


def _check_odd(name: str, width: int) -> None:
    """Raise ValueError unless a neighbourhood has a middle."""
    if width < 1 or width % 2 == 0:
        raise ValueError(f"expected an odd {name} of at least 1; got {width}")


class Convolution(nn.Module):
    """Each position mixes k neighbours, `dilation` apart: (batch, n, d) to the same.

    Args:
        k: width of the kernel, odd.   separable: mix positions and channels one after the other.
        causal: the neighbours are those before, as in a decoder, and not those around.

    Raises: ValueError if k is even.

    Source: Table 1, third row; section 4.
    """

    def __init__(
        self, d: int, k: int, dilation: int = 1, separable: bool = False, causal: bool = False
    ) -> None:
        super().__init__()
        _check_odd("k", k)
        self.mix = nn.Conv1d(d, d, k, dilation=dilation, groups=d if separable else 1)
        self.pointwise = nn.Linear(d, d) if separable else nn.Identity()
        self.after = 0 if causal else dilation * (k // 2)  # zeros that stand for what is not there
        self.before = dilation * (k - 1) - self.after

    def forward(self, x: Tensor) -> Tensor:
        """(batch, n, d) to the same."""
        x = F.pad(x.transpose(1, 2), (self.before, self.after))
        return self.pointwise(self.mix(x).transpose(1, 2))


class RestrictedSelfAttention(nn.Module):
    """Each position mixes the r positions around it: (batch, n, d) to the same.

    Args:
        r: size of the neighbourhood, odd; parts of it beyond the ends do not count.

    Raises: ValueError if r is even.

    Source: Table 1, fourth row; section 4.
    """

    def __init__(self, r: int) -> None:
        super().__init__()
        _check_odd("r", r)
        self.r = r

    def forward(self, x: Tensor) -> Tensor:
        """(batch, n, d) to the same."""
        n, side = x.size(1), self.r // 2
        near = F.pad(x, (0, 0, side, side)).unfold(1, self.r, 1)  # (batch, n, d, r)
        place = torch.arange(n, device=x.device)[:, None] + torch.arange(
            -side, side + 1, device=x.device
        )
        scores = torch.einsum("bnd,bndr->bnr", x, near) / x.size(-1) ** 0.5
        scores = scores.masked_fill((place < 0) | (place >= n), -torch.inf)
        return torch.einsum("bnr,bndr->bnd", scores.softmax(dim=-1), near)


@torch.no_grad()
def multiply_adds(layer: nn.Module, n: int, d: int) -> int:
    """Multiplications with their additions of a layer on one sequence (1, n, d), counted by torch.

    Source: section 4, first column of Table 1.
    """
    # The fused kernels of attention are not counted; its plain form does the same products.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        layer(torch.zeros(1, n, d))
    return int(counter.get_total_flops()) // 2


def longest_chain(output: Tensor) -> int:
    """Operations on the longest path of the graph that computed a tensor, its leaf counted.

    Source: section 4, second column of Table 1.
    """
    length: dict = {None: 0}
    waiting = [output.grad_fn]
    while waiting:  # a stack of our own: the graph is deeper than Python may recurse
        node = waiting[-1]
        before = [earlier for earlier, _ in node.next_functions] if node else []
        unknown = [earlier for earlier in before if earlier not in length]
        if unknown:
            waiting.extend(unknown)
        else:
            done = 1 + max((length[earlier] for earlier in before), default=0)
            length.setdefault(waiting.pop(), done)
    return length[output.grad_fn]


def layers_to_link(layer: Callable[[int], nn.Module], n: int, d: int = 2) -> int:
    """Layers of a stack after which the output at the last of n positions depends on the first.

    Args:
        layer: makes the layer of a number, counted from 0.

    Raises: ValueError if n layers do not link them.

    Source: section 4, third column of Table 1.
    """
    x = torch.randn(1, n, d, dtype=torch.float64, requires_grad=True)
    out = x
    for number in range(n):
        out = layer(number).double()(out)
        (gradient,) = torch.autograd.grad(out[0, -1].sum(), x, retain_graph=True)
        if gradient[0, 0].ne(0).any():
            return number + 1
    raise ValueError(f"expected layers that link {n} positions; {n} of these do not")
