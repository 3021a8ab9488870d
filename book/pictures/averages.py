"""What heads return for two sentences with the same words, for section 2."""

import altair as alt
import pandas as pd

from book import charts


def draw_averages(
    values: dict[str, float], heads: dict[str, list[list[float]]], sentences: list[str]
) -> alt.LayerChart:
    """Each sentence with its values below, and above them what the heads return.

    values: a number for each word that has weight
    heads: by name, the weights of each head, one for each word of a sentence
    """
    boxes, links, words, names = [], [], [], []
    for row, (name, weights) in enumerate(reversed(heads.items())):
        returned = []
        for column, sentence in enumerate(sentences):
            told = sentence.split()
            at = [column + (i + 0.5) / len(told) for i in range(len(told))]
            given = [values.get(word) for word in told]
            words += [(x, row, word) for x, word in zip(at, told, strict=True)]
            boxes += [(x, row + 0.22, v) for x, v in zip(at, given, strict=True) if v is not None]
            middle = column + 0.5
            for head, each in enumerate(weights):
                x = middle + 0.21 * (head - (len(weights) - 1) / 2)
                out = sum(w * v for w, v in zip(each, given, strict=True) if v is not None)
                boxes.append((x, row + 0.6, out))
                returned.append((column, out))
                links += [
                    (start, row + 0.22, x, row + 0.6, "" if w == 1 else f"× {w:g}", start < x)
                    for start, w in zip(at, each, strict=True)
                    if w
                ]
        outputs = {tuple(v for c, v in returned if c == column) for column, _ in returned}
        same = "the same output twice" if len(outputs) == 1 else "two different outputs"
        names.append((row + 0.82, name, same, len(outputs)))
    boxes = pd.DataFrame(boxes, columns=["x", "y", "value"])
    links = pd.DataFrame(links, columns=["x", "y", "x2", "y2", "weight", "rises"])
    words = pd.DataFrame(words, columns=["x", "y", "word"])
    names = pd.DataFrame(names, columns=["y", "name", "same", "outputs"])

    x = alt.X("x:Q").axis(None).scale(domain=[0, len(sentences)], nice=False)
    y = alt.Y("y:Q").axis(None).scale(domain=[-0.06, len(heads) - 0.1], nice=False)
    most = max(values.values())
    shade = alt.Color("value:Q", legend=None).scale(
        domain=[0, most], range=["white", charts.PALETTE[0]]
    )
    ink = alt.condition(f"datum.value > {0.8 * most}", alt.value("white"), alt.value("#18181b"))
    blue = {"color": charts.PALETTE[0]}
    box = alt.Chart(boxes).encode(x, y)
    head = alt.Chart(names).encode(y=y)
    return alt.layer(
        alt.Chart(links).mark_rule(strokeWidth=2, **blue).encode(x, y, x2="x2", y2="y2"),
        *(
            alt.Chart(links[links["rises"] == rises])
            .transform_calculate(x="(datum.x + datum.x2) / 2", y="(datum.y + datum.y2) / 2")
            .mark_text(align=align, dx=dx, dy=-10, fontSize=14)
            .encode(x, y, text="weight:N")
            for rises, align, dx in ((True, "right", -4), (False, "left", 4))
        ),
        box.mark_square(size=900, opacity=1, stroke=charts.PALETTE[0]).encode(color=shade),
        box.mark_text(fontSize=15, fontWeight="bold").encode(color=ink, text="value:Q"),
        alt.Chart(words).mark_text(fontSize=15).encode(x, y, text="word:N"),
        head.mark_text(align="left", fontSize=15, fontWeight="bold").encode(
            x=alt.value(0), text="name:N"
        ),
        *(
            head.transform_filter(f"datum.outputs {of} 1")
            .mark_text(align="right", fontSize=15, fontWeight="bold", **color)
            .encode(x=alt.value("width"), text="same:N")
            for of, color in (("==", {}), (">", blue))
        ),
        title=alt.Title(
            "One average cannot tell who chases whom, but two heads can",
            subtitle="Below: words with their values; above: what the heads return",
        ),
        description="For each of two sentences, values of words and lines to what heads return. "
        + " ".join(f"{row.name}: {row.same}." for row in names[::-1].itertuples(index=False)),
        width="container",
        height=340,
    )
