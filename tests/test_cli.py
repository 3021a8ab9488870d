"""The command `annotated`: what it says, what it does, and how it fails."""

import dataclasses
import gzip
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from nltk import Tree
from safetensors.torch import load_file, save_file

from annotated.data import train_bpe
from annotated.machinery import cli, commands
from annotated.machinery.corpora import known_corpora
from annotated.machinery.files import write_text
from annotated.machinery.scoring import BLEU_KINDS
from annotated.machinery.training.checkpoints import list_checkpoints, save_model
from annotated.machinery.translator import Translation, load_pretrained
from annotated.model import make_model
from annotated.training import TrainingConfig, preset

TINY = ["--vocab-size", "50", "--N", "1", "--d-model", "16", "--d-ff", "32", "--h", "2"]
TINY += ["--src-tokens", "100", "--tgt-tokens", "100", "--warmup", "10", "--save-updates", "3"]


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
    """The folder of a run of six updates."""
    cli.main(["train", *TINY, "--updates", "6", "--out", str(tmp_path / "run")])
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
    commands = "train translate evaluate score parse treebank export average data paper"
    for command in commands.split():
        assert re.search(rf" {command} [a-z]", text)
        assert f"usage: annotated {command}" in helped(capsys, command)
    parts_of = {"data": "list get", "paper": "get import show", "treebank": "write score"}
    for parts in parts_of.items():
        for action in parts[1].split():
            assert f"usage: annotated {parts[0]} {action}" in helped(capsys, parts[0], action)


def test_the_options_of_train_are_the_fields_of_its_configuration(capsys):
    text = helped(capsys, "train")
    for field in dataclasses.fields(TrainingConfig):
        assert field.metadata["help"]
        option, kind = f"--{field.name.replace('_', '-')}", type(field.default).__name__.upper()
        if field.metadata["choices"]:
            kind = f"{{{','.join(field.metadata['choices'])}}}"
        usage = f"{option}, --no-{option[2:]}" if kind == "BOOL" else f"{option} {kind}"
        assert f"{usage} {field.metadata['help']} (default: {field.default})" in text


def test_a_preset_is_what_the_options_start_from(monkeypatch, capsys):
    seen: list[TrainingConfig] = []
    monkeypatch.setattr(
        "annotated.machinery.training.trainer.train", lambda config, resume: seen.append(config)
    )
    said(capsys, "train", "--preset", "big-en-fr", "--updates", "7")
    assert seen == [preset("big-en-fr", updates=7)] and seen[0].out == "runs/big-en-fr"


def test_options_arrive_as_they_are_typed(capsys, monkeypatch):
    seen: list[TrainingConfig] = []
    monkeypatch.setattr(
        "annotated.machinery.training.trainer.train", lambda config, resume: seen.append(config)
    )
    said(capsys, "train")
    given = ["--dropout", "0.25", "--N", "2", "--out", "x", "--label-smoothing", "0", "--compile"]
    said(capsys, "train", *given)
    assert seen[0] == TrainingConfig()
    assert seen[1] == TrainingConfig(dropout=0.25, N=2, out="x", label_smoothing=0.0, compile=True)


@pytest.mark.slow
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
    before = list_checkpoints(run)[-1].read_bytes()
    said(capsys, "train", "--resume", "--updates", "9", "--out", str(run))  # the rest is known
    assert list_checkpoints(run)[-2].read_bytes() == before
    assert [path.stem[-1] for path in list_checkpoints(run)] == ["3", "6", "9"]


def test_a_run_is_neither_lost_nor_turned_into_another(run: Path, capsys):
    assert "--resume" in refused(capsys, "train", *TINY, "--out", str(run))
    said = refused(capsys, "train", "--resume", "--out", str(run), "--dropout", "0.2")
    assert "has dropout=0.3" in said


def test_evaluate_prints_and_writes_the_same_scores(run: Path, tmp_path: Path, capsys):
    out = tmp_path / "scores.json"
    options = ["--split", "dev", "test", "--beam", "2", "--alpha", "0.4", "--out", str(out)]
    first, second, *lines = said(capsys, "evaluate", str(run), *options).splitlines()
    rows = json.loads(out.read_text(encoding="utf-8"))
    assert [row["split"] for row in rows] == ["dev"] * 4 + ["test"] * 4
    assert {row["text"] for row in rows} == set(BLEU_KINDS.values())
    assert {row["search"] for row in rows} == {"beam 2, alpha 0.4"}
    for line, row in (first, rows[0]), (second, rows[-1]):
        assert line == (
            f"multi30k {row['split']}: beam 2, alpha 0.4, "
            f"perplexity {row['perplexity']:.2f} per piece, accuracy {row['accuracy']:.1%}"
        )
    assert 1 < rows[0]["perplexity"] < 50 and 0 < rows[0]["accuracy"] < 1
    for line, row in zip(lines, rows, strict=True):
        for part in row["split"], row["text"], f"{row['score']:.2f}", row["signature"]:
            assert part in line


