"""Timing: all contenders in turn, round after round, so that a disturbance affects all alike."""

import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from datetime import date
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from annotated._version import __version__
from annotated.data import PAD, encode_source
from annotated.machinery.corpora.registry import load_pairs
from annotated.machinery.errors import InputError
from annotated.machinery.files import resource_path
from annotated.machinery.formats.pretrained import load_pretrained
from annotated.machinery.kernels import fast_attention, packed_products
from annotated.machinery.progress import progress_bar, say
from annotated.model import EncoderDecoder
from benchmarks.contenders import CONTENDERS, Contender, Ids
from benchmarks.logs import machine, make_parser, write
from benchmarks.workload import Workload

TASKS = "training", "decoding", "engine"
WARMUP = 2  # rounds that are not counted
PATIENCE = 20.0  # seconds that a contender may take
TOLERANCE = 1e-3  # between two computations of the same logits in float32


@dataclass
class Row:
    """One line of a table: a contender, a setting, and its times."""

    contender: str
    version: str
    setting: str
    parameters: int
    check: str  # result of the comparison with our outputs
    seconds: list[float] = field(default_factory=list)  # one per round


Timed = tuple[Row, Callable[[], Any]]


def installed(
    work: Workload, reference: EncoderDecoder, device: str, only: Iterable[str] = ()
) -> list[Contender]:
    """Build all contenders that can be built, ours first; print how to install the others."""
    wanted, built = {name.lower() for name in only} | {"annotated"}, []
    for kind in CONTENDERS:
        if only and kind.__name__.lower() not in wanted:
            continue
        try:
            contender = kind(work, reference)
        except ImportError as error:
            say(f"{kind.name} is skipped ({error}): {kind.install}")
            continue
        contender.to(device)
        built.append(contender)
    return built


def training_step(
    work: Workload, contender: Contender, setting: str, precision: torch.dtype
) -> Callable[[], None]:
    """A training step of one model: forward pass, smoothed loss, backward pass, Adam.

    Args:
        setting: "best", with the fastest forms of torch's loss, Adam and attention for all, or
            "own", with the project's own.
        precision: of the matrix products.
    """
    best, model, device = setting == "best", contender.model.train(), work.source.device.type
    measured = contender.loss if best else contender.own_loss
    options = {
        "betas": (0.9, 0.98),
        "eps": 1e-9,
        "fused": True if best or contender.fused else None,
    }
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, **options)

    ours, low = contender.name == "annotated", precision != torch.float32
    kind, longest = (precision, work.source.device), max(work.source.size(1), work.target.size(1))

    def step() -> None:
        attention = fast_attention(*kind, longest) if best or ours else nullcontext()
        with torch.autocast(device, precision, enabled=low), attention:
            loss = measured(work.source, work.target[:, :-1], work.target[:, 1:], work.smoothing)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


@torch.no_grad()
def check_training(work: Workload, contender: Contender, ours: Contender) -> str:
    """Compare logits and losses for the same weights, without dropout.

    Raises: ValueError if a contender that should compute our function does not.
    """
    src, tgt, right = work.source, work.target[:, :-1], work.target[:, 1:]
    if not contender.same:
        return "another architecture"
    real = right != PAD
    apart = (contender.logits(src, tgt) - ours.logits(src, tgt))[real].abs().max().item()
    expected = ours.loss(src, tgt, right, work.smoothing).item()
    loss = contender.loss(src, tgt, right, work.smoothing).item()
    # A project's own loss may differ by constants (section 5.4).
    worst = max(apart, abs(loss - expected))
    if worst > TOLERANCE:
        raise ValueError(f"expected the logits and the loss of our model; got {worst:.1e} apart")
    return f"logits at most {apart:.0e} from ours"


def training(work: Workload, contenders: list[Contender]) -> list[Timed]:
    """The rows that are timed in training."""
    ours, timed = contenders[0], []
    settings = [("best", torch.float32), ("own", torch.float32), ("best", torch.bfloat16)]
    if work.source.device.type != "cpu":
        settings = [("best", torch.bfloat16), ("own", torch.bfloat16)]
    learners = [contender for contender in contenders if contender.trains]
    checks = {c.name: check_training(work, c, ours) for c in learners}
    for setting, precision in settings:
        for c in learners:
            name = f"{setting}, {str(precision).removeprefix('torch.')}"
            row = Row(c.name, c.version, name, c.parameters, checks[c.name])
            timed.append((row, training_step(work, c, setting, precision)))
    return timed


