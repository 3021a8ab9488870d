"""How this book is made (chapters/making-of.md).

Generated from the chapter's export cells by book/extract.py: edit it there.
"""

import hashlib
import json
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, count, pairwise, starmap
from pathlib import Path
from typing import Any

__all__ = [
    "Paper",
    "Quotation",
    "extract_paper",
    "find_paper",
    "get_paper",
    "import_paper",
    "paper_folder",
    "quote",
]


def _letters(painted: Iterable[Any], inside: bool = False) -> Iterator[Any]:
    """The letters of a page, in the order in which it paints them; also `inside` figures."""
    from pdfminer.layout import LTChar, LTFigure

    for item in painted:
        if isinstance(item, LTChar):
            yield item
        elif inside and isinstance(item, LTFigure):
            yield from _letters(item, inside)


_LOST = "\ufffd"  # stands for a letter of which nothing is known
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
    return bool(text) and not any(sign == _LOST or hidden(sign) for sign in text or "")


def _character(font: Any, number: int, told: str) -> str:
    """What stands at a place in a font, if the PDF tells nothing usable of it."""
    names = getattr(font, "cid2unicode", None)
    if names is None:  # a font of glyphs in an order of its own
        return _LOST
    if _is_text(names.get(number)):
        return str(names[number])
    known = next(table for name, table in _TEX.items() if name in str(font.fontname))
    private = [ord(sign) & 0xFF for sign in told if unicodedata.category(sign) in ("Cc", "Co")]
    return next((known[n] for n in (*private, number) if n in known), _LOST)  # U+E00C is number 12


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


_LETTER = rf"[A-Za-z{_LOST}]"
_WORD = re.compile(rf"{_LETTER}+(?:-{_LETTER}+)*")


def _vocabulary(lines: Iterable[str]) -> set[str]:
    """The words of a text, in lower case, without those that a line's end cuts."""
    whole = (re.sub(r"\S+-$", "", line) for line in lines)
    return {word.lower() for line in whole for word in _WORD.findall(line)}


def _unbroken(left: str, right: str, known: set[str]) -> str:
    """Join two halves of a word, with or without the hyphen that stood at the line's end."""
    compound, joined = f"{left}-{right}", f"{left}{right}"
    if compound.lower() in known or (joined.lower() not in known and left.lower() in known):
        return compound
    return joined


def _join(lines: Iterable[str], known: set[str]) -> str:
    """Make one string of the lines of a paragraph."""
    text = ""
    for line in lines:
        left = re.search(rf"((?:{_LETTER}|-)*{_LETTER})-$", text)
        right = re.match(_WORD, line)
        if left and right:
            word = _unbroken(left[1], right[0], known)
            text = text[: left.start()] + word + line[right.end() :]
        else:
            text += line if not text or re.search(r"https?://\S+/$", text) else f" {line}"
    return text


_LIGATED = (
    *("affecting", "beneficial", "benefit", "confidence", "configuration", "different"),
    *("difficult", "effect", "effective", "efficiency", "efficient", "efficiently", "effort"),
    *("efforts", "final", "firmly", "first", "fitting", "fixed", "floating", "flow", "off"),
    *("offset", "significant", "significantly", "specific", "tensorflow"),
)


def _without(word: str) -> re.Pattern[str]:
    """Find a word also if ligatures are lost in it; of "efficient" one may be ff, fi or ffi."""
    rest = re.sub("f[fil]+", "", word)
    gap = f"[{_LOST} ]?" if len(rest) > 1 else _LOST  # an "o" alone need not have been "off"

    def lost(match: re.Match[str]) -> str:
        first, last = match[0][0], match[0][-1]
        parts = [match[0], gap, *([f"{first}{gap}", f"{gap}{last}"] if len(match[0]) > 2 else [])]
        return f"(?:{'|'.join(parts)})"

    letters = re.sub("f[fil]+", lost, word)
    if word[0] != "f":  # a capital is never a part of a ligature
        letters = f"[{word[0]}{word[0].upper()}]{letters[1:]}"
    return re.compile(rf"(?<!\w)(?! ){letters}(?!\w)")


