"""FLASH: a linear bandit over contexts of loss, validation loss, duration and reward.

In every round t = 0, 1, … all clients (``context_refresh``) receive w^t and answer with their losses, which gives contexts x_t(i)
and rewards r_t(i), see :mod:`fedcohort.selection.contexts`; those in S_t train; and then, with d the length of a context,

    V += Σ x xᵀ,  b += Σ r x   over the pairs that ``credit`` gives      (from V = λI, b = 0; nothing at t = 0)
    θ̂ = V⁻¹ b;   γ_t = √λ + √(d·ln((1 + t·m)/δ));   θ ~ N(θ̂, γ_t² V⁻¹)
    score_i = θᵀ x_t(i);   S_{t+1} = the top k

S_{t+1} is fixed with contexts that are one round old when it trains: its scores are kept. Leaving out the clients that are not there
in round t+1 and refilling by score is the same as taking the top k of those that are. S_0 is everybody (``first_round``).

The source pairs x_t(i), r_t(i) with the clients of S_t (``credit = "printed"``). But r_t is the change from w^{t−1} to w^t, which
S_{t−1} made: ``causal`` pairs r_t(i) with x_{t−1}(i) for i in S_{t−1}. And its rewards are of the order 1e-4 while γ starts at 4.46,
so that the draw of θ hides every difference. Therefore two presets:

    flash           credit causal; time in medians, rewards relative to the largest, and ``gamma_scale``
    flash_printed   as the source has it
    flash_linucb    as flash, with an upper confidence bound in place of the draw

``eval_point = "local"`` takes losses of the models that the participants trained, on which the printed pairing is the causal one:
contexts are measured when a client takes part, pairs are (x_t(i), r_t(i)), i in S_t, and nobody is asked anything else.

FLASH trains with its robust loss: ``training.loss = { name = "robust" }``. Native weights: n_selected.

FLASH, arXiv:2402.08769, Algorithms 1 and 2. Open points are settled by its predecessor's code (Josiah-Wallis/ConFeddi-Regression)
or by us.
"""

from dataclasses import asdict, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from fedcohort.core.arrays import Indices
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.bandit import Head, Linear, gamma, gamma_theory
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.contexts import ContextBandit
from fedcohort.selection.inputs import Outcome, Round
from fedcohort.selection.neural import Network
from fedcohort.selection.questions import Context
from fedcohort.selection.restless import HiddenMarkov

__all__ = ["Flash", "FlashLinUCB", "FlashPrinted"]

ASKS = "everybody for its losses on training and held-out data in every round (m model downloads, m forward passes)"

EVERYBODY = 100
"""Up to so many clients, all of them take part in the first round."""


