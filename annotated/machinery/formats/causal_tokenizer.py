"""Tokenizers of published language models, built from a folder as transformers 5 builds them.

tokenizer.json describes a tokenizer completely, but transformers takes only its pieces if the
folder names a class that has rules of its own, and it adds the symbols of tokenizer_config.json. A
class that is not listed here is rejected by name, because a model that reads other ids still
generates text, only worse text.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from annotated.machinery.corpora.vocabularies import checked_tokenizer
from annotated.machinery.errors import FileError
from annotated.machinery.files import read_json, reading, require_regular

SYMBOLS = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
_EXTRA, _ADDITIONAL = "extra_special_tokens", "additional_special_tokens"
_END = "<|endoftext|>"
_DEFAULTS: Mapping[str, dict[str, str]] = {  # classes with rules of their own, and their symbols
    "LlamaTokenizer": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
    "GPT2Tokenizer": dict.fromkeys(SYMBOLS[:3], _END),
    "GPTNeoXTokenizer": {**dict.fromkeys(SYMBOLS[:3], _END), "pad_token": "<|padding|>"},
    "Qwen2Tokenizer": dict.fromkeys(("eos_token", "unk_token", "pad_token"), _END),
}
_OWN_PADDING = "GPT2Tokenizer", "GPTNeoXTokenizer", "Qwen2Tokenizer"  # not that of tokenizer.json
_AS_IN_THE_FILE = "PreTrainedTokenizer", "TokenizersBackend"
_OF_FAMILIES = {
    "gpt2": "GPT2Tokenizer", "gpt_neox": "GPTNeoXTokenizer", "qwen3": "Qwen2Tokenizer",
}  # fmt: skip
_QWEN2_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def read_causal_tokenizer(
    folder: Path, config: Mapping[str, Any], told: Mapping[str, Any]
) -> tuple[Tokenizer | None, dict[str, str]]:
    """The tokenizer of a folder, and its symbols by the names that chat templates use.

    Args: config: the contents of config.json.   told: those of tokenizer_config.json.

    Returns: None for the tokenizer if the folder has no tokenizer.json.

    Raises: FileError that names the file.
    """
    path, where = folder / "tokenizer.json", folder / "tokenizer_config.json"
    if not path.exists():
        return None, {}
    with reading(path, "a tokenizer"):
        require_regular(path)
        text = path.read_text(encoding="utf-8")
        contents = json.loads(text)
    kind = told.get("tokenizer_class") or config.get("tokenizer_class")
    kind = kind or _OF_FAMILIES.get(config["model_type"], _AS_IN_THE_FILE[-1])
    kind = kind.removesuffix("Fast") if isinstance(kind, str) else kind
    if kind not in (*_DEFAULTS, *_AS_IN_THE_FILE):
        wanted = ", ".join((*_DEFAULTS, *_AS_IN_THE_FILE))
        raise FileError(f"{where}: expected tokenizer_class out of {wanted}; got {kind!r:.80}")
    if kind == "LlamaTokenizer" and '"ByteLevel"' in text:  # Llama 3 names the class of Llama 2
        kind = _AS_IN_THE_FILE[-1]
    older, numbered = (
        read_json(folder / name, "the symbols of a tokenizer")
        if "added_tokens_decoder" not in told and (folder / name).exists()
        else {}
        for name in ("special_tokens_map.json", "added_tokens.json")
    )
    with reading(where, "the symbols of a tokenizer"):
        extra = told.get(_EXTRA) or told.get(_ADDITIONAL) or older.pop(_EXTRA, None) or []
        told = {**told, **{x: _added(y) if isinstance(y, dict) else y for x, y in older.items()}}
        if "added_tokens_decoder" in told:
            by_id = {int(number): token for number, token in told["added_tokens_decoder"].items()}
        else:
            marks = {str(token) for token in (*(told.get(name) for name in SYMBOLS), *extra)}
            by_id = {
                number: {"content": text, "normalized": text not in marks, "special": text in marks}
                for text, number in numbered.items()
            }
            extra = extra or older.get(_ADDITIONAL) or []
            by_id |= {token["id"]: token for token in contents.get("added_tokens") or []}
        added = {token["content"]: _added(token) for _, token in sorted(by_id.items())}
        named = {**_DEFAULTS.get(kind, {}), **told, **(extra if isinstance(extra, dict) else {})}
        if kind not in _OWN_PADDING and (padding := contents.get("padding")):
            named.setdefault("pad_token", padding["pad_token"])
        symbols = {name: _added(named[name]) for name in SYMBOLS if named.get(name) is not None}
        symbols |= {
            name: _added(token)
            for name, token in named.items()
            if name.endswith("_token")
            and name not in symbols
            and isinstance(token, str | dict | AddedToken)
        }
        more = [] if isinstance(extra, dict) else [*map(_added, extra)]
        for token in (*symbols.values(), *more):
            added.setdefault(token.content, token)
        for token in (*symbols.values(), *(more if kind == "Qwen2Tokenizer" else ())):
            added[token.content].special = True
    with reading(path, "a tokenizer"):
        if kind in _DEFAULTS:
            contents = contents | _rules(kind, contents["model"], told)
        tokenizer = checked_tokenizer(contents)
        tokenizer.add_tokens([*added.values()])
        tokenizer.encode_special_tokens = bool(told.get("split_special_tokens"))
    return tokenizer, {name: token.content for name, token in symbols.items()}


def _added(token: str | dict[str, Any] | AddedToken) -> AddedToken:
    """A symbol from its text, or from its properties in a file."""
    if isinstance(token, AddedToken):
        return token
    if isinstance(token, str):
        return AddedToken(token, special=True)
    names = "lstrip", "normalized", "rstrip", "single_word"
    given = {name: bool(token[name]) for name in names if name in token}
    return AddedToken(token["content"], **given, special=bool(token.get("special", True)))


def _rules(kind: str, model: dict[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of tokenizer.json that a class replaces by its own."""
    if not isinstance(model["vocab"], dict):
        raise ValueError(f"a model {model.get('type')!r:.80}; a {kind} is of BPE")
    llama, prefix = kind == "LlamaTokenizer", told.get("add_prefix_space")
    given: dict[str, Any] = {
        "type": "BPE", "vocab": model["vocab"], "merges": model["merges"], "dropout": None,
        "unk_token": None, "continuing_subword_prefix": None if llama else "",
        "end_of_word_suffix": None if llama else "", "fuse_unk": llama, "byte_fallback": llama,
    }  # fmt: skip
    byte_level: dict[str, Any] = {"type": "ByteLevel", "add_prefix_space": bool(prefix)}
    byte_level |= {"trim_offsets": True, "use_regex": kind != "Qwen2Tokenizer"}
    rules: dict[str, Any] = {"model": given, "added_tokens": [], "normalizer": {"type": "NFC"}}
    rules |= {"pre_tokenizer": byte_level, "decoder": byte_level}
    if kind == "GPT2Tokenizer":
        rules["normalizer"] = None
    elif kind == "GPTNeoXTokenizer":
        rules["post_processor"] = None
    elif kind == "Qwen2Tokenizer":
        words: dict[str, Any] = {"type": "Split", "pattern": {"Regex": _QWEN2_WORDS}}
        words |= {"behavior": "Isolated", "invert": False}
        rules["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [words, byte_level]}
    else:
        scheme = "always" if told.get("legacy") else "first"
        scheme = "never" if prefix is not None and not prefix else scheme
        steps: list[Any] = [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]
        spaces = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False}
        steps = steps[: 3 if scheme == "never" else 4]
        decoder = {"type": "Sequence", "decoders": steps}
        rules |= {"normalizer": None, "pre_tokenizer": spaces, "decoder": decoder}
    return rules
