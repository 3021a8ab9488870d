"""Language models as they are published: ids of prompts and chats, and logits, of transformers."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from annotated.machinery.errors import FileError, InputError
from annotated.machinery.formats.causal import load_language_model

pytest.importorskip("transformers")

import transformers
from published_models import CHATML, LLAMA, PUBLISHED, SMOLLM2_TEMPLATE, TEXT, trained

PROMPTS = [
    *TEXT,
    "a",
    " two  spaces ",
    "\n\n\ttab\n",
    "e\u0301 日本 \U0001f601",
    "<unk> 12 345 6789",
]
PROMPTS += [" ".join(CHATML), "<s>x</s> <s> y", "<|begin_of_text|>a<|eot_id|>\n"]
REFUSED = {"Qwen 2.5": "qwen2", "Mistral": "mistral"}


def with_weights(folder: Path) -> None:
    """Random weights for the configuration in a folder, which stays as it is published."""
    config = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.normal_(mean=float("norm" in name or "ln_" in name), std=0.3)
    model.save_pretrained(folder / "saved")
    (folder / "saved" / "model.safetensors").rename(folder / "model.safetensors")


def write(name: str, folder: Path) -> None:
    kind, specials, files = PUBLISHED[name]
    for file, contents in (files | {"tokenizer.json": trained(kind, specials)}).items():
        (folder / file).write_text(json.dumps(contents))
    with_weights(folder)


@torch.no_grad()
def compare(folder: Path) -> None:
    """Everything that a prompt or a message yields, here and in transformers."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ours = load_language_model(folder)
    assert ours.tokenizer is not None
    for prompt in PROMPTS:
        ids = tokenizer(prompt)["input_ids"]
        assert ours.encode(prompt) == ids, prompt
        assert ours.tokenizer.decode(ids) == tokenizer.decode(ids, skip_special_tokens=True)
        logits = model(torch.tensor([ids])).logits
        torch.testing.assert_close(ours.model(torch.tensor([ids])), logits, atol=2e-5, rtol=1e-4)
    messages = PROMPTS[::3] if tokenizer.chat_template else []
    for message in messages:
        opened = [{"role": "user", "content": message}]
        options: dict[str, Any] = {"add_generation_prompt": True, "return_dict": False}
        assert ours.encode(message, chat=True) == tokenizer.apply_chat_template(opened, **options)
    if not messages:
        with pytest.raises(InputError, match="expected a model with a chat template"):
            ours.encode("hello", chat=True)
    ends = model.generation_config.eos_token_id
    assert ours.stop == {*(ends if isinstance(ends, list) else [ends])}


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_model_is_what_transformers_makes_of_it(name: str, tmp_path: Path):
    write(name, tmp_path)
    if name not in REFUSED:
        compare(tmp_path)
        return
    with pytest.raises(FileError, match=f"expected model_type out of .*; got '{REFUSED[name]}'"):
        load_language_model(tmp_path)


@pytest.mark.slow
def test_a_fine_tune_that_transformers_5_saves(tmp_path: Path):
    """It writes the chat template as a file, which wins over an outdated field."""
    (tmp_path / "tokenizer.json").write_text(json.dumps(trained("smollm", CHATML)))
    file = str(tmp_path / "tokenizer.json")
    symbols = {"bos_token": CHATML[1], "eos_token": CHATML[2], "pad_token": "<pad>"}
    symbols |= {"chat_template": SMOLLM2_TEMPLATE}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=file, **symbols)
    config = {name: LLAMA[name] for name in LLAMA if name not in ("architectures", "model_type")}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config))
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert (tmp_path / "chat_template.jinja").read_text() == SMOLLM2_TEMPLATE
    compare(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": "outdated"}))
    compare(tmp_path)
    (tmp_path / "additional_chat_templates").mkdir()
    default = tmp_path / "additional_chat_templates" / "default.jinja"
    default.write_text("{{ messages[0].content }}")
    compare(tmp_path)
    default.rename(default.with_name("tool_use.jinja"))
    compare(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    assert load_language_model(tmp_path).template is None  # as apply_chat_template refuses
