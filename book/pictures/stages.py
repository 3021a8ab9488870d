"""What the vectors of the decoder resemble, for section 3."""

from collections.abc import Callable

import altair as alt
import pandas as pd
from torch import Tensor

from book import charts


def draw_stages(
    likely: dict[str, tuple[Tensor, Tensor]], answer: Tensor, piece: Callable[[int], str]
) -> alt.LayerChart:
    """The likeliest piece after each sub-layer and at each position.

    likely: from the name of a stage to the largest probabilities and their ids, (positions, 5)
    answer: (1, positions + 1), the ids of the target
    piece: from an id to its text
    """
    rows = []
    for stage, (values, indices) in likely.items():
        for place, (p, ids) in enumerate(zip(values.tolist(), indices.tolist(), strict=True)):
            came, comes = answer[0, place].item(), answer[0, place + 1].item()
            rows.append(
                {
                    "after": stage,
                    "position": place,
                    "piece": piece(ids[0]),
                    "probability": p[0],
                    "it is": {comes: "next piece", came: "input piece"}.get(ids[0], "other piece"),
                    "the five likeliest": ", ".join(
                        f"{piece(i)} {each:.2f}" for i, each in zip(ids, p, strict=True)
                    ),
                }
            )
    small = alt.ExprRef("width < 280 ? 11 : 12")
    places = list(likely)[::-1]  # from the last; above those of a layer is the layer's name
    for place, name in (
        (12, "embedding"),
        (9, "layer 1"),
        (6, "layer 2"),
        (3, "layer 3"),
        (0, "layer 4"),
    ):
        places.insert(place, name.title())
    after = alt.Y(
        "after",
        title=None,
        scale=alt.Scale(domain=places),
        axis=alt.Axis(
            ticks=False,
            domain=False,
            labelPadding=6,
            labelExpr="isNaN(+datum.label[0]) ? '' : slice(datum.label, 2)",
        ),
    )
    grid = alt.Chart(pd.DataFrame(rows)).encode(
        alt.X(
            "position:O",
            title="input piece",
            axis=alt.Axis(
                labelAngle=0,
                labelFontSize=small,
                labelExpr=f"{[piece(i) for i in answer[0, :-1].tolist()]!r}[datum.value]",
            ),
        ),
        after,
        tooltip=["after", "piece", alt.Tooltip("probability", format=".2f"), "the five likeliest"],
    )
    colors = alt.Scale(
        domain=["input piece", "next piece", "other piece"],
        range=[charts.PALETTE[i] for i in (4, 0, 6)],
    )
    squares = grid.mark_rect().encode(
        alt.Color(
            "it is",
            scale=colors,
            title=None,
            legend=alt.Legend(orient="top", symbolType="square", symbolOpacity=0.5, symbolSize=140),
        ),
        alt.Opacity("probability", scale=alt.Scale(domain=[0, 1], range=[0.14, 0.5]), legend=None),
    )
    heads = (
        alt.Chart(pd.DataFrame({"after": [name for name in places if name not in likely]}))
        .mark_text(align="left", dx=2, dy=3, fontSize=12, color=charts.PALETTE[6])
        .encode(after, x=alt.value(0), text="after")
    )
    return (squares + heads + grid.mark_text(fontSize=small).encode(text="piece")).properties(
        width="container",
        height=alt.Step(20),
        title=alt.TitleParams(
            "In the second layer, the input gives way to a next word",
            subtitle="Read from the bottom up. The fainter a cell, the less probable its piece.",
        ),
        description="For each sub-layer of the decoder and each position, the piece that the "
        "vector resembles most: "
        + "; ".join(
            f"{stage}: {' '.join(map(piece, indices[:, 0].tolist()))}"
            for stage, (_, indices) in likely.items()
        ),
    )
