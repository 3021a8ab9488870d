"""Where a translator keeps the gender of a noun: `python -m benchmarks.gender --help`.

Writes gender.json, the log of "Who is “it”?", with the functions of that page. `firefox-en-pt`
translates templates with the nouns of gender-nouns.csv, of which English knows no gender. Heads and
cells are chosen on the first half of the nouns and measured on the second; 95 % intervals resample
pairs of a feminine and a masculine noun. A *share* is the part of the nouns' effect on the contrast
of two words that moves with a part of the model.
"""

import json
import random
import re
from collections.abc import Callable, Iterator
from itertools import combinations, count, product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from sacrebleu.metrics import BLEU
from torch import Tensor

from annotated import load_pretrained, record_attention, touch
from annotated.data import encode_source
from annotated.machinery.corpora.texts import read_lines
from annotated.machinery.files import resource_path
from annotated.machinery.progress import progress_bar
from annotated.machinery.translator import Translator
from benchmarks.logs import files_parser, page_names, write
from benchmarks.switches import mean_outputs
from book.heads import reinitialized

FORMS = {
    "f": {"A": "A", "a": "a", "d": "da", "u": "uma"},
    "m": {"A": "O", "a": "o", "d": "do", "u": "um"},
}
# kind | source with a noun | beginning of the translation | feminine and masculine next word
TEMPLATES = """
first | The {n} is old. | | A O
first | My {n} is new. | | Minha Meu
first | This {n} is mine. | | Esta Este
first | No {n} is perfect. | | Nenhuma Nenhum
first | I have the {n}. | Eu tenho | a o
first | I see a {n}. | Eu vejo | uma um
first | Where is the {n}? | Onde está | a o
first | I have a new {n}. | Eu tenho | uma um
attributive | I have a new {n}. | Eu tenho {u} | nova novo
attributive | The old {n} was sold. | {A} | velha velho
attributive | I painted the {n} red. | Eu pintei {a} {p} | vermelha vermelho
near | The {n} is old. | {A} {p} é | velha velho
near | The {n} was sold. | {A} {p} foi | vendida vendido
near | The {n} is closed. | {A} {p} está | fechada fechado
near | I need a {n} that is cheap. | Eu preciso de {u} {p} que seja | barata barato
far | The {n} here is old. | {A} {p} aqui é | velha velho
far | The {n} that I saw is old. | {A} {p} que eu vi é | velha velho
far | The {n} that I saw yesterday is old. | {A} {p} que eu vi ontem é | velha velho
far | The {n} that I saw yesterday in the city is old. | {A} {p} que eu vi ontem na cidade é | velha velho
far | The {n} that I saw yesterday in the city with my brother is old. | {A} {p} que eu vi ontem na cidade com meu irmão é | velha velho
attractor | The {n} near the wall is old. | {A} {p} perto da parede é | velha velho
attractor | The {n} near the river is old. | {A} {p} perto do rio é | velha velho
attractor | The {n} near the river is beautiful. | {A} {p} perto do rio é | bonita bonito
attractor | The {n} near the river is red. | {A} {p} perto do rio é | vermelha vermelho
it | When I saw the {n}, it fell. | Quando eu vi {a} {p}, | ela ele
it | When I saw the {n}, it was closed. | Quando eu vi {a} {p}, estava | fechada fechado
it | I like the {n} because it is beautiful. | Eu gosto {d} {p} porque é | linda lindo
it | The man saw the {n} when it was new. | O homem viu {a} {p} quando era | nova novo
it | I lost the {n}, but it was found. | Eu perdi {a} {p}, mas foi | encontrada encontrado
it | I want the {n}, but it is expensive. | Eu quero {a} {p}, mas é | cara caro
it | I bought the {n} because it was cheap. | Eu comprei {a} {p} porque era | barata barato
it | The {n} did not fall, although it was closed. | {A} {p} não caiu, embora estivesse | fechada fechado
its | I like the {n} and its color. | Eu gosto {d} {p} e da cor | dela dele
"""  # noqa: E501
ALL = slice(None)
ENCODER, CROSS = "encoder.layers.{}.self_attn", "decoder.layers.{}.src_attn"
MEMORY = "decoder.layers.{}.self_attn"  # recurrent in firefox-en-pt, attention in others
KINDS = {"E": ENCODER, "X": CROSS, "D": MEMORY}
MAPPED = (
    "The {n} is old.",
    "When I saw the {n}, it fell.",
    "The {n} did not fall, although it was closed.",
)
SETS = 5  # random sets beside each chosen one
PAGE = page_names("who-is-it")
contrast, patch, reading = PAGE["contrast"], PAGE["patch"], PAGE["reading"]
Parts = dict[str, list[tuple]]
Nouns = dict[str, list[tuple[str, str]]]  # by gender: English and Portuguese


