"""6.1 Machine Translation (chapters/6-1-machine-translation.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from annotated.data import END, PAD, START, UNK
from annotated.incremental import DecoderCache
from annotated.machinery.checks import check_finite, check_search, check_source
from annotated.machinery.errors import InputError, check_whole
from annotated.model import EncoderDecoder
from annotated.regularization import without_dropout


@torch.no_grad()
def greedy_decode(
    model: EncoderDecoder,
    src: Tensor,
    src_mask: Tensor | None,
    max_len: int,
    start_symbol: int,
    end_symbol: int | None = None,
) -> Tensor:
    """Emit the most probable token at each step.

    Args:
        model: its dropout is off during the search.
        src: ids (batch, src_len)   src_mask: (batch, 1, src_len), or None
        max_len: maximum length of the result, including the start symbol.
        start_symbol: id with which every result begins.
        end_symbol: repeated by a row that has ended; search stops once all rows have ended.

    Returns: ids (batch, at most max_len).

    Raises: ValueError for a wrong argument, or if the model's probabilities are not numbers.

    Source: section 6.1, with a beam of one.
    """
    check_source(src, src_mask)
    check_whole("max_len", max_len)
    check_whole("start_symbol", start_symbol, least=0)
    ys = src.new_full((src.size(0), 1), start_symbol)
    with without_dropout(model):
        memory = model.encode(src, src_mask)
        while ys.size(1) < max_len:
            out = model.decode(memory, src_mask, ys)
            log_prob, next_word = model.generator(out[:, -1]).max(dim=-1)  # (batch,)
            check_finite(log_prob)
            if end_symbol is not None:
                next_word = next_word.masked_fill(ys[:, -1] == end_symbol, end_symbol)
            ys = torch.cat([ys, next_word.unsqueeze(1)], dim=1)
            if end_symbol is not None and bool((next_word == end_symbol).all()):
                break
    return ys


_Number = TypeVar("_Number", float, Tensor)


def length_penalty(length: _Number, alpha: float, offset: float = 5) -> _Number:
    """((5 + length) / 6)^alpha, the divisor of an output's log-probability.

    Args:
        length: tokens of the output, including the end symbol; a tensor for several outputs.
        alpha: 0 leaves the log-probability as it is; larger values favor long outputs.
        offset: the 5 of the formula; 0 gives length^alpha, which other systems use.

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
    """The open hypotheses of several sentences, and everything needed to extend them.

    Args:
        ids: (batch, width, len), from the start symbol on.
        log_prob: (batch, width); -inf in an empty slot.
        parents: (batch, width), the hypotheses of the step before that they continue; or None.
        places: (batch,), the number of hypotheses that may still be open.
        scores: (batch, beam), of the complete hypotheses, best first; -inf where there is none.
        limits: (batch,), maximum tokens of an output, including its end symbol.
        cache: what the decoder keeps of everything decoded so far.
    """

    ids: Tensor
    log_prob: Tensor
    parents: Tensor | None
    places: Tensor
    scores: Tensor
    limits: Tensor
    cache: DecoderCache

    def select(self, rows: Tensor) -> None:
        """Keep these sentences, in this order."""
        for name in "ids", "log_prob", "parents", "places", "scores", "limits":
            setattr(self, name, getattr(self, name)[rows])
        self.cache.select(rows)


def open_beam(
    model: EncoderDecoder,
    src: Tensor,
    src_mask: Tensor | None,
    size: int,
    max_extra: int = 50,
    max_len: int | None = None,
) -> Beam:
    """Encode the sources; the only hypothesis of each is the start symbol."""
    batch, length = src.shape
    memory = model.encode(src, src_mask)
    limits = src.new_full((batch,), length + max_extra)
    if src_mask is not None:
        src_mask = src_mask.expand(batch, -1, -1)
        limits = src_mask.bool().sum((1, 2)) + max_extra  # padding does not count
    if max_len is not None:
        limits = torch.full_like(limits, max_len)
    return Beam(
        ids=src.new_full((batch, 1, 1), START),
        log_prob=memory.new_zeros(batch, 1),
        parents=None,
        places=src.new_full((batch,), size),
        scores=torch.full((batch, size), -math.inf, device=src.device),
        limits=limits.clamp(1, model.max_positions),
        cache=DecoderCache.start(model, memory, src_mask),
    )


