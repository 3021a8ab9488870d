"""Trees as SVG in the color of the surrounding text, so that they suit any background."""

import re
from html import escape
from typing import TYPE_CHECKING, Union

from annotated.machinery.errors import InputError
from annotated.machinery.palette import COLORS
from annotated.machinery.trees.evalb import EvalbParams, bracketing, take_bracket
from annotated.machinery.trees.penn import is_tag

if TYPE_CHECKING:
    from nltk import Tree

_LETTER, _LEVEL = 8, 40  # pixels: width of a letter, height of a level
_DOTS = ' stroke-dasharray="2 3"'
_STYLE = (
    ".tree{max-width:100%;height:auto;color:inherit;font:13px system-ui,sans-serif}"
    ".tree text{fill:currentColor;text-anchor:middle}.tree line{stroke:currentColor;opacity:.45}"
    ".tree-tag{opacity:.85}.tree-phrase{font-weight:600}"
    f".tree text.tree-wrong{{font-weight:600;fill:color-mix(in srgb,{COLORS['vermilion']} 70%,"
    "currentColor)}"
)


def _xml(text: str) -> str:
    """Text for XML: markup is escaped, and forbidden characters such as NUL become U+FFFD."""
    allowed = "\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff"
    return escape(re.sub(f"[^{allowed}]", "\ufffd", text))


def tree_svg(tree: "Tree", compared: Union["Tree", None] = None) -> str:
    """A drawing of a tree: words at the bottom, a phrase above the middle of its children.

    Phrases that `compared`, a tree of the same words, lacks are drawn in red.

    Returns: SVG, which can be a file or part of a page.

    Raises: InputError for an argument that is not a tree.
    """
    for given in tree, compared or tree:
        if not hasattr(given, "subtrees"):
            raise InputError(f"expected a tree; got {type(given).__name__}")
    rules, parts = EvalbParams(deleted=frozenset(["TOP"])), []
    left = bracketing([compared or tree], rules).brackets  # each of them counts once
    right, bottom = 0.0, _LEVEL * (tree.height() - 1) + 2

    def draw_line(x: float, y: float, x2: float, y2: float, more: str = "") -> None:
        parts.append(f'<line x1="{x:.1f}" y1="{y}" x2="{x2:.1f}" y2="{y2}"{more}/>')

    def draw_text(x: float, y: float, text: str, kind: str) -> None:
        parts.append(f'<text x="{x:.1f}" y="{y}" class="{kind}">{_xml(text)}</text>')

    def draw(node: "Tree", level: int, start: int) -> tuple[float, int]:
        """Draw a node and its descendants; returns its x and the number of words up to its end."""
        nonlocal right
        y = _LEVEL * level + 16
        if is_tag(node):
            width = _LETTER * max(len(node.label()), len(node[0])) + 14
            x, right = right + width / 2, right + width
            draw_line(x, y + 6, x, bottom, _DOTS)
            draw_text(x, bottom + 16, node[0], "tree-word")
            draw_text(x, y, node.label(), "tree-tag")
            return x, start + 1
        below, end = [], start
        for child in node:
            x, end = draw(child, level + 1, end)
            below.append((x, is_tag(child) and not child.label()[0].isalpha()))
        middle = (below[0][0] + below[-1][0]) / 2
        for x, punctuation in below:
            draw_line(middle, y + 6, x, y + _LEVEL - 14, _DOTS * punctuation)
        label = re.split("[-=]", node.label())[0]
        shared = take_bracket(left, (label, start, end), rules) or not rules.counts(label)
        draw_text(middle, y, node.label(), "tree-phrase" if shared else "tree-wrong")
        return middle, end

    draw(tree, 0, 0)
    box = f'viewBox="0 0 {right:.0f} {bottom + 26}" width="{1.25 * right:.0f}"'
    label = _xml(tree.pformat(margin=10**6))
    head = f'xmlns="http://www.w3.org/2000/svg" class="tree" role="img" {box} aria-label="{label}"'
    return f"<svg {head}><style>{_STYLE}</style>{''.join(parts)}</svg>"
