"""Charts of attention weights for Altair: the paper's Figures 3 to 5, and heat maps.

A chart is data for Vega-Lite, so a page can draw it and make it interactive without Python. A
sentence of 30 words has 7,200 weights in a layer of eight heads; they are stored as lists, one per
word and head, in ten-thousandths, and the chart unpacks them in the reader's browser.
"""

import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from annotated.machinery.errors import InputError, check_real, check_whole, extra
from annotated.machinery.palette import HEADS
from annotated.machinery.visualization.weights import AttentionWeights, readable_words

if TYPE_CHECKING:
    import altair as alt

_GAP = 110  # pixels between the two rows of words
_LINE = 22  # height of a row of words that are not turned
_CELL = 16  # height of a cell that stands below a word


def _weight_rows(weights: Tensor) -> list[dict[str, Any]]:
    """Weights (layers, h, len_q, len_k), in ten-thousandths, as rows of data.

    Returns: one row per layer and head, counted from 1, and per query, counted from 0.
    """
    lists = (weights * 10_000).round().int().tolist()
    return [
        {"layer": layer, "head": head, "query": q, "weight": row}
        for layer, heads in enumerate(lists, start=1)
        for head, rows in enumerate(heads, start=1)
        for q, row in enumerate(rows)
    ]


def _shown(
    weights: Tensor | AttentionWeights, queries: list[str] | None, keys: list[str] | None
) -> AttentionWeights:
    """What a drawing shows: weights (layers, h, len_q, len_k), and words that can be drawn."""
    if isinstance(weights, AttentionWeights):
        queries, keys = queries or weights.queries, keys or weights.keys
        weights = weights.weights
    if queries is None:
        wanted = "one of the results of read_attention, such as ['cross'], or a tensor with words"
        raise InputError(f"expected {wanted}; got {type(weights).__name__} alone")
    weights = weights[(None,) * (4 - weights.dim())]
    return AttentionWeights(weights, _drawn_words(queries), _drawn_words(keys or queries))


def _drawn_words(words: list[str]) -> list[str]:
    """As `readable_words`, with an invisible word joiner in `</` and `<!`.

    A saved chart is a script inside a page, which a word such as </script> would end.
    """
    return [re.sub("<(?=[/!])", "<\u2060", word) for word in readable_words(words)]


def _describe(shown: AttentionWeights, layer: int, heads: list[int], query: int | None) -> str:
    """Alternative text of a drawing: its content and its five strongest connections."""
    weights = shown.weights[layer - 1, [head - 1 for head in heads]]
    origin = "each word" if query is None else f"the word {shown.queries[query]!r}"
    if query is not None:
        weights = weights[:, [query]]
    connections = []
    for i in weights.flatten().argsort(descending=True)[:5]:
        head, row, key = (int(place) for place in torch.unravel_index(i, weights.shape))
        ends = f"{shown.queries[row if query is None else query]} to {shown.keys[key]}"
        of = f"head {heads[head]}, " if len(heads) > 1 else ""
        connections.append(f"{ends} ({of}{weights[head, row, key]:.2f})")
    whom = "one head"
    if shown.weights.shape[:2] != (1, 1):
        whom = f"head{'s' * (len(heads) > 1)} {', '.join(map(str, heads))}"
    where = f" in layer {layer}" if len(shown.weights) > 1 else ""
    return (
        f"Attention of {whom}{where}, from {origin} of “{' '.join(shown.queries)}” to the words "
        f"that it attends to. Strongest: {'; '.join(connections)}."
    )


def _is_chosen(datum: str, *choices: str, otherwise: str) -> str:
    """Vega expression: whether a datum equals the first selection, or `otherwise` without one."""
    for choice in reversed(choices):
        made = f"isArray({choice}) && isValid({choice}[0])"
        otherwise = f"({made} ? datum.{datum} == {choice}[0] : {otherwise})"
    return otherwise


def _isolated(otherwise: str) -> str:
    return _is_chosen("query", "above.from", "kept.from", otherwise=otherwise)


