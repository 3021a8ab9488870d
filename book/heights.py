"""How tall charts will be, so that the first ones' place is kept free until they are drawn."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import vl_convert

WIDE, NARROW, SMALL = 768, 358, 500  # of the column, on a desk and on a phone; book.js's limit
CONTROL, MARGIN = 30, 18  # of a slider or a list below a chart, and around it, in pixels


def height(spec: dict[str, Any], width: int) -> int:
    """The height of a chart in a column of this width, in pixels, as book.js will draw it."""
    spec = json.loads(json.dumps(spec))
    for part in parts(spec):
        if part.get("width") == "container":
            part["width"] = width - 60  # without the axis
        if width < SMALL and isinstance(part.get("legend"), dict):
            part["legend"]["columns"] = 1
    svg = vl_convert.vegalite_to_svg(spec)
    found = re.search(r'<svg[^>]*? height="([\d.]+)"', svg)
    assert found, "expected an SVG with a height"
    controls = sum(isinstance(part.get("bind"), dict) for part in parts(spec))
    return round(float(found[1])) + MARGIN + CONTROL * controls


def style(spec: dict[str, Any]) -> str:
    """Attribute with the heights for a desk and for a phone."""
    return f' style="--wide: {height(spec, WIDE)}px; --narrow: {height(spec, NARROW)}px"'


def parts(spec: Any) -> Iterator[dict[str, Any]]:
    """All objects of a specification but its data."""
    if isinstance(spec, dict):
        yield spec
        for name, value in spec.items():
            if name not in ("data", "datasets"):
                yield from parts(value)
    elif isinstance(spec, list):
        for value in spec:
            yield from parts(value)
