"""What carries over from "Who is “it”?" to French: `python -m benchmarks.gender_french --help`.

Writes gender-french.json: `general-en-fr`, whose decoder attends to itself as the paper's does, on
those of the nouns of gender-nouns.csv that it translates by one piece with the right article and
adjective. Half of them choose the heads, the other half measure them.
"""

import random
import re
from collections.abc import Iterator
from typing import Any

import torch

from annotated import load_pretrained, touch
from annotated.data import encode_source
from annotated.machinery.corpora.texts import read_lines
from annotated.machinery.translator import Translator
from benchmarks import gender
from benchmarks.gender import KINDS, SETS, Nouns, Template, agreeing, interval
from benchmarks.logs import files_parser, write
from benchmarks.switches import mean_outputs

FORMS = {"f": {"A": "La", "a": "la"}, "m": {"A": "Le", "a": "le"}}
TEMPLATES = """
first | The {n} is small. | | La Le
first | The {n} is very big. | | La Le
near | The {n} is small. | {A} {p} est | petite petit
near | The {n} is very big. | {A} {p} est très | grande grand
far | The {n} here is small. | {A} {p} ici est | petite petit
far | The {n} that I saw is small. | {A} {p} que j'ai vu est | petite petit
far | The {n} that I saw yesterday is small. | {A} {p} que j'ai vu hier est | petite petit
far | The {n} that I saw yesterday in the city is small. | {A} {p} que j'ai vu hier dans la ville est | petite petit
far | The {n} that I saw yesterday in the city with my brother is small. | {A} {p} que j'ai vu hier dans la ville avec mon frère est | petite petit
it | When I saw the {n}, it fell. | Quand j'ai vu {a} {p}, | elle il
"""  # noqa: E501


def known_nouns(translator: Translator) -> dict[str, Nouns]:
    """Both halves of the nouns that the model itself translates as one piece, in pairs."""
    halves: dict[str, Nouns] = {}
    tokenizer = translator.tokenizer
    for half in ("choose", "read"):
        english = [n for nouns in gender.read_nouns(half).values() for n, _ in nouns]
        sources = [f"The {noun} is small." for noun in english]
        found: Nouns = {"f": [], "m": []}
        for noun, source, text in zip(english, sources, translator.translate(sources), strict=True):
            match = re.fullmatch(r"La (\S+) est petite\.|Le (\S+) est petit\.", text)
            target = match and (match[1] or match[2])
            sizes = len(encode_source(tokenizer, [source])[0]), len(tokenizer.encode(target or ""))
            if target and sizes == (6, 1):
                found["f" if match[1] else "m"].append((noun, target))
        count = min(map(len, found.values()))
        halves[half] = {g: random.Random(0).sample(nouns, count) for g, nouns in found.items()}
    return halves


def without(
    translator: Translator, nouns: Nouns, texts: list[str], head: str
) -> Iterator[dict[str, Any]]:
    """How often the adjective agrees with what was written if a head has its mean."""
    means = mean_outputs(translator, texts)
    every = list(gender.head_parts(translator, {"D": KINDS["D"]}))
    others = random.Random(0).sample([other for other in every if other != head], SETS)
    for template in Template.read(TEMPLATES, FORMS):
        if template.kind not in ("near", "far"):
            continue
        for off in ["", head, *others]:
            with touch(translator.model, gender.replaced(translator, means, [off] if off else [])):
                c = gender.contrasts(translator, template, nouns)
            yield {"english": template.english, "off": off or "none",
                   "right": interval(agreeing, c["ff"], c["mm"])}  # fmt: skip


def main() -> None:
    parser = files_parser("benchmarks.gender_french", __doc__, "target")
    options = parser.parse_args()
    torch.set_num_threads(1)
    translator = load_pretrained(options.model)
    halves = known_nouns(translator)
    choose, read = halves["choose"], halves["read"]
    templates = Template.read(TEMPLATES, FORMS)
    of = lambda *kinds: [t for t in templates if t.kind in kinds]
    parts = gender.head_parts(translator, KINDS)
    heads = lambda some, written: list(gender.heads(translator, some, parts, choose, read, written))
    agreement = heads(of("near", "far"), True)
    best = max(agreement[0]["chosen"], key=agreement[0]["chosen"].get)
    texts = read_lines(options.source)[:200]
    write(options.out, {
        "nouns": {half: len(nouns["f"]) for half, nouns in halves.items()},
        "best": best,
        "templates": list(gender.abilities(translator, templates, read)),
        "agreement": agreement,
        "first": heads(of("first"), False),
        "it": heads(of("it"), False),
        "sorting": list(gender.sorting(translator, of("it"), choose, read)),
        "without": list(without(translator, read, texts, best)),
    })  # fmt: skip


if __name__ == "__main__":
    main()
