"""Papers for the tests of the reader: PDFs set here, in the layout of the conference."""

import re

from annotated.machinery.paper import pdf as module

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
    return f"Part {part} has text number {number} here: {' '.join(turned * 2)}."


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


def paper_and_text():
    """A whole paper as a PDF, and what should be read from it."""
    pages, expected = set_paper()
    return pdf_bytes(pages), expected


def made_pdf(made, tmp_path):
    """Path of a PDF, out of what `paper_and_text` made."""
    path = tmp_path / "made.pdf"
    path.write_bytes(made[0])
    return path


LIGATURES = ("ffi", "ffl", "ff", "fi", "fl")  # the longest first


TEX = {"ff": 11, "fi": 12, "fl": 13, "ffi": 14, "ffl": 15}  # numbers of TeX's first encoding


def printed_with_ligatures(pages, shift):
    def ligated(text):
        for letters in LIGATURES:
            text = text.replace(letters, chr(TEX[letters] + shift))
        return text

    return [[(x, y, size, ligated(text)) for x, y, size, text in page] for page in pages]


def remnants(word):
    """A word without its ligatures, in each way of printing it."""
    found = {word}
    for letters in LIGATURES:
        found |= {kept.replace(letters, "") for kept in found}
    return found - {word}
