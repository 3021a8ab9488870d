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
class KeysValues:
    """Keys and values of the tokens so far, which self-attention keeps between steps.

    Args:
        attention: the `MultiHeadedAttention`.
        keys: (batch, h, tokens, d_k)   values: (batch, h, tokens, d_v)

    Source: section 3.2.3.
    """

    attention: Any
    keys: Tensor
    values: Tensor

    def step(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Append the keys and values of the newest tokens, then attend to all tokens so far."""
        key, value = self.attention.keys_values(x, x)
        self.keys = torch.cat([self.keys, key], dim=2)
        self.values = torch.cat([self.values, value], dim=2)
        return self.attention.attend(x, self.keys, self.values, mask, two_products)

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order."""
        self.keys, self.values = self.keys[rows], self.values[rows]

    def follow(self, parents: Tensor) -> None:
        """Continue these hypotheses (batch, width); a mask selects their tokens, nothing moves."""


@dataclass
class LayerCache:
    """The cache of one decoder layer.

    Args:
        layer: the `DecoderLayer`.
        own: the cache of its self-attention; a `State` if that is a recurrent cell.
        source: keys and values of the encoder's output, each (batch, h, src_len, d_k or d_v).

    Source: section 3.2.3.
    """

    layer: Any
    own: Any
    source: tuple[Tensor, Tensor]

    def step(self, x: Tensor, mask: Tensor | None, src_mask: Tensor | None) -> Tensor:
        """`DecoderLayer.forward` for the newest tokens: (batch, width, d_model) to the same."""
        layer = self.layer
        x = layer.sublayer[0](x, lambda x: self.own.step(x, mask))
        across = lambda x: layer.src_attn.attend(x, *self.source, src_mask, two_products)
        x = layer.sublayer[1](x, across)
        return layer.sublayer[2](x, layer.feed_forward)


def two_products(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float = 0.0
) -> Tensor:
    """Equation 1 without dropout; for few queries faster than torch's kernel on a CPU.

    Args: as for `scaled_dot_product`; mask: boolean.   Returns: output (..., len_q, d_v).
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))  # (..., len_q, len_k)
    if mask is None:
        return scores.softmax(dim=-1) @ value
    scores.masked_fill_(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(dim=-1).masked_fill_(~mask, 0.0) @ value  # zeros where all is masked


@dataclass
class DecoderCache:
    """What a decoder keeps between the steps of a search.

    Args:
        layers: the cache of each layer.
        steps: the number of positions decoded.

    Source: section 6.1.
    """

    layers: list[LayerCache]
    steps: int = 0

    @classmethod
    def start(cls, model: EncoderDecoder, memory: Tensor) -> "DecoderCache":
        """The cache before the first step; memory: (batch, src_len, d_model)."""
        decoder: Any = model.decoder
        nothing = memory[:, :0]  # (batch, 0, d_model)
        layers = []
        for layer in decoder.layers:
            if hasattr(layer.self_attn, "start"):  # a recurrent cell, which keeps a state
                own = layer.self_attn.start(memory)
            else:
                own = KeysValues(layer.self_attn, *layer.self_attn.keys_values(nothing, nothing))
            keys, values = layer.src_attn.keys_values(memory, memory)
            source = keys.contiguous(), values.contiguous()  # contiguous per head
            layers.append(LayerCache(layer, own, source))
        return cls(layers)

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order."""
        for layer in self.layers:
            keys, values = layer.source
            layer.source = keys[rows], values[rows]
            layer.own.select(rows)

    def follow(self, parents: Tensor) -> None:
        """Let the hypotheses of each row continue these (batch, width)."""
        for layer in self.layers:
            layer.own.follow(parents)


def decode_step(
    model: EncoderDecoder,
    cache: DecoderCache,
    ids: Tensor,
    mask: Tensor | None = None,
    src_mask: Tensor | None = None,
) -> Tensor:
    """Decode the next position of every hypothesis, and cache its keys and values.

    Args:
        cache: grows by `width` tokens.
        ids: the newest token of each hypothesis (batch, width).
        mask: (batch, width, cached tokens plus the newest), True for the tokens of a
            hypothesis; None: all tokens.
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
