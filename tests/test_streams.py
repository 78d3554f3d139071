"""Named randomness: a function of its four arguments, and of nothing else."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedcohort.streams import integer, rng


@given(st.integers(0, 2**40), st.integers(0, 10**6), st.integers(0, 10**7))
def test_a_draw_is_a_function_of_its_name(seed: int, round_: int, client: int) -> None:
    first = rng(seed, "select", round_, client).random(3)
    rng(seed, "other", round_, client).random(100)
    assert np.array_equal(first, rng(seed, "select", round_, client).random(3))
    assert 0 <= integer(seed, "model", round_, client) < 2**63


def test_different_names_give_different_numbers() -> None:
    names = [(s, p, t, c) for s in (0, 1) for p in ("select", "batches") for t in (0, 1, 2) for c in (0, 1, 2)]
    draws = {float(rng(*name).random()) for name in names}
    assert len(draws) == len(names)


def test_known_values() -> None:
    """These numbers must never change: every recorded run depends on them."""
    assert rng(0, "select", 1).integers(1000, size=4).tolist() == [174, 572, 458, 412]
    assert rng(7, "batches", 3, 11).permutation(6).tolist() == [0, 2, 1, 5, 4, 3]
