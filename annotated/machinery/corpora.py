"""Corpora."""

import hashlib
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from annotated.machinery.cleaning import Line, PairReport, check_bad, good_pairs
from annotated.machinery.downloads import cache_folder, download, lies_there
from annotated.machinery.errors import FileError, InputError, MissingFile
from annotated.machinery.files import reading, resource_path, settings
from annotated.machinery.texts import part_lines, without_mark

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class CorpusFile:
    """What is known of a file: size (bytes), SHA-256, and its URL if it is not its corpus's own."""

    size: int | None = None
    sha256: str | None = None
    url: str = ""


@dataclass(frozen=True)
class HeldOut:
    """How dev and test come out of parts that they share with train: `corpora.toml` explains it."""

    by: str
    dev: int
    test: int = 0

    def __post_init__(self) -> None:
        if self.by not in ("hash", "end", "turn") or self.dev < 1 or self.test < 0:
            raise InputError(f'expected by as "hash", "end" or "turn", and numbers; got {self}')


_PLACE = re.compile(r"{(.*?)}")
_PLACES = {"lang", "foreign", "role", "lang3", "foreign3"}


@dataclass(frozen=True)
class Corpus:
    """A corpus of the register: what it is, and what its splits are made of.

    `splits` names the parts of each split: files, or members of archives (ARCHIVE/MEMBER), with
    {lang} and its relatives for the languages; `local` names other shapes of a split that may lie
    in ANNOTATED_DATA/`folder`. `on_bad` says what becomes of bad pairs of train. The URL of a file
    is `url`/NAME if it has none of its own.
    """

    name: str
    title: str
    source: str
    licence: str
    languages: list[str]
    folder: str
    splits: dict[str, list[str]]
    files: dict[str, CorpusFile]
    local: dict[str, list[str]] = field(default_factory=dict)
    held_out: HeldOut | None = None
    on_bad: str = "refuse"
    url: str = ""

    def __post_init__(self) -> None:
        if self.on_bad not in ("refuse", "drop"):
            raise InputError(f'expected on_bad as "refuse" or "drop"; got {self.on_bad!r}')
        for split, parts in [*self.splits.items(), *self.local.items()]:
            if split not in self.splits:
                raise InputError(f"expected local for splits that there are; got {split!r}")
            if strange := {place for part in parts for place in _PLACE.findall(part)} - _PLACES:
                known = ", ".join(sorted(_PLACES))
                raise InputError(f"expected placeholders out of {known}; got {min(strange)!r}")


def known_corpora() -> dict[str, Corpus]:
    """All corpora of the register, by name.

    Raises: FileError that names the corpus and the key, if the register is not as its head says.
    """
    path = resource_path("corpora.toml")
    with reading(path, "a register of corpora"), path.open("rb") as file:
        register = tomllib.load(file)
    return {name: _entry(name, entry, f"{path}, {name}") for name, entry in register.items()}


def _entry(name: str, entry: Any, where: str) -> Corpus:
    """A corpus out of its table in the register."""
    if not isinstance(entry, dict):
        raise FileError(f"{where}: expected the table of a corpus; got {entry!r:.80}")
    entry = {"name": name, **entry}
    if isinstance(entry.get("files"), dict):
        known = entry["files"].items()
        entry["files"] = {n: settings(CorpusFile, f, f"{where}, files, {n}") for n, f in known}
    if "held_out" in entry:
        entry["held_out"] = settings(HeldOut, entry["held_out"], f"{where}, held_out")
    return settings(Corpus, entry, where)


def find_corpus(name: str) -> Corpus:
    """One corpus of the register.

    Raises: ValueError that lists the names if this is none of them.
    """
    known = known_corpora()
    if name not in known:
        raise InputError(f"expected a corpus out of {', '.join(known)}; got {name!r}")
    return known[name]


