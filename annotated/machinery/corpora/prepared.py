"""Prepared corpora: vocabulary, ids and lengths in a folder that runs map into memory and share.

A corpus is read in blocks, never as a whole, and several processes may encode it. The vocabulary is
learned from a sample, in a separate process if the corpus is large, because only a process that
ends returns its memory. A prepared corpus is identified by a key of everything that it depends on:
input files (path, size, time), rules and libraries; `PreparedCorpus.find_or_prepare` finds it by
this key, or creates it. A changed file with unchanged size and time is not detected, and with
`--prepared` no change is, because that option selects the corpus by name.
"""

import hashlib
import json
import multiprocessing
import os
import re
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
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

from annotated._version import __version__
from annotated.data import learn_vocabulary
from annotated.machinery import files
from annotated.machinery.corpora import registry
from annotated.machinery.corpora.cleaning import Line, PairReport, good_pairs
from annotated.machinery.corpora.downloads import cache_folder, sha256_of
from annotated.machinery.corpora.encoding import EncodedPairs, PairEncoder
from annotated.machinery.corpora.registry import HeldOut, Part, parse_data, split_parts
from annotated.machinery.corpora.vocabularies import VOCABULARIES
from annotated.machinery.errors import FileError, InputError, MissingFile, check_whole
from annotated.machinery.files import reading, settings, write_text, writing_new_folder
from annotated.machinery.formats.pretrained import model_tokenizers
from annotated.machinery.progress import ProgressBar, progress_bar, say

if TYPE_CHECKING:
    from annotated.training import TrainingConfig

_FORMAT = 2
_SPLITS = "train", "dev"
# The options of a run on which its corpus depends.
RULES = "data", "from_", "vocabulary", "vocab_size", "vocab_pairs", "on_bad"

_BLOCK = 10_000  # lines that are encoded together
_MANY = 100_000  # pairs from which other processes are worth their start
_LARGE = 1 << 26  # bytes of input from which the vocabulary is learned in a separate process
_SMALL = 1 << 27  # bytes of input up to which a run prepares its own corpus
_QUICK = 1 << 26  # bytes up to which a file is checked against its SHA-256 when opened


@dataclass(frozen=True)
class Manifest:
    """The content of manifest.json; files are described by their bytes and SHA-256."""

    format: int
    key: str  # key of everything that the corpus depends on
    rules: dict[str, Any]  # the options with which it was made
    versions: dict[str, str]  # versions of libraries
    inputs: dict[str, dict[str, Any]]  # the files that were read
    pairs: dict[str, int]  # number of pairs in each split
    dropped: dict[str, dict[str, int]]  # pairs dropped from each part, by fault
    files: dict[str, dict[str, Any]]  # the files that were written
    sha256: str  # SHA-256 of their SHA-256 and names, one per line

    def __post_init__(self) -> None:
        if self.format != _FORMAT:
            raise FileError(f"expected format {_FORMAT}; got {self.format}, from another edition")


