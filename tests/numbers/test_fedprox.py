"""FedProx: worked values (spec G4), FedAvg for μ = 0, and an independent loop over the proximal objective."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

import fedcohort
from fedcohort.algorithms.fedavg import FedAvg
from fedcohort.algorithms.fedprox import FedProx
from fedcohort.algorithms.local import Training
from fedcohort.engines.local import LocalEngine
from fedcohort.models import Mlp
from fedcohort.selection.base import Cohort
from fedcohort.streams import rng
from fedcohort.testing.base import small_federation
from tests.experiments import small
from tests.golden.test_same_bits import record
from tests.numbers.local_problems import OneNumber, learn


def a_quadratic(lr: float = 0.01) -> OneNumber:
    """F = 2(x + 3)² from x = 0."""
    zero = torch.zeros(1, dtype=torch.float64)
    return OneNumber(lambda x: 4 * (x + 3), {"x": zero.clone()}, {"x": zero}, lr=lr)


def test_worked_minimum() -> None:
    problem = a_quadratic()
    learn(FedProx(mu=1.0), problem, 600)
    assert problem.parameters["x"].item() == pytest.approx(-2.4, abs=1e-12)


def test_a_few_steps_by_hand() -> None:
    """γ-inexact: y ← y − .1(4(y + 3) + .5 y) twice."""
    problem = a_quadratic(lr=0.1)
    learn(FedProx(mu=0.5), problem, 2)
    assert problem.parameters["x"].item() == pytest.approx(-1.2 - 0.1 * (4 * 1.8 - 0.6), rel=1e-14)


@pytest.mark.parametrize("training", [{"momentum": 0.9}, {"optimizer": "adam", "lr": 0.01}, {"clip_norm": 0.5}])
def test_mu_0_is_fedavg_bit_for_bit(training: dict[str, object], tmp_path: Path) -> None:
    prox = fedcohort.run(small(rounds=3, algorithm={"name": "fedprox", "mu": 0.0}, training=training), runs=tmp_path)
    average = fedcohort.run(small(rounds=3, algorithm="fedavg", training=training), runs=tmp_path)
    other = fedcohort.run(small(rounds=3, algorithm={"name": "fedprox", "mu": 0.1}, training=training), runs=tmp_path)
    assert prox.path != average.path
    assert record(prox) == record(average)
    assert prox.digest() != other.digest()


def test_mu_0_does_not_look_at_the_parameters() -> None:
    """Not even where they have overflowed, or where a gradient is −0."""
    y, w, g = torch.tensor([torch.inf, 1.0]), torch.zeros(2), {"x": torch.tensor([1.0, -0.0])}
    FedProx(mu=0.0).correct(OneNumber(lambda x: x, {"x": y}, {"x": w}), g)
    assert g["x"].tolist() == [1.0, 0.0]
    assert torch.signbit(g["x"]).tolist() == [False, True]


def test_agrees_with_a_loop_over_the_proximal_objective() -> None:
    """Momentum and all: torch differentiates F + (μ/2)‖y − w‖² itself."""
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
            for index in shuffled.split(4):  # type: ignore[no-untyped-call]
                x = data.features[index].double()
                logits = torch.relu(x @ w["1.weight"].T + w["1.bias"]) @ w["3.weight"].T + w["3.bias"]
                near = sum((value - start[name]).square().sum() for name, value in w.items())
                optimizer.zero_grad()
                (functional.cross_entropy(logits, data.labels[index]) + mu / 2 * near).backward()
                optimizer.step()
        for name, value in w.items():
            assert torch.allclose(update.state[name], value.detach(), rtol=1e-10, atol=1e-13), (update.client, name)


def test_a_large_mu_keeps_clients_at_home() -> None:
    def moved(algorithm: FedAvg | FedProx) -> float:
        settings = Training(batch_size=4, epochs=5, lr=0.01)
        with closing(LocalEngine(small_federation(), Mlp(hidden=5), settings, algorithm, seed=3)) as engine:
            start = engine.initial_model()
            [update] = engine.train(start, 1, Cohort(np.array([6])), algorithm)
        return sum(float((update.state[name] - value).square().sum()) for name, value in start.items())

    distances = [moved(algorithm) for algorithm in (FedAvg(), FedProx(mu=0.1), FedProx(mu=1.0), FedProx(mu=10.0))]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 0.2 * distances[0]


def test_a_stack_of_clients_is_corrected_like_each_of_them() -> None:
    draw = torch.Generator().manual_seed(0)
    y, g = (torch.randn(4, 3, 2, generator=draw, dtype=torch.float64) for _ in range(2))
    w = torch.randn(3, 2, generator=draw, dtype=torch.float64)
    algorithm, stacked = FedProx(mu=0.3), {"x": g.clone()}
    algorithm.correct(OneNumber(lambda x: x, {"x": y}, {"x": w}, steps=torch.arange(4)), stacked)
    for i in range(4):
        alone = {"x": g[i].clone()}
        algorithm.correct(OneNumber(lambda x: x, {"x": y[i]}, {"x": w}), alone)
        assert torch.equal(stacked["x"][i], alone["x"])
