"""Links in both directions between the paper, the chapters and the package."""

from __future__ import annotations

import ast
import html
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from inspect import Signature, get_annotations, getdoc, getmodule, isroutine, signature
from typing import Any

from contents import CHAPTERS, ROOT
from docutils import nodes
from docutils.statemachine import StringList
from extract import collect, defined_names, homes, offered
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective

PDF = "https://arxiv.org/pdf/1706.03762v5"
PAGES = {  # page of the PDF on which each part of the paper begins
    "Abstract": 1, "1": 1, "2": 2, "3": 2, "3.1": 3, "3.2": 3, "3.2.1": 4, "3.2.2": 4, "3.2.3": 5,
    "3.3": 5, "3.4": 5, "3.5": 5, "4": 6, "5": 7, "5.1": 7, "5.2": 7, "5.3": 7, "5.4": 7,
    "6.1": 8, "6.2": 8, "6.3": 9, "7": 10, "Acknowledgements": 10,
    "Figure 1": 3, "Figure 2": 4, "Figure 3": 13, "Figure 4": 14, "Figure 5": 15,
    "Table 1": 6, "Table 2": 8, "Table 3": 9, "Table 4": 9,
    "Footnote 1": 1, "Footnote 2": 1, "Footnote 3": 1, "Footnote 4": 4, "Footnote 5": 8,
}  # fmt: skip


def paper_url(mark: str) -> str:
    """The page of the paper that a mark such as "§3.2.1 ¶2" or "Table 3" names."""
    return f"{PDF}#page={PAGES[mark.partition(' ¶')[0].removeprefix('§')]}"


@cache
def parts() -> dict[str, str]:
    """Links to the book's treatment of parts of the paper ("3.2.1", "table 3", "equation 1")."""
    found: dict[str, str] = {}
    for chapter in sorted(CHAPTERS.glob("*.md")):
        text, page = chapter.read_text(encoding="utf-8"), f"{chapter.stem}.html"
        if number := re.match(r"(\d)-(\d)?", chapter.stem):
            found[".".join(filter(None, number.groups()))] = page
            found.setdefault(number[1], page)  # section 5 has chapters only for its parts
        for number, title in re.findall(r"^## (\d\.\d\.\d) (.+)$", text, re.MULTILINE):
            found[number] = f"{page}#{nodes.make_id(title)}"
        for kind, number in re.findall(r"^\((eq|figure|table)-(\d)\)=$", text, re.MULTILINE):
            name = {"eq": "equation"}.get(kind, kind)
            found[f"{name} {number}"] = f"{page}#{kind}-{number}"
    return found


def link_parts(text: str, pages: set[str]) -> str:
    """reStructuredText in which parts of the paper are linked to their chapters in the book."""

    def link(match: re.Match) -> str:
        name = re.sub(r"^sections? ", "", match[0]).lower()
        target = parts().get(name.replace("figures", "figure"))
        known = target and target.partition(".html")[0] in pages
        return f"`{match[0]} <{target}>`__" if known else match[0]

    part = r"\bsections? \d(\.\d)*|\b\d\.\d(\.\d)?\b|\b([Ff]igures?|[Tt]able|equation) \d"
    return re.sub(part, link, text)


def read_docstring(app: Sphinx, what, name, thing, settings, lines: list[str]) -> None:
    """Turn our one-line sections (Args, Returns, Source, …; a:   b:) into fields.

    A configuration also gets its options, an argument its default in parentheses, and a constant
    is followed by its values.
    """
    # This is the documentation of a named tuple's field.
    if "".join(lines).startswith("Alias for field number"):
        lines[:] = []
    pages = {doc.removeprefix("chapters/") for doc in app.env.found_docs}
    source = vars(getmodule(thing) or object)
    if options := option_lines(thing):
        start = lines.index("Args:") if "Args:" in lines else 0
        place = lines.index("", start)
        lines[place:place] = options if start else ["", "Args:", *options]
    written: list[str] = []
    inner = ""  # the indent of what follows a one-line section of arguments
    for line in lines:
        if not line.lstrip().startswith(">>>"):  # what is in quotes is code
            line = re.sub(r"`([A-Z_]+)`", lambda found: values(found, source), line)
            line = re.sub(r'(?<!`)(\w+=)?"[^"\s]*"(?!`)', r"``\g<0>``", line)
        if field := re.match(r"(Args|Attributes|Returns|Yields|Raises|Source): (.+)", line):
            inner = "    " if field[1] == "Args" else ""
            text = link_parts(field[2], pages) if field[1] == "Source" else field[2]
            label = "returns" if field[1] == "Returns" else field[1]
            written += [""] * bool(written and written[-1]) + ["Args:"] * bool(inner)
            line = text if inner else f":{label}: {text}"
        elif not line:
            inner = ""
        indent = inner + " " * (len(line) - len(line.lstrip()))
        written += [indent + entry for entry in re.split(r"   +(?=[\w, ]+: )", line.strip())]
    given = defaults(thing)
    lines[:] = [with_default(line, given) for line in written]


