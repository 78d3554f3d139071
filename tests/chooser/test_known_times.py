"""The times of clients that a server knows, in worked numbers."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from fedcohort import Chooser, ClientResult
from fedcohort.selection import Census
from fedcohort.selection.strategies.all_available import All

NAN = math.nan


def played(
    own: Chooser, results: dict[int, ClientResult], waited: float, uploads: Sequence[float] | None = None
) -> None:
    own.select(range(4))
    own.observe(own.outcome(results, duration=waited), upload_times=uploads)


def test_times_are_those_of_the_last_round_in_which_they_were_measured() -> None:
    """Client 1 is late after 5 and 6 seconds, client 2 fails, and client 3 sends no time in the second round."""
    own = Chooser(All(), Census(np.full(4, 10), num_classes=2, k=4))
    late, failed = ClientResult(late="deadline"), ClientResult(failure="no reply")
    played(
        own,
        {0: ClientResult(duration=4.0), 1: late, 2: failed, 3: ClientResult(duration=3.0)},
        5.0,
        [1.0, 2.0, NAN, NAN],
    )
    assert own.durations.tolist() == pytest.approx([4.0, 5.0, NAN, 3.0], nan_ok=True)
    assert own.upload_times.tolist() == pytest.approx([1.0, NAN, NAN, NAN], nan_ok=True)
    assert own.compute_times.tolist() == pytest.approx([3.0, NAN, NAN, NAN], nan_ok=True)
    played(own, {0: ClientResult(duration=2.0), 1: late, 2: failed, 3: ClientResult()}, 6.0)
    assert own.durations.tolist() == pytest.approx([2.0, 6.0, NAN, 3.0], nan_ok=True)
    played(own, {0: ClientResult(duration=2.0), 1: late, 2: failed, 3: ClientResult(duration=1.0)}, 5.5)
    assert own.durations.tolist() == pytest.approx([2.0, 6.0, NAN, 1.0], nan_ok=True)  # client 1 needs at least 6


def test_a_client_can_send_all_of_its_time_or_none() -> None:
    own = Chooser(All(), Census(np.full(4, 10), num_classes=2, k=4))
    played(own, {i: ClientResult(duration=2.0) for i in range(4)}, 2.0, [0.0, 2.0, 0.5, NAN])
    assert own.upload_times.tolist() == pytest.approx([0.0, 2.0, 0.5, NAN], nan_ok=True)
    assert own.compute_times.tolist() == pytest.approx([2.0, 0.0, 1.5, NAN], nan_ok=True)
    assert own.durations.tolist() == [2.0] * 4
