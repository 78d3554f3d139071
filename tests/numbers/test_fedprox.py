"""FedProx: worked values (spec G4), FedAvg for μ = 0, and an independent loop over the proximal objective."""

import math
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

import fedcohort
from fedcohort.algorithms import Update
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.methods.fedprox import FedProx
from fedcohort.algorithms.server_tools import ServerTools
from fedcohort.algorithms.training_settings import Training
from fedcohort.core.errors import UsageError
from fedcohort.core.random_streams import rng
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.models import Mlp
from fedcohort.selection import Cohort
from fedcohort.testing.base import members_of, server_tools, small_federation
from fedcohort.training.networks.model_states import state_of
from tests.experiments import small
from tests.golden.test_same_bits import record
from tests.numbers.local_problems import OneNumber, train_locally
from tests.resume.test_resume import stop_after
from tests.run_states import a_run_state


def a_quadratic(lr: float = 0.01) -> OneNumber:
    """F = 2(x + 3)² from x = 0."""
    zero = torch.zeros(1, dtype=torch.float64)
    return OneNumber(lambda x: 4 * (x + 3), {"x": zero.clone()}, {"x": zero}, lr=lr)


def test_worked_minimum() -> None:
    problem = a_quadratic()
    train_locally(FedProx(mu=1.0), problem, 600)
    assert problem.parameters["x"].item() == pytest.approx(-2.4, abs=1e-12)


def test_two_steps_by_hand() -> None:
    """γ-inexact: y ← y − .1(4(y + 3) + .5 y) twice."""
    problem = a_quadratic(lr=0.1)
    train_locally(FedProx(mu=0.5), problem, 2)
    assert problem.parameters["x"].item() == pytest.approx(-1.2 - 0.1 * (4 * 1.8 - 0.6), rel=1e-14)


@pytest.mark.parametrize("training", [{"momentum": 0.9}, {"optimizer": "adam", "lr": 0.01}, {"clip_norm": 0.5}])
def test_with_mu_0_fedprox_is_bit_identical_to_fedavg(training: dict[str, object], tmp_path: Path) -> None:
    prox = fedcohort.run(small(rounds=3, algorithm={"name": "fedprox", "mu": 0.0}, training=training), runs=tmp_path)
    average = fedcohort.run(small(rounds=3, algorithm="fedavg", training=training), runs=tmp_path)
    other = fedcohort.run(small(rounds=3, algorithm={"name": "fedprox", "mu": 0.1}, training=training), runs=tmp_path)
    assert prox.path != average.path
    assert record(prox) == record(average)
    assert prox.digest() != other.digest()


def test_with_mu_0_gradients_do_not_depend_on_the_parameters() -> None:
    """Not even if a parameter is infinite; a gradient of −0 stays −0."""
    y, w, g = torch.tensor([torch.inf, 1.0]), torch.zeros(2), {"x": torch.tensor([1.0, -0.0])}
    FedProx(mu=0.0).correct(OneNumber(lambda x: x, {"x": y}, {"x": w}), g)
    assert g["x"].tolist() == [1.0, 0.0]
    assert torch.signbit(g["x"]).tolist() == [False, True]


def test_training_agrees_with_a_loop_over_the_proximal_objective() -> None:
    """With momentum; torch differentiates F + (μ/2)‖y − w‖²."""
    federation, settings, mu = small_federation(), Training(batch_size=4, epochs=3, precision="float64"), 0.7
    algorithm = FedProx(mu=mu)
    with closing(LocalEngine(federation, Mlp(hidden=5), settings, algorithm, seed=3)) as engine:
        start = engine.initial_model()
        updates = list(engine.train(start, 2, Cohort(np.array([6, 0, 3])), algorithm))
    for update in updates:
        data, w = federation.client(update.client), {name: v.clone().requires_grad_() for name, v in start.items()}
        optimizer = torch.optim.SGD(list(w.values()), lr=0.05, momentum=0.9)
        order = rng(3, "batches", 2, update.client)
        for _ in range(3):
            shuffled = torch.from_numpy(order.permutation(len(data)))
            for index in shuffled.split(4):
                x = data.features[index].double()
                logits = torch.relu(x @ w["1.weight"].T + w["1.bias"]) @ w["3.weight"].T + w["3.bias"]
                squared_distance = sum((value - start[name]).square().sum() for name, value in w.items())
                optimizer.zero_grad()
                (functional.cross_entropy(logits, data.labels[index]) + mu / 2 * squared_distance).backward()
                optimizer.step()
        for name, value in w.items():
            assert torch.allclose(update.state[name], value.detach(), rtol=1e-10, atol=1e-13), (update.client, name)


def test_a_larger_mu_keeps_clients_closer_to_the_received_model() -> None:
    def distance_moved(algorithm: FedAvg | FedProx) -> float:
        settings = Training(batch_size=4, epochs=5, lr=0.01)
        with closing(LocalEngine(small_federation(), Mlp(hidden=5), settings, algorithm, seed=3)) as engine:
            start = engine.initial_model()
            [update] = engine.train(start, 1, Cohort(np.array([6])), algorithm)
        return sum(float((update.state[name] - value).square().sum()) for name, value in start.items())

    distances = [
        distance_moved(algorithm) for algorithm in (FedAvg(), FedProx(mu=0.1), FedProx(mu=1.0), FedProx(mu=10.0))
    ]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 0.2 * distances[0]


