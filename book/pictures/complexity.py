"""Table 1 as curves and the work of whole layers as bars, for section 4."""

import altair as alt
import pandas as pd

from book import charts


def draw_table_1(table: str, **known: int) -> alt.LayerChart:
    """The columns of Table 1 against the length n, one at a time.

    table: an expression of Vega for an entry, by `column`, `datum.layer` and `datum.n`
    known: the values of the other letters in it
    """
    # Curves may coincide, so their dashes differ; the first lies behind.
    kinds = {"self-attention": [1, 0], "recurrent": [1, 0], "convolutional": [10, 10]}
    kinds["restricted self-attention"] = [3, 6]
    columns = {  # what a curve is, and what it shows
        "work": [
            "operations, by the formula (log scale)",
            "Below 512 tokens, self-attention beats recurrence",
        ],
        "waiting": [
            "steps that follow one another (log scale)",
            "Only a recurrence has to wait at every token",
        ],
        "distance": [
            "steps from end to end (log scale)",
            "Self-attention always joins both ends in one layer",
        ],
    }
    compare = alt.binding_radio(options=list(columns), name="Compare ")
    points = pd.DataFrame(
        [(kind, 2 ** (e / 2)) for kind in kinds for e in range(6, 25)], columns=["layer", "n"]
    )
    dashes = alt.StrokeDash("layer:N").legend(None)
    dashes = dashes.scale(domain=list(kinds), range=list(kinds.values()))
    # At the end there is room for what a curve is called.
    end = alt.ExprRef("width - (column == 'distance' ? (width < 500 ? 128 : 165) : 116)")
    x = alt.X("n:Q").title("length (tokens, log scale)")
    x = x.scale(type="log", base=2, domain=[8, 4096], range=[0, end], nice=False)
    y = alt.Y("value:Q").title(None)
    least, most = (alt.ExprRef(f"column == 'work' ? {of}") for of in ("1e4 : 0.6", "15e9 : 7000"))
    y = y.scale(type="log", domainMin=least, domainMax=most, nice=False)
    short = "replace(format(datum.value, '~s'), 'G', 'B')"
    short = f"column == 'work' ? {short} : format(datum.value, ',')"
    shades = [charts.LAYERS[kind.split()[0]] for kind in kinds]
    valued = lambda chart: chart.transform_calculate(value=table.replace("\n", " ")).encode(
        x.axis(values=[8, 64, 512, 4096], grid=False),
        y.axis(values=[10**e for e in range(11)], labelExpr=short, minExtent=46),
        alt.Color("layer:N").scale(domain=list(kinds), range=shades).legend(None),
    )
    curves = valued(alt.Chart(points))
    shown = ["layer", alt.Tooltip("n:Q", format=".0f"), alt.Tooltip("value:Q", format=".3~s")]
    last = curves.properties(data=pd.DataFrame({"layer": list(kinds), "n": 4096}))
    together = "column == 'waiting' && datum.layer != 'recurrent'"  # on one line
    last = last.transform_filter(f"!({together}) || datum.layer == 'self-attention'")
    dilated = "column == 'distance' && datum.layer == 'convolutional'"
    # A neighborhood reaches less far than the formula says.
    far = "column == 'distance' && datum.layer == 'restricted self-attention'"
    last = last.transform_calculate(
        said=f"{far} || column == 'work' ? '' : ': ' + format(datum.value, ',.0f')",
        name=f"{together} ? 'all others' : {dilated} ? (width < 500 ? 'dilated conv.' : "
        "'dilated convolution') : datum.layer == 'restricted self-attention' && column == 'work' "
        "? 'restricted to ' + k : split(datum.layer, ' ')[0]",
    )
    ours = "datum.layer == 'self-attention'"
    at_end = {"align": "left", "fontSize": 14, "aria": False}
    equal = alt.Chart(pd.DataFrame([{}])).transform_filter("column == 'work'")
    equal = equal.transform_calculate(n="d", both="pow(d, 3)", what="'equal at ' + d").encode(
        x="n:Q", y="both:Q"
    )
    entry = table.replace("\n", " ")
    of = lambda layer: entry.replace("datum.layer", f"'{layer}'")
    sentence = alt.Chart(pd.DataFrame({"n": [34]})).transform_calculate(
        ours=of("self-attention"), other=of("recurrent")
    )
    sentence = sentence.transform_calculate(
        times="datum.other / datum.ours",
        # Below the curves that would cross it.
        middle="datum.ours * pow(datum.times, column == 'distance' ? 0.14 : width < 500 && "
        "column == 'work' ? 0.3 : 0.5)",
        told="'× ' + format(datum.times, '.0f')",
        average="width < 500 ? '34 on average' : 'average sentence: 34 tokens'",
    ).encode(x="n:Q")
    unit = alt.expr(f"{columns}[column][0]")
    return alt.layer(
        curves.mark_line().encode(
            dashes, strokeWidth=alt.condition(ours, alt.value(5), alt.value(2.5))
        ),
        # A line alone would have the tooltip of its first point.
        curves.mark_point(size=200, opacity=0).encode(tooltip=shown),
        *(
            last.transform_filter(of)
            .transform_calculate(text="datum.name + datum.said")
            .mark_text(dx=8, fontWeight=weight, **at_end)
            .encode(text="text:N")
            for of, weight in ((ours, "bold"), (f"!({ours})", "normal"))
        ),
        equal.mark_circle(size=80, opacity=1),
        equal.mark_text(
            dx=8, dy=14, align="left", fontSize=15, fontWeight="bold", color=shades[0]
        ).encode(text="what:N"),
        sentence.mark_rule(strokeDash=[4, 4], color=charts.PALETTE[6]).encode(
            y="other:Q", y2=alt.value(0)
        ),
        sentence.mark_rule(strokeWidth=3).encode(y="ours:Q", y2="other:Q"),
        sentence.mark_text(
            align="right", dx=-5, fontSize=alt.ExprRef("width < 500 ? 14 : 18"), fontWeight="bold"
        ).encode(y="middle:Q", text="told:N"),
        sentence.mark_text(y=22, dx=5, align="left", fontSize=14).encode(text="average:N"),
        alt.Chart(pd.DataFrame([{}])).mark_text(align="left", x=-46, y=-22, fontSize=14, text=unit),
        title=alt.TitleParams(
            alt.expr(f"{columns}[column][1]"),
            subtitle="Formulas of the paper’s Table 1, for vectors of 512 numbers",
            offset=12,
            fontSize=alt.ExprRef("width < 400 ? 13 : 15"),
        ),
        width="container",
        height=300,
        description="The formulas of Table 1 against length, both axes logarithmic, one curve "
        "per kind of layer. Work: self-attention is steepest. At 34 positions the recurrent layer "
        "has 15 times as much, and at n = d they cross. Waiting: only the recurrent layer grows. "
        "Distance: the recurrent and the restricted layer grow with n, the dilated convolution "
        "with its logarithm, self-attention not at all.",
    ).add_params(
        alt.param("column", value="work", bind=compare),
        *(alt.param(name, value=value) for name, value in known.items()),
    )


