"""What every test starts from: a known seed, one thread, and hypothesis without a clock."""

import os

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


class TorchRandom:
    """torch's generator as hypothesis wants it, so that each example starts from the same seed."""

    seed = staticmethod(torch.manual_seed)
    getstate = staticmethod(torch.get_rng_state)
    setstate = staticmethod(torch.set_rng_state)


register_random(TorchRandom)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)
