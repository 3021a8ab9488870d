"""`python -m benchmarks gpu`: whole updates of the paper's models and of others on one GPU.

Each setting is a run of the trainer, so that the time includes loader, loss, optimizer and waiting.
Another implementation replaces the model and the loss; everything else is the same.
"""

import gc
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from annotated.data import PAD
from annotated.evaluation import model_cost
from annotated.machinery.corpora.encoding import EncodedPairs
from annotated.machinery.files import resource_path
from annotated.machinery.runs.batches import prefetch
from annotated.machinery.runs.logs import Progress
from annotated.machinery.runs.processes import Processes
from annotated.machinery.runs.trainer import Trainer, compiled
from annotated.regularization import smoothed_cross_entropy
from annotated.training import TrainingConfig, model_config, preset
from benchmarks import dry
from benchmarks.contenders import Annotated, Contender, Marian, Torch
from benchmarks.logs import machine, make_parser, write
from benchmarks.measure import check_training
from benchmarks.workload import Workload

RESULTS = resource_path("results") / "gpu.json"
OTHERS: dict[str, type[Contender]] = {kind.name: kind for kind in (Torch, Marian)}


@dataclass(frozen=True)
class Plan:
    """The measurements.

    Args:
        models: the runs.   parts: numbers of sequential parts into which an update is split.
        pairs: number of sentence pairs in the generated corpus.
        updates: per round.   rounds: per setting, after `warmup` updates.
        enough: seconds that a setting may need; it is not begun with less time left.
    """

    models: dict[str, TrainingConfig]
    parts: tuple[int, ...] = (8, 1)
    pairs: int = 200_000
    updates: int = 10
    rounds: int = 3
    warmup: int = 4
    enough: float = 45.0

    def settings(self) -> Iterator[tuple[str, str, bool]]:
        """Model, contender, and whether it is compiled; the most informative first."""
        first, *rest = self.models
        others = list(OTHERS)
        yield from ((first, name, False) for name in ["annotated", *others])
        yield first, "annotated", True
        for model in rest:
            yield model, "annotated", False
            yield model, "annotated", True
            yield from ((model, name, False) for name in others)
        yield from ((first, name, True) for name in others)


FULL = Plan({name: preset(f"{name}-en-de", precision="bfloat16") for name in ("base", "big")})
_TINY = {"N": 1, "h": 2, "d_ff": 32, "vocab_size": 60, "src_tokens": 800, "tgt_tokens": 800}
_SMALL = {
    name: preset(f"{name}-en-de", precision="bfloat16", d_model=width, **_TINY)
    for name, width in (("base", 16), ("big", 32))
}
SMOKE = Plan(_SMALL, parts=(2, 1), pairs=200, updates=2, rounds=2, warmup=1)


def made_pairs(count: int, vocab: int) -> EncodedPairs:
    """Pairs of random ids with WMT's lengths: 29 pieces on average, rarely more than 100."""
    random = np.random.default_rng(0)
    source = np.exp(random.normal(3.2, 0.55, count))
    target = source * np.exp(random.normal(0.05, 0.2, count))
    lengths = np.stack([source, target], axis=1).round().clip(3, 200).astype(np.int64)
    return EncodedPairs(random.integers(4, vocab, lengths.sum(), dtype=np.uint16), lengths)


class ContenderLoss(nn.Module):
    """Another implementation with its loss, in place of our `ModelLoss`."""

    def __init__(self, contender: Contender, smoothing: float, compile: bool) -> None:
        super().__init__()
        self.contender, self.model, self.smoothing = contender, contender.model, smoothing
        self.criterion: Any = smoothed_cross_entropy
        if compile:
            model = getattr(self.model, "model", self.model)  # of Hugging Face
            layers = *model.encoder.layers, *model.decoder.layers
            self.criterion = compiled(layers, self.criterion)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        logits = self.contender.logits(src, tgt[:, :-1])
        return self.criterion(logits, tgt[:, 1:], PAD, self.smoothing)


