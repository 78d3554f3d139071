"""Restless bandit: each step of the filter compared with loops, ridge regression as a special case, and a benchmark."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest

from fedcohort.core.arrays import Indices, Values
from fedcohort.selection import Question, Round, choose
from fedcohort.selection.bandit_contexts import ELEMENTS
from fedcohort.selection.bandit_heads import Candidates, Head, Linear, gamma, posterior
from fedcohort.selection.strategies.restless import HiddenMarkov, Restless
from tests.selection.fakes import a_census, an_outcome, the_why

RNG = np.random.default_rng


def one_step(state: dict[str, Any], x: Values, r: Values, f: float = 0.995) -> dict[str, Any]:
    """The pseudo-code of the module docstring, with loops over states and clients."""
    H, d = state["b"].shape
    C, pi, noise = state["transitions"], state["belief"], state["noise"]
    P = [[C[g][h] / sum(C[g]) for h in range(H)] for g in range(H)]
    bar = [sum(pi[g] * P[g][h] for g in range(H)) for h in range(H)]
    theta = [np.linalg.inv(state["V"][h]) @ state["b"][h] for h in range(H)]
    ll = [-sum((r[i] - theta[h] @ x[i]) ** 2 for i in range(len(r))) / (2 * noise) for h in range(H)]
    post = np.array([bar[h] * math.exp(ll[h] - max(ll)) for h in range(H)])
    post /= post.sum()
    xi = np.array([[pi[g] * P[g][h] * math.exp(ll[h] - max(ll)) for h in range(H)] for g in range(H)])
    xi /= xi.sum()
    V, b, error = [], [], 0.0
    for h in range(H):
        V.append(f * state["V"][h] + (1 - f) * np.eye(d) + post[h] * sum(np.outer(row, row) for row in x))
        b.append(f * state["b"][h] + post[h] * sum(r[i] * x[i] for i in range(len(r))))
        error += sum(post[h] * (r[i] - theta[h] @ x[i]) ** 2 for i in range(len(r))) / len(r)
    noise = max(1e-4, 0.95 * noise + 0.05 * error)
    return {"V": np.array(V), "b": np.array(b), "transitions": 0.999 * C + xi, "belief": post, "noise": noise}


def answers(values: Values, question: Question, clients: Indices) -> Values:
    return values[clients]


@pytest.mark.parametrize("states", [1, 2, 3])
def test_learning_matches_the_pseudo_code(states: int) -> None:
    g, head = RNG(0), HiddenMarkov(states=states)
    state = head.start(6, 3, g)
    for _ in range(5):
        x, r = g.uniform(0, 1, (4, 3)), g.normal(size=4)
        expected = one_step(state, x, r)
        head.learn(state, np.arange(4), x, r)
        for name, value in expected.items():
            np.testing.assert_allclose(state[name], value, rtol=1e-10)


def test_a_round_without_rewards_changes_only_the_belief() -> None:
    head = HiddenMarkov()
    state = head.start(3, 2, RNG(0))
    state["belief"] = np.array([1.0, 0.0])
    V = state["V"].copy()
    head.learn(state, np.zeros(0, dtype=np.int64), np.zeros((0, 2)), np.zeros(0))
    assert state["belief"].tolist() == pytest.approx([10 / 11, 1 / 11])
    assert state["V"].tolist() == V.tolist()


def test_an_overflowing_likelihood_keeps_the_predicted_belief() -> None:
    head = HiddenMarkov()
    state = head.start(1, 2, RNG(0))
    with np.errstate(over="ignore"):
        head.learn(state, np.array([0]), np.ones((1, 2)), np.array([1e200]))
    assert state["belief"].tolist() == pytest.approx([0.5, 0.5])


def test_one_state_without_forgetting_is_ridge_regression() -> None:
    g, head, ridge = RNG(1), HiddenMarkov(states=1, forgetting=1.0), Linear("greedy")
    one, two = head.start(5, 3, g), ridge.start(5, 3, g)
    for _ in range(10):
        x, r = g.uniform(0, 1, (5, 3)), g.normal(size=5)
        for part, state in ((head, one), (ridge, two)):
            part.learn(state, np.arange(5), x, r)
    np.testing.assert_allclose(posterior(one["V"][0], one["b"][0])[0], posterior(two["V"], two["b"])[0], rtol=1e-10)


def test_forced_exploration_selects_the_least_selected_and_grows_with_log_t() -> None:
    head = HiddenMarkov(exploration=2.0)
    state, x, explored = head.start(6, 2, RNG(0)), np.zeros((6, 2)), []
    for t in range(1, 101):
        scoring = head.score(state, Candidates(t, np.arange(6), x, "ab", RNG(t)))
        explored.append(scoring.override is not None)
        picked = np.argsort(-scoring.scores if scoring.override is None else -scoring.override)[:2]
        head.note_selected(state, picked, x[picked])
        if t == 3:
            assert state["selections"].tolist() == [1] * 6
    assert sum(explored) == math.ceil(2 * math.log(102))
    assert explored[:4] == [True, True, True, True]  # 2·ln 6 > 3
    assert not explored[4]


def test_the_strategy_scores_the_contexts_of_the_same_round() -> None:
    restless, g = Restless(exploration=0.0), RNG(4)
    restless.setup(a_census([10] * 6, 2))
    for t in range(1, 6):
        losses = g.uniform(0.5, 2, (6, 2))
        seen = Round(t, 2, np.arange(6), RNG(t), 0.0, np.full(6, 5.0), partial(answers, losses))
        cohort = choose(restless, seen)
        why, state = the_why(cohort), restless.learned
        assert state is not None
        theta = posterior(state["V"], state["b"])[0]
        bar = state["belief"] @ (state["transitions"] / state["transitions"].sum(axis=1, keepdims=True))
        np.testing.assert_allclose(why.scores, bar @ theta @ restless.context.T, rtol=1e-9)
        assert set(ELEMENTS) <= set(why.terms)
        assert why.terms["state_0"] + why.terms["state_1"] == pytest.approx(1.0)
        restless.observe(an_outcome(cohort, t=t))


def relative_reward(make: Any, seed: int, rounds: int = 600, m: int = 20, k: int = 4) -> float:
    """Reward relative to that of an oracle that knows θ and the state of each round."""
    g = RNG(seed)
    theta, state = np.array([[1.0, 0.2, 0.3], [-0.6, 0.9, 0.3]]), 0
    head: Head | None = make() if make is not None else None
    memory = head.start(m, 3, g) if head is not None else {}
    got = best = 0.0
    for t in range(rounds):
        state = state if g.random() < 0.97 else 1 - state
        x = np.column_stack([g.random(m), g.random(m), np.ones(m)])
        mean = x @ theta[state]
        if head is None:
            picked = g.permutation(m)[:k]
        else:
            scoring = head.score(memory, Candidates(t, np.arange(m), x, "abc", g))
            picked = np.argsort(-(scoring.scores if scoring.override is None else scoring.override))[:k]
            head.note_selected(memory, picked, x[picked])
            head.learn(memory, picked, x[picked], mean[picked] + 0.1 * g.normal(size=k))
        got, best = got + mean[picked].sum(), best + np.sort(mean)[-k:].sum()
    return got / best


@pytest.mark.slow
def test_the_reward_is_close_to_an_oracle_and_above_linucb() -> None:
    seeds = range(10)
    restless = np.mean([relative_reward(HiddenMarkov, seed) for seed in seeds])
    ucb = np.mean([relative_reward(lambda: Linear("lin_ucb", gamma=lambda t: gamma(t, 20, 3)), seed) for seed in seeds])
    random = np.mean([relative_reward(None, seed) for seed in seeds])
    assert restless >= 0.90
    assert restless >= ucb
    assert random == pytest.approx(0.62, abs=0.03)
