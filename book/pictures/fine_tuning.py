"""What a general model gains and loses by learning from captions, for *Your own translator*."""

import altair as alt
import pandas as pd

from book import charts  # noqa: F401  # the theme


def draw_gains(means: pd.DataFrame, half: dict[str, float]) -> alt.LayerChart:
    """Gains on captions against changes on general text, in BLEU.

    means: with the columns pairs, captions, general and trained on
    half: half the width of the intervals of captions and general
    """
    ends = {f"{test} {end}": means[test] + sign * half[test]
            for test in half for end, sign in (("low", -1), ("high", 1))}  # fmt: skip
    order = [*means["trained on"].unique()]
    base = alt.Chart(means.assign(**ends)).encode(
        alt.X("general:Q", title="change in BLEU on general text"),
        alt.Y("captions:Q", title="gain in BLEU on captions"),
        alt.Color("trained on:N", title=None, sort=order).legend(orient="top"),
        tooltip=["trained on", "pairs", *(alt.Tooltip(test, format="+.1f") for test in half)],
    )
    many, pairs = "datum.pairs == 8000", alt.Text("pairs:Q", format=",")
    start = pd.DataFrame({"general": [0.0], "captions": [0.0], "label": ["the general model"]})
    untouched = alt.Chart(start).encode(x="general:Q", y="captions:Q")
    told = (
        f"{row['trained on']}, {row['pairs']:,}: {row['captions']:+.1f} and {row['general']:+.1f}"
        for _, row in means.iterrows()
    )
    left = base.mark_text(align="right", dx=-8, dy=-8, fontSize=12).encode(text=pairs)
    right = base.mark_text(align="left", dx=8, dy=12, fontSize=12).encode(text=pairs)
    return alt.layer(
        base.mark_line(strokeWidth=1.5),
        base.mark_rule().encode(alt.X("general low:Q"), alt.X2("general high:Q")),
        base.mark_rule().encode(alt.Y("captions low:Q"), alt.Y2("captions high:Q")),
        base.mark_point(size=70, filled=True, opacity=1),
        left.transform_filter(many),
        right.transform_filter(f"!({many})"),
        untouched.mark_point(size=70, shape="cross"),
        untouched.mark_text(align="right", dx=-10, dy=-10, fontSize=12).encode(text="label"),
    ).properties(
        width="container",
        height=300,
        title="A model that learns from captions alone forgets most of the rest",
        description="Gain on captions and change on general text, in BLEU, by the number of "
        f"pairs: {'; '.join(told)}.",
    )