def _sums(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": sha256_of(path)}


@dataclass(frozen=True)
class PreparedCorpus:
    """An open prepared corpus: its folder, its manifest, and its pairs."""

    folder: Path
    manifest: Manifest
    train: EncodedPairs
    dev: EncodedPairs

    @classmethod
    def open(cls, folder: str | Path, thorough: bool = False) -> "PreparedCorpus":
        """Map the files of a prepared corpus into memory.

        Args: thorough: also compare the SHA-256 of large files.

        Raises: MissingFile or FileError that names the damaged file and a remedy.
        """
        folder = Path(folder)
        advice = f"delete this folder and prepare it again: annotated prepare … --out {folder}"
        path = folder / "manifest.json"
        if not os.path.exists(path):  # a name may be too long for a file
            raise MissingFile(f"expected a prepared corpus in {folder}; it has no manifest.json")
        contents = files.read_json(path, "the manifest of a prepared corpus", advice)
        manifest = settings(Manifest, contents, str(path))
        for name, entry in manifest.files.items():
            path = folder / name
            with reading(path, "the file that manifest.json describes", advice):
                size = path.stat().st_size
                if size != entry["bytes"]:
                    raise ValueError(f"{size:,} bytes, not {entry['bytes']:,}")
                checked = thorough or size <= _QUICK or name in VOCABULARIES
                if checked and sha256_of(path) != entry["sha256"]:
                    raise ValueError("one with another SHA-256")
        splits = []
        for split in _SPLITS:
            path = folder / f"{split}.lengths.npy"
            with reading(path, "lengths that add up to the ids", advice):
                names = f"{split}.ids.npy", path.name
                arrays = [np.load(folder / name, mmap_mode="r").view(np.ndarray) for name in names]
                splits.append(pairs := EncodedPairs(*arrays))
                fits = pairs.lengths.shape[1:] == (2,) and pairs.starts[-1] == len(pairs.ids)
                if not fits or pairs.ids.ndim != 1 or pairs.ids.dtype.kind != "u":
                    raise ValueError("others")
        return cls(folder, manifest, *splits)

    @classmethod
    def find_or_prepare(
        cls, config: "TrainingConfig", folder: str | Path, processes: int = 1
    ) -> "PreparedCorpus":
        """The corpus of a new run, found or created.

        It is the corpus that `config.prepared` names, or else a shared one that was prepared
        before, or else a new one: inside the run's folder if it is small, otherwise shared.

        Args: config: the run.   folder: of the run.   processes: number that would wait for it.

        Raises: InputError if it was prepared by other rules, if pairs are bad or missing, or if
            several processes would wait for a large one; FileError as downloads and `open`.
        """
        if config.prepared:
            corpus = cls.open(config.prepared)
            for name in RULES:
                was, now = corpus.manifest.rules.get(name, ""), getattr(config, name)
                if was != now:
                    raise InputError(f"{corpus.folder} was prepared with {name}={was}; got {now}")
            return corpus
        source = _Source.of(config)
        if source.shared_folder.exists():
            return cls.open(source.shared_folder)
        if source.size <= _SMALL:
            own = Path(folder) / "prepared"
            # A folder without files was left by a start that was killed.
            if not own.exists() or not any(own.iterdir()):
                _write_corpus(own, source, 1)
            corpus = cls.open(own)
            source.check(corpus)
            return corpus
        if processes > 1:
            large = f"it has {source.size / 1e9:.1f} GB, for which {processes} processes would wait"
            advice = "run first: annotated prepare with the same options, such as --preset"
            raise InputError(f"expected {config.data} to be prepared: {large}; {advice}")
        return cls.open(prepare(config))

    def copy_vocabulary(self, folder: str | Path) -> None:
        """Write the vocabulary into a run's folder. Raises: FileError if it has another one."""
        for name in self.manifest.files.keys() & VOCABULARIES:
            if not (Path(folder) / name).exists():
                write_text(Path(folder) / name, (self.folder / name).read_text("utf-8"))
        self.check_vocabulary(folder)

    def check_vocabulary(self, folder: str | Path) -> None:
        """Raise MissingFile or FileError unless the vocabulary in a run's folder is this one."""
        for name in self.manifest.files.keys() & VOCABULARIES:
            path = Path(folder) / name
            with reading(path, "the vocabulary of the run", f"copy it from {self.folder}"):
                if sha256_of(path) != self.manifest.files[name]["sha256"]:
                    raise ValueError("another one")


def prepare(config: "TrainingConfig", out: str | Path = "", processes: int = 1) -> Path:
    """Prepare the corpus of a run; if it is already prepared, only verify all checksums.

    Args:
        config: the run.   out: folder to write; default: a shared one next to the downloads.
        processes: number that encode a large corpus.

    Returns: the folder.

    Raises: InputError for bad pairs and as `load_pairs`; FileError if the folder contains
        something else, is damaged, or cannot be written.
    """
    check_whole("processes", processes)
    source = _Source.of(config)
    folder = Path(os.path.realpath(out)) if out else source.shared_folder
    lock, busy = Path(f"{folder}.lock"), f"another process prepares {folder}; waiting for it"
    if not lock.exists() and not (folder / "manifest.json").exists():
        files.new_folder(folder)
    with files.locked(lock, busy, timeout=-1):
        found = (folder / "manifest.json").exists()
        if not found:
            _write_corpus(folder, source, processes)
        source.check(PreparedCorpus.open(folder, thorough=found))
    state = "is already prepared and undamaged; nothing to do" if found else "is prepared"
    say(f"{config.data} {state}: {folder}")
    return folder


@dataclass(frozen=True)
class _Source:
    """The source of a prepared corpus: a configuration, the parts of each split, and its key.

    If the run continues a model, `known` has its vocabularies as JSON.
    """

    config: "TrainingConfig"
    known: list[str]
    parts: dict[str, list[Part]]
    files: list[Path]
    size: int  # bytes
    key: str

    @classmethod
    def of(cls, config: "TrainingConfig") -> "_Source":
        """The source of a configuration; missing files are downloaded."""
        corpus, src, tgt = parse_data(config.data)
        on_bad = {"train": config.on_bad, "dev": "auto"}
        parts = {s: split_parts(corpus, s, src, tgt, on_bad[s]) for s in _SPLITS}
        every = list(chain.from_iterable(parts.values()))
        sides = chain.from_iterable((part.source, part.target) for part in every)
        paths = list(dict.fromkeys(path for path, _ in sides))
        stats = [path.stat() for path in paths]
        rules = {name: getattr(config, name) for name in RULES if name not in ("data", "from_")}
        its = filter(None, model_tokenizers(config.from_)) if config.from_ else ()
        vocabularies = [tokenizer.to_str() for tokenizer in its]
        rules["weights"] = vocabularies or ""
        known = [[os.path.realpath(path), stat.st_size, stat.st_mtime_ns]
                 for path, stat in zip(paths, stats, strict=True)]  # fmt: skip
        names = [part.name for part in every]
        made_of = [_FORMAT, tokenizers.__version__, (src, tgt), names, known, rules]
        key = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:16]
        size = sum(stat.st_size for stat in stats)
        return cls(config, vocabularies, parts, paths, size, key)

    def check(self, corpus: PreparedCorpus) -> None:
        """Raise FileError unless the corpus was prepared from this source."""
        if corpus.manifest.key != self.key:
            wanted = f"expected to prepare {self.config.data} there"
            made = f"from another corpus or by other rules ({corpus.manifest.rules['data']})"
            raise FileError(f"{corpus.folder}: {wanted}; it was made {made}")

    @property
    def shared_folder(self) -> Path:
        """The default folder of the prepared corpus, next to the downloads."""
        name = "-".join(re.findall(r"[\w+.]+", self.config.data))[-60:]
        return cache_folder() / "prepared" / f"{name}-{self.key}"


