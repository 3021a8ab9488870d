"""The package as a whole: quick to import, documented, and complete as a wheel."""

import importlib
import importlib.util
import inspect
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import annotated

ROOT = Path(__file__).resolve().parent.parent
HEAVY = {"torch", "altair", "spacy", "sacrebleu", "pandas", "tokenizers", "numpy", "pdfminer"}
MODULES = sorted(path.stem for path in (ROOT / "annotated").glob("[a-z]*.py"))


def loaded(code: str) -> set[str]:
    """Top-level modules in a new interpreter after some code."""
    code = f"{code}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_importing_the_package_is_quick():
    assert not loaded("import annotated; dir(annotated); annotated.__version__") & HEAVY


def test_building_a_model_needs_torch_alone():
    code = "import annotated; annotated.make_model(5, 5, N=1, d_model=8, d_ff=8, h=2)"
    modules = loaded(code)
    assert "torch" in modules
    assert not modules & {"altair", "spacy", "sacrebleu", "pandas", "pdfminer", "tokenizers"}


@pytest.mark.parametrize("name", annotated.__all__)
def test_names_resolve_and_say_what_they_are(name: str):
    thing = getattr(annotated, name)
    home = importlib.import_module(f"annotated.{annotated._HOME[name]}")
    assert thing is getattr(home, name) and name in home.__all__
    assert name in dir(annotated)
    if inspect.isroutine(thing) or inspect.isclass(thing):
        assert thing.__module__ == home.__name__
        own = thing.__doc__ and not thing.__doc__.startswith(f"{name}(")  # what dataclasses make
        assert own, f"{name} has no docstring"


def test_the_package_offers_what_its_modules_do():
    offered = [
        name
        for module in set(MODULES) - {"cli"}  # the command is nothing to import
        for name in getattr(importlib.import_module(f"annotated.{module}"), "__all__", [])
    ]
    assert sorted(offered) == sorted(annotated.__all__)
    assert len(set(offered)) == len(offered) > 50


def test_modules_import_in_any_order():
    """Each alone: no module relies on another having been imported first."""
    code = "import importlib, sys\nfor name in sys.argv[1:]:\n"
    code += (
        "    for m in [m for m in sys.modules if m.startswith('annotated')]: del sys.modules[m]\n"
    )
    code += "    importlib.import_module(f'annotated.{name}')\n"
    names = [name for name in MODULES if name != "charts"]  # altair would register it again
    done = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="'annotated' has no attribute 'make_modle'"):
        _ = annotated.make_modle


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the files in the wheel."""
    for name in "build", "hatchling":
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}, of the extra `test`")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    done = subprocess.run([*command, str(ROOT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as file:
        return set(file.namelist())


def test_the_wheel_holds_the_package_and_its_data(wheel: set[str]):
    inside = {path.name for path in (ROOT / "annotated").glob("*.py")} | {"py.typed"}
    data = {"corpora.toml"}
    for kind in "models", "results":
        files = [p for p in (ROOT / "data" / kind).rglob("*") if p.is_file()]
        data |= {path.relative_to(ROOT / "data").as_posix() for path in files}
    packaged = {name for name in wheel if ".dist-info/" not in name}
    assert packaged == {f"annotated/{name}" for name in inside | data}


def test_the_wheel_has_command_and_licence(wheel: set[str]):
    ends = [name.split(".dist-info/")[1] for name in wheel if ".dist-info/" in name]
    assert "entry_points.txt" in ends and "licenses/LICENSE" in ends


def test_a_wheel_can_be_built_from_the_source_distribution(tmp_path: Path):
    """As `pip install` does of a source distribution, and `python -m build` by default."""
    for name in "build", "hatchling":
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}, of the extra `test`")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path)]
    done = subprocess.run([*command, str(ROOT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.suffix for path in tmp_path.iterdir()} == {".whl", ".gz"}
