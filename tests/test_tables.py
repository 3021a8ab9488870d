"""Tables of pandas on the pages: their headers, read back by pandas."""

import re
from io import StringIO

import pytest
from tables import mend_heads, mend_tables, typeset

pd = pytest.importorskip("pandas")
pytest.importorskip("lxml")

FRAME = pd.DataFrame({"BLEU": [1.0, 2.0], "loss": [3.0, 4.0]})
NAMED = FRAME.set_axis(pd.Index(["a", "b"], name="model"))
TWO = FRAME.set_axis(pd.MultiIndex.from_product([["a"], [1, 2]], names=["model", "layer"]))
BOTH = NAMED.rename_axis(columns="score")
WIDE = NAMED.set_axis(pd.MultiIndex.from_product([["test"], ["BLEU", "loss"]]), axis=1)


@pytest.mark.parametrize(
    ("frame", "first"),
    [
        (FRAME, ["", "BLEU", "loss"]),
        (NAMED, ["model", "BLEU", "loss"]),
        (TWO, ["model", "layer", "BLEU", "loss"]),
        (BOTH, ["score\xa0→ model\xa0↓", "BLEU", "loss"]),
        (TWO.rename_axis(columns="score"), ["model", "score\xa0→ layer\xa0↓", "BLEU", "loss"]),
    ],
)
def test_a_table_has_one_row_of_headers(frame, first):
    html = mend_heads(f"<p>{frame.to_html()}</p>")
    assert html.count("<tr") == 1 + len(frame)
    assert "<th></th>" not in html
    (read,) = pd.read_html(StringIO(html), header=0)
    columns = ["" if name.startswith("Unnamed") else name for name in read.columns]
    assert columns == first
    assert read["loss"].tolist() == [3.0, 4.0]


def test_what_has_more_rows_keeps_them():
    html = mend_heads(WIDE.to_html())
    assert "<th></th>" not in html
    assert html.count("<tr") == 2 + 2  # two of headers, the names of the index in the second
    named = mend_heads(WIDE.rename_axis(columns=["split", "score"]).to_html())
    assert named.count("<tr") == 2 + 2 and "score&nbsp;→<br>model&nbsp;↓" in named
    plain = "<table><thead><tr><th>a</th></tr></thead></table>"
    assert mend_heads(plain) == plain


def test_numbers_have_four_digits_that_count_and_a_real_minus_and_raised_powers():
    numbers = "14.400000", "16.700001", "4.76837158203125e-07", "12345.678901", "nan"
    page = "".join(f"<td>{number}</td>" for number in numbers)
    cells = mend_tables(page).split("<td>")[1:]
    assert [cell.partition("<")[0] for cell in cells] == ["14.4", "16.7", "4.768e-07", "12346", ""]
    texts = ["-0.28 (-0.77 to +0.18)", "at most 3e-06, since 2026-11-21", '<a href="#a-1">en-2</a>']
    frame = pd.DataFrame({"said": [*texts, "<code>-1</code>"]})
    html = mend_tables(frame.to_html(escape=False))
    assert re.findall("<td>(.*?)</td>", html)[1:] == [
        "−0.28 (−0.77 to +0.18)", "at most 3×10<sup>−6</sup>, since 2026-11-21", texts[2],
        "<code>-1</code>",
    ]  # fmt: skip


def test_columns_of_numbers_are_marked_and_printed_as_one_prints_numbers():
    frame = pd.DataFrame({
        "words": [9099, 41793], "change": ["-0.00", "-1.5"], "rate": ["6.99e-04", ""],
        "said": ["3 of 4", "5"], "raised": ["2×10⁻⁹", "0.09"],
        "year": [2017, 2025], "answer": ["yes", "12"], "section": ["3.1", "5.4"],
    })  # fmt: skip
    html = mend_tables(frame.to_html())
    found = re.findall(r'<t[hd][^>]* class="number">(.*?)</t[hd]>', html)
    assert found == [
        "words", "change", "rate", "said", "raised", "year",
        "9,099", "0.00", "6.99×10<sup>−4</sup>", "3 of 4", "2×10<sup>−9</sup>", "2017",
        "41,793", "−1.5", "", "5", "0.09", "2025",
    ]  # fmt: skip


def test_where_a_cell_has_many_words_each_cell_names_its_column_and_no_line_breaks_a_formula():
    row = '<tr class="row-even">{}</tr>'
    cells = "".join(f"<td><p>{text}</p></td>" for text in ("5.1", "many words " * 6, "ours"))
    heads = "".join(f'<th class="head"><p>{name}</p></th>' for name in ("section", "said", "here"))
    table = '<table class="table"><thead>{}</thead><tbody>{}</tbody></table>'
    html = mend_tables(table.format(row.format(heads), row.format(cells)))
    # Of the first column of sentences the name is not repeated.
    assert re.findall('data-head="(.*?)"', html) == ["here"]
    assert html.count("wordy") == 1
    few = table.format(row.format(heads), row.format(re.sub("many|words", "", cells)))
    assert "data-head" not in mend_tables(few)
    assert typeset("if n &lt; d, for d = 64") == "if n\xa0&lt;\xa0d, for d\xa0=\xa064"
    assert typeset(text := '<p style="a = b">Adam - in 2 steps</p>') == text


def test_a_table_of_many_columns_names_its_numbers_and_the_names_of_python_may_break():
    frame = pd.DataFrame({
        "module": ["encoder.layers.0.self_attn", "norm"], "count": [6, 1],
        "said": ["word " * 12] * 2,
    })  # fmt: skip
    html = mend_tables(frame.to_html(index=False))
    assert re.findall('data-head="(.*?)" class="number"', html) == ["count"] * 2
    assert "encoder.<wbr>layers.0.<wbr>self_<wbr>attn" in html
    named = frame.drop(columns="said").set_index("module").to_html()
    assert mend_tables(named).count('class="name"') == 3  # with that of the column
    cells = "".join(f"<t{{0}}>{name}</t{{0}}>" for name in ("layer", "cost", "steps", "path"))
    head, body = (f"<tr>{cells.format(kind)}</tr>" for kind in "hd")
    words = f'<table class="table"><thead>{head}</thead><tbody>{body}</tbody></table>'
    assert re.findall('data-head="(.*?)"', mend_tables(words)) == ["cost", "steps", "path"]
    formulas = re.sub("<td>(?!layer).*?</td>", '<td><span class="math">O(n)</span></td>', words)
    assert "data-head" not in mend_tables(formulas)  # short, and to be compared by column
