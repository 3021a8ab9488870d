"""Times of other implementations, for the page of benchmarks."""

import altair as alt
import pandas as pd

from book import charts

SETTINGS = {
    "beam 4": "a beam of four",
    "beam 1": "greedy search",
    "best, float32": "32 bits",
    "best, bfloat16": "bfloat16",
    "engine": "our captions model",
}
SHORT = {"torch.nn.Transformer": "PyTorch", "Hugging Face Marian": "HF Marian"}
CLEARLY = {"faster": charts.PALETTE[0], "no": charts.PALETTE[-1], "slower": charts.PALETTE[1]}


def draw_ratios(
    table: pd.DataFrame,
    title: str,
    ticks: list[float],
    notes: dict[str, str] | None = None,
) -> alt.LayerChart:
    """Medians of ratios with their intervals; to the right of 1, our model is faster.

    notes: of contenders, beside their marks
    """
    others = table[table["contender"] != "annotated"].assign(
        group=lambda t: t["setting"].map(SETTINGS),
        name=lambda t: t["contender"].replace(SHORT),
        row=lambda t: t["group"] + "|" + t["name"],
        clearly=lambda t: (t["from"] > 1).map({True: "slower", False: "no"}),
        ratio=lambda t: t["their time ÷ ours"],
        note=lambda t: t["contender"].map(notes or {}).fillna(""),
    )
    others.loc[others["to"] < 1, "clearly"] = "faster"
    groups = {
        g: list(of.sort_values("ratio")["name"]) for g, of in others.groupby("group", sort=False)
    }
    ends = [others["from"].min() / 1.1, others["to"].max() * 1.1]
    across = lambda name: alt.X(f"{name}:Q").scale(type="log", domain=ends, nice=False)
    rows = alt.Chart(others).encode(charts.grouped(groups, 110))
    marks = rows.encode(
        alt.Color("clearly:N", legend=None).scale(domain=[*CLEARLY], range=[*CLEARLY.values()]),
        tooltip=["contender", "group"]
        + [alt.Tooltip(f"{c}:Q", format=".2f") for c in ("ratio", "from", "to")],
    )
    right = {"align": "right", "dx": 40, "fontSize": 14}  # of the plot
    numbers = rows.encode(alt.Text("ratio:Q", format=".2f"), x=alt.value("width"))
    told = (f"{row.contender}, {row.group}: {row.ratio:.2f}" for row in others.itertuples())
    equal = alt.Chart(pd.DataFrame({"x": [1]})).encode(across("x"))
    sides = (
        equal.mark_text(align=align, dx=dx, fontSize=14, color=CLEARLY[side]).encode(
            y=alt.value(-30), text=alt.value(told)
        )
        for side, align, dx, told in (
            ("faster", "right", -18, "← faster"),
            ("slower", "left", 18, "slower →"),
        )
    )
    head = {"x": alt.value("width"), "y": alt.value(-30), "text": alt.value("median")}
    return alt.layer(
        rows.transform_filter("!datum.note")
        .mark_rule(opacity=0.15)
        .encode(x=alt.value(0), x2=alt.value("width")),
        rows.transform_filter("datum.note")  # its words are at the left of the line
        .mark_rule(opacity=0.15)
        .encode(x=across("from"), x2=alt.value("width")),
        equal.mark_rule(strokeDash=[4, 4]),
        *sides,
        equal.mark_text(**right).encode(**head),
        marks.mark_rule(strokeWidth=6, opacity=0.45).encode(across("from"), x2="to:Q"),
        marks.mark_tick(thickness=3, size=15, opacity=1).encode(
            across("ratio")
            .title(None)
            .axis(
                orient="top",
                values=ticks,
                grid=False,
                labelExpr="datum.value === 1 ? 'ours' : format(datum.value, '~g')",
            )
        ),
        rows.mark_text(align="right", dx=-8, fontSize=14).encode(across("from"), text="note"),
        numbers.mark_text(**right),
        title=alt.Title(
            title,
            subtitle="Time relative to ours, with intervals. Gray: no clear difference",
        ),
        width="container",
        height=alt.Step(25),
        description="Time divided by our time. " + "; ".join(told),
    )
