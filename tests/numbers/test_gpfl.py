"""GPFL: projections and their scale, the bonus, averages of updates, and the memory limit."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

import fedcohort
from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import make
from fedcohort.selection.strategies.gpfl import GPFL
from tests.experiments import small
from tests.selection.fakes import a_census, a_round, an_outcome, the_why

UPDATES = np.array([[2.0, 0], [0, 4], [-3, 0]])


def ready(**values: Any) -> GPFL:
    """Three clients of 10, 20 and 70 samples, all of which trained once; the global update is (0.2 − 2.1, 0.8)."""
    selector: GPFL = make(GPFL, values, "selection")
    selector.setup(a_census([10, 20, 70], 1))
    selector.observe(an_outcome([0, 1, 2], reports={"update": UPDATES}))
    return selector


def test_projections_match_hand_computed_values() -> None:
    selector = ready(a=0.0)
    why = the_why(selector.select(a_round(1, 3, t=2)))
    length = math.hypot(1.9, 0.8)
    expected = np.array([-3.8, 3.2, 5.7]) / length
    assert why.terms["projection"] == pytest.approx(expected, rel=1e-6)
    raised = np.exp(expected / expected.std())
    assert why.scores == pytest.approx(3 * raised / raised.sum(), rel=1e-5)
    assert why.scores.mean() == pytest.approx(1)
    assert selector.select(a_round(1, 3, t=2)).clients.tolist() == [2]


def test_the_mean_client_with_an_update_has_the_fit_1_beside_clients_without_one() -> None:
    """Client 1 was selected without sending an update: its fit is 1."""
    selector: GPFL = make(GPFL, {"a": 0.0}, "selection")
    selector.setup(a_census([10, 20, 70], 1))
    sent = [True, False, True]
    selector.observe(an_outcome([0, 1, 2], reports={"update": UPDATES}, trained=sent))
    fit = the_why(selector.select(a_round(1, 3, t=2))).terms["fit"]
    assert fit[1] == 1
    assert fit[[0, 2]].sum() == pytest.approx(2)
    assert fit[0] < 1 < fit[2]


def test_only_admitted_updates_enter_the_global_update() -> None:
    selector = GPFL()
    selector.setup(a_census([10, 20, 70], 1))
    selector.observe(an_outcome([0, 1, 2], reports={"update": UPDATES}, admitted=[True, True, False]))
    assert selector.global_update == pytest.approx([2 / 3, 8 / 3])


def test_the_bonus_decays_over_rounds_and_with_selections() -> None:
    selector = ready(decay=0.5)
    selector.observe(an_outcome([1], t=2, trained=[False]))
    why = the_why(selector.select(a_round(1, 3, t=4)))
    assert why.terms["bonus"] == pytest.approx(0.125 * np.sqrt(2 * math.log(4) / np.array([1, 2, 1])))


def test_updates_are_averaged_over_participations() -> None:
    selector = ready(momentum=0.75)
    selector.observe(an_outcome([0], t=2, reports={"update": np.array([[6.0, 8.0]])}))
    assert selector.directions is not None
    assert selector.directions[0].tolist() == [3.0, 2.0]
    assert selector.directions[1].tolist() == [0.0, 4.0]


def test_a_client_never_selected_comes_first_and_one_without_an_update_has_the_average_fit() -> None:
    selector = GPFL()
    selector.setup(a_census([10] * 4, 1))
    selector.observe(an_outcome([0, 1, 2], reports={"update": UPDATES}, trained=[True, True, False]))
    why = the_why(selector.select(a_round(1, 4, t=2)))
    assert why.candidates[np.isinf(why.scores)].tolist() == [3]
    assert why.terms["fit"][2] == 1.0


def test_updates_too_long_for_single_precision_count_as_unknown() -> None:
    selector = GPFL()
    selector.setup(a_census([10] * 3, 1))
    selector.observe(an_outcome([0, 1, 2], reports={"update": 1e30 * UPDATES}))
    why = the_why(selector.select(a_round(1, 3, t=2)))
    assert why.terms["fit"].tolist() == [1.0] * 3
    assert np.isfinite(why.scores).all()


def test_too_much_memory_is_refused_before_training() -> None:
    selector: GPFL = make(GPFL, {"memory_limit": 0.01}, "selection")
    selector.setup(a_census([1] * 1000, 2))
    message = r"memory_limit = 0\.01: the updates of 1,000 clients with 10,000 parameters take 0\.0373 GiB"
    with pytest.raises(UsageError, match=message):
        selector.observe(an_outcome([0], reports={"update": np.zeros((1, 10_000))}))
    with pytest.raises(UsageError, match=message):  # before anything is trained
        selector.setup(dataclasses.replace(a_census([1] * 1000, 2), num_parameters=10_000))


def test_a_run_selects_every_client_once_first(tmp_path: Any) -> None:
    run = fedcohort.run(small(selection={"name": "gpfl_select", "k": 4}), runs=tmp_path)
    assert run.clients.query("round <= 3")["client"].nunique() == 12
