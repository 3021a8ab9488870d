"""What a general model gains and loses by learning from captions, for *Your own translator*."""

import altair as alt
import pandas as pd

from book import charts

NAMES = {"fine-tuned": "captions alone", "mixed": "with as many general pairs"}
PLACES = {("mixed", 2000): (8, 13), ("mixed", 8000): (-20, 24)}  # of a number, from its point


def draw_gains(
    means: pd.DataFrame, half: dict[str, float], start: dict[str, float]
) -> alt.LayerChart:
    """BLEU on captions against BLEU on general text.

    means: with the columns arm, pairs, and captions and general, both minus `start`
    half: half the width of the intervals of captions and general
    start: the scores of the general model
    """
    means = means.assign(**{test: means[test] + score for test, score in start.items()})
    ends = {f"{test} {end}": means[test] + sign * half[test]
            for test in half for end, sign in (("low", -1), ("high", 1))}  # fmt: skip
    places = [
        PLACES.get((arm, pairs), (-8, -13))
        for arm, pairs in zip(means["arm"], means["pairs"], strict=True)
    ]
    right, down = zip(*places, strict=True)
    across = alt.X("general:Q", title="BLEU on general text, better →")
    across = across.scale(domain=[0, 36], nice=False).axis(
        values=[0, 10, 20, 30], titleAnchor="end"
    )
    up = alt.Y("captions:Q", title="BLEU on captions, better ↑").scale(domain=[8, 35], nice=False)
    up = up.axis(values=[10, 20, 30], **charts.UPRIGHT)
    color = alt.Color("arm:N", legend=None).scale(domain=[*NAMES], range=charts.PALETTE[:2])
    base = alt.Chart(
        means.assign(**ends, right=right, down=down, name=means["arm"].map(NAMES))
    ).encode(
        across,
        up,
        color,
        tooltip=["name", "pairs", *(alt.Tooltip(test, format=".1f") for test in half)],
    )
    beside = {"dx": "datum.right", "dy": "datum.down"}
    beside["align"] = "datum.down < 0 ? 'right' : 'left'"
    beside = {name: alt.ExprRef(expression) for name, expression in beside.items()}
    lost = (start["general"] - means["general"]).groupby(means["arm"]).agg(["min", "max"])
    best = means.loc[means.groupby("arm")["general"].idxmax()]
    best = best.assign(end=start["general"], name=best["arm"].map(NAMES))
    best["told"] = [
        f"{row.name}:\n{lost.loc[row.arm, 'min']:.0f} to {lost.loc[row.arm, 'max']:.0f} lost"
        for row in best.itertuples(index=False)
    ]
    arrows = alt.Chart(best).encode(across, up, color)
    names = arrows.encode(alt.X("end:Q"), text="told").mark_text(
        align="right", dx=-6, dy=-31, fontSize=13, fontWeight=700, lineBreak="\n"
    )
    general = alt.Chart(pd.DataFrame([start | {"label": "the general model"}]))
    general = general.encode(across, up)
    told = (
        f"{NAMES[row.arm]}, {row.pairs:,}: {row.captions:.1f} and {row.general:.1f}"
        for row in means.itertuples()
    )
    return alt.layer(
        general.mark_rule(strokeDash=[3, 3], color=charts.PALETTE[6]).encode(y2=alt.value(0)),
        arrows.mark_rule().encode(x2="end"),
        arrows.mark_point(shape="triangle-left", size=60, opacity=1, xOffset=18),
        names,
        base.mark_line(strokeWidth=4, opacity=0.3),
        base.mark_rule().encode(alt.X("general low:Q"), alt.X2("general high:Q")),
        base.mark_rule().encode(alt.Y("captions low:Q"), alt.Y2("captions high:Q")),
        base.mark_point(size=70, opacity=1),
        base.mark_text(**beside, fontSize=12)
        .encode(text="said:N")
        .transform_calculate(
            said="format(datum.pairs, ',') + (datum.captions > 30 ? ' captions' : '')"
        ),
        general.mark_point(size=70, color=charts.PALETTE[6], opacity=1),
        general.mark_text(align="right", dx=8, dy=20, fontSize=13).encode(text="label"),
    ).properties(
        width="container",
        height=300,
        title=alt.Title(
            "Trained on captions alone, the model forgets most of its general French",
            subtitle="Crosses: 95% intervals",
        ),
        description=f"BLEU on captions and on general text. The general model: "
        f"{start['captions']:.1f} and {start['general']:.1f}; {'; '.join(told)}.",
    )
