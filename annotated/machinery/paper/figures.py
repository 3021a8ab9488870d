"""The weights in the paper's figures."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple


class _Stroke(NamedTuple):
    """A straight line of a drawing, in points of the page."""

    colour: tuple[float, ...]
    start: tuple[float, float]
    end: tuple[float, float]
    opacity: float


def _stroke_reader(resources: Any, device: Any) -> Any:
    """pdfminer's interpreter, with a list `strokes` of what is drawn while it works."""
    from pdfminer.pdfinterp import PDFPageInterpreter
    from pdfminer.pdftypes import dict_value
    from pdfminer.psparser import literal_name
    from pdfminer.utils import apply_matrix_pt

    class Reader(PDFPageInterpreter):
        strokes: list[_Stroke]
        around = opacity = 1.0  # of the drawing that this one stands in, and now

        def subinterp(self) -> Any:
            inner: Any = super().subinterp()
            inner.around = inner.opacity = self.opacity
            inner.strokes = self.strokes
            return inner

        def get_current_state(self) -> Any:
            return *super().get_current_state(), self.opacity

        def set_current_state(self, state: Any) -> None:
            *rest, self.opacity = state
            super().set_current_state(tuple(rest))

        def do_gs(self, name: Any) -> None:
            states = dict_value(self.resources["ExtGState"])
            state = dict_value(states[literal_name(name)])
            self.opacity = self.around * state.get("CA", 1.0)

        def do_S(self) -> None:
            path: Any = self.curpath
            colour: Any = self.graphicstate.scolor
            ends = [apply_matrix_pt(self.ctm, part[1:]) for part in path if part[0] in "ml"]
            if len(ends) == 2:
                self.strokes.append(_Stroke(colour, ends[0], ends[1], self.opacity))
            super().do_S()

    reader: Any = Reader(resources, device)
    reader.strokes = []
    return reader


_COLOURS = "1f77b4 ff7f0e 2ca02c d62728 9467bd 8c564b e377c2 7f7f7f".split()  # noqa: SIM905
_FIGURES = {12: ["3"], 13: ["4 above", "4 below"], 14: ["5 above", "5 below"]}  # by page, from 0


def _columns(figure: Any) -> list[float]:
    """Where the upright words of a drawing stand, from left to right."""
    from pdfminer.layout import LTChar, LTFigure

    def middles(items: Any) -> Iterator[float]:
        for item in items:
            if isinstance(item, LTFigure):
                yield from middles(item)
            elif isinstance(item, LTChar) and not item.upright:
                yield (item.x0 + item.x1) / 2

    columns: list[float] = []
    for x in sorted(middles(figure)):
        if not columns or x - columns[-1] > 1:  # another column, not another letter
            columns.append(x)
    return columns


def drawn_weights(pdf: str | Path) -> list[dict[str, Any]]:
    """The attention weights that the paper's Figures 3 to 5 draw, read from the reader's PDF.

    Returns: a row for each line: figure ("3", "4 above", "4 below", "5 above" or "5 below"), head
        (from 1), from and to (places of the words, from 0) and weight.

    Raises: ValueError if the figures are not there as in version 5.
    """
    from annotated.machinery.files import extra

    with extra("paper"):
        from pdfminer.converter import PDFPageAggregator
        from pdfminer.layout import LTFigure
        from pdfminer.pdfinterp import PDFResourceManager
        from pdfminer.pdfpage import PDFPage

    rows: list[dict[str, Any]] = []
    resources = PDFResourceManager()
    with Path(pdf).open("rb") as file:
        pages = list(PDFPage.get_pages(file, set(_FIGURES)))
        for page, names in zip(pages, _FIGURES.values(), strict=False):
            device = PDFPageAggregator(resources, laparams=None)
            reader = _stroke_reader(resources, device)
            reader.process_page(page)
            drawings = [item for item in device.get_result() if isinstance(item, LTFigure)]
            drawings.sort(key=lambda drawing: -drawing.y1)  # from the top of the page
            if len(drawings) == len(names):
                for name, drawing in zip(names, drawings, strict=True):
                    inside = [s for s in reader.strokes if drawing.y0 < s.start[1] < drawing.y1]
                    rows += _rows(name, _columns(drawing), inside)
    if {row["figure"] for row in rows} != {name for names in _FIGURES.values() for name in names}:
        raise ValueError(f"expected Figures 3 to 5 on pages 13 to 15 of {pdf}; they are not there")
    return rows


def _rows(figure: str, columns: list[float], strokes: list[_Stroke]) -> Iterator[dict[str, Any]]:
    """Strokes as rows of `drawn_weights`."""
    column = lambda x: min(range(len(columns)), key=lambda i: abs(columns[i] - x))
    for stroke in strokes:
        colour = "".join(f"{round(255 * part):02x}" for part in stroke.colour)
        if colour not in _COLOURS:
            raise ValueError(
                f"expected a line of figure {figure} in a head's colour; got #{colour}"
            )
        yield {
            "figure": figure, "head": _COLOURS.index(colour) + 1,
            "from": column(stroke.start[0]), "to": column(stroke.end[0]),
            "weight": round(stroke.opacity, 3),
        }  # fmt: skip
