"""Corpora: the register, where their files are, what they are made of, and what is refused."""

import contextlib
import csv
import gzip
import hashlib
import io
import lzma
import re
import sys
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import CONTENT, SHA256, Server, put, serving, tar

from annotated.machinery.corpora import registry
from annotated.machinery.corpora.cleaning import PairReport, good_pairs
from annotated.machinery.corpora.registry import (
    Corpus,
    CorpusFile,
    HeldOut,
    corpus_file,
    corpus_files,
    corpus_parts,
    find_corpus,
    known_corpora,
    load_pairs,
    parse_data,
)
from annotated.machinery.errors import FileError


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serving(monkeypatch) as running:
        yield running


BAD = "schön".encode("latin-1")


def clean(source: list, target: list) -> tuple[list[list[str]], PairReport]:
    report = PairReport("text")
    lines = zip(range(1, 99), source, target)  # noqa: B905
    return list(good_pairs(lines, report)), report


def test_bad_pairs_are_dropped_and_reported():
    pairs, report = clean(
        [b"one", BAD, b"", "vier", b"six", b" \t", b"\xc2\xa0", b"nine"],
        [b"eins", b"zwei", b"drei", "vier", BAD, b"sieben", b"acht", None],
    )
    assert pairs == [["one", "eins"], ["vier", "vier"]]
    assert report.good == 2 and report.bad == {
        "not UTF-8": [2, 5], "with an empty side": [3, 6, 7], "without a partner": [8],
    }  # fmt: skip
    report.check("drop")
    with pytest.raises(ValueError, match=r"2 good pairs of 8.* \(lines 3, 6, 7\); 1 without"):
        report.check("refuse")
    with pytest.raises(ValueError, match="'ignore'"):
        report.check("ignore")


@pytest.mark.parametrize("good", [0, 1, 2])
def test_text_in_another_encoding_is_not_to_be_dropped(good: int, tmp_path: Path):
    text = "für Bücher"
    for name in "x.en", "x.de":
        sentences = "\n".join(["a", "b"][:good] + [text] * 3)
        (tmp_path / name).write_bytes(sentences.encode("latin-1"))
    with pytest.raises(ValueError, match="3 not UTF-8") as refused:
        load_pairs(f"{tmp_path}/x.en,{tmp_path}/x.de", "train", "en", "de")
    encoding = str(refused.value).partition("iconv -f ")[2].split()[0]
    assert text.encode("latin-1").decode(encoding) == text and "drop" not in str(refused.value)


