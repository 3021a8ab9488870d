"""The built site, as a browser without a network shows it. Needs `make book` before."""

import os
import re
import shutil
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from contents import pages

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "_build" / "html"
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
REQUIRED = "ANNOTATED_REQUIRE_BROWSER" in os.environ  # then nothing here may be skipped

pytestmark = pytest.mark.skipif(
    not (SITE / "index.html").exists() and not REQUIRED,
    reason="the site is not built; run `make book`",
)
needs_browser = pytest.mark.skipif(
    BROWSER is None and not REQUIRED, reason="no Chromium on this machine"
)


def html(page: str) -> str:
    return (SITE / "chapters" / f"{page}.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", pages())
def test_links_inside_the_book_lead_somewhere(page: str) -> None:
    body = re.sub(r"<pre\b.*?</pre>", "", html(page), flags=re.DOTALL)
    for target in re.findall(r'(?:href|src|xlink:href)="([^"#][^"]*)"', body):
        parts = urlsplit(target)
        if not parts.scheme and not parts.netloc:
            file = SITE / "chapters" / unquote(parts.path)
            assert file.exists(), f"{page}: {target}"
            name = re.search(r'="([^"]+)"', f'="{parts.fragment}"')
            if name and file.suffix == ".html":
                assert f'id="{parts.fragment}"' in file.read_text(encoding="utf-8"), target


@pytest.mark.parametrize("page", pages())
def test_no_sphinx_syntax_shows(page: str) -> None:
    body = re.sub(r"<(pre|script|code)\b.*?</\1>", "", html(page), flags=re.DOTALL)
    for leftover in ("{cite}", "{ref}", "{eval-rst}", ":::", "```", ")=<", "**§"):
        assert leftover not in body, f"{page}: {leftover}"


@pytest.mark.parametrize("page", pages())
def test_headings_stand_in_order(page: str) -> None:
    article = re.search(r"<article.*?</article>", html(page), re.DOTALL)
    assert article
    levels = [int(level) for level in re.findall(r"<h([1-6])[ >]", article[0])]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_every_image_has_an_alternative_text() -> None:
    for page in pages():
        for image in re.findall(r"<img\b[^>]*>", html(page)):
            assert re.search(r'alt="[^"]+"', image), f"{page}: {image}"
        for figure in re.findall(r"<svg\b.*?</svg>", html(page), flags=re.DOTALL):
            if "fig1-" in figure or "fig2-" in figure:
                assert "<title" in figure and "<desc" in figure


def test_equations_figures_and_citations_stand_at_their_anchors() -> None:
    assert 'id="eq-1"' in html("3-2-attention")
    assert 'id="eq-2"' in html("3-3-feed-forward")
    assert 'id="eq-3"' in html("5-3-optimizer")
    assert 'id="figure-1"' in html("3-model-architecture")
    assert 'id="figure-2"' in html("3-2-attention")
    # a citation shows the paper's own number
    title = 'title="Dzmitry Bahdanau[^"]*"'
    assert re.search(rf'href="bibliography.html#[^"]*" {title}>2</a>', html("3-2-attention"))


def test_paper_layer_is_marked() -> None:
    page = html("3-2-attention")
    marks = re.findall(r'class="mark[^"]*"[^>]*>([^<]+)<', page)
    assert marks[:2] == ["§3.2 ¶1", "Figure 2"]
    assert [m for m in marks if m.startswith("§3.2.1")] == [f"§3.2.1 ¶{i}" for i in range(1, 5)]
    assert page.count("paper-layer") >= len(marks)


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=BROWSER, args=arguments)
        yield browser
        browser.close()


LOOK = """() => ({
    charts: document.querySelectorAll('div.chart').length,
    drawn: document.querySelectorAll('div.chart.drawn').length,
    sources: document.querySelectorAll('.math').length,
    formulas: document.querySelectorAll('mjx-container').length,
    broken: document.querySelectorAll('mjx-merror, [data-mjx-error]').length,
    overflow: document.documentElement.scrollWidth - innerWidth,
    theme: document.documentElement.dataset.theme,
})"""


