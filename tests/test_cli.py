"""The command `annotated`: what it says, what it does, and how it fails."""

import dataclasses
import gzip
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from contents import CHAPTERS
from nltk import Tree
from safetensors.torch import load_file

from annotated.data import train_bpe
from annotated.machinery.cli import commands
from annotated.machinery.cli.main import _COMMANDS, _parse, main
from annotated.machinery.corpora.registry import known_corpora
from annotated.machinery.errors import FileError
from annotated.machinery.files import resource_path, write_text
from annotated.machinery.formats.own import save_model
from annotated.machinery.formats.pretrained import load_pretrained
from annotated.machinery.options import allowed_types
from annotated.machinery.runs.checkpoints import list_checkpoints, read_config
from annotated.machinery.runs.logs import read_log
from annotated.machinery.scoring import BLEU_KINDS, CHRF_TEXT
from annotated.machinery.translator import Translation
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
def run(captions: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The folder of a run of six updates."""
    main(["train", *TINY, "--updates", "6", "--out", str(tmp_path / "run")])
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "run")
    return tmp_path / "run"


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Standard output of a command that succeeds."""
    main(list(arguments))
    return capsys.readouterr().out


def helped(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as end:
        main([*arguments, "--help"])
    assert end.value.code == 0
    return re.sub(r"\s+", " ", capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The line in which a command says what is wrong."""
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    out, error = capsys.readouterr()
    assert end.value.code == 2 and out == ""
    assert error.startswith("annotated: ") and error.count("\n") == 1 and error.endswith("\n")
    return error


def test_help_names_every_command(capsys):
    text = helped(capsys)
    for command in _COMMANDS:
        assert re.search(rf" {command} [a-z]", text)
        assert f"usage: annotated {command}" in helped(capsys, command)
    for part in "data list", "data get", "paper get", "paper import", "treebank write":
        assert f"usage: annotated {part}" in helped(capsys, *part.split())


@pytest.mark.slow
def test_help_needs_no_torch():
    code = "import contextlib, sys; from annotated.machinery.cli.main import main\n"
    light = [[], *([name] for name in _COMMANDS if name not in ("prepare", "train"))]
    code += f"for command in {light}:\n"
    code += "    with contextlib.suppress(SystemExit): main([*command, '--help'])\n"
    code += "assert not {'torch', 'numpy', 'pandas', 'tokenizers'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_options_of_train_are_the_fields_of_its_configuration(capsys):
    text = helped(capsys, "train")
    for field in dataclasses.fields(TrainingConfig):
        assert field.metadata["help"]
        option, kind = (
            f"--{field.name.rstrip('_').replace('_', '-')}",
            allowed_types(field)[0].__name__.upper(),
        )
        if field.metadata["choices"]:
            kind = f"{{{','.join(field.metadata['choices'])}}}"
        usage = f"{option}, --no-{option[2:]}" if kind == "BOOL" else f"{option} {kind}"
        about = re.escape(f"{usage} {field.metadata['help']}")
        default = re.search(rf"{about} \(default: (.*?)\)", text)[1]
        assert default == str(field.default) or (default == "none" and not field.default)


def test_examples_can_be_typed(capsys):
    page = (CHAPTERS / "command-line.md").read_text(encoding="utf-8")
    texts = re.findall(r"^```bash\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    for command in _COMMANDS:
        with pytest.raises(SystemExit):
            main([command, "--help"])
        texts.append(capsys.readouterr().out)
    found = re.findall(r"^(?: *|example: )annotated (.*)", "\n".join(texts), re.MULTILINE)
    typed = [_parse(shlex.split(line.partition(" > ")[0])) for line in found]
    assert {options.command.prog.split()[1] for options in typed} >= {"train", "generate", "data"}


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[TrainingConfig]:
    """The configurations that `train` gets, which trains nothing."""
    seen: list[TrainingConfig] = []
    monkeypatch.setattr("annotated.train", lambda config, resume: seen.append(config))
    return seen


def test_options_arrive_as_they_are_typed(trained, capsys):
    given = ["--dropout", "0.25", "--N", "2", "--out", "x", "--label-smoothing", "0", "--compile"]
    for more in [], given, ["--preset", "big-en-fr", "--updates", "7"]:
        said(capsys, "train", *more)
    assert trained == [
        TrainingConfig(),
        TrainingConfig(dropout=0.25, N=2, out="x", label_smoothing=0.0, compile=True),
        preset("big-en-fr", updates=7),
    ]
    assert trained[2].out == "runs/big-en-fr"


def test_train_continues_a_run_and_neither_loses_nor_changes_it(run: Path, capsys):
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    assert (config["d_model"], config["N"], config["src_vocab"]) == (16, 1, 50)
    before = list_checkpoints(run)[-1].read_bytes()
    assert "--resume" in refused(capsys, "train", *TINY, "--out", str(run))
    again = ["train", "--resume", "--out", str(run)]
    assert f"{run}x has no training.json" in refused(capsys, *again[:3], f"{run}x")
    assert "dropout=0.3" in refused(capsys, *again, "--dropout", "0.2")
    begun = read_config(run)
    said(capsys, *again, "--updates", "9")
    assert read_config(run) == dataclasses.replace(begun, updates=9)
    assert list_checkpoints(run)[-2].read_bytes() == before
    assert [path.stem[-1] for path in list_checkpoints(run)] == ["3", "6", "9"]


@pytest.mark.slow
def test_evaluate_prints_and_writes_the_same_scores(run: Path, tmp_path: Path, capsys):
    options = ["--split", "dev", "test", "--beam", "2", "--alpha", "0.4", "--out", "scores.json"]
    lines = said(capsys, "evaluate", str(run), *options).splitlines()
    second, first = lines.pop(6), lines.pop(0)
    rows = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    assert [row["split"] for row in rows] == ["dev"] * 5 + ["test"] * 5
    assert {row["text"] for row in rows} == {*BLEU_KINDS.values(), CHRF_TEXT}
    assert {row["search"] for row in rows} == {"beam 2, alpha 0.4"}
    for line, row in (first, rows[0]), (second, rows[5]):
        shown = f"perplexity {row['perplexity']:.2f} per piece, accuracy {row['accuracy']:.1%}"
        shown += f", length ratio {row['length_ratio']:.3f}"
        shown += f", brevity penalty {row['brevity_penalty']:.3f}"
        assert line == f"multi30k {row['split']}: beam 2, alpha 0.4, {shown}"
    for line, row in zip(lines, rows, strict=True):
        assert all(row[part] in line for part in ("split", "text", "signature"))
        assert f" {row['score']:.2f} " in line
        low, high = row.get("interval", (0, 0))
        assert f"± {(high - low) / 2:.2f}" in line or not high
    both = [str(run), str(run), *options]
    lines = said(capsys, "evaluate", *both[:2], "--beam", "1", "--out", "both.json").splitlines()
    both = json.loads((tmp_path / "both.json").read_text(encoding="utf-8"))
    assert len(both) == 10 and {row["model"] for row in both} == {str(run)}
    assert both[5]["difference"] == both[9]["difference"] == 0
    assert len([line for line in lines if "(+0.00, p = " in line]) == 2  # and no sentence differs
    assert len(lines) == 12
    (run / "training.json").unlink()  # which told the data
    assert "expected --data" in refused(capsys, "evaluate", str(run))


def test_score_prints_and_writes_the_same_scores(tmp_path: Path, capsys):
    for name, text in ("ref", "ist im"), ("good", "ist im"), ("bad", "ist in dem"):
        (tmp_path / name).write_text(f"Der Hund {text} Haus.\n", encoding="utf-8")
    options = ["--ref", "ref", "--lang", "de", "--out", "scores.json"]
    lines = said(capsys, "score", "good", "bad", *options).splitlines()
    rows = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    assert [row["output"] for row in rows] == ["good"] * 5 + ["bad"] * 5
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


def test_average(run: Path, capsys):
    """The run's model becomes the mean of the last two of its four checkpoints."""
    said(capsys, "train", "--resume", "--out", str(run), "--updates", "12")
    assert [path.stem[-2:] for path in list_checkpoints(run)] == ["03", "06", "09", "12"]
    two = [load_file(path) for path in list_checkpoints(run)[2:]]
    (run / "model.safetensors").unlink()
    assert said(capsys, "average", str(run), "--last", "2") == f"{run}\n"
    for name, x in load_file(run / "model.safetensors").items():
        mean = (two[0][f"model.{name}"] + two[1][f"model.{name}"]) / 2
        torch.testing.assert_close(x, mean.half(), atol=1e-3, rtol=1e-3)
    load_pretrained(str(run)).translate("red dog")
    assert "the average of its last checkpoints" in capsys.readouterr().err
    assert "99" in refused(capsys, "average", str(run), "--last", "99")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a model that has learned nothing, but ends its sentences."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = train_bpe(["red green blue dog cat cow hen."] * 2, 50)
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(1)
    net = make_model(50, 50, N=1, d_model=16, d_ff=32, h=2, positions="learned", max_len=60)
    save_model(folder, dict(net.named_parameters()), net.config)
    return str(folder)


def give(monkeypatch: pytest.MonkeyPatch, lines: bytes | Iterable[bytes], terminal=False) -> None:
    """Bytes, or lines as they come, on standard input."""
    coming = iter(io.BytesIO(lines) if isinstance(lines, bytes) else lines)
    buffer = SimpleNamespace(readline=lambda size: next(coming, b""))
    stdin = SimpleNamespace(buffer=buffer, isatty=lambda: terminal)
    monkeypatch.setattr("sys.stdin", stdin)


def test_sentences_files_and_pipes_are_translated_alike(model, tmp_path, capsys, monkeypatch):
    sentences = ["red dog.", "", "a green cow and a blue hen.", "cat", "red dog."]
    expected = "".join(f"{line}\n" for line in load_pretrained(model).translate(sentences))
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
    remember = lambda sentences, **options: seen.append({"sentences": list(sentences)} | options)
    candidates = lambda self, *given, **options: remember(*given, **options) or iter([])
    monkeypatch.setattr("annotated.machinery.translator.Translator.candidates", candidates)
    said(capsys, "translate", model, "a")
    given = "--beam 7 --alpha -0.5 --max-extra 3 --n-best 2 --batch-tokens 9 --chunk 4 --progress"
    said(capsys, "translate", model, "a", *given.split(), "--max-source", "8", "b")  # a sentence
    give(monkeypatch, b"c\n", terminal=True)
    said(capsys, "translate", model)
    paper = {"beam": 4, "alpha": 0.6, "max_extra": 50, "n_best": 1, "max_source": 1000}
    default = paper | {"batch_tokens": 2000, "chunk": 1000, "progress": False}
    typed = {"beam": 7, "alpha": -0.5, "max_extra": 3, "n_best": 2, "max_source": 8}
    typed |= {"batch_tokens": 9, "chunk": 4, "progress": True}
    assert seen == [
        default | {"sentences": ["a"]},
        typed | {"sentences": ["a", "b"]},
        default | {"sentences": ["c"], "chunk": 1},  # somebody waits for an answer
    ]


def test_the_bar_is_where_it_is_wanted(model, tmp_path, capsys, monkeypatch):
    command = ["translate", model, "red", "blue"]
    for terminals, output, bar in (
        (("stderr",), [], True),
        (("stdout", "stderr"), [], False),  # it would get between the lines
        (("stdout", "stderr"), ["--output", "x"], True),
        (("stdout", "stderr"), ["--output", "x", "--no-progress"], False),
    ):
        with monkeypatch.context() as patch:
            for name in terminals:
                patch.setattr(f"sys.{name}.isatty", lambda: True)
            main([*command, *output])
        assert ("0/2" in capsys.readouterr().err) == bar


def test_a_pipe_is_read_as_it_is_answered(model, capsys, monkeypatch):
    """At the third line, the first two have been answered; so a pipe may be endless."""
    answered = []

    answer = lambda line: answered.append(len(capsys.readouterr().out.splitlines())) or line
    give(monkeypatch, map(answer, [b"red\n", b"blue green dog\n", b"\n", b"cow\n", b"hen\n"]))
    main(["translate", model, "--chunk", "2"])
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
        main(["translate", model, "--chunk", "2"])
    assert capsys.readouterr().out.count("\n") == 2  # whole chunks


@pytest.fixture
def prompts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The prompts that a language model gets."""
    seen: list[str] = []
    stream = lambda prompt, *about, **options: seen.append(prompt) or iter(["text"])
    generator = SimpleNamespace(stream=stream)
    monkeypatch.setattr("annotated.load_language_model", lambda *about: generator)
    return seen


PROMPTS = ["the cat", "all:\n\tgcc a.c", "a\x0cb\x1cc", "a\u2028b\x85", "name\tvalue\nx\t", " a \r"]
PROMPTS += ["a\r\nb", "\n\n", "\xa0é", "a\n\n", "\u200b"]


def test_a_prompt_is_the_same_as_an_argument_and_on_standard_input(prompts, capsys, monkeypatch):
    for text in PROMPTS:
        said(capsys, "generate", "m", text)
        for given in f"{text}\n".encode(), f"\ufeff{text}\n".encode():
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
            assert said(capsys, "generate", "m") == "text\n"
        assert prompts == [text] * 3
        prompts.clear()
    for given in b"a\xff", b"\xed\xa0\x80":
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
        assert "standard input: expected a prompt; got: 'utf-8' codec" in refused(
            capsys, "generate", "m"
        )


@pytest.mark.parametrize("option", ["--chat", "--top-k 1", "--seed 1", "--device cpu", "--top-p=1"])
def test_a_prompt_stands_before_and_after_any_option(prompts, capsys, option: str):
    options = option.split()
    for text in "hello", "", "-5", "- a list", "two words":
        said(capsys, "generate", "m", text, *options)
        said(capsys, "generate", "m", *options, text)
        said(capsys, "generate", *options, "m", text)
        assert prompts == [text] * 3
        prompts.clear()
    for text in "-x", "--", "--debug", "--chat", "-x is negative, why?":
        said(capsys, "generate", "m", *options, "--", text)
        said(capsys, "generate", *options, "--", "m", text)
        assert prompts == [text] * 2
        prompts.clear()
    assert "expected one prompt, in quotes; got 2" in refused(capsys, "generate", "m", "a", "b")
    assert not prompts


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("train --lr 1", "--factor"),
        ("train --batch-size 8 --epochs 3", "--tgt-tokens or --updates"),
        ("translate m --beams 2 x", "--beam"),
        ("generate m --max-tokens=3", "--max-new-tokens"),
        ("score a --refs b --lang de --ref c", "--ref"),
    ],
)
def test_an_unknown_option_is_answered_with_those_there_are(prompts, capsys, line, meant):
    with pytest.raises(SystemExit) as end:
        main(line.split())
    error = capsys.readouterr().err
    assert end.value.code == 2 and f"did you mean {meant}" in error
    assert error.startswith(f"usage: annotated {line.split()[0]}")


def test_data_list(capsys):
    text = said(capsys, "data", "list")
    for corpus in known_corpora().values():
        for part in corpus.name, corpus.title, corpus.source, corpus.license, *corpus.languages:
            assert part in text
        assert f"splits: {' '.join(corpus.splits)}" in text
    assert text.count("GB to download") == 2  # WMT's, which one should know beforehand


def test_data_get_names_the_files(captions: None, tmp_path: Path, capsys):
    for split in "train", "val", "test_2016_flickr":
        (tmp_path / "data" / "multi30k" / f"{split}.fr").write_text("x\n", encoding="utf-8")
    command = ["data", "get", "multi30k", "--split"]
    for splits in ["train", "dev", "test"], ["dev"]:
        paths = [Path(line) for line in said(capsys, *command, *splits).splitlines()]
        assert len(set(paths)) == 3 * len(splits) and all(path.is_file() for path in paths)


MISTAKES = {
    "translate no-such-model x": "'no-such-model'",
    "translate MODEL x --input y": "--input",
    "translate MODEL --input missing.txt": "missing.txt",
    "translate MODEL x --output .": "the name of a file to write; got '.': a folder",
    "translate MODEL x --output data/multi30k/train.en.gz/x": "train.en.gz/x",
    "translate MODEL x --device tpu": "'tpu'",
    "translate MODEL x --alpha nan": "alpha",
    "translate tatoeba-en x": "generate",
    "export tatoeba-en --to onnx --out x": "generate",
    "train --data multi30k": "CORPUS-SRC-TGT",
    "train --d-model 0": "d_model",
    "train --tgt-tokens 3": "no training pair",
    "parse cat --out x.json": "--treebank",
    "parse cat --treebank craft --svg x.svg": "--treebank",
    "data get laws": "laws.en-fr.tsv.xz",
    "average missing": "missing",
    "paper import missing.pdf": "missing.pdf",
    "export MODEL --to pdf --out x": "huggingface",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_gets_one_line_and_status_2(captions: None, model, capsys, line: str):
    assert MISTAKES[line] in refused(capsys, *line.replace("MODEL", model).split())


@pytest.mark.parametrize(
    "line", ["", "sing", "train --updates many", "translate", "translate x --temperature 1", "data"]
)
def test_wrong_usage_gets_status_2(capsys, line: str):
    with pytest.raises(SystemExit) as end:
        main(line.split())
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith("usage: annotated")


def test_a_preset_is_not_forgotten_when_a_run_goes_on(trained, tmp_path: Path):
    kept = dataclasses.asdict(preset("multi30k-en-fr", seed=3))
    write_text(tmp_path / "training.json", json.dumps(kept))
    for more in [], ["--preset", "big-en-de"]:
        main(["train", "--out", str(tmp_path), "--resume", *more])
    assert trained[0] == preset("multi30k-en-fr", seed=3, out=str(tmp_path))
    assert trained[1] == preset("big-en-de", out=str(tmp_path))  # which train refuses


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (KeyboardInterrupt("saved; --resume"), 130, "annotated: saved; --resume\n"),
        (KeyboardInterrupt(), 130, "annotated: interrupted\n"),
        (TypeError("line 1\nline 2"), 70, "TypeError"),  # faults of ours
        (RuntimeError(), 70, "--debug"),
        (torch.OutOfMemoryError("CUDA out of memory.\nTried"), 2, "--batch-tokens"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 2, "out of memory"),
        (MemoryError(), 2, "out of memory"),
        (OSError(13, "Permission denied", "a/b"), 2, "Permission denied: 'a/b'\n"),
        (ValueError("one\n  two\u2028three"), 2, "annotated: one two three\n"),
        (ValueError("\x1b[31m" + "x" * 9999), 2, "[31mxxx"),
        (ValueError(), 2, "annotated: ValueError\n"),
        (ModuleNotFoundError("No module named 'x'", name="x"), 2, "'x'"),
    ],
)
def test_an_error_is_one_line_and_a_status(monkeypatch, capsys, error, status: int, said: str):
    train = Mock(side_effect=error)
    monkeypatch.setattr("annotated.train", train)
    with pytest.raises(SystemExit) as end:
        main(["train"])
    out, line = capsys.readouterr()
    assert (end.value.code, out, line.count("\n")) == (status, "", 1) and said in line
    assert "\x1b" not in line and len(line) < 1100  # it commands no terminal
    if status != 130:
        for arguments in ["--debug", "train"], ["train", "--debug", "--seed", "3"]:
            with pytest.raises(type(error)):
                main(arguments)


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
        ([], ">&-", 2, "expected an open standard output; it is closed"),
        (["red", "--output", "x"], "<&- >&-", 0, ""),
        (["red"], "2>&-", 0, ""),
        (["red", "--beam", "0"], "2>&-", 2, ""),
        (["red"], "> /dev/full", 2, "[Errno 28] No space left on device"),
        ([], "< /dev/null", 0, ""),
        (["--output", "in.txt"], "< in.txt", 2, None),  # which is not replaced
    ],
)
def test_streams_that_are_closed_or_full(model, tmp_path, arguments, shell, status, line):
    if "full" in shell and not os.path.exists("/dev/full"):
        pytest.skip("no such device")
    (tmp_path / "in.txt").write_text("one\n")
    done = started("translate", model, *arguments, shell=shell)
    assert done.returncode == status
    assert line is None or done.stderr.decode() == (f"annotated: {line}\n" if line else "")
    assert (tmp_path / "in.txt").read_text() == "one\n" and not list(tmp_path.glob("*.part"))


@pytest.mark.processes
@pytest.mark.parametrize("command", ["translate", "train --data texts-en-de --out run"])
def test_ctrl_c_at_any_moment_is_one_line(model, command: str):
    """Also while libraries are imported, where an exception would become many or get lost."""
    words = [sys.executable, "-m", "annotated", *command.split()]
    words += [model] if command == "translate" else []
    for seconds in 0.3, 0.7, 1.1, 1.5, 2.0:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process = subprocess.Popen(words, **pipes)
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
        if not error.endswith(b"KeyboardInterrupt\n"):  # before the first line of ours
            assert error.count(b"\n") <= 1 and process.returncode in (2, 130, -signal.SIGINT)


@pytest.mark.slow
def test_what_nobody_can_be_told_does_not_undo_what_is_done(run):
    if not os.path.exists("/dev/full"):
        pytest.skip("no such device")
    words = "train", "--out", str(run), "--resume", "--updates", "8"
    assert started(*words, shell="2> /dev/full").returncode == 0
    assert read_log(run / "log.csv") and load_pretrained(run)
    assert started("translate", "nowhere", "x", shell="2> /dev/full").returncode == 2


def test_words_after_two_dashes_are_sentences(model, capsys):
    expected = said(capsys, "translate", model, "--", "-red", "--debug")
    assert expected.count("\n") == 2
    assert said(capsys, "translate", model, "--beam", "4", "--", "-red", "--debug") == expected
    one = said(capsys, "translate", "--debug", model, "red")
    assert one == said(capsys, "translate", model, "red", "--debug") and one.count("\n") == 1


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_trees_are_written_in_utf_8(nouns, monkeypatch, encoding: str):
    """As translations are, whatever the platform's encoding is; each leaf is a word."""
    words = ["The", "naïve", "☃", "of", "Łódź", "😀"]
    for form in ["--lines"], []:
        out = io.BytesIO()
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(out, encoding=encoding))
        main(["parse", *form, "--words", " ".join(words)])
        text = out.getvalue().decode("utf-8")
        assert all(word in text for word in words) and "\\" not in text


@pytest.mark.parametrize("name", ["dev.en", "dev.de", "test.en", "train.de", "link.json"])
def test_scores_replace_no_corpus(corpus, model, tmp_path, capsys, name: str):
    texts = Path(shutil.copytree(corpus, tmp_path / "texts"))
    shutil.copy(texts / "dev.en", texts / "test.en")
    (texts / "link.json").symlink_to(texts / "dev.de")
    before = {path: path.read_bytes() for path in texts.iterdir()}
    line = f"evaluate {model} --data texts-en-de --split dev --out texts/{name}"
    assert f"texts/{name}" in refused(capsys, *line.split())
    assert before == {path: path.read_bytes() for path in texts.iterdir()}


def test_scores_replace_scores_and_no_other_file(tmp_path, capsys):
    (tmp_path / "a").write_text("ein Hund im Haus\n")
    score = ["score", "a", "--ref", "a", "--out"]
    for name, old in ("new", None), ("empty", ""):
        if old is not None:
            Path(name).write_text(old)
        said(capsys, *score, name)
        assert json.loads(Path(name).read_text())[0]["score"] > 99
        said(capsys, *score, name)
    listed = b"[]", b"[1]", b"[[]]", b'[{"score": 1}]', Path("new").read_bytes()[:-3] + b", 1]"
    others = b"{}", b'{"untrained": 1}', b"a,b\n", b"\xff", b"[", b'"a"', b"[" * 99_999
    for old in (*listed, *others):
        Path("other").write_bytes(old)
        assert "which would be lost" in refused(capsys, *score, "other")
        assert Path("other").read_bytes() == old


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("evaluate", "multi30k-en-de"),
        ("score", "newstest2017-en-de"),
        ("parse", "craft-parser-wsj"),
    ],
)
def test_results_are_those_of_one_command(command: str, name: str):
    path = str(resource_path(f"results/{name}.json"))
    commands._check_results(command, path)
    for other in commands.RESULTS.keys() - {command}:
        with pytest.raises(
            FileError, match=r"earlier results of `annotated .*, which would be lost"
        ):
            commands._check_results(other, path)


