"""The smoothed loss, for section 5.4."""

import altair as alt

from book import charts


def draw_smoothed_loss(loss: str, right: str) -> alt.LayerChart:
    """The loss against the probability of the right token, below the smoothed target.

    loss: an expression of Vega with the letters `epsilon`, `size` and `datum.p`
    right: the part of the target that the right token has, as an expression without `datum.p`
    """
    blue, orange, *_, ink = charts.PALETTE
    ticks = [0, 0.2, 0.4, 0.6, 0.8, 1]
    x = alt.X("p:Q").title("probability of the right token (1: certain)").axis(values=ticks)
    x = x.scale(domain=[0, 1.14], nice=False)
    y = (
        alt.Y("loss:Q")
        .title("loss above the least (nats)")
        .axis(values=ticks, **charts.UPRIGHT)
        .scale(domain=[-0.12, 1], nice=False)
    )
    curve = alt.Chart(alt.sequence(-4, 14, 0.05, as_="z")).mark_line(clip=True, color=ink)
    least = loss.replace("datum.p", f"min({right}, 0.999999)")
    curve = curve.transform_calculate(p="1 / (1 + exp(-datum.z))")
    curve = curve.transform_calculate(loss=f"{loss} - ({least})")
    target = alt.Chart(alt.Data(values=[{"from": 0}])).transform_calculate(p=right)
    rest = target.transform_calculate(one="1").mark_bar(color="#808080a0", height=18)
    best = target.transform_calculate(loss="0")
    said = best.transform_calculate(text="'least at ' + format(datum.p, '.2f')")
    sure = target.transform_filter("datum.p < 0.99").mark_text(
        text="too sure →", align="right", dx=-6, fontSize=14, color=orange
    )
    names = [
        target.transform_calculate(name=f"'{name} ' + format({share}, '.2f')")
        .mark_text(align=align, fontSize=14, color=color)
        .encode(x=alt.datum(place), y=alt.value(-70), text="name:N")
        for name, share, align, color, place in (
            ("the target: right token", "datum.p", "left", blue, 0),
            ("all others", "1 - datum.p", "right", alt.Undefined, 1),
        )
    ]
    # What the text compares.
    compared = alt.Chart(alt.Data(values=[{"p": 0.8}, {"p": 0.99}])).transform_calculate(
        loss=f"{loss} - ({least})",
        text="[format(datum.p, '.0%') + (width < 400 ? '' : ' sure'), format(datum.loss, '.2f')]",
        below="datum.text[0] + ': ' + datum.text[1]",
    )
    costs = [
        compared.transform_filter(f"datum.p {sign} 0.9")
        .mark_text(align=align, dx=dx, dy=dy, fontSize=14)
        .encode(x, y, text=text)
        for sign, align, dx, dy, text in (
            ("<", "right", 4, 18, "below:N"),
            (">", "left", 12, 2, "text:N"),
        )
    ]
    sizes = {"10": 10, "1,000": 1000, "37,000": 37_000}
    beyond = target.transform_calculate(one="1").mark_rect(color=orange, opacity=0.15)
    return alt.layer(
        beyond.encode(x, x2="one:Q"),
        curve.encode(x, y, order="p:Q"),
        target.mark_bar(height=18).encode(x="from:Q", x2="p:Q", y=alt.value(-52)),
        rest.encode(x, x2="one:Q", y=alt.value(-52)),
        best.mark_rule(strokeDash=[4, 3]).encode(x, y, y2=alt.value(-43)),
        best.mark_point(size=110, opacity=1).encode(x, y),
        compared.mark_point(size=60, opacity=1, color=ink).encode(x, y),
        *costs,
        sure.encode(x, y=alt.value(14)),
        said.mark_text(
            align="right",
            dx=-8,
            dy=-80,  # above the curve
            fontSize=14,
            color=blue,
        ).encode(x, y, text="text:N"),
        *names,
        title="The loss is least at the target, not at certainty",
        width="container",
        height=270,
        description="Above, the target as a bar: the share of the right token and that of all "
        "others. Below, how far the loss is above its least, against the probability that a model "
        "gives the right token, with even shares for the rest. Without smoothing it is least at "
        "certainty. With smoothing it is least where the bar changes color, and rises beyond. Dots "
        "compare 80% with 99%.",
    ).add_params(
        charts.slider("epsilon", 0.1, 0, 0.3, 0.05, "Smoothing ε"),
        charts.menu("size", 37_000, [*sizes.values()], "Tokens K", labels=[*sizes]),
    )
