"""The paper's PDF."""

import re
from collections.abc import Callable, Iterable
from itertools import chain, starmap

LOST = "\ufffd"  # stands for a letter of which nothing is known
_LETTER = rf"[A-Za-z{LOST}]"
_WORD = re.compile(rf"{_LETTER}+(?:-{_LETTER}+)*")


def known_words(lines: Iterable[str]) -> set[str]:
    """The words of a text, in lower case, without those that a line's end cuts."""
    whole = (re.sub(r"\S+-$", "", line) for line in lines)
    return {word.lower() for line in whole for word in _WORD.findall(line)}


def _unbroken(left: str, right: str, known: set[str]) -> str:
    """Join two halves of a word, with or without the hyphen that stood at the line's end."""
    compound, joined = f"{left}-{right}", f"{left}{right}"
    if compound.lower() in known or (joined.lower() not in known and left.lower() in known):
        return compound
    return joined


def join_lines(lines: Iterable[str], known: set[str]) -> str:
    """Make one string of the lines of a paragraph."""
    text = ""
    for line in lines:
        left = re.search(rf"((?:{_LETTER}|-)*{_LETTER})-$", text)
        right = re.match(_WORD, line)
        if left and right:
            word = _unbroken(left[1], right[0], known)
            text = text[: left.start()] + word + line[right.end() :]
        else:
            text += line if not text or re.search(r"https?://\S+/$", text) else f" {line}"
    return text


_LIGATED = (
    *("affecting", "beneficial", "benefit", "confidence", "configuration", "different"),
    *("difficult", "effect", "effective", "efficiency", "efficient", "efficiently", "effort"),
    *("efforts", "final", "firmly", "first", "fitting", "fixed", "floating", "flow", "off"),
    *("offset", "significant", "significantly", "specific", "tensorflow"),
)


def _without(word: str) -> re.Pattern[str]:
    """Find a word also if ligatures are lost in it; of "efficient" one may be ff, fi or ffi."""
    rest = re.sub("f[fil]+", "", word)
    gap = f"[{LOST} ]?" if len(rest) > 1 else LOST  # an "o" alone need not have been "off"

    def lost(match: re.Match[str]) -> str:
        first, last = match[0][0], match[0][-1]
        parts = [match[0], gap, *([f"{first}{gap}", f"{gap}{last}"] if len(match[0]) > 2 else [])]
        return f"(?:{'|'.join(parts)})"

    letters = re.sub("f[fil]+", lost, word)
    if word[0] != "f":  # a capital is never a part of a ligature
        letters = f"[{word[0]}{word[0].upper()}]{letters[1:]}"
    return re.compile(rf"(?<!\w)(?! ){letters}(?!\w)")


def mend_ligatures(text: str) -> str:
    """The text with the ligatures that its words have lost."""
    for word in _LIGATED:
        whole = lambda found, word=word: word.capitalize() if found[0][0].isupper() else word
        text = _without(word).sub(whole, text)
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
}

_MORE_FORMULAS = {
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
    "ϵ": r"(?:[ϵε\ufffd]|\(cid:\d+\))",
    "∑": r"(?:[∑Σ\ufffd]|\(cid:\d+\))?",
}

_Mend = tuple[re.Pattern[str], Callable[[re.Match[str]], str]]  # what to find, what to put there


def _formula(printed: str, latex: str) -> _Mend:
    """Find a formula, with any spaces between its signs; put LaTeX there."""
    signs = r"\s*".join(_VARIANTS.get(sign, re.escape(sign)) for sign in printed)
    found = re.compile(rf"(?<!\w){signs}(?:\s*=\s*(\d+(?:\.\d+)?))?(?!\w)")
    return found, lambda match: f"${latex} = {match[1]}$" if match[1] else f"${latex}$"


def _phrase(typeset: str) -> _Mend:
    """Find a phrase as it reads without its LaTeX; put there the phrase with it."""
    plain = re.sub(r"[$^{}]|\\mathbf", "", typeset)
    new = typeset.replace(" $^", "$^")
    return re.compile(rf"\b{re.escape(plain)}\b"), lambda match: new


def typeset(text: str) -> str:
    """A paragraph with its formulas as LaTeX between dollar signs."""
    formulas = sorted((_FORMULAS | _MORE_FORMULAS).items(), key=lambda pair: -len(pair[0]))
    for found, new in chain(starmap(_formula, formulas), map(_phrase, _PHRASES)):
        parts = text.split("$")
        parts[::2] = [found.sub(new, part) for part in parts[::2]]
        text = "$".join(parts)
    return re.sub(r"\$ (?=[.,])", "$", text)
