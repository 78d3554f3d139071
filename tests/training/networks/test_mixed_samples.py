"""Networks and losses in which samples of a batch have a part in one another, and losses that draw random numbers."""

import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.algorithms import Problem, Tensors
from fedcohort.algorithms.losses import Loss
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.training_settings import Training
from fedcohort.engines.local_engine import LocalEngine, Plan
from fedcohort.federation.federation import Federation
from fedcohort.models import as_model
from fedcohort.selection import Cohort
from fedcohort.testing.base import HEALTHY, bits, small_federation
from fedcohort.training.networks.mixed_samples import largest_pass, passes
from fedcohort.training.networks.received_outputs import CHUNK
from fedcohort.training.scripts import network_scripts
from tests.training import own_losses
from tests.training.own_losses import Focal, HardHalf, MixedLabels, NoisyLogits, Summed

SEED = 3


class Mean(nn.Module):
    """Subtracts the mean of the batch."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(inputs, 3)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.layer(x - 0.5 * x.mean(0))
        return outputs


def normed(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, classes))


class Frozen(nn.BatchNorm1d):
    """Batch norm that never takes statistics."""

    def train(self, mode: bool = True) -> "Frozen":
        return super().train(False)


def frozen(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], 8), Frozen(8).train(), nn.ReLU(), nn.Linear(8, classes))


def plain(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, classes))


def own(kind: type[Loss]) -> dict[str, Any]:
    """The setting of a loss of a user."""
    return {"name": f"{own_losses.__file__}:{kind.__name__}"}


def trained(
    network: Callable[..., nn.Module],
    settings: Training,
    federation: Federation,
    clients: Sequence[int],
    plan: Plan = "loop",
) -> tuple[Tensors, list[Any]]:
    """The initial model, and the updates of these clients."""
    workers = 1 if plan == "loop" else 2
    with closing(LocalEngine(federation, as_model(network), settings, FedAvg(), SEED, workers, plan=plan)) as engine:
        start = engine.initial_model()
        return start, list(engine.train(start, 1, Cohort(np.array(clients)), FedAvg()))


@pytest.mark.parametrize(
    ("samples", "most", "least", "expected"),
    [
        (5, 8, 1, [5]),
        (16, 8, 2, [8, 8]),
        (17, 8, 1, [8, 8, 1]),
        (17, 8, 2, [8, 9]),
        (18, 8, 2, [8, 8, 2]),
        (1, 8, 2, [1]),
        (0, 8, 2, [0]),
    ],
)
def test_the_last_pass_is_not_too_small(samples: int, most: int, least: int, expected: list[int]) -> None:
    assert [part.stop - part.start for part in passes(samples, most, least)] == expected


@pytest.mark.parametrize("samples", [CHUNK + 1, 2 * CHUNK + 40])
@pytest.mark.parametrize("network", [normed, lambda shape, _: Mean(shape[0])], ids=["batch norm", "mean"])
def test_a_large_batch_of_a_network_that_mixes_samples_is_one_pass(
    network: Callable[..., nn.Module], samples: int
) -> None:
    federation = small_federation([samples], trouble=False)
    settings = Training(batch_size=0, momentum=0.0, lr=0.1, precision="float64", epochs=2)
    start, [update] = trained(network, settings, federation, [0])
    module, data = (
        as_model(network).build(federation.sample_shape, federation.num_outputs).double(),
        federation.client(0),
    )
    module.load_state_dict(start)
    for _ in range(2):
        module.zero_grad()
        functional.cross_entropy(module.train()(data.features.double()), data.labels).backward()
        with torch.no_grad():
            for value in module.parameters():
                assert value.grad is not None
                value.sub_(0.1 * value.grad)
    for name, value in module.state_dict().items():
        assert torch.allclose(update.state[name], value, rtol=1e-9, atol=1e-12), name


def test_a_large_batch_of_a_loss_that_mixes_samples_is_one_pass() -> None:
    federation = small_federation([CHUNK + 30], trouble=False)
    settings = Training(batch_size=0, momentum=0.0, lr=0.1, precision="float64", loss=own(HardHalf))
    start, [update] = trained(lambda shape, _: nn.Linear(shape[0], 3), settings, federation, [0])
    weight, data = start["weight"].clone().requires_grad_(), federation.client(0)
    HardHalf().samples(data.features.double() @ weight.T + start["bias"], data.labels).mean().backward()
    assert torch.allclose(update.state["weight"], (weight - 0.1 * weight.grad).detach(), rtol=1e-9)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("network", "loss", "size", "whole"),
    [
        (plain, Focal(), 0, False),
        (frozen, Focal(), 0, False),
        (normed, Focal(), 0, True),
        (normed, Focal(), CHUNK, False),
        (plain, HardHalf(), 0, True),
        (plain, Summed(), 0, True),
    ],
    ids=["plain", "frozen", "normed", "small batches", "hard half", "summed"],
)
def test_only_what_mixes_samples_has_larger_passes(
    network: Callable[..., nn.Module], loss: Loss, size: int, whole: bool
) -> None:
    federation = small_federation([CHUNK + 30], trouble=False)
    module = network(federation.sample_shape, 3)
    assert largest_pass(federation, module, loss, size) == (CHUNK + 30 if whole else CHUNK)


class FullGradient(FedAvg):
    """Adds the gradient over all samples."""

    corrects = True

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        whole = problem.full_gradient(problem.anchor)
        for name, gradient in gradients.items():
            gradient.add_(whole[name])


def test_a_gradient_over_all_samples_has_no_batch_of_one() -> None:
    federation = small_federation([CHUNK + 1], trouble=False)
    with closing(LocalEngine(federation, as_model(normed), Training(batch_size=64), FullGradient(), SEED, 1)) as engine:
        [update] = engine.train(engine.initial_model(), 1, Cohort(np.array([0])), FullGradient())
    assert update.failure is None


@pytest.mark.parametrize("kind", [HardHalf, Summed])
def test_a_loss_that_mixes_samples_is_not_stacked(kind: type[Loss]) -> None:
    settings, federation = Training(batch_size=4, lr=0.1, loss=own(kind)), small_federation(trouble=False)
    _, expected = trained(plain, settings, federation, HEALTHY[:3])
    with pytest.warns(UserWarning, match=rf"the loss {kind.__name__} of a sample depends on the others of its batch"):
        _, found = trained(plain, settings, federation, HEALTHY[:3], "stacked")
    assert [bits(update.state) for update in found] == [bits(update.state) for update in expected]


def test_other_losses_are_stacked() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained(plain, Training(batch_size=4, loss=own(Focal)), small_federation(trouble=False), HEALTHY[:3], "stacked")


@pytest.mark.parametrize("uses", [1, 1000], ids=["scripts", "autograd"])
@pytest.mark.parametrize("network", [plain, normed])
@pytest.mark.parametrize("kind", [MixedLabels, NoisyLogits])
def test_a_loss_that_draws_can_be_repeated(
    kind: type[Loss], network: Callable[..., nn.Module], uses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, federation = Training(batch_size=4, epochs=3, loss=own(kind)), small_federation(trouble=False)
    _, expected = trained(network, settings, federation, HEALTHY[:3])
    torch.manual_seed(1)
    monkeypatch.setattr(network_scripts, "USES", uses)
    monkeypatch.setattr(network_scripts, "LONGEST", 60.0)
    for plan in ("loop", "threads"):
        _, found = trained(network, settings, federation, HEALTHY[:3], plan)
        assert [bits(update.state) for update in found] == [bits(update.state) for update in expected]
    one, other = (trained(network, settings, federation, [client])[1] for client in HEALTHY[:2])
    assert bits(one[0].state) != bits(other[0].state)
