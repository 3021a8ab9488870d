"""Trees."""

from collections.abc import Iterable
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from typing import Any

from annotated.linearization import linearize
from annotated.machinery.files import extra, lazy_extra, write_text
from annotated.machinery.parsing.trees import check_limit, is_tag, load_trees

with lazy_extra("parse"):
    from nltk import Tree

MAX_DEPTH = 100  # phrases inside of each other that a line can open


def delinearize(tokens: Iterable[str], words: list[str]) -> Tree:
    """The tree that tokens describe, whatever they are, over these words.

    A phrase inside of a hundred others is not opened, and what it holds belongs to the phrase
    above. Its closing bracket then closes one of those that are open, if one has its label. So a
    tree of more than a hundred phrases one in the other does not come back as it was.

    Raises: ValueError if there are no words.
    """
    if not words:
        raise ValueError("expected words for the tree; got none")
    left, top = iter(words), Tree("TOP", [])
    open_phrases = [top]
    for token in tokens:
        if token.startswith("("):
            if len(open_phrases) <= MAX_DEPTH:
                open_phrases.append(Tree(token[1:], []))
                open_phrases[-2].append(open_phrases[-1])
        elif token.startswith(")"):
            depth = [phrase.label() for phrase in open_phrases[1:]][::-1]
            if token[1:] in depth:
                del open_phrases[-1 - depth.index(token[1:]) :]
        elif (word := next(left, None)) is not None:
            open_phrases[-1].append(Tree(token, [word]))
    top.extend(Tree("X", [word]) for word in left)
    found = _without_empty(top)
    assert found is not None  # there is at least one word
    only = found[0]
    return only if len(found) == 1 and not is_tag(only) else found


def _without_empty(tree: Tree) -> Tree | None:
    """The tree without phrases that hold no word; None if it holds none at all."""
    if is_tag(tree):
        return tree
    children = [child for child in map(_without_empty, tree) if child is not None]
    return Tree(tree.label(), children) if children else None


_NAMES = {
    ",": "COMMA", ".": "STOP", ":": "COLON", "``": "OPEN", "''": "CLOSE", "-LRB-": "LRB",
    "-RRB-": "RRB", "PRP$": "PRPS", "WP$": "WPS", "$": "DOLLAR", "#": "NUMBER",
}  # fmt: skip
_TAGS = {name: tag for tag, name in _NAMES.items()}
_ESCAPED = {
    "-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}",
}  # fmt: skip
_ARROWS = {"(": "↓", ")": "↑"}


def words_to_line(words: list[str]) -> str:
    """Words as a line of text; a word with spaces in it, or of nothing else, is one word still.

    >>> words_to_line(["Mice", "-LRB-", "two", "-RRB-"])
    'Mice ( two )'
    """
    joined = ("\u00b7".join(_ESCAPED.get(word, word).split()) or "\u00b7" for word in words)
    return " ".join(f"\u00b7{word}" if is_marked(word) else word for word in joined)


def is_marked(word: str) -> bool:
    """Whether a word of a line stands for a bracket or a tag."""
    return len(word) > 1 and word[0] in "↓↑→"


def tree_to_line(tree: Tree) -> str:
    """A tree as a line of text, words kept.

    >>> tree_to_line(Tree.fromstring("(NP (PRP$ its) (NN mat))"))
    '↓NP →PRPS its →NN mat ↑NP'
    """
    words = iter(tree.leaves())
    return " ".join(
        _ARROWS[token[0]] + token[1:]
        if token[0] in _ARROWS
        else f"→{_NAMES.get(token, token)} {words_to_line([next(words)])}"
        for token in linearize(tree)
    )


def line_to_tokens(line: str) -> list[str]:
    """What `delinearize` needs, from a line as `tree_to_line` writes it.

    >>> line_to_tokens("↓NP →PRPS its →NN mat ↑NP")
    ['(NP', 'PRP$', 'NN', ')NP']
    """
    brackets = {"↓": "(", "↑": ")"}
    marked = (word for word in line.split() if is_marked(word))
    return [
        brackets[word[0]] + word[1:] if word[0] in brackets else _TAGS.get(word[1:], word[1:])
        for word in marked
    ]


def line_to_tree(line: str, words: list[str]) -> Tree:
    """The tree that a line describes, whatever it is, over these words.

    Raises: ValueError if there are no words.

    >>> print(line_to_tree("↓NP →DT the →JJ fat →NN mat ↑NP", ["the", "mat"]))
    (NP (DT the) (NN mat))
    """
    said: list[str] = []  # the word after each tag
    for word in line.split():
        if is_marked(word):
            said += [""] if word[0] == "→" else []
        elif said:
            said[-1] += word
    return delinearize(
        _one_tag_each(line_to_tokens(line), said, words_to_line(words).split()), words
    )


def _one_tag_each(tokens: list[str], said: list[str], words: list[str]) -> list[str]:
    """Tokens with a tag for each word up to the last that has one.

    Args:
        tokens: as `linearize` makes them.   said: the word that follows each tag in them.
    """
    place: dict[int, int] = {}  # of what was said among the words
    for what, i, i_end, j, j_end in SequenceMatcher(
        None, said, words, autojunk=False
    ).get_opcodes():
        if what in ("equal", "replace"):
            place.update(zip(range(i, i_end), range(j, j_end), strict=False))
    result, done, tags = [], 0, 0
    for token in tokens:
        if token[0] in _ARROWS:
            result.append(token)
            continue
        if tags in place:
            result += ["X"] * (place[tags] - done) + [token]
            done = place[tags] + 1
        tags += 1
    return result


def write_treebank(corpus: str, folder: Path, limit: int | None = None) -> str:
    """Write a treebank as a corpus for the trainer: train and dev, words and trees.

    Args:
        corpus: as for `treebank_files`.   limit: number of training sentences, from the beginning.

    Returns: what `--data` of `annotated train` has to be.

    Raises: ValueError for a limit below 1, and as `load_trees`.
    """
    check_limit(limit)
    folder.mkdir(parents=True, exist_ok=True)
    for split in "train", "dev":
        trees = load_trees(corpus, split)[: limit if split == "train" else None]
        sides = {
            "words": [words_to_line(tree.leaves()) for tree in trees],
            "trees": map(tree_to_line, trees),
        }
        for side, lines in sides.items():
            write_text(folder / f"{split}.{side}", "".join(f"{line}\n" for line in lines))
    return f"{folder}-words-trees"


@cache
def _english() -> Any:
    with extra("parse"):
        import spacy
    return spacy.blank("en")


def split_words(text: str) -> list[str]:
    """The words of a sentence, punctuation and clitics apart.

    >>> split_words("The cat didn't sit.")
    ['The', 'cat', 'did', "n't", 'sit', '.']
    """
    return [token.text for token in _english()(text) if not token.is_space]
