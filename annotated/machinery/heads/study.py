"""The study of heads."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from annotated.machinery.downloads import cache_folder
from annotated.machinery.files import lazy_extra, read_json, resource_path, write_text
from annotated.machinery.heads.gold import load_gum
from annotated.machinery.heads.observe import ATTENTION_PLACES, ArcHits, PronounHits, observe_heads
from annotated.machinery.translator import Translator
from annotated.model import EncoderDecoder, build_model


def bootstrap_ci(hits: np.ndarray, sentence: np.ndarray, draws: int = 1000) -> tuple[float, float]:
    """95 % bootstrap interval of the mean of hits (n,), drawn by sentence (n,)."""
    _, group = np.unique(sentence, return_inverse=True)
    right, count = np.bincount(group, hits), np.bincount(group)
    drawn = np.random.default_rng(0).integers(len(count), size=(draws, len(count)))
    low, high = np.quantile(right[drawn].sum(axis=1) / count[drawn].sum(axis=1), [0.025, 0.975])
    return float(low), float(high)


_Questions = TypeVar("_Questions", bound=NamedTuple)


def _only(found: _Questions, chosen: np.ndarray) -> _Questions:
    """Some of the arcs, or pronouns."""
    return found._make(column[chosen] for column in found)


def common_relations(first: ArcHits, second: ArcHits, least: int) -> list[str]:
    """Relations, but for punctuation, that have at least so many arcs in both."""
    names, counts = np.unique(first.relation, return_counts=True)
    return [
        str(name)
        for name, count in zip(names, counts, strict=True)
        if min(count, (second.relation == name).sum()) >= least and name != "punct"
    ]


def at_fixed_place(found: ArcHits, place: str) -> np.ndarray:
    """Which arcs end at a fixed place: "+1", "-2", …, "first word" or "last word"."""
    ends = {"first word": found.first, "last word": found.last}
    return ends[place] if place in ends else found.offset == int(place)


def best_fixed_place(found: ArcHits) -> str:
    """The fixed place at which most of some arcs end."""
    names = [f"{offset:+d}" for offset in np.unique(found.offset)] + ["first word", "last word"]
    return max(names, key=lambda place: at_fixed_place(found, place).mean())


def _gain_p(gain: np.ndarray, sentence: np.ndarray) -> float:
    """One-sided p-value of a mean gain (n,) against none, counted by sentence (n,); normal."""
    _, group = np.unique(sentence, return_inverse=True)
    rest = np.bincount(group, gain - gain.mean())  # the gains of a sentence vary together
    error = float(np.sqrt((rest**2).sum())) / len(gain)
    return math.erfc(gain.mean() / max(error, 1e-12) / math.sqrt(2)) / 2


def holm_adjusted(p: np.ndarray) -> np.ndarray:
    """p-values of several questions, raised for their number by Holm's method.

    >>> holm_adjusted(np.array([0.04, 0.01, 0.03])).round(2).tolist()
    [0.06, 0.03, 0.06]
    """
    order, raised = p.argsort(), np.empty_like(p)
    raised[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)).clip(max=1.0)
    return raised


def _beside_place(found: ArcHits, layer: int, head: int) -> dict[str, Any]:
    """How many arcs a head follows, and how many end at the place that is best for them.

    Args:
        layer, head: counted from 0.
    """
    place = best_fixed_place(found)
    hits, fixed = found.hits[:, layer, head], at_fixed_place(found, place)
    gain = hits.astype(float) - fixed
    low, high = bootstrap_ci(hits, found.sentence)
    gain_low, gain_high = bootstrap_ci(gain, found.sentence)
    return {
        "arcs": len(hits), "follows": hits.mean(), "low": low, "high": high, "place": place,
        "fixed": fixed.mean(), "gain": gain.mean(), "gain_low": gain_low, "gain_high": gain_high,
        "p": _gain_p(gain, found.sentence),
    }  # fmt: skip


def _best_head(first: ArcHits, second: ArcHits) -> dict[str, Any]:
    """The head that follows most of the first arcs, and how it does on the second."""
    share = first.hits.mean(axis=0)  # (layers, h)
    layer, head = (int(i) for i in np.unravel_index(share.argmax(), share.shape))
    chosen = {"layer": layer + 1, "head": head + 1, "when_chosen": share.max()}
    return chosen | _beside_place(second, layer, head)


with lazy_extra("viz"):
    import pandas as pd


def best_head_per_relation(
    chosen_on: ArcHits, measured_on: ArcHits, least: int = 100
) -> pd.DataFrame:
    """For each relation the head that follows it best, beside the best fixed place.

    Args:
        chosen_on, measured_on: arcs of different sentences.
        least: arcs that a relation must have in either part.

    Returns: shares of the arcs to measure on and the gain, each with a 95 % interval;
        `when_chosen` is the head's share of the others.
    """
    rows: list[dict[str, Any]] = []
    for relation in common_relations(chosen_on, measured_on, least):
        first, second = (
            _only(found, found.relation == relation) for found in (chosen_on, measured_on)
        )
        rows.append({"relation": relation} | _best_head(first, second))
    rows.sort(key=lambda row: -row["follows"])
    return pd.DataFrame(rows)


_HEAD_COLUMNS = [
    "layer", "head", "gain_when_chosen", "from", "relation", "arcs", "follows", "low", "high",
    "place", "fixed", "gain", "gain_low", "gain_high", "p",
]  # fmt: skip


def best_relation_per_head(
    chosen_on: dict[str, ArcHits], measured_on: dict[str, ArcHits], least: int = 100
) -> pd.DataFrame:
    """For each head the relation on which it gains most over a fixed place.

    Args:
        chosen_on, measured_on: arcs by where they start, such as "dependent" and "governor".
        least: arcs that a relation must have in either part.

    Returns: shares of the arcs to measure on, with the relation that the others chose, and their
        gain; `gain_when_chosen` is the gain on the others. Where that is not above 0, the head has
        no relation, and its p is 1.
    """
    asked, gains = [], []
    for start, first in chosen_on.items():
        for relation in common_relations(first, measured_on[start], least):
            chosen = _only(first, first.relation == relation)
            fixed = at_fixed_place(chosen, best_fixed_place(chosen)).mean()
            gains.append(chosen.hits.mean(axis=0) - fixed)  # (layers, h)
            asked.append((start, relation))
    table = []
    for (layer, head), best in np.ndenumerate(np.argmax(gains, axis=0)):
        gain, (start, relation) = gains[best][layer, head], asked[best]
        row = {"layer": layer + 1, "head": head + 1, "gain_when_chosen": gain, "p": 1.0}
        if gain > 0:
            measured = _only(measured_on[start], measured_on[start].relation == relation)
            row |= {"from": start, "relation": relation} | _beside_place(measured, layer, head)
        table.append(row)
    return pd.DataFrame(table, columns=_HEAD_COLUMNS)


def significant(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of a table of `head_study` whose gain is sure: `p_holm` is below 0.05."""
    return table[table["p_holm"] < 0.05]


