"""Joined passes of perceptrons have the bits of a pass for each client."""

from itertools import accumulate, pairwise

import pytest
import torch
from torch import nn

from fedcohort.core.threads import one_thread
from fedcohort.training.matrix_products import quick_products
from fedcohort.training.programs.joined_passes import JOINED, JoinedPasses
from fedcohort.training.programs.plain_network import program_of

NETWORKS = {
    "perceptron": lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10)),
    "one layer": lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 10)),
    "deep": lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.Tanh(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 3)),
    "dropout": lambda: nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10)).eval(),
    "relu first": lambda: nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10)),
}  # fmt: skip
SIZES = {
    "even": [50] * 20,
    "mixed": [1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 128, 128, 60, 7, 6, 1, 100],
    "single samples": [1] * 300,
    "few": [40, 60, 30],
    "one more than full": [64] * 4 + [1],
    "with a large one": [300, 100, 100],
}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_outputs_have_the_bits_of_one_pass_for_each_part(network, sizes, dtype):
    torch.manual_seed(3)
    module = quick_products(NETWORKS[network]()).to(dtype)
    program = program_of(module, (1, 28, 28))
    assert program is not None
    assert program.is_perceptron
    edges = [0, *accumulate(SIZES[sizes])]
    x = torch.randn(edges[-1], 1, 28, 28, dtype=dtype)
    with one_thread(), torch.no_grad():  # as in a run
        expected = torch.cat([module(x[a:b].clone()) for a, b in pairwise(edges)])
        for _ in range(2):
            assert torch.equal(program.outputs(x.clone(), edges), expected)


class Passes:
    """Stands for forward passes whose bits depend on nothing but what a test says, and counts them.

    Samples at odd places of a pass of more than ``wrong`` samples get other bits, and so do all samples of a pass of fewer than
    ``from_size``, or only those whose first number is large if that is ``rare``. The real products differ from processor to processor.
    """

    def __init__(self, wrong=10**6, from_size=0, *, rare=False):
        self.sizes, self.wrong, self.from_size, self.rare = [], wrong, from_size, rare

    def __call__(self, layers, values, x, edges):
        self.sizes += [b - a for a, b in pairwise(edges)]
        parts = []
        for a, b in pairwise(edges):
            out = x[a:b].flatten(1)[:, :10] * 2
            if b - a > self.wrong:
                out[1::2] += 1e-6
            if b - a < self.from_size:
                out = out + 1e-6 * (out[:, :1] > 2 if self.rare else 1)
            parts.append(out)
        return torch.cat(parts)


def passes_of(passes):
    program = program_of(NETWORKS["perceptron"](), (1, 28, 28))
    assert program is not None
    return JoinedPasses(passes, program._layers, program._values)


def test_parts_are_joined_after_each_size_was_tried_once():
    passes = Passes()
    joined = passes_of(passes)
    x, edges = torch.randn(1000, 1, 28, 28), list(range(0, 1001, 50))
    joined.outputs(x, edges)
    passes.sizes.clear()
    joined.outputs(x, edges)
    assert passes.sizes == [JOINED] * 4


def test_nothing_is_joined_if_outputs_depend_on_the_place_of_a_sample():
    passes = Passes(wrong=JOINED - 1)
    joined = passes_of(passes)
    x, edges = torch.randn(1000, 1, 28, 28), list(range(0, 1001, 50))
    joined.outputs(x, edges)
    passes.sizes.clear()
    joined.outputs(x, edges)
    assert passes.sizes == [50] * 20


def test_sizes_with_other_bits_are_passed_alone():
    passes = Passes(from_size=10)
    joined = passes_of(passes)
    edges = [0, *accumulate([100, 4, 100, 9, 100, 10])]
    x = torch.randn(edges[-1], 1, 28, 28)
    expected = passes([*joined._layers], joined._values, x, edges)
    assert torch.equal(joined.outputs(x, edges), expected)
    passes.sizes.clear()
    joined.outputs(x, edges)
    assert passes.sizes == [JOINED, JOINED, 4, 9]


def test_sizes_whose_bits_rarely_differ_are_passed_alone():
    """Few outputs of one small part can be the same by chance, so the samples of a whole pass are tried."""
    passes = Passes(from_size=10, rare=True)
    joined = passes_of(passes)
    edges = [0, *accumulate([1, 100, 2, 100, 3, 100])]
    x = torch.randn(edges[-1], 1, 28, 28)
    joined.outputs(x, edges)
    passes.sizes.clear()
    joined.outputs(x, edges)
    assert passes.sizes == [JOINED, JOINED, 1, 2, 3]


def test_samples_that_are_not_aligned_alike_are_passed_alone():
    passes = Passes()
    program = program_of(nn.Sequential(nn.Linear(13, 20), nn.ReLU(), nn.Linear(20, 2)), (13,))
    assert program is not None
    joined = JoinedPasses(passes, program._layers, program._values)
    joined.outputs(torch.randn(400, 13), [0, 200, 400])
    assert passes.sizes == [200, 200]