def test_evaluate_searches_as_the_paper_does_unless_told(capsys, monkeypatch):
    seen: list[tuple] = []

    def evaluate(translator: str, *corpus: str, **search: float) -> list[dict]:
        seen.append((translator, corpus, search))
        return [dict.fromkeys(("corpus", "split", "search", "text", "signature"), "x") | numbers]

    numbers = dict.fromkeys(("perplexity", "accuracy", "score"), 1)
    monkeypatch.setattr("annotated.machinery.translator.load_pretrained", lambda name, device: name)
    monkeypatch.setattr("annotated.machinery.scoring.evaluate", evaluate)
    said(capsys, "evaluate", "m", "--data", "multi30k-en-de")
    two = ["multi30k-en-fr", "news-en-fr"]
    said(capsys, "evaluate", "m", "--data", *two, "--split", "dev", "--beam", "1")
    assert seen == [
        ("m", ("multi30k", "test", "en", "de"), {"beam": 4, "alpha": 0.6}),
        ("m", ("multi30k", "dev", "en", "fr"), {"beam": 1, "alpha": 0.6}),
        ("m", ("news", "dev", "en", "fr"), {"beam": 1, "alpha": 0.6}),
    ]


def test_a_model_is_scored_on_the_data_that_it_was_trained_on(run: Path, capsys):
    assert commands.trained_on(str(run)) == "multi30k-en-de"
    (run / "training.json").unlink()
    assert "expected --data" in refused(capsys, "evaluate", str(run))


def test_score_prints_and_writes_the_same_scores(tmp_path: Path, capsys):
    (tmp_path / "ref").write_text("Der Hund ist im Haus.\n", encoding="utf-8")
    (tmp_path / "good").write_text("Der Hund ist im Haus.\n", encoding="utf-8")
    (tmp_path / "bad").write_text("Der Hund ist in dem Haus.\n", encoding="utf-8")
    options = ["--ref", "ref", "--lang", "de", "--out", "scores.json"]
    lines = said(capsys, "score", "good", "bad", *options).splitlines()
    rows = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    assert [row["output"] for row in rows] == ["good"] * 4 + ["bad"] * 4
    assert all((row["score"] > 99) == (row["output"] == "good") for row in rows)
    for line, row in zip(lines, rows, strict=True):
        for part in row["output"], row["text"], f"{row['score']:.2f}", row["signature"]:
            assert part in line


def test_export(model: str, tmp_path: Path, capsys):
    pytest.importorskip("ctranslate2", reason="needs the extra `export`")
    arguments = ["export", model, "--to", "ctranslate2", "--half", "--out", str(tmp_path / "out")]
    assert said(capsys, *arguments) == f"{tmp_path / 'out'}\n"
    assert {"model.bin", "tokenizer.json"} <= set(os.listdir(tmp_path / "out"))
    assert "a new or an empty folder" in refused(capsys, *arguments)


def test_average(tmp_path: Path, capsys):
    for name, value in ("a", 1.0), ("b", 4.0):
        weights = {"model.x": torch.full((2,), value), "exp_avg.x": torch.ones(2)}
        save_file(weights, tmp_path / name)
    assert said(capsys, "average", "a", "b", "b", "--out", "mean.safetensors") == (
        "mean.safetensors\n"
    )
    mean = load_file(tmp_path / "mean.safetensors")
    assert list(mean) == ["x"] and mean["x"].tolist() == [3.0, 3.0]


def test_average_of_a_run(run: Path, capsys):
    """The run's model becomes the mean of its last checkpoints; it translates as before."""
    two = [load_file(path) for path in list_checkpoints(run)[-2:]]
    assert len(two) == 2
    (run / "model.safetensors").unlink()
    assert said(capsys, "average", str(run), "--last", "2") == f"{run}\n"
    for name, x in load_file(run / "model.safetensors").items():
        mean = (two[0][f"model.{name}"] + two[1][f"model.{name}"]) / 2
        torch.testing.assert_close(x, mean.half(), atol=1e-3, rtol=1e-3)
    load_pretrained(str(run)).translate("red dog")
    assert "expected 99 checkpoints" in refused(capsys, "average", str(run), "--last", "99")
    assert "last of at least 0; got -1" in refused(capsys, "average", str(run), "--last", "-1")
    assert "without --out" in refused(capsys, "average", str(run), "--out", "x")
    assert "--out FILE" in refused(capsys, "average", "x.safetensors")


# -------------------------------------------------------------------------------------- translate


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a model that has learnt nothing, but ends its sentences."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = train_bpe(["red green blue dog cat cow hen."] * 2, 50)
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(1)
    net = make_model(50, 50, N=1, d_model=16, d_ff=32, h=2, positions="learned", max_len=60)
    save_model(folder, dict(net.named_parameters()), net.config)
    return str(folder)


def give(monkeypatch: pytest.MonkeyPatch, lines: bytes | Iterable[bytes], terminal=False) -> None:
    """Bytes, or lines as they come, on standard input."""
    buffer = io.BytesIO(lines) if isinstance(lines, bytes) else lines
    stdin = SimpleNamespace(buffer=buffer, isatty=lambda: terminal)
    monkeypatch.setattr("sys.stdin", stdin)


