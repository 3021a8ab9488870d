"""The folder of a run: who may train there, with which configuration, on which corpus.

`training.json` holds the configuration and is written last: where it is missing, an earlier start
broke off, perhaps with other options, and nothing that it left is used. Resuming must not quietly
turn a run into another one, and starting anew must not destroy one.
"""

import json
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

from annotated.machinery.errors import FileError, InputError, MissingFile, check_whole
from annotated.machinery.files import locked, read_json, settings, write_text
from annotated.machinery.model_files import save_model
from annotated.machinery.prepared import PreparedCorpus
from annotated.machinery.training.checkpoints import (
    average_checkpoints,
    fixed_options,
    list_checkpoints,
)
from annotated.training import TrainingConfig, model_config


def run_lock(folder: str | Path) -> AbstractContextManager[None]:
    """Hold the lock of a run's folder. Raises: FileError if another process trains there."""
    advice = "wait until it ends, stop it, or choose another --out"
    return locked(Path(folder) / ".lock", f"another process trains in {folder}; {advice}")


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
    """Begin a run, or check that the one in the folder may go on; by the first process only.

    Args:
        config: the run.   resume: continue what is in its folder, if anything is.
        processes: how many wait for it.

    Returns: the corpus to train on, noted in the folder.

    Raises: InputError if the folder holds a run that is not to be continued, or another one; as
        `PreparedCorpus.for_run` and `open_noted`.
    """
    folder = Path(config.out)
    if (folder / "training.json").exists():
        if not resume:
            advice = "continue it with --resume, or choose another --out"
            raise InputError(f"{folder} already holds a run; {advice}")
        for name, was in fixed_options(read_config(folder)).items():
            if (now := getattr(config, name)) != was:
                raise InputError(
                    f"the run in {folder} has {name}={was}; it cannot go on with {now}"
                )
        corpus = open_noted(folder, config.prepared)
    elif left := list_checkpoints(folder):
        raise FileError(
            f"{folder}: expected training.json beside {left[-1].name}; there is none; put it back, "
            "or choose another --out"
        )
    else:
        corpus = PreparedCorpus.for_run(config, folder, processes)
        corpus.copy_vocabulary(folder)
    inside = corpus.folder.parent.resolve() == folder.resolve()  # may move with the run
    place = corpus.folder.name if inside else str(corpus.folder.resolve())
    note = asdict(CorpusNote(place, corpus.manifest.sha256))
    write_text(folder / "corpus.json", json.dumps(note, indent=1) + "\n")
    write_text(folder / "training.json", json.dumps(asdict(config), indent=2) + "\n")
    return corpus


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
    mean = average_checkpoints(found[-(last or config.average) :])
    save_model(folder, mean, model_config(config))
