"""What PDFs do to words and formulas, mended."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from press import justified, remnants

from annotated.machinery.paper import typesetting as module
from annotated.machinery.paper.typesetting import join_lines, known_words, mend_ligatures, typeset


@pytest.mark.parametrize("word", module._LIGATED)
def test_a_word_without_its_ligatures_is_known(word):
    lost = remnants(word)
    assert lost
    for remnant in lost if len(min(lost, key=len)) > 1 else []:
        assert mend_ligatures(f"a {remnant}, or") == f"a {word}, or"
    assert mend_ligatures(f"a {word}, or {word.title()}") == f"a {word}, or {word.title()}"


def test_names_are_not_taken_for_what_is_left_of_a_word():
    text = "Nal and Rst: an o, a low tip, of oil elects to t (also tops and le)."
    assert mend_ligatures(text) == text


@pytest.mark.parametrize(
    "lines, known, text",
    [
        (["It is norma-", "lised."], "normalised", "It is normalised."),
        (["An encoder-", "decoder."], "encoder-decoder", "An encoder-decoder."),
        (["Into Klingon-", "to-Elvish."], "Klingon-to-Elvish", "Into Klingon-to-Elvish."),
        (["A state-of-the-", "art beam."], "state-of-the-art", "A state-of-the-art beam."),
        (["A table-", "aligned list."], "table", "A table-aligned list."),  # only the half is known
        (["It sur-", "rounds us."], "", "It surrounds us."),  # nothing is known
        (["A re-", "sent copy."], "re resent", "A resent copy."),  # the joined word is known
        (["At https://example.org/", "file now."], "", "At https://example.org/file now."),
        (["From 3 -", "to 4."], "", "From 3 - to 4."),  # a dash, not a hyphen
        ([], "", ""),
    ],
)
def test_lines_join(lines, known, text):
    assert join_lines(lines, known_words([known])) == text


def test_a_word_cut_at_a_line_end_is_no_witness():
    assert known_words(["all are norma-", "lised at once"]) == {
        *("all", "are", "lised", "at", "once")
    }


@given(
    words=st.lists(st.text("aeiklmnst", min_size=8, max_size=14), min_size=1, max_size=30),
    width=st.integers(20, 40),
)
def test_joining_undoes_breaking(words, width):
    text = " ".join(words)
    assert join_lines(justified(text, width), set(words)).split() == words


FORMULAS = module._FORMULAS | module._MORE_FORMULAS


@pytest.mark.paper
@pytest.mark.parametrize("printed", FORMULAS)
def test_every_formula_is_found_however_it_is_spaced(printed):
    wanted = f"With ${FORMULAS[printed]}$, all is well."
    assert typeset(f"With {printed}, all is well.") == wanted
    loose = " ".join(printed)
    assert typeset(f"With {loose} , all is well.") == wanted


def test_values_belong_to_their_formula():
    assert typeset("It is dmodel = 512.") == r"It is $d_{\text{model}} = 512$."
    assert typeset("at Pdrop = 0.1, or") == "at $P_{drop} = 0.1$, or"


@pytest.mark.parametrize("phrase", module._PHRASES)
def test_every_phrase_is_found(phrase):
    plain = re.sub(r"[$^{}]|\\mathbf", "", phrase)
    assert typeset(f"so {plain} or") == f"so {phrase.replace(' $^', '$^')} or"


@pytest.mark.parametrize("epsilon", ["ϵ", "ε", "(cid:15)", "\ufffd"])
def test_signs_that_fonts_name_differently(epsilon):
    assert typeset(f"value {epsilon}ls = 0.1") == r"value $\epsilon_{ls} = 0.1$"


def test_ordinary_words_are_no_formulas():
    text = "What height has a dkny box, a quick one (2 by 5), of size rather large?"
    assert typeset(text) == text
