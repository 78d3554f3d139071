"""MD sampling: k independent draws with replacement, client i with probability p_i = N_i/Σ_{j∈A_t} N_j.

    w^{t+1} = (1/k) Σ_{draws} w_i

A client that is drawn c_i times trains once and counts c_i times (R5): ``weights = "uniform"`` and ``"cohort"`` use this multiplicity,
and both are unbiased, E[Σ a_iΔ_i] = Σ p_iΔ_i. ``"unbiased"`` instead divides by the probability that a client is drawn at least once,
1 − (1 − p_i)^k. MD stands for the multinomial distribution of the c_i.

Li et al., "Federated Optimization in Heterogeneous Networks", 2018, arXiv:1812.06127, and "On the Convergence of FedAvg on Non-IID
Data", 2019, arXiv:1907.02189; named and compared in Fraboni et al. 2021, arXiv:2105.05883.
"""

from typing import ClassVar

from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.draws import repeated, shares
from fedcohort.selection.selector import Selector
from fedcohort.selection.strategies.all_available import all_available
from fedcohort.selection.strategy_inputs import Round

__all__ = ["MD"]


@parameters
class MD(Selector):
    """k draws by size; a client can be drawn more than once. The probability is ∝ the number of samples. Native weights: uniform
    (over draws).
    """

    card: ClassVar[Card] = Card(source="Li et al. 2018, arXiv:1812.06127", status="code", knows="N_i")
    gives: ClassVar[frozenset[str]] = frozenset({"inclusion", "weights"})

    def select(self, round: Round) -> Cohort:
        """Draw, and count how often each client was drawn."""
        if round.k >= len(round.available):
            return all_available(round, self.census.num_samples)
        p = shares(self.census.num_samples[round.available])
        drawn, times = repeated(p, round.k, round.rng)
        return Cohort(
            round.available[drawn],
            multiplicity=times,
            inclusion=1 - (1 - p[drawn]) ** round.k,
            weights=times / round.k,
            why=Why(round.available, p, note=f"{round.k} draws by size, {len(drawn)} different clients"),
        )
