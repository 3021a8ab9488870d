"""A sentence on its way through a translator, for *One sentence, all the way*."""

import altair as alt
import pandas as pd
import torch

from annotated import read_attention
from annotated.data import encode_source
from annotated.machinery.translator import Translator
from book import charts

SHOWN = 16  # of the numbers in a row
LAYERS = {"encoder": 0, "cross": -1}  # whose attention is drawn
# The places of all parts, from the top, in pixels.
STRIPS = {"rows": (46, 68), "memory": (154, 176)}
GAPS = {"encoder": (72, 132), "cross": (180, 264)}
HEIGHT, PIECES, GERMAN, SKIPPED = 298, 18, 282, 142
# Stations, what is there, and of which layers.
SAID = {PIECES: "1 pieces", 57: "2 numbers", 102: "3–6 attention in layer 1",
        165: "7 memory after all 4", 222: "8 attention in layer 4",
        GERMAN: "9–10 German"}  # fmt: skip
FOLLOWED = "riding", "fährt"  # in blue, until a reader points at another word
LEAST = 0.1  # of the weights that are drawn


def draw_journey(translator: Translator, text: str) -> alt.LayerChart:
    """Pieces, their rows of numbers before and after the encoder, attention, and the translation.

    A line is a weight of attention, averaged over the heads, in the encoder's first layer or the
    decoder's last.
    """
    seen = read_attention(translator, text)
    ids = torch.tensor(encode_source(translator.tokenizer, [text]))
    with torch.no_grad():
        rows = translator.model.src_embed(ids)[0], translator.model.encode(ids, None)[0]
    english, german = (charts.words(side) for side in (seen["cross"].keys, seen["cross"].queries))
    step = len(english) / len(german)  # from one German word to the next
    below = {"encoder": range(len(english)),
             "cross": [(i + 0.5) * step - 0.5 for i in range(len(german))]}  # fmt: skip
    given = {kind: seen[kind].weights[layer].mean(dim=0).tolist() for kind, layer in LAYERS.items()}
    lines = pd.DataFrame(
        {"x": x, "x2": x2, "y": GAPS[kind][0], "y2": GAPS[kind][1],
         "weight": round(weight, 3), "word": word,
         "ink": (0.2 + 0.6 * weight) / (1.6 if kind == "encoder" else 1)}
        for kind, read in zip(GAPS, (english, german), strict=True)
        for word, x2, row in zip(read, below[kind], given[kind], strict=True)
        for x, weight in enumerate(row)
        if weight > LEAST
    )  # fmt: skip
    rows = [(part[:, :SHOWN] / part[:, :SHOWN].abs().max()).abs() for part in rows]
    cells = pd.DataFrame(
        {"x": i + 0.8 * (k / SHOWN - 0.5), "x2": i + 0.8 * ((k + 1) / SHOWN - 0.5),
         "y": place[0], "y2": place[1], "size": round(number, 2)}
        for place, part in zip(STRIPS.values(), rows, strict=True)
        for i, row in enumerate(part.tolist())
        for k, number in enumerate(row)
    )  # fmt: skip
    frames = pd.DataFrame(
        {"x": i - 0.4, "x2": i + 0.4, "y": place[0], "y2": place[1], "word": word}
        for place in STRIPS.values()
        for i, word in enumerate(english)
    )
    read, written = FOLLOWED
    row = given["cross"][german.index(written)]
    assert english[row.index(max(row))] == read  # as the title says
    words = pd.DataFrame(
        [(i, PIECES, word) for i, word in enumerate(english)]
        + [(x, GERMAN, word) for x, word in zip(below["cross"], german, strict=True)],
        columns=["x", "y", "word"],
    )
    names = pd.DataFrame(
        {"y": y, "station": station, "name": name, "layer": " ".join(layer)}
        for y, said in SAID.items()
        for station, name, *layer in [said.split()]
    )
    left = "width < 500 ? -2.1 : -1.9"  # room for the names
    blue, *_, gray = charts.PALETTE
    followed = alt.selection_point(
        name="followed",
        fields=["word"],
        value=[{"word": word} for word in FOLLOWED],
        on="@words_marks:pointerover",
        clear=False,
    )
    across = alt.X("x:Q", axis=None).scale(
        domainMin=alt.ExprRef(left), domainMax=len(english) - 0.5, nice=False, zero=False
    )
    down = alt.Y("y:Q", axis=None).scale(domain=[HEIGHT, 0], nice=False)
    place = {"x": across, "y": down}
    told = alt.Chart(names).encode(y=down)
    small = lambda there, here: alt.ExprRef(f"width < 500 ? {there} : {here}")
    return alt.layer(
        alt.Chart(lines)
        .mark_rule()
        .encode(
            **place,
            x2="x2",
            y2="y2",
            color=alt.when(followed).then(alt.value(blue)).otherwise(alt.value(gray)),
            opacity=alt.when(followed)
            .then(alt.value(1))
            .otherwise(alt.Opacity("ink:Q", legend=None, scale=None)),
            size=alt.Size("weight:Q", legend=None).scale(domain=[0, 1], range=[0.5, 10]),
        ),
        alt.Chart(cells)
        .mark_rect()
        .encode(
            **place,
            x2="x2",
            y2="y2",
            color=alt.value(gray),
            opacity=alt.Opacity("size:Q", legend=None).scale(domain=[0, 1], range=[0.04, 0.85]),
        ),
        alt.Chart(frames)
        .mark_rect(filled=False, stroke=blue, strokeWidth=2)
        .encode(
            **place,
            x2="x2",
            y2="y2",
            opacity=alt.when(followed).then(alt.value(1)).otherwise(alt.value(0)),
        ),
        alt.Chart(words, name="words")
        .mark_text(fontSize=alt.ExprRef("width < 500 ? 12 : 15"), fontWeight=600)
        .encode(
            **place,
            text="word",
            color=alt.when(followed).then(alt.value(blue)),
        )
        .add_params(followed),
        alt.Chart(words[words["y"] == PIECES].assign(y=SKIPPED))  # the other layers of the encoder
        .mark_text(text="⋮", fontSize=16, color=gray)
        .encode(**place),
        told.mark_text(align="left", dy=small(-14, 0), fontSize=13, color=gray).encode(
            x=alt.value(0), text="station"
        ),
        told.mark_text(align="left", dx=small(0, 36), fontSize=small(13, 14)).encode(
            x=alt.value(0), text="name"
        ),
        told.mark_text(
            align="left", dx=small(0, 36), dy=small(14, 17), fontSize=small(12, 13), color=gray
        ).encode(x=alt.value(0), text="layer"),
    ).properties(
        width="container",
        height=HEIGHT,
        title=alt.Title(
            f"To write “{written}”, the last layer attends most to “{read}”",
            subtitle="Strips: 16 of a word’s 128 numbers. Lines: attention above 0.1. "
            "Point at a word, or tap it",
        ),
        description=f"The pieces {', '.join(english)}; a row of numbers for each; lines of "
        "attention, of the first of four layers, and dots for the others; the rows after all four, "
        "the memory; lines of attention, of the last layer, from these to the German "
        f"{', '.join(german)}.",
    )
