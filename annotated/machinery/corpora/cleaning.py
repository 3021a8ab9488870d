"""Selection of the usable sentence pairs of a corpus, with a report of the others.

Some parallel corpora contain empty lines, lines that are not UTF-8, or sides of unequal length.
Dropping them silently would hide misaligned files, so each is counted with its line number.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from annotated.machinery.checks import bare_text
from annotated.machinery.errors import InputError

Line = tuple[int, bytes | str | None, bytes | str | None]  # number, source, target


@dataclass
class PairReport:
    """Number of good pairs in a file, and the line numbers of the others by fault."""

    name: str
    good: int = 0
    bad: dict[str, list[int]] = field(default_factory=dict)

    def add(self, later: "PairReport") -> None:
        """Add the counts of a report on subsequent lines."""
        self.good += later.good
        for fault, lines in later.bad.items():
            self.bad.setdefault(fault, []).extend(lines)

    def check(self, on_bad: str) -> None:
        """Raise InputError with the report if there are bad pairs and `on_bad` is "refuse"."""
        if on_bad not in ("refuse", "drop"):
            raise InputError(f'expected on_bad to be "refuse" or "drop"; got {on_bad!r}')
        if self.bad and on_bad == "refuse":
            advice = 'correct them, or drop them with --on-bad drop (on_bad="drop" in Python)'
            if len(self.bad.get("not UTF-8", [])) > self.good:
                advice = "the text is probably in another encoding, such as Windows-1252; convert "
                advice += "it: iconv -f WINDOWS-1252 -t UTF-8 FILE"
            raise InputError(f"{self}; {advice}")

    def __str__(self) -> str:
        faults = ""
        for fault, lines in self.bad.items():
            first = ", ".join(map(str, lines[:5])) + (", …" if len(lines) > 5 else "")
            faults += f"; {len(lines):,} {fault} (line{'s' * (len(lines) > 1)} {first})"
        total = self.good + sum(map(len, self.bad.values()))
        return f"{self.name}: {self.good:,} good pairs of {total:,}{faults}"


def good_pairs(lines: Iterable[Line], report: PairReport, bare: bool = True) -> Iterator[list[str]]:
    """The usable pairs, as they arrive; the others are recorded in the report.

    Args:
        lines: number, source and target; either side is UTF-8 bytes, text, or None if missing.
        bare: yield each side after `bare_text`.
    """
    for number, *sides in lines:
        try:
            texts = [s.decode("utf-8") if isinstance(s, bytes) else s for s in sides]
            found = [text and bare_text(text) for text in texts]
        except UnicodeDecodeError:
            fault = "not UTF-8"
        else:
            if all(found):
                report.good += 1
                yield found if bare else texts  # type: ignore[misc]  # neither is None
                continue
            fault = "without a partner" if None in found else "with an empty side"
        report.bad.setdefault(fault, []).append(number)
