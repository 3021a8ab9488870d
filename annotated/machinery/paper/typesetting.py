"""What printing does to the paper's words and formulas, undone.

Lines are joined where words are broken; words whose ligatures the font does not name are known by
what is left of them; formulas within a line are recognized by a table and become LaTeX.
"""

import re
from collections.abc import Callable, Iterable

LOST = "\ufffd"  # stands for a letter of which nothing is known
_LETTER = rf"[A-Za-z{LOST}]"
_WORD = rf"{_LETTER}+(?:-{_LETTER}+)*"


def known_words(lines: Iterable[str]) -> set[str]:
    """The words of a text, in lower case, except those broken at the end of a line."""
    whole = (re.sub(r"\S+-$", "", line) for line in lines)
    return {word.lower() for line in whole for word in re.findall(_WORD, line)}


def join_lines(lines: Iterable[str], known: set[str]) -> str:
    """Make one string of the lines of a paragraph.

    A hyphen at the end of a line is kept if the text has the compound elsewhere, or if it has the
    first half but not the joined word.
    """

    def mend(broken: re.Match[str]) -> str:
        left, right = broken.groups()
        compound, joined = f"{left}-{right}", f"{left}{right}"
        kept = joined.lower() not in known and left.lower() in known
        return compound if kept or compound.lower() in known else joined

    text = re.sub(rf"({_WORD})-\n({_WORD})", mend, "\n".join(lines))
    return re.sub(r"(https?://\S+/)?\n", lambda end: end[1] or " ", text)


_LIGATED = (
    *("affecting", "beneficial", "benefit", "confidence", "configuration", "different"),
    *("difficult", "effect", "effective", "efficiency", "efficient", "efficiently", "effort"),
    *("efforts", "final", "firmly", "first", "fitting", "fixed", "floating", "flow", "off"),
    *("offset", "significant", "significantly", "specific", "tensorflow"),
)


def _without(word: str) -> re.Pattern[str]:
    """Pattern for a word with or without its ligatures; of "ffi" only "fi" may be one.

    Its first group is the first letter, which may be a capital, unless a ligature begins the word.
    """
    rest = re.sub("f[fil]+", "", word)
    gap = f"[{LOST} ]?" if len(rest) > 1 else LOST  # an "o" alone need not have been "off"
    lost = lambda found: f"(?:{found[0]}|{'f?' * (len(found[0]) > 2)}{gap})"
    first = "" if word[0] == "f" else f"(?i:{word[0]})"
    return re.compile(rf"(?<!\w)(?! )({first}){re.sub('f[fil]+', lost, word[bool(first) :])}(?!\w)")


def mend_ligatures(text: str) -> str:
    """The text with the ligatures that its words have lost."""
    for word in _LIGATED:
        text = _without(word).sub(lambda found, word=word: found[1] + word[len(found[1]) :], text)
    return text


