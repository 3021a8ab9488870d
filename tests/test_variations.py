"""Table 3: its rows, their parameters counted by hand, their commands, and `annotated vary`."""

from __future__ import annotations

import gzip
import math
import shlex
from pathlib import Path

import pandas as pd
import pytest

from annotated import variations
from annotated.machinery import cli
from annotated.machinery.training.folder import read_config
from annotated.machinery.training.table_3 import (
    _full_config,
    compare_direction,
    full_command,
    gain_over_base,
    student_quantile,
    vary,
)
from annotated.model import build_model
from annotated.variations import count_parameters, row_config, small_config, table_3

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


def test_counting_needs_no_memory_and_agrees_with_a_model_that_is_built():
    config = row_config("C: N = 2", vocab=50)
    assert count_parameters(config) == sum(p.numel() for p in build_model(config).parameters())


def test_the_table_is_the_papers():
    table = table_3()
    assert len(table) == 20 and table.index.is_unique
    assert table.group.value_counts().to_dict() == {
        "A": 4,
        "B": 2,
        "C": 7,
        "D": 4,
        "E": 1,
        "base": 1,
        "big": 1,
    }
    assert (table.h * table.d_k)[table.group == "A"].eq(512).all()
    assert (
        (table.d_k * table.h)[table.group.isin(["base", "C", "big"])]
        .eq(table.d_model[table.group.isin(["base", "C", "big"])])
        .all()
    )
    best = table.drop("big")
    assert (
        best.BLEU.idxmax() == "C: d_ff = 4096" and best.perplexity.idxmin() == "C: d_model = 1024"
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_full_command_makes_the_full_configuration(name, monkeypatch):
    found = []
    monkeypatch.setattr(
        "annotated.machinery.training.trainer.train",
        lambda config, resume: found.append(config) or Path("x"),
    )
    launch, options = full_command(name).split(" -m annotated ")
    assert launch == "torchrun --standalone --nproc-per-node gpu"
    cli.main(shlex.split(options))
    expected, row = _full_config(name), table_3().loc[name]
    widths = {"d_k": (found[0].d_k or 64), "d_v": (found[0].d_v or 64)}
    assert vars(found[0]) | widths == vars(expected)
    assert found[0].updates == row.train_steps and found[0].dropout == row.dropout


def test_an_unknown_row_is_refused_with_all_names():
    with pytest.raises(ValueError, match=r"base, A: h = 1, .*'Z'"):
        small_config("Z")


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Multi30k of twelve pairs: words with their number, and these turned round."""
    folder = tmp_path / "data" / "multi30k"
    folder.mkdir(parents=True)
    words = [f"{a} {b}" for a in ("red", "blue", "green") for b in ("dog", "cat", "cow", "hen")]
    for split in "train", "val":
        for lang, lines in ("en", words), ("de", [" ".join(w.split()[::-1]) for w in words]):
            (folder / f"{split}.{lang}.gz").write_bytes(
                gzip.compress("".join(f"{x}.\n" for x in lines).encode())
            )
    monkeypatch.setenv("ANNOTATED_DATA", str(folder.parent))
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_runs_are_done_once_and_the_file_grows(corpus, monkeypatch):
    small = {
        "updates": 4,
        "vocab_size": 50,
        "src_tokens": 200,
        "tgt_tokens": 200,
        "save_updates": 2,
    }
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
    with pytest.raises(ValueError, match=r"5 updates of base"):
        vary(names, [1], results, **small | {"updates": 5})
    monkeypatch.undo()


@pytest.mark.parametrize("text, said", [("", ""), ("row,x\nbase,1\n", "seed, updates")])
def test_a_file_that_is_no_table_of_runs_is_refused(tmp_path, text, said):
    results = tmp_path / "runs.csv"
    results.write_text(text)
    with pytest.raises(ValueError, match=rf"runs\.csv: .*{said}"):
        vary(["base"], [1], results)
    assert results.read_text() == text


def test_a_lead_is_over_the_base_of_the_seed_and_noise_half_its_confidence_interval():
    runs = pd.DataFrame(
        {
            "row": ["base"] * 3 + ["x"] * 3 + ["y"] * 2 + ["z"],
            "seed": [1, 2, 3] * 2 + [3, 1] + [4],
            "BLEU": [1.0, 20, 3, 4, 22, 4, 5, 6, 7],
        }
    )
    found = gain_over_base(
        runs, "BLEU"
    )  # x is 3, 2 and 1 ahead, y 5 and 2, z has no base of its seed
    assert found["gain"].drop("z").to_dict() == {"x": 2, "y": 3.5}
    pooled = (2 * 1 + 1 * 4.5) / 3  # variances 1 and 4.5, with 2 and 1 degrees of freedom
    t = 3.1824  # as tables of Student's distribution have it: 95 %, 3 degrees of freedom
    assert found.loc["x", "noise"] == pytest.approx(t * (pooled / 3) ** 0.5, rel=1e-4)
    assert found.loc["y", "noise"] == pytest.approx(t * (pooled / 2) ** 0.5, rel=1e-4)
    assert math.isnan(found.loc["z", "gain"]) and list(found.index) == ["x", "y", "z"]


# Two-sided 95 %, by degrees of freedom, as printed in tables of Student's distribution.
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 10: 2.228, 30: 2.042, 120: 1.980}


@pytest.mark.parametrize("freedom", STUDENT)
def test_quantiles_of_student_are_those_of_the_tables(freedom):
    assert student_quantile(freedom) == pytest.approx(STUDENT[freedom], abs=6e-4)


def test_quantiles_of_student_are_those_of_scipy():
    t = pytest.importorskip("scipy.stats").t
    for freedom in range(1, 60):
        for share in 0.5, 0.95, 0.999:
            expected = t.ppf((1 + share) / 2, freedom)
            assert student_quantile(freedom, share) == pytest.approx(expected, rel=1e-9)
    assert math.isnan(student_quantile(0))


def test_perplexity_is_compared_in_nats_and_less_is_better():
    runs = pd.DataFrame({"row": ["base", "x"], "seed": [1, 1], "perplexity": [5.0, 4.0]})
    found = gain_over_base(runs, "perplexity").loc["x"]
    assert found["gain"] == pytest.approx(math.log(5 / 4))
    assert math.isnan(found["noise"])  # nobody knows, with one run each
    with pytest.raises(ValueError, match="base"):
        gain_over_base(runs[runs["row"] == "x"], "perplexity")


@pytest.mark.parametrize(
    "paper, ours, said",
    [
        (-0.9, -0.6, "same direction"),
        (0.4, 0.6, "same direction"),
        (-0.9, 0.6, "opposite"),
        (-0.9, -0.5, "within noise"),
        (0.0, 0.1, "within noise"),
        (0.0, 0.6, "no direction in the paper"),
        (-0.9, math.nan, "not known"),
    ],
)
def test_a_direction_counts_beyond_the_noise_alone(paper, ours, said):
    assert compare_direction(paper, ours, noise=0.5) == said
    assert compare_direction(paper, ours, noise=math.nan) == "not known"
