"""Models for other programs: ONNX, CTranslate2, and (in `machinery.formats.marian`) transformers.

A model becomes two ONNX graphs. The encoder outputs the keys and values for the decoder's attention
to the source. The decoder extends each hypothesis by one token and has all keys and values as
inputs and outputs, so the search is left to the program that runs it. model.json names inputs,
outputs and their axes.
"""

import copy
import json
import logging
import warnings
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from annotated.data import END, PAD, SPECIALS, START, UNK
from annotated.machinery.checks import head_widths
from annotated.machinery.corpora.vocabularies import VOCABULARIES, write_tokenizers
from annotated.machinery.errors import InputError, extra
from annotated.machinery.files import write_text, writing_new_folder
from annotated.machinery.formats.card import export_card
from annotated.machinery.formats.marian import write_marian
from annotated.machinery.formats.own import named_parts, own_weights, stored_weights
from annotated.machinery.stepping import is_watched
from annotated.machinery.translator import Translator
from annotated.model import EncoderDecoder
from annotated.positional import PositionalEncoding, sinusoids

POSITIONS = 2048  # length of sinusoids: twice the tokens that a translator reads per sentence


def _copy_to_export(model: EncoderDecoder, half: bool) -> EncoderDecoder:
    """A copy on the CPU in eval mode, with sinusoids long enough for any input."""
    model = copy.deepcopy(model).cpu().eval()
    for module in model.modules():
        if isinstance(module, PositionalEncoding):
            module.pe = sinusoids(POSITIONS, model.config.d_model, module.base).unsqueeze(0)
    return model.half() if half else model.float()


_FREE = "batch", "src_len", "past_len"  # axes of any size
_Shapes = dict[str, tuple[str | int, ...]]


def _keys_values(name: str, length: str) -> _Shapes:
    axes = "N", "batch", "h", length
    return {f"{name}keys": (*axes, "d_k"), f"{name}values": (*axes, "d_v")}


_MEMORY, _PAST = _keys_values("memory_", "src_len"), _keys_values("past_", "past_len")
_SRC_MASK: _Shapes = {"src_mask": ("batch", 1, "src_len")}
_INPUTS: dict[str, _Shapes] = {
    "encoder": {"src": ("batch", "src_len"), **_SRC_MASK},
    "decoder": {"tgt": ("batch", 1), **_SRC_MASK, **_MEMORY, **_PAST},
}
_OUTPUTS: dict[str, _Shapes] = {
    "encoder": _MEMORY,
    "decoder": {"log_probs": ("batch", "tgt_vocab"), **_keys_values("", "past_len + 1")},
}


class _Graph(nn.Module):
    """The module that torch exports under a name of `_INPUTS`."""

    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__()
        self.model = model


class _EncoderGraph(_Graph):
    """The keys and values of each decoder layer's attention to the source."""

    def forward(self, src: Tensor, src_mask: Tensor) -> tuple[Tensor, Tensor]:
        decoder: Any = self.model.decoder
        states = decoder.start(self.model.encode(src, src_mask))
        keys, values = zip(*(source for _, source in states), strict=True)
        return torch.stack(keys), torch.stack(values)


class _DecoderGraph(_Graph):
    """Log-probabilities after the newest tokens, and all keys and values."""

    def forward(
        self, tgt: Tensor, src_mask: Tensor, memory_keys: Tensor, memory_values: Tensor,
        past_keys: Tensor, past_values: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        own = [[*both] for both in zip(past_keys, past_values, strict=True)]
        source = [[*both] for both in zip(memory_keys, memory_values, strict=True)]
        states = list(zip(own, source, strict=True))
        out = self.model.step(tgt, past_keys.size(3), states, src_mask)  # (batch, 1, d_model)
        log_probs = self.model.logits(out[:, 0]).float().log_softmax(dim=-1)
        keys, values = zip(*own, strict=True)
        return log_probs, torch.stack(keys), torch.stack(values)


def _export_graph(graph: _Graph, name: str, sizes: dict[str, int], path: Path) -> None:
    """Write one of the graphs of `_INPUTS` as an ONNX file; `sizes` has the axes not in `_FREE`."""
    from torch.export import Dim

    sizes = {"batch": 2, "src_len": 3, "past_len": 2} | sizes  # of the examples
    kinds = {"src": torch.int64, "tgt": torch.int64, "src_mask": torch.bool}
    floats = next(graph.parameters()).dtype
    examples, shapes = [], []
    for given, axes in _INPUTS[name].items():
        shape = [sizes[axis] if isinstance(axis, str) else axis for axis in axes]
        examples.append(torch.zeros(shape, dtype=kinds.get(given, floats)))
        shapes.append({i: Dim.DYNAMIC for i, axis in enumerate(axes) if axis in _FREE})
    # Otherwise it warns, for example, that torchvision is missing.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program: Any = torch.onnx.export(
            graph.eval(), tuple(examples), dynamo=True, dynamic_shapes=tuple(shapes), verbose=False,
            input_names=list(_INPUTS[name]), output_names=list(_OUTPUTS[name]),
        )  # fmt: skip
        program.save(path)