def head_tasks(heads: pd.DataFrame) -> list[str]:
    """What at least one head does: the place of most of its attention, the relation it follows.

    Args:
        heads: a row a head, as in the table "heads" of `head_study`.
    """
    busy = [
        place for place in ATTENTION_PLACES if place != "elsewhere" and (heads[place] > 0.5).any()
    ]
    return busy + sorted(significant(heads).relation.unique())


DISTANCE_BINS = {
    "1": (1, 1), "2": (2, 2), "3 or 4": (3, 4), "5 to 8": (5, 8), "9 or more": (9, 999),
}  # fmt: skip


def best_head_per_distance(chosen_on: ArcHits, measured_on: ArcHits) -> pd.DataFrame:
    """For arcs of each length the head that follows most of them, and the best fixed place."""
    rows: list[dict[str, Any]] = []
    for name, (low, high) in DISTANCE_BINS.items():
        first, second = (
            _only(
                found,
                np.isin(abs(found.offset), range(low, high + 1)) & (found.relation != "punct"),
            )
            for found in (chosen_on, measured_on)
        )
        if len(first.hits) and len(second.hits):
            rows.append({"distance": name} | _best_head(first, second))
    return pd.DataFrame(rows)


_RULES = "nearest", "first", "subject"


def best_head_per_pronoun(
    chosen_on: PronounHits, measured_on: PronounHits, least: int = 20
) -> pd.DataFrame:
    """For all pronouns, and for each of the frequent ones, the head that finds most antecedents.

    Returns: also the share that one of three rules finds, the nearest noun, the first, or the
        nearest subject: the best for all pronouns to choose on.
    """
    words, counts = np.unique(measured_on.word, return_counts=True)
    frequent = [word for word in words[counts >= least] if (chosen_on.word == word).sum() >= least]
    rule = max(_RULES, key=lambda name: getattr(chosen_on, name).mean())
    rows = []
    for word in ["all", *frequent]:
        first, second = (
            _only(found, (found.word == word) | (word == "all"))
            for found in (chosen_on, measured_on)
        )
        share = first.hits.mean(axis=0)
        layer, head = np.unravel_index(share.argmax(), share.shape)
        hits, ruled = second.hits[:, layer, head], getattr(second, rule)
        low, high = bootstrap_ci(hits, second.sentence)
        gain = bootstrap_ci(hits.astype(float) - ruled, second.sentence)
        rows.append({
            "pronoun": word, "count": len(hits), "layer": layer + 1, "head": head + 1,
            "finds": hits.mean(), "low": low, "high": high, "rule": rule, "ruled": ruled.mean(),
            "chance": second.chance.mean(), "gain_low": gain[0], "gain_high": gain[1],
        })  # fmt: skip
    return pd.DataFrame(rows)


with lazy_extra("parse"):
    from spacy.tokens import Doc


