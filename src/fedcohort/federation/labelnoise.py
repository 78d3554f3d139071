"""Wrong labels: how many of each client's (a rate), and which class they are taken for (a flip matrix).

A rule is a ``@parameters`` class that extends :class:`LabelNoise` and gives every client a rate ρ_i. Where a wrong label goes is
said by a flip matrix M, so that client i's labels pass through T_i = (1 − ρ_i)·I + ρ_i·M:

    symmetric             M_cd = 1/(K−1) for d ≠ c
    pairflip              c → (c+1) mod K
    asymmetric_cifar10    truck → automobile, bird → airplane, deer → horse, cat ↔ dog; the others stay
    matrix                one's own K×K

Classes with M_cc = 1 are not affected: no label of theirs is chosen, and the rate applies to the others. Noise comes after the
partition and before a client's data are split. It depends on the seed and on who holds what, on nothing that happens in a run.

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

from fedcohort.core import streams
from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import parameters

__all__ = ["Beta", "Constant", "LabelNoise", "NoLabelNoise", "Noise", "SomeClients", "corrupt", "flip_matrix"]

Share = Annotated[float, Ge(0), Le(1)]

CIFAR10 = {9: 1, 2: 0, 4: 7, 3: 5, 5: 3}
"""truck → automobile, bird → airplane, deer → horse, cat ↔ dog."""

ROUND_OFF = 1e-6
"""How far the sum of a row may be from 1."""


@parameters
class NoLabelNoise:
    """All labels as they are."""


@parameters
class LabelNoise:
    """What every rule has in common: which labels are chosen, and where they go. A rule adds :meth:`rates`."""

    flip: Literal["symmetric", "pairflip", "asymmetric_cifar10", "matrix"] = "symmetric"
    """Where a chosen label goes: to any other class alike, to the next class, to a look-alike of CIFAR-10 (by class number, and only
    where there is one), or as ``matrix`` says."""

    matrix: list[list[float]] | None = None
    """For ``flip = "matrix"``: row c holds the probabilities with which a chosen label c becomes 0…K−1. What stands on the diagonal
    stays; a row with 1 there is not affected. With ``rate = 1`` this is the whole transition matrix."""

    bernoulli: bool = False
    """Choose every affected label independently with probability ρ_i, instead of exactly round(ρ_i·N_i) of them."""

    def __post_init__(self) -> None:
        if self.flip == "matrix":
            _check_matrix(self.matrix)
        elif self.matrix is not None:
            raise UsageError(f"federation.label_noise.matrix: goes with flip = 'matrix', not with {self.flip!r}")

    def rates(self, num_clients: int, rng: np.random.Generator) -> Values:
        """ρ_i of every client, float64 [m], in [0, 1]."""
        raise NotImplementedError


@parameters
class Beta(LabelNoise):
    """Every client its own rate, ρ_i ~ Beta(a, 100 − a): on average a % of the labels are wrong.

    Standard deviation √(a·(100 − a)/101)/100: .022 for a = 5, .043 for a = 25. FLASH, arXiv:2402.08769.
    """

    a: Annotated[float, Ge(0), Le(100)] = 10.0
    """Mean rate in percent; 0 changes nothing, 100 changes every affected label."""

    def rates(self, num_clients: int, rng: np.random.Generator) -> Values:
        """One draw a client."""
        if self.a in (0, 100):
            return np.full(num_clients, self.a / 100)
        return rng.beta(self.a, 100 - self.a, num_clients)


@parameters
class Constant(LabelNoise):
    """Every client the same rate."""

    rate: Share = 0.1
    """ρ, the share of wrong labels."""

    def rates(self, num_clients: int, rng: np.random.Generator) -> Values:
        """ρ for everybody."""
        return np.full(num_clients, self.rate)


@parameters
class SomeClients(LabelNoise):
    """One rate for some of the clients, drawn once; the others' labels are as they were."""

    clients: Share = 0.3
    """Share of clients with wrong labels, rounded to a number of clients."""

    rate: Share = 0.4
    """ρ of those clients."""

    def rates(self, num_clients: int, rng: np.random.Generator) -> Values:
        """ρ for round(clients·m) of them."""
        rates = np.zeros(num_clients)
        rates[rng.permutation(num_clients)[: round(self.clients * num_clients)]] = self.rate
        return rates


