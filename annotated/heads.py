"""Attention Visualizations (chapters/attention-visualizations.md).

Generated from the chapter's export cells by book/extract.py: edit it there.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import torch
from spacy.tokens import Doc, Span
from spacy.vocab import Vocab
from torch import Tensor
from tqdm import tqdm

from annotated.data import (
    archive_texts,
    corpus_file,
    encode_source,
    find_corpus,
    known_split,
    local_file,
    read_lines,
)
from annotated.files import reading
from annotated.model import EncoderDecoder, build_model
from annotated.translator import Translator

__all__ = [
    "DISTANCES",
    "PLACES",
    "Arrows",
    "Pronouns",
    "Seen",
    "answer",
    "antecedents",
    "arrows",
    "at_place",
    "best_for_pronouns",
    "best_heads",
    "best_place",
    "by_distance",
    "common_relations",
    "head_relations",
    "holm",
    "interval",
    "load_gum",
    "look",
    "places",
    "profile",
    "pronouns",
    "read_conllu",
    "strongest",
    "study",
    "sure",
    "tasks",
    "untrained",
    "word_weights",
]


def _spaces(rows: list[list[str]]) -> list[bool]:
    """Whether a space follows each word; `rows` are the lines of a sentence in CoNLL-U."""
    spaces, end, after_end = [], 0, True
    for row in rows:
        after = "SpaceAfter=No" not in row[9]
        if "-" in row[0]:  # several words written as one, such as 3-4 don't: their lines follow
            end, after_end = int(row[0].split("-")[1]), after
        elif row[0].isdigit():
            place = int(row[0])
            spaces.append(after if place > end else after_end and place == end)
    return spaces


_BRACKET = re.compile(r"\((\d+)[^()]*(\)?)|(\d+)[^()]*\)")


def _mentions(rows: list[list[str]]) -> dict[str, list[tuple[int, int]]]:
    """Mentions of each entity, as first and last word."""
    opened, found = defaultdict(list), defaultdict(list)
    for place, row in enumerate(rows):
        entity = next((part for part in row[9].split("|") if part.startswith("Entity=")), "")
        for bracket in _BRACKET.finditer(entity):
            begins, at_once, ends = bracket.groups()
            if begins and at_once:
                found[begins].append((place, place))
            elif begins:
                opened[begins].append(place)
            elif opened[ends]:
                found[ends].append((opened[ends].pop(), place))
    return found


_VOCAB = Vocab()


def read_conllu(text: str) -> Iterator[Doc]:
    """Sentences of a text in CoNLL-U: words, tags and heads; `spans` holds the mentions.

    Raises: ValueError that says which sentence is not in the format.
    """
    blocks = re.split(r"\n\s*\n", text.replace("\r\n", "\n").strip())
    for number, block in enumerate(filter(None, blocks), start=1):
        lines = [line.split("\t") for line in block.split("\n") if not line.startswith("#")]
        if any(len(line) != 10 for line in lines):
            raise ValueError(f"sentence {number}: expected lines of ten fields, with tabs between")
        rows = [line for line in lines if line[0].isdigit()]
        try:
            doc = Doc(
                _VOCAB,
                words=[row[1] for row in rows],
                spaces=_spaces(lines),
                heads=[int(row[6]) - 1 if row[6] != "0" else i for i, row in enumerate(rows)],
                deps=[row[7] for row in rows],
                pos=[row[3] for row in rows],
                tags=[row[4] for row in rows],
            )
        except ValueError as error:
            raise ValueError(f"sentence {number}: not in the format ({error})") from None
        for entity, places in _mentions(rows).items():
            doc.spans[entity] = [Span(doc, first, last + 1) for first, last in places]
        yield doc


def load_gum(split: str) -> list[Doc]:
    """The sentences of a split of GUM, "train", "dev" or "test".

    Raises: ValueError for another split; MissingFile if GUM is not at hand; FileError that names
        the file if it is not in the format.
    """
    corpus = find_corpus("gum")
    names = known_split(corpus, split)
    archive = local_file(corpus, "gum-dep-coref.tar.xz")
    if archive:
        texts = _archived_texts(archive, split)
    else:
        paths = [corpus_file(corpus, name) for name in names]
        texts = {str(path): "\n".join(read_lines(path)) for path in paths}
    docs: list[Doc] = []
    for name, text in texts.items():
        with reading(name, "sentences in CoNLL-U"):
            docs += read_conllu(text)
    return [doc for doc in docs if any(token.text != "_" for token in doc)]


def _archived_texts(path: Path, split: str) -> dict[str, str]:
    """The texts of a split, whose names the archive's splits.md lists under its title, by name.

    Raises: FileError if the archive is damaged, or if it lacks the split or a text of it.
    """
    found = archive_texts(path, (".conllu", "splits.md"))
    texts = {name.removeprefix("./"): text for name, text in found.items()}
    with reading(path, f"splits.md, and the texts of {split} that it lists"):
        _, *parts = re.split(r"^## (\w+)$", texts["splits.md"], flags=re.M)
        listed = dict(zip(parts[::2], parts[1::2], strict=True))[split]
        chosen = {f"dep/{name}.conllu" for name in re.findall(r"\w+_\w+", listed)}
        return {f"{path}: {name}": texts[name] for name in texts if name in chosen}


@torch.no_grad()
def word_weights(translator: Translator, doc: Doc) -> Tensor:
    """Encoder attention between the words of a sentence.

    Returns: (layers, h, len, len + 1); the last column is the end symbol. Words without a piece of
        their own have rows and columns of zeros.
    """
    text = doc.text.rstrip()
    encoding = translator.tokenizer.encode(text)
    words = [place for token in doc for place in [token.i] * len(token.text_with_ws)]
    device = next(translator.model.parameters()).device
    belongs = torch.zeros(len(encoding.ids) + 1, len(doc) + 1, device=device)  # the end last
    belongs[-1, -1] = 1.0
    for piece, (start, _) in enumerate(encoding.offsets):
        letter = len(text) - len(text[start:].lstrip())  # the first that is not a space
        belongs[piece, words[letter]] = 1.0
    src = torch.tensor(encode_source(translator.tokenizer, [text]), device=device)
    translator.model.encode(src, torch.ones(1, 1, src.size(1), dtype=torch.bool, device=device))
    layers: Any = translator.model.encoder.layers
    weights = torch.cat([layer.self_attn.attn for layer in layers])  # (layers, h, pieces, pieces)
    rows = (belongs / belongs.sum(dim=0).clamp(min=1.0)).T
    return (rows @ weights @ belongs)[..., :-1, :].cpu()


def strongest(weights: Tensor) -> Tensor:
    """The word that each word looks at most, itself and the end left out.

    Args:
        weights: (layers, h, len, len + 1), as from `word_weights`.

    Returns: positions (layers, h, len).
    """
    among = weights[..., :-1].clone()
    among.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
    return among.argmax(dim=-1)


class Arrows(NamedTuple):
    """The arrows of many trees, and which heads follow them.

    Args:
        relation, sentence, offset: (arrows,) label, number of the sentence, and how many words
            to the right the end of the arrow lies.
        first, last: (arrows,), whether the arrow ends at the first word, or at the last that is no
            punctuation.
        hits: (arrows, layers, h), whether a head looks from the start at the end of the arrow.
    """

    relation: np.ndarray
    sentence: np.ndarray
    offset: np.ndarray
    first: np.ndarray
    last: np.ndarray
    hits: np.ndarray


def arrows(docs: list[Doc], tops: list[Tensor], back: bool = False) -> Arrows:
    """All arrows from dependent to governor; `back`: from governor to dependent.

    Args:
        tops: of each sentence, as from `strongest`.
    """
    columns: list[list] = [[] for _ in Arrows._fields]
    for number, (doc, top) in enumerate(zip(docs, tops, strict=True)):
        tokens = [token for token in doc if token.head.i != token.i]
        if not tokens:
            continue
        ends = [(token.head.i, token.i) if back else (token.i, token.head.i) for token in tokens]
        start, end = torch.tensor(ends).T
        relation = [token.dep_ for token in tokens]
        hits = (top[..., start] == end).permute(2, 0, 1)
        last = max((token.i for token in doc if token.pos_ != "PUNCT"), default=len(doc) - 1)
        row = relation, [number] * len(tokens), end - start, end == 0, end == last, hits
        for column, values in zip(columns, row, strict=True):
            column.append(np.asarray(values))
    return Arrows(*map(np.concatenate, columns))


def interval(hits: np.ndarray, sentence: np.ndarray, draws: int = 1000) -> tuple[float, float]:
    """95 % bootstrap interval of the mean of hits (n,), drawn by sentence (n,)."""
    _, group = np.unique(sentence, return_inverse=True)
    right, count = np.bincount(group, hits), np.bincount(group)
    drawn = np.random.default_rng(0).integers(len(count), size=(draws, len(count)))
    low, high = np.quantile(right[drawn].sum(axis=1) / count[drawn].sum(axis=1), [0.025, 0.975])
    return float(low), float(high)


_Questions = TypeVar("_Questions", bound=NamedTuple)


def _only(found: _Questions, chosen: np.ndarray) -> _Questions:
    """Some of the arrows, or pronouns."""
    return found._make(column[chosen] for column in found)


def common_relations(first: Arrows, second: Arrows, least: int) -> list[str]:
    """Relations, but for punctuation, that have at least so many arrows in both."""
    names, counts = np.unique(first.relation, return_counts=True)
    return [
        str(name)
        for name, count in zip(names, counts, strict=True)
        if min(count, (second.relation == name).sum()) >= least and name != "punct"
    ]


def at_place(found: Arrows, place: str) -> np.ndarray:
    """Which arrows end at a fixed place: "+1", "-2", …, "first word" or "last word"."""
    ends = {"first word": found.first, "last word": found.last}
    return ends[place] if place in ends else found.offset == int(place)


def best_place(found: Arrows) -> str:
    """The fixed place at which most of some arrows end."""
    names = [f"{offset:+d}" for offset in np.unique(found.offset)] + ["first word", "last word"]
    return max(names, key=lambda place: at_place(found, place).mean())


def _gain_p(gain: np.ndarray, sentence: np.ndarray) -> float:
    """One-sided p-value of a mean gain (n,) against none, counted by sentence (n,); normal."""
    _, group = np.unique(sentence, return_inverse=True)
    rest = np.bincount(group, gain - gain.mean())  # the gains of a sentence vary together
    error = float(np.sqrt((rest**2).sum())) / len(gain)
    return math.erfc(gain.mean() / max(error, 1e-12) / math.sqrt(2)) / 2


def holm(p: np.ndarray) -> np.ndarray:
    """p-values of several questions, raised for their number by Holm's method.

    >>> holm(np.array([0.04, 0.01, 0.03])).round(2).tolist()
    [0.06, 0.03, 0.06]
    """
    order, raised = p.argsort(), np.empty_like(p)
    raised[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)).clip(max=1.0)
    return raised


def _beside_place(found: Arrows, layer: int, head: int) -> dict[str, Any]:
    """How many arrows a head follows, and how many end at the place that is best for them.

    Args:
        layer, head: counted from 0.
    """
    place = best_place(found)
    hits, fixed = found.hits[:, layer, head], at_place(found, place)
    gain = hits.astype(float) - fixed
    low, high = interval(hits, found.sentence)
    gain_low, gain_high = interval(gain, found.sentence)
    return {
        "arrows": len(hits), "follows": hits.mean(), "low": low, "high": high, "place": place,
        "fixed": fixed.mean(), "gain": gain.mean(), "gain_low": gain_low, "gain_high": gain_high,
        "p": _gain_p(gain, found.sentence),
    }  # fmt: skip


def _best_head(first: Arrows, second: Arrows) -> dict[str, Any]:
    """The head that follows most of the first arrows, and how it does on the second."""
    share = first.hits.mean(axis=0)  # (layers, h)
    layer, head = (int(i) for i in np.unravel_index(share.argmax(), share.shape))
    chosen = {"layer": layer + 1, "head": head + 1, "when_chosen": share.max()}
    return chosen | _beside_place(second, layer, head)


def best_heads(chosen_on: Arrows, measured_on: Arrows, least: int = 100) -> pd.DataFrame:
    """For each relation the head that follows it best, beside the best fixed place.

    Args:
        chosen_on, measured_on: arrows of different sentences.
        least: arrows that a relation must have in either part.

    Returns: shares of the arrows to measure on and the gain, each with a 95 % interval;
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


