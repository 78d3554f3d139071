"""FedDF, RHFL and FedBiO, against second implementations that were written from the formulas alone.

All public samples, and all samples of a client, are one batch, so that no order matters. Numbers have double precision.
"""

import math
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcohort.algorithms import Members, ModelState, Update
from fedcohort.algorithms.methods.fedbio import FedBiO
from fedcohort.algorithms.methods.feddf import FedDF
from fedcohort.algorithms.methods.rhfl import RHFL
from fedcohort.algorithms.server_tools import ServerTools
from fedcohort.algorithms.training_settings import Training
from fedcohort.engines.local_engine import LocalEngine
from fedcohort.models import Logistic
from fedcohort.selection import Cohort
from tests.numbers.test_fedbio import cleaning_federation

D, CLASSES = 5, 4
DRAW = torch.Generator().manual_seed(1)
PUBLIC, VALIDATION = (torch.randn(n, D, generator=DRAW, dtype=torch.float64) for n in (40, 60))
LABELS = torch.randint(0, CLASSES, (60,), generator=DRAW)
SIZES = [10, 35, 5, 20]


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(D, 6), nn.Tanh(), nn.Linear(6, CLASSES))


def outputs(w: ModelState, x: Tensor) -> Tensor:
    """The logits of the network, without PyTorch's modules."""
    return torch.tanh(x @ w["0.weight"].T + w["0.bias"]) @ w["2.weight"].T + w["2.bias"]


def a_model(seed: int) -> ModelState:
    draw = torch.Generator().manual_seed(seed)
    like = network().state_dict()
    return {name: torch.randn(value.shape, generator=draw, dtype=torch.float64) for name, value in like.items()}


def average(models: list[ModelState], weights: list[float]) -> ModelState:
    shares = np.array(weights, float) / sum(weights)
    return {
        name: sum((a * w[name] for a, w in zip(shares, models, strict=True)), torch.zeros(())) for name in models[0]
    }


def free(w: ModelState) -> ModelState:
    """A copy of the weights, for a training."""
    return {name: value.detach().clone().requires_grad_() for name, value in w.items()}


def accuracy(w: ModelState) -> float:
    return float((outputs(w, VALIDATION).argmax(1) == LABELS).double().mean())


def assert_close(model: ModelState, expected: ModelState, tolerance: float = 1e-10) -> None:
    for name, value in expected.items():
        torch.testing.assert_close(model[name], value.detach(), rtol=tolerance, atol=tolerance)


def tools(validation: int = 60) -> ServerTools:
    held = VALIDATION[:validation], LABELS[:validation]
    return ServerTools(network, lambda x, dtype: x.to(dtype), CLASSES, PUBLIC, held, seed=3)


def members(times: list[int], t: int = 1) -> Members:
    return Members(num_clients=9, total_samples=500, k=4, multiplicity=dict(enumerate(times)), t=t)


# --- FedDF -------------------------------------------------------------------------------------------------------------------


def distilled(models: list[ModelState], times: list[int], validated: bool, settings: dict[str, Any]) -> ModelState:
    T, most = settings["temperature"], settings["max_batches"]
    share = torch.tensor(times, dtype=torch.float64)[:, None, None] / sum(times)
    logits = torch.stack([outputs(w, PUBLIC) for w in models])
    student = free(average(models, [n * c for n, c in zip(SIZES, times, strict=True)]))
    adam = torch.optim.Adam(student.values(), settings["lr"])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, most)
    best, best_accuracy, best_batch = student, -1.0, 0
    for batch in range(1, most + 1):
        log_p = functional.log_softmax(outputs(student, PUBLIC) / T, dim=1)
        if settings["target"] == "avg_logits":
            target = functional.softmax((share * logits).sum(0) / T, dim=1)
            loss = functional.kl_div(log_p, target, reduction="batchmean")
        else:
            each = [functional.kl_div(log_p, functional.softmax(z / T, dim=1), reduction="batchmean") for z in logits]
            loss = (share[:, 0, 0] * torch.stack(each)).sum()
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(student.values(), 5.0)
        adam.step()
        schedule.step()
        if validated and (batch % settings["eval_every"] == 0 or batch == most):
            if accuracy(student) > best_accuracy:
                best, best_accuracy, best_batch = free(student), accuracy(student), batch
            elif batch - best_batch >= settings["patience"]:
                break
    return best


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("target", ["avg_logits", "avg_losses"])
@pytest.mark.parametrize("validated", [True, False])
def test_feddf(seed: int, target: str, validated: bool) -> None:
    models, times = [a_model(10 * seed + i) for i in range(4)], [1, 2, 1, 3] if seed else [1] * 4
    settings = {
        "temperature": 0.5 + seed,
        "lr": 0.05,
        "max_batches": 23,
        "eval_every": 5,
        "patience": 6,
        "target": target,
    }
    algorithm = FedDF(batch_size=40, **settings)  # type: ignore[arg-type]
    algorithm.prepare(tools(60 if validated else 0))
    updates = [Update(i, SIZES[i], 3, models[i]) for i in range(4)]
    merged = algorithm.aggregate(a_model(99), updates, members(times))
    assert_close(merged, distilled(models, times, validated, settings))


