"""The rail beside a page: the parts of the book, their pages, and the minutes that each takes."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

import yaml
from contents import ROOT, sources
from sphinx.application import Sphinx

WORDS_A_MINUTE = 200  # of prose; code and charts are not counted
STATION = re.compile(r"(>\d+\. [^:<]+):[^<]*")  # "3. Attention: one word asks the others"


class Entry(NamedTuple):
    """A page on the rail."""

    page: str
    title: str
    minutes: int


@cache
def minutes(page: str) -> int:
    """How long the prose of a page takes to read: its words without cells and directives."""
    text = sources()[page].read_text(encoding="utf-8")
    prose = re.sub(r"^---$.*?^---$|^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return max(1, round(len(prose.split()) / WORDS_A_MINUTE))


def add_rail(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Give the template `rail.html` each part: its caption, the place of this page, all pages.

    It can also shorten the names of numbered stations in the contents of a page.
    """

    def listed(chapters: list[dict[str, Any]]) -> list[Entry]:
        found = []
        for chapter in chapters:
            name = chapter["file"]
            title = app.env.titles[name].astext()
            found.append(Entry(name, title, minutes(name.removeprefix("chapters/"))))
            found += listed(chapter.get("sections", []))
        return found

    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    parts = [(part["caption"], listed(part["chapters"])) for part in toc["parts"]]
    place = lambda entries: next((i for i, at in enumerate(entries, 1) if at.page == page), 0)
    context["short"] = lambda contents: STATION.sub(r"\1", str(contents))
    context["rail"] = [(caption, place(entries), entries) for caption, entries in parts]
