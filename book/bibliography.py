"""Sphinx extension: citations with the paper's own numbers.

It registers the pybtex style `paper`. An entry of `references.bib` with a field `number` is
labeled with this number, such as [2]; any other entry is a source that the book adds and is labeled
with its field `shorthand` or with its first author and year, such as [Rush18]. The numbered entries
come first, in order, followed by ours in alphabetical order. Each ends with what the book needs it
for, its field `why`, and with links to the pages that cite it. A chart has a dot for each, by year.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from copy import deepcopy
from html import escape
from pathlib import Path

from contents import pages
from docutils import nodes
from pybtex.database import BibliographyData, Entry, Person, parse_file
from pybtex.plugin import register_plugin
from pybtex.richtext import Tag, Text
from pybtex.style import FormattedEntry
from pybtex.style.formatting.unsrt import Style as UnsrtStyle
from pybtex.style.labels import BaseLabelStyle
from pybtex.style.sorting import BaseSortingStyle
from pybtex.style.template import Node, field, href, sentence, tag
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

PAGE = "chapters/bibliography"
MOST = 10  # authors of a work who are all named
FIRST = 2013  # year that has a row of its own in the chart; the years before it share one
PAPER = "vaswani2017attention"
CHART = '<div class="years"></div>'  # where the page has it
STYLE = """<style>
.years { display: grid; gap: 0 0.75rem; grid-template-columns: auto 1fr; }
.years dt { color: var(--muted); font-size: max(0.875rem, var(--small)); font-weight: 400;
  line-height: 1.5rem; text-align: right; white-space: nowrap; }
.years dd { display: grid; grid-template-columns: repeat(var(--most), minmax(0, 2.25rem));
  margin: 0; }
.years a { display: grid; height: 1.5rem; place-content: center start; }
.years a::before, .of-years em::before { background: var(--gray); border-radius: 50%; content: "";
  display: inline-block; height: 0.875rem; width: 0.875rem; }
