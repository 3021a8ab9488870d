"""book/extract.py: what chapters become, what it refuses, and that `--check` sees a difference."""

import ast
import difflib
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("jupytext", reason="needs the extra `test`")


import extract

ROOT = Path(__file__).resolve().parent.parent

HEAD = """\
---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

"""


def cell(module: str | None, source: str) -> str:
    """A code cell; `module` is where it is exported to."""
    option = f":export: {module}\n" if module is not None else ""
    return f"```{{code-cell}} ipython3\n{option}{source}\n```\n"


def chapter(title: str, *cells: str) -> str:
    return HEAD + "\n".join([f"# {title}\n", "Some prose.\n", *cells])


class Book:
    """Chapters and package in a folder of their own, and the command on them."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.chapters, self.package = folder / "chapters", folder / "package"
        self.capsys = capsys
        self.chapters.mkdir()

    def add(self, name: str, title: str, *cells: str) -> None:
        (self.chapters / name).write_text(chapter(title, *cells), encoding="utf-8")

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
        assert (status, output) == (2, "")
        assert error.startswith("extraction refused: ") and error.count("\n") == 1
        assert self.files() == before
        return error

    def files(self) -> dict[str, bytes]:
        return {p.name: p.read_bytes() for p in sorted(self.package.glob("*"))}


@pytest.fixture
def book(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Book:
    return Book(tmp_path, capsys)


def fresh(package: Path, code: str) -> str:
    """Run code in a new interpreter that sees this package as `annotated`; what it prints."""
    where = package.parent / "path"
    where.mkdir(exist_ok=True)
    (where / "annotated").symlink_to(package)
    code = f"import sys; sys.path.insert(0, {str(where)!r})\n{code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


# ------------------------------------------------------------------------------- what is written


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
        cell("shapes", "_SIDES = {'square': 4}\n\nclass Shape:\n    pass"),
    )
    text = book.module("shapes")
    assert ast.get_docstring(ast.parse(text)) == (
        "1 One (chapters/1-one.md).\n2 Two: more (chapters/2-two.md).\n\n"
        "Generated from the chapter's export cells by book/extract.py: edit it there."
    )
    names = [getattr(node, "name", type(node).__name__) for node in ast.parse(text).body]
    # Docstring, imports once and on top, __all__, then the cells in the order of the chapters.
    assert names == ["Expr", "Import", "ImportFrom", "Assign", "area", "ball", "Assign", "Shape"]
    assert text.count("import math") == 1 and "pandas" not in text and "area(2)" not in text
    assert '__all__ = ["Shape", "area", "ball"]' in text
    assert "math.pi * r**2" in text and '{"square": 4}' in text  # formatted


def test_it_is_formatted_as_the_repository_is(book: Book):
    long = f"def f({', '.join(f'argument_number_{i}={i}' for i in range(6))}): return 1"
    book.add("1-one.md", "1 One", cell("one", f"from typing import Any\nimport abc\n{long}"))
    text = book.module("one")
    path = book.package / "one.py"
    for command in ["format", "--check"], ["check", "--select", "I,E", "--ignore", "F401"]:
        config = ["--config", str(ROOT / "pyproject.toml")]
        done = subprocess.run([sys.executable, "-m", "ruff", *command, *config, str(path)])
        assert done.returncode == 0
    assert max(map(len, text.splitlines())) <= 100


def test_imports_of_the_package_come_last_whether_it_exists_or_not(book: Book):
    book.add("1-one.md", "1 One", cell("one", "A = 1"))
    imports = "import zlib\nfrom annotated.one import A\nimport torch\n\nB = (A, torch, zlib)"
    book.add("2-two.md", "2 Two", cell("two", imports))
    top = book.module("two").split('"""\n')[1].split("__all__")[0]
    lines = [line for line in top.splitlines() if line]
    assert lines == ["import zlib", "import torch", "from annotated.one import A"]


