"""Published models: those that Marian trained, in the format of Hugging Face.

They are the Transformer of this book except for their biases, the swish between the feed-forward
maps, the order of the sinusoids (all sines before all cosines, so that one permutation of d_model
turns one kind of model into the other) and the start symbol, which has the vector of the padding.
A folder may be damaged or hostile, and may describe a model that ours cannot be; therefore every
difference is refused by name. `read_marian` and `write_marian` are each other's inverse.
"""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from tokenizers import Tokenizer
from torch import Tensor

from annotated.data import END, PAD, SPECIALS, START, UNK
from annotated.machinery.errors import FileError, InputError
from annotated.machinery.files import (
    fits,
    read_json,
    read_tensors,
    reading,
    settings,
    write_tensors,
    write_text,
)
from annotated.machinery.model_files import LoadedModel, check_weights, empty_model, with_weights
from annotated.machinery.piece_models import read_piece_model, unigram_tokenizer
from annotated.machinery.vocabularies import (
    VOCABULARIES,
    read_tokenizers,
    with_end,
    write_tokenizers,
)
from annotated.model import EncoderDecoder, TransformerConfig, parameter_shapes
from annotated.positional import sinusoids

_REQUIRED = {  # values of config.json that our model has, too
    "scale_embedding": True, "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True, "normalize_before": False, "normalize_embedding": False,
}  # fmt: skip
_DEFAULTS = {  # where config.json has no value
    "vocab_size": 58101, "d_model": 1024, "encoder_layers": 12, "decoder_layers": 12,
    "encoder_attention_heads": 16, "decoder_attention_heads": 16,
    "encoder_ffn_dim": 4096, "decoder_ffn_dim": 4096, "activation_function": "gelu",
    "dropout": 0.1, "attention_dropout": 0.0, "decoder_start_token_id": 58100,
    "pad_token_id": 58100, "eos_token_id": 0, **_REQUIRED, "scale_embedding": False,
}  # fmt: skip


def _read_config(path: Path, said: dict[str, Any]) -> tuple[Any, TransformerConfig]:
    """The configuration of a published model, with its own names and with ours.

    Raises: FileError that names what our model cannot be.
    """
    if (kind := said.get("model_type")) != "marian":
        raise FileError(f"{path}: expected the model_type 'marian'; got {kind!r:.80}")
    c = SimpleNamespace(**{name: said.get(name, value) for name, value in _DEFAULTS.items()})
    required: dict[str, Any] = dict(_REQUIRED)
    for size in "layers", "attention_heads", "ffn_dim":
        required[f"decoder_{size}"] = said.get(f"encoder_{size}", _DEFAULTS[f"encoder_{size}"])
    for name, default in _DEFAULTS.items():
        value = getattr(c, name)
        if not fits(value, type(default)) or value != required.get(name, value):
            wanted = required.get(name, type(default).__name__)
            raise FileError(f"{path}: expected {name}={wanted}; got {value!r:.80}")
    if c.d_model % 2:
        raise FileError(f"{path}: expected an even d_model; got {c.d_model}")
    ours: dict[str, Any] = {"N": c.encoder_layers, "d_model": c.d_model, "d_ff": c.encoder_ffn_dim}
    ours |= {"h": c.encoder_attention_heads, "dropout": c.dropout, "bias": True, "max_len": 512}
    ours |= {"src_vocab": c.vocab_size, "tgt_vocab": c.vocab_size, "tie_embeddings": True}
    ours |= {"attention_dropout": c.attention_dropout}
    ours |= {"activation": "swish" if c.activation_function == "silu" else c.activation_function}
    return c, settings(TransformerConfig, ours, str(path))


_SIDES = "source.spm", "target.spm"


