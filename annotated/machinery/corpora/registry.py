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
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, zip_longest
from pathlib import Path

from dacite import from_dict

from annotated.machinery.corpora.cleaning import Line, PairReport, good_pairs
from annotated.machinery.corpora.downloads import cache_folder, download, sha256_of
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
    """How dev and test are held out of parts that they share with train; see `corpora.toml`."""

    by: str
    dev: int
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

    Raises: ValueError that lists the known names, and what else is possible, for any other name.
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

    Args:
        fetch: whether to download it if necessary; by default, if ANNOTATED_DATA is not set.

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

    Raises: ValueError if the corpus has no such split.
    """
    if split not in corpus.splits:
        known = ", ".join(corpus.splits)
        raise InputError(f"expected a split out of {known} of {corpus.name}; got {split!r}")
    return corpus.splits[split]


_THREE = {"en": "eng", "de": "deu", "fr": "fra"}  # letters of the codes in ISO 639-3


def corpus_parts(corpus: Corpus, split: str, src: str, tgt: str) -> list[tuple[str, str]]:
    """The parts of a split: for each, the files of its source and of its target.

    Returns: pairs of FILE or ARCHIVE/MEMBER; both are the same if one file holds both sides.

    Raises: ValueError if the corpus has no such split or pair of languages.
    """
    parts, local = known_split(corpus, split), corpus.local.get(split, [])
    if {src, tgt} - set(corpus.languages) or src == tgt:
        known = f"two languages out of {', '.join(corpus.languages)} of {corpus.name}"
        raise InputError(f"expected {known}; got {src!r}, {tgt!r}")
    foreign = tgt if src == "en" else src
    if "en" not in (src, tgt) and any("{foreign" in part for part in parts + local):
        raise InputError(f"expected English on one side of {corpus.name}; got {src!r}, {tgt!r}")

    def side(part: str, lang: str) -> str:
        threes = {"lang3": _THREE.get(lang, lang), "foreign3": _THREE.get(foreign, foreign)}
        role = "ref" if lang == "en" else "src"
        return part.format(lang=lang, foreign=foreign, role=role, **threes)

    pairs, ours = ([(side(part, src), side(part, tgt)) for part in some] for some in (parts, local))
    whole = ours and all(local_file(corpus, name) for pair in ours for name in pair)
    return ours if whole else pairs


def corpus_files(corpus: Corpus, splits: Iterable[str] = ()) -> Iterator[Path]:
    """Path of each file that splits of a corpus (default: all) need, downloaded if necessary.

    Raises: ValueError for an unknown split; otherwise as `corpus_file`. If no split is named, an
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

    Args:
        number: line number, from 1.   english: the English side.   total: lines of the part.
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
        split, held_out: for a part that several splits share.
    """

    name: str
    on_bad: str
    source: tuple[Path, str]
    target: tuple[Path, str]
    from_english: bool = True
    split: str = ""
    held_out: HeldOut | None = None

    def lines(self) -> Iterator[Line]:
        """The lines: number, source, target; None for a side without such a line."""
        rule, total = self.held_out, 0
        if rule and rule.by == "end":
            total = sum(1 for _ in self._all_lines())
            if total < rule.dev + rule.test:
                found = f"{total} lines, of which {rule.dev + rule.test} are to be held out"
                raise FileError(f"{self.source[0]}: expected the lines of all splits; got: {found}")
        for number, (source, target) in enumerate(self._all_lines(), start=1):
            english = (source if self.from_english else target) or b""
            if not rule or _split_of(rule, number, english, total) == self.split:
                yield number, source, target

    def _all_lines(self) -> Iterator[tuple[bytes | None, bytes | None]]:
        """The lines of all splits."""
        if self.source != self.target:
            yield from zip_longest(_sentences(*self.source), _sentences(*self.target))
            return
        for line in _sentences(*self.source):
            english, other = (*line.split(b"\t"), None)[:2]
            yield (english, other) if self.from_english else (other, english)


def split_parts(
    corpus: str, split: str, src: str, tgt: str, on_bad: str = "auto", fetch: bool | None = None
) -> list[Part]:
    """The parts of a split, in order, of one corpus or of several.

    Args: as `load_pairs`.

    Raises: ValueError for an unknown name; otherwise as `corpus_file`.
    """
    if not isinstance(corpus, str):
        raise InputError(f"expected a corpus as a string; got {type(corpus).__name__}")
    if corpus not in known_corpora() and os.path.isdir(folder := Path(corpus)):
        one, other = (_folder_file(folder, f"{split}.{lang}") for lang in (src, tgt))
        return [Part(f"{folder}, {split}", "refuse" if on_bad == "auto" else on_bad, one, other)]
    if "+" in corpus:
        more = split, src, tgt, on_bad, fetch
        return [part for name in corpus.split("+") for part in split_parts(name, *more)]
    found = find_corpus(corpus, "a folder, or ")
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


def _folder_file(folder: Path, name: str) -> tuple[Path, str]:
    """A file in a folder, which may be compressed, as a side of a `Part`."""
    for ending in "", ".gz", ".xz":
        if (path := folder / f"{name}{ending}").exists():
            return path, ""
    raise MissingFile(f"expected {name} in {folder}")


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
        corpus: a name in the registry, a folder with files such as train.en (./NAME if its name
            is registered), or several of these joined by +.
        split: "train", "dev", "test", …
        src, tgt: languages, such as "en" and "de".
        on_bad: "refuse" to stop at unusable pairs; "drop" to omit them with a warning; "auto" to
            drop them from training data that is registered with "drop", and otherwise to refuse.
        fetch: whether to download what is missing; by default, if ANNOTATED_DATA is not set.
        bare: without spaces and invisible characters at the ends of sentences.

    Raises: ValueError for an unknown name or bad pairs; otherwise as `corpus_file`.

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

    Raises: ValueError unless it ends in two languages.
    """
    corpus, *pair = data.rsplit("-", 2) if isinstance(data, str) else ""
    if len(pair) < 2 or not corpus:
        wanted = "CORPUS-SRC-TGT, such as multi30k-en-de, or FOLDER-SRC-TGT"
        raise InputError(f"expected data as {wanted}; got {data!r}")
    src, tgt = pair
    known = known_corpora()  # some corpora have languages in their names
    names = [name for name in (data, f"{corpus}-{tgt}-{src}") if name in known]
    return (names or [corpus])[0], src, tgt
