"""CONTRIBUTING.md: its recipes work as printed, in a copy of the repository."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pybtex", reason="needs the extra `book`")
pytest.importorskip("nbclient", reason="needs the extra `test`")

from contents import ROOT

BLOCK = re.compile(r"`([\w./-]+)`[^`\n]*:\n\n(`{3,})(\w+)\n(.*?)^\2$", re.DOTALL | re.MULTILINE)
SLOW = "slow or processes or colab or gpu or site or browser or corpora or paper"


def follow(recipe: str, clone: Path) -> list[str]:
    """Put the blocks of a recipe where it says, and return the names of the files."""
    found = [(name, language, block) for name, _, language, block in BLOCK.findall(recipe)]
    for name, language, block in found:
        path = clone / name
        if language == "diff":
            text = apply(block, path.read_text(encoding="utf-8"))
        elif name == "_toc.yml":
            neighbor = "      - file: chapters/machinery/paper-figures\n"
            text = path.read_text(encoding="utf-8").replace(neighbor, neighbor + block)
        elif path.exists():
            apart = "\n\n\n" if path.suffix == ".py" else "\n\n"
            text = path.read_text(encoding="utf-8").rstrip("\n") + apart + block
        else:
            text = block
        path.write_text(text, encoding="utf-8")
    return [name for name, _, _ in found]


def apply(diff: str, text: str) -> str:
    """A text after a diff; an empty line in it is one of the text, or ends a hunk."""
    for hunk in re.split(r"\n\n(?=[-+ ])", diff.rstrip("\n")):
        lines = [(line[:1] or " ", line[1:]) for line in hunk.split("\n")]
        old, new = ("\n".join(rest for mark, rest in lines if mark in f" {side}") for side in "-+")
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def succeeds(clone: Path, *arguments: str, **variables: str) -> None:
    """Run Python in the copy, as a contributor would."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    paths = os.pathsep.join([str(clone), str(clone / "book")])
    env = kept | {"PYTHONPATH": paths} | variables
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=clone, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def passes(clone: Path, *tests: str) -> None:
    succeeds(clone, "-m", "pytest", "-p", "no:xdist", *tests)


@pytest.fixture(scope="module")
def recipes() -> dict[str, str]:
    """The recipes, by what they add."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    part = text.partition("## How to add …")[2].partition("\n## ")[0]
    titles = re.split(r"^\*\*an? (\w[\w ]*)\.\*\* ", part, flags=re.MULTILINE)[1:]
    return dict(zip(titles[::2], titles[1::2], strict=True))


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The repository, without what was built or run in it."""

    def left(folder: str, names: list[str]) -> list[str]:
        built = {"_build", "dist", "runs"} if Path(folder) == ROOT else {"__pycache__"}
        return [name for name in names if name in built or name[0] == "."]

    return Path(shutil.copytree(ROOT, tmp_path / "clone", ignore=left))


def check(clone: Path) -> None:
    """As `make check`, without types and workflows, which no recipe concerns."""
    for command in (
        *("book/extract.py --check", "book/lint.py"),
        *("-m ruff check .", "-m ruff format --check ."),
    ):
        succeeds(clone, *command.split())


@pytest.mark.slow
def test_a_page_with_a_claim_and_a_number(recipes: dict[str, str], clone: Path):
    page = "chapters/machinery/reach.md"
    assert follow(recipes["page"], clone) == [page, "_toc.yml"]
    assert follow(recipes["claim"], clone) == follow(recipes["number"], clone) == [page]
    check(clone)
    passes(clone, "-m", f"not ({SLOW})", "tests/test_chapters.py", "tests/test_notebooks.py")
    passes(clone, "tests/test_chapters.py::test_a_chapter_runs[machinery/reach]")


@pytest.mark.slow
def test_a_test(recipes: dict[str, str], clone: Path):
    (name,) = follow(recipes["test"], clone)
    check(clone)
    added = re.findall(r"^def (test_\w+)", (clone / name).read_text(encoding="utf-8"), re.M)[-1]
    assert added in recipes["test"]
    passes(clone, f"{name}::{added}")


@pytest.mark.slow
def test_a_model_option(recipes: dict[str, str], clone: Path):
    """It trains, searches with and without a cache alike, is saved and loaded, and not exported."""
    folder = clone / "annotated" / "machinery"
    names = ["options.py", "parts.py"]
    assert follow(recipes["model option"], clone) == [f"annotated/machinery/{n}" for n in names]
    assert "alibi" in (folder / "options.py").read_text(encoding="utf-8")
    check(clone)
    code = """
import torch
from annotated import Translator, beam_search, export_model, load_pretrained, make_model
from tiny import TOKENIZER
V = TOKENIZER.get_vocab_size()
model = make_model(V, V, N=1, d_model=16, d_ff=16, h=2, alibi=True).eval()
src = torch.tensor([[4, 5, 6, 1]])
cached = beam_search(model, src)
hook = model.decoder.register_forward_hook(lambda *_: None)  # then nothing is cached
assert beam_search(model, src)[0][0].ids == cached[0][0].ids
hook.remove()
Translator(model, TOKENIZER).save("saved")
again = load_pretrained("saved")
assert again.model.config.alibi
try:
    export_model(again, "ctranslate2", "exported")
except ValueError as error:
    assert "alibi" in str(error).lower(), error
else:
    raise SystemExit("it was exported")
"""
    paths = os.pathsep.join([str(clone), str(clone / "tests")])
    succeeds(clone, "-c", code, PYTHONPATH=paths)
    succeeds(clone, "-m", "annotated", "train", "--help")
    run = ["tests/test_model.py", "tests/test_cli.py", "tests/test_training_config.py"]
    passes(clone, "-m", f"not ({SLOW})", *run)


@pytest.mark.slow
def test_a_corpus(recipes: dict[str, str], clone: Path):
    """Under its registered name and, by the name of its folder, without registration."""
    assert follow(recipes["corpus"], clone) == ["data/corpora.toml"]
    folder = clone / "texts" / "proverbs"
    folder.mkdir(parents=True)
    for name in "train.en", "train.de", "dev.en", "dev.de":
        assert f"`{name}`" in recipes["corpus"]
        (folder / name).write_text(f"{name}\n", encoding="utf-8")
    read = "from annotated import load_pairs; import sys; "
    read += "assert load_pairs(sys.argv[1], 'dev', 'en', 'de') == (['dev.en'], ['dev.de'])"
    succeeds(clone, "-c", read, "proverbs", ANNOTATED_DATA=str(folder.parent))
    succeeds(clone, "-c", read, str(folder))
    passes(clone, "-m", f"not ({SLOW})", "tests/test_corpora.py")
