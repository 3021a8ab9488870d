"""The paper's PDF."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from typing import Any

from annotated.machinery.paper.typesetting import (
    LOST,
    join_lines,
    known_words,
    mend_ligatures,
    typeset,
)


def _letters(painted: Iterable[Any], inside: bool = False) -> Iterator[Any]:
    """The letters of a page, in the order in which it paints them; also `inside` figures."""
    from pdfminer.layout import LTChar, LTFigure

    for item in painted:
        if isinstance(item, LTChar):
            yield item
        elif inside and isinstance(item, LTFigure):
            yield from _letters(item, inside)


_LIGATURES = ("ff", "fi", "fl", "ffi", "ffl")
_TEX = {  # what has which number in a font whose name has this in it; "": in all others
    "CMMI": {11: "α", 12: "β", 15: "ϵ", 25: "π"},
    "CMSY": {0: "−", 1: "·", 2: "×", 3: "∗", 15: "•", 49: "∞", 50: "∈", 112: "√"},
    "CMEX": {80: "∑"},
    "": dict(zip((*range(11, 16), *range(27, 32)), 2 * _LIGATURES, strict=True)),
}


def _is_text(text: str | None) -> bool:
    """Whether what a PDF gives for a letter are characters, and none invisible or private."""
    hidden = lambda sign: sign != "\xad" and unicodedata.category(sign).startswith("C")
    return bool(text) and not any(sign == LOST or hidden(sign) for sign in text or "")


def _character(font: Any, number: int, told: str) -> str:
    """What stands at a place in a font, if the PDF tells nothing usable of it."""
    names = getattr(font, "cid2unicode", None)
    if names is None:  # a font of glyphs in an order of its own
        return LOST
    if _is_text(names.get(number)):
        return str(names[number])
    known = next(table for name, table in _TEX.items() if name in str(font.fontname))
    private = [ord(sign) & 0xFF for sign in told if unicodedata.category(sign) in ("Cc", "Co")]
    return next((known[n] for n in (*private, number) if n in known), LOST)  # U+E00C is number 12


def _fonts() -> Any:
    """pdfminer's store of fonts, with `_character` where a font tells no character."""
    from pdfminer.pdffont import PDFUnicodeNotDefined
    from pdfminer.pdfinterp import PDFResourceManager

    class Fonts(PDFResourceManager):
        def get_font(self, objid: Any, spec: Any) -> Any:
            font: Any = super().get_font(objid, spec)
            tell = type(font).to_unichr

            def to_unichr(number: int) -> str:
                try:
                    told = tell(font, number)
                except PDFUnicodeNotDefined:
                    told = ""
                return told if _is_text(told) else _character(font, number, told)

            font.to_unichr = to_unichr
            return font

    return Fonts()


def _pages(pdf: Path) -> Iterator[list[Any]]:
    """The letters of each page that belong to the text."""
    from pdfminer.converter import PDFPageAggregator
    from pdfminer.pdfinterp import PDFPageInterpreter
    from pdfminer.pdfpage import PDFPage

    resources = _fonts()
    device = PDFPageAggregator(resources, laparams=None)  # letters only, no guess at lines
    interpreter = PDFPageInterpreter(resources, device)
    with pdf.open("rb") as file:
        for page in PDFPage.get_pages(file):
            interpreter.process_page(page)
            painted = device.get_result()
            letters = list(_letters(painted)) or list(_letters(painted, inside=True))
            yield [g for g in letters if g.upright and g.y0 > 0.08 * painted.height]


@dataclass(frozen=True)
class _Line:
    """A printed line: its text, its page, and its place and size there in points."""

    text: str
    page: int
    left: float
    right: float
    base: float  # height of the line on which the letters stand
    size: float
    marked: bool  # begins with a much smaller letter

    def gap(self, above: "_Line") -> float:
        """Distance down from another line; infinite from another page."""
        return above.base - self.base if above.page == self.page else float("inf")


def _common(values: Iterable[float]) -> float:
    """The most common value, to a tenth of a point."""
    return Counter(round(value, 1) for value in values).most_common(1)[0][0]


