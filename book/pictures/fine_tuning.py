"""What a general model gains and loses by learning from captions, for *Your own translator*."""

import altair as alt
import pandas as pd

from book import charts

NAMES = {"fine-tuned": "captions alone", "mixed": "with as many general pairs"}
SHORT = {"fine-tuned": "alone", "mixed": "mixed"}
ASIDE = -9, 9  # of the rows, in pixels
TESTS = {"captions": "on captions", "general": "on general text"}
STEP = 38  # height of a row


def draw_gains(scores: pd.DataFrame, start: dict[str, float]) -> alt.LayerChart:
    """BLEU before and after, with a row for each number of captions.

    scores: with the columns arm, pairs, and captions and general
    start: the scores of the general model
    """
    counts = {pairs: f"{pairs:,} captions" for pairs in sorted(scores["pairs"].unique())}
    table = scores.melt(["arm", "pairs"], [*TESTS], "test", "score").assign(
        before=lambda t: t["test"].map(start),
        row=lambda t: t["test"].map(TESTS) + "|" + t["pairs"].map(counts),
        name=lambda t: t["arm"].map(NAMES),
        told=lambda t: t["score"].map("{:.0f}".format),
    )
    first = (table["test"] == "captions") & (table["pairs"] == min(counts))
    table.loc[first, "told"] += " " + table["arm"].map(SHORT)
    across = lambda name: alt.X(f"{name}:Q").scale(domain=[0, 40], nice=False)
    upward = charts.grouped({test: [*counts.values()] for test in TESTS.values()}, 110)
    rows = alt.Chart(table).encode(
        upward,
        alt.Color("arm:N", legend=None).scale(domain=[*NAMES], range=charts.PALETTE[:2]),
        tooltip=["name", "row", alt.Tooltip("score", format=".1f")],
    )
    marks = []
    for arm, aside in zip(NAMES, ASIDE, strict=True):
        one = rows.transform_filter(alt.datum.arm == arm)
        marks += [
            one.mark_rule(strokeWidth=2, yOffset=aside).encode(across("before"), x2="score:Q"),
            one.mark_point(filled=True, size=80, opacity=1, yOffset=aside).encode(
                across("score")
                .title("BLEU, better →")
                .axis(values=[0, 10, 20, 30], grid=False, offset=4)
            ),
        ]
        for test, align, dx in (("captions", "left", 10), ("general", "right", -10)):
            end = {"align": align, "dx": dx, "yOffset": aside, "fontSize": 14, "fontWeight": 600}
            here = one.transform_filter(alt.datum.test == test)
            marks += [here.mark_text(**end).encode(across("score"), text="told")]
    heads = pd.DataFrame(
        {"row": name, "before": start[test], "told": f"{start[test]:.0f} before"}
        for test, name in TESTS.items()
    )
    guides = [
        alt.Chart(table).mark_tick(size=STEP, thickness=1, color=charts.PALETTE[-1]),
        alt.Chart(heads).mark_text(fontSize=14, dy=6).encode(text="told"),
    ]
    told = (
        f"{NAMES[row.arm]}, {row.pairs:,}: {row.captions:.1f} and {row.general:.1f}"
        for row in scores.itertuples()
    )
    return alt.layer(
        *(guide.encode(across("before"), upward) for guide in guides), *marks
    ).properties(
        width="container",
        height=alt.Step(STEP),
        title=alt.Title(
            "Better at captions, worse at general French, but less so if mixed",
            subtitle="BLEU: agreement with human translations. Orange: general text mixed in",
        ),
        description=f"BLEU on captions and on general text. The general model: "
        f"{start['captions']:.1f} and {start['general']:.1f}; {'; '.join(told)}.",
    )
