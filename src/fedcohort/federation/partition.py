"""Divide the training samples among the clients.

A partition follows a rule: a ``@parameters`` class with a method :meth:`~Rule.assign` that gives every sample a client. The built-in
rules are in :mod:`fedcohort.federation.partitions`, one file each. :func:`partition` contains what all rules share: the checks, the
redraw until every client has ``min_size`` samples, and the order of samples inside a client. A partition is computed once, from the
experiment's seed.

>>> labels = np.repeat(np.arange(10), 100)
>>> split = partition(DirichletClass(alpha=0.5), labels, num_clients=8, seed=0)
>>> int(split.sizes.sum()), int(split.sizes.min()) >= 10
(1000, True)
"""

import math
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np

from fedcohort.core import random_streams
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.user_code.method_signatures import check_methods
from fedcohort.core.user_code.unseeded_draws import warning_of_draws
from fedcohort.federation.infeasible_partition import Infeasible
from fedcohort.federation.partition_chance import (
    AssignsOnDemand,
    DrawsSizes,
    can_still_succeed,
    defines_with_assign,
    drawn_sizes,
    is_hopeless,
    many_are_short,
)
from fedcohort.federation.partitions.dirichlet_class import DirichletClass
from fedcohort.federation.partitions.iid import Iid
from fedcohort.federation.partitions.pools import Draw, grouped

__all__ = [
    "AssignmentError",
    "DirichletClass",
    "Iid",
    "Indices",
    "Partition",
    "PartitionReport",
    "Rule",
    "describe",
    "draw",
    "effective_alpha",
    "partition",
]

MAX_DRAWS = 1_000
"""Number of draws after which a setting counts as infeasible."""

MAX_PLACED = 300_000_000
"""Number of samples placed in all draws after which a setting counts as infeasible; this takes about a minute."""

MANY_SAMPLES = 100_000
"""Number of samples from which sizes are estimated before the first draw, which takes longer than the estimate."""

REPEATS = 100
"""Number of draws of sizes in the estimate of the chance of a success."""


class AssignmentError(UsageError):
    """A rule of a user returned something else than one client for each sample."""


class Rule(Protocol):
    """The contract of a partition rule. Its parameters are dataclass fields, so write it as a ``@parameters`` class."""

    @property
    def evens_out(self) -> str | None:
        """Name of a parameter that makes client sizes more equal when it grows, such as ``"beta"``, or when it shrinks, with a minus:
        ``"-sigma"``. None if there is no such parameter."""

    @property
    def min_size(self) -> int:
        """Smallest number of samples per client; :func:`partition` draws again until every client has at least this number."""

    def assign(
        self, labels: Indices, num_clients: int, rng: np.random.Generator, writers: Indices | None = None
    ) -> Indices:
        """Assign every sample to a client.

        Args:
            labels: class of each sample, int64 [N], ≥ 0.
            num_clients: number of clients m, between 1 and N.
            rng: source of all random numbers.
            writers: writer of each sample, int64 [N]; None if the data set has no writers.

        Returns:
            Client of each sample, int64 [N], 0…m−1; −1 for a sample that no client gets.

        Raises:
            UsageError: no draw can satisfy the rule with these data; the message names the parameter and what works.
        """


@dataclass(frozen=True, eq=False)
class Partition:
    """The samples of every client, packed.

    Attributes:
        order: indices of the kept samples sorted by client and shuffled inside each client, int64 [kept].
        offsets: client i holds ``order[offsets[i]:offsets[i + 1]]``, int64 [m + 1].
    """

    order: Indices
    offsets: Indices

    @property
    def num_clients(self) -> int:
        """Number of clients m."""
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Indices:
        """Samples of each client, int64 [m]."""
        return np.diff(self.offsets)

    def samples(self, client: int) -> Indices:
        """Indices of one client's samples (a view)."""
        if not 0 <= client < self.num_clients:
            raise IndexError(f"client {client}: there are clients 0 to {self.num_clients - 1}")
        return self.order[self.offsets[client] : self.offsets[client + 1]]


