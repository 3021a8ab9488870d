"""The folder of a run (chapters/checkpoints.md).

Generated from the chapter's export cells by book/extract.py: edit it there.
"""

import json
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path

from tokenizers import Tokenizer

from annotated.corpora import load_pairs, parse_data
from annotated.data import EncodedPairs, learn_vocabulary
from annotated.files import (
    FileError,
    InputError,
    check_whole,
    locked,
    read_json,
    reading,
    settings,
    write_text,
)
from annotated.training.checkpoints import average_checkpoints, list_checkpoints, save_model
from annotated.training.config import TrainingConfig, fixed_options, model_config
from annotated.translator import load_pretrained

__all__ = ["average_run", "prepare_run", "read_config", "read_pairs", "run_lock"]


def run_lock(folder: str | Path) -> AbstractContextManager[None]:
    """Hold the lock of a run's folder. Raises: FileError if another process trains there."""
    advice = "wait until it ends, stop it, or choose another --out"
    return locked(Path(folder) / ".lock", f"another process trains in {folder}; {advice}")


def prepare_run(config: TrainingConfig, resume: bool) -> None:
    """Fill the folder of a run with vocabulary, encoded pairs and configuration.

    Raises: ValueError if the folder holds a run that is not to be continued, or another one.
    """
    folder = Path(config.out)
    if (folder / "training.json").exists():
        _check_resume(config, read_config(folder), resume)
    elif left := list_checkpoints(folder):
        raise FileError(
            f"{folder}: expected training.json beside {left[-1].name}; there is none; put it back, "
            "or choose another --out"
        )
    else:
        _encode_corpus(config, folder)
    write_text(folder / "training.json", json.dumps(asdict(config), indent=2) + "\n")


def _run_vocabulary(config: TrainingConfig, sentences: list[str]) -> Tokenizer:
    """The vocabulary of the weights that a run begins with, or else a new one."""
    if config.weights:
        return load_pretrained(config.weights).tokenizer
    return learn_vocabulary(config.vocabulary, sentences, config.vocab_size)


def _encode_corpus(config: TrainingConfig, folder: Path) -> None:
    """Write a vocabulary, and the training and validation pairs in its numbers."""
    corpus, src, tgt = parse_data(config.data)
    tokenizer = None
    for split, on_bad in ("train", config.on_bad), ("dev", "auto"):
        source, target = load_pairs(corpus, split, src, tgt, None if on_bad == "auto" else on_bad)
        if not source:
            raise ValueError(
                f"expected pairs to train and to validate on; {config.data} has no {split}"
            )
        if tokenizer is None:
            tokenizer = _run_vocabulary(config, source + target)
            write_text(folder / "tokenizer.json", tokenizer.to_str())
        EncodedPairs.encode(tokenizer, source, target).save(folder / f"{split}.pairs")


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


def read_pairs(folder: Path) -> tuple[EncodedPairs, EncodedPairs]:
    """The training and validation pairs that `prepare_run` left in the folder of a run.

    Raises: FileError if they, or the vocabulary whose numbers they hold, are damaged.
    """
    path, again = folder / "tokenizer.json", "delete the folder of the run and start it anew"
    with reading(path, "the vocabulary of the run", again):
        size = Tokenizer.from_file(str(path)).get_vocab_size()
    paths = folder / "train.pairs", folder / "dev.pairs"
    train_pairs, dev_pairs = found = EncodedPairs.load(paths[0]), EncodedPairs.load(paths[1])
    for path, pairs in zip(paths, found, strict=True):
        largest = max(pairs.src.max(initial=0), pairs.tgt.max(initial=0))
        if largest >= size or not len(pairs):
            got = f"got {largest}" if len(pairs) else "there are none"
            expected = f"pairs of ids below {size}, the size of tokenizer.json's vocabulary"
            raise FileError(f"{path}: expected {expected}; {got}; {again}")
    return train_pairs, dev_pairs


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
