"""Models that leave the book."""

import copy
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from annotated.attention import KeyValueCache, head_widths
from annotated.data import END, PAD, SPECIALS, START, UNK
from annotated.machinery.errors import InputError
from annotated.machinery.files import extra, write_text, writing_new_folder
from annotated.machinery.marian import write_marian
from annotated.machinery.translator import Translator
from annotated.machinery.vocabularies import write_tokenizers
from annotated.model import EncoderDecoder, TransformerConfig
from annotated.positional import PositionalEncoding, sinusoids
from annotated.stacks import DecoderCache

_POSITIONS = 2048  # of sinusoids: twice the tokens that a translator reads of a sentence


def _copy_to_export(model: EncoderDecoder, half: bool) -> EncoderDecoder:
    model = copy.deepcopy(model).cpu().eval()
    for module in model.modules():
        if isinstance(module, PositionalEncoding):
            module.pe = sinusoids(_POSITIONS, model.config.d_model).unsqueeze(0)
    return model.half() if half else model.float()


class _GivenCache(KeyValueCache):
    """A cache that begins with keys (batch, h, len, d_k) and values; none is written over."""

    def __init__(self, grows: bool, key: Tensor, value: Tensor) -> None:
        super().__init__(grows)
        self.buffers, self.length = [key, value], key.size(2)

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        held, values = self.buffers
        self.buffers = [torch.cat([held, key], dim=2), torch.cat([values, value], dim=2)]
        self.length += key.size(2)
        return self.kept()


class _EncoderGraph(nn.Module):
    """Source ids to what the decoder's layers look up."""

    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, src: Tensor, src_mask: Tensor) -> tuple[Tensor, Tensor]:
        memory = self.model.encode(src, src_mask)
        decoder: Any = self.model.decoder
        attentions = [layer.src_attn for layer in decoder.layers]
        keys = [each.split_heads(each.w_k(memory)) for each in attentions]
        values = [each.split_heads(each.w_v(memory)) for each in attentions]
        return torch.stack(keys), torch.stack(values)


class _StepGraph(nn.Module):
    """The newest token of each output to log-probabilities of the next one."""

    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        tgt: Tensor,
        src_mask: Tensor,
        memory_keys: Tensor,
        memory_values: Tensor,
        past_keys: Tensor,
        past_values: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        cache = DecoderCache()
        cache.steps = past_keys.size(3)
        for i in range(self.model.config.N):
            own = _GivenCache(True, past_keys[i], past_values[i])
            cache.layers[i] = own, _GivenCache(False, memory_keys[i], memory_values[i])
        memory = memory_keys[0, :, 0]  # only its length is looked at: the cache has the rest
        out = self.model.decode(memory, src_mask, tgt, None, cache)  # (batch, 1, d_model)
        generator: Any = self.model.generator
        log_probs = generator.proj(out[:, 0]).float().log_softmax(dim=-1)
        keys, values = zip(*(own.kept() for own, _ in cache.layers.values()), strict=True)
        return log_probs, torch.stack(keys), torch.stack(values)


_KEYS, _VALUES = ("N", "batch", "h", "src_len", "d_k"), ("N", "batch", "h", "src_len", "d_v")
_INPUTS: dict[str, dict[str, tuple[str | int, ...]]] = {
    "encoder": {"src": ("batch", "src_len"), "src_mask": ("batch", 1, "src_len")},
    "decoder": {
        "tgt": ("batch", 1),
        "src_mask": ("batch", 1, "src_len"),
        "memory_keys": _KEYS,
        "memory_values": _VALUES,
        "past_keys": ("N", "batch", "h", "past_len", "d_k"),
        "past_values": ("N", "batch", "h", "past_len", "d_v"),
    },
}
_OUTPUTS: dict[str, dict[str, tuple[str | int, ...]]] = {
    "encoder": {"memory_keys": _KEYS, "memory_values": _VALUES},
    "decoder": {
        "log_probs": ("batch", "tgt_vocab"),
        "keys": ("N", "batch", "h", "past_len + 1", "d_k"),
        "values": ("N", "batch", "h", "past_len + 1", "d_v"),
    },
}


