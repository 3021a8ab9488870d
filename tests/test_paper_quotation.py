"""Where the paper is kept, how it is quoted, and what becomes of bad files and downloads."""

import hashlib
import json
import os

import pytest
from markdown_it import MarkdownIt
from serving import serving

from annotated.machinery.errors import FileError
from annotated.machinery.paper import quotation as module
from annotated.machinery.paper.pdf import PARTS
from annotated.machinery.paper.quotation import (
    Quotation,
    find_paper,
    get_paper,
    import_paper,
    paper_folder,
    quote,
)

MADE, WRONG = b"%PDF a paper", b"<html>please log in</html>"
NAMES = "abstract", *sorted(PARTS - {"abstract"})
PAPER = {name: [f"Text {n} of {name}." for n in (1, 2, 3)] for name in NAMES}


@pytest.fixture(autouse=True)
def repository(tmp_path, monkeypatch):
    """An empty repository as the current folder, and no paper named."""
    monkeypatch.delenv("ANNOTATED_PAPER_PDF", raising=False)
    folder = tmp_path / "repository"
    (folder / "chapters").mkdir(parents=True)
    (folder / "_config.yml").touch()
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

    monkeypatch.setattr(module, "extract_paper", extract)
    return paths


@pytest.fixture
def pdf(tmp_path):
    path = tmp_path / "made.pdf"
    path.write_bytes(MADE)
    return path


def files(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*")} if folder.exists() else {}


def test_without_a_paper_or_with_the_word_no_there_is_no_quotation(pdf, monkeypatch):
    assert find_paper() is None and quote("no such section", 99) is None
    import_paper(pdf)
    monkeypatch.setenv("ANNOTATED_PAPER_PDF", "no")
    assert find_paper() is None and quote("abstract") is None
    monkeypatch.delenv("ANNOTATED_PAPER_PDF")
    assert quote("abstract") is not None


def test_import_keeps_a_copy(pdf, repository):
    kept = import_paper(pdf)
    assert kept == repository / "data" / "paper" / "paper.pdf" and kept.read_bytes() == MADE
    pdf.unlink()
    assert find_paper() == PAPER
    assert quote("3.2.1", 2).text == "Text 2 of 3.2.1."
    kept.rename(kept.with_name("1706.03762v7.pdf"))  # laid there by hand
    assert find_paper() == PAPER


def test_a_failed_import_changes_nothing(pdf, tmp_path, monkeypatch):
    import_paper(pdf)
    before = files(paper_folder())
    wrong = tmp_path / "wrong.pdf"
    wrong.write_bytes(WRONG)
    for path in wrong, tmp_path / "none.pdf":
        with pytest.raises(OSError, match=path.name):
            import_paper(path)
    assert files(paper_folder()) == before

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", fail)  # interrupted while it writes
    pdf.write_bytes(MADE + b"% changed")
    with pytest.raises(KeyboardInterrupt):
        import_paper(pdf)
    assert files(paper_folder()) == before


def test_the_named_file_comes_first_and_may_be_in_a_folder_above(pdf, repository, monkeypatch):
    import_paper(pdf)
    (repository / "wrong.pdf").write_bytes(WRONG)
    monkeypatch.chdir(repository / "chapters")
    monkeypatch.setenv("ANNOTATED_PAPER_PDF", "wrong.pdf")
    with pytest.raises(FileError, match=r"wrong\.pdf"):
        quote("abstract")
    monkeypatch.setenv("ANNOTATED_PAPER_PDF", "nowhere.pdf")
    with pytest.raises(FileNotFoundError, match=r"ANNOTATED_PAPER_PDF.*nowhere\.pdf"):
        quote("abstract")
    monkeypatch.setenv("ANNOTATED_PAPER_PDF", "")
    assert quote("abstract") is not None


def test_outside_a_repository_the_paper_has_a_folder_of_the_user(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert paper_folder().name == "paper" and tmp_path not in paper_folder().parents


def test_text_is_extracted_once_and_again_when_the_file_changes(pdf, extracted, monkeypatch):
    monkeypatch.setenv("ANNOTATED_PAPER_PDF", str(pdf))
    for _ in range(3):
        quote("3.1", 1)
    assert len(extracted) == 1
    pdf.write_bytes(MADE + b"% changed\n")
    quote("3.1", 1)
    assert len(extracted) == 2


OTHER = [], {"abstract": ["Text."]}, dict.fromkeys(PARTS, "Text."), {part: [1] for part in PARTS}


def test_broken_stored_text_is_replaced(pdf):
    import_paper(pdf)
    (text,) = paper_folder().glob("*.json")
    for broken in b"{", b"\xff", *(json.dumps(x).encode() for x in OTHER):
        text.write_bytes(broken)
        assert find_paper() == PAPER
        assert text.read_bytes() != broken


def test_a_folder_that_cannot_be_written_only_costs_time(pdf, repository, monkeypatch):
    monkeypatch.setenv("ANNOTATED_PAPER_PDF", str(pdf))
    (repository / "data").write_text("no folder")
    assert quote("abstract") is not None
    with pytest.raises(OSError):
        import_paper(pdf)


@pytest.mark.parametrize(
    "section, number, place",
    [("3.2.1", 2, "§3.2.1 ¶2"), ("abstract", 1, "Abstract"), ("table-3", 1, "Table 3")],
)
def test_a_quotation_is_a_block_with_its_citation(section, number, place, pdf):
    import_paper(pdf)
    text, _, source = quote(section, number)._repr_markdown_().split("\n")
    assert text == f"> Text {number} of {section}."
    assert f", {place}](https://arxiv.org/abs/1706.03762)" in source
    assert place in str(quote(section, number))


def test_markup_in_a_paper_is_text():
    hostile = "<b>a</b> [b](javascript:c) `d` {e}`f` $k < n$ \\g"
    shown = Quotation(hostile, "§1")._repr_markdown_().split("\n")[0]
    tokens = MarkdownIt().parse(shown.replace("$k < n$", "$k$"))[2].children
    assert {token.type for token in tokens} <= {"text", "text_special"}
    assert "$k < n$" in shown


def test_an_unknown_paragraph_names_what_there_is(pdf):
    import_paper(pdf)
    for number in 0, 4:
        with pytest.raises(ValueError, match=r"'3\.1'.*3"):
            quote("3.1", number)
    with pytest.raises(ValueError, match=r"abstract.*3\.2\.1.*figure-5"):
        quote("figure 1")


def test_the_first_version_that_has_its_sum_is_kept(monkeypatch):
    with serving(monkeypatch) as server:
        monkeypatch.setattr(module, "_PDF", server.url)
        server.content = MADE
        sums = {"v7": hashlib.sha256(b"another").hexdigest()}
        monkeypatch.setattr(module, "_VERSIONS", sums)
        with pytest.raises(FileError, match=r"gzv7: expected SHA-256 .*ANNOTATED_PAPER_PDF"):
            get_paper()
        assert find_paper() is None
        sums["v5"] = hashlib.sha256(MADE).hexdigest()
        kept = get_paper()
        assert kept.read_bytes() == MADE and quote("abstract") is not None
        assert get_paper() == kept and len(server.asked) == 3  # what is at hand is not fetched