@given(st.lists(st.tuples(*[st.sampled_from([b"a", b"", b" ", BAD, "ä".encode(), None])] * 2)))
def test_every_pair_is_either_kept_or_reported(lines):
    pairs, report = clean([line[0] for line in lines], [line[1] for line in lines])
    bad = sorted(n for numbers in report.bad.values() for n in numbers)
    assert len(pairs) == report.good and len(bad) == len(set(bad)) == len(lines) - report.good
    kept = [line for n, line in enumerate(lines, start=1) if n not in bad]
    assert [[side.decode() for side in line] for line in kept] == pairs


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ANNOTATED_DATA of our own, and no cache."""
    monkeypatch.setenv("ANNOTATED_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(registry, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "data"


def test_wmts_training_data_is_read_part_by_part(data_folder: Path):
    wmt = data_folder / "wmt"
    wmt.mkdir(parents=True)
    for archive, member, number in (
        ("training-parallel-europarl-v7.tgz", "training/europarl-v7.de-en", 1),
        ("training-parallel-commoncrawl.tgz", "commoncrawl.de-en", 2),
        ("training-parallel-nc-v9.tgz", "training/news-commentary-v9.de-en", 3),
    ):
        texts = {"en": f"e{number}\n\nE{number}\r\n", "de": f"d{number}\nx\nD{number}\n"}
        members = {f"{member}.{lang}": text.encode() for lang, text in texts.items()}
        tar(wmt / archive, members, "w:gz")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pairs = load_pairs("wmt14-en-de", "train", "en", "de")
    assert pairs == (["e1", "E1", "e2", "E2", "e3", "E3"], ["d1", "D1", "d2", "D2", "d3", "D3"])
    said = [str(warning.message) for warning in caught]
    assert len(said) == 3 and all("1 with an empty side (line 2)" in text for text in said)
    assert "commoncrawl.de-en.en: 2 good pairs of 3" in said[1]
    with pytest.raises(ValueError, match=r"europarl.*empty side"):
        load_pairs("wmt14-en-de", "train", "de", "en", on_bad="refuse")


def test_wmts_test_data_is_freed_of_its_markup(data_folder: Path):
    sgm = '<srcset>\n<p>\n<seg id="1"> A &amp; b. </seg>\n<seg id="2">C</seg>\n</p>\n'
    sides = {"ref.en": sgm, "src.de": sgm.lower()}
    members = {f"dev/newstest2014-deen-{x}.sgm": text.encode() for x, text in sides.items()}
    (data_folder / "wmt").mkdir(parents=True)
    tar(data_folder / "wmt" / "dev.tgz", members, "w:gz")
    found = load_pairs("wmt14-en-de", "test", "en", "de")
    assert found == (["A &amp; b.", "C"], ["a &amp; b.", "c"])
    assert load_pairs("news", "test", "de", "en") == found[::-1]


def test_iwslt_is_divided_as_usual(data_folder: Path):
    def tagged(word: str) -> bytes:
        lines = [f"{word} {n}" for n in range(2, 47)]
        head = ["<url>x</url>", "<talkid>1</talkid>", f"<title>{word} 1</title>", "<speaker>x"]
        return "\n".join([*head, *lines, "<reviewer></reviewer>"]).encode()

    folder = data_folder / "iwslt14"
    folder.mkdir(parents=True)
    sides = {"de": "Zeile", "en": "line"}
    members = {f"de-en/train.tags.de-en.{lang}": tagged(word) for lang, word in sides.items()}
    for part in corpus_parts(find_corpus("iwslt14"), "test", "de", "en"):
        for name, word in zip(part, sides.values(), strict=True):
            members[name.removeprefix("de-en.tgz/")] = f'<seg id="1"> {word} </seg>\n'.encode()
    tar(folder / "de-en.tgz", members, "w:gz")
    dev = load_pairs("iwslt14", "dev", "de", "en")
    assert dev == (["Zeile 23", "Zeile 46"], ["line 23", "line 46"])
    train = load_pairs("iwslt14", "train", "en", "de")[0]
    assert train == [f"line {n}" for n in range(1, 46) if n != 23]
    assert load_pairs("iwslt14", "test", "de", "en") == (["Zeile"] * 5, ["line"] * 5)


TATOEBA = [
    f"{word} {n // 3}{'.!?'[n % 3]}\tÜbersetzung {n}" for word in ("Go", "Hi") for n in range(900)
]


@pytest.mark.parametrize("shape", ["tsv", "zip"])
def test_no_english_sentence_of_tatoeba_crosses_splits(data_folder: Path, shape: str):
    folder = data_folder / "tatoeba"
    if shape == "tsv":
        put(folder / "eng-deu.tsv.xz", lzma.compress("\n".join(TATOEBA).encode()))
    else:
        folder.mkdir(parents=True)
        with zipfile.ZipFile(folder / "deu-eng.zip", "w") as archive:
            archive.writestr("deu.txt", "\n".join(f"{line}\tCC-BY 2.0" for line in TATOEBA))
    splits = {s: load_pairs("tatoeba", s, "en", "de") for s in ("train", "dev", "test")}
    pairs = [pair for split in splits.values() for pair in zip(*split, strict=True)]
    assert sorted(pairs) == sorted(tuple(line.split("\t")) for line in TATOEBA)
    train, dev, test = (
        {re.sub(r"\W", "", line).lower() for line in english} for english, _ in splits.values()
    )
    assert not train & (dev | test) and not dev & test
    assert 0 < len(dev) < 30 and 0 < len(test) < 30
    assert load_pairs("tatoeba", "dev", "de", "en") == splits["dev"][::-1]


def test_the_split_of_a_sentence_never_changes():
    """Where these fall was computed once; a change would move sentences of old models' training."""
    rule = HeldOut("hash", 1, 1)
    kinds = [registry._split_of(rule, 1, line, 1) for line in (b"Run!", b"I resign.", b"Hi.")]
    assert kinds == ["test", "dev", "train"]


