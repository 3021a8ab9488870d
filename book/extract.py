"""Make the package `annotated/` from the export cells of the chapters.

A code cell with the metadata `export: NAME` belongs to `annotated/NAME.py`, one with
`export: FOLDER.NAME` to `annotated/FOLDER/NAME.py`. The cells of one module are joined in the order
of the chapters, their imports gathered at the top, the methods that a cell adds to a class
(`@add_to(Class)`) put into it, and the whole is formatted by ruff. The stub `__init__.pyi` says
what the package offers: the names that the chapter `api.md` lists.

    python book/extract.py            write the package
    python book/extract.py --check    write nothing; fail with a diff if the package differs
"""

from __future__ import annotations

import argparse
import ast
import difflib
import io
import json
import keyword
import os
import re
import subprocess
import sys
import textwrap
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import jupytext

ROOT = Path(__file__).resolve().parent.parent


# The command line, and what exists only for older code, are modules of their own: the package does
# not offer their names, which may be those of other modules.
APART = {"cli", "commands", "compat"}

# For notebooks; in a module the methods stand in the class.
ADD_TO = "from annotated.classes import add_to"

VERSION = "_version"


class ExtractionError(Exception):
    """A chapter says something that cannot become a module."""


@dataclass(frozen=True)
class Cell:
    """An export cell: the chapter that it is in, its place there, its module, its code."""

    chapter: Path
    number: int  # among all cells of the chapter, from 1
    module: str
    source: str

    def __str__(self) -> str:
        first = self.source.strip().splitlines()[0] if self.source.strip() else "empty"
        return f"chapters/{self.chapter.name}, cell {self.number} ({first})"

    def additions(self) -> list[tuple[str, ast.FunctionDef]]:
        """The methods that this cell adds to classes: (class, method)."""
        nodes = [node for node in self.tree().body if isinstance(node, ast.FunctionDef)]
        return [(name, node) for node in nodes if (name := added_to(node))]

    def tree(self) -> ast.Module:
        try:
            return ast.parse(self.source)
        except SyntaxError as error:
            raise ExtractionError(
                f"{self}: does not parse: {error.msg}, line {error.lineno} of the cell: "
                f"{(error.text or '').strip()}"
            ) from None


@dataclass
class Module:
    """A module in the making: its cells, and the text made of them."""

    name: str
    cells: list[Cell] = field(default_factory=list)
    origins: dict[int, Cell] = field(default_factory=dict)  # of lines of `text`, from 1

    @property
    def path(self) -> str:
        """Of its file, in the package."""
        return self.name.replace(".", "/") + ".py"

    def definitions(self) -> Iterator[tuple[str, Cell]]:
        """Every name that a cell defines at top level, and `Class.method` for what it adds."""
        for cell in self.cells:
            for node in cell.tree().body:
                for name in defined_names(node):
                    yield name, cell
            for name, node in cell.additions():
                yield f"{name}.{node.name}", cell

    def public(self) -> list[str]:
        """What is defined here, or imported to be offered here too: `from m import X as X`."""
        names = {name for name, _ in self.definitions() if "." not in name}
        for cell in self.cells:
            for node in cell.tree().body:
                if isinstance(node, ast.ImportFrom):
                    names |= {entry.name for entry in node.names if entry.asname == entry.name}
        return sorted(name for name in names if not name.startswith("_"))

    def header(self) -> str:
        chapters = {cell.chapter: title(cell.chapter) for cell in self.cells}
        lines = [f"{name} (chapters/{path.name})." for path, name in chapters.items()]
        note = "Generated from the chapter's export cells by book/extract.py: edit it there."
        return '"""' + "\n".join([*lines, "", note]) + '\n"""'

    def text(self) -> str:
        """The module before formatting; `origins` says which cell a line of it is from."""
        imports: list[str] = []
        body: list[tuple[str, Cell]] = []
        methods = self.methods()
        for cell in self.cells:
            kept, cell_imports = split_imports(cell)
            imports += [line for line in cell_imports if line not in imports]
            ends = {n.end_lineno: n.name for n in cell.tree().body if isinstance(n, ast.ClassDef)}
            for number, line in enumerate(kept, start=1):
                body.append((line, cell))
                body += methods.pop(ends.get(number, ""), [])
            body.append(("", cell))
        for name, lines in methods.items():
            raise ExtractionError(
                f"{lines[0][1]}: adds to {name}, which is no class of annotated.{self.name}"
            )
        top = [self.header(), *imports, f"__all__ = {json.dumps(self.public())}"]
        offset = sum(part.count("\n") + 1 for part in top)
        self.origins = dict(enumerate((cell for _, cell in body), start=offset + 1))
        return "\n".join([*top, *(line for line, _ in body)]) + "\n"

    def methods(self) -> dict[str, list[tuple[str, Cell]]]:
        """Lines that cells add to classes, by the class."""
        found: dict[str, list[tuple[str, Cell]]] = defaultdict(list)
        for cell in self.cells:
            for name, node in cell.additions():
                lines = textwrap.indent(method_source(cell, node), "    ").split("\n")
                found[name] += [(line, cell) for line in ["", *lines]]
        return dict(found)


