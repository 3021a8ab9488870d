"""Corpora (chapters/corpora.md).

Generated from the chapter's export cells by book/extract.py: edit it there.
"""

import hashlib
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count, zip_longest
from pathlib import Path
from typing import Any

from annotated.downloads import cache_folder, download, lies_there
from annotated.files import FileError, InputError, MissingFile, reading, resource_path, settings
from annotated.texts import part_lines, without_mark

__all__ = [
    "Corpus",
    "CorpusFile",
    "HeldOut",
    "PairReport",
    "clean_pairs",
    "corpus_file",
    "corpus_files",
    "corpus_parts",
    "find_corpus",
    "known_corpora",
    "known_split",
    "load_pairs",
    "local_file",
    "parse_data",
]


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


def corpus_file(corpus: Corpus, name: str, fetch: bool | None = None) -> Path:
    """Path of one file of a corpus: in ANNOTATED_DATA, in the cache, or downloaded now.

    Args:
        fetch: whether to download it if need be; by default, if ANNOTATED_DATA is not set.

    Raises: MissingFile if it is not on this machine and shall not or cannot be downloaded;
        FileError as `download`.
    """
    entry, cached = corpus.files.get(name, CorpusFile()), cache_folder() / corpus.folder / name
    local = local_file(corpus, name)
    if local or lies_there(cached, entry.sha256):
        return local or cached
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


def _split_of(rule: HeldOut, english: list[bytes]) -> list[str]:
    """Which split each line of a shared part belongs to, by the rule of the register.

    Raises: ValueError if there are too few lines to hold so many out.
    """
    dev, test = rule.dev, rule.test
    if rule.by == "end":
        if len(english) < dev + test:
            raise ValueError(f"{len(english)} lines, of which {dev + test} are to be held out")
        return ["train"] * (len(english) - dev - test) + ["dev"] * dev + ["test"] * test
    if rule.by == "turn":
        return ["train" if number % dev else "dev" for number in range(1, len(english) + 1)]
    buckets = (_bucket(line) for line in english)
    return ["dev" if b < dev else "test" if b < dev + test else "train" for b in buckets]


@dataclass
class PairReport:
    """How many pairs of a file are good, and the line numbers of the others by what is wrong."""

    name: str
    good: int = 0
    bad: dict[str, list[int]] = field(default_factory=dict)

    def __str__(self) -> str:
        faults = []
        for fault, lines in self.bad.items():
            first = ", ".join(map(str, lines[:5])) + (", …" if len(lines) > 5 else "")
            faults.append(f"{len(lines):,} {fault} (line{'s' * (len(lines) > 1)} {first})")
        total = self.good + sum(map(len, self.bad.values()))
        return f"{self.name}: {self.good:,} good pairs of {total:,}" + "".join(
            f"; {fault}" for fault in faults
        )


def _judge(sides: tuple[bytes | str | None, ...], max_words: int | None) -> tuple[list[str], str]:
    """The sides of a pair as text, and what is wrong with them; "" if nothing is."""
    if None in sides:
        return [], "without a partner"
    try:
        texts = [s if isinstance(s, str) else s.decode("utf-8") for s in sides if s is not None]
    except UnicodeDecodeError:
        return [], "not UTF-8"
    if not all(text.strip() for text in texts):
        return texts, "with an empty side"
    if max_words and max(len(text.split()) for text in texts) > max_words:
        return texts, f"longer than {max_words} words"
    return texts, ""


