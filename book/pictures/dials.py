"""The positional encoding as the hands of clocks, for section 3.5."""

import math

import altair as alt
from torch import Tensor

from book import charts


def draw_hands(table: Tensor) -> alt.LayerChart:
    """Eight dials with a hand for a position and one for a later position.

    table: (positions, 16), the encodings of positions from 0 on
    """
    angle = lambda sine, cosine: round(math.degrees(math.atan2(sine, cosine)) % 360, 2)
    hands = [
        {
            "position": pos,
            "pair": [*range(8)],
            "angle": [*map(angle, row[::2], row[1::2])],
        }
        for pos, row in enumerate(table.tolist())
    ]
    pos = charts.slider("pos", 20, 0, len(hands) - 101, 1, "Position")
    offset = charts.slider("offset", 10, 1, 100, 1, "Tokens later")
    blue, orange, *_, grey = charts.PALETTE
    color = alt.Color("hand:N", legend=None)
    color = color.scale(domain=["position", "later"], range=[blue, orange])

    end = lambda phone, wide: alt.ExprRef(f"width < 500 ? {phone} : {wide}")

    def dials(place: str) -> alt.Chart:
        """All eight at one position."""
        return (
            alt.Chart()
            .transform_filter(f"datum.position == {place}")
            .transform_flatten(["pair", "angle"])
            .transform_calculate(
                column="datum.pair % 4",
                row="floor(datum.pair / 4)",
                turned="offset * pow(10000, -datum.pair / 8)",
                end="datum.angle * PI / 180",
                begin="datum.end - datum.turned % (2 * PI)",
                wave="2 * PI * pow(10000, datum.pair / 8)",
                told="format(datum.wave, datum.wave < 10 ? '.1f' : ',.2r')",
                below="datum.told + (width < 500 ? '' : ' tokens')",
            )
            .encode(
                alt.X("column:Q")
                .axis(None)
                .scale(domainMin=end(-0.5, -0.262), domainMax=end(3.5, 3.262), nice=False),
                alt.Y("row:Q").axis(None).scale(domain=[1.57, -0.57], nice=False),
                tooltip=["pair:N", alt.Tooltip("told:N", title="tokens per full turn")],
            )
        )

    once, here, later = dials("0"), dials("pos"), dials("(pos + offset)")
    radius = "min(54, width / 8 - 5)"

    def hand(dials: alt.Chart, name: str, half: float) -> alt.Chart:
        shape = f"M-{half},0L-{half},-1L{half},-1L{half},0Z"
        size = alt.ExprRef(f"pow(2 * {radius} - 3, 2)")
        drawn = dials.transform_calculate(hand=f"'{name}'")
        drawn = drawn.mark_point(shape=shape, size=size, opacity=1)
        return drawn.encode(color=color, angle=alt.Angle("angle:Q", scale=None))

    def named(told: str, place: str, color: str, across: int) -> alt.Chart:
        """A name of the hands, above the dials."""
        style = {"align": "left", "fontSize": 14, "fontWeight": 600, "color": color}
        return (
            once.transform_filter("datum.pair == 0")
            .transform_calculate(told=f"'{told}: position ' + ({place})")
            .mark_text(
                dx=alt.ExprRef(f"{across} - {radius}"), dy=alt.ExprRef(f"-{radius} - 16"), **style
            )
            .encode(text="told:N")
        )

    return alt.layer(
        once.mark_point(
            shape="circle",
            size=alt.ExprRef(f"pow(2 * {radius}, 2)"),
            filled=False,
            color=grey,
            strokeWidth=1,
        ),
        later.mark_arc(
            radius=0, radius2=alt.ExprRef(f"{radius} - 2"), color=orange, opacity=0.25
        ).encode(theta=alt.Theta("begin:Q", scale=None, stack=None), theta2="end:Q"),
        hand(later, "later", 0.05),  # wider, so that it shows behind the other
        hand(here, "position", 0.03),
        once.mark_point(size=50, opacity=1, color=grey),
        once.mark_text(dy=alt.ExprRef(f"{radius} + 16"), fontSize=14).encode(text="below:N"),
        named("blue", "pos", blue, 0),
        named("orange", "pos + offset", orange, 138),
        data=alt.Data(values=hands),
        title=alt.TitleParams(
            "A position is a time shown on many clocks",
            subtitle="A hand: two numbers of a position’s vector. Below: its full turn, in tokens",
        ),
        description="Eight dials with two hands each, one for the position and one for a position "
        "some tokens later, from 1 to 100. The angle between them is the same at every position. "
        "The first clock makes a full turn in about 6 tokens, each next one in three times as "
        "many, the last in about 20,000.",
        width="container",
        height=308,
        usermeta={"height": 250},  # on a phone, where the dials are smaller
    ).add_params(pos, offset)
