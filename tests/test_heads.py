"""The study of heads: a tree made by hand, shares against counting, intervals against theory."""

from __future__ import annotations

import copy
import io
import tarfile
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
import torch

from annotated.data import train_bpe
from annotated.files import FileError
from annotated.heads import (
    PLACES,
    Arrows,
    Pronouns,
    _gain_p,
    answer,
    antecedents,
    arrows,
    at_place,
    best_for_pronouns,
    best_heads,
    best_place,
    by_distance,
    common_relations,
    head_relations,
    holm,
    interval,
    load_gum,
    places,
    profile,
    pronouns,
    read_conllu,
    strongest,
    study,
    sure,
    tasks,
    untrained,
    word_weights,
)
from annotated.model import make_model
from annotated.translator import Translator
from annotated.visualization import merge_words, read_attention

# The dog lost its ball, but didn't see the cat. "its" means the dog.
ROWS = """\
1	The	the	DET	DT	_	2	det	_	Entity=(7-animal
2	dog	dog	NOUN	NN	_	3	nsubj	_	Entity=7)
3	lost	lose	VERB	VBD	_	0	root	_	_
4	its	its	PRON	PRP$	_	5	nmod:poss	_	Entity=(8-object(7-animal)
5	ball	ball	NOUN	NN	_	3	obj	_	Entity=8)|SpaceAfter=No
6	,	,	PUNCT	,	_	10	punct	_	_
7	but	but	CCONJ	CC	_	10	cc	_	_
8-9	didn't	_	_	_	_	_	_	_	_
8	did	do	AUX	VBD	_	10	aux	_	_
9	n't	not	PART	RB	_	10	advmod	_	_
10	see	see	VERB	VB	_	3	conj	_	_
11	the	the	DET	DT	_	12	det	_	Entity=(9-animal
12	cat	cat	NOUN	NN	_	10	obj	_	Entity=9)|SpaceAfter=No
13	.	.	PUNCT	.	_	3	punct	_	_"""
TEXT = "The dog lost its ball, but didn't see the cat."


@pytest.fixture(scope="module")
def doc():
    (doc,) = read_conllu(f"# text = {TEXT}\n{ROWS}\n\n")
    return doc


@pytest.fixture(scope="module")
def translator() -> Translator:
    torch.manual_seed(0)
    tokenizer = train_bpe([TEXT], 30)
    size = tokenizer.get_vocab_size()
    return Translator(make_model(size, size, N=2, d_model=16, d_ff=32, h=4).eval(), tokenizer)


def test_a_tree_is_read_with_its_text_and_mentions(doc):
    assert doc.text.strip() == TEXT
    assert [token.head.i + 1 for token in doc] == [2, 3, 3, 5, 3, 10, 10, 10, 10, 3, 12, 10, 3]
    assert doc[3].dep_ == "nmod:poss" and doc[2].head == doc[2]
    mentions = {entity: [span.text for span in spans] for entity, spans in doc.spans.items()}
    assert mentions == {"7": ["The dog", "its"], "8": ["its ball"], "9": ["the cat"]}


def test_what_is_not_conllu_is_refused_with_its_place():
    with pytest.raises(ValueError, match="sentence 2: expected lines of ten fields"):
        list(read_conllu(f"{ROWS}\n\n1 no tabs\n"))


def test_weights_between_words_are_those_of_merged_pieces(translator: Translator, doc):
    """Where GUM's words are ours, the figures and the study see the same numbers."""
    (doc,) = read_conllu(ROWS.replace("did\t", "didn\t").replace("n't\tnot", "'t\tnot"))
    found = word_weights(translator, doc)
    assert found.shape == (2, 4, 13, 14)
    torch.testing.assert_close(found.sum(dim=-1), torch.ones(2, 4, 13))
    merged = merge_words(read_attention(translator, doc.text.strip(), "x")["encoder"])
    assert merged.queries[7:10] == ["didn", "'", "t"]  # where GUM has two words, didn and 't
    torch.testing.assert_close(found[..., :8, :8], merged.weights[..., :8, :8])
    torch.testing.assert_close(found[..., :8, 8], merged.weights[..., :8, 8:10].sum(dim=-1))
    torch.testing.assert_close(found[..., 9:, 9:], merged.weights[..., 10:-1, 10:])