def barriers(tab, code: bool) -> list[tuple[str, str]]:
    """What axe-core calls serious or critical: contrast, names, roles, reach by keyboard.

    Thousands of coloured words of code, or marks of charts, take it minutes, so they are looked at
    on one page alone.
    """
    from axe_playwright_python.sync_playwright import Axe

    context = None
    if not code:
        context = {"exclude": [["pre"], [".sig"]]}
        # What is excluded is walked through all the same: so the words become one plain text.
        tab.evaluate("for (const e of document.querySelectorAll('pre, .sig')) e.textContent += ''")
        tab.evaluate("for (const e of document.querySelectorAll('.chart svg')) e.textContent = ''")
    found = Axe().run(tab, context=context, options={"preload": False}).response
    return [
        (problem["help"], problem["nodes"][0]["html"][:200])
        for problem in found["violations"]
        if problem["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("page", pages())
def test_a_page_is_not_heavy(page: str) -> None:
    assert (SITE / "chapters" / f"{page}.html").stat().st_size < 1_000_000


@needs_browser
@pytest.mark.parametrize("page", pages())
@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (390, "dark")])
def test_page_in_a_browser_without_network(browser, page: str, width: int, theme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, offline=True)
    tab = context.new_page()
    problems: list[str] = []
    tab.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on("request", lambda r: problems.append(r.url) if r.url.startswith("http") else None)
    tab.add_init_script(f"localStorage.setItem('mode', '{theme}')")
    tab.goto((SITE / "chapters" / f"{page}.html").as_uri())
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")  # draws all charts at once, in light
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    tab.wait_for_function(
        "document.querySelectorAll('div.chart:not(.drawn)').length === 0"
        " && (!document.querySelector('.math') || document.querySelector('mjx-container'))",
        timeout=20_000,
    )
    seen, hindrances = tab.evaluate(LOOK), barriers(tab, code=page == "index")
    context.close()
    assert not problems
    assert not hindrances, "not everybody can read this"
    assert seen["theme"] == theme
    assert seen["drawn"] == seen["charts"] == html(page).count('<div class="chart"')
    assert seen["broken"] == 0
    assert seen["overflow"] <= 0, "the page is wider than the screen"


# Fixed work, in seconds; two tests at once, or a slower machine, stretch it as they do a page.
WORK = """() => {
    const start = performance.now();
    let x = 1;
    for (let i = 0; i < 4e7; i++) x = (x * 31 + i) | 0;
    return x && (performance.now() - start) / 1000;
}"""
WORK_AT_REST = 0.21  # what it takes on the two cores of 2026 on which the limit was set


@needs_browser
@pytest.mark.parametrize("page", pages())
def test_a_page_answers_within_two_seconds(browser, page: str) -> None:
    """From the call to the first moment at which the page has loaded and has nothing to do."""
    seconds = []
    while len(seconds) < 3 and min(seconds, default=9.0) > 2:  # again if the machine was busy
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        work = tab.evaluate(WORK)
        tab.goto((SITE / "chapters" / f"{page}.html").as_uri())
        idle = "new Promise((done) => requestIdleCallback(() => done(performance.now() / 1000)))"
        answer = tab.evaluate(idle)
        work = (work + tab.evaluate(WORK)) / 2  # the machine before, and after
        seconds.append(answer / max(1.0, work / WORK_AT_REST))
        tab.close()
    assert min(seconds) < 2


@needs_browser
@pytest.mark.parametrize(
    ("asked", "place"),
    [
        ("label smoothing", "5-4-regularization.html#label-smoothing"),
        ("beam search", "6-1-machine-translation.html#beam-search"),
        ("length penalty", "6-1-machine-translation.html"),
        ("multi-head attention", "3-2-attention.html#multi-head-attention"),
        ("positional encoding", "3-5-positional-encoding.html"),
    ],
)
def test_search_finds_first_where_a_thing_is_taught(browser, asked: str, place: str) -> None:
    tab = browser.new_page()
    tab.goto((SITE / "search.html").as_uri() + f"?q={asked.replace(' ', '+')}")
    tab.wait_for_selector("#search-results li a")
    tab.wait_for_function("document.querySelector('.search-summary').textContent.includes('found')")
    assert tab.locator("#search-results li a").first.get_attribute("href") == f"chapters/{place}"
    tab.close()


