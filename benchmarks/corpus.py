"""A synthetic corpus of any size with the sentence and word lengths of a real one."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

WORDS = 25.75  # mean length of an English sentence of WMT 2014 English-German
BLOCK = 50_000  # number of sentences that are generated together
_SYLLABLES = [
    begin + vowel + end
    for begin in "b d f g h k l m n p r s t v w z st sch tr br".split()  # noqa: SIM905
    for vowel in "aeiouäöü"
    for end in ["", "n", "r", "s", "l", "t"]
]


@dataclass
class Language:
    """The spelling of the words of a language, and their frequencies.

    Args:
        types: number of different words.   steepness: exponent of Zipf's law.
        syllables: number of syllables; fewer make longer words. With the numbers used, word
            lengths, and the number of different words in 13,573 sentences, agree with the test
            sets of WMT 2008 to 2012.
    """

    types: int
    steepness: float
    syllables: int

    def __post_init__(self) -> None:
        random = np.random.default_rng(self.syllables)
        some = random.choice(np.array(_SYLLABLES, object), self.syllables, replace=False)
        ranks = np.arange(self.types)
        self.words = some[ranks % self.syllables]
        while (ranks := ranks // self.syllables).any():
            self.words = self.words + np.where(ranks > 0, some[ranks % self.syllables], "")
        share = 1 / (np.arange(self.types) + 2.7) ** self.steepness
        self.cumulated = np.cumsum(share) / share.sum()

    def sentences(self, lengths: np.ndarray, random: np.random.Generator) -> list[str]:
        """Sentences with the given numbers of words, with punctuation."""
        running = self.words[np.searchsorted(self.cumulated, random.random(lengths.sum()))]
        running = np.where(random.random(len(running)) < 0.07, running + ",", running)
        sentences = np.split(running, np.cumsum(lengths)[:-1])
        return [" ".join(words).capitalize() + "." for words in sentences]


def make_corpus(folder: Path, pairs: int, dev: int = 3000) -> None:
    """Write train.en, train.de, dev.en and dev.de; equal numbers yield equal files."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    known = {"en": Language(1_000_000, 1.2, 150), "de": Language(2_000_000, 1.17, 60)}
    spread = 0.6  # standard deviation of the logarithm of a length
    for split, number in ("train", pairs), ("dev", dev):
        files = {lang: (folder / f"{split}.{lang}").open("w", encoding="utf-8") for lang in known}
        for start in range(0, number, BLOCK):
            size = min(BLOCK, number - start)
            mean = np.log(WORDS) - spread**2 / 2
            english = np.clip(random.lognormal(mean, spread, size).round(), 1, 150).astype(int)
            german = np.clip((english * random.normal(0.95, 0.12, size)).round(), 1, 150)
            for lang, lengths in ("en", english), ("de", german.astype(int)):
                lines = known[lang].sentences(lengths, random)
                files[lang].write("".join(f"{line}\n" for line in lines))
        for file in files.values():
            file.close()


def take(source: Path, folder: Path, pairs: int) -> None:
    """A corpus of the first pairs of another one, with all its dev pairs."""
    folder.mkdir(parents=True, exist_ok=True)
    for split in "train", "dev":
        for lang in "en", "de":
            name, most = f"{split}.{lang}", pairs if split == "train" else None
            with (source / name).open("rb") as lines, (folder / name).open("wb") as some:
                some.writelines(islice(lines, most))
