"""Oort: clients whose data teach the model most, per time; a part of every cohort explores, and a pacer says how slow is too slow.

The statistical utility of a client is U_i = |B_i|·√(mean of ℓ_j² over B_i): B_i are the samples it trained on, ℓ_j the loss of
each when it was first visited. In round R, over the explored clients (those who reported a utility) that are available:

    clip    U_i ← min(U_i, the 95 % quantile of all U)
    util_i = (U_i − U_min)/(U_max − U_min) + √(0.1·ln R/L_i),     U_min = 0.999·min U,  L_i the last round with i
    util_i ← util_i·(T/D_i)^α   if D_i > T                        D_i the time of client i, T the preferred duration
    k_x    = min(|unexplored|, ⌊ε·k + ½⌋),  k_e = min(k − k_x, |explored|),   ε = max(ε·decay^(R−1), ε_min)
    W      = {i: util_i ≥ 0.95·(the k_e-th highest util)};  k_e of W are drawn ∝ util, without replacement
    the others are drawn among the unexplored with probability ∝ 1/D_i, D_i as they say themselves

If these are not enough, the explored with the highest utility fill up, and then the blacklisted. The first round is random.

The pacer: T is a percentile (30) of the durations of all clients. Every W = 20 rounds, with prev and cur the sums over W rounds of the
mean utility of the exploited clients: ``flat`` (FedScale) raises the percentile by 5 if |cur − prev| ≤ 0.1·prev (100 means T = ∞)
and lowers it by 5 if |cur − prev| ≥ 5·prev; ``paper`` raises it if cur < prev.

A client that was invited and did not come back in time (or failed, or reported no number) gets the mean utility of its round: it
counts as explored, as in FedScale. Over-commitment is the server's business and not Oort's: ``systems.overcommit = 1.3`` invites
1.3·k clients for any strategy, k is then 1.3·k above, and the slow ones are those who do not come back in time.

Where paper and FedScale's code differ, the parameters choose; the defaults are the paper's, but for utilities on a common scale and
the pacer's percentiles. FedScale: ``epsilon_min = 0.3, cut_off = 0.05, pool = 10, clip_quantile = 0.9, exploration = "size"``.
The paper's blacklist: ``blacklist_rounds = 10``; its scale: ``utility_scale = "raw"``. Two defects of FedScale's are not copied: its
clients report the last mini-batch only, and its cut is taken one position too far.

Lai, Zhu, Madhyastha, Chowdhury, "Oort: Efficient Federated Learning via Guided Participant Selection", OSDI 2021,
arXiv:2010.06081, Algorithm 1; code SymbioticLab/FedScale, thirdparty/oort/oort.py.
"""

import math
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Le
from numpy.typing import NDArray

from fedcohort.core.arrays import Indices, Values, nth_highest, nth_lowest
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.inputs import Census, Outcome, Round
from fedcohort.selection.questions import Speed
from fedcohort.selection.selector import Selector
from fedcohort.selection.speed import ask_speed, nobody_said, times

__all__ = ["Oort"]

SHOWN = 2**12
"""Available clients of whom the reasons say that they have no score; the record keeps fewer."""


