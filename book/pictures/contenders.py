"""Times of other implementations, for the page of benchmarks."""

import altair as alt
import pandas as pd

SETTINGS = {
    "best, float32": "fastest options, 32 bits", "own, float32": "own defaults, 32 bits",
    "best, bfloat16": "fastest options, bfloat16", "beam 4": "a beam of four", "beam 1": "greedy",
}  # fmt: skip


def draw_ratios(
    table: pd.DataFrame, title: str, ticks: list[float], domain: list[float]
) -> alt.LayerChart:
    """Medians of ratios with their intervals; to the right of 1, our model is faster."""
    others = table[table["contender"] != "annotated"].assign(
        setting=lambda t: t["setting"].map(SETTINGS)
    )
    assert others[["from", "to"]].stack().between(*domain).all()
    by_contender = others.groupby("contender")["their time ÷ ours"]
    order = [*by_contender.median().sort_values().index]
    base = alt.Chart(others).encode(
        alt.Y("contender:N", title=None, sort=order).axis(
            ticks=False, domain=False, labelPadding=6
        ),
        alt.YOffset("setting:N", sort=None),
        alt.Color("setting:N", title=None, sort=None).legend(
            orient="top", symbolType="circle", symbolOpacity=1, columnPadding=20
        ),
        tooltip=["contender", "setting"]
        + [alt.Tooltip(f"{c}:Q", format=".2f") for c in table.columns[2:6]],
    )
    across = lambda name: alt.X(f"{name}:Q").scale(type="log", domain=domain, nice=False)
    ratio = across("their time ÷ ours").title("their time ÷ ours: slower than ours →")
    told = (
        f"{row.contender}, {row.setting}: {ratio:.2f}"
        for row, ratio in zip(others.itertuples(), others["their time ÷ ours"], strict=True)
    )
    return alt.layer(
        alt.Chart(pd.DataFrame({"x": [1]})).mark_rule(strokeDash=[4, 4]).encode(across("x")),
        base.mark_rule(strokeWidth=2).encode(across("from"), x2="to:Q"),
        base.mark_point(filled=True, size=80, opacity=1).encode(
            ratio.axis(values=ticks, format="~g", titleAnchor="end")
        ),
        title=title,
        width="container",
        height=18 * len(others),
        description="Time divided by our time. " + "; ".join(told),
    )
