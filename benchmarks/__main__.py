"""The command `python -m benchmarks`."""

import argparse
import json
import os
import platform
import statistics
import sys
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any

TASKS = "training", "decoding", "engine"
RESULTS = Path(__file__).parents[1] / "data" / "results" / "benchmarks.json"


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Time this book's Transformer and others of the same shape: a training step, "
        "a search with a beam of 4, and CTranslate2 as the engine of this book's translator. "
        "Contenders that are not installed are skipped: "
        "`pip install -e '.[bench]'` installs all except JoeyNMT, which "
        "`pip install --no-deps joeynmt` adds.",
        epilog="python -m benchmarks data --help describes the benchmark of preparing and reading "
        "corpora, python -m benchmarks gpu --help whole updates of the paper's models on one GPU, "
        "python -m benchmarks page --help the model on the front page, python -m benchmarks "
        "mutations --help faults that the tests should notice. Run nothing else in the "
        "meantime. A first trial: python -m benchmarks --quick. The run "
        "of the book: python -m benchmarks --threads 2",
    )
    parser.add_argument(
        "tasks", nargs="*", metavar="TASK", help=f"{', '.join(TASKS)} (default: all)"
    )
    parser.add_argument(
        "--rounds", type=int, default=12, help="number of timings per contender (%(default)s)"
    )
    parser.add_argument("--threads", type=int, help="number of CPU threads (torch's default)")
    parser.add_argument(
        "--device", help="cpu or cuda (default: cuda if there is one; not yet tested)"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="NAME",
        help="classes of benchmarks/contenders.py to compare with our model, such as Torch Marian",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="3 rounds of a small task; nothing is written unless --out is given",
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="results, a JSON file (data/results/benchmarks."
        "json); a task that is not run keeps its results in the file",
    )
    options = parser.parse_args(given)
    options.tasks = options.tasks or list(TASKS)
    if unknown := set(options.tasks) - set(TASKS):
        parser.error(f"expected {' or '.join(TASKS)}; got {', '.join(sorted(unknown))}")
    if options.quick:
        options.rounds = 3
    elif options.out is None:
        options.out = RESULTS
    return options


def machine(device: str) -> dict[str, Any]:
    """The conditions that the times depend on, without names of machines or people."""
    import torch

    described = {
        "cpu": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    if device == "cuda":
        described["gpu"] = torch.cuda.get_device_name()
    return described


def processor() -> str:
    """The model of the CPU."""
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else []:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def write(path: Path, results: dict[str, Any]) -> None:
    """Add results to those in a file, atomically: readers see the old file or the new one."""
    from annotated.machinery.files import write_text

    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(known | results, indent=1, ensure_ascii=False) + "\n")


def show(rows: list[dict[str, Any]]) -> None:
    """Medians, and the median over the rounds of the ratio to our time in the same round."""
    ours = {row["setting"]: row["seconds"] for row in rows if row["contender"] == "annotated"}
    for row in rows:
        pairs = zip(row["seconds"], ours[row["setting"]], strict=False)
        ratio = statistics.median(theirs / mine for theirs, mine in pairs)
        middle = statistics.median(row["seconds"])
        print(f"{row['setting']:15} {row['contender']:22} {middle:7.3f} s {ratio:6.2f} × ours")


def main(given: list[str] | None = None) -> None:
    given = sys.argv[1:] if given is None else given
    if given[:1] in (["data"], ["gpu"], ["page"], ["mutations"]):
        return import_module(f"benchmarks.{given[0]}").main(given[1:])
    options = arguments(given)
    import torch

    from benchmarks.measure import run
    from benchmarks.workload import Workload

    if options.threads:
        torch.set_num_threads(options.threads)
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    small = {"captions": 20, "vocab": 500, "N": 2, "d_model": 64, "d_ff": 128, "h": 4, "steps": 30}
    work = Workload(device=device, **small if options.quick else {})
    results: dict[str, Any] = {}
    for task in options.tasks:
        print(f"{task} on {device}, {torch.get_num_threads()} threads", file=sys.stderr)
        rows = run(task, work, options.rounds, options.only)
        show(rows)
        facts = {"date": date.today().isoformat(), "device": device, "rounds": options.rounds}
        results[task] = facts | {"machine": machine(device), "work": work.numbers(), "rows": rows}
        if options.out:
            write(options.out, {task: results[task]})
            print(f"written: {options.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
