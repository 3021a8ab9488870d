"""The folder of a run: who may train there, with which configuration, on which corpus.

A run begins in a new or an empty folder; `training.json`, which holds its configuration, marks the
folder as that of a run. It is written first, but when all has been checked, and so a start that is
refused changes nothing. Resuming must not quietly turn a run into another one, and starting anew
must not destroy one, or anything else.
"""

import json
import os
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

from annotated.machinery.errors import FileError, InputError, MissingFile, check_whole
from annotated.machinery.files import (
    is_part,
    locked,
    named_in_utf8,
    read_json,
    settings,
    write_text,
)
from annotated.machinery.model_files import save_model
from annotated.machinery.prepared import PreparedCorpus
from annotated.machinery.training.checkpoints import (
    average_checkpoints,
    fixed_options,
    list_checkpoints,
)
from annotated.machinery.vocabularies import VOCABULARIES
from annotated.training import TrainingConfig, model_config

SAVED = ".saved"  # is there once a checkpoint has been
# What a start that broke off leaves, and `launch` before it: of these nothing is overwritten.
_LEFT = {".lock", "output.txt", "prepared"}


def run_lock(folder: str | Path) -> AbstractContextManager[None]:
    """Hold the lock of a run's folder.

    Raises: InputError if the folder is neither new nor empty nor that of a run; FileError if
        another process trains there.
    """
    check_folder(Path(folder))
    advice = "wait until it ends, stop it, or choose another --out"
    return locked(Path(folder) / ".lock", f"another process trains in {folder}; {advice}")


def check_folder(folder: Path) -> None:
    """Raise InputError unless a folder is new, empty, or that of a run."""
    named_in_utf8(folder)
    if not folder.exists() or (folder / "training.json").exists():
        return
    if not folder.is_dir():
        raise InputError(f"expected the folder of a run; got {folder}, a file")
    if saved := list_checkpoints(folder):
        advice = "there is none; put it back, or choose another --out"
        raise FileError(f"{folder}: expected training.json beside {saved[-1].name}; {advice}")
    left = _LEFT if (folder / "prepared" / "manifest.json").exists() else _LEFT - {"prepared"}
    if strange := sorted({path.name for path in folder.iterdir() if not is_part(path)} - left):
        wanted = "expected a new or an empty folder, or that of a run"
        raise InputError(f"{wanted}; got {folder}, which contains {strange[0]}")


def read_config(folder: Path) -> TrainingConfig:
    """The configuration of the run in a folder.

    Raises: MissingFile or FileError that names training.json, and the setting that is wrong.
    """
    path = folder / "training.json"
    return settings(TrainingConfig, read_json(path, "the configuration of a run"), str(path))


@dataclass(frozen=True)
class CorpusNote:
    """corpus.json in the folder of a run: the place of its prepared corpus, and its SHA-256.

    The corpus may move: prepared elsewhere, the same corpus has the same sum.
    """

    folder: str
    sha256: str


def open_noted(run: Path, moved: str = "") -> PreparedCorpus:
    """The corpus of a run, in the place that corpus.json notes or where it has moved.

    Raises: FileError if it, the note, or the run's vocabulary is damaged or another one.
    """
    path = run / "corpus.json"
    note = settings(CorpusNote, read_json(path, "a note on the corpus of the run"), str(path))
    try:
        corpus = PreparedCorpus.open(Path(moved) if moved else run / note.folder)
    except MissingFile as error:
        advice = "if it has moved, name its new place with --prepared"
        raise MissingFile(f"{error}; {advice}") from error
    if corpus.manifest.sha256 != note.sha256:
        raise FileError(f"{corpus.folder}: expected the corpus that the run began with")
    corpus.check_vocabulary(run)
    return corpus


def open_run(config: TrainingConfig, resume: bool, processes: int = 1) -> PreparedCorpus:
    """The corpus of a new run, or of the one in the folder if it may go on.

    By the first process only. Nothing is written but the corpus of a new run.

    Args:
        config: the run.   resume: continue what is in its folder, if anything is.
        processes: how many wait for it.

    Raises: InputError if the folder holds a run that is not to be continued, or another one, or
        something else; as `PreparedCorpus.for_run` and `open_noted`.
    """
    folder = Path(config.out)
    check_folder(folder)
    names = {path.name for path in folder.glob("*") if not is_part(path)}
    if names <= _LEFT | {"training.json", *VOCABULARIES}:  # no run has begun, or it was killed then
        path = folder / "training.json"
        if path.exists() and asdict(read_config(folder)) != read_json(path, "a configuration"):
            raise FileError(f"{path}: expected what a run has written there; got something else")
        return PreparedCorpus.for_run(config, folder, processes)
    if not resume:
        advice = "continue it with --resume, or choose another --out"
        raise InputError(f"{folder} already holds a run; {advice}")
    for name, was in fixed_options(read_config(folder)).items():
        if (now := getattr(config, name)) != was:
            raise InputError(f"the run in {folder} has {name}={was}; it cannot go on with {now}")
    return open_noted(folder, config.prepared)


def note_run(config: TrainingConfig, corpus: PreparedCorpus) -> None:
    """Make the folder that of a run, or note the options with which its run goes on."""
    folder = Path(config.out)
    write_text(folder / "training.json", json.dumps(asdict(config), indent=2) + "\n")
    if not (folder / "corpus.json").exists():
        corpus.copy_vocabulary(folder)
    inside = os.path.realpath(corpus.folder.parent) == os.path.realpath(folder)  # moves with it
    place = corpus.folder.name if inside else os.path.realpath(corpus.folder)
    note = asdict(CorpusNote(place, corpus.manifest.sha256))
    write_text(folder / "corpus.json", json.dumps(note, indent=1) + "\n")


def average_run(folder: Path, last: int = 0) -> None:
    """Make the mean of the last checkpoints of a run its model.

    Args:
        folder: of the run.   last: how many; 0: as many as its configuration says.

    Raises: InputError if it has fewer; FileError if one is damaged, or no run is there.

    Source: section 6.1.
    """
    config, found = read_config(folder), list_checkpoints(folder)
    check_whole("last", last, least=0)
    if last > len(found):
        raise InputError(f"expected {last} checkpoints in {folder}; got {len(found)}")
    mean = average_checkpoints(found[-(last or config.average) :], config)
    save_model(folder, mean, model_config(config))
