"""Counted and published weights of models, for section 7."""

import json

import altair as alt
import pandas as pd

from book import charts


def short(weights: float) -> str:
    """Three digits and a unit."""
    size, unit = (weights / 1e9, "B") if weights >= 1e9 else (weights / 1e6, "M")
    return f"{size:.3g}{unit}"


def draw_counted(models: pd.DataFrame) -> alt.LayerChart:
    """The weights of models as counted from their sizes, divided by the published ones.

    models: with the columns name, counted, published and ratio, which is counted ÷ published
    """
    numbers = {
        row.name: f"{short(row.counted)} of {short(row.published)}" for row in models.itertuples()
    }
    least, most = (short(models["published"].agg(end)) for end in ("min", "max"))
    across = alt.X("ratio").title("weights, counted ÷ published")
    across = across.scale(domain=[0.95, 1.05], zero=False, nice=False)
    across = across.axis(format="%", values=[0.96, 1, 1.04])
    sizes = [alt.Tooltip(size, format=",.0f") for size in ("counted", "published")]
    counted = alt.Chart(models).encode(across, tooltip=["name", *sizes])
    row = lambda title=None, **axis: alt.Y("name:N", sort=None, title=title).axis(
        labelLimit=200, ticks=False, domain=False, **axis
    )
    short_name = "width < 400 ? replace(datum.label, / [(].*/, '') : datum.label"
    head = {"titleAngle": 0, "titleAlign": "right", "titleX": 98, "titleY": -9}
    head |= {"titleFontWeight": "bold", "labelExpr": f"({json.dumps(numbers)})[datum.label]"}
    return alt.layer(
        alt.Chart(pd.DataFrame({"ratio": [1]})).mark_rule(strokeDash=[4, 3]).encode(across),
        counted.mark_rule(color=charts.PALETTE[0], strokeWidth=3, opacity=0.5).encode(
            alt.Y("name:N", sort=None, axis=None), x2=alt.datum(1)
        ),
        counted.mark_point(size=110, opacity=1).encode(
            row(grid=True, gridOpacity=0.3, labelExpr=short_name)
        ),
        counted.mark_point(opacity=0).encode(row("counted of published", orient="right", **head)),
        width="container",
        height=alt.Step(30),
        title=f"Sizes account for the weights of {len(models)} models, from {least} to {most}",
        description="Weights of the models, counted from their sizes and divided by the published: "
        + "; ".join(f"{name} {numbers[name]}" for name in models["name"]),
    ).resolve_axis(y="independent")
