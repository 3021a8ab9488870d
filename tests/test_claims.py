"""Claims: which verdict a comparison gives, how it is shown, and that the build collects all."""

import html
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from book.claims import MARKS, Verdict, claim, powers

pytest.importorskip("myst_nb", reason="needs the extra `book`")

import small_books
import verdicts
from cells import PaperLayer, show_paper
from docutils import nodes
from docutils.frontend import get_default_settings
from docutils.utils import new_document
from execution import execute_chapters
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from sphinx.errors import ExtensionError

CHAPTERS = Path(__file__).resolve().parent.parent / "chapters"
STATEMENT = "Nine is odd."
GIVEN = {"id": "s9-odd", "statement": STATEMENT, "section": "3.2.1 ¶4", "evidence": "9 = 2·4 + 1."}
GIVEN["control"] = "a half of 9 that is whole"


def made(**changed) -> Verdict:
    given = {**GIVEN, "kind": "measured here", "holds": True, **changed}
    return claim(given.pop("id"), given.pop("statement"), **given)


def test_evidence_has_powers_of_ten_and_a_full_stop() -> None:
    assert powers("2e-22, 3.3e+18 and 1e-05") == "2×10⁻²², 3.3×10¹⁸ and 1×10⁻⁵"
    assert powers("e-5, d41e-mail") == "e-5, d41e-mail"
    assert made(evidence="off by 7e-08").evidence == "off by 7×10⁻⁸."


@pytest.mark.parametrize(
    ("holds", "kind", "verdict"),
    [
        (True, "by construction", "holds by construction"),
        (True, "in the paper's own numbers", "holds in the paper's own numbers"),
        (True, "measured here", "measured here"),
        (True, "at small scale", "measured at small scale"),
        (False, "at small scale", "not reproduced here"),
        (False, "by construction", "differs"),
        (None, "measured here", "open"),
        (None, "on the paper's hardware", "needs the paper's hardware"),
        (False, "on the paper's hardware", "differs"),
        (np.float64(1) > 2, "measured here", "differs"),
    ],
)
def test_a_verdict_follows_from_the_comparison_and_its_kind(holds, kind: str, verdict: str):
    found = made(holds=holds, kind=kind)
    assert found == Verdict(**GIVEN, verdict=verdict) and verdict in MARKS


@pytest.mark.parametrize(
    ("changed", "error", "told"),
    [
        ({"kind": "by hearsay"}, KeyError, "by hearsay"),
        ({"holds": "yes"}, TypeError, "s9-odd"),
        ({"holds": torch.tensor(True)}, TypeError, "s9-odd"),
    ],
)
def test_a_claim_says_what_decides_it(changed: dict, error: type[Exception], told: str):
    with pytest.raises(error, match=told):
        made(**changed)


def test_a_notebook_and_the_build_get_their_own_form():
    bundle = made(holds=False)._repr_mimebundle_()
    refuted = "Refutes it: a half of 9 that is whole."
    told = f"≠ differs (§3.2.1 ¶4): Nine is odd.\n  9 = 2·4 + 1.\n  {refuted}"
    assert bundle["text/plain"] == told
    assert bundle["application/vnd.annotated.claim+json"] == {**GIVEN, "verdict": "differs"}
    words = re.sub(r"<[^>]*>", " ", bundle["text/html"]).replace(" :", ":")
    assert " ".join(words.split()) == (
        f"≠ differs · §3.2.1 ¶4 · Nine is odd. evidence 9 = 2·4 + 1. {refuted}"
    )
    text = 'n < d & "k" > <b>1</b>'
    shown = made(statement=text, evidence=text)._repr_mimebundle_()["text/html"]
    assert shown.count(html.escape(text)) == 2 and "<b>" not in shown


def notebook(*outputs: dict):
    """An executed notebook with an output for each cell, and one that prints."""
    cells = [new_code_cell(outputs=[new_output("execute_result", data=data)]) for data in outputs]
    prints = new_code_cell(outputs=[new_output("stream", text="claim"), new_output("error")])
    return new_notebook(cells=[new_markdown_cell("# Title"), *cells, prints])


