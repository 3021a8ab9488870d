"""The folder of a run."""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from tqdm import tqdm

from annotated.machinery.errors import FileError, MissingFile
from annotated.machinery.files import read_tensors, reading, write_tensors, write_text
from annotated.machinery.training.checks import fixed_options
from annotated.model import TransformerConfig, parameter_shapes
from annotated.training import TrainingConfig

_MOMENTS = "step", "exp_avg", "exp_avg_sq"  # what Adam keeps for each parameter


def checkpoint_tensors(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The weights of a model, and what Adam keeps for each: zeros before the first step."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        kept = optimizer.state.get(parameter, {"step": torch.zeros(())})
        moments = {
            key: kept[key] if key in kept else torch.zeros_like(parameter) for key in _MOMENTS
        }
        tensors[f"model.{name}"] = parameter
        tensors |= {f"{key}.{name}": x for key, x in moments.items()}
    return tensors


def tensor_digest(tensors: Mapping[str, Tensor], text: str = "") -> str:
    """SHA-256 of tensors, their names, and a text."""
    sha = hashlib.sha256()
    for name in sorted(tensors):
        sha.update(name.encode())
        sha.update(tensors[name].detach().cpu().contiguous().numpy().tobytes())
    sha.update(text.encode())
    return sha.hexdigest()


def write_checkpoint(path: Path, tensors: dict[str, Tensor], state: Mapping[str, Any]) -> None:
    """Write tensors, and what else a run must know to go on."""
    text = json.dumps(state)
    write_tensors(path, tensors, {"state": text, "sha256": tensor_digest(tensors, text)})


_CHECKPOINT = "a whole checkpoint"


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors of a checkpoint, and what it says of the run.

    Raises: FileError if the file is cut off or altered.
    """
    tensors, metadata = read_tensors(path, _CHECKPOINT)
    _check_digest(path, tensors, metadata)
    with reading(path, _CHECKPOINT):
        return tensors, json.loads(metadata["state"])


def _check_digest(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Raise FileError unless a checkpoint holds what was written into it."""
    said = metadata.get("sha256")
    with reading(path, _CHECKPOINT):  # the second is that of earlier editions, without the progress
        right = said == tensor_digest(tensors, metadata.get("state", "")) or said == tensor_digest(
            tensors
        )
    if not right:
        raise FileError(f"{path}: expected {_CHECKPOINT}; its SHA-256 differs from what it says")


def check_checkpoint(
    path: Path,
    tensors: Mapping[str, Tensor],
    state: Mapping[str, Any],
    config: TrainingConfig,
    model: nn.Module,
) -> None:
    """Raise FileError unless a checkpoint is of the run with this configuration and model."""
    for name, now in fixed_options(config).items():
        if (was := state.get("config", {}).get(name, now)) != now:
            raise FileError(
                f"{path}: expected a checkpoint of a run with {name}={now}, as training.json has "
                f"it; got {name}={was}; correct training.json, or move the checkpoint away"
            )
    shapes: dict[str, torch.Size] = {}
    for name, parameter in model.named_parameters():
        shapes |= {f"{kind}.{name}": parameter.shape for kind in ("model", *_MOMENTS[1:])}
        shapes[f"step.{name}"] = torch.Size()
    has = {name: x.shape for name, x in tensors.items() if x.is_floating_point()}
    for name in sorted(shapes.keys() | tensors.keys()):
        if (is_now := has.get(name)) != (wanted := shapes.get(name)):
            raise FileError(
                f"{path}: expected {name} as {wanted}, as training.json has it; got {is_now}"
            )


def restore_tensors(model: nn.Module, optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give a model and its optimizer what `checkpoint_tensors` took from them."""
    moments = {}
    for i, (name, parameter) in enumerate(model.named_parameters()):
        parameter.data.copy_(tensors[f"model.{name}"])
        moments[i] = {key: tensors[f"{key}.{name}"] for key in _MOMENTS}
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": moments, "param_groups": groups})


INTERRUPTED = "interrupted.safetensors"


def list_checkpoints(folder: str | Path) -> list[Path]:
    """The regular checkpoints of a run, oldest first."""
    found = Path(folder).glob("checkpoint-*.safetensors")
    own = (path for path in found if re.fullmatch(r"checkpoint-[0-9]+", path.stem))
    return sorted(own, key=lambda path: int(path.stem.removeprefix("checkpoint-")))


def newest_checkpoint(folder: Path) -> Path | None:
    """The furthest checkpoint that is whole; damaged ones on the way are renamed, and reported.

    Raises: FileError if one cannot be read at all.
    """
    # The one of an interruption is the furthest: the next regular one removes it.
    for path in [*Path(folder).glob(INTERRUPTED), *reversed(list_checkpoints(folder))]:
        try:
            read_checkpoint(path)
            return path
        except FileError as error:
            if isinstance(error.__cause__, (OSError, MemoryError)):
                raise
            aside = path.with_name(path.name + ".damaged")
            os.replace(path, aside)
            tqdm.write(
                f"{error}; set aside as {aside.name}, going on from the one before it, if any"
            )
    return None


def delete_old_checkpoints(folder: Path, average: int) -> None:
    """Delete checkpoints that neither the mean of the last nor a damaged last one can need."""
    for path in list_checkpoints(folder)[: -max(average, 2)]:
        path.unlink()
    (folder / INTERRUPTED).unlink(missing_ok=True)


def average_checkpoints(paths: list[Path]) -> dict[str, Tensor]:
    """Mean of the weights of several checkpoints, by parameter name.

    Raises: ValueError if there is none; FileError if one is damaged, or of another model.

    Source: section 6.1.
    """
    if not paths:
        raise ValueError("expected at least one checkpoint to average; got none")
    total: dict[str, Tensor] = {}
    for path in paths:
        weights = _model_weights(path)
        if total and {n: x.shape for n, x in weights.items()} != {
            n: x.shape for n, x in total.items()
        }:
            raise FileError(
                f"{path}: expected a checkpoint of the same model as {paths[0]}; it differs"
            )
        for name, tensor in weights.items():
            total[name] = total.get(name, torch.zeros(())) + tensor / len(paths)
    return total


def _model_weights(path: Path) -> dict[str, Tensor]:
    """The weights of a checkpoint, by parameter name."""
    try:
        tensors, metadata = read_tensors(path, _CHECKPOINT)
        if "sha256" in metadata:
            _check_digest(path, tensors, metadata)
    except FileError as error:
        if isinstance(error, MissingFile):
            raise
        raise FileError(f"{error}; move it away for a mean of the others") from error
    weights = {n.removeprefix("model."): x for n, x in tensors.items() if n.startswith("model.")}
    if not weights:
        raise FileError(f"{path}: expected {_CHECKPOINT}; it has no tensor called model.…")
    return weights


def save_model(
    folder: Path, tensors: dict[str, Tensor], config: TransformerConfig, half: bool = True
) -> None:
    """Write weights, in half or single precision, and configuration, for `load_pretrained`."""
    kind = torch.float16 if half else torch.float32
    kept = {name: tensors[name].to(kind) for name in parameter_shapes(config)}  # what is tied, once
    said = {
        "config": json.dumps(asdict(config))
    }  # one entry: of several the library mixes the order
    write_tensors(folder / "model.safetensors", kept, said)
    write_text(folder / "config.json", json.dumps(asdict(config), indent=2) + "\n")
