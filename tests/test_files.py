"""Files: one-line errors that name the file, and atomic writes."""

import errno
import json
import multiprocessing
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from annotated.machinery.errors import FileError, InputError, MissingFile
from annotated.machinery.files import (
    locked,
    read_json,
    read_tensors,
    reading,
    settings,
    write_tensors,
    write_text,
    writing,
    writing_new_folder,
)


@dataclass
class Example:
    size: int
    rate: float = 0.5
    on: bool = False
    names: list[str] = field(default_factory=list)
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"expected a size of at least 1; got {self.size}")
        if self.rate < 0:
            raise InputError(f"expected a rate of at least 0; got {self.rate}")


@pytest.mark.parametrize(
    "error",
    [OSError(errno.EIO, "Input/output error"), KeyError("a"), RecursionError(), MemoryError(),
     UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), Exception("x\n" * 999)],
)  # fmt: skip
def test_an_error_while_reading_becomes_one_line_that_names_the_file(error: Exception):
    with pytest.raises(FileError) as found, reading("some/file", "a list", "make it anew"):
        raise error
    text = str(found.value)
    assert text.startswith("some/file: expected a list; got: ") and text.endswith("; make it anew")
    assert "\n" not in text and len(text) < 300 and found.value.__cause__ is error


@pytest.mark.parametrize("error", [InputError("of ours"), NameError("a fault of the code")])
def test_errors_that_are_not_about_the_file_pass_unchanged(error: Exception):
    with pytest.raises(type(error)) as found, reading("some/file", "a list"):
        raise error
    assert found.value is error


def test_broken_and_missing_json(tmp_path: Path):
    with pytest.raises(MissingFile, match=r"a\.json"):
        read_json(tmp_path / "a.json", "settings")
    for text in "", "{", "nul", '{"a": 1', "\xff", "[1, 2]", "[" * 100_000:
        (tmp_path / "a.json").write_text(text, encoding="latin-1")
        with pytest.raises(FileError, match=r"a\.json"):
            read_json(tmp_path / "a.json", "settings")


def test_settings_become_a_dataclass():
    assert settings(Example, {"size": 2, "rate": 1, "names": ["a"]}, "x") == Example(
        2, 1, False, ["a"]
    )


@pytest.mark.parametrize(
    "values, named",
    [
        ({}, "size"), ({"size": 1, "sise": 2}, "sise"), ({"size": "1"}, "size"),
        ({"size": 1, "on": "no"}, "on"), ({"size": 1.0}, "size"), ({"size": 0}, "size.*0"),
        ({"size": 1, "rate": -1}, "rate.*-1"), ({"size": None}, "size"),
        (None, "None"), (3, "3"), ("size", "size"), (["size"], "size"),
    ],
)  # fmt: skip
def test_wrong_settings_are_named(values: object, named: str):
    with pytest.raises(FileError, match=f"runs/training.json: .*{named}"):
        settings(Example, values, "runs/training.json")


def test_what_is_written_is_whole_or_absent(tmp_path: Path):
    file = tmp_path / "deep" / "a.txt"
    write_text(file, "old")
    with pytest.raises(RuntimeError), writing(file) as part:
        part.write_text("half")
        raise RuntimeError("the process is told to stop")
    assert file.read_text() == "old" and os.listdir(file.parent) == ["a.txt"]
    with pytest.raises(MissingFile, match="another"), writing(file):
        raise MissingFile("another file is not there")
    write_text(file, "new")
    assert file.read_text() == "new" and os.listdir(file.parent) == ["a.txt"]


def test_a_folder_is_whole_or_absent(tmp_path: Path):
    folder = tmp_path / "deep" / "folder"
    for error in RuntimeError("stop"), OSError(28, "No space left"):
        with pytest.raises(type(error)), writing_new_folder(folder) as part:
            write_text(part / "half.txt", "half")
            raise error
    assert os.listdir(folder.parent) == []
    folder.mkdir()  # an empty one may be there
    with writing_new_folder(folder) as part:
        write_text(part / "a.txt", "whole")
    assert os.listdir(folder) == ["a.txt"] and os.listdir(folder.parent) == ["folder"]
    with pytest.raises(InputError, match="folder"), writing_new_folder(folder):
        pass


def test_a_full_disk_is_reported_and_nothing_is_lost(tmp_path: Path):
    resource = pytest.importorskip("resource", reason="no limits of files on this system")
    file = tmp_path / "a.safetensors"
    write_tensors(file, {"a": torch.zeros(2)}, {})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))  # files grow no further
    try:
        with pytest.raises(FileError, match=r"a\.safetensors.*as it was"):
            write_tensors(file, {"a": torch.ones(9999)}, {})
        with pytest.raises(FileError, match="could not be written"):
            write_text(tmp_path / "new.txt", "x" * 20_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert load_file(file)["a"].tolist() == [0, 0]
    assert os.listdir(tmp_path) == ["a.safetensors"]


def test_a_place_that_cannot_be_written_to(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="could not be written"):
        write_text(tmp_path / "file" / "a.txt", "text")
    with pytest.raises(FileError), locked(tmp_path / "file" / ".lock", "in use"):
        pass


def test_tensors_come_back(tmp_path: Path):
    tensors = {"a": torch.randn(2, 3), "b": torch.randn(4, dtype=torch.float64).half()}
    write_tensors(tmp_path / "t", tensors, {"format": "pt"})
    found, metadata = read_tensors(tmp_path / "t", "weights")
    assert metadata == {"format": "pt"}
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)


def test_a_file_of_tensors_that_is_cut_anywhere_is_refused(tmp_path: Path):
    save_file({"a": torch.zeros(2, 3)}, tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    for size in range(len(whole)):
        (tmp_path / "t").write_bytes(whole[:size])
        with pytest.raises(FileError):
            read_tensors(tmp_path / "t", "weights")


def hold(path: Path, held, go) -> None:
    with locked(path, "never"):
        held.set()
        go.wait(60)


@pytest.mark.slow
def test_a_lock_keeps_another_process_out(tmp_path: Path):
    context = multiprocessing.get_context("spawn")
    held, go = context.Event(), context.Event()
    other = context.Process(target=hold, args=(tmp_path / ".lock", held, go))
    other.start()
    try:
        assert held.wait(60)
        with pytest.raises(FileError, match="in use"), locked(tmp_path / ".lock", "in use"):
            pass
    finally:
        other.kill()  # the system lets go of the lock of a process that is killed
        other.join()
    with locked(tmp_path / ".lock", "in use"):
        (tmp_path / "written").write_text(json.dumps(1))


def test_who_waits_for_a_lock_says_so_and_gets_it(tmp_path: Path, capsys):
    order: list[str] = []

    def other() -> None:
        with locked(tmp_path / ".lock", "in use; waiting", timeout=-1):
            order.append("other")

    with locked(tmp_path / ".lock", "in use"):
        thread = threading.Thread(target=other)
        thread.start()
        time.sleep(0.3)
        order.append("first")
    thread.join()
    assert order == ["first", "other"] and capsys.readouterr().err == "in use; waiting\n"
    with locked(tmp_path / ".lock", "in use"), pytest.raises(FileError, match="in use"):  # noqa: SIM117
        with locked(tmp_path / ".lock", "in use", timeout=0.2):
            pass