def test_a_stack_of_clients_is_corrected_like_each_client_alone() -> None:
    draw = torch.Generator().manual_seed(0)
    y, g = (torch.randn(4, 3, 2, generator=draw, dtype=torch.float64) for _ in range(2))
    w = torch.randn(3, 2, generator=draw, dtype=torch.float64)
    algorithm, stacked = FedProx(mu=0.3), {"x": g.clone()}
    algorithm.correct(OneNumber(lambda x: x, {"x": y}, {"x": w}, steps=torch.arange(4)), stacked)
    for i in range(4):
        alone = {"x": g[i].clone()}
        algorithm.correct(OneNumber(lambda x: x, {"x": y[i]}, {"x": w}), alone)
        assert torch.equal(stacked["x"][i], alone["x"])


# --- dynamic μ ---------------------------------------------------------------------------------------------------------------


def mu_by_round(monkeypatch: pytest.MonkeyPatch, mu: float, losses: list[float]) -> list[float]:
    """μ before every round and after the last; ``losses`` are the validation losses of w^1, w^2, …"""
    remaining = iter(losses)
    monkeypatch.setattr(ServerTools, "loss", lambda self, module: next(remaining))
    algorithm = FedProx(mu=mu, dynamic=True)
    algorithm.prepare(server_tools(Mlp(hidden=5)))
    model = state_of(Mlp(hidden=5).build((6,), 3))
    seen = []
    for t in range(1, len(losses)):
        seen.append(float(algorithm.broadcast()["mu"]["mu"]))
        algorithm.aggregate(model, iter([Update(0, 5, 1, model)]), members_of([0], t))
        algorithm.aggregate(model, iter(()), members_of([], t))  # R10: an empty round changes nothing
    return [*seen, float(algorithm.broadcast()["mu"]["mu"])]


def test_mu_rises_when_the_loss_rises_and_falls_after_five_falls_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = [2.0, 2.1, 2.2, 1.9, 1.8, 1.7, 1.6, 1.5, 1.4, 1.3, 1.2, 1.1, 1.0]
    expected = [0.05, 0.15, 0.25, 0.25, 0.25, 0.25, 0.25, 0.15, 0.15, 0.15, 0.15, 0.15, 0.05]
    assert mu_by_round(monkeypatch, 0.05, losses) == expected


def test_mu_is_never_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mu_by_round(monkeypatch, 0.01, [1 - 0.1 * i for i in range(8)]) == [0.01] * 5 + [0.0] * 3


def test_an_equal_or_nan_loss_interrupts_a_series_of_falls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss that stays equal is neither a fall nor a rise; NaN is a rise."""
    losses = [2.0, 1.9, 1.8, 1.7, 1.6, 1.6, 1.5, 1.4, 1.3, 1.2, math.nan, 1.1]
    assert mu_by_round(monkeypatch, 0.5, losses) == [0.5] * 10 + [0.6, 0.6]


def test_clients_use_the_mu_that_the_server_sent() -> None:
    dynamic, fixed = FedProx(mu=0.01, dynamic=True), FedProx(mu=0.7)
    results = []
    for algorithm, received in ((dynamic, {"mu": {"mu": torch.tensor(0.7, dtype=torch.float64)}}), (fixed, {})):
        problem = a_quadratic()
        problem.received = received
        train_locally(algorithm, problem, 20)
        results.append(problem.parameters["x"].item())
    assert results[0] == results[1]


def test_dynamic_mu_follows_the_recorded_validation_loss_and_is_resumed(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "rounds": 12,
        "algorithm": {"name": "fedprox", "dynamic": True},
        "training": {"lr": 0.2},
        "systems": {"dropout": 0.2},
        "federation": {"partition": {"name": "dirichlet_class", "alpha": 0.1}},
    }
    uninterrupted = fedcohort.run(small(**values), runs=tmp_path / "uninterrupted")
    with a_run_state(**values) as run_state:
        before = run_state.engine.evaluate(run_state.model, "validation").loss
    rounds, mu, falls = uninterrupted.rounds, 0.01, 0
    for loss in rounds["validation_loss"][rounds["admitted"] > 0]:
        falls = falls + 1 if loss < before else 0
        mu += 0.1 * (loss > before)
        if falls == 5:
            mu, falls = max(0.0, mu - 0.1), 0
        before = loss
    checkpoint = uninterrupted.checkpoint()
    assert checkpoint is not None
    assert checkpoint[1]["algorithm"]["strength"] == pytest.approx(mu)
    assert mu > 0.2
    with pytest.raises(KeyboardInterrupt):
        fedcohort.run(small(**values), runs=tmp_path / "interrupted", progress=stop_after(5))
    assert record(fedcohort.run(small(**values), runs=tmp_path / "interrupted")) == record(uninterrupted)


def test_dynamic_mu_without_a_validation_set_is_rejected(tmp_path: Path) -> None:
    experiment = small(algorithm={"name": "fedprox", "dynamic": True}, data={"validation": 0.0})
    with pytest.raises(UsageError, match=r"^algorithm\.dynamic = true: .*which is empty; use data\.validation above 0"):
        fedcohort.run(experiment, runs=tmp_path)
    assert not [*tmp_path.iterdir()]
