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
    angle = lambda sine, cosine: round(math.degrees(math.atan2(sine, cosine)) % 360, 2)
    hands = pd.DataFrame(
        (pos, pair, angle(*waves))
        for pos, row in enumerate(table.tolist())
        for pair, waves in enumerate(zip(row[::2], row[1::2], strict=True))
    ).set_axis(["position", "pair", "angle"], axis=1)
    pos = charts.slider("pos", 45, 0, 60, 1, "Position")
    k = charts.slider("k", 8, 0, 20, 1, "Offset k")
    blue, orange, *_, grey = charts.PALETTE
    color = alt.Color("hand:N", legend=None)
    color = color.scale(domain=["position", "k later"], range=[blue, orange])
    dials = (
        alt.Chart(hands)
        .transform_calculate(
            column="datum.pair % 4",
            row="floor(datum.pair / 4)",
            end="datum.angle * PI / 180",
            begin="datum.end - (k * pow(10000, -datum.pair / 8)) % (2 * PI)",
            wave="format(2 * PI * pow(10000, datum.pair / 8), ',.0f')",
            told="datum.wave + (datum.pair ? '' : ' tokens')",
        )
        .encode(
            alt.X("column:Q").axis(None).scale(domain=[-0.5, 3.5], nice=False),
            alt.Y("row:Q").axis(None).scale(domain=[1.5, -0.45], nice=False),
            tooltip=["pair", alt.Tooltip("wave:N", title="a full turn")],
        )
    )
    once, here, later = (
        dials.transform_filter(alt.datum.position == at) for at in (0, pos, pos + k)
    )
    radius = "min(60, width / 8 - 8)"
    disk = alt.ExprRef(f"pow(2 * {radius}, 2)")
    below, small = alt.ExprRef(f"{radius} + 13"), alt.ExprRef("width < 400 ? 12 : 13")

    def hand(dials: alt.Chart, name: str, half: float, long: float) -> alt.Chart:
        shape = f"M-{half},0L-{half},-{long}L{half},-{long}L{half},0Z"
        size = alt.ExprRef(f"pow(2 * {radius} - 3, 2)")
        drawn = dials.transform_calculate(hand=f"'{name}'")
        drawn = drawn.mark_point(shape=shape, size=size, opacity=1)
        return drawn.encode(color=color, angle=alt.Angle("angle:Q", scale=None))

    turned = alt.ExprRef(f"{radius} - 2")
    first = once.transform_filter(alt.datum.pair % 4 == 0).mark_text(
        align="left",
        dx=alt.ExprRef("-width / 8"),
        dy=alt.ExprRef(f"-{radius} - 8"),
        fontSize=13,
        fontWeight=600,
    )
    return alt.layer(
        once.mark_point(shape="circle", size=disk, filled=False, color=grey, strokeWidth=1),
        once.mark_text(dy=below, fontSize=small).encode(text="told:N"),
        first.encode(text=alt.condition("datum.pair < 4", alt.value("fast"), alt.value("slow"))),
        later.mark_arc(radius=0, radius2=turned, color=orange, opacity=0.25).encode(
            theta=alt.Theta("begin:Q", scale=None, stack=None), theta2="end:Q"
        ),
        # Shorter and wider, so that both are seen when they coincide.
        hand(later, "k later", 0.075, 0.75),
        hand(here, "position", 0.03, 1),
        once.mark_point(size=50, opacity=1, color=blue),
        title=alt.Title(
            "Fast hands distinguish neighbors, slow hands distant positions",
            subtitle="Blue: a position. Orange: k later. Below: a full turn.",
        ),
        description="Eight dials with two hands each, one for the position and one for the "
        "position k later. The first hand makes a full turn in about 6 tokens, each next one in "
        "three times as many, the last in about 20,000. In each dial the angle between the two "
        "hands depends on k and not on the position.",
        width="container",
        height=300,
    ).add_params(pos, k)
