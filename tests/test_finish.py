"""book/finish.py: code on finished pages is folded and broken, and loses nothing."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("quickjs", reason="needs the extra `book`")

from finish import finish_pages, fold_docstrings, hold, mend_code, plain
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

CODE = '''\
import math
from typing import (
    Any,
)

if TYPE_CHECKING:
    from torch import Tensor


def attend(query, keys):
    """The first line.

    The second line.
    """
    return keys.transpose(-2, -1).matmul(query.unsqueeze(-1)).squeeze(-1)
'''


def test_what_is_folded_and_broken_keeps_every_letter() -> None:
    page = highlight(CODE, PythonLexer(), HtmlFormatter()).replace("<pre><span></span>", "<pre>")
    made = mend_code(fold_docstrings(page))
    assert plain(made).strip() == CODE.replace("\n\n\n", "\n\n").strip()
    imports, said = made.split('<span class="docstring">')[1:]
    imports, closed, code = imports.partition('</span>\n<span class="k">def</span>')
    assert plain(imports).startswith("import math") and "import Tensor" in plain(imports)
    assert closed and "The first line." in plain(code) and "The second line." in plain(said)
    assert made.count('<pre class="few">') == 1
    (broken,) = re.findall(r'<span class="line" style="--indent:(\d+)">', made)
    assert broken == "4" and "<wbr>" in made


def test_no_line_breaks_an_option_a_negative_number_or_a_row_of_numbers() -> None:
    train = "annotated train --data my/news.en,my/news.de --minutes 60 wmt14-en-de --resume"
    held = re.findall(r'<span class="together">(.*?)</span>', hold(train))
    assert held == ["--data my/news.en,my/news.de", "--minutes 60", "wmt14-en-de", "--resume"]
    page = '<div class="highlight"><pre>{}</pre></div>'.format
    row = "bicycle     -0.047   0.005   0.056   0.009   … 1.01"
    assert 'class="aligned"' in mend_code(page(row))
    assert 'class="aligned"' not in mend_code(
        page("a sentence of words, 0.5 and 1.5,  and no row of numbers")
    )
    changed = f'<span class="gi">+        {"x" * 40}</span>'
    assert '<span class="gi line" style="--indent:9">' in mend_code(page(changed))
    code = "scores = scores.masked_fill(hidden, -math.inf)  # what is not there"
    made = mend_code(highlight(code, PythonLexer(), HtmlFormatter()).replace("<span></span>", ""))
    assert '<span class="together"><span class="o">-</span>' in made and "c1 after" in made
    assert plain(made).strip() == code


@pytest.mark.parametrize(
    "code", ["import math\n\nx = 1\n", "import math\nimport re\nimport json\n"]
)
def test_few_imports_and_imports_alone_are_not_folded(code: str) -> None:
    page = highlight(code, PythonLexer(), HtmlFormatter())
    assert "<button" not in mend_code(page.replace("<pre><span></span>", "<pre>"))


def test_only_code_of_many_lines_on_a_phone_gets_a_button_for_them() -> None:
    for count, few in (10, True), (30, False):
        code = "x = 1\n" * count
        page = highlight(code, PythonLexer(), HtmlFormatter())
        assert ('class="few"' in mend_code(page.replace("<span></span>", ""))) == few


def test_a_page_that_a_build_does_not_write_anew_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "_static").mkdir()
    page = tmp_path / "page.html"
    app = SimpleNamespace(builder=SimpleNamespace(name="html"), outdir=str(tmp_path))
    code = highlight(CODE, PythonLexer(), HtmlFormatter()).replace("<pre><span></span>", "<pre>")
    head = "<thead><tr><th></th><th>a</th></tr></thead>"
    page.write_text(f'{code}<table class="dataframe">{head}</table>', encoding="utf-8")
    finish_pages(app, None)
    once = page.read_text(encoding="utf-8")
    assert once.count("<button") == 2 and "<td></td>" in once  # imports and docstring; a corner
    finish_pages(app, None)
    assert page.read_text(encoding="utf-8") == once
