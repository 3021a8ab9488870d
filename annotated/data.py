"""5.1 Training Data and Batching (chapters/5-1-data-batching.md).

Generated from the chapter's export cells by book/extract.py: edit it there.
"""

import gzip
import os
import random
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor

from annotated.attention import subsequent_mask

__all__ = [
    "END",
    "PAD",
    "SPECIALS",
    "START",
    "UNK",
    "Batch",
    "Corpus",
    "corpora",
    "corpus_file",
    "encode_source",
    "encode_target",
    "find_corpus",
    "load_pairs",
    "make_batch",
    "pad_ids",
    "read_lines",
    "shipped",
    "token_batches",
    "train_bpe",
]


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def shipped(name: str) -> Path:
    """Path of a file or folder that comes with the package, such as "corpora.toml" or "models"."""
    package = Path(str(resources.files("annotated")))
    installed = package / name
    return installed if installed.exists() else package.parent / "data" / name


@dataclass(frozen=True)
class Corpus:
    """A corpus of the register: what it is, and where each of its files lies.

    `splits` gives a pattern of file names with {lang} for the language; `files` gives size
    (bytes) and SHA-256 of each file at `url`; `folder` is its place under ANNOTATED_DATA.
    """

    name: str
    title: str
    source: str
    licence: str
    languages: list[str]
    folder: str
    url: str
    splits: dict[str, str]
    files: dict[str, dict]


def corpora() -> dict[str, Corpus]:
    """All corpora of the register, by name."""
    with shipped("corpora.toml").open("rb") as file:
        return {name: Corpus(name, **entry) for name, entry in tomllib.load(file).items()}


def find_corpus(name: str) -> Corpus:
    """One corpus of the register.

    Raises: ValueError that lists the names if this is none of them.
    """
    known = corpora()
    if name not in known:
        raise ValueError(f"expected a corpus out of {', '.join(known)}; got {name!r}")
    return known[name]


def corpus_file(corpus: Corpus, split: str, lang: str) -> Path:
    """Path of one file of a corpus, downloaded if it is not yet on this machine.

    Raises: ValueError if the corpus has no such split or language, or if the download
        has not the registered SHA-256; FileNotFoundError if ANNOTATED_DATA lacks the file.
    """
    if split not in corpus.splits or lang not in corpus.languages:
        raise ValueError(
            f"expected a split out of {', '.join(corpus.splits)} and a language out of "
            f"{', '.join(corpus.languages)} of {corpus.name}; got {split!r}, {lang!r}"
        )
    name = corpus.splits[split].format(lang=lang)
    if "ANNOTATED_DATA" in os.environ:
        return _local_file(Path(os.environ["ANNOTATED_DATA"]) / corpus.folder, name)
    import pooch  # only a download needs it

    folder = pooch.os_cache("annotated") / corpus.folder
    known_hash = f"sha256:{corpus.files[name]['sha256']}"
    url = f"{corpus.url}/{name}"
    return Path(pooch.retrieve(url, known_hash, name, folder, progressbar=True))


def _local_file(folder: Path, name: str) -> Path:
    """The file in a folder, compressed or not."""
    for path in (folder / name, folder / name.removesuffix(".gz")):
        if path.exists():
            return path
    raise FileNotFoundError(
        f"expected {name} in {folder}; put it there, or unset ANNOTATED_DATA to download it"
    )


