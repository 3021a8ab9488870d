"""What tests of files share: looks into folders, archives, and a server that can be told to lie."""

import gzip
import hashlib
import http.server
import io
import socket
import struct
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tarfile import DIRTYPE, REGTYPE

import numpy as np
import pytest


def put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def files(folder: Path) -> list[str]:
    """What lies in a folder, but for locks, which are empty and stay."""
    found = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return sorted(str(path) for path in found if path.suffix != ".lock")


def tar(path: Path, members: dict[str, bytes], mode: str) -> None:
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.type = len(content), DIRTYPE if name.endswith("/") else REGTYPE
            archive.addfile(info, io.BytesIO(content))


class Server(http.server.ThreadingHTTPServer):
    """Serves `content` at every path; what it does wrong can be chosen."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = b""
        self.ranges = True  # whether it knows the header Range
        self.drops: list[int] = []  # after how many bytes it hangs up, one answer after another
        self.says: list[bytes | float | None] = []  # what it sends instead; pauses; None: a reset
        self.stubborn = False  # whether it says the same to everybody
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/folder/text.gz"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, asked = self.server, self.headers.get("Range")
        server.asked.append(asked)
        if server.says:
            return self.say(server.says if server.stubborn else list(server.says))
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and server.ranges else 0
        if start and start >= len(server.content):
            return self.send_error(416)
        self.send_response(206 if start else 200)
        if start:
            end = len(server.content) - 1
            self.send_header("Content-Range", f"bytes {start}-{end}/{len(server.content)}")
        self.send_header("Content-Length", str(len(server.content) - start))
        self.end_headers()
        most = server.drops.pop(0) if server.drops else len(server.content)
        self.wfile.write(server.content[start:][:most])

    def say(self, said: list[bytes | float | None]) -> None:
        if not self.server.stubborn:
            self.server.says.clear()
        for what in said:
            if isinstance(what, bytes):
                self.wfile.write(what)
            elif what is None:
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.connection.close()
            else:
                time.sleep(what)

    def log_message(self, *arguments: object) -> None:  # log_error calls it too
        pass


def answer(body=b"", *headers: str, status: str = "200 OK", length: int | None = -1) -> bytes:
    """An answer to a request; its length is told, told wrong, or (None) not told."""
    told = [] if length is None else [f"Content-Length: {len(body) if length < 0 else length}"]
    head = "\r\n".join([f"HTTP/1.1 {status}", "Connection: close", *told, *headers])
    return head.encode() + b"\r\n\r\n" + body


CONTENT = gzip.compress(np.random.default_rng(0).bytes(300_000), mtime=0)
OTHER = gzip.compress(np.random.default_rng(1).bytes(300_000), mtime=0)  # which is whole too
HALF = CONTENT[: len(CONTENT) // 2]
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server on this machine."""
    for name in "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY":
        monkeypatch.delenv(name, raising=False)
    with Server() as running:
        running.content = CONTENT
        thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()
