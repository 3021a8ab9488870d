"""Section 5.2: a wrong option is refused at once, and the presets are the paper's."""

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from annotated.machinery.cli import main
from annotated.machinery.files import write_text
from annotated.machinery.training.folder import read_config
from annotated.machinery.training.launcher import train_command
from annotated.machinery.translator import load_pretrained
from annotated.model import TransformerConfig, build_model
from annotated.training import PRESETS, TrainingConfig, model_config, preset


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"N": 0}, "expected N of at least 1; got 0"),
        ({"updates": -3}, "expected updates of at least 1; got -3"),
        ({"dropout": 1.0}, r"expected dropout in \[0, 1\); got 1.0"),
        ({"label_smoothing": 1.5}, r"expected label_smoothing in \[0, 1\); got 1.5"),
        ({"vocabulary": "words"}, "expected vocabulary out of bpe, wordpiece; got 'words'"),
        ({"precision": "int8"}, "expected precision out of auto"),
        ({"data": "multi30k"}, "expected data as CORPUS-SRC-TGT"),
        ({"h": 5}, "d_model"),
        ({"save_updates": 0}, "expected save_updates or save_minutes above 0"),
        ({"factor": math.nan}, "expected factor as a finite float; got nan"),
        ({"factor": math.inf}, "expected factor as a finite float; got inf"),
        ({"seed": 1.5}, "expected seed as int; got 1.5"),
        ({"N": None}, "expected N as int; got None"),
        ({"N": True}, "expected N as int; got True"),
        ({"d_ff": "32"}, "expected d_ff as int; got '32'"),
        ({"compile": "no"}, "expected compile as bool; got 'no'"),
        ({"data": 3}, "expected data as str; got 3"),
        ({"out": b"x"}, "expected out as str; got b'x'"),
    ],
)
def test_a_wrong_option_is_refused_at_once(change: dict, message: str):
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**change)


def test_the_papers_presets():
    """Sections 5.1 to 5.4, Table 3, and the parameter counts of its first and last row."""
    base, big = preset("base-en-de"), preset("big-en-de", out="x")
    assert (base.N, base.d_model, base.d_ff, base.h, base.dropout) == (6, 512, 2048, 8, 0.1)
    assert (big.d_model, big.d_ff, big.h, big.dropout, big.updates) == (
        1024,
        4096,
        16,
        0.3,
        300_000,
    )
    assert (base.updates, base.warmup, base.average, base.save_updates) == (100_000, 4000, 5, 1500)
    assert base.src_tokens == base.tgt_tokens == 25_000 and base.label_smoothing == 0.1
    assert preset("big-en-fr").dropout == 0.1 and preset("big-en-fr").average == 20
    assert (base.out, big.out) == ("runs/base-en-de", "x")
    assert model_config(base) == TransformerConfig.base(37000, max_len=512)
    assert model_config(big) == TransformerConfig.big(37000, max_len=512)
    for name in PRESETS.keys() - {"craft-parser", "parser-wsj", "parser-semi"}:
        assert preset(name).data.rsplit("-", 2)[1:] == name.rsplit("-", 2)[1:]
    with pytest.raises(ValueError, match="expected a preset out of multi30k-en-de"):
        preset("huge")


@pytest.mark.parametrize(
    ("name", "pieces", "data"), [("parser-wsj", 16_000, "penn"), ("parser-semi", 32_000, "semi")]
)
def test_the_papers_parsers_differ_from_base_as_section_6_3_says(name, pieces, data):
    base, parser = asdict(preset("base-en-de")), asdict(preset(name))
    assert {key: parser[key] for key in base if parser[key] != base[key]} == {
        "out": f"runs/{name}",
        "data": f"runs/{data}-words-trees",
        "vocab_size": pieces,
        "N": 4,
        "d_model": 1024,
        "max_pieces": 1000,
    }
    model = model_config(preset(name))
    assert model == TransformerConfig.base(pieces, N=4, d_model=1024, max_len=1002)
    with torch.device("meta"):
        attention = build_model(model).encoder.layers[0].self_attn
    assert (attention.h, attention.d_k, attention.d_v) == (8, 128, 128)


def test_the_dropout_of_attention_reaches_the_model(config: TrainingConfig):
    options = train_command(replace(config, updates=1, save_updates=1), 1)
    main([*options[options.index("train") :], "--attention-dropout", "0.25"])
    folder = Path(config.out)
    assert read_config(folder).attention_dropout == 0.25
    attention = load_pretrained(str(folder)).model.decoder.layers[0].src_attn
    assert attention.dropout.p == 0.25
    old = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    del old["attention_dropout"]  # a run from before there was such an option
    write_text(folder / "training.json", json.dumps(old))
    assert read_config(folder).attention_dropout == 0


def test_tensorboard_is_asked_for_before_anything_is_done(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("annotated.machinery.training.checks.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install tensorboard"):
        TrainingConfig(tensorboard=True)
