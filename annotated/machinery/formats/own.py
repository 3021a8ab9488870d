"""A model's folder in the book's own format, and the checks that both formats share.

The folder contains config.json (the fields of `TransformerConfig`), the vocabulary
(`machinery.corpora.vocabularies`) and model.safetensors. The latter has each parameter once, under
its name in `named_parameters`, and the buffers that parts of the caller's store. config.json notes
the names of such parts, and whoever loads the model gives them again: a folder must not run code.
If this is exact, a matrix is stored in 8 bits, as integers and their divisor, which is called
NAME.multiplier. The header also contains the configuration and the SHA-256 of vocabulary and
weights, so that a damaged or exchanged file is detected. Every model that is read can translate.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from annotated.machinery import files
from annotated.machinery.corpora.downloads import sha256_of
from annotated.machinery.corpora.vocabularies import VOCABULARIES, read_tokenizers
from annotated.machinery.errors import FileError, InputError
from annotated.machinery.files import digest, reading, settings
from annotated.machinery.parts import part_names
from annotated.model import EncoderDecoder, TransformerConfig, build_model

Tensors = Mapping[str, Tensor]
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


Build = Callable[[TransformerConfig], EncoderDecoder]  # such as `build_model`


def built(build: Build, config: TransformerConfig) -> EncoderDecoder:
    """A model, with its configuration and with the names of what is not the paper's.

    Raises: InputError for a model of another interface.
    """
    model = build(config)
    if not isinstance(model, EncoderDecoder):
        raise InputError(f"expected an EncoderDecoder from build; got {type(model).__name__}")
    if getattr(model, "config", None) is None:
        model.config = config
    if getattr(build, "func", build) is not build_model:  # it may have changed anything
        model.parts = {**model.parts, **part_names({"build": build})}
    return model


def empty_model(
    config: TransformerConfig, names: Iterable[str], path: Path, build: Build = build_model
) -> EncoderDecoder:
    """Build a model; the paper's on the meta device, where nothing is allocated or initialized.

    Args: names: of the weights.   path: of the configuration.   build: makes the model.

    Raises: FileError if `config` has a different number of layers or is too large to build.
    """
    if build is not build_model:  # it may compute tables, which no file contains
        with torch.random.fork_rng(devices=[]):
            return built(build, config).eval()
    layers = {found.groups() for name in names if (found := _LAYER.search(name))}
    encoder, decoder = (sum(s == stack for s, _ in layers) for stack in ("encoder", "decoder"))
    depths = config.N, config.N_decoder or config.N
    if depths != (encoder, decoder):  # before 100,000 layers are built
        wanted = f"N={encoder} layers, and {decoder} in the decoder, as in the weights"
        raise FileError(f"{path}: expected {wanted}; got {depths[0]} and {depths[1]}")
    expected = "the configuration of a model that can be built"
    with reading(path, expected), torch.device("meta"), _Uninitialized():
        return build(config).eval()


def parameter_shapes(config: TransformerConfig) -> dict[str, torch.Size]:
    """Name and shape of each parameter; a tied matrix has one name, as in `named_parameters`."""
    with torch.device("meta"):
        return {name: p.shape for name, p in build_model(config).named_parameters()}


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The parameters of a model, a tied one once, and the buffers that it stores, by name."""
    stored = model.state_dict()
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in stored}
    return {**dict(model.named_parameters()), **buffers}


def check_weights(
    path: Path, found: Tensors, shapes: Mapping[str, Sequence[int]], own: Tensors | None = None
) -> dict[str, Tensor]:
    """Copy the tensors of a file in single precision; they no longer depend on the file.

    Args: own: of the model; its buffers may contain any numbers, of their own type.

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
        buffer = own[name] if own and not isinstance(own[name], nn.Parameter) else None
        if buffer is not None and (tensor.shape, tensor.dtype) == (shape, buffer.dtype):
            weights[name] = tensor.clone()
            continue
        if tensor.shape == shape and tensor.is_floating_point() and dense:
            weights[name] = tensor.to(torch.float32, copy=True)
        if name not in weights or not weights[name].isfinite().all():
            expected = f"{tuple(shape)} of finite floating-point numbers"
            got = f"{tuple(tensor.shape)} of {tensor.dtype}"
            got += ", NaN or infinity among them" if name in weights else ""
            raise FileError(f"{path}: expected {name} as {expected}; got {got}")
    return weights


_Model = TypeVar("_Model", bound=nn.Module)


def with_weights(model: _Model, weights: Tensors) -> _Model:
    """Assign weights to a model on the meta device; tied weights stay tied."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    ready = {name: nn.Parameter(weights[name]) for name in names.values()}
    every = model.named_parameters(remove_duplicate=False)  # a tied matrix has all its names
    state = {**weights, **{name: ready[names[p]] for name, p in every}}
    model.load_state_dict(state, assign=True)
    return model


