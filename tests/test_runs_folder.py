"""The folder of a run: what does not belong to the run, or is damaged, is named."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from small_runs import assert_same_run, last_update, refused, start

from annotated.data import train_bpe
from annotated.machinery.corpora import prepared
from annotated.machinery.corpora.prepared import PreparedCorpus, prepare
from annotated.machinery.errors import FileError, InputError, MissingFile
from annotated.machinery.formats.pretrained import load_pretrained
from annotated.machinery.runs.checkpoints import list_checkpoints
from annotated.machinery.runs.launcher import launch
from annotated.machinery.runs.processes import Processes
from annotated.machinery.runs.trainer import start_run, train
from annotated.training import TrainingConfig


def contents(config: TrainingConfig) -> dict[Path, bytes]:
    """All files of a run."""
    return {path: path.read_bytes() for path in Path(config.out).rglob("*") if path.is_file()}


def test_a_start_that_was_killed_before_its_end_may_begin_again(config: TrainingConfig):
    train(config)
    folder = Path(config.out)
    expected = (folder / "model.safetensors").read_bytes()
    for path in folder.iterdir():  # what is there just before corpus.json is
        if path.name not in {".lock", "prepared", "tokenizer.json", "training.json"}:
            path.unlink()
    (folder / "annotated-a1b2c3d4.part").mkdir()  # of another process, which may still write
    train(config)
    assert (folder / "model.safetensors").read_bytes() == expected
    assert (folder / "annotated-a1b2c3d4.part").exists()


def test_a_vocabulary_that_is_there_is_not_overwritten(config: TrainingConfig):
    train(config)
    folder = Path(config.out)
    for path in folder.iterdir():
        if path.name not in {"tokenizer.json", "training.json"} and path.is_file():
            path.unlink()
    (folder / "tokenizer.json").write_text("mine")
    with pytest.raises(FileError, match="another one"):
        train(config)
    assert (folder / "tokenizer.json").read_text() == "mine"


def test_a_finished_run_without_its_checkpoints_does_not_begin_anew(config: TrainingConfig):
    train(config)
    folder = Path(config.out)
    for path in (*folder.glob("checkpoint*"), folder / ".saved", folder / ".lock"):
        path.unlink()
    before = contents(config)
    with pytest.raises(FileError, match="expected a checkpoint from which to continue"):
        train(replace(config, updates=40), resume=True)
    assert {name: text for name, text in contents(config).items() if name in before} == before


@pytest.mark.parametrize("resume", [False, True])
def test_a_model_with_its_configuration_is_not_trained_over(config, tmp_path: Path, resume: bool):
    """As the shipped models have it, or who has tidied a run."""
    train(config)
    folder = Path(config.out)
    for path in (*folder.glob("checkpoint*"), folder / "corpus.json", folder / ".saved"):
        path.unlink()
    before = {path: path.read_bytes() for path in folder.glob("*.*") if path.is_file()}
    with pytest.raises(InputError):
        train(replace(config, updates=40), resume)
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("text", ["mine", "{}", '{"data": "x-en-de"}'])
def test_a_training_json_of_somebody_else_is_not_overwritten(config: TrainingConfig, text: str):
    folder = Path(config.out)
    folder.mkdir()
    (folder / "training.json").write_text(text)
    with pytest.raises(FileError, match=r"training\.json"):
        train(config)
    assert (folder / "training.json").read_text() == text


@pytest.mark.parametrize("name", ["tokenizer.json", "corpus.json", "config.json"])
def test_a_lock_of_another_program_is_no_mark_of_a_run(config: TrainingConfig, name: str):
    folder = Path(config.out)
    folder.mkdir()
    (folder / ".lock").touch()
    (folder / name).write_text("mine")
    with pytest.raises(InputError, match=f"which contains {name}"):
        train(config)
    assert (folder / name).read_text() == "mine"


def test_a_folder_with_a_run_is_not_overwritten(config: TrainingConfig, tmp_path: Path):
    train(replace(config, updates=10))
    before = contents(config)
    with pytest.raises(ValueError, match="--resume"):
        train(config)
    with pytest.raises(ValueError, match="d_ff=32"):
        train(replace(config, d_ff=64), resume=True)
    assert before == contents(config)
    train(replace(config, average=1), resume=True)  # what may change may change
    train(replace(config, out=str(tmp_path / "new")), resume=True)  # nothing there: a new run


def test_a_start_that_broke_off_leaves_nothing_behind(config: TrainingConfig, tmp_path: Path):
    """Pieces and pairs of the first corpus, whose validation set was refused, are not used."""
    for name, lines in ("train", "x y z\n" * 9), ("dev", ""):
        for lang in "en", "de":
            (tmp_path / f"{name}.{lang}").write_text(lines, encoding="utf-8")
    with pytest.raises(InputError, match="dev"):
        train(replace(config, data=f"{tmp_path}-en-de", vocab_size=20))
    assert not (Path(config.out) / "training.json").exists()
    other = replace(config, out=str(tmp_path / "other"))
    for settings in config, other:
        train(settings)
    assert_same_run(config, other)


@pytest.mark.parametrize(
    "name",
    ["prepared/notes", "config.json", "corpus.json", "tokenizer.json", "model.safetensors",
     "log.csv", "notes", ".lock", "checkpoint-00000010.safetensors"],
)  # fmt: skip
def test_a_folder_that_holds_something_else_is_left_as_it_is(config, tmp_path: Path, name: str):
    file = Path(config.out) / name
    file.parent.mkdir(parents=True)
    file.write_text("of the user")
    for go in train, launch, partial(train, resume=True):
        with pytest.raises(FileError if "." in name[:1] or "check" in name else InputError):
            go(config)
        assert contents(config) == {file: b"of the user"}


def test_a_run_may_have_a_folder_that_is_empty_but_no_empty_name(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="expected out as the name of a folder; got ''"):
        replace(config, out="")
    Path("here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    train(replace(config, out=".", updates=10))
    assert Path("model.safetensors").exists()


def test_a_refused_continuation_changes_nothing(config: TrainingConfig):
    train(replace(config, updates=20))
    (Path(config.out) / "log.csv").touch()
    before = contents(config)
    for change in {"updates": 10}, {"seed": 7}, {"prepared": config.out}:
        with pytest.raises(InputError):
            train(replace(config, **{"average": 1, **change}), resume=True)
        assert before == contents(config)


def test_a_run_whose_checkpoints_are_gone_does_not_begin_anew(config: TrainingConfig, capsys):
    train(replace(config, updates=20))
    for path in list_checkpoints(config.out):
        path.unlink()
    before = contents(config)
    assert "expected a checkpoint from which to continue" in refused(config, capsys)
    assert before == contents(config)


def test_a_start_that_is_refused_leaves_the_folder_to_another(config: TrainingConfig):
    for change in {"vocab_size": 6}, {"weights": "multi30k-en-de"}, {"src_tokens": 1}:
        with pytest.raises(InputError):
            train(replace(config, **change))
        assert {path.name for path in Path(config.out).iterdir()} <= {".lock"}
    train(replace(config, updates=10))


def test_a_run_in_a_thread(config: TrainingConfig):
    """Signals do not arrive there; it trains all the same."""
    with ThreadPoolExecutor() as pool:
        assert pool.submit(train, replace(config, updates=10)).result() == Path(config.out)


def test_a_run_in_another_thread_is_the_same(config: TrainingConfig, tmp_path: Path):
    """Python handles no signals there."""
    other = replace(config, out=str(tmp_path / "other"))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(train, other).result()
    train(config)
    assert_same_run(config, other)


def test_a_run_keeps_its_number_of_parts(config: TrainingConfig):
    """Other batches than those that it counts would repeat some pairs and leave out others."""
    train(config)
    more = Processes(size=2)
    with pytest.raises(ValueError, match="parts=1"):
        start_run(config, resume=True, processes=more)


@pytest.mark.parametrize(
    "change",
    ["", "[1, 2]", '{"N": 1', "\0", {"color": "red"}, {"d_model": None}, {"updates": 0}],
)
def test_a_damaged_configuration_is_named(config, capsys, change):
    train(replace(config, updates=10))
    path = Path(config.out) / "training.json"
    if isinstance(change, dict):
        change = json.dumps(json.loads(path.read_text(encoding="utf-8")) | change)
    path.write_text(change, encoding="utf-8")
    before = contents(config)
    assert refused(config, capsys).startswith(f"{path}: ")
    assert before == contents(config)


@pytest.mark.parametrize("name", ["d_model", "dropout", "seed"])
def test_a_configuration_that_is_not_the_checkpoints_is_refused(config, capsys, name):
    """Also where the shapes of all tensors would still fit."""
    train(replace(config, updates=10))
    path = Path(config.out) / "training.json"
    kept = json.loads(path.read_text(encoding="utf-8"))
    was, kept[name] = kept[name], kept[name] * 2
    path.write_text(json.dumps(kept), encoding="utf-8")
    said = refused(config, capsys)
    assert said.startswith(str(list_checkpoints(config.out)[-1])) and f"{name}={was}" in said
    assert not list(Path(config.out).glob("*.damaged"))


def test_checkpoints_without_their_configuration_are_not_trained_over(config, capsys):
    train(replace(config, updates=10))
    (Path(config.out) / "training.json").unlink()
    assert "training.json" in refused(config, capsys)
    assert list_checkpoints(config.out)


def test_a_damaged_vocabulary_or_that_of_another_run_is_named(config: TrainingConfig, capsys):
    train(replace(config, updates=10))
    path = Path(config.out) / "tokenizer.json"
    for content in b"", b"{}", train_bpe(["a b"], 10).to_str().encode():
        path.write_bytes(content)
        assert refused(config, capsys).startswith(f"{path}: expected ")
    path.write_bytes((Path(config.out) / "prepared" / "tokenizer.json").read_bytes())
    train(replace(config, updates=20), resume=True)


@pytest.mark.parametrize("name", ["train.ids.npy", "dev.lengths.npy", "manifest.json"])
def test_a_damaged_corpus_is_named(config: TrainingConfig, capsys, name: str):
    train(replace(config, updates=10))
    path = Path(config.out) / "prepared" / name
    whole = path.read_bytes()
    path.write_bytes(whole[:-2])
    assert refused(config, capsys).startswith(f"{path}: expected ")
    path.unlink()
    assert str(path.parent) in refused(config, capsys)
    path.write_bytes(whole)
    train(replace(config, updates=20), resume=True)


# ------------------------------------------------------------------------------ prepared elsewhere


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(prepared, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


def test_a_run_finds_what_is_prepared(config: TrainingConfig, cache: Path, tmp_path: Path):
    """The same run as one that prepares for itself, and nothing is written twice."""
    train(config)
    shared, other = prepare(config), replace(config, out=str(tmp_path / "other"))
    train(replace(other, updates=20))
    assert not (Path(other.out) / "prepared").exists()
    note = json.loads((Path(other.out) / "corpus.json").read_text("utf-8"))
    assert note == {"folder": str(shared), "sha256": PreparedCorpus.open(shared).manifest.sha256}
    train(other, resume=True)
    assert_same_run(config, other)


def test_a_run_takes_the_corpus_that_it_is_given(config: TrainingConfig, cache: Path, tmp_path):
    folder = prepare(config, tmp_path / "mine")
    train(replace(config, prepared=str(folder), updates=10))
    assert not (Path(config.out) / "prepared").exists() and not cache.exists()
    other = replace(config, prepared=str(folder), out=str(tmp_path / "other"), vocab_size=61)
    with pytest.raises(InputError, match="vocab_size"):
        train(other)
    with pytest.raises(MissingFile):
        train(replace(config, prepared=str(tmp_path), out=str(tmp_path / "third")))


@pytest.mark.slow
def test_a_run_goes_on_where_its_corpus_has_moved(config, cache: Path, tmp_path: Path, capsys):
    train(config)
    two = replace(config, out=str(tmp_path / "two"))
    train(replace(two, prepared=str(prepare(config, tmp_path / "here")), updates=20))
    (tmp_path / "here").rename(tmp_path / "there")
    said = refused(two, capsys)
    assert str(tmp_path / "here") in said and "--prepared" in said
    prepare(replace(config, vocab_size=50), tmp_path / "another")
    with pytest.raises(FileError, match="another: expected the corpus with which the run began"):
        train(replace(two, prepared=str(tmp_path / "another")), resume=True)
    train(replace(two, prepared=str(tmp_path / "there")), resume=True)
    assert_same_run(config, two)


@pytest.mark.processes
def test_two_do_not_train_in_one_folder(config: TrainingConfig, tmp_path: Path, capsys):
    train(replace(config, updates=10))
    long = replace(config, updates=100_000, log_updates=1, save_updates=10**6)
    first = start(long)
    while first.poll() is None and last_update(Path(long.out) / "log.csv") < 12:
        time.sleep(0.05)
    try:
        said = refused(config, capsys)
        assert said.startswith(f"another process trains in {config.out}; ")
        load_pretrained(config.out)  # reading needs no lock
        with pytest.raises(FileError, match="another process trains"):
            launch(config)
    finally:
        first.kill()
        first.communicate()
    train(replace(config, updates=20), resume=True)  # a killed process holds no lock
