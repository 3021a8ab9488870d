"""Corpora: the registry `corpora.toml`, the location of their files, and the lines of each split.

A file is taken from ANNOTATED_DATA/FOLDER if it is there (the user's own copy, which is not
checked), or else from the cache of downloads, where it must have its registered SHA-256. A file
without a registered SHA-256 is never downloaded. The head of the registry explains its keys.
"""

import hashlib
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from dacite import from_dict

from annotated.machinery.checks import without_surrogates
from annotated.machinery.corpora.cleaning import Line, PairReport, good_pairs
from annotated.machinery.corpora.downloads import cache_folder, download, sha256_of
from annotated.machinery.corpora.languages import language_of, three_letters, two_letters
from annotated.machinery.corpora.tables import TABLES, is_table, table_lines
from annotated.machinery.corpora.texts import bare_lines, part_lines
from annotated.machinery.errors import FileError, InputError, MissingFile
from annotated.machinery.files import resource_path
from annotated.machinery.progress import say

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class CorpusFile:
    """A file of a corpus: bytes, SHA-256, and its URL unless it is the corpus's url/NAME."""

    size: int | None = None
    sha256: str | None = None
    url: str = ""


@dataclass(frozen=True)
class HeldOut:
    """How dev and test are held out of parts that they share with train; see `corpora.toml`.

    By "source" holds for data that are not registered and have no development set.
    """

    by: str
    dev: int = 0
    test: int = 0


@dataclass(frozen=True)
class Corpus:
    """A registered corpus.

    `splits` names the parts of each split: files, or members of archives (ARCHIVE/MEMBER), with
    placeholders such as {lang} for the languages. `local` names other parts, which are used instead
    if they are in ANNOTATED_DATA/`folder`. `on_bad` is the treatment of bad pairs in train.
    """

    name: str
    title: str
    source: str
    license: str
    languages: list[str]
    folder: str
    splits: dict[str, list[str]]
    files: dict[str, CorpusFile]
    local: dict[str, list[str]] = field(default_factory=dict)
    held_out: HeldOut | None = None
    on_bad: str = "refuse"
    url: str = ""


@cache
def known_corpora() -> dict[str, Corpus]:
    """All corpora of the registry, by name."""
    register = tomllib.loads(resource_path("corpora.toml").read_text(encoding="utf-8"))
    return {name: from_dict(Corpus, {"name": name, **entry}) for name, entry in register.items()}


def find_corpus(name: str, other: str = "") -> Corpus:
    """One corpus of the registry.

    Raises: InputError that lists the known names, and what else is possible, for any other name.
    """
    known = known_corpora()
    if name not in known:
        hint = " (in CORPUS-SRC-TGT, no language has a hyphen)" if "-" in name else ""
        raise InputError(f"expected {other}a corpus out of {', '.join(known)}; got {name!r}{hint}")
    return known[name]


def local_file(corpus: Corpus, name: str) -> Path | None:
    """A file in the folder that ANNOTATED_DATA names, compressed or not, if it exists."""
    if "ANNOTATED_DATA" not in os.environ:
        return None
    folder = Path(os.environ["ANNOTATED_DATA"]) / corpus.folder
    shapes = (folder / name, folder / name.removesuffix(".gz"))
    return next((path for path in shapes if path.exists()), None)


def corpus_file(corpus: Corpus, name: str, fetch: bool | None = None) -> Path:
    """Path of one file of a corpus: in ANNOTATED_DATA, in the cache, or downloaded now.

    Args: fetch: whether to download it if necessary; by default, if ANNOTATED_DATA is not set.

    Raises: MissingFile if it is not on this machine and is not to be downloaded, or cannot be
        downloaded because its SHA-256 is not registered; FileError as `download`.
    """
    if local := local_file(corpus, name):
        return local
    entry, cached = corpus.files.get(name, CorpusFile()), cache_folder() / corpus.folder / name
    folder = f"{os.environ.get('ANNOTATED_DATA', '$ANNOTATED_DATA')}/{corpus.folder}"
    missing = f"expected {name} in {folder}; put it there"
    url = entry.url or (f"{corpus.url}/{name}" if corpus.url else "")
    if entry.sha256 is None or not url:
        place = url or corpus.source
        raise MissingFile(f"{missing}, from {place}; it is not downloaded automatically")
    if cached.exists() and sha256_of(cached) == entry.sha256:
        return cached
    if not ("ANNOTATED_DATA" not in os.environ if fetch is None else fetch):
        raise MissingFile(f"{missing}, or run: annotated data get {corpus.name}")
    return download(url, cached, entry.sha256, entry.size)


