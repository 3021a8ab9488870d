"""The pages of the book, and their source files."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = ROOT / "chapters"


def pages() -> list[str]:
    """Names of the pages ("index", "machinery/firefox"), in the order of the table of contents."""
    return re.findall(r"chapters/([\w/-]+)", (ROOT / "_toc.yml").read_text(encoding="utf-8"))


def sources(chapters: Path = CHAPTERS) -> dict[str, Path]:
    """The Markdown file of each page, by the page's name: first the paper's, then the others."""
    found = [*sorted(chapters.glob("*.md")), *sorted(chapters.glob("machinery/*.md"))]
    return {path.relative_to(chapters).with_suffix("").as_posix(): path for path in found}
