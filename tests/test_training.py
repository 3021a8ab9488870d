"""Section 5.2: a run that stops and goes on is the same run, and its files are whole or absent."""

import copy
import csv
import errno
import itertools
import json
import math
import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from torch import Tensor, nn

import annotated.training as training
from annotated.cli import main
from annotated.data import Batch, EncodedPairs, make_batch, train_bpe
from annotated.files import FileError, write_tensors, write_text
from annotated.launcher import command, launch
from annotated.model import EncoderDecoder, TransformerConfig, build_model, make_model
from annotated.optimizer import paper_optimizer, rate
from annotated.regularization import LabelSmoothing
from annotated.training import (
    INTERRUPTED,
    PRESETS,
    Processes,
    SimpleLossCompute,
    Trainer,
    TrainingConfig,
    TrainState,
    average_checkpoints,
    checkpoints,
    groups,
    longest_sentence,
    mix,
    preset,
    read_checkpoint,
    read_log,
    run_epoch,
    save_model,
    share_parts,
    start_run,
    train,
    update,
)
from annotated.translator import load_pretrained

EN = "zero one two three four five six seven eight nine".split()  # noqa: SIM905
DE = "null eins zwei drei vier fünf sechs sieben acht neun".split()  # noqa: SIM905


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of texts: numbers, digit by digit."""
    folder = tmp_path_factory.mktemp("digits")
    numbers = [str(n * n + 7) for n in range(3, 83)]
    for split, part in ("train", numbers[:60]), ("dev", numbers[60:]):
        for lang, words in ("en", EN), ("de", DE):
            lines = [" ".join(words[int(digit)] for digit in number) for number in part]
            text = "".join(f"{line}.\n" for line in lines)
            (folder / f"{split}.{lang}").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def config(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainingConfig:
    """A run of a second: a tiny model on the tiny corpus, some 8 batches a pass."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    shape = {"vocab_size": 60, "N": 1, "d_model": 16, "d_ff": 32, "h": 2, "dropout": 0.1}
    return TrainingConfig(
        out=str(tmp_path / "run"),
        data=f"{corpus}-en-de",
        src_tokens=120,
        tgt_tokens=120,
        warmup=20,
        updates=30,
        save_updates=10,
        log_updates=5,
        average=2,
        **shape,
    )


