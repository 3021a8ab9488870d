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
PLACES = {  # of a name, from its point, in pixels; to the left, it ends there
    "base": (13, 0), "big": (10, 0), "A: h = 1": (-9, 3), "A: h = 4": (-9, -3),
    "A: h = 16": (-13, -5), "A: h = 32": (-9, 5), "B: d_k = 16": (-9, 2), "C: N = 4": (-9, 4),
    "C: d_ff = 1024": (-9, -4), "C: d_model = 1024": (7, 10), "C: d_ff = 4096": (9, 0),
    "C: d_model = 256": (7, 10), "D: dropout = 0.0": (9, -3),
    "D: label_smoothing = 0.2": (-9, 0), "E: positions = learned": (9, 5),
}  # fmt: skip


def short(row: str) -> str:
    """The name of a row in words, such as "C: 2 layers"."""
    group, _, change = row.partition(": ")
    size, _, value = change.partition(" = ")
    label = f"{group}: {IN_WORDS[size].format(value)}" if value else row
    words = label.replace(": 1 heads", ": 1 head").rsplit(" ", 1)
    return "\u00a0".join(words)  # the end does not break


def spread(rows: pd.DataFrame, seeds: pd.DataFrame) -> pd.DataFrame:
    """The lowest and highest scores of base, if it varied as these runs of another base do.

    Perplexity varies in proportion, BLEU by a difference.
    """
    base, nats = rows.set_index("row").loc["base"], np.log(seeds["perplexity"])
    perplexity = base["perplexity"] * np.exp(nats - nats.mean())
    bleu = base["BLEU"] + seeds["BLEU"] - seeds["BLEU"].mean()
    return pd.DataFrame({"perplexity": perplexity, "BLEU": bleu}).agg(["min", "max"])


def within(rows: pd.DataFrame, noise: pd.DataFrame) -> pd.Series:
    """Which rows have both scores inside the spread."""
    return rows["perplexity"].between(*noise["perplexity"]) & rows["BLEU"].between(*noise["BLEU"])


def draw_table_3(rows: pd.DataFrame, noise: pd.DataFrame) -> alt.LayerChart:
    """BLEU against perplexity, with the rows that base's spread covers in gray.

    rows: with the columns row, group, perplexity and BLEU
    noise: what `spread` returns
    """
    right, down = zip(*(PLACES.get(row, (9, 0)) for row in rows["row"]), strict=True)
    name = rows["row"].map(short).str.split(r":\s", regex=True).str[-1]
    inside = within(rows, noise)
    base = rows.set_index("row").loc["base"]
    gains = np.sign([base["perplexity"] - rows["perplexity"], rows["BLEU"] - base["BLEU"]]).sum(0)
    kind = np.select([inside, gains > 0, gains < 0], ["inside", "better", "worse"], "split")
    rows = rows.assign(name=name, kind=kind, right=right, down=down)
    chosen = "group == 'all' || datum.group == group || datum.group == 'base'"
    across = lambda field: (
        alt.X(f"{field}:Q")
        .title("perplexity per piece, better →")
        .scale(domain=[6.3, 3.85], nice=False)
        .axis(tickCount=5, grid=False, titleAnchor="end")
    )
    up = lambda field: (
        alt.Y(f"{field}:Q")
        .title("BLEU, better ↑")
        .scale(domain=[23.4, 26.7], nice=False)
        .axis(tickCount=6, grid=False, **charts.UPRIGHT)
    )
    points = alt.Chart(rows).encode(across("perplexity"), up("BLEU"))
    (left, low), (right, high) = noise[["perplexity", "BLEU"]].to_numpy().tolist()
    box = pd.DataFrame([{"left": left, "right": right, "low": low, "high": high}])
    box = alt.Chart(box).encode(up("low"), y2="high")
    kinds = ["better", "inside", "split", "worse"]
    paint = lambda *colors: alt.Scale(domain=kinds, range=[charts.PALETTE[i] for i in colors])
    marks = points.mark_point(strokeWidth=2).encode(
        alt.Fill("kind:N", legend=None, scale=paint(0, 6, 1, 1)),
        alt.Stroke("kind:N", legend=None, scale=paint(0, 6, 0, 1)),
        # Base is a ring, so that it does not hide 16 heads.
        fillOpacity=alt.condition("datum.row == 'base'", alt.value(0), alt.value(1)),
        size=alt.condition("datum.row == 'base'", alt.value(220), alt.value(60)),
        opacity=alt.condition(chosen, alt.value(1), alt.value(0.12)),
        tooltip=["row", "perplexity", "BLEU"],
    )
    named = "group == 'all' ? datum.kind != 'inside' || datum.row == 'base' : "
    named += chosen.split(" || ", 1)[1]
    beside = {"dx": "datum.right", "dy": "datum.down"}
    beside["align"] = "datum.right < 0 ? 'right' : 'left'"
    beside = {name: alt.ExprRef(expression) for name, expression in beside.items()}
    hidden = rows.query("kind == 'inside' and row != 'base'")["name"].tolist()
    below = lambda dy, text, **font: box.mark_text(
        align="left", baseline="top", dx=2, dy=dy, text=text, **font
    ).encode(across("right"), opacity=alt.condition("group == 'all'", alt.value(1), alt.value(0)))
    return alt.layer(
        box.mark_rect(color=charts.PALETTE[-1], opacity=0.3).encode(across("left"), x2="right"),
        below(8, f"{len(hidden)} rows", fontSize=16, fontWeight=600),
        below(30, hidden, fontSize=12),
        marks,
        points.transform_filter(named)
        .mark_text(**beside, fontSize=12, fontWeight=alt.ExprRef("datum.row == 'base' ? 600 : 400"))
        .encode(text="name:N"),
        usermeta={"columns": 2},
        width="container",
        height=380,
        title=alt.Title(
            f"{len(hidden)} of {len(rows) - 1} differences from base may be chance",
            subtitle="Blue: better than base. Orange: worse. Box: the range of three runs of our "
            "small base, around the paper’s base",
        ),
        description="BLEU against perplexity for the twenty rows of Table 3, from the small models "
        "at the lower left to the big model at the upper right. The box around base is as wide "
        "and high as the range of three seeds of our small base; inside it are "
        + ", ".join(hidden)
        + ".",
    ).add_params(charts.menu("group", "all", [*GROUPS], "Rows", labels=[*GROUPS.values()]))
