"""Table 3: its rows, their parameters counted by hand, and runs of them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from annotated.machinery.errors import FileError
from annotated.machinery.runs.checkpoints import read_config
from annotated.variations import count_parameters, row_config, table_3
from benchmarks import variations
from benchmarks.variations import vary

NAMES = list(table_3().index)


def by_hand(N, d_model, d_ff, h, d_k, d_v, vocab):
    """Parameters of the tied model: projections without bias, two matrices and biases, norms."""
    attention = 2 * d_model * h * d_k + 2 * d_model * h * d_v
    ffn = 2 * d_model * d_ff + d_ff + d_model
    norm = 2 * d_model
    encoder, decoder = attention + ffn + 2 * norm, 2 * attention + ffn + 3 * norm
    return N * (encoder + decoder) + vocab * d_model


@pytest.mark.parametrize("name", [name for name in NAMES if "learned" not in name])
def test_parameters_are_those_of_the_formula(name):
    row = table_3().loc[name]
    shape = {key: int(row[key]) for key in ("N", "d_model", "d_ff", "h", "d_k", "d_v")}
    counted, expected = count_parameters(row_config(name, vocab=1000)), by_hand(**shape, vocab=1000)
    assert counted == expected


def test_the_table_is_the_papers():
    table = table_3()
    assert len(table) == 20 and table.index.is_unique
    sizes = {"A": 4, "B": 2, "C": 7, "D": 4, "E": 1, "base": 1, "big": 1}
    assert table.group.value_counts().to_dict() == sizes
    assert (table.h * table.d_k)[table.group == "A"].eq(512).all()
    whole = table[table.group.isin(["base", "C", "big"])]
    assert (whole.d_k * whole.h == whole.d_model).all()


@pytest.mark.slow
def test_runs_are_done_once_and_the_file_grows(captions, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sizes = {"vocab_size": 50, "src_tokens": 200, "tgt_tokens": 200}
    small = {"updates": 4, "save_updates": 2, **sizes}
    results, names = Path("out") / "results.csv", ["base", "A: h = 1"]
    vary(names, [1], results, **small)
    first = pd.read_csv(results)
    assert first[["row", "seed"]].values.tolist() == [["base", 1], ["A: h = 1", 1]]
    assert (first.updates == 4).all() and (first.target_tokens > 0).all()
    assert "4.0" not in results.read_text(encoding="utf-8")  # counts stay whole numbers
    assert first.parameters.nunique() == 1  # as many, in one head or eight
    assert read_config(Path("runs/a-h-1-1")).h == 1
    monkeypatch.setattr(variations, "train", lambda *_, **__: pytest.fail("was done already"))
    assert len(vary(names, [1], results, **small)) == 2
    with pytest.raises(ValueError, match=r"5.*base"):
        vary(names, [1], results, **small | {"updates": 5})
    monkeypatch.undo()


@pytest.mark.parametrize("text, said", [("", ""), ("row,x\nbase,1\n", "seed, updates")])
def test_a_file_that_is_no_table_of_runs_is_refused(tmp_path, text, said):
    results = tmp_path / "runs.csv"
    results.write_text(text)
    with pytest.raises(FileError, match=rf"runs\.csv: .*{said}"):
        vary(["base"], [1], results)
    assert results.read_text() == text
