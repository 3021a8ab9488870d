"""The colors that Python, CSS and JavaScript share, and that no other file declares."""

import re

import pytest

pytest.importorskip("sphinx", reason="needs the extra `book`")

from contents import ROOT
from head import colors

from annotated.machinery.palette import COLORS, HEADS, PALETTE

SOURCES = "annotated/**/*.py", "book/*.py", "book/static/*.js", "book/static/book.css"


def test_the_style_sheet_declares_every_color_and_no_other_file_does() -> None:
    declared = dict(re.findall(r"--([\w-]+): (#\w{6});", colors()))
    assert declared == {**COLORS, **{f"head-{i}": color for i, color in enumerate(HEADS)}}
    assert len(set(HEADS)) == len(HEADS) and set(PALETTE) <= set(COLORS.values())
    for path in [path for pattern in SOURCES for path in ROOT.glob(pattern)]:
        if path.name not in ("palette.py", "tokenizers.js", "micropython.js"):
            text = path.read_text(encoding="utf-8").upper()
            assert not [color for color in COLORS.values() if color in text], path