def rows(config: TrainingConfig) -> list[dict[str, str]]:
    with (Path(config.out) / "log.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


EXACT = "update", "epoch", "target_tokens", "learning_rate", "train_loss", "dev_loss"


def exact(config: TrainingConfig) -> list[list[str]]:
    """The log without its clock."""
    return [[row[key] for key in EXACT] for row in rows(config)]


def tensors(path: Path) -> dict[str, np.ndarray]:
    return load_file(path)


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def assert_same_run(one: TrainingConfig, two: TrainingConfig) -> None:
    """Two runs left the same checkpoints, model and log."""
    assert [p.name for p in checkpoints(one.out)] == [p.name for p in checkpoints(two.out)]
    for name in [path.name for path in checkpoints(one.out)] + ["model.safetensors"]:
        assert same(tensors(Path(one.out) / name), tensors(Path(two.out) / name)), name
    assert exact(one) == exact(two)


# ------------------------------------------------------------------------------------------- runs


@pytest.mark.parametrize("parts", [1, 3])
def test_a_run_that_stopped_goes_on_as_if_it_had_not(config, tmp_path: Path, parts: int):
    config = replace(config, parts=parts)
    train(config)
    stopped = replace(config, out=str(tmp_path / "stopped"))
    train(replace(stopped, updates=20))
    assert rows(stopped)[-1]["update"] == "20"
    train(stopped, resume=True)
    assert_same_run(config, stopped)


@pytest.mark.parametrize("at", [13, 15, 20])  # between rows; at a row; at a checkpoint
def test_ctrl_c_finishes_the_update_saves_and_says_how(config, tmp_path, monkeypatch, at):
    train(config)
    stopped = replace(config, out=str(tmp_path / "stopped"))
    before = signal.getsignal(signal.SIGINT)
    real, count = training.update, 0

    def press(trainer: Trainer, group: training.Group) -> float:
        nonlocal count
        count += 1
        if count == at:
            os.kill(os.getpid(), signal.SIGINT)
        return real(trainer, group)

    monkeypatch.setattr(training, "update", press)
    with pytest.raises(KeyboardInterrupt, match=rf"stopped after update {at}, and saved.*--resume"):
        train(stopped)
    assert signal.getsignal(signal.SIGINT) is before
    assert (Path(stopped.out) / INTERRUPTED).exists()
    train(stopped, resume=True)
    assert count == 30 and not (Path(stopped.out) / INTERRUPTED).exists()
    assert_same_run(config, stopped)


def test_a_second_ctrl_c_stops_at_once():
    with training.StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wanted
        with pytest.raises(KeyboardInterrupt, match="at once"):
            os.kill(os.getpid(), signal.SIGINT)
    with training.StopRequest(alone=False) as stop:  # torchrun passes the signal on once more
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wanted


def start(config: TrainingConfig, processes: int = 0) -> subprocess.Popen:
    """The run as a process of its own, or as torchrun with several."""
    words = command(config, max(processes, 1), resume=True)
    if not processes:  # without torchrun
        words = [sys.executable, *words[words.index("annotated") - 1 :]]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(words, env=environment, **pipes)


def test_kill_9_at_any_moment(config: TrainingConfig, tmp_path: Path):
    """Killed again and again, the run ends in the very same files."""
    config = replace(config, updates=400, save_updates=10)
    train(config)
    killed = replace(config, out=str(tmp_path / "killed"))
    random.seed(0)
    log, kills, reached = Path(killed.out) / "log.csv", 0, 0
    while kills < 3:
        process = start(killed)
        while process.poll() is None and last_update(log) < reached + 10:
            time.sleep(0.01)  # wait until it has got somewhere new, then let chance decide
        time.sleep(random.uniform(0, 0.3))
        kills += process.poll() is None
        process.kill()
        process.communicate()
        reached = last_update(log)
        assert reached < config.updates, "the run was over before it could be killed"
    assert start(killed).wait() == 0
    assert_same_run(config, killed)


def last_update(log: Path) -> int:
    saved = read_log(log)
    return int(saved[-1]["update"]) if saved else 0


def test_a_damaged_checkpoint_is_set_aside(config: TrainingConfig, tmp_path: Path, capsys):
    train(config)
    for damage in "cut off", "altered", "empty":
        hurt = replace(config, out=str(tmp_path / damage))
        train(replace(hurt, updates=20))
        path = checkpoints(hurt.out)[-1]
        whole = path.read_bytes()
        changed = bytearray(whole)
        changed[-100] ^= 1
        path.write_bytes({"cut off": whole[:-1], "altered": bytes(changed), "empty": b""}[damage])
        with pytest.raises(ValueError, match="expected a whole checkpoint"):
            read_checkpoint(path)
        train(hurt, resume=True)
        said = "".join(capsys.readouterr())
        assert f"{path}: expected a whole checkpoint" in said and "going on from" in said
        assert path.with_name(path.name + ".damaged").exists()
        assert_same_run(config, hurt)


def test_a_run_cut_off_between_log_and_checkpoint(config: TrainingConfig, tmp_path: Path):
    """The log has rows more than there are checkpoints, the last one torn; both are done again."""
    train(config)
    cut = replace(config, out=str(tmp_path / "cut"))
    train(replace(cut, updates=20))
    checkpoints(cut.out)[-1].unlink()
    with (Path(cut.out) / "log.csv").open("a") as file:
        file.write("25,3,0.0")
    train(cut, resume=True)
    assert_same_run(config, cut)


def test_a_checkpoint_that_cannot_be_written_costs_no_other(config, tmp_path, monkeypatch):
    train(config)
    other = replace(config, out=str(tmp_path / "other"))
    train(replace(other, updates=10))
    with monkeypatch.context() as patch:
        patch.setattr("annotated.files.save_file", half_written)
        with pytest.raises(OSError, match="no space"):
            train(other, resume=True)
    assert [path.name for path in checkpoints(other.out)] == ["checkpoint-00000010.safetensors"]
    train(other, resume=True)
    assert_same_run(config, other)


def test_a_folder_with_a_run_is_not_overwritten(config: TrainingConfig, tmp_path: Path):
    train(replace(config, updates=10))
    before = {path.name: path.read_bytes() for path in Path(config.out).iterdir()}
    with pytest.raises(ValueError, match="already holds a run; continue it with --resume"):
        train(config)
    with pytest.raises(ValueError, match="has d_ff=32; it cannot go on with 64"):
        train(replace(config, d_ff=64), resume=True)
    assert before == {path.name: path.read_bytes() for path in Path(config.out).iterdir()}
    train(replace(config, average=1), resume=True)  # what may change may change
    train(replace(config, out=str(tmp_path / "new")), resume=True)  # nothing there: a new run


def test_what_a_run_leaves_behind(config: TrainingConfig, corpus: Path):
    folder = train(config)
    assert folder == Path(config.out)
    assert sorted(path.name for path in folder.iterdir()) == [
        ".lock",
        "checkpoint-00000020.safetensors",
        "checkpoint-00000030.safetensors",  # average = 2 are kept
        "config.json",
        "dev.pairs",
        "log.csv",
        "model.safetensors",
        "tokenizer.json",
        "train.pairs",
        "training.json",
    ]
    assert training.read_config(folder) == replace(config, parts=1)  # one for each process
    log = rows(config)
    assert [int(row["update"]) for row in log] == [5, 10, 15, 20, 25, 30]
    assert [bool(row["dev_loss"]) for row in log] == [False, True] * 3
    for row in log:
        used = int(row["update"]) + 1  # the rate that the next update will use
        assert float(row["learning_rate"]) == pytest.approx(rate(used, 16, 1.0, 20))
    losses = [float(row["train_loss"]) for row in log]
    assert losses[-1] < losses[0]
    minutes = [float(row["minutes"]) for row in log]
    assert minutes == sorted(minutes)


def test_a_pass_sees_every_token_once(config: TrainingConfig, corpus: Path):
    """Tokens counted by the trainer, against the tokenizer line by line."""
    trainer = start_run(replace(config, parts=2))
    translator_tokens = 0
    tokenizer = training.Tokenizer.from_file(str(Path(config.out) / "tokenizer.json"))
    for line in (corpus / "train.de").read_text(encoding="utf-8").splitlines():
        translator_tokens += len(tokenizer.encode(line).ids) + 1
    seen, tokens = [], 0
    for group in groups(trainer):
        inside = [part for part in group.parts if part.epoch == 0]
        seen += [pair for part in inside for pair in part.pairs]
        tokens += sum(len(trainer.pairs[pair][1]) - 1 for part in inside for pair in part.pairs)
        assert group.tokens == sum(
            int((tgt[:, 1:] != training.PAD).sum()) for _, _, tgt in group.share
        )
        for _, src, tgt in group.share:
            assert src.numel() <= config.src_tokens // 2 and tgt.numel() <= config.tgt_tokens // 2
        if group.parts[-1].epoch > 0:
            break
    assert sorted(seen) == list(range(60)) and tokens == translator_tokens


def test_passes_and_seeds_differ_in_order(config: TrainingConfig):
    trainer = start_run(config)
    stream = training.parts_from(trainer, 0, 0)
    parts = [next(stream) for _ in range(40)]
    first, second = ([p.pairs for p in parts if p.epoch == epoch] for epoch in (0, 1))
    assert first != second
    assert sorted(itertools.chain(*first)) == sorted(itertools.chain(*second))
    later = training.parts_from(trainer, parts[11].epoch, parts[11].batch)
    assert [next(later) for _ in range(5)] == parts[11:16]
    other = Trainer(replace(config, seed=2), trainer.pairs, trainer.dev_pairs)
    assert [p.pairs for p in (next(training.parts_from(other, 0, 0)),)] != first[:1]
    assert (
        len(
            {
                mix(seed, epoch, batch)
                for seed in range(9)
                for epoch in range(9)
                for batch in range(9)
            }
        )
        == 729
    )


def test_sentences_that_are_too_long_are_left_out_and_counted(config: TrainingConfig, capsys):
    trainer = start_run(replace(config, max_pieces=8))
    longest = trainer.pairs.lengths.max(axis=1)
    assert 0 < len(trainer.kept) < 60 and set(trainer.kept) == set(np.flatnonzero(longest <= 8))
    assert f"{60 - len(trainer.kept)} of 60 training pairs are too long" in "".join(
        capsys.readouterr()
    )
    with pytest.raises(ValueError, match="no training pair of at most 2 pieces"):
        start_run(replace(config, max_pieces=2, out=config.out + "2"))


def test_the_dev_loss_in_the_log_is_that_of_the_checkpoint(config: TrainingConfig):
    """Computed again by hand, sentence by sentence, without batches or masks for padding."""
    train(config)
    trainer = start_run(config, resume=True)  # holds the weights of the last checkpoint
    trainer.model.eval()
    total, count = 0.0, 0
    for i in range(len(trainer.dev_pairs)):
        src, tgt = trainer.dev_pairs[i]
        batch = make_batch([(src, tgt)])
        with torch.no_grad():
            out = trainer.model(batch.src, batch.tgt, None, batch.tgt_mask)
            log_probs = trainer.model.generator(out)[0]
        total -= sum(float(log_probs[i, token]) for i, token in enumerate(tgt[1:]))
        count += len(tgt) - 1
    assert float(rows(config)[-1]["dev_loss"]) == pytest.approx(total / count, abs=1e-4)


def test_an_update_is_adam_on_the_mean_per_token(config: TrainingConfig):
    """Three parts in one update, against one loss over the same sentences one by one."""
    trainer = start_run(replace(config, parts=3, dropout=0.0))
    by_hand = copy.deepcopy(trainer.model)
    optimizer, _ = paper_optimizer(by_hand, 16, 1.0, 20)
    group = next(groups(trainer))
    total, count = torch.zeros(()), 0
    for pair in [pair for part in group.parts for pair in part.pairs]:
        batch = make_batch([trainer.pairs[pair]])
        out = by_hand(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
        total = total + nn.functional.cross_entropy(
            by_hand.generator.proj(out)[0], batch.tgt_y[0], reduction="sum", label_smoothing=0.1
        )
        count += batch.tgt_y.numel()
    (total / count).backward()
    optimizer.step()
    assert update(trainer, group) == pytest.approx(float(total.detach()), rel=1e-5)
    assert group.tokens == count
    for (name, a), (_, b) in zip(
        trainer.model.named_parameters(), by_hand.named_parameters(), strict=True
    ):
        # Adam's first step is the sign of the gradient times the rate: allow for gradients near 0
        assert float((a - b).detach().abs().mean()) < 1e-5, name


def test_a_tiny_run_learns(config: TrainingConfig):
    long = replace(config, updates=150, warmup=60, dropout=0.0, label_smoothing=0.0, factor=2.0)
    train(long)
    log = [row for row in rows(long) if row["dev_loss"]]
    assert float(log[-1]["dev_loss"]) < 0.5 * float(log[0]["dev_loss"])


def test_bfloat16_learns_as_float32_does(config: TrainingConfig, tmp_path: Path):
    train(config)
    half = replace(config, precision="bfloat16", out=str(tmp_path / "half"))
    train(half)
    for one, two in zip(rows(config), rows(half), strict=True):
        assert float(one["train_loss"]) == pytest.approx(float(two["train_loss"]), rel=0.05)
    assert exact(config) != exact(half)
    assert all(v.dtype == np.float32 for v in tensors(checkpoints(half.out)[-1]).values())


def test_the_model_is_the_mean_of_the_last_checkpoints_in_half_precision(config: TrainingConfig):
    folder = train(config)
    files = [tensors(path) for path in checkpoints(folder)]
    model = tensors(folder / "model.safetensors")
    names = [name.removeprefix("model.") for name in files[0] if name.startswith("model.")]
    assert sorted(model) == sorted(names)
    for name in names:
        mean = np.mean([file[f"model.{name}"].astype(np.float64) for file in files], axis=0)
        assert model[name].dtype == np.float16
        np.testing.assert_allclose(model[name], mean, rtol=1e-3, atol=1e-7)
    shape = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert TransformerConfig(**shape) == training.model_config(config)


def test_two_seeds_two_models(config: TrainingConfig, tmp_path: Path):
    one = train(replace(config, updates=10))
    again = train(replace(config, updates=10, out=str(tmp_path / "again")))
    other = train(replace(config, updates=10, seed=2, out=str(tmp_path / "other")))
    models = [tensors(checkpoints(folder)[-1]) for folder in (one, again, other)]
    assert same(models[0], models[1]) and not same(models[0], models[2])


def test_checkpoints_by_the_clock(config: TrainingConfig, monkeypatch: pytest.MonkeyPatch):
    """A minute passes with every look at the clock."""
    clock = iter(range(0, 10**6, 60))
    monkeypatch.setattr(training.time, "monotonic", lambda: next(clock))
    train(replace(config, save_updates=0, save_minutes=7.0, average=9))
    saved = [int(path.stem.removeprefix("checkpoint-")) for path in checkpoints(config.out)]
    assert saved == [7, 14, 21, 28, 30]


def test_a_loss_that_is_not_finite_names_update_and_batches(config: TrainingConfig):
    trainer = start_run(config)
    group = next(groups(trainer))
    with torch.no_grad():
        trainer.model.generator.proj.weight[3, 0] = math.nan
    before = copy.deepcopy(trainer.model.encoder)
    pairs = str(group.parts[0].pairs[:5])[1:-1]
    with pytest.raises(ValueError, match=f"got nan in update 1 .epoch 1, batch 1: pairs .{pairs}"):
        update(trainer, group)
    assert equal(trainer.model.encoder, before)


def test_weights_that_are_not_finite_are_never_saved(config: TrainingConfig):
    trainer = start_run(config)
    with torch.no_grad():
        trainer.model.generator.proj.weight[3, 0] = math.nan
    with pytest.raises(ValueError, match=r"got nan on the validation set after update 0\."):
        training.record(trainer, training.RunLog(Path(config.out)))
    assert not checkpoints(config.out)


def test_a_start_that_broke_off_leaves_nothing_behind(config: TrainingConfig, tmp_path: Path):
    """Pieces and pairs of the first corpus, whose validation set was refused, are not used."""
    for name, lines in ("train", "x y z\n" * 9), ("dev", ""):
        for lang in "en", "de":
            (tmp_path / f"{name}.{lang}").write_text(lines, encoding="utf-8")
    with pytest.raises(ValueError, match=r"pairs to train and to validate on; .* has no dev"):
        train(replace(config, data=f"{tmp_path}-en-de", vocab_size=20))
    assert not (Path(config.out) / "training.json").exists()
    other = replace(config, out=str(tmp_path / "other"))
    for settings in config, other:
        train(settings)
    assert_same_run(config, other)


def test_a_run_keeps_its_number_of_parts(config: TrainingConfig):
    """Other batches than those that it counts would repeat some pairs and leave out others."""
    train(config)
    more = training.Processes(size=2)
    with pytest.raises(ValueError, match="has parts=1; it cannot go on with 2"):
        start_run(config, resume=True, processes=more)


def test_a_run_cannot_end_before_it_stands(config: TrainingConfig):
    train(config)
    with pytest.raises(ValueError, match="has made 30 updates; it cannot end at 20"):
        train(replace(config, updates=20), resume=True)


# -------------------------------------------------------------------------------------- processes


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def test_two_processes_take_the_steps_of_one(config: TrainingConfig, tmp_path: Path):
    """Same global batch: same losses, dropout included, up to the order of additions."""
    config = replace(config, parts=2, updates=20)
    train(config)
    two = replace(config, out=str(tmp_path / "two"))
    process = start(two, processes=2)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert_close(config, two)


def test_two_machines_take_the_steps_of_one(config: TrainingConfig, tmp_path: Path):
    """Two torchrun agents that meet on the loopback interface, as two machines would."""
    config = replace(config, parts=2, updates=20)
    train(config)
    two = replace(config, out=str(tmp_path / "two"))
    words = command(two, 1, resume=True)
    meet = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}"]
    at = words.index("--standalone")
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    line = [*words[:at], *meet, *words[at + 1 :]]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    agents = [subprocess.Popen(line, env=environment, **pipes) for _ in range(2)]
    outputs = [agent.communicate(timeout=120)[0] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], outputs
    assert_close(config, two)


def assert_close(one: TrainingConfig, two: TrainingConfig) -> None:
    """The logs of two runs agree to the printed digits, the weights to rounding."""
    for a, b in zip(exact(one), exact(two), strict=True):
        assert a[:4] == b[:4]
        assert [float(x or 0) for x in a[4:]] == pytest.approx(
            [float(x or 0) for x in b[4:]], abs=2e-4
        )
    a, b = (tensors(checkpoints(config.out)[-1]) for config in (one, two))
    for name in a:
        np.testing.assert_allclose(a[name], b[name], atol=1e-3, rtol=1e-2, err_msg=name)


def test_torchrun_passes_ctrl_c_on(config: TrainingConfig):
    long = replace(config, updates=100_000, log_updates=1, save_updates=10**6, parts=2)
    words = command(long, 2)
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = subprocess.Popen(words, env=environment, start_new_session=True, **pipes)
    while process.poll() is None and last_update(Path(long.out) / "log.csv") < 5:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    state = read_checkpoint(Path(long.out) / INTERRUPTED)[1]
    assert state["progress"]["update"] >= 5
    assert f"stopped after update {state['progress']['update']}, and saved" in output


@pytest.mark.parametrize(
    ("end", "orderly"),
    [(None, True), (training.Stopped("saved"), True), (RuntimeError("out of memory"), False),
     (KeyboardInterrupt(), False), (ValueError("expected a finite loss"), False)],
)  # fmt: skip
def test_a_process_that_fails_waits_for_no_other(monkeypatch, end: BaseException, orderly: bool):
    """To destroy the group is to wait until all others do."""
    waited = []
    monkeypatch.setattr(training.distributed, "destroy_process_group", lambda: waited.append(1))
    monkeypatch.setattr(training.distributed, "barrier", lambda: waited.append(1))
    with suppress(BaseException), training.leaving(Processes(rank=1, size=2)):
        if end:
            raise end
    assert bool(waited) == orderly


FAILING = """
import sys
from annotated import training
from annotated.cli import main
real, count = training.update, 0
def update(trainer, group):
    global count
    count += 1
    if count == 3 and trainer.processes.rank == 1:
        raise ValueError("out of memory")
    return real(trainer, group)
training.update = update
main(sys.argv[1:])
"""


def test_the_failure_of_one_process_ends_the_run(config: TrainingConfig, tmp_path: Path):
    long = replace(config, updates=100_000, save_updates=10**6, parts=2)
    script = tmp_path / "failing.py"
    script.write_text(FAILING)
    words = command(long, 2)
    words = [*words[: words.index("-m", 3)], str(script), *words[words.index("train") :]]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    pipes = {"capture_output": True, "text": True, "check": False}
    ended = subprocess.run(words, env=environment, timeout=120, **pipes)
    assert ended.returncode != 0 and "annotated: out of memory" in ended.stderr


def test_parts_are_shared_out_evenly():
    assert share_parts(0, 1) == 1 and share_parts(0, 8) == 8 and share_parts(16, 8) == 16
    with pytest.raises(ValueError, match="multiple of the 8 processes; got 12"):
        share_parts(12, 8)
    config = TrainingConfig(src_tokens=1000, tgt_tokens=800, max_pieces=256)
    assert [longest_sentence(config, parts) for parts in (1, 4)] == [256, 200]
    alone = Processes()
    assert alone.any(True, False) == [True, False] and alone.first("x") == "x"
    assert torch.equal(alone.reduce(torch.ones(2)), torch.ones(2))


# ---------------------------------------------------------------------------------- configurations


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"N": 0}, "expected N of at least 1; got 0"),
        ({"updates": -3}, "expected updates of at least 1; got -3"),
        ({"dropout": 1.0}, r"expected dropout in \[0, 1\); got 1.0"),
        ({"label_smoothing": 1.5}, r"expected label_smoothing in \[0, 1\); got 1.5"),
        ({"vocabulary": "words"}, "expected vocabulary out of bpe, wordpiece; got 'words'"),
        ({"precision": "int8"}, "expected precision out of auto"),
        ({"data": "multi30k"}, "expected data as CORPUS-SRC-TGT"),
        ({"h": 5}, "d_model"),
        ({"save_updates": 0}, "expected save_updates or save_minutes above 0"),
        ({"factor": math.nan}, "expected factor as a finite float; got nan"),
        ({"factor": math.inf}, "expected factor as a finite float; got inf"),
        ({"seed": 1.5}, "expected seed as int; got 1.5"),
        ({"N": None}, "expected N as int; got None"),
        ({"N": True}, "expected N as int; got True"),
        ({"d_ff": "32"}, "expected d_ff as int; got '32'"),
        ({"compile": "no"}, "expected compile as bool; got 'no'"),
        ({"data": 3}, "expected data as str; got 3"),
        ({"out": b"x"}, "expected out as str; got b'x'"),
    ],
)
def test_a_wrong_option_is_refused_at_once(change: dict, message: str):
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**change)


