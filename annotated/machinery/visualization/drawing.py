"""Drawing attention."""

import json
from typing import Any

from torch import Tensor

from annotated.machinery.files import lazy_extra
from annotated.machinery.visualization.weights import Attention, readable_words


def _weight_rows(weights: Tensor) -> list[dict[str, object]]:
    """Weights (layers, h, len_q, len_k), in ten-thousandths, as rows of data.

    Returns: a row for each layer and head, counted from 1, and query, counted from 0.
    """
    layers, h, queries, _ = weights.shape
    lists = (weights * 10_000).round().int().tolist()
    return [
        {"layer": n + 1, "head": i + 1, "query": q, "weight": lists[n][i][q]}
        for n in range(layers)
        for i in range(h)
        for q in range(queries)
    ]


with lazy_extra("viz"):
    import altair as alt


def _controls(
    layers: int,
    queries: list[str],
    layer: int,
    heads: list[int],
    query: int | None,
    full: float,
    threshold: float,
) -> dict[str, alt.Parameter]:
    """What a reader can set: layer, heads, strength, the word that looks, what is pointed at."""
    words = [f"{i + 1} {word}" for i, word in enumerate(queries)]
    everything = alt.binding_select(
        options=[None, *range(len(queries))], labels=["every word", *words], name="From "
    )
    kept: dict[str, Any] = {"bind": {"from": everything}}
    if query is not None:
        kept["value"] = [{"from": query}]
    numbers = alt.binding_select(options=list(range(1, layers + 1)), name="Layer ")
    bind: dict[str, Any] = {"bind": numbers} if layers > 1 else {}
    strengths = alt.binding_select(options=sorted({0.1, 0.2, 0.5, 1.0, full}), name="Full at ")
    least = alt.binding_range(min=0, max=0.5, step=0.01, name="Draw from ")
    pointer: dict[str, Any] = {"on": "rect:pointerover", "clear": "rect:pointerout"}
    return {
        "layer": alt.param(name="layer", value=layer, **bind),
        "full": alt.param(name="full", value=full, bind=strengths),
        "threshold": alt.param(name="threshold", value=threshold, bind=least),
        "heads": alt.selection_point(
            name="heads", fields=["head"], bind="legend", toggle="true",
            value=[{"head": head} for head in heads],
        ),
        "kept": alt.selection_point(
            name="kept", fields=["from"], on="rect:click", clear="dblclick", toggle=False, **kept,
        ),
        "above": alt.selection_point(name="above", fields=["from"], **pointer),
        "below": alt.selection_point(name="below", fields=["to"], **pointer),
    }  # fmt: skip


def _isolated(otherwise: bool) -> str:
    """Vega expression: whether datum.query is the isolated word; `otherwise` if there is none."""
    default = str(otherwise).lower()
    kept = f"({_is_set('kept.from')} ? datum.query == kept.from[0] : {default})"
    return f"{_is_set('above.from')} ? datum.query == above.from[0] : {kept}"


def _looked_at(otherwise: bool) -> str:
    """Vega expression: whether the pointer is on the word datum.key; `otherwise` if on none."""
    return f"{_is_set('below.to')} ? datum.key == below.to[0] : {str(otherwise).lower()}"


def _is_set(name: str) -> str:
    return f"isArray({name}) && isValid({name}[0])"


def _connections(heads: alt.Parameter, queries: list[str], keys: list[str]) -> alt.Chart:
    """Transforms from rows of weights to the connections that are to be seen.

    Beside each stand the number of heads shown and the rank of its own among them.
    """
    name = lambda words, place: f"{json.dumps(words)}[datum.{place}]"
    return (
        alt.Chart()
        .transform_filter("datum.layer == layer")
        .transform_filter(heads)
        .transform_filter(_isolated(otherwise=True))
        .transform_window(rank="dense_rank()", sort=[alt.SortField("head")])  # of the heads shown
        .transform_joinaggregate(shown="distinct(head)")
        .transform_flatten(["weight"])
        .transform_window(key="row_number()", groupby=["layer", "head", "query"])
        .transform_calculate(key="datum.key - 1", weight="datum.weight / 10000")
        .transform_filter("datum.weight >= threshold")
        .transform_filter(_looked_at(otherwise=True))
        .transform_calculate(from_word=name(queries, "query"), to_word=name(keys, "key"))
        .transform_calculate(strength="min(1, datum.weight / full)")
    )


