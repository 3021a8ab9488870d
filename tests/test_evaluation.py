"""Section 6.1: the costs of Table 2, and those of the model's matrix products."""

import pytest

from annotated.evaluation import model_cost, training_cost
from annotated.model import TransformerConfig


def test_costs_of_table_2():
    assert f"{training_cost(12):.1e}" == "3.3e+18"
    assert f"{training_cost(3.5 * 24):.1e}" == "2.3e+19"
    assert training_cost(1, gpus=2, gpu="K80") == 3600 * 2 * 2.8e12


@pytest.mark.parametrize("length", [3, 10])
def test_operations_of_the_model_are_those_of_its_matrix_products(length: int):
    d, d_ff, vocab, N = 8, 24, 50, 2
    config = TransformerConfig.base(vocab, N=N, d_model=d, d_ff=d_ff, h=2)
    attention = 4 * d * d + 2 * length * d  # projections; queries with keys, weights with values
    encoder, decoder = attention + 2 * d * d_ff, 2 * attention + 2 * d * d_ff
    forward = 2 * (N * (encoder + decoder) + d * vocab)  # 2: multiply and add
    # A backward pass has two products for each of the forward pass.
    assert model_cost(config, length) == pytest.approx(3 * forward)


@pytest.mark.parametrize(
    "wrong", [{"hours": -1}, {"hours": float("nan")}, {"gpus": 0}, {"gpus": 2.5}]
)
def test_a_training_takes_some_hours_of_some_gpus(wrong: dict):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        training_cost(**{"hours": 12} | wrong)
