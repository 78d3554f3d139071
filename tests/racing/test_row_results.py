"""What the rows of a race did, and what their runs cost, in worked numbers."""

import math
from dataclasses import fields
from typing import Any

from fedcohort.racing.row_results import DROPPED, FRONT, Cost, RacedRow


def test_costs_are_added_and_multiplied_number_by_number() -> None:
    one, other = Cost(1, 2, 3, 4, 5), Cost(10, 20, 30, 40, 50)
    assert one + other == Cost(11, 22, 33, 44, 55)
    assert other.times(0.5) == Cost(5, 10, 15, 20, 25)
    assert sum([one, other, one], Cost()) == Cost(12, 24, 36, 48, 60)
    assert [getattr(Cost(), field.name) for field in fields(Cost)] == [0.0] * 5


def test_a_cost_in_words_has_everything_but_the_number_of_runs() -> None:
    words = Cost(7, 2_000_000, 1, 30, 90).words
    assert words == "2.0 MB, 1 client pass, a simulated time of 30 and 1:30 min of wall time"
    assert "2 client passes" in Cost(7, 0, 2, 30, 90).words


def test_a_row_knows_its_seeds_its_means_and_its_state() -> None:
    runs: Any = {0: None, 1: None}
    row = RacedRow("a", runs, ((0.5, 0.75), (1.0, 3.0)), FRONT)
    assert (row.seeds, row.means, row.words) == (2, [0.625, 2.0], "on the front")
    dropped = RacedRow("a", runs, ((0.5, 0.75),), DROPPED, dropped_by="b", dropped_after=1)
    assert dropped.words == "dropped after 1 seed by 'b'"
    unknown = [row.difference, row.low, row.high]
    assert all(map(math.isnan, unknown))
    assert (row.dropped_after, row.reached, row.unspent, row.untested, row.needed) == (0, 0, 0, 0, 0)
