"""The server half of algorithms over many rounds, against second implementations in numpy from the formulas alone.

Clients are drawn several times, send parts of their models, take no step, or change nothing; models have a buffer and a counter.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from fedcohort.algorithms import Algorithm, Members, ModelState, Update
from fedcohort.algorithms.methods.fedadagrad import FedAdagrad
from fedcohort.algorithms.methods.fedadam import FedAdam
from fedcohort.algorithms.methods.fedavg import FedAvg
from fedcohort.algorithms.methods.fedavgm import FedAvgM
from fedcohort.algorithms.methods.fednova import FedNova
from fedcohort.algorithms.methods.fedyogi import FedYogi
from fedcohort.algorithms.methods.krum import Krum
from fedcohort.algorithms.methods.median import Median
from fedcohort.algorithms.methods.scaffold import Scaffold
from fedcohort.algorithms.methods.trimmed_mean import TrimmedMean
from fedcohort.core.arrays import Values

Model = dict[str, Values]
TRAINED = ("weight", "bias")
CLIENTS, SAMPLES, K = 12, 400, 5
MODES = ("n_selected", "uniform", "n_total_delta", "scaled", "unbiased", "cohort")


@dataclass
class Sent:
    """What a client sent: names of tensors, its model, the number of steps, ‖a‖₁, and the change of its control variate."""

    client: int
    num_samples: int
    times: int
    steps: int
    model: Model
    names: set[str]
    norm: float
    change: Model

    def update(self, whole: bool) -> Update:
        extra = {"effective": {"steps": torch.tensor(self.norm, dtype=torch.float64)}, "c": tensors(self.change)}
        names = None if whole else frozenset(self.names)
        return Update(self.client, self.num_samples, self.steps, tensors(self.model), extra, sent=names)


@dataclass
class Received:
    """The updates of a round, with their weights."""

    w: Model
    sent: list[Sent]
    weights: list[float]
    mode: str

    def of(self, name: str) -> list[tuple[Sent, float]]:
        """The clients that sent a tensor, with their weights."""
        return [(each, a) for each, a in zip(self.sent, self.weights, strict=True) if name in each.names]

    def scaled(self, name: str, mean: Values) -> Values:
        """A mean under the weight mode: modes that are not normalized move by the sum of the weights."""
        total = 1.0 if self.mode in ("n_selected", "uniform") else sum(self.weights)
        return self.w[name] + total * (mean - self.w[name])


def tensors(model: Model) -> ModelState:
    return {name: torch.tensor(value) for name, value in model.items()}


def a_model(random: np.random.Generator) -> Model:
    length, counter = float(random.choice([1, 1, 10])), np.array(int(random.integers(50)))
    shapes = {"weight": (2, 3), "bias": (4,), "running": (4,)}
    return {name: random.normal(size=shape) * length for name, shape in shapes.items()} | {"counter": counter}


def clients_of_round(random: np.random.Generator, w: Model, t: int, whole: bool) -> list[Sent]:
    """At most six clients, in round 3 none."""
    sent = []
    for client in random.permutation(CLIENTS)[: 0 if t == 3 else random.integers(7)].tolist():
        model = a_model(random) if random.random() < 0.9 else w
        names = {name for name in w if whole or name not in TRAINED or random.random() < 0.6}
        steps, times, num_samples = (
            int(random.choice(values)) for values in ([0, 1, 5, 9], [1, 1, 2, 3], [1, 1, 30, 60])
        )
        norm = float(random.uniform(0.5, 1) * steps)
        change = {name: random.normal(size=w[name].shape) for name in TRAINED}
        sent.append(Sent(client, num_samples, times, steps, model, names, norm, change))
    return sent


def mean(values: Sequence[Values], weights: Sequence[float]) -> Values:
    return np.average(np.stack(values), axis=0, weights=weights)


# --- the merged models of a round --------------------------------------------------------------------------------------------------


def averaged(algorithm: Any, received: Received, name: str) -> Values:
    """Σ a_i w_i over the clients that sent the tensor."""
    models = [each.model[name] for each, _ in received.of(name)]
    return received.scaled(name, mean(models, [a for _, a in received.of(name)]))


def nova(algorithm: Any, received: Received, name: str) -> Values:
    """w + τ Σ p_i Δ_i/‖a_i‖₁; buffers are averaged."""
    if name not in TRAINED:
        return averaged(algorithm, received, name)
    total = sum(a for _, a in received.of(name))
    p = {each.client: a / total for each, a in received.of(name)}
    tau = sum(p[each.client] * each.norm for each, _ in received.of(name))
    steps = [p[each.client] * (each.model[name] - received.w[name]) / each.norm for each, _ in received.of(name)]
    return received.scaled(name, received.w[name] + tau * np.sum(steps, axis=0))


def repeated(received: Received, name: str) -> Values:
    """The values of a tensor in ascending order, each as often as its client was drawn."""
    return np.sort(np.stack([each.model[name] for each, _ in received.of(name) for _ in range(each.times)]), axis=0)


def median(algorithm: Any, received: Received, name: str) -> Values:
    return np.asarray(np.median(repeated(received, name), axis=0))


def trimmed(algorithm: Any, received: Received, name: str) -> Values:
    values = repeated(received, name)
    cut = math.floor(algorithm.beta * len(values) + 1e-9)
    return np.asarray(values[cut : len(values) - cut].mean(axis=0))


def krum(algorithm: Any, received: Received, name: str) -> Values:
    """Of the models, with received values for unsent tensors, the mean of the m with the nearest n − f − 2 others."""
    models = [
        {tensor: each.model[tensor] if tensor in each.names else received.w[tensor] for tensor in received.w}
        for each in received.sent
    ]
    flat = np.stack([np.concatenate([model[tensor].ravel() for tensor in TRAINED]) for model in models])
    distances = np.square(flat[:, None] - flat).sum(axis=2)
    near = min(max(1, len(models) - algorithm.f - 2), len(models) - 1)
    score = [np.sort(np.delete(row, i))[:near].sum() for i, row in enumerate(distances)]
    best = sorted(range(len(models)), key=lambda i: (score[i], received.sent[i].client))[: algorithm.m]
    if name == "counter":
        return np.asarray(max(models[i][name] for i in best))
    return mean([models[i][name] for i in best], [received.weights[i] for i in best])


Merge = Callable[[Any, Received, str], Values]


# --- the step of the server ----------------------------------------------------------------------------------------------------------


class Server:
    """Moves w by the difference to the merged model: damped, or with the optimizer of the algorithm."""

    def __init__(self, algorithm: Any) -> None:
        self.algorithm, self.n = algorithm, 0
        self.u: Model = {}
        self.v: Model = {}

    def step(self, w: Model, merged: Model) -> Model:
        """The model after a round."""
        self.n += 1
        new = dict(merged)
        for name in [name for name in w if name in TRAINED or (name == "running" and self.damps)]:
            new[name] = w[name] + self.move(name, merged[name] - w[name])
        return new

    @property
    def damps(self) -> bool:
        return not isinstance(self.algorithm, FedAvgM | FedAdam | FedYogi | FedAdagrad)

    def move(self, name: str, change: Values) -> Values:
        """The move of a tensor whose average moved by ``change``."""
        s: Any = self.algorithm
        if isinstance(s, FedAvgM | FedNova):
            momentum = s.beta if isinstance(s, FedAvgM) else s.gmf * (name in TRAINED)
            self.u[name] = momentum * self.u.get(name, 0.0) + change
            return np.asarray(s.server_lr * self.u[name])
        if self.damps:
            return np.asarray(s.server_lr * change)
        u = self.u[name] = s.beta_1 * self.u.get(name, 0.0) + (1 - s.beta_1) * change
        v, square = self.v.get(name, np.full_like(change, s.tau**2)), change**2
        if isinstance(s, FedAdagrad):
            v = v + square
        elif isinstance(s, FedYogi):
            v = v - (1 - s.beta_2) * square * np.sign(v - square)
        else:
            v = s.beta_2 * v + (1 - s.beta_2) * square
        self.v[name] = v
        corrected = isinstance(s, FedAdam) and s.bias_correction
        rate = math.sqrt(1 - s.beta_2**self.n) / (1 - s.beta_1**self.n) if corrected else 1.0
        return np.asarray(s.server_lr * rate * u / (np.sqrt(v) + s.tau))


def weight_of(each: Sent, mode: str, inclusion: dict[int, float], own: dict[int, float]) -> float:
    share = each.num_samples / SAMPLES
    return {
        "n_selected": float(each.times * each.num_samples),
        "uniform": float(each.times),
        "n_total_delta": each.times * share,
        "scaled": CLIENTS / K * each.times * share,
        "unbiased": share / inclusion[each.client],
        "cohort": own[each.client],
    }[mode]


AVERAGES: list[tuple[type[Algorithm], dict[str, Any], Merge]] = [
    (FedAvg, {"server_lr": 0.3, "max_weight": 0.2}, averaged),
    (FedNova, {}, nova),
    (FedNova, {"gmf": 0.7, "server_lr": 0.6}, nova),
    (Scaffold, {"server_lr": 0.5}, averaged),
    (FedAvgM, {"beta": 0.5, "server_lr": 1.7}, averaged),
    (FedAdam, {"bias_correction": True}, averaged),
    (FedAdam, {"tau": 0.1, "beta_1": 0.0}, averaged),
    (FedYogi, {}, averaged),
    (FedAdagrad, {}, averaged),
]
ROBUST: list[tuple[type[Algorithm], dict[str, Any], Merge]] = [
    (Median, {"server_lr": 0.4}, median),
    (TrimmedMean, {"beta": 0.29}, trimmed),
    (TrimmedMean, {"beta": 0.49, "server_lr": 0.4}, trimmed),
    (Krum, {"f": 0}, krum),
    (Krum, {"f": 2, "m": 3, "server_lr": 0.5}, krum),
]
CASES = [(*case, mode) for case in AVERAGES for mode in MODES] + [(*case, "uniform") for case in ROBUST]
CASES += [(*case, mode) for case in ROBUST if case[0] is Krum for mode in ("n_selected", "cohort")]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(("kind", "settings", "merge", "mode"), CASES)
def test_merging(kind: type[Algorithm], settings: dict[str, Any], merge: Merge, mode: str, whole: bool) -> None:
    algorithm: Any = kind(weights=mode, **settings)  # type: ignore[arg-type]
    random = np.random.default_rng(len(mode))
    w, server, c = a_model(random), Server(algorithm), {name: np.zeros(()) for name in TRAINED}
    for t in range(1, 9):
        sent = clients_of_round(random, w, t, whole)
        inclusion, own = ({each.client: float(random.uniform(0.1, 0.6)) for each in sent} for _ in range(2))
        times = {each.client: each.times for each in sent}
        members = Members(CLIENTS, SAMPLES, K, times, inclusion, own, t, frozenset(TRAINED))
        model = algorithm.aggregate(tensors(w), [each.update(whole) for each in sent], members)
        left = [each for each in sent if each.steps > 0 or kind is not FedNova]
        weights = [min(weight_of(each, mode, inclusion, own), algorithm.max_weight or math.inf) for each in left]
        received = Received(w, left, weights, mode)
        if left:
            merged = {name: merge(algorithm, received, name) if received.of(name) else w[name] for name in w}
            if kind is not Krum:
                merged["counter"] = np.asarray(max(each.model["counter"] for each in left))
            for name in TRAINED:
                c[name] = c[name] + len(left) / CLIENTS * np.mean([each.change[name] for each in left], axis=0)
            w = server.step(w, merged)
        for name, value in w.items():
            np.testing.assert_allclose(model[name].numpy(), value, rtol=1e-11, atol=1e-12, err_msg=f"round {t}, {name}")
        for name, value in algorithm.c.items() if kind is Scaffold else ():
            np.testing.assert_allclose(value.numpy(), c[name], rtol=1e-11)
