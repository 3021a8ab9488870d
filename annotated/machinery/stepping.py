"""Whether parts of a model can compute one position at a time.

A module may have, beside `forward`, a method `start` that returns its state before the first
position and a method `step` that computes the next one from the state. What has only `forward` is
given everything again in each step of a search, which takes longer and gives the same.
"""

from torch import nn


def has_step(module: nn.Module, whole: str = "forward") -> bool:
    """Whether `step` of a module computes what `whole` does.

    A subclass that overrides `forward` alone has inherited a `step` of another computation.
    """
    owner = lambda name: next((kind for kind in type(module).__mro__ if name in vars(kind)), None)
    step, own = owner("step"), owner(whole)
    return bool(step and own and issubclass(step, own)) and whole not in vars(module)


def is_watched(module: nn.Module) -> bool:
    """Whether hooks or watchers, which expect whole sequences, wait anywhere in a module."""
    return any(
        m._forward_hooks or m._forward_pre_hooks or getattr(m, "watchers", False)
        for m in module.modules()
    )
