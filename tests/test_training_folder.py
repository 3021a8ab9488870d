"""The folder of a run: what does not belong to the run, or is damaged, is named."""

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from small_runs import assert_same_run, last_update, refused, start

from annotated.data import EncodedPairs, train_bpe
from annotated.files import FileError
from annotated.launcher import launch
from annotated.training.checkpoints import list_checkpoints
from annotated.training.config import TrainingConfig
from annotated.training.logs import read_log
from annotated.training.processes import Processes
from annotated.training.trainer import start_run, train
from annotated.translator import load_pretrained


def test_a_folder_with_a_run_is_not_overwritten(config: TrainingConfig, tmp_path: Path):
    train(replace(config, updates=10))
    before = {path.name: path.read_bytes() for path in Path(config.out).iterdir()}
    with pytest.raises(ValueError, match="already holds a run; continue it with --resume"):
        train(config)
    with pytest.raises(ValueError, match="has d_ff=32; it cannot go on with 64"):
        train(replace(config, d_ff=64), resume=True)
    assert before == {path.name: path.read_bytes() for path in Path(config.out).iterdir()}
    train(replace(config, average=1), resume=True)  # what may change may change
    train(replace(config, out=str(tmp_path / "new")), resume=True)  # nothing there: a new run


def test_a_start_that_broke_off_leaves_nothing_behind(config: TrainingConfig, tmp_path: Path):
    """Pieces and pairs of the first corpus, whose validation set was refused, are not used."""
    for name, lines in ("train", "x y z\n" * 9), ("dev", ""):
        for lang in "en", "de":
            (tmp_path / f"{name}.{lang}").write_text(lines, encoding="utf-8")
    with pytest.raises(ValueError, match=r"pairs to train and to validate on; .* has no dev"):
        train(replace(config, data=f"{tmp_path}-en-de", vocab_size=20))
    assert not (Path(config.out) / "training.json").exists()
    other = replace(config, out=str(tmp_path / "other"))
    for settings in config, other:
        train(settings)
    assert_same_run(config, other)


def test_a_run_keeps_its_number_of_parts(config: TrainingConfig):
    """Other batches than those that it counts would repeat some pairs and leave out others."""
    train(config)
    more = Processes(size=2)
    with pytest.raises(ValueError, match="has parts=1; it cannot go on with 2"):
        start_run(config, resume=True, processes=more)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("", "expected the configuration of a run"),
        ("[1, 2]", "expected the configuration of a run"),
        ('{"N": 1', "expected the configuration of a run"),
        ("\0\0\0", "expected the configuration of a run"),
        ({"colour": "red"}, "got colour"),
        ({"seed": 1.5}, "expected seed as int; got 1.5"),
        ({"compile": "no"}, "expected compile as bool; got 'no'"),
        ({"d_model": None}, "expected d_model as int; got None"),
        ({"dropout": "0.1"}, "expected dropout as float; got '0.1'"),
        ({"updates": 0}, "expected updates of at least 1; got 0"),
        ({"precision": "int4"}, "expected precision out of auto"),
    ],
)
def test_a_damaged_configuration_is_named(config, capsys, change, told: str):
    train(replace(config, updates=10))
    path = Path(config.out) / "training.json"
    if isinstance(change, dict):
        change = json.dumps(json.loads(path.read_text(encoding="utf-8")) | change)
    path.write_text(change, encoding="utf-8")
    before = {x.name: x.read_bytes() for x in Path(config.out).iterdir()}
    said = refused(config, capsys)
    assert said.startswith(f"{path}: ") and told in said
    assert before == {x.name: x.read_bytes() for x in Path(config.out).iterdir()}


@pytest.mark.parametrize("name", ["d_model", "h", "dropout", "seed", "warmup", "N"])
@pytest.mark.parametrize("how", ["missing", "changed"])
def test_a_configuration_that_is_not_the_checkpoints_is_refused(config, capsys, name, how):
    """Also where the shapes of all tensors would still fit."""
    train(replace(config, updates=10))
    path = Path(config.out) / "training.json"
    kept = json.loads(path.read_text(encoding="utf-8"))
    was = kept.pop(name)
    if name == "seed" or how == "changed":  # 1 is the default, so leaving it out changes nothing
        kept[name] = was * 2
    path.write_text(json.dumps(kept), encoding="utf-8")
    said = refused(config, capsys)
    assert said.startswith(str(list_checkpoints(config.out)[-1])) and f"{name}={was}" in said
    assert "training.json" in said and not list(Path(config.out).glob("*.damaged"))


