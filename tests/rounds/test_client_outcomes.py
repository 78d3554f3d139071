"""What is kept and billed of each selected client, from updates that are written by hand."""

import math
from collections.abc import Iterable

import numpy as np
import pytest
import torch

from fedcohort.algorithms import FedAvg, Members, Update
from fedcohort.rounds.client_outcomes import Tally
from fedcohort.selection import Cohort, Outcome

START = {"w": torch.tensor([1.0, 2.0])}
MODEL = 2 * 4
"""Bytes of a model of two numbers."""

OWN = {"loss": 0.5, "steps": 4.0, "q_hat": 0.25, "test_set_size": 2.0}
"""What a client reports: two numbers that every client measures, one of its stopping rule, and one that the simulation measures."""


def tally(*needs: str) -> Tally:
    """The tally of a round with three clients, for a strategy with these needs."""
    return Tally(Cohort(np.array([4, 7, 9])), START, frozenset({"w"}), frozenset(needs))


def update(client: int, **report: float) -> Update:
    """An update whose difference to the model is (3, −4), with the norm 5."""
    return Update(client, 10, 4, {"w": torch.tensor([4.0, -2.0])}, report=report)


def played(own: Tally, updates: Iterable[Update]) -> Outcome:
    """The outcome of a round in which all updates that arrive are admitted."""
    list(own.admitted(own.arrived(updates), FedAvg(), Members(10, 100, 3)))
    own.settle()
    return own.outcome(1, 6.0, None)


def test_a_report_of_a_stopping_rule_costs_four_bytes_for_each_client_that_sends_it() -> None:
    """What the server derives from updates, and what the simulation measures on the test set, is not sent."""
    own = tally("update_norm")
    outcome = played(own, [update(4, **OWN), update(7, **OWN), update(9)])
    assert own.bytes_up == 3 * MODEL + 2 * 4
    assert own.disclosed == "its update and number of samples, q_hat"
    assert [row.reports for row in own.rows] == [
        *[{"q_hat": 0.25, "test_set_size": 2.0, "update_norm": 5.0}] * 2,
        {"update_norm": 5.0},
    ]
    assert outcome.billed_report("update_norm").tolist() == [5.0, 5.0, 5.0]
    assert outcome.billed_report("q_hat").tolist() == pytest.approx([0.25, 0.25, math.nan], nan_ok=True)
    assert np.isnan(outcome.billed_report("test_set_size")).all(), "no strategy sees it"
    own.bill_reports(outcome)
    assert own.bytes_up == 3 * MODEL + 2 * 4, "reading them costs nothing more"


def test_a_norm_that_clients_report_is_sent_and_kept() -> None:
    """Clients that send a part of their update report the norm of the whole one."""
    own = tally("update_norm")
    outcome = played(own, [update(client, update_norm=7.0) for client in (4, 7, 9)])
    assert own.bytes_up == 3 * MODEL + 3 * 4
    assert outcome.billed_report("update_norm").tolist() == [7.0] * 3


def test_a_strategy_sees_updates_as_trained_minus_received_parameters() -> None:
    """Parameters are in the order of their names; the update of client 7 diverged, and client 9 sent none."""
    start = {"b": torch.tensor([1.0]), "a": torch.tensor([[2.0, 3.0]]), "running_mean": torch.tensor([9.0])}
    own = Tally(Cohort(np.array([4, 7, 9])), start, frozenset({"b", "a"}), frozenset({"update"}))
    sent = {"b": torch.tensor([0.5]), "a": torch.tensor([[4.0, 7.0]]), "running_mean": torch.tensor([1.0])}
    diverged = sent | {"b": torch.tensor([math.nan])}
    outcome = played(own, [Update(4, 10, 4, sent), Update(7, 10, 4, diverged)])
    found = outcome.billed_report("update")
    assert found[0].tolist() == [2.0, 4.0, -0.5]
    assert np.isnan(found[1:]).all()
    assert found.shape == (3, 3)
    norm = math.sqrt(2**2 + 4**2 + 0.5**2)
    assert outcome.billed_report("update_norm").tolist() == pytest.approx([norm, math.nan, math.nan], nan_ok=True)
    assert outcome.trained.tolist() == [True, False, False], "a diverged update is none"


def test_reports_that_a_strategy_reads_are_billed_for_the_clients_that_sent_them() -> None:
    """Client 7 failed, and client 9 did not measure its steps."""
    own = tally()
    failed = update(7, **OWN)
    failed.failure = "dropped out"
    outcome = played(own, [update(4, loss=0.5, steps=4.0), failed, update(9, loss=0.25)])
    assert outcome.billed_report("loss").tolist() == pytest.approx([0.5, math.nan, 0.25], nan_ok=True)
    outcome.billed_report("steps")
    own.bill_reports(outcome)
    assert own.bytes_up == 2 * MODEL + (2 + 1) * 4
    assert own.disclosed == "its update and number of samples, loss, steps"


def test_clients_that_are_all_declined_disclose_no_update() -> None:
    own = tally()
    arrived = list(own.arrived([update(4, **OWN), update(7, **OWN)]))
    assert list(own.admitted([], FedAvg(), Members(10, 100, 3))) == []
    assert [row.status for row in own.rows] == ["declined", "declined", "failed"]
    assert len(arrived) == 2
    assert own.disclosed == "its number of samples, q_hat"
    assert (own.bytes_up, own.uploads) == (2 * 4, 0)


def test_a_strategy_sees_the_times_that_the_server_knows() -> None:
    """The server stopped waiting after 6 for client 7, whose update would have taken longer; client 9 failed."""
    own = tally()
    late, failed = update(7), update(9)
    late.late, late.duration = "needed 8, the deadline is 6", 8.0
    failed.failure, failed.duration = "dropped out", 3.0
    in_time = update(4)
    in_time.duration = 2.0
    outcome = played(own, [in_time, late, failed])
    assert outcome.durations.tolist() == pytest.approx([2.0, 6.0, math.nan], nan_ok=True)
    assert outcome.trained.tolist() == outcome.admitted.tolist() == [True, False, False]
    assert [row.duration for row in own.rows] == [2.0, 8.0, 3.0], "the record has what the simulation knows"


def test_a_client_without_an_answer_has_no_samples_steps_or_time() -> None:
    """Client 7 failed with an answer, and client 9 sent none: nothing is known about it."""
    own = tally()
    played(own, [update(4), Update(7, 10, 2, {}, failure="its disk is full")])
    facts = [(row.client, row.status, row.detail, row.num_samples, row.steps) for row in own.rows]
    assert facts == [
        (4, "admitted", "", 10, 4),
        (7, "failed", "its disk is full", 10, 2),
        (9, "failed", "no answer", 0, 0),
    ]
    assert math.isnan(own.rows[2].duration)
