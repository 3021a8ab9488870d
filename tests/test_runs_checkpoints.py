"""The folder of a run: checkpoints are whole or absent, and a run goes on from the newest."""

import errno
import json
import os
import random
import shutil
import time
from dataclasses import asdict, replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from small_runs import assert_same_run, equal, last_update, refused, start, tensors
from torch import nn

from annotated.machinery.cli.main import main
from annotated.machinery.errors import FileError, InputError
from annotated.machinery.files import digest, write_tensors
from annotated.machinery.formats.pretrained import load_pretrained
from annotated.machinery.runs import checkpoints
from annotated.machinery.runs.checkpoints import (
    INTERRUPTED,
    RunState,
    list_checkpoints,
    write_checkpoint,
)
from annotated.machinery.runs.logs import Progress
from annotated.machinery.runs.processes import StopRequest
from annotated.machinery.runs.trainer import Trainer, start_run, train
from annotated.model import TransformerConfig
from annotated.optimizer import paper_optimizer
from annotated.training import TrainingConfig, model_config


@pytest.mark.processes
def test_kill_9_at_any_moment(config: TrainingConfig, tmp_path: Path):
    """Killed again and again, the run ends in the very same files."""
    config = replace(config, updates=400, save_updates=10)
    train(config)
    killed = replace(config, out=str(tmp_path / "killed"))
    random.seed(0)
    log, kills, reached = Path(killed.out) / "log.csv", 0, 0
    while kills < 3:
        process = start(killed)
        while process.poll() is None and last_update(log) < reached + 10:
            time.sleep(0.01)  # wait until it has got somewhere new, then let chance decide
        time.sleep(random.uniform(0, 0.3))
        kills += process.poll() is None
        process.kill()
        process.communicate()
        reached = last_update(log)
        assert reached < config.updates, "the run was over before it could be killed"
    assert start(killed).wait() == 0
    assert_same_run(config, killed)


@pytest.mark.slow
def test_a_damaged_checkpoint_is_set_aside(config: TrainingConfig, tmp_path: Path, capsys):
    """One whose progress was altered would go on from a wrong position in the data."""
    train(config)
    damages = {
        "cut off": lambda whole: whole[:-1],
        "altered": lambda whole: whole[:-1] + bytes([whole[-1] ^ 1]),
        "empty": lambda whole: b"",
        "other progress": lambda whole: whole.replace(rb"\"update\": 20", rb"\"update\": 29"),
    }
    for name, damage in damages.items():
        hurt = replace(config, out=str(tmp_path / name))
        train(replace(hurt, updates=20))
        path = list_checkpoints(hurt.out)[-1]
        whole = path.read_bytes()
        path.write_bytes(damage(whole))
        assert path.read_bytes() != whole
        with pytest.raises(ValueError, match=path.name):
            checkpoints.read_checkpoint(path)
        train(hurt, resume=True)
        said = "".join(capsys.readouterr())
        assert f"{path}: " in said
        assert path.with_name(path.name + ".damaged").exists()
        assert_same_run(config, hurt)


@pytest.mark.parametrize("lost", ["progress", "scaler", "config"])
def test_a_whole_checkpoint_of_other_content_is_set_aside(config, capsys, lost: str):
    train(replace(config, updates=20))
    path = list_checkpoints(config.out)[-1]
    found, state = checkpoints.read_checkpoint(path)
    text = json.dumps({name: value for name, value in asdict(state).items() if name != lost})
    write_tensors(path, found, {"state": text, "sha256": digest(found, text)})
    with pytest.raises(FileError, match=f"{path.name}.*{lost}"):
        checkpoints.average_checkpoints([path])
    train(config, resume=True)
    assert path.with_name(f"{path.name}.damaged").exists()


