"""Count the words of the chapters, and what a native editor would stop at.

    python book/words.py                      a line for each page
    python book/words.py --show chapters/X.md  each place, with its sentence

Words of the read part and of the laboratory are counted apart, and the visible lines of code in
the read part without imports, docstrings and blank lines. A hit is a place to look at, not an
error: habits of a translation, such as "hardly" or "what it reads" as a noun. The command fails
when a page passes a limit, or all read parts of the paper together.
"""

import argparse
import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from contents import pages, sources

READ, HITS, SHORT, CODE = 12_000, 6.0, 15.0, 40  # words; per 1,000 words; percent; lines
BORDER = re.compile(r"^## Laboratory$", re.MULTILINE)
HABITS = {
    "stands for is": r"\bst(?:and|ands|ood|anding)\b(?! for\b| out\b| up\b)",
    "place for position or step": r"\bplaces?\b(?! an?\b| the\b| it\b)",
    "things that say, tell or ask": r"\b(?:says?|said|tells?|told|asks?|asked)\b",
    "by itself": r"\bby (?:itself|themselves)\b",
    "beside": r"\bbesides?\b",
    "but for": r"\bbut for\b",
    "hardly": r"\bhardly\b",
    "what, whatever as a noun": r"(?:^|[.;:,] |\b(?:of|to|by|from|with|for|on|in|and|is) )"
    r"what(?:ever)?\b(?! (?:is|are|does|do|did|would|happens)\b.*\?)",
    "of which, of whom": r"\b(?:of which|of whom|whoever)\b",
    "that of, those of": r"\b(?:that|those) of\b",
    "of its own, of ours": r"\bof (?:its|their|our) own\b|\bof (?:ours|theirs)\b",
    "learnt, dreamt": r"\b(?:learnt|dreamt|spelt|burnt|leant)\b",
    "where for whereas": r"[,;] where\b",
    "a for per": r"\b(?:a|each) (?:token|sentence|batch|step|core|thread|layer|head|update|pair) "
    r"a\b|\d+ (?:\w+ )?an? (?:token|second|step|sentence|batch|update|pair|thread|GPU)\b",
    "so many, so much": r"\bso (?:many|much) (?:\w+ )?(?:as|pairs|tokens|words)\b",
    "the one that": r"\bthe ones? (?:that|which|of)\b",
    "gives back, takes over": r"\b(?:brings?|brought|gives? back|takes? over|goes? on|went on)\b",
    "And, But, So first": r"(?:^|[.!?] )(?:And|But|So|Or|Nor|Yet)\b",
    "inversion": r"(?:^|[.!?] )(?:Nor|Neither|Beside|Of these|To this|In this|Here|There|From this"
    r"|Out of) \w+ (?:is|are|stands?|comes?|lies?)\b",
}
# What is no prose: front matter, fences, mathematics, tables, targets, images, links, roles, code.
NO_PROSE = [
    (r"\A---\n.*?\n---\n", ""),
    (r"^(`{3,}|:{3,})\{?[^\n]*\n.*?^\1[ \t]*$", ""),
    (r"\$\$.*?\$\$", ""),
    (r"\$[^$\n]*\$", "X"),
    (r"^\|[^\n]*$|^\([\w-]+\)=\s*$|!\[[^\]]*\]\([^)]*\)", ""),
    (r"\[([^\]]*)\]\([^)]*\)", r"\1"),
    (r"\{[\w:]+\}`[^`]*`", ""),
    (r"`[^`\n]*`", "X"),
    (r"<[^>]+>|^#+ [^\n]*$|^> ?|[*_]{1,2}", ""),
]


def sentences(text: str) -> list[str]:
    """The prose of a page, sentence by sentence; what has one or two words is none."""
    for pattern, replacement in NO_PROSE:
        text = re.sub(pattern, replacement, text, flags=re.DOTALL | re.MULTILINE)
    blocks = (" ".join(part.split()) for part in re.split(r"\n\s*\n|\n[-*\d]+[.)]? ", text))
    kept = (block for block in blocks if len(block.split()) > 2)
    return [
        sentence.strip()
        for block in kept
        for sentence in re.split(r'(?<=[.!?]) (?=[A-Z§“"(])', block)
    ]


