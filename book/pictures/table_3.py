"""The rows of Table 3, for section 6.2."""

import altair as alt
import numpy as np
import pandas as pd

from book import charts

GROUPS = {
    "all": "all rows", "A": "(A) heads", "B": "(B) width of keys", "C": "(C) size",
    "D": "(D) dropout, smoothing", "E": "(E) learned positions",
}  # fmt: skip
IN_WORDS = {
    "h": "{} heads", "d_k": "keys of {}", "N": "{} layers", "d_model": "width {}",
    "d_ff": "inner width {}", "dropout": "dropout {}", "label_smoothing": "smoothing {}",
    "positions": "{} positions",
}  # fmt: skip
RELATIVE = {
    "B: d_k = 16": "key width × 1/4", "B: d_k = 32": "key width × 1/2", "C: N = 2": "layers × 1/3",
    "C: N = 4": "layers × 2/3", "C: N = 8": "layers × 4/3", "C: d_model = 256": "width × 1/2",
    "C: d_model = 1024": "width × 2", "C: d_ff = 1024": "inner width × 1/2",
    "C: d_ff = 4096": "inner width × 2",
}  # fmt: skip
PLACES = {  # of a name, from its point, in pixels; to the left it ends there
    "base": (-13, -9), "A: h = 1": (-9, 1), "A: h = 4": (-9, 0), "A: h = 16": (12, -8),
    "B: d_k = 16": (-9, 4), "C: N = 4": (-9, 8), "C: d_ff = 1024": (-9, 2),
    "C: d_model = 256": (7, 10), "D: dropout = 0.0": (20, -13), "D: dropout = 0.2": (-1, -16),
    "D: label_smoothing = 0.2": (-9, -1),
}  # fmt: skip
# Two rows have the same point, without room for their names beside it; a line leads there.
APART = {"A: h = 32": (4.97, 24.77), "B: d_k = 32": (4.97, 24.65)}
TO_LEFT = ("D: dropout = 0.0",)  # names that end at their point, although they begin above it
KINDS = {"better on both": 0, "worse on both": 1, "mixed": 6}  # with their colors


def short(row: str) -> str:
    """The name of a row in words, such as "C: 2 layers"."""
    group, _, change = row.partition(": ")
    size, _, value = change.partition(" = ")
    label = f"{group}: {IN_WORDS[size].format(value)}" if value else row
    words = label.replace(": 1 heads", ": 1 head").rsplit(" ", 1)
    return "\u00a0".join(words)  # the end does not break


def relative(row: str) -> str:
    """The name of a row with sizes relative to base's, which small models share: "layers × 1/3"."""
    return RELATIVE.get(row) or short(row).rpartition(": ")[2]


def kind_of(rows: pd.DataFrame) -> np.ndarray:
    """Whether perplexity and BLEU of each row are both better than base's, or both worse."""
    base = rows.set_index("row").loc["base"]
    gains = np.sign([base["perplexity"] - rows["perplexity"], rows["BLEU"] - base["BLEU"]]).sum(0)
    better, worse, mixed = KINDS
    return np.select([gains == 2, gains == -2], [better, worse], mixed)


def draw_table_3(rows: pd.DataFrame) -> alt.LayerChart:
    """BLEU against perplexity, with lines through base, of rows with the columns row, group,
    perplexity and BLEU.
    """
    right, down = zip(*(PLACES.get(row, (9, 0)) for row in rows["row"]), strict=True)
    name = rows["row"].map(short).str.split(r":\s", regex=True).str[-1]
    rows = rows.assign(name=name, kind=kind_of(rows), right=right, down=down)
    rows[["x", "y"]] = [APART.get(row, (None, None)) for row in rows["row"]]
    rows["lead"], rows["end"] = 24.83, rows["row"].isin(TO_LEFT)  # one line to two names
    better = rows.loc[rows["kind"] == "better on both", "name"]
    chosen = "group == 'all' || datum.group == group || datum.group == 'base'"
    across = (
        alt.X("perplexity:Q")
        .title("perplexity per token, better →")
        .scale(domain=[6.3, 3.8], nice=False)
        .axis(tickCount=5, grid=False)
    )
    up = (
        alt.Y("BLEU:Q")
        .title("BLEU, better ↑")
        .scale(domain=[23.55, 26.7], nice=False)
        .axis(tickCount=6, grid=False, **charts.UPRIGHT)
    )
    colors = alt.Scale(domain=[*KINDS], range=[charts.PALETTE[i] for i in KINDS.values()])
    paint = lambda channel: channel("kind:N", legend=None, scale=colors)
    points = alt.Chart(rows).encode(across, up)
    named = points.transform_filter(chosen)
    near, apart = (named.transform_filter(f"{no}isValid(datum.x)") for no in ("!", ""))
    line = alt.Chart(rows[rows["row"] == "base"]).mark_rule(color=charts.PALETTE[6], opacity=0.5)
    marks = points.mark_point(strokeWidth=2).encode(
        paint(alt.Fill),
        paint(alt.Stroke),
        # Base is a ring, so that it does not hide 16 heads.
        fillOpacity=alt.condition("datum.row == 'base'", alt.value(0), alt.value(1)),
        size=alt.when("datum.row == 'base'").then(alt.value(220)).otherwise(alt.value(60)),
        opacity=alt.condition(chosen, alt.value(1), alt.value(0.12)),
        tooltip=["row", "perplexity", "BLEU"],
    )
    beside = {"dx": "datum.right", "dy": "datum.down"}
    beside["align"] = "datum.right < 0 || datum.end ? 'right' : 'left'"
    beside["fontWeight"] = "datum.row == 'base' ? 600 : 400"
    beside = {name: alt.ExprRef(expression) for name, expression in beside.items()}
    size = alt.ExprRef("width > 500 ? 14 : 13")
    corners = pd.DataFrame(
        {"kind": [*KINDS], "perplexity": [4.91, 4.93, 4.91], "BLEU": [26.7, 24, 24]}
    )
    corner = lambda row, align, dx, dy: (
        alt.Chart(corners.iloc[[row]])
        .mark_text(align=align, dx=dx, dy=dy, fontSize=14, fontWeight=600)
        .encode(across, up, paint(alt.Color), text="kind")
    )
    return alt.layer(
        line.encode(across),
        line.encode(up),
        corner(0, "left", 8, 14),
        corner(1, "right", -8, -9),
        corner(2, "left", 8, -9),
        marks,
        apart.mark_rule().encode(paint(alt.Color), y2="lead:Q"),
        apart.mark_text(align="right", fontSize=size).encode(
            paint(alt.Color), x="x:Q", y="y:Q", text="name:N"
        ),
        near.mark_text(**beside, fontSize=size).encode(paint(alt.Color), text="name:N"),
        usermeta={"columns": 2},
        width="container",
        height=400,
        title=f"Only {len(better)} of {len(rows) - 1} changes improve both scores",
        description="BLEU against perplexity for the twenty rows of Table 3, from the small models "
        "at the lower left to the big model at the upper right. Better than base on both are "
        + ", ".join(better)
        + ".",
    ).add_params(charts.menu("group", "all", [*GROUPS], "Rows", labels=[*GROUPS.values()]))
