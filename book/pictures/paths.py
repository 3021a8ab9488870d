"""The path of a signal through four kinds of layers, for section 2."""

from collections.abc import Callable
from itertools import product

import altair as alt
import pandas as pd

from book import charts
from book.pictures.steps import LENGTHS, length

KINDS = {
    "recurrent": "one recurrent layer",
    "contiguous": "contiguous convolutions",
    "dilated": "dilated convolutions",
    "self-attention": "self-attention",
}
LAYERS = "recurrent", "convolutional", "dilated", "self-attention"
SHADES = {kind: charts.LAYERS[layer] for kind, layer in zip(KINDS, LAYERS, strict=True)}


def draw_paths(way: Callable[[str, int], list[tuple[int, int]]]) -> alt.LayerChart:
    """Four panels, in each of which a path is lit and counted.

    way: from the kind of layer and a distance to the pairs of position and layer on the path from
        that many positions before 0 to position 0
    """
    stops, dots, names = [], [], []
    for panel, kind in enumerate(KINDS):
        layers = 0
        for n in LENGTHS:
            path = [(position + n - 1, layer) for position, layer in way(kind, n - 1)]
            last = path[-1][1]
            count = len(path) - 1
            counts = ["", *map(str, range(1, len(path)))]
            stops += [(panel, n, i, *place, counts[i]) for i, place in enumerate(path)]
            new = range(layers, last + 1)  # layers that shorter sentences do not need
            dots += [(panel, n, *place) for place in product(range(max(LENGTHS)), new)]
            layers = last + 1
            told = f"{count} step" + "s" * (count > 1)
            names.append((panel, n, KINDS[kind], told))
    stops = pd.DataFrame(stops, columns=["panel", "n", "order", "position", "layer", "count"])
    dots = pd.DataFrame(dots, columns=["panel", "from", "position", "layer"])
    names = pd.DataFrame(names, columns=["panel", "n", "name", "length"])

    # Four panels side by side, or two above two on a phone; all in one picture, in pixels.
    sizes = {
        "across": "width > 560 ? 4 : 2",
        "high": "width > 560 ? height : height / 2 - 8",
        "wide": "width / across",
        "right": "(wide - 44) / (n - 1)",  # from one position to the next
        "up": "min(56, (high - 92) / max(n - 1, 2))",  # from one layer to the next
        "room": "pow(min(17, 0.9 * min(right, up)), 2)",
    }
    left, floor = "datum.panel % across * wide", "floor(datum.panel / across) * (high + 16) + high"
    place = {"x": f"{left} + 9 + right * datum.position", "y": f"{floor} - 36 - up * datum.layer"}
    heads = {"x": left, "y": f"{floor} - high + 12", "below": f"{floor} - high + 34"}
    foot = {"x": left, "y": f"{floor} - 12", "end": f"{left} + 18 + right * (n - 1)"}
    kind = f"{list(KINDS)}[datum.panel]"
    now = lambda data, of="datum.n == n", **places: (
        alt.Chart(data).transform_filter(of).transform_calculate(kind=kind, **places)
    )
    x, y = alt.X("x:Q", scale=None, axis=None), alt.Y("y:Q", scale=None, axis=None)
    color = alt.Color("kind:N").legend(None).scale(domain=list(KINDS), range=list(SHADES.values()))
    ink = alt.condition("datum.kind == 'self-attention'", alt.value("white"), alt.value("#18181b"))
    dots = now(dots, "datum.from <= n && datum.position < n", **place).mark_circle(
        color="#9AA0A6", opacity=0.35, size=alt.ExprRef("room / 4")
    )
    lit = now(stops, **place).encode(x, y, color, tooltip=["kind:N", "layer", "count"])
    title = now(names, **heads)
    words = now(names, **foot)
    large = alt.condition("datum.kind == 'self-attention'", alt.value(22), alt.value(17))
    small = alt.ExprRef("room > 230 ? 13 : room > 190 ? 12 : 0")
    return alt.layer(
        dots.encode(x, y),
        *(
            lit.transform_filter(f"datum.kind {of} 'self-attention'")
            .mark_line(strokeWidth=wide)
            .encode(order="order:Q", detail="panel:N")
            for of, wide in (("!=", 3), ("==", 7))
        ),
        lit.mark_circle(opacity=1, size=alt.ExprRef("room")),
        lit.mark_text(fontWeight="bold", fontSize=small).encode(color=ink, text="count:N"),
        title.mark_text(align="left", fontSize=14).encode(x, y, text="name:N"),
        title.mark_text(align="left", fontWeight="bold").encode(
            x, alt.Y("below:Q", scale=None), color, text="length:N", size=large
        ),
        words.mark_text(align="left", fontSize=14, text="first word").encode(x, y),
        words.mark_text(align="right", fontSize=14, text="last word").encode(
            alt.X("end:Q", scale=None), y
        ),
        title=alt.Title(
            "Only self-attention’s path does not grow with the sentence",
            subtitle="Lowest row: the words; each row above it is a layer; numbers: steps",
        ),
        description="Rows of dots, one above another for each layer, in four panels; in each, "
        "the path from the first word to the last is lit and its steps are counted. The recurrent "
        "path leads through one layer, from state to state. Contiguous convolutions climb one "
        "layer per word, dilated ones double their stride in each layer, and self-attention needs "
        "a single layer.",
        width="container",
        height=392,
    ).add_params(
        length(),
        *(alt.param(name, expr=expr) for name, expr in sizes.items()),
    )