def _write_corpus(folder: Path, source: _Source, processes: int) -> None:
    """Write a prepared corpus into a new folder, atomically."""
    config, pairs, dropped = source.config, dict[str, int](), dict[str, dict[str, int]]()
    inputs = {str(path): _sums(path) for path in source.files}
    with writing_new_folder(folder) as part:
        if source.size > _LARGE:
            with _pool(1) as pool:
                job = pool.submit(_learn_vocabulary, config, source.parts["train"], source.known)
                total, texts = job.result()
        else:
            total, texts = _learn_vocabulary(config, source.parts["train"], source.known)
        for name, text in zip(VOCABULARIES, texts, strict=False):
            write_text(part / name, text)
        several = processes if total > _MANY else 1
        with _encoding(texts, several) as encode, _bar(desc="encoding", total=total) as bar:
            for split, parts in source.parts.items():
                pairs[split], bad = _write_split(part, split, parts, encode, bar)
                dropped |= bad
                if not pairs[split]:
                    wanted = "expected pairs to train and to validate on"
                    raise InputError(f"{wanted}; {config.data} has no {split}")
        if any(each.held_out == HeldOut("source") for each in source.parts["dev"]):
            held = f"{pairs['dev']:,} of {sum(pairs.values()):,} pairs are held out for it"
            say(f"{config.data} has no development set: {held}; training has none of their sources")
        elif not {*parse_data(config.data)[0].split("+")} <= registry.known_corpora().keys():
            _warn_of_leak(config.data, source.parts)
        if _Source.of(config).key != source.key:
            raise FileError(f"{config.data} was changed while it was read; prepare it again")
        written = {path.name: _sums(path) for path in sorted(part.iterdir())}
        rules = {name: getattr(config, name) for name in RULES}
        versions = {"annotated": __version__, "tokenizers": tokenizers.__version__,
                    "numpy": np.__version__}  # fmt: skip
        all_sums = "".join(f"{about['sha256']}  {name}\n" for name, about in written.items())
        manifest = Manifest(_FORMAT, source.key, rules, versions, inputs, pairs, dropped, written,
                            hashlib.sha256(all_sums.encode()).hexdigest())  # fmt: skip
        write_text(part / "manifest.json", json.dumps(asdict(manifest), indent=1) + "\n")


