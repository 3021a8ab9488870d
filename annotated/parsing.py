"""6.3 English Constituency Parsing (chapters/6-3-constituency-parsing.md).

Generated from the chapters by book/extract.py; edit the chapter instead.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from annotated.machinery.errors import extra
from annotated.machinery.formats.pretrained import load_pretrained
from annotated.machinery.translator import Translator
from annotated.machinery.trees.constraints import ConstrainedTranslator, tree_constraints
from annotated.machinery.trees.linear import line_to_tree, words_to_line
from annotated.machinery.trees.penn import is_tag

if TYPE_CHECKING:
    import pandas as pd
    from nltk import Tree


def linearize(tree: "Tree") -> list[str]:
    """A tree as tokens: (NP and )NP for brackets, a tag for each word.

    Source: section 6.3.

    >>> linearize(Tree.fromstring("(NP (DT the) (NN mat))"))
    ['(NP', 'DT', 'NN', ')NP']
    """
    if is_tag(tree):
        return [tree.label()]
    inside = [token for child in tree for token in linearize(child)]
    return [f"({tree.label()}", *inside, f"){tree.label()}"]


@dataclass(frozen=True)
class Parser:
    """A translator from words to trees, trained on lines as `write_treebank` writes them.

    Raises: InputError for a model whose vocabulary has no brackets.
    """

    translator: Translator

    def __post_init__(self) -> None:
        tree_constraints(self.translator.tokenizer)

    def parse(self, words: list[str], **options: Any) -> "Tree":
        """The tree of one sentence; options as for `parse_all`."""
        return self.parse_all([words], **options)[0]

    def parse_all(
        self,
        sentences: list[list[str]],
        beam: int = 4,
        alpha: float = 0.3,
        hold: bool = True,
        **options: Any,
    ) -> list["Tree"]:
        """The trees of sentences.

        Args:
            sentences: each a list of words.   beam: hypotheses; the paper has 21.
            alpha: length penalty, the paper's.
            hold: restrict the search to trees; False: repair the output.
            options: as for `Translator.candidates`.

        Raises: InputError if a sentence has no words, or for a model that writes no trees.

        Source: section 6.3; the restriction is ours.
        """
        sentences = list(sentences)
        lines = [words_to_line(words) for words in sentences]
        search = {"max_extra": 300, "beam": beam, "alpha": alpha, **options}
        translator = self.translator
        if hold:
            translator = ConstrainedTranslator(translator.model, translator.tokenizer)
        found = translator.translate(lines, **search)
        return [line_to_tree(line, words) for line, words in zip(found, sentences, strict=True)]


def load_parser(name: str = "craft-parser", device: str = "cpu") -> Parser:
    """A trained parser: one that comes with the package, or the folder of a run.

    Raises: as `load_pretrained`.
    """
    return Parser(load_pretrained(name, device))


_TABLE_4 = {
    "WSJ only, discriminative": {
        "Vinyals & Kaiser 2014": 88.3, "Petrov 2006": 90.4, "Zhu 2013": 90.4, "Dyer 2016": 91.7,
        "Transformer (4 layers)": 91.3,
    },
    "semi-supervised": {
        "Zhu 2013": 91.3, "Huang & Harper 2009": 91.3, "McClosky 2006": 92.1,
        "Vinyals & Kaiser 2014": 92.1, "Transformer (4 layers)": 92.7,
    },
    "multi-task": {"Luong 2015": 93.0},
    "generative": {"Dyer 2016": 93.3},
}  # fmt: skip


def table_4() -> "pd.DataFrame":
    """Table 4: F1 in percent on section 23 of the Wall Street Journal.

    Source: section 6.3, Table 4.
    """
    with extra("viz"):
        import pandas as pd
    rows = [(name, how, f1) for how, group in _TABLE_4.items() for name, f1 in group.items()]
    return pd.DataFrame(rows, columns=["parser", "training", "F1"])
