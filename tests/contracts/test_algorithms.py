"""Every algorithm holds the contract, with all its weightings, and the check notices those that do not."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar, get_args

import pytest

from fedcohort.algorithms import (
    ALGORITHMS,
    Algorithm,
    Card,
    Members,
    ModelState,
    Problem,
    Tensors,
    Training,
    Update,
    WeightMode,
    parameters,
)
from fedcohort.algorithms.fedavg import FedAvg
from fedcohort.algorithms.fedprox import FedProx
from fedcohort.testing import check_algorithm
from fedcohort.testing.base import ControlVariates

AVERAGES = {"fedsgd", "fedavg"}
"""Those whose result is a weighted mean of models."""


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_every_algorithm_holds_the_contract(name: str) -> None:
    check_algorithm(ALGORITHMS.find(name, "algorithm.name"), averages=name in AVERAGES)


@pytest.mark.parametrize("weights", get_args(WeightMode))
def test_with_every_weight_mode(weights: WeightMode) -> None:
    check_algorithm(partial(FedAvg, weights=weights), averages=weights in ("n_selected", "uniform"))


def test_with_server_damping() -> None:
    check_algorithm(partial(FedAvg, server_lr=0.3))


def test_with_a_changing_mu() -> None:
    check_algorithm(partial(FedProx, dynamic=True))


def test_the_algorithm_of_the_engine_checks_is_one_itself() -> None:
    check_algorithm(ControlVariates)


class Hoarder(FedAvg):
    def aggregate(self, model: ModelState, updates: Iterable[Update], members: Members) -> ModelState:
        return super().aggregate(model, list(updates), members)


class Vandal(FedAvg):
    def add(self, fold: Any, update: Update, weight: float) -> None:
        super().add(fold, update, weight)
        next(iter(update.state.values())).zero_()


class Counting(FedAvg):
    def begin(self, model: ModelState, members: Members) -> Any:
        self.rounds = getattr(self, "rounds", 0) + 1
        return super().begin(model, members)


class Forgetful(ControlVariates):
    def state_dict(self) -> dict[str, Any]:
        return {}


class Leaning(FedAvg):
    corrects: ClassVar[bool] = True

    def end(self, fold: Any, model: ModelState, members: Members) -> ModelState:
        self.rounds = getattr(self, "rounds", 0) + 1
        return super().end(fold, model, members)

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        for gradient in gradients.values():
            gradient.mul_(getattr(self, "rounds", 0))


class Drifting(FedAvg):
    def end(self, fold: Any, model: ModelState, members: Members) -> ModelState:
        return {name: value * 1.001 for name, value in super().end(fold, model, members).items()}


class Widening(FedAvg):
    def end(self, fold: Any, model: ModelState, members: Members) -> ModelState:
        return {name: value.double() for name, value in super().end(fold, model, members).items()}


class Careless(FedAvg):
    def local_training(self, training: Training) -> Training:
        training.lr = 1.0
        return training


@parameters
class Unsaid(FedAvg):
    mu: float = 0.1


@parameters
class Nameless(FedAvg):
    card: ClassVar[Card] = Card(source="", status="ours")


@pytest.mark.parametrize(
    ("algorithm", "complaint"),
    [
        (Hoarder, "set keeps_models"),
        (Vandal, "changed the given model or updates"),
        (Counting, r"no update was admitted, but the state changed \(R10\)"),
        (Forgetful, "resumed after round 2"),
        (Leaning, r"broadcast\(\) must send everything that clients need"),
        (Drifting, "every client sent back the received model"),
        (Widening, "is torch.float64"),
        (Careless, "use dataclasses.replace"),
        (Unsaid, "Unsaid.mu: write a docstring"),
        (Nameless, "card.source: is empty"),
    ],
)
def test_the_check_notices(algorithm: Callable[[], Algorithm], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_algorithm(algorithm)


def test_the_check_notices_a_mean_in_single_precision() -> None:
    class Sloppy(FedAvg):
        def begin(self, model: ModelState, members: Members) -> Any:
            return [0.0, {}]

        def add(self, fold: Any, update: Update, weight: float) -> None:
            fold[0] += weight
            for name, value in update.state.items():
                fold[1][name] = fold[1].get(name, 0) + weight * value

        def end(self, fold: Any, model: ModelState, members: Members) -> ModelState:
            return {name: (value / fold[0]).to(model[name].dtype) for name, value in fold[1].items()}

    with pytest.raises(AssertionError, match=r"sent back the received model|identical models"):
        check_algorithm(Sloppy, averages=True)
