"""The location of a model: in the package, in a folder, or on the Hugging Face Hub.

A name on the Hub is first looked up in the cache of huggingface_hub, so that a model that was
loaded once stays the same and needs no network. Only files that are read are downloaded.
"""

import errno
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
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

# First parts of our own paths, so that a run in another folder is not taken for a stranger's model.
_LOCAL = "runs", "models", "data"

OTHER_TEMPLATES = "additional_chat_templates"  # a folder
_INDEX = "model.safetensors.index.json"  # for weights in several files
# The files of a language model except for its weights.
_LANGUAGE = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"]
_LANGUAGE += ["special_tokens_map.json", "added_tokens.json", "chat_template.jinja"]
_LANGUAGE += [f"{OTHER_TEMPLATES}/default.jinja"]


def _snapshot(
    name: str,
    files: list[str],
    weights: list[str],
    complete: Callable[[Path], bool],
    optional: Sequence[str] = (),
) -> Path:
    """The local folder of a model on the Hub, downloaded unless a complete one is in the cache.

    Args:
        name: as for `hub_folder`.   files: patterns.   weights: of these, the first that exists; an
            index stands for the files that it names.
        complete: whether a folder has the files that every model has.
        optional: names of files that change the output where they exist. Another program may have
            downloaded a model without them, so their absence is noted in the cache.
    """
    import huggingface_hub as library
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    repo, _, revision = name.partition("@")
    at, unknown, cached = revision or "main", [*optional], None
    try:
        with suppress(LocalEntryNotFoundError):
            folder = library.snapshot_download(
                repo, allow_patterns=files, local_files_only=True, revision=at
            )
            cached = Path(folder) if complete(Path(folder)) else None
            unknown = [
                x for x in optional if library.try_to_load_from_cache(repo, x, revision=at) is None
            ]
            if cached and not unknown:
                return cached
            if cached:  # the same model, even if there is another one on the Hub by now
                at = cached.name
        # The only way to list the files that does not retry for half a minute.
        there = {file.rfilename for file in library.model_info(repo, revision=at).siblings or ()}
        folder = str(cached)
        if not cached or {*unknown} & there:
            if not cached:
                say(f"{name}: there is no such folder here, so it is downloaded from the Hub")
            chosen = [file for file in weights if file in there][:1]
            folder = library.snapshot_download(repo, allow_patterns=[*files, *chosen], revision=at)
            if chosen == [_INDEX]:
                shards = weight_files(Path(folder) / _INDEX)
                library.snapshot_download(repo, allow_patterns=shards, revision=at)
        for file in {*unknown} - there:
            with suppress(EntryNotFoundError):  # the library notes the absence
                library.hf_hub_download(repo, file, revision=at)
        return Path(folder)
    except FileError:
        raise
    except Exception as error:  # the library and its network library have many kinds of errors
        reason = str(error).strip().partition("\n")[0]
        if isinstance(error, OSError) and (error.filename or error.errno == errno.ENOSPC):
            advice = "the environment variable HF_HOME names another folder"
            wrong = f"{name}: the Hub's cache could not be written: {reason}; {advice}"
            raise FileError(wrong) from error
        if cached:
            missing = f"the cache has no {', '.join(unknown)}"
            say(f"{name}: {missing}, and the Hub could not be asked for them: {reason}")
            return cached
        wanted = f"{name}: expected a folder that exists, or a model of the Hub"
        answered = hasattr(error, "response") or isinstance(error, ValueError)
        got = reason if answered else f"no answer from the Hub, {reason}"
        raise FileError(f"{wanted}; got: {got}") from error


def _is_on_hub(name: str) -> bool:
    """Whether a name is one of the Hub: not that of a local path, existing or mistyped."""
    owner = name.partition("/")[0]
    return bool(_NAME.fullmatch(name)) and owner not in _LOCAL and not os.path.exists(owner)


def weight_files(index: Path) -> list[str]:
    """The files that an index names, each inside the index's folder.

    Raises: MissingFile or FileError that names the index.
    """
    places = read_json(index, "the files of the tensors").get("weight_map")
    if not isinstance(places, dict) or not places:
        wanted = "expected weight_map, the file of each tensor"
        raise FileError(f"{index}: {wanted}; got {places!r:.80}")
    for file in places.values():
        parts = file.split("/") if isinstance(file, str) else [""]
        inside = not any(part in ("", ".", "..") or {*part} & {*"\\:\0"} for part in parts)
        if not (inside and file.endswith(".safetensors")):
            raise FileError(f"{index}: expected names of safetensors files; got {file!r:.80}")
    return sorted({*places.values()})


