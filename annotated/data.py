"""5.1 Training Data and Batching (chapters/5-1-data-batching.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any
from unicodedata import normalize

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from annotated.attention import subsequent_mask
from annotated.machinery.checks import check_ids, each_text
from annotated.machinery.errors import InputError, check_known, check_whole

SPECIALS = ["<s>", "</s>", "<pad>", "<unk>"]
START, END, PAD, UNK = range(4)


class Batch:
    """Sentence pairs in the form that the model receives.

    Args:
        src: ids (batch, src_len), padded.
        tgt: ids (batch, tgt_len + 1), from start symbol to end symbol, padded; may be None.
        pad: the padding id.

    Attributes: src, src_mask (batch, 1, src_len), tgt without its last token, tgt_y without
        its first (what the model must predict), tgt_mask (batch, tgt_len, tgt_len), and
        ntokens, the number of target tokens to predict.

    Raises: InputError for ids that are not integers (batch, len).

    Source: sections 3.1 and 5.1.
    """

    def __init__(self, src: Tensor, tgt: Tensor | None = None, pad: int = PAD) -> None:
        check_ids("src", src)
        self.src = src
        self.src_mask = (src != pad).unsqueeze(-2)
        if tgt is not None:
            check_ids("tgt", tgt)
            self.tgt, self.tgt_y = tgt[:, :-1], tgt[:, 1:]
            self.tgt_mask = self.make_std_mask(self.tgt, pad)
            self.ntokens = (self.tgt_y != pad).sum()

    @staticmethod
    def make_std_mask(tgt: Tensor, pad: int) -> Tensor:
        """(batch, len) to (batch, len, len): no padding, nothing to the right."""
        return (tgt != pad).unsqueeze(-2) & subsequent_mask(tgt.size(-1), tgt.device)


def untrained_tokenizer(model: Any) -> Tokenizer:
    """A tokenizer as both vocabularies need it: NFC, spaces as ▁, punctuation split off."""
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.NFC()
    splits = [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits)
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def _train(model: Any, trainer: Any, sentences: Iterable[str], size: int, **more: Any) -> Tokenizer:
    """Learn a vocabulary of `size` pieces with one of the library's models and its trainer.

    Text from the web contains thousands of letters, each of which would displace a longer piece.
    The alphabet is therefore limited to 1,000 letters, or to the letters that make up 99.95% of
    the text if these are more, as in Chinese.
    """
    texts, tokenizer = list(each_text(sentences)), untrained_tokenizer(model)
    counts = Counter(chain.from_iterable(normalize("NFC", text) for text in texts))
    common = np.cumsum(sorted(counts.values(), reverse=True))
    needed = int((common < 0.9995 * counts.total()).sum()) + 1
    more |= {"limit_alphabet": max(1000, min(needed, size // 2)), "special_tokens": SPECIALS}
    tokenizer.train_from_iterator(texts, trainer(vocab_size=size, show_progress=False, **more))
    return tokenizer


def train_bpe(sentences: Iterable[str], vocab_size: int) -> Tokenizer:
    """Learn a byte-pair vocabulary, shared by source and target.

    Args:
        sentences: text of both languages.
        vocab_size: largest number of pieces, including the four special symbols.

    Returns: a tokenizer whose decoding restores punctuation, and spaces within a sentence, exactly.

    Source: section 5.1.
    """
    return _train(models.BPE(unk_token="<unk>"), trainers.BpeTrainer, sentences, vocab_size)


def train_wordpiece(sentences: Iterable[str], vocab_size: int) -> Tokenizer:
    """Learn a word-piece vocabulary, shared by source and target.

    Args, Returns: as `train_bpe`. A word with an unknown letter becomes one unknown piece.

    Source: section 5.1.
    """
    prefix = {"continuing_subword_prefix": ""}
    model = models.WordPiece(unk_token="<unk>", max_input_chars_per_word=1000, **prefix)
    return _train(model, trainers.WordPieceTrainer, sentences, vocab_size, **prefix)


_VOCABULARIES = {"bpe": train_bpe, "wordpiece": train_wordpiece}


def learn_vocabulary(kind: str, sentences: Iterable[str], vocab_size: int) -> Tokenizer:
    """Learn a shared vocabulary.

    Args:
        kind: "bpe", as in the paper for English-German (37,000 pieces), or "wordpiece", as for
            English-French (32,000).
        sentences: text of both languages.   vocab_size: largest number of pieces.

    Raises: InputError for another kind, for a size that leaves no piece in addition to the
        special symbols, or if the argument is not sentences.

    Source: section 5.1.
    """
    check_known("a vocabulary", kind, _VOCABULARIES)
    # The library allocates memory for as many pieces as are requested.
    check_whole("vocab_size", vocab_size, len(SPECIALS) + 1, 10_000_000)
    return _VOCABULARIES[kind](sentences, vocab_size)


def _length_order(
    lengths: np.ndarray, budget: np.ndarray, rng: np.random.Generator | None
) -> np.ndarray:
    """Indices of the pairs, ordered so that neighbors have similar lengths on both sides."""
    shuffled = np.arange(len(lengths)) if rng is None else rng.permutation(len(lengths))
    small = np.min_scalar_type(~int(lengths.max(initial=1)))  # short integers sort faster
    scaled = lengths[shuffled].astype(small)
    if budget[0] != budget[1]:
        scaled = scaled * budget.min() / budget  # the longer side fills its budget first
    source, target = scaled.T
    longest = np.ceil(np.maximum(source, target)).astype(small)
    turning = np.where(longest % 2, source - target, target - source)
    return shuffled[np.lexsort((turning, longest))]  # equal pairs stay shuffled


def _cut(order: np.ndarray, lengths: np.ndarray, budget: np.ndarray) -> list[np.ndarray]:
    """Split a sequence of pairs into batches as full as the budgets (source, target) allow."""
    whole = int(np.lcm(*budget))  # a full batch, of which a pair takes its longer side's share
    source, target = lengths[order].T
    needs = np.maximum(source * (whole // budget[0]), target * (whole // budget[1]))
    batches, start, counts = [], 0, np.arange(1, len(order) + 1)
    while start < len(order):
        longest = np.maximum.accumulate(needs[start : start + whole // int(needs[start])])
        size = np.count_nonzero(longest * counts[: len(longest)] <= whole)
        batches.append(order[start : start + size])
        start += size
    return batches


def token_batches(
    lengths: np.ndarray | Sequence[Sequence[int]],
    src_tokens: int = 25_000,
    tgt_tokens: int = 25_000,
    seed: int | None = None,
) -> list[np.ndarray]:
    """Group pairs of similar length so that neither side of a batch exceeds its token budget.

    Args:
        lengths: (pairs, 2), number of ids of each source and target, ends included.
        src_tokens, tgt_tokens: most tokens on either side of a batch, padding included.
        seed: shuffles pairs of equal lengths, and the batches; None keeps the order of lengths.

    Returns: batches, each an array of indices of pairs.

    Raises: InputError if one pair alone exceeds a budget, if a sentence has no tokens, or if the
        lengths are not whole numbers.

    Source: section 5.1.
    """
    for name, tokens in ("src_tokens", src_tokens), ("tgt_tokens", tgt_tokens):
        check_whole(name, tokens)
    lengths = np.asarray(lengths)
    if lengths.size and (lengths.dtype.kind not in "iu" or lengths.shape[1:] != (2,)):
        raise InputError(f"expected whole numbers (pairs, 2); got {lengths.dtype} {lengths.shape}")
    lengths = lengths.reshape(-1, 2)
    if (lengths < 1).any():
        empty = lengths.min(axis=1).argmin()
        raise InputError(f"expected tokens on both sides; pair {empty} lacks them")
    most = max(1, len(lengths) * int(lengths.max(initial=1)))  # enough for one batch of all pairs
    budget = np.array([min(src_tokens, most), min(tgt_tokens, most)])
    too_long = np.flatnonzero((lengths > budget).any(axis=1))
    if len(too_long):
        raise InputError(
            f"expected pairs of at most {src_tokens} and {tgt_tokens} tokens; {len(too_long)} are "
            f"longer, the first is pair {too_long[0]} with {lengths[too_long[0]].tolist()}"
        )
    rng = None if seed is None else np.random.default_rng(seed)
    batches = _cut(_length_order(lengths, budget, rng), lengths, budget)
    return batches if rng is None else [batches[i] for i in rng.permutation(len(batches))]


def encode_source(tokenizer: Tokenizer, sentences: Iterable[str]) -> list[list[int]]:
    """Sentences to ids, each with the end symbol at its end; lone surrogates become U+FFFD.

    Raises: InputError if the argument is not sentences.
    """
    tokenizer.encode_special_tokens = True  # "</s>" in a text is text
    return [[*encoding.ids, END] for encoding in tokenizer.encode_batch(list(each_text(sentences)))]


def encode_target(tokenizer: Tokenizer, sentences: Iterable[str]) -> list[list[int]]:
    """Sentences to ids between start and end symbol, as `encode_source`."""
    return [[START, *ids] for ids in encode_source(tokenizer, sentences)]


def pad_ids(rows: Sequence[Sequence[int]], pad: int = PAD) -> Tensor:
    """Lists of ids to one tensor (batch, longest), padded on the right."""
    tensors = [torch.as_tensor(row, dtype=None if len(row) else torch.long) for row in rows]
    return pad_sequence(tensors, batch_first=True, padding_value=pad)


def make_batch(
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]], device: torch.device | str = "cpu"
) -> Batch:
    """Pairs of id lists, source and target, to a batch on a device."""
    src, tgt = zip(*pairs, strict=True)
    return Batch(pad_ids(src).to(device), pad_ids(tgt).to(device))
