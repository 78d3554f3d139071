"""Rounds, simulated time and bytes to a target accuracy, and the best mini-batch size for a device."""

import math

import numpy as np
from numpy.typing import ArrayLike

from fedcohort.core.arrays import Values
from fedcohort.core.errors import UsageError
from fedcohort.measures.argument_checks import as_series, same_length

__all__ = ["best_batch_size", "bytes_to", "rounds_to", "time_to"]


ABOUT_EQUAL = 0.05
"""Costs of mini-batch sizes that differ by at most this share of the largest are about equal."""


def rounds_to(series: ArrayLike, target: float) -> float:
    """First round with acc_t ≥ target; inf if there is none."""
    reached = as_series(series, "series") >= target
    return float(reached.argmax() + 1) if reached.any() else math.inf


def time_to(series: ArrayLike, clock: ArrayLike, target: float) -> float:
    """Simulated time at the end of the first round with acc_t ≥ target; inf if there is none.

    Args:
        series: accuracy of each round [n].
        clock: simulated time at the end of each round [n], not decreasing.
        target: the accuracy to reach.
    """
    values, times = as_series(series, "series"), as_series(clock, "clock")
    same_length(values, "series", times, "clock")
    if not (np.diff(times) >= 0).all():
        raise UsageError("clock decreases between two rounds; use the time at the end of each round, not its duration")
    t = rounds_to(values, target)
    return float(times[int(t) - 1]) if t < math.inf else math.inf


def bytes_to(series: ArrayLike, round_bytes: ArrayLike, target: float) -> float:
    """Bytes sent and received up to the end of the first round with acc_t ≥ target; inf if there is none.

    Args:
        series: accuracy of each round [n].
        round_bytes: bytes of each round [n], not cumulative.
        target: the accuracy to reach.
    """
    values, cost = as_series(series, "series"), as_series(round_bytes, "round_bytes")
    same_length(values, "series", cost, "round_bytes")
    t = rounds_to(values, target)
    return float(cost[: int(t)].sum()) if t < math.inf else math.inf


def best_batch_size(
    sizes: ArrayLike,
    samples_per_second: ArrayLike,
    *,
    memory: ArrayLike | None = None,
    accuracy: ArrayLike | None = None,
    rule: str = "throughput",
) -> int:
    """The best of the measured mini-batch sizes; the smallest, if several are equally good.

    ``throughput``: the most samples per second. ``tradeoff``: the smallest mean of time per sample, memory and 1 − accuracy, each
    scaled to [0, 1] over the sizes (0 if they differ by less than 5%, so that small differences of one cost do not outweigh large ones
    of another). Both rules are our own design.

    Args:
        sizes: the mini-batch sizes [n].
        samples_per_second: mean throughput of each size.
        memory: peak memory of each size, in any unit; for ``tradeoff``.
        accuracy: accuracy of each size after a fixed number of rounds; for ``tradeoff``.
        rule: ``throughput`` or ``tradeoff``.
    """
    batch, speed = as_series(sizes, "sizes"), as_series(samples_per_second, "samples_per_second")
    same_length(batch, "sizes", speed, "samples_per_second")
    if not (speed > 0).all():
        raise UsageError("samples_per_second must be above 0 for every size")
    if rule == "throughput":
        cost = -speed
    elif rule == "tradeoff":
        if memory is None or accuracy is None:
            raise UsageError("rule = 'tradeoff': needs memory and accuracy; give both, or use rule = 'throughput'")
        used, reached = as_series(memory, "memory"), as_series(accuracy, "accuracy")
        same_length(batch, "sizes", used, "memory")
        same_length(batch, "sizes", reached, "accuracy")
        cost = np.mean([_scaled(1 / speed), _scaled(used), _scaled(1 - reached)], axis=0)
    else:
        raise UsageError(f"rule = {rule!r}: valid are 'throughput' and 'tradeoff'")
    return int(batch[np.lexsort((batch, cost))[0]])


def _scaled(values: Values) -> Values:
    """The values scaled to [0, 1]; 0 if they are about equal."""
    span = values.max() - values.min()
    return (values - values.min()) / span if span > ABOUT_EQUAL * abs(values.max()) else np.zeros_like(values)
