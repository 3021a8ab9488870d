"""The trainer: every token once a pass, in an order that its seed decides."""

import itertools
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from annotated.data import PAD
from annotated.machinery.corpora.encoding import EncodedPairs
from annotated.machinery.runs import batches
from annotated.machinery.runs.batches import (
    BatchStream,
    deal_pools,
    derive_seed,
    padded_pair,
    prefetch,
    share_parts,
)
from annotated.machinery.runs.processes import Processes
from annotated.machinery.runs.trainer import Trainer, start_run
from annotated.training import PRESETS, TrainingConfig, preset
from benchmarks import dry
from benchmarks.gpu import made_pairs


def test_a_pass_sees_every_token_once(config: TrainingConfig, corpus: Path):
    """Tokens counted by the trainer, against the tokenizer line by line."""
    config = replace(config, parts=2, src_tokens=80)
    stream = start_run(config).stream
    tokenizer = Tokenizer.from_file(str(Path(config.out) / "tokenizer.json"))
    lines = (corpus / "train.de").read_text(encoding="utf-8").splitlines()
    seen: list[int] = []
    for batch in stream.updates(0, 0):
        for part in batch.micro_batches:
            seen += part.pairs if part.epoch == 0 else []
        assert batch.tokens == sum(int((tgt[:, 1:] != PAD).sum()) for _, _, tgt in batch.share)
        for _, src, tgt in batch.share:
            assert src.numel() <= config.src_tokens // 2 and tgt.numel() <= config.tgt_tokens // 2
        if batch.micro_batches[-1].epoch > 0:
            break
    assert sorted(seen) == list(range(60))
    tokens = sum(len(tokenizer.encode(line).ids) + 1 for line in lines)
    assert sum(len(stream.pairs[pair][1]) - 1 for pair in seen) == tokens


def test_passes_and_seeds_differ_in_order(config: TrainingConfig):
    trainer = start_run(config)
    stream = trainer.stream.micro_batches(0, 0)
    parts = [next(stream) for _ in range(40)]
    first, second = ([p.pairs for p in parts if p.epoch == epoch] for epoch in (0, 1))
    assert first != second
    assert sorted(itertools.chain(*first)) == sorted(itertools.chain(*second))
    later = trainer.stream.micro_batches(parts[11].epoch, parts[11].batch)
    assert [next(later) for _ in range(5)] == parts[11:16]
    other = Trainer(replace(config, seed=2), trainer.stream.pairs, trainer.dev_pairs)
    assert [p.pairs for p in (next(other.stream.micro_batches(0, 0)),)] != first[:1]
    assert len({derive_seed(*numbers) for numbers in itertools.product(range(9), repeat=3)}) == 729
    assert derive_seed(1, 2, 3, 4, 5) == 3_337_551_300_175_466_156  # as ever, for runs that go on


def test_dropout_depends_on_the_seed_and_the_position_in_the_data(config, monkeypatch):
    """Every pass has the same batches here, and the rate is 0, so only dropout changes the loss."""
    real = batches.token_batches
    unshuffled = lambda lengths, *budgets, seed: real(lengths, *budgets, seed=0)
    monkeypatch.setattr(batches, "token_batches", unshuffled)

    def loss(seed: int, epoch: int, batch: int) -> float:
        trainer.stream.config = replace(config, seed=seed)
        return float(trainer.train_step(next(trainer.stream.updates(epoch, batch))))

    trainer = start_run(replace(config, factor=0.0, dropout=0.5))
    losses = [loss(seed, epoch, 0) for seed, epoch in ((1, 0), (1, 1), (1, 2), (2, 0))]
    assert len(set(losses)) == 4 and loss(1, 1, 0) == losses[1]
    seeds = [update.share[0][0] for update in itertools.islice(trainer.stream.updates(0, 0), 40)]
    assert len(set(seeds)) == 40


