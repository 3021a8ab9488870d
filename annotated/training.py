"""5.2 Hardware and Schedule (chapters/5-2-hardware-schedule.md).

Generated from the chapter's export cells by book/extract.py: edit it there.
"""

import csv
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from tqdm import tqdm

from annotated.data import (
    PAD,
    Batch,
    encode_source,
    encode_target,
    load_pairs,
    make_batch,
    token_batches,
    train_bpe,
)
from annotated.model import TransformerConfig, build_model
from annotated.optimizer import paper_optimizer
from annotated.regularization import LabelSmoothing

__all__ = [
    "SimpleLossCompute",
    "TrainState",
    "Trainer",
    "TrainingConfig",
    "average_checkpoints",
    "checkpoints",
    "dev_loss",
    "load_checkpoint",
    "log_row",
    "model_config",
    "run_epoch",
    "save_checkpoint",
    "save_model",
    "start_run",
    "train",
    "train_epoch",
    "write_tensors",
    "write_text",
]


class SimpleLossCompute:
    """Decoder output to loss.

    Args:
        generator: decoder output to log-probabilities.
        criterion: (log-probabilities, targets) to a summed loss, as `LabelSmoothing`.
    """

    def __init__(self, generator: nn.Module, criterion: nn.Module) -> None:
        self.generator = generator
        self.criterion = criterion

    def __call__(self, x: Tensor, y: Tensor, norm: Tensor | float) -> tuple[Tensor, Tensor]:
        """x: (batch, len, d_model)   y: ids (batch, len)   norm: what the sum is divided by.

        Returns: the summed loss, detached, and the loss per unit of norm to differentiate.
        """
        log_probs = self.generator(x)  # (batch, len, vocab)
        total = self.criterion(log_probs.flatten(0, 1), y.flatten())
        return total.detach(), total / norm


@dataclass
class TrainState:
    """What has been done so far.

    Args:
        step: batches seen.   accum_step: updates of the weights.
        samples: sentence pairs seen.   tokens: target tokens seen.
    """

    step: int = 0
    accum_step: int = 0
    samples: int = 0
    tokens: int = 0

    def count(self, samples: int, tokens: int) -> None:
        """Add a batch."""
        self.step += 1
        self.samples += samples
        self.tokens += tokens

    def update(self, optimizer: Optimizer | None, scheduler: LRScheduler | None) -> None:
        """Move the weights along the gathered gradients, and forget these."""
        if optimizer is None or scheduler is None:
            raise ValueError("expected an optimizer and a scheduler for training; got None")
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        scheduler.step()
        self.accum_step += 1


def run_epoch(
    data_iter: Iterable[Batch],
    model: nn.Module,
    loss_compute: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
    optimizer: Optimizer | None = None,
    scheduler: LRScheduler | None = None,
    mode: str = "train",
    accum_iter: int = 1,
    train_state: TrainState | None = None,
) -> tuple[float, TrainState]:
    """One pass over the data, learning or only measuring.

    Args:
        data_iter: batches.   model: called with (src, tgt, src_mask, tgt_mask).
        loss_compute: as `SimpleLossCompute`.
        optimizer, scheduler: needed by the training modes only.
        mode: "train", "train+log" (with a progress bar) or "eval".
        accum_iter: batches whose gradients add up to one update.
        train_state: counters to carry on; default: new ones.

    Returns: mean loss per target token in nats, and the counters.

    Raises: ValueError if the loss of a batch is not finite, or if an optimizer is missing.
    """
    state = train_state or TrainState()
    training = mode.startswith("train")
    total_loss, total_tokens = 0.0, 0
    pending = 0  # batches whose gradients wait for the update
    progress = tqdm(data_iter, disable=not mode.endswith("log"), leave=False, unit="batch")
    for batch in progress:
        loss, tokens = _step(batch, model, loss_compute, training, accum_iter)
        total_loss, total_tokens = total_loss + loss, total_tokens + tokens
        state.count(batch.src.size(0), tokens)
        if not math.isfinite(loss):
            raise ValueError(f"expected a finite loss; got {loss} in batch {state.step}")
        pending += training
        if pending == accum_iter:
            state.update(optimizer, scheduler)
            pending = 0
        progress.set_postfix(loss=f"{loss / max(tokens, 1):.2f}", refresh=False)
    if pending:  # a last, smaller group
        state.update(optimizer, scheduler)
    return total_loss / max(total_tokens, 1), state


def _step(
    batch: Batch,
    model: nn.Module,
    loss_compute: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
    training: bool,
    accum_iter: int,
) -> tuple[float, int]:
    """Loss and number of target tokens of a batch; if training, its gradients are added."""
    with torch.set_grad_enabled(training):
        out = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
        loss, loss_node = loss_compute(out, batch.tgt_y, batch.ntokens)
    if training:
        (loss_node / accum_iter).backward()
    return float(loss), int(batch.ntokens)