PLACES = ["itself", "previous word", "next word", "end", "punctuation", "same word", "elsewhere"]


def places(doc: Doc) -> np.ndarray:
    """For each word of a sentence, which of `PLACES` each word and the end are: (len, len + 1)."""
    words = np.array([token.text.lower() for token in doc])
    found = np.full((len(doc), len(doc) + 1), PLACES.index("elsewhere"))
    found[:, :-1][words[:, None] == words] = PLACES.index("same word")
    found[:, :-1][:, [token.pos_ == "PUNCT" for token in doc]] = PLACES.index("punctuation")
    found[:, -1] = PLACES.index("end")
    for name, offset in ("next word", 1), ("previous word", -1), ("itself", 0):
        row = np.arange(max(0, -offset), len(doc) - max(0, offset))
        found[row, row + offset] = PLACES.index(name)
    return found


def profile(docs: list[Doc], weights: list[Tensor]) -> pd.DataFrame:
    """Share of each head's attention that goes to each of `PLACES`, over all words.

    Args:
        weights: of each sentence, as from `word_weights`.
    """
    total = np.zeros((*weights[0].shape[:2], len(PLACES)))
    for doc, weight in zip(docs, weights, strict=True):
        where, seen = places(doc), weight.numpy()
        total += np.stack([seen[..., where == i].sum(axis=-1) for i in range(len(PLACES))], axis=-1)
    shares = total / total.sum(axis=-1, keepdims=True)
    heads = [(n + 1, i + 1) for n, i in np.ndindex(shares.shape[:2])]
    index = pd.MultiIndex.from_tuples(heads, names=["layer", "head"])
    return pd.DataFrame(shares.reshape(len(heads), -1), index, PLACES)


