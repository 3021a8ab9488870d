"""Every claim, and what became of it."""

import html
import re
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

MARKS = {
    "holds": ("✓", "#009e73"),
    "holds at small scale": ("≈", "#56b4e9"),
    "not reproduced here": ("≉", "#e69f00"),
    "differs": ("✗", "#d55e00"),
    "open": ("○", "#999999"),
}  # of each verdict: a sign, and a colour for those who see it


@dataclass(frozen=True)
class Verdict:
    """What became of a claim; a notebook shows it, and the build of the book collects it.

    Args:
        id: its short name.   statement: what the paper says, in our words.
        section: where the paper says it.   verdict: one of MARKS.
        evidence: the numbers that decide.
    """

    id: str
    statement: str
    section: str
    verdict: str
    evidence: str

    @property
    def place(self) -> str:
        """Where the paper makes the claim, as it is shown: §3.2.1, or abstract."""
        return f"§{self.section}" if self.section[0].isdigit() else self.section

    def __str__(self) -> str:
        mark, _ = MARKS[self.verdict]
        return f"{mark} {self.verdict} ({self.place}): {self.statement}\n  {self.evidence}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {
            "text/plain": str(self),
            "text/html": _as_html(self),
            "application/vnd.annotated.claim+json": asdict(self),
        }


def _as_html(verdict: Verdict) -> str:
    """A verdict as an aside that needs no style sheet."""
    mark, colour = MARKS[verdict.verdict]
    text = {name: html.escape(value) for name, value in asdict(verdict).items()}
    return (
        f'<aside class="claim" id="claim-{text["id"]}" role="note" '
        f'aria-label="a claim of {verdict.place}: {text["verdict"]}" '
        f'data-verdict="{text["verdict"]}" '
        f'style="border-left: 4px solid {colour}; margin: 0.5em 0; padding: 0 0 0 0.8em">'
        f'<p style="margin: 0"><strong>{mark} {text["verdict"]}</strong> · {verdict.place} · '
        f"{text['statement']}</p>"
        f'<p style="margin: 0; font-size: 0.9em">{text["evidence"]}</p></aside>'
    )


_FORMS = {
    "id": r"[a-z][\w.-]*",
    "statement": r"\S.*",
    "section": r"abstract|[1-7](\.[1-9])*",
    "evidence": r"\S.*",
}


def claim(
    id: str, statement: str, *, section: str, holds: bool | None, evidence: str, small: bool = False
) -> Verdict:
    """Say what became of a claim of the paper; best as the last line of a cell, which shows it.

    Args:
        id: a short name that no other claim has, such as "s2-constant".
        statement: what the paper says: one sentence, in our words.
        section: where the paper says it, such as "3.2.1", or "abstract".
        holds: whether it is true, as computed; None if that cannot be told here.
        evidence: the numbers that decide, in a few words.
        small: whether a training at small scale says so.

    Returns: the verdict: "holds", or "holds at small scale" if small; "differs", or "not reproduced
        here" if small; "open" if nobody can tell.

    Raises: TypeError if `holds` is neither a bool nor None; ValueError for an empty statement or
        evidence, and for an id or a section of another form.
    """
    if not (holds is None or isinstance(holds, (bool, np.bool_))):
        raise TypeError(f"claim {id}: holds has to be True, False or None; got {holds!r}")
    given = {"id": id, "statement": statement, "section": section, "evidence": evidence}
    for name, form in _FORMS.items():
        if not re.fullmatch(form, given[name], flags=re.ASCII | re.DOTALL):
            raise ValueError(f"claim {id}: {name} cannot be {given[name]!r}")
    if holds is None:
        verdict = "open"
    elif small:
        verdict = "holds at small scale" if holds else "not reproduced here"
    else:
        verdict = "holds" if holds else "differs"
    return Verdict(verdict=verdict, **given)
