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


def draw_lengths(texts: dict[str, tuple[pd.DataFrame, int]]) -> alt.HConcatChart:
    """Loss of the models with sinusoids and with RoPE, by the length of the texts.

    texts: by title, full runs of both, and the tokens of a text in training
    """
    panels, told = zip(*(_lengths(title, *text) for title, text in texts.items()), strict=True)
    return alt.hconcat(*panels, spacing=25).properties(
        title="RoPE loses less on texts longer than in training",
        description="Loss by length of the texts. " + " ".join(told),
    )


def _lengths(title: str, runs: pd.DataFrame, trained: int) -> tuple[alt.LayerChart, str]:
    """The chart of one kind of text, and what it shows in words."""
    runs = runs.assign(positions=runs["variant"].replace({"2017": "sinusoids"}))
    columns = runs.filter(regex=r"^test_\d+$").dropna(axis="columns").columns
    rows = runs.melt(["positions", "seed"], columns, var_name="length", value_name="loss")
    rows["length"] = rows["length"].str.removeprefix("test_").astype(int)
    rows = rows[rows["length"] >= 64]
    mean = rows.groupby(["positions", "length"])["loss"].mean()
    longest = rows["length"].max()
    lines = alt.Chart(rows).encode(
        alt.X("length", title="tokens in a text")
        .scale(type="log", base=2, domain=[0.93 * rows["length"].min(), 1.2 * longest], nice=False)
        .axis(values=sorted(set(rows["length"]))),
        alt.Y("loss", title="loss (nats)").scale(zero=False).axis(tickCount=4, **charts.UPRIGHT),
        alt.Color("positions", legend=None).scale(
            domain=["RoPE", "sinusoids"], range=[charts.PALETTE[0], charts.PALETTE[-1]]
        ),
        tooltip=["positions", "seed", "length", alt.Tooltip("loss", format=".3f")],
    )
    first, second, *_ = sorted(set(rows["length"]))
    highest = rows.sort_values("loss").drop_duplicates(["positions", "length"], keep="last")
    names = (  # above the lines
        lines.mark_text(align=align, dx=dx, dy=dy, fontSize=14, fontWeight=600)
        .encode(text="positions")
        .properties(data=highest[(highest["positions"] == name) & (highest["length"] == length)])
        for name, length, align, dx, dy in (
            ("sinusoids", second, "right", -6, -24), ("RoPE", first, "left", 8, -12),
        )
    )  # fmt: skip
    edge = alt.Chart(pd.DataFrame({"length": [trained]})).mark_rule(strokeDash=[4, 4])
    told = ", ".join(f"{kind}, {n} tokens: {loss:.3f}" for (kind, n), loss in mean.items())
    chart = alt.layer(
        edge.encode(x="length"),
        lines.mark_line(point=True).encode(detail="seed"),
        *names,
    ).properties(width=275, height=220, title=alt.Title(title, fontSize=14))
    return chart, f"{title}, read {trained} tokens at a time in training: {told}."


def draw_deep(rows: pd.DataFrame) -> alt.LayerChart:
    """The loss of 16 layers by learning rate, of each order, with and without a warmup.

    rows: with the columns order, warmup (1: none), rate, seed and loss
    """
    rows = rows.assign(kind=rows["order"].where(rows["warmup"] == 1, rows["order"] + ", warmup"))
    mean = rows.groupby(["kind", "order", "rate"], as_index=False)["loss"].mean()
    kinds = ["post-norm", "post-norm, warmup", "pre-norm", "pre-norm, warmup"]
    chart = alt.Chart(rows).encode(
        alt.X("rate:O", title="learning rate").axis(labelAngle=0),
        alt.Y("loss", title="loss after 300 updates (nats)").axis(
            values=[0, 1, 2, 3], **charts.UPRIGHT
        ),
        alt.Color("order", legend=None).scale(
            domain=["pre-norm", "post-norm"], range=[charts.PALETTE[0], charts.PALETTE[-1]]
        ),
        alt.StrokeDash("kind", legend=None).scale(domain=kinds, range=[[1, 0], [5, 4]] * 2),
        tooltip=["kind", "rate", "seed", alt.Tooltip("loss", format=".2f")],
    )
    lines = chart.mark_line(strokeWidth=2).properties(data=mean).encode(tooltip=alt.value(None))
    names = (
        chart.mark_text(align=align, dx=dx, dy=dy, fontSize=14, fontWeight=600)
        .encode(text=alt.datum(name), tooltip=alt.value(None))
        .properties(data=mean[(mean["kind"] == kind) & (mean["rate"] == rate)])
        for kind, name, rate, align, dx, dy in (
            ("post-norm", "post-norm", 0.002, "right", -10, -8),
            ("post-norm, warmup", "with a warmup", 0.004, "right", -10, -4),
            ("pre-norm", "pre-norm", 0.004, "left", 10, -14),
        )
    )
    return alt.layer(lines, chart.mark_point(size=50, filled=True, opacity=0.8), *names).properties(
        width="container",
        height=220,
        description="Mean loss of 16 layers by order and rate: "
        + "; ".join(f"{row.kind}, {row.rate:g}: {row.loss:.2f}" for row in mean.itertuples()),
    )
