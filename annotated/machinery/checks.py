"""Checks of what comes in at the doors: a configuration, sentences, ids, masks, a search.

Each is made once, where a value enters the package; inside the model torch's own errors speak.
This module stands below the model, so it knows configurations by their fields only.
"""

from collections.abc import Iterable, Iterator, Mapping
from numbers import Real
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from annotated.machinery.errors import InputError, check_whole

if TYPE_CHECKING:
    from annotated.model import TransformerConfig

_FARTHEST = 100_000  # positions: attention over so many has 10^10 weights in each head
_WIDEST, _LONGEST = 1000, 10_000  # hypotheses; tokens an output may have beyond its input


def check_model_config(c: "TransformerConfig") -> None:
    """Raise InputError unless a configuration describes a model that can be built."""
    for name in ("src_vocab", "tgt_vocab", "N", "d_model", "d_ff", "h"):
        check_whole(name, getattr(c, name))
    for name in ("d_k", "d_v"):
        if getattr(c, name) is not None:
            check_whole(name, getattr(c, name))
        elif c.d_model % c.h:
            wanted = "d_model divisible by h, or d_k and d_v given"
            raise InputError(f"expected {wanted}; got d_model={c.d_model}, h={c.h}")
    check_whole("max_len", c.max_len, most=_FARTHEST)
    for name in ("dropout", "attention_dropout"):
        rate = getattr(c, name)
        if isinstance(rate, bool) or not isinstance(rate, Real) or not 0 <= float(rate) < 1:
            raise InputError(f"expected {name} in [0, 1); got {rate!r:.80}")
    choices = {
        **dict.fromkeys(("tie_embeddings", "norm_first", "bias"), (True, False)),
        "positions": ("sinusoidal", "learned"),
        "activation": ("relu", "swish"),
    }
    for name, allowed in choices.items():
        value = getattr(c, name)
        if type(value) is not type(allowed[0]) or value not in allowed:
            wanted = " or ".join(map(repr, allowed))
            raise InputError(f"expected {wanted} for {name}; got {value!r:.80}")
    if c.tie_embeddings and c.src_vocab != c.tgt_vocab:
        sizes = f"src_vocab={c.src_vocab}, tgt_vocab={c.tgt_vocab}"
        raise InputError(f"expected equal vocabularies for tie_embeddings=True; got {sizes}")


def check_real(name: str, value: object, least: float, most: float) -> None:
    """Raise InputError unless a value is a number from least to most; True and NaN are not."""
    if isinstance(value, bool) or not isinstance(value, Real) or not least <= float(value) <= most:
        raise InputError(f"expected {name} between {least} and {most}; got {value!r:.80}")


def check_ids(name: str, ids: Tensor) -> None:
    """Raise InputError unless ids are integers (batch, len); their values are not looked at."""
    if not isinstance(ids, Tensor):
        kind = type(ids).__name__
    elif ids.dim() == 2 and ids.dtype in (torch.int64, torch.int32):
        return
    else:
        kind = f"{str(ids.dtype).removeprefix('torch.')} {tuple(ids.shape)}"
    raise InputError(f"expected {name} as ids (batch, len), of int64 or int32; got {kind}")


def check_mask(name: str, mask: Tensor | None) -> None:
    """Raise InputError for a mask that would be obeyed and mean something else.

    One with other than three dimensions may broadcast over the wrong one, and in a mask that is
    meant to be added to the scores (0 allows, -inf forbids) zeros would forbid.
    """
    if mask is None:
        return
    if not isinstance(mask, Tensor) or mask.dim() != 3:
        got = tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise InputError(f"expected {name} of shape (batch, 1 or len_q, len_k); got {got}")
    if mask.is_floating_point() and (mask < 0).any():
        raise InputError(f"expected {name} with 0 or False where attention is forbidden; got < 0")


def check_source(src: Tensor, src_mask: Tensor | None) -> None:
    """Raise InputError unless these are ids (batch, src_len) of at least one token, and a mask."""
    check_ids("src", src)
    if not src.size(1):
        raise InputError(f"expected src of at least one id; got {tuple(src.shape)}")
    check_mask("src_mask", src_mask)
    if src_mask is not None and src_mask.shape[1:] != (1, src.size(1)):
        wanted = f"(batch, 1, {src.size(1)})"
        raise InputError(f"expected src_mask of shape {wanted}; got {tuple(src_mask.shape)}")


def check_search(
    beam: int, alpha: float, max_extra: int, n_best: int, offset: float, max_len: int | None
) -> None:
    """Raise InputError unless these are arguments of `beam_search`."""
    check_real("alpha", alpha, -10, 10)
    check_real("offset", offset, 0, 100)
    check_whole("beam", beam, most=_WIDEST)
    check_whole("max_extra", max_extra, least=0, most=_LONGEST)
    check_whole("max_len", 1 if max_len is None else max_len, most=_LONGEST)
    check_whole("n_best", n_best)
    if n_best > beam:
        raise InputError(f"expected n_best of at most beam; got n_best={n_best}, beam={beam}")


def each_text(sentences: Iterable[str]) -> Iterator[str]:
    """Each sentence, with U+FFFD for a lone surrogate, which UTF-8 cannot represent.

    Raises: InputError for a single string, whose letters would be taken for sentences, for a
        collection without an order, and, when it is reached, for a sentence that is no string.
    """
    others = str | bytes | bytearray | Mapping | set | frozenset
    if isinstance(sentences, others) or not isinstance(sentences, Iterable):
        kind = "a single string" if isinstance(sentences, str) else type(sentences).__name__
        raise InputError(f"expected a list of sentences, each a string; got {kind}")
    for number, sentence in enumerate(sentences, start=1):
        if not isinstance(sentence, str):
            kind = type(sentence).__name__
            raise InputError(f"expected sentence {number} as a string; got {kind}")
        yield sentence.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