def draw_work(d: int, matrices: dict[str, int]) -> alt.LayerChart:
    """What whole layers compute for a token, as bars; in self-attention, the pairs apart.

    matrices: by which each layer multiplies every vector
    """
    kinds = dict(zip(matrices, ["recurrent", "self-attention", "LSTM"], strict=True))
    told = {name: f"{name}, {count} matrices" for name, count in matrices.items()}
    told["self-attention"] += " and all pairs"
    places = [0, 1, 2.4]  # of the rows, with room for what the pairs are called
    rows = pd.DataFrame(
        [
            (place, name, told[name], 2 * count * d**2 / 1e6)
            for place, (name, count) in zip(places, matrices.items(), strict=True)
        ],
        columns=["row", "layer", "told", "fixed"],
    )
    bars = alt.Chart(rows).transform_calculate(
        pairs=f"datum.layer == 'self-attention' ? 4 * tokens * {d} / 1e6 : 0",
        total="datum.pairs + datum.fixed",
        share="datum.pairs / datum.total",
        name="datum.row - 0.42",
        foot="datum.row + 0.42",
        part="'pairs: ' + format(datum.share, '.0%')",
    )
    x = alt.X("total:Q").axis(None).scale(domain=[0, 5.7], nice=False)
    y = alt.Y("row:Q").axis(None).scale(domain=[-0.55, places[-1] + 0.3], reverse=True, nice=False)
    color = alt.Color("layer:N").legend(None)
    color = color.scale(domain=list(kinds), range=[charts.LAYERS[of] for of in kinds.values()])
    shown = ["layer", *(alt.Tooltip(f"{of}:Q", format=".2f") for of in ("pairs", "total"))]
    wide = {"height": 24, "cornerRadiusEnd": 3}
    pairs = bars.transform_filter("datum.pairs > 0")
    label = {"align": "left", "fontSize": 15}
    return alt.layer(
        bars.mark_bar(opacity=0.45, **wide).encode(x, y, color, x2=alt.datum(0), tooltip=shown),
        pairs.mark_bar(height=24)
        .encode(x.title(None), y, color, x2=alt.datum(0), tooltip=shown)
        .transform_calculate(total="datum.pairs"),
        bars.mark_text(dx=8, fontWeight="bold", **label).encode(
            x, y, text=alt.Text("total:Q", format=".1f")
        ),
        bars.mark_text(**label).encode(y=alt.Y("name:Q"), x=alt.value(0), text="told:N"),
        pairs.mark_text(fontWeight="bold", **label).encode(
            x=alt.value(0), y=alt.Y("foot:Q"), color=color, text="part:N"
        ),
        title=alt.TitleParams(
            alt.expr(
                "'At ' + format(tokens, ',') + ' tokens, pairs are ' + "
                f"format(tokens / (tokens + {matrices['self-attention'] * d / 2:g}), '.0%') + "
                "' of self-attention’s work'"
            ),
            subtitle="Millions of arithmetic operations (FLOPs) per token",
        ),
        width="container",
        height=230,
        description="Three bars: the work per token of a plain recurrence, of self-attention and "
        "of an LSTM. The part of self-attention’s bar that belongs to the pairs grows with the "
        "length; the other bars do not change.",
    ).add_params(charts.slider("tokens", 34, 10, 1500, 2, "Length (tokens)"))