def _whole_words(text: str) -> str:
    """The text with the ligatures that its words have lost."""
    for word in _LIGATED:
        whole = lambda found, word=word: word.capitalize() if found[0][0].isupper() else word
        text = _without(word).sub(whole, text)
    return text


_MODEL = r"d_{\text{model}}"
_FORMULAS = {
    "ht": "h_t",
    "ht−1": "h_{t-1}",
    "(x1,...,xn)": r"(x_1, \ldots, x_n)",
    "(y1,...,ym)": r"(y_1, \ldots, y_m)",
    "(z1,...,zn)": r"(z_1, \ldots, z_n)",
    "z=(z1,...,zn)": r"\mathbf{z} = (z_1, \ldots, z_n)",
    "xi,zi∈Rd": r"x_i, z_i \in \mathbb{R}^d",
    "LayerNorm(x+Sublayer(x))": r"\mathrm{LayerNorm}(x + \mathrm{Sublayer}(x))",
    "Sublayer(x)": r"\mathrm{Sublayer}(x)",
    "N=6": "N = 6",
    "h=8": "h = 8",
    "dmodel": _MODEL,
    "√dmodel": rf"\sqrt{{{_MODEL}}}",
    "dff": r"d_{ff}",
    "dk": "d_k",
    "dv": "d_v",
    "√dk": r"\sqrt{d_k}",
    "1√dk": r"\frac{1}{\sqrt{d_k}}",
    "dk=dv=dmodel/h": f"d_k = d_v = {_MODEL}/h",
    "WQi∈Rdmodel×dk": rf"W_i^Q \in \mathbb{{R}}^{{{_MODEL} \times d_k}}",
    "WKi∈Rdmodel×dk": rf"W_i^K \in \mathbb{{R}}^{{{_MODEL} \times d_k}}",
    "WVi∈Rdmodel×dv": rf"W_i^V \in \mathbb{{R}}^{{{_MODEL} \times d_v}}",
    "WO∈Rhdv×dmodel": rf"W^O \in \mathbb{{R}}^{{hd_v \times {_MODEL}}}",
    "q·k=∑dki=1qiki": r"q \cdot k = \sum_{i=1}^{d_k} q_i k_i",
    "−∞": r"-\infty",
}

_MORE_FORMULAS = {
    "2π": r"2\pi",
    "10000·2π": r"10000 \cdot 2\pi",
    "PEpos": r"PE_{pos}",
    "PEpos+k": r"PE_{pos+k}",
    "O(n)": "O(n)",
    "O(n/r)": "O(n/r)",
    "O(n/k)": "O(n/k)",
    "O(logk(n))": r"O(\log_k(n))",
    "O(k·n·d+n·d2)": r"O(k \cdot n \cdot d + n \cdot d^2)",
    "k<n": "k < n",
    "k=n": "k = n",
    "β1": r"\beta_1",
    "β2": r"\beta_2",
    "ϵ=10−9": r"\epsilon = 10^{-9}",
    "warmup_steps": r"warmup\_steps",
    "Pdrop": "P_{drop}",
    "ϵls": r"\epsilon_{ls}",
    "α": r"\alpha",
}

_PHRASES = (
    *("position $t$", "position $i$", "less than $i$", r"Given $\mathbf{z}$", "matrix $Q$"),
    *("matrices $K$ and $V$", "values $h$ times", "where $pos$ is", "and $i$ is the dimension"),
    *("offset $k$", "length $n$", "dimensionality $d$", "size $r$", "factor of $k$"),
    *("$n$ is the sequence", "$d$ is the representation", "$k$ is the kernel", "$r$ the size"),
    *("of $q$ and $k$ are", "gradients $^4$", "GPU $^5$"),
)

# Fonts name these signs in several ways, or not at all.
_VARIANTS = {
    "−": "[−-]",
    "·": "[·⋅]",
    "ϵ": r"(?:[ϵε\ufffd]|\(cid:\d+\))",
    "∑": r"(?:[∑Σ\ufffd]|\(cid:\d+\))?",
}


