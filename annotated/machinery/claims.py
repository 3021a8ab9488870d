"""Which claims of the paper held up when the book's cells checked them.

A notebook shows a verdict as a box; the build of the book reads its JSON form from the executed
notebooks and collects all verdicts on one page (book/claims.py).
"""

import html
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

MARKS = {
    "holds": ("✓", "#009e73"),
    "holds at small scale": ("≈", "#56b4e9"),
    "not reproduced here": ("≉", "#e69f00"),
    "differs": ("✗", "#d55e00"),
    "open": ("○", "#999999"),
}  # sign and color of each verdict; the sign is for readers who cannot distinguish the colors


@dataclass(frozen=True)
class Verdict:
    """The verdict on one claim of the paper, with the arguments of `claim` and one of MARKS."""

    id: str
    statement: str
    section: str
    verdict: str
    evidence: str

    @property
    def place(self) -> str:
        """The section as it is displayed: §3.2.1, or abstract."""
        return f"§{self.section}" if self.section[0].isdigit() else self.section

    def __str__(self) -> str:
        mark, _ = MARKS[self.verdict]
        return f"{mark} {self.verdict} ({self.place}): {self.statement}\n  {self.evidence}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        mark, color = MARKS[self.verdict]
        text = {name: html.escape(value) for name, value in asdict(self).items()}
        aside = (  # styled inline, so that it looks the same in a notebook
            f'<aside class="claim" id="claim-{text["id"]}" role="note" '
            f'aria-label="a claim of {self.place}: {text["verdict"]}" '
            f'data-verdict="{text["verdict"]}" '
            f'style="border-left: 4px solid {color}; margin: 0.5em 0; padding: 0 0 0 0.8em">'
            f'<p style="margin: 0"><strong>{mark} {text["verdict"]}</strong> · {self.place} · '
            f"{text['statement']}</p>"
            f'<p style="margin: 0; font-size: 0.9em">{text["evidence"]}</p></aside>'
        )
        return {
            "text/plain": str(self),
            "text/html": aside,
            "application/vnd.annotated.claim+json": asdict(self),
        }


def claim(
    id: str, statement: str, *, section: str, holds: bool | None, evidence: str, small: bool = False
) -> Verdict:
    """Record whether a claim of the paper holds; use it as the last line of a cell.

    Args:
        id: a short name that no other claim has, such as "s2-constant".
        statement: the claim in one sentence, in our words.
        section: where the paper makes it, such as "3.2.1", or "abstract".
        holds: whether it is true, as computed; None if that cannot be decided here.
        evidence: the numbers that decide, in a few words.
        small: whether the evidence is a training run at small scale.

    Returns: the verdict: "holds", or "holds at small scale" if small; "differs", or "not
        reproduced here" if small; "open" if holds is None.

    Raises: TypeError if holds is neither a bool nor None. That no part is empty, and that no id
        is used twice, is checked by the build of the book.
    """
    if not (holds is None or isinstance(holds, (bool, np.bool_))):
        raise TypeError(f"claim {id}: expected True, False or None for holds; got {holds!r}")
    small_scale = "holds at small scale", "not reproduced here"
    held, failed = small_scale if small else ("holds", "differs")
    verdict = "open" if holds is None else held if holds else failed
    return Verdict(id, statement, section, verdict, evidence)