def local_file(corpus: Corpus, name: str) -> Path | None:
    """A file in the folder that ANNOTATED_DATA names, compressed or not, if it is there."""
    if "ANNOTATED_DATA" not in os.environ:
        return None
    folder = Path(os.environ["ANNOTATED_DATA"]) / corpus.folder
    shapes = (folder / name, folder / name.removesuffix(".gz"))
    return next((path for path in shapes if path.exists()), None)


def corpus_file(corpus: Corpus, name: str, fetch: bool | None = None, check: bool = True) -> Path:
    """Path of one file of a corpus: in ANNOTATED_DATA, in the cache, or downloaded now.

    Args:
        fetch: whether to download it if need be; by default, if ANNOTATED_DATA is not set.
        check: whether to compare what lies in the cache with its SHA-256, which takes its time.

    Raises: MissingFile if it is not on this machine and shall not or cannot be downloaded;
        FileError as `download`.
    """
    entry, cached = corpus.files.get(name, CorpusFile()), cache_folder() / corpus.folder / name
    local = local_file(corpus, name)
    if local:
        return local
    if lies_there(cached, entry.sha256) if check else cached.exists():
        return cached
    folder = f"{os.environ.get('ANNOTATED_DATA', '$ANNOTATED_DATA')}/{corpus.folder}"
    url = entry.url or (f"{corpus.url}/{name}" if corpus.url else None)
    if url is None:
        raise MissingFile(f"expected {name} in {folder}; no place to download it is known")
    if fetch is False or (fetch is None and "ANNOTATED_DATA" in os.environ):
        how = f"put it there, or run: annotated data get {corpus.name}"
        raise MissingFile(f"expected {name} in {folder}; {how}")
    return download(url, cached, entry.size, entry.sha256)


_THREE = {"en": "eng", "de": "deu", "fr": "fra"}


def _fill(part: str, lang: str, foreign: str) -> str:
    """A part of the register, for one side of a pair."""
    role = "ref" if lang == "en" else "src"
    names = {"lang": lang, "foreign": foreign, "role": role}
    names |= {"lang3": _THREE.get(lang, lang), "foreign3": _THREE.get(foreign, foreign)}
    return _PLACE.sub(lambda place: names[place[1]], part)


def corpus_parts(corpus: Corpus, split: str, src: str, tgt: str) -> list[tuple[str, str]]:
    """What a split is made of: each part of the source, and that of the target.

    Returns: pairs of FILE or ARCHIVE/MEMBER; both are the same if one file holds both sides.

    Raises: ValueError if the corpus has no such split or pair of languages.
    """
    if split not in corpus.splits or {src, tgt} - set(corpus.languages) or src == tgt:
        raise ValueError(
            f"expected a split out of {', '.join(corpus.splits)} and two languages out of "
            f"{', '.join(corpus.languages)} of {corpus.name}; got {split!r}, {src!r}, {tgt!r}"
        )
    foreign = tgt if src == "en" else src
    shapes = [corpus.local.get(split, []), corpus.splits[split]]
    if "en" not in (src, tgt) and any("{foreign" in p for s in shapes for p in s):
        raise ValueError(f"expected English on one side of {corpus.name}; got {src!r}, {tgt!r}")
    local, parts = ([(_fill(p, src, foreign), _fill(p, tgt, foreign)) for p in s] for s in shapes)
    here = local and all(local_file(corpus, name) for pair in local for name in pair)
    return local if here else parts


def known_split(corpus: Corpus, split: str) -> list[str]:
    """The parts of a split.

    Raises: ValueError if the corpus has no such split.
    """
    if split not in corpus.splits:
        raise ValueError(
            f"expected a split out of {', '.join(corpus.splits)} of {corpus.name}; got {split!r}"
        )
    return corpus.splits[split]


