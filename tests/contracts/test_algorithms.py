"""Every algorithm fulfills the contract in all weight modes, and the check detects algorithms that do not."""

from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import pytest
import torch
from torch import nn

from fedcohort.algorithms import (
    ALGORITHMS,
    Algorithm,
    Card,
    Correction,
    Members,
    ModelState,
    Problem,
    Tensors,
    Training,
    Update,
    WeightMode,
    parameters,
)
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.methods.fedprox import FedProx
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.models import Mlp
from fedcohort.selection import Cohort
from fedcohort.testing import check_algorithm
from fedcohort.testing.base import ControlVariates, bits, small_federation

AVERAGES = {"fedsgd", "fedavg"}
"""Algorithms that return a weighted mean of the clients' models."""


SHORT = {"feddf": {"max_batches": 40, "eval_every": 10}}
"""Settings of algorithms that otherwise train on the server for long; more of the same steps show no other rule."""


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_every_algorithm_fulfills_the_contract(name: str) -> None:
    algorithm = partial(ALGORITHMS.find(name, "algorithm.name"), **SHORT.get(name, {}))
    check_algorithm(algorithm, averages=name in AVERAGES)


@pytest.mark.parametrize("weights", get_args(WeightMode))
def test_fedavg_fulfills_the_contract_in_every_weight_mode(weights: WeightMode) -> None:
    check_algorithm(partial(FedAvg, weights=weights), averages=weights in ("n_selected", "uniform"))


def test_fedavg_with_server_damping_fulfills_the_contract() -> None:
    check_algorithm(partial(FedAvg, server_lr=0.3))


def test_fedprox_with_dynamic_mu_fulfills_the_contract() -> None:
    check_algorithm(partial(FedProx, dynamic=True))


def test_the_algorithm_used_by_the_engine_checks_fulfills_the_contract() -> None:
    check_algorithm(ControlVariates)


class KeepsAllUpdates(FedAvg):
    def aggregate(self, model: ModelState, updates: Iterable[Update], members: Members) -> ModelState:
        return super().aggregate(model, list(updates), members)


class ModifiesUpdates(FedAvg):
    def add(self, fold: Any, update: Update, weight: float) -> None:
        super().add(fold, update, weight)
        next(iter(update.state.values())).zero_()


class ModifiesTheModel(FedAvg):
    def end(self, fold: Any, model: ModelState, members: Members) -> ModelState:
        for name, value in super().end(fold, model, members).items():
            model[name].copy_(value)
        return model


class KeepsTheLastModels(FedAvg):
    def add(self, fold: Any, update: Update, weight: float) -> None:
        super().add(fold, update, weight)
        self.last = {**getattr(self, "last", {}), update.client: update.state}


class DrawsOnTheServer(FedAvg):
    def end(self, fold: Any, model: ModelState, members: Members) -> ModelState:
        return {name: value + torch.rand(()) for name, value in super().end(fold, model, members).items()}


class ChangesStateInEmptyRounds(FedAvg):
    def begin(self, model: ModelState, members: Members) -> Any:
        self.rounds = getattr(self, "rounds", 0) + 1
        return super().begin(model, members)


class SavesNoState(ControlVariates):
    def state_dict(self) -> dict[str, Any]:
        return {}


class CorrectsByServerState(FedAvg):
    corrects: ClassVar[bool] = True

    def end(self, fold: Any, model: ModelState, members: Members) -> ModelState:
        self.rounds = getattr(self, "rounds", 0) + 1
        return super().end(fold, model, members)

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        for gradient in gradients.values():
            gradient.mul_(getattr(self, "rounds", 0))


class CorrectsWithoutSayingSo(FedAvg):
    def correct(self, problem: Problem, gradients: Tensors) -> None:
        gradients.clear()


class SaysOnlyTheCorrection(FedAvg):
    corrects: ClassVar[bool] = True

    def correction(self, problem: Problem) -> Correction:
        return Correction(proximal=1.0)


class ReturnsGradients(FedAvg):
    corrects: ClassVar[bool] = True

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        return {name: gradient * 0 for name, gradient in gradients.items()}  # type: ignore[return-value]


class RemembersWithoutKinds(FedAvg):
    def finish(self, problem: Problem) -> Any:
        return {}, {name: value.detach().clone() for name, value in problem.parameters.items()}


class ReturnsOnlyAMemory(FedAvg):
    def finish(self, problem: Problem) -> Any:
        return {}


class WeighsBelowZero(FedAvg):
    def weigh(self, update: Update, members: Members) -> float:
        return -1.0


class ScalesTheResult(FedAvg):
    def end(self, fold: Any, model: ModelState, members: Members) -> ModelState:
        return {name: value * 1.001 for name, value in super().end(fold, model, members).items()}


class ReturnsDoublePrecision(FedAvg):
    def end(self, fold: Any, model: ModelState, members: Members) -> ModelState:
        return {name: value.double() for name, value in super().end(fold, model, members).items()}