_COLOURS = [
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#8C564B", "#56B4E9", "#7F7F7F",
]  # fmt: skip
_GAP = 110  # pixels between the two rows of words


class _Frame:
    """Where things stand: the words above end at `top`, those below begin at `bottom`."""

    def __init__(self, queries: list[str], keys: list[str], h: int) -> None:
        longest = max(map(len, [*queries, *keys]))
        self.top = max(12 + 7 * longest, 8 * h)
        self.bottom, self.height = self.top + _GAP, 2 * self.top + _GAP
        self.columns, self.h = max(len(queries), len(keys)), h

    def at(self, x: str, y: str, x2: str | None = None, y2: str | None = None) -> dict[str, Any]:
        """Encodings of a place, by the names of fields."""
        across = alt.Scale(domain=[-0.5, self.columns - 0.5], nice=False, zero=False)
        down = alt.Scale(domain=[self.height, 0], nice=False)
        places: dict[str, Any] = {
            "x": alt.X(f"{x}:Q", scale=across, axis=None),
            "y": alt.Y(f"{y}:Q", scale=down, axis=None),
        }
        ends = {"x2": x2, "y2": y2}
        return places | {channel: f"{name}:Q" for channel, name in ends.items() if name}


def _opacity(strength: str, full: float = 1.0) -> alt.Opacity:
    """Invisible at 0, in full colour from `full` on."""
    scale = alt.Scale(domain=[0, full], range=[0, 1], clamp=True)
    return alt.Opacity(f"{strength}:Q", scale=scale, legend=None)


def _marks(seen: alt.Chart, frame: _Frame) -> list[alt.Chart]:
    """Lines from word to word and, where a word is isolated, a cell a head under each key."""
    shared: dict[str, Any] = {
        "color": alt.Color(
            "head:N", title="head", legend=alt.Legend(columns=frame.h, symbolType="square"),
            scale=alt.Scale(domain=list(range(1, frame.h + 1)), range=_COLOURS),
        ),
        "opacity": _opacity("strength"),
        "tooltip": [
            alt.Tooltip("head:N"), alt.Tooltip("from_word:N", title="from"),
            alt.Tooltip("to_word:N", title="to"), alt.Tooltip("weight:Q", format=".3f"),
        ],
    }  # fmt: skip
    lines = seen.transform_calculate(y=str(frame.top + 3), y2=str(frame.bottom - 3))
    height = f"{frame.top} / datum.shown"  # the heads shown share the height of the words
    cells = seen.transform_filter(_isolated(otherwise=False)).transform_calculate(
        left="datum.key - 0.5",
        right="datum.key + 0.5",
        y=f"{frame.bottom} + {height} * (datum.rank - 1)",
        y2=f"{frame.bottom} + {height} * datum.rank",
    )
    rule = lines.mark_rule(strokeWidth=2, strokeCap="round")
    return [
        cells.mark_rect().encode(**frame.at("left", "y", "right", "y2"), **shared),
        rule.encode(**frame.at("query", "y", "key", "y2"), **shared),
    ]


def _words(words: list[str], place: str, frame: _Frame) -> list[alt.Chart]:
    """One row of words, upright, and for each a box, first as a shade and then as a button."""
    above = place == "from"
    name = "query" if above else "key"
    edge, far = (frame.top, 0) if above else (frame.bottom, frame.height)
    rows = [
        {
            place: i,
            name: i,
            "word": word,
            "left": i - 0.5,
            "right": i + 0.5,
            "edge": edge,
            "far": far,
        }
        for i, word in enumerate(words)
    ]
    base = alt.Chart(alt.Data(values=rows))
    text = base.mark_text(angle=270, baseline="middle", align="left" if above else "right")
    box = frame.at("left", "edge", "right", "far")
    chosen = _isolated(otherwise=False) if above else _looked_at(otherwise=False)
    return [
        base.transform_filter(chosen).mark_rect(color="#888888", opacity=0.35).encode(**box),
        text.encode(**frame.at(place, "edge"), text="word:N"),
        base.mark_rect(opacity=0, cursor="pointer").encode(**box),
    ]


