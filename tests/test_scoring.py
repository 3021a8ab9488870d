"""BLEU against sacreBLEU, NLTK, Moses' scripts and published scores; perplexity against one
piece at a time."""

import gzip
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import sacrebleu
import torch
from nltk.translate.bleu_score import corpus_bleu
from sacrebleu.significance import PairedTest

from annotated.attention import subsequent_mask
from annotated.data import END, START, train_bpe
from annotated.machinery import scoring
from annotated.machinery.corpora.texts import read_lines
from annotated.machinery.translator import Translator
from annotated.model import make_model

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
KINDS = "cased", "tokenized", "compound-split", "lower-tokenized"


def folder(name: str) -> Path:
    """A folder of ANNOTATED_DATA."""
    path = Path(os.environ["ANNOTATED_DATA"]) / name
    if not path.is_dir():
        pytest.skip(f"ANNOTATED_DATA has no folder {name}")
    return path


def test_cased_scores_are_sacrebleus():
    expected = sacrebleu.corpus_bleu(OUTPUT, [REFERENCE]).score
    assert 10 < expected < 90
    found = scoring.bleu(OUTPUT, REFERENCE, "de")
    assert found["score"] == pytest.approx(expected)
    for mark in "\u00ad", "\u200b", "\u200f", "\ufeff", " ", "\x1f", "\u3000":
        for ours in f"{mark}{OUTPUT[0]}", f"{OUTPUT[0]}{mark}", f"{mark} {OUTPUT[0]} {mark}":
            for sides in ([ours], OUTPUT[:1]), (REFERENCE[:1], [ours]):
                theirs = sacrebleu.corpus_bleu(sides[0], [sides[1]]).score
                assert scoring.bleu(*sides, "de")["score"] == pytest.approx(theirs)
    assert "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:" in found["signature"]


@pytest.mark.parametrize("kind", KINDS[1:])
def test_the_other_scores_count_words_of_tokenized_text(kind: str):
    words = lambda side: [x.split() for x in scoring.tokenize_for_bleu(side, "de", kind)]
    found = scoring.bleu(OUTPUT, REFERENCE, "de", kind)
    expected = 100 * corpus_bleu([[x] for x in words(REFERENCE)], words(OUTPUT))
    assert found["score"] == pytest.approx(expected)
    assert "tok:none" in found["signature"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (None, "NoneType"), ("Ein Hund", "string"), ({"a": "b"}, "dict"), ([], "0, 3|3, 0"),
        (OUTPUT[:2], "2, 3|3, 2"), (["a", None, "c"], "sentence 2 .*NoneType"),
    ],
)  # fmt: skip
def test_what_is_no_list_of_sentences_is_refused(translator, wrong: object, said: str):
    with pytest.raises(ValueError, match=said):
        scoring.bleu(wrong, REFERENCE, "de")
    with pytest.raises(ValueError, match=said):
        scoring.bleu(OUTPUT, wrong, "de", "tokenized")
    with pytest.raises(ValueError, match=said):
        scoring.likelihood(translator, wrong, REFERENCE)


def test_what_needs_mosess_tokenizer_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    assert 10 < scoring.bleu(OUTPUT, REFERENCE, "de")["score"] < 90
    for kind in KINDS[1:]:
        with pytest.raises(ImportError, match=r"annotated-attention\[scores\]"):
            scoring.bleu(OUTPUT, REFERENCE, "de", kind)
    with pytest.raises(ImportError, match=r"annotated-attention\[scores\]"):
        scoring.evaluate(
            None, "multi30k", "dev", "en", "de"
        )  # before anything is read or translated


def test_an_unknown_kind_or_language_is_refused():
    with pytest.raises(ValueError, match="'detok'"):
        scoring.bleu(OUTPUT, REFERENCE, "de", "detok")
    for lang in "german", "deu_Latn", "pt-br", "DE", "", None:
        with pytest.raises(ValueError, match="language"):
            scoring.bleu(OUTPUT, REFERENCE, lang)
        with pytest.raises(ValueError, match="language"):
            scoring.evaluate(None, "multi30k", "dev", "en", lang)  # before it translates