def test_arrows_are_followed_where_the_weight_says_so(doc):
    """Head 1 looks at the governor, head 2 at the next word, head 3 at the end."""
    n = len(doc)
    weights = torch.zeros(1, 3, n, n + 1)
    for token in doc:
        weights[0, 0, token.i, token.head.i] = 1
        weights[0, 1, token.i, min(token.i + 1, n - 1)] = 1
        weights[0, 2, token.i, n], weights[0, 2, token.i, 0] = 0.9, 0.1
    top = strongest(weights)
    there, back = (arrows([doc], [top], back=back) for back in (False, True))
    assert len(there.relation) == n - 1 and there.hits[:, 0, 0].all()
    assert (there.hits[:, 0, 1] == (there.offset == 1)).all()
    assert (there.offset == -back.offset).all() and (there.relation == back.relation).all()
    governors = {token.head.i for token in doc if token.head.i != token.i}
    assert not back.hits[:, 0, 0].all() and back.hits[:, 0, 0].sum() <= len(governors)
    assert back.first.tolist() == [token.i == 0 for token in doc if token.head.i != token.i]
    cat = next(token.i for token in doc if token.text == "cat")  # the last word, but for the stop
    assert back.last.tolist() == [token.i == cat for token in doc if token.head.i != token.i]
    assert not there.first.any() and there.last.sum() == 1  # "the cat"


def test_the_best_fixed_place_may_be_a_distance_or_an_end_of_the_sentence():
    offset, yes, no = np.array([-1, -1, 2, -4]), np.ones(4, dtype=bool), np.zeros(4, dtype=bool)
    found = Arrows(np.full(4, "det"), np.arange(4), offset, no, no, no[:, None, None])
    assert best_place(found) == "-1" and at_place(found, "-1").tolist() == [
        True,
        True,
        False,
        False,
    ]
    found = found._replace(first=yes)
    assert best_place(found) == "first word" and at_place(found, "first word").all()
    assert best_place(found._replace(first=no, last=yes)) == "last word"


def test_full_stops_count_as_no_relation():
    two = np.repeat(["det", "punct"], 50)
    never, hits = np.zeros(100, dtype=bool), np.zeros((100, 1, 1), dtype=bool)
    found = Arrows(two, np.arange(100), np.ones(100, dtype=int), never, never, hits)
    assert common_relations(found, found, 50) == ["det"]
    assert common_relations(found, found, 51) == []


def test_the_best_head_is_chosen_on_one_half_and_measured_on_the_other(doc):
    rng = np.random.default_rng(0)
    hits = rng.random((400, 2, 3)) < 0.2
    hits[:, 1, 2] = rng.random(400) < 0.7
    offset = np.where(rng.random(400) < 0.4, -1, 3)
    never = np.zeros(400, dtype=bool)
    every = Arrows(np.repeat(["obj", "det"], 200), np.arange(400), offset, never, never, hits)
    made = lambda part: Arrows(*(column[part] for column in every))
    table = best_heads(made(slice(0, None, 2)), made(slice(1, None, 2)))
    assert list(table.relation.sort_values()) == ["det", "obj"]
    assert (table.layer == 2).all() and (table["head"] == 3).all()
    for _, row in table.iterrows():
        mine = made(slice(1, None, 2))
        chosen = mine.relation == row.relation
        assert row.follows == mine.hits[chosen, 1, 2].mean()
        assert row.fixed == (mine.offset[chosen] == int(row.place)).mean()
        assert row.low < row.follows < row.high
    assert best_heads(made(slice(0, None, 2)), made(slice(1, None, 2)), least=101).empty


def test_the_interval_is_that_of_a_share():
    """Against the normal approximation, for sentences of one arrow each."""
    hits = np.arange(2000) % 10 < 3
    low, high = interval(hits, np.arange(2000))
    half = 1.96 * (0.3 * 0.7 / 2000) ** 0.5
    assert (low, high) == (
        pytest.approx(0.3 - half, abs=0.004),
        pytest.approx(0.3 + half, abs=0.004),
    )
    wide = interval(hits, np.arange(2000) % 10)  # all or nothing
    assert wide[1] - wide[0] > 5 * (high - low)


