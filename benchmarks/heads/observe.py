"""Observations of an encoder's heads on sentences whose structure is known.

Each arc of a dependency tree and each pronoun poses a question to all heads at once. The answers
are arrays with one entry per question, so that the study can select and count with NumPy.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from spacy.tokens import Doc
from torch import Tensor

from annotated.data import END
from annotated.machinery.progress import progress_bar
from annotated.machinery.recording import record_attention
from annotated.machinery.translator import Translator
from annotated.regularization import without_dropout
from book.heads import ATTENTION_PLACES


@torch.no_grad()
def word_attention(translator: Translator, doc: Doc) -> Tensor:
    """Encoder attention between the words of a sentence.

    A corpus and a model divide text differently, so each piece is assigned to the word in which its
    letters begin. Then pieces are merged as by `merge_words`.

    Returns: (layers, h, len, len + 1); the last column is the end symbol. Words in which no piece
        begins have rows and columns of zeros.
    """
    text = doc.text.rstrip()
    encoding = translator.tokenizer.encode(text)
    words = [place for token in doc for place in [token.i] * len(token.text_with_ws)]
    device = translator.device
    belongs = torch.zeros(len(encoding.ids) + 1, len(doc) + 1, device=device)  # the end last
    belongs[-1, -1] = 1.0
    for piece, (start, _) in enumerate(encoding.offsets):
        letter = len(text) - len(text[start:].lstrip())  # the first that is not a space
        belongs[piece, words[letter]] = 1.0
    src = torch.tensor([[*encoding.ids, END]], device=device)
    with without_dropout(translator.model), record_attention(translator.model.encoder) as seen:
        translator.model.encode(src)
    weights = torch.cat([seen[f"layers.{n}.self_attn"] for n in range(len(seen))])
    rows = (belongs / belongs.sum(dim=0).clamp(min=1.0)).T
    return (rows @ weights @ belongs)[..., :-1, :].cpu()


def most_attended(weights: Tensor) -> Tensor:
    """The word that each word attends to most, except itself and the end.

    Heads without a target often attend to the end symbol, so it does not count.

    Returns: positions (layers, h, len) for weights as from `word_attention`.
    """
    among = weights[..., :-1].clone()
    among.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
    return among.argmax(dim=-1)


class ArcHits(NamedTuple):
    """The arcs of many trees, and where heads look from their starts; all but that are (arcs,)."""

    relation: np.ndarray  # label
    sentence: np.ndarray  # number of the sentence
    offset: np.ndarray  # words from the start of the arc to its end, positive to the right
    first: np.ndarray  # whether it ends at the first word
    last: np.ndarray  # whether it ends at the last word that is not punctuation
    tag: np.ndarray  # part of speech of its end
    nearest: np.ndarray  # whether no other word of this part of speech is between start and end
    looks: np.ndarray  # (arcs, layers, h), offset of the word to which a head attends most

    @property
    def hits(self) -> np.ndarray:
        """Whether a head follows an arc, that is, attends most to its end; (arcs, layers, h)."""
        return self.looks == self.offset[:, None, None]


def arc_hits(docs: list[Doc], tops: list[Tensor], back: bool = False) -> ArcHits:
    """All arcs from dependent to governor, or `back`; tops: `most_attended` of each sentence."""
    rows = []
    for number, (doc, top) in enumerate(zip(docs, tops, strict=True)):
        tokens = [token for token in doc if token.head.i != token.i]
        ends = [(token.head.i, token.i) if back else (token.i, token.head.i) for token in tokens]
        start, end = np.array(ends, dtype=int).reshape(-1, 2).T
        last = max((token.i for token in doc if token.pos_ != "PUNCT"), default=len(doc) - 1)
        looks = top.numpy()[..., start].transpose(2, 0, 1) - start[:, None, None]
        relation = np.array([token.dep_ for token in tokens], dtype=str)
        tags = [token.pos_ for token in doc]
        between = (tags[min(pair) + 1 : max(pair)] for pair in ends)
        nearest = [tags[i] not in skipped for (_, i), skipped in zip(ends, between, strict=True)]
        ends_at = end == 0, end == last, np.array(tags)[end], np.array(nearest, dtype=bool)
        rows.append((relation, np.full(len(end), number), end - start, *ends_at, looks))
    return ArcHits(*map(np.concatenate, zip(*rows, strict=True)))


def attention_places(doc: Doc) -> np.ndarray:
    """The position of each word and of the end relative to each word; the first match counts.

    Returns: indices into `ATTENTION_PLACES` (len, len + 1), the end last.
    """
    words = np.array([token.text.lower() for token in doc])
    number = {name: i for i, name in enumerate(ATTENTION_PLACES)}
    found = np.full((len(doc), len(doc) + 1), number["elsewhere"])
    found[:, :-1][words[:, None] == words] = number["same word"]
    found[:, :-1][:, [token.pos_ == "PUNCT" for token in doc]] = number["punctuation"]
    found[:, -1] = number["end"]
    for name, offset in ("next word", 1), ("previous word", -1), ("itself", 0):
        row = np.arange(max(0, -offset), len(doc) - max(0, offset))
        found[row, row + offset] = number[name]
    return found


def attention_profile(docs: list[Doc], weights: list[Tensor]) -> pd.DataFrame:
    """Share of each head's attention that goes to each of `ATTENTION_PLACES`, over all words.

    Returns: one row per layer and head; also `largest`, the mean over the words of the largest
        weight, which measures how concentrated a head is.
    """
    total = np.zeros((*weights[0].shape[:2], len(ATTENTION_PLACES)))
    for doc, weight in zip(docs, weights, strict=True):
        where, seen = attention_places(doc), weight.numpy()
        for i in range(len(ATTENTION_PLACES)):
            total[..., i] += seen[..., where == i].sum(axis=-1)
    shares = total / total.sum(axis=-1, keepdims=True)
    heads = [(n + 1, i + 1) for n, i in np.ndindex(shares.shape[:2])]
    index = pd.MultiIndex.from_tuples(heads, names=["layer", "head"])
    largest = torch.cat([weight.amax(dim=-1) for weight in weights], dim=-1).mean(dim=-1)
    profile = pd.DataFrame(shares.reshape(len(heads), -1), index, ATTENTION_PLACES)
    return profile.assign(largest=largest.flatten().tolist())


class PronounHits(NamedTuple):
    """Pronouns with an antecedent before them, and the heads that find it; (pronouns,) each."""

    word: np.ndarray
    sentence: np.ndarray
    nearest: np.ndarray  # whether the nearest preceding noun is an antecedent
    first: np.ndarray  # whether the first noun of the sentence is
    subject: np.ndarray  # whether the nearest preceding subject is
    chance: np.ndarray  # share of the preceding nouns that are antecedents
    hits: np.ndarray  # (pronouns, layers, h), whether a head finds an antecedent


def antecedents(doc: Doc) -> Iterator[tuple[int, list[int], set[int]]]:
    """Each pronoun with its preceding nouns, of which some but not all are coreferent."""
    for mentions in doc.spans.values():
        same = {mention.root.i for mention in mentions}
        for mention in mentions:
            pronoun = mention[0]
            if len(mention) > 1 or pronoun.tag_ not in ("PRP", "PRP$"):
                continue
            nouns = [token.i for token in doc[: pronoun.i] if token.pos_ in ("NOUN", "PROPN")]
            if 0 < len(same & set(nouns)) < len(nouns):
                yield pronoun.i, nouns, same


def pronoun_hits(docs: list[Doc], weights: list[Tensor]) -> PronounHits:
    """For each pronoun, whether the preceding noun that a head attends to most is an antecedent.

    Without a subject before the pronoun, the nearest noun counts as the nearest subject.
    """
    rows = []
    for number, (doc, weight) in enumerate(zip(docs, weights, strict=True)):
        for pronoun, nouns, same in antecedents(doc):
            right = np.array([noun in same for noun in nouns])
            top = weight[..., pronoun, nouns].argmax(dim=-1).numpy()  # (layers, h)
            subjects = [noun for noun in nouns if doc[noun].dep_.startswith("nsubj")] or nouns
            rules = right[-1], right[0], subjects[-1] in same
            rows.append((doc[pronoun].text.lower(), number, *rules, right.mean(), right[top]))
    columns = zip(*rows, strict=True) if rows else [()] * len(PronounHits._fields)
    return PronounHits(*map(np.array, columns))


def observe_heads(
    translator: Translator, docs: list[Doc]
) -> tuple[dict[str, ArcHits], PronounHits, pd.DataFrame]:
    """Run a model on sentences and record what its heads attend to.

    Returns: arcs by their start, "dependent" or "governor"; pronouns; the profile of heads.
    """
    weights = [word_attention(translator, doc) for doc in progress_bar(docs, unit=" sentences")]
    tops = [most_attended(weight) for weight in weights]
    arcs = {"dependent": arc_hits(docs, tops), "governor": arc_hits(docs, tops, back=True)}
    return arcs, pronoun_hits(docs, weights), attention_profile(docs, weights)
