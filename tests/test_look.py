"""The look of the pages that can be known without a browser: colors, heights, places of signs."""

import re
from xml.etree import ElementTree

import pytest

pytest.importorskip("sphinx", reason="needs the extra `book`")
pytest.importorskip("altair")

import altair as alt
from contents import ROOT
from formulas import apart, set_formulas
from still import BUTTON, NARROW, WIDE, heading, picture, place, size_of

import book.charts  # noqa: F401  (enables the theme)

STYLES = (ROOT / "book" / "static" / f"{name}.css" for name in ("base", "book"))
CSS = "".join(style.read_text(encoding="utf-8") for style in STYLES)


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("kind", ["removed", "added"])
def test_changed_lines_can_be_read_on_their_colors(kind):
    letters = re.findall(r"--ink: (#\w{6})", CSS)
    grounds = re.findall(rf"--{kind}: (#\w{{6}})", CSS)
    assert len(letters) == len(grounds) == 2  # light and dark
    for pair in zip(letters, grounds, strict=True):
        dark, light = sorted(map(luminance, pair))
        assert (light + 0.05) / (dark + 0.05) >= 4.5


ONE = alt.Chart(alt.Data(values=[{"x": 1}])).mark_point().encode(x="x:Q", y="x:Q")
ONE = ONE.properties(width=230, height=200)


def heights(chart: alt.TopLevelMixin) -> list[int]:
    """The places that are kept for a chart, on a desktop and on a phone."""
    style, still = place(chart.to_dict(), first=False)
    assert not still
    return [int(height) for height in re.findall(r"(\d+)px", style)]


@pytest.mark.slow
def test_charts_side_by_side_stand_one_below_the_other_on_a_phone():
    wide, narrow = heights(ONE)
    assert wide == narrow > 200 + BUTTON
    wide, narrow = heights(ONE | ONE)
    assert narrow > wide + 200


def test_numbers_in_a_picture_are_not_cut():
    shown = ONE.mark_text().encode(text=alt.datum("-0.1888"))
    assert ">-0.1888</text>" in picture(shown.to_dict(), WIDE)


def test_a_title_is_text_above_the_chart():
    title = alt.Title("What the reader's <b> is", subtitle=["Two", "lines"])
    chart = ONE.properties(title=title)
    assert heights(chart) == heights(ONE)
    said = "<strong>What the reader’s &lt;b&gt; is</strong> <span>Two lines</span>"
    assert said in heading(chart.to_dict()) and not heading(ONE.to_dict())
    set_by_reader = ONE.add_params(alt.param("who", value="A & B"))
    changing = set_by_reader.properties(title=alt.Title(alt.expr("who + ' see it'")))
    assert "<strong>A &amp; B see it</strong>" in heading(changing.to_dict())


def test_controls_have_their_place():
    sliders = [alt.param(f"p{i}", value=1, bind=alt.binding_range(min=0, max=2)) for i in range(4)]
    more = [
        have - had
        for have, had in zip(heights(ONE.add_params(*sliders)), heights(ONE), strict=True)
    ]
    assert 60 <= more[0] < more[1]


def test_the_first_chart_of_a_page_is_a_picture_in_the_colors_of_the_theme():
    bound = alt.binding_range(min=0, max=2, step=0.5, name="size of <b> ")
    shown = ONE.add_params(alt.param("size", value=1.5, bind=bound)).to_dict()
    _, still = place(shown, first=True)
    assert [len(re.findall(f'<svg class="{kind}"', still)) for kind in ("wide", "narrow")] == [1, 1]
    assert 'fill="var(--layer)"' in still and 'fill="var(--chart-text)"' in still
    assert not re.search(r'="#(0072b2|27272a|d4d4d8)"', still, re.IGNORECASE)
    ids = re.findall(r'\bid="([^"]+)"', still)
    assert len(ids) == len(set(ids)) and set(re.findall(r"url\(#([^)]+)\)", still)) <= set(ids)
    assert 'min="0" max="2" step="0.5" value="1.5"' in still and "size of &lt;b&gt; " in still


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


def test_a_screen_reader_hears_what_kind_of_letter_a_formula_has():
    page = set_formulas(r'<p><span class="math">\(\mathrm{b}\)</span></p>', "fonts")
    (math,) = re.findall(r"<math.*?</math>", page)
    assert ElementTree.fromstring(math).tag == "{http://www.w3.org/1998/Math/MathML}math"
    assert '<mi mathvariant="normal">b</mi>' in math and "undefined" not in math


def test_the_mark_of_a_footnote_stays_with_its_word():
    page = set_formulas('<p>of each GPU<span class="math">\\(^5\\)</span>.</p>', "fonts")
    assert '<p>of each <span class="together">GPU<span class="math">' in page


def test_formulas_in_a_row_can_become_lines():
    row = r"a = \frac{1}{2}, \qquad b = 3"
    assert [part.strip() for part in apart(row)] == [r"a = \frac{1}{2},", "b = 3"]
    for whole in r"\text{a \qquad b}", r"\begin{aligned} a \qquad b \end{aligned}":
        assert apart(whole) == [whole]


def test_charts_side_by_side_end_where_the_column_ends():
    drawn = picture((ONE | ONE).to_dict(), WIDE)
    assert WIDE - 4 <= size_of(drawn)[0] <= WIDE
    assert size_of(picture(ONE.to_dict(), WIDE))[0] < 400  # one alone has its own width


def test_on_a_phone_names_of_rows_can_stand_above_them():
    values = [{"x": 1, "name": "a name that takes half of a phone"}]
    shown = alt.Chart(alt.Data(values=values)).mark_point().encode(x="x:Q", y="name:N")
    shown = shown.properties(width="container", height=alt.Step(34), usermeta={"above": 34})

    def places(width: int) -> tuple[list[float], ...]:
        drawn = picture(shown.to_dict(), width)
        name = re.search(r'translate\(([-\d.]+),([-\d.]+)\)"[^>]*>a name', drawn)
        mark = re.search(r'translate\(([-\d.]+),([-\d.]+)\)"[^>]*? d="M', drawn[name.end() :])
        return [float(name[1]), float(name[2])], [float(mark[1]), float(mark[2])]

    (left, low), (_, mark) = places(WIDE)
    assert left < 0 and abs(low - mark) < 8
    (left, low), (right, mark) = places(NARROW)
    assert left == 0 and low < mark - 5 and right > 300
