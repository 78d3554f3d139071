"""Label noise: the share of wrong labels of each client (a rate), and the classes they change to (a flip matrix).

A rule is a ``@parameters`` class that extends :class:`LabelNoise` and gives every client a rate ρ_i. A flip matrix M determines the
wrong labels, so that the transition matrix of client i is T_i = (1 − ρ_i)·I + ρ_i·M:

    symmetric             M_cd = 1/(K−1) for d ≠ c
    pairflip              c → (c+1) mod K
    asymmetric_cifar10    truck → automobile, bird → airplane, deer → horse, cat ↔ dog; the other classes stay
    matrix                your own K×K matrix

Classes with M_cc = 1 are not affected: their labels never change, and the rate applies to the labels of the other classes. Noise is
applied after the partition and before a client's data are split. It depends only on the seed and the partition, not on the run.

>>> labels = np.repeat(np.arange(4), 25)
>>> noise = corrupt(Constant(rate=0.3), labels, np.arange(100), np.array([0, 40, 100]), num_classes=4, seed=0)
>>> int(noise.flipped[:40].sum()), int(noise.flipped[40:].sum())
(12, 18)
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray

from fedcohort.core import random_streams
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters
from fedcohort.core.user_code.method_signatures import check_methods, not_defined
from fedcohort.core.user_code.unseeded_draws import warning_of_draws

__all__ = ["Beta", "Constant", "LabelNoise", "NoLabelNoise", "Noise", "SomeClients", "corrupt", "flip_matrix"]

Share = Annotated[float, Ge(0), Le(1)]

CIFAR10 = {9: 1, 2: 0, 4: 7, 3: 5, 5: 3}
"""truck → automobile, bird → airplane, deer → horse, cat ↔ dog."""

ROUND_OFF = 1e-6
"""Largest distance of the sum of a row from 1."""


@parameters
class NoLabelNoise:
    """No label noise."""


@parameters
class LabelNoise:
    """Base of all label noise: which labels are chosen, and what they change to. A subclass adds :meth:`rates`."""

    flip: Literal["symmetric", "pairflip", "asymmetric_cifar10", "matrix"] = "symmetric"
    """What a chosen label changes to: any other class with equal probability (symmetric), the next class (pairflip), a similar
    class of CIFAR-10 (asymmetric_cifar10; only classes that have one), or a class drawn from ``matrix`` (matrix)."""

    matrix: list[list[float]] | None = None
    """For ``flip = "matrix"``: row c holds the probabilities that a chosen label c changes to 0…K−1. The diagonal is the
    probability that the label stays; a class with 1 there is not affected. With ``rate = 1``, this is the complete transition
    matrix."""

    bernoulli: bool = False
    """Choose each affected label independently with probability ρ_i, instead of exactly round(ρ_i·N_i) labels."""

    def __init_subclass__(cls, **settings: object) -> None:
        """Refuse methods with other arguments, where the class is defined."""
        super().__init_subclass__(**settings)
        check_methods(cls, LabelNoise)

    def __post_init__(self) -> None:
        if self.flip == "matrix":
            _check_matrix(self.matrix)
        elif self.matrix is not None:
            raise UsageError(f"federation.label_noise.matrix: requires flip = 'matrix', but flip = {self.flip!r}")

    def rates(self, num_clients: int, rng: np.random.Generator) -> Values:
        """ρ_i of every client, float64 [m], in [0, 1]."""
        raise not_defined(self, LabelNoise.rates, "a label noise")


@parameters
class Beta(LabelNoise):
    """Every client has its own share of wrong labels. It is ρ_i ~ Beta(a, 100 − a), on average a%.

    The standard deviation is √(a·(100 − a)/101)/100: .022 for a = 5, .043 for a = 25. FLASH, arXiv:2402.08769.
    """

    a: Annotated[float, Ge(0), Le(100)] = 10.0
    """Mean rate in percent; 0 changes nothing, 100 changes every affected label."""

    def rates(self, num_clients: int, rng: np.random.Generator) -> Values:
        """One draw per client."""
        if self.a in (0, 100):
            return np.full(num_clients, self.a / 100)
        return rng.beta(self.a, 100 - self.a, num_clients)


@parameters
class Constant(LabelNoise):
    """Every client has the same share of wrong labels."""

    rate: Share = 0.1
    """Share of wrong labels (ρ)."""

    def rates(self, num_clients: int, rng: np.random.Generator) -> Values:
        """ρ for all clients."""
        return np.full(num_clients, self.rate)


@parameters
class SomeClients(LabelNoise):
    """Some clients have the same share of wrong labels. They are drawn once; the labels of all other clients do not change."""

    clients: Share = 0.3
    """Share of clients with wrong labels; the number of clients is rounded."""

    rate: Share = 0.4
    """Rate of those clients (ρ)."""

    def rates(self, num_clients: int, rng: np.random.Generator) -> Values:
        """ρ for round(clients·m) clients, 0 for the others."""
        rates = np.zeros(num_clients)
        rates[rng.permutation(num_clients)[: round(self.clients * num_clients)]] = self.rate
        return rates


@dataclass(frozen=True, eq=False)
class Noise:
    """The effect of label noise on the packed labels. For analysis only: no strategy, algorithm or client has access to it.

    Attributes:
        noisy: labels after noise, which the clients use, int64 [N].
        clean: labels before noise, int64 [N].
        rates: rates ρ_i, float64 [m].
    """

    noisy: Indices
    clean: Indices
    rates: Values

    @property
    def flipped(self) -> NDArray[np.bool_]:
        """True where the label is wrong, [N]."""
        return np.asarray(self.noisy != self.clean)


def corrupt(
    rule: LabelNoise, labels: Indices, order: Indices, offsets: Indices, *, num_classes: int, seed: int
) -> Noise:
    """Apply label noise: change round(ρ_i·N_i) of the affected labels of each client, chosen at random (ties to even, as in Python).

    Args:
        rule: the label noise.
        labels: clean labels of the data set, int64 [num_train].
        order, offsets: the partition, see :class:`fedcohort.federation.partition.Partition`.
        num_classes: number of classes K.
        seed: the experiment's seed. Each sample of the data set has its own draws, which do not depend on the partition.

    Raises:
        UsageError: the flip matrix does not fit K classes, or a rate is outside [0, 1].
    """
    m = len(offsets) - 1
    clean = labels[order]
    with warning_of_draws("federation.label_noise", rule):
        rates = _checked(rule, rule.rates(m, random_streams.rng(seed, "label-noise-rates")), m)
    if not rates.any():
        return Noise(clean, clean, rates)
    flips = flip_matrix(rule, num_classes)
    affected = np.flatnonzero((flips.diagonal() < 1)[clean])
    owner = np.repeat(np.arange(m), np.diff(offsets))[affected]
    if rule.bernoulli:
        keys = random_streams.rng(seed, "label-noise").random(len(labels))
        chosen = affected[keys[order[affected]] < rates[owner]]
    else:
        ranks = random_streams.rng(seed, "label-noise").permutation(len(labels))
        chosen = affected[_lowest_of_each(ranks[order[affected]], owner, rates, len(labels))]
    noisy = clean.copy()
    draws = random_streams.rng(seed, "label-noise-flips").random(len(labels))
    noisy[chosen] = _flipped(flips, clean[chosen], draws[order[chosen]])
    return Noise(noisy, clean, rates)


def flip_matrix(rule: LabelNoise, num_classes: int) -> Values:
    """The flip matrix M, float64 [K, K]; row c holds the probabilities of the new label of a chosen label c.

    >>> flip_matrix(Constant(flip="pairflip"), 3)
    array([[0., 1., 0.],
           [0., 0., 1.],
           [1., 0., 0.]])
    """
    K, where = num_classes, f"federation.label_noise.flip = {rule.flip!r}"
    if K < 2:
        raise UsageError(f"{where}: with {K} class there is no wrong label; use label_noise = 'none'")
    match rule.flip:
        case "symmetric":
            return np.asarray((1 - np.eye(K)) / (K - 1))
        case "pairflip":
            return np.roll(np.eye(K), 1, axis=1)
        case "asymmetric_cifar10":
            if K != 10:
                raise UsageError(
                    f"{where}: is for the 10 classes of CIFAR-10, not {K}; use symmetric, pairflip or matrix"
                )
            return np.eye(K)[[CIFAR10.get(c, c) for c in range(K)]]
        case "matrix":
            _check_matrix(rule.matrix)  # again: a class of a user can have its own __post_init__
            matrix = np.array(rule.matrix, dtype=np.float64)
            if len(matrix) != K:
                raise UsageError(
                    f"federation.label_noise.matrix: is {len(matrix)}×{len(matrix)}, but the data have {K} classes; "
                    f"give {K} rows of {K}"
                )
            return matrix


def _check_matrix(matrix: list[list[float]] | None) -> None:
    where = "federation.label_noise.matrix"
    if not matrix:
        raise UsageError(
            f"{where}: required with flip = 'matrix'; K rows of K probabilities, such as [[0.9, 0.1], [0, 1]]"
        )
    for c, row in enumerate(matrix):
        if len(row) != len(matrix):
            raise UsageError(
                f"{where}: row {c} has {len(row)} entries, but there are {len(matrix)} rows; it must be square"
            )
        if min(row) < 0:
            raise UsageError(f"{where}: row {c} has the entry {min(row):g}; probabilities are in [0, 1]")
        if abs(sum(row) - 1) > ROUND_OFF:
            raise UsageError(f"{where}: row {c} sums to {sum(row):.9g}; every row must sum to 1")


def _checked(rule: LabelNoise, rates: Values, num_clients: int) -> Values:
    """The rates, if they are valid; a user's own rule can return anything."""
    if not isinstance(rates, np.ndarray) or rates.shape != (num_clients,):
        returned = list(rates.shape) if isinstance(rates, np.ndarray) else type(rates).__name__
        raise UsageError(
            f"federation.label_noise: {type(rule).__name__}.rates returned {returned}; it must return [{num_clients}]"
        )
    if rates.dtype.kind not in "biuf":
        raise UsageError(
            f"federation.label_noise: {type(rule).__name__}.rates returned {rates.dtype}; it must return floats"
        )
    bad = np.flatnonzero(~((rates >= 0) & (rates <= 1)))
    if len(bad):
        raise UsageError(f"federation.label_noise: client {bad[0]} has the rate {rates[bad[0]]:g}; rates are in [0, 1]")
    return rates


