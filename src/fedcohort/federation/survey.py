"""What a federation looks like before any training: who holds what, how wrong, how slow, how often there."""

from dataclasses import dataclass

import numpy as np

from fedcohort.arrays import Indices, Values
from fedcohort.federation.federation import Federation
from fedcohort.federation.partition import Partition, PartitionReport, describe
from fedcohort.federation.systems import Clock

__all__ = ["Survey", "survey"]

ROUNDS = 100
"""Rounds over which presence is averaged at most."""


@dataclass(frozen=True)
class Survey:
    """One federation, client by client.

    Attributes:
        report: the partition, with the labels as the clients have them, wrong ones included.
        held_out: samples of each client's local validation part, int64 [m].
        wrong_labels: share of wrong labels of each client, float64 [m]; all 0 without label noise.
        time: simulated time of each client for its nominal work in round 1, float64 [m].
        presence: share of the rounds in which each client is available, float64 [m].
    """

    report: PartitionReport
    held_out: Indices
    wrong_labels: Values
    time: Values
    presence: Values


def survey(labels: np.ndarray, split: Partition, federation: Federation, clock: Clock, rounds: int) -> Survey:
    """Look at a federation.

    Args:
        labels: of the data set's training samples, before noise, int64 [N].
        split: who holds which of them.
        federation: the clients, made of these.
        clock: their speed and presence.
        rounds: of the experiment.
    """
    m, noise = federation.num_clients, federation.noise
    wrong = np.zeros(m)
    if noise is not None:
        labels = labels.copy()
        labels[split.order] = noise.noisy
        owner = np.repeat(np.arange(m), split.sizes)
        wrong = np.bincount(owner, weights=noise.flipped, minlength=m) / np.maximum(split.sizes, 1)
    seen = np.zeros(m)
    counted = min(rounds, ROUNDS)
    for t in range(1, counted + 1):
        seen[clock.available(t)] += 1
    return Survey(
        report=describe(labels, split, federation.num_classes),
        held_out=federation.num_held_out,
        wrong_labels=wrong,
        time=clock.nominal(1),
        presence=seen / counted,
    )
