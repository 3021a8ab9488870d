"""Files: one-line errors that name the file, and atomic writes."""

import errno
import json
import multiprocessing
import os
import shutil
import stat
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from annotated.machinery.errors import FileError, InputError, MissingFile
from annotated.machinery.files import (
    locked,
    output_file,
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
    found = settings(Example, {"size": 2, "rate": 1, "names": ["a"]}, "x")
    assert found == Example(2, 1, False, ["a"])


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


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with files of all kinds of which none is ours."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "read-only").write_text("kept")
    (tmp_path / "read-only").chmod(0o400)
    os.symlink("loop", tmp_path / "loop")
    os.symlink("kept", tmp_path / "new.part")
    os.symlink("/dev/null", tmp_path / "link-to-null")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


@pytest.mark.parametrize(
    "path", ["folder", "", ".", "/dev/null", "link-to-null", "pipe", "read-only", "loop", "kept/x"]
)
def test_only_files_are_written_and_replaced(place: Path, path: str):
    before = {found.name: found.lstat() for found in place.iterdir()}
    with pytest.raises(FileError, match="writ"):
        write_text(path, "text")
    after = {found.name: found.lstat() for found in place.iterdir()}
    assert {**after} == before and stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_link_is_followed_and_no_name_is_taken(place: Path):
    """What is called as the file, with .part at its end, belongs to somebody else."""
    os.symlink("target", place / "link")
    for name in "link", "new":
        write_text(name, "text")
    write_tensors(place / "weights", {"a": torch.zeros(1)}, {})
    assert os.readlink("link") == "target" and (place / "target").read_text() == "text"
    assert os.readlink("new.part") == "kept" and (place / "kept").read_text() == "kept"
    assert not [path for path in place.iterdir() if path.name.startswith("annotated-")]


@pytest.mark.skipif(os.name != "posix", reason="permissions of Unix")
def test_permissions_are_those_of_the_system_or_of_the_file_before(tmp_path: Path):
    old = os.umask(0o027)
    try:
        for write in write_text, lambda path, _: write_tensors(path, {"a": torch.zeros(1)}, {}):
            file = tmp_path / f"{write.__name__[:5]}"
            write(file, "text")
            assert stat.S_IMODE(file.stat().st_mode) == 0o640
            file.chmod(0o604)
            write(file, "text")
            assert stat.S_IMODE(file.stat().st_mode) == 0o604
    finally:
        os.umask(old)


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_of_two_that_write_one_place_the_first_wins(tmp_path: Path, kind: str, there: bool):
    """Another process comes in between."""
    place = tmp_path / "place"
    where = place if kind == "file" else place / "b"
    if there:
        place.write_text("old") if kind == "file" else place.mkdir()
    write = writing if kind == "file" else writing_new_folder
    with pytest.raises(FileError, match="place"), write(place) as part:
        (part if kind == "file" else part / "a").write_text("second")
        write_text(where, "first")
    assert where.read_text() == "first" and os.listdir(tmp_path) == ["place"]
    assert kind == "file" or os.listdir(place) == ["b"]


def test_an_empty_folder_that_is_there_stays_what_it_is(tmp_path: Path, monkeypatch):
    """It may be the current folder, the target of a link, or a mount."""
    (tmp_path / "here").mkdir(mode=0o700)
    os.symlink("here", tmp_path / "link")
    before = (tmp_path / "here").stat()
    monkeypatch.chdir(tmp_path / "here")
    for path in ".", "../link":
        with writing_new_folder(path) as part:
            (part / "deep").mkdir()
            write_text(part / "deep" / "a", "text")
        after = Path.cwd().stat()
        assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
        assert os.listdir() == ["deep"]
        with pytest.raises(InputError, match="folder"), writing_new_folder(path):
            pass
        shutil.rmtree("deep")
    for path in "", "../link/../gone/../here/x\0":
        with pytest.raises(ValueError), writing_new_folder(path):
            pass


@pytest.mark.parametrize("name", ["\udcff", "a\0b", "x" * 300, "loop/new"])
def test_names_that_no_folder_can_have(tmp_path: Path, name: str):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError), writing_new_folder(tmp_path / name):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["loop"]


