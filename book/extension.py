"""Sphinx extension of this book: the paper layer, charts, figures and notebooks."""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
from pathlib import Path

import vl_convert
from docutils import nodes
from execution import choose_cache, execute_chapters
from formulas import copy_fonts, set_formulas
from heights import style
from links import Modules, Offered, Reference, details, paper_url, read_docstring
from live import Live, write_models
from notebooks import VERDICT, remote, write_notebooks
from reading import add_short_read, add_way
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from tables import mend_tables
from verdicts import Claims, collect_claims

BOOK = Path(__file__).resolve().parent
LARGE = 60_000  # number of characters in a chart's data
MARK = re.compile(r"^(§[\d.]+ ¶\d+|Abstract|Acknowledgements|(Figure|Table|Footnote) \d+)$")

SOLUTION = re.compile(r'<details(?: class="solution")?>(\s*<summary>Solution</summary>)')


def visit_details(translator, node) -> None:
    kind = node["classes"][0]
    translator.body.append(f'<details class="{kind}"><summary>{node["summary"]}</summary>\n')


def depart_details(translator, node) -> None:
    translator.body.append("</details>\n")


class Cells(SphinxPostTransform):
    """Process cells that show the paper or contain solutions."""

    default_priority = 190  # runs before myst-nb folds the cells

    def run(self, **kwargs) -> None:
        for raw in self.document.findall(nodes.raw):
            if SOLUTION.search(raw.astext()):
                raw.children = [
                    nodes.Text(SOLUTION.sub(r'<details class="solution">\1', raw.astext()))
                ]
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
            if is_folded(cell) and len(cell.children) == 1:
                join(cell)


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
            mark = strong.astext()
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


class LargeCharts(SphinxPostTransform):
    """Move charts with large data into separate files, which pages load on demand."""

    default_priority = 193
    formats = ("html",)
    data = re.compile(r'(<div class="chart")([^>]*>)<script type="application/json">(.*?)</script>')

    def run(self, **kwargs) -> None:
        self.first = True
        for raw in self.document.findall(nodes.raw):
            if 'class="chart"' in (text := raw.astext()):
                # Most alternatives of a choice are never shown.
                self.least = 0 if 'class="choice"' in text else LARGE
                raw.children = [nodes.Text(self.data.sub(self.move, text))]

    def move(self, found: re.Match) -> str:
        kept = style(json.loads(found[3]), exact=self.first)
        self.first = False
        if len(found[3]) < self.least:
            return found[1] + kept + found[0].removeprefix(found[1])
        name = hashlib.sha256(found[3].encode()).hexdigest()[:16]
        folder = Path(self.app.outdir, "charts")
        folder.mkdir(exist_ok=True)
        # A script and not JSON, because a page opened from the disk can load nothing else.
        script = f'(window.chartSpecs ??= {{}})["{name}"] = {found[3]};\n'
        Path(folder, f"{name}.js").write_text(script, encoding="utf-8")
        return f'{found[1]}{kept} data-spec="{name}"{found[2]}'


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


def repository() -> str | None:
    """owner/name of the GitHub repository that this clone comes from, if it does."""
    found = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+)", remote() or "")
    return found[1] if found else None


