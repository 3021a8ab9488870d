"""Hostile inputs at the doors of the package: a right result, or one of its own errors in a line.

The inputs are whole ones that are cut, altered, or of the wrong type, always from the same seed. An
error is ours if it is an `InputError`, or a ValueError or OSError raised by the package itself.
Archives, downloads, prepared corpora, logs and trees have such tests beside their modules.
"""

import io
import math
import random
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, fields, replace
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import annotated
from annotated import data
from annotated.attention import scaled_dot_product
from annotated.data import encode_source, train_bpe
from annotated.decoding import beam_search, greedy_decode
from annotated.language_model import LanguageModel, LanguageModelConfig, generate
from annotated.machinery.cli.main import main
from annotated.machinery.corpora import registry
from annotated.machinery.errors import InputError
from annotated.machinery.files import new_folder
from annotated.machinery.formats.own import save_model
from annotated.machinery.formats.pretrained import load_pretrained
from annotated.machinery.runs.checkpoints import list_checkpoints
from annotated.machinery.runs.trainer import train
from annotated.machinery.translator import Translator
from annotated.model import TransformerConfig, build_model
from annotated.training import TrainingConfig

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # on what is cut or left out

PACKAGE = Path(annotated.__file__).parent
SECONDS = 20  # no case takes longer
EN = ["A dog runs.", "Two men ride bicycles.", "The cat sees a red house."]
DE = ["Ein Hund läuft.", "Zwei Männer fahren Rad.", "Die Katze sieht ein rotes Haus."]
HUGE = 10**12
ODD: list[Any] = [
    None, True, False, -1, 0, 1, 1.5, math.nan, math.inf, -math.inf, HUGE, "", "x", "no", b"x",
    [], [[]], {}, (), [None], object(), "\udc80", 1 << 70, 10**400, "é" * 5000,
    np.int64(3), np.float32(0.5), np.array(3), torch.tensor(2), torch.zeros(2, 3),
]  # fmt: skip


