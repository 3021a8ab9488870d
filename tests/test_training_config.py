"""Section 5.2: a wrong option is refused at once, and the presets are the paper's."""

import json
import math
from dataclasses import asdict, replace
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from annotated.machinery.errors import InputError
from annotated.machinery.runs.checkpoints import read_config
from annotated.machinery.runs.trainer import train
from annotated.model import TransformerConfig, build_model
from annotated.training import PRESETS, TrainingConfig, model_config, preset


@pytest.mark.parametrize(
    "change",
    [
        {"N": 0}, {"updates": -3}, {"dropout": 1.0}, {"label_smoothing": 1.5},
        {"vocabulary": "words"}, {"precision": "int8"}, {"data": "multi30k"}, {"h": 5},
        {"save_updates": 0}, {"factor": math.nan}, {"factor": math.inf}, {"seed": 1.5}, {"N": None},
        {"N": True}, {"d_ff": "32"}, {"compile": "no"}, {"data": 3}, {"out": b"x"}, {"out": ""},
    ],
)  # fmt: skip
def test_a_wrong_option_is_refused_by_name(change: dict):
    with pytest.raises(ValueError, match="d_model" if "h" in change else next(iter(change))):
        TrainingConfig(**change)


def test_the_papers_presets():
    """Sections 5.1 to 5.4, Table 3, and the parameter counts of its first and last row."""
    base, big = preset("base-en-de"), preset("big-en-de", out="x")
    assert (base.N, base.d_model, base.d_ff, base.h, base.dropout) == (6, 512, 2048, 8, 0.1)
    large = 1024, 4096, 16, 0.3, 300_000
    assert (big.d_model, big.d_ff, big.h, big.dropout, big.updates) == large
    assert (base.updates, base.warmup, base.average, base.save_updates) == (100_000, 4000, 5, 1500)
    assert base.src_tokens == base.tgt_tokens == 25_000 and base.label_smoothing == 0.1
    assert preset("big-en-fr").dropout == 0.1 and preset("big-en-fr").average == 20
    assert (base.out, big.out) == ("runs/base-en-de", "x")
    assert model_config(base) == TransformerConfig.base(37000, max_len=512)
    assert model_config(big) == TransformerConfig.big(37000, max_len=512)
    assert (base.vocabulary, preset("big-en-fr").vocabulary) == ("bpe", "wordpiece")
    assert preset("big-en-fr").vocab_size == 32_000
    for name in PRESETS.keys() - {"craft-parser", "parser-wsj", "parser-semi"}:
        assert preset(name).data.rsplit("-", 2)[1:] == name.rsplit("-", 2)[1:]
    with pytest.raises(InputError, match="multi30k-en-de"):
        preset("huge")


@pytest.mark.parametrize(
    ("name", "pieces", "data"), [("parser-wsj", 16_000, "penn"), ("parser-semi", 32_000, "semi")]
)
def test_the_papers_parsers_differ_from_base_as_section_6_3_says(name, pieces, data):
    base, parser = asdict(preset("base-en-de")), asdict(preset(name))
    changed = {"out": f"runs/{name}", "data": f"runs/{data}-words-trees", "vocab_size": pieces}
    changed |= {"N": 4, "d_model": 1024, "max_pieces": 1000}
    assert {key: parser[key] for key in base if parser[key] != base[key]} == changed
    model = model_config(preset(name))
    assert model == TransformerConfig.base(pieces, N=4, d_model=1024, max_len=1002)
    assert model.h == 8 and model.d_k in (None, 128)


def test_the_dropout_of_attention_reaches_the_model_and_older_runs_have_none(tmp_path: Path):
    config = TrainingConfig(N=1, attention_dropout=0.25)
    assert build_model(model_config(config)).decoder.layers[0].src_attn.dropout.p == 0.25
    old = {name: value for name, value in asdict(config).items() if name != "attention_dropout"}
    (tmp_path / "training.json").write_text(json.dumps(old), encoding="utf-8")
    assert read_config(tmp_path).attention_dropout == 0


def test_tensorboard_is_required_before_anything_is_done(config, monkeypatch: pytest.MonkeyPatch):
    folder = ModuleSpec("tensorboard", None)  # as that of a folder which is called so
    monkeypatch.setattr("annotated.machinery.runs.trainer.find_spec", lambda name: folder)
    with pytest.raises(InputError, match="pip install tensorboard"):
        train(replace(config, tensorboard=True))
    assert not Path(config.out).exists()