def test_a_run_begins_where_another_ended(config, tmp_path: Path):
    """One that starts from a model and learns nothing is that model."""
    folder = train(config)
    learnt = tensors(folder / "model.safetensors")
    still = replace(config, weights=str(folder), out=str(tmp_path / "still"), factor=0.0, seed=7)
    for name, parameter in start_run(still).model.named_parameters():
        np.testing.assert_array_equal(parameter.detach(), learnt[name])
    train(still, resume=True)
    assert same(tensors(tmp_path / "still" / "model.safetensors"), learnt)
    old, new = (path / "tokenizer.json" for path in (folder, tmp_path / "still"))
    assert new.read_text("utf-8") == old.read_text("utf-8")
    assert int(rows(still)[-1]["update"]) == config.updates  # counted from nought


def test_a_run_cannot_begin_with_a_model_of_another_size(config, tmp_path: Path):
    folder = train(config)
    other = replace(config, weights=str(folder), out=str(tmp_path / "other"), d_ff=24)
    with pytest.raises(ValueError, match=rf"d_ff={config.d_ff} \(asked for: 24\)"):
        train(other)
    with pytest.raises(ValueError, match="expected a folder with model"):
        train(replace(other, weights="nothing", out=str(tmp_path / "third")))


def test_the_papers_presets():
    """Sections 5.1 to 5.4, Table 3, and the parameter counts of its first and last row."""
    base, big = preset("base-en-de"), preset("big-en-de", out="x")
    assert (base.N, base.d_model, base.d_ff, base.h, base.dropout) == (6, 512, 2048, 8, 0.1)
    assert (big.d_model, big.d_ff, big.h, big.dropout, big.updates) == (
        1024,
        4096,
        16,
        0.3,
        300_000,
    )
    assert (base.updates, base.warmup, base.average, base.save_updates) == (100_000, 4000, 5, 1500)
    assert base.src_tokens == base.tgt_tokens == 25_000 and base.label_smoothing == 0.1
    assert preset("big-en-fr").dropout == 0.1 and preset("big-en-fr").average == 20
    assert (base.out, big.out) == ("runs/base-en-de", "x")
    assert training.model_config(base) == TransformerConfig.base(37000, max_len=512)
    assert training.model_config(big) == TransformerConfig.big(37000, max_len=512)
    for name in PRESETS.keys() - {"craft-parser", "parser-wsj", "parser-semi"}:
        assert preset(name).data.rsplit("-", 2)[1:] == name.rsplit("-", 2)[1:]
    with pytest.raises(ValueError, match="expected a preset out of multi30k-en-de"):
        preset("huge")


