"""Checks of arguments where they enter the package: configurations, texts, ids, masks, searches.

Each value is checked once, where it enters the package; inside the model torch reports errors.
This module does not import the model, so it accesses configurations only by their fields.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from inspect import signature
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from annotated.machinery.errors import InputError, check_known, check_real, check_whole
from annotated.machinery.options import check_options

if TYPE_CHECKING:
    from annotated.language_model import LanguageModelConfig
    from annotated.model import TransformerConfig

_FARTHEST = 100_000  # positions: attention over this many has 10^10 weights per head
_LONGEST_CONTEXT = 1 << 24  # positions with RoPE, which needs no table
_WIDEST, _LONGEST = 1000, 10_000  # hypotheses; tokens by which an output may exceed its input


def check_model_config(c: "TransformerConfig") -> None:
    """Raise InputError unless a configuration describes a model that can be built."""
    check_options(c)
    if not (c.d_k and c.d_v) and c.d_model % c.h:
        wanted = "d_model divisible by h, or d_k and d_v given"
        raise InputError(f"expected {wanted}; got d_model={c.d_model}, h={c.h}")
    head_widths(c.h, c.d_model, c.d_k, c.d_v)
    for name in ("dropout", "attention_dropout"):
        if getattr(c, name) == 1:
            raise InputError(f"expected {name} in [0, 1); got {getattr(c, name)!r:.80}")
    if c.positions == "endpoint" and (c.d_model % 2 or c.d_model < 4):
        wanted = "an even d_model from 4 for positions='endpoint'"
        raise InputError(f"expected {wanted}; got {c.d_model}")
    if c.tie_embeddings and c.src_vocab != c.tgt_vocab:
        sizes = f"src_vocab={c.src_vocab}, tgt_vocab={c.tgt_vocab}"
        raise InputError(f"expected equal vocabularies for tie_embeddings=True; got {sizes}")


def head_widths(h: int, d_model: int, d_k: int | None, d_v: int | None) -> tuple[int, int]:
    """Widths (d_k, d_v) of one head: those given, else d_model / h.

    Raises: InputError unless h, d_k and d_v are whole numbers of at least 1.
    """
    check_whole("h", h)
    d_k, d_v = d_k or d_model // h, d_v or d_model // h
    check_whole("d_k", min(d_k, d_v))  # 0 for more heads than d_model
    return d_k, d_v


def check_language_model_config(c: "LanguageModelConfig") -> None:
    """Raise InputError unless a configuration describes a language model that can be built."""
    for name in ("vocab", "N", "d_model", "d_ff", "h"):
        check_whole(name, getattr(c, name))
    for name in ("kv_heads", "d_k"):
        if getattr(c, name) is not None:
            check_whole(name, getattr(c, name))
    if c.d_k is None and c.d_model % c.h:
        wanted = "d_model divisible by h, or d_k given"
        raise InputError(f"expected {wanted}; got d_model={c.d_model}, h={c.h}")
    if c.h % (c.kv_heads or c.h):
        wanted = "h divisible by kv_heads, to share each between equally many queries"
        raise InputError(f"expected {wanted}; got h={c.h}, kv_heads={c.kv_heads}")
    check_whole("max_len", c.max_len, most=_LONGEST_CONTEXT if c.positions == "rope" else _FARTHEST)
    check_real("epsilon", c.epsilon, 0, 1)
    flags = (
        "norm_first", "parallel", "gated", "qk_norm", "sink", "attention_bias",
        "feed_forward_bias", "tie_embeddings", "scale_embeddings",
    )  # fmt: skip
    choices: dict[str, tuple] = dict.fromkeys(flags, (True, False))
    choices |= {"norm": ("layer", "rms"), "positions": ("sinusoidal", "learned", "rope")}
    choices |= {"activation": ("relu", "swish", "gelu", "gelu_tanh")}
    for name, allowed in choices.items():
        value = getattr(c, name)
        if type(value) is not type(allowed[0]) or value not in allowed:
            wanted = " or ".join(map(repr, allowed))
            raise InputError(f"expected {wanted} for {name}; got {value!r:.80}")
    if c.parallel and not c.norm_first:
        raise InputError("expected norm_first=True for parallel=True; got norm_first=False")
    if c.positions == "rope":
        _check_rotation(c)


def _check_rotation(c: "LanguageModelConfig") -> None:
    """Raise InputError unless these fields describe a valid rotation of a head's components."""
    check_real("theta", c.theta, 1, 1e12)
    check_real("rotated", c.rotated, 0, 1)
    width = int(c.rotated * c.head_width)
    if width % 2 or not width:
        got = f"rotated={c.rotated} of d_k={c.head_width}"
        raise InputError(f"expected an even number of rotated components; got {got}")
    if c.rope_scaling is not None:
        if not isinstance(c.rope_scaling, tuple) or len(c.rope_scaling) != 4:
            wanted = "rope_scaling as a tuple of the factor, low, high, and the original length"
            raise InputError(f"expected {wanted}; got {c.rope_scaling!r:.80}")
        factor, low, high, original = c.rope_scaling
        for name, value in (("factor", factor), ("low", low), ("high", high)):
            check_real(f"{name} of rope_scaling", value, 0.01, 1e6)
        check_whole("the original length of rope_scaling", original)
        if not low < high:
            raise InputError(f"expected low < high in rope_scaling; got {low}, {high}")


