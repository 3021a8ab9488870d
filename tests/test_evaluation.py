"""Section 6.1: BLEU against sacreBLEU, published scores, and the corpus' own tokenized files."""

import json
import os
from pathlib import Path

import pytest
import sacrebleu

from annotated import evaluation
from annotated.data import read_lines, shipped
from annotated.evaluation import bleu, evaluate, lower_tokenise

REFERENCE = [
    "Ein Mann fährt auf einem Fahrrad durch die Stadt.",
    "Zwei Hunde spielen am Strand, im Sand.",
    "Die Frau sagt: „Guten Morgen!“",
]
OUTPUT = [
    "Ein Mann fährt mit dem Fahrrad durch die Stadt.",
    "Zwei hunde spielen am Strand im Sand.",
    "Die Frau sagt „Guten Tag!“",
]


def folder(name: str) -> Path:
    """A folder of ANNOTATED_DATA."""
    if "ANNOTATED_DATA" not in os.environ:
        pytest.skip("no corpora at hand: ANNOTATED_DATA is not set")
    path = Path(os.environ["ANNOTATED_DATA"]) / name
    if not path.is_dir():
        pytest.skip(f"ANNOTATED_DATA has no folder {name}")
    return path


@pytest.mark.parametrize("lower", [False, True])
def test_the_reference_itself_scores_a_hundred(lower: bool):
    assert bleu(REFERENCE, REFERENCE, "de", lower)["score"] == pytest.approx(100)
    shouted = [line.upper() for line in REFERENCE]
    assert (bleu(shouted, REFERENCE, "de", lower)["score"] > 99) == lower


def test_cased_scores_are_sacrebleus():
    expected = sacrebleu.corpus_bleu(OUTPUT, [REFERENCE]).score
    assert 10 < expected < 90
    found = bleu(OUTPUT, REFERENCE, "de")
    assert found["score"] == pytest.approx(expected)
    for part in "nrefs:1", "case:mixed", "eff:no", "tok:13a", "smooth:exp", "version:":
        assert part in found["signature"]


def test_lower_cased_scores_count_words_of_tokenized_text():
    sides = [lower_tokenise(side, "de") for side in (OUTPUT, REFERENCE)]
    expected = sacrebleu.corpus_bleu(sides[0], [sides[1]], tokenize="none", force=True).score
    found = bleu(OUTPUT, REFERENCE, "de", lower_tokenised=True)
    assert found["score"] == pytest.approx(expected)
    assert "tok:none" in found["signature"]
    assert found["score"] > bleu(OUTPUT, REFERENCE, "de")["score"]  # "hunde" is right now


def test_lower_tokenise():
    assert lower_tokenise(["Ein Mann, zwei Hunde."], "de") == ["ein mann , zwei hunde ."]
    assert lower_tokenise(["L'homme n'est pas là."], "fr") == ["l&apos; homme n&apos; est pas là ."]
    assert lower_tokenise([], "de") == []


@pytest.mark.parametrize("lower", [False, True])
def test_unequal_numbers_are_refused(lower: bool):
    with pytest.raises(ValueError, match="expected 3 translations; got 2"):
        bleu(OUTPUT[:2], REFERENCE, "de", lower)


def test_every_split_is_scored_in_both_ways(monkeypatch: pytest.MonkeyPatch):
    class Fixed:
        def translate_all(self, sentences: list[str], **options: object) -> list[str]:
            assert sentences == ["a", "b", "c"]
            return OUTPUT

    monkeypatch.setattr(evaluation, "load_pairs", lambda *names: (["a", "b", "c"], REFERENCE))
    rows = evaluate(Fixed(), "multi30k", "dev", "en", "de")
    assert [row["text"] for row in rows] == ["cased, detokenized", "lower-cased, tokenized"]
    for lower, row in zip((False, True), rows, strict=True):
        assert {key: row[key] for key in ("corpus", "split", "pair", "sentences")} == {
            "corpus": "multi30k",
            "split": "dev",
            "pair": "en-de",
            "sentences": 3,
        }
        assert {key: row[key] for key in ("score", "signature")} == bleu(
            OUTPUT, REFERENCE, "de", lower
        )


# ------------------------------------------------------------------------------------ real corpora


@pytest.mark.parametrize("lang", ["de", "en", "fr"])
@pytest.mark.parametrize("split", ["val", "test_2016_flickr"])
def test_tokenized_text_is_as_in_the_corpus_own_files(split: str, lang: str):
    corpus = folder("multi30k")
    raw = corpus / f"{split}.{lang}.gz"
    tokenized = corpus / f"{split}.lc.norm.tok.{lang}.gz"
    if not (raw.exists() and tokenized.exists()):
        pytest.skip(f"ANNOTATED_DATA/multi30k has not both {raw.name} and {tokenized.name}")
    ours, theirs = lower_tokenise(read_lines(raw), lang), read_lines(tokenized)
    equal = [one == other for one, other in zip(ours, theirs, strict=True)]
    assert sum(equal) >= 0.995 * len(equal)


@pytest.mark.parametrize(
    ("system", "score"), [("tensor2tensor", 26.34), ("marian", 27.40), ("sockeye", 27.50)]
)
def test_published_outputs_get_their_published_scores(system: str, score: float):
    outputs = folder("bleu")
    reference = read_lines(outputs / "ref.newstest2017.deu.gz")
    output = read_lines(outputs / f"transformer.{system}.en-de.detok.gz")
    assert len(reference) == 3004
    found = bleu(output, reference, "de")
    assert round(found["score"], 2) == score
    assert "tok:13a" in found["signature"]


def test_the_results_that_ship_are_complete():
    path = shipped("results") / "multi30k-en-de.json"
    if not path.exists():
        pytest.skip(f"no results in {path}")
    rows = json.loads(path.read_text(encoding="utf-8"))
    kinds = {(row["split"], row["text"]) for row in rows}
    texts = "cased, detokenized", "lower-cased, tokenized"
    assert kinds == {(split, text) for split in ("dev", "test") for text in texts}
    for row in rows:
        assert row["sentences"] == {"dev": 1014, "test": 1000}[row["split"]]
        assert 10 < row["score"] < 60
        assert ("tok:13a" in row["signature"]) == row["text"].startswith("cased")