_Mend = tuple[re.Pattern[str], Callable[[re.Match[str]], str]]  # what to find, what to put there


def _formula(printed: str, latex: str) -> _Mend:
    """Find a formula, with any spaces between its signs; put LaTeX there."""
    signs = r"\s*".join(_VARIANTS.get(sign, re.escape(sign)) for sign in printed)
    found = re.compile(rf"(?<!\w){signs}(?:\s*=\s*(\d+(?:\.\d+)?))?(?!\w)")
    return found, lambda match: f"${latex} = {match[1]}$" if match[1] else f"${latex}$"


def _phrase(typeset: str) -> _Mend:
    """Find a phrase as it reads without its LaTeX; put there the phrase with it."""
    plain = re.sub(r"[$^{}]|\\mathbf", "", typeset)
    new = typeset.replace(" $^", "$^")
    return re.compile(rf"\b{re.escape(plain)}\b"), lambda match: new


def _typeset(text: str) -> str:
    """A paragraph with its formulas as LaTeX between dollar signs."""
    formulas = sorted((_FORMULAS | _MORE_FORMULAS).items(), key=lambda pair: -len(pair[0]))
    for found, new in chain(starmap(_formula, formulas), map(_phrase, _PHRASES)):
        parts = text.split("$")
        parts[::2] = [found.sub(new, part) for part in parts[::2]]
        text = "$".join(parts)
    return re.sub(r"\$ (?=[.,])", "$", text)


_LABEL = re.compile(r"^(?:•|(?:Figure|Table) \d:|[∗*†‡\d](?=[A-Z]))\s*")
_RUN_IN = re.compile(r"^(?:Encoder:|Decoder:|Residual Dropout|Label Smoothing|Acknowledgements)")
_URL = "https://arxiv.org/abs/1706.03762"


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
        text layer, is cut short, is another paper, or is a version that lacks some sections.
    """
    import logging

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
    known = _vocabulary(line.text for line in lines)
    sections: dict[str, list[str]] = {}
    for section, block in _paragraphs(lines):
        text = _whole_words(_LABEL.sub("", _join((line.text for line in block), known)))
        name = "acknowledgements" if text.startswith("Acknowledgements") else section
        bold = _RUN_IN.sub(lambda head: f"**{head[0]}**", text)
        sections.setdefault(name, []).append(_typeset(bold))
    asides = [f"figure-{n}" for n in range(1, 6)] + [f"table-{n}" for n in range(1, 5)]
    expected = [name for name in _TITLES.values() if name not in ("", "6")] + asides
    if missing := [name for name in expected if name not in sections]:
        raise ValueError(f"it lacks these parts of the paper: {', '.join(missing)}")
    texts_first = sorted(sections, key=lambda name: name if "-" in name else "")
    return Paper({name: sections[name] for name in texts_first})


def paper_folder() -> Path:
    """Where the paper is kept: `data/paper` of this repository, else a folder of the user's."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "_config.yml").is_file() and (folder / "chapters").is_dir():
            return folder / "data" / "paper"
    from platformdirs import user_cache_path

    return user_cache_path("annotated") / "paper"


def _write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


_FORMAT = b"2"  # to be raised when extraction changes, so that stored text is made anew


def _read(pdf: Path) -> Paper:
    """The paper in a PDF, from the stored text if this PDF has been read before."""
    name = hashlib.sha256(_FORMAT + pdf.read_bytes()).hexdigest()[:16]
    stored = paper_folder() / f"{name}.json"
    with suppress(OSError, ValueError, TypeError):  # not there yet, or broken
        return Paper(**json.loads(stored.read_text(encoding="utf-8")))
    paper = extract_paper(pdf)
    with suppress(OSError):  # a folder that cannot be written only costs time
        text = json.dumps({"sections": paper.sections}, ensure_ascii=False, indent=1)
        _write(stored, text.encode())
    return paper


