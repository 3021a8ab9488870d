"""6.1 Machine Translation (chapters/6-1-machine-translation.md).

Generated from the chapter's export cells by book/extract.py: edit it there.
"""

import json
import math
import os
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import Any, overload

import torch
from safetensors import safe_open
from tokenizers import Tokenizer
from torch import Tensor, nn
from tqdm import tqdm

from annotated.attention import check_mask, subsequent_mask
from annotated.data import END, PAD, SPECIALS, START, UNK, Batch, encode_source, pad_ids
from annotated.embeddings import check_tokens
from annotated.files import (
    FileError,
    InputError,
    check_whole,
    read_json,
    read_tensors,
    reading,
    resource_path,
    settings,
)
from annotated.model import EncoderDecoder, TransformerConfig, build_model, parameter_shapes
from annotated.stacks import DecoderCache

__all__ = [
    "Beam",
    "Follow",
    "Hypothesis",
    "Translation",
    "Translator",
    "beam_search",
    "budget_batches",
    "can_win",
    "check_search",
    "each_sentence",
    "extend",
    "forbid",
    "greedy_decode",
    "is_blank",
    "length_penalty",
    "load_pretrained",
    "model_folder",
    "next_log_probs",
    "open_beam",
    "read_tokenizer",
    "take_complete",
]


@torch.no_grad()
def greedy_decode(
    model: EncoderDecoder,
    src: Tensor,
    src_mask: Tensor | None,
    max_len: int,
    start_symbol: int,
    end_symbol: int | None = None,
) -> Tensor:
    """Take the most probable next token, again and again.

    Args:
        model: in eval mode.
        src: ids (batch, src_len)   src_mask: (batch, 1, src_len)
        max_len: length of the result at most, start symbol included.
        start_symbol: id that every result begins with.
        end_symbol: a row that has said it repeats it; search stops once all rows have.

    Returns: ids (batch, at most max_len).

    Raises: ValueError for a wrong argument.

    Source: section 6.1, with a beam of one.
    """
    _check_source(src, src_mask)
    check_whole("max_len", max_len)
    check_whole("start_symbol", start_symbol, least=0)
    if end_symbol is not None:
        check_whole("end_symbol", end_symbol, least=0)
    memory = model.encode(src, src_mask)
    ys = src.new_full((src.size(0), 1), start_symbol)
    while ys.size(1) < max_len:
        out = model.decode(memory, src_mask, ys, subsequent_mask(ys.size(1)).to(src.device))
        next_word = model.generator(out[:, -1]).argmax(dim=-1)  # (batch,)
        if end_symbol is not None:
            next_word = next_word.masked_fill(ys[:, -1] == end_symbol, end_symbol)
        ys = torch.cat([ys, next_word.unsqueeze(1)], dim=1)
        if end_symbol is not None and bool((next_word == end_symbol).all()):
            break
    return ys


def length_penalty(length: int, alpha: float) -> float:
    """((5 + length) / 6)^alpha, by which the log-probability of an output is divided.

    Args:
        length: tokens of the output, the end symbol counted.
        alpha: 0 compares probabilities; the larger, the more is granted to long outputs.

    Source: section 6.1, after Wu et al. 2016.
    """
    return ((5 + length) / 6) ** alpha


@dataclass(frozen=True)
class Hypothesis:
    """A complete output.

    Attributes: ids without start and end symbol; log_prob, the natural logarithm of the
        probability of ids and end symbol; score, log_prob divided by the length penalty.

    Source: section 6.1.
    """

    ids: list[int]
    log_prob: float
    score: float


