"""The references: complete, numbered as in the paper, and rendered with those numbers."""

import os
import re
import unicodedata

import pytest

pytest.importorskip("sphinxcontrib.bibtex", reason="needs the extra `book`")

from bibliography import labels
from contents import ROOT, sources
from pybtex.database import Entry, parse_file

BIB = ROOT / "book" / "references.bib"
ENTRIES = parse_file(str(BIB), bib_format="bibtex").entries
NUMBERED = {int(e.fields["number"]): e for e in ENTRIES.values() if "number" in e.fields}
LABELS = labels(BIB)
assert sorted(NUMBERED) == list(range(1, 41))  # the paper's


def letters(text: str) -> str:
    """The bare letters of a text, so that accents, ligatures and line breaks do not count."""
    return re.sub("[^a-z]", "", unicodedata.normalize("NFKD", text).lower())


def surnames(entry: Entry) -> list[str]:
    return [letters("".join(person.last_names)) for person in entry.persons["author"]]


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=list(ENTRIES))
def test_entry_is_complete(entry: Entry):
    fields = entry.fields
    assert entry.persons["author"] and fields["title"] and fields["why"] not in fields["title"]
    assert "others" not in [str(person) for person in entry.persons["author"]]
    assert re.fullmatch(r"(19|20)\d\d", fields["year"])
    assert {"doi", "eprint", "url"} & set(fields) or "number" not in fields
    assert re.fullmatch(r"10\.\d+/\S+", fields.get("doi", "10.1/x"))
    assert re.fullmatch(r"\d{4}\.\d{4,5}", fields.get("eprint", "0000.0000"))
    assert re.fullmatch(r"https?://\S+", fields.get("url", "https://x"))
    assert re.fullmatch(r"\d+(--\d+)?", fields.get("pages", "1--2"))


def test_labels():
    assert LABELS["bahdanau2015neural"] == "2"
    assert LABELS["rush2018annotated"] == "Rush18"
    assert LABELS.keys() == ENTRIES.keys()
    assert len(set(LABELS.values())) == len(LABELS)  # no number twice
    assert LABELS["llama2024herd"] == "Llama Team24"  # a group has no surname
    assert LABELS["deepseek2024v2"] == "DeepSeek-V2"  # two works of a group in one year


def test_chapters_cite_what_is_listed_and_all_of_it():
    cited = {
        key.strip()
        for chapter in sources().values()
        for keys in re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", chapter.read_text(encoding="utf-8"))
        for key in keys.split(",")
    }
    assert cited == set(ENTRIES)


@pytest.fixture(scope="module")
def paper() -> str:
    extract_text = pytest.importorskip("pdfminer.high_level").extract_text
    return extract_text(os.environ["ANNOTATED_PAPER_PDF"])


# Where the paper's list names its authors otherwise than the work itself does.
UNLIKE = {
    5: ["cho", "merrienboer", "gulcehre", "bougares", "schwenk", "bengio"],  # without Bahdanau
    25: ["marcus", "marcinkiewicz", "santorini"],  # in another order
}
SHORTENED = {27: "A decomposable attention model"}  # titles


def listed_authors(text: str) -> list[str]:
    """The names before the first full stop that ends no initial."""
    names = re.split(r"(?<![ .][A-Z])\.\s", text)[0]
    return [letters(name) for name in re.split(r",(?: and)?|\sand\s|\s&\s", names)]


@pytest.mark.paper
def test_numbers_agree_with_the_paper(paper: str):
    references = re.sub(r"\s+", " ", paper[paper.index("[1] Jimmy") :])
    found = re.findall(r"\[(\d+)\] (.*?)(?=\[\d+\]|\Z)", references)
    assert [int(number) for number, _ in found] == list(range(1, 41))
    for number, text in ((int(number), text) for number, text in found):
        entry = NUMBERED[number]
        names = listed_authors(text)
        if names[-1] == "etal":  # [38] stops after ten of its authors
            names.pop()
            assert len(names) >= 10
            ours = surnames(entry)[: len(names)]
        else:
            ours = UNLIKE.get(number, surnames(entry))
        assert len(names) == len(ours), number
        assert all(map(str.endswith, names, ours)), f"[{number}]: {names}, {ours}"
        title = SHORTENED.get(number, entry.fields["title"])
        assert letters(title) in letters(text), number
