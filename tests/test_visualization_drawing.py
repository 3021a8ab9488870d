"""Figures 3 to 5: the numbers in the charts, and what a reader's hand does."""

import re
from html.parser import HTMLParser
from pathlib import Path

import altair as alt
import pytest
import torch
from torch import Tensor

from annotated.machinery.errors import InputError
from annotated.machinery.visualization.drawing import attention_lines, heat_map
from annotated.machinery.visualization.weights import AttentionWeights


def test_a_first_view_of_what_is_not_there_is_refused():
    for wrong in {"layer": 0}, {"heads": [5]}, {"query": 3}, {"full": 0.0}, {"threshold": 1}:
        with pytest.raises(ValueError, match=f"expected {next(iter(wrong))}"):
            attention_lines(torch.zeros(4, 3, 3), ["a", "b", "c"], **wrong)
    for full in 0, -1, 2, float("nan"), "1":
        with pytest.raises(ValueError, match="full"):
            heat_map(torch.zeros(1, 1), ["a"], full=full)


def test_what_is_read_is_drawn_with_its_words():
    """And a map of one head is the same as of its matrix."""
    weights, words = torch.randn(2, 3, 2, 4).softmax(dim=-1), (["a", "b"], ["▁c", "d", "e", "f"])
    read = AttentionWeights(weights, *words)
    drawn = lambda chart: chart.to_dict()["data"]["values"]
    assert drawn(attention_lines(read)) == drawn(attention_lines(weights, *words))
    for layer, head in (1, 2), (None, 3):
        its = weights[(layer or 2) - 1, head - 1]
        assert drawn(heat_map(read, layer=layer, head=head)) == drawn(heat_map(its, *words))
    for wrong in {"layer": 3}, {"layer": 0}, {"head": 4}:
        with pytest.raises(InputError, match=next(iter(wrong))):
            heat_map(read, **wrong)
    with pytest.raises(InputError, match="words"):
        heat_map(weights)