@pytest.mark.parametrize(
    ("lang", "ours", "theirs", "tokenizer"),
    [
        ("zh", "我喜欢吃苹果和香蕉。", "我很喜欢吃苹果和香蕉。", "zh"),
        ("ja", "私はりんごを食べるのが好きです。", "私はりんごを食べることが好きです。", "char"),
        ("th", "ฉันชอบกินกล้วยและแอปเปิล", "ฉันชอบกินแอปเปิลและกล้วย", "char"),
        ("km", "ខ្ញុំចូលចិត្តញ៉ាំចេក", "ខ្ញុំចូលចិត្តញ៉ាំផ្លែប៉ោម", "char"),
    ],
)
def test_a_language_without_spaces_is_scored_by_letters(lang, ours, theirs, tokenizer, tmp_path):
    found = scoring.bleu([ours], [theirs], lang)
    expected = sacrebleu.corpus_bleu([ours], [[theirs]], tokenize=tokenizer).score
    assert found["score"] == expected > 30
    assert f"tok:{tokenizer}|" in found["signature"]
    with pytest.raises(ValueError, match=f"{lang}.*cased"):
        scoring.bleu([ours], [theirs], lang, "tokenized")
    for name, line in ("ours", ours), ("theirs", theirs):
        (tmp_path / name).write_text(line + "\n", encoding="utf-8")
    row, chrf = scoring.score_files(tmp_path / "ours", tmp_path / "theirs", lang)
    assert row["score"] == found["score"]
    assert chrf["score"] == sacrebleu.corpus_chrf([ours], [[theirs]]).score


def test_moses_and_lower_case():
    said = ['Er sagt: "Ja, z. B. 3,5!"']
    found = scoring.tokenize_for_bleu(said, "de", "tokenized")
    assert found == ["Er sagt : &quot; Ja , z. B. 3,5 ! &quot;"]
    found = scoring.tokenize_for_bleu(["L'homme n'est pas là."], "fr", "lower-tokenized")
    assert found == ["l&apos; homme n&apos; est pas là ."]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # what perl -ple 's{(\S)-(\S)}{$1 ##AT##-##AT## $2}g' makes of Moses' tokens
        ("Rich-Text-Format", "Rich ##AT##-##AT## Text ##AT##-##AT## Format"),
        ("a-b-c", "a ##AT##-##AT## b-c"),  # b was used up by the first match
        ("Ein- und Ausgang", "Ein- und Ausgang"),
        ("1-2", "1 ##AT##-##AT## 2"),
        ("ja -- nein", "ja -- nein"),
        ("x---y", "x ##AT##-##AT## --y"),  # one match, and its characters are used up
        ("„Ja“", "&quot; Ja &quot;"),
        ("“Ja”", "&quot; Ja &quot;"),
        ("Peter’s", "Peter &apos; s"),
        ("warum…", "warum ..."),
    ],
)
def test_split_compounds(text: str, expected: str):
    assert scoring.tokenize_for_bleu([text], "de", "compound-split") == [expected]


@pytest.fixture(scope="module")
def translator() -> Translator:
    torch.manual_seed(0)
    tokenizer = train_bpe(REFERENCE + OUTPUT, 120)
    size = tokenizer.get_vocab_size()
    model = make_model(size, size, N=1, d_model=16, d_ff=32, h=2, dropout=0.3).eval()
    return Translator(model, tokenizer)