def test_sentences_files_and_pipes_are_translated_alike(model, tmp_path, capsys, monkeypatch):
    sentences = ["red dog.", "", "a green cow and a blue hen.", "cat", "red dog."]
    expected = "".join(f"{line}\n" for line in load_pretrained(model).translate_all(sentences))
    assert len(set(expected.splitlines())) > 2
    assert said(capsys, "translate", model, *sentences) == expected
    text = "\n".join(sentences).encode()  # without an end of the last line
    give(monkeypatch, text)
    assert said(capsys, "translate", model) == expected
    give(monkeypatch, text.replace(b"\n", b"\r\n"))
    assert said(capsys, "translate", model, "--chunk", "2", "--batch-tokens", "9") == expected
    (tmp_path / "in.txt").write_bytes(text + b"\n")
    assert said(capsys, "translate", model, "--input", "in.txt") == expected
    (tmp_path / "in.gz").write_bytes(gzip.compress(text))
    assert said(capsys, "translate", model, "--input", "in.gz", "--output", "out.txt") == ""
    assert (tmp_path / "out.txt").read_bytes() == expected.encode()
    assert not list(tmp_path.glob("*.part"))


SEPARATORS = [*"\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\x00\u200b\ufeff\t😀", "👩\u200d👩\u200d👧"]


def test_a_line_in_a_line_out(model, tmp_path, capsys, monkeypatch):
    """Whatever a line holds; and also if the model says such a thing itself."""
    lines = [f"red{mark}dog." for mark in SEPARATORS] + SEPARATORS + ["", " ", "cow " * 9]
    give(monkeypatch, "".join(f"{line}\n" for line in lines).encode())
    out = said(capsys, "translate", model, "--chunk", "5")
    assert out.count("\n") == len(out.splitlines()) == len(lines)
    assert out.endswith("\n")
    expected = said(capsys, "translate", model, "red dog.")
    assert out.splitlines(keepends=True)[:9] == [expected] * 9  # separators are read as spaces

    def candidates(self: object, sentences: Iterable[str], **options: object) -> Iterator[list]:
        yield from ([Translation(mark.join("abc"), -1.0, -1.0)] for mark in ["\n", *SEPARATORS])

    monkeypatch.setattr("annotated.machinery.translator.Translator.candidates", candidates)
    assert len(said(capsys, "translate", model, "x").splitlines()) == len(SEPARATORS) + 1
    fields = said(capsys, "translate", model, "x", "--n-best", "1").splitlines()
    assert [line.count("\t") for line in fields] == [3] * len(fields)


def test_n_best_lists(model, capsys):
    sentences = ["red dog.", "", "blue hen."]
    groups = list(load_pretrained(model).candidates(sentences, beam=3, n_best=2, max_extra=5))
    options = ["--n-best", "2", "--beam", "3", "--max-extra", "5"]
    lines = said(capsys, "translate", model, *sentences, *options).splitlines()
    assert lines == [
        f"{number}\t{found.score:.4f}\t{found.log_prob:.4f}\t{found.text}"
        for number, group in enumerate(groups, start=1)
        for found in group
    ]
    assert [line.split("\t")[0] for line in lines] == ["1", "1", "2", "3", "3"]
    assert len(said(capsys, "translate", model, "red", "--n-best", "1").split("\t")) == 4


def test_options_of_translate_arrive(model, capsys, monkeypatch):
    seen: list[dict] = []

    def candidates(self: object, sentences: Iterable[str], **options: object) -> Iterator[list]:
        seen.append({"sentences": list(sentences)} | options)
        return iter([])

    monkeypatch.setattr("annotated.machinery.translator.Translator.candidates", candidates)
    said(capsys, "translate", model, "a")
    given = "--beam 7 --alpha -0.5 --max-extra 3 --n-best 2 --batch-tokens 9 --chunk 4 --progress "
    given += "--max-source 8"
    said(capsys, "translate", model, "a", *given.split(), "b")  # a sentence behind the options
    give(monkeypatch, b"c\n", terminal=True)
    said(capsys, "translate", model)
    search = {"beam": 4, "alpha": 0.6, "max_extra": 50, "n_best": 1}  # the paper's
    search["max_source"] = 1000
    default = search | {"sentences": ["a"], "batch_tokens": 2000, "chunk": 1000, "progress": False}
    assert seen[0] == default
    search = {"beam": 7, "alpha": -0.5, "max_extra": 3, "n_best": 2, "max_source": 8}
    given = {"sentences": ["a", "b"], "batch_tokens": 9, "chunk": 4, "progress": True}
    assert seen[1] == search | given
    assert seen[2] == default | {"sentences": ["c"], "chunk": 1}  # somebody waits for an answer


