"""The translator."""

import json
import os
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, overload

import torch
from safetensors import safe_open
from tokenizers import Tokenizer
from torch import Tensor, nn
from tqdm import tqdm

from annotated.data import END, Batch, encode_source, pad_ids
from annotated.decoding import beam_search
from annotated.machinery.errors import FileError, InputError, check_whole
from annotated.machinery.files import read_json, read_tensors, reading, resource_path, settings
from annotated.machinery.hub import hub_folder, on_hub, tell_card
from annotated.machinery.marian import is_published, read_marian, weights_file
from annotated.machinery.vocabularies import VOCABULARIES, read_tokenizers
from annotated.model import EncoderDecoder, TransformerConfig, build_model, parameter_shapes


def budget_batches(lengths: list[int], batch_tokens: int) -> list[list[int]]:
    """Group sentences of similar length, the longest first.

    Args:
        lengths: in tokens.
        batch_tokens: of a batch, padding included; a sentence that is longer is a batch of
            its own.

    Returns: batches of indices into lengths.
    """
    batches: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        # The first of a batch is its longest, to which the others are padded.
        if not batches or lengths[batches[-1][0]] * (len(batches[-1]) + 1) > batch_tokens:
            batches.append([])
        batches[-1].append(i)
    return batches


def _is_blank(text: str) -> bool:
    """Whether all its characters are spaces, control characters or others that print nothing."""
    return all(unicodedata.category(character)[0] in "ZC" for character in text)


@dataclass(frozen=True)
class Translation:
    """A translated sentence, with log_prob and score of its `Hypothesis`."""

    text: str
    log_prob: float
    score: float


_LETTERS = 100  # a piece has fewer


def each_sentence(sentences: Iterable[str]) -> Iterator[str]:
    """The sentences, one by one.

    Raises: InputError, as soon as it is met, for what is not a string, or not several of them.
    """
    others = str | bytes | bytearray | Mapping | set | frozenset  # one, or without an order
    if isinstance(sentences, others) or not isinstance(sentences, Iterable):
        kind = "a single string" if isinstance(sentences, str) else type(sentences).__name__
        raise InputError(f"expected a list of sentences, each a string; got {kind}")
    for number, sentence in enumerate(sentences, start=1):
        if not isinstance(sentence, str):
            kind = type(sentence).__name__
            raise InputError(f"expected sentence {number} as a string; got {kind}")
        yield sentence


def _encode_beginnings(
    tokenizer: Tokenizer, sentences: Mapping[int, str], most: int
) -> list[list[int]]:
    """Sentences to ids, `most` of them with the end symbol; a warning says what is cut.

    Args:
        sentences: by the numbers that warnings give them.
    """
    letters = most * _LETTERS  # more need not be cut into pieces
    encoded = encode_source(tokenizer, [text[:letters] for text in sentences.values()])
    for (number, text), ids in zip(sentences.items(), encoded, strict=True):
        if len(ids) > most or len(text) > letters:
            ids[most - 1 :] = [END]
            told = f"sentence {number} ({text[:20]!r}…) has more than {most:,} pieces"
            warnings.warn(f"{told}; only these are translated", stacklevel=2)
    return encoded


@dataclass
class Translator:
    """A trained model with its vocabulary.

    Args:
        model: in eval mode.   tokenizer: the shared vocabulary.
        target_tokenizer: the same pieces, if text in the target language is cut by other rules.
    """

    model: EncoderDecoder
    tokenizer: Tokenizer
    target_tokenizer: Tokenizer | None = None

    @overload
    def translate(self, text: str, **options: Any) -> str: ...
    @overload
    def translate(self, text: Iterable[str], **options: Any) -> list[str]: ...
    def translate(self, text: str | Iterable[str], **options: Any) -> str | list[str]:
        """Translate a sentence, or each of several; options and errors as for `candidates`."""
        found = self.translate_all([text] if isinstance(text, str) else text, **options)
        return found[0] if isinstance(text, str) else found

    def translate_all(self, sentences: Iterable[str], **options: Any) -> list[str]:
        """Translate sentences; options and errors as for `candidates`."""
        return [best.text for best, *_ in self.candidates(sentences, **options)]

    def candidates(
        self,
        sentences: Iterable[str],
        batch_tokens: int = 2000,
        chunk: int | None = None,
        progress: bool = False,
        max_source: int = 1000,
        **search: Any,
    ) -> Iterator[list[Translation]]:
        """The best translations of each sentence, in the order of the sentences.

        Args:
            batch_tokens: source tokens of a batch, padding included.
            chunk: sentences to read ahead and to batch by length; None: all.
            progress: show a bar.
            max_source: source tokens of a sentence, its end included; of a longer one only its
                beginning is translated, with a warning.
            search: beam, alpha, offset, max_extra and n_best, as for `beam_search`.

        Raises: ValueError for a wrong argument, and for a sentence that is not a string.
        """
        _check_sizes(batch_tokens, chunk, max_source)
        _, encoding = self.model.src_embed.children()  # learned positions come to an end
        longest = min(max_source, getattr(encoding, "max_len", max_source))
        total = len(sentences) if isinstance(sentences, list) else None
        waiting, before = each_sentence(sentences), 0
        with tqdm(total=total, disable=not progress, unit=" sentences") as bar:
            while texts := list(islice(waiting, chunk)):
                results = [[Translation("", 0.0, 0.0)]] * len(texts)  # right for blank lines
                filled = [i for i, text in enumerate(texts) if not _is_blank(text)]
                numbered = {before + i + 1: texts[i] for i in filled}
                ids = _encode_beginnings(self.tokenizer, numbered, longest)
                for batch in budget_batches([len(row) for row in ids], batch_tokens):
                    found = self.search([ids[i] for i in batch], **search)
                    for i, translations in zip(batch, found, strict=True):
                        results[filled[i]] = translations
                    bar.update(len(batch))
                bar.update(len(texts) - len(filled))
                before += len(texts)
                yield from results

    def search(self, sources: list[list[int]], **options: Any) -> list[list[Translation]]:
        """The best translations of source ids, all in one batch."""
        batch = Batch(pad_ids(sources).to(next(self.model.parameters()).device))
        found = beam_search(self.model, batch.src, batch.src_mask, **options)
        text = self.tokenizer.decode
        return [[Translation(text(h.ids), h.log_prob, h.score) for h in group] for group in found]


