"""Clustered sampling by sample size (algorithm 1): bins are filled in the order of the clients' sizes.

Clients are sorted by N_i, largest first (ties by id). In this order, the mass k·N_i of each client fills bin 1 until it holds
N = Σ N_i, then bin 2, and so on. One client is drawn from each bin. Clients are sorted only once. Native weights: uniform over draws.

Fraboni, Vidal, Kameni, Lorenzi 2021, arXiv:2105.05883, algorithm 1; code: Accenture/Labs-Federated-Learning, branch
clustered_sampling, py_func/clustering.py.
"""

from typing import ClassVar

import numpy as np

from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.client_bins import Pieces, draw_one_per_bin, fill_bins
from fedcohort.selection.cohort import Cohort
from fedcohort.selection.selector import Selector
from fedcohort.selection.strategies.all_available import all_available
from fedcohort.selection.strategy_inputs import Census, Round

__all__ = ["ClusteredSize"]


@parameters
class ClusteredSize(Selector):
    """One client from each of k bins, filled by client size. Bins have equal numbers of samples. Unbiased if all clients are
    available; less variance than MD sampling.
    """

    card: ClassVar[Card] = Card(
        source="Fraboni et al. 2021, arXiv:2105.05883, algorithm 1",
        status="code",
        knows="N_i",
        cost="O(m), O(m log m) once",
    )
    gives: ClassVar[frozenset[str]] = frozenset({"inclusion", "weights"})

    def setup(self, census: Census) -> None:
        """Sort the clients by size."""
        super().setup(census)
        self.order = np.argsort(-census.num_samples, kind="stable")

    def select(self, round: Round) -> Cohort:
        """Fill the bins, and draw one client from each."""
        if round.k >= len(round.available):
            return all_available(round, self.census.num_samples)
        return draw_one_per_bin(
            self.bins(round.k), round, self.census.num_samples, f"one client from each of {round.k} bins by size"
        )

    def bins(self, k: int) -> Pieces:
        """The contents of the k bins."""
        sizes = self.census.num_samples
        return fill_bins(self.order, k * sizes[self.order], np.full(k, sizes.sum()))
