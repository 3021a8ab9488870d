"""Language models of Llama's kind in GGUF, the file format of llama.cpp.

The content of such a file is returned in the form of a folder of the Hub, so that
`annotated.machinery.formats.causal` checks both in the same way. Quantized weights become float32.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from torch import Tensor

from annotated.machinery.errors import FileError, extra
from annotated.machinery.files import reading, require_regular

_FIELDS = {  # of config.json, by their keys after "llama."
    "block_count": "num_hidden_layers", "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size", "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps", "rope.freq_base": "rope_theta",
    "attention.key_length": "head_dim", "vocab_size": "vocab_size",
}  # fmt: skip
_OTHERS = {"rope.dimension_count", "attention.value_length"}  # must equal the width of a head
_NAMES = {  # names of the Hub's tensors
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}  # fmt: skip
_CONTROL, _USER_DEFINED = 3, 4  # types of tokens that are found in a text before it is split
_SYMBOLS = {  # names of ids, with those that templates use
    "bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token",
}  # fmt: skip
_ENDS = {"eos": "of a text", "eot": "of a turn", "eom": "of a message"}


class GGUF(NamedTuple):
    """The content of a file.

    Attributes: config, in the form of the Hub's config.json; tensors, by the Hub's names;
        tokenizer; stop, the ids that end a text; template, of conversations, or None; symbols, by
        the names that a template uses.
    """

    config: dict[str, Any]
    tensors: dict[str, Tensor]
    tokenizer: Tokenizer
    stop: list[int]
    template: str | None
    symbols: dict[str, str]


def read_gguf(path: Path) -> GGUF:
    """The content of a GGUF file.

    Raises: MissingExtra without the extra gguf; MissingFile or FileError that names the file and
        the key or kind of tokenizer that is not supported.
    """
    with extra("gguf"):
        from gguf import GGUFReader, dequantize
    with reading(path, "a language model in GGUF"):
        path.stat()  # the library's own error does not name the file
        require_regular(path)
        file = GGUFReader(path)
        keys = {name: field.contents() for name, field in file.fields.items()}
        config = _config(path, keys)
        tensors = {
            _name(tensor.name): torch.tensor(dequantize(tensor.data, tensor.tensor_type))
            for tensor in file.tensors
        }
        config["tie_word_embeddings"] = "lm_head.weight" not in tensors
        for part, heads in (("q", "num_attention_heads"), ("k", "num_key_value_heads")):
            for name, tensor in tensors.items():
                if f"self_attn.{part}_proj." in name:
                    tensors[name] = in_halves(tensor, config[heads])
        ids = {name: keys.get(f"tokenizer.ggml.{name}_token_id") for name in _ENDS | _SYMBOLS}
        pieces = keys["tokenizer.ggml.tokens"]
        for name, i in ids.items():
            if i is not None and not (type(i) is int and 0 <= i < len(pieces)):
                wanted = f"tokenizer.ggml.{name}_token_id below {len(pieces)}"
                raise FileError(f"{path}: expected {wanted}; got {i!r:.80}")
        symbols = {x: pieces[i] for name, x in _SYMBOLS.items() if (i := ids[name]) is not None}
        stop = [i for name in _ENDS if (i := ids[name]) is not None]
        template = keys.get("tokenizer.chat_template")
        if not isinstance(template, str | None):
            raise ValueError(f"tokenizer.chat_template {template!r:.80}, which is no text")
        return GGUF(config, tensors, _tokenizer(path, keys, symbols), stop, template, symbols)


def in_halves(tensor: Tensor, heads: int) -> Tensor:
    """Rows of a query or key map in the Hub's order.

    RoPE rotates pairs of components. llama.cpp stores the two of a pair next to each other; the Hub
    stores the first of each pair in the first half of a head and the second in the second half.
    """
    return tensor.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def _config(path: Path, keys: Mapping[str, Any]) -> dict[str, Any]:
    kind = keys.get("general.architecture")
    if kind != "llama":
        raise FileError(f"{path}: expected general.architecture llama; got {kind!r:.80}")
    if (count := keys.get("split.count", 1)) > 1:
        raise FileError(f"{path}: expected all of a model in one file; got one of {count}")
    own = {key.removeprefix("llama."): v for key, v in keys.items() if key.startswith("llama.")}
    if unknown := sorted(own.keys() - _FIELDS.keys() - _OTHERS):
        wanted = "expected the keys of a known model"
        raise FileError(f"{path}: {wanted}; got llama.{unknown[0]} as well")
    config = {_FIELDS[key]: value for key, value in own.items() if key in _FIELDS}
    for key in "embedding_length", "attention.head_count", "attention.layer_norm_rms_epsilon":
        if key not in own:
            raise FileError(f"{path}: expected llama.{key}, which is missing")
    config.setdefault("num_key_value_heads", config["num_attention_heads"])
    config.setdefault("vocab_size", len(keys.get("tokenizer.ggml.tokens", [])))
    width = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    for key in _OTHERS & own.keys():
        if own[key] != width:
            raise FileError(f"{path}: expected llama.{key}={width}; got {own[key]!r:.80}")
    # 1e-5 in single precision is 9.999999747378752e-06.
    config["rms_norm_eps"] = float(f"{config['rms_norm_eps']:.6g}")
    return config | {"model_type": "llama", "hidden_act": "silu"}


def _name(name: str) -> str:
    """The Hub's name of a tensor; an unknown tensor keeps its name and is rejected later."""
    parts = name.split(".")
    if parts[0] == "blk" and len(parts) == 4 and parts[2] in _NAMES:
        return f"model.layers.{parts[1]}.{_NAMES[parts[2]]}.{parts[3]}"
    return f"{_NAMES[parts[0]]}.{parts[1]}" if len(parts) == 2 and parts[0] in _NAMES else name


