"""The look that all charts of the book share; importing this module switches it on."""

from contextlib import suppress
from typing import Any

PALETTE = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F"]


def chart_theme() -> Any:
    """The book's theme for Altair."""
    text = {"labelFontSize": 12, "titleFontSize": 13, "titleFontWeight": "normal"}
    blues = {"scheme": "blues"}
    config = {
        "font": "system-ui, sans-serif",
        "view": {"continuousWidth": 560, "continuousHeight": 280, "strokeOpacity": 0},
        "range": {"category": PALETTE, "heatmap": blues, "ramp": blues},
        "title": {"fontSize": 15, "fontWeight": 600, "anchor": "start"},
        "axis": {**text, "gridOpacity": 0.5},
        "legend": {**text, "titleFontSize": 12, "orient": "bottom", "columns": 3},
        "line": {"strokeWidth": 2.5},
        "point": {"filled": True, "size": 60},
        "rect": {"aria": False},  # screen readers get a heat map's description, not every cell
    }
    return {"config": config}


with suppress(ModuleNotFoundError):  # without altair there is no theme to switch on
    import altair as alt

    alt.theme.register("annotated", enable=True)(chart_theme)
