"""The folder of a run: what does not belong to the run, or is damaged, is named."""

import itertools
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from small_runs import assert_same_run, last_update, refused, start

from annotated.data import train_bpe
from annotated.machinery.cli.main import main
from annotated.machinery.corpora import prepared
from annotated.machinery.corpora.prepared import PreparedCorpus, prepare
from annotated.machinery.corpora.registry import full_paths, parse_data, split_parts
from annotated.machinery.errors import FileError, InputError
from annotated.machinery.formats.pretrained import load_pretrained
from annotated.machinery.runs.launcher import launch
from annotated.machinery.runs.processes import Processes
from annotated.machinery.runs.trainer import start_run, train
from annotated.training import TrainingConfig


def contents(config: TrainingConfig) -> dict[Path, bytes]:
    """All files of a run."""
    return {path: path.read_bytes() for path in Path(config.out).rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_start_that_was_killed_before_its_end_may_begin_again(config: TrainingConfig):
    train(config)
    folder = Path(config.out)
    expected = (folder / "model.safetensors").read_bytes()
    for path in folder.iterdir():  # what is there just before corpus.json is
        if path.name not in {".lock", "prepared", "tokenizer.json", "training.json"}:
            path.unlink()
    (folder / "annotated-a1b2c3d4.part").mkdir()  # of another process, which may still write
    vocabulary = (folder / "tokenizer.json").read_text("utf-8")
    (folder / "tokenizer.json").write_text("mine")
    with pytest.raises(FileError, match=r"tokenizer\.json"):
        train(config)
    assert (folder / "tokenizer.json").read_text() == "mine"
    (folder / "tokenizer.json").write_text(vocabulary, "utf-8")
    train(config)
    assert (folder / "model.safetensors").read_bytes() == expected
    assert (folder / "annotated-a1b2c3d4.part").exists()


def test_a_training_json_of_another_program_is_refused(config: TrainingConfig):
    Path(config.out).mkdir()
    Path(config.out, "training.json").write_text('{"epochs": 3}')
    for begin in train, launch:
        with pytest.raises(FileError, match=r"training\.json.*epochs"):
            begin(config)


SHIPPED = "checkpoint*", "corpus.json", ".saved"  # what the shipped models and tidied runs lack


@pytest.mark.parametrize(
    ("gone", "resume"),
    [(SHIPPED, False), (SHIPPED, True), (("checkpoint*", "model.safetensors"), True),
     (("checkpoint*", ".saved"), True)],
)  # fmt: skip
def test_a_run_whose_checkpoints_are_gone_does_not_begin_anew(config, gone, resume: bool):
    folder = train(config)
    for path in itertools.chain(*map(folder.glob, gone)):
        path.unlink()
    before = contents(config)
    with pytest.raises(InputError):
        train(replace(config, updates=40), resume)
    assert contents(config) == before


@pytest.mark.parametrize("text", ["mine", "{}", '{"data": "x-en-de"}'])
def test_a_training_json_of_somebody_else_is_not_overwritten(config: TrainingConfig, text: str):
    folder = Path(config.out)
    folder.mkdir()
    (folder / "training.json").write_text(text)
    with pytest.raises(FileError, match=r"training\.json"):
        train(config)
    assert (folder / "training.json").read_text() == text


@pytest.mark.parametrize(
    ("change", "resume", "said"),
    [
        ({}, False, "--resume"), ({"d_ff": 64}, True, "d_ff=32"), 
        ({"updates": 10, "average": 1}, True, "has made 20"),
        ({"seed": 7}, True, "seed"), ({"prepared": "elsewhere"}, True, "elsewhere"),
    ],
)  # fmt: skip
def test_a_refused_start_changes_nothing(config: TrainingConfig, change: dict, resume, said: str):
    train(replace(config, updates=20))
    before = contents(config)
    with pytest.raises(InputError, match=said):
        train(replace(config, **change), resume)
    assert before == contents(config)


def test_what_may_change_may_change_and_a_new_folder_begins_a_run(config, tmp_path, monkeypatch):
    train(replace(config, updates=10))
    train(replace(config, average=1), resume=True)
    assert last_update(Path(config.out) / "log.csv") == 30
    (tmp_path / "new").mkdir()
    monkeypatch.chdir(tmp_path / "new")  # which is empty
    train(replace(config, out=".", updates=10), resume=True)
    assert Path("model.safetensors").exists()


@pytest.mark.slow
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
@pytest.mark.parametrize("locked", [False, True])
def test_a_folder_that_holds_something_else_is_left_as_it_is(config, name: str, locked: bool):
    """Also with the lock of another program, which is no mark of a run."""
    file = Path(config.out) / name
    file.parent.mkdir(parents=True)
    if locked:
        (Path(config.out) / ".lock").touch()
    file.write_text("of the user")
    before = contents(config)
    for go in train, launch, partial(train, resume=True):
        with pytest.raises(InputError, match=name.partition("/")[0]):
            go(config)
        assert contents(config) == before


def test_a_start_that_is_refused_leaves_the_folder_to_another(config: TrainingConfig):
    for change in {"vocab_size": 6}, {"from_": "multi30k-en-de"}, {"src_tokens": 1}:
        with pytest.raises(InputError):
            train(replace(config, **change))
        assert not Path(config.out).exists()
    train(replace(config, updates=10))


@pytest.mark.slow
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


OTHER = train_bpe(["a b"], 10).to_str()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        *(("training.json", text, "training.json: ") for text in ("", "[1, 2]", '{"N": 1', "\0")),
        ("training.json", None, "training.json"),
        ("training.json", {"color": "red"}, "color"),
        ("training.json", {"d_model": None}, "d_model"),
        ("training.json", {"updates": 0}, "updates"),
        ("training.json", {"d_model": 32}, "d_model=16"),  # as another run may have it
        ("training.json", {"dropout": 0.2}, "dropout=0.1"),  # even if all tensors would fit
        ("training.json", {"seed": 2}, "seed=1"),
        *(("tokenizer.json", text, "tokenizer.json: expected ") for text in ("", "{}", OTHER)),
        ("prepared/manifest.json", "{", "manifest.json: expected "),
    ],
)
def test_what_is_damaged_or_of_another_run_is_named(config, capsys, name, content, said):
    train(replace(config, updates=10))
    path = Path(config.out) / name
    whole = path.read_text(encoding="utf-8")
    if content is None:
        path.unlink()
    else:
        changed = json.dumps(json.loads(whole) | content) if isinstance(content, dict) else content
        path.write_text(changed, encoding="utf-8")
    before = contents(config)
    assert said in refused(config, capsys)
    assert before == contents(config)
    path.write_text(whole, encoding="utf-8")
    train(replace(config, updates=20), resume=True)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(prepared, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


@pytest.mark.slow
def test_a_run_finds_what_is_prepared(config: TrainingConfig, cache: Path, tmp_path: Path):
    """The same run as one that prepares for itself, and nothing is written twice."""
    train(config)
    shared, other = prepare(config), replace(config, out=str(tmp_path / "other"))
    train(replace(other, updates=20))
    assert not (Path(other.out) / "prepared").exists()
    note = json.loads((Path(other.out) / "corpus.json").read_text("utf-8"))
    sha256 = PreparedCorpus.open(shared).manifest.sha256
    assert note == {"data": config.data, "folder": str(shared), "sha256": sha256}
    train(other, resume=True)
    assert_same_run(config, other)


@pytest.mark.slow
def test_a_run_goes_on_in_another_folder_than_it_began_in(config, tmp_path, monkeypatch, capsys):
    train(config)
    for place in "here", "there/deeper":
        (tmp_path / place).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    data = os.path.relpath(config.data)
    prepare(replace(config, data=data), "../prepared")
    two = replace(config, data=data, prepared="../prepared", out="../two")
    train(replace(two, updates=20))
    monkeypatch.chdir(tmp_path / "there" / "deeper")
    main(["train", "--resume", "--updates", "30", "--out", "../../two"])
    assert_same_run(config, replace(config, out="../../two"))
    main(["evaluate", "../../two", "--beam", "1", "--split", "dev"])
    assert config.data.removesuffix("-en-de") in capsys.readouterr().out


@pytest.mark.parametrize(
    "corpus",
    ["multi30k", "x.en,x.de", "folder", "a+b.csv", "t.tsv:1,2", "multi30k+folder"],
)
def test_full_paths_lead_to_the_same_data_from_elsewhere(corpus: str, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name in (
        "x.en",
        "x.de",
        "a+b.csv",
        "t.tsv",
        "folder/train.en",
        "folder/train.de",
        "folder/dev.en",
    ):
        (tmp_path / name).write_text("en,de\na,b\n")
    places = lambda data: [
        (part.source[0].resolve(), part.target[0].resolve(), part.columns)
        for part in split_parts(parse_data(data)[0], "train", *parse_data(data)[1:], fetch=False)
    ]
    data = f"{corpus}-en-de"
    monkeypatch.setenv("ANNOTATED_DATA", str(tmp_path))
    for name in "train.en", "train.de":
        (tmp_path / "multi30k").mkdir(exist_ok=True)
        (tmp_path / "multi30k" / name).write_text("a\n")
    expected = places(data)
    full = full_paths(data)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert places(full) == expected and full_paths(full) == full
    assert parse_data(full)[1:] == ("en", "de")


@pytest.mark.slow
def test_a_run_goes_on_where_its_corpus_has_moved(config, cache: Path, tmp_path: Path, capsys):
    train(config)
    two = replace(config, out=str(tmp_path / "two"))
    train(replace(two, prepared=str(prepare(config, tmp_path / "here")), updates=20))
    (tmp_path / "here").rename(tmp_path / "there")
    said = refused(two, capsys)
    assert str(tmp_path / "here") in said and "--prepared" in said
    prepare(replace(config, vocab_size=50), tmp_path / "another")
    with pytest.raises(FileError, match="another: "):
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
        assert config.out in said
        load_pretrained(config.out)  # reading needs no lock
        with pytest.raises(FileError, match=config.out):
            launch(config)
    finally:
        first.kill()
        first.communicate()
    train(replace(config, updates=20), resume=True)  # a killed process holds no lock
