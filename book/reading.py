"""Ways through the book: a page without its laboratory, and one sentence through the model."""

from __future__ import annotations

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
PLACE = '<section id="laboratory">'


def add_short_read(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    """Add the button that hides the laboratory, and the line that then stands in its place."""
    sections = doctree.findall(nodes.section) if doctree else []
    laboratory = next((section for section in sections if "laboratory" in section["ids"]), None)
    if laboratory is None or "header_buttons" not in context:
        return
    ids = [part["ids"][0] for part in laboratory.children if isinstance(part, nodes.section)]
    exercises = [f"the {id}" for id in ids if id in ("exercise", "exercises")]
    count = len(ids) - len(exercises)
    parts = [f"{count} experiment{'s' * (count > 1)}"] * (count > 0) + exercises
    line = f"<p>Laboratory: {' and '.join(parts)}. <button>Show</button></p>"
    place = f'<div class="left-out">{line}</div>\n{PLACE}'
    context["body"] = context["body"].replace(PLACE, place, 1)
    said = {"text": "Short read", "tooltip": "Leave out the laboratories", "label": "short"}
    context["header_buttons"].append({"type": "javascript", "javascript": "", **said})


def add_way(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    """Add links under the title to the pages that follow one sentence, and to this step by hand."""
    folder, _, name = page.rpartition("/")
    if name not in STATIONS:
        return
    address = lambda page: context["pathto"](f"{folder}/{page}")
    steps = []
    for station, (title, _) in STATIONS.items():
        here = ' aria-current="step"' * (station == name)
        steps.append(f'<li><a href="{address(station)}"{here}>{title}</a></li>')
    by_hand = STATIONS[name][1]
    link = f' · <a href="{address("by-hand")}#{by_hand}">by hand</a>' * bool(by_hand)
    label = "One sentence’s way"
    way = f'<nav class="way" aria-label="{label}">{label}: <ol>{"".join(steps)}</ol>{link}</nav>'
    context["body"] = context["body"].replace("</h1>", f"</h1>\n{way}", 1)