def known_split(corpus: Corpus, split: str) -> list[str]:
    """The parts of a split.

    Raises: InputError if the corpus has no such split.
    """
    if split not in corpus.splits:
        known = ", ".join(corpus.splits)
        raise InputError(f"expected a split out of {known} of {corpus.name}; got {split!r}")
    return corpus.splits[split]


def corpus_parts(corpus: Corpus, split: str, src: str, tgt: str) -> list[tuple[str, str]]:
    """The parts of a split: for each, the files of its source and of its target.

    Returns: pairs of FILE or ARCHIVE/MEMBER; both are the same if one file holds both sides.

    Raises: InputError if the corpus has no such split or pair of languages.
    """
    parts, local = known_split(corpus, split), corpus.local.get(split, [])
    if {src, tgt} - set(corpus.languages) or src == tgt:
        known = f"two languages out of {', '.join(corpus.languages)} of {corpus.name}"
        raise InputError(f"expected {known}; got {src!r}, {tgt!r}")
    foreign = tgt if src == "en" else src
    if "en" not in (src, tgt) and any("{foreign" in part for part in parts + local):
        raise InputError(f"expected English on one side of {corpus.name}; got {src!r}, {tgt!r}")

    def side(part: str, lang: str) -> str:
        threes = {"lang3": three_letters(lang), "foreign3": three_letters(foreign)}
        role = "ref" if lang == "en" else "src"
        return part.format(lang=lang, foreign=foreign, role=role, **threes)

    pairs, ours = ([(side(part, src), side(part, tgt)) for part in some] for some in (parts, local))
    whole = ours and all(local_file(corpus, name) for pair in ours for name in pair)
    return ours if whole else pairs


def corpus_files(corpus: Corpus, splits: Iterable[str] = ()) -> Iterator[Path]:
    """Path of each file that splits of a corpus (default: all) need, downloaded if necessary.

    Raises: InputError for an unknown split; otherwise as `corpus_file`. If no split is named, an
        unavailable file is only reported on standard error, unless all files are unavailable.
    """
    others = [language for language in corpus.languages if language != "en"]
    parts: list[str] = []
    for split in splits or corpus.splits:
        for lang in others:
            parts += chain.from_iterable(corpus_parts(corpus, split, "en", lang))
        if not others:  # English alone, with annotations
            parts += known_split(corpus, split)
    names = dict.fromkeys(part.partition("/")[0] for part in parts)
    missing = 0
    for name in names:
        try:
            yield corpus_file(corpus, name, fetch=True)
        except MissingFile as error:
            missing += 1
            if splits or missing == len(names):
                raise
            say(error)


_SEGMENT = re.compile(rb"<seg[^>]*>(.*?)</seg>")
_HEADER = re.compile(rb"<(title|description)>(.*)</\1>")


def _sentences(path: Path, member: str = "") -> Iterator[bytes]:
    """The sentences of a file: its lines, or the content of WMT's and IWSLT's markup."""
    lines = bare_lines(part_lines(path, member))
    if (member or path.name).endswith((".sgm", ".xml")):  # entities are kept, as in sacreBLEU
        yield from (found[1].strip() for line in lines if (found := _SEGMENT.search(line)))
    elif "/train.tags." in f"/{member}":
        for line in lines:
            found = _HEADER.match(line)
            if found or not line.startswith(b"<"):
                yield (found[2] if found else line).strip()
    else:
        yield from lines


