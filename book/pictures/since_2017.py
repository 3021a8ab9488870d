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
    color = alt.Color("model", legend=None, scale=alt.Scale(domain=shown, range=charts.PALETTE))
    lines = (
        alt.Chart()
        .mark_line(point=True, clip=True)
        .encode(
            alt.X(
                "rate",
                scale=alt.Scale(type="log", domain=[0.0004, 0.022], nice=False),
                title="largest learning rate",
                axis=alt.Axis(values=[0.0005, 0.001, 0.002, 0.004, 0.008, 0.016]),
            ),
            alt.Y(
                "dev_loss",
                title="loss (nats)",
                scale=alt.Scale(domain=[3.9, top], nice=False),
                axis=alt.Axis(values=[4, 4.5, 5]),
            ),
            color,
            tooltip=["model", "rate", alt.Tooltip("dev_loss", title="loss", format=".2f")],
        )
    )
    others, paper = (
        lines.properties(data=tried[(tried["variant"] == base) == own]) for own in (False, True)
    )
    failed = tried[tried["dev_loss"] > top].groupby("model", sort=False)["rate"].min().reset_index()
    failed = (
        failed.groupby("rate")["model"]
        .agg(lambda models: "\n".join(f"{model} fails" for model in models))
        .reset_index(name="told")
    )
    marks = (
        alt.Chart(failed)
        .mark_text(align="left", baseline="top", dx=3, fontSize=12, lineBreak="\n")
        .encode(x="rate", y=alt.value(2), text="told")
    )
    left = alt.layer(others, paper.mark_line(point=True, clip=True, strokeDash=[5, 4]), marks)
    left = left.properties(
        width=320, height=150, title=alt.Title("After 0.3 million tokens, by rate", fontSize=13)
    )
    tint = {
        "condition": [
            {"test": f"datum.value === '{name}'", "value": tone}
            for name, tone in zip(shown, charts.PALETTE, strict=False)
        ],
        "value": "gray",
    }
    rows = alt.Y(
        "model",
        sort=shown,
        title=None,
        axis=alt.Axis(
            ticks=False,
            domain=False,
            minExtent=94,
            maxExtent=94,
            labelFontWeight=600,
            labelColor=tint,
            labelExpr="length(datum.label) > 15 ? split(datum.label, ' ') : datum.label",
        ),
    )
    across = alt.X(
        "dev_loss",
        title="loss (nats)",
        scale=alt.Scale(domain=domain, nice=False),
        axis=alt.Axis(values=[3.55, 3.6, 3.65], format=".2f"),
    )
    seeds = (
        alt.Chart(ends)
        .mark_point(size=60, filled=True, opacity=0.8)
        .encode(
            across,
            rows,
            color,
            yOffset=alt.YOffset("seed:Q", scale=alt.Scale(domain=[-2, 4])),
            tooltip=["model", "seed", "rate", alt.Tooltip("dev_loss", title="loss", format=".3f")],
        )
    )
    mean = (
        alt.Chart(ends[ends["variant"] == base][["dev_loss"]].mean().to_frame().T)
        .mark_rule(strokeDash=[4, 3])
        .encode(across)
    )
    right = alt.layer(mean, seeds).properties(
        width=250,
        height=150,
        title=alt.Title("After 1.5 million tokens, at the best rate", fontSize=13),
    )
    told = "; ".join(
        f"{name} {loss:.2f}" for name, loss in ends.groupby("model")["dev_loss"].mean().items()
    )
    return alt.hconcat(left, right, spacing=25).properties(
        description="Loss by learning rate, and the final loss of each seed. Mean over seeds: "
        f"{told}"
    )
