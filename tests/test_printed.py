"""What is printed runs: the commands of every help, of README and CONTRIBUTING, and of every page.

A real shell runs each block of commands, in a folder with the files that they name, and stand-ins
for the programs note how they are called. Each call must be one that the program accepts, and those
that need no network, GPU or hours are made.
"""

import argparse
import gzip
import importlib
import importlib.util
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import metadata
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("pybtex", reason="needs the extra `book`")

from contents import ROOT

import annotated
from annotated.machinery.cli.main import _COMMANDS, _parse, main
from annotated.machinery.corpora.prepared import RULES
from annotated.machinery.corpora.registry import find_corpus
from annotated.machinery.files import resource_path
from annotated.training import TrainingConfig, preset

PROGRAMS = "annotated", "python", "torchrun", "make", "pip"
_ANY = "|".join(PROGRAMS)
FIRST = re.compile(rf"\s*(?:\$ )?(?:(?:{_ANY}|for) |\w+=)")
INLINE = re.compile(rf"`((?:{_ANY}) [^`\n]+)`")
IN_PROSE = re.compile(rf": ((?:{_ANY}) .*?)(?=\. [A-Z]|$)")
FENCE = re.compile(r"^(`{3,})(?:bash|sh)?\n(.*?)^\1$", re.DOTALL | re.MULTILINE)
NAMED = {  # not examples, but names, and an option that a recipe adds
    "annotated COMMAND --help", "annotated train --alibi", "pip install", "python -m annotated",
}  # fmt: skip


def in_a_help(text: str) -> Iterator[str]:
    """Paragraphs of commands, and examples within a sentence."""
    for paragraph in text.split("\n\n")[1:]:  # after the usage
        block = paragraph.strip("\n").removeprefix("examples:\n")
        if FIRST.match(block):
            yield block
        else:
            yield from IN_PROSE.findall(" ".join(paragraph.split()))


def in_a_page(text: str) -> Iterator[str]:
    """Blocks of commands, and commands within a sentence that are more than a name."""
    for _, block in FENCE.findall(text):
        if FIRST.match(block):
            yield re.sub(r"^\$ ", "", block, flags=re.MULTILINE)
    for command in INLINE.findall(text):
        more = command.removeprefix("python -m ").partition(" ")[2]
        bare = more in _COMMANDS or not more or re.search(r"(?<!--out) …", command)
        if not bare and command not in NAMED:
            yield command


class Read(Exception):
    """Ends a program once it has read its options."""


def read_by(module: str, *words: str, help: bool = False) -> argparse.ArgumentParser:
    """The parser of `python -m MODULE`, which accepts these words unless only its help is asked."""
    read = argparse.ArgumentParser.parse_args

    def parse(parser: argparse.ArgumentParser, given: list[str] | None = None) -> None:
        if not help:
            read(parser, given)
        raise Read(parser)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Read) as end:
        patch.setattr(argparse.ArgumentParser, "parse_args", parse)
        patch.setattr(sys, "argv", [module, *words])
        importlib.import_module(module).main()
    return end.value.args[0]


