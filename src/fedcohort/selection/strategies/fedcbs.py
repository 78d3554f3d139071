"""Fed-CBS: clients are drawn one after another so that their combined data are balanced over the classes.

The quadratic class imbalance degree (QCID) of a set M of clients with label counts h_i, N_i = Σ_c h_{i,c}, and K classes is

    QCID(M) = Σ_c (Σ_{i∈M} h_{i,c}/Σ_{i∈M} N_i − 1/K)²

    first client     P(i) ∝ QCID({i})^{−β_1} + λ·√(3·ln t/(2·n_i)),         n_i the number of times that i was selected
    s-th client      P(i) ∝ QCID(M ∪ {i})^{−β_s}/QCID(M)^{−β_{s−1}}        M the first s − 1 clients; the divisor is the same for all i

Only inner products of the clients' histograms are needed, which the paper computes under homomorphic encryption; in FedCohort the
server has the histograms. 1e-6 is added to every QCID. The defaults λ = 10 and β_s = k − s + 1 are ours. If t > 1 and some available
clients were never selected (n_i = 0, an infinite bonus), the first client is drawn from these by QCID alone; with λ = 0 there is no
bonus. Native weights: n_selected.

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
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.draws import repeated
from fedcohort.selection.selector import Selector
from fedcohort.selection.strategies.all_available import all_available
from fedcohort.selection.strategy_inputs import Census, Outcome, Round

__all__ = ["FedCBS", "imbalance", "imbalance_with"]


@parameters
class FedCBS(Selector):
    """k clients with balanced classes in their combined data. Native weights: n_selected."""

    card: ClassVar[Card] = Card(
        source="Zhang et al. 2023, arXiv:2209.15245",
        status="ours",
        asks="every client for its label histogram, once",
        discloses="its label histogram (the paper: inner products of histograms only)",
        knows="label histograms",
        cost="O(kmK)",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"histogram"})

    exploration: Annotated[float, Ge(0)] = 10.0
    """Weight of the bonus for rarely selected clients (λ)."""
    beta: Annotated[float, Gt(0)] | None = None
    """Exponent for the last client (β_k); the s-th client has beta·(k − s + 1). 1 if not set."""

    def setup(self, census: Census) -> None:
        """Start without selections.

        Raises:
            UsageError: the census has no label histograms.
        """
        super().setup(census)
        if census.histogram is None:
            raise UsageError(
                "selection.name = 'fedcbs': it needs label histograms to balance the classes; give Census.histogram"
            )
        self.selections = np.zeros(census.num_clients, dtype=np.int64)
        self.norms = np.square(census.histogram.astype(np.float64)).sum(axis=1)  # h_iᵀh_i

    def select(self, round: Round) -> Cohort:
        """Draw one client after another."""
        histogram = self.census.histogram
        assert histogram is not None  # setup refuses a census without one
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
            log_weight = -(self.beta or 1.0) * (round.k - s + 1) * np.log(qcid + 1e-6)
            if s == 1:
                log_weight = self._with_bonus(log_weight, i, round.t)
            log_weight[~left] = -np.inf
            [position], _ = repeated(np.exp(log_weight - log_weight.max()), 1, round.rng)
            drawn.append(position)
            left[position] = False
            together += counts[position]
        clients = i[np.array(drawn)]
        note = f"balanced classes: QCID {imbalance(counts[drawn]):.4g}"
        terms = {"selections": self.selections[i].astype(np.float64)}
        return Cohort(clients, why=Why(i, -alone, terms, note))

    def observe(self, outcome: Outcome) -> None:
        """Count selections."""
        self.selections[outcome.cohort.clients] += 1

    def _with_bonus(self, log_weight: Values, clients: Indices, t: int) -> Values:
        """log(exp(log_weight) + λ√(3 ln t/(2n_i))); the bonus of clients that were never selected is infinite."""
        if self.exploration == 0 or t <= 1:
            return log_weight
        times = self.selections[clients]
        if (times == 0).any():
            return np.where(times == 0, log_weight, -np.inf)
        return np.logaddexp(log_weight, np.log(self.exploration * np.sqrt(3 * math.log(t) / (2 * times))))


def imbalance(histograms: Indices | Values) -> float:
    """QCID of the combined data of clients with these label counts [n, K].

    >>> imbalance(np.array([[0, 0, 10], [10, 10, 0]]))
    0.0
    """
    together = np.asarray(histograms, dtype=np.float64).sum(axis=0)
    return float(np.square(together / max(together.sum(), 1e-12) - 1 / len(together)).sum())


def imbalance_with(together: Values, counts: Values, norms: Values, sizes: Values) -> Values:
    """QCID of a set of clients after adding one client, for each client that could be added, float64 [n].

    Args:
        together: label counts of the set, [K].
        counts: label counts h_i of each client that could be added, [n, K].
        norms: h_iᵀh_i of these clients, [n].
        sizes: N_i of these clients, [n].
    """
    total = np.maximum(sizes + together.sum(), 1e-12)
    square = norms + 2 * (counts @ together) + together @ together
    qcid: Values = np.maximum(square / np.square(total) - 1 / len(together), 0.0)
    return qcid