def check_generation(
    c: "LanguageModelConfig",
    prompt: Sequence[int],
    max_new_tokens: int,
    temperature: float,
    top_k: int | None,
    top_p: float,
    stop: Collection[int],
    seed: int | None,
) -> None:
    """Raise InputError unless these are valid arguments of `generate`."""
    told = "; a TextGenerator takes strings too"
    for name, ids, more in ("prompt", prompt, ""), ("stop", stop, told):
        texts = str | bytes | bytearray | memoryview | Mapping
        unordered = name == "prompt" and isinstance(ids, Set)
        unordered |= getattr(ids, "ndim", 1) != 1  # of an array
        if not isinstance(ids, Collection) or isinstance(ids, texts) or unordered:
            raise InputError(f"expected {name} as a list of ids; got {type(ids).__name__}{more}")
    for token in stop:
        check_whole("each id of stop", token, least=0, most=c.vocab - 1)
    check_whole("seed", 0 if seed is None else seed, least=0, most=2**64 - 1)
    check_whole("max_new_tokens", max_new_tokens)
    if isinstance(temperature, (int, float)) and temperature == 0:
        advice = "top_k=1 always chooses the most probable token"
        raise InputError(f"expected temperature above 0; got 0; {advice}")
    check_real("temperature", temperature, 0.01, 100)
    check_whole("top_k", 1 if top_k is None else top_k)
    check_real("top_p", top_p, 1e-6, 1)
    check_prompt(c, prompt, max_new_tokens)


def check_prompt(c: "LanguageModelConfig", prompt: Sequence[int], more: int = 0) -> None:
    """Raise InputError unless a model has positions for a text and `more` tokens, and its ids."""
    if not len(prompt):
        raise InputError("expected a prompt of at least one id; got none")
    wanted = f"at most {c.max_len:,} tokens, the prompt and {more:,} new ones"
    if len(prompt) + more > c.max_len:
        raise InputError(f"expected {wanted}; the prompt has {len(prompt):,}")
    for token in prompt:
        check_whole("each id of the prompt", token, least=0, most=c.vocab - 1)


def check_names(given: Iterable[str], function: Callable[..., object], *more: str) -> None:
    """Raise InputError for a name that is neither an argument of a function nor one of `more`."""
    parameters = signature(function).parameters.values()
    known = [*(each.name for each in parameters if each.default is not each.empty), *more]
    for name in given:
        check_known("options", name, known)


