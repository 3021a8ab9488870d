"""What a general model gains and loses by learning from captions, for *Your own translator*."""

import altair as alt
import pandas as pd

from book import charts

NAMES = {"fine-tuned": "captions alone", "mixed": "with as many general pairs"}


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
    across = alt.X("general:Q", title="BLEU on general text, better →")
    across = across.scale(domain=[0, 36], nice=False).axis(
        values=[0, 10, 20, 30], titleAnchor="end"
    )
    up = alt.Y("captions:Q", title="BLEU on captions, better ↑").scale(domain=[8, 35], nice=False)
    up = up.axis(values=[10, 20, 30], **charts.UPRIGHT)
    color = alt.Color("arm:N", legend=None).scale(domain=[*NAMES], range=charts.PALETTE[:2])
    base = alt.Chart(means.assign(**ends, name=means["arm"].map(NAMES))).encode(
        across,
        up,
        color,
        tooltip=["name", "pairs", *(alt.Tooltip(test, format=".1f") for test in half)],
    )
    # From the general model, which has read no captions, to more and more of them.
    first = pd.DataFrame([start | {"arm": arm, "pairs": 0} for arm in NAMES])
    measured = means["pairs"].min()
    way = alt.Chart(pd.concat([first, means])).encode(across, up, color, order="pairs:Q")
    leap, path = alt.datum.pairs <= measured, alt.datum.pairs >= measured
    # The numbers are at the left of the points, those of the rightmost two at their right.
    side = "datum.general > 25 ? {} : {}"
    beside = {"dx": side.format(14, -8), "align": side.format("'left'", "'right'")}
    low = side.format("datum.general > 26.5 ? -9 : 12", 14)
    beside["dy"] = f"datum.arm == 'mixed' ? ({low}) : -13"
    beside = {name: alt.ExprRef(expression) for name, expression in beside.items()}
    lost = (start["general"] - means["general"]).groupby(means["arm"]).agg(["min", "max"])
    names = (
        alt.Chart(
            pd.DataFrame([{
                "arm": arm, "general": right, "captions": means.loc[of, "captions"].max(),
                "told": f"{NAMES[arm]}:\nloses {lost['min'][arm]:.0f} to "
                f"{lost['max'][arm]:.0f} of {start['general']:.0f}",
            }])
        )
        .mark_text(align=align, dy=dy, fontSize=13, fontWeight=700, lineBreak="\n")
        .encode(across, up, color, text="told")
        for arm, of in means.groupby("arm").groups.items()
        for right, align, dy in [(36, "right", -48) if arm == "mixed" else (12, "left", -32)]
    )  # fmt: skip
    label = f"start, the general model: {start['captions']:.1f} and {start['general']:.1f}"
    general = alt.Chart(pd.DataFrame([start | {"label": label}])).encode(across, up)
    told = (
        f"{NAMES[row.arm]}, {row.pairs:,}: {row.captions:.1f} and {row.general:.1f}"
        for row in means.itertuples()
    )
    return alt.layer(
        way.transform_filter(leap).mark_line(strokeWidth=1, strokeDash=[4, 3]),
        way.transform_filter(path).mark_line(strokeWidth=2),
        *names,
        base.mark_rule().encode(alt.X("general low:Q"), alt.X2("general high:Q")),
        base.mark_rule().encode(alt.Y("captions low:Q"), alt.Y2("captions high:Q")),
        base.mark_point(size=70, opacity=1),
        base.mark_text(**beside, fontSize=13).encode(text=alt.Text("pairs:Q", format=",")),
        general.mark_point(size=70, color=charts.PALETTE[6], opacity=1),
        general.mark_text(align="right", dx=8, dy=18, fontSize=13).encode(text="label"),
    ).properties(
        width="container",
        height=300,
        title=alt.Title(
            "Trained on captions alone, the model loses most of its BLEU on general text",
            subtitle="After learning from 500, 2,000 or 8,000 captions; crosses: 95% intervals",
        ),
        description=f"BLEU on captions and on general text. The general model: "
        f"{start['captions']:.1f} and {start['general']:.1f}; {'; '.join(told)}.",
    )
