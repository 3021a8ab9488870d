"""Sentences in boxes and in batches, for section 5.1."""

from html import escape

import altair as alt
import numpy as np
import pandas as pd
from IPython.display import HTML

from book import charts

SIDES = {"English": -1, "German": 1}  # and their directions
MIDDLES = (-46, 46)  # of the two drawings
GAPS = 12  # between batches, together, in heights of a pair
FOOT = 2  # below the last batch, likewise


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


def draw_batches(lengths: np.ndarray, orders: dict[str, dict[int, list]]) -> alt.LayerChart:
    """Two ways to batch the same pairs, with the positions that are filled by padding.

    lengths: (pairs, 2), the tokens of each source and target
    orders: from the name of a way to its batches of each size, which contain rows of `lengths`
    """
    sizes = [*next(iter(orders.values()))]
    bars, pads, notes, wasted, gaps = [], [], [], {}, []
    for size in sizes:
        most = max(len(batches[size]) for batches in orders.values())
        gaps.append(min(4, GAPS // (most - 1)))
        for middle, (order, batches) in zip(MIDDLES, orders.items(), strict=True):
            top, positions = 0, 0
            for number, batch in enumerate(batches[size]):
                widest = lengths[batch].max(axis=0)
                positions += len(batch) * widest.sum()
                empty = len(batch) * widest - lengths[batch].sum(axis=0)
                row = {"order": order, "size": size, "batch": number, "top": top}
                sides = zip(SIDES.items(), empty.tolist(), widest.tolist(), strict=True)
                for (side, sign), count, end in sides:
                    row |= {"side": side, "from": middle, "to": middle + sign * end}
                    pads.append({**row, "pairs": len(batch), "padding": count})
                top += len(batch)
            wasted[order, size] = f"{1 - lengths.sum() / positions:.0%}"
            notes.append({"size": size, "from": middle, "told": f"{order}: {wasted[order, size]}"})
    for middle, (order, batches) in zip(MIDDLES, orders.items(), strict=True):
        numbers = {
            size: [number for number, batch in enumerate(batches[size]) for _ in batch]
            for size in sizes
        }
        for top, pair in enumerate(np.concatenate(batches[sizes[0]])):
            row = {"order": order, "top": top, "numbers": [numbers[size][top] for size in sizes]}
            for (side, sign), count in zip(SIDES.items(), lengths[pair].tolist(), strict=True):
                row |= {"side": side, "from": middle, "to": middle + sign * count}
                bars.append({**row, "tokens": count})
    names = pd.DataFrame(
        [(middle + 2 * sign, side) for middle in MIDDLES for side, sign in SIDES.items()],
        columns=["from", "side"],
    )

    blue, orange, *_ = charts.PALETTE
    at = f"indexof({sizes}, size)"
    chosen = lambda rows: alt.Chart(pd.DataFrame(rows)).transform_filter("datum.size == size")
    kinds = []  # beside the first block of either drawing
    beside = ("tokens", "right", -6, blue, 45), ("padding", "left", 6, orange, 9)
    for column, (what, align, dx, color, y) in enumerate(beside):
        middle, batches = MIDDLES[1 - column], [*orders.values()][1 - column]
        sign = 2 * column - 1
        edges = [
            {"size": size, "from": middle + sign * int(lengths[first].max(axis=0)[column])}
            for size, (first, *_) in batches.items()
        ]
        mark = chosen(edges).mark_text(text=what, align=align, dx=dx, fontSize=14, color=color)
        kinds.append(mark.encode(x="from:Q", y=alt.value(y)))
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
    down = alt.Y("start:Q").axis(None).scale(domain=[len(lengths) + GAPS + FOOT, 0])
    font = alt.ExprRef("width < 400 ? 13 : 14")
    below = alt.Chart(names).encode(across, y=alt.value(-12))
    headings = [
        below.transform_filter(alt.datum.side == side).mark_text(
            text=told, align=align, fontSize=14
        )
        for side, told, align in (
            ("English", "← English", "right"),
            ("German", "German →", "left"),
        )
    ]
    behind = chosen(pads).transform_calculate(
        start=f"datum.top + {gaps}[{at}] * datum.batch", end="datum.start + datum.pairs"
    )
    before = alt.Chart(pd.DataFrame(bars)).transform_calculate(
        start=f"datum.top + {gaps}[{at}] * datum.numbers[{at}]",
        end="datum.start + 1.15",  # the next one overlaps it
    )
    ends = {"x2": "to:Q", "y2": "end:Q"}
    pairs = [[wasted[order, size] for order in orders] for size in sizes]
    title = f"'Batching by length cuts the padding from ' + join({pairs}[{at}], ' to ')"
    return alt.layer(
        behind.mark_rect(color=orange, opacity=0.35).encode(
            across, down, **ends, tooltip=["order:N", "side:N", "pairs:Q", "padding:Q"]
        ),
        before.mark_rect(color=blue, opacity=1).encode(
            across, down, **ends, tooltip=["order:N", "side:N", "tokens:Q"]
        ),
        chosen(notes)
        .mark_text(fontSize=font, fontWeight="bold")
        .encode(across, y=alt.value(-35), text="told:N"),
        *headings,
        *kinds,
        title=alt.Title(
            alt.ExprRef(title),
            subtitle="Each bar is a pair of sentences, each block a batch",
        ),
        width="container",
        height=3 * (len(lengths) + GAPS + FOOT),  # three pixels a pair
        description="Sentence pairs as horizontal bars, stacked into batches, twice. In random "
        "order the batches are wide, and more than a third of their positions are padding. By "
        "similar length the same pairs fill fewer batches, with less than half as much padding. "
        "The size of the batches can be chosen.",
    ).add_params(
        charts.slider("size", 400, sizes[0], sizes[-1], sizes[1] - sizes[0], "Batch size (tokens)")
    )
