"""The translator."""

import json
from pathlib import Path

from tokenizers import Tokenizer, processors

from annotated.data import END, SPECIALS
from annotated.machinery.errors import FileError
from annotated.machinery.files import reading, write_text


def read_tokenizer(path: Path, vocab: int) -> Tokenizer:
    """The vocabulary of a model.

    Args:
        vocab: of the model; a piece has a lower number.

    Raises: MissingFile or FileError that names the file.
    """
    with reading(path, "a vocabulary as a training writes it"):
        tokenizer = _without_end(Tokenizer.from_str(path.read_text(encoding="utf-8")))
        tokenizer.decode(tokenizer.encode("a \u2603").ids)  # a file can be read and be of no use
    found = [tokenizer.id_to_token(i) for i in range(len(SPECIALS))]
    if found != SPECIALS:
        raise FileError(f"{path}: expected the first pieces as {SPECIALS}; got {found}")
    last = max(tokenizer.get_vocab().values())
    if last >= vocab:
        raise FileError(
            f"{path}: expected at most {vocab} pieces, as the model has; got {last + 1}"
        )
    if tokenizer.padding or tokenizer.truncation or tokenizer.post_processor:
        raise FileError(f"{path}: expected no padding, truncation or post_processor; it has some")
    return tokenizer


VOCABULARIES = "tokenizer.json", "tokenizer-target.json"  # the second only if it cuts otherwise


def with_end(tokenizer: Tokenizer) -> Tokenizer:
    """A copy that puts the end symbol behind a text."""
    tokenizer, end = Tokenizer.from_str(tokenizer.to_str()), SPECIALS[END]
    tokenizer.post_processor = processors.TemplateProcessing(f"$A {end}", None, [(end, END)])
    return tokenizer


def _without_end(tokenizer: Tokenizer) -> Tokenizer:
    """What `with_end` made a copy of, or the tokenizer itself if it is no such copy."""
    if tokenizer.post_processor is None:
        return tokenizer
    said = json.loads(tokenizer.to_str())
    plain = Tokenizer.from_str(json.dumps(said | {"post_processor": None}))
    ours = json.loads(with_end(plain).to_str())
    return plain if said["post_processor"] == ours["post_processor"] else tokenizer


def read_tokenizers(folder: Path, vocab: int) -> tuple[Tokenizer, Tokenizer | None]:
    """The vocabulary of a model, and how it cuts the target if by other rules."""
    first, second = (folder / name for name in VOCABULARIES)
    return read_tokenizer(first, vocab), read_tokenizer(second, vocab) if second.exists() else None


def write_tokenizers(folder: Path, source: Tokenizer, target: Tokenizer | None) -> None:
    """Write the vocabulary of a model, as `read_tokenizers` reads it."""
    for name, tokenizer in zip(VOCABULARIES, (source, target), strict=True):
        if tokenizer:
            write_text(folder / name, tokenizer.to_str())
