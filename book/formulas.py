"""Formulas as HTML: MathJax sets them during the build, so that no page has to load it."""

from __future__ import annotations

import html
import json
import re
import shutil
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

import quickjs

PARTS = (
    "loader", "core", "adaptors/liteDOM", "input/tex", "output/chtml", "output/chtml/fonts/tex",
    "a11y/assistive-mml",
)  # fmt: skip
START = r"""
const _ = MathJax._, adaptor = _.adaptors.liteAdaptor.liteAdaptor();
_.a11y["assistive-mml"].AssistiveMmlHandler(_.handlers.html_ts.RegisterHTMLHandler(adaptor));
// This engine splits at a pattern with "undefined", a word, where one of its groups took no part.
const { parser } = adaptor, add = parser.addAttributes;
parser.addAttributes = (to, node, parts) =>
  add.call(parser, to, node, parts.map((part) => (part === "undefined" ? "" : part)));
const font = new _.output.chtml.fonts.tex_ts.TeXFont({ fontURL: "FONTS" });
const page = _.mathjax.mathjax.document("", {
  InputJax: new _.input.tex_ts.TeX({ packages: ["base", "ams", "newcommand", "boldsymbol"] }),
  OutputJax: new _.output.chtml_ts.CHTML({ font }),
});
const set = (tex, display) => adaptor.outerHTML(page.convert(tex, { display, em: 16, ex: 8 }));
const styles = () => adaptor.textContent(page.outputJax.styleSheet(page));
"""
MATH = re.compile(
    r'(?P<before>(?:(?<!\w)\w{1,30}(?=<span class="math[^"]*"[^>]*>\s*\\\(\^))?\(?(?:<a [^>]*>)?)'
    r'<(?P<tag>span|div) class="math[^"]*"(?P<more>[^>]*)>'
    r"\s*\\[(\[](?P<tex>.*?)\\[)\]]\s*</(?P=tag)>"
    r"(?P<after>(?:</a>)?[,.;:?!)]*)",
    re.DOTALL,
)
NUMBER = re.compile(r"\\tag\{(.*?)\}")
BREAK = r"\hspace{0pt}"  # where a long formula may become two lines


def mathjax() -> Path:
    """The folder of MathJax in the package that contains it."""
    files = distribution("sphinx-mathjax-offline").files or []
    (core,) = (file for file in files if file.name == "core.js")
    return Path(str(core.locate())).parent


@cache
def engine() -> quickjs.Context:
    """MathJax without a browser."""
    context = quickjs.Context()
    context.set_max_stack_size(4 << 20)
    context.eval("var global = globalThis, MathJax = {}, setTimeout = () => 0;")
    for part in PARTS:
        context.eval((mathjax() / f"{part}.js").read_text(encoding="utf-8"))
    context.eval(START)
    return context


@cache
def formula(tex: str, display: bool) -> str:
    """A formula as HTML, with MathML for screen readers.

    Raises: ValueError for TeX that MathJax cannot set.
    """
    made = engine().eval(f"set({json.dumps(tex)}, {json.dumps(display)})")
    if "mjx-merror" in made or "data-mjx-error" in made:
        raise ValueError(f"expected TeX that MathJax can set; got {tex!r}")
    return made


def apart(tex: str) -> list[str]:
    """The formulas of a row of them, or the parts of a long one, which become lines on a phone."""
    row = tex.split(BREAK if BREAK in tex else r"\qquad")
    whole = all(part.count("{") == part.count("}") for part in row) and r"\begin" not in tex
    return row if whole else [tex]


def set_formulas(text: str, fonts: str) -> str:
    """A page with its formulas set.

    Args:
        text: HTML.   fonts: the address of the folder of fonts.
    """

    def put(found: re.Match[str]) -> str:
        tag, tex = found["tag"], html.unescape(found["tex"])
        if tag == "span":
            made = f'<span class="math"{found["more"]}>{formula(tex, display=False)}</span>'
            whole = found["before"] + made + found["after"]
            bare = whole == made or whole.count("<a ") != whole.count("</a>")
            return whole if bare else f'<span class="together">{whole}</span>'
        if r"\begin{aligned}" in tex:
            tex = tex.replace(r"\\", r"\\[0.5em]")  # so that no fraction touches another
        number = NUMBER.search(tex)  # next to the formula, which can be scrolled on a phone
        beside = f"<span>({number[1]})</span>" if number else ""
        made = "".join(formula(part, display=True) for part in apart(NUMBER.sub("", tex)))
        one = ' class="one"' * (BREAK in tex)
        whole = f'<div class="math"{found["more"]}><div{one}>{made}</div>{beside}</div>'
        return found["before"] + whole + found["after"]

    done, count = MATH.subn(put, text)
    if not count:
        return text
    styles = engine().eval("styles()").replace("FONTS", fonts)
    return done.replace("</head>", f"<style>{styles}</style>\n</head>", 1)


def copy_fonts(folder: Path) -> None:
    """Copy the fonts that the styles use."""
    source = mathjax() / "output" / "chtml" / "fonts" / "woff-v2"
    shutil.copytree(source, folder, dirs_exist_ok=True)
