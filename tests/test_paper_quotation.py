"""Where the paper is kept, how it is quoted, and what becomes of bad files and downloads."""

import hashlib
import json
import os

import pytest
from markdown_it import MarkdownIt
from serving import serving

from annotated.machinery.errors import FileError
from annotated.machinery.paper import quotation
from annotated.machinery.paper.pdf import PARTS

MADE, WRONG = b"%PDF a paper", b"<html>please log in</html>"
NAMES = "abstract", *sorted(PARTS - {"abstract"})
PAPER = {name: [f"Text {n} of {name}." for n in (1, 2, 3)] for name in NAMES}


@pytest.fixture(autouse=True)
def repository(tmp_path, monkeypatch):
    """An empty repository as the current folder and that of the package, and no paper named."""
    monkeypatch.delenv("ANNOTATED_PAPER_PDF", raising=False)
    folder = tmp_path / "repository"
    (folder / "chapters").mkdir(parents=True)
    monkeypatch.setattr(quotation, "resource_path", lambda name: folder / "data" / name)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(autouse=True)
def extracted(monkeypatch):
    """Which files were read; a stand-in takes them for a paper if they begin as one does."""
    paths = []

    def extract(path):
        paths.append(path)
        if not path.read_bytes().startswith(MADE):
            raise FileError(f"{path} is no paper")
        return PAPER

    monkeypatch.setattr(quotation, "extract_paper", extract)
    return paths


@pytest.fixture
def pdf(tmp_path):
    path = tmp_path / "made.pdf"
    path.write_bytes(MADE)
    return path


def test_without_a_paper_or_with_the_word_no_there_is_no_quotation(pdf, monkeypatch):
    assert quotation.find_paper() is None and quotation.quote("no such section", 99) is None
    quotation.import_paper(pdf)
    monkeypatch.setenv("ANNOTATED_PAPER_PDF", "no")
    assert quotation.find_paper() is None and quotation.quote("abstract") is None
    monkeypatch.delenv("ANNOTATED_PAPER_PDF")
    assert quotation.quote("abstract") is not None


def test_import_keeps_a_copy(pdf, repository, tmp_path, monkeypatch):
    kept = quotation.import_paper(pdf)
    assert kept == repository / "data" / "paper" / "paper.pdf" and kept.read_bytes() == MADE
    pdf.unlink()
    assert quotation.find_paper() == PAPER
    assert quotation.quote("3.2.1", 2).text == "Text 2 of 3.2.1."
    kept.rename(kept.with_name("1706.03762v7.pdf"))  # laid there by hand
    assert quotation.find_paper() == PAPER
    monkeypatch.setattr(quotation, "resource_path", lambda name: tmp_path / "annotated" / name)
    folder = quotation.paper_folder()  # installed, it is a folder of the user
    assert folder.name == "paper" and tmp_path not in folder.parents


def test_another_book_keeps_its_own_paper(pdf, repository, tmp_path, monkeypatch):
    """A folder with _config.yml and chapters/ is that of any book of Jupyter Book."""
    other = tmp_path / "other" / "data" / "paper"
    other.mkdir(parents=True)
    (tmp_path / "other" / "chapters").mkdir()
    (tmp_path / "other" / "_config.yml").touch()
    (other / "paper.pdf").write_bytes(b"%PDF another")
    for here in tmp_path / "other", tmp_path / "other" / "chapters":
        monkeypatch.chdir(here)
        assert repository in quotation.import_paper(pdf).parents
    assert [path.read_bytes() for path in other.iterdir()] == [b"%PDF another"]


def test_a_failed_import_changes_nothing(pdf, tmp_path, monkeypatch):
    quotation.import_paper(pdf)
    files = lambda: {path: path.read_bytes() for path in quotation.paper_folder().glob("*")}
    before = files()
    wrong = tmp_path / "wrong.pdf"
    wrong.write_bytes(WRONG)
    for path in wrong, tmp_path / "none.pdf":
        with pytest.raises(OSError, match=path.name):
            quotation.import_paper(path)
    assert files() == before

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", fail)  # interrupted while it writes
    pdf.write_bytes(MADE + b"% changed")
    with pytest.raises(KeyboardInterrupt):
        quotation.import_paper(pdf)
    assert files() == before