def _describe(
    shown: Attention, layer: int, heads: list[int], query: int | None, count: int = 5
) -> str:
    """Alternative text of a drawing: what it shows, and its strongest connections.

    Args:
        heads: their numbers; [0] if there is one alone, whose number is not known.
    """
    weights = shown.weights[
        layer - 1, [max(head, 1) - 1 for head in heads]
    ]  # (heads, len_q, len_k)
    rows = range(len(shown.queries)) if query is None else [query]
    order = weights[:, list(rows)].flatten().argsort(descending=True)[:count].tolist()
    found, several = [], len(heads) > 1
    for place in order:
        head, rest = divmod(place, len(rows) * len(shown.keys))
        row, key = divmod(rest, len(shown.keys))
        weight = weights[head, rows[row], key]
        words = f"{shown.queries[rows[row]]} to {shown.keys[key]}"
        found.append(f"{words} ({f'head {heads[head]}, ' if several else ''}{weight:.2f})")
    looks = "each word" if query is None else f"the word {shown.queries[query]!r}"
    whom = (
        f"{'heads' if several else 'head'} {', '.join(map(str, heads))}" if heads[0] else "one head"
    )
    where = f" in layer {layer}" if len(shown.weights) > 1 else ""
    return (
        f"Attention of {whom}{where}, from {looks} of "
        f"“{' '.join(shown.queries)}” to the words that it looks at. Strongest: {'; '.join(found)}."
    )


def _check_first(
    shown: Attention, layer: int, heads: list[int], query: int | None, full: float, threshold: float
) -> None:
    """Refuse a first view of layers, heads or words that are not there, or of no strength."""
    layers, h = shown.weights.shape[:2]
    if not 1 <= layer <= layers:
        raise ValueError(f"expected a layer from 1 to {layers}, got {layer}")
    if not heads or not set(heads) <= set(range(1, h + 1)):
        raise ValueError(f"expected one head or more, each from 1 to {h}, got {heads}")
    if query is not None and not 0 <= query < len(shown.queries):
        raise ValueError(f"expected a query from 0 to {len(shown.queries) - 1}, got {query}")
    if not 0 < full <= 1:
        raise ValueError(f"expected full colour from a weight above 0 and up to 1, got {full}")
    if not 0 <= threshold <= 0.5:
        raise ValueError(f"expected a threshold from 0 to 0.5, got {threshold}")


def attention_lines(
    weights: Tensor,
    queries: list[str],
    keys: list[str] | None = None,
    *,
    layer: int | None = None,
    heads: list[int] | None = None,
    query: int | None = None,
    full: float = 1.0,
    threshold: float = 0.02,
) -> alt.LayerChart:
    """Draw attention as the paper's Figures 3 to 5 do, for a reader who may touch it.

    Args:
        weights: (layers, h, len_q, len_k), or (h, len_q, len_k) of one layer.
        queries, keys: the words; without keys, those of the queries.
        layer, heads: what is shown at first, counted from 1; the last layer, all heads.
        query: position of the word that is isolated at first, counted from 0.
        full: the weight from which on a line has its full colour, at first.
        threshold: weaker connections are not drawn, at first.

    Returns: a chart; there are eight colours, so heads 1 and 9 of a model with more share one.

    Raises: ValueError if the numbers of words are not those of the weights, or if layer, heads or
        query name what is not there, or full or threshold is no weight.

    Source: Figures 3, 4 and 5.
    """
    weights = weights.unsqueeze(0) if weights.dim() == 3 else weights
    shown = Attention(weights, readable_words(queries), readable_words(keys or queries))
    layers, h = weights.shape[:2]
    layer = layers if layer is None else layer
    heads = list(range(1, h + 1)) if heads is None else heads
    _check_first(shown, layer, heads, query, full, threshold)
    controls = _controls(layers, shown.queries, layer, heads, query, full, threshold)
    frame = _Frame(shown.queries, shown.keys, h)
    seen = _connections(controls["heads"], shown.queries, shown.keys)
    cells, lines = _marks(seen, frame)
    shade, upper, touch = _words(shown.queries, "from", frame)
    shade_below, lower, touch_below = _words(shown.keys, "to", frame)
    chart = alt.layer(
        shade, shade_below, cells, lines.add_params(controls["heads"]), upper, lower,
        touch.add_params(controls["kept"], controls["above"]),
        touch_below.add_params(controls["below"]),
        data=alt.Data(values=_weight_rows(weights)),
    )  # fmt: skip
    width = "container" if frame.columns <= 36 else 18 * frame.columns
    return chart.add_params(
        *(controls[name] for name in ("layer", "threshold", "full"))
    ).properties(
        width=width, height=frame.height, description=_describe(shown, layer, heads, query)
    )


