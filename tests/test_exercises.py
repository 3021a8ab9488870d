"""Exercises with code: the checks know right from wrong; and the notebooks for a class."""

import ast
import re
from contextlib import suppress
from pathlib import Path

import pytest
import torch

pytest.importorskip("pybtex", reason="needs the extra `book`")
pytest.importorskip("jupytext", reason="needs the extra `test`")

import jupytext
import nbformat
from class_notebooks import WORDS, asked, for_class, is_work, overview, tags, with_checks
from contents import ROOT, sources
from notebooks import write_notebooks

from annotated.by_hand import expect

PAGES = {page: jupytext.read(path, fmt="md:myst").cells for page, path in sources().items()}
WORK = {page: cells for page, cells in PAGES.items() if any(map(is_work, cells))}
CHECKED = {  # the code of a solution and of its check, by page and function
    (page, node.name): (cell.source, check)
    for page, cells in WORK.items()
    for cell, check in with_checks(cells)
    if check
    for node in asked(cell.source, check)
}

# For each, texts of the solution, what replaces them, and a text of the help.
WRONG: dict[tuple[str, str], list[tuple[str, str, str]]] = {
    ("1-introduction", "scan"): [
        ("while shift < len(a):", "if True:", "one round of several"),
        ("    shift = 1\n", "    p = a.cumprod(0)\n    return p * (b / p).cumsum(0)\n    shift = "
         "1\n", "no division is needed"),
        ("a, b = a * earlier_a, a *", "b =", "without the a"),
        ("    shift = 1\n", "    out = [b[0]]\n    for i in range(1, len(a)):\n        out.append("
         "a[i] * out[-1] + b[i])\n    return torch.stack(out)\n    shift = 1\n", "waits for"),
        ("return b", "return b, shift", "yours gives"),
        ("return b", "pass", "returns nothing"),
    ],
    ("2-background", "layers_between"): [
        ("((k - 1) / 2)", "(k - 1)", "half as far"),
        ("math.ceil(", "math.floor(", "round up"),
        ("math.ceil(D / ((k - 1) / 2))", "D / ((k - 1) / 2)", "has to be whole"),
    ],
    ("3-3-feed-forward", "identity"): [
        ("torch.cat([eye, -eye])", "torch.cat([eye, 0 * eye])", "Negative numbers become 0"),
        ('"weight": both.T', '"weight": both.T.abs()', "lose their sign"),
        ('"bias": torch.zeros(d_model)', '"bias": torch.rand(d_model)', "still the random one"),
        ("    return network", "    network.w_2.weight.data[:, d_model:] = 0\n    network.w_1.bias."
         "data.fill_(5e3)\n    network.w_2.bias.data.fill_(-5e3)\n    return network",
         "only as far as the bias reaches"),
    ],
    ("3-5-positional-encoding", "Shifted"): [
        (" if self.training else 0", "", "shifted in evaluation too"),
        ("LENGTH + 1", "LENGTH", "20 is missing"),
        ("torch.randint(LENGTH + 1", "torch.randint(1, LENGTH + 1", "0 is missing"),
        ("[:, start:]", "[:, : x.size(1)]", "keep the tokens at the end"),
        ("[:, start:]", "", "as many tokens"),
        ("int(torch.randint(LENGTH + 1, ()))", "0", "begin at the same position"),
    ],
    ("5-1-data-batching", "times_seen"): [
        (" / (4.5e6 * length)", " / length", "pairs in all steps"),
        ("(4.5e6 * length)", "4.5e6", "not 25,000 pairs"),
        ("25_000", "50_000", "source tokens do not add"),
    ],
    ("5-3-optimizer", "warmup_share"): [
        ("sum(rates[:warmup]) / sum(rates)", "warmup / updates", "The rates differ"),
        ("sum(rates)", "sum(rates[warmup:])", "the ratio"),
        ("rates[:warmup]", "rates[warmup:]", "after the warmup"),
    ],
    ("5-4-regularization", "gradient"): [
        ("return logits.softmax(dim=-1) - (1 - epsilon) * F.one_hot(y, K) - epsilon / K",
         "return (1 - epsilon) * F.one_hot(y, K) + epsilon / K - logits.softmax(dim=-1)",
         "The sign is wrong"),
        ("(1 - epsilon) * F.one_hot(y, K) - epsilon / K", "F.one_hot(y, K)", "without smoothing"),
        ("(1 - epsilon) * F.one_hot(y, K) - epsilon / K", "(1 - epsilon) * F.one_hot(y, K) - "
         "epsilon / (K - 1) * (1 - F.one_hot(y, K))", "wrong tokens only"),
        ("return logits.softmax(dim=-1) - (1 - epsilon) * F.one_hot(y, K) - epsilon / K",
         "return (logits.softmax(dim=-1) - (1 - epsilon) * F.one_hot(y, K) - epsilon / K) / len(y)",
         "gradient of the mean"),
    ],
    ("5-4-regularization", "cost"): [
        (" - math.log(choices)", "", "This is the whole loss"),
        (" + epsilon / K", "", "a share of ε too"),
        ("return -math.log(answer) - math.log(choices)", "return -math.log2(answer * choices)",
         "These are bits"),
        ("-math.log(answer)", "math.log(answer)", "number 0"),
    ],
    ("6-2-model-variations", "fewer_numbers"): [
        ("6 + 2 * 6", "6 + 6", "two attentions"),
        ("attentions * 2", "attentions * 4", "keep their width"),
        (" * h *", " *", "of one head"),
        ("attentions * 2", "attentions", "a matrix each"),
    ],
    ("7-conclusion", "tokens_per_step"): [
        ("sum(p**i for i in range(k + 1))", "1 + p * k", "Each right guess counts"),
        ("sum(p**i for i in range(k + 1))", "1 / (1 - p)", "endlessly many"),
        ("range(k + 1)", "range(1, k + 1)", "adds itself is missing"),
        ("range(k + 1)", "range(k)", "number 0"),
    ],
    ("since-2017", "without_weights"): [
        (" * norm.weight.data", "", "are missing"),
        ("* norm.weight.data", "* norm.weight.data.unsqueeze(1)", "not each row"),
        ("* norm.weight.data", "/ norm.weight.data", "to be multiplied, because"),
        ("folded = nn.Linear(linear.in_features, linear.out_features, bias=False)",
         "folded = linear", "given map has changed"),
    ],
    ("language-model", "kept"): [
        ("ordered.cumsum(0) - ordered < top_p", "ordered.cumsum(0) < top_p", "is kept too"),
        ("p.sort(descending=True).values", "p", "Begin with the most probable"),
        ("ordered.cumsum(0) - ordered < top_p", "p >= top_p", "all kept ones together"),
    ],
    ("language-model-heads", "induction"): [
        ("F.pad(x, (0, 0, 1, -1))", "x", "the present token"),
        ("F.pad(x, (0, 0, 1, -1))", "F.pad(x, (0, 0, -1, 1))", "in the wrong direction"),
        (".softmax(dim=-1) @ x)", ".softmax(dim=-1) @ keys)", "the present token"),
    ],
    ("machinery/change-it", "TopAttention"): [
        ("scores.masked_fill(scores < least, -math.inf)", "scores", "Every key"),
        ("masked_softmax(scores.masked_fill(scores < least, -math.inf), mask)",
         "masked_softmax(scores, mask) * (scores >= least)", "Choose before the softmax"),
        ("if mask is not None", "if False", "in the future"),
        (" / math.sqrt(query.size(-1))", "", "not divided"),
        ("return self.dropout(weights) @ value, weights", "return weights, weights",
         "the weights times the values"),
    ],
}  # fmt: skip


