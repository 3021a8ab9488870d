"""The processes of one run: how they communicate, read numbers from a GPU, stop and fail together.

torchrun starts them and assigns each its rank in environment variables. NCCL sums gradients and
losses on GPUs; Gloo does everything else on the CPU, so that no GPU waits for it.
"""

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed

from annotated.machinery.errors import one_line


@dataclass(frozen=True)
class Processes:
    """This process among the processes that train together."""

    rank: int = 0  # its number
    size: int = 1  # number of processes
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))  # where it computes

    def all_reduce(self, x: Tensor, how: Any = distributed.ReduceOp.SUM) -> Tensor:
        """Sum (or another reduction) of a tensor over all processes, in place."""
        if self.size > 1:
            distributed.all_reduce(x, how)
        return x

    def any(self, *flags: bool) -> list[bool]:
        """For each of several flags, whether any process has set it."""
        found = self.all_reduce(torch.tensor(flags).int(), distributed.ReduceOp.MAX)
        return found.bool().tolist()

    def broadcast(self, value: Any) -> Any:
        """The value from process 0, for which the others wait."""
        values = [value]
        if self.size > 1:
            distributed.broadcast_object_list(values, src=0, device=torch.device("cpu"))
        return values[0]

    def barrier(self) -> None:
        """Wait until all processes arrive; their GPUs continue in the meantime."""
        self.any(False)


def join_processes(minutes: float = 10.0) -> Processes:
    """Join the processes that torchrun started; a single process without torchrun.

    Args: minutes: that each waits for the others, of which one may be dead.

    Raises: ValueError if there is no GPU for this process on a machine that has some.
    """
    device, options = torch.device("cpu"), dict[str, Any](backend="gloo")
    if torch.cuda.is_available():
        local, gpus = int(os.environ.get("LOCAL_RANK", 0)), torch.cuda.device_count()
        if local >= gpus:
            wanted = "expected a GPU for each process of a machine"
            raise ValueError(f"{wanted}; got {gpus} and more processes")
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
        torch.set_float32_matmul_precision("high")
        options = {"backend": "cpu:gloo,cuda:nccl", "device_id": device}
    size = int(os.environ.get("WORLD_SIZE", 1))
    if size > 1 and not distributed.is_initialized():
        distributed.init_process_group(timeout=timedelta(minutes=minutes), **options)
    return Processes(int(os.environ.get("RANK", 0)), size, device)


class Readback:
    """A number, given as a scalar tensor, that is being copied from the device.

    Reading it with `.item()` would wait until the queue of the GPU is empty, and then the GPU would
    wait for Python. Therefore it is copied asynchronously and read when it has arrived.
    """

    def __init__(self, x: Tensor) -> None:
        self.value = x.detach().to("cpu", non_blocking=True)
        self.sent = torch.cuda.Event() if x.is_cuda else None
        if self.sent:
            self.sent.record()

    def here(self) -> bool:
        """Whether it has arrived, so that all work queued before it is done."""
        return self.sent is None or self.sent.query()

    def __float__(self) -> float:
        """The number; waits for it, but not for work that was queued after it."""
        if self.sent:
            self.sent.synchronize()
        return float(self.value)


def find_precision(wanted: str, device: torch.device) -> torch.dtype:
    """The type for matrix products; "auto" is the fastest type that is safe on the device.

    bfloat16 has the range of float32. GPUs from before 2020 only have float16, whose small range
    requires scaled losses.
    """
    if wanted != "auto":
        return getattr(torch, wanted)
    if device.type != "cuda":
        return torch.float32
    ampere_or_later = torch.cuda.get_device_capability(device) >= (8, 0)
    return torch.bfloat16 if ampere_or_later else torch.float16


class StopRequest:
    """Context in which SIGINT, SIGTERM and SIGHUP only set `wanted`; in a single process, a second
    SIGINT interrupts. Threads other than the main one receive no signals.
    """

    def __init__(self, alone: bool = True) -> None:
        self.wanted, self.alone = False, alone

    def __enter__(self) -> "StopRequest":
        self.old: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            numbers = {signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}
            heard = [n for n in numbers if signal.getsignal(n) != signal.SIG_IGN]  # as with nohup
            self.old = {number: signal.signal(number, self.note) for number in heard}
        return self

    def note(self, number: int, frame: Any) -> None:
        """Handle a signal: set `wanted`; on a second Ctrl-C, a single process interrupts itself."""
        if self.wanted and self.alone and number == signal.SIGINT:
            self.__exit__()
            raise KeyboardInterrupt("stopped immediately; the last checkpoint is still valid")
        self.wanted = True

    def __exit__(self, *error: object) -> None:
        for number, handler in self.old.items():
            signal.signal(number, handler)


class LostProcess(OSError):
    """Another process of a run has ended, or has not answered in time."""


# Gloo and NCCL have no exceptions of their own for this.
_LOST = re.compile(r"timed out|timeout|connection (closed|reset|refused)|remote process", re.I)


class Stopped(KeyboardInterrupt):
    """A run has stopped on request and has saved, in all its processes."""


@contextmanager
def leave_together(processes: Processes) -> Iterator[None]:
    """Context of a run: at its regular end all processes leave together.

    A process that fails does not wait for the others, which wait for its share of a sum: it aborts
    its communication and exits, and torchrun ends the others.

    Raises: LostProcess if another process has ended or does not answer.
    """
    orderly = False
    try:
        yield
        orderly = True
    except Stopped:
        orderly = True
        raise
    except RuntimeError as error:
        if processes.size == 1 or not _LOST.search(str(error)):
            raise
        what = "expected an answer of the other processes, of which one may have died"
        advice = "the last checkpoint is valid, and --resume continues from it"
        raise LostProcess(f"{what}; {advice} ({one_line(error):.200})") from error
    finally:
        if orderly and processes.size > 1:
            time.sleep(0.5)  # Gloo's threads need the interpreter to release their last tensors
            distributed.destroy_process_group()
        elif processes.device.type == "cuda" and processes.size > 1 and distributed.group.WORLD:
            with suppress(AttributeError):  # torch before 2.6
                distributed.group.WORLD.abort()  # so that an unfinished sum does not block a GPU
