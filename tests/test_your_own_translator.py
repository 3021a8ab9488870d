"""What the page "Your own translator" shows and does not run: the service, the script for a
cluster."""

import asyncio
import importlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from contents import CHAPTERS
from torch.distributed.run import get_args_parser

import annotated
from annotated.machinery.cli.main import _parse

PAGE = (CHAPTERS / "machinery" / "your-own-translator.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """The only block of the page in a language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return found


def test_the_script_for_a_cluster_starts_one_torchrun_on_each_machine(tmp_path: Path):
    stand_ins = {"srun": 'printf "%s\\n" "$@"', "scontrol": 'printf "one\\ntwo\\n"'}
    for name, line in stand_ins.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    given = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_NNODES": "2", "SLURM_JOB_ID": "7",
             "SLURM_JOB_NODELIST": "[one-two]"}  # fmt: skip
    script = ["bash", "-euo", "pipefail", "-c", block("bash")]
    done = subprocess.run(script, env=given, capture_output=True, text=True, check=True)
    torchrun, *words = done.stdout.splitlines()
    asked = get_args_parser().parse_args(words)
    assert torchrun == "torchrun" and asked.module and asked.training_script == "annotated"
    assert (asked.nnodes, asked.nproc_per_node, asked.rdzv_endpoint) == ("2", "gpu", "one:29500")
    options = _parse(asked.training_script_args)
    gpus = int(re.search(r"--nodes=(\d+).*--gpus-per-node=(\d+)", block("bash"))[2])
    assert options.resume and annotated.preset(options.preset).parts % (2 * gpus) == 0


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("fastapi", reason="needs the extra `test`")
    monkeypatch.syspath_prepend(str(CHAPTERS / "machinery"))
    monkeypatch.delitem(sys.modules, "service", raising=False)
    return importlib.import_module("service")


def ask(service: ModuleType, *texts: str) -> list:
    """The answers to requests that arrive together."""
    import httpx

    async def all_at_once() -> list:
        kind = {"content-type": "application/json"}
        transport = httpx.ASGITransport(service.app, raise_app_exceptions=False)
        async with (
            service.app.router.lifespan_context(service.app),
            httpx.AsyncClient(transport=transport, base_url="http://here", headers=kind) as client,
        ):
            bodies = (json.dumps({"text": text}) for text in texts)
            return await asyncio.gather(*(client.post("/translate", content=x) for x in bodies))

    return asyncio.run(all_at_once())


def replace(service: ModuleType, monkeypatch: pytest.MonkeyPatch, what: Callable) -> list:
    """Let a stand-in translate, and note its batches."""
    batches = []
    monkeypatch.setattr(
        service.translator, "translate", lambda texts: batches.append(texts) or what(texts)
    )
    return batches


def test_what_waits_is_translated_together_and_as_if_alone(service):
    texts = ["A dog runs.", "A man is riding a bicycle.", "", "Two women talk."] * 3
    answers = ask(service, *texts)
    assert [answer.json() for answer in answers] == service.translator.translate(texts)


def test_the_size_of_a_batch_is_limited(service, monkeypatch):
    batches = replace(service, monkeypatch, lambda texts: texts)
    texts = [f"sentence {n}" for n in range(3 * service.TOGETHER)]
    assert [answer.json() for answer in ask(service, *texts)] == texts
    assert max(map(len, batches)) == service.TOGETHER


def test_long_and_late_and_too_many_sentences_are_refused(service, monkeypatch):
    long, longer, half = ask(service, "dog" + " dog" * 200, "dog" * 2000, "\ud800 dog")
    assert long.status_code == 413 and "200 pieces; got 201" in long.json()["detail"]
    assert longer.status_code == half.status_code == 422 and len(longer.text) < 1000
    assert longer.json()["detail"][0]["loc"] == ["body", "text"]
    batches = replace(service, monkeypatch, lambda texts: time.sleep(0.5) or texts)
    for name, value in {"SECONDS": 0.3, "TOGETHER": 1}.items():
        monkeypatch.setattr(service, name, value)
    texts = ["a", "b", "c", "d"]  # the first batch has 40 pieces in 0.5 s, so 24 may wait
    monkeypatch.setattr(service, "count_pieces", lambda text: 10 if text in texts else 40)
    codes = [answer.status_code for answer in ask(service, *texts)]
    assert sorted(codes) == [503, 503, 504, 504] and batches[1] == ["a"]


def test_a_failure_concerns_its_batch_alone(service, monkeypatch):
    def what(texts: list[str]) -> list[str]:
        if "a" in texts:
            raise RuntimeError("no memory")
        return texts

    replace(service, monkeypatch, what)
    monkeypatch.setattr(service, "TOGETHER", 1)
    failed, answered = ask(service, "a", "b")
    assert failed.status_code == 500 and answered.json() == "b"
