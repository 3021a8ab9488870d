"""Scripts in the vocabulary of The Annotated Transformer run with one line changed.

The scripts are ours, in that API's names, order of arguments, masks, and way of driving an epoch.
"""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.optim import Adam
from torch.optim.lr_scheduler import LambdaLR

from annotated import compat
from annotated.compat import (
    Batch,
    DummyOptimizer,
    DummyScheduler,
    LabelSmoothing,
    LayerNorm,
    SimpleLossCompute,
    attention,
    average,
    data_gen,
    greedy_decode,
    make_model,
    rate,
    run_epoch,
    subsequent_mask,
)

NAMES = """
    Batch Decoder DecoderLayer DummyOptimizer DummyScheduler Embeddings Encoder EncoderDecoder
    EncoderLayer Generator LabelSmoothing LayerNorm MultiHeadedAttention PositionalEncoding
    PositionwiseFeedForward SimpleLossCompute SublayerConnection TrainState attention average
    clones data_gen greedy_decode make_model rate run_epoch subsequent_mask
"""
V = 11


def test_every_name_of_that_notebook_s_model_and_training_is_there():
    assert sorted(NAMES.split()) == sorted(compat.__all__)
    assert all(callable(getattr(compat, name)) for name in compat.__all__)


def test_an_untrained_model_writes_token_by_token():
    model = make_model(V, V, 2).eval()
    src, src_mask = torch.arange(1, 11).unsqueeze(0), torch.ones(1, 1, 10)
    memory, said = model.encode(src, src_mask), torch.zeros(1, 1, dtype=torch.long)
    assert memory.shape == (1, 10, 512)
    while said.size(1) < 10:
        decoded = model.decode(memory, src_mask, said, subsequent_mask(said.size(1)).type_as(src))
        log_probs = model.generator(decoded[:, -1])
        assert log_probs.exp().sum().item() == pytest.approx(1, abs=1e-5)
        said = torch.cat([said, log_probs.argmax(-1, keepdim=True)], dim=1)
    assert torch.equal(said, greedy_decode(model, src, src_mask, max_len=10, start_symbol=0))

    # The weights of the last call, where that API keeps them: nine tokens gave the tenth.
    for i in range(2):
        encoder = model.encoder.layers[i].self_attn.attn
        own, across = model.decoder.layers[i].self_attn.attn, model.decoder.layers[i].src_attn.attn
        assert encoder.shape == (1, 8, 10, 10)
        assert own.shape == (1, 8, 9, 9)
        assert across.shape == (1, 8, 9, 10)
        for weights in encoder, own, across:
            torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        assert not own.triu(diagonal=1).any()  # nothing from the right


def test_the_parts_that_scripts_reach_into():
    model = make_model(src_vocab=V, tgt_vocab=13, N=2, d_model=32, d_ff=64, h=4, dropout=0.1)
    assert model.src_embed[0].d_model == 32
    assert model.src_embed[0].lut.weight.shape == (V, 32)
    assert model.tgt_embed[0].lut.weight.shape == (13, 32)
    assert model.generator.proj.weight.shape == (13, 32)
    assert isinstance(model.src_embed, nn.Sequential)
    mask = Batch.make_std_mask(torch.tensor([[1, 5, 2, 0]]), 0)
    assert mask.tolist() == [[[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0]]]
    batch = Batch(torch.tensor([[3, 4, 0]]), torch.tensor([[1, 5, 2, 0]]), 0)
    assert batch.src_mask.tolist() == [[[True, True, False]]]
    assert batch.tgt.tolist() == [[1, 5, 2]] and batch.tgt_y.tolist() == [[5, 2, 0]]
    assert batch.ntokens == 2


