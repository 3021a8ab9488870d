"""The data path at the scale of WMT: `python -m benchmarks data`.

Corpora are generated, prepared by the command, and read as in training, each in a separate process.
The largest is generated once; a smaller one is its beginning.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.corpus import make_corpus, take

WHOLE = 4_520_617  # pairs of WMT 2014 English-German
FRENCH = 41_000_000
TARGETS = {  # measured quantity: unit, maximum at WHOLE, maximum at FRENCH
    "prepare": ("s", 360, 3600),
    "prepare_memory": ("GB", 3, 6),
    "disk": ("GB", 0.7, 6.5),
    "first_batch": ("s", 2, 3),
    "plan": ("s", 2, 12),
    "update_median": ("ms", 2, 2),
    "update_p99": ("ms", 10, 10),
    "private_memory": ("GB", 0.2, 1),
}
CONSTANT = "update_median", "update_p99"  # by design; everything else grows with the corpus


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks data",
        description="Measure the preparation and reading of synthetic corpora of several sizes.",
        epilog="The run of the book: python -m benchmarks data --out data/results/data-path.json. "
        "It takes twenty minutes and 3 GB of disk space; run nothing else in the meantime.",
    )
    sizes = [WHOLE // 4, WHOLE // 2, WHOLE]
    parser.add_argument("--pairs", type=int, nargs="+", default=sizes, help="sizes (%(default)s)")
    parser.add_argument("--vocab-size", type=int, default=37_000, help="pieces (%(default)s)")
    parser.add_argument("--updates", type=int, default=1000, help="to time (%(default)s)")
    cores = os.cpu_count() or 1
    parser.add_argument(
        "--processes",
        type=int,
        default=cores,
        help="number of processes that encode (one per core)",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="keep the corpora in this folder, and reuse those that it contains",
    )
    parser.add_argument("--out", type=Path, help="write the results to this JSON file")
    return parser.parse_args(given)


# ------------------------------------------------------------------------------------- preparing


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


def options(corpus: Path, vocab_size: int) -> list[str]:
    """Options of the commands that prepare a corpus and train on it."""
    return ["--data", f"{corpus}-en-de", "--vocab-size", str(vocab_size)]


def prepare(corpus: Path, given: argparse.Namespace) -> dict[str, float]:
    """Prepare a corpus with the command; returns seconds, memory and disk space."""
    folder, command = corpus / "prepared", [sys.executable, "-m", "annotated", "prepare"]
    command += [*options(corpus, given.vocab_size), "--out", str(folder)]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    running = subprocess.Popen([*command, "--processes", str(given.processes)])
    peak = [0]
    thread = threading.Thread(target=watch, args=(running, peak))
    thread.start()
    if running.wait():
        raise SystemExit(f"failed: {' '.join(command)}")
    seconds = time.perf_counter() - started
    thread.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    disk = sum(path.stat().st_size for path in folder.iterdir())
    return {
        "prepare": seconds,
        "prepare_cpu": cpu,
        "prepare_memory": max(peak) / 1e9,
        "disk": disk / 1e9,
    }


# --------------------------------------------------------------------------------------- reading


class Clock:
    """Wall-clock time and CPU time; other programs affect the latter less."""

    def __init__(self) -> None:
        self.began = time.perf_counter(), time.process_time()

    def passed(self) -> tuple[float, float]:
        return time.perf_counter() - self.began[0], time.process_time() - self.began[1]


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
        held, clock = memory(os.getpid(), "Private_Dirty"), Clock()
        trainer = start_run(config)
        stream = trainer.stream.updates(0, 0)
        next(stream)
        first = clock.passed()
    updates_took = []
    for _ in range(updates):
        clock = Clock()
        next(stream)
        updates_took.append(clock.passed())
    private = memory(os.getpid(), "Private_Dirty") - held
    clock, batches = Clock(), 0
    for batch in trainer.stream.micro_batches(0, 0):
        if batch.epoch:
            break
        batches += 1
    result: dict[str, float] = {"batches": batches, "private_memory": private / 1e9}
    plan, took = clock.passed(), np.array(updates_took) * 1000
    for i, kind in enumerate(("", "_cpu")):
        result |= {f"first_batch{kind}": first[i], f"plan{kind}": plan[i]}
        result[f"update_median{kind}"] = float(np.median(took[:, i]))
        result[f"update_p99{kind}"] = float(np.quantile(took[:, i], 0.99))
    return result


def read_apart(corpus: Path, given: argparse.Namespace) -> dict[str, float]:
    """`read`, in a separate process."""
    call = f"read(Path({str(corpus)!r}), {given.vocab_size}, {given.updates})"
    code = "import json; from pathlib import Path; from benchmarks.data import read; "
    command = [sys.executable, "-c", f"{code}print(json.dumps({call}))"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


# ----------------------------------------------------------------------------------- the results


def extrapolate(rows: list[dict[str, Any]], name: str, pairs: int = FRENCH) -> float:
    """Linear extrapolation of the measurements to a corpus of `pairs` pairs.

    Reading, encoding and writing process every pair once, and the index has an entry for each, so
    their costs grow in proportion. The cost of learning the vocabulary stops growing at its
    sample size, which the smallest corpus should reach.
    """
    if name in CONSTANT or len(rows) == 1:
        return max(row[name] for row in rows)
    slope, start = np.polyfit([row["pairs"] for row in rows], [row[name] for row in rows], 1)
    return float(start + slope * pairs)


def show(rows: list[dict[str, Any]]) -> None:
    """A table of the measurements at each size, extrapolated to FRENCH, next to the targets."""
    names = [f"{row['pairs']:,}" for row in rows]
    print("".join(f"{name:>12}" for name in ["", *names, "most", f"~{FRENCH:,}", "most"]))
    for name, (unit, most, most_french) in TARGETS.items():
        values = [*(row[name] for row in rows), most, extrapolate(rows, name), most_french]
        print(f"{name + ', ' + unit:>22}" + "".join(f"{value:12.3g}" for value in values))


def main(given: list[str]) -> None:
    chosen = arguments(given)
    sizes = sorted(chosen.pairs)
    with tempfile.TemporaryDirectory() as temporary:
        place = chosen.folder or Path(temporary)
        rows: list[dict[str, Any]] = []
        whole = place / str(sizes[-1])
        if not whole.exists():
            make_corpus(whole, sizes[-1])
        for pairs in sizes:
            corpus = place / str(pairs)
            if not corpus.exists():
                take(whole, corpus, pairs)
            rows.append({"pairs": pairs, **prepare(corpus, chosen), **read_apart(corpus, chosen)})
            print(json.dumps(rows[-1]), file=sys.stderr)
    show(rows)
    if chosen.out:
        from annotated.machinery.files import write_text
        from benchmarks.__main__ import machine

        facts = {"date": date.today().isoformat(), "machine": machine("cpu")}
        result = facts | {"processes": chosen.processes, "rows": rows}
        write_text(chosen.out, json.dumps(result, indent=1) + "\n")
