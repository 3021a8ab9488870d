"""Charts as the build draws them: the places of all, and the first one of a page as a picture.

A page's script draws them alive, in the same places, once the reader moves (static/book.js).
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import Any

import vl_convert
from tables import typeset

from annotated.machinery.palette import COLORS

WIDE, NARROW = 744, 358  # width of the column in pixels, on a desktop and on a phone
SMALL = 500  # below this width, book.js fits charts to a phone
# In pixels, as the style sheet sets what is above and below a chart: heights of a row of sliders
# and lists, and of a button; the space around the rows, and between two in a row; widths of
# a letter and of a slider.
CONTROL, BUTTON, AROUND, BETWEEN, LETTER, SLIDER = 28, 24, 20, 32, 7.5, 128
# Names of rows are measured in another font, and are wider in Inter by this share of their width,
# unless they begin at a fixed place (charts.grouped).
WORDS, INTER = 60, 0.07
# Of an axis whose labels stand above their rows.
ABOVE = {
    "labelAlign": "left", "labelBaseline": "bottom", "labelOffset": -7, "labelPadding": 0,
    "labelLimit": NARROW, "ticks": False, "domain": False,
}  # fmt: skip
LARGEST = 300_000  # characters of both pictures; larger ones would come later than a live chart

# What the style sheets call a color, so that pictures follow the theme.
TEXT, LINES = "#27272a", "#d4d4d8"
NAMED = {
    TEXT: "--chart-text", LINES: "--chart-lines", COLORS["blue"]: "--layer",
    COLORS["sky"]: "--chart-sky", "white": "--chart-white",
}  # fmt: skip


def fitted(spec: dict[str, Any], width: int) -> dict[str, Any]:
    """The specification of a chart in a column of this width, as book.js changes it."""
    spec = json.loads(json.dumps(spec))
    if spec.get("width") == "container":
        spec |= {"width": width, "autosize": {"type": "fit-x", "contains": "padding"}}
    if width >= SMALL:
        return spec
    if "hconcat" in spec:
        spec["vconcat"] = spec.pop("hconcat")
    meta = spec.get("usermeta", {})
    if "height" in meta:
        spec["height"] = meta["height"]
    if turned := meta.get("turned"):
        turn(spec, width)
    if step := meta.get("above"):
        lift(spec, step)
    legend = {"columns": meta.get("columns", 1)}
    if turned:
        legend = {"columns": 8, "columnPadding": 12, "titleOrient": "top", "symbolSize": 196}
    for part in parts(spec):
        if isinstance(part.get("legend"), dict):
            part["legend"] |= legend
    return spec


def turn(spec: dict[str, Any], width: int) -> None:
    """On a phone, the words of an attention drawing stand in two columns, one beside the other."""
    spec |= {"width": width, "height": spec["usermeta"]["turned"]}
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    next(param for param in spec["params"] if param["name"] == "turned")["value"] = True
    for layer in spec["layer"]:
        encoding = layer["encoding"]
        encoding["y"]["scale"]["domain"] = [*spec["usermeta"]["down"]]
        swapped = {"x": "y", "y": "x", "x2": "y2", "y2": "x2"}
        layer["encoding"] = {swapped.get(name, name): by for name, by in encoding.items()}
        for axis in "xy":
            layer["encoding"][axis]["scale"]["domain"].reverse()


def lift(spec: dict[str, Any], step: int) -> None:
    """On a phone, the names of rows stand above them, and each row takes `step` pixels."""
    for part in parts(spec):
        if isinstance(part.get("height"), dict):
            part["height"] = {"step": step}
        y = part.get("y") if isinstance(part.get("y"), dict) else {}
        if y.get("type") in ("nominal", "ordinal"):
            y["axis"] = (y.get("axis") or {}) | ABOVE


def widen(spec: dict[str, Any], rest: float) -> bool:
    """Whether charts beside or below each other have become as wide as there is room, as alive."""
    beside = spec.get("hconcat", [])
    each = beside or spec.get("vconcat", [])
    sized = [part for part in each if isinstance(part.get("width"), (int, float))]
    if abs(rest) <= 4:
        return False
    for part in sized:
        part["width"] += rest / len(sized) if beside else rest
    return bool(sized)


def size_of(svg: str) -> tuple[float, float]:
    """Width and height of an SVG."""
    found = re.search(r'<svg[^>]*? width="([\d.]+)" height="([\d.]+)"', svg)
    assert found, "expected an SVG with a size"
    return float(found[1]), float(found[2])


def picture(spec: dict[str, Any], width: int) -> str:
    """A chart as SVG, in the column of this width."""
    labels = {"labelColor": TEXT, "titleColor": TEXT}
    config = {
        "background": "transparent", "legend": labels, "header": labels,
        "axis": labels | {"gridColor": LINES, "domainColor": LINES, "tickColor": LINES},
        "title": {"color": TEXT, "subtitleColor": TEXT}, "text": {"color": TEXT},
        "rule": {"color": TEXT}, "view": {"stroke": LINES},
    }  # fmt: skip
    spec = fitted(spec, width)
    svg = vl_convert.vegalite_to_svg(spec, config=config)
    if widen(spec, width - size_of(svg)[0]):
        svg = vl_convert.vegalite_to_svg(spec, config=config)
    left = re.search(r'transform="translate\(([\d.]+),', svg)  # where what the axes frame begins
    names = (
        left and float(left[1]) > WORDS and all(p.get("labelAlign") != "left" for p in parts(spec))
    )
    if spec.get("width") == width and names:
        padding = {"left": 5 + INTER * float(left[1]), "right": 5, "top": 5, "bottom": 5}
        svg = vl_convert.vegalite_to_svg(spec | {"padding": padding}, config=config)
    short = lambda tag: re.sub(r"(\.\d\d)\d+", r"\1", tag[0])  # hundredths of a pixel are enough
    return re.sub(r"<[^>]*>", short, svg)


def named(svg: str, kind: str) -> str:
    """An SVG for a page: hidden from screen readers, its colors by name, its ids its own."""
    for color, name in NAMED.items():
        svg = re.sub(rf'="{color}"', f'="var({name})"', svg, flags=re.IGNORECASE)
    svg = re.sub(r'\b(id="|url\(#|href="#)', rf"\g<1>{kind}-", svg)
    return svg.replace("<svg ", f'<svg class="{kind}" aria-hidden="true" ', 1)


def height(spec: dict[str, Any], svg: str, width: int) -> int:
    """The height of a chart with its controls and its button, in pixels."""
    rows = rows_of([_width(bind) for _, bind in bindings(spec)], width)
    return round(size_of(svg)[1]) + BUTTON + (AROUND + CONTROL * rows if rows else 0)


def rows_of(widths: list[float], width: int) -> int:
    """In how many rows controls of these widths stand; of four, none stands alone."""
    if len(widths) == 4 and width > SMALL:
        return 2
    rows, free = 0, 0
    for each in widths:
        if each > free:
            rows, free = rows + 1, width
        free -= each + BETWEEN
    return rows


def _width(bind: dict[str, Any]) -> float:
    name = LETTER * len(bind["name"]) + 12
    if bind["input"] == "range":
        return name + SLIDER + LETTER * len(str(bind.get("max", ""))) + 12
    shown = list(map(str, bind.get("labels") or bind.get("options", [])))
    if bind["input"] == "radio":
        return name + sum(LETTER * len(option) + 40 for option in shown)
    return name + max(64, LETTER * max(map(len, shown), default=0) + 36)


def heading(spec: dict[str, Any]) -> str:
    """The title of a chart, as HTML above its controls; one that changes, as it is at first."""
    title = spec.get("title")
    title = title if isinstance(title, dict) else {"text": title or ""}
    text, more = title["text"], title.get("subtitle", "")
    if isinstance(text, dict):  # an expression, which the script evaluates again
        drawn = vl_convert.vegalite_to_svg(fitted(spec, WIDE))
        text = html.unescape(re.search(r"role-title-text.*?<text[^>]*>([^<]*)", drawn)[1])
    plain = lambda lines: html.escape(lines if isinstance(lines, str) else " ".join(lines))
    text, more = plain(text), f" <span>{plain(more)}</span>" if more else ""
    return typeset(f'<p class="chart-title"><strong>{text}</strong>{more}</p>') if text else ""


def place(spec: dict[str, Any], first: bool) -> tuple[str, str]:
    """The style that keeps the place of a chart without its title; for the first, its picture."""
    spec = {name: value for name, value in spec.items() if name != "title"}
    wide, narrow = (picture(spec, width) for width in (WIDE, NARROW))
    heights = height(spec, wide, WIDE), height(spec, narrow, NARROW)
    style = ' style="--wide: {}px; --narrow: {}px"'.format(*heights)
    if not first or len(wide) + len(narrow) > LARGEST:
        return style, ""
    drawn = named(wide, "wide") + named(narrow, "narrow")
    return "", f'<div class="still">{controls(spec)}{drawn}</div>'


def controls(spec: dict[str, Any]) -> str:
    """The sliders and lists of a chart, as Vega makes them; the script hands on their values."""
    made = []
    for value, bind in bindings(spec):
        label = f'<span class="vega-bind-name">{html.escape(bind["name"])}</span>'
        if bind["input"] == "range":
            limits = " ".join(
                f'{key}="{bind[key]}"' for key in ("min", "max", "step") if key in bind
            )
            number = f"{value:,}".replace("-", "−")  # as the page's script writes it
            label += f'<input type="range" {limits} value="{value}" /><span>{number}</span>'
        elif bind["input"] == "checkbox":
            label += f'<input type="checkbox"{" checked" * bool(value)} />'
        else:
            names = map(str, bind.get("labels", bind["options"]))
            options = list(zip(bind["options"], map(html.escape, names), strict=True))
            if bind["input"] == "select":
                listed = (f"<option{' selected' * (o == value)}>{name}" for o, name in options)
                label += f"<select>{''.join(listed)}</select>"
            else:
                kind = f'<input type="radio" name="{html.escape(bind["name"])}"'
                listed = (
                    f'<label>{kind} value="{name}"{" checked" * (o == value)} />{name}</label>'
                    for o, name in options
                )
                label += f'<span class="vega-bind-radio">{"".join(listed)}</span>'
                made.append(f'<div class="vega-bind">{label}</div>')
                continue
        made.append(f'<div class="vega-bind"><label>{label}</label></div>')
    return f'<form class="vega-bindings">{"".join(made)}</form>' if made else ""


def bindings(spec: dict[str, Any]) -> list[tuple[Any, dict[str, Any]]]:
    """What the reader sets above a chart: each value at first, and how it is set."""
    found = []
    for part in parts(spec):
        if not isinstance(bind := part.get("bind"), dict):
            continue
        name, value = part["name"], part.get("value")
        if "input" in bind:
            found.append((value, {"name": name} | bind))
        else:  # of the fields of a selection
            first = value[0] if value else {}
            found += [(first.get(field), {"name": name} | one) for field, one in bind.items()]
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
