"""Sentence pairs in a table: CSV, TSV or parquet."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from annotated.machinery.corpora.cleaning import Line
from annotated.machinery.corpora.languages import two_letters
from annotated.machinery.corpora.texts import OPENERS
from annotated.machinery.errors import FileError, extra
from annotated.machinery.files import reading

TABLES = ".tsv", ".csv", ".parquet"


def is_table(path: Path) -> bool:
    """Whether a name is that of a table, which may be compressed."""
    return path.name.removesuffix(".gz").removesuffix(".xz").endswith(TABLES)


def table_lines(path: Path, columns: tuple[str, str]) -> Iterator[Line]:
    """Number, source and target of each row; the number is that of a line in the file.

    Args:
        columns: of the source and the target: a name, its last part (en for translation.en), or
            another code of the same language; or numbers from 1, if no line names the columns.

    Raises: FileError that names the file, and the columns if these are not among them;
        MissingExtra for parquet without pyarrow.
    """
    rows = _parquet_rows if path.suffix == ".parquet" else _text_rows
    with reading(path, "a table of sentences in UTF-8"):
        for number, *cells in rows(path, columns):
            one, other = (None if x is None else re.sub(r"[\r\n]+", " ", str(x)) for x in cells)
            yield number, one, other


def _text_rows(path: Path, columns: tuple[str, str]) -> Iterator[tuple[Any, ...]]:
    kind: dict[str, Any] = {"strict": True}
    if ".tsv" in path.suffixes:  # a quotation mark in it is only a character
        kind = {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
    with OPENERS.get(path.suffix, open)(path, "rb") as file:
        rows = csv.reader(io.TextIOWrapper(file, "utf-8-sig", newline=""), **kind)
        numbered = all(re.fullmatch("[1-9][0-9]*", column) for column in columns)
        names = [] if numbered else next(rows, [])
        places = [int(x) - 1 if numbered else _place(path, names, x) for x in columns]
        for row in rows:
            if row:
                yield rows.line_num, *(row[i] if i < len(row) else None for i in places)


def _parquet_rows(path: Path, columns: tuple[str, str]) -> Iterator[tuple[Any, ...]]:
    with extra("parquet"):
        import pyarrow as pa
        import pyarrow.parquet
    number = 0
    with pyarrow.parquet.ParquetFile(path) as file:
        names = [file.schema.column(i).path for i in range(len(file.schema))]
        chosen = [names[_place(path, names, column)] for column in columns]
        for batch in file.iter_batches(columns=chosen):
            flat = pa.Table.from_batches([batch]).flatten()
            for row in zip(*(flat[name].to_pylist() for name in chosen), strict=True):
                yield (number := number + 1), *row


def _place(path: Path, names: Sequence[str], column: str) -> int:
    """The place of a column among the names of all."""
    last = [two_letters(name.strip().rpartition(".")[2].lower()) for name in names]
    found = [i for i, name in enumerate(names) if name == column]
    found = found or [i for i, name in enumerate(last) if name == two_letters(column)]
    if len(found) != 1:
        wanted = f"expected one column {column!r}; got {', '.join(names)!r:.200}"
        advice = f"name others as {path.name}:COLUMN,COLUMN-SRC-TGT"
        advice += f" or, if the first line has no names, as {path.name}:1,2-SRC-TGT"
        raise FileError(f"{path}: {wanted}; {advice}")
    return found[0]
