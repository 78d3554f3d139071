"""Recorded passes as far as they can be tested without a GPU; ``tests/engines/test_gpu.py`` has the rest."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedcohort.algorithms.losses import CrossEntropy, Robust
from fedcohort.training.scripts.recorded_passes import RecordedPass, common_batch_sizes, record_pass


@dataclass
class Doubling:
    """In place of a graph of CUDA: the gradient is twice the sum of the batch."""

    features: Tensor = field(default_factory=lambda: torch.zeros(2, 3))
    gradient: Tensor = field(default_factory=lambda: torch.zeros(()))

    def replay(self) -> None:
        self.gradient.copy_(2 * self.features.sum())


def passes(*, fresh: bool) -> tuple[RecordedPass, Tensor]:
    graph, parameter = Doubling(), torch.zeros((), requires_grad=True)
    results = torch.zeros(2), torch.tensor(0)
    labels = torch.zeros(2, dtype=torch.int64)
    return RecordedPass(graph, [parameter], graph.features, labels, results, [graph.gradient], fresh), parameter


@pytest.mark.parametrize("fresh", [False, True])
def test_a_batch_is_copied_into_the_recording(fresh: bool) -> None:
    recording, parameter = passes(fresh=fresh)
    assert recording.play(torch.ones(2, 3), torch.tensor([0, 1])) is not None
    assert parameter.grad == 12
    assert recording.labels.tolist() == [0, 1]


def test_fresh_gradients_can_be_kept() -> None:
    kept = {}
    for fresh in (True, False):
        recording, parameter = passes(fresh=fresh)
        recording.play(torch.ones(2, 3), torch.tensor([0, 1]))
        first = parameter.grad
        recording.play(2 * torch.ones(2, 3), torch.tensor([0, 1]))
        assert parameter.grad == 24
        kept[fresh] = first
    assert kept[True] == 12
    assert kept[False] == 24


def test_results_of_a_step_stay_when_the_next_is_played() -> None:
    recording, _ = passes(fresh=False)
    first = recording.play(torch.ones(2, 3), torch.tensor([0, 1]))
    assert first is not None
    recording.results[0].fill_(5)
    assert first[0].tolist() == [0, 0]


def test_a_batch_of_another_size_is_not_played() -> None:
    recording, parameter = passes(fresh=False)
    assert recording.play(torch.ones(1, 3), torch.tensor([0])) is None
    assert parameter.grad is None


def test_a_network_that_cannot_be_recorded_stays_as_it_is() -> None:
    """Here, because there is no GPU."""
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    batch = torch.randn(5, 3), torch.arange(5) % 4
    if torch.cuda.is_available():
        pytest.skip("this machine could record it")
    assert record_pass(module, dict(module.named_parameters()), CrossEntropy(), *batch) is None
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())


def test_networks_with_hooks_and_losses_of_the_received_model_are_not_tried() -> None:
    batch = torch.randn(5, 3), torch.arange(5) % 4
    calls = []
    module = nn.Linear(3, 4)
    module.register_forward_hook(lambda *_: calls.append(1))
    assert record_pass(module, dict(module.named_parameters()), CrossEntropy(), *batch) is None
    assert record_pass(nn.Linear(3, 4), {}, Robust(), *batch) is None
    assert not calls


@pytest.mark.parametrize(
    ("samples", "batch_size", "sizes"),
    [
        ([60, 60, 60], 20, [20]),
        ([50, 50, 66], 16, [16, 2]),
        ([50, 50, 48, 37], 16, [16, 2]),
        ([50, 51, 48, 37], 16, [16]),  # the last batches have nothing in common
        ([10, 10, 0], 20, [10]),  # no client has a full batch
        ([30, 30, 20], 0, [30]),
        ([0, 0], 16, []),
        ([], 16, []),
    ],
)
def test_passes_are_recorded_for_the_usual_batches(samples: list[int], batch_size: int, sizes: list[int]) -> None:
    assert common_batch_sizes(np.array(samples, dtype=np.int64), batch_size) == sizes
