"""What is left of gradients and positions in stacks with and without sums, for section 3.1."""

import altair as alt
import pandas as pd

from book import charts

KINDS = ["neither", "no sum", "post-norm", "pre-norm"]


def draw_depths(rows: pd.DataFrame) -> alt.HConcatChart:
    """The gradient at the first layer, and the share of the outputs that differs by position.

    rows: with the columns kind, layers, seed, gradient and share
    """
    size = alt.Y("gradient", title=None).scale(type="log", domain=[1e-22, 1e3], nice=False)
    raised = ["1", "10⁻⁶", "10⁻¹²", "10⁻¹⁸"]
    power = f"{raised}[-round(log(datum.value) / LN10) / 6]"
    size = size.axis(values=[1, 1e-6, 1e-12, 1e-18], labelExpr=power)
    share = alt.Y("share", title=None).scale(domain=[0, 0.75]).axis(format="%", tickCount=3)
    arrives = {
        "no sum": ("no sum", 0, -14),
        "pre-norm": ("post-norm, pre-norm", 0, 14),
        "neither": ("neither", 34, -8),
    }
    differs = {
        "no sum": ("no sum, neither", 0, -12),
        "post-norm": ("post-norm", -44, 14),
        "pre-norm": ("pre-norm", 34, -16),
    }
    return alt.hconcat(
        _panel(rows, size, "Gradient at the first layer", arrives),
        _panel(rows, share, "Share that differs by position", differs),
        spacing=20,
    )


def _panel(
    rows: pd.DataFrame, y: alt.Y, title: str, named: dict[str, tuple[str, int, int]]
) -> alt.LayerChart:
    """One measure by depth; named: the words at a kind's line, and their distance from it."""
    measure = y.shorthand
    chart = alt.Chart(rows).encode(
        alt.X("layers:O", title="layers", axis=alt.Axis(labelAngle=0)),
        y,
        alt.Color("kind", legend=None).scale(
            domain=KINDS, range=[charts.PALETTE[i] for i in (6, 1, 0, 2)]
        ),
    )
    medians = rows.groupby(["kind", "layers"], as_index=False)[measure].median()
    names = (
        chart.mark_text(dx=dx, dy=dy, fontSize=13, fontWeight=600)
        .encode(text=alt.value(words))
        .properties(data=medians[(medians["kind"] == kind) & (medians["layers"] == 12)])
        for kind, (words, dx, dy) in named.items()
    )
    told = alt.Tooltip(measure, format=".2g")
    return alt.layer(
        chart.mark_line(strokeWidth=2).properties(data=medians),
        chart.mark_point(size=35, opacity=0.6).encode(tooltip=["kind", "layers", "seed", told]),
        *names,
        title=alt.Title(title, fontSize=13),
        width=225,
        height=200,
    )