@pytest.mark.parametrize(
    ("name", "pieces", "data"), [("parser-wsj", 16_000, "penn"), ("parser-semi", 32_000, "semi")]
)
def test_the_papers_parsers_differ_from_base_as_section_6_3_says(name, pieces, data):
    base, parser = asdict(preset("base-en-de")), asdict(preset(name))
    assert {key: parser[key] for key in base if parser[key] != base[key]} == {
        "out": f"runs/{name}",
        "data": f"runs/{data}-words-trees",
        "vocab_size": pieces,
        "N": 4,
        "d_model": 1024,
        "max_pieces": 1000,
    }
    model = training.model_config(preset(name))
    assert model == TransformerConfig.base(pieces, N=4, d_model=1024, max_len=1002)
    with torch.device("meta"):
        attention = build_model(model).encoder.layers[0].self_attn
    assert (attention.h, attention.d_k, attention.d_v) == (8, 128, 128)


def test_the_dropout_of_attention_reaches_the_model(config: TrainingConfig):
    options = command(replace(config, updates=1, save_updates=1), 1)
    main([*options[options.index("train") :], "--attention-dropout", "0.25"])
    folder = Path(config.out)
    assert training.read_config(folder).attention_dropout == 0.25
    attention = load_pretrained(str(folder)).model.decoder.layers[0].src_attn
    assert attention.dropout.p == 0.25
    old = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    del old["attention_dropout"]  # a run from before there was such an option
    training.write_text(folder / "training.json", json.dumps(old))
    assert training.read_config(folder).attention_dropout == 0


def test_precision_is_chosen_by_the_device(monkeypatch: pytest.MonkeyPatch):
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert training.find_precision("auto", cpu) == torch.float32
    assert training.find_precision("bfloat16", cpu) == torch.bfloat16
    for capability, dtype in (
        ((7, 5), torch.float16),
        ((8, 0), torch.bfloat16),
        ((9, 0), torch.bfloat16),
    ):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, c=capability: c)
        assert training.find_precision("auto", cuda) == dtype


def test_the_command_line_resumes_with_the_options_of_the_run(config, capsys):
    options = command(replace(config, updates=10), 1)
    options = options[options.index("train") :]
    main(options)
    assert capsys.readouterr().out.strip() == config.out
    main(["train", "--out", config.out, "--resume", "--updates", "20"])
    assert training.read_config(Path(config.out)) == replace(config, updates=20, parts=1)
    assert rows(config)[-1]["update"] == "20"


# ------------------------------------------------------------------------------------------ files


