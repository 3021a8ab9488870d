"""Write notebooks for a class: exercises without solutions, with the checks of what students write.

python book/class_notebooks.py
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import jupytext
from contents import ROOT, pages, sources
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell
from notebooks import TURN, remote, write_notebooks
from rail import minutes

FOLDER = ROOT / "_build" / "class"
WORDS = re.compile(r"^<details>\s*<summary>Solution</summary>.*?^</details>$", re.DOTALL | re.M)
EXERCISE = re.compile(r"^\*\*Exercise \d+\.\*\*", re.M)

OVERVIEW = """\
# Notebooks for a class

Solutions are replaced by empty cells. *Reading* is in minutes, at 200 words a minute, without code
and charts. *To write* counts exercises and parts of the translator, and *checked* those whose code
a cell checks.

| notebook | reading | to write | checked |
|---|---|---|---|
"""


def main() -> None:
    write_notebooks(ROOT, FOLDER, remote(), for_class)
    rows = overview()
    (FOLDER / "README.md").write_text(OVERVIEW + "".join(rows), encoding="utf-8")
    print(f"{len(rows)} notebooks without solutions, and README.md, which lists them: {FOLDER}")


def overview() -> list[str]:
    """A row of a table for each notebook, in the order of the book."""
    rows = []
    for page in pages():
        path = sources()[page]
        cells = jupytext.read(path, fmt="md:myst").cells
        if not any(map(is_work, cells)):
            continue
        text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
        title = re.findall(r"^# (.+)$", text, re.M)[0]
        turns = len(TURN.findall(text))
        written = turns + len(EXERCISE.findall(text))
        checked = turns + sum("check" in tags(cell) for cell in cells)
        link = f"[{title}]({path.stem}.ipynb)"
        rows.append(f"| {link} | {minutes(page)} | {written} | {checked} |\n")
    return rows


def for_class(notebooks: dict[Path, NotebookNode]) -> dict[Path, NotebookNode]:
    """The chapters with exercises or parts to write, with empty cells in place of solutions."""
    chosen = {path: n for path, n in notebooks.items() if any(map(is_work, n.cells))}
    for notebook in chosen.values():
        notebook.cells = [*without_solutions(notebook.cells)]
    return chosen


def is_work(cell: NotebookNode) -> bool:
    """Whether a cell has a solution, or a part to write."""
    return "solution" in tags(cell) or bool(WORDS.search(cell.source) or TURN.search(cell.source))


def without_solutions(cells: list[NotebookNode]) -> Iterator[NotebookNode]:
    """The cells, with a cell to write in for each solution in code or words."""
    for cell, checks in with_checks(cells):
        if cell.cell_type == "markdown":
            for i, text in enumerate(WORDS.split(cell.source)):
                if i:
                    yield new_markdown_cell("*Your answer:*")
                if text.strip():
                    yield new_markdown_cell(text.strip(), metadata=cell.metadata)
        elif "solution" in tags(cell):
            parts = [skeleton(node) for node in asked(cell.source, checks)]
            yield new_code_cell("\n\n\n".join(parts) or "# Your code")
        else:
            yield cell


def tags(cell: NotebookNode) -> list[str]:
    return cell.metadata.get("tags", [])


def with_checks(cells: list[NotebookNode]) -> Iterator[tuple[NotebookNode, str]]:
    """Each cell, and for a solution the code of its check, which may follow after some words."""
    for i, cell in enumerate(cells):
        following = next((each for each in cells[i + 1 :] if each.cell_type == "code"), None)
        checked = following is not None and "check" in tags(following)
        yield cell, following.source if checked and "solution" in tags(cell) else ""


def asked(solution: str, check: str) -> list[ast.FunctionDef | ast.ClassDef]:
    """The functions and classes of a solution that its check calls."""
    called = {node.id for node in ast.walk(ast.parse(check)) if isinstance(node, ast.Name)}
    defined = [
        node
        for node in ast.parse(solution).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    ]
    return [node for node in defined if node.name in called]


def skeleton(node: ast.FunctionDef | ast.ClassDef) -> str:
    """A definition with its signatures and docstrings, and `...` in place of code."""
    for function in [each for each in ast.walk(node) if isinstance(each, ast.FunctionDef)]:
        kept = [each for each in function.body[:1] if is_kept(each)]
        function.body = [*kept, ast.Expr(ast.Constant(...))]
    return ast.unparse(node)


def is_kept(statement: ast.stmt) -> bool:
    """Whether a statement is a docstring, or calls the constructor of a module."""
    text = ast.unparse(statement)
    return text == "super().__init__()" or isinstance(
        getattr(getattr(statement, "value", None), "value", None), str
    )


if __name__ == "__main__":
    main()
