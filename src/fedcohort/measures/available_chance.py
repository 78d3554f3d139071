"""How evenly clients would be selected if each round drew uniformly among those that are available in it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcohort.core import random_streams
from fedcohort.core.arrays import Values
from fedcohort.measures.participation import Participation
from fedcohort.measures.uniform_chance import (
    MAX_SIMULATED,
    JainReference,
    binomial,
    jain_path,
    over_rounds,
    participation_random,
    points_of,
    spread_path,
)

__all__ = ["UniformChance", "uniform_chance"]

Mask = NDArray[np.bool_]

DRAWS = 2_000
FEWEST_DRAWS = 300
"""Number of simulated runs; if not even the second number of them fits into :data:`MAX_SIMULATED`, distributions are approximated."""

LAWS = 2_000
"""Largest number of different laws of clients that are computed for a histogram; of more, an even sample."""


@dataclass(frozen=True, eq=False)
class UniformChance:
    """What uniform selection gives in the rounds of a run, if it selects as many clients in each.

    Attributes:
        jain: Jain's index after each round, float64 [n, 4]: mean and 5%, 50%, 95% quantiles.
        participation: mean of :func:`~fedcohort.measures.participation` after the last round.
        present: number of rounds in which each client can be selected, int64 [m].
        expected: mean number of rounds in which each client is selected, float64 [m].
    """

    jain: Values
    participation: Participation
    present: NDArray[np.int64]
    expected: Values

    @property
    def reference(self) -> JainReference:
        """Jain's index after the last round."""
        return JainReference(*self.jain[-1].tolist()) if len(self.jain) else JainReference(1.0, 1.0, 1.0, 1.0)

    def quantile(self, level: float) -> NDArray[np.int64]:
        """For each client, the smallest number of selections with a cumulative probability of at least ``level`` [m]."""
        laws, kind = self._laws
        quantiles = np.array([min(int(np.searchsorted(law.cumsum(), level)), len(law) - 1) for law in laws])
        return quantiles[kind]

    @cached_property
    def histogram(self) -> Values:
        """Mean number of clients that are selected 0 to n times, float64 [n + 1]."""
        laws, kind = self._laws
        numbers, counts = np.bincount(kind, minlength=len(laws)), np.zeros(len(self.jain) + 1)
        for law, number in zip(laws, numbers, strict=True):
            counts[: len(law)] += number * law
        scaled: Values = counts * (len(self.present) / numbers.sum())
        return scaled

    @cached_property
    def _laws(self) -> tuple[list[Values], NDArray[np.int64]]:
        """How often a client is selected: a binomial law of the rounds in which it can be, for each kind of client; and the kind of
        each client, of an even sample if there are very many kinds."""
        # complex numbers are sorted as pairs are, ten times as fast as rows of two columns
        pairs = self.present + 1j * self.expected.round(9)
        both, kind = np.unique(pairs, return_inverse=True)
        kinds, kind = np.column_stack([both.real, both.imag]), kind.astype(np.int64)
        if len(kinds) > LAWS:
            chosen = np.linspace(0, len(kinds) - 1, LAWS).round().astype(np.int64)
            kinds, kind = kinds[chosen], np.searchsorted(chosen, kind).clip(0, LAWS - 1)
        return [binomial(int(n), min(1.0, mean / n)) if n else np.ones(1) for n, mean in kinds.tolist()], kind


def uniform_chance(
    num_clients: int, selected: Sequence[int], available: Callable[[int], Mask] | None = None
) -> UniformChance:
    """What uniform selection among the available clients gives.

    With the same available clients in all rounds, of which each selects the same number, these are the numbers of
    :func:`~fedcohort.measures.jain_random` and :func:`~fedcohort.measures.participation_random`. Other cases are simulated, or if
    that takes too long, approximated: the exact mean and an approximate variance of Σx² give a Gamma distribution, and how often each
    client is selected is binomial.

    Args:
        num_clients: m.
        selected: number of selected clients of each round.
        available: round (from 1) → True for the clients that can be selected in it, bool [m]; by default all.
    """
    m, numbers = num_clients, np.asarray(selected, np.int64)
    everyone = np.ones(m, dtype=bool)
    masks = _Rounds(m, numbers, available or (lambda _: everyone))
    if masks.constant:
        return _constant(m, masks)
    if FEWEST_DRAWS * m * len(numbers) <= MAX_SIMULATED:
        jain, participation = _simulated(m, masks)
    else:
        totals, mean, variance = masks.moments.T
        jain, participation = spread_path(m, totals, mean, variance, masks.points), None
    found = UniformChance(jain, participation or Participation(*[np.nan] * 4), masks.present, masks.expected)
    return found if participation else _with_participation(found, masks.missed)


