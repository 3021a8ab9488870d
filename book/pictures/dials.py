"""The positional encoding as the hands of clocks, for section 3.5."""

import math
from typing import Any

import altair as alt
from torch import Tensor

from book import charts


def draw_hands(table: Tensor) -> alt.LayerChart:
    """Eight dials with a hand for a position and one for a position k later.

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
    k = charts.slider("k", 1, 0, len(table) - 61, 1, "Offset k")
    blue, orange, *_, grey = charts.PALETTE
    color = alt.Color("hand:N", legend=None)
    color = color.scale(domain=["position", "k later"], range=[blue, orange])
    low = alt.ExprRef("width < 500 ? -0.5 : -1.15")  # room for names of the rows

    def dials(at: Any) -> alt.Chart:
        return (
            alt.Chart()
            .transform_filter(alt.datum.position == at)
            .transform_flatten(["pair", "angle"])
            .transform_calculate(
                column="datum.pair % 4",
                row="floor(datum.pair / 4)",
                turned="k * pow(10000, -datum.pair / 8)",
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

    once, here, later = (dials(at) for at in (0, pos, pos + k))
    radius = "(width < 500 ? width / 8 - 5 : 52)"
    disk = alt.ExprRef(f"pow(2 * {radius}, 2)")
    small = alt.ExprRef("width < 500 ? 12 : 13")

    def hand(dials: alt.Chart, name: str, half: float) -> alt.Chart:
        shape = f"M-{half},0L-{half},-1L{half},-1L{half},0Z"
        size = alt.ExprRef(f"pow(2 * {radius} - 3, 2)")
        drawn = dials.transform_calculate(hand=f"'{name}'")
        drawn = drawn.mark_point(shape=shape, size=size, opacity=1)
        return drawn.encode(color=color, angle=alt.Angle("angle:Q", scale=None))

    def number(said: str, sign: int, color: str) -> alt.Chart:
        """A position at the tip of its first hand, a little aside where both would overlap."""
        fan = "(datum.end - datum.begin)"
        near = f"({fan} > PI ? {fan} - 2 * PI : {fan})"  # from the one to the other, -π to π
        aside = f"max(abs({near}), 0.6) * ({near} < 0 ? -0.5 : 0.5)"
        tip = f"(datum.end - {near} / 2 + {sign} * {aside})"
        return (
            later.transform_filter("datum.pair == 0")
            .transform_calculate(said=f"width < 500 ? '' : {said}")
            .mark_text(
                dx=alt.ExprRef(f"({radius} + 16) * sin{tip}"),
                dy=alt.ExprRef(f"-({radius} + 12) * cos{tip}"),
                fontSize=13,
                fontWeight=600,
                color=color,
            )
            .encode(text="said:N")
        )

    def below(line: int, first: str, other: str, **style: str | int) -> alt.Chart:
        """Text below the dials: on a phone a longer one in the first column."""
        of = once.transform_calculate(told=f"width < 500 && datum.column == 0 ? {first} : {other}")
        place = alt.ExprRef(f"{radius} + {24 + 17 * line}")
        return of.mark_text(dy=place, fontSize=small, **style).encode(text="told:N")

    size = "format(datum.degrees, datum.degrees < 10 && k ? '.2r' : ',.0f') + '°'"
    added = f"'+' + k + ': ' + {size}"
    wave = "'turn: ' + datum.wave + (datum.row ? '' : ' tokens')"
    left = alt.ExprRef("width < 500 ? -width / 8 : -width * 1.15 / 4.65")
    first = once.transform_filter("datum.column == 0")
    rows = first.mark_text(
        dx=left,
        dy=alt.ExprRef(f"width < 500 ? -{radius} - 18 : 0"),
        fontSize=14,
        fontWeight=600,
        align="left",
    )
    lines = (
        first.transform_calculate(told=f"width < 500 ? '' : {told}")
        .mark_text(dx=left, dy=76 + 17 * line, fontSize=13, align="left", color=color)
        .encode(text="told:N")
        for line, (told, color) in enumerate(
            [("'from blue to orange'", orange), ("'tokens in a full turn'", grey)]
        )
    )
    return alt.layer(
        once.mark_point(shape="circle", size=disk, filled=False, color=grey, strokeWidth=1),
        later.mark_arc(
            radius=0, radius2=alt.ExprRef(f"{radius} - 2"), color=orange, opacity=0.25
        ).encode(theta=alt.Theta("begin:Q", scale=None, stack=None), theta2="end:Q"),
        hand(later, "k later", 0.06),  # wider, so that both are seen when they coincide
        hand(here, "position", 0.03),
        once.mark_point(size=50, opacity=1, color=grey),
        number("pos", -1, blue),
        number("pos + k", 1, orange),
        below(0, added, size, color=orange, fontWeight=600),
        below(1, wave, "datum.wave"),
        *lines,
        rows.encode(text=alt.condition("datum.row == 0", alt.value("fast"), alt.value("slow"))),
        data=alt.Data(values=hands),
        title=alt.TitleParams(
            "Fast hands distinguish neighbors, slow hands distant positions",
            subtitle="Blue: the position. Orange: k tokens later",
        ),
        description="Eight dials with two hands each, one for the position and one for the "
        "position k later. The first hand makes a full turn in about 6 tokens, each next one in "
        "three times as many, the last in about 20,000. In each dial the angle between the two "
        "hands depends on k and not on the position.",
        width="container",
        height=340,
    ).add_params(pos, k)
