"""Tables of pandas on the pages: their headers, read back by pandas."""

from io import StringIO

import pytest
from tables import mend_heads, mend_tables

pd = pytest.importorskip("pandas")
pytest.importorskip("lxml")

FRAME = pd.DataFrame({"BLEU": [1.0, 2.0], "loss": [3.0, 4.0]})
NAMED = FRAME.set_axis(pd.Index(["a", "b"], name="model"))
TWO = FRAME.set_axis(pd.MultiIndex.from_product([["a"], [1, 2]], names=["model", "layer"]))
WIDE = NAMED.set_axis(pd.MultiIndex.from_product([["test"], ["BLEU", "loss"]]), axis=1)


@pytest.mark.parametrize(
    ("frame", "first"),
    [
        (FRAME, ["", "BLEU", "loss"]),
        (NAMED, ["model", "BLEU", "loss"]),
        (TWO, ["model", "layer", "BLEU", "loss"]),
    ],
)
def test_a_table_has_one_row_of_headers(frame, first):
    html = mend_heads(f"<p>{frame.to_html()}</p>")
    assert html.count("<tr") == 1 + len(frame)
    assert "<th></th>" not in html
    (read,) = pd.read_html(StringIO(html), header=0)
    assert [name for name in read.columns if not name.startswith("Unnamed")] == [
        name for name in first if name
    ]
    assert read["loss"].tolist() == [3.0, 4.0]


def test_what_has_more_rows_keeps_them():
    html = mend_heads(WIDE.to_html())
    assert "<th></th>" not in html
    assert html.count("<tr") == 2 + 2  # two of headers, the names of the index in the second
    plain = "<table><thead><tr><th>a</th></tr></thead></table>"
    assert mend_heads(plain) == plain


def test_numbers_have_four_digits_that_count():
    numbers = [14.4, 16.700001, 4.76837158203125e-07, 12345.678901, float("nan")]
    page = "".join(
        f"<td>{number:.6f}</td>" if number > 1 else f"<td>{number}</td>" for number in numbers
    )
    cells = mend_tables(page).split("<td>")[1:]
    assert [cell.partition("<")[0] for cell in cells] == ["14.4", "16.7", "4.768e-07", "12346", ""]
