"""Section 3.4 against the table itself and the definition of the softmax."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from annotated.embeddings import Embeddings, Generator


@given(st.integers(1, 20), st.integers(1, 12), st.data())
def test_rows_of_the_table_times_root_d_model(vocab, d_model, data):
    rows = data.draw(st.lists(st.integers(0, vocab - 1), min_size=1, max_size=6))
    layer = Embeddings(d_model, vocab)
    output = layer(torch.tensor([rows, rows[::-1]]))
    assert output.shape == (2, len(rows), d_model)
    table = layer.lut.weight.tolist()
    expected = torch.tensor([[value * math.sqrt(d_model) for value in table[i]] for i in rows])
    torch.testing.assert_close(output[0], expected)
    torch.testing.assert_close(output[1], expected.flip(0))


@given(st.integers(1, 20), st.integers(1, 8), st.sampled_from([0.1, 1.0, 100.0]))
def test_generator_gives_log_probabilities(vocab, d_model, scale):
    generator = Generator(d_model, vocab)
    x = scale * torch.randn(2, 3, d_model)
    log_probs = generator(x)
    assert log_probs.shape == (2, 3, vocab)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(2, 3), atol=1e-5, rtol=1e-5)
    weight, row = generator.proj.weight.tolist(), x[1, 2].tolist()
    logits = [sum(a * b for a, b in zip(w, row, strict=True)) for w in weight]
    top = max(logits)
    norm = top + math.log(sum(math.exp(value - top) for value in logits))
    expected = torch.tensor([value - norm for value in logits])
    torch.testing.assert_close(log_probs[1, 2], expected, atol=1e-4, rtol=1e-5)
