"""The theme that all charts of the book share; importing this module enables it."""

from contextlib import suppress
from typing import Any

PALETTE = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F"]


def chart_theme() -> Any:
    """The book's theme for Altair."""
    text = {"labelFontSize": 12, "titleFontSize": 13, "titleFontWeight": "normal"}
    ramp = [f"{PALETTE[0]}00", PALETTE[0]]  # from transparent, so that much stands out on any page
    config = {
        "font": "system-ui, sans-serif",
        "view": {"continuousWidth": 560, "continuousHeight": 280, "strokeOpacity": 0},
        "range": {
            "category": PALETTE,
            "heatmap": ramp,
            "ramp": ramp,
            "diverging": [PALETTE[0], "#80808000", PALETTE[1]],
        },
        "title": {"fontSize": 15, "fontWeight": 600, "anchor": "start"},
        "axis": {**text, "gridOpacity": 0.5},
        "legend": {**text, "titleFontSize": 12, "orient": "bottom", "columns": 3},
        "line": {"strokeWidth": 2.5},
        "point": {"filled": True, "size": 60},
        # Screen readers get a chart's description, and not every mark.
        "mark": {"color": PALETTE[0], "aria": False},
    }
    return {"config": config}


with suppress(ModuleNotFoundError):  # without altair there is no theme to enable
    import altair as alt

    alt.theme.register("annotated", enable=True)(chart_theme)
