"""EVALB."""

from typing import Any

from annotated.machinery.parsing.evalb import score_trees
from annotated.machinery.parsing.trees import check_limit, load_trees
from annotated.parsing import Parser


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