def clean_pairs(
    source: Iterable[bytes | str | None],
    target: Iterable[bytes | str | None],
    on_bad: str = "refuse",
    max_words: int | None = None,
    name: str = "pairs",
    numbers: Iterable[int] | None = None,
) -> tuple[list[str], list[str], PairReport]:
    """Keep the pairs that can be used, and report the others.

    Args:
        source, target: lines; bytes are decoded as UTF-8; None stands for a missing line.
        on_bad: "refuse" to stop at bad pairs, "drop" to leave them out.
        max_words: most words that a side may have; None for no limit.
        name: what the report is about.   numbers: of the lines, if not 1, 2, 3, …

    Returns: good source lines, good target lines, and the report.

    Raises: ValueError with the report if pairs are bad and shall be refused.
    """
    if on_bad not in ("refuse", "drop"):
        raise ValueError(f'expected on_bad to be "refuse" or "drop"; got {on_bad!r}')
    report = PairReport(name)
    good: list[list[str]] = []
    lines = zip_longest(source, target)
    for number, sides in zip(numbers or count(1), lines, strict=False):
        texts, fault = _judge(sides, max_words)
        if fault:
            report.bad.setdefault(fault, []).append(number)
        else:
            good.append(texts)
    report.good = len(good)
    if report.bad and on_bad == "refuse":
        raise ValueError(f'{report}; mend them, or leave them out with on_bad="drop"')
    return [texts[0] for texts in good], [texts[1] for texts in good], report


def _read_part(
    corpus: Corpus, split: str, names: tuple[str, str], src: str, fetch: bool | None
) -> tuple[Iterable, Iterable, Iterable[int] | None]:
    """Lines of both sides of a part, and their numbers if only some of them are of this split."""
    paths = [
        (corpus_file(corpus, file, fetch), member)
        for file, _, member in (name.partition("/") for name in names)
    ]
    source: Iterable[Any]
    target: Iterable[Any]
    source, target = (_lines(*path) for path in paths)
    if names[0] == names[1]:  # tab-separated, English first
        rows = [(*line.split(b"\t"), None)[:2] for line in source]
        english, other = ([row[side] for row in rows] for side in (0, 1))
        source, target = (english, other) if src == "en" else (other, english)
    if not corpus.held_out or corpus.splits[split] != corpus.splits.get("train"):
        return source, target, None
    pairs = list(zip_longest(source, target))
    sides = [pair[0 if src == "en" else 1] or b"" for pair in pairs]
    with reading(paths[0][0], "the lines of all splits"):
        chosen = [i for i, of in enumerate(_split_of(corpus.held_out, sides)) if of == split]
    return (pairs[i][0] for i in chosen), (pairs[i][1] for i in chosen), (i + 1 for i in chosen)


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
    if corpus not in known_corpora() and Path(corpus).is_dir():
        return _load_folder(Path(corpus), split, src, tgt, on_bad or "refuse", max_words)
    if "+" in corpus:
        options = split, src, tgt, on_bad, max_words, fetch
        parts = [load_pairs(name, *options) for name in corpus.split("+")]
        first, second = ([line for part in parts for line in part[side]] for side in (0, 1))
        return first, second
    found = find_corpus(corpus)
    on_bad = on_bad or (found.on_bad if split == "train" else "refuse")
    source: list[str] = []
    target: list[str] = []
    for names in corpus_parts(found, split, src, tgt):
        lines = _read_part(found, split, names, src, fetch)
        name = f"{corpus} {split}, {names[0]}"
        good_source, good_target, report = clean_pairs(
            *lines[:2], on_bad, max_words, name, lines[2]
        )
        if report.bad:
            warnings.warn(str(report), stacklevel=2)
        source += good_source
        target += good_target
    return source, target


def _load_folder(
    folder: Path, split: str, src: str, tgt: str, on_bad: str, max_words: int | None
) -> tuple[list[str], list[str]]:
    """Pairs of the files SPLIT.LANGUAGE in a folder, which may be compressed."""
    sides = []
    for lang in src, tgt:
        paths = [folder / f"{split}.{lang}{ending}" for ending in ("", ".gz", ".xz")]
        path = next((path for path in paths if path.exists()), None)
        if path is None:
            raise MissingFile(f"expected {paths[0].name} in {folder}")
        sides.append(_lines(path))
    source, target, report = clean_pairs(
        sides[0], sides[1], on_bad, max_words, f"{folder}, {split}"
    )
    if report.bad:
        warnings.warn(str(report), stacklevel=3)
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