# --- RHFL --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fresh_adam", [False, True])
@pytest.mark.parametrize("times", [[1, 1, 1, 1], [1, 3, 2, 1]])
def test_rhfl(fresh_adam: bool, times: list[int]) -> None:
    algorithm = RHFL(beta=2.0, lr=0.01, batch_size=64, align_epochs=4, fresh_adam=fresh_adam)
    algorithm.prepare(tools())
    draw, previous = np.random.default_rng(0), dict[int, float]()
    for t, clients in enumerate([[0, 1, 2, 3], [0, 2], [0, 1, 3], [2], [1, 2, 3]], start=1):
        models, losses = {i: a_model(10 * t + i) for i in clients}, {i: float(draw.uniform(0.5, 3)) for i in clients}
        fall = {i: max(0.0, (previous.get(i, 0.0) - losses[i]) / losses[i]) for i in clients}
        total = sum(times[i] * fall[i] for i in clients)
        trust = {i: math.exp(2 * fall[i] / total if total else 0.0) for i in clients}
        W = {i: trust[i] / sum(times[j] * trust[j] for j in clients) for i in clients}
        previous |= losses
        aligned = {i: free(models[i]) for i in clients}
        adams = {i: torch.optim.Adam(aligned[i].values(), 0.01) for i in clients}
        for _ in range(4 if len(clients) > 1 else 0):
            R = {i: functional.softmax(outputs(aligned[i], PUBLIC), dim=1).detach() for i in clients}
            for i in clients:
                adam = torch.optim.Adam(aligned[i].values(), 0.01) if fresh_adam else adams[i]
                adam.zero_grad()
                log_p = functional.log_softmax(outputs(aligned[i], PUBLIC), dim=1)
                each = [
                    W[j] * times[j] * functional.kl_div(log_p, R[j], reduction="batchmean") for j in clients if j != i
                ]
                torch.stack(each).sum().backward()
                adam.step()
        expected = average(list(aligned.values()), [W[i] * SIZES[i] * times[i] for i in clients])
        updates = [
            Update(i, SIZES[i], 3, models[i], {"loss": {"sl": torch.tensor(losses[i], dtype=torch.float64)}})
            for i in clients
        ]
        assert_close(algorithm.aggregate(a_model(99), updates, members(times, t)), expected, 1e-9)


# --- FedBiO ------------------------------------------------------------------------------------------------------------------


def length(u: ModelState) -> float:
    return math.sqrt(sum(float(value.square().sum()) for value in u.values()))


def bounded(u: ModelState) -> ModelState:
    return {name: value * min(1.0, 10 / length(u)) for name, value in u.items()}


def losses_and_slope(w: ModelState, x: Tensor, y: Tensor, weights: Tensor, rho: float) -> tuple[Tensor, ModelState]:
    """The loss of each sample under logistic regression, and the gradient of their weighted mean with an L2 term."""
    at = free(w)
    weight, bias = at.values()
    losses = functional.cross_entropy(x @ weight.T + bias, y, reduction="none")
    slope = torch.autograd.grad((weights * losses).mean(), [weight, bias])
    return losses.detach(), {name: g + rho * w[name] for name, g in zip(w, slope, strict=True)}


