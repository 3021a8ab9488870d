"""book/execution.py: chapters run side by side, each once, and a failure comes to light."""

import io
import os
from pathlib import Path

import pytest

pytest.importorskip("myst_nb", reason="needs the extra `book`")

from execution import execute_chapters
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils

NOTEBOOK = """---
file_format: mystnb
kernelspec:
  name: python3
---

# {name}

```{{code-cell}} ipython3
{code}
```
"""
PROSE = """# The book

```{toctree}
first
second
```
"""
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
FAIL = "raise ValueError('this chapter is broken')"


def build(folder: Path, codes: dict[str, str]) -> str:
    """A book of two notebooks and a page of prose; the warnings of its build."""
    (folder / "index.md").write_text(PROSE, encoding="utf-8")
    for name, other in ("first", "second"), ("second", "first"):
        code = codes[name].format(name=name, other=other)
        text = NOTEBOOK.format(name=name.title(), code=code)
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    config = {
        "extensions": ["myst_nb"],
        "html_theme": "basic",
        "nb_execution_mode": "cache",
        "nb_execution_cache_path": str(folder / "cache"),
        "exclude_patterns": ["out", "tree"],
    }
    warnings = io.StringIO()
    with patch_docutils(), docutils_namespace():
        app = Sphinx(folder, None, folder / "out", folder / "tree", "html", config, None, warnings)
        app.connect("env-before-read-docs", execute_chapters)
        app.build()
    return warnings.getvalue()


@pytest.mark.slow
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core runs one chapter at a time")
def test_chapters_run_side_by_side_and_once(tmp_path: Path) -> None:
    """Each of two waits for the other, so that neither could end alone."""
    assert build(tmp_path, {"first": MEET, "second": MEET}) == ""
    for name, other in ("first", "second"), ("second", "first"):
        assert f"{name} met {other}" in (tmp_path / "out" / f"{name}.html").read_text()
        assert (tmp_path / f"{name}.txt").read_text() == "ran\n"


@pytest.mark.slow
def test_a_broken_chapter_is_reported(tmp_path: Path) -> None:
    said = build(tmp_path, {"first": FAIL, "second": "print('fine')"})
    assert "first.md: WARNING: Executing notebook failed" in said
    assert "second.md" not in said