def _warn_of_leak(data: str, parts: dict[str, list[Part]]) -> None:
    """Warn if many development sentences are also in the training data."""
    dev, train = (chain.from_iterable(part.lines() for part in parts[s]) for s in ("dev", "train"))
    sources = [one for one, _ in good_pairs(dev, PairReport(""))]
    seen = {*sources}.intersection(one for one, _ in good_pairs(train, PairReport("")))
    if (count := sum(one in seen for one in sources)) > len(sources) / 100:
        known = f"{count:,} of {len(sources):,} development sentences are also training sentences"
        warnings.warn(f"{data}: {known}; scores on them do not hold for new ones", stacklevel=2)


# A progress bar if it takes more than a few seconds.
_bar = partial(progress_bar, unit=" pairs", unit_scale=True, delay=3, leave=False)


def _learn_vocabulary(
    config: "TrainingConfig", train: list[Part], known: list[str]
) -> tuple[int, list[str]]:
    """The number of pairs, and the vocabularies as JSON: the known ones, or one learned."""
    lines = chain.from_iterable(part.lines() for part in train)
    total, sample = draw_lines(lines, 0 if known else config.vocab_pairs)
    if known:
        return total, known
    if total > _MANY:
        say(f"learning the vocabulary from {len(sample):,} pairs")
    texts = (pair[side] for side in (0, 1) for pair in good_pairs(sample, PairReport("")))
    learned = learn_vocabulary(config.vocabulary, texts, config.vocab_size)
    if (size := learned.get_vocab_size()) > config.vocab_size:
        wanted = f"expected vocab_size of at least {size}, for the letters of {config.data}"
        raise InputError(f"{wanted}; got {config.vocab_size}")
    return total, [learned.to_str()]


def draw_lines(lines: Iterable[Line], most: int) -> tuple[int, list[Line]]:
    """The number of lines, and a uniform sample of at most `most` (reservoir sampling)."""
    random, drawn, number = Random(0), [], 0
    for number, line in enumerate(_bar(lines, desc="counting"), start=1):
        if number <= most:
            drawn.append(line)
        elif (place := int(random.random() * number)) < most:
            drawn[place] = line
    return number, drawn


_Block = tuple[EncodedPairs, PairReport]
_Encode = Callable[[Iterable[list[Line]]], Iterator[_Block]]


