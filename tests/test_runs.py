"""Runs of the paper's size: their commands, and what is said of their logs."""

from __future__ import annotations

import json
import shlex
import tarfile
from pathlib import Path

import pytest

from annotated.machinery import corpora, runs
from annotated.machinery.cli import build_parser
from annotated.machinery.runs import WantedRun, count_pairs, wanted_runs
from annotated.machinery.scoring import BLEU_KINDS

WANTED = {run.id: run for run in wanted_runs()}


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of logs that come with the package; the reader's own folder has none."""
    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path / "own")
    monkeypatch.setattr(runs, "resource_path", lambda name: tmp_path)
    return tmp_path


def log_of(run: WantedRun, number: float) -> object:
    """A log as the run's last command writes it."""
    if not run.entry:
        return number
    return [{"split": "none"}, {**run.entry, **dict.fromkeys(run.columns, number)}]


def test_ids_are_unique_and_the_paper_s_numbers_are_its_tables():
    assert len(WANTED) == len(wanted_runs()) == 13
    printed = {"big-en-de": 28.4, "big-en-fr": 41.8, "base-en-de": 27.3, "base-en-fr": 38.1}
    printed |= {"base-dev": 25.8, "big-dev": 26.4, "parser-wsj": 91.3, "parser-semi": 92.7}
    printed |= {"a-h-1-dev": 24.9, "d-label-smoothing-0-0-dev": 25.3}
    printed |= {"e-positions-learned-dev": 25.7}
    printed |= {"wmt14-en-de": 4.5, "wmt14-en-fr": 36}
    assert {id: run.paper for id, run in WANTED.items()} == printed
    for run in WANTED.values():
        assert f"{run.paper}" in run.wanted


@pytest.mark.parametrize("id", WANTED)
def test_a_command_can_be_given_and_ends_in_the_log(
    id: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.chdir(tmp_path)
    written: list[str] = []
    monkeypatch.setattr(runs, "split_parts", lambda *given: [])
    monkeypatch.setattr(runs, "write_text", lambda path, text: written.append(path.name))
    for line in WANTED[id].command.replace("\\\n", "").split("\n"):
        words = shlex.split(line)
        if words[0] == "python":
            exec(words[2])
            assert written == [WANTED[id].log]
            return
        words = words[words.index("annotated") + 1 :]
        asked = build_parser().parse_args(words)  # ends the program if it knows an option not
    assert Path(asked.out) == Path("data/results", WANTED[id].log)


@pytest.mark.parametrize("id", WANTED)
def test_a_log_decides_by_its_distance_from_the_paper(id: str, elsewhere: Path):
    run = WANTED[id]
    assert run.found() == "nobody has"
    for away, verdict in (0, "holds"), (0.9, "holds"), (-0.9, "holds"), (1.1, "differs"):
        number = run.paper + away * run.within
        text = json.dumps(log_of(run, number * run.scale))
        (elsewhere / run.log).write_text(text)
        found = run.found()
        assert found.startswith(f"{verdict}: {number:.2f} {run.unit}")
        assert found.endswith(f"; the paper {run.paper:g}")
        assert ("perplexity" in found) == id.endswith("-dev")


@pytest.mark.parametrize("id", WANTED)
def test_a_log_that_cannot_tell_decides_nothing(id: str, elsewhere: Path):
    run = WANTED[id]
    text = json.dumps(log_of(run, 7.0))
    other = text.replace('"split": "', '"split": "another ') if run.entry else "[]"
    for bad in "", text[:-1] + "{", "[]", "{}", other, text.replace("7.0", "null"):
        (elsewhere / run.log).write_text(bad)
        assert run.found() == f"{run.log} is empty, damaged or not complete"


def test_a_log_of_the_reader_s_comes_before_that_of_the_package(elsewhere: Path):
    row = {"split": "test", "text": BLEU_KINDS["compound-split"]}
    own = elsewhere / "own" / "data" / "results"
    own.mkdir(parents=True)
    for folder, score, verdict in (elsewhere, 28.2, "holds"), (own, 26.9, "differs"):
        (folder / "big-en-de.json").write_text(json.dumps([{**row, "score": score}]))
        assert WANTED["big-en-de"].found() == f"{verdict}: {score:.2f} BLEU; the paper 28.4"


def test_pairs_are_counted_as_they_pass(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """The counting command agrees with `load_pairs`, on parts in an archive and beside it."""
    lines = {"en": [b"a dog"] * 10_050 + [b"", b"a cat", b"\xff"], "de": [b"ein Hund"] * 10_053}
    for lang, side in lines.items():
        (tmp_path / f"a.{lang}").write_bytes(b"\n".join(side) + b"\n")
    with tarfile.open(tmp_path / "b.tar", "w") as archive:
        for lang in lines:
            archive.add(tmp_path / f"a.{lang}", arcname=f"in/a.{lang}")
    parts = [("a.en", "a.de"), ("b.tar/in/a.en", "b.tar/in/a.de")]
    monkeypatch.setattr(corpora, "corpus_parts", lambda *of: parts)
    monkeypatch.setattr(corpora, "corpus_file", lambda of, name, *how: tmp_path / name)
    with pytest.warns(UserWarning, match="good pairs"):
        loaded = len(corpora.load_pairs("wmt14-en-de", "train", "en", "de")[0])
    assert count_pairs("wmt14-en-de", "en", "de") == loaded == 2 * 10_051
    assert WANTED["wmt14-en-de"].found() == "differs: 0.02 million pairs; the paper 4.5"
    log = Path("data/results/wmt14-en-de-pairs.json")  # where the reader is, not in the package
    assert json.loads(log.read_text()) == loaded and not list(tmp_path.rglob("*.part"))
