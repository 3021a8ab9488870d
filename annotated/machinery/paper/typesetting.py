"""What printing does to the paper's words and formulas, undone.

Lines are joined where words are broken; words whose ligatures the font does not name are known by
what is left of them; formulas within a line are recognized by a table and become LaTeX.
"""

import re
from collections.abc import Iterable

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
    return re.compile(
        rf"(?<![\w{LOST}])(?! )({first}){re.sub('f[fil]+', lost, word[bool(first) :])}(?!\w)"
    )


def mend_ligatures(text: str) -> str:
    """The text with the ligatures that its words have lost."""
    for word in sorted(_LIGATED, key=len, reverse=True):  # one ends like another
        rest = word[1:] if word[0] != "f" else word
        text = _without(word).sub(rf"\g<1>{rest}", text)
    return text


_SPANS = (
    *("$h_t$", "$h_{t-1}$", "position $t$", "position $i$", "less than $i$"),
    *(r"$(x_1, \ldots, x_n)$", r"$(y_1, \ldots, y_m)$", r"$(z_1, \ldots, z_n)$"),
    *(r"$\mathbf{z} = (z_1, \ldots, z_n)$", r"Given $\mathbf{z}$", r"$x_i, z_i \in \mathbb{R}^d$"),
    *(r"$\mathrm{LayerNorm}(x + \mathrm{Sublayer}(x))$", r"$\mathrm{Sublayer}(x)$"),
    *("$N = 6$", "$h = 8$", r"$d_{\text{model}}$", r"$\sqrt{d_{\text{model}}}$", "$d_{ff}$"),
    *("$d_k$", "$d_v$", r"$\sqrt{d_k}$", r"$\frac{1}{\sqrt{d_k}}$"),
    *(
        r"$d_k = d_v = d_{\text{model}}/h$",
        "matrix $Q$",
        "matrices $K$ and $V$",
        "values $h$ times",
    ),
    r"$W^Q_i \in \mathbb{R}^{d_{\text{model}} \times d_k}$",
    r"$W^K_i \in \mathbb{R}^{d_{\text{model}} \times d_k}$",
    r"$W^V_i \in \mathbb{R}^{d_{\text{model}} \times d_v}$",
    r"$W^O \in \mathbb{R}^{hd_v \times d_{\text{model}}}$",
    *(r"$q \cdot k = \sum^{d_k}_{i=1} q_i k_i$", "of $q$ and $k$ are", r"$-\infty$"),
    *("where $pos$ is", "and $i$ is the dimension", r"$2\pi$", r"$10000 \cdot 2\pi$"),
    *("$PE_{pos}$", "$PE_{pos+k}$", "offset $k$", "length $n$", "dimensionality $d$", "size $r$"),
    *("factor of $k$", "$n$ is the sequence", "$d$ is the representation", "$k$ is the kernel"),
    *("$r$ the size", "$O(n)$", "$O(n/r)$", "$O(n/k)$", r"$O(\log_k(n))$"),
    *(r"$O(k \cdot n \cdot d + n \cdot d^2)$", "$k < n$", "$k = n$", r"$\beta_1$", r"$\beta_2$"),
    *(r"$\epsilon = 10^{-9}$", r"$warmup\_steps$", "$P_{drop}$", r"$\epsilon_{ls}$", r"$\alpha$"),
    *("gradients$^4$", "GPU$^5$"),
)
_PRINTED = {
    **{r"\_": "_", r"\ldots": "...", r"\log": "log", r"\in": "∈", r"\times": "×", r"\cdot": "·"},
    **{r"\sqrt": "√", r"\sum": "∑", r"\infty": "∞", r"\alpha": "α", r"\beta": "β", r"\pi": "π"},
    r"\epsilon": "ϵ",
}  # of LaTeX's commands; of others nothing is printed
_VARIANTS = {"-": "[−-]", "·": "[·⋅]", "ϵ": f"[ϵε{LOST}]", "∑": f"[∑Σ{LOST}]?"}  # as fonts have it


def _pattern(span: str) -> str:
    """Pattern for a span as it is printed, with any spaces, and for the number that it equals."""
    printed = re.sub(r"\\_|\\[a-z]+|[${}^_ ]", lambda found: _PRINTED.get(found[0], ""), span)
    signs = r"\s*".join(_VARIANTS.get(sign, re.escape(sign)) for sign in printed)
    equals = r"(?:\s*=\s*(\d+(?:\.\d+)?))?" if span.endswith("$") else "()"
    return rf"(?<!\w){signs}{equals}(?!\w)"


def typeset(text: str) -> str:
    """A paragraph with its formulas as LaTeX between dollar signs."""
    for span in sorted(_SPANS, key=lambda span: -len(span)):
        new = lambda found, span=span: f"{span[:-1]} = {found[1]}$" if found[1] else span
        parts = text.split("$")
        parts[::2] = [re.sub(_pattern(span), new, part) for part in parts[::2]]  # not yet LaTeX
        text = "$".join(parts)
    return re.sub(r"\$ (?=[.,])", "$", text)