def check_ids(name: str, ids: Tensor) -> None:
    """Raise InputError unless ids are integers (batch, len); their values are not checked."""
    if not isinstance(ids, Tensor):
        kind = type(ids).__name__
    elif ids.dim() == 2 and ids.dtype in (torch.int64, torch.int32):
        return
    else:
        kind = f"{str(ids.dtype).removeprefix('torch.')} {tuple(ids.shape)}"
    raise InputError(f"expected {name} as ids (batch, len), of int64 or int32; got {kind}")


def as_boolean_mask(mask: Tensor, name: str = "mask") -> Tensor:
    """A mask as booleans, where True allows attention.

    Raises: InputError for a mask that is meant to be added to scores, with 0 for allowed and -inf
        for forbidden. Floating-point zeros and ones are accepted, but zeros alone are ambiguous.
    """
    if not isinstance(mask, Tensor):
        raise InputError(f"expected {name} as a tensor; got {type(mask).__name__}")
    if mask.dtype == torch.bool:
        return mask
    either = mask.is_floating_point() and not mask.any()
    if either or not ((mask == 0) | (mask == 1)).all():
        wanted = "False or 0 where attention is forbidden and True or 1 elsewhere"
        got = f"got other numbers, or only zeros of {mask.dtype}"
        raise InputError(f"expected {name} with {wanted}; {got}")
    return mask.bool()


def find_table(name: str, embed: nn.Module, shape: Sequence[int]) -> nn.Embedding:
    """The only embedding in a module, or in the first of a sequence, which positions may follow.

    Raises: InputError unless it has this shape.
    """
    first = embed[0] if isinstance(embed, nn.Sequential) else embed
    tables = [m for m in first.modules() if isinstance(m, nn.Embedding)]
    sizes = [tuple(table.weight.shape) for table in tables]
    if sizes != [tuple(shape)]:
        wanted = f"one nn.Embedding of {tuple(shape)} in {name}, to tie"
        raise InputError(f"expected {wanted}; got {sizes}")
    return tables[0]


def check_vectors(x: Tensor, d_model: int) -> None:
    """Raise InputError unless x is (batch, len, d_model) of floating-point numbers."""
    if x.shape[2:] != (d_model,) or not x.is_floating_point():
        wanted = f"(batch, len, {d_model}) of floating-point numbers"
        raise InputError(f"expected x {wanted}; got {tuple(x.shape)} of {x.dtype}")


def check_mask(
    name: str, mask: Tensor | None, batch: int, queries: int, keys: int
) -> Tensor | None:
    """A mask as from `as_boolean_mask`, of shape (batch or 1, queries, keys).

    Raises: InputError for any other shape, which might broadcast over the wrong dimension.
    """
    if mask is None:
        return None
    shape = mask.shape if isinstance(mask, Tensor) else None
    if shape not in ((batch, queries, keys), (1, queries, keys)):
        got = type(mask).__name__ if shape is None else tuple(shape)
        raise InputError(f"expected {name} of shape {(batch, queries, keys)}; got {got}")
    return as_boolean_mask(mask, name)


def check_finite(log_probs: Tensor) -> None:
    """Raise InputError unless log-probabilities are finite; a NaN weight makes all of them NaN."""
    if not log_probs.isfinite().all():
        raise InputError("expected log-probabilities from the model; got no finite numbers")


def check_source(
    src: Tensor, src_mask: Tensor | None, follow: Sequence[object] | None = None
) -> None:
    """Raise InputError unless src is (batch, src_len) of at least one token, with a valid mask.

    Args: follow: rules of a search, one for each sentence; or None.
    """
    check_ids("src", src)
    if not src.size(1):
        raise InputError(f"expected src of at least one id; got {tuple(src.shape)}")
    check_mask("src_mask", src_mask, src.size(0), 1, src.size(1))
    if follow is None:
        return
    rules = follow if isinstance(follow, Sequence) else []
    if len(rules) != len(src) or not all(map(callable, rules)):
        got = f"{len(rules)} in a {type(follow).__name__}"
        raise InputError(f"expected follow as a list of {len(src)} functions; got {got}")