@dataclass
class Beam:
    """The open hypotheses of some sentences, and what it takes to extend them.

    Args:
        memory: (batch, src_len, d_model)   src_mask: (batch, 1, src_len), or None
        ids: (batch, width, len), from the start symbol on.
        log_prob: (batch, width); -inf where no hypothesis is.
        ancestry: (batch, width, tokens in the cache and the newest); True where a token
            belongs to a hypothesis.
        places: (batch,), how many hypotheses may still be open.
        cache: what the decoder has computed; None: it computes everything anew.
    """

    memory: Tensor
    src_mask: Tensor | None
    ids: Tensor
    log_prob: Tensor
    ancestry: Tensor
    places: Tensor
    cache: DecoderCache | None

    def select(self, rows: list[int]) -> None:
        """Keep these sentences, in this order."""
        if rows == list(range(self.ids.size(0))):  # as at most steps: nothing to move
            return
        index = torch.tensor(rows, dtype=torch.long, device=self.ids.device)
        for name in "memory", "src_mask", "ids", "log_prob", "ancestry", "places":
            if (old := getattr(self, name)) is not None:
                setattr(self, name, old[index])
        if self.cache is not None:
            self.cache.select(index)


def open_beam(
    model: EncoderDecoder,
    src: Tensor,
    src_mask: Tensor | None,
    size: int,
    cache: bool = True,
    start: int = START,
) -> Beam:
    """Encode the sources; the only hypothesis of each is the start symbol."""
    memory = model.encode(src, src_mask)
    batch = src.size(0)
    return Beam(
        memory=memory,
        src_mask=src_mask,
        ids=src.new_full((batch, 1, 1), start),
        log_prob=memory.new_zeros(batch, 1),
        ancestry=torch.ones(batch, 1, 1, dtype=torch.bool, device=src.device),
        places=src.new_full((batch,), size),
        cache=DecoderCache() if cache else None,
    )


def next_log_probs(model: EncoderDecoder, beam: Beam) -> Tensor:
    """Log-probabilities (batch, width, vocab) of what follows each hypothesis."""
    if beam.cache is not None:
        newest = beam.ids[:, :, -1]  # (batch, width)
        out = model.decode(beam.memory, beam.src_mask, newest, beam.ancestry, beam.cache)
        return model.generator(out)
    batch, width, length = beam.ids.shape
    memory = beam.memory.repeat_interleave(width, dim=0)  # (batch · width, src_len, d_model)
    mask = None if beam.src_mask is None else beam.src_mask.repeat_interleave(width, dim=0)
    ids, triangle = beam.ids.flatten(0, 1), subsequent_mask(length).to(beam.ids.device)
    out = model.decode(memory, mask, ids, triangle)[:, -1]  # (batch · width, d_model)
    return model.generator(out).unflatten(0, (batch, width))


def extend(beam: Beam, log_probs: Tensor, size: int) -> None:
    """Follow the `size` most probable of all one-token continuations of each sentence.

    Args:
        log_probs: (batch, width, vocab), of the next token; overwritten.
    """
    batch, _, vocab = log_probs.shape
    log_probs += beam.log_prob.unsqueeze(-1)  # now of the whole; in place, for it is large
    total = log_probs.flatten(1)  # (batch, width · vocab)
    width = min(size, total.size(1))
    beam.log_prob, index = total.topk(width)  # (batch, width), best first
    parent, token = index // vocab, index % vocab
    row = torch.arange(batch, device=index.device).unsqueeze(1)
    beam.ids = torch.cat([beam.ids[row, parent], token.unsqueeze(-1)], dim=-1)
    itself = torch.eye(width, dtype=torch.bool, device=index.device).expand(batch, -1, -1)
    beam.ancestry = torch.cat([beam.ancestry[row, parent], itself], dim=-1)
    rank = torch.arange(width, device=index.device)
    beam.log_prob.masked_fill_(rank >= beam.places.unsqueeze(1), -math.inf)


