"""The learning rate, for section 5.3."""

import altair as alt

from book import charts

LAST = 12_000  # update
HEIGHT = 280


def draw_rate(equation: str) -> alt.LayerChart:
    """The learning rate against the update, compared with that of the paper's base model.

    equation: an expression of Vega with the letters `d_model`, `warmup` and `datum.step`
    """
    papers = equation.replace("d_model", "512").replace("warmup", "4000")
    yours, papers = f"1e4 * {equation}", f"1e4 * {papers}"
    updates = alt.Chart(alt.sequence(10, LAST + 1, 10, as_="step"))
    x = (
        alt.X("step:Q")
        .title("update")
        .scale(domain=[0, LAST])
        .axis(values=[*range(0, LAST + 1, 4000)], grid=False)
    )
    y = alt.Y("rate:Q").title("learning rate × 10,000").axis(tickCount=6, **charts.UPRIGHT)
    blue, orange, *_, ink = charts.PALETTE
    both = updates.transform_calculate(rate=yours, papers=papers)
    alone, shared = (both.transform_filter(f"datum.rate {o} datum.papers") for o in ("!=", "=="))
    theirs = alone.transform_calculate(rate="datum.papers")
    theirs = theirs.mark_line(strokeWidth=2, strokeDash=[7, 7], color=orange)
    joined = alt.Chart(alt.Data(values=[{}]))
    joined = joined.transform_calculate(step="width < 400 ? 6800 : 8600")
    joined = joined.transform_calculate(rate=yours)
    joined = joined.transform_filter("d_model == 512 && warmup < (width < 400 ? 5000 : 7000)")
    room = f"max(1.1e4 * {equation.replace('datum.step', 'warmup')}, 9)"
    top = alt.Chart(alt.Data(values=[{}])).transform_calculate(step="warmup")
    top = top.transform_calculate(rate=yours).transform_calculate(
        text="(width < 400 ? '' : 'warmup of ' + format(warmup, ',') + ': ') "
        "+ 'peak ' + format(datum.rate, '.1f')",
        room=room,
    )
    # Above the curve that falls from the point, or below it where the paper's is above.
    falls = f"datum.rate * (1 - pow(warmup / (warmup + 3200), 0.5)) * {HEIGHT} / {room}"
    below = alt.ExprRef(f"d_model > 512 && warmup > 1000 ? {falls} + 18 : -6")
    base = alt.Chart(alt.Data(values=[{"step": 4000}])).transform_calculate(rate=papers)
    base = base.transform_filter("warmup != 4000 || d_model != 512").transform_calculate(
        text="'the paper' + (width < 400 ? '' : '’s base model') + ': peak ' "
        "+ format(datum.rate, '.1f')"
    )
    return alt.layer(
        shared.mark_line(color=ink).encode(x, y),
        joined.mark_text(align="left", dy=-16, fontSize=14, text="one curve for both").encode(x, y),
        alone.mark_line().encode(x, y),
        theirs.encode(x, y),
        top.mark_point(opacity=0).encode(x, y="room:Q"),  # above the highest point
        top.mark_point(size=90, opacity=1).encode(x, y),
        top.mark_text(align="left", dx=12, dy=below, fontSize=14, color=blue).encode(
            x, y, text="text:N"
        ),
        base.mark_point(size=90, opacity=1, color=orange).encode(x, y),
        base.mark_text(
            align="left",
            dx=12,
            # Above the other label, and below the curve of a narrower model.
            dy=alt.ExprRef(
                f"warmup > 4000 ? -24 : d_model < 512 ? 2 * {HEIGHT} / {room} + 16 : -6"
            ),
            fontSize=14,
            color=orange,
        ).encode(x, y, text="text:N"),
        title="A shorter warmup peaks higher and joins the same curve",
        width="container",
        height=HEIGHT,
        description=f"Learning rate over {LAST:,} updates. It rises in a straight line during the "
        "warmup and then falls with the inverse square root of the update. A dashed curve shows "
        "the paper's base model. Warmup and width can be chosen.",
    ).add_params(
        charts.slider("warmup", 2500, 1000, 8500, 1500, "Warmup"),
        charts.menu("d_model", 512, [128, 256, 512, 1024], "Width"),
    )
