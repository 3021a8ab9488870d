"""Published models."""

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

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
from annotated.machinery.piece_models import PieceModel, read_piece_model, unigram_tokenizer
from annotated.machinery.vocabularies import (
    VOCABULARIES,
    read_tokenizers,
    with_end,
    write_tokenizers,
)
from annotated.model import EncoderDecoder, TransformerConfig, parameter_shapes
from annotated.positional import sinusoids


def _halves(d_model: int) -> Tensor:
    """For each component in our order, its place in Marian's: sines first, then cosines."""
    return torch.arange(d_model).view(2, -1).T.flatten()  # 0, d/2, 1, d/2 + 1, …


_EXPECTED = "the configuration of a model in the format of Hugging Face"


def is_published(folder: Path) -> bool:
    """Whether a folder holds a model in the format of Hugging Face; ours names no type."""
    path = folder / "config.json"
    return os.path.isfile(path) and "model_type" in read_json(path, _EXPECTED)


@dataclass(frozen=True)
class _MarianConfig:
    """What config.json says of a model; what it leaves out has these values."""

    vocab_size: int = 58101
    d_model: int = 1024
    encoder_layers: int = 12
    decoder_layers: int = 12
    encoder_attention_heads: int = 16
    decoder_attention_heads: int = 16
    encoder_ffn_dim: int = 4096
    decoder_ffn_dim: int = 4096
    activation_function: str = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    decoder_start_token_id: int = 58100
    pad_token_id: int = 58100
    eos_token_id: int = 0
    scale_embedding: bool = False
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    normalize_before: bool = False
    normalize_embedding: bool = False


_AS_OURS = {
    "scale_embedding": True, "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True, "normalize_before": False, "normalize_embedding": False,
}  # fmt: skip
_ACTIVATIONS = {"swish": "swish", "silu": "swish", "relu": "relu"}
_OTHERS = {  # what our model and vocabulary lack for them
    "m2m_100": "M2M100 and NLLB count positions from 2, at other wavelengths, have BPE "
    "vocabularies, and name both languages by a symbol before each text",
    "fsmt": "models of WMT19 count positions from 2, at other wavelengths, have two "
    "vocabularies of sizes of their own, and cut words by Moses and fastBPE",
}

_PARTS = (("_layers", "layers"), ("_attention_heads", "heads"), ("_ffn_dim", "inner widths"))


def _read_config(path: Path) -> tuple[_MarianConfig, TransformerConfig]:
    """The configuration of a published model, as it is and as ours.

    Raises: MissingFile or FileError that says what is not as in our model.
    """
    said = read_json(path, _EXPECTED)
    if (kind := said.get("model_type")) != "marian":
        why = f": {_OTHERS[kind]}" if isinstance(kind, str) and kind in _OTHERS else ""
        raise FileError(f"{path}: expected the model_type 'marian'; got {kind!r:.80}{why}")
    known = {name: said[name] for name in _MarianConfig.__dataclass_fields__ if name in said}
    c = settings(_MarianConfig, known, str(path))
    for ending, what in _PARTS:
        sides = [getattr(c, side + ending) for side in ("encoder", "decoder")]
        if sides[0] != sides[1]:
            wanted = f"as many {what} in the encoder as in the decoder"
            raise FileError(f"{path}: expected {wanted}; got {sides[0]} and {sides[1]}")
    for name, value in _AS_OURS.items():
        if getattr(c, name) != value:
            raise FileError(f"{path}: expected {name}={value}, as in our model; got {not value}")
    if c.activation_function not in _ACTIVATIONS:
        wanted = f"an activation_function out of {', '.join(_ACTIVATIONS)}"
        raise FileError(f"{path}: expected {wanted}; got {c.activation_function!r:.80}")
    if c.d_model % 2:
        raise FileError(f"{path}: expected an even d_model; got {c.d_model}")
    ours: dict[str, Any] = {"N": c.encoder_layers, "d_model": c.d_model, "d_ff": c.encoder_ffn_dim}
    ours |= {"h": c.encoder_attention_heads, "dropout": c.dropout, "bias": True, "max_len": 512}
    ours |= {"src_vocab": c.vocab_size, "tgt_vocab": c.vocab_size, "tie_embeddings": True}
    ours |= {"attention_dropout": c.attention_dropout}
    ours |= {"activation": _ACTIVATIONS[c.activation_function]}
    return c, settings(TransformerConfig, ours, str(path))


class _Vocabulary(NamedTuple):
    """Pieces by our numbers, and for each the number of its vector in the published model."""

    pieces: list[str]
    rows: list[int]