def added_to(node: ast.FunctionDef) -> str:
    """The class that `@add_to(Class)` names, as the first decorator of a function."""
    first = node.decorator_list[0] if node.decorator_list else None
    if isinstance(first, ast.Call) and ast.unparse(first.func) == "add_to" and len(first.args) == 1:
        return ast.unparse(first.args[0])
    return ""


def method_source(cell: Cell, node: ast.FunctionDef) -> str:
    """The lines of an added method, without the decorator that adds it."""
    first = node.body[0]
    docstring = first.value.lineno if isinstance(first, ast.Expr) else 0  # which may be indented
    start = node.decorator_list[0].lineno
    text = "\n".join(cell.source.split("\n")[start : node.end_lineno])
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        long = "\n" in token.string and token.type not in (tokenize.NEWLINE, tokenize.NL)
        if long and token.start[0] + start != docstring:
            raise ExtractionError(f"{cell}: {node.name} has a string of several lines")
    return text


def defined_names(node: ast.stmt) -> list[str]:
    """Names that a top-level statement defines; imports and bare expressions define none."""
    if isinstance(node, ast.FunctionDef) and added_to(node):
        return []
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [n for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]
        return [n.id for n in names if isinstance(n.ctx, ast.Store)]
    return []


def split_imports(cell: Cell) -> tuple[list[str], list[str]]:
    """The lines of a cell without its top-level imports, and these, with their comments."""
    lines = cell.source.split("\n")
    body = cell.tree().body
    spans = [range(node.lineno - 1, node.end_lineno or node.lineno) for node in body]
    used = Counter(row for span in spans for row in span)
    imports = []
    for node, span in zip(body, spans, strict=True):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            if any(used[row] > 1 for row in span):
                raise ExtractionError(
                    f"{cell}: give an import a line of its own: {lines[span.start].strip()}"
                )
            if ast.unparse(node) != ADD_TO:
                imports.append("\n".join(lines[row] for row in span))
            lines = ["" if row in span else line for row, line in enumerate(lines)]
    for _, method in cell.additions():
        span = range(method.decorator_list[0].lineno - 1, method.end_lineno or method.lineno)
        lines = ["" if row in span else line for row, line in enumerate(lines)]
    return lines, imports


def title(chapter: Path) -> str:
    """The first heading of a chapter."""
    for line in chapter.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            return line[2:].strip()
    raise ExtractionError(f"chapters/{chapter.name}: has no title (a line that begins with '# ')")


def export_cells(chapter: Path) -> Iterator[Cell]:
    """The export cells of a chapter, in order."""
    notebook = jupytext.read(chapter, fmt="md:myst")
    for number, cell in enumerate(notebook.cells, start=1):
        module = cell.metadata.get("export")
        if cell.cell_type == "code" and module is not None:
            found = Cell(chapter, number, module, cell.source)
            if not is_module_name(module):
                raise ExtractionError(f"{found}: export names no module: {module!r}")
            yield found


def is_module_name(name: object) -> bool:
    """Whether `from annotated.NAME import …` is Python, and NAME none that the package needs."""
    parts = name.split(".") if isinstance(name, str) else []
    good = [part.isidentifier() and not keyword.iskeyword(part) for part in parts]
    return 0 < len(parts) < 3 and all(good) and not any(part.startswith("_") for part in parts)


def collect(chapters: Path) -> dict[str, Module]:
    """Modules by name, checked against each other."""
    modules: dict[str, Module] = {}
    for chapter in sorted(chapters.glob("*.md")):
        for cell in export_cells(chapter):
            modules.setdefault(cell.module, Module(cell.module)).cells.append(cell)
    check_unique(modules)
    return modules