def defined(code: str, constants: bool = False) -> ast.Module:
    """Imports and definitions in code, which cost nothing to execute."""
    kinds = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    kept = [
        node
        for node in ast.parse(re.sub(r"^[%!].*", "", code, flags=re.MULTILINE)).body
        if isinstance(node, kinds)
        or (constants and isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).isupper())
        or ast.unparse(node).startswith("LENGTH, ")
    ]
    return ast.Module(kept, [])


def answer(page: str, name: str, old: str = "", new: str = "") -> None:
    """Execute the check of an exercise beside a solution in which a text is replaced."""
    torch.manual_seed(0)
    space: dict = {}
    for cell in PAGES[page]:
        if cell.cell_type == "code" and not {"solution", "check"} & {*tags(cell)}:
            for node in defined(cell.source, constants=True).body:
                with suppress(NameError):  # a constant made from what is not defined here
                    exec(compile(ast.Module([node], []), page, "exec"), space)
    solution, check = CHECKED[page, name]
    assert not old or old in solution
    exec(compile(defined(solution.replace(old, new) if old else solution), "yours", "exec"), space)
    exec(compile(check, "check", "exec"), space)


@pytest.mark.parametrize(("page", "name"), CHECKED)
def test_a_solution_passes_its_check_without_anything_else_of_its_cell(page: str, name: str):
    answer(page, name)


@pytest.mark.parametrize(
    ("page", "name", "old", "new", "help"), [(*key, *w) for key in WRONG for w in WRONG[key]]
)
def test_a_wrong_answer_gets_its_own_help(page: str, name: str, old: str, new: str, help: str):
    with pytest.raises(AssertionError) as told:
        answer(page, name, old, new)
    assert help in str(told.value)


