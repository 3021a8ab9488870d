"""Text in, text out: a model with its vocabulary.

Sentences are batched by length, which affects the speed and never the translations. The search
itself and the check of its arguments are in `annotated.decoding.beam_search`.
"""

import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, overload
from unicodedata import category

import torch
from tokenizers import Tokenizer

from annotated.data import END, Batch, encode_source, pad_ids
from annotated.decoding import beam_search
from annotated.machinery.checks import check_names, check_search, each_text, usable_device
from annotated.machinery.corpora.vocabularies import write_tokenizers
from annotated.machinery.errors import InputError, check_whole
from annotated.machinery.files import write_text, writing_new_folder
from annotated.machinery.formats.card import copied_card
from annotated.machinery.formats.own import own_weights, save_model
from annotated.machinery.kernels import packed_products
from annotated.machinery.progress import progress_bar
from annotated.model import EncoderDecoder

_ALIASES = {"num_beams": "beam", "length_penalty": "alpha", "max_new_tokens": "max_len"}


@dataclass(frozen=True)
class Translation:
    """A translated sentence, with the log_prob and score of its `Hypothesis`."""

    text: str
    log_prob: float
    score: float


@dataclass(eq=False)
class Translator:
    """A trained model with its vocabulary; calling it is `translate`.

    Args:
        model: dropout is off while it translates.   tokenizer: the vocabulary.
        target_tokenizer: for target text, if its rules or pieces differ.
        card: the README.md of the model, which `save` writes too.
    """

    model: EncoderDecoder
    tokenizer: Tokenizer
    target_tokenizer: Tokenizer | None = None
    card: str = ""

    @overload
    def translate(self, text: str, **options: Any) -> str: ...
    @overload
    def translate(self, text: Iterable[str], **options: Any) -> list[str]: ...
    def translate(self, text: str | Iterable[str], **options: Any) -> str | list[str]:
        """Translate one sentence or several; options and errors as for `candidates`."""
        if isinstance(text, str):
            return self.translate([text], **options)[0]
        return [best.text for best, *_ in self.candidates(text, **options)]

    __call__ = translate

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
            batch_tokens: source tokens per batch, padding included.
            chunk: number of sentences to read ahead and to batch by length; None: all.
            progress: show a progress bar.
            max_source: source tokens per sentence, end symbol included; only the beginning of a
                longer sentence is translated, with a warning.
            search: beam, alpha, offset, max_extra, max_len and n_best, as for `beam_search`; or
                transformers' names: num_beams (beam), length_penalty (alpha) and max_new_tokens
                (max_len).

        Raises: InputError for an invalid argument, or for a sentence that is not a string.
        """
        check_whole("batch_tokens", batch_tokens)
        check_whole("chunk", 1 if chunk is None else chunk, most=sys.maxsize)
        check_whole("max_source", max_source, least=2)
        for other in _ALIASES.keys() & search.keys():
            if _ALIASES[other] in search:
                raise InputError(f"expected {_ALIASES[other]} or {other}, its alias; got both")
            search[_ALIASES[other]] = search.pop(other)
        check_names(search, check_search, *_ALIASES)
        check_search(**search)
        longest = min(max_source, self.model.max_positions or max_source)
        total = len(sentences) if isinstance(sentences, list) else None
        waiting, before = each_text(sentences), 0
        with progress_bar(total=total, disable=not progress, unit=" sentences") as bar:
            while texts := list(islice(waiting, chunk)):
                results = [[Translation("", 0.0, 0.0)]] * len(texts)  # correct for blank lines
                filled = [
                    i for i, text in enumerate(texts)
                    if any(category(letter)[0] not in "ZC" for letter in text)
                ]  # fmt: skip
                ids = encode_source(self.tokenizer, [texts[i] for i in filled])
                for i, row in zip(filled, ids, strict=True):
                    if len(row) > longest:
                        row[longest - 1 :] = [END]
                        what = f"sentence {before + i + 1} ({texts[i][:20]!r}…)"
                        more = f"has more than {longest:,} pieces; only these are translated"
                        warnings.warn(f"{what} {more}", stacklevel=2)
                order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
                while order:
                    # The others are padded to the length of the first.
                    size = max(1, batch_tokens // len(ids[order[0]]))
                    batch, order = order[:size], order[size:]
                    found = self.search([ids[i] for i in batch], **search)
                    for i, translations in zip(batch, found, strict=True):
                        results[filled[i]] = translations
                    bar.update(len(batch))
                bar.update(len(texts) - len(filled))
                before += len(texts)
                yield from results

    def search(self, sources: list[list[int]], **options: Any) -> list[list[Translation]]:
        """The best translations of source ids, all in one batch."""
        batch = Batch(pad_ids(sources).to(self.device))
        with packed_products(self.model):
            found = beam_search(self.model, batch.src, batch.src_mask, **options)
        text = (self.target_tokenizer or self.tokenizer).decode
        return [[Translation(text(h.ids), h.log_prob, h.score) for h in group] for group in found]

    @property
    def device(self) -> torch.device:
        """The device on which it translates."""
        return next(self.model.parameters()).device

    def to(self, device: torch.device | str) -> "Translator":
        """Move the model to a device, such as "cuda"; returns this translator.

        Raises: InputError unless torch can compute there.
        """
        self.model.to(usable_device(device))
        return self

    def save(self, folder: str | Path) -> None:
        """Write the folder that `load_pretrained` reads.

        Weights are written in 16 bits if that changes none of them; otherwise in 32, except for
        matrices that 8 bits and a multiplier represent exactly.

        Args: folder: a new or empty folder.

        Raises: InputError if the folder is not empty, or if the configuration does not describe
            the model; FileError if it cannot be written.
        """
        weights = own_weights(self.model)
        buffers = weights.keys() - dict(self.model.named_parameters()).keys()
        own = (weight for name, weight in weights.items() if name not in buffers)
        half = all(bool((weight.half() == weight).all()) for weight in own)
        with writing_new_folder(folder) as part:
            write_tokenizers(part, self.tokenizer, self.target_tokenizer)
            save_model(part, weights, self.model.config, half, self.model.parts, buffers)
            if self.card:
                write_text(part / "README.md", copied_card(self.card))
