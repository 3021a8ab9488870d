"""Corpora."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest


@dataclass
class PairReport:
    """How many pairs of a file are good, and the line numbers of the others by what is wrong."""

    name: str
    good: int = 0
    bad: dict[str, list[int]] = field(default_factory=dict)

    def add(self, more: "PairReport") -> None:
        """Count what a report of later lines has counted."""
        self.good += more.good
        for fault, lines in more.bad.items():
            self.bad.setdefault(fault, []).extend(lines)

    def __str__(self) -> str:
        faults = []
        for fault, lines in self.bad.items():
            first = ", ".join(map(str, lines[:5])) + (", …" if len(lines) > 5 else "")
            faults.append(f"{len(lines):,} {fault} (line{'s' * (len(lines) > 1)} {first})")
        total = self.good + sum(map(len, self.bad.values()))
        return f"{self.name}: {self.good:,} good pairs of {total:,}" + "".join(
            f"; {fault}" for fault in faults
        )


def _judge(sides: tuple[bytes | str | None, ...], max_words: int | None) -> tuple[list[str], str]:
    """The sides of a pair as text, and what is wrong with them; "" if nothing is."""
    if None in sides:
        return [], "without a partner"
    try:
        texts = [s if isinstance(s, str) else s.decode("utf-8") for s in sides if s is not None]
    except UnicodeDecodeError:
        return [], "not UTF-8"
    if not all(text.strip() for text in texts):
        return texts, "with an empty side"
    if max_words and max(len(text.split()) for text in texts) > max_words:
        return texts, f"longer than {max_words} words"
    return texts, ""


Line = tuple[int, bytes | str | None, bytes | str | None]  # number, source, target


def good_pairs(
    lines: Iterable[Line], report: PairReport, max_words: int | None = None
) -> Iterator[list[str]]:
    """The pairs that can be used, as they come; the others are noted in the report.

    Args:
        lines: numbers with source and target, each bytes in UTF-8, text, or None if missing.
        max_words: most words that a side may have; None for no limit.
    """
    for number, source, target in lines:
        texts, fault = _judge((source, target), max_words)
        if fault:
            report.bad.setdefault(fault, []).append(number)
        else:
            report.good += 1
            yield texts


def check_bad(report: PairReport, on_bad: str) -> None:
    """Raise ValueError with the report if pairs are bad and shall be refused."""
    if on_bad not in ("refuse", "drop"):
        raise ValueError(f'expected on_bad to be "refuse" or "drop"; got {on_bad!r}')
    if report.bad and on_bad == "refuse":
        raise ValueError(f'{report}; mend them, or leave them out with on_bad="drop"')


def clean_pairs(
    source: Iterable[bytes | str | None],
    target: Iterable[bytes | str | None],
    on_bad: str = "refuse",
    max_words: int | None = None,
    name: str = "pairs",
) -> tuple[list[str], list[str], PairReport]:
    """Keep the pairs that can be used, and report the others.

    Args:
        source, target: lines; bytes are decoded as UTF-8; None stands for a missing line.
        on_bad: "refuse" to stop at bad pairs, "drop" to leave them out.
        max_words: most words that a side may have; None for no limit.
        name: what the report is about.

    Returns: good source lines, good target lines, and the report.

    Raises: ValueError with the report if pairs are bad and shall be refused.
    """
    report = PairReport(name)
    lines = ((n, *sides) for n, sides in enumerate(zip_longest(source, target), start=1))
    good = list(good_pairs(lines, report, max_words))
    check_bad(report, on_bad)
    return [texts[0] for texts in good], [texts[1] for texts in good], report
