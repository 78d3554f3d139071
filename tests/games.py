"""A game on digits for tests that look inside a round."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fedcohort.rounds import Game
from fedcohort.runs.given import Given
from fedcohort.runs.prepare import prepare
from tests.experiments import cell, small


@contextmanager
def a_game(given: Given | None = None, **values: Any) -> Iterator[Game]:
    """The small experiment, ready for its first round."""
    with prepare(cell(small(**values)).experiment, given or Given()) as (game, _):
        yield game