def read_lines(path: Path) -> list[str]:
    """Lines of a UTF-8 text file, which may be compressed by gzip, without their ends.

    Raises: ValueError that names the file and line if it is not UTF-8.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        raw = file.read().removesuffix(b"\n").split(b"\n")
    lines = []
    for number, line in enumerate(raw, start=1):
        try:
            lines.append(line.decode("utf-8").removesuffix("\r"))
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}, line {number}: not UTF-8 ({error.reason})") from None
    return lines


def load_pairs(corpus: str, split: str, src: str, tgt: str) -> tuple[list[str], list[str]]:
    """Source and target sentences of a split, line by line translations of each other.

    Args:
        corpus: a name of the register.   split: "train", "dev" or "test".
        src, tgt: languages, such as "en" and "de".

    Raises: ValueError if the two sides differ in length.

    Source: section 5.1.
    """
    found = find_corpus(corpus)
    source, target = (read_lines(corpus_file(found, split, lang)) for lang in (src, tgt))
    if len(source) != len(target):
        raise ValueError(
            f"expected as many {src} as {tgt} lines in {corpus} {split}; "
            f"got {len(source)} and {len(target)}"
        )
    return source, target


SPECIALS = ["<s>", "</s>", "<pad>", "<unk>"]
START, END, PAD, UNK = range(4)


def train_bpe(sentences: Iterable[str], vocab_size: int) -> Tokenizer:
    """Learn a byte-pair vocabulary, shared by source and target.

    Args:
        sentences: text of both languages.
        vocab_size: number of pieces at most, the four special symbols included.

    Returns: a tokenizer whose decoding restores spaces and punctuation exactly.

    Source: section 5.1.
    """
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()]
    )
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=SPECIALS, show_progress=False
    )
    tokenizer.train_from_iterator(sentences, trainer)
    return tokenizer


def encode_source(tokenizer: Tokenizer, sentences: list[str]) -> list[list[int]]:
    """Sentences to ids, each closed by the end symbol."""
    return [[*encoding.ids, END] for encoding in tokenizer.encode_batch(sentences)]


def encode_target(tokenizer: Tokenizer, sentences: list[str]) -> list[list[int]]:
    """Sentences to ids between start and end symbol."""
    return [[START, *ids] for ids in encode_source(tokenizer, sentences)]


def token_batches(
    pairs: list[tuple[list[int], list[int]]], max_tokens: int, seed: int | None = None
) -> list[list[int]]:
    """Group pairs of similar length so that neither side of a batch exceeds a token budget.

    Args:
        pairs: source and target ids of each sentence pair.
        max_tokens: largest number of source tokens, and of target tokens, in a batch,
            padding included.
        seed: shuffles pairs of equal length, and the batches; None keeps length order.

    Returns: batches, each a list of indices into pairs.

    Raises: ValueError if one pair alone exceeds the budget.

    Source: section 5.1.
    """
    rng = random.Random(seed)
    order = list(range(len(pairs)))
    if seed is not None:
        rng.shuffle(order)
    order.sort(key=lambda i: (len(pairs[i][1]), len(pairs[i][0])))
    batches = _cut(order, [max(map(len, pair)) for pair in pairs], max_tokens)
    if seed is not None:
        rng.shuffle(batches)
    return batches


def _cut(order: list[int], lengths: list[int], max_tokens: int) -> list[list[int]]:
    """Cut a sequence of pairs into batches as full as the budget allows."""
    batches: list[list[int]] = [[]]
    longest = 0
    for i in order:
        if lengths[i] > max_tokens:
            raise ValueError(
                f"expected pairs of at most {max_tokens} tokens; pair {i} has {lengths[i]}"
            )
        longest = max(longest, lengths[i])
        if longest * (len(batches[-1]) + 1) > max_tokens:
            batches.append([])
            longest = lengths[i]
        batches[-1].append(i)
    return [batch for batch in batches if batch]


class Batch:
    """Sentence pairs as the model takes them.

    Args:
        src: ids (batch, src_len), padded.
        tgt: ids (batch, tgt_len + 1), from start symbol to end symbol, padded; may be None.
        pad: the padding id.

    Attributes: src, src_mask (batch, 1, src_len), tgt without its last token, tgt_y without
        its first (what the model must predict), tgt_mask (batch, tgt_len, tgt_len), and
        ntokens, the number of target tokens to predict.

    Source: sections 3.1 and 5.1.
    """

    def __init__(self, src: Tensor, tgt: Tensor | None = None, pad: int = PAD) -> None:
        self.src = src
        self.src_mask = (src != pad).unsqueeze(-2)
        if tgt is not None:
            self.tgt = tgt[:, :-1]
            self.tgt_y = tgt[:, 1:]
            self.tgt_mask = self.make_std_mask(self.tgt, pad)
            self.ntokens = (self.tgt_y != pad).sum()

    @staticmethod
    def make_std_mask(tgt: Tensor, pad: int) -> Tensor:
        """(batch, len) to (batch, len, len): no padding, nothing to the right."""
        return (tgt != pad).unsqueeze(-2) & subsequent_mask(tgt.size(-1)).to(tgt.device)


def pad_ids(rows: Sequence[list[int]], pad: int = PAD) -> Tensor:
    """Lists of ids to one tensor (batch, longest), padded on the right."""
    longest = max(map(len, rows))
    return torch.tensor([row + [pad] * (longest - len(row)) for row in rows])


def make_batch(
    pairs: list[tuple[list[int], list[int]]], device: torch.device | str = "cpu"
) -> Batch:
    """Pairs of id lists to a batch on a device."""
    src, tgt = zip(*pairs, strict=True)
    return Batch(pad_ids(src).to(device), pad_ids(tgt).to(device))
