"""What is done to the HTML of finished pages, and the files that none of them loads."""

from __future__ import annotations

import html
import os
import re
from pathlib import Path

from formulas import copy_fonts, set_formulas
from sphinx.application import Sphinx
from tables import mend_tables


def mend_body(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    """Remove roles that ARIA forbids from citations, and add a notice about JavaScript.

    Also remove the element around each word of a signature, which would bloat the reference, and
    mark short pieces of code, which no line may break.
    """
    wrong = re.compile(r'(<div class="citation"[^>]*)( role="doc-biblioentry")|(<div) role="list"')
    body = wrong.sub(r"\1\3", context.get("body", ""))
    body = re.sub(r'<span class="pre">([^<]*)</span>', r"\1", body)
    body = re.sub(r'(?<=<code class=")(?=docutils literal[^<]{1,35}</code>)', "short ", body)
    body = re.sub(r'(?<=<code class="docutils)[^<]+', lambda code: hold(code[0]), body)
    told = "Without JavaScript, the charts on this page are replaced by descriptions."
    body = body.replace(' aria-label="Toggle hidden content"', "")  # its name is "Show the code"
    banner = f"<noscript><p>{told}</p></noscript>\n" if "<script" in body else ""
    context["body"] = banner + body


def finish_pages(app: Sphinx, error: Exception | None) -> None:
    """Set the formulas, and omit files that the theme loads on every page unnecessarily.

    Only the results page needs the search index.
    """
    if error or app.builder.name != "html":
        return
    static = Path(app.outdir, "_static")
    for unused in (
        "**/*.map",
        "**/*.ttf",
        "scripts/[fb]o*.js*",
        "locales/**/*.*",
        "vendor/**/*.*",
        "styles/*.css",
        "mystnb*.css",
    ):
        for path in static.glob(unused):
            path.unlink()
    for path in static.glob("b[ao][os][ek].css"):  # readers need none of our comments
        text = re.sub(r" */\*.*?\*/\n?", "\n", path.read_text("utf-8"), flags=re.DOTALL)
        path.write_text(text, "utf-8")
    fonts = static / "formulas"
    copy_fonts(fonts)
    theme = re.compile(
        r"\s*<script[^>]*/(fontawesome|bootstrap)\.js[^>]*></script>"
        r"|\s*<link[^>]*/(styles/[\w-]+\.css|bootstrap\.js)\?[^>]*/>"
    )  # icons, tooltips and looks, which are all our own
    words = "searchtools|language_data|searchindex"
    # The first page has the title of the book.
    twice = re.compile(r"<title>(.+?) &#8212; \1</title>")
    search = re.compile(rf"\s*<script[^>]*({words})\.js[^>]*></script>")
    for path in Path(app.outdir).rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        if text.endswith(FINISHED):  # this build did not write it anew
            continue
        text = theme.sub("", text)
        if path.name != "search.html":
            text = search.sub("", text)
        text = twice.sub(r"<title>\1</title>", text)
        text = re.sub(r"(?<=\d) ± (?=\d)", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}", text)
        text = mend_tables(mend_code(fold_docstrings(text)))
        text = set_formulas(text, os.path.relpath(fonts, path.parent).replace(os.sep, "/"))
        path.write_text(text + FINISHED, encoding="utf-8")


FINISHED = "<!-- finished -->\n"
FOLD = '<button type="button" class="{}" aria-expanded="false" aria-label="{}"></button>'
DOCSTRING = re.compile(
    r'''(<span class="sd">"""(?![^\n]*"""</span>)[^\n]*</span>)(\n.*?"""</span>)''', re.DOTALL
)


def fold_docstrings(html: str) -> str:
    """Of a docstring of several lines, show the first and a button; what is copied stays whole."""
    button = FOLD.format("docstring", "docstring")
    return DOCSTRING.sub(rf'\1{button}<span class="docstring">\2</span>', html)


CODE = re.compile(r'(?<=<div class="highlight"><pre)>(.*?)(?=</pre>)', re.DOTALL)
FOLDED = re.compile(r'<span class="docstring">.*?"""</span></span>', re.DOTALL)
LINE, LINES = 44, 22  # letters of a line on a phone, and how many lines it shows without a button
DOC_BUTTON = re.compile(r'(.*)(<button type="button" class="docstring".*?</button>)(.*)')
# What no line breaks: an option and its value, a short text, a name with hyphens, a minus.
HELD = re.compile(
    r"(?:(?<![\w-])--?[a-z][\w-]*"
    r"(?: <span[^>]*>[^\s<]{1,24}</span>| (?![\\-])[^\s<]{1,28}(?![^\s<]))?"
    r'|<span class="s2">[^<]{2,40}</span>'
    r"|(?<![\w./+-])(?=[^\s<]{4,38}(?:[\s<]|$))[\w./+]+(?:-[\w./+]+)+"
    r'|<span class="o">-</span><span[^>]*>[^<]*</span>)(?![^<]*>)'
)
ALIGNED = re.compile(r"\S {2,}\S.*\S {2,}\S|(?:-?\d+\.\d+\b.*){3}")  # a row of numbers
DIFF = re.compile(r'(<span class="g[di])(">.*)')
IMPORTS = re.compile(
    r"(?:(?:from [\w.]+ )?import (?:\([^)]*\)|[^\n(])*\n+|if TYPE_CHECKING:\n+(?: +[^\n]*\n+)+)+"
)


def mend_code(text: str) -> str:
    """Fold imports, and name the indentation of long lines, inside of which a phone breaks them.

    One blank line is enough on a page. Code of few lines is marked: a phone shows all of it.
    """

    def hang(line: str, diff: bool, button: str = "") -> str:
        if found := DOC_BUTTON.fullmatch(line):
            return hang(found[1], diff, found[2]) + found[3]
        shown = plain(line)
        if len(shown) + 4 * bool(button) <= 40 or line.count("<span") != line.count("</span"):
            return line + button  # short, or it ends what is folded
        if "<" not in line.removeprefix("<span></span>") and ALIGNED.search(shown):
            return f'<span class="aligned">{line}</span>'
        indent = len(shown) - len(shown[1:].lstrip() if diff else shown.lstrip())
        line = hold(line)
        line = re.sub(r'([)\]]</span>)(?=<span class="o">\.</span>)', r"\1<wbr>", line)
        line = re.sub(r'(<span class="p">\([^<]*</span>)', r"\1<wbr>", line)
        if not shown.lstrip().startswith("#"):
            line = line.replace('<span class="c1">', '<span class="c1 after">')
        if changed := DIFF.fullmatch(line):
            return f'{changed[1]} line" style="--indent:{indent}{changed[2]}'
        return f'<span class="line" style="--indent:{indent}">{line}{button}</span>'

    def mend(code: re.Match[str]) -> str:
        diff = re.search('class="g[di]"', code[1]) is not None
        lines = code[1].replace('<span class="w"> </span>', " ")
        lines = re.sub(r"\n{3,}", "\n\n", lines).split("\n")
        imports = IMPORTS.match(plain("\n".join(lines)))
        count = imports[0].count("\n") if imports else 0
        hung = [hang(line, diff) for line in lines]
        if count >= 3 and "".join(map(plain, lines[count:])).strip():  # many, and not alone
            button = FOLD.format("docstring imports", "imports")
            folded = "\n".join(hung[:count])
            hung[:count] = [f'{button}<span class="docstring">{folded}</span>']
            lines[:count] = ["imports"]
        shown = plain(FOLDED.sub("", "\n".join(lines))).split("\n")
        few = sum(1 + max(0, len(line) - 1) // LINE for line in shown) <= LINES
        return ' class="few"' * few + ">" + "\n".join(hung)

    return CODE.sub(mend, text)


def hold(code: str) -> str:
    """Code in which no line breaks an option, or a name with hyphens."""
    return HELD.sub(r'<span class="together">\g<0></span>', code)


def plain(code: str) -> str:
    return html.unescape(re.sub("<[^>]*>", "", code))
