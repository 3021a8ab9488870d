"""Ways through the book: a page without its laboratory, and one sentence through the model."""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx

STATIONS = {  # in the order in which the model computes
    "3-4-embeddings-softmax": "embedding",
    "3-5-positional-encoding": "positions",
    "3-2-attention": "attention",
    "3-3-feed-forward": "feed-forward",
    "3-1-encoder-decoder-stacks": "stack",
    "3-assembly": "first word",
}
PLACE = '<section id="laboratory">'


def add_short_read(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    """Add the button that hides the laboratory, and the line that then stands in its place."""
    sections = doctree.findall(nodes.section) if doctree else []
    laboratory = next((section for section in sections if "laboratory" in section["ids"]), None)
    if laboratory is None or "header_buttons" not in context:
        return
    ids = [part["ids"][0] for part in laboratory.children if isinstance(part, nodes.section)]
    count = sum(id != "exercises" for id in ids)
    parts = [f"{count} experiment{'s' * (count > 1)}"] * (count > 0)
    parts += ["the exercises"] * ("exercises" in ids)
    line = f"<p>Laboratory: {' and '.join(parts)}. <button>Show</button></p>"
    place = f'<div class="left-out">{line}</div>\n{PLACE}'
    context["body"] = context["body"].replace(PLACE, place, 1)
    said = {"text": "Short read", "tooltip": "Leave out the laboratories", "label": "short"}
    context["header_buttons"].append({"type": "javascript", "javascript": "", **said})


def add_way(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    """Add links under the title to the sections that follow one sentence through the model."""
    folder, _, name = page.rpartition("/")
    if name not in STATIONS:
        return
    steps = []
    for station, title in STATIONS.items():
        contents = app.env.tocs.get(f"{folder}/{station}", nodes.bullet_list())
        anchors = (link.get("anchorname") or "" for link in contents.findall(nodes.reference))
        anchor = next((anchor for anchor in anchors if anchor.startswith("#one-sentence")), None)
        if anchor:
            here = ' aria-current="step"' * (station == name)
            url = anchor if here else context["pathto"](f"{folder}/{station}") + anchor
            steps.append(f'<li><a href="{url}"{here}>{title}</a></li>')
    label = "One sentence’s way"
    way = f'<nav class="way" aria-label="{label}">{label}: <ol>{"".join(steps)}</ol></nav>'
    context["body"] = context["body"].replace("</h1>", f"</h1>\n{way}", 1)
