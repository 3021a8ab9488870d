"""Words of prose in each chapter, and the most that some may have.

What is no prose: code, the paper layer (quoted blocks), formulas, options and marks.
"""

import re
from pathlib import Path

CHAPTERS = Path(__file__).resolve().parent.parent / "chapters"
MOST = {
    "index": 900,
    "1-introduction": 1300,
    "2-background": 1100,
    "3-model-architecture": 530,
    "3-assembly": 670,
    "3-1-encoder-decoder-stacks": 1200,
    "3-2-attention": 3000,
    "3-3-feed-forward": 1000,
    "3-4-embeddings-softmax": 900,
    "3-5-positional-encoding": 1400,
    "5-1-data-batching": 1500,
    "5-2-hardware-schedule": 1500,
    "6-1-machine-translation": 2500,
    "6-2-model-variations": 1500,
    "6-3-constituency-parsing": 2000,
    "attention-visualizations": 2000,
    "making-of": 800,
}
NOT_PROSE = [
    r"\A---\n.*?^---\n",  # the header
    r"^(`{3,})(?:\{(?:code-cell|bibliography|live|literalinclude)\}|\w*\n).*?^\1\s*$",
    r"^>.*?$",
    r"^:\w.*?$|^[`:]{3,}.*?$|^\(\S+\)=$|^\|[-| :]+\|$",  # options, fences, anchors, rules of tables
    r"\$\$.*?\$\$",
    r"\]\([^)]*\)|</?[a-z][^>]*>",  # where links lead, HTML
]


def prose(text: str) -> str:
    """A chapter's text without what is no prose; a formula in a line counts as a word."""
    for pattern in NOT_PROSE:
        text = re.sub(pattern, "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"\$[^$]*\$|\{\w+\}`[^`]*`", "x", text)


def count(text: str) -> int:
    """Words of prose in a chapter."""
    return len(re.findall(r"\w[\w'’.,-]*", prose(text)))


def main() -> int:
    """Print the table; how many chapters are too long."""
    over = 0
    for path in sorted(CHAPTERS.glob("*.md")):
        words, most = count(path.read_text(encoding="utf-8")), MOST.get(path.stem)
        too_many = most is not None and words > most
        over += too_many
        print(f"{path.stem:28}{words:6,}{most or '':>7}{'  too long' if too_many else ''}")
    return over


if __name__ == "__main__":
    raise SystemExit(main() > 0)