def corpus_files(corpus: Corpus, splits: Iterable[str] = (), fetch: bool = True) -> Iterator[Path]:
    """Path of each file that splits of a corpus (default: all) are made of, downloaded if need be.

    Raises: ValueError for an unknown split; else as `corpus_file`.
    """
    others = [language for language in corpus.languages if language != "en"]
    parts = [
        part
        for split in splits or corpus.splits
        for foreign in others
        for pair in corpus_parts(corpus, split, "en", foreign)
        for part in pair
    ]
    if not others:  # English alone, with annotations
        parts = [part for split in splits or corpus.splits for part in known_split(corpus, split)]
    names = dict.fromkeys(part.partition("/")[0] for part in parts)  # which keeps the order
    yield from (corpus_file(corpus, name, fetch) for name in names)


_SEGMENT = re.compile(rb"<seg[^>]*>(.*?)</seg>")
_HEADER = re.compile(rb"<(title|description)>(.*)</\1>")


def _sentences(name: str, lines: Iterable[bytes]) -> Iterator[bytes]:
    """The sentences of a file: its lines, or what WMT's and IWSLT's mark-up holds."""
    if name.endswith((".sgm", ".xml")):  # entities stay as they are, as sacreBLEU leaves them
        yield from (found[1].strip() for line in lines if (found := _SEGMENT.search(line)))
    elif "/train.tags." in name:
        for line in lines:
            found = _HEADER.match(line)
            if found or not line.startswith(b"<"):
                yield (found[2] if found else line).strip()
    else:
        yield from lines


def _lines(path: Path, member: str = "") -> Iterator[bytes]:
    """The sentences of a file or a member of an archive, as bytes."""
    lines = without_mark(part_lines(path, member))
    bare = (line.removesuffix(b"\n").removesuffix(b"\r") for line in lines)
    yield from _sentences(f"{path.name}/{member}", bare)


def _bucket(english: bytes) -> int:
    """A number from 0 to 99 that depends on the ASCII letters and digits of a sentence alone."""
    letters = re.sub(rb"\W", b"", english.lower())
    return int.from_bytes(hashlib.sha256(letters).digest()[:4], "big") % 100


def _split_of(rule: HeldOut, number: int, english: bytes, total: int) -> str:
    """Which split a line of a shared part belongs to, by the rule of the register.

    Args:
        number: of the line, from 1.   english: its English side.   total: lines of the part.
    """
    if rule.by == "end":
        after = total - number
        return "test" if after < rule.test else "dev" if after < rule.dev + rule.test else "train"
    if rule.by == "turn":
        return "train" if number % rule.dev else "dev"
    bucket = _bucket(english)
    return "dev" if bucket < rule.dev else "test" if bucket < rule.dev + rule.test else "train"


@dataclass(frozen=True)
class Part:
    """A part of a split, to be read.

    Args:
        name: for messages.   on_bad: what becomes of its bad pairs, "refuse" or "drop".
        source, target: file of a side, and its member if it is an archive; equal if one file
            holds both sides, English first and a tab between.
        from_english: whether English is the source.
        split, held_out: of a part that other splits share.
    """

    name: str
    on_bad: str
    source: tuple[Path, str]
    target: tuple[Path, str]
    from_english: bool = True
    split: str = ""
    held_out: HeldOut | None = None

    def lines(self) -> Iterator[Line]:
        """Its lines: number, source, target; None for a side that has no such line."""
        rule = self.held_out
        total = sum(1 for _ in self._all()) if rule and rule.by == "end" else 0
        if rule and rule.by == "end" and total < rule.dev + rule.test:
            out = f"{total} lines, of which {rule.dev + rule.test} are to be held out"
            raise FileError(f"{self.source[0]}: expected the lines of all splits; got: {out}")
        for number, source, target in self._all():
            english = (source if self.from_english else target) or b""
            if not rule or _split_of(rule, number, english, total) == self.split:
                yield number, source, target

    def _all(self) -> Iterator[tuple[int, bytes | None, bytes | None]]:
        """The lines of all splits."""
        sides: Iterable[Any] = zip_longest(_lines(*self.source), _lines(*self.target))
        if self.source == self.target:
            sides = ((*line.split(b"\t"), None)[:2] for line in _lines(*self.source))
            sides = sides if self.from_english else (pair[::-1] for pair in sides)
        for number, (source, target) in enumerate(sides, start=1):
            yield number, source, target


