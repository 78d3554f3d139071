"""TiFL: clients are sorted into tiers of equal speed, and a cohort comes from one tier, so that nobody waits for the slow.

Clients are asked once how long they will need, and cut into ``tiers`` tiers of equal size, 0 the fastest; later, times as measured.
Each round draws a tier, and k of its available clients uniformly; if they are fewer, the nearest tiers fill up.

* ``static``: fixed probabilities of the tiers.
* ``adaptive``: tier j may be chosen a limited number of times, its credit, and fast tiers have more. Every ``interval`` rounds the
  available clients of the n tiers with credit are asked for the accuracy of the model on their data, and, ranked by the mean
  accuracy of the tier, the lowest first,

      p = (n − rank)/D,   D = n(n + 1)/2,   rank = 0 … n − 1

  so that tiers that the model serves badly are chosen more often. A tier of which no accuracy is known counts as served worst. When
  all credits are used up, every tier is equally likely.

Clients that do not say how fast they are belong to no tier, and take part only when the others are not enough.

Chai et al., "TiFL: A Tier-based Federated Learning System", HPDC 2020, arXiv:2001.09249; code WwZzz/easyFL,
flgo/algorithm/TiFL.py. The size of the credits is not stated there; ours is credit·(tiers − j) for tier j.
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.inputs import Census, Round
from fedcohort.selection.questions import LocalAccuracy, Speed
from fedcohort.selection.selector import Selector
from fedcohort.selection.speed import ask_speed, nobody_said, times

__all__ = ["TiFL"]


@parameters
class TiFL(Selector):
    """k clients of one tier of equally fast ones; tiers that the model serves badly come more often."""

    card: ClassVar[Card] = Card(
        source="Chai et al. 2020, arXiv:2001.09249; code WwZzz/easyFL, flgo/algorithm/TiFL.py",
        status="ours",
        asks="every client for its speed, once; every interval rounds all for the model's accuracy (m downloads, m forward passes)",
        discloses=f"{Speed.reveals}; {LocalAccuracy.reveals}",
        knows="durations",
        cost="O(m), O(m log m) when somebody is new",
    )

    policy: Literal["adaptive", "static"] = "adaptive"
    """How a tier is drawn: by accuracy and credits, or with fixed probabilities."""
    tiers: Annotated[int, Ge(1), Le(100)] = 5
    """Number of tiers."""
    probabilities: list[Annotated[float, Ge(0)]] | None = None
    """Of the tiers, the fastest first, for the static policy; none given means that all are equally likely."""
    interval: Annotated[int, Ge(1)] = 10
    """Rounds after which the adaptive policy looks at the tiers' accuracies again."""
    credit: Annotated[int, Ge(1)] = 100
    """How often the slowest tier may be chosen under the adaptive policy; the j-th slowest j times as often."""

    def setup(self, census: Census) -> None:
        """Nobody is in a tier."""
        super().setup(census)
        given = self.probabilities
        if given is not None and (len(given) != self.tiers or sum(given) <= 0):
            raise UsageError(
                f"selection.probabilities = {given}: needs one number for each of selection.tiers = {self.tiers}, not all of them 0"
            )
        self.said = nobody_said(census.num_clients)
        self.tier = np.full(census.num_clients, -1, dtype=np.int8)
        self.accuracy = np.full(self.tiers, np.nan)
        self.credits = self.credit * np.arange(self.tiers, 0, -1)
        self.wanted = np.ones(self.tiers) if given is None else np.array(given, dtype=np.float64)
        self.wanted = self.wanted / self.wanted.sum()

    def select(self, round: Round) -> Cohort:
        """Draw a tier; then its clients, and those of the nearest tiers if they are not enough."""
        i = round.available
        ask_speed(round, self.said, i[self.tier[i] < 0])
        self._sort(round)
        if self.policy == "adaptive" and round.t % self.interval == 0:
            self._look(round)
        tier = self.tier[i].astype(np.int64)
        probabilities = self._probabilities(tier)
        if not probabilities.any():
            scores = np.zeros(len(i))
            return Cohort(round.top(scores), why=Why(i, scores, note="random: nobody says how fast it is"))
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

    def _sort(self, round: Round) -> None:
        """Cut the clients into tiers anew when somebody has become known; equally fast ones are put in order at random."""
        seconds = times(round, self.said)
        known = np.flatnonzero(np.isfinite(seconds))
        if (self.tier[known] >= 0).all():
            return
        order = known[np.lexsort((round.rng.random(len(known)), seconds[known]))]
        self.tier[order] = np.arange(len(order)) * self.tiers // len(order)

    def _look(self, round: Round) -> None:
        """Ask for accuracies, and rank the tiers that have credit."""
        credit = self.credits > 0
        asked = round.available[(self.tier[round.available] >= 0) & credit[self.tier[round.available]]]
        answers = round.ask(LocalAccuracy(), asked)
        fine = np.isfinite(answers)
        counts = np.bincount(self.tier[asked[fine]], minlength=self.tiers)
        sums = np.bincount(self.tier[asked[fine]], weights=answers[fine], minlength=self.tiers)
        self.accuracy[counts > 0] = (sums / np.maximum(counts, 1))[counts > 0]
        self.wanted = by_accuracy(self.accuracy, credit, round.rng)

    def _probabilities(self, tier: Indices) -> Values:
        """Of each tier, among those with an available client and, if any such has some, credit; all 0 if there is none."""
        there = np.bincount(tier[tier >= 0], minlength=self.tiers) > 0
        probabilities = np.where(there, self.wanted, 0.0)
        if self.policy == "adaptive":
            probabilities = np.where(self.credits > 0, probabilities, 0.0)
        if not probabilities.any():
            probabilities = there.astype(np.float64)
        shares: Values = probabilities / max(probabilities.sum(), 1e-300)
        return shares


def by_accuracy(accuracy: Values, credit: NDArray[np.bool_], rng: np.random.Generator) -> Values:
    """(n − rank)/D for the n tiers with ``credit``, the lowest accuracy first; all equal if none has any."""
    n = int(np.count_nonzero(credit))
    if n == 0:
        return np.full(len(accuracy), 1 / len(accuracy))
    worst_first = np.where(np.isnan(accuracy), -np.inf, accuracy)
    order = np.lexsort((rng.random(len(accuracy)), worst_first))
    probabilities = np.zeros(len(accuracy))
    probabilities[order[credit[order]]] = np.arange(n, 0, -1) / (n * (n + 1) / 2)
    return probabilities
