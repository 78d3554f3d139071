"""The unit of simulated time is free: in hours instead of milliseconds, nothing but times changes, and short ones are shown."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcohort
from fedcohort.core.words.formatted_values import simulated_time
from fedcohort.experiment import Experiment
from fedcohort.racing.costs import cost_of, score_of
from fedcohort.report import terminal
from fedcohort.report.charts.client_table import client_table
from fedcohort.report.data.report_data import find_runs, gather
from tests.experiments import small

UNIT = 2.0**-14
"""A power of two, so that products with it are exact."""


def timed(unit: float, **values: Any) -> Experiment:
    """An experiment with every setting that has a time; all of them are multiplied by a unit."""
    systems: dict[str, Any] = {
        "latency": {"name": "shifted_exponential", "shift": unit, "spread": 3 * unit, "redraw": "mixed"},
        "network": {"name": "lognormal", "bandwidth": 50.0 / unit},
        "availability": {"name": "markov", "p_on": 0.4, "p_off": 0.3},
        "dropout": 0.1, "deadline": 1000 * unit, "overcommit": 1.3, "idle_time": 8 * unit,
    }  # fmt: skip
    return small(rounds=8, systems=systems, federation={"clients": 12, "partition": "iid"}, **values)


@pytest.mark.parametrize("strategy", ["oort", "pyramidfl", "fedcs", "cs_ucb", "tifl", "feel"])
def test_the_unit_changes_times_only(strategy: str, tmp_path: Path) -> None:
    runs = [
        fedcohort.run(timed(unit, selection={"name": strategy, "k": 4}), runs=tmp_path, progress=False)
        for unit in (1.0, UNIT)
    ]
    first, second = (run.rounds for run in runs)
    assert [each.tolist() for each in runs[0].selections] == [each.tolist() for each in runs[1].selections]
    np.testing.assert_array_equal(first["test_accuracy"], second["test_accuracy"])
    np.testing.assert_allclose(first["simulated_time"] * UNIT, second["simulated_time"], rtol=1e-12)


@pytest.mark.parametrize(
    ("time", "text"),
    [(0.0, "0"), (3.46e-7, "3.46e−07"), (0.03512, "0.0351"), (7.25, "7.25"), (14.25, "14.2"), (99.96, "100"), (3060.4, "3,060"),
     (float("inf"), "∞"), (float("nan"), "–")],
)  # fmt: skip
def test_times_have_at_least_three_digits(time: float, text: str) -> None:
    assert simulated_time(time) == text


def test_a_race_does_not_depend_on_the_unit() -> None:
    """Times below 0.001 counted as 0.001, and were shown as 0."""
    for short, long in ((3e-4, 6e-4), (3e-9, 6e-9)):
        assert score_of("time", short) - score_of("time", long) == pytest.approx(math.log(2))
        assert cost_of("time", score_of("time", short)) == pytest.approx(short)
    assert cost_of("time", score_of("time", 0.0)) == 0


def test_short_times_are_shown_in_tables_races_and_charts(tmp_path: Path) -> None:
    experiment = timed(UNIT, seeds=2, selection="uniform", variants=[{"label": "UCB", "selection": {"name": "ucb"}}])
    compared = fedcohort.compare(experiment, runs=tmp_path, progress=False)
    own = compared.table.iloc[0]
    assert 0 < own["simulated_time"] < 10
    shown = simulated_time(own["simulated_time"])
    assert "." in shown
    printed = terminal.as_text(terminal.comparison(compared, 300))
    assert simulated_time(own["time_to_target"]) in printed
    race = fedcohort.race(experiment, runs=tmp_path, objective="accuracy@time=0.25", max_seeds=2)
    assert "at a simulated time of 0.25" in race.recommendation
    table = client_table(gather(find_runs([tmp_path])))
    assert table is not None
    (rows,) = table.data.values()
    clients = compared.rows[0].run.clients
    means = clients[clients["status"] == "admitted"].groupby("client")["duration"].mean()
    assert len(means) > 3
    own_rows = rows[rows["strategy"] == "uniform"].set_index("client")["time"]
    np.testing.assert_allclose(own_rows[means.index], means, rtol=0.01)
