"""The trainer."""

import itertools
import math
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from annotated.data import PAD, token_batches
from annotated.machinery.encoding import EncodedPairs
from annotated.machinery.files import settings
from annotated.machinery.training.batches import (
    POOL,
    GlobalBatch,
    MicroBatch,
    derive_seed,
    longest_sentence,
    pool_places,
    pools,
    prefetch,
    share_parts,
    short_enough,
    to_device,
)
from annotated.machinery.training.checkpoints import (
    INTERRUPTED,
    check_checkpoint,
    checkpoint_tensors,
    delete_old_checkpoints,
    newest_checkpoint,
    read_checkpoint,
    restore_tensors,
    write_checkpoint,
)
from annotated.machinery.training.checks import fixed_options
from annotated.machinery.training.folder import average_run, prepare_run, read_pairs, run_lock
from annotated.machinery.training.logs import Progress, RunLog
from annotated.machinery.training.loss import ModelLoss, compile_loss
from annotated.machinery.training.processes import (
    Processes,
    Readback,
    Stopped,
    StopRequest,
    find_precision,
    join_processes,
    leave_together,
)
from annotated.machinery.translator import load_pretrained
from annotated.model import build_model
from annotated.optimizer import paper_optimizer
from annotated.training import TrainingConfig, model_config, update_weights


class _Queued(NamedTuple):
    """An update whose end nobody has seen, and the seconds that the device waited for its data."""

    batch: GlobalBatch
    loss: Readback
    waited: float


