"""What the vectors of the decoder resemble, for section 3."""

from collections.abc import Callable

import altair as alt
import pandas as pd
from torch import Tensor

from book import charts


def draw_stages(
    likely: dict[str, tuple[Tensor, Tensor]], answer: Tensor, piece: Callable[[int], str]
) -> alt.LayerChart:
    """The likeliest piece after each sub-layer and at each position.

    likely: from the name of a stage to the largest probabilities and their ids, (positions, 5)
    answer: (1, positions + 1), the ids of the target
    piece: from an id to its text
    """
    rows = []
    for stage, (values, indices) in likely.items():
        for place, (p, ids) in enumerate(zip(values.tolist(), indices.tolist(), strict=True)):
            came, comes = answer[0, place].item(), answer[0, place + 1].item()
            kind = {comes: "next piece", came: "input piece"}.get(ids[0], "other piece")
            five = ", ".join(f"{piece(i)} {each:.2f}" for i, each in zip(ids, p, strict=True))
            rows.append((stage, place, piece(ids[0]), p[0], kind, five))
    names = ["after", "position", "piece", "probability", "it is", "the five likeliest"]
    rows = pd.DataFrame(rows, columns=names)
    small = alt.ExprRef("width < 280 ? 11 : 12")
    places = list(likely)[::-1]  # from the last; above those of a layer is the layer's name
    titles = {12: "Embedding", 9: "Layer 1", 6: "Layer 2", 3: "Layer 3", 0: "Layer 4"}
    for place, name in titles.items():
        places.insert(place, name)
    label = "isNaN(+datum.label[0]) ? '' : slice(datum.label, 2)"
    after = alt.Y("after").title(None).scale(domain=places)
    after = after.axis(ticks=False, domain=False, labelPadding=6, labelExpr=label)
    read = f"{[piece(i) for i in answer[0, :-1].tolist()]!r}[datum.value]"
    grid = alt.Chart(rows).encode(
        alt.X("position:O")
        .title("input piece")
        .axis(labelAngle=0, labelFontSize=small, labelExpr=read),
        after,
        tooltip=["after", "piece", alt.Tooltip("probability", format=".2f"), "the five likeliest"],
    )
    kinds = ["input piece", "next piece", "other piece"]
    color = alt.Color("it is").scale(domain=kinds, range=[charts.PALETTE[i] for i in (4, 0, 6)])
    color = color.legend(orient="top", symbolType="square", symbolOpacity=0.5, symbolSize=140)
    heads = alt.Chart(pd.DataFrame({"after": [name for name in places if name not in likely]}))
    told = (
        f"{stage}: {' '.join(map(piece, indices[:, 0].tolist()))}"
        for stage, (_, indices) in likely.items()
    )
    return alt.layer(
        grid.mark_rect().encode(
            color.title(None),
            alt.Opacity("probability").legend(None).scale(domain=[0, 1], range=[0.14, 0.5]),
        ),
        heads.mark_text(align="left", dx=2, dy=3, fontSize=12, color=charts.PALETTE[6]).encode(
            after, x=alt.value(0), text="after"
        ),
        grid.mark_text(fontSize=small).encode(text="piece"),
        width="container",
        height=alt.Step(20),
        title=alt.TitleParams(
            "In the second layer, the input gives way to a next word",
            subtitle="Read from the bottom up. The fainter a cell, the less probable its piece.",
        ),
        description="For each sub-layer of the decoder and each position, the piece that the "
        f"vector resembles most: {'; '.join(told)}",
    )
