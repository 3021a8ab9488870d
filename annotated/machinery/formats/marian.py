"""Published models that were trained with Marian, in the format of Hugging Face.

They are the Transformer of this book except for their biases, the swish between the feed-forward
maps, the order of the sinusoids (all sines before all cosines, so that one permutation of d_model
turns one kind of model into the other) and the start symbol, which has the vector of the padding.
A folder may be damaged or hostile, and it may describe a model that our code cannot represent;
therefore every difference is rejected by name. `read_marian` and `write_marian` are inverses.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from annotated.data import END, PAD, SPECIALS, START, UNK
from annotated.machinery import files
from annotated.machinery.corpora import vocabularies
from annotated.machinery.errors import FileError, InputError
from annotated.machinery.files import reading, settings
from annotated.machinery.formats import own
from annotated.machinery.formats.card import BEAM, POWER
from annotated.machinery.formats.piece_models import read_piece_model, unigram_tokenizer
from annotated.model import TransformerConfig
from annotated.positional import sinusoids

_FIELDS = {  # of our configuration, with their published names
    "src_vocab": "vocab_size", "tgt_vocab": "vocab_size", "N": "encoder_layers",
    "d_model": "d_model", "d_ff": "encoder_ffn_dim", "h": "encoder_attention_heads",
    "dropout": "dropout", "attention_dropout": "attention_dropout",
    "activation": "activation_function",
}  # fmt: skip
_OPTIONAL = {  # fields that config.json may lack, with the only value that our model supports
    "share_encoder_decoder_embeddings": True, "tie_word_embeddings": True,
    "normalize_before": False, "normalize_embedding": False,
}  # fmt: skip
_REQUIRED = {"model_type": "marian", "scale_embedding": True} | _OPTIONAL


def _require(path: Path, contents: dict[str, Any], values: dict[str, Any]) -> None:
    """Raise FileError unless a configuration has these values."""
    for name, value in values.items():
        if contents.get(name) != value:
            raise FileError(f"{path}: expected {name}={value!r}; got {contents.get(name)!r:.80}")


def _read_config(path: Path, contents: dict[str, Any]) -> TransformerConfig:
    """Our configuration of a published model."""
    contents = _OPTIONAL | contents
    both = [name for name in _FIELDS.values() if name.startswith("encoder")]
    decoder = {name.replace("encoder", "decoder"): contents.get(name) for name in both}
    _require(path, contents, _REQUIRED | decoder)
    ours = {name: contents.get(published) for name, published in _FIELDS.items()}
    if ours["activation"] == "silu":  # another name for it
        ours["activation"] = "swish"
    ours |= {"bias": True, "max_len": 512, "tie_embeddings": True}
    config = settings(TransformerConfig, ours, str(path))
    if config.d_model % 2:
        raise FileError(f"{path}: expected an even d_model; got {config.d_model}")
    return config


_SIDES = "source.spm", "target.spm"


def _read_pieces(
    folder: Path, contents: dict[str, Any], vocab: int
) -> tuple[list[int], Tokenizer, Tokenizer]:
    """The vocabulary of a published model in our numbering, with the special symbols first.

    A piece of a SentencePiece model without a number is unknown to the published model; here it
    receives a number and the vector of <unk>.

    Returns: for each of our ids, its row in the published embedding; tokenizers of source and
        target, with the same pieces.
    """
    path, models = folder / "vocab.json", [read_piece_model(folder / side) for side in _SIDES]
    numbers = files.read_json(path, "the number of each piece")
    whole = len(numbers) == vocab and all(type(number) is int for number in numbers.values())
    symbols = "</s>", "<pad>", "<unk>"
    if not whole or set(numbers.values()) != set(range(vocab)) or not numbers.keys() >= {*symbols}:
        wanted = f"{', '.join(symbols)} and other pieces numbered from 0 to {vocab - 1}"
        raise FileError(f"{path}: expected {wanted}, as config.json has them")
    end, pad, unk = (numbers[name] for name in symbols)
    ids = {"eos_token_id": end, "pad_token_id": pad, "decoder_start_token_id": pad}
    _require(folder / "config.json", contents, ids)
    others = sorted((number, name) for name, number in numbers.items() if name not in symbols)
    # A piece with the name of one of our symbols gets a space, which no text contains.
    pieces = [*SPECIALS, *(name + " " * (name in SPECIALS) for _, name in others)]
    unknown = {name: unk for model in models for name in model.scores if name not in numbers}
    tokenizers = []
    for side, model in zip(_SIDES, models, strict=True):
        with reading(folder / side, "a SentencePiece model whose tables are sound"):
            tokenizers.append(unigram_tokenizer(model, [*pieces, *unknown]))
    source, target = tokenizers
    rows = [pad, end, pad, unk, *(number for number, _ in others), *unknown.values()]
    return rows, source, target


_EMBEDDING, _BIAS = "src_embed.0.lut.weight", "generator.proj.bias"
_SHARED, _LOGITS = "model.shared.weight", "final_logits_bias"  # their published names
_COPIES = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"
_TABLES = "model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"
_MODULES = {
    "self_attn": "self_attn.", "src_attn": "encoder_attn.", "feed_forward": "",
    "w_q": "q_proj", "w_k": "k_proj", "w_v": "v_proj", "w_o": "out_proj",
    "w_1": "fc1", "w_2": "fc2",
}  # fmt: skip
_NORMS = {"encoder": ["self_attn", "final"], "decoder": ["self_attn", "encoder_attn", "final"]}


def _published_name(name: str) -> str:
    """The published name of one of our parameters."""
    if name in (_EMBEDDING, _BIAS):
        return _SHARED if name == _EMBEDDING else _LOGITS
    stack, _, layer, part, module, *_, kind = name.split(".")
    if part == "sublayer":
        theirs = f"{_NORMS[stack][int(module)]}_layer_norm"
    else:
        theirs = _MODULES[part] + _MODULES[module]
    return f"model.{stack}.layers.{layer}.{theirs}.{kind}"


def sines_first(d_model: int) -> Tensor:
    """For each component in our order, its index in Marian's: sines first, then cosines."""
    return torch.arange(d_model).view(2, -1).T.flatten()  # 0, d/2, 1, d/2 + 1, …


