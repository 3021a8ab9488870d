"""Times of other implementations, for the page of benchmarks."""

import altair as alt
import pandas as pd

from book import charts

SETTINGS = {
    "beam 4": "search, a beam of four",
    "beam 1": "search, greedy",
    "best, float32": "training, 32 bits",
    "best, bfloat16": "training, bfloat16",
}


def draw_ratios(table: pd.DataFrame, title: str) -> alt.LayerChart:
    """Medians of ratios with their intervals; to the right of 1, our model is faster."""
    others = table[table["contender"] != "annotated"].assign(
        group=lambda t: t["setting"].map(SETTINGS),
        row=lambda t: t["group"] + "|" + t["contender"],
        faster=lambda t: t["to"] < 1,
        ratio=lambda t: t["their time ÷ ours"],
    )
    low, high = 0.45, 18
    assert others[["from", "to"]].stack().between(low, high).all()
    order = others.groupby("contender")["ratio"].median().sort_values().index
    there = {*others["row"]}
    groups = {g: [name for name in order if f"{g}|{name}" in there] for g in SETTINGS.values()}
    across = lambda name: alt.X(f"{name}:Q").scale(type="log", domain=[low, high], nice=False)
    rows = alt.Chart(others).encode(charts.grouped(groups, 150))
    marks = rows.encode(
        alt.Color("faster:N", legend=None).scale(
            domain=[True, False], range=[charts.PALETTE[0], charts.PALETTE[-1]]
        ),
        tooltip=["contender", "group"]
        + [alt.Tooltip(f"{c}:Q", format=".2f") for c in ("ratio", "from", "to")],
    )
    numbers = rows.encode(alt.Text("ratio:Q", format=".2f"))
    told = (f"{row.contender}, {row.group}: {row.ratio:.2f}" for row in others.itertuples())
    equal = alt.Chart(pd.DataFrame({"x": [1]})).encode(across("x"))
    sides = (
        equal.mark_text(align=align, dx=dx, fontSize=13).encode(y=alt.value(-30), text=alt.value(t))
        for align, dx, t in (("right", -8, "← faster"), ("left", 8, "slower than ours →"))
    )
    return alt.layer(
        equal.mark_rule(strokeDash=[4, 4]),
        *sides,
        marks.mark_rule(strokeWidth=2).encode(across("from"), x2="to:Q"),
        marks.mark_point(filled=True, size=80, opacity=1).encode(
            across("ratio")
            .title(None)
            .axis(orient="top", values=[0.5, 1, 2, 5, 10], format="~g", grid=False)
        ),
        numbers.mark_text(align="left", dx=8, fontSize=13, opacity=0.75)
        .encode(across("to"))
        .transform_filter("!datum.faster"),
        numbers.mark_text(align="right", dx=-8, fontSize=13, fontWeight=700)
        .encode(across("from"))
        .transform_filter("datum.faster"),
        title=alt.Title(
            title,
            subtitle="Their time divided by ours in the same round: median and 95% interval. "
            "A difference is clear if the interval excludes 1.",
        ),
        width="container",
        height=alt.Step(20),
        description="Time divided by our time. " + "; ".join(told),
    )
