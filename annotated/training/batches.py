"""The trainer (chapters/trainer.md).

Generated from the chapter's export cells by book/extract.py: edit it there.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from annotated.data import EncodedPairs
from annotated.training.config import TrainingConfig

__all__ = [
    "GlobalBatch",
    "MicroBatch",
    "derive_seed",
    "longest_sentence",
    "prefetch",
    "share_parts",
    "short_enough",
    "to_device",
]


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
        raise ValueError(
            f"expected parts to be a multiple of the {processes} processes; got {parts}"
        )
    return parts or processes


def longest_sentence(config: TrainingConfig, parts: int) -> int:
    """Tokens in the longest sentence that a run trains on: it must fit into a batch."""
    return min(config.max_pieces, config.src_tokens // parts, config.tgt_tokens // parts)


def short_enough(pairs: EncodedPairs, longest: int) -> np.ndarray:
    """Numbers of the pairs to train on.

    Raises: ValueError if there is none.
    """
    kept = np.flatnonzero(pairs.lengths.max(axis=1) <= longest)
    if not len(kept):
        raise ValueError(f"there is no training pair of at most {longest} pieces")
    return kept


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
    """The same batches, each prepared by a thread while the one before it is in use."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, batches)
        while True:
            batch = coming.result()
            coming = thread.submit(next, batches)
            yield batch