class Pronouns(NamedTuple):
    """Pronouns with something to find before them, and which heads find it.

    Args:
        word, sentence: (pronouns,).
        nearest, first, subject: (pronouns,), whether the nearest noun before, the first of the
            sentence, or the nearest subject, is an antecedent.
        chance: (pronouns,), share of the nouns before that are antecedents.
        hits: (pronouns, layers, h), whether a head finds an antecedent.
    """

    word: np.ndarray
    sentence: np.ndarray
    nearest: np.ndarray
    first: np.ndarray
    subject: np.ndarray
    chance: np.ndarray
    hits: np.ndarray


def antecedents(doc: Doc) -> Iterator[tuple[int, list[int], set[int]]]:
    """Each pronoun with the nouns before it, of which some but not all mean the same."""
    for mentions in doc.spans.values():
        same = {mention.root.i for mention in mentions}
        for mention in mentions:
            pronoun = mention[0]
            if len(mention) > 1 or pronoun.tag_ not in ("PRP", "PRP$"):
                continue
            nouns = [token.i for token in doc[: pronoun.i] if token.pos_ in ("NOUN", "PROPN")]
            if 0 < len(same & set(nouns)) < len(nouns):
                yield pronoun.i, nouns, same


def pronouns(docs: list[Doc], weights: list[Tensor]) -> Pronouns:
    """All pronouns of sentences, as questions to all heads.

    Without a subject before the pronoun, the nearest noun stands for it.
    """
    columns: list[list] = [[] for _ in Pronouns._fields]
    for number, (doc, weight) in enumerate(zip(docs, weights, strict=True)):
        for pronoun, nouns, same in antecedents(doc):
            right = torch.tensor([noun in same for noun in nouns])
            top = weight[..., pronoun, nouns].argmax(dim=-1)  # (layers, h)
            subjects = [noun for noun in nouns if doc[noun].dep_.startswith("nsubj")] or nouns
            ruled = nouns[-1] in same, nouns[0] in same, subjects[-1] in same
            row = doc[pronoun].text.lower(), number, *ruled, right.float().mean().item()
            for column, value in zip(columns, (*row, right[top].numpy()), strict=True):
                column.append(value)
    return Pronouns(*map(np.array, columns))