@pytest.mark.parametrize(
    "change", [{"exp_avg.encoder.layers.0.feed_forward.w_1.weight": None}, {"more": torch.ones(3)}]
)
def test_a_checkpoint_of_other_tensors_is_refused(config, capsys, change: dict):
    train(replace(config, updates=20))
    path = list_checkpoints(config.out)[-1]
    found, state = checkpoints.read_checkpoint(path)
    kept = {name: tensor for name, tensor in (found | change).items() if tensor is not None}
    write_checkpoint(path, kept, state)
    said = refused(config, capsys)
    assert said.startswith(f"{path}: ") and min(change) in said


@pytest.mark.parametrize(
    "name",
    [
        "model.safetensors",
        "config.json",
        "log.html",
        "README.md",
        ".saved",
        "checkpoint-00000030.safetensors",
    ],
)
def test_a_pipe_is_neither_read_nor_replaced(config: TrainingConfig, capsys, name: str):
    folder = train(config)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    for again in config, f"average {folder}":
        assert name in refused(again, capsys)
    assert (folder / name).is_fifo()


@pytest.mark.slow
def test_a_run_cut_off_between_log_and_checkpoint(config: TrainingConfig, tmp_path: Path):
    """The log has rows more than there are checkpoints, the last one torn; both are done again."""
    train(config)
    cut = replace(config, out=str(tmp_path / "cut"))
    train(replace(cut, updates=20))
    list_checkpoints(cut.out)[-1].unlink()
    with (Path(cut.out) / "log.csv").open("a") as file:
        file.write("25,3,0.0")
    train(cut, resume=True)
    assert_same_run(config, cut)


def half_written(tensors: dict, path: Path, metadata: dict[str, str]) -> None:
    path.write_bytes(b"half of a fi")
    raise OSError("no space left on device")


@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_written_costs_no_other(config, tmp_path, monkeypatch):
    train(config)
    other = replace(config, out=str(tmp_path / "other"))
    train(replace(other, updates=10))
    with monkeypatch.context() as patch:
        patch.setattr("safetensors.torch.save_file", half_written)
        with pytest.raises(OSError, match="no space"):
            train(other, resume=True)
    assert [path.name[:-12] for path in list_checkpoints(other.out)] == ["checkpoint-00000010"]
    train(other, resume=True)
    assert_same_run(config, other)


@pytest.mark.parametrize("average", [1, 3])
def test_the_model_is_the_mean_of_the_last_checkpoints_in_half_precision(config, average: int):
    config = replace(config, save_updates=5, average=average)
    folder = train(config)
    paths = [folder / f"checkpoint-{n:08d}.safetensors" for n in (20, 25, 30)][-average:]
    files = [tensors(path) for path in paths]
    model = tensors(folder / "model.safetensors")
    names = [name.removeprefix("model.") for name in files[0] if name.startswith("model.")]
    assert sorted(model) == sorted(names)
    for name in names:
        mean = np.mean([file[f"model.{name}"].astype(np.float64) for file in files], axis=0)
        assert model[name].dtype == np.float16
        np.testing.assert_allclose(model[name], mean, rtol=1e-3, atol=1e-7)
    shape = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert TransformerConfig(**shape) == model_config(config)


@pytest.mark.parametrize("done", [0, 3])
def test_a_restored_model_takes_the_same_next_step(tmp_path: Path, done: int):
    """Adam's moments come back too; before the first step they are zero."""
    model, other, path = nn.Linear(2, 1), nn.Linear(2, 1), tmp_path / "checkpoint"
    adam, others = (paper_optimizer(each, 16)[0] for each in (model, other))
    for i in range(done + 1):
        if i == done:
            before = RunState(Progress(done), {}, {})
            write_checkpoint(path, checkpoints.checkpoint_tensors(model, adam), before)
            tensors, state = checkpoints.read_checkpoint(path)
            checkpoints.restore_tensors(other, others, tensors)
            assert equal(model, other) and state == before
        x = torch.randn(3, 2)
        for each, optimizer in (model, adam), (other, others):
            optimizer.zero_grad()
            each(x).square().sum().backward()
            optimizer.step()
    assert equal(model, other)


