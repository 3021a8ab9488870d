"""The folder of a run."""

import json
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

from annotated.machinery.downloads import sha256_of
from annotated.machinery.encoding import EncodedPairs
from annotated.machinery.errors import FileError, InputError, MissingFile, check_whole
from annotated.machinery.files import locked, read_json, reading, settings, write_text
from annotated.machinery.prepared import (
    RULES,
    PreparedCorpus,
    corpus_key,
    corpus_parts_of,
    input_bytes,
    open_prepared,
    prepare,
    shared_folder,
)  # fmt: skip
from annotated.machinery.training.checkpoints import (
    average_checkpoints,
    list_checkpoints,
    save_model,
)
from annotated.machinery.training.checks import fixed_options
from annotated.machinery.vocabularies import VOCABULARIES
from annotated.training import TrainingConfig, model_config


def run_lock(folder: str | Path) -> AbstractContextManager[None]:
    """Hold the lock of a run's folder. Raises: FileError if another process trains there."""
    advice = "wait until it ends, stop it, or choose another --out"
    return locked(Path(folder) / ".lock", f"another process trains in {folder}; {advice}")


def prepare_run(config: TrainingConfig, resume: bool, processes: int = 1) -> None:
    """Fill the folder of a run with vocabulary, configuration, and a note on what it learns from.

    Args:
        config: the run.   resume: continue what is in its folder, if anything is.
        processes: how many wait for it.

    Raises: ValueError if the folder holds a run that is not to be continued, or another one, or
        if many processes would wait for a large corpus to be prepared.
    """
    folder = Path(config.out)
    if (folder / "training.json").exists():
        _check_resume(config, read_config(folder), resume)
        if config.prepared:
            _note_corpus(folder, _open_corpus(Path(config.prepared)), _read_note(folder).sha256)
    elif left := list_checkpoints(folder):
        raise FileError(
            f"{folder}: expected training.json beside {left[-1].name}; there is none; put it back, "
            "or choose another --out"
        )
    else:
        corpus = _find_corpus(config, processes)
        for name in set(VOCABULARIES) & corpus.manifest.files.keys():
            write_text(folder / name, (corpus.folder / name).read_text("utf-8"))
        _note_corpus(folder, corpus)
    write_text(folder / "training.json", json.dumps(asdict(config), indent=2) + "\n")


_SMALL = 1 << 27  # bytes of texts that a run prepares for itself


def _find_corpus(config: TrainingConfig, processes: int) -> PreparedCorpus:
    """The prepared corpus of a new run: the one that is named, or lies there, or a new one."""
    if config.prepared:
        corpus = open_prepared(Path(config.prepared))
        for name in RULES:
            if (was := corpus.manifest.rules.get(name)) != (now := getattr(config, name)):
                raise InputError(
                    f"{corpus.folder} was prepared with {name}={was}; got {name}={now}"
                )
        return corpus
    parts = corpus_parts_of(config)
    size, folder = input_bytes(parts), shared_folder(config, corpus_key(config, parts))
    if folder.exists():
        return open_prepared(folder)
    if size <= _SMALL:
        return open_prepared(prepare(config, Path(config.out) / "prepared", replace=True))
    if processes > 1:
        options = "annotated prepare with the same options, such as --preset"
        waits = f"it has {size / 1e9:.1f} GB, and {processes} processes would wait for it"
        raise InputError(
            f"expected {config.data} to be prepared, for {waits}; run first: {options}"
        )
    return open_prepared(prepare(config))


def read_config(folder: Path) -> TrainingConfig:
    """The configuration of the run in a folder.

    Raises: MissingFile or FileError that names training.json, and the setting that is wrong.
    """
    path = folder / "training.json"
    return settings(TrainingConfig, read_json(path, "the configuration of a run"), str(path))


def _check_resume(config: TrainingConfig, old: TrainingConfig, resume: bool) -> None:
    """Raise ValueError unless a run may go on with this configuration."""
    if not resume:
        raise ValueError(
            f"{config.out} already holds a run; continue it with --resume, or choose another --out"
        )
    for name, was in fixed_options(old).items():
        if (now := getattr(config, name)) != was:
            raise ValueError(
                f"the run in {config.out} has {name}={was}; it cannot go on with {now}"
            )


@dataclass(frozen=True)
class _CorpusNote:
    """corpus.json in the folder of a run: where its prepared corpus lies, and its sum."""

    folder: str
    sha256: str


def _note_corpus(folder: Path, corpus: PreparedCorpus, expected: str = "") -> None:
    """Write which corpus a run learns from; FileError if it is not the expected one."""
    if expected and corpus.manifest.sha256 != expected:
        raise FileError(
            f"{corpus.folder}: expected the corpus that the run began with; it is another"
        )
    inside = corpus.folder.parent.resolve() == folder.resolve()  # such a folder may be moved
    place = corpus.folder.name if inside else str(corpus.folder.resolve())
    note = _CorpusNote(place, corpus.manifest.sha256)
    write_text(folder / "corpus.json", json.dumps(asdict(note), indent=1) + "\n")


def _read_note(folder: Path) -> _CorpusNote:
    path = folder / "corpus.json"
    return settings(_CorpusNote, read_json(path, "a note on the corpus of the run"), str(path))


def _open_corpus(place: Path) -> PreparedCorpus:
    """The corpus of a run that goes on."""
    try:
        return open_prepared(place)
    except MissingFile as error:
        raise MissingFile(
            f"{error}; if it has moved, name its new place with --prepared"
        ) from error


def read_pairs(folder: Path) -> tuple[EncodedPairs, EncodedPairs]:
    """The training and validation pairs of the run in a folder.

    Raises: FileError if they, or the vocabulary whose numbers they hold, are damaged or others.
    """
    note = _read_note(folder)
    corpus = _open_corpus(folder / note.folder)
    if corpus.manifest.sha256 != note.sha256:
        raise FileError(
            f"{corpus.folder}: expected the corpus that the run began with; it is another"
        )
    for name in set(VOCABULARIES) & corpus.manifest.files.keys():
        path, advice = folder / name, f"that of {corpus.folder} may be copied here"
        with reading(path, "the vocabulary of the run", advice):
            if sha256_of(path) != corpus.manifest.files[name]["sha256"]:
                raise ValueError("another one")
    return corpus.train, corpus.dev


def average_run(folder: Path, last: int = 0) -> None:
    """Make the mean of the last checkpoints of a run its model.

    Args:
        folder: of the run.   last: how many; 0: as many as its configuration says.

    Raises: ValueError if it has fewer; FileError if one is damaged, or no run is there.

    Source: section 6.1.
    """
    config, found = read_config(folder), list_checkpoints(folder)
    check_whole("last", last, least=0)
    if last > len(found):
        raise InputError(f"expected {last} checkpoints in {folder}; got {len(found)}")
    mean = average_checkpoints(found[-(last or config.average) :])
    save_model(folder, mean, model_config(config))
