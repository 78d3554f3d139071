"""Compare a twin with the table of clients that it was built from."""

import math
from dataclasses import dataclass

import numpy as np

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.words.formatted_values import number
from fedcohort.federation.describe_federation import Survey
from fedcohort.racing.twin import Twin

__all__ = ["DIFFERS", "MATCHED", "NOT_GIVEN", "ROUGH", "Trait", "likeness", "range_in_words"]

MATCHED, ROUGH, DIFFERS, NOT_GIVEN = "matched", "roughly", "differs", "not given"
CLOSE, NEAR = 0.05, 0.15
"""Mean differences up to which a trait counts as matched, and as roughly matched."""

Range = tuple[float, float, float]


@dataclass(frozen=True)
class Trait:
    """How similar the clients of a twin are to those of the table in one respect.

    Attributes:
        name: what is compared.
        yours: smallest, median and largest value of the table's clients; None if it is not known.
        twin: the same of the twin's clients.
        difference: mean difference of a client to its twin, from 0; NaN if it is not known.
        largest: the largest of these differences.
        meaning: what a difference is, in words.
        state: ``matched`` (mean difference of at most 5%), ``roughly`` (at most 15%), ``differs``, or ``not given``.
    """

    name: str
    yours: Range | None
    twin: Range
    difference: float
    largest: float
    meaning: str
    state: str


def likeness(twin: Twin, survey: Survey) -> list[Trait]:
    """Compare every client of a twin with its client of the table: sizes, classes, times, availability.

    Args:
        twin: the twin.
        survey: its clients, under one seed.
    """
    table, report = twin.table, survey.report
    sizes, computing = report.sizes.astype(np.float64), survey.time - survey.sending
    shares = sizes / sizes.sum(), table.samples / table.samples.sum()
    traits = [
        _trait(
            "samples", table.samples, sizes, np.abs(shares[0] / shares[1] - 1), "relative, of shares of all samples"
        ),
        _classes(twin, report.counts),
        _relative("training time", table.seconds, computing),
        _relative("communication time", table.communication, survey.sending),
    ]
    there = None if table.available is None else np.abs(survey.presence - table.available)
    return [*traits, _trait("availability", table.available, survey.presence, there, "of shares of the rounds")]


def distances(counts: Indices) -> Values:
    """Total variation distance of each client's mixture of classes to that of all clients, float64 [m]."""
    mixtures, total = _mixtures(counts), counts.sum(axis=0) / max(counts.sum(), 1)
    found: Values = 0.5 * np.abs(mixtures - total).sum(axis=1)
    return found


def _classes(twin: Twin, counts: Indices) -> Trait:
    """How far clients are from the mixture of all clients, and every client from its twin."""
    given, meaning = twin.table.counts, "total variation distance of mixtures of classes"
    if given is None:
        return _trait("class skew", None, distances(counts), None, meaning)
    own = np.zeros((len(given), max(counts.shape[1], len(twin.order))), np.int64)
    own[:, twin.order] = given
    held = np.zeros_like(own)
    held[:, : counts.shape[1]] = counts
    apart = 0.5 * np.abs(_mixtures(own) - _mixtures(held)).sum(axis=1)
    return _trait("class skew", distances(given), distances(counts), apart, meaning)


def _mixtures(counts: Indices) -> Values:
    mixtures: Values = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return mixtures


def _relative(name: str, given: Values | None, simulated: Values) -> Trait:
    """Times, with differences relative to the client's time, or to the mean where it is 0."""
    if given is None:
        return _trait(name, None, simulated, None, "relative")
    base = np.where(given > 0, given, max(float(given.mean()), 1e-12))
    return _trait(name, given, simulated, np.abs(simulated - given) / base, "relative")


def _trait(
    name: str, given: Indices | Values | None, simulated: Values, differences: Values | None, meaning: str
) -> Trait:
    if given is None or differences is None:
        return Trait(name, None, _range(simulated), math.nan, math.nan, meaning, NOT_GIVEN)
    mean, largest = float(np.mean(differences)), float(np.max(differences))
    state = MATCHED if mean <= CLOSE else ROUGH if mean <= NEAR else DIFFERS
    return Trait(name, _range(given), _range(simulated), mean, largest, meaning, state)


def _range(values: Indices | Values) -> Range:
    low, middle, high = np.quantile(values, (0, 0.5, 1)).tolist()
    return low, middle, high


def range_in_words(values: Range | None) -> str:
    """The smallest, the median and the largest value, such as ``4 · 9 · 23``."""
    if values is None:
        return "–"
    return " · ".join(number(value, 3) for value in values)
