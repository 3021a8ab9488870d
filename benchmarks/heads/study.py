"""Do heads follow grammar? Shares of arcs, compared with rules that need no learning.

The best of many heads is partly the best by chance. A head is therefore chosen on some sentences
and measured on others; its gain over the best fixed position, such as "the next word", has a
p-value, and Holm's method adjusts the p-values of all questions of a table. The fixed position is
the best one on the sentences that are measured, so chance favors the rule over the head. Sentences
are treated as independent, which those of one text are not quite: true intervals are wider.
"""

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from spacy.tokens import Doc

from annotated.machinery.files import write_text
from annotated.machinery.translator import Translator
from benchmarks.heads.gold import load_gum
from benchmarks.heads.observe import ArcHits, PronounHits, observe_heads
from book.heads import FAR, reinitialized

_Questions = TypeVar("_Questions", bound=NamedTuple)
_Rows = list[dict[str, Any]]


def _only(found: _Questions, chosen: np.ndarray) -> _Questions:
    """A selection of the arcs or of the pronouns."""
    return found._make(column[chosen] for column in found)


def bootstrap_ci(hits: np.ndarray, sentence: np.ndarray, draws: int = 1000) -> tuple[float, float]:
    """95 % bootstrap interval of the mean of hits (n,), resampled by sentence (n,)."""
    _, group = np.unique(sentence, return_inverse=True)
    right, count = np.bincount(group, hits), np.bincount(group)
    drawn = np.random.default_rng(0).integers(len(count), size=(draws, len(count)))
    low, high = np.quantile(right[drawn].sum(axis=1) / count[drawn].sum(axis=1), [0.025, 0.975])
    return float(low), float(high)


def _gain_p(gain: np.ndarray, sentence: np.ndarray) -> float:
    """One-sided p-value of a mean gain (n,), clustered by sentence (n,); normal approximation."""
    _, group = np.unique(sentence, return_inverse=True)
    rest = np.bincount(group, gain - gain.mean())  # the gains within a sentence are correlated
    error = float(np.sqrt((rest**2).sum())) / len(gain)
    return math.erfc(gain.mean() / max(error, 1e-12) / math.sqrt(2)) / 2


def holm_adjusted(p: np.ndarray) -> np.ndarray:
    """p-values of several questions, adjusted for their number by Holm's method.

    >>> holm_adjusted(np.array([0.04, 0.01, 0.03])).round(2).tolist()
    [0.06, 0.03, 0.06]
    """
    order, raised = p.argsort(), np.empty_like(p)
    raised[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)).clip(max=1.0)
    return raised


def _common(first: np.ndarray, second: np.ndarray, least: int) -> list[str]:
    """Labels with at least `least` questions in both parts, except punctuation."""
    names, counts = np.unique(first, return_counts=True)
    frequent = names[(counts >= least) & (names != "punct")].tolist()
    return [name for name in frequent if (second == name).sum() >= least]


def best_fixed_place(found: ArcHits) -> tuple[str, np.ndarray]:
    """The fixed position at which most arcs end, and which arcs end there.

    It is an offset such as "+1" or "-2", "first word", or "last word".
    """
    names = [f"{offset:+d}" for offset in np.unique(found.offset)] + ["first word", "last word"]
    places = {place: _ends_at(found, place) for place in names}
    return max(places.items(), key=lambda place: place[1].mean())


def _ends_at(found: ArcHits, place: str) -> np.ndarray:
    """Which arcs end at a fixed position, as `best_fixed_place` names it."""
    ends = {"first word": found.first, "last word": found.last}
    return ends[place] if place in ends else found.offset == int(place)


def _against_place(
    found: ArcHits, layer: int, head: int, place: str | None = None
) -> dict[str, Any]:
    """Shares of arcs that a head (layer and head from 0) and a fixed position predict.

    By default, it is the position that is best for these arcs.
    """
    place = place or best_fixed_place(found)[0]
    fixed, hits = _ends_at(found, place), found.hits[:, layer, head]
    gain = hits.astype(float) - fixed
    low, high = bootstrap_ci(hits, found.sentence)
    gain_low, gain_high = bootstrap_ci(gain, found.sentence)
    return {
        "arcs": len(hits), "follows": hits.mean(), "low": low, "high": high, "place": place,
        "fixed": fixed.mean(), "gain": gain.mean(), "gain_low": gain_low, "gain_high": gain_high,
        "p": _gain_p(gain, found.sentence),
    }  # fmt: skip