def _line(run: list[Any], page: int) -> _Line:
    """Make a line of its letters."""
    text = run[0].get_text()
    for before, glyph in pairwise(run):
        space = glyph.x0 - before.x1 > 0.12 * glyph.size
        text += (" " if space else "") + glyph.get_text()
    text = unicodedata.normalize("NFKC", text).translate({0xAD: "-", 0x2010: "-"})
    size = _common(g.size for g in run)
    return _Line(
        text=" ".join(text.split()),
        page=page,
        left=run[0].x0,
        right=max(g.x1 for g in run),
        base=_common(g.matrix[5] for g in run if g.size > 0.9 * size),
        size=size,
        marked=run[0].size < 0.8 * size,
    )


def _split(page: list[Any], em: float) -> Iterator[list[Any]]:
    """Cut the letters of a page into lines; `em` is the size of its ordinary letters."""
    run: list[Any] = []
    base = 0.0  # where the last ordinary letter stood
    for glyph in page:
        fall = base - glyph.matrix[5]
        back = run and glyph.x0 < run[-1].x1
        if run and (fall > em or fall < -2 * em or (back and fall > 0.65 * em)):
            yield run
            run = []
        if not run or (glyph.size > 0.85 * em and glyph.get_text().isalnum()):
            base = glyph.matrix[5]
        run.append(glyph)
    if run:
        yield run


def _lines(pages: Iterable[list[Any]]) -> list[_Line]:
    """The lines of a document, from the letters of its pages."""
    pages = list(pages)
    if not any(pages):
        raise ValueError("it has no text layer, as if it were scanned")
    em = _common(glyph.size for page in pages for glyph in page)
    runs = [(run, number) for number, page in enumerate(pages) for run in _split(page, em)]
    return [line for run, number in runs if (line := _line(run, number)).text]


@dataclass(frozen=True)
class _Layout:
    """What is usual for the lines of a document."""

    margin: float
    right: float
    em: float
    leading: float  # from one line of a paragraph to the next

    @classmethod
    def of(cls, lines: list[_Line]) -> "_Layout":
        return cls(
            margin=_common(round(line.left) for line in lines),
            right=_common(round(line.right) for line in lines),
            em=_common(line.size for line in lines),
            leading=_common(below.gap(above) for above, below in pairwise(lines)),
        )

    def flush(self, line: _Line) -> bool:
        """Whether a line begins at the left margin."""
        return abs(line.left - self.margin) < 0.25 * self.em

    def touches(self, above: _Line, line: _Line) -> bool:
        """Whether a line stands right below another, with no extra space."""
        return 0 < line.gap(above) < 1.25 * self.leading

    def continues(self, above: _Line, line: _Line) -> bool:
        """Whether a line goes on with the paragraph of another, perhaps on the next page."""
        if above.page == line.page:
            return self.touches(above, line)
        return above.right > self.right - self.em or above.text[-1] not in ".:?"

    def is_text(self, line: _Line, inset: bool) -> bool:
        """Whether a line is running text; `inset` text may begin further to the right."""
        indent = 4 * self.em if inset else 0
        whole = line.size > 0.95 * self.em
        return whole and (self.flush(line) or 0 < line.left - self.margin < indent)


_TITLES = {
    "Abstract": "abstract",
    "1 Introduction": "1",
    "2 Background": "2",
    "3 Model Architecture": "3",
    "3.1 Encoder and Decoder Stacks": "3.1",
    "3.2 Attention": "3.2",
    "3.2.1 Scaled Dot-Product Attention": "3.2.1",
    "3.2.2 Multi-Head Attention": "3.2.2",
    "3.2.3 Applications of Attention in our Model": "3.2.3",
    "3.3 Position-wise Feed-Forward Networks": "3.3",
    "3.4 Embeddings and Softmax": "3.4",
    "3.5 Positional Encoding": "3.5",
    "4 Why Self-Attention": "4",
    "5 Training": "5",
    "5.1 Training Data and Batching": "5.1",
    "5.2 Hardware and Schedule": "5.2",
    "5.3 Optimizer": "5.3",
    "5.4 Regularization": "5.4",
    "6 Results": "6",
    "6.1 Machine Translation": "6.1",
    "6.2 Model Variations": "6.2",
    "6.3 English Constituency Parsing": "6.3",
    "7 Conclusion": "7",
    "References": "",  # from here on there is no running text
}