def test_only_whole_numbers_name_checkpoints_and_their_order(tmp_path: Path):
    numbers = "99999999", "100000000", "00000007", "best", "99-copy", "", "٣"
    for number in numbers:
        (tmp_path / f"checkpoint-{number}.safetensors").touch()
    found = [int(path.stem[11:]) for path in list_checkpoints(tmp_path)]
    assert found == [7, 99_999_999, 100_000_000]


@pytest.mark.parametrize(("average", "kept"), [(1, [3, 4]), (2, [3, 4]), (3, [2, 3, 4])])
def test_checkpoints_that_nothing_needs_are_deleted(tmp_path: Path, average: int, kept: list[int]):
    """Two are kept at least, because the last may be damaged."""
    names = [f"checkpoint-{n:08d}.safetensors" for n in range(1, 5)]
    for name in [*names, INTERRUPTED]:
        (tmp_path / name).touch()
    os.mkfifo(tmp_path / "checkpoint-00000000.safetensors")
    checkpoints.delete_old_checkpoints(tmp_path, average)
    assert sorted(os.listdir(tmp_path))[1:] == [names[n - 1] for n in kept]


def test_a_disk_that_cannot_be_read_costs_no_checkpoint(config, monkeypatch, capsys):
    train(replace(config, updates=20))

    failing = Mock(side_effect=OSError(errno.EIO, "Input/output error"))
    monkeypatch.setattr("annotated.machinery.files.safe_open", failing)
    assert "Input/output error" in refused(config, capsys)
    assert len(list_checkpoints(config.out)) == 2


def test_a_damaged_checkpoint_is_not_averaged(config: TrainingConfig, capsys):
    train(config)
    path = list_checkpoints(config.out)[0]
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert refused(config, capsys).startswith(f"{path}: ")
    path.rename(path.with_suffix(".away"))
    main(["train", "--out", config.out, "--resume"])  # the mean of what is left


def test_a_configuration_that_was_changed_is_not_that_of_the_mean(config: TrainingConfig, capsys):
    train(config)
    place, model = Path(config.out, "training.json"), Path(config.out, "model.safetensors")
    before = model.read_bytes()
    place.write_text(place.read_text().replace('"relu"', '"swish"'))
    assert "activation=swish" in refused(f"average {config.out}", capsys)
    assert model.read_bytes() == before


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer-target.json"])
def test_a_mean_with_another_vocabulary_is_refused(config: TrainingConfig, capsys, name: str):
    train(config)
    folder = Path(config.out)
    vocabulary = json.loads((folder / "tokenizer.json").read_text())
    pieces = vocabulary["model"]["vocab"]
    one, other = list(pieces)[-2:]
    pieces[one], pieces[other] = pieces[other], pieces[one]
    before = (folder / "model.safetensors").read_bytes()
    for text in json.dumps(vocabulary), "{}", "":
        (folder / name).write_text(text)
        refused(f"average {folder}", capsys)
        assert (folder / "model.safetensors").read_bytes() == before


def test_a_checkpoint_with_another_number_is_refused(config: TrainingConfig, capsys):
    train(config)
    path = list_checkpoints(config.out)[-1]
    other, kept = (path.with_name(f"checkpoint-00000099.{end}") for end in
                   ("safetensors", "safetensors.damaged"))  # fmt: skip
    shutil.copy(path, other)
    with pytest.raises(FileError, match=r"-00000099\..*30"):
        checkpoints.newest_checkpoint(Path(config.out))
    other.write_bytes(b"damaged")
    kept.write_text("kept")
    assert checkpoints.newest_checkpoint(Path(config.out)) == path
    assert kept.read_text() == "kept" and not other.exists()
    assert str(other) in capsys.readouterr().err


def test_what_an_interruption_leaves_is_not_averaged(config: TrainingConfig, capsys):
    start_run(config)._save(checkpoints.INTERRUPTED)
    assert "without being averaged" in refused(f"average {config.out}", capsys)
    assert load_pretrained(config.out).translate("one two.", beam=1) is not None


