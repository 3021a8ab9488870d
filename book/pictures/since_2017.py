"""Losses of small language models, for the pages on the changes since 2017."""

import altair as alt
import numpy as np
import pandas as pd

from annotated.machinery.files import resource_path
from book import charts


def small_runs(text: str = "sentences") -> pd.DataFrame:
    """The stored runs on one text, "sentences" or "running"; rows without a text read sentences."""
    files = sorted(resource_path("results").glob("since-2017*.csv"))
    runs = pd.concat([pd.read_csv(file, dtype={"variant": str}) for file in files])
    texts = runs.get("text", pd.Series(index=runs.index, dtype=str)).fillna("sentences")
    return runs[texts == text]


VERDICTS = {
    "better": charts.PALETTE[0],
    "undecided": charts.PALETTE[-1],
    "worse": charts.PALETTE[1],
}
ROOM = 250  # for names, in pixels


def draw_equals(
    runs: pd.DataFrame, base: str, name: str, others: list[str] | None = None
) -> tuple[alt.LayerChart, float]:
    """The losses of two variants as they read, and the share of the text that `name` needs.

    runs: full runs of both, a curve for each seed.   name: the one that learns faster
    others: variants that the reader may select in its place

    Returns: the chart, and the share after which the mean loss of `name` is what `base` ends with.
    """
    names = [base, name, *(others or [])]
    points = pd.DataFrame(
        [
            {"model": run.variant, "seed": run.seed, "tokens": int(at) / 1e6, "loss": float(loss)}
            for run in runs.itertuples()
            if run.variant in names
            for at, loss in (point.split(":") for point in run.curve.split())
        ]
    )
    mean = points.groupby(["model", "tokens"])["loss"].mean()
    goal, last = mean[base].iloc[-1], points["tokens"].max()
    early = {
        who: float(np.interp(-goal, -mean[who], mean[who].index))
        for who in names[1:]
        if mean[who].min() <= goal
    }
    both = alt.Color("model", legend=None).scale(
        domain=[*names[1:], base],
        range=[charts.PALETTE[0]] * len(names[1:]) + [charts.PALETTE[-1]],
    )
    tooltip = ["model", "seed", *(alt.Tooltip(what, format=".2f") for what in ("tokens", "loss"))]
    reached = pd.DataFrame(
        [
            {"model": who, "tokens": at, "loss": goal, "text": f"{at / last:.0%}", "end": last}
            for who, at in (*early.items(), (base, last))
        ]
    )
    ends = mean.reset_index().query("tokens == @last")
    bottom, top = points["loss"].min() - 0.15, points["loss"].max() + 0.05  # of all variants
    across = alt.X("tokens", title="tokens read, in millions").axis(values=[0, 0.5, 1, 1.5])
    room = alt.ExprRef("width < 400 ? 2.15 : 1.75") if others else 1.75  # for names
    across = across.scale(domain=[0, room], nice=False)
    up = alt.Y("loss", title="loss (nats per token), better ↓")
    up = up.scale(domain=[bottom, top], nice=False, zero=False)
    up = up.axis(tickCount=5, **charts.UPRIGHT)
    shown = f"datum.model == '{base}' || datum.model == chosen" if others else "true"
    of = lambda rows: alt.Chart(rows).transform_filter(shown).encode(across, up, both)
    marks = of(reached)
    label = {"fontSize": 14, "fontWeight": 600}
    chart = alt.layer(
        marks.mark_rule(strokeDash=[4, 4]).encode(x2="end", color=alt.value(charts.PALETTE[-1])),
        of(points).mark_line().encode(detail="seed", tooltip=tooltip),
        marks.mark_point(filled=True, size=90, opacity=1),
        *(  # apart, even if the two are close
            rows.transform_filter(f"datum.model {which} '{base}'")
            .mark_text(align=align, dx=dx, dy=dy, **label)
            .encode(text=text)
            for rows, text, align, which, dx, dy in (
                (marks, "text", "right", "!=", -4, 15), (marks, "text", "right", "==", 4, -19),
                (of(ends), "model", "left", "!=", 8, 8), (of(ends), "model", "left", "==", 8, -8),
            )
        ),
    )  # fmt: skip
    if others:
        named = lambda other: (
            other.replace(", ", " with ") if name in other else f"2017 with {other}"
        )
        labels = [name, *map(named, others)]
        menu = charts.menu("chosen", name, names[1:], "Compare 2017 with", labels=labels)
        chart = chart.add_params(menu)
    return chart.properties(width="container", height=260), early[name] / last


def draw_differences(rows: pd.DataFrame, title: str) -> alt.LayerChart:
    """Differences of the loss by change, and the interval of their mean.

    rows: in order, with the columns row, mean, half (of the interval's width), verdict and text,
        the heading that the row is below
    """
    rows = rows.assign(change=rows["row"])
    groups = {text: list(of["row"]) for text, of in rows.groupby("text", sort=False)}
    by_row = alt.Chart(rows.assign(row=rows["text"] + "|" + rows["row"])).encode(
        charts.grouped(groups, ROOM),
        alt.Color("verdict", legend=None).scale(domain=[*VERDICTS], range=[*VERDICTS.values()]),
        tooltip=["change", alt.Tooltip("mean", format="+.3f"), "verdict"],
    )
    across = alt.X("mean", title="change in loss (nats), better ←").scale(
        domain=[-0.12, 0.02], range=[0, alt.ExprRef("width - 60")], nice=False
    )
    ends = by_row.transform_calculate(low="datum.mean - datum.half", high="datum.mean + datum.half")
    gray, end = alt.value(charts.PALETTE[-1]), alt.value(alt.ExprRef("width - 60"))
    return alt.layer(
        by_row.mark_rule(opacity=0.2).encode(color=gray, x=alt.value(0), x2=end),
        alt.Chart(pd.DataFrame({"x": [0]})).mark_rule(strokeDash=[4, 4]).encode(x="x:Q"),
        ends.mark_rule(strokeWidth=2).encode(alt.X("low:Q"), x2="high:Q"),
        by_row.mark_point(filled=True, size=80, opacity=1).encode(
            across.axis(
                orient="top",
                offset=12,
                titleAnchor="start",
                domain=False,
                ticks=False,
                grid=False,
                values=[-0.1, -0.05, 0],
                format="~f",
            )
        ),
        by_row.mark_text(align="right", fontSize=14, fontWeight=600).encode(
            x=alt.value(alt.ExprRef("width")), text=alt.Text("mean:Q", format="+.3f")
        ),
        title=alt.Title(
            title,
            subtitle="Each alone, with 95% intervals. Gray: may be chance",
        ),
        usermeta={"above": 40},
        width="container",
        height=alt.Step(28),
        description="Difference of the loss from the model of 2017, by change, "
        + "; ".join(
            f"{text}: " + "; ".join(f"{row.change} {row.mean:+.3f}" for row in of.itertuples())
            for text, of in rows.groupby("text", sort=False)
        ),
    )
