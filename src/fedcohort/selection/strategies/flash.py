"""FLASH: a linear bandit over contexts of loss, validation loss, duration and reward.

In every round t = 0, 1, …, all clients (``context_refresh``) receive w^t and report their losses. These give the contexts x_t(i) and
rewards r_t(i) of :mod:`fedcohort.selection.bandit_contexts`. The clients in S_t train. Then, with d the length of a context,

    V += Σ x xᵀ,  b += Σ r x   over the pairs that ``credit`` gives      (from V = λI, b = 0; nothing at t = 0)
    θ̂ = V⁻¹ b;   γ_t = √λ + √(d·ln((1 + t·m)/δ));   θ ~ N(θ̂, γ_t² V⁻¹)
    score_i = θᵀ x_t(i);   S_{t+1} = the top k

S_{t+1} is chosen from contexts that are one round old when it trains. Clients that are not available in round t+1 are replaced by
those with the next highest scores, so S_{t+1} is the top k of the available clients. S_0 is every available client (``first_round``).

The paper pairs x_t(i), r_t(i) with the clients of S_t (``credit = "printed"``). But r_t is the change from w^{t−1} to w^t, which
S_{t−1} caused: ``causal`` pairs r_t(i) with x_{t−1}(i) for i in S_{t−1}. The paper's rewards are of the order 1e-4 while γ starts at
4.46, so the random draw of θ outweighs every difference between clients. Divided by the largest reward so far, rewards shrink as the
model converges, and the draw outweighs them later; divided by the mean of their round, they keep their scale. Hence these presets:

    flash           causal credit; time in medians, rewards in means of their round
    flash_printed   the algorithm as printed in the paper
    flash_linucb    like flash, with an upper confidence bound in place of the draw

``eval_point = "local"`` uses losses of the models that the selected clients trained, for which the printed pairing is the causal one.
Contexts are then measured only when a client takes part, the pairs are (x_t(i), r_t(i)) for i in S_t, and no client is asked
a question.

Where only selected clients report losses (``context_refresh = "selected"``, ``eval_point = "local"``), a client without a finite
answer ranks last in the next round only: it is asked again only when it is selected.

The unit of rewards, the factor of γ and λ were chosen on planted federations, for which the best clients are known, and on three
federations that no other published result uses (``make results NAME="flash-planted flash-defaults"``): the fastest setting with a mean
accuracy of at most one point below uniform selection on each. ``gamma_scale = 0.1`` is faster and costs accuracy. On the federations
of the atlas, under other seeds, ``flash`` is not clearly better than uniform selection, neither after equally many rounds nor at equal
simulated time (``make results NAME=flash-held-out``).

FLASH trains with its robust loss: ``training.loss = { name = "robust" }``. Native weights: n_selected.

FLASH, arXiv:2402.08769, Algorithms 1 and 2. What the paper does not specify is taken from its predecessor's
code (Josiah-Wallis/ConFeddi-Regression), or is ours.
"""

from dataclasses import asdict, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from fedcohort.core.arrays import Indices
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.bandit_contexts import ASKS_ALL_CLIENTS, ContextBandit
from fedcohort.selection.bandit_heads import Head, Linear, gamma, gamma_theory
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.questions import Context
from fedcohort.selection.strategies.neural import Network
from fedcohort.selection.strategies.restless import HiddenMarkov
from fedcohort.selection.strategy_inputs import Outcome, Round

__all__ = ["Flash", "FlashLinUCB", "FlashPrinted"]

AUTO_ALL_LIMIT = 100
"""Largest number of clients with which ``first_round = "auto"`` selects all available clients in the first round."""