def hub_folder(name: str) -> Path:
    """The local folder of a model on the Hub, downloaded unless it is in the cache.

    Args: name: "OWNER/NAME", or "OWNER/NAME@REVISION" with a branch, a tag or a hash.

    Raises: FileError if the Hub cannot be reached or has no such model.
    """

    def complete(folder: Path) -> bool:
        cached = {path.name for path in folder.iterdir()}
        vocabulary = cached >= set(_PIECES) or VOCABULARIES[0] in cached
        return "config.json" in cached and vocabulary and bool(cached & set(_WEIGHTS))

    return _snapshot(name, _FILES, _WEIGHTS, complete)


def language_model_folder(source: str | Path) -> Path:
    """A folder or file unchanged, or the local folder of a model on the Hub as from `hub_folder`.

    Raises: InputError if it is neither; FileError if the Hub has no such model or answer.
    """
    if not isinstance(source, str | Path):
        raise InputError(f"expected a model as a string or a Path; got {type(source).__name__}")
    name = str(source)
    if os.path.exists(name) or os.path.exists(name.partition("/")[0]) or name.endswith(".gguf"):
        return Path(name)
    known = _of_package("scale_embeddings")
    if name in known:
        return resource_path("models") / name
    if not _is_on_hub(name):
        places = "a folder, a GGUF file, or a model of the Hub as OWNER/NAME"
        wanted = ", ".join([*known, places])
        hint = " (for `annotated translate` or `parse`, and load_pretrained)"
        hint *= name in _of_package("src_vocab")
        raise InputError(f"expected {wanted}; got {name[:80]!r}{hint}")

    def complete(folder: Path) -> bool:
        index = folder / _INDEX
        single = _WEIGHTS[:1] if not index.exists() or (folder / _WEIGHTS[0]).exists() else []
        parts = single or weight_files(index)
        return all((folder / file).exists() for file in (_LANGUAGE[0], *parts))

    files = [*_LANGUAGE, f"{OTHER_TEMPLATES}/*.jinja", "README.md"]
    return _snapshot(name, files, [_WEIGHTS[0], _INDEX], complete, _LANGUAGE)


def card_license(folder: Path) -> dict[str, str]:
    """What the metadata of the card in a folder say of its license: name, if it has one, first."""
    from huggingface_hub import metadata_load

    with suppress(Exception):  # a card that cannot be read
        about = metadata_load(folder / "README.md") or {}
        names = "license_name", "license", "license_link"
        return {name: about[name] for name in names if isinstance(about.get(name), str)}
    return {}


def describe_card(folder: Path, name: str, languages: list[str]) -> list[str]:
    """License and revision of a published model, and how a text for it must begin, in lines.

    Args: languages: symbols, with one of which a text must begin; may be empty.
    """
    about = card_license(folder)
    license = f"license {next(iter(about.values()))}" if about else "its card names no license"
    revision = f", revision {folder.name}" if re.fullmatch("[0-9a-f]{40}", folder.name) else ""
    begin = f"{name}: a text must begin with one of {' '.join(languages)}"
    return [f"{name}{revision}: {license}", *[begin] * bool(languages)]


def _of_package(field: str) -> list[str]:
    """The models of the package whose configuration has this field."""
    configs = resource_path("models").glob("*/config.json")
    return sorted(path.parent.name for path in configs if f'"{field}"' in path.read_text("utf-8"))


def model_folder(name: str | Path) -> Path:
    """The folder of a trained model: of the package, of a run, or of a published model.

    Raises: InputError that lists the models if the name or folder does not exist.
    """
    if not isinstance(name, str | Path):
        raise InputError(f"expected a model as a string or a Path; got {type(name).__name__}")
    known = _of_package("src_vocab")
    own = str(name) in known and not os.path.isdir(name)
    folder = resource_path("models") / name if own else Path(name)
    files = "config.json", "model.safetensors", "training.json"  # the last: a run that may train
    ours = any(os.path.isfile(folder / file) for file in files)
    if ours or is_firefox(folder):
        return folder
    if _is_on_hub(str(name)):
        return hub_folder(str(name))
    wanted = f"a folder with model.safetensors, or a model out of {', '.join(known)}"
    hint = "a model of the Hub is called OWNER/NAME"
    if str(name) in _of_package("scale_embeddings"):
        hint = "a language model, for `annotated generate` and load_language_model alone"
    if _NAME.fullmatch(str(name)):
        owner = str(name).partition("/")[0]
        hint += f", and is not looked up if {owner} is a local folder, or {', '.join(_LOCAL)}"
    raise InputError(f"expected {wanted}; got {str(name)!r} ({hint})")