def test_sentences_that_are_too_long_are_left_out_and_counted(config: TrainingConfig, capsys):
    stream = start_run(replace(config, max_pieces=8)).stream
    short = np.flatnonzero(stream.pairs.lengths.max(axis=1) <= 8)
    assert 0 < len(short) < 60 and sorted(stream.kept) == short.tolist()
    said = "".join(capsys.readouterr())
    assert f"{60 - len(short)} of 60 training pairs are too long" in said
    with pytest.raises(ValueError, match="2 pieces"):
        start_run(replace(config, max_pieces=2, out=config.out + "2"))


def test_every_process_has_a_part():
    assert share_parts(0, 1) == 1 and share_parts(0, 8) == 8 and share_parts(12, 8) == 12
    with pytest.raises(ValueError, match=r"each of the 8 processes; got --parts 7"):
        share_parts(7, 8)
    for name in PRESETS:
        if name.startswith(("base", "big", "parser")):  # as many as the paper had GPUs
            assert {share_parts(preset(name).parts, n) for n in (1, 2, 4, 8)} == {8}
    pairs = EncodedPairs(np.zeros(640, np.uint16), np.array([[120, 200], [119, 201]]))
    config = TrainingConfig(src_tokens=1000, tgt_tokens=800, max_pieces=256)
    runs = (replace(config, parts=parts) for parts in (1, 4))
    kept = [BatchStream(run, pairs, Processes()).kept.tolist() for run in runs]
    assert kept == [[0, 1], [0]]


def test_a_pass_deals_out_every_pair_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(batches, "POOL", 1 << 10)
    monkeypatch.setattr(batches, "_STRETCH", 1 << 4)
    for count in 1, 1023, 1024, 1025, 5000, 10_240:
        dealt = list(deal_pools(count, seed=3))
        assert sorted(np.concatenate(dealt)) == list(range(count))
        assert max(map(len, dealt)) <= 1024 and min(map(len, dealt)) > 0
        assert max(map(len, dealt)) - min(map(len, dealt)) <= 2 * 16  # no small pool at the end
    (whole,) = deal_pools(1024, seed=3)
    assert whole.tolist() == list(range(1024))  # a corpus that fits is not dealt out
    one, other, again = (next(deal_pools(5000, seed)) for seed in (3, 4, 3))
    assert set(one) != set(other) and one.tolist() == again.tolist()
    assert np.ptp(one) > 4000  # from everywhere


@pytest.fixture
def dealt(config: TrainingConfig, monkeypatch: pytest.MonkeyPatch) -> TrainingConfig:
    """A run whose 60 pairs are dealt out into pools."""
    monkeypatch.setattr(batches, "POOL", 16)
    monkeypatch.setattr(batches, "_STRETCH", 4)
    return config


