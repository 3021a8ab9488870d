"""Steps to learn against the distance, for section 2."""

import altair as alt
import pandas as pd

from book import charts

NAMES = {  # of the stacks: their layer in the palette, and by how much the name is shifted
    "contiguous": ("convolutional", -10),
    "dilated": ("dilated", 7),
    "self-attention": ("self-attention", -5),
    "LSTM": ("LSTM", 0),
}


def draw_recall(runs: pd.DataFrame, limit: int) -> alt.LayerChart:
    """Every run as a point, and a line through the middle ones.

    runs: with the columns stack, distance and steps
    limit: the steps after which a run was given up
    """
    shades = [charts.LAYERS[layer] for layer, _ in NAMES.values()]
    base = alt.Chart(runs).encode(
        alt.X("distance:O")
        .title("distance (tokens)")
        .axis(labelAngle=0, titleAnchor="end")
        .scale(padding=0, range=[20, alt.ExprRef("width - 100")]),
        alt.Y("steps:Q")
        .title("steps of training until 95% are right; ↓ better")
        .scale(type="log", domain=[4, 6000], nice=False)
        .axis(values=[10, 100, 1000, limit], format=",d", **charts.UPRIGHT),
        alt.Color("stack:N", legend=None).scale(domain=[*NAMES], range=shades),
    )
    found = runs.pivot_table("steps", "stack", "distance", aggfunc="median")
    slow = found.loc["contiguous"]
    slow = slow[slow < limit]
    factor = (slow.iloc[-1] / slow.iloc[0]) ** (1 / (len(slow) - 1))  # per token
    middle = base.transform_aggregate(steps="median(steps)", groupby=["stack", "distance"])
    given_up = alt.Chart(pd.DataFrame({"steps": [limit]})).encode(y="steps:Q")
    return alt.layer(
        given_up.mark_rule(strokeDash=[4, 4], color=charts.PALETTE[6]),
        given_up.mark_text(
            align="left", dx=4, dy=-8, fontSize=13, text="given up", color=charts.PALETTE[6]
        ).encode(x=alt.value(0)),
        middle.mark_line(),
        *(
            base.transform_filter(alt.datum.steps < limit if learned else alt.datum.steps >= limit)
            .mark_point(size=50, opacity=1, filled=learned)
            .encode(tooltip=["stack", "distance", "steps"])
            for learned in (True, False)
        ),
        *(
            middle.transform_filter(alt.datum.stack == stack)
            .transform_filter(alt.datum.distance == found.columns[-1])
            .mark_text(align="left", fontSize=13, fontWeight=600, dx=9, dy=shift)
            .encode(text="stack:N")
            for stack, (_, shift) in NAMES.items()
        ),
        middle.transform_filter(
            "datum.stack === 'contiguous' && (datum.distance === 1 || datum.distance > 3)"
        )
        .transform_filter(alt.datum.steps < limit)
        .mark_text(align="left", fontSize=13, fontWeight="bold", dx=8, dy=11)
        .encode(text=alt.Text("steps:Q", format=",")),
        width="container",
        height=300,
        title=alt.Title(
            f"Contiguous convolutions need {factor:.1f} times the training for each further token",
            subtitle="Toy task, eight layers; lines: medians of three runs; "
            f"factor: mean from 1 to {slow.index[-1]}",
        ),
        description="Steps of training against the distance, on a logarithmic axis, medians of "
        "three runs. "
        + "; ".join(
            f"{stack}: " + ", ".join(f"{steps:,.0f}" for steps in row)
            for stack, row in found.iterrows()
        )
        + f". At {limit:,} steps a run was given up.",
    )
