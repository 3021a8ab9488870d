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


def draw_recall(tasks: dict[str, tuple[str, pd.DataFrame]], limit: int = 4000) -> alt.LayerChart:
    """Every run as a point and a line through the middle ones, for the task that is selected.

    tasks: by name, the title of the chart, and runs with the columns stack, distance and steps
        (`limit` if not learned)
    """
    names = list(tasks)
    shown = [_layers(name, names[0], runs, limit) for name, (_, runs) in tasks.items()]
    layers, told = zip(*shown, strict=True)
    return (
        alt.layer(*(layer for each in layers for layer in each))
        .properties(
            title=alt.Title(
                alt.expr(f"{ {name: title for name, (title, _) in tasks.items()} }[task]"),
                subtitle="Points: runs; lines: medians",
            ),
            width="container",
            height=260,
            description="Steps of training against the distance, on a logarithmic axis. "
            + " ".join(told),
        )
        .add_params(
            alt.param(
                "task",
                value=names[0],
                bind=alt.binding_radio(options=names, name="Each network learns "),
            )
        )
    )


def _layers(task: str, first: str, runs: pd.DataFrame, limit: int) -> tuple[list[alt.Chart], str]:
    """The marks of one task, and what they show in words; the first has the shorter axis."""
    runs = runs[runs["stack"].isin(NAMES)]
    found = runs.pivot_table("steps", "stack", "distance", aggfunc="median").loc[[*NAMES]]
    middle = found.reset_index().melt("stack", value_name="steps")
    named = lambda rows: rows.assign(stack=rows["stack"].map(lambda stack: NAMES[stack][0]))
    learned = named(middle[middle["steps"] < limit])
    ends = learned[~learned.duplicated("stack", keep="last")]
    short = ends["stack"].replace("recurrent (LSTM)", "LSTM")
    ends = ends.assign(told=short + ends["steps"].map(" {:.0f}".format))
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
    x = alt.X("distance:Q", title="distance (symbols)").scale(
        domain=[0.8, 8], nice=False, range=[0, alt.ExprRef("width - 132")]
    )
    y = alt.Y("steps:Q", title="steps of training, better ↓").scale(
        type="log",
        domainMin=alt.ExprRef(f"task == '{first}' ? 10 : 4"),
        domainMax=alt.ExprRef(f"task == '{first}' ? 300 : 5500"),
        nice=False,
    )
    x = x.axis(grid=False, values=[*range(1, 9)], labelOverlap=False)
    y = y.axis(
        grid=False, values=[10, 30, 100, 300, 1000], format=",d", minExtent=46, **charts.UPRIGHT
    )
    text = {"align": "left", "fontSize": 14, "fontWeight": 600}
    chart = lambda rows: alt.Chart(rows).transform_filter(f"task == '{task}'")
    layers = [
        chart(learned).mark_line().encode(x, y, color),
        chart(named(runs[runs["steps"] < limit]))
        .mark_circle(size=26, opacity=0.5)
        .encode(x, y, color, tooltip=["stack", "distance", "steps"]),
        chart(ends).mark_text(dx=9, **text).encode(x, y, color, text="told:N"),
    ]
    if found.loc["dilated", 6] > 1.5 * found.loc["dilated", 4]:  # else there is no room
        layers += [
            chart(learned.query(f"stack == 'dilated' and distance == {distance}"))
            .mark_text(dy=dy, fontSize=14)
            .encode(x, y, color, text=alt.value(hops))
            for distance, hops, dy in ((4, "1 hop", 16), (6, "2 hops", -11))
        ]
    if len(failed):
        green = {"color": charts.LAYERS["convolutional"]}
        layers += [
            chart(failed).mark_point(shape="cross", angle=45, size=90, **green).encode(x, y),
            chart(failed.tail(1).assign(told=f"not in {limit:,}"))
            .mark_text(dx=9, **text, **green)
            .encode(x, y, text="told:N"),
        ]
    described = "; ".join(
        f"{NAMES[stack][0]}: " + ", ".join(f"{steps:,.0f}" for steps in found.loc[stack])
        for stack in NAMES
    )
    return layers, f"{task}: {described}."
