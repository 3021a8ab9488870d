"""Sphinx extension: citations with the paper's own numbers.

It registers the pybtex style `paper`. An entry of `references.bib` with a field `number` is
labeled with this number, such as [2]; any other entry is a source that the book adds and is labeled
with its first author and year, such as [Rush18]. The numbered entries come first, in order,
followed by ours in alphabetical order. Each ends with what the book needs it for, its field `why`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from pathlib import Path

from pybtex.database import BibliographyData, Entry, parse_file
from pybtex.plugin import register_plugin
from pybtex.richtext import Tag, Text
from pybtex.style import FormattedEntry
from pybtex.style.formatting.unsrt import Style as UnsrtStyle
from pybtex.style.labels import BaseLabelStyle
from pybtex.style.sorting import BaseSortingStyle
from sphinx.application import Sphinx


def label(entry: Entry) -> str:
    """The paper's number of an entry, or its first author's surname and the year: "2", "Rush18"."""
    if "number" in entry.fields:
        return entry.fields["number"]
    author = entry.persons["author"][0]
    surname = "".join(author.prelast_names + author.last_names).strip("{}")  # the name of a group
    return surname + entry.fields["year"][-2:]


def labels(path: str | Path) -> dict[str, str]:
    """Key → label of every entry of a BibTeX file, in the order of the list of references."""
    entries = parse_file(str(path), bib_format="bibtex").entries.values()
    return {entry.key: label(entry) for entry in sorted(entries, key=_position)}


def _position(entry: Entry) -> tuple[int, int, str]:
    number = entry.fields.get("number")
    return (1, 0, label(entry).lower()) if number is None else (0, int(number), "")


class PaperLabels(BaseLabelStyle):
    """Labels by `label`; each depends only on its own entry, so they hold in partial lists too."""

    def format_labels(self, sorted_entries: Iterable[Entry]) -> Iterator[str]:
        return map(label, sorted_entries)


class PaperSorting(BaseSortingStyle):
    """The paper's references by number, then ours by label."""

    def sorting_key(self, entry: Entry) -> tuple[int, int, str]:
        return _position(entry)


class PaperStyle(UnsrtStyle):
    """pybtex's plain style, with the paper's labels and order."""

    default_label_style = PaperLabels
    default_sorting_style = PaperSorting

    def format_entry(
        self, label: str, entry: Entry, bib_data: BibliographyData | None = None
    ) -> FormattedEntry:
        # pybtex would print `number` as a journal's issue, which is in the field `issue` here.
        entry = deepcopy(entry)
        entry.fields.pop("number", None)
        if "issue" in entry.fields:
            entry.fields["number"] = entry.fields["issue"]
        formatted = super().format_entry(label, entry, bib_data)
        formatted.text = Text(formatted.text, " ", Tag("em", entry.fields["why"], "."))
        return formatted


def setup(app: Sphinx) -> dict[str, bool]:
    app.setup_extension("sphinxcontrib.bibtex")
    register_plugin("pybtex.style.formatting", "paper", PaperStyle)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
