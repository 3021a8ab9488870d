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

BLOCK = re.compile(r"`([\w./-]+)`[^`\n]*:\n\n(`{3,})\w+\n(.*?)^\2$", re.DOTALL | re.MULTILINE)
SLOW = "slow or processes or colab or gpu or site or browser or corpora or paper"


def follow(recipe: str, clone: Path) -> list[str]:
    """Put the blocks of a recipe where it says, and return the names of the files."""
    found = [(name, block) for name, _, block in BLOCK.findall(recipe)]
    for name, block in found:
        path = clone / name
        if name == "_toc.yml":
            neighbor = "      - file: chapters/machinery/heads\n"
            text = path.read_text(encoding="utf-8").replace(neighbor, neighbor + block)
        elif path.exists():
            apart = "\n\n\n" if path.suffix == ".py" else "\n\n"
            text = path.read_text(encoding="utf-8").rstrip("\n") + apart + block
        else:
            text = block
        path.write_text(text, encoding="utf-8")
    return [name for name, _ in found]


def succeeds(clone: Path, *arguments: str, **variables: str) -> None:
    """Run Python in the copy, as a contributor would."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    paths = os.pathsep.join([str(clone), str(clone / "book")])
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=clone,
        env=kept | {"PYTHONPATH": paths} | variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


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
    for arguments in (
        ["book/extract.py", "--check"],
        ["book/lint.py"],
        ["-m", "ruff", "check", "."],
        ["-m", "ruff", "format", "--check", "."],
    ):
        succeeds(clone, *arguments)


@pytest.mark.slow
def test_a_page_with_a_claim_and_a_number(recipes: dict[str, str], clone: Path):
    page = "chapters/machinery/reach.md"
    assert follow(recipes["page"], clone) == [page, "_toc.yml"]
    assert follow(recipes["claim"], clone) == follow(recipes["number"], clone) == [page]
    check(clone)
    forms = ["tests/test_chapters.py", "tests/test_notebooks.py"]
    succeeds(clone, "-m", "pytest", "-p", "no:xdist", "-m", f"not ({SLOW})", *forms)
    run = "tests/test_chapters.py::test_a_chapter_runs[machinery/reach]"
    succeeds(clone, "-m", "pytest", "-p", "no:xdist", run)


@pytest.mark.slow
def test_a_test(recipes: dict[str, str], clone: Path):
    (name,) = follow(recipes["test"], clone)
    check(clone)
    added = re.findall(r"^def (test_\w+)", (clone / name).read_text(encoding="utf-8"), re.M)[-1]
    assert added in recipes["test"]
    succeeds(clone, "-m", "pytest", "-p", "no:xdist", f"{name}::{added}")


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
    run = ["-m", "pytest", "-p", "no:xdist", "-m", f"not ({SLOW})", "tests/test_corpora.py"]
    succeeds(clone, *run)
