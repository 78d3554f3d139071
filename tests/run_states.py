"""A run_state on digits, for tests that inspect single rounds."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fedcohort.experiment.given_objects import Given
from fedcohort.rounds import RunState
from fedcohort.runs.prepare_run import prepare
from tests.experiments import cell, small


@contextmanager
def a_run_state(given: Given | None = None, **values: Any) -> Iterator[RunState]:
    """A run_state of the small experiment with these ``values``, ready for its first round."""
    with prepare(cell(small(**values)).experiment, given or Given()) as (run_state, _):
        yield run_state