def test_the_end_of_the_laws_is_held_out(data_folder: Path):
    lines = [f"section {n}\tarticle {n}" for n in range(1, 5001)]
    put(data_folder / "laws" / "laws.en-fr.tsv.xz", lzma.compress("\n".join(lines).encode()))
    splits = [load_pairs("laws", s, "fr", "en")[0] for s in ("train", "dev", "test")]
    assert [len(split) for split in splits] == [1000, 2000, 2000]
    assert [line for split in splits for line in split] == [f"article {n}" for n in range(1, 5001)]


def test_sides_of_unequal_length_are_refused(data_folder: Path, monkeypatch):
    put(data_folder / "multi30k" / "val.en", b"one\ntwo\n")
    put(data_folder / "multi30k" / "val.de", b"eins\nzwei\ndrei\n")
    monkeypatch.chdir(data_folder)  # where there is a folder of the name
    for on_bad in "refuse", "drop":  # a missing line shifts all that follow
        with pytest.raises(FileError, match=r"multi30k dev, val.en.gz: .* 2 and 3 lines"):
            load_pairs("multi30k", "dev", "en", "de", on_bad=on_bad)
    with pytest.raises(FileNotFoundError, match=r"dev\.en in multi30k"):  # the folder
        load_pairs("./multi30k", "dev", "en", "de")


