"""The reader for the paper's own words: on PDFs made here, and on the paper where it is at hand."""

import http.server
import math
import os
import re
import subprocess
import sys
import textwrap
import threading
import unicodedata
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotated import paper as module
from annotated.evaluation import table_2
from annotated.paper import (
    Paper,
    extract_paper,
    find_paper,
    get_paper,
    import_paper,
    paper_folder,
    quote,
)
from annotated.parsing.results import table_4
from annotated.variations import BASE, rows

PDF = os.environ.get("ANNOTATED_PAPER_PDF")

# How many paragraphs each part of the paper has. Section 6 is a heading alone.
COUNTS = {
    **{"abstract": 1, "1": 4, "2": 4, "3": 2, "3.1": 2, "3.2": 1, "3.2.1": 4, "3.2.2": 4},
    **{"3.2.3": 4, "3.3": 2, "3.4": 1, "3.5": 4, "4": 6, "5": 1, "5.1": 1, "5.2": 1},
    **{"5.3": 2, "5.4": 3, "6.1": 4, "6.2": 3, "6.3": 5, "7": 4, "acknowledgements": 1},
    **{f"figure-{n}": 1 for n in range(1, 6)},
    **{f"table-{n}": 1 for n in range(1, 5)},
    **{f"footnote-{n}": 1 for n in range(1, 6)},
}


@pytest.fixture(autouse=True)
def repository(tmp_path, monkeypatch):
    """An empty repository as the current folder, and no paper named."""
    monkeypatch.delenv("ANNOTATED_PAPER_PDF", raising=False)
    (tmp_path / "repository" / "chapters").mkdir(parents=True)
    (tmp_path / "repository" / "_config.yml").touch()
    monkeypatch.chdir(tmp_path / "repository")
    module._loaded.cache_clear()
    return tmp_path / "repository"


# --- PDFs made here -------------------------------------------------------------------------

WIDTH = 66  # letters of 6 points from the left margin, 108, to the right one, 504


def pdf_bytes(pages, encrypt=b"", wrap=False, told=None):
    """A PDF in Courier. A page is a list of (x, y, size, text); the signs 1, 2 are ligatures.

    With `told`, a character for each number of a ligature, the font names no shape for them.
    """
    names = b"/BaseEncoding/WinAnsiEncoding"
    names += b"/Differences[1/fi/fl]" if told is None else b"/Differences[1/.notdef/.notdef]"
    table = b"/ToUnicode %d 0 R" % (4 + 3 * len(pages)) if told else b""
    font = b"<</Type/Font/Subtype/Type1/BaseFont/Courier/Encoding<</Type/Encoding%s>>%s>>"
    font %= names, table
    kids = " ".join(f"{4 + 3 * i} 0 R" for i in range(len(pages)))
    objects = [b"<</Type/Catalog/Pages 2 0 R>>"]
    objects += [f"<</Type/Pages/Kids[{kids}]/Count {len(pages)}>>".encode(), font]
    for i, page in enumerate(pages):
        text = "".join(
            f"BT /F {size} Tf 1 0 0 1 {x} {y} Tm ({numbered(t)}) Tj ET\n" for x, y, size, t in page
        ).encode("cp1252")
        uses = f"/Resources<</Font<</F 3 0 R>>/XObject<</X {6 + 3 * i} 0 R>>>>"
        form = "/Type/XObject/Subtype/Form/BBox[0 0 612 792]/Resources<</Font<</F 3 0 R>>>>"
        box = f"/MediaBox[0 0 612 792]{uses}/Contents {5 + 3 * i} 0 R"
        objects += [f"<</Type/Page/Parent 2 0 R{box}>>".encode()]
        objects += [stream(b"/X Do" if wrap else text), stream(text, form)]
    objects += [stream(character_map(told))] if told else []
    out, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    trailer = b"trailer\n<</Size %d/Root 1 0 R%s>>\nstartxref\n%d\n%%%%EOF\n"
    head = b"xref\n0 %d\n0000000000 65535 f \n" % size
    return out + head + table + trailer % (size, encrypt, len(out))


def stream(content, head=""):
    return b"<<%s/Length %d>>\nstream\n%s\nendstream" % (head.encode(), len(content), content)


