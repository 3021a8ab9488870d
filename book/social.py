"""Draw the picture for link previews of the book: book/static/social.jpg.

    python book/social.py

It shows what the front page does: a sentence, its translation, and what each word attends to.
"""

from __future__ import annotations

import html
from pathlib import Path

import numpy as np
import vl_convert

from annotated import load_pretrained
from annotated.machinery.palette import COLORS
from annotated.machinery.visualization.weights import merge_words, read_attention

PICTURE = Path(__file__).resolve().parent / "static" / "social.jpg"
WIDTH, HEIGHT = 1200, 630  # as required by the services that show such pictures
SENTENCE = "A young girl in a red dress is jumping into the water."
TOP, BOTTOM, BROADEST = 330, 540, 26  # of the curves; and how wide a weight of 1 is drawn


def text(x: float, y: float, words: str, size: int, more: str = "") -> str:
    return (
        f'<text x="{x:.0f}" y="{y}" font-size="{size}" font-family="sans-serif" {more}>'
        f"{html.escape(words)}</text>"
    )


def places(words: list[str]) -> list[float]:
    """The middle of each word in a line across the picture."""
    at = [sum(len(w) + 2 for w in words[:i]) + len(w) / 2 for i, w in enumerate(words)]
    scale = (WIDTH - 120) / (at[-1] + len(words[-1]) / 2)
    return [60 + scale * place for place in at]


def taper(start: float, end: float, width: float) -> str:
    """Corners of a curve from a point at the top to its full width at the bottom."""
    t = np.linspace(0, 1, 40)
    middle = np.stack([start + (end - start) * t**2 * (3 - 2 * t), TOP + (BOTTOM - TOP) * t])
    across = np.gradient(middle, axis=1)[::-1] * [[-1], [1]]
    across *= width * t / 2 / np.hypot(*across)
    corners = np.concatenate([middle + across, (middle - across)[:, ::-1]], axis=1)
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in corners.T)


def picture(model: str = "multi30k-en-de") -> str:
    """The picture as SVG."""
    found = merge_words(read_attention(load_pretrained(model), SENTENCE)["cross"])
    found.keys[-1] = found.queries[-1] = "end"
    above, below = places(found.keys), places(found.queries)
    parts = [
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        text(60, 120, "The paper behind today’s chatbots", 64, 'font-weight="700" fill="#18181b"'),
        text(60, 180, "Attention Is All You Need, executable", 40, f'fill="{COLORS["blue"]}"'),
        text(60, 235, "every equation runs, every claim has a verdict", 30, 'fill="#52525b"'),
    ]
    for end, row in zip(below, found.weights[-1].mean(dim=0).tolist(), strict=True):
        along = end - BROADEST * sum(row) / 2  # curves arrive side by side
        for start, weight in zip(above, row, strict=True):
            along += BROADEST * weight / 2
            points = taper(start, along, BROADEST * weight)
            parts.append(f'<polygon points="{points}" fill="{COLORS["blue"]}" opacity="0.55"/>')
            along += BROADEST * weight / 2
    middle = 'text-anchor="middle" fill="#27272a"'
    for words, at, y in (found.keys, above, TOP - 12), (found.queries, below, BOTTOM + 30):
        parts += [text(x, y, word, 24, middle) for x, word in zip(at, words, strict=True)]
    inside = "\n".join(parts)
    size = f'width="{WIDTH}" height="{HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{inside}</svg>'


if __name__ == "__main__":
    PICTURE.write_bytes(vl_convert.svg_to_jpeg(picture(), quality=90))
    print(PICTURE)
