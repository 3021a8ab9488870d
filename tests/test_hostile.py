"""Over a thousand hostile inputs: each gives a right result, or one of our own errors in a line.

The inputs are made here, from whole ones that are cut, altered or given the wrong type, always from
the same seed. An error is ours if it is an `InputError`, or a ValueError or OSError that code of
the package raised itself; whatever comes out of a library's depths is not, and neither is a hang.
"""

import gzip
import http.server
import io
import json
import lzma
import math
import os
import random
import shutil
import signal
import struct
import sys
import tarfile
import threading
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import annotated
from annotated import data
from annotated.data import encode_source, train_bpe
from annotated.decoding import beam_search, greedy_decode
from annotated.machinery import cli, corpora
from annotated.machinery.corpora import CorpusFile, known_corpora
from annotated.machinery.downloads import download
from annotated.machinery.errors import InputError
from annotated.machinery.prepared import open_prepared
from annotated.machinery.texts import part_lines
from annotated.machinery.training.checkpoints import list_checkpoints, read_checkpoint, save_model
from annotated.machinery.training.folder import read_config
from annotated.machinery.training.logs import read_log
from annotated.machinery.training.trainer import train
from annotated.machinery.translator import Translator, load_pretrained
from annotated.model import TransformerConfig, build_model
from annotated.training import TrainingConfig

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of what is cut or left out

PACKAGE = Path(annotated.__file__).parent
SECONDS = 20  # no case takes longer
EN = ["A dog runs.", "Two men ride bicycles.", "The cat sees a red house."]
DE = ["Ein Hund läuft.", "Zwei Männer fahren Rad.", "Die Katze sieht ein rotes Haus."]


# ------------------------------------------------------------------------------------ the judge