def defaults(thing: object) -> dict[str, str]:
    """The arguments whose default is a number, a text, or a truth value, and the default."""
    try:
        given = signature(thing).parameters.items()  # type: ignore[arg-type]
    except (TypeError, ValueError):  # neither a function nor a class of Python
        return {}
    plain = [(name, p.default) for name, p in given if isinstance(p.default, (int, float, str))]
    return {name: repr(value).replace("'", '"') for name, value in plain}


def with_default(line: str, given: Mapping[str, str]) -> str:
    """The line of one or more arguments with their defaults, in napoleon's form."""
    names = re.match(r"    ([\w, ]+): ", line)
    if not names or not all(name in given for name in names[1].split(", ")):
        return line
    shown = ", ".join(given[name] for name in names[1].split(", "))
    return f"    {names[1]} (``= {shown}``){line[names.end(1) :]}"


def option_lines(thing: object) -> list[str]:
    """The fields of a configuration that have a help for the command line, as arguments.

    The fields of a derived class come first. A default of 0 stands for none. Fields that another
    configuration shares with `TransformerConfig` are only named.
    """
    told, shared = [], []
    described = import_module("annotated.model").TransformerConfig
    known = {each.name for each in fields(described)} if thing is not described else set()
    classes = getattr(thing, "__mro__", ()) if is_dataclass(thing) else ()
    order = dict.fromkeys(name for one in classes for name in get_annotations(one))
    for each in sorted(fields(thing), key=lambda each: [*order].index(each.name)) if order else ():
        if (about := each.metadata.get("help")) and each.name in known:
            shared.append(each.name)
        elif about:
            about = re.sub(r"--\w+", r"``\g<0>``", about)
            about = about.replace("see below", "see ``annotated train --help``")
            about = about.replace("none:", "0:") if each.default == 0 else about
            names = ", ".join(f'"{choice}"' for choice in each.metadata["choices"])
            told.append(f"    {each.name}: {about}{names and f'; one of {names}'}.")
    if shared:
        zero = "; d_k and d_v of 0 mean d_model / h"
        told.append(f"    {', '.join(shared)}: as in `TransformerConfig`{zero}.")
    return told


def values(found: re.Match, source: Mapping[str, Any]) -> str:
    """The name of a constant of a module, with what it contains."""
    constant = source.get(found[1])
    if not isinstance(constant, dict | tuple):
        return found[0]
    if isinstance(constant, dict) and {*map(type, constant.values())} <= {str, int, float}:
        told = [f"{name}={value!r}" for name, value in constant.items()]
    else:
        told = map(repr, constant)
    return f"``{found[1]}`` (" + ", ".join(f"``{one}``" for one in told).replace("'", '"') + ")"


@cache
def modules() -> dict[str, str]:
    """The names that the package offers, and the module of each."""
    found = offered(CHAPTERS, homes(ROOT / "annotated", collect(CHAPTERS)))
    return {name: module for module, names in found.items() for name in names}


class details(nodes.Element):
    """Folded content; `summary` is the HTML that is always visible."""


