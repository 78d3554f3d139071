"""Neural bandit: a small network predicts the reward of a context, and its gradient says how sure it is.

f(x; θ) has one hidden layer of ReLUs (with ``hidden = 0`` it is θᵀx), and U one entry for each of its parameters, λ at first:

    μ_i = f(x_i; θ);   g_i = ∇_θ f(x_i; θ);   σ_i = √(Σ_p λ·ν·g_{i,p}² / U_p)
    score_i = μ_i + σ_i  (ucb)   or   a draw from N(μ_i, σ_i²)  (ts);   S_t = top k;   U += Σ_{i∈S_t} g_i ⊙ g_i
    with the rewards: append (x_i, r_i) to the replay (at most ``replay`` pairs, the oldest leave), then 100 steps of full-batch
    gradient descent on the mean squared error, learning rate 0.01, weight decay λ/len

If the error stops being finite, θ goes back to where it started, and U stays. With one hidden layer, gradients need no autograd:
∂f/∂b₁ = w₂·1[z > 0], ∂f/∂W₁ = that times x, ∂f/∂w₂ = max(z, 0), ∂f/∂b₂ = 1.

NeuralUCB: Zhou, Li, Gu 2020, arXiv:1911.04462; neural Thompson sampling: Zhang et al. 2021, arXiv:2010.00827, and its code
ZeroWeight/NeuralTS (``learner_diag.py``). Its use for clients is ours: the text of Cao, Pan, Zhu, Liu 2022, "Birds of a Feather
Help: Context-aware Client Selection for Federated Learning", was not available. Contexts and rewards are those of FLASH with the
plain cross-entropy, see :mod:`fedcohort.selection.contexts`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.bandit import Candidates, Head, Scoring, State
from fedcohort.selection.contexts import ContextBandit
from fedcohort.selection.questions import Context

__all__ = ["Network", "Neural"]

ROWS = 2048
"""Contexts that go through the network at a time: their hidden layer stays in the processor's cache."""


