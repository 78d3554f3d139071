"""The note about simulated time says how long the fastest possible client needs under the experiment's own laws."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fedcohort.experiment import Experiment
from fedcohort.experiment.time_unit import least_time
from fedcohort.federation.latency import ShiftedExponential
from fedcohort.study.rows.comparison_row import Row, about_times


@dataclass
class Played:
    """A run of which only the clock is read."""

    clock: str = "simulated"


def note(*systems: dict[str, Any]) -> str:
    """The note about the times of a comparison whose rows have these settings."""
    played: Any = {0: Played()}
    return about_times([Row(str(i), Experiment(systems=one), played) for i, one in enumerate(systems)])


@pytest.mark.parametrize("shift", [0.3, 1.0, 2.5])
def test_the_least_time_is_that_of_the_law(shift: float) -> None:
    systems = Experiment(systems={"latency": {"name": "shifted_exponential", "shift": shift}}).systems
    samples = np.array([1] * 100_000)
    assert float(least_time(systems).split()[0]) == shift
    assert ShiftedExponential(shift=shift).times(samples, 0)(1).min() == pytest.approx(shift, abs=0.01)


def test_the_note_below_a_comparison() -> None:
    assert note({}, {}) == "Simulated time: the fastest possible client needs 1 unit per sample and round."
    slower: dict[str, Any] = {"latency": {"name": "shifted_exponential", "shift": 2.5}}
    assert note(slower) == "Simulated time: the fastest possible client needs 2.5 units per sample and round."
    sending = note({"network": "lognormal"})
    assert sending.endswith("needs 1 unit per sample and round, and the time for the model's bytes.")
    unknown = "Simulated time: in the unit of systems.latency."
    assert note({"latency": {"name": "given_times", "times_of_clients": [1.0] * 12}}) == unknown
    assert note({}, slower) == unknown
