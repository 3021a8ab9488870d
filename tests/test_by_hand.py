"""The reader's own parts: right ones pass, and each typical mistake gets its own help."""

import ast
import json
import math
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from annotated import by_hand
from annotated.by_hand import PARTS, check, check_text, solution
from annotated.machinery.files import resource_path

MISTAKES = [(name, *wrong) for name, part in PARTS.items() for wrong in part["wrong"]]
TENSORS = {
    "softmax": lambda scores: scores.softmax(dim=-1),
    "attention": lambda q, k, v: (k @ q / math.sqrt(len(q))).softmax(dim=-1) @ v,
    "mask": lambda n: torch.ones(n, n, dtype=torch.bool).tril(),
    "layer_norm": lambda row, g, b: torch.nn.functional.layer_norm(row, row.shape, g, b),
    "relu": torch.relu,
}


@pytest.mark.parametrize("name", PARTS)
def test_a_solution_is_right_and_a_skeleton_is_not(name: str) -> None:
    verdict = check(name, solution(name))
    assert verdict and verdict.text == repr(verdict) and verdict.text.startswith("Right")
    assert check_text(name, PARTS[name]["solution"], {})
    skeleton = check_text(name, PARTS[name]["skeleton"], {})
    assert not skeleton and skeleton.text


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_are_as_good_as_lists(name: str) -> None:
    assert check(name, TENSORS[name]), check(name, TENSORS[name]).text


def test_searches_with_tensors() -> None:
    def greedy(step, start, end, most):
        ids = torch.tensor([start])
        while ids[-1] != end and len(ids) <= most:
            ids = torch.cat([ids, step(ids).argmax().view(1)])
        return ids[1:]

    assert check("greedy", greedy)


@pytest.mark.parametrize(("name", "old", "new", "told"), MISTAKES)
def test_a_typical_mistake_gets_its_own_help(name: str, old: str, new: str, told: str) -> None:
    assert PARTS[name]["solution"].count(old) == 1
    verdict = check(name, solution(name, old, new))
    assert not verdict and verdict.mistake == told, verdict.text
    assert verdict.text.startswith(told) and "(For " in verdict.text


def test_there_are_many_mistakes_and_no_two_have_the_same_help() -> None:
    assert len(MISTAKES) > 80
    assert max(Counter(told for *_, told in MISTAKES).values()) == 1


ROW = "def relu(row):\n    return "
ANGLE = "def positions(p, d):\n    a = lambda i: p / 10000 ** (i / d)\n    return "
WAVE = "[2 * x for i in range(0, d, 2) for x in (math.sin(a(i)), math.cos(a(i)))]\n"
MASK = "def mask(n):\n    return [["
GREEDY = "def greedy(step, start, end, most):\n    "
OTHERS = {
    "nothing": ("softmax", "def softmax(scores):\n    pass\n", "returns nothing"),
    "one number": ("softmax", "def softmax(scores):\n    return 1.0\n", "yours gives one number"),
    "rows": ("softmax", "def softmax(s):\n    return [s]\n", "yours gives 1 rows of 3"),
    "text": ("relu", f"{ROW}['a'] * len(row)\n", "is a str"),
    "line": ("relu", "def relu(row):\n    x = 1\n    return x / 0\n", "Error in line 3"),
    "syntax": ("relu", "def relu(row)\n    return row\n", "SyntaxError in line 1"),
    "name": ("relu", "def relo(row):\n    return row\n", "no function with the name relu"),
    "arguments": ("mask", "def mask():\n    return []\n", "TypeError"),
    "recursion": ("relu", f"{ROW}relu(row)\n", "in line 2"),
    "twice": ("relu", f"{ROW}[2 * max(0, x) for x in row]\n", "2 times"),
    "off": ("relu", f"{ROW}[max(0, x) + 1 for x in row]\n", "off by 1"),
    "waves": ("positions", f"{ANGLE}{WAVE}", "times the right"),
    "order": ("relu", f"{ROW}[max(0, x) for x in row][::-1]\n", "not their order"),
    "nan": ("relu", f"{ROW}[float('nan') for x in row]\n", "(nan)"),
    "a row": ("mask", f"{MASK}j <= min(i, 1) for j in range(n)] for i in range(n)]\n",
              "row 2, counted from 0, should be True True True False; yours is True True False"),
    "endless": ("greedy", f"{GREEDY}while True:\n        step([start])\n", "does not stop"),
    "float ids": ("greedy", f"{GREEDY}return [0.5]\n", "“?”"),
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHERS)
def test_other_mistakes_are_described(kind: str) -> None:
    name, text, told = OTHERS[kind]
    verdict = check_text(name, text, {})
    assert not verdict and told in verdict.text, verdict.text