def ours(error: BaseException) -> bool:
    """Whether an error is one that the package means, and says in a line."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    meant = isinstance(error, InputError) or (
        isinstance(error, (ValueError, OSError)) and PACKAGE in Path(last.filename).parents
    )
    return meant and bool(str(error).strip()) and "\n" not in str(error) and len(str(error)) < 2000


@contextmanager
def limited() -> Iterator[None]:
    """Ends what hangs."""

    def stop(number: int, frame: object) -> None:
        raise TimeoutError(f"took more than {SECONDS} seconds")

    old = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


Case = tuple[str, Callable[[], Any]]
LEAST = {  # cases of each kind
    "texts": 250, "arguments": 900, "model folders": 350, "checkpoints": 200, "resumed runs": 50,
    "configurations": 200, "logs": 80, "prepared corpora": 70, "registers": 110, "archives": 240,
    "downloads": 220, "trees": 250, "commands": 200,
}  # fmt: skip


def judge(kind: str, cases: Iterable[Case], right: Callable[[Any], bool]) -> None:
    """Run all cases of a kind; fail with those that gave neither a right result nor our error."""
    wrong, refused, total = [], 0, 0
    for name, act in cases:
        total += 1
        try:
            with limited(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = act()
            if not right(result):
                wrong.append(f"{name}: gave {result!r:.200}")
        except Exception as error:
            refused += 1
            if not ours(error):
                last = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{Path(last.filename).name}:{last.lineno}"
                wrong.append(f"{name}: {type(error).__name__} in {place}: {str(error)[:150]}")
    assert not wrong, f"{len(wrong)} of {total} {kind}:\n" + "\n".join(wrong[:40])
    print(f"{kind}: {total}, of which {refused} were refused")
    assert total >= LEAST[kind]


def cuts(whole: bytes, number: int, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """The same bytes cut short: to nothing, to a byte, and anywhere."""
    for size in [0, 1, len(whole) - 1, *(rng.randrange(len(whole)) for _ in range(number - 3))]:
        yield f"cut to {size} of {len(whole)} bytes", whole[:size]


def flips(
    whole: bytes, number: int, rng: random.Random, end: int = 0
) -> Iterator[tuple[str, bytes]]:
    """The same bytes with one of them altered, before `end`."""
    for _ in range(number):
        place, bit = rng.randrange(end or len(whole)), 1 << rng.randrange(8)
        altered = bytearray(whole)
        altered[place] ^= bit
        yield f"byte {place} altered", bytes(altered)


ODD: list[Any] = [
    None, True, False, -1, 0, 1, 1.5, math.nan, math.inf, -math.inf, 10**12, "", "x", "no", b"x",
    [], [[]], {}, (), [None], object(), "\udc80", 1 << 70,
]  # fmt: skip


# ---------------------------------------------------------------------------- a model, small


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
    save_model(folder, translator.model.state_dict(), translator.model.config)
    translator.tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def hostile_texts(rng: random.Random) -> Iterator[str]:
    """Texts that nobody means to translate, but somebody will."""
    yield from ("", " ", "\n", "\t\r\n", "\0", "\ufeff", "\u200b" * 9, "</s>", "<s> <pad> <unk>")
    yield from (
        "▁" * 20,
        "a" * 30_000,
        "\U0001f469\u200d\U0001f469" * 50,
        "e\u0301" * 100,
        "\ud800",
    )
    yield from ("ﷺ" * 30, "\u202eabc", "A dog.\nA cat.", "\x1b[31mred", "%s %d {0} {}", "../" * 9)
    ranges = [(0, 32), (32, 127), (128, 591), (1024, 1280), (1424, 1792), (2304, 2432)]
    ranges += [(0x4E00, 0x9FFF), (0xD800, 0xDFFF), (0xE000, 0xF8FF), (0x1F300, 0x1FAFF)]
    for _ in range(230):
        alphabet = [chr(rng.randrange(*rng.choice(ranges))) for _ in range(rng.randrange(1, 9))]
        yield "".join(rng.choices([*alphabet, " "], k=rng.choice([1, 3, 12, 40])))


@pytest.mark.slow
def test_texts(translator: Translator):
    def act(text: str) -> Callable[[], Any]:
        return lambda: (translator.translate(text, max_extra=3), text)

    def right(found: tuple[str, str]) -> bool:
        said, text = found
        said.encode("utf-8")  # no half characters
        among = translator.translate(["A dog runs.", text], max_extra=3)
        return among[0] == good and isinstance(among[1], str)

    good = translator.translate("A dog runs.", max_extra=3)
    texts = hostile_texts(random.Random(1))
    judge("texts", ((repr(text)[:60], act(text)) for text in texts), right)


@pytest.mark.slow
def test_arguments(translator: Translator):
    model, src = translator.model, torch.tensor([[5, 6, 7, 1]])
    mask = torch.ones(1, 1, 4, dtype=torch.bool)
    calls: dict[str, Callable[[Any], Any]] = {
        "translate": lambda v: translator.translate(v),
        "translate a list": lambda v: translator.translate(["A dog.", v]),
        "beam": lambda v: translator.translate("A dog.", beam=v),
        "alpha": lambda v: translator.translate("A dog.", alpha=v),
        "max_extra": lambda v: translator.translate("A dog.", max_extra=v if v != 10**12 else -2),
        "batch_tokens": lambda v: translator.translate(["A dog."], batch_tokens=v),
        "chunk": lambda v: translator.translate(["A dog."], chunk=v),
        "load_pretrained": lambda v: load_pretrained(v),
        "device": lambda v: load_pretrained("multi30k-en-de", v),
        "greedy_decode, mask": lambda v: greedy_decode(model, src, v, 4, 0),
        "greedy_decode, ids": lambda v: greedy_decode(model, v, mask, 4, 0),
        "beam_search, ids": lambda v: beam_search(model, v, mask),
        "beam_search, mask": lambda v: beam_search(model, src, v),
        "encode": lambda v: encode_source(translator.tokenizer, v),
        "make_batch": lambda v: data.make_batch(v),
        "token_batches": lambda v: data.token_batches([[3, 4]], v, 10),
        "learn_vocabulary": lambda v: data.learn_vocabulary("bpe", EN, v),
        "rate, warmup": lambda v: annotated.rate(1, 512, 1.0, v),
        "rate, step": lambda v: annotated.rate(v, 512, 1.0, 4000),
        "parse_data": lambda v: corpora.parse_data(v),
    }
    for field in fields(TransformerConfig):
        name = field.name
        if name not in ("src_vocab", "tgt_vocab"):
            calls[f"TransformerConfig {name}"] = lambda v, n=name: TransformerConfig(9, 9, **{n: v})
    for field in fields(TrainingConfig):
        calls[f"TrainingConfig {field.name}"] = lambda v, n=field.name: TrainingConfig(**{n: v})
    cases = (
        (f"{name} of {value!r}", lambda call=call, value=value: call(value))
        for name, call in calls.items()
        for value in ODD
    )

    def right(result: Any) -> bool:
        """Nothing computed from nonsense."""
        if isinstance(result, (TransformerConfig, TrainingConfig)):
            return all(
                value is None or (isinstance(value, (int, float, str)) and value == value)
                for value in asdict(result).values()
            )
        if isinstance(result, float):
            return math.isfinite(result)
        return result is not None

    judge("arguments", cases, right)


# --------------------------------------------------------------------------------- model folders


def altered_config(text: str, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    config = json.loads(text)
    for name in config:
        yield f"without {name}", json.dumps({k: v for k, v in config.items() if k != name}).encode()
        for value in (None, "six", -1, 0, 1.5, 10**5, 10**9, [], {}, True):
            yield f"{name} = {value}", json.dumps(config | {name: value}).encode()
    for value in ([], 1, None, "text", {}, {"N": {}}, config | {"colour": 1}):
        yield f"config {value!r:.30}", json.dumps(value).encode()
    yield "NaN", text.replace('"dropout": 0.1', '"dropout": NaN').encode()
    yield "deep", b"[" * 100_000
    yield from cuts(text.encode(), 15, rng)
    yield from flips(text.encode(), 25, rng)


def altered_tokenizer(text: str, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    for value in ([], 1, None, {}, {"version": "1.0"}, {"model": {"type": "BPE"}}):
        yield f"tokenizer {value!r}", json.dumps(value).encode()
    whole = json.loads(text)
    larger = json.loads(text)
    larger["model"]["vocab"]["zzzz"] = 10**6
    yield "a piece beyond the model's vocabulary", json.dumps(larger).encode()
    yield "no special symbols", json.dumps(whole | {"added_tokens": []}).encode()
    yield "\xff", b"\xff\xfe" + text.encode()
    yield from cuts(text.encode(), 15, rng)


def altered_weights(file: Path, rng: random.Random, place: Path) -> Iterator[tuple[str, bytes]]:
    whole = file.read_bytes()
    (size,) = struct.unpack("<Q", whole[:8])
    yield from cuts(whole, 20, rng)
    yield from flips(whole, 40, rng, end=8 + size)
    yield "nothing but zeros", bytes(len(whole))
    yield "a page of the web", b"<html><body>Not found</body></html>"
    yield "a pickle", b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00true\x85R."
    tensors = load_file(file)
    for name in sorted(tensors)[:: max(1, len(tensors) // 12)]:
        tensor = tensors[name]
        rest = {k: v for k, v in tensors.items() if k != name}
        changes: dict[str, np.ndarray | None] = {
            "is missing": None, "in one row": tensor[:1], "with one more axis": tensor[None],
            "of one number": tensor.reshape(-1)[:1], "as int8": tensor.astype(np.int8),
            "as complex": tensor.astype(np.complex64), "NaN": np.full_like(tensor, np.nan),
            "infinite": np.full_like(tensor, np.inf),
        }  # fmt: skip
        for what, change in changes.items():
            save_file(rest if change is None else rest | {name: change}, place)
            yield f"{name} {what}", place.read_bytes()
    save_file(tensors | {"foreign": np.zeros(1, np.float32)}, place)
    yield "a foreign tensor", place.read_bytes()


@pytest.mark.slow
def test_model_folders(model_folder: Path, tmp_path: Path):
    rng = random.Random(2)
    folder = tmp_path / "altered"
    shutil.copytree(model_folder, folder)
    expected = load_pretrained(model_folder).translate(EN)
    config = (model_folder / "config.json").read_text()
    tokenizer = (model_folder / "tokenizer.json").read_text()
    weights = altered_weights(model_folder / "model.safetensors", rng, tmp_path / "t")

    def act(file: str, content: bytes | None) -> Callable[[], Any]:
        def load() -> Any:
            shutil.copytree(model_folder, folder, dirs_exist_ok=True)
            (folder / file).unlink()
            if content is not None:
                (folder / file).write_bytes(content)
            return load_pretrained(folder).translate(EN)

        return load

    def cases() -> Iterator[Case]:
        for file in "config.json", "tokenizer.json", "model.safetensors":
            yield f"no {file}", act(file, None)
        for name, content in altered_config(config, rng):
            yield f"config.json, {name}", act("config.json", content)
        for name, content in altered_tokenizer(tokenizer, rng):
            yield f"tokenizer.json, {name}", act("tokenizer.json", content)
        for name, content in weights:
            yield f"model.safetensors, {name}", act("model.safetensors", content)

    judge("model folders", cases(), lambda found: found == expected)


# ------------------------------------------------------------------------------ runs of training


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
def test_checkpoints(run: tuple[TrainingConfig, Path], tmp_path: Path):
    rng = random.Random(3)
    file = list_checkpoints(run[1])[-1]
    whole, (tensors, state) = file.read_bytes(), read_checkpoint(file)
    (size,) = struct.unpack("<Q", whole[:8])
    place = tmp_path / file.name

    def act(content: bytes) -> Callable[[], Any]:
        def read() -> Any:
            place.write_bytes(content)
            return read_checkpoint(place)

        return read

    def right(found: Any) -> bool:
        same = found[0].keys() == tensors.keys()
        return (
            same
            and found[1] == state
            and all(map(torch.equal, found[0].values(), tensors.values()))
        )

    numbers = [m for m in range(8, 8 + size) if chr(whole[m]).isdigit()]
    digits = []
    for place_of in rng.sample(numbers, min(60, len(numbers))):
        altered = bytearray(whole)
        altered[place_of] = ord("7") if altered[place_of] != ord("7") else ord("3")
        digits.append((f"digit {place_of} altered", bytes(altered)))
    altered = [*cuts(whole, 30, rng), *flips(whole, 60, rng), *flips(whole, 60, rng, 8 + size)]
    judge("checkpoints", ((name, act(content)) for name, content in altered + digits), right)


@pytest.mark.slow
def test_resumed_runs(run: tuple[TrainingConfig, Path], tmp_path: Path):
    """Whatever happens to its files, a run ends with the right weights, or says why it cannot."""
    rng = random.Random(4)
    config, folder = run
    straight = replace(config, out=str(tmp_path / "straight"))
    train(straight)
    expected = (Path(straight.out) / "model.safetensors").read_bytes()
    name = list_checkpoints(folder)[-1].name
    whole = (folder / name).read_bytes()

    def act(change: Callable[[Path], object]) -> Callable[[], Any]:
        def resume() -> bytes:
            out = tmp_path / "resumed"
            shutil.rmtree(out, ignore_errors=True)
            shutil.copytree(folder, out)
            change(out)
            train(replace(config, out=str(out)), resume=True)
            return (out / "model.safetensors").read_bytes()

        return resume

    cases: list[Case] = [
        (f"newest checkpoint {what}", act(lambda out, c=content: (out / name).write_bytes(c)))
        for what, content in [*cuts(whole, 8, rng), *flips(whole, 8, rng)]
    ]
    strange = {"checkpoint-best.safetensors": whole, "checkpoint-.safetensors": b""}
    strange |= {"checkpoint-00000099.safetensors": b"x", "checkpoint-00000006.bak": b"x"}
    for other, content in strange.items():
        cases += [(other, act(lambda out, o=other, c=content: (out / o).write_bytes(c)))]
    files = "tokenizer.json", "corpus.json", "training.json", "log.csv"
    for file in (*files, *(f"prepared/{name}" for name in os.listdir(folder / "prepared"))):
        text = (folder / file).read_bytes()
        for what, content in [*cuts(text, 4, rng), *flips(text, 2, rng)]:
            changed = act(lambda out, f=file, c=content: (out / f).write_bytes(c))
            cases += [(f"{file} {what}", changed)]

    def right(found: bytes) -> bool:
        return found == expected

    judge("resumed runs", cases, right)


def test_configurations_of_runs(run: tuple[TrainingConfig, Path], tmp_path: Path):
    rng = random.Random(5)
    text = (run[1] / "training.json").read_text()
    values = json.loads(text)

    def act(content: bytes) -> Callable[[], Any]:
        def read() -> Any:
            (tmp_path / "training.json").write_bytes(content)
            return read_config(tmp_path)

        return read

    def contents() -> Iterator[tuple[str, bytes]]:
        for name in values:
            for value in (None, "no", -1, 1.5, [], {}, math.nan):
                yield f"{name} = {value}", json.dumps(values | {name: value}).encode()
        yield "an unknown setting", json.dumps(values | {"colour": 1}).encode()
        yield "a list", b"[]"
        yield from cuts(text.encode(), 15, rng)

    types = {field.name: type(field.default) for field in fields(TrainingConfig)}

    def right(found: TrainingConfig) -> bool:
        read = asdict(found)
        return all(
            type(value) is types[name] or (types[name] is float and type(value) is int)
            for name, value in read.items()
        )

    judge("configurations", ((name, act(content)) for name, content in contents()), right)


def test_logs(run: tuple[TrainingConfig, Path], tmp_path: Path):
    rng = random.Random(6)
    whole = (run[1] / "log.csv").read_bytes()
    known = read_log(run[1] / "log.csv")
    lines = whole.splitlines(keepends=True)

    def contents() -> Iterator[tuple[str, bytes]]:
        yield from cuts(whole, 40, rng)
        for number in range(1, len(lines)):
            for what, line in [
                ("half", lines[number][:9] + b"\n"), ("doubled", lines[number] * 2),
                ("too long", lines[number].strip() + b",1,2,3\n"), ("binary", b"\xff\x00\n"),
                ("joined", lines[number].strip()), ("empty", b"\n"), ("words", b"a,b,c\n"),
            ]:  # fmt: skip
                yield (
                    f"line {number} {what}",
                    b"".join([*lines[:number], line, *lines[number + 1 :]]),
                )

    def act(content: bytes) -> Callable[[], Any]:
        def read() -> Any:
            (tmp_path / "log.csv").write_bytes(content)
            return read_log(tmp_path / "log.csv")

        return read

    def right(found: list[dict[str, str]]) -> bool:
        return all(row in known for row in found)

    judge("logs", ((name, act(content)) for name, content in contents()), right)


def test_prepared_corpora(run: tuple[TrainingConfig, Path], tmp_path: Path):
    rng = random.Random(7)
    whole = run[1] / "prepared"

    def pairs(folder: Path) -> list[tuple[list[int], list[int]]]:
        corpus = open_prepared(folder)
        return [split[i] for split in (corpus.train, corpus.dev) for i in range(len(split))]

    def act(name: str, content: bytes) -> Callable[[], Any]:
        def read() -> Any:
            shutil.copytree(whole, tmp_path / "prepared", dirs_exist_ok=True)
            (tmp_path / "prepared" / name).write_bytes(content)
            return pairs(tmp_path / "prepared")

        return read

    cases: list[Case] = []
    for path in sorted(whole.iterdir()):
        content = path.read_bytes()
        altered = [*cuts(content, 6, rng), *flips(content, 12, rng)]
        cases += [(f"{path.name} {what}", act(path.name, spoilt)) for what, spoilt in altered]
    expected = pairs(whole)
    judge("prepared corpora", cases, lambda found: found == expected)


# --------------------------------------------------------------------- registers, archives, network


def test_registers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rng = random.Random(8)
    text = """[one]
