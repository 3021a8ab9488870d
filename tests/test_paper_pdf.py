"""From a PDF to sections and paragraphs: on PDFs made here, and on the paper if it is at hand."""

import math
import os
import re
import unicodedata
from pathlib import Path

import pandas as pd
import press
import pytest
from press import (
    TEX,
    character_map,
    made_pdf,
    paper_and_text,
    pdf_bytes,
    printed_with_ligatures,
    remnants,
    set_paper,
)

from annotated.machinery.paper import pdf as module
from annotated.machinery.paper import typesetting
from annotated.machinery.paper.pdf import extract_paper
from annotated.machinery.paper.typesetting import known_words
from annotated.machinery.scoring import table_2
from annotated.parsing import table_4
from annotated.variations import _BASE, table_3

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

made = pytest.fixture(paper_and_text, scope="module")
pdf = pytest.fixture(made_pdf)


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


NUMBERS = {"old": 0, "new": 16, "none": -10}  # what to add; "none": numbers of no encoding


TOLD = {
    "private": lambda n: chr(0xE000 + n),
    "control": chr,
    "nothing": lambda n: "",
    "invisible": lambda n: "\u200b",
    "replaced": lambda n: "\ufffd",
}


@pytest.fixture(scope="module")
def ligated():
    """A paper of words that have ligatures in them, and what should be read from it."""
    with pytest.MonkeyPatch.context() as patch:
        words = (
            "the first specific effect of an efficient flow is a final offset at different times"
        )
        patch.setattr(press, "WORDS", words)
        return set_paper()


@pytest.mark.slow
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
    with pytest.raises(ValueError, match=re.escape(missing)):
        extract_paper(path)


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        extract_paper(tmp_path / "none.pdf")


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
    chapters = Path(module.__file__).resolve().parents[2] / "chapters"
    numbered = chapters.glob("[1-7]*.md")  # the chapter about the reader shows such words
    prose = "\n".join(path.read_text(encoding="utf-8") for path in numbered)
    known = {*re.findall(r"\b[a-z]+\b", prose), *typesetting._LIGATED}
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
    known = known_words(lines)
    words = {word.lower() for text in texts.values() for word in typesetting._WORD.findall(text)}
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
    table = table_3()
    assert table.index[-2] == "E: positions = learned"
    varied = ["N", "d_model", "d_ff", "h", "d_k", "d_v", "dropout", "label_smoothing"]
    steps = (table["train_steps"] // 1000).map("{}K".format)
    assert lines[0].split()[1:10] == [*map(str, table.loc["base"][varied]), steps["base"]]
    table = table.drop(["base", "E: positions = learned"])
    for line, (_, row) in zip(lines[1 : len(table) + 1], table.iterrows(), strict=True):
        changed = [row[x] for x in varied if row[x] != _BASE[x]]
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
