"""Numbers in boxes and weighted sums of them, for sections 1 and 2."""

from collections.abc import Sequence
from itertools import pairwise

import altair as alt
import pandas as pd

from book import charts

RECURRENT, ATTENTION = "recurrent", "self-attention"
COLORS = {"word": charts.PALETTE[6]} | {
    kind: charts.LAYERS[kind] for kind in (RECURRENT, ATTENTION)
}
WEIGHTS = {0.25: "¼", 0.5: "½", 1: "1"}
TAKEN = ["half", "the square of half"]  # of the state before
INPUT, OUTPUT, HEAD = 0.22, 0.6, 0.81  # heights in a row, of which each is 1 high


def draw_loop(words: Sequence[float]) -> alt.LayerChart:
    """Three states in a row, each its word and half of the state before, and the last as one sum.

    With a square of the half, which the reader can switch on, there is no such sum.
    """
    last = len(words) - 1
    at = [[panel + (i + 0.5) / len(words) for i in range(len(words))] for panel in range(2)]
    boxes: list[tuple] = [
        (x, INPUT, word, "word", 0.0) for each in at for x, word in zip(each, words, strict=True)
    ]
    boxes += [(x, OUTPUT, 0, RECURRENT, 1, i + 1) for i, x in enumerate(at[0])]
    boxes.append((at[1][last], OUTPUT, 0, RECURRENT, 1, last + 2))
    links: list[tuple] = [(x, INPUT, x, OUTPUT, WEIGHTS[1], RECURRENT) for x in at[0]]
    links += [(x, OUTPUT, after, OUTPUT, WEIGHTS[0.5], RECURRENT) for x, after in pairwise(at[0])]
    parts = []  # of the sum
    for i, (x, word) in enumerate(zip(at[1], words, strict=True)):
        share = 0.5 ** (last - i)
        links.append((x, INPUT, at[1][last], OUTPUT, WEIGHTS[share], RECURRENT))
        parts.append(f"{word}" if share == 1 else f"{word}/{1 / share:g}")
    squared = f"taken == '{TAKEN[1]}'"
    # A number for each state, of which the first has none before it.
    now = [alt.param("state0", value=0)]
    for i, word in enumerate(words):
        half = f"state{i} / 2"
        value = f"{word} + ({squared} ? pow({half}, 2) : {half})"
        now.append(alt.param(f"state{i + 1}", expr=value))
    states = ", ".join(each.name for each in now)
    before, end = f"state{last}", f"state{last + 1}"
    found = f"({squared} ? '(' + {before} + '/2)² + ' : {before} + '/2 + ') + {words[last]} + ' = '"
    total = f"{squared} ? 'no weights fit all words' : '{' + '.join(parts)} = ' + {end}"
    titles = [
        "A loop that only halves is a single weighted sum",
        "With a square, no weighted sum gives the state",
    ]
    return _draw(
        boxes,
        links,
        texts=[
            (0, HEAD, "As a loop", "left", RECURRENT),
            (1, HEAD, "As one sum", "left", RECURRENT),
            (at[0][1], 0, "", "center", ""),
            (at[1][1], 0, "", "center", ""),
        ],
        title=alt.Title(
            alt.expr(f"{squared} ? '{titles[1]}' : '{titles[0]}'"),
            subtitle="Below: words; above: states",
        ),
        description=f"Two drawings. A loop with the words {list(words)}: each state is a word and "
        "half of the state before. The same as one sum: lines with weights from all words to the "
        "last state. If the half is squared, no fixed weights give it for all "
        "words.",
        height=220,
        value=f"datum.state ? [{states}, {squared} ? '?' : {end}][datum.state] : datum.value",
        text=f"datum.y != 0 ? datum.text : datum.x < 1 ? {found} + {end} : {total}",
        weight=f"{squared} && datum.level ? '(½)²' : {squared} && datum.x > 1 ? '?' : datum.weight",
    ).add_params(
        alt.param(
            "taken",
            value=TAKEN[0],
            bind=alt.binding_radio(options=TAKEN, name="Of the state before, take "),
        ),
        *now,
    )