def best_heads(
    first: ArcHits, second: ArcHits, label: Callable[[ArcHits], np.ndarray], least: int
) -> _Rows:
    """For each label, the head that follows most of the first arcs, measured on the second.

    Returns: rows with the label's `name`, for labels with `least` arcs in both parts.
    """
    rows = []
    for name in _common(label(first), label(second), least):
        chosen, measured = (_only(arcs, label(arcs) == name) for arcs in (first, second))
        share = chosen.hits.mean(axis=0)  # (layers, h)
        layer, head = (int(i) for i in np.unravel_index(share.argmax(), share.shape))
        best = {"name": name, "layer": layer + 1, "head": head + 1, "when_chosen": share.max()}
        rows.append(best | _against_place(measured, layer, head))
    return rows


def _nearest(found: ArcHits, tag: str, side: int) -> np.ndarray:
    """Which arcs end at the nearest word of a part of speech, before (-1) or after (1) it."""
    return found.nearest & (found.tag == tag) & (np.sign(found.offset) == side)


def best_heads_far(first: ArcHits, second: ArcHits, words: int, least: int) -> _Rows:
    """For each relation, the head that follows most of its arcs of at least `words` words.

    Returns: rows as from `best_heads`, whose `place` is the best one for the relation's arcs of all
        lengths, so that it does not know that these are long. `informed` is the share of the best
        place for these arcs, and `shuffled` what the head would follow if they exchanged their
        lengths. `rule` is the nearest word of a part of speech, such as "VERB after", chosen like
        the head; `ruled` is its share and `lead_low` to `lead_high` the interval of the head's lead
        over it.
    """
    far = lambda arcs: np.where(abs(arcs.offset) >= words, arcs.relation, "punct")
    rows = []
    for row in best_heads(first, second, far, least):
        chosen, measured = (_only(arcs, far(arcs) == row["name"]) for arcs in (first, second))
        place, _ = best_fixed_place(_only(second, second.relation == row["name"]))
        layer, head = row["layer"] - 1, row["head"] - 1
        rules = [(tag, side) for tag in np.unique(chosen.tag) for side in (-1, 1)]
        tag, side = max(rules, key=lambda rule: _nearest(chosen, *rule).mean())
        ruled = _nearest(measured, tag, side)
        lead = bootstrap_ci(measured.hits[:, layer, head].astype(float) - ruled, measured.sentence)
        looks = measured.looks[:, layer, head]
        shuffled = np.mean([(looks == offset).mean() for offset in measured.offset])
        rows.append(row | {"words": words, "informed": row["fixed"], "shuffled": shuffled}
                    | _against_place(measured, layer, head, place)
                    | {"rule": f"{tag} {'before' if side < 0 else 'after'}", "ruled": ruled.mean(),
                       "lead_low": lead[0], "lead_high": lead[1]})  # fmt: skip
    return rows


def best_relation_per_head(
    first: dict[str, ArcHits], second: dict[str, ArcHits], least: int
) -> _Rows:
    """For each head, the relation on which it gains most over a fixed position.

    Args:
        first, second: arcs to choose on and to measure on, by their start, as `observe_heads`.

    Returns: one row per head; `gain_when_chosen` is the gain on the first arcs. A head that gains
        on no relation there has none, and its p is 1.
    """
    asked, gains = [], []
    for start, arcs in first.items():
        for relation in _common(arcs.relation, second[start].relation, least):
            chosen = _only(arcs, arcs.relation == relation)
            gains.append(chosen.hits.mean(axis=0) - best_fixed_place(chosen)[1].mean())
            asked.append((start, relation))
    rows = []
    for (layer, head), best in np.ndenumerate(np.argmax(gains, axis=0)):
        gain, (start, relation) = gains[best][layer, head], asked[best]
        row = {"layer": layer + 1, "head": head + 1, "gain_when_chosen": gain, "p": 1.0}
        if gain > 0:
            measured = _only(second[start], second[start].relation == relation)
            row |= {"from": start, "relation": relation} | _against_place(measured, layer, head)
        rows.append(row)
    return rows


