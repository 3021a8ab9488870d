"""Where the paper is kept and how it is quoted."""

import http.server
import os
import shutil
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from press import made_pdf, paper_and_text, pdf_bytes, set_paper

from annotated.machinery.paper import quotation as module
from annotated.machinery.paper.pdf import Paper, extract_paper
from annotated.machinery.paper.quotation import (
    find_paper,
    get_paper,
    import_paper,
    paper_folder,
    quote,
)

pytestmark = pytest.mark.slow  # together: nearly each makes a PDF and reads it

PDF = os.environ.get("ANNOTATED_PAPER_PDF")


def empty_repository(folder, patch):
    """An empty repository as the current folder, and no paper named."""
    patch.delenv("ANNOTATED_PAPER_PDF", raising=False)
    (folder / "repository" / "chapters").mkdir(parents=True)
    (folder / "repository" / "_config.yml").touch()
    patch.chdir(folder / "repository")
    module._loaded.cache_clear()
    return folder / "repository"


@pytest.fixture(autouse=True)
def repository(tmp_path, monkeypatch):
    return empty_repository(tmp_path, monkeypatch)


made = pytest.fixture(paper_and_text, scope="module")
pdf = pytest.fixture(made_pdf)


@pytest.fixture(scope="module")
def stored(made, tmp_path_factory):
    """What an import of the paper leaves in a repository."""
    folder = tmp_path_factory.mktemp("stored")
    with pytest.MonkeyPatch.context() as patch:
        empty_repository(folder, patch)
        import_paper(made_pdf(made, folder))
        return paper_folder().resolve()


@pytest.fixture
def imported(stored, repository):
    """A paper in the repository, without the seconds that reading its PDF takes."""
    shutil.copytree(stored, paper_folder())


def files(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*")} if folder.exists() else {}


def test_without_a_paper_there_is_no_quotation():
    assert find_paper() is None
    assert quote("3.2.1", 1) is None
    assert quote("no such section", 99) is None


def test_the_word_no_hides_a_paper_that_is_at_hand(pdf, repository, monkeypatch):
    import_paper(pdf)
    monkeypatch.setenv("ANNOTATED_PAPER_PDF", "no")
    assert find_paper() is None and quote("abstract") is None
    monkeypatch.delenv("ANNOTATED_PAPER_PDF")
    assert quote("abstract") is not None


def test_import_keeps_a_copy(pdf, made, repository):
    kept = import_paper(pdf)
    assert kept == repository / "data" / "paper" / "paper.pdf"
    assert kept.read_bytes() == made[0]
    pdf.unlink()
    assert find_paper() == Paper(made[1])
    assert quote("3.2.1", 2).text == made[1]["3.2.1"][1]


def test_a_failed_import_changes_nothing(pdf, tmp_path):
    import_paper(pdf)
    before = files(paper_folder())
    wrong = tmp_path / "wrong.pdf"
    wrong.write_bytes(pdf_bytes([[(108, 700, 10, "1 Introduction"), (108, 680, 10, "Cats.")]]))
    with pytest.raises(ValueError, match=r"wrong\.pdf"):
        import_paper(wrong)
    with pytest.raises(OSError):
        import_paper(tmp_path / "none.pdf")
    assert files(paper_folder()) == before


def test_an_interrupted_write_leaves_what_was_there(pdf, monkeypatch):
    import_paper(pdf)
    before = files(paper_folder())

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module.os, "replace", fail)
    with pytest.raises(KeyboardInterrupt):
        import_paper(pdf)
    assert files(paper_folder()) == before


def test_the_named_file_comes_first(pdf, made, tmp_path, monkeypatch):
    import_paper(pdf)
    other = tmp_path / "other.pdf"
    pages, expected = set_paper()
    x, y, size, text = pages[0][2]
    pages[0][2] = (x, y, size, text.replace("abstract", "ABSTRACT"))
    other.write_bytes(pdf_bytes(pages))
    monkeypatch.setenv("ANNOTATED_PAPER_PDF", str(other))
    assert "ABSTRACT" in quote("abstract").text
    monkeypatch.setenv("ANNOTATED_PAPER_PDF", "")
    assert quote("abstract").text == expected["abstract"][0]


def test_a_relative_name_counts_from_folders_above(pdf, repository, monkeypatch):
    pdf.rename(repository / "mine.pdf")
    monkeypatch.chdir(repository / "chapters")
    monkeypatch.setenv("ANNOTATED_PAPER_PDF", "mine.pdf")
    assert quote("abstract") is not None


def test_a_named_file_that_is_missing_is_an_error(monkeypatch):
    monkeypatch.setenv("ANNOTATED_PAPER_PDF", "nowhere.pdf")
    with pytest.raises(FileNotFoundError, match=r"ANNOTATED_PAPER_PDF.*nowhere\.pdf"):
        quote("abstract")


def test_a_pdf_laid_into_the_folder_is_found(pdf, repository):
    folder = repository / "data" / "paper"
    folder.mkdir(parents=True)
    pdf.rename(folder / "1706.03762v7.pdf")
    assert quote("abstract") is not None