_MANY = 1_000_000  # tokens of a batch, or sentences of a chunk; more is a slip of the keyboard


def _check_sizes(batch_tokens: int, chunk: int | None, max_source: int) -> None:
    """Raise InputError unless these are sizes of what is translated at a time."""
    check_whole("batch_tokens", batch_tokens, most=_MANY)
    check_whole("chunk", 1 if chunk is None else chunk, most=_MANY)
    check_whole("max_source", max_source, least=2, most=_MANY)


def model_folder(name: str | Path) -> Path:
    """The folder of a trained model: of the package, of a run, or a published one.

    Raises: ValueError that lists the models if there is no such name or folder.
    """
    if not isinstance(name, str | Path):
        raise InputError(f"expected a model as a string or a Path; got {type(name).__name__}")
    folder = Path(name) if os.path.isdir(name) else resource_path("models") / str(name)
    if not is_published(folder) and not os.path.isfile(folder / "model.safetensors"):
        if on_hub(str(name)):
            return hub_folder(str(name))
        known = sorted(
            path.parent.name for path in resource_path("models").glob("*/model.safetensors")
        )
        models = f"a folder with model.safetensors, or a model out of {', '.join(known)}"
        hint = "a model of the Hub is called OWNER/NAME"
        raise InputError(f"expected {models}; got {str(name)!r} ({hint})")
    return folder


def _check_device(device: torch.device | str) -> None:
    """Raise InputError unless torch can compute on a device."""
    try:
        torch.zeros(1, device=device).item()
    except Exception as error:  # every kind of device has its own
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"expected a device that torch can use; got {device!r}: {reason}"
        ) from None


def vocabulary_files(name: str | Path) -> list[Path]:
    """The vocabulary files of a model to train on.

    Raises: InputError if it is in the format of others, or as `model_folder`.
    """
    folder = model_folder(name)
    if is_published(folder):
        wanted = "a model in the book's own format to train on, as `annotated import` writes it"
        raise InputError(f"expected {wanted}; got {name}")
    return [folder / file for file in VOCABULARIES if (folder / file).exists()]


def _model_files(
    folder: Path,
) -> tuple[TransformerConfig, dict[str, Tensor], Tokenizer, Tokenizer | None]:
    """Configuration, weights and tokenizers of a model, if they go together.

    Raises: MissingFile or FileError that names the file.
    """
    path, expected = folder / "config.json", "the configuration of a model"
    config = settings(TransformerConfig, read_json(path, expected), str(path))
    weights = folder / "model.safetensors"
    with reading(weights, "the weights of a model"), safe_open(weights, "pt") as file:
        names = file.keys()
    layers = len({name.split(".")[2] for name in names if name.startswith("encoder.layers.")})
    if layers != config.N:  # before 100,000 layers are counted
        raise FileError(f"{path}: expected N={layers}, the layers in {weights}; got N={config.N}")
    with reading(path, f"{expected} that can be built"):
        shapes = parameter_shapes(config)
    tensors, said = read_tensors(weights, f"the weights of the model in {path}", shapes)
    with reading(weights, "a configuration in its header"):
        trained = json.loads(said.get("config", "{}"))
        if asdict(config) | trained != asdict(config):
            raise FileError(f"{path}: expected the configuration that {weights} has: {trained}")
    return config, tensors, *read_tokenizers(folder, min(config.src_vocab, config.tgt_vocab))


@torch.no_grad()
def store_by_columns(model: nn.Module) -> None:
    """Change the order of the matrices in memory to column by column; their values stay.

    For search on a CPU. `torch.nn.Module.load_state_dict` and `to` keep the order.
    """
    for parameter in model.parameters():
        if parameter.dim() == 2:
            parameter.data = parameter.t().contiguous().t()


def load_pretrained(name: str | Path, device: torch.device | str = "cpu") -> Translator:
    """Load a trained model.

    Args:
        name: of a model that comes with the package; the folder of a run, or of a published
            model; or "OWNER/NAME", a published model of the Hub (`hub_folder`).
        device: where to translate, such as "cuda".

    Returns: a translator, in eval mode.

    Raises: ValueError that lists the models if there is no such name or folder; FileError that
        names the file if one is missing or damaged, or does not go with the others.
    """
    _check_device(device)
    folder = model_folder(name)
    published = is_published(folder)
    config, weights, tokenizer, target = (read_marian if published else _model_files)(folder)
    model = build_model(config).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.copy_(weights[key])
            if not parameter.isfinite().all():
                path = weights_file(folder)
                raise FileError(f"{path}: expected finite numbers in {key}; got NaN or infinity")
    model.to(device)
    if next(model.parameters()).device.type == "cpu":
        store_by_columns(model)
    if published:
        added = tokenizer.get_added_tokens_decoder().values()
        tell_card(folder, str(name), [token.content for token in added if not token.special])
    return Translator(model, tokenizer, target)
