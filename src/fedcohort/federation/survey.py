"""What a federation looks like before any training: who holds what, how wrong, how slow, how often there."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedcohort.core.arrays import Indices, Values
from fedcohort.federation.federation import Federation
from fedcohort.federation.partition import Partition, PartitionReport, describe
from fedcohort.federation.systems import Clock

__all__ = ["Survey", "portrait", "survey"]

ROUNDS = 100
"""Rounds over which presence is averaged at most."""

COUNTED = 2_000_000
"""Class counts of a federation with up to this many of them, m·K, are kept with its runs."""


@dataclass(frozen=True)
class Survey:
    """One federation, client by client.

    Attributes:
        report: the partition, with the labels as the clients have them, wrong ones included; its ``effective_alpha`` is that of the
            labels before noise.
        held_out: samples of each client's local validation part, int64 [m].
        wrong_labels: share of wrong labels of each client, float64 [m]; all 0 without label noise.
        time: simulated time of each client for its nominal work and a model down and up in round 1, float64 [m].
        sending: the part of it that is communication, float64 [m].
        shift: how each client's samples differ, in words; empty without feature shift.
        presence: share of the rounds in which each client is available, float64 [m].
    """

    report: PartitionReport
    held_out: Indices
    wrong_labels: Values
    time: Values
    sending: Values
    shift: list[str]
    presence: Values


def survey(
    labels: np.ndarray,
    split: Partition,
    federation: Federation,
    clock: Clock,
    rounds: int,
    shift: Sequence[str] = (),
) -> Survey:
    """Look at a federation.

    Args:
        labels: of the data set's training samples, before noise, int64 [N].
        split: who holds which of them.
        federation: the clients, made of these.
        clock: their speed and presence.
        rounds: of the experiment.
        shift: how each client's samples differ, in words.
    """
    m, noise = federation.num_clients, federation.noise
    alpha = describe(labels, split, federation.num_classes).effective_alpha
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
        report=replace(describe(labels, split, federation.num_classes), effective_alpha=alpha),
        held_out=federation.num_held_out,
        wrong_labels=wrong,
        time=clock.nominal(1),
        sending=clock.sending(1),
        shift=list(shift),
        presence=seen / counted,
    )


def portrait(federation: Federation, clock: Clock, rounds: int) -> dict[str, np.ndarray]:
    """What a run's record keeps of its clients, so that pictures need no data: one row a client, with the labels they train on.

    ``samples`` and ``held_out`` (int64 [m]), ``wrong_labels``, ``time``, ``sending`` and ``presence`` (float64 [m]) as in
    :class:`Survey`, and ``counts`` (int32 [m, K]) up to :data:`COUNTED` numbers. ``presence`` is averaged over fewer rounds in large
    federations, but at least one.
    """
    m = federation.num_clients
    counted = max(1, min(rounds, ROUNDS, COUNTED // max(m, 1)))
    seen = np.zeros(m)
    for t in range(1, counted + 1):
        seen[clock.available(t)] += 1
    wrong = np.zeros(m)
    if federation.noise is not None:
        both = np.diff(federation.offsets)
        owner = np.repeat(np.arange(m), both)
        wrong = np.bincount(owner, weights=federation.noise.flipped, minlength=m) / np.maximum(both, 1)
    facts: dict[str, np.ndarray] = {
        "samples": federation.num_samples,
        "held_out": federation.num_held_out,
        "wrong_labels": wrong,
        "time": clock.nominal(1),
        "sending": clock.sending(1),
        "presence": seen / counted,
    }
    if m * federation.num_classes <= COUNTED:
        facts["counts"] = federation.histogram().astype(np.int32)
    return facts
