"""Times of other implementations, for the page of benchmarks."""

import altair as alt
import pandas as pd

SETTINGS = {
    "best, float32": "best, 32 bits",
    "own, float32": "own, 32 bits",
    "best, bfloat16": "best, bfloat16",
    "beam 4": "a beam of four",
    "beam 1": "greedy",
}


def draw_ratios(
    table: pd.DataFrame, title: str, ticks: list[float], domain: list[float]
) -> alt.LayerChart:
    """Ratios with their interquartile ranges; to the right of 1, our model is faster."""
    others = table[table["contender"] != "annotated"].assign(
        setting=lambda t: t["setting"].map(SETTINGS)
    )
    scale = alt.Scale(type="log", domain=domain, nice=False)
    assert others[["from", "to"]].stack().between(*domain).all()
    order = [*others.groupby("contender")["their time ÷ ours"].median().sort_values().index]
    base = alt.Chart(others).encode(
        y=alt.Y(
            "contender:N",
            title=None,
            sort=order,
            axis=alt.Axis(ticks=False, domain=False, labelPadding=6),
        ),
        yOffset=alt.YOffset("setting:N", sort=None),
        color=alt.Color(
            "setting:N",
            title=None,
            sort=None,
            legend=alt.Legend(orient="top", symbolType="circle", symbolOpacity=1),
        ),
        tooltip=[
            "contender",
            "setting",
            *(alt.Tooltip(f"{c}:Q", format=".2f") for c in table.columns[2:6]),
        ],
    )
    x = alt.X(
        "their time ÷ ours:Q",
        title="their time ÷ ours (logarithmic scale)",
        scale=scale,
        axis=alt.Axis(values=ticks, format="~g", titleAnchor="end"),
    )
    points = base.mark_point(filled=True, size=80, opacity=1).encode(x=x)
    spread = base.mark_rule(strokeWidth=2).encode(x=alt.X("from:Q", scale=scale), x2="to:Q")
    equal = (
        alt.Chart(pd.DataFrame({"x": [1]}))
        .mark_rule(strokeDash=[4, 4])
        .encode(x=alt.X("x:Q", scale=scale))
    )
    told = (
        f"{row.contender}, {row.setting}: {ratio:.2f}"
        for row, ratio in zip(others.itertuples(), others["their time ÷ ours"], strict=True)
    )
    return (equal + spread + points).properties(
        title=title,
        width="container",
        height=18 * len(others),
        description="Time divided by our time. " + "; ".join(told),
    )