def test_every_kind_of_import_survives(book: Book):
    source = (
        "from __future__ import annotations\n"
        "import os, sys\n"
        "import json as j\nimport abc\n"
        "from collections import (\n"
        "    Counter,  # counts\n"
        "    OrderedDict as Ordered,\n"
        ")\n"
        "from pathlib import \\\n"
        "    Path\n"
        "import gzip  # only here\n"
        "everything = [os, sys, j, abc, Counter, Ordered, Path, gzip]"
    )
    again = "from collections import Counter, deque\nqueue = deque(Counter('ab'))"
    book.add("1-one.md", "1 One", cell("one", source), cell("one", again))
    text = book.module("one")
    scope: dict = {}
    exec(compile(text, "one.py", "exec"), scope)
    names = [getattr(thing, "__name__", None) for thing in scope["everything"]]
    assert names == ["os", "sys", "json", "abc", "Counter", "OrderedDict", "Path", "gzip"]
    assert list(scope["queue"]) == ["a", "b"]
    imported = [
        alias.name
        for node in ast.parse(text).body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    ]
    assert len(imported) == len(set(imported))  # each once
    assert "# counts" in text and "# only here" in text
    tops = [type(node).__name__.startswith("Import") for node in ast.parse(text).body[1:]]
    assert tops == sorted(tops, reverse=True)  # no import below the first other statement


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
    x = math.sqrt(2)


    # Two blank lines above become one, as ruff has it.
    return x  # the end