class _Frame:
    """Coordinates: one unit to the right is one word, one unit down is one pixel.

    The words above end at `top`, and those below begin at `bottom`. Few short words are `level`:
    the cells of the `heads` are then rows below them, with names in a column of their own, or, if
    the words are in two columns, they are columns beside them.
    """

    def __init__(self, shown: AttentionWeights, heads: list[int] | None) -> None:
        import altair as alt

        longest, self.h = max(map(len, [*shown.queries, *shown.keys])), shown.weights.size(1)
        words = max(len(shown.queries), len(shown.keys))
        self.level = all(
            3.2 * len(one + other) + 4 < 740 / (words + 1)
            for side in (shown.queries, shown.keys)
            for one, other in pairwise(side)
        )
        self.heads, self.legend = heads or [*range(1, self.h + 1)], not (heads and self.level)
        self.columns = words + self.level
        ends = [words - 0.5 - self.columns, words - 0.5]
        self.across = alt.Scale(domain=ends, nice=False, zero=False)
        self.cells = _CELL * len(self.heads)  # room for cells that are not behind the words
        self.top = 12 + 7 * longest if self.level else max(12 + 7 * longest, 8 * self.h)
        self.bottom = self.top + _GAP
        self.height = self.bottom + self.top + self.level * self.cells
        self.ends = [self.height, 0]
        if self.level:
            self.ends = [self.bottom + _LINE + self.cells, self.top - _LINE]
        self.down = alt.Scale(domain=self.ends, nice=False)

    def at(self, x: str, y: str, **ends: str) -> dict[str, Any]:
        """Encodings of a position, by the names of fields; ends may be x2 and y2."""
        import altair as alt

        return {
            "x": alt.X(f"{x}:Q", scale=self.across, axis=None),
            "y": alt.Y(f"{y}:Q", scale=self.down, axis=None),
            **{channel: f"{name}:Q" for channel, name in ends.items()},
        }


def _opacity(strength: str, full: float = 1.0) -> "alt.Opacity":
    """Opacity: invisible at 0, full color from `full` on."""
    import altair as alt

    scale = alt.Scale(domain=[0, full], range=[0, 1], clamp=True)
    return alt.Opacity(f"{strength}:Q", scale=scale, legend=None)