def test_every_place_is_named_once(doc):
    found = places(doc)
    name = lambda query, key: PLACES[found[query, key]]
    assert name(2, 2) == "itself" and name(2, 1) == "previous word" and name(2, 3) == "next word"
    assert name(0, 13) == "end" and name(0, 5) == "punctuation" and name(0, 10) == "same word"
    assert name(0, 4) == "elsewhere" and name(4, 5) == "next word"  # the first that fits


def test_profiles_add_up_the_weights_of_each_place(translator: Translator, doc):
    weights = word_weights(translator, doc)
    table, found = profile([doc, doc], [weights, weights]), places(doc)
    assert list(table.columns) == PLACES and len(table) == 8
    np.testing.assert_allclose(table.sum(axis=1), 1, rtol=1e-5)
    for (layer, head), row in table.iterrows():
        for i, place in enumerate(PLACES):
            share = weights[layer - 1, head - 1][torch.tensor(found == i)].sum() / len(doc)
            assert row[place] == pytest.approx(share.item(), abs=1e-5)


def test_a_pronoun_asks_for_a_noun_that_means_the_same(doc):
    assert not list(antecedents(doc))  # one noun alone stands before "its": nothing to choose
    more = ROWS.replace("1\tThe\tthe\tDET\tDT", "1\tcar\tcar\tNOUN\tNN")
    (doc,) = read_conllu(more)
    ((place, nouns, same),) = antecedents(doc)
    assert (place, nouns, same & set(nouns)) == (3, [0, 1], {1})
    weights = torch.zeros(1, 2, 13, 14)
    weights[0, 0, 3, 1] = weights[0, 1, 3, 0] = 1
    asked = pronouns([doc], [weights])
    assert asked.word.tolist() == ["its"] and asked.hits.tolist() == [[[True, False]]]
    assert asked.nearest.tolist() == [True] and asked.first.tolist() == [False]
    assert asked.subject.tolist() == [True]  # "dog" is one, the word before it is none
    assert asked.chance.tolist() == [0.5]


BLANK = "1\t_\t_\tNOUN\tNN\t_\t0\troot\t_\t_"  # a word of Reddit's, as GUM is passed on


