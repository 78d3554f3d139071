"""Strategies over many rounds, against second implementations that were written from the formulas alone."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from fedcohort import Chooser, ClientResult
from fedcohort.core.arrays import Indices, Values
from fedcohort.selection import (
    GPFL,
    Census,
    Cohort,
    FedCor,
    LocalLoss,
    LossChange,
    Outcome,
    Question,
    Rizk,
    Selector,
)

M, K_OF_ROUND, P = 7, 2, 5


class MadeUpServer:
    """A chooser with clients that make up their answers, are away at times, and fail at times; ``play`` is one round."""

    def __init__(self, selector: Selector, seed: int, available: float = 0.7, failing: float = 0.2) -> None:
        self.random = np.random.default_rng(seed)
        self.sizes = self.random.integers(5, 90, M)
        self.chooser = Chooser(selector, Census(self.sizes, 2, K_OF_ROUND, num_parameters=P, rounds=99), seed)
        self.available_share, self.failing = available, failing
        self.answers: list[tuple[Question, Values]] = []
        self.updates: dict[int, Values] = {}
        self.steps: dict[int, int] = {}

    def ask(self, question: Question, clients: Indices) -> Values:
        shape = (len(clients), question.numbers) if question.numbers > 1 else len(clients)
        answer = np.full((M, question.numbers), np.nan)
        answer[clients] = self.random.uniform(0.2, 2, shape).reshape(len(clients), -1)
        self.answers.append((question, answer))
        return answer[clients].reshape(shape)

    def choose(self) -> tuple[Indices, Cohort, Values]:
        """The available clients, the cohort, and the scores [m] (NaN for clients without one)."""
        self.answers = []
        present = np.flatnonzero(self.random.random(M) < self.available_share)
        cohort = self.chooser.select(present, self.ask)
        scores = np.full(M, np.nan)
        assert cohort.why is not None
        scores[cohort.why.candidates] = cohort.why.scores
        return present, cohort, scores

    def train(self, cohort: Cohort) -> Outcome:
        results = {}
        self.updates, self.steps = {}, {}
        for client in cohort.clients.tolist():
            update, steps = self.random.normal(size=P), int(self.random.integers(1, 9))
            duration = self.sizes[client] * self.random.uniform(0.5, 3)
            if self.random.random() < self.failing:
                results[client] = ClientResult(failure="broken")
                continue
            admitted = bool(self.random.random() < 0.8)
            results[client] = ClientResult({"steps": steps}, duration, update, admitted)
            self.updates[client], self.steps[client] = update, steps
        outcome = self.chooser.outcome(results)
        self.chooser.observe(outcome)
        return outcome


def is_top(cohort: Cohort, scores: Values, present: Indices) -> bool:
    """Whether no available client outside the cohort has a higher score than one inside."""
    outside = np.setdiff1d(present, cohort.clients)
    return bool(scores[cohort.clients].min(initial=np.inf) >= scores[outside].max(initial=-np.inf) - 1e-9)


# --- strategies that learn from updates ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_rizk(seed: int) -> None:
    server = MadeUpServer(Rizk(), seed)
    norm: dict[int, float] = {}
    for _ in range(15):
        present, cohort, scores = server.choose()
        if len(present) > K_OF_ROUND:
            p = server.sizes / server.sizes[present].sum()
            known = np.array([norm.get(i, max(norm.values(), default=1.0)) for i in range(M)])
            q = 0.9 * p * known / (p * known)[present].sum() + 0.1 / len(present)
            q = q if norm else np.full(M, 1 / len(present))
            np.testing.assert_allclose(scores[present], q[present])
            first, second = cohort.clients.tolist()
            assert cohort.weights is not None
            expected = [p[first] / 2 * (1 / q[first] + 1), p[second] / 2 * (1 - q[first]) / q[second]]
            np.testing.assert_allclose(cohort.weights, expected)
        server.train(cohort)
        for i, update in server.updates.items():
            latest = float(np.linalg.norm(update)) / server.steps[i]
            norm[i] = (norm[i] + latest) / 2 if i in norm else latest


@pytest.mark.parametrize("seed", range(4))
def test_gpfl(seed: int) -> None:
    server = MadeUpServer(GPFL(), seed)
    direction: dict[int, Values] = {}
    merged: Values | None = None
    count = np.zeros(M)
    for t in range(1, 20):
        present, cohort, scores = server.choose()
        if len(present) > K_OF_ROUND:
            fit, known = np.ones(M), [i for i in present if i in direction]
            if merged is not None and known:
                along = np.array([direction[i] @ merged for i in known]) / np.linalg.norm(merged)
                raised = np.exp((along - along.max()) / max(along.std(), 1e-12))
                fit[known] = len(known) * raised / raised.sum()
            with np.errstate(divide="ignore"):
                bonus = 0.98 ** (t - 1) * np.sqrt(2 * math.log(t) / count) if t > 1 else np.full(M, np.inf)
            np.testing.assert_allclose(scores[present], (fit + bonus)[present], rtol=1e-4)
            assert is_top(cohort, fit + bonus, present) or np.isinf(scores[cohort.clients]).any()
        count[cohort.clients] += 1
        outcome = server.train(cohort)
        for i, update in server.updates.items():
            direction[i] = 0.9 * direction[i] + 0.1 * update if i in direction else update
        if outcome.admitted.any():
            admitted = cohort.clients[outcome.admitted]
            merged = np.average([server.updates[i] for i in admitted.tolist()], axis=0, weights=server.sizes[admitted])


# --- FedCor ------------------------------------------------------------------------------------------------------------------

GAMMA, BETA, MEMORY, NOISE = 0.8, 0.7, 9, 0.1
Likelihood = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def marginal(covariance: torch.Tensor, change: torch.Tensor) -> torch.Tensor:
    return torch.distributions.MultivariateNormal(torch.zeros_like(change), covariance).log_prob(change)


def leave_one_out(covariance: torch.Tensor, change: torch.Tensor) -> torch.Tensor:
    """The sum of the log-densities of each entry given the others."""
    inverse = torch.linalg.inv(covariance)
    variance = 1 / inverse.diagonal()
    return torch.distributions.Normal(change - inverse @ change * variance, variance.sqrt()).log_prob(change).sum()


def fitted(X: Values, records: list[tuple[int, Values]], t: int, likelihood: Likelihood) -> Values:
    """The embeddings after 15 steps of PyTorch's Adam; missing answers are left out, and so are records of a single client."""
    several = [(e, change) for e, change in records if np.isfinite(change).sum() > 1]
    kept = [(GAMMA ** (t - e), change) for e, change in several if e > t - MEMORY]
    weights, changes = np.array([w for w, _ in kept]), np.stack([change for _, change in kept])
    changes /= np.nanstd(changes)
    answered = weights[:, None] * np.isfinite(changes)
    changes -= (answered * np.nan_to_num(changes)).sum(axis=0) / np.maximum(answered.sum(axis=0), 1e-12)
    x = torch.tensor(X, requires_grad=True)
    adam = torch.optim.Adam([x], 0.01)
    for _ in range(15):
        adam.zero_grad()
        loss = torch.zeros((), dtype=torch.float64)
        for weight, change in zip(weights, changes, strict=True):
            there = np.flatnonzero(np.isfinite(change))
            embedded = x[:, there]
            covariance = embedded.T @ embedded + NOISE**2 * torch.eye(len(there), dtype=torch.float64)
            loss = loss - weight * likelihood(covariance, torch.from_numpy(change[there]))
        loss.backward()
        adam.step()
    result: Values = x.detach().numpy()
    return result


