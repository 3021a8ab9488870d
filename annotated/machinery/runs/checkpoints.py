"""Checkpoints of a run, and the model made from them.

A checkpoint contains the weights, Adam's two moments, and the progress and configuration of the
run. It is written completely or not at all, which protects against a process that dies, and it
includes the SHA-256 of its content, which detects damage by a disk.
"""

import json
import os
import re
import warnings
from dataclasses import asdict, dataclass, field, fields
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from annotated.machinery import files
from annotated.machinery.corpora.languages import two_letters
from annotated.machinery.corpora.registry import parse_data
from annotated.machinery.errors import FileError, InputError
from annotated.machinery.files import digest, read_json, read_tensors, reading, settings
from annotated.machinery.formats.hub import model_folder
from annotated.machinery.formats.own import (
    Build,
    LoadedModel,
    Tensors,
    described_model,
    model_tensors,
)
from annotated.machinery.progress import say
from annotated.machinery.runs.logs import Progress, dev_losses
from annotated.training import TrainingConfig, model_config

SAVED = ".saved"  # exists in the folder of a run once there has been a checkpoint
INTERRUPTED = "interrupted.safetensors"  # written when a run is stopped; never averaged
_MOMENTS = "step", "exp_avg", "exp_avg_sq"  # Adam's state for each parameter
_CHECKPOINT = "a complete checkpoint"


@dataclass
class RunState:
    """What a checkpoint contains besides tensors.

    Attributes: progress; scaler, of float16; config, the options that are fixed; parts, the names
        of those that are not the paper's.
    """

    progress: Progress
    scaler: dict[str, Any]
    config: dict[str, Any]
    parts: dict[str, str] = field(default_factory=dict)


def fixed_options(config: TrainingConfig) -> dict[str, Any]:
    """The options that do not change during a run."""
    return {o.name: getattr(config, o.name) for o in fields(config) if o.metadata["fixed"]}


def checkpoint_tensors(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The weights and buffers of a model, and Adam's state, which is zero before the first step."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        kept = optimizer.state.get(parameter, {"step": torch.zeros(())})
        for key in _MOMENTS:
            tensors[f"{key}.{name}"] = kept[key] if key in kept else torch.zeros_like(parameter)
    return tensors | {f"model.{name}": tensor for name, tensor in model_tensors(model).items()}


def check_tensors(path: Path, tensors: Tensors, model: nn.Module, optimizer: Optimizer) -> None:
    """Raise FileError, which names the first difference, unless these tensors can be restored."""
    wanted, got = (
        {name: f"{tuple(x.shape)} of {x.dtype}" for name, x in some.items()}
        for some in (checkpoint_tensors(model, optimizer), tensors)
    )
    for name in sorted(dict(wanted.items() ^ got.items())):
        both = f"{wanted.get(name, 'none')}; got {got.get(name, 'none')}"
        raise FileError(f"{path}: expected {_CHECKPOINT}, with {name} {both}")


def restore_tensors(model: nn.Module, optimizer: Optimizer, tensors: Tensors) -> None:
    """Restore a model and its optimizer from the tensors of `checkpoint_tensors`."""
    for name, tensor in model_tensors(model).items():
        tensor.data.copy_(tensors[f"model.{name}"])
    names = [name for name, _ in model.named_parameters()]
    moments = {i: {x: tensors[f"{x}.{name}"] for x in _MOMENTS} for i, name in enumerate(names)}
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": moments, "param_groups": groups})


def write_checkpoint(path: Path, tensors: dict[str, Tensor], state: RunState) -> None:
    """Write tensors, and the state of a run as JSON."""
    text = json.dumps(asdict(state))
    files.write_tensors(path, tensors, {"state": text, "sha256": digest(tensors, text)})


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], RunState]:
    """Tensors and state of a checkpoint.

    Raises: MissingFile if there is none; FileError if it is truncated, altered, or another file.
    """
    tensors, metadata = read_tensors(path, _CHECKPOINT)
    with reading(path, _CHECKPOINT):
        if metadata.get("sha256") != digest(tensors, metadata.get("state", "")):
            raise FileError(f"{path}: expected {_CHECKPOINT}; its SHA-256 differs from its content")
        return tensors, settings(RunState, json.loads(metadata["state"]), str(path))


def model_weights(tensors: Tensors) -> dict[str, Tensor]:
    """The weights and buffers of the model in a checkpoint."""
    return {name[6:]: x for name, x in tensors.items() if name.startswith("model.")}


def list_checkpoints(folder: str | Path) -> list[Path]:
    """The regular checkpoints of a run, oldest first."""
    found = Path(folder).glob("checkpoint-*.safetensors")
    own = (path for path in found if re.fullmatch(r"checkpoint-[0-9]+", path.stem))
    return sorted(own, key=_update)


def _update(path: Path) -> int:
    """The update of a regular checkpoint, from its name."""
    return int(path.stem.removeprefix("checkpoint-"))


def newest_first(folder: Path) -> list[Path]:
    """All checkpoints; an interruption's is the newest, as the next regular one removes it."""
    return [*Path(folder).glob(INTERRUPTED), *reversed(list_checkpoints(folder))]


def best_first(folder: Path) -> list[Path]:
    """The checkpoints whose loss on the development set is in the log, the lowest loss first."""
    losses = dev_losses(folder)
    measured = [path for path in list_checkpoints(folder) if _update(path) in losses]
    return sorted(measured, key=lambda path: losses[_update(path)])


