"""Runs that continue from a trained model: what they take from it, and that they learn."""

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest
from firefox_models import packed, tiny_items
from safetensors.numpy import load_file as tensors
from small_runs import assert_same_run, equal, refused, same
from tiny import TOKENIZER, wild

import annotated
from annotated import MultiHeadedAttention, export_model
from annotated.machinery.cli.main import main
from annotated.machinery.errors import InputError
from annotated.machinery.formats.pretrained import load_pretrained
from annotated.machinery.runs.fine_tuning import fine_tuning
from annotated.machinery.runs.launcher import train_command
from annotated.machinery.runs.logs import read_log
from annotated.machinery.runs.trainer import start_run, train
from annotated.machinery.translator import Translator
from annotated.model import build_model
from annotated.training import TrainingConfig

FEW = {"updates": 30, "save_updates": 10, "log_updates": 10, "warmup": 5, "factor": 0.05}


def firefox(folder: Path) -> Path:
    from marian_models import ENGLISH, GERMAN, piece_model

    folder.mkdir()
    pieces = piece_model(folder / "vocab.test.spm", ENGLISH + GERMAN, bos_id=-1, eos_id=0, unk_id=1)
    (folder / "model.test.bin").write_bytes(packed(tiny_items(len(pieces) + 2)))
    return folder


def marian(folder: Path) -> Path:
    from marian_models import published

    published(folder)
    return folder


def ours(folder: Path) -> Path:
    """With biases, heads of another width, and 600 learned positions."""
    options = {"tie_embeddings": True, "max_len": 600, "bias": True, "d_k": 6}
    Translator(wild(TOKENIZER.get_vocab_size(), **options), TOKENIZER).save(folder)
    return folder


def exported(folder: Path) -> Path:
    options = {"tie_embeddings": True, "positions": "sinusoidal", "bias": True}
    translator = Translator(wild(TOKENIZER.get_vocab_size(), **options), TOKENIZER)
    export_model(translator, "huggingface", folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("make", [ours, exported, marian, firefox])
def test_a_model_of_any_format_learns_a_small_corpus(make, corpus: Path, tmp_path: Path):
    """Its vocabulary and architecture stay, and where it could be exported, it still can be."""
    model = make(tmp_path / "model")
    run = fine_tuning(model, data=f"{corpus}-en-de", out=str(tmp_path / "run"), **FEW)
    before = start_run(run).dev_loss()
    train(run, resume=True)
    losses = [float(row["dev_loss"]) for row in read_log(tmp_path / "run" / "log.csv")]
    assert losses[-1] < losses[0] < before
    was, now = load_pretrained(model), load_pretrained(run.out)
    free = {"max_len": 0} if was.model.config.positions != "learned" else {}
    assert asdict(now.model.config) | free == asdict(was.model.config) | free
    for side in "tokenizer", "target_tokenizer":
        one, two = (getattr(each, side) or each.tokenizer for each in (was, now))
        assert one.get_vocab() == two.get_vocab()
        assert one.encode("the two dogs").ids == two.encode("the two dogs").ids
    if make in (exported, marian):
        export_model(now, "huggingface", tmp_path / "out")
        assert load_pretrained(tmp_path / "out").translate("one two.", beam=1) is not None


@pytest.mark.parametrize("make", [ours, firefox])
def test_a_rate_of_zero_leaves_the_weights_as_they_are(make, corpus: Path, tmp_path: Path):
    model, data = make(tmp_path / "model"), f"{corpus}-en-de"
    run = fine_tuning(model, data=data, out=str(tmp_path / "run"), **FEW | {"factor": 0.0})
    trainer = start_run(run)
    assert equal(trainer.model, load_pretrained(model).model)
    trainer.train_step(next(trainer.stream.updates(0, 0)))
    assert equal(trainer.model, load_pretrained(model).model)


@pytest.mark.slow
def test_a_run_that_was_stopped_continues_exactly(config, tmp_path: Path):
    """The model with which it began is needed no more."""
    first = train(config)
    one = fine_tuning(first, data=config.data, **FEW, out=str(tmp_path / "one"))
    one = replace(one, schedule="constant")
    two = replace(one, out=str(tmp_path / "two"))
    train(one)
    train(replace(two, updates=20))
    (first / "model.safetensors").unlink()
    train(two, resume=True)
    assert_same_run(one, two)


def test_any_checkpoint_of_a_run_may_be_the_first(config, tmp_path: Path):
    folder = train(config)
    for named, file in ("30", "checkpoint-00000030"), ("", "model"):
        weights = tensors(folder / f"{file}.safetensors")
        run = fine_tuning(folder, named, data=config.data, out=str(tmp_path / f"on{named}"))
        its = dict(start_run(run).model.named_parameters())
        kept = {name: weights.get(f"model.{name}", weights.get(name)) for name in its}
        assert same(kept, {name: x.detach().numpy() for name, x in its.items()})


class Mine(MultiHeadedAttention):
    pass


@pytest.mark.slow
def test_parts_of_ones_own_are_given_again(config, tmp_path: Path):
    build = partial(build_model, attention=Mine)
    folder = train(config, build=build)
    with pytest.raises(InputError, match="attention=Mine"):
        fine_tuning(folder, data=config.data)
    on = fine_tuning(folder, build=build, data=config.data, out=str(tmp_path / "on"), **FEW)
    assert load_pretrained(train(on, build=build), build=build).model.parts == {"attention": "Mine"}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--N 4", "N=1"),
        ("--d-model 32", "d_model=16"),
        ("--norm-first", "norm_first=False"),
        ("--vocab-size 90", "vocab_size=60"),
        ("--vocabulary wordpiece", "vocabulary=bpe"),
        ("--preset base-en-de", "N=1"),
        ("--checkpoint 7", "10, 20, 30"),
    ],
)
def test_what_contradicts_the_model_is_refused_by_name(run_once, capsys, options: str, told: str):
    folder, data = run_once
    assert told in refused(f"train --from {folder} --data {data} --out new {options}", capsys)
    assert not Path("new").exists()