_HEAD_COLUMNS = [
    "layer", "head", "gain_when_chosen", "from", "relation", "arrows", "follows", "low", "high",
    "place", "fixed", "gain", "gain_low", "gain_high", "p",
]  # fmt: skip


def head_relations(
    chosen_on: dict[str, Arrows], measured_on: dict[str, Arrows], least: int = 100
) -> pd.DataFrame:
    """For each head the relation on which it gains most over a fixed place.

    Args:
        chosen_on, measured_on: arrows by where they start, such as "dependent" and "governor".
        least: arrows that a relation must have in either part.

    Returns: shares of the arrows to measure on, with the relation that the others chose, and their
        gain; `gain_when_chosen` is the gain on the others. Where that is not above 0, the head has
        no relation, and its p is 1.
    """
    asked, gains = [], []
    for start, first in chosen_on.items():
        for relation in common_relations(first, measured_on[start], least):
            chosen = _only(first, first.relation == relation)
            fixed = at_place(chosen, best_place(chosen)).mean()
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


def sure(table: pd.DataFrame) -> pd.DataFrame:
    """The rows whose gain is sure: p-values, raised for the number of rows, below 0.05."""
    return table[table["p_holm"] < 0.05]


def tasks(heads: pd.DataFrame) -> list[str]:
    """What at least one head does: the place of most of its attention, the relation it follows.

    Args:
        heads: a row a head, as in the table "heads" of `study`.
    """
    busy = [place for place in PLACES if place != "elsewhere" and (heads[place] > 0.5).any()]
    return busy + sorted(sure(heads).relation.unique())


