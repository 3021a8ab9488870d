"""Steps to learn against the distance, for section 2."""

import math

import altair as alt
import pandas as pd

from book import charts

LAYERS = {  # of the stacks, in the palette
    "contiguous": "convolutional",
    "LSTM": "LSTM",
    "dilated": "dilated",
    "self-attention": "self-attention",
}
HEIGHT, GAP = 260, 19  # of the chart, and the least between two names, in pixels
LIMIT = 4000  # steps after which a network has failed


def draw_recall(runs: pd.DataFrame, titles: dict[int, str], ends: tuple[int, int]) -> alt.Chart:
    """Every run as a point, and a line through the middle ones.

    runs: with the columns stack, layers, distance and steps (`LIMIT` if not learned)
    titles: of the chart, for each number of layers of the contiguous convolutions, from which the
        reader chooses; all other networks have the first number
    ends: of the vertical axis
    """
    first, *more = titles
    chosen = "layers" if more else first
    runs = runs[runs["stack"].isin(LAYERS)].query("layers == @first or stack == 'contiguous'")
    keys = ["stack", "layers", "distance"]
    middle = runs.groupby(keys, as_index=False)["steps"].median()
    learned = middle[middle["steps"] < LIMIT]
    failed = middle[middle["steps"] == LIMIT]
    named = pd.concat(_named(learned, layers, first, ends) for layers in titles)

    color = alt.Color("stack:N", legend=None).scale(
        domain=list(LAYERS), range=[charts.LAYERS[layer] for layer in LAYERS.values()]
    )
    x = alt.X("distance:Q", title="distance from the end (symbols)").scale(
        domain=[0.8, 8], nice=False, range=[0, alt.ExprRef("width - 132")]
    )
    y = alt.Y("steps:Q", title="steps of training until learned (log scale), better ↓")
    y = y.scale(type="log", domain=list(ends), nice=False)
    x = x.axis(grid=False, values=[*range(1, 9)], format="d", tickCount=8)
    y = y.axis(
        grid=False, values=[10, 30, 100, 300, 1000], format=",d", minExtent=46, **charts.UPRIGHT
    )
    text = {"align": "left", "fontSize": 14, "fontWeight": 600, "dx": 9}
    drawn = f"datum.stack != 'contiguous' || datum.layers == {chosen}"
    chart = lambda rows: alt.Chart(rows).transform_filter(drawn).encode(x, y, color)
    layers = [
        chart(learned).mark_line(),
        chart(runs[runs["steps"] < LIMIT])
        .mark_circle(size=26, opacity=0.5)
        .encode(tooltip=["stack", "distance", "steps"]),
        alt.Chart(named)
        .transform_filter(f"datum.shown == {chosen}")
        .mark_text(**text)
        .encode(x, y, color, text="told:N"),
    ]
    if len(failed):
        layers += [
            chart(failed).mark_point(shape="cross", angle=45, size=90, filled=True),
            chart(failed.tail(1)).mark_text(**text, text=f"not in {LIMIT:,}"),
        ]
    told = "; ".join(
        f"{stack}, {count} layers: "
        + ", ".join("not learned" if steps == LIMIT else f"{steps:,.0f}" for steps in rows)
        for (stack, count), rows in middle.groupby(["stack", "layers"])["steps"]
    )
    found = alt.layer(*layers).properties(
        title=alt.Title(
            alt.expr(f"{titles}[layers]") if more else titles[first],
            subtitle="Points: single networks; lines: their medians",
        ),
        width="container",
        height=HEIGHT,
        description=f"Steps of training against the distance, on a logarithmic axis. {told}.",
    )
    if not more:
        return found
    label = "Layers of the contiguous convolutions "
    bound = alt.binding_radio(options=list(titles), name=label)
    return found.add_params(alt.param("layers", value=first, bind=bound))


def _named(learned: pd.DataFrame, layers: int, first: int, ends: tuple[int, int]) -> pd.DataFrame:
    """What the ends of the lines are called, at least `GAP` pixels apart."""
    of = lambda stack: layers if stack == "contiguous" else first
    rows = learned[learned["layers"] == learned["stack"].map(of)]
    rows = rows[~rows.duplicated("stack", keep="last")].sort_values("steps")
    told = rows["stack"] + rows["steps"].map(" {:.0f}".format)
    gap = GAP / HEIGHT * math.log(ends[1] / ends[0])
    at = [math.log(steps) for steps in rows["steps"]]
    for _ in range(20):  # names that touch move apart, each half of the way
        for i in range(1, len(at)):
            if (near := gap - (at[i] - at[i - 1])) > 0:
                at[i - 1], at[i] = at[i - 1] - near / 2, at[i] + near / 2
    return rows.assign(told=told, shown=layers, steps=[math.exp(each) for each in at])