def best_head_per_pronoun(first: PronounHits, second: PronounHits) -> _Rows:
    """For all pronouns, and for each one with 20 cases in both parts, the head that finds the most.

    Returns: also the share found by the best of three rules on all pronouns to choose on: the
        nearest noun, the first noun, or the nearest subject.
    """
    frequent = _common(first.word, second.word, 20)
    rule = max(("nearest", "first", "subject"), key=lambda name: getattr(first, name).mean())
    rows = []
    for word in ["all", *frequent]:
        chosen, asked = (_only(x, (x.word == word) | (word == "all")) for x in (first, second))
        share = chosen.hits.mean(axis=0)
        layer, head = np.unravel_index(share.argmax(), share.shape)
        hits, ruled = asked.hits[:, layer, head], getattr(asked, rule)
        low, high = bootstrap_ci(hits, asked.sentence)
        gain = bootstrap_ci(hits.astype(float) - ruled, asked.sentence)
        rows.append({
            "pronoun": word, "count": len(hits), "layer": layer + 1, "head": head + 1,
            "finds": hits.mean(), "low": low, "high": high, "rule": rule, "ruled": ruled.mean(),
            "chance": asked.chance.mean(), "gain_low": gain[0], "gain_high": gain[1],
        })  # fmt: skip
    return rows


def head_study(
    translator: Translator, chosen_on: list[Doc], measured_on: list[Doc], least: int = 100
) -> dict[str, pd.DataFrame]:
    """Do the heads of an encoder follow grammar?

    Args:
        chosen_on, measured_on: sentences of different texts.
        least: arcs that a relation must have in each part; half as many among the long ones.

    Raises: ValueError if either part is empty.

    Returns: the tables "relations", "far", "pronouns" and "heads". All but "pronouns" have
        `p_holm`, the p-values adjusted for the number of rows.

    Source: section 4 and the captions of Figures 3, 4 and 5.
    """
    if not chosen_on or not measured_on:
        raise ValueError("expected sentences to choose on and others to measure on; got none")
    first, pronouns, _ = observe_heads(translator, chosen_on)
    second, measured, profile = observe_heads(translator, measured_on)

    def both_ways(best: Callable[[ArcHits, ArcHits], _Rows]) -> pd.DataFrame:
        rows = [row | {"from": way} for way in first for row in best(first[way], second[way])]
        return pd.DataFrame(rows).rename(columns={"name": "relation"})

    heads = pd.DataFrame(best_relation_per_head(first, second, least))
    heads["pronouns"] = measured.hits.mean(axis=0).flatten()
    heads["pronouns_when_chosen"] = pronouns.hits.mean(axis=0).flatten()
    tables = {
        "relations": both_ways(lambda a, b: best_heads(a, b, lambda arcs: arcs.relation, least)),
        "far": pd.concat(
            both_ways(partial(best_heads_far, words=words, least=least // 2)) for words in FAR
        ).reset_index(drop=True),
        "heads": heads.join(profile, on=["layer", "head"]),
    }
    for name, table in tables.items():
        tables[name] = table.assign(p_holm=holm_adjusted(table["p"].to_numpy()))
    return tables | {"pronouns": pd.DataFrame(best_head_per_pronoun(pronouns, measured))}


def gum_study(translator: Translator, untrained: bool = False) -> dict[str, pd.DataFrame]:
    """The study of a model on GUM, or of an untrained model of the same shape."""
    if untrained:
        translator = Translator(reinitialized(translator.model), translator.tokenizer)
    return head_study(translator, load_gum("train")[::4], load_gum("dev") + load_gum("test"))


def write_study(path: Path, tables: dict[str, pd.DataFrame], **about: Any) -> None:
    """Write a study to a JSON file, together with facts about it."""
    as_json = {"orient": "records", "double_precision": 15}  # missing values become null
    rows = {name: json.loads(table.to_json(**as_json)) for name, table in tables.items()}
    write_text(path, json.dumps(about | rows, indent=1) + "\n")