def test_every_check_has_wrong_answers_and_every_help_is_seen():
    assert WRONG.keys() == CHECKED.keys() and len(CHECKED) > 10
    for key, wrong in WRONG.items():
        assert len(wrong) >= 3, key
        _, name = key
        tree = ast.parse(CHECKED[key][1])
        dicts = [node for node in ast.walk(tree) if isinstance(node, ast.Dict)]
        helps = [ast.literal_eval(k) for node in dicts for k in node.keys]
        helps += [ast.unparse(n.msg) for n in ast.walk(tree) if isinstance(n, ast.Assert)]
        unseen = [h for h in helps if not any(text in h for *_, text in wrong)]
        assert not unseen, (name, unseen)


def test_expect_says_where_results_differ():
    assert expect(torch.eye(2), [[1, 0], [0, 1]])
    for got, expected, told in [
        (None, 1.0, "returns nothing"),
        (0.5, 1.0, "expected 1; yours gives 0.5."),
        (torch.ones(2, 3), torch.ones(3, 2), "expected 3 rows of 2; yours gives 2 rows of 3."),
        ([[1.0, 2.0], [3.0, 5.0]], [[1.0, 2.0], [3.0, 4.0]], "in row 1: number 1"),
    ]:
        with pytest.raises(AssertionError, match=re.escape(told)):
            expect(got, expected)
    with pytest.raises(AssertionError, match=r"^Twice\. \(Expected 1; yours gives 2\.\)$"):
        expect(2.0, 1.0, {"Half.": 0.5, "Twice.": 2})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("class")
    write_notebooks(ROOT, folder, None, for_class)
    return folder


def test_the_notebooks_of_a_class_have_checks_and_no_solutions(folder: Path):
    names = {page: page.rpartition("/")[-1] for page in WORK}
    assert {path.stem for path in folder.iterdir()} == {*names.values()} >= {"by-hand"}
    for page, cells in WORK.items():
        notebook = nbformat.read(folder / f"{names[page]}.ipynb", as_version=4)
        nbformat.validate(notebook)
        text = "\n".join(cell.source for cell in notebook.cells)
        stays = "\n".join(cell.source for cell in cells if not is_work(cell))
        for cell, check in with_checks(cells):
            if "solution" in tags(cell):
                assert check in text
                lost = {line.strip() for line in cell.source.splitlines() if line[-1:] != ":"}
                lost -= {f'"""{ast.get_docstring(node)}"""' for node in defined_in(cell.source)}
            else:
                words = WORDS.findall(cell.source) if cell.cell_type == "markdown" else []
                lost = {line for part in words for line in part.splitlines()}
            for line in lost:
                assert len(line) < 30 or line in stays or line not in text, line
        for link in re.findall(r"\]\((?!https?:)([\w-]+\.ipynb)", text):
            assert (folder / link).is_file(), link
        for name in re.findall(r"\{turn\} (\w+)", "".join(cell.source for cell in cells)):
            assert f'check("{name}", my_{name})' in text


def test_the_overview_counts_what_the_notebooks_of_a_class_have(folder: Path):
    rows = [re.findall(r"\((\S+)\) \| (\d+) \| (\d+) \| (\d+) \|$", row) for row in overview()]
    listed = {name: list(map(int, numbers)) for ((name, *numbers),) in rows}
    assert {*listed} == {path.name for path in folder.iterdir()}
    for name, (minutes, written, checked) in listed.items():
        cells = nbformat.read(folder / name, as_version=4).cells
        code = [cell.source for cell in cells if cell.cell_type == "code"]
        checks = sum(text.startswith("# @title Check") or "\ncheck(" in text for text in code)
        prose = " ".join(cell.source for cell in cells if cell.cell_type == "markdown")
        assert checks == checked <= written > 0, name
        assert 0 < minutes < 1 + len(prose.split()) / 150, name


def defined_in(code: str) -> list[ast.FunctionDef | ast.ClassDef]:
    kinds = ast.FunctionDef, ast.ClassDef
    return [node for node in ast.walk(ast.parse(code)) if isinstance(node, kinds)]


@pytest.mark.slow
def test_a_notebook_of_a_class_passes_with_the_solutions_put_back(folder: Path, monkeypatch):
    nbclient = pytest.importorskip("nbclient", reason="needs the extra `test`")
    notebook = nbformat.read(folder / "7-conclusion.ipynb", as_version=4)
    client = nbclient.NotebookClient(
        notebook, kernel_name="python3", resources={"metadata": {"path": str(ROOT / "chapters")}}
    )
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="AssertionError"):
        client.execute()
    for cell in notebook.cells:
        for (page, name), (solution, _) in CHECKED.items():
            if page == "7-conclusion" and cell.source.startswith(f"def {name}("):
                cell.source = solution
    client.execute()
    assert "Right." in "".join(str(cell.get("outputs", "")) for cell in notebook.cells)