def other(name: str, config: TrainingConfig) -> Contender:
    """Another implementation with our weights, after its function has been compared with ours.

    Raises: ImportError if it is not installed; ValueError if it computes something else.
    """
    c = config
    shape = {"vocab": c.vocab_size, "N": c.N, "d_model": c.d_model, "d_ff": c.d_ff, "h": c.h}
    work = Workload(**shape, dropout=c.dropout, train_batch=(3, 8), shortest=5)
    reference = work.reference()
    contender = OTHERS[name](work, reference)
    check_training(work, contender, Annotated(work, reference))
    return contender


def trainer_of(name: str, config: TrainingConfig, pairs: EncodedPairs, device: str) -> Trainer:
    """A trainer of our model, or of another implementation."""
    trainer = Trainer(config, pairs, pairs, Processes(device=torch.device(device)))
    if name != "annotated":
        contender = other(name, config)
        contender.to(device)
        trainer.model = contender.model
        trainer.loss = ContenderLoss(contender, config.label_smoothing, config.compile)
        trainer.start_optimizer()
    return trainer


def rounds(trainer: Trainer, parts: int, plan: Plan) -> list[Progress]:
    """The progress in each round of updates that are split into `parts` parts."""
    trainer.stream.parts, speeds = parts, []
    coming = prefetch(trainer.stream.updates(0, 0))
    for number in range(plan.rounds + 1):
        if number == 1 and trainer.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        trainer.progress, trainer.since = Progress(), time.perf_counter()
        for _ in range(plan.updates if number else plan.warmup):
            trainer.queue_step(coming)
            trainer.drain(keep=1)
        trainer.drain()
        speeds.append(trainer.progress)
    return speeds[1:]


def peak_flops(device: str) -> float | None:
    """The peak of a GPU with this name; None if it is unknown, or a slower variant or slice."""
    words = set(re.split(r"[\s-]+", device))
    if {word.upper() for word in words} & {"PCIE", "NVL", "MIG"}:
        return None
    return next((flops for name, flops in dry.PEAKS.items() if name in words), None)