def _pdf() -> Path | None:
    """The PDF to read: the one named by ANNOTATED_PAPER_PDF, else one in the paper's folder."""
    named = os.environ.get("ANNOTATED_PAPER_PDF")
    if named == "no":
        return None
    if named:
        here = Path.cwd()
        choices = [base / Path(named).expanduser() for base in (here, *here.parents)]
        if found := next((path for path in choices if path.exists()), None):
            return found
        raise FileNotFoundError(f"ANNOTATED_PAPER_PDF names {named}, which is not there")
    folder = paper_folder()
    kept = [folder / "paper.pdf", *sorted(folder.glob("*.pdf"))]
    return next((path for path in kept if path.is_file()), None)


@lru_cache(maxsize=4)
def _loaded(pdf: Path, changed: int, size: int) -> Paper:
    """The paper in a PDF; a file that has changed since is read anew."""
    return _read(pdf)


def find_paper() -> Paper | None:
    """The reader's paper, or None if there is none; nothing is downloaded.

    It is the PDF that the environment variable ANNOTATED_PAPER_PDF names, else one that lies in
    `paper_folder()`; with "no" in the variable there is none.
    Raises: OSError if the named file is missing; ValueError if it is unusable.
    """
    pdf = _pdf()
    if pdf is None:
        return None
    state = pdf.stat()
    return _loaded(pdf.resolve(), state.st_mtime_ns, state.st_size)


def import_paper(pdf: str | Path) -> Path:
    """Check a PDF of the paper, keep a copy in `paper_folder()`, and return the copy's path.

    Raises: OSError if there is no such file; ValueError if it is unusable (see `extract_paper`).
        Then nothing has changed.
    """
    pdf = Path(pdf).expanduser()
    _read(pdf)
    kept = paper_folder() / "paper.pdf"
    _write(kept, pdf.read_bytes())
    return kept


def get_paper(versions: Iterable[str] = ("v7", "v5")) -> Path:
    """Download the paper from arXiv, unless it is here already; return the path of the PDF.

    Raises: ConnectionError if arXiv cannot be reached; ValueError if no version can be read.
    """
    if find_paper() and (pdf := _pdf()):
        return pdf
    reasons = []
    for version in versions:
        try:
            return _download(f"https://arxiv.org/pdf/1706.03762{version}")
        except ValueError as error:
            reasons.append(str(error))
    raise ValueError("; ".join(reasons))


def _download(url: str) -> Path:
    """Fetch a PDF of the paper, with a progress bar, and import it."""
    import tempfile

    from annotated.downloads import fetch_url

    with tempfile.TemporaryDirectory() as folder:
        pdf = Path(folder) / "paper.pdf"
        try:
            fetch_url(url, pdf)
        except OSError as error:
            raise ConnectionError(
                f"{url} could not be downloaded ({type(error).__name__}). Download it by other "
                "means and set ANNOTATED_PAPER_PDF to the file, or pass it to import_paper()."
            ) from error
        return import_paper(pdf)


@dataclass(frozen=True)
class Quotation:
    """A paragraph of the paper (Markdown) and where it stands; notebooks show it as a quotation."""

    text: str
    place: str

    def _repr_markdown_(self) -> str:
        return f"> {self.text}\n>\n> — [Vaswani et al. (2017), {self.place}]({_URL})"

    def __str__(self) -> str:
        return f"{self.text}\n— Vaswani et al. (2017), {self.place}"


def quote(section: str, number: int = 1) -> Quotation | None:
    """The paper's own paragraph, read from the reader's PDF; None if there is no PDF.

    Args:
        section: such as "abstract", "3.2.1", "figure-1", "table-3", "footnote-4"
        number: of the paragraph within the section, from 1

    Raises: ValueError if the paper has no such paragraph.
    """
    paper = find_paper()
    if paper is None:
        return None
    text = paper.paragraph(section, number)
    numbered = section[0].isdigit()
    place = f"§{section} ¶{number}" if numbered else section.capitalize().replace("-", " ")
    return Quotation(text, place)
