"""How often clients were selected, and how evenly, without an entry for each round and client."""

import numpy as np
import pandas as pd
import pytest

from fedcohort import measures
from fedcohort.report.data.client_rounds import ClientRounds


@pytest.mark.parametrize(("n", "m", "k"), [(30, 12, 3), (5, 200, 40), (1, 1, 1), (4, 3, 0)])
def test_the_numbers_are_those_of_a_table_of_all_rounds_and_clients(n: int, m: int, k: int) -> None:
    rng = np.random.default_rng(0)
    pairs = [(t + 1, client) for t in range(n) if t != 2 for client in rng.choice(m, k, replace=False).tolist()]
    frame = pd.DataFrame([*pairs, *pairs[:2]], columns=["round", "client"])  # a client that is listed twice counts once
    found = ClientRounds.of(frame, n, m)
    table = np.zeros((n, m), dtype=bool)
    for t, client in pairs:
        table[t - 1, client] = True
    assert len(found) == table.sum()
    assert found.times.tolist() == table.sum(axis=0).tolist()
    assert found.num_ever == table.any(axis=0).sum()
    begun = [measures.jain(counts) if counts.any() else np.nan for counts in table.cumsum(axis=0)]
    np.testing.assert_array_equal(found.jain(), begun)


def test_memory_does_not_grow_with_rounds_times_clients() -> None:
    """A table would have 10¹² entries."""
    frame = pd.DataFrame({"round": [1, 1_000_000, 1_000_000], "client": [5, 5, 999_999]})
    found = ClientRounds.of(frame, 1_000_000, 1_000_000)
    assert found.times[[5, 6, 999_999]].tolist() == [2, 0, 1]
    assert found.jain()[[0, -1]].tolist() == pytest.approx([1e-6, 9 / (5 * 1e6)])
