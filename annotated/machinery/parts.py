"""Which classes build a model: the paper's, those that options ask for, or those of the caller."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import nn

from annotated.attention import MultiHeadedAttention
from annotated.embeddings import Embeddings
from annotated.feed_forward import PositionwiseFeedForward
from annotated.machinery.errors import InputError
from annotated.machinery.recurrence import SSRU, WithoutFeedForward
from annotated.positional import LearnedPositionalEncoding, PositionalEncoding
from annotated.stacks import DecoderLayer

_PLACES = "encoder_attention", "decoder_attention", "source_attention"
PARTS = "attention", *_PLACES, "feed_forward", "norm", "embedding", "positions"


def choose_parts(c: Any, given: Mapping[str, Callable]) -> dict[str, Callable[..., Any]]:
    """What builds each part of a model: all are called without arguments but norm, with d_model,
    embedding, with d_model and the size of a vocabulary, and decoder_layer.

    Args:
        c: the `TransformerConfig`; options that differ from the paper's become arguments.
        given: by names of `PARTS`, what takes the place of the paper's classes.

    Raises: InputError for another name, or a part that cannot be called, or not in this way.
    """
    for name, part in given.items():
        if name not in PARTS or not callable(part) or isinstance(part, nn.Module):
            wanted = f"a class or a function for one of {', '.join(PARTS)}"
            raise InputError(f"expected {wanted}; got {name}={part!r:.80}")
    given = {name: partial(_made, name, part) for name, part in given.items()}
    widths = {name: getattr(c, name) for name in ("d_k", "d_v", "bias") if getattr(c, name)}
    default: dict[str, Callable] = dict.fromkeys(_PLACES, MultiHeadedAttention)
    attention = {n: given.get(n, given.get("attention", default[n])) for n in _PLACES}
    sizes = c.h, c.d_model, c.attention_dropout
    chosen: dict[str, Callable] = {n: partial(attention[n], *sizes, **widths) for n in _PLACES}
    if c.decoder != "attention" and "decoder_attention" not in given:
        chosen["decoder_attention"] = partial(SSRU, c.d_model)
    positions: Callable = PositionalEncoding
    if c.positions == "learned":
        positions = LearnedPositionalEncoding
    elif c.positions == "endpoint":
        positions = partial(positions, base=10000 ** (c.d_model / (c.d_model - 2)))
    activation = {} if c.activation == "relu" else {"activation": c.activation}
    feed_forward = given.get("feed_forward", PositionwiseFeedForward)
    epsilon = {} if c.norm_eps == 1e-5 else {"eps": c.norm_eps}
    return chosen | {
        "feed_forward": partial(feed_forward, c.d_model, c.d_ff, **activation),
        "norm": partial(given.get("norm", nn.LayerNorm), **epsilon),
        "embedding": given.get("embedding", Embeddings),
        "positions": partial(given.get("positions", positions), c.d_model, c.dropout, c.max_len),
        "decoder_layer": WithoutFeedForward if c.decoder == "ssru-without-ff" else DecoderLayer,
    }


def _made(name: str, part: Callable[..., Any], *given: Any, **options: Any) -> Any:
    try:
        return part(*given, **options)
    except TypeError as error:
        call = ", ".join([*map(str, given), *(f"{k}={v!r}" for k, v in options.items())])
        raise InputError(f"expected a part to be called as {name}({call}); got: {error}") from error


def part_names(parts: Mapping[str, Any]) -> dict[str, str]:
    """The names by which config.json notes parts; the arguments of a `partial` belong to them."""
    return {name: _name(part) for name, part in sorted(parts.items())}


def _name(part: Any) -> str:
    if isinstance(part, partial):
        given = [*map(repr, part.args), *(f"{k}={v!r}" for k, v in sorted(part.keywords.items()))]
        return f"{_name(part.func)}({', '.join(given)})"
    return getattr(part, "__qualname__", type(part).__qualname__)
