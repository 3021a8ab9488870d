"""The ledger: how verdicts are made, that they turn, and how they are shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from annotated import claims, optimizer
from annotated.claims import CLAIMS, KINDS, VERDICTS, Claim, Evidence, as_html, decide, ledger
from annotated.embeddings import Embeddings

CHAPTERS = Path(__file__).resolve().parent.parent / "chapters"


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


def missing() -> tuple[bool, str]:
    raise FileNotFoundError(2, "no such file", "/somewhere/run.json")


@pytest.mark.parametrize(
    ("check", "kind", "verdict", "numbers"),
    [
        (lambda: Evidence(True, "9 = 2·4 + 1"), "exact", "holds", "9 = 2·4 + 1"),
        (lambda: Evidence(True, "n"), "small-scale", "holds at small scale", "n"),
        (lambda: Evidence(False, "n"), "small-scale", "differs", "n"),
        (lambda: Evidence(None, "too noisy"), "small-scale", "open", "too noisy"),
        (missing, "full-scale", "open", "run.json is not there yet"),
        (lambda: Evidence(bool(1 / 0), ""), "exact", "differs", "ZeroDivisionError"),
    ],
)
def test_a_verdict_follows_from_kind_and_evidence(check, kind, verdict, numbers):
    found = decide(entry(check, kind))
    assert found[0] == verdict and numbers in found[1]
    assert verdict in VERDICTS


def test_a_claim_is_entered_once_and_under_a_known_kind():
    for id, kind in ("s3.3-eq2", "exact"), ("new", "likely"):
        with pytest.raises(ValueError, match="expected a new id and a kind out of"):
            claims.claim(id, "3.3", kind, "A statement.", "3-3-feed-forward")


def test_a_section_has_its_subsections_and_no_others():
    sections = set(ledger("3.3")["section"]) | set(ledger("3.5")["section"])
    assert sections == {"3.3", "3.5"}
    assert {"3.1", "3.3"} <= {c.section for c in CLAIMS.values() if c.section.startswith("3.")}


def verdicts() -> dict[str, str]:
    """All verdicts that need no training."""
    return {
        id: decide(c)[0] for id, c in CLAIMS.items() if c.kind not in ("small-scale", "measured")
    }


def test_broken_code_turns_its_verdicts_and_no_others(monkeypatch: pytest.MonkeyPatch):
    before, state = verdicts(), torch.random.get_rng_state()
    assert before["s3.5-range"] == "differs" and before["abs-ende-bleu"] == "open"
    with monkeypatch.context() as broken:
        broken.setattr(Embeddings, "forward", lambda self, x: self.lut(x))  # no √d_model
        broken.setattr(optimizer, "rate", lambda *args, **options: 1e-3)  # no schedule
        broken.setattr(claims, "average_checkpoints", lambda paths: load_file(paths[-1]))  # no mean
        after = verdicts()
    assert verdicts() == before
    turned = {id for id in before if before[id] != after[id]}
    assert turned == {"s3.4-root", "s5.3-eq3", "s6.1-average"}
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_missing_log_leaves_open_and_a_run_decides(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(claims, "shipped", lambda name: tmp_path)
    assert decide(CLAIMS["abs-ende-bleu"]) == ("open", "big-en-de.json is not there yet")
    text = claims.TEXTS["compound-split"]
    for score, verdict in ("28.2", "holds"), ("26.9", "differs"):
        row = f'{{"split": "test", "text": "{text}", "score": {score}}}'
        (tmp_path / "big-en-de.json").write_text(f"[{row}]")
        assert decide(CLAIMS["abs-ende-bleu"])[0] == verdict


def test_the_table_escapes_and_links():
    row = {
        "id": "x", "section": "3.2.1", "kind": "exact", "statement": "n < d", "verdict": "holds",
        "numbers": "1 & 2", "where": "3-2-attention#equation-1", "command": "a\nb",
    }  # fmt: skip
    table = as_html([row])
    assert "n &lt; d" in table and "1 &amp; 2" in table
    assert "<code><span>a</span>\n<span>b</span></code>" in table
    assert 'href="3-2-attention.html#equation-1"' in table and 'data-verdict="holds"' in table
    board = claims.scoreboard([row, {**row, "verdict": "open", "section": "3.2.2"}])
    assert board.count("verdict=open&amp;section=3.2#the-ledger") == 1
