"""The data path at the scale of WMT: `python -m benchmarks data`.

Corpora with the sentence and word lengths of a real one are generated, prepared by the command, and
read as in training, each in a separate process. The largest is generated once; a smaller one is its
beginning.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd

from annotated.machinery.files import write_text
from benchmarks.logs import machine, make_parser

WHOLE = 4_520_617  # pairs of WMT 2014 English-German
WORDS = 25.75  # mean length of its English sentences
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


def family(process: int) -> Iterator[int]:
    """A process and all its descendants (Linux)."""
    yield process
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        for child in task.read_text().split():
            yield from family(int(child))


def memory(process: int, kind: str = "Pss:") -> int:
    """Bytes of a process; pages that several share are divided among them (Pss:).

    Private_Dirty counts pages that only this process has written and can use. Pages of mapped files
    do not count, even if only one process uses them.
    """
    text = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in text if line.startswith(kind))


def watch(process: subprocess.Popen, peak: list[int]) -> None:
    """Record the peak memory of a process and its children."""
    while process.poll() is None:
        with suppress(OSError):  # a process has just ended
            peak.append(sum(memory(one) for one in family(process.pid)))
        time.sleep(0.25)


def prepare(corpus: Path, given: Namespace) -> dict[str, float]:
    """Prepare a corpus with the command; returns seconds, GB of memory and GB of disk space."""
    folder, command = corpus / "prepared", [sys.executable, "-m", "annotated", "prepare"]
    command += ["--data", f"{corpus}-en-de", "--vocab-size", str(given.vocab_size)]
    command += ["--out", str(folder), "--processes", str(given.processes)]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    running, peak = subprocess.Popen(command), [0]
    thread = threading.Thread(target=watch, args=(running, peak))
    thread.start()
    if running.wait():
        raise SystemExit(f"failed: {' '.join(command)}")
    seconds = time.perf_counter() - started
    thread.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    disk = sum(path.stat().st_size for path in folder.iterdir())
    measured = {"prepare": seconds, "prepare_cpu": cpu}
    return measured | {"prepare_memory": max(peak) / 1e9, "disk": disk / 1e9}


def clock() -> np.ndarray:
    """Wall-clock time and CPU time; other programs affect the latter less."""
    return np.array([time.perf_counter(), time.process_time()])


def read(corpus: Path, vocab_size: int, updates: int) -> dict[str, float]:
    """Read a prepared corpus as in the paper's base run, with a tiny model, in this process."""
    import torch

    from annotated.machinery.runs.trainer import start_run
    from annotated.training import preset

    torch.set_num_threads(1)
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])  # the first one also imports modules
    tiny = {"N": 1, "d_model": 8, "d_ff": 8, "h": 1}
    with tempfile.TemporaryDirectory() as folder:
        config = preset(
            "base-en-de", out=folder, data=f"{corpus}-en-de", vocab_size=vocab_size,
            prepared=str(corpus / "prepared"), **tiny,
        )  # fmt: skip
        held, began = memory(os.getpid(), "Private_Dirty"), clock()
        trainer = start_run(config)
        stream = trainer.stream.updates(0, 0)
        next(stream)
        first, times = clock() - began, [clock()]
    for _ in range(updates):
        next(stream)
        times.append(clock())
    private = memory(os.getpid(), "Private_Dirty") - held
    began, batches = clock(), 0
    for batch in trainer.stream.micro_batches(0, 0):
        if batch.epoch:
            break
        batches += 1
    result: dict[str, float] = {"batches": batches, "private_memory": private / 1e9}
    plan, took = clock() - began, 1000 * np.diff(times, axis=0)
    for i, kind in enumerate(("", "_cpu")):
        result |= {f"first_batch{kind}": first[i], f"plan{kind}": plan[i]}
        result[f"update_median{kind}"] = np.median(took[:, i])
        result[f"update_p99{kind}"] = np.quantile(took[:, i], 0.99)
    return result


def main(given: list[str]) -> None:
    parser = make_parser(
        "benchmarks data",
        "Measure the preparation and reading of synthetic corpora of several sizes.",
        "The run of the book: python -m benchmarks data --out data/results/data-path.json.\n"
        "It takes twenty minutes and 3 GB of disk space; run nothing else in the meantime.",
    )
    add, sizes = parser.add_argument, [WHOLE // 4, WHOLE // 2, WHOLE]
    add("--pairs", type=int, nargs="+", default=sizes, help="sizes (%(default)s)")
    add("--vocab-size", type=int, default=37_000, help="pieces (%(default)s)")
    add("--updates", type=int, default=1000, help="to time (%(default)s)")
    told = "number of processes that encode (one per core)"
    add("--processes", type=int, default=os.cpu_count() or 1, help=told)
    told = "keep the corpora in this folder, and reuse those that it contains"
    add("--folder", type=Path, help=told)
    add("--out", type=Path, help="write the results to this JSON file")
    chosen = parser.parse_args(given)
    sizes = sorted(chosen.pairs)
    with tempfile.TemporaryDirectory() as temporary:
        place, rows = chosen.folder or Path(temporary), []
        whole = place / str(sizes[-1])
        if not whole.exists():
            make_corpus(whole, sizes[-1])
        for pairs in sizes:
            corpus = place / str(pairs)
            if not corpus.exists():
                take(whole, corpus, pairs)
            row = {"pairs": pairs, **prepare(corpus, chosen)}
            with ProcessPoolExecutor(1, get_context("spawn")) as apart:
                row |= apart.submit(read, corpus, chosen.vocab_size, chosen.updates).result()
            rows.append(row)
            print(json.dumps(row), file=sys.stderr)
    print(pd.DataFrame(rows).set_index("pairs").T.to_string(float_format="%.3g"))
    if chosen.out:
        facts = {"date": date.today().isoformat(), "machine": machine("cpu")}
        result = facts | {"processes": chosen.processes, "rows": rows}
        write_text(chosen.out, json.dumps(result, indent=1) + "\n")
