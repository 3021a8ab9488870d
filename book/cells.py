"""What becomes of cells, quotations, figures, charts and symbols before a page is written."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from docutils import nodes
from finish import FOLD
from links import details, paper_url
from notebooks import VERDICT
from sphinx.transforms.post_transforms import SphinxPostTransform
from still import heading, place

LARGE = 60_000  # number of characters in a chart's data
MARK = re.compile(r"^(§[\d.]+ ¶\d+|Abstract|Acknowledgements|(Figure|Table|Footnote) \d+)$")
SOLUTION = re.compile(r'<details(?: class="solution")?>(\s*<summary>Solution</summary>)')


def visit_details(translator, node) -> None:
    kind = node["classes"][0]
    translator.body.append(f'<details class="{kind}"><summary>{node["summary"]}</summary>\n')


DETAILS = visit_details, lambda translator, node: translator.body.append("</details>\n")


class Cells(SphinxPostTransform):
    """Process cells that show the paper or contain solutions."""

    default_priority = 190  # runs before myst-nb folds the cells

    def run(self, **kwargs) -> None:
        for paragraph in self.document.findall(nodes.paragraph):
            ends = [*paragraph.children[:1], *paragraph.children[-1:]]
            if ends and all(isinstance(end, nodes.emphasis) for end in ends):
                paragraph["classes"].append("caption")
        for raw in self.document.findall(nodes.raw):
            if SOLUTION.search(raw.astext()):
                text = SOLUTION.sub(r'<details class="solution">\1', raw.astext())
                raw.children = [nodes.Text(text)]
        for cell in list(self.document.findall(nodes.container)):
            if cell.get("nb_element") != "cell_code":
                continue
            tags = cell["cell_metadata"].setdefault("tags", [])
            if "paper" in tags:
                show_paper(cell)
                continue
            if "hide_mode" not in cell and VERDICT.search(cell.astext()):
                cell["hide_mode"] = "input"
                cell["prompt_show"], cell["prompt_hide"] = "Show the code", "Hide the code"
                tags.append("hide-input")
            following = cell.next_node(siblings=True, descend=False)
            if "solution" in tags:
                cell["prompt_show"], cell["prompt_hide"] = "Solution", "Hide the solution"
                if isinstance(following, nodes.raw) and SOLUTION.search(following.astext()):
                    del cell["hide_mode"]  # it unfolds with the words that follow it
                    cell.parent.remove(cell)
                    following.parent.insert(following.parent.index(following) + 1, cell)
            if "check" in tags:
                cell["prompt_show"], cell["prompt_hide"] = "Check", "Hide the check"
            if is_folded(cell) and len(cell.children) == 1:
                join(cell)
        for cell in self.document.findall(shows_code):
            if cell.get("prompt_show") == "Show the code":
                code = f"the code{of_what(cell)}"
                cell["prompt_show"], cell["prompt_hide"] = f"Show {code}", f"Hide {code}"


SHOWN = {  # what a cell shows, and the HTML by which this is known
    "chart": '<div class="(chart|stages)"', "film": '<div class="film', "drawing": "<svg",
    "table": "<table",
}  # fmt: skip


def of_what(cell: nodes.container) -> str:
    """Say which of several folded codes on a screen this is."""
    if "export" in cell["cell_metadata"]:
        names = re.findall(r"^(?:def|class) ([A-Za-z]\w*)", cell.astext(), re.MULTILINE)
        if len(names) > 2:
            return f" of {names[0]}, {names[1]} and {len(names) - 2} more"
        return f" of {' and '.join(names)}" if names else ""
    shown = cell.children[-1].astext() if len(cell.children) > 1 else ""
    for name, kind in SHOWN.items():
        if re.search(kind, shown):
            return f" of this {name}"
    return " of this verdict" if VERDICT.search(cell.children[0].astext()) else ""


def join(cell: nodes.container) -> None:
    """Put a folded cell that shows nothing under the bar of a neighbor, if one is folded too.

    That is the cell below it or the one above it, or else the next one on the page.
    """
    siblings = cell.parent.children
    place = siblings.index(cell)
    below = siblings[place + 1] if place + 1 < len(siblings) else None
    above = siblings[place - 1] if place else None
    if is_folded(above) and not is_folded(below):
        above.children[0].extend(cell.children[0].children)
        above["ids"] += cell["ids"]
    elif is_folded(following := cell.next_node(shows_code, ascend=True)):
        following.children[0].insert(0, cell.children[0].children)
        following["ids"] += cell["ids"]
    else:
        return
    cell.parent.remove(cell)


def shows_code(node: nodes.Node) -> bool:
    code = isinstance(node, nodes.container) and node.get("nb_element") == "cell_code"
    return code and "paper" not in node["cell_metadata"].get("tags", [])


def is_folded(node: nodes.Node | None) -> bool:
    """Whether a node is a cell whose code is folded, and is neither a solution nor exported."""
    if node is None or not shows_code(node):
        return False
    tags = node["cell_metadata"].get("tags", [])
    return "hide-input" in tags and "solution" not in tags and "export" not in node["cell_metadata"]


SEEN, LEAST = 420, 340  # letters: of what is not folded, of what is
SENTENCE = re.compile(r"(?<=[.?])(?<!\bal\.)(?<!\.g\.)(?<!\.e\.) (?=[A-Z])")  # where one ends
WHOLE = FOLD.format("docstring", "whole paragraph")


def show_paper(cell: nodes.container) -> None:
    """Hide the call; if it shows the paper's paragraph, fold our restatement below it."""
    output, following = cell.children[-1], cell.next_node(siblings=True, descend=False)
    if output.get("nb_element") != "cell_code_output":
        if following is not None:
            following["ids"] += cell["ids"]  # targets of links
        cell.parent.remove(cell)
        return
    cell.children = [output]
    named = any("original" in each["classes"] for each in cell.document.findall(nodes.container))
    cell["classes"].append("original")
    fold_rest(output.next_node(nodes.paragraph))
    for link in output.findall(nodes.reference):
        if named:  # the first quotation of the page names the paper
            link.children = [nodes.Text(link.astext().removeprefix("Vaswani et al. (2017), "))]
        # The theme shortens a long name without breaks.
        if link.astext() == (address := link.get("refuri")):
            link.children = [nodes.Text(address[:8]), nodes.Text(address[8:])]
    if isinstance(following, nodes.block_quote):
        fold = details(summary="in our words", classes=["restatement"])
        following.parent.replace(following, fold)
        fold.append(following)


