"""Neural bandit: a small network predicts the reward of a context, and the gradients of the network give the uncertainty.

f(x; θ) has one hidden layer of ReLUs (with ``hidden = 0``, it is θᵀx). U has one entry for each parameter, initially λ:

    μ_i = f(x_i; θ);   g_i = ∇_θ f(x_i; θ);   σ_i = √(Σ_p λ·ν·g_{i,p}² / U_p)
    score_i = μ_i + σ_i  (ucb)   or   a draw from N(μ_i, σ_i²)  (ts);   S_t = top k;   U += Σ_{i∈S_t} g_i ⊙ g_i
    with the rewards: append (x_i, r_i) to the replay (at most ``replay`` pairs; the oldest are dropped), then take 100 steps of
    full-batch gradient descent on the mean squared error, learning rate 0.01, weight decay λ/len

If a weight or its square is no longer finite after training, θ is reset to its initial value, and U is kept. With one hidden layer,
the gradients need no autograd: ∂f/∂b₁ = w₂·1[z > 0], ∂f/∂W₁ = that times x, ∂f/∂w₂ = max(z, 0), ∂f/∂b₂ = 1.

NeuralUCB: Zhou, Li, Gu 2020, arXiv:1911.04462; neural Thompson sampling: Zhang et al. 2021, arXiv:2010.00827, and its code
ZeroWeight/NeuralTS (``learner_diag.py``). The application to clients is ours: we did not have access to the text of Cao, Pan, Zhu, Liu
2022, "Birds of a Feather Help: Context-aware Client Selection for Federated Learning". Contexts and rewards are those of FLASH with
plain cross-entropy; see :mod:`fedcohort.selection.bandit_contexts`.
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
from fedcohort.selection.bandit_contexts import ASKS_ALL_CLIENTS, ContextBandit
from fedcohort.selection.bandit_heads import Candidates, Head, Scoring, State
from fedcohort.selection.questions import Context

__all__ = ["Network", "Neural"]

ROWS = 2048
"""Number of contexts that pass through the network at a time, so that their hidden layer stays in the processor's cache."""


