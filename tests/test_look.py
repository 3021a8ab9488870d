"""The look of the pages that can be known without a browser: colors, heights, places of signs."""

import re

import pytest

pytest.importorskip("sphinx", reason="needs the extra `book`")
pytest.importorskip("altair")

import altair as alt
from contents import ROOT
from formulas import apart, set_formulas
from heights import BUTTON, height, least

import book.charts  # noqa: F401  (enables the theme)

CSS = (ROOT / "book" / "static" / "book.css").read_text(encoding="utf-8")


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("kind", ["removed", "added"])
def test_changed_lines_can_be_read_on_their_colors(kind):
    letters = re.findall(rf"--{kind}: (#\w{{6}})", CSS)
    grounds = re.findall(rf"--on-{kind}: (#\w{{6}})", CSS)
    assert len(letters) == len(grounds) == 2  # light and dark
    for pair in zip(letters, grounds, strict=True):
        dark, light = sorted(map(luminance, pair))
        assert (light + 0.05) / (dark + 0.05) >= 4.5


ONE = alt.Chart(alt.Data(values=[{"x": 1}])).mark_point().encode(x="x:Q", y="x:Q")
ONE = ONE.properties(width=230, height=200)


def test_charts_side_by_side_stand_one_below_the_other_on_a_phone():
    assert height(ONE.to_dict(), 358) == height(ONE.to_dict(), 768)
    both = (ONE | ONE).to_dict()
    assert height(both, 358) > height(both, 768) + 200


@pytest.mark.parametrize("narrow", [False, True])
def test_the_place_of_a_later_chart_is_kept_without_drawing_it(narrow):
    for chart in (ONE, ONE & ONE, ONE | ONE):
        spec, width = chart.to_dict(), 358 if narrow else 768
        assert least(spec, narrow) + BUTTON == pytest.approx(height(spec, width), rel=0.15)
    turned = ONE.properties(usermeta={"turned": 500}).to_dict()
    assert (least(turned, narrow) > 500) == narrow


@pytest.mark.parametrize(
    ("text", "together"),
    [
        ("of width {}, for", "{},"),
        ("attention ({}) is", "({})"),
        ('by <a href="#d-k">{}</a>. Then', '<a href="#d-k">{}</a>.'),
        ('<a href="#d-k">the width {}</a>. Then', None),
        ("and {} heads", None),
    ],
)
def test_a_formula_keeps_the_sign_after_it(text, together):
    math = '<span class="math">\\(h\\)</span>'
    page = set_formulas(f"<p>{text.format(math)}</p>", "fonts")
    assert re.sub(r"<[^>]*>", "", page).count("(") == text.count("(")
    kept = re.search(r'<span class="together">(.*?)</mjx-container></span>([^ ]*)</span>', page)
    assert bool(kept) == bool(together)
    if kept and together:
        before, _, after = together.partition("{}")
        assert kept[1].startswith(f'{before}<span class="math">') and kept[2] == after


def test_the_mark_of_a_footnote_stays_with_its_word():
    page = set_formulas('<p>of each GPU<span class="math">\\(^5\\)</span>.</p>', "fonts")
    assert '<p>of each <span class="together">GPU<span class="math">' in page


def test_formulas_in_a_row_can_become_lines():
    row = r"a = \frac{1}{2}, \qquad b = 3"
    assert [part.strip() for part in apart(row)] == [r"a = \frac{1}{2},", "b = 3"]
    for whole in r"\text{a \qquad b}", r"\begin{aligned} a \qquad b \end{aligned}":
        assert apart(whole) == [whole]
