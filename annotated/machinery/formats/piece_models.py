"""SentencePiece models, read without the library, as tokenizers with our numbering of pieces.

Such a model is a message in the wire format of Protocol Buffers. Three of its fields matter here:
the pieces with their scores, the kind of model, and the table that normalizes letters.
"""

import io
import math
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from annotated.data import SPECIALS, UNK
from annotated.machinery.corpora.vocabularies import check_letters
from annotated.machinery.files import reading, require_regular


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field of a message; fixed-size numbers are returned as bytes."""
    stream = io.BytesIO(message)

    def varint() -> int:  # seven bits per byte
        value = 0
        for shift in range(0, 70, 7):
            (byte,) = stream.read(1)
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError("a number of more than 64 bits")

    while stream.tell() < len(message):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            yield number, varint()
            continue
        size = varint() if kind == 2 else {1: 8, 5: 4}[kind]
        value = stream.read(size)
        if len(value) < size:
            raise ValueError("a message that is truncated")
        yield number, value


_ORDINARY, _USER_DEFINED, _BYTE = 1, 4, 6  # types of pieces; the others are symbols or unused


class PieceModel(NamedTuple):
    """A SentencePiece model: the score of each ordinary piece, and the normalization of letters.

    `kinds` contains all pieces in their order.
    """

    scores: dict[str, float]
    table: bytes
    kinds: Mapping[str, int] = MappingProxyType({})


def read_piece_model(path: Path, special: bool = False) -> PieceModel:
    """Read a SentencePiece model of the kind that OPUS-MT or Firefox uses.

    Args: special: allow user-defined pieces, and bytes for letters that no piece contains.

    Raises: MissingFile or FileError that names the file.
    """
    with reading(path, "a SentencePiece model"):
        require_regular(path)
        fields = list(_fields(path.read_bytes()))
        trainer, normalizer = (
            dict(_fields(b"".join(value for number, value in fields if number == wanted)))
            for wanted in (2, 3)
        )
        pieces = [dict(_fields(value)) for number, value in fields if number == 1]
        scores = {
            piece[1].decode(): struct.unpack("<f", piece.get(2, bytes(4)))[0]
            for piece in pieces
            if piece.get(3, 1) == _ORDINARY
        }
        if not scores or not all(map(math.isfinite, scores.values())):
            raise ValueError("no pieces with scores")
        kinds = {piece[1].decode(): piece.get(3, 1) for piece in pieces}
        refused = set() if special else {_USER_DEFINED, _BYTE} & {*kinds.values()}
        usual = trainer.get(3, 1) == 1 and not trainer.get(24) and not refused  # 24: suffixes
        if not usual or not all(normalizer.get(n, 1) for n in (3, 4, 5)):
            kinds_of = "user-defined pieces, bytes, spaces kept, or spaces at the ends of pieces"
            raise ValueError(f"not Unigram, or with {kinds_of}")
        check_letters(normalizer.get(2, b""))
    return PieceModel(scores, normalizer.get(2, b""), kinds)


_LOWEST = -1e5  # score of symbols, and of letters for which the model has no piece


def unigram_tokenizer(model: PieceModel, pieces: list[str]) -> Tokenizer:
    """A tokenizer that splits text as a SentencePiece model does and numbers pieces as a list.

    A piece that only the other side has must have a number but never match. Here it ends in a
    space, which no text contains when it is split, as its spaces are ▁; decoding removes it.
    """
    whole = [piece for piece in pieces if piece.startswith(">>") and piece.endswith("<<")]
    whole += [piece for piece, kind in model.kinds.items() if kind == _USER_DEFINED]
    bytes_ = [piece for piece, kind in model.kinds.items() if kind == _BYTE]
    letters = [piece for piece in pieces if len(piece) == 1]
    scores = dict.fromkeys([*SPECIALS, *whole, *letters, *bytes_], _LOWEST) | model.scores
    scored = [(p, scores[p]) if p in scores else (p + " ", 0.0) for p in pieces]
    tokenizer = Tokenizer(models.Unigram(scored, unk_id=UNK, byte_fallback=bool(bytes_)))
    table = [normalizers.Precompiled(model.table)] if model.table else []
    spaces = [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
    tokenizer.normalizer = normalizers.Sequence([*table, *spaces])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    steps: list[Any] = [decoders.ByteFallback()] if bytes_ else []
    steps = [decoders.Replace(" ", ""), *steps, decoders.Metaspace()]
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.add_special_tokens(SPECIALS)
    tokenizer.add_tokens([AddedToken(piece, normalized=False) for piece in whole])
    return tokenizer