def read_own(folder: Path, contents: dict[str, Any], build: Build | None = None) -> LoadedModel:
    """Read a folder in the book's own format.

    Args:
        contents: the contents of its config.json.
        build: makes the model; needed if the model has parts that are not the paper's.

    Raises: MissingFile or FileError that names the file; InputError that names the parts to give.
    """
    path, weights_path = folder / "config.json", folder / "model.safetensors"
    noted = contents.pop("parts", {})
    config = settings(TransformerConfig, contents, str(path))
    found, header = files.read_tensors(weights_path, f"the weights of the model in {path}")
    stored, found = found, as_floats(weights_path, found)
    loaded = described_model(weights_path, found, config, noted, build, path)
    with reading(weights_path, "a description of the model in its header"):
        said, own = json.loads(header["model"]), asdict(config)
        own |= {"parts": noted} if noted else {}
        if own | (trained := said["config"]) != own:
            raise FileError(f"{path}: expected the configuration in {weights_path}: {trained}")
        if digest(stored) != said["sha256"]:
            wanted = "expected the weights as written"
            raise FileError(f"{weights_path}: {wanted}; their SHA-256 differs")
        for name, sum in _vocabulary_sums(folder).items():
            if sum != said["vocabulary"][name]:
                wanted = "expected the vocabulary of the model"
                raise FileError(f"{folder / name}: {wanted}; got another")
    return loaded


def described_model(
    path: Path,
    found: Tensors,
    config: TransformerConfig,
    noted: Mapping[str, str],
    build: Build | None,
    described: Path | None = None,
) -> LoadedModel:
    """A model with these weights, and the vocabulary from the folder around their file.

    Args:
        path: of the weights.   noted: parts that are not the paper's.   build: as for `read_own`.
        described: the file with the configuration, if it is not that of the weights.

    Raises: as `read_own`.
    """
    folder = path.parent
    wanted = f"expected the parts of the model in {folder}, {named_parts(noted)}"
    if noted and build is None:
        raise InputError(f"{wanted}, which are given in Python: {loading_code(folder, noted)}")
    model = empty_model(config, found, described or path, build or build_model)
    if model.parts != noted:
        raise InputError(f"{wanted}; got {named_parts(model.parts)}")
    tensors = model_tensors(model)
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    weights = check_weights(path, found, shapes, tensors)
    tokenizers = read_tokenizers(folder, config.src_vocab, config.tgt_vocab)
    return with_weights(model, weights), *tokenizers


def named_parts(parts: Any) -> str:
    """Names of parts as they are given to `load_pretrained`."""
    named = parts.items() if isinstance(parts, dict) else [("parts", parts)]
    code = lambda part: re.sub(r"^([^(]+)\((.*)\)$", r"partial(\1, \2)", str(part))
    return ", ".join(f"{name}={code(part)}" for name, part in named)[:200] or "the paper's"


def loading_code(folder: str | Path, parts: Any) -> str:
    """The code that loads a model with these parts; a `build` brings all of them."""
    whole = isinstance(parts, dict) and "build" in parts
    given = named_parts({"build": parts["build"]} if whole else parts)
    return f'annotated.load_pretrained("{folder}"{f", {given}" * bool(parts)})'


_MULTIPLIER = ".multiplier"