def test_a_split_that_does_not_exist_is_refused_before_the_work(corpus, capsys, monkeypatch):
    monkeypatch.setattr("annotated.load_pretrained", None)  # not reached
    line = f"evaluate multi30k-en-de --data {corpus}-en-de --split dev tset"
    assert "expected tset.en" in refused(capsys, *line.split())


def test_a_perplexity_beyond_all_numbers_loses_no_score(model, corpus, capsys):
    """A bias of 1e4 makes every other piece as improbable as e to the power -10,000."""
    net = load_pretrained(model).model
    size = net.config.tgt_vocab
    wild = make_model(size, size, N=1, d_model=16, d_ff=32, h=2, bias=True)
    with torch.no_grad():
        wild.generator.proj.bias[size - 1] = 1e4
        wild.generator.proj.bias[1] = 2e4
    Path("wild").mkdir()
    shutil.copy(Path(model, "tokenizer.json"), "wild")
    save_model(Path("wild"), dict(wild.named_parameters()), wild.config)
    line = f"evaluate wild --data {corpus}-en-de --split dev dev --beam 1 --out scores.json"
    out = said(capsys, *line.split())
    assert out.count("perplexity inf per piece, accuracy ") == 2 and out.count("tok:13a") == 2

    refuse = lambda constant: pytest.fail(f"{constant} is no JSON")
    rows = json.loads(Path("scores.json").read_text(), parse_constant=refuse)
    assert len(rows) == 10 and {row["perplexity"] for row in rows} == {None}


