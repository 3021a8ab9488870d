"""A sentence with its grammar, for the page on heads."""

from collections.abc import Iterable

from IPython.display import HTML
from spacy.tokens import Doc, Span

NAMED = {
    "amod": "adjective", "obl:tmod": "time", "det": "article", "nsubj": "subject",
    "nmod:poss": "possessive", "obj": "object", "punct": "punctuation",
}  # fmt: skip


def draw_sentence(doc: Doc, same: Iterable[Span]) -> HTML:
    """The words of a sentence, one below the other, and an arrow to each from its governor."""
    parts = []
    for token in doc:
        y = 16 + 27 * token.i
        own = 'fill="var(--layer-text)" font-weight="600"' * any(token in span for span in same)
        parts.append(f'<text x="82" y="{y + 5}" text-anchor="end" {own}>{token.text}</text>')
        if token.head.i == token.i:
            continue
        parts.append(
            f'<text x="94" y="{y + 5}" font-size="14" opacity="0.75">{NAMED[token.dep_]}</text>'
        )
        start = 16 + 27 * token.head.i + (5 if token.i > token.head.i else -5)
        far = 188 + 62 * abs(token.i - token.head.i) ** 0.75
        parts.append(
            f'<path d="M184,{start} C{far:.0f},{start} {far:.0f},{y} 190,{y}" fill="none" '
            'stroke="currentColor" stroke-width="1.5"/>'
            f'<path d="M183,{y} l9,-4.5 v9 z" fill="currentColor"/>'
        )
    label = "; ".join(f"{NAMED[t.dep_]}: {t.head.text} to {t.text}" for t in doc if t.head.i != t.i)
    size = f'viewBox="0 0 330 {27 * len(doc)}" width="330" height="{27 * len(doc)}" font-size="15"'
    return HTML(
        '<p style="font-weight: 600">Do attention heads follow the grammar of a '
        f'sentence?</p><div class="figure"><svg {size} fill="currentColor" role="img" '
        f'aria-label="{label}">{"".join(parts)}</svg></div>'
    )
