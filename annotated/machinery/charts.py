"""How this book is made."""

from contextlib import suppress
from typing import Any

from annotated.machinery.errors import MissingExtra
from annotated.machinery.files import lazy_extra

with lazy_extra("viz"):
    import altair as alt

PALETTE = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F"]


def chart_theme() -> Any:
    """The look that all charts of the book share; importing this module switches it on."""
    text = {"labelFontSize": 12, "titleFontSize": 13, "titleFontWeight": "normal"}
    config = {
        "font": "system-ui, sans-serif",
        "view": {"continuousWidth": 560, "continuousHeight": 280, "strokeOpacity": 0},
        "range": {
            "category": PALETTE,
            "heatmap": {"scheme": "blues"},
            "ramp": {"scheme": "blues"},
        },
        "title": {"fontSize": 15, "fontWeight": 600, "anchor": "start"},
        "axis": {**text, "gridOpacity": 0.5},
        "legend": {**text, "titleFontSize": 12, "orient": "bottom", "columns": 3},
        "line": {"strokeWidth": 2.5},
        "point": {"filled": True, "size": 60},
        "rect": {"aria": False},  # a heat map's thousands of cells: its description tells more
    }
    return {"config": config}


with suppress(MissingExtra):  # without altair there is nothing to switch on
    alt.theme.register("annotated", enable=True)(chart_theme)
