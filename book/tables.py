"""Tables on the pages: one row of headers, none of which is empty, and numbers that line up."""

from __future__ import annotations

import html
import re

from book.claims import powers

TABLE = re.compile(r"(<table\b[^>]*>)(.*?)(</table>)", re.DOTALL)
HEAD = re.compile(r"<thead>(.*?)</thead>", re.DOTALL)
ROW = re.compile(r"(<tr[^>]*>)(.*?)</tr>", re.DOTALL)
CELL = re.compile(r"(<th[^>]*>)(.*?)</th>", re.DOTALL)
ANY = re.compile(r"<(t[hd])\b([^>]*)>(.*?)</\1>", re.DOTALL)

LONG = re.compile(r"<td>(nan|-?\d+\.\d{6,}(?:e[+-]\d+)?)</td>", re.IGNORECASE)
MINUS = re.compile(r"(?<![\w.)-])-(?=\d)(?![^<]*>)")  # outside of tags
APOSTROPHE = re.compile(r"(?<=\w)(?:'|&#x27;)(?=\w|\s)(?![^<]*>)")
SIGN = re.compile(r"(?<=[\w)]) (=|&lt;|&gt;|[×≤≥≈±]) (?=[\w(−])(?![^<]*>)")  # of a formula
POWER = re.compile(r"10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)(?![^<]*>)")
NUMBERED = re.compile(r"\b(Table|Figure|[Ss]ection|[Ee]quation) (?=\d)(?![^<]*>)")
NUMBER = re.compile(r"([+\-−±]?[\d,]+(?:\.\d+)?)(?:e([+-]\d+))?( ?%|×)?")
FIGURES = re.compile(r"(?=.*\d)(?:[\d\s.,:%()+\-−±×·/=⁻⁰¹²³⁴-⁹]|\bof\b|\bto\b|[KMG]B?\b|e[+-])+")
WORDY = 48  # letters of a cell that needs a wide column
PLACES = re.compile("where|section|version")  # what looks like a number there is none
NAME = 14  # letters of a name that needs more than one word's width
SEVERAL = 4  # columns of words: too many for a phone


def mend_tables(page: str) -> str:
    """A page whose tables have one row of headers, and in each cell a number that can be read."""
    return TABLE.sub(align, LONG.sub(shorten, mend_heads(page)))


def shorten(found: re.Match[str]) -> str:
    """A number with four digits that count; nothing where there is none."""
    number = float(found[1])
    if number != number:
        return "<td></td>"
    return f"<td>{number:.0f}</td>" if abs(number) >= 1000 else f"<td>{number:.4g}</td>"


def align(found: re.Match[str]) -> str:
    """A table that marks its numbers, long names of rows, and cells with many words.

    In a table with many words each cell names its column, and it becomes a list on a phone. Columns
    are counted from the right, because a cell that spans several rows shortens the others.
    """
    start, body, end = found.groups()
    if not re.search(r'class="[^"]*\b(dataframe|table)\b', start):
        return found[0]
    head, _, cells = body.partition("</thead>")
    heads = ANY.findall(head.rpartition("<tr")[2])[::-1]
    rows = [ANY.findall(row) for _, row in ROW.findall(cells)]
    wide = any(len(words(text)) >= WORDY for row in rows for kind, _, text in row if kind == "td")
    formulas = all('class="math' in text for row in rows for _, _, text in row[1:])
    wide = wide or ("dataframe" not in start and len(heads) >= SEVERAL and not formulas)
    named = "dataframe" in start and any(len(words(row[0][2])) >= NAME for row in rows if row)
    columns: dict[int, list[str]] = {}
    for row in rows:
        for place, (kind, _, text) in enumerate(reversed(row)):
            if kind == "td" and (said := words(text)):
                columns.setdefault(place, []).append(said)
    numbers = {
        place: not (place < len(heads) and words(heads[place][2]) == "year")  # whether with commas
        for place, column in columns.items()
        if 5 * sum(map(bool, map(FIGURES.fullmatch, column))) >= 3 * len(column)
        and not (place < len(heads) and PLACES.match(words(heads[place][2])))
    }

    def mend_row(row: re.Match[str]) -> str:
        cells = list(ANY.finditer(row[2]))
        made = (mend(cell, len(cells) - 1 - i) for i, cell in enumerate(cells))
        return f"{row[1]}{''.join(made)}</tr>"

    def mend(cell: re.Match[str], place: int) -> str:
        kind, more, text = cell.groups()
        said = words(text)
        if "class=" in more or "span=" in more:
            return cell[0]
        first = place == len(heads) - 1
        name = words(heads[place][2]) if place < len(heads) else ""
        bare = NUMBER.fullmatch(said) and not PLACES.match(name)  # what it counts is not known
        told = place == len(heads) - 2 and PLACES.match(words(heads[-1][2]))  # of this place
        if wide and said and name and not told and (bare if first else kind == "td"):
            more += f' data-head="{html.escape(name)}"'
        if place in numbers and NUMBER.fullmatch(said):
            text = text.replace(said, write(said, commas=numbers[place]))
        elif "<code" not in text:
            text = powers(typeset(text))
        if first and text == said and " " not in said:
            # A name of Python may break.
            text = re.sub(r"(?<=[\w*][._])(?=[A-Za-z*])", "<wbr>", text)
        kinds = (
            "number" * (place in numbers),
            "name" * (first and named),
            "wordy" * (kind == "td" and len(said) >= WORDY and place not in numbers),
        )
        marks = f' class="{" ".join(filter(None, kinds))}"' if any(kinds) else ""
        return f"<{kind}{more}{marks}>{text}</{kind}>"

    return start + raise_powers(ROW.sub(mend_row, body)) + end


