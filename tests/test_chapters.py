"""Every chapter runs from top to bottom, and keeps to the form that the book gives chapters."""

import ast
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import timezone
from itertools import pairwise
from pathlib import Path

import pytest
from contents import pages
from words import count

from annotated.model import check_config

jupytext = pytest.importorskip("jupytext", reason="needs the extra `test`")

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = pages()
WHOLE = "Abstract|Acknowledgements"
MARK = re.compile(rf"> \*\*(§[\d.]+ ¶\d+|{WHOLE}|Figure \d+|Table \d+|Footnote \d+)\*\*")


def path(name: str) -> Path:
    return ROOT / "chapters" / f"{name}.md"


def cells(name: str) -> list:
    return jupytext.read(path(name), fmt="md:myst").cells


def runs(name: str) -> bool:
    return path(name).exists() and "```{code-cell}" in path(name).read_text(encoding="utf-8")


NOTEBOOKS = [name for name in CHAPTERS if runs(name)]
SECTIONS = [name for name in NOTEBOOKS if re.match(r"\d", name)]


def test_the_table_of_contents_names_every_chapter_once():
    assert len(set(CHAPTERS)) == len(CHAPTERS)
    assert set(CHAPTERS) == {file.stem for file in (ROOT / "chapters").glob("*.md")}
    assert len(SECTIONS) > 10


# -------------------------------------------------------------------------------------- execution


def as_the_build_reads_it(name: str):
    """The notebook on which myst-nb computes the key of its cache: code and kernel alone count."""
    reader = pytest.importorskip("myst_nb.core.read", reason="needs the extra `book`")
    text = path(name).read_text(encoding="utf-8")
    return reader.read_myst_markdown_notebook(text, add_source_map=True, path=path(name))


def built(notebook) -> bool:
    """Whether the build ran this very code, on the package and the data as they are now.

    The build caches only what ran without an error. A key of its cache knows the code of the
    chapter alone, so a record older than a file that the code may use is not believed.
    """
    used = "annotated/**/*.py", "data/*.toml", "data/models/*/*", "data/results/*"
    newest = max(file.stat().st_mtime for pattern in used for file in ROOT.glob(pattern))
    return any(time > newest for time in executions(notebook))


def executions(notebook) -> Iterator[float]:
    """When the build ran this code, by each of its caches."""
    for database in (ROOT / "_build" / ".jupyter_cache").glob("**/global.db"):
        from jupyter_cache import get_cache

        with suppress(KeyError):
            created = get_cache(database.parent).match_cache_notebook(notebook).created
            yield created.replace(tzinfo=timezone.utc).timestamp()


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_chapter_runs(name: str, monkeypatch: pytest.MonkeyPatch):
    notebook = as_the_build_reads_it(name)
    if built(notebook):
        return
    nbclient = pytest.importorskip("nbclient", reason="needs the extra `test`")
    monkeypatch.setenv("IPYTHONDIR", str(ROOT / "book" / "ipython"))  # as the build
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    where = {"metadata": {"path": str(ROOT / "chapters")}}
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", resources=where).execute()


# ------------------------------------------------------------------------------------------- form


def code_lines(source: str) -> int:
    """Lines of code: neither blank, nor of a docstring, nor a comment alone."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node):
            text = node.body[0]
            for row in range(text.lineno - 1, text.end_lineno or text.lineno):
                lines[row] = ""
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in lines)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_cells_are_short(name: str):
    """One idea a cell; a class cannot be cut, and a folded cell is not in the reader's way."""
    for number, cell in enumerate(cells(name), start=1):
        if cell.cell_type == "code":
            folded = {"hide-input", "hide-cell"} & set(cell.metadata.get("tags", []))
            whole = [type(node) for node in ast.parse(cell.source).body].count(ast.ClassDef) == 1
            lines = code_lines(cell.source)
            limit = 50 if folded or whole else 35
            assert 0 < lines <= limit, f"cell {number} has {lines} lines of code:\n{cell.source}"


def test_a_notebooks_own_configuration_is_checked_too():
    """A dataclass only calls a __post_init__ that stands in its cell."""
    (source,) = (c.source for c in cells("3-assembly") if "class Transf" in c.source)
    scope = {"check_config": check_config}
    exec(source, scope)
    with pytest.raises(ValueError, match="expected a whole number for tgt_vocab; got 'x'"):
        scope["TransformerConfig"](5, "x")