def numbered(text):
    """The text with control characters by number, as a PDF's string must have a line's end."""
    return re.sub(r"[\x00-\x1f]", lambda sign: f"\\{ord(sign[0]):03o}", text)


def character_map(told):
    """A font's table for copying and searching: {number: text}."""
    rows = "".join(f"<{n:02x}><{text.encode('utf-16-be').hex()}>\n" for n, text in told.items())
    head = (
        "/CIDInit/ProcSet findresource begin 12 dict begin begincmap/CMapName/T def/CMapType 2 def"
    )
    body = (
        f"1 begincodespacerange<00><ff>endcodespacerange {len(told)} beginbfchar\n{rows}endbfchar"
    )
    tail = "endcmap CMapName currentdict/CMap defineresource pop end end"
    return f"{head}\n{body}\n{tail}".encode()


def justified(text, width=WIDTH, hyphenate=True):
    """Lines of equal width; a long word at the end of a line is cut, as TeX does it."""
    lines, line = [], ""
    for word in text.split():
        room = width - len(line) - 2
        if line and len(line) + 1 + len(word) > width:
            if hyphenate and len(word) > 7 and room > 3 and word.isalpha():
                cut = min(room, len(word) - 3)
                line, word = f"{line} {word[:cut]}-", word[cut:]
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    spread = [spaced(line, width) for line in lines]
    return [*spread, line]


