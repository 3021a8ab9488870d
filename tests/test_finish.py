"""book/finish.py: code on finished pages is folded and broken, and loses nothing."""

import re

import pytest

pytest.importorskip("quickjs", reason="needs the extra `book`")

from finish import fold_docstrings, mend_code, plain
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
