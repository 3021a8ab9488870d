"""What a general model gains and loses by learning from captions, for *Your own translator*."""

import altair as alt
import pandas as pd

from book import charts

NAMES = {"fine-tuned": "captions alone", "mixed": "with as many general pairs"}
PLACES = {  # of a number, from its point, in pixels; to the left, it ends there
    ("fine-tuned", 8000): (-12, -10), ("mixed", 8000): (-12, -10), ("mixed", 2000): (10, -10),
}  # fmt: skip


def draw_gains(means: pd.DataFrame, half: dict[str, float]) -> alt.LayerChart:
    """Gains on captions against changes on general text, in BLEU.

    means: with the columns arm, pairs, captions and general
    half: half the width of the intervals of captions and general
    """
    ends = {f"{test} {end}": means[test] + sign * half[test]
            for test in half for end, sign in (("low", -1), ("high", 1))}  # fmt: skip
    places = [
        PLACES.get(place, (10, 12)) for place in zip(means["arm"], means["pairs"], strict=True)
    ]
    right, down = zip(*places, strict=True)
    across = alt.X("general:Q", title="change in BLEU on general text")
    up = alt.Y("captions:Q", title="gain in BLEU on captions")
    base = alt.Chart(
        means.assign(**ends, right=right, down=down, name=means["arm"].map(NAMES))
    ).encode(
        across.scale(domain=[-30.5, 2], nice=False).axis(values=[-30, -20, -10, 0]),
        up.scale(domain=[-1, 22], nice=False).axis(values=[0, 5, 10, 15, 20]),
        alt.Color("arm:N", legend=None).scale(domain=[*NAMES], range=charts.PALETTE[:2]),
        tooltip=["name", "pairs", *(alt.Tooltip(test, format="+.1f") for test in half)],
    )
    beside = {"dx": "datum.right", "dy": "datum.down"}
    beside["align"] = "datum.right < 0 ? 'right' : 'left'"
    beside = {name: alt.ExprRef(expression) for name, expression in beside.items()}
    start = pd.DataFrame({"general": [0.0], "captions": [0.0], "label": ["the general model"]})
    untouched = alt.Chart(start).encode(x="general:Q", y="captions:Q")
    names = (
        base.transform_filter(f"datum.arm == '{arm}' && datum.pairs == {means['pairs'].min()}")
        .mark_text(align="left", dx=dx, dy=dy, fontSize=13, fontWeight=600)
        .encode(text="name:N")
        for arm, dx, dy in (("fine-tuned", -14, 32), ("mixed", -60, 44))
    )
    told = (
        f"{NAMES[row.arm]}, {row.pairs:,}: {row.captions:+.1f} and {row.general:+.1f}"
        for row in means.itertuples()
    )
    return alt.layer(
        base.mark_line(strokeWidth=1.5),
        base.mark_rule().encode(alt.X("general low:Q"), alt.X2("general high:Q")),
        base.mark_rule().encode(alt.Y("captions low:Q"), alt.Y2("captions high:Q")),
        base.mark_point(size=70, filled=True, opacity=1),
        base.mark_text(**beside, fontSize=12).encode(text=alt.Text("pairs:Q", format=",")),
        *names,
        untouched.mark_point(size=70, shape="cross"),
        untouched.mark_text(align="right", dx=-10, fontSize=12).encode(text="label"),
    ).properties(
        width="container",
        height=300,
        title="A model that learns from captions alone forgets most of the rest",
        description="Gain on captions and change on general text, in BLEU, by the number of "
        f"pairs: {'; '.join(told)}.",
    )
