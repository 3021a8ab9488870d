"""The paper's PDF."""

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from annotated.machinery.paper.pdf import Paper, extract_paper


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
    from annotated.machinery.files import writing

    with writing(path) as part:
        part.write_bytes(content)


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


def paper_file() -> Path | None:
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
    pdf = paper_file()
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
    if find_paper() and (pdf := paper_file()):
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

    from annotated.machinery.downloads import fetch_url

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


_URL = "https://arxiv.org/abs/1706.03762"


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
