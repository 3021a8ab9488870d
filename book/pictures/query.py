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
        value=[{"x": 1.5, "y": 0.5}],
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
    # The sum stands at the right of the plane, or lies below it in a narrow picture; a unit is as
    # long across as it is high.
    narrow = "width < 660"
    unit = f"({narrow} ? min(width / 4.4, (height - 128) / 3.4) : min(width / 6.9, height / 3.4))"
    axis = alt.Axis(labels=False, ticks=False, grid=False, domain=False)
    x = alt.X("x:Q").title(None).axis(axis)
    x = x.scale(domainMin=-2.2, domainMax=alt.ExprRef(f"width / {unit} - 2.2"), nice=False)
    y = alt.Y("y:Q").title(None).axis(axis)
    y = y.scale(domainMin=alt.ExprRef(f"2.2 - height / {unit}"), domainMax=2.2, nice=False)
    from_zero = {"x": x, "y": y, "x2": "zero:Q", "y2": "zero:Q"}
    products = [f"({x:.3f} * query_x + {y:.3f} * query_y)" for x, y in keys.tolist()]
    powers = ", ".join(f"exp({product} / (scaled ? SQRT2 : 1))" for product in products)
    shares = ", ".join(f"powers[{i}] / (powers[0] + powers[1] + powers[2])" for i in range(3))
    terms = [(f"weights[{i}]", value) for i, value in enumerate(values.flatten().tolist())]
    switch = alt.binding_checkbox(name="divide the scores by √2 ")
    computed = [
        alt.param("scaled", value=False, bind=switch),
        alt.param("powers", expr=f"[{powers}]"),
        alt.param("weights", expr=f"[{shares}]"),
        alt.param("answer", expr=" + ".join(f"{weight} * {value:g}" for weight, value in terms)),
    ]
    frame = pd.DataFrame(keys, columns=["x", "y"]).assign(
        key=words, value=values, zero=0, i=range(3)
    )
    frame["factor"] = [f"({v:g})" if v < 0 else f"{v:g}" for v in frame["value"]]
    frame["factor"] = frame["factor"].str.replace("-", "−")
    frame["over"], frame["up"] = [0.15, -0.15, -0.58], [-0.24, 0.82, -0.4]  # places of the labels
    keyed = (
        alt.Chart(frame)
        .transform_calculate(weight="weights[datum.i]")
        .transform_calculate(label="datum.key + ', weight ' + format(datum.weight, '.2f')")
    )
    width = alt.StrokeWidth("weight:Q").legend(None).scale(domain=[0, 1], range=[2, 18])
    # One row per word adds its weight times its value, and a last row shows their sum.
    right = f"(width / {unit} - 2.25)"  # the end of a narrow picture
    zero, reach = (
        f"({narrow} ? ({right} - 0.2) / 2 : 3.58)",
        f"({narrow} ? ({right} + 0.2) / 2 : 1.05)",
    )
    level = lambda i: f"({narrow} ? -1.2 - (24 + 24 * {i}) / {unit} : 1.75 - 0.72 * {i})"
    last = level(3.1)

    def row(data: alt.Chart, told: str, amount: str, y: str) -> alt.Chart:
        return data.transform_calculate(
            told=told,
            row=y,
            above=f"{narrow} ? {y} : {y} + 0.22",
            left=f"{narrow} ? -2.2 : {zero} - {reach}",
            low=f"{zero} - {reach}",
            high=f"{zero} + {reach}",
            begin=zero,
            end=f"{zero} + {reach} * {amount}",
        )

    product = "format(datum.weight, '.2f') + ' × ' + datum.factor"
    told = f"datum.key + ': ' + {product}"
    added = row(keyed, told, "datum.weight * datum.value", level("datum.i"))
    one = alt.Chart(pd.DataFrame({"zero": [0]}))
    told = f"'answer ' + format(answer, '.2f') + ({narrow} ? '' : ', their sum')"
    answer = row(one, told, "answer", last)
    ends = pd.DataFrame({"value": [-1, 0, 1], "name": ["thing −1", "0", "person 1"]})
    ends = alt.Chart(ends).transform_calculate(
        x=f"{zero} + {reach} * datum.value", y=f"{last} - ({narrow} ? 18 : 22) / {unit}"
    )
    arrow = one.transform_calculate(x="query_x", y="query_y")
    lines = [(i, -1, i, 2.1, i) for i in range(-2, 3)] + [(-2, i, 2.1, i, i) for i in range(-1, 3)]
    lines = alt.Chart(pd.DataFrame(lines, columns=["x", "y", "x2", "y2", "number"]))
    lines = lines.transform_calculate(end=f"{narrow} && datum.x2 > 2 ? {right} : datum.x2")
    upright = "datum.x == datum.x2"
    grid = alt.Chart(pd.DataFrame(itertools.product(*steps.values()), columns=["x", "y"]))
    blue, orange, green, *_, grey = charts.PALETTE
    colored = alt.Color("key:N", legend=None).scale(domain=words, range=[blue, green, grey])
    tip = {"filled": True, "opacity": 1}
    aside = alt.ExprRef("abs(query_x) > 1.5 ? -26 * query_x / abs(query_x) : 0")
    title = "['The query fits no single key best,', 'so the answer is 0']"
    for word, product in zip(words, products, strict=True):
        rivals = ", ".join(each for each in products if each != product)
        fits = f"['The query fits “{word}” best,', 'so “{word}” weighs most']"
        title = f"{product} > max({rivals}) ? {fits} : {title}"
    return alt.layer(
        lines.mark_rule(color=grey, aria=False)
        .encode(x, y, x2="end:Q", y2="y2")
        .encode(opacity=alt.condition("datum.number == 0", alt.value(0.6), alt.value(0.2))),
        lines.mark_text(
            fontSize=14,
            color=grey,
            align=alt.ExprRef(f"{upright} ? 'center' : 'right'"),
            dx=alt.ExprRef(f"{upright} ? 0 : -8"),
            dy=alt.ExprRef(f"{upright} ? 16 : 0"),
            aria=False,
        ).encode(x, y, text=alt.Text("number:Q", format="d")),
        grid.mark_point(opacity=0, aria=False).encode(x, y).add_params(query),
        keyed.mark_rule().encode(colored, **from_zero, strokeWidth=width),
        keyed.mark_point(size=70, **tip).encode(x, y, colored),
        arrow.mark_rule(strokeWidth=3, color=orange).encode(**from_zero),
        keyed.mark_text(
            fontSize=14, align=alt.ExprRef(f"datum.key == '{words[0]}' ? 'left' : 'right'")
        ).encode(colored, x="over:Q", y="up:Q", text="label:N"),
        arrow.mark_point(size=120, **tip, color=orange).encode(x, y),
        arrow.mark_point(size=480, filled=False, opacity=1, color=orange, aria=False).encode(x, y),
        # Only marks with a tooltip can be touched; this one is empty.
        arrow.mark_point(size=1500, opacity=0, cursor="grab", tooltip=alt.ExprRef("null"))
        .encode(x, y)
        .properties(name="handle"),
        arrow.mark_text(
            dx=aside, dy=-20, fontSize=14, fontWeight="bold", text="query (drag)"
        ).encode(x, y),
        *(
            mark
            for data, color in ((added, colored), (answer, alt.value(orange)))
            for mark in (
                data.mark_rule(color=grey, opacity=0.3).encode(x="low:Q", x2="high:Q", y="row:Q"),
                data.mark_rule(strokeWidth=9).encode(
                    x="begin:Q", x2="end:Q", y="row:Q", color=color
                ),
                data.mark_point(
                    shape="stroke", size=200, angle=90, color=grey, filled=False, opacity=1
                ).encode(x="begin:Q", y="row:Q"),
            )
        ),
        added.mark_text(align="left", fontSize=14).encode(
            colored, x="left:Q", y="above:Q", text="told:N"
        ),
        answer.mark_text(align="left", fontSize=14, fontWeight="bold", color=orange).encode(
            x="left:Q", y="above:Q", text="told:N"
        ),
        answer.transform_calculate(over=f"{last} + ({narrow} ? 13 / {unit} : 0.44)")
        .mark_rule(color=grey)
        .encode(x="left:Q", x2="high:Q", y="over:Q"),
        ends.mark_text(
            align=alt.ExprRef("['left', 'center', 'right'][datum.value + 1]"),
            fontSize=14,
            color=grey,
        ).encode(x="x:Q", y="y:Q", text="name:N"),
        title=alt.TitleParams(
            alt.expr(f"width < 480 ? ({title}) : join({title}, ' ')"),
            subtitle="The query comes from “riding”; values: thing −1, person 1",
        ),
        description="The keys of bicycle, man and a, lines of length 1 in the plane, and a query "
        "that can be moved. The width of each line shows the key's attention weight, which is "
        "printed next to it. Three bars, from thing, −1, to person, 1, show each word's weight "
        "times its value, and a fourth the answer, which is their sum.",
        width="container",
        height=362,
    ).add_params(*computed)