class ModifiesTrainingSettings(FedAvg):
    def local_training(self, training: Training) -> Training:
        training.lr = 1.0
        return training


@parameters
class ParameterWithoutDocstring(FedAvg):
    mu: float = 0.1


@parameters
class CardWithoutSource(FedAvg):
    card: ClassVar[Card] = Card(source="", status="ours")


@pytest.mark.parametrize(
    ("algorithm", "complaint"),
    [
        (KeepsAllUpdates, "set keeps_models"),
        (ModifiesUpdates, "changed the given model or updates"),
        (ModifiesTheModel, "changed the given model or updates"),
        (KeepsTheLastModels, "set keeps_models"),
        (
            DrawsOnTheServer,
            r"draws from torch's global generator; draw from problem.rng on clients, and from self.tools.rng",
        ),
        (ChangesStateInEmptyRounds, r"no update was admitted, but the state changed \(R10\)"),
        (SavesNoState, "resumed after round 2"),
        (CorrectsByServerState, r"broadcast\(\) must send everything that clients need"),
        (CorrectsWithoutSayingSo, "CorrectsWithoutSayingSo.correct would never be called; set corrects = True"),
        (SaysOnlyTheCorrection, "SaysOnlyTheCorrection defines no correct"),
        (ReturnsGradients, "ReturnsGradients.correct returned a dict; it must change the given gradients"),
        (
            RemembersWithoutKinds,
            r"RemembersWithoutKinds.finish returned .*; it must return two dictionaries of the form",
        ),
        (ReturnsOnlyAMemory, "ReturnsOnlyAMemory.finish returned a dict; it must return two dictionaries"),
        (WeighsBelowZero, "weigh returned -1.0 for client 0; must be finite and at least 0"),
        (ScalesTheResult, "every client sent back the received model"),
        (ReturnsDoublePrecision, "is torch.float64"),
        (ModifiesTrainingSettings, "settings of training cannot be changed"),
        (ParameterWithoutDocstring, "ParameterWithoutDocstring.mu: write a docstring"),
        (CardWithoutSource, "card.source: is empty"),
    ],
)
def test_the_check_reports_the_broken_rule(algorithm: Callable[[], Algorithm], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_algorithm(algorithm)


class TwoHeads(nn.Module):
    """A network with a second output, for algorithms only."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.second = nn.Linear(6, 4), nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.body(x).relu()
        self.second(hidden)
        logits: torch.Tensor = self.head(hidden)
        return logits


class TrainsTheSecondHead(FedAvg):
    def backward(self, problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
        losses, right = problem.backward()
        nn.functional.cross_entropy(problem.outputs(part="second"), problem.labels).backward()
        return losses, right


def test_algorithms_for_a_certain_network_are_checked_with_it() -> None:
    check_algorithm(TrainsTheSecondHead, model=TwoHeads)
    with pytest.raises(AssertionError, match="the network has no such part"):
        check_algorithm(TrainsTheSecondHead)


def test_the_check_detects_a_mean_in_single_precision() -> None:
    class SinglePrecisionMean(FedAvg):
        def begin(self, model: ModelState, members: Members) -> Any:
            return [0.0, {}]

        def add(self, fold: Any, update: Update, weight: float) -> None:
            fold[0] += weight
            for name, value in update.state.items():
                fold[1][name] = fold[1].get(name, 0) + weight * value

        def end(self, fold: Any, model: ModelState, members: Members) -> ModelState:
            return {name: (value / fold[0]).to(model[name].dtype) for name, value in fold[1].items()}

    with pytest.raises(AssertionError, match=r"sent back the received model|identical models"):
        check_algorithm(SinglePrecisionMean, averages=True)


class Halved(FedAvg):
    """Changes gradients in place."""

    corrects: ClassVar[bool] = True
    stacks: ClassVar[bool] = True

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        for gradient in gradients.values():
            gradient.mul_(0.5)


class HalvedByEntries(Halved):
    """Sets the entries instead."""

    stacks: ClassVar[bool] = True

    def correct(self, problem: Problem, gradients: Tensors) -> None:
        first, *rest = gradients
        gradients[first] = 0.5 * gradients[first]
        gradients.update({name: 0.5 * gradients[name] for name in rest})


@pytest.mark.parametrize("plan", ["loop", "stacked"])
def test_gradients_that_are_set_count_as_those_that_are_changed_in_place(plan: Literal["loop", "stacked"]) -> None:
    states = []
    for algorithm in (Halved(), HalvedByEntries(), FedAvg()):
        with closing(LocalEngine(small_federation(), Mlp(hidden=4), Training(), algorithm, 1, 1, plan=plan)) as engine:
            update, *_ = engine.train(engine.initial_model(), 1, Cohort(np.array([0])), algorithm)
            states.append(bits(update.state))
    assert states[0] == states[1] != states[2]
