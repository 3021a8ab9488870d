"""Every chapter runs from top to bottom, and keeps to the form that the book gives chapters."""

import os
import re
from contextlib import suppress
from datetime import timezone

import pytest
from contents import ROOT, helpers, pages, sources

jupytext = pytest.importorskip("jupytext", reason="needs the extra `test`")
PATHS = sources()
TEXTS = {page: path.read_text(encoding="utf-8") for page, path in PATHS.items()}
NOTEBOOKS = [page for page in pages() if "```{code-cell}" in TEXTS.get(page, "")]
SECTIONS = [page for page in NOTEBOOKS if re.match(r"\d", page)]
MARK = re.compile(
    r"> \*\*(§[\d.]+ ¶\d+|Abstract|Acknowledgements|Figure \d+|Table \d+|Footnote \d+)\*\*"
)


def cells(page: str) -> list:
    return jupytext.read(PATHS[page], fmt="md:myst").cells


def test_the_contents_name_every_page_once():
    assert sorted(pages()) == sorted(PATHS)


def as_the_build_reads_it(page: str):
    """The notebook on which myst-nb computes the key of its cache: code and kernel alone count."""
    reader = pytest.importorskip("myst_nb.core.read", reason="needs the extra `book`")
    return reader.read_myst_markdown_notebook(TEXTS[page], add_source_map=True, path=PATHS[page])


def built(notebook) -> bool:
    """Whether the build ran this very code, on the package and the data as they are now.

    The build caches only what ran without an error. A key of its cache knows the code of the
    chapter alone, so a record older than a file that the code may use is not trusted.
    """
    used = "annotated/**/*.py", "data/*.toml", "data/models/*/*", "data/results/*"
    files = [file for pattern in used for file in ROOT.glob(pattern)]
    files += helpers("\n".join(cell.source for cell in notebook.cells)).values()
    newest = max(file.stat().st_mtime for file in files)
    for database in (ROOT / "_build" / ".jupyter_cache").glob("**/global.db"):
        from jupyter_cache import get_cache

        with suppress(KeyError):
            created = get_cache(database.parent).match_cache_notebook(notebook).created
            if created.replace(tzinfo=timezone.utc).timestamp() > newest:
                return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("page", NOTEBOOKS)
def test_a_chapter_runs(page: str, monkeypatch: pytest.MonkeyPatch):
    notebook = as_the_build_reads_it(page)
    if built(notebook):
        return
    nbclient = pytest.importorskip("nbclient", reason="needs the extra `test`")
    monkeypatch.setenv("IPYTHONDIR", str(ROOT / "book" / "ipython"))  # as the build
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    where = {"metadata": {"path": str(PATHS[page].parent)}}
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", resources=where).execute()


@pytest.mark.parametrize("page", SECTIONS)
def test_headings_carry_the_number_of_the_section_and_every_exercise_has_a_solution(page: str):
    number = re.match(r"(\d+(?:-\d+)*)-", page)[1].replace("-", ".")
    headings = re.findall(r"^(#+) (.+)$", prose(page), re.MULTILINE)
    assert headings[0][0] == "#" and headings[0][1].startswith(f"{number} ")
    for _, text in headings:  # numbers are the paper's, and of this section
        assert not re.match(r"\d+(\.\d+)* ", text) or re.match(rf"{re.escape(number)}[ .]", text)
    text = re.split(r"^##+ Exercises$", TEXTS[page], flags=re.MULTILINE)[-1]
    exercises = re.findall(r"^\*\*Exercise (\d+)\.\*\*", text, re.MULTILINE)
    assert exercises == [str(n) for n in range(1, len(exercises) + 1)] and exercises
    solutions = text.count(":tags: [hide-cell, solution]") + text.count("<details>")
    assert solutions >= len(exercises) and text.count("<details>") == text.count("</details>")


def prose(page: str) -> str:
    text = "\n\n".join(cell.source for cell in cells(page) if cell.cell_type == "markdown")
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


@pytest.mark.parametrize("page", NOTEBOOKS)
def test_each_restatement_stands_below_its_original(page: str):
    before, shown = None, []
    for cell in cells(page):
        if cell.cell_type == "code":
            assert before is None, f"nothing is said below {before}"
            if "paper" in cell.metadata.get("tags", []):
                before = mark(cell.source)
                shown.append(before)
            continue
        assert MARK.findall(cell.source) == ([before] if before is not None else [])
        assert before is None or cell.source.startswith(f"> **{before}**")
        before = None
    assert before is None and len(set(shown)) == len(shown)


@pytest.mark.parametrize("page", SECTIONS)
def test_paragraphs_come_in_the_papers_order(page: str):
    marks = re.findall(r"^> \*\*§([\d.]+) ¶(\d+)\*\*", prose(page), re.MULTILINE)
    keys = [([int(part) for part in section.split(".")], int(n)) for section, n in marks]
    assert keys == sorted(keys)
    for section in {section for section, _ in marks}:
        numbers = [int(n) for other, n in marks if other == section]
        assert numbers == list(range(1, len(numbers) + 1)), f"§{section}: {numbers}"


@pytest.mark.paper
def test_every_paragraph_of_the_paper_is_shown_once():
    from annotated.machinery.paper.quotation import find_paper

    asked = [
        mark(cell.source)
        for page in PATHS
        for cell in cells(page)
        if cell.cell_type == "code" and "paper" in cell.metadata.get("tags", [])
    ]
    expected = []
    for part, paragraphs in find_paper().items():
        call = 'quote("{}", {})' if part[0].isdigit() else 'quote("{}")'
        expected += [mark(call.format(part, n)) for n in range(1, len(paragraphs) + 1)]
    assert sorted(asked) == sorted(expected)
