"""The paper's text, read from the reader's PDF.

A PDF contains letters and their positions, but no words, lines or paragraphs. This module relies
on the layout of arXiv's versions 5 and 7, the conference's style: one column with a straight left
margin, text of one size, a fixed indent for the abstract and for lists, and smaller footnotes.
Margin and size are measured. A PDF in which some sections are not found is rejected. Then the
effects of typesetting on words and formulas are undone: hyphenated words are joined, and formulas
within a line, which a table recognizes, become LaTeX.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from statistics import mode
from typing import Any, NamedTuple

from annotated.machinery.errors import extra
from annotated.machinery.files import reading
from annotated.machinery.limits import run_limited

_LOST = "\ufffd"  # represents a letter of which nothing is known


class _Line(NamedTuple):
    """A printed line: its text, its page, and its position and size there in points."""

    text: str
    page: int
    left: float
    right: float
    base: float  # height of the baseline
    size: float


def _pages(pdf: Path) -> Iterator[list[Any]]:
    """The letters of each page, without the page number at the bottom."""
    from pdfminer.converter import PDFPageAggregator
    from pdfminer.layout import LTChar
    from pdfminer.pdfinterp import PDFPageInterpreter, PDFResourceManager
    from pdfminer.pdfpage import PDFPage

    resources = PDFResourceManager()
    # Only letters, without pdfminer's guess at lines.
    device = PDFPageAggregator(resources, laparams=None)
    with pdf.open("rb") as file:
        for page in PDFPage.get_pages(file):
            PDFPageInterpreter(resources, device).process_page(page)
            painted = device.get_result()
            # Letters that are not upright belong to arXiv's stamp.
            upright = (x for x in painted if isinstance(x, LTChar) and x.upright)
            yield [letter for letter in upright if letter.y0 > 0.08 * painted.height]


def _runs(page: list[Any], em: float) -> Iterator[list[Any]]:
    """Divide the letters of a page into lines; TeX draws them in reading order.

    A subscript is lower than the letter before it, but not farther left; a denominator is farther
    left, but only slightly lower; the next line is both.
    """
    run: list[Any] = []
    base = 0.0  # baseline of the last letter of ordinary size
    for letter in page:
        fall = base - letter.matrix[5]
        back = run and letter.x0 < run[-1].x1
        if run and (fall > em or fall < -2 * em or (back and fall > 0.65 * em)):
            yield run
            run = []
        if not run or (letter.size > 0.85 * em and letter.get_text().isalnum()):
            base = letter.matrix[5]
        run.append(letter)
    if run:
        yield run


def _character(letter: Any) -> str:
    """The text of a letter, or _LOST if the font names no character for it."""
    text = letter.get_text()
    hidden = any(unicodedata.category(sign)[0] == "C" for sign in text.replace("\xad", "-"))
    return _LOST if not text or hidden or text.startswith("(cid:") else text


def _lines(pdf: Path) -> list[_Line]:
    """The lines of a PDF in reading order."""
    pages = list(_pages(pdf))
    em = mode([round(letter.size, 1) for page in pages for letter in page] or [0.0])
    lines = []
    for number, page in enumerate(pages):
        for run in _runs(page, em):
            text = _character(run[0])
            for before, letter in pairwise(run):  # a gap counts as a space
                text += " " * (letter.x0 - before.x1 > 0.12 * letter.size) + _character(letter)
            text = unicodedata.normalize("NFKC", text).translate({0xAD: "-", 0x2010: "-"})
            size = mode(round(letter.size, 1) for letter in run)
            base = mode(round(x.matrix[5], 1) for x in run if x.size > 0.9 * size)
            right = max(letter.x1 for letter in run)
            lines.append(_Line(" ".join(text.split()), number, run[0].x0, right, base, size))
    return [line for line in lines if line.text]


_HEADINGS = (
    *("Abstract", "1", "2", "3", "3.1", "3.2", "3.2.1", "3.2.2", "3.2.3", "3.3", "3.4", "3.5", "4"),
    *("5", "5.1", "5.2", "5.3", "5.4", "6", "6.1", "6.2", "6.3", "7", "References"),
)
_CAPTIONS = (*(f"figure-{n}" for n in range(1, 6)), *(f"table-{n}" for n in range(1, 5)))
_LABEL = re.compile(r"^(?:•|(?:Figure|Table) \d:|[∗*†‡\d](?=[A-Z]))\s*")
_RUN_IN = re.compile(r"^(?:Encoder:|Decoder:|Residual Dropout|Label Smoothing|Acknowledgements)")


def _paragraphs(lines: list[_Line]) -> list[tuple[str, list[_Line]]]:
    """Group lines into paragraphs, captions and footnotes, each with the name of its section."""
    margin, right = mode(round(x.left) for x in lines), mode(round(x.right) for x in lines)
    em = mode(line.size for line in lines)
    found: list[tuple[str, list[_Line]]] = []
    sections, section = list(_HEADINGS), ""
    body: list[_Line] = []  # the last paragraph
    aside: list[_Line] = []  # the last caption or footnote

    def opened(name: str, line: _Line) -> list[_Line]:
        found.append((name, [line]))
        return found[-1][1]

    def touches(above: _Line, line: _Line) -> bool:
        return above.page == line.page and 0 < above.base - line.base < 1.37 * em

    for line in lines:
        caption = re.match(r"(Figure|Table) (\d): ", line.text)
        indent = (line.left - margin) / em
        flush, small = abs(indent) < 0.25, line.size < 0.95 * em
        if sections and re.match(rf"{re.escape(sections[0])}(?: [A-Z]|$)", line.text):
            section, body, aside = sections.pop(0), [], []
        elif caption:
            aside = opened(f"{caption[1].lower()}-{caption[2]}", line)
        elif small and _LABEL.match(line.text):
            notes = sum(name.startswith("footnote") for name, _ in found)
            aside = opened(f"footnote-{notes + 1}", line)
        elif aside and flush and touches(aside[-1], line):
            aside.append(line)
        elif section not in ("", "References") and not small:
            bullet = line.text.startswith("•")
            if not (flush or bullet or abs(indent - 3.6) < 0.15):
                continue  # an equation, or a row of a table
            turned = body and body[-1].page != line.page  # the paragraph may have ended before it
            whole = turned and (body[-1].right > right - em or body[-1].text[-1] not in ".:?")
            if body and not bullet and (whole or touches(body[-1], line)):
                body.append(line)
            else:
                body = opened(section.lower(), line)
    return found


_WORD = r"[A-Za-z]+(?:-[A-Za-z]+)*"


def _known_words(lines: Iterable[str]) -> set[str]:
    """The words of a text, in lower case, except those broken at the end of a line."""
    whole = (re.sub(r"\S+-$", "", line) for line in lines)
    return {word.lower() for line in whole for word in re.findall(_WORD, line)}


def _join_lines(lines: Iterable[str], known: set[str]) -> str:
    """Join the lines of a paragraph into one string.

    A hyphen at the end of a line is kept if the text contains the compound elsewhere, or if it
    contains the first half but not the joined word.
    """

    def mend(broken: re.Match[str]) -> str:
        left, right = broken.groups()
        compound, joined = f"{left}-{right}", f"{left}{right}"
        kept = joined.lower() not in known and left.lower() in known
        return compound if kept or compound.lower() in known else joined

    text = re.sub(rf"({_WORD})-\n({_WORD})", mend, "\n".join(lines))
    return re.sub(r"(https?://\S+/)?\n", lambda end: end[1] or " ", text)


_SPANS = (
    *("$h_t$", "$h_{t-1}$", "position $t$", "position $i$", "less than $i$"),
    *(r"$(x_1, \ldots, x_n)$", r"$(y_1, \ldots, y_m)$", r"$(z_1, \ldots, z_n)$"),
    *(r"$\mathbf{z} = (z_1, \ldots, z_n)$", r"Given $\mathbf{z}$", r"$x_i, z_i \in \mathbb{R}^d$"),
    *(r"$\mathrm{LayerNorm}(x + \mathrm{Sublayer}(x))$", r"$\mathrm{Sublayer}(x)$"),
    *("$N = 6$", "$h = 8$", r"$d_{\text{model}}$", r"$\sqrt{d_{\text{model}}}$", "$d_{ff}$"),
    *("$d_k$", "$d_v$", r"$\sqrt{d_k}$", r"$\frac{1}{\sqrt{d_k}}$", "values $h$ times"),
    *(r"$d_k = d_v = d_{\text{model}}/h$", "matrix $Q$", "matrices $K$ and $V$"),
    r"$W^Q_i \in \mathbb{R}^{d_{\text{model}} \times d_k}$",
    r"$W^K_i \in \mathbb{R}^{d_{\text{model}} \times d_k}$",
    r"$W^V_i \in \mathbb{R}^{d_{\text{model}} \times d_v}$",
    r"$W^O \in \mathbb{R}^{hd_v \times d_{\text{model}}}$",
    *(r"$q \cdot k = \sum^{d_k}_{i=1} q_i k_i$", "of $q$ and $k$ are", r"$-\infty$"),
    *("where $pos$ is", "and $i$ is the dimension", r"$2\pi$", r"$10000 \cdot 2\pi$"),
    *("$PE_{pos}$", "$PE_{pos+k}$", "offset $k$", "length $n$", "dimensionality $d$", "size $r$"),
    *("factor of $k$", "$n$ is the sequence", "$d$ is the representation", "$k$ is the kernel"),
    *("$r$ the size", "$O(n)$", "$O(n/r)$", "$O(n/k)$", r"$O(\log_k(n))$"),
    *(r"$O(k \cdot n \cdot d + n \cdot d^2)$", "$k < n$", "$k = n$", r"$\beta_1$", r"$\beta_2$"),
    *(r"$\epsilon = 10^{-9}$", r"$warmup\_steps$", "$P_{drop}$", r"$\epsilon_{ls}$", r"$\alpha$"),
    *("gradients$^4$", "GPU$^5$"),
)
_PRINTED = {
    **{r"\_": "_", r"\ldots": "...", r"\log": "log", r"\in": "∈", r"\times": "×", r"\cdot": "·"},
    **{r"\sqrt": "√", r"\sum": "∑", r"\infty": "∞", r"\alpha": "α", r"\beta": "β", r"\pi": "π"},
    r"\epsilon": "ϵ",
}  # for LaTeX's commands; others print nothing
# The characters that fonts use for them.
_VARIANTS = {"-": "[−-]", "·": "[·⋅]", "ϵ": f"[ϵε{_LOST}]", "∑": f"[∑Σ{_LOST}]?"}


def _pattern(span: str) -> str:
    """Pattern for a span as printed, with any spaces, and for the number that it equals."""
    printed = re.sub(r"\\_|\\[a-z]+|[${}^_ ]", lambda found: _PRINTED.get(found[0], ""), span)
    signs = r"\s*".join(_VARIANTS.get(sign, re.escape(sign)) for sign in printed)
    # A number's decimal point is in a mathematical font, which may name no character.
    equals = rf"(?:\s*=\s*(\d+(?:[.{_LOST}]\d+)?))?" if span.endswith("$") else "()"
    return rf"(?<!\w){signs}{equals}(?!\w)"


def _typeset(text: str) -> str:
    """A paragraph with its formulas as LaTeX between dollar signs, and no other dollar signs."""
    text = text.replace("$", "\uff04")
    for span in sorted(_SPANS, key=lambda span: -len(span)):
        equal = lambda found, span=span: f"{span[:-1]} = {found[1].replace(_LOST, '.')}$"
        new = lambda found, span=span, equal=equal: equal(found) if found[1] else span
        parts = text.split("$")
        parts[::2] = [re.sub(_pattern(span), new, part) for part in parts[::2]]  # not yet LaTeX
        text = "$".join(parts)
    return re.sub(r"\$ (?=[.,])", "$", text)


PARTS = {name.lower() for name in _HEADINGS if name not in ("6", "References")} | {*_CAPTIONS}
# Bytes of a PDF, and limits of time and of memory for reading it.
_LARGEST, _SECONDS, _MEMORY = 1 << 26, 60, 1 << 31


def _extract(pdf: str) -> dict[str, list[str]]:
    """The paragraphs of each section. Raises: ValueError if some are missing, or other errors."""
    import logging

    logging.getLogger("pdfminer").setLevel(logging.ERROR)  # one line about a bad file is enough
    sections: dict[str, list[str]] = {}
    lines = _lines(Path(pdf))
    known = _known_words(line.text for line in lines)
    for section, block in _paragraphs(lines) if lines else []:
        text = _LABEL.sub("", _join_lines((line.text for line in block), known))
        name = "acknowledgements" if text.startswith("Acknowledgements") else section
        bold = _RUN_IN.sub(lambda head: f"**{head[0]}**", text)
        sections.setdefault(name, []).append(_typeset(bold))
    if missing := PARTS - sections.keys():
        raise ValueError(f"text without these parts: {', '.join(sorted(missing))}")
    return {name: sections[name] for name in sorted(sections, key=lambda x: x * ("-" in x))}


def check_pdf(pdf: Path) -> None:
    """Raise MissingFile or FileError unless a file can be read and is no larger than a paper."""
    with reading(pdf, "a PDF of the paper"):
        if pdf.stat().st_size > _LARGEST or not pdf.is_file():
            raise ValueError(f"no file, or one of more than {_LARGEST:,} bytes")


def extract_paper(pdf: str | Path) -> dict[str, list[str]]:
    """Read the paper's paragraphs from its PDF, as Markdown with LaTeX.

    Returns: the paragraphs of each section. Sections are named "abstract", "1", "3.2.1" and so on,
        "acknowledgements", "figure-1" to "figure-5" and "table-1" to "table-4" (captions), and
        "footnote-1" to "footnote-5". Equations are omitted; the text after one is separate.

    The PDF is read in a process with limits of time and memory, because it may require any amount.

    Raises: MissingFile if the file does not exist; FileError if it is not a PDF, is encrypted or
        damaged, lacks parts of the paper, or takes too long; MissingExtra without the extra.
    """
    with extra("paper"):
        import pdfminer  # noqa: F401
    check_pdf(Path(pdf))
    with reading(pdf, "a PDF of the paper"):
        return dict(run_limited(_extract, str(pdf), seconds=_SECONDS, memory=_MEMORY))