def words(said: list[str]) -> int:
    return sum(len(sentence.split()) for sentence in said)


def code_lines(text: str) -> int:
    """Lines of the visible cells, without imports, docstrings, comments and blank lines."""
    total = 0
    for cell in re.findall(r"^```\{code-cell\}[^\n]*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        if re.search(r"^:tags: \[.*(hide|remove|paper)", cell, re.MULTILINE):
            continue
        source = re.sub(r"^:[^\n]*\n", "", cell, flags=re.MULTILINE)
        try:
            tree = ast.parse(source)
        except SyntaxError:  # a magic of Jupyter
            total += len(source.split("\n"))
            continue
        lines = {
            number
            for number, line in enumerate(source.split("\n"), start=1)
            if line.strip() and not line.strip().startswith("#")
        }
        for node in ast.walk(tree):
            docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if docstring or isinstance(node, ast.Import | ast.ImportFrom):
                lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        total += len(lines)
    return total


@dataclass
class Page:
    """What is counted of a page.

    Args:
        read, laboratory: words.   code: visible lines in the read part, None without laboratory.
        hits: by habit, their sentences.   short: percent of sentences of at most eight words.
    """

    read: int
    laboratory: int
    code: int | None
    hits: dict[str, list[str]]
    short: float

    @property
    def rate(self) -> float:
        """Hits per 1,000 words."""
        return 1000 * sum(map(len, self.hits.values())) / max(1, self.read + self.laboratory)


def count(text: str) -> Page:
    read, *rest = BORDER.split(text, maxsplit=1)
    first, second = sentences(read), sentences(rest[0]) if rest else []
    said = first + second
    hits = {
        habit: [s for s in said for _ in re.finditer(pattern, s, re.IGNORECASE)]
        for habit, pattern in HABITS.items()
    }
    few = sum(len(sentence.split()) <= 8 for sentence in said)
    code = code_lines(read) if rest else None
    return Page(words(first), words(second), code, hits, 100 * few / max(1, len(said)))


def faults(pages: dict[str, Page]) -> list[str]:
    """Which limits are passed; a page of fewer than 150 words has only that of the code."""
    found = []
    for name, page in pages.items():
        long = page.read + page.laboratory >= 150
        if long and page.rate > HITS:
            found.append(f"{name}: {page.rate:.1f} hits per 1,000 words, above {HITS:g}")
        if long and page.short > SHORT:
            found.append(f"{name}: {page.short:.0f} % short sentences, above {SHORT:g}")
        if (page.code or 0) > CODE:
            found.append(f"{name}: {page.code} lines of code in the read part, above {CODE}")
    total = sum(page.read for page in pages.values() if page.code is not None)
    if total > READ:
        found.append(f"{total:,} words in the paper's read parts, above {READ:,}")
    return found


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("files", nargs="*", type=Path, help="pages (default: all of the contents)")
    parser.add_argument("--show", action="store_true", help="print the sentence of each hit")
    options = parser.parse_args()
    files = options.files or [sources()[page] for page in pages()]
    counted = {path.stem: count(path.read_text(encoding="utf-8")) for path in files}
    print(f"{'page':28} {'read':>6} {'lab.':>6} {'code':>5} {'hits':>6} {'short':>6}")
    for name, page in counted.items():
        code = "" if page.code is None else page.code
        words = f"{page.read:6,} {page.laboratory:6,} {code:>5}"
        print(f"{name:28} {words} {page.rate:6.1f} {page.short:5.0f}%")
        for habit, hits in page.hits.items() if options.show else ():
            for sentence in hits:
                print(f"    {habit}: {sentence[:200]}")
    read = [page for page in counted.values() if page.code is not None]
    total = sum(page.laboratory for page in read)
    print(
        f"the paper: {sum(page.read for page in read):,} words to read, {total:,} in laboratories"
    )
    if found := faults(counted):
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