def test_the_bar_is_where_it_is_wanted(model, tmp_path, capsys, monkeypatch):
    command = ["translate", model, "red", "blue"]
    cli.main([*command, "--progress"])
    out, error = capsys.readouterr()
    assert "2/2" in error and out.count("\n") == 2 and "2/2" not in out
    for terminals, output, bar in (
        ((), [], False),
        (("stderr",), [], True),
        (("stdout", "stderr"), [], False),  # it would get between the lines
        (("stdout", "stderr"), ["--output", "x"], True),
        (("stdout", "stderr"), ["--output", "x", "--no-progress"], False),
    ):
        with monkeypatch.context() as patch:
            for name in terminals:
                patch.setattr(f"sys.{name}.isatty", lambda: True)
            cli.main([*command, *output])
        assert ("2/2" in capsys.readouterr().err) == bar


def test_a_pipe_is_read_as_it_is_answered(model, capsys, monkeypatch):
    """At the third line, the first two have been answered; so a pipe may be endless."""
    answered = []

    def lines() -> Iterator[bytes]:
        for line in [b"red\n", b"blue green dog\n", b"\n", b"cow\n", b"hen\n"]:
            answered.append(len(capsys.readouterr().out.splitlines()))
            yield line

    give(monkeypatch, lines())
    cli.main(["translate", model, "--chunk", "2"])
    assert answered == [0, 0, 2, 0, 2] and len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error(model):
    command = [sys.executable, "-m", "annotated", "translate", model, "--chunk", "1"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        process.stdin.write(b"red\n" * 300)
        process.stdin.close()
        assert process.stdout.readline().endswith(b"\n")
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_what_is_not_utf8_is_refused_with_its_line(model, tmp_path, capsys, monkeypatch):
    lines, old = b"red\nblue\nhen\ncow \xff\ndog\n", "what was here before"
    for source in ["--input", "in.txt"], []:
        (tmp_path / "in.txt").write_bytes(lines)
        (tmp_path / "out.txt").write_text(old, encoding="utf-8")
        give(monkeypatch, lines)
        error = refused(capsys, "translate", model, *source, "--output", "out.txt")
        assert "line 4: expected UTF-8; got byte 0xff" in error
        assert ("in.txt" if source else "standard input") in error
        assert (tmp_path / "out.txt").read_text(encoding="utf-8") == old
        assert not list(tmp_path.glob("*.part"))
    give(monkeypatch, lines)
    with pytest.raises(SystemExit):
        cli.main(["translate", model, "--chunk", "2"])
    assert capsys.readouterr().out.count("\n") == 2  # whole chunks


def test_the_examples_of_the_help_can_be_typed(capsys):
    examples = re.findall(r"^  annotated (translate .*?)(?: <.*)?$", cli.HOW_TO_TRANSLATE, re.M)
    assert len(examples) == 4
    seen: list = []
    for example in examples:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cli, "run_translate", lambda options: seen.append(options))
            cli.main(shlex.split(example))
    assert [options.text for options in seen] == [["A dog runs.", "A cat sleeps."], [], [],
                                                  ["A dog runs."]]  # fmt: skip
    assert "annotated translate multi30k-en-de < in.txt > out.txt" in helped(capsys, "translate")


# ------------------------------------------------------------------------------ corpora and paper


def test_data_list(capsys):
    text = said(capsys, "data", "list")
    for corpus in known_corpora().values():
        for part in corpus.name, corpus.title, corpus.source, corpus.licence, *corpus.languages:
            assert part in text
        assert f"splits: {' '.join(corpus.splits)}" in text
    assert text.count("GB to download") == 2  # WMT's, which one should know beforehand


def test_data_get_names_the_files(corpus: None, tmp_path: Path, capsys):
    for split in "train", "val", "test_2016_flickr":
        (tmp_path / "data" / "multi30k" / f"{split}.fr").write_text("x\n", encoding="utf-8")
    command = ["data", "get", "multi30k", "--split"]
    paths = [Path(line) for line in said(capsys, *command, "train", "dev", "test").splitlines()]
    assert len(set(paths)) == 9 and all(path.is_file() for path in paths)
    assert len(said(capsys, *command, "dev").splitlines()) == 3


def test_data_get_downloads_what_is_not_at_hand(corpus: None, tmp_path: Path, capsys, monkeypatch):
    asked: list[str] = []

    def download(url: str, path: Path, size: int | None, sha256: str | None) -> Path:
        asked.append(url)
        return path

    monkeypatch.setattr("annotated.machinery.corpora.download", download)
    monkeypatch.setattr("annotated.machinery.corpora.cache_folder", lambda: tmp_path / "cache")
    out = said(capsys, "data", "get", "wmt14-en-de", "--split", "test", "train")
    names = [url.rsplit("/", 1)[1] for url in asked]
    assert names[0] == "dev.tgz" and len(names) == 4
    assert out.splitlines() == [str(tmp_path / "cache" / "wmt" / name) for name in names]


@pytest.fixture
def no_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("annotated.machinery.paper.quotation.find_paper", lambda: None)


def test_paper_show_without_a_paper(no_paper: None, capsys):
    error = refused(capsys, "paper", "show", "3.2.1")
    assert "annotated paper get" in error and "annotated paper import" in error


