"""Models of the Hub, from a server that answers as it does."""

import hashlib
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from annotated.machinery.errors import InputError
from annotated.machinery.formats import hub as hub_module
from annotated.machinery.formats.causal import load_language_model

pytest.importorskip("transformers")
pytest.importorskip("sentencepiece")

from marian_models import published
from published_models import trained

REVISION = "ab" * 20
CARD = "---\nlanguage: [en, de]\nlicense: cc-by-4.0\n---\nA model.\n"


class Hub(http.server.BaseHTTPRequestHandler):
    """One model, owner/tiny, out of a folder."""

    folder: Path
    asked: list[str]

    def log_message(self, *_: object) -> None: ...

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(self.path.partition("?")[0])
        self.asked.append(path)
        files = {
            str(file.relative_to(self.folder)): file.read_bytes()
            for file in self.folder.rglob("*")
            if file.is_file()
        }
        listed = [
            {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
            for name, data in files.items()
        ]
        head = {"X-Repo-Commit": REVISION}
        if match := re.fullmatch(rf"/owner/tiny/resolve/(?:main|{REVISION})/(.*)", path):
            body = files.get(match[1])
            head |= {"ETag": hashlib.sha1(body or b"").hexdigest()}
        elif re.fullmatch(rf"/api/models/owner/tiny/tree/(main|{REVISION})", path):
            body = json.dumps(listed).encode()
        elif re.fullmatch(rf"/api/models/owner/tiny(/revision/(main|{REVISION}))?", path):
            said = {"id": "owner/tiny", "sha": REVISION, "private": False, "downloads": 0}
            said |= {"siblings": [{"rfilename": n} for n in files], "tags": []}
            body = json.dumps(said).encode()
        else:
            body = None
        self.send_response(200 if body is not None else 404)
        if body is None and "/resolve/" in path and "/owner/tiny/" in path:
            head |= {"X-Error-Code": "EntryNotFound"}
        for name, value in head.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        if self.command == "GET" and body:
            self.wfile.write(body)


@contextmanager
def serving(folder: Path) -> Iterator[http.server.ThreadingHTTPServer]:
    handler = type("Handler", (Hub,), {"folder": folder, "asked": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def started(words: list[str], tmp_path: Path, port: int) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own, because the library reads its settings once."""
    own = {"HF_ENDPOINT": f"http://127.0.0.1:{port}", "HF_HOME": str(tmp_path / "cache")}
    options = {"capture_output": True, "text": True, "timeout": 120, "cwd": tmp_path}
    return subprocess.run([sys.executable, *words], env=os.environ | own, **options)


def translate(name: str, *place: Any) -> subprocess.CompletedProcess[str]:
    return started(["-m", "annotated", "translate", name, "the cat", "--beam", "1"], *place)


@pytest.mark.slow
def test_a_name_is_fetched_once_and_stays_what_it_was(tmp_path):
    published(tmp_path / "served")
    (tmp_path / "served" / "README.md").write_text(CARD)
    with serving(tmp_path / "served") as server:
        port = server.server_address[1]
        first = translate("owner/tiny", tmp_path, port)
        assert first.returncode == 0, first.stderr
        assert f"owner/tiny, revision {REVISION}: license cc-by-4.0" in first.stderr
        assert "owner/tiny: a text must begin with one of >>deu<<" in first.stderr
        assert "owner/tiny: there is no such folder here, so it is downloaded" in first.stderr
        for name in "owner/none", "owner/tiny@other":
            unknown = translate(name, tmp_path, port)
            assert unknown.returncode == 2 and unknown.stderr.count("\n") == 1
            wanted = "expected a folder that exists, or a model of the Hub"
            start = f"annotated: {name}: {wanted}; got: "
            assert unknown.stderr.startswith(start)
    offline = translate("owner/other", tmp_path, port)
    assert offline.returncode == 2 and offline.stderr.count("\n") == 1, offline.stderr
    for name in "owner/tiny", f"owner/tiny@{REVISION}":
        again = translate(name, tmp_path, port)
        assert (again.returncode, again.stdout) == (0, first.stdout), again.stderr


@pytest.mark.slow
def test_a_language_model_is_fetched_once_in_all_its_files(tmp_path):
    transformers = pytest.importorskip("transformers")
    shape = {"n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 8, "vocab_size": 300}
    special = {"bos_token_id": 0, "eos_token_id": 0}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape, **special))
    folder = tmp_path / "served"
    model.save_pretrained(folder, max_shard_size="4KB")
    (folder / "pytorch_model.bin").write_bytes(b"not wanted")
    index = folder / "model.safetensors.index.json"
    contents = json.loads(index.read_text())
    (folder / "parts").mkdir()
    for tensor, name in contents["weight_map"].items():  # a shard may have any name
        contents["weight_map"][tensor] = other = f"parts/{name[6:]}"
        if (folder / name).exists():
            (folder / name).rename(folder / other)
    index.write_text(json.dumps(contents))
    line = "from annotated.machinery.formats.causal import load_language_model as load; "
    line += "print(load('owner/tiny').model.embed.lut.weight.sum().item())"
    with serving(folder) as server:
        port = server.server_address[1]
        outputs = [started(["-c", line], tmp_path, port)]
    outputs.append(started(["-c", line], tmp_path, port))
    for output in outputs:
        assert output.returncode == 0, output.stderr
        found = float(output.stdout)
        assert found == pytest.approx(model.transformer.wte.weight.sum().item(), abs=1e-3)
    assert len(list((tmp_path / "cache").rglob("snapshots/*/parts/*.safetensors"))) > 1
    assert not list((tmp_path / "cache").rglob("pytorch_model.bin"))


def gpt2(folder: Path, **options: Any) -> None:
    """A chat model as the Hub has them; its chat template is a file of its own."""
    transformers = pytest.importorskip("transformers")
    shape = {"n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 64, "vocab_size": 420}
    config = transformers.GPT2Config(**shape, bos_token_id=0, eos_token_id=0)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder, **options)
    (folder / "tokenizer.json").write_text(json.dumps(trained("gpt2", ["<|endoftext|>"])))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 64}))
    (folder / "chat_template.jinja").write_text("{{ eos_token }}{{ messages[0].content }}")


CHAT = """
import annotated
generator = annotated.load_language_model("owner/tiny")
print(generator.encode("ab", chat=True), sorted(generator.stop))
"""
FETCH = "from huggingface_hub import hf_hub_download as get; [get('owner/tiny', x) for x in {!r}]"


@pytest.mark.slow
def test_what_another_program_has_left_out_is_fetched(tmp_path: Path):
    """The cache is shared, and programs that need only the weights fetch only the weights."""
    gpt2(tmp_path / "served")
    weights = ["config.json", "model.safetensors"]
    generator = load_language_model(tmp_path / "served")
    expected = f"{generator.encode('ab', chat=True)} {sorted(generator.stop)}\n"
    with serving(tmp_path / "served") as server:
        port, asked = server.server_address[1], server.RequestHandlerClass.asked
        assert started(["-c", FETCH.format(weights)], tmp_path, port).returncode == 0
        offline = started(["-c", CHAT], tmp_path, 1)
        assert "the cache has no generation_config.json, tokenizer.json" in offline.stderr
        assert "expected a model with tokenizer.json" in offline.stderr
        first = started(["-c", CHAT], tmp_path, port)
        assert (first.returncode, first.stdout) == (0, expected), first.stderr
        asked.clear()
        assert started(["-c", CHAT], tmp_path, port).stdout == expected
        assert not asked  # also not for files that the Hub does not have
        shutil.rmtree(next((tmp_path / "cache").rglob(".no_exist")))  # as `hf download` leaves it
        assert started(["-c", CHAT], tmp_path, port).stdout == expected
        assert not any(name.endswith("model.safetensors") for name in asked)


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path):
    gpt2(tmp_path / "served")
    (tmp_path / "cache").write_text("a file where the cache's folder should be")
    with serving(tmp_path / "served") as server:
        words = ["-m", "annotated", "generate", "owner/tiny", "a"]
        found = started(words, tmp_path, server.server_address[1])
    assert found.returncode == 2 and found.stderr.count("\n") == 1, found.stderr
    assert "owner/tiny: the Hub's cache could not be written: " in found.stderr
    assert "HF_HOME" in found.stderr


def test_a_path_is_not_taken_for_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hub_module, "hub_folder", lambda name: Path("hub", name))
    for name in "Helsinki-NLP/opus-mt-en-fr", "owner/name@0123abc":
        assert hub_module.model_folder(name) == Path("hub", name)
    monkeypatch.setattr(hub_module, "_snapshot", None)  # not reached
    for path in "runs/base-en-de", "models/en-fr", "runs/base-en-de@main", "data/a":
        for find in hub_module.model_folder, hub_module.language_model_folder:
            with pytest.raises(InputError, match=f"OWNER/NAME.*{path}|{path}.*OWNER/NAME"):
                find(path)
    (tmp_path / "mine").mkdir()
    for path in "no-such-model", "/a/b", "a/b/c", "../b", "a/", "mine/en-de", "./runs/a":
        with pytest.raises(InputError, match="OWNER/NAME"):
            hub_module.model_folder(path)
    with pytest.raises(InputError, match="if mine is a local folder"):
        hub_module.model_folder("mine/name")
