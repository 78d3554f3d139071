"""Fed-CBS: clients are drawn one after another so that their data together are balanced over the classes.

The quadratic class imbalance of a set M of clients with label counts h_i, N_i = Σ_c h_{i,c}, and K classes:

    QCID(M) = Σ_c (Σ_{i∈M} h_{i,c}/Σ_{i∈M} N_i − 1/K)²

    first client     P(i) ∝ QCID({i})^{−β_1} + λ·√(3·ln t/(2·n_i)),         n_i how often i was selected
    s-th client      P(i) ∝ QCID(M ∪ {i})^{−β_s}/QCID(M)^{−β_{s−1}}          M the first s − 1; the divisor is the same for all i

Only inner products of the clients' histograms are needed, which the paper obtains under homomorphic encryption; here the server has
the histograms. 1e-6 is added to every QCID. Defaults λ = 10 and β_s = k − s + 1 are ours. While some available client was never
selected (n_i = 0, an infinite bonus) and t > 1, the first client is one of these, by its QCID. Native weights: n_selected.

Zhang et al., "Fed-CBS: A Heterogeneity-Aware Client Sampling Mechanism for Federated Learning via Class-Imbalance Reduction",
ICML 2023, arXiv:2209.15245; the formulas were not checked against the paper's text.
"""

import math
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Gt

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.all_available import all_available
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.inputs import Census, Outcome, Round
from fedcohort.selection.selector import Selector

__all__ = ["FedCBS", "imbalance", "imbalance_with"]


@parameters
class FedCBS(Selector):
    """k clients whose data together are balanced over the classes. Native weights: n_selected."""

    card: ClassVar[Card] = Card(
        source="Zhang et al. 2023, arXiv:2209.15245",
        status="ours",
        asks="the label histogram, once",
        discloses="its label histogram (the paper: inner products of histograms only)",
        knows="label histograms",
        cost="O(kmK)",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"histogram"})

    exploration: Annotated[float, Ge(0)] = 10.0
    """Weight of the bonus for clients that were selected rarely (λ)."""
    beta: Annotated[float, Gt(0)] | None = None
    """Exponent of the last client (β_k); the s-th has beta·(k − s + 1). None means 1."""

    def setup(self, census: Census) -> None:
        """Nobody selected."""
        super().setup(census)
        if census.histogram is None:
            raise UsageError("fedcbs: the census has no label histograms; it needs them to balance the classes")
        self.selections = np.zeros(census.num_clients, dtype=np.int64)
        self.norms = np.square(census.histogram.astype(np.float64)).sum(axis=1)  # h_iᵀh_i

    def select(self, round: Round) -> Cohort:
        """Draw one client after another."""
        histogram = self.census.histogram
        assert histogram is not None  # setup saw to it
        i = round.available
        if round.k >= len(i):
            return all_available(round, self.census.num_samples)
        counts, norms = histogram[i].astype(np.float64), self.norms[i]
        sizes = counts.sum(axis=1)
        together, left = np.zeros(counts.shape[1]), np.ones(len(i), dtype=bool)
        alone = imbalance_with(together, counts, norms, sizes)
        drawn: list[int] = []
        for s in range(1, round.k + 1):
            qcid = alone if s == 1 else imbalance_with(together, counts, norms, sizes)
            worth = -(self.beta or 1.0) * (round.k - s + 1) * np.log(qcid + 1e-6)
            if s == 1:
                worth = self._with_bonus(worth, i, round.t)
            worth[~left] = -np.inf
            chance = np.cumsum(np.exp(worth - worth.max()))
            one = int(np.searchsorted(chance, round.rng.random() * chance[-1], side="right"))
            one = min(one, int(np.searchsorted(chance, chance[-1])))  # u·Σ may be rounded up to Σ, which is nobody's
            drawn.append(one)
            left[one] = False
            together += counts[one]
        clients = i[np.array(drawn)]
        note = f"balanced classes: QCID {imbalance(counts[drawn]):.4g}"
        terms = {"selections": self.selections[i].astype(np.float64)}
        return Cohort(clients, why=Why(i, -alone, terms, note))

    def observe(self, outcome: Outcome) -> None:
        """Count selections."""
        self.selections[outcome.cohort.clients] += 1

    def _with_bonus(self, worth: Values, clients: Indices, t: int) -> Values:
        """log(exp(worth) + λ√(3 ln t/(2n_i))); the bonus of a client never selected is infinite."""
        if self.exploration == 0 or t <= 1:
            return worth
        times = self.selections[clients]
        if (times == 0).any():
            return np.where(times == 0, worth, -np.inf)
        return np.logaddexp(worth, np.log(self.exploration * np.sqrt(3 * math.log(t) / (2 * times))))


def imbalance(histograms: Indices | Values) -> float:
    """QCID of all these clients [n, K] together.

    >>> imbalance(np.array([[0, 0, 10], [10, 10, 0]]))
    0.0
    """
    together = np.asarray(histograms, dtype=np.float64).sum(axis=0)
    return float(np.square(together / max(together.sum(), 1e-12) - 1 / len(together)).sum())


def imbalance_with(together: Values, counts: Values, norms: Values, sizes: Values) -> Values:
    """QCID of a set with the label counts ``together`` [K] and each of the clients with ``counts`` [n, K], float64 [n]."""
    total = np.maximum(sizes + together.sum(), 1e-12)
    square = norms + 2 * (counts @ together) + together @ together
    qcid: Values = np.maximum(square / np.square(total) - 1 / len(together), 0.0)
    return qcid