def sources() -> Iterator[tuple[str, list[str]]]:
    """Every place where commands are printed, with its commands."""
    for name in _COMMANDS:
        done = subprocess.run(
            [sys.executable, "-m", "annotated", name, "--help"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        yield f"annotated {name} --help", [*in_a_help(done.stdout)]
    programs = [p.stem for p in (ROOT / "benchmarks").glob("*.py") if "__main__" in p.read_text()]
    for name in *programs, "__main__ data", "__main__ gpu", "__main__ page":
        parser = read_by(*f"benchmarks.{name}".split(), help=True)
        yield f"{parser.prog} --help", [*in_a_help(parser.format_help())]
    for path in [*ROOT.glob("*.md"), ROOT / "data" / "README.md", *ROOT.glob("chapters/**/*.md")]:
        yield str(path.relative_to(ROOT)), [*in_a_page(path.read_text(encoding="utf-8"))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh folder with the files that examples name."""
    folder = tmp_path_factory.mktemp("fresh")
    (folder / "in.txt").write_text("A dog runs.\nA cat sleeps.\n")
    for name in "out.de", "ref.de", "my.en", "my.fr", "general.en", "general.fr":
        (folder / name).write_text("Ein Hund.\n")
    for name in "transformer.a.gz", "transformer.b.gz", "ref.newstest2017.deu.gz":
        (folder / name).write_bytes(gzip.compress(b"Der Hund.\n"))
    return folder


@pytest.fixture(scope="module")
def calls(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[str]]]:
    """The calls that a shell makes of the commands of each source."""
    programs, log = tmp_path_factory.mktemp("bin"), folder / "log"
    for name in PROGRAMS:
        (programs / name).write_text(
            f"#!/bin/sh\n{{ printf '%s\\0' {name} \"$@\"; printf '\\1'; }} >> '{log}'\n"
        )
        (programs / name).chmod(0o755)
    found = {}
    for source, blocks in sources():
        for block in blocks:
            paths = {"PATH": f"{programs}:/usr/bin:/bin"}
            done = subprocess.run(
                ["bash", "-euc", block], cwd=folder, env=paths, capture_output=True, text=True
            )
            assert done.returncode == 0 and not done.stderr, (source, block, done.stderr)
            made = log.read_text(encoding="utf-8").split("\1")[:-1]
            assert made, (source, block)
            found.setdefault(source, []).extend(call.split("\0")[:-1] for call in made)
            log.unlink()
    return found


def arguments_of(words: list[str]) -> list[str] | None:
    """The arguments of `annotated`, also if another program starts it."""
    started = words[0] == "annotated" or "-m annotated" in " ".join(words)
    return words[words.index("annotated") + 1 :] if started else None


def refused(words: list[str]) -> str:
    """Why a program does not accept a call; nothing if it does."""
    if (arguments := arguments_of(words)) is not None:
        options = vars(_parse(arguments))
        prepares = options["run"].__name__ == "run_prepare"
        fields = RULES if prepares else TrainingConfig.__dataclass_fields__
        given = {key: options[key] for key in fields if key in options}
        if options["run"].__name__ in ("run_train", "run_prepare"):
            preset(options["preset"] or "multi30k-en-de", **given)
        if options["run"].__name__ == "run_data" and options["action"] == "get":
            _ = options["name"] == "NAME" or find_corpus(options["name"])
    elif words[:2] == ["python", "-m"] and words[2].startswith("benchmarks"):
        packages = "benchmarks", "benchmarks.heads"
        module = words[2] + ".__main__" * (words[2] in packages)
        if "--help" not in words:
            read_by(module, *words[3:])
        else:
            assert importlib.util.find_spec(module)
    elif words[:2] == ["python", "-m"]:
        return "" if words[2] == "pytest" else "no such module"
    elif words[0] == "python":
        return "" if (ROOT / words[1]).is_file() else "no such script"
    elif words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
        return "" if {x for x in words[1:] if "=" not in x} <= {*targets} else "no such target"
    else:
        extras = metadata("annotated-attention").get_all("Provides-Extra") or []
        named = re.findall(r"\[(.*?)\]", " ".join(words))
        return "" if {*",".join(named).split(",")} - {""} <= {*extras} else "no such extra"
    return ""


@pytest.mark.slow
def test_every_command_that_is_printed_can_be_given(calls, capsys):
    wrong = []
    for source, made in calls.items():
        for words in made:
            try:
                why = refused(words)
            except BaseException as error:
                why = f"{error!r} {capsys.readouterr().err[-300:]}"
            if why:
                wrong.append(f"{source}: {shlex.join(words)}: {why}")
    assert not wrong, "\n".join(wrong)
    commands = {call[1] for made in calls.values() for call in made if call[0] == "annotated"}
    assert {"train", "translate", "generate", "evaluate", "parse", "average"} < commands
    assert sum(map(len, calls.values())) > 80 and len(calls) > 20


def at_hand(words: list[str]) -> bool:
    """Whether a call of `annotated` needs neither network nor hours, nor a corpus."""
    line = " ".join(words)
    small = ("translate multi30k", "generate ", "evaluate multi30k-en-de", "evaluate runs/base",
             "average runs/", "export ", "score ", "parse ")  # fmt: skip
    return line.startswith(small) and "--treebank" not in line


@pytest.fixture
def small(folder: Path, captions: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs and a language model under the names that examples use."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    line = "--vocab-size 50 --N 1 --d-model 16 --d-ff 32 --h 2 --src-tokens 100 --tgt-tokens 100 "
    line += "--warmup 10 --save-updates 1 --updates 5 --average 5 --out runs/base-en-de"
    main(["train", *line.split()])
    shutil.copytree("runs/base-en-de", "runs/quick-en-de")
    speaking = language_model(folder / "speaking")
    load = annotated.load_language_model
    monkeypatch.setattr("annotated.load_language_model", lambda name, *more: load(speaking, *more))


def language_model(folder: Path) -> Path:
    """A tiny one, as published."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    shape = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    config = transformers.LlamaConfig(vocab_size=256, num_hidden_layers=1, **shape)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    template = {"chat_template": "{% for m in messages %}{{ m['content'] }}{% endfor %}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(template))
    return folder


@pytest.mark.slow
def test_examples_that_need_nothing_else_run(calls, small, folder: Path, capsys, monkeypatch):
    every = [each for made in calls.values() for each in map(arguments_of, made) if each]
    examples = {tuple(words): words for words in every if at_hand(words)}
    before = {*folder.iterdir()}
    for words in examples.values():
        for path in {*folder.iterdir()} - before:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"A dog runs.\n")))
        capsys.readouterr()
        main(words)
        assert capsys.readouterr().out or "--output" in words, words
    assert len(examples) >= 12


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "chapters/api.md"])
def test_the_code_of_readme_and_reference_runs(page):
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text("utf-8"), re.S | re.M)
    names: dict[str, object] = {}
    for code in blocks:
        if "load_language_model" not in code and "annotated.train" not in code:  # minutes
            exec(code.replace("37_000", "370"), names)
        for line, value in re.findall(r"^(.+?)  # → (.+)$", code, re.MULTILINE):
            assert repr(eval(line, names)) == value
    assert names["model"].config.src_vocab == 370


