"""Trees as lines of text, which the trainer can learn, and back.

A treebank is treated as a corpus of two languages, words and trees. A vocabulary splits lines at
spaces and punctuation, so brackets are written as arrows: ↓NP opens a phrase, ↑NP closes it, and
each soon becomes one piece, as does a tag such as →NN; tags with punctuation are given names in
letters. The word after each tag makes lines longer, but it shows where a tag belongs after the
model has made a mistake.
"""

from collections.abc import Iterable
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from annotated.machinery.errors import InputError, extra
from annotated.machinery.files import write_text, writing_new_folder
from annotated.machinery.trees.penn import is_tag, load_trees

if TYPE_CHECKING:
    from nltk import Tree

MAX_DEPTH = 100  # nested phrases that a line can open


def delinearize(tokens: Iterable[str], words: list[str]) -> "Tree":
    """The tree over the words that any tokens of the kind that `linearize` writes describe.

    A model may write anything, so there is a rule for each mistake:

    - A closing bracket closes the innermost open phrase with its label, and all phrases that are
      open inside it; without such a phrase it has no effect.
    - A tag takes the next word; when no words are left it has no effect.
    - No phrase is opened inside a hundred others; its content belongs to the phrase above.
    - At the end all open phrases are closed, remaining words are added at the top with the tag X,
      and phrases without a word are removed.
    - Several adjacent trees receive a common root TOP.

    Raises: InputError if there are no words.
    """
    with extra("parse"):
        from nltk import Tree
    if not words:
        raise InputError("expected words for the tree; got none")
    left, top = iter(words), Tree("TOP", [])
    open_phrases = [top]
    for token in tokens:
        if token.startswith("("):
            if len(open_phrases) <= MAX_DEPTH:
                open_phrases.append(Tree(token[1:], []))
                open_phrases[-2].append(open_phrases[-1])
        elif token.startswith(")"):
            labels = [phrase.label() for phrase in open_phrases[1:]][::-1]
            if token[1:] in labels:
                del open_phrases[-1 - labels.index(token[1:]) :]
        elif (word := next(left, None)) is not None:
            open_phrases[-1].append(Tree(token, [word]))
    top.extend(Tree("X", [word]) for word in left)
    found = _without_empty(top)
    assert found is not None  # there is at least one word
    return found[0] if len(found) == 1 and not is_tag(found[0]) else found


def _without_empty(tree: "Tree") -> Union["Tree", None]:
    """The tree without phrases that contain no words; None if the whole tree contains none."""
    if is_tag(tree):
        return tree
    children = [child for child in map(_without_empty, tree) if child is not None]
    return type(tree)(tree.label(), children) if children else None


_NAMES = {
    ",": "COMMA", ".": "STOP", ":": "COLON", "``": "OPEN", "''": "CLOSE", "-LRB-": "LRB",
    "-RRB-": "RRB", "PRP$": "PRPS", "WP$": "WPS", "$": "DOLLAR", "#": "NUMBER",
}  # fmt: skip
_TAGS = {name: tag for tag, name in _NAMES.items()}
_ESCAPED = {
    "-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}",
}  # fmt: skip


def words_to_line(words: list[str]) -> str:
    """Words as a line of text; a word that contains spaces, or only spaces, stays one word.

    Raises: InputError unless they are a list of strings; a single string would yield its letters.

    >>> words_to_line(["Mice", "-LRB-", "two", "-RRB-"])
    'Mice ( two )'
    """
    whole = isinstance(words, list | tuple) and all(isinstance(word, str) for word in words)
    if not whole:
        raise InputError(f"expected a sentence as a list of words; got {words!r:.80}")
    joined = ("\u00b7".join(_ESCAPED.get(word, word).split()) or "\u00b7" for word in words)
    return " ".join(f"\u00b7{word}" if is_marked(word) else word for word in joined)


def is_marked(word: str) -> bool:
    """Whether a token of a line represents a bracket or a tag."""
    return len(word) > 1 and word[0] in "↓↑→"


def tree_to_line(tree: "Tree") -> str:
    """A tree as a line of text, with its words.

    >>> tree_to_line(Tree.fromstring("(NP (PRP$ its) (NN mat))"))
    '↓NP →PRPS its →NN mat ↑NP'
    """
    label = tree.label()
    if is_tag(tree):
        return f"→{_NAMES.get(label, label)} {words_to_line(list(tree))}"
    return f"↓{label} {' '.join(map(tree_to_line, tree))} ↑{label}"


def line_to_tree(line: str, words: list[str]) -> "Tree":
    """The tree over these words that any line describes.

    The words that the model wrote are aligned with the words of the sentence: first the longest
    runs of equal words, then the words between them in order. A tag whose word is not in the
    sentence is dropped; a word that was skipped receives the tag X, before the next word.
    `delinearize` does the rest.

    Raises: InputError if there are no words.

    >>> print(line_to_tree("↓NP →DT the →JJ fat →NN mat ↑NP", ["the", "mat"]))
    (NP (DT the) (NN mat))
    """
    marks = [(word[0], word[1:]) for word in line.split() if is_marked(word)]
    written: list[str] = []  # the word after each tag
    for word in line.split():
        if is_marked(word):
            written += [""] if word[0] == "→" else []
        elif written:
            written[-1] += word
    positions: dict[int, int] = {}  # positions of the written words in the sentence
    matcher = SequenceMatcher(None, written, words_to_line(words).split(), autojunk=False)
    for kind, i, i_end, j, j_end in matcher.get_opcodes():
        if kind in ("equal", "replace"):
            positions.update(zip(range(i, i_end), range(j, j_end), strict=False))
    tokens: list[str] = []  # with a tag for each word up to the last tagged one
    tags = done = 0
    for mark, label in marks:
        if mark != "→":
            tokens.append(f"{'(' if mark == '↓' else ')'}{label}")
            continue
        if tags in positions:
            tokens += ["X"] * (positions[tags] - done) + [_TAGS.get(label, label)]
            done = positions[tags] + 1
        tags += 1
    return delinearize(tokens, words)


def write_treebank(corpus: str, folder: str | Path) -> str:
    """Write train and dev of a treebank of `load_trees` as a corpus for the trainer.

    Returns: the value for the option `--data` of `annotated train`.

    Raises: as `load_trees` and `writing_new_folder`.
    """
    splits = {split: load_trees(corpus, split) for split in ("train", "dev")}
    with writing_new_folder(folder) as part:
        for split, trees in splits.items():
            words = [f"{words_to_line(tree.leaves())}\n" for tree in trees]
            lines = [f"{tree_to_line(tree)}\n" for tree in trees]
            write_text(part / f"{split}.words", "".join(words))
            write_text(part / f"{split}.trees", "".join(lines))
    return f"{folder}-words-trees"


def split_words(text: str) -> list[str]:
    """The words of an English sentence, with punctuation and clitics split off, much as in CRAFT.

    >>> split_words("The cat didn't sit.")
    ['The', 'cat', 'did', "n't", 'sit', '.']
    """
    return [token.text for token in _english()(text) if not token.is_space]


@cache
def _english() -> Any:
    with extra("parse"):
        import spacy
    return spacy.blank("en")