def check_unique(modules: dict[str, Module]) -> None:
    """Refuse a second definition of a name, in one module or (if public) in the package."""
    seen: dict[str, Cell] = {}
    for module in modules.values():
        if module.name.partition(".")[0] in set(modules) - {module.name}:
            raise ExtractionError(
                f"{module.cells[0]}: {module.name.partition('.')[0]!r} is a module and no folder"
            )
        for name, cell in module.definitions():
            own = name.startswith("_") or module.name in APART
            key = f"{module.name}.{name}" if own else name
            if key in seen:
                raise ExtractionError(f"{cell}: {name!r} is already defined in {seen[key]}")
            if name in modules and not own:
                raise ExtractionError(f"{cell}: {name!r} is the name of a module of the package")
            seen[key] = cell


INIT = '''"""{about}

Generated from the chapters by book/extract.py. Each name is imported from its module when it is
first used, so that importing the package stays quick; __init__.pyi says which there are.
"""

import lazy_loader

_names: dict[str, list[str]] = {{}}
with open(f"{{__file__.rpartition('.')[0]}}.pyi", encoding="utf-8") as _stub:
    for _line in _stub:  # as attach_stub, without `ast`, whose import would take the most time
        _, _module, _, _name, *_ = _line.split()  # from .module import name as name
        _names.setdefault(_module[1:], []).append(_name)
__getattr__, __dir__, _ = lazy_loader.attach(__name__, _names.pop(""), _names)
__all__ = sorted(name for names in _names.values() for name in names if name[0] != "_")
'''

# What `python -m build` wrote down is asked for only by who wants to know it.
VERSION_MODULE = '''"""The version that is installed."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("annotated-attention")
except PackageNotFoundError:  # used from the source tree without being installed
    __version__ = "0"
'''

MAIN = '''"""`python -m annotated`, the same as the command `annotated`."""

from annotated.cli import main

if __name__ == "__main__":
    main()
'''


def offered(chapters: Path, modules: dict[str, Module]) -> dict[str, list[str]]:
    """What the package offers: module to names. A book without a reference offers everything.

    Raises: ExtractionError for a name that no module defines.
    """
    homes = {n: m.name for m in modules.values() if m.name not in APART for n in m.public()}
    names, reference = list(homes), chapters / "api.md"
    if reference.exists():
        blocks = re.findall(r"^```{offered}.*\n([^`]*)^```$", reference.read_text("utf-8"), re.M)
        names = [name for block in blocks for name in block.split()]
    found: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        if name not in homes:
            raise ExtractionError(f"chapters/api.md: offers {name!r}, which no module defines")
        found[homes[name]].append(name)
    return found


def stub(modules: list[str], names: dict[str, list[str]]) -> str:
    """A package's `__init__.pyi`: its modules, and the names that it offers from them."""
    lines = [f"from . import {name} as {name}" for name in modules]
    lines += [f"from .{m} import {n} as {n}" for m in sorted(names) for n in names[m]]
    return "\n".join(lines) + "\n"


def package(chapters: Path) -> dict[str, str]:
    """Every file of the package: path in it to text."""
    modules = collect(chapters)
    texts = {module.path: module.text() for module in modules.values()}
    about = 'The Transformer of "Attention Is All You Need", section by section.'
    top = sorted({name.partition(".")[0] for name in modules})
    texts["__init__.py"] = INIT.format(about=about)
    texts["__init__.pyi"] = stub(top, {**offered(chapters, modules), VERSION: ["__version__"]})
    texts[f"{VERSION}.py"] = VERSION_MODULE
    for folder in sorted({name.partition(".")[0] for name in modules if "." in name}):
        parts = {
            name.partition(".")[2]: m
            for name, m in modules.items()
            if name.startswith(f"{folder}.")
        }
        about = " ".join(
            dict.fromkeys(title(c.chapter) + "." for m in parts.values() for c in m.cells)
        )
        texts[f"{folder}/__init__.py"] = INIT.format(about=about)
        texts[f"{folder}/__init__.pyi"] = stub(
            sorted(parts), {name: part.public() for name, part in parts.items()}
        )
    if "cli" in modules:
        texts["__main__.py"] = MAIN
    check_names(modules.values(), texts)
    return format_code(texts) | {"py.typed": ""}


