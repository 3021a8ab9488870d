"""Collect the verdicts of the executed chapters into an index and bars of counts."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Container
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from contents import pages
from docutils import nodes
from execution import executed
from links import details
from nbformat import NotebookNode
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.transforms.post_transforms import SphinxPostTransform
from tables import raise_powers, typeset

from book.claims import KINDS, MARKS, NOT_RUN, Verdict

MIME = "application/vnd.annotated.claim+json"
INDEXED = re.compile(r"(√)?(log|[A-Za-z])ₖ(\(\w\))?(?![^<]*>)")
NUMBER = re.compile(r"[\d.]*")  # of a section, without the paragraph or table that follows it
MARKED = re.compile(r"^> \*\*([^*]+)\*\*", re.MULTILINE)  # restatements in a chapter's source


class Entry(NamedTuple):
    """A claim, and the page that shows it."""

    page: str
    verdict: Verdict

    @property
    def section(self) -> str:
        """The section under which it is counted: 3.2 for 3.2.1 ¶4."""
        number = NUMBER.match(self.verdict.section)[0]
        return ".".join(number.split(".")[:2]) or self.verdict.section

    @property
    def own(self) -> bool:
        """Whether it is the book's claim about later models, and none of the paper's."""
        return self.section == "Since 2017"


def claims_of(notebook: NotebookNode) -> list[Verdict]:
    """The claims in the cells of an executed notebook, in order.

    Raises: ExtensionError for a claim that lacks a section or any other part.
    """
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    shown = [out.data[MIME] for out in outputs if MIME in out.get("data", {})]
    found = [each for one in shown for each in (one if isinstance(one, list) else [one])]
    names = [field.name for field in fields(Verdict)]
    for given in found:
        derived = given.get("verdict") == KINDS["by construction"]
        wanted = [name for name in names if not (derived and name == "control")]
        if lacks := [name for name in wanted if not given.get(name)]:
            raise ExtensionError(f"claim {given.get('id') or given} has no {', no '.join(lacks)}")
        if given["verdict"] not in MARKS:
            raise ExtensionError(f"claim {given['id']}: no verdict is called {given['verdict']}")
    return [Verdict(**{name: given[name] for name in names}) for given in found]


def collect(notebooks: dict[str, NotebookNode]) -> list[Entry]:
    """The claims of executed notebooks, sorted by place and then by order of appearance.

    Raises: ExtensionError if two claims have one id, and as `claims_of`.
    """
    entries: dict[str, Entry] = {}
    for page, notebook in notebooks.items():
        for verdict in claims_of(notebook):
            if verdict.id in entries:
                where = entries[verdict.id].page
                raise ExtensionError(f"claim {verdict.id} is made twice: in {where} and in {page}")
            entries[verdict.id] = Entry(page, verdict)
    return sorted(entries.values(), key=lambda entry: place(entry.verdict.section))


def place(section: str) -> tuple[list[int], str]:
    """Sort key: the abstract first, 3.5 before 3.10, paragraphs before tables, later work last."""
    if number := NUMBER.match(section)[0]:
        return [int(part) for part in number.split(".")], section.removeprefix(number)
    return ([] if section == "Abstract" else [99]), ""


def check_places(entries: list[Entry], marks: set[str]) -> None:
    """Raises: ExtensionError for a claim about a paragraph or table that no page shows."""
    for page, verdict in entries:
        section_alone = re.fullmatch(r"§[\d.]+|Since 2017", verdict.mark)
        if not section_alone and verdict.mark not in marks:
            raise ExtensionError(f"claim {verdict.id} in {page}: no page shows {verdict.mark}")


MEANS = {
    "differs": "A computation, or another part of the paper, contradicts the claim as it is "
    "worded.",
    "not reproduced here": "A small model did not show the effect. A large model may.",
    "holds by construction": "A proof or a count shows it, for any code that does what the "
    "section describes.",
    "holds in the paper's own numbers": "The paper's tables and drawings agree with its sentences.",
    "measured here": "Our measurement shows it, on one machine, text or model.",
    "measured at small scale": "A model far smaller than the paper's, or trained on far less, "
    "showed the effect.",
    "needs the paper's hardware": "Only a run with the paper's data, mostly of its size, can "
    "decide.",
    "open": "Our measurement does not decide.",
}
WAITING = (
    " Claims without evidence have not been tested yet: "
    '<a href="#runs-wanted">Runs wanted</a> has the commands.'
)


def index(entries: list[Entry]) -> str:
    """The paper's claims as HTML, folded by what they are: those that differ, those that hold, and
    the undecided ones. In each group a table per verdict; `static/book.js` filters the rows.
    """
    paper, groups = [entry for entry in entries if not entry.own], []
    for group in "differ", "hold", "undecided":  # most readers look for the first
        of = BARS[group]
        tables = {name: table for name in of if (table := listing(name, paper))}
        single = len(of) == 1  # what the verdict means stands beside the name of the group
        told = f"<small>{typeset(MEANS[next(iter(of))])}</small>" * single
        heads = {name: "" if single else kind_of(name, paper) for name in tables}
        body, total = "\n".join(heads[name] + tables[name] for name in tables), totals(paper)[group]
        opened, color = " open" * (group == "differ"), SHADES[group][1]
        groups += [
            f'<details{opened} id="claims-{group}" style="--color: {color}">'
            f"<summary>{total} {group} {told}</summary>"
            f"{body}</details>"
        ] * bool(total)
    return f'<div class="claims-index">{"".join(groups)}</div>'


def listing(name: str, entries: list[Entry]) -> str:
    """The table of the claims with one verdict; nothing if there are none."""
    of = [entry for entry in entries if entry.verdict.verdict == name]
    if not of:
        return ""
    rows = "\n".join(map(row, of))
    head = "<th>section</th><th>claim, and its evidence</th>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>"


def kind_of(name: str, entries: list[Entry]) -> str:
    """What stands above the table of one verdict: its sign, its name, a count, and its meaning."""
    of = [entry for entry in entries if entry.verdict.verdict == name]
    told = f"<strong>{sign(name)} {typeset(name)}: {len(of)}</strong>"
    means = typeset(MEANS[name]) + WAITING * any(map(waits, of))
    return (
        f'<p class="kind" data-verdict="{html.escape(name)}" style="margin: 1.5rem 0 0.5rem">'
        f"{told} <small>{means}</small></p>"
    )


def waits(entry: Entry) -> bool:
    """Whether a claim has no evidence yet."""
    return entry.verdict.evidence == NOT_RUN


def row(entry: Entry) -> str:
    """The row of a claim."""
    shown = {name: html.escape(value) for name, value in vars(entry.verdict).items()}
    name = html.escape(entry.verdict.place)
    evidence = "" if waits(entry) else shown["evidence"]
    return (
        f'<tr data-section="{entry.section}" data-verdict="{shown["verdict"]}">'
        f'<td><a href="{entry.page}.html#claim-{shown["id"]}">{typeset(name)}</a></td>'
        f"<td><strong>{set_words(shown['statement'])}</strong>{set_words(evidence)}</td></tr>"
    )


def set_words(text: str) -> str:
    """The words of a claim as the text around them is set: "√dₖ" and "logₖ(n)" are formulas."""

    def formula(found: re.Match[str]) -> str:
        root, base, of = found.groups(default="")
        tex = ("\\log" if base == "log" else base) + "_k" + of
        tex = f"\\sqrt{{{tex}}}" if root else tex
        return f'<span class="math">\\({tex}\\)</span>'

    whole = raise_powers(typeset(text)).replace(" · ", "\N{NO-BREAK SPACE}·\N{NO-BREAK SPACE}")
    return INDEXED.sub(formula, whole)


def sign(verdict: str) -> str:
    """The sign of a verdict, as plain text or as HTML; at the pointer it says what it means."""
    verdict = html.unescape(verdict)
    return f'<span title="{typeset(html.escape(verdict))}">{MARKS[verdict][0]}</span>'


def scoreboard(entries: list[Entry]) -> str:
    """How many claims the paper makes, and the verdicts on them as bars."""
    paper = [entry for entry in entries if not entry.own]
    small = sum(entry.verdict.verdict == "measured at small scale" for entry in paper)
    hold, differ, undecided = totals(paper).values()
    told = f"Of {len(paper)} claims of the paper, {hold} hold, {differ} differ and "
    told += f"{undecided} are undecided"
    note = f"{small} of the {hold} hold only at small scale"
    title = f'<p class="chart-title"><strong>{told}</strong> <span class="note">{note}</span></p>'
    return f'<div class="scoreboard">{title}{bars(entries)}</div>'


BARS = {  # groups of verdicts in the order of their bars, and the name of each
    "hold": {
        "holds by construction": "by construction",
        "holds in the paper's own numbers": "in the paper’s numbers",
        "measured here": "as measured",
        "measured at small scale": "at small scale",
    },
    "differ": {"differs": "as worded"},
    "undecided": {
        "needs the paper's hardware": "need its data or GPUs",
        "not reproduced here": "not reproduced",
        "open": "open",
    },
}
THIN = "linear-gradient(var(--color) 0 0) 0 50% / 100% 0.5rem no-repeat"  # bars of parts
SHADES = {"hold": MARKS["measured here"], "undecided": MARKS["open"], "differ": MARKS["differs"]}


def totals(entries: list[Entry]) -> dict[str, int]:
    """The number of claims in each group of verdicts."""
    counts = Counter(entry.verdict.verdict for entry in entries)
    return {group: sum(counts[verdict] for verdict in of) for group, of in BARS.items()}


def bars(entries: list[Entry]) -> str:
    """A line for each group of verdicts, and below it a bar for each of its verdicts, linked to
    its claims; each begins where the one before ended. A group of one verdict has one bar.
    """
    paper = [entry for entry in entries if not entry.own]
    counts = Counter(entry.verdict.verdict for entry in paper)
    most = max(1, *totals(paper).values())
    rows = []
    for group, of in BARS.items():
        given = [verdict for verdict in of if counts[verdict]]
        total, before = sum(counts[verdict] for verdict in given), 0
        bar = 'style="--color: {}; margin-left: {:.1%}; width: {:.1%}; background: {}"'.format
        if len(given) > 1:
            style = bar(SHADES[group][1], 0, total / most, "var(--color)")
            rows.append(f"<b>{group}</b><b {style}>{total}</b>")
        for verdict in given:
            mark, count = MARKS[verdict][0], counts[verdict]
            link = f'href="claims.html{listed(verdict)}" aria-label="{count}: {typeset(verdict)}"'
            whole = "var(--color)" if len(given) == 1 else THIN
            style = bar(MARKS[verdict][1], before / most, count / most, whole)
            rows.append(
                f"<span>{mark} {of[verdict]}</span><a {style} {link}>{count}</a>"
                if len(given) > 1
                else f"<b>{mark} {group}</b><b {style}><a {link}>{count}</a></b>"
            )
            before += count
    return f'<div class="parts">{"".join(rows)}</div>'


def listed(verdict: str) -> str:
    """Where the page of claims lists those with a verdict, and says what it means."""
    return f"?verdict={quote(html.unescape(verdict))}#the-claims"


def story(entries: list[Entry]) -> str:
    """For the front page: how many claims hold, how many differ, and how many are undecided."""
    paper = [entry for entry in entries if not entry.own]
    small = sum(entry.verdict.verdict == "measured at small scale" for entry in paper)
    means = {
        "hold": f"by a proof, by the paper’s own numbers, or by a measurement, {small} of them "
        "only at small scale",
        "differ": "because a computation or another part of the paper contradicts them",
        "undecided": "because only the paper’s data and GPUs could decide, or because our "
        "measurements do not",
    }
    parts = "".join(
        f'<div><a href="claims.html#claims-{group}">{count} {group}</a><p>{means[group]}</p></div>'
        for group, count in totals(paper).items()
    )
    return f'<div class="habits claims-story">{parts}</div>'


def beside(entries: list[Entry], address: Callable[[str], str]) -> str:
    """The verdicts on one paragraph, as a note in its margin: each claim leads to its box.

    More than two claims with one verdict are folded.
    """
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.verdict.verdict, []).append(entry)
    notes = []
    for name, of in groups.items():
        claims = " ".join(
            f'<a href="{address(page)}#claim-{verdict.id}">'
            f"{set_words(html.escape(verdict.statement))}</a>"
            for page, verdict in of
        )
        if len(of) > 2:
            claims = f"<details><summary>{len(of)} claims</summary>{claims}</details>"
        told = f"<strong>{MARKS[name][0]} {linked(name, address('claims'))}</strong>"
        notes.append(f'<div style="--edge: {of[0].verdict.edge}">{told} {claims}</div>')
    label = f"{entries[0].verdict.mark}: verdict{'s' * (len(entries) > 1)}"
    return f'<aside class="beside" role="note" aria-label="{label}">{"".join(notes)}</aside>'


def put_beside(
    document: nodes.document, entries: list[Entry], address: Callable[[str], str]
) -> None:
    """Put the verdicts on each paragraph of the paper beside it; pages have the given addresses.

    A verdict is told once in a section: not beside a paragraph whose section shows its box.
    """
    boxes = [(section_of(raw), raw.astext()) for raw in document.findall(nodes.raw)]
    for ours in list(document.findall(nodes.block_quote)):
        near = "".join(text for section, text in boxes if section is section_of(ours))
        of = [entry for entry in entries if entry.verdict.mark == ours.get("mark")]
        if judged := [each for each in of if f'id="claim-{each.verdict.id}"' not in near]:
            folded = isinstance(ours.parent, details)  # below the paper's own words
            paragraph = [ours.parent.previous_sibling(), ours.parent] if folded else [ours]
            note = nodes.raw("", beside(judged, address), format="html")
            both = nodes.container("", note, classes=["judged"])
            paragraph[0].parent.insert(paragraph[0].parent.index(paragraph[0]), both)
            for part in paragraph:
                part.parent.remove(part)
                both += part


def box(text: str, key: str, laboratory: bool, beside_it: Container[str]) -> str:
    """The box of a claim as the site shows it: its verdict leads to what it means.

    Outside the laboratory, its evidence is folded. In it, a claim that the same page tells beside
    its paragraph, as its id says, is not told again.
    """
    put = lambda found: f"{found[1]}{sign(found[2])} {linked(found[2], key)}"
    told = set_words(SHOWN.sub(put, text))
    if not laboratory:
        return told.replace("<details open", "<details")
    again = re.search('id="claim-([^"]+)"', told)[1] in beside_it
    return SAID.sub(r"</small></p>\1", told) if again else told


def section_of(node: nodes.Element) -> nodes.Element | None:
    """The innermost section that a part of a document stands in."""
    while (node := node.parent) and not isinstance(node, nodes.section):
        pass
    return node


def in_laboratory(node: nodes.Node) -> bool:
    """Whether a part of a document stands in the laboratory of its page."""
    while (node := node.parent) and "laboratory" not in node.get("ids", ()):
        pass
    return node is not None


def linked(verdict: str, page: str = "claims.html") -> str:
    """The words of a verdict, which lead to what they mean."""
    key, told = f"{page}{listed(verdict)}", typeset(verdict)
    return f'<a class="symbol" href="{key}" title="What this verdict means">{told}</a>'


PLACES = {  # placeholder on a page, and the function that fills it
    '<div class="scoreboard"></div>': scoreboard,
    '<div class="claims-story"></div>': story,
    '<div class="claims-index"></div>': index,
}
SHOWN_ON = ("chapters/index", "chapters/claims")
SAID = re.compile(r" ·</small>.*?</p><details[^>]*><summary>evidence</summary>(.*)</details>")
SHOWN = re.compile(r'(<aside class="claim"[^>]*><p[^>]*><strong>)\S+ ([^<]+)')  # sign, verdict


def collect_claims(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Collect the claims after all chapters have been read.

    Returns: the pages that have to be rendered again.
    """
    there = [name for name in pages() if f"chapters/{name}" in env.found_docs]
    notebooks = {name: executed(env, f"chapters/{name}") for name in there}
    entries = collect({name: made for name, made in notebooks.items() if made})
    texts = {name: Path(env.doc2path(f"chapters/{name}")).read_text("utf-8") for name in there}
    marks = {name: MARKED.findall(text) for name, text in texts.items()}
    check_places(entries, set().union(*marks.values()))
    changed = entries != getattr(env, "book_claims", None)
    env.book_claims = entries
    shown_on = {*SHOWN_ON, *(f"chapters/{name}" for name in there if marks[name])}
    return [page for page in shown_on if changed and page in env.found_docs]


class Claims(SphinxPostTransform):
    """Put the collected claims into placeholders and beside the paper; link verdicts to the key."""

    default_priority = 194
    formats = ("html",)

    def run(self, **kwargs) -> None:
        relative = self.app.builder.get_relative_uri
        address = lambda page: relative(self.env.docname, f"chapters/{page}")
        key = address("claims")
        ours = self.document.findall(nodes.block_quote)
        marks = {each.get("mark") for each in ours if not in_laboratory(each)}
        beside_it = {each.verdict.id for each in self.env.book_claims if each.verdict.mark in marks}
        for raw in list(self.document.findall(nodes.raw)):
            if '<aside class="claim"' in (text := raw.astext()):
                told = box(text, key, in_laboratory(raw), beside_it)
                raw.replace_self(nodes.raw("", told, format="html"))
            elif show := PLACES.get(text.strip()):
                raw.replace_self(nodes.raw("", show(self.env.book_claims), format="html"))
        put_beside(self.document, self.env.book_claims, address)
