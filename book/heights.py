"""The heights of charts, so that their places are kept until they are drawn."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import vl_convert

WIDE, NARROW, SMALL = 768, 358, 500  # pixels: column on a desktop, on a phone; book.js's limit
CONTROL, BUTTON = 30, 24  # heights of a slider or list below a chart and of its button, in pixels
AXIS = 50  # an axis and its title
COLUMN, GAP = 248, 12  # width of a column of controls, and the distance above them


def height(spec: dict[str, Any], width: int) -> int:
    """The height of a chart in a column of this width, in pixels, as book.js will draw it."""
    spec = json.loads(json.dumps(spec))
    turned = _turned(spec, width < SMALL)
    if turned:
        spec["height"] = turned
    if width < SMALL and "hconcat" in spec:
        spec["vconcat"] = spec.pop("hconcat")
    for part in parts(spec):
        if part.get("width") == "container":
            part["width"] = width - 60  # without the axis
        if width < SMALL and isinstance(part.get("legend"), dict):
            columns = {"columns": spec.get("usermeta", {}).get("columns", 1)}
            part["legend"].update({"columns": 4, "symbolSize": 576} if turned else columns)
    svg = vl_convert.vegalite_to_svg(spec)
    found = re.search(r'<svg[^>]*? height="([\d.]+)"', svg)
    assert found, "expected an SVG with a height"
    controls = sum(isinstance(part.get("bind"), dict) for part in parts(spec))
    rows = -(-controls // max(1, (width + 24) // COLUMN))
    return round(float(found[1])) + BUTTON + (GAP + CONTROL * rows if controls else 0)


def _turned(spec: dict[str, Any], narrow: bool) -> int | None:
    """The height on a phone of an attention drawing, whose words stand in two columns there."""
    return spec.get("usermeta", {}).get("turned") if narrow else None


def least(spec: dict[str, Any], narrow: bool) -> int:
    """About the height of a chart, in pixels, without drawing it: its plots and their axes."""
    if several := spec.get("vconcat") or spec.get("hconcat"):
        each = [least(part, narrow) for part in several]
        return sum(each) if narrow or "vconcat" in spec else max(each)
    inner = spec.get("spec", spec)
    plot = _turned(spec, narrow) or spec.get("height", inner.get("height", 0))
    return (plot if isinstance(plot, int) else 0) + AXIS


def style(spec: dict[str, Any], exact: bool) -> str:
    """Attribute with the heights for a desktop and for a phone.

    The exact ones cost about half a second, which only the first chart of a page is worth; of the
    others, which lie below, the reader sees no more than the difference.
    """
    if exact:
        wide, narrow = height(spec, WIDE), height(spec, NARROW)
    else:
        wide, narrow = (least(spec, narrow) + BUTTON for narrow in (False, True))
    return f' style="--wide: {wide}px; --narrow: {narrow}px"'


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
