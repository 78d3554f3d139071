"""Contexts and rewards of clients, for the contextual bandits FLASH, ``restless`` and ``neural``.

    x_t(i) = [ L_i^t / L_i^1,  CE_i^t / CE_i^1,  τ_i(t−1),  r_{t−1}(i) ]           r_t(i) = |L_i^t − L_i^{t−1}| / τ_i(t−1)

L_i is a loss of w^t on the client's training samples, CE_i the cross-entropy on its held-out samples, both divided by the first value
that the client reported (the ratio is 1 if that is 0). τ_i is the time of its last round, as the server measured it; before the first
measurement it is proportional to N_i, on the scale of the measured times. r is the reward.

A client that is not available keeps its last context, and a client without one gets the mean context of the others. An answer
that is not finite changes nothing, and the client ranks last until it gives a finite one (R4). For a client that was not available,
r_t(i) uses the last loss that it reported. Without such a loss the reward is undefined, and the bandit does not learn from it.
If a client that took part is away in the next round, the pair of its context and its reward is learned when it answers again.
Elements of contexts and rewards are cut off at 1e6.

The reward of a round is known only when clients answer in the next round, so these strategies learn in ``select`` as well.

FLASH, arXiv:2402.08769, section II. The units of time and reward and the rules for missing values are ours.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Lt

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import LabelKind
from fedcohort.selection.bandit_heads import Candidates, Head, Scoring, State
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.questions import Context
from fedcohort.selection.selector import Selector
from fedcohort.selection.strategy_inputs import Census, Outcome, Round

__all__ = ["ASKS_ALL_CLIENTS", "ELEMENTS", "ContextBandit"]

ASKS_ALL_CLIENTS = (
    "all available clients for their losses on training and held-out data in every round "
    "(m model downloads, m forward passes)"
)
"""The entry ``asks`` of the card of a contextual bandit."""

ELEMENTS = ("train_loss", "validation_loss", "duration", "reward")
"""The elements of a context."""

LARGEST = 1e6
"""Upper limit of every element of a context, so that a diverging model does not cause overflow in the bandit."""


@parameters
class ContextBandit(Selector):
    """The k clients with the highest score of a head that sees their contexts. Subclasses define :meth:`build_head`."""

    needs: ClassVar[frozenset[str]] = frozenset({"holdout"})

    context_loss: Literal["robust", "ce"] = "ce"
    """The training loss in contexts and rewards: FLASH's robust loss, or the cross-entropy."""
    alpha: Annotated[float, Ge(0)] = 0.1
    """Weight of the cross-entropy to the model's own outputs in the robust loss (α_rob)."""
    beta: Annotated[float, Ge(0)] = 4.0
    """Weight of the reverse cross-entropy in the robust loss (β_rob)."""
    log_zero: Annotated[float, Lt(0)] = -4.0
    """Value used for log 0 in the robust loss (A_rob)."""
    without: Literal["none", "train_loss", "validation_loss", "duration", "reward"] = "none"
    """Element to leave out of the context."""
    time_unit: Literal["median", "raw"] = "median"
    """Unit of τ in contexts and rewards: median (over clients, when times were first measured), or raw (the clock's unit)."""
    reward_unit: Literal["largest", "round", "raw"] = "largest"
    """Unit of rewards: largest (divided by the largest reward so far), round (divided by the mean reward of the round), or raw."""
    scaling: Literal["none", "colnorm"] = "none"
    """Scaling of contexts: none, or colnorm (every element divided by its norm over all clients)."""
    duration_scope: Literal["client", "round"] = "client"
    """τ is the time of the client, or the time of the whole last round, which is the same for all clients."""
    reward_scope: Literal["client", "global"] = "client"
    """Each client has its own reward, or all clients have the mean reward."""
    reward_data: Literal["train", "validation"] = "train"
    """The reward is the change of the training loss, or of the cross-entropy on held-out samples."""

    def refuses(self, labels: LabelKind) -> str:
        """The robust loss of numeric labels."""
        robust = labels == "numbers" and self.context_loss == "robust"
        return (
            "context_loss = 'robust' is computed from class probabilities; use 'ce', the loss of the task"
            if robust
            else ""
        )

    def build_head(self) -> Head:
        """The head that scores the contexts."""
        raise NotImplementedError

    def setup(self, census: Census) -> None:
        """Start without any context or reward."""
        super().setup(census)
        m = census.num_clients
        self.first = np.full((m, 2), np.nan)
        self.last_loss = np.full(m, np.nan)
        self.context = np.full((m, len(ELEMENTS)), np.nan)
        self.reward = np.full(m, np.nan)
        """r_t of each client; NaN while undefined."""
        self.silent = np.zeros(m, dtype=bool)
        """Whether the client's last answer was missing or not finite."""
        self.pending = np.zeros(m, dtype=bool)
        """Whether the client's update was admitted since its last answer, so that its next reward belongs to its present context."""
        self.norms = np.ones(len(ELEMENTS))
        self.unit: float | None = None
        self.largest_reward = 0.0
        self.round_time = np.nan
        self.learned: State | None = None

    # --- the strategy

    def select(self, round: Round) -> Cohort:
        """Ask all available clients, learn from the rewards, score the contexts, and select the top k."""
        head, state = self.build_head(), self.head_state(round)
        answers = round.ask(self.question(), round.available)
        head.learn(state, *self.take_answers(round.available, answers, self.seconds(round, round.available)))
        candidates = self.candidates(round, round.t)
        return self.select_top(head, state, head.score(state, candidates), candidates, round)

    def observe(self, outcome: Outcome) -> None:
        """Admitted clients get the next reward (R9)."""
        self.pending[outcome.cohort.clients[outcome.admitted]] = True
        self.round_time = outcome.duration if len(outcome.cohort) else self.round_time

    # --- the steps of a choice

    def head_state(self, round: Round) -> State:
        """The state of the head; created in the first round."""
        if self.learned is None:
            self.learned = self.build_head().start(self.census.num_clients, len(self.elements), round.rng)
        return self.learned

    def question(self) -> Context:
        """The question that clients answer."""
        if self.context_loss == "ce":
            return Context()
        return Context(loss="robust", alpha=self.alpha, beta=self.beta, log_zero=self.log_zero)

    def take_answers(self, clients: Indices, answers: Values, seconds: Values) -> tuple[Indices, Values, Values]:
        """Update contexts and rewards with the answers of clients.

        Args:
            clients: ids of the clients that were asked, [n].
            answers: their two losses, [n, 2]; NaN if missing.
            seconds: their τ in the unit of time, [n].

        Returns:
            the pairs to learn from: the clients that were admitted since their last answer, their contexts at that time, and the
            rewards that are known now.
        """
        finite = np.isfinite(answers[:, 0]) & np.isfinite(answers[:, 1])
        self.silent[self._rows(clients)] = ~finite
        if not finite.all():
            clients, answers, seconds = clients[finite], answers[finite], seconds[finite]
        rows = self._rows(clients)
        first = self.first[rows]
        first = np.where(np.isnan(first), answers, first)
        self.first[rows] = first
        rewards = self._rewards(rows, answers[:, int(self.reward_data == "validation")], seconds)

        due = np.flatnonzero(self.pending[rows])
        due = due[np.isfinite(rewards[due]) & np.isfinite(self.context[clients[due], 0])]
        pairs = clients[due], self._scaled(self.context[clients[due]]), rewards[due]
        self.pending[rows] = False

        context = np.ones((len(clients), len(ELEMENTS)))
        np.divide(answers, first, out=context[:, :2], where=first > 1e-8)
        context[:, 2] = seconds
        context[:, 3] = np.nan_to_num(self.reward[rows])  # still r_{t−1}: the new reward is stored below
        self.context[rows] = np.clip(context, -LARGEST, LARGEST, out=context)
        self.reward[rows] = rewards
        if self.scaling == "colnorm":
            squares = np.nansum(np.square(self.context), axis=0)
            self.norms = np.where(squares > 0, np.sqrt(squares), 1.0)
        return pairs

    def seconds(self, round: Round, clients: Indices) -> Values:
        """τ of these clients in the unit of time, [n]; at least 1e-8. Clients without samples do not enter the unit."""
        known = np.isfinite(round.durations)
        times, sizes = round.durations, self.census.num_samples
        scale = np.median(times[known] / np.maximum(sizes[known], 1)) if known.any() else 1.0
        estimate = np.where(known, times, scale * sizes)
        unit = float(np.median(estimate[sizes > 0])) if self.unit is None else self.unit
        if known.any():
            self.unit = unit
        return self.in_units(estimate[clients], unit)

    def in_units(self, times: Values, unit: float | None = None) -> Values:
        """These times in the unit of time, at least 1e-8; with ``duration_scope = "round"``, the last round's time instead."""
        if unit is None:
            if self.unit is None and len(times):
                self.unit = float(np.median(times))
            unit = self.unit or 1.0
        if self.duration_scope == "round":
            times = np.full(len(times), unit if np.isnan(self.round_time) else self.round_time)
        scaled: Values = np.maximum(times / (max(unit, 1e-8) if self.time_unit == "median" else 1.0), 1e-8)
        return scaled

    def candidates(self, round: Round, t: int) -> Candidates:
        """The available clients with their present contexts."""
        return Candidates(t, round.available, self.features(round.available), self.elements, round.rng)

    def features(self, clients: Indices) -> Values:
        """Contexts for scoring, [n, d]; a client without a context gets the mean of the others."""
        x: Values = self.context[self._rows(clients)].copy()
        missing = np.isnan(x[:, 0])
        if missing.any():
            known = self.context[~np.isnan(self.context[:, 0])]
            x[missing] = known.mean(axis=0) if len(known) else 0.0
        return self._scaled(x)

    def select_top(self, head: Head, state: State, scoring: Scoring, candidates: Candidates, round: Round) -> Cohort:
        """The top k by score; clients whose last answer was not finite come last."""
        silent = self.silent[candidates.clients]
        scores = np.where(silent, -np.inf, scoring.scores)
        ranking = scores if scoring.override is None else np.where(silent, -np.inf, scoring.override)
        clients = round.top(ranking, among=candidates.clients)
        head.note_selected(state, clients, candidates.x[np.searchsorted(candidates.clients, clients)])
        return Cohort(clients, why=Why(candidates.clients, scores, scoring.terms, scoring.note))

    @property
    def elements(self) -> Sequence[str]:
        """Names of the d elements of a context in use."""
        return [name for name in ELEMENTS if name != self.without]

    def _rows(self, clients: Indices) -> Indices | slice:
        """An index of these clients' rows; a slice if they are all clients in order, which is many times faster."""
        m = len(self.silent)
        return slice(None) if len(clients) == m and bool((clients[1:] > clients[:-1]).all()) else clients

    def _rewards(self, rows: Indices | slice, losses: Values, seconds: Values) -> Values:
        rewards: Values = np.minimum(np.abs(losses - self.last_loss[rows]) / seconds, LARGEST)
        self.last_loss[rows] = losses
        known = np.isfinite(rewards)
        if not known.any():
            return rewards
        if self.reward_scope == "global":
            rewards = np.where(known, rewards[known].mean(), np.nan)
        if self.reward_unit == "largest":
            self.largest_reward = max(self.largest_reward, float(rewards[known].max()))
            rewards = rewards / max(self.largest_reward, 1e-12)
        elif self.reward_unit == "round":
            rewards = np.minimum(rewards / max(float(rewards[known].mean()), 1e-12), LARGEST)
        return rewards

    def _scaled(self, x: Values) -> Values:
        if self.scaling == "colnorm":
            x = x / self.norms
        return x if self.without == "none" else np.delete(x, ELEMENTS.index(self.without), axis=1)