def _marks(
    shown: AttentionWeights,
    heads: "alt.Parameter",
    frame: _Frame,
    full: float,
    threshold: float,
    colors: list[str],
) -> "list[alt.Chart]":
    """Curves between words and, if a word is isolated, one cell per head under each key.

    Rows of cells have names. In two columns of words, thin lines lead from words to their cells.
    """
    import altair as alt

    word = lambda words, place: f"{json.dumps(words)}[datum.{place}]"
    seen = (  # filters first, so that few rows have to be unpacked
        alt.Chart()
        .transform_filter("datum.layer == layer")
        .transform_filter(heads)
        .transform_filter(_isolated(otherwise="true"))
        .transform_window(rank="dense_rank()", sort=[alt.SortField("head")])
        .transform_joinaggregate(shown="distinct(head)")
        .transform_flatten(["weight"])
        .transform_window(key="row_number()", groupby=["layer", "head", "query"])
        .transform_calculate(key="datum.key - 1", weight="datum.weight / 10000")
        .transform_filter(f"datum.weight >= {threshold}")
        .transform_filter(_is_chosen("key", "below.to", otherwise="true"))
        .transform_calculate(
            from_word=word(shown.queries, "query"), to_word=word(shown.keys, "key"),
            strength=f"min(1, datum.weight / {full})",
        )
    )  # fmt: skip
    scale = alt.Scale(domain=list(range(1, frame.h + 1)), range=colors)
    legend = alt.Legend(columns=frame.h, symbolType="square") if frame.legend else None
    shared: dict[str, Any] = {
        "color": alt.Color("head:N", title="head", legend=legend, scale=scale),
        "tooltip": [
            alt.Tooltip("head:N"), alt.Tooltip("from_word:N", title="from"),
            alt.Tooltip("to_word:N", title="to"), alt.Tooltip("weight:Q", format=".3f"),
        ],
    }  # fmt: skip
    # The heads share the width of a word, so that no line hides that of another head.
    apart = "min(0.2, 0.7 / datum.shown) * (datum.rank - (datum.shown + 1) / 2)"
    # A curve is the shape of a point: it tapers from the word that attends, and has an outline,
    # without which it would be too thin where it is steep.
    breadth = "(datum.shown < 3 ? 2 : 1)"
    aside, half, end = "datum.aside", "datum.end/2", "datum.end"
    corners = [
        (breadth, "0"), (breadth, half), (aside, half), (aside, end),
        (aside, half), (f"-{breadth}", half), (f"-{breadth}", "0"),
    ]  # fmt: skip
    places = [f"(turned ? {y}+','+{x} : {x}+','+{y})" for x, y in corners]
    path = "'M'+{}+'C'+{}+' '+{}+' '+{}+'C'+{}+' '+{}+' '+{}+'Z'".format(*places)
    lines = seen.transform_calculate(  # in pixels; a unit across is a word, and one down a pixel
        y=str(frame.top + 3),
        start=f"datum.query + {apart}",
        aside=f"round((datum.key - datum.query) * (turned ? height : width) / {frame.columns})",
        end=f"{_GAP - 6} * (turned ? width / {frame.height} : 1)",
    ).transform_calculate(path=path)
    # Cells have rows of their own, or share the height of the words behind which they stand.
    first, row, high = str(frame.bottom), "datum.rank - 1", f"{frame.top} / datum.shown"
    if frame.level:
        first = f"(turned ? {frame.bottom + frame.top} : {frame.bottom + _LINE})"
        row, high = f"indexof({frame.heads}, datum.head)", str(_CELL)
    rows = {"y": f"{first} + {high} * ({row})", "y2": f"{first} + {high} * ({row} + 1)"}
    rows["middle"] = "(datum.y + datum.y2) / 2"
    cells = seen.transform_filter(_isolated(otherwise="false")).transform_calculate(
        left="datum.key - 0.5", right="datum.key + 0.5", **rows
    )
    pale = alt.Scale(domain=[0, 1], range=[0, 0.6 if frame.level else 0.45])  # under letters
    shade = alt.FillOpacity("strength:Q", scale=pale, legend=None)
    box = frame.at("left", "y", x2="right", y2="y2")
    data = [{"head": head, "left": -1.5, "right": -0.6} for head in frame.heads]
    names = alt.Chart(alt.Data(values=data)).transform_calculate(
        at="datum.left + 0.45", name="(turned ? '' : 'head ') + datum.head", **rows
    )
    leading = (
        cells.transform_filter("turned && datum.weight > 0.1")
        .transform_aggregate(to_word="min(to_word)", groupby=["key"])
        .transform_calculate(
            y=f"min({first}, {frame.bottom + 10} + 9 * length(datum.to_word))", y2=first
        )
        .mark_rule(color="#808080", opacity=0.3)
        .encode(**frame.at("key", "y", x2="key", y2="y2"))
    )
    named = [
        names.mark_rect(opacity=0.3).encode(
            **box, fill=alt.Fill("head:N", legend=None, scale=scale)
        ),
        names.mark_text(fontSize=12).encode(**frame.at("at", "middle"), text="name:N"),
        leading,
    ]
    return [
        cells.mark_rect().encode(**box, **shared, fillOpacity=shade),
        lines.mark_point(size=4, filled=True, opacity=1, strokeWidth=1.2, aria=False).encode(
            **frame.at("start", "y"),
            **shared,
            opacity=_opacity("strength"),
            shape=alt.Shape("path:N", scale=None),
            stroke=alt.Stroke("head:N", legend=None, scale=scale),
        ),
        *named * frame.level,
    ]