def heat_map(
    weights: Tensor, queries: list[str], keys: list[str] | None = None, full: float = 1.0
) -> alt.Chart:
    """Weights of one head (len_q, len_k) as a table of colours.

    Args:
        queries, keys: the words; without keys, those of the queries.
        full: the weight from which on a cell has its full colour.

    Raises: ValueError if the numbers of words are not those of the weights.
    """
    shown = Attention(weights[None, None], readable_words(queries), readable_words(keys or queries))
    rows = [
        {
            "place": f"{q:03d} {query}",
            "at": f"{k:03d} {key}",  # the numbers keep the order
            "from": query,
            "to": key,
            "weight": round(weight, 4),
        }
        for q, query in enumerate(shown.queries)
        for k, (key, weight) in enumerate(zip(shown.keys, weights[q].tolist(), strict=True))
    ]
    word: dict[str, Any] = {"labelExpr": "slice(datum.label, 4)", "title": None}
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_rect()
        .encode(
            x=alt.X("at:O", axis=alt.Axis(**word, labelAngle=-90, orient="top")),
            y=alt.Y("place:O", axis=alt.Axis(**word)),
            opacity=_opacity("weight", full),
            tooltip=["from:N", "to:N", alt.Tooltip("weight:Q", format=".3f")],
        )
        .properties(description=_describe(shown, 1, [0], None))
    )  # fmt: skip


def attention_overview(
    attention: Attention, full: float = 1.0, threshold: float = 0.02
) -> alt.Chart:
    """A small heat map for every layer and head.

    Args:
        full: the weight from which on a cell has its full colour.
        threshold: weaker connections stay white.
    """
    n = max(len(attention.queries), len(attention.keys))
    sharp = attention.weights.amax(dim=-1).mean(dim=-1)  # (layers, h), the mean largest weight
    layer, head = divmod(int(sharp.argmax()), sharp.size(1))
    told = (
        f"Attention of {sharp.size(1)} heads in each of {sharp.size(0)} layers, a small map each, "
        f"for “{' '.join(attention.queries)}”. Sharpest: head {head + 1} of layer {layer + 1}, "
        f"whose words give {sharp.max():.2f} to one word in the mean."
    )
    across: dict[str, Any] = {"scale": alt.Scale(domain=[0, n], nice=False), "axis": None}
    down: dict[str, Any] = {"scale": alt.Scale(domain=[n, 0], nice=False), "axis": None}
    name = lambda words, field: f"{json.dumps(words)}[datum.{field}]"
    return (
        alt.Chart(alt.Data(values=_weight_rows(attention.weights)))
        .transform_flatten(["weight"])
        .transform_window(key="row_number()", groupby=["layer", "head", "query"])
        .transform_calculate(key="datum.key - 1", weight="datum.weight / 10000")
        .transform_filter(f"datum.weight >= {threshold}")
        .transform_calculate(
            right="datum.key + 1", down="datum.query + 1",
            from_word=name(attention.queries, "query"), to_word=name(attention.keys, "key"),
        )
        .mark_rect()
        .encode(
            x=alt.X("key:Q", **across), x2="right", y=alt.Y("query:Q", **down), y2="down",
            opacity=_opacity("weight", full),
            row=alt.Row("layer:O", spacing=4, title="layer"),
            column=alt.Column("head:O", spacing=4, title="head"),
            tooltip=[
                "layer:O", "head:O", alt.Tooltip("from_word:N", title="from"),
                alt.Tooltip("to_word:N", title="to"), alt.Tooltip("weight:Q", format=".2f"),
            ],
        )
        .properties(width=70, height=70, description=told)
    )  # fmt: skip


class ChartPicker:
    """Charts of which one is shown at a time, the one that the reader picks.

    Args:
        charts: by name.   label: what a name is.
    """

    def __init__(self, charts: dict[str, alt.LayerChart], label: str = "Sentence") -> None:
        self.charts, self.label = charts, label

    def _ipython_display_(self) -> None:
        from IPython.display import display

        try:
            import ipywidgets
        except ImportError:  # no controls: all of them, one below the other
            for name, chart in self.charts.items():
                display(name, chart)
            return
        names = ipywidgets.Dropdown(options=list(self.charts), description=self.label)
        ipywidgets.interact(lambda name: display(self.charts[name]), name=names)
