"""The attention weights that are read from the strokes of the paper's figures."""

import csv
import os
from collections import defaultdict
from pathlib import Path

import pytest

from annotated.machinery.files import resource_path
from annotated.machinery.paper.figures import drawn_weights

pypdf = pytest.importorskip("pypdf", reason="needs the extra `pdf`")
pytest.importorskip("pdfminer", reason="needs the extra `paper`")

BLUE, RED = "0.1216 0.4667 0.7059", "0.8392 0.1529 0.1569"  # heads 1 and 4, by their colours
LINES = [  # head's colour, opacity of the drawing around, of the line, columns that it joins
    (BLUE, 1.0, 0.75, 0, 2),
    (RED, 1.0, 0.25, 1, 1),
    (RED, 0.5, 0.5, 2, 0),
]


def draw(path: Path, lines: list = LINES, pages: int = 15) -> Path:
    """A PDF whose pages 13 to 15 have drawings as the paper's: one, two and two of them."""
    from pypdf.generic import (
        ArrayObject,
        DecodedStreamObject,
        DictionaryObject,
        FloatObject,
        NameObject,
    )

    name = NameObject
    writer = pypdf.PdfWriter()

    def add(stream: str, **entries) -> object:
        made = DecodedStreamObject()
        made.set_data(stream.encode())
        made.update({name(f"/{key}"): value for key, value in entries.items()})
        return writer._add_object(made)

    def form(stream: str, resources: DictionaryObject) -> object:
        box = ArrayObject(map(FloatObject, (0, 0, 100, 100)))
        return add(
            stream, Type=name("/XObject"), Subtype=name("/Form"), BBox=box, Resources=resources
        )

    def state(opacity: float) -> DictionaryObject:
        return DictionaryObject({name("/CA"): FloatObject(opacity)})

    kind = {"Type": "Font", "Subtype": "Type1", "BaseFont": "Helvetica"}
    font = DictionaryObject({name(f"/{key}"): name(f"/{value}") for key, value in kind.items()})
    words = [
        f"BT /T 8 Tf 0 1 -1 0 {22 + 20 * x} {y} Tm (word) Tj ET" for x in range(3) for y in (5, 75)
    ]
    program, inner, states = ["BT /T 8 Tf 40 95 Td (title) Tj ET", *words], {}, {}
    for i, (colour, around, opacity, start, end) in enumerate(lines):
        line = f"/G gs {colour} RG {20 + 20 * start} 70 m {20 + 20 * end} 30 l S"
        own = DictionaryObject({name("/ExtGState"): DictionaryObject({name("/G"): state(opacity)})})
        inner[name(f"/L{i}")], states[name(f"/G{i}")] = form(line, own), state(around)
        program.append(f"q /G{i} gs /L{i} Do Q")
    resources = DictionaryObject({
        name("/XObject"): DictionaryObject(inner), name("/ExtGState"): DictionaryObject(states),
        name("/Font"): DictionaryObject({name("/T"): font}),
    })  # fmt: skip
    drawing = form("\n".join(program), resources)
    for number in range(pages):
        page = writer.add_blank_page(400, 600)
        places = {12: [300], 13: [50, 300], 14: [50, 300]}.get(number, [])
        page[name("/Contents")] = add("\n".join(f"q 2 0 0 2 40 {y} cm /D Do Q" for y in places))
        page[name("/Resources")] = DictionaryObject(
            {name("/XObject"): DictionaryObject({name("/D"): drawing})}
        )
    writer.write(path)
    return path


def test_strokes_are_read_with_colour_ends_and_opacities_that_multiply(tmp_path: Path) -> None:
    rows = drawn_weights(draw(tmp_path / "paper.pdf"))
    found = {tuple(row.values()) for row in rows}
    expected = [(1, 0, 2, 0.75), (4, 1, 1, 0.25), (4, 2, 0, 0.25)]
    figures = ["3", "4 above", "4 below", "5 above", "5 below"]
    assert found == {(figure, *line) for figure in figures for line in expected}
    assert len(rows) == 15


def test_another_paper_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="colour"):
        drawn_weights(draw(tmp_path / "green.pdf", [("0 1 0", 1.0, 1.0, 0, 0)]))
    with pytest.raises(ValueError, match="Figures 3 to 5"):
        drawn_weights(draw(tmp_path / "short.pdf", pages=13))


def test_the_kept_weights_are_distributions() -> None:
    with (resource_path("results") / "paper-figures.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    sums: dict[tuple[str, ...], float] = defaultdict(float)
    for row in rows:
        sums[row["figure"], row["head"], row["from"]] += float(row["weight"])
    assert max(sums.values()) <= 1.005
    assert {figure for figure, *_ in sums} == {"3", "4 above", "4 below", "5 above", "5 below"}
    # The captions: eight heads from one word; heads 5 and 6 from another; heads of all 27 words.
    assert len([key for key in sums if key[0] == "3"]) == 8
    assert {head for figure, head, _ in sums if figure == "4 below"} == {"5", "6"}
    assert all(sum(key[0] == figure for key in sums) == 27 for figure in ("4 above", "5 above"))
    # Both drawings of Figure 4 show the same row of head 5.
    its = lambda figure: {
        row["to"]: float(row["weight"]) for row in rows
        if (row["figure"], row["head"], row["from"]) == (figure, "5", "8")
    }  # fmt: skip
    assert its("4 above") == pytest.approx(its("4 below"), abs=0.005)


@pytest.mark.paper
def test_the_paper_has_the_kept_weights() -> None:
    rows = drawn_weights(os.environ["ANNOTATED_PAPER_PDF"])
    with (resource_path("results") / "paper-figures.csv").open(encoding="utf-8") as file:
        kept = list(csv.DictReader(file))
    assert [{key: str(value) for key, value in row.items()} for row in rows] == kept
