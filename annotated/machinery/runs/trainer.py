"""The trainer: a run from its configuration to its model, on one process or many.

Three rules make a run independent of the number of processes and of interruptions. The loss of
each micro-batch is divided by the tokens of the whole update, so that the gradients add up to the
gradient of the mean per token. Dropout is seeded by the position of the micro-batch in the data, so
that no random state has to be stored. A loss that is not finite ends the run before it saves.
"""

import math
import shlex
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from annotated.data import PAD, Batch, token_batches
from annotated.embeddings import Generator
from annotated.machinery.blockwise_loss import linear_cross_entropy
from annotated.machinery.corpora.encoding import EncodedPairs
from annotated.machinery.corpora.prepared import PreparedCorpus
from annotated.machinery.errors import FileError, InputError
from annotated.machinery.files import reading
from annotated.machinery.formats.own import Build, built, named_parts
from annotated.machinery.formats.pretrained import read_model
from annotated.machinery.kernels import fast_attention
from annotated.machinery.progress import ProgressBar, progress_bar, say
from annotated.machinery.runs import batches, checkpoints
from annotated.machinery.runs.batches import BatchStream, GlobalBatch, padded_pair, prefetch
from annotated.machinery.runs.folder import average_run, find_or_prepare_corpus, note_run, run_lock
from annotated.machinery.runs.logs import Progress, RunLog, dev_losses
from annotated.machinery.runs.processes import (
    Processes,
    Readback,
    Stopped,
    StopRequest,
    find_precision,
    join_processes,
    leave_together,
)
from annotated.machinery.runs.report import DevelopmentSample, Example, write_page
from annotated.model import EncoderDecoder, build_model
from annotated.optimizer import paper_optimizer, rate
from annotated.regularization import smoothed_cross_entropy
from annotated.training import TrainingConfig, model_config, update_weights

_AGREE = 10  # number of updates after which processes agree on saving and stopping
_HELP = "The last checkpoint is from before this update; a lower factor or a longer warmup may help"


def compiled(layers: Iterable[nn.Module], loss: Any) -> Any:
    """Compile layers in place, once for all of a class and all shapes; returns a compiled loss.

    Without one analysis of torch's, which failed on a whole model on a GPU in torch 2.11.
    """
    analysis = "triton.coalesce_tiling_analysis"
    options: Any = {analysis: False} if analysis in torch._inductor.list_options() else None
    for layer in layers:
        layer.compile(dynamic=True, options=options)
    return torch.compile(loss, dynamic=True, options=options)


class ModelLoss(nn.Module):
    """A model with its loss, the module that `DistributedDataParallel` wraps.

    Args:
        model: the paper's `Generator` is not called, but its weights are used in blocks.
        smoothing: ε (section 5.4).   compile: the layers and the loss.
    """

    def __init__(self, model: EncoderDecoder, smoothing: float, compile: bool = False) -> None:
        super().__init__()
        self.model, self.smoothing, self.criterion = model, smoothing, linear_cross_entropy
        if compile:
            layers = *model.encoder.layers, *model.decoder.layers
            self.criterion = compiled(layers, self.criterion)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """ids (batch, src_len) and (batch, tgt_len + 1) to the loss, summed over target tokens."""
        loss = self.sum_over_tokens(Batch(src, tgt))
        if self.model.parts:  # a part may never use a parameter, but the processes wait for its
            loss = loss + 0 * sum(p.sum() for p in self.model.parameters())  # gradient
        return loss

    def sum_over_tokens(self, batch: Batch) -> Tensor:
        """The loss of a batch, by the parameters that it uses."""
        out = self.model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
        generator = self.model.generator
        if type(generator) is not Generator:
            logits = self.model.logits(out)
            return smoothed_cross_entropy(logits, batch.tgt_y, PAD, self.smoothing)
        proj, weight = generator.proj, generator.proj.weight  # (vocab, d_model)
        if proj.bias is not None:  # the bias is the weight of an additional input of 1
            out = F.pad(out, (0, 1), value=1.0)
            weight = torch.cat([weight, proj.bias.unsqueeze(1)], dim=1)
        return self.criterion(out, weight, batch.tgt_y, PAD, self.smoothing)