def test_reference_and_chapters_lead_to_each_other() -> None:
    there = 'href="3-2-attention.html#attention.MultiHeadedAttention"'
    assert there in html("api") and 'id="attention.MultiHeadedAttention"' in html("3-2-attention")
    assert 'href="api.html#annotated.attention.MultiHeadedAttention"' in html("3-2-attention")
    assert html("api").count(">in the book</a>") > 200


def test_pages_say_what_they_are_to_whoever_links_to_them() -> None:
    head = html("5-3-optimizer").partition("</head>")[0]
    said = dict(re.findall(r'<meta (?:property|name)="([\w:]+)" content="([^"]+)"', head))
    assert said["og:title"] == "5.3 Optimizer" and 80 < len(said["og:description"]) <= 202
    assert said["og:image"].endswith("_static/social.jpg")
    assert (SITE / "_static" / "social.jpg").stat().st_size > 10_000


@needs_browser
def test_on_paper_the_page_is_light_and_whole(browser) -> None:
    tab = browser.new_page()
    tab.add_init_script("localStorage.setItem('mode', 'dark')")
    tab.goto((SITE / "chapters" / "5-3-optimizer.html").as_uri())
    theme = "document.documentElement.dataset.theme"
    for event, expected in ("beforeprint", "light"), ("afterprint", "dark"):
        tab.evaluate(f"dispatchEvent(new Event('{event}'))")
        assert tab.evaluate(theme) == expected
    tab.emulate_media(media="print")
    cut = "[...document.querySelectorAll('pre')].filter((e) => e.scrollWidth > e.clientWidth)"
    assert tab.evaluate(f"{cut}.length") == 0
    tab.close()


@needs_browser
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


@needs_browser
def test_of_the_prepared_sentences_one_is_shown_and_loaded(browser) -> None:
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    tab.goto((SITE / "chapters" / "attention-visualizations.html").as_uri())
    choice = tab.locator("div.choice")
    charts = choice.locator("div.chart")
    files = charts.evaluate_all("charts => charts.map(chart => chart.dataset.spec)")
    sizes = {name: (SITE / "charts" / f"{name}.js").stat().st_size for name in files}
    assert len(sizes) >= 12 and sum(sizes.values()) < 1_500_000
    loaded = f"{files}.filter(name => window.chartSpecs?.[name])"
    assert tab.evaluate(loaded) == []
    choice.locator("label > select").select_option(index=3)
    choice.scroll_into_view_if_needed()
    tab.wait_for_function(f"window.chartSpecs?.['{files[3]}']")
    assert [chart.is_visible() for chart in charts.all()] == [i == 3 for i in range(len(files))]
    assert tab.evaluate(loaded) == [files[3]]
    tab.close()


@needs_browser
def test_solutions_unfold_and_charts_follow_the_theme(browser) -> None:
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    tab.goto((SITE / "chapters" / "5-3-optimizer.html").as_uri())
    solution = tab.locator("details.hide", has_text="Solution").first
    assert not solution.locator("pre").first.is_visible()
    solution.locator("summary").click()
    assert solution.locator("pre").first.is_visible()

    tab.locator("div.chart").first.scroll_into_view_if_needed()
    tab.wait_for_selector("div.chart.drawn svg")
    label = "getComputedStyle(document.querySelector('div.chart svg text')).fill"
    colours = set()
    for theme in ("light", "dark"):
        tab.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
        tab.wait_for_timeout(700)
        colours.add(tab.evaluate(label))
    assert len(colours) == 2
    tab.close()
