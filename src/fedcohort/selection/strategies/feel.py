"""FEEL: importance- and channel-aware scheduling, which draws clients by gradient norm and upload time.

Every available client has G_i = ‖∇F_i(w^t)‖₂. Drawing client i with probability q_i and weight p_i/q_i is unbiased, and

    min over q:  ρ·Σ p_i²G_i²/q_i + (1 − ρ)·Σ q_iT_i,  Σq_i = 1         (variance against upload time)

has the solution q_i = p_iG_i·√(ρ/((1 − ρ)T_i + λ)), with the λ > −(1 − ρ)·min T_i that makes Σq_i = 1.

S_t results from k successive draws without replacement, each ∝ q among the clients not yet drawn. With ``weights = "cohort"``,
clients have Raj's weights, which are unbiased for Σ p_iΔ_i. To compare selection strategies under one aggregation, use ``n_selected``.

T_i is the time that the client expects for its upload, scaled to mean 1, and p_iG_i is scaled to sum 1, so that ρ has the same meaning
in every task. ``measured`` uses the last measured upload time instead of asking, or 0.2 times the client's whole time if only that was
measured. A client without a time gets the median of the others; if no client has a time, all times are equal. ``cached`` replaces the
question for G_i by the last ‖Δ_i‖/H_i of each client, and by the largest of these for clients without one; the learning rate cancels.

With ρ = 1, q_i ∝ p_iG_i. If all G are 0, q ∝ p. A gradient norm that is missing or not finite becomes the mean of the others (R4).
q_i is at least 1e-6 (or a hundredth of 1/|A_t|, if that is smaller), which keeps the weights bounded.

Ren, He, Wen, Yu, Huang, Guo, "Scheduling for Cellular Federated Edge Learning with Importance and Channel Awareness", IEEE TWC 2020,
arXiv:2004.00490, for one client per round; we derived its formula from the stated objective. The extension to several clients,
the scaling and the imputations are ours.
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Gt, Le

from fedcohort.core.arrays import Values
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.client_speed import SENDING_SHARE
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.draws import raj, shares, successive
from fedcohort.selection.questions import GradientNorm, Speed
from fedcohort.selection.selector import Selector
from fedcohort.selection.strategies.all_available import all_available
from fedcohort.selection.strategy_inputs import Census, Outcome, Round

__all__ = ["FEEL", "scheduling"]

LARGEST_NORM = 1e300
"""Norm that no gradient reaches; sums of smaller ones are finite."""
SMALLEST_IMPORTANCE = 1e-100
"""Share of the largest importance below which a client counts as without importance: the squares of smaller ones are 0."""


@parameters
class FEEL(Selector):
    """k clients drawn by large gradients and fast uploads. The k draws are successive. Native weights: cohort."""

    card: ClassVar[Card] = Card(
        source="Ren et al. 2020, arXiv:2004.00490, for one client per round; several clients, and their weights, ours",
        status="paper",
        asks="every available client for the norm of its gradient (m model downloads, m gradients), unless it is cached, and for "
        "the time of its upload, unless that is measured; selected clients for their number of local steps (1 number with the update)",
        discloses=f"{GradientNorm.reveals}; {Speed.reveals}; its number of local steps in each round in which it trains",
        knows="N_i; durations",
        cost="O(m·iterations)",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"update_norm"})
    gives: ClassVar[frozenset[str]] = frozenset({"weights"})

    rho: Annotated[float, Gt(0), Le(1)] = 0.5
    """Weight of small variance against short uploads (ρ); 1 ignores upload times."""
    gradient: Literal["asked", "cached"] = "asked"
    """Source of gradient norms: asked in every round, or cached from the last update of each client."""
    upload: Literal["asked", "measured"] = "asked"
    """Source of upload times: asked in every round, or measured when a client last took part."""

    def setup(self, census: Census) -> None:
        """Start without gradient norms."""
        super().setup(census)
        self.last_norm = np.full(census.num_clients, np.nan)

    def select(self, round: Round) -> Cohort:
        """Ask for norms and times, compute the probabilities, and draw."""
        i, k = round.available, round.k
        if k >= len(i):
            return all_available(round, self.census.num_samples)
        p = shares(self.census.num_samples[i])
        norms = self._norms(round)
        times = self._times(round)
        importance = p * norms
        total = float(importance.sum())
        importance = importance / total if total > 0 else p
        q, _ = scheduling(importance, times / times.mean(), self.rho)
        q = np.maximum(q, min(1e-6, 0.01 / len(q)))
        q /= q.sum()
        drawn = successive(q, k, round.rng)
        note = f"draws by gradient norm ({self.gradient}) and upload time ({self.upload})"
        why = Why(i, q, {"p": p, "norm": norms, "upload_time": times}, note)
        return Cohort(i[drawn], weights=raj(p[drawn], q[drawn]), why=why)

    def observe(self, outcome: Outcome) -> None:
        """Store the update norm per local step of every client that trained."""
        with np.errstate(divide="ignore", invalid="ignore"):
            latest = outcome.billed_report("update_norm") / outcome.billed_report("steps")
        seen = outcome.trained & np.isfinite(latest)
        self.last_norm[outcome.cohort.clients[seen]] = latest[seen]

    def _norms(self, round: Round) -> Values:
        """G_i of the available clients, all finite."""
        if self.gradient == "asked":
            norms = round.ask(GradientNorm(), round.available)
            known = (norms >= 0) & (norms < LARGEST_NORM)  # not NaN
            return np.where(known, norms, norms[known].mean() if known.any() else 0.0)
        seen = np.isfinite(self.last_norm)
        largest = float(self.last_norm[seen].max()) if seen.any() else 0.0
        norms = self.last_norm[round.available]
        return np.where(np.isnan(norms), largest, norms)

    def _times(self, round: Round) -> Values:
        """T_i of the available clients, all finite and positive: the median of the others if missing, 1 if all are missing."""
        i = round.available
        if self.upload == "asked":
            times = round.ask(Speed(), i)[:, 1]
        else:
            measured = round.upload_times[i]
            times = np.where(np.isfinite(measured), measured, SENDING_SHARE * round.durations[i])
        known = np.isfinite(times)
        times = np.where(known, times, np.median(times[known]) if known.any() else 1.0)
        return np.maximum(times, 1e-12)


def scheduling(importance: Values, times: Values, rho: float) -> tuple[Values, float]:
    """The probabilities q_i = a_i·√(ρ/((1 − ρ)T_i + λ)) with Σq_i = 1, and λ.

    Args:
        importance: a_i = p_iG_i, [n]; at least one is positive.
        times: T_i, [n].
        rho: ρ.

    >>> q, multiplier = scheduling(np.array([0.5, 0.6, 0.3]), np.array([1.0, 4.0, 2.0]), 0.5)
    >>> q.round(6), round(multiplier, 5)
    (array([0.491132, 0.298643, 0.210226]), 0.01822)
    """
    a, cost = np.sqrt(rho) * importance, (1 - rho) * times
    positive = a > SMALLEST_IMPORTANCE * a.max()
    least = cost[positive].min()
    above, a_positive = cost[positive] - least, a[positive]

    # With x = λ + least > 0 and S(x) = Σ a_i/√(above_i + x), the function S^−2 is increasing and concave (a power mean of the terms
    # under the roots), so Newton's steps towards S^−2 = 1 from the left never pass the root. Two starting points on the left are a_1²
    # for a client 1 with the lowest cost, and (Σa)² − Σ a_i·above_i/Σa, by Jensen's inequality.
    total = float(a_positive.sum())
    x = max(float(a_positive[above == 0].max()) ** 2, total**2 - float(a_positive @ above) / total)
    for _ in range(100):
        under = above + x
        parts = a_positive / np.sqrt(under)
        sum_ = float(parts.sum())
        if sum_ <= 1 + 1e-13:
            break
        x += (sum_**3 - sum_) / float((parts / under).sum())
    q = np.zeros(len(a))
    q[positive] = a_positive / np.sqrt(above + x)
    return q / q.sum(), x - float(least)
