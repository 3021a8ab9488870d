"""The command `annotated`: what it says, what it does, and how it fails."""

import dataclasses
import gzip
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from annotated import cli
from annotated.data import corpora
from annotated.training import TrainingConfig, checkpoints

TINY = ["--vocab-size", "50", "--N", "1", "--d-model", "16", "--d-ff", "32", "--h", "2"]
TINY += ["--batch-tokens", "100", "--warmup", "10"]


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No corpora, no paper, no run of this machine; and a known width of help texts."""
    for name in "ANNOTATED_DATA", "ANNOTATED_PAPER_PDF":
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Multi30k of our own: words with their number, and these turned round."""
    folder = tmp_path / "data" / "multi30k"
    folder.mkdir(parents=True)
    words = [f"{a} {b}" for a in ("red", "blue", "green") for b in ("dog", "cat", "cow", "hen")]
    for split in "train", "val", "test_2016_flickr":
        for lang, lines in ("en", words), ("de", [" ".join(w.split()[::-1]) for w in words]):
            text = "".join(f"{line}.\n" for line in lines)
            (folder / f"{split}.{lang}.gz").write_bytes(gzip.compress(text.encode()))
    monkeypatch.setenv("ANNOTATED_DATA", str(folder.parent))


@pytest.fixture
def run(corpus: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The folder of a run of two epochs."""
    cli.main(["train", *TINY, "--epochs", "2", "--out", str(tmp_path / "run")])
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "run")
    return tmp_path / "run"


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Standard output of a command that succeeds."""
    cli.main(list(arguments))
    return capsys.readouterr().out


def helped(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as end:
        cli.main([*arguments, "--help"])
    assert end.value.code == 0
    return re.sub(r"\s+", " ", capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The line in which a command says what is wrong."""
    with pytest.raises(SystemExit) as end:
        cli.main(list(arguments))
    out, error = capsys.readouterr()
    assert end.value.code == 2 and out == ""
    line = error.split("\r")[-1]  # what stays after a progress bar is wiped away
    assert line.startswith("annotated: ") and error.count("\n") == 1 and line.endswith("\n")
    return line


# ------------------------------------------------------------------------------------------- help


def test_help_names_every_command(capsys):
    text = helped(capsys)
    for command in "train", "translate", "evaluate", "average", "data", "paper":
        assert re.search(rf" {command} [a-z]", text)
        assert f"usage: annotated {command}" in helped(capsys, command)
    for parts in ("data", "list get"), ("paper", "get import show"):
        for action in parts[1].split():
            assert f"usage: annotated {parts[0]} {action}" in helped(capsys, parts[0], action)


def test_the_options_of_train_are_the_fields_of_its_configuration(capsys):
    text = helped(capsys, "train")
    for field in dataclasses.fields(TrainingConfig):
        assert field.metadata["help"]
        option = f"--{field.name.replace('_', '-')} {type(field.default).__name__.upper()}"
        assert f"{option} {field.metadata['help']} (default: {field.default})" in text


def test_options_arrive_as_they_are_typed(capsys, monkeypatch):
    seen: list[TrainingConfig] = []
    monkeypatch.setattr("annotated.training.train", lambda config: seen.append(config) or "done")
    said(capsys, "train")
    said(capsys, "train", "--dropout", "0.3", "--N", "2", "--out", "x", "--label-smoothing", "0")
    assert seen[0] == TrainingConfig()
    assert seen[1] == TrainingConfig(dropout=0.3, N=2, out="x", label_smoothing=0.0)


def test_it_is_also_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "annotated", "data", "list"], capture_output=True, text=True
    )
    assert done.returncode == 0 and "multi30k" in done.stdout and done.stderr == ""


# --------------------------------------------------------------------------------------- training


def test_train(run: Path):
    assert (run / "model.safetensors").exists()
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    assert (config["d_model"], config["N"], config["src_vocab"]) == (16, 1, 50)
    assert len((run / "log.csv").read_text(encoding="utf-8").splitlines()) == 3


def test_train_continues(run: Path, capsys):
    before = (run / "checkpoint-0002.safetensors").read_bytes()
    said(capsys, "train", *TINY, "--epochs", "3", "--out", str(run))
    assert (run / "checkpoint-0002.safetensors").read_bytes() == before
    assert len(checkpoints(run)) == 3


def test_translate_arguments_and_standard_input(run: Path, capsys, monkeypatch):
    model = str(run)
    both = said(capsys, "translate", model, "red dog.", "blue cow.").splitlines()
    assert len(both) == 2
    assert said(capsys, "translate", model, "blue cow.").splitlines() == both[1:]
    monkeypatch.setattr("sys.stdin", io.StringIO("red dog.\nblue cow.\n"))
    assert said(capsys, "translate", model).splitlines() == both


def test_evaluate_prints_and_writes_the_same_scores(run: Path, tmp_path: Path, capsys):
    out = tmp_path / "scores.json"
    splits = ["--split", "dev", "test"]
    lines = said(capsys, "evaluate", str(run), *splits, "--out", str(out)).splitlines()
    rows = json.loads(out.read_text(encoding="utf-8"))
    assert [row["split"] for row in rows] == ["dev", "dev", "test", "test"]
    for line, row in zip(lines, rows, strict=True):
        for part in row["split"], row["text"], f"{row['score']:.2f}", row["signature"]:
            assert part in line


def test_average(tmp_path: Path, capsys):
    for name, value in ("a", 1.0), ("b", 4.0):
        weights = {"model.x": torch.full((2,), value), "exp_avg.x": torch.ones(2)}
        save_file(weights, tmp_path / name)
    assert said(capsys, "average", "a", "b", "b", "--out", "mean.safetensors") == (
        "mean.safetensors\n"
    )
    mean = load_file(tmp_path / "mean.safetensors")
    assert list(mean) == ["x"] and mean["x"].tolist() == [3.0, 3.0]


# ------------------------------------------------------------------------------ corpora and paper


def test_data_list(capsys):
    text = said(capsys, "data", "list")
    for corpus in corpora().values():
        for part in corpus.name, corpus.title, corpus.source, corpus.licence, *corpus.languages:
            assert part in text


def test_data_get_names_the_files(corpus: None, tmp_path: Path, capsys):
    for split in "train", "val", "test_2016_flickr":
        (tmp_path / "data" / "multi30k" / f"{split}.fr").write_text("x\n", encoding="utf-8")
    paths = [Path(line) for line in said(capsys, "data", "get", "multi30k").splitlines()]
    assert len(set(paths)) == 9 and all(path.is_file() for path in paths)


@pytest.fixture
def no_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("annotated.paper.find_paper", lambda: None)


def test_paper_show_without_a_paper(no_paper: None, capsys):
    error = refused(capsys, "paper", "show", "3.2.1")
    assert "annotated paper get" in error and "annotated paper import" in error


def test_paper_show(monkeypatch, capsys):
    sections = {"3.2.1": ["First paragraph.", "Second paragraph."], "4": ["Another."]}
    monkeypatch.setattr("annotated.paper.find_paper", lambda: SimpleNamespace(sections=sections))
    assert said(capsys, "paper", "show", "3.2.1") == "First paragraph.\n\nSecond paragraph.\n"
    assert "3.2.1, 4" in refused(capsys, "paper", "show", "9")


# ----------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["translate", "no-such-model", "x"], "'no-such-model'"),
        (["evaluate", "no-such-model"], "'no-such-model'"),
        (["train", "--corpus", "wmt13"], "multi30k; got 'wmt13'"),
        (["train", "--src", "cs"], "'cs'"),
        (["train", "--d-model", "0"], "d_model of at least 1; got 0"),
        (["train", "--dropout", "1"], "dropout in [0, 1); got 1.0"),
        (["train", "--batch-tokens", "3"], "at most 3 tokens"),
        (["data", "get", "wmt13"], "multi30k; got 'wmt13'"),
        (["average", "missing.safetensors", "--out", "x"], "missing.safetensors"),
        (["paper", "import", "missing.pdf"], "missing.pdf"),
    ],
)
def test_a_mistake_gets_one_line_and_status_2(corpus: None, capsys, arguments, part):
    assert part in refused(capsys, *arguments)


@pytest.mark.parametrize(
    "arguments", [[], ["sing"], ["train", "--epochs", "many"], ["translate"], ["data"], ["average"]]
)
def test_wrong_usage_gets_status_2(capsys, arguments: list[str]):
    with pytest.raises(SystemExit) as end:
        cli.main(arguments)
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith("usage: annotated")


def test_an_interrupted_run_says_that_it_can_go_on(monkeypatch, capsys):
    def interrupted(config: TrainingConfig) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("annotated.training.train", interrupted)
    with pytest.raises(SystemExit) as end:
        cli.main(["train"])
    assert end.value.code == 130 and "continues" in capsys.readouterr().err


def test_an_error_of_ours_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr("annotated.training.train", lambda config: {}["nothing"])
    with pytest.raises(KeyError):
        cli.main(["train"])