@contextmanager
def _quietly() -> Iterator[None]:
    """Without what torch's exporter tells of itself."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def _positions(config: TransformerConfig) -> int:
    return config.max_len if config.positions == "learned" else _POSITIONS


def _sizes(config: TransformerConfig) -> dict[str, int]:
    d_k, d_v = head_widths(config.h, config.d_model, config.d_k, config.d_v)
    return {"N": config.N, "h": config.h, "d_k": d_k, "d_v": d_v, "tgt_vocab": config.tgt_vocab}


def _export_graph(graph: nn.Module, name: str, config: TransformerConfig, path: Path) -> None:
    """Write a graph of `_INPUTS` as a file of ONNX."""
    from torch.export import Dim

    positions = _positions(config)
    free = {"batch": Dim("batch"), "src_len": Dim("src_len", max=positions)}
    free["past_len"] = Dim("past_len", min=0, max=positions - 1)
    sizes = {"batch": 2, "src_len": 3, "past_len": 2} | _sizes(config)  # of the examples
    width = next(graph.parameters()).dtype
    kinds = {"src": torch.int64, "tgt": torch.int64, "src_mask": torch.bool}
    examples, shapes = [], {}
    for given, axes in _INPUTS[name].items():
        shape = [sizes[axis] if isinstance(axis, str) else axis for axis in axes]
        examples.append(torch.zeros(shape, dtype=kinds.get(given, width)))
        shapes[given] = {i: free[axis] for i, axis in enumerate(axes) if axis in free}
    with _quietly(), torch.no_grad():
        program: Any = torch.onnx.export(
            graph.eval(),
            tuple(examples),
            dynamo=True,
            dynamic_shapes=shapes,
            input_names=list(shapes),
            output_names=list(_OUTPUTS[name]),
            verbose=False,
        )
        program.save(path)


def write_onnx(translator: Translator, folder: Path, half: bool = False) -> None:
    """Write a model as encoder.onnx and decoder.onnx, its tokenizer, and model.json.

    Args:
        folder: exists.   half: weights, keys and values in 16 bits; log-probabilities stay in 32.

    Raises: MissingExtra, or InputError if torch is older than 2.9.
    """
    with extra("export"):
        import onnxscript  # noqa: F401  # torch's exporter needs it
    if torch.__version__ < "2.9":  # compared as versions; another exporter was the usual one
        raise InputError(f"expected torch 2.9 or later, to write ONNX; got {torch.__version__}")
    model = _copy_to_export(translator.model, half)
    for name, graph in ("encoder", _EncoderGraph), ("decoder", _StepGraph):
        _export_graph(graph(model), name, model.config, folder / f"{name}.onnx")
    said = {
        "ids": {"start": START, "end": END, "padding": PAD, "unknown": UNK},
        "positions": _positions(model.config),
        "sizes": _sizes(model.config),
        "floats": "float16" if half else "float32",
    }
    for name in _INPUTS:
        said[name] = {"inputs": _INPUTS[name], "outputs": _OUTPUTS[name]}
    write_text(folder / "model.json", json.dumps(said, indent=1) + "\n")
    write_tokenizers(folder, translator.tokenizer, translator.target_tokenizer)


def _set_linear(spec: Any, *maps: nn.Linear) -> None:
    """Give a linear map of CTranslate2 the weights of one of ours, or of several as one."""
    spec.weight = torch.cat([m.weight for m in maps]).detach()
    if maps[0].bias is not None:
        spec.bias = torch.cat([m.bias for m in maps]).detach()


def _set_norm(spec: Any, norm: Any) -> None:
    spec.gamma, spec.beta = norm.weight.detach(), norm.bias.detach()


def _set_layer(spec: Any, layer: Any) -> None:
    """Give a layer of CTranslate2, of encoder or decoder, the weights of ours."""
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


def _set_stack(spec: Any, embeddings: Any, stack: Any, embed: Any) -> None:
    """Give encoder or decoder of CTranslate2, and its embeddings, the weights of ours."""
    embeddings.weight = embed[0].lut.weight.detach()
    spec.position_encodings.encodings = embed[1].pe[0].detach()
    for theirs, ours in zip(spec.layer, stack.layers, strict=True):
        _set_layer(theirs, ours)
    if isinstance(stack.norm, nn.LayerNorm):
        _set_norm(spec.layer_norm, stack.norm)


def _piece_names(tokenizer: Tokenizer, vocab: int) -> list[str]:
    return [tokenizer.id_to_token(i) or f"<unused {i}>" for i in range(vocab)]


def ctranslate2_spec(model: EncoderDecoder, source: list[str], target: list[str]) -> Any:
    """A model as CTranslate2 describes one, before it is checked and written.

    Args:
        source, target: pieces of either side by their ids.

    Raises: MissingExtra, or InputError for heads that are not d_model / h wide.
    """
    with extra("export"):
        from ctranslate2.specs import TransformerSpec
        from ctranslate2.specs.common_spec import Activation
    model, c = _copy_to_export(model, half=False), model.config
    widths = head_widths(c.h, c.d_model, c.d_k, c.d_v)
    if set(widths) != {c.d_model / c.h}:
        wanted = f"d_k = d_v = d_model / h, as CTranslate2 has it, here {c.d_model / c.h:g}"
        raise InputError(f"expected {wanted}; got d_k, d_v = {widths}")
    activation = Activation[c.activation.upper()]
    spec: Any = TransformerSpec.from_config(c.N, c.h, pre_norm=c.norm_first, activation=activation)
    _set_stack(spec.encoder, spec.encoder.embeddings[0], model.encoder, model.src_embed)
    _set_stack(spec.decoder, spec.decoder.embeddings, model.decoder, model.tgt_embed)
    generator: Any = model.generator
    _set_linear(spec.decoder.projection, generator.proj)
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    start, end, _, unknown = SPECIALS
    spec.config.decoder_start_token = spec.config.bos_token = start
    spec.config.eos_token, spec.config.unk_token = end, unknown
    return spec


def write_ctranslate2(translator: Translator, folder: Path, half: bool = False) -> None:
    """Write a model as CTranslate2 reads it, and its tokenizer.

    Args:
        folder: exists.   half: weights in 16 bits.

    Raises: as `ctranslate2_spec`.
    """
    source, target = translator.tokenizer, translator.target_tokenizer
    c = translator.model.config
    names = _piece_names(source, c.src_vocab), _piece_names(target or source, c.tgt_vocab)
    spec = ctranslate2_spec(translator.model, *names)
    spec.config.add_source_eos = True  # as our sources have it
    spec.validate()
    spec.optimize("float16" if half else None)  # and writes a tied matrix once
    spec.save(str(folder))
    write_tokenizers(folder, source, target)


FORMS: dict[str, Callable[[Translator, Path, bool], None]] = {
    "onnx": write_onnx,
    "ctranslate2": write_ctranslate2,
    "huggingface": write_marian,
}


def export_model(translator: Translator, form: str, folder: Path, half: bool = False) -> None:
    """Write a model for another program.

    Args:
        form: one of `FORMS`.   folder: new or empty.
        half: floating-point numbers in 16 bits.

    Raises: InputError if the folder holds something, or for a model that the form has no place
        for; MissingExtra; FileError if the folder cannot be written.
    """
    if form not in FORMS:
        raise InputError(f"expected a form out of {', '.join(FORMS)}; got {form!r:.80}")
    with writing_new_folder(Path(folder)) as part:
        FORMS[form](translator, part, half)
