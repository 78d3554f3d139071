"""Decisions are written column by column, as the same rows as one by one."""

import itertools
from typing import Any

import numpy as np
import pytest

from fedcohort.record.database import _decision, _decisions
from fedcohort.record.round_rows import Reasons

ODD = [0.0, -0.0, 1.5, np.nan, np.inf, -np.inf, 1e-300, 0.1]


@pytest.mark.parametrize("strangers", [[], [9, 4]])
@pytest.mark.parametrize(
    "terms",
    [
        {},
        {"loss": np.array(ODD)},
        {'a "name" of 5% — ä': np.array(ODD, dtype=np.float32), "count": np.arange(8), "known": np.arange(8) % 2 == 0},
    ],
)
def test_columns_give_the_rows_of_single_decisions(terms: dict[str, np.ndarray], strangers: list[int]) -> None:
    selected: list[Any] = [True, False, np.True_, False, False, True, False, False]
    clients = np.array([3, 1, 7, 0, 2, 5, 6, 8])
    reasons = Reasons(clients, selected, np.array(ODD), terms, np.array(strangers, dtype=np.int64))
    expected = [_decision(4, position, reason) for position, reason in enumerate(reasons)]
    found = _decisions(4, reasons)
    assert repr(found) == repr(expected)  # the seal is the hash of this text
    assert [type(x) for x in itertools.chain(*found)] == [type(x) for x in itertools.chain(*expected)]
    assert repr(_decisions(4, list(reasons))) == repr(expected)