def _paragraphs(lines: list[_Line]) -> list[tuple[str, list[_Line]]]:
    """Deal the lines out to paragraphs; each comes with the name of its section."""
    layout, notes = _Layout.of(lines), count(1)
    found: list[tuple[str, list[_Line]]] = []
    section = ""
    body: list[_Line] = []  # the open paragraph
    aside: list[_Line] = []  # the open caption or footnote

    def opened(name: str, line: _Line) -> list[_Line]:
        found.append((name, [line]))
        return found[-1][1]

    for line in lines:
        caption = re.match(r"(Figure|Table) (\d): ", line.text)
        bullet = line.text.startswith("•")
        inset = bullet or section == "abstract" or bool(body and body[0].text.startswith("•"))
        if line.text in _TITLES:
            section, body, aside = _TITLES[line.text], [], []
        elif caption:
            aside = opened(f"{caption[1].lower()}-{caption[2]}", line)
        elif line.marked and line.size < 0.95 * layout.em:
            aside = opened(f"footnote-{next(notes)}", line)
        elif aside and layout.flush(line) and layout.touches(aside[-1], line):
            aside.append(line)
        elif section and layout.is_text(line, inset):
            if body and not bullet and layout.continues(body[-1], line):
                body.append(line)
            else:
                body = opened(section, line)
    return found


_LABEL = re.compile(r"^(?:•|(?:Figure|Table) \d:|[∗*†‡\d](?=[A-Z]))\s*")
_RUN_IN = re.compile(r"^(?:Encoder:|Decoder:|Residual Dropout|Label Smoothing|Acknowledgements)")


@dataclass(frozen=True)
class Paper:
    """The paper's paragraphs as Markdown with LaTeX, by section.

    Sections are named "abstract", "1", "3.2.1" and so on, "acknowledgements", "figure-1" to
    "figure-5" and "table-1" to "table-4" (captions), and "footnote-1" to "footnote-5".
    Displayed equations are left out; the text after one is a paragraph of its own.
    """

    sections: dict[str, list[str]] = field(default_factory=dict)

    def paragraph(self, section: str, number: int = 1) -> str:
        """One paragraph, counted from 1. Raises ValueError if there is none such."""
        if section not in self.sections:
            raise ValueError(f"no section {section!r}; there are {', '.join(self.sections)}")
        paragraphs = self.sections[section]
        if not 1 <= number <= len(paragraphs):
            raise ValueError(
                f"section {section!r} has paragraphs 1 to {len(paragraphs)}, not {number}"
            )
        return paragraphs[number - 1]


def extract_paper(pdf: str | Path) -> Paper:
    """Read the paper's text from its PDF.

    Raises: OSError if there is no such file; ValueError if it is not a PDF, is encrypted, has no
        text layer, is cut short, is another paper, or is a version that lacks some sections;
        ImportError if the extra `paper` is not installed.
    """
    import logging

    from annotated.machinery.files import extra

    with extra("paper"):
        from pdfminer.pdfdocument import PDFPasswordIncorrect

    logging.getLogger("pdfminer").setLevel(logging.ERROR)  # what ails a file, we say in one line
    pdf = Path(pdf)
    with pdf.open("rb") as file:
        if b"%PDF-" not in file.read(1024):
            raise ValueError(f"{pdf} is not a PDF")
    try:
        return _paper(_lines(_pages(pdf)))
    except PDFPasswordIncorrect:
        raise ValueError(f"{pdf} is encrypted; save a copy without a password") from None
    except ValueError as error:
        raise ValueError(f"{pdf} cannot be used: {error}") from None
    except Exception as error:
        raise ValueError(f"{pdf} is a damaged PDF ({type(error).__name__}: {error})") from error


def _paper(lines: list[_Line]) -> Paper:
    """Make the paper of its lines; ValueError if parts of it are missing."""
    if len(lines) < 2:
        raise ValueError("it has hardly any text, as if it were scanned")
    known = known_words(line.text for line in lines)
    sections: dict[str, list[str]] = {}
    for section, block in _paragraphs(lines):
        text = mend_ligatures(_LABEL.sub("", join_lines((line.text for line in block), known)))
        name = "acknowledgements" if text.startswith("Acknowledgements") else section
        bold = _RUN_IN.sub(lambda head: f"**{head[0]}**", text)
        sections.setdefault(name, []).append(typeset(bold))
    asides = [f"figure-{n}" for n in range(1, 6)] + [f"table-{n}" for n in range(1, 5)]
    expected = [name for name in _TITLES.values() if name not in ("", "6")] + asides
    if missing := [name for name in expected if name not in sections]:
        raise ValueError(f"it lacks these parts of the paper: {', '.join(missing)}")
    texts_first = sorted(sections, key=lambda name: name if "-" in name else "")
    return Paper({name: sections[name] for name in texts_first})