def draw_averages(
    values: dict[str, float], heads: dict[str, list[list[float]]], sentences: list[str]
) -> alt.LayerChart:
    """What heads return for sentences: values of the words, and above them their averages.

    values: a number for each word that has weight
    heads: by name, the weights of each head, one for each word of a sentence
    """
    boxes, links, texts, told = [], [], [], []
    most = max(values.values())  # drawn full, and the others paler than their share, to be read
    box = lambda x, y, value: (x, y, value, ATTENTION, 1 if value == most else value / most / 2)
    for row, (name, weights) in enumerate(reversed(heads.items())):
        returned = []
        for column, words in enumerate(map(str.split, sentences)):
            given = [values.get(word, 0) for word in words]
            at = [column + (i + 0.5) / len(words) for i in range(len(words))]
            texts += [(x, row, word, "center", "") for x, word in zip(at, words, strict=True)]
            boxes += [box(x, row + INPUT, v) for x, v in zip(at, given, strict=True) if v]
            averages = [sum(w * v for w, v in zip(each, given, strict=True)) for each in weights]
            for head, (each, average) in enumerate(zip(weights, averages, strict=True)):
                x = column + 0.5 + 0.21 * (head - (len(weights) - 1) / 2)
                boxes.append(box(x, row + OUTPUT, average))
                links += [
                    (start, row + INPUT, x, row + OUTPUT, WEIGHTS[w], ATTENTION)
                    for start, w in zip(at, each, strict=True)
                    if w
                ]
            returned.append(averages)
        equal = all(averages == returned[0] for averages in returned)
        says, kind = ("the same output twice", "") if equal else ("different outputs", ATTENTION)
        texts.append((0, row + HEAD, f"{name}: {says}", "left", kind))
        told.append(f"{name}: {says}.")
    return _draw(
        boxes,
        links,
        texts,
        title=alt.Title(
            "One average loses who chases whom, two keep it",
            subtitle="Below: values; above: what the heads return",
        ),
        description="Lines from the values of words to what heads return, for two sentences. "
        + " ".join(told[::-1]),
        height=370,
    )


def _draw(
    boxes: list,
    links: list,
    texts: list,
    value: str = "datum.value",
    text: str = "datum.text",
    weight: str = "datum.weight",
    **properties,
) -> alt.LayerChart:
    """Lines with weights, boxes with numbers, and text in the color of its kind, if any.

    boxes: position, value, kind and share of its color, and the number of a state, if it is one
    value, text, weight: expressions of Vega for what a box, a text and a line say
    """
    columns = ["x", "y", "value", "kind", "share", "state"]
    boxes = pd.DataFrame([(*box, 0)[:6] for box in boxes], columns=columns)
    links = pd.DataFrame(links, columns=["x", "y", "x2", "y2", "weight", "kind"])
    links["level"] = links["y2"] == links["y"]
    texts = pd.DataFrame(texts, columns=["x", "y", "text", "align", "kind"])

    x = alt.X("x:Q").axis(None).scale(domain=[0, int(boxes["x"].max()) + 1], nice=False)
    low, rows = min(boxes["y"].min() - 0.1, texts["y"].min()), round(boxes["y"].max() + 0.5)
    y = alt.Y("y:Q").axis(None).scale(domain=[low - 0.06, rows - 0.09], nice=False)
    scale = alt.Scale(domain=[*COLORS], range=[*COLORS.values()])
    box = alt.Chart(boxes).transform_calculate(told=value).encode(x, y)
    square = {"size": alt.ExprRef("width > 500 ? 900 : 600"), "opacity": 1}
    share = "(datum.level ? 0.5 : 0.4)"  # of a line up to its weight, near the start to be apart
    middle = alt.Chart(links).transform_calculate(
        x=f"datum.x + {share} * (datum.x2 - datum.x)",
        y=f"datum.y + {share} * (datum.y2 - datum.y)",
        told=weight,
    )
    edge = alt.ExprRef("width > 500 ? -19 : -16")  # before a box
    full = "datum.share == 1 && datum.kind == "
    inks = {f"{full}'{ATTENTION}'": "white", f"{full}'{RECURRENT}'": "#18181b"}
    return alt.layer(
        alt.Chart(links)
        .mark_rule(strokeWidth=2)
        .encode(x, y, alt.Color("kind:N", scale=scale, legend=None), x2="x2", y2="y2"),
        alt.Chart(links)  # the arrows of the states
        .transform_filter("datum.level")
        .transform_calculate(x="datum.x2")
        .mark_point(shape="triangle-right", filled=True, size=60, opacity=1, xOffset=edge)
        .encode(x, y, alt.Color("kind:N", scale=scale, legend=None)),
        middle.transform_filter("!datum.level")
        .mark_square(size=400, opacity=1, color="white")
        .encode(x, y),
        *(  # above the middle of a level line, or on that of another
            middle.transform_filter(f"{level}datum.level")
            .mark_text(dy=dy, fontSize=15)
            .encode(x, y, text="told:N")
            for level, dy in (("", -24), ("!", 0))
        ),
        box.mark_square(fill="white", **square),
        box.mark_square(strokeWidth=2, **square).encode(
            fill=alt.Fill("kind:N", scale=scale, legend=None),
            stroke=alt.Stroke("kind:N", scale=scale, legend=None),
            fillOpacity=alt.FillOpacity("share:Q", scale=None, legend=None),
        ),
        *(
            box.transform_filter(where)
            .mark_text(fontSize=14, fontWeight="bold", color=ink)
            .encode(text="told:N")
            for where, ink in {**inks, f"!({' || '.join(inks)})": alt.Undefined}.items()
        ),
        *(
            alt.Chart(group)
            .transform_calculate(told=text)
            .mark_text(
                align=align,
                fontSize=15,
                fontWeight="normal" if align == "center" else "bold",
                color=COLORS.get(kind, alt.Undefined),
            )
            .encode(x, y, text="told:N")
            for (align, kind), group in texts.groupby(["align", "kind"])
        ),
        width="container",
        **properties,
    )
