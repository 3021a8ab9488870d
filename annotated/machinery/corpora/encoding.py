"""Sentence pairs as ids in flat arrays, and a fast way to encode texts into them.

Lists of Python integers would take many times as much memory. A corpus of millions of sentences
has few distinct words, and the tokenizers of this book first split at spaces; each distinct word
is therefore encoded once, which is four times as fast as encoding whole sentences.
"""

import json
import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
from tokenizers import Tokenizer, models

from annotated.data import END, PAD, SPECIALS, START, UNK, untrained_tokenizer


@dataclass(frozen=True)
class EncodedPairs:
    """Sentence pairs as ids: `pairs[i]` is the i-th source and target, `len(pairs)` their number.

    Args:
        ids: all pairs in one flat array: the source of a pair, its target, the source of the next.
        lengths: (pairs, 2), number of ids of each source and target, end symbols included.

    Source: section 5.1.
    """

    ids: np.ndarray
    lengths: np.ndarray

    @cached_property
    def starts(self) -> np.ndarray:
        """Start of each pair in `ids`, followed by the end of the last one: (pairs + 1,)."""
        starts = np.zeros(len(self.lengths) + 1, np.int64)
        np.add(self.lengths[:, 0], self.lengths[:, 1], out=starts[1:], dtype=np.int64)
        return np.cumsum(starts, out=starts)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, i: int) -> tuple[list[int], list[int]]:
        i = range(len(self))[i]  # negative indices count from the end; IndexError beyond
        ids = self.ids[self.starts[i] : self.starts[i + 1]].tolist()
        return ids[: self.lengths[i, 0]], ids[self.lengths[i, 0] :]

    def padded(
        self, numbers: Sequence[int] | np.ndarray, side: int, multiple: int = 1
    ) -> np.ndarray:
        """One side of some pairs as a rectangle of ids (batch, width), padded on the right.

        Args:
            numbers: of the pairs (batch,).   side: 0 for the source, 1 for the target.
            multiple: a divisor of the width that the model receives (one less for a target).
        """
        numbers = np.asarray(numbers)
        lengths = self.lengths[numbers].astype(np.int64)  # (batch, 2)
        first = self.starts[numbers] + side * lengths[:, 0]
        seen = lengths[:, side].max() - side
        columns = np.arange(-(-seen // multiple) * multiple + side)
        real = columns < lengths[:, side, None]  # (batch, width)
        ids = np.full(real.shape, PAD, np.int64)
        ids[real] = self.ids[(first[:, None] + columns)[real]]
        return ids


class _WordIds(dict[str, bytes]):
    """The ids of words, as bytes of `dtype`; words are encoded when they first occur."""

    max_words = 1 << 20  # beyond this number, words that first occur are rare and are not stored

    def __init__(self, tokenizer: Tokenizer, dtype: np.dtype) -> None:
        self.tokenizer, self.model, self.dtype = tokenizer, tokenizer.model, dtype
        self.normalize = tokenizer.normalizer.normalize_str
        # Texts that the tokenizer treats before its model: several words, and symbols as text.
        self.special = re.compile("|".join(map(re.escape, [" ", "▁", *SPECIALS]))).search

    def tokenize(self, word: str) -> list[int]:
        """The ids of a word, from the model alone where this suffices, because it is faster."""
        normal = self.normalize(word)
        if self.special(normal):
            return self.tokenizer.encode(f"▁{word}").ids
        return [token.id for token in self.model.tokenize(f"▁{normal}")]

    def encode(self, texts: list[str]) -> list[bytes]:
        """The ids of sentences."""
        sentences = [text.replace("▁", " ").split(" ") for text in texts]
        for words in sentences:
            if not words[0]:
                del words[0]
        new = list(set(chain.from_iterable(sentences)).difference(self))
        self.update((word, array(self.dtype.char, self.tokenize(word)).tobytes()) for word in new)
        ids = [b"".join(map(self.__getitem__, words)) for words in sentences]
        if len(self) > self.max_words:
            for word in new:
                del self[word]
        return ids


def splits_at_spaces(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer encodes each word separately, as tokenizers of `learn_vocabulary` do."""
    its, ours = (json.loads(t.to_str()) for t in (tokenizer, untrained_tokenizer(models.BPE())))
    steps = "normalizer", "pre_tokenizer", "post_processor", "truncation", "padding"
    plain = all(token["special"] for token in its["added_tokens"])  # others may contain spaces
    return plain and all(its[step] == ours[step] for step in steps)


class PairEncoder:
    """Encodes pairs of sentences, with the symbols that `encode_source` and `encode_target` add.

    Args: tokenizer: for both sides, or for the source if `target` is given.
    """

    def __init__(self, tokenizer: Tokenizer, target: Tokenizer | None = None) -> None:
        tokenizer.encode_special_tokens = True  # "</s>" in a text is ordinary text
        self.tokenizer = tokenizer
        self.target_encoder = target and PairEncoder(target)
        self.dtype = np.min_scalar_type(max(tokenizer.get_vocab().values(), default=UNK))
        words = splits_at_spaces(tokenizer)
        self.encode_texts = _WordIds(tokenizer, self.dtype).encode if words else self._encode_whole

    def _encode_whole(self, texts: list[str]) -> list[bytes]:
        encodings = self.tokenizer.encode_batch_fast(texts)
        return [array(self.dtype.char, encoding.ids).tobytes() for encoding in encodings]

    def encode(self, pairs: Iterable[Sequence[str]]) -> EncodedPairs:
        """Encode pairs of well-formed texts."""
        texts = list(chain.from_iterable(pairs))  # source, target, source, …
        if self.target_encoder is None:
            ids = self.encode_texts(texts)
        else:
            sides = self.encode_texts(texts[::2]), self.target_encoder.encode_texts(texts[1::2])
            ids = list(chain.from_iterable(zip(*sides, strict=True)))
        start, end = (np.array(i, self.dtype).tobytes() for i in (START, END))
        both = zip(ids[::2], ids[1::2], strict=True)
        flat = b"".join(b"".join((one, end, start, other, end)) for one, other in both)
        sizes = np.fromiter(map(len, ids), np.int64, len(ids)).reshape(-1, 2)
        lengths = sizes // self.dtype.itemsize + (1, 2)
        least = np.min_scalar_type(lengths.max(initial=0))
        return EncodedPairs(np.frombuffer(flat, self.dtype), lengths.astype(least))
