"""Losses of small language models, for the pages on the changes since 2017."""

import altair as alt
import pandas as pd

from annotated.machinery.files import resource_path
from book import charts


def small_runs(text: str = "sentences") -> pd.DataFrame:
    """The stored runs on one text, "sentences" or "running"; rows without a text read sentences."""
    files = sorted(resource_path("results").glob("since-2017*.csv"))
    runs = pd.concat([pd.read_csv(file, dtype={"variant": str}) for file in files])
    texts = runs.get("text", pd.Series(index=runs.index, dtype=str)).fillna("sentences")
    return runs[texts == text]


def draw_losses(
    tried: pd.DataFrame,
    ends: pd.DataFrame,
    base: str,
    shown: list[str],
    at_rates: list[float],
    domain: list[float],
) -> alt.HConcatChart:
    """The losses at every rate that was tried, and the final loss of each seed at the best.

    tried, ends: with the columns model, variant, rate, seed and dev_loss
    base: the variant that the others are compared with
    shown: the models in order
    at_rates, domain: least and largest loss on the left, and on the right
    """
    top = at_rates[1]
    color = alt.Color("model").legend(None).scale(domain=shown, range=charts.PALETTE)
    loss = alt.Y("dev_loss").title("loss (nats)").axis(tickCount=3)
    rate = alt.X("rate").title("largest learning rate")
    rate = rate.axis(values=[0.0005, 0.001, 0.002, 0.004, 0.008, 0.016])
    told = lambda digits: alt.Tooltip("dev_loss", title="loss", format=f".{digits}f")
    lines = (
        alt.Chart()
        .mark_line(point=True, clip=True)
        .encode(
            rate.scale(type="log", domain=[0.0004, 0.022], nice=False),
            loss.scale(domain=at_rates, nice=False),
            color,
            tooltip=["model", "rate", told(2)],
        )
    )
    others, paper = (
        lines.properties(data=tried[(tried["variant"] == base) == own]) for own in (False, True)
    )
    failed = tried[tried["dev_loss"] > top].groupby("model", sort=False)["rate"].min()
    failed = (failed.index.to_series() + " fails").groupby(failed).agg("\n".join)
    marks = (
        alt.Chart(failed.reset_index(name="told"))
        .mark_text(align="left", baseline="top", dx=3, fontSize=12, lineBreak="\n")
        .encode(x="rate", y=alt.value(2), text="told")
    )
    left = alt.layer(
        others,
        paper.mark_line(point=True, clip=True, strokeDash=[5, 4]),
        marks,
        width=320,
        height=150,
        title=alt.Title("After 0.3 million tokens, by rate", fontSize=13),
    )
    tones = [
        {"test": f"datum.value === '{name}'", "value": tone}
        for name, tone in zip(shown, charts.PALETTE, strict=False)
    ]
    rows = alt.Y("model", sort=shown, title=None).axis(
        ticks=False,
        domain=False,
        minExtent=94,
        maxExtent=94,
        labelFontWeight=600,
        labelColor={"condition": tones, "value": "gray"},
        labelExpr="length(datum.label) > 15 ? split(datum.label, ' ') : datum.label",
    )
    across = alt.X("dev_loss").title("loss (nats)").scale(domain=domain, nice=False)
    across = across.axis(tickCount=3, format=".2f")
    seeds = (
        alt.Chart(ends)
        .mark_point(size=60, filled=True, opacity=0.8)
        .encode(
            across,
            rows,
            color,
            alt.YOffset("seed:Q").scale(domain=[-2, 4]),
            tooltip=["model", "seed", "rate", told(3)],
        )
    )
    mean = ends[ends["variant"] == base][["dev_loss"]].mean().to_frame().T
    right = alt.layer(
        alt.Chart(mean).mark_rule(strokeDash=[4, 3]).encode(across),
        seeds,
        width=250,
        height=150,
        title=alt.Title("After 1.5 million tokens, at the best rate", fontSize=13),
    )
    means = ends.groupby("model")["dev_loss"].mean()
    return alt.hconcat(left, right, spacing=25).properties(
        description="Loss by learning rate, and the final loss of each seed. Mean over seeds: "
        + "; ".join(f"{name} {loss:.2f}" for name, loss in means.items())
    )


