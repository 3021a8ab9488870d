"""Gold trees: a tree made by hand, files in either shape, and what is no CoNLL-U."""

import pytest
from gum_sentence import ROWS, TEXT, parsed
from serving import put, tar

from annotated.machinery.errors import FileError
from benchmarks.heads.gold import load_gum

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
    put(folder / "en_gum-ud-dev.conllu", f"{ROWS}\n\n{BLANK}\n\n".encode())
    assert [doc.text.strip() for doc in load_gum("dev")] == [TEXT]
    splits = "# Splits\n\n## dev\n\n  * GUM_b_one\n\n## test\n\n * GUM_b_two\n"
    members = {"./dep/": b"", "./dep/GUM_b_one.conllu": f"{ROWS}\n\n{ROWS}\n\n".encode()}
    members |= {"./dep/GUM_b_two.conllu": f"{ROWS}\n\n".encode(), "./splits.md": splits.encode()}
    tar(folder / "gum-dep-coref.tar.xz", members, "w:xz")
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
    path, archive = (tmp_path / "gum" / x for x in ("en_gum-ud-dev.conllu", "gum-dep-coref.tar.xz"))
    content = rows.encode("utf-8", "surrogateescape")
    put(path, content)
    with pytest.raises(FileError, match=rf"en_gum-ud-dev\.conllu.*{told}"):
        load_gum("dev")
    path.unlink()
    members = {"splits.md": b"## dev\n * GUM_b_one\n", "dep/GUM_b_one.conllu": content}
    tar(archive, members, "w:xz")
    with pytest.raises(FileError, match=rf"tar\.xz: dep/GUM_b_one\.conllu.*{told}"):
        load_gum("dev")
    archive.write_bytes(b"no archive")
    with pytest.raises(FileError, match=r"gum-dep-coref\.tar\.xz"):
        load_gum("dev")