@pytest.mark.parametrize("values", [{}, {"tau_u": 0.3, "eta_lambda": 0.7, "rho": 0.05, "kappa": 1.5}, {"tau_u": 30.0}])
def test_fedbio(values: dict[str, float]) -> None:
    algorithm = FedBiO(warmup_rounds=1, **values)  # type: ignore[arg-type]
    fed, _ = cleaning_federation(3)
    training = Training(epochs=3, lr=0.1, momentum=0.9, batch_size=0, precision="float64")
    sizes = fed.num_samples.tolist()
    with closing(LocalEngine(fed, Logistic(), training, algorithm, 0, workers=1)) as engine:
        model = engine.initial_model()
        w, u = dict(model), {name: torch.zeros_like(value) for name, value in model.items()}
        lam = [torch.zeros(n, dtype=torch.float64) for n in sizes]
        for t in range(1, 7):
            clients, admitted = sorted({t % 3, (t + 1) % 3}), [t % 3]  # one of two learns weights that are kept
            updates = list(engine.train(model, t, Cohort(np.array(clients)), algorithm))
            model = algorithm.aggregate(model, updates, Members(num_clients=3, total_samples=sum(sizes), k=2, t=t))
            engine.commit(admitted)
            results = [trained(fed, client, w, u, lam[client], algorithm, t) for client in clients]
            shares = [float(sizes[client]) for client in clients]
            w, change = average([r[0] for r in results], shares), average([r[1] for r in results], shares)
            u = bounded({name: u[name] + change[name] for name in u})
            for client, result in zip(clients, results, strict=True):
                lam[client] = result[2] if client in admitted else lam[client]
            assert_close(model, w, 1e-12)
            assert_close(algorithm.u, u)
            torch.testing.assert_close(engine.state_dict()[str(t % 3)]["lambda"]["lambda"], lam[t % 3])


def trained(
    fed: Any, client: int, start: ModelState, u_start: ModelState, lam: Tensor, algorithm: FedBiO, t: int
) -> tuple[ModelState, ModelState, Tensor]:
    """The model, the change of u, and λ after three full-batch steps with momentum."""
    own, held_out = slice(fed.offsets[client], fed.offsets[client] + len(lam)), fed.held_out(client)
    x, labels, kappa, rho = fed.train.features[own].double(), fed.train.labels[own], algorithm.kappa, algorithm.rho
    one = torch.ones(len(held_out.labels), dtype=torch.float64)
    y, u, buffer = dict(start), dict(u_start), {name: torch.zeros_like(value) for name, value in start.items()}
    for _ in range(3):
        weights = kappa * torch.sigmoid(lam)
        _, slope = losses_and_slope(y, x, labels, weights, rho)
        _, held_slope = losses_and_slope(y, held_out.features.double(), held_out.labels, one, 0.0)
        step = held_slope
        if length(u) > 0:
            r = 0.01 / length(u)
            ahead, slope_ahead = losses_and_slope({n: y[n] + r * u[n] for n in y}, x, labels, weights, rho)
            back, slope_back = losses_and_slope({n: y[n] - r * u[n] for n in y}, x, labels, weights, rho)
            step = {n: held_slope[n] - (slope_ahead[n] - slope_back[n]) / (2 * r) for n in y}
            if t > 1:
                d, sigma = (ahead - back) / (2 * r), torch.sigmoid(lam)
                lam = lam + algorithm.eta_lambda * kappa * sigma * (1 - sigma) * d / d.abs().mean()
                lam = lam.clamp(-6, 6)
        u = bounded({n: u[n] + algorithm.tau_u * step[n] for n in u})
        buffer = {n: 0.9 * buffer[n] + slope[n] for n in buffer}
        y = {n: y[n] - 0.1 * buffer[n] for n in y}
    return y, {n: u[n] - u_start[n] for n in u}, lam
