"""What bandits share: the head that scores contexts, ridge regression, Thompson draws, confidence widths.

A *head* turns the contexts x_i ∈ R^d of clients into scores and learns from pairs (x, r) of context and reward. The linear one
believes r ≈ θᵀx and keeps V = λI + Σ x xᵀ and b = Σ r x, so that

    θ̂ = V⁻¹ b;   θ ~ N(θ̂, γ² V⁻¹) is θ̂ + γ L⁻ᵀ z with V = L Lᵀ, z ~ N(0, I);   width_i = √(x_iᵀ V⁻¹ x_i) = ‖L⁻¹ x_i‖

    lin_ts      score_i = θᵀx_i, one draw of θ a round, shared by all clients
    lin_ucb     score_i = θ̂ᵀx_i + γ·width_i
    greedy      score_i = θ̂ᵀx_i
    eps_greedy  greedy, but with probability ε a uniform choice

With ``per_arm`` every client has V_i and b_i of its own (and, for lin_ts, a draw of its own).

Chu et al. 2011 (LinUCB); Agrawal and Goyal 2013, arXiv:1209.3352 (linear Thompson sampling).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from fedcohort.core.arrays import Indices, Values

__all__ = [
    "Head", "Judgement", "Linear", "State", "Turn", "draw", "factor", "gamma", "gamma_theory", "linear_terms", "posterior",
    "widths",
]  # fmt: skip

State = dict[str, Any]
"""What a head has learned: arrays, numbers, None, and lists and dictionaries of these, so that it can be saved."""


# --- heads -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Turn:
    """The question that a head answers: which of these clients?

    Attributes:
        t: the round that γ_t and the like are a function of.
        clients: ids, int64 [n].
        x: their contexts, float64 [n, d].
        names: what the d elements of a context are.
        rng: this round's generator.
    """

    t: int
    clients: Indices
    x: Values
    names: Sequence[str]
    rng: np.random.Generator


@dataclass(frozen=True)
class Judgement:
    """A head's answer.

    Attributes:
        scores: of each client, float64 [n]; the highest are chosen.
        terms: what the scores are made of, name → float64 [n].
        note: what kind of choice it is.
        instead: decides in place of the scores, where the choice is made to explore; float64 [n].
    """

    scores: Values
    terms: Mapping[str, Values] = field(default_factory=dict)
    note: str = ""
    instead: Values | None = None


class Head(Protocol):
    """Scores contexts, and learns from rewards. What it learned is in the state that :meth:`start` makes."""

    def start(self, m: int, d: int, rng: np.random.Generator) -> State:
        """The state before anything was learned, for ``m`` clients and contexts of ``d`` elements."""
        ...

    def judge(self, state: State, turn: Turn) -> Judgement:
        """Score the clients of a turn."""
        ...

    def chose(self, state: State, clients: Indices, x: Values) -> None:
        """These clients were selected in the turn just judged; ``x`` are their contexts in it."""
        ...

    def learn(self, state: State, clients: Indices, x: Values, rewards: Values) -> None:
        """Learn the pairs of one round; called once a round, also when there are none."""
        ...


# --- how far to explore ----------------------------------------------------------------------------------------------------


def gamma(t: int, m: int, d: int, ridge: float = 1.0, delta: float = 0.05) -> float:
    """FLASH's γ_t = √λ + √(d·ln((1 + t·m)/δ)), t from 0.

    >>> round(gamma(0, m=50, d=4), 6), round(gamma(100, m=50, d=4), 6)
    (4.461637, 7.786199)
    """
    return math.sqrt(ridge) + math.sqrt(d * math.log((1 + t * m) / delta))


def gamma_theory(
    t: int, d: int, ridge: float = 1.0, delta: float = 0.05, R: float = 1.0, L: float = 1.0, S: float = 1.0
) -> float:
    """γ_t = R·√(d·ln((1 + t·L²/λ)/δ)) + √λ·S, for noise R-sub-Gaussian, ‖x‖ ≤ L and ‖θ‖ ≤ S."""
    return R * math.sqrt(d * math.log((1 + t * L**2 / ridge) / delta)) + math.sqrt(ridge) * S


# --- ridge regression; all functions take one V [d, d], or one for each of n clients [n, d, d] -----------------------------


def factor(V: Values) -> Values:
    """The Cholesky factor L of V; where round-off made V indefinite, 1e-8 times its size is added to the diagonal, then more."""
    size = np.maximum(np.trace(V, axis1=-2, axis2=-1) / V.shape[-1], 1.0)[..., None, None]
    for jitter in (0.0, 1e-8, 1e-6, 1e-4, 1e-2):
        try:
            L: Values = np.linalg.cholesky(V + jitter * size * np.eye(V.shape[-1]))
            return L
        except np.linalg.LinAlgError:
            continue
    raise np.linalg.LinAlgError("V is not positive definite; a context must have been infinite")


def posterior(V: Values, b: Values) -> tuple[Values, Values]:
    """θ̂ = V⁻¹ b, and the Cholesky factor of V."""
    L = factor(V)
    half = np.linalg.solve(L, b[..., None])
    return np.linalg.solve(np.swapaxes(L, -1, -2), half)[..., 0], L


def draw(theta: Values, L: Values, scale: float, rng: np.random.Generator) -> Values:
    """θ ~ N(θ̂, scale²·V⁻¹)."""
    z = rng.standard_normal(theta.shape)
    drawn: Values = theta + scale * np.linalg.solve(np.swapaxes(L, -1, -2), z[..., None])[..., 0]
    return drawn


def widths(L: Values, x: Values) -> Values:
    """√(xᵀ V⁻¹ x) of each row of ``x`` [n, d]."""
    half = np.linalg.solve(L, x.T).T if L.ndim == 2 else np.linalg.solve(L, x[..., None])[..., 0]
    lengths: Values = np.sqrt(np.einsum("ij,ij->i", half, half))
    return lengths


def linear_terms(
    names: Sequence[str], theta: Values, x: Values, more: Mapping[str, Values] | None = None
) -> tuple[Values, dict[str, Values]]:
    """Scores θᵀx of each row of ``x`` [n, d], and their terms: θ_j·x_j under the name of the element, ``more``, then x_j and θ_j."""
    parts = theta * x
    terms = {name: parts[:, j] for j, name in enumerate(names)} | dict(more or {})
    terms |= {f"x_{name}": x[:, j] for j, name in enumerate(names)}
    terms |= {f"theta_{name}": np.broadcast_to(theta[..., j], len(x)) for j, name in enumerate(names)}
    return parts.sum(axis=1), terms


@dataclass(frozen=True)
class Linear:
    """The linear head, see above.

    Attributes:
        kind: lin_ts, lin_ucb, greedy or eps_greedy.
        ridge: λ.
        gamma: t → γ_t; not used by the greedy kinds.
        per_arm: one θ for each client instead of one for all.
        epsilon: of eps_greedy.
    """

    kind: Literal["lin_ts", "lin_ucb", "greedy", "eps_greedy"] = "lin_ts"
    ridge: float = 1.0
    gamma: Callable[[int], float] = lambda t: 1.0
    per_arm: bool = False
    epsilon: float = 0.1

    def start(self, m: int, d: int, rng: np.random.Generator) -> State:
        """V = λI, b = 0."""
        arms = (m,) if self.per_arm else ()
        return {"V": np.tile(self.ridge * np.eye(d), (*arms, 1, 1)), "b": np.zeros((*arms, d))}

    def judge(self, state: State, turn: Turn) -> Judgement:
        """See above; ``exploration`` is what the score has beyond θ̂ᵀx."""
        arms = turn.clients if self.per_arm else slice(None)
        theta, L = posterior(state["V"][arms], state["b"][arms])
        more, instead, note = {}, None, "highest expected reward"
        if self.kind == "lin_ts":
            spread = draw(theta, L, self.gamma(turn.t), turn.rng) - theta
            more["exploration"] = np.einsum("ij,ij->i", turn.x, np.broadcast_to(spread, turn.x.shape))
            note = "highest reward under a draw of theta"
        elif self.kind == "lin_ucb":
            more["exploration"] = self.gamma(turn.t) * widths(L, turn.x)
            note = "highest upper confidence bound"
        elif self.kind == "eps_greedy" and turn.rng.random() < self.epsilon:
            instead, note = turn.rng.random(len(turn.x)), "random: epsilon"
        scores, terms = linear_terms(turn.names, theta, turn.x, more)
        return Judgement(scores + more.get("exploration", 0.0), terms, note, instead)

    def chose(self, state: State, clients: Indices, x: Values) -> None:
        """Nothing is learned from a choice alone."""

    def learn(self, state: State, clients: Indices, x: Values, rewards: Values) -> None:
        """V += x xᵀ, b += r x."""
        if self.per_arm:
            state["V"][clients] += x[:, :, None] * x[:, None, :]
            state["b"][clients] += rewards[:, None] * x
        else:
            state["V"] += x.T @ x
            state["b"] += rewards @ x