def test_only_checkpoints_of_one_model_are_averaged(tmp_path: Path):
    one, two = (tmp_path / f"{name}.safetensors" for name in ("one", "two"))
    write_checkpoint(one, {"model.a": torch.ones(3, 4)}, RunState(Progress(), {}, {}))
    write_checkpoint(two, {"model.a": torch.ones(1, 4)}, RunState(Progress(), {}, {}))
    for wrong in [one, two], []:
        with pytest.raises(InputError):
            checkpoints.average_checkpoints(wrong)
    for name, other in ("seed", 2), ("data", "laws-en-fr"), ("from_", "multi30k-en-de"):
        for path, options in (one, {"seed": 1, "data": "texts-en-de"}), (two, {name: other}):
            told = {"seed": 1, "data": "texts-en-de", "from_": ""} | options
            state = RunState(Progress(), {}, told)
            write_checkpoint(path, {"model.a": torch.ones(3, 4)}, state)
        with pytest.raises(InputError, match=r"two.*one"):
            checkpoints.average_checkpoints([one, two])


def test_any_checkpoint_is_a_model_while_the_run_trains_and_after(config, monkeypatch, capsys):
    """The best is not the last here; each has the weights in its file, and a line says which."""
    losses, folder = iter([3.0, 1.0, 2.0]), Path(config.out)
    monkeypatch.setattr(Trainer, "dev_loss", lambda trainer: next(losses))
    named = {"last": 30, "best": 20, 30: 30, "20": 20}

    def loads(wanted: str | int | None, update: int) -> bool:
        model = load_pretrained(folder, checkpoint=wanted).model
        assert f"the checkpoint of update {update}" in capsys.readouterr().err
        kept = tensors(folder / f"checkpoint-{update:08d}.safetensors")
        own = dict(model.named_parameters()).items()
        return all(np.array_equal(kept[f"model.{name}"], x.detach()) for name, x in own)

    def save(trainer: Trainer, name: str, wait: bool = True) -> None:
        real(trainer, name)
        if name != INTERRUPTED:
            update = trainer.progress.update
            assert loads("last", update) and loads("best", min(update, 20))
            assert loads(None, min(update, 20))

    real = Trainer._save
    monkeypatch.setattr(Trainer, "_save", save)
    train(config)
    assert all(loads(wanted, update) for wanted, update in named.items())
    averaged = load_pretrained(folder).model.state_dict()
    assert "the average" in capsys.readouterr().err
    mean = tensors(folder / "model.safetensors")
    assert all(np.array_equal(mean[name], averaged[name]) for name in mean)
    (folder / "model.safetensors").unlink()
    assert loads(None, 20)
    (folder / "log.csv").unlink()
    assert loads(None, 30)
    for wrong in "10", "first", 0:
        with pytest.raises(InputError, match="20, 30"):
            load_pretrained(folder, checkpoint=wrong)
    with pytest.raises(InputError, match="folder of a run"):
        load_pretrained("multi30k-en-de", checkpoint=20)


def test_an_interrupted_run_translates(config, capsys, tmp_path, monkeypatch):
    """Before its first regular checkpoint too; the trainer goes on from it afterwards."""
    monkeypatch.setattr(StopRequest, "__enter__", lambda stop: setattr(stop, "wanted", 1) or stop)
    monkeypatch.setattr(StopRequest, "__exit__", lambda *error: None)
    with pytest.raises(KeyboardInterrupt):
        train(config)
    for command in f"translate {config.out} one", f"export {config.out} --to huggingface":
        out = ["--out", str(tmp_path / "exported")] if "export" in command else []
        main([*command.split(), "--checkpoint", "last", *out])
        assert "update 1, the last" in capsys.readouterr().err
    assert (Path(config.out) / INTERRUPTED).exists()
