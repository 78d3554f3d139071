"""Neural bandit: gradients and training compared with torch, the linear case by hand, and edge cases."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from fedcohort.core.arrays import Indices, Values
from fedcohort.selection import Question, Round, choose
from fedcohort.selection.bandit_heads import Candidates
from fedcohort.selection.strategies.neural import Network, Neural
from tests.selection.fakes import a_census, an_outcome, the_why

RNG = np.random.default_rng


def candidates(x: Values, seed: int = 0) -> Candidates:
    return Candidates(1, np.arange(len(x)), x, "abcdef"[: x.shape[1]], RNG(seed))


def as_torch(weights: dict[str, Values]) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(value, requires_grad=True) for name, value in weights.items()}


def forward(w: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ w["W1"].T + w["b1"]) @ w["w2"] + w["b2"]


def descend(weights: dict[str, torch.Tensor], decay: float) -> None:
    """One step of torch.optim.SGD, without importing torch.optim, which takes seconds."""
    with torch.no_grad():
        for value in weights.values():
            assert value.grad is not None
            value -= 0.01 * (value.grad + decay * value)
            value.grad = None


def answers(values: Values, question: Question, clients: Indices) -> Values:
    return values[clients]


def test_first_weights_are_uniform_up_to_one_by_the_root_of_the_inputs() -> None:
    """Of the first layer, 16 inputs; of the second, 400."""
    weights = Network(hidden=400).start(9, 16, RNG(0))["weights"]
    for name, limit in {"W1": 0.25, "b1": 0.25, "w2": 0.05}.items():
        assert stats.kstest(weights[name].ravel(), stats.uniform(-limit, 2 * limit).cdf).pvalue > 1e-3
        assert np.abs(weights[name]).max() <= limit
    assert np.abs(weights["b2"]) <= 0.05


def test_predictions_and_uncertainties_match_autograd() -> None:
    g, head = RNG(0), Network(hidden=7, ridge=0.5, nu=2.0)
    state, x = head.start(9, 4, g), g.normal(size=(9, 4))
    head.note_selected(state, np.arange(3), g.normal(size=(3, 4)))
    scoring = head.score(state, candidates(x))
    w = as_torch(state["weights"])
    for i in range(9):
        value = forward(w, torch.tensor(x[i : i + 1]))[0]
        slopes = dict(zip(w, torch.autograd.grad(value, list(w.values())), strict=True))
        variance = sum(float((slope**2 / torch.tensor(state["U"][name])).sum()) for name, slope in slopes.items())
        assert scoring.terms["mean_reward"][i] == pytest.approx(value.item(), rel=1e-5)
        assert scoring.terms["exploration"][i] == pytest.approx((0.5 * 2.0 * variance) ** 0.5, rel=1e-5)
        assert scoring.scores[i] == pytest.approx(scoring.terms["mean_reward"][i] + scoring.terms["exploration"][i])


def test_uncertainty_sums_grow_by_the_squared_gradients_of_selected_clients() -> None:
    g, head = RNG(1), Network(hidden=7)
    state, x = head.start(1, 4, g), g.normal(size=(5, 4))
    before = {name: value.copy() for name, value in state["U"].items()}
    head.note_selected(state, np.arange(5), x)
    w = as_torch(state["weights"])
    for name, value in w.items():
        squares = sum(
            torch.autograd.grad(forward(w, torch.tensor(x[i : i + 1])).sum(), value)[0] ** 2 for i in range(5)
        )
        assert isinstance(squares, torch.Tensor)
        np.testing.assert_allclose(state["U"][name] - before[name], squares.numpy(), rtol=1e-10)


def test_training_matches_gradient_descent_with_weight_decay_in_torch() -> None:
    g, head = RNG(2), Network(hidden=6, ridge=0.3, steps=25)
    state, x, r = head.start(1, 4, g), g.uniform(0, 1, (12, 4)), g.uniform(0, 1, 12)
    w = as_torch(state["weights"])
    for _ in range(25):
        torch.nn.functional.mse_loss(forward(w, torch.tensor(x)), torch.tensor(r)).backward()
        descend(w, decay=0.3 / 12)
    head.learn(state, np.arange(12), x, r)
    for name, value in w.items():
        np.testing.assert_allclose(state["weights"][name], value.detach().numpy(), rtol=1e-4, atol=1e-6)


def test_without_a_hidden_layer_the_head_is_diagonal_linucb() -> None:
    g, head = RNG(3), Network(hidden=0, nu=1.5, ridge=1.0)
    state, x = head.start(4, 2, g), np.array([[1.0, 2.0], [0.5, 0.1]])
    head.note_selected(state, np.array([0]), x[:1])
    assert state["U"]["w"].tolist() == [2.0, 5.0]
    scoring = head.score(state, candidates(x))
    np.testing.assert_allclose(scoring.terms["exploration"], np.sqrt(1.5 * (x**2 / [2.0, 5.0]).sum(axis=1)))
    np.testing.assert_allclose(scoring.terms["mean_reward"], x @ state["weights"]["w"])
    w, r = as_torch(state["weights"]), np.array([0.3, 0.7])
    for _ in range(100):
        torch.nn.functional.mse_loss(torch.tensor(x) @ w["w"], torch.tensor(r)).backward()
        descend(w, decay=0.5)
    head.learn(state, np.arange(2), x, r)
    np.testing.assert_allclose(state["weights"]["w"], w["w"].detach().numpy(), rtol=1e-4)


def test_thompson_scores_are_normal_around_the_prediction() -> None:
    state = Network(hidden=5).start(1, 2, RNG(0))
    x = np.tile([0.3, 0.7], (3000, 1))
    mean = Network(hidden=5).score(state, candidates(x)).terms
    drawn = Network(hidden=5, style="ts").score(state, candidates(x, seed=9)).scores
    law = stats.norm(mean["mean_reward"][0], mean["exploration"][0])
    assert stats.kstest(drawn, law.cdf).pvalue > 1e-6


def test_the_replay_drops_the_oldest_pairs() -> None:
    head = Network(hidden=0, replay=3, steps=0)
    state = head.start(9, 1, RNG(0))
    for r in range(5):
        head.learn(state, np.array([r]), np.full((1, 1), float(r)), np.array([float(r)]))
    assert state["rewards"].tolist() == [2, 3, 4]
    assert state["x"].ravel().tolist() == [2, 3, 4]


def test_diverging_training_resets_the_weights_and_keeps_the_uncertainty() -> None:
    head = Network(hidden=4, lr=1e30)
    state = head.start(2, 2, RNG(0))
    head.note_selected(state, np.array([0]), np.ones((1, 2)))
    head.learn(state, np.arange(2), np.ones((2, 2)), np.ones(2))
    for name, value in state["weights"].items():
        assert value.tolist() == state["initial"][name].tolist()
    assert state["U"]["b2"].tolist() == [2.0]
    head.learn(state, np.zeros(0, dtype=np.int64), np.zeros((0, 2)), np.zeros(0))
    assert len(state["rewards"]) == 2


def test_weights_whose_squares_are_too_large_for_single_precision_are_reset() -> None:
    """Scores contain their squares: without the reset they would be NaN, with a warning of numpy."""
    head = Network(hidden=4, lr=1e21, steps=1)
    state = head.start(2, 2, RNG(0))
    head.learn(state, np.arange(2), np.ones((2, 2)), np.ones(2))
    assert {name: value.tolist() for name, value in state["weights"].items()} == {
        name: value.tolist() for name, value in state["initial"].items()
    }


def test_the_strategy_learns_which_clients_have_the_highest_reward() -> None:
    """The losses of clients 0 and 1 decrease, so their reward is highest; after 40 rounds they are selected."""
    neural = Neural(nu=0.01)
    neural.setup(a_census([10] * 8, 2))
    losses: Any = np.full((8, 2), 2.0)
    for t in range(1, 41):
        seen = Round(t, 2, np.arange(8), RNG(t), 0.0, np.full(8, 5.0), partial(answers, losses))
        cohort = choose(neural, seen)
        assert "x_duration" in the_why(cohort).terms
        neural.observe(an_outcome(cohort, t=t))
        losses = losses.copy()
        losses[0:2, 0] *= 0.97
    assert sorted(cohort.clients.tolist()) == [0, 1]