def fold_rest(paragraph: nodes.paragraph) -> None:
    """Fold a long paragraph of the paper after a sentence, if what is hidden is some lines long."""
    whole, place, before = len(paragraph.astext()), None, 0
    for i, part in enumerate(paragraph.children):
        if isinstance(part, nodes.Text):
            for end in SENTENCE.finditer(part):
                seen = before + end.end()
                if (place is None or seen <= SEEN) and whole - seen >= LEAST:
                    place = i, end.end()
        before += len(part.astext())
    if place is None:
        return
    i, at = place
    text, rest = paragraph[i], nodes.inline(classes=["docstring"])
    rest += [nodes.Text(text[at:]), *paragraph.children[i + 1 :]]
    paragraph.children[i:] = []
    paragraph += [nodes.Text(text[:at]), nodes.raw("", WHOLE, format="html"), rest]


class PaperLayer(SphinxPostTransform):
    """Mark our restatements of the paper, and link each to the paper."""

    default_priority = 191

    def run(self, **kwargs) -> None:
        for quote in self.document.findall(nodes.block_quote):
            strong = next(iter(quote.findall(nodes.strong)), None)
            original = isinstance(quote.parent, nodes.container)  # the output of a cell
            if strong is None or original or not MARK.match(strong.astext()):
                continue
            quote["classes"].append("paper-layer")
            quote["mark"] = mark = strong.astext()
            link = nodes.reference("", "", refuri=paper_url(mark), internal=False, classes=["mark"])
            link += nodes.Text(mark)
            strong.parent.replace(strong, link)


class InlineFigures(SphinxPostTransform):
    """Inline SVG figures into the page, so that they follow the theme and have working links."""

    default_priority = 192
    formats = ("html",)

    def run(self, **kwargs) -> None:
        for image in list(self.document.findall(nodes.image)):
            if image["uri"].endswith(".svg"):
                text = Path(self.app.srcdir, image["uri"]).read_text(encoding="utf-8")
                text = re.sub(r"<\?xml.*?\?>", "", text)
                raw = nodes.raw("", text, format="html")
                parent = image.parent
                alone = isinstance(parent, nodes.paragraph) and len(parent) == 1
                ids = [*image["ids"], *(parent["ids"] if alone else [])]  # targets of links
                figure = nodes.container("", raw, ids=ids, classes=["figure"])
                (parent if alone else image).replace_self(figure)


