"""The package as a whole: quick to import, documented, and complete as a wheel."""

import ast
import importlib
import importlib.util
import inspect
import os
import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from email.message import Message
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import annotated
from annotated.machinery.errors import MissingExtra
from annotated.machinery.paper.pdf import extract_paper

ROOT = Path(__file__).resolve().parent.parent
HEAVY = {"torch", "altair", "spacy", "sacrebleu", "pandas", "tokenizers", "numpy", "pdfminer"}
MODULES = sorted(
    path.relative_to(ROOT / "annotated").with_suffix("").as_posix().replace("/", ".")
    for path in (ROOT / "annotated").rglob("[a-z]*.py")
)


def loaded(code: str) -> set[str]:
    """Top-level modules in a new interpreter after some code."""
    code = f"{code}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_importing_the_package_is_quick():
    assert not loaded("import annotated; dir(annotated); annotated.__version__") & HEAVY


@pytest.mark.slow
def test_building_a_model_needs_torch_alone():
    code = "import annotated; annotated.make_model(5, 5, N=1, d_model=8, d_ff=8, h=2)"
    modules = loaded(code)
    assert "torch" in modules
    assert not modules & {"altair", "spacy", "sacrebleu", "pandas", "pdfminer", "tokenizers"}


def test_the_surface_is_small_and_says_what_it_is():
    assert 50 < len(annotated.__all__) <= 70
    for name in annotated.__all__:
        thing = getattr(annotated, name)
        if inspect.isroutine(thing) or inspect.isclass(thing):
            made = f"{name}("  # what dataclasses make
            assert thing.__doc__ and not thing.__doc__.startswith(made), f"{name} has no docstring"