def _lowest_of_each(ranks: Indices, owner: Indices, rates: Values, num_ranks: int) -> NDArray[np.bool_]:
    """True for the round(ρ_i·n_i) lowest ranks of every client, [n].

    ``owner`` is ascending and all ranks are distinct, so the keys owner·num_ranks + rank are distinct as well. One sort of the keys
    sorts the ranks of every client in its own section, and there are no ties.
    """
    sizes = np.bincount(owner, minlength=len(rates))
    counts = np.rint(rates * sizes).astype(np.int64)
    keys = owner * num_ranks + ranks
    ends = np.cumsum(sizes) - sizes + counts - 1  # position of each client's last chosen key in the sorted keys
    largest_key = np.full(len(rates), -1)
    has_any = counts > 0
    largest_key[has_any] = np.sort(keys)[ends[has_any]]
    return np.asarray(keys <= largest_key[owner])


def _flipped(flips: Values, labels: Indices, draws: Values) -> Indices:
    """New labels by inversion, for all labels at once: the first class d with cumsum(M_c)_d > draw."""
    K = len(flips)
    cumulative = np.cumsum(flips, axis=1)
    cumulative /= cumulative[:, -1:]  # ends with exactly 1, also for classes of probability 0 at the end
    steps = (cumulative + np.arange(K)[:, None]).ravel()  # row c lies in [c, c + 1]
    keys = np.minimum(labels + draws, np.nextafter(labels + 1.0, 0))  # the sum may round up to c + 1
    return np.asarray(np.searchsorted(steps, keys, side="right") - labels * K)