def schedule(config: TrainingConfig) -> Callable[[int, int, float, int], float]:
    """The learning rate by the update: equation 3, or after its peak constant or a cosine."""

    def later(step: int, model_size: int, factor: float, warmup: int) -> float:
        peak = rate(min(step, warmup), model_size, factor, warmup)
        if config.schedule == "constant" or step <= warmup:
            return peak
        share = (step - warmup) / (config.updates + 1 - warmup)
        return peak * (1 + math.cos(math.pi * min(share, 1.0))) / 2

    return rate if config.schedule == "paper" else later


class Trainer:
    """A model in training.

    Args:
        config: the run.   pairs, dev_pairs: for training and for validation.
        processes: this process among all; default: a single process on the CPU.
        build: as for `train`.

    Raises: InputError if no pair is short enough, or the processes cannot share the parts.
    """

    def __init__(
        self,
        config: TrainingConfig,
        pairs: EncodedPairs,
        dev_pairs: EncodedPairs,
        processes: Processes | None = None,
        build: Build = build_model,
    ) -> None:
        self.config, self.dev_pairs, self.build = config, dev_pairs, build
        self.processes = processes or Processes()
        self.stream = BatchStream(config, pairs, self.processes)
        self.device, self.progress = self.processes.device, Progress()
        torch.manual_seed(config.seed)
        self.model = built(build, model_config(config)).to(self.device)
        self.dtype = find_precision(config.precision, self.device)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.dtype == torch.float16)
        self.loss: Any = ModelLoss(self.model, config.label_smoothing, config.compile)
        if self.processes.size > 1:
            known, name = signature(DistributedDataParallel).parameters, "forward_sync_buffers"
            name = name if name in known else "broadcast_buffers"  # before torch 2.13
            options: Any = {name: False, "gradient_as_bucket_view": True}
            self.loss = DistributedDataParallel(self.loss, **options)
        # Updates whose losses have not been read, with the seconds when the device had no data.
        self.queue: deque[tuple[GlobalBatch, Readback, float]] = deque()
        self.since = time.perf_counter()  # end of the last update whose loss has been read
        self.shown = ""  # the last evaluation
        self.start_optimizer()

    def start_optimizer(self) -> None:
        """Optimizer and schedule, at the update that the run has reached."""
        c, done = self.config, self.progress.update - self.progress.skipped
        numbers = c.d_model, c.factor, c.warmup, done
        self.optimizer, self.scheduler = paper_optimizer(self.model, *numbers, schedule(c))

    def train_step(self, batch: GlobalBatch) -> Readback:
        """Make one update of the weights; on a GPU, queue it.

        Returns: the loss, summed over the target tokens of all processes, not yet arrived.
        """
        self.loss.train()
        total = torch.zeros((), device=self.device)
        dtype, device = self.dtype, self.device
        low = dtype != torch.float32  # around all parts, so that each weight is cast once
        with torch.autocast(device.type, dtype) if low else nullcontext():
            for i, (seed, src, tgt) in enumerate(batch.share, start=1):
                torch.manual_seed(seed)
                last = i == len(batch.share)  # processes exchange gradients only in the last one
                alone = last or self.processes.size == 1
                with nullcontext() if alone else self.loss.no_sync():
                    with fast_attention(dtype, device, max(src.size(1), tgt.size(1))):
                        loss = self.loss(src, tgt)
                    # DistributedDataParallel averages over processes, hence the factor.
                    scaled = self.scaler.scale(loss * self.processes.size / batch.tokens)
                    with torch.autocast(device.type, enabled=False) if low else nullcontext():
                        scaled.backward()
                total += loss.detach()
        self.rate = float(self.scheduler.get_last_lr()[0])
        if not update_weights(self.optimizer, self.scheduler, self.scaler, self.config.clip):
            self.progress.skipped += 1
        return Readback(self.processes.all_reduce(total))

    def queue_step(self, coming: Iterator[GlobalBatch]) -> None:
        """Queue one update on the next batches."""
        asked = time.perf_counter()
        batch = next(coming)
        idle = not self.queue or self.queue[-1][1].here()
        waited = time.perf_counter() - asked if idle else 0.0
        self.queue.append((batch, self.train_step(batch), waited))

    def drain(self, keep: int = 0) -> None:
        """Wait for the queued updates, except the newest `keep`, and record their losses.

        Raises: InputError that names the update and its first batch if a loss is not finite.
        """
        while len(self.queue) > keep:
            batch, loss, waited = self.queue.popleft()
            summed, now = float(loss), time.perf_counter()
            if not math.isfinite(summed):
                first = batch.micro_batches[0]
                place = f"(from epoch {first.epoch + 1}, batch {first.batch + 1})"
                where = f"in update {self.progress.update + 1} {place}"
                raise InputError(f"expected a finite loss; got {summed} {where}. {_HELP}")
            self.progress.count(summed, batch.tokens, now - self.since, waited)
            last = batch.micro_batches[-1]
            self.progress.epoch, self.progress.batch = last.epoch, last.batch + 1
            self.since = now

    @torch.no_grad()
    def dev_loss(self) -> float:
        """Loss per target token on the validation set, in nats; the processes share the work.

        Raises: InputError if it is not finite.
        """
        pairs, config, processes = self.dev_pairs, self.config, self.processes
        measure = ModelLoss(self.model, smoothing=0.0).eval()
        longest = int(pairs.lengths.max())
        budgets = max(config.src_tokens, longest), max(config.tgt_tokens, longest)
        batches = token_batches(pairs.lengths, *budgets)
        total = torch.zeros(2, dtype=torch.float64, device=self.device)  # loss, tokens
        for number in range(processes.rank, len(batches), processes.size):
            src, tgt = padded_pair(pairs, batches[number].tolist(), self.device)
            total += torch.stack([measure(src, tgt).double(), (tgt[:, 1:] != PAD).sum().double()])
        loss, tokens = processes.all_reduce(total).tolist()
        if not math.isfinite(loss):
            where = f"on the validation set after update {self.progress.update}"
            raise InputError(f"expected a finite loss; got {loss} {where}. {_HELP}")
        return loss / tokens

    def evaluate(self, sample: DevelopmentSample | None) -> tuple[dict[str, float], list[Example]]:
        """The loss on the validation set; and of a sample, in one process, scores and examples."""
        loss = {"dev_loss": round(self.dev_loss(), 4)}
        scores, examples = sample.translate(self.model) if sample else ({}, [])
        return loss | scores, examples

    def fit(self, callbacks: Sequence[Any] = ()) -> None:
        """Make the remaining updates, and save.

        One update is kept queued, so that the device never waits for Python.

        Args: callbacks: as for `train`.

        Raises: InputError, and saves nothing, if a loss is not finite; Stopped, after saving, if
            a signal to stop arrived; after saving, what a callback raises.
        """
        config, leader = self.config, self.processes.rank == 0
        first = self.progress.update + 1
        folder = Path(config.out)
        log = RunLog(folder, first - 1, config.tensorboard) if leader else None
        sample = DevelopmentSample(folder, config, self.dev_pairs) if leader else None
        over = self._is_patience_over()
        updates = self.stream.updates(self.progress.epoch, self.progress.batch)
        coming, last_save = prefetch(updates), time.monotonic()
        ends: Any = {"initial": first - 1, "total": config.updates}
        bar = progress_bar(**ends, unit="update", disable=not leader)
        with StopRequest(self.processes.size == 1) as stop, bar:
            self.since = time.perf_counter()
            for update in range(first, config.updates + 1):
                if over:
                    break
                self.queue_step(coming)
                save, stopping = self._agree(update, stop, last_save)
                due = update % config.log_updates == 0
                self.drain(keep=0 if save or stopping or due else 1)
                self._advance(bar)
                measured, examples = self.evaluate(sample) if save else ({}, [])
                row: dict[str, Any] = {}
                if log and (save or due):
                    row = self.progress.take_row(self.rate) | measured
                    log.add(row, "\n\n".join(map(str, examples)))
                if save:
                    name = f"checkpoint-{update:08d}.safetensors"
                    self._save(name)
                    over = self._is_patience_over()
                    if leader:
                        write_page(config, examples, over or update == config.updates)
                        self.shown = "".join(f", {key} {x:.4g}" for key, x in measured.items())
                        for line in (f"update {update:,}{self.shown}", *examples):
                            say(line)
                if row and callbacks:
                    self._tell(callbacks, row, examples, folder / name if save else None)
                if save:
                    last_save, self.since = time.monotonic(), time.perf_counter()
                if stopping and update < config.updates:
                    self._save(checkpoints.INTERRUPTED)
                    how = f"annotated train --out {shlex.quote(config.out)} --resume"
                    raise Stopped(f"stopped after update {update} and saved; to continue: {how}")

    def _agree(self, update: int, stop: StopRequest, last_save: float) -> tuple[bool, bool]:
        """Whether all processes save after this update, and whether they stop.

        A time limit or a signal may reach one process before the others. They agree only every few
        updates, because each time the fastest waits for the slowest.
        """
        config, minutes = self.config, (time.monotonic() - last_save) / 60
        by_count = config.save_updates > 0 and update % config.save_updates == 0
        flags = [0 < config.save_minutes <= minutes, stop.wanted]
        if self.processes.size > 1:
            agree = update % _AGREE == 0
            flags = self.processes.any(*flags) if agree else [False, False]
        return by_count or flags[0] or update == config.updates, flags[1]

    def _is_patience_over(self) -> bool:
        """Whether too many evaluations have passed since the one with the lowest loss."""
        over, patience = False, self.config.patience
        if patience and self.processes.rank == 0:
            losses = [*dev_losses(Path(self.config.out)).values()]
            since = len(losses) - 1 - losses.index(min(losses)) if losses else 0
            if over := since >= patience:
                told = f"no lower development loss in {since} evaluations; the run ends"
                say(f"{told} after update {self.progress.update:,}")
        return bool(patience) and self.processes.broadcast(over)

    def _tell(
        self, callbacks: Sequence[Any], row: dict[str, Any], examples: list[Example], saved: Any
    ) -> None:
        """Call what the callbacks have; if one raises an exception, the run has been saved."""
        events: dict[str, list[Any]] = {"on_log": [row]}
        events |= {"on_evaluate": [row, examples], "on_save": [saved]} if saved else {}
        try:
            for name, arguments in events.items():
                for callback in callbacks:
                    if hasattr(callback, name):
                        getattr(callback, name)(*arguments)
        except BaseException:
            if not saved:
                self._save(checkpoints.INTERRUPTED, wait=False)  # torchrun ends the others
            raise

    def _save(self, name: str, wait: bool = True) -> None:
        """Write a checkpoint of the drained updates; all processes wait for the first one."""
        if self.processes.rank == 0:
            folder, config = Path(self.config.out), checkpoints.fixed_options(self.config)
            state = checkpoints.RunState(
                self.progress, self.scaler.state_dict(), config, self.model.parts
            )
            tensors = checkpoints.checkpoint_tensors(self.model, self.optimizer)
            checkpoints.write_checkpoint(folder / name, tensors, state)
            (folder / checkpoints.SAVED).touch()
            if name != checkpoints.INTERRUPTED:
                best = max(self.config.keep_best, self.config.patience > 0)
                checkpoints.delete_old_checkpoints(folder, self.config.average, best)
        if wait:
            self.processes.barrier()

    def _advance(self, bar: ProgressBar) -> None:
        """Advance the progress bar by the drained updates."""
        p = self.progress
        if p.update > bar.n:
            loss = p.row_loss / p.row_tokens
            shown = f"loss {loss:.3f}, {p.tokens_per_second:,.0f} tokens/s, lr {self.rate:.1e}"
            bar.set_postfix_str(shown + self.shown, refresh=False)
            bar.update(p.update - bar.n)

    def load_checkpoint(self, path: Path) -> None:
        """Continue from a checkpoint.

        Raises: FileError if it is damaged or of another run; then the trainer is unchanged.
        """
        tensors, state = checkpoints.read_checkpoint(path)
        checkpoints.check_options(path, state, self.config)
        if state.parts != self.model.parts:
            wanted = f"a run with these parts: {named_parts(self.model.parts)}"
            got = f"{named_parts(state.parts)}; pass the same build= as at the start of the run"
            raise FileError(f"{path}: expected a checkpoint of {wanted}; got: {got}")
        checkpoints.check_tensors(path, tensors, self.model, self.optimizer)
        if state.scaler:  # empty unless written in float16
            with reading(path, "the state of a scaler"):
                self.scaler.load_state_dict(state.scaler)
        self.progress = state.progress
        self.start_optimizer()
        checkpoints.restore_tensors(self.model, self.optimizer, tensors)

    def load_weights(self) -> None:
        """Give the model the weights of the trained model that the run continues.

        Raises: InputError that names a difference between the two models.
        """
        name, checkpoint = self.config.from_, self.config.checkpoint or None
        own = self.build if self.model.parts else None
        trained, told = read_model(name, checkpoint, own)
        asked = asdict(self.model.config)
        free = {"dropout", "attention_dropout"}  # not part of the weights, like sinusoids
        free |= set() if asked["positions"] == "learned" else {"max_len"}
        for key, has in asdict(trained.model.config).items():
            if key not in free and has != asked[key]:
                advice = "fine_tuning takes it from the model"
                wanted = f"expected {name} to have {key}={asked[key]}"
                raise InputError(f"{wanted}; it has {has}; {advice}")
        self.model.load_state_dict(trained.model.state_dict())
        for line in told if self.processes.rank == 0 else ():
            say(line)