def spaced(line, width):
    words = line.split()
    gaps = [1 + (i < width - len(line)) for i in range(len(words) - 1)]
    extra = width - len(line) - sum(g - 1 for g in gaps)
    gaps = [g + extra // len(gaps) for g in gaps] if gaps else []
    return "".join(word + " " * gap for word, gap in zip(words, [*gaps, 0], strict=True))


class Press:
    """Sets a paper of our own words in the layout of the conference's style."""

    def __init__(self):
        self.pages, self.y = [[]], 720.0

    def line(self, text, x=108.0, size=10, lead=11, room=0):
        """Set a line, on a new page if less than `room` is left for what follows it."""
        if self.y < 110 + room:
            self.pages[-1].append((303, 40, 10, str(len(self.pages))))
            self.pages.append([])
            self.y = 720.0
        self.pages[-1].append((x, self.y, size, text))
        self.y -= lead

    def paragraph(self, text, x=108.0, width=WIDTH):
        for line in justified(text, width):
            self.line(line, x)
        self.y -= 6

    def note(self, mark, text):
        """A footnote at the foot of this page, wherever the text stands."""
        first, *rest = justified(text, 70, hyphenate=False)
        self.pages[-1] += [(120, 97.6, 6, mark), (124, 94, 9, first)]
        self.pages[-1] += [(108, 84 - 10 * i, 9, line) for i, line in enumerate(rest)]


WORDS = (
    "attention weighs every position and normalises its weights before the values are summed "
    "so a decoder reads what the encoder wrote while residual connections carry signals onwards"
)


def paragraph_of(part, number):
    start = (len(part) * 7 + number * 3) % 20
    turned = WORDS.split()[start:] + WORDS.split()[:start]
    return f"Part {part} has text number {number} here: {' '.join(turned * 3)}."


def set_paper(skip=()):
    """A whole paper, and what should be read from it."""
    press, expected = Press(), {}
    press.line("Attention, Set Again", x=200, size=17, lead=40)
    titles = [(title, name) for title, name in module._TITLES.items() if name not in skip]
    for n, (title, name) in enumerate(titles):
        press.y -= 12
        press.line(title, size=12 if title[:1].isalpha() else 10, lead=20)
        count = {"": 0, "6": 0, "abstract": 1}.get(name, 3)
        for number in range(1, count + 1):
            text = paragraph_of(name, number)
            expected.setdefault(name, []).append(text)
            if name == "abstract":
                press.paragraph(text, x=143.9, width=54)
            else:
                press.paragraph(text)
            if number == 2:  # an equation between paragraphs, with its number
                press.line("y = f x", x=240, lead=0)
                press.line("9", x=498, lead=22)
        kind = "Figure" if n < 5 else "Table"
        if n < 9:  # captions of five figures and four tables, each with a stray row of cells
            number = n + 1 if n < 5 else n - 4
            text = paragraph_of(f"{kind} {number}", 1)
            press.line("a picture", x=260, lead=30, room=120)  # a caption stays on its page
            press.paragraph(f"{kind} {number}: {text}")
            expected[f"{kind.lower()}-{number}"] = [text]
            press.line("23.75   1.0", x=150, lead=20)
        if name in ("1", "3.2"):
            number = 1 if name == "1" else 2
            expected[f"footnote-{number}"] = [paragraph_of("note", number)[:120] + "."]
            press.note(str(number), expected[f"footnote-{number}"][0])
    return press.pages, expected


@pytest.fixture(scope="module")
def made():
    pages, expected = set_paper()
    return pdf_bytes(pages), expected


@pytest.fixture
def pdf(made, tmp_path):
    path = tmp_path / "made.pdf"
    path.write_bytes(made[0])
    return path


def test_a_paper_set_here_is_read_whole(pdf, made):
    assert dict(extract_paper(pdf).sections) == made[1]


def test_the_paper_set_here_has_what_makes_reading_hard():
    """Otherwise the test above would show little."""
    pages, _ = set_paper()
    texts = [text for page in pages for *_, text in page]
    assert len(pages) > 4
    assert sum(text.endswith("-") for text in texts) > 10
    cut = [page[-2][3] for page in pages[:-1]]  # the last line above the page number
    assert any(not text.rstrip().endswith((".", ":")) for text in cut)


def test_pages_wrapped_by_another_program_read_the_same(tmp_path, made):
    path = tmp_path / "wrapped.pdf"
    path.write_bytes(pdf_bytes(set_paper()[0], wrap=True))
    assert extract_paper(path).sections == made[1]


def test_ligatures_become_letters(tmp_path):
    path = tmp_path / "ligatures.pdf"
    path.write_bytes(pdf_bytes([[(108, 700, 10, "\x01rst \x02ows")]]))
    lines = module._lines(module._pages(path))
    assert [line.text for line in lines] == ["first flows"]


LIGATURES = ("ffi", "ffl", "ff", "fi", "fl")  # the longest first
TEX = {"ff": 11, "fi": 12, "fl": 13, "ffi": 14, "ffl": 15}  # numbers of TeX's first encoding
NUMBERS = {"old": 0, "new": 16, "none": -10}  # what to add; "none": numbers of no encoding
TOLD = {
    "private": lambda n: chr(0xE000 + n),
    "control": chr,
    "nothing": lambda n: "",
    "invisible": lambda n: "\u200b",
    "replaced": lambda n: "\ufffd",
}


def printed_with_ligatures(pages, shift):
    def ligated(text):
        for letters in LIGATURES:
            text = text.replace(letters, chr(TEX[letters] + shift))
        return text

    return [[(x, y, size, ligated(text)) for x, y, size, text in page] for page in pages]


@pytest.fixture(scope="module")
def ligated():
    """A paper of words that have ligatures in them, and what should be read from it."""
    with pytest.MonkeyPatch.context() as patch:
        words = (
            "the first specific effect of an efficient flow is a final offset at different times"
        )
        patch.setitem(globals(), "WORDS", words)
        return set_paper()


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("told", [*TOLD, "not at all"])
def test_words_are_whole_whatever_a_font_tells_of_its_ligatures(tmp_path, ligated, told, numbers):
    pages, expected = ligated
    shift = NUMBERS[numbers]
    table = {n + shift: TOLD[told](n + shift) for n in TEX.values()} if told in TOLD else {}
    path = tmp_path / "ligatures.pdf"
    path.write_bytes(pdf_bytes(printed_with_ligatures(pages, shift), told=table))
    assert dict(extract_paper(path).sections) == expected


def test_numbers_tell_ligatures_in_any_word(tmp_path):
    words = ["waffle", "office", "fjord", "baffling", "chiffon", "flat"]
    pages = printed_with_ligatures([[(108, 700, 10, " ".join(words))]], 0)
    path = tmp_path / "words.pdf"
    path.write_bytes(pdf_bytes(pages, told={n: chr(0xE000 + n) for n in TEX.values()}))
    (line,) = module._lines(module._pages(path))
    assert line.text.split() == words


@pytest.mark.parametrize("word", module._LIGATED)
def test_a_word_without_its_ligatures_is_known(word):
    lost = remnants(word)
    assert lost
    for remnant in lost if len(min(lost, key=len)) > 1 else []:
        assert module._whole_words(f"a {remnant}, or") == f"a {word}, or"
    assert module._whole_words(f"a {word}, or {word.title()}") == f"a {word}, or {word.title()}"


def remnants(word):
    """A word without its ligatures, in each way of printing it."""
    found = {word}
    for letters in LIGATURES:
        found |= {kept.replace(letters, "") for kept in found}
    return found - {word}


def test_names_are_not_taken_for_what_is_left_of_a_word():
    text = "Nal and Rst: an o, a low tip, of oil elects to t (also tops and le)."
    assert module._whole_words(text) == text


# --- hyphens and formulas -------------------------------------------------------------------


@pytest.mark.parametrize(
    "lines, known, text",
    [
        (["It is norma-", "lised."], "normalised", "It is normalised."),
        (["An encoder-", "decoder."], "encoder-decoder", "An encoder-decoder."),
        (["Into Klingon-", "to-Elvish."], "Klingon-to-Elvish", "Into Klingon-to-Elvish."),
        (["A state-of-the-", "art beam."], "state-of-the-art", "A state-of-the-art beam."),
        (["A table-", "aligned list."], "table", "A table-aligned list."),  # only the half is known
        (["It sur-", "rounds us."], "", "It surrounds us."),  # nothing is known
        (["A re-", "sent copy."], "re resent", "A resent copy."),  # the joined word is known
        (["At https://example.org/", "file now."], "", "At https://example.org/file now."),
        (["From 3 -", "to 4."], "", "From 3 - to 4."),  # a dash, not a hyphen
        ([], "", ""),
    ],
)
def test_lines_join(lines, known, text):
    assert module._join(lines, module._vocabulary([known])) == text


def test_a_word_cut_at_a_line_end_is_no_witness():
    assert module._vocabulary(["all are norma-", "lised at once"]) == {
        *("all", "are", "lised", "at", "once")
    }


@given(
    words=st.lists(st.text("aeiklmnst", min_size=8, max_size=14), min_size=1, max_size=30),
    width=st.integers(20, 40),
)
def test_joining_undoes_breaking(words, width):
    text = " ".join(words)
    assert module._join(justified(text, width), set(words)).split() == words


FORMULAS = module._FORMULAS | module._MORE_FORMULAS


@pytest.mark.paper
@pytest.mark.parametrize("printed", FORMULAS)
def test_every_formula_is_found_however_it_is_spaced(printed):
    wanted = f"With ${FORMULAS[printed]}$, all is well."
    assert module._typeset(f"With {printed}, all is well.") == wanted
    loose = " ".join(printed)
    assert module._typeset(f"With {loose} , all is well.") == wanted


def test_values_belong_to_their_formula():
    assert module._typeset("It is dmodel = 512.") == r"It is $d_{\text{model}} = 512$."
    assert module._typeset("at Pdrop = 0.1, or") == "at $P_{drop} = 0.1$, or"


@pytest.mark.parametrize("phrase", module._PHRASES)
def test_every_phrase_is_found(phrase):
    plain = re.sub(r"[$^{}]|\\mathbf", "", phrase)
    assert module._typeset(f"so {plain} or") == f"so {phrase.replace(' $^', '$^')} or"


@pytest.mark.parametrize("epsilon", ["ϵ", "ε", "(cid:15)", "\ufffd"])
def test_signs_that_fonts_name_differently(epsilon):
    assert module._typeset(f"value {epsilon}ls = 0.1") == r"value $\epsilon_{ls} = 0.1$"


def test_ordinary_words_are_no_formulas():
    text = "What height has a dkny box, a quick one (2 by 5), of size rather large?"
    assert module._typeset(text) == text


# --- files that cannot be used --------------------------------------------------------------

LOCK = b"/Encrypt<</Filter/Standard/V 1/R 2/O(%s)/U(%s)/P -44>>/ID[(a)(a)]" % (b"o" * 32, b"u" * 32)
UNUSABLE = {
    "text": (b"Dear reader, this is no PDF.", "not a PDF"),
    "empty": (b"", "not a PDF"),
    "page of the web": (b"<html>%20PDF</html>", "not a PDF"),
    "head only": (b"%PDF-1.4\n", "damaged|text layer"),
    "other paper": (
        pdf_bytes([[(108, 700, 10, "1 Introduction"), (108, 680, 10, "Cats.")]]),
        "3.2.1",
    ),
    "scan": (pdf_bytes([[]]), "no text layer"),
    "one letter": (pdf_bytes([[(108, 700, 10, "a")]]), "hardly any text"),
    "spaces": (pdf_bytes([[(108, 700, 10, "   ")]]), "hardly any text"),
    "lock": (pdf_bytes([[(108, 700, 10, "1 Introduction")]], encrypt=LOCK), "encrypted"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_unusable_files_are_refused_by_name_and_reason(name, tmp_path):
    content, reason = UNUSABLE[name]
    path = tmp_path / "some file.pdf"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"some file\.pdf .*(?:{reason})"):
        extract_paper(path)


def test_a_damaged_file_is_told_in_one_line(tmp_path, made, caplog):
    path = tmp_path / "damaged.pdf"
    path.write_bytes(made[0].replace(b" Tf 1 0 0", b"x Tf 1 0 z").replace(b"612 792", b"612 7x2"))
    with pytest.raises(ValueError, match=r"damaged\.pdf") as error:
        extract_paper(path)
    assert "\n" not in str(error.value) and not caplog.records


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_a_truncated_file_is_refused(part, pdf):
    pdf.write_bytes(pdf.read_bytes()[: int(part * pdf.stat().st_size)])
    with pytest.raises(ValueError, match=r"made\.pdf"):
        extract_paper(pdf)


@pytest.mark.parametrize("missing", ["abstract", "3.2.1", "7"])
def test_a_missing_section_is_named(missing, tmp_path):
    path = tmp_path / "part.pdf"
    path.write_bytes(pdf_bytes(set_paper(skip=(missing,))[0]))
    with pytest.raises(ValueError, match=rf"lacks .*{re.escape(missing)}"):
        extract_paper(path)


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        extract_paper(tmp_path / "none.pdf")


# --- keeping and finding the paper ----------------------------------------------------------


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
    wrong.write_bytes(UNUSABLE["other paper"][0])
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
    with pytest.raises(FileNotFoundError, match=r"ANNOTATED_PAPER_PDF names nowhere\.pdf"):
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


@pytest.mark.parametrize("broken", [b"", b"{", b"[1]", b'{"other": 1}', b"\xff"])
def test_broken_stored_text_is_made_anew(broken, pdf, made):
    import_paper(pdf)
    (stored,) = paper_folder().glob("*.json")
    stored.write_bytes(broken)
    assert find_paper() == Paper(made[1])
    assert stored.read_bytes() != broken


def test_a_folder_that_cannot_be_written_only_costs_time(pdf, monkeypatch):
    def fail(*_):
        raise PermissionError("read-only")

    monkeypatch.setattr(module, "_write", fail)
    monkeypatch.setenv("ANNOTATED_PAPER_PDF", str(pdf))
    assert quote("abstract") is not None
    with pytest.raises(PermissionError):
        import_paper(pdf)


# --- quotations -----------------------------------------------------------------------------


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
def test_a_quotation_is_a_block_with_its_citation(section, number, place, pdf, made):
    import_paper(pdf)
    markdown = quote(section, number)._repr_markdown_()
    text, empty, source = markdown.split("\n")
    assert text == f"> {made[1][section][number - 1]}"
    assert empty == ">"
    assert source == f"> — [Vaswani et al. (2017), {place}](https://arxiv.org/abs/1706.03762)"
    assert place in str(quote(section, number))


@pytest.mark.parametrize("number", [0, -1, 4, 100])
def test_an_unknown_paragraph_names_what_there_is(number, pdf):
    import_paper(pdf)
    with pytest.raises(ValueError, match=r"'3\.1' has paragraphs 1 to 3"):
        quote("3.1", number)


@pytest.mark.parametrize("section", ["", "8", "3.2.9", "Abstract", "figure 1"])
def test_an_unknown_section_names_what_there_is(section, pdf):
    import_paper(pdf)
    with pytest.raises(ValueError, match=r"there are .*abstract.*3\.2\.1.*figure-5"):
        quote(section)


def test_importing_the_module_loads_no_pdf_library():
    code = "import sys, annotated.paper; print(*sys.modules)"
    root = Path(module.__file__).resolve().parents[1]
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert not {"pdfminer", "platformdirs", "torch"} & set(run.stdout.split())


# --- downloading ----------------------------------------------------------------------------


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
    with pytest.raises(ConnectionError, match=r"/none could not .*ANNOTATED_PAPER_PDF"):
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
    with pytest.raises(ValueError, match="v7 is odd; v5 is odd"):
        get_paper()


# --- the paper itself -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def real():
    return extract_paper(PDF)


@pytest.fixture(scope="module")
def texts(real):
    return {(name, n): t for name, ts in real.sections.items() for n, t in enumerate(ts, start=1)}


@pytest.mark.paper
def test_every_section_has_its_paragraphs(real):
    assert {name: len(found) for name, found in real.sections.items()} == COUNTS


@pytest.mark.paper
def test_sections_come_in_order(real):
    names = [name for name in real.sections if not re.match("fig|tab|foot|ack", name)]
    assert names == [name for name in module._TITLES.values() if name not in ("", "6")]


@pytest.mark.paper
def test_every_line_is_used_once_and_in_order(real):
    lines = module._lines(module._pages(Path(PDF)))
    blocks = module._paragraphs(lines)
    place = {id(line): i for i, line in enumerate(lines)}
    used = [place[id(line)] for _, block in blocks for line in block]
    assert len(used) == len(set(used))
    for _, block in blocks:
        order = [place[id(line)] for line in block]
        assert order == sorted(order)
    first = next(i for i, line in enumerate(lines) if line.text == "Abstract")
    last = next(i for i, line in enumerate(lines) if line.text == "References")
    layout = module._Layout.of(lines)
    left_out = [line for i, line in enumerate(lines) if first < i < last and i not in set(used)]
    assert [line.text for line in left_out if layout.flush(line)] == [
        title for title in module._TITLES if title not in ("Abstract", "References")
    ]


@pytest.mark.paper
def test_no_debris_is_left(texts):
    for place, text in texts.items():
        kinds = {unicodedata.category(sign) for sign in text}
        assert not kinds & {"Cc", "Cf", "Co", "Cn", "Cs", "Lo"}, place
        assert not re.search(r"[\ufb00-\ufb06\ufffd\u2e80-\u9fff]|\(cid:|encodoer", text), place
        assert text.count("$") % 2 == 0 and "  " not in text and "](" not in text, place
        assert not re.search(r" [.,;:)]|\( ", re.sub(r"\$.*?\$", "x", text)), place


@pytest.mark.paper
def test_all_mathematics_is_typeset(texts):
    """Outside the dollar signs no Greek letter, relation, root or name of a variable is left."""
    for place, text in texts.items():
        words = re.sub(r"\$.*?\$", "", text)
        assert not re.search(r"[=√∈·−∑∞α-ωϵ_^\\<>]", words), place
        assert not re.search(r"\b(dmodel|dff|d[kv]|h ?t|Pdrop|[b-zF-HJ-Z])\b(?!’)", words), place


def words_of(sections):
    return {word for texts in sections.values() for text in texts for word in text.split()}


@pytest.mark.paper
@pytest.mark.parametrize("told", ["private", "nothing"])
def test_the_paper_printed_with_a_bad_font_map_reads_the_same(tmp_path, real, told):
    """Its fonts have fi and fl at 2 and 3, which are no numbers of TeX's own encodings."""
    from pypdf import PdfWriter
    from pypdf.generic import ArrayObject, NameObject, StreamObject

    writer = PdfWriter(clone_from=PDF)
    fonts = [
        font.get_object() for page in writer.pages for font in page["/Resources"]["/Font"].values()
    ]
    broken = 0
    for font in fonts:
        encoding = font["/Encoding"].get_object() if "/Encoding" in font else {}
        names = list(encoding.get("/Differences", []))
        if "/fi" not in names or "/ToUnicode" in font:
            continue
        assert names[names.index("/fi") - 1] == 2 and names[names.index("/fi") + 1] == "/fl"
        bare = [NameObject("/.notdef") if name in ("/fi", "/fl") else name for name in names]
        encoding[NameObject("/Differences")] = ArrayObject(bare)
        table = StreamObject()
        table.set_data(character_map({n: TOLD[told](n) for n in (2, 3)}))
        font[NameObject("/ToUnicode")] = writer._add_object(table)
        broken += 1
    assert broken
    path = tmp_path / "broken.pdf"
    writer.write(path)
    read = extract_paper(path).sections
    assert not [word for word in words_of(read) - words_of(real.sections) if "f" not in word]
    assert read == real.sections


@pytest.mark.paper
def test_no_word_has_lost_a_ligature(texts):
    """What a word of this book would be without its ligatures is no word of the paper."""
    chapters = Path(module.__file__).resolve().parents[1] / "chapters"
    numbered = chapters.glob("[1-7]*.md")  # the chapter about the reader shows such words
    prose = "\n".join(path.read_text(encoding="utf-8") for path in numbered)
    known = {*re.findall(r"\b[a-z]+\b", prose), *module._LIGATED}
    lost = {remnant for word in known for remnant in remnants(word)} - known
    found = {word for text in texts.values() for word in re.findall(r"\b[a-z]{3,}\b", text)}
    assert {"specic", "dierent", "rst"} <= lost
    assert not found & lost


@pytest.mark.paper
def test_paragraphs_begin_and_end_as_paragraphs(texts):
    begins = {("3.5", 3): "where ", ("figure-2", 1): "(left) "}  # after an equation; a caption
    ends = {("table-4", 1): ")"}
    for place, text in texts.items():
        plain = text.replace("**", "")
        assert plain.startswith(begins.get(place, plain[0].upper())), place
        assert plain[0].isalpha() or place in begins, place
        assert plain.endswith((".", ":", ends.get(place, "."))), place


@pytest.mark.paper
@pytest.mark.parametrize(
    "section, number, start, inside",
    [
        ("abstract", 1, "The dominant sequence", "English-to-German"),
        ("1", 2, "Recurrent models", "for position $t$."),
        ("1", 3, "Attention mechanisms", "transduction models"),
        ("2", 3, "End-to-end", "sequence-aligned"),
        ("3", 1, "Most competitive", r"$\mathbf{z} = (z_1, \ldots, z_n)$"),
        ("3.1", 1, "**Encoder:** The", "position-wise fully connected"),
        ("3.1", 2, "**Decoder:** The", "positions less than $i$."),
        ("3.2.1", 1, "We call", r"by $\sqrt{d_k}$, and"),
        ("3.2.1", 3, "The two most", "dot-product (multiplicative) attention"),
        ("3.2.1", 4, "While for small", r"gradients$^4$. To"),
        ("3.2.2", 3, "Where the", r"$W_i^V \in \mathbb{R}^{d_{\text{model}} \times d_v}$ and"),
        ("3.2.3", 2, 'In "encoder-decoder', "[38, 2, 9]."),
        ("3.2.3", 4, "Similarly, self-attention", r"(setting to $-\infty$)"),
        ("3.3", 2, "While the linear", "$d_{ff} = 2048$."),
        ("3.5", 3, "where $pos$ is", r"$10000 \cdot 2\pi$"),
        ("4", 1, "In this section", r"$x_i, z_i \in \mathbb{R}^d$"),
        ("4", 5, "A single", r"$O(k \cdot n \cdot d + n \cdot d^2)$"),
        ("5.1", 1, "We trained", "shared source-target vocabulary"),
        ("5.3", 1, "We used", r"$\epsilon = 10^{-9}$"),
        ("5.4", 3, "**Label Smoothing** During", r"$\epsilon_{ls} = 0.1$ [36]"),
        ("6.2", 3, "In Table 3", "key size $d_k$ hurts"),
        ("6.3", 4, "Our results", "performs surprisingly well"),
        ("6.3", 5, "In contrast", "the BerkeleyParser [29]"),
        ("7", 4, "The code", "https://github.com/tensorflow/tensor2tensor."),
        ("acknowledgements", 1, "**Acknowledgements** We", "corrections"),
        ("figure-1", 1, "The Transformer", "model architecture."),
        ("table-1", 1, "Maximum path", "$k$ is the kernel"),
        ("table-4", 1, "The Transformer", "of WSJ)"),
        ("footnote-1", 1, "Equal contribution", "our research."),
        ("footnote-2", 1, "Work performed", "Google Brain."),
        ("footnote-4", 1, "To illustrate", r"$q \cdot k = \sum_{i=1}^{d_k} q_i k_i$"),
        ("footnote-5", 1, "We used values", "respectively."),
    ],
)
def test_spots(section, number, start, inside, real):
    text = real.paragraph(section, number)
    assert text.startswith(start)
    assert inside in text


@pytest.mark.paper
def test_line_end_hyphens_are_mended(real, texts):
    """Where the document shows a word unbroken, paragraphs write it so."""
    lines = [line.text for line in module._lines(module._pages(Path(PDF)))]
    known = module._vocabulary(lines)
    words = {word.lower() for text in texts.values() for word in module._WORD.findall(text)}
    mended = {word for word in words - known if not word.startswith(("mathbb", "text"))}
    assert len([line for line in lines if line.endswith("-")]) > 10
    for word in mended:  # such words stand nowhere unbroken, so no form of them may
        assert word.replace("-", "") not in known, word
    assert {"sequence-aligned", "source-target", "multiplicative", "surprisingly"} <= mended
    assert {"position-wise", "english-to-german", "transduction", "convolutional"} <= words


@pytest.fixture(scope="module")
def printed(real):
    """The lines of all pages, each from margin to margin."""
    from pdfminer.high_level import extract_text
    from pdfminer.layout import LAParams

    whole = LAParams(boxes_flow=None, char_margin=100)
    return extract_text(PDF, laparams=whole).split("\n")


def numbers(cells) -> str:
    return " ".join(str(cell) for cell in cells if pd.notna(cell))


@pytest.mark.paper
def test_table_2_is_as_printed(printed):
    power = lambda flops: f"{flops / 10 ** (n := int(math.log10(flops))):.1f} · 10{n}"
    for row in table_2().itertuples(index=False):
        model, kind, german, french, *costs = row
        if kind == "Transformer":  # one cost, in the middle of two columns
            costs = costs[:1]
        marks = numbers([german, french, *(power(cost) for cost in costs if pd.notna(cost))])
        marks = marks.replace("26.3 ", "26.30 ")
        name = model.rstrip(")") + (" Ensemble" if kind == "ensemble" else "")
        found = [x for x in printed if x.startswith(name) and x.endswith(f" {marks}")]
        assert len(found) == 1, (name, marks)


@pytest.mark.paper
def test_table_3_is_as_printed(printed):
    start = printed.index("base 6 512 2048 8 64 64 0.1 0.1 100K 4.92 25.8 65")
    lines = [line for line in printed[start:] if line.strip() and not line.startswith("(")]
    learned = next(line for line in printed if line.startswith("(E)"))
    assert learned.endswith(" 4.92 25.7")
    table = rows()
    assert table.index[-2] == "E: positions = learned"
    varied = ["N", "d_model", "d_ff", "h", "d_k", "d_v", "dropout", "label_smoothing"]
    steps = (table["train_steps"] // 1000).map("{}K".format)
    assert lines[0].split()[1:10] == [*map(str, table.loc["base"][varied]), steps["base"]]
    table = table.drop(["base", "E: positions = learned"])
    for line, (_, row) in zip(lines[1 : len(table) + 1], table.iterrows(), strict=True):
        changed = [row[x] for x in varied if row[x] != BASE[x]]
        if row.group == "big":
            changed = [row["N"], *changed, steps["big"]]
        else:
            assert steps[row.name] == steps["base"]  # not listed, so as in base
        results = [f"{row.perplexity:.2f}", row.BLEU]
        size = row.parameters_millions
        counted = [int(size)] if pd.notna(size) else []
        name = ["big"] if row.group == "big" else []
        assert line == numbers([*name, *changed, *results, *counted])


@pytest.mark.paper
def test_table_4_is_as_printed(printed):
    start = next(i for i, line in enumerate(printed) if line.startswith("Parser Training"))
    lines = [line for line in printed[start + 1 :] if line.strip()]
    table = table_4()
    for line, row in zip(lines[: len(table)], table.itertuples(index=False), strict=True):
        assert line.split()[0] == row.parser.split()[0]
        assert ("(4 layers)" in line) == ("(4 layers)" in row.parser)
        assert line.endswith(f" {row.training} {row.F1}")


@pytest.mark.paper
def test_the_quotation_of_the_real_paper(real, monkeypatch):
    monkeypatch.setenv("ANNOTATED_PAPER_PDF", str(Path(PDF).resolve()))
    assert quote("3.2.1", 1).place == "§3.2.1 ¶1"
    assert textwrap.shorten(quote("footnote-4").text, 20).startswith("To illustrate")
