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
    # The strip of values stands at the right of the plane, or lies below it in a narrow picture; a
    # unit is as long across as it is high.
    narrow = "width < 730"
    either = lambda phone, wide: alt.ExprRef(f"{narrow} ? {phone} : {wide}")
    unit = f"({narrow} ? min(width / 4.4, (height - 128) / 3.4) : height / 3.4)"
    axis = alt.Axis(labels=False, ticks=False, grid=False, domain=False)
    x = alt.X("x:Q").title(None).axis(axis)
    x = x.scale(domainMin=-2.2, domainMax=alt.ExprRef(f"width / {unit} - 2.2"), nice=False)
    y = alt.Y("y:Q").title(None).axis(axis)
    y = y.scale(domainMin=alt.ExprRef(f"2.2 - height / {unit}"), domainMax=2.2, nice=False)
    ends = {"x": x, "y": y, "x2": "zero:Q", "y2": "zero:Q"}
    products = [f"({x:.3f} * query_x + {y:.3f} * query_y)" for x, y in keys.tolist()]
    powers = ", ".join(f"exp({product} / (scaled ? SQRT2 : 1))" for product in products)
    shares = ", ".join(f"powers[{i}] / (powers[0] + powers[1] + powers[2])" for i in range(3))
    terms = [(f"weights[{i}]", value) for i, value in enumerate(values.flatten().tolist())]
    computed = [
        alt.param(
            "scaled", value=False, bind=alt.binding_checkbox(name="divide the scores by √2 ")
        ),
        alt.param("powers", expr=f"[{powers}]"),
        alt.param("weights", expr=f"[{shares}]"),
        alt.param("answer", expr=" + ".join(f"{weight} * {value:g}" for weight, value in terms)),
    ]
    frame = pd.DataFrame(keys, columns=["x", "y"]).assign(
        key=words, value=values, zero=0, i=range(3)
    )
    meanings = [{-1: "thing", 0: "neither", 1: "person"}[value] for value in frame["value"]]
    frame["named"] = [f"{w} ({m})" for w, m in zip(words, meanings, strict=True)]
    frame["factor"] = [f"({v:g})" if v < 0 else f"{v:g}" for v in frame["value"]]
    frame["factor"] = frame["factor"].str.replace("-", "−")
    frame["over"], frame["up"] = [0.15, -0.15, -0.55], [-0.24, 0.82, -0.8]  # places of the labels
    keyed = (
        alt.Chart(frame)
        .transform_calculate(weight="weights[datum.i]")
        .transform_calculate(label="datum.key + ', weight ' + format(datum.weight, '.2f')")
    )
    width = alt.StrokeWidth("weight:Q").legend(None).scale(domain=[0, 1], range=[2, 18])
    along = lambda value: f"{narrow} ? 1.6 * ({value}) : 3.52"
    strip_at = lambda value: f"{narrow} ? -1.2 - 80 / {unit} : 0.65 + 1.1 * ({value})"
    on_strip = lambda data, value: data.transform_calculate(
        along=along(value), strip=strip_at(value)
    ).encode(x="along:Q", y="strip:Q")
    # What a value adds to the answer begins where the last one ends.
    begin = " + ".join(f"(datum.i > {i} ? {w} * {v:g} : 0)" for i, (w, v) in enumerate(terms))
    reach = f"{begin} + datum.weight * datum.value"
    shift = lambda far: {"xOffset": either(0, -far), "yOffset": either(-far, 0)}
    beside = lambda far: shift(far) | {"x2Offset": either(0, -far), "y2Offset": either(-far, 0)}
    added = on_strip(keyed, f"({begin})").transform_calculate(
        along2=along(reach), strip2=strip_at(reach)
    )
    strip = on_strip(keyed, "datum.value").transform_calculate(
        told="datum.named + '\\n' + format(datum.weight, '.2f') + ' × ' + datum.factor"
    )
    one = alt.Chart(pd.DataFrame({"zero": [0]}))
    told = "'answer ' + format(answer, '.2f')"
    answer = on_strip(one, "answer").transform_calculate(told=told)
    total = one.transform_calculate(
        along=f"{narrow} ? 0 : 3.45",
        strip=f"{narrow} ? -1.2 - 34 / {unit} : 2.1",
        told=f"({narrow} ? {told} + ': ' : '') + 'the sum of weight × value'",
    ).encode(x="along:Q", y="strip:Q")
    arrow = one.transform_calculate(x="query_x", y="query_y")
    lines = [(i, -1, i, 2.1, i) for i in range(-2, 3)] + [(-2, i, 2.1, i, i) for i in range(-1, 3)]
    lines = alt.Chart(pd.DataFrame(lines, columns=["x", "y", "x2", "y2", "number"]))
    upright = "datum.x == datum.x2"
    grid = alt.Chart(pd.DataFrame(itertools.product(*steps.values()), columns=["x", "y"]))
    blue, orange, green, *_, grey = charts.PALETTE
    colored = alt.Color("key:N", legend=None).scale(domain=words, range=[blue, green, grey])
    tip = {"filled": True, "opacity": 1}
    aside = alt.ExprRef("abs(query_x) > 1.5 ? -26 * query_x / abs(query_x) : 0")
    title = "['The query fits no single key best,', 'so the answer is 0']"
    for word, product in zip(words, products, strict=True):
        rivals = ", ".join(each for each in products if each != product)
        fits = f"['The query fits the key of {word} best,', 'so its value weighs most']"
        title = f"{product} > max({rivals}) ? {fits} : {title}"
    return alt.layer(
        lines.mark_rule(color=grey, aria=False)
        .encode(x, y, x2="x2", y2="y2")
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
        keyed.mark_rule().encode(colored, **ends, strokeWidth=width),
        keyed.mark_point(size=70, **tip).encode(x, y, colored),
        keyed.mark_text(
            fontSize=14, align=alt.ExprRef(f"datum.key == '{words[1]}' ? 'right' : 'left'")
        ).encode(colored, x="over:Q", y="up:Q", text="label:N"),
        arrow.mark_rule(strokeWidth=3, color=orange).encode(**ends),
        arrow.mark_point(size=120, **tip, color=orange).encode(x, y),
        arrow.mark_point(size=480, filled=False, opacity=1, color=orange, aria=False).encode(x, y),
        # Only marks with a tooltip can be touched; this one is empty.
        arrow.mark_point(size=1500, opacity=0, cursor="grab", tooltip=alt.ExprRef("null"))
        .encode(x, y)
        .properties(name="handle"),
        arrow.mark_text(
            dx=aside, dy=-20, fontSize=14, fontWeight="bold", text="query (drag)"
        ).encode(x, y),
        strip.mark_line(color=grey, strokeWidth=1),
        strip.mark_point(
            shape="stroke", size=150, strokeWidth=2, filled=False, opacity=1, angle=either(90, 0)
        ).encode(colored),
        strip.mark_text(align="left", dx=8, fontSize=either(0, 14), color=grey).encode(
            text=alt.Text("value:Q", format="d")
        ),
        *(
            added.mark_rule(strokeWidth=5, **beside(7 + 7 * i))
            .encode(colored, x2="along2:Q", y2="strip2:Q")
            .transform_filter(f"datum.i == {i}")
            for i in range(2)
        ),
        strip.mark_text(
            fontSize=14,
            lineBreak="\n",
            align=either("'center'", "'left'"),
            dx=either(0, 31),
            dy=either(20, -6),
        ).encode(colored, text="told:N"),
        answer.mark_point(
            shape=either("'triangle-down'", "'triangle-right'"),
            **shift(27),
            size=180,
            **tip,
            color=orange,
        ),
        answer.mark_text(
            align="right",
            dx=-40,
            fontSize=either(0, 16),
            fontWeight="bold",
            color=orange,
        ).encode(text="told:N"),
        total.mark_text(fontSize=14).encode(text="told:N"),
        title=alt.TitleParams(
            alt.expr(f"width < 480 ? ({title}) : join({title}, ' ')"),
            subtitle="Thicker key: more weight. The bars along the scale add up to the answer",
        ),
        description="The keys of bicycle, man and a, lines of length 1 in the plane, and a query "
        "that can be moved. The width of each line shows the key's attention weight, which is "
        "printed next to it. Along a scale from thing, −1, to person, 1, two bars add up to the "
        "answer, the sum of the values, each multiplied by its weight, as is written beside it.",
        width="container",
        height=362,
    ).add_params(*computed)