def test_average_checkpoints(tmp_path: Path):
    paths, kept = [], []
    for i in range(3):
        weights = {"a": torch.randn(3, 4), "b.c": torch.randn(2)}
        kept.append(weights)
        paths.append(tmp_path / f"checkpoint-{i:04d}.safetensors")
        saved = {f"model.{k}": v for k, v in weights.items()} | {"exp_avg.a": torch.randn(3, 4)}
        write_tensors(paths[-1], saved, {})
    mean = average_checkpoints(paths)
    assert sorted(mean) == ["a", "b.c"]
    for name, tensor in mean.items():
        expected = np.mean([weights[name].numpy().astype(np.float64) for weights in kept], axis=0)
        np.testing.assert_allclose(tensor.numpy(), expected, atol=1e-6)
    one = average_checkpoints(paths[:1])
    assert all(torch.equal(one[name], kept[0][name]) for name in one)
    with pytest.raises(ValueError, match="at least one checkpoint"):
        average_checkpoints([])


def broken(*arguments: object, **options: object) -> None:
    raise OSError("no space left on device")


def half_written(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
    Path(path).write_bytes(b"half of a fi")
    broken()


@pytest.mark.parametrize(("name", "failure"), [("os.replace", broken), ("save_file", half_written)])
def test_tensors_are_written_whole_or_not_at_all(tmp_path: Path, monkeypatch, name, failure):
    path = tmp_path / "weights.safetensors"
    write_tensors(path, {"x": torch.ones(2)}, {})
    old = path.read_bytes()
    monkeypatch.setattr(f"annotated.files.{name}", failure)
    with pytest.raises(OSError, match="no space"):
        write_tensors(path, {"x": torch.zeros(3)}, {})
    assert path.read_bytes() == old
    monkeypatch.undo()
    write_tensors(path, {"x": torch.zeros(3)}, {})  # and the rest of the failure is no obstacle
    assert tensors(path)["x"].shape == (3,)
    assert [p.name for p in tmp_path.iterdir()] == ["weights.safetensors"]


def test_text_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch):
    path = tmp_path / "log.csv"
    write_text(path, "old\n")
    monkeypatch.setattr("annotated.files.os.replace", broken)
    with pytest.raises(OSError, match="no space"):
        write_text(path, "new\n")
    assert path.read_text(encoding="utf-8") == "old\n"


def test_save_and_load(tmp_path: Path):
    model = make_model(60, 60, N=1, d_model=16, d_ff=32, h=2, tie_embeddings=True).eval()
    save_model(tmp_path, dict(model.named_parameters()), model.config)
    (tmp_path / "tokenizer.json").write_text(train_bpe(["a b"], 60).to_str())
    loaded = load_pretrained(tmp_path).model
    assert asdict(loaded.config) == asdict(model.config) and not loaded.training
    for (name, old), (_, new) in zip(
        model.named_parameters(), loaded.named_parameters(), strict=True
    ):
        torch.testing.assert_close(new, old, rtol=2**-11, atol=1e-7, msg=name)
        assert new.dtype == torch.float32
    assert loaded.src_embed[0].lut.weight is loaded.generator.proj.weight  # still tied


# ---------------------------------------------------------------------------------- what it costs


def made_pairs(number: int) -> EncodedPairs:
    """So many pairs of ten ids a side."""
    ids, ends = np.ones(10 * number, np.uint16), np.arange(0, 10 * number + 1, 10)
    return EncodedPairs(ids, ends, ids, ends)


def test_the_data_of_an_update_cost_the_same_in_a_small_corpus_and_a_large_one(config):
    config = replace(config, src_tokens=480, tgt_tokens=480, parts=4)
    streams = [groups(Trainer(config, made_pairs(n), made_pairs(5))) for n in (20_000, 400_000)]
    times: list[list[float]] = [[], []]
    for stream in streams:
        next(stream)  # shuffles the corpus, once a pass
    for _, which in itertools.product(range(40), (0, 1)):
        started = time.perf_counter()
        next(streams[which])
        times[which].append(time.perf_counter() - started)
    small, large = map(min, times)  # the best of many: noise only ever adds
    assert large < 2.5 * small, f"{small * 1000:.2f} ms and {large * 1000:.2f} ms"


def test_the_speed_in_the_log_is_that_of_the_clock_on_the_wall(config, monkeypatch):
    """A run whose loader is slow on purpose, and which saves slowly too."""
    real, save = training.groups, training.save_checkpoint

    def starved(trainer: Trainer):
        for group in real(trainer):
            time.sleep(0.1)
            yield group

    def slow(*arguments: object) -> Path:
        time.sleep(1)
        return save(*arguments)

    monkeypatch.setattr(training, "groups", starved)
    monkeypatch.setattr(training, "save_checkpoint", slow)
    started = time.perf_counter()
    train(replace(config, updates=20, save_updates=10, log_updates=10))
    wall = time.perf_counter() - started
    log = rows(config)
    seen = [0, *(int(row["target_tokens"]) for row in log)]
    speeds = [int(row["tokens_per_second"]) for row in log]
    seconds = sum((b - a) / speed for a, b, speed in zip(seen, seen[1:], speeds, strict=False))
    # No faster than its data, of which a little comes while it saves, and no slower than all that
    # happened but for two saves of a second.
    assert 18 * 0.1 < seconds < wall - 2 * 1
    assert 60 * float(log[-1]["minutes"]) == pytest.approx(seconds, abs=0.4)
    assert all(float(row["waiting"]) > 0.3 for row in log)


def test_a_run_that_is_fed_hardly_waits(config: TrainingConfig):
    """The first row holds the start; by the last the loader is ahead of a device that is slow."""
    train(replace(config, updates=60, d_model=128, d_ff=512, N=2))
    assert float(rows(config)[-1]["waiting"]) < 0.5


# ---------------------------------------------------------------------------------------- float16


def test_an_update_that_float16_skips_does_not_move_the_schedule(config: TrainingConfig, tmp_path):
    """Started with a factor far too large, the scaler leaves out updates until it has come down."""
    half = replace(config, precision="float16", updates=10)
    trainer = start_run(half)
    trainer.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40, growth_interval=10**6)
    before = {name: x.clone() for name, x in trainer.model.state_dict().items()}
    coming, rates = groups(trainer), []
    while not trainer.progress.moves:
        training.timed_update(trainer, coming, time.perf_counter())
        rates.append(trainer.scheduler.get_last_lr()[0])
        moved = any(not torch.equal(x, before[n]) for n, x in trainer.model.state_dict().items())
        assert moved == bool(trainer.progress.moves)
    skipped = trainer.progress.skipped
    assert skipped >= 3 and trainer.progress.update == skipped + 1
    assert rates == [rate(1, 16, 1.0, 20)] * skipped + [rate(2, 16, 1.0, 20)]
    training.save_checkpoint(trainer)
    again = start_run(half, resume=True)
    assert again.scheduler.get_last_lr() == trainer.scheduler.get_last_lr()
    assert again.progress == trainer.progress
    assert again.scaler.get_scale() == trainer.scaler.get_scale()


def test_a_run_can_be_saved_before_its_first_step(config: TrainingConfig):
    trainer = start_run(config)
    assert not trainer.optimizer.state
    training.save_checkpoint(trainer)
    again = start_run(config, resume=True)
    for one in trainer, again:
        update(one, next(groups(one)))
    assert equal(trainer.model, again.model)


def test_a_run_goes_on_in_another_precision(config: TrainingConfig):
    train(replace(config, updates=10))
    train(replace(config, updates=20, precision="float16"), resume=True)
    train(replace(config, updates=30), resume=True)
    assert [row["update"] for row in rows(config)] == ["5", "10", "15", "20", "25", "30"]


# ---------------------------------------------------------------------------------- hostile files


