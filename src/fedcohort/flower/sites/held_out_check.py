"""Whether the end of an owner's file, which is held out, is like the rest of it."""

import numpy as np
from scipy.stats import hypergeom

from fedcohort.core.arrays import Indices

__all__ = ["PRACTICALLY_NEVER", "unlike"]

PRACTICALLY_NEVER = 1e-6
"""Probability below which a difference between both parts is not taken for chance."""


def unlike(labels: Indices, held_out: int) -> tuple[int, int, int] | None:
    """The class whose number among the last samples differs most from what a shuffled file would have.

    In a shuffled file, the number of held-out samples of a class is hypergeometric. The probability of a number that is at least as
    extreme, on its side, is multiplied by the number of classes.

    Args:
        labels: the label of each sample, int64 [n].
        held_out: number of samples at the end that are held out.

    Returns:
        The class, its number of held-out samples and its number of all samples; None if no class differs more than by chance.

    >>> unlike(np.repeat([0, 1], 100), 50)
    (0, 0, 100)
    >>> unlike(np.arange(200) % 2, 50) is None
    True
    """
    if held_out == 0:
        return None
    classes, position, counts = np.unique(labels, return_inverse=True, return_counts=True)
    held = np.bincount(position[len(labels) - held_out :], minlength=len(classes))
    there = hypergeom(len(labels), counts, held_out)
    chance = np.minimum(there.cdf(held), there.sf(held - 1)) * len(classes)
    worst = int(np.argmin(chance))
    if chance[worst] >= PRACTICALLY_NEVER:
        return None
    return int(classes[worst]), int(held[worst]), int(counts[worst])