def test_paper_show(monkeypatch, capsys):
    sections = {"3.2.1": ["First paragraph.", "Second paragraph."], "4": ["Another."]}
    monkeypatch.setattr(
        "annotated.machinery.paper.quotation.find_paper", lambda: SimpleNamespace(sections=sections)
    )
    assert said(capsys, "paper", "show", "3.2.1") == "First paragraph.\n\nSecond paragraph.\n"
    assert "3.2.1, 4" in refused(capsys, "paper", "show", "9")


# ----------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["translate", "no-such-model", "x"], "'no-such-model'"),
        (["translate", "MODEL", "x", "--input", "y"], "sentences or --input; got both"),
        (["translate", "MODEL", "--input", "missing.txt"], "missing.txt"),
        (["translate", "MODEL", "x", "--output", "."], "the name of a file; got ."),
        (
            ["translate", "MODEL", "x", "--output", "data/multi30k/train.en.gz/x"],
            "train.en.gz/x could not be written",
        ),
        (["translate", "MODEL", "x", "--device", "tpu"], "got 'tpu'"),
        (["translate", "MODEL", "x", "--beam", "0"], "beam of at least 1; got 0"),
        (["translate", "MODEL", "x", "--beam", "99999999"], "beam of at most 1,000; got 99999999"),
        (
            ["translate", "MODEL", "x", "--device", "meta"],
            "a device that torch can use; got 'meta'",
        ),
        (["translate", "MODEL", "x", "--n-best", "0"], "n_best of at least 1; got 0"),
        (["translate", "MODEL", "x", "--alpha=-inf"], "alpha between -10 and 10; got -inf"),
        (["translate", "MODEL", "x", "--max-extra", "9" * 18], "max_extra of at most 10,000"),
        (["translate", "MODEL", "x", "--chunk", "9" * 99], "chunk of at most 1,000,000"),
        (["translate", "MODEL", "x", "--batch-tokens", "9" * 99], "batch_tokens of at most 1,000,"),
        (["translate", "MODEL", "x", "--max-source", "1"], "max_source of at least 2; got 1"),
        (["translate", "", "x"], "a folder with model.safetensors, or a model out of"),
        (["translate", "x" * 5000, "x"], "a folder with model.safetensors, or a model out of"),
        (["evaluate", "MODEL", "--data", "multi30k-en-de", "--beam", "-3"], "beam of at least 1"),
        (
            ["parse", "x", "--treebank", "craft", "--limit", "0"],
            "a limit of at least 1 sentence; got 0",
        ),
        (
            ["treebank", "write", "craft", "x", "--limit", "-1"],
            "a limit of at least 1 sentence; got -1",
        ),
        (["translate", "MODEL", "x", "--n-best", "5"], "n_best=5, beam=4"),
        (["translate", "MODEL", "x", "--alpha", "nan"], "alpha between -10 and 10; got nan"),
        (["translate", "MODEL", "x", "--max-extra", "-1"], "max_extra of at least 0; got -1"),
        (["translate", "MODEL", "x", "--chunk", "0"], "chunk of at least 1; got 0"),
        (["translate", "MODEL", "x", "--batch-tokens", "0"], "batch_tokens of at least 1; got 0"),
        (["evaluate", "no-such-model"], "'no-such-model'"),
        (["score", "missing.de", "--ref", "missing.ref"], "missing.de"),
        (["train", "--data", "wmt13-en-de"], "wsj-sample; got 'wmt13'"),
        (["train", "--data", "multi30k-cs-de"], "'cs'"),
        (["train", "--d-model", "0"], "d_model of at least 1; got 0"),
        (["train", "--dropout", "1"], "dropout in [0, 1); got 1.0"),
        (["train", "--tgt-tokens", "3"], "no training pair of at most 3 pieces"),
        (["train", "--data", "multi30k"], "CORPUS-SRC-TGT"),
        (["data", "get", "laws"], "laws.en-fr.tsv.xz"),
        (["data", "get", "multi30k", "--split", "val"], "'val'"),
        (["data", "get", "wmt13"], "wsj-sample; got 'wmt13'"),
        (["average", "missing.safetensors", "--out", "x"], "missing.safetensors"),
        (["paper", "import", "missing.pdf"], "missing.pdf"),
    ],
)
def test_a_mistake_gets_one_line_and_status_2(corpus: None, model, capsys, arguments, part):
    arguments = [model if argument == "MODEL" else argument for argument in arguments]
    assert part in refused(capsys, *arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["sing"],
        ["train", "--updates", "many"],
        ["translate"],
        ["translate", "x", "--temperature", "1"],
        ["data"],
        ["average"],
        ["score", "x"],
    ],
)
def test_wrong_usage_gets_status_2(capsys, arguments: list[str]):
    with pytest.raises(SystemExit) as end:
        cli.main(arguments)
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith("usage: annotated")