class Template(NamedTuple):
    kind: str
    english: str
    target: str
    words: tuple[str, str]

    @classmethod
    def read(cls) -> "list[Template]":
        lines = [map(str.strip, line.split("|")) for line in TEMPLATES.strip().splitlines()]
        return [cls(kind, source, target, tuple(words.split()))
                for kind, source, target, words in lines]  # fmt: skip

    def sources(self, nouns: Nouns) -> dict[str, list[str]]:
        return {g: [self.english.format(n=n) for n, _ in some] for g, some in nouns.items()}

    def beginnings(self, nouns: Nouns) -> dict[str, list[str]]:
        """What is written, by the gender that it shows; the same if it shows none."""
        return {g: [self.target.format(p=p, **FORMS[g]) for _, p in some]
                for g, some in nouns.items()}  # fmt: skip


def read_nouns(half: str) -> Nouns:
    table = pd.read_csv(resource_path("results") / "gender-nouns.csv").query("half == @half")
    return {g: list(rows[["english", "portuguese"]].itertuples(index=False, name=None))
            for g, rows in table.groupby("gender")}  # fmt: skip


def interval(of: Callable[..., float], *values: np.ndarray) -> dict[str, float]:
    """A statistic of arrays (pairs, ...) and its 95 % interval by a bootstrap over pairs."""
    random_, n = np.random.default_rng(0), len(values[0])
    drawn = (random_.integers(0, n, n) for _ in range(1000))
    found = [of(*(v[rows] for v in values)) for rows in drawn]
    low, high = np.percentile(found, [2.5, 97.5])
    return {"value": round(float(of(*values)), 4), "low": round(float(low), 4),
            "high": round(float(high), 4)}  # fmt: skip


def ratio(part: np.ndarray, whole: np.ndarray) -> float:
    return float(part.mean() / whole.mean())


def auc(feminine: np.ndarray, masculine: np.ndarray) -> float:
    """How often a feminine noun has the larger value than a masculine one; 0.5 is chance."""
    first, second = feminine[:, None], masculine[None]
    return float((first > second).mean() + (first == second).mean() / 2)


def agreeing(feminine: np.ndarray, masculine: np.ndarray) -> float:
    """How often the word of the right gender is likelier; 0.5 is chance."""
    return float((feminine > 0).mean() + (masculine < 0).mean()) / 2


def contrasts(
    translator: Translator, template: Template, nouns: Nouns, changes: dict[str, Any] | None = None
) -> dict[str, np.ndarray]:
    """The contrasts of each pair, by the gender of the source's noun and of the written one."""
    sources, beginnings = template.sources(nouns), template.beginnings(nouns)
    words, changes = template.words, changes or {}
    return {s + w: contrast(translator, sources[s], beginnings[w], words, changes).numpy()
            for s in nouns for w in nouns}  # fmt: skip


def source_effect(
    translator: Translator, template: Template, nouns: Nouns, changes: dict[str, Any] | None = None
) -> np.ndarray:
    """The effect of the source's noun, whatever is written: (pairs,)."""
    (one, two), c = nouns, contrasts(translator, template, nouns, changes)
    return (c[one + one] - c[two + one] + c[one + two] - c[two + two]) / 2


def abilities(
    translator: Translator, templates: list[Template], nouns: Nouns
) -> Iterator[dict[str, Any]]:
    """For each template, the effects of both nouns and how often the right word is likelier."""
    for template in progress_bar(templates, unit=" templates"):
        c = contrasts(translator, template, nouns)
        yield {
            "kind": template.kind, "english": template.english,
            "right": round(agreeing(c["ff"], c["mm"]), 4), "auc": round(auc(c["ff"], c["mm"]), 4),
            "source": interval(np.mean, (c["ff"] - c["mf"] + c["fm"] - c["mm"]) / 2),
            "written": interval(np.mean, (c["ff"] - c["fm"] + c["mf"] - c["mm"]) / 2),
        }  # fmt: skip