def looks() -> str:
    """Digest of the files that affect every page; when it changes, all pages are rendered again."""
    files = sorted(BOOK.glob("*.py")) + sorted(BOOK.glob("static/*"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def add_buttons(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    """Add buttons to download a page's notebook and, with a GitHub remote, to run it online."""
    buttons = context.get("header_buttons")
    notebook = Path(app.outdir, "notebooks", f"{Path(page).name}.ipynb")
    if buttons is None or doctree is None or not notebook.exists():
        return
    if app.config.book_repository:
        colab = "https://colab.research.google.com/github"
        url = f"{colab}/{app.config.book_repository}/blob/gh-pages/notebooks/{notebook.name}"
        buttons.append(button(url, "Open in Colab", "fas fa-rocket", "colab-button"))
        binder = f"https://mybinder.org/v2/gh/{app.config.book_repository}/HEAD"
        url = f"{binder}?urlpath=lab/tree/{page}.md"
        buttons.append(button(url, "Open in Binder", "fas fa-flask", "binder-button"))
    url = context["pathto"](f"notebooks/{notebook.name}", 1)
    buttons.append(button(url, "Download the notebook", "fas fa-download", "notebook-button"))


def button(url: str, text: str, icon: str, label: str) -> dict[str, str]:
    return {"type": "link", "url": url, "tooltip": text, "icon": icon, "label": label}


def describe(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    """Add the metadata for link previews: title, first sentences, and a picture."""
    paragraphs = doctree.findall(nodes.paragraph) if doctree else []
    text = next((p.astext() for p in paragraphs if len(p.astext()) > 80), app.config.html_title)
    about = re.sub(r" \[[^]]*\]", "", " ".join(text.split()))  # without citations
    about = about if len(about) <= 200 else about[:200].rpartition(" ")[0] + " …"
    title = app.env.titles[page].astext() if page in app.env.titles else app.config.html_title
    picture = context["pathto"]("_static/social.jpg", 1)
    if app.config.book_repository:  # a picture needs an absolute address, on GitHub Pages
        owner, _, name = app.config.book_repository.partition("/")
        picture = f"https://{owner}.github.io/{name}/_static/social.jpg"
    tags = {
        "description": about, "og:title": title, "og:description": about,
        "og:type": "article", "og:image": picture, "twitter:card": "summary_large_image",
    }  # fmt: skip
    # Nothing from other sites, and no text executed as code; `file:` is for pages on the disk.
    policy = (
        "default-src 'self' file: data: blob: 'unsafe-inline'; object-src 'none'; base-uri 'none'"
    )
    # If storage is blocked, themes and search would fail; the substitute lasts as long as the page.
    storage = (
        'try { localStorage.setItem("_", ""); localStorage.removeItem("_"); } '
        "catch { const kept = {}; "
        'Object.defineProperty(window, "localStorage", { value: { '
        "getItem: (key) => kept[key] ?? null, setItem: (key, text) => { kept[key] = text; }, "
        "removeItem: (key) => { delete kept[key]; } } }); }"
    )
    short = 'document.documentElement.classList.toggle("short", !!localStorage.getItem("short"));'
    context["default_mode"] = "auto"
    context["metatags"] = context.get("metatags", "") + (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}" />\n'
        f"<script>{storage} {short}</script>\n"
    )
    context["metatags"] += "".join(
        f'<meta {"property" if ":" in name else "name"}="{name}" content="{html.escape(said)}" />\n'
        for name, said in tags.items()
    )


def write_front_door(app: Sphinx, error: Exception | None) -> None:
    """Write the root of the site, which redirects to the first page and repeats its metadata.

    People share this address, and services that preview links do not follow redirects.
    """
    if error or app.builder.name != "html":
        return
    first = app.builder.get_target_uri(app.config.root_doc)
    text = Path(app.outdir, first).read_text(encoding="utf-8")
    said = re.findall(r'<meta (?:property="\S+|name="description") content="[^"]*" />', text)
    tags = "\n".join(said).replace('content="../', 'content="')
    title = html.escape(app.config.html_title)
    page = f"""<!DOCTYPE html>
<html lang="{app.config.language}">
<head>
<meta charset="utf-8" />
<meta http-equiv="refresh" content="0; url={first}" />
<title>{title}</title>
{tags}
</head>
<body><p><a href="{first}">{title}</a></p></body>
</html>
"""
    Path(app.outdir, "index.html").write_text(page, encoding="utf-8")


def drop_scripts(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    """Drop what is unused: Thebe, which needs a host, MathJax, whose work is done, and designs."""
    unwanted = re.compile("thebe|mathjax|design-tabs|sphinx-design", re.IGNORECASE)
    for files in "script_files", "css_files":
        given = context.get(files, [])
        context[files] = [file for file in given if not unwanted.search(f"{file}{vars(file)}")]


def finish_pages(app: Sphinx, error: Exception | None) -> None:
    """Set the formulas, and omit files that the theme loads on every page unnecessarily.

    Its icons are also in its styles, as a font; only the results page needs the search index.
    """
    if error or app.builder.name != "html":
        return
    static = Path(app.outdir, "_static")
    for unused in "**/*.map", "**/*.ttf", "scripts/fontawesome.js*", "locales/**/*.*":
        for path in static.glob(unused):
            path.unlink()
    fonts = static / "formulas"
    copy_fonts(fonts)
    icons = re.compile(r"\s*<script[^>]*fontawesome\.js[^>]*></script>")
    words = "searchtools|language_data|searchindex"
    # The first page has the title of the book.
    twice = re.compile(r"<title>(.+?) &#8212; \1</title>")
    search = re.compile(rf"\s*<script[^>]*({words})\.js[^>]*></script>")
    bar = '<div id="pst-primary-sidebar"'
    region = f'{bar} role="complementary" aria-label="Menu"'  # else what is in it is in none
    for path in Path(app.outdir).rglob("*.html"):
        text = icons.sub("", path.read_text(encoding="utf-8"))
        if path.name != "search.html":
            text = search.sub("", text)
        text = twice.sub(r"<title>\1</title>", text)
        text = text.replace(f"{bar} class", f"{region} class")
        text = mend_tables(hang_lines(fold_docstrings(text)))
        text = set_formulas(text, os.path.relpath(fonts, path.parent).replace(os.sep, "/"))
        path.write_text(text, encoding="utf-8")


DOCSTRING = re.compile(
    r'''(<span class="sd">"""(?![^\n]*"""</span>)[^\n]*</span>)(\n.*?"""</span>)''', re.DOTALL
)


def fold_docstrings(html: str) -> str:
    """Of a docstring of several lines, show the first and a button; what is copied stays whole."""
    button = '<button type="button" class="docstring" aria-expanded="false" aria-label="docstring">'
    return DOCSTRING.sub(rf'\1{button}</button><span class="docstring">\2</span>', html)


CODE = re.compile(r'(?<=<div class="highlight"><pre>).*?(?=</pre>)', re.DOTALL)


def hang_lines(text: str) -> str:
    """Name the indentation of long lines of code, so that a phone breaks them inside of it."""

    def hang(line: str) -> str:
        shown = html.unescape(re.sub("<[^>]*>", "", line))
        if len(shown) <= 40 or line.count("<span") != line.count("</span"):
            return line  # short, or it begins or ends what is folded
        indent = len(shown) - len(shown.lstrip())
        line = line.replace('<span class="o">.</span>', '<wbr><span class="o">.</span>')
        line = re.sub(r'(<span class="p">\([^<]*</span>)', r"\1<wbr>", line)
        return f'<span class="line" style="--indent:{indent}">{line}</span>'

    return CODE.sub(lambda code: "\n".join(map(hang, code[0].split("\n"))), text)


def mend_body(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    """Remove roles that ARIA forbids from citations, and add a notice about JavaScript.

    Also remove the element around each word of a signature, which would bloat the reference.
    """
    wrong = re.compile(r'(<div class="citation"[^>]*)( role="doc-biblioentry")|(<div) role="list"')
    body = wrong.sub(r"\1\3", context.get("body", ""))
    body = re.sub(r'<span class="pre">([^<]*)</span>', r"\1", body)
    told = "Without JavaScript, the charts on this page are replaced by descriptions."
    body = body.replace(' aria-label="Toggle hidden content"', "")  # its name is "Show the code"
    banner = f"<noscript><p>{told}</p></noscript>\n" if "<script" in body else ""
    context["body"] = banner + body


def prepare(app: Sphinx) -> None:
    """Configure kernels to return charts as data, and write scripts, notebooks and models."""
    os.environ["IPYTHONDIR"] = str(BOOK / "ipython")
    # Tensors are small, so threads gain nothing and slow down a busy machine.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    scripts = Path(app.outdir).parent / "scripts"
    scripts.mkdir(parents=True, exist_ok=True)
    bundle = scripts / "vega.js"
    if not bundle.exists():
        # Wrapped in a function to keep its names local.
        bundle.write_text(f"(()=>{{{vl_convert.javascript_bundle()}\n}})();", encoding="utf-8")
    app.config.html_static_path.append(str(scripts))
    write_notebooks(Path(app.srcdir), Path(app.outdir) / "notebooks", remote())
    write_models(Path(app.srcdir) / "chapters", Path(app.outdir) / "models")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("book_repository", repository(), "html")
    app.add_config_value("book_looks", looks(), "html")
    app.add_node(details, html=(visit_details, depart_details))
    app.add_directive("offered", Offered)
    app.add_directive("live", Live)
    at_cells = Cells, PaperLayer, Claims, Modules
    for transform in (*at_cells, InlineFigures, LargeCharts, Symbols, Reference):
        app.add_post_transform(transform)
    app.connect("autodoc-process-docstring", read_docstring, priority=400)  # runs before napoleon
    app.connect("config-inited", choose_cache, priority=100)
    app.connect("builder-inited", prepare)
    app.connect("env-before-read-docs", execute_chapters)
    app.connect("env-updated", collect_claims)
    app.connect("html-page-context", add_buttons, priority=900)
    app.connect("html-page-context", describe, priority=900)
    app.connect("html-page-context", drop_scripts, priority=900)
    app.connect("html-page-context", mend_body, priority=900)
    app.connect("html-page-context", add_short_read, priority=900)
    app.connect("html-page-context", add_way, priority=900)
    app.connect("build-finished", finish_pages)
    app.connect("build-finished", write_front_door)
    app.add_js_file("book.js", loading_method="defer")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