DISTANCES = {"1": (1, 1), "2": (2, 2), "3 or 4": (3, 4), "5 to 8": (5, 8), "9 or more": (9, 999)}


def by_distance(chosen_on: Arrows, measured_on: Arrows) -> pd.DataFrame:
    """For arrows of each length the head that follows most of them, and the best fixed place."""
    rows: list[dict[str, Any]] = []
    for name, (low, high) in DISTANCES.items():
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


def best_for_pronouns(chosen_on: Pronouns, measured_on: Pronouns, least: int = 20) -> pd.DataFrame:
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
        low, high = interval(hits, second.sentence)
        gain = interval(hits.astype(float) - ruled, second.sentence)
        rows.append({
            "pronoun": word, "count": len(hits), "layer": layer + 1, "head": head + 1,
            "finds": hits.mean(), "low": low, "high": high, "rule": rule, "ruled": ruled.mean(),
            "chance": second.chance.mean(), "gain_low": gain[0], "gain_high": gain[1],
        })  # fmt: skip
    return pd.DataFrame(rows)


class Seen(NamedTuple):
    """What the heads of an encoder do in a number of sentences."""

    arrows: dict[str, Arrows]
    pronouns: Pronouns
    places: pd.DataFrame


def look(translator: Translator, docs: list[Doc]) -> Seen:
    """Let a model read sentences, and note where its heads look."""
    weights = [word_weights(translator, doc) for doc in tqdm(docs, unit="sentence")]
    tops = [strongest(weight) for weight in weights]
    ways = {"dependent": arrows(docs, tops), "governor": arrows(docs, tops, back=True)}
    return Seen(ways, pronouns(docs, weights), profile(docs, weights))


def study(
    translator: Translator, chosen_on: list[Doc], measured_on: list[Doc], least: int = 100
) -> dict[str, pd.DataFrame]:
    """Do the heads of an encoder know grammar?

    Args:
        chosen_on, measured_on: sentences of different texts.
        least: arrows that a relation must have in either part.

    Raises: ValueError if either part is empty.

    Returns: the tables "relations", "distances", "pronouns" and "heads"; but for pronouns with
        `p_holm`, the p-values raised for the number of rows.

    Source: section 4 and the captions of Figures 3, 4 and 5.
    """
    if not chosen_on or not measured_on:
        raise ValueError("expected sentences to choose on, and others to measure on; got none")
    first, second = look(translator, chosen_on), look(translator, measured_on)
    relations = [
        best_heads(first.arrows[start], second.arrows[start], least).assign(**{"from": start})
        for start in first.arrows
    ]
    heads = head_relations(first.arrows, second.arrows, least).set_index(["layer", "head"])
    heads["pronouns"] = second.pronouns.hits.mean(axis=0).flatten()
    heads["pronouns_when_chosen"] = first.pronouns.hits.mean(axis=0).flatten()
    distances = [
        by_distance(first.arrows[start], second.arrows[start]).assign(**{"from": start})
        for start in first.arrows
    ]
    tables = {
        "relations": pd.concat(relations, ignore_index=True),
        "distances": pd.concat(distances, ignore_index=True),
        "heads": heads.join(second.places).reset_index(),
    }
    raised = {
        name: table.assign(p_holm=holm(table["p"].to_numpy())) for name, table in tables.items()
    }
    return raised | {"pronouns": best_for_pronouns(first.pronouns, second.pronouns)}


def untrained(model: EncoderDecoder, seed: int = 0) -> EncoderDecoder:
    """A model of the same shape as it is before training."""
    assert model.config is not None
    torch.manual_seed(seed)
    return build_model(model.config).eval()


def answer(tables: dict[str, pd.DataFrame], control: dict[str, pd.DataFrame]) -> str:
    """What a study found about relations, in one sentence.

    Args:
        tables, control: as from `study`, of a model and of the same model untrained.
    """
    heads, relations = sure(tables["heads"]), sure(tables["relations"])
    numbers = [f"{row.layer}.{row.head}" for row in heads[["layer", "head"]].itertuples()]
    names = sorted(relations.relation.unique())
    bare = len(sure(control["heads"])), sure(control["relations"]).relation.nunique()
    listed = lambda found: f" ({', '.join(found)})" if found else ""
    return (
        f"Of {len(tables['heads'])} heads, {len(heads)}{listed(numbers)} surely follow a relation "
        f"more often than any fixed place does, and of {tables['relations'].relation.nunique()} "
        f"relations {len(names)}{listed(names)} surely have such a head; "
        f"before training it is {bare[0]} heads and {bare[1]} relations."
    )
