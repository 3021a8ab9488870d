"""What turns a unit on and what it adds, for section 3.3."""

import altair as alt
import pandas as pd
import torch
from torch import Tensor

from book import charts

# Where the name of a dot stands: how it is aligned, and how far to the right of the dot.
SIDES = {"right": ("left", 11), "left": ("right", -11)}


def draw_units(
    answers: Tensor, likeness: Tensor, units: list[int], here: int, names: list[str]
) -> alt.LayerChart:
    """Tokens by what they do to a unit and by how much its value is like them; a unit at a time.

    answers: (tokens, units), a unit's number before the ReLU
    likeness: (units, tokens), the cosine of the unit's value and a token
    here: the token for which the units are on
    """
    torch.manual_seed(0)
    some = torch.randperm(len(names))[:150].tolist()  # of those in gray
    rows, titles, counts, labels = [], {}, {}, []
    for unit in units:
        at = lambda i, unit=unit: (answers[i, unit].item(), likeness[unit, i].item())
        most = answers[:, unit].topk(10).indices.tolist()
        near = likeness[unit].topk(10).indices.tolist()
        both = {i for i in most if i in near and answers[i, unit] > 0}
        named = {*most[:2], *(i for i in most[:4] if i in both), here}
        two = [names[i] for i in most[:2]]
        added = [names[i] for i in most[:2] if i in both]
        like = ["like neither", f"like {''.join(added)} alone", "like both"][len(added)]
        titles[str(unit)] = (
            f"Unit {unit} responds most to {' and '.join(two)}, and its value is {like}"
        )
        counts[str(unit)] = f"on: {(answers[:, unit] > 0).sum():,}"
        labels.append(f"{unit}: {', '.join(two)}")

        dots = {i: at(i) for i in sorted({*some, *near, *most, here})}
        sides = {}
        for i in named:
            x, y = at(i)
            beside = [(right - x, abs(up - y)) for right, up in map(at, named)]
            left = any(0 < right < 1.6 and up < 0.06 for right, up in beside)
            sides[i] = "left" if left else "right"
        rows += [
            (unit, names[i], round(x, 2), round(y, 2), i in both, sides.get(i, ""))
            for i, (x, y) in dots.items()
        ]
    fields = ["unit", "piece", "answer", "likeness", "both", "side"]
    x = alt.X("answer:Q").title("number that the unit computes for the token →")
    x = x.scale(domainMin=-7.3, domainMax=alt.ExprRef("width < 400 ? 8.4 : 6.2"), nice=False)
    y = alt.Y("likeness:Q").title("↑ likeness of the token to what the unit adds (cosine)")
    y = y.scale(domain=[-0.3, 0.6], nice=False)
    seen = alt.Chart(pd.DataFrame(rows, columns=fields)).transform_filter("datum.unit == unit")
    seen = seen.encode(x.axis(grid=False), y.axis(**charts.UPRIGHT, format="~g", tickCount=5))
    blue, *_, gray = charts.PALETTE
    both = lambda one, other: alt.condition("datum.both", alt.value(one), alt.value(other))
    told = f"{counts}[unit] + (width < 400 ? '' : ' tokens')"
    zero = alt.Chart(pd.DataFrame([{"answer": 0, "likeness": 0}])).encode(x)
    return alt.layer(
        zero.mark_rect(color=blue, opacity=0.07, clip=True).encode(
            y, x2=alt.datum(9), y2=alt.datum(0.6)
        ),
        zero.mark_rule(color=gray),
        zero.mark_text(align="right", dx=-8, y=12, fontSize=14, text="off"),
        zero.mark_text(align="left", dx=8, y=12, fontSize=14, text=alt.expr(told)),
        zero.mark_text(
            align="right",
            dx=-8,
            y=12,
            fontSize=14,
            color=blue,
            text=alt.expr("width < 400 ? '' : 'on, and like the value'"),
        ).encode(x=alt.value(alt.ExprRef("width"))),
        seen.mark_circle().encode(
            color=both(blue, gray),
            opacity=alt.condition("datum.side", alt.value(1), alt.value(0.35)),
            size=both(130, 30),
            tooltip=["piece", "answer", "likeness"],
        ),
        *(
            seen.transform_filter(f"datum.side == '{side}'")
            .mark_text(align=align, dx=dx, fontSize=14, fontWeight=600)
            .encode(color=both(blue, gray), text="piece")
            for side, (align, dx) in SIDES.items()
        ),
        title=alt.TitleParams(
            alt.expr(f"{titles}[unit]"),
            subtitle="Each dot: a token put in the place of “bicycle” (a sample)",
        ),
        width="container",
        height=270,
        description="Tokens of the vocabulary, for one unit at a time: to the right, those that "
        "turn it on when they replace bicycle, and above, those that are like what it adds. For "
        "the strongest unit, bike and bicycle stand alone at the upper right, far from all others.",
    ).add_params(charts.menu("unit", units[0], units, "Unit", labels=labels))
