"""The runs of "Thirteen diffs": equal weights, experts, rates, and a queue that goes on."""

import json
import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
import torch

import benchmarks.since_2017 as since
import book.pictures.since_2017 as pictures
from annotated.data import learn_vocabulary
from annotated.machinery.formats.causal import load_language_model
from benchmarks import tatoeba_en
from benchmarks.since_2017 import Experts, Queue, Text, count, looks, losses, variants


@pytest.fixture
def text(monkeypatch: pytest.MonkeyPatch) -> Text:
    """Counting as a language, and a model small enough for it."""
    small = replace(since.PAPER, vocab=20, N=2, d_model=16, d_ff=64)
    monkeypatch.setattr(since, "PAPER", small)
    monkeypatch.setattr(since, "SWIGLU", since.SWIGLU | {"d_ff": 43})
    sentences = [torch.arange(start, start + 9) % 20 for start in range(600)]
    held_out = since.shuffled(sentences)
    return Text("sentences", sentences, held_out, held_out)


def test_variants_differ_by_what_their_names_say():
    known = variants()
    base = count(known["2017"].config)
    for name in ("2025", "2025, Adam", "SwiGLU"):
        assert count(known[name].config) == pytest.approx(base, rel=2e-3)
    last = known["+ Muon"]
    assert last.muon and last.experts == 8
    assert last.config == replace(
        since.PAPER, norm_first=True, norm="rms", positions="rope", gated=True, activation="swish",
        feed_forward_bias=False, d_ff=342, kv_heads=2, qk_norm=True, tie_embeddings=False,
        sink=True,
    )  # fmt: skip
    cache = {name: since.cache_bytes(known[name], 256) for name in known}
    assert 2 * cache["+ Muon"] == 4 * cache["latent 64"] == cache["2017"]
    assert cache["window 32, 4 of 4 layers"] * 8 == cache["2017"]  # 32 of 256 tokens
    # Four matrices of width 32 and three tokens' queries, keys and values, once per text.
    assert cache["state, 4 of 4 layers"] == 4 * 4 * (4 * 32 * 32 + 3 * 3 * 128) // 256


@torch.no_grad()
def test_experts_are_two_of_all_weighted_by_the_router():
    layer, x = Experts(replace(since.PAPER, d_model=8, d_ff=12), 4), torch.randn(2, 5, 8)
    scores = layer.router(x)
    chosen = scores.topk(2, dim=-1).indices
    hidden = torch.full_like(scores, -torch.inf).scatter(-1, chosen, scores.gather(-1, chosen))
    every = torch.stack([expert(x) for expert in layer.experts], dim=-2)  # (2, 5, experts, 8)
    torch.testing.assert_close(layer(x), (hidden.softmax(-1).unsqueeze(-1) * every).sum(-2))
    layer.router.weight.zero_()  # all alike, so the loss of balance has its least value
    layer(x)
    assert layer.balance.item() == pytest.approx(1)


@pytest.mark.slow
def test_the_sampler_s_model_is_trained_rounded_and_read_again(text, tmp_path, monkeypatch):
    tokenizer = learn_vocabulary("bpe", ["a b c a b c"], 20)
    monkeypatch.setattr(tatoeba_en, "PAPER", since.PAPER)
    monkeypatch.setattr(tatoeba_en, "read_text", lambda: (text, tokenizer))
    tatoeba_en.main(["--out", str(tmp_path / "small"), "--tokens", str(100 * since.BATCH)])
    log = pd.read_csv(tmp_path / "small" / "log.csv")
    assert log["update"].iloc[-1] == 100 and len(log) == tatoeba_en.POINTS
    told = json.loads((tmp_path / "small" / "training.json").read_text())
    assert log["dev_loss"].iloc[0] - told["test_loss"] > 0.5
    generator = load_language_model(tmp_path / "small")
    model, read = generator.model, generator.tokenizer
    assert read is not None and read.get_vocab() == tokenizer.get_vocab()
    loss = losses(model, text.test, text.length, text.longest).mean().item()
    assert loss == pytest.approx(told["test_loss_8_bits"], abs=1e-4)
    assert loss == pytest.approx(told["test_loss"], abs=0.05)
    for matrix in model.layers[0].feed_forward.parameters():
        if matrix.dim() == 2:
            assert torch.unique(matrix).numel() <= 255


def test_batches_follow_one_another_and_their_seed(text: Text):
    batches = text.batches(1)
    ids, following = next(batches)
    assert torch.equal(ids.flatten()[1:], following.flatten()[:-1])
    assert next(batches)[0][0, 0] == following[-1, -1]
    assert torch.equal(next(text.batches(1))[0], ids)
    assert not torch.equal(next(text.batches(2))[0], ids)