def test_a_folder_of_ones_own_is_a_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    texts = tmp_path / "texts"
    put(texts / "train.en", "\ufeffone\ntwo\n\n".encode())  # with its mark
    put(texts / "train.is.xz", lzma.compress(b"einn\ntveir\n\xc3\xberir\n"))
    put(texts / "dev.is", "þrír\n".encode())
    with pytest.raises(ValueError, match=r"texts, train: .*line 3"):
        load_pairs(str(texts), "train", "en", "is")
    with pytest.warns(UserWarning, match="2 good pairs of 3"):
        kept = load_pairs(str(texts), "train", "is", "en", on_bad="drop")
    assert kept == (["einn", "tveir"], ["one", "two"])
    with pytest.raises(FileNotFoundError, match=r"dev\.en.*texts"):
        load_pairs(str(texts), "dev", "en", "is")
    (texts / "dev.en").write_text("three\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert load_pairs("texts", "dev", "en", "is") == (["three"], ["þrír"])


ROWS = [(f'a, {i} "b"', f"ein; {i}") for i in range(60)]  # quoted in CSV
ROWS += [(f"A {i} b!", f"noch ein {i}") for i in range(0, 60, 2)]  # sources as those above


def write_rows(folder: Path, form: str) -> str:
    """The name of data that consist of these rows in some form, without its languages."""
    folder.mkdir(parents=True, exist_ok=True)
    sides = [*zip(*ROWS, strict=True)]
    if form in ("files", "folder"):
        names = ("train.en", "train.de") if form == "folder" else ("a-b.txt", "c.txt")
        for name, side in zip(names, sides, strict=True):
            put(folder / name, "".join(f"{line}\n" for line in side).encode())
        return str(folder) if form == "folder" else f"{folder}/a-b.txt,{folder}/c.txt"
    if form == "parquet":
        pa = pytest.importorskip("pyarrow", reason="needs the extra `parquet`")
        import pyarrow.parquet

        rows = [{"en": one, "de": other} for one, other in ROWS]
        table = pa.table({"id": [*range(len(ROWS))], "translation": rows})
        pyarrow.parquet.write_table(table, folder / "pairs.parquet", row_group_size=40)
        return f"{folder}/pairs.parquet"
    names = ("Text", "Übersetzung") if form == "columns" else ("deu", "en")
    text = io.StringIO(newline="")
    tab = form in ("tsv", "numbers")
    kind = {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None} if tab else {}
    writer = csv.writer(text, **kind)
    if form != "numbers":
        writer.writerow(["id", *names])
    for i, (one, other) in enumerate(ROWS):
        writer.writerow([i, *((one, other) if form == "columns" else (other, one))])
    name = {"table": "train.csv", "tsv": "x.tsv.gz", "numbers": "x.tsv"}.get(form, "x.csv")
    content = text.getvalue().encode("utf-8-sig")
    put(folder / name, gzip.compress(content) if name.endswith("gz") else content)
    more = {"columns": ":Text,Übersetzung", "numbers": ":3,2"}.get(form, "")
    return str(folder) if form == "table" else f"{folder}/{name}{more}"


FORMS = "files", "folder", "table", "csv", "columns", "tsv", "numbers", "parquet"


@pytest.mark.parametrize("form", FORMS)
def test_sentences_are_held_out_by_their_source(form: str, tmp_path: Path):
    """Whatever the form: the same, none of them in both parts, and with all their pairs."""
    name = write_rows(tmp_path / "x", form)
    parts = {split: [*zip(*load_pairs(name, split, "en", "de"), strict=True)]
             for split in ("train", "dev")}  # fmt: skip
    assert sorted(parts["train"] + parts["dev"]) == sorted(ROWS)
    letters = lambda part: {re.sub(r"\W", "", one.lower()) for one, _ in part}
    assert not letters(parts["train"]) & letters(parts["dev"])
    assert len(letters(parts["dev"])) == 60 // 20
    plain = write_rows(tmp_path / "y", "files")
    assert parts["dev"] == [*zip(*load_pairs(plain, "dev", "en", "de"), strict=True)]
    if form not in ("folder", "table"):
        assert [*zip(*load_pairs(name, "all", "en", "de"), strict=True)] == ROWS
        with pytest.raises(ValueError, match=r"a split out of train, dev, all of .*; got 'test'"):
            load_pairs(name, "test", "en", "de")
    else:
        with pytest.raises(FileNotFoundError, match=r"expected test\.en in"):
            load_pairs(name, "test", "en", "de")
    with pytest.raises(ValueError, match=r"a development set in .*joined by \+"):
        load_pairs(f"{name}+{name}", "train", "en", "de")


def test_a_table_that_cannot_be_read_is_refused(tmp_path: Path):
    table = tmp_path / "x.csv"
    put(table, b'en,de\na,b\n"c\nd",\ne,f\n')
    with pytest.raises(ValueError, match=r"2 good pairs of 3; 1 with an empty side \(line 4\)"):
        load_pairs(str(table), "all", "en", "de")
    with pytest.warns(UserWarning, match="1 with an empty side"):
        assert load_pairs(str(table), "train", "en", "de", on_bad="drop")[0]
    assert len(load_pairs(str(table), "dev", "en", "de")[0]) == 1  # never a bad pair
    for name, content, wrong in [
        (table, b"en;de\n", r"x\.csv: expected one column 'en'; got 'en;de'; name .*x\.csv:COL"),
        (table, b"en,en\n", "one column 'en'; got 'en, en'"),
        (table, b"", "one column 'en'; got ''"),
        (f"{table}:0,1", b"a,b\n", "one column '0'; got 'a, b'; .*no names.*x.csv:1,2"),
        (table, b"en,de\na,b\n", "expected two different source sentences or more.*; got 1"),
        (f"{table}:1,3", b"a,b\nc,d,e\nf,g\n", r"2 without a partner \(lines 1, 3\).*; got 1"),
        (table, b"en,de\n\xff,b\n", "a table of sentences in UTF-8; got: .*0xff"),
        (f"{table}:en", b"", "two columns as x.csv:SOURCE,TARGET; got 'en'"),
        (tmp_path / "y.tsv", b"", "sentences in .*y.tsv; there is no such file"),
        (f"{table},{tmp_path}/z", b"", "sentences in .*z; there is no such file"),
    ]:
        put(table, content)
        with pytest.raises(ValueError, match=wrong):
            load_pairs(str(name), "train", "en", "de")


def test_parquet_names_its_extra(tmp_path: Path, monkeypatch):
    put(tmp_path / "x.parquet", b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"annotated-attention\[parquet\]"):
        load_pairs(str(tmp_path / "x.parquet"), "all", "en", "de")


def test_three_letters_name_the_same_corpus(data_folder: Path):
    for lang in "en", "de":
        put(data_folder / "multi30k" / f"val.{lang}", f"{lang}\n".encode())
    expected = load_pairs("multi30k", "dev", "en", "de")
    assert load_pairs("multi30k", "dev", "eng", "deu") == expected == (["en"], ["de"])


def test_corpora_add_up_in_order(tmp_path: Path):
    for (folder, line), lang in product([("one", "1"), ("two", "2")], ["en", "de"]):
        put(tmp_path / folder / f"dev.{lang}", f"{lang} {line}\n".encode())
    both = f"{tmp_path / 'two'}+{tmp_path / 'one'}"
    assert load_pairs(both, "dev", "en", "de") == (["en 2", "en 1"], ["de 2", "de 1"])
    with pytest.raises(ValueError, match=r"a folder, .*or a corpus out of multi30k.*'three'"):
        load_pairs(f"{both}+three", "dev", "en", "de")


def test_data_is_named_with_its_languages():
    assert parse_data("multi30k-en-de") == ("multi30k", "en", "de")
    assert parse_data("wmt14-de-en") == ("wmt14-en-de", "de", "en")  # named after its one pair
    assert parse_data("my/own-texts-is-fo") == ("my/own-texts", "is", "fo")
    assert parse_data("laws+news-en-fr") == ("laws+news", "en", "fr")
    assert parse_data("my/texts-eng-ces") == ("my/texts", "eng", "ces")
    for files in "my-news.en,my-news.de", "a.deu.gz,b.ces.xz":
        one, other = (name.split(".")[1] for name in files.split(","))
        assert parse_data(files) == (files, one, other)
    assert parse_data("a.txt,b.txt-en-de") == ("a.txt,b.txt", "en", "de")
    assert parse_data("a-b.csv:x,y-en-de") == ("a-b.csv:x,y", "en", "de")
    for text in "multi30k", "en-de", "-en-de", "":
        with pytest.raises(ValueError, match="CORPUS-SRC-TGT"):
            parse_data(text)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("wmt13", "dev", "en", "de"), ["multi30k", "'wmt13'"]),
        (("multi30k", "val", "en", "de"), ["train, dev, test", "'val'"]),
        (("multi30k", "dev", "en", "cs"), ["en, de, fr", "'cs'"]),
        (("multi30k", "dev", "en", "en"), ["two languages", "'en', 'en'"]),
        (("tatoeba", "dev", "de", "fr"), ["English on one side of tatoeba", "'de', 'fr'"]),
    ],
)
def test_unknown_names_are_refused_with_the_known(data_folder: Path, arguments, named):
    for lang in "en", "de":
        put(data_folder / "multi30k" / f"val.{lang}", b"x\n")
    with pytest.raises(ValueError) as error:
        load_pairs(*arguments)
    assert all(part in str(error.value) for part in named)


