"""Attention Visualizations (chapters/attention-visualizations.md).

Generated from the chapter's export cells by book/extract.py: edit it there.
"""

import re
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from spacy.tokens import Doc, Span
from spacy.vocab import Vocab
from torch import Tensor
from tqdm import tqdm

from annotated.data import corpus_file, encode_source, find_corpus, known_split, local_file
from annotated.decoding import Translator
from annotated.model import EncoderDecoder, build_model

__all__ = [
    "DISTANCES",
    "PLACES",
    "Arrows",
    "Pronouns",
    "Seen",
    "antecedents",
    "archived_texts",
    "arrows",
    "best_for_pronouns",
    "best_heads",
    "best_offset",
    "by_distance",
    "common_relations",
    "head_relations",
    "interval",
    "load_gum",
    "look",
    "places",
    "profile",
    "pronouns",
    "read_conllu",
    "strongest",
    "study",
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
    for number, block in enumerate(filter(None, text.split("\n\n")), start=1):
        lines = [line.split("\t") for line in block.splitlines() if not line.startswith("#")]
        if any(len(line) != 10 for line in lines):
            raise ValueError(f"sentence {number}: expected lines of ten fields, with tabs between")
        rows = [line for line in lines if line[0].isdigit()]
        doc = Doc(
            _VOCAB,
            words=[row[1] for row in rows],
            spaces=_spaces(lines),
            heads=[int(row[6]) - 1 if row[6] != "0" else i for i, row in enumerate(rows)],
            deps=[row[7] for row in rows],
            pos=[row[3] for row in rows],
            tags=[row[4] for row in rows],
        )
        for entity, places in _mentions(rows).items():
            doc.spans[entity] = [Span(doc, first, last + 1) for first, last in places]
        yield doc


def load_gum(split: str) -> list[Doc]:
    """The sentences of a split of GUM, "train", "dev" or "test".

    Raises: ValueError for another split; FileNotFoundError if GUM is not at hand.
    """
    corpus = find_corpus("gum")
    names = known_split(corpus, split)
    archive = local_file(corpus, "gum-dep-coref.tar.xz")
    if archive:
        texts = archived_texts(archive, split)
    else:
        texts = [corpus_file(corpus, name).read_text("utf-8") for name in names]
    docs = [doc for text in texts for doc in read_conllu(text)]
    return [doc for doc in docs if any(token.text != "_" for token in doc)]


def archived_texts(path: Path, split: str) -> list[str]:
    """The texts of a split, whose names the archive's splits.md lists under its title."""
    with tarfile.open(path) as archive:
        members = {member.name.removeprefix("./"): member for member in archive}
        read = lambda name: b"".join(archive.extractfile(members[name]) or ()).decode("utf-8")
        _, *parts = re.split(r"^## (\w+)$", read("splits.md"), flags=re.M)
        listed = dict(zip(parts[::2], parts[1::2], strict=True))[split]
        chosen = {f"dep/{name}.conllu" for name in re.findall(r"\w+_\w+", listed)}
        return [read(name) for name in sorted(chosen & set(members))]


@torch.no_grad()
def word_weights(translator: Translator, doc: Doc) -> Tensor:
    """Encoder attention between the words of a sentence.

    Returns: (layers, h, len, len + 1); the last column is the end symbol. Words without a piece of
        their own have rows and columns of zeros.
    """
    text = doc.text.rstrip()
    encoding = translator.tokenizer.encode(text)
    words = [place for token in doc for place in [token.i] * len(token.text_with_ws)]
    belongs = torch.zeros(len(encoding.ids) + 1, len(doc) + 1)  # (pieces, words), the end last
    belongs[-1, -1] = 1.0
    for piece, (start, _) in enumerate(encoding.offsets):
        letter = len(text) - len(text[start:].lstrip())  # the first that is not a space
        belongs[piece, words[letter]] = 1.0
    src = torch.tensor(encode_source(translator.tokenizer, [text]))
    translator.model.encode(src, torch.ones(1, 1, src.size(1), dtype=torch.bool))
    layers: Any = translator.model.encoder.layers
    weights = torch.cat([layer.self_attn.attn for layer in layers])  # (layers, h, pieces, pieces)
    rows = (belongs / belongs.sum(dim=0).clamp(min=1.0)).T
    return (rows @ weights @ belongs)[..., :-1, :]


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
        hits: (arrows, layers, h), whether a head looks from the start at the end of the arrow.
    """

    relation: np.ndarray
    sentence: np.ndarray
    offset: np.ndarray
    hits: np.ndarray


def arrows(docs: list[Doc], tops: list[Tensor], back: bool = False) -> Arrows:
    """All arrows from dependent to governor; `back`: from governor to dependent.

    Args:
        tops: of each sentence, as from `strongest`.
    """
    relation, sentence, offset, hits = [], [], [], []
    for number, (doc, top) in enumerate(zip(docs, tops, strict=True)):
        tokens = [token for token in doc if token.head.i != token.i]
        ends = [(token.head.i, token.i) if back else (token.i, token.head.i) for token in tokens]
        start, end = torch.tensor(ends, dtype=torch.long).view(-1, 2).T
        relation += [token.dep_ for token in tokens]
        sentence += [number] * len(tokens)
        offset += (end - start).tolist()
        hits.append((top[..., start] == end).permute(2, 0, 1).numpy())
    return Arrows(np.array(relation), np.array(sentence), np.array(offset), np.concatenate(hits))


def interval(hits: np.ndarray, sentence: np.ndarray, draws: int = 1000) -> tuple[float, float]:
    """95 % bootstrap interval of the mean of hits (n,), drawn by sentence (n,)."""
    _, group = np.unique(sentence, return_inverse=True)
    right, count = np.bincount(group, hits), np.bincount(group)
    drawn = np.random.default_rng(0).integers(len(count), size=(draws, len(count)))
    low, high = np.quantile(right[drawn].sum(axis=1) / count[drawn].sum(axis=1), [0.025, 0.975])
    return float(low), float(high)


def common_relations(first: Arrows, second: Arrows, least: int) -> list[str]:
    """Relations that have at least so many arrows in both."""
    names, counts = np.unique(first.relation, return_counts=True)
    return [
        str(name)
        for name, count in zip(names, counts, strict=True)
        if min(count, (second.relation == name).sum()) >= least
    ]


def best_offset(offsets: np.ndarray) -> tuple[int, float]:
    """The most frequent of some distances, and its share."""
    values, counts = np.unique(offsets, return_counts=True)
    return int(values[counts.argmax()]), counts.max() / len(offsets)


def best_heads(chosen_on: Arrows, measured_on: Arrows, least: int = 100) -> pd.DataFrame:
    """For each relation the head that follows it best, beside the best fixed distance.

    Args:
        chosen_on, measured_on: arrows of sentences that share nothing.
        least: arrows that a relation must have in either part.

    Returns: shares of the arrows to measure on, with a 95 % interval; `when_chosen` is the head's
        share of the others.
    """
    rows: list[dict[str, Any]] = []
    for relation in common_relations(chosen_on, measured_on, least):
        first, second = chosen_on.relation == relation, measured_on.relation == relation
        share = chosen_on.hits[first].mean(axis=0)
        layer, head = np.unravel_index(share.argmax(), share.shape)
        offset, _ = best_offset(chosen_on.offset[first])
        hits = measured_on.hits[second, layer, head]
        fixed = measured_on.offset[second] == offset
        sentence = measured_on.sentence[second]
        low, high = interval(hits, sentence)
        gain = interval(hits.astype(float) - fixed, sentence)
        rows.append({
            "relation": relation, "arrows": int(second.sum()), "layer": layer + 1, "head": head + 1,
            "follows": hits.mean(), "low": low, "high": high, "offset": offset,
            "fixed": fixed.mean(), "gain_low": gain[0], "gain_high": gain[1],
            "when_chosen": share.max(),
        })  # fmt: skip
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
        nearest, first: (pronouns,), whether the nearest noun before, or the first of the sentence,
            is an antecedent.
        chance: (pronouns,), share of the nouns before that are antecedents.
        hits: (pronouns, layers, h), whether a head finds an antecedent.
    """

    word: np.ndarray
    sentence: np.ndarray
    nearest: np.ndarray
    first: np.ndarray
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
    """All pronouns of sentences, as questions to all heads."""
    columns: list[list] = [[] for _ in Pronouns._fields]
    for number, (doc, weight) in enumerate(zip(docs, weights, strict=True)):
        for pronoun, nouns, same in antecedents(doc):
            right = torch.tensor([noun in same for noun in nouns])
            top = weight[..., pronoun, nouns].argmax(dim=-1)  # (layers, h)
            ends = right[-1].item(), right[0].item()
            row = doc[pronoun].text.lower(), number, *ends, right.float().mean().item()
            for column, value in zip(columns, (*row, right[top].numpy()), strict=True):
                column.append(value)
    return Pronouns(*map(np.array, columns))


def head_relations(
    chosen_on: dict[str, Arrows], measured_on: dict[str, Arrows], least: int = 100
) -> pd.DataFrame:
    """For each head the relation that it follows with the largest gain over a fixed distance.

    Args:
        chosen_on, measured_on: arrows by where they start, such as "dependent" and "governor".
        least: arrows that a relation must have in either part.

    Returns: shares of the arrows to measure on, with the relation that the others chose.
    """
    gains, rows = [], []
    for start, arrows_there in chosen_on.items():
        measured = measured_on[start]
        for relation in common_relations(arrows_there, measured, least):
            first, second = arrows_there.relation == relation, measured.relation == relation
            offset, fixed = best_offset(arrows_there.offset[first])
            gains.append(arrows_there.hits[first].mean(axis=0) - fixed)  # (layers, h)
            rows.append((start, relation, offset, measured, second))
    table = []
    for (layer, head), best in np.ndenumerate(np.argmax(gains, axis=0)):
        start, relation, offset, measured, second = rows[best]
        follows = measured.hits[second, layer, head].mean()
        fixed = (measured.offset[second] == offset).mean()
        table.append({
            "layer": layer + 1, "head": head + 1, "from": start, "relation": relation,
            "follows": follows, "fixed": fixed, "gain": follows - fixed,
        })  # fmt: skip
    return pd.DataFrame(table)


DISTANCES = {"1": (1, 1), "2": (2, 2), "3 or 4": (3, 4), "5 to 8": (5, 8), "9 or more": (9, 999)}


def by_distance(chosen_on: Arrows, measured_on: Arrows) -> pd.DataFrame:
    """For arrows of each length the head that follows most of them, and the best fixed distance."""
    rows = []
    for name, (low, high) in DISTANCES.items():
        first, second = (
            (abs(found.offset) >= low) & (abs(found.offset) <= high) & (found.relation != "punct")
            for found in (chosen_on, measured_on)
        )
        if not first.any() or not second.any():
            continue
        share = chosen_on.hits[first].mean(axis=0)
        layer, head = np.unravel_index(share.argmax(), share.shape)
        offset, _ = best_offset(chosen_on.offset[first])
        hits = measured_on.hits[second, layer, head]
        ends = interval(hits, measured_on.sentence[second])
        rows.append({
            "distance": name, "arrows": int(second.sum()), "layer": layer + 1, "head": head + 1,
            "follows": hits.mean(), "low": ends[0], "high": ends[1],
            "fixed": (measured_on.offset[second] == offset).mean(), "when_chosen": share.max(),
        })  # fmt: skip
    return pd.DataFrame(rows)


def best_for_pronouns(chosen_on: Pronouns, measured_on: Pronouns, least: int = 30) -> pd.DataFrame:
    """For all pronouns, and for each of the frequent ones, the head that finds most antecedents.

    Returns: also the share that the better of two rules finds: the nearest noun, or the first.
    """
    words, counts = np.unique(measured_on.word, return_counts=True)
    frequent = [word for word in words[counts >= least] if (chosen_on.word == word).sum() >= least]
    rows = []
    for word in ["all", *frequent]:
        first, second = (
            np.full(len(found.word), True) if word == "all" else found.word == word
            for found in (chosen_on, measured_on)
        )
        share = chosen_on.hits[first].mean(axis=0)
        layer, head = np.unravel_index(share.argmax(), share.shape)
        hits, sentence = measured_on.hits[second, layer, head], measured_on.sentence[second]
        rule = max("nearest", "first", key=lambda name: getattr(chosen_on, name)[first].mean())
        ruled = getattr(measured_on, rule)[second]
        low, high = interval(hits, sentence)
        gain = interval(hits.astype(float) - ruled, sentence)
        rows.append({
            "pronoun": word, "count": int(second.sum()), "layer": layer + 1, "head": head + 1,
            "finds": hits.mean(), "low": low, "high": high, "rule": rule, "ruled": ruled.mean(),
            "chance": measured_on.chance[second].mean(), "gain_low": gain[0], "gain_high": gain[1],
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
        chosen_on, measured_on: sentences that share nothing.
        least: arrows that a relation must have in either part.

    Returns: the tables "relations", "distances", "pronouns" and "heads".

    Source: section 4 and the captions of Figures 3, 4 and 5.
    """
    first, second = look(translator, chosen_on), look(translator, measured_on)
    relations = [
        best_heads(first.arrows[start], second.arrows[start], least).assign(**{"from": start})
        for start in first.arrows
    ]
    heads = head_relations(first.arrows, second.arrows, least).set_index(["layer", "head"])
    heads = heads.assign(pronouns=second.pronouns.hits.mean(axis=0).flatten())
    distances = [
        by_distance(first.arrows[start], second.arrows[start]).assign(**{"from": start})
        for start in first.arrows
    ]
    return {
        "relations": pd.concat(relations, ignore_index=True),
        "distances": pd.concat(distances, ignore_index=True),
        "pronouns": best_for_pronouns(first.pronouns, second.pronouns),
        "heads": heads.join(second.places).reset_index(),
    }


def untrained(model: EncoderDecoder, seed: int = 0) -> EncoderDecoder:
    """A model of the same shape as it is before training."""
    assert model.config is not None
    torch.manual_seed(seed)
    return build_model(model.config).eval()