def partition(
    rule: Rule, labels: np.ndarray, num_clients: int, seed: int, writers: np.ndarray | None = None
) -> Partition:
    """Divide samples among clients by ``rule``; the same seed gives the same partition.

    Args:
        rule: one of :data:`~fedcohort.federation.partitions.PARTITIONS`, made with its parameters, or a rule of your own.
        labels: class of each sample, integers [N].
        num_clients: number of clients m.
        seed: the experiment's seed.
        writers: writer of each sample, integers [N], for rules that group by writer.

    Raises:
        UsageError: fewer samples than clients, a rule that does not suit these data, or no draw that gives every client ``min_size``
            samples. The message names the parameter, its value and what works.
    """
    check_methods(type(rule), Rule)
    labels = _whole_numbers(labels, "labels")
    if writers is not None:
        writers = _whole_numbers(writers, "writers")
        if len(writers) != len(labels):
            raise UsageError(f"writers: {len(writers)} writers for {len(labels)} labels; give one writer per sample")
    if num_clients < 1:
        raise UsageError(f"federation.clients = {num_clients}: use at least 1")
    if num_clients > len(labels):
        raise UsageError(
            f"federation.clients = {num_clients}: there are only {len(labels)} samples; "
            f"use at most {len(labels)}, so that each client can have one"
        )
    if not isinstance(rule.min_size, int):
        raise UsageError(
            f"federation.partition: {type(rule).__name__}.min_size is {rule.min_size!r}; set an integer, such as 1"
        )
    if rule.min_size * num_clients > len(labels):
        raise UsageError(
            f"federation.partition.min_size = {rule.min_size}: {num_clients} clients cannot have that many of "
            f"{len(labels)} samples each; use at most {len(labels) // num_clients}, or federation.clients of at most "
            f"{len(labels) // rule.min_size}"
        )
    tries = min(MAX_DRAWS, max(MAX_PLACED // len(labels), 3))
    clients, smallest = draw(rule, labels, num_clients, seed, writers, tries)
    if clients is None:
        raise Infeasible(draw, rule, labels, num_clients, seed, writers, smallest).error()
    shuffled = random_streams.rng(seed, "partition-order").permutation(len(labels))
    by_client, starts = grouped(shuffled, clients[shuffled] + 1, num_clients + 1)
    dropped = int(starts[1])  # samples that no client gets (−1) come first
    return Partition(order=by_client[dropped:], offsets=starts[1:] - dropped)


def draw(
    rule: Rule, labels: Indices, num_clients: int, seed: int, writers: Indices | None, tries: int
) -> tuple[Indices | None, int]:
    """The first assignment in which every client has ``min_size`` samples, or None; and the largest minimum size of all draws."""
    rng = random_streams.rng(seed, "partition")
    best, short = 0, []
    for attempt in range(1, tries + 1):
        if attempt == (1 if len(labels) >= MANY_SAMPLES else 2) and _is_hopeless(
            rule, labels, num_clients, seed, tries
        ):
            break
        drawn = _one_draw(rule, labels, num_clients, rng, writers)
        best = max(best, int(drawn.sizes.min()))
        if best >= rule.min_size:
            return drawn.assign(), best
        short.append(int(np.count_nonzero(drawn.sizes < rule.min_size)))
        if not can_still_succeed(short, num_clients, tries - attempt):
            break
    return None, best


def _one_draw(rule: Rule, labels: Indices, num_clients: int, rng: np.random.Generator, writers: Indices | None) -> Draw:
    """The next draw; samples are assigned on demand if the rule allows it."""
    if defines_with_assign(rule, "assign_on_demand"):
        drawn: Draw = cast("AssignsOnDemand", rule).assign_on_demand(labels, num_clients, rng)
        return drawn
    with warning_of_draws("federation.partition", rule):
        clients = rule.assign(labels, num_clients, rng, writers)
    _check_assignment(rule, clients, len(labels), num_clients)
    return Draw(np.bincount(clients + 1, minlength=num_clients + 1)[1:], lambda: clients)


def _is_hopeless(rule: Rule, labels: Indices, num_clients: int, seed: int, tries: int) -> bool:
    """Whether the sizes alone, drawn without assigning samples, rule out a success; False if the rule cannot draw them."""
    class_sizes = np.bincount(labels)
    if many_are_short(rule, class_sizes, num_clients, seed, rule.min_size):
        return True
    sizes = drawn_sizes(rule, class_sizes, num_clients, seed, REPEATS)
    return sizes is not None and is_hopeless(
        sizes, rule.min_size, tries, heavy_tails=cast("DrawsSizes", rule).heavy_tails
    )


def _check_assignment(rule: Rule, clients: object, num_samples: int, num_clients: int) -> None:
    """Refuse what a rule of a user returned if it is not one client for each sample."""
    where = f"federation.partition: {type(rule).__name__}.assign returned"
    if not isinstance(clients, np.ndarray):
        raise AssignmentError(f"{where} {type(clients).__name__}; it must return int64 [{num_samples}]")
    if clients.shape != (num_samples,) or clients.dtype != np.int64:
        raise AssignmentError(f"{where} {clients.dtype} {list(clients.shape)}; it must return int64 [{num_samples}]")
    if clients.min() < -1 or clients.max() >= num_clients:
        raise AssignmentError(f"{where} clients outside −1…{num_clients - 1}")


def _whole_numbers(values: np.ndarray, name: str) -> Indices:
    values = np.asarray(values)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        given = f"{values.dtype} {list(values.shape)}"
        raise UsageError(f"{name}: use one integer per sample (integers [N]), not {given}")
    if len(values) and values.min() < 0:
        raise UsageError(f"{name}: {values.min()} is negative; use integers from 0")
    return values.astype(np.int64, copy=False)


# --- description of a partition ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PartitionReport:
    """How much the clients of a partition differ.

    Attributes:
        counts: samples of each class at each client, int64 [m, K].
        sizes: samples of each client N_i, int64 [m].
        dominant: each client's most frequent class (ties: the lowest), int64 [m]; −1 without samples.
        dominant_share: share of that class in the client's samples, float64 [m]; NaN without samples.
        num_classes: number of classes in the client's samples, int64 [m].
        distance: total-variation distance ½ Σ_c |h_{i,c}/N_i − n_c/N| to the label distribution of all kept samples, float64 [m],
            from 0 (the same mixture) to 1; NaN without samples.
        dropped: number of samples that no client holds.
        effective_alpha: alpha of a per-client Dirichlet law with the same label skew, see :func:`effective_alpha`.
    """

    counts: Indices
    sizes: Indices
    dominant: Indices
    dominant_share: Values
    num_classes: Indices
    distance: Values
    dropped: int
    effective_alpha: float


def describe(labels: np.ndarray, partition: Partition, num_classes: int) -> PartitionReport:
    """Describe how the clients of a partition differ.

    Args:
        labels: class of each sample, integers [N]; they may differ from the labels that were partitioned, as after label noise.
        partition: the partition.
        num_classes: number of classes K; a class may have no samples.
    """
    labels = _whole_numbers(labels, "labels")
    if len(labels) and labels.max() >= num_classes:
        raise UsageError(
            f"labels: the largest is {labels.max()}; with {num_classes} classes, use 0 to {num_classes - 1}"
        )
    m, sizes = partition.num_clients, partition.sizes
    if len(partition.order) and partition.order.max() >= len(labels):
        raise UsageError(f"labels: there are {len(labels)}, but the partition holds sample {partition.order.max()}")
    cells = np.repeat(np.arange(m) * num_classes, sizes) + labels[partition.order]
    counts = np.bincount(cells, minlength=m * num_classes).reshape(m, num_classes).astype(np.int64, copy=False)
    total = counts.sum(axis=0)
    size = np.where(sizes > 0, sizes, np.nan)
    distance = np.zeros(m)
    for c, share in enumerate((total / max(total.sum(), 1)).tolist()):  # class by class, which avoids a second matrix
        distance += 0.5 * np.abs(counts[:, c] / size - share)
    return PartitionReport(
        counts=counts,
        sizes=sizes,
        dominant=np.where(sizes > 0, counts.argmax(axis=1), -1),
        dominant_share=counts.max(axis=1) / size,
        num_classes=np.count_nonzero(counts, axis=1).astype(np.int64, copy=False),
        distance=distance,
        dropped=len(labels) - len(partition.order),
        effective_alpha=effective_alpha(counts),
    )


def effective_alpha(counts: Indices) -> float:
    """Concentration of the Dirichlet law with the same label skew: alpha of Dirichlet(alpha·p), p the class shares in all data.

    Two samples of one client are of the same class with probability s = ρ + (1 − ρ) Σ_c p_c², where ρ = 1/(alpha + 1) if the client's
    mixture is Dirichlet(alpha·p), and two samples of different clients with probability Σ_c p_c². Both are estimated by the shares of
    such pairs: s by their mean over the clients with 2 samples or more, so that the small samples of small clients do not count as
    skew. The moment estimate is

        alpha = 1/ρ − 1,    ρ = (s − Σ_c p_c²) / (1 − Σ_c p_c²)

    This is ``alpha_total`` of ``dirichlet_client``; divided by K it is ``alpha_each`` if classes are balanced, and about the alpha
    of ``dirichlet_class`` if there are many clients. The estimate is ours.

    Args:
        counts: samples of each class at each client, int64 [m, K].

    Returns:
        alpha ≥ 0: 0 for single-class clients, inf for clients that differ no more than in a random split; NaN if there is a single
        class, if only one client has samples, or if no client has 2 samples.
    """
    sizes, total = counts.sum(axis=1), counts.sum(axis=0)
    has_pairs, squares = sizes >= 2, np.einsum("ic,ic->i", counts, counts)
    pairs = float(sizes.sum()) ** 2 - float((sizes.astype(np.float64) ** 2).sum())
    same = float((total.astype(np.float64) ** 2).sum()) - float(squares.sum())
    if not has_pairs.any() or same >= pairs:
        return math.nan
    within = float(np.mean((squares - sizes)[has_pairs] / (sizes[has_pairs] * (sizes[has_pairs] - 1.0))))
    between = same / pairs
    rho = (within - between) / (1 - between)
    return 1 / rho - 1 if rho > 0 else math.inf