def as_floats(path: Path, found: Tensors) -> dict[str, Tensor]:
    """Weights, with 8-bit matrices divided by their multipliers."""
    weights = dict(found)
    for name in found:
        if name.endswith(_MULTIPLIER):
            of, multiplier = name.removesuffix(_MULTIPLIER), found[name]
            if (whole := found.get(of)) is None:  # a parameter may have such a name
                continue
            del weights[name]
            if whole.dtype != torch.int8:
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
    """The parameters of a model, and the buffers that it stores, by their names.

    Raises: InputError for a model without a configuration, and one that names the first difference
        from the model that the configuration describes, for example if it was pruned, quantized,
        parametrized or truncated, or if a module was exchanged after `build_model`.
    """
    if getattr(model, "config", None) is None:
        raise InputError("expected a model from build_model, which has a configuration to save")
    own = model_tensors(model)
    if model.parts:
        return own
    with torch.device("meta"):
        described = build_model(model.config)
    said = "as the configuration of the model describes it"
    modules, shapes = dict(described.named_modules()), dict(described.named_parameters())
    for name, module in model.named_modules():
        if change := _difference(module, modules.get(name)):
            kind = type(modules[name]).__name__ if name in modules else "none"
            advice = "a part of your own is an argument of build_model and load_pretrained"
            where = f"expected {name or 'the model'} {said}"
            raise InputError(f"{where}: {kind}; got {change}; {advice}")
    for name in sorted(own.keys() | shapes.keys()):
        if name not in own or name not in shapes or own[name].shape != shapes[name].shape:
            got = tuple(own[name].shape) if name in own else "none"
            wanted = tuple(shapes[name].shape) if name in shapes else "none"
            raise InputError(f"expected {name} {said}: {wanted}; got {got}")
    return own


def _difference(module: nn.Module, described: nn.Module | None) -> str:
    """What makes a module compute other than one that the configuration describes; or nothing."""
    kind, has = type(module), vars(module)
    if not (isinstance(module, type(described)) and kind.__module__.startswith(_KNOWN)):
        return kind.__name__
    if patched := [name for name in has if callable(getattr(kind, name, None))]:
        return f"another {patched[0]}"
    for name, value in vars(described).items():
        plain = isinstance(value, (int, float, str)) or callable(value)
        free = name.startswith("_") or name in ("training", "p", "inplace")  # p: of dropout
        if plain and not free and has.get(name) != value:
            return f"{name}={getattr(has.get(name), '__name__', has.get(name))}"
    return ""


_KNOWN = "annotated.", "torch.nn.modules."  # modules with classes that compute what they say


def stored_weights(
    weights: Tensors, half: bool, buffers: Collection[str] = ()
) -> dict[str, Tensor]:
    """Weights in half or single precision; buffers stay as they are.

    Raises: InputError that names a weight that is not finite in this precision.
    """
    kept, dtype = {}, torch.float16 if half else torch.float32
    for name, w in weights.items():
        kept[name] = w.detach().to(w.dtype if name in buffers else dtype)
        if name not in buffers and not kept[name].isfinite().all():
            most = torch.finfo(dtype).max
            raise InputError(f"expected finite weights of at most {most:g}; got others in {name}")
    return kept


def save_model(
    folder: Path,
    weights: Tensors,
    config: TransformerConfig,
    half: bool = True,
    parts: Mapping[str, str] | None = None,
    buffers: Collection[str] = (),
) -> None:
    """Write weights and the configuration, for `load_pretrained`.

    Args:
        folder: with the vocabulary files.   weights: by their names in `named_parameters`.
        half: store in 16 bits; otherwise in 32, except for matrices that are exact in 8.
        parts: names of those that are not the paper's.   buffers: names of weights that are none.

    Raises: InputError as `stored_weights`; FileError if the folder cannot be written to, has no
        vocabulary, or has one that differs from the existing model's.
    """
    kept, described = stored_weights(weights, half, buffers), asdict(config)
    described |= {"parts": dict(parts)} if parts else {}
    for name, weight in [] if half else list(kept.items()):
        if weight.dim() == 2 and name not in buffers and (exact := _in_eight_bits(weight)):
            kept[name], kept[name + _MULTIPLIER] = exact
    read_tokenizers(folder, config.src_vocab, config.tgt_vocab)
    sums = {"vocabulary": _vocabulary_sums(folder), "sha256": digest(kept)}
    path, before = folder / "model.safetensors", sums["vocabulary"]
    files.output_file(path)  # a read from a pipe could block forever
    missing = suppress(OSError, SafetensorError, KeyError, TypeError, ValueError)
    with missing, safe_open(path, "pt") as file:  # there may be no model yet, or an earlier one
        before = json.loads(file.metadata()["model"])["vocabulary"]
    if before != sums["vocabulary"]:
        raise FileError(f"{folder}: expected the vocabulary of the model; got another")
    # A single entry in the header, because the library writes several in arbitrary order.
    header = {"model": json.dumps({"config": described} | sums)}
    files.write_tensors(path, kept, header)
    files.write_text(folder / "config.json", json.dumps(described, indent=2) + "\n")
