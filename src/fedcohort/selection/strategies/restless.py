"""Restless bandit: linear rewards with a θ that depends on a hidden Markov state that all clients share, and forced exploration.

There are H hidden states, and state h has ridge statistics V_h and b_h. C counts transitions, π is the belief (a probability for each
state), and σ² is the noise.

    V_h = λI;  b_h ~ N(0, 0.1² I);  C = 1 + 9·I;  π = 1/H;  σ² = 1;  n_x = 0
    every round t:
      P̂ = C with rows normalized;  π̄ = π P̂;  θ_h = V_h⁻¹ b_h
      if n_x < D·ln(t + 2):  S_t = the k least selected clients, ties by a fixed random order;  n_x += 1
      else:                  S_t = top k by  score_i = Σ_h π̄_h θ_hᵀ x_i
      with the rewards r_i of its participants:
        l_h = −Σ_i (r_i − θ_hᵀ x_i)² / (2σ²)
        post_h ∝ π̄_h exp(l_h − max l);   ξ_gh ∝ π_g P̂_gh exp(l_h − max l), normalized over all g, h
        C ← 0.999·C + ξ;   π ← post
        V_h ← f·V_h + (1 − f)·λI + post_h Σ x xᵀ;   b_h ← f·b_h + post_h Σ r x
        σ² ← max(1e-4, 0.95·σ² + 0.05·mean_i Σ_h post_h (r_i − θ_hᵀ x_i)²)
      without rewards: π ← π̄

With one state and f = 1, this is ridge regression with forced exploration.

The algorithm is ours, based on the abstract of Yemini, Leshem, Somekh-Baruch 2021, arXiv:1910.10271: a hidden Markov state common to
all arms, linear rewards, and forced exploration that grows with log t. We did not have access to the text. Contexts and rewards are
those of FLASH with plain cross-entropy; see :mod:`fedcohort.selection.bandit_contexts`.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Gt, Le

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.bandit_contexts import ASKS_ALL_CLIENTS, ContextBandit
from fedcohort.selection.bandit_heads import Candidates, Head, Scoring, State, linear_terms, posterior
from fedcohort.selection.questions import Context

__all__ = ["HiddenMarkov", "Restless"]


@dataclass(frozen=True)
class HiddenMarkov:
    """The head of the restless bandit; the module docstring defines the symbols.

    Attributes:
        states: number of hidden states H.
        exploration: factor D of the number of rounds of forced exploration.
        ridge: λ.
        forgetting: factor f by which statistics shrink in every round.
    """

    states: int = 2
    exploration: float = 10.0
    ridge: float = 1.0
    forgetting: float = 0.995

    def start(self, m: int, d: int, rng: np.random.Generator) -> State:
        """The initial state; b_h differ, so that the hidden states can become different, and ``order`` breaks ties between clients."""
        H = self.states
        return {
            "V": np.tile(self.ridge * np.eye(d), (H, 1, 1)),
            "b": 0.1 * rng.standard_normal((H, d)) if H > 1 else np.zeros((H, d)),
            "transitions": np.ones((H, H)) + 9 * np.eye(H),
            "belief": np.full(H, 1 / H),
            "noise": 1.0,
            "explored": 0,
            "selections": np.zeros(m, dtype=np.int64),
            "order": rng.permutation(m),
        }

    def score(self, state: State, candidates: Candidates) -> Scoring:
        """Expected rewards under the predicted belief; in a round of forced exploration, the least selected clients come first."""
        belief = _predicted(state)
        theta, _ = posterior(state["V"], state["b"])
        beliefs = {f"state_{h}": np.broadcast_to(belief[h], len(candidates.x)) for h in range(self.states)}
        scores, terms = linear_terms(candidates.names, belief @ theta, candidates.x, beliefs)
        if state["explored"] >= self.exploration * math.log(candidates.t + 2):
            return Scoring(scores, terms, "highest expected reward")
        state["explored"] += 1
        times, order = state["selections"][candidates.clients], state["order"][candidates.clients]
        return Scoring(scores, terms, "forced exploration: least selected", -(times + order / len(state["order"])))

    def note_selected(self, state: State, clients: Indices, x: Values) -> None:
        """Count selections."""
        state["selections"][clients] += 1

    def learn(self, state: State, clients: Indices, x: Values, rewards: Values) -> None:
        """One step of the filter over hidden states, and of the ridge regressions weighted by its belief."""
        predicted = _predicted(state)
        if len(clients) == 0:
            state["belief"] = predicted
            return
        theta, _ = posterior(state["V"], state["b"])
        squares = np.square(rewards - theta @ x.T)
        log_likelihood = -squares.sum(axis=1) / (2 * state["noise"])
        posterior_belief = predicted
        finite = np.isfinite(log_likelihood).all()
        likelihood = np.exp(log_likelihood - log_likelihood.max()) if finite else np.zeros(self.states)
        if predicted @ likelihood > 0:
            posterior_belief = predicted * likelihood / (predicted @ likelihood)
            moves = state["belief"][:, None] * _normalized_rows(state["transitions"]) * likelihood
            state["transitions"] = 0.999 * state["transitions"] + moves / moves.sum()
        state["belief"] = posterior_belief
        f, d = self.forgetting, x.shape[1]
        state["V"] = f * state["V"] + (1 - f) * self.ridge * np.eye(d) + posterior_belief[:, None, None] * (x.T @ x)
        state["b"] = f * state["b"] + posterior_belief[:, None] * (rewards @ x)
        state["noise"] = max(1e-4, 0.95 * state["noise"] + 0.05 * float((posterior_belief @ squares).mean()))


def _normalized_rows(transitions: Values) -> Values:
    normalized: Values = transitions / transitions.sum(axis=1, keepdims=True)
    return normalized


def _predicted(state: State) -> Values:
    """The predicted belief π̄ = π P̂."""
    predicted: Values = state["belief"] @ _normalized_rows(state["transitions"])
    return predicted


@parameters
class Restless(ContextBandit):
    """As flash, with rewards that depend on a hidden state. All clients share this state; the k with the highest expected reward
    are selected.
    """

    card: ClassVar[Card] = Card(
        source="Yemini, Leshem, Somekh-Baruch 2021, arXiv:1910.10271 (abstract)",
        status="ours",
        asks=ASKS_ALL_CLIENTS,
        discloses=Context.reveals,
        knows="N_i; durations",
        cost="O(mdH + d³H), d = 4",
    )

    states: Annotated[int, Ge(1)] = 2
    """Number of hidden states (H)."""
    exploration: Annotated[float, Ge(0)] = 10.0
    """Factor D: until round t, about D·ln(t + 2) rounds are forced exploration."""
    ridge: Annotated[float, Gt(0)] = 1.0
    """Initial diagonal λ of each V, towards which forgetting moves it."""
    forgetting: Annotated[float, Gt(0), Le(1)] = 0.995
    """Share of each V and b that is kept from one round to the next (f)."""

    def build_head(self) -> Head:
        """The head with these parameters."""
        return HiddenMarkov(self.states, self.exploration, self.ridge, self.forgetting)