def test_outputs_are_checked_before_the_work(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("annotated.load_pretrained", None)  # not reached
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    for line in (
        "evaluate M --out full", "parse x --svg full", "import M --out full",
        "export M --to onnx --out full", "score full --ref full --out ''", "import M --out ''",
    ):  # fmt: skip
        assert "expected " in refused(capsys, *shlex.split(line))


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
    told = "annotated: standard input: expected sentences, one per line; got: Input/output error\n"
    assert refused(capsys, "translate", model) == told


@pytest.mark.slow
def test_a_line_without_end_is_cut_and_said_so(model):
    lines = b"red dog\n" + b"red" * 100_000 + b"\nhen\n"
    done = started("translate", model, "--max-extra", "0", "--chunk", "2", input=lines)
    assert done.returncode == 0 and done.stdout.count(b"\n") == 3
    told = "annotated: warning: sentence 2 ('redredredredredredre'…) has more than 60 pieces; only"
    assert done.stderr.decode() == f"{told} these are translated\n"


def nouns_of(words: Iterable[str], **search: object) -> Tree:
    return Tree("S", [Tree("NN", [word]) for word in words])


def test_a_parser_is_scored_and_the_scores_kept(tmp_path: Path, capsys, monkeypatch):
    seen: list[dict] = []
    gold = [Tree.fromstring("(S (NP (NN a)) (VP (VB b)))"), Tree.fromstring("(S (NN c))")]

    def parse_all(words: list[list[str]], **search: object) -> list[Tree]:
        seen[-1] |= search
        return [nouns_of(sentence) for sentence in words]

    parser = lambda name, device: SimpleNamespace(parse_all=parse_all)
    load_trees = lambda *where: seen.append({"where": where}) or gold
    monkeypatch.setattr("annotated.load_parser", parser)
    monkeypatch.setattr("annotated.machinery.trees.penn.load_trees", load_trees)
    kept = tmp_path / "scores.json"
    asked = ["parse", "--treebank", "craft"]
    told = said(capsys, *asked, "--beam", "21", "--out", str(kept))
    assert f"{'Bracketing Recall':26}=     50" in told
    row = json.loads(kept.read_text())[0]
    about = {"treebank": "craft", "split": "dev", "beam": 21, "alpha": 0.3, "hold": True}
    assert about.items() <= row.items() and row["Number of sentence"] == 2
    said(capsys, *asked, "--split", "test", "--free")
    said(capsys, "parse", "--treebank", "wsj-sample")  # which has only a test set
    *both, sample = seen
    assert sample["where"] == ("wsj-sample", "test")
    assert both == [
        {"where": ("craft", "dev"), "beam": 21, "alpha": 0.3, "hold": True, "progress": True},
        {"where": ("craft", "test"), "beam": 4, "alpha": 0.3, "hold": False, "progress": True},
    ]


@pytest.fixture
def nouns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parser that takes every sentence for a row of nouns."""
    monkeypatch.setattr("annotated.load_parser", lambda *of: SimpleNamespace(parse=nouns_of))


def test_lines_of_standard_input_are_parsed(nouns, capsys, monkeypatch):
    give(monkeypatch, "A cät sat.\r\nIt\u2028slept.".encode())
    lines = ["(S (NN A) (NN cät) (NN sat) (NN .))", "(S (NN It) (NN slept) (NN .))"]
    assert said(capsys, "parse", "--lines").splitlines() == lines
    drawing = ["--svg", "new/x.svg"]
    assert said(capsys, "parse", "--lines", "A cät sat.", *drawing).splitlines() == lines[:1]
    assert Path("new/x.svg").read_text(encoding="utf-8").startswith("<svg")


def test_a_sentence_without_end_is_not_parsed(nouns, capsys):
    with pytest.raises(SystemExit):
        main(["parse", "--lines", "a cat", "a" * 100_000])
    told = "sentence 2: expected at most 2,000 letters; got 100,000"
    assert capsys.readouterr() == ("(S (NN a) (NN cat))\n", f"annotated: {told}\n")


def test_a_treebank_is_written(tmp_path: Path, capsys):
    for section in range(2, 23):
        (tmp_path / f"penn/{section:02}").mkdir(parents=True)
        text = "( (S (NP-SBJ (NN a)) (. .)) )\n" * 2
        (tmp_path / f"penn/{section:02}/a.mrg").write_text(text, encoding="utf-8")
    told = said(capsys, "treebank", "write", "penn", "runs/penn")
    assert told == "runs/penn-words-trees\n"
    line = "↓S ↓NP →NN a ↑NP →STOP . ↑S\n"
    assert (tmp_path / "runs/penn/train.trees").read_text(encoding="utf-8") == line * 40
    assert (tmp_path / "runs/penn/dev.words").read_text(encoding="utf-8") == "a .\n" * 2