def next_log_probs(model: EncoderDecoder, beam: Beam) -> Tensor:
    """Log-probabilities (batch, width, vocab) of the next token of each hypothesis.

    PAD, START and UNK may not follow; at the limit only END may.
    """
    log_probs = model.generator(beam.cache.step(beam.ids, beam.parents))
    log_probs[..., [PAD, START, UNK]] = -math.inf
    last = (beam.limits == beam.ids.size(-1)).view(-1, 1, 1)
    other = torch.arange(log_probs.size(-1), device=last.device) != END
    return log_probs.masked_fill_(last & other, -math.inf)


def extend_beam(beam: Beam, log_probs: Tensor, size: int) -> None:
    """Keep the `size` most probable of all one-token continuations of each sentence.

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
    beam.parents = row * log_probs.size(1) + parent
    rank = torch.arange(width, device=index.device)
    beam.log_prob.masked_fill_(rank >= beam.places.unsqueeze(1), -math.inf)


def take_complete(beam: Beam, alpha: float, offset: float = 5) -> list[tuple[int, Hypothesis]]:
    """Remove the hypotheses that have just ended, and their slots, from the beam.

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


def can_win(beam: Beam, n_best: int, alpha: float, offset: float = 5) -> Tensor:
    """Whether an open hypothesis may still become one of the n best, per sentence: (batch,)"""
    best = beam.log_prob.amax(dim=1).float()  # -inf if none is open
    soonest = torch.full_like(beam.limits, beam.ids.size(-1))
    favorable = length_penalty(beam.limits if alpha >= 0 else soonest, alpha, offset)
    return best / favorable > beam.scores[:, n_best - 1]


Follow = Callable[[list[int]], list[int]]  # ids without the start symbol to the ids that may follow


def keep_to_rules(log_probs: Tensor, beam: Beam, follow: Sequence[Follow]) -> None:
    """Set to -inf what the rule of a sentence forbids; at its limit END remains allowed."""
    bound = beam.log_prob.isfinite() & (beam.limits > beam.ids.size(-1)).unsqueeze(1)
    for row, place in bound.nonzero().tolist():
        allowed = torch.zeros_like(log_probs[row, place], dtype=torch.bool)
        allowed[follow[row](beam.ids[row, place, 1:].tolist())] = True
        log_probs[row, place].masked_fill_(~allowed, -math.inf)


@torch.inference_mode()
def beam_search(
    model: EncoderDecoder,
    src: Tensor,
    src_mask: Tensor | None = None,
    beam: int = 4,
    alpha: float = 0.6,
    max_extra: int = 50,
    n_best: int = 1,
    follow: Sequence[Follow] | None = None,
    offset: float = 5,
    max_len: int | None = None,
) -> list[list[Hypothesis]]:
    """Search for the outputs with the best scores.

    Keys and values are cached where every part of the decoder has a `step`; with hooks in it, or
    a part that has only `forward`, each step decodes the whole output, which takes longer.

    Args:
        model: its dropout is off during the search.
        src: ids (batch, src_len), including end symbols   src_mask: (batch, 1, src_len)
        beam: hypotheses followed at the same time; 1 is greedy search.
        alpha, offset: parameters of the length penalty.
        max_extra: tokens by which an output may be longer than its input.
        n_best: hypotheses to return for each sentence, at most `beam`.
        follow: for each sentence, a function to the tokens that may come next; None: all may.
        max_len: maximum tokens of an output, including its end symbol, instead of max_extra.

    Returns: for each sentence its best hypotheses, the best first.

    Raises: ValueError for a wrong argument, or if the model's probabilities are not numbers.

    Source: section 6.1.
    """
    check_search(beam, alpha, max_extra, n_best, offset, max_len)
    check_source(src, src_mask)
    if follow is not None and len(follow) != len(src):
        raise InputError(f"expected follow for {len(src)} sentences; got {len(follow)}")
    found: list[list[Hypothesis]] = [[] for _ in src]
    rows = list(range(len(src)))  # the sentence in each row of the batch
    with without_dropout(model):
        state = open_beam(model, src, src_mask, beam, max_extra, max_len)
        while rows:
            log_probs = next_log_probs(model, state)
            if follow is not None:
                keep_to_rules(log_probs, state, [follow[i] for i in rows])
            extend_beam(state, log_probs, beam)
            for row, hypothesis in take_complete(state, alpha, offset):
                found[rows[row]].append(hypothesis)
            keep = can_win(state, n_best, alpha, offset)
            if not keep.all():  # decided sentences leave the batch
                still = keep.nonzero().squeeze(1)
                state.select(still)
                rows = [rows[row] for row in still.tolist()]
    if not all(found):
        raise InputError("expected log-probabilities from the model; got no finite numbers")
    return [sorted(ended, key=lambda h: h.score, reverse=True)[:n_best] for ended in found]
