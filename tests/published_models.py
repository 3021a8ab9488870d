"""Configurations, tokenizers and chat templates of language models as they are published.

Fields and templates are those of the public files; sizes are small, and a tokenizer of the same
kind is trained on a few sentences.
"""

import json
from typing import Any

from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)  # fmt: skip

TEXT = [
    "The capital of France is Paris. What is the capital of Germany? It is Berlin, isn't it?",
    "In 2017, attention was all you need; in 2024 there are 1234 models (and 56 more).",
    "Der Hund läuft über die Straße. Ça va très bien, merci! \U0001f600",
    "\n\n  def f(x):\n    return x  # both\n\n\n",
]

Contents = dict[str, Any]


def trained(kind: str, specials: list[str]) -> Contents:
    """tokenizer.json with pieces of TEXT, the special ones first."""
    initial = pre_tokenizers.ByteLevel.alphabet()
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if kind == "sentencepiece":  # Llama 2
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
        steps = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        tokenizer.normalizer = normalizers.Sequence(steps)
        steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
        all_bytes, initial = [f"<0x{i:02X}>" for i in range(256)], []
    else:
        tokenizer, all_bytes = Tokenizer(models.BPE()), []
        words = QWEN if kind == "qwen" else QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|")
        split = pre_tokenizers.Split(Regex(words), "isolated")
        plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = {
            "gpt2": byte_level,
            "neox": byte_level,
            "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(True), byte_level]),
        }.get(kind) or pre_tokenizers.Sequence([split, plain])
        tokenizer.decoder = decoders.ByteLevel()
        if kind in ("qwen", "neox"):
            tokenizer.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=[*specials, *all_bytes], initial_alphabet=initial,
        show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator(TEXT, trainer)
    if kind in ("sentencepiece", "llama3"):
        first = specials[1] if kind == "sentencepiece" else specials[0]
        known = [(first, tokenizer.token_to_id(first))]
        begin = processors.TemplateProcessing(f"{first} $A", f"{first} $A {first}:1 $B:1", known)
        several = [processors.ByteLevel(trim_offsets=True), begin]
        tokenizer.post_processor = begin if kind != "llama3" else processors.Sequence(several)
    contents = json.loads(tokenizer.to_str())
    contents["added_tokens"] = contents["added_tokens"][: len(specials)]
    return contents


QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def decoder(specials: list[str]) -> Contents:
    """The symbols in tokenizer_config.json, in the form of 2023 and later."""
    flags = dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word"), False)
    tokens = {str(i): {"content": s, **flags, "special": True} for i, s in enumerate(specials)}
    return {"added_tokens_decoder": tokens, "model_max_length": 2048}