def _read_pieces(folder: Path, c: Any) -> tuple[list[int], Tokenizer, Tokenizer]:
    """The vocabulary of a published model, numbered as ours: the special symbols come first.

    A piece of a SentencePiece model that has no number is unknown to the published model; here it
    gets a number, and the vector of <unk>.

    Returns: for each of our ids the row of the published embedding; tokenizers of source and
        target, with the same pieces.

    Raises: MissingFile or FileError that names the file.
    """
    path, models = folder / "vocab.json", [read_piece_model(folder / side) for side in _SIDES]
    numbers = read_json(path, "the number of each piece")
    whole = fits(numbers, dict[str, int]) and set(numbers.values()) == set(range(len(numbers)))
    if not whole or len(numbers) != c.vocab_size:
        wanted = f"pieces numbered from 0 to {c.vocab_size - 1}, as config.json has them"
        raise FileError(f"{path}: expected {wanted}; got {len(numbers)} entries")
    symbols = {"</s>": c.eos_token_id, "<pad>": c.pad_token_id, "<unk>": numbers.get("<unk>", -1)}
    for name, number in symbols.items():
        if numbers.get(name) != number:
            raise FileError(f"{path}: expected {name} as number {number}; got {numbers.get(name)}")
    start, unk = c.decoder_start_token_id, numbers["<unk>"]
    if not 0 <= start < c.vocab_size:
        wanted = f"a decoder_start_token_id below {c.vocab_size}"
        raise FileError(f"{path}: expected {wanted}; got {start}")
    others = sorted((number, name) for name, number in numbers.items() if name not in symbols)
    # A piece with the name of one of our symbols gets a space, which no text has.
    pieces = [*SPECIALS, *(name + " " * (name in SPECIALS) for _, name in others)]
    rows = [start, c.eos_token_id, c.pad_token_id, unk, *(number for number, _ in others)]
    unknown = {name: unk for model in models for name in model.scores if name not in numbers}
    tokenizers = []
    for side, model in zip(_SIDES, models, strict=True):
        with reading(folder / side, "a SentencePiece model whose tables are sound"):
            tokenizers.append(unigram_tokenizer(model, [*pieces, *unknown]))
    source, target = tokenizers
    return [*rows, *unknown.values()], source, target


_EMBEDDING, _BIAS = "src_embed.0.lut.weight", "generator.proj.bias"
_NAMES = {_EMBEDDING: "model.shared.weight", _BIAS: "final_logits_bias"}
_COPIES = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"
_TABLES = "model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"
_MODULES = {
    "self_attn": "self_attn.", "src_attn": "encoder_attn.", "feed_forward": "",
    "w_q": "q_proj", "w_k": "k_proj", "w_v": "v_proj", "w_o": "out_proj",
    "w_1": "fc1", "w_2": "fc2",
}  # fmt: skip
_NORMS = {"encoder": ["self_attn", "final"], "decoder": ["self_attn", "encoder_attn", "final"]}


def _published_name(name: str) -> str:
    """The name of one of our parameters in the published format."""
    if name in _NAMES:
        return _NAMES[name]
    stack, _, layer, part, module, *_, kind = name.split(".")
    if part == "sublayer":
        theirs = f"{_NORMS[stack][int(module)]}_layer_norm"
    else:
        theirs = _MODULES[part] + _MODULES[module]
    return f"model.{stack}.layers.{layer}.{theirs}.{kind}"


def sines_first(d_model: int) -> Tensor:
    """For each component in our order its place in Marian's: sines first, then cosines."""
    return torch.arange(d_model).view(2, -1).T.flatten()  # 0, d/2, 1, d/2 + 1, …


def _reorder(name: str, tensor: Tensor, order: Tensor) -> Tensor:
    """A parameter of ours with its d_model components in another order."""
    module, kind = name.split(".")[-2:]
    if module in ("w_o", "w_2", "norm"):  # these write vectors of d_model components
        return tensor[order]
    return tensor[:, order] if kind == "weight" else tensor  # the others read them


_SAFE = "2.10"  # the torch whose weights_only is safe against pickles that run code


