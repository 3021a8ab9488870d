"""The positional encoding as the hands of clocks, for section 3.5."""

import math

import altair as alt
from torch import Tensor

from book import charts

FAR = 100  # tokens, in which a slow hand turns as far as a fast one in a single token


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
    pos = charts.slider("pos", 44, 0, 60, 1, "Position")
    blue, orange, *_, grey = charts.PALETTE
    color = alt.Color("hand:N", legend=None)
    color = color.scale(domain=["position", "later"], range=[blue, orange])
    low = alt.ExprRef("width < 500 ? -0.5 : -1.15")  # room for names of the rows

    def dials(fast: str, slow: str) -> alt.Chart:
        """The upper four at one position, the lower four at another."""
        return (
            alt.Chart()
            .transform_filter(f"datum.position == {fast} || datum.position == {slow}")
            .transform_flatten(["pair", "angle"])
            .transform_filter(f"datum.position == (datum.pair < 4 ? {fast} : {slow})")
            .transform_calculate(
                column="datum.pair % 4",
                row="floor(datum.pair / 4)",
                step=f"datum.row ? {FAR} : 1",
                turned="datum.step * pow(10000, -datum.pair / 8)",
                end="datum.angle * PI / 180",
                begin="datum.end - datum.turned % (2 * PI)",
                degrees="datum.turned * 180 / PI % 360",
                wave="format(2 * PI * pow(10000, datum.pair / 8), ',.0f')",
            )
            .encode(
                alt.X("column:Q").axis(None).scale(domainMin=low, domainMax=3.5, nice=False),
                alt.Y("row:Q").axis(None).scale(domain=[1.56, -0.4], nice=False),
                tooltip=["pair:N", alt.Tooltip("wave:N", title="a full turn")],
            )
        )

    once, here = dials("0", "0"), dials("pos", "pos")
    later = dials("(pos + 1)", f"(pos + {FAR})")
    radius = "(width < 500 ? width / 8 - 5 : 52)"
    disk = alt.ExprRef(f"pow(2 * {radius}, 2)")
    small = alt.ExprRef("width < 500 ? 12 : 13")

    def hand(dials: alt.Chart, name: str, half: float) -> alt.Chart:
        shape = f"M-{half},0L-{half},-1L{half},-1L{half},0Z"
        size = alt.ExprRef(f"pow(2 * {radius} - 3, 2)")
        drawn = dials.transform_calculate(hand=f"'{name}'")
        drawn = drawn.mark_point(shape=shape, size=size, opacity=1)
        return drawn.encode(color=color, angle=alt.Angle("angle:Q", scale=None))

    def below(line: int, first: str, other: str, **style: str | int) -> alt.Chart:
        """Text below the dials, a longer one in the first column."""
        of = once.transform_calculate(told=f"datum.column == 0 ? {first} : {other}")
        place = alt.ExprRef(f"{radius} + {24 + 17 * line}")
        return of.mark_text(dy=place, fontSize=small, **style).encode(text="told:N")

    size = "format(datum.degrees, datum.degrees < 10 ? '.2r' : ',.0f') + '°'"
    wave = "datum.wave + ' tokens'"
    turn = f"(width < 500 && !datum.row ? 'turn: ' : '') + {wave}"
    left = alt.ExprRef("-width * 1.15 / 4.65")
    first = once.transform_filter("datum.column == 0")

    def named(said: str, line: int, across: int, color: str | None = None) -> alt.Chart:
        """A name of a row: left of its dials, or above them on a phone."""
        at = alt.ExprRef(f"width < 500 ? {across} - width / 8 : -width * 1.15 / 4.65")
        up = alt.ExprRef(f"width < 500 ? -{radius} - 18 : {20 * line - 20}")
        style = {"align": "left", "fontSize": 14, "fontWeight": 600}
        style |= {"color": color} if color else {}
        return (
            first.transform_calculate(told=said)
            .mark_text(dx=at, dy=up, **style)
            .encode(text="told:N")
        )

    return alt.layer(
        once.mark_point(shape="circle", size=disk, filled=False, color=grey, strokeWidth=1),
        later.mark_arc(
            radius=0, radius2=alt.ExprRef(f"{radius} - 2"), color=orange, opacity=0.25
        ).encode(theta=alt.Theta("begin:Q", scale=None, stack=None), theta2="end:Q"),
        hand(later, "later", 0.03),
        hand(here, "position", 0.03),
        once.mark_point(size=50, opacity=1, color=grey),
        below(0, f"'turns ' + {size}", size, color=orange, fontWeight=600),
        below(1, turn, wave),
        named("datum.row == 0 ? 'fast' : 'slow'", 0, 0),
        named("'position ' + pos", 1, 38, blue),
        named(
            "'+' + datum.step + ' token' + (datum.row ? 's' : '') + ': ' + (pos + datum.step)",
            2,
            130,
            orange,
        ),
        first.transform_calculate(told="width < 500 ? '' : 'a full turn takes'")
        .mark_text(dx=left, dy=alt.ExprRef(f"{radius} + 41"), fontSize=14, align="left")
        .encode(text="told:N"),
        data=alt.Data(values=hands),
        title=alt.TitleParams(
            "Fast clocks distinguish neighbors, slow clocks distant positions",
            subtitle="Eight of a position’s clocks, and their hands some tokens later",
        ),
        description="Eight dials with two hands each, one for the position and one for a later "
        "one: 1 token later in the upper row, 100 in the lower. From left to right, both rows turn "
        "by 57, 18, 5.7 and 1.8 degrees, whatever the position. The first clock makes a full "
        "turn in about 6 tokens, each next one in three times as many, the last in about 20,000.",
        width="container",
        height=340,
    ).add_params(pos)
