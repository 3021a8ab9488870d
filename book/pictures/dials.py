"""The positional encoding as the hands of clocks, for section 3.5."""

import math

import altair as alt
import pandas as pd
from torch import Tensor

from book import charts


def draw_hands(table: Tensor) -> alt.LayerChart:
    """Eight dials with a hand for a position and one for a position k later.

    table: (positions, 16), the encodings of positions from 0 on
    """
    hands = pd.DataFrame(
        [
            {
                "position": pos,
                "pair": pair,
                "angle": round(math.degrees(math.atan2(sine, cosine)) % 360, 2),
            }
            for pos, row in enumerate(table.tolist())
            for pair, (sine, cosine) in enumerate(zip(row[::2], row[1::2], strict=True))
        ]
    )
    slider = lambda name, value, most, text: alt.param(
        name, value=value, bind=alt.binding_range(min=0, max=most, step=1, name=f"{text} ")
    )
    pos, k = slider("pos", 5, 60, "Position"), slider("k", 3, 20, "Offset k")
    blue, orange, *_, grey = charts.PALETTE
    color = alt.Color(
        "hand:N",
        title=None,
        scale=alt.Scale(domain=["position", "k later"], range=[blue, orange]),
        legend=alt.Legend(symbolType="M-1,-0.2L1,-0.2L1,0.2L-1,0.2Z", symbolSize=200),
    )
    dials = (
        alt.Chart(hands)
        .transform_calculate(
            column="datum.pair % 4",
            row="floor(datum.pair / 4)",
            end="datum.angle * PI / 180",
            begin="datum.end - (k * pow(10000, -datum.pair / 8)) % (2 * PI)",
            wave="format(2 * PI * pow(10000, datum.pair / 8), ',.0f')",
        )
        .encode(
            x=alt.X("column:Q", axis=None, scale=alt.Scale(domain=[-0.5, 3.5], nice=False)),
            y=alt.Y("row:Q", axis=None, scale=alt.Scale(domain=[1.5, -0.45], nice=False)),
            tooltip=["pair", alt.Tooltip("wave:N", title="a full turn")],
        )
    )
    once, here, later = (
        dials.transform_filter(alt.datum.position == at) for at in (0, pos, pos + k)
    )
    radius = "min(50, width / 8 - 8)"
    hand = lambda dials, name, half, long: (
        dials.transform_calculate(hand=f"'{name}'")
        .mark_point(
            shape=f"M-{half},0L-{half},-{long}L{half},-{long}L{half},0Z",
            size=alt.ExprRef(f"pow(2 * {radius} - 3, 2)"),
            opacity=1,
        )
        .encode(color=color, angle=alt.Angle("angle:Q", scale=None))
    )
    return (
        alt.layer(
            once.mark_point(
                shape="circle",
                size=alt.ExprRef(f"pow(2 * {radius}, 2)"),
                filled=False,
                color=grey,
                strokeWidth=1,
            ),
            once.mark_text(
                dy=alt.ExprRef(f"{radius} + 13"),
                color=grey,
                fontSize=alt.ExprRef("width < 400 ? 11 : 13"),
            ).encode(text="wave:N"),
            later.mark_arc(
                radius=0, radius2=alt.ExprRef(f"{radius} - 2"), color=orange, opacity=0.25
            ).encode(theta=alt.Theta("begin:Q", scale=None, stack=None), theta2="end:Q"),
            hand(
                later, "k later", 0.075, 0.75
            ),  # shorter and wider, so that both are seen when they coincide
            hand(here, "position", 0.03, 1),
            once.mark_point(size=50, opacity=1, color=blue),
        )
        .add_params(pos, k)
        .properties(
            title="Eight hands, and how many tokens a full turn takes",
            description="Eight dials with two hands each, one for the position and one for the "
            "position k later. The first hand "
            "makes a full turn in about 6 tokens, each next one in three times as many, the last "
            "in about 20,000. In each dial the "
            "angle between the two hands depends on k and not on the position.",
            width="container",
            height=270,
        )
    )
