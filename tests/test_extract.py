"""book/extract.py: what chapters become, what it refuses, and that `--check` sees a difference."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

pytest.importorskip("jupytext", reason="needs the extra `test`")

import extract

ROOT = Path(__file__).resolve().parent.parent


def cell(module: str | None, source: str) -> str:
    """A code cell; `module` is where it is exported to."""
    option = f":export: {module}\n" if module else ""
    return f"```{{code-cell}} ipython3\n{option}{source}\n```\n"


class Book:
    """Chapters and package in a folder of their own, and the command on them."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.chapters, self.package = folder / "chapters", folder / "package"
        self.capsys = capsys
        self.chapters.mkdir()
        self.package.mkdir()
        self.offer("")

    def add(self, name: str, title: str, *cells: str) -> None:
        text = "---\njupytext:\n  text_representation:\n    format_name: myst\n---\n\n"
        text += "\n".join([f"# {title}\n", "Some prose.\n", *cells])
        (self.chapters / name).write_text(text, encoding="utf-8")

    def offer(self, names: str) -> None:
        text = f"# Reference\n\n```{{offered}}\n{names}\n```\n"
        (self.chapters / "api.md").write_text(text, encoding="utf-8")

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit status, standard output and standard error."""
        folders = ["--chapters", str(self.chapters), "--package", str(self.package)]
        status = extract.main([*folders, *arguments])
        return status, *self.capsys.readouterr()

    def module(self, name: str) -> str:
        """Text of a module, after the command has written it."""
        status, _, error = self.run()
        assert status == 0, error
        return (self.package / f"{name}.py").read_text(encoding="utf-8")

    def refusal(self) -> str:
        """Why the command refused; nothing may have been written."""
        before = self.files()
        status, output, error = self.run()
        assert (status, output) == (2, "") and self.files() == before
        return error

    def files(self) -> dict[str, bytes]:
        return {p.name: p.read_bytes() for p in sorted(self.package.glob("*.py*"))}


@pytest.fixture
def book(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Book:
    return Book(tmp_path, capsys)


def fresh(package: Path, code: str) -> str:
    """What code prints in a new interpreter that sees this package as `annotated`."""
    where = package.parent / "path"
    where.mkdir(exist_ok=True)
    (where / "annotated").symlink_to(package)
    code = f"import sys; sys.path.insert(0, {str(where)!r})\n{code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_module_of_two_chapters(book: Book):
    book.add(
        "1-one.md",
        "1 One",
        cell(None, "import pandas as pd  # for the experiments alone"),
        cell("shapes", "import math\nfrom os import path\n\ndef area(r):\n    return math.pi*r**2"),
        cell(None, "area(2)"),
    )
    book.add(
        "2-two.md",
        "2 Two: more",
        cell("shapes", "import math\n\ndef ball(r: float) -> float:\n    return 4/3*area(r)*r"),
        cell("other", "_SIDES = 1"),
        cell("shapes", "# Why four.\n_SIDES = {'square': 4}  # unit\n\nclass Shape:\n    pass"),
    )
    text = book.module("shapes")
    said = ast.get_docstring(ast.parse(text)).splitlines()[:2]
    assert said == ["1 One (chapters/1-one.md).", "2 Two: more (chapters/2-two.md)."]
    names = [getattr(node, "name", type(node).__name__) for node in ast.parse(text).body]
    # Docstring, imports once and on top, then the cells in the order of the chapters.
    assert names == ["Expr", "Import", "ImportFrom", "area", "ball", "Assign", "Shape"]
    assert text.count("import math") == 1 and "pandas" not in text and "area(2)" not in text
    assert "math.pi * r**2" in text  # formatted
    assert '# Why four.\n_SIDES = {"square": 4}  # unit\n' in text


STRING = '''\
TEXT = """first
import nothing
from here import there
"""


def f():
    """A docstring that talks of imports.

    import this
    """
    import math

    # Why the root is needed.
    return math.sqrt(2)  # the end
'''


def test_every_kind_of_import_survives(book: Book):
    source = (
        "from __future__ import annotations\nimport os, sys\nimport json as j\nimport abc\n"
        "from collections import (\n    Counter,  # counts\n    OrderedDict as Ordered,\n)\n"
        "from pathlib import \\\n    Path\nimport gzip  # only here\n"
        "everything = [os, sys, j, abc, Counter, Ordered, Path, gzip]"
    )
    again = "from collections import Counter, deque\nqueue = deque(Counter('ab'))"
    cells = [cell("one", part) for part in (source, again, STRING)]
    book.add("1-one.md", "1 One", *cells)
    text = book.module("one")
    assert text.endswith(STRING)  # strings, comments and inner imports are left alone
    scope: dict = {}
    exec(compile(text, "one.py", "exec"), scope)
    names = [getattr(thing, "__name__", None) for thing in scope["everything"]]
    assert names == ["os", "sys", "json", "abc", "Counter", "OrderedDict", "Path", "gzip"]
    assert list(scope["queue"]) == ["a", "b"]
    assert "# counts" in text and "# only here" in text
    tops = [type(node).__name__.startswith("Import") for node in ast.parse(text).body[1:]]
    assert tops == sorted(tops, reverse=True)  # no import below the first other statement


def test_names_are_offered_lazily(book: Book):
    book.add("1-one.md", "1 One", cell("one", "import json\n\ndef f():\n    return json.dumps(1)"))
    book.add("2-two.md", "2 Two", cell("two", "from annotated.one import f\n\nX = f()\nY = 2"))
    (book.package / "machinery").mkdir()
    (book.package / "machinery" / "files.py").write_text("def read():\n    return 3\n")
    (book.package / "_version.py").write_text('__version__ = "1"\n')
    book.offer("f X read")
    book.run()
    code = (
        "import annotated\n"
        "assert not [m for m in sys.modules if m.startswith('annotated.')]\n"
        "assert dir(annotated) == ['X', 'f', 'read'], dir(annotated)\n"
        "assert annotated.f() == '1' and 'annotated.two' not in sys.modules\n"
        "assert annotated.two.Y == 2 and annotated.read() == 3\n"
        "try:\n    annotated.Y\n"
        "except AttributeError as error:\n    print(error)\n"
        "from annotated import *\n"
        "assert f is annotated.one.f and X == '1'\n"
    )
    assert fresh(book.package, code) == "No annotated attribute Y\n"
    stub = (book.package / "__init__.pyi").read_text()  # for type checkers
    assert "from .one import f as f" in stub and "from .machinery.files import read as" in stub
    book.offer("f Z")
    assert "offers 'Z', which no module defines" in book.refusal()


def test_a_module_without_a_chapter_is_removed_and_a_file_by_hand_is_never_touched(book: Book):
    book.add("1-one.md", "1 One", cell("one", "X = 1"))
    book.add("2-two.md", "2 Two", cell("two", "Y = 1"))
    book.run()
    (book.chapters / "2-two.md").unlink()
    (book.package / "mine.py").write_text("Z = 2\n")
    assert book.run()[0] == 0
    assert sorted(book.files()) == ["__init__.py", "__init__.pyi", "mine.py", "one.py"]
    book.add("2-two.md", "2 Two", cell("mine", "Y = 1"))
    assert "mine.py" in book.refusal()


LOST = cell("one", "def last():\n    return lost")


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([cell("one", "def f(:\n    pass")], ["1-one.md, cell 2 (def f(:)", "line 1"]),
        ([cell("one", "%matplotlib inline")], ["1-one.md, cell 2"]),
        (
            [cell("one", "X = 1"), cell("one", "Y = 2\nX = 3")],
            ["1-one.md, cell 3 (Y = 2)", "'X'", "chapters/1-one.md, cell 2"],
        ),
        (
            [cell(None, "import os"), cell("one", "def f():\n    os.getcwd()")],
            ["1-one.md, cell 3 (def f():)", "`os`", "annotated/one.py"],
        ),
        ([cell("one", "X = 1"), cell("two", "one = 1")], ["cell 3", "'one'", "module"]),
        *(
            ([cell(name, "X = 1")], ["cell 2 (X = 1)", "does not name a module", name])
            for name in ("my-module", "class", "__init__", "machinery")
        ),
        ([cell("one", "import os; X = os.sep")], ["cell 2", "separate line", "import os; X"]),
        (  # the position survives imports and strings
            [cell("one", 'from os import (\n    sep,\n)\n\nT = """a\n\nb"""\nS = sep'), LOST],
            ["cell 3 (def last():)"],
        ),
    ],
)
def test_refusals_name_chapter_and_cell(book: Book, cells: list[str], said: list[str]):
    book.add("1-one.md", "1 One", cell("zero", "Z = 1"))
    assert book.run()[0] == 0
    book.add("1-one.md", "1 One", *cells)
    error = book.refusal()
    for part in said:
        assert part in error


def replace(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "shown"),
    [
        (
            lambda p: replace(p / "one.py", "return X", "return 2"),
            ["-    return 2", "+    return X"],
        ),
        (lambda p: (p / "old.py").write_text(f"# {extract.MARK}.\nY = 2\n"), ["-Y = 2"]),
        (lambda p: (p / "one.py").unlink(), ["--- (missing)", "+X = 1"]),
        (lambda p: replace(p.parent / "chapters/1-one.md", "= 1", "=2"), ["-X = 1", "+X = 2"]),
    ],
    ids=["by hand", "stale", "missing", "the chapter"],
)
def test_check_fails_on_every_difference_and_only_shows_it(book: Book, change, shown: list[str]):
    book.add("1-one.md", "1 One", cell("one", "X = 1\n\n\ndef f():\n    return X"))
    assert book.run()[0] == 0 and book.run("--check") == (0, "", "")
    change(book.package)
    before = book.files()
    status, output, error = book.run("--check")
    assert status == 1 and "make extract" in error and book.files() == before
    for line in shown:
        assert line in output.splitlines()
    assert book.run()[0] == 0 and book.run("--check")[0] == 0  # writing mends it


@pytest.mark.slow
def test_no_line_of_an_export_cell_is_lost():
    """However extraction joins cells: their statements stand in the module, in order."""
    rest = lambda nodes: [
        ast.unparse(n) for n in nodes if not isinstance(n, ast.Import | ast.ImportFrom)
    ]
    for module in extract.collect(ROOT / "chapters").values():
        text = (ROOT / "annotated" / f"{module.name}.py").read_text(encoding="utf-8")
        cells = (node for one in module.cells for node in one.tree().body)
        assert rest(ast.parse(text).body[1:]) == rest(cells)


def test_the_guide_says_which_modules_each_chapter_of_the_paper_writes():
    written = defaultdict(set)
    for module in extract.collect(ROOT / "chapters").values():
        for made in module.cells:
            if made.chapter.parent.name == "chapters":
                written[made.chapter.name].add(module.name)
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]* \| \[[^]]+\]\(chapters/([^)]+)\) \|([^|]*)\|", page, re.MULTILINE)
    assert {name: set(re.findall(r"`(.+?)`", words)) for name, words in rows} == written
