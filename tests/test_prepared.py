"""Prepared corpora: the tokenizer's ids, complete or absent, and never those of another corpus."""

import json
import mmap
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from tiny import wild
from tokenizers import Tokenizer

from annotated.data import encode_source, encode_target, train_bpe
from annotated.machinery.cli.main import main
from annotated.machinery.corpora import prepared
from annotated.machinery.corpora.downloads import sha256_of
from annotated.machinery.corpora.prepared import PreparedCorpus, draw_lines, prepare
from annotated.machinery.errors import FileError, InputError, MissingFile
from annotated.machinery.formats.pretrained import load_pretrained
from annotated.machinery.translator import Translator
from annotated.training import TrainingConfig

EN = ["A dog  runs.", " Two men ride bicycles!", "cafe\u0301 ▁x </s>", "9 red cats"]
DE = ["Ein Hund läuft.", "Zwei Männer fahren Rad – „schön“.", "Äpfel <s>", "9 rote Katzen "]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A corpus of 40 and 4 pairs in a folder."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for split, times in ("train", 10), ("dev", 1):
        for lang, lines in ("en", EN), ("de", DE):
            (folder / f"{split}.{lang}").write_text("\n".join(lines * times) + "\n", "utf-8")
    return folder


@pytest.fixture
def asked(texts: Path) -> TrainingConfig:
    return TrainingConfig(data=f"{texts}-en-de", vocab_size=90, N=1, d_model=16, h=2)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of our own."""
    monkeypatch.setattr(prepared, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.*")}


def test_a_prepared_corpus_is_what_the_tokenizer_gives(asked: TrainingConfig):
    corpus = PreparedCorpus.open(prepare(asked))
    tokenizer = train_bpe(EN * 10 + DE * 10, 90)
    assert (corpus.folder / "tokenizer.json").read_text("utf-8") == tokenizer.to_str()
    expected = list(zip(encode_source(tokenizer, EN), encode_target(tokenizer, DE), strict=True))
    assert [corpus.dev[i] for i in range(4)] == expected
    assert [corpus.train[i] for i in range(40)] == expected * 10


def test_the_arrays_are_mapped_into_memory(asked: TrainingConfig):
    for pairs in (corpus := PreparedCorpus.open(prepare(asked))).train, corpus.dev:
        for array in pairs.ids, pairs.lengths:
            base = array
            while isinstance(base, np.ndarray):
                base = base.base
            assert isinstance(base, mmap.mmap) and not array.flags.writeable


def test_the_manifest_lists_inputs_and_outputs(asked: TrainingConfig, texts: Path):
    with (texts / "train.en").open("a", encoding="utf-8") as file:
        file.write("\n \n")
    with (texts / "train.de").open("ab") as file:
        file.write(b"x\n\xff\n")
    with pytest.warns(UserWarning, match="40 good pairs of 42"):
        folder = prepare(replace(asked, on_bad="drop"))
    manifest = PreparedCorpus.open(folder).manifest
    assert manifest.pairs == {"train": 40, "dev": 4}
    faults = {"with an empty side": 1, "not UTF-8": 1}
    assert manifest.dropped == {f"{texts}, train": faults}
    for files, place in (manifest.inputs, Path("/")), (manifest.files, folder):
        for name, entry in files.items():
            assert entry["sha256"] == sha256_of(place / name)
            assert entry["bytes"] == (place / name).stat().st_size
    assert {Path(name).name for name in manifest.inputs} == set(os.listdir(texts))
    assert manifest.rules["vocab_size"] == 90 and manifest.versions["numpy"] == np.__version__


@pytest.mark.parametrize("shorter", ["en", "de"])
def test_a_missing_line_is_never_dropped_for_it_shifts_all_others(asked, texts: Path, shorter):
    path = texts / f"train.{shorter}"
    lines = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:5] + lines[6:]), "utf-8")
    with pytest.raises(FileError, match=r"train.* equal length.*got 39 and 40 lines"):
        prepare(replace(asked, on_bad="drop"))


@pytest.mark.processes
def test_several_processes_write_the_same(
    asked: TrainingConfig, texts: Path, tmp_path, monkeypatch
):
    monkeypatch.setattr(prepared, "_MANY", 10)
    monkeypatch.setattr(prepared, "_BLOCK", 7)
    for lang in "en", "de":
        path = texts / f"train.{lang}"
        path.write_text(path.read_text("utf-8") + "x\n" * 30, "utf-8")
    one = prepare(asked, tmp_path / "one")
    monkeypatch.setattr(prepared, "_LARGE", 0)  # so that another learns the vocabulary too
    two = prepare(asked, tmp_path / "two", processes=2)
    assert contents(one) == contents(two)


def test_a_vocabulary_that_comes_with_weights_is_taken(asked, tmp_path):
    known = train_bpe(EN + DE, 70)
    Translator(wild(70), known).save(tmp_path / "model")
    corpus = PreparedCorpus.open(prepare(replace(asked, from_=str(tmp_path / "model"))))
    assert (corpus.folder / "tokenizer.json").read_text("utf-8") == known.to_str()
    assert corpus.dev[0][0] == encode_source(known, EN)[0]


def test_a_header_has_the_same_size_for_every_length(tmp_path: Path):
    sizes = set()
    for count in 0, 7, 10**6, 10**12:
        with (tmp_path / "x.npy").open("wb") as file:
            prepared._write_header(file, np.dtype(np.uint16), count)
            sizes.add(file.tell())
    assert len(sizes) == 1


def test_a_small_corpus_is_its_own_sample():
    lines = [(n, f"s{n}", f"t{n}") for n in range(50)]
    assert draw_lines(iter(lines), 50) == (50, lines) == draw_lines(iter(lines), 60)
    assert draw_lines(iter([]), 5) == (0, []) and draw_lines(iter(lines), 0) == (50, [])


def test_each_line_has_the_same_chance_to_be_drawn():
    lines = [(n, "", "") for n in range(20_000)]
    total, drawn = draw_lines(iter(lines), 2000)
    assert total == 20_000 and len({n for n, *_ in drawn}) == 2000
    counts = np.bincount([n // 2000 for n, *_ in drawn], minlength=10)
    assert (abs(counts - 200) < 70).all()  # give or take five standard deviations
    assert draw_lines(iter(lines), 2000) == (total, drawn)


def test_the_vocabulary_is_learned_from_the_sample(asked: TrainingConfig):
    sizes = []
    for config in replace(asked, vocab_pairs=1), asked:
        corpus = PreparedCorpus.open(prepare(config))
        assert len(corpus.train) == 40
        sizes.append(Tokenizer.from_file(str(corpus.folder / "tokenizer.json")).get_vocab_size())
    assert sizes[0] < sizes[1]


def test_other_rules_make_another_corpus(asked: TrainingConfig):
    changes = {"vocab_size": 91, "vocabulary": "wordpiece", "vocab_pairs": 9, "on_bad": "drop"}
    made = {prepare(replace(asked, **{name: value})) for name, value in changes.items()}
    folder = prepare(asked)
    assert len(made | {folder}) == 5
    assert prepare(replace(asked, d_ff=32, seed=7, updates=5, out="elsewhere")) == folder


def test_a_changed_text_makes_another_corpus(asked: TrainingConfig, texts: Path):
    first = prepare(asked)
    text = (texts / "train.de").read_text("utf-8")
    (texts / "train.de").write_text(text.replace("Hund", "Mund"), "utf-8")  # of the same size
    second = prepare(asked)
    one, other = (PreparedCorpus.open(folder).manifest for folder in (first, second))
    assert first != second and one.sha256 != other.sha256
    shutil.copytree(first, second.with_name("copy"))
    with pytest.raises(FileError, match="copy"):
        prepare(asked, second.with_name("copy"))


def test_two_at_once_are_one_after_the_other(asked: TrainingConfig, monkeypatch):
    real, written = prepared._write_corpus, []

    def slow(*given: object) -> None:
        written.append(time.perf_counter())
        time.sleep(0.3)
        real(*given)

    monkeypatch.setattr(prepared, "_write_corpus", slow)
    with ThreadPoolExecutor(3) as pool:
        assert len(set(pool.map(prepare, [asked] * 3))) == 1 and len(written) == 1


def test_the_command_prepares_and_prints_the_folder(asked, tmp_path: Path, capsys):
    words = ["prepare", "--data", asked.data, "--vocab-size", "90", "--out", str(tmp_path / "here")]
    before = {}
    for state in "is prepared:", "nothing to do":
        main(words)
        printed = capsys.readouterr()
        assert printed.out.strip() == str(tmp_path / "here") and state in printed.err
        times = {path: path.stat().st_mtime_ns for path in (tmp_path / "here").iterdir()}
        assert not before or before == times
        before = times
    assert prepare(asked).name.endswith(PreparedCorpus.open(tmp_path / "here").manifest.key)


def test_a_run_on_a_prepared_corpus_has_the_rules_of_that_corpus(asked, tmp_path: Path, capsys):
    here, run = str(tmp_path / "here"), str(tmp_path / "run")
    main(["prepare", "--data", asked.data, "--vocab-size", "90", "--out", here])
    small = ["--updates", "1", "--N", "1", "--d-model", "16", "--d-ff", "16", "--h", "2"]
    main(["train", "--prepared", here, "--out", run, *small])
    assert load_pretrained(run).tokenizer.get_vocab_size() == 90
    with pytest.raises(SystemExit):  # what is given must still agree
        main(["train", "--prepared", here, "--vocab-size", "80", "--out", f"{run}2", *small])
    assert "vocab_size=90; got 80" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["train", "--preset", "multi30k-en-de", "--prepared", here, "--out", f"{run}2"])
    assert "got multi30k-en-de" in capsys.readouterr().err


def test_a_run_finds_its_corpus_or_makes_it(asked, tmp_path: Path, monkeypatch):
    run = tmp_path / "run"
    own = PreparedCorpus.find_or_prepare(asked, run, processes=2)
    assert own.folder == run / "prepared" and len(own.train) == 40
    before = contents(own.folder)
    assert PreparedCorpus.find_or_prepare(asked, run).folder == own.folder
    with pytest.raises(FileError, match=str(own.folder)):
        PreparedCorpus.find_or_prepare(replace(asked, vocab_size=80), run)
    assert before == contents(own.folder)
    monkeypatch.setattr(prepared, "_SMALL", 0)
    with pytest.raises(InputError, match="2 processes"):
        PreparedCorpus.find_or_prepare(asked, run, processes=2)
    shared = PreparedCorpus.find_or_prepare(asked, run)
    assert shared.folder == prepare(asked) and shared.manifest.sha256 == own.manifest.sha256
    monkeypatch.setattr(prepared, "_write_corpus", None)
    assert PreparedCorpus.find_or_prepare(asked, run, processes=2).folder == shared.folder
    named = replace(asked, prepared=str(own.folder))
    assert PreparedCorpus.find_or_prepare(named, run).folder == own.folder
    with pytest.raises(InputError, match="vocab_size=90; got 80"):
        PreparedCorpus.find_or_prepare(replace(named, vocab_size=80), run)
    with pytest.raises(MissingFile, match="nowhere"):
        PreparedCorpus.find_or_prepare(replace(named, prepared="nowhere"), run)


def test_a_run_keeps_the_vocabulary_of_its_corpus(asked: TrainingConfig, tmp_path: Path):
    corpus = PreparedCorpus.open(prepare(asked))
    corpus.copy_vocabulary(tmp_path / "run")
    corpus.check_vocabulary(tmp_path / "run")
    (tmp_path / "run" / "tokenizer.json").write_text("{}")
    with pytest.raises(FileError, match=r"run/tokenizer\.json"):
        corpus.check_vocabulary(tmp_path / "run")
    with pytest.raises(MissingFile, match=r"elsewhere/tokenizer\.json"):
        corpus.check_vocabulary(tmp_path / "elsewhere")


def refused(asked: TrainingConfig, error: type[Exception], match: str, cache: Path) -> None:
    """Preparing fails with this message, and leaves nothing but a lock."""
    with pytest.raises(error, match=match):
        prepare(asked)
    assert not [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_bad_lines_beyond_the_first_block_have_their_numbers(asked, texts, cache, monkeypatch):
    monkeypatch.setattr(prepared, "_BLOCK", 7)
    lines = (texts / "train.de").read_text("utf-8").split("\n")
    lines[8], lines[30] = "", " "
    (texts / "train.de").write_text("\n".join(lines), "utf-8")
    refused(asked, ValueError, r"38 good pairs of 40; 2 with an empty side \(lines 9, 31\)", cache)


def test_development_sentences_among_the_training_sentences_are_warned_of(asked, texts, recwarn):
    with pytest.warns(UserWarning, match="4 of 4 development sentences are also training"):
        prepare(asked)
    for lang in "en", "de":
        lines = [f"{number} dogs" for number in range(1000, 1099)]
        (texts / f"dev.{lang}").write_text("\n".join([*lines, *EN[:1]]) + "\n", "utf-8")
    recwarn.clear()
    prepare(asked)  # one of a hundred sentences may be in both by chance
    assert not recwarn.list


def test_a_split_without_pairs_is_refused(asked: TrainingConfig, texts: Path, cache: Path):
    for lang in "en", "de":
        (texts / f"dev.{lang}").write_text("", "utf-8")
    refused(asked, ValueError, "no dev", cache)


@pytest.mark.parametrize("at", [(np.lib.format, "write_array_header_1_0"), (np, "save"),
                                (prepared, "write_text")])  # fmt: skip
def test_a_full_disk_is_reported_and_leaves_nothing(asked, cache: Path, monkeypatch, at: tuple):
    monkeypatch.setattr(*at, Mock(side_effect=OSError(28, "No space left on device")))
    refused(asked, FileError, "No space left on device", cache)


def test_a_foreign_folder_is_not_written_over(asked: TrainingConfig, texts: Path):
    before = contents(texts)
    with pytest.raises(InputError, match=r"folder.*texts"):
        prepare(asked, texts)
    assert not texts.with_name("texts.lock").exists() and contents(texts) == before


def damages(content: bytes) -> dict[str, bytes]:
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    return {"empty": b"", "cut": content[:-2], "longer": content + b"x", "flipped": flipped}


@pytest.mark.parametrize(
    "name", ["tokenizer.json", "manifest.json", "train.ids.npy", "dev.lengths.npy"]
)
def test_a_damaged_file_is_named(asked: TrainingConfig, name: str):
    folder = prepare(asked)
    path, content = folder / name, (folder / name).read_bytes()
    for what, damaged in damages(content).items():
        if name == "manifest.json" and what in ("longer", "flipped"):
            continue  # its content is compared with the files
        path.write_bytes(damaged)
        with pytest.raises(FileError, match=f"{path}: expected") as error:
            PreparedCorpus.open(folder)
        assert "\n" not in str(error.value) and "annotated prepare" in str(error.value)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=str(folder)):
        PreparedCorpus.open(folder)
    path.write_bytes(content)
    assert len(PreparedCorpus.open(folder).train) == 40


def test_a_manifest_with_other_content_is_refused(asked: TrainingConfig):
    path = prepare(asked) / "manifest.json"
    content = json.loads(path.read_text("utf-8"))
    for key in "format", "files":
        for value in None, 4, "x", {"train.ids.npy": {}}, {"train.ids.npy": 3}, []:
            path.write_text(json.dumps(content | {key: value}), "utf-8")
            with pytest.raises(FileError, match=f"^{path.parent}/.*: expected"):
                PreparedCorpus.open(path.parent)


def test_a_flipped_id_in_a_large_file_is_seen_by_the_command(asked, monkeypatch):
    folder = prepare(asked)
    monkeypatch.setattr(prepared, "_QUICK", 0)
    whole, lengths = (folder / "dev.lengths.npy").read_bytes(), np.load(folder / "dev.lengths.npy")
    lengths[1, 0] += 1
    np.save(folder / "dev.lengths.npy", lengths)  # which do not add up
    with pytest.raises(FileError, match="lengths"):
        PreparedCorpus.open(folder)
    (folder / "dev.lengths.npy").write_bytes(whole)
    path = folder / "train.ids.npy"
    path.write_bytes(damages(path.read_bytes())["flipped"])
    PreparedCorpus.open(folder)  # too large to be read each time
    with pytest.raises(FileError, match=r"train\.ids\.npy: .*SHA-256"):
        prepare(asked)


@pytest.mark.processes
def test_a_killed_preparation_is_never_half_used(
    asked: TrainingConfig, texts: Path, tmp_path: Path
):
    """Killed at random moments, then let finish: the same bytes as without."""
    for lang, lines in ("en", EN), ("de", DE):
        text = "".join(f"{line} {n * n}\n" for n in range(9000) for line in lines)
        (texts / f"train.{lang}").write_text(text, "utf-8")
    whole = contents(prepare(asked, tmp_path / "whole"))
    out = tmp_path / "killed"
    words = [sys.executable, "-m", "annotated", "prepare", "--data", asked.data]
    words += ["--vocab-size", "90", "--out", str(out)]
    chance = random.Random(0)
    for _ in range(4):
        running = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        while running.poll() is None and not list(tmp_path.glob("*.part/killed")):
            time.sleep(0.02)
        time.sleep(chance.uniform(0, 1.5))
        running.send_signal(signal.SIGKILL)
        running.communicate()
        assert not out.exists() or contents(out) == whole
    prepare(asked, out)
    assert contents(out) == whole


@pytest.mark.processes
@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python has no such option")
def test_no_module_of_the_current_folder_is_run(tmp_path, monkeypatch):
    for name in "pickle", "socket", "signal", "runpy":
        (tmp_path / f"{name}.py").write_text(f"open('{name} ran', 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    monkeypatch.setattr(sys, "path", [*filter(None, sys.path)])
    with prepared._pool(1) as pool:
        assert pool.submit(len, "abc").result() == 3
    assert not list(tmp_path.glob("*ran")) and not os.environ.get("PYTHONSAFEPATH")


@pytest.mark.processes
def test_a_process_that_ends_early_is_told_with_its_causes():
    causes = r"__main__.*standard input.*lack of memory"
    with pytest.raises(InputError, match=causes), prepared._pool(1) as pool:
        pool.submit(os._exit, 1).result()
