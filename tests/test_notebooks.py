"""book/notebooks.py: notebooks for Jupyter and Colab, with no trace of Sphinx in them."""

import ast
import base64
import html
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pybtex", reason="needs the extra `book`")
pytest.importorskip("jupytext", reason="needs the extra `test`")

import jupytext
import nbformat
import notebooks
from contents import ROOT, sources
from nbformat.v4 import new_notebook
from notebooks import with_turns, write_notebooks

PATHS = {
    path.stem: path
    for path in sources().values()
    if "```{code-cell}" in path.read_text(encoding="utf-8")
}
SPHINX = {
    "role": r"\{[a-z:-]+\}`",
    "target": r"^\([\w-]+\)=$",
    "directive": r"^\s*(:::|```\{)",
    "link to a chapter's source": r"\]\([^)]*\.md[#)]",
    "comment": r"^%",
    "front matter": r"^(jupytext|kernelspec):",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "notebooks"
    write_notebooks(ROOT, folder, "https://github.com/someone/something")
    assert sorted(path.stem for path in folder.iterdir()) == sorted(PATHS)
    return folder


def read(folder: Path, name: str) -> nbformat.NotebookNode:
    return nbformat.read(folder / f"{name}.ipynb", as_version=4)


def texts(notebook: nbformat.NotebookNode) -> str:
    """The Markdown cells, without the code in them."""
    text = "\n\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    text = re.sub(r"^(```+)(?!\{).*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"(?<![}`])(`+)(?!`).+?(?<!`)\1(?!`)", "", text)


@pytest.mark.parametrize("name", PATHS)
def test_it_is_valid_without_sphinx_and_its_links_lead_to_notebooks(folder: Path, name: str):
    notebook = read(folder, name)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    text = texts(notebook)
    for what, pattern in SPHINX.items():
        found = re.search(pattern, text, re.MULTILINE)
        assert not found, f"{what}: {text[found.start() - 60 : found.end() + 60]!r}"
    quotes = 'quote("' in PATHS[name].read_text(encoding="utf-8")
    assert ("annotated paper get" in notebook.cells[0].source) == quotes
    assert "](<" not in text
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?://", target):
            continue
        page, _, anchor = target.partition("#")
        assert not page or (folder / page).is_file(), target
        if anchor:
            there = read(folder, Path(page).stem if page else name)
            assert anchor in anchors(there), target


def anchors(notebook: nbformat.NotebookNode) -> set[str]:
    """Targets that a notebook offers: anchors, and headings in Jupyter's or GitHub's manner."""
    text = "\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w -]", "", h.lower()).strip().replace(" ", "-") for h in headings}
    return slugs | set(re.findall(r'id="([\w-]+)"', text))


@pytest.mark.parametrize("name", PATHS)
def test_code_and_pictures_are_the_chapters_and_fold_as_on_the_site(folder: Path, name: str):
    pictures = re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", PATHS[name].read_text(encoding="utf-8"))
    text = "\n".join(c.source for c in read(folder, name).cells if c.cell_type == "markdown")
    found = re.findall(r'<img alt="([^"]*)" src="data:image/svg\+xml;base64,([^"]+)">', text)
    shown = [(html.unescape(alt), base64.b64decode(data)) for alt, data in found]
    place = PATHS[name].parent
    assert shown == [(alt, (place / path).read_bytes()) for alt, path in pictures]
    chapter = jupytext.read(PATHS[name], fmt="md:myst")
    chapter.cells = [*with_turns(chapter.cells)]
    code = [cell.source for cell in chapter.cells if cell.cell_type == "code"]
    first, *rest = [cell for cell in read(folder, name).cells if cell.cell_type == "code"]
    assert 'find_spec("annotated") is None' in first.source
    asked = re.findall(r"^from (book[\w.]*) import ", "\n".join(code), re.MULTILINE)
    if asked:  # the modules of the book come with the notebook
        brought = rest.pop(0)
        assert brought.metadata["jupyter"]["source_hidden"]
        assert all(f'_add_module("{module[5:]}' in brought.source for module in asked)
    assert [re.sub(r"\A# @title .*\n", "", cell.source) for cell in rest] == code
    for cell in rest:
        folded = bool({*cell.metadata.get("tags", [])} & {"paper", "hide-input", "hide-cell"})
        folded |= "\nclaim(" in cell.source
        assert cell.metadata.get("jupyter", {}).get("source_hidden", False) == folded
        assert cell.source.startswith("# @title ") == folded  # for Colab: a form needs its title
        assert (cell.metadata.get("cellView") == "form") == folded


def test_a_turn_is_a_cell_to_write_in_with_its_check() -> None:
    text = "Before.\n\n```{turn} relu\n```\n\nAfter.\n\n```{turn} mask\n```"
    before, turn, after, other = with_turns([nbformat.v4.new_markdown_cell(text)])
    assert (before.source, after.source) == ("Before.", "After.")
    code = turn.source.replace("return row", "return [max(0, x) for x in row]")
    verdicts = []
    for source in code, other.source:
        tree = ast.parse(source)
        space: dict = {}
        exec(compile(ast.Module(tree.body[:-1], []), "cell", "exec"), space)
        verdicts.append(eval(compile(ast.Expression(tree.body[-1].value), "cell", "eval"), space))
    assert [bool(verdict) for verdict in verdicts] == [True, False]


def test_citations_and_marks_lead_to_the_papers_own_numbers_and_pages(folder: Path, tmp_path: Path):
    text = texts(read(folder, "2-background"))
    assert r"\[9\]" in text
    assert "> [**§2 ¶1**](https://arxiv.org/pdf/1706.03762v5#page=2)" in text
    write_notebooks(ROOT, tmp_path, "https://github.com/someone/something")  # again, the same
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (folder / path.name).read_bytes()