def test_an_interrupted_run_says_that_it_can_go_on(monkeypatch, capsys):
    def interrupted(config: TrainingConfig, resume: bool) -> None:
        raise KeyboardInterrupt("saved; to go on: annotated train --resume")

    monkeypatch.setattr("annotated.machinery.training.trainer.train", interrupted)
    with pytest.raises(SystemExit) as end:
        cli.main(["train"])
    assert end.value.code == 130 and "saved; to go on" in capsys.readouterr().err


def test_ctrl_c_says_that_it_was_heard(capsys, monkeypatch):
    def stopped(config, resume):
        raise KeyboardInterrupt

    monkeypatch.setattr("annotated.machinery.training.trainer.train", stopped)
    with pytest.raises(SystemExit):
        cli.main(["train"])
    assert capsys.readouterr().err == "annotated: interrupted\n"


def test_a_preset_is_not_forgotten_when_a_run_goes_on(tmp_path: Path, monkeypatch):
    seen: list[object] = []
    monkeypatch.setattr(
        "annotated.machinery.training.trainer.train", lambda config, resume: seen.append(config)
    )
    write_text(
        tmp_path / "training.json", json.dumps(dataclasses.asdict(preset("multi30k-en-fr", seed=3)))
    )
    again = ["train", "--out", str(tmp_path), "--resume"]
    for more in [], ["--preset", "big-en-de"]:
        cli.main([*again, *more])
    assert seen[0] == preset("multi30k-en-fr", seed=3, out=str(tmp_path))
    assert seen[1] == preset(
        "big-en-de", out=str(tmp_path)
    )  # train refuses that, see test_training_trainer


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def train(config: object, resume: bool) -> None:
        raise error

    monkeypatch.setattr("annotated.machinery.training.trainer.train", train)


@pytest.mark.parametrize("error", [KeyError("a key"), TypeError("line 1\nline 2"), RuntimeError()])
def test_a_fault_of_ours_is_one_line_that_says_so(monkeypatch, capsys, error: Exception):
    failing(monkeypatch, error)
    with pytest.raises(SystemExit) as end:
        cli.main(["train"])
    out, line = capsys.readouterr()
    assert end.value.code == 70 and out == "" and line.count("\n") == 1
    assert type(error).__name__ in line and "--debug" in line and "no mistake of yours" in line
    for arguments in (
        ["--debug", "train"],
        ["train", "--debug"],
        ["train", "--debug", "--seed", "3"],
    ):
        with pytest.raises(type(error)):
            cli.main(arguments)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 2 GiB"), "--batch-tokens"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
            "out of memory",
        ),
        (MemoryError(), "out of memory"),
        (OSError(28, "No space left on device"), "annotated: No space left on device\n"),
        (OSError(13, "Permission denied", "a/b"), "annotated: a/b: Permission denied\n"),
        (ValueError("one\n  two\u2028three"), "annotated: one two three\n"),
        (ValueError(), "annotated: ValueError\n"),
        (ModuleNotFoundError("No module named 'x'", name="x"), "expected the package x"),
    ],
)
def test_what_is_no_fault_of_ours_is_one_line(monkeypatch, capsys, error: Exception, said: str):
    failing(monkeypatch, error)
    assert said in refused(capsys, "train")
    with pytest.raises(type(error)):
        cli.main(["train", "--debug"])


def test_help_says_how_to_see_a_traceback(capsys):
    for command in [], ["translate"], ["data", "get"], ["treebank", "score"]:
        assert "--debug if something goes wrong, show Python's traceback" in helped(
            capsys, *command
        )


def test_debug_is_no_sentence(model, capsys):
    assert said(capsys, "translate", "--debug", model, "red") == said(
        capsys, "translate", model, "red", "--debug"
    )
    assert said(capsys, "translate", model, "--", "red", "--debug").count("\n") == 2


def started(*arguments: str, shell: str = "", **more: object) -> subprocess.CompletedProcess:
    """The command in a process of its own; `shell` is what a shell does to its streams."""
    command = shlex.join([sys.executable, "-m", "annotated", *arguments])
    options = {"capture_output": True, "timeout": 120, "input": b"red dog\n"} | more
    return subprocess.run(["sh", "-c", f"{command} {shell}"], **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "shell", "status", "line"),
    [
        ([], "<&-", 2, "expected sentences, as arguments or on standard input, which is closed"),
        ([], ">&-", 2, "expected --output, for standard output is closed"),
        (["red"], "<&-", 0, ""),
        (["red", "--output", "x"], "<&- >&-", 0, ""),
        (["red"], "2>&-", 0, ""),
        (["red", "--beam", "0"], "2>&-", 2, ""),
        pytest.param(
            ["red"],
            "> /dev/full",
            2,
            "No space left on device",
            marks=pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device"),
        ),
        ([], "< /dev/null", 0, ""),
    ],
)
def test_streams_that_are_closed_or_full(model, tmp_path, arguments, shell, status, line):
    done = started("translate", model, *arguments, shell=shell)
    assert done.returncode == status
    assert done.stderr.decode() == (f"annotated: {line}\n" if line else "")
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.slow
def test_bytes_that_are_no_text_and_terminals_that_print_little(model, tmp_path):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    bad = b"red \xff\xed\xa0\x80 dog"
    command = [sys.executable, "-m", "annotated", "translate", model, bad, b"\xff", "red"]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=120)
    assert done.returncode == 0 and done.stderr == b""
    lines = done.stdout.decode().split("\n")
    assert len(lines) == 4 and lines[2] == load_pretrained(model).translate("red")
    (tmp_path / "gelöst").write_text("Der Hund ist im Haus.\n", encoding="utf-8")
    done = started("score", "gelöst", "--ref", "gelöst", env=environment)
    assert done.returncode == 0 and done.stdout.startswith(b"gel\\xf6st ")