def refused(config: TrainingConfig, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command says when it will not go on with a run: one line, and exit status 2."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(["train", "--out", config.out, "--resume"])
    said = [line for line in capsys.readouterr().err.splitlines() if line]
    assert end.value.code == 2 and said[-1].startswith("annotated: ")
    assert not any("Traceback" in line for line in said)
    return said[-1].removeprefix("annotated: ")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("", "expected the configuration of a run"),
        ("[1, 2]", "expected the configuration of a run"),
        ('{"N": 1', "expected the configuration of a run"),
        ("\0\0\0", "expected the configuration of a run"),
        ({"colour": "red"}, "got colour"),
        ({"seed": 1.5}, "expected seed as int; got 1.5"),
        ({"compile": "no"}, "expected compile as bool; got 'no'"),
        ({"d_model": None}, "expected d_model as int; got None"),
        ({"dropout": "0.1"}, "expected dropout as float; got '0.1'"),
        ({"updates": 0}, "expected updates of at least 1; got 0"),
        ({"precision": "int4"}, "expected precision out of auto"),
    ],
)
def test_a_damaged_configuration_is_named(config, capsys, change, told: str):
    train(replace(config, updates=10))
    path = Path(config.out) / "training.json"
    if isinstance(change, dict):
        change = json.dumps(json.loads(path.read_text(encoding="utf-8")) | change)
    path.write_text(change, encoding="utf-8")
    before = {x.name: x.read_bytes() for x in Path(config.out).iterdir()}
    said = refused(config, capsys)
    assert said.startswith(f"{path}: ") and told in said
    assert before == {x.name: x.read_bytes() for x in Path(config.out).iterdir()}


@pytest.mark.parametrize("name", ["d_model", "h", "dropout", "seed", "warmup", "N"])
@pytest.mark.parametrize("how", ["missing", "changed"])
def test_a_configuration_that_is_not_the_checkpoints_is_refused(config, capsys, name, how):
    """Also where the shapes of all tensors would still fit."""
    train(replace(config, updates=10))
    path = Path(config.out) / "training.json"
    kept = json.loads(path.read_text(encoding="utf-8"))
    was = kept.pop(name)
    if name == "seed" or how == "changed":  # 1 is the default, so leaving it out changes nothing
        kept[name] = was * 2
    path.write_text(json.dumps(kept), encoding="utf-8")
    said = refused(config, capsys)
    assert said.startswith(str(checkpoints(config.out)[-1])) and f"{name}={was}" in said
    assert "training.json" in said and not list(Path(config.out).glob("*.damaged"))


def test_checkpoints_without_their_configuration_are_not_trained_over(config, capsys):
    train(replace(config, updates=10))
    (Path(config.out) / "training.json").unlink()
    said = refused(config, capsys)
    assert "expected training.json beside checkpoint-00000010.safetensors" in said


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff\xfe", b'{"model": {"type": "BPE"}}'])
def test_a_damaged_vocabulary_is_named(config: TrainingConfig, capsys, content: bytes):
    train(replace(config, updates=10))
    path = Path(config.out) / "tokenizer.json"
    path.write_bytes(content)
    said = refused(config, capsys)
    assert said.startswith(f"{path}: expected the vocabulary of the run")


def test_a_vocabulary_of_another_run_is_refused(config: TrainingConfig, capsys):
    train(replace(config, updates=10))
    other = train_bpe(["a b"], 10)
    (Path(config.out) / "tokenizer.json").write_text(other.to_str(), encoding="utf-8")
    assert f"expected pairs of ids below {other.get_vocab_size()}" in refused(config, capsys)


def spoilt(pairs: EncodedPairs) -> dict[str, dict[str, np.ndarray]]:
    """Arrays that are no pairs, by what is wrong with them."""
    good = {name: getattr(pairs, name) for name in ("src", "src_ends", "tgt", "tgt_ends")}
    none = {"src": good["src"][:0], "src_ends": good["src_ends"][:1]}
    none |= {"tgt": good["tgt"][:0], "tgt_ends": good["tgt_ends"][:1]}
    backwards = good["src_ends"].copy()  # the rest of the ends is right
    backwards[3] = backwards[5]
    return {
        "an id too large": good | {"src": np.full_like(good["src"], 60)},
        "a negative id": good | {"tgt": np.where(good["tgt"] > 1, -1, 1).astype(np.int32)},
        "ends beyond the ids": good | {"src": good["src"][:-1]},
        "ids beyond the ends": good | {"tgt_ends": good["tgt_ends"][:-1]},
        "one side shorter": good | {"src": good["src"][: good["src_ends"][-2]],
                                    "src_ends": good["src_ends"][:-1]},
        "ends out of order": good | {"src_ends": backwards},
        "floats": good | {"src": good["src"].astype(np.float32)},
        "a side missing": {name: good[name] for name in ("src", "src_ends")},
        "a side too many": good | {"more": good["src"]},
        "no pairs": none,
        "ends of no dimension": good | {"src_ends": np.array(3)},
    }  # fmt: skip


@pytest.mark.parametrize("name", ["train", "dev"])
def test_damaged_pairs_are_named(config: TrainingConfig, capsys, name: str):
    train(replace(config, updates=10))
    path = Path(config.out) / f"{name}.pairs"
    whole = path.read_bytes()
    cases = spoilt(EncodedPairs.load(path))
    for wrong, arrays in cases.items():
        save_file(arrays, path)
        assert refused(config, capsys).startswith(f"{path}: expected "), wrong
    for damaged in b"", whole[:40], whole[:-1], b"PK" + whole:
        path.write_bytes(damaged)
        assert refused(config, capsys).startswith(f"{path}: expected the encoded pairs of a run")
    path.unlink()
    assert f"at {path}; there is no such file" in refused(config, capsys)
    path.write_bytes(whole)
    train(replace(config, updates=20), resume=True)


def edited(path: Path, old: bytes, new: bytes) -> None:
    """Change the header of a file, whose length stays the same."""
    content = path.read_bytes()
    assert content.count(old) == 1 and len(old) == len(new)
    path.write_bytes(content.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (rb"\"batch\": 2", rb"\"batch\": 3"),
        (rb"\"update\": 20", rb"\"update\": 29"),
        (rb"\"scaler\"", rb"\"scalar\""),
        (rb"\"update\"", rb"\"upbate\""),
        (rb"\"seed\": 1", rb"\"seed\": 7"),
    ],
)
def test_a_checkpoint_whose_progress_was_altered_is_set_aside(config, tmp_path, capsys, old, new):
    """It says itself what is next in the data; believed, it would lead to other weights."""
    train(config)
    hurt = replace(config, out=str(tmp_path / "hurt"))
    train(replace(hurt, updates=20))
    path = checkpoints(hurt.out)[-1]
    place = read_checkpoint(path)[1]["progress"]["batch"]
    old, new = (text.replace(b"2", str(place)[0].encode(), 1) if b"batch" in text else text
                for text in (old, new))  # fmt: skip
    edited(path, old, new)
    train(hurt, resume=True)
    assert "its SHA-256 differs" in "".join(capsys.readouterr())
    assert path.with_name(path.name + ".damaged").exists()
    assert_same_run(config, hurt)


def test_resuming_reads_one_checkpoint_and_no_more(config: TrainingConfig, monkeypatch, tmp_path):
    config = replace(config, updates=30, save_updates=5, average=6)
    train(config)
    real, read = training.read_tensors, []

    def noted(path: Path, *arguments: object):
        read.append(path.name)
        return real(path, *arguments)

    monkeypatch.setattr(training, "read_tensors", noted)
    start_run(config, resume=True)
    assert set(read) == {"checkpoint-00000030.safetensors"}
    read.clear()
    path = checkpoints(config.out)[-1]
    path.write_bytes(path.read_bytes()[:-9])
    assert start_run(config, resume=True).progress.update == 25
    assert set(read) == {"checkpoint-00000030.safetensors", "checkpoint-00000025.safetensors"}


