"""Describe a federation before training: data, wrong labels, speed and availability of each client."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedcohort.core.arrays import Indices, Values
from fedcohort.federation.data.datasets import Dataset
from fedcohort.federation.federation import Federation
from fedcohort.federation.partition import Partition, PartitionReport, describe
from fedcohort.federation.position_labels import by_position
from fedcohort.federation.simulated_clock import Clock

__all__ = ["Survey", "names_of_clients", "portrait", "survey"]

MAX_ROUNDS = 100
"""Largest number of rounds over which availability is averaged."""

MAX_COUNTS = 2_000_000
"""Largest number of class counts (m·K) that a run stores."""


@dataclass(frozen=True)
class Survey:
    """A description of every client of a federation.

    Attributes:
        report: the partition, with the clients' labels, including wrong ones; its ``effective_alpha`` is computed from the labels
            before noise.
        held_out: number of samples in each client's held-out part, int64 [m].
        wrong_labels: share of wrong labels of each client, float64 [m]; all 0 without label noise.
        time: simulated time of each client in round 1 for nominal work and one model down and up, float64 [m].
        sending: the part of ``time`` that is communication, float64 [m].
        shift: how each client's samples differ, in words; empty without feature shift.
        presence: share of the rounds in which each client is available, float64 [m].
        names: the clients' names in the data, if they are natural clients and the data name them; otherwise empty.
    """

    report: PartitionReport
    held_out: Indices
    wrong_labels: Values
    time: Values
    sending: Values
    shift: list[str]
    presence: Values
    names: tuple[str, ...] = ()


def survey(
    labels: np.ndarray,
    split: Partition,
    federation: Federation,
    clock: Clock,
    rounds: int,
    shift: Sequence[str] = (),
) -> Survey:
    """Describe a federation.

    Args:
        labels: labels of the data set's training samples before noise, int64 [N] or [N, L].
        split: partition of these samples among the clients.
        federation: the clients.
        clock: speed and availability of the clients.
        rounds: number of rounds of the experiment.
        shift: how each client's samples differ, in words.
    """
    alpha = describe(*by_position(labels, split), federation.num_classes).effective_alpha
    if federation.noise is not None:
        labels = labels.copy()
        labels[split.order] = federation.noise.noisy
    report = describe(*by_position(labels, split), federation.num_classes)
    dropped = len(labels) - len(split.order)
    return Survey(
        report=replace(report, sizes=split.sizes, dropped=dropped, effective_alpha=alpha),
        held_out=federation.num_held_out,
        wrong_labels=_wrong_labels(federation),
        time=clock.nominal(1),
        sending=clock.sending(1),
        shift=list(shift),
        presence=_presence(clock, federation.num_clients, min(rounds, MAX_ROUNDS)),
    )


def names_of_clients(dataset: Dataset, split: Partition) -> tuple[str, ...]:
    """The name of each client in the data; empty if the data have no names, or clients have samples of several of them.

    It is also empty if the names are the clients' numbers.
    """
    if not dataset.client_names or dataset.writers is None or not split.sizes.all():
        return ()
    writers = dataset.writers[split.order]
    first = writers[np.cumsum(split.sizes) - split.sizes]
    if not np.array_equal(writers, np.repeat(first, split.sizes)):
        return ()
    names = tuple(dataset.client_names[number] for number in first)
    return () if all(name == str(i) for i, name in enumerate(names)) else names


def portrait(federation: Federation, clock: Clock, rounds: int) -> dict[str, np.ndarray]:
    """The columns that a run's record stores about its clients, one row per client, so that charts need no data set.

    The columns are ``samples`` and ``held_out`` (int64 [m]); ``wrong_labels``, ``time``, ``sending`` and ``presence`` (float64 [m]) as
    in :class:`Survey`; and the class counts of the labels that the clients train on, ``counts`` (int32 [m, K]), up to
    :data:`MAX_COUNTS` numbers. In large federations, ``presence`` is averaged over fewer rounds, but at least one.
    """
    m = federation.num_clients
    counted = max(1, min(rounds, MAX_ROUNDS, MAX_COUNTS // max(m, 1)))
    columns: dict[str, np.ndarray] = {
        "samples": federation.num_samples,
        "held_out": federation.num_held_out,
        "wrong_labels": _wrong_labels(federation),
        "time": clock.nominal(1),
        "sending": clock.sending(1),
        "presence": _presence(clock, m, counted),
    }
    if m * federation.num_classes <= MAX_COUNTS:
        columns["counts"] = federation.histogram().astype(np.int32)
    return columns


def _wrong_labels(federation: Federation) -> Values:
    """Share of wrong labels of each client, in its training part and its held-out part together, float64 [m]."""
    m = federation.num_clients
    if federation.noise is None:
        return np.zeros(m)
    sizes = np.diff(federation.offsets)
    owner = np.repeat(np.arange(m), sizes)
    return np.bincount(owner, weights=federation.noise.flipped, minlength=m) / np.maximum(sizes, 1)


def _presence(clock: Clock, num_clients: int, rounds: int) -> Values:
    """Share of the first ``rounds`` rounds in which each client is available, float64 [m]."""
    available = np.zeros(num_clients)
    for t in range(1, rounds + 1):
        available[clock.available(t)] += 1
    return available / rounds