def test_the_copy_task_is_learned():
    model = make_model(V, V, N=2, d_model=64, d_ff=128, h=4, dropout=0.1)
    loss = SimpleLossCompute(model.generator, LabelSmoothing(V, padding_idx=0, smoothing=0.0))
    optimizer = Adam(model.parameters(), lr=0.5, betas=(0.9, 0.98), eps=1e-9)
    schedule = LambdaLR(optimizer, lambda step: rate(step, model_size=64, factor=1.0, warmup=400))
    losses = []
    for _ in range(20):
        model.train()
        _, state = run_epoch(data_gen(V, 80, 20), model, loss, optimizer, schedule, mode="train")
        model.eval()
        before = [parameter.clone() for parameter in model.parameters()]
        idle = DummyOptimizer(), DummyScheduler()
        losses.append(float(run_epoch(data_gen(V, 80, 5), model, loss, *idle, mode="eval")[0]))
        assert all(map(torch.equal, before, model.parameters()))
    assert (state.step, state.accum_step) == (20, 20)
    assert (state.samples, state.tokens) == (20 * 80, 20 * 80 * 9)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.5 * 64**-0.5 * 400**-0.5)
    assert 1.5 < losses[0] < 3  # near ln 10 = 2.3, as before anything is learned
    assert losses[-1] < 0.1

    src = torch.arange(1, 11).unsqueeze(0)
    copied = greedy_decode(model, src, torch.ones(1, 1, 10), max_len=10, start_symbol=1)
    assert torch.equal(copied, src)
    others = next(data_gen(V, 100, 1))
    copied = greedy_decode(model, others.src, others.src_mask, max_len=10, start_symbol=1)
    assert (copied == others.src).float().mean() > 0.95


SCRIPT = """
from annotated.compat import *
import torch

heads = MultiHeadedAttention(4, 32)
layer = EncoderLayer(32, heads, PositionwiseFeedForward(32, 64, 0.1), 0.1)
encoder = Encoder(layer, 2)
norm = LayerNorm(32)
embed = torch.nn.Sequential(Embeddings(32, 9), PositionalEncoding(32, 0.1, max_len=50))
batch = next(data_gen(9, 3, 1))
x = norm(encoder(embed(batch.src), batch.src_mask))
x, weights = attention(x, x, x, batch.src_mask, torch.nn.Dropout(0.1))
print(tuple(x.shape), tuple(weights.shape), tuple(Generator(32, 9)(x).shape))
"""


def test_a_script_that_builds_its_model_by_hand():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.stdout == "(3, 10, 32) (3, 10, 10) (3, 10, 9)\n", done.stderr


def test_attention_with_dropout_on_its_weights():
    query, key, value = torch.randn(3, 2, 4, 5, 8)  # each (2, 4, 5, 8)
    output, weights = attention(query, key, value)
    expected = nn.functional.scaled_dot_product_attention(query, key, value)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 5))
    output, kept = attention(query, key, value, dropout=lambda w: w * (w > 0.2))
    assert torch.equal(kept, weights * (weights > 0.2))
    torch.testing.assert_close(output, kept @ value)
    causal = subsequent_mask(5)
    torch.testing.assert_close(
        attention(query, key, value, causal)[0],
        nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True),
    )


def test_normalisation_leaves_mean_0_and_variance_1():
    x = LayerNorm(64)(torch.randn(3, 64) * 5 + 2)
    torch.testing.assert_close(x.mean(-1), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(x.var(-1, unbiased=False), torch.ones(3), atol=1e-4, rtol=0)


@pytest.mark.parametrize("smoothing", [0.0, 0.4])
def test_the_loss_keeps_the_distribution_that_it_compared_with(smoothing: float):
    loss = LabelSmoothing(5, padding_idx=0, smoothing=smoothing)
    log_probs = torch.randn(3, 5).log_softmax(-1)
    target = torch.tensor([2, 1, 0])
    value = loss(log_probs, target)
    assert loss.true_dist.shape == (3, 5)
    assert not loss.true_dist[2].any()  # padding
    torch.testing.assert_close(loss.true_dist[:2].sum(-1), torch.ones(2))
    torch.testing.assert_close(value, -(loss.true_dist * log_probs).sum())


def test_the_average_of_models():
    model, *others = (nn.Linear(3, 2) for _ in range(4))
    average(model, others)
    for own, *theirs in zip(model.parameters(), *(o.parameters() for o in others), strict=True):
        torch.testing.assert_close(own, sum(theirs) / 3)
