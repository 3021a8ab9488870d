"""The order of the training data: micro-batches, global batches, and the thread that prepares them.

The batches of an epoch are shuffled by a seed made of the run's seed and the number of the epoch.
Sorting 41 million pairs by length would take a minute whenever a run starts or resumes, so a large
corpus is divided into pools of a million pairs, and each pool is sorted, batched and shuffled when
it is needed. A pool consists of stretches of 256 neighboring pairs, drawn at random from the whole
corpus, so that shuffling is fast and the disk is read in few pieces.
"""

import itertools
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from annotated.data import END, PAD, START, token_batches
from annotated.machinery.corpora.encoding import EncodedPairs
from annotated.machinery.errors import InputError
from annotated.machinery.runs.processes import Processes
from annotated.training import TrainingConfig

POOL = 1 << 20  # maximum number of pairs that are sorted together
_STRETCH = 1 << 8  # neighboring pairs that stay together
_AHEAD = 16  # updates whose batches are prepared in advance
SHAPES = 24  # that the batches of a compiled run have at most
Shape = tuple[int, int] | None  # of a batch: rows and length


class MicroBatch(NamedTuple):
    """A batch for one forward pass: its position in the data, and the indices of its pairs."""

    epoch: int
    batch: int
    pairs: list[int]


class GlobalBatch(NamedTuple):
    """The batches of one update."""

    micro_batches: list[MicroBatch]  # of all processes
    tokens: int  # their target tokens
    # Of this process: the seed of the dropout, and padded source and target ids on the device.
    share: list[tuple[int, Tensor, Tensor]]


def share_parts(parts: int, processes: int) -> int:
    """The number of micro-batches in an update: as configured, or one per process if that is 0.

    Raises: InputError if there are fewer micro-batches than processes.
    """
    if 0 < parts < processes:
        most = f"a micro-batch for each of the {processes} processes"
        raise InputError(f"expected {most}; got --parts {parts}, which a new run can change")
    return parts or processes