@parameters
class Flash(ContextBandit):
    """k clients whose contexts promise the largest change of loss per second; credit goes to those who caused it. Native weights:
    n_selected."""

    card: ClassVar[Card] = Card(
        source="FLASH, arXiv:2402.08769; credit, units and edge cases ours",
        status="ours",
        asks=ASKS,
        discloses=Context.reveals,
        knows="N_i; durations",
        cost="O(md² + d³), d = 4",
    )
    variable_size: ClassVar[bool] = True

    context_loss: Literal["robust", "ce"] = "robust"
    head: Literal["lin_ts", "lin_ucb", "greedy", "eps_greedy", "restless", "neural"] = "lin_ts"
    """What scores the contexts: linear Thompson sampling, linear UCB, no exploration, ε-greedy, or the bandits ``restless`` and
    ``neural`` with their defaults."""
    credit: Literal["causal", "printed"] = "causal"
    """Who gets r_t: the clients of S_{t−1}, with the context they had, or those of S_t, as the source has it."""
    gamma_scale: Annotated[float, Ge(0)] = 1.0
    """Multiplies γ_t; 0.1 explores less."""
    gamma_rule: Literal["printed", "theory"] = "printed"
    """γ_t of the algorithm, or of the source's theory: R·√(d·ln((1 + t·L²/λ)/δ)) + √λ·S."""
    delta: Annotated[float, Gt(0), Lt(1)] = 0.05
    """δ of γ_t: the probability of being wrong."""
    ridge: Annotated[float, Gt(0)] = 1.0
    """λ, what V starts from."""
    noise_bound: Annotated[float, Gt(0)] = 1.0
    """R of the theory: rewards are R-sub-Gaussian."""
    context_bound: Annotated[float, Gt(0)] = 1.0
    """L of the theory: the norm of contexts."""
    theta_bound: Annotated[float, Gt(0)] = 1.0
    """S of the theory: the norm of θ."""
    epsilon: Annotated[float, Ge(0), Le(1)] = 0.1
    """Of eps_greedy: the probability of a uniformly random cohort."""
    per_arm: bool = False
    """One θ for each client instead of one for all, for linear heads; it needs every client several times, so few clients."""
    context_refresh: Literal["all", "selected"] = "all"
    """Who answers in every round: everybody, or only the selected, while the others keep an older context."""
    eval_point: Literal["global", "local"] = "global"
    """Losses of the model that clients receive, or of the model that participants trained; then nobody else is asked."""
    first_round: Literal["auto", "all", "random"] = "auto"
    """S_0: everybody, k random clients, or everybody if there are at most 100 clients."""

    def build_head(self) -> Head:
        """See ``head``."""
        if self.head == "restless":
            return HiddenMarkov()
        if self.head == "neural":
            return Network()
        return Linear(self.head, self.ridge, self.gamma, self.per_arm, self.epsilon)

    def gamma(self, t: int) -> float:
        """γ_t, t from 0."""
        d = len(self.elements)
        if self.gamma_rule == "theory":
            bounds = self.noise_bound, self.context_bound, self.theta_bound
            return self.gamma_scale * gamma_theory(t, d, self.ridge, self.delta, *bounds)
        return self.gamma_scale * gamma(t, self.census.num_clients, d, self.ridge, self.delta)

    def select(self, round: Round) -> Cohort:
        """Take the top k by the scores of last round's contexts, then hear this round's."""
        cohort = self._first(round) if self.learned is None else self._next(round)
        if self.eval_point == "local":
            question = asdict(self.question())
            return replace(cohort, stop={"rule": "losses", **question})
        asked = round.available if self.context_refresh == "all" else np.sort(cohort.clients)
        earned = self.hear(asked, round.ask(self.question(), asked), self.seconds(round, asked))
        if self.credit == "causal":
            self.build_head().learn(self.begun(round), *earned)
        return cohort

    def observe(self, outcome: Outcome) -> None:
        """Give credit to those whose update entered the model (R9), or note that they will get it."""
        super().observe(outcome)
        if self.learned is None or (self.eval_point == "global" and self.credit == "causal"):
            return
        clients = outcome.cohort.clients[outcome.admitted]
        if self.eval_point == "local":
            clients = self._hear_participants(outcome)
        # undefined, and so not learned from, in a client's first round
        clients = clients[np.isfinite(self.reward[clients]) & ~self.silent[clients]]
        self.build_head().learn(self.learned, clients, self.features(clients), self.reward[clients])

    def _first(self, round: Round) -> Cohort:
        self.begun(round)
        everybody = self.first_round == "all" or (self.first_round == "auto" and self.census.num_clients <= EVERYBODY)
        clients = round.available if everybody else round.sample(round.k)
        note = "first round: everybody" if everybody else "first round: random"
        return Cohort(clients, why=Why(round.available, np.zeros(len(round.available)), note=note))

    def _next(self, round: Round) -> Cohort:
        head, learned = self.build_head(), self.begun(round)
        turn = self.turn(
            round, max(round.t - 2, 0)
        )  # the contexts are those of the round before, and FLASH counts from 0
        return self.pick(head, learned, head.judge(learned, turn), turn, round)

    def _hear_participants(self, outcome: Outcome) -> Indices:
        """Contexts and rewards of the participants, from what they sent with their update; those who sent it and were admitted."""
        answers = np.stack([outcome.billed_report("training_loss"), outcome.billed_report("held_out_loss")], axis=1)
        there = outcome.trained & np.isfinite(outcome.durations)
        clients = outcome.cohort.clients[there]
        self.hear(clients, answers[there], self.in_units(outcome.durations[there]))
        return outcome.cohort.clients[outcome.admitted & there]


@parameters
class FlashPrinted(Flash):
    """FLASH as printed: credit to the clients of the round, raw times and rewards. Native weights: n_selected."""

    card: ClassVar[Card] = Card(
        source="FLASH, arXiv:2402.08769, Algorithms 1 and 2",
        status="paper",
        asks=ASKS,
        discloses=Context.reveals,
        knows="N_i; durations",
        cost="O(md² + d³), d = 4",
    )

    credit: Literal["causal", "printed"] = "printed"
    time_unit: Literal["median", "raw"] = "raw"
    reward_unit: Literal["largest", "raw"] = "raw"


@parameters
class FlashLinUCB(Flash):
    """FLASH with LinUCB in place of Thompson sampling, the source's ablation. Native weights: n_selected."""

    head: Literal["lin_ts", "lin_ucb", "greedy", "eps_greedy", "restless", "neural"] = "lin_ucb"
