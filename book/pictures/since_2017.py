"""Loss of small language models by learning rate, for the page on the changes since 2017."""

import altair as alt
import pandas as pd

from book import charts


def draw_losses(
    tried: pd.DataFrame, ends: pd.DataFrame, base: str, shown: list[str], domain: list[float]
) -> alt.HConcatChart:
    """The losses at every rate that was tried, and the final loss of each seed at the best.

    tried, ends: with the columns model, variant, rate, seed and dev_loss
    base: the variant that the others are compared with
    shown: the models in order
    domain: least and largest final loss
    """
    top = 5.3
    color = alt.Color("model").legend(None).scale(domain=shown, range=charts.PALETTE)
    loss = alt.Y("dev_loss").title("loss (nats)").axis(values=[4, 4.5, 5])
    rate = alt.X("rate").title("largest learning rate")
    rate = rate.axis(values=[0.0005, 0.001, 0.002, 0.004, 0.008, 0.016])
    told = lambda digits: alt.Tooltip("dev_loss", title="loss", format=f".{digits}f")
    lines = (
        alt.Chart()
        .mark_line(point=True, clip=True)
        .encode(
            rate.scale(type="log", domain=[0.0004, 0.022], nice=False),
            loss.scale(domain=[3.9, top], nice=False),
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
    across = across.axis(values=[3.55, 3.6, 3.65], format=".2f")
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
