"""Trees."""

from collections import Counter
from functools import lru_cache
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from annotated.data import END, UNK
from annotated.decoding import Follow
from annotated.machinery.parsing.linear import MAX_DEPTH, is_marked
from annotated.machinery.translator import Translation, Translator


class LineState(NamedTuple):
    """Where a line stands.

    Args:
        ends: of the open phrases, the outermost first, the pieces that will close them.
        empty: how many of these, the innermost, hold nothing yet.
        said: words so far.   rest: pieces of the last of these that are still to come.
    """

    ends: tuple[int, ...] = ()
    empty: int = 0
    said: int = 0
    rest: tuple[int, ...] = ()


_MOST_OPENED, _MOST_ALIKE = 8, 2  # phrases before a word, and those of them with the same label


class LineConstraints:
    """What may follow in a line as `tree_to_line` writes it.

    Args:
        tokenizer: of a model that was trained on such lines.

    Raises: ValueError if it has no pieces for brackets and tags.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        words = {piece[1:]: i for piece, i in tokenizer.get_vocab().items() if piece[0] == "▁"}
        marks = {word: i for word, i in words.items() if is_marked(word)}
        self.tags = [i for mark, i in marks.items() if mark[0] == "→"]
        pairs = ((i, marks.get(f"↑{mark[1:]}")) for mark, i in marks.items() if mark[0] == "↓")
        self.closing = {i: end for i, end in pairs if end is not None}
        if not (self.tags and self.closing):
            raise ValueError("expected a model that writes trees; its vocabulary has no brackets")

    def after(self, place: LineState, token: int, words: list[tuple[int, ...]]) -> LineState:
        """Where a line over these words, in pieces, stands after one more piece."""
        if place.rest:
            return place._replace(rest=place.rest[1:])
        if token in self.closing:
            return LineState((*place.ends, self.closing[token]), place.empty + 1, place.said)
        if token == place.ends[-1]:
            return LineState(place.ends[:-1], 0, place.said)
        return LineState(place.ends, 0, place.said + 1, words[place.said])

    def next(self, place: LineState, words: list[tuple[int, ...]]) -> list[int]:
        """The pieces that may follow."""
        ends, empty = place.ends, place.empty
        if place.rest:
            return [place.rest[0]]
        if place.said == len(words):
            return [ends[-1] if ends else END]
        alike = Counter(ends[len(ends) - empty :])
        down = [i for i, end in self.closing.items() if alike[end] < _MOST_ALIKE]
        room = empty < _MOST_OPENED and len(ends) < MAX_DEPTH
        up = [ends[-1]] if len(ends) > 1 and not empty else []
        return (down if room else []) + up + (self.tags if ends else [])


class ConstrainedTranslator(Translator):
    """A translator from words to trees whose search is held to trees over the words."""

    def search(self, sources: list[list[int]], **options: Any) -> list[list[Translation]]:
        """As `Translator.search`; ValueError for a model that writes no trees."""
        rules = LineConstraints(self.tokenizer)
        follow = [self.follow(rules, ids) for ids in sources]
        return super().search(sources, follow=follow, **options)

    def follow(self, rules: LineConstraints, src: list[int]) -> Follow:
        """The rules, for `beam_search`, over a sentence of these pieces."""
        words: list[tuple[int, ...]] = []
        for i in src:
            if str(self.tokenizer.id_to_token(i)).startswith("▁"):
                words.append((i,))
            elif i not in (UNK, END):
                words[-1] += (i,)

        @lru_cache(maxsize=1024)  # the hypotheses, and those that they go on from
        def place(ids: tuple[int, ...]) -> LineState:
            return rules.after(place(ids[:-1]), ids[-1], words) if ids else LineState()

        return lambda ids: rules.next(place(tuple(ids)), words)