def test_an_error_inside_a_new_folder_names_the_place_that_was_asked_for(tmp_path: Path):
    with pytest.raises(FileError) as told, writing_new_folder(tmp_path / "new") as part:
        write_text(part / ("x" * 300), "")
    assert str(tmp_path / "new") in str(told.value) and ".part" not in str(told.value)


def test_an_output_is_no_input(tmp_path: Path):
    source, link = tmp_path / "source", tmp_path / "link"
    source.write_text("text")
    link.symlink_to(source)
    os.link(source, tmp_path / "hard")
    for output in source, link, tmp_path / "hard":
        with pytest.raises(FileError, match=output.name):
            output_file(output, source)
    output_file(tmp_path / "other", source, tmp_path)


def test_a_lock_empties_no_file(tmp_path: Path):
    (tmp_path / "a.lock").write_text("mine")
    os.symlink("a.lock", tmp_path / "b.lock")
    for name in "a.lock", "b.lock":
        with pytest.raises(FileError, match=name):  # noqa: SIM117
            with locked(tmp_path / name, "in use", timeout=-1):
                pass
    for place in Path("/proc/x.lock"), tmp_path / "a.lock" / "x.lock":
        with pytest.raises(FileError), locked(place, "in use", timeout=-1):
            pass
    assert (tmp_path / "a.lock").read_text() == "mine"


@pytest.mark.parametrize("read", [read_json, read_tensors])
def test_a_pipe_is_not_waited_for(place: Path, read):
    with pytest.raises(FileError, match="pipe"):
        read(place / "pipe", "a file")


def test_a_folder_is_whole_or_absent(tmp_path: Path):
    folder = tmp_path / "deep" / "folder"
    for error in RuntimeError("stop"), OSError(28, "No space left"):
        with pytest.raises(type(error)), writing_new_folder(folder) as part:
            write_text(part / "half.txt", "half")
            raise error
    assert os.listdir(folder.parent) == []
    folder.mkdir()  # an empty one may be there
    (folder / "annotated-a1b2c3d4.part").mkdir()  # and what a killed process left
    with writing_new_folder(folder) as part:
        write_text(part / "a.txt", "whole")
    assert {*os.listdir(folder)} == {"a.txt", "annotated-a1b2c3d4.part"}
    assert os.listdir(folder.parent) == ["folder"]
    with pytest.raises(InputError, match="folder"), writing_new_folder(folder):
        pass


def test_a_full_disk_is_reported_and_nothing_is_lost(tmp_path: Path):
    resource = pytest.importorskip("resource", reason="no limits of files on this system")
    file = tmp_path / "a.safetensors"
    write_tensors(file, {"a": torch.zeros(2)}, {})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))  # files grow no further
    try:
        with pytest.raises(FileError, match=r"a\.safetensors"):
            write_tensors(file, {"a": torch.ones(9999)}, {})
        with pytest.raises(FileError, match=r"new\.txt"):
            write_text(tmp_path / "new.txt", "x" * 20_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert load_file(file)["a"].tolist() == [0, 0]
    assert os.listdir(tmp_path) == ["a.safetensors"]


def test_tensors_come_back_and_a_file_that_is_cut_anywhere_is_refused(tmp_path: Path):
    tensors = {"a": torch.randn(2, 3), "b": torch.randn(4, dtype=torch.float64).half()}
    write_tensors(tmp_path / "t", tensors, {"format": "pt"})
    found, metadata = read_tensors(tmp_path / "t", "weights")
    assert metadata == {"format": "pt"}
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)
    whole = (tmp_path / "t").read_bytes()
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
