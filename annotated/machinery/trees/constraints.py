"""A search that is restricted to lines that describe trees over a given sentence.

A tag is followed by the next word, so nothing is left to choose there. A closing bracket closes
the innermost phrase, which must not be empty, and the outermost one only at the end. At most eight
phrases are opened before a word, and at most two of them with the same label, so that a model that
has gone astray does not open phrases forever. One in six of CRAFT's trees has three phrases with
the same label somewhere and cannot be written; with a wide beam the rules are worth this price.
"""

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from annotated.data import END, UNK
from annotated.decoding import Follow
from annotated.machinery.errors import InputError
from annotated.machinery.translator import Translation, Translator
from annotated.machinery.trees.linear import MAX_DEPTH, is_marked

_MOST_OPENED, _MOST_ALIKE = 8, 2


class LineState(NamedTuple):
    """The state of an unfinished line."""

    ends: tuple[int, ...] = ()  # the pieces that will close the open phrases, outermost first
    empty: int = 0  # number of innermost open phrases that are still empty
    words: int = 0  # number of words so far
    rest: tuple[int, ...] = ()  # the remaining pieces of the last word


def tree_constraints(tokenizer: Tokenizer) -> Callable[[list[int]], Follow]:
    """The rules for lines of the kind that `tree_to_line` writes.

    Args:
        tokenizer: of a model that was trained on such lines. Only labels and tags that are single
            pieces can be written, as well as beginnings of tags that merges left behind.

    Returns: a function from the pieces of a sentence to the rules over it, for `beam_search`.

    Raises: InputError if the tokenizer has no pieces for brackets and tags.
    """
    pieces = tokenizer.get_vocab().items()
    marks = {x[1:]: i for x, i in pieces if x[0] == "▁" and is_marked(x[1:])}
    tags = [i for mark, i in marks.items() if mark[0] == "→"]
    pairs = ((i, marks.get(f"↑{mark[1:]}")) for mark, i in marks.items() if mark[0] == "↓")
    closing = {i: end for i, end in pairs if end is not None}
    if not (tags and closing):
        raise InputError("expected a model that writes trees; its vocabulary has no brackets")

    def follow(src: list[int]) -> Follow:
        words: list[tuple[int, ...]] = []  # in pieces
        for i in src:
            if str(tokenizer.id_to_token(i)).startswith("▁"):  # which begins a word
                words.append((i,))
            elif i not in (UNK, END):  # no model can write an unknown piece
                words[-1] += (i,)

        @lru_cache(maxsize=1024)  # the hypotheses, and those that they extend
        def state(ids: tuple[int, ...]) -> LineState:
            if not ids:
                return LineState()
            token, before = ids[-1], state(ids[:-1])
            if before.rest:
                return before._replace(rest=before.rest[1:])
            if token in closing:
                return LineState((*before.ends, closing[token]), before.empty + 1, before.words)
            if token == before.ends[-1]:
                return LineState(before.ends[:-1], 0, before.words)
            return LineState(before.ends, 0, before.words + 1, words[before.words])

        def allowed(ids: list[int]) -> list[int]:
            ends, empty, written, rest = state(tuple(ids))
            if rest:
                return [rest[0]]
            if written == len(words):
                return [ends[-1] if ends else END]
            alike = Counter(ends[len(ends) - empty :])
            down = [i for i, end in closing.items() if alike[end] < _MOST_ALIKE]
            room = empty < _MOST_OPENED and len(ends) < MAX_DEPTH
            up = [ends[-1]] if len(ends) > 1 and not empty else []
            return (down if room else []) + up + (tags if ends else [])

        return allowed

    return follow


class ConstrainedTranslator(Translator):
    """A translator from words to trees with a search that is restricted to trees over the words."""

    def search(self, sources: list[list[int]], **options: Any) -> list[list[Translation]]:
        """As `Translator.search`; raises InputError for a model that does not write trees."""
        follow = [*map(tree_constraints(self.tokenizer), sources)]
        return super().search(sources, follow=follow, **options)
