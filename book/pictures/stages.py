"""What the vectors of the decoder resemble, for section 3; `static/stages.js` draws it."""

import json
from collections.abc import Callable

import pandas as pd
from IPython.display import HTML
from torch import Tensor


def draw_stages(
    likely: dict[str, tuple[Tensor, Tensor]], answer: Tensor, word: Callable[[int], str]
) -> HTML:
    """The likeliest tokens after each sub-layer and at each position.

    likely: from the name of a stage to the largest probabilities and their ids, (positions, 5)
    answer: (1, positions + 1), the ids of the target
    word: from an id to its text
    """
    rows = [
        [
            [[word(i), round(p, 4)] for i, p in zip(ids, probabilities, strict=True)]
            for ids, probabilities in zip(indices.tolist(), values.tolist(), strict=True)
        ]
        for values, indices in likely.values()
    ]
    said = [word(i) for i in answer[0].tolist()]
    data = {
        "title": "Each column turns from one token into the next",
        "rows": rows,
        "read": said[:-1],
        "next": said[1:],
    }
    first = [[five[0][0] for five in row] for row in rows]
    table = pd.DataFrame(first, index=list(likely), columns=said[:-1])[::-1].rename_axis("after")
    text = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    return HTML(
        f'<div class="stages"><p>{data["title"]}</p>'
        f"{table.reset_index().to_html(index=False, border=0)}"
        f'<script type="application/json">{text}</script></div>'
    )
