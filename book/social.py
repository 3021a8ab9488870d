"""Draw the picture for link previews of the book: book/static/social.jpg.

    python book/social.py

It shows the attention of all heads of the encoder's third layer on a sentence like Figure 3's.
"""

from __future__ import annotations

import html
from pathlib import Path

import vl_convert

from annotated import load_pretrained
from annotated.machinery.palette import COLORS, PALETTE
from annotated.machinery.visualization.weights import merge_words, read_attention

PICTURE = Path(__file__).resolve().parent / "static" / "social.jpg"
WIDTH, HEIGHT = 1200, 630  # as required by the services that show such pictures
SENTENCE = "They are making the registration or voting process more difficult."
TOP, BOTTOM = 330, 560  # of the lines


def text(x: float, y: float, words: str, size: int, more: str = "") -> str:
    return (
        f'<text x="{x:.0f}" y="{y}" font-size="{size}" font-family="sans-serif" {more}>'
        f"{html.escape(words)}</text>"
    )


def picture(model: str = "multi30k-en-de", layer: int = 3) -> str:
    """The picture as SVG."""
    found = merge_words(read_attention(load_pretrained(model), SENTENCE)["encoder"])
    at = [sum(len(w) + 1.6 for w in found.keys[:i]) + len(w) / 2 for i, w in enumerate(found.keys)]
    scale = (WIDTH - 120) / (at[-1] + len(found.keys[-1]) / 2)
    places = [60 + scale * place for place in at]
    middle = 'text-anchor="middle" fill="#27272a"'
    parts = [
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        text(60, 120, "Attention Is All You Need", 72, 'font-weight="700" fill="#18181b"'),
        text(60, 180, "The executable edition", 40, f'fill="{COLORS["blue"]}"'),
        text(60, 235, "every equation runs, every claim is checked", 30, 'fill="#52525b"'),
    ]
    for head, weights in enumerate(found.weights[layer - 1].tolist()):
        colour = PALETTE[head % len(PALETTE)]
        for start, row in zip(places, weights, strict=True):
            for end, weight in zip(places, row, strict=True):
                parts.append(
                    f'<line x1="{start:.0f}" y1="{TOP}" x2="{end:.0f}" y2="{BOTTOM}" '
                    f'stroke="{colour}" stroke-width="3" stroke-opacity="{weight:.2f}"/>'
                )
    for place, word in zip(places, found.keys, strict=True):
        parts += [text(place, y, word, 24, middle) for y in (TOP - 12, BOTTOM + 30)]
    inside = "\n".join(parts)
    size = f'width="{WIDTH}" height="{HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{inside}</svg>'


if __name__ == "__main__":
    PICTURE.write_bytes(vl_convert.svg_to_jpeg(picture(), quality=90))
    print(PICTURE)
