"""Attention as curves between two short sentences, for the front page."""

from html import escape
from itertools import accumulate

from torch import Tensor

WIDTH, HEIGHT = 340, 104  # of the drawing; its letters are 14 high
LETTER = 8.4  # width of one
BROADEST, LEAST = 12, 0.08  # a curve of weight 1; smaller weights are not drawn
COLOR = "var(--layer, #0072b2)"


def middles(words: list[str]) -> list[float]:
    """Where the middles of words are if they fill the width."""
    widths = [LETTER * max(len(word), 1.5) for word in words]
    space = (WIDTH - sum(widths)) / (len(words) - 1)
    starts = accumulate((width + space for width in widths[:-1]), initial=0)
    return [start + width / 2 for start, width in zip(starts, widths, strict=True)]


def draw_curves(weights: Tensor, keys: list[str], queries: list[str]) -> str:
    """SVG of weights (queries, keys): the keys above, the queries below, as on the front page."""
    above, below = (
        [word.replace("<EOS>", "end").replace("</s>", "end") for word in side]
        for side in (keys, queries)
    )
    top, foot = middles(above), middles(below)
    curves = "".join(
        f'<path d="M{x:.0f} 20C{x:.0f} 52 {x2:.0f} 52 {x2:.0f} 84" '
        f'stroke-width="{BROADEST * weight:.1f}"/>'
        for x2, row in zip(foot, weights.tolist(), strict=True)
        for x, weight in zip(top, row, strict=True)
        if weight >= LEAST
    )
    words = "".join(
        f'<text x="{x:.0f}" y="{y}">{escape(word)}</text>'
        for side, places, y in ((above, top, 13), (below, foot, 99))
        for word, x in zip(side, places, strict=True)
    )
    most = (above[i] for i in weights.argmax(dim=-1).tolist())
    told = "; ".join(f"{word}: {key}" for word, key in zip(below, most, strict=True))
    style = (
        "display: block; margin: 1rem 0 0.5rem; max-width: 26rem; overflow: visible; width: 100%"
    )
    label = f"Where each German word has its largest weight. {escape(told)}"
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" style="{style}" aria-label="{label}">'
        f'<g fill="none" stroke="{COLOR}" stroke-opacity="0.55">{curves}</g>'
        f'<g fill="currentColor" font-size="14" text-anchor="middle">{words}</g></svg>'
    )