def take_complete(beam: Beam, alpha: float, end: int = END) -> list[tuple[int, Hypothesis]]:
    """Take the hypotheses that have just ended out of the beam, and their places with them.

    Returns: pairs of a row of the batch and a hypothesis.
    """
    ended = (beam.ids[:, :, -1] == end) & beam.log_prob.isfinite()
    complete = []
    for row, place in ended.nonzero().tolist():
        ids = beam.ids[row, place, 1:].tolist()
        log_prob = float(beam.log_prob[row, place])
        score = log_prob / length_penalty(len(ids), alpha)
        complete.append((row, Hypothesis(ids[:-1], log_prob, score)))
    beam.places -= ended.sum(dim=1)
    beam.log_prob.masked_fill_(ended, -math.inf)
    return complete


Follow = Callable[[list[int]], list[int]]  # from ids, start symbol apart, to those that may follow


def can_win(
    log_prob: float, length: int, limit: int, scores: list[float], alpha: float, n_best: int = 1
) -> bool:
    """Whether an open hypothesis may still become one of the n best.

    Args:
        log_prob: of the open hypothesis; -inf if there is none.
        length: its tokens so far.   limit: tokens of the longest output, end symbol counted.
        scores: of the complete hypotheses.
    """
    if len(scores) < n_best:
        return log_prob > -math.inf
    largest = max(length_penalty(length + 1, alpha), length_penalty(limit, alpha))
    return log_prob / largest > sorted(scores)[-n_best]


@torch.inference_mode()
def beam_search(
    model: EncoderDecoder,
    src: Tensor,
    src_mask: Tensor | None = None,
    beam: int = 4,
    alpha: float = 0.6,
    max_extra: int = 50,
    n_best: int = 1,
    cache: bool = True,
    follow: Sequence[Follow] | None = None,
) -> list[list[Hypothesis]]:
    """Search for the outputs with the best scores.

    Args:
        model: in eval mode.
        src: ids (batch, src_len), end symbols included   src_mask: (batch, 1, src_len)
        beam: hypotheses that are followed at the same time; 1 is greedy search.
        alpha: exponent of the length penalty.
        max_extra: tokens that an output may have more than its input.
        n_best: hypotheses to return for each sentence, at most `beam`.
        cache: keep keys and values; False computes everything anew at each step.
        follow: for each sentence, what may be said in it; None: everything.

    Returns: for each sentence its best hypotheses, the best first.

    Raises: ValueError for a wrong argument, or if the model gives no numbers for what may follow.

    Source: section 6.1.
    """
    check_search(beam, alpha, max_extra, n_best)
    _check_source(src, src_mask, follow)
    src_mask = None if src_mask is None else src_mask.expand(src.size(0), -1, -1)
    limits = _output_limits(model, src, src_mask, max_extra)
    found: list[list[Hypothesis]] = [[] for _ in limits]
    rows = list(range(len(limits)))  # the sentence in each row of the batch
    state = open_beam(model, src, src_mask, beam, cache)
    while rows:
        length = state.ids.size(-1)  # of a hypothesis after this step, start symbol apart
        log_probs = next_log_probs(model, state)
        forbid(log_probs, [row for row, i in enumerate(rows) if limits[i] == length])
        if follow:
            _keep_to(
                log_probs, state, {r: follow[i] for r, i in enumerate(rows) if limits[i] > length}
            )
        extend(state, log_probs, beam)
        for row, hypothesis in take_complete(state, alpha):
            found[rows[row]].append(hypothesis)
        best, keep = state.log_prob.amax(dim=1).tolist(), []
        for row, i in enumerate(rows):
            if can_win(best[row], length, limits[i], [h.score for h in found[i]], alpha, n_best):
                keep.append(row)
        state.select(keep)
        rows = [rows[row] for row in keep]
    return [_best_of(group, n_best) for group in found]


_WIDEST, _LONGEST = 1000, 10_000  # hypotheses; tokens that an output may have more than its input