class _Sums(NamedTuple):
    """Sums over rounds of one client, or of each client [m]: ``present``, ``expected`` and ``missed`` of :class:`_Rounds`, and the
    variance of how often it is selected."""

    present: Any
    expected: Any
    missed: Any
    variance: Any

    def after(self, share: float, there: Any) -> "_Sums":
        """The sums after a round that selects a share of the clients that are ``there``."""
        present, expected, missed, variance = self
        return _Sums(
            present + there,
            expected + share * there,
            missed * (1 - share * there),
            variance + share * (1 - share) * there,
        )

    def of(self, clients: Mask) -> "_Sums":
        """The sums of each client [m] if these are those of every one of the ``clients``, and others have never been there."""
        begin = _Sums(0, 0.0, 1.0, 0.0)
        return _Sums(*(np.where(clients, own, none) for own, none in zip(self, begin, strict=True)))


class _Rounds:
    """Sums over the rounds, of each client.

    While all rounds have the same available clients, these have the same sums, which are computed once and not for each of them.

    Attributes:
        clients: the available clients of each round, if a simulation needs them.
        numbers: how many of them each round selects, at most all.
        constant: whether all rounds have the same clients, and select the same number. Then only ``numbers``, ``present`` and
            ``expected`` are computed.
        present, expected: see :class:`UniformChance`.
        missed: probability that a client is never selected [m].
        points: the rounds, from 0, of :func:`~fedcohort.measures.uniform_chance.points_of`.
        moments: the number of selections, and mean and variance of Σ(x − T/m)² [n, 3], after the rounds of ``points``; 0 after others.
    """

    def __init__(self, m: int, selected: NDArray[np.int64], available: Callable[[int], Mask]) -> None:
        self._keep = FEWEST_DRAWS * m * len(selected) <= MAX_SIMULATED
        self.clients: list[NDArray[np.int64]] = []
        self.numbers: list[int] = []
        self._sums, self._same_clients = _Sums(0, 0.0, 1.0, 0.0), True
        self._squares, self._total = 0.0, 0
        self.points = points_of(len(selected), int((selected > 0).argmax()) if len(selected) else 0)
        self._computed = frozenset(self.points.tolist())
        self.moments, self.constant = np.zeros((len(selected), 3)), True
        self._first, self._at_first = np.zeros(m, dtype=bool), 0
        for t, number in enumerate(selected.tolist()):
            self._play(t, np.asarray(available(t + 1), dtype=bool), number)
        if self.constant and self.numbers:
            n, share = len(self.numbers), self.numbers[0] / self._at_first if self._at_first else 0.0
            self._sums = _Sums(n, np.full(n, share).cumsum()[-1], 1.0, 0.0)
        self.present, self.expected, self.missed, _ = self._of_clients()

    def _play(self, t: int, mask: Mask, number: int) -> None:
        """Add round ``t``, from 0, unless it is the same as the first one and all others so far."""
        if t == 0:
            self._first, self._at_first = mask, int(mask.sum())
        there = self._at_first if mask is self._first else int(mask.sum())
        number = min(number, there)
        same_clients = self._same_clients and _is_same(mask, self._first)
        if self.constant and t and not (same_clients and number == self.numbers[0]):
            self.constant = False
            for earlier, known in enumerate(self.numbers):
                self._add(earlier, self._first, self._at_first, known)
        if self._same_clients and not same_clients:
            self._sums, self._same_clients = self._of_clients(), False
        self.numbers.append(number)
        if not self.constant:
            self._add(t, mask, there, number)

    def _add(self, t: int, mask: Mask, there: int, number: int) -> None:
        """Add the sums of round ``t``, from 0, in which ``there`` clients are available."""
        share = number / there if there else 0.0
        self._sums = self._sums.after(share, 1 if self._same_clients else mask)
        self._squares += there * (share * (1 - share)) ** 2
        self._total += number
        if self._keep:
            self.clients.append(np.flatnonzero(mask))
        if t in self._computed:
            sums = self._of_clients()
            self.moments[t] = self._total, *_moments(sums.expected, sums.variance, self._squares, self._total)

    def _of_clients(self) -> _Sums:
        """The sums of each client so far."""
        return self._sums.of(self._first) if self._same_clients else self._sums


