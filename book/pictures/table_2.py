"""Table 2, score against cost, for section 6.1."""

import altair as alt
import pandas as pd

from book import charts

SHORT = {
    "Transformer (base)": "base", "Transformer (big)": "big", "GNMT + RL": "GNMT",
    "Deep-Att + PosUnk": "Deep-Att",
}  # fmt: skip
PLACES = {  # of a name, from its point, in pixels, and its end there; the others: to the right
    "GNMT ensemble EN-DE": (9, 11, "left"),
    "MoE EN-FR": (-9, -3, "right"),
    "GNMT ensemble EN-FR": (-10, 7, "right"),
    "Deep-Att ensemble EN-FR": (6, 16, "right"),
    "GNMT EN-FR": (9, 7, "left"),
}


def draw_table_2(systems: pd.DataFrame) -> alt.HConcatChart:
    """BLEU against the FLOPs of training, one panel for each language, of the rows of `table_2`."""
    panels, shares, told = zip(
        *(_panel(systems, *pair) for pair in (("EN-DE", "German"), ("EN-FR", "French"))),
        strict=True,
    )
    return alt.hconcat(*panels, spacing=30).properties(
        title=alt.Title(
            "Big beats the best earlier system, at less cost",
            subtitle="Big took {:.0%} of that system’s FLOPs in German, {:.0%} in French".format(
                *shares
            ),
        ),
        description="BLEU against the FLOPs of training. " + " ".join(told),
    )


def _panel(systems: pd.DataFrame, pair: str, language: str) -> tuple[alt.LayerChart, float, str]:
    """The panel of a language, big's cost as a share of the best's before, and all in words."""
    rows = systems[["model", "kind"]].replace(SHORT)
    rows = rows.assign(bleu=systems[f"BLEU {pair}"], cost=systems[f"FLOPs {pair}"]).dropna()
    rows["name"] = rows["model"] + rows["kind"].map({"ensemble": " ensemble"}).fillna("")
    before = rows[rows["kind"] != "Transformer"].nlargest(1, "bleu")
    share = rows["cost"].iloc[-1] / before["cost"].item()
    told = [f"{row.name} {row.bleu} for {row.cost:.1e}" for row in rows.itertuples(index=False)]
    place = [PLACES.get(f"{name} {pair}", (9, 1, "left")) for name in rows["name"]]
    rows["right"], rows["down"], rows["align"] = zip(*place, strict=True)
    rows["said"] = rows["name"].replace({"big": f"big, for {share:.0%}", before["name"].item(): ""})
    across = (
        alt.X("cost:Q", title="FLOPs of training")
        .scale(type="log", domain=[2e18, 2e21], nice=False)
        .axis(
            values=[1e19, 1e20, 1e21],
            labelExpr="'10' + split('¹⁹ ²⁰ ²¹', ' ')[round(log(datum.value) / LN10) - 19]",
            grid=False,
        )
    )
    up = (
        alt.Y("bleu:Q", title=f"BLEU, English to {language}, better ↑")
        .scale(zero=False, padding=16, nice=False)
        .axis(tickCount=5, grid=False, **charts.UPRIGHT)
    )
    blue, gray = charts.PALETTE[0], charts.PALETTE[6]
    color = alt.when("datum.kind == 'Transformer'").then(alt.value(blue)).otherwise(alt.value(gray))
    points, rule = alt.Chart(rows).encode(across, up), alt.Chart(before).encode(up)
    beside = {"dx": "datum.right", "dy": "datum.down", "align": "datum.align"}
    beside["fontWeight"] = "datum.name == 'big' ? 600 : 400"
    beside = {name: alt.ExprRef(expression) for name, expression in beside.items()}
    best = {"text": f"best before: {before['name'].item()}", "fontSize": 13}
    panel = alt.layer(
        rule.mark_rule(strokeDash=[4, 3], color=gray),
        rule.mark_text(align="left", dx=4, dy=-13, **best).encode(x=alt.value(0)),
        points.mark_point(opacity=1, size=80).encode(
            color=color, tooltip=["name", "bleu", alt.Tooltip("cost", format=".1e")]
        ),
        points.mark_text(**beside, fontSize=14).encode(color=color, text="said:N"),
        width=310,
        height=260,
    )
    return panel, share, f"English to {language}: {'; '.join(told)}."