def _read_weights(folder: Path, d_model: int) -> tuple[Path, dict[str, Tensor]]:
    """The file of the weights and its tensors: the shared matrix once, no table of positions.

    Raises: MissingFile or FileError that names the file.
    """
    path, unsafe = folder / "model.safetensors", folder / "pytorch_model.bin"
    path = unsafe if unsafe.is_file() and not path.is_file() else path
    expected = "the weights of a published model"
    if path.suffix == ".safetensors":
        found, _ = read_tensors(path, expected)
    elif torch.__version__ < _SAFE:  # compares as a version, not as text
        wanted = f"model.safetensors, or torch {_SAFE} to read {path.name} safely"
        raise FileError(f"{path}: expected {wanted}; this is torch {torch.__version__}")
    else:
        with reading(path, f"{expected}, tensors and nothing else"):
            found = torch.load(path, "cpu", weights_only=True)
        if not isinstance(found, dict) or not all(isinstance(x, Tensor) for x in found.values()):
            raise FileError(f"{path}: expected {expected}; got something else")
    for name in _COPIES:
        if (copy := found.pop(name, None)) is not None:
            shared = found.setdefault(_NAMES[_EMBEDDING], copy)
            if copy.shape != shared.shape or not torch.equal(copy, shared):
                raise FileError(f"{path}: expected {name} equal to the shared matrix; it differs")
    for name in _TABLES:
        if (table := found.pop(name, None)) is not None:
            right = table.dim() == 2 and table.size(1) == d_model
            if right:
                ours = table.float()[:, sines_first(d_model)]
                right = torch.allclose(ours, sinusoids(len(table), d_model), atol=1e-3)
            if not right:
                raise FileError(f"{path}: expected sinusoids in {name}; got other numbers")
    return path, found


_NEVER = -100.0  # bias of what must not be emitted; exp(-100) adds nothing to a sum
_SYMBOLS = {
    "bos_token_id": START, "decoder_start_token_id": START, "eos_token_id": END,
    "forced_eos_token_id": END, "pad_token_id": PAD,
}  # fmt: skip


def read_marian(folder: Path, said: dict[str, Any]) -> LoadedModel:
    """Read a folder in the format of Hugging Face, with a model that Marian trained.

    Its vocabulary is two SentencePiece models and vocab.json, or ours if `write_marian` wrote it.

    Args:
        said: the contents of its config.json.

    Raises: MissingFile or FileError that names the file and what is not as expected.
    """
    path = folder / "config.json"
    c, config = _read_config(path, said)
    rows, source, target = None, None, None
    if not (folder / _SIDES[0]).exists() and (folder / VOCABULARIES[0]).exists():
        symbols = {name: getattr(c, name) for name in _SYMBOLS if hasattr(c, name)}
        for name, number in sorted(symbols.items() - _SYMBOLS.items()):
            wanted = f"{name}={_SYMBOLS[name]}, as there is no source.spm"
            raise FileError(f"{path}: expected {wanted}; got {number}")
        source, target = read_tokenizers(folder, c.vocab_size)
    else:
        rows, source, target = _read_pieces(folder, c)
        config = replace(config, src_vocab=len(rows), tgt_vocab=len(rows))
    weights_path, found = _read_weights(folder, c.d_model)
    found.setdefault(_NAMES[_BIAS], torch.zeros(1, c.vocab_size))
    layers = {name.split(".")[3] for name in found if name.startswith("model.encoder.layers.")}
    model = empty_model(config, len(layers), path)
    shapes = {_published_name(name): tuple(p.shape) for name, p in model.named_parameters()}
    shapes |= {_NAMES[_EMBEDDING]: (c.vocab_size, c.d_model), _NAMES[_BIAS]: (1, c.vocab_size)}
    found = check_weights(weights_path, found, shapes)
    found[_NAMES[_BIAS]] = found[_NAMES[_BIAS]][0]
    order = sines_first(c.d_model)
    weights = {
        name: _reorder(name, found[_published_name(name)], order)
        for name, _ in model.named_parameters()
    }
    if rows is not None:
        weights |= {name: weights[name][torch.tensor(rows)] for name in (_EMBEDDING, _BIAS)}
        first = {row: i for i, row in reversed(list(enumerate(rows)))}
        again = [i for i, row in enumerate(rows) if first[row] != i]
        weights[_BIAS][again] = _NEVER  # of the pieces with one vector only the first is emitted
    return with_weights(model, weights), source, target


