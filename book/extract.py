"""Generate the package `annotated/` from the export cells of the chapters.

A code cell with the metadata `export: NAME` belongs to `annotated/NAME.py`. The cells of a module
are joined in the order of the chapters, with their imports collected at the top, and the result is
formatted by ruff. `__init__.py` and its stub `__init__.pyi` offer the names that the chapter
`api.md` lists, including names from the hand-written `annotated/machinery/`. Only files with the
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
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import jupytext
from contents import ROOT, sources

MARK = "Generated from the chapters by book/extract.py"  # in every file that extraction writes


class ExtractionError(Exception):
    """A chapter that cannot become a module."""


@dataclass(frozen=True)
class Cell:
    """An export cell: its chapter, its number there, its module and its code."""

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
            told = f"{error.msg}, line {error.lineno} of the cell: {(error.text or '').strip()}"
            raise ExtractionError(f"{self}: does not parse: {told}") from None


@dataclass
class Module:
    """A module under construction: its cells, and the text generated from them."""

    name: str
    cells: list[Cell] = field(default_factory=list)
    origins: dict[int, Cell] = field(default_factory=dict)  # by line of `text`, from 1

    def definitions(self) -> Iterator[tuple[str, Cell]]:
        """Every name that a cell defines at top level, with the cell."""
        for cell in self.cells:
            for node in cell.tree().body:
                for name in defined_names(node):
                    yield name, cell

    def public(self) -> list[str]:
        return sorted(name for name, _ in self.definitions() if not name.startswith("_"))

    def header(self) -> str:
        chapters = {cell.chapter: title(cell.chapter) for cell in self.cells}
        lines = [f"{name} (chapters/{path.name})." for path, name in chapters.items()]
        return '"""' + "\n".join([*lines, "", f"{MARK}; edit the chapter instead."]) + '\n"""'

    def text(self) -> str:
        """The module before formatting; sets `origins`, the cell of each line."""
        imports: list[str] = []
        body: list[tuple[str, Cell]] = []
        for cell in self.cells:
            kept, cell_imports = split_imports(cell)
            imports += [line for line in cell_imports if line not in imports]
            body += [(line, cell) for line in [*kept, ""]]
        top = [self.header(), *imports]
        first = sum(part.count("\n") + 1 for part in top) + 1
        self.origins = dict(enumerate((cell for _, cell in body), start=first))
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
    """The lines of a cell without its top-level imports, and the imports with their comments."""
    lines = cell.source.split("\n")
    body = cell.tree().body
    spans = [range(node.lineno - 1, node.end_lineno or node.lineno) for node in body]
    used = Counter(row for span in spans for row in span)
    imports = []
    for node, span in zip(body, spans, strict=True):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            if any(used[row] > 1 for row in span):
                line = lines[span.start].strip()
                raise ExtractionError(f"{cell}: put each import on a separate line: {line}")
            imports.append("\n".join(lines[row] for row in span))
            lines = ["" if row in span else line for row, line in enumerate(lines)]
    return lines, imports


def title(chapter: Path) -> str:
    """The first heading of a chapter."""
    for line in chapter.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            return line[2:].strip().replace("&NoBreak;", "")  # for browsers alone
    raise ExtractionError(f"chapters/{chapter.name}: has no title (a line that begins with '# ')")


def export_cells(chapter: Path) -> Iterator[Cell]:
    """The export cells of a chapter, in order."""
    notebook = jupytext.read(chapter, fmt="md:myst")
    for number, cell in enumerate(notebook.cells, start=1):
        module = cell.metadata.get("export")
        if cell.cell_type == "code" and module is not None:
            found = Cell(chapter, number, module, cell.source)
            if not is_module_name(module):
                raise ExtractionError(f"{found}: export does not name a module: {module!r}")
            yield found


def is_module_name(name: object) -> bool:
    """Whether `from annotated.NAME import …` is valid Python and NAME is not reserved."""
    valid = isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)
    return valid and not name.startswith("_") and name != "machinery"


def collect(chapters: Path) -> dict[str, Module]:
    """Modules by name.

    Raises: ExtractionError for a second definition of a name, in its module or (if the name is
    public) in the package.
    """
    modules: dict[str, Module] = {}
    for chapter in sources(chapters).values():
        for cell in export_cells(chapter):
            modules.setdefault(cell.module, Module(cell.module)).cells.append(cell)
    seen: dict[str, Cell] = {}
    for module in modules.values():
        for name, cell in module.definitions():
            key = f"{module.name}.{name}" if name.startswith("_") else name
            if key in seen:
                raise ExtractionError(f"{cell}: {name!r} is already defined in {seen[key]}")
            if name in modules:
                raise ExtractionError(f"{cell}: {name!r} is the name of a module of the package")
            seen[key] = cell
    return modules


INIT = '''"""The Transformer of "Attention Is All You Need", section by section.

