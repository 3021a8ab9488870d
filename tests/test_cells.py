"""book/cells.py: folded cells, solutions and quotations of the paper."""

import pytest

pytest.importorskip("vl_convert", reason="needs the extra `book`")

from cells import Cells, ResultsFirst, fold_rest, show_paper
from docutils import nodes
from docutils.frontend import get_default_settings
from docutils.utils import new_document


def test_code_and_words_of_a_solution_are_in_one_box():
    document = new_document("page", get_default_settings())
    cell = nodes.container(
        nb_element="cell_code", cell_metadata={"tags": ["hide-cell", "solution"]}, hide_mode="all"
    )
    opening = nodes.raw("", "<details>\n<summary>Solution</summary>", format="html")
    alone, check = cell.deepcopy(), cell.deepcopy()
    check["cell_metadata"] = {"tags": ["hide-cell", "check"]}
    document += [cell, opening, nodes.paragraph("", "Because."), alone, check]
    Cells(document).run()
    assert document.children[0] is opening and document.children[1] is cell
    assert opening.astext().startswith('<details class="solution">')
    assert "hide_mode" not in cell and alone["hide_mode"] == "all"
    assert [each["prompt_show"] for each in (alone, check)] == ["Solution", "Check"]


def test_a_folded_cell_that_shows_nothing_is_under_the_bar_of_a_neighbor():
    def cell(code: str, *tags: str, shows: bool = False) -> nodes.container:
        data = {"tags": list(tags)}
        made = nodes.container(nb_element="cell_code", cell_metadata=data, ids=[code])
        made += nodes.container("", nodes.literal_block(code, code))
        if shows:
            made += nodes.container("", nb_element="cell_code_output")
        return made

    document = new_document("page", get_default_settings())
    part = nodes.section("", cell("picture", "hide-input", shows=True))
    document += [
        cell("imports", "hide-input"), nodes.paragraph("", "Words."), part,
        cell("check", "hide-input"), cell("open", shows=True),
    ]  # fmt: skip
    part += cell("table", "hide-input", shows=True)
    part += cell("test", "hide-input")
    Cells(document).run()
    cells = [cell for cell in document.findall(nodes.container) if "cell_metadata" in cell]
    shown = [[code.astext() for code in cell.findall(nodes.literal_block)] for cell in cells]
    assert shown == [["imports", "picture"], ["table", "test"], ["check"], ["open"]]
    assert "imports" in part.children[0]["ids"]


def test_where_the_paper_is_not_at_hand_links_lead_to_our_words():
    ours = nodes.block_quote("", nodes.paragraph("", "our words"))
    call = nodes.container("", nodes.literal_block(), nb_element="cell_code", ids=["table-2"])
    page = nodes.section("", call, ours)
    show_paper(call)
    assert page.children == [ours] and ours["ids"] == ["table-2"]


@pytest.mark.parametrize(("count", "seen"), [(3, None), (9, 4), (20, 4)])
def test_a_long_paragraph_of_the_paper_is_folded_after_a_sentence(count: int, seen: int | None):
    sentence = (
        "As Bahdanau et al. Show, this sentence of the paper, e.g. Here, has so many letters. "
    )
    paragraph = nodes.paragraph("", "", nodes.Text(sentence * count), nodes.math("", "n"))
    whole = paragraph.astext()
    fold_rest(paragraph)
    if seen is None:
        assert len(paragraph.children) == 2
        return
    shown, button, rest = paragraph.children
    assert shown == sentence * seen and "whole paragraph" in button.astext()
    assert rest["classes"] == ["docstring"] and shown + rest.astext() == whole


def test_a_caption_may_name_a_word_and_moves_above_the_folded_code():
    document = new_document("page", get_default_settings())
    cell = nodes.container(nb_element="cell_code", cell_metadata={"tags": ["hide-input"]})
    cell += [nodes.container(ids=["code"]), nodes.container(nb_element="cell_code_output")]
    words = (
        nodes.emphasis("", "The last token,"),
        nodes.Text(" Qu "),
        nodes.emphasis("", "is blue."),
    )
    document += [cell, nodes.paragraph("", "", *words), nodes.paragraph("", "Words.")]
    Cells(document).run()
    ResultsFirst(document).run()
    _, caption, code = cell.children
    assert caption["classes"] == ["caption"] and code["ids"] == ["code"]
    assert len(document.children) == 2


def test_the_code_of_a_verdict_is_folded_without_a_tag():
    document = new_document("page", get_default_settings())
    cell = nodes.container(nb_element="cell_code", cell_metadata={})
    code = 'holds = True\nclaim("s1-two", holds=holds)'
    cell += nodes.container("", nodes.literal_block(code, code))
    cell += nodes.container("", nb_element="cell_code_output")
    document += cell
    Cells(document).run()
    assert cell["hide_mode"] == "input" and cell["prompt_show"] and cell["prompt_hide"]


@pytest.mark.parametrize(
    ("code", "shown", "named"),
    [
        ("chart", '<div class="chart" data-spec="a"></div>', "the code of this chart"),
        ("table", "<table><tr><td>1</td></tr></table>", "the code of this table"),
        ("film", '<div class="film live"><table></table></div>', "the code of this film"),
        ("stages", '<div class="stages"><table></table></div>', "the code of this chart"),
        ("tree", "<svg></svg>", "the code of this drawing"),
        ('claim("s1-two", holds=holds)', "<aside>holds</aside>", "the code of this verdict"),
        ('chart\nclaim("s1-two", holds=holds)', '<div class="chart">', "the code of this chart"),
        ("print(1)", "1", "the code"),
    ],
)
def test_a_folded_cell_says_whose_code_it_hides(code: str, shown: str, named: str):
    document = new_document("page", get_default_settings())
    cell = nodes.container(nb_element="cell_code", cell_metadata={"tags": ["hide-input"]})
    cell["prompt_show"], cell["prompt_hide"] = "Show the code", "Hide the code"
    output = nodes.container("", nodes.raw("", shown, format="html"), nb_element="cell_code_output")
    cell += [nodes.container("", nodes.literal_block(code, code)), output]
    document += cell
    Cells(document).run()
    assert (cell["prompt_show"], cell["prompt_hide"]) == (f"Show {named}", f"Hide {named}")


@pytest.mark.parametrize(
    ("defines", "named"),
    [
        (["N = 6"], "the code"),
        (["class Norm:", "    def forward(x):"], "the code of Norm"),
        (["def one():", "def _part():", "def two():"], "the code of one and two"),
        (
            ["def one():", "def two():", "def six():", "class Ten:"],
            "the code of one, two and 2 more",
        ),
    ],
)
def test_folded_code_of_the_package_is_named_by_what_it_defines(defines: list[str], named: str):
    document = new_document("page", get_default_settings())
    cell = nodes.container(nb_element="cell_code", cell_metadata={"export": "parts"})
    cell["prompt_show"], cell["prompt_hide"] = "Show the code", "Hide the code"
    code = "\n".join(f"{line}\n        pass" for line in defines)
    cell += nodes.container("", nodes.literal_block(code, code))
    document += cell
    Cells(document).run()
    assert (cell["prompt_show"], cell["prompt_hide"]) == (f"Show {named}", f"Hide {named}")