@pytest.mark.parametrize("likelihood", [marginal, leave_one_out])
@pytest.mark.parametrize("seed", range(2))
def test_fedcor(likelihood: Likelihood, seed: int) -> None:
    own = {"beta": BETA, "gamma": GAMMA, "memory": MEMORY, "noise": NOISE, "objective": likelihood.__name__}
    settings = {"warmup": 4, "interval": 3, "first_steps": 20, "steps": 15, "dim": 4} | own
    server = MadeUpServer(FedCor(**settings), seed)  # type: ignore[arg-type]
    records: list[tuple[int, Values]] = []
    last: Values | None = None
    tau, trainings = np.zeros(M), 0
    for t in range(1, 18):
        X_before = np.array(server.chooser.selector.state_dict()["X"])
        present, cohort, _ = server.choose()
        X = np.array(server.chooser.selector.state_dict()["X"])
        for question, answer in server.answers:
            if isinstance(question, LossChange):
                records.append((t - 1, answer[:, 0]))
                tau[:], trainings = 0, trainings + 1
                np.testing.assert_allclose(X, fitted(X_before, records, t - 1, likelihood), rtol=1e-6, atol=1e-9)
            elif isinstance(question, LocalLoss):
                records += [] if last is None else [(t - 1, answer[:, 0] - last)]
                last = answer[:, 0]
        if t > 4 and len(present) > K_OF_ROUND:
            covariance, chosen = X.T @ X + NOISE**2 * np.eye(M), list[int]()
            for _ in range(K_OF_ROUND):
                gain = BETA**tau * (server.sizes @ covariance) / np.sqrt(np.maximum(covariance.diagonal(), 1e-12))
                left = np.setdiff1d(present, chosen)
                best = int(left[gain[left].argmax()])
                chosen.append(best)
                column = covariance[:, best]
                covariance = covariance - np.outer(column, column) / column[best]
            assert cohort.clients.tolist() == chosen
        tau[cohort.clients] += t > 4
        server.train(cohort)
    assert trainings > 2
