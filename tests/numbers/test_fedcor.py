"""FedCor: the worked choice, the schedule, training against the plain Gaussian likelihood, a planted covariance, its cost."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.linalg import subspace_angles

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import make
from fedcohort.rounds import play_round
from fedcohort.selection import LocalLoss, LossChange, Question, Round, choose, gaussian_process
from fedcohort.selection.gaussian_process import Dense, LowRank, _Adam, _dense, _kernel, _low_rank, covariance, fit
from fedcohort.selection.strategies.fedcor import FedCor, greedy
from tests.run_states import a_run_state
from tests.selection.fakes import a_census, an_outcome, the_why

RNG = np.random.default_rng
SIGMA = np.array([[1.0, 0.8, 0.1], [0.8, 1.0, 0.2], [0.1, 0.2, 0.5]])
P = np.array([0.3, 0.3, 0.4])
ALL = np.arange(3)


# --- the choice ------------------------------------------------------------------------------------------------------------


def test_the_worked_choice() -> None:
    clients, scores, first = greedy(Dense(SIGMA), P, np.ones(3), 2, ALL, RNG(0))
    assert np.round(first, 6).tolist() == [0.58, 0.62, 0.410122]
    assert clients.tolist() == [1, 2]
    assert np.round(scores, 6).tolist() == [0.14, 0.62, 0.244754]


def test_annealing_changes_the_choice() -> None:
    clients, _, first = greedy(Dense(SIGMA), P, np.array([1.0, 0.81, 1.0]), 1, ALL, RNG(0))
    assert np.round(first, 4).tolist() == [0.58, 0.5022, 0.4101]
    assert clients.tolist() == [0]


def conditioned(sigma: Values, p: Values, alpha: Values, k: int, among: Indices) -> list[int]:
    """The rule as it is printed, with the whole matrix."""
    sigma, chosen = sigma.copy(), []
    for _ in range(k):
        scores = {i: alpha[i] * (p @ sigma[:, i]) / np.sqrt(sigma[i, i]) for i in among if i not in chosen}
        i = max(scores, key=lambda j: scores[j])
        chosen.append(int(i))
        sigma -= np.outer(sigma[:, i], sigma[i]) / sigma[i, i]
    return chosen


@pytest.mark.parametrize("kernel", ["linear", "polynomial", "se"])
def test_columns_are_enough(kernel: Any) -> None:
    g = RNG(1)
    X, p, alpha = g.normal(size=(4, 30)), g.dirichlet(np.ones(30)), g.uniform(0.5, 1, 30)
    found = covariance(X, 0.3, kernel, 2, 0.1)
    matrix = np.stack([found.column(i) for i in range(30)])
    expected = _kernel(torch.tensor(X), torch.tensor(0.3), kernel, 2).numpy() + 0.01 * np.eye(30)
    np.testing.assert_allclose(matrix, expected, atol=1e-12)
    np.testing.assert_allclose(found.diagonal(), matrix.diagonal())
    np.testing.assert_allclose(found.times(p), matrix @ p)
    among = np.flatnonzero(g.random(30) < 0.7)
    clients, *_ = greedy(found, p, alpha, 8, among, RNG(0))
    assert clients.tolist() == conditioned(matrix, p, alpha, 8, among)


def test_clients_without_variance_come_last_and_ties_are_random() -> None:
    sigma = Dense(np.diag([1.0, 0.0, 1.0, 1.0]))
    firsts = [
        greedy(sigma, np.full(4, 0.25), np.ones(4), 4, np.arange(4), RNG(seed))[0].tolist() for seed in range(300)
    ]
    assert all(order[3] == 1 for order in firsts)
    assert stats.chisquare(np.bincount([order[0] for order in firsts], minlength=4)[[0, 2, 3]]).pvalue > 1e-6


# --- training --------------------------------------------------------------------------------------------------------------


def likelihoods(sigma: Values, records: Values, weights: Values) -> float:
    law = stats.multivariate_normal(np.zeros(len(sigma)), sigma)
    constant = len(sigma) / 2 * np.log(2 * np.pi)
    return float(-sum(w * (law.logpdf(y) + constant) for w, y in zip(weights, records, strict=True)))


def left_out(sigma: Values, records: Values, weights: Values) -> float:
    """Every entry predicted from the others, by conditioning."""
    total, n = 0.0, len(sigma)
    for w, y in zip(weights, records, strict=True):
        for i in range(n):
            o = np.delete(np.arange(n), i)
            gain = np.linalg.solve(sigma[np.ix_(o, o)], sigma[o, i])
            variance = sigma[i, i] - gain @ sigma[o, i]
            total += w * 0.5 * (np.log(variance) + (y[i] - gain @ y[o]) ** 2 / variance)
    return total


@pytest.mark.parametrize(("objective", "expected"), [("marginal", likelihoods), ("leave_one_out", left_out)])
def test_both_forms_of_both_objectives(objective: Any, expected: Any) -> None:
    g, noise = RNG(2), 0.3
    X, records, weights = g.normal(size=(3, 9)), g.normal(size=(4, 9)), g.uniform(0.5, 1, 4)
    tensors = torch.tensor(records), torch.tensor(weights)
    value = expected(X.T @ X + noise**2 * np.eye(9), records, weights)
    assert float(_dense(torch.tensor(X.T @ X), *tensors, noise, objective)) == pytest.approx(value)
    assert float(_low_rank(torch.tensor(X), *tensors, noise, objective)) == pytest.approx(value)


def test_a_covariance_that_is_not_positive_gets_jitter() -> None:
    flat = torch.ones((4, 4), dtype=torch.float64) - 1e-9 * torch.eye(4, dtype=torch.float64)
    record, weight = torch.ones((1, 4), dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    assert bool(torch.isfinite(_dense(flat, record, weight, 1e-9, "marginal")))
    assert bool(torch.isnan(_dense(-flat, record, weight, 1e-9, "marginal")))


def test_steps_have_the_bits_of_pytorch() -> None:
    g = RNG(3)
    start, log_scale = torch.from_numpy(g.normal(size=(3, 5))), torch.tensor(0.2, dtype=torch.float64)
    ours, theirs = ([start.clone().requires_grad_(), log_scale.clone().requires_grad_()] for _ in range(2))
    own, reference = _Adam(ours, 0.01), torch.optim.Adam(theirs, lr=0.01)
    for _ in range(50):
        for a, b in zip(ours, theirs, strict=True):
            gradient = torch.from_numpy(g.normal(size=tuple(a.shape))).reshape(a.shape)
            a.grad, b.grad = gradient.clone(), gradient.clone()
        own.step()
        reference.step()
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("objective", ["marginal", "leave_one_out"])
def test_a_planted_covariance_is_recovered(objective: Any) -> None:
    g = RNG(3)
    planted = np.repeat(g.normal(size=(3, 4)), 5, axis=1) + 0.2 * g.normal(size=(3, 20))
    sigma = planted.T @ planted + 0.05 * np.eye(20)
    changes = 2.5 + 0.1 * g.multivariate_normal(np.zeros(20), sigma, size=150)
    start = g.normal(size=(6, 20)) / np.sqrt(6)
    X, _ = fit(start, 0.0, changes, np.ones(150), noise=0.25, lr=0.05, steps=200, objective=objective)
    found = X.T @ X * changes.std() ** 2 / 0.1**2
    off = ~np.eye(20, dtype=bool)
    assert np.rad2deg(subspace_angles(start.T, planted.T)).max() > 20
    assert np.rad2deg(subspace_angles(X.T, planted.T)).max() < 5
    if objective == "marginal":  # leaving one out finds the directions, not how far clients move along them
        assert np.corrcoef(found[off], sigma[off])[0, 1] > 0.97


def test_missing_clients_are_left_out_and_one_record_teaches_nothing_strange() -> None:
    g = RNG(4)
    changes = g.normal(size=(3, 6))
    start = g.normal(size=(2, 6))
    changes[:, 5] = np.nan
    alone, _ = fit(start[:, :5], 0.0, changes[:, :5], np.array([1.0, 0.9, 0.8]), noise=0.5, steps=5)
    found, _ = fit(start, 0.0, changes, np.array([1.0, 0.9, 0.8]), noise=0.5, steps=5)
    np.testing.assert_allclose(found[:, :5], alone)
    assert found[:, 5].tolist() == start[:, 5].tolist()
    once, _ = fit(start, 0.0, g.normal(size=(1, 6)), np.ones(1), steps=20)
    assert np.isfinite(once).all()


def test_training_that_is_not_finite_keeps_what_was_there() -> None:
    start = np.full((2, 3), 1e200)
    found, _ = fit(start, 0.0, RNG(0).normal(size=(2, 3)), np.ones(2), steps=3)
    assert found.tolist() == start.tolist()


def test_a_step_that_is_not_finite_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it was the last one, it stayed, and FedCor selected at random from then on."""
    start, changes, loss = RNG(0).normal(size=(2, 6)), RNG(1).normal(size=(4, 6)), gaussian_process._loss
    once, _ = fit(start, 0.0, changes, np.ones(4), steps=1)
    calls = itertools.count(1)

    def with_gradients_of_nan(group: Any, points: torch.Tensor, *rest: Any) -> torch.Tensor:
        return (0 * points).sqrt().sum() if next(calls) == 2 else loss(group, points, *rest)

    monkeypatch.setattr(gaussian_process, "_loss", with_gradients_of_nan)
    found, _ = fit(start, 0.0, changes, np.ones(4), steps=4)
    assert found.tolist() == once.tolist()


