"""What the headline says about rows in which training failed."""

from typing import Any, cast

import pytest

from fedcohort.report.headline import headline_doubts
from fedcohort.report.headline.headline_doubts import doubts_about_clear_rows

NAMES = ["'a'", "'b'", "'c'", "'d'", "'e'", "'f'"]


@pytest.mark.parametrize(
    ("failing", "named", "others"),
    [
        ([], [], []),
        ([2], ["'c'"], []),
        ([0, 2, 4], ["'a'", "'c'", "'e'"], []),
        ([0, 2, 3, 4], ["'a'", "'c'", "'d'"], ["The same holds for 1 more row."]),
        ([0, 2, 3, 4, 5], ["'a'", "'c'", "'d'"], ["The same holds for 2 more rows."]),
    ],
)
def test_three_failed_rows_are_named_and_the_others_counted(
    failing: list[int], named: list[str], others: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headline_doubts, "problem", lambda _, row: f"reason {row}")
    sentences = [
        f"{name} has a clear difference to the reference, but is no sound result: reason {row}. See Health."
        for name, row in zip(named, failing, strict=False)
    ]
    assert doubts_about_clear_rows(cast("Any", None), NAMES, failing) == [*sentences, *others]