def test_an_input_that_breaks_off_is_one_line(model, capsys, monkeypatch):
    def broken() -> Iterator[bytes]:
        yield b"red\n"
        raise OSError(5, "Input/output error")

    give(monkeypatch, broken())
    told = "annotated: standard input: expected sentences, one a line; got: Input/output error\n"
    assert refused(capsys, "translate", model) == told


@pytest.mark.parametrize("text", ["\ud800", "a \udcff b", "\ud83d\ude00", "x\udfffy\ud800"])
def test_lone_surrogates_become_marks(text: str):
    line = commands.one_line(text)
    line.encode("utf-8")
    assert line == ("😀" if text == "\ud83d\ude00" else re.sub("[\ud800-\udfff]", "\ufffd", text))


@pytest.mark.slow
def test_a_line_without_end_is_cut_and_said_so(model):
    lines = b"red dog\n" + b"red" * 100_000 + b"\nhen\n"
    done = started("translate", model, "--max-extra", "0", "--chunk", "2", input=lines)
    assert done.returncode == 0 and done.stdout.count(b"\n") == 3
    told = "annotated: sentence 2 ('redredredredredredre'…) has more than 60 pieces; only these are"
    assert done.stderr.decode() == f"{told} translated\n"


def test_parsers_are_scored_and_the_scores_kept(tmp_path: Path, capsys, monkeypatch):
    seen: list[tuple] = []

    def score(parser: str, *where: object, **search: float) -> list[dict]:
        seen.append((parser, where, search))
        return [{"Number of sentence": 2, "Bracketing FMeasure": 87.654321}]

    def compare(*arguments: object, **search: float) -> list[dict]:
        return [{"parser": "grammar"} | row for row in score(*arguments, **search)]

    monkeypatch.setattr("annotated.parsing.load_parser", lambda name, device: name)
    monkeypatch.setattr("annotated.machinery.parsing.scoring.score_parser", score)
    monkeypatch.setattr("annotated.machinery.parsing.baselines.compare_parsers", compare)
    kept = tmp_path / "scores.json"
    asked = ["parse", "--model", "m", "--treebank", "craft", "--out", str(kept)]
    told = said(capsys, *asked, "--beam", "21")
    assert f"{'Bracketing FMeasure':26}= 87.654" in told
    shared = {"treebank": "craft", "split": "dev", "alpha": 0.3}
    shared |= {"Number of sentence": 2, "Bracketing FMeasure": 87.654321, "hold": True}
    assert json.loads(kept.read_text()) == [shared | {"beam": 21}]
    assert f"{'parser':26}= grammar" in said(capsys, *asked, "--split", "test", "--baselines")
    assert json.loads(kept.read_text()) == [
        shared | {"split": "test", "beam": 4, "parser": "grammar"}
    ]
    assert seen == [
        ("m", ("craft", "dev", None), {"beam": 21, "alpha": 0.3, "hold": True}),
        ("m", ("craft", "test", None), {"beam": 4, "alpha": 0.3, "hold": True}),
    ]
    said(capsys, *asked, "--free")
    assert [row["hold"] for row in json.loads(kept.read_text())] == [False]


class LikeWords:
    """A parser that takes every sentence for a row of nouns."""

    def parse(self, words: list[str], **search: object) -> Tree:
        return Tree("S", [Tree("NN", [word]) for word in words])


@pytest.fixture
def nouns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("annotated.parsing.load_parser", lambda name, device: LikeWords())


def test_lines_of_standard_input_are_parsed(nouns, capsys, monkeypatch):
    give(monkeypatch, "A cät sat.\r\nIt\u2028slept.".encode())
    lines = ["(S (NN A) (NN cät) (NN sat) (NN .))", "(S (NN It) (NN slept) (NN .))"]
    assert said(capsys, "parse", "--lines").splitlines() == lines
    assert said(capsys, "parse", "--lines", "A cät sat.").splitlines() == lines[:1]


def test_what_is_not_utf8_is_not_parsed(nouns, capsys, monkeypatch):
    give(monkeypatch, b"The cat\xe9 sat.\n")
    error = refused(capsys, "parse")
    assert error == "annotated: standard input, line 1: expected UTF-8; got byte 0xe9\n"


def test_a_sentence_without_end_is_not_parsed(nouns, capsys):
    with pytest.raises(SystemExit):
        cli.main(["parse", "--lines", "a cat", "a" * 100_000])
    told = "sentence 2: expected at most 2,000 letters; got 100,000"
    assert capsys.readouterr() == ("(S (NN a) (NN cat))\n", f"annotated: {told}\n")


