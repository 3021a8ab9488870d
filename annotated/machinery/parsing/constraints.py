"""A search that is restricted to lines that are trees over a given sentence.

After a tag comes the next word, which leaves nothing to choose. A closing bracket closes the
innermost phrase, which must not be empty, and the outermost one only at the end. At most eight
phrases are opened before a word, and at most two of them with the same label; this is for a model
that has lost its way and opens phrases forever. One of CRAFT's trees in six has three alike
somewhere and cannot be written whole; with a wide beam the rules are worth that price.
"""

from collections import Counter
from functools import lru_cache
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from annotated.data import END, UNK
from annotated.decoding import Follow
from annotated.machinery.errors import InputError
from annotated.machinery.parsing.linear import MAX_DEPTH, is_marked
from annotated.machinery.translator import Translation, Translator

_MOST_OPENED, _MOST_ALIKE = 8, 2


class LineState(NamedTuple):
    """What a line has come to.

    Args:
        ends: of the open phrases, the outermost first, the pieces that will close them.
        empty: how many of these, the innermost, hold nothing yet.
        words: written so far.   rest: pieces of the last of these that are still to come.
    """

    ends: tuple[int, ...] = ()
    empty: int = 0
    words: int = 0
    rest: tuple[int, ...] = ()


class LineConstraints:
    """Which pieces may follow in a line such as `tree_to_line` writes.

    Args:
        tokenizer: of a model that was trained on such lines. Only labels and tags that are one
            piece can be written; so can beginnings of tags that merges left behind.

    Raises: InputError if it has no pieces for brackets and tags.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        words = {piece[1:]: i for piece, i in tokenizer.get_vocab().items() if piece[0] == "▁"}
        marks = {word: i for word, i in words.items() if is_marked(word)}
        self.tags = [i for mark, i in marks.items() if mark[0] == "→"]
        pairs = ((i, marks.get(f"↑{mark[1:]}")) for mark, i in marks.items() if mark[0] == "↓")
        self.closing = {i: end for i, end in pairs if end is not None}
        if not (self.tags and self.closing):
            raise InputError("expected a model that writes trees; its vocabulary has no brackets")

    def _after(self, state: LineState, token: int, words: list[tuple[int, ...]]) -> LineState:
        """The state of a line over these words, in pieces, after one more piece."""
        if state.rest:
            return state._replace(rest=state.rest[1:])
        if token in self.closing:
            return LineState((*state.ends, self.closing[token]), state.empty + 1, state.words)
        if token == state.ends[-1]:
            return LineState(state.ends[:-1], 0, state.words)
        return LineState(state.ends, 0, state.words + 1, words[state.words])

    def _next(self, state: LineState, words: list[tuple[int, ...]]) -> list[int]:
        """The pieces that may follow."""
        ends, empty = state.ends, state.empty
        if state.rest:
            return [state.rest[0]]
        if state.words == len(words):
            return [ends[-1] if ends else END]
        alike = Counter(ends[len(ends) - empty :])
        down = [i for i, end in self.closing.items() if alike[end] < _MOST_ALIKE]
        room = empty < _MOST_OPENED and len(ends) < MAX_DEPTH
        up = [ends[-1]] if len(ends) > 1 and not empty else []
        return (down if room else []) + up + (self.tags if ends else [])

    def follow(self, src: list[int]) -> Follow:
        """The rules, for `beam_search`, over a sentence of these pieces.

        A word begins with a piece that has ▁ in front. No model can write an unknown piece, so
        the rules do not wait for it.
        """
        words: list[tuple[int, ...]] = []
        for i in src:
            if str(self.tokenizer.id_to_token(i)).startswith("▁"):
                words.append((i,))
            elif i not in (UNK, END):
                words[-1] += (i,)

        @lru_cache(maxsize=1024)  # the hypotheses, and those that they extend
        def state(ids: tuple[int, ...]) -> LineState:
            return self._after(state(ids[:-1]), ids[-1], words) if ids else LineState()

        return lambda ids: self._next(state(tuple(ids)), words)


class ConstrainedTranslator(Translator):
    """A translator from words to trees whose search is restricted to trees over the words."""

    def search(self, sources: list[list[int]], **options: Any) -> list[list[Translation]]:
        """As `Translator.search`; InputError for a model that writes no trees."""
        rules = LineConstraints(self.tokenizer)
        follow = [rules.follow(ids) for ids in sources]
        return super().search(sources, follow=follow, **options)
