"""The kernels that the package chooses compute what torch's own choice computes."""

import copy
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import profile

from annotated import load_pretrained
from annotated.machinery import kernels
from annotated.machinery.kernels import fast_attention, packed_products

CPU = torch.device("cpu")
CAPTIONS = [
    "A man in a blue shirt is standing on a ladder.",
    "Two dogs run through the snow.",
    "People.",
    "An old woman sells fresh fruit at a market on the street while children watch her.",
]


def operators(function) -> set[str]:
    """The names of torch's operators that a function calls."""
    with profile() as found, torch.no_grad():
        function()
    return {event.key for event in found.key_averages()}


def packed(function) -> bool:
    return any("_linear_pointwise" in name for name in operators(function))


@pytest.fixture(scope="module")
def translator():
    return load_pretrained("multi30k-en-de")


@pytest.fixture
def large() -> nn.Linear:
    """A map that is packed for 64 rows, and not for one."""
    return nn.Linear(128, 256)


@torch.no_grad()
def product_is_right(linear: nn.Linear) -> None:
    x = torch.randn(64, 128)
    torch.testing.assert_close(linear(x), F.linear(x, linear.weight, linear.bias))


needs_packing = pytest.mark.skipif(not kernels.PACKS, reason="torch cannot pack matrices here")


@pytest.mark.slow
@needs_packing
@pytest.mark.parametrize("beam", [1, 4])
def test_a_search_by_packed_products_finds_the_same(translator, beam: int, monkeypatch):
    search = lambda: [
        [(found.text, round(found.score, 4)) for found in group]
        for group in translator.candidates(CAPTIONS * 8, beam=beam, n_best=beam)
    ]
    assert packed(search)
    found = search()
    monkeypatch.setattr(kernels, "PACKS", False)
    assert not packed(search)
    assert search() == found


@needs_packing
def test_large_products_are_packed_inside_the_block_alone(large: nn.Linear):
    x = torch.randn(64, 128)
    with packed_products(large):
        product_is_right(large)
        assert packed(lambda: large(x)) and not packed(lambda: large(x[:1]))
    assert not packed(lambda: large(x)) and type(large) is nn.Linear


@needs_packing
def test_what_autograd_follows_is_not_packed(large: nn.Linear):
    x = torch.randn(64, 128)
    with packed_products(large):
        large(x).sum().backward()
    torch.testing.assert_close(large.weight.grad, x.sum(0).expand(256, 128))


@needs_packing
def test_hooks_see_packed_products(large: nn.Linear):
    seen: list[torch.Tensor] = []
    large.register_forward_hook(lambda module, inputs, out: seen.append(out) or 2 * out)
    x = torch.randn(64, 128)
    with packed_products(nn.Sequential(large)), torch.no_grad():
        found = large(x)
    torch.testing.assert_close(found, 2 * seen[0])


def by_an_optimizer(linear: nn.Linear) -> None:
    optimizer = torch.optim.Adam(linear.parameters(), fused=True)
    linear(torch.ones(1, 128)).sum().backward()
    optimizer.step()


def past_autograd(linear: nn.Linear) -> None:
    linear.weight.data[3, 5] += 0.01


def by_loading(linear: nn.Linear) -> None:
    linear.load_state_dict(nn.Linear(128, 256).state_dict())


def by_another_matrix(linear: nn.Linear) -> None:
    linear.weight = nn.Parameter(torch.randn(256, 128))


def by_rounding(linear: nn.Linear) -> None:
    linear.bfloat16().float()


@needs_packing
@pytest.mark.parametrize(
    "change", [by_an_optimizer, past_autograd, by_loading, by_another_matrix, by_rounding]
)
def test_what_was_packed_is_never_stale(large: nn.Linear, change):
    for _ in range(2):
        with packed_products(large):
            product_is_right(large)
        change(large)


@needs_packing
def test_what_has_not_changed_is_packed_once(large: nn.Linear):
    kept = []
    for _ in range(3):
        with packed_products(large), packed_products(large):  # one in the other
            product_is_right(large)
        kept.append(kernels._packs[large][0])
    assert kept[0] is kept[1] is kept[2] and type(large) is nn.Linear


@needs_packing
def test_a_copy_made_in_the_block_is_a_linear_map_of_its_own(large: nn.Linear):
    with packed_products(large):
        product_is_right(large)
        other = copy.deepcopy(large)
        assert large.state_dict().keys() == other.state_dict().keys()
    for _ in range(2):
        with packed_products(other):
            product_is_right(other)
        by_an_optimizer(other)
    assert type(other) is nn.Linear


@needs_packing
def test_threads_that_translate_with_one_model_do_not_disturb_each_other(large: nn.Linear):
    model, failed = nn.Sequential(large, nn.Linear(256, 128)), list[Exception]()
    x = torch.randn(64, 128)
    with torch.no_grad():
        expected = model(x)

    def translate() -> None:
        try:
            for _ in range(200):
                with packed_products(model), torch.no_grad():
                    torch.testing.assert_close(model(x), expected)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=translate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and {type(m) for m in model} == {nn.Linear}


@pytest.mark.parametrize("length", [5, 60, 150])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_a_cpu_the_fused_kernel_is_for_32_bits_and_for_long_sentences(dtype, length: int):
    query, key, value = (torch.randn(2, 4, length, 16).to(dtype) for _ in range(3))

    def attention() -> None:
        with fast_attention(dtype, CPU, length):
            F.scaled_dot_product_attention(query, key, value)

    fused = any("flash" in name for name in operators(attention))
    assert fused == (dtype == torch.float32 or length > 128)
