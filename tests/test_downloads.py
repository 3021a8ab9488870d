"""Downloads: broken ones are resumed, wrong ones are refused, and one process at a time."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from serving import CONTENT, HALF, OTHER, SHA256, Server, answer, files, serving

from annotated.machinery.corpora import downloads
from annotated.machinery.corpora.downloads import download
from annotated.machinery.errors import FileError

SIZE = len(CONTENT)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serving(monkeypatch) as running:
        yield running


def test_a_download_is_checked_and_placed(server: Server, tmp_path: Path, capsys):
    place = tmp_path / "cache" / "text.gz"
    for _ in range(2):  # the second time, it is there
        assert download(server.url, place, SHA256, SIZE) == place
    assert place.read_bytes() == CONTENT and server.asked == [None]
    assert files(tmp_path) == ["cache/text.gz"]
    assert "\n" not in capsys.readouterr().err  # the progress bar leaves nothing behind


@pytest.mark.parametrize("size", [SIZE, None])
def test_a_download_goes_on_where_it_broke_off(server: Server, tmp_path: Path, size):
    server.drops = [100_000, 50_000]
    assert download(server.url, tmp_path / "text.gz", SHA256, size).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=100000-", "bytes=150000-"]


@pytest.mark.parametrize(
    ("part", "size", "ranges", "asked"),
    [
        (CONTENT[:1234], None, True, ["bytes=1234-"]),
        (CONTENT, SIZE, True, []),
        (CONTENT, None, True, [f"bytes={SIZE}-", None]),  # no such range: from the beginning
        (CONTENT + b"x", SIZE, True, [f"bytes={SIZE + 1}-", None]),
        (b"something else", SIZE, False, ["bytes=14-"]),  # a server without ranges starts anew
    ],
)
def test_a_part_of_an_earlier_download_is_used(server, tmp_path: Path, part, size, ranges, asked):
    server.ranges = ranges
    (tmp_path / "text.gz.part").write_bytes(part)
    assert download(server.url, tmp_path / "text.gz", SHA256, size).read_bytes() == CONTENT
    assert server.asked == asked and files(tmp_path) == ["text.gz"]


def test_a_connection_that_brings_little_is_given_up_and_nothing_lost(server, tmp_path: Path):
    server.drops = [20_000, 1000]
    with pytest.raises(OSError) as error:
        download(server.url, tmp_path / "text.gz", SHA256, SIZE)
    assert server.url in str(error.value) and "21000 bytes are kept" in str(error.value)
    assert (tmp_path / "text.gz.part").read_bytes() == CONTENT[:21_000]
    assert download(server.url, tmp_path / "text.gz", SHA256, SIZE).read_bytes() == CONTENT


@pytest.mark.parametrize("begun", [b"", b"\0" * 500])
def test_another_file_is_refused_and_what_was_there_stays(server: Server, tmp_path: Path, begun):
    server.content = OTHER
    (tmp_path / "text.gz").write_bytes(b"old")
    (tmp_path / "text.gz.part").write_bytes(begun)
    with pytest.raises(ValueError, match=SHA256) as error:
        download(server.url, tmp_path / "text.gz", SHA256)
    assert server.url in str(error.value)
    assert files(tmp_path) == ["text.gz"] and (tmp_path / "text.gz").read_bytes() == b"old"


PAGE = b"\xef\xbb\xbf\n<!DOCTYPE html><html><body>Please log in.</body></html>"
LIES = {
    "a page": answer(PAGE, "Content-Type: text/html; charset=utf-8"),
    "nothing without a length": answer(length=None),
    "no content": answer(status="204 No Content", length=None),
    "half": answer(HALF, length=SIZE),
    "half as if it were all": answer(HALF),
    "half a chunk": answer(b"ffff\r\n" + HALF[:1000], "Transfer-Encoding: chunked", length=None),
    "a part": answer(HALF, f"Content-Range: bytes 0-{len(HALF) - 1}/{SIZE}", status="206 Part"),
    "altered": answer(CONTENT[:5000] + b"garbage" + CONTENT[5007:]),
    "too much": answer(CONTENT + b"garbage"),
    "too much without a length": answer(CONTENT + b"x" * 500_000, length=None),
    "not found": answer(status="404 Not Found"),
    "an error": answer(b"<html>error</html>", status="500 Internal Server Error"),
    "nonsense": b"\0\1\2\r\n\r\n",
    "a negative length": answer(HALF, "Content-Length: -5", length=None),
    "no such range": answer(status="416 Range Not Satisfiable"),
    "another size": answer(CONTENT[:99]),
    "a local file": answer(b"", "Location: file:///etc/hostname", status="302 Found"),
    "a reset": None,
}


@pytest.mark.parametrize("size", [SIZE, None])
@pytest.mark.parametrize("lie", LIES)
def test_no_answer_passes_for_the_file(server: Server, tmp_path: Path, lie: str, size):
    server.says, server.stubborn = [LIES[lie]], True
    with pytest.raises(FileError) as error:
        download(server.url, tmp_path / "text.gz", SHA256, size)
    text = str(error.value)
    assert server.url in text and "\n" not in text and len(text) < 600
    assert set(files(tmp_path)) <= {"text.gz.part"} and len(server.asked) < 15
    server.says = []  # and what is left behind is no obstacle to the truth
    assert download(server.url, tmp_path / "text.gz", SHA256, size).read_bytes() == CONTENT
    assert files(tmp_path) == ["text.gz"]


def ranged(start: int, total: int, body: bytes) -> bytes:
    span = f"Content-Range: bytes {start}-{start + len(body) - 1}/{total}"
    return answer(body, span, status="206 Partial Content")


@pytest.mark.parametrize(
    "wrong",
    [
        ranged(5, SIZE, CONTENT[5:]),
        ranged(100_000, 400_000, CONTENT[100_000:] + b"x" * (400_000 - SIZE)),
        answer(CONTENT[100_000:], status="206 Partial Content"),
        answer(OTHER + b"x"),
    ],
)
def test_what_does_not_go_on_where_it_should_is_refused(server, tmp_path: Path, wrong: bytes):
    (tmp_path / "text.gz.part").write_bytes(CONTENT[:100_000])
    server.says, server.stubborn = [wrong], True
    with pytest.raises(FileError, match=re.escape(server.url)):
        download(server.url, tmp_path / "text.gz", SHA256, SIZE)
    assert (tmp_path / "text.gz.part").read_bytes() == CONTENT[:100_000]


PIECES = [CONTENT[i : i + 30_000] for i in range(0, SIZE, 30_000)]
BEGUN = [answer(length=SIZE) + CONTENT[:20_001], 0.2]


@pytest.mark.parametrize(
    ("says", "asked"),
    [  # slow is not dead, and of a connection that is silent or reset nothing is lost
        ([answer(length=SIZE), *(what for piece in PIECES for what in (0.1, piece))], [None]),
        ([*BEGUN, 2.0], [None, "bytes=20001-"]),
        ([*BEGUN, None], [None, "bytes=20001-"]),
    ],
    ids=["slow", "silence", "reset"],
)
def test_a_dead_connection_is_replaced(server, tmp_path: Path, monkeypatch, says: list, asked):
    monkeypatch.setattr(downloads, "_TIMEOUT", 0.5)
    server.says = says
    assert download(server.url, tmp_path / "text.gz", SHA256).read_bytes() == CONTENT
    assert server.asked == asked


def test_threads_that_want_the_same_file_take_turns(server, tmp_path: Path, capsys):
    server.says = [answer(length=SIZE) + HALF, 0.5, CONTENT[len(HALF) :]]
    place = tmp_path / "text.gz"
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: download(server.url, place, SHA256, SIZE), range(8)))
    assert {path.read_bytes() for path in found} == {CONTENT} and server.asked == [None]
    assert files(tmp_path) == ["text.gz"]
    assert "another process downloads text.gz; waiting" in capsys.readouterr().err


@pytest.mark.slow
def test_a_process_that_waits_for_another_goes_on_when_that_one_dies(server, tmp_path: Path):
    server.says = [answer(length=SIZE) + HALF, 60.0]  # to the first that comes
    place, part = tmp_path / "text.gz", tmp_path / "text.gz.part"
    code = "import sys, pathlib; from annotated.machinery.corpora.downloads import download;"
    code += "download(sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3])"
    command = [sys.executable, "-c", code, server.url, str(place), SHA256]
    begun = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    with begun as other, ThreadPoolExecutor(1) as pool:
        while other.poll() is None and not (part.exists() and part.stat().st_size == len(HALF)):
            time.sleep(0.05)
        job = pool.submit(download, server.url, place, SHA256)
        time.sleep(0.3)
        assert not job.done() and server.asked == [None]
        other.kill()
        assert job.result(60).read_bytes() == CONTENT
    assert files(tmp_path) == ["text.gz"]
    assert server.asked == [None, f"bytes={len(HALF)}-"]  # and nothing is fetched twice
