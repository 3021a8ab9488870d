"""Checkpoints of a run, and the model made from them.

A checkpoint holds the weights, Adam's two moments, and the progress and configuration of the run.
It is written whole or not at all, which protects against a process that dies; against a disk that
forgets, it carries a SHA-256 of all its content.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from tqdm import tqdm

from annotated.machinery.errors import FileError, InputError
from annotated.machinery.files import read_tensors, reading, write_tensors
from annotated.training import TrainingConfig

INTERRUPTED = "interrupted.safetensors"  # written when a run is told to stop; never averaged
_MOMENTS = "step", "exp_avg", "exp_avg_sq"  # Adam's state for each parameter
_CHECKPOINT = "a whole checkpoint"


def fixed_options(config: TrainingConfig) -> dict[str, Any]:
    """The options that a run keeps from start to end."""
    return {o.name: getattr(config, o.name) for o in fields(config) if o.metadata["fixed"]}


def checkpoint_tensors(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The weights of a model, and Adam's state for each: zeros before the first step."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        kept = optimizer.state.get(parameter, {"step": torch.zeros(())})
        tensors[f"model.{name}"] = parameter
        for key in _MOMENTS:
            tensors[f"{key}.{name}"] = kept[key] if key in kept else torch.zeros_like(parameter)
    return tensors


def restore_tensors(model: nn.Module, optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give a model and its optimizer the tensors that `checkpoint_tensors` took from them."""
    moments = {}
    for i, (name, parameter) in enumerate(model.named_parameters()):
        parameter.data.copy_(tensors[f"model.{name}"])
        moments[i] = {key: tensors[f"{key}.{name}"] for key in _MOMENTS}
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": moments, "param_groups": groups})


def _digest(tensors: Mapping[str, Tensor], state: str) -> str:
    """SHA-256 of tensors, their names, and the state of a run as text."""
    sha = hashlib.sha256()
    for name in sorted(tensors):
        sha.update(name.encode())
        sha.update(tensors[name].detach().cpu().contiguous().numpy().tobytes())
    sha.update(state.encode())
    return sha.hexdigest()


def write_checkpoint(path: Path, tensors: dict[str, Tensor], state: Mapping[str, Any]) -> None:
    """Write tensors, and the state of a run that JSON can hold."""
    text = json.dumps(state)
    write_tensors(path, tensors, {"state": text, "sha256": _digest(tensors, text)})


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and state of a checkpoint.

    Raises: MissingFile if there is none; FileError if the file is cut off or altered.
    """
    tensors, metadata = read_tensors(path, _CHECKPOINT)
    with reading(path, _CHECKPOINT):
        if metadata.get("sha256") != _digest(tensors, metadata.get("state", "")):
            raise FileError(f"{path}: expected {_CHECKPOINT}; its SHA-256 differs from its content")
        return tensors, json.loads(metadata["state"])


def list_checkpoints(folder: str | Path) -> list[Path]:
    """The regular checkpoints of a run, oldest first."""
    found = Path(folder).glob("checkpoint-*.safetensors")
    own = (path for path in found if re.fullmatch(r"checkpoint-[0-9]+", path.stem))
    return sorted(own, key=lambda path: int(path.stem.removeprefix("checkpoint-")))


def newest_checkpoint(folder: Path) -> Path | None:
    """The furthest checkpoint that is whole; damaged ones on the way are renamed and reported.

    Raises: FileError if the disk cannot be read; then nothing is renamed.
    """
    # That of an interruption is the furthest, because the next regular one removes it.
    for path in [*Path(folder).glob(INTERRUPTED), *reversed(list_checkpoints(folder))]:
        try:
            read_checkpoint(path)
            return path
        except FileError as error:
            if isinstance(error.__cause__, (OSError, MemoryError)):
                raise
            aside = path.with_name(path.name + ".damaged")
            os.replace(path, aside)
            tqdm.write(f"{error}; renamed to {aside.name}; the run goes on from the one before it")
    return None


def delete_old_checkpoints(folder: Path, average: int) -> None:
    """Delete checkpoints needed neither for the mean of the last nor if the last is damaged."""
    for path in list_checkpoints(folder)[: -max(average, 2)]:
        path.unlink()
    (folder / INTERRUPTED).unlink(missing_ok=True)


def average_checkpoints(paths: list[Path]) -> dict[str, Tensor]:
    """Mean of the weights of several checkpoints, by parameter name.

    Raises: InputError if there is none; FileError if one is damaged, or of another model.

    Source: section 6.1.
    """
    if not paths:
        raise InputError("expected at least one checkpoint to average; got none")
    total: dict[str, Tensor] = {}
    for path in paths:
        tensors = read_checkpoint(path)[0].items()
        weights = {name[6:]: x for name, x in tensors if name.startswith("model.")}
        total = total or {name: torch.zeros_like(x) for name, x in weights.items()}
        shapes, first = ({name: x.shape for name, x in some.items()} for some in (weights, total))
        if shapes != first:
            raise FileError(f"{path}: expected a checkpoint of the same model as {paths[0]}")
        for name, x in weights.items():
            total[name] += x / len(paths)
    return total
