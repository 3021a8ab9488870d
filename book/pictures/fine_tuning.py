"""What a general model gains and loses by learning from captions, for *Your own translator*."""

import altair as alt
import pandas as pd

from book import charts

NAMES = {"fine-tuned": "captions alone", "mixed": "with as many general pairs"}
SHORT = {"fine-tuned": "alone", "mixed": "mixed"}
ASIDE = -7, 7  # of the rows, in pixels
TESTS = {"captions": "captions", "general": "general text"}


def draw_gains(
    means: pd.DataFrame, half: dict[str, float], start: dict[str, float]
) -> alt.LayerChart:
    """Gains and losses in BLEU, with a row for each number of captions.

    means: with the columns arm, pairs, and captions and general, both minus `start`
    half: half the width of the intervals of captions and general
    start: the scores of the general model
    """
    heads = {test: f"{name}: {start[test]:.0f} BLEU before" for test, name in TESTS.items()}
    counts = {pairs: f"{pairs:,} captions" for pairs in sorted(means["pairs"].unique())}
    table = means.melt(["arm", "pairs"], [*TESTS], "test", "change").assign(
        row=lambda t: t["test"].map(heads) + "|" + t["pairs"].map(counts),
        name=lambda t: t["arm"].map(NAMES),
        short=lambda t: t["arm"].map(SHORT),
        low=lambda t: t["change"] - t["test"].map(half),
        high=lambda t: t["change"] + t["test"].map(half),
    )
    across = lambda name: alt.X(f"{name}:Q").scale(domain=[-32, 26], nice=False)
    tooltip = ["name", "row", alt.Tooltip("change", format="+.1f")]
    rows = alt.Chart(table).encode(
        charts.grouped({head: [*counts.values()] for head in heads.values()}, 110),
        alt.Color("arm:N", legend=None).scale(domain=[*NAMES], range=charts.PALETTE[:2]),
        tooltip=tooltip,
    )
    marks = [
        mark
        for arm, aside in zip(NAMES, ASIDE, strict=True)
        for one in [rows.transform_filter(alt.datum.arm == arm)]
        for mark in (
            one.mark_rule(strokeWidth=2, yOffset=aside).encode(across("low"), x2="high:Q"),
            one.mark_point(filled=True, size=60, opacity=1, yOffset=aside).encode(
                across("change")
                .title("change in BLEU, better →")
                .axis(values=[-30, -20, -10, 0, 10, 20], grid=False)
            ),
        )
    ]
    named = [
        rows.transform_filter(
            (alt.datum.test == "captions")
            & (alt.datum.arm == arm)
            & (alt.datum.pairs == min(counts))
        )
        .mark_text(align="left", dx=10, yOffset=aside, fontSize=14, fontWeight=600)
        .encode(across("change"), text="short")
        for arm, aside in zip(NAMES, ASIDE, strict=True)
    ]
    equal = alt.Chart(pd.DataFrame({"x": [0]})).mark_rule().encode(across("x"))
    scores = means.assign(**{test: means[test] + score for test, score in start.items()})
    told = (
        f"{NAMES[row.arm]}, {row.pairs:,}: {row.captions:.1f} and {row.general:.1f}"
        for row in scores.itertuples()
    )
    return alt.layer(equal, *marks, *named).properties(
        width="container",
        height=alt.Step(34),
        title=alt.Title(
            "Trained on captions alone, the model loses most of its BLEU on general text",
            subtitle="Gains and losses of the general model, with 95% intervals. Mixed: with as "
            "many general pairs",
        ),
        description=f"BLEU on captions and on general text. The general model: "
        f"{start['captions']:.1f} and {start['general']:.1f}; {'; '.join(told)}.",
    )
