"""Whether a head finds the owner for German *sein* and *ihr*: `python -m benchmarks.her --help`.

Writes her.json for "Who is “it”?". The contrast is the log-odds of *ihr* against *sein* after a
given beginning, and the nouns are feminine and neuter owners of *her*. Every other noun, thing and
template chooses, the rest is read. 95 % intervals resample both pairs of nouns and sentences.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import benchmarks.gender as by
from annotated import load_pretrained, record_attention, touch
from annotated.machinery.corpora.registry import load_pairs
from annotated.machinery.progress import progress_bar
from annotated.machinery.translator import Translator
from benchmarks.gender import Nouns, Parts, Template, head_parts, interval, places, ratio
from benchmarks.logs import make_parser, write

OWNERS = """
f | cat Katze, bride Braut, family Familie, daughter Tochter, lady Dame, group Gruppe, mother Mutter, mom Mutter, woman Frau, person Person
n | baby Baby, animal Tier, couple Paar, child Kind, horse Pferd, girl Mädchen, kid Kind, infant Kleinkind, toddler Kleinkind, team Team
m | boy Junge, bird Vogel, clown Clown, chef Koch, father Vater, dog Hund, guy Mann, gentleman Herr, son Sohn, man Mann
"""  # noqa: E501
FORMS = {
    "f": {"D": "Die", "d": "die"},
    "n": {"D": "Das", "d": "das"},
    "m": {"D": "Der", "d": "der"},
}
THINGS = "bag f, guitar f, ball m, hat m, bike n, book n"
TEMPLATES = """
The {n} holds her {t}. | {D} {p} hält | accusative
The {n} is walking with her {t}. | {D} {p} geht mit | dative
The {n} is sitting on a bench with her {t}. | {D} {p} sitzt auf einer Bank mit | dative
The {n} in a park looks at her {t}. | {D} {p} in einem Park betrachtet | accusative
The {n} plays with her {t}. | {D} {p} spielt mit | dative
The {n} carries her {t}. | {D} {p} trägt | accusative
The {n} shows her {t}. | {D} {p} zeigt | accusative
The {n} on the street holds her {t}. | {D} {p} auf der Straße hält | accusative
Next to a man, the {n} holds her {t}. | Neben einem Mann hält {d} {p} | accusative
The {n} is standing in front of a house with her {t}. | {D} {p} steht vor einem Haus mit | dative
The {n} in a red shirt holds her {t}. | {D} {p} in einem roten Hemd hält | accusative
The {n} throws her {t} into the air. | {D} {p} wirft | accusative
The {n} is lying on the grass with her {t}. | {D} {p} liegt im Gras mit | dative
The {n} runs through the water with her {t}. | {D} {p} rennt durch das Wasser mit | dative
In the snow, the {n} plays with her {t}. | Im Schnee spielt {d} {p} mit | dative
The {n} is playing next to her {t}. | {D} {p} spielt neben | dative
"""
ENDINGS = {
    "accusative": {"m": "en", "f": "e", "n": ""},
    "dative": {"m": "em", "f": "er", "n": "em"},
}
HALVES = "choose", "read"


def half(some: list[Any], which: str) -> list[Any]:
    return some[which == "read" :: 2]


def read_nouns(text: str, which: str) -> Nouns:
    """By gender, half of the nouns; owners with their German translations."""
    found: Nouns = {}
    for line in text.strip().splitlines():
        gender, words = line.split(" | ")
        found[gender] = [(*word.split(), "")[:2] for word in half(words.split(", "), which)]
    return found


def german(which: str) -> list[Template]:
    """Half of the templates, each with half of the things and the forms of *ihr* and *sein*."""
    lines, found = TEMPLATES.strip().splitlines(), []
    for line, owned in product(half(lines, which), half(THINGS.split(", "), which)):
        (text, begun, case), (thing, gender) = line.split(" | "), owned.split()
        text, ending = text.format(n="{n}", t=thing), ENDINGS[case][gender]
        found.append(Template(case, text, begun, ("ihr" + ending, "sein" + ending), FORMS))
    return found


class Study(NamedTuple):
    """A model, and for each half the sentences and the pairs of nouns that are put into them."""

    translator: Translator
    templates: dict[str, list[Template]]
    nouns: dict[str, Nouns]

    def moved(self, which: str, parts: Callable[[Template], Parts]) -> dict[str, np.ndarray]:
        """As `shares`, (pairs, sentences), with the whole effect as the last part."""
        found = [by.shares(self.translator, template, self.nouns[which], parts(template))
                 for template in progress_bar(self.templates[which], unit=" frames")]  # fmt: skip
        names = [*found[0][0], "all"]
        return {name: np.stack([{**some, "all": whole}[name] for some, whole in found], axis=1)
                for name in names}  # fmt: skip


@contextmanager
def cut(translator: Translator, head: str, start: int, end: int) -> Iterator[None]:
    """Inside the block, a head of the encoder cannot attend from one position to another."""
    ((inputs, *_, at),) = head_parts(translator, {"E": by.ENCODER})[head]
    name, number = inputs.removesuffix(".w_o:in"), place(head)[1]
    values: dict[str, torch.Tensor] = {}

    def without(x: torch.Tensor) -> torch.Tensor:
        row = seen[name][:, number, start].clone()
        row[:, end] = 0
        row = row / row.sum(dim=-1, keepdim=True).clamp(min=1e-9)
        new = x.clone()
        new[:, start, at] = (row.unsqueeze(1) @ values["v"][..., at])[:, 0]
        return new

    changes = {f"{name}.w_v": lambda v: values.update(v=v), inputs: without}
    with record_attention(translator.model) as seen, touch(translator.model, changes):
        yield


def place(head: str) -> tuple[int, int]:
    """Layer and number of a head such as E4.4, both from 0."""
    layer, number = head[1:].split(".")
    return int(layer) - 1, int(number) - 1


def heads(study: Study) -> Iterator[dict[str, Any]]:
    """The share of each head in the effect of the noun."""
    parts = head_parts(study.translator, {"E": by.ENCODER, "X": by.CROSS})
    one, two = (study.moved(which, lambda _: parts) for which in HALVES)
    for part in parts:
        yield {"head": part, "chosen": round(ratio(one[part], one["all"]), 4),
               **interval(ratio, two[part], two["all"], axes=2)}  # fmt: skip


def without(study: Study, cases: list[tuple[Template, Nouns]]) -> dict[str, np.ndarray]:
    """What is lost of the noun's effect if a head cannot look at it from *her*, and all of it."""
    found: dict[str, list[np.ndarray]] = {"all": []}
    for template, nouns in progress_bar(cases, unit=" frames"):
        whole = by.source_effect(study.translator, template, nouns)
        found["all"].append(whole)
        at = places(study.translator, template, nouns, "her")
        for head in head_parts(study.translator, {"E": by.ENCODER}):
            with cut(study.translator, head, *at):
                rest = by.source_effect(study.translator, template, nouns)
            found.setdefault(head, []).append(whole - rest)
    return {head: np.stack(rows, axis=1) for head, rows in found.items()}


