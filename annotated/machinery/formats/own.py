"""A model's folder in the book's own format, and the checks that both formats share.

The folder contains config.json (the fields of `TransformerConfig`), the vocabulary
(`machinery.corpora.vocabularies`) and model.safetensors. The latter has each parameter once,
under its name in `named_parameters`. If this is exact, a matrix is stored in 8 bits, as integers
and their divisor, which is called NAME.multiplier. The header also contains the configuration and
the SHA-256 of vocabulary and weights, so that a damaged or exchanged file is detected. Every model
that passes the readers can translate.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from annotated.machinery.corpora.downloads import sha256_of
from annotated.machinery.corpora.vocabularies import VOCABULARIES, read_tokenizers
from annotated.machinery.errors import FileError, InputError
from annotated.machinery.files import (
    digest,
    read_tensors,
    reading,
    settings,
    write_tensors,
    write_text,
)
from annotated.model import EncoderDecoder, TransformerConfig, build_model, parameter_shapes
from annotated.positional import PositionalEncoding

LoadedModel = tuple[EncoderDecoder, Tokenizer, Tokenizer | None]  # the arguments of a `Translator`


class _Uninitialized(TorchFunctionMode):
    """Skips initialization, for which torch would spend a second on importing its compiler."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        if name in ("normal_", "uniform_", "kaiming_uniform_", "zeros_"):
            return kwargs.get("tensor", *args[:1])
        return func(*args, **kwargs)


_LAYER = re.compile(r"(encoder|decoder)(?:\.layers\.|_l)(\d+)")  # in the names of all formats


def empty_model(config: TransformerConfig, names: Iterable[str], path: Path) -> EncoderDecoder:
    """Build a model on the meta device, where nothing is allocated or initialized.

    Args:
        names: of the weights.   path: of the configuration.

    Raises: FileError if `config` has a different number of layers or is too large to build.
    """
    layers = {found.groups() for name in names if (found := _LAYER.search(name))}
    encoder, decoder = (sum(s == stack for s, _ in layers) for stack in ("encoder", "decoder"))
    depths = config.N, config.N_decoder or config.N
    if depths != (encoder, decoder):  # before 100,000 layers are built
        wanted = f"N={encoder} layers, and {decoder} in the decoder, as in the weights"
        raise FileError(f"{path}: expected {wanted}; got {depths[0]} and {depths[1]}")
    expected = "the configuration of a model that can be built"
    with reading(path, expected), torch.device("meta"), _Uninitialized():
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
        dense = tensor.layout == torch.strided  # a pickle may contain others
        if tensor.shape == shape and tensor.is_floating_point() and dense:
            weights[name] = tensor.to(torch.float32, copy=True)
        if name not in weights or not weights[name].isfinite().all():
            expected = f"{tuple(shape)} of finite floating-point numbers"
            got = f"{tuple(tensor.shape)} of {tensor.dtype}"
            got += ", NaN or infinity among them" if name in weights else ""
            raise FileError(f"{path}: expected {name} as {expected}; got {got}")
    return weights


_Model = TypeVar("_Model", bound=nn.Module)


def with_weights(model: _Model, weights: Mapping[str, Tensor]) -> _Model:
    """Assign weights to a model on the meta device; tied weights stay tied."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    ready = {name: nn.Parameter(weights[name]) for name in names.values()}
    every = model.named_parameters(remove_duplicate=False)  # a tied matrix has all its names
    model.load_state_dict({name: ready[names[p]] for name, p in every}, assign=True)
    for module in model.modules():
        if isinstance(module, PositionalEncoding):  # no file contains its table
            module.to_empty(device="cpu")
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
    stored, found = found, _as_floats(weights_path, found)
    model = empty_model(config, found, path)
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    weights = check_weights(weights_path, found, shapes)
    tokenizers = read_tokenizers(folder, config.src_vocab, config.tgt_vocab)
    with reading(weights_path, "a description of the model in its header"):
        # Earlier editions wrote the configuration into the file of the weights.
        said = json.loads(header["model"]) if "model" in header else {}
        trained = said["config"] if "model" in header else {}
        if asdict(config) | trained != asdict(config):
            raise FileError(f"{path}: expected the configuration in {weights_path}: {trained}")
        if said and digest(stored) != said["sha256"]:
            raise FileError(
                f"{weights_path}: expected the weights as written; their SHA-256 differs"
            )
        for name, sum in _vocabulary_sums(folder).items():
            if said and sum != said["vocabulary"][name]:
                raise FileError(
                    f"{folder / name}: expected the vocabulary of the model; got another"
                )
    return with_weights(model, weights), *tokenizers


_MULTIPLIER = ".multiplier"


def _as_floats(path: Path, found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights, with 8-bit matrices divided by their multipliers. Raises: FileError"""
    weights = dict(found)
    for name in found:
        if name.endswith(_MULTIPLIER):
            of, multiplier = name.removesuffix(_MULTIPLIER), weights.pop(name)
            whole = found.get(of)
            if whole is None or whole.dtype != torch.int8:
                raise FileError(f"{path}: expected {of} in 8 bits, as it has a multiplier")
            one = multiplier.shape == () and multiplier.dtype == torch.float32
            if not (one and multiplier > 0 and multiplier.isfinite()):
                got = multiplier.item() if one else f"{multiplier.dtype} {tuple(multiplier.shape)}"
                raise FileError(f"{path}: expected {name} as one number above 0; got {got}")
            weights[of] = whole / multiplier
    return weights


