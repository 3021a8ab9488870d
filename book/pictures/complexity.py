"""Table 1 as curves, for section 4."""

import altair as alt
import pandas as pd

from book import charts


def draw_table_1(table: str, **known: int) -> alt.LayerChart:
    """The columns of Table 1 against the length n, one at a time.

    table: an expression of Vega for an entry, by `column`, `datum.layer` and `datum.n`
    known: the values of the other letters in it
    """
    # Curves may coincide, so their dashes differ; the first lies behind.
    kinds = {
        "self-attention": [1, 0],
        "recurrent": [1, 0],
        "convolutional": [10, 10],
        "restricted self-attention": [3, 6],
    }
    columns = {  # what a curve is, and what it shows
        "work": ["Operations of one layer", "Below n = d, self-attention computes less"],
        "waiting": [
            "Operations that have to wait for one another",
            "Only recurrence has to wait at every word",
        ],
        "distance": [
            "Layers or steps from one end to the other",
            "Self-attention joins both ends in one layer",
        ],
    }
    column = alt.param(
        "column", value="work", bind=alt.binding_radio(options=list(columns), name="Compare ")
    )
    fixed = [alt.param(name, value=value) for name, value in known.items()]
    points = pd.DataFrame(
        [(kind, 2 ** (e / 2)) for kind in kinds for e in range(4, 25)], columns=["layer", "n"]
    )
    dashes = alt.StrokeDash(
        "layer:N", legend=None, scale=alt.Scale(domain=list(kinds), range=list(kinds.values()))
    )
    curves = (
        alt.Chart(points)
        .transform_calculate(value=table.replace("\n", " "))
        .encode(
            x=alt.X(
                "n:Q",
                title="length n (words)",
                scale=alt.Scale(type="log", base=2),
                axis=alt.Axis(values=[4**e for e in range(1, 7)]),
            ),
            y=alt.Y(
                "value:Q",
                title=None,
                scale=alt.Scale(type="log"),
                axis=alt.Axis(
                    values=[10**e for e in range(11)],
                    labelExpr="replace(format(datum.value, '~s'), 'G', 'B')",
                ),
            ),
            color=alt.Color(
                "layer:N",
                scale=alt.Scale(
                    domain=list(kinds), range=[charts.LAYERS[kind.split()[0]] for kind in kinds]
                ),
            ).legend(None),
        )
    )
    shown = ["layer", alt.Tooltip("n:Q", format=".0f"), alt.Tooltip("value:Q", format=".3~s")]
    # A line alone would have the tooltip of its first point.
    targets = curves.mark_point(size=200, opacity=0).encode(tooltip=shown)
    # Where each curve is named: above its point, to the left, or below it, to the right.
    above = pd.DataFrame(
        [
            ("work", "convolutional", 256, "convolutional"),
            ("waiting", "recurrent", 128, "recurrent"),
            ("waiting", "self-attention", 4096, "self-attention, convolutional, restricted"),
            ("distance", "recurrent", 256, "recurrent"),
            ("distance", "convolutional", 2048, "convolutional"),
            ("distance", "self-attention", 4096, "self-attention"),
        ],
        columns=["shown", "layer", "n", "name"],
    )
    below = pd.DataFrame(
        [
            ("work", "recurrent", 600, "recurrent"),
            ("work", "self-attention", 181, "self-attention"),
            ("work", "restricted self-attention", 128, "restricted"),
            ("distance", "restricted self-attention", 64, "restricted"),
        ],
        columns=above.columns,
    )
    named = [
        curves.properties(data=places)
        .transform_filter("datum.shown == column")
        .mark_text(aria=False, fontSize=13, **place)
        .encode(text="name:N")
        for places, place in (
            (above, {"align": "right", "dy": -10}),
            (below, {"align": "left", "dx": 7, "dy": 10}),
        )
    ]
    equal = (
        alt.Chart(pd.DataFrame({"what": ["n = d"]}))
        .transform_filter("column == 'work'")
        .transform_calculate(n="d", both="pow(d, 3)")
    )
    rule = equal.mark_rule(strokeDash=[4, 4], color=charts.PALETTE[6]).encode(
        x="n:Q", y="both:Q", y2=alt.value(0)
    )  # from where they meet, up
    unit = alt.Chart(pd.DataFrame([{}])).mark_text(
        align="left", x=0, y=-10, fontSize=13, text=alt.expr(f"{columns}[column][0]")
    )
    return (
        alt.layer(
            curves.mark_line(strokeWidth=3).encode(dashes),
            targets,
            *named,
            rule,
            equal.mark_text(y=13, dx=5, align="left", fontSize=13).encode(x="n:Q", text="what"),
            unit,
        )
        .add_params(column, *fixed)
        .properties(
            title=alt.TitleParams(
                alt.expr(f"{columns}[column][1]"),
                subtitle="Vectors of d = 512 numbers, neighborhoods of k = r = 3.",
                offset=12,
                fontSize=alt.ExprRef("width < 400 ? 13 : 15"),
            ),
            width="container",
            height=300,
            description="The formulas of Table 1 against length, both axes logarithmic, one curve "
            "per kind of layer. Work: self-attention "
            "is steepest and crosses the recurrent layer at n = d. Waiting: only the recurrent "
            "layer grows. Distance: "
            "the recurrent and the restricted layer grow with n, the convolution with its "
            "logarithm, self-attention not at all.",
        )
    )
