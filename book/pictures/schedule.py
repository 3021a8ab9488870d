"""The learning rate, for section 5.3."""

import altair as alt

from book import charts


def draw_rate(equation: str) -> alt.LayerChart:
    """The learning rate against the update, compared with that of the paper's base model.

    equation: an expression of Vega with the letters `d_model`, `warmup` and `datum.step`
    """
    papers = equation.replace("d_model", "512").replace("warmup", "4000")
    yours, papers = f"1e4 * {equation}", f"1e4 * {papers}"
    updates = alt.Chart(alt.sequence(10, 20_001, 10, as_="step"))
    x = alt.X("step:Q").title("update").scale(domain=[0, 20_000]).axis(tickCount=5, grid=False)
    y = (
        alt.Y("rate:Q")
        .title("learning rate (in units of 10⁻⁴)")
        .axis(tickCount=6, **charts.UPRIGHT)
    )
    blue, orange, *_, ink = charts.PALETTE
    both = updates.transform_calculate(rate=yours, papers=papers)
    alone, shared = (both.transform_filter(f"datum.rate {o} datum.papers") for o in ("!=", "=="))
    theirs = alone.transform_calculate(rate="datum.papers")
    theirs = theirs.mark_line(strokeWidth=2, strokeDash=[7, 7], color=orange)
    joined = alt.Chart(alt.Data(values=[{}]))
    joined = joined.transform_calculate(step="width < 400 ? 9000 : 11000")
    joined = joined.transform_calculate(rate=yours)
    joined = joined.transform_filter("d_model == 512 && warmup < 8000")
    top = alt.Chart(alt.Data(values=[{}])).transform_calculate(step="warmup")
    top = top.transform_calculate(rate=yours).transform_calculate(
        text="'warmup of ' + format(warmup, ',') + ': peak ' + format(datum.rate, '.1f')",
        room="max(1.3 * datum.rate, 9)",
    )
    late = "datum.step > (width < 400 ? 8000 : 14000)"  # no room at the right
    beside = {"align": ("'right'", "'left'"), "dx": (20, 12), "dy": (-16, -6)}
    beside = {
        name: alt.ExprRef(f"{late} ? {left} : {right}") for name, (left, right) in beside.items()
    }
    base = alt.Chart(alt.Data(values=[{"step": 4000}])).transform_calculate(rate=papers)
    base = base.transform_filter("warmup != 4000 || d_model != 512").transform_calculate(
        text="'the paper’s base model: peak ' + format(datum.rate, '.1f')"
    )
    return alt.layer(
        shared.mark_line(color=ink).encode(x, y),
        joined.mark_text(align="left", dy=-16, fontSize=14, text="both fall as 1/√update").encode(
            x, y
        ),
        alone.mark_line().encode(x, y),
        theirs.encode(x, y),
        top.mark_point(opacity=0).encode(x, y="room:Q"),  # above the highest point
        top.mark_point(size=90, opacity=1).encode(x, y),
        top.mark_text(**beside, fontSize=14, color=blue).encode(x, y, text="text:N"),
        base.mark_point(size=90, opacity=1, color=orange).encode(x, y),
        base.mark_text(
            align="left",
            dx=12,
            # Below the curve of a narrower model, and above the other label.
            dy=alt.ExprRef("d_model < 512 ? d_model / 4 : warmup > 4000 ? -24 : -6"),
            fontSize=14,
            color=orange,
        ).encode(x, y, text="text:N"),
        title="A shorter warmup peaks higher and joins the same curve",
        width="container",
        height=280,
        description="Learning rate over 20,000 updates. It rises in a straight line during the "
        "warmup and then falls with the inverse square root of the update. A dashed curve shows "
        "the paper's base model. Warmup and width can be chosen.",
    ).add_params(
        charts.slider("warmup", 2500, 1000, 16_000, 1500, "Warmup"),
        charts.menu("d_model", 512, [128, 256, 512, 1024], "Width"),
    )