def _read_vocabulary(path: Path, c: _MarianConfig, models: list[PieceModel]) -> _Vocabulary:
    """The joint vocabulary of a published model.

    Raises: MissingFile or FileError that names the file.
    """
    numbers = read_json(path, "the number of each piece")
    whole = fits(numbers, dict[str, int]) and set(numbers.values()) == set(range(len(numbers)))
    if not whole or len(numbers) != c.vocab_size:
        wanted = f"pieces numbered from 0 to {c.vocab_size - 1}, as config.json has them"
        raise FileError(f"{path}: expected {wanted}; got {len(numbers)} entries")
    symbols = {"</s>": c.eos_token_id, "<pad>": c.pad_token_id, "<unk>": numbers.get("<unk>")}
    for name, number in symbols.items():
        if number is None or numbers.get(name) != number:
            raise FileError(f"{path}: expected {name} as number {number}; got {numbers.get(name)}")
    if not 0 <= c.decoder_start_token_id < c.vocab_size:
        wanted = f"a decoder_start_token_id below {c.vocab_size}"
        raise FileError(f"{path}: expected {wanted}; got {c.decoder_start_token_id}")
    start, unk = c.decoder_start_token_id, numbers["<unk>"]
    others = sorted((number, name) for name, number in numbers.items() if name not in symbols)
    # A piece called as one of our symbols gets a space, which no text has.
    pieces = [*SPECIALS, *(name + " " * (name in SPECIALS) for _, name in others)]
    rows = [start, c.eos_token_id, c.pad_token_id, unk, *(number for number, _ in others)]
    unknown = {name: unk for model in models for name in model.scores if name not in numbers}
    return _Vocabulary([*pieces, *unknown], [*rows, *unknown.values()])


_NAMES = {
    "src_embed.0.lut.weight": "model.shared.weight",
    "generator.proj.bias": "final_logits_bias",
}
_MODULES = {
    "self_attn": "self_attn.", "src_attn": "encoder_attn.", "feed_forward": "",
    "w_q": "q_proj", "w_k": "k_proj", "w_v": "v_proj", "w_o": "out_proj",
    "w_1": "fc1", "w_2": "fc2",
}  # fmt: skip
_NORMS = {
    "encoder": ["self_attn", "final"],
    "decoder": ["self_attn", "encoder_attn", "final"],
}


def _published_name(name: str) -> str:
    """What a parameter of ours is called in the published format."""
    if name in _NAMES:
        return _NAMES[name]
    stack, _, layer, part, module, *_, kind = name.split(".")
    if part == "sublayer":
        theirs = f"{_NORMS[stack][int(module)]}_layer_norm"
    else:
        theirs = _MODULES[part] + _MODULES[module]
    return f"model.{stack}.layers.{layer}.{theirs}.{kind}"


def _reorder(name: str, tensor: Tensor, order: Tensor) -> Tensor:
    """A parameter of ours with its d_model components in another order."""
    module, kind = name.split(".")[-2:]
    if module in ("w_o", "w_2", "norm"):  # they write such vectors
        return tensor[order]
    return tensor[:, order] if kind == "weight" else tensor  # they read them


_WEIGHTS, _SAFE = "the weights of a published model", "2.10"


def weights_file(folder: Path) -> Path:
    """Where the weights of a model are, or should be."""
    path, unsafe = folder / "model.safetensors", folder / "pytorch_model.bin"
    return unsafe if unsafe.is_file() and not path.is_file() else path