class ResultsFirst(SphinxPostTransform):
    """Put the folded code of a picture, table or verdict below it and its caption."""

    default_priority = 200  # runs after myst-nb folded the cells
    formats = ("html",)

    def run(self, **kwargs) -> None:
        for cell in self.document.findall(shows_code):
            tags = cell["cell_metadata"].get("tags", [])
            kept = {"solution", "check"} & set(tags) or "export" in cell["cell_metadata"]
            if len(cell) == 2 and "hide-input" in tags and not kept:
                cell.children.reverse()
                cell["classes"].append("result-first")
                below = cell.next_node(siblings=True, descend=False)
                if isinstance(below, nodes.paragraph) and "caption" in below["classes"]:
                    below.parent.remove(below)
                    cell.insert(1, below)


class LargeCharts(SphinxPostTransform):
    """Move charts with large data into separate files, which pages load on demand."""

    default_priority = 193
    formats = ("html",)
    data = re.compile(r'(<div class="chart")([^>]*>)<script type="application/json">(.*?)</script>')

    def run(self, **kwargs) -> None:
        self.first = True
        for raw in self.document.findall(nodes.raw):
            if 'class="chart"' in (text := raw.astext()):
                raw.children = [nodes.Text(self.data.sub(self.move, text))]

    def move(self, found: re.Match) -> str:
        spec = json.loads(found[3])
        style, still = place(spec, self.first)
        self.first, start = False, heading(spec) + found[1] + style
        if len(found[3]) < LARGE:
            return start + found[0].removeprefix(found[1]) + still
        name = hashlib.sha256(found[3].encode()).hexdigest()[:16]
        folder = Path(self.app.outdir, "charts")
        folder.mkdir(exist_ok=True)
        # A script and not JSON, because a page opened from the disk can load nothing else.
        script = f'(window.chartSpecs ??= {{}})["{name}"] = {found[3]};\n'
        Path(folder, f"{name}.js").write_text(script, encoding="utf-8")
        return f'{start} data-spec="{name}"{found[2]}{still}'


SYMBOLS = {  # symbols in formulas and in code, and their anchors on the page of symbols
    "d_{model}": "d-model", "d_model": "d-model", "d_{ff}": "d-ff", "d_ff": "d-ff", "d_k": "d-k",
    "d_v": "d-v", "N": "n-layers", "h": "h-heads", "P_{drop}": "p-drop",
    "\\epsilon_{ls}": "epsilon-ls", "\\beta_1": "betas", "\\beta_2": "betas", "Q": "qkv",
    "W^Q": "projections", "W^K": "projections", "W^V": "projections", "W^O": "projections",
    "\\alpha": "alpha", "alpha": "alpha", "warmup": "warmup", "warmup\\_steps": "warmup",
    "warmup_steps": "warmup", "pos": "position", "memory": "memory",
    "src_mask": "src-mask", "tgt_mask": "tgt-mask",
}  # K, V, ε, n and others are left out because some pages redefine them  # fmt: skip


class Symbols(SphinxPostTransform):
    """Link the first use of a symbol in each chapter to its definition."""

    default_priority = 195
    formats = ("html",)

    def run(self, **kwargs) -> None:
        if self.env.docname == "chapters/symbols" or "chapters/symbols" not in self.env.found_docs:
            return
        page = self.app.builder.get_relative_uri(self.env.docname, "chapters/symbols")
        met = set()
        for paragraph in self.document.findall(nodes.paragraph):
            for use in [*paragraph.findall(nodes.math), *paragraph.findall(nodes.literal)]:
                text = re.sub(r"\\(?:text|mathrm){(\w+)}", r"\1", use.astext())
                text = text.partition("=")[0].strip()  # also for "d_k = 64"
                anchor = SYMBOLS.get(text)
                if anchor and anchor not in met and not isinstance(use.parent, nodes.reference):
                    met.add(anchor)
                    link = nodes.reference("", "", refuri=f"{page}#{anchor}", internal=True)
                    link["classes"] = ["symbol"]
                    name = re.sub(r"[{}\\]", "", text)
                    # A formula alone is not an accessible name.
                    link["reftitle"] = f"meaning of {name}"
                    use.replace_self(link)
                    link += use
