"""Gold trees: a tree made by hand, files in either shape, and what is no CoNLL-U."""

from __future__ import annotations

import io
import tarfile

import pytest
from gum_sentence import ROWS, TEXT, parsed

from annotated.machinery.errors import FileError
from annotated.machinery.heads.gold import load_gum

doc = pytest.fixture(parsed, scope="module")


def test_a_tree_is_read_with_its_text_and_mentions(doc):
    assert doc.text.strip() == TEXT
    assert [token.head.i + 1 for token in doc] == [2, 3, 3, 5, 3, 10, 10, 10, 10, 3, 12, 10, 3]
    assert doc[3].dep_ == "nmod:poss" and doc[2].head == doc[2]
    mentions = {entity: [span.text for span in spans] for entity, spans in doc.spans.items()}
    assert mentions == {"7": ["The dog", "its"], "8": ["its ball"], "9": ["the cat"]}


BLANK = "1\t_\t_\tNOUN\tNN\t_\t0\troot\t_\t_"  # a word of Reddit's, as GUM is passed on


def test_gum_is_read_from_either_shape(tmp_path, monkeypatch):
    monkeypatch.setenv("ANNOTATED_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"en_gum-ud-dev\.conllu"):
        load_gum("dev")
    folder = tmp_path / "gum"
    (folder / "dep").mkdir(parents=True)
    (folder / "en_gum-ud-dev.conllu").write_text(f"{ROWS}\n\n{BLANK}\n\n")
    assert [doc.text.strip() for doc in load_gum("dev")] == [TEXT]
    (folder / "splits.md").write_text(
        "# Splits\n\n## dev\n\n  * GUM_b_one\n\n## test\n\n * GUM_b_two\n"
    )
    for name, rows in ("one", f"{ROWS}\n\n{ROWS}"), ("two", ROWS):
        (folder / "dep" / f"GUM_b_{name}.conllu").write_text(f"{rows}\n\n")
    with tarfile.open(folder / "gum-dep-coref.tar.xz", "w:xz") as archive:
        for name in "splits.md", "dep":
            archive.add(folder / name, f"./{name}")
    assert [len(load_gum(split)) for split in ("dev", "test")] == [2, 1]
    with pytest.raises(FileError, match=r"splits\.md.*train"):
        load_gum("train")
    with pytest.raises(ValueError, match=r"train, dev, test.*'valid'"):
        load_gum("valid")


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (f"{ROWS}\n\n1 no tabs\n", "sentence 2: "),
        (ROWS.replace("\t2\t", "\t999\t"), "sentence 1: "),
        (ROWS.replace("\t2\t", "\t_\t"), "sentence 1: "),
        (ROWS.replace("\t_\t_\n", "\t_\n"), "sentence 1: "),
        (ROWS.replace("\tEntity=7)", "\t_\tEntity=7)"), "sentence 1: "),
        ("\udcff", "line 1"),
    ],
)
def test_a_broken_file_of_gum_is_named(tmp_path, monkeypatch, rows, told):
    monkeypatch.setenv("ANNOTATED_DATA", str(tmp_path))
    (tmp_path / "gum").mkdir()
    path = tmp_path / "gum" / "en_gum-ud-dev.conllu"
    path.write_bytes(rows.encode("utf-8", "surrogateescape"))
    with pytest.raises(FileError, match=rf"en_gum-ud-dev\.conllu.*{told}"):
        load_gum("dev")
    path.unlink()
    with tarfile.open(tmp_path / "gum" / "gum-dep-coref.tar.xz", "w:xz") as archive:
        for name, text in ("splits.md", "## dev\n * GUM_b_one\n"), ("dep/GUM_b_one.conllu", rows):
            content = text.encode("utf-8", "surrogateescape")
            (info := tarfile.TarInfo(name)).size = len(content)
            archive.addfile(info, io.BytesIO(content))
    with pytest.raises(FileError, match=rf"tar\.xz: dep/GUM_b_one\.conllu.*{told}"):
        load_gum("dev")
    (tmp_path / "gum" / "gum-dep-coref.tar.xz").write_bytes(b"no archive")
    with pytest.raises(FileError, match=r"gum-dep-coref\.tar\.xz"):
        load_gum("dev")