def test_a_large_corpus_is_trained_on_pool_by_pool(dealt: TrainingConfig):
    trainer = start_run(dealt)
    stream = trainer.stream.micro_batches(0, 0)
    parts = list(itertools.takewhile(lambda part: part.epoch < 2, stream))
    for epoch in 0, 1:
        seen = [pair for part in parts if part.epoch == epoch for pair in part.pairs]
        assert sorted(seen) == list(range(60))
        numbers = [part.batch for part in parts if part.epoch == epoch]
        assert numbers == sorted(set(numbers)) and {n // 16 for n in numbers} == {0, 1, 2, 3}
    for i in range(1, len(parts)):  # from any place on, as after a stop
        later = trainer.stream.micro_batches(parts[i - 1].epoch, parts[i - 1].batch + 1)
        assert next(later) == parts[i]


def test_each_pool_of_each_pass_is_shuffled_by_its_own_seed(dealt: TrainingConfig, monkeypatch):
    """Those of the first pools, often the only ones, are the seeds of the passes."""
    seeds, real = [], batches.token_batches
    remember = lambda *given, seed: seeds.append(seed) or real(*given, seed=seed)
    monkeypatch.setattr(batches, "token_batches", remember)
    stream = start_run(dealt).stream.micro_batches(0, 0)
    next(part for part in stream if part.epoch == 2)
    assert len(set(seeds)) == len(seeds) == 4 + 4 + 1
    assert seeds[::4] == [derive_seed(dealt.seed, epoch) for epoch in range(3)]


def test_on_a_gpu_widths_are_multiples_of_eight(config: TrainingConfig, monkeypatch):
    """And nothing else differs: batches, ids, tokens, the loss."""
    trainer = start_run(replace(config, parts=2, dropout=0.0))
    narrow = next(trainer.stream.updates(0, 0))
    monkeypatch.setattr(batches, "to_device", lambda ids, device: ids)
    trainer.stream.processes = Processes(device=torch.device("cuda"))
    wide = next(trainer.stream.updates(0, 0))
    assert wide.micro_batches == narrow.micro_batches and wide.tokens == narrow.tokens
    for one, other in zip(narrow.share, wide.share, strict=True):
        (seed, src, tgt), (other_seed, wider_src, wider_tgt) = one, other
        assert seed == other_seed
        assert wider_src.size(1) % 8 == 0 and (wider_tgt.size(1) - 1) % 8 == 0
        for a, b in (src, wider_src), (tgt, wider_tgt):
            assert torch.equal(b[:, : a.size(1)], a) and (b[:, a.size(1) :] == PAD).all()
        losses = [trainer.loss(src, tgt), trainer.loss(wider_src, wider_tgt)]
        torch.testing.assert_close(*losses)
    monkeypatch.undo()


def test_batches_of_a_compiled_run_are_padded_to_its_shapes(config: TrainingConfig):
    """Each pair comes once a pass, and what was added changes neither losses nor gradients."""
    trainer = start_run(config := replace(config, parts=2, dropout=0.0))
    loss, pairs, seen = trainer.loss, trainer.stream.pairs, []
    stream = BatchStream(replace(config, compile=True), pairs, Processes())
    for batch in itertools.islice(stream.updates(0, 0), 12):
        for part, (_, src, tgt) in zip(batch.micro_batches, batch.share, strict=True):
            seen += part.pairs if part.epoch == 0 else []
            rows, length = src.shape
            assert tgt.shape == (rows, length + 1) and rows == 60 // length
            found = []
            for ids in (src, tgt), padded_pair(pairs, part.pairs, src.device):
                loss.zero_grad()
                loss(*ids).backward()
                found.append([ids[1][:, 1:].ne(PAD).sum(), *(p.grad for p in loss.parameters())])
            torch.testing.assert_close(*found)
    assert sorted(seen) == list(range(60))


@pytest.mark.parametrize("parts", [1, 8])
@pytest.mark.parametrize("pairs", [dry.counted_pairs("multi30k"), made_pairs(30_000, 60)])
def test_batches_of_a_compiled_run_have_few_shapes(pairs: EncodedPairs, parts: int):
    """And they are padded by little more than those whose widths are multiples of eight."""
    config = TrainingConfig(src_tokens=25_000, tgt_tokens=25_000, parts=parts)
    plain, rounded = (dry.shapes(replace(config, compile=c), pairs) for c in (False, True))
    assert 10 < rounded["shapes"] <= 24
    assert rounded["padding"] < min(0.25, plain["padding"] + 0.06)


def test_the_next_updates_are_prepared_ahead_and_what_fails_is_told_in_its_turn():
    made: list[int] = []

    def batches_to_come():
        for number in range(30):
            made.append(number)
            yield number
        raise ValueError("the last")

    coming = prefetch(batches_to_come())
    assert [next(coming) for _ in range(3)] == [0, 1, 2]
    deadline = time.perf_counter() + 5
    while len(made) < 3 + batches._AHEAD and time.perf_counter() < deadline:
        time.sleep(0.01)
    assert len(made) == 3 + batches._AHEAD < 30  # and no more
    assert [next(coming) for _ in range(27)] == list(range(3, 30))
    with pytest.raises(ValueError, match="the last"):
        next(coming)
