"""6.1 Machine Translation (chapters/6-1-machine-translation.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TypeVar

import torch
from torch import Tensor, nn

from annotated.attention import check_mask, subsequent_mask
from annotated.data import END, PAD, SPECIALS, START, UNK
from annotated.embeddings import check_tokens
from annotated.machinery.errors import InputError, check_whole
from annotated.model import EncoderDecoder
from annotated.stacks import DecoderCache


@torch.no_grad()
def greedy_decode(
    model: EncoderDecoder,
    src: Tensor,
    src_mask: Tensor | None,
    max_len: int,
    start_symbol: int,
    end_symbol: int | None = None,
) -> Tensor:
    """Take the most probable next token, again and again.

    Args:
        model: in eval mode.
        src: ids (batch, src_len)   src_mask: (batch, 1, src_len)
        max_len: length of the result at most, start symbol included.
        start_symbol: id that every result begins with.
        end_symbol: a row that has said it repeats it; search stops once all rows have.

    Returns: ids (batch, at most max_len).

    Raises: ValueError for a wrong argument.

    Source: section 6.1, with a beam of one.
    """
    check_greedy(src, src_mask, max_len, start_symbol, end_symbol)
    memory = model.encode(src, src_mask)
    ys = src.new_full((src.size(0), 1), start_symbol)
    while ys.size(1) < max_len:
        out = model.decode(memory, src_mask, ys, subsequent_mask(ys.size(1)).to(src.device))
        next_word = model.generator(out[:, -1]).argmax(dim=-1)  # (batch,)
        if end_symbol is not None:
            next_word = next_word.masked_fill(ys[:, -1] == end_symbol, end_symbol)
        ys = torch.cat([ys, next_word.unsqueeze(1)], dim=1)
        if end_symbol is not None and bool((next_word == end_symbol).all()):
            break
    return ys


_Number = TypeVar("_Number", float, Tensor)


def length_penalty(length: _Number, alpha: float, offset: float = 5) -> _Number:
    """((5 + length) / 6)^alpha, by which the log-probability of an output is divided.

    Args:
        length: tokens of the output, the end symbol counted; of one, or of several in a tensor.
        alpha: 0 compares probabilities; the larger, the more is granted to long outputs.
        offset: the 5; with 0 it is length^alpha, as in other systems.

    Source: section 6.1, after Wu et al. 2016.
    """
    return ((offset + length) / (offset + 1)) ** alpha


@dataclass(frozen=True)
class Hypothesis:
    """A complete output.

    Attributes: ids without start and end symbol; log_prob, the natural logarithm of the
        probability of ids and end symbol; score, log_prob divided by the length penalty.

    Source: section 6.1.
    """

    ids: list[int]
    log_prob: float
    score: float


@dataclass
class Beam:
    """The open hypotheses of some sentences, and what it takes to extend them.

    Args:
        memory: (batch, src_len, d_model)   src_mask: (batch, 1, src_len), or None
        ids: (batch, width, len), from the start symbol on.
        log_prob: (batch, width); -inf where no hypothesis is.
        ancestry: (batch, width, tokens in the cache and the newest); True where a token
            belongs to a hypothesis.
        places: (batch,), how many hypotheses may still be open.
        scores: (batch, beam), of the complete ones, best first; -inf where none is.
        cache: what the decoder has computed; None: it computes everything anew.
    """

    memory: Tensor
    src_mask: Tensor | None
    ids: Tensor
    log_prob: Tensor
    ancestry: Tensor
    places: Tensor
    scores: Tensor
    cache: DecoderCache | None

    def select(self, rows: Tensor) -> None:
        """Keep these sentences, in this order."""
        for name in "memory", "src_mask", "ids", "log_prob", "ancestry", "places", "scores":
            if (old := getattr(self, name)) is not None:
                setattr(self, name, old[rows])
        if self.cache is not None:
            self.cache.select(rows)


def open_beam(
    model: EncoderDecoder, src: Tensor, src_mask: Tensor | None, size: int, cache: bool = True
) -> Beam:
    """Encode the sources; the only hypothesis of each is the start symbol."""
    memory = model.encode(src, src_mask)
    batch = src.size(0)
    if src_mask is not None:  # where there is no padding, no step need look for it
        src_mask = None if src_mask.all() else src_mask.expand(batch, -1, -1)
    return Beam(
        memory=memory,
        src_mask=src_mask,
        ids=src.new_full((batch, 1, 1), START),
        log_prob=memory.new_zeros(batch, 1),
        ancestry=torch.ones(batch, 1, 1, dtype=torch.bool, device=src.device),
        places=src.new_full((batch,), size),
        scores=torch.full((batch, size), -math.inf, device=src.device),
        cache=DecoderCache() if cache else None,
    )


def next_log_probs(model: EncoderDecoder, beam: Beam) -> Tensor:
    """Log-probabilities (batch, width, vocab) of what follows each hypothesis."""
    if beam.cache is None:
        return next_without_cache(model, beam)
    newest = beam.ids[:, :, -1]  # (batch, width)
    ancestry = None if newest.size(1) == 1 else beam.ancestry  # one hypothesis: all is its own
    out = model.decode(beam.memory, beam.src_mask, newest, ancestry, beam.cache)
    return model.generator(out)


def extend_beam(beam: Beam, log_probs: Tensor, size: int) -> None:
    """Follow the `size` most probable of all one-token continuations of each sentence.

    Args:
        log_probs: (batch, width, vocab), of the next token; overwritten.
    """
    batch, _, vocab = log_probs.shape
    log_probs += beam.log_prob.unsqueeze(-1)  # now of the whole; in place, as it is large
    total = log_probs.flatten(1)  # (batch, width · vocab)
    width = min(size, total.size(1))
    beam.log_prob, index = total.topk(width)  # (batch, width), best first
    parent, token = index // vocab, index % vocab
    row = torch.arange(batch, device=index.device).unsqueeze(1)
    beam.ids = torch.cat([beam.ids[row, parent], token.unsqueeze(-1)], dim=-1)
    itself = torch.eye(width, dtype=torch.bool, device=index.device).expand(batch, -1, -1)
    beam.ancestry = torch.cat([beam.ancestry[row, parent], itself], dim=-1)
    rank = torch.arange(width, device=index.device)
    beam.log_prob.masked_fill_(rank >= beam.places.unsqueeze(1), -math.inf)


def take_complete(beam: Beam, alpha: float, offset: float = 5) -> list[tuple[int, Hypothesis]]:
    """Take the hypotheses that have just ended out of the beam, and their places with them.

    Returns: pairs of a row of the batch and a hypothesis.
    """
    ended = (beam.ids[:, :, -1] == END) & beam.log_prob.isfinite()
    complete = []
    for row, place in ended.nonzero().tolist():
        ids = beam.ids[row, place, 1:].tolist()
        log_prob = float(beam.log_prob[row, place])
        score = log_prob / length_penalty(len(ids), alpha, offset)
        complete.append((row, Hypothesis(ids[:-1], log_prob, score)))
    if complete:
        scores = beam.log_prob.float() / length_penalty(beam.ids.size(-1) - 1, alpha, offset)
        both = torch.cat([beam.scores, scores.masked_fill(~ended, -math.inf)], dim=1)
        beam.scores = both.topk(beam.scores.size(1)).values
        beam.places -= ended.sum(dim=1)
        beam.log_prob.masked_fill_(ended, -math.inf)
    return complete


def can_win(
    log_prob: Tensor, length: int, limit: Tensor, to_beat: Tensor, alpha: float, offset: float = 5
) -> Tensor:
    """Whether an open hypothesis may still become one of the n best; for each sentence.

    Args:
        log_prob: (batch,), of the open hypothesis; -inf if there is none.
        length: its tokens so far.
        limit: (batch,), tokens of the longest output, end symbol counted.
        to_beat: (batch,), the n-th best score of a complete one; -inf if there are fewer.
        alpha, offset: of the length penalty.

    Returns: (batch,), of booleans.
    """
    longest = torch.full_like(limit, length + 1) if alpha < 0 else limit
    return log_prob / length_penalty(longest, alpha, offset) > to_beat


Follow = Callable[[list[int]], list[int]]  # from ids, start symbol apart, to those that may follow


@torch.inference_mode()
def beam_search(
    model: EncoderDecoder,
    src: Tensor,
    src_mask: Tensor | None = None,
    beam: int = 4,
    alpha: float = 0.6,
    max_extra: int = 50,
    n_best: int = 1,
    cache: bool = True,
    follow: Sequence[Follow] | None = None,
    offset: float = 5,
) -> list[list[Hypothesis]]:
    """Search for the outputs with the best scores.

    Args:
        model: in eval mode.
        src: ids (batch, src_len), end symbols included   src_mask: (batch, 1, src_len)
        beam: hypotheses that are followed at the same time; 1 is greedy search.
        alpha, offset: of the length penalty.
        max_extra: tokens that an output may have more than its input.
        n_best: hypotheses to return for each sentence, at most `beam`.
        cache: keep keys and values; False computes everything anew at each step.
        follow: for each sentence, what may be said in it; None: everything.

    Returns: for each sentence its best hypotheses, the best first.

    Raises: ValueError for a wrong argument, or if the model gives no numbers for what may follow.

    Source: section 6.1.
    """
    check_search(beam, alpha, max_extra, n_best, offset)
    check_source(src, src_mask, follow)
    limits = output_limits(model, src, src_mask, max_extra)  # (batch,)
    found: list[list[Hypothesis]] = [[] for _ in limits]
    rows = list(range(len(found)))  # the sentence in each row of the batch
    state = open_beam(model, src, src_mask, beam, cache)
    while rows:
        length = state.ids.size(-1)  # of a hypothesis after this step, start symbol apart
        log_probs = next_log_probs(model, state)
        suppress_tokens(log_probs, last=limits == length)
        if follow:
            keep_to_rules(log_probs, state, [follow[i] for i in rows], last=limits == length)
        extend_beam(state, log_probs, beam)
        for row, hypothesis in take_complete(state, alpha, offset):
            found[rows[row]].append(hypothesis)
        best = state.log_prob.amax(dim=1).float()
        keep = can_win(best, length, limits, state.scores[:, n_best - 1], alpha, offset)
        if not keep.all():  # what is decided leaves the batch
            still = keep.nonzero().squeeze(1)
            state.select(still)
            rows, limits = [rows[row] for row in still.tolist()], limits[still]
    return [best_of(group, n_best) for group in found]


_WIDEST, _LONGEST = 1000, 10_000  # hypotheses; tokens that an output may have more than its input


def check_search(
    beam: int = 4,
    alpha: float = 0.6,
    max_extra: int = 50,
    n_best: int = 1,
    offset: float = 5,
    **_: object,
) -> None:
    """Raise InputError unless these are arguments of a search; see `beam_search`."""
    for name, value, least, most in (("alpha", alpha, -10, 10), ("offset", offset, 0, 100)):
        if isinstance(value, bool) or not isinstance(value, Real) or not least <= value <= most:
            raise InputError(f"expected {name} between {least} and {most}; got {value!r:.80}")
    check_whole("beam", beam, most=_WIDEST)
    check_whole("max_extra", max_extra, least=0, most=_LONGEST)
    check_whole("n_best", n_best)
    if n_best > beam:
        raise InputError(f"expected n_best of at most beam; got n_best={n_best}, beam={beam}")


def check_greedy(
    src: Tensor, src_mask: Tensor | None, max_len: int, start: int, end: int | None
) -> None:
    """Raise InputError unless these are arguments of a greedy search; see `greedy_decode`."""
    check_source(src, src_mask)
    check_whole("max_len", max_len)
    check_whole("start_symbol", start, least=0)
    if end is not None:
        check_whole("end_symbol", end, least=0)


def check_source(
    src: Tensor, src_mask: Tensor | None, follow: Sequence[Follow] | None = None
) -> None:
    """Raise ValueError unless these are ids (batch, src_len), a mask, and a rule for each row."""
    check_tokens("src", src)
    if not src.size(1):
        raise InputError(f"expected src of at least one id; got {tuple(src.shape)}")
    if src_mask is not None:
        check_mask(src_mask, src.size(0), 1, src.size(1), "src_mask")
    if follow is not None and len(follow) != src.size(0):
        raise InputError(f"expected follow for {src.size(0)} sentences; got {len(follow)}")


def output_limits(
    model: EncoderDecoder, src: Tensor, src_mask: Tensor | None, max_extra: int
) -> Tensor:
    """Tokens of the longest output of each sentence, its end symbol counted: (batch,)."""
    real = src.new_ones(src.shape).unsqueeze(1) if src_mask is None else src_mask
    lengths = real.expand(src.size(0), -1, -1).sum((1, 2))
    return (lengths + max_extra).clamp(1, max_positions(model.tgt_embed)).long()


def max_positions(embed: nn.Module) -> float:
    """Tokens for which embedding and encoding have positions; learned ones come to an end."""
    *_, encoding = embed.children()
    return getattr(encoding, "max_len", math.inf)


def best_of(found: list[Hypothesis], n_best: int) -> list[Hypothesis]:
    """The best of the complete hypotheses of a sentence, the best first.

    Raises: InputError if there is none: the model's probabilities are no numbers then.
    """
    if not found:
        raise InputError("expected probabilities of what may follow from the model; got no numbers")
    return sorted(found, key=lambda h: h.score, reverse=True)[:n_best]


def suppress_tokens(log_probs: Tensor, last: Tensor | None = None) -> None:
    """Set to -inf what may not be said: PAD, START and UNK; at a sentence's end all but END.

    Args:
        log_probs: (batch, width, vocab), overwritten.
        last: (batch,), True for a sentence whose last token this is; None: for none.

    Raises: InputError if the vocabulary is too small to hold these.
    """
    if log_probs.size(-1) < len(SPECIALS):
        wanted = f"a target vocabulary of at least {len(SPECIALS)} ids, for {', '.join(SPECIALS)}"
        raise InputError(f"expected {wanted}; got {log_probs.size(-1)}")
    for token in PAD, START, UNK:
        log_probs[..., token] = -math.inf
    if last is not None and last.any():
        end = log_probs[last, :, END]
        log_probs[last] = -math.inf
        log_probs[last, :, END] = end


def keep_to_rules(log_probs: Tensor, beam: Beam, follow: list[Follow], last: Tensor) -> None:
    """Set to -inf what the rule of a sentence does not let follow; what is `last` has no choice."""
    bound = beam.log_prob.isfinite() & ~last.unsqueeze(1)
    ids = beam.ids[:, :, 1:].tolist()
    for row, place in bound.nonzero().tolist():
        forbidden = torch.ones_like(log_probs[row, place], dtype=torch.bool)
        forbidden[follow[row](ids[row][place])] = False
        log_probs[row, place].masked_fill_(forbidden, -math.inf)


def next_without_cache(model: EncoderDecoder, beam: Beam) -> Tensor:
    """What `next_log_probs` gives, computed anew from the beginning of each hypothesis."""
    batch, width, length = beam.ids.shape
    memory = beam.memory.repeat_interleave(width, dim=0)  # (batch · width, src_len, d_model)
    mask = None if beam.src_mask is None else beam.src_mask.repeat_interleave(width, dim=0)
    ids, triangle = beam.ids.flatten(0, 1), subsequent_mask(length).to(beam.ids.device)
    out = model.decode(memory, mask, ids, triangle)[:, -1]  # (batch · width, d_model)
    return model.generator(out).unflatten(0, (batch, width))