def allowed_ids(found: object, vocab: int) -> Tensor:
    """The ids that a rule of a search allows, (ids,). Raises: InputError if they are none."""
    try:
        ids = torch.as_tensor(found)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        ids = torch.zeros(())
    whole = not ids.is_floating_point() and ids.dtype != torch.bool
    inside = bool(((ids >= 0) & (ids < vocab)).all())
    if ids.dim() != 1 or (len(ids) and not (whole and inside)):
        raise InputError(f"expected ids below {vocab} from a rule of follow; got {found!r:.80}")
    return ids.long()


def check_found(found: Sequence[Sequence[object]]) -> None:
    """Raise InputError if a search has completed nothing for a sentence; a NaN wins nothing."""
    if not all(found):
        raise InputError("expected log-probabilities from the model; got no finite numbers")


def check_search(
    beam: int = 4,
    alpha: float = 0.6,
    max_extra: int = 50,
    n_best: int = 1,
    offset: float = 5,
    max_len: int | None = None,
) -> None:
    """Raise InputError unless these are valid for `beam_search`, which has the same defaults."""
    check_real("alpha", alpha, -10, 10)
    check_real("offset", offset, 0, 100)
    check_whole("beam", beam, most=_WIDEST)
    check_whole("max_extra", max_extra, least=0, most=_LONGEST)
    check_whole("max_len", 1 if max_len is None else max_len, most=_LONGEST)
    check_whole("n_best", n_best)
    if n_best > beam:
        raise InputError(f"expected n_best of at most beam; got n_best={n_best}, beam={beam}")


def usable_device(device: torch.device | str) -> torch.device | str:
    """A device on which torch can compute. Raises: InputError for any other."""
    try:
        torch.zeros(1, device=device).item()
    except Exception as error:  # each kind of device raises its own error
        reason = str(error).partition("\n")[0]
        wrong = f"{device!r}: {reason}"
        raise InputError(f"expected a device that torch can use; got {wrong}") from None
    return device


# Control characters, spaces, line ends, and zero-width marks at the start or end of files.
_INVISIBLE = [*range(33), *range(127, 161), 0xAD, 0x1680, *range(0x2000, 0x200C), 0x200E, 0x200F]
_INVISIBLE += [*range(0x2028, 0x2030), 0x205F, 0x2060, *range(0x2066, 0x206A), 0x3000, 0xFEFF]
_ENDS = "".join(map(chr, _INVISIBLE))


def bare_text(text: str) -> str:
    """A text without spaces, line ends and other invisible characters at its ends.

    A vocabulary has no piece for most of them and would encode each as an unknown letter.
    """
    return text.strip(_ENDS)


def without_surrogates(text: str) -> str:
    """A text with U+FFFD for each lone surrogate, which UTF-8 cannot represent."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def each_text(sentences: Iterable[str], bare: bool = True) -> Iterator[str]:
    """Each sentence after `without_surrogates` and, unless told otherwise, `bare_text`.

    Raises: InputError for a single string, whose letters would be treated as sentences, for a
        table, which iterates over its column names, for an unordered collection, and, once it is
        reached, for a sentence that is not a string.
    """
    others = str | bytes | bytearray | Mapping | set | frozenset
    table = hasattr(sentences, "columns") or getattr(sentences, "ndim", 1) != 1
    if table or isinstance(sentences, others) or not isinstance(sentences, Iterable):
        kind = "a single string" if isinstance(sentences, str) else type(sentences).__name__
        raise InputError(f"expected a list of sentences, each a string; got {kind}")
    for number, sentence in enumerate(sentences, start=1):
        if not isinstance(sentence, str):
            kind = type(sentence).__name__
            raise InputError(f"expected sentence {number} as a string; got {kind}")
        text = without_surrogates(sentence)
        yield bare_text(text) if bare else text