def notebooks(**chapters: list[Verdict]) -> dict:
    """Notebooks that show these claims."""
    return {
        page: notebook(*(each._repr_mimebundle_() for each in shown))
        for page, shown in chapters.items()
    }


def test_claims_come_by_place_and_in_the_order_of_their_pages():
    wanted = [("Abstract", "a"), ("1", "b"), ("3.2 ¶2", "c"), ("3.2.1", "d"), ("3.2.1", "e")]
    a, b, c, d, e = (made(section=section, id=id) for section, id in wanted)
    last = "3.2.1 ¶1", "3.2.1 ¶2", "3.2.1, Footnote 4", "3.10", "Since 2017"
    assert [d.section, *last] == sorted([*reversed(last), d.section], key=verdicts.place)
    others = {"third": notebook({"text/plain": "None"})}
    several = notebook({verdicts.MIME: [asdict(each) for each in (d, b, a)]})  # in one output
    found = verdicts.collect({"first": several} | notebooks(second=[e, c]) | others)
    assert [entry.page for entry in found] == ["first", "first", "second", "first", "second"]
    assert [entry.verdict for entry in found] == [a, b, c, d, e]


def test_an_id_stands_for_one_claim():
    for chapters in {"first": [made()], "second": [made()]}, {"first": [made(), made()]}:
        with pytest.raises(ExtensionError, match=r"s9-odd.*first"):
            verdicts.collect(notebooks(**chapters))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"section": ""}, "s9-odd.*section"),
        ({"statement": None, "evidence": ""}, "s9-odd.*statement.*evidence"),
        ({"control": ""}, "s9-odd.*control"),
        ({"verdict": "likely"}, "s9-odd.*likely"),
    ],
)
def test_a_claim_that_lacks_a_part_fails_the_build(changed, told: str):
    shown = {verdicts.MIME: {**GIVEN, "verdict": "measured here", **changed}}
    with pytest.raises(ExtensionError, match=told):
        verdicts.collect({"first": notebook(shown)})


def test_a_derivation_needs_no_line_on_what_would_refute_it():
    derived = made(kind="by construction", control="")
    assert "efute" not in derived._repr_mimebundle_()["text/html"] + str(derived)
    (entry,) = verdicts.collect(notebooks(first=[derived]))
    assert entry.verdict == derived


def test_a_claim_is_about_what_a_page_shows():
    entries = verdicts.collect(notebooks(first=[made()]))
    verdicts.check_places(entries, {"§3.2.1 ¶4"})
    with pytest.raises(ExtensionError, match=r"s9-odd in first.*§3\.2\.1 ¶4"):
        verdicts.check_places(entries, {"§3.2.1 ¶3"})
    for section, marks in (("4, Table 1", {"Table 1"}), ("4", set()), ("Since 2017", set())):
        verdicts.check_places([verdicts.Entry("first", made(section=section))], marks)


@pytest.mark.parametrize("paper", [False, True])
def test_verdicts_stand_beside_the_paragraph_that_they_judge(paper: bool):
    document = new_document("page", get_default_settings())
    cell = nodes.container("", nodes.literal_block(), nb_element="cell_code")
    original = nodes.block_quote("", nodes.paragraph("", "the paper's words"))
    cell += [nodes.container("", original, nb_element="cell_code_output")] * paper
    said = nodes.strong("", "§3.2.1 ¶4"), nodes.Text(" our words")
    quote = nodes.block_quote("", nodes.paragraph("", "", *said))
    document += [nodes.paragraph("", "Before."), cell, quote, nodes.paragraph("", "After.")]
    show_paper(cell)
    PaperLayer(document).run()
    odd, other = verdicts.Entry("a", made(holds=None)), verdicts.Entry("b", made(id="even"))
    verdicts.put_beside(
        document, [odd, verdicts.Entry("c", made(section="4")), other], "at {}".format
    )
    _, judged, _ = document.children
    note, *shown = judged.children
    assert judged["classes"] == ["judged"] and shown == ([cell, quote.parent] if paper else [quote])
    links = re.findall(
        r'<strong>(.) <a[^>]*>(.*?)</a></strong> <a href="([^"]*)">([^<]*)', note.astext()
    )
    assert links == [
        ("○", "open", "at a#claim-s9-odd", STATEMENT),
        ("✓", "measured here", "at b#claim-even", STATEMENT),
    ]
    assert 'label="§3.2.1 ¶4: verdicts"' in note.astext()