@pytest.mark.parametrize("objective", ["marginal", "leave_one_out"])
def test_both_forms_have_the_same_gradient(objective: Any) -> None:
    g = RNG(5)
    X = torch.tensor(g.normal(size=(3, 20)), requires_grad=True)
    records = torch.tensor(g.normal(size=(4, 20))), torch.ones(4, dtype=torch.float64)
    (dense,) = torch.autograd.grad(_dense(X.T @ X, *records, 0.01, objective), X)
    (low_rank,) = torch.autograd.grad(_low_rank(X, *records, 0.01, objective), X)
    np.testing.assert_allclose(low_rank.numpy(), dense.numpy(), rtol=1e-6)


# --- the schedule ----------------------------------------------------------------------------------------------------------


class Stage:
    """Ten clients in two groups whose losses move together."""

    def __init__(self, **values: Any) -> None:
        self.m, self.k = 10, 2
        settings = {"warmup": 6, "interval": 4, "first_steps": 60, "steps": 10, "dim": 3, **values}
        self.fedcor: FedCor = make(FedCor, settings, "selection")
        self.fedcor.setup(a_census([10] * self.m, self.k))
        self.asked: list[tuple[int, Question, int]] = []

    def play(self, t: int, available: Indices | None = None) -> Any:
        ids = np.arange(self.m) if available is None else available

        def ask(question: Question, clients: Indices) -> Values:
            self.asked.append((t, question, len(clients)))
            groups = RNG(t).normal(size=2)
            values: Values = groups[clients // 5] + 0.1 * RNG(100 + t).normal(size=self.m)[clients]
            return values

        cohort = choose(self.fedcor, Round(t, self.k, ids, RNG(t), 0.0, np.full(self.m, np.nan), ask))
        self.fedcor.observe(an_outcome(cohort, t=t))
        return cohort


def test_the_schedule() -> None:
    stage, notes = Stage(), {}
    for t in range(1, 17):
        cohort = stage.play(t)
        notes[t] = the_why(cohort).note
        if t == 6:
            assert not len(stage.fedcor.X)
            assert [record["round"] for record in stage.fedcor.records] == [1, 2, 3, 4, 5]
        if t == 7:
            assert [record["round"] for record in stage.fedcor.records] == [1, 2, 3, 4, 5, 6]
            assert sorted((cohort.clients // 5).tolist()) == [0, 1]  # one of each group
        if t == 10:  # round 10 = W + Δt is followed by a round on trial, and does not count
            assert stage.fedcor.selected.sum() == 3 * 2
        if t == 11:
            assert stage.fedcor.selected.sum() == 2
    assert {notes[t] for t in range(1, 7)} == {"random: first rounds"}
    assert {notes[t] for t in range(7, 17)} == {"largest expected fall of all losses, given the clients chosen before"}
    losses = [t for t, question, n in stage.asked if isinstance(question, LocalLoss)]
    trials = [(t, question) for t, question, n in stage.asked if isinstance(question, LossChange)]
    assert losses == [1, 2, 3, 4, 5, 6, 7]
    assert [t for t, _ in trials] == [11, 15]
    assert all(isinstance(q, LossChange) and len(set(q.participants)) == 2 for _, q in trials)
    assert [record["round"] for record in stage.fedcor.records] == [1, 2, 3, 4, 5, 6, 10, 14]


@pytest.mark.parametrize("kernel", ["linear", "polynomial"])
def test_with_a_covariance_that_is_not_finite_the_choice_is_random(kernel: str) -> None:
    """Embeddings stay finite, but their products need not: all scores were NaN, and the note said that clients lower the loss."""
    stage = Stage(kernel=kernel)
    for t in range(1, 8):
        stage.play(t)
    stage.fedcor.X = np.full((3, 10), 1e200)
    why = the_why(stage.play(8))
    assert why.note == "random: the covariance is not finite"
    assert (why.scores == 0).all()


def test_the_change_is_that_of_the_round() -> None:
    stage = Stage()
    for t in (1, 2):
        stage.play(t)
    one, two = (RNG(t).normal(size=2)[np.arange(10) // 5] + 0.1 * RNG(100 + t).normal(size=10) for t in (1, 2))
    np.testing.assert_allclose(stage.fedcor.records[0]["change"], two - one)


def test_old_records_are_dropped() -> None:
    stage = Stage(memory=5)
    for t in range(1, 12):
        stage.play(t)
    assert [record["round"] for record in stage.fedcor.records] == [6, 10]


def test_recipes_follow_the_number_of_rounds_unless_one_is_named() -> None:
    def settings(rounds: int, **values: Any) -> list[float]:
        selector = FedCor(**values)
        selector.setup(replace(a_census([10] * 4, 2), rounds=rounds))
        return [selector._of_recipe(name) for name in ("warmup", "interval", "beta", "gamma", "memory")]

    short, long = [15, 10, 0.95, 0.95, 100], [20, 50, 0.9, 0.99, 500]
    assert settings(500) == settings(501, recipe="fmnist") == short
    assert settings(501) == settings(500, recipe="cifar10") == long
    assert settings(100, recipe="cifar10", beta=0.8) == [20, 50, 0.8, 0.99, 500]


def test_too_many_clients_are_refused() -> None:
    with pytest.raises(
        UsageError,
        match=r"selection.kernel = 'se': fedcor allows at most 1,000 clients with it, not 1,001; kernel = 'linear'",
    ):
        FedCor(kernel="se").setup(a_census([1] * 1001, 3))
    with pytest.raises(
        UsageError, match=r"fedcor allows at most 20,000 clients with it, not 20,001; use another strategy"
    ):
        FedCor().setup(a_census([1] * 20_001, 3))


def test_ten_thousand_clients() -> None:
    g = RNG(6)
    X, _ = fit(g.normal(size=(15, 10_000)), 0.0, g.normal(size=(3, 10_000)), np.ones(3), steps=2)
    clients, *_ = greedy(LowRank(X, 0.01), np.full(10_000, 1e-4), np.ones(10_000), 20, np.arange(10_000), g)
    assert len(set(clients.tolist())) == 20


# --- a round on trial ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "fedadam"])
def test_a_round_on_trial_leaves_nothing_behind_and_is_paid_for(algorithm: str) -> None:
    """The change of loss is that of a real round with the same clients; the run_state goes on as if nothing had happened."""

    class Trying(FedCor):
        found: Any = None

        def select(self, round: Round) -> Any:
            if round.t == 2:
                self.found = round.ask(LossChange((1, 4)), np.arange(12))
            return super().select(round)

    values: dict[str, Any] = {"algorithm": {"name": algorithm}}
    with a_run_state(**values) as run_state, a_run_state(**values) as plain:
        for one, selector in ((run_state, Trying()), (plain, FedCor())):
            selector.setup(one.selector.census)
            one.selector = selector
        for t in (1, 2):
            row, other = play_round(run_state, t, test=False), play_round(plain, t, test=False)
            if t == 1:
                start = dict(run_state.model)
            assert all(torch.equal(run_state.model[name], value) for name, value in plain.model.items())
        trial = next(entry for entry in row.ledger if entry.kind == "LossChange")
        assert [entry.kind for entry in other.ledger] == ["LocalLoss", "training"]
        real = next(entry for entry in row.ledger if entry.kind == "training")
        assert trial.messages == 2 * 12 + 12 + 2 * 2
        assert trial.bytes_up == 4 * 12 + real.bytes_up // 3 * 2
        assert trial.passes == pytest.approx(2 * 12 + real.passes / 3 * 2)
        assert trial.bytes_down >= (2 * 12 + 2) * sum(v.nbytes for v in start.values())

        found = run_state.selector.found  # type: ignore[attr-defined]
        assert np.isfinite(found).all()
        assert found.min() < 0
