"""The study of heads: shares against counting, intervals and p-values against theory."""

from __future__ import annotations

import copy
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
import torch
from gum_sentence import ROWS, parsed, small_translator

from annotated.machinery.files import resource_path
from annotated.machinery.heads.gold import read_conllu
from annotated.machinery.heads.observe import ATTENTION_PLACES, ArcHits, PronounHits
from annotated.machinery.heads.study import (
    _gain_p,
    at_fixed_place,
    best_fixed_place,
    best_head_per_distance,
    best_head_per_pronoun,
    best_head_per_relation,
    best_relation_per_head,
    bootstrap_ci,
    common_relations,
    head_study,
    head_tasks,
    holm_adjusted,
    kept_study,
    reinitialized,
    significant,
    study_measures,
    study_summary,
)
from annotated.machinery.translator import Translator, load_pretrained
from annotated.model import make_model

doc = pytest.fixture(parsed, scope="module")
translator = pytest.fixture(small_translator, scope="module")


def test_the_best_fixed_place_may_be_a_distance_or_an_end_of_the_sentence():
    offset, yes, no = np.array([-1, -1, 2, -4]), np.ones(4, dtype=bool), np.zeros(4, dtype=bool)
    found = ArcHits(np.full(4, "det"), np.arange(4), offset, no, no, no[:, None, None])
    assert best_fixed_place(found) == "-1" and at_fixed_place(found, "-1").tolist() == [
        True,
        True,
        False,
        False,
    ]
    found = found._replace(first=yes)
    assert best_fixed_place(found) == "first word" and at_fixed_place(found, "first word").all()
    assert best_fixed_place(found._replace(first=no, last=yes)) == "last word"


def test_full_stops_count_as_no_relation():
    two = np.repeat(["det", "punct"], 50)
    never, hits = np.zeros(100, dtype=bool), np.zeros((100, 1, 1), dtype=bool)
    found = ArcHits(two, np.arange(100), np.ones(100, dtype=int), never, never, hits)
    assert common_relations(found, found, 50) == ["det"]
    assert common_relations(found, found, 51) == []


def test_the_best_head_is_chosen_on_one_half_and_measured_on_the_other(doc):
    rng = np.random.default_rng(0)
    hits = rng.random((400, 2, 3)) < 0.2
    hits[:, 1, 2] = rng.random(400) < 0.7
    offset = np.where(rng.random(400) < 0.4, -1, 3)
    never = np.zeros(400, dtype=bool)
    every = ArcHits(np.repeat(["obj", "det"], 200), np.arange(400), offset, never, never, hits)
    made = lambda part: ArcHits(*(column[part] for column in every))
    table = best_head_per_relation(made(slice(0, None, 2)), made(slice(1, None, 2)))
    assert list(table.relation.sort_values()) == ["det", "obj"]
    assert (table.layer == 2).all() and (table["head"] == 3).all()
    for _, row in table.iterrows():
        mine = made(slice(1, None, 2))
        chosen = mine.relation == row.relation
        assert row.follows == mine.hits[chosen, 1, 2].mean()
        assert row.fixed == (mine.offset[chosen] == int(row.place)).mean()
        assert row.low < row.follows < row.high
    assert best_head_per_relation(made(slice(0, None, 2)), made(slice(1, None, 2)), least=101).empty


def test_the_interval_is_that_of_a_share():
    """Against the normal approximation, for sentences of one arrow each."""
    hits = np.arange(2000) % 10 < 3
    low, high = bootstrap_ci(hits, np.arange(2000))
    half = 1.96 * (0.3 * 0.7 / 2000) ** 0.5
    assert (low, high) == (
        pytest.approx(0.3 - half, abs=0.004),
        pytest.approx(0.3 + half, abs=0.004),
    )
    wide = bootstrap_ci(hits, np.arange(2000) % 10)  # all or nothing
    assert wide[1] - wide[0] > 5 * (high - low)