def test_checkpoints_without_their_configuration_are_not_trained_over(config, capsys):
    train(replace(config, updates=10))
    (Path(config.out) / "training.json").unlink()
    said = refused(config, capsys)
    assert "expected training.json beside checkpoint-00000010.safetensors" in said


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff\xfe", b'{"model": {"type": "BPE"}}'])
def test_a_damaged_vocabulary_is_named(config: TrainingConfig, capsys, content: bytes):
    train(replace(config, updates=10))
    path = Path(config.out) / "tokenizer.json"
    path.write_bytes(content)
    said = refused(config, capsys)
    assert said.startswith(f"{path}: expected the vocabulary of the run")


def test_a_vocabulary_of_another_run_is_refused(config: TrainingConfig, capsys):
    train(replace(config, updates=10))
    other = train_bpe(["a b"], 10)
    (Path(config.out) / "tokenizer.json").write_text(other.to_str(), encoding="utf-8")
    assert f"expected pairs of ids below {other.get_vocab_size()}" in refused(config, capsys)


def spoilt(pairs: EncodedPairs) -> dict[str, dict[str, np.ndarray]]:
    """Arrays that are no pairs, by what is wrong with them."""
    good = {name: getattr(pairs, name) for name in ("src", "src_ends", "tgt", "tgt_ends")}
    none = {"src": good["src"][:0], "src_ends": good["src_ends"][:1]}
    none |= {"tgt": good["tgt"][:0], "tgt_ends": good["tgt_ends"][:1]}
    backwards = good["src_ends"].copy()  # the rest of the ends is right
    backwards[3] = backwards[5]
    return {
        "an id too large": good | {"src": np.full_like(good["src"], 60)},
        "a negative id": good | {"tgt": np.where(good["tgt"] > 1, -1, 1).astype(np.int32)},
        "ends beyond the ids": good | {"src": good["src"][:-1]},
        "ids beyond the ends": good | {"tgt_ends": good["tgt_ends"][:-1]},
        "one side shorter": good | {"src": good["src"][: good["src_ends"][-2]],
                                    "src_ends": good["src_ends"][:-1]},
        "ends out of order": good | {"src_ends": backwards},
        "floats": good | {"src": good["src"].astype(np.float32)},
        "a side missing": {name: good[name] for name in ("src", "src_ends")},
        "a side too many": good | {"more": good["src"]},
        "no pairs": none,
        "ends of no dimension": good | {"src_ends": np.array(3)},
    }  # fmt: skip


@pytest.mark.parametrize("name", ["train", "dev"])
def test_damaged_pairs_are_named(config: TrainingConfig, capsys, name: str):
    train(replace(config, updates=10))
    path = Path(config.out) / f"{name}.pairs"
    whole = path.read_bytes()
    cases = spoilt(EncodedPairs.load(path))
    for wrong, arrays in cases.items():
        save_file(arrays, path)
        assert refused(config, capsys).startswith(f"{path}: expected "), wrong
    for damaged in b"", whole[:40], whole[:-1], b"PK" + whole:
        path.write_bytes(damaged)
        assert refused(config, capsys).startswith(f"{path}: expected the encoded pairs of a run")
    path.unlink()
    assert f"at {path}; there is no such file" in refused(config, capsys)
    path.write_bytes(whole)
    train(replace(config, updates=20), resume=True)


@pytest.mark.processes
def test_two_do_not_train_in_one_folder(config: TrainingConfig, tmp_path: Path, capsys):
    train(replace(config, updates=10))
    long = replace(config, updates=100_000, log_updates=1, save_updates=10**6)
    first = start(long)
    while first.poll() is None and last_update(Path(long.out) / "log.csv") < 12:
        time.sleep(0.05)
    try:
        said = refused(config, capsys)
        assert said.startswith(f"another process trains in {config.out}; ") and "--out" in said
        translator = load_pretrained(config.out)  # reading needs no lock
        assert translator.model is not None
        with pytest.raises(FileError, match="another process trains"):
            launch(config)
    finally:
        first.kill()
        first.communicate()
    updates = [int(row["update"]) for row in read_log(Path(config.out) / "log.csv")]
    assert len(set(updates)) == len(updates)
    train(replace(config, updates=20), resume=True)  # a killed process holds no lock
