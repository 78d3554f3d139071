"""FLASH with all its options, and the restless and the neural bandit, against second implementations from the formulas alone."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fedcohort.core.arrays import Indices, Values
from fedcohort.selection import Cohort, Flash, Neural, Restless
from fedcohort.selection.bandit_contexts import ContextBandit
from tests.numbers.unreliable_server import SIZES, M, UnreliableServer, is_top

ELEMENTS = ["train_loss", "validation_loss", "duration", "reward"]
Pair = tuple[int, Values, float]


class ContextsByHand:
    """x_t(i) and r_t(i) of all clients, with the settings of ``s``."""

    def __init__(self, s: ContextBandit) -> None:
        self.s, self.used = s, [j for j, name in enumerate(ELEMENTS) if name != s.without]
        self.first, self.x, self.norms = np.full((M, 2), np.nan), np.full((M, 4), np.nan), np.ones(4)
        self.last, self.reward = np.full(M, np.nan), np.full(M, np.nan)
        self.silent, self.waiting = np.zeros(M, dtype=bool), np.zeros(M, dtype=bool)
        self.unit, self.largest, self.round_time = math.nan, 0.0, math.nan

    def tau(self, durations: Values) -> Values:
        """τ of all clients; the unit is the median of all times when one was first measured."""
        measured = np.isfinite(durations)
        scale = np.median((durations / SIZES)[measured]) if measured.any() else 1.0
        times = np.where(measured, durations, scale * SIZES)
        unit = float(np.median(times)) if math.isnan(self.unit) else self.unit
        self.unit = unit if measured.any() else self.unit
        if self.s.duration_scope == "round":
            times = np.full(M, unit if math.isnan(self.round_time) else self.round_time)
        return np.maximum(times / unit if self.s.time_unit == "median" else times, 1e-8)

    def rewards(self, clients: Indices, losses: Values, tau: Values) -> Values:
        """r_t of the clients that answered, cut off at 1e6."""
        rewards: Values = np.minimum(np.abs(losses - self.last[clients]) / tau, 1e6)
        self.last[clients] = losses
        known = np.isfinite(rewards)
        if not known.any():
            return rewards
        if self.s.reward_scope == "global":
            rewards = np.where(known, rewards[known].mean(), np.nan)
        if self.s.reward_unit == "largest":
            self.largest = max(self.largest, float(rewards[known].max()))
            return rewards / self.largest
        return np.minimum(rewards / rewards[known].mean(), 1e6) if self.s.reward_unit == "round" else rewards

    def see(self, clients: Indices, answers: Values, durations: Values) -> list[Pair]:
        """Take in answers; returns the pairs of clients that took part since their last answer."""
        finite, tau = np.isfinite(answers).all(axis=1), self.tau(durations)
        self.silent[clients] = ~finite
        clients, answers = clients[finite], answers[finite]
        self.first[clients] = np.where(np.isnan(self.first[clients]), answers, self.first[clients])
        losses = answers[:, 1 if self.s.reward_data == "validation" else 0]
        rewards = self.rewards(clients, losses, tau[clients])
        due = [(i, r) for i, r in zip(clients.tolist(), rewards.tolist(), strict=True) if self.waiting[i]]
        pairs = [(i, self.scaled(self.x[i]), r) for i, r in due if np.isfinite([r, self.x[i, 0]]).all()]
        self.waiting[clients] = False
        before = np.nan_to_num(self.reward[clients])
        self.x[clients] = np.minimum(np.column_stack([answers / self.first[clients], tau[clients], before]), 1e6)
        self.reward[clients] = rewards
        if self.s.scaling == "colnorm":
            lengths = np.sqrt(np.nansum(np.square(self.x), axis=0))
            self.norms = np.where(lengths > 0, lengths, 1.0)
        return pairs

    def scaled(self, x: Values) -> Values:
        return np.asarray((x / self.norms)[..., self.used])

    def known(self) -> Values:
        """The contexts of all clients; those without one have the mean of the others."""
        return self.scaled(np.where(np.isnan(self.x), np.nanmean(self.x, axis=0), self.x))


def some_options(seed: int) -> dict[str, Any]:
    """One of the possible combinations."""
    random = np.random.default_rng(seed)
    options: dict[str, list[Any]] = {
        "credit": ["causal", "printed"],
        "reward_unit": ["round", "largest", "raw"],
        "time_unit": ["median", "raw"],
        "scaling": ["none", "colnorm"],
        "duration_scope": ["client", "round"],
        "reward_scope": ["client", "global"],
        "reward_data": ["train", "validation"],
        "without": ["none", *ELEMENTS],
        "per_arm": [False, True],
        "head": ["lin_ucb", "greedy"],
        "gamma_rule": ["printed", "theory"],
        "context_refresh": ["all", "selected"],
    }
    return {name: values[random.integers(len(values))] for name, values in options.items()}


@pytest.mark.parametrize("seed", range(40))
def test_flash_with_any_options(seed: int) -> None:
    s = Flash(**some_options(seed), gamma_scale=0.7, ridge=0.5, delta=0.1, first_round="random")
    server, contexts, k = UnreliableServer(s, seed), ContextsByHand(s), 3
    d, arms = len(contexts.used), np.arange(M) if s.per_arm else np.zeros(M, dtype=int)
    V, b = np.stack([0.5 * np.eye(d)] * M), np.zeros((M, d))
    for t in range(1, 16):
        durations = server.chooser.durations.copy()
        available, cohort, scores = server.choose()
        if t > 1 and len(available) > k:
            spread = (1 + (t - 2) / 0.5) if s.gamma_rule == "theory" else 1 + (t - 2) * M
            gamma = 0.7 * (math.sqrt(0.5) + math.sqrt(d * math.log(spread / 0.1)))
            x, inverse = contexts.known(), np.linalg.inv(V)[arms]
            width = np.sqrt(np.einsum("ij,ijk,ik->i", x, inverse, x)) if s.head == "lin_ucb" else np.zeros(M)
            expected = np.einsum("ij,ijk,ik->i", x, inverse, b[arms]) + gamma * width
            expected[contexts.silent] = -np.inf
            np.testing.assert_allclose(scores[available], expected[available], rtol=1e-6, atol=1e-9)
            assert is_top(cohort, scores, available)
        if s.context_refresh == "selected" and len(available):
            contexts.silent[:] = False
        pairs = list[Pair]()
        for _, clients, answers in server.answers:
            pairs = contexts.see(clients, answers, durations)
        outcome = server.train()
        admitted = cohort.clients[outcome.admitted]
        contexts.round_time = outcome.duration if len(cohort) else contexts.round_time
        contexts.waiting[admitted] = True
        if s.credit == "printed":
            due = [i for i in admitted.tolist() if np.isfinite(contexts.reward[i]) and not contexts.silent[i]]
            pairs = [(i, contexts.known()[i], float(contexts.reward[i])) for i in due]
        for i, context, reward in pairs:
            V[arms[i]] += np.outer(context, context)
            b[arms[i]] += reward * context
        learned = server.chooser.state_dict()["state"]["learned"]
        np.testing.assert_allclose(learned["V"], V if s.per_arm else V[0], rtol=1e-9)
        np.testing.assert_allclose(learned["b"], b if s.per_arm else b[0], rtol=1e-9, atol=1e-12)


# --- the restless bandit -----------------------------------------------------------------------------------------------------------


def rounds(server: UnreliableServer, number: int) -> Iterator[tuple[int, Values, Indices, Cohort, Values]]:
    """Each round with available clients: its number, the known times before it, and what was chosen; the caller trains."""
    for t in range(1, number + 1):
        durations = server.chooser.durations.copy()
        available, cohort, scores = server.choose()
        if len(available):
            yield t, durations, available, cohort, scores
        else:
            server.train()


@pytest.mark.parametrize("seed", range(3))
def test_restless(seed: int) -> None:
    H, D, f = 3, 1.5, 0.9
    s = Restless(states=H, exploration=D, forgetting=f)
    server, contexts, k = UnreliableServer(s, seed), ContextsByHand(s), 3
    V, C, belief, noise = np.stack([np.eye(4)] * H), 1 + 9 * np.eye(H), np.full(H, 1 / H), 1.0
    b: Values | None = None
    count, explored = np.zeros(M), 0
    for t, durations, available, cohort, scores in rounds(server, 24):
        learned = server.chooser.selector.state_dict()["learned"]
        b = np.array(learned["b"]) if b is None else b  # b starts with random numbers
        _, clients, answers = server.answers[-1]
        pairs = contexts.see(clients, answers, durations)
        if t > 1:
            moves, theta = C / C.sum(axis=1, keepdims=True), np.linalg.solve(V, b[..., None])[..., 0]
            if pairs:
                x, r = np.stack([x for _, x, _ in pairs]), np.array([r for _, _, r in pairs])
                errors = np.square(r - theta @ x.T)
                likely = np.exp(-errors.sum(axis=1) / (2 * noise))
                posterior = (belief @ moves) * likely / (belief @ moves @ likely)
                joint = belief[:, None] * moves * likely
                C, belief = 0.999 * C + joint / joint.sum(), posterior
                V = f * V + (1 - f) * np.eye(4) + posterior[:, None, None] * (x.T @ x)
                b = f * b + posterior[:, None] * (r @ x)
                noise = max(1e-4, 0.95 * noise + 0.05 * float((posterior @ errors).mean()))
            else:
                belief = belief @ moves
        for name, value in {"V": V, "b": b, "transitions": C, "belief": belief, "noise": noise}.items():
            np.testing.assert_allclose(learned[name], value, rtol=1e-8, atol=1e-12, err_msg=name)
        if explored < D * math.log(t + 2):
            explored += 1
            assert is_top(cohort, np.where(contexts.silent, -np.inf, -count), available)
        elif len(available) > k:
            theta = belief @ (C / C.sum(axis=1, keepdims=True)) @ np.linalg.solve(V, b[..., None])[..., 0]
            expected = np.where(contexts.silent, -np.inf, contexts.known() @ theta)
            np.testing.assert_allclose(scores[available], expected[available], rtol=1e-8)
            assert is_top(cohort, scores, available)
        assert learned["explored"] == explored
        count[cohort.clients] += 1
        contexts.waiting[cohort.clients[server.train().admitted]] = True
    assert explored < server.t - 5


# --- the neural bandit -------------------------------------------------------------------------------------------------------------

Weights = dict[str, Values]


def network(w: Weights, x: Values) -> tuple[Values, Weights]:
    """f(x; θ), and the gradient of each row of x by the name of the weights."""
    if "w" in w:
        return x @ w["w"], {"w": x}
    z = x @ w["W1"].T + w["b1"]
    back = (z > 0) * w["w2"]
    gradient = {"W1": back[:, :, None] * x[:, None], "b1": back, "w2": np.maximum(z, 0), "b2": np.ones((len(x), 1))}
    return np.maximum(z, 0) @ w["w2"] + w["b2"][0], gradient


@pytest.mark.parametrize("hidden", [0, 6])
@pytest.mark.parametrize("seed", range(3))
def test_neural(hidden: int, seed: int) -> None:
    """The product trains in single precision."""
    ridge, nu, steps, lr, replay, k = 0.5, 2.0, 7, 0.02, 9, 3
    s = Neural(hidden=hidden, ridge=ridge, nu=nu, steps=steps, lr=lr, replay=replay)
    server, contexts = UnreliableServer(s, seed), ContextsByHand(s)
    w: Weights = {}
    U: Weights = {}
    X, R = np.zeros((0, 4)), np.zeros(0)
    for _, durations, available, cohort, scores in rounds(server, 20):
        learned = server.chooser.selector.state_dict()["learned"]
        w = w or {name: np.array(value) for name, value in learned["weights"].items()}  # they start with random numbers
        U = U or {name: np.full_like(value, ridge) for name, value in w.items()}
        _, clients, answers = server.answers[-1]
        if pairs := contexts.see(clients, answers, durations):
            X, R = np.vstack([X, *(x for _, x, _ in pairs)])[-replay:], np.append(R, [r for _, _, r in pairs])[-replay:]
            for _ in range(steps):
                f, gradient = network(w, X)
                slope = {name: np.tensordot(2 * (f - R) / len(R), g, 1) for name, g in gradient.items()}
                w = {name: value - lr * (slope[name] + ridge / len(R) * value) for name, value in w.items()}
        f, gradient = network(w, contexts.known())
        if len(available) > k:
            terms = [ridge * nu * np.square(gradient[name]) / U[name] for name in w]
            expected = f + np.sqrt(sum(term.reshape(M, -1).sum(axis=1) for term in terms))
            expected[contexts.silent] = -np.inf
            np.testing.assert_allclose(scores[available], expected[available], rtol=1e-4, atol=1e-5)
        U = {name: U[name] + np.square(gradient[name][cohort.clients]).sum(axis=0) for name in w}
        for name in w:
            np.testing.assert_allclose(learned["weights"][name], w[name], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(learned["U"][name], U[name], rtol=1e-4)
        contexts.waiting[cohort.clients[server.train().admitted]] = True