@dataclass(frozen=True, eq=False)
class Noise:
    """What noise did to the packed labels. For analysis: no strategy, algorithm or client sees any of it.

    Attributes:
        noisy: the labels that clients have from now on, int64 [N].
        clean: the labels before, int64 [N].
        rates: ρ_i, float64 [m].
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
    """Flip labels by ``rule``: of each client round(ρ_i·N_i) of the affected ones, chosen at random (ties to even, as Python rounds).

    Args:
        rule: rates and flips.
        labels: clean labels of the data set, int64 [num_train].
        order, offsets: who holds what, see :class:`fedcohort.federation.partition.Partition`.
        num_classes: K.
        seed: the experiment's. Draws belong to samples of the data set: another partition chooses by the same draws.

    Raises:
        UsageError: the flips do not fit K classes, or a rate is outside [0, 1].
    """
    m = len(offsets) - 1
    clean = labels[order]
    rates = _checked(rule, rule.rates(m, streams.rng(seed, "label-noise-rates")), m)
    if not rates.any():
        return Noise(clean, clean, rates)
    flips = flip_matrix(rule, num_classes)
    affected = np.flatnonzero((flips.diagonal() < 1)[clean])
    owner = np.repeat(np.arange(m), np.diff(offsets))[affected]
    if rule.bernoulli:
        keys = streams.rng(seed, "label-noise").random(len(labels))
        chosen = affected[keys[order[affected]] < rates[owner]]
    else:
        ranks = streams.rng(seed, "label-noise").permutation(len(labels))
        chosen = affected[_first_of_each(ranks[order[affected]], owner, rates, len(labels))]
    noisy = clean.copy()
    draws = streams.rng(seed, "label-noise-flips").random(len(labels))
    noisy[chosen] = _flipped(flips, clean[chosen], draws[order[chosen]])
    return Noise(noisy, clean, rates)


def flip_matrix(rule: LabelNoise, num_classes: int) -> Values:
    """M, float64 [K, K]: row c says what a chosen label c becomes.

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
    """The rates of somebody's own rule can be anything."""
    if rates.shape != (num_clients,):
        raise ValueError(f"{type(rule).__name__}.rates returned {list(rates.shape)}; it must return [{num_clients}]")
    bad = np.flatnonzero(~((rates >= 0) & (rates <= 1)))
    if len(bad):
        raise UsageError(f"federation.label_noise: client {bad[0]} has the rate {rates[bad[0]]:g}; rates are in [0, 1]")
    return rates


def _first_of_each(ranks: Indices, owner: Indices, rates: Values, num_ranks: int) -> NDArray[np.bool_]:
    """True for the round(ρ_i·n_i) lowest ranks of every client, [n].

    ``owner`` is ascending and ranks are distinct, so owner·num_ranks + rank is, too: one sort of these puts every client's ranks in
    order at its own place, and what it picks does not depend on how ties are broken.
    """
    sizes = np.bincount(owner, minlength=len(rates))
    counts = np.rint(rates * sizes).astype(np.int64)
    keys = owner * num_ranks + ranks
    ends = np.cumsum(sizes) - sizes + counts - 1  # where each client's last chosen one stands in the sorted keys
    last = np.full(len(rates), -1)
    some = counts > 0
    last[some] = np.sort(keys)[ends[some]]
    return np.asarray(keys <= last[owner])


def _flipped(flips: Values, labels: Indices, draws: Values) -> Indices:
    """New classes by inversion: the first d with cumsum(M_c)_d > draw, for all labels at once."""
    K = len(flips)
    cumulative = np.cumsum(flips, axis=1)
    cumulative /= cumulative[:, -1:]  # ends with exactly 1, and repeats it for classes of probability 0 at the end
    steps = (cumulative + np.arange(K)[:, None]).ravel()  # row c lies in [c, c + 1]
    at = np.minimum(labels + draws, np.nextafter(labels + 1.0, 0))  # the sum may round up to c + 1
    return np.asarray(np.searchsorted(steps, at, side="right") - labels * K)
