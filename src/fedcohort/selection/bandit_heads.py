"""Heads of contextual bandits: ridge regression, Thompson sampling, and confidence widths.

A *head* turns the contexts x_i ∈ R^d of clients into scores, and learns from pairs (x, r) of context and reward. The linear head
assumes r ≈ θᵀx and keeps V = λI + Σ x xᵀ and b = Σ r x, so that

    θ̂ = V⁻¹ b;   θ ~ N(θ̂, γ² V⁻¹) is θ̂ + γ L⁻ᵀ z with V = L Lᵀ, z ~ N(0, I);   width_i = √(x_iᵀ V⁻¹ x_i) = ‖L⁻¹ x_i‖

    lin_ts      score_i = θᵀx_i, with one draw of θ per round for all clients
    lin_ucb     score_i = θ̂ᵀx_i + γ·width_i
    greedy      score_i = θ̂ᵀx_i
    eps_greedy  greedy, but with probability ε a uniform choice

With ``per_arm``, every client has its own V_i and b_i (and, for lin_ts, its own draw).

Chu et al. 2011 (LinUCB); Agrawal and Goyal 2013, arXiv:1209.3352 (linear Thompson sampling).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from fedcohort.core.arrays import Indices, Values

__all__ = [
    "Candidates", "Head", "Linear", "Scoring", "State", "draw", "factor", "gamma", "gamma_theory", "linear_terms", "posterior",
    "widths",
]  # fmt: skip

State = dict[str, Any]
"""What a head has learned: arrays, numbers, None, and lists and dictionaries of these, so that it can be saved."""


# --- heads -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidates:
    """The clients that a head scores in one round.

    Attributes:
        t: the round number on which γ_t depends.
        clients: ids of the candidates, int64 [n].
        x: their contexts, float64 [n, d].
        names: names of the d elements of a context.
        rng: random generator of this round.
    """

    t: int
    clients: Indices
    x: Values
    names: Sequence[str]
    rng: np.random.Generator


@dataclass(frozen=True)
class Scoring:
    """A head's scores for the candidates of one round.

    Attributes:
        scores: score of each candidate, float64 [n]; the highest are selected.
        terms: the parts that make up the scores, name → float64 [n].
        note: the kind of choice.
        override: ranks the candidates in place of ``scores`` in a round of exploration, float64 [n]; None otherwise.
    """

    scores: Values
    terms: Mapping[str, Values] = field(default_factory=dict)
    note: str = ""
    override: Values | None = None


class Head(Protocol):
    """Scores contexts and learns from rewards. Everything that it learns is in the state that :meth:`start` creates."""

    def start(self, m: int, d: int, rng: np.random.Generator) -> State:
        """The initial state, for ``m`` clients and contexts of ``d`` elements."""
        ...

    def score(self, state: State, candidates: Candidates) -> Scoring:
        """Score the candidates of a round."""
        ...

    def note_selected(self, state: State, clients: Indices, x: Values) -> None:
        """Record which of the candidates just scored were selected, with their contexts ``x`` [n, d]."""
        ...

    def learn(self, state: State, clients: Indices, x: Values, rewards: Values) -> None:
        """Learn from the pairs (x, r) of one round; called exactly once per round, with empty arrays if there are no pairs."""
        ...


# --- amount of exploration ----------------------------------------------------------------------------------------------------


def gamma(t: int, m: int, d: int, ridge: float = 1.0, delta: float = 0.05) -> float:
    """FLASH's γ_t = √λ + √(d·ln((1 + t·m)/δ)), with t from 0.

    >>> round(gamma(0, m=50, d=4), 6), round(gamma(100, m=50, d=4), 6)
    (4.461637, 7.786199)
    """
    return math.sqrt(ridge) + math.sqrt(d * math.log((1 + t * m) / delta))


def gamma_theory(
    t: int, d: int, ridge: float = 1.0, delta: float = 0.05, R: float = 1.0, L: float = 1.0, S: float = 1.0
) -> float:
    """γ_t = R·√(d·ln((1 + t·L²/λ)/δ)) + √λ·S, for R-sub-Gaussian noise, ‖x‖ ≤ L and ‖θ‖ ≤ S."""
    return R * math.sqrt(d * math.log((1 + t * L**2 / ridge) / delta)) + math.sqrt(ridge) * S


# --- ridge regression; all functions take one V [d, d], or one per client [n, d, d] -----------------------------


def factor(V: Values) -> Values:
    """The Cholesky factor L of V. If round-off made V indefinite, 1e-8 to 1e-2 of its mean diagonal is added.

    Raises:
        numpy.linalg.LinAlgError: V is indefinite even with 1e-2 added.
    """
    size = np.maximum(np.trace(V, axis1=-2, axis2=-1) / V.shape[-1], 1.0)[..., None, None]
    for jitter in (0.0, 1e-8, 1e-6, 1e-4, 1e-2):
        try:
            L: Values = np.linalg.cholesky(V + jitter * size * np.eye(V.shape[-1]))
            return L
        except np.linalg.LinAlgError:
            continue
    raise np.linalg.LinAlgError("V is not positive definite; a context was probably infinite")


def posterior(V: Values, b: Values) -> tuple[Values, Values]:
    """The estimate θ̂ = V⁻¹ b, and the Cholesky factor of V."""
    L = factor(V)
    half = np.linalg.solve(L, b[..., None])
    return np.linalg.solve(np.swapaxes(L, -1, -2), half)[..., 0], L


def draw(theta: Values, L: Values, scale: float, rng: np.random.Generator) -> Values:
    """A draw of θ ~ N(θ̂, scale²·V⁻¹)."""
    z = rng.standard_normal(theta.shape)
    drawn: Values = theta + scale * np.linalg.solve(np.swapaxes(L, -1, -2), z[..., None])[..., 0]
    return drawn


def widths(L: Values, x: Values) -> Values:
    """The width √(xᵀ V⁻¹ x) for each row of ``x`` [n, d]."""
    half = np.linalg.solve(L, x.T).T if L.ndim == 2 else np.linalg.solve(L, x[..., None])[..., 0]
    lengths: Values = np.sqrt(np.einsum("ij,ij->i", half, half))
    return lengths


def linear_terms(
    names: Sequence[str], theta: Values, x: Values, more: Mapping[str, Values]
) -> tuple[Values, dict[str, Values]]:
    """Scores θᵀx for each row of ``x`` [n, d], and their terms: θ_j·x_j under the name of element j, ``more``, then x_j and θ_j."""
    parts = theta * x
    terms = {name: parts[:, j] for j, name in enumerate(names)} | dict(more)
    terms |= {f"x_{name}": x[:, j] for j, name in enumerate(names)}
    terms |= {f"theta_{name}": np.broadcast_to(theta[..., j], len(x)) for j, name in enumerate(names)}
    return parts.sum(axis=1), terms


@dataclass(frozen=True)
class Linear:
    """The linear head; the module's docstring has the formulas.

    Attributes:
        kind: lin_ts, lin_ucb, greedy or eps_greedy.
        ridge: λ.
        gamma: function t → γ_t; greedy and eps_greedy do not use it.
        per_arm: one θ per client instead of one for all.
        epsilon: probability of a uniform choice with eps_greedy.
    """

    kind: Literal["lin_ts", "lin_ucb", "greedy", "eps_greedy"] = "lin_ts"
    ridge: float = 1.0
    gamma: Callable[[int], float] = lambda _: 1.0
    per_arm: bool = False
    epsilon: float = 0.1

    def start(self, m: int, d: int, rng: np.random.Generator) -> State:
        """V = λI and b = 0."""
        arms = (m,) if self.per_arm else ()
        return {"V": np.tile(self.ridge * np.eye(d), (*arms, 1, 1)), "b": np.zeros((*arms, d))}

    def score(self, state: State, candidates: Candidates) -> Scoring:
        """θ̂ᵀx plus exploration; the term ``exploration`` is the difference between the score and θ̂ᵀx."""
        x, rng = candidates.x, candidates.rng
        arms = candidates.clients if self.per_arm else slice(None)
        theta, L = posterior(state["V"][arms], state["b"][arms])
        more, override, note = {}, None, "highest expected reward"
        if self.kind == "lin_ts":
            deviation = draw(theta, L, self.gamma(candidates.t), rng) - theta
            more["exploration"] = np.einsum("ij,ij->i", x, np.broadcast_to(deviation, x.shape))
            note = "highest reward under a draw of theta"
        elif self.kind == "lin_ucb":
            more["exploration"] = self.gamma(candidates.t) * widths(L, x)
            note = "highest upper confidence bound"
        elif self.kind == "eps_greedy" and rng.random() < self.epsilon:
            override, note = rng.random(len(x)), "random: epsilon"
        scores, terms = linear_terms(candidates.names, theta, x, more)
        return Scoring(scores + more.get("exploration", 0.0), terms, note, override)

    def note_selected(self, state: State, clients: Indices, x: Values) -> None:
        """Does nothing: the linear head learns from rewards only."""

    def learn(self, state: State, clients: Indices, x: Values, rewards: Values) -> None:
        """V += x xᵀ and b += r x for each pair."""
        if self.per_arm:
            state["V"][clients] += x[:, :, None] * x[:, None, :]
            state["b"][clients] += rewards[:, None] * x
        else:
            state["V"] += x.T @ x
            state["b"] += rewards @ x