def draw_lengths(texts: dict[str, tuple[pd.DataFrame, int]]) -> alt.HConcatChart:
    """Loss of the models with sinusoids and with RoPE, by the length of the texts.

    texts: by title, full runs of both, and the tokens of a text in training
    """
    panels, told = zip(*(_lengths(title, *text) for title, text in texts.items()), strict=True)
    return alt.hconcat(*panels, spacing=25).properties(
        title="In these small models, RoPE loses less at positions beyond those of training",
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
        alt.X("length", title="length of the texts, in tokens")
        .scale(type="log", base=2, domain=[0.93 * rows["length"].min(), 1.2 * longest], nice=False)
        .axis(values=sorted(set(rows["length"]))),
        alt.Y("loss", title="loss, nats per token").scale(zero=False).axis(tickCount=4),
        alt.Color("positions", sort=["sinusoids", "RoPE"], legend=None),
        tooltip=["positions", "seed", "length", alt.Tooltip("loss", format=".3f")],
    )
    middle = rows[(rows["seed"] == 0) & (rows["length"] == sorted(set(rows["length"]))[1])]
    names = (  # above the rising lines, and below the others
        lines.mark_text(align=align, dx=dx, dy=dy, fontSize=13, fontWeight=600)
        .encode(text="positions")
        .properties(data=middle[middle["positions"] == name])
        for name, align, dx, dy in (("sinusoids", "right", -6, -24), ("RoPE", "left", 6, 18))
    )
    edge = alt.Chart(pd.DataFrame({"length": [trained]})).mark_rule(strokeDash=[4, 4])
    told = ", ".join(f"{kind}, {n} tokens: {loss:.2f}" for (kind, n), loss in mean.items())
    chart = alt.layer(
        edge.encode(x="length"), lines.mark_line(point=True).encode(detail="seed"), *names
    ).properties(width=275, height=220, title=alt.Title(title, fontSize=13))
    return chart, f"{title}, read {trained} tokens at a time in training: {told}."


def draw_deep(rows: pd.DataFrame) -> alt.LayerChart:
    """The loss of 16 layers by learning rate, of each order, with and without a warmup.

    rows: with the columns order, warmup (1: none), rate, seed and loss
    """
    rows = rows.assign(kind=rows["order"].where(rows["warmup"] == 1, rows["order"] + ", warmup"))
    mean = rows.groupby(["kind", "order", "rate"], as_index=False)["loss"].mean()
    kinds = ["post-norm", "post-norm, warmup", "pre-norm", "pre-norm, warmup"]
    chart = alt.Chart(rows).encode(
        alt.X("rate:O", title="learning rate", axis=alt.Axis(labelAngle=0)),
        alt.Y("loss", title="loss, nats per token").axis(values=[0, 1, 2, 3]),
        alt.Color("order", legend=None).scale(
            domain=["post-norm", "pre-norm"], range=[charts.PALETTE[0], charts.PALETTE[2]]
        ),
        alt.StrokeDash("kind", legend=None).scale(domain=kinds, range=[[1, 0], [5, 4]] * 2),
        tooltip=["kind", "rate", "seed", alt.Tooltip("loss", format=".2f")],
    )
    lines = chart.mark_line(strokeWidth=2).properties(data=mean).encode(tooltip=alt.value(None))
    names = (
        chart.mark_text(align="left", dx=dx, dy=dy, fontSize=13, fontWeight=600)
        .encode(text="order", tooltip=alt.value(None))
        .properties(data=mean[(mean["kind"] == order) & (mean["rate"] == rate)])
        for order, rate, dx, dy in (("post-norm", 0.004, 10, 14), ("pre-norm", 0.004, 10, -14))
    )
    return alt.layer(lines, chart.mark_point(size=50, filled=True, opacity=0.8), *names).properties(
        width="container",
        height=220,
        description="Mean loss of 16 layers by order and rate: "
        + "; ".join(f"{row.kind}, {row.rate:g}: {row.loss:.2f}" for row in mean.itertuples()),
    )
