"""The page of runs wanted: its commands can be given, and its verdicts follow from the logs."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import jupytext
import pytest

from annotated.machinery.cli.main import build_parser
from annotated.training import TrainingConfig, model_config, preset
from annotated.variations import row_config, table_3

PAGE: dict[str, Any] = {}
for cell in jupytext.read(Path(__file__).parents[1] / "chapters" / "claims.md").cells:
    if cell.cell_type == "code":
        exec(cell.source, PAGE)
RUNS = PAGE["runs"]


def test_the_papers_numbers_are_those_of_its_tables():
    assert {name: run[2] for name, run in RUNS.items()} == {
        "big-en-de": 28.4, "big-en-fr": 41.8, "base-en-de": 27.3, "base-en-fr": 38.1,
        "base-dev": 25.8, "big-dev": 26.4, "a-h-1-dev": 24.9, "d-label-smoothing-0-0-dev": 25.3,
        "e-positions-learned-dev": 25.7, "parser-wsj": 91.3, "parser-semi": 92.7,
        "wmt14-en-de-pairs": 4.5, "wmt14-en-fr-pairs": 36,
    }  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_a_command_can_be_given_and_ends_in_the_log(name: str):
    asked = None
    for line in RUNS[name][4].split("\n"):
        words = shlex.split(line)
        if words[0] == "cp":
            assert asked.out == str(Path(words[1]).parent)  # the folder that prepare wrote
            assert words[2] == f"data/results/{name}.json"
            return
        arguments = words[words.index("annotated") + 1 :]
        asked = build_parser(arguments).parse_args(arguments)
    assert asked.out == f"data/results/{name}.json"


@pytest.mark.parametrize("row", ["base", "big", "A: h = 1", "E: positions = learned"])
def test_a_command_trains_the_row_of_table_3(row: str):
    command = next(run[4] for run in RUNS.values() if run[1].startswith(f"{row} scores"))
    words = shlex.split(command.split("\n")[0])
    arguments = words[words.index("annotated") + 1 :]
    asked = vars(build_parser(arguments).parse_args(arguments))
    given = {key: asked[key] for key in TrainingConfig.__dataclass_fields__ if key in asked}
    config, printed = preset(asked["preset"], **given), table_3().loc[row]
    width = config.d_model // config.h
    full = replace(config, d_k=config.d_k or width, d_v=config.d_v or width)
    assert model_config(full) == row_config(row) and config.average == 1
    assert config.updates == printed.train_steps
    assert config.label_smoothing == printed.label_smoothing


@pytest.mark.parametrize("name", RUNS)
def test_a_log_decides_by_its_distance_from_the_paper(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert PAGE["found"](name) == "not run yet"
    log = tmp_path / "data" / "results" / f"{name}.json"
    log.parent.mkdir(parents=True)
    paper, entry = RUNS[name][2], RUNS[name][5]
    between = "undecided" if RUNS[name][3] == "BLEU" else "differs"
    for away, verdict in (0.01, "holds"), (0.55, between), (-1.0, "differs"):
        scores = {"score": paper + away, "Bracketing FMeasure": paper + away}
        content = {"pairs": {"train": int((paper + away) * 1e6)}}
        log.write_text(json.dumps([{"split": "none"}, {**entry, **scores}] if entry else content))
        assert PAGE["found"](name).startswith(f"{verdict}: {paper + away:.2f}")
