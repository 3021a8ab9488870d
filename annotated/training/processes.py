"""Many processes, one run (chapters/processes.md).

Generated from the chapter's export cells by book/extract.py: edit it there.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed

__all__ = [
    "Processes",
    "StopRequest",
    "Stopped",
    "find_precision",
    "join_processes",
    "leave_together",
]


@dataclass(frozen=True)
class Processes:
    """This process, among those that train together.

    Args:
        rank: its number, from 0.   size: how many there are.   device: where it computes.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def all_reduce(self, x: Tensor, how: Any = distributed.ReduceOp.SUM) -> Tensor:
        """Sum (or other reduction) of a tensor over all processes, in place."""
        if self.size > 1:
            distributed.all_reduce(x, how)
        return x

    def any(self, *flags: bool) -> list[bool]:
        """For each of several flags, whether any process has it up."""
        maximum = distributed.ReduceOp.MAX
        found = self.all_reduce(torch.tensor(flags, device=self.device).int(), maximum)
        return found.bool().tolist()

    def broadcast(self, value: Any) -> Any:
        """What process 0 brings; the others wait for it."""
        values = [value]
        if self.size > 1:
            distributed.broadcast_object_list(values, src=0, device=self.device)
        return values[0]

    def barrier(self) -> None:
        """Wait until all processes are here."""
        if self.size > 1:
            distributed.barrier()


def join_processes() -> Processes:
    """Join the processes that torchrun started; alone if it did not."""
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else "cpu"
    if cuda:
        torch.cuda.set_device(device)
        torch.set_float32_matmul_precision("high")
    size = int(os.environ.get("WORLD_SIZE", 1))
    if size > 1 and not distributed.is_initialized():
        backend = "nccl" if cuda else "gloo"
        distributed.init_process_group(backend, timeout=timedelta(hours=2))
    return Processes(int(os.environ.get("RANK", 0)), size, torch.device(device))


def find_precision(wanted: str, device: torch.device) -> torch.dtype:
    """The type that "auto" means on a device, or the one that is asked for by name."""
    if wanted != "auto":
        return getattr(torch, wanted)
    if device.type != "cuda":
        return torch.float32
    ampere_or_later = torch.cuda.get_device_capability(device) >= (8, 0)
    return torch.bfloat16 if ampere_or_later else torch.float16


class StopRequest:
    """While it is entered, SIGINT and SIGTERM only set `wanted`; alone, a second one kills."""

    def __init__(self, alone: bool = True) -> None:
        self.wanted, self.alone = False, alone

    def __enter__(self) -> "StopRequest":
        self.signals = signal.SIGINT, signal.SIGTERM
        self.old = [signal.signal(number, self.note) for number in self.signals]
        return self

    def note(self, number: int, frame: Any) -> None:
        """Handle a signal: wish to stop, or raise KeyboardInterrupt at the second one, if alone."""
        if self.wanted and self.alone:
            self.__exit__()
            raise KeyboardInterrupt("stopped at once; the last checkpoint stands")
        self.wanted = True

    def __exit__(self, *error: object) -> None:
        for number, handler in zip(self.signals, self.old, strict=True):
            signal.signal(number, handler)


class Stopped(KeyboardInterrupt):
    """A run that was told to stop has saved, in all its processes."""


@contextmanager
def leave_together(processes: Processes) -> Iterator[None]:
    """Around a run: at its orderly end the processes part; one that fails waits for nobody."""
    try:
        yield
    except Stopped:
        _leave(processes)
        raise
    except BaseException:
        if processes.size > 1 and processes.device.type == "cuda" and distributed.group.WORLD:
            with suppress(AttributeError):  # torch before 2.6
                distributed.group.WORLD.abort()  # a sum that no GPU will finish holds nobody up
        raise
    _leave(processes)


def _leave(processes: Processes) -> None:
    """End the talk among the processes; all of them must be here."""
    if processes.size > 1:
        time.sleep(0.5)  # Gloo's threads need the interpreter to let go of their last tensors
        distributed.destroy_process_group()
