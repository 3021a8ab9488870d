"""Trees."""

import re
from html import escape

from annotated.machinery.files import lazy_extra
from annotated.machinery.parsing.evalb import EvalbParams, bracketing, take_bracket
from annotated.machinery.parsing.trees import is_tag

with lazy_extra("parse"):
    from nltk import Tree

_LETTER, _LEVEL = 8, 44  # pixels: width of a letter, height of a level
_STYLE = (
    ".tree{max-width:100%;height:auto;color:inherit;font:13px system-ui,sans-serif}"
    ".tree text{fill:currentColor;text-anchor:middle}.tree line{stroke:currentColor;opacity:.45}"
    ".tree-tag{font-size:11px;opacity:.75}.tree-phrase{font-weight:600}"
    ".tree text.tree-wrong{font-weight:600;fill:#D55E00}"
)


def tree_svg(tree: Tree, compared: Tree | None = None) -> str:
    """A drawing of a tree, words at the bottom.

    Args:
        compared: a tree of the same words; phrases that it does not have are drawn in red.

    Returns: SVG, by itself or as a part of a page.
    """
    drawing = _Drawing(tree, compared or tree)
    drawing.place(tree, 0, 0)
    box = f'viewBox="0 0 {drawing.right:.0f} {drawing.bottom + 26}" width="{drawing.right:.0f}"'
    label = escape(tree.pformat(margin=10**6))
    head = f'xmlns="http://www.w3.org/2000/svg" class="tree" role="img" {box} aria-label="{label}"'
    return f"<svg {head}><style>{_STYLE}</style>{''.join(drawing.parts)}</svg>"


class _Drawing:
    """The parts of a drawing, and how far it reaches to the right."""

    rules = EvalbParams(deleted=frozenset(["TOP"]))

    def __init__(self, tree: Tree, compared: Tree) -> None:
        self.parts: list[str] = []
        self.right, self.bottom = 0.0, _LEVEL * (tree.height() - 1) + 2
        self.known = bracketing([compared], self.rules).brackets

    def place(self, tree: Tree, level: int, start: int) -> tuple[float, int]:
        """Draw what is under a node; returns its x and the number of words before its end."""
        y = _LEVEL * level + 16
        if is_tag(tree):
            width = _LETTER * max(len(tree.label()), len(tree[0])) + 14
            x, self.right = self.right + width / 2, self.right + width
            self.line(x, y + 6, x, self.bottom, ' stroke-dasharray="2 3"')
            self.text(x, self.bottom + 16, tree[0], "tree-word")
            self.text(x, y, tree.label(), "tree-tag")
            return x, start + 1
        below, end = [], start
        for child in tree:
            x, end = self.place(child, level + 1, end)
            below.append(x)
        middle = (below[0] + below[-1]) / 2
        for x in below:
            self.line(middle, y + 6, x, y + _LEVEL - 14)
        self.text(middle, y, tree.label(), self.kind(tree.label(), start, end))
        return middle, end

    def kind(self, label: str, start: int, end: int) -> str:
        """Whether a phrase is one of those that are known; each of them counts once."""
        cut = re.split("[-=]", label)[0]
        right = take_bracket(self.known, (cut, start, end), self.rules) or not self.rules.counts(
            cut
        )
        return "tree-phrase" if right else "tree-wrong"

    def line(self, x: float, y: float, x2: float, y2: float, more: str = "") -> None:
        self.parts.append(f'<line x1="{x:.1f}" y1="{y}" x2="{x2:.1f}" y2="{y2}"{more}/>')

    def text(self, x: float, y: float, text: str, kind: str) -> None:
        self.parts.append(f'<text x="{x:.1f}" y="{y}" class="{kind}">{escape(text)}</text>')
