"""Make the package `annotated/` from the export cells of the chapters.

A code cell with the metadata `export: NAME` belongs to `annotated/NAME.py`. The cells of a module
are joined in the order of the chapters, with their imports gathered at the top, and the whole is
formatted by ruff. `__init__.py` and its stub `__init__.pyi` offer the names that the chapter
`api.md` lists, those of the hand-written `annotated/machinery/` included. Only files that carry the
mark of extraction are ever overwritten or deleted.

    python book/extract.py            write the package
    python book/extract.py --check    write nothing; fail with a diff if the package differs
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import keyword
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import jupytext

ROOT = Path(__file__).resolve().parent.parent


MARK = "Generated from the chapters by book/extract.py"  # in all that extraction writes


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
        """The module's file, relative to the package."""
        return f"{self.name}.py"

    def definitions(self) -> Iterator[tuple[str, Cell]]:
        """Every name that a cell defines at top level."""
        for cell in self.cells:
            for node in cell.tree().body:
                for name in defined_names(node):
                    yield name, cell

    def public(self) -> list[str]:
        return sorted({name for name, _ in self.definitions() if not name.startswith("_")})

    def header(self) -> str:
        chapters = {cell.chapter: title(cell.chapter) for cell in self.cells}
        lines = [f"{name} (chapters/{path.name})." for path, name in chapters.items()]
        return '"""' + "\n".join([*lines, "", f"{MARK}; edit the chapter instead."]) + '\n"""'

    def text(self) -> str:
        """The module before formatting; `origins` says which cell a line of it is from."""
        imports: list[str] = []
        body: list[tuple[str, Cell]] = []
        for cell in self.cells:
            kept, cell_imports = split_imports(cell)
            imports += [line for line in cell_imports if line not in imports]
            body += [(line, cell) for line in [*kept, ""]]
        top = [self.header(), *imports, f"__all__ = {json.dumps(self.public())}"]
        offset = sum(part.count("\n") + 1 for part in top)
        self.origins = dict(enumerate((cell for _, cell in body), start=offset + 1))
        return "\n".join([*top, *(line for line, _ in body)]) + "\n"


def defined_names(node: ast.stmt) -> list[str]:
    """Names that a top-level statement defines; imports and bare expressions define none."""
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
            imports.append("\n".join(lines[row] for row in span))
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
    """Whether `from annotated.NAME import …` is valid Python and NAME is not reserved."""
    return (
        isinstance(name, str)
        and name.isidentifier()
        and not keyword.iskeyword(name)
        and not name.startswith("_")
        and name != "machinery"
    )


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
        for name, cell in module.definitions():
            key = f"{module.name}.{name}" if name.startswith("_") else name
            if key in seen:
                raise ExtractionError(f"{cell}: {name!r} is already defined in {seen[key]}")
            if name in modules:
                raise ExtractionError(f"{cell}: {name!r} is the name of a module of the package")
            seen[key] = cell


INIT = '''"""The Transformer of "Attention Is All You Need", section by section.

{mark}: `chapters/api.md` lists the names.
Each is imported from its module on first use, so that importing the package takes milliseconds.
"""

import lazy_loader

_OFFERED = {names}
__getattr__, *_ = lazy_loader.attach(__name__, {modules}, _OFFERED)
__all__ = sorted(name for names in _OFFERED.values() for name in names if name[0] != "_")


def __dir__() -> list[str]:
    """The names that the package offers; its modules are attributes too."""
    return __all__
'''


def written_by_hand(package: Path) -> dict[str, list[str]]:
    """Public names by module of `annotated/machinery/` (`machinery.files` and so on)."""
    found = {}
    for path in sorted((package / "machinery").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = [name for node in tree.body for name in defined_names(node)]
        module = path.relative_to(package).with_suffix("").as_posix().replace("/", ".")
        found[module] = [name for name in names if not name.startswith("_")]
    return found


def offered(chapters: Path, modules: dict[str, list[str]]) -> dict[str, list[str]]:
    """Names that the package offers, by module. A book without a reference offers everything.

    Raises: ExtractionError for a name that no module defines.
    """
    homes = {name: module for module in reversed(modules) for name in modules[module]}
    names, reference = list(homes), chapters / "api.md"
    if reference.exists():
        blocks = re.findall(r"^```{offered}.*\n([^`]*)^```$", reference.read_text("utf-8"), re.M)
        names = [name for block in blocks for name in block.split()]
    found: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        if name not in homes:
            raise ExtractionError(f"chapters/api.md: offers {name!r}, which no module defines")
        found[homes[name]].append(name)
    return {"_version": ["__version__"], **found}


def package(chapters: Path, folder: Path) -> dict[str, str]:
    """Every generated file of the package in `folder`: path in it to text."""
    modules = collect(chapters)
    texts = {module.path: module.text() for module in modules.values()}
    check_names(modules.values(), texts)
    public = {name: module.public() for name, module in modules.items()}
    names = offered(chapters, public | written_by_hand(folder))
    top = [*sorted(modules), *(name for name in ("compat", "machinery") if exists(folder, name))]
    texts["__init__.py"] = INIT.format(mark=MARK, names=dict(sorted(names.items())), modules=top)
    lines = [f"from . import {name} as {name}" for name in top]
    lines += [f"from .{m} import {n} as {n}" for m in sorted(names) for n in names[m]]
    texts["__init__.pyi"] = "\n".join([f"# {MARK}.", *lines]) + "\n"
    return format_code(texts)


def exists(folder: Path, module: str) -> bool:
    return (folder / module).is_dir() or (folder / f"{module}.py").exists()


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
    """Make the generated files of the folder these, each written atomically; what changed.

    Raises: ExtractionError for a file that exists and does not carry the mark.
    """
    changed = [name for name, text in files.items() if read(folder / name) != text]
    for name in changed:
        if (old := read(folder / name)) is not None and MARK not in old:
            raise ExtractionError(f"{folder / name}: not overwritten, as it was written by hand")
    for name in changed:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        part = folder / f"{name}.part"
        part.write_text(files[name], encoding="utf-8", newline="\n")
        os.replace(part, folder / name)
    for name in stale(files, folder):
        (folder / name).unlink()
        changed.append(name)
    return changed


def stale(files: dict[str, str], folder: Path) -> list[str]:
    """Files in the folder that carry the mark and that no chapter makes any more."""
    found = {path.name: read(path) or "" for path in folder.glob("*.py*") if path.is_file()}
    return sorted(name for name, text in found.items() if name not in files and MARK in text)


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
        files = package(options.chapters, options.package)
        if options.check:
            diff = differences(files, options.package)
            if diff:
                print(diff, end="")
                print("The package differs from the chapters; run: make extract", file=sys.stderr)
            return 1 if diff else 0
        changed = write(files, options.package)
    except ExtractionError as error:
        print(f"extraction refused: {error}", file=sys.stderr)
        return 2
    print(f"annotated/: {len(files)} files, {len(changed)} changed: {', '.join(changed) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