def test_the_named_file_comes_first_and_may_be_in_a_folder_above(pdf, repository, monkeypatch):
    quotation.import_paper(pdf)
    (repository / "wrong.pdf").write_bytes(WRONG)
    monkeypatch.chdir(repository / "chapters")
    monkeypatch.setenv("ANNOTATED_PAPER_PDF", "wrong.pdf")
    with pytest.raises(FileError, match=r"wrong\.pdf"):
        quotation.quote("abstract")
    monkeypatch.setenv("ANNOTATED_PAPER_PDF", "nowhere.pdf")
    with pytest.raises(FileNotFoundError, match=r"ANNOTATED_PAPER_PDF.*nowhere\.pdf"):
        quotation.quote("abstract")
    monkeypatch.setenv("ANNOTATED_PAPER_PDF", "")
    assert quotation.quote("abstract") is not None


def test_text_is_extracted_once_and_again_when_the_file_changes(pdf, extracted, monkeypatch):
    monkeypatch.setenv("ANNOTATED_PAPER_PDF", str(pdf))
    for _ in range(3):
        quotation.quote("3.1", 1)
    assert len(extracted) == 1
    pdf.write_bytes(MADE + b"% changed\n")
    quotation.quote("3.1", 1)
    assert len(extracted) == 2


OTHER = [], {"abstract": ["Text."]}, dict.fromkeys(PARTS, "Text."), {part: [1] for part in PARTS}


def test_broken_stored_text_is_replaced(pdf):
    quotation.import_paper(pdf)
    (text,) = quotation.paper_folder().glob("*.json")
    for broken in b"{", b"\xff", *(json.dumps(x).encode() for x in OTHER):
        text.write_bytes(broken)
        assert quotation.find_paper() == PAPER
        assert text.read_bytes() != broken


def test_a_folder_that_cannot_be_written_only_costs_time(pdf, repository, monkeypatch):
    monkeypatch.setenv("ANNOTATED_PAPER_PDF", str(pdf))
    (repository / "data").write_text("no folder")
    assert quotation.quote("abstract") is not None
    with pytest.raises(OSError):
        quotation.import_paper(pdf)


@pytest.mark.parametrize(
    "section, number, place",
    [("3.2.1", 2, "§3.2.1 ¶2"), ("abstract", 1, "Abstract"), ("table-3", 1, "Table 3")],
)
def test_a_quotation_is_a_block_with_its_citation(section, number, place, pdf):
    quotation.import_paper(pdf)
    text, _, source = quotation.quote(section, number)._repr_markdown_().split("\n")
    assert text == f"> Text {number} of {section}."
    assert f", {place}](https://arxiv.org/abs/1706.03762)" in source
    assert place in str(quotation.quote(section, number))


def test_markup_in_a_paper_is_text():
    hostile = "<b>a</b> [b](javascript:c) `d` {e}`f` $k < n$ \\g"
    shown = quotation.Quotation(hostile, "§1")._repr_markdown_().split("\n")[0]
    tokens = MarkdownIt().parse(shown.replace("$k < n$", "$k$"))[2].children
    assert {token.type for token in tokens} <= {"text", "text_special"}
    assert "$k < n$" in shown


def test_an_unknown_paragraph_names_what_there_is(pdf):
    quotation.import_paper(pdf)
    for number in 0, 4:
        with pytest.raises(ValueError, match=r"'3\.1'.*3"):
            quotation.quote("3.1", number)
    with pytest.raises(ValueError, match=r"abstract.*3\.2\.1.*figure-5"):
        quotation.quote("figure 1")


def test_the_first_version_that_has_its_sum_is_kept(monkeypatch):
    with serving(monkeypatch) as server:
        monkeypatch.setattr(quotation, "_PDF", server.url)
        server.content = MADE
        sums = {"v7": hashlib.sha256(b"another").hexdigest()}
        monkeypatch.setattr(quotation, "_VERSIONS", sums)
        with pytest.raises(FileError, match=r"gzv7: expected SHA-256 .*ANNOTATED_PAPER_PDF"):
            quotation.get_paper()
        assert quotation.find_paper() is None
        sums["v5"] = hashlib.sha256(MADE).hexdigest()
        kept = quotation.get_paper()
        assert kept.read_bytes() == MADE and quotation.quote("abstract") is not None
        assert (
            quotation.get_paper() == kept and len(server.asked) == 3
        )  # what is at hand is not fetched
