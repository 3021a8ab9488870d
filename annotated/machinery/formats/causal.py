"""Published language models in the Hub's format: Llama, SmolLM2, Qwen 3, GPT-2 and Pythia.

A folder contains config.json and model.safetensors, or an index of several such files. Each family
has a table of its fields and a table of its tensors' names. A field that is in neither a table nor
the list of fields without influence is rejected by name, because a model whose sliding window or
scaled rotation is overlooked still generates text, only worse text.
"""

import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from tokenizers.processors import TemplateProcessing
from torch import Tensor

from annotated.data import END, SPECIALS
from annotated.language_model import LanguageModel, LanguageModelConfig
from annotated.machinery.checks import usable_device
from annotated.machinery.corpora.vocabularies import read_tokenizer
from annotated.machinery.errors import FileError, InputError
from annotated.machinery.files import read_json, read_tensors, reading, require_regular, settings
from annotated.machinery.formats.causal_tokenizer import read_causal_tokenizer
from annotated.machinery.formats.gguf import read_gguf
from annotated.machinery.formats.hub import OTHER_TEMPLATES, language_model_folder, weight_files
from annotated.machinery.formats.own import Tensors, as_floats, check_weights, with_weights
from annotated.machinery.text_generator import TextGenerator

_ACTIVATIONS = {
    "relu": "relu", "silu": "swish", "swish": "swish", "gelu": "gelu", "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}  # fmt: skip
# Fields that do not change the outputs of a trained model.
_WITHOUT_INFLUENCE = """
    _attn_implementation _attn_implementation_autoset _flash_attn_2_enabled _name_or_path
    _num_labels architectures attention_dropout attn_implementation attn_pdrop auto_map
    bad_words_ids begin_suppress_tokens bos_token_id chat_template classifier_dropout
    decoder_start_token_id diversity_penalty do_sample dtype early_stopping embd_pdrop
    encoder_no_repeat_ngram_size eos_token_id exponential_decay_length_penalty finetuning_task
    forced_bos_token_id forced_eos_token_id gradient_checkpointing hidden_dropout id2label
    initializer_range is_decoder is_llama_config label2id length_penalty max_length
    max_window_layers min_length model_type n_ctx n_special no_repeat_ngram_size num_beam_groups
    num_beams num_labels num_return_sequences output_attentions output_hidden_states output_past
    output_scores pad_token_id predict_special_tokens prefix pretraining_tp problem_type
    remove_invalid_values reorder_and_upcast_attn repetition_penalty resid_pdrop return_dict
    return_dict_in_generate sep_token_id sliding_window summary_activation summary_first_dropout
    summary_proj_to_labels summary_type summary_use_proj suppress_tokens task_specific_params
    temperature tf_legacy_loss tokenizer_class top_k top_p torch_dtype torchscript
    transformers.js_config transformers_version typical_p unsloth_fixed unsloth_version
    unsloth_tokenizer_fixed use_bfloat16 use_cache
"""
# Fields of all families that must have this value if they are present.
_FIXED: dict[str, Any] = {
    "add_cross_attention": False, "chunk_size_feed_forward": 0, "cross_attention_hidden_size": None,
    "is_encoder_decoder": False, "pruned_heads": {}, "quantization_config": None,
    "tie_encoder_decoder": False,
}  # fmt: skip
_ROPE = {"rope_parameters", "rope_scaling"}
_BUFFER = re.compile(r".*\.(attn|attention)\.((masked_)?bias|rotary_emb\.inv_freq)|.*\.inv_freq")


@dataclass(frozen=True)
class _Family:
    """The properties that the models of one family share.

    Args:
        fields: published fields by ours.   defaults: for published fields that may be absent.
        fixed: published fields that must have this value if they are present.
        ours: our fields in all models.   names: published names of tensors by ours, without
            ".weight" and ".bias"; inside a layer, relative to it.   layer: the list of layers.
        take: our tensor, from its name, the published tensor, and the configuration; None if equal.
        rotation: parameters of RoPE, each with its field outside rope_parameters and its default.
    """

    fields: Mapping[str, str]
    defaults: Mapping[str, Any]
    fixed: Mapping[str, Any]
    ours: Mapping[str, Any]
    names: Mapping[str, str]
    layer: str
    take: Callable[[str, Tensor, LanguageModelConfig], Tensor] | None = None
    rotation: Mapping[str, tuple[str, float]] = field(default_factory=dict)


def _which(name: str) -> int | None:
    """0, 1 or 2 for a weight or bias of w_q, w_k or w_v; None for any other."""
    part = name.split(".")[-2]
    return "qkv".index(part[-1]) if part in ("w_q", "w_k", "w_v") else None


def _gpt2_tensor(name: str, tensor: Tensor, c: LanguageModelConfig) -> Tensor:
    """GPT-2 stores linear maps transposed, and w_q, w_k and w_v concatenated in one tensor."""
    if name == "encoding.pe":
        return tensor.unsqueeze(0)
    tensor = tensor.t() if ".w_" in name else tensor
    which = _which(name)
    return tensor if which is None else tensor.unflatten(0, (3, -1))[which]


def _neox_tensor(name: str, tensor: Tensor, c: LanguageModelConfig) -> Tensor:
    """GPT-NeoX stores w_q, w_k and w_v in one tensor, head by head."""
    which = _which(name)
    return tensor if which is None else tensor.unflatten(0, (c.h, 3, -1))[:, which].flatten(0, 1)


_COMMON = {
    "vocab": "vocab_size", "N": "num_hidden_layers", "d_model": "hidden_size",
    "d_ff": "intermediate_size", "h": "num_attention_heads", "max_len": "max_position_embeddings",
    "activation": "hidden_act", "tie_embeddings": "tie_word_embeddings",
}  # fmt: skip
_LLAMA = _Family(
    fields=_COMMON
    | {"kv_heads": "num_key_value_heads", "d_k": "head_dim", "epsilon": "rms_norm_eps"}
    | {"attention_bias": "attention_bias", "feed_forward_bias": "mlp_bias"},
    defaults={
        "num_key_value_heads": None, "head_dim": None, "tie_word_embeddings": False,
        "attention_bias": False, "mlp_bias": False, "hidden_act": "silu",
    },
    fixed={"rope_interleaved": False},
    ours={"norm": "rms", "positions": "rope", "gated": True},
    names={
        "embed.lut": "model.embed_tokens", "norm": "model.norm", "generator.proj": "lm_head",
        "sublayer.0.norm": "input_layernorm", "sublayer.1.norm": "post_attention_layernorm",
        **{f"self_attn.w_{x}": f"self_attn.{x}_proj" for x in "qkvo"},
        "self_attn.q_norm": "self_attn.q_norm", "self_attn.k_norm": "self_attn.k_norm",
        "feed_forward.w_1": "mlp.gate_proj", "feed_forward.w_3": "mlp.up_proj",
        "feed_forward.w_2": "mlp.down_proj",
    },
    layer="model.layers",
    rotation={
        "rope_theta": ("rope_theta", 10000.0),
        "partial_rotary_factor": ("partial_rotary_factor", 1.0),
    },
)  # fmt: skip
_QWEN3 = replace(
    _LLAMA,
    fields={ours: theirs for ours, theirs in _LLAMA.fields.items() if theirs != "mlp_bias"},
    defaults={name: value for name, value in _LLAMA.defaults.items() if name != "mlp_bias"}
    | {"num_key_value_heads": 32, "head_dim": 128},
    fixed={"use_sliding_window": False},
    ours={**_LLAMA.ours, "qk_norm": True, "feed_forward_bias": False},
)
_GPT2 = _Family(
    fields={
        "vocab": "vocab_size", "N": "n_layer", "d_model": "n_embd", "d_ff": "n_inner",
        "h": "n_head", "max_len": "n_positions", "activation": "activation_function",
        "tie_embeddings": "tie_word_embeddings", "epsilon": "layer_norm_epsilon",
    },
    defaults={"n_inner": None, "tie_word_embeddings": True, "activation_function": "gelu_new"},
    fixed={"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False},
    ours={"positions": "learned", "attention_bias": True},
    names={
        "embed.lut": "wte", "encoding": "wpe", "norm": "ln_f", "generator.proj": "lm_head",
        "sublayer.0.norm": "ln_1", "sublayer.1.norm": "ln_2",
        **{f"self_attn.w_{x}": "attn.c_attn" for x in "qkv"}, "self_attn.w_o": "attn.c_proj",
        "feed_forward.w_1": "mlp.c_fc", "feed_forward.w_2": "mlp.c_proj",
    },
    layer="h",
    take=_gpt2_tensor,
)  # fmt: skip
_NEOX = _Family(
    fields=_COMMON
    | {"epsilon": "layer_norm_eps", "parallel": "use_parallel_residual"}
    | {"attention_bias": "attention_bias"},
    defaults={
        "tie_word_embeddings": False, "use_parallel_residual": True, "attention_bias": True,
        "hidden_act": "gelu",
    },
    fixed={"is_decoder": False},
    ours={"positions": "rope"},
    names={
        "embed.lut": "gpt_neox.embed_in", "norm": "gpt_neox.final_layer_norm",
        "generator.proj": "embed_out", "self_attn.w_o": "attention.dense",
        "sublayer.0.norm": "input_layernorm", "sublayer.1.norm": "post_attention_layernorm",
        **{f"self_attn.w_{x}": "attention.query_key_value" for x in "qkv"},
        "feed_forward.w_1": "mlp.dense_h_to_4h", "feed_forward.w_2": "mlp.dense_4h_to_h",
    },
    layer="gpt_neox.layers",
    take=_neox_tensor,
    rotation={
        "rope_theta": ("rotary_emb_base", 10000.0), "partial_rotary_factor": ("rotary_pct", 0.25),
    },
)  # fmt: skip
FAMILIES = {"llama": _LLAMA, "qwen3": _QWEN3, "gpt2": _GPT2, "gpt_neox": _NEOX}


def _rotation(path: Path, contents: Mapping[str, Any], family: _Family) -> dict[str, Any]:
    """Our fields of RoPE from either notation: rope_theta and rope_scaling, or rope_parameters."""
    given = {name: contents.get(*outside) for name, outside in family.rotation.items()}
    if contents.get("rope_scaling") and contents.get("rope_parameters"):
        raise FileError(f"{path}: expected rope_scaling or rope_parameters; got both")
    for name in ("rope_scaling", "rope_parameters"):
        more = contents.get(name) or {}
        if not isinstance(more, dict):
            raise FileError(f"{path}: expected {name} by name; got {more!r:.80}")
        given |= more
    kind = given.pop("rope_type", given.pop("type", "default"))
    given.pop("type", None)  # the older notation next to the newer one
    found = {"theta": given.pop("rope_theta"), "rotated": given.pop("partial_rotary_factor")}
    given.setdefault("original_max_position_embeddings", contents.get("max_position_embeddings"))
    if family.rotation is _LLAMA.rotation and found["rotated"] != 1:
        wanted = "expected partial_rotary_factor=1.0"
        raise FileError(f"{path}: {wanted}; got {found['rotated']!r:.80}")
    if kind == "llama3":
        names = "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"
        if missing := [name for name in names if name not in given]:
            raise FileError(f"{path}: expected {missing[0]} of the rotation; it is missing")
        *factors, length = (given.pop(name) for name in names)
        found["rope_scaling"] = (*(_real(factor) for factor in factors), length)
    elif kind == "default":
        del given["original_max_position_embeddings"]
    else:
        raise FileError(f"{path}: expected rope_type default or llama3; got {kind!r:.80}")
    if given:
        raise FileError(f"{path}: expected a known parameter of the rotation; got {min(given)}")
    return found


def _real(value: Any) -> Any:
    """An integer as a float, because JSON may write 10000 for 10000.0; anything else unchanged."""
    return float(value) if type(value) is int else value


def read_config(path: Path, contents: Mapping[str, Any]) -> LanguageModelConfig:
    """Our configuration of a published language model.

    Args: path: of the configuration, for messages.   contents: what config.json contains.
    Raises: FileError that names the field that is missing, unknown, or not supported.
    """
    family = _family(path, contents)
    fixed = {**_FIXED, **family.fixed}
    rope = _ROPE | {name for name, _ in family.rotation.values()} if family.rotation else set()
    known = {*family.fields.values(), *fixed, *rope, *_WITHOUT_INFLUENCE.split()}
    if unknown := sorted(contents.keys() - known - {"layer_types"}):
        raise FileError(f"{path}: expected the fields of a known model; got {unknown[0]} as well")
    for name, value in fixed.items():
        if contents.get(name, value) != value:
            raise FileError(f"{path}: expected {name}={value!r}; got {contents[name]!r:.80}")
    window = contents.get("sliding_window")  # has no influence in Qwen 3 unless it is enabled
    if window is not None and "use_sliding_window" not in family.fixed:
        raise FileError(f"{path}: expected no sliding_window; got {window!r:.80}")
    kinds = contents.get("layer_types") or []
    other = [kind for kind in kinds if kind != "full_attention"] if type(kinds) is list else [kinds]
    if other:
        raise FileError(f"{path}: expected layer_types of full_attention; got {other[0]!r:.80}")
    values = {**family.defaults, **contents}
    ours = {"norm_first": True, "scale_embeddings": False, **family.ours}
    for name, published in family.fields.items():
        if published not in values:
            raise FileError(f"{path}: expected {published}, which is missing")
        ours[name] = values[published]
    if ours["activation"] not in [*_ACTIVATIONS]:  # it may be of any type
        wanted = ", ".join(_ACTIVATIONS)
        field = family.fields["activation"]
        raise FileError(f"{path}: expected {field} out of {wanted}; got {ours['activation']!r:.80}")
    ours["activation"] = _ACTIVATIONS[ours["activation"]]
    if ours["d_ff"] is None and isinstance(ours["d_model"], int):
        ours["d_ff"] = 4 * ours["d_model"]
    if rope:
        ours |= _rotation(path, contents, family)
    ours |= {name: _real(ours[name]) for name in ("epsilon", "theta", "rotated") if name in ours}
    return settings(LanguageModelConfig, ours, str(path))


def _family(path: Path, contents: Mapping[str, Any]) -> _Family:
    kind = contents.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        wanted = ", ".join(FAMILIES)
        raise FileError(f"{path}: expected model_type out of {wanted}; got {kind!r:.80}")
    return FAMILIES[kind]


_WEIGHTS, _EXPECTED = "model.safetensors", "the weights of a language model"


def _read_weights(folder: Path) -> tuple[Path, dict[str, Tensor]]:
    """The file that names all tensors, and the tensors of one file or of several."""
    path, index = folder / _WEIGHTS, folder / f"{_WEIGHTS}.index.json"
    if path.exists() or not index.exists():
        return path, read_tensors(path, _EXPECTED)[0]
    found: dict[str, Tensor] = {}
    for file in weight_files(index):
        tensors, _ = read_tensors(folder / file, _EXPECTED)
        if twice := found.keys() & tensors.keys():
            raise FileError(f"{folder / file}: expected each tensor once; got {min(twice)} again")
        found |= tensors
    return index, found


def _published_name(family: _Family, name: str) -> str:
    """The published name of one of our parameters."""
    stem, _, kind = name.rpartition(".")
    inside = re.fullmatch(r"layers(\.\d+\.)(.+)", stem)
    theirs = family.layer + inside[1] + family.names[inside[2]] if inside else family.names[stem]
    return theirs + (".bias" if kind == "bias" else ".weight")


def _convert(path: Path, family: _Family, model: LanguageModel, found: Tensors) -> Tensors:
    """Our weights from the published tensors."""
    c = model.config
    found = {name: tensor for name, tensor in found.items() if not _BUFFER.fullmatch(name)}
    if twice := sorted(name for name in found if f"transformer.{name}" in found):
        wrong = f"{twice[0]} and transformer.{twice[0]}"
        raise FileError(f"{path}: expected each tensor once; got {wrong}")
    found = {name.removeprefix("transformer."): tensor for name, tensor in found.items()}
    output, table = (family.names[name] + ".weight" for name in ("generator.proj", "embed.lut"))
    if c.tie_embeddings and output in found:
        if table not in found or not torch.equal(found[output], found[table]):
            raise FileError(f"{path}: expected {output} equal to {table}, to which it is tied")
        del found[output]
    ready, shapes, labels, used = {}, {}, {}, set()
    for name, parameter in model.named_parameters():
        published = _published_name(family, name)
        fused = family.take and _which(name) is not None
        labels[name] = label = f"{published} ({name.split('.')[-2]})" if fused else published
        shapes[label] = parameter.shape
        if published in found:
            used.add(published)
            with reading(path, f"{published} as a part of {label}"):
                take, tensor = family.take, found[published]
                ready[label] = take(name, tensor, c) if take else tensor
    ready |= {name: tensor for name, tensor in found.items() if name not in used}
    checked = check_weights(path, ready, shapes)
    return {name: checked[label] for name, label in labels.items()}


def load_language_model(
    source: Path | str, device: torch.device | str = "cpu", dtype: torch.dtype | str = "float32"
) -> TextGenerator:
    """A trained language model.

    Args:
        source: "tatoeba-en", which comes with the package; a folder with config.json, and
            model.safetensors or several files and their index, of Llama, SmolLM2, Qwen 3, GPT-2,
            or Pythia and other models of GPT-NeoX; the name of such a model on the Hub,
            "OWNER/NAME" or "OWNER/NAME@REVISION"; or a GGUF file of Llama's kind.
        device: where it computes, such as "cuda".   dtype: "float32", "bfloat16" or "float16".

    Returns: the model, in evaluation mode, with its tokenizer.

    Raises: InputError for an unknown source, device or dtype; MissingFile or FileError that names
        the file, and the field or tensor that is missing, unknown, or not supported; MissingExtra
        for a GGUF file without the extra gguf.

    >>> print(load_language_model("tatoeba-en").generate("I don't think", 20, top_k=1))
    """
    known = {str(kind).removeprefix("torch."): kind for kind in _DTYPES}
    kind = known.get(str(dtype).removeprefix("torch."))
    if kind is None:
        raise InputError(f"expected a dtype out of {', '.join(known)}; got {dtype!r:.80}")
    usable_device(device)
    generator = _load(language_model_folder(source))
    generator.model.to(device, kind)
    return generator


_DTYPES = torch.float32, torch.bfloat16, torch.float16


def _load(path: Path) -> TextGenerator:
    if path.suffix == ".gguf" or (path.exists() and not path.is_dir()):
        found = read_gguf(path)
        model = _build(path, found.config, path, found.tensors)
        stop = _stop(path, found.stop, model.config.vocab)
        return TextGenerator(model, found.tokenizer, stop, found.template, found.symbols)
    contents = read_json(path / "config.json", "the configuration of a language model")
    if contents.keys() == LanguageModelConfig.__dataclass_fields__.keys():
        return _load_own(path, contents)
    read_config(path / "config.json", contents)  # before gigabytes are read
    model = _build(path / "config.json", contents, *_read_weights(path))
    told, said = {}, path / "generation_config.json"
    if (path / "tokenizer_config.json").exists():
        told = read_json(path / "tokenizer_config.json", "the settings of a tokenizer")
    ends = _ends(path / "config.json", contents)
    if said.exists():  # only its ends are those of a text, even if it has none
        ends = _ends(said, read_json(said, "the settings of generation"))
    stop = _stop(path, ends, model.config.vocab)
    tokenizer, symbols = read_causal_tokenizer(path, contents, told)
    return TextGenerator(model, tokenizer, stop, _read_template(path, told), symbols)


def _load_own(folder: Path, contents: dict[str, Any]) -> TextGenerator:
    """A language model in the book's format, for which each text follows the end of another."""
    config, path = settings(LanguageModelConfig, contents, str(folder)), folder / _WEIGHTS
    with torch.device("meta"):
        model = LanguageModel(config).eval()
    found = as_floats(path, read_tensors(path, _EXPECTED)[0])
    weights = check_weights(path, found, {name: p.shape for name, p in model.named_parameters()})
    tokenizer = read_tokenizer(folder / "tokenizer.json", config.vocab)
    end = SPECIALS[END]
    tokenizer.post_processor = TemplateProcessing(f"{end} $A", None, [(end, END)])
    return TextGenerator(with_weights(model, weights), tokenizer, frozenset({END}))


def _ends(path: Path, contents: Mapping[str, Any]) -> list[int]:
    """The ids that end a text; files contain none, one, or several."""
    ends = contents.get("eos_token_id")
    listed = ends if isinstance(ends, list) else [] if ends is None else [ends]
    if not all(type(end) is int for end in listed):
        raise FileError(f"{path}: expected eos_token_id as one or several ids; got {ends!r:.80}")
    return listed


def _stop(path: Path, ends: list[int], vocab: int) -> frozenset[int]:
    """These ids, with a warning of those that no text contains."""
    for end in ends:
        if not 0 <= end < vocab:
            warnings.warn(f"{path}: eos_token_id {end} is no id of the model", stacklevel=3)
    return frozenset(ends)


def _read_template(folder: Path, told: Mapping[str, Any]) -> str | None:
    """The chat template of a folder; files of their own win over tokenizer_config.json."""
    for path in folder / OTHER_TEMPLATES / "default.jinja", folder / "chat_template.jinja":
        if path.exists():
            with reading(path, "a chat template"):
                require_regular(path)
                return path.read_text(encoding="utf-8")
    if [*(folder / OTHER_TEMPLATES).glob("*.jinja")]:  # none of them is the default
        return None
    template = told.get("chat_template")
    with reading(folder / "tokenizer_config.json", "chat_template as a text, or several by name"):
        if isinstance(template, list):
            template = {each["name"]: each["template"] for each in template}
        if isinstance(template, dict):
            template = template.get("default")
        if template is not None and not isinstance(template, str):
            raise ValueError(f"{template!r:.80}")
    return template


def _build(path: Path, contents: Mapping[str, Any], weights: Path, found: Tensors) -> LanguageModel:
    """A model from its configuration and tensors; the files of both are for messages."""
    config, family = read_config(path, contents), _family(path, contents)
    layers = {int(number[1]) for name in found if (number := re.search(r"\.(\d+)\.", f".{name}"))}
    if (got := len(layers)) != config.N:  # before 100,000 layers are built
        wanted = f"{family.fields['N']}={config.N} layers"
        raise FileError(f"{path}: expected {wanted}; got {got} in {weights}")
    with reading(path, "the configuration of a model that can be built"), torch.device("meta"):
        model = LanguageModel(config).eval()
    return with_weights(model, _convert(weights, family, model, found))