def shares(
    translator: Translator, template: Template, nouns: Nouns, parts: Parts, written: bool = False
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """How much of the effect of the source's noun, or of the written one, moves with each part.

    Returns: for each part the change of each pair's contrast, in both directions and with either
        noun on the other side, and the whole effect, (pairs,).
    """
    sources, beginnings = template.sources(nouns), template.beginnings(nouns)
    one, two = nouns
    kept = beginnings[one] != beginnings[two]  # else there is nothing on the other side
    moved, whole = dict.fromkeys(parts, np.zeros(len(nouns[one]))), np.zeros(len(nouns[one]))
    for side in nouns if written or kept else (one,):
        for here, there, sign in ((one, two, 1), (two, one, -1)):
            if written:
                src, begin, other = sources[side], beginnings[here], beginnings[there]
                clean = contrast(translator, src, begin, template.words)
                new = patch(translator, src, src, begin, template.words, parts, other)
            else:
                begin = beginnings[side]
                clean = contrast(translator, sources[here], begin, template.words)
                new = patch(translator, sources[here], sources[there], begin, template.words, parts)
            whole = whole + sign * clean.numpy() * 2
            moved = {k: v + sign * (clean - new[k]).numpy() for k, v in moved.items()}
    return moved, whole


def head_parts(translator: Translator, kinds: dict[str, str]) -> Parts:
    """The heads of each kind of attention, by names such as "E2.1" (layer 2, head 1)."""
    modules, parts = dict(translator.model.named_modules()), {}
    for kind, pattern in kinds.items():
        for layer in range(len(modules)):
            if hasattr(attention := modules.get(name := pattern.format(layer)), "h"):
                width = attention.w_o.in_features // attention.h
                for head in range(attention.h):
                    at = slice(head * width, (head + 1) * width)
                    parts[f"{kind}{layer + 1}.{head + 1}"] = [(f"{name}.w_o:in", ALL, ALL, at)]
    return parts


def tokens(translator: Translator, template: Template, noun: str) -> list[str]:
    found = translator.tokenizer.encode(template.english.format(n=noun)).tokens
    return [token.removeprefix("▁") for token in found] + ["end"]


def maps(translator: Translator, nouns: Nouns) -> Iterator[dict[str, Any]]:
    """Shares of the stream after each layer (0: the embedding), for each token of the source."""
    names = ["src_embed", *(f"encoder.layers.{n}" for n in range(translator.model.config.N))]
    for template in progress_bar([t for t in Template.read() if t.english in MAPPED], unit=" maps"):
        words = tokens(translator, template, nouns["f"][0][0])
        parts: Parts = {
            f"{layer} {place}": [(name, ALL, place)]
            for layer, name in enumerate(names)
            for place in range(len(words))
        }
        moved, whole = shares(translator, template, nouns, parts)
        for part, values in moved.items():
            layer, place = map(int, part.split())
            token = "NOUN" if words[place] == nouns["f"][0][0] else words[place]
            yield {"english": template.english, "layer": layer, "place": place, "token": token,
                   **interval(ratio, values, whole)}  # fmt: skip


def heads(
    translator: Translator,
    templates: list[Template],
    parts: Parts,
    choose: Nouns,
    read: Nouns,
    written: bool = False,
) -> Iterator[dict[str, Any]]:
    """Shares of all heads on the first half of the nouns, and of the largest on the second."""
    for template in progress_bar(templates, unit=" templates"):
        moved, whole = shares(translator, template, choose, parts, written)
        share = {part: ratio(values, whole) for part, values in moved.items()}
        best = sorted(share, key=lambda part: -share[part])[:4]
        few = {part: parts[part] for part in best}
        again, all_again = shares(translator, template, read, few, written)
        yield {
            "kind": template.kind, "english": template.english,
            "chosen": {part: round(float(value), 4) for part, value in share.items()},
            "read": {part: interval(ratio, again[part], all_again) for part in best},
        }  # fmt: skip


def ways(translator: Translator, head: str) -> Parts:
    """What a head of the encoder says by where it looks, by what it finds, and in all."""
    ((name, *_, at),) = head_parts(translator, {"E": ENCODER})[head]
    name = name.removesuffix(".w_o:in")
    return {
        "queries and keys": [(f"{name}.w_q", ALL, ALL, at), (f"{name}.w_k", ALL, ALL, at)],
        "values": [(f"{name}.w_v", ALL, ALL, at)],
        "output": [(f"{name}.w_o:in", ALL, ALL, at)],
    }


def routes(translator: Translator, nouns: Nouns, pair: list[str]) -> Iterator[dict[str, Any]]:
    """Of the heads that bring the noun to "it": where they look, or what they find."""
    template = next(t for t in Template.read() if t.kind == "it")
    for part in pair:
        moved, whole = shares(translator, template, nouns, ways(translator, part))
        for way, values in moved.items():
            yield {"head": part, "way": way, **interval(ratio, values, whole)}


def replaced(translator: Translator, means: dict[str, Tensor], off: list[str]) -> dict[str, Any]:
    """For `touch`: each of the heads has its mean as output."""
    parts, changes = head_parts(translator, KINDS), {}
    masks: dict[str, Tensor] = {}
    for head in off:
        ((name, *_, at),) = parts[head]
        mask = masks.setdefault(
            name, torch.zeros(translator.model.config.d_model, dtype=torch.bool)
        )
        mask[at] = True
    for name, mask in masks.items():
        mean = means[name.removesuffix(":in").removesuffix(".w_o")]
        changes[name] = lambda x, mask=mask, mean=mean: torch.where(mask, mean, x)
    return changes


def without(
    translator: Translator, nouns: Nouns, means: dict[str, Tensor], sets: dict[str, list[str]]
) -> Iterator[dict[str, Any]]:
    """The source's effect on what "it" becomes, with heads replaced by their means."""
    for template in progress_bar([t for t in Template.read() if t.kind == "it"], unit=" templates"):
        for name, off in sets.items():
            effect = source_effect(translator, template, nouns, replaced(translator, means, off))
            yield {"english": template.english, "off": name, **interval(np.mean, effect)}


def weights(
    translator: Translator,
    template: Template,
    nouns: Nouns,
    model: torch.nn.Module | None = None,
) -> dict[str, np.ndarray]:
    """The weights from “it” to the noun, by gender: (nouns, layers, heads)."""
    first = next(iter(nouns.values()))[0][0]
    tokens_ = translator.tokenizer.encode(template.english.format(n=first)).tokens
    it, noun = tokens_.index("▁it"), tokens_.index("▁" + first)
    found = {}
    for gender, texts in template.sources(nouns).items():
        src = torch.tensor(encode_source(translator.tokenizer, texts))
        with torch.no_grad(), record_attention(model or translator.model) as seen:
            (model or translator.model).encode(src)
        layers = [seen[ENCODER.format(n)] for n in range(translator.model.config.N)]
        found[gender] = torch.stack([w[:, :, it, noun] for w in layers], dim=1).numpy()
    return found


def sorting(
    translator: Translator, templates: list[Template], choose: Nouns, read: Nouns
) -> Iterator[dict[str, Any]]:
    """Which head's weight from "it" tells the noun's gender best, before and after training."""
    models = {"trained": translator.model}
    models |= {f"untrained {n}": reinitialized(translator.model, n) for n in range(SETS)}
    for template in templates:
        for name, model in models.items():
            one, two = (weights(translator, template, half, model) for half in (choose, read))
            layers, h = one["f"].shape[1:]
            area = np.array([[auc(one["f"][:, i, j], one["m"][:, i, j]) for j in range(h)]
                             for i in range(layers)])  # fmt: skip
            order = np.argsort(-abs(area - 0.5), axis=None)
            (i, j), (k, n) = (divmod(int(place), area.shape[1]) for place in order[:2])
            values = two["f"][:, i, j], two["m"][:, i, j]
            yield {
                "english": template.english, "model": name, "head": f"E{i + 1}.{j + 1}",
                "chosen": round(float(area[i, j]), 4), "second": f"E{k + 1}.{n + 1}",
                "second_chosen": round(float(area[k, n]), 4), "read": interval(auc, *values),
                "feminine": round(float(values[0].mean()), 4),
                "masculine": round(float(values[1].mean()), 4),
            }  # fmt: skip


def cells(translator: Translator, choose: Nouns, read: Nouns) -> Iterator[dict[str, Any]]:
    """Which cells of the decoder's memory hold what was written: three of them, and the rest."""
    near = [t for t in Template.read() if t.kind == "near"]
    size, share = translator.model.config.d_model, {}
    few = {gender: some[:16] for gender, some in choose.items()}
    for layer in range(translator.model.config.N_decoder):
        parts: Parts = {
            f"{layer} {n}": [(MEMORY.format(layer), ALL, ALL, [n])] for n in range(size)
        }
        moved, whole = shares(translator, near[0], few, parts, written=True)
        share |= {part: ratio(values, whole) for part, values in moved.items()}
    best = sorted(share, key=lambda part: -share[part])[:5]
    yield {"chosen": {part: round(float(share[part]), 4) for part in best}}
    layer, three = best[0].split()[0], [int(part.split()[1]) for part in best[:3]]
    assert all(part.split()[0] == layer for part in best[:3])
    rest, draw, name = (
        [n for n in range(size) if n not in three],
        random.Random(0),
        MEMORY.format(layer),
    )
    sets = {"three": three, "rest": rest} | {str(n): draw.sample(rest, 3) for n in range(2 * SETS)}
    parts = {key: [(name, ALL, ALL, columns)] for key, columns in sets.items()}
    for template in [t for t in Template.read() if t.kind in ("near", "far", "attributive")]:
        moved, whole = shares(translator, template, read, parts, written=True)
        yield {"kind": template.kind, "english": template.english,
               **{key: interval(ratio, moved[key], whole) for key in ("three", "rest")},
               "random": max(ratio(moved[str(n)], whole) for n in range(2 * SETS))}  # fmt: skip


DIALED = """\
The {n} is white and very beautiful.
The {n} near the river is red and very dirty.
The old {n} was sold yesterday."""


def turned(one: str, other: str) -> tuple[str, int]:
    """How two translations differ: in the gender of adjectives, in more than that, or not.

    Returns: this, and the number of words that differ in their gender only.
    """
    if one == other:
        return "same", 0
    words = [(a, b) for a, b in zip(one.split(), other.split(), strict=False) if a != b]
    ends = [re.fullmatch(r"(\w+)[ao](s?\W*) \1[ao]\2", f"{a} {b}") for a, b in words]
    kind = "adjectives" if all(ends) and len(one) == len(other) else "more"
    return kind, sum(map(bool, ends))


def dial(
    translator: Translator, choose: Nouns, read: Nouns, chosen: list[str]
) -> Iterator[dict[str, Any]]:
    """What three cells, held at their mean after nouns of one gender, do to whole translations."""
    near = next(t for t in Template.read() if t.kind == "near")
    layer, three = int(chosen[0].split()[0]), [int(part.split()[1]) for part in chosen[:3]]
    name, means = MEMORY.format(layer), dict[str, Tensor]()
    for gender, texts in near.sources(choose).items():
        keep = {name: lambda x, g=gender: means.update({g: x[:, -1].mean(dim=0)})}
        contrast(translator, texts, near.beginnings(choose)[gender], near.words, keep)

    def held(cells: list[int], gender: str) -> dict[str, Any]:
        mask = torch.zeros(len(means[gender]), dtype=torch.bool)
        mask[cells] = True
        return {name: lambda x: torch.where(mask, means[gender], x)}

    values = {g: [round(x, 4) for x in means[g][three].tolist()] for g in "fm"}
    yield {"layer": layer, "cells": three} | values
    rest, draw = [n for n in range(len(means["f"])) if n not in three], random.Random(0)
    controls = {f"random {n + 1}": draw.sample(rest, 3) for n in range(SETS)}
    for template in progress_bar(DIALED.splitlines(), unit=" templates"):
        for here, there in ("fm", "mf"):
            texts = [template.format(n=noun) for noun, _ in read[here]]
            whole = translator.translate(texts)
            tried = {"three": (three, there), "three, own gender": (three, here)}
            for key, setting in (tried | {k: (v, there) for k, v in controls.items()}).items():
                with touch(translator.model, held(*setting)):
                    found = translator.translate(texts)
                seen, words = zip(*map(turned, whole, found), strict=True)
                count = {kind: seen.count(kind) for kind in ("adjectives", "more", "same")}
                only = interval(np.mean, np.array([kind == "adjectives" for kind in seen]))
                yield {"english": template, "noun": here, "held": key, **count,
                       "words": sum(words), "only": only}  # fmt: skip


ARTICLE = {"A": "f", "Uma": "f", "O": "m", "Um": "m"}


def equal(one: list[str], other: list[str]) -> float:
    return round(sum(map(str.__eq__, one, other)) / len(one), 4)


def flips(
    translator: Translator, nouns: Nouns, means: dict[str, Tensor], head: str
) -> Iterator[dict[str, Any]]:
    """How many translations begin with the other gender if a head of the decoder has its mean."""
    others = [h for h in head_parts(translator, {"X": CROSS}) if h != head]
    for beam in (1, 4):
        for gender in "fm":
            texts = [f"The {english} is old." for english, _ in nouns[gender]]
            whole = translator.translate(texts, beam=beam)
            for off in [head, *random.Random(0).sample(others, SETS)]:
                with touch(translator.model, replaced(translator, means, [off])):
                    found = translator.translate(texts, beam=beam)
                other = np.array([ARTICLE.get(a.split()[0]) != ARTICLE.get(b.split()[0])
                                  for a, b in zip(found, whole, strict=True)])  # fmt: skip
                yield {"off": off, "beam": beam, "noun": gender, **interval(np.mean, other),
                       "changed": 1 - equal(found, whole)}  # fmt: skip


def steps(
    translator: Translator, nouns: Nouns, means: dict[str, Tensor], head: str
) -> Iterator[dict[str, Any]]:
    """Greedy translations with a head off at the first word, or from the second on."""
    texts = [f"The {english} is old." for english, _ in nouns["f"]]
    ((name, change),) = replaced(translator, means, [head]).items()
    found = {}
    for off in ("never", "always", "first word", "later words"):
        seen = count()

        def at_some(x: Tensor, off: str = off, seen: Iterator[int] = seen) -> Tensor:
            first = next(seen) == 0
            return change(x) if off in ("always", "first word" if first else "later words") else x

        with touch(translator.model, {name: at_some}):  # all sentences are one batch
            found[off] = translator.translate(texts, beam=1, batch_tokens=100_000)
        yield {
            "off": off, "masculine": sum(text.startswith("O ") for text in found[off]),
            **{f"as {other}": sum(map(str.__eq__, found[off], found[other]))
               for other in ("never", "always") if other in found}, "of": len(texts),
        }  # fmt: skip


def whole(translator: Translator, nouns: Nouns, head: str) -> Iterator[dict[str, Any]]:
    """Whole translations in which one head alone reads of another noun, of either gender."""
    template = Template.read()[0].english
    ((name, *_, at),) = head_parts(translator, {"X": CROSS})[head]
    for here, there in product("fm", repeat=2):
        others = nouns[there] if there != here else nouns[there][1:] + nouns[there][:1]
        rows = []
        for (noun, _), (other, written) in zip(nouns[here], others, strict=True):
            text = template.format(n=noun)
            clean = translator.translate(text)
            changes = reading(translator, name.removesuffix(".w_o:in"), at,
                              template.format(n=other))  # fmt: skip
            with touch(translator.model, changes):
                found = translator.translate(text)
            new, old = (ARTICLE.get(a.split()[0]) for a in (found, clean))
            rows.append((new != old, written in re.findall(r"\w+", found), found == clean,
                         {"noun": noun, "reads": other, "translation": found}))  # fmt: skip
        article, other_noun, same, told = zip(*rows, strict=True)
        yield {"noun": here, "reads": there, "of": len(rows), "other noun": sum(other_noun),
               "same": sum(same), "article": interval(np.mean, np.array(article)),
               "translations": [*told] if here != there else []}  # fmt: skip


def which(translator: Translator, nouns: Nouns) -> Iterator[dict[str, Any]]:
    """Shares of the decoder's heads in the choice between two nouns of one gender, after "A"."""
    parts, template = head_parts(translator, {"X": CROSS}), Template.read()[0]
    first, second = nouns["f"][::2], nouns["f"][1::2]
    moved: dict[str, list[float]] = {part: [] for part in parts}
    whole = []
    for (one, written), (two, other) in zip(first, second, strict=True):
        sources = [[template.english.format(n=noun)] for noun in (one, two)]
        words = (written, other)
        clean = [contrast(translator, source, ["A"], words).item() for source in sources]
        new = patch(translator, *sources, ["A"], words, parts)
        whole.append(clean[0] - clean[1])
        for part, value in new.items():
            moved[part].append(clean[0] - value.item())
    for part, values in moved.items():
        yield {"head": part, **interval(ratio, np.array(values), np.array(whole))}


def compared(found: list[str], whole: list[str], target: list[str]) -> dict[str, Any]:
    """BLEU of translations, with the interval of its difference to that of others."""
    metric = BLEU()
    score = lambda a: metric._compute_score_from_stats(a.sum(axis=0).tolist()).score
    stats = [np.array(metric._extract_corpus_statistics(x, [target])) for x in (found, whole)]
    return {"BLEU": round(score(stats[0]), 2),
            "difference": interval(lambda a, b: score(a) - score(b), *stats)}  # fmt: skip


def bleu(
    translator: Translator, source: list[str], target: list[str], off: dict[str, dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """BLEU of all sentences, with intervals of the difference to the whole model's."""
    whole = list[str]()
    for name, changes in off.items():
        with touch(translator.model, changes):
            found = translator.translate(source, beam=4)
        whole = whole or found
        yield {"off": name, **compared(found, whole, target), "same": equal(found, whole)}


# source without its last word | beginning | two endings, with the words between which they decide,
# and the noun of which they are true
WINOGRAD = """
The {a} did not fit into the {b} because it was too | {A} {a_} não coube n{b} {b_} porque era muito | long longa longo a, narrow estreita estreito b
I poured water from the {a} into the {b} until it was | Eu derramei água d{a} {a_} n{b} {b_} até que estivesse | empty vazia vazio a, full cheia cheio b
I could not put the {a} on the {b} because it was too | Eu não pude colocar {a} {a_} n{b} {b_} porque era muito | heavy pesada pesado a, weak fraca fraco b
"""  # noqa: E501


def winograd(translator: Translator, nouns: Nouns) -> Iterator[dict[str, Any]]:
    """How often the adjective agrees with the noun of which it is true, of two of either gender."""
    for line in WINOGRAD.strip().splitlines():
        source, target, endings = map(str.strip, line.split("|"))
        for ending in endings.split(","):
            adjective, feminine, masculine, true = ending.split()
            c = {}
            for first, second in ("fm", "mf"):
                pairs = list(zip(nouns[first], nouns[second], strict=True))
                sources = [f"{source} {adjective}.".format(a=a, b=b) for (a, _), (b, _) in pairs]
                form = {"A": FORMS[first]["A"], "a": FORMS[first]["a"], "b": FORMS[second]["a"]}
                begun = [target.format(a_=a, b_=b, **form) for (_, a), (_, b) in pairs]
                c[first] = contrast(translator, sources, begun, (feminine, masculine)).numpy()
            one, two = (c["f"], c["m"]) if true == "a" else (c["m"], c["f"])
            yield {
                "source": source, "adjective": adjective,
                "of": "subject" if true == "a" else "other",
                "right": interval(agreeing, one, two), "auc": interval(auc, one, two),
            }  # fmt: skip


PEOPLE = """
doctor nurse teacher lawyer judge engineer writer director
author minister secretary singer scientist driver student worker
"""


def people(translator: Translator) -> Iterator[dict[str, Any]]:
    """Free translations in which the pronoun alone tells the gender of a person."""
    for pronoun in ("she", "he"):
        sources = [f"The {person} said that {pronoun} was tired." for person in PEOPLE.split()]
        for person, text in zip(PEOPLE.split(), translator.translate(sources), strict=True):
            yield {"person": person, "pronoun": pronoun, "translation": text}


FREE = """\
The {n} is broken. I will repair it.
If the {n} is good, I will buy it.
I have a {n}, but I want to sell it.
Where is the {n}? I cannot find it.
This is my {n}. I found it yesterday."""
OBJECT = re.compile(r"-l?([oa])\b|\b([oa]) encontrei")


def object_gender(translation: str) -> str:
    """The gender of the only object pronoun of a translation, or "" """
    found = [one or other for one, other in OBJECT.findall(translation)]
    return {"a": "f", "o": "m"}[found[0]] if len(found) == 1 else ""


def free(translator: Translator, nouns: Nouns, off: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The gender of "it" in free translations, with heads replaced by their means."""
    for template in progress_bar(FREE.splitlines(), unit=" templates"):
        for name, changes in off.items():
            for gender in "fm":
                texts = [template.format(n=noun) for noun, _ in nouns[gender]]
                with touch(translator.model, changes):
                    seen = [object_gender(text) for text in translator.translate(texts)]
                yield {"english": template, "off": name, "noun": gender, "nouns": len(seen),
                       **{word: seen.count(key) for word, key in WRITTEN.items()}}  # fmt: skip


WRITTEN = {"feminine": "f", "masculine": "m", "none": ""}


def main() -> None:
    parser = files_parser("benchmarks.gender", __doc__, "target")
    told = "sections of the log to write (default: all); heads come first, which choose the others"
    parser.add_argument("--only", nargs="+", metavar="SECTION", help=told)
    options = parser.parse_args()
    torch.set_num_threads(1)
    translator = load_pretrained(options.model)
    choose, read = read_nouns("choose"), read_nouns("read")
    source, target = read_lines(options.source), read_lines(options.target)
    means = mean_outputs(translator, source[600:800])
    saved = lambda: json.loads(options.out.read_text("utf-8"))
    known = saved() if options.out.exists() else {}
    if not known.get("heads") or "heads" in (options.only or ()):
        some = [t for t in Template.read() if t.kind in ("first", "far", "it")]
        parts = head_parts(translator, {"E": ENCODER, "X": CROSS})
        write(options.out, {"heads": list(heads(translator, some, parts, choose, read))})
        known = saved()
    chosen = {kind: pd.DataFrame([row["chosen"] for row in known["heads"] if row["kind"] == kind])
              for kind in ("first", "it")}  # fmt: skip
    pair = chosen["it"].mean().filter(regex="^E").nlargest(2).index.tolist()
    article = chosen["first"].mean().idxmax()
    every = list(head_parts(translator, {"E": ENCODER}))
    draw = random.Random(0)
    others = [draw.sample([head for head in every if head not in pair], 2) for _ in range(SETS)]
    sets = {"none": [], "pair": pair} | {" ".join(two): two for two in others}
    off = {name: replaced(translator, means, some) for name, some in sets.items()}
    pronouns = [t for t in Template.read() if t.kind == "it"]
    sections: dict[str, Callable[[], Any]] = {
        "templates": lambda: abilities(translator, Template.read(), read),
        "maps": lambda: maps(translator, read),
        "routes": lambda: routes(translator, read, pair),
        "without": lambda: without(translator, read, means, sets | controls(pair, every)),
        "sorting": lambda: sorting(translator, pronouns, choose, read),
        "cells": lambda: cells(translator, choose, read),
        "dial": lambda: dial(translator, choose, read, list(saved()["cells"][0]["chosen"])),
        "flips": lambda: flips(translator, read, means, article),
        "steps": lambda: steps(translator, read, means, article),
        "whole": lambda: whole(translator, read, article),
        "which": lambda: which(translator, read),
        "winograd": lambda: winograd(translator, read),
        "people": lambda: people(translator),
        "free": lambda: free(translator, read, off),
        "bleu": lambda: bleu(translator, source[:600], target[:600],
                             off | {article: replaced(translator, means, [article])}),
    }  # fmt: skip
    for name in options.only or sections:
        if name in sections:
            write(options.out, {"pair": pair, "article": article, name: list(sections[name]())})


def controls(pair: list[str], every: list[str]) -> dict[str, list[str]]:
    """Each head of a pair, the rest of its layer, all other pairs there, and pairs anywhere."""
    rest = [head for head in every if head not in pair]
    layer = [head for head in rest if head[:3] == pair[0][:3]]
    draw = random.Random(1)
    pairs = [*combinations(layer, 2), *(draw.sample(rest, 2) for _ in range(4 * SETS))]
    sets = {head: [head] for head in pair} | {"rest of the layer": layer}
    return sets | {" ".join(two): list(two) for two in pairs}


if __name__ == "__main__":
    main()
