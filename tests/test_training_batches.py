"""The trainer: every token once a pass, in an order that its seed decides."""

import itertools
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from annotated.data import PAD, EncodedPairs
from annotated.training.batches import derive_seed, longest_sentence, share_parts
from annotated.training.config import TrainingConfig
from annotated.training.trainer import Trainer, start_run


def test_a_pass_sees_every_token_once(config: TrainingConfig, corpus: Path):
    """Tokens counted by the trainer, against the tokenizer line by line."""
    trainer = start_run(replace(config, parts=2))
    translator_tokens = 0
    tokenizer = Tokenizer.from_file(str(Path(config.out) / "tokenizer.json"))
    for line in (corpus / "train.de").read_text(encoding="utf-8").splitlines():
        translator_tokens += len(tokenizer.encode(line).ids) + 1
    seen, tokens = [], 0
    for batch in trainer.global_batches():
        inside = [part for part in batch.micro_batches if part.epoch == 0]
        seen += [pair for part in inside for pair in part.pairs]
        tokens += sum(len(trainer.pairs[pair][1]) - 1 for part in inside for pair in part.pairs)
        assert batch.tokens == sum(int((tgt[:, 1:] != PAD).sum()) for _, _, tgt in batch.share)
        for _, src, tgt in batch.share:
            assert src.numel() <= config.src_tokens // 2 and tgt.numel() <= config.tgt_tokens // 2
        if batch.micro_batches[-1].epoch > 0:
            break
    assert sorted(seen) == list(range(60)) and tokens == translator_tokens


def test_passes_and_seeds_differ_in_order(config: TrainingConfig):
    trainer = start_run(config)
    stream = trainer.micro_batches(0, 0)
    parts = [next(stream) for _ in range(40)]
    first, second = ([p.pairs for p in parts if p.epoch == epoch] for epoch in (0, 1))
    assert first != second
    assert sorted(itertools.chain(*first)) == sorted(itertools.chain(*second))
    later = trainer.micro_batches(parts[11].epoch, parts[11].batch)
    assert [next(later) for _ in range(5)] == parts[11:16]
    other = Trainer(replace(config, seed=2), trainer.pairs, trainer.dev_pairs)
    assert [p.pairs for p in (next(other.micro_batches(0, 0)),)] != first[:1]
    assert (
        len(
            {
                derive_seed(seed, epoch, batch)
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


def test_parts_are_shared_out_evenly():
    assert share_parts(0, 1) == 1 and share_parts(0, 8) == 8 and share_parts(16, 8) == 16
    with pytest.raises(ValueError, match="multiple of the 8 processes; got 12"):
        share_parts(12, 8)
    config = TrainingConfig(src_tokens=1000, tgt_tokens=800, max_pieces=256)
    assert [longest_sentence(config, parts) for parts in (1, 4)] == [256, 200]


def made_pairs(number: int) -> EncodedPairs:
    """So many pairs of ten ids a side."""
    return EncodedPairs(np.ones(20 * number, np.uint16), np.full((number, 2), 10, np.uint8))


def test_the_data_of_an_update_cost_the_same_in_a_small_corpus_and_a_large_one(config):
    config = replace(config, src_tokens=480, tgt_tokens=480, parts=4)
    trainers = [Trainer(config, made_pairs(n), made_pairs(5)) for n in (20_000, 400_000)]
    streams = [trainer.global_batches() for trainer in trainers]
    times: list[list[float]] = [[], []]
    for stream in streams:
        next(stream)  # shuffles the corpus, once a pass
    for _, which in itertools.product(range(40), (0, 1)):
        started = time.perf_counter()
        next(streams[which])
        times[which].append(time.perf_counter() - started)
    small, large = map(min, times)  # the best of many: noise only ever adds
    assert large < 2.5 * small, f"{small * 1000:.2f} ms and {large * 1000:.2f} ms"