def alone(translator: Translator, source: str, reference: str) -> tuple[float, int, int]:
    """One sentence alone, one piece at a time, without padding, masks or batches."""
    encode = lambda text: translator.tokenizer.encode(text, add_special_tokens=False).ids
    src = torch.tensor([[*encode(source), END]])
    told, nats, right = [START], 0.0, 0
    for piece in [*encode(reference), END]:
        out = translator.model(src, torch.tensor([told]), None, subsequent_mask(len(told)))
        log_probs = translator.model.generator(out[:, -1])[0]
        nats -= log_probs[piece].item()
        right += log_probs.argmax().item() == piece
        told.append(piece)
    return nats, right, len(told) - 1


@pytest.mark.parametrize("batch_tokens", [60, 2000])
def test_perplexity_is_per_piece_with_the_end_counted(translator: Translator, batch_tokens: int):
    sources, references = ["Ein Mann.", "Zwei Hunde am Strand.", "Stadt"], REFERENCE
    each = [alone(translator, *pair) for pair in zip(sources, references, strict=True)]
    nats, right, pieces = (sum(column) for column in zip(*each, strict=True))
    found = scoring.likelihood(translator, sources, references, batch_tokens)
    assert found == (pytest.approx(nats, rel=1e-5), right, pieces)
    assert found.perplexity == pytest.approx(math.exp(nats / pieces))
    assert found.accuracy == right / pieces


class Fixed:
    """A translator of three sentences, which keeps what it was asked."""

    def translate(self, sentences: list[str], **options: object) -> list[str]:
        assert sentences == ["a", "b", "c"]
        self.options = options
        return OUTPUT


@pytest.mark.parametrize(
    ("beam", "alpha", "search", "tgt"),
    [(1, 0.6, "greedy", "de"), (2, 1, "beam 2, alpha 1", "fr")],
)
def test_every_split_is_scored_in_every_way(monkeypatch, beam, alpha, search, tgt):
    """Compounds are split in German only."""
    monkeypatch.setattr(scoring, "load_pairs", lambda *names, **_: (["a", "b", "c"], REFERENCE))
    monkeypatch.setattr(scoring, "likelihood", lambda *inputs: scoring.Likelihood(8.0, 1, 4))
    fixed = Fixed()
    rows = scoring.evaluate(fixed, "multi30k", "dev", "en", tgt, beam=beam, alpha=alpha)
    assert (fixed.options["beam"], fixed.options["alpha"]) == (beam, alpha)
    shared = {"corpus": "multi30k", "split": "dev", "pair": f"en-{tgt}", "sentences": 3}
    shared |= {"search": search, "perplexity": math.exp(8 / 4), "accuracy": 1 / 4}
    kinds = [kind for kind in KINDS if tgt == "de" or kind != "compound-split"]
    expect_rows(rows, shared, kinds, tgt)


def expect_rows(rows: list[dict], shared: dict, kinds: Sequence[str], lang: str) -> None:
    """A row per kind and one for chrF, with sacreBLEU's own numbers."""
    rows = [dict(row) for row in rows]
    *others, chrf = rows
    bleu, metric = sacrebleu.BLEU(), sacrebleu.CHRF()
    for row, kind in (rows[0], bleu), (chrf, metric):
        found = kind.corpus_score(OUTPUT, [REFERENCE], n_bootstrap=1000)
        low, high = row.pop("interval")
        assert (low + high) / 2 == pytest.approx(found._mean)
        assert (high - low) / 2 == pytest.approx(found._ci)
    for kind, row in zip(kinds, others, strict=True):
        found = scoring.bleu(OUTPUT, REFERENCE, lang, kind)
        assert row == shared | {"text": scoring.BLEU_KINDS[kind]} | found
    found = bleu.corpus_score(OUTPUT, [REFERENCE])
    assert rows[0]["length_ratio"] == pytest.approx(found.sys_len / found.ref_len)
    assert rows[0]["brevity_penalty"] == pytest.approx(found.bp)
    score = sacrebleu.corpus_chrf(OUTPUT, [REFERENCE]).score
    about = {"text": scoring.CHRF_TEXT, "score": score}
    assert chrf == shared | about | {"signature": chrf["signature"]}
    assert chrf["signature"].startswith("nrefs:1|case:mixed|eff:yes|nc:6")


