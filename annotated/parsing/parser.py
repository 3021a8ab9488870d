"""6.3 English Constituency Parsing (chapters/6-3-constituency-parsing.md).
EVALB (chapters/evalb.md).

Generated from the chapter's export cells by book/extract.py: edit it there.
"""

from dataclasses import dataclass
from typing import Any

from annotated.files import lazy_extra
from annotated.parsing.constraints import ConstrainedTranslator
from annotated.parsing.evalb import score_trees
from annotated.parsing.linear import line_to_tree, words_to_line
from annotated.parsing.trees import check_limit, load_trees
from annotated.translator import Translator, load_pretrained

__all__ = ["Parser", "load_parser", "score_parser"]


with lazy_extra("parse"):
    from nltk import Tree


@dataclass(frozen=True)
class Parser:
    """A translator from words to trees.

    Args:
        translator: a model that was trained on lines as `write_treebank` writes them.
    """

    translator: Translator

    def parse(self, words: list[str], **options: Any) -> Tree:
        """The tree of one sentence; options as for `parse_all`."""
        return self.parse_all([words], **options)[0]

    def parse_all(
        self,
        sentences: list[list[str]],
        beam: int = 4,
        alpha: float = 0.3,
        hold: bool = True,
        **options: Any,
    ) -> list[Tree]:
        """The trees of sentences.

        Args:
            sentences: each a list of words.   beam: hypotheses; the paper has 21.
            alpha: length penalty, the paper's.
            hold: hold the search to trees; False: mend what comes out.
            options: as for `Translator.candidates`.

        Raises: ValueError if a sentence has no words, or for a model that writes no trees.
        """
        lines = [words_to_line(words) for words in sentences]
        search = {"max_extra": 300, "beam": beam, "alpha": alpha, **options}
        translator = self.translator
        if hold:
            translator = ConstrainedTranslator(translator.model, translator.tokenizer)
        found = translator.translate_all(lines, **search)
        return [line_to_tree(line, words) for line, words in zip(found, sentences, strict=True)]


def load_parser(name: str = "craft-parser", device: str = "cpu") -> Parser:
    """A trained parser: one that comes with the package, or the folder of a run.

    Raises: ValueError as `load_pretrained`.
    """
    return Parser(load_pretrained(name, device))


def score_parser(
    parser: Parser, treebank: str, split: str, limit: int | None = None, **options: Any
) -> list[dict[str, Any]]:
    """Parse a split of a treebank, and score it as EVALB does, with the gold trees' punctuation.

    Args:
        treebank, split: as for `treebank_files`.   limit: sentences, from the beginning.
        options: as for `Parser.parse_all`.

    Returns: as `score_trees`.

    Source: section 6.3, Table 4.
    """
    check_limit(limit)
    gold = load_trees(treebank, split)[:limit]
    found = parser.parse_all([tree.leaves() for tree in gold], progress=True, **options)
    return score_trees(gold, found)
