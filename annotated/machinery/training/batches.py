"""The order of the training data: micro-batches, global batches, and the thread that prepares them.

The batches of a pass are shuffled by a seed made of the run's seed and the number of the pass.
Sorting 41 million pairs by length would take a minute, also for a run that resumes, so a large
corpus is divided into pools of a million pairs, and each pool is sorted, batched and shuffled when
its turn comes. A pool consists of stretches of 256 neighboring pairs, drawn at random from the
whole corpus: few enough to shuffle quickly, and read from the disk in few pieces.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from annotated.machinery.encoding import EncodedPairs
from annotated.machinery.errors import InputError
from annotated.training import TrainingConfig

POOL = 1 << 20  # pairs that are sorted at a time, at most
_STRETCH = 1 << 8  # neighboring pairs that stay together
_AHEAD = 16  # updates whose batches are prepared in advance


class MicroBatch(NamedTuple):
    """A batch computed in one forward pass: its position in the data, and its pairs' numbers."""

    epoch: int
    batch: int
    pairs: list[int]


class GlobalBatch(NamedTuple):
    """The batches of one update.

    Args:
        micro_batches: of all processes.   tokens: their target tokens.
        share: for each micro-batch of this process the seed of its dropout, and its source and
            target ids, padded, on the device.
    """

    micro_batches: list[MicroBatch]
    tokens: int
    share: list[tuple[int, Tensor, Tensor]]


def share_parts(parts: int, processes: int) -> int:
    """The number of micro-batches in an update: as configured, or one per process if that is 0.

    Raises: InputError if the processes cannot share them evenly.
    """
    if parts % processes:
        most = f"a multiple of the {processes} processes"
        raise InputError(f"expected parts to be {most}; got {parts}; choose with --parts")
    return parts or processes


def short_enough(pairs: EncodedPairs, config: TrainingConfig, parts: int) -> np.ndarray:
    """The numbers of the pairs to train on, those that fit into a micro-batch.

    Raises: InputError if there is none.
    """
    longest = min(config.max_pieces, config.src_tokens // parts, config.tgt_tokens // parts)
    source, target = pairs.lengths[:, 0], pairs.lengths[:, 1]
    kept = np.flatnonzero((source <= longest) & (target <= longest)).astype(np.uint32)
    if not len(kept):
        raise InputError(f"there is no training pair of at most {longest} pieces")
    return kept


def pools(count: int) -> int:
    """Number of pools for `count` pairs."""
    return -(-count // POOL)


def pool_members(count: int, number: int, seed: int) -> np.ndarray:
    """Indices, among `count` pairs, of the members of one pool.

    Args:
        number: of the pool, from 0.   seed: of the pass.
    """
    if count <= POOL:
        return np.arange(count)
    order = np.random.default_rng(seed).permutation(-(-count // _STRETCH))
    begins = np.array_split(order, pools(count))[number] * _STRETCH
    members = (begins[:, None] + np.arange(_STRETCH)).ravel()
    return members[members < count]


def derive_seed(*numbers: int) -> int:
    """One seed from several numbers: equal for equal numbers, else almost surely different."""
    seed = 0
    for number in numbers:
        seed = (seed * 1_000_003 + number + 1) % 2**62
    return seed


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device; a copy to a GPU does not block Python."""
    return x if device.type == "cpu" else x.pin_memory().to(device, non_blocking=True)


def prefetch(batches: Iterator[GlobalBatch]) -> Iterator[GlobalBatch]:
    """The same batches, prepared by a thread some updates ahead, so that a GPU never waits."""
    thread = ThreadPoolExecutor(1)
    try:
        coming = deque(thread.submit(next, batches) for _ in range(_AHEAD))
        while True:
            coming.append(thread.submit(next, batches))
            yield coming.popleft().result()
    finally:
        thread.shutdown(cancel_futures=True)
