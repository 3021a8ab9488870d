"""Prepared corpora."""

import hashlib
import json
import multiprocessing
import os
import re
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import tokenizers
from tokenizers import Tokenizer
from tqdm import tqdm

from annotated._version import __version__
from annotated.data import learn_vocabulary
from annotated.machinery.cleaning import Line, PairReport, check_bad, good_pairs
from annotated.machinery.corpora import Part, parse_data, split_parts
from annotated.machinery.downloads import cache_folder, sha256_of
from annotated.machinery.encoding import EncodedPairs, PairEncoder
from annotated.machinery.errors import FileError, InputError, MissingFile
from annotated.machinery.files import (
    locked,
    read_json,
    reading,
    settings,
    write_text,
    writing_folder,
)
from annotated.machinery.translator import vocabulary_files
from annotated.machinery.vocabularies import VOCABULARIES, read_tokenizer

_FORMAT = 1
_SPLITS = "train", "dev"
_ARRAYS = [f"{split}.{kind}.npy" for split in _SPLITS for kind in ("ids", "lengths")]


@dataclass(frozen=True)
class Manifest:
    """What manifest.json says of a prepared corpus.

    Args:
        format: of the folder.   key: of what it was made from (`corpus_key`).
        rules, versions: options, and libraries, that it was made with.
        inputs: bytes and SHA-256 of the files that were read.
        pairs: their number in each split.   dropped: pairs left out of a part, by what was wrong.
        files: bytes and SHA-256 of the files that were written.   sha256: of all of these.
    """

    format: int
    key: str
    rules: dict[str, Any]
    versions: dict[str, str]
    inputs: dict[str, dict[str, Any]]
    pairs: dict[str, int]
    dropped: dict[str, dict[str, int]]
    files: dict[str, dict[str, Any]]
    sha256: str

    def __post_init__(self) -> None:
        if self.format != _FORMAT:
            raise FileError(f"expected format {_FORMAT}; got {self.format}, of another edition")
        vocabulary, *more = VOCABULARIES
        names = {vocabulary, *_ARRAYS, *(name for name in more if name in self.files)}
        sizes = [said.get("bytes") for said in self.files.values()]
        if set(self.files) != names or not all(type(size) is int for size in sizes):
            raise FileError(f"expected bytes and SHA-256 of {', '.join(sorted(names))}")
        if sum_of_sums(self.files) != self.sha256:
            raise FileError("expected the sum of the sums of all files; it differs")


def sum_of_sums(files: dict[str, dict[str, Any]]) -> str:
    """One SHA-256 for several files."""
    lines = (f"{files[name].get('sha256')}  {name}\n" for name in sorted(files))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


_QUICK = 1 << 26  # bytes of a file whose sum is always looked at


def _anew(folder: Path) -> str:
    return f"delete this folder, and make it anew: annotated prepare … --out {folder}"


