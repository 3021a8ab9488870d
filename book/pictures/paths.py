"""The path of a signal through four kinds of layers, for section 2."""

from collections.abc import Callable
from itertools import product

import altair as alt
import pandas as pd

from book import charts

KINDS = {
    "recurrent": "recurrent",
    "contiguous": "convolution",
    "dilated": "dilated convolution",
    "self-attention": "self-attention",
}
LAYERS = "recurrent", "convolutional", "dilated", "self-attention"
SHADES = {kind: charts.LAYERS[layer] for kind, layer in zip(KINDS, LAYERS, strict=True)}


def draw_paths(way: Callable[[str, int], list[tuple[int, int]]]) -> alt.LayerChart:
    """Four panels, in each of which a path is lit and counted.

    way: from the kind of layer and the distance D to the pairs of position and layer on the path
        from position -D to position 0
    """
    stops, rows, names = [], [], []
    for (panel, kind), D in product(enumerate(KINDS), range(1, 9)):
        path = [(position + D, layer) for position, layer in way(kind, D)]
        layers = path[-1][1]
        n, unit = (D, "step") if kind == "recurrent" else (layers, "layer")
        first = len(path) - 1 - n  # what is not counted
        counts = [str(max(0, i - first) or "") for i in range(len(path))]
        stops += [(panel, kind, D, i, *place, counts[i]) for i, place in enumerate(path)]
        rows += [(panel, kind, D, *place) for place in product(range(D + 1), range(layers + 1))]
        names.append((panel, kind, D, KINDS[kind], f"{n} {unit}{'s' * (n > 1)}"))
    each = ["panel", "kind", "D"]
    stops = pd.DataFrame(stops, columns=[*each, "order", "position", "layer", "count"])
    rows = pd.DataFrame(rows, columns=[*each, "position", "layer"])
    names = pd.DataFrame(names, columns=[*each, "name", "length"])

    # Four panels side by side, or two above two on a phone; all in one picture, in pixels.
    sizes = {
        "across": "width > 560 ? 4 : 2",
        "high": "width > 560 ? height : height / 2 - 8",
        "wide": "width / across",
        "right": "(wide - 44) / max(distance, 3)",  # from one position to the next
        "up": "min(40, (high - 66) / max(distance, 2))",  # from one layer to the next
        "room": "pow(min(17, 0.9 * min(right, up)), 2)",
    }
    left, floor = "datum.panel % across * wide", "floor(datum.panel / across) * (high + 16) + high"
    place = {"x": f"{left} + 14 + right * datum.position", "y": f"{floor} - 14 - up * datum.layer"}
    heads = {"x": f"{left} + 6", "y": f"{floor} - high + 8", "below": f"{floor} - high + 30"}
    now = lambda data, **places: (
        alt.Chart(data).transform_filter("datum.D == distance").transform_calculate(**places)
    )
    x, y = alt.X("x:Q", scale=None, axis=None), alt.Y("y:Q", scale=None, axis=None)
    color = alt.Color("kind:N").legend(None).scale(domain=list(KINDS), range=list(SHADES.values()))
    ink = alt.condition("datum.kind == 'self-attention'", alt.value("white"), alt.value("#18181b"))
    dots = now(rows, **place).mark_circle(
        color="#9AA0A6", opacity=0.35, size=alt.ExprRef("room / 4")
    )
    lit = now(stops, **place).encode(x, y, color, tooltip=["kind", "layer", "count"])
    title = now(names, **heads)
    small = alt.ExprRef("room > 150 ? 11 : 9")
    return alt.layer(
        dots.encode(x, y),
        lit.mark_line(strokeWidth=3).encode(order="order:Q", detail="panel:N"),
        lit.mark_circle(opacity=1, size=alt.ExprRef("room")),
        lit.mark_text(fontWeight="bold", fontSize=small).encode(color=ink, text="count:N"),
        title.mark_text(align="left", fontSize=13).encode(x, y, text="name:N"),
        title.mark_text(align="left", fontSize=18, fontWeight="bold").encode(
            x, alt.Y("below:Q", scale=None), color, text="length:N"
        ),
        title=alt.TitleParams(
            "Self-attention links any two words in one layer",
            subtitle="Across: the words of a sentence. Upwards: layers.",
        ),
        description="Rows of dots, one above another for each layer, in four panels; in each, "
        "the path of a signal from the first word to the last is lit and counted. The recurrent "
        "path leads through one layer, from state to state. Contiguous convolutions climb one "
        "layer per word, dilated ones double their stride in each layer, and self-attention needs "
        "a single layer.",
        width="container",
        height=320,
    ).add_params(
        charts.slider("distance", 6, 1, 8, 1, "Distance (words)"),
        *(alt.param(name, expr=expr) for name, expr in sizes.items()),
    )
