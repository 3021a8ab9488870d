"""SentencePiece models, read without the library, as tokenizers that number pieces as we do.

Such a model is a message in the wire format of Protocol Buffers. Three of its fields matter here:
the pieces with their scores, the kind of model, and the table by which letters are normalized.
"""

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from annotated.data import SPECIALS, UNK
from annotated.machinery.files import reading


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits per byte that starts at a position, and the position after it."""
    value = shift = 0
    while True:
        byte = message[at]
        value, at, shift = value | (byte & 127) << shift, at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field of a message; numbers of fixed size are returned as bytes.

    Raises: ValueError or IndexError if this is no message or ends too early.
    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        if key & 7 == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        size = {1: 8, 5: 4}.get(key & 7)
        if key & 7 == 2:
            size, at = _varint(message, at)
        if size is None or at + size > len(message):
            raise ValueError("no message of Protocol Buffers, or one that is cut short")
        yield key >> 3, message[at : at + size]
        at += size


_KINDS = {1: "Unigram", 2: "BPE", 3: "whole words", 4: "letters"}  # of SentencePiece models
_ORDINARY, _USER_DEFINED, _BYTE = 1, 4, 6  # types of pieces; the others are symbols or unused


class PieceModel(NamedTuple):
    """A SentencePiece model: the score of each ordinary piece, and how letters are normalized."""

    scores: dict[str, float]
    table: bytes


def read_piece_model(path: Path) -> PieceModel:
    """Read a SentencePiece model of the kind that OPUS-MT uses.

    Raises: MissingFile or FileError that names the file.
    """
    with reading(path, "a SentencePiece model"):
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
        if (kind := trainer.get(3, 1)) != 1:
            raise ValueError(f"one of the kind {_KINDS.get(kind, kind)}; only Unigram is read")
        special = {_USER_DEFINED, _BYTE} & {piece.get(3, 1) for piece in pieces}
        if special or not all(normalizer.get(rule, 1) for rule in (3, 4, 5)):
            raise ValueError("one with user-defined pieces, with bytes, or with spaces kept")
    return PieceModel(scores, normalizer.get(2, b""))


_LOWEST = -1e5  # score of symbols, and of letters for which the model itself has no piece


def unigram_tokenizer(model: PieceModel, pieces: list[str]) -> Tokenizer:
    """A tokenizer that splits text as a SentencePiece model does and numbers pieces as a list.

    A piece that only the other side has must get a number but never match. It ends in a space
    here, which no text has when it is split, because spaces are written as ▁; decoding removes it.
    """
    languages = [piece for piece in pieces if piece.startswith(">>") and piece.endswith("<<")]
    letters = [piece for piece in pieces if len(piece) == 1]
    scores = dict.fromkeys([*SPECIALS, *languages, *letters], _LOWEST) | model.scores
    scored = [(p, scores[p]) if p in scores else (p + " ", 0.0) for p in pieces]
    tokenizer = Tokenizer(models.Unigram(scored, unk_id=UNK, byte_fallback=False))
    table = [normalizers.Precompiled(model.table)] if model.table else []
    spaces = [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
    tokenizer.normalizer = normalizers.Sequence([*table, *spaces])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence([decoders.Replace(" ", ""), decoders.Metaspace()])
    tokenizer.add_special_tokens(SPECIALS)
    tokenizer.add_tokens([AddedToken(language, normalized=False) for language in languages])
    return tokenizer
