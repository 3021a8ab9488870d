"""What a query attends to: weights as shaded cells with their numbers."""

from __future__ import annotations

import altair as alt
import pandas as pd
from torch import Tensor


def draw_attended(
    rows: dict[str, Tensor], names: list[str], of: str, title: str | alt.TitleParams
) -> alt.LayerChart:
    """Heat map of weights, one row for each of `rows`, with a column for each of `names`.

    `of` names whose weights they are, in the words of the description.
    """
    cells = pd.DataFrame(
        {"row": row, "column": column, "weight": round(weight, 3)}
        for row, weights in rows.items()
        for column, weight in enumerate(weights.tolist())
    )
    where = f"width > 480 || {max(map(len, names))} < 3"  # the names have room side by side
    labels = alt.Axis(
        orient="top",
        title=None,
        labelExpr=f"{names!r}[datum.value]",
        labelAngle=alt.ExprRef(f"{where} ? 0 : -90"),
        labelAlign=alt.ExprRef(f"{where} ? 'center' : 'left'"),
        labelBaseline=alt.ExprRef(f"{where} ? 'bottom' : 'middle'"),
        ticks=False,
        domain=False,
    )
    side = alt.Axis(ticks=False, domain=False, labelPadding=6)
    base = alt.Chart(cells).encode(
        x=alt.X("column:O", axis=labels), y=alt.Y("row:N", sort=None, title=None, axis=side)
    )
    # Numbers stay legible on the darkest.
    most = 2 * cells["weight"].max()
    shade = alt.Color("weight:Q", scale=alt.Scale(domain=[0, most]), legend=None)
    told = "; ".join(
        f"{row}: most to {names[w.argmax()]}, {w.max():.2f}" for row, w in rows.items()
    )
    return alt.layer(
        base.mark_rect().encode(shade),
        base.mark_text(fontSize=14).encode(text=alt.Text("weight:Q", format=".2f")),
    ).properties(
        title=title,
        width="container",
        height=alt.Step(30),
        description=f"Heat map of the weights that {of}, in {len(rows)} rows. {told}.",
    )
