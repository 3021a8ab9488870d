"""Steps to learn against the distance, for section 2."""

import altair as alt
import pandas as pd

from book import charts

NAMES = {  # of the stacks, and their layer in the palette
    "contiguous": "convolutional",
    "recurrent": "recurrent",
    "dilated": "dilated",
    "self-attention": "self-attention",
}


def draw_recall(runs: pd.DataFrame) -> alt.LayerChart:
    """Every run as a point, and a line through the middle ones.

    runs: with the columns stack, distance and steps
    """
    base = alt.Chart(runs).encode(
        alt.X("distance:O")
        .title("distance (symbols)")
        .axis(labelAngle=0, titleAnchor="end")
        .scale(padding=0, range=[20, alt.ExprRef("width - 150")]),
        alt.Y("steps:Q")
        .title("steps of training until 95% are right; ↓ better")
        .scale(type="log", domain=[10, 400], nice=False)
        .axis(values=[10, 30, 100, 300], **charts.UPRIGHT),
        alt.Color("stack:N", legend=None).scale(
            domain=[*NAMES], range=[charts.LAYERS[layer] for layer in NAMES.values()]
        ),
    )
    found = runs.pivot_table("steps", "stack", "distance", aggfunc="median")
    middle = base.transform_aggregate(steps="median(steps)", groupby=["stack", "distance"])
    ends = middle.transform_calculate(told="datum.stack + ' ' + format(datum.steps, '.0f')")
    return alt.layer(
        middle.mark_line(),
        base.mark_circle(size=30, opacity=0.6).encode(tooltip=["stack", "distance", "steps"]),
        ends.transform_filter(alt.datum.distance == found.columns[-1])
        .mark_text(align="left", fontSize=14, fontWeight=600, dx=9)
        .encode(text="told:N"),
        middle.transform_filter(
            (alt.datum.distance == found.columns[0]) & (alt.datum.stack == "contiguous")
        )
        .mark_text(fontSize=14, fontWeight=600, dx=-4, dy=20, align="left")
        .encode(text=alt.Text("steps:Q", format=".0f")),
        width="container",
        height=280,
        title=alt.Title(
            "Only for contiguous convolutions is a farther symbol harder to learn",
            subtitle="Toy task, all distances trained together; points: five runs, lines: medians",
        ),
        description="Steps of training against the distance, on a logarithmic axis, medians of "
        "five runs. "
        + "; ".join(
            f"{stack}: " + ", ".join(f"{steps:,.0f}" for steps in found.loc[stack])
            for stack in NAMES
        ),
    )