def write_onnx(translator: Translator, folder: Path, half: bool = False) -> None:
    """Write a model as encoder.onnx and decoder.onnx, with its tokenizer and model.json.

    Args:
        folder: an existing folder.
        half: store weights, keys and values in 16 bits; log-probabilities stay in 32.

    Raises: MissingExtra, or InputError if torch is older than 2.9.
    """
    with extra("export"):
        import onnxscript  # noqa: F401  # torch's exporter needs it
    if torch.__version__ < "2.9":  # compares as a version; earlier versions export differently
        raise InputError(f"expected torch 2.9 or later, to write ONNX; got {torch.__version__}")
    model = _copy_to_export(translator.model, half)
    c = model.config
    positions = c.max_len if c.positions == "learned" else POSITIONS
    d_k, d_v = head_widths(c.h, c.d_model, c.d_k, c.d_v)
    sizes = {"N": c.N, "h": c.h, "d_k": d_k, "d_v": d_v, "tgt_vocab": c.tgt_vocab}
    ids = {"start": START, "end": END, "padding": PAD, "unknown": UNK}
    description: dict[str, Any] = {"ids": ids, "positions": positions, "sizes": sizes}
    description["floats"] = "float16" if half else "float32"
    for name, graph in ("encoder", _EncoderGraph(model)), ("decoder", _DecoderGraph(model)):
        _export_graph(graph, name, sizes, folder / f"{name}.onnx")
        description[name] = {"inputs": _INPUTS[name], "outputs": _OUTPUTS[name]}
    write_text(folder / "model.json", json.dumps(description, indent=1) + "\n")
    write_tokenizers(folder, translator.tokenizer, translator.target_tokenizer)


def _set_linear(spec: Any, *maps: nn.Linear) -> None:
    """Give a linear map of CTranslate2 the weights of one or several of our linear maps."""
    spec.weight = torch.cat([m.weight for m in maps]).detach()
    if maps[0].bias is not None:
        spec.bias = torch.cat([m.bias for m in maps]).detach()


def _set_norm(spec: Any, norm: Any) -> None:
    spec.gamma, spec.beta = norm.weight.detach(), norm.bias.detach()


def _set_layer(spec: Any, layer: Any) -> None:
    """Give an encoder or decoder layer of CTranslate2 the weights of our layer."""
    attention, theirs = layer.self_attn, spec.self_attention.linear
    _set_linear(theirs[0], attention.w_q, attention.w_k, attention.w_v)
    _set_linear(theirs[1], attention.w_o)
    parts = [spec.self_attention, spec.ffn]
    if hasattr(layer, "src_attn"):
        attention, theirs = layer.src_attn, spec.attention.linear
        _set_linear(theirs[0], attention.w_q)
        _set_linear(theirs[1], attention.w_k, attention.w_v)
        _set_linear(theirs[2], attention.w_o)
        parts.insert(1, spec.attention)
    _set_linear(spec.ffn.linear_0, layer.feed_forward.w_1)
    _set_linear(spec.ffn.linear_1, layer.feed_forward.w_2)
    for part, sublayer in zip(parts, layer.sublayer, strict=True):
        _set_norm(part.layer_norm, sublayer.norm)


