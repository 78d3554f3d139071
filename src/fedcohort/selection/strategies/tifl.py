"""TiFL: clients are sorted into tiers of similar speed, and each cohort comes from one tier, so that fast clients do not wait for
slow ones.

Clients are asked once for the time that they expect to need, and sorted into ``tiers`` tiers of equal size, of which 0 is the fastest.
If the tiers are formed again later, measured times replace stated ones. Each round draws a tier, and k of its available clients
uniformly. If they are fewer than k, clients of the nearest tiers fill the cohort.

With ``policy = "static"``, the tiers have fixed probabilities. With ``policy = "adaptive"``, tier j may be drawn a limited number
of times, its credit, and fast tiers have more credit. Every ``interval`` rounds, the available clients of the n tiers with credit
are asked for the accuracy of the model on their data. The tiers are ranked by the mean accuracy of their clients, lowest first, and
tiers with low accuracy are drawn more often:

    p = (n − rank)/D,   D = n(n + 1)/2,   rank = 0 … n − 1

A tier without a known accuracy ranks first. If all credits are used up, every tier has the same probability.

Clients that did not report a speed belong to no tier, and are selected only if the other clients are not enough.

Chai et al., "TiFL: A Tier-based Federated Learning System", HPDC 2020, arXiv:2001.09249; code WwZzz/easyFL,
flgo/algorithm/TiFL.py. The authors do not state the size of the credits; we use credit·(tiers − j) for tier j.
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.client_speed import ask_speed, no_stated_times, times
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.questions import LocalAccuracy, Speed
from fedcohort.selection.selector import Selector
from fedcohort.selection.strategy_inputs import Census, Round

__all__ = ["TiFL"]


@parameters
class TiFL(Selector):
    """k random clients from one tier of similar speed. Tiers with low accuracy are drawn more often."""

    card: ClassVar[Card] = Card(
        source="Chai et al. 2020, arXiv:2001.09249; code WwZzz/easyFL, flgo/algorithm/TiFL.py",
        status="ours",
        asks="every client for its speed, once; every interval rounds, all clients for the model's accuracy "
        "(m model downloads, m forward passes)",
        discloses=f"{Speed.reveals}; {LocalAccuracy.reveals}",
        knows="durations",
        cost="O(m), O(m log m) in rounds with new clients",
        score="only the order of the clients' scores, so any numbers",
    )

    policy: Literal["adaptive", "static"] = "adaptive"
    """Rule for drawing a tier: adaptive (by accuracy and credits), or static (fixed probabilities)."""
    tiers: Annotated[int, Ge(1), Le(100)] = 5
    """Number of tiers."""
    probabilities: list[Annotated[float, Ge(0)]] | None = None
    """Probabilities of the tiers under the static policy, fastest first; equal if not set."""
    interval: Annotated[int, Ge(1)] = 10
    """Number of rounds after which the adaptive policy asks for accuracies again."""
    credit: Annotated[int, Ge(1)] = 100
    """Number of times that the adaptive policy may draw the slowest tier; the j-th slowest has j times as many."""

    def setup(self, census: Census) -> None:
        """Start without tiers."""
        super().setup(census)
        given = self.probabilities
        if given is not None and (len(given) != self.tiers or sum(given) <= 0):
            raise UsageError(
                f"selection.probabilities = {given}: needs one number for each of selection.tiers = {self.tiers}, "
                "and at least one above 0"
            )
        self.said = no_stated_times(census.num_clients)
        self.tier = np.full(census.num_clients, -1, dtype=np.int8)
        self.accuracy = np.full(self.tiers, np.nan)
        self.credits = self.credit * np.arange(self.tiers, 0, -1)
        self.wanted = np.ones(self.tiers) if given is None else np.array(given, dtype=np.float64)
        self.wanted = self.wanted / self.wanted.sum()

    def select(self, round: Round) -> Cohort:
        """Draw a tier, and select from its clients, and from the nearest tiers if they are not enough."""
        i = round.available
        ask_speed(round, self.said, i[self.tier[i] < 0])
        self._form_tiers(round)
        if self.policy == "adaptive" and round.t % self.interval == 0:
            self._rank_tiers(round)
        tier = self.tier[i].astype(np.int64)
        probabilities = self._probabilities(tier)
        if not probabilities.any():
            scores = np.zeros(len(i))
            return Cohort(round.top(scores), why=Why(i, scores, note="random: no client reported its speed"))
        chosen = int(round.rng.choice(self.tiers, p=probabilities))
        if self.policy == "adaptive":
            self.credits[chosen] = max(self.credits[chosen] - 1, 0)
        scores = np.where(tier < 0, -float(self.tiers), -np.abs(tier.astype(np.float64) - chosen))
        terms = {
            "tier": tier.astype(np.float64),
            "probability of its tier": np.where(tier < 0, 0.0, probabilities[tier]),
        }
        note = f"tier {chosen} of {self.tiers}, chosen with probability {probabilities[chosen]:.4g}"
        return Cohort(round.top(scores), why=Why(i, scores, terms, note))

    def _form_tiers(self, round: Round) -> None:
        """Sort all clients with a known time into tiers if one of them has no tier yet; ties are random."""
        seconds = times(round, self.said)
        known = np.flatnonzero(np.isfinite(seconds))
        if (self.tier[known] >= 0).all():
            return
        order = known[np.lexsort((round.rng.random(len(known)), seconds[known]))]
        self.tier[order] = np.arange(len(order)) * self.tiers // len(order)

    def _rank_tiers(self, round: Round) -> None:
        """Ask for accuracies, and set the probabilities of the tiers with credit."""
        credit = self.credits > 0
        asked = round.available[(self.tier[round.available] >= 0) & credit[self.tier[round.available]]]
        answers = round.ask(LocalAccuracy(), asked)
        known = np.isfinite(answers)
        counts = np.bincount(self.tier[asked[known]], minlength=self.tiers)
        sums = np.bincount(self.tier[asked[known]], weights=answers[known], minlength=self.tiers)
        self.accuracy[counts > 0] = (sums / np.maximum(counts, 1))[counts > 0]
        self.wanted = by_accuracy(self.accuracy, credit, round.rng)

    def _probabilities(self, tier: Indices) -> Values:
        """Probability of each tier with available clients and credit, [tiers].

        If no tier with available clients has credit, they all have the same probability; if no available client has a tier, all are 0.
        """
        nonempty = np.bincount(tier[tier >= 0], minlength=self.tiers) > 0
        probabilities = np.where(nonempty, self.wanted, 0.0)
        if self.policy == "adaptive":
            probabilities = np.where(self.credits > 0, probabilities, 0.0)
        if not probabilities.any():
            probabilities = nonempty.astype(np.float64)
        shares: Values = probabilities / max(probabilities.sum(), 1e-300)
        return shares


def by_accuracy(accuracy: Values, credit: NDArray[np.bool_], rng: np.random.Generator) -> Values:
    """Probabilities of the tiers, (n − rank)/D for the n tiers with credit and 0 for the others; equal if no tier has credit.

    Args:
        accuracy: mean accuracy of each tier, [tiers]; NaN if unknown, which ranks first.
        credit: whether each tier has credit, [tiers].
        rng: random generator for ties.
    """
    n = int(np.count_nonzero(credit))
    if n == 0:
        return np.full(len(accuracy), 1 / len(accuracy))
    unknown_first = np.where(np.isnan(accuracy), -np.inf, accuracy)
    order = np.lexsort((rng.random(len(accuracy)), unknown_first))
    probabilities = np.zeros(len(accuracy))
    probabilities[order[credit[order]]] = np.arange(n, 0, -1) / (n * (n + 1) / 2)
    return probabilities
