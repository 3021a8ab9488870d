"""Codes of languages: two letters (ISO 639-1) or three (ISO 639-3)."""

import re
from pathlib import Path

# Of each language the code of three letters and that of two.
_CODES = """
    asm as ben bn bod bo cat ca ces cs deu de dzo dz ell el eng en spa es est et fin fi fra fr
    gle ga guj gu hin hi hun hu isl is ita it jpn ja khm km kan kn lao lo lit lt lav lv mal ml
    mar mr mya my nld nl ori or pan pa pol pl por pt ron ro rus ru slk sk slv sl swe sv tam ta
    tel te tha th zho zh
"""
_THREE_TO_TWO = dict(pair.split() for pair in re.findall(r"\w+ \w+", _CODES))
_TWO_TO_THREE = {two: three for three, two in _THREE_TO_TWO.items()}


def two_letters(lang: str) -> str:
    """The code of two letters, by which libraries know a language; others remain unchanged."""
    return _THREE_TO_TWO.get(lang, lang)


def three_letters(lang: str) -> str:
    """The code of three letters of the same language; others remain unchanged."""
    return _TWO_TO_THREE.get(lang, lang)


def language_of(path: Path) -> str | None:
    """The language that a name such as test.de or test.deu.gz ends in, or None."""
    name = path.name.removesuffix(".gz").removesuffix(".xz")
    end = name.rpartition(".")[2] if "." in name else ""
    known = end in _THREE_TO_TWO or (len(end) == 2 and end.isascii() and end.islower())
    return end if known else None
