"""Greedy utility per time: clients rich in the classes that the global model predicts worst, per second of their time.

    need_c  = 1 − acc_c for the ``weakest_w`` classes with the lowest validation accuracy, else 0
    u_i     = Σ_c need_c · h_{i,c} / Σ_c h_{i,c}
    score_i = u_i / T̂_i;   S_t = the top k

T̂_i is the last measured time of client i; before that it is proportional to N_i, on the scale (median of T/N) of the
clients that were measured. Before the first validation, and when every score is 0 (nobody has the class), the cohort is
a uniform k-subset. The source reports that this makes the model oscillate.

X86 report, section 4.1, states the idea; the formula is ours.
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.inputs import Census, Outcome, Round
from fedcohort.selection.ranking import top
from fedcohort.selection.selector import Selector
from fedcohort.selection.speed import by_size

__all__ = ["UtilityTime"]


@parameters
class UtilityTime(Selector):
    """k clients with the most of the weakest classes per second."""

    card: ClassVar[Card] = Card(
        source="X86 report, section 4.1 (idea)",
        status="ours",
        asks="the label histogram, once",
        discloses="its label histogram",
        knows="label histograms and durations; a validation set",
        cost="O(mK) + one validation per class",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"histogram", "validation"})

    weakest_w: Annotated[int, Ge(1)] = 1
    """Number of classes that count as weak."""
    use_time: bool = True
    """Divide the utility by the time of the client; false ranks by utility alone."""
    strength: Literal["fraction", "count"] = "fraction"
    """What a client has of a class: its fraction of the client's samples, or their count."""

    target_class: Annotated[int, Ge(0)] | None = None
    """Repair this class in every round instead of the weakest ones."""

    def setup(self, census: Census) -> None:
        """No class accuracy is known yet."""
        super().setup(census)
        if census.histogram is None:
            raise UsageError(
                "utility_time: the census has no label histograms; it needs them to know who has which class"
            )
        if self.target_class is not None:
            having = np.flatnonzero(census.histogram.sum(axis=0))
            if self.target_class not in having:
                raise UsageError(
                    f"selection.target_class = {self.target_class}: no client has samples of it; "
                    f"classes that clients have: {having.tolist()}"
                )
        self.class_accuracy = np.full(census.histogram.shape[1], np.nan)

    def select(self, round: Round) -> Cohort:
        """The top k by utility per second, or a uniform k-subset when nobody has any utility."""
        measured = np.flatnonzero(np.isfinite(self.class_accuracy))
        weakest = np.sort(measured[top(-self.class_accuracy[measured], self.weakest_w, round.rng)])
        if self.target_class is not None:
            weakest = np.intersect1d(measured, [self.target_class])
        utility = self._utility(weakest, round.available)
        seconds = by_size(round, self.census.num_samples)
        scores = utility / seconds if self.use_time else utility
        why = {"utility": utility, "seconds": seconds}
        if len(measured) == 0:
            clients, note = round.sample(round.k), "random: no validation yet"
        elif not scores.any():
            clients, note = round.sample(round.k), f"random: nobody has what classes {weakest.tolist()} need"
        else:
            clients, note = round.top(scores), f"weakest classes {weakest.tolist()}"
        return Cohort(clients, why=Why(round.available, scores, why, note))

    def observe(self, outcome: Outcome) -> None:
        """Keep the latest accuracy of every class that was validated."""
        latest = outcome.class_accuracy
        self.class_accuracy = np.where(np.isfinite(latest), latest, self.class_accuracy)

    def _utility(self, weakest: Indices, clients: Indices) -> Values:
        histogram = self.census.histogram
        assert histogram is not None  # setup saw to it
        utility: Values = histogram[np.ix_(clients, weakest)] @ (1 - self.class_accuracy[weakest])
        if self.strength == "fraction":
            utility /= np.maximum(histogram.sum(axis=1)[clients], 1)
        return utility
