"""Whether a model can compute one position at a time.

A module may have, beside `forward`, a method `start` that returns its state before the first
position and a method `step` that computes the next one from the state. What has only `forward` is
given everything again in each step of a search, which takes longer and gives the same.
"""

from inspect import signature
from typing import Any

from torch import nn


def can_step(model: Any) -> bool:
    """Whether `step` of an `EncoderDecoder` may stand for its `decode`."""
    decoder, embed = model.decoder, model.tgt_embed
    if is_watched(decoder) or is_watched(embed) or not has_step(decoder):
        return False
    layers: list[Any] = list(decoder.layers)
    parts = [m for layer in layers for m in (layer, layer.self_attn)]
    places = [embed, *list(embed.children())[-1:]]  # the last adds positions
    starts = all("start" in signature(m.forward).parameters for m in places)
    known = all(map(has_step, parts)) and all(_is_unordered(layer.src_attn) for layer in layers)
    return starts and has_step(model, "decode") and known


def has_step(module: nn.Module, whole: str = "forward") -> bool:
    """Whether `step` of a module computes what `whole` does.

    A subclass that overrides `forward` alone has inherited a `step` of another computation.
    """
    step, own = _owner(module, "step"), _owner(module, whole)
    return bool(step and own and issubclass(step, own)) and whole not in vars(module)


def _owner(module: nn.Module, name: str) -> type | None:
    """The class whose method a module has under a name."""
    return next((kind for kind in type(module).__mro__ if name in vars(kind)), None)


def _is_unordered(attention: nn.Module) -> bool:
    """Whether attention to the source takes its queries in any order.

    In a step they are hypotheses instead of positions, which a class of the caller cannot know: it
    may measure distances. So only the package's own methods are taken to do so.
    """
    names = "forward", "keys_values", "attend", "kernel"
    owners = [_owner(attention, name) for name in names]
    own = all(owner and owner.__module__.startswith("annotated.") for owner in owners)
    return own and not vars(attention).keys() & set(names)


def is_watched(module: nn.Module) -> bool:
    """Whether hooks or watchers, which expect whole sequences, wait anywhere in a module."""
    hears = lambda m: m._forward_hooks or m._forward_pre_hooks or getattr(m, "watchers", False)
    return any(map(hears, module.modules()))
