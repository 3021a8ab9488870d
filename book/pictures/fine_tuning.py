"""What a general model gains and loses by learning from captions, for *Your own translator*."""

import altair as alt
import pandas as pd

from book import charts

NAMES = {"fine-tuned": "captions alone", "mixed": "with as many general pairs"}
PLACES = {500: (-12, 18), ("mixed", 8000): (-24, 4)}  # of a number, from its point
UNTOLD = 2000  # pairs, between the others


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
        PLACES.get(pairs, PLACES.get((arm, pairs), (24, 4)))
        for arm, pairs in zip(means["arm"], means["pairs"], strict=True)
    ]
    right, down = zip(*places, strict=True)
    across = alt.X("general:Q", title="BLEU on general text, better →")
    across = across.scale(domain=[0, 36], nice=False).axis(
        values=[0, 10, 20, 30], titleAnchor="end"
    )
    up = alt.Y("captions:Q", title="BLEU on captions, better ↑").scale(domain=[8, 35], nice=False)
    up = up.axis(values=[10, 20, 30], **charts.UPRIGHT)
    base = alt.Chart(
        means.assign(**ends, right=right, down=down, name=means["arm"].map(NAMES))
    ).encode(
        across,
        up,
        alt.Color("arm:N", legend=None).scale(domain=[*NAMES], range=charts.PALETTE[:2]),
        tooltip=["name", "pairs", *(alt.Tooltip(test, format=".1f") for test in half)],
    )
    beside = {"dx": "datum.right", "dy": "datum.down"}
    beside["align"] = "datum.right < 0 ? 'right' : 'left'"
    beside = {name: alt.ExprRef(expression) for name, expression in beside.items()}
    lost = (start["general"] - means["general"]).groupby(means["arm"]).agg(["min", "max"])
    names = (
        base.transform_filter((alt.datum.arm == arm) & (alt.datum.pairs == pairs))
        .mark_text(align=align, dx=dx, dy=dy, fontSize=13, fontWeight=700, lineBreak="\n")
        .encode(text=alt.value(f"{words}:\n{low:.0f} to {high:.0f} lost"))
        for arm, words, pairs, align, dx, dy in (
            ("fine-tuned", "captions alone", 8000, "left", -8, -30),
            ("mixed", "with as many\ngeneral pairs", 2000, "center", 0, -48),
        )
        for low, high in [lost.loc[arm]]
    )
    first = means[means["pairs"] == means["pairs"].min()][["arm", *start]].assign(order=1)
    ways = alt.Chart(pd.concat([first.assign(**start, order=0), first]))
    general = alt.Chart(pd.DataFrame([start | {"label": "the general model"}]))
    general = general.encode(across, up)
    told = (
        f"{NAMES[row.arm]}, {row.pairs:,}: {row.captions:.1f} and {row.general:.1f}"
        for row in means.itertuples()
    )
    return alt.layer(
        ways.mark_line(strokeWidth=1, strokeDash=[3, 3], color=charts.PALETTE[6]).encode(
            across, up, detail="arm:N", order="order:Q"
        ),
        base.mark_line(strokeWidth=1.5),
        base.mark_rule().encode(alt.X("general low:Q"), alt.X2("general high:Q")),
        base.mark_rule().encode(alt.Y("captions low:Q"), alt.Y2("captions high:Q")),
        base.mark_point(size=70, opacity=1),
        base.transform_filter(alt.datum.pairs != UNTOLD)
        .mark_text(**beside, fontSize=12)
        .encode(text=alt.Text("pairs:Q", format=",")),
        *names,
        general.mark_point(size=70, color=charts.PALETTE[6], opacity=1),
        general.mark_text(align="right", dx=8, dy=20, fontSize=13).encode(text="label"),
    ).properties(
        width="container",
        height=300,
        title=f"Learning from captions alone costs {lost['min']['fine-tuned']:.0f} to "
        f"{lost['max']['fine-tuned']:.0f} of {start['general']:.0f} BLEU on general text",
        description=f"BLEU on captions and on general text. The general model: "
        f"{start['captions']:.1f} and {start['general']:.1f}; {'; '.join(told)}.",
    )