def _in_eight_bits(weight: Tensor) -> tuple[Tensor, Tensor] | None:
    """Integers up to 127 and a multiplier whose quotients equal the weights, if any exist."""
    largest = weight.abs().max()
    near = 127 / largest  # rounded, so the exact one may be a neighbor
    for multiplier in near, *(torch.nextafter(near, near * factor) for factor in (0, 2)):
        whole = (weight * multiplier).round()
        if torch.equal(whole / multiplier, weight):
            return whole.to(torch.int8), multiplier
    return None


def _vocabulary_sums(folder: Path) -> dict[str, str]:
    paths = (folder / name for name in VOCABULARIES)
    return {path.name: sha256_of(path) if path.exists() else "" for path in paths}


def own_weights(model: EncoderDecoder) -> dict[str, Tensor]:
    """The parameters of a model by their names.

    Raises: InputError that names the first difference from the parameters that its configuration
        describes, for example if the model was pruned, quantized, parametrized or truncated.
    """
    own: dict[str, Tensor] = dict(model.named_parameters())
    shapes = parameter_shapes(model.config)
    for name in sorted(own.keys() | shapes.keys()):
        if name not in own or name not in shapes or own[name].shape != shapes[name]:
            got = tuple(own[name].shape) if name in own else "none"
            wanted = tuple(shapes[name]) if name in shapes else "none"
            described = "as the configuration of the model describes it"
            raise InputError(f"expected {name} {described}: {wanted}; got {got}")
    return own


def stored_weights(weights: Mapping[str, Tensor], half: bool) -> dict[str, Tensor]:
    """Weights in half or single precision.

    Raises: InputError that names a weight that is not finite in this precision.
    """
    kept = {name: w.detach().half() if half else w.detach().float() for name, w in weights.items()}
    for name, weight in kept.items():
        if not weight.isfinite().all():
            most = torch.finfo(weight.dtype).max
            raise InputError(f"expected finite weights of at most {most:g}; got others in {name}")
    return kept


def save_model(
    folder: Path, weights: Mapping[str, Tensor], config: TransformerConfig, half: bool = True
) -> None:
    """Write weights and the configuration, for `load_pretrained`.

    Args:
        folder: with the vocabulary files.   weights: by their names in `named_parameters`.
        half: store in 16 bits; otherwise in 32, except for matrices that are exact in 8.

    Raises: InputError as `stored_weights`; FileError if the folder cannot be written to, has no
        vocabulary, or has one that differs from the existing model's.
    """
    kept, described = stored_weights(weights, half), asdict(config)
    for name, weight in [] if half else list(kept.items()):
        if weight.dim() == 2 and (exact := _in_eight_bits(weight)):
            kept[name], kept[name + _MULTIPLIER] = exact
    read_tokenizers(folder, config.src_vocab, config.tgt_vocab)
    sums = {"vocabulary": _vocabulary_sums(folder), "sha256": digest(kept)}
    path, before = folder / "model.safetensors", sums["vocabulary"]
    missing = suppress(OSError, SafetensorError, KeyError, TypeError, ValueError)
    with missing, safe_open(path, "pt") as file:  # there may be no model yet, or an earlier one
        before = json.loads(file.metadata()["model"])["vocabulary"]
    if before != sums["vocabulary"]:
        raise FileError(f"{folder}: expected the vocabulary of the model; got another")
    # A single entry in the header, because the library writes several in arbitrary order.
    header = {"model": json.dumps({"config": described} | sums)}
    write_tensors(path, kept, header)
    write_text(folder / "config.json", json.dumps(described, indent=2) + "\n")
