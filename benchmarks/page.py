"""The model on the page compared with PyTorch: `python -m benchmarks page`.

Chromium opens a page from the disk, as a reader does; the package translates the same sentences.
"""

import shutil
import statistics
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

import torch

from annotated import load_pretrained
from benchmarks.logs import machine, make_parser, write

ROOT = Path(__file__).parents[1]
MODEL = "multi30k-en-de"
SENTENCES = [  # twelve words each
    "A man in a blue shirt is standing on a tall ladder.",
    "Two young girls are playing with a red ball in the park.",
    "A brown dog is running through the snow with a small stick.",
    "An old woman sells fresh fruit at a market on the street.",
    "Several people are sitting at a table and are eating their lunch.",
]
READY = """async (name) => {
    const start = performance.now();
    await window.liveModel(name);
    return performance.now() - start;
}"""
SEARCH = """async ([name, text, beam]) => {
    const { transformer, encode } = await window.liveModel(name), start = performance.now();
    const search = transformer.search(encode(text).ids, { beam });
    let first, step;
    do {
        step = search.next();
        if (step.value?.open) first ??= performance.now() - start; // not so in the encoder
    } while (!step.done);
    return [performance.now() - start, first];
}"""


def write_page(folder: Path) -> Path:
    """A page with a live model, next to the files that it loads."""
    sys.path.insert(0, str(ROOT / "book"))
    import live

    shutil.copytree(ROOT / "book" / "static", folder / "_static")
    (folder / "models").mkdir()
    script = live.model_script(MODEL)
    (folder / "models" / f"{MODEL}.js").write_text(script, encoding="utf-8")
    place = live.live_place("translator", MODEL, SENTENCES)
    page = f'<meta charset="utf-8"><script defer src="_static/book.js"></script>{place}'
    (folder / "page.html").write_text(page, encoding="utf-8")
    return folder / "page.html"


def measure(browser: Any, page: Path, rounds: int) -> dict[str, Any]:
    """Milliseconds until the model is ready, and per sentence on the page and in Python."""
    torch.set_num_threads(1)  # a page has one event loop
    translator, ready = load_pretrained(MODEL), []
    for _ in range(5):
        tab = browser.new_context(offline=True).new_page()
        tab.goto(page.as_uri())
        tab.wait_for_selector(".live form")
        ready.append(tab.evaluate(READY, MODEL))
    times: dict[str, list[float]] = {}
    for text in SENTENCES * rounds:
        for beam in 1, 4:
            there, first = tab.evaluate(SEARCH, [MODEL, text, beam])
            start = time.perf_counter()
            translator.translate(text, beam=beam)
            here = 1000 * (time.perf_counter() - start)
            for name, took in ("page", there), ("first piece", first), ("PyTorch", here):
                times.setdefault(f"{name}, beam {beam}", []).append(took)
    medians = {name: round(statistics.median(took), 1) for name, took in times.items()}
    return {"ready": round(statistics.median(ready), 1), **medians}


def main(given: list[str]) -> None:
    parser = make_parser(
        "benchmarks page",
        "Time the model of the front page in Chromium and in PyTorch on one thread.",
        "The run of the book: python -m benchmarks page --out data/results/page.json. It takes a\n"
        "minute; run nothing else in the meantime.",
    )
    told = "number of timings of each sentence (%(default)s)"
    parser.add_argument("--rounds", type=int, default=20, help=told)
    parser.add_argument("--out", type=Path, help="write the results to this JSON file")
    options = parser.parse_args(given)
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = write_page(Path(folder))
        path = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        milliseconds = measure(browser, page, options.rounds)
        version = browser.version
    for name, took in milliseconds.items():
        print(f"{name:22}{took:8.1f} ms")
    if options.out:
        about = {"date": str(date.today()), "machine": machine("cpu") | {"chromium": version}}
        command = "python -m benchmarks page --out data/results/page.json"
        write(options.out, {"command": command, **about, "milliseconds": milliseconds})