def test_strays_are_no_checkpoints(config: TrainingConfig, tmp_path: Path):
    train(replace(config, average=1))
    other = replace(config, out=str(tmp_path / "other"), average=1)
    train(replace(other, updates=20))
    best = checkpoints(other.out)[0].read_bytes()
    for name in "checkpoint-best", "checkpoint-99-copy", "checkpoint-", "checkpoint-٣":
        (Path(other.out) / f"{name}.safetensors").write_bytes(best)
    train(other, resume=True)
    models = (tensors(Path(out) / "model.safetensors") for out in (config.out, other.out))
    assert same(*models)
    assert (Path(other.out) / "checkpoint-best.safetensors").read_bytes() == best


def test_a_checkpoint_beyond_eight_digits_is_the_last(tmp_path: Path):
    for number in "99999999", "100000000", "00000007":
        (tmp_path / f"checkpoint-{number}.safetensors").touch()
    assert [path.stem[11:] for path in checkpoints(tmp_path)] == [
        "00000007",
        "99999999",
        "100000000",
    ]


def test_a_checkpoint_of_another_model_stops_a_run_and_is_left_alone(config, tmp_path, capsys):
    train(replace(config, updates=10))
    other = replace(config, out=str(tmp_path / "other"), d_ff=24, updates=10)
    train(other)
    path, foreign = checkpoints(config.out)[-1], checkpoints(other.out)[-1]
    path.write_bytes(foreign.read_bytes())
    assert "d_ff=24" in refused(config, capsys) and path.exists()
    held, metadata = training.read_tensors(foreign, "a checkpoint")
    state = json.dumps({k: v for k, v in json.loads(metadata["state"]).items() if k != "config"})
    old = {"state": state, "sha256": training.digest(held)}  # as earlier editions wrote it
    write_tensors(path, held, old)
    assert "feed_forward" in refused(config, capsys) and path.exists()


def test_a_checkpoint_of_an_earlier_edition_is_accepted(config: TrainingConfig, tmp_path: Path):
    """It had neither the configuration nor the progress in its digest."""
    train(config)
    early = replace(config, out=str(tmp_path / "early"))
    train(replace(early, updates=20))
    for path in checkpoints(early.out):
        held, metadata = training.read_tensors(path, "a checkpoint")
        state = json.loads(metadata["state"])
        del state["config"], state["progress"]["skipped"], state["progress"]["row_waited"]
        digest = {"state": json.dumps(state), "sha256": training.digest(held)}
        write_tensors(path, held, digest)
    train(early, resume=True)
    assert exact(config) == exact(early)
    assert same(*(tensors(checkpoints(c.out)[-1]) for c in (config, early)))