def _split_of(rule: HeldOut, number: int, english: bytes, total: int) -> str:
    """The split that a line of a shared part belongs to, by the rule of the registry.

    Args: number: line number, from 1.   english: the English side.   total: lines of the part.
    """
    if rule.by == "turn":
        return "train" if number % rule.dev else "dev"
    if rule.by == "end":
        place = total - number
        return "test" if place < rule.test else "dev" if place < rule.dev + rule.test else "train"
    # Only ASCII letters and digits, so that variants in case or punctuation share a split.
    digest = hashlib.sha256(re.sub(rb"\W", b"", english.lower())).digest()
    place = int.from_bytes(digest[:4], "big") % 100
    return "dev" if place < rule.dev else "test" if place < rule.dev + rule.test else "train"


@dataclass(frozen=True)
class Part:
    """A part of a split that is to be read.

    Args:
        name: for messages.   on_bad: treatment of its bad pairs, "refuse" or "drop".
        source, target: file of a side, and the member if it is an archive; equal if one file
            contains both sides, English first, separated by a tab.
        from_english: whether English is the source.
        columns: of source and target, if the file is a table.
        split, held_out: for a part that several splits share.
    """

    name: str
    on_bad: str
    source: tuple[Path, str]
    target: tuple[Path, str]
    from_english: bool = True
    split: str = ""
    held_out: HeldOut | None = None
    columns: tuple[str, str] | None = None

    def lines(self) -> Iterator[Line]:
        """The lines: number, source, target; None for a side without such a line."""
        rule, total = self.held_out, 0
        if rule and rule.by == "end":
            total = sum(1 for _ in self._all_lines())
            if total < rule.dev + rule.test:
                found = f"{total} lines, of which {rule.dev + rule.test} are to be held out"
                raise FileError(f"{self.source[0]}: expected the lines of all splits; got: {found}")
        if rule and rule.by == "source":
            stats = [path.stat() for path, _ in (self.source, self.target)]
            stamps = [(stat.st_size, stat.st_mtime_ns) for stat in stats]
            last = _last_held_out(replace(self, split=""), *stamps)
            for line in self._numbered():
                place = _place(line, PairReport(""))
                if (place is not None and place <= last) == (self.split == "dev"):
                    yield line
            return
        for number, source, target in self._numbered():
            english: Any = (source if self.from_english else target) or b""
            if not rule or _split_of(rule, number, english, total) == self.split:
                yield number, source, target

    def _numbered(self) -> Iterator[Line]:
        """The lines of all splits with their numbers."""
        if self.columns:
            yield from table_lines(self.source[0], self.columns)
            return
        for number, (source, target) in enumerate(self._all_lines(), start=1):
            yield number, source, target

    def _all_lines(self) -> Iterator[tuple[bytes | None, bytes | None]]:
        """The lines of all splits."""
        if self.source != self.target:
            sides = zip_longest(_sentences(*self.source), _sentences(*self.target))
            for number, pair in enumerate(sides):
                if None in pair:
                    counts = f"{number:,} and {number + 1 + sum(1 for _ in sides):,} lines"
                    wanted = "two files of equal length, as a missing line shifts all after it"
                    raise FileError(f"{self.name}: expected {wanted}; got {counts}")
                yield pair
            return
        for line in _sentences(*self.source):
            english, other = (*line.split(b"\t"), None)[:2]
            yield (english, other) if self.from_english else (other, english)


_MOST_HELD_OUT = 1000  # sources, or a twentieth of all if that is less


def _place(line: Line, report: PairReport) -> int | None:
    """A number below 2^64 that depends on the letters of the source; None for a bad pair."""
    for source, _ in good_pairs([line], report):
        letters = re.sub(r"\W", "", source.casefold()) or source
        digest = hashlib.sha256(without_surrogates(letters).encode()).digest()
        return int.from_bytes(digest[:8], "big")
    return None