@pytest.mark.slow
def test_charts_of_an_executed_notebook_load_nothing(folder: Path, browser, tmp_path: Path):
    """They are drawn without a network, and without scripts each is a picture."""
    alt = pytest.importorskip("altair", reason="needs the extra `viz`")
    nbclient = pytest.importorskip("nbclient", reason="needs the extra `test`")
    notebook = read(folder, "2-background")
    place = {"metadata": {"path": str(ROOT / "chapters")}}
    nbclient.NotebookClient(notebook, kernel_name="python3", resources=place).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    shown = [
        output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})
    ]
    count = sum('"$schema"' in text for text in shown)
    assert count > 0
    pages = {
        "ours": "".join(f"<div>{text}</div>" for text in shown),
        "Altair's own": alt.Chart(alt.Data(values=[{"x": 1}])).mark_point().to_html(),
    }
    asked: dict[str, list[str]] = {name: [] for name in pages}
    for name, text in pages.items():
        (tmp_path / "page.html").write_text(f"<!doctype html>{text}", encoding="utf-8")
        for scripts in True, False:
            tab = browser.new_context(java_script_enabled=scripts).new_page()
            tab.route(re.compile("^http"), lambda route: route.abort())
            tab.on("request", lambda request, name=name: asked[name].append(request.url))
            tab.goto((tmp_path / "page.html").as_uri())
            if name == "ours":
                drawn = tab.locator("canvas.marks, svg.marks" if scripts else "img")
                drawn.nth(count - 1).wait_for()
                assert drawn.count() == count
                assert all(drawn.nth(n).bounding_box()["height"] > 100 for n in range(count))
    assert not any(url.startswith("http") for url in asked["ours"])
    assert any(url.startswith("http") for url in asked["Altair's own"])


@pytest.mark.parametrize("name", ["index", "claims"])
def test_what_only_the_site_has_is_named(folder: Path, name: str):
    text, source = texts(read(folder, name)), PATHS[name].read_text(encoding="utf-8")
    places = len(re.findall(r'^<div class="(?:scoreboard|claims-\w+)">', source, re.MULTILINE))
    assert text.count("On the site, the build") == places > 0 and "<div" not in text


@pytest.mark.parametrize(
    ("origin", "address"),
    [
        ("git@github.com:me/mine.git", "https://github.com/me/mine"),
        ("https://me:secret@git.example.org:8443/me/mine", "https://git.example.org:8443/me/mine"),
        ("git@example.org:me/mine.git", None),  # it may ask for a key
        ("/srv/git/mine", None),
        (None, None),
    ],
)
def test_the_remote_of_a_notebook_is_open_to_everyone(tmp_path, monkeypatch, origin, address):
    git = ["git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "--quiet"], check=True)
    if origin:
        subprocess.run([*git, "remote", "add", "origin", origin], check=True)
    monkeypatch.setattr(notebooks, "ROOT", tmp_path)
    assert notebooks.remote() == address


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch):
    """Runs the first cell of a notebook in a folder, and returns what it gives to pip."""

    def run_in(folder: Path, remote: str | None = None, installs: bool = True) -> list[str]:
        asked: list[str] = []

        def pip(command: list[str], **_) -> SimpleNamespace:
            asked[:] = command[command.index("--quiet") + 1 :]
            return SimpleNamespace(returncode=int(not installs), stderr="no network")

        def find(name: str) -> object:
            return (asked and installs) or (Path(sys.path[0]) / name).is_dir() or None

        monkeypatch.setattr(sys, "path", ["", *sys.path])
        monkeypatch.setattr(subprocess, "run", pip)
        monkeypatch.setattr(importlib.util, "find_spec", find)
        monkeypatch.chdir(folder)
        notebook = notebooks.plain_notebook(new_notebook(), str, remote)
        exec(notebook.cells[1].source, {})
        return asked

    return run_in


def test_a_notebook_installs_the_clone_around_it(install, tmp_path: Path):
    """Before a wheel, and even where pip fails, because the libraries may be there."""
    folder = tmp_path / "clone" / "notes" / "today"
    folder.mkdir(parents=True)
    (folder / "annotated_attention-0.1.0-py3-none-any.whl").touch()
    shutil.copy(ROOT / "pyproject.toml", tmp_path / "clone")
    (tmp_path / "clone" / "annotated").mkdir()
    for installs in (True, False):
        asked = install(folder, "https://e.org/x", installs)
        assert asked == ["--editable", f"{tmp_path / 'clone'}[chapters]"]
        assert sys.path[0] == str(tmp_path / "clone")


def test_a_notebook_installs_from_the_remote_or_the_wheel_beside_it(install, tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "another"\n')
    address = "annotated-attention[chapters] @ git+https://e.org/me/mine"
    assert install(tmp_path, "https://e.org/me/mine") == [address]
    wheel = tmp_path / "annotated_attention-0.1.0-py3-none-any.whl"
    wheel.touch()
    assert install(tmp_path, "https://e.org/x") == [f"{wheel}[chapters]"]


@pytest.mark.parametrize("remote", [None, "https://e.org/me/mine"])
def test_a_notebook_that_finds_no_package_explains_what_to_do(install, tmp_path, capsys, remote):
    with pytest.raises(ModuleNotFoundError, match="put the package's wheel"):
        install(tmp_path, remote, installs=False)
    assert ("no network" in capsys.readouterr().out) == (remote is not None)
