"""The rail beside a page: the parts of the book, their pages, and the minutes that each takes."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

import yaml
from contents import ROOT, sources
from sphinx.application import Sphinx

WORDS_A_MINUTE = 200  # of prose; code and charts are not counted
SECTION = re.compile(r"(\d(?:\.\d)?) (.*)")  # "3.2 Attention"
STATION = re.compile(r"(>\d+\. [^:<]+):[^<]*")  # "3. Attention: one word asks the others"


class Entry(NamedTuple):
    """A page on the rail."""

    page: str
    number: str  # of the paper's section; empty for the book's own pages
    title: str
    minutes: int


@cache
def minutes(page: str) -> int:
    """How long the prose of a page takes to read: its words without cells and directives."""
    text = sources()[page].read_text(encoding="utf-8")
    prose = re.sub(r"^---$.*?^---$|^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return max(1, round(len(prose.split()) / WORDS_A_MINUTE))


def add_rail(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Give the template `rail.html` each part: its caption, whether it is read, and its pages.

    It can also shorten the names of numbered stations in the contents of a page.
    """

    numbered: set[str] = set()  # a section has one number, on the first of its pages

    def listed(chapters: list[dict[str, Any]]) -> list[Entry]:
        found = []
        for chapter in chapters:
            name = chapter["file"]
            title = app.env.titles[name].astext()
            section = SECTION.match(title)
            first = section and section[1] not in numbered
            number, words = section.groups() if first else ("", title)
            numbered.add(number)
            found.append(Entry(name, number, words, minutes(name.removeprefix("chapters/"))))
            found += listed(chapter.get("sections", []))
        return found

    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    parts = [(part["caption"], listed(part["chapters"])) for part in toc["parts"]]
    context["short"] = lambda contents: STATION.sub(r"\1", str(contents))
    context["rail"] = [
        (caption, page in {entry.page for entry in entries}, entries) for caption, entries in parts
    ]
