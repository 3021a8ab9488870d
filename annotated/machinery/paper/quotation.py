"""The reader's own copy of the paper, and quotations from it.

The paper's sentences belong to their authors, so this repository contains none of them: they are
read from the reader's PDF, and without a PDF the book shows only its own words. Because extraction
takes seconds, the text is stored next to the copy, named after the PDF's bytes and `_FORMAT`.
Importing this module loads no PDF library, because every chapter imports it.
"""

import hashlib
import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from annotated.machinery.errors import FileError, InputError
from annotated.machinery.files import resource_path, write_text, writing
from annotated.machinery.paper.pdf import PARTS, check_pdf, extract_paper

_FORMAT = b"5"  # increase this number when extraction changes, so that stored text is not reused
_URL = "https://arxiv.org/abs/1706.03762"
_PDF = "https://arxiv.org/pdf/1706.03762"
_VERSIONS = {  # SHA-256 of the versions that can be downloaded, in order of preference
    "v7": "bdfaa68d8984f0dc02beaca527b76f207d99b666d31d1da728ee0728182df697",
    "v5": "92da9a61f72ecbf5437d697d45f867199239fa376fabb433e6196635fda3acdb",
}


def paper_folder() -> Path:
    """The folder of the paper: `data/paper` in this repository, or a user's if it is installed."""
    data = resource_path("corpora.toml").parent
    if data.name == "data":
        return data / "paper"
    from platformdirs import user_cache_path

    return user_cache_path("annotated") / "paper"


def _read(pdf: Path) -> dict[str, list[str]]:
    """The paper in a PDF, or its stored text if this PDF has been read before."""
    check_pdf(pdf)
    digest = hashlib.sha256(_FORMAT + pdf.read_bytes()).hexdigest()
    stored = paper_folder() / f"{digest[:16]}.json"
    with suppress(OSError, ValueError):  # not there yet, or damaged
        paper = json.loads(stored.read_text(encoding="utf-8"))
        whole = isinstance(paper, dict) and paper.keys() >= PARTS
        if whole and all(isinstance(x, list) and {*map(type, x)} <= {str} for x in paper.values()):
            return paper
    paper = extract_paper(pdf)
    with suppress(OSError):  # if the folder cannot be written, this only costs time
        write_text(stored, json.dumps(paper, ensure_ascii=False, indent=1))
    return paper


def paper_file() -> Path | None:
    """The PDF to read: the one named by ANNOTATED_PAPER_PDF, else one in the paper's folder.

    A relative name is searched for in the current folder and those above it; with "no" in the
    variable there is no paper. Raises: FileNotFoundError if the named file is missing.
    """
    named = os.environ.get("ANNOTATED_PAPER_PDF")
    if named == "no":
        return None
    if named:
        here = Path.cwd()
        choices = [base / os.path.expanduser(named) for base in (here, *here.parents)]
        if found := next((path for path in choices if path.exists()), None):
            return found
        raise FileNotFoundError(f"ANNOTATED_PAPER_PDF names {named}, which does not exist")
    folder = paper_folder()
    kept = [folder / "paper.pdf", *sorted(folder.glob("*.pdf"))]
    return next((path for path in kept if path.is_file()), None)


def find_paper() -> dict[str, list[str]] | None:
    """The paragraphs of the sections of the paper in `paper_file()`; None if there is no paper.

    Raises: FileNotFoundError if the named file is missing; FileError if it cannot be used.
    """
    pdf = paper_file()
    return None if pdf is None else _read(pdf)


def import_paper(pdf: str | Path) -> Path:
    """Check a PDF of the paper, keep a copy in `paper_folder()`, and return the copy's path.

    Raises: OSError if there is no such file, or FileError if it cannot be used (see
        `extract_paper`). Then nothing has changed.
    """
    pdf = Path(os.path.expanduser(pdf))
    _read(pdf)
    kept = paper_folder() / "paper.pdf"
    with writing(kept) as part:
        part.write_bytes(pdf.read_bytes())
    return kept


def get_paper() -> Path:
    """Download the paper from arXiv unless it is available; return the path of the PDF.

    Raises: FileError if no known version can be downloaded, or if it cannot be read.
    """
    from annotated.machinery.corpora.downloads import download

    if find_paper() and (pdf := paper_file()):
        return pdf
    reasons = []
    for version, sha256 in _VERSIONS.items():
        try:
            pdf = download(_PDF + version, paper_folder() / f"paper-{version}.pdf", sha256)
        except FileError as error:
            reasons.append(str(error))
        else:
            _read(pdf)
            return pdf
    raise FileError(f"{'; '.join(reasons)}; or set ANNOTATED_PAPER_PDF to a copy")


@dataclass(frozen=True)
class Quotation:
    """A paragraph of the paper (Markdown) and its location; notebooks show it as a quotation."""

    text: str
    place: str

    def _repr_markdown_(self) -> str:
        parts = self.text.split("$")  # prose at even and our own LaTeX at odd indices
        parts[::2] = [re.sub(r"[\\`<>\[\]{}]", r"\\\g<0>", part) for part in parts[::2]]
        return f"> {'$'.join(parts)}\n>\n> — [Vaswani et al. (2017), {self.place}]({_URL})"

    def __str__(self) -> str:
        return f"{self.text}\n— Vaswani et al. (2017), {self.place}"


def quote(section: str, number: int = 1) -> Quotation | None:
    """The paper's own paragraph, read from the reader's PDF; None if there is no PDF.

    Args:
        section: such as "abstract", "3.2.1", "figure-1", "table-3", "footnote-4".
        number: of the paragraph within the section, from 1.

    Raises: InputError if the paper has no such paragraph.
    """
    paper = find_paper()
    if paper is None:
        return None
    if section not in paper:
        raise InputError(f"no section {section!r}; there are {', '.join(paper)}")
    paragraphs = paper[section]
    if not 1 <= number <= len(paragraphs):
        raise InputError(f"section {section!r} has {len(paragraphs)} paragraphs; got {number}")
    numbered = section[0].isdigit()
    place = f"§{section} ¶{number}" if numbered else section.capitalize().replace("-", " ")
    return Quotation(paragraphs[number - 1], place)