def check_search(found: Ids, ours: Ids) -> str:
    """Number of sentences with the same hypotheses as our model's, which end with END.

    Raises: ValueError if most differ.
    """
    same = sum(sorted(a) == sorted(b) for a, b in zip(found, ours, strict=True))
    if same < len(ours) / 2:
        raise ValueError(f"expected our outputs; got {same} of {len(ours)}")
    return f"{same} of {len(ours)} outputs as ours"


def search(work: Workload, contender: Contender, beam: int, steps: int) -> Ids:
    """A search by packed products, as a `Translator` searches; the others get them too."""
    with packed_products(getattr(contender, "for_search", contender.model)):
        return contender.search(work.to_translate, beam, steps)


def decoding(work: Workload, contenders: list[Contender]) -> list[Timed]:
    """The rows that are timed in decoding: greedy search and beam search."""
    timed: list[Timed] = []
    for beam in (work.beam, 1):
        expected = search(work, contenders[0], beam, work.steps)
        for c in contenders:
            if beam not in c.searches:
                continue
            check = "another architecture"
            if c.same:  # the others do not emit END, so they are one step shorter
                steps = work.steps - (c is not contenders[0])
                check = check_search(search(work, c, beam, steps), expected)
            row = Row(c.name, c.version, f"beam {beam}", c.parameters, check)
            timed.append((row, partial(search, work, c, beam, work.steps)))
    return timed


def engine(captions: int) -> list[Timed]:
    """What is timed of CTranslate2 as the engine of `load_pretrained`: captions with a real model.

    CTranslate2 alone gets the same pieces in one call, batches them, and its best hypothesis is
    taken. All searches run in this process, from sentences to sentences.
    """
    import ctranslate2

    model, texts = "multi30k-en-de", load_pairs("multi30k", "test", "en", "de")[0][:captions]
    ours = load_pretrained(model)
    engines = {"annotated": ours}
    for form, name in ("float32", ""), ("int8", ", int8"):
        engine = load_pretrained(model, engine="ctranslate2", precision=form)
        engines[f"annotated, CTranslate2{name}"] = engine
    bare: Any = engines["annotated, CTranslate2"]
    numbers, decode = ours.tokenizer.token_to_id, ours.tokenizer.decode

    def alone(beam: int) -> list[str]:
        ids = encode_source(ours.tokenizer, texts)
        pieces = [[ours.tokenizer.id_to_token(i) for i in row[:-1]] for row in ids]
        found = bare.engine.translate_batch(
            pieces, beam_size=beam, num_hypotheses=beam, length_penalty=0, return_scores=True,
            max_batch_size=2000, batch_type="tokens",
        )  # fmt: skip
        return [decode([numbers(piece) for piece in row.hypotheses[0]]) for row in found]

    timed, weights = list[Timed](), sum(p.numel() for p in ours.model.parameters())
    for beam in (1, 4):
        translate = lambda t, beam=beam: t.translate(texts, beam=beam)
        calls = {name: partial(translate, t) for name, t in engines.items()}
        calls["CTranslate2 alone"] = partial(alone, beam)
        expected = calls["annotated"]()
        for name, call in calls.items():
            same = sum(map(str.__eq__, call(), expected))
            version = __version__ if name == "annotated" else ctranslate2.__version__
            check = f"{same} of {len(texts)} outputs as ours"
            timed.append((Row(name, version, f"beam {beam}", weights, check), call))
    return timed


def measure(timed: list[Timed], rounds: int, device: str) -> None:
    """Fill the rows with times, in seconds until the work on the device is done.

    Each contender is called once before it is timed, so that none starts with another's cache,
    and one that has used more than PATIENCE seconds is omitted from later rounds.
    """
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    spent = [0.0] * len(timed)
    gc.disable()  # a garbage collection would affect an arbitrary contender
    for number in progress_bar(range(-WARMUP, rounds), desc="rounds", leave=False):
        gc.collect()
        for i, (row, call) in enumerate(timed):
            if spent[i] > PATIENCE and len(row.seconds) >= 3:
                continue
            call()
            wait()
            start = time.perf_counter()
            call()
            wait()
            took = time.perf_counter() - start
            if number >= 0:
                row.seconds.append(round(took, 5))
                spent[i] += took
    gc.enable()


