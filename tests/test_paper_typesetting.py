"""What printing does to words and formulas, undone."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotated.machinery.paper import typesetting as module
from annotated.machinery.paper.typesetting import (
    LOST,
    join_lines,
    known_words,
    mend_ligatures,
    typeset,
)


@pytest.mark.parametrize("word", module._LIGATED)
@pytest.mark.parametrize("gap", [LOST, " ", ""])
def test_a_word_without_its_ligatures_is_known(word, gap):
    for ligature in ("ff?[il]|ff", "f[il]|ff(?!i)"):  # of "ffi" all letters, or two
        lost = re.sub(ligature, gap, word)
        if gap == LOST or (len(lost) > 2 and lost[0] != " "):
            assert mend_ligatures(f"a {lost}, or") == f"a {word}, or"
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
    assert join_lines(lines, known_words([known, "a broken exam-"])) == text


@given(st.lists(st.text("aeiklmnst", min_size=8, max_size=14), min_size=1, max_size=30))
def test_joining_undoes_breaking(words):
    lines = [part for word in words for part in (f"{word[:4]}-", word[4:])]
    assert join_lines(lines, set(words)).split() == words


@pytest.mark.parametrize(
    "printed, wanted",
    [
        ("With dk = dv = dmodel/h, or", r"With $d_k = d_v = d_{\text{model}}/h$, or"),
        ("by 1 √ dk .", r"by $\frac{1}{\sqrt{d_k}}$."),
        ("( x1, ..., xn )", r"$(x_1, \ldots, x_n)$"),
        ("W Qi ∈ Rdmodel×dk", r"$W^Q_i \in \mathbb{R}^{d_{\text{model}} \times d_k}$"),
        ("q · k = ∑dk i=1 qiki, has", r"$q \cdot k = \sum^{d_k}_{i=1} q_i k_i$, has"),
        ("q ⋅ k = dk i=1 qiki, has", r"$q \cdot k = \sum^{d_k}_{i=1} q_i k_i$, has"),
        ("uses O(k·n·d + n·d2).", r"uses $O(k \cdot n \cdot d + n \cdot d^2)$."),
        ("all warmup_steps of it", r"all $warmup\_steps$ of it"),
        ("It is dmodel = 512.", r"It is $d_{\text{model}} = 512$."),
        ("at Pdrop = 0.1, or", "at $P_{drop} = 0.1$, or"),
        *((f"value {sign}ls = 0.1", r"value $\epsilon_{ls} = 0.1$") for sign in ("ϵ", "ε", LOST)),
        ("ϵ = 10-9", r"$\epsilon = 10^{-9}$"),
        ("at position t and gradients 4. To", "at position $t$ and gradients$^4$. To"),
    ],
)
def test_formulas_become_latex(printed, wanted):
    assert typeset(printed) == wanted


def test_ordinary_words_are_no_formulas():
    text = "What height has a dkny box, a quick one (2 by 5), of size rather large?"
    assert typeset(text) == text