def test_a_disk_that_cannot_be_read_costs_no_checkpoint(config, monkeypatch, capsys):
    train(replace(config, updates=20))

    def failing(*arguments: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("annotated.files.safe_open", failing)
    assert "Input/output error" in refused(config, capsys)
    assert len(checkpoints(config.out)) == 2


def test_a_damaged_checkpoint_is_not_averaged(config: TrainingConfig, capsys):
    train(config)
    path = checkpoints(config.out)[0]
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    said = refused(config, capsys)
    assert said.startswith(f"{path}: expected a whole checkpoint")
    assert "move it away" in said
    path.rename(path.with_suffix(".away"))
    main(["train", "--out", config.out, "--resume"])  # the mean of what is left


def test_only_checkpoints_of_one_model_are_averaged(tmp_path: Path):
    one, two, none = (tmp_path / f"{name}.safetensors" for name in ("one", "two", "none"))
    write_tensors(one, {"model.a": torch.ones(3, 4)}, {})
    write_tensors(two, {"model.a": torch.ones(1, 4)}, {})
    write_tensors(none, {"a": torch.ones(3, 4)}, {})
    with pytest.raises(FileError, match=r"two\.safetensors: .* of the same model as .*one\.saf"):
        average_checkpoints([one, two])
    with pytest.raises(FileError, match=r"none\.safetensors: .* no tensor called model"):
        average_checkpoints([one, none])


def test_a_damaged_log_stops_no_run(config: TrainingConfig, tmp_path: Path, capsys):
    """Half a line, a line too long, letters, a row twice: named, left out, and kept beside."""
    train(config)
    for number, change in enumerate(
        (
            lambda line: line[: len(line) // 2] + "\n",
            lambda line: line[:-1] + line,
            lambda line: line.replace(",", ";"),
            lambda line: line + line,
            lambda line: "\0" * len(line) + "\n",
            lambda line: line.replace("10,", "nan,", 1),
            lambda line: line[:-1] + "\udcff\n",
        )
    ):
        hurt = replace(config, out=str(tmp_path / str(number)))
        train(replace(hurt, updates=20))
        path = Path(hurt.out) / "log.csv"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        lines[2] = change(lines[2])
        spoilt = "".join(lines).encode("utf-8", "surrogateescape")
        path.write_bytes(spoilt)
        capsys.readouterr()
        train(hurt, resume=True)
        said = capsys.readouterr().out
        assert said.count(f"{path}, line ") == 1 and "log.csv.damaged" in said
        left = [row for row in exact(config) if row in exact(hurt)]
        assert left == exact(hurt) and len(left) in (5, 6)
        assert path.with_name("log.csv.damaged").exists()
    assert read_log(path) == rows(hurt)


@pytest.mark.parametrize("content", ["", "\n", "\n\n", "a,b\n1,2\n", "\0\n", "update"])
def test_a_log_without_its_first_line_stops_no_run(config: TrainingConfig, content: str):
    train(replace(config, updates=20))
    path = Path(config.out) / "log.csv"
    path.write_text(content)
    assert read_log(path) == []
    train(config, resume=True)
    assert [row["update"] for row in rows(config)] == ["25", "30"]


def test_a_log_of_an_earlier_edition_goes_on(config: TrainingConfig):
    """It has no column for waiting."""
    train(replace(config, updates=20))
    path = Path(config.out) / "log.csv"
    names = [name for name in training.RunLog.columns if name != "waiting"]
    lines = [",".join(names), *(",".join(row[name] for name in names) for row in rows(config))]
    path.write_text("\n".join(lines) + "\n")
    train(config, resume=True)
    log = rows(config)
    assert [row["update"] for row in log] == ["5", "10", "15", "20", "25", "30"]
    assert [bool(row["waiting"]) for row in log] == [False] * 4 + [True] * 2
    assert all(float(row["train_loss"]) > 0 for row in log)


# ----------------------------------------------------------------------------- full disks, and two


FULL = """
import resource, signal, sys
from annotated.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writing fails as on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), -1))
main(sys.argv[2:])
"""


def test_a_full_disk_costs_nothing_that_was_saved(config: TrainingConfig, tmp_path: Path):
    train(config)
    full = replace(config, out=str(tmp_path / "full"))
    train(replace(full, updates=20))
    before = {p.name: p.read_bytes() for p in checkpoints(full.out)}
    limit = checkpoints(full.out)[-1].stat().st_size - 1  # any other file is smaller
    line = ["-c", FULL, str(limit), "train", "--out", full.out, "--resume", "--updates", "30"]
    ended = subprocess.run([sys.executable, *line], capture_output=True, text=True, check=False)
    assert ended.returncode == 2 and "Traceback" not in ended.stderr, ended.stderr
    said = ended.stderr.splitlines()[-1]
    assert f"annotated: {full.out}/checkpoint-00000030.safetensors could not be written" in said
    assert before == {p.name: p.read_bytes() for p in checkpoints(full.out)}
    train(full, resume=True)
    assert_same_run(config, full)


def test_a_log_on_a_full_disk_names_the_file(config: TrainingConfig):
    log = training.RunLog(Path(config.out))
    log.path = Path("/dev/full")
    with pytest.raises(FileError, match="/dev/full could not be written: No space left on device"):
        log.add({"update": 1})


def test_two_do_not_train_in_one_folder(config: TrainingConfig, tmp_path: Path, capsys):
    train(replace(config, updates=10))
    long = replace(config, updates=100_000, log_updates=1, save_updates=10**6)
    first = start(long)
    while first.poll() is None and last_update(Path(long.out) / "log.csv") < 12:
        time.sleep(0.05)
    try:
        said = refused(config, capsys)
        assert said.startswith(f"another process trains in {config.out}; ") and "--out" in said
        translator = load_pretrained(config.out)  # reading needs no lock
        assert translator.model is not None
        with pytest.raises(FileError, match="another process trains"):
            launch(config)
    finally:
        first.kill()
        first.communicate()
    updates = [int(row["update"]) for row in read_log(Path(config.out) / "log.csv")]
    assert len(set(updates)) == len(updates)
    train(replace(config, updates=20), resume=True)  # a killed process holds no lock


# -------------------------------------------------------------------------------------- the epoch


@pytest.mark.parametrize("mode", ["Train", "", "training", "log", "eval+log", None])
def test_run_epoch_knows_three_modes(mode: str):
    model = tiny()
    with pytest.raises(ValueError, match=r"expected mode out of train, train\+log, eval"):
        run_epoch([random_batch(2)], model, *parts(model), mode=mode)


@pytest.mark.parametrize("number", [0, -1, 1.5, True, None])
def test_run_epoch_gathers_at_least_one_batch(number: int):
    model = tiny()
    before = copy.deepcopy(model)
    with pytest.raises(ValueError, match="expected accum_iter of at least 1"):
        run_epoch([random_batch(2)], model, *parts(model), accum_iter=number)
    assert equal(model, before)


V, PAD = 9, 0


def tiny(dropout: float = 0.0) -> EncoderDecoder:
    return make_model(V, V, N=1, d_model=16, d_ff=32, h=2, dropout=dropout)


def parts(model: nn.Module, smoothing: float = 0.0, rate: float = 0.5):
    loss = SimpleLossCompute(model.generator, LabelSmoothing(V, PAD, smoothing))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    return loss, optimizer, scheduler


def random_batch(size: int, length: int = 6) -> Batch:
    """Sequences without padding, so that every one has the same number of tokens."""
    return Batch(torch.randint(1, V, (size, length)), torch.randint(1, V, (size, length)), PAD)


def halves(batch: Batch) -> list[Batch]:
    tgt = torch.cat([batch.tgt, batch.tgt_y[:, -1:]], dim=1)
    return [Batch(*pair, PAD) for pair in zip(batch.src.chunk(2), tgt.chunk(2), strict=True)]


def equal(one: nn.Module, two: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


def test_the_loss_is_a_sum_and_a_mean():
    model = tiny()
    x, y = torch.randn(2, 3, 16), torch.tensor([[1, 2, PAD], [3, PAD, PAD]])
    total, mean = SimpleLossCompute(model.generator, LabelSmoothing(V, PAD))(x, y, 4.0)
    by_hand = nn.functional.cross_entropy(
        model.generator.proj(x).flatten(0, 1), y.flatten(), ignore_index=PAD, reduction="sum"
    )
    torch.testing.assert_close(total, by_hand.detach())
    torch.testing.assert_close(mean, by_hand / 4)
    assert not total.requires_grad and mean.requires_grad


def test_an_epoch_is_gradient_descent_on_the_mean_per_token():
    model = tiny()
    by_hand = copy.deepcopy(model)
    batches = [random_batch(4), random_batch(2, 5), random_batch(3)]
    loss, state = run_epoch(batches, model, *parts(model))
    total, count = 0.0, 0
    for batch in batches:
        log_probs = by_hand.generator(by_hand(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask))
        mean = nn.functional.nll_loss(log_probs.flatten(0, 1), batch.tgt_y.flatten())
        total, count = total + mean.item() * batch.tgt_y.numel(), count + batch.tgt_y.numel()
        by_hand.zero_grad()
        mean.backward()
        with torch.no_grad():
            for p in by_hand.parameters():
                if p.grad is not None:
                    p -= 0.5 * p.grad
    assert loss == pytest.approx(total / count, rel=1e-5)
    assert state == TrainState(step=3, accum_step=3, samples=9, tokens=count)
    for a, b in zip(model.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


def test_two_halves_with_as_many_tokens_are_the_whole():
    """The mean of two means is the mean of all only if both have as many tokens."""
    whole = tiny()
    gathered = copy.deepcopy(whole)
    batches = [random_batch(6), random_batch(4)]
    small = [half for batch in batches for half in halves(batch)]
    loss, state = run_epoch(batches, whole, *parts(whole))
    loss_small, state_small = run_epoch(small, gathered, *parts(gathered), accum_iter=2)
    assert loss_small == pytest.approx(loss, rel=1e-5)
    assert state == TrainState(2, 2, 10, 50) and state_small == TrainState(4, 2, 10, 50)
    for a, b in zip(whole.parameters(), gathered.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


def test_batches_gather_in_the_same_groups_in_every_epoch():
    model = tiny()
    loss, optimizer, scheduler = parts(model)
    updates = []
    optimizer.register_step_post_hook(lambda *_: updates.append(state.step))
    state = TrainState()
    for _ in range(2):  # 5 batches: groups of 2, 2 and 1
        run_epoch(
            [random_batch(2) for _ in range(5)],
            model,
            loss,
            optimizer,
            scheduler,
            accum_iter=2,
            train_state=state,
        )
    assert updates == [2, 4, 5, 7, 9, 10]
    assert (state.step, state.accum_step, scheduler.last_epoch) == (10, 6, 6)


def test_a_smaller_last_group_counts_its_own_batches():
    """Batches with the gradient 1, and SGD: each update moves by the mean, which is 1."""
    weight = nn.Parameter(torch.zeros(()))
    model = nn.Module()
    model.weight, model.forward = weight, lambda *_: weight
    optimizer, seen = torch.optim.SGD([weight], lr=1.0), [0.0]
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    optimizer.register_step_post_hook(lambda *_: seen.append(weight.item()))
    loss = lambda out, tgt_y, ntokens: (out.detach() + 1.0, out)
    run_epoch([random_batch(2)] * 5, model, loss, optimizer, scheduler, accum_iter=4)
    assert seen == [0.0, -1.0, -2.0]


def test_measuring_changes_nothing():
    model = tiny(dropout=0.5).eval()
    before = copy.deepcopy(model)
    batches = [random_batch(3), random_batch(2)]
    loss, optimizer, scheduler = parts(model)
    first = run_epoch(batches, model, loss, optimizer, scheduler, mode="eval")
    second = run_epoch(batches, model, loss, mode="eval")
    assert first == second and first[1] == TrainState(step=2, samples=5, tokens=25)
    assert equal(model, before) and all(p.grad is None for p in model.parameters())
    assert scheduler.last_epoch == 0 and not optimizer.state


def test_gradients_do_not_leak_from_one_epoch_into_the_next():
    model = tiny()
    run_epoch([random_batch(2)] * 3, model, *parts(model), accum_iter=2)
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_run_epoch_stops_before_the_weights_move_if_the_loss_is_not_finite(mode: str):
    model = tiny()
    with torch.no_grad():
        model.generator.proj.weight[3, 0] = math.nan
    before = copy.deepcopy(model.encoder)
    with pytest.raises(ValueError, match="finite loss; got nan in batch 1"):
        run_epoch([random_batch(2)], model, *parts(model), mode=mode)
    assert equal(model.encoder, before)


def test_the_schedule_goes_on_where_it_was():
    model = tiny()
    whole = paper_optimizer(model, 16, warmup=5)[1]
    for _ in range(7):
        whole.optimizer.step()
        whole.step()
    resumed = paper_optimizer(model, 16, warmup=5, done=7)[1]
    assert resumed.get_last_lr() == whole.get_last_lr() == [rate(8, 16, 1.0, 5)]


def test_tensorboard_is_asked_for_before_anything_is_done(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("annotated.training.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install tensorboard"):
        TrainingConfig(tensorboard=True)
