"""The study of heads: shares against counting, intervals and p-values against theory."""

import copy
import json
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
import torch
from gum_sentence import ROWS, parsed, small_translator

from annotated.machinery.translator import Translator
from annotated.model import make_model
from benchmarks.heads import study
from benchmarks.heads.gold import read_conllu
from benchmarks.heads.observe import ATTENTION_PLACES, ArcHits, PronounHits
from book.heads import read_study, reinitialized, significant

doc = pytest.fixture(parsed, scope="module")
translator = pytest.fixture(small_translator, scope="module")


def arcs(relation, offset, hits, tag=None, nearest=None) -> ArcHits:
    """Arcs, each of another sentence; hits are those of heads in one layer (arcs, h)."""
    n = len(relation)
    never = np.zeros(n, dtype=bool)
    ends = np.repeat("X", n) if tag is None else tag, never if nearest is None else nearest
    hits = np.array(hits, dtype=bool).reshape(n, 1, -1)
    looks = np.where(hits, np.array(offset)[:, None, None], 99)
    return ArcHits(np.array(relation), np.arange(n), np.array(offset), never, never, *ends, looks)


def test_the_best_fixed_place_may_be_a_distance_or_an_end_of_the_sentence():
    yes = np.ones(4, dtype=bool)
    found = arcs(["det"] * 4, [-1, -1, 2, -4], ~yes)
    place, ends = study.best_fixed_place(found)
    assert place == "-1" and ends.tolist() == [True, True, False, False]
    place, ends = study.best_fixed_place(found._replace(first=yes))
    assert place == "first word" and ends.all()
    assert study.best_fixed_place(found._replace(last=yes))[0] == "last word"


def test_full_stops_count_as_no_relation_and_rare_ones_are_left_out():
    found = arcs(["det"] * 50 + ["punct"] * 50, [1] * 100, [[False]] * 100)
    for least, names in (50, ["det"]), (51, []):
        rows = study.best_heads(found, found, lambda found: found.relation, least)
        assert [row["name"] for row in rows] == names


def test_the_interval_is_that_of_a_share():
    """Against the normal approximation, for sentences of one arc each."""
    hits = np.arange(2000) % 10 < 3
    low, high = study.bootstrap_ci(hits, np.arange(2000))
    half = 1.96 * (0.3 * 0.7 / 2000) ** 0.5
    assert [low, high] == pytest.approx([0.3 - half, 0.3 + half], abs=0.004)
    wide = study.bootstrap_ci(hits, np.arange(2000) % 10)  # all or nothing
    assert wide[1] - wide[0] > 5 * (high - low)


def test_each_head_gets_the_relation_that_it_follows_beyond_a_fixed_distance():
    """Head 1 follows objects alone, head 2 determiners; the next word explains half of them."""
    relation = np.repeat(["obj", "det"], 200)
    hits = np.stack([relation == "obj", relation == "det"], axis=-1)
    found = arcs(relation, np.tile([1, 1, 2, 3], 100), hits)
    none = found._replace(looks=np.full_like(found.looks, 99))
    for asked in {"dependent": found, "governor": none}, {"dependent": none, "governor": found}:
        table = pd.DataFrame(study.best_relation_per_head(asked, asked, 100))
        assert table.relation.tolist() == ["obj", "det"] and (table.place == "+1").all()
        assert set(table["from"]) == {"dependent" if asked["dependent"] is found else "governor"}
        assert table.follows.tolist() == [1, 1] and table.fixed.tolist() == [0.5, 0.5]
        assert table.gain_when_chosen.tolist() == [0.5, 0.5] and (table.p < 1e-9).all()
        assert ((table.gain_low > 0.4) & (table.gain_high < 0.6)).all()


