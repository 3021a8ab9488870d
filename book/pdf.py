"""Print the built site as one PDF, with headless Chromium.

    python book/pdf.py        _build/html → _build/pdf/attention-is-all-you-need.pdf

Requires `make book` first, and a Chromium: on the PATH, or from `playwright install chromium`.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from contents import ROOT, pages
from playwright.sync_api import Browser, sync_playwright
from pypdf import PdfReader, PdfWriter
from pypdf.generic import ArrayObject, NameObject

from annotated.machinery.progress import progress_bar

SITE = ROOT / "_build" / "html" / "chapters"
PDF = ROOT / "_build" / "pdf" / "attention-is-all-you-need.pdf"
READY = "!document.querySelector('div.chart:not(.drawn)')"


def print_page(browser: Browser, page: str, file: Path) -> str:
    """Print one page of the site and return its title."""
    # The pages' content policy would forbid waiting with a script.
    tab = browser.new_page(viewport={"width": 900, "height": 1200}, bypass_csp=True)
    tab.goto((SITE / f"{page}.html").as_uri())
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")  # draws all charts
    tab.wait_for_function(READY, timeout=60_000)
    margin = dict.fromkeys(["top", "right", "bottom", "left"], "18mm")
    tab.pdf(path=file, format="A4", margin=margin, tagged=True)
    title = tab.locator("h1").first.inner_text().strip("#").strip()
    tab.close()
    return title


def links(writer: PdfWriter) -> Iterator[tuple[int, dict, str]]:
    """Links to other pages of the site: number of the sheet, annotation, and name of the page."""
    for number, sheet in enumerate(writer.pages):
        for reference in sheet.get("/Annots", []):
            annotation = reference.get_object()
            url = annotation.get("/A", {}).get("/URI", "")
            if found := re.match(rf"{re.escape(SITE.as_uri())}/([\w/-]+)\.html", url):
                yield number, annotation, found[1]


def bind(printed: dict[str, tuple[str, Path]], file: Path) -> None:
    """One PDF made of many, with an outline and with links within the PDF."""
    writer, starts = PdfWriter(), {}
    for page, (title, part) in printed.items():
        starts[page] = len(writer.pages)
        writer.append(PdfReader(part), outline_item=title, import_outline=False)
    for _, annotation, page in list(links(writer)):
        if page in starts:
            del annotation["/A"]
            sheet = writer.pages[starts[page]].indirect_reference
            annotation[NameObject("/Dest")] = ArrayObject([sheet, NameObject("/Fit")])
    writer.add_metadata({"/Title": "Attention Is All You Need: the executable edition"})
    file.parent.mkdir(parents=True, exist_ok=True)
    writer.compress_identical_objects()
    writer.write(file)


def main() -> None:
    if not (SITE / "index.html").exists():
        sys.exit(f"no site in {SITE.parent}; run `make book` first")
    with sync_playwright() as playwright, TemporaryDirectory() as folder:
        found = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        printed = {}
        for page in progress_bar(pages(), unit="page"):
            part = Path(folder, f"{Path(page).name}.pdf")
            printed[page] = (print_page(browser, page, part), part)
        browser.close()
        bind(printed, PDF)
    print(f"{PDF}: {len(PdfReader(PDF).pages)} sheets, {PDF.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