def check_search(
    beam: int = 4, alpha: float = 0.6, max_extra: int = 50, n_best: int = 1, **_: object
) -> None:
    """Raise InputError unless these are arguments of a search; see `beam_search`."""
    if isinstance(alpha, bool) or not isinstance(alpha, Real) or not abs(alpha) <= 10:
        raise InputError(f"expected alpha between -10 and 10; got {alpha!r:.80}")
    check_whole("beam", beam, most=_WIDEST)
    check_whole("max_extra", max_extra, least=0, most=_LONGEST)
    check_whole("n_best", n_best)
    if n_best > beam:
        raise InputError(f"expected n_best of at most beam; got n_best={n_best}, beam={beam}")


def _check_source(
    src: Tensor, src_mask: Tensor | None, follow: Sequence[Follow] | None = None
) -> None:
    """Raise ValueError unless these are ids (batch, src_len), a mask, and a rule for each row."""
    check_tokens("src", src)
    if not src.size(1):
        raise InputError(f"expected src of at least one id; got {tuple(src.shape)}")
    if src_mask is not None:
        check_mask(src_mask, src.size(0), 1, src.size(1), "src_mask")
    if follow is not None and len(follow) != src.size(0):
        raise InputError(f"expected follow for {src.size(0)} sentences; got {len(follow)}")


def _best_of(found: list[Hypothesis], n_best: int) -> list[Hypothesis]:
    """The best of the complete hypotheses of a sentence, the best first.

    Raises: InputError if there is none, for then the model's probabilities are no numbers.
    """
    if not found:
        raise InputError("expected probabilities of what may follow from the model; got no numbers")
    return sorted(found, key=lambda h: h.score, reverse=True)[:n_best]


def _output_limits(
    model: EncoderDecoder, src: Tensor, src_mask: Tensor | None, max_extra: int
) -> list[int]:
    """Tokens of the longest output of each sentence, its end symbol counted."""
    lengths = [src.size(1)] * src.size(0) if src_mask is None else src_mask.sum((1, 2)).tolist()
    room = _most_tokens(model.tgt_embed)
    return [max(1, int(min(length + max_extra, room))) for length in lengths]


def _most_tokens(embed: nn.Module) -> float:
    """Tokens for which embedding and encoding have positions; learned ones come to an end."""
    *_, encoding = embed.children()
    return getattr(encoding, "max_len", math.inf)


def forbid(log_probs: Tensor, last: list[int]) -> None:
    """Set to -inf what may not be said: PAD, START and UNK; in the `last` rows all but END.

    Raises: InputError if the vocabulary is too small to hold these.
    """
    if log_probs.size(-1) < len(SPECIALS):
        wanted = f"a target vocabulary of at least {len(SPECIALS)} ids, for {', '.join(SPECIALS)}"
        raise InputError(f"expected {wanted}; got {log_probs.size(-1)}")
    for token in PAD, START, UNK:
        log_probs[..., token] = -math.inf
    for row in last:
        end = log_probs[row, :, END].clone()
        log_probs[row] = -math.inf
        log_probs[row, :, END] = end


def _keep_to(log_probs: Tensor, beam: Beam, follow: dict[int, Follow]) -> None:
    """Set to -inf, in these rows of the batch, what may not follow an open hypothesis."""
    is_open = beam.log_prob.isfinite().tolist()
    for row, allowed in follow.items():
        for place, ids in enumerate(beam.ids[row, :, 1:].tolist()):
            if is_open[row][place]:
                forbidden = torch.ones_like(log_probs[row, place], dtype=torch.bool)
                forbidden[allowed(ids)] = False
                log_probs[row, place].masked_fill_(forbidden, -math.inf)


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


def is_blank(text: str) -> bool:
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


_MANY = 1_000_000  # tokens of a batch, or sentences of a chunk; more is a slip of the keyboard


def _check_sizes(batch_tokens: int, chunk: int | None, max_source: int) -> None:
    """Raise InputError unless these are sizes of what is translated at a time."""
    check_whole("batch_tokens", batch_tokens, most=_MANY)
    check_whole("chunk", 1 if chunk is None else chunk, most=_MANY)
    check_whole("max_source", max_source, least=2, most=_MANY)