def ruff(arguments: list[str], folder: Path) -> str:
    """Run ruff on a folder; its standard output."""
    command = [sys.executable, "-m", "ruff", *arguments, "--no-cache", str(folder)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8")
    if done.returncode not in (0, 1) or (done.returncode and not done.stdout):
        raise ExtractionError(f"ruff {' '.join(arguments)} failed: {done.stderr.strip()}")
    return done.stdout


@contextmanager
def laid_out(files: dict[str, str]) -> Iterator[Path]:
    """The files in a folder, for a while: ruff begins once for all of them."""
    with TemporaryDirectory() as place:
        folder = Path(place).resolve() / "annotated"
        write(files, folder)
        yield folder


def check_names(modules: Iterable[Module], texts: dict[str, str]) -> None:
    """Refuse names that are neither defined nor imported, naming the cell."""
    with laid_out({module.path: texts[module.path] for module in modules}) as folder:
        problems = json.loads(
            ruff(["check", "--select", "F821", "--output-format", "json", "--isolated"], folder)
        )
    of = {str(folder / module.path): module for module in modules}
    for problem in problems:
        module = of[problem["filename"]]
        where = module.origins.get(problem["location"]["row"], module.path)
        raise ExtractionError(
            f"{where}: {problem['message']}; define or import it in an export cell "
            f"of annotated/{module.path}"
        )


def format_code(texts: dict[str, str]) -> dict[str, str]:
    """Sort imports and `__all__`, then format."""
    rules = ["--config", str(ROOT / "pyproject.toml")]
    # Said outright, for ruff looks for a folder of that name, and there may be none yet.
    own = ["--config", 'lint.isort.known-first-party = ["annotated"]']
    with laid_out(texts) as folder:
        ruff(["check", "--select", "I,RUF022", "--fix", "-q", *rules, *own], folder)
        ruff(["format", "-q", *rules], folder)
        return {name: (folder / name).read_text(encoding="utf-8") for name in sorted(texts)}


def write(files: dict[str, str], folder: Path) -> list[str]:
    """Bring the folder to these files, each written whole or not at all; what changed."""
    changed = [name for name, text in files.items() if read(folder / name) != text]
    for name in changed:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        part = folder / f"{name}.part"  # not by `files.writing`, which is made here
        part.write_text(files[name], encoding="utf-8", newline="\n")
        os.replace(part, folder / name)
    for name in stale(files, folder):
        (folder / name).unlink()
        changed.append(name)
    return changed


def stale(files: dict[str, str], folder: Path) -> list[str]:
    """Python files in the folder that no chapter makes."""
    found = [path.relative_to(folder).as_posix() for path in folder.rglob("*.py*")]
    return sorted(name for name in found if name not in files and name.endswith((".py", ".pyi")))


def read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def differences(files: dict[str, str], folder: Path) -> str:
    """A unified diff from the folder to what the chapters say; empty if they agree."""
    parts = []
    for name in [*files, *stale(files, folder)]:
        old, new = read(folder / name), files.get(name)
        if old != new:
            diff = difflib.unified_diff(
                (old or "").split("\n"),
                (new or "").split("\n"),
                f"annotated/{name}" if old is not None else "(missing)",
                f"annotated/{name} from the chapters" if new is not None else "(no chapter)",
                lineterm="",
            )
            parts.append(
                "\n".join(diff)
                or f"annotated/{name} {'is missing' if old is None else 'has no chapter'}"
            )
    return "".join(f"{part}\n" for part in parts)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare only; fail on a difference")
    parser.add_argument("--chapters", type=Path, default=ROOT / "chapters", metavar="FOLDER")
    parser.add_argument("--package", type=Path, default=ROOT / "annotated", metavar="FOLDER")
    options = parser.parse_args(arguments)
    try:
        files = package(options.chapters)
    except ExtractionError as error:
        print(f"extraction refused: {error}", file=sys.stderr)
        return 2
    if options.check:
        diff = differences(files, options.package)
        if diff:
            print(diff, end="")
            print("The package differs from the chapters; run: make extract", file=sys.stderr)
        return 1 if diff else 0
    changed = write(files, options.package)
    print(f"annotated/: {len(files)} files, {len(changed)} changed: {', '.join(changed) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
