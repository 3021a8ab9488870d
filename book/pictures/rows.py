"""One matrix that turns tokens into vectors, and vectors into probabilities, for section 3.4."""

import altair as alt
import pandas as pd
from torch import Tensor

from book import charts

COLUMNS = 24  # of the matrix; half of them on a phone


def draw_rows(
    names: list[str], matrix: Tensor, out: Tensor, probabilities: Tensor, size: int
) -> alt.LayerChart:
    """A token that is read selects a row; what the layers return is compared with every row.

    names: of the rows; the first ones are read, one after the other
    matrix: (rows, d_model)
    out: (steps, d_model), what the layers return for each token that is read
    probabilities: (steps, rows), of the next token
    size: how many rows there are
    """
    height = lambda part: (part[:, :COLUMNS] / part.std() / 1.5).clamp(-1, 1).tolist()
    cells = pd.DataFrame(
        (kind, row, column, round(number, 2))
        for kind, part in (("row", height(matrix)), ("out", height(out)))
        for row, numbers in enumerate(part)
        for column, number in enumerate(numbers)
    ).set_axis(["kind", "row", "column", "number"], axis=1)
    others = f"{size - len(names):,} others"
    best, steps = probabilities.argmax(dim=-1).tolist(), [*range(len(out))]
    likely = pd.DataFrame(
        (step, row, name, round(p, 4), row == best[step])
        for step, shown in enumerate(probabilities.tolist())
        for row, (name, p) in enumerate(
            zip([*names, others], [*shown, 1 - sum(shown)], strict=True)
        )
    ).set_axis(["step", "row", "name", "p", "best"], axis=1)
    titles = [
        f"One matrix reads “{names[step]}” and makes “{names[row]}” "
        f"{probabilities[step, row]:.0%} likely"
        for step, row in enumerate(best)
    ]

    # All in one picture, in pixels: the layers, what they return, and below it the rows.
    sizes = {
        "left": "width < 500 ? 110 : 136",
        "right": "width * (width < 500 ? 0.58 : 0.5)",
        "cell": f"(right - left) / (width < 500 ? {COLUMNS // 2} : {COLUMNS})",
        "here": "125 + 27 * read_row",
    }
    row = "(113 + 27 * datum.row)"
    x, y = (alt.X("x:Q", scale=None, axis=None), alt.Y("y:Q", scale=None, axis=None))
    ends = {"x2": "x2:Q", "y2": "y2:Q"}
    made = lambda data, of="true", **places: (
        alt.Chart(data).transform_filter(of).transform_calculate(**places).encode(x, y)
    )
    once = lambda **places: made(pd.DataFrame([{}]), **places)
    line = lambda color, x, x2, y, y2, wide=2.5: (
        once(x=x, x2=x2, y=y, y2=y2).mark_rule(strokeWidth=wide, color=color).encode(**ends)
    )
    head = lambda shape, color, x, y: once(x=x, y=y).mark_point(
        shape=shape, size=110, opacity=1, color=color
    )
    says = lambda text, x, y, **more: once(x=x, y=y).mark_text(
        fontSize=14, lineBreak="\n", text=text, **more
    )
    middle = "(left + right) / 2"
    across = {"x": "left + cell * datum.column", "x2": "datum.x + cell - 1"}
    columns = lambda of, y, color: (
        made(
            cells,
            f"{of} && left + cell * datum.column < right - 1",
            y=f"{y} + 12",
            y2="datum.y - 11 * datum.number",
            **across,
        )
        .mark_rect(fill=color)
        .encode(**ends)
    )
    zero = made(likely, f"datum.step == 0 && datum.row < {len(names)}", x="left", x2="right - 1")
    blue, orange, *_, gray = charts.PALETTE
    ink = alt.when("datum.best").then(alt.value(blue))
    now = lambda **places: made(likely, "datum.step == read_row", **places)
    share = "datum.p * (width - right - 59)"
    bar = {"x": "right + 15", "x2": f"right + 15 + {share}"}
    bold = lambda of: {"fontSize": 14, "fontWeight": alt.ExprRef(f"{of} ? 700 : 400")}
    menu = alt.binding_select(options=steps, labels=names[: len(out)], name="Last token read ")
    read = alt.selection_point(
        name="read",
        fields=["row"],
        value=[{"row": 2}],
        bind={"row": menu},
        on="@pick_marks:click",
        toggle=False,
        clear=False,
    )
    return alt.layer(
        once(x="0", x2="width", y="2", y2="36")
        .mark_rect(fillOpacity=0.1, fill=gray, stroke=gray, cornerRadius=5)
        .encode(**ends),
        says("encoder and decoder layers", "width / 2", "19"),
        line(orange, "left - 14", "left", "here", "here"),
        line(orange, "left - 14", "left - 14", "here", "42"),
        head("triangle-up", orange, "left - 14", "42"),
        says("① goes in", "left - 26", "53", align="right", color=orange, fontWeight=600),
        line(blue, middle, middle, "36", "62"),
        head("triangle-down", blue, middle, "62"),
        says(
            "② a vector comes out", f"{middle} + 10", "53", align="left", color=blue, fontWeight=600
        ),
        columns("datum.kind == 'out' && datum.row == read_row", "75", blue),
        line(blue, "left", "right - 1", "87", "87", 0.5),
        says(
            alt.ExprRef(
                "width < 500 ? '③ compared with\\nrows: next token' : "
                "'③ compared with each row:\\nprobability of the next token'"
            ),
            "right + 10",
            "80",
            align="left",
            color=blue,
            fontWeight=600,
        ),
        line(blue, "right", "right + 5", "87", "87", 1),
        line(blue, "right + 5", "right + 5", "87", f"{125 + 27 * len(names)}", 1),
        made(
            likely, "datum.step == 0", x="right + 5", x2="right + 10", y=f"{row} + 12", y2="datum.y"
        )
        .mark_rule(strokeWidth=1, color=blue)
        .encode(**ends),
        zero.transform_calculate(y=f"{row} + 12", y2="datum.y")
        .mark_rule(strokeWidth=0.5, color=gray)
        .encode(**ends),
        columns("datum.kind == 'row' && datum.row != read_row", row, gray),
        columns("datum.kind == 'row' && datum.row == read_row", row, orange),
        now(x="left - 26", y=f"{row} + 12")
        .mark_text(align="right", **bold("datum.best || datum.row == read_row"))
        .encode(
            text="name",
            color=ink.when("datum.row == read_row").then(alt.value(orange)),
        ),
        now(**bar, y=f"{row} + 3", y2="datum.y + 18")
        .transform_filter("datum.p >= 0.005")
        .mark_rect()
        .encode(color=ink.otherwise(alt.value(gray)), **ends),
        now(
            x=f"right + 15 + (datum.p < 0.005 ? 0 : 6 + {share})",
            y=f"{row} + 12",
            text="datum.p < 0.005 ? '<1%' : format(datum.p, '.0%')",
        )
        .mark_text(align="left", **bold("datum.best"))
        .encode(text="text:N", color=ink),
        made(
            likely,
            f"datum.step == 0 && datum.row < {len(out)}",
            x="0",
            x2="right",
            y=row,
            y2="datum.y + 26",
        )
        .mark_rect(opacity=0, cursor="pointer")
        .encode(**ends)
        .properties(name="pick")
        .add_params(read),
        title=alt.TitleParams(
            alt.expr(f"{titles}[read_row]"),
            subtitle="“A man is riding a bicycle.” in German",
        ),
        description="One matrix, with a row for each token of a vocabulary. The row of the "
        "token that is read goes into the encoder and decoder layers. What they return is compared "
        "with every row, and bars show the probabilities of the next token.",
        width="container",
        height=113 + 27 * (len(names) + 1),
    ).add_params(*(alt.param(name, expr=expr) for name, expr in sizes.items()))