def test_a_drawing_may_go_to_a_folder_that_is_not_there(nouns, tmp_path, capsys):
    said(capsys, "parse", "a cat", "--svg", str(tmp_path / "new" / "x.svg"))
    assert (tmp_path / "new" / "x.svg").read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--out", "x.json"], "expected --treebank with --out"),
        (["--baselines"], "expected --treebank with --baselines"),
        (["--limit", "3"], "expected --treebank with --limit"),
        (["--treebank", "craft"], "expected either sentences to draw or --treebank"),
        (["--treebank", "craft", "--svg", "x.svg"], "expected either sentences to draw or"),
    ],
)
def test_options_of_parse_that_would_do_nothing_are_refused(nouns, capsys, more, message):
    assert message in refused(capsys, "parse", "a cat", *more)


def test_a_treebank_is_written_and_files_of_trees_are_scored(tmp_path: Path, capsys):
    for section in range(2, 23):
        (tmp_path / f"penn/{section:02}").mkdir(parents=True)
        text = "( (S (NP-SBJ (NN a)) (. .)) )\n" * 2
        (tmp_path / f"penn/{section:02}/a.mrg").write_text(text, encoding="utf-8")
    told = said(capsys, "treebank", "write", "penn", "runs/penn", "--limit", "3")
    assert told == "runs/penn-words-trees\n"
    line = "↓S ↓NP →NN a ↑NP →STOP . ↑S\n"
    assert (tmp_path / "runs/penn/train.trees").read_text(encoding="utf-8") == line * 3
    assert (tmp_path / "runs/penn/dev.words").read_text(encoding="utf-8") == "a .\n" * 2
    (tmp_path / "gold").write_text("(S (NP (NN a)) (. .))\n", encoding="utf-8")
    (tmp_path / "found").write_text("(S (NN a) (. .))\n", encoding="utf-8")
    told = said(capsys, "treebank", "score", "gold", "found", "--out", "new/x.json")
    assert f"{'Bracketing Recall':26}=     50\n" in told
    (kept, _) = json.loads((tmp_path / "new/x.json").read_text(encoding="utf-8"))
    assert (kept["gold"], kept["found"], kept["Bracketing Precision"]) == ("gold", "found", 100)


def test_a_study_of_heads_is_written_as_valid_json(run: Path, tmp_path: Path, monkeypatch):
    """A head without a relation has nulls, for NaN is no JSON; numbers keep their digits."""
    table = pd.DataFrame({"relation": ["det", None], "gain": [1 / 3, float("nan")]})
    monkeypatch.setattr("annotated.machinery.heads.study.load_gum", lambda split: [])
    monkeypatch.setattr("annotated.machinery.heads.study.head_study", lambda *of: {"heads": table})
    cli.main(["heads", str(run), "--out", str(tmp_path / "heads.json")])

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    found = json.loads((tmp_path / "heads.json").read_text(), parse_constant=refuse)
    assert found["heads"][1] == {"relation": None, "gain": None}
    assert found["heads"][0]["gain"] == pytest.approx(1 / 3, abs=1e-14)


def test_trees_are_scored_by_the_rules_of_a_file(tmp_path: Path, capsys):
    sample = Path(__file__).parent / "evalb"
    files = [str(sample / f"sample.{end}") for end in ("gld", "tst", "prm")]
    kept = tmp_path / "x.json"
    score = ["treebank", "score", *files[:2]]
    told = said(capsys, *score, "--param", files[2], "--out", str(kept))
    (scores, _) = json.loads(kept.read_text(encoding="utf-8"))
    printed = (sample / "sample.rsl").read_text(encoding="utf-8")
    for line in printed.split("-- All --\n")[1].split("\n\n")[0].splitlines():
        name, value = line.split("=")
        assert f"{scores[name.rstrip()]:.2f}" == f"{float(value):.2f}", name
    assert scores["param"] == files[2]
    assert said(capsys, *score) != told  # COLLINS.prm, which has no EQ_WORD
    (tmp_path / "short.prm").write_text("CUTOFF_LEN 4\n", encoding="utf-8")
    assert "= up to 4 words\n" in said(capsys, *score, "--param", str(tmp_path / "short.prm"))
    (tmp_path / "bad.prm").write_text("\nDELETE TOP\n", encoding="utf-8")
    error = refused(capsys, *score, "--param", str(tmp_path / "bad.prm"))
    assert "bad.prm, line 2: expected one of DELETE_LABEL" in error and error.count("\n") == 1


@pytest.mark.parametrize("limit", ["0", "-1"])
def test_a_limit_below_one_is_refused(limit: str, capsys):
    for asked in ["treebank", "write", "craft", "new"], ["parse", "--treebank", "craft"]:
        error = refused(capsys, *asked, "--limit", limit)
        assert error == f"annotated: expected a limit of at least 1 sentence; got {limit}\n"
    assert not Path("new").exists()
