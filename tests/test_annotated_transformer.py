"""Scripts in the vocabulary of The Annotated Transformer run here with their imports changed.

The scripts are ours, in that API's names, order of arguments, masks, and way of driving an epoch.
What it has and we lack is named on the front page.
"""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

import annotated
from annotated import (
    Batch,
    LabelSmoothing,
    SimpleLossCompute,
    greedy_decode,
    make_model,
    rate,
    run_epoch,
    subsequent_mask,
)

V = 11


class NoOptimizer:
    """Stands where an optimizer is asked for and nothing is to be learned."""

    param_groups = ({"lr": 0.0},)

    def step(self):
        raise AssertionError("evaluation must not change the weights")

    def zero_grad(self, set_to_none=False):
        raise AssertionError("evaluation has no gradients to forget")


class NoScheduler:
    def step(self):
        raise AssertionError("evaluation must not change the learning rate")


def data_gen(V, batch_size, nbatches):
    """Random sequences of ten symbols that begin with 1, to be copied."""
    for _ in range(nbatches):
        data = torch.randint(1, V, size=(batch_size, 10))
        data[:, 0] = 1
        src = data.requires_grad_(False).clone().detach()
        tgt = data.requires_grad_(False).clone().detach()
        yield Batch(src, tgt, 0)


def test_an_untrained_model_generates_token_by_token():
    model = make_model(V, V, 2)
    model.eval()
    src = torch.LongTensor([list(range(1, 11))])
    src_mask = torch.ones(1, 1, 10)
    memory = model.encode(src, src_mask)
    assert memory.shape == (1, 10, 512)
    ys = torch.zeros(1, 1).type_as(src)
    for _ in range(9):
        out = model.decode(memory, src_mask, ys, subsequent_mask(ys.size(1)).type_as(src.data))
        prob = model.generator(out[:, -1])
        assert prob.exp().sum().item() == pytest.approx(1, abs=1e-5)
        _, next_word = torch.max(prob, dim=1)
        next_word = next_word.data[0]
        ys = torch.cat([ys, torch.empty(1, 1).type_as(src.data).fill_(next_word)], dim=1)
    assert ys.shape == (1, 10)
    assert ys.dtype == torch.int64
    assert ys.min() >= 0 and ys.max() < V
    assert torch.equal(ys, greedy_decode(model, src, src_mask, max_len=10, start_symbol=0))

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
    criterion = LabelSmoothing(size=V, padding_idx=0, smoothing=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5, betas=(0.9, 0.98), eps=1e-9)
    lr_scheduler = LambdaLR(
        optimizer=optimizer,
        lr_lambda=lambda step: rate(
            step, model_size=model.src_embed[0].d_model, factor=1.0, warmup=400
        ),
    )
    losses = []
    for _ in range(20):
        model.train()
        _, train_state = run_epoch(
            data_gen(V, 80, 20),
            model,
            SimpleLossCompute(model.generator, criterion),
            optimizer,
            lr_scheduler,
            mode="train",
        )
        model.eval()
        loss = run_epoch(
            data_gen(V, 80, 5),
            model,
            SimpleLossCompute(model.generator, criterion),
            NoOptimizer(),
            NoScheduler(),
            mode="eval",
        )[0]
        losses.append(float(loss))
    assert (train_state.step, train_state.accum_step) == (20, 20)
    assert (train_state.samples, train_state.tokens) == (20 * 80, 20 * 80 * 9)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.5 * 64**-0.5 * 400**-0.5)
    assert 1.5 < losses[0] < 3  # near ln 10 = 2.3, as before anything is learned
    assert losses[-1] < 0.1

    model.eval()
    src = torch.LongTensor([list(range(1, 11))])
    src_mask = torch.ones(1, 1, src.shape[1])
    copied = greedy_decode(model, src, src_mask, max_len=src.shape[1], start_symbol=1)
    assert torch.equal(copied, src)

    others = next(data_gen(V, 100, 1))
    copied = greedy_decode(model, others.src, others.src_mask, max_len=10, start_symbol=1)
    assert (copied == others.src).float().mean() > 0.95


def test_the_front_page_names_what_that_api_has_and_this_package_lacks():
    page = (Path(__file__).parent.parent / "chapters" / "index.md").read_text(encoding="utf-8")
    missing = page.split("What it would miss are")[1].split("It is still")[0]
    for name in "LayerNorm", "data_gen", "DummyOptimizer", "DummyScheduler", "average":
        assert f"`{name}`" in missing and not hasattr(annotated, name)
    assert not callable(annotated.attention) and callable(annotated.scaled_dot_product)
    assert not hasattr(LabelSmoothing(5, 0, 0.1), "true_dist")
