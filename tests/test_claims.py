"""The ledger: how verdicts are made, that they turn, and how they are shown."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from annotated import claims, data, optimizer
from annotated.claims import CLAIMS, KINDS, VERDICTS, Claim, Evidence, as_html, decide, ledger
from annotated.embeddings import Embeddings

CHAPTERS = Path(__file__).resolve().parent.parent / "chapters"
RESULTS = CHAPTERS.parent / "data" / "results"


def entry(check, kind: str = "exact") -> Claim:
    return Claim("x", "9", kind, "Nine is odd.", "1-introduction", check)


def test_the_paper_is_covered():
    assert len(CLAIMS) >= 80
    assert {claim.kind for claim in CLAIMS.values()} == set(KINDS)
    parts = {claim.section.split(".")[0] for claim in CLAIMS.values()}
    assert parts == {"abstract", "1", "2", "3", "4", "5", "6", "7"}
    for claim in CLAIMS.values():
        assert re.fullmatch(r"[\w.-]+", claim.id) and claim.statement.endswith(".")
        assert (claim.kind == "full-scale") == bool(claim.command)


def test_links_lead_to_headings():
    for claim in CLAIMS.values():
        page, _, anchor = claim.where.partition("#")
        text = (CHAPTERS / f"{page}.md").read_text(encoding="utf-8")
        titles = re.findall(r"^#{2,3} (.+)$", text, flags=re.MULTILINE)
        slugs = {re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") for title in titles}
        assert not anchor or anchor in slugs | set(re.findall(r"^\((.+)\)=$", text, re.MULTILINE))


def test_every_check_stands_on_the_page_of_checks():
    text = (CHAPTERS / "checks.md").read_text(encoding="utf-8")
    names = [claim.check.__name__ for claim in CLAIMS.values()]
    assert len(set(names)) == len(names)
    assert set(names) <= set(re.findall(r"^def (\w+)", text, flags=re.MULTILINE))


def test_links_of_the_page_of_claims_lead_to_headings():
    text = (CHAPTERS / "claims.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([\w-]+)\.md#([\w-]+)\)", text)
    assert len(links) >= 10
    for page, anchor in links:
        there = (CHAPTERS / f"{page}.md").read_text(encoding="utf-8")
        titles = re.findall(r"^#{2,3} (.+)$", there, flags=re.MULTILINE)
        assert anchor in {re.sub(r"[^a-z0-9]+", "-", t.lower()).strip("-") for t in titles}, anchor


def missing() -> tuple[bool, str]:
    raise FileNotFoundError(2, "no such file", "/somewhere/run.json")


@pytest.mark.parametrize(
    ("check", "kind", "verdict", "numbers"),
    [
        (lambda: Evidence(True, "9 = 2·4 + 1"), "exact", "holds", "9 = 2·4 + 1"),
        (lambda: Evidence(True, "n"), "small-scale", "holds at small scale", "n"),
        (lambda: Evidence(False, "n"), "small-scale", "not reproduced here", "n"),
        (lambda: Evidence(False, "n"), "exact", "differs", "n"),
        (lambda: Evidence(False, "n"), "full-scale", "differs", "n"),
        (lambda: Evidence(None, "too noisy"), "small-scale", "open", "too noisy"),
        (missing, "full-scale", "open", "run.json is not there yet"),
    ],
)
def test_a_verdict_follows_from_kind_and_evidence(check, kind, verdict, numbers):
    found = decide(entry(check, kind))
    assert found[0] == verdict and numbers in found[1]
    assert verdict in VERDICTS


def test_a_check_that_breaks_is_an_error_and_no_verdict(monkeypatch):
    broken = entry(lambda: Evidence(bool(1 / 0), ""))
    monkeypatch.setitem(CLAIMS, "x", broken)
    for ask in lambda: decide(broken), lambda: ledger("9"):
        with pytest.raises(ZeroDivisionError):
            ask()


def test_every_verdict_has_a_sign_and_a_colour():
    css = (CHAPTERS.parent / "book" / "static" / "book.css").read_text(encoding="utf-8")
    assert set(claims.MARKS) == set(VERDICTS) and len(set(claims.MARKS.values())) == len(VERDICTS)
    coloured = re.findall(r'tr\[data-verdict="(.*?)"\] { --verdict: (#\w+); }', css)
    assert {verdict for verdict, _ in coloured} | {"holds"} == set(VERDICTS)
    assert len({colour for _, colour in coloured}) == len(VERDICTS) - 1


def test_a_claim_is_entered_once_and_under_a_known_kind():
    for id, kind in ("s3.3-eq2", "exact"), ("new", "likely"):
        with pytest.raises(ValueError, match="expected a new id and a kind out of"):
            claims.claim(id, "3.3", kind, "A statement.", "3-3-feed-forward")


def test_a_section_has_its_subsections_and_no_others():
    sections = set(ledger("3.3")["section"]) | set(ledger("3.5")["section"])
    assert sections == {"3.3", "3.5"}
    assert {"3.1", "3.3"} <= {c.section for c in CLAIMS.values() if c.section.startswith("3.")}


TRAINED_OR_TIMED = {
    "s2-hard", "s3.2.1-faster", "s3.2.1-small-dk", "s3.2.1-large-dk", "s3.2.1-scale",
    "s3.2.2-jointly", "s3.5-relative", "s3.5-extrapolate",
}  # fmt: skip


def verdicts() -> dict[str, str]:
    """All verdicts that need no training and no clock."""
    return {id: decide(c)[0] for id, c in CLAIMS.items() if id not in TRAINED_OR_TIMED}


def test_what_is_left_out_exists_and_trains_or_takes_time():
    left_out = [CLAIMS[id].kind for id in TRAINED_OR_TIMED]
    assert set(left_out) == {"small-scale", "measured"} and len(left_out) < len(CLAIMS) / 10


def test_broken_code_turns_its_verdicts_and_no_others(monkeypatch: pytest.MonkeyPatch):
    before, state = verdicts(), torch.random.get_rng_state()
    assert before["s3.5-range"] == "differs" and before["abs-ende-bleu"] == "open"
    with monkeypatch.context() as broken:
        broken.setattr(Embeddings, "forward", lambda self, x: self.lut(x))  # no √d_model
        broken.setattr(optimizer, "rate", lambda *args, **options: 1e-3)  # no schedule
        last = lambda paths: {"w": load_file(paths[-1])["model.w"]}  # no mean
        broken.setattr(claims, "average_checkpoints", last)
        after = verdicts()
    assert verdicts() == before
    turned = {id for id in before if before[id] != after[id]}
    assert turned == {"s3.4-root", "s5.3-eq3", "s6.1-average"}
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.fixture
def elsewhere(monkeypatch, tmp_path: Path) -> Path:
    """The folder of logs that come with the package; the reader's own folder has none."""
    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path / "own")
    monkeypatch.setattr(claims, "shipped", lambda name: tmp_path)
    return tmp_path


