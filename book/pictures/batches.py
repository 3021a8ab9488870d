"""Sentences in boxes and in batches, for section 5.1."""

from html import escape

import altair as alt
import numpy as np
import pandas as pd
from IPython.display import HTML

from book import charts

SIDES = {"English": -1, "German": 1}  # and their directions
MIDDLES = (-46, 46)  # of the two drawings


def boxed(pieces: list[str]) -> str:
    """Pieces in boxes, the joined ones tinted, for a table; lines break only between words."""
    words: list[list[str]] = []
    for piece in pieces:
        if piece[0] == "▁":
            words.append([])
        style = "border: 1px solid #808080a0; border-radius: 3px; padding: 0 0.15em"
        if len(piece) > 1:
            style += f"; background: {charts.PALETTE[0]}38"
        words[-1].append(f'<span style="{style}">{escape(piece)}</span>')
    return " ".join(f'<span style="white-space: nowrap">{" ".join(word)}</span>' for word in words)


def with_boxes(table: pd.DataFrame) -> HTML:
    """A table whose cells have HTML in them, the marks of spaces in them pale."""
    text = table.to_html(escape=False, border=0).replace("▁", '<span style="opacity: 0.5">▁</span>')
    return HTML(text.replace("<th>", '<th style="vertical-align: top">'))


def draw_batches(lengths: np.ndarray, orders: dict[str, list]) -> alt.LayerChart:
    """Two ways to batch the same pairs, with the positions that are filled by padding.

    lengths: (pairs, 2), the tokens of each source and target
    orders: from the name of a way to its batches, which contain rows of `lengths`
    """
    bars, notes, wasted = [], [], []
    for middle, (order, batches) in zip(MIDDLES, orders.items(), strict=True):
        top, positions = 0, 0
        for number, batch in enumerate(batches, start=1):
            widest = lengths[batch].max(axis=0)
            positions += len(batch) * widest.sum()
            around = [len(batch) * widest - lengths[batch].sum(axis=0), widest]
            parts = [("padding", len(batch), *around)]  # behind all bars of the batch
            parts += [("tokens", 1.2, lengths[pair], lengths[pair]) for pair in batch]  # overlap
            for place, (what, high, counts, ends) in enumerate(parts):
                start = top + max(place - 1, 0)
                bottom = min(start + high, top + len(batch))
                row = {"order": order, "batch": number, "top": start, "bottom": bottom}
                sides = zip(SIDES.items(), counts.tolist(), ends.tolist(), strict=True)
                for (side, sign), count, end in sides:
                    row |= {"side": side, "from": middle, "to": middle + sign * end}
                    bars.append({**row, "what": what, "count": count})
            top += len(batch) + 2  # a gap between batches
        wasted.append(f"{1 - lengths.sum() / positions:.0%}")
        notes.append({"from": middle, "told": f"{order}: {wasted[-1]}"})
    names = pd.DataFrame(
        [(middle + 2 * sign, side) for middle in MIDDLES for side, sign in SIDES.items()],
        columns=["from", "side"],
    )

    blue, orange, *_ = charts.PALETTE
    (_, end), (start, _) = (lengths[batches[0]].max(axis=0) for batches in orders.values())
    kinds = [  # beside the first block of either drawing
        alt.Chart(names.head(1))
        .mark_text(text=what, align=align, dx=dx, fontSize=14, color=color)
        .encode(alt.XDatum(int(place)), y=alt.value(y))
        for what, align, dx, color, place, y in (
            ("padding", "left", 6, orange, MIDDLES[0] + end, 14),
            ("tokens", "right", -6, blue, MIDDLES[1] - start, 45),
        )
    ]
    ticks = alt.Axis(
        values=[middle + n for middle in MIDDLES for n in range(-30, 31, 15)],
        labelExpr=f"width < 400 && datum.value % 2 ? '' : abs(abs(datum.value) - {MIDDLES[1]})",
        labelOverlap=False,
        tickCount=10,  # all of them
        grid=False,
    )
    across = (
        alt.X("from:Q").title("length (tokens)").axis(ticks).scale(domain=[-89, 89], nice=False)
    )
    colors = alt.Scale(domain=["tokens", "padding"], range=[blue, orange])
    pale = alt.Scale(domain=["tokens", "padding"], range=[1, 0.35])
    font = alt.ExprRef("width < 400 ? 13 : 14")
    below = alt.Chart(names).encode(across, y=alt.value(-12))
    sides = [
        below.transform_filter(alt.datum.side == side).mark_text(
            text=told, align=align, fontSize=14
        )
        for side, told, align in (
            ("English", "← English", "right"),
            ("German", "German →", "left"),
        )
    ]
    return alt.layer(
        alt.Chart(pd.DataFrame(bars))
        .mark_rect()
        .encode(
            across,
            alt.Y("top:Q").axis(None).scale(domain=[116, 0]),
            alt.Color("what:N").scale(colors).legend(None),
            alt.Opacity("what:N").scale(pale).legend(None),
            x2="to:Q",
            y2="bottom:Q",
            tooltip=["order:N", "batch:Q", "side:N", "what:N", "count:Q"],
        ),
        alt.Chart(pd.DataFrame(notes))
        .mark_text(fontSize=font, fontWeight="bold")
        .encode(across, y=alt.value(-35), text="told:N"),
        *sides,
        *kinds,
        usermeta={"columns": 2},
        title=alt.Title(
            f"Batching by length cuts the padding from {wasted[0]} to {wasted[1]}",
            subtitle="A hundred pairs; each block is a batch",
        ),
        width="container",
        height=348,  # three pixels a pair
        description="A hundred sentence pairs as horizontal bars, stacked into batches, twice. In "
        "random order the batches are wide, and more than a third of their positions are padding. "
        "By similar length the same pairs fill fewer batches, with less than half as much padding.",
    )