def _words(words: list[str], above: bool, frame: _Frame) -> "list[alt.Chart]":
    """One row of words; each has a box, first as a background, then as a button."""
    import altair as alt

    edge, far = (frame.top, 0) if above else (frame.bottom, frame.height)
    place, number = ("from", "query") if above else ("to", "key")
    isolated = _isolated("false") if above else _is_chosen("key", "below.to", otherwise="false")
    rows = [
        {place: i, number: i, "word": word, "left": i - 0.5, "right": i + 0.5,
         "edge": edge, "far": far, "end": edge + (8 + 7 * len(word)) * (-1 if above else 1)}
        for i, word in enumerate(words)
    ]  # fmt: skip
    base = alt.Chart(alt.Data(values=rows))
    expr = lambda in_columns, else_: alt.ExprRef(f"turned ? {in_columns!r} : {else_!r}")
    towards, away = ("right", "left") if above else ("left", "right")
    style: dict[str, Any] = {"angle": expr(0, 270), "align": expr(towards, away), "fontSize": 12}
    style |= {"baseline": "middle"}
    if frame.level:
        style = {"align": expr(towards, "center"), "fontSize": expr(12, 13)}
        style |= {"baseline": expr("middle", "bottom" if above else "top")}
        style |= {"dy": expr(0, -5 if above else 5)}
        upright = edge + _LINE * (-1 if above else 1)
        base = base.transform_calculate(
            end=f"turned ? datum.end : {upright}",
            far=f"turned ? datum.far : {upright if above else frame.ends[0]}",
        )
    text = base.mark_text(**style)
    box = frame.at("left", "edge", x2="right", y2="far")
    fit = frame.at("left", "edge", x2="right", y2="end")
    return [
        base.transform_filter(isolated).mark_rect(color="#888888", opacity=0.35).encode(**fit),
        text.encode(**frame.at(place, "edge"), text="word:N"),
        base.mark_rect(opacity=0, cursor="pointer").encode(**box),
    ]


def attention_lines(
    weights: Tensor | AttentionWeights,
    queries: list[str] | None = None,
    keys: list[str] | None = None,
    *,
    layer: int | None = None,
    heads: list[int] | None = None,
    query: int | None = None,
    full: float = 1.0,
    threshold: float = 0.02,
    colors: list[str] | None = None,
) -> "alt.LayerChart":
    """Draw attention as lines between words, as the paper's Figures 3 to 5 do, but interactively.

    Pointing at a word shows its lines, clicking on it keeps them, and clicking on a head in the
    legend hides or shows it. Lists select the word and, of several, the layer. Where a word of few
    is isolated at first, the heads have rows with names instead of a legend.

    Args:
        weights: from `read_attention`, with their words; or (layers, h, len_q, len_k), or
            (h, len_q, len_k) of one layer.
        queries, keys: the words; the keys default to the queries.
        layer, heads: initially shown, counted from 1; default: the last layer and all heads. Rows
            with names are in the order of the heads.
        query: position of the word that is initially isolated, counted from 0.
        full: the weight from which a line has its full color.
        threshold: weaker connections are not drawn.
        colors: of the heads, in order; default: nine, so that heads 1 and 10 share one.

    Returns: a chart.

    Raises: InputError for too few or too many words, and for a setting that is out of range.

    Source: Figures 3, 4 and 5.
    """
    with extra("viz"):
        import altair as alt
    shown = _shown(weights, queries, keys)
    layers, h = shown.weights.shape[:2]
    layer = layers if layer is None else layer
    heads = list(range(1, h + 1)) if heads is None else heads
    allowed = {  # a setting out of range would leave the chart empty
        f"layer from 1 to {layers}": (layer, 1 <= layer <= layers),
        f"heads from 1 to {h}": (heads, heads and set(heads) <= set(range(1, h + 1))),
        f"query below {len(shown.queries)}": (query, query in (None, *range(len(shown.queries)))),
        "full above 0, up to 1": (full, 0 < full <= 1),
        "threshold from 0 to 0.5": (threshold, 0 <= threshold <= 0.5),
    }
    for expected, (given, fits) in allowed.items():
        if not fits:
            raise InputError(f"expected {expected}; got {given}")

    words = [f"{i + 1} {word}" for i, word in enumerate(shown.queries)]
    attends = (shown.weights >= threshold).any(dim=-1).any(dim=1).any(dim=0)
    origins = [i for i in range(len(words)) if attends[i]]  # the words that have lines
    labels = ["every word", *(words[i] for i in origins)]
    from_word: Any = {
        "from": alt.binding_select(options=[None, *origins], labels=labels, name="From ")
    }
    numbers = alt.binding_select(options=list(range(1, layers + 1)), name="Layer ")
    pointer: dict[str, Any] = {"on": "rect:pointerover", "clear": "rect:pointerout"}
    legend = alt.selection_point(
        name="heads", fields=["head"], bind="legend", toggle="true",
        value=[{"head": head} for head in heads],
    )  # fmt: skip
    kept = alt.selection_point(
        name="kept", fields=["from"], on="rect:click", clear="dblclick", toggle=False,
        bind=from_word if len(origins) > 1 else alt.Undefined,
        value=alt.Undefined if query is None else [{"from": query}],
    )  # fmt: skip
    frame = _Frame(shown, None if query is None else heads)
    cells, lines, *named = _marks(shown, legend, frame, full, threshold, colors or HEADS)
    shade, upper, touch = _words(shown.queries, True, frame)
    if len(origins) < len(words):
        touch = touch.transform_filter(alt.FieldOneOfPredicate("from", oneOf=origins))
    shade_below, lower, touch_below = _words(shown.keys, False, frame)
    chart = alt.layer(
        shade, shade_below, cells, *named, lines.add_params(legend), upper, lower,
        touch.add_params(kept, alt.selection_point(name="above", fields=["from"], **pointer)),
        touch_below.add_params(alt.selection_point(name="below", fields=["to"], **pointer)),
        data=alt.Data(values=_weight_rows(shown.weights)),
    )  # fmt: skip
    return chart.add_params(
        alt.param(name="layer", value=layer, bind=numbers if layers > 1 else alt.Undefined),
        alt.param(name="turned", value=False),  # in two columns of words, as on a phone
    ).properties(
        width="container" if frame.columns <= 36 else 18 * frame.columns,
        height=frame.ends[0] - frame.ends[1],
        description=_describe(shown, layer, heads, query),
        # On a phone, in two columns of words: the height, and the ends of what was the height.
        usermeta={"turned": 19 * frame.columns, "down": [frame.height, 0]},
    )


