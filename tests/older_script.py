# ruff: noqa: F403, F405  (this is how such scripts begin)
"""A script in the vocabulary of The Annotated Transformer: small examples, then the copy task.

It is ours, in that API's names, order of arguments, masks, and way to drive an epoch.
tests/test_compat.py runs it and looks at what it made.
"""

from copy import deepcopy

import torch
from torch import nn
from torch.optim import Adam
from torch.optim.lr_scheduler import LambdaLR

from annotated.compat import *

V = 11
sentence, all_seen = torch.arange(1, 11).unsqueeze(0), torch.ones(1, 1, 10)

# An untrained model writes token by token.
untrained = make_model(V, V, 2).eval()
memory, said = untrained.encode(sentence, all_seen), torch.zeros(1, 1, dtype=torch.long)
spoken = []  # the probabilities of each step
while said.size(1) < 10:
    causal = subsequent_mask(said.size(1)).type_as(sentence)
    decoded = untrained.decode(memory, all_seen, said, causal)
    spoken.append(untrained.generator(decoded[:, -1]).exp())
    said = torch.cat([said, spoken[-1].argmax(-1, keepdim=True)], dim=1)
encoder_maps = [layer.self_attn.attn for layer in untrained.encoder.layers]
decoder_maps = [layer.self_attn.attn for layer in untrained.decoder.layers]
across_maps = [layer.src_attn.attn for layer in untrained.decoder.layers]
greedy = greedy_decode(untrained, sentence, all_seen, max_len=10, start_symbol=0)

# A model put together by hand.
heads, feed_forward = MultiHeadedAttention(4, 32), PositionwiseFeedForward(32, 64, 0.1)
position = PositionalEncoding(32, 0.1, max_len=50)
by_hand = EncoderDecoder(
    Encoder(EncoderLayer(32, deepcopy(heads), deepcopy(feed_forward), 0.1), 2),
    Decoder(DecoderLayer(32, deepcopy(heads), deepcopy(heads), feed_forward, 0.1), 2),
    nn.Sequential(Embeddings(32, V), deepcopy(position)),
    nn.Sequential(Embeddings(32, V), deepcopy(position)),
    Generator(32, V),
)
symbols = torch.randint(1, V, (3, 10))
batch = Batch(symbols, symbols, pad=0)
states = by_hand(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
log_probs = by_hand.generator(states)
normed = LayerNorm(32)(states)
mixed, weights = attention(states, states, states, batch.tgt_mask, nn.Dropout(0.1))
add_and_norm = SublayerConnection(32, dropout=0.0)
twice = [add_and_norm(states, linear) for linear in clones(nn.Linear(32, 32), 2)]

# The copy task.
torch.manual_seed(0)
copier = make_model(V, V, N=2, d_model=32, d_ff=64, h=4, dropout=0.0)
criterion = LabelSmoothing(size=V, padding_idx=0, smoothing=0.0)
loss_compute = SimpleLossCompute(copier.generator, criterion)
optimizer = Adam(copier.parameters(), lr=0.5, betas=(0.9, 0.98), eps=1e-9)
d_model = copier.src_embed[0].d_model
scheduler = LambdaLR(optimizer, lambda step: rate(step, d_model, factor=1.0, warmup=100))
state, losses, measuring_changed_nothing = TrainState(), [], True
for _ in range(12):
    copier.train()
    data = data_gen(V, batch_size=40, nbatches=20)
    driven = data, copier, loss_compute, optimizer, scheduler
    _, state = run_epoch(*driven, mode="train", train_state=state)
    copier.eval()
    before, data = deepcopy(copier.state_dict()), data_gen(V, batch_size=40, nbatches=5)
    nothing = DummyOptimizer(), DummyScheduler()
    held_out = run_epoch(data, copier, loss_compute, *nothing, mode="eval")
    losses.append(float(held_out[0]))
    after = copier.state_dict()
    measuring_changed_nothing &= all(torch.equal(before[name], after[name]) for name in before)

copied = greedy_decode(copier, sentence, all_seen, max_len=10, start_symbol=1)
others = next(data_gen(V, 100, 1))
others_copied = greedy_decode(copier, others.src, others.src_mask, max_len=10, start_symbol=1)

# The mean of several models.
several, mean = [nn.Linear(3, 2) for _ in range(3)], nn.Linear(3, 2)
average(mean, several)
