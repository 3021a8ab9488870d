"""The learning rate, for section 5.3."""

import altair as alt

from book import charts


def draw_rate(equation: str) -> alt.LayerChart:
    """The learning rate against the update, compared with that of the paper's base model.

    equation: an expression of Vega with the letters `factor`, `d_model`, `warmup` and `datum.step`
    """
    sliders = [
        alt.param(
            "warmup",
            value=1500,
            bind=alt.binding_range(min=500, max=16_000, step=500, name="Warmup "),
        ),
        alt.param(
            "d_model",
            value=512,
            bind=alt.binding_select(options=[128, 256, 512, 1024], name="Width "),
        ),
        alt.param(
            "factor", value=1, bind=alt.binding_range(min=0.1, max=2, step=0.1, name="Factor ")
        ),
    ]
    papers = equation.replace("factor", "1").replace("d_model", "512").replace("warmup", "4000")
    updates = alt.Chart(alt.sequence(10, 20_001, 10, as_="step"))
    axes = {
        "x": alt.X(
            "step:Q",
            title="update",
            scale=alt.Scale(domain=[0, 20_000]),
            axis=alt.Axis(tickCount=5),
        ),
        "y": alt.Y("rate:Q", title="learning rate (in units of 10⁻⁴)", axis=alt.Axis(tickCount=6)),
    }
    orange = charts.PALETTE[1]
    curve = (
        updates.transform_calculate(rate=f"1e4 * {papers}")
        .mark_line(strokeDash=[4, 4], color=orange)
        .encode(**axes)
    )
    yours = updates.transform_calculate(rate=f"1e4 * {equation}").mark_line().encode(**axes)
    top = (
        alt.Chart(alt.Data(values=[{}]))
        .transform_calculate(step="warmup")
        .transform_calculate(rate=f"1e4 * {equation}")
        .transform_calculate(
            text="'warmup of ' + format(warmup, ',') + ': at most ' + format(datum.rate, '.1f')",
            room="1.15 * datum.rate",
        )
    )
    room = top.mark_point(opacity=0).encode(x=axes["x"], y="room:Q")  # above the highest point
    point = top.mark_point(size=90, opacity=1).encode(**axes)
    late = "width < 400 && datum.step > 8000"  # on a phone there is no room at the right
    beside = {
        "align": alt.ExprRef(f"{late} ? 'right' : 'left'"),
        "dx": alt.ExprRef(f"{late} ? -25 : 12"),
    }
    text = top.mark_text(**beside, dy=-6, fontSize=13).encode(**axes, text="text:N")
    named = alt.Chart(alt.Data(values=[{"step": 2500}])).transform_calculate(
        rate=f"1e4 * {papers}", text="'the paper’s base model'"
    )
    paper = named.mark_text(align="left", dx=16, dy=24, fontSize=13, color=orange).encode(
        **axes, text="text:N"
    )
    return (
        (curve + yours + room + point + text + paper)
        .add_params(*sliders)
        .properties(
            title="A shorter warmup climbs higher, and ends on the same curve",
            width="container",
            height=280,
            description="Learning rate over 20,000 updates. It rises in a straight line during the "
            "warmup and then falls with the "
            "inverse square root of the update. A dashed curve shows the paper's base model. "
            "Warmup, width and factor can be chosen.",
        )
    )
