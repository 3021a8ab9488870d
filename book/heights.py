"""The heights of charts, so that space is reserved for the first ones until they are drawn."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import vl_convert

WIDE, NARROW, SMALL = 768, 358, 500  # pixels: column on a desktop, on a phone; book.js's limit
CONTROL, BUTTON = 30, 24  # heights of a slider or list below a chart and of its button, in pixels
COLUMN, GAP = 248, 12  # width of a column of controls, and the distance above them


def height(spec: dict[str, Any], width: int) -> int:
    """The height of a chart in a column of this width, in pixels, as book.js will draw it."""
    spec = json.loads(json.dumps(spec))
    turned = spec.get("usermeta", {}).get("turned") if width < SMALL else None
    if turned:
        spec["height"] = turned
    if width < SMALL and "hconcat" in spec:
        spec["vconcat"] = spec.pop("hconcat")
    for part in parts(spec):
        if part.get("width") == "container":
            part["width"] = width - 60  # without the axis
        if width < SMALL and isinstance(part.get("legend"), dict):
            part["legend"].update({"columns": 4, "symbolSize": 576} if turned else {"columns": 1})
    svg = vl_convert.vegalite_to_svg(spec)
    found = re.search(r'<svg[^>]*? height="([\d.]+)"', svg)
    assert found, "expected an SVG with a height"
    controls = sum(isinstance(part.get("bind"), dict) for part in parts(spec))
    rows = -(-controls // max(1, (width + 24) // COLUMN))
    return round(float(found[1])) + BUTTON + (GAP + CONTROL * rows if controls else 0)


def style(spec: dict[str, Any]) -> str:
    """Attribute with the heights for a desktop and for a phone."""
    return f' style="--wide: {height(spec, WIDE)}px; --narrow: {height(spec, NARROW)}px"'


def parts(spec: Any) -> Iterator[dict[str, Any]]:
    """All objects of a specification except its data."""
    if isinstance(spec, dict):
        yield spec
        for name, value in spec.items():
            if name not in ("data", "datasets"):
                yield from parts(value)
    elif isinstance(spec, list):
        for value in spec:
            yield from parts(value)
