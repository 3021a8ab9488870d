"""What the programs that write the logs of data/results share."""

import argparse
import gzip
import json
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from annotated.machinery.corpora.registry import load_pairs
from annotated.machinery.files import resource_path, write_text, writing

# The content of a file; rows become JSON.
Log = pd.DataFrame | list[dict[str, Any]] | str
Writers = dict[str, Callable[[Path], Log]]  # by the name of the file, from the folder of runs


def log_parser(
    program: str, description: str | None, writers: Writers, epilog: str = ""
) -> argparse.ArgumentParser:
    """Options of a program: which logs to write, where to, and where the runs are."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{program}",
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--only", nargs="+", choices=list(writers), metavar="FILE", help="logs to write (all)")
    add("--runs", type=Path, default=Path("runs"), help="folder of runs, if any (%(default)s)")
    add("--out", type=Path, default=resource_path("results"), help="folder of logs (data/results)")
    return parser


def write_logs(options: argparse.Namespace, writers: Writers) -> None:
    """Write the logs that were asked for."""
    for name in options.only or writers:
        log, path = writers[name](options.runs), options.out / name
        if isinstance(log, pd.DataFrame):
            log = log.to_csv(index=False, lineterminator="\n")
        elif not isinstance(log, str):
            log = json.dumps(log, indent=2) + "\n"
        if path.suffix == ".gz":
            with writing(path) as part:
                part.write_bytes(gzip.compress(log.encode(), mtime=0))
        else:
            write_text(path, log)


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
