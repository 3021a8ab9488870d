"""Trees: reading, cleaning, and the splits of treebanks."""

import re
import zipfile

import pytest
from hypothesis import given
from nltk import Tree
from serving import put, tar
from treebanks import TREES, one

from annotated.machinery.corpora.registry import find_corpus
from annotated.machinery.trees.penn import load_trees, read_trees, strip_traces, tree_to_brackets


@given(TREES)
def test_a_tree_is_read_as_it_was_written(tree):
    assert one(tree.pformat(margin=10**6)) == tree
    assert list(read_trees(tree.pformat(margin=10).split("\n") * 2)) == [tree, tree]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["(S (NN a))", "", "(S (NN a)"], "line 3"),
        (["(S (NN a))", "word"], "line 2.*'word'"),
        (["(S (NP ) (NN a))"], r"line 1.*\(NP"),
        (["(S (NN a b))"], "line 1"),
        (["(S a (NN b))"], "line 1"),
        ([], "0 lines"),
        (["x" * 9**5], r"line 1.*'x+\.\.\.x+'$"),
        (["", "(S" * 3000], "line 2.*200"),
    ],
)
def test_a_mistake_is_named_with_its_line(lines, message):
    with pytest.raises(ValueError, match=f"^file.*{message}"):
        list(read_trees(lines, "file"))


def test_a_mark_at_the_start_is_no_word():
    assert list(read_trees(["\ufeff(S (NN \ufeff))"])) == [Tree("S", [Tree("NN", ["\ufeff"])])]


def test_what_does_not_count_is_taken_out():
    tree = one(
        "( (S (NP-SBJ-1 (-NONE- *PRO*)) (VP=2 (TO To) (NP (NP (-NONE- *)) (-LRB- -LRB-) (NN x)))) )"
    )
    assert strip_traces(tree) == one("(S (VP (TO To) (NP (-LRB- -LRB-) (NN x))))")
    assert strip_traces(one("( (S (NP (-NONE- *))) )")) is None
    assert strip_traces(one("( (S (NN a)) (. .))")) == one("(TOP (S (NN a)) (. .))")
    assert strip_traces(one("(NP (-RRB- x) (PRP$ y))")) == one("(NP (-RRB- x) (PRP$ y))")


def test_brackets_in_words_can_be_read_again():
    tree = Tree("NP", [Tree("NNS", ["Mice"]), Tree("-LRB-", ["("]), Tree("NN", ["a)b"])])
    assert one(tree_to_brackets(tree)).leaves() == ["Mice", "-LRB-", "a-RRB-b"]
    assert tree.leaves() == ["Mice", "(", "a)b"]


def test_a_treebank_is_found_in_its_folder(tmp_path):
    for section in "02", "22":
        file = tmp_path / "wsj" / section / f"WSJ_{section}01.MRG"
        put(file, b"\xef\xbb\xbf( (S (NP-SBJ (NN a))) )\n")
    with pytest.raises(ValueError, match=r"03/\*.mrg"):
        load_trees(str(tmp_path), "train")
    assert load_trees(str(tmp_path), "dev") == [one("(S (NP (NN a)))")]
    with pytest.raises(ValueError, match="'valid'"):
        load_trees(str(tmp_path), "valid")
    with pytest.raises(ValueError, match="crft"):
        load_trees("crft", "dev")
    for text, said in (
        (b"( (S (NN a)) )\n( (S (NN \xff)) )\n", "line 2.*0xff"),
        (b"", "0 lines"),
        (b"( (S (-NONE- *)) )\n" * 2, "traces"),
    ):
        (tmp_path / "wsj" / "22" / "WSJ_2202.MRG").write_bytes(text)
        with pytest.raises(ValueError, match=rf"WSJ_2202\.MRG.*{said}"):
            load_trees(str(tmp_path), "dev")


@pytest.mark.parametrize(
    "corpus, split, files, said",
    [
        ("wsj-sample", "test", {"README": ""}, "wsj-sample.*test"),
        ("wsj-sample", "test", {}, ""),
        ("wsj-sample", "test", {"a.mrg": "( (S (-NONE- *)) )"}, "a.mrg"),
        ("wsj-sample", "test", {"a.mrg": "\n\udcff"}, "a.mrg, line 2"),
        ("craft", "dev", {"1.tree": "(S (NN a))"}, "craft.*dev"),
        ("craft", "dev", {"1.tree": "(S (NN a))", "craft-ids-dev.txt": "1\n2\n"}, "2.tree"),
    ],
)
def test_an_archive_without_trees_is_refused(tmp_path, monkeypatch, corpus, split, files, said):
    monkeypatch.setenv("ANNOTATED_DATA", str(tmp_path))
    path = tmp_path / find_corpus(corpus).folder / next(iter(find_corpus(corpus).files))
    members = {name: text.encode("utf-8", "surrogateescape") for name, text in files.items()}
    put(path, b"no archive")
    if files and path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)
    elif files:
        tar(path, members, "w:gz")
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}.*{said}"):
        load_trees(corpus, split)
