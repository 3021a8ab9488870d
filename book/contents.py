"""The pages of the book."""

import re
from pathlib import Path

CONTENTS = Path(__file__).resolve().parent.parent / "_toc.yml"


def pages() -> list[str]:
    """Names of the pages, in the order of the table of contents."""
    return re.findall(r"chapters/([\w-]+)", CONTENTS.read_text(encoding="utf-8"))
