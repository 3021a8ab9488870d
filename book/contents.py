"""The pages of the book, their source files, and the modules that their cells import from here.

python book/contents.py    prints how many words and lines of code each page has
"""

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


def helpers(code: str) -> dict[str, Path]:
    """The modules of `book/` that code imports ("charts"), each after those that it imports itself.

    Such an import is a line `from book import NAMES` or `from book.NAME import …`. They run where
    the chapters run: in the build, in Jupyter, and inside the notebooks that readers download.
    """
    found: dict[str, Path] = {}
    line = re.compile(r"^from book(?:\.([\w.]+) import|\b import ([\w, ]+))", re.MULTILINE)
    for package, names in line.findall(code):
        for name in [package] if package else names.replace(",", " ").split():
            path = ROOT / "book" / f"{name.replace('.', '/')}.py"
            found |= helpers(path.read_text(encoding="utf-8")) | {name: path}
    return found


def main() -> None:
    """Print the size of each page, for whoever wonders; no number is a limit."""
    print(f"{'page':28} {'words':>7} {'code':>7}")
    total = [0, 0]
    for page in pages():
        text = sources()[page].read_text(encoding="utf-8")
        cells = re.findall(r"^```\{code-cell\}.*?^```$", text, re.DOTALL | re.MULTILINE)
        code = sum(cell.count("\n") - 1 for cell in cells)
        words = len(text.split()) - sum(len(cell.split()) for cell in cells)
        print(f"{page:28} {words:7,} {code:7,}")
        total = [total[0] + words, total[1] + code]
    print(f"{len(pages())} pages, {total[0]:,} words, {total[1]:,} lines of code in cells")


if __name__ == "__main__":
    main()