def reorder(name: str, tensor: Tensor, order: Tensor) -> Tensor:
    """One of our parameters with its d_model components in another order."""
    module, kind = name.split(".")[-2:]
    writes = module in ("w_o", "w_2", "norm")  # vectors of d_model components
    if kind == "weight" and not writes:
        tensor = tensor[:, order]  # its columns read them
    return tensor[order] if writes or module in ("w", "w_f") else tensor  # which do both


_SAFE = "2.10"  # torch version from which weights_only is safe against pickles that run code


def _read_weights(folder: Path, d_model: int) -> tuple[Path, dict[str, Tensor]]:
    """The file of the weights and its tensors: the shared matrix once, no position table."""
    path, pickled = folder / "model.safetensors", folder / "pytorch_model.bin"
    path = pickled if pickled.is_file() and not path.is_file() else path
    expected = "the weights of a published model"
    if path == pickled and torch.__version__ < _SAFE:  # compares as a version, not as text
        wanted = f"model.safetensors, or torch {_SAFE} to read {path.name} safely"
        raise FileError(f"{path}: expected {wanted}; this is torch {torch.__version__}")
    with reading(path, f"{expected}, tensors and nothing else"):
        if path == pickled:
            loaded = torch.load(path, "cpu", weights_only=True).items()
            found = {str(name): tensor for name, tensor in loaded if isinstance(tensor, Tensor)}
        else:
            found, _ = files.read_tensors(path, expected)
        for name in _COPIES:
            copy = found.pop(name, None)
            if copy is not None and not torch.equal(copy, found.setdefault(_SHARED, copy)):
                raise ValueError(f"{name}, which is not equal to the shared matrix")
        for name in found.keys() & _TABLES:
            table = found.pop(name).float()
            if table.dim() == 2 and table.size(1) == d_model:
                ours = table[:, sines_first(d_model)]
                if torch.allclose(ours, sinusoids(len(table), d_model), atol=1e-3):
                    continue
            raise ValueError(f"{name}, which does not contain sinusoids")
    return path, found


NEVER = -100.0  # bias of pieces that must not be emitted; exp(-100) adds nothing to a sum
_SYMBOLS = {"decoder_start_token_id": START, "eos_token_id": END, "pad_token_id": PAD}