def _write_split(
    folder: Path, split: str, parts: list[Part], encode: _Encode, bar: ProgressBar
) -> tuple[int, dict[str, dict[str, int]]]:
    """Write the pairs of a split; returns their number, and those dropped per part and fault."""
    lengths: list[np.ndarray] = [np.zeros((0, 2), np.uint8)]
    dropped: dict[str, dict[str, int]] = {}
    dtype = np.dtype(np.uint8)
    with (folder / f"{split}.ids.npy").open("wb") as file:
        _write_header(file, dtype, 0)
        for part in parts:
            report = PairReport(part.name)
            for pairs, found in encode(_blocks(part.lines())):
                bar.update(len(pairs))
                dtype = pairs.ids.dtype
                file.write(pairs.ids.data)
                lengths.append(pairs.lengths)
                report.add(found)
            report.check(part.on_bad)
            if report.bad:
                warnings.warn(str(report), stacklevel=2)
                dropped[part.name] = {fault: len(numbers) for fault, numbers in report.bad.items()}
        all_lengths = np.concatenate(lengths)
        _write_header(file, dtype, int(all_lengths.sum(dtype=np.int64)))
    np.save(folder / f"{split}.lengths.npy", all_lengths)
    return len(all_lengths), dropped


def _write_header(file: IO[bytes], dtype: np.dtype, count: int) -> None:
    """Begin a file with the header of a flat array, whose size does not depend on the length."""
    file.seek(0)
    shape = {"descr": dtype.str, "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_1_0(file, shape)


def _blocks(lines: Iterator[Line]) -> Iterator[list[Line]]:
    while block := list(islice(lines, _BLOCK)):
        yield block


@contextmanager
def _pool(processes: int, vocabularies: Sequence[str] = ()) -> Iterator[ProcessPoolExecutor]:
    """Worker processes that can encode with these vocabularies."""
    spawn = multiprocessing.get_context("spawn")  # threads do not survive a fork
    safe = "PYTHONSAFEPATH"  # no module of the current folder is run (from Python 3.11 on)
    before, os.environ[safe] = os.environ.get(safe, ""), "1"
    with ProcessPoolExecutor(processes, spawn, _start_worker, (vocabularies,)) as pool:
        try:
            yield pool
        except BrokenProcessPool as error:
            raise InputError(
                "a process ended early, perhaps because the script that started it has no "
                'if __name__ == "__main__": around its work or was read from standard input, or '
                "for lack of memory, of which --processes 1 needs less, as does a smaller "
                "--vocab-pairs while the vocabulary is learned"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)
            os.environ[safe] = before  # empty, it is as if it were not set


@contextmanager
def _encoding(vocabularies: list[str], processes: int) -> Iterator[_Encode]:
    """A function that encodes blocks of lines, in order, in several processes."""
    if processes < 2:
        encoder = PairEncoder(*map(Tokenizer.from_str, vocabularies))
        yield partial(map, partial(_encode_block, encoder))
        return

    def encode(blocks: Iterable[list[Line]]) -> Iterator[_Block]:
        waiting: deque[Future[_Block]] = deque()
        for block in blocks:
            waiting.append(pool.submit(_encode_in_worker, block))
            if len(waiting) > 2 * processes:
                yield waiting.popleft().result()
        yield from (future.result() for future in waiting)

    with _pool(processes, vocabularies) as pool:
        yield encode


def _encode_block(encoder: PairEncoder, lines: list[Line]) -> _Block:
    """The good pairs of some lines, encoded, and a report of the others."""
    report = PairReport("")
    return encoder.encode(good_pairs(lines, report)), report


_encoder: PairEncoder  # in a worker


def _start_worker(vocabularies: Sequence[str]) -> None:
    """Prepare to encode, and to exit when the parent exits, even if the parent is killed."""
    global _encoder
    if vocabularies:
        _encoder = PairEncoder(*map(Tokenizer.from_str, vocabularies))
    parent = multiprocessing.parent_process()

    def end() -> None:
        if parent:
            parent.join()
            os._exit(1)

    threading.Thread(target=end, daemon=True).start()


def _encode_in_worker(lines: list[Line]) -> _Block:
    return _encode_block(_encoder, lines)
