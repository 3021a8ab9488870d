"""The vocabulary files of a model.

tokenizer.json contains the pieces of both languages. If the target is tokenized by other rules than
the source, as in published models, tokenizer-target.json has the same pieces with these rules.
"""

import json
from base64 import b64decode
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, processors

from annotated.data import END, SPECIALS
from annotated.machinery.errors import FileError
from annotated.machinery.files import reading, require_regular, write_text

VOCABULARIES = "tokenizer.json", "tokenizer-target.json"
ADDS_END = processors.TemplateProcessing(f"$A {SPECIALS[END]}", None, [(SPECIALS[END], END)])


# The kinds of steps that are known to end. Those that may lengthen a text do so by a small factor,
# and only those without such a factor may occur again.
_AGAIN = {"Replace", "Split", "Strip"}
_STEPS = _AGAIN | {
    "ByteFallback", "ByteLevel", "Digits", "Fuse", "Lowercase", "Metaspace", "NFC", "NFD", "NFKC",
    "NFKD", "Precompiled", "Prepend", "Punctuation", "StripAccents", "TemplateProcessing",
    "Whitespace", "WhitespaceSplit",
}  # fmt: skip
_LONGEST = 100  # bytes that replace a letter, and symbols that are added to a text


def _each_step(step: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """The steps of a sequence, also of sequences in it."""
    if step and step["type"] == "Sequence":
        for part in chain.from_iterable(value for value in step.values() if type(value) is list):
            yield from _each_step(part)
    elif step:
        yield step


def check_letters(table: bytes) -> None:
    """Raise ValueError if SentencePiece's table replaces a letter by a long text."""
    letters = table[4 + int.from_bytes(table[:4], "little") :]  # after a tree and its size
    if len(max(letters.split(b"\0"), key=len)) > _LONGEST:
        raise ValueError(f"a letter that becomes more than {_LONGEST} bytes")


def _lengthens(step: dict[str, Any]) -> bool:
    """Whether a step may lengthen a text by more than a small factor."""
    kind = step["type"]
    if kind == "Replace":
        (form, pattern), *_ = step["pattern"].items()
        shortest = len(pattern) if form == "String" else 2 * (pattern == " {2,}")
        return not shortest or len(step["content"]) > shortest
    if kind == "Prepend":
        return len(step["prepend"]) > 1
    if kind == "Precompiled":
        check_letters(b64decode(step["precompiled_charsmap"]))
    if kind == "TemplateProcessing":
        parts = [part for pieces in (step["single"], step["pair"]) for part in pieces]
        names = [part["SpecialToken"]["id"] for part in parts if "SpecialToken" in part]
        added = sum(len(step["special_tokens"][name]["ids"]) for name in names)
        return added > _LONGEST or sum("Sequence" in part for part in step["single"]) > 1
    return False


def checked_tokenizer(contents: dict[str, Any]) -> Tokenizer:
    """The tokenizer that a file describes, without the limits of the training that wrote it.

    Raises: ValueError for a step of an unknown kind, or for steps that can make a short text so
        long that the process ends.
    """
    contents = contents | {"padding": None, "truncation": None}
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        kinds = set()
        for step in _each_step(contents.get(part)):
            kind = step["type"]
            if kind not in _STEPS or (kind in kinds and kind not in _AGAIN) or _lengthens(step):
                raise ValueError(f"a step {kind!r:.80} in {part} that is unknown or unsafe")
            kinds.add(kind)
    if contents["model"].get("dropout"):
        raise ValueError("a dropout, with which it splits a text differently each time")
    tokenizer = Tokenizer.from_str(json.dumps(contents))
    tokenizer.decode(tokenizer.encode("a \u2603").ids)  # some files load but cannot encode
    return tokenizer


def read_tokenizer(path: Path, vocab: int) -> Tokenizer:
    """Read one vocabulary file.

    Args: vocab: number of the model's ids.

    Raises: MissingFile or FileError that names the file.
    """
    with reading(path, "a vocabulary as training writes it"):
        require_regular(path)
        contents = json.loads(path.read_text(encoding="utf-8"))
        if contents.get("post_processor") == json.loads(ADDS_END.__getstate__()):
            contents["post_processor"] = None  # `encode_source` appends it
        tokenizer = checked_tokenizer(contents)
    found = [tokenizer.id_to_token(i) for i in range(len(SPECIALS))]
    if found != SPECIALS:
        raise FileError(f"{path}: expected the first pieces as {SPECIALS}; got {found}")
    if (size := max(tokenizer.get_vocab().values()) + 1) > vocab:
        raise FileError(f"{path}: expected at most {vocab} pieces, as the model has; got {size}")
    if tokenizer.post_processor:
        raise FileError(f"{path}: expected no post_processor but for {SPECIALS[END]}; got another")
    return tokenizer


def read_tokenizers(folder: Path, source: int, target: int) -> tuple[Tokenizer, Tokenizer | None]:
    """The tokenizers of source and target; the second is None if they are the same.

    Args: source, target: number of the model's ids on each side.
    """
    first, second = (folder / name for name in VOCABULARIES)
    if not second.exists():
        return read_tokenizer(first, min(source, target)), None
    return read_tokenizer(first, source), read_tokenizer(second, target)


def write_tokenizers(folder: Path, source: Tokenizer, target: Tokenizer | None) -> None:
    """Write the vocabulary files that `read_tokenizers` reads."""
    for name, tokenizer in zip(VOCABULARIES, (source, target), strict=True):
        if tokenizer:
            write_text(folder / name, tokenizer.to_str())
