"""Ways through the book: what a page folds, and one sentence's way through the model."""

from __future__ import annotations

import re

from docutils import nodes
from sphinx.application import Sphinx

STATIONS = {  # in the order in which the model computes: the page, its name, its step by hand
    "3-4-embeddings-softmax": ("embedding", "pieces"),
    "3-5-positional-encoding": ("positions", "positions"),
    "3-2-attention": ("attention", "attention"),
    "3-3-feed-forward": ("feed-forward", "feed-forward"),
    "3-1-encoder-decoder-stacks": ("stack", "stack"),
    "3-assembly": ("assembly", "whole"),
    "5-1-data-batching": ("data", ""),
    "5-2-hardware-schedule": ("training", "train-it"),
}
VERDICT = re.compile(
    r'<strong>(<span title="[^"]*">[^<]*</span>) <a class="symbol"[^>]*>([^<]*)</a>'
)


def fold_experiments(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    """Fold each experiment of a laboratory into a line: its heading, and the verdicts it leads to.

    Exercises stay open.
    """
    sections = doctree.findall(nodes.section) if doctree else []
    laboratory = next((section for section in sections if "laboratory" in section["ids"]), None)
    experiments = [part for part in laboratory or () if isinstance(part, nodes.section)]
    for name in (part["ids"][0] for part in experiments):
        if name not in ("exercise", "exercises"):
            context["body"] = _folded(context["body"], f'<section id="{name}">')


def _folded(body: str, begin: str) -> str:
    """The page with the section that `begin` opens, and with all in it below its heading folded."""
    start = inside = body.index(begin) + len(begin)
    depth = 1
    while depth:  # sections may have sections
        tag = re.compile(r"<(/?)section\b").search(body, inside)
        depth += -1 if tag[1] else 1
        end, inside = tag.start(), tag.end()
    heading, content = re.split(r"(?<=</h[34]>)", body[start:end], maxsplit=1)
    heading = re.sub('<a class="headerlink".*?</a>', "", heading)  # a fold holds no other control
    verdicts = dict.fromkeys(VERDICT.findall(content))  # each once
    signs = "".join(f" <small>{sign} {name}</small>" for sign, name in verdicts)
    summary = f"<summary>{heading.strip()}{signs}</summary>"
    fold = f'\n<details class="experiment">{summary}{content}</details>\n'
    return body[:start] + fold + body[end:]


def add_way(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    """Add links ahead of the laboratory: to the steps before and after, and to this one by hand."""
    folder, _, name = page.rpartition("/")
    if name not in STATIONS:
        return
    address = lambda page: context["pathto"](f"{folder}/{page}")
    order = list(STATIONS)
    at = order.index(name)
    steps = []
    for station in order[max(at - 1, 0) : at + 2]:
        here = ' aria-current="step"' * (station == name)
        steps.append(f'<li><a href="{address(station)}"{here}>{STATIONS[station][0]}</a></li>')
    by_hand = STATIONS[name][1]
    link = f' · <a href="{address("by-hand")}#{by_hand}">by hand</a>' * bool(by_hand)
    label = "One sentence’s way"
    way = f"<span>{label}: </span><ol>{''.join(steps)}</ol>{link}"
    way = f'<nav class="way" aria-label="{label}">{way}</nav>'
    laboratory = '<section id="laboratory">'
    context["body"] = context["body"].replace(laboratory, f"{way}\n{laboratory}", 1)