@pytest.mark.slow
def test_a_chart_is_saved_as_a_picture(tmp_path: Path):
    heat_map(torch.eye(2), ["a", "b"]).save(tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes()[1:4] == b"PNG"


def test_alternative_texts_name_the_strongest_weights():
    weights = torch.full((2, 3, 2, 2), 0.5)
    weights[1, 2, 1] = torch.tensor([0.9, 0.1])
    text = attention_lines(weights, ["a", "b"]).to_dict()["description"]
    assert "layer 2" in text and "b to a (head 3, 0.90)" in text
    text = heat_map(weights[1, 2], ["a", "b"]).to_dict()["description"]
    assert text.startswith("Attention of one head, from") and "b to a (0.90)" in text


@pytest.mark.slow
def test_words_cannot_end_the_script_of_a_saved_chart(tmp_path: Path):
    """Only HTML is concerned: such a word looks as it did, and other words are as they were."""

    def saved(*words: str) -> tuple[list[str], str]:
        """The tags of a page, as a browser reads them, and its text."""
        weights, page, tags = torch.full((1, 1, 4, 4), 0.25), tmp_path / "page.html", []
        for chart in attention_lines(weights, list(words)), heat_map(weights[0, 0], list(words)):
            chart.save(page)
            reader = HTMLParser()
            reader.handle_starttag = lambda tag, attrs: tags.append(tag)
            reader.feed(text := page.read_text(encoding="utf-8"))
        return tags, text

    plain = saved("a", "b", "c", "d")
    for bad in "</script><script>alert(1)</script>", "</SCRIPT\t>", "<!--", "<!-- <script>", "</":
        tags, text = saved(bad, "<script>", "a<b", "-->")
        assert tags == plain[0] and re.search('"from": "a<b"', text)
        assert bad in text.replace("\\u2060", "").replace("\\t", "\t")


def test_only_words_with_lines_can_be_chosen():
    weights = torch.zeros(2, 4, 4)
    weights[0, 1, 3] = weights[1, 2, 0] = 1
    for alone, options in (weights, [None, 1, 2]), (weights[:1], None):
        params = attention_lines(alone, list("abcd")).to_dict()["params"]
        (kept,) = (param for param in params if param["name"] == "kept")
        assert kept.get("bind", {}).get("from", {}).get("options") == options


def test_few_short_words_are_upright_and_the_cells_below_them(weights: Tensor):
    vl_convert = pytest.importorskip("vl_convert")
    for words, turned in (WORDS, False), ([9 * word for word in WORDS], True):
        chart = attention_lines(weights, words, layer=1, heads=[2], query=2, threshold=0.0)
        with alt.theme.enable("default"):
            drawing = vl_convert.vegalite_to_svg(chart.properties(width=600).to_dict())
        assert ("rotate(-90)" in drawing or "rotate(270)" in drawing) == turned
        (first,) = set(re.findall(r"y: ([\d.]+); right: [^;]+; y2: [\d.]+; head: 2;", drawing))
        edge = re.findall(r"edge: ([\d.]+); right: 0.5; far: [1-9]", drawing)[-1]
        assert (float(first) > float(edge)) != turned
        assert drawing.count(">2</text>") == turned  # in the legend
        assert drawing.count(">head 2</text>") == (not turned)  # beside its row of cells


def test_heads_have_the_colors_and_rows_have_the_order_that_are_asked_for(weights: Tensor):
    vl_convert = pytest.importorskip("vl_convert")
    colors = ["#123456", "#654321", "#abcdef"]
    chart = attention_lines(weights, WORDS, heads=[3, 1], query=2, threshold=0.0, colors=colors)
    with alt.theme.enable("default"):
        drawing = vl_convert.vegalite_to_svg(chart.properties(width=600).to_dict())
    assert colors[0] in drawing and colors[2] in drawing and colors[1] not in drawing
    place = r"translate\([\d.]+,([\d.]+)\)[^>]*>head {}<"
    third, first = (float(re.search(place.format(head), drawing)[1]) for head in (3, 1))
    assert third < first


LINES = """() => [...document.querySelectorAll('.mark-symbol.role-mark path')]
    .map(line => line.__data__.datum).map(d => [d.layer, d.head, d.query, d.key])"""
WORDS = ["The", "dog", "sees", "a", "cat", "."]


@pytest.fixture(scope="module")
def weights() -> Tensor:
    torch.manual_seed(3)
    return torch.randn(2, 3, 6, 6).mul(2).softmax(dim=-1)  # (layers, h, len, len)


@pytest.fixture
def tab(browser, weights: Tensor, tmp_path: Path):
    """The chart alone in a page, in Chromium and offline."""
    vl_convert = pytest.importorskip("vl_convert")
    spec = attention_lines(weights, WORDS, layer=1, threshold=0.1).to_json()
    (tmp_path / "vega.js").write_text(f"(()=>{{{vl_convert.javascript_bundle()}\n}})();", "utf-8")
    (tmp_path / "page.html").write_text(
        '<meta charset="utf-8"><div id="chart" style="width: 700px"></div>'
        f'<script src="vega.js"></script><script>vegaEmbed("#chart", {spec}, {{renderer: "svg"}})'
        ".then(({ view }) => { window.view = view; })</script>",
        encoding="utf-8",
    )
    context = browser.new_context(offline=True)
    tab = context.new_page()
    tab.goto((tmp_path / "page.html").as_uri())
    tab.wait_for_function("window.view")
    yield tab
    context.close()


def strong(weights: Tensor, layer: int, least: float = 0.1) -> set[tuple[int, ...]]:
    """Layer, head, query and key of all connections that a chart of a layer should draw."""
    places = (weights[layer - 1] >= least).nonzero().tolist()
    return {(layer, head + 1, query, key) for head, query, key in places}


def drawn(tab) -> set[tuple[int, ...]]:
    """What the chart shows after what was done last; it follows the pointer in the next frame."""
    frame = "await new Promise(requestAnimationFrame);"
    tab.evaluate(f"async () => {{ {frame} {frame} await window.view.runAsync(); }}")
    lines = [tuple(line) for line in tab.evaluate(LINES)]
    assert len(set(lines)) == len(lines)
    return set(lines)


def word(tab, row: str, place: int) -> tuple[float, float]:
    """Where a word of the upper or the lower row stands."""
    found = tab.locator(".mark-text text").get_by_text(WORDS[place], exact=True)
    boxes = sorted((box.bounding_box() for box in found.all()), key=lambda box: box["y"])
    box = boxes[0 if row == "above" else -1]
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_pointing_at_a_word_isolates_it(tab, weights: Tensor):
    tab.mouse.move(*word(tab, "above", 2))
    assert drawn(tab) == {line for line in strong(weights, 1) if line[2] == 2}
    tab.mouse.move(*word(tab, "below", 4))
    assert drawn(tab) == {line for line in strong(weights, 1) if line[3] == 4}
    tab.mouse.click(*word(tab, "above", 3))  # which stays when the pointer leaves
    tab.mouse.move(1, 1)
    assert drawn(tab) == {line for line in strong(weights, 1) if line[2] == 3}
    tab.mouse.dblclick(*word(tab, "above", 3))
    tab.mouse.move(1, 1)
    assert drawn(tab) == strong(weights, 1)


def test_a_head_is_taken_out_and_put_back(tab, weights: Tensor):
    second = tab.locator(".role-legend-symbol path").nth(1)
    second.click(force=True)
    assert drawn(tab) == {line for line in strong(weights, 1) if line[1] != 2}
    second.click(force=True)
    assert drawn(tab) == strong(weights, 1)


def test_the_keyboard_reaches_layer_and_word(tab, weights: Tensor):
    control = lambda name: tab.locator(".vega-bind").filter(has_text=name).locator("select")
    layer, origin = map(control, ("Layer", "From"))
    layer.focus()
    tab.keyboard.press("ArrowDown")
    assert drawn(tab) == strong(weights, 2)
    origin.focus()
    tab.keyboard.press("ArrowDown")
    assert drawn(tab) == {line for line in strong(weights, 2) if line[2] == 0}


@pytest.mark.slow
@pytest.mark.parametrize("full", [1.0, 0.5])
def test_a_line_has_its_full_color_from_the_weight_that_is_asked_for(weights: Tensor, full: float):
    vl_convert = pytest.importorskip("vl_convert")
    chart = attention_lines(weights, WORDS, heads=[2], query=3, threshold=0.0, full=full)
    drawing = vl_convert.vegalite_to_svg(chart.properties(width=600).to_dict())
    lines = re.findall(r'd="M[^"]*,104C[^"]*"[^>]* opacity="([\d.]+)"', drawing)
    expected = (weights[1, 1, 3] / full).clamp(max=1).tolist()
    assert [float(line) for line in lines] == pytest.approx(expected, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("heads", [[2], [1, 3], [1, 2, 3]])
def test_the_heads_shown_share_the_height_of_the_words(weights: Tensor, heads: list[int]):
    """As in Figures 3 and 4: eight heads have an eighth each, two a half, one all of it."""
    vl_convert = pytest.importorskip("vl_convert")
    words = [9 * word for word in WORDS]  # too long to stand side by side
    chart = attention_lines(weights, words, layer=1, heads=heads, query=2, threshold=0.0)
    with alt.theme.enable("default"):  # the book's look leaves out what cells are called
        drawing = vl_convert.vegalite_to_svg(chart.properties(width=600).to_dict())
    cells = re.findall(r"y: ([\d.]+); right: [^;]+; y2: ([\d.]+); head: (\d);", drawing)
    assert len(cells) == len(heads) * len(WORDS)
    (bottom, end), *_ = re.findall(r"edge: ([\d.]+); right: 0.5; far: ([1-9][\d.]*)", drawing)
    edges = torch.linspace(float(bottom), float(end), len(heads) + 1).tolist()
    for top, low, head in cells:
        place = heads.index(int(head))
        assert [float(top), float(low)] == pytest.approx(edges[place : place + 2])
    curve = r'transform="translate\(([\d.]+),[\d.]+\)" d="M[^"]*?,(-?[\d.]+),104C'
    curves = [tuple(map(float, found)) for found in re.findall(curve, drawing)]
    assert len(curves) == len(heads) * len(WORDS)
    for i, (_, across) in enumerate(curves):  # from the third word to the key, in pixels
        assert across == 100 * (i % len(WORDS) - 2)
    starts = [start for start, _ in curves]
    assert len(set(starts)) == len(heads)  # side by side, as one on another would mix their colors
