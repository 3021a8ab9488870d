"""The folder of a run: which process may train there, with which configuration, on which corpus.

A run begins in a new or empty folder; `training.json`, which contains its configuration, marks the
folder as the folder of a run. It is the first file that is written, after all checks, so that a
rejected start changes nothing. Resuming must not silently turn a run into another one, and a new
start must not destroy a run or anything else.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from annotated.machinery import files
from annotated.machinery.corpora.prepared import PreparedCorpus
from annotated.machinery.corpora.registry import full_paths
from annotated.machinery.corpora.vocabularies import VOCABULARIES
from annotated.machinery.errors import FileError, InputError, MissingFile, check_whole
from annotated.machinery.files import is_part, named_in_utf8, read_json, reading, write_text
from annotated.machinery.formats.own import save_model
from annotated.machinery.runs import checkpoints
from annotated.machinery.runs.checkpoints import read_config
from annotated.machinery.runs.report import write_card
from annotated.training import TrainingConfig, model_config

# Files left by an aborted start, and by `launch` before it; they are not overwritten.
_LEFT = {".lock", "output.txt", "prepared"}


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a run's folder; if an error leaves a new folder empty, it is removed.

    Raises: InputError if the folder is neither new nor empty nor the folder of a run; FileError
        if another process trains there, or if its files cannot be written.
    """
    check_folder(folder)
    for name in "model.safetensors", "config.json", "log.html", "README.md", checkpoints.SAVED:
        files.output_file(folder / name)
    new, advice = not folder.exists(), "wait until it ends, stop it, or choose another --out"
    with files.locked(folder / ".lock", f"another process trains in {folder}; {advice}"):
        try:
            yield
        except BaseException:
            if new and os.listdir(folder) == [".lock"]:
                shutil.rmtree(folder, ignore_errors=True)
            raise


def check_folder(folder: Path) -> None:
    """Raise InputError unless a folder is new, empty, or the folder of a run."""
    named_in_utf8(folder)
    if not folder.exists() or (folder / "training.json").exists():
        return
    if not folder.is_dir():
        raise InputError(f"expected the folder of a run; got {folder}, a file")
    if saved := checkpoints.list_checkpoints(folder):
        advice = "there is none; put it back, or choose another --out"
        raise FileError(f"{folder}: expected training.json beside {saved[-1].name}; {advice}")
    left = _LEFT if (folder / "prepared" / "manifest.json").exists() else _LEFT - {"prepared"}
    if strange := sorted({path.name for path in folder.iterdir() if not is_part(path)} - left):
        wanted = "expected a new or an empty folder, or the folder of a run"
        raise InputError(f"{wanted}; got {folder}, which contains {strange[0]}")


_NOTED = "the folder and the SHA-256 of the run's corpus"


def trained_data(folder: Path) -> str:
    """The data that a model was trained on, with the full paths of files if the run noted them."""
    note = read_json(path, _NOTED) if (path := folder / "corpus.json").exists() else {}
    return note.get("data") or read_config(folder).data


def open_noted(run: Path, moved: str = "") -> PreparedCorpus:
    """The corpus of a run, from the location in corpus.json or from where it has moved.

    If it is prepared elsewhere, the same corpus has the same SHA-256, which is noted as well.

    Raises: FileError if it, corpus.json, or the run's vocabulary is damaged or a different one.
    """
    path = run / "corpus.json"
    note = read_json(path, _NOTED)
    with reading(path, _NOTED):
        place, checksum = run / note["folder"], note["sha256"]
    try:
        corpus = PreparedCorpus.open(moved or place)
    except MissingFile as error:
        advice = "if it has moved, name its new location with --prepared"
        raise MissingFile(f"{error}; {advice}") from error
    if corpus.manifest.sha256 != checksum:
        raise FileError(f"{corpus.folder}: expected the corpus with which the run began")
    corpus.check_vocabulary(run)
    return corpus


def find_or_prepare_corpus(config: TrainingConfig, resume: bool, processes: int) -> PreparedCorpus:
    """The corpus of a new run, or of the run in the folder if it may continue.

    Only the first process calls this. It writes nothing except the corpus of a new run. Arguments
    are as for `start_run` and `PreparedCorpus.find_or_prepare`.

    Raises: InputError if the folder contains a run that is not to be continued, another run, or
        something else; as `PreparedCorpus.find_or_prepare` and `open_noted`.
    """
    folder = Path(config.out)
    check_folder(folder)
    names = {path.name for path in folder.glob("*") if not is_part(path)}
    # No run has begun, or it was killed at its start.
    if names <= _LEFT | {"training.json", *VOCABULARIES}:
        path = folder / "training.json"
        if path.exists() and asdict(read_config(folder)) != read_json(path, "a configuration"):
            raise FileError(f"{path}: expected the file as a run wrote it; got different content")
        return PreparedCorpus.find_or_prepare(config, folder, processes)
    if not resume:
        advice = "continue it with --resume, or choose another --out"
        raise InputError(f"{folder} already holds a run; {advice}")
    for name, was in checkpoints.fixed_options(read_config(folder)).items():
        if (now := getattr(config, name)) != was:
            raise InputError(f"the run in {folder} has {name}={was}; it cannot continue with {now}")
    return open_noted(folder, config.prepared)


def note_run(config: TrainingConfig, corpus: PreparedCorpus) -> None:
    """Mark the folder as that of a run, or record the options with which its run continues."""
    folder = Path(config.out)
    write_text(folder / "training.json", json.dumps(asdict(config), indent=2) + "\n")
    path, note = folder / "corpus.json", {"data": full_paths(config.data)}
    if path.exists():  # it may continue in another folder than it began in
        note = read_json(path, _NOTED)
    else:
        corpus.copy_vocabulary(folder)
    # A corpus inside the run's folder moves with the run.
    inside = os.path.realpath(corpus.folder.parent) == os.path.realpath(folder)
    place = corpus.folder.name if inside else os.path.realpath(corpus.folder)
    note |= {"folder": place, "sha256": corpus.manifest.sha256}
    write_text(path, json.dumps(note, indent=1) + "\n")


def average_run(folder: Path, last: int = 0) -> None:
    """Make the average of a run's `last` checkpoints its model, and write its card.

    The checkpoints after the best do not count if the run has waited for better ones (`patience`).

    Args: last: 0 takes as many as configured.

    Raises: InputError if it has fewer or none; FileError if one is damaged, or there is no run.

    Source: section 6.1.
    """
    config, found = read_config(folder), checkpoints.list_checkpoints(folder)
    if best := checkpoints.best_first(folder)[: config.patience]:
        found = found[: found.index(best[0]) + 1]
    check_whole("last", last, least=0)
    if not found or last > len(found):
        alone = f", and {checkpoints.INTERRUPTED}, which is a model without being averaged"
        alone *= (folder / checkpoints.INTERRUPTED).exists()
        raise InputError(f"expected {last or 1} checkpoints in {folder}; got {len(found)}{alone}")
    chosen = found[-(last or config.average) :]
    mean = checkpoints.average_checkpoints(chosen, config)
    tensors, state = checkpoints.read_checkpoint(found[-1])
    buffers = {name for name in mean if f"step.{name}" not in tensors}
    mean |= {name: tensors[f"model.{name}"] for name in buffers}
    save_model(folder, mean, model_config(config), parts=state.parts, buffers=buffers)
    sizes = [tensor.numel() for name, tensor in mean.items() if name not in buffers]
    write_card(replace(config, out=str(folder)), sum(sizes), len(chosen), state.parts)
