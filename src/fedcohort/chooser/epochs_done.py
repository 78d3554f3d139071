"""For how many epochs clients have trained in a round of a server outside simulations."""

import numpy as np
from numpy.typing import ArrayLike

from fedcohort.core.arrays import Values
from fedcohort.selection import Cohort
from fedcohort.selection.cohort import MORE_WORK_BY_LOSS, requested_epochs

__all__ = ["epochs_done"]


def epochs_done(cohort: Cohort, used: ArrayLike, epochs: int) -> Values:
    """The epochs of each client, float64 [n]. Divided by those of nominal work, they are its work, as in a simulation.

    If ``cohort.stop`` can end the training before ``cohort.epochs``, the epochs are those that the client reports; they are the
    maximum if it reports none, or an impossible number. An epoch with samples drawn by their loss counts as 4/3.

    Args:
        cohort: the cohort.
        used: number of epochs that each client reports, aligned with the cohort; NaN if it reports none.
        epochs: epochs of nominal work.
    """
    factor = 1.0 if cohort.sampling == "shuffled" else MORE_WORK_BY_LOSS
    requested = requested_epochs(cohort, epochs)
    if cohort.stop is None:
        return requested
    reported = np.asarray(used, dtype=np.float64) * factor
    return np.where((reported > 0) & (reported <= requested), reported, requested)
