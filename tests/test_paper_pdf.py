"""From a PDF to sections and paragraphs: on PDFs made here, and on the paper if it is at hand."""

import math
import os
import re
import subprocess
import sys
import unicodedata

import pandas as pd
import pytest

from annotated.evaluation import table_2
from annotated.machinery.errors import FileError
from annotated.machinery.paper import pdf
from annotated.parsing import table_4
from annotated.variations import _BASE, table_3

PDF = os.environ.get("ANNOTATED_PAPER_PDF")


def pdf_bytes(pages, move=b"", trailer=b""):
    """A PDF in Courier; a page is a list of (x, y, size, text) that `move` transforms."""
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(len(pages)))
    objects = [b"<</Type/Catalog/Pages 2 0 R>>"]
    objects += [f"<</Type/Pages/Kids[{kids}]/Count {len(pages)}>>".encode()]
    objects += [b"<</Type/Font/Subtype/Type1/BaseFont/Courier/Encoding/WinAnsiEncoding>>"]
    for i, page in enumerate(pages):
        lines = (f"BT /F {size} Tf 1 0 0 1 {x} {y} Tm ({t}) Tj ET\n" for x, y, size, t in page)
        content = move + b"\n" + "".join(lines).encode("cp1252")
        rest = b"/MediaBox[0 0 612 792]/Resources<</Font<</F 3 0 R>>>>/Contents %d 0 R"
        objects += [b"<</Type/Page/Parent 2 0 R%s>>" % (rest % (5 + 2 * i))]
        objects += [b"<</Length %d>>\nstream\n%s\nendstream" % (len(content), content)]
    out, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    end = b"trailer\n<</Size %d/Root 1 0 R%s>>\nstartxref\n%d\n%%%%EOF\n"
    head = b"xref\n0 %d\n0000000000 65535 f \n" % size
    return out + head + table + end % (size, trailer, len(out))


def justified(text, width):
    """Lines of equal width; a long word at the end of a line is broken."""
    lines, line = [], ""
    for word in text.split():
        room = width - len(line) - 2
        if line and len(line) + 1 + len(word) > width:
            if len(word) > 7 and room > 3:
                cut = min(room, len(word) - 3)
                line, word = f"{line} {word[:cut]}-", word[cut:]
            lines.append(line.replace(" ", " " * (1 + width - len(line)), 1))
            line = ""
        line = f"{line} {word}".strip()
    return [*lines, line]


def set_paper(skip=()):
    """Pages of a whole paper in the layout of the conference, and what should be read from it."""
    pages, y, expected = [[]], 720.0, {}

    def put(text, x=108.0, size=10, lead=11, room=0):
        nonlocal y
        if y < 110 + room:
            pages[-1].append((303, 40, 10, str(len(pages))))
            pages.append([])
            y = 720.0
        pages[-1].append((x, y, size, text))
        y -= lead

    def paragraph(name, label="", x=108.0, width=66):
        number = len(expected.setdefault(name, [])) + 1
        words = " attention weighs every position and normalizes scores before decoders sum values"
        text = f"{name.capitalize()} has text {number} here:{words * (2 + number % 2)}."
        expected[name].append(text)
        for line in justified(label + text, width):
            put(line, x)

    for n, name in enumerate(name for name in pdf._HEADINGS if name not in skip):
        y -= 12
        put(name if name.isalpha() else f"{name} Of Attention", size=12, lead=20)
        for _ in range(0 if name in ("6", "References") else 3):
            inset = name == "Abstract"
            paragraph(name.lower(), x=144.0 if inset else 108.0, width=60 if inset else 66)
            y -= 6
        put("y = f x", x=240, lead=0)  # an equation and its number
        put("(9)", x=498, lead=22)
        if n < len(pdf._CAPTIONS):
            kind, number = pdf._CAPTIONS[n].split("-")
            put("a picture", x=260, lead=30, room=120)
            paragraph(pdf._CAPTIONS[n], f"{kind.capitalize()} {number}: ")
            put("23.75   1.0", x=150, lead=20)  # a row of a table
    expected["footnote-1"] = ["A note at the foot of the first page that goes on below."]
    pages[0] += [
        (124, 84, 9, "1A note at the foot of the first page"),
        (108, 74, 9, "that goes on below."),
    ]
    return pages, expected


@pytest.mark.parametrize("move", [b"", b"0.8 0 0 0.8 40 90 cm"])
def test_a_paper_set_here_is_read_whole_in_any_scale(tmp_path, move):
    pages, expected = set_paper()
    assert sum(text.endswith("-") for page in pages for *_, text in page) > 10
    (tmp_path / "made.pdf").write_bytes(pdf_bytes(pages, move))
    assert len(pages) > 4 and pdf.extract_paper(tmp_path / "made.pdf") == expected