@pytest.mark.parametrize("name", SECTIONS)
def test_the_file_name_is_the_number_of_the_section(name: str):
    number = re.match(r"(\d+(?:-\d+)*)-", name)[1].replace("-", ".")
    headings = re.findall(r"^(#+) (.+)$", prose(name), re.MULTILINE)
    assert headings[0][0] == "#" and headings[0][1].startswith(f"{number} ")
    assert [level for level, _ in headings].count("#") == 1
    depths = [len(level) for level, _ in headings]
    for one, two in pairwise(depths):
        assert two <= one + 1, "a level of headings is left out"
    for _, text in headings:  # numbers are the paper's, and of this section
        if re.match(r"\d+(\.\d+)* ", text):
            assert re.match(rf"{re.escape(number)}[ .]", text)


def prose(name: str) -> str:
    text = "\n\n".join(cell.source for cell in cells(name) if cell.cell_type == "markdown")
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def mark(call: str) -> str:
    """What a restatement begins with, for the call that shows the original."""
    found = re.fullmatch(r'quote\("([\w.-]+)"(?:, (\d+))?\)', call.strip())
    assert found, f"not a plain call of quote: {call}"
    address, paragraph = found.groups()
    if address in ("abstract", "acknowledgements"):
        return address.title()
    if paragraph:
        return f"§{address} ¶{paragraph}"
    kind, _, number = address.partition("-")
    return f"{kind.title()} {number}"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_each_restatement_stands_below_its_original(name: str):
    before, shown = None, []
    for cell in cells(name):
        if cell.cell_type == "code":
            assert before is None, f"nothing is said below {before}"
            if "paper" in cell.metadata.get("tags", []):
                before = mark(cell.source)
                shown.append(before)
            continue
        marks = MARK.findall(cell.source)
        if before is not None:
            assert cell.source.startswith(f"> **{before}**"), f"{before}: {cell.source[:60]}"
        assert marks == ([before] if before is not None else [])
        before = None
    assert before is None and len(set(shown)) == len(shown)
    if name in SECTIONS and name != "3-assembly":  # section 3 stands on its map
        assert shown


@pytest.mark.parametrize("name", SECTIONS)
def test_paragraphs_come_in_the_papers_order(name: str):
    marks = re.findall(r"^> \*\*§([\d.]+) ¶(\d+)\*\*", prose(name), re.MULTILINE)
    keys = [([int(part) for part in section.split(".")], int(n)) for section, n in marks]
    assert keys == sorted(keys)
    for section in {section for section, _ in marks}:
        numbers = [int(n) for other, n in marks if other == section]
        assert numbers == list(range(1, len(numbers) + 1)), f"§{section}: {numbers}"


@pytest.mark.paper
def test_every_paragraph_of_the_paper_is_shown_once():
    from annotated.machinery.paper.quotation import find_paper

    paper = find_paper()
    assert paper is not None
    asked = [
        mark(cell.source)
        for file in (ROOT / "chapters").glob("*.md")
        for cell in cells(file.stem)
        if cell.cell_type == "code" and "paper" in cell.metadata.get("tags", [])
    ]
    expected = []
    for part, paragraphs in paper.sections.items():
        call = 'quote("{}", {})' if part[0].isdigit() else 'quote("{}")'
        numbers = range(1, len(paragraphs) + 1)
        expected += [mark(call.format(part, number)) for number in numbers]
    assert sorted(asked) == sorted(expected)


@pytest.mark.parametrize("name", SECTIONS)
def test_a_chapter_ends_with_exercises_that_have_solutions(name: str):
    all_cells = cells(name)
    heads = [
        (number, line)
        for number, cell in enumerate(all_cells)
        if cell.cell_type == "markdown"
        for line in re.findall(r"^## (.+)$", cell.source, re.MULTILINE)
    ]
    start, last = heads[-1]
    assert last == "Exercises"
    after = all_cells[start:]
    tags = [set(c.metadata.get("tags", [])) for c in after if c.cell_type == "code"]
    assert all({"hide-cell", "solution"} <= each for each in tags)
    text = "\n".join(c.source for c in after if c.cell_type == "markdown")
    exercises = re.findall(r"^\*\*Exercise (\d+)\.\*\*", text, re.MULTILINE)
    assert exercises == [str(n) for n in range(1, len(exercises) + 1)] and len(exercises) >= 2
    answers = len(tags) + text.count("<details>")
    assert answers >= len(exercises) and text.count("<details>") == text.count("</details>")


def test_words_of_prose_are_neither_code_nor_the_paper_layer() -> None:
    text = """---
kernelspec: python3
---
# Three words here

Five words and $d_k$ counts, [a link](far-away.md) two.

> **§1 ¶1** The paper's paragraph.

```{code-cell} ipython3
not_a_word = 1
```

$$
x = 1
$$
"""
    assert count(text) == 3 + 8
