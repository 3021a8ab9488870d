"""The attention weights that a page of the book reads from the strokes of the paper's figures."""

import csv
import re
from collections import defaultdict
from pathlib import Path

import pytest

from annotated.machinery.files import resource_path

PAGE = next((Path(__file__).resolve().parent.parent / "chapters").rglob("paper-figures.md"))


def test_the_kept_weights_are_distributions() -> None:
    with (resource_path("results") / "paper-figures.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    sums: dict[tuple[str, ...], float] = defaultdict(float)
    for row in rows:
        sums[row["figure"], row["head"], row["from"]] += float(row["weight"])
    assert max(sums.values()) <= 1.005
    assert {figure for figure, *_ in sums} == {"3", "4 above", "4 below", "5 above", "5 below"}
    # The captions: eight heads from one word; heads 5 and 6 from another; heads of all 27 words.
    assert len([key for key in sums if key[0] == "3"]) == 8
    assert {head for figure, head, _ in sums if figure == "4 below"} == {"5", "6"}
    assert all(sum(key[0] == figure for key in sums) == 27 for figure in ("4 above", "5 above"))
    # Both drawings of Figure 4 show the same row of head 5.
    its = lambda figure: {
        row["to"]: float(row["weight"]) for row in rows
        if (row["figure"], row["head"], row["from"]) == (figure, "5", "8")
    }  # fmt: skip
    assert its("4 above") == pytest.approx(its("4 below"), abs=0.005)


@pytest.mark.paper
def test_the_page_reads_the_kept_weights_from_the_paper() -> None:
    pytest.importorskip("altair")
    cells = re.findall(r"```\{code-cell\} ipython3\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    names: dict = {}
    exec("".join(re.sub(r"^:.*\n", "", cell) for cell in cells), names)
    assert re.search(r"finds all \d{3} lines, as in our table", names["found"])
