"""The theme that all charts of the book share; importing this module enables it."""

from contextlib import suppress
from typing import Any

from annotated.machinery.palette import PALETTE

# Of each kind of layer, on all pages.
LAYERS = {
    "self-attention": PALETTE[0],
    "recurrent": PALETTE[1],
    "convolutional": PALETTE[2],
    "dilated": PALETTE[3],
    "LSTM": PALETTE[6],
    "restricted": PALETTE[0],  # dotted
    "separable": PALETTE[4],
}

# Of a vertical axis: its title above it, not turned, and flush with the text of the page.
UPRIGHT = {"titleAngle": 0, "titleAlign": "left", "titleY": -12, "titlePadding": 0}


def grouped(groups: dict[str, list[str]], room: int) -> Any:
    """A vertical axis of rows below headings, for a column `row` of "heading|name"; above each
    heading but the first is an empty row.

    room: the width of the names, in pixels
    """
    _, *rows = [
        row
        for group, names in groups.items()
        for row in (f"{group}| ", group, *(f"{group}|{name}" for name in names))
    ]
    heading = "indexof(datum.value, '|') < 0"
    return alt.Y("row:N", title=None, scale=alt.Scale(domain=rows)).axis(
        ticks=False,
        domain=False,
        labelAlign="left",
        labelExpr="split(datum.value, '|')[1] || datum.value",
        labelFontWeight=alt.condition(heading, alt.value(600), alt.value(400)),
        labelLimit=330,
        labelPadding=room,
    )


def words(pieces: list[str]) -> list[str]:
    """Pieces of a vocabulary as charts and tables name them; "…" continues a word.

    >>> words(["▁The", "▁l", "aw", ".", "</s>"])
    ['The', 'l', '…aw', '.', 'end']
    """
    names = {"</s>": "end", "<EOS>": "end", "▁": "space"}
    inside = lambda piece: f"…{piece}" if piece[:1].isalpha() else piece.strip("▁")
    return [names.get(piece) or inside(piece) for piece in pieces]


def slider(name: str, value: float, low: float, high: float, step: float, label: str) -> Any:
    """A parameter of Vega-Lite that the reader sets with a slider."""
    bound = alt.binding_range(min=low, max=high, step=step, name=f"{label} ")
    return alt.param(name, value=value, bind=bound)


def menu(name: str, value: Any, options: list, label: str, **more: Any) -> Any:
    """A parameter of Vega-Lite that the reader selects from a list; more: its `labels`."""
    bound = alt.binding_select(options=options, name=f"{label} ", **more)
    return alt.param(name, value=value, bind=bound)


def chart_theme() -> Any:
    """The book's theme for Altair."""
    text = {"labelFontSize": 14, "titleFontSize": 14, "titleFontWeight": "normal"}
    ramp = [f"{PALETTE[0]}00", PALETTE[0]]  # from transparent, so that much stands out on any page
    config = {
        "font": "Inter, system-ui, sans-serif",
        "padding": {"left": 1, "top": 5, "right": 5, "bottom": 5},
        "view": {"continuousWidth": 560, "continuousHeight": 280, "strokeOpacity": 0},
        "range": {
            "category": PALETTE,
            "heatmap": ramp,
            "ramp": ramp,
            "diverging": [PALETTE[0], "#80808000", PALETTE[1]],
        },
        "title": {
            "fontSize": 15,
            "fontWeight": 600,
            "anchor": "start",
            "offset": 12,
            "subtitlePadding": 6,
            "subtitleFontSize": 14,
        },
        "axis": {**text, "titlePadding": 8, "gridOpacity": 0.5},
        # Each label is below its tick, the first and the last too; there are few, and none touch.
        "axisX": {"labelFlush": False, "labelSeparation": 6, "titleAnchor": "end"},
        "axisXQuantitative": {"tickCount": 6},
        "legend": {
            **text,
            "titleFontSize": 14,
            "titleOrient": "left",
            "orient": "bottom",
            "columns": 3,
            "columnPadding": 24,
            "rowPadding": 6,
        },
        "line": {"strokeWidth": 2.5},
        "point": {"filled": True, "size": 60},
        # Screen readers get a chart's description, and not every mark.
        "mark": {"color": PALETTE[0], "aria": False},
    }
    return {"config": config}


with suppress(ModuleNotFoundError):  # without altair there is no theme to enable, and no chart
    import altair as alt

    alt.theme.register("annotated", enable=True)(chart_theme)
