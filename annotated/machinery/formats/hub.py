"""The location of a model: in the package, in a folder, or on the Hugging Face Hub.

A name on the Hub is first looked up in the cache of huggingface_hub, so that a model that was
loaded once stays the same and needs no network. Only files that `load_pretrained` reads are
downloaded.
"""

import os
import re
from contextlib import suppress
from functools import partial
from pathlib import Path

from annotated.machinery.corpora.vocabularies import VOCABULARIES
from annotated.machinery.errors import FileError, InputError
from annotated.machinery.files import read_json, resource_path
from annotated.machinery.formats.firefox import is_firefox
from annotated.machinery.progress import say

_NAME = re.compile(r"\w[\w.-]*/[\w.-]+(@[\w./-]+)?")
# Marian's vocabulary; our format has other files.
_PIECES = ["vocab.json", "source.spm", "target.spm"]
_FILES = ["config.json", *_PIECES, *VOCABULARIES, "README.md"]
_WEIGHTS = ["model.safetensors", "pytorch_model.bin"]  # the first one that exists is used

_INDEX = "model.safetensors.index.json"  # for weights in several files
_LANGUAGE = [
    "*config.json",
    "tokenizer.json",
    "README.md",
    _WEIGHTS[0],
    "model-*.safetensors",
    _INDEX,
]


def hub_folder(name: str) -> Path:
    """The local folder of a model on the Hub, downloaded unless it is in the cache.

    Args:
        name: "OWNER/NAME", or "OWNER/NAME@REVISION" with a branch, a tag or a hash.

    Raises: FileError if the Hub cannot be reached or has no such model.
    """
    from huggingface_hub import model_info, snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    repo, _, revision = name.partition("@")
    revision = revision or "main"
    fetch = partial(snapshot_download, repo, revision=revision)
    try:
        with suppress(LocalEntryNotFoundError):
            folder = Path(fetch(allow_patterns=_FILES, local_files_only=True))
            cached = {path.name for path in folder.iterdir()}
            vocabulary = cached >= set(_PIECES) or VOCABULARIES[0] in cached
            if "config.json" in cached and vocabulary and cached & set(_WEIGHTS):
                return folder
        # The only way to list the files that does not retry for half a minute.
        there = {file.rfilename for file in model_info(repo, revision=revision).siblings or ()}
        wanted = [*_FILES, *[file for file in _WEIGHTS if file in there][:1]]
        return Path(fetch(allow_patterns=wanted))
    except (
        Exception
    ) as error:  # the library has many kinds of errors, and its network library has more
        reason = str(error).strip().partition("\n")[0]
        raise FileError(f"{name}: expected a model of the Hub; got: {reason}") from error


def language_model_folder(source: str | Path) -> Path:
    """A folder or file unchanged, or the local folder of a model on the Hub as from `hub_folder`.

    Raises: InputError if it is neither; FileError if the Hub cannot be reached or has no such
        model.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    if not isinstance(source, str | Path):
        raise InputError(f"expected a model as a string or a Path; got {type(source).__name__}")
    name = str(source)
    local = os.path.exists(name.partition("/")[0])
    if os.path.exists(name) or local or name.endswith(".gguf"):
        return Path(name)
    if not _NAME.fullmatch(name):
        wanted = "a folder, a GGUF file, or a model of the Hub as OWNER/NAME"
        raise InputError(f"expected {wanted}; got {name[:80]!r}")
    repo, _, revision = name.partition("@")
    fetch = partial(snapshot_download, repo, revision=revision or "main", allow_patterns=_LANGUAGE)
    try:
        with suppress(LocalEntryNotFoundError):
            folder = Path(fetch(local_files_only=True))
            index = folder / _INDEX
            parts = (
                set(read_json(index, "weight_map")["weight_map"].values()) if index.exists() else ()
            )
            if all((folder / file).exists() for file in ("config.json", *(parts or _WEIGHTS[:1]))):
                return folder
        return Path(fetch())
    except Exception as error:  # as in hub_folder
        reason = str(error).strip().partition("\n")[0]
        raise FileError(f"{name}: expected a model of the Hub; got: {reason}") from error


def print_card(folder: Path, name: str, languages: list[str]) -> None:
    """Print the license and revision of a published model on standard error.

    Args:
        languages: symbols, with one of which a text must begin; may be empty.
    """
    from huggingface_hub import metadata_load

    named = None
    with suppress(Exception):  # a card that cannot be read
        named = (metadata_load(folder / "README.md") or {}).get("license")
    license = f"license {named}" if isinstance(named, str) else "its card names no license"
    revision = f", revision {folder.name}" if re.fullmatch("[0-9a-f]{40}", folder.name) else ""
    say(f"{name}{revision}: {license}")
    if languages:
        say(f"{name}: a text must begin with one of {' '.join(languages)}")


def model_folder(name: str | Path) -> Path:
    """The folder of a trained model: of the package, of a run, or of a published model.

    Raises: ValueError that lists the models if the name or folder does not exist.
    """
    if not isinstance(name, str | Path):
        raise InputError(f"expected a model as a string or a Path; got {type(name).__name__}")
    models = resource_path("models")
    folder = Path(name) if os.path.isdir(name) else models / str(name)
    ours = any(os.path.isfile(folder / file) for file in ("config.json", "model.safetensors"))
    if ours or is_firefox(folder):
        return folder
    if _NAME.fullmatch(str(name)) and not os.path.exists(str(name).partition("/")[0]):
        return hub_folder(str(name))  # it cannot be a local path
    known = sorted(path.parent.name for path in models.glob("*/model.safetensors"))
    wanted = f"a folder with model.safetensors, or a model out of {', '.join(known)}"
    hint = "a model of the Hub is called OWNER/NAME"
    if _NAME.fullmatch(str(name)):
        hint += f", and is not looked up if {str(name).partition('/')[0]} is a local folder"
    raise InputError(f"expected {wanted}; got {str(name)!r} ({hint})")


def vocabulary_files(name: str | Path) -> list[Path]:
    """The vocabulary files of a model from which training continues.

    Raises: InputError if the model is published in another format, or as `model_folder`.
    """
    folder = model_folder(name)
    config = folder / "config.json"
    published = is_firefox(folder)
    if config.is_file():
        published = "model_type" in read_json(config, "the configuration of a model")
    if published:
        wanted = (
            "a model in the book's own format to continue training, as `annotated import` writes it"
        )
        raise InputError(f"expected {wanted}; got {name}")
    return [folder / file for file in VOCABULARIES if (folder / file).exists()]