def deal_pools(count: int, seed: int) -> Iterator[np.ndarray]:
    """The pools of an epoch, each as the indices of its members among `count` pairs."""
    if count <= POOL:
        yield np.arange(count)
        return
    order = np.random.default_rng(seed).permutation(-(-count // _STRETCH))
    for stretches in np.array_split(order, -(-count // POOL)):
        members = (stretches[:, None] * _STRETCH + np.arange(_STRETCH)).ravel()
        yield members[members < count]


def derive_seed(*numbers: int) -> int:
    """One seed from several numbers: equal for equal numbers, otherwise almost surely different."""
    seed = 0
    for number in numbers:
        seed = (seed * 1_000_003 + number + 1) % 2**62
    return seed


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device; a copy to a GPU does not block Python."""
    return x if device.type == "cpu" else x.pin_memory().to(device, non_blocking=True)


def padded_pair(
    pairs: EncodedPairs, numbers: list[int], device: torch.device, shape: Shape = None
) -> tuple[Tensor, Tensor]:
    """The ids of some pairs: (batch, src_len) and (batch, tgt_len + 1).

    On a GPU, widths are rounded up to multiples of eight, which speeds up its matrix products; the
    token budget is applied before, so that a run has the same batches on every device.

    Args: shape: rows, of which those without a pair have one symbol, and length; None: as needed.
    """
    rows, multiple = shape or (len(numbers), 1 if device.type == "cpu" else 8)
    sides = []
    for side, symbol in enumerate((END, START)):
        ids = torch.from_numpy(pairs.padded(numbers, side, multiple))
        ids = F.pad(ids, (0, 0, 0, rows - len(ids)), value=PAD)
        ids[len(numbers) :, 0] = symbol
        sides.append(to_device(ids, device))
    return sides[0], sides[1]


def _longer_side(lengths: np.ndarray) -> np.ndarray:
    """Lengths of pairs (pairs, 2) to what the model receives of the longer sides (pairs, 1)."""
    return np.maximum(lengths[:, :1], lengths[:, 1:] - 1)


class BatchStream:
    """The training data of a run, all its pairs, batch by batch, epoch after epoch without end.

    In a compiled run there are few shapes, so that kernels could be recorded for each: both sides
    of a batch have one of SHAPES lengths, in geometric steps, and its rows fill the token budget.

    Raises: InputError as `share_parts`, and if no pair is short enough.
    """

    def __init__(self, config: TrainingConfig, pairs: EncodedPairs, processes: Processes) -> None:
        self.config, self.pairs, self.processes = config, pairs, processes
        self.parts = share_parts(config.parts, processes.size)
        budget = min(config.src_tokens, config.tgt_tokens) // self.parts
        longest = min(config.max_pieces, budget)
        self.kept = np.flatnonzero((pairs.lengths <= longest).all(axis=1)).astype(np.uint32)
        if not len(self.kept):
            raise InputError(f"there is no training pair of at most {longest} pieces")
        self.steps = np.zeros(0, np.int64)
        if config.compile:
            longer = _longer_side(pairs.lengths[self.kept])
            steps = np.geomspace(longer.min(), longer.max(), SHAPES).round(6)
            self.steps = np.unique(np.ceil(steps).astype(np.int64))

    def _rounded(self, lengths: np.ndarray) -> np.ndarray:
        """The length of either side in a compiled run, (pairs, 2); otherwise as it is."""
        if not len(self.steps):
            return lengths
        return self.steps[np.searchsorted(self.steps, _longer_side(lengths))][:, [0, 0]]

    def shape(self, pairs: list[int]) -> Shape:
        """The shape of a batch of these pairs, for `padded_pair`."""
        if not len(self.steps):
            return None
        length = int(self._rounded(self.pairs.lengths[pairs]).max())
        return min(self.config.src_tokens, self.config.tgt_tokens) // self.parts // length, length

    def micro_batches(self, epoch: int, batch: int) -> Iterator[MicroBatch]:
        """The micro-batches from a position on.

        A batch is numbered by its pool and its position in it, so that no earlier pool needs to be
        sorted to find the batch again.
        """
        config, lengths = self.config, self.pairs.lengths
        budgets = config.src_tokens // self.parts, config.tgt_tokens // self.parts
        for current in itertools.count(epoch):
            seed, first = derive_seed(config.seed, current), batch if current == epoch else 0
            pools = enumerate(deal_pools(len(self.kept), seed))
            for pool, members in itertools.islice(pools, first // POOL, None):
                numbers = self.kept[members]
                # The first pool, often the only one, is shuffled by the seed of the epoch.
                shuffle = derive_seed(config.seed, current, pool) if pool else seed
                sizes = self._rounded(lengths[numbers])
                batches = token_batches(sizes, *budgets, seed=shuffle)
                for i in range(max(0, first - pool * POOL), len(batches)):
                    yield MicroBatch(current, pool * POOL + i, numbers[batches[i]].tolist())

    def updates(self, epoch: int, batch: int) -> Iterator[GlobalBatch]:
        """The batches of the updates from a position on."""
        rank, size, device = self.processes.rank, self.processes.size, self.processes.device
        stream = self.micro_batches(epoch, batch)
        while True:
            taken = list(itertools.islice(stream, self.parts))
            pairs = list(itertools.chain.from_iterable(part.pairs for part in taken))
            tokens = int(self.pairs.lengths[pairs, 1].sum(dtype=np.int64)) - len(pairs)
            share = []
            for part in taken[rank::size]:
                seed = derive_seed(self.config.seed, part.epoch, part.batch)
                shape = self.shape(part.pairs)
                share.append((seed, *padded_pair(self.pairs, part.pairs, device, shape)))
            yield GlobalBatch(taken, tokens, share)


def prefetch(batches: Iterator[GlobalBatch]) -> Iterator[GlobalBatch]:
    """The same batches, prepared by a thread several updates ahead, so that a GPU never waits."""
    thread = ThreadPoolExecutor(1)
    try:
        coming = deque(thread.submit(next, batches) for _ in range(_AHEAD))
        while True:
            coming.append(thread.submit(next, batches))
            yield coming.popleft().result()
    finally:
        thread.shutdown(cancel_futures=True)