def test_a_log_of_the_reader_s_comes_before_that_of_the_package(elsewhere: Path):
    text = claims.TEXTS["compound-split"]
    for folder, score in (elsewhere, "28.2"), (elsewhere / "own" / "data" / "results", "26.9"):
        folder.mkdir(parents=True, exist_ok=True)
        row = f'{{"split": "test", "text": "{text}", "score": {score}}}'
        (folder / "big-en-de.json").write_text(f"[{row}]")
        verdict, numbers = decide(CLAIMS["abs-ende-bleu"])
        assert numbers.startswith(score) and verdict == ("holds" if score == "28.2" else "differs")


def test_a_missing_log_leaves_open_and_a_run_decides(elsewhere, tmp_path: Path):
    assert decide(CLAIMS["abs-ende-bleu"]) == ("open", "big-en-de.json is not there yet")
    text = claims.TEXTS["compound-split"]
    for score, verdict in ("28.2", "holds"), ("26.9", "differs"):
        row = f'{{"split": "test", "text": "{text}", "score": {score}}}'
        (tmp_path / "big-en-de.json").write_text(f"[{row}]")
        assert decide(CLAIMS["abs-ende-bleu"])[0] == verdict


def log_of(id: str) -> tuple[str, object]:
    """The log that decides a full-scale claim, with a number far from the paper's."""
    evaluated = {"split": "test", "text": "", "score": 1.0, "perplexity": 1.0}
    name = {
        "abs-ende-bleu": "big-en-de.json", "abs-enfr-bleu": "big-en-fr.json",
        "t3-base-dev": "base-dev.json", "t3-big-dev": "big-dev.json",
        "s5.1-ende-size": "wmt14-en-de-pairs.json", "s5.1-enfr-size": "wmt14-en-fr-pairs.json",
        "s6.3-wsj": "parser-wsj.json", "s6.3-semi": "parser-semi.json",
    }[id]  # fmt: skip
    if id.startswith("s5.1"):
        return name, 7
    if id.startswith("s6.3"):
        return name, [{"split": "test", "sentences": "all", "Bracketing FMeasure": 1.0}]
    kind = "tokenized" if id == "abs-enfr-bleu" else "compound-split"
    split = "dev" if name.endswith("-dev.json") else "test"
    return name, [{**evaluated, "split": split, "text": claims.TEXTS[kind]}]


