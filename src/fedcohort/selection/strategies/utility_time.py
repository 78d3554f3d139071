"""Greedy utility per time: clients with many samples of the classes that the global model predicts worst, per second of their time.

    need_c  = 1 − acc_c for the ``weakest_w`` classes with the lowest validation accuracy, else 0
    u_i     = Σ_c need_c · h_{i,c} / Σ_c h_{i,c}
    score_i = u_i / T̂_i;   S_t = the top k

T̂_i is the last measured time of client i. Before it is measured, T̂_i is N_i times the median of T/N over the measured clients.
Before the first validation, and if every score is 0 (no available client has the classes), the cohort is a uniform k-subset. The
source reports that the model oscillates with this strategy.

X86 report, section 4.1, states the idea; the formula is ours.
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card, LabelKind
from fedcohort.selection.client_speed import by_size
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.ranking import top
from fedcohort.selection.selector import Selector
from fedcohort.selection.strategy_inputs import Census, Outcome, Round

__all__ = ["UtilityTime"]


@parameters
class UtilityTime(Selector):
    """k clients with the most data of weak classes per second. The score is the share of the classes that the model predicts
    worst, divided by the client's time.
    """

    card: ClassVar[Card] = Card(
        source="X86 report, section 4.1 (idea)",
        status="ours",
        asks="all clients for their label histogram, once",
        discloses="its label histogram",
        knows="label histograms and durations; a validation set",
        cost="O(mK) + one validation per class",
        score="accuracies of classes, between 0 and 1; classes only",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"histogram", "validation"})

    weakest_w: Annotated[int, Ge(1)] = 1
    """Number of classes, those with the lowest accuracy, that count as weak."""
    use_time: bool = True
    """Divide the utility by the time of the client; if false, rank by utility only."""
    strength: Literal["fraction", "count"] = "fraction"
    """Amount h of a class: fraction of the client's samples, or their count."""

    target_class: Annotated[int, Ge(0)] | None = None
    """Class that counts as weak in every round, instead of those with the lowest accuracy."""

    def refuses(self, labels: LabelKind) -> str:
        """Numeric labels."""
        return "it compares the accuracies of classes" if labels == "numbers" else ""

    def setup(self, census: Census) -> None:
        """Start without class accuracies."""
        super().setup(census)
        if census.histogram is None:
            raise UsageError(
                "selection.name = 'utility_time': it computes the utility of clients from label histograms; give Census.histogram"
            )
        if self.target_class is not None:
            classes = np.flatnonzero(census.histogram.sum(axis=0))
            if self.target_class not in classes:
                raise UsageError(
                    f"selection.target_class = {self.target_class}: no client has samples of it; "
                    f"classes with samples: {classes.tolist()}"
                )
        self.class_accuracy = np.full(census.histogram.shape[1], np.nan)

    def select(self, round: Round) -> Cohort:
        """Select the top k by utility per second, or a uniform k-subset if no available client has any utility."""
        measured = np.flatnonzero(np.isfinite(self.class_accuracy))
        weakest = np.sort(measured[top(-self.class_accuracy[measured], self.weakest_w, round.rng)])
        if self.target_class is not None:
            weakest = np.intersect1d(measured, [self.target_class])
        utility = self._utility(weakest, round.available)
        seconds = by_size(round, self.census.num_samples)
        scores = utility / seconds if self.use_time else utility
        terms = {"utility": utility, "seconds": seconds}
        if len(measured) == 0:
            clients, note = round.sample(round.k), "random: no validation yet"
        elif not scores.any():
            clients, note = round.sample(round.k), f"random: no utility for the weakest classes {weakest.tolist()}"
        else:
            clients, note = round.top(scores), f"weakest classes {weakest.tolist()}"
        return Cohort(clients, why=Why(round.available, scores, terms, note))

    def observe(self, outcome: Outcome) -> None:
        """Store the latest accuracy of every class that was validated.

        Raises:
            UsageError: there is not one accuracy for each class.
        """
        latest = outcome.class_accuracy
        if latest.shape != self.class_accuracy.shape:
            raise UsageError(
                f"class_accuracy: has the shape {list(latest.shape)}; UtilityTime learns from the accuracy of each class on a "
                f"validation set, so give one number for each of the {len(self.class_accuracy)} classes"
            )
        self.class_accuracy = np.where(np.isfinite(latest), latest, self.class_accuracy)

    def _utility(self, weakest: Indices, clients: Indices) -> Values:
        """u_i of these clients, float64 [n]."""
        histogram = self.census.histogram
        assert histogram is not None  # checked by ``setup``
        utility: Values = histogram[np.ix_(clients, weakest)] @ (1 - self.class_accuracy[weakest])
        if self.strength == "fraction":
            utility /= np.maximum(histogram.sum(axis=1)[clients], 1)
        return utility