def head_study(
    translator: Translator, chosen_on: list[Doc], measured_on: list[Doc], least: int = 100
) -> dict[str, pd.DataFrame]:
    """Do the heads of an encoder know grammar?

    Args:
        chosen_on, measured_on: sentences of different texts.
        least: arcs that a relation must have in either part.

    Raises: ValueError if either part is empty.

    Returns: the tables "relations", "distances", "pronouns" and "heads"; but for pronouns with
        `p_holm`, the p-values raised for the number of rows.

    Source: section 4 and the captions of Figures 3, 4 and 5.
    """
    if not chosen_on or not measured_on:
        raise ValueError("expected sentences to choose on, and others to measure on; got none")
    first, second = observe_heads(translator, chosen_on), observe_heads(translator, measured_on)
    relations, distances = [], []
    for start, arcs in first.arcs.items():
        table = best_head_per_relation(arcs, second.arcs[start], least)
        relations.append(table.assign(**{"from": start}))
        table = best_head_per_distance(arcs, second.arcs[start])
        distances.append(table.assign(**{"from": start}))
    heads = best_relation_per_head(first.arcs, second.arcs, least).set_index(["layer", "head"])
    heads["pronouns"] = second.pronouns.hits.mean(axis=0).flatten()
    heads["pronouns_when_chosen"] = first.pronouns.hits.mean(axis=0).flatten()
    tables = {
        "relations": pd.concat(relations, ignore_index=True),
        "distances": pd.concat(distances, ignore_index=True),
        "heads": heads.join(second.profile).reset_index(),
    }
    for name, table in tables.items():
        tables[name] = table.assign(p_holm=holm_adjusted(table["p"].to_numpy()))
    return tables | {"pronouns": best_head_per_pronoun(first.pronouns, second.pronouns)}


def reinitialized(model: EncoderDecoder, seed: int = 0) -> EncoderDecoder:
    """A model of the same shape as it is before training."""
    assert model.config is not None
    torch.manual_seed(seed)
    return build_model(model.config).eval()


def study_measures(tables: dict[str, pd.DataFrame]) -> dict[str, float]:
    """How sharp the heads of an encoder are, and what they do, in four numbers.

    Args:
        tables: as from `head_study`.

    Returns: largest, the mean largest weight (0 to 1); placed, heads with more than half of their
        attention at one kind of place; followers, heads that surely follow a relation; relations,
        those that surely have a head.
    """
    heads = tables["heads"]
    return {
        "largest": float(heads["largest"].mean()),
        "placed": int((heads[ATTENTION_PLACES[:-1]] > 0.5).any(axis=1).sum()),
        "followers": len(significant(heads)),
        "relations": significant(tables["relations"]).relation.nunique(),
    }


def study_summary(tables: dict[str, pd.DataFrame], control: dict[str, pd.DataFrame]) -> str:
    """What a study found about relations, in one sentence.

    Args:
        tables, control: as from `head_study`, of a model and of the same model untrained.
    """
    heads, relations = significant(tables["heads"]), significant(tables["relations"])
    numbers = [f"{row.layer}.{row.head}" for row in heads[["layer", "head"]].itertuples()]
    names = sorted(relations.relation.unique())
    bare = len(significant(control["heads"])), significant(control["relations"]).relation.nunique()
    listed = lambda found: f" ({', '.join(found)})" if found else ""
    return (
        f"Of {len(tables['heads'])} heads, {len(heads)}{listed(numbers)} surely follow a relation "
        f"more often than any fixed place does, and of {tables['relations'].relation.nunique()} "
        f"relations {len(names)}{listed(names)} surely have such a head; "
        f"before training it is {bare[0]} heads and {bare[1]} relations."
    )


def gum_study(translator: Translator, untrained: bool = False) -> dict[str, pd.DataFrame]:
    """The study of a model on GUM, or of one of the same shape before training."""
    if untrained:
        translator = Translator(reinitialized(translator.model), translator.tokenizer)
    return head_study(translator, load_gum("train")[::4], load_gum("dev") + load_gum("test"))


def write_study(path: Path, tables: dict[str, pd.DataFrame], **about: Any) -> None:
    """Keep a study in a JSON file, with some words about it."""
    as_json = {"orient": "records", "double_precision": 15}  # what is missing becomes null
    rows = {name: json.loads(table.to_json(**as_json)) for name, table in tables.items()}
    write_text(path, json.dumps(about | rows, indent=1) + "\n")


def kept_study(
    translator: Translator, name: str, untrained: bool = False
) -> dict[str, pd.DataFrame]:
    """The study of a model, out of its file.

    Args:
        translator: the model.   name: what `load_pretrained` was given for it.
    """
    ending = "-heads-untrained.json" if untrained else "-heads.json"
    path = resource_path("results") / f"{name}{ending}"
    if not path.is_file():
        weights = hashlib.sha256()
        for parameter in translator.model.parameters():
            weights.update(parameter.detach().cpu().contiguous().numpy().data)
        path = cache_folder() / "heads" / f"{weights.hexdigest()[:16]}{ending}"
    if not path.is_file():
        write_study(path, gum_study(translator, untrained), model=name, untrained=untrained)
    found = read_json(path, "a study of heads")
    return {key: pd.DataFrame(rows) for key, rows in found.items() if isinstance(rows, list)}