FULL = sorted(id for id, c in CLAIMS.items() if c.kind == "full-scale" and id != "t2-base")


@pytest.mark.parametrize("id", FULL)
def test_a_log_that_cannot_tell_leaves_a_claim_open(id: str, elsewhere, tmp_path: Path):
    name, whole = log_of(id)
    assert f"data/results/{name}" in CLAIMS[id].command or "count_pairs" in CLAIMS[id].command
    text = json.dumps(whole)
    other = text.replace('"split": "', '"split": "another ') if "split" in text else "[]"
    for bad in "", text[:-1] + "{", "[]", other, text.replace("1.0", "null").replace("7", "null"):
        (tmp_path / name).write_text(bad)
        verdict, numbers = decide(CLAIMS[id])
        assert verdict == "open" and numbers.startswith(f"{name} is empty, damaged or not complete")
    (tmp_path / name).write_text(text)
    assert decide(CLAIMS[id])[0] == "differs"


def test_a_row_or_a_column_that_logs_lack_leaves_their_claims_open(elsewhere, tmp_path: Path):
    readers = {
        "variations.csv": ("D: label_smoothing = 0.0,", {"s5.4-bleu"}),
        "regularization.csv": (",0.3,0.1,", {"s5.4-bleu", "t3-D-dropout"}),
        "craft-parser-baselines.csv": ("right-branching,", {"abs-parsing"}),
        "general-en-fr-heads.json": ('"pronoun": "all"', {"s4-heads-meaning"}),
    }
    for name, (mark, ids) in readers.items():
        shutil.copytree(RESULTS, tmp_path, dirs_exist_ok=True)
        whole = (tmp_path / name).read_text()
        assert mark in whole
        lines = [line for line in whole.splitlines() if mark not in line]
        lacks = "\n".join(lines) if name.endswith(".csv") else whole.replace(mark, '"x": "y"')
        for text in lacks, "", whole[: len(whole) // 9]:
            (tmp_path / name).write_text(text)
            for id in ids:
                verdict, numbers = decide(CLAIMS[id])
                assert verdict == "open" and numbers.startswith(f"{name} is empty"), (id, numbers)


@pytest.mark.parametrize(
    ("lead", "verdict"),
    [((5.0, 0.1), "holds at small scale"), ((0.1, 5.0), "open"), ((-5.0, 0.1), "open")],
)
def test_smoothing_gains_bleu_if_both_trainings_say_so(monkeypatch, lead, verdict: str):
    monkeypatch.setattr(claims, "_lead", lambda row, measure="BLEU": lead)
    assert decide(CLAIMS["s5.4-bleu"])[0] == verdict


@pytest.mark.parametrize(
    ("lead", "verdict"),
    [
        ((0.1, 5.0), "holds at small scale"),
        ((-0.1, 5.0), "holds at small scale"),
        ((-5.0, 0.1), "open"),
    ],
)
def test_dropout_that_lost_in_the_small_table_would_leave_its_claim_open(
    monkeypatch, lead, verdict: str
):
    monkeypatch.setattr(claims, "_lead", lambda row, measure="BLEU": lead)
    assert decide(CLAIMS["t3-D-dropout"])[0] == verdict


@pytest.mark.parametrize(
    ("additive", "verdict"),
    [
        ({4: 0.10, 64: 0.12}, "holds at small scale"),
        ({4: 0.30, 64: 0.10}, "open"),
        ({4: 0.10, 64: 0.30}, "open"),
        ({4: 0.30, 64: 0.40}, "differs"),
    ],
)
def test_scorers_at_small_width_are_judged_if_both_hidden_layers_agree(
    monkeypatch, additive: dict[int, float], verdict: str
):
    def error(scores: str, d_k: int, lr: float, steps: int, hidden: int | None) -> float:
        return 0.11 if hidden is None else additive[hidden]

    monkeypatch.setattr(claims, "_retrieval_error", error)
    assert decide(CLAIMS["s3.2.1-small-dk"])[0] == verdict


def test_by_bleu_two_claims_of_table_3_would_stay_open():
    """What the page says of the two that perplexity decides."""
    for names in (["A: h = 32"], ["B: d_k = 16", "B: d_k = 32"]):
        by = {
            m: claims._decided(*(claims._lead(n, m) for n in names)) for m in ("BLEU", "perplexity")
        }
        assert by == {"BLEU": None, "perplexity": True}


def test_pairs_are_counted_as_they_pass(elsewhere, monkeypatch, tmp_path: Path):
    """The counting command agrees with `load_pairs`, on parts in an archive and beside it."""
    lines = {"en": [b"a dog"] * 10_050 + [b"", b"a cat", b"\xff"], "de": [b"ein Hund"] * 10_053}
    for lang, side in lines.items():
        (tmp_path / f"a.{lang}").write_bytes(b"\n".join(side) + b"\n")
    with tarfile.open(tmp_path / "b.tar", "w") as archive:
        for lang in lines:
            archive.add(tmp_path / f"a.{lang}", arcname=f"in/a.{lang}")
    parts = [("a.en", "a.de"), ("b.tar/in/a.en", "b.tar/in/a.de")]
    for module in claims, data:
        monkeypatch.setattr(module, "corpus_parts", lambda *of: parts)
        monkeypatch.setattr(module, "corpus_file", lambda of, name, fetch=None: tmp_path / name)
    with pytest.warns(UserWarning, match="good pairs"):
        loaded = len(data.load_pairs("wmt14-en-de", "train", "en", "de")[0])
    assert claims.count_pairs("wmt14-en-de", "en", "de") == loaded == 2 * 10_051
    assert decide(CLAIMS["s5.1-ende-size"]) == ("differs", "0.02 million pairs")
    log = Path("data/results/wmt14-en-de-pairs.json")  # where the reader is, not in the package
    assert json.loads(log.read_text()) == loaded and not list(tmp_path.rglob("*.part"))


def test_the_table_escapes_and_links():
    row = {
        "id": "x", "section": "3.2.1", "kind": "exact", "statement": "n < d", "verdict": "holds",
        "numbers": "1 & 2", "where": "3-2-attention#equation-1", "command": "a\nb",
        "check": "_shorter",
    }  # fmt: skip
    table = as_html([row])
    assert "n &lt; d" in table and "1 &amp; 2" in table
    assert "<code><span>a</span>\n<span>b</span></code>" in table
    assert 'href="3-2-attention.html#equation-1"' in table and 'data-verdict="holds"' in table
    assert '<a href="checks.html#claims._shorter">✓ holds</a>' in table
    board = claims.scoreboard([row, {**row, "verdict": "open", "section": "3.2.2"}])
    assert board.count("verdict=open&amp;section=3.2#the-ledger") == 1
    small = claims.scoreboard([{**row, "verdict": "holds at small scale"}])
    assert "verdict=holds%20at%20small%20scale&amp;" in small


def test_rows_of_the_ledger_name_their_checks():
    (row,) = ledger("5.2").to_dict("records")
    assert row["check"] == "_steps_make_hours"
    assert 'href="checks.html#claims._steps_make_hours"' in as_html([row])


@pytest.mark.parametrize(
    ("section", "where", "pages"),
    [
        ("5.2", "1-introduction#twelve-hours", {"1-introduction", "5-2-hardware-schedule"}),
        ("7", "6-1-machine-translation#x", {"7-conclusion", "6-1-machine-translation"}),
        ("3.2.1", "3-2-attention", {"3-2-attention"}),
        ("3", "3-model-architecture", {"3-model-architecture"}),
        ("abstract", "2-background", {"2-background"}),
    ],
)
def test_a_chapter_shows_the_claims_of_its_section_and_those_that_lead_to_it(section, where, pages):
    pytest.importorskip("sphinx", reason="needs the extra `book`")
    pytest.importorskip("vl_convert", reason="needs the extra `book`")
    from extension import belongs

    row = {"section": section, "where": where}
    chapters = {path.stem for path in CHAPTERS.glob("*.md")}
    assert {page for page in chapters if belongs(row, page)} == pages
