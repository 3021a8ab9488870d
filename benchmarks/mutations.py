"""Small faults planted one at a time, to find those that the quick tests do not notice.

Each fault is planted in a copy of the package, whose tests are then run by a fork of this process.
A fault that survives either shows that a test is missing or makes no observable difference; a
person has to judge which.
"""

import argparse
import ast
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[1]
MODULES = "attention stacks positional model decoding incremental optimizer batches checkpoints"
TESTS = {  # where they are not in tests/test_MODULE.py alone
    "attention": "attention decoding", "stacks": "stacks model decoding",
    "positional": "positional model", "incremental": "decoding parts", "batches": "runs_batches",
    "checkpoints": "runs_checkpoints runs_trainer runs_folder",
}  # fmt: skip
QUICK = "not (slow or processes or colab or gpu or site or browser or corpora or paper)"
OPERATORS = {  # by their names in `ast`
    "Add": "Sub", "Sub": "Add", "Mult": "Div", "Div": "Mult", "FloorDiv": "Mult", "Mod": "Mult",
    "Pow": "Mult", "BitOr": "BitAnd", "BitAnd": "BitOr", "And": "Or", "Or": "And",
    "Lt": "LtE GtE", "LtE": "Lt Gt", "Gt": "GtE LtE", "GtE": "Gt Lt", "Eq": "NotEq", "NotEq": "Eq",
    "Is": "IsNot", "IsNot": "Is", "In": "NotIn", "NotIn": "In",
}  # fmt: skip


def changed(node: Any, **changes: Any) -> Any:
    return type(node)(**dict(ast.iter_fields(node)) | changes)


def others(operator: ast.AST) -> Iterator[Any]:
    """The operators that may replace one."""
    return (getattr(ast, name)() for name in OPERATORS.get(type(operator).__name__, "").split())


def variants(node: Any) -> Iterator[ast.AST]:
    """The faults that may replace a node."""
    match node:
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            for value in {node.value + 1, node.value - 1} - {node.value}:  # not of 1e20
                yield ast.Constant(value)
        case ast.BinOp() | ast.BoolOp() | ast.AugAssign():
            yield from (changed(node, op=new) for new in others(node.op))
        case ast.Compare():
            for i, old in enumerate(node.ops):
                for new in others(old):
                    yield changed(node, ops=[*node.ops[:i], new, *node.ops[i + 1 :]])
        case ast.UnaryOp(op=ast.Not() | ast.Invert()) | ast.UnaryOp(operand=ast.Name()):
            yield node.operand
        case ast.IfExp():
            yield changed(node, body=node.orelse, orelse=node.body)
        case ast.If(test=ast.Name() | ast.Attribute() | ast.Call()):
            yield changed(node, test=ast.UnaryOp(ast.Not(), node.test))
        case ast.Call() if ast.unparse(node.func) not in ("min", "max"):
            for i, (one, other) in enumerate(zip(node.args, node.args[1:], strict=False)):
                yield changed(node, args=[*node.args[:i], other, one, *node.args[i + 2 :]])
    match node:
        case ast.Expr(value=ast.Constant()) | ast.Assign(targets=[ast.Name() | ast.Tuple()]):
            pass  # a docstring; a name without which nothing runs
        case ast.Expr() | ast.Assign() | ast.AugAssign() | ast.Raise():
            yield ast.Pass()


def faults(node: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Plant one fault after another in a tree, each until the next is asked for.

    Yields: its line, and the code before and after.
    """
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns") or isinstance(node, ast.JoinedStr):
            continue
        nodes = value if isinstance(value, list) else [value]
        for i, child in enumerate(nodes):
            if not isinstance(child, ast.AST):
                continue
            for fault in variants(child):
                before, after = (ast.unparse(code).split("\n")[0] for code in (child, fault))
                planted = [*nodes[:i], fault, *nodes[i + 1 :]] if value is nodes else fault
                setattr(node, name, planted)
                yield getattr(child, "lineno", 0), before, after
                setattr(node, name, value)
            yield from faults(child)


def passed(folder: Path, tests: list[str], seconds: float) -> bool:
    """Whether the tests pass, in time, in a fork of this process."""
    if (child := os.fork()) == 0:
        signal.alarm(int(seconds))
        for stream in 1, 2:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        import pytest

        os._exit(pytest.main(["-x", "-p", "no:cacheprovider", "-m", QUICK, *tests]))
    return os.waitpid(child, 0)[1] == 0


def survey(path: Path, tests: list[str], folder: Path) -> None:
    """Print the faults of a module that its tests do not notice."""
    for entry in ROOT.glob("[!._]*"):
        if entry.name in ("annotated", "tests"):
            shutil.copytree(entry, folder / entry.name, ignore=shutil.ignore_patterns("*.pyc"))
        else:
            (folder / entry.name).symlink_to(entry)
    begun, count, survivors = time.monotonic(), 0, 0
    if not passed(folder, tests, 600):
        raise SystemExit(f"expected {' and '.join(tests)} to pass; they fail without a fault")
    limit, tree = 10 + 5 * (time.monotonic() - begun), ast.parse(path.read_text(encoding="utf-8"))
    for line, before, after in faults(tree):
        (folder / path.relative_to(ROOT)).write_text(ast.unparse(tree), encoding="utf-8")
        count += 1
        if passed(folder, tests, limit):
            survivors += 1
            print(f"{path.relative_to(ROOT)}:{line}: {before}  →  {after}", flush=True)
    minutes = (time.monotonic() - begun) / 60
    print(f"{path.stem}: {survivors} of {count} faults survived; {minutes:.0f} minutes", flush=True)


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks mutations", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"default: {MODULES}")
    os.environ |= {"HYPOTHESIS_PROFILE": "quick", "OMP_NUM_THREADS": "1"}
    sys.dont_write_bytecode = True  # two faults of one second would share it
    import hypothesis  # noqa: F401  # once, before the forks
    import torch  # noqa: F401

    for module in parser.parse_args(given).modules or MODULES.split():
        (path,) = ROOT.glob(f"annotated/**/{module}.py")
        tests = [f"tests/test_{name}.py" for name in TESTS.get(module, module).split()]
        with TemporaryDirectory() as folder:
            survey(path, tests, Path(folder))
