"""Numbers in boxes and weighted sums of them, for sections 1 and 2."""

from collections.abc import Sequence
from itertools import pairwise

import altair as alt
import pandas as pd

from book import charts

BLUE, ORANGE = charts.LAYERS["self-attention"], charts.LAYERS["recurrent"]
WEIGHTS = {0.25: "¼", 0.5: "½", 1: ""}
INPUT, OUTPUT, HEAD = 0.22, 0.6, 0.84  # heights in a row, of which each is 1 high


def draw_loop(words: Sequence[float], limit: float, weights: Sequence[float]) -> alt.LayerChart:
    """The last output for words that are numbers: of a recurrence, without its limit, of attention.

    weights: of attention, one for each word
    """
    last = len(words) - 1
    heads = [("Recurrence", ORANGE), ("Without limit", ORANGE), ("Self-attention", BLUE)]
    at = [
        [panel + 0.03 + 0.9 * (i + 0.5) / len(words) for i in range(len(words))]
        for panel in range(3)
    ]
    boxes = [(x, INPUT, word, "white") for each in at for x, word in zip(each, words, strict=True)]
    links, states = [], [0.0]
    for x, word in zip(at[0], words, strict=True):
        states.append(min(limit, word + states[-1] / 2))
        boxes.append((x, OUTPUT, states[-1], ORANGE))
        links.append((x, INPUT, x, OUTPUT, "", ORANGE))
    links += [(x, OUTPUT, after, OUTPUT, WEIGHTS[0.5], ORANGE) for x, after in pairwise(at[0])]
    sums = [0.5 ** (last - i) for i in range(len(words))], weights
    for x, each, (_, color) in zip(at[1:], sums, heads[1:], strict=True):
        total = sum(w * word for w, word in zip(each, words, strict=True))
        boxes.append((x[last], OUTPUT, total, color))
        links += [
            (start, INPUT, x[last], OUTPUT, WEIGHTS[w], color)
            for start, w in zip(x, each, strict=True)
        ]
    return _draw(
        boxes,
        links,
        texts=[(i + 0.03, HEAD, name, "left", color) for i, (name, color) in enumerate(heads)],
        title=alt.Title(
            "A limit makes the last output wait for all the others",
            subtitle=f"Below: words 8, 4 and 2; above: outputs, in the recurrence at most {limit}",
        ),
        description=f"Lines from three words to outputs. Recurrence, with the limit {limit}: the "
        f"states {states[1:]}, one after another. Without the limit, as in self-attention, "
        "lines lead from all words directly to the last output.",
        height=220,
    )


def draw_averages(
    values: dict[str, float], heads: dict[str, list[list[float]]], sentences: list[str]
) -> alt.LayerChart:
    """What heads return for sentences: values of the words, and above them their averages.

    values: a number for each word that has weight
    heads: by name, the weights of each head, one for each word of a sentence
    """
    boxes, links, texts, told = [], [], [], []
    shade = lambda value: _mixed(value / max(values.values()))
    for row, (name, weights) in enumerate(reversed(heads.items())):
        returned = []
        for column, words in enumerate(map(str.split, sentences)):
            given = [values.get(word, 0) for word in words]
            at = [column + (i + 0.5) / len(words) for i in range(len(words))]
            texts += [(x, row, word, "center", None) for x, word in zip(at, words, strict=True)]
            boxes += [(x, row + INPUT, v, shade(v)) for x, v in zip(at, given, strict=True) if v]
            averages = [sum(w * v for w, v in zip(each, given, strict=True)) for each in weights]
            for head, (each, average) in enumerate(zip(weights, averages, strict=True)):
                x = column + 0.5 + 0.21 * (head - (len(weights) - 1) / 2)
                boxes.append((x, row + OUTPUT, average, shade(average)))
                links += [
                    (start, row + INPUT, x, row + OUTPUT, WEIGHTS[w], BLUE)
                    for start, w in zip(at, each, strict=True)
                    if w
                ]
            returned.append(averages)
        equal = all(averages == returned[0] for averages in returned)
        says, color = ("the same output twice", None) if equal else ("different outputs", BLUE)
        texts += [(0, row + HEAD, name, "left", None), (2, row + HEAD, says, "right", color)]
        told.append(f"{name}: {says}.")
    return _draw(
        boxes,
        links,
        texts,
        title=alt.Title(
            "One average cannot tell who chases whom, but two heads can",
            subtitle="Below: words with their values; above: what the heads return",
        ),
        description="Lines from the values of words to what heads return, for two sentences. "
        + " ".join(told[::-1]),
        height=340,
    )


def _mixed(share: float) -> str:
    """A color between white and blue."""
    return "#" + "".join(
        f"{round(255 - share * (255 - int(BLUE[i : i + 2], 16))):02X}" for i in (1, 3, 5)
    )


def _draw(boxes: list, links: list, texts: list, **properties) -> alt.LayerChart:
    """Lines with weights, boxes with numbers, and text in its color or that of text."""
    boxes = pd.DataFrame(boxes, columns=["x", "y", "value", "fill"])
    boxes["ink"] = boxes["fill"].map({BLUE: "white"}).fillna("#18181b")
    boxes["edge"] = boxes["fill"].map({"white": charts.PALETTE[6], ORANGE: ORANGE}).fillna(BLUE)
    links = pd.DataFrame(links, columns=["x", "y", "x2", "y2", "weight", "color"])
    links["way"] = (links["y2"] > links["y"]) * (1 + (links["x2"] > links["x"]))
    texts = pd.DataFrame(texts, columns=["x", "y", "text", "align", "color"])

    x = alt.X("x:Q").axis(None).scale(domain=[0, int(boxes["x"].max()) + 1], nice=False)
    low, rows = min(boxes["y"].min() - 0.1, texts["y"].min()), round(boxes["y"].max() + 0.5)
    y = alt.Y("y:Q").axis(None).scale(domain=[low - 0.06, rows - 0.09], nice=False)
    raw = {"legend": None, "scale": None}
    box = alt.Chart(boxes).encode(x, y)
    return alt.layer(
        alt.Chart(links)
        .mark_rule(strokeWidth=2)
        .encode(x, y, alt.Color("color:N", **raw), x2="x2", y2="y2"),
        *(  # beside the beginning of a line, or above the middle of a level one
            alt.Chart(links)
            .transform_filter(alt.datum.way == way)
            .transform_calculate(x=at)
            .mark_text(align=align, dx=dx, dy=dy, fontSize=15)
            .encode(x, y, text="weight:N")
            for way, (at, align, dx, dy) in enumerate(
                [
                    ("(datum.x + datum.x2) / 2", "center", 0, -24),
                    ("datum.x", "left", 4, -25),
                    ("datum.x", "right", 2, -25),
                ]
            )
        ),
        box.mark_square(
            size=alt.ExprRef("width > 500 ? 900 : 600"), strokeWidth=2, opacity=1
        ).encode(fill=alt.Fill("fill:N", **raw), stroke=alt.Stroke("edge:N", **raw)),
        box.mark_text(fontSize=14, fontWeight="bold").encode(
            alt.Color("ink:N", **raw), text="value:Q"
        ),
        *(
            alt.Chart(group)
            .mark_text(
                align=align,
                fontSize=15,
                fontWeight="normal" if align == "center" else "bold",
                color=color or alt.Undefined,
            )
            .encode(x, y, text="text:N")
            for (align, color), group in texts.fillna({"color": ""}).groupby(["align", "color"])
        ),
        width="container",
        **properties,
    )
