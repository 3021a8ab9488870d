"""6.1 Machine Translation (chapters/6-1-machine-translation.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from annotated.model import EncoderDecoder


@dataclass
class LayerCache:
    """Keys and values that one layer of the decoder keeps from step to step.

    Args:
        layer: the `DecoderLayer`.
        own: keys and values of the tokens so far, each (batch, h, tokens, d_k or d_v).
        source: keys and values of the encoder's output, each (batch, h, src_len, d_k or d_v).

    Source: section 3.2.3.
    """

    layer: Any
    own: tuple[Tensor, Tensor]
    source: tuple[Tensor, Tensor]

    def step(self, x: Tensor, mask: Tensor | None, src_mask: Tensor | None) -> Tensor:
        """`DecoderLayer.forward` for the newest tokens: (batch, width, d_model) to the same."""
        layer = self.layer
        x = layer.sublayer[0](x, lambda x: self.attend_to_own(x, mask))
        across = lambda x: layer.src_attn.attend(x, *self.source, src_mask, two_products)
        x = layer.sublayer[1](x, across)
        return layer.sublayer[2](x, layer.feed_forward)

    def attend_to_own(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Add the keys and values of the newest tokens, then attend to all so far."""
        attention = self.layer.self_attn
        (keys, values), (key, value) = self.own, attention.keys_values(x, x)
        self.own = torch.cat([keys, key], dim=2), torch.cat([values, value], dim=2)
        return attention.attend(x, *self.own, mask, two_products)


def two_products(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float = 0.0
) -> Tensor:
    """Equation 1 without dropout, which for few queries is faster than torch's kernel on a CPU.

    Args: as for `scaled_dot_product`; mask: of booleans.   Returns: output (..., len_q, d_v).
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))  # (..., len_q, len_k)
    if mask is None:
        return scores.softmax(dim=-1) @ value
    scores.masked_fill_(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(dim=-1).masked_fill_(~mask, 0.0) @ value  # zeros where all is masked


@dataclass
class DecoderCache:
    """What a decoder keeps from one step of a search to the next.

    Args:
        layers: what each of its layers keeps.
        steps: the number of positions decoded.

    Source: section 6.1.
    """

    layers: list[LayerCache]
    steps: int = 0

    @classmethod
    def start(cls, model: EncoderDecoder, memory: Tensor) -> "DecoderCache":
        """The cache of a decoder that has written nothing; memory: (batch, src_len, d_model)."""
        decoder: Any = model.decoder
        nothing = memory[:, :0]  # (batch, 0, d_model)
        layers = []
        for layer in decoder.layers:
            own = layer.self_attn.keys_values(nothing, nothing)
            keys, values = layer.src_attn.keys_values(memory, memory)
            source = keys.contiguous(), values.contiguous()  # a head's keys side by side
            layers.append(LayerCache(layer, own, source))
        return cls(layers)

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order."""
        for layer in self.layers:
            (keys, values), (source_keys, source_values) = layer.own, layer.source
            layer.own = keys[rows], values[rows]
            layer.source = source_keys[rows], source_values[rows]


def decode_step(
    model: EncoderDecoder,
    cache: DecoderCache,
    ids: Tensor,
    mask: Tensor | None = None,
    src_mask: Tensor | None = None,
) -> Tensor:
    """Decode the next position of every hypothesis, and keep its keys and values.

    Args:
        cache: grows by `width` tokens.
        ids: the newest token of each hypothesis (batch, width).
        mask: (batch, width, tokens in the cache and the newest), True for those that make up a
            hypothesis; None: all of them do.
        src_mask: (batch, 1, src_len), or None.

    Returns: (batch, width, d_model).

    Source: section 6.1.
    """
    decoder: Any = model.decoder
    embed, encoding = model.tgt_embed.children()
    x = encoding(embed(ids.reshape(-1, 1)), cache.steps).view(*ids.shape, -1)
    for layer in cache.layers:
        x = layer.step(x, mask, src_mask)
    cache.steps += 1
    return decoder.norm(x)