_SIZED = "updates", "warmup", "factor", "save_updates", "average"


def sized(trainer: Trainer, vocabulary: Path) -> TrainingConfig:
    """A run that ends after about as many minutes as configured, by a short timing of a trainer,
    which is of no use afterwards.

    At most a tenth of the time is for evaluations. The warmup is at most a fifth of the updates,
    and the peak of the learning rate is as configured.
    """
    config, processes, clock = trainer.config, trainer.processes, time.perf_counter
    leader, began, seconds, over = processes.rank == 0, clock(), list[float](), False
    coming = prefetch(trainer.stream.updates(0, 0))
    while not over:
        start = clock()
        float(trainer.train_step(next(coming)))
        seconds.append(clock() - start)
        enough = len(seconds) > 3 and clock() - began > 0.03 * 60 * config.minutes
        over = processes.any(enough)[0]
    start = clock()
    trainer.evaluate(DevelopmentSample(vocabulary, config, trainer.dev_pairs) if leader else None)
    evaluation, update = clock() - start, sum(seconds[2:]) / len(seconds[2:])  # the first are slow
    left = max(60 * config.minutes - (clock() - began), 0.0)
    evaluations = max(1, min(20, int(0.1 * left / evaluation)))
    updates = max(1, int((left - evaluations * evaluation) / update))
    warmup, every = min(config.warmup, -(-updates // 5)), -(-updates // evaluations)
    factor = config.factor * (warmup / config.warmup) ** 0.5
    average = min(config.average, -(-evaluations // 4))
    sizes = processes.broadcast((updates, warmup, factor, every, average))
    if leader:
        fit = f"{updates:,} updates, {warmup:,} of them warmup, and {evaluations} evaluations"
        say(f"{config.minutes:g} minutes: {fit} ({update:.3f} and {evaluation:.1f} seconds each)")
    return replace(config, **dict(zip(_SIZED, sizes, strict=True)))


def start_run(
    config: TrainingConfig,
    resume: bool = False,
    processes: Processes | None = None,
    build: Build = build_model,
) -> Trainer:
    """Begin a run, or continue one from its latest undamaged checkpoint.

    Args: resume: continue the run in its folder, if there is one.   others: as for `Trainer`.

    Raises: InputError if the folder contains a run and resume is False, or another run; as
        `Trainer`.
    """
    processes = processes or Processes()
    config = replace(config, parts=batches.share_parts(config.parts, processes.size))
    folder, saved, place, own = Path(config.out), None, None, False
    try:
        if config.minutes and resume:  # as it was sized when it began
            if processes.rank == 0 and (folder / "training.json").exists():
                was = checkpoints.read_config(folder)
                config = replace(config, **{name: getattr(was, name) for name in _SIZED})
            config = processes.broadcast(config)
        if processes.rank == 0:
            own = not (folder / "prepared").exists()
            corpus = find_or_prepare_corpus(config, resume, processes.size)
            saved, place = checkpoints.newest_checkpoint(folder), corpus.folder
            marks = checkpoints.SAVED, "model.safetensors"
            if not saved and any((folder / name).exists() for name in marks):
                advice = "put one back, or choose another --out"
                raise FileError(f"{folder}: expected a checkpoint from which to continue; {advice}")
        saved, place = processes.broadcast((saved, place))
        if processes.rank > 0:
            corpus = PreparedCorpus.open(place)
        trainer = Trainer(config, corpus.train, corpus.dev, processes, build)
        if config.minutes and not saved:
            config = sized(trainer, corpus.folder)
            trainer = Trainer(config, corpus.train, corpus.dev, processes, build)
        if saved:
            trainer.load_checkpoint(saved)
        elif config.from_:
            trainer.load_weights()
        if (made := trainer.progress.update) > config.updates:
            ends = f"it cannot end at {config.updates}"
            raise InputError(f"the run in {folder} has made {made} updates; {ends}")
        if processes.rank == 0:
            note_run(config, corpus)
    except BaseException:
        if own:  # created by this start
            shutil.rmtree(folder / "prepared", ignore_errors=True)
        raise
    left_out = (count := len(corpus.train)) - len(trainer.stream.kept)
    if processes.rank == 0 and left_out:
        say(f"{left_out:,} of {count:,} training pairs are too long and are left out")
    return trainer


def train(
    config: TrainingConfig,
    resume: bool = False,
    build: Build = build_model,
    callbacks: Sequence[Any] = (),
) -> Path:
    """Train a model, or continue a run that stopped.

    It uses and seeds torch's global random generator, so other code that draws from this generator
    in the same process changes the run.

    Args:
        config: the run.   resume: continue the run in its folder, if there is one.
        build: from the configuration of the model to the model, such as
            `partial(build_model, attention=MyAttention)`; pass it again to resume or load.
        callbacks: objects with any of these methods, called in the first process:
            `on_log(row)` with each row of the log, by column; `on_evaluate(row, examples)` after
            each evaluation, with three translations (`Example`); `on_save(path)` after each
            checkpoint. An exception of theirs ends the run, which has been saved.

    Returns: the folder, with model.safetensors (the mean of the last checkpoints, in half
        precision), config.json, tokenizer.json, training.json, log.csv, and log.html, its curves.

    Raises: InputError for a folder with another run, or with this one unless resume, for a loss
        that is not finite, and for a wrong callback; KeyboardInterrupt, once saved, to stop.

    Source: section 5.
    """
    for callback in callbacks:
        if not any(hasattr(callback, name) for name in ("on_log", "on_evaluate", "on_save")):
            wanted = "expected callbacks with on_log, on_evaluate or on_save"
            raise InputError(f"{wanted}; got {callback!r:.80}")
    found = find_spec("tensorboard")  # has no origin if it is merely a folder with this name
    if config.tensorboard and not (found and found.origin):
        raise InputError("expected the package tensorboard: pip install tensorboard")
    processes, folder = join_processes(config.wait_minutes), Path(config.out)
    lock = run_lock(folder) if processes.rank == 0 else nullcontext()
    with leave_together(processes), lock:
        trainer = start_run(config, resume, processes, build)
        if trainer.progress.update < config.updates:
            trainer.fit(callbacks)
        if processes.rank == 0:
            average_run(folder)
        processes.barrier()  # no process exits before the model is saved
    return folder
