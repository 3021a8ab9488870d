"""What the programs that write the logs of data/results share."""

import argparse
import ast
import gzip
import json
import os
import platform
import re
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from annotated.machinery.corpora.registry import load_pairs
from annotated.machinery.files import reading, resource_path, write_text, writing

# The content of a file; rows become JSON.
Log = pd.DataFrame | list[dict[str, Any]] | str
Command = Callable[[Path], None]
Writers = dict[str, Callable[[Path], Log]]  # by the name of the file, from the folder of runs


def make_parser(name: str, description: str | None, epilog: str = "") -> argparse.ArgumentParser:
    """A parser of `python -m NAME`, whose help keeps the lines of its texts."""
    return argparse.ArgumentParser(
        prog=f"python -m {name}",
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def log_program(
    program: str, description: str | None, writers: Writers, epilog: str = "", **more: Command
) -> Callable[..., None]:
    """The `main` of a program, with options that tell which logs to write and where the runs are.

    Args:
        more: by the name of an option, what it does with the folder of runs instead.
    """
    parser = make_parser(f"benchmarks.{program}", description, epilog)
    add = parser.add_argument
    add("--only", nargs="+", choices=list(writers), metavar="FILE", help="logs to write (all)")
    add("--runs", type=Path, default=Path("runs"), help="folder of runs, if any (%(default)s)")
    add("--out", type=Path, default=resource_path("results"), help="folder of logs (data/results)")
    for name, command in more.items():
        add(f"--{name}", action="store_true", help=command.__doc__)

    def main(given: list[str] | None = None) -> None:
        options = parser.parse_args(given)
        for name, command in more.items():
            if getattr(options, name):
                return command(options.runs)
        for name in options.only or writers:
            write_log(options.out / name, writers[name](options.runs))

    return main


def files_parser(name: str, description: str, target: str) -> argparse.ArgumentParser:
    """Options of a program that measures a translator on two files: these, and a log."""
    add = (parser := make_parser(name, description)).add_argument
    add("model", help="a model of the package, or a folder")
    add("source", type=Path, help="file with one sentence per line")
    add(target, type=Path, help="file with their translations")
    add("--out", type=Path, required=True, help="CSV file to write")
    return parser


def write_log(path: Path, log: Log) -> None:
    if isinstance(log, pd.DataFrame):
        log = log.to_csv(index=False, lineterminator="\n")
    elif not isinstance(log, str):
        log = json.dumps(log, indent=2) + "\n"
    content = log.encode()
    with writing(path) as part:
        part.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def read_table(path: Path, columns: Iterable[str]) -> list[dict[str, Any]]:
    """The rows of a CSV file of runs; none if there is no such file.

    Raises: FileError if the file is not a table with these columns.
    """
    if not path.exists():
        return []
    with reading(path, "a table of runs"):
        table = pd.read_csv(path, dtype={"variant": str})  # 2017 is a name, not a number
        if missing := set(columns) - set(table.columns):
            raise ValueError(f"no column {', '.join(sorted(missing))}")
    return table.to_dict("records")


def page_names(page: str, *constants: str) -> dict[str, Any]:
    """The functions and classes of a page of chapters/, and some of its constants.

    Nothing else of the page is executed.
    """
    path = Path(__file__).parents[1] / "chapters" / f"{page}.md"
    cell = r"^```\{code-cell}.*\n(?::.*\n)*((?:(?!```).*\n)*)"
    code = "".join(re.findall(cell, path.read_text("utf-8"), re.M))
    module, names = ast.parse(code), dict[str, Any]()
    kinds = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef
    module.body = [
        node
        for node in module.body
        if isinstance(node, kinds)
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in constants)
    ]
    exec(compile(module, path, "exec"), names)
    return names


def machine(device: str) -> dict[str, Any]:
    """The conditions that the times depend on, without names of machines or people."""
    info = Path("/proc/cpuinfo")
    model = re.search("model name.*: (.*)", info.read_text() if info.exists() else "")
    described = {
        "cpu": model[1] if model else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    return described | ({"gpu": torch.cuda.get_device_name()} if device == "cuda" else {})


def write(path: Path, results: dict[str, Any]) -> None:
    """Add results to those in a file, atomically: readers see the old file or the new one."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    write_text(path, json.dumps(known | results, indent=1, ensure_ascii=False) + "\n")


def write_captions(
    folder: Path,
    splits: Iterable[str],
    languages: Iterable[str],
    change: Callable[[list[str]], list[str]],
) -> None:
    """Write Multi30k's captions, changed, as a folder of texts to train on."""
    for split, tgt in product(splits, languages):
        for lang, lines in zip(("en", tgt), load_pairs("multi30k", split, "en", tgt), strict=True):
            write_text(folder / f"{split}.{lang}", "".join(f"{x}\n" for x in change(lines)))


def as_json(found: dict[str, Any]) -> str:
    """JSON in which each entry of a list is a line, so that versions can be compared."""
    parts = []
    for name, value in found.items():
        rows = value if isinstance(value, list) else [value]
        text = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        parts.append(f'"{name}": ' + (f"[\n{text}\n]" if isinstance(value, list) else text))
    return "{\n" + ",\n".join(parts) + "\n}\n"