def test_a_head_that_gains_on_no_relation_has_none():
    """Without a gain it would be given the relation on which fixed places do worst."""
    relation = np.repeat(["det", "advcl"], 200)
    offset = np.concatenate([np.ones(200, dtype=int), np.arange(200) // 4 + 2])
    weak = (np.arange(400) % 20 < 19) & (relation == "det")  # 95 %, where a place has all
    found = arcs(relation, offset, np.stack([relation == "", weak, relation == "advcl"], axis=-1))
    table = pd.DataFrame(
        study.best_relation_per_head({"governor": found}, {"governor": found}, 100)
    )
    assert table.relation.isna().tolist() == [True, True, False]
    assert table.p.tolist()[:2] == [1, 1] and table.p[2] < 1e-9
    assert table.relation[2] == "advcl"
    assert table.gain_when_chosen.round(2).tolist() == [-0.02, -0.02, 0.98]


def test_holms_method_multiplies_by_the_tests_that_are_left():
    adjusted = study.holm_adjusted(np.array([0.01, 0.2, 0.03, 0.9]))
    assert adjusted.tolist() == pytest.approx([0.04, 0.4, 0.09, 0.9])  # by hand


def test_long_arcs_are_compared_with_places_that_do_not_know_their_length():
    """Of 300 subjects a third is long: -6 mostly; head 1 follows half of the long ones."""
    offset = np.repeat([1, -6, -7, 9], [200, 60, 20, 20])
    hits = np.stack([(abs(offset) > 1) & (np.arange(300) % 2 == 0), offset == 1], axis=-1)
    found = arcs(["nsubj"] * 300, offset, hits, np.where(offset < 0, "VERB", "NOUN"), offset != -7)
    (row,) = study.best_heads_far(found, found, 5, least=100)
    assert (row["head"], row["arcs"], row["follows"]) == (1, 100, 0.5)
    assert (row["place"], row["fixed"], row["informed"]) == ("+1", 0, 0.6)
    assert row["shuffled"] == pytest.approx(0.3 * 0.6 + 0.1 * 0.2 + 0.1 * 0.2)
    assert (row["rule"], row["ruled"]) == ("VERB before", 0.6)
    assert row["lead_low"] < -0.1 < row["lead_high"] < 0.1 < row["gain_low"]
    assert not study.best_heads_far(found, found, 9, least=100)


def test_pronouns_are_counted_together_and_one_by_one():
    word = np.array(["its"] * 40 + ["she"] * 40 + ["us"] * 5)
    hits = np.stack([word == "its", word == "she"], axis=-1)[:, None]
    first, subject, chance = word == "us", np.zeros(85, dtype=bool), np.full(85, 0.25)
    asked = PronounHits(word, np.arange(85), word == "she", first, subject, chance, hits)
    table = pd.DataFrame(study.best_head_per_pronoun(asked, asked)).set_index("pronoun")
    assert list(table.index) == ["all", "its", "she"]
    assert table["head"].tolist() == [1, 1, 2] and table.finds.tolist() == [40 / 85, 1, 1]
    assert table.ruled.tolist() == [40 / 85, 0, 1] and set(table.chance) == {0.25}
    assert set(table.rule) == {"nearest"}  # one rule, the best for all of them
    for rule, right in ("first", word != "she"), ("subject", word != "us"):
        asked = asked._replace(**{rule: right})
        assert {row["rule"] for row in study.best_head_per_pronoun(asked, asked)} == {rule}


def test_heads_are_chosen_on_the_first_part_and_measured_on_the_second():
    """In the first part head 1 is always right, in the second always wrong, and head 2 right."""
    hits = np.array([[True, False]] * 40)
    first = arcs(["obj"] * 40, np.tile([1, 1, 1, 2], 10), hits)
    second = arcs(["obj"] * 40, np.tile([1, 2, 2, 2], 10), ~hits)
    (row,) = study.best_heads(first, second, lambda found: found.relation, 1)
    assert (row["head"], row["follows"], row["when_chosen"]) == (1, 0, 1)
    assert row["place"] == "+2" and row["fixed"] == 0.75  # the best on the second part
    table = pd.DataFrame(study.best_relation_per_head({"governor": first}, {"governor": second}, 1))
    assert table.follows[0] == 0 and table.place[0] == "+2" and table.p[0] > 0.99
    assert table.gain_when_chosen[0] > 0 > table.gain_when_chosen[1]
    assert table.relation.isna().tolist() == [False, True] and table.p[1] == 1
    yes = np.ones(40, dtype=bool)
    its = np.repeat(["its"], 40)
    asked = PronounHits(its, first.sentence, yes, ~yes, ~yes, np.ones(40), first.hits)
    turned = asked._replace(nearest=~yes, first=yes, hits=second.hits)
    (row, _) = study.best_head_per_pronoun(asked, turned)
    assert (row["head"], row["finds"], row["rule"], row["ruled"]) == (1, 0, "nearest", 0)


def test_a_gain_counts_by_sentence():
    """Arcs of one sentence that agree are no more evidence than one of them."""
    gains = np.array([1.0, 0.0, 1.0, 1.0, -1.0, 1.0])
    error = (gains.var() / 6) ** 0.5
    above = NormalDist().cdf(-gains.mean() / error)
    assert study._gain_p(gains, np.arange(6)) == pytest.approx(above)
    assert study._gain_p(gains.repeat(2), np.arange(6).repeat(2)) == pytest.approx(above)
    assert study._gain_p(-gains, np.arange(6)) == pytest.approx(1 - above)
    assert [study._gain_p(np.full(3, x), np.arange(3)) for x in (1.0, 0.0, -1.0)] == [0, 0.5, 1]


def test_the_study_covers_every_head(translator: Translator, doc):
    more = ROWS.replace("1\tThe\tthe\tDET\tDT", "1\tcar\tcar\tNOUN\tNN")
    docs = [doc, *read_conllu(more)]
    tables = study.head_study(translator, docs * 2, docs, least=1)
    assert set(tables) == {"relations", "far", "pronouns", "heads"}
    assert len(tables["heads"]) == 8 and set(ATTENTION_PLACES) <= set(tables["heads"].columns)
    for name in "relations", "far":
        assert set(tables[name]["from"]) == {"dependent", "governor"}
    assert tables["heads"].pronouns.isin([0.0, 1.0]).all()  # there is one pronoun
    for name in "relations", "heads", "far":
        found = tables[name]
        np.testing.assert_array_equal(found.p_holm, study.holm_adjusted(found.p.to_numpy()))
        assert len(significant(found)) == (found.p_holm < 0.05).sum()
    with pytest.raises(ValueError, match="measure on"):
        study.head_study(translator, docs, [])


def test_the_control_is_the_model_before_training():
    torch.manual_seed(3)
    before = make_model(30, 30, N=1, d_model=16, d_ff=32, h=4)
    trained = copy.deepcopy(before)
    for parameter in trained.parameters():
        parameter.data += 1  # nothing that was learned may stay, not even a bias
    for name, parameter in reinitialized(trained, seed=3).named_parameters():
        assert torch.equal(parameter, before.get_parameter(name)), name
    other = reinitialized(trained, seed=4)
    assert not torch.equal(other.generator.proj.weight, before.generator.proj.weight)


def test_a_study_is_written_as_valid_json(tmp_path: Path):
    """A head without a relation has nulls, for NaN is no JSON; numbers keep their digits."""
    table = pd.DataFrame({"relation": ["det", None], "gain": [1 / 3, float("nan")]})
    study.write_study(tmp_path / "heads.json", {"heads": table}, model="a model")
    refuse = lambda constant: pytest.fail(f"{constant} is no JSON")
    found = json.loads((tmp_path / "heads.json").read_text(), parse_constant=refuse)
    assert found["model"] == "a model" and found["heads"][1] == {"relation": None, "gain": None}
    assert found["heads"][0]["gain"] == pytest.approx(1 / 3, abs=1e-14)
    pd.testing.assert_frame_equal(read_study(tmp_path / "heads.json")["heads"], table)