def edges(study: Study) -> Iterator[dict[str, Any]]:
    """How much of the effect of the noun needs the edge from *her* to it in each head."""
    nouns = study.nouns["read"]
    found = without(study, [(template, nouns) for template in study.templates["read"]])
    whole = found.pop("all")
    yield {"head": "all", **interval(np.mean, whole, axes=2)}
    for head, gone in found.items():
        second = list(nouns.values())[1]
        each = {noun: [round(float(x), 4) for x in (whole[n].mean(), ratio(gone[n], whole[n]))]
                for n, (noun, _) in enumerate(second)}  # fmt: skip
        yield {"head": head, **interval(ratio, gone, whole, axes=2), "nouns": each}


GENDER = {noun: g for which in HALVES for g, some in read_nouns(OWNERS, which).items()
          for noun, _ in some}  # fmt: skip


def stems(text: str) -> list[str]:
    """The possessives *sein* and *ihr* in a German sentence, without their endings."""
    return re.findall(r"\b(sein|ihr)(?:e[mnrs]?)?\b", text.lower())


def swap(text: str, old: str, new: str) -> str:
    """Another noun for one of a sentence, and the article that fits it."""
    text = re.sub(rf"\b{old}\b", new, text)
    return re.sub(rf"\b([Aa])n? (?={new}\b)", rf"\1{'n' * (new[0] in 'aeiou')} ", text)