class _Translator(Protocol):
    model: EncoderDecoder
    tokenizer: Tokenizer
    target_tokenizer: Tokenizer | None


def _check_writable(c: TransformerConfig) -> None:
    """Raise InputError unless the published format has a place for all of a model."""
    width = c.d_model / c.h
    for wanted, holds in (
        ("norm_first=False", not c.norm_first),
        ("sinusoids and an even d_model", c.positions == "sinusoidal" and c.d_model % 2 == 0),
        ("tie_embeddings=True", c.tie_embeddings),
        ("d_k = d_v = d_model / h", {c.d_k or width, c.d_v or width} == {width}),
    ):
        if not holds:
            raise InputError(f"expected a model with {wanted}, as Marian's format has it; got {c}")


def _published_config(c: TransformerConfig, half: bool) -> dict[str, Any]:
    """The config.json of a model of ours."""
    said: dict[str, Any] = {"architectures": ["MarianMTModel"], "model_type": "marian"}
    for side in "encoder", "decoder":
        said |= {f"{side}_layers": c.N, f"{side}_attention_heads": c.h, f"{side}_ffn_dim": c.d_ff}
    said |= {"vocab_size": c.src_vocab, "d_model": c.d_model, "dropout": c.dropout}
    said |= {"attention_dropout": c.attention_dropout, "activation_function": c.activation}
    said |= {"max_position_embeddings": max(c.max_len, 512), "scale_embedding": True}
    said |= {"share_encoder_decoder_embeddings": True, "tie_word_embeddings": True}
    return said | _SYMBOLS | {"dtype": "float16" if half else "float32"}


def _published_weights(model: EncoderDecoder, half: bool) -> dict[str, Tensor]:
    """Weights by their published names, in Marian's order; a bias that we lack is zero."""
    own, c = dict(model.named_parameters()), model.config
    back, found = torch.argsort(sines_first(c.d_model)), {}
    for name, shape in parameter_shapes(replace(c, bias=True)).items():
        tensor = own[name].detach().cpu() if name in own else torch.zeros(shape)
        tensor = tensor.half() if half else tensor.float()
        found[_published_name(name)] = _reorder(name, tensor, back)
    found[_NAMES[_BIAS]] = found[_NAMES[_BIAS]].unsqueeze(0)
    return found


def write_marian(translator: _Translator, folder: Path, half: bool = False) -> None:
    """Write a model in the format of Hugging Face; its vocabulary keeps our numbers.

    Args:
        translator: as `load_pretrained` returns it.
        folder: created if need be.
        half: weights in 16 bits.

    Raises: InputError if the format has no place for something in the model; FileError if the
        folder cannot be written to.
    """
    model, c = translator.model, translator.model.config
    _check_writable(c)
    symbols = {"bos_token": START, "eos_token": END, "pad_token": PAD, "unk_token": UNK}
    tokenizer: dict[str, Any] = {name: SPECIALS[i] for name, i in symbols.items()}
    tokenizer |= {"tokenizer_class": "PreTrainedTokenizerFast", "split_special_tokens": True}
    tokenizer |= {"model_max_length": max(c.max_len, 512), "clean_up_tokenization_spaces": False}
    # As our search: none of these symbols is emitted. It is greedy unless told otherwise.
    search = {"suppress_tokens": [START, PAD, UNK], "max_length": 512, "num_beams": 1}
    write_tokenizers(folder, with_end(translator.tokenizer), translator.target_tokenizer)
    for file, said in (
        ("tokenizer_config.json", tokenizer),
        ("generation_config.json", _SYMBOLS | search),
        ("config.json", _published_config(c, half)),
    ):
        write_text(folder / file, json.dumps(said, indent=2) + "\n")
    weights = _published_weights(model, half)
    write_tensors(folder / "model.safetensors", weights, {"format": "pt"})