@dataclass(frozen=True)
class Network:
    """The head, see above.

    Attributes:
        hidden: units of the hidden layer; 0 for none, and no bias.
        style: ucb or ts.
        ridge: λ.
        nu: ν.
        steps, lr: of the training in each round.
        replay: most pairs kept.
    """

    hidden: int = 100
    style: Literal["ucb", "ts"] = "ucb"
    ridge: float = 1.0
    nu: float = 1.0
    steps: int = 100
    lr: float = 0.01
    replay: int = 10_000

    def start(self, m: int, d: int, rng: np.random.Generator) -> State:
        """Weights uniform in ±1/√(inputs of the layer), as torch begins; U = λ."""

        def uniform(inputs: int, *shape: int) -> Values:
            return rng.uniform(-1, 1, shape) / math.sqrt(inputs)

        H = self.hidden
        weights = {"W1": uniform(d, H, d), "b1": uniform(d, H), "w2": uniform(H, H), "b2": uniform(H, 1)} if H else {}
        weights = weights or {"w": uniform(d, d)}
        return {
            "weights": weights,
            "initial": {name: value.copy() for name, value in weights.items()},
            "U": {name: np.full(value.shape, self.ridge) for name, value in weights.items()},
            "x": np.zeros((0, d)),
            "rewards": np.zeros(0),
        }

    def score(self, state: State, candidates: Candidates) -> Scoring:
        """Prediction and its uncertainty."""
        mean, variance = self._predict(state["weights"], state["U"], candidates.x)
        sigma = np.sqrt(self.ridge * self.nu * variance)
        bonus = sigma if self.style == "ucb" else sigma * candidates.rng.standard_normal(len(sigma))
        terms = {"mean_reward": mean, "exploration": bonus}
        terms |= {f"x_{name}": candidates.x[:, j] for j, name in enumerate(candidates.names)}
        word = "highest upper confidence bound" if self.style == "ucb" else "highest draw"
        return Scoring(mean + bonus, terms, f"{word} of a network's prediction")

    def note_selected(self, state: State, clients: Indices, x: Values) -> None:
        """U += Σ g ⊙ g."""
        for rows in _blocks(len(x)):
            for name, squares in self._squares(state["weights"], x[rows]).items():
                state["U"][name] = state["U"][name] + squares

    def learn(self, state: State, clients: Indices, x: Values, rewards: Values) -> None:
        """Replay, and train; nothing new, nothing to train."""
        if len(clients) == 0:
            return
        state["x"] = np.concatenate([state["x"], x])[-self.replay :]
        state["rewards"] = np.concatenate([state["rewards"], rewards])[-self.replay :]
        weights = self._train(state["weights"], state["x"], state["rewards"])
        fine = all(np.isfinite(value).all() for value in weights.values())
        state["weights"] = weights if fine else {name: value.copy() for name, value in state["initial"].items()}

    def _predict(self, w: dict[str, Values], u: dict[str, Values], x: Values) -> tuple[Values, Values]:
        """f, and Σ_p g_p² / U_p, of each row. The hidden layer is computed in single precision: it is the bulk of the work."""
        if not self.hidden:
            return x @ w["w"], np.square(x) @ (1 / u["w"])
        inputs = np.hstack([w["W1"], w["b1"][:, None]]).T.astype(
            np.float32
        )  # the bias is the weight of an input that is always 1
        slopes = (np.square(w["w2"])[:, None] / np.hstack([u["W1"], u["b1"][:, None]])).astype(np.float32)
        w2, inverse = w["w2"].astype(np.float32), (1 / u["w2"]).astype(np.float32)
        mean, variance = np.empty(len(x)), np.empty(len(x))
        for rows in _blocks(len(x)):
            one = np.ones((len(x[rows]), x.shape[1] + 1), dtype=np.float32)
            one[:, :-1] = x[rows]
            z = one @ inputs
            active = (z > 0).astype(np.float32)
            np.maximum(z, 0, out=z)
            mean[rows] = z @ w2
            variance[rows] = np.einsum("ij,ij->i", active @ slopes, np.square(one, out=one))
            variance[rows] += np.square(z, out=z) @ inverse
        return mean + w["b2"], variance + 1 / u["b2"]

    def _squares(self, w: dict[str, Values], x: Values) -> dict[str, Values]:
        """Σ_i g_i ⊙ g_i, parameter by parameter."""
        squares = np.square(x)
        if not self.hidden:
            return {"w": squares.sum(axis=0)}
        z = x @ w["W1"].T + w["b1"]
        active = (z > 0) * np.square(w["w2"])
        return {
            "W1": active.T @ squares,
            "b1": active.sum(axis=0),
            "w2": np.square(np.maximum(z, 0)).sum(axis=0),
            "b2": np.full(1, float(len(x))),
        }

    def _train(self, weights: dict[str, Values], x: Values, rewards: Values) -> dict[str, Values]:
        """Gradient descent on mean (f − r)² + decay, in single precision as well."""
        w, n = {name: value.astype(np.float32) for name, value in weights.items()}, np.float32(len(x))
        x, rewards = x.astype(np.float32), rewards.astype(np.float32)
        decay = np.float32(self.ridge) / n
        with np.errstate(over="ignore", invalid="ignore"):  # the caller looks whether it went well
            for _ in range(self.steps):
                if not self.hidden:
                    gradient = {"w": x.T @ (x @ w["w"] - rewards) * (2 / n)}
                else:
                    z = x @ w["W1"].T + w["b1"]
                    active = z > 0
                    np.maximum(z, 0, out=z)
                    error = (z @ w["w2"] + w["b2"] - rewards) * (2 / n)
                    back = error[:, None] * w["w2"]
                    back *= active
                    gradient = {
                        "W1": back.T @ x,
                        "b1": back.sum(axis=0),
                        "w2": error @ z,
                        "b2": error.sum(keepdims=True),
                    }
                for name, slope in gradient.items():
                    w[name] -= np.float32(self.lr) * (slope + decay * w[name])
        return {name: value.astype(np.float64) for name, value in w.items()}


def _blocks(n: int) -> Iterator[slice]:
    for start in range(0, n, ROWS):
        yield slice(start, start + ROWS)


@parameters
class Neural(ContextBandit):
    """k clients with the highest upper confidence bound, or draw, of a reward that a small network predicts."""

    card: ClassVar[Card] = Card(
        source="Zhou, Li, Gu 2020, arXiv:1911.04462; Zhang et al. 2021, arXiv:2010.00827; for clients ours",
        status="ours",
        asks="everybody for its losses on training and held-out data in every round (m model downloads, m forward passes)",
        discloses=Context.reveals,
        knows="N_i; durations",
        cost="O(m·P_nn) + 100 passes over at most 10,000 pairs",
    )

    hidden: Annotated[int, Ge(0)] = 100
    """Units of the hidden layer; 0 makes the network linear, without bias."""
    style: Literal["ucb", "ts"] = "ucb"
    """Upper confidence bound, or Thompson sampling."""
    ridge: Annotated[float, Gt(0)] = 1.0
    """λ, what U starts from; its share is the weight decay."""
    nu: Annotated[float, Ge(0)] = 1.0
    """ν, the weight of the uncertainty."""
    steps: Annotated[int, Ge(0)] = 100
    """Steps of gradient descent in each round."""
    lr: Annotated[float, Gt(0)] = 0.01
    """Learning rate of these steps."""
    replay: Annotated[int, Ge(1)] = 10_000
    """Pairs of context and reward that are remembered."""

    def build_head(self) -> Head:
        """The head with these parameters."""
        return Network(self.hidden, self.style, self.ridge, self.nu, self.steps, self.lr, self.replay)
