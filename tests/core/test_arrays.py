"""What a million numbers need."""

import numpy as np
import pytest

from fedcohort.core.arrays import SAMPLE, Values, nth_highest, nth_lowest

N = 5 * SAMPLE + 3
DRAW = np.random.default_rng(0)
KINDS: dict[str, Values] = {
    "random": DRAW.normal(size=N),
    "ascending": np.arange(N, dtype=float),
    "descending": -np.arange(N, dtype=float),
    "all alike": np.ones(N),
    "few values": DRAW.integers(0, 5, N).astype(float),
    "high where nobody looks": np.where(np.arange(N) % 5 == 1, 9.0, DRAW.random(N)),
    "infinite": np.where(DRAW.random(N) < 0.5, -np.inf, DRAW.random(N)),
    "small": DRAW.normal(size=50),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_nth_highest_is_that_of_a_sort(kind: str) -> None:
    values = KINDS[kind]
    ordered = np.sort(values)[::-1]
    for count in {1, 2, 7, 50, min(1000, len(values)), len(values) // 2, len(values) - 1, len(values)}:
        assert nth_highest(values, count) == ordered[count - 1]


@pytest.mark.parametrize("kind", KINDS)
def test_the_number_at_a_place_is_that_of_a_sort(kind: str) -> None:
    values = KINDS[kind]
    n, ordered = len(values), np.sort(values)
    for position in {0, 1, 9, n // 100, 3 * n // 10, n // 2, 95 * n // 100, n - 2, n - 1}:
        assert nth_lowest(values, position) == ordered[position]
