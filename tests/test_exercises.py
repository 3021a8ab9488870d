"""The checks of exercises: a solution passes, and each typical wrong answer gets its own help."""

import ast
from contextlib import suppress

import jupytext
import pytest
import torch

pytest.importorskip("jupytext", reason="needs the extra `test`")

from contents import sources

from annotated.by_hand import expect

PAGES = {
    page: jupytext.read(path, fmt="md:myst").cells
    for page, path in sources().items()
    if "solution, check]" in path.read_text(encoding="utf-8")
    or "cell, check]" in path.read_text(encoding="utf-8")
}
DEFINES = ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom
SCAN = "a * earlier_a, a * earlier_b + b"
TOKEN = "for token in x:"

# By page and function: a text of the solution, what replaces it, and a text of the help.
WRONG = {
    ("1-introduction", "scan"): [
        ("while shift < len(a):", "if True:", "one round of several"),
        ("    shift = 1\n", "    p = a.cumprod(dim=0)\n    return p * (b / p).cumsum(dim=0)\n"
         "    shift = 1\n", "no division is needed"),
        (SCAN, "a, earlier_b + b", "without the a"),
        ("    shift = 1\n", "    out = [b[0]]\n    for i in range(1, len(a)):\n"
         "        out.append(a[i] * out[-1] + b[i])\n    return torch.stack(out)\n    shift = 1\n",
         "waits for the one before it"),
        ("return b", "return b, shift", "yours gives"),
        ("return b", "pass", "returns nothing"),
    ],
    ("1-introduction", "wavefront"): [
        ("states[i] = token = torch.tanh(layer.input(token)", "states[i] = new = torch.tanh("
         "layer.input(token)", "is not defined"),
        ("for i, layer in enumerate(layers)", "for i, layer in enumerate(layers[:1])",
         "the first layer alone"),
        ("states[i] = token = torch", "one = token; states[i] = token = torch", ""),
    ],
}  # fmt: skip