'''


def test_strings_comments_and_inner_imports_are_left_alone(book: Book):
    book.add("1-one.md", "1 One", cell("one", "import os\n\nHERE = os.curdir\n" + STRING))
    text = book.module("one")
    scope: dict = {}
    exec(compile(text, "one.py", "exec"), scope)
    assert scope["TEXT"] == "first\nimport nothing\nfrom here import there\n"
    assert "import this" in scope["f"].__doc__
    assert scope["f"]() == 2**0.5
    body = text[text.index("    import math") :]
    assert body == (
        "    import math\n\n"
        "    # Why the root is needed.\n"
        "    x = math.sqrt(2)\n\n"
        "    # Two blank lines above become one, as ruff has it.\n"
        "    return x  # the end\n"
    )


def test_comments_at_top_level_survive(book: Book):
    book.add("1-one.md", "1 One", cell("one", "# About the constant.\nX = 1  # unit"))
    assert "# About the constant.\nX = 1  # unit\n" in book.module("one")


def test_names_are_offered_lazily(book: Book):
    book.add("1-one.md", "1 One", cell("one", "import json\n\ndef f():\n    return json.dumps(1)"))
    book.add("2-two.md", "2 Two", cell("two", "from annotated.one import f\n\n_own = 1\nX = f()"))
    book.run()
    code = (
        "import annotated\n"
        "assert not [m for m in sys.modules if m.startswith('annotated.')]\n"
        "assert sorted(annotated.__all__) == ['X', 'f'], annotated.__all__\n"
        "assert annotated.f() == '1' and 'annotated.two' not in sys.modules\n"
        "assert annotated.two.X == annotated.X == '1'\n"
        "assert {'f', 'X', 'one', 'two'} <= set(dir(annotated))\n"
        "try:\n    annotated.nothing\n"
        "except AttributeError as error:\n    print(error)\n"
        "from annotated import *\n"
        "assert f is annotated.one.f and X == '1'\n"
    )
    assert fresh(book.package, code) == "No annotated attribute nothing\n"
    init = (book.package / "__init__.pyi").read_text()
    assert "from .one import f as f" in init  # for type checkers
    assert (book.package / "py.typed").read_text() == ""
    assert not (book.package / "__main__.py").exists()


def test_a_command_line_makes_the_package_runnable(book: Book):
    book.add("1-one.md", "1 One", cell("cli", "def main():\n    print('hello')"))
    assert "from annotated.cli import main" in book.module("__main__")
    assert fresh(book.package, "import runpy; runpy.run_module('annotated', {}, '__main__')") == (
        "hello\n"
    )


def test_a_module_for_older_code_keeps_its_names_to_itself(book: Book):
    book.add("1-one.md", "1 One", cell("one", "X = 1\nY = 2"))
    code = "from annotated.one import X as X\n\n\ndef one():\n    return X\n\n\nY = 3"
    book.add("2-two.md", "2 Two", cell("compat", code))
    assert '__all__ = ["X", "Y", "one"]' in book.module("compat")
    asked = "from annotated.compat import *; import annotated; print(X, Y, one(), annotated.Y)"
    assert fresh(book.package, asked) == "1 3 1 2\n"


def test_a_reference_says_what_is_offered(book: Book):
    book.add("1-one.md", "1 One", cell("one", "X = 1\nY = 2"))
    listed = "Words.\n\n```{offered}\nX\n```\n"
    (book.chapters / "api.md").write_text(f"# Reference\n\n{listed}", encoding="utf-8")
    book.run()
    asked = "import annotated; print(annotated.__all__, annotated.one.Y)"
    assert fresh(book.package, asked) == "['X'] 2\n"
    (book.chapters / "api.md").write_text("# Reference\n\n```{offered}\nX Z\n```\n")
    assert "offers 'Z', which no module defines" in book.refusal()


def test_modules_may_stand_in_a_folder(book: Book):
    book.add("1-one.md", "1 One", cell("deep.one", "def f():\n    return 1"))
    book.add("2-two.md", "2 Two", cell("deep.two", "from annotated.deep.one import f\n\nX = f()"))
    assert "def f" in book.module("deep/one")
    code = (
        "import annotated, annotated.deep\n"
        "assert 'annotated.deep.one' not in sys.modules\n"
        "assert annotated.X == annotated.deep.X == annotated.deep.two.X == 1\n"
        "assert annotated.deep.f is annotated.f and annotated.deep.__all__ == ['X', 'f']\n"
        "print(annotated.deep.__doc__.splitlines()[0])"
    )
    assert fresh(book.package, code) == "1 One. 2 Two.\n"
    (book.package / "deep" / "old.py").write_text("")
    assert "deep/old.py" in book.run()[1]


def test_a_class_may_span_cells_and_chapters(book: Book):
    book.add(
        "2-two.md",
        "2 Two",
        cell("one", "class A:\n    x = 2\n\n    def f(self):\n        return self.x\n\n\nB = A"),
    )
    more = (
        "import math\nfrom annotated.classes import add_to\n\n"
        "@add_to(A)\ndef g(self) -> float:\n"
        '    """What it does.\n\n    And why.\n    """\n    return math.sqrt(self.f())\n\n\n'
        "@add_to(A)\n@property\ndef h(self):\n    return 3\n\n\nC = 4"
    )
    book.add("1-one.md", "1 One", cell("one", more))  # a chapter before the class
    text = book.module("one")
    (made,) = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    assert [getattr(node, "name", "x") for node in made.body] == ["x", "f", "g", "h"]
    assert "add_to" not in text and '__all__ = ["A", "B", "C"]' in text
    asked = "from annotated import A, C; print(A().g() ** 2, A().h, C, A.g.__doc__.splitlines()[0])"
    assert fresh(book.package, asked) == "2.0000000000000004 3 4 What it does.\n"


def test_what_a_cell_adds_needs_a_class_and_a_name_of_its_own(book: Book):
    added = "from annotated.classes import add_to\n\n@add_to(A)\ndef g(self):\n    return 1"
    book.add("1-one.md", "1 One", cell("one", added))
    assert "cell 2" in (error := book.refusal()) and "no class of annotated.one" in error
    book.add("1-one.md", "1 One", cell("one", "class A:\n    pass"), *[cell("one", added)] * 2)
    assert "'A.g' is already defined" in book.refusal()
    wide = added.replace("return 1", 'return """a\nb"""')
    book.add("1-one.md", "1 One", cell("one", "class A:\n    pass"), cell("one", wide))
    assert "g has a string of several lines" in book.refusal()
    joined = added.replace("return 1", 'return (f"{self}"\n            f"b")')
    book.add("1-one.md", "1 One", cell("one", "class A:\n    pass"), cell("one", joined))
    assert "{self}b" in book.module("one")  # joined by ruff


def test_a_second_run_changes_nothing(book: Book):
    book.add("1-one.md", "1 One", cell("one", "X = 1"))
    assert book.run()[0] == 0
    before = {path: path.stat().st_mtime_ns for path in book.package.iterdir()}
    assert "0 changed" in book.run()[1]
    assert {path: path.stat().st_mtime_ns for path in book.package.iterdir()} == before


def test_modules_without_a_chapter_are_removed(book: Book):
    book.add("1-one.md", "1 One", cell("one", "X = 1"))
    book.run()
    (book.package / "old.py").write_text("Y = 2\n")
    assert "old.py" in book.run()[1]
    assert sorted(book.files()) == [
        "__init__.py",
        "__init__.pyi",
        "_version.py",
        "one.py",
        "py.typed",
    ]


# ------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([cell("one", "def f(:\n    pass")], ["1-one.md, cell 2 (def f(:)", "line 1"]),
        ([cell("one", "%matplotlib inline")], ["1-one.md, cell 2", "does not parse"]),
        (
            [cell("one", "X = 1"), cell("one", "Y = 2\nX = 3")],
            ["1-one.md, cell 3 (Y = 2)", "'X' is already defined in chapters/1-one.md, cell 2"],
        ),
        (
            [cell("one", "def f(): pass"), cell("two", "class f: pass")],
            ["cell 3 (class f: pass)", "'f' is already defined", "cell 2 (def f(): pass)"],
        ),
        (
            [cell("one", "_x = 1"), cell("one", "_x = 2")],
            ["cell 3 (_x = 2)", "'_x' is already defined"],
        ),
        ([cell("one", "A, (B, A) = 1, (2, 3)")], ["'A' is already defined"]),
        (
            [
                cell("one", "X = 1"),
                cell(None, "import os"),
                cell("one", "def f():\n    os.getcwd()"),
            ],
            ["1-one.md, cell 4 (def f():)", "`os`", "annotated/one.py"],
        ),
        ([cell("one", "X = 1"), cell("two", "Y = X")], ["cell 3 (Y = X)", "`X`"]),
        (
            [cell("one", "X = 1"), cell("two", "one = 1")],
            ["cell 3", "'one' is the name of a module"],
        ),
        ([cell("my-module", "X = 1")], ["cell 2 (X = 1)", "names no module", "'my-module'"]),
        ([cell("a.b.c", "X = 1")], ["cell 2", "names no module", "'a.b.c'"]),
        ([cell("a.", "X = 1")], ["cell 2", "names no module", "'a.'"]),
        ([cell("a._b", "X = 1")], ["cell 2", "names no module", "'a._b'"]),
        (
            [cell("a", "X = 1"), cell("a.b", "Y = 1")],
            ["cell 3", "'a' is a module and no folder"],
        ),
        ([cell("class", "X = 1")], ["cell 2", "names no module", "'class'"]),
        ([cell("__init__", "X = 1")], ["cell 2", "names no module", "'__init__'"]),
        ([cell("3", "X = 1")], ["cell 2", "names no module", "3"]),
        ([cell("one", "import os; X = os.sep")], ["cell 2", "line of its own", "import os; X"]),
        ([cell("one", "X = 1; import os")], ["cell 2", "line of its own"]),
    ],
)
def test_refusals_name_chapter_and_cell(book: Book, cells: list[str], said: list[str]):
    book.add("1-one.md", "1 One", *cells)
    error = book.refusal()
    for part in said:
        assert part in error
    assert not book.package.exists()


def test_the_position_of_an_undefined_name_survives_imports_and_strings(book: Book):
    imports = "from collections import (\n    Counter,\n    deque,\n)\nimport os"
    text = f'{imports}\n\nTEXT = """a\n\n\nb"""\n\n\ndef f():\n    return Counter, deque, os'
    book.add("1-one.md", "1 One", cell("one", text), cell("one", "def last():\n    return lost"))
    assert "cell 3 (def last():)" in book.refusal()


def test_private_names_may_recur_in_other_modules(book: Book):
    book.add("1-one.md", "1 One", cell("one", "_x = 1"), cell("two", "_x = 2"))
    assert "_x = 2" in book.module("two")


def test_a_chapter_needs_a_title(book: Book):
    (book.chapters / "1-one.md").write_text(HEAD + cell("one", "X = 1"), encoding="utf-8")
    assert "chapters/1-one.md: has no title" in book.refusal()


def test_a_refusal_leaves_the_package_as_it_was(book: Book):
    book.add("1-one.md", "1 One", cell("one", "X = 1"))
    assert book.run()[0] == 0
    before = book.files()
    book.add("2-two.md", "2 Two", cell("one", "Z = 1"), cell("two", "Y = unknown"))
    book.refusal()
    assert book.files() == before


# ------------------------------------------------------------------------------------- `--check`


@pytest.fixture
def written(book: Book) -> Book:
    book.add("1-one.md", "1 One", cell("one", "X = 1\n\n\ndef f():\n    return X"))
    assert book.run()[0] == 0
    return book


def test_check_passes_after_writing(written: Book):
    assert written.run("--check") == (0, "", "")


def by_hand(path: Path, change: Callable[[str], str]) -> None:
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")


def test_check_shows_a_change_by_hand(written: Book):
    by_hand(written.package / "one.py", lambda text: text.replace("return X", "return X + 1"))
    before = written.files()
    status, output, error = written.run("--check")
    assert status == 1 and "make extract" in error
    lines = output.splitlines()
    assert lines[:2] == ["--- annotated/one.py", "+++ annotated/one.py from the chapters"]
    assert lines[2].startswith("@@ ")
    assert [line for line in lines[3:] if line[0] in "+-"] == [
        "-    return X + 1",
        "+    return X",
    ]
    assert written.files() == before  # it only compares


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "shown"),
    [
        (lambda p: (p / "old.py").write_text("Y = 2\n"), ["--- annotated/old.py", "-Y = 2"]),
        (lambda p: (p / "old.py").write_text(""), ["annotated/old.py has no chapter"]),
        (lambda p: (p / "one.py").unlink(), ["--- (missing)", "+X = 1"]),
        (lambda p: (p / "py.typed").unlink(), ["annotated/py.typed is missing"]),
        (lambda p: by_hand(p / "one.py", str.rstrip), ["     return X", "+"]),
    ],
    ids=["stale", "stale and empty", "missing", "missing and empty", "no newline at the end"],
)
def test_check_sees_every_difference(written: Book, change: Callable, shown: list[str]):
    change(written.package)
    status, output, _ = written.run("--check")
    assert status == 1
    for line in shown:
        assert line in output.splitlines()
    assert written.run()[0] == 0 and written.run("--check")[0] == 0  # and writing mends it


def test_a_change_of_the_chapter_is_a_difference(written: Book):
    by_hand(written.chapters / "1-one.md", lambda text: text.replace("X = 1", "X = 2"))
    status, output, _ = written.run("--check")
    assert status == 1 and "-X = 1\n+X = 2\n" in output


def test_the_command_exits_with_the_status(written: Book):
    by_hand(written.package / "one.py", lambda text: text + "# by hand\n")
    folders = ["--chapters", written.chapters, "--package", written.package]
    command = [sys.executable, ROOT / "book" / "extract.py", "--check", *folders]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "-# by hand" in done.stdout


# -------------------------------------------------------------------------------- the repository


@pytest.mark.slow
def test_the_package_is_what_the_chapters_say():
    assert extract.differences(extract.package(ROOT / "chapters"), ROOT / "annotated") == ""


@pytest.mark.slow
def test_no_line_of_an_export_cell_is_lost():
    """However extraction joins cells: their statements stand in the module, in order."""
    for module in extract.collect(ROOT / "chapters").values():
        made = ast.parse((ROOT / "annotated" / module.path).read_text(encoding="utf-8")).body
        added = {name for name, _ in module.definitions() if "." in name}
        kept, told = [], []
        for node in made[1:]:
            if isinstance(node, ast.ClassDef):
                own = [(f"{node.name}.{getattr(part, 'name', '')}", part) for part in node.body]
                node.body = [part for name, part in own if name not in added]
            kept.append(node)
        for one in module.cells:
            methods = [ast.dump(node) for _, node in one.additions()]
            told += [node for node in one.tree().body if ast.dump(node) not in methods]
        before, after = (
            [ast.unparse(n) for n in nodes if not isinstance(n, (ast.Import, ast.ImportFrom))]
            for nodes in (told, kept)
        )
        after = [line for line in after if not line.startswith("__all__ = ")]
        assert after == before, "\n".join(difflib.unified_diff(before, after, lineterm=""))


def test_the_front_page_says_which_modules_each_chapter_writes():
    """A folder stands for all its modules."""
    modules, written = extract.collect(ROOT / "chapters"), defaultdict(set)
    for module in modules.values():
        for made in module.cells:
            written[made.chapter.name].add(module.name)
    page = (ROOT / "chapters" / "index.md").read_text(encoding="utf-8")
    listed = {}
    for name, words in re.findall(r"^\| [^|]*\| \[[^]]+\]\(([^)]+)\) \|([^|]*)\|", page, re.M):
        names = re.findall(r"`(.+?)`", words)
        listed[name] = {m for m in modules for n in names if m == n or m.startswith(f"{n}.")}
    assert {name: found for name, found in listed.items() if found} == written
