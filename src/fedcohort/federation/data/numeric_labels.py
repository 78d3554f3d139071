"""Numeric labels (regression): check them, sort them into quantile bins, and scale them for training.

Everything that divides or describes data by label (partitions, the validation split, class counts, charts) uses the bins in place of
classes. Training and evaluation use the numbers, shifted and scaled to mean 0 and standard deviation 1 over the training samples.
"""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.words.formatted_values import number
from fedcohort.federation.data.array_checks import as_array

__all__ = ["BINS", "NumericLabels", "bin_edges", "bin_names", "binned", "check_numbers", "label_scale", "readable"]

BINS = 10
"""Number of quantile bins, fewer if numbers repeat."""
LIMIT, LONG_LIMIT = re.compile(r"-?\d[\d.]*(e[+-]\d+)?"), re.compile(r"\de\+\d")
"""The limits in names of bins, and those that are so large that they have an exponent."""


@dataclass(frozen=True, eq=False)
class NumericLabels:
    """What a federation with numeric labels knows about them, beside the scaled labels of its samples.

    Attributes:
        mean, deviation: mean and standard deviation of the labels of all training samples; a label y is stored as
            (y − mean)/deviation.
        bins: quantile bin of each training sample, aligned with ``Federation.train``, int64 [N].
    """

    mean: float
    deviation: float
    bins: Indices

    def scaled(self, labels: Values) -> Values:
        """Labels in the form in which samples have them."""
        numbers: Values = (labels - self.mean) / self.deviation
        return numbers

    def in_units(self, scaled: Values) -> Values:
        """Scaled labels or predictions in the units of the labels."""
        numbers: Values = scaled * self.deviation + self.mean
        return numbers


def check_numbers(values: object, where: str) -> Values:
    """Labels as float64 [N].

    Raises:
        UsageError: they are not numbers [N], or some are masked, NaN or infinite.
    """
    labels = as_array(values, f"{where} labels")
    if labels.ndim != 1 or not len(labels) or labels.dtype.kind not in "biuf":
        raise UsageError(f"{where} labels: {labels.dtype} {list(labels.shape)}; must be numbers [N], and not empty")
    numbers = labels.astype(np.float64)
    if bad := len(numbers) - np.count_nonzero(np.isfinite(numbers)):
        raise UsageError(f"{where} labels: {bad} are NaN or infinite; drop these samples")
    return numbers


def bin_edges(labels: Values) -> Values:
    """The inner edges of :data:`BINS` bins with about as many of these labels each, ascending and distinct, float64 [bins − 1].

    >>> bin_edges(np.arange(100.0))[:2].tolist()
    [10.0, 20.0]
    """
    quantiles: Values = np.unique(np.quantile(labels, np.arange(1, BINS) / BINS, method="higher"))
    edges: Values = quantiles[(quantiles > labels.min()) & (quantiles <= labels.max())]
    return edges


def binned(labels: Values, edges: Values) -> NDArray[np.int64]:
    """The bin of each label: the number of edges that are at most the label, int64 [N]."""
    return np.searchsorted(edges, labels, side="right").astype(np.int64, copy=False)


def bin_names(edges: Sequence[float]) -> tuple[str, ...]:
    """The names of the bins, by which fingerprints of data know them; :func:`readable` writes them for readers.

    >>> bin_names([0.5, 2.0])
    ('below 0.5', '0.5 to 2', 'from 2')
    """
    if not len(edges):
        return ("all",)
    inner = [f"{low:.4g} to {high:.4g}" for low, high in itertools.pairwise(edges)]
    return (f"below {edges[0]:.4g}", *inner, f"from {edges[-1]:.4g}")


def readable(names: Sequence[str], numeric: bool = True) -> tuple[str, ...]:
    """Names of bins as readers expect them: if some limits have an exponent, all are written out.

    Args:
        names: names of bins, from :func:`bin_names`, or of classes.
        numeric: whether they are those of bins; names of classes stay as they are.

    >>> readable(("below 9867", "9867 to 2.179e+05", "from 2.179e+05")), readable(("below 1990", "from 1990"))
    (('below 9,867', '9,867 to 217,900', 'from 217,900'), ('below 1990', 'from 1990'))
    """
    if not numeric or not any(LONG_LIMIT.search(name) for name in names):
        return tuple(names)
    return tuple(LIMIT.sub(lambda found: number(float(found[0])), name) for name in names)


def label_scale(labels: Values) -> tuple[float, float]:
    """Mean and standard deviation of the training labels; the deviation is 1 if all labels are equal.

    Raises:
        UsageError: the squares of the labels are larger than all floats.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = float(labels.mean()), float(labels.std())
    if not np.isfinite(mean + deviation):
        largest = float(np.abs(labels).max())
        raise UsageError(
            f"numeric labels: up to {largest:.3g}, whose squares are larger than all floats; divide them by a number"
        )
    return mean, deviation if deviation > 0 else 1.0
