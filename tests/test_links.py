"""book/links.py: marks lead to the paper's pages, docstrings to sections, names to their cells."""

import os
import re
from dataclasses import fields
from types import SimpleNamespace

import pytest

pytest.importorskip("sphinx", reason="needs the extra `book`")

from contents import sources
from links import PAGES, link_parts, paper_url, parts, read_docstring

from annotated.decoding import beam_search
from annotated.evaluation import TFLOPS, training_cost
from annotated.training import TrainingConfig

CHAPTERS = set(sources())


@pytest.mark.paper
def test_the_pages_are_the_papers():
    from pdfminer.high_level import extract_pages
    from pdfminer.layout import LTTextContainer

    from annotated.machinery.paper.quotation import find_paper

    paper = find_paper()
    texts = [
        "\n".join(box.get_text() for box in page if isinstance(box, LTTextContainer))
        for page in extract_pages(os.environ["ANNOTATED_PAPER_PDF"])
    ]
    for part, page in PAGES.items():
        kind = part.partition(" ")[0]
        if kind in ("Figure", "Table"):
            pattern = rf"^{part}:"
        elif kind == "Footnote":
            words = paper[part.lower().replace(" ", "-")][0].split()[:4]
            pattern = r"\s+".join(map(re.escape, words))
        else:
            pattern = rf"^{re.escape(part)}\s+[A-Z]" if part[0].isdigit() else f"^{part}"
        found = [n for n, text in enumerate(texts, 1) if re.search(pattern, text, re.MULTILINE)]
        assert page == found[0], part


def test_parts_of_the_paper_stand_where_they_are_said_to_and_marks_lead_to_its_pages():
    for path in sources().values():
        for mark in re.findall(r"^> \*\*([^*]+)\*\*", path.read_text("utf-8"), re.MULTILINE):
            assert re.fullmatch(r"https://arxiv\.org/pdf/1706\.03762v5#page=\d+", paper_url(mark))
    assert parts()["3.2.1"] == "3-2-attention.html#scaled-dot-product-attention"
    assert parts()["5"] == "5-1-data-batching.html"
    assert parts()["equation 3"] == "5-3-optimizer.html#eq-3"
    assert {target.partition(".html")[0] for target in parts().values()} <= CHAPTERS
    assert {f"table {n}" for n in (1, 2, 3, 4)} <= set(parts())


def test_what_a_docstring_names_becomes_a_link():
    assert link_parts("section 3.3, equation 2; Wu et al. 2016.", CHAPTERS) == (
        "`section 3.3 <3-3-feed-forward.html>`__, "
        "`equation 2 <3-3-feed-forward.html#eq-2>`__; Wu et al. 2016."
    )
    assert link_parts("section 3.3", set()) == "section 3.3"  # no link to a page that is not there


def test_short_fields_of_docstrings_become_fields():
    lines = [
        "What it does.", "", "Args:", "    a: (n, d)   b, c: (m, d)", "",
        "Returns: a tensor: (n, m), or more", "    than one.", "", "Source: section 7.",
    ]  # fmt: skip
    env = SimpleNamespace(found_docs={"chapters/7-conclusion"})
    read_docstring(SimpleNamespace(env=env), "function", "f", None, None, lines)
    assert lines == [
        "What it does.", "", "Args:", "    a: (n, d)", "    b, c: (m, d)", "",
        ":returns: a tensor: (n, m), or more", "    than one.", "",
        ":Source: `section 7 <7-conclusion.html>`__.",
    ]  # fmt: skip
    lines = ["What it does.", "", "Args: a: (n,)   b: (m,)", "c: any", "Raises: InputError.", ""]
    read_docstring(SimpleNamespace(env=env), "function", "f", None, None, lines)
    assert lines == [
        "What it does.", "", "Args:", "    a: (n,)", "    b: (m,)", "    c: any", "",
        ":Raises: InputError.", "",
    ]  # fmt: skip
    lines = ["A pair.", "", "Attributes: left, what is", "    on the left."]
    read_docstring(SimpleNamespace(env=env), "class", "C", None, None, lines)
    assert lines == ["A pair.", "", ":Attributes: left, what is", "    on the left."]
    lines = ["Alias for field number 2"]  # what Python says of every named tuple
    read_docstring(SimpleNamespace(env=env), "", "", None, None, lines)
    assert lines == []


def test_the_values_of_a_constant_and_the_options_of_a_configuration_are_shown():
    env = SimpleNamespace(found_docs=set())
    lines = ["A cost.", "", "Args: gpu: one of `TFLOPS`.", ""]
    read_docstring(SimpleNamespace(env=env), "function", "f", training_cost, None, lines)
    assert all(f"``{name}={value}``" in lines[-2] for name, value in TFLOPS.items())
    lines = ["A run.", "", "Args:", "    more: another.", "", "Raises: InputError.", ""]
    read_docstring(SimpleNamespace(env=env), "class", "C", TrainingConfig, None, lines)
    told = lines[3 : lines.index("", 3)]
    described = {each.name for each in fields(TrainingConfig) if each.metadata.get("help")}
    names = (name for line in told for name in re.split(r":| \(", line.strip())[0].split(", "))
    assert {*names} == {"more", *described}
    assert any(line.startswith("    warmup (``= 2000``): ") for line in told)
    lines = ["A search.", "", "Args:", "    beam: any.", "    follow: any.", ""]
    read_docstring(SimpleNamespace(env=env), "function", "f", beam_search, None, lines)
    assert lines[3:5] == ["    beam (``= 4``): any.", "    follow: any."]
