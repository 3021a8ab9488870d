"""The log of a training that section 5.2 shows as a film."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from small_runs import rows

from annotated.machinery.formats.pretrained import load_pretrained
from annotated.machinery.runs.folder import average_run
from annotated.machinery.runs.trainer import train
from annotated.machinery.visualization.weights import merge_words, read_attention
from annotated.training import TrainingConfig
from benchmarks.film import REFERENCE, SENTENCE, main, spread


def test_checkpoints_are_spread_over_a_logarithmic_scale():
    assert spread([10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 1000], 4) == [10, 50, 100, 1000]
    assert spread([5, 6], 24) == [5, 6]
    saved = [*range(10, 201, 10), *range(300, 2001, 100), *range(2500, 19001, 500)]
    chosen = spread(saved, 24)
    assert 24 <= len(chosen) <= 26 and {10, 19000} < set(chosen) < set(saved)
    late = [update for update in chosen if update >= 100]
    assert max(b / a for a, b in pairwise(late)) < 1.6


@pytest.mark.slow
def test_a_log_says_what_was_seen_at_each_checkpoint(config: TrainingConfig, tmp_path: Path):
    config = replace(config, save_updates=5, average=100)
    train(config)
    out = tmp_path / "film.json"
    main([config.out, "--out", str(out), "--frames", "3"])
    film = json.loads(out.read_text(encoding="utf-8"))
    updates = [frame["update"] for frame in film["frames"]]
    assert updates[0] == 5 and updates[-1] == 30 and len(updates) == 3
    log = {int(row["update"]): row for row in rows(config)}
    for frame in film["frames"]:
        assert frame["loss"] == pytest.approx(float(log[frame["update"]]["dev_loss"]), rel=1e-3)

    average_run(Path(config.out), last=1)
    translator, last = load_pretrained(config.out), film["frames"][-1]
    assert last["translation"] == translator.translate(SENTENCE, beam=1)
    words = merge_words(read_attention(translator, SENTENCE, REFERENCE)["cross"])
    assert (film["source"], film["target"]) == (words.keys, words.queries)
    for layer, heads in zip(words.weights.tolist(), last["weights"], strict=True):
        for head, texts in zip(layer, heads, strict=True):
            for row, text in zip(head, texts, strict=True):
                assert [n / 100 for n in map(int, text.split())] == pytest.approx(row, abs=0.0051)
