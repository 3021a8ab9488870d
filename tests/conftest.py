"""What every test starts from: a known seed, one thread, and hypothesis without a clock.

Some tests look at things that not every machine has; their markers say which (pyproject.toml), and
without these things they are skipped.
"""

import os
import shutil
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # programs that tests start run two at a time

import pytest
import torch
from hypothesis import register_random, settings

# A busy machine must not fail a property by being slow, and a run must repeat exactly.
settings.register_profile(
    "book", deadline=None, derandomize=True, database=None, max_examples=40, print_blob=True
)
settings.load_profile("book")

torch.set_num_threads(1)  # tensors here are small; and rounding must not depend on the machine


ROOT = Path(__file__).resolve().parent.parent
REQUIRED = "ANNOTATED_REQUIRE_BROWSER" in os.environ  # then no test of the site may be skipped
AT_HAND = {
    "paper": (
        os.environ.get("ANNOTATED_PAPER_PDF", "no") not in ("", "no"),
        "ANNOTATED_PAPER_PDF names no PDF of the paper",
    ),
    "corpora": ("ANNOTATED_DATA" in os.environ, "ANNOTATED_DATA names no folder of corpora"),
    "site": (
        REQUIRED or (ROOT / "_build" / "html" / "index.html").exists(),
        "the site is not built; run `make book`",
    ),
    "browser": (
        REQUIRED or any(map(shutil.which, ("chromium", "chromium-browser"))),
        "no Chromium on this machine",
    ),
    "gpu": (torch.cuda.is_available(), "no GPU on this machine"),
}


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