@lru_cache(maxsize=8)
def _last_held_out(part: Part, *stamps: tuple[int, int]) -> int:
    """The greatest `_place` that is held out; the stamps of the files are for the cache."""
    report = PairReport(part.name)
    places = (x for line in part._numbered() if (x := _place(line, report)) is not None)
    found = np.unique(np.fromiter(places, np.uint64))
    if len(found) < 2:
        report.check("refuse" if "not UTF-8" in report.bad else "drop")
        wanted = "expected two different source sentences or more, of which some are held out"
        raise FileError(f"{report}; {wanted}; got {len(found)}")
    return int(found[min(_MOST_HELD_OUT, max(1, len(found) // 20)) - 1])


def split_parts(
    corpus: str, split: str, src: str, tgt: str, on_bad: str = "auto", fetch: bool | None = None
) -> list[Part]:
    """The parts of a split, in order, of one corpus or of several.

    Args: as `load_pairs`.

    Raises: InputError for an unknown name; otherwise as `corpus_file`.
    """
    if not isinstance(corpus, str):
        raise InputError(f"expected a corpus as a string; got {type(corpus).__name__}")
    if corpus not in known_corpora() and (own := _own_part(corpus, split, src, tgt, on_bad)):
        return [own]
    if "+" in corpus:
        more = split, src, tgt, on_bad, fetch
        parts = [part for name in corpus.split("+") for part in split_parts(name, *more)]
        for part in parts:
            if part.held_out and part.held_out.by == "source":
                wanted = f"expected a development set in {part.source[0].parent}"
                raise InputError(f"{wanted}; none is held out of data that are joined by +")
        return parts
    found = find_corpus(corpus, "a folder, two files (FILE,FILE), a table (.tsv, .csv), or ")
    src, tgt = two_letters(src), two_letters(tgt)  # as in the registry
    if on_bad == "auto":
        on_bad = found.on_bad if split == "train" else "refuse"
    names = corpus_parts(found, split, src, tgt)
    files = dict.fromkeys(name.partition("/")[0] for pair in names for name in pair)
    paths = {file: corpus_file(found, file, fetch) for file in files}  # each is checked once
    rule = found.held_out if found.splits[split] == found.splits.get("train") else None
    parts = []
    for pair in names:
        one, other = ((paths[file], member) for file, _, member in (x.partition("/") for x in pair))
        name = f"{corpus} {split}, {pair[0]}"
        parts.append(Part(name, on_bad, one, other, src == "en", split, rule))
    return parts


def _own_part(corpus: str, split: str, src: str, tgt: str, on_bad: str) -> Part | None:
    """The part of a split in a folder, two files or a table; None if the name is none of these.

    Where there is no development set, it is held out of the training data.
    """
    folder = Path(corpus)
    held_out = split in ("train", "dev")
    if os.path.isdir(folder):
        held_out = held_out and not any(folder.glob("dev.*"))
        found = _folder_files(folder, "train" if held_out else split, src, tgt)
        if not found:
            raise MissingFile(f"expected {split}.{src} in {folder}")
    elif not (found := _named_files(corpus, src, tgt)):
        return None
    elif not held_out and split != "all":
        raise InputError(f"expected a split out of train, dev, all of {corpus}; got {split!r}")
    one, other, columns = found
    on_bad = "refuse" if on_bad == "auto" else on_bad
    rule = HeldOut("source") if held_out else None
    name = f"{folder}, {split}"
    return Part(name, on_bad, (one, ""), (other, ""), True, split, rule, columns)


_Files = tuple[Path, Path, tuple[str, str] | None]  # of source and target, and columns of a table


def _folder_files(folder: Path, split: str, src: str, tgt: str) -> _Files | None:
    """The files of a split in a folder, which may be compressed; None if there are none."""

    def find(name: str) -> Path | None:
        paths = (folder / f"{name}{ending}" for ending in ("", ".gz", ".xz"))
        return next((path for path in paths if path.exists()), None)

    one, other = find(f"{split}.{src}"), find(f"{split}.{tgt}")
    if one and other:
        return one, other, None
    if one or other:
        raise MissingFile(f"expected {split}.{tgt if one else src} in {folder}")
    tables = (find(f"{split}{ending}") for ending in TABLES)
    return next(((table, table, (src, tgt)) for table in tables if table), None)


def _named_files(name: str, src: str, tgt: str) -> _Files | None:
    """The files of FILE,FILE or of TABLE or TABLE:COLUMN,COLUMN; None for any other name."""
    path, _, columns = name.rpartition(":")
    path, columns = (path, columns) if is_table(Path(path)) else (name, "")
    table, (one, _, other) = Path(path), columns.partition(",")
    if is_table(table) and "," not in table.name:
        files = [table, table]
    elif len(files := [Path(file) for file in name.split(",")]) != 2:
        return None
    for file in files:
        if not os.path.isfile(file):
            if "+" in name:  # several, which may be of any kind
                return None
            raise MissingFile(f"expected sentences in {file}; there is no such file")
    if files[0] != files[1]:
        return files[0], files[1], None
    if columns and not (one and other):
        raise InputError(f"expected two columns as {table.name}:SOURCE,TARGET; got {columns!r}")
    return table, table, (one, other) if one else (src, tgt)


def default_split(corpus: str, trained_on: bool) -> str:
    """The split to evaluate on; files have no test, so that it is all of them, or what was held
    out if the model was trained on them."""
    if corpus in known_corpora() or os.path.isdir(corpus) or not _named_files(corpus, "", ""):
        return "test"
    return "dev" if trained_on else "all"


def load_pairs(
    corpus: str,
    split: str,
    src: str,
    tgt: str,
    on_bad: str = "auto",
    fetch: bool | None = None,
    bare: bool = True,
) -> tuple[list[str], list[str]]:
    """Source and target sentences of a split, which are translations of each other line by line.

    Args:
        corpus: a name in the registry, a folder with files such as train.en or train.csv (./NAME
            if its name is registered), or several of these joined by +; or two files as
            "FILE,FILE"; or a table (.tsv, .csv or .parquet) with columns named by the languages,
            or as in "FILE:SOURCE,TARGET", or without names as in "FILE:1,2".
        split: "train", "dev", "test", …; of files "all" too. If there is no development set, some
            sources are held out of the training data: always the same, and with all their pairs.
        src, tgt: languages, such as "en" and "de".
        on_bad: "refuse" to stop at unusable pairs; "drop" to omit them with a warning; "auto" to
            drop them from training data that is registered with "drop", and otherwise to refuse.
        fetch: whether to download what is missing; by default, if ANNOTATED_DATA is not set.
        bare: without spaces and invisible characters at the ends of sentences.

    Raises: InputError for an unknown name or bad pairs; FileError for a missing or damaged file.

    Source: section 5.1.
    """
    source: list[str] = []
    target: list[str] = []
    for part in split_parts(corpus, split, src, tgt, on_bad, fetch):
        report = PairReport(part.name)
        for one, other in good_pairs(part.lines(), report, bare):
            source.append(one)
            target.append(other)
        report.check(part.on_bad)
        if report.bad:
            warnings.warn(str(report), stacklevel=2)
    return source, target


def parse_data(data: str) -> tuple[str, str, str]:
    """Corpus, source and target language of a name such as "multi30k-en-de" or "my/texts-en-de".

    Two files whose names end in languages, as in "my/news.en,my/news.de", need no others.

    Raises: InputError unless it ends in two languages.
    """
    if isinstance(data, str) and data.count(",") == 1:
        ends = [language_of(Path(name)) for name in data.split(",")]
        if ends[0] and ends[1]:
            return data, ends[0], ends[1]
    corpus, *pair = data.rsplit("-", 2) if isinstance(data, str) else ""
    if len(pair) < 2 or not corpus:
        wanted = "CORPUS-SRC-TGT, such as multi30k-en-de, or FOLDER-SRC-TGT or TABLE.csv-SRC-TGT"
        raise InputError(f"expected data as {wanted}; got {data!r}")
    src, tgt = pair
    known = known_corpora()  # some corpora have languages in their names
    names = [name for name in (data, f"{corpus}-{tgt}-{src}") if name in known]
    return (names or [corpus])[0], src, tgt


def full_paths(data: str) -> str:
    """Data as `parse_data` reads it, with paths that lead there from any folder."""
    corpus, src, tgt = parse_data(data)
    known = lambda name: name in known_corpora() or not os.path.exists(name)
    full = lambda found: found[0] if known(found[0]) else os.path.abspath(found[0])
    joined = full([corpus]) if os.path.exists(corpus) else re.sub("[^,+:]+", full, corpus)
    return joined if corpus == data else f"{joined}-{src}-{tgt}"
