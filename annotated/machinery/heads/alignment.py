"""Attention as alignment."""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from annotated.machinery.files import lazy_extra
from annotated.machinery.heads.study import bootstrap_ci, reinitialized
from annotated.machinery.translator import Translator
from annotated.machinery.visualization.weights import merge_words, read_attention


def _plain(word: str) -> str:
    """A word without capitals and accents."""
    letters = unicodedata.normalize("NFKD", word.lower())
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def _kind(source: str, target: str) -> str | None:
    """What links two plain words: "number", "same" or "cognate"; None if nothing does."""
    if source == target:
        return "number" if source.isdigit() else "same" if len(source) > 3 else None
    if min(len(source), len(target)) < 5 or source[0] != target[0] or source[0].isdigit():
        return None
    return "cognate" if SequenceMatcher(None, source, target).ratio() >= 0.75 else None


def spelling_links(source: list[str], target: list[str]) -> list[tuple[int, int, str]]:
    """Words of a sentence and of its translation that are linked by their spelling.

    Returns: place in the source and in the target, from 0, and kind: "number", "same" or
        "cognate"; by place in the target.

    >>> spelling_links(["In", "1867", "a", "government"], ["En", "1867", "un", "gouvernement"])
    [(1, 1, 'number'), (3, 3, 'cognate')]
    """
    ours, theirs = ([_plain(word) for word in side] for side in (source, target))
    kinds = {
        (i, j): kind
        for i, here in enumerate(ours)
        for j, there in enumerate(theirs)
        if (kind := _kind(here, there))
    }
    links: list[tuple[int, int, str]] = []
    for wanted in {"number", "same"}, {"cognate"}:  # what is the same is no cognate of others
        taken = {i for i, _, _ in links}, {j for _, j, _ in links}
        free = [(i, j) for i, j in kinds if i not in taken[0] and j not in taken[1]]
        free = [pair for pair in free if kinds[pair] in wanted]
        ends = Counter(i for i, _ in free), Counter(j for _, j in free)
        links += [(i, j, kinds[i, j]) for i, j in free if ends[0][i] == ends[1][j] == 1]
    return sorted(links, key=lambda link: link[1])


class LinkHits(NamedTuple):
    """The links of many sentences, and which heads find them.

    Args:
        kind, sentence: (links,).
        diagonal: (links,), whether the word at the same relative place is the right one.
        heads: (links, layers, h), whether the head looks most at the right one.
        layers: (links, layers), whether the mean of the layer's heads does.
    """

    kind: np.ndarray
    sentence: np.ndarray
    diagonal: np.ndarray
    heads: np.ndarray
    layers: np.ndarray


def link_hits(translator: Translator, sources: Sequence[str], targets: Sequence[str]) -> LinkHits:
    """Let a model read sentences with their translations, and see which heads find the links.

    Raises: ValueError if there are not as many sources as targets, or if nothing is linked.

    Source: section 3.2.3, the attention between encoder and decoder.
    """
    columns: list[list] = [[] for _ in LinkHits._fields]
    pairs = list(zip(sources, targets, strict=True))
    for number, (source, target) in enumerate(tqdm(pairs, unit="sentence")):
        cross = merge_words(read_attention(translator, source, target)["cross"])
        ours, theirs = cross.keys[:-1], cross.queries[:-1]  # without the ends
        for i, j, kind in spelling_links(ours, theirs):
            looks = cross.weights[:, :, j, :-1]  # (layers, h, words of the source)
            place = (2 * j + 1) * len(ours) // (2 * len(theirs))
            heads, layers = looks.argmax(dim=-1) == i, looks.mean(dim=1).argmax(dim=-1) == i
            row = kind, number, place == i, heads.numpy(), layers.numpy()
            for column, value in zip(columns, row, strict=True):
                column.append(value)
    if not columns[0]:
        raise ValueError(f"expected words that spelling links; found none in {len(pairs)} pairs")
    return LinkHits(*map(np.array, columns))


with lazy_extra("viz"):
    import pandas as pd


def alignment_errors(chosen_on: LinkHits, measured_on: LinkHits) -> pd.DataFrame:
    """How often the best head, the best layer's mean and the diagonal miss the linked word.

    Args:
        chosen_on, measured_on: links of different sentences.

    Returns: a row for each of the three and each kind of link ("all" first): who, layer and head
        (from 1; missing where there is none), kind, links, and the error (0 to 1) with its 95 %
        interval, low and high.
    """
    best = np.unravel_index(chosen_on.heads.mean(axis=0).argmax(), chosen_on.heads.shape[1:])
    layer, head = (int(i) for i in best)
    mean = int(chosen_on.layers.mean(axis=0).argmax())
    found = {
        ("one head", layer + 1, head + 1): measured_on.heads[:, layer, head],
        ("all heads of a layer", mean + 1, None): measured_on.layers[:, mean],
        ("the diagonal", None, None): measured_on.diagonal,
    }
    rows = []
    for who, hits in found.items():
        for kind in ["all", *np.unique(measured_on.kind)]:
            asked = (measured_on.kind == kind) | (kind == "all")
            low, high = bootstrap_ci(~hits[asked], measured_on.sentence[asked])
            numbers = int(asked.sum()), float((~hits[asked]).mean()), low, high
            rows.append((*who, kind, *numbers))
    return pd.DataFrame(rows, columns="who layer head kind links error low high".split())  # noqa: SIM905


_Pairs = Sequence[Sequence[str]]  # sentences, and their translations


def alignment_study(
    translator: Translator, chosen_on: _Pairs, measured_on: dict[str, _Pairs]
) -> dict[str, pd.DataFrame]:
    """Does the attention between encoder and decoder align words?

    Args:
        chosen_on: pairs on which head and layer are chosen.   measured_on: others, by corpus.

    Returns: "errors", as from `alignment_errors`, by corpus and by reader, "trained" or
        "untrained", a model of the same shape; and "heads", the error of each head on the pairs
        to choose on.

    Raises: ValueError as `link_hits`.
    """
    bare = Translator(
        reinitialized(translator.model), translator.tokenizer, translator.target_tokenizer
    )
    errors, heads = [], []
    for reader, read_by in {"trained": translator, "untrained": bare}.items():
        first = link_hits(read_by, *chosen_on)
        for (layer, head), error in np.ndenumerate(1 - first.heads.mean(axis=0)):
            heads.append({"reader": reader, "layer": layer + 1, "head": head + 1, "error": error})
        for corpus, pairs in measured_on.items():
            found = alignment_errors(first, link_hits(read_by, *pairs))
            errors.append(found.assign(reader=reader, corpus=corpus))
    return {"errors": pd.concat(errors, ignore_index=True), "heads": pd.DataFrame(heads)}
