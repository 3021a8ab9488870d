"""Claims: which verdict a comparison gives, and how it is shown."""

from __future__ import annotations

import html
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from annotated.claims import MARKS, Verdict, claim

CHAPTERS = Path(__file__).resolve().parent.parent / "chapters"
STATEMENT = "Nine is odd."
GIVEN = {"id": "s9-odd", "statement": STATEMENT, "section": "3.2.1", "evidence": "9 = 2·4 + 1"}


def made(**changed) -> Verdict:
    given = {**GIVEN, "holds": True, **changed}
    return claim(given.pop("id"), given.pop("statement"), **given)


@pytest.mark.parametrize(
    ("holds", "small", "verdict"),
    [
        (True, False, "holds"),
        (True, True, "holds at small scale"),
        (False, True, "not reproduced here"),
        (False, False, "differs"),
        (None, False, "open"),
        (None, True, "open"),
        (np.True_, False, "holds"),
        (np.float64(1) > 2, False, "differs"),
    ],
)
def test_a_verdict_follows_from_the_comparison_and_the_scale(holds, small: bool, verdict: str):
    found = made(holds=holds, small=small)
    assert found == Verdict(**GIVEN, verdict=verdict) and verdict in MARKS


@pytest.mark.parametrize("holds", [1, 0.5, "yes", torch.tensor(True), np.array([True, True])])
def test_only_yes_no_and_nobody_knows_are_answers(holds):
    with pytest.raises(TypeError, match=r"claim s9-odd: holds has to be True, False or None"):
        made(holds=holds)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        *(("statement", text) for text in ("", " ", "\n")),
        *(("evidence", text) for text in ("", " ")),
        *(("id", text) for text in ("", "S2", "2-constant", "two words", 'a"b', "größe", "a\n")),
        *(("section", text) for text in ("", "§2", "8", "3.", "3.2 ", "Table 3", "3.0")),
    ],
)
def test_what_cannot_be_shown_or_found_again_is_refused(name: str, bad: str):
    with pytest.raises(ValueError, match=f"{name} cannot be "):
        made(**{name: bad})


@pytest.mark.parametrize("section", ["abstract", "1", "3.5", "3.2.1"])
def test_sections_of_the_paper_are_taken(section: str):
    place = made(section=section).place
    assert place == (section if section == "abstract" else f"§{section}")


@pytest.mark.parametrize("name", ["statement", "evidence"])
def test_signs_of_html_are_escaped(name: str):
    text = 'n < d & "k" > <b>1</b>'
    shown = made(**{name: text})._repr_mimebundle_()["text/html"]
    assert html.escape(text) in shown and "<b>" not in shown


def test_a_notebook_and_the_build_get_their_own_form():
    bundle = made(holds=False)._repr_mimebundle_()
    assert bundle["text/plain"] == "✗ differs (§3.2.1): Nine is odd. 9 = 2·4 + 1"
    assert bundle["application/vnd.annotated.claim+json"] == {**GIVEN, "verdict": "differs"}
    shown = bundle["text/html"]
    assert re.match(r'<aside class="claim" id="claim-s9-odd" role="note" ', shown)
    assert 'aria-label="a claim of §3.2.1: differs" data-verdict="differs"' in shown
    words = re.sub(r"<[^>]*>", " ", shown)
    assert " ".join(words.split()) == "✗ differs · §3.2.1 · Nine is odd. 9 = 2·4 + 1"


def test_words_keep_the_colours_of_the_page():
    """So that they can be read in light and dark: only the edge is coloured."""
    styles = re.findall(r'style="([^"]*)"', made()._repr_mimebundle_()["text/html"])
    declared = [part.partition(":")[0].strip() for style in styles for part in style.split(";")]
    assert declared and not {"color", "background", "background-color"} & set(declared)


def test_every_verdict_has_a_sign_and_a_colour_of_its_own():
    signs, colours = zip(*MARKS.values(), strict=True)
    assert len(set(signs)) == len(set(colours)) == len(MARKS) == 5


def test_links_of_the_page_of_claims_lead_to_headings():
    text = (CHAPTERS / "claims.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([\w-]+)\.md#([\w-]+)\)", text)
    assert len(links) >= 10
    for page, anchor in links:
        there = (CHAPTERS / f"{page}.md").read_text(encoding="utf-8")
        titles = re.findall(r"^#{2,3} (.+)$", there, flags=re.MULTILINE)
        assert anchor in {re.sub(r"[^a-z0-9]+", "-", t.lower()).strip("-") for t in titles}, anchor
