"""Tokenizers of language models: those of transformers, and refused where they may not end."""

import base64
import json
import os
import random
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from published_models import SYMBOLS, TEXT, trained

from annotated.machinery.corpora.vocabularies import checked_tokenizer, read_tokenizer
from annotated.machinery.errors import FileError
from annotated.machinery.formats.causal_tokenizer import read_causal_tokenizer
from annotated.machinery.formats.piece_models import read_piece_model

MARKS = [*SYMBOLS, "<|im_start|>", "<|im_end|>", "<|endoftext|>"]
PADDING = {
    "strategy": {"Fixed": 2 * 10**9}, "direction": "Left", "pad_to_multiple_of": None,
    "pad_id": 0, "pad_type_id": 0, "pad_token": "tab",
}  # fmt: skip
CLASSES = [None, "LlamaTokenizer", "LlamaTokenizerFast", "GPT2TokenizerFast", "GPTNeoXTokenizer"]
CLASSES += ["Qwen2Tokenizer", "PreTrainedTokenizerFast", "TokenizersBackend", "PreTrainedTokenizer"]
FLAGS = "legacy", "add_bos_token", "add_eos_token", "add_prefix_space", "split_special_tokens"


@pytest.fixture(scope="module")
def files() -> dict[str, dict[str, Any]]:
    return {kind: trained(kind, MARKS) for kind in ("sentencepiece", "smollm", "llama3", "qwen")}


def drawn(draw: random.Random, files: dict[str, Any]) -> tuple[dict, dict, dict, dict]:
    """tokenizer.json, tokenizer_config.json, special_tokens_map.json and added_tokens.json.

    The last two are often empty.
    """
    contents, told = deepcopy(draw.choice([*files.values()])), {}
    if draw.random() < 0.3:
        contents["truncation"] = {
            "direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0,
        }  # fmt: skip
    if draw.random() < 0.3:
        contents["added_tokens"] = contents["added_tokens"][: draw.randrange(7)]
    if kind := draw.choice(CLASSES):
        told["tokenizer_class"] = kind
    for name in "bos_token", "eos_token", "unk_token", "pad_token":
        text = draw.choice([*MARKS, "<pad>"])
        flags = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized"), False)
        full = {"__type": "AddedToken", "content": text, **flags}
        if draw.random() < 0.6:
            told[name] = draw.choice([text, text, full, None])
    if draw.random() < 0.4:
        told["added_tokens_decoder"] = {
            str(token["id"]): {k: v for k, v in token.items() if k != "id"}
            for token in contents["added_tokens"]
        }
    told |= {name: draw.random() < 0.5 for name in FLAGS if draw.random() < 0.2}
    if draw.random() < 0.2:
        told["additional_special_tokens"] = ["<|im_start|>", "<extra>"]
    if draw.random() < 0.3:
        contents["padding"] = PADDING
    older = {"bos_token": "<s>", "pad_token": {"content": "<pad>", **flags}}
    older |= {"additional_special_tokens": ["<extra>", "tab"]} if draw.random() < 0.5 else {}
    ids = draw.sample(range(300, 700), 4)
    numbered = dict(zip(["<pad>", "two", "<extra>", MARKS[-1]], ids, strict=True))
    return (
        contents,
        told,
        older if draw.random() < 0.25 else {},
        numbered if draw.random() < 0.3 else {},
    )


@pytest.mark.slow
def test_ids_and_symbols_are_those_of_transformers(files, tmp_path: Path):
    transformers = pytest.importorskip("transformers")
    draw = random.Random(3)
    texts = [
        *TEXT,
        "",
        "  two  spaces ",
        "a\n\n b",
        "e\u0301 日本",
        "<s>x</s> y <|im_end|>",
        "12 345",
    ]
    texts += ["<pad> <extra> <unk>", " <s> hi", "\ttab"]
    for number in range(100):
        contents, told, older, numbered = drawn(draw, files)
        config = {"model_type": draw.choice(["llama", "gpt2", "qwen3", "gpt_neox"])}
        folder = tmp_path / str(number)
        folder.mkdir()
        written = {"tokenizer": contents, "tokenizer_config": told, "config": config}
        written |= {"special_tokens_map": older, "added_tokens": numbered}
        for name, value in written.items():
            if value:
                (folder / f"{name}.json").write_text(json.dumps(value))
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
        ours, symbols = read_causal_tokenizer(folder, config, told)
        assert ours is not None and symbols == theirs.special_tokens_map, told
        for text in texts:
            ids = theirs(text)["input_ids"]
            assert ours.encode(text).ids == ids, (told, text)
            assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)


REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "  "}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
TABLE = base64.b64encode(bytes(4) + b"a" * 10_000 + bytes(1)).decode()
A = {"Sequence": {"id": "A", "type_id": 0}}
MARK = {"SpecialToken": {"id": "x", "type_id": 0}}


def template(*parts: dict, ids: int = 1) -> dict[str, Any]:
    known = {"x": {"id": "x", "ids": [1] * ids, "tokens": ["x"] * ids}}
    return {"type": "TemplateProcessing", "single": [*parts], "pair": [A], "special_tokens": known}


UNSAFE = {
    "doublings": {"normalizer": {"type": "Sequence", "normalizers": [REPLACE] * 40}},
    "nested": {"normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Sequence", "normalizers": [{**REPLACE, "content": "a" * 50}]}]}},
    "nothing replaced": {"normalizer": {**REPLACE, "pattern": {"String": ""}, "content": "a"}},
    "a pattern": {"normalizer": {**REPLACE, "pattern": {"Regex": "a*"}, "content": "aa"}},
    "a long prefix": {"normalizer": {"type": "Prepend", "prepend": "a" * 10**7}},
    "two prefixes": {"normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "a"}] * 2}},
    "a bad table": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////w=="}},
    "no table": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}},
    "a long letter": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": TABLE}},
    "bytes of bytes": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [BYTES] * 40}},
    "an unknown step": {"pre_tokenizer": {"type": "Other"}},
    "a text twice": {"post_processor": template(A, A)},
    "a thousand symbols": {"post_processor": template(*[MARK] * 1000, A)},
    "symbols of many ids": {"post_processor": template(*[MARK] * 50, A, ids=50)},
    "a decoder": {"decoder": {"type": "Sequence", "decoders": [REPLACE] * 40}},
    "chance": {"model": "dropout"},
    "no model": {"model": None},
    "a list": {"normalizer": [1]},
}  # fmt: skip


@pytest.mark.parametrize("name", UNSAFE)
def test_a_tokenizer_that_may_not_end_is_refused(name: str, files, tmp_path: Path):
    """By one rule for language models and translators."""
    contents = deepcopy(files["smollm"]) | UNSAFE[name]
    if name == "chance":
        contents["model"] = files["smollm"]["model"] | {"dropout": 0.1}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(contents))
    with pytest.raises(FileError, match=r"tokenizer\.json: expected a tokenizer; got"):
        read_causal_tokenizer(tmp_path, {"model_type": "llama"}, {})
    with pytest.raises(FileError, match=r"tokenizer\.json: expected a vocabulary"):
        read_tokenizer(path, 10**6)


def test_limits_of_somebodys_training_are_reset(files):
    limits = {
        "truncation": {
            "direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0,
        },
        "padding": PADDING,
    }  # fmt: skip
    expected = checked_tokenizer(files["qwen"]).encode(TEXT[0]).ids
    assert checked_tokenizer(files["qwen"] | limits).encode(TEXT[0]).ids == expected


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"tokenizer_class": "GemmaTokenizer"}, "tokenizer_class out of .* got 'GemmaTokenizer'"),
        ({"tokenizer_class": ["GPT2Tokenizer"]}, "tokenizer_class out of"),
        ({"added_tokens_decoder": [1]}, "the symbols of a tokenizer"),
        ({"added_tokens_decoder": {"1": "a"}}, "the symbols of a tokenizer"),
        ({"added_tokens_decoder": {"x": {"content": "a"}}}, "the symbols of a tokenizer"),
        ({"bos_token": 3}, "the symbols of a tokenizer"),
        ({"extra_special_tokens": 3}, "the symbols of a tokenizer"),
    ],
)
def test_symbols_of_other_types_are_refused(told: dict, message: str, files, tmp_path: Path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(files["smollm"]))
    with pytest.raises(FileError, match=rf"tokenizer_config\.json: expected {message}"):
        read_causal_tokenizer(tmp_path, {"model_type": "llama"}, told)


def test_a_pipe_is_not_read(tmp_path: Path):
    """It would block forever; a device such as /dev/zero would fill the memory."""
    os.mkfifo(tmp_path / "tokenizer.json")
    with pytest.raises(FileError, match=r"tokenizer\.json: .* a folder, a device or a pipe"):
        read_causal_tokenizer(tmp_path, {"model_type": "llama"}, {})
    (tmp_path / "source.spm").symlink_to("/dev/zero")
    with pytest.raises(FileError, match=r"source\.spm: .* a folder, a device or a pipe"):
        read_piece_model(tmp_path / "source.spm")