@pytest.mark.slow
def test_all_of_it_can_be_imported_at_once():
    done = subprocess.run(
        [sys.executable, "-c", "import annotated"],
        env={**os.environ, "EAGER_IMPORT": "1"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


ALONE = """
import annotated, importlib, os, sys

os.environ["EAGER_IMPORT"] = sys.argv[1]
for name in sys.argv[2:]:
    for module in [m for m in sys.modules if m.startswith("annotated.")]:
        del sys.modules[module]
    importlib.import_module(f"annotated.{name}")
"""


@pytest.mark.slow
@pytest.mark.parametrize("eager", ["", "1"])
def test_modules_import_in_any_order(eager: str):
    """Each alone: no module relies on another having been imported first.

    Nor does it if the packages below `annotated` import all that is theirs at once.
    """
    names = [name for name in MODULES if name != "charts"]  # altair would register it again
    done = subprocess.run(
        [sys.executable, "-c", ALONE, eager, *names], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


BARE = """
from importlib.machinery import PathFinder

find = PathFinder.find_spec
hidden = {"altair", "conllu", "nltk", "pandas", "pdfminer", "sacremoses", "spacy"}
hidden |= {"ctranslate2", "onnx", "onnxscript"}
PathFinder.find_spec = lambda name, *rest: (
    None if name.partition(".")[0] in hidden else find(name, *rest)
)
"""


def bare(code: str) -> str:
    """What code prints in a new interpreter that has none of the extras."""
    done = subprocess.run([sys.executable, "-c", BARE + code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_without_extras_every_name_can_be_looked_up():
    code = "import annotated, importlib, inspect, pydoc, sys\n"
    code += "from annotated import *\n"
    code += f"for name in {MODULES}: importlib.import_module('annotated.' + name)\n"
    code += "inspect.getmembers(annotated), pydoc.render_doc(annotated)\n"
    code += "for name in annotated.__all__: pydoc.render_doc(getattr(annotated, name))\n"
    code += "assert not hidden & set(sys.modules)\n"
    bare(code)


@pytest.mark.slow
def test_without_extras_a_use_says_which_is_missing():
    uses = {
        "annotated.heat_map(torch.ones(1, 1), ['mice'])": ("altair", "viz"),
        "annotated.table_4()": ("pandas", "viz"),
        "annotated.parsing.delinearize(['NN'], ['mice'])": ("nltk", "parse"),
        "next(annotated.heads.read_conllu(''))": ("spacy", "parse"),
    }
    code = "import annotated, torch\n"
    for use in uses:
        code += (
            f"try: {use}\nexcept annotated.machinery.errors.MissingExtra as error: print(error)\n"
        )
    for said, (library, extra) in zip(bare(code).splitlines(), uses.values(), strict=True):
        how = f"pip install 'annotated-attention[{extra}]'"
        assert said == f"{library} is not installed; install the extra that has it: {how}"


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="make_modle"):
        _ = annotated.make_modle


# ---------------------------------------------------------------------------------------- extras


def hide(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a library were not installed."""
    for name in {library, *(n for n in sys.modules if n.startswith(f"{library}."))}:
        monkeypatch.setitem(sys.modules, name, None)


def test_reading_the_paper_without_its_reader_names_the_extra(monkeypatch, tmp_path: Path):
    hide("pdfminer", monkeypatch)
    (tmp_path / "paper.pdf").write_bytes(b"%PDF-1.4")
    with pytest.raises(MissingExtra, match=r"pdfminer.*\[paper\]"):
        extract_paper(tmp_path / "paper.pdf")


# ----------------------------------------------------------------------------------- the wheel


def need_build() -> None:
    """Skip where packages cannot be built without a network."""
    for name in "build", "hatchling", "hatch_fancy_pypi_readme":
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}, of the extra `test`")


@pytest.fixture(scope="module")
def wheel_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need_build()
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    done = subprocess.run([*command, str(ROOT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def wheel(wheel_file: Path) -> set[str]:
    """Names of the files in the wheel."""
    with zipfile.ZipFile(wheel_file) as file:
        return set(file.namelist())


@pytest.fixture(scope="module")
def metadata(wheel_file: Path) -> Message:
    """What the wheel says of itself."""
    with zipfile.ZipFile(wheel_file) as file:
        (name,) = [name for name in file.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(file.read(name))


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_its_data(wheel: set[str]):
    package = ROOT / "annotated"
    inside = {path.relative_to(package).as_posix() for path in package.rglob("*.py*")}
    inside = {name for name in inside if name.endswith((".py", ".pyi"))} | {"py.typed"}
    data = {"corpora.toml"}
    for kind in "models", "results":
        files = [p for p in (ROOT / "data" / kind).rglob("*") if p.is_file()]
        data |= {path.relative_to(ROOT / "data").as_posix() for path in files}
    packaged = {name for name in wheel if ".dist-info/" not in name}
    assert packaged == {f"annotated/{name}" for name in inside | data}


def test_the_wheel_is_small_enough_to_publish(wheel_file: Path):
    assert wheel_file.stat().st_size < 60_000_000  # bytes


def test_the_wheel_has_command_and_licences(wheel: set[str], metadata: Message):
    ends = {name.split(".dist-info/")[1] for name in wheel if ".dist-info/" in name}
    assert ends >= {"entry_points.txt", "licenses/LICENSE", "licenses/data/README.md"}
    licences = set(str(metadata["License-Expression"]).split(" AND "))
    assert licences == {"MIT", "CC-BY-3.0", "LicenseRef-Research-and-Education"}


def test_the_description_leads_nowhere_inside_the_repository(metadata: Message):
    text = metadata.get_payload(decode=True).decode()
    assert text.startswith("# Attention Is All You Need") and "![" not in text
    targets = re.findall(r"\]\(([^)]*)\)", text)
    assert targets and all(target.startswith("https://") for target in targets)
    assert "section 3.2" in text  # a link's words stay


@pytest.mark.slow
def test_a_wheel_can_be_built_from_the_source_distribution(tmp_path: Path):
    """As `pip install` does of a source distribution, and `python -m build` by default."""
    need_build()
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path)]
    done = subprocess.run([*command, str(ROOT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.suffix for path in tmp_path.iterdir()} == {".whl", ".gz"}


# ------------------------------------------------------------------------------------- make book


@pytest.fixture
def make(tmp_path: Path):
    """Runs `make book` with programs that only write down how they were called."""
    if shutil.which("make") is None or sys.platform == "win32":
        pytest.skip("no make on this machine")
    programs = tmp_path / "bin"
    programs.mkdir()
    log = tmp_path / "log"
    for name in "python", "annotated", "jupyter-book":
        fails = "echo 'annotated: told why' >&2; exit 2" if name == "annotated" else ""
        path = programs / name
        path.write_text(f'#!/bin/sh\necho "{name} $ANNOTATED_PAPER_PDF" >> {log}\n{fails}\n')
        path.chmod(0o755)
    (tmp_path / ".installed").touch()

    def run(*arguments: str, pdf: str | None = None) -> tuple[subprocess.CompletedProcess, str]:
        variables = {k: v for k, v in os.environ.items() if k != "ANNOTATED_PAPER_PDF"}
        variables |= {"ANNOTATED_PAPER_PDF": pdf} if pdf else {}
        command = ["make", "-C", str(ROOT), "book", f"VENV={tmp_path}", *arguments]
        done = subprocess.run(command, env=variables, capture_output=True, text=True)
        return done, log.read_text() if log.exists() else ""

    return run


@pytest.mark.parametrize("pdf", [None, "paper.pdf"])
def test_a_book_without_the_paper_neither_fetches_nor_finds_it(make, pdf: str | None):
    done, log = make("PAPER=no", pdf=pdf)
    assert done.returncode == 0, done.stderr
    assert "annotated" not in log and "jupyter-book no\n" in log


def test_a_book_is_made_also_where_no_paper_can_be_had(make):
    done, log = make()
    assert done.returncode == 0 and "built without the paper's own sentences" in done.stdout
    assert "annotated \n" in log and "jupyter-book \n" in log


def test_a_paper_that_is_named_and_cannot_be_read_stops_the_book(make):
    done, log = make(pdf="paper.pdf")
    assert done.returncode != 0 and "annotated: told why" in done.stderr
    assert "jupyter-book" not in log


def test_make_knows_with_and_without_the_paper_alone(make):
    done, log = make("PAPER=No")
    assert done.returncode != 0 and 'PAPER has to be yes or no, not "No"' in done.stderr and not log


def test_imports_have_no_circle():
    """Not even those within functions."""
    package = ROOT / "annotated"
    graph = {}
    for name in MODULES:
        tree = ast.parse((package / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8"))
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        found = {node.module or "" for node in nodes if node.module != "annotated"}
        found |= {
            f"annotated.{n.name}"
            for node in nodes
            for n in node.names
            if node.module == "annotated"
        }
        graph[name] = {m.removeprefix("annotated.") for m in found if m.startswith("annotated.")}
        assert graph[name] <= {*MODULES, "_version"}, f"{name} imports from a folder and no module"
    assert list(TopologicalSorter(graph).static_order())


def test_no_module_and_no_chapter_is_too_long():
    for folder, most in (("annotated", 500), ("chapters", 900)):
        for path in (ROOT / folder).rglob("*.*"):
            if path.suffix in (".py", ".pyi", ".md"):
                lines = len(path.read_text(encoding="utf-8").splitlines())
                assert lines <= most, f"{path.relative_to(ROOT)} has {lines} lines"