{mark}: `chapters/api.md` lists the names.
Each is imported from its module on first use, so that importing the package takes milliseconds.
"""

import lazy_loader

_NAMES = {names}
_OFFERED = {{module: names.split() for module, names in _NAMES.items()}}
_MODULES = """
{modules}
"""
__getattr__, *_ = lazy_loader.attach(__name__, _MODULES.split(), _OFFERED)
__all__ = sorted(name for names in _OFFERED.values() for name in names if name[0] != "_")


def __dir__() -> list[str]:
    """The names that the package offers; its modules are attributes too."""
    return __all__
'''


def homes(package: Path, modules: dict[str, Module]) -> dict[str, str]:
    """Public names, and the module of `package` that defines each (`data`, `machinery.files`).

    A name that an export cell defines is the chapter's, even if the machinery has one like it.
    """
    found = {}
    for path in sorted([*package.glob("compat.py"), *(package / "machinery").rglob("*.py")]):
        module = path.relative_to(package).with_suffix("").as_posix().replace("/", ".")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found |= {name: module for node in tree.body for name in defined_names(node)}
    return found | {name: module.name for module in modules.values() for name in module.public()}


def offered(chapters: Path, homes: dict[str, str]) -> dict[str, list[str]]:
    """Names that `from annotated import …` offers, by module: those that `api.md` lists.

    Raises: ExtractionError for a name that no module defines.
    """
    reference = (chapters / "api.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```{offered}.*\n([^`]*)^```$", reference, re.MULTILINE)
    found = {"_version": ["__version__"]}
    for name in sorted(" ".join(blocks).split()):
        if name not in homes:
            raise ExtractionError(f"chapters/api.md: offers {name!r}, which no module defines")
        found.setdefault(homes[name], []).append(name)
    return dict(sorted(found.items()))


def package(chapters: Path, folder: Path) -> dict[str, str]:
    """Every generated file of the package in `folder`, as file name to text."""
    modules = collect(chapters)
    texts = {f"{module.name}.py": module.text() for module in modules.values()}
    names = offered(chapters, homes(folder, modules))
    by_hand = [name for name in ("by_hand", "compat", "machinery") if [*folder.glob(f"{name}*")]]
    top = [*sorted(modules), *by_hand]
    listed = {module: " ".join(found) for module, found in names.items()}
    modules_text = textwrap.fill(" ".join(top), 100)
    texts["__init__.py"] = INIT.format(mark=MARK, names=listed, modules=modules_text)
    lines = [f"from . import {name} as {name}" for name in top]
    lines += [f"from .{m} import {n} as {n}" for m in names for n in names[m]]
    texts["__init__.pyi"] = "\n".join([f"# {MARK}.", *lines]) + "\n"
    with TemporaryDirectory() as place:  # one call to ruff processes all files
        made = Path(place).resolve()
        for name, text in texts.items():
            (made / name).write_text(text, encoding="utf-8", newline="\n")
        check_names(modules, made)
        rules = ["--config", str(ROOT / "pyproject.toml")]
        ruff(["check", "--select", "I", "--fix", "-q", *rules], made)
        ruff(["format", "-q", *rules], made)
        return {name: (made / name).read_text(encoding="utf-8") for name in sorted(texts)}


def ruff(arguments: list[str], folder: Path) -> str:
    """Run ruff on a folder and return its standard output."""
    command = [sys.executable, "-m", "ruff", *arguments, "--no-cache", str(folder)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8")
    if done.returncode not in (0, 1) or (done.returncode and not done.stdout):
        raise ExtractionError(f"ruff {' '.join(arguments)} failed: {done.stderr.strip()}")
    return done.stdout


def check_names(modules: dict[str, Module], folder: Path) -> None:
    """Reject names that are neither defined nor imported; the error names the cell."""
    found = ruff(["check", "--select", "F821", "--output-format", "json", "--isolated"], folder)
    for problem in json.loads(found):
        module = modules[Path(problem["filename"]).stem]
        where = module.origins.get(problem["location"]["row"], f"{module.name}.py")
        told = f"define or import it in an export cell of annotated/{module.name}.py"
        raise ExtractionError(f"{where}: {problem['message']}; {told}")


def read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def differences(files: dict[str, str], folder: Path) -> dict[str, tuple[str | None, str | None]]:
    """File name to its text in the folder and its text from the chapters, where these differ.

    For a file with the mark that no chapter generates anymore, the second text is None.
    """
    made = [path.name for path in folder.glob("*.py*") if MARK in (read(path) or "")]
    texts = {name: (read(folder / name), files.get(name)) for name in sorted({*files, *made})}
    return {name: (old, new) for name, (old, new) in texts.items() if old != new}


def write(files: dict[str, str], folder: Path) -> list[str]:
    """Update the generated files of the folder, each atomically; return those that changed.

    Raises: ExtractionError for an existing file without the mark.
    """
    changed = differences(files, folder)
    for name, (old, _) in changed.items():
        if old is not None and MARK not in old:
            told = "not overwritten, because it was written by hand"
            raise ExtractionError(f"{folder / name}: {told}")
    folder.mkdir(parents=True, exist_ok=True)
    for name, (_, new) in changed.items():
        if new is None:
            (folder / name).unlink()
            continue
        part = folder / f"{name}.part"
        part.write_text(new, encoding="utf-8", newline="\n")
        os.replace(part, folder / name)
    return list(changed)


def diff(name: str, old: str | None, new: str | None) -> str:
    """Difference from the file in the package to the file from the chapters."""
    before = f"annotated/{name}" if old is not None else "(missing)"
    after = f"annotated/{name} from the chapters" if new is not None else "(no chapter)"
    lines = [(text or "").split("\n") for text in (old, new)]
    return "\n".join(difflib.unified_diff(*lines, before, after, lineterm=""))


def main(arguments: list[str] | None = None) -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--check", action="store_true", help="compare only; fail on a difference")
    parser.add_argument("--chapters", type=Path, default=ROOT / "chapters", metavar="FOLDER")
    parser.add_argument("--package", type=Path, default=ROOT / "annotated", metavar="FOLDER")
    options = parser.parse_args(arguments)
    try:
        files = package(options.chapters, options.package)
        if options.check:
            changed = differences(files, options.package)
            for name, texts in changed.items():
                print(diff(name, *texts))
            if changed:
                print("The package differs from the chapters; run: make extract", file=sys.stderr)
            return int(bool(changed))
        changed = write(files, options.package)
    except ExtractionError as error:
        print(f"extraction failed: {error}", file=sys.stderr)
        return 2
    print(f"annotated/: {len(files)} files, {len(changed)} changed: {', '.join(changed) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
