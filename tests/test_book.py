"""The built site, as a browser without a network shows it. Needs `make book` before."""

import json
import math
import os
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from functools import cache
from html import unescape
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import pytest
import torch
from bibliography import labels
from cells import SYMBOLS
from contents import CHAPTERS, ROOT, pages
from links import modules
from outlines import broad_end
from playwright.sync_api import expect
from reading import STATIONS
from verdicts import BARS

from annotated import Translator, encode_source, greedy_decode, load_pretrained
from annotated.data import END, START
from annotated.machinery.recording import record_attention
from annotated.machinery.visualization.weights import merge_words, read_attention
from book.charts import LAYERS, chart_theme

SITE = ROOT / "_build" / "html"
pytestmark = pytest.mark.site


def html(page: str) -> str:
    return (SITE / "chapters" / f"{page}.html").read_text(encoding="utf-8")


def described(text: str) -> dict[str, str]:
    """What the head of a page says to services that preview links."""
    head = text.partition("</head>")[0]
    pattern = r'<meta (?:property|name)="((?:og|twitter):\w+|description)" content="([^"]+)"'
    return dict(re.findall(pattern, head))


@cache
def anchors(file: Path) -> set[str]:
    """What a link into a page may name."""
    return set(re.findall(r'\bid="([^"]+)"', file.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", pages())
def test_links_inside_the_book_lead_somewhere(page: str) -> None:
    body = re.sub(r"<pre\b.*?</pre>", "", html(page), flags=re.DOTALL)
    targets = re.findall(r'(?:href|src)="([^"]+)"', body)  # of SVG too: xlink:href
    assert targets
    for target in map(unescape, targets):
        parts = urlsplit(target)
        if parts.scheme or parts.netloc:
            continue
        here = SITE / "chapters" / f"{page}.html"
        file = here.parent / unquote(parts.path) if parts.path else here
        assert file.exists(), target
        if parts.fragment and file.suffix == ".html":
            assert unquote(parts.fragment) in anchors(file), target


@pytest.mark.parametrize("page", pages())
def test_a_page_is_in_form(page: str) -> None:
    text = html(page)
    body = re.sub(r"<(pre|script|code)\b.*?</\1>", "", text, flags=re.DOTALL)
    for leftover in ("{cite}", "{ref}", "{eval-rst}", ":::", "```", ")=<", "**§"):
        assert leftover not in body, leftover
    article = re.search(r"<article.*?</article>", text, re.DOTALL)[0]
    levels = [int(level) for level in re.findall(r"<h([1-6])[ >]", article)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for image in re.findall(r"<img\b[^>]*>", text):
        assert re.search(r'alt="[^"]+"', image), image
    for chart in re.findall(r'<div class="chart"[^>]*>', text):
        assert re.search(r'aria-label="[^"]{30,}"', chart), chart
    # Before its first picture, or its first section, one cell at most is folded.
    opening = re.split(
        r'<div class="(?:chart|hero|film|alive|stages|figure|runs)|<svg|<h2', article
    )[0]
    assert opening.count("above-input") <= 1


def test_citations_and_the_paper_layer_have_the_papers_numbers() -> None:
    page = html("3-2-attention")
    listed = re.findall(r'class="label">(.*?)</span>\s*<[sp]', html("bibliography"), re.DOTALL)
    entries = labels(ROOT / "book" / "references.bib").values()
    assert [re.sub("<[^>]+>", "", label) for label in listed] == [f"[{label}]" for label in entries]
    title = 'title="Dzmitry Bahdanau[^"]*"'  # a citation shows the paper's own number
    assert re.search(rf'href="bibliography.html#[^"]*" {title}>2</a>', page)
    marks = re.findall(r'class="mark[^"]*"[^>]*>([^<]+)<', page)
    assert marks[:2] == ["§3.2 ¶1", "Figure 2"]
    assert [m for m in marks if m.startswith("§3.2.1")] == [f"§3.2.1 ¶{i}" for i in range(1, 5)]
    assert page.count("paper-layer") >= len(marks)


def test_the_front_page_counts_every_claim_of_the_index() -> None:
    row = r'<tr data-section="[^"]*" data-verdict="([^"]*)"'
    rows = Counter(map(unescape, re.findall(row, html("claims"))))
    shown = re.search(r'<div class="habits claims-story">.*?</div></div>', html("index"), re.DOTALL)
    found = {group: int(n) for n, group in re.findall(r">(\d+) (\w+)</a>", shown[0])}
    assert found == {group: sum(rows[name] for name in of) for group, of in BARS.items()}
    small = rows["measured at small scale"]
    assert f"{small} of them only at small scale" in " ".join(shown[0].split())
    assert rows.total() >= 50


def test_every_claim_that_a_cell_makes_is_shown_there_in_the_index_and_beside_the_paper() -> None:
    """Otherwise a call whose verdict its cell does not show would be lost in silence.

    A verdict is told once in a section: beside its paragraph, or in the box of its cell.
    """
    called, shown, beside, boxed = set(), set(), [], []
    for page in pages():
        text = (CHAPTERS / f"{page}.md").read_text(encoding="utf-8")
        ids = re.findall(r'^ *(?:display\()?claim\(\s*"([^"]+)"', text, re.MULTILINE)
        called |= {(page, f"claim-{id}") for id in ids}
        shown |= {(page, id) for id in re.findall(r'<aside class="claim" id="([^"]*)"', html(page))}
        notes = "".join(re.findall(r'<aside class="beside".*?</aside>', html(page)))
        beside += re.findall(r'<a href="[^"#]*#([^"]*)"', notes)
        for found in re.finditer(
            r'<aside class="claim" id="([^"]*)"[^>]*claim of ([^:]*):', html(page)
        ):
            mark = found[2].rpartition(", ")[2]
            if paragraph := re.search(rf'<a class="mark[^>]*>{re.escape(mark)}<', html(page)):
                start, end = sorted([paragraph.start(), found.start()])
                if not re.search(r"</?section\b", html(page)[start:end]):
                    boxed.append(found[1])
    link = r'<td><a href="([\w/-]+)\.html#(claim-[^"]+)">'
    listed = set(re.findall(link, html("claims")))
    runs = {("claims", id) for id in re.findall(r'<tr id="(claim-run-[^"]+)"', html("claims"))}
    own = {(page, id) for page, id in shown if id.startswith("claim-since-2017")}  # not the paper's
    assert called == shown == listed - runs | own and runs < listed and not own & listed
    assert sorted(beside + boxed) == sorted(id for _, id in listed) and boxed


def test_symbols_lead_to_their_meaning() -> None:
    assert set(SYMBOLS.values()) <= anchors(SITE / "chapters" / "symbols.html")
    for page, anchor in ("3-2-attention", "d-k"), ("5-3-optimizer", "warmup"):
        link = rf'<a class="symbol[^"]*" href="symbols\.html#{anchor}"'
        assert len(re.findall(link, html(page))) == 1, f"{page}: {anchor}"


def test_the_root_of_the_site_says_what_it_is_and_leads_on() -> None:
    root = (SITE / "index.html").read_text(encoding="utf-8")
    first = f"chapters/{pages()[0]}.html"
    assert f'http-equiv="refresh" content="0; url={first}"' in root  # for browsers
    assert f'<a href="{first}">' in root  # for those that do not follow it
    said = described(root)
    assert said == {**described(html(pages()[0])), "og:image": said["og:image"]}
    picture = urlsplit(said["og:image"])
    assert picture.netloc or (SITE / picture.path).exists()
    said = described(html("5-3-optimizer"))
    assert (
        said["og:title"].startswith("5.3 Optimizer · Attention")
        and 80 < len(said["og:description"]) <= 202
    )
    assert "[" not in said["og:description"]  # no citation without its list


@pytest.fixture
def visit(browser):
    """Opens pages of the site, and closes them at the end; a script of theirs that fails fails."""
    contexts, problems = [], list[str]()

    def opened(page: str, width=1280, height=900, query="", first="", **options):
        size = {"width": width, "height": height}
        contexts.append(context := browser.new_context(viewport=size, **options))
        tab = context.new_page()
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.add_init_script(first)
        tab.goto((SITE / "chapters" / f"{page}.html").as_uri() + query)
        return tab

    yield opened
    for context in contexts:
        context.close()
    assert [text for text in problems if "fetch" not in text] == []  # excerpts need a server


LOOK = (Path(__file__).parent / "look.js").read_text(encoding="utf-8").partition("\n")[2]
SHIFT = """window.shift = 0;
new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shift += entry.value;
}).observe({ type: "layout-shift", buffered: true });"""


def layout_shift(tab) -> float:
    """How much of the page moved while it was loaded, as Chromium scores it."""
    tab.wait_for_timeout(700)  # the first chart is drawn
    return tab.evaluate("window.shift")


WHOLE = {"index", "5-3-optimizer"}  # the first picture; many lines and much code
MATRIX = bool(os.environ.get("ANNOTATED_MATRIX"))  # every page in every width and theme, whole


def barriers(tab, whole: bool) -> list[tuple[str, str]]:
    """What axe-core finds: contrast, names, roles, regions, reach by keyboard.

    Thousands of colored words of code, marks of charts and parts of formulas take minutes, so
    they are looked at on few pages alone.
    """
    from axe_playwright_python.sync_playwright import Axe

    context = None
    if not whole:
        context = {"exclude": [["pre"], [".sig"], ["tbody tr:nth-child(n+5)"]]}
        # What is excluded is walked through all the same: so the words become one plain text.
        for selector, text in ("pre, .sig", "e.textContent"), (".chart svg, mjx-container", "'x'"):
            every = f"document.querySelectorAll('{selector}')"
            tab.evaluate(f"{every}.forEach((e) => {{ e.textContent = {text}; }})")
    options = {"preload": False, "resultTypes": ["violations"]}
    found = Axe().run(tab, context=context, options=options).response
    return [(problem["help"], problem["nodes"][0]["html"][:200]) for problem in found["violations"]]


def open_live(tab) -> None:
    """Let every model on the page translate its first sentence."""
    for box in tab.locator("div.live[data-model]:has(.translation)").all():
        if box.is_visible():
            begin = box.locator("form button")
            if not begin.is_visible():
                box.locator("summary").last.click()
            begin.click()
            result = box.locator(".translation").first
            expect(result).to_have_attribute("aria-busy", "false", timeout=120_000)
            expect(result).not_to_be_empty()


@pytest.mark.parametrize("page", pages())
def test_a_page_is_not_heavy(page: str) -> None:
    text = html(page)
    images = re.findall(r'<img\b[^>]*?\bsrc="([^":]+)"', text)  # those with a colon are in the page
    here = SITE / "chapters" / f"{page}.html"
    files = [here, *(here.parent / unquote(image) for image in images)]
    assert sum(file.stat().st_size for file in files) < 1_000_000
    large = re.findall(r'data-spec="(\w+)"', text)  # charts that come when they are scrolled to
    for name in large:
        assert (SITE / "charts" / f"{name}.js").stat().st_size < 500_000


def test_the_site_is_not_heavy() -> None:
    sizes = {path: path.stat().st_size for path in SITE.rglob("*") if path.is_file()}
    models = sum(size for path, size in sizes.items() if path.parent.name == "models")
    assert models < 40_000_000  # each is loaded only when a reader asks for it
    assert sum(sizes.values()) - models < 18_000_000


def specs(page: str) -> list[dict]:
    """The specifications of a page's charts."""
    text = html(page)
    chart = r'<div class="chart"[^>]*><script type="application/json">(.*?)</script>'
    inside = re.findall(chart, text)
    files = (SITE / "charts" / f"{name}.js" for name in re.findall(r'data-spec="(\w+)"', text))
    outside = (file.read_text(encoding="utf-8").partition(" = ")[2].rstrip(";\n") for file in files)
    return [json.loads(spec) for spec in (*inside, *outside)]


def parts(spec: dict) -> Iterator[dict]:
    yield spec
    for part in spec.get("layer", []):
        yield from parts(part)


@pytest.mark.parametrize("page", pages())
def test_charts_keep_the_rules_of_the_book(page: str) -> None:
    found = specs(page)
    assert len(found) == html(page).count('<div class="chart"')
    for spec in found:
        for part in "font", "range", "mark", "line":
            assert spec["config"][part] == chart_theme()["config"][part]
        assert '"scheme"' not in json.dumps({**spec, "datasets": None, "data": None})
        if page.startswith("3-"):  # pieces are named by words
            assert not re.search("▁|</s>|<EOS>", json.dumps(spec, ensure_ascii=False))
        for panel in spec.get("hconcat", []):  # on a phone they stand one below the other
            ys = [part["encoding"]["y"] for part in parts(panel) if "y" in part.get("encoding", {})]
            assert not ys or any(y.get("axis", {}) is not None for y in ys), panel
        for part in parts(spec):  # no line is drawn where nothing was measured
            mark, encoding = part.get("mark"), part.get("encoding", {})
            if mark and (mark if isinstance(mark, str) else mark["type"]) == "line":
                for axis in "x", "y":  # beyond the axis it is cut off, and not moved to its end
                    assert not (encoding.get(axis, {}).get("scale") or {}).get("clamp")


@pytest.mark.parametrize("page", ["1-introduction", "2-background", "4-why-self-attention"])
def test_a_kind_of_layer_has_one_color(page: str) -> None:
    drawn = json.dumps(specs(page))
    colored = r'"scale": ({"domain": \["[^]]*\], "range": \["#[^]]*\]})'
    found = [json.loads(scale) for scale in re.findall(colored, drawn)]
    pairs = {pair for scale in found for pair in zip(scale["domain"], scale["range"], strict=True)}
    kinds = {name: name.partition(" ")[0].rstrip(",") for name, _ in pairs}
    assert {kinds[name] for name, _ in pairs} >= {"recurrent", "self-attention"}
    assert all(color == LAYERS[kinds[name]] for name, color in pairs if kinds[name] in LAYERS)


WINDOWS = [(1280, "light"), (390, "dark")] + MATRIX * [(1280, "dark"), (390, "light")]


def heaviest(page: str) -> int:
    """What a page may load before its reader moves, in bytes; charts of others come at once."""
    return 800_000 if page == "index" else 1_300_000 if page[0].isdigit() else 2_500_000


@pytest.mark.parametrize("page", pages())
@pytest.mark.parametrize(("width", "theme"), WINDOWS)
def test_page_in_a_browser_without_network(browser, page: str, width: int, theme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, offline=True)
    tab = context.new_page()
    problems: list[str] = []
    tab.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on("request", lambda r: problems.append(r.url) if r.url.startswith("http") else None)
    asked: set[str] = set()
    read = lambda r: r.url.startswith("file:") and asked.add(unquote(urlsplit(r.url).path))
    tab.on("request", read)  # and no worker, whose text the page itself has made
    tab.add_init_script(f"localStorage.setItem('mode', '{theme}')")
    tab.add_init_script(SHIFT)
    # Chromium without windows now and then moves a mouse that is not there, which would be a sign
    # of a reader.
    still = "addEventListener('pointermove', (e) => e.stopImmediatePropagation(), true)"
    tab.add_init_script(still)
    tab.goto((SITE / "chapters" / f"{page}.html").as_uri())
    shift = layout_shift(tab)
    if shift > 0.05:  # a busy machine draws a page that it has read in part
        tab.reload()
        shift = min(shift, layout_shift(tab))
    sizes = {path: Path(path).stat().st_size for path in asked if "/charts/" not in path}
    weight = sum(sizes.values())
    styles = sum(size for path, size in sizes.items() if path.endswith(".css"))
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")  # draws all charts at once, in light
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    # Forty charts on one page, two pages at once. (The content policy forbids to wait by a script.)
    missing = tab.locator("div.chart:not(.drawn)")
    expect(missing).to_have_count(0, timeout=120_000)
    if MATRIX:
        open_live(tab)
    tab.evaluate(
        "document.querySelectorAll('.experiment').forEach((fold) => { fold.open = true; })"
    )
    tab.keyboard.press("Tab")  # from now on the focus is shown
    seen = tab.evaluate(LOOK)
    hindrances = barriers(tab, MATRIX or page in WHOLE)
    context.close()
    assert not problems
    assert weight < heaviest(page), "the page is heavy"
    assert styles < 150_000
    assert shift < 0.05, "what is read moves"
    assert not hindrances, "not everybody can read this"
    assert seen["theme"] == theme
    assert seen["charts"] == html(page).count('<div class="chart"')
    assert seen["undrawn"] == 0
    assert seen["set"] == seen["formulas"] and seen["broken"] == 0
    assert seen["begun"] == 0, "the beginning of an equation cannot be seen"
    assert seen["overflow"] <= 0, "the page is wider than the screen"
    assert not seen["cut"], "words of a picture lie outside it"
    assert not seen["overlaps"], "words of a picture lie on others"
    assert not seen["unfocused"], "the focus is not seen"
    assert not seen["faint"], "words of a picture are hard to read"


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        ("label smoothing", "5-4-regularization.html#label-smoothing"),
        ("beam search", "6-1-machine-translation.html#beam-search"),
        ("positional encoding", "3-5-positional-encoding.html"),
    ],
)
def test_search_finds_first_where_a_thing_is_taught(visit, asked: str, place: str) -> None:
    tab = visit("../search", query=f"?q={asked.replace(' ', '+')}")
    tab.wait_for_selector("#search-results li a")
    expect(tab.locator(".search-summary")).to_contain_text("found")
    assert tab.locator("#search-results li a").first.get_attribute("href") == f"chapters/{place}"


@pytest.mark.parametrize("asked", ["constructor", "__proto__", "toString", "<b>hasOwnProperty"])
def test_search_for_what_every_object_has_ends(visit, asked: str) -> None:
    summary = visit("../search", query=f"?q={quote(asked)}").locator(".search-summary")
    expect(summary).to_contain_text(re.compile("found|did not match"))


def test_the_content_policy_forbids_code_from_texts_and_from_elsewhere(visit) -> None:
    tab = visit("5-3-optimizer")
    refused: list[str] = []
    tab.on("console", lambda m: refused.append(m.text) if "Security Policy" in m.text else None)
    for code, said in {
        "setTimeout(() => { try { done(eval('1')) } catch (e) { done(e.name) } })": "EvalError",
        "fetch('https://example.org/').then(done, (e) => done(e.name))": "TypeError",
        "Object.assign(document.head.appendChild(document.createElement('script')),"
        " { onload: () => done('loaded'), onerror: () => done('refused') }).src ="
        " 'https://example.org/x.js'": "refused",
    }.items():
        assert tab.evaluate(f"new Promise((done) => {{ {code} }})") == said
    assert len([text for text in refused if "example.org" in text]) >= 2  # not for lack of network


def test_where_storage_is_refused_search_and_theme_work(visit) -> None:
    refuse = "{ get() { throw new DOMException('denied', 'SecurityError'); }, configurable: true }"
    refuse = f"Object.defineProperty(window, 'localStorage', {refuse})"
    tab = visit("../search", query="?q=softmax", first=refuse)
    expect(tab.locator("#search-results li a").first).to_be_visible()
    seen = set()
    for _ in range(3):  # as the system has it, light, dark
        tab.locator(".theme-switch-button").first.click()
        seen.add(tab.locator("html").get_attribute("data-theme"))
    assert seen == {"light", "dark"}


@pytest.mark.parametrize(
    "page", ["index", "3-model-architecture", "5-2-hardware-schedule", "attention-visualizations"]
)
def test_without_javascript_every_chart_and_live_part_leaves_a_sentence(visit, page) -> None:
    tab = visit(page, java_script_enabled=False)
    for part in tab.locator("div.chart, div.live, div.hero").all():
        if part.is_visible():
            assert len(part.inner_text()) > 30
    assert "Without JavaScript" in tab.locator("article").inner_text()


def test_the_first_picture_shows_what_python_computes(visit, translator) -> None:
    """It plays; a word, then a head of a word, then an own sentence."""
    tab, asked = visit("index", height=800, offline=True), list[str]()
    tab.on("request", lambda request: asked.append(request.url))
    tab.reload()
    for seen in ".hero form", ".hero .heads", ".hero + ul":  # all of it on the first screen
        box = tab.locator(seen).bounding_box()
        assert box["y"] + box["height"] < 800
    words = tab.locator(".hero .words[lang=de] button")
    expect(tab.locator(".hero .said")).to_have_text(
        re.compile("^To write “Buch”, the model attends to “book”")
    )
    tab.get_by_role("button", name="Play", exact=True).click()
    expect(tab.locator(".hero .unwritten").first).to_be_attached()
    expect(tab.locator(".hero .unwritten")).to_have_count(0, timeout=20_000)
    assert not [url for url in asked if "/models/" in url or "vega" in url]

    def compare(text: str, layer: int, head: int | None) -> None:
        found = merge_words(read_attention(translator, text)["cross"])
        weights = found.weights[layer].mean(dim=0) if head is None else found.weights[layer, head]
        ends = [name.replace("<EOS>", "end") for name in found.queries]
        assert words.all_inner_texts() == ends
        for q, row in enumerate(weights.tolist()):
            curves = tab.locator(".hero .picture g").nth(q).locator("path")
            drawn = curves.evaluate_all("all => all.map((one) => one.getAttribute('d'))")
            drawn = [broad_end(path) / 18 for path in drawn]
            assert len(drawn) <= sum(weight > 0.024 for weight in row)
            assert sum(drawn) == pytest.approx(sum(w for w in row if w >= 0.03), abs=0.08)
            assert max(drawn) == pytest.approx(max(row), abs=0.006)

    first = tab.locator(".hero .examples button").first.inner_text()
    compare(first, 3, None)
    words.filter(has_text="liest").hover()
    expect(tab.locator(".hero .said")).to_have_text(
        re.compile("^To write “liest”, the model attends to “reading”")
    )
    words.filter(has_text="Frau").focus()
    tab.keyboard.press("ArrowRight")  # turns no page
    expect(words.filter(has_text="liest")).to_be_focused()
    tab.get_by_role("radio", name="looks back").click()
    compare(first, 0, 0)
    own = "Three girls are playing volleyball."
    tab.locator(".hero").get_by_label("English", exact=True).fill(own)
    expect(tab.locator(".hero .said")).to_have_text(
        f"In German: {translator.translate(own)}", timeout=30_000
    )
    compare(own, 0, 0)
    tab.reload()  # the address keeps both
    expect(tab.locator(".hero .said")).to_have_text(re.compile("^In German"), timeout=30_000)
    compare(own, 0, 0)
    tab.get_by_role("radio", name="last layer").click()
    compare(own, 3, None)


def test_reference_and_chapters_lead_to_each_other() -> None:
    there = 'href="3-2-attention.html#attention.MultiHeadedAttention"'
    assert there in html("api") and 'id="attention.MultiHeadedAttention"' in html("3-2-attention")
    assert 'href="api.html#annotated.attention.MultiHeadedAttention"' in html("3-2-attention")
    entries = re.findall(r'<dt class="sig[^"]*" id="([^"]+)">(.*?)</dt>', html("api"), re.DOTALL)
    linked = {name for name, signature in entries if ">in the book</a>" in signature}
    names = {f"annotated.{module}.{name}" for name, module in modules().items()}
    assert names - {"annotated._version.__version__"} <= {name for name, _ in entries}
    hand = "annotated.machinery", "annotated.compat", "annotated._"
    by_hand = {name for name in names if name.startswith(hand)}
    assert names - linked == by_hand


def test_the_reference_shows_a_line_for_each_name_and_unfolds_where_a_link_leads(visit) -> None:
    tab = visit("api")
    lines = tab.locator("details.offered > summary").all_inner_texts()
    names = [re.match(r"\w+", line)[0] for line in lines]
    constants = "END", "PAD", "START", "UNK"
    assert sorted([*names, *constants, "__version__"]) == sorted(modules())
    for name in constants:
        assert tab.locator(f"[id='annotated.data.{name}']").is_visible()
    unfolded = tab.locator("details.offered").all_text_contents()
    bare = re.compile(r"^\s*(Args|Returns|Yields|Raises|Source): |:\w+: ", re.MULTILINE)
    assert not [text for text in unfolded if bare.search(text)]
    line = next(line for line in lines if line.startswith("make_model(src_vocab, tgt_vocab, N=6"))
    assert line.endswith(".") and len(line) < 200
    assert "".join(unfolded).count("Build and initialize the model that a configuration") == 1
    entry = tab.locator("[id='annotated.attention.MultiHeadedAttention']")
    assert not entry.is_visible()
    tab.evaluate("location.hash = '#annotated.attention.MultiHeadedAttention'")
    entry.wait_for(state="visible")


OPEN = "(all) => all.forEach((one) => { one.open = true; })"


def test_the_claims_fit_a_phone_and_begin_with_their_counts(visit) -> None:
    tab = visit("claims", 390, 844)
    bar = tab.locator(".scoreboard").bounding_box()
    assert bar["y"] + bar["height"] < 844
    tab.locator("article details").evaluate_all(OPEN)
    told = tab.locator("article td").filter(has_text=re.compile(".{100}"))
    sizes = told.evaluate_all("cells => cells.map((cell) => [cell.clientWidth, cell.scrollWidth])")
    assert len(sizes) > 40 and all(width > 300 and shown <= width for width, shown in sizes)


def test_the_index_of_claims_is_filtered_by_the_address_and_by_hand(visit) -> None:
    tab = visit("claims", query="?verdict=differs&section=3.5#the-claims")
    index = tab.locator("div.claims-index")
    data = "rows => rows.filter((row) => row.checkVisibility()).map((row) => ({...row.dataset}))"

    def shown() -> list[dict[str, str]]:
        return index.locator("tbody tr").evaluate_all(data)

    index.locator("output").wait_for()
    found = shown()
    assert {(row["section"], row["verdict"]) for row in found} == {("3.5", "differs")}
    for select in index.locator("select").all():
        select.select_option("")
    index.locator("details").evaluate_all(OPEN)
    everything = shown()
    assert len(everything) == index.locator("tbody tr").count() > len(found)
    index.locator("select[name=section]").select_option("3.2")
    index.locator("select[name=verdict]").select_option("holds by construction")
    chosen = {"section": "3.2", "verdict": "holds by construction"}
    few = [row for row in everything if chosen.items() <= row.items()]
    assert few and shown() == few
    expect(index.locator("output")).to_have_text(f"{len(few)} of {len(everything)} listed")
    for select in index.locator("select").all():
        select.select_option("")
    index.get_by_role("searchbox").fill("41.0 BLEU")  # words of the paper's contradiction
    texts = [text.lower() for text in index.locator("tbody tr:visible").all_inner_texts()]
    assert 0 < len(texts) < len(everything) and all("41.0" in t and "bleu" in t for t in texts)


def test_the_book_can_be_read_with_keys_alone(visit) -> None:
    first, second = pages()[:2]
    tab = visit(first)
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.textContent") == "Skip to main content"
    tab.keyboard.press("Enter")
    tab.wait_for_url("**#main-content")
    tab.keyboard.press("Control+K")
    search = tab.locator("dialog input[type=search]")
    search.wait_for(state="visible")
    assert search.evaluate("(input) => input === document.activeElement")
    tab.keyboard.press("Escape")
    search.wait_for(state="hidden")
    expect(search).not_to_be_focused()  # in a field, arrows would move the cursor
    tab.keyboard.press("ArrowRight")
    tab.wait_for_url(f"**/{second}.html")


@pytest.mark.parametrize("width", [390, 820, 1280])
def test_the_rail_has_the_sections_of_a_page_and_on_demand_all_pages(visit, width: int) -> None:
    tab = visit("5-3-optimizer", width)
    toggle, rail = tab.locator(".primary-toggle"), tab.get_by_role("navigation", name="Pages")
    if width < 992:
        expect(rail).to_be_hidden()
        toggle.click()
        expect(tab.get_by_role("dialog")).to_be_visible()
    expect(rail.get_by_role("link", name="Adam, step by step")).to_be_visible()
    other, ask = rail.get_by_role("link", name="5.4 Regularization"), rail.get_by_role("button")
    if width >= 992:
        expect(other).to_be_hidden()
        expect(ask).to_have_text(re.compile(r"^\d+ of \d+, show all$"))
        ask.click()
    expect(other).to_be_visible()
    links = rail.locator("li[data-page] > a").evaluate_all("all => all.map((one) => one.pathname)")
    assert [link.partition("/chapters/")[2] for link in links] == [f"{p}.html" for p in pages()[1:]]
    if width < 992:
        tab.keyboard.press("Escape")
    else:
        toggle.click()
    expect(rail).to_be_hidden()


def test_the_rail_keeps_which_pages_were_read_to_the_end(visit) -> None:
    tab = visit("2-background")
    entry = tab.locator(".rail [data-page='chapters/2-background']")
    expect(entry).not_to_have_class(re.compile("read"))
    tab.locator(".prev-next-footer").scroll_into_view_if_needed()
    expect(entry).to_have_class(re.compile("read"))
    tab.wait_for_timeout(500)  # another process of the browser keeps it
    tab.goto(tab.url.replace("2-background", "1-introduction"))
    expect(entry).to_contain_text(re.compile(r"\d+ min · read"))
    expect(tab.locator(".rail .read")).to_have_count(1)


def test_a_first_chart_is_a_picture_that_comes_alive_and_takes_on_what_was_set(visit) -> None:
    tab = visit("5-3-optimizer")
    chart = tab.locator("div.chart").first
    still, slider = chart.locator(".still"), chart.locator("input[type=range]").first
    assert "warmup" in still.locator("svg.wide").text_content()
    tab.evaluate("document.fonts.ready.then(() => null)")  # nothing moves now
    before = chart.bounding_box()
    slider.evaluate("(input) => { input.value = 4000; input.focus(); }")  # which is a sign
    expect(still).to_have_count(0, timeout=30_000)
    expect(slider).to_have_value("4000")
    expect(slider).to_be_focused()
    expect(chart.locator("svg.marks")).to_contain_text("warmup of 4,000")
    after = chart.bounding_box()
    assert all(abs(after[side] - before[side]) < 4 for side in before)


def test_the_title_of_a_chart_says_what_is_set_between_it_and_the_drawing(visit) -> None:
    tab = visit("4-why-self-attention")
    title, chart = tab.locator(".chart-title").first, tab.locator("div.chart").first
    said = title.inner_text()
    chart.get_by_role("radio").nth(1).check()
    expect(title).not_to_have_text(said)
    boxes = [part.bounding_box() for part in (title, chart.locator("form"), chart.locator("svg"))]
    assert all(above["y"] + above["height"] <= below["y"] for above, below in pairwise(boxes))
    tab.evaluate("document.documentElement.dataset.theme = 'dark'")  # it is drawn anew
    expect(title).to_have_text(said, use_inner_text=True)


def test_arrow_keys_scroll_wide_code_and_then_turn_no_page(visit) -> None:
    tab = visit("3-2-attention", 600)
    address = tab.url
    code = tab.locator("article .highlight:has(> .wrap) > pre:visible").first
    code.focus()
    tab.keyboard.press("ArrowRight")
    expect(code).not_to_have_js_property("scrollLeft", 0)
    assert tab.url == address
    tab.wait_for_timeout(500)  # the scrolling has come to rest
    button = code.locator("xpath=following-sibling::button[@class='wrap']")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    assert code.evaluate("(box) => box.scrollWidth <= box.clientWidth")


def test_a_docstring_shows_its_first_line_unfolds_and_is_copied_whole(visit) -> None:
    tab = visit("3-2-attention")
    button = tab.get_by_role("button", name="docstring").and_(tab.locator(":visible")).first
    code = button.locator("xpath=ancestor::pre")
    rest = button.locator("xpath=following::span[@class='docstring'][1]")
    whole = code.text_content()
    expect(rest).to_be_hidden()
    button.press("Enter")
    expect(button).to_have_attribute("aria-expanded", "true")
    expect(rest).to_be_visible()
    assert rest.text_content().rstrip().endswith('"""') and rest.text_content() in whole
    assert "…" not in whole  # what the button shows is not part of the code
    button.click()
    expect(rest).to_be_hidden()


def test_what_is_too_wide_fades_and_its_button_goes_when_it_fits(visit) -> None:
    tab = visit("3-2-attention", 600)
    formulas = tab.locator("article div.math > div[tabindex='0']")
    assert formulas.count() == tab.locator("article div.math > div.fades").count()
    shown = "article .highlight:has(> .wrap:visible)"
    tab.locator(shown).evaluate_all(
        "(all) => { all.find((code) => code.firstChild.scrollWidth < 720).id = 'fitting'; }"
    )
    code = tab.locator("#fitting")
    assert code.evaluate(
        "({ children: [pre, wrap] }) => { const text = document.createRange();"
        " text.selectNodeContents(pre);"
        " return wrap.getBoundingClientRect().top >= text.getBoundingClientRect().bottom - 2; }"
    )
    assert tab.locator(".cell_output pre + .wrap").count() == 0
    tab.set_viewport_size({"width": 1920, "height": 900})
    expect(code.locator("> .wrap")).to_be_hidden()
    expect(code.locator("> pre[tabindex='0'], > pre.fades")).to_have_count(0)
    tab.set_viewport_size({"width": 600, "height": 900})
    expect(code.locator("> .wrap")).to_be_visible()
    expect(code.locator("> .wrap")).to_have_count(1)
    tab.set_viewport_size({"width": 390, "height": 900})  # a phone breaks all lines of code
    assert code.evaluate("({ firstChild: pre }) => pre.scrollWidth <= pre.clientWidth")
    tab.goto((SITE / "chapters" / "5-2-hardware-schedule.html").as_uri())
    button = tab.get_by_role("button", name="All lines").first  # of long code, the first ones show
    part = button.locator("xpath=preceding-sibling::pre")
    before = part.bounding_box()["height"]
    button.click()
    assert part.bounding_box()["height"] > before
    assert part.evaluate("(pre) => pre.scrollHeight <= pre.clientHeight + 4")
    tab.goto((SITE / "chapters" / "3-assembly.html").as_uri())
    tables = tab.locator("article table.dataframe")  # the widest becomes a list
    assert tables.evaluate_all("(all) => all.every((one) => one.scrollWidth <= innerWidth)")
    tab.goto((SITE / "chapters" / "by-hand.html").as_uri())
    numbers = tab.locator("pre:has(.aligned)", has_text="÷ √32")  # they scroll, and have no button
    expect(numbers).to_have_class(re.compile("fades"))
    expect(numbers.locator("xpath=following-sibling::button[@class='wrap']")).to_have_count(0)
    numbers.evaluate("(box) => { box.scrollLeft = 1000; }")
    expect(numbers).not_to_have_class(re.compile("fades"))  # which is its end


def test_the_book_becomes_one_pdf(browser, tmp_path: Path) -> None:
    pypdf = pytest.importorskip("pypdf", reason="needs the extra `pdf`")
    from pdf import bind, links, print_page

    printed = {}
    for page in ("3-4-embeddings-softmax", "3-5-positional-encoding"):
        part = tmp_path / f"{page}.pdf"
        printed[page] = (print_page(browser, page, part), part)
    bind(printed, tmp_path / "book.pdf")
    book = pypdf.PdfReader(tmp_path / "book.pdf")
    starts = [book.get_destination_page_number(entry) for entry in book.outline]
    assert [entry.title for entry in book.outline] == [title for title, _ in printed.values()]
    assert starts[0] == 0 and book.pages[starts[1]].extract_text().startswith("3.5 Positional")
    left = {page for _, _, page in links(pypdf.PdfWriter(clone_from=book))}
    assert left and not left & set(printed)  # those between the two pages lead inside


def test_a_chart_opens_as_large_as_the_window_and_as_it_was_set(visit) -> None:
    tab = visit("5-3-optimizer", 1600)
    chart = tab.locator("div.chart").first
    chart.locator("input[type=range]").first.press("End")
    button = chart.get_by_role("button", name="Enlarge")
    button.press("Enter")
    dialog = tab.get_by_role("dialog")
    dialog.locator("svg.marks").wait_for()
    large, box = dialog.locator("svg.marks"), chart.locator("svg.marks").bounding_box()
    expect(large).to_have_css("transform", re.compile(r"matrix\(1\.[5-9]|matrix\(2"))
    assert large.bounding_box()["width"] > 1.5 * box["width"]
    slider = dialog.locator("input[type=range]").first
    assert slider.input_value() == slider.get_attribute("max")
    said = large.locator("text", has_text="warmup of")
    before = said.inner_html()
    slider.press("Home")
    expect(said).not_to_have_text(before)
    tab.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(button).to_be_focused()


def test_an_enlarged_chart_knows_where_the_pointer_is(visit) -> None:
    tab = visit("3-1-encoder-decoder-stacks", 1600)
    chart = tab.locator("div.chart[aria-label^='Heat map of the Jacobian of a two-layer']")
    chart.scroll_into_view_if_needed()
    chart.get_by_role("button", name="Enlarge").click()
    cell = tab.get_by_role("dialog").locator(".mark-rect.role-mark path").nth(20)
    cell.hover()
    tip = tab.get_by_role("dialog").locator("#vg-tooltip-element")
    expect(tip).to_be_visible()
    assert tip.bounding_box()["x"] - cell.bounding_box()["x"] < 200
    expect(tip).to_contain_text("y₆")


def test_experiments_are_folded_until_a_link_or_a_click_or_paper_wants_them(visit) -> None:
    page = next(page for page in pages() if html(page).count('class="experiment"') > 1)
    tab = visit(page)
    experiments = tab.locator(".experiment")
    last = experiments.last
    verdicts = lambda inside: (
        f"one => [...new Set([...one.querySelectorAll('{inside}')].map("
        "(at) => at.dataset.verdict ?? at.textContent.replace(/^\\S+ /, '')))]"
    )
    judged = experiments.filter(has=tab.locator("aside.claim")).first
    assert judged.evaluate(verdicts("summary > small")) == judged.evaluate(verdicts("aside.claim"))
    expect(tab.locator(".experiment[open]")).to_have_count(0)
    expect(tab.locator("#exercises p").first).to_be_visible()
    expect(last.locator(":scope > summary > :is(h3, h4)")).to_be_visible()
    section = last.locator("..").get_attribute("id")
    for _ in range(2):  # also where the address is the same
        tab.evaluate("scrollTo(0, 0)")
        tab.locator(f"article a[href$='#{section}']:visible").first.click()
        expect(last).to_have_attribute("open", "")
        expect(last.locator("summary").first).to_be_in_viewport()
        expect(tab.locator(".experiment[open]")).to_have_count(1)
        last.locator("summary").first.click()
    tab.get_by_role("button", name="Open all").click()
    expect(tab.locator(".experiment[open]")).to_have_count(experiments.count())
    tab.get_by_role("button", name="Close all").click()
    for event, opened in ("beforeprint", experiments.count()), ("afterprint", 0):
        tab.evaluate(f"dispatchEvent(new Event('{event}'))")
        expect(tab.locator(".experiment[open]")).to_have_count(opened)


def test_one_sentence_leads_from_page_to_page_and_back_to_its_steps_by_hand(visit) -> None:
    tab = visit(next(iter(STATIONS)), 390)
    way = tab.get_by_role("navigation", name="One sentence’s way")
    for page, (title, by_hand) in STATIONS.items():
        way.get_by_role("link", name=title, exact=True).click()
        tab.wait_for_url(re.compile(rf"{page}\.html(#|$)"))
        expect(way.locator("[aria-current=step]")).to_have_text(title)
        at_an_end = page in (next(iter(STATIONS)), next(reversed(STATIONS)))
        expect(way.get_by_role("listitem")).to_have_count(2 if at_an_end else 3)
        if by_hand:
            way.get_by_role("link", name="by hand").click()
            expect(tab.locator(f"#{by_hand} + h2")).to_be_in_viewport()
            tab.go_back()


def test_solutions_unfold_and_charts_follow_the_theme_and_paper_is_light(visit) -> None:
    tab = visit("5-3-optimizer", first="localStorage.setItem('mode', 'dark')")
    solution = tab.locator("details.hide", has_text="Solution").first
    assert not solution.locator("pre").first.is_visible()
    solution.locator("summary").click()
    assert solution.locator("pre").first.is_visible()
    chart = tab.locator("div.chart").first
    chart.scroll_into_view_if_needed()
    chart.and_(tab.locator(".drawn")).wait_for()  # until then, it may be its own still picture
    text = chart.locator("svg text").first
    dark = text.evaluate("(text) => getComputedStyle(text).fill")
    theme = "document.documentElement.dataset.theme"
    tab.evaluate(f"{theme} = 'light'")
    expect(text).not_to_have_css("fill", dark, timeout=30_000)
    tab.evaluate(f"{theme} = 'dark'")
    expect(text).to_have_css("fill", dark, timeout=30_000)
    for event, expected in ("beforeprint", "light"), ("afterprint", "dark"):
        tab.evaluate(f"dispatchEvent(new Event('{event}'))")
        assert tab.evaluate(theme) == expected
    tab.emulate_media(media="print")
    cut = "[...document.querySelectorAll('pre')].filter((e) => e.scrollWidth > e.clientWidth)"
    assert tab.evaluate(f"{cut}.length") == 0


FIGURE_1 = r'<div class="alive">.*?<script type="application/json">(.*?)</script>'


def figure_1() -> dict:
    return json.loads(re.search(FIGURE_1, html("3-model-architecture"), re.DOTALL)[1])


def strip_of(shown: dict, stack: str, number: int) -> list[int]:
    return list(memoryview(b64decode(shown["strips"][stack][number])).cast("b"))


@pytest.fixture(scope="module")
def translator() -> Translator:
    return load_pretrained("multi30k-en-de")


@torch.no_grad()
def test_figure_1_shows_the_vectors_and_weights_of_the_model(translator) -> None:
    shown, model, fired = figure_1(), translator.model, {}
    places = {
        ("encoder", 0): "src_embed.0",
        ("encoder", 2 + 4): "encoder.layers.1.self_attn",
        ("encoder", 2 + 10): "encoder.layers.2.feed_forward",
        ("encoder", 2 + 15): "encoder.layers.3.sublayer.1",
        ("decoder", 1): "tgt_embed.1",
        ("decoder", 2 + 8): "decoder.layers.1.src_attn",
        ("decoder", 2 + 18): "decoder.layers.3.self_attn",
        ("decoder", 2 + 23): "decoder.layers.3.sublayer.2",
    }
    hooks = []
    for name in places.values():
        hook = lambda box, given, output, name=name: fired.setdefault(name, []).append(output[0])
        hooks.append(model.get_submodule(name).register_forward_hook(hook))
    src = torch.tensor(encode_source(translator.tokenizer, ["A man is riding a bicycle."]))
    with record_attention(model) as seen:
        ys = greedy_decode(model, src, None, 20, START, END)  # step by step
    for hook in hooks:
        hook.remove()
    assert len(shown["target"]) == len(shown["written"]) == ys.size(1) - 1
    assert all(len(texts) == n for texts, n in zip(shown["strips"].values(), (18, 26), strict=True))
    for (stack, number), name in places.items():
        newest = [step[-1:] for step in fired[name]] if stack == "decoder" else fired[name]
        numbers = torch.cat(newest)[:, :32].flatten()
        expected = 127 * numbers / numbers.abs().max()
        found = torch.tensor(strip_of(shown, stack, number), dtype=torch.float32)
        torch.testing.assert_close(found, expected, rtol=0, atol=1.5)
    attentions = {
        "encoder": "encoder.layers.{}.self_attn",
        "decoder": "decoder.layers.{}.self_attn",
    }
    for kind, name in (attentions | {"cross": "decoder.layers.{}.src_attn"}).items():
        for layer, rows in enumerate(shown["weights"][kind]):
            weights = 100 * seen[name.format(layer)][0].mean(dim=0)
            assert (torch.tensor(rows) - weights).abs().max() <= 0.51, name
    last = model.generator(model(src, ys[:, :-1]))[0].exp()
    for found, likely in zip(last, shown["likely"], strict=True):
        percent = 100 * found.topk(5).values
        assert [p for *_, p in likely] == pytest.approx(percent.tolist(), abs=0.51)
    stack = model.encoder.layers
    before = model.encode(src)[0]
    x = model.src_embed(src)
    for layer in stack[:3]:
        x = layer(x)
    x = stack[3].sublayer[0](x, lambda y: stack[3].self_attn(y, y, y))[0]
    cosine = (x * before).sum(dim=-1) / x.norm(dim=-1) / before.norm(dim=-1)
    degrees = [math.degrees(math.acos(value)) for value in cosine.tolist()]
    assert shown["turned"]["encoder"][2 + 15] == pytest.approx(degrees, abs=0.51)
    assert shown["turned"]["encoder"][2 + 14] is None  # not yet added


def test_figure_1_is_clicked_marked_and_played(visit) -> None:
    shown = figure_1()
    tab = visit("3-model-architecture", 390, 844, reduced_motion="reduce", offline=True)
    place = tab.locator(".alive")
    told = place.get_by_role("status")
    words = place.get_by_role("radiogroup", name="Words of the sentence").get_by_role("radio")
    pieces = place.get_by_role("radiogroup", name="Pieces of the translation").get_by_role("radio")
    box = lambda name: place.get_by_role("radio", name=name, exact=True)
    bicycle = shown["source"].index("bicycle")

    strip = lambda stack, number, row: strip_of(shown, stack, number)[32 * row : 32 * row + 32]
    cells = """all => all.map((cell) => Math.round(127 * cell.getAttribute('fill-opacity'))
        * (cell.classList.contains('below') ? -1 : 1))"""
    drawn = lambda row: row.locator(".strip rect").evaluate_all(cells)

    tab.wait_for_selector(".alive .live svg")
    stops = tab.evaluate("(shown) => window.figure1.stopsOf(shown)", shown)
    assert len(stops) <= 14
    order = [(each["stack"] == "decoder", each["pieces"], each["layer"]) for each in stops]
    assert order == sorted(order)
    expect(told).to_contain_text(stops[-3]["said"])
    words.nth(bicycle).click()
    place.get_by_label("Layer").select_option("3")
    box("Multi-Head Attention, encoder").click()
    percent = max(shown["weights"]["encoder"][2][bicycle])
    expect(told).to_contain_text(re.compile(f"“bicycle” attends to.*{percent}%"))
    most = shown["weights"]["encoder"][2][bicycle].index(percent)
    expect(words.nth(most).locator(".turn text")).to_have_text(f"{percent}%")
    assert drawn(words.nth(bicycle)) == strip("encoder", 2 + 8, bicycle)
    expect(pieces).to_have_count(0)
    tab.keyboard.press("ArrowUp")
    expect(box("Add & Norm, encoder").first).to_be_focused()
    assert drawn(words.nth(bicycle)) == strip("encoder", 2 + 9, bicycle)
    degrees = shown["turned"]["encoder"][2 + 9][bicycle]
    expect(words.nth(bicycle).locator(".turn text")).to_have_text(f"{degrees}°")
    expect(words.nth(bicycle)).to_be_checked()

    place.get_by_role("button", name="Play", exact=True).click()
    expect(place.locator("small")).to_have_text(f"stop 1 of {len(stops)}")
    expect(told).to_have_text(f"Input Embedding, encoder. {stops[0]['said']}")
    expect(pieces).to_have_count(0)
    place.get_by_role("button", name="Pause").click()
    for stop in stops[1:6]:
        place.get_by_role("button", name="Next").click()
        expect(told).to_contain_text(stop["said"])
    memory = [drawn(row) for row in words.all()]
    slider = place.get_by_role("slider")
    slider.press("End")
    expect(told).to_contain_text("Softmax, decoder.")
    expect(place.locator(".bars rect")).to_have_count(5)
    expect(pieces).to_have_count(len(shown["target"]))
    pieces.nth(1).press("ArrowDown")
    name, _, p = shown["likely"][2][0]
    expect(told).to_contain_text(f"“Mann”: “{name}” {p}%")
    box("Add & Norm, decoder").last.press("Enter")
    assert drawn(pieces.nth(2)) == strip("decoder", 25, 2)
    assert [drawn(row) for row in words.all()] == memory
    place.get_by_role("button", name="Box below").click()
    expect(told).to_contain_text("Feed Forward, decoder")
    place.get_by_role("button", name="Next").click()
    shown_at = [place.locator(part).bounding_box() for part in (".figure", ".note")]
    expect(place.locator(".rows")).to_be_visible()  # below
    for box_of in shown_at:  # the whole figure and the sentence about a box are on one screen
        assert box_of["y"] >= 48 and round(box_of["y"] + box_of["height"]) <= 844
    assert tab.url.endswith("3-model-architecture.html")


def test_figure_1_takes_the_reader_s_sentence(visit, translator) -> None:
    own = "A small dog jumps over a fence."
    tab, asked = visit("index", offline=True), list[str]()
    tab.on("request", lambda request: asked.append(request.url))
    field = tab.locator(".hero, .own").get_by_label("English", exact=True)
    field.fill(own)
    expect(tab.locator(".hero .said")).to_have_text(re.compile("^In German"), timeout=30_000)
    tab.get_by_role("link", name="See it go through the model").click()  # the sentence goes along
    note, place = tab.locator(".own").get_by_role("status"), tab.locator(".alive")
    german = f"In German: {translator.translate(own)}"
    expect(note).to_have_text(german, timeout=30_000)
    words = place.get_by_role("radiogroup", name="Words of the sentence").get_by_role("radio")
    expect(words).to_have_count(len(encode_source(translator.tokenizer, [own])[0]))
    assert words.evaluate_all("all => all.map((row) => row.querySelector('text').textContent)") == [
        *own[:-1].split(), ".", "end"
    ]  # fmt: skip
    box = lambda name: place.get_by_role("radio", name=name, exact=True)
    box("Multi-Head Attention, encoder").click()
    place.get_by_label("Layer").select_option("2")
    words.nth(2).click()
    row = read_attention(translator, own)["encoder"].weights[1].mean(dim=0)[2]
    best = f"“{own.split()[int(row[:-2].argmax())]}” {100 * row.max():.0f}%"
    expect(place.get_by_role("status")).to_contain_text("“dog” attends to")
    expect(place.get_by_role("status")).to_contain_text(best)
    for text, told in {
        "": "Type an English sentence.",
        "A dog " * 30: "has more than 60 tokens, but the figure has room for 20",
        "A man and 犬.": "The vocabulary does not know “犬”",
    }.items():
        field.fill(text)
        expect(note).to_contain_text(told)
    field.fill(figure_1()["sentence"])
    expect(words).to_have_count(len(figure_1()["source"]))
    assert tab.url.endswith("3-model-architecture.html")
    field.fill(own)
    expect(note).to_have_text(german)
    tab.reload()  # the address keeps it
    expect(note).to_have_text(german, timeout=30_000)


def test_boxes_are_switched_off_for_the_reader_s_sentence(visit, translator) -> None:
    tab = visit("3-model-architecture", offline=True)
    form = tab.locator("div.live[data-show=switched]")
    cells = tab.locator("table:has(th:has-text('switched off')) tbody td:nth-child(2)")
    first = cells.all_inner_texts()
    field, note = form.get_by_label("English", exact=True), form.locator(".note")
    field.fill("Two dogs play in the snow.")
    field.press("Enter")
    expect(note).to_have_text(re.compile("^The table above"), timeout=60_000)
    found = cells.all_inner_texts()
    assert found[0] == translator.translate("Two dogs play in the snow.")
    assert len(found) == len(first) == 7 and len({*found}) > 2 and not {*found} & {*first}
    field.fill("A dog is chasing a man.")
    field.press("Enter")
    expect(note).to_have_text(re.compile("nothing is sent"))
    assert cells.all_inner_texts() == first


def test_the_evidence_of_claims_is_printed(visit) -> None:
    tab = visit("3-2-attention")
    folded = tab.locator(".claim > details:not([open])")
    expect(folded.first).to_be_visible()
    tab.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    expect(folded).to_have_count(0)


def test_figure_1_tells_of_a_model_that_is_not_there(visit) -> None:
    tab = visit("3-model-architecture")
    lose = "(path) => path.includes('/models/') ? Promise.reject(new Error('lost')) : load(path)"
    tab.evaluate(f"() => {{ const load = window.load = loadScript; loadScript = {lose}; }}")
    note = tab.locator(".own").get_by_role("status")
    expect(note).to_contain_text("MB; nothing is sent")
    height = tab.locator(".own").bounding_box()["height"]
    tab.locator(".own").get_by_label("English", exact=True).focus()
    expect(note).to_have_text(re.compile("the model could not be loaded"))
    assert tab.locator(".own").bounding_box()["height"] == height
    tab.evaluate("() => { loadScript = load; }")
    tab.locator(".own").get_by_label("English", exact=True).fill("A dog runs.")
    expect(note).to_have_text(re.compile("^In German"), timeout=30_000)


def test_figure_1_computes_in_view(visit) -> None:
    for height in 800, 640:
        tab = visit("3-model-architecture", 1280, height, reduced_motion="reduce")
        place = tab.locator(".alive")
        tab.wait_for_selector(".alive .live svg")
        for _ in range(13):
            place.get_by_role("button", name="Next").click()
            for part in ".figure [aria-checked=true]", ".live":
                box = place.locator(part).bounding_box()
                assert box["y"] >= 50 and box["y"] + box["height"] <= height, part


def test_the_beam_s_picture_is_above_its_choices_and_scrolls_on_a_phone(visit) -> None:
    for width, high in {390: 600, 1280: 475}.items():
        tab = visit("6-1-machine-translation", width)
        place = tab.locator(".decoder")
        step = place.get_by_role("button", name="Step", exact=True)
        picture = place.locator(".wide:has(path)")
        top = place.locator(".choosing button").first.bounding_box()["y"]
        assert picture.bounding_box()["y"] + picture.bounding_box()["height"] < top
        assert place.bounding_box()["height"] <= high  # all of the game on one screen
        told = place.locator("[role=status]")
        while step.get_attribute("aria-disabled") == "false":
            before = told.inner_text()
            step.click()
            expect(told).not_to_have_text(before)
        assert picture.evaluate("(box) => box.scrollWidth > box.clientWidth") == (width == 390)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_a_training_is_played_as_a_film(visit) -> None:
    film = json.loads((ROOT / "data" / "results" / "film.json").read_text(encoding="utf-8"))
    frames, last = film["frames"], len(film["frames"]) - 1
    tab = visit("5-2-hardware-schedule", 390, 844, reduced_motion="reduce", offline=True)
    place = tab.locator(".film")
    slider, head = place.get_by_role("slider"), place.get_by_role("combobox")
    ribbons = place.locator(".looks path")
    pairs = {int(q): ks for q, ks in film["pairs"].items()}
    own = torch.tensor([[k in pairs.get(q, []) for k in range(11)] for q in range(11)])
    # The broadest end of each outline, in its middle.
    width = """all => all.map((one) => {
        const places = one.getAttribute("d").match(/[\\d.]+/g).map(Number);
        return (places[places.length / 2 + 1] - places[places.length / 2 - 1]) / -20;
    })"""

    def weights(number: int) -> torch.Tensor:
        """(layers, h, German, English)"""
        rows = lambda head: [[*map(int, row.split())] for row in head]
        layers = frames[number]["weights"]
        return torch.tensor([[rows(head) for head in layer] for layer in layers]) / 100

    def compare(number: int, rows: torch.Tensor | None = None) -> None:
        """The checkpoint is shown, with these weights, or the mean of the last layer's."""
        frame = frames[number]
        rows = weights(number)[-1].mean(dim=0) if rows is None else rows
        inside = sum(float(rows[q, ks].sum()) for q, ks in pairs.items())
        expect(place.locator(".counter")).to_have_text(f"update {frame['update']:,}")
        weight, loss = place.locator("circle ~ text.now").all_text_contents()[:2]
        assert float(weight) == pytest.approx(inside / len(film["pairs"]), abs=0.0051)
        assert float(loss) == pytest.approx(frame["loss"], abs=0.0051)
        told = f"attention to what a word translates {weight}, loss {loss}"
        assert slider.get_attribute("aria-valuetext") == f"update {frame['update']:,}, {told}"
        written, meant = place.locator("dd").all_inner_texts()
        assert written.split() == frame["translation"].split()
        assert meant.startswith("In English: ") and len(meant) > len("In English: ")
        drawn = [*rows[~own].tolist(), *rows[own].tolist()]  # the blue ones are on top
        assert ribbons.evaluate_all(width) == pytest.approx(drawn, abs=0.0051)
        assert ribbons.evaluate_all("all => all.map((one) => one.matches('.own'))") == [
            *[False] * int((~own).sum()), *[True] * int(own.sum())
        ]  # fmt: skip
        blue = [q for q, ks in pairs.items() if float(rows[q, ks].sum()) > 0.5]
        words = place.locator("text[lang=de]").evaluate_all(
            "all => all.flatMap((one, q) => (one.matches('.now') ? [q] : []))"
        )
        assert words == blue

    title = place.locator("strong").inner_text()
    early, late = map(int, re.search(r"^From update (\d+) to (\d+)", title).groups())
    found = next(i for i in range(last) if frames[i]["update"] == late)
    assert any(frame["update"] == early for frame in frames)
    compare(found)  # where it opens
    place.get_by_role("button", name="Play", exact=True).click()
    place.get_by_role("button", name="Pause").click()
    compare(0)
    slider.press("End")
    compare(last)
    slider.press("Home")
    for _ in range(last // 2):
        slider.press("ArrowRight")
    compare(last // 2)
    sooner = place.locator("polyline.sooner").first
    assert sooner.evaluate("(line) => line.points.numberOfItems") == last // 2 + 1
    head.select_option("Layer 4, head 3")
    compare(last // 2, weights(last // 2)[3, 2])
    head.select_option("Layer 4, mean of its heads")
    slider.press("End")
    height = place.bounding_box()["height"]
    place.get_by_role("button", name="Play", exact=True).click()
    reached = f"update {frames[2]['update']:,}"
    expect(place.locator(".counter")).to_have_text(reached, timeout=20_000)
    assert place.bounding_box()["height"] == height
    place.get_by_role("button", name="Pause").click()
    compare(2)
    top, bottom = (place.locator(part).bounding_box() for part in (".controls", ".looks"))
    assert bottom["y"] + bottom["height"] - top["y"] <= 600  # control and response on one screen
    tab.set_viewport_size({"width": 1280, "height": 800})
    place.get_by_role("button", name="Play", exact=True).click()
    box = place.bounding_box()
    assert box["y"] >= 0 and box["y"] + box["height"] <= 800  # all of it is seen
    assert box["height"] <= 560
    assert tab.url.endswith("5-2-hardware-schedule.html")