def typeset(text: str) -> str:
    """HTML with real minuses and apostrophes, and with formulas and names that no line breaks."""
    text = APOSTROPHE.sub("’", MINUS.sub("−", text))
    text = NUMBERED.sub("\\1\N{NO-BREAK SPACE}", text)
    return SIGN.sub("\N{NO-BREAK SPACE}\\1\N{NO-BREAK SPACE}", text)


def raise_powers(text: str) -> str:
    """HTML in which powers of ten are set as such: their own small signs are blots in a table."""
    plain = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "−0123456789")
    return POWER.sub(lambda found: f"10<sup>{found[1].translate(plain)}</sup>", text)


def words(text: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", text)).strip()


def write(text: str, commas: bool) -> str:
    """A number as one prints it: with a real minus, and with commas between thousands."""
    found = NUMBER.fullmatch(text)
    assert found
    number, power, unit = found[1], found[2], found[3] or ""
    if re.fullmatch(r"[-−][0.]+", number) and not power:
        number = number[1:]  # nothing is neither above nor below zero
    whole, point, rest = number.partition(".")
    if commas and "," not in whole:
        whole = re.sub(r"(?<=\d)(?=(\d{3})+$)", ",", whole)
    number = (whole + point + rest).replace("-", "−")
    if power:
        number = powers(f"{number}e{power}")
    return number + unit


def mend_heads(page: str) -> str:
    """A page whose tables have the names of the index next to the names of the columns.

    pandas puts the names of the index into a separate row below the other names, which is otherwise
    empty. If the columns have a name too, the corner has both. A header without text becomes an
    ordinary cell.
    """
    return HEAD.sub(mend_head, page)


def mend_head(found: re.Match[str]) -> str:
    rows = [(start, CELL.findall(cells)) for start, cells in ROW.findall(found[1])]
    if len(rows) > 1:
        (_, above), (_, last) = rows[-2:]
        named = [bool(text.strip()) for _, text in last]
        count = sum(named)
        if named == sorted(named, reverse=True) and 0 < count < len(last) == len(above):
            corner = [
                (start, f"{name}&nbsp;→<br>{text}&nbsp;↓" if name.strip() else text)
                for (_, name), (start, text) in zip(above, last[:count], strict=False)
            ]
            rows[-2:] = [(rows[-2][0], corner + above[count:])]
    made = (start + "".join(cell(*each) for each in cells) + "</tr>" for start, cells in rows)
    return f"<thead>{''.join(made)}</thead>"


def cell(start: str, text: str) -> str:
    kind = "th" if text.strip() else "td"
    return f"{start.replace('<th', f'<{kind}', 1)}{text}</{kind}>"