def test_wrong_calls() -> None:
    with pytest.raises(ValueError, match="expected one of softmax"):
        check("sofmax", len)
    assert not check("softmax", 3)


def test_the_numbers_are_the_model_s() -> None:
    text = (resource_path("results") / "by-hand.json").read_text(encoding="utf-8")
    numbers = json.loads(text)
    assert set(numbers["cases"]) == set(PARTS) and len(text) < 200_000
    first, *_ = numbers["cases"]["greedy"]
    said = "".join(numbers["pieces"][i] for i in first["expected"]).replace("▁", " ").strip()
    assert said == "Ein Mann fährt Fahrrad.</s>"


@pytest.mark.slow
def test_the_numbers_can_be_made_again() -> None:
    from benchmarks.by_hand import collect

    text = (resource_path("results") / "by-hand.json").read_text(encoding="utf-8")
    found, expected = collect(), json.loads(text)
    assert found["pieces"] == expected["pieces"]
    for name, cases in expected["cases"].items():
        for one, other in zip(found["cases"][name], cases, strict=True):
            assert by_hand.close(one["expected"], by_hand.as_numbers(other["expected"]))


CHAPTER = Path(__file__).parents[1] / "chapters" / "by-hand.md"


def code() -> list[str]:
    jupytext = pytest.importorskip("jupytext", reason="needs the extra `test`")
    cells = jupytext.read(CHAPTER, fmt="md:myst").cells
    return [cell.source for cell in cells if cell.cell_type == "code"]


@pytest.mark.slow
def test_the_number_words_are_those_of_a_library() -> None:
    num2words = pytest.importorskip("num2words", reason="needs the extra `chapters`").num2words
    space: dict = {}
    exec(next(cell for cell in code() if cell.startswith("ENGLISH")), space)
    for n in range(1, 10_000):
        english = num2words(n).replace(",", "").replace(" and ", " ")
        assert space["pair"](n) == (english, num2words(n, lang="de"))


@pytest.mark.slow
def test_model_and_training_are_one_program_that_needs_torch_and_tokenizers_alone(tmp_path) -> None:
    cells, functions = code(), {}
    for cell in cells:
        for node in ast.parse(cell).body:
            if isinstance(node, ast.FunctionDef):  # the last one, as on the page
                functions[node.name] = ast.get_source_segment(cell, node)
    listed = next(
        re.search(r"^PARTS = \[.*?^\]", cell, re.M | re.S) for cell in cells if "PARTS" in cell
    )
    start, end = (
        next(i for i, c in enumerate(cells) if c.startswith(s))
        for s in ("ENGLISH", "with torch.no_grad")
    )
    parts = [functions[name] for name in re.findall(r"[a-z_]+", listed[0])]
    program = "\n".join(
        ["import math, torch", "from tokenizers import Tokenizer", *parts, *cells[start : end + 1]]
    )
    counted = program.removesuffix(cells[end])  # without the check of what was learned
    assert 115 < sum(bool(line.strip()) for line in counted.splitlines()) < 127
    imported = {*re.findall(r"^(?:from|import) (\w+)", program, re.M)}
    assert imported <= {"torch", "tokenizers"} | sys.stdlib_module_names
    (tmp_path / "translator.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "-I", "-X", "utf8", "translator.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr  # it asserts that it has learned
    last = next(line for line in done.stdout.splitlines() if line.startswith("   300"))
    assert last.split()[-1] == "viertausenddreihundertvierundzwanzig"
