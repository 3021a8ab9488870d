import altair as alt

# Okabe and Ito's colours, which readers with any kind of colour vision tell apart.
PALETTE = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F"]


@alt.theme.register("annotated", enable=True)
def theme() -> alt.theme.ThemeConfig:
    """The look that all charts of the book share; importing this module switches it on."""
    return alt.theme.ThemeConfig(
        config={
            "view": {"continuousWidth": 560, "continuousHeight": 280, "strokeOpacity": 0},
            "range": {"category": PALETTE, "heatmap": {"scheme": "blues"}, "ramp": {"scheme": "blues"}},
            "axis": {"labelFontSize": 12, "titleFontSize": 13, "titleFontWeight": "normal", "gridOpacity": 0.5},
            "legend": {"labelFontSize": 12, "titleFontSize": 12, "orient": "bottom", "columns": 3},
            "title": {"fontSize": 15, "anchor": "start", "fontWeight": 600},
            "line": {"strokeWidth": 2.5},
            "point": {"filled": True, "size": 60},
            "font": "system-ui, sans-serif",
        }
    )
