"""Recurrence and self-attention, step by step, for the introduction."""

import altair as alt
import pandas as pd

from book import charts

LENGTHS = range(2, 17)


def length() -> alt.Parameter:
    """The length of a sentence, which sections 1 and 2 share; book.js keeps it between pages."""
    return charts.slider("n", 6, LENGTHS[0], LENGTHS[-1], 1, "Length n (words)")


def draw_steps(words: list[str]) -> alt.LayerChart:
    """A sentence read by two layers; each output has the number of the step that computes it."""
    bands = {"recurrent": (9, 11.5), "self-attention": (1.4, 6)}  # the heights of words and outputs
    positions = range(1, len(words) + 1)
    outputs = pd.DataFrame(
        (name, t, words[t - 1], *band, t if name == "recurrent" else 1)
        for name, band in bands.items()
        for t in positions
    ).set_axis(["layer", "start", "word", "y", "y2", "step"], axis=1)
    # From each input to its state, from state to state, and from all words to all outputs.
    links = [("recurrent", t, t, 9.3, 11.5, t == 1) for t in positions]
    links += [("recurrent", t, t + 1, 11.5, 11.5, True) for t in positions]
    links += [("self-attention", s, t, 1.8, 6, False) for s in positions for t in positions]
    links = pd.DataFrame(links, columns=["layer", "start", "end", "y", "y2", "chain"])
    name = "datum.layer == 'recurrent' ? 'Recurrent: ' + (2 * n - 1) : 'Self-attention: ' + n * n"
    last = "'last output: step ' + (datum.layer == 'recurrent' ? n : 1)"

    margin = "min(0.6, 40 * (n - 1) / (width - 80))"  # at most 40 pixels at either side
    ends = alt.ExprRef(f"1 - {margin}"), alt.ExprRef(f"n + {margin}")
    x = alt.X("start:Q").axis(None)
    x = x.scale(domainMin=ends[0], domainMax=ends[1], nice=False, zero=False)
    rows = "(width / n > 52 ? 1 : width / n > 26 ? 2 : 3)"  # of words that would touch in one
    foot = alt.ExprRef(f"1.1 - 0.5 * {rows}")  # below the lowest of them
    y, y2 = (
        alt.Y(f"{of}:Q").axis(None).scale(domainMin=foot, domainMax=12.9, nice=False, zero=False)
        for of in ("y", "y2")
    )
    shades = [charts.LAYERS[name] for name in bands]
    color = alt.Color("layer:N").legend(None).scale(domain=list(bands), range=shades)
    on_node = alt.condition("datum.layer == 'recurrent'", alt.value("#18181b"), alt.value("white"))
    lines = alt.Chart(links).transform_filter("datum.start <= n && datum.end <= n")
    lines = lines.encode(x, y, x2="end", y2="y2")
    longest = lines.transform_filter(
        "datum.chain || datum.layer == 'self-attention' && datum.end == n"
    )
    nodes = alt.Chart(outputs).transform_filter("datum.start <= n")
    area = "min(600, pow(0.8 * width / n, 2))"  # circles do not touch on a phone
    small = alt.ExprRef("width / n > 70 ? 13 : 12")
    lower = nodes.transform_calculate(below=f"datum.y - 0.5 * ((datum.start - 1) % {rows})")
    heads = alt.Chart(outputs.drop_duplicates("layer")).transform_calculate(
        name=f"({name}) + ' links'", last=last, top="datum.y2 + 1"
    )
    return alt.layer(
        lines.mark_rule(color="#9AA0A6", opacity=0.6),
        longest.mark_rule(strokeWidth=2).encode(color),
        nodes.transform_filter("datum.layer == 'recurrent' && datum.start > 1")
        .mark_point(
            shape="triangle-right",
            size=alt.ExprRef(f"{area} / 4"),
            xOffset=alt.ExprRef(f"-0.75 * sqrt({area})"),
            opacity=1,
        )
        .encode(x, y2, color),
        nodes.mark_circle(size=alt.ExprRef(area), opacity=1).encode(
            x, y2, color, tooltip=["layer", "word", "step"]
        ),
        nodes.mark_text(fontSize=small, fontWeight="bold").encode(
            x, y2, color=on_node, text="step:Q"
        ),
        lower.mark_text(baseline="top", fontSize=alt.ExprRef("width / n > 70 ? 15 : 12")).encode(
            x, alt.Y("below:Q"), text="word"
        ),
        *(
            heads.mark_text(align=align, fontSize=15, fontWeight="bold").encode(
                x=at, y="top:Q", color=color, text=text
            )
            for align, at, text in (
                ("left", alt.value(0), "name:N"),
                ("right", alt.value("width"), "last:N"),
            )
        ),
        title=alt.TitleParams(
            alt.expr("'Recurrence takes ' + n + ' steps, self-attention one'"),
            subtitle="Numbers: the step that computes an output; bold: the way to the last output",
        ),
        description="The same sentence read by two layers; each output has the number of the "
        "step in which it can be ready. In the recurrent layer lines lead from state to state and "
        "the numbers count up to the length. In self-attention lines lead from every word to "
        "every output, and every output has the number 1.",
        width="container",
        height=350,
    ).add_params(length())