def find_checkpoint(folder: Path, wanted: str | int | None = None) -> Path:
    """A checkpoint of a run, which may still train: "best" on the development set, "last", or the
    one of an update; None: the best if there is one, else the last.

    Raises: InputError if there is none.
    """
    found = {str(_update(path)): [path] for path in list_checkpoints(folder)}
    numbers = ", ".join(found)
    found |= {"best": best_first(folder), "last": newest_first(folder)}
    found["None"] = found["best"] or found["last"]
    if paths := found.get(str(wanted)):
        return paths[0]
    asked = "a checkpoint" if wanted is None else f"checkpoint {str(wanted)!r:.80}"
    there = f"best, last, or an update out of: {numbers}" if found["last"] else "none yet"
    raise InputError(f"expected {asked} in the folder of a run; {folder} has {there}")


def newest_checkpoint(folder: Path) -> Path | None:
    """The latest undamaged checkpoint; damaged ones after it are renamed and reported.

    Raises: FileError, and renames nothing, if the disk cannot be read or a name is another's.
    """
    for path in newest_first(folder):
        try:
            made = read_checkpoint(path)[1].progress.update
        except FileError as error:
            if isinstance(error.__cause__, (OSError, MemoryError)):
                raise
            asides = (path.with_name(f"{path.name}.damaged{n or ''}") for n in count())
            aside = next(name for name in asides if not os.path.lexists(name))
            os.replace(path, aside)
            say(f"{error}; renamed to {aside.name}; the run continues from the one before it")
        else:
            if path.name not in (INTERRUPTED, f"checkpoint-{made:08d}.safetensors"):
                wanted = "expected the checkpoint of that update"
                raise FileError(f"{path}: {wanted}; got that of {made}")
            return path
    return None


def delete_old_checkpoints(folder: Path, average: int, keep_best: int = 0) -> None:
    """Delete checkpoints that neither the average nor recovery from a damaged one needs, and that
    are not among the best."""
    kept = best_first(folder)[:keep_best]
    for path in list_checkpoints(folder)[: -max(average, 2)]:
        if path not in kept and path.is_file():  # a folder or a pipe is the user's
            path.unlink()
    (folder / INTERRUPTED).unlink(missing_ok=True)


def check_options(path: Path, state: RunState, config: TrainingConfig) -> None:
    """Raise FileError unless a checkpoint belongs to a run with these options."""
    for name, now in fixed_options(config).items():
        if (was := state.config.get(name, now)) != now:
            wanted = f"a checkpoint of a run with {name}={now}, as in training.json"
            advice = "correct one, or move the other away"
            raise FileError(f"{path}: expected {wanted}; got {name}={was}; {advice}")


def read_config(folder: Path) -> TrainingConfig:
    """The configuration of the run in a folder.

    Raises: MissingFile or FileError that names training.json, and the setting that is wrong.
    """
    path = folder / "training.json"
    values = read_json(path, "the configuration of a run")
    if "weights" in values:  # the name of this option in version 0.1.0
        values["from_"] = values.pop("weights")
    return settings(TrainingConfig, values, str(path))


def check_languages(name: str | Path, data: str) -> None:
    """Warn of data in other languages than those that the model of a run was trained on."""
    folder = model_folder(name)
    if (folder / "training.json").exists():
        both = (parse_data(each)[1:] for each in (read_config(folder).data, data))
        was, now = ("-".join(map(two_letters, pair)) for pair in both)
        if was != now:
            told = f"{name} was trained on {was}, and the languages of {data} are {now}"
            warnings.warn(told, stacklevel=2)


def read_run(
    folder: Path, checkpoint: str | int | None = None, build: Build | None = None
) -> tuple[LoadedModel, str]:
    """The model in a checkpoint of a run, which may still train, and which checkpoint it is.

    Args: checkpoint: as for `find_checkpoint`.   build: as for `read_own`.

    Raises: InputError as `find_checkpoint`; FileError if a file is damaged; as `read_own`.
    """
    config = read_config(folder)
    path = find_checkpoint(folder, checkpoint)
    tensors, state = read_checkpoint(path)
    check_options(path, state, config)
    weights = model_weights(tensors)
    model = described_model(path, weights, model_config(config), state.parts, build)
    what = f"{folder}: the checkpoint of update {state.progress.update:,}"
    what += ", the best on the development set" * (path in best_first(folder)[:1])
    return model, what + ", the last" * (path in newest_first(folder)[:1])


def average_checkpoints(
    paths: list[Path], config: TrainingConfig | None = None
) -> dict[str, Tensor]:
    """Mean of the weights of checkpoints, by parameter name; config: the run's, to compare.

    Raises: InputError if there is none; FileError if one is damaged or belongs to another run.

    Source: section 6.1.
    """
    if not isinstance(paths, list) or not paths:
        raise InputError(f"expected a list of at least one checkpoint; got {paths!r:.80}")
    total, first = dict[str, Tensor](), read_checkpoint(paths[0])[1]
    for path in paths:
        tensors, state = read_checkpoint(path)
        if config:
            check_options(path, state, config)
        weights = model_weights(tensors)
        total = total or {name: torch.zeros_like(x) for name, x in weights.items()}
        options = state.config
        same = options == {key: first.config.get(key, x) for key, x in options.items()}
        shapes = ({name: x.shape for name, x in some.items()} for some in (weights, total))
        if not same or next(shapes) != next(shapes):
            raise FileError(f"{path}: expected a checkpoint of the same run as {paths[0]}")
        for name, x in weights.items():
            total[name] = total[name] + x / len(paths) if x.is_floating_point() else x
    return total