def test_a_verdict_is_told_once_in_a_section():
    near, far = (
        nodes.raw("", f'<aside class="claim" id="claim-{id}">') for id in ("s9-odd", "even")
    )
    quote = nodes.block_quote("", mark="§3.2.1 ¶4")
    document = new_document("page", get_default_settings())
    document += [nodes.section("", quote, near), nodes.section("", far)]
    entries = [verdicts.Entry("a", made()), verdicts.Entry("a", made(id="even"))]
    verdicts.put_beside(document, entries, "at {}".format)
    (note,) = [raw for raw in document.findall(nodes.raw) if "beside" in raw.astext()]
    assert "#claim-even" in note.astext() and "s9-odd" not in note.astext()


def test_a_box_in_the_laboratory_leaves_out_what_stands_beside_the_paragraph():
    text = made(control="even")._repr_mimebundle_()["text/html"]
    read, laboratory, again = (
        verdicts.box(text, "claims.html", *where)
        for where in ((False, {"s9-odd"}), (True, {"even"}), (True, {"s9-odd"}))
    )
    assert "<details style" in read and "<details open" in laboratory
    assert STATEMENT in read and STATEMENT in laboratory and STATEMENT not in again
    for part in (
        "§3.2.1 ¶4",
        "measured here",
        "9 = 2·4 + 1.",
        "Would refute it",
        'id="claim-s9-odd"',
    ):
        assert part in again.replace("\xa0", " "), part
    assert again.count("<p") == again.count("</p>") == 3 and "details" not in again


def test_the_index_escapes_and_leads_to_the_chapter_and_the_bars_count_by_verdict():
    entry = verdicts.Entry("3-2-attention", made(statement="n < d", evidence="1 & -2"))
    table = verdicts.index([entry])
    assert "n\xa0&lt;\xa0d" in table and "1 &amp; −2" in table
    assert '<a href="3-2-attention.html#claim-s9-odd">§3.2.1 ¶4</a>' in table
    assert '<tr data-section="3.2" data-verdict="measured here">' in table
    others = verdicts.Entry("x", made(holds=None)), verdicts.Entry("y", made(holds=False))
    small = verdicts.Entry("z", made(kind="at small scale"))
    own = verdicts.Entry("since-2017", made(id="own", section="Since 2017"))
    bar = verdicts.scoreboard([entry, small, *others, entry, own])
    assert "Of 5 claims of the paper, 3 hold, 1 differ and 1 are undecided" in bar
    assert "1 of the 3 hold only at small scale" in bar
    names = re.findall(r"<(?:b|span)>(.*?)</", bar)
    assert names == ["hold", "✓ as measured", "≈ at small scale", "≠ differ", "○ undecided"]
    counts = re.findall(r">(\d+ \w+)</a>", verdicts.story([entry, small, *others, entry, own]))
    assert counts == ["3 hold", "1 differ", "1 undecided"]
    listed = verdicts.index([entry, own])
    assert "measured here: 1</strong> <small>" in listed and "Since 2017" not in listed
    sizes = re.findall(r"margin-left: ([\d.]+)%; width: ([\d.]+)%", bar)
    whole, *parts, differ, undecided = [tuple(map(float, size)) for size in sizes]
    assert whole == (0, 100) and parts == [(0, 66.7), (66.7, 33.3)]
    assert undecided == differ == (0, 33.3)
    assert re.findall(r'href="claims\.html\?([^"]*)#the-claims"[^>]*>(\d)</a>', bar) == [
        ("verdict=measured%20here", "2"), ("verdict=measured%20at%20small%20scale", "1"),
        ("verdict=differs", "1"), ("verdict=open", "1"),
    ]  # fmt: skip