def test_rows_of_running_text_are_in_order_and_of_one_corpus():
    corpora = [torch.arange(5000) % 20, 20 + torch.arange(3000) % 20]
    batches = Text("running", corpora, *corpora).batches(1)
    for _ in range(20):  # more than an epoch
        ids, following = next(batches)
        assert ids.shape == (4, 256) and torch.equal(following // 20, ids // 20)
        assert torch.equal(following % 20, (ids + 1) % 20)
        assert (ids // 20 == ids[:, :1] // 20).all()


@torch.no_grad()
def test_a_window_hides_what_is_32_tokens_away_and_latent_keys_are_of_rank_64():
    x = torch.randn(1, 50, 128)
    changed = x.clone()
    changed[:, 10] += 1
    local = since.LocalAttention(since.PAPER)
    mask = torch.ones(1, 50, 50, dtype=torch.bool).tril()
    moved = (local(x, x, x, mask) - local(changed, changed, changed, mask)).abs().amax(dim=(0, 2))
    assert moved.nonzero().flatten().tolist() == list(range(10, 42))
    keys, values = since.LatentAttention(since.PAPER, 64).keys_values(
        *2 * [torch.randn(1, 300, 128)]
    )
    both = torch.cat([keys, values], dim=-1).transpose(1, 2).flatten(2)[0]  # (300, 256)
    assert torch.linalg.matrix_rank(both) == 64


@torch.no_grad()
def test_a_state_is_a_sum_of_what_was_stored_and_not_forgotten(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(since, "PART", 8)  # three parts, the last one shorter
    layer = since.GatedDelta(replace(since.PAPER, d_model=6, h=2)).double()
    x = torch.randn(2, 20, 6).double()
    layer.norm.weight[:] = torch.rand(3)
    found, shape = layer(x, x, x, None), (2, 20, 2, 3)
    w, mixed = layer.conv.weight.squeeze(1), []
    for number, linear in enumerate((layer.w_q, layer.w_k, layer.w_v)):
        before = torch.cat([torch.zeros(2, 3, 6), linear(x)], dim=1)
        own = w[6 * number : 6 * number + 6]
        total = sum(own[:, lag] * before[:, lag : lag + 20] for lag in range(4))
        mixed.append((total * total.sigmoid()).view(shape))
    q, k, v = mixed
    q, k = q / q.norm(dim=-1, keepdim=True), k / k.norm(dim=-1, keepdim=True)
    alpha, beta = (layer.w_alpha(x) + layer.keep).sigmoid(), layer.w_beta(x).sigmoid()
    for row, t, head in product(range(2), range(20), range(2)):
        state = torch.zeros(3, 3).double()
        for i in range(t + 1):  # what i stored, as the later tokens leave it
            stored = beta[row, i, head] * v[row, i, head].outer(k[row, i, head])
            for j in range(i + 1, t + 1):
                key = k[row, j, head]
                kept = torch.eye(3) - beta[row, j, head] * key.outer(key)
                stored = alpha[row, j, head] * stored @ kept
            state += stored
        out = state @ q[row, t, head]
        q[row, t, head] = layer.norm.weight * out / (out.square().mean() + 1e-5).sqrt()
    torch.testing.assert_close(found, q.flatten(2) @ layer.w_o.weight.T)


@torch.no_grad()
def test_the_page_shows_the_layer_with_a_state_that_was_measured():
    page = Path(since.__file__).parents[1] / "chapters" / "since-2017.md"
    lines = re.search(r"^\+class GatedDelta.*?(?=^[^+])", page.read_text("utf-8"), re.M | re.S)
    names = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional}
    exec(re.sub(r"^\+", "", lines[0], flags=re.MULTILINE), names)
    measured, shown = since.GatedDelta(since.PAPER), names["GatedDelta"](128, 4)
    shown.load_state_dict(measured.state_dict())
    x = torch.randn(2, 100, 128)
    torch.testing.assert_close(shown(x, x, x, None), measured(x, x, x, None), atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_losses_and_looks_are_of_the_model(text: Text):
    model = variants()["2025"].model().eval()
    rows, expected = text.dev[:1025], torch.nn.functional.cross_entropy
    found = losses(model, rows, 64)
    logits = model(rows[:1024].view(16, 64))
    assert found.mean() == pytest.approx(expected(logits.flatten(0, 1), rows[1:]).item())
    seen = looks(model, rows[:1024].view(16, 64))
    assert len(seen["first_weight"].split()) == 2
    assert all(0 < float(share) < 0.2 for share in seen["sink_share"].split())
    after = model(rows[:1024].view(16, 64))
    torch.testing.assert_close(after, logits)  # nothing is left behind


@pytest.mark.slow
def test_a_queue_goes_on_where_its_file_ends(
    text: Text, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path, made = tmp_path / "runs.csv", []
    train = since.train
    monkeypatch.setattr(since, "train", lambda *given: made.append(given[-1]) or train(*given))
    monkeypatch.setattr(since, "HIGHEST", 8e-3)
    kinds = [variants()["2017"], variants()["MoE 2 of 8"]]
    work = lambda seeds: Queue(text, path, 5 * 4096).work(kinds, seeds)
    work([0])
    first = pd.read_csv(path, dtype={"variant": str})
    assert len(made) == len(first)
    assert {"rates", "runs", "neighbors"} == set(first.stage)
    for name in ("2017", "MoE 2 of 8"):
        rates = first[(first.stage == "rates") & (first.variant == name)].set_index("rate").dev_loss
        best = rates.idxmin()
        least, most = rates.index.min(), rates.index.max()
        assert best == most == 8e-3 or best not in (least, most)
        (run,) = first[(first.stage == "runs") & (first.variant == name)].itertuples()
        assert run.rate == best and run.test_64 < 2.5 and len(run.curve.split()) == since.POINTS
    experts = first[first.variant == "MoE 2 of 8"].iloc[0]
    assert experts.weights_used < experts.weights
    work([0, 1])
    second = pd.read_csv(path, dtype={"variant": str})
    assert len(second) == len(first) + 2 == len(made)
    pd.testing.assert_frame_equal(second[: len(first)], first)


def test_runs_are_told_apart_by_their_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pictures, "resource_path", lambda name: tmp_path)
    table = pd.DataFrame({"variant": ["2017", "RoPE"], "dev_loss": [4.0, 3.9]})
    table.to_csv(tmp_path / "since-2017.csv", index=False)  # as before there was a second text
    assert len(pictures.small_runs()) == 2 and pictures.small_runs("running").empty
    more = table.assign(text="running", dev_loss=5.0)
    more.to_csv(tmp_path / "since-2017-running.csv", index=False)
    assert set(pictures.small_runs()["dev_loss"]) == {4.0, 3.9}
    assert set(pictures.small_runs("running")["dev_loss"]) == {5.0}