LLAMA2_TEMPLATE = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
    "{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
    "{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception("
    "'Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + "
    "system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}"
    "{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}"
    "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}"
    "{% endif %}{% endfor %}"
)
LLAMA3_TEMPLATE = """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- if tools_in_user_message and not tools is none %}
    {{- raise_exception("Cannot put tools in the first user message!") }}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
        {{- message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- message.content | tojson }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
TINYLLAMA_TEMPLATE = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>
'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""
SMOLLM2_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}"
)
QWEN3_TEMPLATE = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
        {{- '<|im_start|>' + message.role + '\\n' + content }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""  # noqa: E501
DIALOGPT_TEMPLATE = "{% for message in messages %}{{ message.content }}{{ eos_token }}{% endfor %}"

SMALL = {
    "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2,
    "max_position_embeddings": 2048, "vocab_size": 448, "hidden_act": "silu",
    "initializer_range": 0.02, "use_cache": True,
}  # fmt: skip
LLAMA = SMALL | {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_key_value_heads": 2,
    "rms_norm_eps": 1e-05, "pretraining_tp": 1, "tie_word_embeddings": False,
    "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GPT2 = {
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
    "bos_token_id": 0, "eos_token_id": 0, "embd_pdrop": 0.1, "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 32, "n_head": 4,
    "n_layer": 2, "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": None,
    "summary_first_dropout": 0.1, "summary_proj_to_labels": True, "summary_type": "cls_index",
    "summary_use_proj": True, "vocab_size": 448,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
}  # fmt: skip
QWEN3 = SMALL | {
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "bos_token_id": 0, "eos_token_id": 2, "head_dim": 16, "max_window_layers": 28,
    "model_type": "qwen3", "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_scaling": None,
    "rope_theta": 1000000, "sliding_window": None, "tie_word_embeddings": True,
    "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_sliding_window": False,
}  # fmt: skip
CHATML = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TURNS = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>"]
TURNS += ["<|eot_id|>"]
SYMBOLS = ["<unk>", "<s>", "</s>"]
as_object = lambda text: {
    "__type": "AddedToken", "content": text, "lstrip": False, "normalized": False, "rstrip": False,
    "single_word": False,
}  # fmt: skip
OF_LLAMA = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
END = "<|endoftext|>"
PHI = {"bos_token": END, "eos_token": END, "unk_token": END}

# Name: the kind of tokenizer and its symbols, and the files of the folder.
PUBLISHED: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "Llama 2": ("sentencepiece", SYMBOLS, {
        "config.json": LLAMA | {
            "_name_or_path": "meta-llama/Llama-2-7b-chat-hf", "rope_scaling": None,
            "torch_dtype": "float16", "transformers_version": "4.32.0.dev0",
        },
        "generation_config.json": {
            "bos_token_id": 1, "do_sample": True, "eos_token_id": 2, "pad_token_id": 0,
            "temperature": 0.6, "max_length": 4096, "top_p": 0.9,
        },
        "tokenizer_config.json": {
            "add_bos_token": True, "add_eos_token": False, "legacy": False, "pad_token": None,
            "bos_token": as_object("<s>"), "eos_token": as_object("</s>"),
            "unk_token": as_object("<unk>"), "clean_up_tokenization_spaces": False,
            "padding_side": "right", "sp_model_kwargs": {}, "tokenizer_class": "LlamaTokenizer",
            "model_max_length": 1000000000000000019884624838656, "chat_template": LLAMA2_TEMPLATE,
        },
        "special_tokens_map.json": {
            name: {k: v for k, v in as_object(text).items() if k != "__type"}
            for name, text in OF_LLAMA.items()
        },
    }),
    "Llama 3": ("llama3", TURNS, {
        "config.json": LLAMA | {
            "bos_token_id": 0, "eos_token_id": [1, 4], "head_dim": 8, "mlp_bias": False,
            "rope_scaling": {
                "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                "original_max_position_embeddings": 64, "rope_type": "llama3",
            },
            "rope_theta": 500000.0, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
        },
        "generation_config.json": {"bos_token_id": 0, "eos_token_id": [1, 4], "do_sample": True},
        "tokenizer_config.json": decoder(TURNS) | {
            "bos_token": TURNS[0], "eos_token": TURNS[4], "chat_template": LLAMA3_TEMPLATE,
            "clean_up_tokenization_spaces": True, "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": ["input_ids", "attention_mask"],
        },
        "special_tokens_map.json": {"bos_token": TURNS[0], "eos_token": TURNS[4]},
    }),
    "TinyLlama": ("sentencepiece", SYMBOLS, {
        "config.json": LLAMA | {
            "rope_scaling": None, "rope_theta": 10000.0, "torch_dtype": "bfloat16",
            "transformers_version": "4.35.0",
        },
        "generation_config.json": {"bos_token_id": 1, "eos_token_id": 2, "max_length": 2048},
        "tokenizer_config.json": decoder(SYMBOLS) | OF_LLAMA | {
            "chat_template": TINYLLAMA_TEMPLATE, "legacy": False, "pad_token": "</s>",
            "sp_model_kwargs": {}, "tokenizer_class": "LlamaTokenizer",
            "use_default_system_prompt": False, "clean_up_tokenization_spaces": False,
        },
    }),
    "SmolLM2": ("smollm", CHATML, {
        "config.json": LLAMA | {
            "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2, "is_llama_config": True,
            "mlp_bias": False, "rope_interleaved": False, "rope_scaling": None,
            "rope_theta": 100000, "tie_word_embeddings": True,
            "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}},
        },
        "tokenizer_config.json": decoder(CHATML) | {
            "add_prefix_space": False, "additional_special_tokens": CHATML[1:],
            "bos_token": CHATML[1], "eos_token": CHATML[2], "pad_token": CHATML[2],
            "unk_token": END, "vocab_size": 448, "chat_template": SMOLLM2_TEMPLATE,
            "clean_up_tokenization_spaces": False, "tokenizer_class": "GPT2Tokenizer",
        },
    }),
    "Qwen 2.5": ("qwen", CHATML, {
        "config.json": {k: v for k, v in QWEN3.items() if k not in ("head_dim", "attention_bias")}
        | {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]},
    }),
    "Qwen 3": ("qwen", CHATML, {
        "config.json": QWEN3,
        "generation_config.json": {
            "bos_token_id": 0, "do_sample": True, "eos_token_id": [2, 0], "pad_token_id": 0,
            "temperature": 0.6, "top_k": 20, "top_p": 0.95,
        },
        "tokenizer_config.json": decoder(CHATML) | {
            "add_bos_token": False, "add_prefix_space": False, "bos_token": None,
            "additional_special_tokens": CHATML[1:], "chat_template": QWEN3_TEMPLATE,
            "clean_up_tokenization_spaces": False, "eos_token": CHATML[2], "errors": "replace",
            "pad_token": END, "split_special_tokens": False, "tokenizer_class": "Qwen2Tokenizer",
            "unk_token": None,
        },
    }),
    "Mistral": ("sentencepiece", SYMBOLS, {
        "config.json": LLAMA | {"model_type": "mistral", "sliding_window": None},
    }),
    "GPT-2": ("gpt2", [END], {
        "config.json": GPT2,
        "tokenizer_config.json": {"model_max_length": 1024},
    }),
    "DistilGPT2": ("gpt2", [END], {
        "config.json": GPT2 | {
            "_num_labels": 1, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0},
        },
        "generation_config.json": {"bos_token_id": 0, "eos_token_id": 0},
        "tokenizer_config.json": {"model_max_length": 1024},
    }),
    "DialoGPT": ("gpt2", [END], {
        "config.json": GPT2 | {"task_specific_params": {"conversational": {"max_length": 1000}}},
        "tokenizer_config.json": {"model_max_length": 1024, "chat_template": DIALOGPT_TEMPLATE},
    }),
    "Pythia": ("neox", [END, "<|padding|>"], {
        "config.json": {k: v for k, v in SMALL.items() if k != "hidden_act"} | {
            "architectures": ["GPTNeoXForCausalLM"], "bos_token_id": 0, "eos_token_id": 0,
            "hidden_act": "gelu", "layer_norm_eps": 1e-05, "model_type": "gpt_neox",
            "rotary_emb_base": 10000, "rotary_pct": 0.25, "tie_word_embeddings": False,
            "torch_dtype": "float16", "transformers_version": "4.24.0",
            "use_parallel_residual": True,
        },
        "tokenizer_config.json": PHI | {
            "add_prefix_space": False, "name_or_path": "EleutherAI/gpt-neox-20b",
            "special_tokens_map_file": "/fsx/home/.cache/special_tokens_map.json",
            "tokenizer_class": "GPTNeoXTokenizer",
        },
        "special_tokens_map.json": PHI,
    }),
}  # fmt: skip
