"""Section 5.2: a run that stops and goes on is the same run, and its files are whole or absent."""

import copy
import csv
import gzip
import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import Tensor, nn

import annotated.training as training
from annotated.data import Batch, make_batch
from annotated.decoding import load_pretrained
from annotated.model import EncoderDecoder, TransformerConfig, make_model
from annotated.optimizer import paper_optimizer, rate
from annotated.regularization import LabelSmoothing
from annotated.training import (
    SimpleLossCompute,
    TrainingConfig,
    TrainState,
    average_checkpoints,
    checkpoints,
    log_row,
    run_epoch,
    save_model,
    start_run,
    train,
    write_tensors,
    write_text,
)

EN = "zero one two three four five six seven eight nine".split()  # noqa: SIM905
DE = "null eins zwei drei vier fünf sechs sieben acht neun".split()  # noqa: SIM905


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for ANNOTATED_DATA in which Multi30k is 60 numbers, digit by digit."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "multi30k").mkdir()
    numbers = [str(n * n + 7) for n in range(3, 83)]
    splits = {"train": numbers[:60], "val": numbers[60:70], "test_2016_flickr": numbers[70:]}
    for split, part in splits.items():
        for lang, words in ("en", EN), ("de", DE):
            lines = [" ".join(words[int(digit)] for digit in number) for number in part]
            text = "".join(f"{line}.\n" for line in lines)
            path = folder / "multi30k" / f"{split}.{lang}.gz"
            path.write_bytes(gzip.compress(text.encode()))
    return folder


