"""The partition of data for which none was named: clients that differ as much as the number of samples allows."""

import numpy as np

from fedcohort.federation.partition import draw
from fedcohort.federation.partitions.dirichlet_class import DirichletClass

__all__ = ["default_partition"]

ALPHAS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
"""Concentrations that are tried, from very different to almost equal clients."""
TRIALS = 3
"""Number of independent trials in which a partition must work."""
DRAWS = 10
"""Number of draws of a trial. A partition is drawn up to 1,000 times, so one that works in all trials practically always works."""


def default_partition(labels: np.ndarray, num_clients: int) -> DirichletClass:
    """The Dirichlet partition with the largest ``min_size``, up to its default, and then the smallest ``alpha`` that work.

    The result depends on the labels and the number of clients only, so that all seeds have the same partition.

    Args:
        labels: class of each training sample, int64 [N].
        num_clients: number of clients m, at most N.
    """
    usual = DirichletClass()
    min_size = min(usual.min_size, len(labels) // (2 * num_clients))
    while min_size:
        for alpha in ALPHAS:
            rule = DirichletClass(alpha=alpha, min_size=min_size)
            if _works(rule, labels, num_clients):
                return rule
        min_size //= 2
    return DirichletClass(alpha=1.0, min_size=0)


def _works(rule: DirichletClass, labels: np.ndarray, num_clients: int) -> bool:
    """Whether every trial has a draw that gives each client ``min_size`` samples."""
    return all(draw(rule, labels, num_clients, seed, None, DRAWS)[0] is not None for seed in range(TRIALS))