def read_marian(folder: Path, contents: dict[str, Any]) -> own.LoadedModel:
    """Read a folder in the format of Hugging Face, with a model that was trained with Marian.

    Its vocabulary consists of two SentencePiece models and vocab.json, or is our own file if
    `write_marian` wrote it.

    Args: contents: the contents of its config.json.

    Raises: MissingFile or FileError that names the file and the difference.
    """
    path, rows = folder / "config.json", None
    config = _read_config(path, contents)
    vocab, d_model = config.src_vocab, config.d_model
    if not (folder / _SIDES[0]).exists() and (folder / vocabularies.VOCABULARIES[0]).exists():
        _require(path, contents, _SYMBOLS)
        source, target = vocabularies.read_tokenizers(folder, vocab, vocab)
    else:
        rows, source, target = _read_pieces(folder, contents, vocab)
        config = replace(config, src_vocab=len(rows), tgt_vocab=len(rows))
    weights_path, found = _read_weights(folder, d_model)
    found.setdefault(_LOGITS, torch.zeros(1, vocab))
    model = own.empty_model(config, found, path)
    shapes = {_published_name(name): tuple(p.shape) for name, p in model.named_parameters()}
    shapes |= {_SHARED: (vocab, d_model), _LOGITS: (1, vocab)}
    found = own.check_weights(weights_path, found, shapes)
    found[_LOGITS] = found[_LOGITS][0]
    order = sines_first(d_model)
    weights = {x: reorder(x, found[_published_name(x)], order) for x, _ in model.named_parameters()}
    if rows is not None:
        weights |= {name: weights[name][torch.tensor(rows)] for name in (_EMBEDDING, _BIAS)}
        first = {row: i for i, row in reversed(list(enumerate(rows)))}
        again = [i for i, row in enumerate(rows) if first[row] != i]
        # Of several pieces with one vector, only the first is emitted.
        weights[_BIAS][again] = NEVER
    return own.with_weights(model, weights), source, target


def _published_config(c: TransformerConfig) -> dict[str, Any]:
    """The config.json of one of our models."""
    width = c.d_model / c.h
    for wanted, holds in (
        ("norm_first=False", not c.norm_first),
        ("sinusoids and an even d_model", c.positions == "sinusoidal" and c.d_model % 2 == 0),
        ("tie_embeddings=True", c.tie_embeddings),
        ("d_k = d_v = d_model / h", {c.d_k or width, c.d_v or width} == {width}),
    ):
        if not holds:
            reason = "as Marian's format requires"
            raise InputError(f"expected a model with {wanted}, {reason}; got {c}")
    config: dict[str, Any] = {published: getattr(c, name) for name, published in _FIELDS.items()}
    config |= {name.replace("encoder", "decoder"): value for name, value in config.items()}
    config |= {"architectures": ["MarianMTModel"], "max_position_embeddings": max(c.max_len, 512)}
    return config | _REQUIRED | _SYMBOLS | {"bos_token_id": START, "forced_eos_token_id": END}


def write_marian(translator: Any, folder: Path, half: bool = False) -> None:
    """Write a model in the format of Hugging Face; its vocabulary keeps our numbers.

    Args:
        translator: a `Translator`, whose module imports this one.
        folder: created if necessary.   half: store weights in 16 bits.

    Raises: InputError if the format cannot represent the model; FileError if it cannot be written.
    """
    model, c = translator.model, translator.model.config
    config = _published_config(c) | {"dtype": "float16" if half else "float32"}
    ours, back, weights = dict(model.named_parameters()), torch.argsort(sines_first(c.d_model)), {}
    for name, shape in own.parameter_shapes(replace(c, bias=True)).items():
        tensor = ours.get(name, torch.zeros(shape)).detach().cpu()  # a bias that we lack is zero
        tensor = tensor.half() if half else tensor.float()
        weights[_published_name(name)] = reorder(name, tensor, back)
    weights[_LOGITS] = weights[_LOGITS].unsqueeze(0)
    symbols = {"bos_token": START, "eos_token": END, "pad_token": PAD, "unk_token": UNK}
    tokenizer: dict[str, Any] = {name: SPECIALS[i] for name, i in symbols.items()}
    tokenizer |= {"tokenizer_class": "PreTrainedTokenizerFast", "split_special_tokens": True}
    tokenizer |= {"model_max_length": config["max_position_embeddings"]}
    tokenizer |= {"clean_up_tokenization_spaces": False}
    # As in our search, none of these symbols is emitted.
    search = {"suppress_tokens": [START, PAD, UNK], "max_length": 512}
    search |= {"num_beams": BEAM, "length_penalty": POWER}
    search |= {name: value for name, value in config.items() if name.endswith("_token_id")}
    source = Tokenizer.from_str(translator.tokenizer.to_str())
    source.post_processor = vocabularies.ADDS_END  # as transformers expects
    vocabularies.write_tokenizers(folder, source, translator.target_tokenizer)
    written = {"tokenizer_config.json": tokenizer, "generation_config.json": search}
    for file, contents in (written | {"config.json": config}).items():
        files.write_text(folder / file, json.dumps(contents, indent=2) + "\n")
    files.write_tensors(folder / "model.safetensors", weights, {"format": "pt"})
