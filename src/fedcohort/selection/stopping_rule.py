"""The contract of a stopping rule, which can end a client's training early; it is called after every epoch (``Cohort.stop``).

A rule is a class marked ``@parameters`` with one method, :meth:`StoppingRule.check`. Each client has a new rule in each round: what a
rule keeps on ``self`` is about one training of one client. A strategy names it as plain data,
``Cohort(…, epochs=most, stop={"rule": "conformal", "alpha": 0.1})``. A rule from a user's file, ``"rules.py:Mine"``, or from an
installed package (entry points ``fedcohort.stopping_rules``) is used in the same way. The update's report contains what the last check
reported, and ``epochs``, the number of epochs done. The strategy gets the report in ``admit`` and ``observe``, and it is recorded.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.user_code.method_signatures import check_methods, not_defined

__all__ = ["Progress", "StoppingRule"]


@dataclass(frozen=True)
class Progress:
    """A client's training so far, as input of a stopping rule.

    Attributes:
        epoch: number of epochs done, from 1.
        last: whether this is the last epoch in any case.
        loss: mean mini-batch cross-entropy over the steps of this epoch; NaN without a step.
        held_out: ``held_out()`` returns class probabilities [n, K] of the current model on the samples that the client holds out, and
            their labels [n]; it costs a forward pass over them. n is 0 without ``federation.holdout``.
        before: what the rule reported after each earlier epoch.
        trained: as ``held_out``, on the samples that the client trains on.
        tested: as ``held_out``, on the server's test set, which real clients do not have; only for measures of a simulation.
    """

    epoch: int
    last: bool
    loss: float
    held_out: Callable[[], tuple[Values, Indices]]
    before: Sequence[Mapping[str, float]] = ()
    trained: Callable[[], tuple[Values, Indices]] = lambda: (np.zeros((0, 1)), np.zeros(0, dtype=np.int64))
    tested: Callable[[], tuple[Values, Indices]] = lambda: (np.zeros((0, 1)), np.zeros(0, dtype=np.int64))


class StoppingRule:
    """Decides when a client's training ends; subclasses are ``@parameters`` dataclasses.

    A strategy that names a rule which uses held-out samples declares ``needs = {"holdout"}``.
    """

    def __init_subclass__(cls, **settings: object) -> None:
        """Refuse methods with other arguments, where the class is defined."""
        super().__init_subclass__(**settings)
        check_methods(cls, StoppingRule)

    def check(self, progress: Progress) -> tuple[bool, dict[str, float]]:
        """Decide whether to stop now; also returns what to report if this check is the last one.

        Reports are numbers by name, but not by a name of what every client measures, such as ``loss`` or ``steps``.

        Raises:
            UsageError: a class does not define it.
        """
        raise not_defined(self, StoppingRule.check, "a stopping rule")
