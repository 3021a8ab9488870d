"""book/finish.py: code on finished pages is folded and broken, and loses nothing."""

import html
import re

import pytest

pytest.importorskip("quickjs", reason="needs the extra `book`")

from finish import fold_docstrings, hang_lines
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

CODE = '''\
def attend(query, keys):
    """The first line.

    The second line.
    """
    return keys.transpose(-2, -1).matmul(query.unsqueeze(-1)).squeeze(-1)
'''


def test_what_is_folded_and_broken_keeps_every_letter() -> None:
    page = highlight(CODE, PythonLexer(), HtmlFormatter()).replace("<pre><span></span>", "<pre>")
    made = hang_lines(fold_docstrings(page))
    assert html.unescape(re.sub("<[^>]*>", "", made)).strip() == CODE.strip()
    folded = re.search(r'<span class="docstring">(.*?)</span>', made, re.DOTALL)
    assert folded and "The second line." in folded[1] and "The first line." not in folded[1]
    (broken,) = re.findall(r'<span class="line" style="--indent:(\d+)">', made)
    assert broken == "4" and "<wbr>" in made
