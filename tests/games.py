"""A game on digits, for tests that inspect single rounds."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fedcohort.rounds import Game
from fedcohort.runs.given import Given
from fedcohort.runs.prepare import prepare
from tests.experiments import cell, small


@contextmanager
def a_game(given: Given | None = None, **values: Any) -> Iterator[Game]:
    """A game of the small experiment with these ``values``, ready for its first round."""
    with prepare(cell(small(**values)).experiment, given or Given()) as (game, _):
        yield game
