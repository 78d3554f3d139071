"""Oort: clients with useful data and short times; part of every cohort explores, and a pacer adjusts the preferred duration.

The statistical utility of a client is U_i = |B_i|·√(mean of ℓ_j² over B_i), where B_i are the samples it trained on, and ℓ_j is the
loss of sample j when training first visited it. In round R, over the available clients that are explored (they have reported a
utility):

    clip    U_i ← min(U_i, the 95% quantile of all U)
    util_i = (U_i − U_min)/(U_max − U_min) + √(0.1·ln R/L_i),     U_min = 0.999·min U,  L_i the last round in which i was selected
    util_i ← util_i·(T/D_i)^α   if D_i > T                        D_i the time of client i, T the preferred duration
    k_x    = min(|unexplored|, ⌊ε·k + ½⌋),  k_e = min(k − k_x, |explored|),   ε = max(ε·decay^(R−1), ε_min)
    W      = {i: util_i ≥ 0.95·(the k_e-th highest util)};  k_e clients of W are drawn ∝ util, without replacement
    the other clients are drawn from the unexplored ones with probability ∝ 1/D_i, where D_i is the time that the client states

If these clients are not enough, clients from the blacklist (the most often selected, ``blacklist_rounds``) fill the cohort. The first
round is random.

Pacer: T is a percentile (30) of the durations of all clients. Every W = 20 rounds, it compares prev and cur, the sums over the last
two windows of W rounds of the mean utility of the exploited clients. ``flat`` (FedScale) raises the percentile by 5 if |cur − prev| ≤
0.1·prev (100 means T = ∞), and lowers it by 5 if |cur − prev| ≥ 5·prev. ``paper`` raises it if cur < prev.

As in FedScale, a quantile of n values is the value at position ⌊share·n⌋ in ascending order, counted from 0. So with at most 20 known
utilities, the 95% quantile is the largest, and nothing is clipped. T is taken over measured times, and over stated ones where none was
measured.

A selected client that did not train in time (or failed, or reported a utility that is not finite) gets the mean utility of its round,
so it counts as explored, as in FedScale. Over-commitment is a setting of the server: with ``systems.overcommit = 1.3``, any strategy
selects 1.3·k clients (this number is then k in the formulas), and the slow clients are those that miss the end of the round.

If the paper and FedScale's code differ, parameters choose between them. The defaults are the paper's, except for utilities on a
common scale and the percentiles of the pacer. For FedScale, set ``epsilon_min = 0.3, cut_off = 0.05, pool = 10, clip_quantile = 0.9,
exploration = "size"``. For the paper's blacklist, set ``blacklist_rounds = 10``; for its scale, ``utility_scale = "raw"``. Two
defects of FedScale are not copied: its clients report the last mini-batch only, and its cut-off is one position too low. Three
details differ from FedScale without a parameter:

    scale      here utilities are clipped first, and U_min and the largest U are those of the clipped utilities of explored clients, so
               that scaled utilities fill [0, 1]. FedScale takes both before clipping, over all eligible clients, with the sizes of
               clients that are not explored yet among them, so that one outlier presses the others together.
    pacer      here T changes after round W·j, by the outcomes up to that round. FedScale changes it when it selects for round W·j:
               its windows end with the round before, and the first entry of its history is empty.
    explorers  here ε·k is rounded half up. FedScale rounds it down, so that with k = 3 it explores with no client once ε < 1/3.

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
from fedcohort.selection.client_speed import ask_speed, no_stated_times, times
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.questions import Speed
from fedcohort.selection.selector import Selector
from fedcohort.selection.strategy_inputs import Census, Outcome, Round

__all__ = ["Oort"]

SHOWN = 2**12
"""Number of available clients without a score that the reasons list; the record keeps fewer."""


@parameters
class Oort(Selector):
    """k clients drawn by loss and speed, with some new clients. The share of new clients shrinks; the loss counts as statistical
    utility.
    """

    card: ClassVar[Card] = Card(
        source="Lai et al. 2021, arXiv:2010.06081, Algorithm 1; code SymbioticLab/FedScale, thirdparty/oort",
        status="code",
        asks="selected clients for the mean of their squared losses and the number of these samples (2 numbers with the update); "
        "new clients for their speed, once",
        discloses="its mean squared training loss, and how many samples it trained on, in each round in which it trains; "
        + Speed.reveals,
        knows="N_i; durations",
        cost="O(m log m)",
    )

    epsilon: Annotated[float, Ge(0), Le(1)] = 0.9
    """Initial share of the cohort that explores (ε)."""
    epsilon_decay: Annotated[float, Gt(0), Le(1)] = 0.98
    """Factor by which ε is multiplied in every round."""
    epsilon_min: Annotated[float, Ge(0), Le(1)] = 0.2
    """Lower bound of ε (ε_min); FedScale uses 0.3."""
    alpha_oort: Annotated[float, Ge(0)] = 2.0
    """Exponent of the penalty (T/D)^α for clients slower than the preferred duration; 0 ignores time."""
    cut_off: Annotated[float, Ge(0), Le(1)] = 0.95
    """Clients with at least this share of the k_e-th highest utility can be drawn; FedScale uses 0.05."""
    pool: Annotated[int, Ge(0)] = 0
    """The pool·k_e clients with the highest utility can be drawn even if they are below the cut-off; FedScale uses 10."""
    clip_quantile: Annotated[float, Gt(0), Le(1)] = 0.95
    """Quantile at which utilities are clipped, so that outliers do not dominate; FedScale uses 0.9."""
    utility_scale: Literal["normalised", "raw"] = "normalised"
    """Scale of the statistical utility: normalised to [0, 1] over the explored clients (code), or raw (paper)."""
    round_threshold: Annotated[float, Gt(0), Le(100)] = 30.0
    """Initial percentile of the clients' durations for the preferred duration T; 100 means no preference."""
    pacer_rule: Literal["flat", "paper"] = "flat"
    """Rule of the pacer: flat (FedScale: change T if utility is stable or jumps), or paper (raise T if utility falls)."""
    pacer_window: Annotated[int, Ge(1)] = 20
    """Number of rounds W after which the pacer may change T."""
    pacer_step: Annotated[float, Ge(0)] = 5.0
    """Step of the pacer in percentage points; 0 disables the pacer."""
    exploration: Literal["speed", "size"] = "speed"
    """Weights for drawing unexplored clients: speed (1/D_i with the times that they state, or numbers of samples if no client states
    one), or size (numbers of samples, with the penalty for slow clients, among the 5·k_x largest; FedScale)."""
    samples_per_round: Annotated[int, Ge(1)] | None = None
    """Largest number of samples that a client trains on in a round, for exploration by size (H·B); no limit if not set."""
    blacklist_rounds: Annotated[int, Ge(0)] | None = None
    """Clients that were selected more often than this are blacklisted, unless the others are not enough; no blacklist if not set."""
    blacklist_share: Annotated[float, Ge(0), Le(1)] = 0.3
    """Largest share of all clients that is blacklisted; the most often selected clients come first."""
    fairness: Annotated[float, Ge(0), Le(1)] = 0.0
    """Weight f of fairness: util ← (1 − f)·util + f·(max c − c_i)/(max c − min c), with c_i the selections of client i."""

    def setup(self, census: Census) -> None:
        """Start without explored clients."""
        super().setup(census)
        m = census.num_clients
        self.utility = np.full(m, np.nan)
        self.last_round = np.zeros(m, dtype=np.int64)
        self.selections = np.zeros(m, dtype=np.int64)
        self.said = no_stated_times(m)
        self.threshold = self.round_threshold
        self.history: list[float] = []

    # --- choosing ----------------------------------------------------------------------------------------------------------

    def select(self, round: Round) -> Cohort:
        """Draw explored clients by utility and unexplored ones by speed or size; fill up from the blacklist."""
        i = round.available
        explored, unexplored = self._eligible(round, np.isfinite(round.of(self.utility)))
        old, new = i[explored], i[unexplored]
        if round.t > 1 and self.exploration == "speed":
            ask_speed(round, self.said, new)
        durations = times(round, self.said)
        preferred = self._preferred(durations)
        scores, terms = self.utilities(round.t, old, durations, preferred)
        if round.t == 1:
            chosen, note = round.sample(round.k), "random: first round"
        else:
            to_explore = min(len(new), math.floor(self.epsilon_at(round.t) * round.k + 0.5))
            exploited, drawn = self._exploit(round, old, scores, min(round.k - to_explore, len(old)))
            to_explore = min(round.k - len(exploited), len(new))
            weights = self._exploration_weights(new, round.of(durations)[unexplored], preferred, to_explore)
            chosen = np.concatenate([exploited, round.draw(weights, to_explore, among=new)])
            filled = self._fill_up(round, chosen)
            chosen = np.concatenate([chosen, filled])
            note = f"{len(exploited)} by utility, {to_explore} exploring, preferred duration {preferred:.6g}"
            note += (f", {len(filled)} from the blacklist" if len(filled) else "") + drawn
        return Cohort(chosen, why=self._why(i, chosen, explored, scores, terms | {"duration": durations[old]}, note))

    def epsilon_at(self, t: int) -> float:
        """ε in round ``t``, after t − 1 decays."""
        return max(self.epsilon * self.epsilon_decay ** (t - 1), self.epsilon_min)

    def utilities(
        self, t: int, clients: Indices, durations: Values, preferred: float
    ) -> tuple[Values, dict[str, Values]]:
        """util_i of the explored ``clients`` in round ``t``, and its terms, each float64 [n]."""
        if len(clients) == 0:
            return np.zeros(0), {"statistical": np.zeros(0), "temporal": np.zeros(0), "system": np.zeros(0)}
        all_known = self.utility[np.isfinite(self.utility)]
        utility = np.minimum(self.utility[clients], _at_quantile(all_known, self.clip_quantile))
        if self.utility_scale == "normalised":
            low, high = 0.999 * utility.min(), utility.max()
            utility = (utility - low) / max(high - low, 1e-4)
        temporal = np.sqrt(0.1 * math.log(t) / np.maximum(self.last_round[clients], 1))
        seconds = durations[clients]
        slow = seconds > preferred  # False if the duration is unknown (NaN)
        system = np.ones(len(clients))
        system[slow] = (preferred / seconds[slow]) ** self.alpha_oort
        scores = (utility + temporal) * system
        if self.fairness:
            counts = self.selections[clients]
            rarely_selected = (counts.max() - counts) / max(counts.max() - counts.min(), 1)
            scores = (1 - self.fairness) * scores + self.fairness * rarely_selected
        return scores, {"statistical": utility, "temporal": temporal, "system": system}

    def _exploit(self, round: Round, clients: Indices, scores: Values, count: int) -> tuple[Indices, str]:
        """``count`` draws ∝ score from the clients above the cut-off or in the pool, and a note if there are more of these."""
        if count <= 0:
            return clients[:0], ""
        high = scores >= self.cut_off * nth_highest(scores, count)
        if self.pool:
            high |= scores >= nth_highest(scores, min(self.pool * count, len(scores)))
        among = scores[high]
        drawn = round.draw(among, count, among=clients[high])
        if len(among) <= count:
            return drawn, ""
        them = f"the {len(among)} with scores of {among.min():.4g} or more"
        return drawn, f"; those by utility were drawn, in proportion to their scores, among {them}"

    def _exploration_weights(self, clients: Indices, seconds: Values, preferred: float, count: int) -> Values:
        """Weights for drawing ``count`` of the unexplored ``clients``. May overwrite ``seconds``, their times."""
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

    def _fill_up(self, round: Round, chosen: Indices) -> Indices:
        """Blacklisted clients, drawn uniformly, if ``chosen`` has fewer than k clients."""
        missing = round.k - len(chosen)
        if missing == 0:
            return chosen[:0]
        return round.sample(missing, among=np.setdiff1d(round.available, chosen))

    def _eligible(self, round: Round, explored: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which available clients are explored, and which are not, bool [n] each; blacklisted clients are in neither."""
        if self.blacklist_rounds is None:
            return explored, ~explored
        blacklisted = np.zeros(self.census.num_clients, dtype=bool)
        often = np.flatnonzero(self.selections > self.blacklist_rounds)
        at_most = math.floor(self.blacklist_share * self.census.num_clients + 1e-9)
        blacklisted[round.top(self.selections[often].astype(np.float64), at_most, among=often)] = True
        eligible = ~round.of(blacklisted)
        return explored & eligible, ~explored & eligible

    def _preferred(self, durations: Values) -> float:
        """T: the percentile of all known durations, or ∞ at 100% or without known durations."""
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
        """Scores and terms of the eligible explored clients, and at most ``SHOWN`` of the clients without a score."""
        clients, positions = available, np.flatnonzero(explored)
        if len(positions) <= SHOWN:
            clients = np.union1d(available[:SHOWN], np.concatenate([chosen, available[positions]]))
            positions = np.searchsorted(clients, available[positions])

        def aligned(values: Values) -> Values:
            """``values`` of the explored clients, aligned with ``clients``; NaN for the others."""
            with_nan = np.full(len(clients), np.nan)
            with_nan[positions] = values
            return with_nan

        return Why(clients, aligned(scores), {name: aligned(values) for name, values in terms.items()}, note)

    # --- learning ----------------------------------------------------------------------------------------------------------

    def observe(self, outcome: Outcome) -> None:
        """Store the reported utilities, and their mean for selected clients without one; then run the pacer."""
        clients = outcome.cohort.clients
        with np.errstate(invalid="ignore", over="ignore"):  # clients can report numbers that cannot be
            utility = outcome.billed_report("samples") * np.sqrt(outcome.billed_report("square_loss"))
        reported = outcome.trained & np.isfinite(utility)
        exploited = reported & np.isfinite(self.utility[clients])
        self.history = [*self.history, _mean(utility[exploited])][-2 * self.pacer_window :]
        self.selections[clients] += 1
        self.last_round[clients] = outcome.t
        if reported.any():
            self.utility[clients] = np.where(reported, utility, _mean(utility[reported]))
        if outcome.t >= 2 * self.pacer_window and outcome.t % self.pacer_window == 0:
            self._pace()

    def _pace(self) -> None:
        """Move the percentile of T: up to accept slower clients, or down to prefer faster ones."""
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
    """The value at position ⌊share·n⌋ of the ascending values, counted from 0, as in FedScale."""
    return nth_lowest(values, min(int(len(values) * share + 1e-9), len(values) - 1))


def _mean(values: Values) -> float:
    return float(values.mean()) if len(values) else 0.0