def ctranslate2_spec(model: EncoderDecoder, source: list[str], target: list[str]) -> Any:
    """Describe a model to CTranslate2; the result has yet to be validated and written.

    Args: source, target: the pieces of each side in the order of their ids.

    Raises: MissingExtra, or InputError for heads that are not d_model / h wide.
    """
    with extra("export"):
        from ctranslate2.specs import TransformerSpec
        from ctranslate2.specs.common_spec import Activation
    model, c = _copy_to_export(model, half=False), model.config
    widths = head_widths(c.h, c.d_model, c.d_k, c.d_v)
    if set(widths) != {c.d_model / c.h}:
        wanted = f"d_k = d_v = d_model / h, as CTranslate2 requires, here {c.d_model / c.h:g}"
        raise InputError(f"expected {wanted}; got d_k, d_v = {widths}")
    activation = Activation[c.activation.upper()]
    spec: Any = TransformerSpec.from_config(c.N, c.h, pre_norm=c.norm_first, activation=activation)
    parts: Any = [
        (spec.encoder, spec.encoder.embeddings[0], model.encoder, model.src_embed),
        (spec.decoder, spec.decoder.embeddings, model.decoder, model.tgt_embed),
    ]
    for theirs, embeddings, stack, embed in parts:
        embeddings.weight = embed[0].lut.weight.detach()
        theirs.position_encodings.encodings = embed[1].pe[0].detach()
        for layer_spec, layer in zip(theirs.layer, stack.layers, strict=True):
            _set_layer(layer_spec, layer)
        if c.norm_first:
            _set_norm(theirs.layer_norm, stack.norm)
    generator: Any = model.generator
    _set_linear(spec.decoder.projection, generator.proj)
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    start, end, _, unknown = SPECIALS
    spec.config.decoder_start_token = spec.config.bos_token = start
    spec.config.eos_token, spec.config.unk_token = end, unknown
    return spec


def piece_names(tokenizer: Tokenizer, vocab: int) -> list[str]:
    """The pieces by their ids, as CTranslate2 names them."""
    return [tokenizer.id_to_token(i) or f"<unused {i}>" for i in range(vocab)]


def write_ctranslate2(translator: Translator, folder: Path, half: bool = False) -> None:
    """Write a model in the format of CTranslate2, with its tokenizer; arguments as `write_onnx`.

    Raises: as `ctranslate2_spec`.
    """
    source, target = translator.tokenizer, translator.target_tokenizer
    c = translator.model.config
    pieces = piece_names(source, c.src_vocab), piece_names(target or source, c.tgt_vocab)
    spec = ctranslate2_spec(translator.model, *pieces)
    spec.config.add_source_eos = True  # as `encode_source` does
    spec.validate()
    spec.optimize("float16" if half else None)  # also stores a tied matrix only once
    spec.save(str(folder))
    write_tokenizers(folder, source, target)


FORMS: dict[str, Callable[[Translator, Path, bool], None]]
FORMS = {"onnx": write_onnx, "ctranslate2": write_ctranslate2, "huggingface": write_marian}


_KNOWN = {  # options that the exporters below handle, or refuse themselves
    "src_vocab", "tgt_vocab", "max_len", "tie_embeddings", "N", "d_model", "d_ff", "h", "d_k",
    "d_v", "dropout", "attention_dropout", "positions", "norm_first", "bias", "activation",
}  # fmt: skip


def check_exportable(model: EncoderDecoder, form: str) -> None:
    """Check that a model is the paper's, with options that other programs have.

    Raises: InputError that names parts of the caller's, the first other option, or hooks; and, if
        a module was exchanged, as `own_weights`.
    """
    own_weights(model)
    wanted = f"the paper's model, which is all that {form} can express"
    if model.parts:
        raise InputError(f"expected {wanted}; got {named_parts(model.parts)}")
    for each in reversed(fields(model.config)):  # the decoder before its details
        if each.name not in _KNOWN and (value := getattr(model.config, each.name)) != each.default:
            differs = f"{each.name}={value!r}"
            raise InputError(f"expected {each.name}={each.default!r} in {wanted}; got {differs}")
    for name, module in model.named_modules():
        if is_watched(module):
            raise InputError(f"expected {wanted}; got hooks on {name or 'the model'}")


def export_model(translator: Translator, form: str, folder: str | Path, half: bool = False) -> None:
    """Write a model for another program, with a card that tells how to use it there.

    Args:
        form: one of `FORMS`.   folder: new or empty.
        half: store floating-point numbers in 16 bits.

    Raises: InputError if the folder is not empty, or if the format cannot represent the model or
        16 bits one of its weights; MissingExtra; FileError if the folder cannot be written.
    """
    if not isinstance(form, str) or form not in FORMS:
        raise InputError(f"expected a form out of {', '.join(FORMS)}; got {form!r:.80}")
    check_exportable(translator.model, form)
    stored_weights(own_weights(translator.model), half)
    target = VOCABULARIES[1 if translator.target_tokenizer else 0]
    with writing_new_folder(folder) as part:
        FORMS[form](translator, part, half)
        write_text(part / "README.md", export_card(form, translator.card, target))