@dataclass
class Translator:
    """A trained model with its vocabulary.

    Args:
        model: in eval mode.   tokenizer: the shared vocabulary.
    """

    model: EncoderDecoder
    tokenizer: Tokenizer

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
            search: beam, alpha, max_extra and n_best, as for `beam_search`.

        Raises: ValueError for a wrong argument, and for a sentence that is not a string.
        """
        check_search(**search)
        _check_sizes(batch_tokens, chunk, max_source)
        longest = int(min(max_source, _most_tokens(self.model.src_embed)))
        total = len(sentences) if isinstance(sentences, list) else None
        waiting, before = each_sentence(sentences), 0
        with tqdm(total=total, disable=not progress, unit=" sentences") as bar:
            while texts := list(islice(waiting, chunk)):
                results = [[Translation("", 0.0, 0.0)]] * len(texts)  # right for blank lines
                filled = [i for i, text in enumerate(texts) if not is_blank(text)]
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


def model_folder(name: str | Path) -> Path:
    """The folder of a trained model: of one that comes with the package, or of a run.

    Raises: ValueError that lists the models if there is no such name or folder.
    """
    if not isinstance(name, str | Path):
        raise InputError(f"expected a model as a string or a Path; got {type(name).__name__}")
    folder = Path(name) if os.path.isdir(name) else resource_path("models") / str(name)
    if not os.path.isfile(folder / "model.safetensors"):
        known = sorted(
            path.parent.name for path in resource_path("models").glob("*/model.safetensors")
        )
        models = f"a folder with model.safetensors, or a model out of {', '.join(known)}"
        raise InputError(f"expected {models}; got {str(name)!r}")
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


def read_tokenizer(path: Path, vocab: int) -> Tokenizer:
    """The vocabulary of a model.

    Args:
        vocab: of the model; a piece has a lower number.

    Raises: MissingFile or FileError that names the file.
    """
    with reading(path, "a vocabulary as a training writes it"):
        tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
        tokenizer.decode(tokenizer.encode("a \u2603").ids)  # a file can be read and be of no use
    found = [tokenizer.id_to_token(i) for i in range(len(SPECIALS))]
    if found != SPECIALS:
        raise FileError(f"{path}: expected the first pieces as {SPECIALS}; got {found}")
    last = max(tokenizer.get_vocab().values())
    if last >= vocab:
        raise FileError(
            f"{path}: expected at most {vocab} pieces, as the model has; got {last + 1}"
        )
    if tokenizer.padding or tokenizer.truncation or tokenizer.post_processor:
        raise FileError(f"{path}: expected no padding, truncation or post_processor; it has some")
    return tokenizer


def load_pretrained(name: str | Path, device: torch.device | str = "cpu") -> Translator:
    """Load a trained model.

    Args:
        name: of a model that comes with the package, or the folder of a run.
        device: where to translate, such as "cuda".

    Returns: a translator, in eval mode.

    Raises: ValueError that lists the models if there is no such name or folder; FileError that
        names the file if one is missing or damaged, or does not go with the others.
    """
    _check_device(device)
    folder = model_folder(name)
    config, weights = _model_files(folder)
    tokenizer = read_tokenizer(folder / "tokenizer.json", min(config.src_vocab, config.tgt_vocab))
    model = build_model(config).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.copy_(weights[key])
            if not parameter.isfinite().all():
                path = folder / "model.safetensors"
                raise FileError(f"{path}: expected finite numbers in {key}; got NaN or infinity")
    return Translator(model.to(device), tokenizer)


def _model_files(folder: Path) -> tuple[TransformerConfig, dict[str, Tensor]]:
    """Configuration and weights of a model, if they go together.

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
    return config, tensors