def _load_tensors(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    """The file with the weights, and all that is in it.

    Raises: MissingFile or FileError that names the file.
    """
    path = weights_file(folder)
    if path.suffix == ".safetensors":
        return path, read_tensors(path, _WEIGHTS)[0]
    if torch.__version__ < _SAFE:  # it compares as a version, not as text
        wanted = f"model.safetensors, or torch {_SAFE} to read {path.name} safely"
        raise FileError(f"{path}: expected {wanted}; this is torch {torch.__version__}")
    with reading(path, f"{_WEIGHTS}, tensors and nothing else"):
        found = torch.load(path, "cpu", weights_only=True)
    if not isinstance(found, dict) or not all(isinstance(x, Tensor) for x in found.values()):
        raise FileError(f"{path}: expected {_WEIGHTS}; got something else")
    return path, found


_SHARED = "model.shared.weight"  # and where else the same matrix may stand
_COPIES = (
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)
_TABLES = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")


def _read_weights(folder: Path, config: TransformerConfig) -> dict[str, Tensor]:
    """The weights of a published model, each with our name and in our order of d_model.

    Raises: MissingFile or FileError that names the file and the tensor.
    """
    path, found = _load_tensors(folder)
    _drop_copies(path, found, config.d_model)
    found.setdefault("final_logits_bias", torch.zeros(1, config.tgt_vocab))
    layers = {name.split(".")[3] for name in found if name.startswith("model.encoder.layers.")}
    if len(layers) != config.N:  # before 100,000 layers are counted
        said = f"{len(layers)} layers in the encoder, and config.json says {config.N}"
        raise FileError(f"{path}: expected as many layers as in config.json; got {said}")
    with reading(folder / "config.json", f"{_EXPECTED} that can be built"):
        shapes = {_published_name(n): s for n, s in parameter_shapes(config).items()}
    for name in sorted(found.keys() ^ shapes.keys()):
        problem = "is missing" if name not in found else "does not belong there"
        raise FileError(f"{path}: expected {_WEIGHTS}; tensor {name} {problem}")
    for name, shape in shapes.items():
        wanted = (1, *shape) if name == "final_logits_bias" else tuple(shape)
        tensor, has = found[name], tuple(found[name].shape)
        if has != wanted or not tensor.is_floating_point() or tensor.layout != torch.strided:
            got = f"{has} of {tensor.dtype}"
            raise FileError(
                f"{path}: expected {name} as {wanted} of floating-point numbers; got {got}"
            )
    found["final_logits_bias"] = found["final_logits_bias"][0]
    order = _halves(config.d_model)
    ours = {name: found[_published_name(name)].float() for name in parameter_shapes(config)}
    return {name: _reorder(name, tensor, order) for name, tensor in ours.items()}


def _drop_copies(path: Path, found: dict[str, Tensor], d_model: int) -> None:
    """Leave the shared matrix once, and no table of positions, if they are what they should be."""
    for name in _COPIES:
        if (copy := found.pop(name, None)) is not None:
            shared = found.setdefault(_SHARED, copy)
            if copy.shape != shared.shape or not torch.equal(copy, shared):
                raise FileError(f"{path}: expected {name} equal to {_SHARED}; it is another matrix")
    for name in _TABLES:
        if (table := found.pop(name, None)) is not None:
            right = table.dim() == 2 and table.size(1) == d_model
            if right:
                sines = sinusoids(len(table), d_model)
                right = torch.allclose(table.float()[:, _halves(d_model)], sines, atol=1e-3)
            if not right:
                raise FileError(f"{path}: expected sinusoids in {name}; got other numbers")


_NEVER = -100.0  # the bias of what shall not be said: exp(-100) adds nothing to a sum


def read_marian(
    folder: Path,
) -> tuple[TransformerConfig, dict[str, Tensor], Tokenizer, Tokenizer | None]:
    """A published model, as `load_pretrained` needs it.

    Args:
        folder: in the format of Hugging Face, with a model that Marian trained.

    Returns: configuration; weights by our names; tokenizers of the source and of the target,
        with the same pieces; the last may be None, if it is as the other.

    Raises: MissingFile or FileError that names the file and says what is not as expected.
    """
    c, config = _read_config(folder / "config.json")
    if not (folder / "source.spm").exists() and (folder / VOCABULARIES[0]).exists():
        return config, *_read_written(folder, c, config)
    cutters = [read_piece_model(folder / f"{side}.spm") for side in ("source", "target")]
    pieces, rows = _read_vocabulary(folder / "vocab.json", c, cutters)
    weights = _read_weights(folder, config)
    taken = torch.tensor(rows)
    embedding, bias = "src_embed.0.lut.weight", "generator.proj.bias"
    weights |= {name: weights[name][taken] for name in (embedding, bias)}
    first = {row: i for i, row in reversed(list(enumerate(rows)))}
    again = [i for i, row in enumerate(rows) if first[row] != i]
    weights[bias][again] = _NEVER  # one vector may stand for two pieces; the first one is said
    config = replace(config, src_vocab=len(rows), tgt_vocab=len(rows))
    tokenizers = []
    for side, model in zip(("source", "target"), cutters, strict=True):
        with reading(folder / f"{side}.spm", "a SentencePiece model whose tables are sound"):
            tokenizers.append(unigram_tokenizer(model, pieces))
    source, target = tokenizers
    return config, weights, source, target


_SYMBOLS = {
    "bos_token_id": START, "decoder_start_token_id": START, "eos_token_id": END,
    "forced_eos_token_id": END, "pad_token_id": PAD,
}  # fmt: skip


def _read_written(
    folder: Path, c: _MarianConfig, config: TransformerConfig
) -> tuple[dict[str, Tensor], Tokenizer, Tokenizer | None]:
    """Weights and tokenizers of a model that `write_marian` wrote."""
    symbols = {name: getattr(c, name) for name in _SYMBOLS if hasattr(c, name)}
    if wrong := symbols.items() - _SYMBOLS.items():
        name, number = min(wrong)
        wanted = f"{name}={_SYMBOLS[name]}, as there is no source.spm"
        raise FileError(f"{folder / 'config.json'}: expected {wanted}; got {number}")
    vocabularies = read_tokenizers(folder, c.vocab_size)
    return _read_weights(folder, config), *vocabularies


class _Translator(Protocol):
    model: EncoderDecoder
    tokenizer: Tokenizer
    target_tokenizer: Tokenizer | None


def _check_writable(c: TransformerConfig) -> None:
    """Raise InputError unless the published format has a place for all of a model."""
    width = c.d_model // c.h
    for fits_in, wanted in (
        (not c.norm_first, "norm_first=False"),
        (c.positions == "sinusoidal" and c.d_model % 2 == 0, "sinusoids and an even d_model"),
        (c.tie_embeddings, "tie_embeddings=True"),
        (
            c.d_model % c.h == 0 and {c.d_k or width, c.d_v or width} == {width},
            "d_k = d_v = d_model / h",
        ),
    ):
        if not fits_in:
            raise InputError(f"expected a model with {wanted}, as Marian's format has it; got {c}")


def _published_config(c: TransformerConfig) -> dict[str, Any]:
    """What config.json says of a model of ours in the published format."""
    said: dict[str, Any] = {"architectures": ["MarianMTModel"], "model_type": "marian"}
    for side in "encoder", "decoder":
        said |= {f"{side}_layers": c.N, f"{side}_attention_heads": c.h, f"{side}_ffn_dim": c.d_ff}
    said |= {"vocab_size": c.src_vocab, "d_model": c.d_model, "dropout": c.dropout}
    said |= {"attention_dropout": c.attention_dropout, "activation_function": c.activation}
    said |= {"max_position_embeddings": max(c.max_len, 512), "scale_embedding": True}
    said |= {"share_encoder_decoder_embeddings": True, "tie_word_embeddings": True}
    return said | _SYMBOLS


def _published_weights(model: EncoderDecoder, half: bool) -> dict[str, Tensor]:
    """The weights of a model of ours by their published names, in Marian's order of d_model."""
    own, c = dict(model.named_parameters()), model.config
    back = torch.argsort(_halves(c.d_model))
    found = {}
    for name, shape in parameter_shapes(replace(c, bias=True)).items():
        tensor = own[name].detach().cpu() if name in own else torch.zeros(shape)
        found[_published_name(name)] = _reorder(
            name, tensor.half() if half else tensor.float(), back
        )
    found["final_logits_bias"] = found["final_logits_bias"].unsqueeze(0)
    return found


def write_marian(translator: _Translator, folder: Path, half: bool = False) -> None:
    """Write a model in the format of Hugging Face.

    Args:
        translator: as `load_pretrained` gives it.
        folder: where to; made if need be.
        half: weights in 16 bits.

    Raises: InputError if the format has no place for something in the model; FileError if the
        folder cannot be written to.
    """
    model, c = translator.model, translator.model.config
    _check_writable(c)
    names: dict[str, Any] = {"bos_token": SPECIALS[START], "eos_token": SPECIALS[END]}
    names |= {"pad_token": SPECIALS[PAD], "unk_token": SPECIALS[UNK]}
    names |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": max(c.max_len, 512)}
    names |= {"split_special_tokens": True, "clean_up_tokenization_spaces": False}
    spoken = {"suppress_tokens": [START, PAD, UNK], "max_length": 512, "num_beams": 1}
    write_tokenizers(folder, with_end(translator.tokenizer), translator.target_tokenizer)
    for file, said in (
        ("tokenizer_config.json", names),
        ("generation_config.json", _SYMBOLS | spoken),
        ("config.json", _published_config(c) | {"dtype": "float16" if half else "float32"}),
    ):
        write_text(folder / file, json.dumps(said, indent=2) + "\n")
    weights = _published_weights(model, half)
    write_tensors(folder / "model.safetensors", weights, {"format": "pt"})