@pytest.fixture
def config(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainingConfig:
    """A run of seconds: a tiny model on the tiny corpus."""
    monkeypatch.setenv("ANNOTATED_DATA", str(corpus))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    shape = {"vocab_size": 60, "N": 1, "d_model": 16, "d_ff": 32, "h": 2, "dropout": 0.1}
    return TrainingConfig(
        out=str(tmp_path / "run"), batch_tokens=120, warmup=20, epochs=3, average=2, **shape
    )


def rows(config: TrainingConfig) -> list[dict[str, str]]:
    with (Path(config.out) / "log.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def tensors(path: Path) -> dict[str, np.ndarray]:
    return load_file(path)


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


# ------------------------------------------------------------------------------------------- runs


def test_a_run_that_stopped_goes_on_as_if_it_had_not(config: TrainingConfig, tmp_path: Path):
    whole = train(config)
    stopped = replace(config, out=str(tmp_path / "stopped"), epochs=2)
    train(stopped)
    assert len(rows(stopped)) == 2
    other = train(replace(stopped, epochs=3))
    for name in [path.name for path in checkpoints(whole)] + ["model.safetensors"]:
        assert same(tensors(whole / name), tensors(other / name)), name
    exact = "epoch", "step", "target_tokens", "learning_rate", "train_loss", "dev_loss"
    for one, two in zip(rows(config), rows(stopped), strict=True):
        assert [one[key] for key in exact] == [two[key] for key in exact]


def test_it_also_holds_where_batches_gather(config: TrainingConfig, tmp_path: Path):
    whole = train(replace(config, accum_iter=3, epochs=2))
    stopped = replace(config, accum_iter=3, epochs=1, out=str(tmp_path / "stopped"))
    train(stopped)
    other = train(replace(stopped, epochs=2))
    last = "checkpoint-0002.safetensors"
    assert same(tensors(whole / last), tensors(other / last))


def test_a_run_cut_off_between_log_and_checkpoint(config: TrainingConfig, tmp_path: Path):
    """The log has a row more than there are checkpoints; going on replaces it."""
    whole = train(config)
    cut = replace(config, out=str(tmp_path / "cut"))
    train(replace(cut, epochs=2))
    (Path(cut.out) / "checkpoint-0002.safetensors").unlink()
    train(cut)
    assert [row["epoch"] for row in rows(cut)] == ["1", "2", "3"]
    last = "checkpoint-0003.safetensors"
    assert same(tensors(whole / last), tensors(Path(cut.out) / last))


def test_what_a_run_leaves_behind(config: TrainingConfig):
    folder = train(config)
    assert folder == Path(config.out)
    assert sorted(path.name for path in folder.iterdir()) == [
        "checkpoint-0002.safetensors",
        "checkpoint-0003.safetensors",  # average = 2 are kept
        "config.json",
        "log.csv",
        "model.safetensors",
        "tokenizer.json",
    ]
    log = rows(config)
    assert [int(row["epoch"]) for row in log] == [1, 2, 3]
    steps = [int(row["step"]) for row in log]
    assert steps == [steps[0], 2 * steps[0], 3 * steps[0]] and steps[0] > 5
    # All target tokens of an epoch: what the tokenizer makes of each line, and the end symbol.
    translator = load_pretrained(folder)
    _, targets = training.load_pairs("multi30k", "train", "en", "de")
    tokens = sum(len(translator.tokenizer.encode(line).ids) + 1 for line in targets)
    assert [int(row["target_tokens"]) for row in log] == [tokens, 2 * tokens, 3 * tokens]
    for row in log:
        used = int(row["step"]) + 1  # the rate that the next update will use
        assert float(row["learning_rate"]) == pytest.approx(rate(used, 16, 1.0, 20))
    losses = [float(row["train_loss"]) for row in log]
    assert losses == sorted(losses, reverse=True)
    assert all(0 < float(row["dev_loss"]) < 1.5 * math.log(60) for row in log)
    minutes = [float(row["minutes"]) for row in log]
    assert minutes == sorted(minutes)


def test_the_dev_loss_in_the_log_is_that_of_the_checkpoint(config: TrainingConfig):
    """Computed again by hand, sentence by sentence, without batches or masks for padding."""
    train(config)
    trainer = start_run(config)  # continues from the last checkpoint, so it holds its weights
    trainer.model.eval()
    total, count = 0.0, 0
    for src, tgt in trainer.dev_pairs:
        batch = make_batch([(src, tgt)])
        with torch.no_grad():
            out = trainer.model(batch.src, batch.tgt, None, batch.tgt_mask)
            log_probs = trainer.model.generator(out)[0]
        total -= sum(float(log_probs[i, token]) for i, token in enumerate(tgt[1:]))
        count += len(tgt) - 1
    assert float(rows(config)[-1]["dev_loss"]) == pytest.approx(total / count, abs=1e-4)


def test_a_tiny_run_learns(config: TrainingConfig):
    long = replace(config, epochs=12, warmup=60, dropout=0.0, label_smoothing=0.0, factor=2.0)
    train(long)
    log = rows(long)
    assert float(log[-1]["dev_loss"]) < 0.5 * float(log[0]["dev_loss"])


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
    one = train(replace(config, epochs=1))
    again = train(replace(config, epochs=1, out=str(tmp_path / "again")))
    other = train(replace(config, epochs=1, seed=2, out=str(tmp_path / "other")))
    models = [tensors(folder / "checkpoint-0001.safetensors") for folder in (one, again, other)]
    assert same(models[0], models[1]) and not same(models[0], models[2])


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
    monkeypatch.setattr(f"annotated.training.{name}", failure)
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
    monkeypatch.setattr("annotated.training.os.replace", broken)
    with pytest.raises(OSError, match="no space"):
        write_text(path, "new\n")
    assert path.read_text(encoding="utf-8") == "old\n"


def test_a_checkpoint_that_fails_to_be_written_costs_one_epoch(config, tmp_path, monkeypatch):
    whole = train(replace(config, epochs=2))
    other = replace(config, epochs=2, out=str(tmp_path / "other"))
    train(replace(other, epochs=1))
    with monkeypatch.context() as patch:
        patch.setattr("annotated.training.save_file", half_written)
        with pytest.raises(OSError, match="no space"):
            train(other)
    assert [path.name for path in checkpoints(other.out)] == ["checkpoint-0001.safetensors"]
    train(other)
    last = "checkpoint-0002.safetensors"
    assert same(tensors(whole / last), tensors(Path(other.out) / last))
    assert [row["epoch"] for row in rows(other)] == ["1", "2"]


def test_log_rows(tmp_path: Path):
    path = tmp_path / "log.csv"
    for epoch in 1, 2, 3, 2:
        log_row(path, {"epoch": epoch, "loss": epoch / 4})
    assert path.read_text(encoding="utf-8") == "epoch,loss\n1,0.25\n2,0.5\n"


def test_save_and_load(tmp_path: Path):
    model = make_model(60, 60, N=1, d_model=16, d_ff=32, h=2, tie_embeddings=True).eval()
    save_model(tmp_path, dict(model.named_parameters()), model.config)
    (tmp_path / "tokenizer.json").write_text(training.train_bpe(["a b"], 60).to_str())
    loaded = load_pretrained(tmp_path).model
    assert asdict(loaded.config) == asdict(model.config) and not loaded.training
    for (name, old), (_, new) in zip(
        model.named_parameters(), loaded.named_parameters(), strict=True
    ):
        torch.testing.assert_close(new, old, rtol=2**-11, atol=1e-7, msg=name)
        assert new.dtype == torch.float32
    assert loaded.src_embed[0].lut.weight is loaded.generator.proj.weight  # still tied


# -------------------------------------------------------------------------------------- the epoch

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
def test_a_loss_that_is_not_finite_stops_before_the_weights_move(mode: str):
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
