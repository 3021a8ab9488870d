"""Tables of pandas with one row of headers, none of which is empty, and with short numbers."""

from __future__ import annotations

import re

HEAD = re.compile(r"<thead>(.*?)</thead>", re.DOTALL)
ROW = re.compile(r"(<tr[^>]*>)(.*?)</tr>", re.DOTALL)
CELL = re.compile(r"(<th[^>]*>)(.*?)</th>", re.DOTALL)

NUMBER = re.compile(r"<td>(nan|-?\d+\.\d{6,}(?:e[+-]\d+)?)</td>", re.IGNORECASE)


def mend_tables(page: str) -> str:
    """A page whose tables have one row of headers, and in each cell a number that can be read."""
    return NUMBER.sub(shorten, mend_heads(page))


def shorten(found: re.Match[str]) -> str:
    """A number with four digits that count; nothing where there is none."""
    number = float(found[1])
    if number != number:
        return "<td></td>"
    return f"<td>{number:.0f}</td>" if abs(number) >= 1000 else f"<td>{number:.4g}</td>"


def mend_heads(page: str) -> str:
    """A page whose tables have the names of the index next to the names of the columns.

    pandas puts the names of the index into a separate row below the other names, which is otherwise
    empty. A header without text becomes an ordinary cell.
    """
    return HEAD.sub(mend_head, page)


def mend_head(found: re.Match[str]) -> str:
    rows = [(start, CELL.findall(cells)) for start, cells in ROW.findall(found[1])]
    if len(rows) > 1:
        (_, above), (_, last) = rows[-2:]
        named = [bool(text.strip()) for _, text in last]
        count = sum(named)
        blank = not any(text.strip() for _, text in above[:count])
        if named == sorted(named, reverse=True) and len(last) == len(above) and blank:
            rows[-2:] = [(rows[-2][0], last[:count] + above[count:])]
    made = (start + "".join(cell(*each) for each in cells) + "</tr>" for start, cells in rows)
    return f"<thead>{''.join(made)}</thead>"


def cell(start: str, text: str) -> str:
    kind = "th" if text.strip() else "td"
    return f"{start.replace('<th', f'<{kind}', 1)}{text}</{kind}>"
