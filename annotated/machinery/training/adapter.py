"""Gives today's PreparedCorpus the methods it is about to get."""

from pathlib import Path

from annotated.machinery import prepared as p
from annotated.machinery.downloads import sha256_of
from annotated.machinery.errors import InputError
from annotated.machinery.files import reading, write_text
from annotated.machinery.vocabularies import VOCABULARIES

SMALL = 1 << 27


def for_run(config, folder, processes=1):
    if config.prepared:
        corpus = p.open_prepared(Path(config.prepared))
        for name in p.RULES:
            if (was := corpus.manifest.rules.get(name)) != (now := getattr(config, name)):
                raise InputError(
                    f"{corpus.folder} was prepared with {name}={was}; got {name}={now}"
                )
        return corpus
    parts = p.corpus_parts_of(config)
    size, shared = p.input_bytes(parts), p.shared_folder(config, p.corpus_key(config, parts))
    if shared.exists():
        return p.open_prepared(shared)
    if size <= SMALL:
        return p.open_prepared(p.prepare(config, Path(folder) / "prepared", replace=True))
    if processes > 1:
        raise InputError(f"expected {config.data} to be prepared; {processes} processes would wait")
    return p.open_prepared(p.prepare(config))


def copy_vocabulary(self, folder):
    for name in set(VOCABULARIES) & self.manifest.files.keys():
        write_text(Path(folder) / name, (self.folder / name).read_text("utf-8"))


def check_vocabulary(self, folder):
    for name in set(VOCABULARIES) & self.manifest.files.keys():
        path, advice = Path(folder) / name, f"that of {self.folder} may be copied here"
        with reading(path, "the vocabulary of the run", advice):
            if sha256_of(path) != self.manifest.files[name]["sha256"]:
                raise ValueError("another one")


if not hasattr(p.PreparedCorpus, "for_run"):
    p.PreparedCorpus.open = staticmethod(p.open_prepared)
    p.PreparedCorpus.for_run = staticmethod(for_run)
    p.PreparedCorpus.copy_vocabulary = copy_vocabulary
    p.PreparedCorpus.check_vocabulary = check_vocabulary
