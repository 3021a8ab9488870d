"""Attention weights for pictures and studies, recorded only on request."""

import math
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
    """Record the attention weights of every call of a model in this thread inside the block.

    Args:
        model: any module that contains `MultiHeadedAttention` layers, or such a layer itself; or
            a `LanguageModel`, whose weights sum to 1 together with the share of a sink.

    Yields: weights (batch, h, len_q, len_k) by the layer's name in `model.named_modules()`, such
        as "encoder.layers.0.self_attn" ("" for the layer itself). Each call of a layer replaces
        the weights of its previous call; they carry no gradient and do not include dropout. Beam
        search does not call the decoder's layers (`annotated.beam_search`), so call the model on
        its output instead.

    Source: section 3.2.

    >>> with record_attention(model) as seen:
    ...     model.encode(src, src_mask)
    >>> seen["encoder.layers.0.self_attn"]
    """
    seen: dict[str, Tensor] = {}
    # Recognized by its methods, because a notebook may have redefined its class.
    names: dict[Any, str] = {
        m: name for name, m in model.named_modules() if hasattr(m, "keys_values")
    }

    thread = get_ident()  # another thread may use the same model

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

    def recording(layer: Any, inner: Any) -> Any:
        """The kernel of a language model's layer; only it receives the rotated queries."""

        def kernel(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
            with torch.no_grad():
                scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.size(-1))
                if mask.dtype == torch.bool:
                    scores = scores.masked_fill(~mask, -math.inf)
                else:  # with a sink's logit, the mask consists of numbers to add
                    scores = scores + mask
                weights = scores.softmax(dim=-1)
                seen[names[layer]] = weights if layer.sink is None else weights[..., :-1]
            return inner(queries, keys, values, mask)

        return kernel

    own = {layer: layer.kernel for layer in names if hasattr(layer, "kernel")}
    hooks = [
        layer.register_forward_hook(record, with_kwargs=True) for layer in names if layer not in own
    ]
    for layer, inner in own.items():
        layer.kernel = recording(layer, inner)
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
        for layer, inner in own.items():
            layer.kernel = inner


@contextmanager
def switch_off(model: nn.Module, heads: Mapping[str, Collection[int]]) -> Iterator[None]:
    """Switch off heads of a model inside the block: their outputs are replaced by zeros.

    Args:
        model: as for `record_attention`.
        heads: their numbers, from 0, by the name of the layer, such as
            {"encoder.layers.4.self_attn": [4]}. The layer's output map, with its bias, remains.

    Raises: InputError for a layer or head that the model does not have.

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
