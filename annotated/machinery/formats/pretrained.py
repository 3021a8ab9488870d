"""A trained model from its name or its folder, in whatever format it is stored."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from annotated.machinery.corpora.vocabularies import VOCABULARIES, read_tokenizers
from annotated.machinery.errors import InputError
from annotated.machinery.files import read_json
from annotated.machinery.formats.engine import EngineTranslator
from annotated.machinery.formats.firefox import is_firefox, read_firefox
from annotated.machinery.formats.hub import describe_card, model_folder
from annotated.machinery.formats.marian import read_marian
from annotated.machinery.formats.own import Build, read_own
from annotated.machinery.options import LARGEST
from annotated.machinery.progress import say
from annotated.machinery.runs.checkpoints import newest_first, read_run
from annotated.machinery.translator import Translator
from annotated.model import build_model

ENGINES = "torch", "ctranslate2"


def load_pretrained(
    name: str | Path,
    device: torch.device | str = "cpu",
    engine: str = "torch",
    precision: str = "float32",
    build: Build | None = None,
    checkpoint: str | int | None = None,
    **parts: Callable[..., Any],
) -> Translator:
    """Load a trained model.

    Args:
        name: a model that comes with the package; the folder of a run, of a published model, or
            of a translator as Firefox downloads it; or "OWNER/NAME", a published model on the
            Hub (`hub_folder`).
        device: the device on which to translate, such as "cuda".
        engine: "torch", the search of this book; or "ctranslate2", a faster program, for which
            the model is exported first (extra "export").
        precision: number format of the engine, such as "int8" with CTranslate2.
        checkpoint: which of a run's checkpoints to load, even while it trains: "best" on the
            development set, "last", or the number of its update; None: the average that ends the
            run, else the best, else the last. One line on standard error says which it is.
        build, parts: the function (as for `train`) or the parts (as for `build_model`) with which
            the model was built. A folder stores only their names, so they must be given again.

    Returns: a translator, in eval mode; with the engine an `EngineTranslator`.

    Raises: InputError that lists the models if the name or folder is unknown, and for an engine
        or precision that is unknown or cannot compute the model; FileError that names a file if
        it is missing, damaged, or inconsistent with the others; MissingExtra.
    """
    if engine not in ENGINES:
        raise InputError(f"expected an engine out of {', '.join(ENGINES)}; got {engine!r:.80}")
    if engine == "torch" and precision != "float32":
        wrong = f"expected precision 'float32' with the engine torch; got {precision!r:.80}"
        raise InputError(f"{wrong}; for other precisions choose engine 'ctranslate2'")
    if parts:
        build = partial(build or build_model, **parts)
    translator, told = read_model(name, checkpoint, build)
    for line in told:
        say(line)
    translator.to(device)
    return translator if engine == "torch" else EngineTranslator(translator, precision)


def read_model(
    name: str | Path, checkpoint: str | int | None = None, build: Build | None = None
) -> tuple[Translator, list[str]]:
    """A trained model, and what `load_pretrained` says of it; arguments and errors as there."""
    folder = model_folder(name)
    path, firefox = folder / "config.json", is_firefox(folder)
    run, unfinished = (folder / "training.json").exists(), checkpoint is not None
    if unfinished and not run:
        raise InputError(f"expected the folder of a run with checkpoint={checkpoint}; got {folder}")
    unfinished |= run and not (folder / "model.safetensors").exists()
    other, told = firefox or unfinished, list[str]()
    contents = {} if other else read_json(path, "the configuration of a model")
    marian = "model_type" in contents  # our own format has no such field
    if (firefox or marian) and build:
        raise InputError(f"expected no parts for {folder}, a published model; got some")
    if firefox:
        translator = Translator(*read_firefox(folder))
    elif marian:
        translator = Translator(*read_marian(folder, contents))
        added = translator.tokenizer.get_added_tokens_decoder().values()
        labels = [token.content for token in added if token.content.startswith(">>")]
        told = describe_card(folder, str(name), labels)
    elif unfinished:
        loaded, line = read_run(folder, checkpoint, build)
        translator, told = Translator(*loaded), [line]
    else:
        translator = Translator(*read_own(folder, contents, build))
        if run and newest_first(folder):
            told = [f"{folder}: the average of its last checkpoints"]
    if (card := folder / "README.md").is_file():
        translator.card = card.read_text(encoding="utf-8", errors="replace")
    return translator, told


def model_tokenizers(name: str | Path) -> tuple[Tokenizer, Tokenizer | None]:
    """The tokenizers of a trained model, as a `Translator` has them; errors as `read_model`."""
    folder = model_folder(name)
    if (folder / VOCABULARIES[0]).exists():
        return read_tokenizers(folder, LARGEST, LARGEST)
    translator, _ = read_model(folder)
    return translator.tokenizer, translator.target_tokenizer