@parameters
class Oort(Selector):
    """k clients drawn by statistical utility and speed, a shrinking part of them new ones."""

    card: ClassVar[Card] = Card(
        source="Lai et al. 2021, arXiv:2010.06081, Algorithm 1; code SymbioticLab/FedScale, thirdparty/oort",
        status="code",
        asks="participants for the root mean square of their losses (1 number with the update); new clients for their speed, once",
        discloses="its squared training loss in each round it takes part in; " + Speed.reveals,
        knows="N_i; durations",
        cost="O(m log m)",
    )

    epsilon: Annotated[float, Ge(0), Le(1)] = 0.9
    """Share of the cohort that explores, at first (ε)."""
    epsilon_decay: Annotated[float, Gt(0), Le(1)] = 0.98
    """What ε is multiplied by every round."""
    epsilon_min: Annotated[float, Ge(0), Le(1)] = 0.2
    """The least ε; FedScale takes 0.3."""
    alpha_oort: Annotated[float, Ge(0)] = 2.0
    """Exponent of the penalty (T/D)^α for clients slower than the preferred duration; 0 ignores time."""
    cut_off: Annotated[float, Ge(0), Le(1)] = 0.95
    """Clients at this share of the k_e-th highest utility, or above, can be drawn; FedScale takes 0.05."""
    pool: Annotated[int, Ge(0)] = 0
    """At least pool·k_e clients can be drawn, whatever the cut-off says; FedScale takes 10."""
    clip_quantile: Annotated[float, Gt(0), Le(1)] = 0.95
    """Utilities above this quantile count as the quantile, so that outliers do not rule; FedScale takes 0.9."""
    utility_scale: Literal["normalised", "raw"] = "normalised"
    """Statistical utility on the scale of 0 to 1 over the explored clients (code), or as it is (paper)."""
    round_threshold: Annotated[float, Gt(0), Le(100)] = 30.0
    """The preferred duration T is this percentile of the clients' durations, at first; 100 means no preference."""
    pacer_rule: Literal["flat", "paper"] = "flat"
    """When the preferred duration changes: flat (FedScale) when utility stands still or jumps, paper when it has fallen."""
    pacer_window: Annotated[int, Ge(1)] = 20
    """Rounds W between two looks of the pacer."""
    pacer_step: Annotated[float, Ge(0)] = 5.0
    """By how many percent the pacer moves; 0 turns it off."""
    exploration: Literal["speed", "size"] = "speed"
    """Unexplored clients are drawn ∝ 1/duration as they say themselves, or ∝ samples with the penalty for slow ones among the
    5·k_x with most (FedScale). Where nobody says anything, ∝ samples."""
    samples_per_round: Annotated[int, Ge(1)] | None = None
    """The most samples that a client trains on in a round, for exploration by size (H·B); none given means all it has."""
    blacklist_rounds: Annotated[int, Ge(0)] | None = None
    """Clients that were selected more often than this are left out as long as others are there; none given means never."""
    blacklist_share: Annotated[float, Ge(0), Le(1)] = 0.3
    """At most this share of all clients is blacklisted, those first who were selected most."""
    fairness: Annotated[float, Ge(0), Le(1)] = 0.0
    """Weight f of fairness: util ← (1 − f)·util + f·(max c − c_i)/(max c − min c), with c_i the selections of client i."""

    def setup(self, census: Census) -> None:
        """Nobody explored."""
        super().setup(census)
        m = census.num_clients
        self.utility = np.full(m, np.nan)
        self.last_round = np.zeros(m, dtype=np.int64)
        self.selections = np.zeros(m, dtype=np.int64)
        self.said = nobody_said(m)
        self.threshold = self.round_threshold
        self.history: list[float] = []

    # --- choosing ----------------------------------------------------------------------------------------------------------

    def select(self, round: Round) -> Cohort:
        """Exploit the explored by utility, explore the others, fill up."""
        i = round.available
        known, unknown = self._eligible(round, np.isfinite(round.of(self.utility)))
        old, new = i[known], i[unknown]
        if round.t > 1 and self.exploration == "speed":
            ask_speed(round, self.said, new)
        durations = times(round, self.said)
        preferred = self._preferred(durations)
        scores, terms = self.utilities(round.t, old, durations, preferred)
        if round.t == 1:
            chosen, note = round.sample(round.k), "random: first round"
        else:
            to_explore = min(len(new), math.floor(self.epsilon_at(round.t) * round.k + 0.5))
            exploited = self._exploit(round, old, scores, min(round.k - to_explore, len(old)))
            to_explore = min(round.k - len(exploited), len(new))
            weights = self._exploration_weights(new, round.of(durations)[unknown], preferred, to_explore)
            chosen = np.concatenate([exploited, round.draw(weights, to_explore, among=new)])
            filled = self._fill_up(round, chosen, old, scores)
            chosen = np.concatenate([chosen, filled])
            note = f"{len(exploited)} by utility, {to_explore} exploring, preferred duration {preferred:.6g}"
            note += f", {len(filled)} to fill up" if len(filled) else ""
        return Cohort(chosen, why=self._why(i, chosen, known, scores, terms | {"duration": durations[old]}, note))

    def epsilon_at(self, t: int) -> float:
        """ε of round ``t``, after t − 1 updates."""
        return max(self.epsilon * self.epsilon_decay ** (t - 1), self.epsilon_min)

    def utilities(
        self, t: int, clients: Indices, durations: Values, preferred: float
    ) -> tuple[Values, dict[str, Values]]:
        """util_i of explored ``clients`` in round ``t``, and what it is made of."""
        if len(clients) == 0:
            return np.zeros(0), {"statistical": np.zeros(0), "temporal": np.zeros(0), "system": np.zeros(0)}
        everybody = self.utility[np.isfinite(self.utility)]
        utility = np.minimum(self.utility[clients], _at_quantile(everybody, self.clip_quantile))
        if self.utility_scale == "normalised":
            low, high = 0.999 * utility.min(), utility.max()
            utility = (utility - low) / max(high - low, 1e-4)
        temporal = np.sqrt(0.1 * math.log(t) / np.maximum(self.last_round[clients], 1))
        seconds = durations[clients]
        slow = seconds > preferred  # false where the duration is not known
        system = np.ones(len(clients))
        system[slow] = (preferred / seconds[slow]) ** self.alpha_oort
        scores = (utility + temporal) * system
        if self.fairness:
            counts = self.selections[clients]
            behind = (counts.max() - counts) / max(counts.max() - counts.min(), 1)
            scores = (1 - self.fairness) * scores + self.fairness * behind
        return scores, {"statistical": utility, "temporal": temporal, "system": system}

    def _exploit(self, round: Round, clients: Indices, scores: Values, count: int) -> Indices:
        """``count`` of those near the ``count``-th highest score or above, ∝ score."""
        if count <= 0:
            return clients[:0]
        near = scores >= self.cut_off * nth_highest(scores, count)
        if self.pool:
            near |= scores >= nth_highest(scores, min(self.pool * count, len(scores)))
        return round.draw(scores[near], count, among=clients[near])

    def _exploration_weights(self, clients: Indices, seconds: Values, preferred: float, count: int) -> Values:
        """What each of ``clients`` weighs among those who are new; ``seconds``, their times, may be written to."""
        known = np.isfinite(seconds)
        if self.exploration == "speed" and known.any():
            if not known.all():
                seconds[~known] = np.median(seconds[known])
            if seconds.min() < 1e-12:
                np.maximum(seconds, 1e-12, out=seconds)
            return np.reciprocal(seconds, out=seconds)
        sizes = self.census.num_samples[clients].astype(np.float64)
        sizes = np.minimum(sizes, self.samples_per_round or np.inf)
        if self.exploration == "speed" or count == 0:
            return sizes
        slow = seconds > preferred
        sizes[slow] *= (preferred / seconds[slow]) ** self.alpha_oort
        return np.where(sizes >= nth_highest(sizes, min(5 * count, len(sizes))), sizes, 0.0)

    def _fill_up(self, round: Round, chosen: Indices, old: Indices, scores: Values) -> Indices:
        """The best explored, and then the blacklisted, when the others are not enough."""
        missing = round.k - len(chosen)
        if missing == 0:
            return chosen[:0]
        left = ~np.isin(old, chosen)
        explored = round.top(scores[left], missing, among=old[left])
        others = np.setdiff1d(round.available, np.concatenate([chosen, old]))
        return np.concatenate([explored, round.sample(missing - len(explored), among=others)])

    def _eligible(self, round: Round, explored: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which of the available clients are explored, and which are not, without those who were selected too often."""
        if self.blacklist_rounds is None:
            return explored, ~explored
        listed = np.zeros(self.census.num_clients, dtype=bool)
        often = np.flatnonzero(self.selections > self.blacklist_rounds)
        at_most = math.floor(self.blacklist_share * self.census.num_clients + 1e-9)
        listed[round.top(self.selections[often].astype(np.float64), at_most, among=often)] = True
        eligible = ~round.of(listed)
        return explored & eligible, ~explored & eligible

    def _preferred(self, durations: Values) -> float:
        """T: the percentile of all known durations; no preference at 100 % or when nothing is known."""
        finite = np.isfinite(durations)
        if self.threshold >= 100 or not finite.any():
            return math.inf
        return _at_quantile(durations if finite.all() else durations[finite], self.threshold / 100)

    @staticmethod
    def _why(
        available: Indices,
        chosen: Indices,
        explored: NDArray[np.bool_],
        scores: Values,
        terms: dict[str, Values],
        note: str,
    ) -> Why:
        """Scores and terms of those who can be exploited; of a million others, who have none, a few stand for all."""
        clients, place = available, np.flatnonzero(explored)
        if len(place) <= SHOWN:
            clients = np.union1d(available[:SHOWN], np.concatenate([chosen, available[place]]))
            place = np.searchsorted(clients, available[place])

        def spread(values: Values) -> Values:
            wide = np.full(len(clients), np.nan)
            wide[place] = values
            return wide

        return Why(clients, spread(scores), {name: spread(values) for name, values in terms.items()}, note)

    # --- learning ----------------------------------------------------------------------------------------------------------

    def observe(self, outcome: Outcome) -> None:
        """Keep the utilities that came in; who was invited and did not report gets their mean. Then the pacer looks."""
        clients = outcome.cohort.clients
        reported = outcome.billed_report("samples") * np.sqrt(outcome.billed_report("square_loss"))
        came = outcome.trained & np.isfinite(reported)
        exploited = came & np.isfinite(self.utility[clients])
        self.history = [*self.history, _mean(reported[exploited])][-2 * self.pacer_window :]
        self.selections[clients] += 1
        self.last_round[clients] = outcome.t
        if came.any():
            self.utility[clients] = np.where(came, reported, _mean(reported[came]))
        if outcome.t >= 2 * self.pacer_window and outcome.t % self.pacer_window == 0:
            self._pace()

    def _pace(self) -> None:
        """Accept slower clients when there is nothing more to learn from the fast ones, and back."""
        current = sum(self.history[-self.pacer_window :])
        previous = sum(self.history[: -self.pacer_window])
        if self.pacer_rule == "paper":
            slower, faster = current < previous, False
        else:
            change = abs(current - previous)
            slower, faster = change <= 0.1 * previous, change >= 5 * previous
        if slower:
            self.threshold = min(100.0, self.threshold + self.pacer_step)
        elif faster:
            self.threshold = max(self.pacer_step, self.threshold - self.pacer_step)


def _at_quantile(values: Values, share: float) -> float:
    """The ⌊share·n⌋-th of the sorted values, counted from 0, as FedScale takes it."""
    return nth_lowest(values, min(int(len(values) * share + 1e-9), len(values) - 1))


def _mean(values: Values) -> float:
    return float(values.mean()) if len(values) else 0.0
