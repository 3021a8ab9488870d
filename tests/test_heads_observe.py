"""What heads look at: weights against the model's own, shares against counting."""

import numpy as np
import pytest
import torch
from gum_sentence import ROWS, parsed, small_translator

from annotated.machinery.translator import Translator
from annotated.machinery.visualization.weights import merge_words, read_attention
from benchmarks.heads import observe
from benchmarks.heads.gold import read_conllu

doc = pytest.fixture(parsed, scope="module")
translator = pytest.fixture(small_translator, scope="module")


def test_weights_between_words_are_those_of_merged_pieces(translator: Translator, doc):
    """Where GUM's words are ours, the figures and the study see the same numbers."""
    (doc,) = read_conllu(ROWS.replace("did\t", "didn\t").replace("n't\tnot", "'t\tnot"))
    found = observe.word_attention(translator, doc)
    assert found.shape == (2, 4, 13, 14)
    torch.testing.assert_close(found.sum(dim=-1), torch.ones(2, 4, 13))
    merged = merge_words(read_attention(translator, doc.text.strip(), "x")["encoder"])
    assert merged.queries[7:10] == ["didn", "'", "t"]  # where GUM has two words, didn and 't
    torch.testing.assert_close(found[..., :8, :8], merged.weights[..., :8, :8])
    torch.testing.assert_close(found[..., :8, 8], merged.weights[..., :8, 8:10].sum(dim=-1))
    torch.testing.assert_close(found[..., 9:, 9:], merged.weights[..., 10:-1, 10:])


def test_arcs_are_followed_where_the_largest_weight_is(doc):
    """Head 1 attends to the governor, head 2 to the next word, head 3 to the end."""
    n = len(doc)
    weights = torch.zeros(1, 3, n, n + 1)
    for token in doc:
        weights[0, 0, token.i, token.head.i] = 1
        weights[0, 1, token.i, min(token.i + 1, n - 1)] = 1
        weights[0, 2, token.i, n], weights[0, 2, token.i, 0] = 0.9, 0.1
    top = observe.most_attended(weights)
    there, back = (observe.arc_hits([doc], [top], back=back) for back in (False, True))
    assert len(there.relation) == n - 1 and there.hits[:, 0, 0].all()
    assert (there.hits[:, 0, 1] == (there.offset == 1)).all()
    assert (there.offset == -back.offset).all() and (there.relation == back.relation).all()
    assert back.first.tolist() == [token.i == 0 for token in doc if token.head.i != token.i]
    cat = next(token.i for token in doc if token.text == "cat")  # the last word, but for the stop
    assert back.last.tolist() == [token.i == cat for token in doc if token.head.i != token.i]
    assert not there.first.any() and there.last.sum() == 1  # "the cat"
    assert there.tag[:3].tolist() == ["NOUN", "VERB", "NOUN"] and there.nearest[:3].all()
    far = [i for i, name in enumerate(back.relation) if name == "conj"]  # from "lost" to "see"
    assert back.tag[far].tolist() == ["VERB"] and back.nearest[far].all()
    stop = [i for i, name in enumerate(back.relation) if name == "punct"]  # from "lost" to "."
    assert back.nearest[stop].tolist() == [True, False]


def test_profiles_add_up_the_weights_of_each_place(translator: Translator, doc):
    weights, found = observe.word_attention(translator, doc), observe.attention_places(doc)
    name = lambda query, key: observe.ATTENTION_PLACES[found[query, key]]
    assert name(2, 2) == "itself" and name(2, 1) == "previous word" and name(2, 3) == "next word"
    assert name(0, 13) == "end" and name(0, 5) == "punctuation" and name(0, 10) == "same word"
    assert name(0, 4) == "elsewhere" and name(4, 5) == "next word"  # the first that fits
    table = observe.attention_profile([doc, doc], [weights, weights])
    assert list(table.columns) == [*observe.ATTENTION_PLACES, "largest"] and len(table) == 8
    np.testing.assert_allclose(table[observe.ATTENTION_PLACES].sum(axis=1), 1, rtol=1e-5)
    for (layer, head), row in table.iterrows():
        for i, place in enumerate(observe.ATTENTION_PLACES):
            share = weights[layer - 1, head - 1][torch.tensor(found == i)].sum() / len(doc)
            assert row[place] == pytest.approx(share.item(), abs=1e-5)
        largest = [max(word) for word in weights[layer - 1, head - 1].tolist()]
        assert row["largest"] == pytest.approx(np.mean(largest), abs=1e-5)


def test_a_pronoun_asks_for_a_noun_that_means_the_same(doc):
    assert not list(
        observe.antecedents(doc)
    )  # one noun alone stands before "its": nothing to choose
    more = ROWS.replace("1\tThe\tthe\tDET\tDT", "1\tcar\tcar\tNOUN\tNN")
    (doc,) = read_conllu(more)
    ((place, nouns, same),) = observe.antecedents(doc)
    assert (place, nouns, same & set(nouns)) == (3, [0, 1], {1})
    weights = torch.zeros(1, 2, 13, 14)
    weights[0, 0, 3, 1] = weights[0, 1, 3, 0] = 1
    asked = observe.pronoun_hits([doc], [weights])
    assert asked.word.tolist() == ["its"] and asked.hits.tolist() == [[[True, False]]]
    rules = asked.nearest, asked.first, asked.subject, asked.chance  # "dog" is a subject
    assert [float(rule[0]) for rule in rules] == [True, False, True, 0.5]
