"""The parser that comes with the package."""

import json
from inspect import signature
from types import SimpleNamespace

import pytest
import torch
from nltk import Tree
from torch import nn

from annotated.data import END
from annotated.decoding import beam_search
from annotated.machinery.cli import build_parser
from annotated.machinery.files import resource_path
from annotated.machinery.parsing.evalb import score_trees
from annotated.machinery.parsing.trees import read_trees
from annotated.machinery.translator import load_pretrained
from annotated.model import make_model
from annotated.parsing import Parser, load_parser


def test_a_model_of_sentences_is_no_parser():
    with pytest.raises(ValueError, match="trees"):
        Parser(load_pretrained("multi30k-en-de")).parse(["mice"])


@pytest.fixture(scope="module")
def gold() -> list[Tree]:
    with (resource_path("results") / "craft-test-trees.txt").open(encoding="utf-8") as lines:
        return list(read_trees(lines))


@pytest.mark.slow
def test_the_shipped_parser_is_right_about_most_phrases(gold: list[Tree]):
    found = load_parser().parse_all([tree.leaves() for tree in gold])
    assert [tree.leaves() for tree in found] == [tree.leaves() for tree in gold]
    (ours, *_) = score_trees(gold, found)
    assert ours["Bracketing FMeasure"] > 70
    assert ours["Tagging accuracy"] > 90


SHARES = "Recall", "Precision", "FMeasure"


def test_the_card_of_the_shipped_parser_quotes_its_results():
    card = (resource_path("models") / "craft-parser" / "README.md").read_text(encoding="utf-8")
    expected = []
    for name, count in ("craft-parser.json", 9099), ("craft-parser-wsj.json", 3914):
        rows = json.loads((resource_path("results") / name).read_text(encoding="utf-8"))
        assert max(row["Number of sentence"] for row in rows) == count  # no part of the corpus
        for row in rows:
            who = row.get("parser", "Transformer, NLTK's sample")
            shares = [f"{row[f'Bracketing {name}']:.2f}" for name in SHARES]
            cells = [who, row["sentences"], f"{row['Number of sentence']:,}", *shares]
            expected.append(f"| {' | '.join(cells)} |")
    table = card[card.index("| parser |") :].split("\n\n")[0].splitlines()
    assert table[2:] == expected


def test_the_search_is_the_papers():
    """300 tokens more than the input, α = 0.3, and as many hypotheses as are asked for."""
    model = make_model(9, 9, N=1, d_model=8, d_ff=8, h=2).eval()
    src, never, widths, seen = torch.tensor([[5, 6, END]]), torch.tensor([END]), [], {}

    def count(part: nn.Module, given: object, out: torch.Tensor) -> torch.Tensor:
        """Note how many hypotheses there are, and let none of them end."""
        widths.append(out[..., 0].numel())
        return out.index_fill(-1, never, -1e4)

    def translate_all(lines: list[str], **options: float) -> list[str]:
        hook = model.generator.register_forward_hook(count)
        output = beam_search(model, src, **options)[0][0].ids
        hook.remove()
        seen.update(options, more=len(output) + 1 - src.size(1))  # the end is a token
        return lines

    parser = Parser(SimpleNamespace(translate_all=translate_all))
    arguments = ["parse", "--beam", "21"]
    beam = build_parser(arguments).parse_args(arguments).beam
    parser.parse_all([["mice"]], beam=beam, hold=False)
    assert (seen["more"], seen["alpha"], max(widths)) == (300, 0.3, 21)
    assert signature(Parser.parse_all).parameters["beam"].default == 4
