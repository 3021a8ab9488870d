"""A query among keys, for section 3.2."""

import altair as alt
import pandas as pd
from torch import Tensor

from book import charts


def draw_query(names: list[str], keys: Tensor, values: Tensor) -> alt.LayerChart:
    """A query that can be moved among three keys, its weights, and the answer.

    names: of the keys
    keys: (3, 2)
    values: (3, 1), from 10 to 30
    """
    steps = [step / 4 for step in range(-8, 9)]
    slider = {"min": -2, "max": 2, "step": 0.25}
    query = alt.selection_point(
        name="query",
        fields=["y", "x"],
        value=[{"x": 2, "y": 1}],
        nearest=True,
        toggle=False,
        clear=False,
        on="[pointerdown, pointerup] > pointermove",
        bind={axis: alt.binding_range(**slider, name=f"query, {axis} ") for axis in "xy"},
    )
    # The plane is a square. The strip of values is at its right, or above it in a narrow picture.
    narrow = alt.param("narrow", expr="width < 540")
    # At every width, x has the scale of y.
    edge = alt.ExprRef("(narrow ? 5.9 : 4.4) * width / height - 2.2")
    wide = alt.Scale(domainMin=-2.2, domainMax=edge, nice=False)
    high = alt.Scale(domainMin=-2.2, domainMax=alt.ExprRef("narrow ? 3.7 : 2.2"), nice=False)
    ticks = alt.Axis(
        values=[-2, -1, 0, 1, 2], tickCount=5, grid=False, domain=False, titleAnchor="start"
    )
    x = alt.X("x:Q", title="first component (x)", scale=wide, axis=ticks)
    y = alt.Y("y:Q", title="second component (y)", scale=high, axis=ticks)
    ends = {"x": x, "y": y, "x2": "zero:Q", "y2": "zero:Q"}
    frame = pd.DataFrame(keys, columns=["x", "y"]).assign(key=names, value=values, zero=0)
    frame["over"], frame["up"] = [0.8, -1, -0.75], [-0.28, 1.05, -1]  # places of the labels
    scored = alt.Chart(frame).transform_calculate(
        score="exp(datum.x * query_x + datum.y * query_y)"
    )
    scored = (
        scored.transform_joinaggregate(total="sum(score)")
        .transform_calculate(
            weight="datum.score / datum.total",
            part="datum.weight * datum.value",
            label="datum.key + ': ' + format(datum.weight, '.2f') + ' × ' + datum.value",
        )
        .transform_joinaggregate(answer="sum(part)")
    )
    thickness = alt.StrokeWidth(
        "weight:Q", scale=alt.Scale(domain=[0, 1], range=[2, 12]), legend=None
    )
    area = alt.Size("weight:Q", scale=alt.Scale(domain=[0, 1], range=[20, 500]), legend=None)
    lines = scored.mark_rule(color=charts.PALETTE[0]).encode(**ends, strokeWidth=thickness)
    tips = scored.mark_point(size=70, filled=True, opacity=1, color=charts.PALETTE[0]).encode(
        x=x, y=y
    )
    words = scored.mark_text(fontSize=13, color=charts.PALETTE[0]).encode(
        x="over:Q", y="up:Q", text="label:N"
    )
    either = lambda phone, wide: alt.ExprRef(f"narrow ? {phone} : {wide}")
    on_strip = lambda data, value: data.transform_calculate(
        along=f"narrow ? 0.4 + 0.16 * ({value} - 20) : 3.2",
        strip=f"narrow ? 2.95 : 0.16 * ({value} - 20)",
    ).encode(x="along:Q", y="strip:Q")
    strip = on_strip(scored, "datum.value")
    answer = on_strip(scored.transform_filter("datum.key == 'east'"), "datum.answer")
    arrow = alt.Chart(pd.DataFrame({"zero": [0]})).transform_calculate(x="query_x", y="query_y")
    square = alt.Chart(pd.DataFrame({"low": [-2.2], "high": [2.2]})).encode(
        x="low:Q", x2="high:Q", y="low:Q", y2="high:Q"
    )
    grid = alt.Chart(pd.DataFrame([(a, b) for a in steps for b in steps], columns=["x", "y"]))
    return (
        alt.layer(
            square.mark_rect(
                fillOpacity=0, stroke=charts.PALETTE[6], strokeOpacity=0.3, aria=False
            ),
            grid.mark_point(opacity=0, aria=False).encode(x=x, y=y).add_params(query),
            lines,
            tips,
            words,
            arrow.mark_rule(strokeWidth=3, color=charts.PALETTE[1]).encode(**ends),
            arrow.mark_point(size=120, filled=True, color=charts.PALETTE[1]).encode(x=x, y=y),
            arrow.mark_text(
                dx=alt.ExprRef("query_x > 1.5 ? -14 : 0"),
                dy=-14,
                fontSize=13,
                fontWeight="bold",
                text="query",
            ).encode(x=x, y=y),
            strip.mark_line(color=charts.PALETTE[6], strokeWidth=1),
            strip.mark_circle(opacity=1, color=charts.PALETTE[0]).encode(size=area),
            strip.mark_text(
                fontSize=13,
                align=either("'center'", "'right'"),
                dx=either(0, -18),
                dy=either(18, 0),
            ).encode(text="value:Q"),
            arrow.transform_calculate(along="narrow ? -2.2 : 3.2", strip="narrow ? 2.95 : 2")
            .mark_text(fontSize=13, align=either("'left'", "'center'"), text="values")
            .encode(x="along:Q", y="strip:Q"),
            answer.mark_point(
                shape=either("'triangle-down'", "'triangle-left'"),
                xOffset=either(0, 22),
                yOffset=either(-18, 0),
                size=180,
                filled=True,
                opacity=1,
                color=charts.PALETTE[1],
            ),
            answer.transform_calculate(told="'answer ' + format(datum.answer, '.1f')")
            .mark_text(
                fontSize=either(15, 18),
                fontWeight="bold",
                color=charts.PALETTE[1],
                align=either("'center'", "'left'"),
                dx=either(0, 34),
                dy=either(-34, 0),
            )
            .encode(text="told:N"),
        )
        .add_params(narrow)
        .properties(
            title=alt.TitleParams(
                "A query among three keys", subtitle="At each key: its weight × its value"
            ),
            description="Three keys as lines of length 1 in the plane, east, north and south-west, "
            "with the values 10, 20 and 30, and "
            "a query that can be moved. The width of each key's line shows its attention weight, "
            "which is printed next to it. On a "
            "strip from 10 to 30, a marker shows the answer, the sum of the values, each "
            "multiplied by its weight.",
            width="container",
            height=362,
        )
    )
