"""book/execution.py: chapters run side by side, each once, and a failure comes to light."""

import os
from copy import deepcopy
from pathlib import Path

import pytest

pytest.importorskip("myst_nb", reason="needs the extra `book`")

import execution
import small_books
from execution import execute_chapters, take_over
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from nbformat.v4 import new_code_cell, new_notebook, new_output

from annotated.machinery.paper.quotation import Quotation

PAIRS = ("first", "second"), ("second", "first")
MEET = """import time
from pathlib import Path
with Path("{name}.txt").open("a") as file:
    file.write("ran\\n")
for _ in range(600):
    if Path("{other}.txt").exists():
        break
    time.sleep(0.1)
else:
    raise TimeoutError("{other} does not come")
print("{name} met", "{other}")"""


@pytest.mark.slow
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core runs one chapter at a time")
def test_chapters_run_side_by_side_and_once(tmp_path: Path) -> None:
    """Each of two waits for the other, so that neither could end alone."""
    (tmp_path / "index.md").write_text("# The book\n", encoding="utf-8")
    for name, other in PAIRS:
        text = small_books.notebook(MEET.format(name=name, other=other))
        (tmp_path / f"{name}.md").write_text(text, encoding="utf-8")
    execute = lambda app: app.connect("env-before-read-docs", execute_chapters)
    assert small_books.build(tmp_path, execute, nb_execution_mode="cache") == ""
    for name, other in PAIRS:
        assert f"{name} met {other}" in (tmp_path / "out" / f"{name}.html").read_text()
        assert (tmp_path / f"{name}.txt").read_text() == "ran\n"


def kept(folder: Path, code: str) -> list[list[str]]:
    """What a chapter shows whose results lie in a cache with other settings."""
    quotes = new_code_cell("quote('2', 1)", metadata={"tags": ["paper"]})
    chapter = new_notebook(cells=[quotes, new_code_cell(code)])
    done = deepcopy(chapter)
    done.cells[1].outputs = [new_output("stream", name="stdout", text="computed")]
    before, now = get_cache(folder / "before"), get_cache(folder / "now")
    before.cache_notebook_bundle(CacheBundleIn(done, "chapter.md"), check_validity=False)
    take_over(now, chapter, "chapter.md")
    _, found = now.merge_match_into_notebook(chapter)
    return [[str(output) for output in cell.outputs] for cell in found.cells]


def test_a_chapter_that_asks_nothing_of_the_reader_keeps_its_results(tmp_path, monkeypatch) -> None:
    quotation = Quotation("Words of the paper.", "section 2")
    monkeypatch.setattr(execution, "quote", lambda section, number: quotation)
    words, result = kept(tmp_path, "print('computed')")
    assert "Words of the paper." in words[0]
    assert "computed" in result[0]


def test_a_chapter_that_asks_the_reader_is_executed_anew(tmp_path: Path) -> None:
    registry = "from annotated.machinery.corpora.registry import find_corpus"
    for code in registry, "import os; os.environ['ANNOTATED_DATA']":
        with pytest.raises(KeyError):
            kept(tmp_path / code[:3], code)
