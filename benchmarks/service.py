"""What a service gains by translating together what waits: `python -m benchmarks.service --help`.

Eight clients ask the service of the page "Your own translator", in this process and without a
network, each for its next sentence when it has the last one. Rounds in which what waits is
translated together alternate with rounds in which sentences are translated one by one. The captions
are Multi30k's test set of 2016.
"""

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import torch

from annotated.machinery.corpora.registry import load_pairs
from benchmarks.logs import as_json, machine, make_parser, write_log

CLIENTS, SENTENCES, ROUNDS = 8, 160, 7


async def round_of(service: Any, texts: list[str], together: int) -> dict[str, float]:
    """Wall-clock and processor time until the clients have all translations."""
    service.TOGETHER, left = together, iter(texts)

    async def client() -> None:
        for text in left:
            answer = await http.post("/translate", json={"text": text}, timeout=None)
            answer.raise_for_status()

    transport = httpx.ASGITransport(service.app)
    async with (
        service.app.router.lifespan_context(service.app),
        httpx.AsyncClient(transport=transport, base_url="http://here") as http,
    ):
        clocks = time.perf_counter, time.process_time
        began = [clock() for clock in clocks]
        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        seconds = [clock() - start for clock, start in zip(clocks, began, strict=True)]
    return {"seconds": round(seconds[0], 3), "processor_seconds": round(seconds[1], 3)}


def main(given: list[str] | None = None) -> None:
    parser = make_parser("benchmarks.service", __doc__)
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    options = parser.parse_args(given)
    torch.set_num_threads(1)
    sys.path.insert(0, str(Path(__file__).parents[1] / "chapters" / "machinery"))
    import service

    service.SECONDS = 600.0  # on a busy machine too, no answer is late
    texts = load_pairs("multi30k", "test", "en", "de")[0][:SENTENCES]
    ways, rows = {"together": service.TOGETHER, "one by one": 1}, []
    for number in range(-1, ROUNDS):  # the first is not counted
        for way, most in ways.items():
            row = {"round": number, "way": way} | asyncio.run(round_of(service, texts, most))
            rows += [row] if number >= 0 else []
    about = {"clients": CLIENTS, "sentences": SENTENCES, "machine": machine("cpu")}
    write_log(options.out, as_json(about | {"rounds": rows}))


if __name__ == "__main__":
    main()
