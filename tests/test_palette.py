"""The colors that Python, CSS and JavaScript share, and that no other file declares."""

import re

import pytest

pytest.importorskip("sphinx", reason="needs the extra `book`")

from contents import ROOT
from head import colors

from annotated.machinery.palette import COLORS, HEADS, PALETTE

SOURCES = sorted(
    path
    for pattern in ("annotated/**/*.py", "book/*.py", "book/static/*.js", "book/static/book.css")
    for path in ROOT.glob(pattern)
    if path.name not in ("palette.py", "tokenizers.js")
)


def test_the_style_sheet_declares_every_color() -> None:
    declared = dict(re.findall(r"--([\w-]+): (#\w{6});", colors()))
    assert declared == {**COLORS, **{f"head-{i}": color for i, color in enumerate(HEADS)}}
    assert len(set(HEADS)) == len(HEADS) and set(PALETTE) <= set(COLORS.values())


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_no_other_file_declares_one_of_them(path) -> None:
    text = path.read_text(encoding="utf-8").upper()
    assert not [color for color in COLORS.values() if color in text]