LOCK = b"/Encrypt<</Filter/Standard/V 1/R 2/O(%s)/U(%s)/P -44>>/ID[(a)(a)]" % (b"o" * 32, b"u" * 32)
UNUSABLE = {
    "page of the web": (b"<html>%20PDF</html>", "PDF"),
    "other paper": (pdf_bytes([[(108, 700, 10, "1 Intro"), (108, 680, 10, "Cats.")]]), "3.2.1"),
    "scan": (pdf_bytes([[]]), "abstract"),
    "encrypted": (pdf_bytes([[(108, 700, 10, "1 Intro")]], trailer=LOCK), "Password"),
    "truncated": (pdf_bytes(set_paper()[0])[:9000], ""),
    "no conclusion": (pdf_bytes(set_paper(skip=["7"])[0]), "parts: 7$"),
    "damaged": (pdf_bytes(set_paper()[0]).replace(b" Tf 1 0 0", b"x Tf 1 0 z"), ""),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_unusable_files_are_refused_in_one_line_by_name_and_reason(name, tmp_path, caplog):
    content, reason = UNUSABLE[name]
    path = tmp_path / "some file.pdf"
    path.write_bytes(content)
    with pytest.raises(FileError, match=rf"some file\.pdf.*{reason}") as error:
        pdf.extract_paper(path)
    assert "\n" not in str(error.value) and not caplog.records


def test_a_pdf_has_limits_of_time_and_size(tmp_path, monkeypatch):
    path = tmp_path / "made.pdf"
    path.write_bytes(pdf_bytes(set_paper()[0]))
    monkeypatch.setattr(pdf, "_SECONDS", 0.01)
    with pytest.raises(FileError, match=r"made\.pdf.*0\.01 seconds"):
        pdf.extract_paper(path)
    monkeypatch.setattr(pdf, "_LARGEST", 100)
    for wrong in path, tmp_path, "/dev/zero":
        with pytest.raises(FileError, match="100 bytes"):
            pdf.extract_paper(wrong)


def test_no_module_of_the_current_folder_is_run(tmp_path, monkeypatch):
    """Someone else's folder may hold anything, under the names of modules that reading needs."""
    pages, expected = set_paper()
    (tmp_path / "made.pdf").write_bytes(pdf_bytes(pages))
    names = (
        "statistics",
        "json",
        "sitecustomize",
        "usercustomize",
        "pdfminer",
        "annotated",
        "typing",
    )
    for name in names:
        (tmp_path / f"{name}.py").write_text(f"open('{name} ran', 'w')\nraise SystemExit('ran')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])  # as in a notebook
    assert pdf.extract_paper("made.pdf") == expected
    assert not list(tmp_path.glob("*ran"))


@pytest.mark.processes
@pytest.mark.parametrize("limit, status", [("1500000", 0), ("3000000", 0), ("30000", 2)])
def test_a_limit_of_memory_is_kept_and_a_small_one_is_named(tmp_path, limit, status):
    (tmp_path / "made.pdf").write_bytes(pdf_bytes(set_paper()[0]))
    code = f"import sys; sys.path[:] = {sys.path!r}\n"
    code += "from annotated.machinery.paper import pdf\n"
    code += "import resource, subprocess\nrun = subprocess.run\n"
    code += f"limit = lambda: resource.setrlimit(resource.RLIMIT_AS, ({limit} << 10,) * 2)\n"
    code += "subprocess.run = lambda *a, **k: run(*a, **k, preexec_fn=limit)\n"
    code += "try: pdf.extract_paper('made.pdf')\n"
    code += "except OSError as error: print(error); sys.exit(2)\n"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == status, done.stderr
    assert not status or done.stdout.startswith("made.pdf: expected a PDF of the paper; got: ")


@pytest.mark.parametrize(
    "lines, known, text",
    [
        (["It is norma-", "lized."], "normalized", "It is normalized."),
        (["Into Klingon-", "to-Elvish."], "Klingon-to-Elvish", "Into Klingon-to-Elvish."),
        (["A table-", "aligned list."], "table", "A table-aligned list."),  # only the half is known
        (["It sur-", "rounds us."], "", "It surrounds us."),  # nothing is known
        (["A re-", "sent copy."], "re resent", "A resent copy."),  # the joined word is known
        (["At https://example.org/", "file now."], "", "At https://example.org/file now."),
    ],
)
def test_lines_join(lines, known, text):
    assert pdf._join_lines(lines, pdf._known_words([known, "a broken exam-"])) == text


@pytest.mark.parametrize(
    "printed, wanted",
    [
        ("With dk = dv = dmodel/h, or", r"With $d_k = d_v = d_{\text{model}}/h$, or"),
        ("by 1 √ dk .", r"by $\frac{1}{\sqrt{d_k}}$."),
        ("( x1, ..., xn )", r"$(x_1, \ldots, x_n)$"),
        ("W Qi ∈ Rdmodel×dk", r"$W^Q_i \in \mathbb{R}^{d_{\text{model}} \times d_k}$"),
        ("q · k = ∑dk i=1 qiki, has", r"$q \cdot k = \sum^{d_k}_{i=1} q_i k_i$, has"),
        ("q ⋅ k = dk i=1 qiki, has", r"$q \cdot k = \sum^{d_k}_{i=1} q_i k_i$, has"),
        ("uses O(k·n·d + n·d2).", r"uses $O(k \cdot n \cdot d + n \cdot d^2)$."),
        ("all warmup_steps of it", r"all $warmup\_steps$ of it"),
        *(
            (f"value {sign}ls = 0.1", r"value $\epsilon_{ls} = 0.1$")
            for sign in ("ϵ", "ε", pdf._LOST)
        ),
        (f"value ϵls = 0{pdf._LOST}1.", r"value $\epsilon_{ls} = 0.1$."),  # version 7
        ("ϵ = 10-9", r"$\epsilon = 10^{-9}$"),
        ("at position t and gradients 4. To", "at position $t$ and gradients$^4$. To"),
        *[("What height has a dkny box, a quick one (2 by 5), of size large?",) * 2],  # no formulas
    ],
)
def test_formulas_become_latex(printed, wanted):
    assert pdf._typeset(printed) == wanted


# How many paragraphs each part has, in order. Section 6 is a heading alone.
COUNTS = {
    **{"abstract": 1, "1": 4, "2": 4, "3": 2, "3.1": 2, "3.2": 1, "3.2.1": 4, "3.2.2": 4},
    **{"3.2.3": 4, "3.3": 2, "3.4": 1, "3.5": 4, "4": 6, "5": 1, "5.1": 1, "5.2": 1},
    **{"5.3": 2, "5.4": 3, "6.1": 4, "6.2": 3, "6.3": 5, "7": 4, "acknowledgements": 1},
    **{f"figure-{n}": 1 for n in range(1, 6)},
    **{f"footnote-{n}": 1 for n in range(1, 6)},
    **{f"table-{n}": 1 for n in range(1, 5)},
}


@pytest.fixture(scope="module")
def real():
    return pdf.extract_paper(PDF)


@pytest.fixture(scope="module")
def texts(real):
    return {(name, n): t for name, ts in real.items() for n, t in enumerate(ts, start=1)}


def letters(text):
    return re.sub(r"[^a-z|]", "", unicodedata.normalize("NFKC", text).lower())


@pytest.mark.paper
def test_every_line_of_the_body_appears_exactly_once_and_in_order(real):
    """Against the lines of another library, pypdf; of those with formulas a part."""
    assert [(name, len(found)) for name, found in real.items()] == list(COUNTS.items())
    pypdf = pytest.importorskip("pypdf")
    printed = "\n".join(page.extract_text() for page in pypdf.PdfReader(PDF).pages)
    lines = printed[printed.index("\nAbstract") : printed.index("\nReferences")].split("\n")
    parts = [re.sub(r"\$.*?\$", "|", text) for texts in real.values() for text in texts]
    whole = "|".join(map(letters, parts))
    long = [found for line in lines if len(found := letters(line)) > 40]
    counts = {line: whole.count(line) for line in long}
    assert max(counts.values()) == 1 and list(counts.values()).count(1) > 200
    pieces = lambda line: (line[i : i + 18] for i in range(0, len(line) - 17, 6))
    lost = [line for line in long if not any(piece in whole for piece in pieces(line))]
    assert len(lost) <= 5  # rows of tables, and the name of the conference
    end = whole.index(letters(real["figure-1"][0])[:40])  # after the body
    body = [place for line in long if 0 <= (place := whole.find(line)) < end]
    assert body == sorted(body) and len(body) > 180


@pytest.mark.paper
def test_no_debris_is_left_and_all_mathematics_is_typeset(texts):
    """Outside the dollar signs no Greek letter, relation, root or name of a variable is left."""
    for place, text in texts.items():
        kinds = {unicodedata.category(sign) for sign in text}
        assert not kinds & {"Cc", "Cf", "Co", "Cn", "Cs", "Lo"}, place
        assert not re.search(r"[\ufb00-\ufb06\ufffd\u2e80-\u9fff]|\(cid:|encodoer", text), place
        assert text.count("$") % 2 == 0 and "  " not in text and "](" not in text, place
        words = re.sub(r"\$.*?\$", "x", text)
        assert not re.search(r" [.,;:)]|\( ", words), place
        assert not re.search(r"[=√∈·−∑∞α-ωϵ_^\\<>]", words), place
        assert not re.search(r"\b(dmodel|dff|d[kv]|h ?t|Pdrop|[b-wyzF-HJ-Z])\b(?!’)", words), place

    begins = {("3.5", 3): "where ", ("figure-2", 1): "(left) "}  # after an equation; a caption
    ends = {("table-4", 1): ")"}
    for place, text in texts.items():
        plain = text.replace("**", "")
        assert plain.startswith(begins.get(place, plain[0].upper())), place
        assert plain[0].isalpha() or place in begins, place
        assert plain.endswith((".", ":", ends.get(place, "."))), place


@pytest.fixture(scope="module")
def printed():
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