title = "One"
source = "https://example.org"
licence = "none"
languages = ["en", "de"]
folder = "one"
[one.splits]
train = ["train.{lang}.gz"]
[one.files]
"train.en.gz" = { size = 3, sha256 = "abc" }
"""
    monkeypatch.setattr(corpora, "resource_path", lambda name: tmp_path / name)

    def contents() -> Iterator[tuple[str, bytes]]:
        lines = text.splitlines()
        for number, line in enumerate(lines):
            yield f"without {line}", "\n".join(lines[:number] + lines[number + 1 :]).encode()
            key = line.partition(" = ")[0]
            if key == line:
                continue
            for value in ("1", "true", '""', "[]", "[1]", "{}", "{ a = 1 }", "nan", '["{x}"]'):
                changed = [*lines[:number], f"{key} = {value}", *lines[number + 1 :]]
                yield f"{key} = {value}", "\n".join(changed).encode()
        yield "a key that is not known", text.replace("folder", "colour = 1\nfolder").encode()
        yield from cuts(text.encode(), 20, rng)
        yield from flips(text.encode(), 20, rng)

    def act(content: bytes) -> Callable[[], Any]:
        def read() -> Any:
            (tmp_path / "corpora.toml").write_bytes(content)
            return known_corpora()

        return read

    def right(found: dict[str, corpora.Corpus]) -> bool:
        return all(
            isinstance(corpus.title, str)
            and all(isinstance(one, str) for one in corpus.languages)
            and all(isinstance(part, str) for parts in corpus.splits.values() for part in parts)
            and all(isinstance(entry, CorpusFile) for entry in corpus.files.values())
            for corpus in found.values()
        )

    judge("registers", ((name, act(content)) for name, content in contents()), right)


TEXT = "".join(f"line {n} of a text: {n * n}\n" for n in range(400)).encode()


def archives() -> dict[str, tuple[str, bytes]]:
    """A text in each kind of archive: name, member, bytes."""
    packed: dict[str, tuple[str, bytes]] = {
        "a.gz": ("", gzip.compress(TEXT)), "a.xz": ("", lzma.compress(TEXT)),
    }  # fmt: skip
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("folder/text", TEXT)
    packed["a.zip"] = ("folder/text", memory.getvalue())
    for name, mode in ("a.tgz", "w:gz"), ("a.tar.xz", "w:xz"):
        memory = io.BytesIO()
        with tarfile.open(fileobj=memory, mode=mode) as tar:
            entry = tarfile.TarInfo("folder/text")
            entry.size = len(TEXT)
            tar.addfile(entry, io.BytesIO(TEXT))
        packed[name] = ("folder/text", memory.getvalue())
    return packed


def test_archives(tmp_path: Path):
    rng = random.Random(9)

    def act(name: str, member: str, content: bytes) -> Callable[[], Any]:
        def read() -> Any:
            (tmp_path / name).write_bytes(content)
            return b"".join(part_lines(tmp_path / name, member))

        return read

    def cases() -> Iterator[Case]:
        packed = archives()
        for name, (member, whole) in packed.items():
            for what, content in [*cuts(whole, 20, rng), *flips(whole, 25, rng)]:
                yield f"{name} {what}", act(name, member, content)
            for other, (_, content) in packed.items():
                if other != name and member:  # a.tgz is a right a.gz, of other content
                    yield f"{other} under the name {name}", act(name, member, content)
            for strange in b"<html></html>", bytes(1000), TEXT:
                yield f"{name} of {strange[:9]!r}", act(name, member, strange)
            if member:
                yield f"{name} without its member", act(name, "folder/other", whole)
                yield f"{name} of a folder", act(name, "folder", whole)

    judge("archives", cases(), lambda found: found == TEXT)


class Handler(http.server.BaseHTTPRequestHandler):
    """A server that misbehaves in the way that the path names."""

    content = gzip.compress(TEXT * 40)

    def do_GET(self) -> None:
        how = self.path.split("/")[1]
        getattr(self, how)()

    def answer(self, code: int, body: bytes, length: int | None = None, **headers: str) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def whole(self) -> None:
        self.answer(200, self.content, len(self.content))

    def html(self) -> None:
        page = b"<!DOCTYPE html><html><body>Please sign in</body></html>"
        self.answer(200, page, len(page), Content_Type="text/html")

    def silent_html(self) -> None:
        page = b"<html><body>Not found</body></html>"
        self.answer(200, page, len(page))

    def empty(self) -> None:
        self.answer(200, b"", 0)

    def empty_without_length(self) -> None:
        self.answer(200, b"")

    def cut(self) -> None:
        self.answer(200, self.content[: len(self.content) // 2], len(self.content))

    def cut_without_length(self) -> None:
        self.answer(200, self.content[: len(self.content) // 2])

    def partial(self) -> None:
        half = len(self.content) // 2
        told = f"bytes 0-{half - 1}/{len(self.content)}"
        self.answer(206, self.content[:half], half, Content_Range=told)

    def partial_elsewhere(self) -> None:
        told = f"bytes 10-{len(self.content) - 1}/{len(self.content)}"
        self.answer(206, self.content[10:], len(self.content) - 10, Content_Range=told)

    def long(self) -> None:
        self.answer(200, self.content + b"more", len(self.content) + 4)

    def wrong_length(self) -> None:
        self.answer(200, self.content, len(self.content) - 7)

    def strange_length(self) -> None:
        self.answer(200, self.content, None, Content_Length="many")

    def negative_length(self) -> None:
        self.answer(200, self.content, -5)

    def other(self) -> None:
        other = gzip.compress(b"something else")
        self.answer(200, other, len(other))

    def altered(self) -> None:
        middle = len(self.content) // 2
        body = self.content[:middle] + b"\0\0\0" + self.content[middle + 3 :]
        self.answer(200, body, len(body))

    def around(self) -> None:
        self.answer(302, b"", 0, Location=self.path)

    def nowhere(self) -> None:
        self.answer(302, b"", 0, Location="gopher://example.org/")

    def file(self) -> None:
        self.answer(302, b"", 0, Location="file:///etc/hostname")

    def garbage(self) -> None:
        self.wfile.write(b"\xff\xfe\x00 no protocol at all\r\n\r\n")
        self.close_connection = True

    def hang_up(self) -> None:
        self.close_connection = True

    def forbidden(self) -> None:
        self.answer(403, b"no", 2)

    def broken(self) -> None:
        self.answer(500, b"<html>error</html>", 18)

    def gone(self) -> None:
        self.answer(410, b"", 0)

    def no_content(self) -> None:
        self.answer(204, b"")

    def log_message(self, *arguments: object) -> None:
        pass


HOW = [name for name in vars(Handler) if not name.startswith("_") and name not in (
    "do_GET", "answer", "log_message", "content")]  # fmt: skip


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY":
        monkeypatch.delenv(name, raising=False)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()


def test_downloads(server: str, tmp_path: Path):
    import hashlib

    content = Handler.content
    size, sha256 = len(content), hashlib.sha256(content).hexdigest()
    path = tmp_path / "cache" / "text.gz"

    def act(how: str, known: dict[str, Any], begun: bytes, before: bytes) -> Callable[[], Any]:
        def fetch() -> Any:
            shutil.rmtree(path.parent, ignore_errors=True)
            path.parent.mkdir()
            if begun:
                path.with_name("text.gz.part").write_bytes(begun)
            if before:
                path.write_bytes(before)
            try:
                return download(f"{server}/{how}/text.gz", path, **known).read_bytes()
            finally:
                left = path.read_bytes() if path.exists() else b""
                assert left in (content, before), "a wrong file stands in its place"

        return fetch

    def cases() -> Iterator[Case]:
        for how in HOW:
            for known in {}, {"size": size}, {"size": size, "sha256": sha256}:
                for begun in b"", content[:500], b"\0" * 500:
                    name = f"{how}, {' and '.join(known) or 'nothing'} known, {len(begun)} begun"
                    yield name, act(how, known, begun, b"")
                yield f"{how}, an older file there", act(how, known, b"", b"older")

    def right(found: bytes) -> bool:
        return found == content or gzip.decompress(found) == b"something else"

    # Where no sum is known, another whole file of the right kind cannot be told from the right one.
    cases_ = (c for c in cases() if not c[0].startswith(("other", "an older")))
    judge("downloads", cases_, right)


# --------------------------------------------------------------------------- trees, and the command


def test_trees():
    from annotated.machinery.parsing.linear import line_to_tree
    from annotated.machinery.parsing.trees import read_trees

    rng = random.Random(10)
    whole = "(S (NP (DT The) (NN cat)) (VP (VBD sat)) (. .))"
    tokens = whole.replace("(", " ( ").replace(")", " ) ").split()

    def lines() -> Iterator[str]:
        yield from ("", "(", ")", "()", "(S)", "(S ())", "((S))", "S", "(S (NP", "\0", "\ud800")
        yield from ("(" * 5000, "(" * 5000 + ")" * 5000, "(S " * 3000 + "x" + ")" * 3000)
        for _ in range(60):
            yield " ".join(rng.choices(tokens, k=rng.randrange(1, 30)))
            mixed = list(whole)
            for _ in range(3):
                mixed[rng.randrange(len(mixed))] = rng.choice("() \t\0é|+#")
            yield "".join(mixed)

    def right(found: Any) -> bool:
        return found is not None

    def cases() -> Iterator[Case]:
        for line in lines():
            yield f"tree {line!r:.50}", lambda line=line: list(read_trees([line]))
            yield f"line {line!r:.50}", lambda line=line: line_to_tree(line, ["The", "cat"])

    judge("trees", cases(), right)


@dataclass
class Said:
    code: int
    out: str
    error: str


def command(arguments: list[str], given: str, monkeypatch: pytest.MonkeyPatch) -> Said:
    out, error = io.StringIO(), io.StringIO()
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode("utf-8", "replace")))
    )
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", error)
    try:
        cli.main(arguments)
        code = 0
    except SystemExit as end:
        code = int(end.code or 0) if not isinstance(end.code, str) else 1
    finally:
        monkeypatch.undo()
    return Said(code, out.getvalue(), error.getvalue())


@pytest.mark.slow
def test_the_command(model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Exit status 0 with an answer, or 2 with a line that begins with the command's name."""
    rng = random.Random(11)
    (tmp_path / "text").write_text("A dog.\n")
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    model, text = str(model_folder), str(tmp_path / "text")
    binary, nothing = str(tmp_path / "binary"), str(tmp_path / "nothing")
    values = ["", "x", "-1", "0", "nan", "inf", "1e99", "99999999999", "\udc80", nothing, "--", "é"]
    options = ["--beam", "--alpha", "--max-extra", "--batch-tokens", "--device", "--n-best"]

    def arguments() -> Iterator[list[str]]:
        for option in options:
            for value in values:
                yield ["translate", model, "A dog.", f"{option}={value}"]
        for bad in (nothing, text, binary, str(tmp_path), "", "no-such-model", "\udc80"):
            yield ["translate", bad, "A dog."]
            yield ["evaluate", bad]
            yield ["score", bad, "--ref", text, "--lang", "de"]
            yield ["score", text, "--ref", bad, "--lang", "de"]
            yield ["average", bad, "--out", str(tmp_path / "mean")]
            yield ["treebank", "score", bad, text]
            yield ["treebank", "score", text, bad]
            yield ["data", "get", bad]
            yield ["paper", "import", bad]
            yield ["train", "--data", f"{bad}-en-de", "--out", str(tmp_path / "out")]
            yield ["train", "--data", bad, "--out", str(tmp_path / "out")]
            yield ["train", "--out", binary, "--data", f"{nothing}-en-de"]
        words = [
            "translate",
            "train",
            "--beam",
            "data",
            "list",
            "get",
            "--debug",
            "-x",
            "4",
            "paper",
        ]
        for _ in range(60):
            chosen = rng.choices([*words[2:], "é", model, nothing], k=rng.randrange(1, 5))
            yield [
                rng.choice(["translate", "data", "paper", "score", "nonsense", "average"]),
                *chosen,
            ]
        yield []

    def act(given: list[str]) -> Callable[[], Any]:
        return lambda: command(given, "A dog.\n\udc80\n", monkeypatch)

    def right(said: Said) -> bool:
        if said.code == 0:
            return "Traceback" not in said.error
        last = said.error.strip().splitlines()[-1] if said.error.strip() else ""
        return said.code == 2 and last.startswith("annotated") and "Traceback" not in said.error

    judge("commands", ((" ".join(a)[:90], act(a)) for a in arguments()), right)


def test_there_are_over_a_thousand():
    assert sum(LEAST.values()) >= 1000
