"""What every test starts from: a known seed, one thread, and hypothesis without a clock.

Some tests look at things that not every machine has; their markers say which (pyproject.toml), and
without these things they are skipped.
"""

import gzip
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("OMP_NUM_THREADS", "1")  # programs that tests start run two at a time

import pytest
import torch
from hypothesis import register_random, settings

if TYPE_CHECKING:
    from annotated.training import TrainingConfig

# A busy machine must not fail a property by being slow, and a run must repeat exactly.
settings.register_profile(
    "book", deadline=None, derandomize=True, database=None, max_examples=40, print_blob=True
)
settings.register_profile("quick", settings.get_profile("book"), max_examples=10)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "book"))

torch.set_num_threads(1)  # tensors here are small; and rounding must not depend on the machine


ROOT = Path(__file__).resolve().parent.parent
# "required": no test of the site may be skipped; "none": as on a machine without one
WANTED = os.environ.get("ANNOTATED_BROWSER", "")
REQUIRED = WANTED == "required"
# without windows first: it opens a page in a third of the time
BROWSERS = "chromium-headless-shell", "chromium", "chromium-browser"
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
PDF = os.environ.get("ANNOTATED_PAPER_PDF", "no") not in ("", "no")
BUILT = REQUIRED or (ROOT / "_build" / "html" / "index.html").exists()
AT_HAND = {
    "paper": (PDF, "ANNOTATED_PAPER_PDF names no PDF of the paper"),
    "corpora": ("ANNOTATED_DATA" in os.environ, "ANNOTATED_DATA names no folder of corpora"),
    "site": (BUILT, "the site is not built; run `make book`"),
    "browser": (REQUIRED or (WANTED != "none" and CHROMIUM), "no Chromium on this machine"),
    "gpu": (torch.cuda.is_available(), "no GPU on this machine"),
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests first: begun at the end, they would leave the other core idle."""
    items.sort(key=lambda item: "[5-2-hardware-schedule]" not in item.name)
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for name, (at_hand, reason) in AT_HAND.items():
        if item.get_closest_marker(name) and not at_hand:
            pytest.skip(reason)


class TorchRandom:
    """torch's generator as hypothesis wants it, so that each example starts from the same seed."""

    seed = staticmethod(torch.manual_seed)
    getstate = staticmethod(torch.get_rng_state)
    setstate = staticmethod(torch.set_rng_state)


register_random(TorchRandom)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def browser():
    """Chromium; that of playwright, where the machine has no other."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Letters are as wide as in a window, and not rounded to pixels.
        arguments = ["--no-sandbox", "--disable-gpu", "--font-render-hinting=none"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


EN = "zero one two three four five six seven eight nine".split()  # noqa: SIM905
DE = "null eins zwei drei vier fünf sechs sieben acht neun".split()  # noqa: SIM905


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of texts: numbers, digit by digit."""
    folder = tmp_path_factory.mktemp("digits")
    numbers = [str(n * n + 7) for n in range(3, 83)]
    for split, part in ("train", numbers[:60]), ("dev", numbers[60:]):
        for lang, words in ("en", EN), ("de", DE):
            lines = [" ".join(words[int(digit)] for digit in number) for number in part]
            text = "".join(f"{line}.\n" for line in lines)
            (folder / f"{split}.{lang}").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def captions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Multi30k of twelve pairs in ANNOTATED_DATA: two words, and these in the other order."""
    folder = tmp_path / "data" / "multi30k"
    folder.mkdir(parents=True)
    words = [(a, b) for a in ("red", "blue", "green") for b in ("dog", "cat", "cow", "hen")]
    for split in "train", "val", "test_2016_flickr":
        for lang, step in ("en", 1), ("de", -1):
            text = "".join(f"{' '.join(pair[::step])}.\n" for pair in words)
            (folder / f"{split}.{lang}.gz").write_bytes(gzip.compress(text.encode()))
    monkeypatch.setenv("ANNOTATED_DATA", str(folder.parent))


@pytest.fixture
def config(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "TrainingConfig":
    """A run of a second: a tiny model on the tiny corpus, some 8 batches a pass."""
    from annotated.training import TrainingConfig

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    shape = {"vocab_size": 60, "N": 1, "d_model": 16, "d_ff": 32, "h": 2, "dropout": 0.1}
    return TrainingConfig(
        out=str(tmp_path / "run"),
        data=f"{corpus}-en-de",
        src_tokens=120,
        tgt_tokens=120,
        warmup=20,
        updates=30,
        save_updates=10,
        log_updates=5,
        average=2,
        **shape,
    )