def test_each_head_gets_the_relation_that_it_follows_beyond_a_fixed_distance():
    """Head 1 follows objects alone, head 2 determiners; the next word explains half of them."""
    relation = np.repeat(["obj", "det"], 200)
    offset = np.tile([1, 1, 2, 3], 100)
    hits = np.stack([relation == "obj", relation == "det"], axis=-1)[:, None]
    never = np.zeros(400, dtype=bool)
    found = ArcHits(relation, np.arange(400), offset, never, never, hits)
    none = found._replace(hits=np.zeros_like(hits))
    table = best_relation_per_head(
        {"dependent": found, "governor": none}, {"dependent": found, "governor": none}
    )
    assert table.relation.tolist() == ["obj", "det"] and set(table["from"]) == {"dependent"}
    assert table.follows.tolist() == [1, 1] and table.fixed.tolist() == [0.5, 0.5]
    assert table.gain_when_chosen.tolist() == [0.5, 0.5] and (table.p < 1e-9).all()
    assert ((table.gain_low > 0.4) & (table.gain_high < 0.6)).all()
    assert (table.place == "+1").all()
    turned = best_relation_per_head(
        {"dependent": none, "governor": found}, {"dependent": none, "governor": found}
    )
    assert set(turned["from"]) == {"governor"}