class Trainer:
    """A model in training.

    Args:
        config: the run.
        pairs, dev_pairs: for training and for validation.
        processes: this process among all; default: alone on the CPU.

    Raises: ValueError if `parts` cannot be shared out evenly.
    """

    def __init__(
        self,
        config: TrainingConfig,
        pairs: EncodedPairs,
        dev_pairs: EncodedPairs,
        processes: Processes | None = None,
    ) -> None:
        self.config, self.pairs, self.dev_pairs = config, pairs, dev_pairs
        self.processes = processes or Processes()
        self.parts = share_parts(config.parts, self.processes.size)
        self.kept = short_enough(pairs, longest_sentence(config, self.parts))
        self.device, self.progress = self.processes.device, Progress()
        torch.manual_seed(config.seed)
        self.model = build_model(model_config(config)).to(self.device)
        self.dtype = find_precision(config.precision, self.device)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.dtype == torch.float16)
        self.loss: nn.Module = ModelLoss(self.model, config.label_smoothing)
        if self.processes.size > 1:
            self.loss = DistributedDataParallel(
                self.loss, broadcast_buffers=False, gradient_as_bucket_view=True
            )
        self.run_loss = compile_loss(self.loss) if config.compile else self.loss
        self.queue: deque[_Queued] = deque()
        self.since = time.perf_counter()  # when the last update ended of which this is known
        self.start_optimizer()

    def start_optimizer(self) -> None:
        """Optimizer and schedule, from the update that the run has reached."""
        c = self.config
        self.optimizer, self.scheduler = paper_optimizer(
            self.model, c.d_model, c.factor, c.warmup, done=self.progress.moves
        )

    def autocast(self) -> AbstractContextManager[Any]:
        """Where matrix products use the numbers of `precision`."""
        if self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, self.dtype)

    def micro_batches(self, epoch: int, batch: int) -> Iterator[MicroBatch]:
        """The batches of all passes over the training pairs, from a place on."""
        config, count = self.config, len(self.kept)
        budgets = config.src_tokens // self.parts, config.tgt_tokens // self.parts
        for now in itertools.count(epoch):
            seed, first = derive_seed(config.seed, now), batch if now == epoch else 0
            for pool in range(first // POOL, pools(count)):
                numbers = self.kept[pool_places(count, pool, seed)]
                shuffle = derive_seed(config.seed, now, pool) if pool else seed
                batches = token_batches(self.pairs.lengths[numbers], *budgets, seed=shuffle)
                for i in range(max(0, first - pool * POOL), len(batches)):
                    yield MicroBatch(now, pool * POOL + i, numbers[batches[i]].tolist())

    def collate(self, pairs: EncodedPairs, batch: MicroBatch) -> tuple[int, Tensor, Tensor]:
        """The seed of a batch, and its ids: (batch, src_len) and (batch, tgt_len + 1)."""
        seed = derive_seed(self.config.seed, batch.epoch, batch.batch)
        multiple = 1 if self.device.type == "cpu" else 8
        sides = (torch.from_numpy(pairs.padded(batch.pairs, side, multiple)) for side in (0, 1))
        src, tgt = (to_device(ids, self.device) for ids in sides)
        return seed, src, tgt

    def global_batches(self) -> Iterator[GlobalBatch]:
        """The work of the coming updates, from where the run stands, without end."""
        rank, size = self.processes.rank, self.processes.size
        stream = self.micro_batches(self.progress.epoch, self.progress.batch)
        while True:
            taken = list(itertools.islice(stream, self.parts))
            pairs = list(itertools.chain.from_iterable(batch.pairs for batch in taken))
            tokens = int(self.pairs.lengths[pairs, 1].sum(dtype=np.int64)) - len(pairs)
            yield GlobalBatch(
                taken, tokens, [self.collate(self.pairs, b) for b in taken[rank::size]]
            )

    def train_step(self, batch: GlobalBatch) -> Readback:
        """Make one update of the weights; on a GPU, queue it.

        Returns: the loss, summed over the target tokens of all processes, on its way.
        """
        self.loss.train()
        total = torch.zeros((), device=self.device)
        for i, (seed, src, tgt) in enumerate(batch.share, start=1):
            torch.manual_seed(seed)
            with nullcontext() if i == len(batch.share) else _no_sync(self.loss):
                with self.autocast():
                    loss = self.run_loss(src, tgt)
                self.scaler.scale(loss * self.processes.size / batch.tokens).backward()
            total += loss.detach()
        if not update_weights(self.optimizer, self.scheduler, self.scaler):
            self.progress.skipped += 1
        return Readback(self.processes.all_reduce(total))

    @torch.no_grad()
    def dev_loss(self) -> float:
        """Loss per target token on the validation set, in nats; the processes share the work."""
        pairs, config, processes = self.dev_pairs, self.config, self.processes
        measure = ModelLoss(self.model, smoothing=0.0).eval()
        budgets = (
            max(budget, int(pairs.lengths.max()))
            for budget in (config.src_tokens, config.tgt_tokens)
        )
        batches = token_batches(pairs.lengths, *budgets)
        total = torch.zeros(2, dtype=torch.float64, device=self.device)  # loss, tokens
        for number in range(processes.rank, len(batches), processes.size):
            _, src, tgt = self.collate(pairs, MicroBatch(0, number, list(batches[number])))
            total += torch.stack([measure(src, tgt).double(), (tgt[:, 1:] != PAD).sum().double()])
        loss, tokens = processes.all_reduce(total).tolist()
        return loss / tokens

    def save_checkpoint(self, name: str = "") -> Path:
        """Write a checkpoint, named by its update unless a name is given.

        Raises: as `drain`; what has not been seen is not saved.
        """
        self.drain()
        name = name or f"checkpoint-{self.progress.update:08d}"
        path = Path(self.config.out) / f"{name}.safetensors"
        scaler, config = self.scaler.state_dict(), fixed_options(self.config)
        state = {"progress": asdict(self.progress), "scaler": scaler, "config": config}
        write_checkpoint(path, checkpoint_tensors(self.model, self.optimizer), state)
        return path

    def load_checkpoint(self, path: Path) -> None:
        """Continue where a checkpoint was written.

        Raises: FileError if the file is damaged, or of another run; the trainer is as it was then.
        """
        tensors, state = read_checkpoint(path)
        check_checkpoint(path, tensors, state, self.config, self.model)
        self.progress = settings(Progress, state["progress"], str(path))
        if state["scaler"]:  # empty unless written in float16
            self.scaler.load_state_dict(state["scaler"])
        self.start_optimizer()
        restore_tensors(self.model, self.optimizer, tensors)

    def load_weights(self, name: str) -> None:
        """Give the model of a run the weights of a trained one, which `load_pretrained` finds.

        Raises: ValueError that says how the two models differ, if they do.
        """
        trained = load_pretrained(name).model
        has, asked = asdict(trained.config), asdict(self.model.config)
        keys = [key for key in has if "dropout" not in key and has[key] != asked[key]]
        if keys:
            differ = ", ".join(f"{key}={has[key]} (asked for: {asked[key]})" for key in keys)
            raise ValueError(
                f"expected {name} to be of the size and kind of the new model; it has {differ}"
            )
        self.model.load_state_dict(trained.state_dict())

    def fit(self) -> None:
        """Make the updates that are still to be made."""
        config, leader = self.config, self.processes.rank == 0
        first = self.progress.update + 1
        log = RunLog(Path(config.out), first - 1, config.tensorboard) if leader else None
        coming, last_save = prefetch(self.global_batches()), time.monotonic()
        with StopRequest(self.processes.size == 1) as stop, self._progress_bar() as bar:
            self.since = time.perf_counter()
            for update in range(first, config.updates + 1):
                self.queue_step(coming)
                save_now, stop_now = self.sync_flags(update, stop, last_save)
                log_now = update % config.log_updates == 0
                self.drain(keep=0 if save_now or stop_now or log_now else 1)
                self._advance_bar(bar)
                if save_now:
                    self.validate_and_save(log)
                    last_save, self.since = time.monotonic(), time.perf_counter()
                elif log and log_now:
                    log.add(self._log_row())
                if stop_now and update < config.updates:
                    self.save_and_stop()

    def queue_step(self, coming: Iterator[GlobalBatch]) -> None:
        """Queue one update, whose work is the next that is coming."""
        asked = time.perf_counter()
        batch = next(coming)
        idle = not self.queue or self.queue[-1].loss.here()
        waited = time.perf_counter() - asked if idle else 0.0
        self.queue.append(_Queued(batch, self.train_step(batch), waited))

    def drain(self, keep: int = 0) -> None:
        """See the end of all queued updates but the last `keep`, and note them in the progress.

        Raises: ValueError that names the update and the batches if a loss is not finite.
        """
        while len(self.queue) > keep:
            batch, loss, waited = self.queue.popleft()
            summed, now = float(loss), time.perf_counter()
            if not math.isfinite(summed):
                raise ValueError(_not_finite(batch, summed, self.progress.update + 1))
            self.progress.count(summed, batch.tokens, now - self.since, waited)
            last = batch.micro_batches[-1]
            self.progress.epoch, self.progress.batch = last.epoch, last.batch + 1
            self.since = now

    def sync_flags(self, update: int, stop: StopRequest, last_save: float) -> tuple[bool, bool]:
        """Whether all processes save after this update, and whether they stop."""
        config = self.config
        by_count = bool(config.save_updates) and update % config.save_updates == 0
        minutes = (time.monotonic() - last_save) / 60
        by_clock, stop_now = (
            bool(config.save_minutes) and minutes >= config.save_minutes,
            stop.wanted,
        )
        if self.processes.size > 1:
            agree = update % _AGREE == 0
            by_clock, stop_now = self.processes.any(by_clock, stop_now) if agree else (False, False)
        return by_count or by_clock or update == config.updates, stop_now

    def validate_and_save(self, log: RunLog | None) -> None:
        """Validate, log and save; `log` is None in all processes but the first.

        Raises: ValueError, and saves nothing, if the loss is not finite.
        """
        self.drain()
        loss = self.dev_loss()
        if not math.isfinite(loss):
            where = f"on the validation set after update {self.progress.update}"
            raise ValueError(f"expected a finite loss; got {loss} {where}. {_HELP}")
        if log:
            log.add(self._log_row(loss))
            self.save_checkpoint()
            delete_old_checkpoints(Path(self.config.out), self.config.average)

    def save_and_stop(self) -> None:
        """Save, and leave with a Stopped that says how to go on."""
        self.drain()
        if self.processes.rank == 0:
            self.save_checkpoint(INTERRUPTED.removesuffix(".safetensors"))
        self.processes.barrier()  # the others stay until it is saved
        command = f"annotated train --out {self.config.out} --resume"
        raise Stopped(
            f"stopped after update {self.progress.update}, and saved; to go on: {command}"
        )

    def _log_row(self, loss: float | None = None) -> dict[str, Any]:
        """A row of the log, about the updates since the row before; `loss` is validation's."""
        p = self.progress
        row = {
            "update": p.update,
            "epoch": p.epoch + 1,
            "minutes": round(p.seconds / 60, 2),
            "target_tokens": p.tokens,
            "tokens_per_second": round(p.speed.tokens_per_second),
            "waiting": round(p.speed.waiting, 3),
            "learning_rate": self.scheduler.get_last_lr()[0],
            "train_loss": round(p.row_loss / p.row_tokens, 4),
        }
        p.row_loss, p.row_tokens, p.row_seconds, p.row_waited = 0.0, 0, 0.0, 0.0
        return row if loss is None else row | {"dev_loss": round(loss, 4)}

    def _progress_bar(self) -> tqdm:
        """A bar with the time left, in the first process; in a file, a line now and then."""
        return tqdm(
            total=self.config.updates,
            initial=self.progress.update,
            unit="update",
            disable=self.processes.rank > 0,
            mininterval=0.5 if sys.stderr.isatty() else 20,
        )

    def _advance_bar(self, bar: tqdm) -> None:
        """Move the bar on by the updates that have been seen."""
        p = self.progress
        if p.update == bar.n:
            return
        rate = p.speed.tokens_per_second
        learning_rate = self.scheduler.get_last_lr()[0]
        loss = f"loss {p.row_loss / p.row_tokens:.3f}"
        bar.set_postfix_str(f"{loss}, {rate:,.0f} tokens/s, lr {learning_rate:.1e}", refresh=False)
        bar.update(p.update - bar.n)


def _no_sync(module: nn.Module) -> Any:
    """Where gradients are gathered in this process and not yet shared with the others."""
    return module.no_sync() if isinstance(module, DistributedDataParallel) else nullcontext()


_HELP = "The last checkpoint is from before it; a lower factor or a longer warmup may help"


def _not_finite(batch: GlobalBatch, loss: float, update: int) -> str:
    """What to say when the loss of an update is not a number."""
    where = "; ".join(
        f"epoch {b.epoch + 1}, batch {b.batch + 1}: pairs {b.pairs[:5]}…"
        for b in batch.micro_batches
    )
    return f"expected a finite loss; got {loss} in update {update} ({where}). {_HELP}"


def start_run(
    config: TrainingConfig, resume: bool = False, processes: Processes | None = None
) -> Trainer:
    """Prepare a run, or take up one that stopped at its furthest whole checkpoint.

    Args:
        config: the run.   resume: continue what is in its folder, if anything is.
        processes: this process among all; default: alone on the CPU.

    Raises: ValueError if the folder holds a run and resume is False, or another run.
    """
    processes = processes or Processes()
    config = replace(config, parts=share_parts(config.parts, processes.size))
    folder = Path(config.out)
    if processes.rank == 0:
        prepare_run(config, resume, processes.size)
    saved = processes.broadcast(newest_checkpoint(folder) if processes.rank == 0 else None)
    trainer = Trainer(config, *read_pairs(folder), processes)
    if saved:
        trainer.load_checkpoint(saved)
    elif config.weights:
        trainer.load_weights(config.weights)
    left_out = len(trainer.pairs) - len(trainer.kept)
    if processes.rank == 0 and left_out:
        tqdm.write(
            f"{left_out:,} of {len(trainer.pairs):,} training pairs are too long, and left out"
        )
    return trainer


def train(config: TrainingConfig, resume: bool = False) -> Path:
    """Train a model, or continue a run that stopped.

    Args:
        config: the run.   resume: continue what is in its folder, if anything is.

    Returns: the folder, with model.safetensors (the mean of the last checkpoints, in half
        precision), config.json, tokenizer.json, training.json and log.csv.

    Raises: ValueError as `start_run` and `Trainer.train_step` do; KeyboardInterrupt, when all is
        saved, if it was told to stop.

    Source: section 5.
    """
    processes, folder = join_processes(), Path(config.out)
    lock = run_lock(folder) if processes.rank == 0 else nullcontext()
    with leave_together(processes), lock:
        trainer = start_run(config, resume, processes)
        if trainer.progress.update > config.updates:
            made = f"{trainer.progress.update} updates"
            raise ValueError(
                f"the run in {folder} has made {made}; it cannot end at {config.updates}"
            )
        if trainer.progress.update < config.updates:
            trainer.fit()
        if processes.rank == 0:
            average_run(folder)
        processes.barrier()  # nobody leaves before it is saved
    return folder


_AGREE = 10  # updates
