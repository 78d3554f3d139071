"""Optimal client sampling: every candidate trains, and sends its update with a probability that grows with the norm of the update.

1. every candidate trains and reports u_i = p_i‖Δ_i‖₂, p_i = N_i/Σ over the candidates
2. the server answers with a probability π_i, Σπ_i = k, that minimizes the variance of the aggregate:
       ocs    u ascending, l the largest integer with 0 < k + l − n' ≤ Σ_{j≤l} u_(j)/u_(l), n' candidates;
              π_i = (k + l − n')·u_i/Σ_{j≤l} u_(j) for the l smallest, 1 for the others
       aocs   π_i = min(1, k·u_i/Σu); then, up to j_max times, over the I candidates with π_i < 1, with the sum P of their π:
              C = (k − n' + I)/P, π_i ← min(1, C·π_i), until C ≤ 1. This needs sums only, so with secure aggregation no norm
              leaves a client. In FedCohort the server learns the norms, and computes the sums
3. every candidate sends its update with probability π_i, independently; k updates on average, and possibly none (R10)

The candidates are all available clients, or ``candidates`` of them, drawn uniformly (the authors' code: 32, of which 3 are expected
to send).

The weights of the paper are unbiased and not normalized: w^{t+1} = w^t + server_lr·Σ_{i∈S_t} (p_i/π_i)Δ_i. Use ``weights = "cohort"``
for them. ``"unbiased"`` divides N_i/N by the probability that includes the draw of the candidates.

If u_i = 0, π_i = 0; if all u are 0, π = k/n'. A client with a norm that is missing or not finite is not a candidate (R4). If k or
fewer clients are available, all of them train and send their updates, and no question is asked (R1).

Chen, Horváth, Richtárik, "Optimal Client Sampling for Federated Learning", 2020, arXiv:2010.13723; code:
SamuelHorvath/FL-optimal-client-sampling, simple_fedavg_tff.py.
"""

from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from fedcohort.core.arrays import Values
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.draws import proportional, shares
from fedcohort.selection.questions import UpdateNorm
from fedcohort.selection.selector import Selector
from fedcohort.selection.strategies.all_available import all_available
from fedcohort.selection.strategy_inputs import Round

__all__ = ["AOCS", "OCS", "approximate"]


@parameters
class OCS(Selector):
    """All train; about k clients with large updates send them. They are drawn for least variance of the aggregate. Native
    weights: cohort.
    """

    card: ClassVar[Card] = Card(
        source="Chen, Horváth, Richtárik 2020, arXiv:2010.13723",
        status="code",
        asks="every candidate to train and to report the norm of its update (n' model downloads, n' trainings)",
        discloses=UpdateNorm.reveals,
        knows="N_i",
        cost="O(m log m)",
    )
    gives: ClassVar[frozenset[str]] = frozenset({"inclusion", "weights"})
    variable_size: ClassVar[bool] = True

    candidates: Annotated[int, Ge(1)] | None = None
    """Number of candidates, drawn uniformly; all available clients if not set."""

    def select(self, round: Round) -> Cohort:
        """Ask for the norms, compute the probabilities, and draw each candidate independently."""
        if round.k >= len(round.available):
            return all_available(round, self.census.num_samples)
        asked = round.candidates(self.candidates)
        share_asked = len(asked) / len(round.available)
        norms = round.ask(UpdateNorm(), asked)[:, 0]
        known = np.isfinite(norms)
        asked, norms = asked[known], norms[known]
        p = shares(self.census.num_samples[asked])
        chance = self.probabilities(p * norms, min(round.k, len(asked)))
        chosen = round.rng.random(len(asked)) < chance
        note = f"{int(chosen.sum())} of {len(asked)} candidates drawn to send their update; {chance.sum():.4g} expected"
        note += f"; {np.count_nonzero(~known)} without a norm" if not known.all() else ""
        return Cohort(
            asked[chosen],
            inclusion=chance[chosen] * share_asked,
            weights=p[chosen] / chance[chosen],
            why=Why(asked, chance, {"p": p, "norm": norms}, note),
        )

    def probabilities(self, u: Values, k: int) -> Values:
        """π_i of every candidate, computed from u_i = p_i‖Δ_i‖."""
        return proportional(u, k)


@parameters
class AOCS(OCS):
    """As ocs, with probabilities that need only sums. They are approximate; the sums are over the clients. Native
    weights: cohort.
    """

    card: ClassVar[Card] = Card(
        source="Chen, Horváth, Richtárik 2020, arXiv:2010.13723",
        status="code",
        asks="every candidate to train, and the candidates together for a few sums over the norms of their updates "
        "(n' model downloads, n' trainings)",
        discloses="sums only, with secure aggregation; in FedCohort the server learns the norm of its update",
        knows="N_i",
        cost="O(m·j_max)",
    )

    j_max: Annotated[int, Ge(0)] = 4
    """Largest number of corrections of the probabilities."""

    def probabilities(self, u: Values, k: int) -> Values:
        """π_i of every candidate, computed from u_i = p_i‖Δ_i‖."""
        return approximate(u, k, self.j_max)


def approximate(u: Values, k: int, j_max: int = 4) -> Values:
    """The probabilities π_i of aocs for ``u`` [n] and a sum of at most ``k``, after at most ``j_max`` corrections, float64 [n].

    >>> approximate(np.array([0.1, 0.2, 0.3, 0.4, 2.0]), 2, j_max=0).round(4)
    array([0.0667, 0.1333, 0.2   , 0.2667, 1.    ])
    """
    n, total = len(u), float(u.sum())
    if total <= 0:
        return np.full(n, min(1.0, k / max(n, 1)))
    chance = np.minimum(1.0, k * (u / total))
    for _ in range(j_max):
        below = chance < 1
        count, mass = int(np.count_nonzero(below)), float(chance[below].sum())
        if mass <= 0:
            break
        factor = (k - n + count) / mass
        if factor <= 1:
            break
        chance[below] = np.minimum(1.0, factor * chance[below])
    return chance
