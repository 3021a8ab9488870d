"""CTranslate2 behind `load_pretrained(engine=…)`, against the book's own search."""

import sys
from pathlib import Path

import pytest
import torch
from tiny import TOKENIZER

pytest.importorskip("ctranslate2", reason="needs the extra `export`")

from annotated.machinery.cli.main import main
from annotated.machinery.corpora.registry import load_pairs
from annotated.machinery.errors import InputError, MissingExtra
from annotated.machinery.formats.pretrained import ENGINES, load_pretrained
from annotated.machinery.translator import Translator
from annotated.model import make_model

GERMAN = "multi30k-en-de"
SENTENCES = [
    "Two dogs play in the snow.",
    "A man in an orange hat starring at something.",
    "",
    "A woman with a large purse is walking by a gate.",
    "People are fixing the roof of a house.",
]


@pytest.fixture(scope="module")
def ours() -> Translator:
    return load_pretrained(GERMAN)


@pytest.fixture(scope="module")
def theirs() -> Translator:
    return load_pretrained(GERMAN, engine="ctranslate2")


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 4, "n_best": 3}, {"alpha": 2.0}])
def test_outputs_and_scores_are_those_of_our_search(ours, theirs, options: dict):
    both = (each.candidates(SENTENCES, **options) for each in (ours, theirs))
    for one, other in zip(*both, strict=True):
        assert [found.text for found in other] == [found.text for found in one]
        for a, b in zip(one, other, strict=True):
            assert b.log_prob == pytest.approx(a.log_prob, abs=2e-3)
            assert b.score == pytest.approx(a.score, abs=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [{"max_len": 3}, {"max_extra": 0}])
def test_limits_of_length_are_kept(ours, theirs, limit: dict):
    assert theirs.translate(SENTENCES, **limit) == ours.translate(SENTENCES, **limit)


@pytest.fixture
def tiny(tmp_path: Path) -> tuple[Translator, Translator]:
    """An untrained model, whose outputs end at their limits, in both engines."""
    torch.manual_seed(0)
    size = TOKENIZER.get_vocab_size()
    net = make_model(size, size, N=1, d_model=16, d_ff=16, h=2).eval()
    Translator(net, TOKENIZER).save(tmp_path / "model")
    return tuple(load_pretrained(tmp_path / "model", engine=name) for name in ENGINES)


@pytest.mark.slow
def test_texts_and_outputs_beyond_the_positions_of_the_engine(tiny):
    long = "one two three four five six seven eight nine " * 350
    for texts, options in (
        ([long, "one two", long[:9000]], {"max_source": 5000, "max_len": 5}),
        (["one", long[:9000]], {"max_source": 2048, "max_len": 2}),
        (["one"], {"max_len": 2047}),
        (["one", "two"], {"max_len": 2100}),
        (["one"], {"max_extra": 2300}),
    ):
        one, other = (each.translate(texts, beam=1, **options) for each in tiny)
        assert one == other


@pytest.mark.slow
def test_eight_bits_cost_little(ours):
    theirs = load_pretrained(GERMAN, engine="ctranslate2", precision="int8")
    assert theirs.translate(SENTENCES[0]) == ours.translate(SENTENCES[0])


@pytest.mark.slow
def test_what_cannot_be_is_refused(theirs, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(InputError, match="out of torch, ctranslate2; got 'onnx'"):
        load_pretrained(GERMAN, engine="onnx")
    with pytest.raises(InputError, match="'float32' with the engine torch; got 'int8'"):
        load_pretrained(GERMAN, precision="int8")
    with pytest.raises(InputError, match="decoder='attention'"):
        load_pretrained("firefox-en-pt", engine="ctranslate2")
    with pytest.raises(InputError, match=r"precision out of .*float32.*; got 'int7'"):
        load_pretrained(GERMAN, engine="ctranslate2", precision="int7")
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(MissingExtra, match=r"annotated-attention\[export\]"):
        load_pretrained(GERMAN, engine="ctranslate2")


@pytest.mark.slow
def test_the_command_has_the_engine(theirs, capsys: pytest.CaptureFixture):
    texts = []
    for more in [], ["--engine", "ctranslate2"]:
        main(["translate", GERMAN, "--device", "cpu", *SENTENCES[:2], *more])
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != ""


@pytest.mark.corpora
def test_a_thousand_captions(ours, theirs):
    captions = load_pairs("multi30k", "test", "en", "de")[0][:1000]
    for beam, least in (1, 1000), (4, 990):
        both = (each.translate(captions, beam=beam) for each in (ours, theirs))
        assert sum(map(str.__eq__, *both)) >= least
