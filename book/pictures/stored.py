"""What attention stores with and without its weights, drawn as areas."""

import altair as alt
import pandas as pd

from book import charts


def draw_stored(memory: pd.DataFrame) -> alt.LayerChart:
    """A square of n × n numbers and a column of n, for the n that the reader selects.

    memory: the kB of each number of tokens n, in columns `weights` and `kernel`
    """
    most = int(memory.index.max())
    told = lambda kB: f"{kB:,.0f} kB" if kB >= 10 else f"{kB:.2g} kB"
    # The words are beside each shape, and on a phone above it.
    sizes = {
        "side": "width > 500 ? 300 : 0.67 * width",
        "start": "width > 500 ? side + 215 : side + 22",
        "top": "width > 500 ? 0 : 72",
    }
    kinds = {
        "weights": ("all weights", "{0} × {0} numbers", charts.PALETTE[1]),
        "kernel": ("fused kernel", "{0} numbers", charts.PALETTE[0]),
    }
    rows = pd.DataFrame(
        (n, kind, name, told(kB), count.format(f"{n:,}"))
        for kind, (name, count, _) in kinds.items()
        for n, kB in memory[kind].items()
    ).set_axis(["tokens", "kind", "name", "size", "count"], axis=1)

    x, y = alt.X("x:Q", scale=None, axis=None), alt.Y("y:Q", scale=None, axis=None)
    shades = [shade for *_, shade in kinds.values()]
    color = alt.Color("kind:N").legend(None).scale(domain=list(kinds), range=shades)
    each = alt.Chart(rows).transform_filter("datum.tokens == n")
    each = each.transform_calculate(
        x="datum.kind == 'weights' ? 0 : start",
        long=f"side * n / {most}",
        # A number is narrower than a pixel; its column is drawn with two.
        x2=f"datum.kind == 'weights' ? datum.long : start + max(2, side / {most})",
        y="top",
        y2="top + datum.long",
        beside="width > 500 ? 16 + (datum.kind == 'weights' ? side : datum.x2) : datum.x",
    )
    outline = alt.Chart(pd.DataFrame([{}])).transform_filter(f"n < {most}")
    outline = outline.transform_calculate(x="0", y="top", x2="side", y2="top + side")
    texts = [
        each.transform_calculate(x="datum.beside", y=f"{at}").mark_text(
            align="left", baseline="middle", **style
        )
        for at, style in (
            (8, {"fontSize": 14, "fontWeight": 600}),
            (31, {"fontSize": 20, "fontWeight": 700}),
            (54, {"fontSize": 14}),
        )
    ]
    return alt.layer(
        outline.mark_rect(fillOpacity=0, stroke="#9AA0A6", strokeDash=[3, 3]).encode(
            x, y, x2="x2", y2="y2"
        ),
        each.mark_rect(opacity=1).encode(x, y, color, x2="x2", y2="y2"),
        texts[0].encode(x, y, color, text="name:N"),
        texts[1].encode(x, y, color, text="size:N"),
        texts[2].encode(x, y, text="count:N"),
        title=alt.Title(
            alt.expr("'Storing all weights takes ' + format(n, ',') + ' times the memory'"),
            subtitle="What one head stores besides its inputs and outputs, at four bytes a number",
        ),
        description="A square for the weights, and a thin column for what a fused kernel stores; "
        + "; ".join(
            f"{n:,} tokens: {told(row.weights)} and {told(row.kernel)}"
            for n, row in memory.iterrows()
        ),
        width="container",
        height=310,
    ).add_params(
        *(alt.param(name, expr=expr) for name, expr in sizes.items()),
        alt.param(
            "n",
            value=most,
            bind=alt.binding_radio(
                options=[int(n) for n in memory.index],
                labels=[f"{n:,}" for n in memory.index],
                name="Tokens ",
            ),
        ),
    )