def test_gum_is_read_from_either_shape(tmp_path, monkeypatch):
    monkeypatch.setenv("ANNOTATED_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"en_gum-ud-dev\.conllu"):
        load_gum("dev")
    folder = tmp_path / "gum"
    (folder / "dep").mkdir(parents=True)
    (folder / "en_gum-ud-dev.conllu").write_text(f"{ROWS}\n\n{BLANK}\n\n")
    assert [doc.text.strip() for doc in load_gum("dev")] == [TEXT]
    (folder / "splits.md").write_text(
        "# Splits\n\n## dev\n\n  * GUM_b_one\n\n## test\n\n * GUM_b_two\n"
    )
    for name, rows in ("one", f"{ROWS}\n\n{ROWS}"), ("two", ROWS):
        (folder / "dep" / f"GUM_b_{name}.conllu").write_text(f"{rows}\n\n")
    with tarfile.open(folder / "gum-dep-coref.tar.xz", "w:xz") as archive:
        for name in "splits.md", "dep":
            archive.add(folder / name, f"./{name}")
    assert [len(load_gum(split)) for split in ("dev", "test")] == [2, 1]
    with pytest.raises(FileError, match=r"splits\.md, and the texts of train that it lists; got"):
        load_gum("train")
    with pytest.raises(ValueError, match="expected a split out of train, dev, test of gum"):
        load_gum("valid")


def test_each_head_gets_the_relation_that_it_follows_beyond_a_fixed_distance():
    """Head 1 follows objects alone, head 2 determiners; the next word explains half of them."""
    relation = np.repeat(["obj", "det"], 200)
    offset = np.tile([1, 1, 2, 3], 100)
    hits = np.stack([relation == "obj", relation == "det"], axis=-1)[:, None]
    never = np.zeros(400, dtype=bool)
    found = Arrows(relation, np.arange(400), offset, never, never, hits)
    none = found._replace(hits=np.zeros_like(hits))
    table = head_relations(
        {"dependent": found, "governor": none}, {"dependent": found, "governor": none}
    )
    assert table.relation.tolist() == ["obj", "det"] and set(table["from"]) == {"dependent"}
    assert table.follows.tolist() == [1, 1] and table.fixed.tolist() == [0.5, 0.5]
    assert table.gain_when_chosen.tolist() == [0.5, 0.5] and (table.p < 1e-9).all()
    assert ((table.gain_low > 0.4) & (table.gain_high < 0.6)).all()
    assert (table.place == "+1").all()
    turned = head_relations(
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
    found = Arrows(relation, np.arange(400), offset, never, never, hits)
    table = head_relations({"dependent": found}, {"dependent": found})
    assert table.relation.isna().tolist() == [True, True, False]
    assert table.p.tolist()[:2] == [1, 1] and table.p[2] < 1e-9
    assert table.relation[2] == "advcl" and table.gain_when_chosen.round(2).tolist() == [
        -0.02,
        -0.02,
        0.98,
    ]


def test_holm_raises_p_values_as_by_hand():
    assert holm(np.array([0.01, 0.2, 0.03, 0.9])).round(3).tolist() == [0.04, 0.4, 0.09, 0.9]
    assert holm(np.array([0.7, 0.7])).tolist() == [1, 1]
    assert holm(np.array([0.02, 0.02])).tolist() == [0.04, 0.04]


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
    together = np.mean([(holm(p) < 0.05).any() for p in tables])
    assert 0.03 < alone < 0.07 and together <= 0.1


def test_tasks_are_what_some_head_does_for_sure():
    heads = pd.DataFrame(0.0, index=range(3), columns=PLACES)
    heads = heads.assign(relation=["obj", "det", "det"], p_holm=[0.05, 0.049, 0.001])
    assert sure(heads).index.tolist() == [1, 2]
    assert tasks(heads) == ["det"]
    heads.loc[0, ["end", "elsewhere"]] = 0.6, 0.9
    heads.loc[1, "next word"] = 0.5
    assert tasks(heads) == ["end", "det"]


def test_arrows_are_counted_by_their_length():
    offset = np.array([1, -1, 1, 2, -3, 4, 8, -5, 9, -40] * 2)
    relation = np.repeat(["obj", "punct"], 10)
    hits = (abs(offset) >= 9)[:, None, None] & np.array([[True, False]])
    never = np.zeros(20, dtype=bool)
    table = by_distance(*[Arrows(relation, np.arange(20), offset, never, never, hits)] * 2)
    assert table.arrows.tolist() == [3, 1, 2, 2, 2]
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
    asked = Pronouns(word, np.arange(85), word == "she", first, subject, chance, hits)
    table = best_for_pronouns(asked, asked).set_index("pronoun")
    assert list(table.index) == ["all", "its", "she"]
    assert table["head"].tolist() == [1, 1, 2] and table.finds.tolist() == [40 / 85, 1, 1]
    assert table.ruled.tolist() == [40 / 85, 0, 1] and set(table.chance) == {0.25}
    assert set(table.rule) == {"nearest"}  # one rule, the best for all of them
    for rule, right in ("first", word != "she"), ("subject", word != "us"):
        asked = asked._replace(**{rule: right})
        assert set(best_for_pronouns(asked, asked).rule) == {rule}


def test_heads_are_chosen_on_the_first_part_and_measured_on_the_second():
    """In the first part head 1 is always right, in the second always wrong, and head 2 right."""
    relation, sentence, never = np.repeat(["obj"], 40), np.arange(40), np.zeros(40, dtype=bool)
    hits = np.array([True, False])[None, None].repeat(40, axis=0)
    offset = np.tile([1, 1, 1, 2], 10)
    first = Arrows(relation, sentence, offset, never, never, hits)
    second = first._replace(hits=~hits, offset=np.tile([1, 2, 2, 2], 10))
    for table in best_heads(first, second, 1), by_distance(first, second):
        assert (
            set(table["head"]) == {1}
            and set(table.follows) == {0}
            and set(table.when_chosen) == {1}
        )
    (row,) = best_heads(first, second, 1).itertuples()
    assert row.place == "+2" and row.fixed == 0.75  # the place may be the luckiest
    table = head_relations({"dependent": first}, {"dependent": second}, 1)
    assert table.follows[0] == 0 and table.place[0] == "+2" and table.p[0] > 0.99
    assert table.gain_when_chosen[0] > 0 > table.gain_when_chosen[1]
    assert table.relation.isna().tolist() == [False, True] and table.p[1] == 1
    asked = Pronouns(np.repeat(["its"], 40), sentence, ~never, never, never, np.ones(40), hits)
    table = best_for_pronouns(asked, asked._replace(nearest=never, first=~never, hits=~hits))
    assert set(table["head"]) == {1} and set(table.finds) == {0}
    assert set(table.rule) == {"nearest"} and set(table.ruled) == {0}


def test_a_gain_counts_by_sentence():
    """Arrows of one sentence that agree tell no more than one of them."""
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
    tables = study(translator, docs * 2, docs, least=1)
    assert set(tables) == {"relations", "distances", "pronouns", "heads"}
    assert len(tables["heads"]) == 8 and set(PLACES) <= set(tables["heads"].columns)
    for name in "relations", "distances":
        assert set(tables[name]["from"]) == {"dependent", "governor"}
    assert tables["heads"].pronouns.isin([0.0, 1.0]).all()  # there is one pronoun
    for name in "relations", "heads", "distances":
        found = tables[name]
        np.testing.assert_array_equal(found.p_holm, holm(found.p.to_numpy()))


def test_the_answer_counts_what_is_sure():
    heads = pd.DataFrame({"layer": [1, 2], "head": [3, 4], "p_holm": [0.2, 0.01]})
    relations = pd.DataFrame({"relation": ["det", "det", "case"], "p_holm": [0.01, 0.01, 0.5]})
    found = {"heads": heads, "relations": relations}
    bare = {name: table.assign(p_holm=1.0) for name, table in found.items()}
    assert answer(found, bare) == (
        "Of 2 heads, 1 (2.4) surely follow a relation more often than any fixed place does, "
        "and of 2 relations 1 (det) surely have such a head; before training it is 0 heads and 0 "
        "relations."
    )
    assert "Of 2 heads, 0 surely follow" in answer(bare, bare)


def test_the_control_is_the_model_before_training():
    torch.manual_seed(3)
    before = make_model(30, 30, N=1, d_model=16, d_ff=32, h=4)
    trained = copy.deepcopy(before)
    for parameter in trained.parameters():
        parameter.data += 1  # nothing of what was learnt may stay, not even a bias
    for name, parameter in untrained(trained, seed=3).named_parameters():
        assert torch.equal(parameter, before.get_parameter(name)), name
    other = untrained(trained, seed=4)
    assert not torch.equal(other.generator.proj.weight, before.generator.proj.weight)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("1 no tabs\n", "sentence 1: expected lines of ten fields"),
        (ROWS.replace("\t2\t", "\t999\t"), "sentence 1: "),
        (ROWS.replace("\t2\t", "\tx\t"), "sentence 1: "),
        ("\udcff", "line 1: expected UTF-8"),
    ],
)
def test_a_broken_file_of_gum_is_named(tmp_path, monkeypatch, rows, told):
    monkeypatch.setenv("ANNOTATED_DATA", str(tmp_path))
    (tmp_path / "gum").mkdir()
    path = tmp_path / "gum" / "en_gum-ud-dev.conllu"
    path.write_bytes(rows.encode("utf-8", "surrogateescape"))
    with pytest.raises(FileError, match=rf"en_gum-ud-dev\.conllu.*{told}"):
        load_gum("dev")
    path.unlink()
    with tarfile.open(tmp_path / "gum" / "gum-dep-coref.tar.xz", "w:xz") as archive:
        for name, text in ("splits.md", "## dev\n * GUM_b_one\n"), ("dep/GUM_b_one.conllu", rows):
            content = text.encode("utf-8", "surrogateescape")
            (info := tarfile.TarInfo(name)).size = len(content)
            archive.addfile(info, io.BytesIO(content))
    with pytest.raises(FileError, match=rf"tar\.xz: dep/GUM_b_one\.conllu.*{told}"):
        load_gum("dev")
    (tmp_path / "gum" / "gum-dep-coref.tar.xz").write_bytes(b"no archive")
    with pytest.raises(FileError, match=r"gum-dep-coref\.tar\.xz: expected a whole archive"):
        load_gum("dev")
