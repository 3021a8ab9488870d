"""Looking into a model, and changing it: attention weights, activations, heads switched off."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn

from annotated.machinery.errors import InputError, check_whole


@contextmanager
def record_attention(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Record the attention weights of every call of a model in this thread inside the block.

    Args:
        model: any module with layers whose weights pass `MultiHeadedAttention.kernel`, or a layer.

    Yields: weights (batch, h, len_q, len_k) by the layer's name in `model.named_modules()`, such
        as "encoder.layers.0.self_attn" ("" for the layer itself), as the layer's own kernel
        returns them. Each call of a layer replaces the weights of its previous call; they carry no
        gradient and do not include dropout, and those of a language model sum to 1 together with
        the share of a sink. A layer that has no such weights, as linear attention, is not listed.

    Raises: InputError for a layer whose kernel returns no weights.

    Source: section 3.2.

    >>> with record_attention(model) as seen:
    ...     model.encode(src, src_mask)
    >>> seen["encoder.layers.0.self_attn"]
    """
    seen: dict[str, Tensor] = {}
    thread = get_ident()  # another thread may use the same model

    def watch(name: str, weights: Tensor | None) -> None:
        if get_ident() == thread:
            if weights is None:
                raise InputError(f"expected weights from the kernel of {name!r}; got None")
            seen[name] = weights.detach()

    with ExitStack() as end:
        for name, layer in _attention_layers(model).items():
            layer.watchers.append(watcher := partial(watch, name))
            end.callback(layer.watchers.remove, watcher)
        yield seen


def _attention_layers(model: nn.Module) -> dict[str, Any]:
    """The layers of a model whose weights can be recorded, by name."""
    return {name: m for name, m in model.named_modules() if hasattr(m, "watchers")}


Change = Callable[[Tensor], Tensor | None]


@contextmanager
def touch(model: nn.Module, parts: Mapping[str, Change]) -> Iterator[None]:
    """Record or replace activations of a model inside the block.

    During a search each step then decodes the whole output, so that a change sees all positions.

    Args:
        model: any module.
        parts: by the name of a module, a function of its output; by "NAME:in", of its first input.
            What the function returns replaces the activation; None keeps it. Useful names are
            "src_embed", "encoder.layers.4" (the stream after a layer), "encoder.layers.4.self_attn"
            and its "w_o:in" (the heads side by side), "w_q", "w_k" (where heads look) and "w_v"
            (what they find).

    Raises: InputError for a module that the model does not have.

    >>> seen = []
    >>> with touch(model, {"encoder.layers.0": seen.append}):
    ...     model.encode(src)
    >>> with touch(model, {"encoder.layers.0": take(seen[0], slice(None), 3)}):  # position 3
    ...     model.encode(other)
    """
    modules = dict(model.named_modules())
    for name in parts:
        if name.removesuffix(":in") not in modules:
            raise InputError(f"expected the name of a module of the model; got {name!r:.80}")
    with ExitStack() as hooks:
        for name, change in parts.items():
            module = modules[name.removesuffix(":in")]
            if name.endswith(":in"):
                hook = module.register_forward_pre_hook(partial(_change_input, change))
            else:
                hook = module.register_forward_hook(lambda _, __, out, f=change: f(out))
            hooks.enter_context(hook)
        yield


def _change_input(change: Change, _: nn.Module, given: tuple) -> tuple | None:
    new = change(given[0])
    return None if new is None else (new, *given[1:])


def take(new: Tensor | float, *at: slice | int) -> Callable[[Tensor], Tensor]:
    """A change for `touch` that takes over one part of an activation, such as a position or head.

    Args: new: another activation of the same shape, or one number.   at: the index of the part.
    """

    def change(x: Tensor) -> Tensor:
        x = x.clone()
        x[at] = new[at] if isinstance(new, Tensor) else new
        return x

    return change


@contextmanager
def switch_off(
    model: nn.Module,
    heads: Mapping[str, Collection[int]],
    means: Mapping[str, Tensor] | None = None,
) -> Iterator[None]:
    """Switch off heads of a model inside the block: their outputs are replaced by constants.

    Args:
        model: as for `record_attention`.
        heads: their numbers, from 0, by the name of the layer, such as
            {"encoder.layers.4.self_attn": [4]}. The layer's output map, with its bias, remains.
        means: by the name of the layer, the outputs of its heads (d_model), side by side, that
            replace them, such as their means over other sentences; without means, zeros.

    Raises: InputError for a layer or head that the model does not have.

    Source: section 3.2.2.
    """
    layers = _attention_layers(model)
    for name, numbers in heads.items():
        if name not in layers:
            raise InputError(f"expected a layer out of {', '.join(layers)}; got {name!r:.80}")
        for number in numbers:
            check_whole("head", number, least=0, most=layers[name].h - 1)

    def without(name: str) -> Change:
        h = layers[name].h
        off = torch.tensor([number in heads[name] for number in range(h)])
        new = torch.zeros(()) if means is None else means[name]

        def change(x: Tensor) -> Tensor:
            mask = off.repeat_interleave(x.size(-1) // h).to(x.device)
            return torch.where(mask, new.to(x), x)

        return change

    with touch(model, {f"{name}.w_o:in".lstrip("."): without(name) for name in heads}):
        yield