@pytest.mark.slow
def test_the_cards_of_the_reference_show_a_model_its_log_and_values_of_the_examples():
    text = (ROOT / "chapters" / "api.md").read_text("utf-8")
    cards = text[text.index('<div class="tour">') : text.index("</div>")]
    values = re.findall(r"# → (.+)$", text, re.MULTILINE)
    shown = re.findall(r"<(?:b|q)[^>]*>(.*?)</", cards)
    assert len(shown) == 3 and {each.replace(",", "") for each in shown} <= {
        value.strip("'") for value in values
    }
    seen = annotated.read_attention(
        annotated.load_pretrained("multi30k-en-de"), "A man is riding a bicycle."
    )
    weights = seen["cross"].weights[-1].mean(dim=0)  # of the last layer's heads
    box = r'<rect x="(\d+)" y="(\d+)" width="11" height="11" opacity="([\d.]+)"/>'
    drawn = torch.zeros_like(weights)
    for x, y, opacity in re.findall(box, cards):
        drawn[int(y) // 12, int(x) // 12] = float(opacity)
    torch.testing.assert_close(drawn, weights.where(weights >= 0.05, 0), atol=0.0051, rtol=0)
    log = pd.read_csv(resource_path("models") / "multi30k-en-de" / "log.csv").dropna(
        subset="dev_loss"
    )
    points = re.search(r'points="([^"]*)"', cards)[1].split()
    curve = np.array([point.split(",") for point in points], dtype=float)
    assert np.allclose(curve[:, 0], 140 * log["update"] / log["update"].max(), atol=0.051)
    assert np.corrcoef(curve[:, 1], -log["dev_loss"])[0, 1] > 0.9999  # downward is larger