def split_parts(
    corpus: str,
    split: str,
    src: str,
    tgt: str,
    on_bad: str | None = None,
    fetch: bool | None = None,
    check: bool = True,
) -> list[Part]:
    """The parts of a split, in order, of one corpus or of several.

    Args: as `load_pairs`; check: as `corpus_file`.

    Raises: ValueError for an unknown name; else as `corpus_file`.
    """
    known = known_corpora()
    if corpus not in known and Path(corpus).is_dir():
        return [_folder_part(Path(corpus), split, src, tgt, on_bad or "refuse")]
    if "+" in corpus:
        more = split, src, tgt, on_bad, fetch, check
        return [part for name in corpus.split("+") for part in split_parts(name, *more)]
    found = find_corpus(corpus)
    on_bad = on_bad or (found.on_bad if split == "train" else "refuse")
    names = corpus_parts(found, split, src, tgt)
    files = dict.fromkeys(name.partition("/")[0] for pair in names for name in pair)
    paths = {file: corpus_file(found, file, fetch, check) for file in files}  # each is checked once
    shared = found.splits[split] == found.splits.get("train")
    parts = []
    for pair in names:
        one, other = ((paths[file], member) for file, _, member in (x.partition("/") for x in pair))
        name, rule = f"{corpus} {split}, {pair[0]}", found.held_out if shared else None
        parts.append(Part(name, on_bad, one, other, src == "en", split, rule))
    return parts


def _folder_part(folder: Path, split: str, src: str, tgt: str, on_bad: str) -> Part:
    """The files SPLIT.LANGUAGE in a folder, which may be compressed."""
    sides = []
    for lang in src, tgt:
        paths = [folder / f"{split}.{lang}{ending}" for ending in ("", ".gz", ".xz")]
        path = next((path for path in paths if path.exists()), None)
        if path is None:
            raise MissingFile(f"expected {paths[0].name} in {folder}")
        sides.append((path, ""))
    return Part(f"{folder}, {split}", on_bad, sides[0], sides[1])


def load_pairs(
    corpus: str,
    split: str,
    src: str,
    tgt: str,
    on_bad: str | None = None,
    max_words: int | None = None,
    fetch: bool | None = None,
) -> tuple[list[str], list[str]]:
    """Source and target sentences of a split, line by line translations of each other.

    Args:
        corpus: a name of the register, a folder with files such as train.en, or several of
            these with + between.
        split: "train", "dev", "test", …
        src, tgt: languages, such as "en" and "de".
        on_bad, max_words: as `clean_pairs`; by default bad pairs are dropped from the training
            data of corpora that are registered so, with a warning, and refused elsewhere.
        fetch: whether to download what is missing; by default, if ANNOTATED_DATA is not set.

    Raises: ValueError for an unknown name or bad pairs; else as `corpus_file`.

    Source: section 5.1.
    """
    source: list[str] = []
    target: list[str] = []
    for part in split_parts(corpus, split, src, tgt, on_bad, fetch):
        report = PairReport(part.name)
        for one, other in good_pairs(part.lines(), report, max_words):
            source.append(one)
            target.append(other)
        check_bad(report, part.on_bad)
        if report.bad:
            warnings.warn(str(report), stacklevel=2)
    return source, target


def parse_data(data: str) -> tuple[str, str, str]:
    """Corpus, source and target language of a name such as "multi30k-en-de" or "my/texts-en-de".

    Raises: ValueError unless it ends in two languages.
    """
    corpus, *pair = data.rsplit("-", 2) if isinstance(data, str) else ""
    if len(pair) < 2 or not corpus:
        raise ValueError(f"expected data as CORPUS-SRC-TGT, such as multi30k-en-de; got {data!r}")
    src, tgt = pair
    whole = {data, f"{corpus}-{tgt}-{src}"} & set(
        known_corpora()
    )  # its name may have its languages
    return (whole.pop() if whole else corpus), src, tgt
