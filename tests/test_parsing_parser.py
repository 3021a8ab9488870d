"""The parser that comes with the package."""

import json
from types import SimpleNamespace

import pytest
from nltk import Tree

from annotated.data import train_bpe
from annotated.machinery.files import resource_path
from annotated.machinery.trees.evalb import score_trees
from annotated.machinery.trees.penn import read_trees
from annotated.parsing import Parser, load_parser


def test_a_model_of_sentences_is_no_parser():
    with pytest.raises(ValueError, match="trees"):
        load_parser("multi30k-en-de")


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


@pytest.mark.gpu
def test_a_gpu_parses_as_the_cpu_does(gold: list[Tree]):
    """The rules that keep the search to trees work there too."""
    sentences = [tree.leaves() for tree in gold[:4]]
    assert load_parser(device="cuda").parse_all(sentences) == load_parser().parse_all(sentences)


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
    """300 tokens more than the input and α = 0.3; with the paper's beam only if asked for."""
    seen: list[dict] = []

    def translate(lines: list[str], **options: float) -> list[str]:
        seen.append(options)
        return lines

    vocabulary = train_bpe(["↓NP →NN mice ↑NP"] * 2, 60)
    parser = Parser(SimpleNamespace(translate=translate, tokenizer=vocabulary))
    for beam in {}, {"beam": 21}:
        parser.parse_all([["mice"]], hold=False, **beam)
    paper = {"max_extra": 300, "alpha": 0.3}
    assert seen == [paper | {"beam": 4}, paper | {"beam": 21}]