def _tokenizer(path: Path, keys: Mapping[str, Any], symbols: Mapping[str, str]) -> Tokenizer:
    """The byte-pair tokenizer of a file, which must be of SmolLM's or GPT-2's kind."""
    kind = keys.get("tokenizer.ggml.model"), keys.get("tokenizer.ggml.pre", "default")
    splits: list[Any] = [pre_tokenizers.ByteLevel(add_prefix_space=False)]
    if kind == ("gpt2", "smollm"):
        splits.insert(0, pre_tokenizers.Digits(individual_digits=True))
    elif kind not in (("gpt2", "gpt-2"), ("gpt2", "default")):
        wanted = "tokenizer.ggml.model gpt2 with tokenizer.ggml.pre smollm or gpt-2"
        raise FileError(f"{path}: expected {wanted}; got {kind[0]!r:.80} with {kind[1]!r:.80}")
    pieces = keys["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in keys["tokenizer.ggml.merges"]]
    vocab = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits)
    tokenizer.decoder = decoders.ByteLevel()
    types = keys.get("tokenizer.ggml.token_type", [])
    for piece, type in zip(pieces, types, strict=False):
        if type in (_CONTROL, _USER_DEFINED):
            token = AddedToken(piece, normalized=False, special=type == _CONTROL)
            tokenizer.add_tokens([token])
    around = ["$A"]
    for name, place in ("bos", 0), ("eos", 2):
        if keys.get(f"tokenizer.ggml.add_{name}_token"):
            if f"{name}_token" not in symbols:
                wanted = f"tokenizer.ggml.{name}_token_id, which add_{name}_token adds"
                raise FileError(f"{path}: expected {wanted}; it is missing")
            around.insert(place, symbols[f"{name}_token"])
    known = [(piece, vocab[piece]) for piece in {*around} - {"$A"}]
    if known:
        tokenizer.post_processor = processors.TemplateProcessing(around, None, known)
    return tokenizer
