"""A query among keys, for section 3.2."""

import itertools

import altair as alt
import pandas as pd
from torch import Tensor

from book import charts


def draw_query(words: list[str], keys: Tensor, values: Tensor) -> alt.LayerChart:
    """A query that can be moved among the keys of three words, its weights, and the answer.

    keys: (3, 2)
    values: (3, 1), a thing (-1), a person (1) or neither (0)
    """
    low, high = {"x": -2, "y": -1}, 2  # of the query
    steps = {axis: [quarter / 4 for quarter in range(4 * low[axis], 9)] for axis in "xy"}
    query = alt.selection_point(
        name="query",
        fields=["y", "x"],
        value=[{"x": 2, "y": 1}],
        nearest=True,
        toggle=False,
        clear=False,
        # A mouse drags from anywhere, a finger the handle, so that it can scroll past the chart.
        on="[pointerdown[event.pointerType !== 'touch'], pointerup] > pointermove, "
        "[@handle_marks:pointerdown, pointerup] > pointermove",
        bind={
            axis: alt.binding_range(min=low[axis], max=high, step=0.25, name=f"query, {axis} ")
            for axis in "xy"
        },
    )
    scale = alt.binding_checkbox(name="divide the scores by √2 ")
    # The strip of values stands at the right of the plane, or lies above it in a narrow picture.
    narrow = alt.param("narrow", expr="width < 690")
    either = lambda phone, wide: alt.ExprRef(f"narrow ? {phone} : {wide}")
    # At every width, x has the scale of y.
    edge = alt.ExprRef("(narrow ? 5.2 : 3.4) * width / height - 2.2")
    axis = alt.Axis(labels=False, ticks=False, grid=False, domain=False)
    x = alt.X("x:Q").title(None).axis(axis)
    x = x.scale(domainMin=-2.2, domainMax=edge, nice=False)
    y = alt.Y("y:Q").title(None).axis(axis)
    y = y.scale(domainMin=-1.2, domainMax=either(4, 2.2), nice=False)
    ends = {"x": x, "y": y, "x2": "zero:Q", "y2": "zero:Q"}
    frame = pd.DataFrame(keys, columns=["x", "y"]).assign(key=words, value=values, zero=0)
    frame["times"] = [f" × {value:g}".replace("-", "−") for value in values.flatten().tolist()]
    meanings = [{-1: "thing", 0: "neither", 1: "person"}[value] for value in frame["value"]]
    named = zip(words, meanings, frame["value"], strict=True)
    frame["meaning"] = [f"{w}\n{m}: {value:g}".replace("-", "−") for w, m, value in named]
    frame["over"], frame["up"] = [0.8, -0.8, -0.75], [-0.22, 1, -0.95]  # places of the labels
    scored = (
        alt.Chart(frame)
        .transform_calculate(product="datum.x * query_x + datum.y * query_y")
        .transform_calculate(score="exp(datum.product / (scaled ? SQRT2 : 1))")
        .transform_joinaggregate(total="sum(score)")
        .transform_calculate(
            weight="datum.score / datum.total",
            part="datum.weight * datum.value",
            label="datum.key + ': ' + format(datum.weight, '.2f') + datum.times",
        )
        .transform_joinaggregate(answer="sum(part)")
    )
    sized = lambda channel, sizes: (
        channel("weight:Q").legend(None).scale(domain=[0, 1], range=sizes)
    )
    on_strip = lambda data, value: data.transform_calculate(
        along=f"narrow ? 0.4 + 1.6 * {value} : 3.7",
        strip=f"narrow ? 3.2 : 0.4 + 1.3 * {value}",
    ).encode(x="along:Q", y="strip:Q")
    strip = on_strip(scored, "datum.value")
    answer = on_strip(scored.transform_filter(f"datum.key == '{words[0]}'"), "datum.answer")
    told = answer.transform_calculate(told="'answer ' + format(datum.answer, '.2f')")
    arrow = alt.Chart(pd.DataFrame({"zero": [0]})).transform_calculate(x="query_x", y="query_y")
    corner = arrow.transform_calculate(along="narrow ? -2.2 : 3.7", strip="narrow ? 3.2 : 2.1")
    frame_of = alt.Chart(pd.DataFrame({"left": [-2.2], "low": [-1.2], "end": [2.2]})).encode(
        x="left:Q", x2="end:Q", y="low:Q", y2="end:Q"
    )
    grid = alt.Chart(pd.DataFrame(itertools.product(*steps.values()), columns=["x", "y"]))
    blue, orange, green, *_, grey = charts.PALETTE
    colored = alt.Color("key:N", legend=None).scale(domain=words, range=[blue, green, grey])
    tip = {"filled": True, "opacity": 1}
    aside = alt.ExprRef("query_x > 1.5 ? -14 : 0")
    products = [f"({x:.3f} * query_x + {y:.3f} * query_y)" for x, y in keys.tolist()]
    title = "['The query fits no single key best,', 'so the answer is 0']"
    for word, product in zip(words, products, strict=True):
        rivals = ", ".join(each for each in products if each != product)
        fits = f"['The query fits the key of {word} best,', 'so its value weighs most']"
        title = f"{product} > max({rivals}) ? {fits} : {title}"
    return alt.layer(
        frame_of.mark_rect(fillOpacity=0, stroke=grey, strokeOpacity=0.3, aria=False),
        grid.mark_point(opacity=0, aria=False).encode(x, y).add_params(query),
        scored.mark_rule().encode(colored, **ends, strokeWidth=sized(alt.StrokeWidth, [2, 12])),
        scored.mark_point(size=70, **tip).encode(x, y, colored),
        scored.mark_text(fontSize=13).encode(colored, x="over:Q", y="up:Q", text="label:N"),
        arrow.mark_rule(strokeWidth=3, color=orange).encode(**ends),
        arrow.mark_point(size=120, **tip, color=orange).encode(x, y),
        # Only marks with a tooltip can be touched; this one is empty.
        arrow.mark_point(size=1500, opacity=0, cursor="grab", tooltip=alt.ExprRef("null"))
        .encode(x, y)
        .properties(name="handle"),
        arrow.mark_text(dx=aside, dy=-14, fontSize=13, fontWeight="bold", text="query").encode(
            x, y
        ),
        strip.mark_line(color=grey, strokeWidth=1),
        strip.mark_circle(opacity=1).encode(colored, sized(alt.Size, [20, 500])),
        strip.mark_text(
            fontSize=13,
            lineBreak="\n",
            align=either("'center'", "'left'"),
            dx=either(0, 22),
            dy=either(22, -6),
        ).encode(colored, text="meaning:N"),
        corner.mark_text(fontSize=13, align=either("'left'", "'center'"), text="values").encode(
            x="along:Q", y="strip:Q"
        ),
        answer.mark_point(
            shape=either("'triangle-down'", "'triangle-right'"),
            xOffset=either(0, -20),
            yOffset=either(-18, 0),
            size=180,
            **tip,
            color=orange,
        ),
        told.mark_text(
            align=either("'center'", "'right'"),
            dx=either(0, -32),
            dy=either(-36, 0),
            fontSize=either(15, 18),
            fontWeight="bold",
            color=orange,
        ).encode(text="told:N"),
        title=alt.TitleParams(
            alt.expr(f"width < 480 ? ({title}) : join({title}, ' ')"),
            subtitle="At each key: its weight × its value. The answer is the sum.",
        ),
        description="The keys of bicycle, man and a, lines of length 1 in the plane, and a query "
        "that can be moved. The width of each line shows the key's attention weight, which is "
        "printed next to it. On a strip from thing to person, a marker shows the answer, the sum "
        "of the values, each multiplied by its weight.",
        width="container",
        height=362,
    ).add_params(narrow, alt.param("scaled", value=False, bind=scale))
