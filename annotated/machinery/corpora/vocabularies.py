"""The vocabulary files of a model.

tokenizer.json contains the pieces of both languages. If the target is tokenized by other rules than
the source, as in published models, tokenizer-target.json has the same pieces with these rules.
"""

import json
from itertools import chain
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, processors

from annotated.data import END, SPECIALS
from annotated.machinery.errors import FileError
from annotated.machinery.files import reading, require_regular, write_text

VOCABULARIES = "tokenizer.json", "tokenizer-target.json"
_END = processors.TemplateProcessing(f"$A {SPECIALS[END]}", None, [(SPECIALS[END], END)])


_STEPS = {"NFC", "Precompiled", "Replace", "Strip", "Metaspace", "Punctuation", "ByteFallback"}
_REPLACED = {"Regex": " {2,}"}, {"String": " "}


def _check_step(step: dict[str, Any]) -> None:
    """Raise ValueError unless a step is of a kind that we write; other kinds may never finish."""
    kind = step["type"]
    if kind == "Sequence":
        for part in chain.from_iterable(value for value in step.values() if type(value) is list):
            _check_step(part)
    elif kind not in _STEPS or (kind == "Replace" and step["pattern"] not in _REPLACED):
        raise ValueError(f"a step {kind!r:.80}")


def read_tokenizer(path: Path, vocab: int) -> Tokenizer:
    """Read one vocabulary file.

    Args:
        vocab: number of the model's ids.

    Raises: MissingFile or FileError that names the file.
    """
    with reading(path, "a vocabulary as training writes it"):
        require_regular(path)
        contents = json.loads(path.read_text(encoding="utf-8"))
        if contents.get("post_processor") == json.loads(_END.__getstate__()):
            contents["post_processor"] = None  # `encode_source` appends it
        contents |= {"padding": None, "truncation": None}  # left by training elsewhere
        for step in ("normalizer", "pre_tokenizer", "decoder"):
            _check_step(contents.get(step) or {"type": "NFC"})
        tokenizer = Tokenizer.from_str(json.dumps(contents))
        tokenizer.decode(tokenizer.encode("a \u2603").ids)  # some files load but cannot encode
    found = [tokenizer.id_to_token(i) for i in range(len(SPECIALS))]
    if found != SPECIALS:
        raise FileError(f"{path}: expected the first pieces as {SPECIALS}; got {found}")
    if (size := max(tokenizer.get_vocab().values()) + 1) > vocab:
        raise FileError(f"{path}: expected at most {vocab} pieces, as the model has; got {size}")
    if tokenizer.post_processor:
        raise FileError(
            f"{path}: expected no post_processor but one for {SPECIALS[END]}; got another"
        )
    return tokenizer


def with_end(tokenizer: Tokenizer) -> Tokenizer:
    """A copy that appends the end symbol to each text, as transformers expects."""
    tokenizer = Tokenizer.from_str(tokenizer.to_str())
    tokenizer.post_processor = _END
    return tokenizer


def read_tokenizers(folder: Path, source: int, target: int) -> tuple[Tokenizer, Tokenizer | None]:
    """The tokenizers of source and target; the second is None if they are the same.

    Args:
        source, target: number of the model's ids on each side.
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
