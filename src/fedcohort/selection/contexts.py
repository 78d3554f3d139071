"""What FLASH, the restless and the neural bandit know of clients: contexts and rewards.

    x_t(i) = [ L_i^t / L_i^1,  CE_i^t / CE_i^1,  τ_i(t−1),  r_{t−1}(i) ]           r_t(i) = |L_i^t − L_i^{t−1}| / τ_i(t−1)

L_i is a loss of w^t on the client's training part, CE_i the cross-entropy on the part that it holds out, both relative to the
first value that this client ever gave (1 where that is 0); τ_i is the time of its last round, as the server measured it (before
that: proportional to N_i, on the scale of those measured); r is the reward.

A client that is away keeps its last context, and one that never had any gets the mean context of the others. An answer that is
not finite changes nothing; the client ranks last until it gives a better one (R4). r_t(i) of a client that was away is taken
from the last loss that it gave; it is undefined, and nothing is learned from it, for one that gave none.

The reward of a round is known when clients answer in the next one, so these strategies learn in ``select`` as well.

FLASH, arXiv:2402.08769, section II. Units of time and reward and every rule for what is missing are ours.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Lt

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.parameters import parameters
from fedcohort.selection.bandit import Head, Judgement, State, Turn
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.inputs import Census, Outcome, Round
from fedcohort.selection.questions import Context
from fedcohort.selection.selector import Selector

__all__ = ["ELEMENTS", "ContextBandit"]

ELEMENTS = ("train_loss", "validation_loss", "duration", "reward")
"""The elements of a context."""

LARGEST = 1e6
"""No element of a context is larger: a model about to diverge must not take the arithmetic with it."""


@parameters
class ContextBandit(Selector):
    """The k clients with the highest score of a head that sees their contexts; a strategy says which, :meth:`build_head`."""

    needs: ClassVar[frozenset[str]] = frozenset({"holdout"})

    context_loss: Literal["robust", "ce"] = "ce"
    """The training loss in contexts and rewards: FLASH's robust loss, or the cross-entropy."""
    alpha: Annotated[float, Ge(0)] = 0.1
    """Of the robust loss: weight of the cross-entropy to the model's own outputs (α_rob)."""
    beta: Annotated[float, Ge(0)] = 4.0
    """Of the robust loss: weight of the reverse cross-entropy (β_rob)."""
    log_zero: Annotated[float, Lt(0)] = -4.0
    """Of the robust loss: what stands for log 0 (A_rob)."""
    without: Literal["none", "train_loss", "validation_loss", "duration", "reward"] = "none"
    """Leave one element out of the context."""
    time_unit: Literal["median", "raw"] = "median"
    """Unit of τ in contexts and rewards: the median over clients when times were first measured, or the clock's."""
    reward_unit: Literal["largest", "raw"] = "largest"
    """Divide rewards by the largest one seen so far, or not."""
    scaling: Literal["none", "colnorm"] = "none"
    """Contexts as they are, or every element divided by its norm over all clients."""
    duration_scope: Literal["client", "round"] = "client"
    """τ is the time of the client, or that of the whole last round, which is the same for everybody."""
    reward_scope: Literal["client", "global"] = "client"
    """Every client has its own reward, or all have the mean of them."""
    reward_data: Literal["train", "validation"] = "train"
    """The reward is the change of the training loss, or of the cross-entropy on the held-out part."""

    def build_head(self) -> Head:
        """What scores the contexts."""
        raise NotImplementedError

    def setup(self, census: Census) -> None:
        """Nothing is known of anybody."""
        super().setup(census)
        m = census.num_clients
        self.first = np.full((m, 2), np.nan)
        self.last_loss = np.full(m, np.nan)
        self.context = np.full((m, len(ELEMENTS)), np.nan)
        self.reward = np.full(m, np.nan)
        """r_t; NaN while undefined."""
        self.silent = np.zeros(m, dtype=bool)
        """Whether the last answer was missing or not finite."""
        self.pending = np.zeros(m, dtype=bool)
        """Whether the client has taken part since its last answer, so that its next reward belongs to its context now."""
        self.norms = np.ones(len(ELEMENTS))
        self.unit: float | None = None
        self.largest_reward = 0.0
        self.round_time = np.nan
        self.learned: State | None = None

    # the strategy, for heads that see this round's contexts

    def select(self, round: Round) -> Cohort:
        """Hear everybody, learn what the last rounds brought, score, take the top k."""
        head, learned = self.build_head(), self.begun(round)
        answers = round.ask(self.question(), round.available)
        head.learn(learned, *self.hear(round.available, answers, self.seconds(round, round.available)))
        turn = self.turn(round, round.t)
        return self.pick(head, learned, head.judge(learned, turn), turn, round)

    def observe(self, outcome: Outcome) -> None:
        """Those whose update entered the model get the next reward (R9)."""
        self.pending[outcome.cohort.clients[outcome.admitted]] = True
        self.round_time = outcome.duration if len(outcome.cohort) else self.round_time

    # the steps it is made of

    def begun(self, round: Round) -> State:
        """The state of the head; begins it in the first round."""
        if self.learned is None:
            self.learned = self.build_head().start(self.census.num_clients, len(self.elements), round.rng)
        return self.learned

    def question(self) -> Context:
        """What clients are asked."""
        if self.context_loss == "ce":
            return Context()
        return Context(loss="robust", alpha=self.alpha, beta=self.beta, log_zero=self.log_zero)

    def hear(self, clients: Indices, answers: Values, seconds: Values) -> tuple[Indices, Values, Values]:
        """Take in answers [n, 2]; the pairs (clients, x, r) of those who took part since their last answer, r their reward now.

        ``seconds`` [n] is τ of these clients, in the unit of time.
        """
        fine = np.isfinite(answers[:, 0]) & np.isfinite(answers[:, 1])
        self.silent[self._rows(clients)] = ~fine
        if not fine.all():
            clients, answers, seconds = clients[fine], answers[fine], seconds[fine]
        rows = self._rows(clients)
        first = self.first[rows]
        first = np.where(np.isnan(first), answers, first)
        self.first[rows] = first
        rewards = self._rewards(rows, answers[:, int(self.reward_data == "validation")], seconds)

        played = np.flatnonzero(self.pending[rows])
        played = played[np.isfinite(rewards[played]) & np.isfinite(self.context[clients[played], 0])]
        pairs = clients[played], self._scaled(self.context[clients[played]]), rewards[played]
        self.pending[rows] = False

        context = np.ones((len(clients), len(ELEMENTS)))
        np.divide(answers, first, out=context[:, :2], where=first > 1e-8)
        context[:, 2] = seconds
        context[:, 3] = np.nan_to_num(self.reward[rows])  # r_{t−1}: the new one comes after
        self.context[rows] = np.clip(context, -LARGEST, LARGEST, out=context)
        self.reward[rows] = rewards
        if self.scaling == "colnorm":
            squares = np.nansum(np.square(self.context), axis=0)
            self.norms = np.where(squares > 0, np.sqrt(squares), 1.0)
        return pairs

    def seconds(self, round: Round, clients: Indices) -> Values:
        """τ of these clients, in the unit of time, at least 1e-8."""
        known = np.isfinite(round.durations)
        times, sizes = round.durations, self.census.num_samples
        scale = np.median(times[known] / np.maximum(sizes[known], 1)) if known.any() else 1.0
        estimate = np.where(known, times, scale * sizes)
        unit = float(np.median(estimate)) if self.unit is None else self.unit
        if known.any():
            self.unit = unit
        return self.in_units(estimate[clients], unit)

    def in_units(self, times: Values, unit: float | None = None) -> Values:
        """Times, or the time of the last round if ``duration_scope`` says so, in the unit of time; at least 1e-8."""
        if unit is None:
            if self.unit is None and len(times):
                self.unit = float(np.median(times))
            unit = self.unit or 1.0
        if self.duration_scope == "round":
            times = np.full(len(times), unit if np.isnan(self.round_time) else self.round_time)
        scaled: Values = np.maximum(times / (max(unit, 1e-8) if self.time_unit == "median" else 1.0), 1e-8)
        return scaled

    def turn(self, round: Round, t: int) -> Turn:
        """The contexts of the available clients, as they are known now."""
        return Turn(t, round.available, self.features(round.available), self.elements, round.rng)

    def features(self, clients: Indices) -> Values:
        """Contexts for scoring, [n, d]: the mean of the others for those who never had any."""
        x: Values = self.context[self._rows(clients)].copy()
        lacking = np.isnan(x[:, 0])
        if lacking.any():
            known = self.context[~np.isnan(self.context[:, 0])]
            x[lacking] = known.mean(axis=0) if len(known) else 0.0
        return self._scaled(x)

    def pick(self, head: Head, learned: State, judged: Judgement, turn: Turn, round: Round) -> Cohort:
        """The top k by score; those whose answer was not finite come last."""
        silent = self.silent[turn.clients]
        scores = np.where(silent, -np.inf, judged.scores)
        ranking = scores if judged.instead is None else np.where(silent, -np.inf, judged.instead)
        clients = round.top(ranking, among=turn.clients)
        head.chose(learned, clients, turn.x[np.searchsorted(turn.clients, clients)])
        return Cohort(clients, why=Why(turn.clients, scores, judged.terms, judged.note))

    @property
    def elements(self) -> Sequence[str]:
        """Names of the d elements in use."""
        return [name for name in ELEMENTS if name != self.without]

    def _rows(self, clients: Indices) -> Indices | slice:
        """The same clients as an index; of everybody in order it is a slice, which is many times faster."""
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
        return rewards

    def _scaled(self, x: Values) -> Values:
        if self.scaling == "colnorm":
            x = x / self.norms
        return x if self.without == "none" else np.delete(x, ELEMENTS.index(self.without), axis=1)