def row(trainer: Trainer, parts: int, plan: Plan, device_name: str) -> dict[str, Any]:
    """The table row of one setting; the speed is from the median round."""
    speeds = sorted(rounds(trainer, parts, plan), key=lambda speed: speed.tokens_per_second)
    speed = speeds[len(speeds) // 2]
    peak, cost = peak_flops(device_name), model_cost(model_config(trainer.config))
    used = peak and speed.tokens_per_second * cost / peak
    cuda = trainer.device.type == "cuda"
    return {
        "parts": parts,
        "tokens_per_second": round(speed.tokens_per_second),
        "rounds": [round(s.tokens_per_second) for s in speeds],
        "milliseconds": round(1000 * speed.seconds / plan.updates, 2),
        "waiting": round(speed.row_waited / speed.row_seconds, 4),
        "utilisation": used and round(used, 4),
        "memory": round(torch.cuda.max_memory_allocated() / 1e9, 2) if cuda else None,
    }


def said(error: Exception, name: str) -> str:
    """An error on one line, with the way to install a missing package."""
    if isinstance(error, ImportError):
        return f"left out ({error}): {OTHERS[name].install}"
    return f"{type(error).__name__}: {str(error).strip() or 'no details'}".splitlines()[0]


def measure(
    setting: tuple[str, str, bool], plan: Plan, pairs: EncodedPairs, device: str, device_name: str
) -> Iterator[dict[str, Any]]:
    """The rows of a setting, one per number of parts; a failed one has an error instead."""
    model, name, compiled = setting
    about = {"model": model, "contender": name, "compile": compiled}
    parts, trainer = plan.parts[0], None
    try:
        if compiled:
            torch._dynamo.reset()
        start = time.perf_counter()
        trainer = trainer_of(name, replace(plan.models[model], compile=compiled), pairs, device)
        for parts in plan.parts:
            yield about | row(trainer, parts, plan, device_name)
        took = f"{time.perf_counter() - start:.0f} s"
        print(f"{model}, {name}, compile={compiled}: {took}", file=sys.stderr)
    except Exception as error:  # a failure does not stop the others
        yield about | {"parts": parts, "error": said(error, name)}
    finally:
        del trainer
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()


def show(row: dict[str, Any]) -> None:
    kind = " compiled" if row["compile"] else ""
    told = row.get("error")
    if told is None:
        told = f"{row['tokens_per_second']:9,} tokens/s {row['milliseconds']:8.1f} ms/update"
        told += f" {row['waiting']:6.1%} waiting"
        told += f" {row['utilisation']:7.1%} of the peak" if row["utilisation"] else ""
        told += f" {row['memory']:6.1f} GB" if row["memory"] else ""
    print(f"{row['model']:5}{row['parts']:2} parts  {row['contender'] + kind:30}{told}", flush=True)


def dry_run(out: Path) -> None:
    pairs = made_pairs(20_000, FULL.models["base"].vocab_size)
    rows, base = dry.tables(pairs, FULL.models), FULL.models["base"]
    print("an update of the base model in one part, on an H100:")
    print(dry.update(base, pairs).by_operator("H100").head(16).round(2).to_string(), end="\n\n")
    for name, some in ("synthetic", pairs), ("multi30k", dry.counted_pairs("multi30k")):
        print(f"batches of an epoch, {name}:", dry.shapes(base, some))
        print("  in a compiled run:", dry.shapes(replace(base, compile=True), some))
    write(out, {"command": "python -m benchmarks gpu --dry", "launch": dry.LAUNCH, "rows": rows})
    print(pd.json_normalize(rows).T.to_string(header=False))
    print(f"written: {out}", file=sys.stderr)


def main(given: list[str]) -> None:
    parser = make_parser(
        "benchmarks gpu",
        "Time whole updates of 25,000 tokens on one GPU in bfloat16, for the paper's base and big\n"
        "models and, for comparison, torch.nn.Transformer and Hugging Face's Marian.",
        "To run the tests that need a GPU: python -m pytest -m gpu",
    )
    add = parser.add_argument
    add("--smoke", action="store_true", help="a trial with tiny models on the CPU")
    told = "without a GPU: count what one would compute, in a minute"
    add("--dry", action="store_true", help=told)
    told = "minutes after which no new setting is begun (%(default)s)"
    add("--minutes", type=float, default=7.5, help=told)
    add(
        "--out",
        type=Path,
        help="a JSON file (data/results/gpu.json; with --dry, runs/gpu-dry.json)",
    )
    options = parser.parse_args(given)
    if not (options.smoke or options.dry or torch.cuda.is_available()):
        advice = "--dry counts what it would compute, and --smoke runs a trial on the CPU"
        parser.error(f"expected a GPU; got none; {advice}")
    if not options.smoke and options.out is None:
        options.out = Path("runs/gpu-dry.json") if options.dry else RESULTS
    if options.dry:
        return dry_run(options.out)
    plan, device = (SMOKE, "cpu") if options.smoke else (FULL, "cuda")
    torch.set_float32_matmul_precision("high")
    device_name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    pairs = made_pairs(plan.pairs, plan.models["base"].vocab_size)
    ends, rows = time.monotonic() + 60 * options.minutes, []
    results = {
        "command": " ".join(["python -m benchmarks gpu", *given]),
        "date": date.today().isoformat(),
        "machine": machine(device),
        "plan": {"pairs": plan.pairs, "updates": plan.updates, "rounds": plan.rounds},
        "rows": rows,
    }
    for setting in plan.settings():
        if time.monotonic() > ends - plan.enough:
            print("no time left for", *setting)
            continue
        for found in measure(setting, plan, pairs, device, device_name):
            rows.append(found)
            show(found)
            if options.out:
                write(options.out, results)
    if options.out:
        print(f"written: {options.out}", file=sys.stderr)