_MODEL = r"d_{\text{model}}"
_FORMULAS = {
    "ht": "h_t",
    "ht−1": "h_{t-1}",
    "(x1,...,xn)": r"(x_1, \ldots, x_n)",
    "(y1,...,ym)": r"(y_1, \ldots, y_m)",
    "(z1,...,zn)": r"(z_1, \ldots, z_n)",
    "z=(z1,...,zn)": r"\mathbf{z} = (z_1, \ldots, z_n)",
    "xi,zi∈Rd": r"x_i, z_i \in \mathbb{R}^d",
    "LayerNorm(x+Sublayer(x))": r"\mathrm{LayerNorm}(x + \mathrm{Sublayer}(x))",
    "Sublayer(x)": r"\mathrm{Sublayer}(x)",
    "N=6": "N = 6",
    "h=8": "h = 8",
    "dmodel": _MODEL,
    "√dmodel": rf"\sqrt{{{_MODEL}}}",
    "dff": r"d_{ff}",
    "dk": "d_k",
    "dv": "d_v",
    "√dk": r"\sqrt{d_k}",
    "1√dk": r"\frac{1}{\sqrt{d_k}}",
    "dk=dv=dmodel/h": f"d_k = d_v = {_MODEL}/h",
    "WQi∈Rdmodel×dk": rf"W_i^Q \in \mathbb{{R}}^{{{_MODEL} \times d_k}}",
    "WKi∈Rdmodel×dk": rf"W_i^K \in \mathbb{{R}}^{{{_MODEL} \times d_k}}",
    "WVi∈Rdmodel×dv": rf"W_i^V \in \mathbb{{R}}^{{{_MODEL} \times d_v}}",
    "WO∈Rhdv×dmodel": rf"W^O \in \mathbb{{R}}^{{hd_v \times {_MODEL}}}",
    "q·k=∑dki=1qiki": r"q \cdot k = \sum_{i=1}^{d_k} q_i k_i",
    "−∞": r"-\infty",
    "2π": r"2\pi",
    "10000·2π": r"10000 \cdot 2\pi",
    "PEpos": r"PE_{pos}",
    "PEpos+k": r"PE_{pos+k}",
    "O(n)": "O(n)",
    "O(n/r)": "O(n/r)",
    "O(n/k)": "O(n/k)",
    "O(logk(n))": r"O(\log_k(n))",
    "O(k·n·d+n·d2)": r"O(k \cdot n \cdot d + n \cdot d^2)",
    "k<n": "k < n",
    "k=n": "k = n",
    "β1": r"\beta_1",
    "β2": r"\beta_2",
    "ϵ=10−9": r"\epsilon = 10^{-9}",
    "warmup_steps": r"warmup\_steps",
    "Pdrop": "P_{drop}",
    "ϵls": r"\epsilon_{ls}",
    "α": r"\alpha",
}

_PHRASES = (
    *("position $t$", "position $i$", "less than $i$", r"Given $\mathbf{z}$", "matrix $Q$"),
    *("matrices $K$ and $V$", "values $h$ times", "where $pos$ is", "and $i$ is the dimension"),
    *("offset $k$", "length $n$", "dimensionality $d$", "size $r$", "factor of $k$"),
    *("$n$ is the sequence", "$d$ is the representation", "$k$ is the kernel", "$r$ the size"),
    *("of $q$ and $k$ are", "gradients $^4$", "GPU $^5$"),
)

# Fonts name these signs in several ways, or not at all.
_VARIANTS = {
    "−": "[−-]",
    "·": "[·⋅]",
    "ϵ": f"[ϵε{LOST}]",
    "∑": f"[∑Σ{LOST}]?",
}


def _formula(printed: str) -> str:
    """Pattern for a formula with any spaces between its signs, and the number that it equals."""
    signs = r"\s*".join(_VARIANTS.get(sign, re.escape(sign)) for sign in printed)
    return rf"(?<!\w){signs}(\s*=\s*(\d+(?:\.\d+)?))?(?!\w)"


def typeset(text: str) -> str:
    """A paragraph with its formulas as LaTeX between dollar signs."""

    def put(pattern: str, new: Callable[[re.Match[str]], str]) -> None:
        nonlocal text
        parts = text.split("$")
        parts[::2] = [re.sub(pattern, new, part) for part in parts[::2]]  # outside of formulas
        text = "$".join(parts)

    for printed in sorted(_FORMULAS, key=len, reverse=True):
        latex = _FORMULAS[printed]
        put(_formula(printed), lambda found, x=latex: f"${x} = {found[2]}$" if found[1] else f"${x}$")
    for phrase in _PHRASES:
        plain = re.sub(r"[$^{}]|\\mathbf", "", phrase)
        put(rf"\b{re.escape(plain)}\b", lambda found, phrase=phrase: phrase.replace(" $^", "$^"))
    return re.sub(r"\$ (?=[.,])", "$", text)