@dataclass(frozen=True)
class Network:
    """The head of the neural bandit; the module docstring defines the symbols.

    Attributes:
        hidden: number of hidden units; 0 means a linear network without bias.
        style: ucb or ts.
        ridge: λ.
        nu: ν.
        steps, lr: number of gradient steps in each round, and their learning rate.
        replay: largest number of pairs that are stored.
    """

    hidden: int = 100
    style: Literal["ucb", "ts"] = "ucb"
    ridge: float = 1.0
    nu: float = 1.0
    steps: int = 100
    lr: float = 0.01
    replay: int = 10_000

    def start(self, m: int, d: int, rng: np.random.Generator) -> State:
        """Weights uniform in ±1/√(inputs of the layer), as torch initializes them, and U = λ."""

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
        """The predicted rewards, plus their uncertainty (ucb) or a draw of it (ts)."""
        mean, variance = self._predict(state["weights"], state["U"], candidates.x)
        sigma = np.sqrt(self.ridge * self.nu * variance)
        bonus = sigma if self.style == "ucb" else sigma * candidates.rng.standard_normal(len(sigma))
        terms = {"mean_reward": mean, "exploration": bonus}
        terms |= {f"x_{name}": candidates.x[:, j] for j, name in enumerate(candidates.names)}
        what = "highest upper confidence bound" if self.style == "ucb" else "highest draw"
        return Scoring(mean + bonus, terms, f"{what} of a network's prediction")

    def note_selected(self, state: State, clients: Indices, x: Values) -> None:
        """Add Σ g ⊙ g to U."""
        for rows in _blocks(len(x)):
            for name, squares in self._squares(state["weights"], x[rows]).items():
                state["U"][name] = state["U"][name] + squares

    def learn(self, state: State, clients: Indices, x: Values, rewards: Values) -> None:
        """Store the pairs and train the network; do nothing without new pairs."""
        if len(clients) == 0:
            return
        state["x"] = np.concatenate([state["x"], x])[-self.replay :]
        state["rewards"] = np.concatenate([state["rewards"], rewards])[-self.replay :]
        weights = self._train(state["weights"], state["x"], state["rewards"])
        with np.errstate(over="ignore"):  # scores contain squares of weights, in single precision
            finite = all(np.isfinite(np.square(value, dtype=np.float32)).all() for value in weights.values())
        state["weights"] = weights if finite else {name: value.copy() for name, value in state["initial"].items()}

    def _predict(self, w: dict[str, Values], u: dict[str, Values], x: Values) -> tuple[Values, Values]:
        """f and Σ_p g_p²/U_p of each row of x. The hidden layer is most of the work and is computed in single precision."""
        if not self.hidden:
            return x @ w["w"], np.square(x) @ (1 / u["w"])
        # The bias is the weight of an additional input that is always 1.
        inputs = np.hstack([w["W1"], w["b1"][:, None]]).T.astype(np.float32)
        slopes = (np.square(w["w2"])[:, None] / np.hstack([u["W1"], u["b1"][:, None]])).astype(np.float32)
        w2, inverse = w["w2"].astype(np.float32), (1 / u["w2"]).astype(np.float32)
        mean, variance = np.empty(len(x)), np.empty(len(x))
        for rows in _blocks(len(x)):
            x_and_1 = np.ones((len(x[rows]), x.shape[1] + 1), dtype=np.float32)
            x_and_1[:, :-1] = x[rows]
            z = x_and_1 @ inputs
            active = (z > 0).astype(np.float32)
            np.maximum(z, 0, out=z)
            mean[rows] = z @ w2
            variance[rows] = np.einsum("ij,ij->i", active @ slopes, np.square(x_and_1, out=x_and_1))
            variance[rows] += np.square(z, out=z) @ inverse
        return mean + w["b2"], variance + 1 / u["b2"]

    def _squares(self, w: dict[str, Values], x: Values) -> dict[str, Values]:
        """Σ_i g_i ⊙ g_i of each weight array, by its name."""
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
        """The weights after gradient descent on the mean of (f − r)² with weight decay, in single precision."""
        w, n = {name: value.astype(np.float32) for name, value in weights.items()}, np.float32(len(x))
        x, rewards = x.astype(np.float32), rewards.astype(np.float32)
        decay = np.float32(self.ridge) / n
        with np.errstate(over="ignore", invalid="ignore"):  # the caller checks that the result is finite
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
    """As flash, with a small network that predicts the reward. The k clients with the highest upper confidence bound, or draw,
    are selected.
    """

    card: ClassVar[Card] = Card(
        source="Zhou, Li, Gu 2020, arXiv:1911.04462; Zhang et al. 2021, arXiv:2010.00827; application to clients ours",
        status="ours",
        asks=ASKS_ALL_CLIENTS,
        discloses=Context.reveals,
        knows="N_i; durations",
        cost="O(m·P_nn) + 100 passes over at most 10,000 pairs",
    )

    hidden: Annotated[int, Ge(0)] = 100
    """Number of hidden units; 0 makes the network linear, without bias."""
    style: Literal["ucb", "ts"] = "ucb"
    """Exploration: upper confidence bound (ucb), or Thompson sampling (ts)."""
    ridge: Annotated[float, Gt(0)] = 1.0
    """Initial value λ of U; the weight decay is λ divided by the number of stored pairs."""
    nu: Annotated[float, Ge(0)] = 1.0
    """Weight ν of the uncertainty."""
    steps: Annotated[int, Ge(0)] = 100
    """Number of gradient descent steps in each round."""
    lr: Annotated[float, Gt(0)] = 0.01
    """Learning rate of these steps."""
    replay: Annotated[int, Ge(1)] = 10_000
    """Largest number of pairs of context and reward that are stored."""

    def build_head(self) -> Head:
        """The head with these parameters."""
        return Network(self.hidden, self.style, self.ridge, self.nu, self.steps, self.lr, self.replay)