.years a:hover::before { outline: 2px solid var(--ink); }
.of-years em { font-style: normal; white-space: nowrap; }
.of-years em::before { margin: 0 0.35rem 0 0.3rem; vertical-align: -0.1rem; }
.years .cited::before, .of-years .cited::before { background: var(--layer); }
.years .itself::before, .of-years .itself::before { background: var(--warm); }
</style>"""


def label(entry: Entry) -> str:
    """The paper's number of an entry, or its first author's surname and the year: "2", "Rush18"."""
    if given := entry.fields.get("number") or entry.fields.get("shorthand"):
        return given
    author = entry.persons["author"][0]
    surname = "".join(author.prelast_names + author.last_names).strip("{}")  # the name of a group
    return surname + entry.fields["year"][-2:]


def labels(path: str | Path) -> dict[str, str]:
    """Key → label of every entry of a BibTeX file, in the order of the list of references."""
    entries = parse_file(str(path), bib_format="bibtex").entries.values()
    return {entry.key: label(entry) for entry in sorted(entries, key=_position)}


def chart(entries: Iterable[Entry], ids: dict[str, str]) -> str:
    """Works over the years, as HTML: a dot each, which links to the entry of `ids`.

    The paper's own references are first in each row, then the paper, then what the book adds.
    """
    rows: dict[int, list[Entry]] = defaultdict(list)
    order = lambda entry: ("number" not in entry.fields, entry.key != PAPER, _position(entry))
    for entry in sorted(entries, key=order):
        rows[max(int(entry.fields["year"]), FIRST - 1)].append(entry)
    its = [int(e.fields["year"]) for row in rows.values() for e in row if "number" in e.fields]
    recent = sum(2015 <= year <= 2017 for year in its)
    lines = []
    for year in range(FIRST - 1, max(rows) + 1):
        dots = []
        for entry in rows[year]:
            title = re.sub(r"[{}\\]", "", entry.fields["title"])
            author = str(entry.persons["author"][0].last_names[-1]).strip("{}")
            told = escape(f"{author} {entry.fields['year']}: {title}")
            kind = "number" in entry.fields and ' class="cited"'
            kind = kind or (' class="itself"' if entry.key == PAPER else "")
            link = f'<a href="#{ids[entry.key]}"{kind} title="{told}" aria-label="{told}"></a>'
            dots.append(link)
        name = str(year) if year >= FIRST else f"to {year}"
        lines.append(f"<dt>{name}</dt><dd>{''.join(dots)}</dd>")
    return (
        f'{STYLE}\n<p class="chart-title of-years"><strong>The paper built on new work: '
        f"{recent} of its {len(its)} references are from 2015 to 2017</strong> "
        "<span>Each dot leads to its entry: "
        '<em class="cited">cited by the paper,</em> <em>added by this book,</em> '
        '<em class="itself">the paper</em></span></p>\n'
        f'<dl class="years" style="--most: {max(map(len, rows.values()))}">{"".join(lines)}</dl>'
    )


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
        people = entry.persons["author"]
        if len(people) > MOST:
            people[3:] = [Person(f"{{{len(people) - 3} others}}")]
        formatted = super().format_entry(label, entry, bib_data)
        why = entry.fields["why"].replace("'", "\N{RIGHT SINGLE QUOTATION MARK}")
        formatted.text = Text(formatted.text, " ", Tag("em", why, "."))
        return formatted

    def format_title(self, e: Entry, which_field: str, as_sentence: bool = True) -> Node:
        title = tag("strong")[super().format_title(e, which_field, as_sentence=False)]
        return sentence[title] if as_sentence else title

    def format_url(self, e: Entry) -> Node:
        return href(field("url", raw=True))[e.fields.get("url", "//").split("/")[2]]


class CitedIn(SphinxPostTransform):
    """Below each entry, say why it is here, and link the pages that cite it; above all, the chart.

    A page is named by its number of section or by its title.
    """

    default_priority = 6  # right after sphinxcontrib-bibtex has made the entries
    formats = ("html",)

    def run(self, **kwargs) -> None:
        if self.env.docname != PAGE:
            return
        cite = self.env.get_domain("cite")
        keys = {made.citation_id: made.key for made in cite.citations}
        ids = {made.key: made.citation_id for made in cite.citations}
        bib = Path(self.env.srcdir) / "book" / "references.bib"
        entries = parse_file(str(bib), bib_format="bibtex").entries.values()
        for raw in list(self.document.findall(nodes.raw)):
            if raw.astext() == CHART:
                raw.replace_self(nodes.raw("", chart(entries, ids), format="html"))
        citing: dict[str, set[str]] = {}
        for use in cite.citation_refs:
            for target in use.targets:
                citing.setdefault(target.key, set()).add(use.docname)
        for entry in self.document.findall(nodes.citation):
            *_, why = entry[-1].findall(nodes.emphasis)
            said = nodes.inline("", "", *why.children, classes=["why"])
            entry[-1].replace(why, [nodes.raw("", "<br>", format="html"), said])
            there = citing.get(keys[entry["ids"][0]], set())
            links = []
            for page in (f"chapters/{name}" for name in pages()):
                if page in there and page != PAGE:
                    title = self.env.titles[page].astext()
                    name = found[0] if (found := re.match(r"\d(\.\d)?(?= )", title)) else title
                    address = self.app.builder.get_relative_uri(PAGE, page)
                    link = nodes.reference("", name, refuri=address, internal=True)
                    links += [nodes.Text(", " if links else " Cited in "), link]
            entry[-1] += [*links, nodes.Text("." if links else "")]


def setup(app: Sphinx) -> dict[str, bool]:
    app.setup_extension("sphinxcontrib.bibtex")
    app.add_post_transform(CitedIn)
    # Any page may have begun to cite a work.
    app.connect("env-updated", lambda _, env: [PAGE] if PAGE in env.found_docs else [])
    register_plugin("pybtex.style.formatting", "paper", PaperStyle)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
