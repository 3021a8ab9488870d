"""Charts as the build draws them: the places of all, and the first one of a page as a picture.

A page's script draws them alive, in the same places, once the reader moves (static/book.js).
"""

from __future__ import annotations

import html
import json
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import vl_convert

from annotated.machinery.palette import COLORS

WIDE, NARROW = 736, 358  # width of the column in pixels, on a desktop and on a phone
SMALL = 500  # below this width, book.js fits charts to a phone
CONTROL, BUTTON = 30, 24  # heights of a slider or list below a chart and of its button, in pixels
COLUMN, GAP = 248, 12  # width of a column of controls, and the distance above them
LARGEST = 150_000  # characters of a picture; a larger one would come later than the live chart

# What the style sheets call a color, so that pictures follow the theme.
TEXT, LINES = "#27272a", "#d4d4d8"
NAMED = {
    TEXT: "--chart-text", LINES: "--chart-lines", COLORS["blue"]: "--layer",
    COLORS["sky"]: "--chart-sky", "white": "--chart-white",
}  # fmt: skip


def fitted(spec: dict[str, Any], width: int) -> dict[str, Any]:
    """The specification of a chart in a column of this width, as book.js changes it."""
    spec = json.loads(json.dumps(spec))
    for part in parts(spec):
        if part.get("width") == "container":
            part["width"] = width - 60  # without the axis
    if width >= SMALL:
        return spec
    if "hconcat" in spec:
        spec["vconcat"] = spec.pop("hconcat")
    meta = spec.get("usermeta", {})
    if turned := meta.get("turned"):
        spec["height"] = turned
    legend = {"columns": 4, "symbolSize": 576} if turned else {"columns": meta.get("columns", 1)}
    for part in parts(spec):
        if isinstance(part.get("legend"), dict):
            part["legend"] |= legend
    title = spec.get("title")
    title = {"text": title} if isinstance(title, str) else title
    if title and isinstance(title.get("text"), str):
        spec["title"] = title | {"text": textwrap.wrap(title["text"], width // 11)}
        if lines := title.get("subtitle"):
            lines = [lines] if isinstance(lines, str) else lines
            lines = [line for text in lines for line in textwrap.wrap(text, int(width / 6.5))]
            spec["title"]["subtitle"] = lines
    return spec


def picture(spec: dict[str, Any], width: int) -> str:
    """A chart as SVG, in the column of this width."""
    labels = {"labelColor": TEXT, "titleColor": TEXT}
    config = {
        "background": "transparent", "legend": labels, "header": labels,
        "axis": labels | {"gridColor": LINES, "domainColor": LINES, "tickColor": LINES},
        "title": {"color": TEXT, "subtitleColor": TEXT}, "text": {"color": TEXT},
        "rule": {"color": TEXT}, "view": {"stroke": LINES},
    }  # fmt: skip
    return vl_convert.vegalite_to_svg(fitted(spec, width), config=config)


def named(svg: str, kind: str) -> str:
    """An SVG for a page: hidden from screen readers, its colors by name, its ids its own."""
    for color, name in NAMED.items():
        svg = re.sub(rf'="{color}"', f'="var({name})"', svg, flags=re.IGNORECASE)
    svg = re.sub(r'\b(id="|url\(#|href="#)', rf"\g<1>{kind}-", svg)
    return svg.replace("<svg ", f'<svg class="{kind}" aria-hidden="true" ', 1)


def height(spec: dict[str, Any], svg: str, width: int) -> int:
    """The height of a chart with its controls and its button, in pixels."""
    found = re.search(r'<svg[^>]*? height="([\d.]+)"', svg)
    assert found, "expected an SVG with a height"
    rows = -(-len(bindings(spec)) // max(1, (width + 24) // COLUMN))
    return round(float(found[1])) + BUTTON + (GAP + CONTROL * rows if rows else 0)


def place(spec: dict[str, Any], first: bool) -> tuple[str, str]:
    """The style that keeps the place of a chart; of the first one of a page also its picture."""
    wide, narrow = (picture(spec, width) for width in (WIDE, NARROW))
    heights = height(spec, wide, WIDE), height(spec, narrow, NARROW)
    style = ' style="--wide: {}px; --narrow: {}px"'.format(*heights)
    # Left to the script: drawings of attention, whose axes change places on a phone, and buttons.
    turned = "turned" in spec.get("usermeta", {})
    pressed = any(bind["input"] not in ("range", "select") for _, bind in bindings(spec))
    if not first or turned or pressed or len(wide) + len(narrow) > LARGEST:
        return style, ""
    drawn = named(wide, "wide") + named(narrow, "narrow")
    return style, f'<div class="still">{drawn}{controls(spec)}</div>'


def controls(spec: dict[str, Any]) -> str:
    """The sliders and lists of a chart, as Vega makes them; the script hands on their values."""
    made = []
    for value, bind in bindings(spec):
        label = f'<span class="vega-bind-name">{html.escape(bind["name"])}</span>'
        if bind["input"] == "range":
            limits = " ".join(
                f'{key}="{bind[key]}"' for key in ("min", "max", "step") if key in bind
            )
            label += f'<input type="range" {limits} value="{value}" /><span>{value}</span>'
        else:
            options = zip(bind["options"], bind.get("labels", bind["options"]), strict=True)
            label += "<select>{}</select>".format(
                "".join(
                    f"<option{' selected' * (option == value)}>{html.escape(str(name))}</option>"
                    for option, name in options
                )
            )
        made.append(f'<div class="vega-bind"><label>{label}</label></div>')
    return f'<form class="vega-bindings">{"".join(made)}</form>' if made else ""


def bindings(spec: dict[str, Any]) -> list[tuple[Any, dict[str, Any]]]:
    """What the reader sets below a chart: each value at first, and how it is set."""
    found = []
    for part in parts(spec):
        if isinstance(bind := part.get("bind"), dict):  # of a parameter, or of a selection's fields
            each = [bind] if "input" in bind else bind.values()
            found += [(part.get("value"), {"name": part["name"]} | one) for one in each]
    return found


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
