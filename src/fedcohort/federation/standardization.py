"""The mean and the standard deviation of features, with which models see them standardized.

Squares of deviations are summed in pieces, in the order in which numpy 2.4 adds them, so that the result has the bits of its
``numpy.std`` and the features are never copied as a whole.
"""

import numpy as np

from fedcohort.core.errors import UsageError

__all__ = ["is_far_from_zero", "shift_and_scale"]

PIECE = 2**18
"""Approximate number of values that are squared at a time."""
MOST_DEVIATIONS = 2**12
"""Mean of a column in standard deviations up to which values are standardized in the precision of the training."""
SMALLEST_SCALE = 1e-30
"""Inverse of a column's deviation down to which they are, and one divided by the largest; float32 ends at 3e38."""
ROUND_OFF = 1e-12
"""Deviation up to which a column counts as constant; relative to the largest value, if that is below 1."""
END_OF_FLOAT32 = 1e-37
"""Deviation up to which a column of float32 counts as constant: smaller numbers have few digits."""


def shift_and_scale(
    features: np.ndarray, standardise: bool, setting: str = "data.standardise = true"
) -> tuple[np.ndarray, np.ndarray]:
    """Shift and scale for mean 0 and standard deviation 1 on the training set, per channel or column; scale 1 for constant ones. Shift
    0 and scale 1 without ``standardise``.

    Raises:
        UsageError: the squares of a column's values are larger than all floats, or all 0; the message begins with ``setting``.
    """
    shape = (features.shape[1], 1, 1) if features.ndim == 4 else (features.shape[1],)
    if not standardise:
        return np.zeros(shape), np.ones(shape)
    if features.ndim == 4 and features.dtype == np.uint8:
        counts = np.stack([_gray_levels(features, channel) for channel in range(features.shape[1])])
        levels = np.arange(256.0)
        total = counts.sum(axis=1)
        mean = counts @ levels / total
        deviation = np.sqrt(np.maximum(counts @ levels**2 / total - mean**2, 0))
    else:
        axes = (0, 2, 3) if features.ndim == 4 else (0,)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = features.mean(axis=axes, dtype=np.float64)
            deviation = _deviation(features, mean)
        _check_spread(features, mean, deviation, setting)
    scale = 1.0 / np.where(_is_constant(features, deviation, setting), 1.0, deviation)
    return mean.reshape(shape), scale.reshape(shape)


def _is_constant(features: np.ndarray, deviation: np.ndarray, setting: str) -> np.ndarray:
    """Whether all values of a channel or column are the same, except for rounding, bool [C].

    Raises:
        UsageError: the squares of a column's values are 0, although the values are not.
    """
    small = deviation <= ROUND_OFF
    if not small.any() or features.dtype.kind != "f":
        return small
    axes = (0, 2, 3) if features.ndim == 4 else (0,)
    lowest, highest = (limit(axis=axes).astype(np.float64) for limit in (features.min, features.max))
    largest = np.maximum(np.abs(lowest), np.abs(highest))
    lost = (deviation == 0) & (highest - lowest > ROUND_OFF * largest)
    if features.dtype == np.float64 and (bad := np.flatnonzero(lost)).size:
        raise UsageError(
            f"{setting}: column {bad[0] + 1} of {len(deviation)} of the features has values of at most {largest[bad[0]]:.3g}, whose "
            "squares are 0; multiply the column by a number, or leave it out"
        )
    least = ROUND_OFF * np.minimum(largest, 1.0)
    if features.dtype == np.float32:
        least = np.maximum(least, END_OF_FLOAT32)
    constant: np.ndarray = deviation <= least
    return constant


def is_far_from_zero(shift: np.ndarray, scale: np.ndarray) -> bool:
    """Whether values of a column are so large, compared with their deviation or with the largest float32, or so small, that float32
    would lose much of what tells them apart before they are standardized. Times in seconds since 1970 are an example.

    >>> is_far_from_zero(np.array([1.7e9]), np.array([1e-4])), is_far_from_zero(np.array([1970.0]), np.array([0.1]))
    (True, False)
    """
    ends = scale.min() < SMALLEST_SCALE or scale.max() > 1 / SMALLEST_SCALE
    return bool(ends or (np.abs(shift) * scale).max() > MOST_DEVIATIONS)


def _deviation(features: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """The standard deviation per channel of images or per column of tables, with the bits of ``numpy.std``, float64 [C]."""
    parts = features.reshape(*features.shape[:2], -1)  # [N, C, values of a channel]
    if not parts.flags.c_contiguous:
        axes = (0, *range(2, features.ndim))
        whole: np.ndarray = features.std(axis=axes, dtype=np.float64)
        return whole
    count, channels, values = parts.shape
    if channels == 1:
        total = np.array([_squares_in_pairs(parts.reshape(-1), mean)])
    else:
        total, rows = np.zeros((1, channels)), max(1, PIECE // (channels * values))
        for start in range(0, count, rows):
            squares = np.square(parts[start : start + rows] - mean[:, None])
            # numpy adds the sums of the samples to the total one after another
            total = np.add.reduce(np.concatenate([total, np.add.reduce(squares, axis=2)]), axis=0, keepdims=True)
        total = total[0]
    deviation: np.ndarray = np.sqrt(total / (count * values))
    return deviation


def _squares_in_pairs(values: np.ndarray, mean: np.ndarray) -> np.float64:
    """Σ(x − mean)² of contiguous values [n], which numpy adds in pairs of halves."""
    if len(values) <= PIECE:
        total: np.float64 = np.add.reduce(np.square(values - mean))
        return total
    half = len(values) // 2
    half -= half % 8
    return _squares_in_pairs(values[:half], mean) + _squares_in_pairs(values[half:], mean)


def _check_spread(features: np.ndarray, mean: np.ndarray, deviation: np.ndarray, setting: str) -> None:
    """Refuse columns of a table whose standard deviation is not finite.

    Raises:
        UsageError: there is such a column.
    """
    bad = np.flatnonzero(~np.isfinite(mean) | ~np.isfinite(deviation))
    if len(bad):
        column = int(bad[0])
        largest = float(np.abs(features[:, column]).max())
        raise UsageError(
            f"{setting}: column {column + 1} of {features.shape[1]} of the features has values up to {largest:.3g}, whose squares "
            "are larger than all floats; divide the column by a number, or leave it out"
        )


def _gray_levels(features: np.ndarray, channel: int) -> np.ndarray:
    """Number of pixels with each of the 256 levels, int64 [256]; counted in blocks of images to avoid a second copy."""
    counts = np.zeros(256, dtype=np.int64)
    for start in range(0, len(features), 4096):
        counts += np.bincount(features[start : start + 4096, channel].reshape(-1), minlength=256)
    return counts
