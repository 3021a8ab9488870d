"""Chapters as Colab has them: a notebook with the wheel beside it, where the package is missing.

All chapters ran when the book was built. A few run here: those that use what may differ from a
clone, which is files, corpora, processes and libraries; more of them where ANNOTATED_MATRIX is set.
The machine is a virtual environment in which only what Colab brings is installed (lent by the
environment of the tests). What else a chapter needs its first cell has to install.
"""

import os
import subprocess
import sys
import venv
from importlib.metadata import distribution, distributions
from pathlib import Path

import pytest

pytest.importorskip("pybtex", reason="needs the extra `book`")
pytest.importorskip("nbclient", reason="needs the extra `test`")

from contents import ROOT
from notebooks import write_notebooks
from packaging.requirements import Requirement

PREINSTALLED = {"torch", "numpy", "pandas", "altair", "ipykernel", "nbclient"}
CHAPTERS = [
    *("index", "5-1-data-batching", "5-2-hardware-schedule", "6-3-constituency-parsing"),
    "who-is-it",
]
if os.environ.get("ANNOTATED_MATRIX"):
    CHAPTERS += ["by-hand", "3-3-feed-forward", "6-1-machine-translation"]
    CHAPTERS += ["attention-visualizations"]
UNLIKE = pytest.mark.skipif(sys.platform == "win32", reason="links ask Windows for privileges")
pytestmark = [pytest.mark.colab, UNLIKE]


def closure(names: set[str]) -> set[str]:
    """Distributions, and all that they require."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            asked = map(Requirement, distribution(name).requires or [])
            waiting += [r.name for r in asked if not r.marker or r.marker.evaluate({"extra": ""})]
    return found


def lend(names: set[str], folder: Path) -> None:
    """Links in `folder` to what distributions have in this environment's site-packages."""
    folder.mkdir()
    for name in names:
        lent = distribution(name)
        for top in {file.parts[0] for file in lent.files or []} - {"..", "__pycache__"}:
            if not (folder / top).exists():
                (folder / top).symlink_to(Path(str(lent.locate_file(top))))


def pins() -> str:
    """The versions that are installed here, so that what is lent and what is not go together."""
    found = {d.metadata["Name"]: d.version for d in distributions()}
    found.pop("annotated-attention", None)  # the wheel's counts, not that of the clone
    return "".join(f"{name}=={version}\n" for name, version in sorted(found.items()))


@pytest.fixture(scope="session")  # tests of other files may come between
def machine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A folder of notebooks, far from the clone, and the variables of a process that runs one."""
    folder = tmp_path_factory.mktemp("colab")
    venv.create(folder / "python", with_pip=True)
    lend(closure(PREINSTALLED), folder / "lent")
    (site,) = (folder / "python").glob("lib/python*/site-packages")
    (site / "lent.pth").write_text(f"{folder / 'lent'}\n")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", str(ROOT), "--outdir"]
    subprocess.run([*command, str(folder / "notebooks")], check=True, capture_output=True)
    write_notebooks(ROOT, folder / "notebooks", remote=None)
    (folder / "pins.txt").write_text(pins())
    ours = {key: value for key, value in os.environ.items() if not key.startswith("ANNOTATED_")}
    return folder, ours | {
        "PIP_CONSTRAINT": str(folder / "pins.txt"),
        "PYTHONPATH": "",
        "XDG_CACHE_HOME": str(folder / "cache"),  # a new user has downloaded nothing
        "JUPYTER_PATH": "",
        "IPYTHONDIR": str(folder / "ipython"),
    }


@pytest.mark.parametrize("name", CHAPTERS)
def test_it_runs_from_top_to_bottom(machine: tuple[Path, dict[str, str]], name: str):
    """The first that runs finds no package and installs it."""
    folder, variables = machine
    run = "from nbclient.cli import main; main()"
    python, notebook = folder / "python" / "bin" / "python", f"{Path(name).name}.ipynb"
    command = [python, "-c", run, "--timeout=600", notebook]
    options = {"cwd": folder / "notebooks", "env": variables}
    done = subprocess.run(command, **options, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
