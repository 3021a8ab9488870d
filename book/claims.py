"""Verdicts on the paper's claims, as the cells of the book compute them.

A notebook shows a verdict as a box; the build of the book reads its JSON form from the executed
notebooks and collects all verdicts on one page (book/verdicts.py).
"""

import html
import re
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from annotated.machinery.palette import COLORS

KINDS = {
    "by construction": "holds by construction",
    "in the paper's own numbers": "holds in the paper's own numbers",
    "measured here": "measured here",
    "at small scale": "measured at small scale",
    "on the paper's hardware": "measured here",
}  # kind of evidence → verdict on a claim that holds
MARKS = {
    "holds by construction": ("≡", "#00664b"),
    "holds in the paper's own numbers": ("=", COLORS["green"]),
    "measured here": ("✓", "#3fb68f"),
    "measured at small scale": ("≈", "#7cc9af"),
    "not reproduced here": ("≉", COLORS["orange"]),
    "differs": ("≠", COLORS["vermilion"]),
    "needs the paper's hardware": ("◇", COLORS["gray"]),
    "open": ("○", "#999999"),
}  # sign and color of each verdict: green if it holds, warm if it does not, gray if undecided
NOT_RUN = "not run yet"  # evidence of a claim that waits for the paper's hardware


@dataclass(frozen=True)
class Verdict:
    """The verdict on one claim, with the arguments of `claim` and one of MARKS."""

    id: str
    statement: str
    section: str
    verdict: str
    evidence: str
    control: str

    @property
    def place(self) -> str:
        """The section as it is displayed: §3.2.1 ¶4; §4, Table 1; or Abstract."""
        return f"§{self.section}" if self.section[0].isdigit() else self.section

    @property
    def mark(self) -> str:
        """How the book marks what the paper says there: §3.2.1 ¶4, Table 1 or Abstract."""
        return self.place.rpartition(", ")[2]

    @property
    def edge(self) -> str:
        """The rule at the left of a verdict, in CSS; it is broken while the verdict is open."""
        return f"4px {'dashed' if self.verdict == 'open' else 'solid'} {MARKS[self.verdict][1]}"

    @property
    def refuted(self) -> str:
        """What would refute the claim, or does; nothing for a derivation."""
        if not self.control:
            return ""
        label = "Refutes" if self.verdict == "differs" else "Would refute"
        return f"{label} it: {self.control}."

    def __str__(self) -> str:
        mark, _ = MARKS[self.verdict]
        told = f"{mark} {self.verdict} ({self.place}): {self.statement}"
        return "\n  ".join(filter(None, [told, self.evidence, self.refuted]))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        mark, _ = MARKS[self.verdict]
        text = {name: html.escape(value) for name, value in asdict(self).items()}
        small = '<p style="margin: 0">{}</p>'
        aside = (  # styled inline, so that it looks the same in a notebook
            f'<aside class="claim" id="claim-{text["id"]}" role="note" '
            f'aria-label="a claim of {self.place}: {text["verdict"]}" '
            f'data-verdict="{text["verdict"]}" '
            f'style="border-left: {self.edge}; margin: 0.5em 0; padding: 0 0 0 0.8em">'
            f'<p style="margin: 0"><strong>{mark} {text["verdict"]}</strong> '
            f"<small>· {self.place} ·</small> {text['statement']}</p>"
            '<details open style="font-size: 0.9em"><summary>evidence</summary>'
            f"{small.format(text['evidence'])}"
            f"{small.format(html.escape(self.refuted)) if self.control else ''}"
            "</details></aside>"
        )
        return {
            "text/plain": str(self),
            "text/html": aside,
            "application/vnd.annotated.claim+json": asdict(self),
        }


def powers(text: str) -> str:
    """The text with 2×10⁻²² for 2e-22."""
    raised = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    power = lambda found: f"×10{str(int(found[1])).translate(raised)}"
    return re.sub(r"(?<=\d)e([+-]\d+)\b", power, text)


def claim(
    id: str,
    statement: str,
    *,
    section: str,
    kind: str,
    holds: bool | None,
    evidence: str,
    control: str = "",
) -> Verdict:
    """Record whether a claim holds; use it as the last line of a cell.

    A page may make claims of the paper, and under "Since 2017" the book's own about later models.

    Args:
        id: a short name, such as "s2-convolutions" (section 2), "t3-params" (Table 3) or
            "since-2017-gain"; unique in the book, because links lead to #claim-ID.
        statement: the claim in one sentence, in our words.
        section: where the paper makes the claim, such as "3.2.1 ¶4", "4, Table 1" or "Abstract";
            the site also shows the verdict beside it, and sorts the claims by it. "Since 2017"
            for a claim of the book's own.
        kind: the evidence, one of KINDS; "by construction" means a proof, a count or a property.
        holds: whether the claim is true, as computed; None if this cannot be decided here.
        evidence: the numbers or the derivation that decides it, in a few words.
        control: what would refute the claim, to follow "Would refute it:": a result that the
            experiment could have had, compared with an untrained model, shuffled labels, other
            heads, or the mean of other sentences. Only a claim that holds by construction may
            leave it out, because nothing can refute a derivation.

    Returns: the verdict; a small training run without the effect is "not reproduced here".

    Raises: TypeError if holds is neither a bool nor None; KeyError for an unknown kind. The build
        of the book checks that no part is empty, that no id is used twice, and that a page shows
        what the section names.
    """
    if not (holds is None or isinstance(holds, (bool, np.bool_))):
        raise TypeError(f"claim {id}: expected True, False or None for holds; got {holds!r}")
    held, failed = KINDS[kind], "not reproduced here" if kind == "at small scale" else "differs"
    undecided = "needs the paper's hardware" if kind == "on the paper's hardware" else "open"
    verdict = undecided if holds is None else held if holds else failed
    stop = "." * (evidence not in ("", NOT_RUN) and evidence[-1] not in ".!?…")
    return Verdict(id, statement, section, verdict, powers(evidence) + stop, powers(control))
