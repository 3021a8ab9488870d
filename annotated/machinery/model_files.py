"""A model's folder in the book's own format, and the checks that both formats share.

The folder holds config.json (the fields of `TransformerConfig`), model.safetensors (each parameter
once, under its name in `named_parameters`, with the configuration in the header as well) and the
vocabulary (`annotated.machinery.vocabularies`). Whatever passes the readers can be translated with.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from annotated.machinery.errors import FileError
from annotated.machinery.files import read_tensors, reading, settings, write_tensors, write_text
from annotated.machinery.vocabularies import read_tokenizers
from annotated.model import EncoderDecoder, TransformerConfig, build_model
from annotated.positional import PositionalEncoding, sinusoids

LoadedModel = tuple[EncoderDecoder, Tokenizer, Tokenizer | None]  # the parts of a `Translator`


def empty_model(config: TransformerConfig, layers: int, path: Path) -> EncoderDecoder:
    """Build a model on the meta device, where nothing is allocated or initialized.

    Args:
        layers: number of encoder layers among the weights.   path: file of the configuration.

    Raises: FileError if `config` has another number of layers or is too large to build.
    """
    if layers != config.N:  # before 100,000 layers are built
        raise FileError(f"{path}: expected N={layers} layers, as in the weights; got N={config.N}")
    with reading(path, "the configuration of a model that can be built"), torch.device("meta"):
        return build_model(config).eval()


def check_weights(
    path: Path, found: Mapping[str, Tensor], shapes: Mapping[str, Sequence[int]]
) -> dict[str, Tensor]:
    """Copy the tensors of a file in single precision; they no longer depend on the file.

    Raises: FileError that names the file and the tensor unless these are exactly the tensors of
        `shapes`, of finite floating-point numbers.
    """
    for name in sorted(found.keys() ^ shapes.keys()):
        problem = "is missing" if name in shapes else "does not belong there"
        raise FileError(f"{path}: expected the weights of a model; tensor {name} {problem}")
    weights = {}
    for name, shape in shapes.items():
        tensor = found[name]
        dense = tensor.layout == torch.strided  # a pickle may hold others
        if tensor.shape == shape and tensor.is_floating_point() and dense:
            weights[name] = tensor.to(torch.float32, copy=True)
        if name not in weights or not weights[name].isfinite().all():
            expected = f"{tuple(shape)} of finite floating-point numbers"
            got = f"{tuple(tensor.shape)} of {tensor.dtype}"
            got += ", NaN or infinity among them" if name in weights else ""
            raise FileError(f"{path}: expected {name} as {expected}; got {got}")
    return weights


def with_weights(model: EncoderDecoder, weights: Mapping[str, Tensor]) -> EncoderDecoder:
    """Give a model on the meta device its weights; those that are tied stay tied."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    ready = {name: nn.Parameter(weights[name]) for name in names.values()}
    every = model.named_parameters(remove_duplicate=False)  # a tied matrix under all its names
    model.load_state_dict({name: ready[names[p]] for name, p in every}, assign=True)
    for module in model.modules():
        if isinstance(module, PositionalEncoding):  # its table is in no file
            module.pe = sinusoids(module.pe.size(1), module.pe.size(2)).unsqueeze(0)
    return model


def read_own(folder: Path, contents: dict[str, Any]) -> LoadedModel:
    """Read a folder in the book's own format.

    Args:
        contents: the contents of its config.json.

    Raises: MissingFile or FileError that names the file.
    """
    path, weights_path = folder / "config.json", folder / "model.safetensors"
    config = settings(TransformerConfig, contents, str(path))
    found, header = read_tensors(weights_path, f"the weights of the model in {path}")
    layers = len({name.split(".")[2] for name in found if name.startswith("encoder.layers.")})
    model = empty_model(config, layers, path)
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    weights = check_weights(weights_path, found, shapes)
    with reading(weights_path, "a configuration in its header"):
        trained = json.loads(header.get("config", "{}"))
        if asdict(config) | trained != asdict(config):
            raise FileError(f"{path}: expected the configuration in {weights_path}: {trained}")
    vocab = min(config.src_vocab, config.tgt_vocab)
    return with_weights(model, weights), *read_tokenizers(folder, vocab)


def save_model(
    folder: Path, weights: Mapping[str, Tensor], config: TransformerConfig, half: bool = True
) -> None:
    """Write weights, in half or single precision, and the configuration, for `load_pretrained`.

    Args:
        weights: by their names in `named_parameters`.
    """
    kept = {name: w.half() if half else w.float() for name, w in weights.items()}
    described = asdict(config)
    # One entry in the header, because the library writes several in any order.
    write_tensors(folder / "model.safetensors", kept, {"config": json.dumps(described)})
    write_text(folder / "config.json", json.dumps(described, indent=2) + "\n")