def build(folder: Path, code: str) -> tuple[str, list[str]]:
    """Build a book of a front page and a page of claims; its warnings, and what it wrote."""
    chapters = folder / "chapters"
    chapters.mkdir(exist_ok=True)
    for name, shows, source in ("index", "scoreboard", code), ("claims", "claims-index", "1 + 1"):
        text = (
            small_books.notebook(source)
            + f'\n```{{raw}} html\n<div class="{shows}"></div>\n```\n'
            + "\n> **§1 ¶1** Nine.\n" * (name == "claims")
        )
        if not (file := chapters / f"{name}.md").exists() or file.read_text() != text:
            file.write_text(text)

    def extension(app) -> None:
        app.add_post_transform(PaperLayer)
        app.add_post_transform(verdicts.Claims)
        app.connect("env-before-read-docs", execute_chapters)
        app.connect("env-updated", verdicts.collect_claims)

    config = {"root_doc": "chapters/index", "nb_execution_mode": "cache"}
    config |= {"suppress_warnings": ["mystnb.unknown_mime_type"]}
    said = small_books.build(folder, extension, **config)
    pages = [folder / "out" / "chapters" / f"{name}.html" for name in ("index", "claims")]
    return said, [page.read_text() for page in pages]


def test_symbols_of_a_claim_are_formulas_as_in_the_text():
    said = verdicts.set_words('<a title="dₖ">√dₖ and the paper\'s logₖ(n)</a>')
    formulas = re.findall(r'<span class="math">\\\((.*?)\\\)</span>', said)
    assert formulas == [r"\sqrt{d_k}", r"\log_k(n)"]
    assert 'title="dₖ"' in said and "paper’s" in said


def test_what_stands_in_a_laboratory_is_told_from_the_text_before_it():
    read, experiment = nodes.raw(""), nodes.raw("")
    within = nodes.section("", nodes.container("", experiment), ids=["laboratory"])
    nodes.document("", "", nodes.section("", read, within, ids=["title"]))
    assert verdicts.in_laboratory(experiment) and not verdicts.in_laboratory(read)


MAKES = "from book.claims import claim\n\nclaim({})"
KIND = 'kind="by construction"'
ODD = (
    f'"odd", "Nine is odd.", section="1 ¶1", {KIND}, holds=9 % 2 == {{}}, evidence="1", control="0"'
)


@pytest.mark.slow
def test_the_build_collects_what_cells_show_and_says_what_they_break(tmp_path: Path, monkeypatch):
    """An error in the cell of a claim is an error, and no verdict."""
    monkeypatch.setenv("PYTHONPATH", str(CHAPTERS.parent))
    said, (front, claims) = build(tmp_path, MAKES.format(ODD.format(1)))
    assert said == ""
    assert 'id="claim-odd"' in front and "?verdict=holds%20by%20construction#the-claims" in front
    assert re.search("<details style=[^>]*><summary>evidence", front)  # not in a laboratory: folded
    assert 'href="index.html#claim-odd"' in claims
    assert "≡</span> holds by construction" in claims
    beside = "<strong>≡ <a [^>]*#the-claims[^>]*>holds by .*?</strong> <a href=[^>]*#claim-odd"
    assert re.search(beside, claims)
    said, (front, claims) = build(tmp_path, MAKES.format(ODD.format(0)))
    # The pages were not read anew.
    assert said == "" and "?verdict=differs#" in front and "1 differ <small>" in claims
    assert re.search("<strong>≠ <a [^>]*>differs</a></strong>", claims)
    said, (front, claims) = build(tmp_path, MAKES.format(ODD.format("1 / 0")))
    assert "index.md: WARNING: Executing notebook failed" in said
    assert "claim-odd" not in front + claims