def run(task: str, work: Workload, rounds: int, only: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Measure a task of TASKS with all contenders installed."""
    if task == "engine":
        timed = engine(work.captions)
    else:
        contenders = installed(work, work.reference(), work.source.device.type, only)
        timed = {"training": training, "decoding": decoding}[task](work, contenders)
    for row, _ in timed:
        say(f"{row.setting:15} {row.contender:22} {row.parameters:,} parameters; {row.check}")
    measure(timed, rounds, work.source.device.type)
    return [asdict(row) for row, _ in timed]


def show(rows: list[dict[str, Any]]) -> None:
    """Medians, and the quartiles over the rounds of the ratio to our time in the same round."""
    ours = {row["setting"]: row["seconds"] for row in rows if row["contender"] == "annotated"}
    for row in rows:
        pairs = zip(row["seconds"], ours[row["setting"]], strict=False)
        ratios = [theirs / mine for theirs, mine in pairs]
        low, ratio, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        told = f"{statistics.median(row['seconds']):7.3f} s {ratio:6.2f} × ours"
        print(f"{row['setting']:15} {row['contender']:22} {told} ({low:.2f} to {high:.2f})")


def main(given: list[str]) -> None:
    parser = make_parser(
        "benchmarks",
        """\
Time this book's Transformer and others of the same shape: a training step, a search with a beam of
4, and CTranslate2 as the engine of this book's translator. Contenders that are not installed are
skipped: `pip install -e '.[bench]'` installs all except JoeyNMT, which
`pip install --no-deps joeynmt` adds.""",
        """\
Each of these has its own options:

python -m benchmarks data --help       # preparing and reading corpora
python -m benchmarks gpu --help        # whole updates of the paper's models on one GPU
python -m benchmarks page --help       # the model on the front page
python -m benchmarks mutations --help  # faults that the tests should notice

Run nothing else in the meantime. A first trial, and the run of the book:

python -m benchmarks --quick
python -m benchmarks --threads 2""",
    )
    add = parser.add_argument
    add("tasks", nargs="*", metavar="TASK", help=f"{', '.join(TASKS)} (default: all)")
    told = "number of timings per contender (%(default)s)"
    add("--rounds", type=int, default=12, help=told)
    add("--threads", type=int, help="number of CPU threads (torch's default)")
    add("--device", help="cpu or cuda (default: cuda if there is one; not yet tested)")
    told = "classes of benchmarks/contenders.py to compare with our model, such as Torch Marian"
    add("--only", nargs="+", default=[], metavar="NAME", help=told)
    told = "3 rounds of a small task; nothing is written unless --out is given"
    add("--quick", action="store_true", help=told)
    told = "results, a JSON file (data/results/benchmarks.json); a task that is not run keeps its "
    add("--out", type=Path, help=f"{told}results in the file")
    options = parser.parse_args(given)
    options.tasks = options.tasks or list(TASKS)
    if unknown := set(options.tasks) - set(TASKS):
        parser.error(f"expected {' or '.join(TASKS)}; got {', '.join(sorted(unknown))}")
    try:  # before hours are spent on the other tasks
        if "engine" in options.tasks:
            import_module("ctranslate2")
            load_pairs("multi30k", "test", "en", "de")
    except (ImportError, InputError) as error:
        parser.error(f"the task engine cannot run: {error}; name the other tasks to run them alone")
    if options.quick:
        options.rounds = 3
    elif options.out is None:
        options.out = resource_path("results") / "benchmarks.json"
    if options.threads:
        torch.set_num_threads(options.threads)
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    small = {"captions": 20, "vocab": 500, "N": 2, "d_model": 64, "d_ff": 128, "h": 4, "steps": 30}
    work = Workload(device=device, **small if options.quick else {})
    command = " ".join(["python -m benchmarks", *given])
    for task in options.tasks:
        facts: dict[str, Any] = {"command": command, "load": os.getloadavg()[0]}  # before it begins
        busy = f"{torch.get_num_threads()} threads, load {facts['load']:.1f}"
        print(f"{task} on {device}, {busy}", file=sys.stderr)
        rows = run(task, work, options.rounds, options.only)
        show(rows)
        facts |= {"date": str(date.today()), "device": device, "rounds": options.rounds}
        facts |= {"machine": machine(device), "work": work.numbers(), "rows": rows}
        if options.out:
            write(options.out, {task: facts})
            print(f"written: {options.out}", file=sys.stderr)
