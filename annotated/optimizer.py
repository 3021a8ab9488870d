"""5.3 Optimizer (chapters/5-3-optimizer.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

from collections.abc import Callable

from torch import nn
from torch.optim import Adam
from torch.optim.lr_scheduler import LambdaLR

from annotated.machinery.errors import check_real, check_whole


def rate(step: int, model_size: int, factor: float = 1.0, warmup: int = 4000) -> float:
    """Learning rate by equation 3.

    Args:
        step: number of the update, starting at 1; 0 counts as 1.   model_size: d_model.
        factor: multiplies the rate; 1 in the paper.
        warmup: number of updates during which the rate rises.

    Raises: InputError for a model size or a warmup below 1, or a negative step or factor.

    Source: section 5.3, equation 3.
    """
    check_whole("step", step, least=0)
    check_whole("model_size", model_size)
    check_whole("warmup", warmup)
    check_real("factor", factor, 0, 1e6)
    step = max(step, 1)
    return factor * model_size**-0.5 * min(step**-0.5, step * warmup**-1.5)


def paper_optimizer(
    model: nn.Module,
    model_size: int,
    factor: float = 1.0,
    warmup: int = 4000,
    done: int = 0,
    schedule: Callable[[int, int, float, int], float] = rate,
) -> tuple[Adam, LambdaLR]:
    """Adam with the paper's constants and the schedule of equation 3.

    Args:
        model: on the device where it will be trained.   model_size, factor, warmup: as for `rate`.
        done: number of earlier updates, if a run is continued.
        schedule: the learning rate, a function with the arguments of `rate`.

    Returns: optimizer and scheduler; call the scheduler's step after the optimizer's.

    Source: section 5.3.
    """
    parameters = list(model.parameters())
    fused = all(p.device.type in ("cpu", "cuda") for p in parameters)
    optimizer = Adam(parameters, lr=1.0, betas=(0.9, 0.98), eps=1e-9, fused=fused or None)
    by_update = lambda i: schedule(done + i + 1, model_size, factor, warmup)  # torch counts from 0
    return optimizer, LambdaLR(optimizer, by_update)
