"""Lint and format the code cells of the chapters, with the rules of pyproject.toml.

    python book/lint.py            write nothing; fail if ruff has something to say
    python book/lint.py --write    format the cells, and correct what ruff can correct

Ruff gets each chapter as a notebook, because it knows that an expression at the end of a cell is
shown, and that a cell may use the names of the cells above it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from contents import CHAPTERS, ROOT, sources
from extract import ExtractionError, ruff

CELL = re.compile(
    r"(^```\{code-cell\}[^\n]*\n(?:^:[\w-]+:[^\n]*\n)*)(.*?)(^```+$)", re.DOTALL | re.MULTILINE
)
RULES = ["--config", str(ROOT / "pyproject.toml")]


def notebook(text: str) -> str:
    """The code cells of a chapter as the JSON of a notebook."""
    bare = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    cells = [{**bare, "source": cell[2].rstrip("\n")} for cell in CELL.finditer(text)]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4})


def with_cells(text: str, notebook: str) -> str:
    """The chapter with the cells of a notebook in place of its own."""
    codes = iter("".join(cell["source"]) for cell in json.loads(notebook)["cells"])
    return CELL.sub(lambda cell: f"{cell[1]}{next(codes)}\n{cell[3]}", text)


def formatted(texts: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """Chapters, by name, with formatted cells; and problems that ruff could not correct."""
    with TemporaryDirectory() as place:
        folder = Path(place).resolve()
        files = {name: folder / f"{number}.ipynb" for number, name in enumerate(texts)}
        for name, text in texts.items():
            files[name].write_text(notebook(text), encoding="utf-8")
        ruff(["check", "--fix", "--unfixable", "F401", "--exit-zero", *RULES], folder)
        with suppress(ExtractionError):  # a cell that does not parse, which is reported below
            ruff(["format", *RULES], folder)
        found = json.loads(ruff(["check", "--output-format", "json", *RULES], folder))
        made = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    written = {name: with_cells(texts[name], notebook) for name, notebook in made.items()}
    names = {str(path): name for name, path in files.items()}
    return written, [located(problem, names[problem["filename"]], written) for problem in found]


def located(problem: dict, name: str, texts: dict[str, str]) -> str:
    """A problem with its line in the chapter."""
    cell = list(CELL.finditer(texts[name]))[problem["cell"] - 1]
    line = texts[name].count("\n", 0, cell.start(2)) + problem["location"]["row"]
    return f"chapters/{name}.md:{line}: {problem['code']} {problem['message']}"


def main(arguments: list[str] | None = None) -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--write", action="store_true", help="change the chapters")
    parser.add_argument("--chapters", type=Path, default=CHAPTERS, metavar="FOLDER")
    options = parser.parse_args(arguments)
    paths = sources(options.chapters)
    texts = {page: path.read_text(encoding="utf-8") for page, path in paths.items()}
    written, problems = formatted(texts)
    changed = [page for page, text in texts.items() if written[page] != text]
    if options.write:
        for page in changed:
            paths[page].write_text(written[page], encoding="utf-8", newline="\n")
        print(f"chapters/: {len(changed)} formatted: {', '.join(changed) or 'none'}")
    elif changed:
        problems += [f"chapters/{page}.md: not formatted; run: make format" for page in changed]
    print("\n".join(problems), end="\n" * bool(problems))
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