@pytest.fixture
def run_once(config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    monkeypatch.chdir(tmp_path)
    return train(replace(config, average=3)), config.data


@pytest.mark.slow
def test_other_languages_than_the_model_s_are_warned_of(run_once, recwarn, capsys):
    folder, data = run_once
    fine_tuning(folder, data=data.replace("-en-de", "-eng-deu"))
    assert not recwarn.list
    with pytest.warns(UserWarning, match=r"trained on en-de, .* are de-en"):
        fine_tuning(folder, data=data.replace("-en-de", "-de-en"))
    main(["evaluate", str(folder), "multi30k-en-fr", "--data", data, "--split", "dev"])
    (told,) = (line for line in capsys.readouterr().err.splitlines() if "trained on" in line)
    assert "multi30k-en-fr was trained on en-fr" in told and "en-de" in told


def test_models_that_cannot_be_trained_on_are_refused(run_once, tmp_path: Path, capsys):
    folder, data = run_once
    assert "data" in refused(f"train --from {folder}", capsys)
    assert "out of" in refused(f"train --from nothing --data {data}", capsys)
    untied = wild(TOKENIZER.get_vocab_size(), tie_embeddings=False)
    Translator(untied, TOKENIZER).save(tmp_path / "untied")
    assert "ties" in refused(f"train --from untied --data {data}", capsys)


@pytest.mark.parametrize("changes", [{}, {"schedule": "paper", "updates": 19_000, "dropout": 0.3}])
def test_a_launched_command_is_the_configuration(run_once, monkeypatch, changes: dict):
    """Also where an option has the default of other runs."""
    folder, data = run_once
    wanted, got = fine_tuning(folder, data=data, **changes), list[TrainingConfig]()
    monkeypatch.setattr(annotated, "train", lambda c, *_: got.append(c), raising=False)
    words = train_command(wanted, 1)
    main(words[words.index("annotated") + 1 :])
    assert got == [wanted]
