"""Steps to learn against the distance, for section 2."""

from itertools import pairwise

import altair as alt
import numpy as np
import pandas as pd

from book import charts

NAMES = {  # of the stacks, and their layer in the palette
    "contiguous": ("contiguous", "convolutional"),
    "LSTM": ("recurrent (LSTM)", "recurrent"),
    "dilated": ("dilated", "dilated"),
    "self-attention": ("self-attention", "self-attention"),
}


def draw_recall(tasks: dict[str, pd.DataFrame], limit: int = 4000) -> alt.HConcatChart:
    """A panel for each task: every run as a point, and a line through the middle ones.

    tasks: by title, runs with the columns stack, distance and steps (`limit` if not learned)
    """
    panels, told = zip(*(_panel(*task, limit) for task in tasks.items()), strict=True)
    return alt.hconcat(*panels, spacing=20).properties(
        title=alt.Title(
            "Convolutions pay for each hop, LSTMs for the distance in one version",
            subtitle="Points: runs; lines: medians. Dilated convolutions take two hops "
            "for 3, 5, 6 and 7",
        ),
        description="Steps of training against the distance, on a logarithmic axis. "
        + " ".join(told),
    )


def _panel(title: str, runs: pd.DataFrame, limit: int) -> tuple[alt.LayerChart, str]:
    """The chart of one task, and what it shows in words."""
    runs = runs[runs["stack"].isin(NAMES)]
    found = runs.pivot_table("steps", "stack", "distance", aggfunc="median").loc[[*NAMES]]
    middle = found.reset_index().melt("stack", value_name="steps")
    named = lambda rows: rows.assign(stack=rows["stack"].map(lambda stack: NAMES[stack][0]))
    learned = named(middle[middle["steps"] < limit])
    ends = learned[~learned.duplicated("stack", keep="last")]
    ends = ends.assign(told=ends["stack"] + ends["steps"].map(" {:.0f}".format))
    ends = ends.sort_values("steps")
    for i, (low, high) in enumerate(pairwise(ends["steps"])):  # names of neighbors do not touch
        if high < 1.7 * low:
            apart = (low * high) ** 0.5 * 1.3 ** np.array([-1, 1])
            ends.iloc[i : i + 2, ends.columns.get_loc("steps")] = apart
    failed = pd.DataFrame({"distance": found.columns[(found == limit).any()], "steps": limit})

    color = alt.Color("stack:N", legend=None).scale(
        domain=[name for name, _ in NAMES.values()],
        range=[charts.LAYERS[layer] for _, layer in NAMES.values()],
    )
    x = alt.X("distance:Q", title="distance (symbols)").scale(domain=[0.6, 13.8], nice=False)
    y = alt.Y("steps:Q", title="steps of training, better ↓").scale(
        type="log", domain=[2.5, 5500], nice=False
    )
    upright = charts.UPRIGHT | {"grid": False, "values": [10, 100, 1000], "format": ",d"}
    below = {"grid": False, "values": [1, 2, 4, 6, 8], "titleAnchor": "start", "domain": False}
    x, y = x.axis(**below), y.axis(**upright)
    text = {"align": "left", "fontSize": 14, "fontWeight": 600}
    layers = [
        alt.Chart(learned).mark_line().encode(x, y, color),
        alt.Chart(named(runs[runs["steps"] < limit]))
        .mark_circle(size=26, opacity=0.5)
        .encode(x, y, color, tooltip=["stack", "distance", "steps"]),
        alt.Chart(ends).mark_text(dx=9, **text).encode(x, y, color, text="told:N"),
    ]
    if found.loc["dilated", 6] > 1.5 * found.loc["dilated", 4]:  # else there is no room
        layers += [
            alt.Chart(learned.query(f"stack == 'dilated' and distance == {distance}"))
            .mark_text(dy=dy, fontSize=14)
            .encode(x, y, color, text=alt.value(hops))
            for distance, hops, dy in ((4, "1 hop", 16), (6, "2 hops", -11))
        ]
    if len(failed):
        green = {"color": charts.LAYERS["convolutional"]}
        layers += [
            alt.Chart(failed).mark_point(shape="cross", angle=45, size=90, **green).encode(x, y),
            alt.Chart(failed.tail(1).assign(told=f"not in {limit:,}"))
            .mark_text(dx=9, **text, **green)
            .encode(x, y, text="told:N"),
        ]
    described = "; ".join(
        f"{NAMES[stack][0]}: " + ", ".join(f"{steps:,.0f}" for steps in found.loc[stack])
        for stack in NAMES
    )
    chart = alt.layer(*layers).properties(
        width=290, height=230, title=alt.Title(title, fontSize=14, offset=18)
    )
    return chart, f"{title}: {described}."