@pytest.fixture
def tiny(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Corpus:
    """A corpus whose only file the server offers; its cache is empty."""
    monkeypatch.setattr(registry, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.delenv("ANNOTATED_DATA", raising=False)
    entry = CorpusFile(len(CONTENT), SHA256, server.url)
    splits = {"train": ["text.gz/{lang}"]}
    languages = ["en", "de"]
    return Corpus("tiny", "", "", "", languages, "tiny", splits, {"text.gz": entry})


def test_a_corpus_file_is_fetched_once(tiny: Corpus, server: Server, tmp_path: Path):
    for _ in range(2):
        assert corpus_file(tiny, "text.gz") == tmp_path / "cache" / "tiny" / "text.gz"
    assert list(corpus_files(tiny)) == [tmp_path / "cache" / "tiny" / "text.gz"]
    assert len(server.asked) == 1
    put(tmp_path / "cache" / "tiny" / "text.gz", b"spoilt")
    assert corpus_file(tiny, "text.gz").read_bytes() == CONTENT


def test_a_file_without_a_sum_is_never_downloaded(tiny: Corpus, server, tmp_path, monkeypatch):
    entries = tiny.files | {"new.gz": CorpusFile(url=server.url)}
    corpus = replace(tiny, files=entries, splits=tiny.splits | {"new": ["new.gz/{lang}"]})
    put(tmp_path / "cache" / "tiny" / "new.gz", CONTENT)  # of unknown origin
    with pytest.raises(FileNotFoundError, match=f"new.gz .*{server.url}"):
        list(corpus_files(corpus, ["new"]))
    assert server.asked == []
    assert [path.name for path in corpus_files(corpus)] == ["text.gz"]  # and the rest is fetched
    monkeypatch.setenv("ANNOTATED_DATA", str(tmp_path / "data"))
    put(tmp_path / "data" / "tiny" / "new.gz", CONTENT)
    assert list(corpus_files(corpus, ["new"])) == [tmp_path / "data" / "tiny" / "new.gz"]


def test_downloading_can_be_forbidden(tiny: Corpus, server: Server, tmp_path: Path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="annotated data get tiny"):
        corpus_file(tiny, "text.gz", fetch=False)
    monkeypatch.setenv("ANNOTATED_DATA", str(tmp_path / "data"))
    with pytest.raises(FileNotFoundError, match="annotated data get tiny"):
        corpus_file(tiny, "text.gz")
    assert server.asked == []
    assert corpus_file(tiny, "text.gz", fetch=True).read_bytes() == CONTENT
    assert corpus_file(tiny, "text.gz").read_bytes() == CONTENT  # in the cache by now
    put(tmp_path / "data" / "tiny" / "text.gz", b"mine")
    assert corpus_file(tiny, "text.gz").read_bytes() == b"mine"  # a file of one's own comes first


CORPORA = pytest.mark.parametrize("corpus", known_corpora().values(), ids=list(known_corpora()))


@CORPORA
def test_the_register_is_complete(corpus: Corpus, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ANNOTATED_DATA", raising=False)
    languages = len(corpus.languages) > 1  # a treebank may be there to measure with alone
    assert {"train", "dev"} <= set(corpus.splits) if languages else corpus.splits
    assert corpus.source.startswith("https://") and corpus.title and corpus.license
    assert corpus.on_bad in ("refuse", "drop") and set(corpus.local) <= set(corpus.splits)
    for split, foreign in product(corpus.splits, set(corpus.languages) - {"en"}):
        for pair in corpus_parts(corpus, split, "en", foreign):
            assert {part.partition("/")[0] for part in pair} <= set(corpus.files)
    for name, entry in corpus.files.items():
        assert entry.size is entry.sha256 is None or (
            entry.size > 0 and re.fullmatch("[0-9a-f]{64}", entry.sha256)
        )
        url = entry.url or f"{corpus.url}/{name}"
        assert url.startswith("https://") or not corpus.url
        assert url.endswith("/" + name) or "/archive/" in url  # there GitHub names it by its tag
    if rule := corpus.held_out:
        assert corpus.splits["dev"] == corpus.splits["train"]
        assert rule.by in ("hash", "end", "turn") and rule.dev > 0 and rule.test >= 0


@pytest.mark.corpora
@CORPORA
def test_files_at_hand_are_those_of_the_register(corpus: Corpus):
    checked = 0
    for name, entry in corpus.files.items():
        with contextlib.suppress(FileNotFoundError):
            path = corpus_file(corpus, name, fetch=False)
            assert path.stat().st_size == entry.size
            assert hashlib.sha256(path.read_bytes()).hexdigest() == entry.sha256
            checked += 1
    if not checked:
        pytest.skip(f"ANNOTATED_DATA holds nothing of {corpus.name}")


@pytest.mark.corpora
@pytest.mark.parametrize(
    ("corpus", "foreign", "sizes"),
    [
        ("multi30k", "de", {"train": 29_000, "dev": 1_014, "test": 1_000}),
        ("tatoeba", "fr", {"train": 163_774, "dev": 1_653, "test": 1_703}),
        ("php", "de", {"train": 16_312, "dev": 1_000, "test": 1_000}),
        ("news", "fr", {"train": 13_573, "dev": 3_000}),
        ("wmt14-en-de", "de", {"dev": 3_000}),
    ],
)
def test_real_corpora_have_the_sizes_that_they_should(corpus: str, foreign: str, sizes):
    for split, size in sizes.items():
        try:
            src, tgt = load_pairs(corpus, split, "en", foreign, fetch=False)
        except FileNotFoundError:
            pytest.skip(f"ANNOTATED_DATA holds nothing of {corpus}")
        assert len(src) == len(tgt) == size and all(src) and all(tgt)


def test_too_few_lines_to_hold_any_out_are_refused(data_folder: Path):
    put(data_folder / "laws" / "laws.en-fr.tsv.xz", lzma.compress(b"a\tb\n" * 3999))
    with pytest.raises(FileError, match=r"laws\.en-fr\.tsv\.xz: .*3999.*4000"):
        load_pairs("laws", "dev", "en", "fr")
