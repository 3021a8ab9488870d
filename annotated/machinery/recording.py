"""Attention weights for pictures and studies, recorded only while somebody asks for them."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn

from annotated.attention import scaled_dot_product
from annotated.machinery.errors import InputError, check_whole


@contextmanager
def record_attention(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Record the attention weights of every call of a model by this thread inside the block.

    Args:
        model: any module that contains `MultiHeadedAttention` layers, or such a layer itself.

    Yields: weights (batch, h, len_q, len_k) by the layer's name in `model.named_modules()`, such
        as "encoder.layers.0.self_attn" ("" for the layer itself). Each call of a layer replaces
        the weights of its previous call; they carry no gradient. Without dropout. Beam search does
        not call the decoder's layers (`annotated.beam_search`): let the model read its output.

    Source: section 3.2.

    >>> with record_attention(model) as seen:
    ...     model.encode(src, src_mask)
    >>> seen["encoder.layers.0.self_attn"]
    """
    seen: dict[str, Tensor] = {}
    # By its methods and not by its class, which a notebook may have defined anew.
    names = {m: name for name, m in model.named_modules() if hasattr(m, "keys_values")}

    thread = get_ident()  # another may use the same model

    def record(layer: Any, inputs: tuple, *rest: Any) -> None:
        if get_ident() != thread:
            return
        options, _ = rest
        given = dict(zip(("query", "key", "value", "mask"), inputs, strict=False)) | options
        with torch.no_grad():
            queries = layer.split_heads(layer.w_q(given["query"]))
            keys, values = layer.keys_values(given["key"], given["value"])
            mask = given.get("mask")
            mask = None if mask is None else mask.unsqueeze(-3)  # the same for all heads
            seen[names[layer]] = scaled_dot_product(queries, keys, values, mask)[1]

    hooks = [layer.register_forward_hook(record, with_kwargs=True) for layer in names]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def switch_off(model: nn.Module, heads: Mapping[str, Collection[int]]) -> Iterator[None]:
    """Take heads out of a model while the block runs: what they would pass on is zero.

    Args:
        model: as for `record_attention`.
        heads: their numbers, from 0, by the name of the layer, such as
            {"encoder.layers.4.self_attn": [4]}. The output map of the layer stays, with its bias.

    Raises: InputError for a layer or a head that the model does not have.

    Source: section 3.2.2.
    """
    layers: dict[str, Any] = {n: m for n, m in model.named_modules() if hasattr(m, "keys_values")}
    for name, numbers in heads.items():
        if name not in layers:
            raise InputError(f"expected a layer out of {', '.join(layers)}; got {name!r:.80}")
        for number in numbers:
            check_whole("head", number, least=0, most=layers[name].h - 1)

    def without(layer: Any, numbers: Collection[int]) -> Callable[..., Any]:
        off = torch.tensor([number in numbers for number in range(layer.h)])
        return lambda _, inputs: inputs[0].masked_fill(
            off.repeat_interleave(inputs[0].size(-1) // layer.h).to(inputs[0].device), 0.0
        )

    hooks = [
        layers[name].w_o.register_forward_pre_hook(without(layers[name], numbers))
        for name, numbers in heads.items()
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
