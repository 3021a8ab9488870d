"""book/lint.py: what becomes of the cells of a chapter, and which problems are reported."""

from pathlib import Path

import pytest

pytest.importorskip("jupytext", reason="needs the extra `test`")

import lint

CHAPTER = """\
# 1 One

Prose has   its own form:

```python
x=1
```

```{code-cell} ipython3
:tags: [hide-input]
def twice( x ) :
    return 2*x
x = 'one'
x
```

```{code-cell} ipython3
twice(x);
````
"""
UGLY = "def twice( x ) :\n    return 2*x\nx = 'one'\n"
FORMATTED = CHAPTER.replace(UGLY, 'def twice(x):\n    return 2 * x\n\n\nx = "one"\n')


@pytest.fixture
def chapters(tmp_path: Path) -> Path:
    (tmp_path / "1-one.md").write_text(CHAPTER, encoding="utf-8")
    return tmp_path


def test_only_code_cells_are_formatted_and_only_when_asked(chapters: Path, capsys):
    run = ["--chapters", str(chapters)]
    assert lint.main(run) == 1 and "make format" in capsys.readouterr().out
    assert (chapters / "1-one.md").read_text(encoding="utf-8") == CHAPTER
    assert lint.main([*run, "--write"]) == 0
    assert (chapters / "1-one.md").read_text(encoding="utf-8") == FORMATTED
    assert lint.main(run) == 0


@pytest.mark.parametrize(
    ("code", "rule"),
    [("twice(y)", "F821"), ("twice(", "invalid-syntax"), ("import os  # for an effect", "F401")],
)
def test_a_problem_is_reported_with_its_line(chapters: Path, capsys, code: str, rule: str):
    """And what ruff cannot correct safely stays."""
    text = FORMATTED.replace("twice(x);", code)
    (chapters / "1-one.md").write_text(text, encoding="utf-8")
    assert lint.main(["--chapters", str(chapters), "--write"]) == 1
    line = FORMATTED.splitlines().index("twice(x);") + 1
    assert f"chapters/1-one.md:{line}: {rule} " in capsys.readouterr().out
    assert (chapters / "1-one.md").read_text(encoding="utf-8") == text
