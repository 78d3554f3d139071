"""Every partition and every model fulfills its contract."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.core.token_shape import TokenShape
from fedcohort.experiment import Partition
from fedcohort.federation import Rule, parameters
from fedcohort.federation.partition import DirichletClass, Iid, Indices
from fedcohort.federation.partitions.given_counts import GivenCounts
from fedcohort.federation.partitions.given_sizes import GivenSizes
from fedcohort.models import MODELS, Model
from fedcohort.runs.sequence_checks import SEQUENCE_MODELS
from fedcohort.selection.strategies.uniform import Uniform
from fedcohort.testing import check_algorithm, check_model, check_partition, check_selector

RULES: dict[str, Callable[[], Rule]] = {
    **{name: Partition.table.find(name, "federation.partition.name") for name in Partition.table},
    "given_counts": partial(GivenCounts, counts=[[10 * (i % 3), 10, 0, i + 1] for i in range(6)]),
    "given_sizes": partial(GivenSizes, sizes=[5, 100, 0, 1, 300, 194]),
    "iid, stratified": partial(Iid, stratified=True),
    "dirichlet_class, plain": partial(DirichletClass, variant="plain", alpha=0.5, min_size=1),
}

COMPLETE = {"iid", "dirichlet_class", "dirichlet_client", "random_fractions", "quantity"}
"""Rules that assign every sample to a client."""


@pytest.mark.parametrize("name", RULES)
def test_every_partition_fulfills_the_contract(name: str) -> None:
    check_partition(RULES[name], complete=name.split(",")[0] in COMPLETE)


@pytest.mark.parametrize("name", list(MODELS))
def test_every_model_fulfills_the_contract(name: str) -> None:
    if name in SEQUENCE_MODELS:
        for each_position in (True, False):
            check_model(MODELS.find(name, "model.name"), shape=TokenShape((9,), 12, each_position), num_classes=12)
    else:
        check_model(MODELS.find(name, "model.name"))


def test_a_model_that_sees_the_next_token_is_found() -> None:
    @parameters
    class Looks(Model):
        """Every position sees the whole sequence."""

        def build(self, shape: tuple[int, ...], num_classes: int) -> nn.Module:
            return nn.Sequential(nn.Embedding(12, 4), nn.Flatten(), nn.Linear(4 * 9, 9 * 12), nn.Unflatten(1, (9, 12)))

    with pytest.raises(AssertionError, match="depend on tokens after it"):
        check_model(Looks, shape=TokenShape((9,), 12, each_position=True), num_classes=12)


class Network(nn.Module):
    """A network as an experiment names it."""

    def __init__(self, shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), num_classes))

    def forward(self, x: torch.Tensor) -> Any:
        return self.layers(x)


class WithASecondOutput(Network):
    def forward(self, x: torch.Tensor) -> Any:
        return self.layers(x), x


def build(shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Network(shape, num_classes)


def test_networks_are_checked_as_an_experiment_names_them() -> None:
    for network in (Network, build, lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 5))):
        check_model(network)
    with pytest.raises(AssertionError, match="WithASecondOutput: returns a tuple; return logits only"):
        check_model(WithASecondOutput)


def test_models_fulfill_the_contract_on_color_images_and_on_tables() -> None:
    check_model(MODELS.find("cnn_a", "model.name"), shape=(3, 32, 32))
    for name in ("logistic", "mlp"):
        check_model(MODELS.find(name, "model.name"), shape=(30,), num_classes=2)


@parameters
class LosesOneSample(Iid):
    """Assigns the first sample to no client."""

    def assign(self, labels: Indices, num_clients: int, rng: object, writers: Indices | None = None) -> Indices:
        clients = super().assign(labels, num_clients, rng, writers)  # type: ignore[arg-type]
        clients[0] = -1
        return clients


def test_the_check_detects_lost_samples() -> None:
    check_partition(LosesOneSample, complete=False)
    with pytest.raises(AssertionError, match="1 sample without a client"):
        check_partition(LosesOneSample)


def rule(assign: Callable[..., Any], least: int = 1) -> Callable[[], Rule]:
    """Makes a rule with this method ``assign(self, labels, num_clients, rng)``, and this smallest number of samples."""

    @parameters
    class Own:
        """A rule."""

        min_size: int = least
        """Smallest number of samples."""
        evens_out: ClassVar[str | None] = None

        def assign(self, labels: Any, num_clients: int, rng: Any, writers: Any = None) -> Any:
            return assign(self, labels, num_clients, rng)

    return Own


def kept(self: Any, labels: Any, m: int, rng: Any) -> Any:
    """The first assignment, for each number of clients, forever."""
    if m not in (found := self.__dict__.setdefault("_kept", {})):
        found[m] = rng.integers(0, m, len(labels))
    return found[m]


def changes_labels(self: Any, labels: Any, m: int, rng: Any) -> Any:
    labels[:] = rng.permutation(labels)
    return np.arange(len(labels)) % m


WRONG_RULES: list[tuple[Callable[[], Rule], str]] = [
    (rule(lambda self, y, m, rng: list(y % m)), r"seed 0: raised .*Own\.assign returned list; it must return int64 \[600\]"),
    (rule(lambda self, y, m, rng: (y % m).astype(np.int32)), r"assign returned int32 \[600\]; it must return int64 \[600\]"),
    (rule(lambda self, y, m, rng: (y % m)[:-1]), r"assign returned int64 \[599\]"),
    (rule(lambda self, y, m, rng: np.arange(len(y)) % (25 if m == 24 else m)), "24 clients, seed 3: raised .*clients outside −1…23"),
    (rule(lambda self, y, m, rng: np.random.default_rng().integers(0, m, len(y))), "the same seed gave two partitions; draw from rng"),
    (rule(lambda self, y, m, rng: np.random.randint(0, m, len(y))), r"draws from numpy\.random; draw from the argument rng"),  # noqa: NPY002
    (rule(kept), "6 clients, seed 1: the same seed gave two partitions; draw from rng only, and keep nothing on self"),
    (rule(changes_labels), "assign changed the labels or writers that it was given; change a copy"),
    (rule(lambda self, y, m, rng: 0 * y, least=601), "cannot be partitioned at all; the last refusal: .*min_size = 601"),
    (rule(lambda self, y, m, rng: y % self.missing), r"1 clients, seed 0: raised AttributeError: .*test_data\.py:"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), WRONG_RULES)
def test_wrong_partitions_are_found(make: Callable[[], Rule], message: str) -> None:
    with pytest.raises(AssertionError, match=rf"^Own.*{message}"):
        check_partition(make)


@pytest.mark.parametrize(
    ("check", "given"),
    [
        (check_selector, Uniform()),
        (check_algorithm, FedAvg()),
        (check_model, nn.Linear(64, 5)),
        (check_partition, "iid"),
    ],
)
def test_checks_are_given_what_makes_objects(check: Callable[[Any], None], given: object) -> None:
    with pytest.raises(
        AssertionError, match=r"^make = .*: give a function or a class that returns a new object in each call"
    ):
        check(given)
