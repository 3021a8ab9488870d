"""The service of "Your own translator": it translates together, refuses in time, and recovers."""

import asyncio
import importlib
import sys
import time
from collections.abc import Callable
from types import ModuleType

import pytest
from contents import ROOT

pytest.importorskip("fastapi", reason="needs the extra `test`")
httpx = pytest.importorskip("httpx", reason="needs the extra `test`")


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "chapters" / "machinery"))
    monkeypatch.delitem(sys.modules, "service", raising=False)
    return importlib.import_module("service")


def ask(service: ModuleType, *texts: str) -> list:
    """The answers to requests that arrive together."""

    async def all_at_once() -> list:
        transport = httpx.ASGITransport(service.app, raise_app_exceptions=False)
        async with (
            service.app.router.lifespan_context(service.app),
            httpx.AsyncClient(transport=transport, base_url="http://here") as client,
        ):
            asked = (client.post("/translate", json={"text": text}) for text in texts)
            return await asyncio.gather(*asked)

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
    assert max(map(len, batches)) == service.TOGETHER and sum(batches, []) == texts


def test_long_and_late_and_too_many_sentences_are_refused(service, monkeypatch):
    long, longer = ask(service, "dog" + " dog" * 200, "dog" * 2000)
    assert long.status_code == 413 and "200 pieces; got 201" in long.json()["detail"]
    assert longer.status_code == 422
    batches = replace(service, monkeypatch, lambda texts: time.sleep(0.5) or texts)
    for name, value in {"SECONDS": 0.3, "TOGETHER": 1, "WAITING": 2}.items():
        monkeypatch.setattr(service, name, value)
    codes = [answer.status_code for answer in ask(service, *"abcd")]
    assert sorted(codes) == [503, 503, 504, 504] and batches[0] == ["a"]


def test_a_failure_concerns_its_batch_alone(service, monkeypatch):
    def what(texts: list[str]) -> list[str]:
        if "a" in texts:
            raise RuntimeError("no memory")
        return texts

    replace(service, monkeypatch, what)
    monkeypatch.setattr(service, "TOGETHER", 1)
    failed, answered = ask(service, "a", "b")
    assert failed.status_code == 500 and answered.json() == "b"
