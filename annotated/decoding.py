"""6.1 Machine Translation (chapters/6-1-machine-translation.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from annotated.attention import Mask
from annotated.data import END, PAD, START, UNK
from annotated.incremental import DecoderCache
from annotated.machinery.checks import (
    allowed_ids,
    check_finite,
    check_found,
    check_search,
    check_source,
)
from annotated.machinery.errors import check_whole
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

    Raises: InputError for a wrong argument, or if the model's probabilities are not numbers.

    Source: section 6.1, with a beam of one.
    """
    check_source(src, src_mask)
    check_whole("max_len", max_len)
    check_whole("start_symbol", start_symbol, least=0)
    end = -1 if end_symbol is None else end_symbol  # which is no id
    ys = src.new_full((src.size(0), 1), start_symbol)
    with without_dropout(model):
        memory = model.encode(src, src_mask)
        while ys.size(1) < max_len:
            out = model.decode(memory, src_mask, ys)
            log_prob, next_word = model.generator(out[:, -1]).max(dim=-1)  # (batch,)
            check_finite(log_prob)
            next_word = next_word.masked_fill(ys[:, -1] == end, end)
            ys = torch.cat([ys, next_word.unsqueeze(1)], dim=1)
            if bool((next_word == end).all()):
                break
    return ys


def length_penalty(length: Any, alpha: float, offset: float = 5) -> Any:
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


Follow = Callable[[list[int]], list[int]]  # ids without the start symbol to the ids that may follow


@dataclass
class Beam:
    """The open hypotheses of several sentences, and everything needed to extend them.

    Args:
        ids: (batch, width, len), from the start symbol on.
        log_prob: (batch, width); -inf in an empty slot.
        parents: (batch, width), the hypotheses of the step before that they continue; or None.
        limits: (batch,), maximum tokens of an output, including its end symbol.
        cache: what the decoder keeps of everything decoded so far.
        found: the complete hypotheses of each sentence.
        follow: of each sentence, the rule for the tokens that may come next; or None.
    """

    ids: Tensor
    log_prob: Tensor
    parents: Tensor | None
    limits: Tensor
    cache: DecoderCache
    found: list[list[Hypothesis]]
    follow: Sequence[Follow] | None = None

    def select(self, rows: Tensor) -> None:
        """Keep these sentences, in this order."""
        for name in "ids", "log_prob", "parents", "limits":
            setattr(self, name, getattr(self, name)[rows])
        self.cache.select(rows)
        self.found = [self.found[row] for row in rows.tolist()]
        self.follow = self.follow and [self.follow[row] for row in rows.tolist()]


def open_beam(
    model: EncoderDecoder, src: Tensor, src_mask: Mask, extra: int, most: int | None
) -> Beam:
    """Encode the sources; the only hypothesis of each is the start symbol."""
    memory = model.encode(src, src_mask)
    lengths = src.new_full(src.shape[:1], src.size(1))
    if src_mask is not None:
        src_mask = src_mask.expand(len(src), -1, -1)
        lengths = src_mask.bool().sum((1, 2))  # padding does not count
    limits = lengths + extra if most is None else torch.full_like(lengths, most)
    ids, log_prob = src.new_full((len(src), 1, 1), START), memory.new_zeros(len(src), 1)
    limits, cache = limits.clamp(1, model.max_positions), DecoderCache(model, memory, src_mask)
    return Beam(ids, log_prob, None, limits, cache, [[] for _ in src])


def next_log_probs(model: EncoderDecoder, beam: Beam) -> Tensor:
    """Log-probabilities (batch, width, vocab) of the next token of each hypothesis.

    PAD, START and UNK may not follow; at the limit only END may. Before it, a rule may forbid more.
    """
    log_probs = model.generator(beam.cache.step(beam.ids, beam.parents))
    log_probs[..., [PAD, START, UNK]] = -math.inf
    last = beam.limits == beam.ids.size(-1)
    other = torch.arange(log_probs.size(-1), device=last.device) != END
    log_probs.masked_fill_(last.view(-1, 1, 1) & other, -math.inf)
    if beam.follow:
        for row, place in (beam.log_prob.isfinite() & ~last.unsqueeze(1)).nonzero().tolist():
            found = beam.follow[row](beam.ids[row, place, 1:].tolist())
            allowed = torch.zeros_like(other)
            allowed[allowed_ids(found, len(allowed))] = True
            log_probs[row, place].masked_fill_(~allowed, -math.inf)
    return log_probs


def extend_beam(beam: Beam, log_probs: Tensor, size: int) -> None:
    """Keep the `size` most probable of all one-token continuations of each sentence.

    Args: log_probs: (batch, width, vocab), of the next token; overwritten.
    """
    batch, width, vocab = log_probs.shape
    log_probs += beam.log_prob.unsqueeze(-1)  # now of the whole; in place, as it is large
    total = log_probs.flatten(1)  # (batch, width · vocab)
    beam.log_prob, index = total.topk(min(size, total.size(1)))  # best first
    parent, token = index // vocab, index % vocab
    row = torch.arange(batch, device=index.device).unsqueeze(1)
    beam.ids = torch.cat([beam.ids[row, parent], token.unsqueeze(-1)], dim=-1)
    beam.parents = row * width + parent


def take_complete(beam: Beam, size: int, alpha: float, offset: float = 5) -> None:
    """Move the hypotheses that have just ended from the beam to those that are complete."""
    places = beam.ids.new_tensor([[size - len(complete)] for complete in beam.found])
    rank = torch.arange(beam.ids.size(1), device=places.device)
    beam.log_prob.masked_fill_(rank >= places, -math.inf)
    ended = (beam.ids[:, :, -1] == END) & beam.log_prob.isfinite()
    for row, place in ended.nonzero().tolist():
        ids, log_prob = beam.ids[row, place, 1:].tolist(), float(beam.log_prob[row, place])
        score = log_prob / length_penalty(len(ids), alpha, offset)
        beam.found[row].append(Hypothesis(ids[:-1], log_prob, score))
    beam.log_prob.masked_fill_(ended, -math.inf)


def can_win(beam: Beam, n_best: int, alpha: float, offset: float = 5) -> Tensor:
    """Whether an open hypothesis may still become one of the n best, per sentence: (batch,)"""
    best = beam.log_prob.amax(dim=1).float()  # -inf if none is open
    length = beam.limits if alpha >= 0 else torch.full_like(beam.limits, beam.ids.size(-1))
    scores = (sorted((h.score for h in complete), reverse=True) for complete in beam.found)
    worst = [[*s, *[-math.inf] * n_best][n_best - 1] for s in scores]  # of the n best so far
    return best / length_penalty(length, alpha, offset) > best.new_tensor(worst)


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

    If a part of the decoder has no `step`, has hooks, or attends to the source with a class of your
    own, each step decodes the whole output again, instead of using cached keys and values.

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

    Raises: InputError for a wrong argument, or if the model's probabilities are not numbers.

    Source: section 6.1.
    """
    check_search(beam, alpha, max_extra, n_best, offset, max_len)
    check_source(src, src_mask, follow)
    with without_dropout(model):
        state = open_beam(model, src, src_mask, max_extra, max_len)
        found, state.follow = state.found, follow
        while state.found:
            extend_beam(state, next_log_probs(model, state), beam)
            take_complete(state, beam, alpha, offset)
            keep = can_win(state, n_best, alpha, offset)
            if not keep.all():  # decided sentences leave the batch
                state.select(keep.nonzero().squeeze(1))
    check_found(found)
    return [sorted(ended, key=lambda h: h.score, reverse=True)[:n_best] for ended in found]
