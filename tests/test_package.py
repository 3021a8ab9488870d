"""The package as a whole: quick to import, documented, and complete as a wheel."""

import ast
import os
import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import annotated
from annotated import machinery

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted(
    path.relative_to(ROOT / "annotated").with_suffix("").as_posix().replace("/", ".")
    for path in (ROOT / "annotated").rglob("[a-z]*.py")
)


def run(code: str) -> str:
    """What code prints in a new interpreter."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_importing_the_package_is_quick_and_a_model_needs_torch_alone():
    heavy = {"altair", "spacy", "sacrebleu", "pandas", "tokenizers", "pdfminer"}
    code = "import annotated, sys; dir(annotated); annotated.__version__\n"
    code += f"assert not {heavy | {'torch', 'numpy'}} & {{*sys.modules}}\n"
    code += "annotated.make_model(5, 5, N=1, d_model=8, d_ff=8, h=2)\n"
    run(code + f"assert not {heavy} & {{*sys.modules}}")


BARE = """
from importlib.machinery import PathFinder

find = PathFinder.find_spec
hidden = {"altair", "conllu", "nltk", "pandas", "pdfminer", "sacremoses", "spacy"}
hidden |= {"ctranslate2", "onnx", "onnxscript"}
PathFinder.find_spec = lambda name, *rest: (
    None if name.partition(".")[0] in hidden else find(name, *rest)
)
"""


@pytest.mark.slow
def test_without_extras_every_name_can_be_looked_up():
    code = "import annotated, importlib, pydoc, sys\n"
    code += f"for name in {MODULES}: importlib.import_module('annotated.' + name)\n"
    code += "for name in annotated.__all__:\n    thing = getattr(annotated, name)\n"
    code += "    assert not thing.__doc__.startswith(name + '('), name\n"  # as of a bare dataclass
    code += "    pydoc.render_doc(thing)\n"
    run(BARE + code + "assert not hidden & set(sys.modules)\n")


@pytest.mark.slow
def test_without_extras_a_use_says_which_is_missing():
    uses = {
        "annotated.heat_map(torch.ones(1, 1), ['mice'])": ("altair", "viz"),
        "annotated.table_4()": ("pandas", "viz"),
        "linear.delinearize(['NN'], ['mice'])": ("nltk", "parse"),
    }
    code = "import annotated, torch\nfrom annotated.machinery.errors import MissingExtra\n"
    code += "from annotated.machinery.trees import linear\n"
    code += "".join(f"try: {use}\nexcept MissingExtra as e: print(e)\n" for use in uses)
    for said, (library, brought) in zip(run(BARE + code).splitlines(), uses.values(), strict=True):
        assert said.startswith(library) and f"annotated-attention[{brought}]" in said


@pytest.mark.slow
def test_without_extras_a_model_translates_and_is_scored():
    code = "from annotated import bleu, load_pretrained\n"
    code += "said = load_pretrained('multi30k-en-de').translate(['A man is riding a bicycle.'])\n"
    code += "print(said, bleu(said, said, 'de')['score'])"
    assert "Mann" in run(BARE + code)


# These know only one another, the errors, and the checks of arguments.
PAPER = {"attention", "stacks", "feed_forward", "embeddings", "positional", "model"}
PAPER |= {"regularization", "optimizer", "data", "decoding", "incremental"}
BELOW = {f"machinery.{name}" for name in ("errors", "checks", "options", "parts", "stepping")}


def test_the_map_of_the_machinery_names_what_exists():
    """Each entry is `- modules: what they do` or `- room: what it is for (its modules)`."""
    found = []
    for entry in re.findall(r"^- ((?:.|\n  )+)", machinery.__doc__, re.MULTILINE):
        names, modules = re.fullmatch(r"([\w, ]+): [^()]+?(?:\s\(([^()]+)\))?", entry).groups()
        inside = [f"{names}.{x}" for x in re.split(r",\s+", modules or "")]
        found += inside if modules else names.split(", ")
    exist = [name.removeprefix("machinery.") for name in MODULES if name.startswith("machinery.")]
    assert sorted(found) == exist


def imports_of(name: str) -> set[str]:
    """The modules of the package that a module imports, also inside functions, but not for types.

    A name that the package itself offers, as in annotated.train, counts as its module.
    """
    path = ROOT / "annotated" / f"{name.replace('.', '/')}.py"
    found: set[str] = set()
    top = ast.parse(path.read_text(encoding="utf-8"))
    top.body = [node for node in top.body if not ast.unparse(node).startswith("if TYPE_CHECKING")]
    for node in ast.walk(top):
        if isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found.add(f"{node.value.id}.{node.attr}")
    assert not {full.partition(".")[0] for full in found} & {"book", "benchmarks", "tests"}
    home = {thing: module for module, things in annotated._OFFERED.items() for thing in things}
    inside = {full.removeprefix("annotated.") for full in found if full.startswith("annotated.")}
    modules = {*MODULES, "_version"}
    return {x if x in modules else home.get(x, x.rpartition(".")[0]) for x in inside}


def test_no_two_modules_or_packages_can_be_mistaken_for_each_other():
    """The last parts of their names differ, and by more than an s at the end."""
    packages = {name.rpartition(".")[0] for name in MODULES if "." in name}
    names = sorted(name.rpartition(".")[2] for name in [*MODULES, *packages])
    assert len({name.removesuffix("s") for name in names}) == len(names), names


def test_imports_have_no_cycle_and_the_paper_stands_on_what_is_below_it_alone():
    """Not even through imports inside functions; and each is from a module, not from a folder."""
    graph = {name: imports_of(name) for name in MODULES}
    for name, imported in graph.items():
        assert imported <= {*MODULES, "_version"}, name
        assert name not in PAPER or imported <= PAPER | BELOW, name
    assert list(TopologicalSorter(graph).static_order())


def test_links_of_the_pages_on_github_lead_somewhere():
    for path in [*ROOT.glob("*.md"), *(ROOT / "data").rglob("README.md")]:
        links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text("utf-8"))
        assert not [link for link in links if not (path.parent / link).exists()], path


@pytest.mark.slow
def test_a_wheel_of_the_source_distribution_is_whole_and_leads_outside(tmp_path: Path):
    """It holds the package, its data, the command, the licenses and a description."""
    for name in "build", "hatchling", "hatch_fancy_pypi_readme":
        pytest.importorskip(name, reason="needs the extra `test`")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path)]
    done = subprocess.run([*command, str(ROOT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        (name,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        metadata = message_from_bytes(file.read(name))
    package, data = ROOT / "annotated", ROOT / "data"
    kinds = "*.py", "*.pyi", "py.typed", "*.md", "*.html"
    inside = [path for kind in kinds for path in package.rglob(kind)]
    expected = {path.relative_to(ROOT).as_posix() for path in inside}
    files = [*(data / "models").rglob("*"), *(data / "results").rglob("*"), data / "corpora.toml"]
    expected |= {f"annotated/{p.relative_to(data).as_posix()}" for p in files if p.is_file()}
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert wheel.stat().st_size < 60_000_000  # bytes
    ends = {name.split(".dist-info/")[1] for name in names if ".dist-info/" in name}
    licenses = {"LICENSE", "data/README.md", "data/models/firefox-en-pt/LICENSE"}
    assert ends >= {"entry_points.txt", *(f"licenses/{path}" for path in licenses)}
    named = set(str(metadata["License-Expression"]).split(" AND "))
    assert named == {"MIT", "CC-BY-3.0", "MPL-2.0", "LicenseRef-Research-and-Education"}
    text = metadata.get_payload(decode=True).decode()
    assert text.startswith("# Attention Is All You Need") and "![" not in text
    targets = re.findall(r"\]\(([^)]*)\)", text)
    assert targets and all(target.startswith("https://") for target in targets)
    assert "Thirteen diffs lead" in text  # a link's words stay


@pytest.fixture
def make(tmp_path: Path):
    """Runs `make book` with programs that only write down how they were called."""
    if shutil.which("make") is None or sys.platform == "win32":
        pytest.skip("no make on this machine")
    log = tmp_path / "log"
    for name in "python", "annotated", "jupyter-book":
        fails = "echo 'annotated: told why' >&2; exit 2" if name == "annotated" else ""
        (path := tmp_path / "bin" / name).parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "{name} $ANNOTATED_PAPER_PDF" >> {log}\n{fails}\n')
        path.chmod(0o755)
    (tmp_path / ".installed-book").touch()

    def run(*arguments: str, pdf: str | None = None) -> tuple[subprocess.CompletedProcess, str]:
        variables = {k: v for k, v in os.environ.items() if k != "ANNOTATED_PAPER_PDF"}
        variables |= {"ANNOTATED_PAPER_PDF": pdf} if pdf else {}
        command = ["make", "-C", str(ROOT), "book", f"VENV={tmp_path}", *arguments]
        done = subprocess.run(command, env=variables, capture_output=True, text=True)
        return done, log.read_text() if log.exists() else ""

    return run


@pytest.mark.parametrize(
    ("arguments", "pdf", "called"),
    [
        (["PAPER=no"], None, {"jupyter-book no"}),  # neither fetched nor found
        (["PAPER=no"], "paper.pdf", {"jupyter-book no"}),
        ([], None, {"annotated", "jupyter-book"}),  # there is none to be had
        ([], "paper.pdf", {"annotated paper.pdf"}),  # one that is named has to be read
    ],
)
def test_a_book_is_made_without_the_paper_unless_it_is_named(make, arguments, pdf, called: set):
    done, log = make(*arguments, pdf=pdf)
    lines = {line.strip() for line in log.splitlines() if not line.startswith("python")}
    assert lines == called
    assert (done.returncode == 0) == any("jupyter-book" in line for line in called)
    assert ("annotated: told why" in done.stderr) == (done.returncode != 0)


def test_every_log_names_its_command_and_a_commit():
    table = (ROOT / "data" / "README.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if "| `results/" in line]
    named = [file for row in rows for file in re.findall(r"`results/([^`]+)`", row[0])]
    assert sorted(named) == sorted(path.name for path in (ROOT / "data" / "results").iterdir())
    commits = {commit for row in rows for commit in re.findall(r"`(\w{7,})`", row[3])}
    assert all(row[2] and re.search(r"`\w{7,}`", row[3]) for row in rows)
    git = ["git", "-C", str(ROOT), "rev-parse", "--quiet", "--verify"]
    if subprocess.run([*git, "da5f7a0^{commit}"], capture_output=True).returncode:
        pytest.skip("the history is not here")
    for commit in commits:
        assert not subprocess.run([*git, f"{commit}^{{commit}}"], capture_output=True).returncode
