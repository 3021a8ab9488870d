"""Prepared corpora."""

import json
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
from tokenizers import Encoding, Tokenizer, models

from annotated.data import END, PAD, SPECIALS, START, UNK, untrained_tokenizer
from annotated.machinery.errors import InputError
from annotated.machinery.texts import each_text


@dataclass(frozen=True)
class EncodedPairs:
    """Sentence pairs as ids: `pairs[i]` is the i-th source and target, `len(pairs)` their number.

    Args:
        ids: of all pairs, flat: the source of a pair, its target, the source of the next.
        lengths: (pairs, 2), number of ids of each source and target, ends included.

    Source: section 5.1.
    """

    ids: np.ndarray
    lengths: np.ndarray

    @classmethod
    def encode(
        cls, tokenizer: Tokenizer, source: Iterable[str], target: Iterable[str]
    ) -> "EncodedPairs":
        """Encode sentences, ends as `encode_source` and `encode_target` put them.

        Raises: ValueError if there are not as many source as target sentences.
        """
        sides = list(each_text(source)), list(each_text(target))
        if len(sides[0]) != len(sides[1]):
            got = f"got {len(sides[0])} and {len(sides[1])}"
            raise InputError(f"expected as many source as target sentences; {got}")
        return PairEncoder(tokenizer).encode(zip(*sides, strict=True))

    @cached_property
    def starts(self) -> np.ndarray:
        """Where each pair begins in `ids`, and at last where the last one ends, (pairs + 1,)."""
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
            multiple: divides the width that the model sees, which is one less for a target.
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
    """The ids of words, as bytes of `dtype`."""

    most = 1 << 20  # words that are kept; those that come later are rare

    def __init__(self, tokenizer: Tokenizer, dtype: np.dtype) -> None:
        self.tokenizer, self.model, self.dtype = tokenizer, tokenizer.model, dtype
        self.normalize = tokenizer.normalizer.normalize_str
        # What the tokenizer treats before the model sees it: several words, and symbols as text.
        self.special = re.compile("|".join(map(re.escape, [" ", "▁", *SPECIALS]))).search

    def cut(self, word: str) -> list[int]:
        """The ids of a word, from the model alone where that is enough, because it is quicker."""
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
        self.update((word, array(self.dtype.char, self.cut(word)).tobytes()) for word in new)
        ids = [b"".join(map(self.__getitem__, words)) for words in sentences]
        if len(self) > self.most:
            for word in new:
                del self[word]
        return ids


def _as_bytes(encodings: Iterable[Encoding], dtype: np.dtype) -> Iterator[bytes]:
    """The ids of encodings, as bytes."""
    return (array(dtype.char, encoding.ids).tobytes() for encoding in encodings)


def _cuts_words(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer cuts each word by itself, as those of `learn_vocabulary` do."""
    its, ours = (json.loads(t.to_str()) for t in (tokenizer, untrained_tokenizer(models.BPE())))
    steps = "normalizer", "pre_tokenizer", "post_processor", "truncation", "padding"
    plain = all(token["special"] for token in its["added_tokens"])  # which are text in a text
    return plain and all(its[step] == ours[step] for step in steps)


class PairEncoder:
    """Turns pairs of sentences into ids, ends as `encode_source` and `encode_target` put them."""

    def __init__(self, tokenizer: Tokenizer, target: Tokenizer | None = None) -> None:
        tokenizer.encode_special_tokens = True  # "</s>" in a text is text
        self.tokenizer = tokenizer
        self.target = target and PairEncoder(target)  # None: targets are cut by the same rules
        self.dtype = np.min_scalar_type(max(tokenizer.get_vocab().values(), default=UNK))
        self.ids = self._whole
        if _cuts_words(tokenizer):
            self.ids = _WordIds(tokenizer, self.dtype).encode

    def _whole(self, texts: list[str]) -> list[bytes]:
        return list(_as_bytes(self.tokenizer.encode_batch_fast(texts), self.dtype))

    def encode(self, pairs: Iterable[Sequence[str]]) -> EncodedPairs:
        """Encode pairs of well-formed texts."""
        texts = list(chain.from_iterable(pairs))  # source, target, source, …
        ids = self.ids(texts) if self.target is None else self.ids(texts[::2])
        if self.target is not None:
            ids = list(chain.from_iterable(zip(ids, self.target.ids(texts[1::2]), strict=True)))
        start, end = (np.array(i, self.dtype).tobytes() for i in (START, END))
        both = zip(ids[::2], ids[1::2], strict=True)
        flat = b"".join(b"".join((one, end, start, other, end)) for one, other in both)
        sizes = np.fromiter(map(len, ids), np.int64, len(ids)).reshape(-1, 2)
        lengths = sizes // self.dtype.itemsize + (1, 2)
        least = np.min_scalar_type(lengths.max(initial=0))
        return EncodedPairs(np.frombuffer(flat, self.dtype), lengths.astype(least))
