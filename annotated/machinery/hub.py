"""Published models."""

import os
import re
import sys
from pathlib import Path

from annotated.machinery.errors import FileError
from annotated.machinery.vocabularies import VOCABULARIES

_NAME = re.compile(r"\w[\w.-]*/[\w.-]+(@[\w./-]+)?")
_PIECES = ["vocab.json", "source.spm", "target.spm"]  # how Marian cuts; what we write, otherwise
_FILES = ["config.json", *_PIECES, *VOCABULARIES, "README.md"]
_WEIGHTS = ["model.safetensors", "pytorch_model.bin"]  # the first that there is


def on_hub(name: str) -> bool:
    """Whether a name may be that of a model on the Hub, and of no file or folder here."""
    return bool(_NAME.fullmatch(name)) and not os.path.exists(name.partition("/")[0])


def hub_folder(name: str) -> Path:
    """The folder of a model of the Hub, fetched unless it is in the cache.

    Args:
        name: "OWNER/NAME", or "OWNER/NAME@REVISION"; a revision is a branch, a tag or a hash.

    Raises: FileError if the Hub cannot be reached, or has no such model.
    """
    from huggingface_hub import list_repo_files, snapshot_download, try_to_load_from_cache

    repo, _, revision = name.partition("@")
    revision = revision or "main"
    held = {
        name: path
        for name in (*_FILES, *_WEIGHTS)
        if isinstance(path := try_to_load_from_cache(repo, name, revision=revision), str)
    }
    cuts = held.keys() >= set(_PIECES) or VOCABULARIES[0] in held
    if "config.json" in held and cuts and held.keys() & set(_WEIGHTS):
        return Path(held["config.json"]).parent
    try:
        there = set(list_repo_files(repo, revision=revision))
        wanted = [*_FILES, *[file for file in _WEIGHTS if file in there][:1]]
        folder = Path(snapshot_download(repo, revision=revision, allow_patterns=wanted))
    except Exception as error:  # the library has many, and those of its network beneath them
        reason = str(error).strip().partition("\n")[0]
        raise FileError(f"{name}: expected a model of the Hub; got: {reason}") from error
    return folder


def tell_card(folder: Path, name: str, languages: list[str]) -> None:
    """Print, on standard error, what a published model is, and what it wants to be told.

    Args:
        languages: symbols of which a text has to begin with one; may be none.
    """
    from huggingface_hub import metadata_load

    card = folder / "README.md"
    try:
        said = metadata_load(card) or {}
    except Exception:  # a card that cannot be read says nothing
        said = {}
    licence = said.get("license") if isinstance(said, dict) else None
    hashed = re.fullmatch(r"[0-9a-f]{40}", folder.name)
    revision = f", revision {folder.name}" if hashed else ""
    told = f"licence {licence}" if isinstance(licence, str) else "its card names no licence"
    print(f"{name}{revision}: {told}", file=sys.stderr)
    if languages:
        print(f"{name}: a text has to begin with one of {' '.join(languages)}", file=sys.stderr)
