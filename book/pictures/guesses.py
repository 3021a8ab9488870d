"""How many tokens a large model adds in a step in which it checks the guesses of a small one."""

import altair as alt
import pandas as pd

from book import charts


def draw_guesses(most: int = 8) -> alt.LayerChart:
    """Tokens per step against the number of guesses, of which each is right as often as set."""
    rows = pd.DataFrame({"guesses": range(most + 1)})
    right = charts.slider("right", 0.8, 0.5, 0.95, 0.05, "Share of right guesses")
    bars = (
        alt.Chart(rows)
        .transform_calculate(tokens="(1 - pow(right, datum.guesses + 1)) / (1 - right)")
        .encode(
            alt.X("guesses:O", title="tokens guessed ahead").axis(labelAngle=0, ticks=False),
            alt.Y("tokens:Q", axis=None).scale(domain=[0, 7.9], nice=False),
        )
    )
    return (
        alt.layer(
            bars.mark_bar(size=22).encode(
                color=alt.condition(
                    "datum.guesses == 0",
                    alt.value(charts.PALETTE[-1]),
                    alt.value(charts.PALETTE[0]),
                )
            ),
            bars.mark_text(dy=-9, fontSize=14, fontWeight=600).encode(
                text=alt.Text("tokens:Q", format=".1f")
            ),
        )
        .add_params(right)
        .properties(
            width="container",
            height=160,
            title=alt.Title(
                "Each further guess adds less than the last",
                subtitle="Tokens that a step of the large model makes, on average",
            ),
            description="Tokens per step against the guesses, if each is right with probability "
            "0.8: " + ", ".join(f"{k}: {(1 - 0.8 ** (k + 1)) / 0.2:.1f}" for k in range(most + 1)),
        )
    )