def heat_map(
    weights: Tensor | AttentionWeights,
    queries: list[str] | None = None,
    keys: list[str] | None = None,
    full: float = 1.0,
    *,
    layer: int | None = None,
    head: int = 1,
) -> "alt.Chart":
    """Draw the weights of one head as a heat map.

    A map suits many weak connections, and `attention_lines` a few strong ones.

    Args:
        weights: (len_q, len_k), or as for `attention_lines`.
        queries, keys, full: as for `attention_lines`.
        layer, head: which to draw, counted from 1; default: the first head of the last layer.

    Raises: InputError if the numbers of words differ from those of the weights, or if another
        argument is out of range.
    """
    with extra("viz"):
        import altair as alt
    check_real("full", full, 1e-4, 1)
    shown = _shown(weights, queries, keys)
    layers, h = shown.weights.shape[:2]
    layer = layers if layer is None else layer
    check_whole("layer", layer, most=layers)
    check_whole("head", head, most=h)
    matrix = shown.weights[layer - 1, head - 1].tolist()
    rows = [  # the numbers preserve the order of the words
        {"row": f"{q:03d} {a}", "column": f"{k:03d} {b}", "from": a, "to": b, "weight": round(w, 4)}
        for q, a in enumerate(shown.queries)
        for k, (b, w) in enumerate(zip(shown.keys, matrix[q], strict=True))
    ]
    axis: dict[str, Any] = {"labelExpr": "slice(datum.label, 4)", "title": None}
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_rect()
        .encode(
            x=alt.X("column:O", axis=alt.Axis(**axis, labelAngle=-90, orient="top")),
            y=alt.Y("row:O", axis=alt.Axis(**axis)),
            opacity=_opacity("weight", full),
            tooltip=["from:N", "to:N", alt.Tooltip("weight:Q", format=".3f")],
        )
        .properties(description=_describe(shown, layer, [head], None))
    )