def _is_same(mask: Mask, other: Mask) -> bool:
    """Whether two masks are equal; most laws of availability return one array again and again, or change soon."""
    return mask is other or bool((mask == other).all())


def _moments(expected: Values, variances: Values, squares: float, total: int) -> tuple[float, float]:
    """Mean and variance of the spread Σ(x − T/m)², the variance up to terms of 1/m.

    With μ_i = E x_i and v_i = Var x_i: E Σx² = Σ(μ_i² + v_i), and Σx² varies by Σ(x − μ)², whose variance is 2(Σv_i² − Σ_t Σ_i v_it²),
    and by 2Σμ_i x_i, in which the part that all clients have in common is fixed.
    """
    m, whole = len(expected), float(variances.sum())
    mean = float((expected**2).sum()) + whole - total**2 / m
    if whole <= 0:
        return mean, 0.0
    level = float(variances @ expected) / whole
    own = 2 * (float((variances**2).sum()) - squares)
    return mean, max(own, 0.0) + 4 * float(variances @ (expected - level) ** 2)


def _constant(m: int, rounds: _Rounds) -> UniformChance:
    """The same clients in all rounds, e of m, of which each selects k: those that are never available are not selected, in addition
    to what :func:`participation_random` says about e clients."""
    n = len(rounds.numbers)
    e, k = int((rounds.present > 0).sum()), rounds.numbers[0] if n else 0
    if not k:
        return UniformChance(np.ones((n, 4)), Participation(1.0, 0.0, 0.0, 0.0), rounds.present, rounds.expected)
    jain, own = jain_path(e, k, n) * (e / m), participation_random(e, k, n)
    if e < m:
        own = Participation(float(jain[-1, 0]), (e * own.gini + m - e) / m, own.entropy, own.coverage * e / m)
    return UniformChance(jain, own, rounds.present, rounds.expected)


def _simulated(m: int, rounds: _Rounds) -> tuple[Values, Participation]:
    """Jain's index after each round, and all measures after the last one, of simulated runs."""
    draws = max(FEWEST_DRAWS, min(DRAWS, MAX_SIMULATED // (m * len(rounds.numbers))))
    rng = random_streams.rng(0, "available-chance")
    x, rows = np.zeros((draws, m)), np.arange(draws)[:, None]
    drawn, total = np.ones((len(rounds.numbers), draws)), 0
    for t, (clients, number) in enumerate(zip(rounds.clients, rounds.numbers, strict=True)):
        keys = rng.random((draws, len(clients)))
        places = (
            np.argpartition(keys, min(number, len(clients) - 1), axis=1)[:, :number]
            if number
            else np.zeros((draws, 0), int)
        )
        x[rows, clients[places]] += 1
        total += number
        if total:
            drawn[t] = total**2 / (m * (x * x).sum(axis=1))
    jain = over_rounds(drawn)
    if not total:
        return jain, Participation(1.0, 0.0, 0.0, 0.0)
    shares = np.sort(x, axis=1) / total
    gini = float((shares @ (2.0 * np.arange(1, m + 1) - m - 1)).mean()) / m
    logs = np.log(np.where(shares > 0, shares, 1.0))
    return jain, Participation(
        float(jain[-1, 0]), gini, -float((shares * logs).sum(axis=1).mean()), float((x > 0).mean())
    )


def _with_participation(found: UniformChance, missed: Values) -> UniformChance:
    """The same with its measures after the last round, from how often each client is selected."""
    m, total, clients = len(missed), float(found.expected.sum()), found.histogram
    x, share = np.arange(len(clients)), clients / len(missed)
    p = x[1:] / max(total, 1.0)
    entropy = -float(clients[1:] @ (p * np.log(p)))
    below = np.concatenate([[0.0], share.cumsum()[:-1]])
    distance = 2 * float((share * (x * below - np.concatenate([[0.0], (share * x).cumsum()[:-1]]))).sum())
    gini = distance * m / (2 * total) if total else 0.0
    measured = Participation(float(found.jain[-1, 0]), gini, entropy, float(1 - missed.mean()))
    return UniformChance(found.jain, measured, found.present, found.expected)