@parameters
class Flash(ContextBandit):
    """k clients predicted to change the loss most per second. A linear bandit predicts this from contexts, and credits rewards
    to the clients that caused them. Native weights: n_selected.
    """

    card: ClassVar[Card] = Card(
        source="FLASH, arXiv:2402.08769; credit, units and edge cases ours",
        status="ours",
        asks=ASKS_ALL_CLIENTS,
        discloses=Context.reveals,
        knows="N_i; durations",
        cost="O(md² + d³), d = 4",
    )
    variable_size: ClassVar[bool] = True

    context_loss: Literal["robust", "ce"] = "robust"
    reward_unit: Literal["largest", "round", "raw"] = "round"
    head: Literal["lin_ts", "lin_ucb", "greedy", "eps_greedy", "restless", "neural"] = "lin_ts"
    """Head that scores the contexts: linear Thompson sampling, linear UCB, no exploration, ε-greedy, or the heads of ``restless`` and
    ``neural`` with their defaults."""
    credit: Literal["causal", "printed"] = "causal"
    """Clients credited with r_t: causal (S_{t−1}, with the contexts of that round), or printed (S_t, as in the paper)."""
    gamma_scale: Annotated[float, Ge(0)] = 1.0
    """Factor of γ_t; smaller values such as 0.1 explore less."""
    gamma_rule: Literal["printed", "theory"] = "printed"
    """γ_t of the paper's algorithm (printed), or of its theory: R·√(d·ln((1 + t·L²/λ)/δ)) + √λ·S."""
    delta: Annotated[float, Gt(0), Lt(1)] = 0.05
    """Error probability δ in γ_t."""
    ridge: Annotated[float, Gt(0)] = 1.0
    """Initial diagonal λ of V."""
    noise_bound: Annotated[float, Gt(0)] = 1.0
    """R of the theory: rewards are R-sub-Gaussian."""
    context_bound: Annotated[float, Gt(0)] = 1.0
    """L of the theory: upper bound of the norm of contexts."""
    theta_bound: Annotated[float, Gt(0)] = 1.0
    """S of the theory: upper bound of the norm of θ."""
    epsilon: Annotated[float, Ge(0), Le(1)] = 0.1
    """Probability of a uniformly random cohort with eps_greedy."""
    per_arm: bool = False
    """One θ per client instead of one for all, for linear heads. Each client must take part several times, so use few clients."""
    context_refresh: Literal["all", "selected"] = "all"
    """Clients that report losses in every round: all available ones, or only the selected ones; the others keep an older context."""
    eval_point: Literal["global", "local"] = "global"
    """Model whose losses are reported: the one that clients receive (global), or the one that each selected client trained (local)."""
    first_round: Literal["auto", "all", "random"] = "auto"
    """Clients of S_0: all available, k random ones, or auto: all available if the federation has at most 100 clients."""

    def build_head(self) -> Head:
        """The head that ``head`` names."""
        if self.head == "restless":
            return HiddenMarkov()
        if self.head == "neural":
            return Network()
        return Linear(self.head, self.ridge, self.gamma, self.per_arm, self.epsilon)

    def gamma(self, t: int) -> float:
        """γ_t, with t from 0."""
        d = len(self.elements)
        if self.gamma_rule == "theory":
            bounds = self.noise_bound, self.context_bound, self.theta_bound
            return self.gamma_scale * gamma_theory(t, d, self.ridge, self.delta, *bounds)
        return self.gamma_scale * gamma(t, self.census.num_clients, d, self.ridge, self.delta)

    def select(self, round: Round) -> Cohort:
        """Select the top k by the last round's contexts, then ask for this round's."""
        cohort = self._first(round) if self.learned is None else self._next(round)
        if self.eval_point == "local" or self.context_refresh == "selected":
            self.silent[:] = False  # most of these clients are not asked again, so they rank last in one round only
        if self.eval_point == "local":
            question = asdict(self.question())
            return replace(cohort, stop={"rule": "losses", **question})
        asked = round.available if self.context_refresh == "all" else np.sort(cohort.clients)
        pairs = self.take_answers(asked, round.ask(self.question(), asked), self.seconds(round, asked))
        if self.credit == "causal":
            self.build_head().learn(self.head_state(round), *pairs)
        return cohort

    def observe(self, outcome: Outcome) -> None:
        """Credit the admitted clients (R9) now, or mark them for the next reward."""
        super().observe(outcome)
        if self.learned is None or (self.eval_point == "global" and self.credit == "causal"):
            return
        clients = outcome.cohort.clients[outcome.admitted]
        if self.eval_point == "local":
            clients = self._take_reported_losses(outcome)
        # In a client's first round its reward is undefined, so the head learns nothing from it.
        clients = clients[np.isfinite(self.reward[clients]) & ~self.silent[clients]]
        self.build_head().learn(self.learned, clients, self.features(clients), self.reward[clients])

    def _first(self, round: Round) -> Cohort:
        self.head_state(round)
        select_all = self.first_round == "all" or (
            self.first_round == "auto" and self.census.num_clients <= AUTO_ALL_LIMIT
        )
        clients = round.available if select_all else round.sample(round.k)
        note = "first round: all available clients" if select_all else "first round: random"
        return Cohort(clients, why=Why(round.available, np.zeros(len(round.available)), note=note))

    def _next(self, round: Round) -> Cohort:
        head, state = self.build_head(), self.head_state(round)
        # The contexts are one round old and FLASH counts rounds from 0, so γ is that of round t − 2.
        candidates = self.candidates(round, max(round.t - 2, 0))
        return self.select_top(head, state, head.score(state, candidates), candidates, round)

    def _take_reported_losses(self, outcome: Outcome) -> Indices:
        """Update contexts and rewards with the losses that trained clients sent; returns the admitted clients among them."""
        answers = np.stack([outcome.billed_report("training_loss"), outcome.billed_report("held_out_loss")], axis=1)
        timed = outcome.trained & np.isfinite(outcome.durations)
        clients = outcome.cohort.clients[timed]
        self.take_answers(clients, answers[timed], self.in_units(outcome.durations[timed]))
        return outcome.cohort.clients[outcome.admitted & timed]


@parameters
class FlashPrinted(Flash):
    """As flash, with the credit and units of the paper. Clients of the same round get the credit; times and rewards are raw.
    Native weights: n_selected.
    """

    card: ClassVar[Card] = Card(
        source="FLASH, arXiv:2402.08769, Algorithms 1 and 2",
        status="paper",
        asks=ASKS_ALL_CLIENTS,
        discloses=Context.reveals,
        knows="N_i; durations",
        cost="O(md² + d³), d = 4",
    )

    credit: Literal["causal", "printed"] = "printed"
    time_unit: Literal["median", "raw"] = "raw"
    reward_unit: Literal["largest", "round", "raw"] = "raw"


@parameters
class FlashLinUCB(Flash):
    """As flash, with an upper confidence bound and no draw. This is LinUCB in place of Thompson sampling, an ablation in the
    paper. Native weights: n_selected.
    """

    head: Literal["lin_ts", "lin_ucb", "greedy", "eps_greedy", "restless", "neural"] = "lin_ucb"
