"""The reports of a round as a strategy sees them, in worked numbers."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedcohort import ClientResult
from fedcohort.chooser.round_reports import RoundReports, decides, reported
from fedcohort.core.errors import UsageError
from fedcohort.selection import Cohort
from fedcohort.selection.strategies.conformal_participation import Conformal
from fedcohort.selection.strategies.uniform import Uniform

NAN = math.nan
COHORT = Cohort(np.array([5, 2, 7]))


def reports(needs: set[str], width: int = 0) -> RoundReports:
    strategy: Any = SimpleNamespace(needs=frozenset(needs))
    return RoundReports(strategy, width)


def test_only_some_strategies_decide_which_updates_enter_the_model() -> None:
    assert decides(Conformal()) is True
    assert decides(Uniform()) is False


def test_reports_of_clients_without_an_update_are_not_read() -> None:
    rows = [ClientResult({"loss": 1.0}), ClientResult({"loss": 2.0, "x": 3.0}, late="late"), ClientResult({"y": 4.0})]
    found = reports(set()).of(COHORT, rows)
    assert list(found) == ["loss", "y"]
    np.testing.assert_array_equal(found["loss"], [1.0, NAN, NAN])
    np.testing.assert_array_equal(found["y"], [NAN, NAN, 4.0])
    sent = reported(COHORT, {7: rows[2], 2: rows[1], 5: rows[0]})
    assert [(each.client, each.report) for each in sent] == [(5, {"loss": 1.0}), (7, {"y": 4.0})]


def test_updates_and_their_norms_are_added() -> None:
    """Norms that clients report stay; without an update they are enough for a strategy that reads norms only."""
    rows = [
        ClientResult(update=[3.0, 4.0]),
        ClientResult(failure="lost"),
        ClientResult({"update_norm": 2.0}, update=[1.0, 0.0]),
    ]
    found = reports({"update"}).of(COHORT, rows)
    np.testing.assert_array_equal(found["update"], [[3.0, 4.0], [NAN, NAN], [1.0, 0.0]])
    np.testing.assert_array_equal(found["update_norm"], [5.0, NAN, 2.0])
    rows[2] = ClientResult({"update_norm": 2.0})
    found = reports({"update_norm"}).of(COHORT, rows)
    assert list(found) == ["update_norm"]
    np.testing.assert_array_equal(found["update_norm"], [5.0, NAN, 2.0])
    with pytest.raises(UsageError, match="client 7 has no update, but SimpleNamespace needs it"):
        reports({"update"}).of(COHORT, rows)


def test_updates_have_one_length_in_a_round_and_in_later_ones() -> None:
    lost = ClientResult(failure="lost")
    two, three = ClientResult(update=[1.0, 2.0]), ClientResult(update=[1.0, 2.0, 3.0])
    own = reports({"update"})
    with pytest.raises(UsageError, match=r"the update of client 7 has the shape \[3\]; must have 2 numbers"):
        own.of(COHORT, [two, lost, three])
    assert own.of(COHORT, [lost, three, lost])["update"].shape == (3, 3)  # nothing was observed yet
    own.keep_length({5: lost, 2: two})
    own.keep_length({5: three})
    with pytest.raises(UsageError, match="must have 2 numbers"):
        own.of(COHORT, [lost, three, lost])
    assert own.of(COHORT, [lost] * 3)["update"].shape == (3, 2)
    assert reports({"update"}, 4).of(COHORT, [lost] * 3)["update"].shape == (3, 4)