def test_outside_a_repository_the_paper_has_a_folder_of_the_user(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert paper_folder().name == "paper"
    assert tmp_path not in paper_folder().parents


def test_text_is_extracted_once_and_anew_when_the_file_changes(pdf, made, monkeypatch):
    calls = []
    real = extract_paper
    monkeypatch.setattr(module, "extract_paper", lambda path: calls.append(path) or real(path))
    monkeypatch.setenv("ANNOTATED_PAPER_PDF", str(pdf))
    for _ in range(3):
        quote("1", 1)
    module._loaded.cache_clear()  # as a new process would start
    quote("1", 1)
    assert len(calls) == 1
    pdf.write_bytes(made[0] + b"% changed\n")
    quote("1", 1)
    assert len(calls) == 2


@pytest.mark.slow
@pytest.mark.parametrize("broken", [b"", b"{", b"[1]", b'{"other": 1}', b"\xff"])
def test_broken_stored_text_is_made_anew(broken, imported, made):
    (text,) = paper_folder().glob("*.json")
    text.write_bytes(broken)
    assert find_paper() == Paper(made[1])
    assert text.read_bytes() != broken


def test_a_folder_that_cannot_be_written_only_costs_time(pdf, monkeypatch):
    def fail(*_):
        raise PermissionError("read-only")

    monkeypatch.setattr(module, "_write", fail)
    monkeypatch.setenv("ANNOTATED_PAPER_PDF", str(pdf))
    assert quote("abstract") is not None
    with pytest.raises(PermissionError):
        import_paper(pdf)


@pytest.mark.parametrize(
    "section, number, place",
    [
        ("3.2.1", 2, "§3.2.1 ¶2"),
        ("abstract", 1, "Abstract"),
        ("figure-1", 1, "Figure 1"),
        ("table-3", 1, "Table 3"),
        ("footnote-2", 1, "Footnote 2"),
    ],
)
def test_a_quotation_is_a_block_with_its_citation(section, number, place, imported, made):
    markdown = quote(section, number)._repr_markdown_()
    text, empty, source = markdown.split("\n")
    assert text == f"> {made[1][section][number - 1]}"
    assert empty == ">"
    assert source == f"> — [Vaswani et al. (2017), {place}](https://arxiv.org/abs/1706.03762)"
    assert place in str(quote(section, number))


@pytest.mark.parametrize("number", [0, -1, 4, 100])
def test_an_unknown_paragraph_names_what_there_is(number, imported):
    with pytest.raises(ValueError, match=r"'3\.1'.*1 to 3"):
        quote("3.1", number)


@pytest.mark.parametrize("section", ["", "8", "3.2.9", "Abstract", "figure 1"])
def test_an_unknown_section_names_what_there_is(section, imported):
    with pytest.raises(ValueError, match=r"abstract.*3\.2\.1.*figure-5"):
        quote(section)


def test_importing_the_module_loads_no_pdf_library():
    code = "import sys; from annotated.paper import quote; print(*sys.modules)"
    root = Path(module.__file__).resolve().parents[2]
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert not {"pdfminer", "platformdirs", "torch"} & set(run.stdout.split())


@pytest.fixture
def server(made):
    """A server on this machine that offers the paper made here, and a page that is none."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            known = {"/paper.pdf": made[0], "/login": b"<html>please log in</html>"}
            content = known.get(self.path)
            self.send_response(200 if content else 404)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_download_is_imported(server, made):
    assert module._download(f"{server}/paper.pdf").read_bytes() == made[0]
    assert quote("abstract") is not None


def test_a_download_that_is_no_paper_keeps_nothing(server):
    with pytest.raises(ValueError, match="not a PDF"):
        module._download(f"{server}/login")
    assert files(paper_folder()) == {}


@pytest.mark.parametrize("url", ["{server}/none", "http://127.0.0.1:9/none"])
def test_a_failed_download_says_what_to_do(url, server):
    with pytest.raises(ConnectionError, match=r"/none .*ANNOTATED_PAPER_PDF"):
        module._download(url.format(server=server))


def test_the_next_version_is_tried_when_one_cannot_be_read(pdf, monkeypatch):
    tried = []

    def download(url):
        tried.append(url)
        if url.endswith("v7"):
            raise ValueError("v7 has changed")
        return import_paper(pdf)

    monkeypatch.setattr(module, "_download", download)
    kept = get_paper()
    assert tried == [f"https://arxiv.org/pdf/1706.03762v{n}" for n in (7, 5)]
    assert get_paper() == kept and len(tried) == 2  # what is here is not fetched again


def test_when_no_version_can_be_read_every_reason_is_told(monkeypatch):
    def download(url):
        raise ValueError(f"{url[-2:]} is odd")

    monkeypatch.setattr(module, "_download", download)
    with pytest.raises(ValueError, match=r"v7 is odd.*v5 is odd"):
        get_paper()


@pytest.mark.paper
def test_the_quotation_of_the_real_paper(monkeypatch):
    monkeypatch.setenv("ANNOTATED_PAPER_PDF", str(Path(PDF).resolve()))
    assert quote("3.2.1", 1).place == "§3.2.1 ¶1"
    assert textwrap.shorten(quote("footnote-4").text, 20).startswith("To illustrate")