def _option(default: Any, text: str) -> Any:
    """A field with the help text of its command-line option."""
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class TrainingConfig:
    """A training run; its fields are the options of `annotated train`."""

    out: str = _option("runs/multi30k-en-de", "folder of the run: checkpoints, log, model")
    corpus: str = _option("multi30k", "a corpus of data/corpora.toml")
    src: str = _option("en", "source language")
    tgt: str = _option("de", "target language")
    vocab_size: int = _option(5000, "pieces in the shared vocabulary")
    N: int = _option(4, "layers in each stack")
    d_model: int = _option(128, "width of the model")
    d_ff: int = _option(512, "inner width of the feed-forward layers")
    h: int = _option(4, "attention heads")
    dropout: float = _option(0.2, "P_drop (section 5.4)")
    label_smoothing: float = _option(0.1, "ε of label smoothing (section 5.4)")
    batch_tokens: int = _option(2000, "tokens in a batch on either side, padding included")
    accum_iter: int = _option(1, "batches whose gradients add up to one update")
    warmup: int = _option(1500, "updates during which the learning rate rises (equation 3)")
    factor: float = _option(1.0, "multiplies the learning rate of equation 3")
    epochs: int = _option(40, "passes over the training pairs")
    average: int = _option(5, "checkpoints that are kept, and averaged at the end (section 6.1)")
    seed: int = _option(1, "start of every random choice")


def model_config(config: TrainingConfig) -> TransformerConfig:
    """The model of a run: the paper's, in the run's size, on a shared vocabulary."""
    return TransformerConfig.base(
        config.vocab_size,
        N=config.N,
        d_model=config.d_model,
        d_ff=config.d_ff,
        h=config.h,
        dropout=config.dropout,
    )


class Trainer:
    """A model in training.

    Args:
        config: the run.
        pairs: source and target ids for training.   dev_pairs: likewise, for validation.
    """

    def __init__(self, config: TrainingConfig, pairs: list, dev_pairs: list) -> None:
        torch.manual_seed(config.seed)
        self.config, self.pairs, self.dev_pairs = config, pairs, dev_pairs
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = build_model(model_config(config)).to(self.device)
        self.state, self.epoch, self.minutes = TrainState(), 0, 0.0
        self.start_optimizer()

    def start_optimizer(self) -> None:
        """Optimizer and schedule, from the update that the run has reached."""
        c = self.config
        self.optimizer, self.scheduler = paper_optimizer(
            self.model, c.d_model, c.factor, c.warmup, done=self.state.accum_step
        )

    def batches(self, pairs: list, seed: int | None = None) -> Iterator[Batch]:
        for indices in token_batches(pairs, self.config.batch_tokens, seed):
            yield make_batch([pairs[i] for i in indices], self.device)

    def loss(self, smoothing: float) -> SimpleLossCompute:
        criterion = LabelSmoothing(self.config.vocab_size, PAD, smoothing)
        return SimpleLossCompute(self.model.generator, criterion)


def train_epoch(trainer: Trainer) -> float:
    """One pass over the training pairs; returns the smoothed loss per token."""
    trainer.epoch += 1
    seed = trainer.config.seed + trainer.epoch - 1
    torch.manual_seed(seed)
    trainer.model.train()
    loss, _ = run_epoch(
        trainer.batches(trainer.pairs, seed),
        trainer.model,
        trainer.loss(trainer.config.label_smoothing),
        trainer.optimizer,
        trainer.scheduler,
        mode="train+log",
        accum_iter=trainer.config.accum_iter,
        train_state=trainer.state,
    )
    return loss


def dev_loss(trainer: Trainer) -> float:
    """Loss per token on the validation set, without smoothing: the ln of the perplexity."""
    trainer.model.eval()
    data = trainer.batches(trainer.dev_pairs)
    return run_epoch(data, trainer.model, trainer.loss(0.0), mode="eval")[0]


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file: the name holds the old file or the whole new one."""
    part = path.with_name(path.name + ".part")
    save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, part, metadata)
    os.replace(part, path)


def write_text(path: Path, text: str) -> None:
    """Write a text file: the name holds the old file or the whole new one."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def checkpoints(folder: str | Path) -> list[Path]:
    """Checkpoints of a run, oldest first."""
    return sorted(Path(folder).glob("checkpoint-*.safetensors"))


_MOMENTS = "step", "exp_avg", "exp_avg_sq"  # what Adam keeps for each parameter


def save_checkpoint(trainer: Trainer) -> Path:
    """Write a checkpoint, and delete those that averaging no longer needs."""
    tensors: dict[str, Tensor] = {}
    for name, p in trainer.model.named_parameters():
        tensors[f"model.{name}"] = p
        for key in _MOMENTS:
            tensors[f"{key}.{name}"] = trainer.optimizer.state[p][key]
    progress = asdict(trainer.state) | {"epoch": trainer.epoch, "minutes": trainer.minutes}
    path = Path(trainer.config.out) / f"checkpoint-{trainer.epoch:04d}.safetensors"
    write_tensors(path, tensors, {"progress": json.dumps(progress)})
    for old in checkpoints(trainer.config.out)[: -trainer.config.average]:
        old.unlink()
    return path


