"""The trainer."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from annotated.machinery.encoding import EncodedPairs
from annotated.training import TrainingConfig


class MicroBatch(NamedTuple):
    """A batch computed in one go: its place in the data, and the numbers of its pairs."""

    epoch: int
    batch: int
    pairs: list[int]


class GlobalBatch(NamedTuple):
    """The work of one update.

    Args:
        micro_batches: all of them.   tokens: their target tokens.
        share: of each micro-batch of this process, the seed of its dropout, and source and
            target ids, padded, on the device.
    """

    micro_batches: list[MicroBatch]
    tokens: int
    share: list[tuple[int, Tensor, Tensor]]


def share_parts(parts: int, processes: int) -> int:
    """The number of batches in an update: as asked for, or one a process.

    Raises: ValueError if the processes cannot share them out evenly.
    """
    if parts % processes:
        most = f"a multiple of the {processes} processes"
        raise ValueError(f"expected parts to be {most}; got {parts}; choose with --parts")
    return parts or processes


def longest_sentence(config: TrainingConfig, parts: int) -> int:
    """Tokens in the longest sentence that a run trains on: it must fit into a batch."""
    return min(config.max_pieces, config.src_tokens // parts, config.tgt_tokens // parts)


def short_enough(pairs: EncodedPairs, longest: int) -> np.ndarray:
    """Numbers of the pairs to train on.

    Raises: ValueError if there is none.
    """
    source, target = pairs.lengths[:, 0], pairs.lengths[:, 1]
    kept = np.flatnonzero((source <= longest) & (target <= longest)).astype(np.uint32)
    if not len(kept):
        raise ValueError(f"there is no training pair of at most {longest} pieces")
    return kept


POOL = 1 << 20  # pairs that are sorted at a time, at most
_STRETCH = 1 << 8  # neighbours that stay together


def pools(count: int) -> int:
    """Into how many pools so many pairs are dealt out."""
    return -(-count // POOL)


def pool_places(count: int, number: int, seed: int) -> np.ndarray:
    """Which of so many pairs are in a pool of a pass.

    Args:
        number: of the pool, from 0.   seed: of the pass.
    """
    if count <= POOL:
        return np.arange(count)
    order = np.random.default_rng(seed).permutation(-(-count // _STRETCH))
    begins = np.array_split(order, pools(count))[number] * _STRETCH
    places = (begins[:, None] + np.arange(_STRETCH)).ravel()
    return places[places < count]


_AHEAD = 16  # updates


def derive_seed(*numbers: int) -> int:
    """One seed out of several numbers: equal for equal numbers, else almost surely different."""
    seed = 0
    for number in numbers:
        seed = (seed * 1_000_003 + number + 1) % 2**62
    return seed


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device; a copy to a GPU goes on while Python does other things."""
    return x if device.type == "cpu" else x.pin_memory().to(device, non_blocking=True)


def prefetch(batches: Iterator[GlobalBatch]) -> Iterator[GlobalBatch]:
    """The same batches, prepared by a thread while earlier ones are in use."""
    thread = ThreadPoolExecutor(1)
    try:
        coming = deque(thread.submit(next, batches) for _ in range(_AHEAD))
        while True:
            coming.append(thread.submit(next, batches))
            yield coming.popleft().result()
    finally:
        thread.shutdown(cancel_futures=True)