def test_an_interval_of_lines_of_which_some_share_nothing_with_their_reference():
    *_, chrf = scoring._all_scores(["Ein Hund", "xyz"], ["Ein Hund", "Frau"], "de")
    assert chrf["interval"][0] < chrf["score"] < chrf["interval"][1]


def test_short_translations_are_warned_of(monkeypatch):
    monkeypatch.setattr(scoring, "load_pairs", lambda *names, **_: (["a", "b", "c"], REFERENCE))
    monkeypatch.setattr(scoring, "likelihood", lambda *inputs: scoring.Likelihood(8.0, 1, 4))
    fixed = Fixed()
    fixed.translate = lambda *_, **__: [line[: len(line) * 2 // 3] for line in REFERENCE]
    with pytest.warns(UserWarning, match=r"multi30k dev: the translations have only 0\.\d+ of the"):
        scoring.evaluate(fixed, "multi30k", "dev", "en", "deu")


def test_two_systems_are_compared_as_by_sacrebleu():
    rows = lambda: [{"text": "BLEU"}, {}, {"text": "chrF"}]
    references = REFERENCE * 20
    worse = [*OUTPUT * 19, "Ein Mann", *OUTPUT[1:]]
    first = scoring.Judged(rows(), [*map(str, range(60))], references, worse)
    better = [line if i % 7 else references[i] for i, line in enumerate(OUTPUT * 20)]
    other = scoring.Judged(rows(), first.sources, references, better)
    found = scoring.compare(first, other, "de")
    metrics = {"BLEU": sacrebleu.BLEU(), "chrF": sacrebleu.CHRF()}
    test = PairedTest([("a", worse), ("b", better)], metrics, [references], "bs")
    _, (a, b), (c, d) = test()[1].values()
    assert other.rows[0] == {"text": "BLEU", "difference": b.score - a.score, "p_value": b.p_value}
    assert other.rows[2] == {"text": "chrF", "difference": d.score - c.score, "p_value": d.p_value}
    assert other.rows[1] == {} and first.rows == rows()
    chrf = lambda line, reference: sacrebleu.sentence_chrf(line, [reference]).score
    lines = enumerate(zip(references, worse, better, strict=True))
    gains = {i: chrf(two, line) - chrf(one, line) for i, (line, one, two) in lines}
    most = sorted(gains, key=gains.get)[-3:]
    assert next(iter(found)) == 57 and all(found[i] == gains[i] for i in found)
    assert sorted(found.values()) == sorted(gains[i] for i in most)  # some differ equally
    back = scoring.compare(other, first, "de")
    assert next(iter(back)) == 57 and sorted(back.values()) == sorted(-x for x in found.values())


def test_a_model_is_compared_with_a_baseline(monkeypatch):
    monkeypatch.setattr(scoring, "load_pairs", lambda *names, **_: ([*"abc"], REFERENCE))
    monkeypatch.setattr(scoring, "likelihood", lambda *inputs: scoring.Likelihood(8.0, 1, 4))
    ours, theirs = Fixed(), Fixed()
    theirs.translate = lambda *_, **__: REFERENCE
    of = "multi30k", "dev", "en", "de"
    alone, best = scoring.evaluate(ours, *of), scoring.evaluate(theirs, *of)
    for row, one, other in zip(
        scoring.evaluate(ours, *of, baseline=theirs), alone, best, strict=True
    ):
        more = {name: row.pop(name) for name in ("difference", "p_value") if name in row}
        assert row == one and (len(more) == 2) == ("interval" in row)
        assert not more or more["difference"] == pytest.approx(one["score"] - other["score"])


def test_invisible_characters_of_a_corpus_count_as_in_sacrebleu(tmp_path, monkeypatch):
    references = [f"{line}\u200f" for line in REFERENCE[:2]] + ["\u00ad" + REFERENCE[2]]
    for lang, lines in ("en", "abc"), ("de", references):
        (tmp_path / f"dev.{lang}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    monkeypatch.setattr(scoring, "likelihood", lambda *inputs: scoring.Likelihood(8.0, 1, 4))
    row, *_ = scoring.evaluate(Fixed(), str(tmp_path), "dev", "en", "de")
    assert row["score"] == pytest.approx(sacrebleu.corpus_bleu(OUTPUT, [references]).score)


def test_files_are_scored_in_every_way(tmp_path: Path):
    output, reference = tmp_path / "system.de.gz", tmp_path / "ref.de"
    output.write_bytes(gzip.compress("".join(f"{line}\n" for line in OUTPUT).encode()))
    reference.write_text("".join(f"{line}\n" for line in REFERENCE), encoding="utf-8")
    rows = scoring.score_files(output, reference, "de")
    shared = {"output": "system.de.gz", "reference": "ref.de", "sentences": 3}
    expect_rows(rows, shared, KINDS, "de")
    assert scoring.score_files(output, reference) == rows  # the language is in the name
    (tmp_path / "ref.deu.gz").write_bytes(gzip.compress(reference.read_bytes()))
    (tmp_path / "ref.txt").write_bytes(reference.read_bytes())
    (tmp_path / "out.txt").write_bytes("".join(f"{line}\n" for line in OUTPUT).encode())
    named = [row | {"reference": "ref.deu.gz"} for row in rows]
    assert scoring.score_files(output, tmp_path / "ref.deu.gz") == named
    with pytest.warns(UserWarning, match=r"language of .*ref\.txt is unknown; --lang de, or"):
        few = scoring.score_files(tmp_path / "out.txt", tmp_path / "ref.txt")
    assert [row["score"] for row in few] == [rows[0]["score"], rows[-1]["score"]]
    reference.write_text("eine Zeile\n", encoding="utf-8")
    with pytest.raises(ValueError, match="3, 1"):
        scoring.score_files(output, reference, "de")


@pytest.mark.corpora
@pytest.mark.parametrize("lang", ["de", "en", "fr"])
@pytest.mark.parametrize("split", ["val", "test_2016_flickr"])
def test_tokenized_text_is_as_in_the_corpus_own_files(split: str, lang: str):
    corpus = folder("multi30k")
    raw = corpus / f"{split}.{lang}.gz"
    tokenized = corpus / f"{split}.lc.norm.tok.{lang}.gz"
    if not (raw.exists() and tokenized.exists()):
        pytest.skip(f"ANNOTATED_DATA/multi30k has not both {raw.name} and {tokenized.name}")
    ours = scoring.tokenize_for_bleu(read_lines(raw), lang, "lower-tokenized")
    equal = [one == other for one, other in zip(ours, read_lines(tokenized), strict=True)]
    assert sum(equal) >= 0.995 * len(equal)


@pytest.mark.corpora
@pytest.mark.parametrize(
    ("system", "published", "tokenized", "split"),
    [  # the last two from Moses' substitutions and n-gram counts, run in Perl on the same files
        ("tensor2tensor", 26.34, 26.12, 26.51),
        ("marian", 27.40, 27.19, 27.62),
        ("sockeye", 27.50, 27.28, 27.72),
    ],
)
def test_published_outputs_get_their_published_scores(system, published, tokenized, split):
    outputs = folder("bleu")
    reference = read_lines(outputs / "ref.newstest2017.deu.gz")
    output = read_lines(outputs / f"transformer.{system}.en-de.detok.gz")
    assert len(reference) == 3004
    found = scoring.bleu(output, reference, "de")
    assert round(found["score"], 2) == published
    # Newer Moses cuts off the full stop of a last word such as "60." too: a dozen lines differ.
    for kind, expected in ("tokenized", tokenized), ("compound-split", split):
        score = scoring.bleu(output, reference, "de", kind)["score"]
        assert score == pytest.approx(expected, abs=0.011)