def owned(text: str) -> str:
    """The known owner, if a caption has one *his* or *her* and before it one such noun, or "" """
    parts = re.split(r"\b(his|her|its)\b", text)
    known = [[w for w in re.findall(r"\w+", part) if w in GENDER] for part in (text, parts[0])]
    one = len(parts) == 3 and parts[1] != "its" and list(map(len, known)) == [1, 1]
    return known[0][0] if one else ""


def captions(study: Study, english: list[str], best: str) -> Iterator[dict[str, Any]]:
    """Held-out captions, as they are and with other owners of *her*: weights, stems and odds."""
    translator, nouns, cases = study.translator, study.nouns["read"], []
    seen: dict[str, list[float]] = {g: [] for g in "fnm"}
    count = {f"{g}{way}": Counter[str]() for g in "fn" for way in ("", " cut")}
    for text in progress_bar([text for text in english if owned(text)], unit=" captions"):
        hers, owner = re.sub(r"\bhis\b", "her", text), owned(text)
        frame, itself = (
            Template("", swap(hers, owner, "{n}"), "", ("", ""), FORMS),
            {"f": [(owner, "")]},
        )
        if hers == text:
            weight = by.weights(translator, frame, itself, word="her")["f"][0][place(best)]
            seen[GENDER[owner]].append(float(weight))
        for key in count:
            some = [swap(hers, owner, noun) for noun, _ in nouns[key[0]]]
            at = places(translator, frame, itself, "her")
            with cut(translator, best, *at) if "cut" in key else nullcontext():
                count[key].update("".join(stems(new)) for new in translator.translate(some))
        if len(stems(written := translator.translate(hers))) == 1:
            begun, _, ending, *_ = re.split(r"\b([Ss]ein|[Ii]hr)(e[mnrs]?|)\b", written)
            words = "ihr" + ending, "sein" + ending
            cases.append((frame._replace(target=begun.strip(), words=words), nouns))
    for g, values in seen.items():
        if values:
            yield {"weight": g, "captions": len(values), **interval(np.mean, np.array(values))}
    for key, found in count.items():
        yield {"stems": key, "sein": found["sein"], "ihr": found["ihr"], "all": found.total()}
    lost = {head: values.T for head, values in without(study, cases).items()}
    whole = lost.pop("all")
    yield {"head": "all", "captions": len(whole), **interval(np.mean, whole)}
    for head, gone in lost.items():
        yield {"head": head, **interval(ratio, gone, whole)}


def sections(model: str, english: list[str], known: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """What is measured of a model; the best head of the encoder is known once `heads` is."""
    translator = load_pretrained(model)
    best = lambda: max((row for row in known["heads"] if row["head"][0] == "E"),
                       key=lambda row: row["chosen"])["head"]  # fmt: skip
    nouns = {which: {g: read_nouns(OWNERS, which)[g] for g in "fn"} for which in HALVES}
    study = Study(translator, {which: german(which) for which in HALVES}, nouns)
    return {
        "heads": lambda: heads(study),
        "edges": lambda: edges(study),
        "captions": lambda: captions(study, english, best()),
    }


def main() -> None:
    add = (parser := make_parser("benchmarks.her", __doc__)).add_argument
    add("--models", nargs="+", default=["multi30k-en-de"], help="models of the package, or folders")
    add("--out", type=Path, required=True, help="JSON file to write, or to complete")
    options = parser.parse_args()
    torch.set_num_threads(1)
    held_out = (load_pairs("multi30k", split, "en", "de")[0] for split in ("dev", "test"))
    english = list(chain(*held_out))
    known = json.loads(options.out.read_text("utf-8")) if options.out.exists() else {}
    for model in options.models:
        found = known.get(name := Path(model).name, {})
        for section, measure in sections(model, english, found).items():
            if section not in found:
                found[section] = list(measure())
                write(options.out, {name: found})


if __name__ == "__main__":
    main()