def load_checkpoint(trainer: Trainer, path: Path) -> None:
    """Continue where a checkpoint was written."""
    with safe_open(path, "pt") as file:
        progress = json.loads(file.metadata()["progress"])
    trainer.epoch, trainer.minutes = progress.pop("epoch"), progress.pop("minutes")
    trainer.state = TrainState(**progress)
    trainer.start_optimizer()
    tensors = load_file(path)
    for name, p in trainer.model.named_parameters():
        p.data.copy_(tensors[f"model.{name}"])
        moments = {key: tensors[f"{key}.{name}"] for key in _MOMENTS}
        trainer.optimizer.state[p] = {
            key: value if key == "step" else value.to(p.device) for key, value in moments.items()
        }


def log_row(path: Path, row: dict[str, Any]) -> None:
    """Add a row to a CSV file, in place of rows of this epoch or later ones."""
    rows: list[dict[str, Any]] = []
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            rows = [old for old in csv.DictReader(file) if int(old["epoch"]) < row["epoch"]]
    lines = [list(row), *(list(r.values()) for r in [*rows, row])]
    write_text(path, "".join(",".join(map(str, line)) + "\n" for line in lines))


def average_checkpoints(paths: list[Path]) -> dict[str, Tensor]:
    """Mean of the weights of several checkpoints, by parameter name.

    Raises: ValueError if there is none.

    Source: section 6.1.
    """
    if not paths:
        raise ValueError("expected at least one checkpoint to average; got none")
    total: dict[str, Tensor] = {}
    for path in paths:
        for name, tensor in load_file(path).items():
            if name.startswith("model."):
                name = name.removeprefix("model.")
                total[name] = total.get(name, torch.zeros(())) + tensor / len(paths)
    return total


def start_run(config: TrainingConfig) -> Trainer:
    """Read the corpus, learn the vocabulary, continue from the last checkpoint if there is one."""
    folder = Path(config.out)
    folder.mkdir(parents=True, exist_ok=True)
    src, tgt = load_pairs(config.corpus, "train", config.src, config.tgt)
    vocabulary = folder / "tokenizer.json"
    if not vocabulary.exists():
        write_text(vocabulary, train_bpe(src + tgt, config.vocab_size).to_str())
    tokenizer = Tokenizer.from_file(str(vocabulary))

    def encode(src: list[str], tgt: list[str]) -> list[tuple[list[int], list[int]]]:
        return list(zip(encode_source(tokenizer, src), encode_target(tokenizer, tgt), strict=True))

    dev = load_pairs(config.corpus, "dev", config.src, config.tgt)
    trainer = Trainer(config, encode(src, tgt), encode(*dev))
    saved = checkpoints(folder)
    if saved:
        load_checkpoint(trainer, saved[-1])
    return trainer


def train(config: TrainingConfig) -> Path:
    """Train a model, or continue a run that stopped; an epoch is the unit of both.

    Args:
        config: the run. If its folder holds checkpoints, the last one is continued.

    Returns: the folder, with model.safetensors (the mean of the last checkpoints, in half
        precision), config.json, tokenizer.json and log.csv.

    Source: section 5.
    """
    trainer = start_run(config)
    folder = Path(config.out)
    while trainer.epoch < config.epochs:
        started, tokens = time.perf_counter(), trainer.state.tokens
        loss = train_epoch(trainer)
        seconds = time.perf_counter() - started
        trainer.minutes += seconds / 60
        row: dict[str, Any] = {
            "epoch": trainer.epoch,
            "step": trainer.state.accum_step,
            "minutes": round(trainer.minutes, 2),
            "target_tokens": trainer.state.tokens,
            "tokens_per_second": round((trainer.state.tokens - tokens) / seconds),
            "learning_rate": trainer.scheduler.get_last_lr()[0],
            "train_loss": round(loss, 4),
            "dev_loss": round(dev_loss(trainer), 4),
        }
        log_row(folder / "log.csv", row)
        save_checkpoint(trainer)
        tqdm.write("  ".join(f"{key} {value}" for key, value in row.items()))
    save_model(folder, average_checkpoints(checkpoints(folder)), model_config(config))
    return folder


def save_model(folder: Path, tensors: dict[str, Tensor], config: TransformerConfig) -> None:
    """Write weights, in half precision, and configuration, as `load_pretrained` reads them."""
    half = {name: tensor.half() for name, tensor in tensors.items()}
    write_tensors(folder / "model.safetensors", half, {"format": "pt"})
    write_text(folder / "config.json", json.dumps(asdict(config), indent=2) + "\n")