class Offered(SphinxDirective):
    """Names of the package, one per line; each except a constant unfolds to its documentation."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        entries = []
        for name in " ".join(self.content).split():
            thing = getattr(import_module(f"annotated.{modules()[name]}"), name)
            entry: nodes.Element = nodes.container()
            if isinstance(thing, type) or isroutine(thing):
                entry = details(summary=summary(name, thing), classes=["offered"])
            lines = ["```{eval-rst}", *described(name, thing), "```"]
            self.state.nested_parse(StringList(lines, self.get_source_info()[0]), 0, entry)
            entries.append(entry)
        return entries


def summary(name: str, thing: object) -> str:
    """HTML: the signature of an object without types, and the first sentence of its docstring."""
    arguments = ""
    if not (isinstance(thing, type) and issubclass(thing, Exception)):
        given = signature(thing).parameters.values()
        plain = [p.replace(annotation=Signature.empty) for p in given if p.name != "self"]
        shown = re.sub(r"<function (\w+) at \w+>", r"\1", ", ".join(map(str, plain)))
        short = shown[:80].rpartition(", ")[0] + ",\N{NO-BREAK SPACE}…"
        arguments = f"({shown if len(shown) < 80 else short})"
    text = " ".join((getdoc(thing) or "").partition("\n\n")[0].split())
    first = re.split(r"(?<=\.) (?=[A-Z])", text)[0].replace("`", "")
    return f"<code>{name}<i>{html.escape(arguments)}</i></code> <span>{html.escape(first)}</span>"


def described(name: str, thing: object) -> list[str]:
    """reStructuredText by which autodoc describes a name of the package."""
    place = f"annotated.{modules()[name]}.{name}"
    if isinstance(thing, type):
        return [f".. autoclass:: {place}", "   :members:", ""]
    if isroutine(thing):
        return [f".. autofunction:: {place}", ""]
    # Here autodoc would describe the class.
    return [f".. py:data:: {place}", f"   :value: {thing!r}", ""]


def name_module(cell: nodes.container, module: str, api: str) -> None:
    """Name the module of an export cell at its head, and link to the reference at `api`."""
    source = next(iter(cell.findall(nodes.literal_block)))
    body = ast.parse(source.astext()).body
    listed = [node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    listed = [name for name in listed if modules().get(name) == module]
    place = nodes.literal("", f"annotated/{module}.py")
    label = nodes.paragraph("", "", nodes.Text("goes into "), place, classes=["module"])
    if listed:
        url = f"{api}#annotated.{module}.{listed[0]}"
        link = nodes.reference("", "reference", refuri=url, internal=True)
        label += [nodes.Text(" · "), link]
    names = [name for node in body for name in defined_names(node)]
    label["ids"] = [f"{module}.{name}" for name in names]
    cell["classes"].append("export")
    source.parent.insert(source.parent.index(source), label)


class Modules(SphinxPostTransform):
    """Name the module of each cell that is exported, at the head of its code."""

    default_priority = 200  # runs after myst-nb has folded the cells, whose source must come first

    def run(self, **kwargs) -> None:
        api = self.app.builder.get_relative_uri(self.env.docname, "chapters/api")
        for cell in list(self.document.findall(nodes.container)):
            if cell.get("nb_element") == "cell_code" and "export" in cell["cell_metadata"]:
                name_module(cell, cell["cell_metadata"]["export"], api)


class Reference(SphinxPostTransform):
    """On the reference page, link each name to the cell that defines it.

    The sentence that unfolds a name is not repeated below.
    """

    default_priority = 196
    formats = ("html",)

    def run(self, **kwargs) -> None:
        if self.env.docname != "chapters/api":
            return
        cells = {}
        for module in collect(CHAPTERS).values():
            for name, cell in module.definitions():
                page = cell.chapter.relative_to(CHAPTERS).with_suffix("").as_posix()
                if f"chapters/{page}" in self.env.found_docs:
                    place = f"{module.name}.{name}"
                    cells[f"annotated.{place}"] = f"{page}.html#{place}"
        for entry in self.document.findall(addnodes.desc_signature):
            if target := cells.get(entry["ids"][0] if entry["ids"] else ""):
                link = nodes.reference("", "", refuri=target, internal=True, classes=["home"])
                link += nodes.Text("in the book")
                entry += link
        straight = str.maketrans("“”’", '""\'')
        for fold in self.document.findall(details):
            said = re.sub(r"<code>.*?</code> |<[^>]+>", "", fold.get("summary", ""))
            first = next(fold.findall(addnodes.desc_content), [None])[0:1]
            if first and first[0].astext().translate(straight) == html.unescape(said):
                first[0].parent.remove(first[0])