def test_a_weak_rival_draws_no_head():
    """A head that follows no arrow loses least where places do worst, and is given nothing."""
    relation = np.repeat(["det", "advcl"], 200)
    offset = np.concatenate([np.ones(200, dtype=int), np.arange(200) // 4 + 2])
    never = np.zeros(400, dtype=bool)
    hits = np.stack([never, np.arange(400) % 20 < 19, relation == "advcl"], axis=-1)[:, None]
    hits[200:, 0, 1] = False  # it follows 95 % of the first relation, where a place has all
    found = ArcHits(relation, np.arange(400), offset, never, never, hits)
    table = best_relation_per_head({"dependent": found}, {"dependent": found})
    assert table.relation.isna().tolist() == [True, True, False]
    assert table.p.tolist()[:2] == [1, 1] and table.p[2] < 1e-9
    assert table.relation[2] == "advcl" and table.gain_when_chosen.round(2).tolist() == [
        -0.02,
        -0.02,
        0.98,
    ]


def test_holm_raises_p_values_as_by_hand():
    assert holm_adjusted(np.array([0.01, 0.2, 0.03, 0.9])).round(3).tolist() == [
        0.04,
        0.4,
        0.09,
        0.9,
    ]
    assert holm_adjusted(np.array([0.7, 0.7])).tolist() == [1, 1]
    assert holm_adjusted(np.array([0.02, 0.02])).tolist() == [0.04, 0.04]


def test_of_many_heads_that_guess_hardly_ever_one_is_sure():
    """What Holm's method is for: one table in twenty at most, not one row in twenty."""
    rng, sentences = np.random.default_rng(0), np.arange(200)
    guessed = rng.random((60, 40, 200)) < 0.3  # tables, questions, arrows
    fixed = rng.random((60, 40, 200)) < 0.3
    tables = [
        np.array([_gain_p(gain, sentences) for gain in hits * 1.0 - place])
        for hits, place in zip(guessed, fixed, strict=True)
    ]
    alone = np.mean([p < 0.05 for p in tables])
    together = np.mean([(holm_adjusted(p) < 0.05).any() for p in tables])
    assert 0.03 < alone < 0.07 and together <= 0.1


def test_tasks_are_what_some_head_does_for_sure():
    heads = pd.DataFrame(0.0, index=range(3), columns=ATTENTION_PLACES)
    heads = heads.assign(relation=["obj", "det", "det"], p_holm=[0.05, 0.049, 0.001])
    assert significant(heads).index.tolist() == [1, 2]
    assert head_tasks(heads) == ["det"]
    heads.loc[0, ["end", "elsewhere"]] = 0.6, 0.9
    heads.loc[1, "next word"] = 0.5
    assert head_tasks(heads) == ["end", "det"]


def test_arrows_are_counted_by_their_length():
    offset = np.array([1, -1, 1, 2, -3, 4, 8, -5, 9, -40] * 2)
    relation = np.repeat(["obj", "punct"], 10)
    hits = (abs(offset) >= 9)[:, None, None] & np.array([[True, False]])
    never = np.zeros(20, dtype=bool)
    table = best_head_per_distance(
        *[ArcHits(relation, np.arange(20), offset, never, never, hits)] * 2
    )
    assert table.arcs.tolist() == [3, 1, 2, 2, 2]
    assert table.follows.tolist() == [0, 0, 0, 0, 1]
    assert table.fixed.round(2).tolist() == [
        0.67,
        1,
        0.5,
        0.5,
        0.5,
    ]


def test_pronouns_are_counted_together_and_one_by_one():
    word = np.array(["its"] * 40 + ["she"] * 40 + ["us"] * 5)
    hits = np.stack([word == "its", word == "she"], axis=-1)[:, None]
    first, subject, chance = word == "us", np.zeros(85, dtype=bool), np.full(85, 0.25)
    asked = PronounHits(word, np.arange(85), word == "she", first, subject, chance, hits)
    table = best_head_per_pronoun(asked, asked).set_index("pronoun")
    assert list(table.index) == ["all", "its", "she"]
    assert table["head"].tolist() == [1, 1, 2] and table.finds.tolist() == [40 / 85, 1, 1]
    assert table.ruled.tolist() == [40 / 85, 0, 1] and set(table.chance) == {0.25}
    assert set(table.rule) == {"nearest"}  # one rule, the best for all of them
    for rule, right in ("first", word != "she"), ("subject", word != "us"):
        asked = asked._replace(**{rule: right})
        assert set(best_head_per_pronoun(asked, asked).rule) == {rule}


def test_heads_are_chosen_on_the_first_part_and_measured_on_the_second():
    """In the first part head 1 is always right, in the second always wrong, and head 2 right."""
    relation, sentence, never = np.repeat(["obj"], 40), np.arange(40), np.zeros(40, dtype=bool)
    hits = np.array([True, False])[None, None].repeat(40, axis=0)
    offset = np.tile([1, 1, 1, 2], 10)
    first = ArcHits(relation, sentence, offset, never, never, hits)
    second = first._replace(hits=~hits, offset=np.tile([1, 2, 2, 2], 10))
    for table in best_head_per_relation(first, second, 1), best_head_per_distance(first, second):
        assert (
            set(table["head"]) == {1}
            and set(table.follows) == {0}
            and set(table.when_chosen) == {1}
        )
    (row,) = best_head_per_relation(first, second, 1).itertuples()
    assert row.place == "+2" and row.fixed == 0.75  # the place may be the luckiest
    table = best_relation_per_head({"dependent": first}, {"dependent": second}, 1)
    assert table.follows[0] == 0 and table.place[0] == "+2" and table.p[0] > 0.99
    assert table.gain_when_chosen[0] > 0 > table.gain_when_chosen[1]
    assert table.relation.isna().tolist() == [False, True] and table.p[1] == 1
    asked = PronounHits(np.repeat(["its"], 40), sentence, ~never, never, never, np.ones(40), hits)
    table = best_head_per_pronoun(asked, asked._replace(nearest=never, first=~never, hits=~hits))
    assert set(table["head"]) == {1} and set(table.finds) == {0}
    assert set(table.rule) == {"nearest"} and set(table.ruled) == {0}


def test_a_gain_counts_by_sentence():
    """ArcHits of one sentence that agree tell no more than one of them."""
    gains = np.array([1.0, 0.0, 1.0, 1.0, -1.0, 1.0])
    error = (gains.var() / 6) ** 0.5
    above = NormalDist().cdf(-gains.mean() / error)
    assert _gain_p(gains, np.arange(6)) == pytest.approx(above)
    assert _gain_p(gains.repeat(2), np.arange(6).repeat(2)) == pytest.approx(above)
    assert _gain_p(-gains, np.arange(6)) == pytest.approx(1 - above)
    assert [_gain_p(np.full(3, x), np.arange(3)) for x in (1.0, 0.0, -1.0)] == [0, 0.5, 1]


def test_the_study_tells_of_every_head(translator: Translator, doc):
    more = ROWS.replace("1\tThe\tthe\tDET\tDT", "1\tcar\tcar\tNOUN\tNN")
    docs = [doc, *read_conllu(more)]
    tables = head_study(translator, docs * 2, docs, least=1)
    assert set(tables) == {"relations", "distances", "pronouns", "heads"}
    assert len(tables["heads"]) == 8 and set(ATTENTION_PLACES) <= set(tables["heads"].columns)
    for name in "relations", "distances":
        assert set(tables[name]["from"]) == {"dependent", "governor"}
    assert tables["heads"].pronouns.isin([0.0, 1.0]).all()  # there is one pronoun
    for name in "relations", "heads", "distances":
        found = tables[name]
        np.testing.assert_array_equal(found.p_holm, holm_adjusted(found.p.to_numpy()))


def test_the_answer_counts_what_is_sure():
    heads = pd.DataFrame({"layer": [1, 2], "head": [3, 4], "p_holm": [0.2, 0.01]})
    relations = pd.DataFrame({"relation": ["det", "det", "case"], "p_holm": [0.01, 0.01, 0.5]})
    found = {"heads": heads, "relations": relations}
    bare = {name: table.assign(p_holm=1.0) for name, table in found.items()}
    assert study_summary(found, bare) == (
        "Of 2 heads, 1 (2.4) surely follow a relation more often than any fixed place does, "
        "and of 2 relations 1 (det) surely have such a head; before training it is 0 heads and 0 "
        "relations."
    )
    assert "Of 2 heads, 0 surely follow" in study_summary(bare, bare)


def test_the_measures_count_places_followers_and_relations():
    shares = {place: [0.0, 0.1, 0.0] for place in ATTENTION_PLACES}
    shares |= {"end": [0.6, 0.3, 0.0], "same word": [0.0, 0.3, 0.0], "elsewhere": [0.4, 0.2, 0.9]}
    heads = pd.DataFrame({**shares, "largest": [0.2, 0.4, 0.9], "p_holm": [0.2, 0.01, 0.05]})
    relations = pd.DataFrame({"relation": ["det", "det", "case"], "p_holm": [0.01, 0.01, 0.5]})
    measures = study_measures({"heads": heads, "relations": relations})
    assert measures == {
        "largest": pytest.approx(0.5),
        "placed": 1,  # neither two places together nor "elsewhere" is one
        "followers": 1,
        "relations": 1,
    }


def test_the_log_of_sharpness_agrees_with_the_logs_of_the_training_and_of_the_studies():
    name = "general-en-fr"
    rows = pd.read_csv(resource_path("results") / f"{name}-sharpness.csv").set_index("model")
    runs = [
        pd.read_csv(resource_path("models") / name / log).set_index("update")["target_tokens"] / 1e6
        for log in ("log-first.csv", "log-second.csv", "log.csv")
    ]
    two = runs[0].iloc[-1] + runs[1].iloc[-1]
    read = [0, two, two, two + runs[2][1000], two + runs[2].iloc[-1]]
    assert rows["millions"].tolist() == pytest.approx(read, abs=0.051)
    translator = load_pretrained(name)
    for untrained, row in (True, "before training"), (False, "after the third run"):
        measures = study_measures(kept_study(translator, name, untrained))
        assert rows.loc[row, list(measures)].to_dict() == pytest.approx(measures, abs=1e-3)


def test_the_control_is_the_model_before_training():
    torch.manual_seed(3)
    before = make_model(30, 30, N=1, d_model=16, d_ff=32, h=4)
    trained = copy.deepcopy(before)
    for parameter in trained.parameters():
        parameter.data += 1  # nothing of what was learnt may stay, not even a bias
    for name, parameter in reinitialized(trained, seed=3).named_parameters():
        assert torch.equal(parameter, before.get_parameter(name)), name
    other = reinitialized(trained, seed=4)
    assert not torch.equal(other.generator.proj.weight, before.generator.proj.weight)