@dataclass(frozen=True)
class PreparedCorpus:
    """A prepared corpus, opened: its folder, its manifest, and its pairs."""

    folder: Path
    manifest: Manifest
    train: EncodedPairs
    dev: EncodedPairs


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a prepared corpus.

    Raises: MissingFile or FileError that names the file, and says what to do.
    """
    path = folder / "manifest.json"
    if not path.exists():
        raise MissingFile(f"expected a prepared corpus in {folder}; it has no manifest.json")
    try:
        return settings(Manifest, read_json(path, "the manifest of a prepared corpus"), str(path))
    except FileError as error:
        raise FileError(f"{error}; {_anew(folder)}") from error


def open_prepared(folder: Path, thorough: bool = False) -> PreparedCorpus:
    """Map the files of a prepared corpus into memory.

    Args:
        thorough: compare the SHA-256 of large files too.

    Raises: MissingFile or FileError that names the file that is damaged, and says what to do.
    """
    manifest = read_manifest(folder)
    for name, said in manifest.files.items():
        path, expected = folder / name, f"{said['bytes']:,} bytes, as manifest.json says"
        with reading(path, expected, _anew(folder)):
            size = path.stat().st_size
        if size != said["bytes"]:
            raise FileError(f"{path}: expected {expected}; got {size:,}; {_anew(folder)}")
        looked_at = thorough or size <= _QUICK or name in VOCABULARIES
        if looked_at and sha256_of(path) != said["sha256"]:
            expected = "the SHA-256 that manifest.json says"
            raise FileError(f"{path}: expected {expected}; it differs; {_anew(folder)}")
    return PreparedCorpus(folder, manifest, *(_map_pairs(folder, split) for split in _SPLITS))


def _map_pairs(folder: Path, split: str) -> EncodedPairs:
    """The pairs of a split, whose files are whole."""
    arrays = []
    for kind in "ids", "lengths":
        path = folder / f"{split}.{kind}.npy"
        with reading(path, "an array", _anew(folder)):
            arrays.append(np.load(path, mmap_mode="r").view(np.ndarray))
    pairs = EncodedPairs(*arrays)
    if arrays[1].shape[1:] != (2,) or pairs.starts[-1] != len(pairs.ids):
        told = "expected lengths that add up to the ids; they do not"
        raise FileError(f"{path}: {told}; {_anew(folder)}")
    return pairs


if TYPE_CHECKING:  # for the annotations only: `training` imports this module
    from annotated.training import TrainingConfig

# The options that matter.
RULES = "data", "weights", "vocabulary", "vocab_size", "vocab_pairs", "on_bad"


def corpus_parts_of(config: "TrainingConfig", check: bool = False) -> dict[str, list[Part]]:
    """The parts of train and dev; what is missing is downloaded.

    Args:
        check: compare what lies in the cache with its SHA-256.

    Raises: as `split_parts`.
    """
    corpus, src, tgt = parse_data(config.data)
    on_bad = {"train": None if config.on_bad == "auto" else config.on_bad, "dev": None}

    def find(fetch: bool | None, check: bool) -> dict[str, list[Part]]:
        return {s: split_parts(corpus, s, src, tgt, on_bad[s], fetch, check) for s in _SPLITS}

    try:
        return find(fetch=None if check else False, check=check)
    except MissingFile:
        return find(fetch=None, check=True)


def _input_files(parts: Mapping[str, list[Part]]) -> list[Path]:
    """The files that parts are read from, each once."""
    sides = (
        side for split in parts.values() for part in split for side in (part.source, part.target)
    )
    return list(dict.fromkeys(path for path, _ in sides))


def input_bytes(parts: Mapping[str, list[Part]]) -> int:
    """How large the files are that parts are read from."""
    return sum(path.stat().st_size for path in _input_files(parts))


def corpus_key(config: "TrainingConfig", parts: Mapping[str, list[Part]]) -> str:
    """What a prepared corpus is known by, 16 hexadecimal digits, without reading the corpus."""
    stats = [(path, path.stat()) for path in _input_files(parts)]
    files = [[str(path.resolve()), stat.st_size, stat.st_mtime_ns] for path, stat in stats]
    rules = {name: getattr(config, name) for name in RULES if name != "data"}
    if config.weights:
        rules["weights"] = [sha256_of(path) for path in vocabulary_files(config.weights)]
    names = [part.name for split in parts.values() for part in split]
    made = [_FORMAT, tokenizers.__version__, parse_data(config.data)[1:], names, files, rules]
    return hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()[:16]


def shared_folder(config: "TrainingConfig", key: str) -> Path:
    """Where a prepared corpus lies unless told otherwise: beside the downloads."""
    name = "-".join(re.findall(r"[\w+.]+", config.data))[-60:]
    return cache_folder() / "prepared" / f"{name}-{key}"


def _bar(what: str, total: int | None = None) -> tqdm:
    """A bar with the time left, for what takes more than a few seconds."""
    return tqdm(desc=what, total=total, unit=" pairs", unit_scale=True, delay=3, leave=False)


def draw_lines(lines: Iterable[Line], most: int) -> tuple[int, list[Line]]:
    """How many lines there are, and a sample of them."""
    random, drawn, number = Random(0), [], 0
    with _bar("counting") as bar:
        for number, line in enumerate(lines, start=1):
            if number <= most:
                drawn.append(line)
            elif (place := int(random.random() * number)) < most:
                drawn[place] = line
            if number % 10_000 == 0:
                bar.update(10_000)
    return number, drawn


def _find_vocabularies(config: "TrainingConfig", sample: list[Line]) -> list[Tokenizer]:
    """The vocabulary of the weights that a run begins with, or else a new one.

    Returns: a tokenizer, or two if they cut the target by other rules than the source.
    """
    if config.weights:
        return [read_tokenizer(x, config.vocab_size) for x in vocabulary_files(config.weights)]

    def texts() -> Iterator[str]:
        for side in 0, 1:
            yield from (pair[side] for pair in good_pairs(sample, PairReport("")))

    return [learn_vocabulary(config.vocabulary, texts(), config.vocab_size)]


_Block = tuple[EncodedPairs, PairReport]


def _encode_block(encoder: PairEncoder, lines: list[Line]) -> _Block:
    """The good pairs of some lines, encoded, and a report of the others."""
    report = PairReport("")
    return encoder.encode(good_pairs(lines, report)), report


_encoder: PairEncoder  # of a process that encodes for another


def _start_encoder(*vocabularies: str) -> None:
    """Begin to encode for another process."""
    global _encoder
    _encoder = PairEncoder(*map(Tokenizer.from_str, vocabularies))
    _end_with_parent()


def _end_with_parent() -> None:
    """End when the process that this one works for does, even if it is killed."""

    def end() -> None:
        parent = multiprocessing.parent_process()
        if parent:
            parent.join()
            os._exit(1)

    threading.Thread(target=end, daemon=True).start()


def _encode_here(lines: list[Line]) -> _Block:
    return _encode_block(_encoder, lines)


_Encode = Callable[[Iterable[list[Line]]], Iterator[_Block]]


@contextmanager
def _pool(processes: int, begin: Callable[..., None], *given: str) -> Iterator[ProcessPoolExecutor]:
    """Processes that work for this one, and begin with `begin(*given)`."""
    spawn = multiprocessing.get_context("spawn")  # threads do not survive a fork
    with ProcessPoolExecutor(processes, spawn, begin, given) as pool:
        try:
            yield pool
        except BrokenProcessPool as error:
            told = (
                "a process was killed, perhaps for want of memory; it takes less with "
                "--processes 1, and learning a vocabulary with a smaller --vocab-pairs"
            )
            raise InputError(told) from error
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _encoding(cutters: list[Tokenizer], processes: int) -> Iterator[_Encode]:
    """A function that encodes blocks of lines in order, with the help of so many processes."""
    if processes < 2:
        encoder = PairEncoder(*cutters)
        yield partial(map, partial(_encode_block, encoder))
        return

    def in_turn(blocks: Iterable[list[Line]]) -> Iterator[_Block]:
        waiting: deque[Future[_Block]] = deque()
        for block in blocks:
            waiting.append(pool.submit(_encode_here, block))
            if len(waiting) > 2 * processes:
                yield waiting.popleft().result()
        yield from (future.result() for future in waiting)

    with _pool(processes, _start_encoder, *(cutter.to_str() for cutter in cutters)) as pool:
        yield in_turn


_BLOCK = 10_000  # lines that are encoded at a time


def _write_header(file: IO[bytes], dtype: np.dtype, count: int) -> None:
    """Begin a file with the header of a flat array."""
    file.seek(0)
    shape = {"descr": dtype.str, "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_1_0(file, shape)


def _blocks(lines: Iterator[Line], bar: tqdm) -> Iterator[list[Line]]:
    while block := list(islice(lines, _BLOCK)):
        yield block
        bar.update(len(block))


def _write_split(
    folder: Path, split: str, parts: list[Part], dtype: np.dtype, encode: _Encode, bar: tqdm
) -> tuple[int, dict[str, dict[str, int]]]:
    """Write the pairs of a split.

    Returns: how many there are, and how many were dropped from each part, by what was wrong.
    """
    lengths: list[np.ndarray] = [np.zeros((0, 2), np.uint8)]
    dropped: dict[str, dict[str, int]] = {}
    with (folder / f"{split}.ids.npy").open("wb") as file:
        _write_header(file, dtype, 0)
        for part in parts:
            report = PairReport(part.name)
            for pairs, found in encode(_blocks(part.lines(), bar)):
                file.write(pairs.ids.data)
                lengths.append(pairs.lengths)
                report.add(found)
            check_bad(report, part.on_bad)
            if report.bad:
                warnings.warn(str(report), stacklevel=2)
                dropped[part.name] = {fault: len(numbers) for fault, numbers in report.bad.items()}
        all_lengths = np.concatenate(lengths)
        _write_header(file, dtype, int(all_lengths.sum(dtype=np.int64)))
    np.save(folder / f"{split}.lengths.npy", all_lengths)
    return len(all_lengths), dropped


def _write_corpus(
    folder: Path, config: "TrainingConfig", parts: Mapping[str, list[Part]], processes: int
) -> None:
    """Write a prepared corpus; `folder` is as it was until all of it is there."""
    with writing_folder(folder) as part:
        key, inputs = corpus_key(config, parts), _input_files(parts)
        pairs, dropped = _fill(part, config, parts, processes)
        files = {path.name: _sums(path) for path in sorted(part.iterdir())}
        rules = {name: getattr(config, name) for name in RULES}
        versions = {
            "annotated": __version__,
            "tokenizers": tokenizers.__version__,
            "numpy": np.__version__,
        }
        sums = {str(path): _sums(path) for path in inputs}
        said = Manifest(
            _FORMAT, key, rules, versions, sums, pairs, dropped, files, sum_of_sums(files)
        )
        write_text(part / "manifest.json", json.dumps(asdict(said), indent=1) + "\n")


def _sums(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": sha256_of(path)}


_LARGE = 1 << 26  # bytes of all files


def _choose_vocabularies(config: "TrainingConfig", train: list[Part]) -> tuple[int, list[str]]:
    """How many pairs there are, and `_find_vocabularies` as text."""
    lines = chain.from_iterable(part.lines() for part in train)
    total, sample = draw_lines(lines, 0 if config.weights else config.vocab_pairs)
    if total > _MANY and sample:
        tqdm.write(f"learning the vocabulary from {len(sample):,} pairs", file=sys.stderr)
    return total, [cutter.to_str() for cutter in _find_vocabularies(config, sample)]


def _fill(
    folder: Path, config: "TrainingConfig", parts: Mapping[str, list[Part]], processes: int
) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
    """Write vocabulary and pairs; the numbers of pairs, and of those that were dropped."""
    if input_bytes(parts) > _LARGE:  # only a process that ends gives back what learning took
        with _pool(1, _end_with_parent) as pool:
            total, texts = pool.submit(_choose_vocabularies, config, parts["train"]).result()
    else:
        total, texts = _choose_vocabularies(config, parts["train"])
    for name, text in zip(VOCABULARIES, texts, strict=False):
        write_text(folder / name, text)
    cutters = [Tokenizer.from_str(text) for text in texts]
    dtype = PairEncoder(cutters[0]).dtype
    pairs: dict[str, int] = {}
    dropped: dict[str, dict[str, int]] = {}
    with _encoding(cutters, processes if total > _MANY else 1) as encode:
        for split in _SPLITS:
            with _bar(f"encoding {split}", total if split == "train" else None) as bar:
                pairs[split], bad = _write_split(folder, split, parts[split], dtype, encode, bar)
            dropped |= bad
            if not pairs[split]:
                wanted = "expected pairs to train and to validate on"
                raise InputError(f"{wanted}; {config.data} has no {split}")
    return pairs, dropped


_MANY = 100_000  # pairs for which it is worth while to start other processes


def prepare(
    config: "TrainingConfig", out: str | Path = "", processes: int = 1, replace: bool = False
) -> Path:
    """Prepare the corpus of a run; if that is done already, only compare all sums.

    Args:
        config: the run.   out: folder to write; default: one beside the downloads.
        processes: that encode a large corpus.   replace: what else is in the folder may go.

    Returns: the folder.

    Raises: ValueError for bad pairs and as `load_pairs`; FileError if the folder holds something
        else, is damaged, or cannot be written.
    """
    parts = corpus_parts_of(config)
    if not (Path(out) if out else shared_folder(config, corpus_key(config, parts))).exists():
        parts = corpus_parts_of(config, check=True)
    key = corpus_key(config, parts)
    folder = Path(out) if out else shared_folder(config, key)
    busy = f"another process prepares {folder}; waiting for it"
    with locked(folder.with_name(folder.name + ".lock"), busy, timeout=-1):
        if folder.exists() and not replace and any(folder.iterdir()):
            if (found := open_prepared(folder, thorough=True).manifest).key != key:
                made = f"it was made from another corpus or by other rules ({found.rules['data']})"
                raise FileError(f"{folder}: expected to prepare {config.data} there; {made}")
            said = "is prepared already, and whole; nothing to do"
        else:
            _write_corpus(folder, config, parts, processes)
            said = "is prepared"
    if not replace:  # a run's own folder is nothing to tell of
        tqdm.write(f"{config.data} {said}: {folder}", file=sys.stderr)
    return folder