def is_ours(error: BaseException) -> bool:
    """Whether the package raised an error deliberately, with a message of one line."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    from_us = PACKAGE in Path(last.filename).parents and isinstance(error, (ValueError, OSError))
    raised = from_us or isinstance(error, InputError)
    return raised and bool(str(error).strip()) and "\n" not in str(error) and len(str(error)) < 2000


def hung(number: int, frame: object) -> None:
    """Ends a case."""
    raise TimeoutError(f"took more than {SECONDS} seconds")


def judge(
    cases: Iterable[tuple[str, Callable[[], Any]]], right: Callable[[Any], bool], least: int
) -> None:
    """Run at least so many cases; each must give a right result or one of our errors."""
    wrong, total = [], 0
    signal.signal(signal.SIGALRM, hung)
    for name, act in cases:
        total += 1
        signal.alarm(SECONDS)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = act()
            if not right(result):
                wrong.append(f"{name}: gave {result!r:.200}")
        except Exception as error:
            if not is_ours(error):
                last = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{Path(last.filename).name}:{last.lineno}"
                wrong.append(f"{name}: {type(error).__name__} in {place}: {str(error)[:150]}")
    signal.alarm(0)
    assert not wrong, f"{len(wrong)} of {total}:\n" + "\n".join(wrong[:40])
    assert total >= least


def spoilt(whole: bytes, cuts: int, flips: int, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """The same bytes cut short, and with one byte altered."""
    for size in [0, 1, len(whole) - 1, *(rng.randrange(len(whole)) for _ in range(cuts - 3))]:
        yield f"cut to {size} of {len(whole)} bytes", whole[:size]
    for _ in range(flips):
        place, altered = rng.randrange(len(whole)), bytearray(whole)
        altered[place] ^= 1 << rng.randrange(8)
        yield f"byte {place} altered", bytes(altered)


@pytest.fixture(scope="module")
def translator() -> Translator:
    torch.manual_seed(0)
    tokenizer = train_bpe(EN + DE, 90)
    vocab = tokenizer.get_vocab_size()
    config = TransformerConfig.base(vocab, N=2, d_model=16, d_ff=32, h=2)
    return Translator(build_model(config).eval(), tokenizer)


@pytest.fixture(scope="module")
def model_folder(translator: Translator, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    translator.tokenizer.save(str(folder / "tokenizer.json"))
    save_model(folder, dict(translator.model.named_parameters()), translator.model.config)
    return folder


def hostile_texts(rng: random.Random) -> Iterator[str]:
    """Texts that nobody means to translate, but somebody will."""
    yield from ("", " ", "\n", "\t\r\n", "\0", "\ufeff", "\u200b" * 9, "</s>", "<s> <pad> <unk>")
    yield from ("▁" * 20, "a" * 30_000, "\U0001f469\u200d\U0001f469" * 50, "e\u0301" * 100)
    yield from ("ﷺ" * 30, "\u202eabc", "A dog.\nA cat.", "\x1b[31mred", "%s {0} {}", "\ud800")
    ranges = [(0, 32), (32, 127), (128, 591), (1024, 1280), (1424, 1792), (2304, 2432)]
    ranges += [(0x4E00, 0x9FFF), (0xD800, 0xDFFF), (0xE000, 0xF8FF), (0x1F300, 0x1FAFF)]
    for _ in range(230):
        alphabet = [chr(rng.randrange(*rng.choice(ranges))) for _ in range(rng.randrange(1, 9))]
        yield "".join(rng.choices([*alphabet, " "], k=rng.choice([1, 3, 12, 40])))


@pytest.mark.slow
def test_texts(translator: Translator):
    """Each is translated, and does not change the translation of another one."""
    good = translator.translate("A dog runs.", max_extra=3)

    def act(text: str) -> Any:
        translator.translate(text, max_extra=3).encode("utf-8")  # no half characters
        return translator.translate(["A dog runs.", text], max_extra=3)[0]

    texts = hostile_texts(random.Random(1))
    judge(((repr(text)[:60], partial(act, text)) for text in texts), partial(eq, good), 240)


@pytest.mark.slow
def test_arguments(translator: Translator):
    model, src = translator.model, torch.tensor([[5, 6, 7, 1]])
    shape = {"vocab": 9, "N": 1, "d_model": 8, "d_ff": 8, "h": 2, "positions": "rope"}
    speaker = LanguageModel(LanguageModelConfig(**shape, max_len=20)).eval()
    given = {"prompt": [1, 2], "max_new_tokens": 5}
    fit = lambda v: -2 if isinstance(v, int) and v >= HUGE else v  # more than a computer can do
    mask = torch.ones(1, 1, 4, dtype=torch.bool)
    calls: dict[str, Callable[[Any], Any]] = {
        "translate": lambda v: translator.translate(v),
        "translate a list": lambda v: translator.translate(["A dog.", v]),
        "beam": lambda v: translator.translate("A dog.", beam=v),
        "alpha": lambda v: translator.translate("A dog.", alpha=v),
        "max_extra": lambda v: translator.translate("A dog.", max_extra=fit(v)),
        "batch_tokens": lambda v: translator.translate(["A dog."], batch_tokens=v),
        "chunk": lambda v: translator.translate(["A dog."], chunk=v),
        "load_pretrained": lambda v: load_pretrained(v),
        "device": lambda v: load_pretrained("multi30k-en-de", v),
        "greedy_decode, mask": lambda v: greedy_decode(model, src, v, 4, 0),
        "greedy_decode, ids": lambda v: greedy_decode(model, v, mask, 4, 0),
        "beam_search, ids": lambda v: beam_search(model, v, mask),
        "beam_search, mask": lambda v: beam_search(model, src, v),
        "encode": lambda v: encode_source(translator.tokenizer, v),
        "token_batches": lambda v: data.token_batches([[3, 4]], v, 10),
        "learn_vocabulary": lambda v: data.learn_vocabulary("bpe", EN, v),
        "learn_vocabulary, kind": lambda v: data.learn_vocabulary(v, EN, 90),
        "average_checkpoints": annotated.average_checkpoints,
        "evaluate": lambda v: annotated.evaluate(translator, v, "test", "en", "de"),
        "scaled_dot_product, mask": lambda v: scaled_dot_product(*torch.ones(3, 1, 1, 2, 3), v),
        "new_folder": new_folder,
        "preset": annotated.preset,
        "rate": lambda v: annotated.rate(v, 512),
        "row_config": annotated.row_config,
        "sinusoids": lambda v: annotated.sinusoids(10, fit(v)),
        "subsequent_mask": lambda v: annotated.subsequent_mask(fit(v)),
        "training_cost": lambda v: annotated.training_cost(1, gpu=v),
        "tree_svg": annotated.tree_svg,
        "parse_data": lambda v: registry.parse_data(v),
    }
    for name in {field.name for field in fields(TransformerConfig)} - {"src_vocab", "tgt_vocab"}:
        calls[f"TransformerConfig {name}"] = lambda v, n=name: TransformerConfig(9, 9, **{n: v})
    for name in {field.name for field in fields(LanguageModelConfig)}:
        calls[f"LanguageModelConfig {name}"] = lambda v, n=name: LanguageModelConfig(
            **{**shape, n: v}
        )
    for name in "prompt", "max_new_tokens", "temperature", "top_k", "top_p", "stop", "seed":
        calls[f"generate {name}"] = lambda v, n=name: list(generate(speaker, **{**given, n: v}))
    for field in fields(TrainingConfig):
        calls[f"TrainingConfig {field.name}"] = lambda v, n=field.name: TrainingConfig(**{n: v})

    def right(result: Any) -> bool:
        """Nothing computed from nonsense."""
        if isinstance(result, (TransformerConfig, TrainingConfig)):
            whole = lambda value: isinstance(value, (int, float, str)) and value == value
            return all(value is None or whole(value) for value in asdict(result).values())
        return result is not None

    cases = ((f"{name} of {v!r}", partial(calls[name], v)) for name in calls for v in ODD)
    judge(cases, right, 2400)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainingConfig, Path]:
    """The configuration of a run of eight updates, and its folder after six."""
    place = tmp_path_factory.mktemp("runs")
    for split, count in ("train", 8), ("dev", 2):
        for lang, lines in ("en", EN), ("de", DE):
            (place / f"{split}.{lang}").write_text("\n".join(lines * count) + "\n", "utf-8")
    shape = {"vocab_size": 80, "N": 1, "d_model": 16, "d_ff": 32, "h": 2, "src_tokens": 120}
    shape |= {"tgt_tokens": 120, "warmup": 9, "save_updates": 2, "log_updates": 1, "average": 2}
    config = TrainingConfig(out=str(place / "run"), data=f"{place}-en-de", updates=6, **shape)
    train(config)
    return replace(config, updates=8), Path(config.out)


@pytest.mark.slow
def test_resumed_runs(run: tuple[TrainingConfig, Path], tmp_path: Path):
    """Whatever happens to its files, a run ends with the right weights, or says why it cannot."""
    rng = random.Random(4)
    config, folder = run
    train(replace(config, out=str(tmp_path / "straight")))
    expected = (tmp_path / "straight" / "model.safetensors").read_bytes()
    newest = list_checkpoints(folder)[-1].name
    whole = (folder / newest).read_bytes()

    def act(file: str, content: bytes) -> bytes:
        out = tmp_path / "resumed"
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(folder, out)
        (out / file).write_bytes(content)
        train(replace(config, out=str(out)), resume=True)
        return (out / "model.safetensors").read_bytes()

    changes = [(newest, what, content) for what, content in spoilt(whole, 8, 8, rng)]
    strange = {"checkpoint-best.safetensors": whole, "checkpoint-.safetensors": b""}
    strange |= {"checkpoint-00000099.safetensors": b"x", "checkpoint-00000006.bak": b"x"}
    changes += [(file, "is there", content) for file, content in strange.items()]
    prepared = [f"prepared/{path.name}" for path in sorted((folder / "prepared").iterdir())]
    for file in ("tokenizer.json", "corpus.json", "training.json", "log.csv", *prepared):
        altered = spoilt((folder / file).read_bytes(), 4, 2, rng)
        changes += [(file, what, content) for what, content in altered]
    cases = ((f"{f} {what}", lambda f=f, c=content: act(f, c)) for f, what, content in changes)
    judge(cases, partial(eq, expected), 50)


@pytest.mark.slow
def test_the_command(model_folder: Path, tmp_path: Path, monkeypatch, capsys):
    """Exit status 0 with an answer, or 2 with a line that begins with the command's name."""
    rng = random.Random(11)
    (tmp_path / "text").write_text("A dog.\n")
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    model, text = str(model_folder), str(tmp_path / "text")
    binary, nothing = str(tmp_path / "binary"), str(tmp_path / "nothing")

    def commands() -> Iterator[list[str]]:
        """Each can be parsed, and names something that it cannot use."""
        for bad in (nothing, text, binary, str(tmp_path), "", "no-such-model", "\udc80"):
            yield ["translate", bad, "A dog."]
            yield ["generate", bad, "A dog."]
            yield ["evaluate", bad]
            yield ["score", bad, "--ref", text, "--lang", "de"]
            yield ["score", text, "--ref", bad, "--lang", "de"]
            yield ["average", bad, "--last", "2"]
            yield ["treebank", "write", bad, str(tmp_path / "trees")]
            yield ["heads", bad, "--out", str(tmp_path / "heads.json")]
            yield ["export", bad, "--to", "onnx", "--out", str(tmp_path / "out")]
            yield ["import", bad, "--out", str(tmp_path / "out")]
            yield ["data", "get", bad]
            yield ["paper", "import", bad]
            yield ["prepare", f"--data={bad}-en-de", "--out", str(tmp_path / "out")]
            yield ["train", f"--data={bad}-en-de", "--out", str(tmp_path / "out")]
            yield ["train", "--data", bad, "--out", str(tmp_path / "out")]
            yield ["train", "--out", binary, "--data", f"{nothing}-en-de"]

    def nonsense() -> Iterator[list[str]]:
        values = ["", "x", "-1", "0", "nan", "inf", "99999999999", "\udc80", nothing, "--", "é"]
        for option in "beam", "alpha", "max-extra", "batch-tokens", "device", "n-best":
            yield from (["translate", model, "A dog.", f"--{option}={value}"] for value in values)
        words = ["--beam", "data", "list", "get", "--debug", "-x", "4", "paper", model, nothing]
        for _ in range(60):
            first = rng.choice(["translate", "data", "paper", "score", "nonsense", "average"])
            yield [first, *rng.choices(words, k=rng.randrange(1, 5))]
        yield []

    def run(given: list[str]) -> tuple[object, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"A dog.\n?\n")))
        status: object = 0
        try:
            main(given)
        except SystemExit as end:
            status = end.code
        return status, capsys.readouterr().err

    def right(ended: tuple[object, str], parsed: bool) -> bool:
        status, error = ended
        last = (error.strip().splitlines() or [""])[-1]
        refused = status == 2 and last.startswith("annotated: " if parsed else "annotated")
        return "Traceback" not in error and (status == 0 or refused)

    for lines, parsed in (commands(), True), (nonsense(), False):
        cases = ((" ".join(given)[:90], lambda given=given: run(given)) for given in lines)
        judge(cases, partial(right, parsed=parsed), 100)
